//! The rules, called after every change that may concern a change object. They decide which locks it releases, asks
//! for, grants and recalls, and which action it starts.
//!
//! The order inside is the protocol's: first the whole set of needs, then the releases, then the requests, then grants,
//! recalls and the start. So a lock that is needed both before and after a transition is never released in between.

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::{Number, Rank};

use crate::mail::{Asked, Granted, Msg, Refusal};
use crate::names::{CobRef, StateId};
use crate::object::budget::Token;
use crate::object::target::Aim;
use crate::object::{Activity, Cx, Lock, Object, Objections, Request, View, room_for_one, shared};
use crate::record::{Body, LockRecord, Note};
use crate::spec::{NeedSpec, Set, Spec, StateIx};

/// A lock that is needed now.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(super) cob: CobRef,
    pub(super) set: Set,
    pub(super) rank: Rank,
    pub(super) origin: CobRef,
    /// Speculative: asked for, but not waited for.
    pub(super) speculative: bool,
    /// Accepts any content: see [`Aim::any_content`].
    pub(super) any_content: bool,
}

impl Need {
    /// The expected content; `None`: any.
    fn expected(&self, spec: &Spec) -> Option<Fingerprint> {
        if self.any_content { None } else { spec.expects(self.cob) }
    }
}

/// Buffers that outlive a decision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scratch {
    /// Sorted by change object.
    needs: Vec<Need>,
}

impl Scratch {
    fn find(&self, cob: CobRef) -> Result<usize, usize> {
        self.needs.binary_search_by_key(&cob, |n| n.cob)
    }

    /// Adds a need unless the change object has a need already.
    pub(super) fn add(&mut self, need: Need) {
        if let Err(at) = self.find(need.cob) {
            self.needs.insert(at, need);
        }
    }
}

impl Object {
    /// Applies the rules. While an action runs, does nothing; while the state is unknown, only starts a check.
    pub(crate) fn decide(&mut self, cx: &mut Cx<'_>) {
        if self.acting() {
            return;
        }
        let Some(state) = self.state else {
            self.decide_unknown(cx);
            return;
        };
        if self.requests.is_empty() {
            self.ordered = false;
        }
        self.end_restart(cx, state);
        let aim = self.aim(cx, state, None);
        self.refuse_unservable(cx, state);
        let ahead = self.ahead(state, aim);
        let mut target = if self.stays() || ahead.is_awaited() { state } else { aim.target };
        let token = self.token(cx, state, target);
        let gated = ahead.is_awaited() || token == Some(Token::Wanted) && !self.has_token();
        if gated {
            target = state;
        }
        let transition = if state == target { None } else { self.spec.kind.next_transition(state, target) };
        self.view = View {
            target: Some(aim.target),
            conflict: self.has_conflict(aim.target) || self.goes_otherwise_by_rank(cx, state, aim),
            no_route: state != target && transition.is_none(),
            gated,
            ..View::default()
        };

        let mut scratch = std::mem::take(cx.scratch);
        scratch.needs.clear();
        self.collect_needs(cx, &mut scratch, state, target, aim, transition);
        self.add_later_needs(cx, &mut scratch, aim, ahead);
        self.need_token(cx, &mut scratch, token, aim);
        self.settle_locks(cx, &scratch, state);
        self.ask(cx, &scratch);
        let have_all = self.have_all(&scratch) && !self.view.transition_waits;
        *cx.scratch = scratch;

        if state == target {
            if have_all && !self.has_strayed(state) {
                self.grant_all(cx, state);
            }
            if self.departs_as_it_is() {
                self.grant_pre_remove_state(cx);
                self.recall_unserved(cx);
            } else {
                let strayed = self.has_strayed(state);
                self.recall_where(cx, |granted, state| strayed || granted != state);
            }
        } else {
            self.recall_where(cx, |_, _| true);
            if let Some(transition) = transition
                && have_all
                && !self.has_grants_out()
                && !cx.paused
            {
                self.try_start(cx, state, transition);
            }
        }
        self.watch_drift(cx);
        self.set_deadlines(cx);
    }

    pub(super) fn has_conflict(&self, target: StateIx) -> bool {
        let id = self.spec.kind.id(target);
        self.requests.iter().any(|r| self.serves(r) && !r.set.contains(&id) && !self.counts_as_removed(r))
    }

    /// Rules 3 and 4, first half: all present needs, and the speculative ones besides.
    fn collect_needs(
        &mut self,
        cx: &Cx<'_>,
        needs: &mut Scratch,
        state: StateIx,
        target: StateIx,
        aim: Aim,
        transition: Option<u16>,
    ) {
        let spec = self.spec.clone();
        let id = spec.kind.id(state);
        if state == target {
            // A grant relies on its locks until it is released, even if it would not be given any more.
            let counts = |r: &&Request| r.granted == Some(id) || self.serves(r) && r.set.contains(&id);
            let all = self.requests.iter().map(AsRef::as_ref);
            if let Some(first) = all.filter(counts).min_by(|a, b| (a.rank, a.asker).cmp(&(b.rank, b.asker))) {
                add_all(needs, spec.lock_needs(state), first, cx);
            }
        } else {
            let granted = self.requests.iter().filter(|r| r.granted.is_some());
            if let Some(first) = granted.min_by(|a, b| (a.rank, a.asker).cmp(&(b.rank, b.asker))) {
                add_all(needs, spec.lock_needs(state), first, cx);
            }
        }
        if let Some(transition) = transition {
            let rank = self.goal_rank(cx, target, aim);
            let origin = aim.origin.unwrap_or(self.me);
            for need in spec.transition_needs(transition) {
                match needs.find(need.cob) {
                    // A lock under a grant is never narrowed past its held state (counterexample 4).
                    Ok(at) => {
                        let held = self.lock_ix(need.cob).ok().and_then(|i| self.locks[i].held);
                        if held.is_some_and(|h| need.set.contains(&h)) {
                            let both = &mut needs.needs[at].set;
                            *both = both.iter().copied().filter(|s| need.set.contains(s)).collect();
                        } else {
                            self.view.transition_waits = true;
                        }
                    }
                    Err(_) => {
                        let (set, any_content) = (need.set.clone(), aim.any_content);
                        needs.add(Need { cob: need.cob, set, rank, origin, speculative: false, any_content });
                    }
                }
            }
        }
        if self.stays() || self.view.gated {
            return;
        }
        self.keep_own_desire(cx, needs, state);
        self.keep_requests(needs, state, target);
    }

    /// Counterexample 12: requests in its own name remain while it serves a change object that acts on that very
    /// desired state.
    fn keep_own_desire(&mut self, cx: &Cx<'_>, needs: &mut Scratch, state: StateIx) {
        if !self.requests.iter().any(|r| r.origin == self.me) {
            return;
        }
        let aim = self.aim(cx, state, Some(self.me));
        if aim.target == state {
            return;
        }
        let Some(transition) = self.spec.kind.next_transition(state, aim.target) else { return };
        let rank = self.goal_rank(cx, aim.target, aim);
        let origin = aim.origin.unwrap_or(self.me);
        for need in self.spec.transition_needs(transition) {
            let (set, any_content) = (need.set.clone(), aim.any_content);
            needs.add(Need { cob: need.cob, set, rank, origin, speculative: true, any_content });
        }
        self.view.serves_own_desire = true;
    }

    /// Rules K1 and K2: two sorts of requests that are not needed now, but whose withdrawal would let two change
    /// objects undo each other's work.
    fn keep_requests(&self, needs: &mut Scratch, state: StateIx, target: StateIx) {
        let coming = self.spec.lock_needs(target);
        for lock in self.locks.iter().filter(|l| !l.recalled) {
            // A lock that no dependency names any more, since a later activation, is released.
            if needs.find(lock.asked).is_ok() || !self.may_ask(lock) {
                continue;
            }
            let as_it_is = |rank| {
                let any_content = lock.fingerprint.is_none();
                Need {
                    cob: lock.asked,
                    set: lock.set.clone(),
                    rank,
                    origin: lock.origin,
                    speculative: true,
                    any_content,
                }
            };
            if lock.held.is_none() && self.request_ix(lock.asked).is_ok() {
                needs.add(as_it_is(lock.rank));
            } else if state != target {
                let of_target = coming.iter().find(|n| n.cob == lock.asked);
                if of_target.is_some_and(|n| lock.held.is_none_or(|h| n.set.contains(&h))) {
                    needs.add(as_it_is(Rank::LAST));
                }
            }
        }
    }

    /// Whether a dependency justifies the present lock: after a restart, a subset of the states that it names is
    /// enough.
    pub(crate) fn may_ask(&self, lock: &Lock) -> bool {
        let restored = lock.held.filter(|held| *lock.set == [*held]);
        self.spec.lets_ask(lock.asked, &lock.set, restored)
    }

    /// An action on behalf of another generation has the rank of its asker: the own ranks do not compare with it.
    pub(super) fn goal_rank(&self, cx: &Cx<'_>, target: StateIx, aim: Aim) -> Rank {
        match aim.rank {
            Some(rank) if rank.generation != cx.generation => Rank { phase: aim.phase, ..rank },
            Some(_) | None => Rank { phase: aim.phase, generation: cx.generation, rank: self.spec.rank(target) },
        }
    }

    /// Rule 4, and the holder's side of a recall: releases unneeded locks, replaces locks that no longer
    /// fit, obeys recalls.
    fn settle_locks(&mut self, cx: &mut Cx<'_>, needs: &Scratch, state: StateIx) {
        let grants_out = self.has_grants_out();
        let spec = self.spec.clone();
        // For departures and moves on their behalf: no grant relies on speculative locks, and waiting for grants before
        // their release could deadlock two change objects.
        let promised_on = |cob: CobRef| spec.lock_needs(state).iter().any(|n| n.cob == cob);
        let rests_on_none = |need: &Need| need.speculative && need.rank.phase.is_departure() && !promised_on(need.cob);
        let mut recall_mine = false;
        let mut at = 0;
        while at < self.locks.len() {
            let lock = &mut self.locks[at];
            let Ok(i) = needs.find(lock.asked) else {
                self.release_lock(cx, at);
                continue;
            };
            let need = &needs.needs[i];
            let misfit = lock.held.is_some_and(|h| !need.set.contains(&h));
            // A grant of other content than expected now cannot be used either. A request is renewed if any content
            // suffices now.
            let same_content = need.expected(&self.spec) == lock.fingerprint;
            lock.recalled |= !same_content && (lock.held.is_none() || !need.any_content);
            let recalled = lock.recalled;
            if misfit {
                // The rate limit counts this as a further request.
                if self.livelock.may_ask(cx, self.me, need.cob, &need.set) {
                    self.ask_again(cx, at, need);
                } else {
                    self.release_lock(cx, at);
                    continue;
                }
            } else if recalled && grants_out && !rests_on_none(need) {
                recall_mine = true;
            } else if recalled {
                // The new request under a new number is the release: a recall costs no place in the queue.
                if !self.livelock.may_ask_again(cx, self.me, need.cob) {
                    self.release_lock(cx, at);
                    continue;
                }
                self.ask_again(cx, at, need);
            }
            at += 1;
        }
        if recall_mine {
            self.recall_where(cx, |_, _| true);
        }
    }

    /// Rule 5: asks for every needed lock without a request, and sends changes of the other requests.
    fn ask(&mut self, cx: &mut Cx<'_>, needs: &Scratch) {
        let budget = self.spec.budget.as_ref().map(|budget| budget.cob);
        let is_budget = |cob| budget == Some(cob);
        let mut at = 0;
        for need in &needs.needs {
            while self.locks.get(at).is_some_and(|l| l.asked < need.cob) {
                at += 1;
            }
            if self.locks.get(at).is_none_or(|l| l.asked != need.cob) {
                if !self.livelock.may_ask(cx, self.me, need.cob, &need.set) {
                    continue;
                }
                let lock = self.new_lock(cx, need);
                room_for_one(&mut self.locks);
                self.locks.insert(at, lock);
                self.send_request(cx, at);
                continue;
            }
            let lock = &mut self.locks[at];
            lock.needed = true;
            lock.speculative = need.speculative;
            let other_set = lock.set != need.set;
            // A budget grants no further tokens while a holder has failed.
            let failed = self.failed && is_budget(need.cob) && lock.held.is_some();
            let other_standing = lock.sent_failed != failed;
            // A departing grantor serves only requests on behalf of departures: inform it when this no longer holds.
            let leaves_no_more = lock.sent_leaving && !need.speculative && !need.rank.phase.is_departure();
            let told = other_set || leaves_no_more || other_standing;
            let differs = told || lock.rank != need.rank || lock.origin != need.origin;
            let at_once = told || lock.held.is_none();
            if differs && (!at_once || self.livelock.may_revise(cx, self.me, need.cob)) {
                lock.set = need.set.clone();
                lock.rank = need.rank;
                lock.origin = need.origin;
                if at_once {
                    lock.sent_failed = failed;
                    self.revise(cx, at);
                } else {
                    lock.unsent = true;
                }
            }
        }
    }

    /// Sends a changed request to the grantor: same number, next revision.
    pub(crate) fn revise(&mut self, cx: &mut Cx<'_>, at: usize) {
        let lock = &mut self.locks[at];
        lock.rev += 1;
        lock.unsent = false;
        lock.sent_leaving = lock.rank.phase.is_departure();
        self.post_request(cx, at);
    }

    /// Ranks and origins of held locks change with every request that comes and goes, and matter only if a change
    /// object waits: they are sent when a probe passes.
    pub(crate) fn send_unsent(&mut self, cx: &mut Cx<'_>) {
        for at in 0..self.locks.len() {
            if self.locks[at].unsent {
                self.revise(cx, at);
            }
        }
    }

    fn new_lock(&mut self, cx: &mut Cx<'_>, need: &Need) -> Lock {
        Lock {
            asked: need.cob,
            number: cx.number(),
            rev: 0,
            rev_known: 0,
            set: need.set.clone(),
            rank: need.rank,
            origin: need.origin,
            fingerprint: need.expected(&self.spec),
            held: None,
            values: shared(Values::new()),
            recalled: false,
            confirmed: true,
            needed: true,
            speculative: need.speculative,
            unsent: false,
            sent_leaving: need.rank.phase.is_departure(),
            sent_failed: false,
            objections: None,
            since: cx.now,
        }
    }

    fn ask_again(&mut self, cx: &mut Cx<'_>, at: usize, need: &Need) {
        let Lock { since, .. } = self.locks[at];
        let invalidated = self.locks[at].invalidated();
        let objections = invalidated.map(|_| Box::new(Objections { refused: None, invalidated }));
        let fresh = self.new_lock(cx, need);
        self.locks[at] = Lock { since, objections, ..fresh };
        self.send_request(cx, at);
    }

    pub(crate) fn send_request(&self, cx: &mut Cx<'_>, at: usize) {
        self.post_request(cx, at);
        let lock = &self.locks[at];
        if lock.rev == 0 && lock.held.is_none() {
            let (of, set) = (cx.names.cob_id(lock.asked).clone(), cx.names.state_names(&lock.set));
            cx.note(self.me, Note::Requested { of, set });
        }
    }

    /// Sends the request without an entry in the history.
    pub(crate) fn post_request(&self, cx: &mut Cx<'_>, at: usize) {
        let lock = &self.locks[at];
        let asked = Asked {
            number: lock.number,
            rev: lock.rev,
            set: lock.set.clone(),
            rank: lock.rank,
            origin: lock.origin,
            fingerprint: lock.fingerprint,
            failed: lock.sent_failed,
        };
        cx.post(self.me, lock.asked, Msg::Request(asked));
    }

    /// Removes a lock and informs its grantor.
    pub(crate) fn release_lock(&mut self, cx: &mut Cx<'_>, at: usize) {
        let lock = self.locks.remove(at);
        cx.post(self.me, lock.asked, Msg::Release(lock.number));
        if !cx.is_here(lock.asked) {
            self.remember_release(lock.asked, lock.number);
        }
        if lock.held.is_some() {
            let of = cx.names.cob_id(lock.asked).clone();
            cx.note(self.me, Note::Released { of });
        }
    }

    fn remember_release(&mut self, asked: CobRef, number: Number) {
        match self.unacknowledged.binary_search_by_key(&asked, |g| g.0) {
            Ok(i) => self.unacknowledged[i].1 = self.unacknowledged[i].1.max(number),
            Err(i) => self.unacknowledged.insert(i, (asked, number)),
        }
    }

    /// Whether every need that is waited for is held, confirmed and not recalled.
    fn have_all(&mut self, needs: &Scratch) -> bool {
        let usable = |need: &&Need| {
            let lock = self.lock_ix(need.cob).map(|i| &self.locks[i]);
            lock.is_ok_and(|l| l.usable() && l.held.is_some_and(|h| need.set.contains(&h)))
        };
        let all = needs.needs.iter().filter(|n| !n.speculative && !self.is_budget(n.cob)).all(|n| usable(&n));
        self.view.missing = !all || self.view.gated;
        all
    }

    /// Rule 6.
    fn grant_all(&mut self, cx: &mut Cx<'_>, state: StateIx) {
        let id = self.spec.kind.id(state);
        let waiting = |r: &Request| r.granted.is_none() && !r.invalidated && r.set.contains(&id);
        let same_content = |r: &Request| r.fingerprint.is_none_or(|f| f == self.spec.fingerprint);
        let asks = |r: &Request| waiting(r) && self.serves(r) && same_content(r);
        let mut chosen: Vec<usize> = (0..self.requests.len()).filter(|i| asks(&self.requests[*i])).collect();
        self.choose(cx, &mut chosen);
        if chosen.is_empty() {
            return;
        }
        let rests_on = self.rests_on(cx, state);
        for i in chosen {
            self.grant(cx, i, id, rests_on.clone());
        }
    }

    fn grant(&mut self, cx: &mut Cx<'_>, at: usize, id: StateId, rests_on: Vec<LockRecord>) {
        self.requests[at].granted = Some(id);
        self.requests[at].recalled = false;
        self.requests[at].since = cx.now;
        let request = &self.requests[at];
        let grant = request.grant_out(id, cx.names, rests_on);
        let (cob, to) = (cx.names.cob_id(self.me).clone(), cx.names.cob_id(request.asker).clone());
        if !cx.faults.grants_not_durable() {
            cx.record(Body::Granted { cob, to, grant });
        }
        let granted = Granted { number: request.number, rev: request.rev, state: id, values: self.values.clone() };
        cx.post(self.me, request.asker, Msg::Grant(granted));
    }

    /// Grants its pre-remove state to change objects that depart beside it, without being there.
    fn grant_pre_remove_state(&mut self, cx: &mut Cx<'_>) {
        let off = self.spec.kind.id(self.spec.kind.pre_remove);
        for i in 0..self.requests.len() {
            let request = &self.requests[i];
            let same_content = request.fingerprint.is_none_or(|f| f == self.spec.fingerprint);
            if request.granted.is_none() && !request.invalidated && same_content && self.counts_as_removed(request) {
                self.grant(cx, i, off, Vec::new());
            }
        }
    }

    /// Its own locks on which a grant of this state relies.
    fn rests_on(&self, cx: &Cx<'_>, state: StateIx) -> Vec<LockRecord> {
        if cx.faults.forgets_locks_under_grants() {
            return Vec::new();
        }
        let of = |need: &NeedSpec| {
            let lock = &self.locks[self.lock_ix(need.cob).ok()?];
            Object::held_lock(lock, cx.names)
        };
        self.spec.lock_needs(state).iter().filter_map(of).collect()
    }

    /// Rule 7: recalls the grants that `which(granted, state)` picks.
    fn recall_where(&mut self, cx: &mut Cx<'_>, which: impl Fn(StateId, StateId) -> bool) {
        let Some(state) = self.state_id() else { return };
        for i in 0..self.requests.len() {
            if self.requests[i].granted.is_some_and(|granted| which(granted, state)) {
                self.recall(cx, i);
            }
        }
    }

    /// A change object that departs in its present state recalls the grants that only a move would recall otherwise,
    /// and grants of another state, but not the grants of [`Self::grant_pre_remove_state`].
    fn recall_unserved(&mut self, cx: &mut Cx<'_>) {
        let state = self.state_id();
        for i in 0..self.requests.len() {
            let request = &self.requests[i];
            let astray = request.granted != state && !self.counts_as_removed(request);
            if request.granted.is_some() && (astray || !self.serves(request)) {
                self.recall(cx, i);
            }
        }
    }

    fn recall(&mut self, cx: &mut Cx<'_>, at: usize) {
        let request = &mut self.requests[at];
        if request.recalled {
            return;
        }
        request.recalled = true;
        request.since = cx.now;
        let (asker, number) = (request.asker, request.number);
        cx.post(self.me, asker, Msg::Recall(number));
        let from = cx.names.cob_id(asker).clone();
        cx.note(self.me, Note::Recalled { from });
    }

    /// The first rule of the target: refuses a request whose states are all unreachable, and a request that wants a
    /// stopped change object to run.
    fn refuse_unservable(&mut self, cx: &mut Cx<'_>, state: StateIx) {
        for i in 0..self.requests.len() {
            let is_stopped = self.is_stopped_for(&self.requests[i]);
            let unservable = is_stopped || !self.can_serve(&self.requests[i], state);
            let request = &mut self.requests[i];
            if unservable && !request.refused {
                let refusal = if let Some(stopped) = self.stopped.as_deref().filter(|_| is_stopped) {
                    Refusal { reason: stopped.in_words().into(), from: None }
                } else {
                    let states: Vec<_> = request.set.iter().map(|s| cx.names.state_name(*s).as_str()).collect();
                    let now = cx.names.state_name(self.spec.kind.id(state));
                    let reason = format!("no route leads from {now} to {}", states.join(" or ")).into();
                    Refusal { reason, from: Some(now.clone()) }
                };
                let msg = Msg::Refused { number: request.number, refusal };
                cx.post(self.me, request.asker, msg);
            }
            request.refused = unservable;
        }
    }

    fn decide_unknown(&mut self, cx: &mut Cx<'_>) {
        self.view = View::default();
        // With an unknown state, recalled locks are not needed, unless a grant is out.
        if !self.has_grants_out() {
            while let Some(at) = self.locks.iter().position(|l| l.recalled) {
                self.release_lock(cx, at);
            }
        }
        if matches!(self.activity, Activity::Idle) && cx.now >= self.check_at {
            self.start_check(cx);
        }
        self.set_deadlines(cx);
    }

    /// The locks of this transition, as recorded before it starts.
    pub(crate) fn locks_of_transition(&self, cx: &Cx<'_>, transition: u16) -> Vec<LockRecord> {
        let of = |need: &NeedSpec| Object::held_lock(&self.locks[self.lock_ix(need.cob).ok()?], cx.names);
        self.spec.transition_needs(transition).iter().filter_map(of).collect()
    }

    fn try_start(&mut self, cx: &mut Cx<'_>, state: StateIx, transition: u16) {
        if !matches!(self.activity, Activity::Idle) || cx.now < self.troubles.retry_at {
            return;
        }
        let aim = self.aim(cx, state, None);
        if cx.limited {
            self.view.limited = true;
            cx.out.ready(self.me, self.goal_rank(cx, aim.target, aim));
            return;
        }
        if self.livelock.may_leave(cx, self.me, self.spec.kind.id(state), aim.asker) {
            self.start_action(cx, transition);
        } else {
            self.view.rests = true;
        }
    }
}

/// Adds the needs of a grant, for the request that it answers.
fn add_all(needs: &mut Scratch, specs: &[NeedSpec], request: &Request, cx: &Cx<'_>) {
    let (rank, origin, any_content) = (request.rank, request.origin, request.takes_any_content(cx));
    for need in specs {
        needs.add(Need { cob: need.cob, set: need.set.clone(), rank, origin, speculative: false, any_content });
    }
}
