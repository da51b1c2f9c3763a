//! The forecast of a switch: engines on virtual time, with given durations of actions and checks.
//!
//! No message is lost, no daemon dies, no action fails. All change objects begin in the preferred states of the first
//! generation; at time zero every host gets the order, and the run ends when all have converged. Every action is stored
//! with the step whose end it waited for last: that step ended, its daemon sent messages, and the tick that received a
//! message started the action. The path back from the last end is the critical path.
//!
//! It has no checks, comparisons or records, unlike [`World`](super::World), so that it can forecast ten thousand
//! hosts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::status::{Stopped, Trouble, Wait};
use cob_types::{
    Batch, Bundle, Cob, CobId, GenerationNumber, HostName, Incarnation, Item, Kind, Number, Packed, StateName,
    SwitchOrder,
};

use crate::effect::{Effects, Run};
use crate::engine::Engine;
use crate::event::{ActionOutcome, CheckOutcome, Event, Order};
use crate::sim::daemon::batches;
use crate::sim::queue::Queue;
use crate::time::{Span, Time};

/// When the switch is ordered.
const START: Time = Time(1_000_000_000);
/// After this time with only timer events, a run will not become idle.
const QUIET: Span = Span::secs(3600);
/// More events per change object than any converging switch takes.
const EVENTS_A_COB: u64 = 400;

/// Durations.
pub trait Pace {
    /// Of an action.
    fn action(&mut self, cob: &CobId, from: &StateName, to: &StateName) -> Span;
    /// Of a check.
    fn check(&mut self, cob: &CobId) -> Span;
    /// Of a message between two hosts, and the write before it.
    fn message(&mut self) -> Span;
}

/// A switch to forecast.
#[derive(Debug, Clone)]
pub struct PlannedSwitch {
    /// Its order; also says from which generation to which.
    pub order: Arc<SwitchOrder>,
    /// The bundles of the active generation. Empty if none is active.
    pub from: BTreeMap<HostName, Arc<Bundle>>,
    /// The bundles of the target generation. A host without a bundle loses all its change objects.
    pub to: BTreeMap<HostName, Arc<Bundle>>,
    /// Change objects that are not in their preferred states of the active generation, or, if new, not in their
    /// pre-remove states.
    pub states: BTreeMap<CobId, StateName>,
    /// Change objects that an operator stops right after the switch has started.
    pub stops: BTreeMap<CobId, Stopped>,
}

/// The content of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobKind {
    /// A check of the state.
    Check {
        /// As its host names it; `None` before the check has ended.
        found: Option<StateName>,
    },
    /// A transition.
    Action {
        /// The state before the transition.
        from: StateName,
        /// The state after the transition.
        to: StateName,
    },
}

/// A check or an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// A check or an action.
    pub job: JobKind,
    /// The change object.
    pub cob: CobId,
    /// The active generation of its host at the beginning.
    pub generation: GenerationNumber,
    /// Since the order.
    pub begin: Span,
    /// Since the order.
    pub end: Span,
    /// The step whose end it waited for last; `None`: it waited only for the order.
    pub cause: Option<usize>,
    /// It began because of a deadline, not because of a message or an end.
    pub rested: bool,
}

/// A host that has activated the generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// The host.
    pub host: HostName,
    /// Since the order.
    pub at: Span,
    /// The step whose end it waited for last; `None`: it waited only for the order.
    pub cause: Option<usize>,
}

/// The course of a switch.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// All checks and actions after the order, by their beginnings.
    pub steps: Vec<Step>,
    /// By their times.
    pub activations: Vec<Activation>,
    /// When the last step ended, since the order.
    pub end: Span,
    /// Every host has converged in the generation.
    pub converged: bool,
    /// Events handled.
    pub events: u64,
    /// Messages between hosts.
    pub messages: u64,
    /// The waits at the end of a run that has not converged.
    pub waits: Vec<(CobId, Wait)>,
    /// The trouble reported there.
    pub troubles: Vec<(CobId, Trouble)>,
    /// Hosts that are not part of the given switch, to which messages were sent.
    pub strangers: BTreeSet<HostName>,
}

/// The step that caused an event.
type Cause = Option<usize>;

enum Happens {
    Received { to: usize, batch: Batch, cause: Cause },
    Checked { host: usize, cob: CobId, job: Number, step: Cause },
    Acted { host: usize, job: Number, step: usize },
    Tick { host: usize },
}

/// The real state of a change object.
struct Place {
    state: StateName,
    /// The content that its state was made with; `None`: not made by COB.
    content: Option<Fingerprint>,
}

struct Host {
    name: HostName,
    engine: Engine,
    before: Option<Arc<Bundle>>,
    after: Arc<Bundle>,
    /// Before the switch, a change object of the host is not in its desired state: it has failed, or waits. It is not
    /// tried again before the order.
    displaced: bool,
    tick: Time,
    converged: bool,
    /// The step that last ended here.
    last: Cause,
}

struct Running<'a, P> {
    pace: &'a mut P,
    now: Time,
    /// The switch was ordered.
    gone: bool,
    hosts: Vec<Host>,
    /// Looked up, never iterated.
    host_ix: HashMap<HostName, usize>,
    /// Looked up, never iterated.
    places: HashMap<CobId, Place>,
    queue: Queue<Happens>,
    /// Entries of the queue that are no deadlines.
    under_way: usize,
    unsettled: usize,
    to: GenerationNumber,
    course: Course,
}

/// Runs a switch to its end.
pub fn course(switch: &PlannedSwitch, pace: &mut impl Pace) -> Course {
    let mut run = Running {
        pace,
        now: START,
        gone: false,
        hosts: Vec::new(),
        host_ix: HashMap::new(),
        places: HashMap::new(),
        queue: Queue::new(),
        under_way: 0,
        unsettled: 0,
        to: switch.order.to,
        course: Course::default(),
    };
    run.settle_in(switch);
    run.go(switch);
    run.run();
    run.conclude()
}

/// A change object with its kind.
fn in_bundle<'b>(bundle: &'b Bundle, id: &CobId) -> Option<(&'b Cob, &'b Kind)> {
    let cob = bundle.cobs.get(id)?;
    Some((cob, bundle.kinds.get(&cob.kind)?))
}

/// Whether some of these are not in their preferred states.
fn displaced(bundle: &Bundle, states: &BTreeMap<CobId, StateName>) -> bool {
    !states.is_empty()
        && bundle.cobs.iter().any(|(id, cob)| states.get(id).is_some_and(|state| *state != cob.preferred))
}

impl<P: Pace> Running<'_, P> {
    /// Every host with its change objects in their initial states.
    fn settle_in(&mut self, switch: &PlannedSwitch) {
        let names: BTreeSet<&HostName> = switch.from.keys().chain(switch.to.keys()).collect();
        for (id, name) in names.into_iter().enumerate() {
            let before = switch.from.get(name).cloned();
            let after = switch.to.get(name).cloned().unwrap_or_else(|| Arc::new(Bundle::empty(name.clone())));
            self.place(before.as_deref(), &after, &switch.states);
            let mut engine = Engine::new(name, Incarnation { id: id as u64, start: 1 });
            engine.trust_askers();
            self.host_ix.insert(name.clone(), self.hosts.len());
            let name = name.clone();
            let displaced = before.as_deref().is_some_and(|before| displaced(before, &switch.states));
            let (tick, converged, last) = (Time::NEVER, false, None);
            self.hosts.push(Host { name, engine, before, after, displaced, tick, converged, last });
        }
        if switch.order.from == GenerationNumber(0) {
            return;
        }
        let free = Arc::new(SwitchOrder::free(GenerationNumber(0), switch.order.from));
        for host in 0..self.hosts.len() {
            let Some(bundle) = self.hosts[host].before.clone() else { continue };
            if self.hosts[host].displaced {
                self.event(host, Event::Order(Order::Pause), None, false);
            }
            self.event(host, go(&free, &bundle), None, false);
        }
        while self.queue.peek().is_some_and(|(at, _)| at <= START) {
            self.step();
        }
    }

    fn place(&mut self, before: Option<&Bundle>, after: &Bundle, states: &BTreeMap<CobId, StateName>) {
        for (active, bundle) in before.map(|b| (true, b)).into_iter().chain([(false, after)]) {
            for (id, cob) in &bundle.cobs {
                if self.places.contains_key(id) {
                    continue;
                }
                let Some(kind) = bundle.kinds.get(&cob.kind) else { continue };
                let desired = if active || cob.observe { &cob.preferred } else { &kind.pre_remove };
                let state = states.get(id).filter(|state| kind.has_state(state)).unwrap_or(desired).clone();
                let content = active.then_some(cob.fingerprint);
                self.places.insert(id.clone(), Place { state, content });
            }
        }
    }

    fn go(&mut self, switch: &PlannedSwitch) {
        self.gone = true;
        self.course.activations.clear();
        self.unsettled = self.hosts.len();
        for host in &mut self.hosts {
            host.converged = false;
            host.last = None;
        }
        for host in 0..self.hosts.len() {
            let after = self.hosts[host].after.clone();
            self.event(host, go(&switch.order, &after), None, false);
            if self.hosts[host].displaced {
                self.event(host, Event::Order(Order::Resume), None, false);
            }
        }
        for (id, stopped) in &switch.stops {
            if let Some(host) = self.host_ix.get(id.host_str()).copied() {
                self.event(host, Event::Order(Order::Stop(id.clone(), stopped.clone())), None, false);
            }
        }
    }

    fn run(&mut self) {
        let cobs = self.places.len() as u64;
        let limit = (cobs + 50) * EVENTS_A_COB;
        let mut busy = self.now;
        while self.unsettled > 0 || self.under_way > 0 {
            if self.course.events > limit || self.under_way == 0 && self.now > busy + QUIET {
                return;
            }
            if self.under_way > 0 {
                busy = self.now;
            }
            if !self.step() {
                return;
            }
        }
    }

    /// Performs the next event. Returns false if there is none.
    fn step(&mut self) -> bool {
        let Some((at, what)) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        self.course.events += 1;
        self.under_way -= usize::from(!matches!(what, Happens::Tick { .. }));
        match what {
            Happens::Received { to, batch, cause } => self.event(to, Event::Received(batch), cause, false),
            Happens::Checked { host, cob, job, step } => self.checked(host, cob, job, step),
            Happens::Acted { host, job, step } => self.acted(host, job, step),
            Happens::Tick { host } => {
                if self.hosts[host].tick <= self.now {
                    self.hosts[host].tick = Time::NEVER;
                }
                let cause = self.hosts[host].last;
                self.event(host, Event::Tick, cause, true);
            }
        }
        true
    }

    fn checked(&mut self, host: usize, cob: CobId, job: Number, step: Cause) {
        let state = self.judged(host, &cob);
        if let Some(step) = step {
            self.course.steps[step].job = JobKind::Check { found: state.clone() };
        }
        let found = match state {
            Some(state) => CheckOutcome::Found { state, values: Values::new(), detail: String::new(), fresh: false },
            None => CheckOutcome::Failed("it is not here".to_owned()),
        };
        self.hosts[host].last = step;
        self.event(host, Event::CheckEnded { cob, job, found }, step, false);
    }

    /// The state as its own host names it: `outdated` if it was made with other content than the active content.
    fn judged(&self, host: usize, id: &CobId) -> Option<StateName> {
        let Place { state, content } = self.places.get(id)?;
        let host = &self.hosts[host];
        let (bundle, before) = match host.engine.generation() == self.to {
            true => (Some(&*host.after), host.before.as_deref()),
            false => (host.before.as_deref(), None),
        };
        let otherwise = || {
            let (cob, kind) = in_bundle(bundle?, id)?;
            let was =
                before.and_then(|before| in_bundle(before, id)).filter(|(was, _)| Some(was.fingerprint) == *content);
            if was.is_some_and(|(_, was)| !kind.continues(was)) {
                // It has departed as its old kind.
                return Some(kind.pre_remove.clone());
            }
            // Changed dependencies are noticed only in its preferred state.
            let rests_anew = was.is_some_and(|(was, old)| {
                old == kind && was.content == cob.content && was.files == cob.files && *state != cob.preferred
            });
            let old = content.is_some_and(|content| content != cob.fingerprint) && *state != kind.pre_remove;
            kind.outdated().filter(|_| old && !rests_anew).cloned()
        };
        Some(otherwise().unwrap_or_else(|| state.clone()))
    }

    fn acted(&mut self, host: usize, job: Number, step: usize) {
        let Step { job: JobKind::Action { to, .. }, cob, generation: began, .. } = self.course.steps[step].clone()
        else {
            return;
        };
        let Host { before, after, .. } = &self.hosts[host];
        // An action that runs during the activation ends by the generation in which it began.
        let bundle = if began == self.to { Some(after) } else { before.as_ref() };
        let content = bundle.and_then(|b| b.cobs.get(&cob)).map(|cob| cob.fingerprint);
        self.places.insert(cob.clone(), Place { state: to, content });
        self.hosts[host].last = Some(step);
        let outcome = ActionOutcome::Done { values: Values::new() };
        self.event(host, Event::ActionEnded { cob, job, outcome, span: (0, 0) }, Some(step), false);
    }

    /// A tick of a daemon.
    fn event(&mut self, host: usize, event: Event, cause: Cause, rested: bool) {
        let Effects { send, run_first, run, activated, .. } = self.hosts[host].engine.handle(event, self.now);
        if activated && self.gone {
            let (host, at) = (self.hosts[host].name.clone(), self.since());
            self.course.activations.push(Activation { host, at, cause });
        }
        self.send(host, send, cause);
        for run in run_first.into_iter().chain(run) {
            self.start(host, run, cause, rested);
        }
        if let Some(at) = self.hosts[host].engine.next_wakeup().map(|at| at.max(self.now))
            && at < self.hosts[host].tick
        {
            self.hosts[host].tick = at;
            self.push(at, Happens::Tick { host });
        }
        self.note_rest(host);
    }

    fn note_rest(&mut self, host: usize) {
        let Host { engine, converged, .. } = &mut self.hosts[host];
        let has_converged = engine.is_converged() && engine.generation() == self.to;
        if self.gone && has_converged != *converged {
            if has_converged {
                self.unsettled -= 1;
            } else {
                self.unsettled += 1;
            }
            *converged = has_converged;
        }
    }

    fn send(&mut self, host: usize, send: Vec<(HostName, Item)>, cause: Cause) {
        self.course.messages += send.len() as u64;
        let strangers = send.iter().map(|(to, _)| to).filter(|to| !self.host_ix.contains_key(*to));
        self.course.strangers.extend(strangers.cloned());
        let Host { name, engine, .. } = &self.hosts[host];
        for (to, batch) in batches(name, engine, send, |to| self.host_ix.get(to).copied()) {
            // Before the order messages take no time. The same pace for all keeps the order of each link.
            let at = if self.gone { self.now + self.pace.message() } else { self.now };
            self.push(at, Happens::Received { to, batch, cause });
        }
    }

    fn start(&mut self, host: usize, run: Run, cause: Cause, rested: bool) {
        let step = self.course.steps.len();
        let (job, cob, lasts, happens) = match run {
            Run::Check { cob, job } if !self.gone => {
                return self.push(self.now, Happens::Checked { host, cob, job, step: None });
            }
            Run::Check { cob, job } => {
                let (lasts, whose) = (self.pace.check(&cob), cob.clone());
                let happens = Happens::Checked { host, cob: whose, job, step: Some(step) };
                (JobKind::Check { found: None }, cob, lasts, happens)
            }
            Run::Action { cob, job, from, to, .. } => {
                let lasts = self.pace.action(&cob, &from, &to);
                (JobKind::Action { from, to }, cob, lasts, Happens::Acted { host, job, step })
            }
        };
        let begin = self.since();
        let end = Span(begin.0.saturating_add(lasts.0));
        let generation = self.hosts[host].engine.generation();
        self.course.steps.push(Step { job, cob, generation, begin, end, cause, rested });
        self.push(self.now + lasts, happens);
    }

    fn since(&self) -> Span {
        Span(self.now.0.saturating_sub(START.0))
    }

    fn push(&mut self, at: Time, what: Happens) {
        self.under_way += usize::from(!matches!(what, Happens::Tick { .. }));
        self.queue.push(at, what);
    }

    fn conclude(mut self) -> Course {
        let course = &mut self.course;
        course.converged = self.unsettled == 0 && self.under_way == 0;
        course.end = course.steps.iter().map(|step| step.end).max().unwrap_or_default();
        let activated = course.activations.iter().map(|activation| activation.at).max().unwrap_or_default();
        course.end = course.end.max(activated);
        if !course.converged {
            for cob in self.hosts.iter().filter(|h| !h.converged).flat_map(|h| h.engine.status(self.now)) {
                course.troubles.extend(cob.trouble.into_iter().map(|trouble| (cob.id.clone(), trouble)));
                course.waits.extend(cob.waits_for.into_iter().map(|wait| (cob.id.clone(), wait)));
            }
        }
        self.course
    }
}

fn go(order: &Arc<SwitchOrder>, bundle: &Bundle) -> Event {
    let (rollback, order) = (order.to < order.from, order.clone());
    Event::Switch {
        generation: order.to,
        bundle: Arc::new(Packed::decoded(bundle)),
        in_process: Vec::new(),
        order,
        rollback,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bundle_of;

    /// Every action has its own duration, a check takes one millisecond, a message ten microseconds.
    struct Given(BTreeMap<(&'static str, &'static str), u64>);

    impl Pace for Given {
        fn action(&mut self, cob: &CobId, _from: &StateName, to: &StateName) -> Span {
            Span::millis(self.0.get(&(cob.as_str(), to.as_str())).copied().unwrap_or(100))
        }
        fn check(&mut self, _cob: &CobId) -> Span {
            Span::millis(1)
        }
        fn message(&mut self) -> Span {
            Span(10_000)
        }
    }

    fn bundles(hosts: &[&[&str]]) -> BTreeMap<HostName, Arc<Bundle>> {
        let host = |cobs: &&[&str]| cobs[0].split('/').next().expect("HOST/NAME").to_owned();
        hosts.iter().map(|cobs| bundle_of(&host(cobs), cobs)).map(|b| (b.host.clone(), Arc::new(b))).collect()
    }

    fn switch(from: &[&[&str]], to: &[&[&str]]) -> PlannedSwitch {
        let first = GenerationNumber(u64::from(!from.is_empty()));
        let order = Arc::new(SwitchOrder::free(first, GenerationNumber(2)));
        PlannedSwitch { order, from: bundles(from), to: bundles(to), states: BTreeMap::new(), stops: BTreeMap::new() }
    }

    fn told(course: &Course) -> Vec<String> {
        let tell = |step: &Step| {
            let after = step.cause.map(|at| format!(" after {}", course.steps[at].cob)).unwrap_or_default();
            let what = match &step.job {
                JobKind::Check { found } => format!("is {}", found.as_ref().map_or("?", |s| s.as_str())),
                JobKind::Action { from, to } => format!("{from} -> {to}"),
            };
            format!("{}..{} {} {what}{after}", step.begin.0 / 1000, step.end.0 / 1000, step.cob)
        };
        course.steps.iter().map(tell).collect()
    }

    const A: &str = "a/a: 0 1, is 0, prefers 1, transition 0 1 <- b/b@1";
    const B: &str = "b/b: 0 1, is 0, prefers 1";

    #[test]
    fn a_first_start_waits_for_its_needs() {
        let course = course(&switch(&[], &[&[A], &[B]]), &mut Given([(("b/b", "1"), 250)].into()));
        assert!(course.converged, "{:?}", course.waits);
        let expected = [
            "0..1000 a/a is 0",
            "0..1000 b/b is 0",
            "1000..251000 b/b 0 -> 1 after b/b",
            "251010..351010 a/a 0 -> 1 after b/b",
        ];
        assert_eq!(told(&course), expected);
        assert_eq!(course.end, Span(351_010_000));
        assert_eq!(course.activations.len(), 2);
        let again = super::course(&switch(&[], &[&[A], &[B]]), &mut Given([(("b/b", "1"), 250)].into()));
        assert_eq!(told(&again), told(&course), "the same again");
    }

    #[test]
    fn an_unchanged_object_has_no_steps() {
        let same: &[&[&str]] = &[&[A], &[B]];
        let course = course(&switch(same, same), &mut Given(BTreeMap::new()));
        assert!(course.converged && course.steps.is_empty(), "{:?}", told(&course));
    }

    #[test]
    fn an_object_departs_before_its_host_activates() {
        let leaves: &[&[&str]] = &[&["b/b: 0 1, is 1, prefers 1", "b/c: 0 1, is 1, prefers 1"]];
        let stays: &[&[&str]] = &[&["b/b: 0 1, is 1, prefers 1", "b/d: 0 1, is 0, prefers 1"]];
        let course = course(&switch(leaves, stays), &mut Given([(("b/c", "0"), 30)].into()));
        assert!(course.converged);
        let expected = ["0..30000 b/c 1 -> 0", "30000..31000 b/d is 0 after b/c", "31000..131000 b/d 0 -> 1 after b/d"];
        assert_eq!(told(&course), expected);
        assert_eq!(
            course.activations.iter().map(|a| (a.at, a.cause)).collect::<Vec<_>>(),
            [(Span::millis(30), Some(0))]
        );
    }

    #[test]
    fn a_host_waits_for_departures_on_another_host() {
        // b/m departs only while a/k is up, and a/k differs: a waits until b/m has departed.
        let (m, k) = ("b/m: 0 1, is 1, prefers 1, transition 1 0 <- a/k@1", "a/k: 0 1, is 1, prefers 1");
        let mut switch = switch(&[&[k, "a/z: 0 1, is 1, prefers 1"], &[m]], &[&[k, "a/y: 0 1, is 0, prefers 1"]]);
        let mut order = SwitchOrder::free(GenerationNumber(1), GenerationNumber(2));
        let id = |text: &str| CobId::new(text).expect("a name");
        order.waits.insert(id("a/k").host(), [id("b/m")].into());
        switch.order = Arc::new(order);
        let course = course(&switch, &mut Given([(("b/m", "0"), 500)].into()));
        assert!(course.converged, "{:?}", course.waits);
        let begun = course.steps.iter().find(|step| step.cob.as_str() == "a/y").expect("it comes");
        assert!(begun.begin >= Span::millis(500), "{:?}", told(&course));
        let cause = begun.cause.map(|at| course.steps[at].cob.as_str());
        assert_eq!(cause, Some("b/m"), "{:?}", told(&course));
    }

    #[test]
    fn an_object_in_another_state_starts_from_that_state() {
        let mut switch = switch(&[], &[&[A], &[B]]);
        switch.states.insert(CobId::new("b/b").expect("a name"), StateName::new("1").expect("a state"));
        let course = course(&switch, &mut Given(BTreeMap::new()));
        assert!(course.converged);
        assert_eq!(told(&course).len(), 3, "two checks and the transition of the other object: {:?}", told(&course));
    }

    #[test]
    fn an_impossible_switch_ends_with_its_waits() {
        let waits: &[&[&str]] = &[&["a/a: 0 1, is 0, prefers 1, transition 0 1 <- c/c@1"]];
        let course = course(&switch(&[], waits), &mut Given(BTreeMap::new()));
        assert!(!course.converged);
        assert_eq!(course.waits.len(), 1, "{:?}", course.waits);
        assert_eq!(course.strangers.iter().map(HostName::as_str).collect::<Vec<_>>(), ["c"]);
    }
}
