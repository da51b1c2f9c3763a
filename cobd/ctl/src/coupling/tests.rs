//! The coupling of hosts, in generations of a few lines and in generations from models.

use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::generation::Security;
use cob_types::{Bundle, Cob, GenerationNumber, LockNeeds, Manifest, Need, StateName};
use cobgen::make::{After, make};

use super::*;

fn id(text: &str) -> CobId {
    CobId::new(text).expect("an id")
}

fn name(text: &str) -> HostName {
    HostName::new(text).expect("a name")
}

/// `n1/db 1`, `n2/app 1 <- n1/db`: a change object, its content, and its needs. A need of a name that begins with
/// `budget` expects no content.
fn generation(number: u64, lines: &[&str]) -> Generation {
    let up = StateName::new("up").expect("a state");
    let before = GenerationNumber(number - 1);
    let manifest = Manifest::empty(GenerationNumber(number), before, Security::LoopbackOnly);
    let mut bundles: BTreeMap<HostName, Bundle> = BTreeMap::new();
    for line in lines {
        let (head, needs) = line.split_once(" <- ").unwrap_or((line, ""));
        let (cob, content) = head.split_once(' ').expect("a content");
        let cob = id(cob);
        let need = |text: &str| Need { cob: id(text), states: vec![up.clone()] };
        let needs: Vec<Need> = needs.split_whitespace().map(need).collect();
        let content_of = |cob: &CobId| {
            let heads = lines.iter().filter_map(|line| line.split(" <- ").next()?.split_once(' '));
            heads.into_iter().find(|(id, _)| *id == cob.as_str()).map(|(_, content)| print(content))
        };
        let expected = needs.iter().filter(|need| !need.cob.as_str().contains("/budget"));
        let expects = expected.filter_map(|need| Some((need.cob.clone(), content_of(&need.cob)?))).collect();
        let locks = if needs.is_empty() { vec![] } else { vec![LockNeeds { state: up.clone(), needs }] };
        let made = Cob {
            id: cob.clone(),
            kind: cob_types::KindName::new("noop").expect("a kind"),
            preferred: up.clone(),
            content: content.to_owned(),
            fingerprint: print(content),
            rests_on: None,
            transitions: Default::default(),
            locks: locks.into(),
            ranks: Default::default(),
            expects,
            files: BTreeMap::new(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
        };
        bundles.entry(cob.host()).or_insert_with(|| Bundle::empty(cob.host())).cobs.insert(cob, Arc::new(made));
    }
    Generation { manifest, bundles }
}

fn print(content: &str) -> Fingerprint {
    Fingerprint([content.parse().expect("a number"); 16])
}

/// The coupling between generations whose change objects are all in their preferred states.
fn between(old: Option<&Generation>, new: &Generation) -> Coupling {
    Coupling::between(old, new, &|_| true)
}

fn closure(coupling: &Coupling, of: &[&str]) -> Vec<String> {
    let named = of.iter().map(|h| name(h)).collect();
    coupling.closure(&named).iter().map(Added::sentence).collect()
}

#[test]
fn an_unchanged_change_object_couples_no_hosts() {
    let old = generation(1, &["n1/db 1", "n2/app 1 <- n1/db", "n3/lb 1 <- n2/app"]);
    let new = generation(2, &["n1/db 1", "n2/app 1 <- n1/db", "n3/lb 2 <- n2/app"]);
    let coupling = between(Some(&old), &new);
    assert_eq!(closure(&coupling, &["n3"]), [""; 0]);
    assert_eq!(closure(&coupling, &["n1"]), [""; 0]);
}

#[test]
fn a_changed_change_object_and_its_dependent_switch_together() {
    let old = generation(1, &["n1/db 1", "n2/app 1 <- n1/db", "n3/lb 1 <- n2/app"]);
    let new = generation(2, &["n1/db 2", "n2/app 1 <- n1/db", "n3/lb 1 <- n2/app"]);
    let coupling = between(Some(&old), &new);
    assert_eq!(
        closure(&coupling, &["n1"]),
        ["n2 switches too: n2/app needs n1/db, which changes or departs, and would wait meanwhile"]
    );
    assert_eq!(
        closure(&coupling, &["n2"]),
        ["n1 switches too: n2/app needs n1/db, which changes, and would not converge without it"]
    );
    let groups = coupling.groups(&["n1", "n2", "n3"].map(name).into());
    assert_eq!(groups, [BTreeSet::from(["n1", "n2"].map(name)), BTreeSet::from([name("n3")])]);
}

#[test]
fn only_the_dependents_of_a_new_change_object_wait_for_it() {
    let old = generation(1, &["n1/db 1", "n2/app 1"]);
    let new = generation(2, &["n1/db 1", "n1/queue 1", "n2/app 2 <- n1/queue"]);
    let coupling = between(Some(&old), &new);
    assert_eq!(closure(&coupling, &["n1"]), [""; 0], "what nobody has yet disturbs nobody");
    assert_eq!(closure(&coupling, &["n2"]).len(), 1);
    assert_eq!(closure(&between(None, &new), &["n2"]).len(), 1, "at first all of it is new");
}

#[test]
fn a_one_way_dependency_goes_in_an_earlier_wave() {
    let old = generation(1, &["n1/app 1", "n2/mid 1", "n3/db 1"]);
    let new = generation(2, &["n1/app 2 <- n2/new", "n2/mid 2", "n2/new 1 <- n3/new", "n3/db 2", "n3/new 1"]);
    assert_eq!(groups(&between(Some(&old), &new)), ["n3", "n2", "n1"]);
}

#[test]
fn failed_hosts_go_first_together_with_their_dependencies() {
    let old = generation(1, &["n1/app 1", "n2/mid 1", "n3/db 1"]);
    let new = generation(2, &["n1/app 2", "n2/mid 2 <- n3/new", "n3/db 2", "n3/new 1"]);
    let coupling = between(Some(&old), &new);
    let hosts = ["n1", "n2", "n3"].map(name).into();
    let groups = coupling.groups_from(&hosts, &[name("n2")].into());
    let first: Vec<&str> = groups.iter().flatten().map(HostName::as_str).collect();
    assert_eq!(first, ["n3", "n2", "n1"]);
}

#[test]
fn the_reasons_of_a_group_name_only_its_own_hosts() {
    let lines = |n: u64| {
        vec![format!("n1/a {n} <- n2/b"), format!("n2/b {n} <- n1/a"), format!("n3/c {n} <- n1/a"), "n4/d 1".to_owned()]
    };
    let made = |n: u64| generation(n, &lines(n).iter().map(String::as_str).collect::<Vec<_>>());
    let coupling = between(Some(&made(1)), &made(2));
    let why: Vec<String> = coupling.inside(&["n1", "n2"].map(name).into()).iter().map(Added::sentence).collect();
    assert!(
        why.len() == 2 && why[0].starts_with("n2 switches too") && why[1].starts_with("n1 switches too"),
        "{why:?}"
    );
}

#[test]
fn a_changed_budget_couples_no_hosts_and_a_new_budget_goes_first() {
    let lines = ["n1/app 1 <- n3/budget", "n2/app 1 <- n3/budget", "n3/budget 1"];
    let old = generation(1, &lines);
    let new = generation(2, &["n1/app 2 <- n3/budget", "n2/app 2 <- n3/budget", "n3/budget 2"]);
    assert_eq!(groups(&between(Some(&old), &new)), ["n1", "n2", "n3"]);
    let without = generation(1, &["n1/app 1", "n2/app 1", "n3/other 1"]);
    assert_eq!(groups(&between(Some(&without), &new)), ["n3", "n1", "n2"]);
}

#[test]
fn the_coupling_follows_waits_of_the_switch_order() {
    let lines = ["n1/a 1", "n2/b 1", "n3/c 1", "n4/d 1"];
    let (old, mut new) = (generation(1, &lines), generation(2, &lines));
    let mut order = SwitchOrder::free(GenerationNumber(1), GenerationNumber(2));
    order.waits.insert(name("n1"), [id("n2/gone")].into());
    order.after.insert(id("n2/gone"), [id("n3/gone")].into());
    new.manifest.switches.push(order);
    let coupling = between(Some(&old), &new);
    assert_eq!(
        closure(&coupling, &["n1"]),
        [
            "n2 switches too: n1 waits for n2/gone to depart before it can switch",
            "n3 switches too: n1 waits for n3/gone to depart before it can switch"
        ]
    );
    assert_eq!(closure(&coupling, &["n4"]), [""; 0]);
    assert_eq!(closure(&coupling, &["n3"]), [""; 0], "who is waited for waits for nobody");
}

/// The web shop on three hosts: the versions of the database, the application servers and the load balancer, and how
/// the load balancer depends on the application servers.
fn shop([db, app, lb]: [u32; 3], word: &str) -> Generation {
    let model = format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
  n3: {{address: "tcp://127.0.0.1:3"}}
kinds:
  server:
    states: [down, outdated, up]
    preferred: up
    pre_remove: down
    check: {{run: "true"}}
    transitions:
      - {{from: down, to: up, run: "true"}}
      - {{from: outdated, to: down, run: "true"}}
      - {{from: up, to: down, run: "true"}}
cobs:
  n1/db: {{kind: server, content: {db}}}
  n2/app: {{kind: server, content: {app}, requires: [n1/db]}}
  n3/app: {{kind: server, content: {app}, requires: [n1/db]}}
  n3/lb: {{kind: server, content: {lb}, {word}: [n2/app, n3/app]}}
"#
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.yaml");
    std::fs::write(&file, model).expect("written");
    let made = make(&file, &After::default());
    assert_eq!(cobgen::diagnostic::render(&made.diagnostics, &made.sources, false), "");
    made.assembled.expect("a generation").generation
}

fn groups(coupling: &Coupling) -> Vec<String> {
    let all = coupling.groups(&["n1", "n2", "n3"].map(name).into());
    all.iter().map(|group| group.iter().map(HostName::as_str).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn needs_of_unused_transitions_couple_no_hosts() {
    // The database would stop only while the application servers are stopped; and no change starts the load balancer.
    let coupling = between(Some(&shop([1, 1, 1], "after")), &shop([1, 2, 1], "after"));
    for host in ["n1", "n2", "n3"] {
        assert_eq!(closure(&coupling, &[host]), [""; 0], "{host}");
    }
    assert_eq!(groups(&coupling), ["n1", "n2", "n3"]);
}

#[test]
fn a_change_object_stopped_for_another_needs_it_to_start_again() {
    let coupling = between(Some(&shop([1, 1, 1], "requires")), &shop([1, 2, 1], "requires"));
    assert_eq!(
        closure(&coupling, &["n2"]),
        ["n3 switches too: n3/lb needs n2/app, which changes or departs, and would wait meanwhile"]
    );
    assert_eq!(
        closure(&coupling, &["n3"]),
        ["n2 switches too: n3/lb needs n2/app, which changes, and would not converge without it"]
    );
    assert_eq!(groups(&coupling), ["n1", "n2 n3"]);
    // To stop, a change object needs the others to be stopped.
    let coupling = between(Some(&shop([1, 1, 1], "after")), &shop([2, 1, 1], "after"));
    assert_eq!(closure(&coupling, &["n1"]).len(), 2, "both application servers stop for the database");
    assert_eq!(groups(&coupling), ["n1 n2 n3"]);
}

#[test]
fn a_changed_change_object_transitions_only_with_its_own_host() {
    let coupling = between(Some(&shop([1, 1, 1], "after")), &shop([1, 2, 2], "after"));
    assert_eq!(closure(&coupling, &["n2"]), [""; 0], "the load balancer goes on as it is");
    assert_eq!(
        closure(&coupling, &["n3"]),
        ["n2 switches too: n3/lb needs n2/app, which changes, and would not converge without it"]
    );
}

#[test]
fn an_unconverged_change_object_counts_as_changing() {
    let (old, new) = (shop([1, 1, 1], "after"), shop([1, 2, 1], "after"));
    let coupling = Coupling::between(Some(&old), &new, &|cob| cob.as_str() != "n3/lb");
    assert_eq!(
        closure(&coupling, &["n2"]),
        ["n3 switches too: n3/lb needs n2/app, which changes or departs, and would wait meanwhile"]
    );
    assert_eq!(
        closure(&coupling, &["n3"]),
        ["n2 switches too: n3/lb needs n2/app, which changes, and would not converge without it"]
    );
    let coupling = Coupling::between(Some(&old), &new, &|cob| cob.as_str() != "n1/db");
    assert_eq!(groups(&coupling), ["n1 n2 n3"], "the database may have to stop first");
}
