//! The listening addresses of a daemon: the address of its generation, and earlier addresses that peers may still use.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::link_supervisor::Shared;
use super::listener::{Directory, keep_open};
use super::task::Owned;

/// The open ports of a daemon.
#[derive(Debug)]
pub(super) struct Listeners {
    /// The newest address last.
    open: Vec<(SocketAddr, Owned<()>)>,
}

impl Listeners {
    /// Starts with a listener that is already open.
    pub(super) fn new(
        listener: TcpListener,
        address: SocketAddr,
        shared: &Arc<Shared>,
        directory: &Arc<Directory>,
    ) -> Self {
        let door = Owned::spawn(keep_open(listener, shared.clone(), directory.clone()));
        Self { open: vec![(address, door)] }
    }

    /// The address that was opened last.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.open.last().map(|(address, _)| *address)
    }

    /// Listens at another address; returns whether it is new.
    pub(super) fn open(
        &mut self,
        address: SocketAddr,
        shared: &Arc<Shared>,
        directory: &Arc<Directory>,
    ) -> io::Result<bool> {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == address) {
            let door = self.open.remove(at);
            self.open.push(door);
            return Ok(false);
        }
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let door = Owned::spawn(keep_open(TcpListener::from_std(listener)?, shared.clone(), directory.clone()));
        self.open.push((address, door));
        Ok(true)
    }

    /// Stops listening at these addresses; returns the addresses that were open.
    pub(super) fn close(&mut self, which: impl Fn(&SocketAddr) -> bool) -> Vec<SocketAddr> {
        let closed = self.open.extract_if(.., |(address, _)| which(address));
        closed.map(|(address, _)| address).collect()
    }
}
