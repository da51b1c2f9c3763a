//! What the daemon needs of its links, whatever carries them.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use cob_types::HostName;
use cob_types::status::{PeerStatus, Refused};

use super::event::Counters;
use super::roster::Roster;

/// The links of one daemon. What happens on them arrives as [`super::LinkEvent`]s through the channel
/// that they were started with. Nothing here waits but [`Transport::shutdown`].
pub trait Transport: Send {
    /// Says who exists, where, and how each proves who it is. Links to other hosts, or held with other
    /// keys, are cut; this host itself is left out.
    fn roster(&mut self, roster: Roster);

    /// Sends a batch: it arrives once and in order, also across cut links, for as long as both daemons
    /// live. It may be dropped when too much is waiting; then [`super::LinkEvent::Resync`] follows.
    fn send(&mut self, host: &HostName, batch: Bytes);

    /// Something is held or asked there (or no more): a dead host has to be noticed soon.
    fn busy(&mut self, host: &HostName, busy: bool);

    /// Every host of the roster, as `cobctl status` shows it.
    fn status(&self) -> Vec<PeerStatus>;

    /// What has gone over the links.
    fn counters(&self) -> Counters;

    /// What was sent away, by reason.
    fn refused(&self) -> Refused;

    /// Ends all links when everything sent has been acknowledged, or at the limit. Returns who had not
    /// acknowledged everything by then. What still arrives is not handed on.
    fn shutdown(self, limit: Duration) -> impl Future<Output = Vec<HostName>> + Send;
}
