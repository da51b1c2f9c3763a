//! Every run of a small system: each order of deliveries and of ends of checks and actions, with a number of lost
//! batches and killed daemons at every possible place. For a switch between two generations also each order in which
//! the hosts get its order, and the rollback, ordered at any moment.
//!
//! A depth-first search over clones of the engines. It visits states with the same future once ([`cob_engine::canonical`]).
//! Time passes only when no other step is possible (except that a host gets an order), and then a minute at once, so
//! that all repeats at growing intervals happen. In every state the engines' invariants and the safety of the real
//! world are checked. As the states are finitely many and time passes only when no other step is possible, *every* run
//! becomes idle exactly if no run reaches a state again in which a change object is not idle: the search checks this
//! too.
//!
//! Own code rather than a model checker's: the states are the engines themselves, so there is no second model to
//! maintain, and merging states needs their canonical form anyway.

mod cluster;

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cob_engine::Faults;
use cob_engine::canonical::{Form, Places};
use cob_engine::sim::{Bundles, Orders, Scene};
use cob_types::{Bundle, CobId, HostName, StateName, SwitchOrder};

use self::cluster::{Cluster, FIRST, SECOND, Setting, Step, StepKind};

/// The plan of an exploration.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Batches between two hosts may overtake each other.
    pub any_order: bool,
    /// The number of lost batches.
    pub losses: u8,
    /// The number of killed daemons, which restart.
    pub restarts: u8,
    /// The number of failed actions.
    pub failures: u8,
    /// The rollback is ordered at any moment of a switch, or never.
    pub back: bool,
    /// Every run must converge: all change objects reach their preferred states.
    pub must_converge: bool,
    /// The most states.
    pub max_states: usize,
    /// Planted faults.
    pub faults: Faults,
    /// Check, whenever two states have the same form, that they have the same future.
    pub doubt: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            any_order: false,
            losses: 0,
            restarts: 0,
            failures: 0,
            back: false,
            must_converge: true,
            max_states: 100_000,
            faults: Faults::default(),
            doubt: false,
        }
    }
}

/// A switch to explore.
#[derive(Clone, Copy)]
pub struct SwitchPair<'a> {
    /// The second generation. Both generations have a bundle, perhaps an empty one, for every host of either.
    pub second: &'a BTreeMap<HostName, Arc<Bundle>>,
    /// The order of the switch from generation 1 to generation 2.
    pub order: &'a SwitchOrder,
    /// The order of the rollback.
    pub way_back: Option<&'a SwitchOrder>,
    /// The judge of its steps.
    pub judge: &'a dyn Judge,
}

/// Judges the steps of a switch by the real states, independently of the code that makes or follows the order.
pub trait Judge {
    /// A host has switched from the first generation to the second.
    ///
    /// # Errors
    /// Why it may not, in words.
    fn goes_on(&self, host: &HostName, scene: &dyn Scene) -> Result<(), String>;

    /// A change object moves in the forward switch.
    ///
    /// # Errors
    /// Why it may not, in words.
    fn moves(&self, cob: &CobId) -> Result<(), String>;

    /// All hosts are idle in the second generation, or after the rollback in the first.
    ///
    /// # Errors
    /// The deviation from the desired states, in words.
    fn rests(&self, back: bool, scene: &dyn Scene) -> Result<(), String>;
}

/// The result of an exploration.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// States with different futures.
    pub states: usize,
    /// Steps between states.
    pub steps: usize,
    /// The longest run.
    pub longest: usize,
    /// There were more states than allowed.
    pub cut: bool,
    /// An error, and the run that shows it.
    pub wrong: Option<Wrong>,
}

/// A run that shows an error.
#[derive(Debug, Clone)]
pub struct Wrong {
    /// The error.
    pub what: String,
    /// The run, a step a line.
    pub run: Vec<String>,
}

/// Explores every run of a first generation.
#[must_use]
pub fn explore(
    bundles: &BTreeMap<HostName, Arc<Bundle>>,
    initial: &BTreeMap<CobId, StateName>,
    plan: &Plan,
) -> Explored {
    let bundles = bundles.values().map(|bundle| Bundles::from([(FIRST, bundle.clone())])).collect();
    let setting = Setting::new(plan, bundles, Orders::default(), None);
    search(&setting, setting.begin(initial))
}

/// Explores every run of a switch from an idle first generation to a second generation.
#[must_use]
pub fn explore_switch(
    first: &BTreeMap<HostName, Arc<Bundle>>,
    initial: &BTreeMap<CobId, StateName>,
    switch: SwitchPair<'_>,
    plan: &Plan,
) -> Explored {
    let both = |(host, bundle): (&HostName, &Arc<Bundle>)| {
        Bundles::from([(FIRST, bundle.clone()), (SECOND, switch.second[host].clone())])
    };
    let mut orders = Orders::default();
    [Some(switch.order), switch.way_back].into_iter().flatten().for_each(|order| orders.add(order));
    let bundles = first.iter().map(both).collect();
    let setting = Setting::new(plan, bundles, orders, Some(switch.judge));
    search(&setting, setting.begin_switch(initial))
}

fn search(setting: &Setting<'_>, first: Result<Cluster, String>) -> Explored {
    let mut places = Places::default();
    for bundle in setting.bundles.iter().flat_map(BTreeMap::values) {
        for (id, cob) in &bundle.cobs {
            places.add(id, bundle.kinds[&cob.kind].states.iter());
        }
    }
    let (visited, next, found) = (HashMap::new(), HashMap::new(), Explored::default());
    let mut search = Search { setting, places, visited, next, found };
    match first {
        Ok(cluster) => search.run(cluster),
        Err(what) => search.found.wrong = Some(Wrong { what, run: Vec::new() }),
    }
    search.found
}

/// The search, and the states that it has seen.
struct Search<'a> {
    setting: &'a Setting<'a>,
    places: Places,
    /// By hash of the canonical form: whether the current run has passed through it.
    visited: HashMap<u128, bool>,
    /// With `doubt`: the forms that follow each form.
    next: HashMap<u128, BTreeSet<u128>>,
    found: Explored,
}

/// A state on the current run, and the untried steps from it.
struct Frame {
    cluster: Cluster,
    hash: u128,
    left: Vec<Step>,
    /// The step that led to it; `None`: it is the first.
    by: Option<Step>,
}

impl Search<'_> {
    fn run(&mut self, first: Cluster) {
        let mut run: Vec<Frame> = Vec::new();
        if let Some(frame) = self.visit(first, None, &run) {
            run.push(frame);
        }
        while let Some(top) = run.last_mut() {
            let Some(step) = top.left.pop() else {
                self.visited.insert(top.hash, false);
                run.pop();
                continue;
            };
            let mut next = top.cluster.clone();
            self.found.steps += 1;
            match self.setting.take(&mut next, step) {
                Ok(false) => {}
                Ok(true) => {
                    if let Some(frame) = self.visit(next, Some(step), &run) {
                        run.push(frame);
                        self.found.longest = self.found.longest.max(run.len());
                    }
                }
                Err(what) => self.wrong(what, &run, Some(step)),
            }
            if self.found.wrong.is_some() || self.found.cut {
                return;
            }
        }
    }

    /// Visits a state: returns a frame to continue from, unless it was visited before.
    fn visit(&mut self, cluster: Cluster, by: Option<Step>, run: &[Frame]) -> Option<Frame> {
        let plan = self.setting.plan;
        let hash = self.hash(&cluster);
        let left = self.setting.steps(&cluster);
        if plan.doubt
            && let Some(step) = self.goes_on_otherwise(hash, &cluster, &left)
        {
            let otherwise = format!("it is merged with a state that continues differently: {}", cluster.describe(step));
            self.wrong(otherwise, run, by);
            return None;
        }
        let rests = cluster.is_quiet() && cluster.has_converged() && !cluster.is_untold();
        match self.visited.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(true);
            }
            Entry::Occupied(entry) => {
                // A host will get its order eventually: others may wait for that indefinitely.
                if *entry.get() && plan.must_converge && !rests && !cluster.is_untold() {
                    self.wrong("it returns to the same state and never converges".to_owned(), run, by);
                }
                return None;
            }
        }
        self.found.states += 1;
        if self.found.states >= plan.max_states {
            self.found.cut = true;
            return None;
        }
        if let Some(judge) = self.setting.judge.filter(|_| rests)
            && let Err(what) = judge.rests(cluster.turned, &cluster)
        {
            self.wrong(what, run, by);
            return None;
        }
        let ends = left.iter().all(|s| s.kind == StepKind::TurnBack);
        if ends && !rests && plan.must_converge {
            self.wrong("no event is left, and a host has not converged".to_owned(), run, by);
            return None;
        }
        Some(Frame { cluster, hash, left, by })
    }

    /// A step from here to a form that does not follow the state that it is merged with.
    fn goes_on_otherwise(&mut self, hash: u128, cluster: &Cluster, steps: &[Step]) -> Option<Step> {
        let after = |step: &Step| {
            let mut next = cluster.clone();
            let is_step = self.setting.take(&mut next, *step).is_ok_and(|is_step| is_step);
            is_step.then(|| (self.hash(&next), *step))
        };
        let next: Vec<(u128, Step)> = steps.iter().filter_map(after).collect();
        let forms: BTreeSet<u128> = next.iter().map(|n| n.0).collect();
        let known = self.next.entry(hash).or_insert_with(|| forms.clone());
        let other = next.iter().find(|n| !known.contains(&n.0)).or(next.last())?;
        (*known != forms).then_some(other.1)
    }

    fn wrong(&mut self, what: String, run: &[Frame], last: Option<Step>) {
        let steps = run.iter().skip(1).map(|f| f.by).chain([last]);
        let steps = run.iter().zip(steps).filter_map(|(before, step)| Some(before.cluster.describe(step?)));
        self.found.wrong = Some(Wrong { what, run: steps.collect() });
    }

    fn hash(&self, cluster: &Cluster) -> u128 {
        let mut form = Form::new(&self.places);
        cluster.canonical(&mut form, self.setting.plan.any_order);
        let words = form.finish();
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &words).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(1) << 64 | half(2)
    }
}
