//! Feeding the index: together, when nothing else is to be done, and in a thread of its own.
//!
//! What is on record is safe in the journal; the index only serves people. So the records of a turn are
//! put on a list, and the list goes to the index when the daemon has been quiet for a moment, when it
//! has grown long, and before anybody asks. Taking records in costs more than what they tell of did, so
//! that the loop does not wait for it, unless several lists are on their way already.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

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

/// So many lists are on their way at most.
const LISTS: usize = 4;

/// Records with their numbers, and what was measured of them.
type List = Vec<(u64, Record, Option<Measured>)>;
type Answer = Result<Vec<HistoryEntry>, IndexError>;

/// The index and what it has yet to be fed.
pub(super) struct Indexing {
    /// None: it failed, or could not be opened.
    keeper: Option<Keeper>,
    waiting: List,
    due: Time,
    at_last: Time,
}

/// The thread that has the index, and the way to it. What it is told it does in this order.
struct Keeper {
    words: SyncSender<Word>,
    thread: JoinHandle<()>,
}

enum Word {
    Feed(List),
    Ask(Query, SyncSender<Answer>),
}

impl Indexing {
    pub(super) fn new(host: HostName, index: Option<Index>) -> Self {
        let keeper = index.and_then(|index| {
            let (words, told) = sync_channel(LISTS);
            let keep = move || keep(index, &host, &told);
            match std::thread::Builder::new().name("history-index".to_owned()).spawn(keep) {
                Ok(thread) => Some(Keeper { words, thread }),
                Err(error) => {
                    warn!(%error, "there is no thread for the index; history is not available");
                    None
                }
            }
        });
        Self { keeper, waiting: Vec::new(), due: Time::NEVER, at_last: Time::NEVER }
    }

    /// When [`Indexing::feed`] is to be called.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// A record that the journal has.
    pub(super) fn add(&mut self, seq: u64, record: Record, measured: Option<Measured>, now: Time) {
        if self.keeper.is_none() {
            return;
        }
        if self.waiting.is_empty() {
            self.at_last = now + AT_LAST;
        }
        self.waiting.push((seq, record, measured));
        self.due = if self.waiting.len() >= LONG { now } else { (now + QUIET).min(self.at_last) };
    }

    /// Hands over what waits, which must be committed: an index that knows of more than the journal is put aside. It can
    /// be rebuilt, so its faults stop nothing.
    pub(super) fn feed(&mut self) {
        self.due = Time::NEVER;
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            self.say(Word::Feed(waiting));
        }
    }

    /// A part of the history, of committed records; none when there is no index.
    pub(super) fn history(&mut self, query: &Query) -> Option<Answer> {
        self.feed();
        let (reply, answer) = sync_channel(1);
        self.say(Word::Ask(query.clone(), reply));
        answer.recv().ok()
    }

    /// Feeds what waits and hands everything to the system.
    pub(super) fn close(mut self) {
        self.feed();
        let Some(Keeper { words, thread }) = self.keeper else { return };
        drop(words);
        if thread.join().is_err() {
            warn!("the index was not flushed: its thread has panicked");
        }
    }

    fn say(&mut self, word: Word) {
        // Without a receiver it has failed, and has said so.
        if self.keeper.as_ref().is_some_and(|keeper| keeper.words.send(word).is_err()) {
            self.keeper = None;
        }
    }
}

/// The life of the thread.
fn keep(mut index: Index, host: &HostName, told: &Receiver<Word>) {
    while let Ok(word) = told.recv() {
        match word {
            Word::Feed(list) => {
                let entries = list.into_iter().map(|(seq, record, measured)| Entry {
                    seq,
                    history: history::entry(host, seq, &record),
                    measured,
                });
                if let Err(error) = index.add(entries) {
                    warn!(%error, "the index failed; history is not available until the next start");
                    return;
                }
            }
            // One who has gone away does not miss the answer.
            Word::Ask(query, reply) => drop(reply.send(index.history(&query))),
        }
    }
    if let Err(error) = index.flush() {
        warn!(%error, "the index was not flushed");
    }
}

#[cfg(test)]
mod tests {
    use cob_engine::record::Body;
    use cob_types::GenerationNumber;

    use super::*;

    fn record(generation: u64) -> Record {
        let generation = GenerationNumber(generation);
        Record { at: Time(generation.0), lamport: 1, generation, body: Body::Go(generation), by: None }
    }

    #[test]
    fn whoever_asks_is_told_of_all_that_was_added_and_the_next_life_has_it() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("index");
        let host = HostName::new("n1").expect("name");
        let many = (3 * LISTS * LONG) as u64;
        let open = || Index::open(&path, many).expect("opens").index;
        let mut indexing = Indexing::new(host.clone(), Some(open()));
        let all = Query { since: 0, cob: None, limit: usize::MAX, newest: false };
        for seq in 1..=many {
            indexing.add(seq, record(seq), None, Time(0));
            if indexing.due() <= Time(0) {
                indexing.feed();
            }
            if seq % 5000 == 0 {
                let told = indexing.history(&all).expect("an index").expect("answers");
                assert_eq!(told.len() as u64, seq);
            }
        }
        indexing.close();
        assert_eq!(open().upto(), many);
        assert!(Indexing::new(host, None).history(&all).is_none());
    }
}
