//! One change object's life, as its own daemon sees it.
//!
//! Knows its own state, what others ask of it and what it asks of others; nothing else. The engine
//! hands it messages and the ends of its jobs, then calls [`Object::decide`]; what it wants done
//! goes into [`Cx`].
//!
//! * [`decide`] the rules: needs, releases, requests, grants, recalls, the start of a hop
//! * [`target`] where to go
//! * [`ahead`] what an outdated one has to see before it stops
//! * [`asking`] messages about locks that this one asked for
//! * [`granting`] messages about locks that are asked of this one
//! * [`activity`] checks and actions
//! * [`probe`] looking for circles of waiters
//! * [`brake`] rests for what asks or moves again and again
//! * [`budget`] tokens: taken to leave, given one at a time
//! * [`timers`] deadlines, repeats
//! * [`trouble`] what went wrong

mod activity;
mod ahead;
pub(crate) mod asking;
mod brake;
pub(crate) mod budget;
pub(crate) mod decide;
pub(crate) mod granting;
pub(crate) mod probe;
mod target;
mod timers;
mod trouble;

#[cfg(test)]
mod ahead_test;
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
mod observe_test;
#[cfg(test)]
mod probe_test;
#[cfg(test)]
mod rests_test;
#[cfg(test)]
mod stop_test;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::{GenerationNumber, Number, Rank};
use thin_vec::ThinVec;

pub(crate) use activity::{Activity, CHECKS_UNTIL_FAILED};
use brake::Brake;
use budget::Watch;
use probe::ProbeState;
pub(crate) use timers::has_waited_since;
use trouble::{Trouble, Troubles};

use cob_types::status::Stopped;

use crate::effect::Run;
use crate::engine::Faults;
use crate::names::{CobRef, HostRef, Names, StateId};
use crate::peers::{Peer, folder_of};
use crate::record::{Body, GrantOut, HeldLock, Note, OrderRecord, Record};
use crate::spec::{Set, Spec, StateIx};
use crate::time::{Span, Time};

/// A change object of this host. There are tens of thousands of them, most of which are at rest and have nothing to do with
/// others: what is empty takes little room.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) me: CobRef,
    pub(crate) spec: Arc<Spec>,
    /// Adopted when the action that runs has ended.
    pub(crate) next_spec: Option<Arc<Spec>>,
    /// None: unknown.
    pub(crate) state: Option<StateIx>,
    /// The state on record, from a return to the end of the first check: it counts for nothing until that has found it.
    pub(crate) recorded: Option<StateIx>,
    pub(crate) activity: Activity,
    /// It has given up: no hop starts until a retry or the next generation.
    pub(crate) failed: bool,
    /// It decides by rank instead of state priority, until it has no requests left.
    pub(crate) ordered: bool,
    /// It is missing in the generation that this host goes to.
    pub(crate) retiring: bool,
    /// It is final: it has left for good, and is never moved, unless the switch is left.
    pub(crate) finished: bool,
    /// Others leave before it: until they are final it goes nowhere by itself.
    pub(crate) held_back: bool,
    /// A person has said that it counts as final wherever it is.
    pub(crate) declared: bool,
    /// Its action was begun by a generation before the active one, in an earlier life: its needs were others.
    pub(crate) outlived: bool,
    /// The promise under which its last action ran was broken: check it when the action has ended.
    pub(crate) suspect: bool,
    /// Asked of this one, sorted by asker. Each in a box: where a hundred thousand ask, one more moves a word of each.
    pub(crate) requests: ThinVec<Box<Request>>,
    /// Asked of others, sorted by whom.
    pub(crate) locks: ThinVec<Lock>,
    /// Highest number given back to a change object of another host and not yet acknowledged.
    pub(crate) given_back: ThinVec<(CobRef, Number)>,
    /// Highest number that an asker has given back.
    pub(crate) returned: ThinVec<(CobRef, Number)>,
    pub(crate) values: Arc<Values>,
    pub(crate) applied: Option<Fingerprint>,
    pub(crate) rested_on: Option<Fingerprint>,
    /// The token of its budget under which it left, as it is on record.
    pub(crate) left_under: Option<Box<HeldLock>>,
    pub(crate) troubles: Troubles,
    /// The last action, for reports.
    pub(crate) last: Option<LastAction>,
    /// When the next check is due: at once for an unknown state, at intervals for a settled one.
    pub(crate) check_at: Time,
    pub(crate) resend_at: Time,
    pub(crate) resends: u32,
    pub(crate) brake: Brake,
    pub(crate) probe: ProbeState,
    pub(crate) watch: Watch,
    /// An operator has stopped it.
    pub(crate) stopped: Option<Box<Stopped>>,
    /// It is outdated, and everything that it needs to come up again was promised: it may stop.
    pub(crate) seen_ahead: bool,
    /// When state or phase last changed.
    pub(crate) since: Time,
    /// The earliest wake-up that the engine has noted for it.
    pub(crate) scheduled: Time,
    /// It stands in the engine's queue.
    pub(crate) dirty: bool,
    /// It stands among the engine's restless ones.
    pub(crate) restless: bool,
    /// What the last decision found; read by probes and reports.
    pub(crate) view: View,
}

/// What the last decision found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct View {
    pub(crate) target: Option<StateIx>,
    /// A need is not held, or its lock was recalled.
    pub(crate) missing: bool,
    /// The hop waits until grants are back, though every lock is held.
    pub(crate) hop_waits: bool,
    /// A request's set does not contain the target.
    pub(crate) conflict: bool,
    pub(crate) no_route: bool,
    /// It serves somebody who acts on its own wish, and that wish is for elsewhere.
    pub(crate) serves_own_wish: bool,
    /// It would go, and stays until it has a token of its budget.
    pub(crate) gated: bool,
    /// It is a budget, and somebody waits for a token.
    pub(crate) drained: bool,
    /// A hop is not made: the brake is on.
    pub(crate) rests: bool,
    /// It could start, and waits for a place under the host's limit.
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

/// Somebody's request for a state of this one.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) asker: CobRef,
    pub(crate) number: Number,
    pub(crate) rev: u64,
    pub(crate) set: Set,
    pub(crate) rank: Rank,
    pub(crate) origin: CobRef,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The asker has failed, and keeps what it holds.
    pub(crate) failed: bool,
    pub(crate) granted: Option<StateId>,
    pub(crate) recalled: bool,
    /// The promise is broken, and the holder has been told.
    pub(crate) lapsed: bool,
    /// The state that was promised, of a promise that is waited for no longer: its holder is out of reach.
    pub(crate) broken: Option<StateId>,
    /// Restored from records: is it still meant?
    pub(crate) restored: bool,
    pub(crate) refused: bool,
    /// It is granted though the number is reached: nothing else lets the others come back.
    pub(crate) beyond: bool,
    pub(crate) since: Time,
    /// The state folder of the host that asks, if that is another one: the number is of that folder.
    pub(crate) folder: Option<u64>,
}

impl Request {
    /// Whoever asks leaves on a way back, or serves one who does: what he needs may be of whatever content. A host
    /// that never came to the generation that is left will never have the one that was expected there.
    pub(crate) fn takes_any_content(&self, cx: &Cx<'_>) -> bool {
        self.rank.phase == 0 && (cx.goes_back || self.fingerprint.is_none())
    }

    /// It has not been answered by a promise.
    pub(crate) fn is_open(&self) -> bool {
        self.granted.is_none() && self.broken.is_none()
    }

    /// The message that it came in.
    pub(crate) fn said_to(&self, asked: CobRef) -> Mail {
        let Self { number, rev, rank, origin, fingerprint, failed, .. } = *self;
        let msg = Msg::Request { number, rev, set: self.set.clone(), rank, origin, fingerprint, failed };
        Mail { from: self.asker, to: asked, msg }
    }

    /// The same, its promise broken: the holder is told until he has given it back.
    pub(crate) fn broken(mut self) -> Self {
        self.broken = self.granted.take();
        self.lapsed = true;
        self.recalled = true;
        self.restored = false;
        self
    }

    /// The promise of a state that answers it, as it is written down.
    pub(crate) fn grant_out(&self, state: StateId, names: &Names, rests_on: Vec<HeldLock>) -> GrantOut {
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

/// A lock that this one has asked for.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub(crate) asked: CobRef,
    pub(crate) number: Number,
    pub(crate) rev: u64,
    /// The revision that its granter is known to have.
    pub(crate) rev_known: u64,
    pub(crate) set: Set,
    pub(crate) rank: Rank,
    pub(crate) origin: CobRef,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) held: Option<StateId>,
    pub(crate) values: Arc<Values>,
    pub(crate) recalled: bool,
    /// Since the last start its granter has said that it stands.
    pub(crate) confirmed: bool,
    /// Needed by the last decision.
    pub(crate) needed: bool,
    /// Asked for, but not waited for.
    pub(crate) kept: bool,
    /// It is held, and its rank or origin is another than the granter knows: told when a probe says
    /// that somebody waits.
    pub(crate) untold: bool,
    /// The granter was told last that it is for somebody who leaves.
    pub(crate) told_leaving: bool,
    /// The granter, a budget, was told last that this one has failed.
    pub(crate) told_failed: bool,
    /// What its granter has said of it, other than yes. Most never do.
    pub(crate) objections: Option<Box<Objections>>,
    pub(crate) since: Time,
}

/// What a granter says of a lock, other than yes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objections {
    /// Why it refuses.
    pub(crate) refused: Option<Box<str>>,
    /// Since when it has been known that the promise which it was before is broken.
    pub(crate) lapsed: Option<Time>,
}

impl Lock {
    /// Its granter has yet to answer what was said last.
    pub(crate) fn unanswered(&self) -> bool {
        self.held.is_none() || self.rev_known < self.rev
    }

    /// Why its granter refuses it.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.objections.as_ref()?.refused.as_deref()
    }

    /// Since when the promise which it was before has been known to be broken; none as soon as there is another one.
    pub(crate) fn lapsed(&self) -> Option<Time> {
        self.objections.as_ref()?.lapsed
    }

    /// Good for a start or a grant.
    pub(crate) fn usable(&self) -> bool {
        self.held.is_some() && !self.recalled && self.confirmed
    }
}

/// A message between two change objects, in small names. `to` and `from` are around it.
#[derive(Debug, Clone)]
pub(crate) enum Msg {
    Request {
        number: Number,
        rev: u64,
        set: Set,
        rank: Rank,
        origin: CobRef,
        fingerprint: Option<Fingerprint>,
        failed: bool,
    },
    Release(Number),
    Released(Number),
    Grant {
        number: Number,
        rev: u64,
        state: StateId,
        values: Arc<Values>,
    },
    Recall(Number),
    Query(Number),
    Lapsed(Number),
    Refused {
        number: Number,
        reason: Box<str>,
    },
    Probe {
        initiator: CobRef,
        number: Number,
        generation: GenerationNumber,
        path: Vec<CobRef>,
        more: bool,
        wide: bool,
    },
}

/// A message on its way.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    pub(crate) from: CobRef,
    pub(crate) to: CobRef,
    pub(crate) msg: Msg,
}

/// What a change object wants done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Out {
    pub(crate) mail: VecDeque<Mail>,
    /// What [`Engine::handle`](crate::Engine::handle) has not signed yet.
    pub(crate) records: Vec<Record>,
    pub(crate) runs: Vec<Run>,
    /// Those that could start, by the rank of their goals, where a limit says who does.
    pub(crate) ready: Vec<(CobRef, Rank)>,
}

impl Out {
    /// Has something written; when and as which record is said at the end of the turn, where it stands.
    pub(crate) fn record(&mut self, body: Body) {
        let (at, generation) = (Time(0), GenerationNumber(0));
        self.records.push(Record { at, lamport: 0, generation, body, by: None });
    }
}

/// What a change object may see of the daemon around it, and where its wishes go.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) names: &'a Names,
    pub(crate) here: HostRef,
    pub(crate) generation: GenerationNumber,
    pub(crate) paused: bool,
    /// This host is on its way to an older generation than the active one.
    pub(crate) goes_back: bool,
    /// An action starts only when its turn comes.
    pub(crate) limited: bool,
    /// How many tokens budgets of this host have where an operator has said so.
    pub(crate) tokens: &'a BTreeMap<CobRef, u32>,
    /// How many tokens they have until the next generation, where an operator says so.
    pub(crate) peers: &'a [Peer],
    pub(crate) raised: &'a BTreeMap<CobRef, u32>,
    /// How many change objects of this host are not where they should be.
    pub(crate) unsettled: usize,
    /// The narrow probes that were sent of late.
    pub(crate) probing: &'a mut probe::Probing,
    /// How many generations this life has activated.
    pub(crate) activations: u64,
    /// The start of this life, first half of every number.
    pub(crate) start: u32,
    /// Second half of the last number given out.
    pub(crate) counter: &'a mut u64,
    pub(crate) faults: &'a Faults,
    pub(crate) out: &'a mut Out,
    pub(crate) scratch: &'a mut decide::Scratch,
}

impl Mail {
    /// The number of the request that it is.
    pub(crate) fn number(&self) -> Option<Number> {
        if let Msg::Request { number, .. } = self.msg { Some(number) } else { None }
    }
}

impl Cx<'_> {
    /// The state folder that the host of a change object uses, as far as its daemon has told.
    pub(crate) fn folder_of(&self, cob: CobRef) -> Option<u64> {
        folder_of(self.peers, self.names.host_of(cob))
    }

    pub(crate) fn number(&mut self) -> Number {
        *self.counter += 1;
        Number { start: self.start, counter: *self.counter }
    }

    pub(crate) fn post(&mut self, from: CobRef, to: CobRef, msg: Msg) {
        self.out.mail.push_back(Mail { from, to, msg });
    }

    pub(crate) fn record(&mut self, body: Body) {
        self.out.record(body);
    }

    pub(crate) fn note(&mut self, cob: CobRef, note: Note) {
        let cob = self.names.cob_id(cob).clone();
        self.record(Body::Note { cob, note });
    }

    pub(crate) fn is_here(&self, cob: CobRef) -> bool {
        self.names.host_of(cob) == self.here
    }
}

impl Object {
    pub(crate) fn new(me: CobRef, spec: Arc<Spec>, now: Time) -> Self {
        Self {
            me,
            spec,
            next_spec: None,
            state: None,
            recorded: None,
            activity: Activity::Idle,
            failed: false,
            ordered: false,
            retiring: false,
            finished: false,
            held_back: false,
            declared: false,
            outlived: false,
            suspect: false,
            requests: ThinVec::new(),
            locks: ThinVec::new(),
            given_back: ThinVec::new(),
            returned: ThinVec::new(),
            values: shared(Values::new()),
            applied: None,
            rested_on: None,
            left_under: None,
            troubles: Troubles::default(),
            last: None,
            check_at: Time(0),
            resend_at: Time::NEVER,
            resends: 0,
            brake: Brake::default(),
            probe: ProbeState::default(),
            watch: Watch::default(),
            stopped: None,
            seen_ahead: false,
            since: now,
            scheduled: Time::NEVER,
            dirty: false,
            restless: false,
            view: View::default(),
        }
    }

    /// Where it goes by itself.
    pub(crate) fn home(&self) -> StateIx {
        match (self.retiring, self.state) {
            (false, _) => self.prefers(),
            (true, Some(state)) if self.spec.keep || self.held_back => state,
            (true, _) => self.spec.kind.pre_remove,
        }
    }

    /// Its preferred state, or the one in which it is stopped while an operator has stopped it.
    pub(crate) fn prefers(&self) -> StateIx {
        let stopped = self.spec.kind.stopped.filter(|_| self.stopped.is_some());
        stopped.unwrap_or(self.spec.preferred)
    }

    /// It is stopped: it does not run for others either. One that leaves is served all the same: the generation with which
    /// it leaves ends the order.
    pub(crate) fn is_stopped_for(&self, request: &Request) -> bool {
        let kind = &self.spec.kind;
        let off = |state: StateIx| request.set.contains(&kind.id(state));
        let Some(stopped) = kind.stopped.filter(|_| self.stopped.is_some() && !self.retiring) else { return false };
        request.rank.phase > 0 && !off(stopped) && !off(kind.pre_remove)
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

    /// Nobody has stopped it any more.
    pub(crate) fn start(&mut self, cx: &mut Cx<'_>) {
        self.stopped = None;
        self.renew();
        cx.record(Body::Ordered(OrderRecord::Start(cx.names.cob_id(self.me).clone())));
    }

    /// It stays where it is, and grants what it is: it has given up, or it is observed, or it has left for good.
    pub(crate) fn stays(&self) -> bool {
        self.failed || self.spec.observe || self.finished || self.declared
    }

    /// It has left, and is not where it left: others found it so, or it counts as final by a word alone. It promises
    /// nothing there.
    pub(crate) fn has_strayed(&self, state: StateIx) -> bool {
        (self.finished || self.declared) && !self.spec.keep && state != self.spec.kind.pre_remove
    }

    /// It leaves as it is.
    pub(crate) fn leaves_as_it_is(&self) -> bool {
        self.retiring && self.spec.keep
    }

    /// The state as it is on record, whether it counts or not.
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

    /// A leaving change object serves only those who help others to leave.
    pub(crate) fn serves(&self, request: &Request) -> bool {
        !self.retiring || request.rank.phase == 0
    }

    /// Asked, for somebody who leaves, to be in its pre-remove state: one that leaves as it is never acts again, so
    /// it is as good as there.
    pub(crate) fn is_as_good_as_off(&self, request: &Request) -> bool {
        self.leaves_as_it_is()
            && request.rank.phase == 0
            && self.state_id().is_some_and(|state| !request.set.contains(&state))
            && request.set.contains(&self.spec.kind.id(self.spec.kind.pre_remove))
    }

    /// It has left: in its pre-remove state, with no promise of another state out, at rest. One that is kept
    /// leaves with no promise out at all: it may be back in the next generation, and knows of none then.
    pub(crate) fn is_final(&self) -> bool {
        let home = self.home();
        let may_stand = |granted| !self.spec.keep && granted == self.spec.kind.id(home);
        let there = self.state == Some(home) && matches!(self.activity, Activity::Idle);
        // What is on record as final stays so while it is looked at again.
        let known = self.declared || self.finished && (self.state.is_some() || !self.spec.keep);
        self.retiring
            && (there || known && !self.acting())
            && self.requests.iter().all(|r| r.granted.is_none_or(may_stand))
    }

    pub(crate) fn request_ix(&self, asker: CobRef) -> Result<usize, usize> {
        self.requests.binary_search_by_key(&asker, |r| r.asker)
    }

    pub(crate) fn lock_ix(&self, asked: CobRef) -> Result<usize, usize> {
        self.locks.binary_search_by_key(&asked, |l| l.asked)
    }

    /// Something changed for it: what waits, waits anew.
    pub(crate) fn changed(&mut self) {
        self.probe.restart();
        self.watch = Watch::default();
        self.resends = 0;
        self.resend_at = Time::NEVER;
    }

    /// Its lot is a new one (generation, preferred state, operator's word): old counts mean nothing.
    pub(crate) fn renew(&mut self) {
        self.failed = false;
        if self.troubles.check_failures > 0 {
            self.check_at = Time(0);
        }
        self.trouble(|t| *t = Trouble { error: t.error.take(), ..Trouble::default() });
        self.brake = Brake::default();
        self.probe.forget();
        self.changed();
    }

    /// Gives back the room of what it had while it was not at rest.
    pub(crate) fn give_room_back(&mut self) {
        let Self { requests, locks, given_back, returned, .. } = self;
        requests.shrink_to_fit();
        locks.shrink_to_fit();
        given_back.shrink_to_fit();
        returned.shrink_to_fit();
    }

    /// A held lock, as it is written beside what rests on it.
    pub(crate) fn held_lock(lock: &Lock, names: &Names) -> Option<HeldLock> {
        let state = names.state_name(lock.held?).clone();
        let values = lock.values.as_ref().clone();
        let (cob, fingerprint) = (names.cob_id(lock.asked).clone(), lock.fingerprint);
        Some(HeldLock { cob, number: lock.number, state, values, fingerprint })
    }
}

/// Values that many may have. Most export nothing: nothing is held once.
pub(crate) fn shared(values: Values) -> Arc<Values> {
    static NOTHING: LazyLock<Arc<Values>> = LazyLock::new(Arc::default);
    if values.is_empty() { NOTHING.clone() } else { Arc::new(values) }
}

/// Most have one lock, request or wish, if any: room for the first is made for it alone, not for four.
pub(crate) fn room_for_one<T>(list: &mut ThinVec<T>) {
    if list.capacity() == 0 {
        list.reserve_exact(1);
    }
}

/// How long until the first repeat of what is unsettled; doubles up to [`RESEND_CAP`].
pub(crate) const RESEND: Span = Span::secs(1);
/// The longest time between two repeats.
pub(crate) const RESEND_CAP: Span = Span::secs(60);
