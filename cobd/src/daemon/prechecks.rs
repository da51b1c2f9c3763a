//! Prechecks (`Look`): new and changed change objects of a generation are checked during `prepare`, and links to its
//! new hosts are opened.
//!
//! No change object starts a transition before its first check has ended, and for many kinds a check is a process.
//! After the switch has started, it does not wait for checks that were made before:
//!
//! ```text
//!   prepare --- precheck each new or changed change object, open links --- answer: prepared
//!      go ----- activate --- first checks: answered by the prechecks --- actions
//! ```
//!
//! Rules: a precheck counts as the first check only if it has the same content, is not older than [`FRESH`], and no
//! action has started on this host since; otherwise the check is repeated. It counts once. The engine does not know
//! prechecks: it requests a check and gets a result. A host that is not idle makes no prechecks, nor does a host
//! without a `prepare` (which follows the depot or an announcement).
//!
//! Links are opened first so that this does not compete with the first actions for the processor, and so that a blocked
//! link between two hosts is reported before the switch. A missing link causes no delay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::Time;
use cob_engine::time::Span;
use cob_types::api::Done;
use cob_types::cob::Fingerprint;
use cob_types::status::PeerStatus;
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, HostName, Manifest, Packed};
use tracing::debug;

use super::conflict_preview::ConflictPreviews;
use super::folders::Folders;
use super::route::Route;
use super::{Daemon, Reply, job_id};
use crate::generations::Prepared;
use crate::kinds::{JobEnd, JobEnded, JobHandle};
use crate::run::JobId;
use crate::web::RefusalKind;

/// The greatest age of a precheck that counts as a check.
const FRESH: Span = Span::secs(10);
/// How long `prepare` waits for prechecks; later they continue without it.
const PATIENCE: Span = Span::secs(5);
/// How long `prepare` waits for the conflict preview; missing parts are reported, so no switch starts without a
/// warning.
const FORESIGHT: Span = Span::secs(20);
/// How long `prepare` waits for links to new hosts; a missing link is reported.
const LINKS: Span = Span::secs(1);
/// Distinguishes the jobs of prechecks from those of the engine, which counts from 1 in each incarnation.
const MARK: u64 = 1 << 39;

/// The prechecks of a prepared generation.
#[derive(Default)]
pub(super) struct Prechecks {
    generation: Option<GenerationNumber>,
    /// It was activated: its prechecks count.
    active: bool,
    looks: BTreeMap<CobId, Look>,
    /// The number of prechecks in this incarnation.
    begun: u64,
    asked: Option<Asked>,
    pub(super) foresight: ConflictPreviews,
    /// The prepared generation, or the target of a switch in several steps: links to its hosts are opened early.
    meets: Option<Arc<Manifest>>,
}

/// An operator's `prepare` that waits for its answer.
struct Asked {
    generation: GenerationNumber,
    reply: Reply,
    since: Time,
    /// Hosts whose links are awaited.
    links: BTreeSet<HostName>,
    detail: String,
}

/// A precheck of a change object.
struct Look {
    job: JobId,
    of: Fingerprint,
    state: State,
}

enum State {
    UnderWay(JobHandle),
    /// The engine awaits it as the check with this number.
    Awaited(JobId),
    Ended(Time, Box<JobEnded>),
}

/// The answer of a precheck to a requested check.
pub(super) enum Seen {
    /// No result.
    Nothing,
    /// The precheck is still running.
    Soon(JobHandle),
    /// This result.
    Found(Box<JobEnded>),
}

impl Prechecks {
    /// When [`Daemon::end_preparing`] must be called.
    pub(super) fn due(&self) -> Time {
        let Some(asked) = &self.asked else { return Time::NEVER };
        let waits = [
            (!asked.links.is_empty(), LINKS),
            (self.under_way() > 0, PATIENCE),
            (self.foresight.is_awaited(), FORESIGHT),
        ];
        waits.iter().filter(|(waits, _)| *waits).map(|(_, most)| asked.since + *most).max().unwrap_or(asked.since)
    }

    /// The generation whose hosts get links early.
    pub(super) fn meets(&self) -> Option<&Manifest> {
        self.meets.as_deref()
    }

    /// Sets the generation whose hosts get links early.
    pub(super) fn meet(&mut self, manifest: Option<Arc<Manifest>>) {
        self.meets = manifest;
    }

    /// Notes a link that is up.
    pub(super) fn linked(&mut self, host: &HostName) {
        if let Some(asked) = &mut self.asked {
            asked.links.remove(host);
        }
    }

    fn next_job(&mut self, start: u32) -> JobId {
        self.begun += 1;
        job_id(cob_types::Number { start, counter: MARK | self.begun })
    }

    /// The number of running prechecks.
    fn under_way(&self) -> usize {
        self.looks.values().filter(|look| !matches!(look.state, State::Ended(..))).count()
    }

    /// Drops the results: an action starts, or the generation is discarded. Prechecks that the engine awaits continue.
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

    /// Drops the results, so that they answer no further check.
    pub(super) fn forget_what_counts(&mut self) {
        if self.active {
            self.drop_looks();
        }
    }

    /// Whether the engine awaits the precheck of this change object: another must not replace it.
    fn is_awaited(&self, cob: &CobId) -> bool {
        self.looks.get(cob).is_some_and(|look| matches!(look.state, State::Awaited(_)))
    }

    /// Answers the engine's request for a check under the active generation.
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

    /// Handles the end of a job: returns it as the check that the engine awaits; absent: it was only a precheck.
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
        // A precheck without a result is repeated.
        if matches!(&ended.end, JobEnd::Checked(checked) if checked.state.is_ok()) {
            let cob = ended.cob.clone();
            self.looks.insert(cob, Look { state: State::Ended(now, Box::new(ended)), ..look });
        }
        None
    }
}

impl Daemon {
    /// Sets or clears the prepared generation. Returns the hosts that it adds: links to them are being opened.
    pub(super) fn have_at_hand(&mut self, route: Option<&Route>) -> BTreeSet<HostName> {
        let known: BTreeSet<HostName> = self.neighbours.hosts(|_| true).into_iter().collect();
        self.present.prepare(route.map(|route| route.next.clone()));
        self.ahead.meet(route.map(|route| route.goal.clone()));
        self.tell_roster();
        let now = self.neighbours.hosts(|peer| !peer.up);
        now.into_iter().filter(|host| !known.contains(host)).collect()
    }

    /// Prepares a fetched generation before the answer: starts prechecks and awaits these links.
    pub(super) fn look_ahead(&mut self, prepared: &Prepared, links: BTreeSet<HostName>, reply: Reply, detail: String) {
        self.forget_looks();
        let generation = prepared.manifest.generation;
        if self.engine.pending_generation().is_none() && self.engine.running_actions().is_empty() {
            self.ahead.generation = Some(generation);
            let start = self.engine.incarnation().start;
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
        self.preview_conflicts(prepared);
        let looks = self.ahead.under_way();
        let detail = if looks == 0 {
            detail
        } else {
            debug!(%generation, looks, "looking ahead");
            format!("{detail}; {} looked at", count(looks, "new or changed change object"))
        };
        // In several steps, the order was for the target.
        let generation = self.ahead.meets().map_or(generation, |goal| goal.generation);
        self.ahead.asked = Some(Asked { generation, reply, since: self.clock.now(), links, detail });
        self.end_preparing();
    }

    /// Answers `prepare` when all prechecks have ended and all links are up, or when that takes too long.
    pub(super) fn end_preparing(&mut self) {
        let now = self.clock.now();
        let looked = self.ahead.under_way() == 0;
        let previewed = !self.ahead.foresight.is_awaited();
        let Some(asked) = &mut self.ahead.asked else { return };
        let over = |patience: Span| now >= asked.since + patience;
        let linked = asked.links.is_empty() || over(LINKS);
        if linked && (looked || over(PATIENCE)) && (previewed || over(FORESIGHT)) {
            self.answer_preparing();
        }
    }

    /// A generation was activated: its prechecks count from now on; others are dropped.
    pub(super) fn looks_may_count(&mut self, generation: GenerationNumber) {
        if self.ahead.generation == Some(generation) {
            self.ahead.active = true;
        } else {
            self.forget_looks();
        }
    }

    /// Forgets a discarded generation.
    pub(super) fn forget_looks_at(&mut self, generation: GenerationNumber) {
        if let Some(asked) = self.ahead.asked.take_if(|asked| asked.generation == generation) {
            let what = format!("generation {generation} was called off");
            self.refuse(asked.reply, RefusalKind::Conflict, &what, "prepare the generation again to use it");
        }
        if self.ahead.generation == Some(generation) {
            self.forget_looks();
        }
        if self.ahead.meets().is_some_and(|goal| goal.generation == generation) {
            self.have_at_hand(None);
        }
    }

    /// Forgets the prechecks of a generation that this host does not switch to.
    fn forget_looks(&mut self) {
        self.ahead.drop_looks();
        self.ahead.generation = None;
        self.ahead.active = false;
        // A waiting `prepare` is answered now.
        self.answer_preparing();
    }

    fn answer_preparing(&mut self) {
        let Some(Asked { generation, reply, detail, .. }) = self.ahead.asked.take() else { return };
        let (conflicts, unseen) = self.ahead.foresight.take();
        // If another generation was prepared meanwhile, its links are not reported.
        let goal = self.ahead.meets().filter(|goal| goal.generation == generation);
        let named = |host: &HostName| goal.is_some_and(|goal| goal.hosts.contains_key(host));
        let down = self.neighbours.links().status().into_iter().filter(|peer| !peer.up && named(&peer.host));
        let why = |peer: &PeerStatus| match &peer.error {
            Some(error) => error.clone(),
            None if peer.host < self.config.host => "it has not connected to this host yet".to_owned(),
            None => "it has not answered yet".to_owned(),
        };
        let unlinked = down.map(|peer| (peer.host.clone(), why(&peer))).collect();
        self.turn.answers.push((
            reply,
            Ok(Done {
                changed: false,
                detail,
                generation: Some(generation),
                unlinked,
                conflicts,
                unseen,
                window_wait: None,
            }),
        ));
    }

    /// The precheck of a change object that the engine wants to check.
    pub(super) fn seen_ahead(&mut self, cob: &CobId, job: JobId) -> Seen {
        if self.ahead.looks.is_empty() {
            return Seen::Nothing;
        }
        let Some(of) = self.present.bundle().and_then(|bundle| bundle.fingerprint_of(cob)) else {
            return Seen::Nothing;
        };
        self.ahead.seen(cob, of, job, self.clock.now())
    }

    /// The change objects that the activation of a generation checks anew.
    fn new_in(&self, prepared: &Prepared) -> Vec<CobId> {
        let nothing;
        let before = match self.present.bundle() {
            Some(bundle) => &**bundle,
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
    /// A check of the engine.
    const JOB: JobId = JobId(3 << 40 | 17);

    fn cob() -> CobId {
        CobId::new("n1/a").expect("id")
    }

    fn looking() -> (Prechecks, JobId, watch::Receiver<bool>) {
        let (handle, cancelled) = JobHandle::of_nothing();
        let mut ahead = Prechecks { generation: Some(GenerationNumber(2)), ..Prechecks::default() };
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
    fn a_precheck_serves_once_and_only_after_the_activation() {
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
    fn a_precheck_that_the_engine_awaits_is_not_cancelled() {
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
    fn an_old_or_unknown_precheck_or_one_before_an_action_is_not_used() {
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
        // A precheck that ends after the start of an action was cancelled.
        let (mut ahead, job, cancelled) = looking();
        ahead.drop_looks();
        assert!(*cancelled.borrow());
        assert_eq!(ahead.ended(end(job, Ok("up")), at(1)), None);
        assert!(ahead.looks.is_empty() && ahead.under_way() == 0);
    }
}
