//! Makes a plan from two generations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::sim::Random;
use cob_engine::sim::forecast::{Course, Pace, PlannedSwitch};
use cob_engine::time::Span;
use cob_types::status::{Stopped, Wait};
use cob_types::{Bundle, CobId, GenerationNumber, HostName, KindName, StateName, SwitchOrder};
use serde_json::Value;

use crate::diff::{Difference, diff};
use crate::durations::{Durations, Looked, Spread, draw};
use crate::order::{Act, acts, measure};
use crate::plan::{FORMAT, Forecast, Planned, SwitchPlan, Why};
use crate::scope::{Scope, everything, parts, scope};
use crate::sides::{Both, Known, Sides};
use crate::split::{self, split};
use crate::switch_order::NoOrder;
use crate::unused::{Unused, unused};
use crate::{groups, legs, reasons};

/// The most events of all random runs together; the first run is not counted.
const EVENTS: u64 = 400_000;

/// The inputs besides the two generations.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The durations of transitions and checks.
    pub durations: Durations,
    /// Change objects that are not in the state that the active generation wants.
    pub states: BTreeMap<CobId, StateName>,
    /// Generations that hosts have rolled back; the switch never goes over these.
    pub withdrawn: BTreeSet<GenerationNumber>,
    /// Change objects that an operator stops. Then the second generation only says which objects are concerned: the bundles
    /// of the first generation run on, so that the engine takes the tokens of budgets as it does for the order.
    pub stops: BTreeMap<CobId, Stopped>,
    /// The most runs with random durations.
    pub runs: u64,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// A plan, with the difference of the generations.
#[derive(Debug, Clone)]
pub struct Forecasted {
    /// The plan.
    pub plan: SwitchPlan,
    /// The difference of the generations.
    pub difference: Difference,
    /// Inputs that match no object.
    pub unused: Unused,
    /// The number of simulated change objects.
    pub simulated: usize,
    /// Events of the simulation.
    pub events: u64,
}

impl Forecasted {
    /// The plan as JSON for other programs (`docs/plan.md`), with the difference as `changes`.
    ///
    /// # Errors
    /// When it can't be written as JSON, which no plan is known for.
    pub fn to_json(&self) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(&self.plan)?;
        value["changes"] = serde_json::to_value(&self.difference)?;
        Ok(value)
    }
}

/// Forecasts the switch between two generations.
///
/// # Errors
/// When a depot can't be read, or the departing change objects can't depart in any order.
pub fn forecast(sides: Sides<'_>, asked: Asked) -> Result<Forecasted, NoOrder> {
    let steps = sides.steps(&asked.withdrawn);
    let unused = unused(&sides, &asked.durations, &asked.states);
    let planned = if steps.is_empty() { leg(sides, asked) } else { by_steps(&sides, steps, asked) };
    Ok(Forecasted { unused, ..planned? })
}

/// Plans a switch over intermediate generations, leg by leg.
fn by_steps(whole: &Sides<'_>, steps: Vec<GenerationNumber>, asked: Asked) -> Result<Forecasted, NoOrder> {
    let ends = [whole.from.manifest.generation, whole.to.manifest.generation];
    let way: Vec<GenerationNumber> = [&ends[..1], &steps, &ends[1..]].concat();
    let (mut legs, mut simulated, mut events) = (Vec::new(), 0, 0);
    let Asked { durations, mut states, seed, runs, .. } = asked;
    for pair in way.windows(2) {
        let asked = Asked { durations: durations.clone(), states, runs, seed, ..Asked::default() };
        let planned = leg(whole.leg(pair[0], pair[1]).map_err(NoOrder::Depot)?, asked)?;
        (simulated, events) = (simulated + planned.simulated, events + planned.events);
        legs.push(planned.plan);
        // The next leg starts with all change objects in the states that the step wants.
        states = BTreeMap::new();
    }
    let moved = reasons::moved(whole, &whole.looked_at());
    let joined = legs::joined(legs, steps);
    let touched: BTreeSet<&HostName> = joined.groups.iter().flat_map(|group| &group.hosts).collect();
    let untouched = whole.not_looked_at().iter().filter(|host| !touched.contains(host)).count();
    let plan = SwitchPlan { from: ends[0], moved, untouched_hosts: untouched as u64, ..joined };
    let difference = diff(whole.from.looked_at(), whole.to.looked_at());
    Ok(Forecasted { plan, difference, unused: Unused::default(), simulated, events })
}

/// Plans a direct switch.
fn leg(mut sides: Sides<'_>, asked: Asked) -> Result<Forecasted, NoOrder> {
    let Asked { mut durations, states, withdrawn: _, stops, runs, seed } = asked;
    let order = Arc::new(sides.order()?);
    let mut concerned = scope(&mut sides, &order)?;
    gather(&mut durations, &sides);
    let mut parts = part(&sides, &concerned, &order, (&states, &stops));
    let mut first = run(&parts, sides.both(), &durations, None);
    if !first.converged {
        // A change object outside the scope was perhaps requested; so simulate all.
        let all = everything(&mut sides)?;
        if all.cobs.len() > concerned.cobs.len() {
            concerned = all;
            gather(&mut durations, &sides);
            parts = part(&sides, &concerned, &order, (&states, &stops));
            first = run(&parts, sides.both(), &durations, None);
        }
    }
    let plan = told(&sides, &order, &first, &durations, &concerned);
    let mut plan = SwitchPlan { forecast: Forecast { seed, ..plan.forecast }, ..plan };
    spread(
        &mut plan.forecast,
        &parts,
        sides.both(),
        &durations,
        runs.min(EVENTS / first.events.max(1)),
        &plan.transitions,
    );
    let (simulated, events) = (concerned.cobs.len(), first.events);
    let mut difference = diff(sides.from.looked_at(), sides.to.looked_at());
    if difference.has_secrets() {
        let [old, new] = sides.names().map_err(NoOrder::Depot)?;
        difference.name_secrets(&old, &new);
    }
    sides.let_go();
    rayon::spawn(move || drop(parts));
    Ok(Forecasted { plan, difference, unused: Unused::default(), simulated, events })
}

fn gather(durations: &mut Durations, sides: &Sides<'_>) {
    let kind_of = |who: &str| who.parse::<CobId>().ok().and_then(|id| sides.find(&id)).map(|known| &known.cob.kind);
    durations.gather_kinds(kind_of);
}

fn part(
    sides: &Sides<'_>,
    scope: &Scope,
    order: &Arc<SwitchOrder>,
    (states, stops): (&BTreeMap<CobId, StateName>, &BTreeMap<CobId, Stopped>),
) -> Vec<PlannedSwitch> {
    let (mut from, mut to) = (parts(&sides.from, &scope.cobs), parts(&sides.to, &scope.cobs));
    let empty = |host: &HostName| Arc::new(Bundle::empty(host.clone()));
    // A host that only waits for departures elsewhere takes part too.
    for host in order.waits.keys().filter(|host| sides.to.manifest.hosts.contains_key(*host)) {
        to.entry(host.clone()).or_insert_with(|| empty(host));
    }
    // A new host takes part with an empty part in the active generation.
    for host in to.keys().filter(|host| sides.from.manifest.hosts.contains_key(*host)) {
        from.entry(host.clone()).or_insert_with(|| empty(host));
    }
    if !stops.is_empty() {
        to.clone_from(&from);
    }
    split(&PlannedSwitch { order: order.clone(), from, to, states: states.clone(), stops: stops.clone() })
}

/// Durations for the engine.
struct Paced<'s> {
    sides: Both<'s>,
    durations: &'s Durations,
    random: Option<Random>,
    message: Spread,
}

impl Paced<'_> {
    fn kind(&self, cob: &CobId) -> Option<&KindName> {
        Some(&self.sides.find(cob)?.cob.kind)
    }
}

impl Pace for Paced<'_> {
    fn action(&mut self, cob: &CobId, from: &StateName, to: &StateName) -> Span {
        let Looked { spread, .. } = looked(self.sides, self.durations, cob, from, to);
        Span(draw(spread, self.random.as_mut()).saturating_mul(1000))
    }

    fn check(&mut self, cob: &CobId) -> Span {
        let spread = self.durations.check(cob, self.kind(cob));
        Span(draw(spread, self.random.as_mut()).saturating_mul(1000))
    }

    fn message(&mut self) -> Span {
        // The same for all messages: on a link no message overtakes another.
        Span(self.message.median.saturating_mul(1000))
    }
}

/// The duration of a transition. The content of a waiting change object has its duration, and a transition without an
/// action takes no time: here, records of others of the kind do not count.
fn looked(sides: Both<'_>, durations: &Durations, cob: &CobId, from: &StateName, to: &StateName) -> Looked {
    let known = sides.find(cob);
    let kind = known.map(|known| &known.cob.kind);
    let looked = durations.transition(cob, kind, from.as_str(), to.as_str());
    match known {
        Some(known) if !looked.known || looked.of_others => by_itself(known, to).unwrap_or(looked),
        Some(_) | None => looked,
    }
}

fn by_itself(Known { cob, kind }: Known<'_>, to: &StateName) -> Option<Looked> {
    let us = match kind.backend.as_str() {
        "noop" => 0,
        "wait" if *to != cob.preferred => 0,
        "wait" => {
            let content: Value = serde_json::from_str(&cob.content).ok()?;
            let ms = content.get("ms").and_then(Value::as_u64).map(|ms| ms.saturating_mul(1000));
            let seconds = content.get("seconds").and_then(Value::as_f64).filter(|s| (0.0..1e9).contains(s));
            ms.or_else(|| seconds.map(|seconds| (seconds * 1e6) as u64))?
        }
        _ => return None,
    };
    Some(Looked::known(Spread::always(us)))
}

fn run(parts: &[PlannedSwitch], sides: Both<'_>, durations: &Durations, random: Option<Random>) -> Course {
    let message = durations.message();
    split::run(parts, random, |random| Paced { sides, durations, random, message })
}

/// Runs the switch with random durations.
fn spread(
    forecast: &mut Forecast,
    parts: &[PlannedSwitch],
    sides: Both<'_>,
    durations: &Durations,
    runs: u64,
    transitions: &[Planned],
) {
    if transitions.iter().all(|step| step.duration.is_fixed()) || !forecast.converges {
        return;
    }
    let mut random = Random::new(forecast.seed);
    let mut ends: Vec<u64> = (0..runs)
        .map(|_| {
            let random = Random::new(random.bits());
            run(parts, sides, durations, Some(random)).end.0 / 1000
        })
        .collect();
    ends.sort_unstable();
    let at = |permille: usize| ends.get((ends.len() * permille).div_ceil(1000).saturating_sub(1)).copied();
    forecast.runs = runs;
    forecast.p50_us = at(500).unwrap_or(forecast.end_us);
    forecast.p90_us = at(900).unwrap_or(forecast.end_us);
}

fn told(sides: &Sides<'_>, order: &SwitchOrder, course: &Course, durations: &Durations, scope: &Scope) -> SwitchPlan {
    let acts = acts(course, sides, order);
    let whys = reasons::whys(&acts, sides, order);
    let planned = |(id, act): (usize, &Act<'_>)| {
        let Looked { spread, known, .. } = looked(sides.both(), durations, &act.step.cob, act.from, act.to);
        let caused = act.cause.map_or(0, |cause| acts[cause].step.end.0);
        Planned {
            id,
            cob: act.step.cob.clone(),
            from: act.from.clone(),
            to: act.to.clone(),
            begin_us: act.step.begin.0 / 1000,
            end_us: act.step.end.0 / 1000,
            after: act.after.iter().copied().collect(),
            cause: act.cause,
            lag_us: act.step.begin.0.saturating_sub(caused) / 1000,
            slack_us: 0,
            stage: 0,
            step: None,
            why: whys.get(&act.step.cob).cloned().unwrap_or(Why::Astray),
            irreversible: false,
            duration: spread,
            known,
        }
    };
    let mut transitions: Vec<Planned> = acts.iter().enumerate().map(planned).collect();
    let marks: Vec<(usize, bool)> =
        acts.iter().enumerate().filter_map(|(at, act)| Some((at, reasons::irreversible(act, sides, order)?))).collect();
    for (at, _) in &marks {
        transitions[*at].irreversible = true;
    }
    let end_us = course.end.0 / 1000;
    let (stages, critical_path) = measure(&mut transitions, end_us);
    let mut stuck: BTreeMap<CobId, Vec<String>> = BTreeMap::new();
    for (id, wait) in &course.waits {
        stuck.entry(id.clone()).or_default().push(words(wait));
    }
    SwitchPlan {
        format: FORMAT,
        from: order.from,
        to: order.to,
        steps: Vec::new(),
        moved: reasons::moved(sides, &scope.seeds),
        groups: groups::groups(sides, order, course),
        untouched_hosts: sides.not_looked_at().len() as u64,
        interrupted: reasons::interrupted(&transitions, sides),
        irreversible: reasons::told_irreversible(&transitions, &marks),
        point_of_no_return: reasons::point_of_no_return(&transitions, &marks),
        forecast: Forecast {
            end_us,
            p50_us: end_us,
            p90_us: end_us,
            runs: 0,
            seed: 0,
            known: transitions.iter().filter(|step| step.known).count() as u64,
            converges: course.converged,
            stuck,
        },
        transitions,
        stages,
        critical_path,
    }
}

/// The reason why a change object waits at the end of a run that did not converge, with its subject.
fn words(wait: &Wait) -> String {
    let told = serde_json::to_value(wait).unwrap_or_default();
    let text = |name: &str| told.get(name).and_then(Value::as_str);
    let states = told.get("states").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let states: Vec<&str> = states.chain(text("state")).chain(text("to")).collect();
    let states = if states.is_empty() { String::new() } else { format!("@{}", states.join("|")) };
    format!("{} {}{states}", text("reason").unwrap_or("waits"), text("cob").unwrap_or_default())
}
