//! Feeding the index: together, and when nothing else is to be done.
//!
//! What is on record is safe in the journal; the index only serves people. So the records of a turn are
//! put on a list, and the list goes into the index when the daemon has been quiet for a moment, when it
//! has grown long, and before anybody asks.

use cob_engine::Time;
use cob_engine::record::Record;
use cob_engine::time::Span;
use cob_types::HostName;
use cob_types::history::HistoryEntry;
use tracing::warn;

use crate::history;
use crate::journal::index::{Entry, Index, IndexError, Measured, Query};

/// After so long without a record the list goes in.
const QUIET: Span = Span::millis(50);
/// So long a list waits at most, however busy the daemon is.
const AT_LAST: Span = Span::secs(2);
/// A list of this length goes in at once: it costs memory.
const LONG: usize = 1024;

/// The index and what it has yet to be fed.
pub(super) struct Indexing {
    host: HostName,
    /// None: it failed, or could not be opened.
    index: Option<Index>,
    waiting: Vec<(u64, Record, Option<Measured>)>,
    due: Time,
    at_last: Time,
}

impl Indexing {
    pub(super) fn new(host: HostName, index: Option<Index>) -> Self {
        Self { host, index, waiting: Vec::new(), due: Time::NEVER, at_last: Time::NEVER }
    }

    /// When [`Indexing::feed`] is to be called.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// A record that the journal has.
    pub(super) fn add(&mut self, seq: u64, record: Record, measured: Option<Measured>, now: Time) {
        if self.index.is_none() {
            return;
        }
        if self.waiting.is_empty() {
            self.at_last = now + AT_LAST;
        }
        self.waiting.push((seq, record, measured));
        self.due = if self.waiting.len() >= LONG { now } else { (now + QUIET).min(self.at_last) };
    }

    /// Feeds what waits, which must be committed: an index that knows of more than the journal is put aside. It can be
    /// rebuilt, so its faults stop nothing.
    pub(super) fn feed(&mut self) {
        self.due = Time::NEVER;
        let waiting = std::mem::take(&mut self.waiting);
        let Some(index) = self.index.as_mut() else { return };
        let entries = waiting.into_iter().map(|(seq, record, measured)| Entry {
            seq,
            history: history::entry(&self.host, seq, &record),
            measured,
        });
        if let Err(error) = index.add(entries) {
            warn!(%error, "the index failed; history is not available until the next start");
            self.index = None;
        }
    }

    /// A part of the history, of committed records; none when there is no index.
    pub(super) fn history(&mut self, query: &Query) -> Option<Result<Vec<HistoryEntry>, IndexError>> {
        self.feed();
        self.index.as_ref().map(|i| i.history(query))
    }

    /// Feeds what waits and hands everything to the system.
    pub(super) fn close(mut self) {
        self.feed();
        if let Some(Err(error)) = self.index.as_ref().map(Index::flush) {
            warn!(%error, "the index was not flushed");
        }
    }
}
