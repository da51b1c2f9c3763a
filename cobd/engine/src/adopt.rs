//! A new generation against the present state: which change objects depart, change, or are new.
//!
//! At the start of a switch, the change objects that the new generation lacks begin to depart (their preferred
//! state becomes the pre-remove state, or, if kept, their present state); so do change objects that are taken back.
//! When all waits are over ([`crate::departures`]), the host activates the generation: it drops the departed change
//! objects, and adds the taken-back change objects again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_types::beside::Difference;
use cob_types::{CobId, GenerationNumber, SwitchOrder};

use crate::bundle::AnyBundle;
use crate::departures::PendingSwitch;
use crate::engine::Engine;
use crate::mail::Mail;
use crate::names::{CobRef, StateId};
use crate::object::{Activity, Lifecycle, Object};
use crate::record::{Body, OrderRecord};
use crate::spec::{Compiler, Spec};
use crate::time::Time;

/// The target of a switch.
#[derive(Debug, Clone)]
pub(crate) struct SwitchTarget {
    pub(crate) generation: GenerationNumber,
    pub(crate) bundle: ActiveBundle,
    pub(crate) order: Arc<SwitchOrder>,
}

/// A generation's data for this host.
#[derive(Debug, Clone)]
pub(crate) struct ActiveBundle {
    pub(crate) bundle: AnyBundle,
    pub(crate) in_process: Vec<String>,
}

/// The differences between a generation and the active generation.
#[derive(Debug, Default)]
struct BundleDiff {
    /// New, changed, or taken-back change objects.
    specs: BTreeMap<CobId, Arc<Spec>>,
    /// Departing change objects of this host.
    leaving: BTreeSet<CobRef>,
}

impl Engine {
    /// Starts a switch. Only a rollback leads to an older generation; in the midst of a switch it leads to the
    /// generation that is still active, and departing change objects stay.
    pub(crate) fn switch(&mut self, target: SwitchTarget, rollback: bool, now: Time) {
        let newest = self.going_to().unwrap_or(self.generation);
        if target.generation == newest || target.generation < newest && !rollback {
            return;
        }
        self.out.record(Body::Go(target.generation));
        let was_held = self.held.take().is_some();
        // A pending switch, or a generation visited before: hosts must tell the facts of the two switches apart.
        if rollback || self.going.is_some() || target.generation <= self.highest {
            self.leave_switch();
        }
        self.highest = self.highest.max(target.generation);
        if let Some(left) = self.going.take() {
            self.keep_pending_askers(&left.target);
            self.never_came(&left);
        }
        self.start_switch(target, now);
        self.lay_out(now);
        if was_held {
            // Change objects held by a cancel may move again, but must not: without departures, activate the next
            // generation before any change object decides.
            self.try_activate(now);
        }
    }

    /// As [`Self::switch`], for a switch that is on record already.
    pub(crate) fn start_switch(&mut self, target: SwitchTarget, now: Time) {
        let BundleDiff { specs, leaving } = self.difference_to(&target);
        // The switch does not concern an idle change object that stays.
        let concerned: BTreeSet<usize> =
            self.restless().map(|o| o.me).chain(leaving.iter().copied()).filter_map(|cob| self.slot(cob)).collect();
        let concerned: Vec<CobRef> = concerned.into_iter().filter_map(|at| Some(self.slots[at].as_ref()?.me)).collect();
        for cob in concerned {
            let leaves = leaving.contains(&cob);
            self.with(cob, now, |o, cx| {
                let departed = o.lifecycle.is_departing();
                o.lifecycle = if leaves { Lifecycle::DEPARTING } else { Lifecycle::Present };
                // A departing change object that has failed tries again.
                if departed != leaves || leaves && o.failed {
                    if o.failed {
                        cx.record(Body::Ordered(OrderRecord::Retry(cx.names.cob_id(o.me).clone())));
                    }
                    o.renew();
                }
            });
        }
        self.going = Some(PendingSwitch::new(target, specs, leaving, now));
        self.facts_changed = true;
        self.judge_waiting(now);
    }

    /// The changes of a generation here. Unchanged change objects are not even compiled.
    fn difference_to(&mut self, target: &SwitchTarget) -> BundleDiff {
        let mut news = BundleDiff::default();
        let bundle = &target.bundle.bundle;
        let mut compiler = Compiler::new(bundle.kinds(), &target.bundle.in_process);
        match self.active.as_ref().filter(|active| active.runs_as(&target.bundle)).map(|active| active.bundle.clone()) {
            Some(before) => {
                for difference in bundle.differences(&before) {
                    if difference.now.is_none() || is_something_else(&difference, &before, bundle) {
                        news.leaving.extend(self.names.find_cob(&difference.id));
                    }
                    if let Some(cob) = difference.now {
                        news.add(&difference.id, compiler.spec(&cob, &mut self.names));
                    }
                }
            }
            None => {
                self.names.make_room(bundle.len());
                for (id, cob) in bundle.iter() {
                    news.add(id, compiler.spec(&cob, &mut self.names));
                }
                let has = |o: &&Object| bundle.has(self.names.cob_id(o.me));
                news.leaving.extend(self.objects().filter(|o| !has(o)).map(|o| o.me));
                let before = self.active.iter().map(|active| &active.bundle);
                let others = before.flat_map(|before| {
                    let differences = bundle.differences(before);
                    differences.filter(|difference| is_something_else(difference, before, bundle))
                });
                news.leaving.extend(others.filter_map(|difference| self.names.find_cob(&difference.id)));
            }
        }
        let here = self.names.host_name(self.here).clone();
        for id in target.order.taken_back_of(&here) {
            if let Some(cob) = bundle.get(id).filter(|_| !news.specs.contains_key(id)) {
                news.add(id, compiler.spec(&cob, &mut self.names));
            }
            news.leaving.extend(self.names.find_cob(id));
        }
        news.leaving.retain(|cob| self.slot(*cob).is_some());
        news
    }

    /// Records departures, and activates the generation of the pending switch when all waits are over. Returns whether
    /// there was a change.
    pub(crate) fn try_activate(&mut self, now: Time) -> bool {
        // A cancelled switch does not continue.
        if self.going.is_none() || self.held.is_some() {
            return false;
        }
        let (news, freed) = self.find_final(now);
        self.facts_changed |= !news.is_empty();
        if self.may_activate()
            && let Some(going) = self.going.take()
        {
            self.activate(going, now);
            return true;
        }
        for cob in &news {
            self.out.record(Body::Final { cob: self.names.cob_id(*cob).clone() });
            self.touch(*cob);
        }
        freed || !news.is_empty()
    }

    fn activate(&mut self, going: PendingSwitch, now: Time) {
        for cob in &going.leaving {
            self.let_go(*cob, now);
        }
        self.keep_active_askers();
        let before = std::mem::replace(&mut self.generation, going.target.generation);
        let back = going.target.generation < before;
        self.active = Some(going.target.bundle);
        self.activations += 1;
        self.make_room(going.specs.len());
        // Unchanged change objects start anew; idle ones have no counters to reset.
        let mut concerned: BTreeMap<CobId, Option<Arc<Spec>>> =
            self.restless().map(|o| (self.names.cob_id(o.me).clone(), None)).collect();
        concerned.extend(going.specs.into_iter().map(|(id, spec)| (id, Some(spec))));
        for (id, spec) in concerned {
            let cob = self.names.cob(&id);
            if let Some(spec) = &spec {
                self.note_dependencies(cob, spec);
            }
            if self.slot(cob).is_some() {
                self.with(cob, now, |o, cx| {
                    o.stopped = None;
                    if back {
                        o.forget_what_is_left(cx);
                    }
                    if let Activity::Acting(action) = &mut o.activity {
                        action.next_spec = spec.or(action.next_spec.take()).or_else(|| Some(o.spec.clone()));
                    } else if let Some(spec) = spec {
                        o.adopt(cx, spec);
                    } else {
                        o.renew();
                    }
                });
            } else if let Some(spec) = spec {
                self.insert(Object::new(cob, spec, now));
            }
        }
        self.facts_changed = true;
        self.raised.clear();
        self.out.record(Body::Activated(going.target.generation));
        self.note_activation(before);
    }

    /// A switch is abandoned before its end: its new change objects count as departed. Hosts that have gone further may
    /// wait for their departure in their rollback.
    fn never_came(&mut self, left: &PendingSwitch) {
        for (id, spec) in &left.specs {
            let cob = self.names.cob(id);
            if self.slot(cob).is_none() && !self.gone.contains_key(&cob) {
                let state = spec.kind.id(spec.kind.pre_remove);
                self.gone.insert(cob, state);
                let state = self.names.state_name(state).clone();
                self.out.record(Body::Gone { cob: id.clone(), state, kept_from: None });
                self.deliver_early(cob);
            }
        }
    }

    /// Removes a departed change object and releases its locks.
    fn let_go(&mut self, cob: CobRef, now: Time) {
        let Some(object) = self.remove(cob) else { return };
        let state = object.spec.kind.id(object.home());
        self.give_all_back(&object);
        // Local askers send a request only once: redirect it to the present answerer.
        let waiting = object.requests.iter().filter(|r| r.is_open() && self.names.host_of(r.asker) == self.here);
        let waiting: Vec<Mail> = waiting.map(|r| r.said_to(cob)).collect();
        self.left.put(cob, object.requests.into_iter().map(|request| *request));
        self.repeat_for_left(now);
        // Askers that wait for another state, or that asked before, get the answer for departed change objects.
        self.gone.insert(cob, state);
        let off = object.spec.kind.id(object.spec.kind.pre_remove);
        let kept_from = Some(off).filter(|off| *off != state);
        if let Some(off) = kept_from {
            self.kept_from.insert(cob, off);
        }
        let name = |state: StateId| self.names.state_name(state).clone();
        let (state, kept_from) = (name(state), kept_from.map(name));
        self.out.record(Body::Gone { cob: self.names.cob_id(cob).clone(), state, kept_from });
        self.out.mail.extend(waiting);
    }

    /// Reserves room for exactly the change objects of a first generation.
    pub(crate) fn make_room(&mut self, count: usize) {
        if self.slots.is_empty() {
            self.slots.reserve_exact(count);
        }
        self.names.make_room(count);
    }

    /// All change objects of a bundle, as found after a restart.
    pub(crate) fn specs_of(&mut self, active: &ActiveBundle) -> Vec<(CobRef, Arc<Spec>)> {
        let mut compiler = Compiler::new(active.bundle.kinds(), &active.in_process);
        let mut specs = Vec::with_capacity(active.bundle.len());
        self.names.make_room(active.bundle.len());
        for (id, cob) in active.bundle.iter() {
            if let Some(spec) = compiler.spec(&cob, &mut self.names) {
                specs.push((self.names.cob(id), spec));
            }
        }
        specs
    }

    pub(crate) fn note_dependencies(&mut self, cob: CobRef, spec: &Spec) {
        let here = self.here;
        let hosts: BTreeSet<_> = spec.depended_on().map(|c| self.names.host_of(c)).collect();
        for host in hosts.into_iter().filter(|h| *h != here) {
            self.peer(host).dependents.insert(cob);
        }
    }
}

/// The new kind cannot continue from the state of the old: the change object departs as the old and comes as the new.
/// The switch order says so, but some switches have no order, for example from the midst of a rollback; the checks of
/// the new kind would leave the old object behind.
fn is_something_else(difference: &Difference, before: &AnyBundle, after: &AnyBundle) -> bool {
    let (Some(was), Some(now)) = (&difference.before, &difference.now) else { return false };
    let kinds = (before.kinds().get(&was.kind), after.kinds().get(&now.kind));
    let goes_on = matches!(kinds, (Some(was), Some(now)) if now.continues(was));
    was.fingerprint != now.fingerprint && !was.leaves_as_it_is() && !goes_on
}

impl ActiveBundle {
    /// Whether its backends run where the target's do: inside or outside the daemon.
    fn runs_as(&self, target: &Self) -> bool {
        let alike = |backend: &String| self.in_process.contains(backend) == target.in_process.contains(backend);
        self.bundle.kinds().values().all(|kind| alike(&kind.backend))
    }
}

impl BundleDiff {
    fn add(&mut self, id: &CobId, spec: Option<Arc<Spec>>) {
        self.specs.extend(spec.map(|spec| (id.clone(), spec)));
    }
}

#[cfg(test)]
mod tests {
    use cob_types::{Bundle, CobId, StateName};

    use crate::event::Event;
    use crate::testing::{Bench, bundle, free};

    use super::*;

    const X: &str = "h/x: 0 1, is 1, prefers 1";
    const Y: &str = "h/y: 0 1, is 1, prefers 1";

    fn go(generation: u64, cobs: &[&str]) -> Event {
        let bundle = Arc::new(bundle(cobs));
        Event::Switch {
            rollback: false,
            generation: GenerationNumber(generation),
            bundle: bundle.into(),
            in_process: Vec::new(),
            order: free(generation),
        }
    }

    fn back(generation: u64, cobs: &[&str]) -> Event {
        let bundle = Arc::new(bundle(cobs));
        Event::Switch {
            rollback: true,
            generation: GenerationNumber(generation),
            bundle: bundle.into(),
            in_process: Vec::new(),
            order: free(generation),
        }
    }

    fn stands(bench: &Bench) -> (u64, Option<u64>) {
        (bench.engine.generation().0, bench.engine.going_to().map(|g| g.0))
    }

    #[test]
    fn an_older_generation_is_gone_to_by_the_way_back_alone() {
        let mut b = Bench::new(&[X, Y]);
        b.event(go(2, &[X]));
        b.ended("h/y", true);
        assert_eq!(stands(&b), (2, None));
        assert_eq!(b.event(go(1, &[X, Y])), [""; 0]);
        assert_eq!(stands(&b), (2, None));
        let told = b.event(back(1, &[X, Y]));
        assert!(told.contains(&"check h/y".to_owned()), "{told:?}");
        assert_eq!(stands(&b), (1, None));
        b.event(go(3, &[X]));
        assert_eq!(stands(&b), (1, Some(3)));
    }

    #[test]
    fn on_the_way_back_from_the_midst_of_a_switch_what_was_leaving_stays() {
        let mut b = Bench::new(&[X, Y]);
        let told = b.event(go(2, &[X]));
        assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
        assert_eq!(stands(&b), (1, Some(2)));
        b.event(back(1, &[X, Y]));
        assert_eq!(stands(&b), (1, None));
        let told = b.ended("h/y", true);
        assert!(told.contains(&"act h/y 0 -> 1, attempt 1".to_owned()), "{told:?}");
        b.ended("h/y", true);
        assert!(b.engine.is_converged());
    }

    #[test]
    fn what_was_asked_for_in_what_is_left_is_not_tried_once_more_on_the_way_back() {
        const B: &str = "h/b: 0 1";
        let given_up_in_two = |request: &str| {
            let mut b = Bench::new(&[B]);
            b.meet("a");
            b.event(go(2, &[B]));
            b.hears(request);
            b.ended("h/b", false);
            b.found("h/b", "0");
            assert!(!b.engine.is_converged(), "its last attempt has failed");
            b
        };
        let acts = "act h/b 0 -> 1, attempt 1";
        let asks = "request a/a of h/b@1 #1.7 in 2";
        let mut b = given_up_in_two(asks);
        let told = b.event(back(1, &[B]));
        assert!(b.engine.is_converged() && !told.contains(&acts.to_owned()), "{told:?}");
        // An asker that is still there asks again.
        assert_eq!(b.hears(asks), ["write: h/b begins 0 -> 1", acts]);
        // A request of an older generation is tried again.
        let told = given_up_in_two("request a/a of h/b@1 #1.7").event(back(1, &[B]));
        assert!(told.contains(&acts.to_owned()), "{told:?}");
    }

    #[test]
    fn what_is_on_record_before_an_activation_is_of_the_generation_before() {
        let mut b = Bench::new(&[X]);
        let effects = b.engine.handle(go(2, &[X, Y]), b.now);
        let told: Vec<_> = effects.persist.iter().map(|r| (r.generation.0, format!("{:?}", r.body))).collect();
        let at = |what: &str| told.iter().find(|(_, body)| body.starts_with(what)).map(|(generation, _)| *generation);
        assert_eq!((at("Go("), at("Activated(")), (Some(1), Some(2)), "{told:?}");
    }

    #[test]
    fn the_room_of_what_has_left_is_used_again() {
        let mut b = Bench::new(&[X, Y]);
        for generation in (2..8).step_by(2) {
            b.event(go(generation, &[X]));
            b.ended("h/y", true);
            b.event(go(generation + 1, &[X, Y]));
            b.found("h/y", "0");
            b.ended("h/y", true);
            assert!(b.engine.is_converged());
        }
        assert_eq!((stands(&b), b.engine.slots.len()), ((7, None), 2));
    }

    fn restless(bench: &Bench) -> (Vec<String>, usize) {
        let told = bench.engine.status_of_restless(bench.now, usize::MAX);
        (told.cobs.into_iter().map(|c| c.id.to_string()).collect(), told.at_rest)
    }

    #[test]
    fn a_switch_concerns_what_differs_and_what_is_not_at_rest() {
        let asking = "h/z: 0 1, is 0, prefers 1, hop 0 1 <- d/d@1";
        let mut b = Bench::new(&[X, Y, asking]);
        assert_eq!(restless(&b), (vec!["h/z".to_owned()], 2));
        let other = "h/y: 0 1, is 1, prefers 0";
        let told = b.event(go(2, &[X, other, asking]));
        let ends =
            ["write: Go(GenerationNumber(2))", "write: Activated(GenerationNumber(2))", "write: h/y begins 1 -> 0"];
        assert_eq!(told[..3], ends, "{told:?}");
        assert_eq!(restless(&b), (vec!["h/y".to_owned(), "h/z".to_owned()], 1));
        b.ended("h/y", true);
        assert_eq!(restless(&b), (vec!["h/z".to_owned()], 2));
        // The same again: its request is of a new generation, and no other change object sends a message.
        let told = b.event(go(3, &[X, other, asking]));
        assert!(told[2..].iter().all(|line| line.contains("h/z")), "{told:?}");
    }

    #[test]
    fn of_a_promise_of_one_that_is_where_it_should_be_nobody_who_waits_is_told() {
        let mut b = Bench::new(&[X, Y]);
        b.hears("request a/a of h/x@1 #1.7");
        assert!(b.engine.restless().any(|o| !o.requests.is_empty()));
        assert_eq!(restless(&b), (vec![], 2));
        // The request leads it away from its preferred state.
        b.hears("request a/b of h/y@0 #1.8");
        assert_eq!(restless(&b), (vec!["h/y".to_owned()], 1));
    }

    #[test]
    fn of_those_that_only_wait_no_more_are_listed_than_were_asked_for() {
        let asking = |name: &str| format!("h/{name}: 0 1, is 0, prefers 1, hop 0 1 <- d/d@1");
        let (a, c, d) = (asking("a"), asking("c"), asking("d"));
        let moving = "h/b: 0 1, is 0, prefers 1";
        let b = Bench::new(&[&a, moving, &c, &d, X]);
        let told = |most| {
            let told = b.engine.status_of_restless(b.now, most);
            let cobs: Vec<_> = told.cobs.iter().map(|c| c.id.name().to_owned()).collect();
            (cobs.join(" "), told.waiting, told.at_rest)
        };
        assert_eq!(told(usize::MAX), ("a b c d".to_owned(), 0, 1));
        assert_eq!(told(2), ("a b c".to_owned(), 1, 1));
        assert_eq!(told(0), ("b".to_owned(), 3, 1));
    }

    #[test]
    fn of_those_whose_first_check_has_not_ended_no_more_are_listed_than_were_asked_for() {
        let [w, x, y, z] = ["w", "x", "y", "z"].map(|name| format!("h/{name}: 0 1, is 1, prefers 1"));
        let mut b = Bench::new(&[&w]);
        b.event(go(2, &[&w, &x, &y, &z]));
        let told = |b: &Bench, most| {
            let told = b.engine.status_of_restless(b.now, most);
            let cobs: Vec<_> = told.cobs.iter().map(|c| c.id.name().to_owned()).collect();
            (cobs.join(" "), told.waiting, told.at_rest)
        };
        assert_eq!(told(&b, usize::MAX), ("x y z".to_owned(), 0, 1));
        assert_eq!(told(&b, 1), ("x".to_owned(), 2, 1));
        b.found("h/y", "1");
        assert_eq!(told(&b, 1), ("x".to_owned(), 1, 2));
        // A change object with more to report is always listed.
        for _ in 0..3 {
            b.event(Event::CheckWanted(cob("h/z")));
            b.not_told("h/z");
        }
        assert_eq!(told(&b, 0), ("z".to_owned(), 1, 2));
    }

    /// Change objects that an activation skips have started anew all the same.
    #[test]
    fn what_was_counted_before_an_activation_counts_no_more() {
        let mut b = Bench::new(&[X, Y]);
        for generation in 2..6 {
            for _ in 0..7 {
                b.event(Event::CheckWanted(cob("h/y")));
                let told = b.found("h/y", "0");
                assert!(told.contains(&"act h/y 0 -> 1, attempt 1".to_owned()), "it does not rest: {told:?}");
                b.ended("h/y", true);
            }
            assert_eq!(restless(&b), (vec![], 2));
            b.event(go(generation, &[X, Y]));
        }
        // Without an activation in between it would.
        let rests = |b: &mut Bench| {
            b.event(Event::CheckWanted(cob("h/y")));
            let told = b.found("h/y", "0");
            b.ended("h/y", true);
            !told.contains(&"act h/y 0 -> 1, attempt 1".to_owned())
        };
        assert!((0..9).any(|_| rests(&mut b)));
        assert_eq!(restless(&b), (vec!["h/y".to_owned()], 1), "its status has changed");
    }

    #[test]
    fn what_becomes_something_else_leaves_first_though_no_order_says_so() {
        let of_another_kind = || {
            let mut other = bundle(&[X, Y]);
            let mut kind = other.kinds.remove("h.y").expect("its kind");
            (kind.name, kind.backend) = ("other".parse().expect("a name"), "elsewhere".to_owned());
            let y = Arc::make_mut(other.cobs.get_mut("h/y").expect("there"));
            (y.kind, y.fingerprint) = (kind.name.clone(), cob_types::cob::Fingerprint([8; 16]));
            other.kinds.insert(kind.name.clone(), kind);
            Arc::new(other)
        };
        for in_process in [vec![], vec!["elsewhere".to_owned()]] {
            let mut b = Bench::new(&[X, Y]);
            let go = |bundle: Arc<Bundle>| {
                let (generation, bundle, in_process) = (GenerationNumber(2), bundle.into(), in_process.clone());
                Event::Switch { rollback: false, generation, bundle, in_process, order: free(2) }
            };
            let told = b.event(go(of_another_kind()));
            assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
            assert_eq!(stands(&b), (1, Some(2)));
            let told = b.ended("h/y", true);
            assert!(told.contains(&"check h/y".to_owned()), "{told:?}");
            assert_eq!(stands(&b), (2, None));
            // A kept change object stays.
            let mut b = Bench::new(&[X, KEPT]);
            b.event(go(of_another_kind()));
            assert_eq!(stands(&b), (2, None));
        }
    }

    #[test]
    fn what_runs_in_another_way_is_another() {
        let mut b = Bench::new(&[X, Y]);
        let bundle = Arc::new(bundle(&[X]));
        let go = Event::Switch {
            rollback: false,
            generation: GenerationNumber(2),
            bundle: bundle.into(),
            in_process: vec!["command".to_owned()],
            order: free(2),
        };
        b.event(go);
        let told = b.ended("h/y", true);
        assert_eq!(stands(&b), (2, None), "{told:?}");
        b.event(Event::CheckWanted(cob("h/x")));
        let told = b.found("h/x", "0");
        assert!(told.contains(&"act h/x 0 -> 1, attempt 1".to_owned()), "{told:?}");
    }

    const KEPT: &str = "h/y: 0 1, is 1, prefers 1, kept";

    #[test]
    fn what_is_kept_leaves_as_it_is_and_counts_as_locked_in_that_state() {
        let mut b = Bench::new(&[X, KEPT]);
        let told = b.event(go(2, &[X]));
        let ends = [
            "write: Go(GenerationNumber(2))".to_owned(),
            format!("write: {:?}", Body::Gone { cob: cob("h/y"), state: state("1"), kept_from: Some(state("0")) }),
            "write: Activated(GenerationNumber(2))".to_owned(),
        ];
        assert_eq!(told, ends);
        let granted = ["write: h/y@1 granted to a/a #1.7", "a: grant h/y@1 to a/a #1.7 rev 0"];
        assert_eq!(b.hears("request a/a of h/y@1 #1.7"), granted);
        assert_eq!(b.hears("request a/a of h/y@1 #1.7"), granted[1..], "it stands");
        assert_eq!(b.hears("request a/c of h/y@0 #1.8"), [""; 0], "no request moves it any more");
    }

    #[test]
    fn what_is_kept_wants_its_promises_back_first() {
        let mut b = Bench::new(&[X, KEPT]);
        b.hears("request a/a of h/y@1 #1.7");
        let told = b.event(go(2, &[X]));
        assert_eq!(
            told,
            ["write: Go(GenerationNumber(2))", "note: h/y wants it back from a/a", "a: recall a/a of h/y #1.7"]
        );
        assert_eq!(stands(&b), (1, Some(2)));
        // The request under a new number is the release too: it waits for the next generation.
        assert_eq!(
            b.hears("request a/a of h/y@1 #1.9"),
            [
                "write: h/y back from a/a #1.7".to_owned(),
                format!("write: {:?}", Body::Gone { cob: cob("h/y"), state: state("1"), kept_from: Some(state("0")) }),
                "write: Activated(GenerationNumber(2))".to_owned(),
            ]
        );
        let granted = ["write: h/y@1 granted to a/a #1.9", "a: grant h/y@1 to a/a #1.9 rev 0"];
        assert_eq!(b.hears("request a/a of h/y@1 #1.9"), granted);
    }

    /// It may require a server that departs beside it: it does not delay that departure, and is not undone for it.
    #[test]
    fn what_is_kept_is_as_good_as_off_for_who_leaves_beside_it() {
        let server = "h/y: 0 1, is 1, prefers 1, hop 1 0 <- h/z@0";
        let mut b = Bench::new(&[X, server, "h/z: 0 1, is 1, prefers 1, kept"]);
        let told = b.event(go(2, &[X]));
        let act = |told: &[String]| told.iter().filter(|t| t.starts_with("act ")).cloned().collect::<Vec<_>>();
        assert_eq!(act(&told), ["act h/y 1 -> 0, attempt 1"], "{told:?}");
        // The grant stays valid as long as the other change object acts, also over a restart.
        assert_eq!(stands(&b), (1, Some(2)));
        let told = b.ended("h/y", true);
        let gone = Body::Gone { cob: cob("h/z"), state: state("1"), kept_from: Some(state("0")) };
        assert!(told.contains(&format!("write: {gone:?}")), "{told:?}");
        assert_eq!((act(&told).len(), stands(&b)), (0, (2, None)));
    }

    #[test]
    fn what_gave_up_begins_anew_with_the_next_generation_and_has_not_given_up_after_a_restart() {
        const B: &str = "h/b: 0 1";
        let failed = |b: &Bench| b.engine.status_of(&cob("h/b"), b.now).expect("it is there").failed;
        let acts = |told: &[String]| told.iter().any(|t| t.starts_with("act h/b 0 -> 1"));
        let mut b = Bench::new(&[B]);
        b.meet("a");
        b.hears("request a/a of h/b@1 #1.7");
        b.ended("h/b", false);
        b.found("h/b", "0");
        assert!(failed(&b));
        assert!(acts(&b.event(go(2, &[B]))), "tried once more");
        b.returns();
        assert!(!failed(&b));
        // The same for an action that ends after the next activation.
        b.event(go(3, &[B]));
        assert_eq!(stands(&b), (3, None));
        b.ended("h/b", false);
        assert!(!failed(&b), "that was of the generation before");
        b.found("h/b", "0");
        b.returns();
        assert!(!failed(&b));
    }

    #[test]
    fn what_gave_up_to_leave_is_tried_again_by_the_next_generation() {
        let mut b = Bench::new(&[X, Y]);
        let acts = |told: &[String]| told.iter().any(|t| t.starts_with("act h/y 1 -> 0"));
        assert!(acts(&b.event(go(2, &[X]))));
        b.ended("h/y", false);
        b.found("h/y", "1");
        assert!(b.engine.status_of(&cob("h/y"), b.now).expect("it is there").failed);
        assert!(acts(&b.event(go(3, &[X]))), "it has not left yet");
        b.ended("h/y", true);
        assert_eq!(stands(&b), (3, None));
    }

    /// Seed 21239 of the systems with partial departures: an action went on under a grant of h/z while h/y went down.
    #[test]
    fn what_is_kept_gives_back_what_its_promises_rest_on_only_when_they_are_back() {
        let server = "h/y: 0 1, is 1, prefers 1, hop 1 0 <- h/z@0";
        let mut b = Bench::new(&[X, server, "h/z: 0 1, is 1, prefers 1, kept, lock 1 <- h/y@1"]);
        b.hears("request a/a of h/z@1 #1.7");
        let act = |told: &[String]| told.iter().any(|t| t.starts_with("act "));
        let told = b.event(go(2, &[X]));
        assert!(told.contains(&"a: recall a/a of h/z #1.7".to_owned()) && !act(&told), "{told:?}");
        assert!(act(&b.hears("release a/a of h/z #1.7")));
    }

    #[test]
    fn what_is_kept_moves_where_others_can_not_leave_otherwise() {
        let mount = "h/y: 0 1, is 1, prefers 1, hop 1 0 <- h/z@2";
        let mut b = Bench::new(&[X, mount, "h/z: 0 1 2, is 1, prefers 1, kept"]);
        let told = b.event(go(2, &[X]));
        assert!(told.contains(&"act h/z 1 -> 2, attempt 1".to_owned()), "{told:?}");
        let told = b.ended("h/z", true);
        assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
        let told = b.ended("h/y", true);
        let gone = Body::Gone { cob: cob("h/z"), state: state("2"), kept_from: Some(state("0")) };
        assert!(told.contains(&format!("write: {gone:?}")), "it stays where it helped: {told:?}");
        assert_eq!(stands(&b), (2, None));
    }

    #[test]
    fn what_is_kept_leaves_only_when_its_state_is_known() {
        let mut b = Bench::new(&[X, KEPT]);
        b.event(Event::CheckWanted(cob("h/y")));
        b.event(go(2, &[X]));
        assert_eq!(stands(&b), (1, Some(2)));
        let told = b.found("h/y", "0");
        let gone = format!("write: {:?}", Body::Gone { cob: cob("h/y"), state: state("0"), kept_from: None });
        assert!(told.contains(&gone), "{told:?}");
        assert_eq!(stands(&b), (2, None));
    }

    fn cob(text: &str) -> CobId {
        CobId::new(text).expect("a name")
    }

    fn state(text: &str) -> StateName {
        StateName::new(text).expect("a state")
    }
}
