//! The history of a cluster, in random models and random sequences of operations: each operation gives a generation and
//! a rollback to the previous generation, and simulated daemons converge in both directions.
//!
//! If several services request states of the same service, the common solution may need more than each request alone
//! (docs/decisions/0004): a small model of that case is tested from every combination of states.
//!
//! `COB_OPERATIONS` is the number of histories, `COB_OPERATIONS_SEED` the seed of the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use cob_engine::sim::{Config, Initial, Random, World};
use cob_engine::time::Span;
use cob_types::{Bundle, CobId, GenerationNumber, HostName, StateName};
use cobgen::cli::{self, Terminal};

/// The default number of histories.
const LIVES: u64 = 16;
const STEPS: u64 = 8;
const EVENTS: u64 = 3_000_000;
const PATIENCE: Span = Span::secs(3600);

/// A service with actions.
#[derive(Debug, Clone)]
struct Service {
    /// Of install, configure, initialize, start, stop, remove.
    actions: BTreeSet<&'static str>,
    /// Its needs, in each of the four forms.
    needs: BTreeMap<(&'static str, &'static str), BTreeSet<usize>>,
}

/// A model with at most one cluster.
#[derive(Debug, Clone)]
struct Model {
    services: BTreeMap<usize, Service>,
    /// How many services ever existed: names are not reused.
    named: usize,
    config: u64,
    cluster: Option<Cluster>,
}

#[derive(Debug, Clone)]
enum Cluster {
    /// The nodes of each service.
    Placed(BTreeMap<usize, BTreeSet<u64>>),
    /// A template is solved: for this many nodes, with an upper limit for some services.
    Solved { nodes: u64, at_most: BTreeMap<usize, u64>, apart: Option<(usize, usize)> },
}

fn service(others: &[usize], draws: &mut Random) -> Service {
    let mut actions: BTreeSet<&str> = BTreeSet::new();
    for action in ["install", "configure", "initialize", "start"] {
        if draws.permille(550) {
            actions.insert(action);
        }
    }
    if actions.is_empty() || draws.permille(600) {
        actions.insert("start");
    }
    if actions.contains("start") && draws.permille(800) {
        actions.insert("stop");
    }
    if draws.permille(500) {
        actions.insert("remove");
    }
    let mut needs: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
    for form in [("install", "requires"), ("install", "uses"), ("runtime", "requires"), ("runtime", "uses")] {
        for other in others {
            if draws.permille(250) {
                needs.entry(form).or_default().insert(*other);
            }
        }
    }
    Service { actions, needs }
}

impl Model {
    fn draw(draws: &mut Random) -> Self {
        let mut model = Self { services: BTreeMap::new(), named: 0, config: 0, cluster: None };
        for _ in 0..draws.between(2, 8) {
            model.add_service(draws);
        }
        model
    }

    /// The new service needs only older services, so there is no cycle.
    fn add_service(&mut self, draws: &mut Random) -> usize {
        let others: Vec<usize> = self.services.keys().copied().collect();
        self.services.insert(self.named, service(&others, draws));
        self.named += 1;
        self.named - 1
    }

    fn nodes(draws: &mut Random) -> u64 {
        if draws.permille(800) { draws.between(2, 8) } else { draws.between(9, 40) }
    }

    fn place(nodes: u64, draws: &mut Random) -> BTreeSet<u64> {
        let mut on: BTreeSet<u64> = (0..nodes).filter(|_| draws.permille(400)).collect();
        on.insert(draws.below(nodes));
        on
    }

    fn create(&mut self, draws: &mut Random) {
        let nodes = Self::nodes(draws);
        let services: Vec<usize> = self.services.keys().copied().collect();
        self.cluster = Some(if draws.permille(600) {
            Cluster::Placed(services.iter().map(|s| (*s, Self::place(nodes, draws))).collect())
        } else {
            let most = |s: &usize| draws.permille(300).then(|| (*s, draws.between(1, 3)));
            let at_most = services.iter().filter_map(most).collect();
            let apart = (services.len() > 2 && draws.permille(400)).then(|| (services[0], services[1]));
            Cluster::Solved { nodes, at_most, apart }
        });
    }

    /// Performs an operation and returns its name.
    fn operate(&mut self, draws: &mut Random) -> &'static str {
        let Some(cluster) = &mut self.cluster else {
            self.create(draws);
            return "create";
        };
        let services: Vec<usize> = self.services.keys().copied().collect();
        match draws.below(9) {
            0 | 1 => {
                let grown = draws.between(1, 6);
                match cluster {
                    Cluster::Solved { nodes, .. } => *nodes += grown,
                    Cluster::Placed(placed) => {
                        placed.get_mut(draws.pick(&services)).into_iter().for_each(|on| on.extend(0..grown));
                    }
                }
                "expand"
            }
            2 | 3 => {
                match cluster {
                    Cluster::Solved { nodes, .. } => *nodes = draws.between(1, *nodes),
                    Cluster::Placed(placed) => {
                        let limit = draws.between(1, 6);
                        for on in placed.values_mut() {
                            on.retain(|node| *node < limit);
                            on.insert(0);
                        }
                    }
                }
                "shrink"
            }
            4 => {
                let added = self.add_service(draws);
                if let Some(Cluster::Placed(placed)) = &mut self.cluster {
                    placed.insert(added, Self::place(4, draws));
                }
                "add service"
            }
            5 if services.len() > 2 => {
                self.remove_service(*draws.pick(&services));
                "remove service"
            }
            6 => {
                // Another version: services that needed the old version need the new version.
                let old = *draws.pick(&services);
                let new = self.add_service(draws);
                let others: Vec<usize> = self.services[&old].needs.values().flatten().copied().collect();
                let mut version = service(&others, draws);
                version.actions.extend(&self.services[&old].actions);
                self.services.insert(new, version);
                for other in self.services.values_mut() {
                    for needs in other.needs.values_mut() {
                        if needs.remove(&old) {
                            needs.insert(new);
                        }
                    }
                }
                if let Some(Cluster::Placed(placed)) = &mut self.cluster {
                    let on = placed.remove(&old).unwrap_or_default();
                    placed.insert(new, on);
                }
                self.remove_service(old);
                "replace service"
            }
            7 => {
                self.cluster = None;
                "delete"
            }
            _ => {
                self.config += 1;
                "configure"
            }
        }
    }

    fn remove_service(&mut self, gone: usize) {
        self.services.remove(&gone);
        for needs in self.services.values_mut().flat_map(|service| service.needs.values_mut()) {
            needs.remove(&gone);
        }
        match &mut self.cluster {
            Some(Cluster::Placed(placed)) => drop(placed.remove(&gone)),
            Some(Cluster::Solved { at_most, apart, .. }) => {
                at_most.remove(&gone);
                *apart = apart.filter(|(a, b)| ![a, b].contains(&&gone));
            }
            None => {}
        }
    }

    fn text(&self) -> String {
        let mut text = String::from("security: loopback-only\n");
        let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(", ");
        let names = |all: &BTreeSet<usize>| list(&mut all.iter().map(|s| format!("s{s}")));
        if let Some(Cluster::Placed(placed)) = &self.cluster {
            let nodes: BTreeSet<&u64> = placed.values().flatten().collect();
            let _ = writeln!(
                text,
                "hosts: {{{}}}",
                list(&mut nodes.iter().map(|n| format!("n{n}: {{address: \"tcp://127.0.0.1:{}\"}}", 7100 + **n)))
            );
        }
        let _ = writeln!(text, "services:");
        for (name, Service { actions, needs }) in &self.services {
            let actions = list(&mut actions.iter().map(|action| format!("{action}: \"true\"")));
            let _ = writeln!(text, "  s{name}:\n    config: [c]\n    actions: {{{actions}}}");
            let of = |time: &str| {
                let forms = needs.iter().filter(|((t, _), all)| *t == time && !all.is_empty());
                list(&mut forms.map(|((_, form), all)| format!("{form}: [{}]", names(all))))
            };
            let _ =
                writeln!(text, "    dependencies: {{install: {{{}}}, runtime: {{{}}}}}", of("install"), of("runtime"));
        }
        match &self.cluster {
            None => {}
            Some(Cluster::Placed(placed)) => {
                let on = |nodes: &BTreeSet<u64>| list(&mut nodes.iter().map(|n| format!("n{n}")));
                let placed = list(&mut placed.iter().map(|(s, nodes)| format!("s{s}: [{}]", on(nodes))));
                let _ = writeln!(
                    text,
                    "clusters: {{c: {{services: {{{placed}}}, config: {{c: {{v: {}}}}}}}}}",
                    self.config
                );
            }
            Some(Cluster::Solved { nodes, at_most, apart }) => {
                let all = self.services.keys().copied().collect();
                let most = list(&mut at_most.iter().map(|(s, n)| format!("s{s}: {{quantities: {{max: {n}}}}}")));
                let apart = apart.map(|(a, b)| format!("[s{a}, s{b}]")).unwrap_or_default();
                let _ = write!(
                    text,
                    "providers: {{p: {{}}}}\nhardwaretypes: {{h: {{providers: {{p: {{}}}}}}}}\n\
                     imagetypes: {{i: {{providers: {{p: {{}}}}}}}}\n\
                     templates:\n  t:\n    defaults: {{services: [{}], config: {{c: {{v: {}}}}}}}\n    \
                     constraints: {{layout: {{cantcoexist: [{apart}]}}, services: {{{most}}}}}\n\
                     clusters: {{c: {{template: t, nodes: {nodes}, address: \"tcp://127.0.0.1:{{{{ 7100 + index }}}}\"}}}}\n",
                    names(&all),
                    self.config
                );
            }
        }
        text
    }
}

fn run(words: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = std::iter::once("cobgen").chain(words.iter().copied()).map(Into::into);
    let status =
        cli::run(words.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
    (status, String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned())
}

type Bundles = BTreeMap<HostName, Arc<Bundle>>;

/// The depot of a history.
struct Life {
    folder: tempfile::TempDir,
    seed: u64,
}

impl Life {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// The newest generation of the model; `None`: no layout fulfils it.
    fn generate(
        &self,
        model: &Model,
        instead_of: Option<GenerationNumber>,
    ) -> Result<Option<GenerationNumber>, String> {
        let (path, depot) = (self.path("model.yaml"), self.path("depot"));
        std::fs::write(&path, model.text()).expect("written");
        let number = instead_of.map(|number| number.to_string());
        let mut words = vec!["generate", &path, "--depot", &depot, "--json"];
        words.extend(number.iter().flat_map(|number| ["--instead-of", number.as_str()]));
        let (status, out, err) = run(&words);
        if err.contains("no rollback from") || (status != 0 && !err.contains("layout") && !out.contains("layout")) {
            return Err(format!("status {status}: {out}{err}"));
        }
        if status != 0 {
            return Ok(None);
        }
        let told: serde_json::Value = serde_json::from_str(&out).map_err(|error| format!("{error}: {out}"))?;
        Ok(told["generation"].as_u64().map(GenerationNumber))
    }

    fn bundles(&self, number: GenerationNumber) -> Bundles {
        if number == GenerationNumber(0) {
            return Bundles::new();
        }
        let depot = cob_depot::Depot::open(&PathBuf::from(self.path("depot"))).expect("a depot");
        let hosts = depot.read_manifest(number).expect("a manifest").hosts.into_keys().collect();
        let bundles = depot.read_bundles(number, &hosts).expect("bundles");
        bundles.into_iter().map(|(host, bundle)| (host, Arc::new(bundle))).collect()
    }

    /// Simulated daemons switch from a generation to another, and back.
    fn switch(&self, from: GenerationNumber, to: GenerationNumber) -> Result<(), String> {
        let (first, second) = (self.bundles(from), self.bundles(to));
        let both = |own: &Bundles, other: &Bundles| {
            let mut all = own.clone();
            for host in other.keys() {
                all.entry(host.clone()).or_insert_with(|| Arc::new(Bundle::empty(host.clone())));
            }
            all
        };
        let (first, second) = (both(&first, &second), both(&second, &first));
        let depot = cob_depot::Depot::open(&PathBuf::from(self.path("depot"))).expect("a depot");
        let manifest = depot.read_manifest(to).expect("a manifest");
        let order = |from, to| {
            let order = manifest.switch_order(from, to).cloned();
            order.ok_or_else(|| format!("the manifest has no order from {from} to {to}"))
        };
        let is_first = from == GenerationNumber(0);
        let initial: BTreeMap<CobId, StateName> = first
            .values()
            .flat_map(|bundle| bundle.cobs.values().map(|cob| (cob.id.clone(), cob.preferred.clone())))
            .collect();
        let crashes = if self.seed.is_multiple_of(3) { 3 } else { 0 };
        let lossy = if self.seed.is_multiple_of(2) { 50 } else { 0 };
        let config = Config {
            seed: self.seed,
            loss: lossy,
            delay_us: (50, 5000),
            fifo: false,
            crashes,
            limit: PATIENCE,
            max_events: EVENTS,
            check: false,
            ..Config::default()
        };
        let mut world = World::new(&first, &Initial::Given(initial), &[], config);
        let calm: Bundles =
            first.iter().filter(|(_, bundle)| !bundle.cobs.is_empty()).map(|(h, b)| (h.clone(), b.clone())).collect();
        if !is_first {
            world.go(from, &calm);
            // The crashes are planned for the switch.
            let converged =
                |world: &World| calm.keys().all(|host| world.engine(host).is_some_and(|engine| engine.is_converged()));
            run_until(&mut world, converged, "before the switch")?;
        }
        world.plan_crashes();
        if is_first {
            world.go(to, &second);
            return rest(&mut world, "after the first switch");
        }
        world.switch(&order(from, to)?, &second, false);
        rest(&mut world, "after the switch")?;
        world.switch(&order(to, from)?, &first, true);
        rest(&mut world, "after the way back")
    }
}

fn rest(world: &mut World, when: &str) -> Result<(), String> {
    run_until(world, World::has_come_to_rest, when)
}

fn run_until(world: &mut World, done: impl Fn(&World) -> bool, when: &str) -> Result<(), String> {
    let (limit, events) = (world.now() + PATIENCE, world.outcome().events + EVENTS);
    while !done(world) {
        if !world.step() || world.now() > limit || world.outcome().events > events {
            let troubles = world.run_until_quiet(Span::secs(0)).troubles;
            return Err(format!("{when}: it does not come to rest: {troubles:?}"));
        }
        if let Some(violation) = world.outcome().violations.first() {
            return Err(format!("{when}: {violation}"));
        }
    }
    Ok(())
}

/// Plays a history and returns the number of switches.
fn live(seed: u64) -> Result<u64, String> {
    let draws = &mut Random::new(seed);
    let life = Life { folder: tempfile::tempdir().expect("a folder"), seed };
    let mut model = Model::draw(draws);
    let (mut at, mut switches) = (GenerationNumber(0), 0);
    let mut told = Vec::new();
    for _ in 0..STEPS {
        let before = model.clone();
        let operation = model.operate(draws);
        told.push(operation);
        let excluded = (operation == "configure" && at > GenerationNumber(1) && draws.permille(300)).then_some(at);
        let wrong = |what: String| format!("seed {seed}, {told:?}: {what}\n{}\nafter\n{}", before.text(), model.text());
        match life.generate(&model, excluded).map_err(wrong)? {
            None => model = before,
            Some(next) if next == at => {}
            Some(next) => {
                let wrong =
                    |what: String| format!("seed {seed}, {told:?}: {what}\n{}\nthen\n{}", before.text(), model.text());
                life.switch(at, next).map_err(wrong)?;
                switches += 1;
                at = next;
            }
        }
    }
    Ok(switches)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn clusters_grow_shrink_change_and_go_away() {
    let first = from_environment("COB_OPERATIONS_SEED").unwrap_or(1);
    let lives = from_environment("COB_OPERATIONS").unwrap_or(LIVES);
    let switches: u64 = (first..first + lives).map(|seed| live(seed).unwrap_or_else(|wrong| panic!("{wrong}"))).sum();
    assert!(switches >= lives, "{switches} switches in {lives} lives");
}

/// The model of a bug report: `c`, which is to be installed, requests that `a` be installed; `b`, which is to be
/// restarted, requests that `a` be idle; and `a` comes up only with `b`.
fn shared(actions_of_a: &str) -> String {
    format!(
        "security: loopback-only
hosts: {{n1: {{address: \"tcp://127.0.0.1:7101\"}}, n2: {{address: \"tcp://127.0.0.1:7102\"}}}}
services:
  a: {{config: [c], actions: {{{actions_of_a}}}, dependencies: {{runtime: {{uses: [b]}}}}}}
  b: {{config: [c], actions: {{start: \"true\", stop: \"true\"}}}}
  c:
    config: [c]
    actions: {{install: \"true\", start: \"true\", stop: \"true\", remove: \"true\"}}
    dependencies: {{install: {{uses: [a]}}}}
clusters: {{c: {{services: {{a: [n1], b: [n1, n2], c: [n2]}}, config: {{c: {{v: 0}}}}}}}}
"
    )
}

#[test]
fn a_shared_service_converges_from_every_mixture_of_states() {
    for actions_of_a in ["start: \"true\", stop: \"true\"", "initialize: \"true\", start: \"true\", stop: \"true\""] {
        let life = Life { folder: tempfile::tempdir().expect("a folder"), seed: 0 };
        let (path, depot) = (life.path("model.yaml"), life.path("depot"));
        std::fs::write(&path, shared(actions_of_a)).expect("written");
        let (status, out, err) = run(&["generate", &path, "--depot", &depot]);
        assert!(status == 0 && !err.contains("no rollback from"), "{out}{err}");
        let bundles = life.bundles(GenerationNumber(1));
        let cobs: Vec<(CobId, Vec<StateName>)> = bundles
            .values()
            .flat_map(|bundle| bundle.cobs.values().map(|cob| (cob.id.clone(), bundle.kinds[&cob.kind].states.clone())))
            .collect();
        let mixtures: usize = cobs.iter().map(|(_, states)| states.len()).product();
        assert!(mixtures > 300, "{mixtures}");
        for mixture in 0..mixtures {
            let mut left = mixture;
            let mut initial = BTreeMap::new();
            for (id, states) in &cobs {
                initial.insert(id.clone(), states[left % states.len()].clone());
                left /= states.len();
            }
            let told = format!("{initial:?}");
            let config = Config { seed: mixture as u64, limit: PATIENCE, max_events: EVENTS, ..Config::default() };
            let mut world = World::new(&bundles, &Initial::Given(initial), &[], config);
            world.go(GenerationNumber(1), &bundles);
            rest(&mut world, &told).expect("it comes to rest");
        }
    }
}
