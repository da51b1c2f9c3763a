//! Feeds the index in batches, when the loop is idle, in a thread of its own.
//!
//! Records are safe in the journal; the index only serves people, and to index a record costs more than the work that
//! it records. So a short list of records waits until the daemon has been quiet for a moment, or until a query comes.
//! If the list would grow long, or the thread is behind, the list is dropped: the thread reads the journal itself
//! later. The loop never waits for the thread.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use cob_engine::Time;
use cob_engine::record::{Body, Record};
use cob_engine::time::Span;
use cob_types::history::HistoryEntry;
use cob_types::{HostName, codec};
use tracing::warn;

use crate::history;
use crate::journal::index::{Index, IndexEntry, IndexError, Query};
use crate::journal::{MAX_PAYLOAD, Past, What};

/// The index is fed after this time without a record, or by an earlier query. Between the steps of a switch it is quiet
/// for seconds, and hosts wait for the next step.
const QUIET: Span = Span::secs(3);
/// The longest time that records wait, also if the daemon is busy.
const AT_LAST: Span = Span::secs(60);
/// A list of this length is dropped: it costs memory, and the journal has all its records.
const LONG: usize = 1024;
/// From this number of records on they do not wait: the journal forgets old records.
const MANY: u64 = 200_000;
/// The most orders that are kept aside while the index has yet to read the journal: the newest.
const ASIDE: usize = 1024;
/// The most lists on their way to the thread.
const LISTS: usize = 4;

/// Records with their numbers.
type List = Vec<(u64, Record)>;
/// A part of the history; absent: there is no index.
pub(super) type Answer = Option<Result<Vec<HistoryEntry>, IndexError>>;
type Reply = Box<dyn FnOnce(Answer) + Send>;

/// The index and its waiting records.
pub(super) struct Indexing {
    /// Absent: the index could not be opened.
    keeper: Option<IndexThread>,
    waiting: List,
    /// The record from which the index must read the journal.
    behind: Option<u64>,
    /// Orders and steps of switches since then: the journal may forget them before the index reads it.
    aside: VecDeque<(u64, Record)>,
    /// The last known record.
    last: u64,
    due: Time,
    at_last: Time,
}

/// The thread with the index, and its queue, which it processes in order.
struct IndexThread {
    words: Sender<Word>,
    /// The number of queued messages that feed the index.
    feeding: Arc<AtomicUsize>,
    /// The daemon ends: reading the journal is left to the next incarnation.
    closing: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

enum Word {
    Feed(List),
    /// The index reads the records up to this one from the journal.
    CatchUp {
        upto: u64,
        aside: VecDeque<(u64, Record)>,
    },
    Ask(Query, Reply),
}

impl Indexing {
    /// For a journal whose last record is `last`; `index`: the index's folder, and the last record that it may contain.
    /// The index is opened when it is first fed.
    pub(super) fn new(host: HostName, journal: PathBuf, last: u64, index: Option<(PathBuf, u64)>, now: Time) -> Self {
        let lacks_from = index.as_ref().map(|(_, known)| known + 1);
        let keeper = index.and_then(|(folder, _)| {
            let (words, told) = channel();
            let (feeding, closing) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let both = (feeding.clone(), closing.clone());
            let index = State::Closed(folder);
            let keeping = Keeping { index, host, journal, feeding: both.0, closing: both.1 };
            match std::thread::Builder::new().name("history-index".to_owned()).spawn(move || keeping.live(&told)) {
                Ok(thread) => Some(IndexThread { words, feeding, closing, thread }),
                Err(error) => {
                    warn!(%error, "there is no thread for the index; history is not available");
                    None
                }
            }
        });
        // The index may lack earlier records.
        let behind = lacks_from.filter(|_| keeper.is_some());
        let due = if behind.is_some() { now + QUIET } else { Time::NEVER };
        let aside = VecDeque::new();
        Self { keeper, waiting: Vec::new(), behind, aside, last, due, at_last: now + AT_LAST }
    }

    /// When [`Indexing::feed`] must be called.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Adds a record of the journal.
    pub(super) fn add(&mut self, seq: u64, record: Record, now: Time) {
        if self.keeper.is_none() {
            return;
        }
        self.come_to(seq, now);
        if self.behind.is_some() {
            self.put_aside(seq, record);
        } else {
            self.waiting.push((seq, record));
            if self.waiting.len() >= LONG {
                self.fall_behind();
            }
        }
    }

    /// Adds very many records of the journal: the first and the last number.
    pub(super) fn add_many(&mut self, first: u64, last: u64, now: Time) {
        if self.keeper.is_some() {
            self.come_to(last, now);
            self.fall_behind();
            self.behind.get_or_insert(first);
        }
    }

    fn come_to(&mut self, seq: u64, now: Time) {
        if self.waiting.is_empty() && self.behind.is_none() {
            self.at_last = now + AT_LAST;
        }
        self.last = seq;
        let many = self.behind.is_some_and(|from| seq - from >= MANY);
        self.due = if many { now } else { (now + QUIET).min(self.at_last) };
    }

    /// Drops the waiting list: its records will be read from the journal.
    fn fall_behind(&mut self) {
        let first = self.waiting.first().map(|(seq, _)| *seq);
        self.behind = self.behind.or(first);
        for (seq, record) in std::mem::take(&mut self.waiting) {
            self.put_aside(seq, record);
        }
    }

    fn put_aside(&mut self, seq: u64, record: Record) {
        if matches!(record.body, Body::Ordered(_) | Body::SwitchStarted(_) | Body::Activated(_)) || record.by.is_some()
        {
            self.aside.push_back((seq, record));
            if self.aside.len() > ASIDE {
                self.aside.pop_front();
            }
        }
    }

    /// Feeds the waiting records, which must be committed: an index with more records than the journal is rejected. The
    /// index can be rebuilt, so its errors do not stop the daemon.
    pub(super) fn feed(&mut self, now: Time) {
        self.due = Time::NEVER;
        let Some(keeper) = &self.keeper else { return };
        if keeper.feeding.load(Ordering::Relaxed) >= LISTS {
            self.fall_behind();
            // The thread is busy.
            self.due = if self.behind.is_some() { now + QUIET } else { Time::NEVER };
            return;
        }
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let word = match self.behind.take() {
            Some(_) => Word::CatchUp { upto: self.last, aside: std::mem::take(&mut self.aside) },
            None if self.waiting.is_empty() => return,
            None => Word::Feed(std::mem::take(&mut self.waiting)),
        };
        let Some(keeper) = &self.keeper else { return };
        keeper.feeding.fetch_add(1, Ordering::Relaxed);
        if keeper.words.send(word).is_err() {
            // The thread has panicked and has logged that.
            self.keeper = None;
        }
    }

    /// Queries committed records. The answer comes in another thread.
    pub(super) fn history(&mut self, query: Query, reply: Reply) {
        self.hand_over();
        self.due = Time::NEVER;
        match &self.keeper {
            None => reply(None),
            Some(keeper) => {
                if let Err(unheard) = keeper.words.send(Word::Ask(query, reply))
                    && let Word::Ask(_, reply) = unheard.0
                {
                    reply(None);
                }
            }
        }
    }

    /// Feeds a short waiting list if it is `committed`, and flushes the index. Reading the journal is left to the next
    /// incarnation: a shutdown must be quick.
    pub(super) fn close(mut self, committed: bool) {
        if committed && self.behind.is_none() {
            self.hand_over();
        }
        let Some(IndexThread { words, closing, thread, .. }) = self.keeper else { return };
        closing.store(true, Ordering::Relaxed);
        drop(words);
        if thread.join().is_err() {
            warn!("the index was not flushed: its thread has panicked");
        }
    }
}

/// The data of the thread.
struct Keeping {
    index: State,
    host: HostName,
    journal: PathBuf,
    feeding: Arc<AtomicUsize>,
    closing: Arc<AtomicBool>,
}

/// The state of the index.
enum State {
    /// The index is in this folder and has not been used yet.
    Closed(PathBuf),
    Open(Index),
    /// The index could not be opened, or has failed.
    Gone,
}

impl Keeping {
    fn live(mut self, told: &Receiver<Word>) {
        while let Ok(word) = told.recv() {
            match word {
                Word::Feed(list) => {
                    let upto = list.last().map_or(0, |(seq, _)| *seq);
                    let entries = list.into_iter().map(|(seq, record)| entry(&self.host, seq, &record));
                    self.index.add(upto, entries);
                }
                Word::CatchUp { upto, aside } => self.catch_up(upto, aside),
                // The answer may be lost if the asker has gone.
                Word::Ask(query, reply) => {
                    reply(self.index.opened().map(|index| index.history(&query)));
                    continue;
                }
            }
            self.feeding.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(Err(error)) = self.index.opened().map(|index| index.flush()) {
            warn!(%error, "the index was not flushed");
        }
    }

    fn catch_up(&mut self, upto: u64, aside: VecDeque<(u64, Record)>) {
        self.index.open(upto);
        let Some(from) = self.index.opened().map(|index| index.upto() + 1).filter(|from| *from <= upto) else {
            return;
        };
        let past = match Past::read(&self.journal, from, upto) {
            Ok(past) => past,
            Err(error) => {
                warn!(%error, "the history lacks records of the journal");
                return;
            }
        };
        let mut past = past.peekable();
        let first = past.peek().and_then(|entry| entry.as_ref().ok()).map_or(upto, |entry| entry.seq);
        let forgotten = aside.iter().take_while(|(seq, _)| *seq < first);
        let forgotten: Vec<_> = forgotten.map(|(seq, record)| entry(&self.host, *seq, record)).collect();
        // A snapshot adds no history.
        let past = past.map_while(Result::ok).take_while(|_| !self.closing.load(Ordering::Relaxed));
        let entries = past.filter(|entry| entry.what == What::Change).filter_map(|entry| {
            let record = codec::decode::<Record>(&entry.payload, MAX_PAYLOAD).ok()?;
            Some(self::entry(&self.host, entry.seq, &record))
        });
        self.index.add(upto, forgotten.into_iter().chain(entries));
    }
}

impl State {
    /// Opens the index at its first use, beside a journal with this number of records.
    fn open(&mut self, last: u64) {
        let Self::Closed(folder) = self else { return };
        *self = match Index::open_beside(folder, last) {
            Ok(index) => Self::Open(index),
            Err(error) => {
                warn!(%error, "there is no index; history is not available");
                Self::Gone
            }
        };
    }

    fn opened(&self) -> Option<&Index> {
        match self {
            Self::Open(index) => Some(index),
            Self::Closed(_) | Self::Gone => None,
        }
    }

    /// Adds entries; a failed index is closed.
    fn add(&mut self, upto: u64, entries: impl IntoIterator<Item = IndexEntry>) {
        let Self::Open(index) = self else { return };
        if let Err(error) = index.add(upto, entries) {
            warn!(%error, "the index failed; history is not available until the next start");
            *self = Self::Gone;
        }
    }
}

fn entry(host: &HostName, seq: u64, record: &Record) -> IndexEntry {
    IndexEntry { seq, history: history::entry(host, seq, record) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::sync_channel;

    use cob_engine::record::OrderRecord;
    use cob_types::GenerationNumber;

    use super::*;
    use crate::journal::{FileJournal, Journal as _, Keep};

    const ALL: Query = Query { since: 0, cob: None, limit: usize::MAX, newest: false };

    fn host() -> HostName {
        HostName::new("n1").expect("name")
    }

    fn record(generation: u64) -> Record {
        let generation = GenerationNumber(generation);
        Record { at: Time(generation.0), lamport: 1, generation, body: Body::SwitchStarted(generation), by: None }
    }

    /// A daemon's journal and index, with a stopped clock: the daemon looks busy as long as the index is not fed.
    struct Life {
        journal: FileJournal,
        indexing: Indexing,
    }

    impl Life {
        fn begin(folder: &Path) -> Self {
            let journal =
                FileJournal::open(&folder.join("journal"), Keep { segments: 1, bytes: 0 }).expect("opens").journal;
            let last = journal.last_seq();
            let index = folder.join("index");
            let known = Index::known_beside(&index, last).expect("beside it");
            let indexing = Indexing::new(host(), folder.join("journal"), last, Some((index, known)), Time(0));
            Self { journal, indexing }
        }

        fn add(&mut self, count: u64) {
            for _ in 0..count {
                let record = record(self.journal.last_seq() + 1);
                let seq = self.journal.append(&codec::encode_packed(&record).expect("encodes")).expect("taken");
                self.indexing.add(seq, record, Time(0));
            }
            self.journal.commit().expect("committed");
        }

        fn told(&mut self) -> Vec<u64> {
            let (tell, told) = sync_channel(1);
            self.indexing.history(ALL, Box::new(move |answer| tell.send(answer).expect("waited for")));
            let told = told.recv().expect("answered").expect("an index").expect("answers");
            told.iter().map(|entry| entry.seq).collect()
        }
    }

    #[test]
    fn a_history_query_finds_all_records_also_after_a_restart() {
        let folder = tempfile::tempdir().expect("folder");
        let mut life = Life::begin(folder.path());
        for count in [1, 3, LONG as u64, 2, 3 * LONG as u64, 5] {
            life.add(count);
            let all: Vec<u64> = (1..=life.journal.last_seq()).collect();
            assert_eq!(life.told(), all);
        }
        life.add(7);
        // A new segment begins with a record without history.
        let snapshot = Record { body: Body::Snapshot(Box::default()), ..record(1) };
        let snapshot = life.journal.rotate(&codec::encode_packed(&snapshot).expect("encodes")).expect("rotated");
        life.add(2 * LONG as u64);
        life.indexing.close(true);
        let last = life.journal.last_seq();
        drop(life.journal);
        let mut next = Life::begin(folder.path());
        assert!(next.indexing.behind.is_some(), "a large rest is left to the next start");
        assert_eq!(next.told(), (1..=last).filter(|seq| *seq != snapshot).collect::<Vec<_>>());
    }

    #[test]
    fn an_uncommitted_record_is_not_indexed_at_the_end() {
        let folder = tempfile::tempdir().expect("folder");
        let mut life = Life::begin(folder.path());
        life.add(3);
        assert_eq!(life.told(), [1, 2, 3]);
        life.indexing.add(4, record(4), Time(0));
        life.indexing.close(false);
        drop(life.journal);
        assert_eq!(Index::known_beside(&folder.path().join("index"), 3).expect("no more than the journal"), 3);
    }

    #[test]
    fn a_restarted_daemon_indexes_the_records_that_a_kill_left_out() {
        let folder = tempfile::tempdir().expect("folder");
        let mut life = Life::begin(folder.path());
        life.add(10);
        let Life { journal, mut indexing } = life;
        indexing.waiting.clear();
        indexing.close(true);
        drop(journal);
        let mut next = Life::begin(folder.path());
        assert_eq!((next.indexing.behind, next.indexing.due()), (Some(1), Time(0) + QUIET));
        next.add(3);
        assert_eq!(next.told(), (1..=13).collect::<Vec<_>>());
    }

    /// Messages of other hosts fill segment after segment while the index is not fed: the journal forgets, but no order
    /// and no step of a switch is lost.
    #[test]
    fn orders_stay_in_the_index_when_other_records_fill_the_journal() {
        let folder = tempfile::tempdir().expect("folder");
        let mut life = Life::begin(folder.path());
        let flood = |life: &mut Life| {
            let (cob, from) = ["n1/a", "n2/b"].map(|id| cob_types::CobId::new(id).expect("an id")).into();
            let number = cob_types::Number { start: 1, counter: life.journal.last_seq() };
            let body = Body::Returned { cob, from, number };
            let returned = Record { body, ..record(1) };
            for _ in 0..2 * LONG {
                let seq = life.journal.append(&codec::encode_packed(&returned).expect("encodes")).expect("taken");
                life.indexing.add(seq, returned.clone(), Time(0));
            }
            let snapshot = Record { body: Body::Snapshot(Box::default()), ..record(1) };
            life.journal.rotate(&codec::encode_packed(&snapshot).expect("encodes")).expect("rotated");
        };
        let mut ordered = Vec::new();
        for _ in 0..5 {
            flood(&mut life);
            life.add(1);
            ordered.push(life.journal.last_seq());
            for body in [Body::Ordered(OrderRecord::Pause), Body::Activated(GenerationNumber(1))] {
                let record = Record { body, by: Some("ops".to_owned()), ..record(1) };
                let seq = life.journal.append(&codec::encode_packed(&record).expect("encodes")).expect("taken");
                life.indexing.add(seq, record, Time(0));
                ordered.push(seq);
            }
        }
        flood(&mut life);
        flood(&mut life);
        let mut kept = Past::read(&folder.path().join("journal"), 1, life.journal.last_seq()).expect("listed");
        let first = kept.next().expect("one").expect("read").seq;
        assert!(ordered.iter().all(|seq| *seq < first), "the journal has dropped these orders: {ordered:?} {first}");
        let told = life.told();
        let lost: Vec<_> = ordered.iter().filter(|seq| !told.contains(seq)).collect();
        assert!(lost.is_empty(), "{lost:?} of {ordered:?}");
    }

    #[test]
    fn a_busy_index_does_not_delay_the_daemon() {
        let folder = tempfile::tempdir().expect("folder");
        let mut life = Life::begin(folder.path());
        life.indexing.keeper.as_ref().expect("opened").feeding.store(LISTS, Ordering::Relaxed);
        life.add(3);
        life.indexing.feed(Time(0));
        assert_eq!(life.indexing.behind, Some(1), "it is read from the journal later");
        assert!(life.indexing.due() > Time(0) && life.indexing.due() < Time::NEVER);
        life.indexing.keeper.as_ref().expect("opened").feeding.store(0, Ordering::Relaxed);
        life.indexing.feed(Time(0));
        assert_eq!(life.told(), [1, 2, 3]);
    }

    #[test]
    fn a_history_query_without_an_index_reports_that_there_is_none() {
        let mut indexing = Indexing::new(host(), PathBuf::new(), 0, None, Time(0));
        indexing.add(1, record(1), Time(0));
        let (tell, told) = sync_channel(1);
        indexing.history(ALL, Box::new(move |answer| tell.send(answer.is_none()).expect("waited for")));
        assert_eq!(told.recv(), Ok(true));
    }
}
