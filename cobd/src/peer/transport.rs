//! The interface between the daemon and its links, for any medium.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use cob_types::HostName;
use cob_types::status::{PeerStatus, Refused};

use super::event::Counters;
use super::roster::Roster;

/// The links of a daemon. Their events arrive as [`super::LinkEvent`]s through the channel that they were started with.
/// Only [`Transport::shutdown`] waits.
pub trait Transport: Send {
    /// Sets the hosts, their addresses and their keys. Links to other hosts, or with other keys, are closed; this host
    /// itself is ignored.
    fn roster(&mut self, roster: Roster);

    /// Sends a batch: it arrives once and in order, also across closed links, as long as both daemons run. It may be
    /// dropped when too many batches wait; then [`super::LinkEvent::Resync`] follows.
    fn send(&mut self, host: &HostName, batch: Bytes);

    /// Sets whether grants or requests connect the two hosts: then a dead host must be noticed soon.
    fn busy(&mut self, host: &HostName, busy: bool);

    /// Every host of the roster, as `cobctl status` shows it.
    fn status(&self) -> Vec<PeerStatus>;

    /// Counters of the links.
    fn counters(&self) -> Counters;

    /// Counters of refusals, by reason.
    fn refused(&self) -> Refused;

    /// Ends all links when all sent batches are acknowledged, or at the limit. Returns the hosts with unacknowledged
    /// batches. Batches that still arrive are not passed on.
    fn shutdown(self, limit: Duration) -> impl Future<Output = Vec<HostName>> + Send;
}
