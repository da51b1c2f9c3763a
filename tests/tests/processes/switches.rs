//! Successive switches between random generations, while daemons are killed all the time: no change is lost, and the
//! scripts' own log agrees with the switch order.
//!
//! `COB_SWITCHES` is the number of switches (3 by default), `COB_SEED` the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cob_engine::sim::Random;
use cob_tests::cluster::Cluster;
use cob_tests::script_log::{self, Line};
use cob_types::GenerationNumber;
use cob_types::status::Phase;

use crate::kills::{from_environment, pause};
use crate::{CHECK, PATIENCE, QUICK, cluster, words};

const HOSTS: [&str; 8] = ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"];
/// Change objects per host.
const EACH: usize = 12;
/// The pause between two kills.
const PAUSE_MS: u64 = 200;

/// The change objects of a generation by place: content, and the required places.
type Things = BTreeMap<usize, (u64, BTreeSet<usize>)>;

/// Generations of change objects at fixed places, which require only earlier places, in an order that crosses all
/// hosts.
struct Drawer {
    places: Vec<String>,
    things: Things,
    contents: u64,
}

impl Drawer {
    fn new(random: &mut Random) -> Self {
        let mut places: Vec<_> =
            HOSTS.iter().flat_map(|host| (0..EACH).map(move |number| format!("{host}/c{number}"))).collect();
        random.shuffle(&mut places);
        let mut new = Self { places, things: Things::new(), contents: 0 };
        for place in 0..new.places.len() {
            new.put(place, random);
        }
        new
    }

    fn put(&mut self, place: usize, random: &mut Random) {
        self.contents += 1;
        let mut requires = BTreeSet::new();
        if place > 0 {
            for _ in 0..random.below(3) {
                requires.insert(random.below(place as u64) as usize);
            }
        }
        self.things.insert(place, (self.contents, requires));
    }

    /// Some are removed, come back (at the same or another place), or get another content or other requirements.
    fn next(&mut self, random: &mut Random) {
        for place in 0..self.places.len() {
            let is_there = self.things.contains_key(&place);
            match random.below(1000) {
                0..80 if is_there => _ = self.things.remove(&place),
                80..180 if is_there => self.put(place, random),
                0..500 if !is_there => self.put(place, random),
                _ => {}
            }
        }
    }

    fn model(&self, head: &str, log: &str) -> String {
        let mut text = format!("{head}\ncobs:\n");
        for (place, (content, requires)) in &self.things {
            let needed: Vec<_> =
                requires.iter().filter(|r| self.things.contains_key(r)).map(|r| self.places[*r].as_str()).collect();
            let (id, needed) = (&self.places[*place], needed.join(", "));
            let _ = writeln!(text, "  {id}:\n    kind: simple\n    content: {{log: {log}, v: {content}}}");
            let _ = writeln!(text, "    requires: [{needed}]");
        }
        text
    }
}

struct Field {
    cluster: Cluster,
    drawer: Drawer,
    head: String,
    model: PathBuf,
    log: PathBuf,
    kills: u64,
}

impl Field {
    fn new(random: &mut Random) -> Self {
        let cluster = cluster(&HOSTS);
        let model = cluster.copy_example("simple");
        let lib = fs::read_to_string(model.join("lib.sh")).expect("a text");
        let lib = lib.replace("$(date +%s%N)\"", "$(date +%s%N) $COB_GENERATION\"");
        fs::write(model.join("lib.sh"), lib).expect("written");
        let text = fs::read_to_string(model.join("model.yaml")).expect("a text");
        let kinds = text.split_once("\nkinds:").and_then(|(_, rest)| rest.split_once("\ncobs:")).expect("kinds").0;
        let mut head = String::from("security: loopback-only\nhosts:\n");
        for (host, port) in HOSTS.iter().zip(1..) {
            let _ = writeln!(head, "  {host}: {{address: \"tcp://127.0.0.1:{port}\"}}");
        }
        let head = format!("{head}kinds:{kinds}");
        let log = cluster.path("actions.log");
        Self { cluster, drawer: Drawer::new(random), head, model, log, kills: 0 }
    }

    fn publish(&mut self) -> GenerationNumber {
        let text = self.drawer.model(&self.head, &self.log.display().to_string());
        fs::write(self.model.join("model.yaml"), text).expect("written");
        self.cluster.generate(&self.model)
    }

    fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        script_log::read(whole, GenerationNumber(1)).expect("whole lines")
    }

    /// Orders the switch on all hosts that answer: the others receive it over their links.
    fn go(&self, generation: GenerationNumber) {
        let body = format!("{{\"generation\": {generation}}}");
        let told = || HOSTS.iter().filter(|h| self.cluster.http(h, "POST", "/v1/switch", &body).is_ok()).count() > 0;
        self.cluster.until(PATIENCE, told, "some host is told");
    }

    /// Kills and restarts one daemon after the other until all change objects are in the states of the generation and
    /// every host was seen to have it.
    fn kill_until_it_is_so(&mut self, generation: GenerationNumber, random: &mut Random) {
        let (began, mut seen) = (Instant::now(), BTreeSet::new());
        loop {
            let host = HOSTS[random.below(HOSTS.len() as u64) as usize];
            self.cluster.kill(host);
            self.cluster.start(host);
            self.kills += 1;
            let next = Instant::now() + Duration::from_millis(PAUSE_MS);
            let has_it = |h: &&str| self.cluster.status(h).is_some_and(|s| s.generation == Some(generation));
            let news: Vec<_> = HOSTS.iter().copied().filter(|h| !seen.contains(h)).filter(has_it).collect();
            seen.extend(news);
            let unfinished = script_log::unfinished(&self.lines(), self.cluster.generations());
            if unfinished.is_empty() && seen.len() == HOSTS.len() {
                return;
            }
            if began.elapsed() > PATIENCE * 3 {
                // The state without further kills is shown with statuses and logs.
                self.cluster.wait_converged(generation, PATIENCE);
                panic!("under kills it does not end; seen {seen:?}, unfinished {unfinished:#?}");
            }
            pause(next.saturating_duration_since(Instant::now()).as_millis() as u64);
        }
    }
}

#[test]
fn switches_in_a_row_while_daemons_are_killed_keep_the_order() {
    let (switches, seed) = (from_environment("COB_SWITCHES", 3), from_environment("COB_SEED", 1));
    // The random models do not depend on the number of kills.
    let (mut random, mut kills) = (Random::new(seed ^ 0x50), Random::new(seed ^ 0x51));
    let mut field = Field::new(&mut random);
    let first = field.publish();
    field.cluster.start_all();
    field.go(first);
    field.kill_until_it_is_so(first, &mut kills);
    for switch in 1..=switches {
        field.drawer.next(&mut random);
        let (next, killed, began) = (field.publish(), field.kills, Instant::now());
        field.go(next);
        field.kill_until_it_is_so(next, &mut kills);
        let (killed, took) = (field.kills - killed, began.elapsed());
        println!("switch {switch} of {switches}: {took:.1?}, {killed} kills, {} lines", field.lines().len());
    }
    let (last, _) = field.cluster.generations().last_key_value().expect("one");
    field.cluster.wait_converged(*last, PATIENCE);
    // The journal has every record of the index. (The index may not survive a kill: see journal::index.)
    let logs: Vec<_> = HOSTS.iter().map(|h| (h, field.cluster.log(h))).collect();
    let aside = logs.iter().flat_map(|(h, log)| log.lines().map(move |line| format!("{h}: {line}")));
    let aside: Vec<_> = aside.filter(|line| line.contains("the index was put aside")).collect();
    assert!(!aside.iter().any(|line| line.contains("it knows record")), "{}", aside.join("\n"));
    aside.iter().for_each(|line| println!("{line}"));
    let faults = script_log::judge(&field.lines(), field.cluster.generations());
    assert!(faults.is_empty(), "COB_SEED={seed}:\n{}", faults.join("\n"));
    println!("{switches} switches under {} kills: {} actions in order", field.kills, field.lines().len() / 2);
}

/// `n1/old` departs only while `n2/dep` is up as it was, and its stop fails.
fn stubborn(has_old: bool) -> String {
    let old = "  n1/old: {kind: stubborn, transitions: [{from: up, to: down, needs: [n2/dep@up]}]}";
    let old = if has_old { old } else { "" };
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  stubborn:
    states: [down, up]
    preferred: up
    pre_remove: down
    retries: 0
    check: {{run: ./check.sh}}
    transitions:
      - {{from: down, to: up, run: "echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "exit 1"}}
cobs:
{old}
  n1/other: {{kind: quick}}
  n2/dep: {{kind: quick, content: {{old: {has_old}}}}}
"#
    )
}

/// Both hosts have it, and the generation without it is published.
fn with_stubborn() -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(&["n1", "n2"]);
    let before = cluster.write_model("before", &[("model.yaml", &stubborn(true)), QUICK, CHECK]);
    let after = cluster.write_model("after", &[("model.yaml", &stubborn(false)), QUICK, CHECK]);
    let one = cluster.generate(&before);
    cluster.bring_up(one, PATIENCE);
    let two = cluster.generate(&after);
    (cluster, two)
}

fn ctl(cluster: &Cluster, said: &[&str]) -> (i32, String) {
    words::run(words::cobctl(cluster, &[], said))
}

#[test]
fn a_switch_continues_when_a_stuck_object_is_marked_departed() {
    let (cluster, two) = with_stubborn();
    cluster.switch_all(two);
    let gave_up = || cluster.cob("n1/old").is_some_and(|c| c.failed && c.phase != Phase::Checking);
    cluster.until(PATIENCE, gave_up, "the old one can't leave");
    let (code, said) = ctl(&cluster, &["explain", "n2"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("n2 switches to generation 2 as soon as n1/old has departed\n"), "{said}");
    assert!(said.contains("n1/old down failed after 1 attempt to move from up to down"), "{said}");
    let (code, said) = ctl(&cluster, &["explain", "n2/dep"]);
    assert!(code == 0 && said.contains("waits for n2 to switch to generation 2, for which n1/old must"), "{said}");
    let (code, said) = ctl(&cluster, &["mark-departed", "n2/dep", "--yes"]);
    assert!(code == 1 && said.contains("no reachable host waits for n2/dep"), "{said}");
    let (code, said) = ctl(&cluster, &["mark-departed", "n1/old"]);
    assert!(code == 2 && said.contains("no terminal to confirm it"), "{said}");
    let (code, said) = ctl(&cluster, &["mark-departed", "n1/old", "--yes"]);
    assert!(
        code == 0 && said.contains("n1: counts as departed (the switch to generation 2 goes on without it)"),
        "{said}"
    );
    // n1 announces the departure to n2, which may be faster than the operator's order to n2.
    let told_n2 = said.contains("n2: counts as departed (the switch to generation 2 goes on without it)");
    assert!(told_n2 || said.contains("n2: did not wait for it (no switch is under way here)"), "{said}");
    cluster.wait_converged(two, PATIENCE);
    assert!(cluster.cob("n1/old").is_none(), "it is no part of the generation");
    for (host, told) in [("n1", true), ("n2", told_n2)] {
        let declared = cluster.history(host).into_iter().filter(|e| e.event == "declare-final");
        let declared: Vec<_> = declared.map(|e| e.cob.expect("named").to_string()).collect();
        assert_eq!(declared, ["n1/old"; 1][..usize::from(told)], "{host}");
    }
    let (code, said) = ctl(&cluster, &["explain", "n2"]);
    assert_eq!((code, said.as_str()), (0, "n2 is OK: converged at generation 2\n"));
}

#[test]
fn a_switch_continues_when_a_lost_host_is_marked_departed_or_fenced() {
    for order in [["mark-departed", "n1/old", "--yes"], ["mark-departed", "n1", "--yes"], ["fence", "n1", "--yes"]] {
        a_lost_host(&order);
    }
}

fn a_lost_host(order: &[&str]) {
    let (mut cluster, two) = with_stubborn();
    cluster.kill("n1");
    cluster.switch("n2", two);
    let waits = || cluster.status("n2").is_some_and(|s| !s.switch_waits.is_empty());
    cluster.until(PATIENCE, waits, "n2 waits");
    let (code, said) = ctl(&cluster, &["explain", "n2"]);
    assert!(code == 3 && said.contains("cobctl mark-departed n1/old") && said.contains("cobctl fence n1"), "{said}");
    let (code, said) = ctl(&cluster, order);
    assert_eq!(code, 0, "{order:?}: {said}");
    cluster.until(PATIENCE, || cluster.status("n2").is_some_and(|s| s.generation == Some(two)), "n2 goes on");
}
