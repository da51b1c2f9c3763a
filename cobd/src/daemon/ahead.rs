//! Looking ahead: what is new or changed in a generation is looked at while it is prepared, and links to hosts that are
//! new in it are opened.
//!
//! Nothing of a generation moves before its first check has ended, and for many kinds a check is a process. Those that
//! were made before `go` are not waited for after it:
//!
//! ```text
//!   prepare --- look at each new or changed change object, open links --- answer: prepared
//!      go ----- activate --- first checks: answered by the looks --- actions
//! ```
//!
//! Rules: a look counts as the first check only if it is of that very content, is not older than [`FRESH`], and no
//! action was begun on this host since; else it is made again. It serves once. The engine knows nothing of all this:
//! it asks for a check and is told what was found. A host that is not at rest does not look ahead, and one that is not
//! asked to prepare (it follows the depot, or is told to go by another) neither.
//!
//! Links are waited for so that opening them does not share the processor with the first actions, and so that whoever
//! prepares hears of a wall between two hosts before anything is touched. What is not there yet holds nothing up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::Time;
use cob_engine::time::Span;
use cob_types::cob::Fingerprint;
use cob_types::status::PeerStatus;
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, HostName, Manifest, Packed};
use tracing::debug;

use super::folders::Folders;
use super::foresee::Foresight;
use super::route::Route;
use super::{Daemon, Reply, job_id};
use crate::generations::Prepared;
use crate::kinds::{JobEnd, JobEnded, JobHandle};
use crate::peer::Transport as _;
use crate::run::JobId;
use crate::web::{Done, RefusalKind};

/// So old a look may be when it counts as a check.
const FRESH: Span = Span::secs(10);
/// So long whoever prepares waits for the looks at most; those that have not ended then go on.
const PATIENCE: Span = Span::secs(5);
/// The same for looks at what would be in conflict: what was not looked at is told, and nobody goes on without being told to.
const FORESIGHT: Span = Span::secs(20);
/// So long whoever prepares waits for links to hosts that are new, at most; one that is not there yet is told.
const LINKS: Span = Span::secs(1);
/// What tells the jobs of looks from those of the engine, which counts from 1 in each life.
const MARK: u64 = 1 << 39;

/// The looks at one generation that is prepared.
#[derive(Default)]
pub(super) struct Ahead {
    generation: Option<GenerationNumber>,
    /// It was activated: its looks count.
    active: bool,
    looks: BTreeMap<CobId, Look>,
    /// Looks begun in this life.
    begun: u64,
    asked: Option<Asked>,
    pub(super) foresight: Foresight,
    /// The generation that was prepared, or that the host goes to in several steps: its hosts are met before that.
    meets: Option<Arc<Manifest>>,
}

/// Somebody waits to hear that a generation is prepared.
struct Asked {
    generation: GenerationNumber,
    reply: Reply,
    since: Time,
    /// Hosts that there is no link to yet, and that are waited for.
    links: BTreeSet<HostName>,
    detail: String,
}

/// A look at one change object.
struct Look {
    job: JobId,
    of: Fingerprint,
    state: State,
}

enum State {
    UnderWay(JobHandle),
    /// The engine waits for it, by the number of this job.
    Awaited(JobId),
    Ended(Time, Box<JobEnded>),
}

/// What the looks say to a check that the engine wants.
pub(super) enum Seen {
    /// Nothing that counts.
    Nothing,
    /// It is being found out.
    Soon(JobHandle),
    /// This was found.
    Found(Box<JobEnded>),
}

impl Ahead {
    /// When [`Daemon::end_preparing`] is to be called.
    pub(super) fn due(&self) -> Time {
        let Some(asked) = &self.asked else { return Time::NEVER };
        let waits = [
            (!asked.links.is_empty(), LINKS),
            (self.under_way() > 0, PATIENCE),
            (self.foresight.is_awaited(), FORESIGHT),
        ];
        waits.iter().filter(|(waits, _)| *waits).map(|(_, most)| asked.since + *most).max().unwrap_or(asked.since)
    }

    /// Whose hosts are met.
    pub(super) fn meets(&self) -> Option<&Manifest> {
        self.meets.as_deref()
    }

    /// The hosts of this generation are met, if of any.
    pub(super) fn meet(&mut self, manifest: Option<Arc<Manifest>>) {
        self.meets = manifest;
    }

    /// A link is up.
    pub(super) fn linked(&mut self, host: &HostName) {
        if let Some(asked) = &mut self.asked {
            asked.links.remove(host);
        }
    }

    fn next_job(&mut self, start: u32) -> JobId {
        self.begun += 1;
        job_id(cob_types::Number { start, counter: MARK | self.begun })
    }

    /// Looks that have not ended.
    fn under_way(&self) -> usize {
        self.looks.values().filter(|look| !matches!(look.state, State::Ended(..))).count()
    }

    /// What was seen counts no more: an action begins, or nobody goes there. Looks that the engine waits for go on.
    pub(super) fn drop_looks(&mut self) {
        self.looks.retain(|_, look| match &look.state {
            State::UnderWay(handle) => {
                handle.cancel();
                false
            }
            State::Awaited(_) => true,
            State::Ended(..) => false,
        });
    }

    /// Nothing that was seen so far answers a check any more.
    pub(super) fn forget_what_counts(&mut self) {
        if self.active {
            self.drop_looks();
        }
    }

    /// The engine waits for a look at it: another one must not take its place.
    fn is_awaited(&self, cob: &CobId) -> bool {
        self.looks.get(cob).is_some_and(|look| matches!(look.state, State::Awaited(_)))
    }

    /// The engine wants a check of what is active now.
    fn seen(&mut self, cob: &CobId, of: Fingerprint, job: JobId, now: Time) -> Seen {
        let Some(look) = self.looks.get_mut(cob).filter(|look| self.active && look.of == of) else {
            return Seen::Nothing;
        };
        match std::mem::replace(&mut look.state, State::Awaited(job)) {
            State::UnderWay(handle) => Seen::Soon(handle),
            awaited @ State::Awaited(_) => {
                look.state = awaited;
                Seen::Nothing
            }
            State::Ended(at, ended) => {
                self.looks.remove(cob);
                if now < at + FRESH { Seen::Found(Box::new(JobEnded { job, ..*ended })) } else { Seen::Nothing }
            }
        }
    }

    /// A job has ended: as the check that it counts as, if the engine waits for it; none if it was a look.
    pub(super) fn ended(&mut self, ended: JobEnded, now: Time) -> Option<JobEnded> {
        if ended.job.0 & MARK == 0 {
            return Some(ended);
        }
        let look = self.looks.remove(&ended.cob)?;
        if look.job != ended.job {
            self.looks.insert(ended.cob, look);
            return None;
        }
        if let State::Awaited(job) = look.state {
            return Some(JobEnded { job, ..ended });
        }
        // One that could not tell is made again.
        if matches!(&ended.end, JobEnd::Checked(checked) if checked.state.is_ok()) {
            let cob = ended.cob.clone();
            self.looks.insert(cob, Look { state: State::Ended(now, Box::new(ended)), ..look });
        }
        None
    }
}

impl Daemon {
    /// A generation is at hand, or none any more. Returns the hosts that are new to this one by where that leads: links to
    /// them are being opened.
    pub(super) fn have_at_hand(&mut self, route: Option<&Route>) -> BTreeSet<HostName> {
        let known: BTreeSet<HostName> = self.links.status().into_iter().map(|peer| peer.host).collect();
        self.at_hand = route.map(|route| route.next.clone());
        self.ahead.meet(route.map(|route| route.goal.clone()));
        self.tell_roster();
        let now = self.links.status().into_iter().filter(|peer| !peer.up).map(|peer| peer.host);
        now.filter(|host| !known.contains(host)).collect()
    }

    /// A generation is here, and somebody waits to hear it: what is new in it is looked at first, and these links opened.
    pub(super) fn look_ahead(&mut self, prepared: &Prepared, links: BTreeSet<HostName>, reply: Reply, detail: String) {
        self.forget_looks();
        let generation = prepared.manifest.generation;
        if self.engine.going_to().is_none() && self.engine.running_actions().is_empty() {
            self.ahead.generation = Some(generation);
            let start = self.engine.life().start;
            let new = self.new_in(prepared);
            let bundle = &prepared.bundle;
            let with_files = new.iter().filter(|cob| bundle.has_files(cob)).filter_map(|cob| bundle.get(cob));
            let folders = Folders::of(&self.payload_root, bundle, with_files);
            for cob in &new {
                let of = bundle.fingerprint_of(cob).filter(|_| !self.ahead.is_awaited(cob));
                let Some(of) = of else { continue };
                let context = folders.ready(prepared, cob).map(|ready| ready.context_in(prepared));
                let Some(Ok(context)) = context else { continue };
                let job = self.ahead.next_job(start);
                if let Ok(Some(handle)) = self.kinds.look_ahead(job, context) {
                    self.ahead.looks.insert(cob.clone(), Look { job, of, state: State::UnderWay(handle) });
                }
            }
        }
        self.foresee(prepared);
        let looks = self.ahead.under_way();
        let detail = if looks == 0 {
            detail
        } else {
            debug!(%generation, looks, "looking ahead");
            format!("{detail}; {} looked at", count(looks, "new or changed change object"))
        };
        // Of what is prepared in several steps it is the goal that was asked for.
        let generation = self.ahead.meets().map_or(generation, |goal| goal.generation);
        self.ahead.asked = Some(Asked { generation, reply, since: self.clock.now(), links, detail });
        self.end_preparing();
    }

    /// Whoever prepares hears when all looks have ended and all links are there, or when that takes too long.
    pub(super) fn end_preparing(&mut self) {
        let now = self.clock.now();
        let looked = self.ahead.under_way() == 0;
        let foreseen = !self.ahead.foresight.is_awaited();
        let Some(asked) = &mut self.ahead.asked else { return };
        let over = |patience: Span| now >= asked.since + patience;
        let linked = asked.links.is_empty() || over(LINKS);
        if linked && (looked || over(PATIENCE)) && (foreseen || over(FORESIGHT)) {
            self.answer_preparing();
        }
    }

    /// A generation was activated: looks at this one count from now on, others never will.
    pub(super) fn looks_may_count(&mut self, generation: GenerationNumber) {
        if self.ahead.generation == Some(generation) {
            self.ahead.active = true;
        } else {
            self.forget_looks();
        }
    }

    /// A generation was called off.
    pub(super) fn forget_looks_at(&mut self, generation: GenerationNumber) {
        if let Some(asked) = self.ahead.asked.take_if(|asked| asked.generation == generation) {
            let what = format!("generation {generation} was called off");
            self.refuse(asked.reply, RefusalKind::Conflict, &what, "prepare it again if it is wanted");
        }
        if self.ahead.generation == Some(generation) {
            self.forget_looks();
        }
        if self.ahead.meets().is_some_and(|goal| goal.generation == generation) {
            self.have_at_hand(None);
        }
    }

    /// What was seen is of a generation that nobody goes to.
    fn forget_looks(&mut self) {
        self.ahead.drop_looks();
        self.ahead.generation = None;
        self.ahead.active = false;
        // There is nothing to wait for any more.
        self.answer_preparing();
    }

    fn answer_preparing(&mut self) {
        let Some(Asked { generation, reply, detail, .. }) = self.ahead.asked.take() else { return };
        let (conflicts, unseen) = self.ahead.foresight.take();
        // Of another one that was prepared in its place nothing is told.
        let goal = self.ahead.meets().filter(|goal| goal.generation == generation);
        let named = |host: &HostName| goal.is_some_and(|goal| goal.hosts.contains_key(host));
        let down = self.links.status().into_iter().filter(|peer| !peer.up && named(&peer.host));
        let why = |peer: &PeerStatus| match &peer.error {
            Some(error) => error.clone(),
            None if peer.host < self.config.host => "it has not called yet, and is the one that does".to_owned(),
            None => "it has not answered yet".to_owned(),
        };
        let unlinked = down.map(|peer| (peer.host.clone(), why(&peer))).collect();
        self.turn.answers.push((
            reply,
            Ok(Done { changed: false, detail, generation: Some(generation), unlinked, conflicts, unseen }),
        ));
    }

    /// What was seen ahead of a change object that the engine wants checked.
    pub(super) fn seen_ahead(&mut self, cob: &CobId, job: JobId) -> Seen {
        if self.ahead.looks.is_empty() {
            return Seen::Nothing;
        }
        let active = self.active.as_ref();
        let Some(of) = active.and_then(|active| active.prepared.bundle.fingerprint_of(cob)) else {
            return Seen::Nothing;
        };
        self.ahead.seen(cob, of, job, self.clock.now())
    }

    /// Those that are looked at anew when a generation is activated.
    fn new_in(&self, prepared: &Prepared) -> Vec<CobId> {
        let nothing;
        let before = match &self.active {
            Some(active) => &*active.prepared.bundle,
            None => {
                nothing = Packed::empty(self.config.host.clone());
                &nothing
            }
        };
        let now = &prepared.bundle;
        let is_other = |cob: &&CobId| now.has(cob) && now.fingerprint_of(cob) != before.fingerprint_of(cob);
        now.changed(before).filter(is_other).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use cob_types::StateName;
    use tokio::sync::watch;

    use super::*;
    use crate::kinds::CheckOutcome;

    const OF: Fingerprint = Fingerprint([1; 16]);
    /// A check of the engine's.
    const JOB: JobId = JobId(3 << 40 | 17);

    fn cob() -> CobId {
        CobId::new("n1/a").expect("id")
    }

    fn looking() -> (Ahead, JobId, watch::Receiver<bool>) {
        let (handle, cancelled) = JobHandle::of_nothing();
        let mut ahead = Ahead { generation: Some(GenerationNumber(2)), ..Ahead::default() };
        let job = ahead.next_job(3);
        ahead.looks.insert(cob(), Look { job, of: OF, state: State::UnderWay(handle) });
        (ahead, job, cancelled)
    }

    fn end(job: JobId, state: Result<&str, &str>) -> JobEnded {
        let outcome = match state {
            Ok(state) => CheckOutcome::found(StateName::new(state).expect("name")),
            Err(reason) => CheckOutcome::unknown(reason),
        };
        let end = JobEnd::Checked(outcome);
        JobEnded { job, cob: cob(), end, last_lines: String::new(), began_ns: 0, ended_ns: 0 }
    }

    fn at(secs: u64) -> Time {
        Time(0) + Span::secs(secs)
    }

    #[test]
    fn a_look_serves_once_and_only_after_the_activation() {
        let (mut ahead, job, _) = looking();
        assert_eq!(ahead.ended(end(JOB, Ok("up")), at(0)), Some(end(JOB, Ok("up"))), "the engine's own");
        assert_eq!(ahead.ended(end(job, Ok("down")), at(1)), None);
        assert_eq!(ahead.under_way(), 0);
        assert!(matches!(ahead.seen(&cob(), OF, JOB, at(1)), Seen::Nothing), "not active yet");
        ahead.active = true;
        assert!(matches!(ahead.seen(&cob(), Fingerprint([2; 16]), JOB, at(1)), Seen::Nothing), "another content");
        let Seen::Found(found) = ahead.seen(&cob(), OF, JOB, at(1)) else { panic!("it was seen") };
        assert_eq!(*found, end(JOB, Ok("down")));
        assert!(matches!(ahead.seen(&cob(), OF, JOB, at(1)), Seen::Nothing), "once");
    }

    #[test]
    fn one_that_is_under_way_is_awaited_whatever_begins_meanwhile() {
        let (mut ahead, job, cancelled) = looking();
        ahead.active = true;
        assert!(matches!(ahead.seen(&cob(), OF, JOB, at(1)), Seen::Soon(_)));
        ahead.drop_looks();
        assert!(!*cancelled.borrow(), "the engine waits for it");
        assert!(ahead.is_awaited(&cob()), "so no look at the next generation takes its place");
        assert_eq!(ahead.ended(end(job, Err("no")), at(2)), Some(end(JOB, Err("no"))));
        assert!(ahead.looks.is_empty() && ahead.under_way() == 0);
    }

    #[test]
    fn what_is_old_or_unknown_or_was_seen_before_an_action_counts_for_nothing() {
        let ended = |state| {
            let (mut ahead, job, _) = looking();
            ahead.active = true;
            assert_eq!(ahead.ended(end(job, state), at(5)), None);
            ahead
        };
        assert!(matches!(ended(Ok("up")).seen(&cob(), OF, JOB, at(14)), Seen::Found(_)));
        assert!(matches!(ended(Ok("up")).seen(&cob(), OF, JOB, at(15)), Seen::Nothing));
        assert!(matches!(ended(Err("no")).seen(&cob(), OF, JOB, at(5)), Seen::Nothing));
        let mut ahead = ended(Ok("up"));
        ahead.drop_looks();
        assert!(matches!(ahead.seen(&cob(), OF, JOB, at(5)), Seen::Nothing));
        // What ends after an action has begun was cancelled.
        let (mut ahead, job, cancelled) = looking();
        ahead.drop_looks();
        assert!(*cancelled.borrow());
        assert_eq!(ahead.ended(end(job, Ok("up")), at(1)), None);
        assert!(ahead.looks.is_empty() && ahead.under_way() == 0);
    }
}
