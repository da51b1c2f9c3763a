//! The life of a change object, as its own daemon sees it.
//!
//! It knows only its own state, the requests of others and its own requests. The engine hands it messages and the
//! results of its jobs, then calls [`Object::decide`]; its output goes into [`Cx`].
//!
//! * [`decide`] the rules: needs, releases, requests, grants, recalls, the start of a transition
//! * [`target`] the choice of the target state
//! * [`lifecycle`] whether it stays in the model, departs or has departed
//! * [`later_needs`] the locks that an outdated change object has to hold before it stops
//! * [`asking`] messages about locks that this change object asks for
//! * [`granting`] messages about locks that others ask of this change object
//! * [`activity`] checks and actions
//! * [`probe`] the search for deadlock cycles
//! * [`livelock`] rate limits for repeated requests and transitions
//! * [`budget`] tokens: taken before leaving, limited in number
//! * [`durable`] restarts
//! * [`status`] reports
//! * [`invariants`] for simulator and explorer
//! * [`timers`] deadlines, repeats
//! * [`failures`] failures

mod activity;
pub(crate) mod asking;
pub(crate) mod budget;
#[cfg(feature = "explored")]
#[path = "../../tests/explored/object.rs"]
pub(crate) mod canonical;
pub(crate) mod decide;
mod durable;
mod failures;
pub(crate) mod granting;
mod invariants;
mod later_needs;
mod lifecycle;
mod livelock;
pub(crate) mod probe;
pub(crate) mod status;
mod target;
mod timers;

#[cfg(test)]
mod asking_test;
#[cfg(test)]
mod budget_test;
#[cfg(test)]
mod checks_test;
#[cfg(test)]
mod drift_test;
#[cfg(test)]
mod granting_test;
#[cfg(test)]
mod later_needs_test;
#[cfg(test)]
mod observe_test;
#[cfg(test)]
mod probe_test;
#[cfg(test)]
mod rests_test;
#[cfg(test)]
mod stop_test;

use std::sync::{Arc, LazyLock};

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::{GenerationNumber, Number, Rank};
use thin_vec::ThinVec;

pub(crate) use activity::{Action, Activity, CHECKS_UNTIL_FAILED};
use budget::BlockedHolders;
use failures::{Failures, Trouble};
pub(crate) use lifecycle::Lifecycle;
use livelock::LivelockGuard;
use probe::ProbeState;
#[cfg(feature = "explored")]
pub(crate) use timers::has_waited_since;

use cob_types::status::Stopped;

use crate::faults::Faults;
use crate::limits::TokenLimits;
use crate::mail::{Asked, Mail, Msg, Refusal};
use crate::names::{CobRef, Names, StateId};
use crate::output::Output;
use crate::peers::Peers;
use crate::record::{Body, GrantOut, LockRecord, Note, OrderRecord};
use crate::repeat::Repeat;
use crate::spec::{Set, Spec, StateIx};
use crate::time::Time;

/// A change object of this host. There are tens of thousands, most of which are idle and have no messages to exchange:
/// empty fields take little room.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) me: CobRef,
    pub(crate) spec: Arc<Spec>,
    /// `None`: unknown.
    state: Option<StateIx>,
    /// The recorded state, from a restart to the end of the first check. It does not count until that check confirms
    /// it.
    recorded: Option<StateIx>,
    activity: Activity,
    /// It has failed: no transition starts until a retry or the next generation.
    failed: bool,
    /// It decides by rank instead of state priority, until it has no requests left.
    ordered: bool,
    pub(crate) lifecycle: Lifecycle,
    /// Requests of others, sorted by asker. Each is in a box: an insertion among a hundred thousand moves a word of
    /// each.
    requests: ThinVec<Box<Request>>,
    /// Requests to others, sorted by grantor.
    locks: ThinVec<Lock>,
    /// Highest number released to a change object of another host and not yet acknowledged.
    unacknowledged: ThinVec<(CobRef, Number)>,
    /// Highest number that an asker has released.
    returned: ThinVec<(CobRef, Number)>,
    values: Arc<Values>,
    applied: Option<Fingerprint>,
    rested_on: Option<Fingerprint>,
    /// The recorded token of its budget under which it left its preferred state.
    token_out: Option<Box<LockRecord>>,
    troubles: Failures,
    /// The last action, for reports.
    last: Option<LastAction>,
    /// When the next check is due: at once for an unknown state, at intervals for an idle change object.
    check_at: Time,
    /// Its unanswered messages.
    resend: Repeat,
    livelock: LivelockGuard,
    probe: ProbeState,
    blocked_holders: BlockedHolders,
    /// An operator has stopped it.
    stopped: Option<Box<Stopped>>,
    /// It is outdated, and all needs of its way up have been granted: it may stop.
    later_needs_granted: bool,
    /// The time of the last change of state or activity.
    since: Time,
    /// The findings of the last decision; for probes and reports.
    view: View,
}

/// The findings of the last decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct View {
    pub(crate) target: Option<StateIx>,
    /// A need is not held, or its lock was recalled.
    pub(crate) missing: bool,
    /// The transition waits for the release of grants, though every lock is held.
    pub(crate) transition_waits: bool,
    /// A request's set does not contain the target.
    pub(crate) conflict: bool,
    pub(crate) no_route: bool,
    /// It serves a change object that acts on its own desired state, which is another state.
    pub(crate) serves_own_desire: bool,
    /// It would leave its state, and waits for a token of its budget.
    pub(crate) gated: bool,
    /// It is a budget, and a member waits for a token.
    pub(crate) drained: bool,
    /// The rate limit delays a transition.
    pub(crate) rests: bool,
    /// It could start, and waits for a slot under the host's limit.
    pub(crate) limited: bool,
}

/// The last action that was started.
#[derive(Debug, Clone)]
pub(crate) struct LastAction {
    pub(crate) from: StateIx,
    pub(crate) to: StateIx,
    pub(crate) attempt: u32,
    pub(crate) since: Time,
}

/// A request of another change object for a state of this one.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) asker: CobRef,
    pub(crate) number: Number,
    pub(crate) rev: u64,
    pub(crate) set: Set,
    pub(crate) rank: Rank,
    pub(crate) origin: CobRef,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The asker has failed, and keeps its locks.
    pub(crate) failed: bool,
    pub(crate) granted: Option<StateId>,
    pub(crate) recalled: bool,
    /// The grant is invalidated, and the holder has been informed.
    pub(crate) invalidated: bool,
    /// The state of an invalidated grant that is no longer waited for: its holder is out of reach.
    pub(crate) broken: Option<StateId>,
    /// Restored from records: is it still needed?
    pub(crate) restored: bool,
    pub(crate) refused: bool,
    /// It gets a token beyond the number of the budget, because the other holders cannot come back otherwise.
    pub(crate) beyond: bool,
    pub(crate) since: Time,
    /// The state folder of the asking host, if that is another host: the number is of that folder.
    pub(crate) folder: Option<u64>,
}

impl Request {
    /// A request without a grant, that this host receives now from a host with this state folder.
    pub(crate) fn new(asker: CobRef, asked: Asked, folder: Option<u64>, since: Time) -> Self {
        let Asked { number, rev, set, rank, origin, fingerprint, failed } = asked;
        Self {
            asker,
            number,
            rev,
            set,
            rank,
            origin,
            fingerprint,
            failed,
            granted: None,
            recalled: false,
            invalidated: false,
            broken: None,
            restored: false,
            refused: false,
            beyond: false,
            folder,
            since,
        }
    }

    /// The asker departs on a rollback, or serves a departure: its need accepts any content. A host that never reached
    /// the abandoned generation will never have the content that was expected there.
    pub(crate) fn takes_any_content(&self, cx: &Cx<'_>) -> bool {
        self.rank.phase.is_departure() && (cx.goes_back || self.fingerprint.is_none())
    }

    /// It has no grant.
    pub(crate) fn is_open(&self) -> bool {
        self.granted.is_none() && self.broken.is_none()
    }

    /// The message that it came in.
    pub(crate) fn to_mail(&self, asked: CobRef) -> Mail {
        let Self { number, rev, rank, origin, fingerprint, failed, .. } = *self;
        let set = self.set.clone();
        let msg = Msg::Request(Asked { number, rev, set, rank, origin, fingerprint, failed });
        Mail { from: self.asker, to: asked, msg }
    }

    /// The request with its grant invalidated: the holder is informed until it has released the grant.
    pub(crate) fn broken(mut self) -> Self {
        self.broken = self.granted.take();
        self.invalidated = true;
        self.recalled = true;
        self.restored = false;
        self
    }

    /// The grant of a state that answers it, as recorded.
    pub(crate) fn grant_out(&self, state: StateId, names: &Names, rests_on: Vec<LockRecord>) -> GrantOut {
        GrantOut {
            number: self.number,
            set: names.state_names(&self.set),
            state: names.state_name(state).clone(),
            rank: self.rank,
            origin: names.cob_id(self.origin).clone(),
            fingerprint: self.fingerprint,
            rests_on,
            failed: self.failed,
            at: Time(0),
            folder: self.folder,
        }
    }
}

/// A lock that this change object has asked for.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub(crate) asked: CobRef,
    pub(crate) number: Number,
    pub(crate) rev: u64,
    /// The revision that its grantor is known to have.
    pub(crate) rev_known: u64,
    pub(crate) set: Set,
    pub(crate) rank: Rank,
    pub(crate) origin: CobRef,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) held: Option<StateId>,
    pub(crate) values: Arc<Values>,
    pub(crate) recalled: bool,
    /// Its grantor has confirmed it since the last start.
    pub(crate) confirmed: bool,
    /// Needed by the last decision.
    pub(crate) needed: bool,
    /// Speculative: asked for, but not waited for.
    pub(crate) speculative: bool,
    /// It is held, and the grantor knows an older rank or origin: sent when a probe shows that a change object waits.
    pub(crate) unsent: bool,
    /// The last request sent to the grantor was on behalf of a departing change object.
    pub(crate) sent_leaving: bool,
    /// The last request sent to the grantor, a budget, said that this change object has failed.
    pub(crate) sent_failed: bool,
    /// The grantor's objections. Most locks never get any.
    pub(crate) objections: Option<Box<Objections>>,
    pub(crate) since: Time,
}

/// A grantor's objections to a lock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objections {
    pub(crate) refused: Option<Refusal>,
    /// The time since which the previous grant is known to be invalidated.
    pub(crate) invalidated: Option<Time>,
}

impl Lock {
    /// Its grantor has yet to answer the last message.
    pub(crate) fn unanswered(&self) -> bool {
        self.held.is_none() || self.rev_known < self.rev
    }

    /// The grantor's refusal.
    pub(crate) fn refused(&self) -> Option<&Refusal> {
        self.objections.as_ref()?.refused.as_ref()
    }

    /// The time since which the previous grant is known to be invalidated; `None` as soon as there is a new grant.
    pub(crate) fn invalidated(&self) -> Option<Time> {
        self.objections.as_ref()?.invalidated
    }

    /// Valid for a start or a grant.
    pub(crate) fn usable(&self) -> bool {
        self.held.is_some() && !self.recalled && self.confirmed
    }
}

/// The parts of the daemon that a change object may see, and its output.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) names: &'a Names,
    pub(crate) generation: GenerationNumber,
    pub(crate) paused: bool,
    /// This host is switching to an older generation than the active one.
    pub(crate) goes_back: bool,
    /// An action starts only when the limit allows it.
    pub(crate) limited: bool,
    /// Operators' numbers of tokens of budgets of this host.
    pub(crate) tokens: &'a TokenLimits,
    pub(crate) peers: &'a Peers,
    /// The number of change objects of this host outside their desired states.
    pub(crate) unsettled: usize,
    /// The recently sent narrow probes.
    pub(crate) probing: &'a mut probe::Probing,
    /// The number of activations in this incarnation.
    pub(crate) activations: u64,
    /// The last number given out.
    pub(crate) number: &'a mut Number,
    pub(crate) faults: &'a Faults,
    pub(crate) out: &'a mut Output,
    pub(crate) scratch: &'a mut decide::Scratch,
}

impl Cx<'_> {
    /// The state folder that the host of a change object uses, as far as its daemon has said.
    pub(crate) fn folder_of(&self, cob: CobRef) -> Option<u64> {
        self.peers.folder_of(self.names.host_of(cob))
    }

    pub(crate) fn number(&mut self) -> Number {
        self.number.counter += 1;
        *self.number
    }

    pub(crate) fn post(&mut self, from: CobRef, to: CobRef, msg: Msg) {
        self.out.post(Mail { from, to, msg });
    }

    pub(crate) fn record(&mut self, body: Body) {
        self.out.record(body);
    }

    pub(crate) fn note(&mut self, cob: CobRef, note: Note) {
        let cob = self.names.cob_id(cob).clone();
        self.record(Body::Note { cob, note });
    }

    pub(crate) fn is_here(&self, cob: CobRef) -> bool {
        self.names.is_here(cob)
    }
}

impl Object {
    pub(crate) fn new(me: CobRef, spec: Arc<Spec>, now: Time) -> Self {
        Self {
            me,
            spec,
            state: None,
            recorded: None,
            activity: Activity::Idle,
            failed: false,
            ordered: false,
            lifecycle: Lifecycle::Present,
            requests: ThinVec::new(),
            locks: ThinVec::new(),
            unacknowledged: ThinVec::new(),
            returned: ThinVec::new(),
            values: shared(Values::new()),
            applied: None,
            rested_on: None,
            token_out: None,
            troubles: Failures::default(),
            last: None,
            check_at: Time(0),
            resend: Repeat::default(),
            livelock: LivelockGuard::default(),
            probe: ProbeState::default(),
            blocked_holders: BlockedHolders::default(),
            stopped: None,
            later_needs_granted: false,
            since: now,
            view: View::default(),
        }
    }

    /// Requests of others, sorted by asker.
    pub(crate) fn requests(&self) -> &[Box<Request>] {
        &self.requests
    }

    /// Its requests, after its departure.
    pub(crate) fn into_requests(self) -> impl Iterator<Item = Request> {
        self.requests.into_iter().map(|request| *request)
    }

    /// Requests to others, sorted by grantor.
    pub(crate) fn locks(&self) -> &[Lock] {
        &self.locks
    }

    /// The highest number that it has released to each change object of another host, without an acknowledgement.
    pub(crate) fn releases(&self) -> &[(CobRef, Number)] {
        &self.unacknowledged
    }

    pub(crate) fn request_of(&self, asker: CobRef) -> Option<&Request> {
        self.request_ix(asker).ok().map(|at| &*self.requests[at])
    }

    /// It is back after a departure, with its grants and releases.
    pub(crate) fn come_back(&mut self, grants: impl Iterator<Item = Request>, releases: Vec<(CobRef, Number)>) {
        self.requests = grants.map(Box::new).collect();
        self.unacknowledged = releases.into();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The time of the last change of state or activity.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    pub(crate) fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_deref()
    }

    /// An operator has stopped it; `None`: a new generation ends the stop.
    pub(crate) fn restore_stop(&mut self, stopped: Option<&Stopped>) {
        self.stopped = stopped.cloned().map(Box::new);
    }

    /// The state that it goes to by itself.
    pub(crate) fn own_target(&self) -> StateIx {
        match (self.lifecycle, self.state) {
            (Lifecycle::Present, _) => self.prefers(),
            (lifecycle, Some(state)) if self.spec.keep || lifecycle.is_held_back() => state,
            (Lifecycle::Departing { .. } | Lifecycle::Departed { .. }, _) => self.spec.kind.pre_remove,
        }
    }

    /// Its preferred state, or its stopped state while an operator has stopped it.
    pub(crate) fn prefers(&self) -> StateIx {
        let stopped = self.spec.kind.stopped.filter(|_| self.stopped.is_some());
        stopped.unwrap_or(self.spec.preferred)
    }

    /// It is stopped and does not run for others either. A departing one is served all the same: the generation of the
    /// departure ends the order.
    pub(crate) fn is_stopped_for(&self, request: &Request) -> bool {
        let kind = &self.spec.kind;
        let off = |state: StateIx| request.set.contains(&kind.id(state));
        let Some(stopped) = kind.stopped.filter(|_| self.stopped.is_some() && !self.departs()) else { return false };
        !request.rank.phase.is_departure() && !off(stopped) && !off(kind.pre_remove)
    }

    /// A restart has stopped it: it may start again.
    pub(super) fn end_restart(&mut self, cx: &mut Cx<'_>, state: StateIx) {
        if self.stopped.as_ref().is_some_and(|stopped| stopped.restart) && self.spec.kind.stopped == Some(state) {
            self.start(cx);
        }
    }

    /// An operator stops it.
    pub(crate) fn stop(&mut self, cx: &mut Cx<'_>, stopped: Stopped) {
        self.stopped = Some(Box::new(stopped.clone()));
        self.renew();
        cx.record(Body::Ordered(OrderRecord::Stop(cx.names.cob_id(self.me).clone(), stopped)));
    }

    /// Ends an operator's stop.
    pub(crate) fn start(&mut self, cx: &mut Cx<'_>) {
        self.stopped = None;
        self.renew();
        cx.record(Body::Ordered(OrderRecord::Start(cx.names.cob_id(self.me).clone())));
    }

    /// It stays in its state and grants it: it has failed, is observed, or has departed.
    pub(crate) fn stays(&self) -> bool {
        self.failed || self.spec.observe || self.lifecycle.is_over()
    }

    /// The next generation lacks it.
    pub(crate) fn departs(&self) -> bool {
        self.lifecycle.is_departing()
    }

    /// It has departed, but is not in its exit state: a check found it elsewhere, or an operator declared it departed.
    /// It grants no lock there.
    pub(crate) fn has_strayed(&self, state: StateIx) -> bool {
        self.lifecycle.is_over() && !self.spec.keep && state != self.spec.kind.pre_remove
    }

    /// It departs in its present state.
    pub(crate) fn departs_as_it_is(&self) -> bool {
        self.departs() && self.spec.keep
    }

    /// The recorded state, whether confirmed or not.
    pub(crate) fn state_on_record(&self) -> Option<StateIx> {
        self.state.or(self.recorded)
    }

    pub(crate) fn state_id(&self) -> Option<StateId> {
        self.state.map(|s| self.spec.kind.id(s))
    }

    pub(crate) fn acting(&self) -> bool {
        matches!(self.activity, Activity::Acting { .. })
    }

    pub(crate) fn has_grants_out(&self) -> bool {
        self.requests.iter().any(|r| r.granted.is_some())
    }

    /// A departing change object serves only requests on behalf of departing ones.
    pub(crate) fn serves(&self, request: &Request) -> bool {
        !self.departs() || request.rank.phase.is_departure()
    }

    /// The request, on behalf of a departing change object, asks for its pre-remove state: a change object that departs
    /// in its present state never acts again, so this state is as good.
    pub(crate) fn counts_as_removed(&self, request: &Request) -> bool {
        self.departs_as_it_is()
            && request.rank.phase.is_departure()
            && self.state_id().is_some_and(|state| !request.set.contains(&state))
            && request.set.contains(&self.spec.kind.id(self.spec.kind.pre_remove))
    }

    /// In its preferred state, not about to leave it, without a running change. An observed change object has converged
    /// as soon as its state is known.
    pub(crate) fn is_settled(&self) -> bool {
        let there = self.state == Some(self.prefers()) && self.view.target == self.state;
        (there || self.spec.observe && self.state.is_some())
            && !self.acting()
            && self.lifecycle == Lifecycle::Present
            && !self.failed
            && self.troubles.check_failures < CHECKS_UNTIL_FAILED
    }

    /// It is in its preferred state, has no requests in either direction, and no pending data: a further decision, or a
    /// generation that does not change it, has no effect.
    pub(crate) fn is_idle(&self) -> bool {
        let desired = Some(self.spec.preferred);
        self.state == desired
            && self.view == View { target: desired, ..View::default() }
            && matches!(self.activity, Activity::Idle)
            && self.lifecycle == Lifecycle::Present
            && self.stopped.is_none()
            && !(self.failed || self.ordered)
            && self.requests.is_empty()
            && self.locks.is_empty()
            && self.unacknowledged.is_empty()
            && self.resend == Repeat::default()
            && (self.troubles.failures, self.troubles.check_failures, self.troubles.retry_at) == (0, 0, Time(0))
            && self.livelock.is_slack()
            && self.probe.is_idle()
            && self.blocked_holders == BlockedHolders::default()
    }

    /// It has departed: in its pre-remove state, idle, with no grant of another state out. A kept change object departs
    /// with no grant out at all: the next generation may have it again, and then it knows of no grant.
    pub(crate) fn has_departed(&self) -> bool {
        let desired = self.own_target();
        let may_stand = |granted| !self.spec.keep && granted == self.spec.kind.id(desired);
        let there = self.state == Some(desired) && matches!(self.activity, Activity::Idle);
        // A recorded departure remains while the state is checked again.
        let lifecycle = self.lifecycle;
        let known = lifecycle.is_declared() || lifecycle.is_departed() && (self.state.is_some() || !self.spec.keep);
        self.departs()
            && (there || known && !self.acting())
            && self.requests.iter().all(|r| r.granted.is_none_or(may_stand))
    }

    pub(crate) fn request_ix(&self, asker: CobRef) -> Result<usize, usize> {
        self.requests.binary_search_by_key(&asker, |r| r.asker)
    }

    pub(crate) fn lock_ix(&self, asked: CobRef) -> Result<usize, usize> {
        self.locks.binary_search_by_key(&asked, |l| l.asked)
    }

    /// A change restarts its timers.
    pub(crate) fn changed(&mut self) {
        self.probe.restart();
        self.blocked_holders = BlockedHolders::default();
        self.resend = Repeat::default();
    }

    /// A new generation, preferred state or order resets its counters.
    pub(crate) fn renew(&mut self) {
        self.failed = false;
        if self.troubles.check_failures > 0 {
            self.check_at = Time(0);
        }
        self.trouble(|t| *t = Trouble { error: t.error.take(), ..Trouble::default() });
        self.livelock = LivelockGuard::default();
        self.probe.forget();
        self.changed();
    }

    /// Frees the memory that it needed while it was active.
    pub(crate) fn shrink(&mut self) {
        let Self { requests, locks, unacknowledged, returned, .. } = self;
        requests.shrink_to_fit();
        locks.shrink_to_fit();
        unacknowledged.shrink_to_fit();
        returned.shrink_to_fit();
    }

    /// The record of a held lock, for the records of the grants and actions that rely on it.
    pub(crate) fn held_lock(lock: &Lock, names: &Names) -> Option<LockRecord> {
        let state = names.state_name(lock.held?).clone();
        let values = lock.values.as_ref().clone();
        let (cob, fingerprint) = (names.cob_id(lock.asked).clone(), lock.fingerprint);
        Some(LockRecord { cob, number: lock.number, state, values, fingerprint })
    }
}

/// Shared values. Most change objects export no values: the empty map exists once.
pub(crate) fn shared(values: Values) -> Arc<Values> {
    static NOTHING: LazyLock<Arc<Values>> = LazyLock::new(Arc::default);
    if values.is_empty() { NOTHING.clone() } else { Arc::new(values) }
}

/// Reserves room for a single element instead of four: most change objects have at most a single lock or request.
pub(crate) fn room_for_one<T>(list: &mut ThinVec<T>) {
    if list.capacity() == 0 {
        list.reserve_exact(1);
    }
}
