//! The expansion of models: kinds with their defaults, and every dependency in the paper's notation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cob_types::{CobId, Kind};
use cobgen::draft::{Draft, When};
use cobgen::expand::expand;
use cobgen::model::Model;

const HOSTS: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:7001", labels: {role: db}, vars: {disks: [sda, sdb], port: 1}}
  n2: {address: "tcp://127.0.0.1:7002", labels: {role: app}}
  n3: {address: "tcp://127.0.0.1:7003", labels: {role: app}}
kinds:
  k:
    states: [outdated, down, up]
    preferred: up
    pre_remove: down
    check: {run: "true"}
    transitions: [{from: outdated, to: down, run: x}, {from: outdated, to: up, run: x}, {from: down, to: up, run: x}, {from: up, to: down, run: x}]
"#;

/// The draft of a text, after the usual hosts and the kind `k`.
fn draft(text: &str) -> Draft {
    draft_after(text, &BTreeSet::new())
}

fn draft_after(text: &str, previous: &BTreeSet<CobId>) -> Draft {
    let expansion = expand(Model::of_text("model.yaml", &format!("{HOSTS}{text}")), previous);
    let told = cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false);
    assert_eq!(told, "");
    expansion.draft.expect("a draft")
}

/// Every dependency on its own line, sorted, without its source text.
fn arrows(draft: &Draft) -> String {
    let mut lines = BTreeSet::new();
    for (id, cob) in &draft.cobs {
        for arrow in &cob.value.arrows {
            let states: Vec<&str> = arrow.said.states.iter().map(|s| s.as_str()).collect();
            let need = format!("({}, {})", arrow.on, states.join("|"));
            lines.insert(match &arrow.said.when {
                When::Transition { from, to } => format!("({id}, {from}, {to}) <- {need}"),
                When::Lock { state } => format!("({id}, {state}) <- {need}"),
            });
        }
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

fn ids(draft: &Draft) -> Vec<&str> {
    draft.cobs.keys().map(CobId::as_str).collect()
}

fn id(text: &str) -> CobId {
    CobId::new(text).expect("an id")
}

#[test]
fn requires_makes_both_depend_on_each_other() {
    let draft = draft("cobs: {n1/a: {kind: k, requires: [n2/x]}, n2/x: {kind: k}}");
    insta::assert_snapshot!(arrows(&draft), @"
    (n1/a, down, up) <- (n2/x, up)
    (n1/a, outdated, up) <- (n2/x, up)
    (n1/a, up) <- (n2/x, up)
    (n2/x, outdated, down) <- (n1/a, down)
    (n2/x, outdated, up) <- (n1/a, down)
    (n2/x, up, down) <- (n1/a, down)
    ");
    // A dependency names the line of the model that it comes from.
    let arrow = &draft.cobs[&id("n2/x")].value.arrows[0];
    assert_eq!((&*arrow.said.words, arrow.said.place.line, arrow.said.place.column), ("requires: [n2/x]", 14, 35));
}

#[test]
fn after_is_the_first_half_alone() {
    let draft = draft("cobs: {n1/a: {kind: k, after: [n2/x]}, n2/x: {kind: k}}");
    insta::assert_snapshot!(arrows(&draft), @"
    (n1/a, down, up) <- (n2/x, up)
    (n1/a, outdated, up) <- (n2/x, up)
    ");
}

#[test]
fn wants_is_after_where_it_exists() {
    let model = "cobs: {n1/a: {kind: k, wants: [n1/x, n1/nothing-like-it]}, n1/x: {kind: k}}";
    let draft = draft(model);
    insta::assert_snapshot!(arrows(&draft), @"
    (n1/a, down, up) <- (n1/x, up)
    (n1/a, outdated, up) <- (n1/x, up)
    ");
}

#[test]
fn restarts_on_is_after_and_rests_on_the_content() {
    let draft =
        draft("cobs: {n1/a: {kind: k, restarts_on: [x, y], reloads_on: [x]}, n1/x: {kind: k}, n1/y: {kind: k}}");
    insta::assert_snapshot!(arrows(&draft), @"
    (n1/a, down, up) <- (n1/x, up)
    (n1/a, down, up) <- (n1/y, up)
    (n1/a, outdated, up) <- (n1/x, up)
    (n1/a, outdated, up) <- (n1/y, up)
    ");
    assert_eq!(draft.cobs[&id("n1/a")].value.restarts_on, [id("n1/x"), id("n1/y")]);
}

#[test]
fn excludes_gives_needs_and_grants_in_both_directions() {
    let draft = draft("cobs: {n1/a: {kind: k, preferred: down, excludes: [x]}, n1/x: {kind: k}}");
    insta::assert_snapshot!(arrows(&draft), @"
    (n1/a, down, up) <- (n1/x, down)
    (n1/a, outdated, up) <- (n1/x, down)
    (n1/a, up) <- (n1/x, down)
    (n1/x, down, up) <- (n1/a, down)
    (n1/x, outdated, up) <- (n1/a, down)
    (n1/x, up) <- (n1/a, down)
    ");
    assert_eq!(draft.cobs[&id("n1/a")].value.preferred, "down");
}

#[test]
fn a_service_with_actions_takes_tokens_on_each_node() {
    let text = r#"
budgets: {app: {at_most: 1}}
services:
  app: {budget: "{{ 'ap' ~ 'p' }}", actions: {configure: "true", start: "true", stop: "true"}}
clusters: {c: {services: {app: [n2, n3]}}}
"#;
    let draft = draft(text);
    let members: Vec<_> =
        draft.cobs.iter().filter_map(|(id, cob)| Some((id.to_string(), cob.value.budget.as_ref()?))).collect();
    assert_eq!(members.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["n2/app/instance", "n3/app/instance"]);
    assert!(members.iter().all(|(_, token)| token.value.to_string() == "n2/budget/app@open"));
}

#[test]
fn a_budget_stands_with_its_first_member_or_where_it_is_told_to() {
    let text = r#"
budgets: {app: {at_most: 2}, db: {at_most: 1, host: n3}}
services:
  app: {cobs: {server: {kind: k, budget: app}}}
  db: {cobs: {server: {kind: k, budget: "{{ 'd' ~ 'b' }}"}}}
clusters: {c: {services: {app: [n2, n3], db: [n1, n2]}}}
"#;
    let draft = draft(text);
    let told = |name: &str| {
        let cob = &draft.cobs[&id(name)].value;
        (cob.budget.as_ref().map(|b| b.value.to_string()), cob.at_most)
    };
    assert_eq!(told("n3/app/server"), (Some("n2/budget/app@open".to_owned()), None));
    assert_eq!(told("n1/db/server"), (Some("n3/budget/db@open".to_owned()), None));
    assert_eq!(told("n2/budget/app"), (None, Some(2)));
    assert_eq!(told("n3/budget/db"), (None, Some(1)));
    assert_eq!(ids(&draft).len(), 6);
}

#[test]
fn dependencies_written_out_stay_as_they_are() {
    let draft = draft(
        "
cobs:
  n1/net: {kind: k}
  n2/mdt: {kind: k}
  n1/ost0:
    kind: k
    transitions: [{from: down, to: up, needs: [n2/mdt@up|outdated, n1/net@up]}]
    locks: [{state: up, needs: [n1/net@up]}]
",
    );
    insta::assert_snapshot!(arrows(&draft), @"
    (n1/ost0, down, up) <- (n1/net, up)
    (n1/ost0, down, up) <- (n2/mdt, up|outdated)
    (n1/ost0, up) <- (n1/net, up)
    ");
    let words: Vec<&str> = draft.cobs[&id("n1/ost0")].value.arrows.iter().map(|a| &*a.said.words).collect();
    insta::assert_snapshot!(words.join("\n"), @"
    transitions: [{from: down, to: up, needs: [n2/mdt@up|outdated]}]
    transitions: [{from: down, to: up, needs: [n1/net@up]}]
    locks: [{state: up, needs: [n1/net@up]}]
    ");
}

#[test]
fn a_service_is_on_each_of_its_nodes_and_stays_on_it() {
    let draft = draft(
        "
services:
  db:
    cobs:
      config: {kind: k}
      server: {kind: k, after: [config]}
clusters: {c: {services: {db: {label: role=app}}}}
",
    );
    insta::assert_snapshot!(arrows(&draft), @"
    (n2/db/server, down, up) <- (n2/db/config, up)
    (n2/db/server, outdated, up) <- (n2/db/config, up)
    (n3/db/server, down, up) <- (n3/db/config, up)
    (n3/db/server, outdated, up) <- (n3/db/config, up)
    ");
}

#[test]
fn a_service_dependency_means_its_ready_objects_on_all_nodes() {
    let text = "
services:
  db: {cobs: {config: {kind: k}, server: {kind: k, after: [config]}}}
  app: {after: [db], cobs: {package: {kind: k}, server: {kind: k, after: [package]}}}
clusters: {c: {services: {db: [n1, n2], app: [n3]}}}
";
    insta::assert_snapshot!(arrows(&draft(text)), @"
    (n1/db/server, down, up) <- (n1/db/config, up)
    (n1/db/server, outdated, up) <- (n1/db/config, up)
    (n2/db/server, down, up) <- (n2/db/config, up)
    (n2/db/server, outdated, up) <- (n2/db/config, up)
    (n3/app/server, down, up) <- (n1/db/server, up)
    (n3/app/server, down, up) <- (n2/db/server, up)
    (n3/app/server, down, up) <- (n3/app/package, up)
    (n3/app/server, outdated, up) <- (n1/db/server, up)
    (n3/app/server, outdated, up) <- (n2/db/server, up)
    (n3/app/server, outdated, up) <- (n3/app/package, up)
    ");
    let named = text.replace("db: {cobs", "db: {ready: [config], cobs");
    let lines = arrows(&draft(&named));
    assert!(lines.contains("(n3/app/server, down, up) <- (n1/db/config, up)"), "{lines}");
    assert!(!lines.contains("(n3/app/server, down, up) <- (n1/db/server, up)"), "{lines}");
}

#[test]
fn an_object_that_a_gate_requires_waits_for_other_services() {
    let draft = draft(
        "
services:
  db: {cobs: {server: {kind: k}}}
  app:
    after: [db]
    cobs:
      server: {kind: k}
      answers: {kind: http-check, requires: [server], content: {url: 'http://127.0.0.1:80/'}}
clusters: {c: {services: {db: [n1], app: [n2]}}}
",
    );
    let lines = arrows(&draft);
    for line in ["(n2/app/answers, down, up) <- (n1/db/server, up)", "(n2/app/server, down, up) <- (n1/db/server, up)"]
    {
        assert!(lines.contains(line), "{lines}");
    }
}

#[test]
fn on_says_which_nodes() {
    let on = |on: &str| {
        let text = format!(
            "
services:
  db: {{cobs: {{server: {{kind: k}}}}}}
  app: {{cobs: {{server: {{kind: k, after: [{{cob: db/server, on: {on}}}]}}, peer: {{kind: k, after: [{{cob: server, on: peers}}]}}}}}}
clusters: {{c: {{services: {{db: [n3, n1, n2], app: [n1, n2]}}}}}}
"
        );
        let found: BTreeSet<String> =
            draft(&text).cobs[&id("n1/app/server")].value.arrows.iter().map(|a| a.on.to_string()).collect();
        found.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(on("all"), "n1/db/server n2/db/server n3/db/server");
    assert_eq!(on("same-node"), "n1/db/server");
    assert_eq!(on("first"), "n3/db/server");
    assert_eq!(on("any"), "n1/db/server");
    assert_eq!(on("peers"), "n2/db/server n3/db/server");
    assert_eq!(on("host n2"), "n2/db/server");
    assert_eq!(on("{label: role=app}"), "n2/db/server n3/db/server");
    assert_eq!(on("label role=app"), "n2/db/server n3/db/server");
}

#[test]
fn the_own_clusters_service_is_meant_first() {
    let draft = draft(
        "
services: {db: {cobs: {server: {kind: k}}}, app: {cobs: {server: {kind: k, after: [db]}}}}
clusters: {c1: {services: {db: [n1], app: [n2]}}, c2: {services: {db: [n3]}}}
",
    );
    insta::assert_snapshot!(arrows(&draft), @"
    (n2/app/server, down, up) <- (n1/db/server, up)
    (n2/app/server, outdated, up) <- (n1/db/server, up)
    ");
}

#[test]
fn place_and_loops_and_conditions_choose() {
    let text = r#"
services:
  db:
    cobs:
      first: {kind: k, place: first}
      host: {kind: k, place: n2}
      label: {kind: k, place: {label: role=db}}
      "disk-{{ d }}": {for: {d: host.vars.disks}, when: host.vars.disks, kind: k, content: {device: "{{ d }}"}}
      "pair-{{ a }}-{{ b }}": {for: {a: [1, 2], b: [1, 2]}, when: "a < b", place: first, kind: k}
      never: {kind: k, when: "false"}
clusters: {c: {services: {db: [n2, n1]}}}
"#;
    let found = draft(text);
    insta::assert_snapshot!(ids(&found).join("\n"), @"
    n1/db/disk-sda
    n1/db/disk-sdb
    n1/db/label
    n2/db/first
    n2/db/host
    n2/db/pair-1-2
    ");
    assert_eq!(found.cobs[&id("n1/db/disk-sdb")].value.content, serde_json::json!({"device": "sdb"}));
    // It keeps its place.
    let previous = BTreeSet::from([id("n1/db/first")]);
    assert!(ids(&draft_after(text, &previous)).contains(&"n1/db/first"));
}

#[test]
fn templates_know_hosts_clusters_and_variables() {
    let draft = draft(
        r#"
variables:
  all: {v: all, w: all, x: all, y: all, z: all}
  label: {role=db: {w: label, x: label, y: label, z: label}}
  service: {db: {x: service, y: service, z: service}}
  cluster: {c: {y: cluster, z: cluster}}
  host: {n1: {z: host}}
services:
  db:
    cobs:
      a:
        kind: k
        content:
          text: "{{ v }} {{ w }} {{ x }} {{ y }} {{ z }}"
          number: "{{ port }}"
          sum: "{{ port + 1 }}"
          list: "{{ host.vars.disks }}"
          host: "{{ host.name }} {{ host.ip }} {{ host.labels.role }}"
          cluster: "{{ cluster.name }} {{ cluster.config.size }}"
          node: "{{ node.name }} {{ node.index }} {{ node.services | join('+') }}"
          peers: "{{ peers | map(attribute='name') | join(',') }}"
          on: "{% for h in on('app') %}{{ h.ip }};{% endfor %}"
          shell: "${x} #{y}"
        place: n1
  app: {cobs: {s: {kind: k, place: first}}}
clusters: {c: {config: {size: 3}, services: {db: [n2, n1], app: [n2, n3]}}}
"#,
    );
    let content = &draft.cobs[&id("n1/db/a")].value.content;
    insta::assert_snapshot!(format!("{content:#}"), @r##"
    {
      "cluster": "c 3",
      "host": "n1 127.0.0.1 db",
      "list": [
        "sda",
        "sdb"
      ],
      "node": "n1 1 db",
      "number": 1,
      "on": "127.0.0.1;127.0.0.1;",
      "peers": "n2",
      "shell": "${x} #{y}",
      "sum": 2,
      "text": "all label service cluster host"
    }
    "##);
}

#[test]
fn a_kind_gets_its_defaults() {
    let model = r#"
security: loopback-only
hosts: {n1: {}}
kinds:
  simple:
    states: [outdated, down, up]
    preferred: up
    pre_remove: down
    check: {run: "echo up"}
    timeout: 2m
    transitions:
      - {from: down, to: up, run: "true", timeout: 500ms, retries: 0, revert: "false", failure: down}
      - {from: up, to: down, run: [/bin/true, --now], irreversible: true}
cobs: {n1/a: {kind: simple}}
"#;
    let expansion = expand(Model::of_text("model.yaml", model), &BTreeSet::new());
    let draft = expansion.draft.expect("a draft");
    insta::assert_snapshot!(told(&draft.kinds["simple"].value), @r#"
    simple (command): outdated down up; on up, off down; priority down up outdated; check Some(Shell("echo up")) 30000 ms
      down -> up: Some(Shell("true")), 500 ms, grace 10000, 0 retries after 1000, failure Some(down), revert Some(Shell("false"))
      up -> down: Some(Argv(["/bin/true", "--now"])), 120000 ms, grace 10000, 2 retries after 1000, failure None, revert None, irreversible
    "#);
}

#[test]
fn a_revert_stands_in_where_no_moves_lead_back() {
    let model = r#"
security: loopback-only
hosts: {n1: {}}
kinds:
  chain:
    states: [down, half, up, outdated]
    preferred: up
    pre_remove: down
    check: {run: "echo up"}
    transitions:
      - {from: down, to: half, run: "one", revert: "undo one", timeout: 1s, failure: down}
      - {from: half, to: up, run: "two", revert: [undo, two]}
      - {from: outdated, to: up, run: "three", irreversible: true}
  round:
    states: [down, half, up]
    preferred: up
    pre_remove: down
    check: {run: "echo up"}
    transitions:
      - {from: down, to: up, run: "one", revert: "never used"}
      - {from: up, to: half, run: "two"}
      - {from: half, to: down, run: "three"}
cobs: {n1/a: {kind: chain}, n1/b: {kind: round}}
"#;
    let expansion = expand(Model::of_text("model.yaml", model), &BTreeSet::new());
    let draft = expansion.draft.expect("a draft");
    let moves = |kind: &str| told(&draft.kinds[kind].value).lines().skip(1).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(moves("chain"), @r#"
    down -> half: Some(Shell("one")), 1000 ms, grace 10000, 2 retries after 1000, failure Some(down), revert Some(Shell("undo one"))
    half -> up: Some(Shell("two")), 300000 ms, grace 10000, 2 retries after 1000, failure None, revert Some(Argv(["undo", "two"]))
    outdated -> up: Some(Shell("three")), 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None, irreversible
    half -> down: Some(Shell("undo one")), 1000 ms, grace 10000, 2 retries after 1000, failure None, revert None
    up -> half: Some(Argv(["undo", "two"])), 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
    "#);
    insta::assert_snapshot!(moves("round"), @r#"
    down -> up: Some(Shell("one")), 300000 ms, grace 10000, 2 retries after 1000, failure None, revert Some(Shell("never used"))
    up -> half: Some(Shell("two")), 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
    half -> down: Some(Shell("three")), 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
    "#);
}

#[test]
fn built_in_kinds_are_as_documented() {
    let draft = draft(
        r#"
cobs:
  n1/1: {kind: service, content: {start: [sleep, "9"], stop: "true", status: "true"}}
  n1/2: {kind: wait, content: {seconds: 1}}
  n1/3: {kind: tcp-check, content: {address: "127.0.0.1:80"}}
  n1/4: {kind: http-check, content: {url: "http://127.0.0.1/", status: 204}}
  n1/5: {kind: noop, budget: b}
budgets: {b: {at_most: 1}}
"#,
    );
    let mut text = String::new();
    for kind in draft.kinds.values() {
        writeln!(text, "{}\n", told(&kind.value)).expect("a string takes all");
    }
    insta::assert_snapshot!(text, @"
    budget (budget): open; on open, off open; priority open; check None 30000 ms

    http-check (http-check): down up; on up, off down; priority down up; check None 30000 ms
      down -> up: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      up -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None

    noop (noop): down up outdated; on up, off down; priority down up outdated; check None 30000 ms
      down -> up: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      up -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      outdated -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      outdated -> up: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None

    service (service): down up outdated failed; on up, off down; priority down up outdated failed; check None 30000 ms
      down -> up: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      up -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      outdated -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      failed -> up: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      failed -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None

    tcp-check (tcp-check): down up; on up, off down; priority down up; check None 30000 ms
      down -> up: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      up -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None

    wait (wait): down up; on up, off down; priority down up; check None 30000 ms
      down -> up: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
      up -> down: None, 300000 ms, grace 10000, 2 retries after 1000, failure None, revert None
    ");
}

#[test]
fn scripts_with_equal_text_share_a_kind() {
    let script = |state: &str| {
        format!(
            "{{kind: script, content: {{v: 1, check: {{run: \"echo {state}\"}}, transitions: [{{from: down, to: up, run: \"true\"}}]}}}}"
        )
    };
    let draft = draft(&format!("cobs: {{n1/a: {0}, n1/b: {0}, n1/c: {1}}}", script("up"), script("down")));
    let kind = |name: &str| draft.cobs[&id(name)].value.kind.clone();
    assert_eq!(kind("n1/a"), kind("n1/b"));
    assert_ne!(kind("n1/a"), kind("n1/c"));
    assert!(kind("n1/a").as_str().starts_with("script."), "{}", kind("n1/a"));
    assert_eq!(draft.kinds[&kind("n1/a")].value.backend, "command");
}

#[test]
fn between_large_services_stands_a_gate() {
    let cobs: String = (0..20).map(|i| format!("      c{i}: {{kind: k}}\n")).collect();
    let text = format!(
        "
services:
  db:
    cobs:
{cobs}
  app:
    requires: [db]
    cobs:
{cobs}
clusters: {{c: {{services: {{db: [n1, n2], app: [n2, n3]}}}}}}
"
    );
    let draft = draft(&text);
    let count = draft.cobs.values().map(|c| c.value.arrows.len()).sum::<usize>();
    // 40 require the gate and the gate requires 40, instead of 40 x 40 dependencies.
    assert_eq!(count, 40 * (3 + 3) + 40 * (3 + 3), "{}", arrows(&draft));
    assert_eq!(draft.cobs.len(), 81);
    let lines = arrows(&draft);
    for line in [
        "(n3/app/c7, down, up) <- (n1/db/gate.app, up)",
        "(n3/app/c7, up) <- (n1/db/gate.app, up)",
        "(n1/db/gate.app, up, down) <- (n3/app/c7, down)",
        "(n1/db/gate.app, down, up) <- (n2/db/c3, up)",
        "(n1/db/gate.app, up) <- (n2/db/c3, up)",
        "(n2/db/c3, up, down) <- (n1/db/gate.app, down)",
    ] {
        assert!(lines.lines().any(|l| l == line), "{line} is not among\n{lines}");
    }
}

/// A chain of three services of two change objects each on this many nodes: `whole` is added to the service, `first` to
/// its first change object.
fn chain(kind: &str, nodes: usize, whole: &str, first: &str) -> String {
    let mut text = "security: loopback-only\nhosts:\n".to_owned();
    for node in 1..=nodes {
        let _ = writeln!(text, "  m{node}: {{address: \"tcp://127.0.0.{node}:7001\"}}");
    }
    text.push_str(&HOSTS[HOSTS.find("kinds:").expect("there")..]);
    text.push_str("services:\n");
    for service in 0..3 {
        let of = |word: &str| if service == 0 { String::new() } else { word.replace('S', &(service - 1).to_string()) };
        let _ = writeln!(
            text,
            "  s{service}: {{{}cobs: {{a: {{kind: {kind}{}}}, b: {{kind: {kind}, requires: [a]}}}}}}",
            of(whole),
            of(first)
        );
    }
    let all: Vec<String> = (1..=nodes).map(|node| format!("m{node}")).collect();
    let all = all.join(", ");
    text + &format!("clusters: {{c: {{services: {{s0: [{all}], s1: [{all}], s2: [{all}]}}}}}}\n")
}

#[test]
fn dependencies_grow_with_the_hosts_however_they_are_written() {
    for kind in ["k", "noop"] {
        for (whole, first) in [
            ("requires: [sS], ", ""),
            ("after: [sS], ", ""),
            ("", ", requires: [sS]"),
            ("", ", requires: [sS/b]"),
            ("", ", after: [{cob: sS/a, on: all}]"),
        ] {
            let count = |nodes: usize| {
                let model = Model::of_text("model.yaml", &chain(kind, nodes, whole, first));
                let expansion = expand(model, &BTreeSet::new());
                let told = cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false);
                assert_eq!(told, "", "{whole}{first}");
                expansion.draft.expect("a draft").cobs.values().map(|cob| cob.value.arrows.len()).sum::<usize>()
            };
            assert_eq!(count(100), 2 * count(50), "{kind}: {whole}{first}");
        }
    }
}

#[test]
fn a_gate_behind_another_gate_has_no_service_need_of_its_own() {
    let lines = arrows(&draft(
        "
services:
  db: {cobs: {server: {kind: k}}}
  app:
    requires: [db]
    cobs: {first: {kind: noop}, last: {kind: noop, requires: [first]}}
clusters: {c: {services: {db: [n1], app: [n2]}}}
",
    ));
    assert!(lines.contains("(n2/app/first, up) <- (n1/db/server, up)"), "{lines}");
    assert!(!lines.contains("(n2/app/last, up) <- (n1/db/server, up)"), "{lines}");
}

#[test]
fn of_very_many_each_host_has_a_gate_of_its_own() {
    let cobs: Vec<String> = (0..3500).map(|at| format!("c{at}: {{kind: k}}")).collect();
    let cobs = cobs.join(", ");
    let draft = draft(&format!(
        "services: {{db: {{cobs: {{{cobs}}}}}, app: {{requires: [db], cobs: {{{cobs}}}}}}}\n\
         clusters: {{c: {{services: {{db: [n1, n2, n3], app: [n1, n2, n3]}}}}}}\n"
    ));
    let gates: Vec<&str> = ids(&draft).into_iter().filter(|id| id.contains("/gate.")).collect();
    let (n1, n2) = (["n1/db/gate.app", "n1/db/gate.app.1", "n1/db/gate.app.2"], ["n2/db/gate.app", "n2/db/gate.app.1"]);
    assert_eq!(gates, [&n1[..], &n2, &["n3/db/gate.app", "n3/db/gate.app.1"]].concat());
    // The most frequent target is required by the change objects of a host, and by the gate of all hosts.
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (id, cob) in &draft.cobs {
        for arrow in &cob.value.arrows {
            named.entry(arrow.on.as_str()).or_default().insert(id.as_str());
        }
    }
    assert_eq!(named.values().map(BTreeSet::len).max(), Some(3501));
}

#[test]
fn the_order_of_keys_does_not_change_the_expansion() {
    let one = "
cobs: {n1/a: {kind: k, requires: [n2/x], content: {b: 1, a: 2}}, n2/x: {kind: k}}
services: {s: {cobs: {a: {kind: k}, b: {kind: k, after: [a]}}}, t: {requires: [s], cobs: {a: {kind: k}}}}
clusters: {c: {services: {s: [n1], t: {label: role=app}}}}
";
    let other = "
clusters: {c: {services: {t: {label: role=app}, s: [n1]}}}
services: {t: {cobs: {a: {kind: k}}, requires: [s]}, s: {cobs: {b: {after: [a], kind: k}, a: {kind: k}}}}
cobs: {n2/x: {kind: k}, n1/a: {content: {a: 2, b: 1}, requires: [n2/x], kind: k}}
";
    let (one, other) = (draft(one), draft(other));
    assert_eq!(arrows(&one), arrows(&other));
    for (id, cob) in &one.cobs {
        assert_eq!(cob.value.content.to_string(), other.cobs[id].value.content.to_string(), "{id}");
    }
}

#[test]
fn files_travel_with_their_content_and_whether_they_can_be_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("inside")).expect("made");
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    file("check.sh", "one", 0o700);
    file("lib/conf", "two", 0o600);
    file("also", "two", 0o644);
    file(
        "model.yaml",
        r#"
security: loopback-only
hosts: {n1: {}}
kinds:
  k:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "./check.sh --conf=./lib/conf > ./not-there"}
    transitions: [{from: down, to: up, run: [sh, -c, ./also]}]
cobs:
  n1/a: {kind: k}
  n1/b: {kind: service, content: {start: [./check.sh]}, files: [./also]}
"#,
        0o644,
    );
    let expansion = cobgen::expand::load(&dir.path().join("model.yaml"), &BTreeSet::new());
    let draft = expansion.draft.unwrap_or_else(|| panic!("{:?}", expansion.diagnostics));
    let listed = |files: &std::collections::BTreeMap<String, cob_types::kind::PayloadFile>| {
        let line = |(name, file): (&String, &cob_types::kind::PayloadFile)| {
            format!("{name} {:o} {}", file.mode, String::from_utf8_lossy(&draft.blobs[&file.blob]))
        };
        files.iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(listed(&draft.kinds["k"].value.files), ["also 644 two", "check.sh 755 one", "lib/conf 644 two"]);
    assert_eq!(listed(&draft.cobs[&id("n1/b")].value.files), ["also 644 two", "check.sh 755 one"]);
    assert_eq!(draft.blobs.len(), 2);
}

#[test]
fn the_model_of_init_is_valid_and_init_overwrites_no_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("new/model");
    let run = |command: &str| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = ["cobgen".into(), command.into(), folder.clone().into_os_string()];
        let mut terminal = cobgen::cli::Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false };
        let status = cobgen::cli::run(args.to_vec(), &mut terminal);
        (status, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
    };
    assert_eq!(run("init").0, 0);
    let (status, out, err) = run("check");
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.ends_with("ok: 2 hosts, 4 change objects, 12 dependencies\n"), "{out}");
    let (status, _, err) = run("init");
    assert_eq!(status, 2);
    assert!(err.contains("already contains model.yaml, check.sh, start.sh, stop.sh"), "{err}");
}

/// A kind as a few lines of text.
fn told(kind: &Kind) -> String {
    let list = |states: &[cob_types::StateName]| states.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(" ");
    let mut text = format!(
        "{} ({}): {}; on {}, off {}; priority {}; check {:?} {} ms",
        kind.name,
        kind.backend,
        list(&kind.states),
        kind.preferred,
        kind.pre_remove,
        list(&kind.priority),
        kind.check.run,
        kind.check.timeout_ms,
    );
    for t in &kind.transitions {
        let _ = write!(
            text,
            "\n  {} -> {}: {:?}, {} ms, grace {}, {} retries after {}, failure {:?}, revert {:?}{}",
            t.from,
            t.to,
            t.run,
            t.timeout_ms,
            t.grace_ms,
            t.retries,
            t.retry_delay_ms,
            t.failure,
            t.revert,
            if t.irreversible { ", irreversible" } else { "" },
        );
    }
    text
}

#[test]
fn a_link_out_of_the_folder_and_a_file_that_is_too_large_stay_at_home() {
    let dir = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("secret")).expect("linked");
    std::fs::File::create(dir.path().join("large")).and_then(|f| f.set_len((16 << 20) + 1)).expect("made");
    let model = "security: loopback-only\nhosts: {n1: {}}\ncobs: {n1/a: {kind: noop, files: [./secret, ./large]}}\n";
    std::fs::write(dir.path().join("model.yaml"), model).expect("written");
    let expansion = cobgen::expand::load(&dir.path().join("model.yaml"), &BTreeSet::new());
    let messages: Vec<&str> = expansion.diagnostics.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(messages, ["`./secret` is a link that leaves the model's folder", "`./large` is larger than 16 MiB"]);
    assert_eq!(expansion.draft, None);
}

#[test]
fn a_text_ends_as_written_with_a_template_in_it_as_without() {
    let draft = draft("cobs: {n1/a: {kind: k, content: {plain: \"x\\n\", made: \"on {{ host.name }}\\n\"}}}");
    let content = &draft.cobs[&id("n1/a")].value.content;
    assert_eq!(content, &serde_json::json!({"plain": "x\n", "made": "on n1\n"}));
}

#[test]
fn variables_of_a_service_become_texts() {
    let content = r#"{start: "x", env: {PORT: "{{ host.vars.port }}", DEBUG: true, NAME: db}}"#;
    let draft = draft(&format!("cobs: {{n1/a: {{kind: service, content: {content}}}}}"));
    let env = &draft.cobs[&id("n1/a")].value.content["env"];
    assert_eq!(env, &serde_json::json!({"PORT": "1", "DEBUG": "true", "NAME": "db"}));
}

#[test]
fn a_reload_needs_no_dependent_to_be_off() {
    let draft = draft(
        r#"
cobs:
  n1/conf: {kind: k}
  n1/db: {kind: service, reloads_on: [conf], content: {unit: db, enabled: true, on_change: reload}}
  n2/app: {kind: service, requires: [n1/db], content: {unit: app.service}}
"#,
    );
    let kinds: Vec<&str> = draft.kinds.keys().map(|k| k.as_str()).collect();
    assert_eq!(kinds, ["k", "service.unit", "service.unit-reload"]);
    insta::assert_snapshot!(arrows(&draft), @"
    (n1/db, down, up) <- (n1/conf, up)
    (n1/db, failed, up) <- (n1/conf, up)
    (n1/db, outdated, down) <- (n2/app, down)
    (n1/db, outdated, up) <- (n1/conf, up)
    (n1/db, up, down) <- (n2/app, down)
    (n2/app, down, up) <- (n1/db, up)
    (n2/app, failed, up) <- (n1/db, up)
    (n2/app, up) <- (n1/db, up)
    ");
}

#[test]
fn on_remove_keep_does_not_change_the_fingerprint() {
    let text = |on_remove: &str| {
        format!(
            "clusters: {{c: {{services: {{a: [n1]}}}}}}\nservices: {{a: {{cobs: {{x: {{kind: k{on_remove}}}}}}}}}\n"
        )
    };
    let keeps = |on_remove: &str| draft(&text(on_remove)).cobs["n1/a/x"].value.keep;
    assert_eq!((keeps(""), keeps(", on_remove: undo"), keeps(", on_remove: keep")), (false, false, true));
    let print = |on_remove: &str| {
        let (first, none) = (cob_types::GenerationNumber(1), cob_types::GenerationNumber(0));
        let made = cobgen::generation::assemble(draft(&text(on_remove)), first, none).expect("fits together");
        made.generation.bundles["n1"].cobs["n1/a/x"].fingerprint
    };
    assert_eq!(print(""), print(", on_remove: keep"));
}

#[test]
fn templates_read_facts_and_unused_facts_change_no_content() {
    let of = |facts: &str| {
        draft(&format!(
            "facts:\n{facts}clusters: {{c: {{services: {{a: [n1]}}}}}}\nservices:\n  a:\n    cobs:\n      \
             x: {{kind: k, content: {{jobs: \"{{{{ host.facts.cpus * 2 }}}}\", other: \"{{{{ facts.n2.memory_bytes }}}}\"}}}}\n      \
             \"disk-{{{{ d }}}}\": {{for: {{d: host.facts.disks}}, kind: k}}\n"
        ))
    };
    let n1 = |kernel| format!("  n1: {{cpus: 4, disks: {{sda: {{bytes: 1}}, sdb: {{bytes: 2}}}}, kernel: {kernel}}}\n");
    let n2 = "  n2: {memory_bytes: 1024}\n";
    let first = of(&format!("{}{n2}", n1("a")));
    assert_eq!(first.cobs["n1/a/x"].value.content, serde_json::json!({"jobs": 8, "other": 1024}));
    assert_eq!(ids(&first), ["n1/a/disk-sda", "n1/a/disk-sdb", "n1/a/x"]);
    // Facts of a host outside the model are no mistake: facts come from all hosts that were asked.
    let second = of(&format!("{}{n2}  n9: {{}}\n", n1("b")));
    let contents = |draft: &Draft| draft.cobs.values().map(|cob| cob.value.content.clone()).collect::<Vec<_>>();
    assert_eq!(contents(&first), contents(&second));
}

#[test]
fn the_mode_of_an_object_overrides_the_mode_of_its_host() {
    let hosts = HOSTS.replace("role: app}}\n  n3", "role: app}, mode: observe}\n  n3");
    let text = "
clusters: {c: {services: {a: [n1, n2]}}}
services:
  a:
    cobs:
      x: {kind: k}
      taken: {kind: k, mode: manage}
      seen: {kind: k, mode: observe}
      gate: {kind: noop}
      port: {kind: tcp-check, content: {address: \"127.0.0.1:1\"}}
cobs: {n1/hand: {kind: k}, n2/hand: {kind: k}}
";
    let expansion = expand(Model::of_text("model.yaml", &format!("{hosts}{text}")), &BTreeSet::new());
    assert_eq!(cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false), "");
    let draft = expansion.draft.expect("a draft");
    let observed: Vec<&str> =
        draft.cobs.iter().filter(|(_, cob)| cob.value.observe).map(|(id, _)| id.as_str()).collect();
    assert_eq!(observed, ["n1/a/seen", "n2/a/port", "n2/a/seen", "n2/a/x", "n2/hand"]);
}

#[test]
fn a_host_without_an_address_is_told_of_once() {
    let text = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:7001\"}, n2: {}}\ncobs:\n  \
                n1/a: {kind: noop}\n  n2/b: {kind: noop, requires: [n1/a]}\n  n2/c: {kind: noop, after: [n1/a]}\n  \
                n2/d: {kind: noop, requires: [n1/a]}\n";
    let expansion = expand(Model::of_text("model.yaml", text), &BTreeSet::new());
    let told: Vec<&str> = expansion.diagnostics.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(told, ["a dependency across hosts, as in 2 more places, but n2 has no address"]);
}

#[test]
fn a_package_is_installed_while_the_units_that_it_would_start_are_masked() {
    let text = "
cobs:
  n1/pkg: {kind: package, content: {name: postgresql}}
  n1/other: {kind: package, content: {name: other}}
  n1/conf: {kind: file-tree, requires: [pkg], content: {files: {/etc/x: {content: a}}}}
  n1/db: {kind: service, restarts_on: [conf], content: {unit: postgresql, mask: true}}
  n1/plain: {kind: service, requires: [other], content: {unit: other}}
";
    let drafted = draft(text);
    let lines = arrows(&drafted);
    // Also through an intermediate change object.
    assert!(lines.contains("(n1/pkg, absent, present) <- (n1/db, down)"), "{lines}");
    assert!(!lines.contains("(n1/other, absent, present)"), "{lines}");
    // A change object in observe mode installs no software.
    let observed = arrows(&draft(&text.replace("n1/pkg: {", "n1/pkg: {mode: observe, ")));
    assert!(!observed.contains("(n1/pkg, absent, present)"), "{observed}");
}

#[test]
fn timeouts_of_a_service_do_not_change_its_content() {
    let text = "
cobs:
  n1/a: {kind: service, content: {start: x}}
  n1/b: {kind: service, content: {start: x, timeout: 30s, grace: 1m, retries: 5, retry_delay: 3s}}
  n1/c: {kind: service, content: {unit: x, timeout: 30s}}
";
    let draft = draft(text);
    let cob = |name: &str| &draft.cobs[&id(name)].value;
    assert_eq!(cob("n1/a").content, cob("n1/b").content);
    let kind = &draft.kinds[&cob("n1/b").kind].value;
    assert!(kind.continues(&draft.kinds[&cob("n1/a").kind].value));
    for transition in &kind.transitions {
        let told = (transition.timeout_ms, transition.grace_ms, transition.retries, transition.retry_delay_ms);
        assert_eq!(told, (30_000, 60_000, 5, 3_000));
    }
    let unit = &draft.kinds[&cob("n1/c").kind].value;
    assert!(unit.name.as_str().starts_with("service.unit.") && unit.transitions.iter().all(|t| t.timeout_ms == 30_000));
}
