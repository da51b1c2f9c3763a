//! Clusters from templates: their layouts, the planner's view of them, and the generations.

use std::path::{Path, PathBuf};
use std::process::Command;

use cobgen::cli::{self, Terminal};
use serde_json::{Value, json};

/// Exit status, output, error output.
fn cobgen(args: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("cobgen").chain(args.iter().copied()).map(Into::into);
    let status =
        cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
    (status, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

fn as_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A folder with a model that can be changed.
struct Work(tempfile::TempDir);

impl Work {
    fn new(model: &str) -> Self {
        let work = Self(tempfile::tempdir().expect("a folder"));
        work.write("model.yaml", model);
        work
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("written");
        self.path(name)
    }

    fn solve(&self, more: &[&str]) -> (u8, Value) {
        let model = self.path("model.yaml");
        let (status, out, err) = cobgen(&[&["solve", &model, "--json"], more].concat());
        assert_eq!(err, "");
        (status, as_json(&out))
    }
}

/// The nodes of the only cluster with their services.
fn nodes(layout: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().expect("a text").to_owned();
    let nodes = layout["clusters"][0]["nodes"].as_array().expect("nodes");
    let services =
        |n: &Value| n["services"].as_array().expect("services").iter().map(text).collect::<Vec<_>>().join(" ");
    nodes.iter().map(|n| (text(&n["name"]), services(n))).collect()
}

/// Loom's worked example: s1 with s3, never with s2; a single s1 on five nodes.
const LOOM: &str = r#"
security: loopback-only
providers: {aws: {}}
hardwaretypes: {hw1: {providers: {aws: {}}}, hw2: {providers: {aws: {}}}}
imagetypes: {img1: {providers: {aws: {}}}, img2: {providers: {aws: {}}}}
services:
  s1: &service {actions: {install: "true", configure: "true", initialize: "true", start: "true", stop: "true"}}
  s2: *service
  s3: {<<: *service, dependencies: {runtime: {requires: [s1, s2]}}}
templates:
  t:
    defaults: {services: [s1, s2, s3], provider: aws}
    constraints:
      layout: {mustcoexist: [[s1, s3]], cantcoexist: [[s1, s2], [s2, s3]]}
      services:
        s1: {hardwaretypes: [hw1], quantities: {min: 1, max: 1}}
        s2: {imagetypes: [img1], quantities: {min: 1}}
clusters:
  c: {template: t, nodes: 5, address: "tcp://127.0.1.{{ index }}:7077"}
"#;

#[test]
fn looms_example_has_looms_layout() {
    let (status, layout) = Work::new(LOOM).solve(&[]);
    assert_eq!(status, 0);
    let node = |n: u32, services: &[&str]| json!({"name": format!("c-{n}"), "services": services, "hardwaretype": "hw1", "imagetype": "img1"});
    let nodes = [node(1, &["s1", "s3"]), node(2, &["s2"]), node(3, &["s2"]), node(4, &["s2"]), node(5, &["s2"])];
    // What a provider has to know to make these nodes.
    let provider = json!({"name": "aws", "settings": {}, "hardwaretypes": {"hw1": {}}, "imagetypes": {"img1": {}}});
    assert_eq!(layout, json!({"clusters": [{"name": "c", "solvable": true, "nodes": nodes, "provider": provider}]}));
}

#[test]
fn looms_example_has_looms_plan() {
    let work = Work::new(LOOM);
    let times = work.write("times.yaml", "\"*\": 1s\ncreate c-5: 60\ninstall s1: 50s\n");
    let model = work.path("model.yaml");
    let (status, out, err) = cobgen(&["plan", &model, "--operation", "create", "--durations", &times]);
    assert_eq!((status, err.as_str()), (0, ""));
    insta::assert_snapshot!("plan", out);
    let (_, out, _) = cobgen(&["plan", &model, "--operation", "create", "--durations", &times, "--json"]);
    let plan = &as_json(&out)["plans"][0];
    let sizes = |key: &str| {
        plan[key].as_array().expect("groups").iter().map(|g| g.as_array().map_or(0, Vec::len)).collect::<Vec<_>>()
    };
    assert_eq!(sizes("levels"), [5, 5, 5, 6, 6, 5, 5, 1, 1]);
    assert_eq!(sizes("stages"), [5, 5, 5, 5, 1, 5, 1, 5, 5, 1, 1]);
    assert_eq!((&plan["times"]["staged_ms"], &plan["times"]["ordered_ms"]), (&json!(119_000), &json!(68_000)));
    let task = |id: &Value| {
        let found = plan["tasks"].as_array().expect("tasks").iter().find(|t| t["id"] == *id).expect("there").clone();
        format!(
            "{} {} {}",
            found["action"].as_str().unwrap_or_default(),
            found["service"].as_str().unwrap_or("-"),
            found["node"].as_str().unwrap_or_default()
        )
    };
    let s3 =
        plan["tasks"].as_array().expect("tasks").iter().find(|t| t["action"] == "initialize" && t["service"] == "s3");
    let after: Vec<String> = s3.expect("there")["after"].as_array().expect("ids").iter().map(task).collect();
    assert_eq!(
        after,
        ["start s1 c-1", "configure s3 c-1", "start s2 c-2", "start s2 c-3", "start s2 c-4", "start s2 c-5"]
    );
    let (_, dot, _) = cobgen(&["plan", &model, "--operation", "stop", "--dot"]);
    assert!(dot.starts_with("digraph plan {") && dot.matches(" -> ").count() == 5, "{dot}");
}

#[test]
fn operations_that_change_a_layout_need_the_existing_layout() {
    let work = Work::new(LOOM);
    let (_, layout) = work.solve(&[]);
    let before = work.write("before.json", &layout.to_string());
    let model = work.write("model.yaml", &LOOM.replace("nodes: 5", "nodes: 6"));
    let plan = |operation: &str, more: &[&str]| cobgen(&[&["plan", &model, "--operation", operation], more].concat());
    let (status, _, err) = plan("expand", &[]);
    assert_eq!(status, 2);
    assert!(err.contains("name it with --existing"), "{err}");
    let (status, out, _) = plan("expand", &["--existing", &before]);
    assert!(status == 0 && out.starts_with("c: expand: 7 tasks in 7 stages\n"), "{out}");
    let (status, _, err) = plan("shrink", &["--existing", &before]);
    assert_eq!(status, 2);
    assert!(err.contains("shrink does not cover this difference between the layouts: the node c-6 is new"), "{err}");
    let (status, _, err) = plan("restart", &["--services", "s4"]);
    assert_eq!(status, 2);
    assert!(err.contains("the service s4 is on no node"), "{err}");
}

#[test]
fn nodes_keep_their_services_when_a_cluster_grows_or_shrinks() {
    let work = Work::new(LOOM);
    let (_, five) = work.solve(&[]);
    work.write("five.json", &five.to_string());
    let at = |count: usize, file: &str| {
        work.write("model.yaml", &LOOM.replace("nodes: 5", &format!("nodes: {count}")));
        let (status, layout) = work.solve(&["--existing", &work.path(file)]);
        assert_eq!(status, 0);
        layout
    };
    let fifty = at(50, "five.json");
    assert_eq!(nodes(&fifty)[..5], nodes(&five));
    assert_eq!(nodes(&fifty)[49], ("c-50".to_owned(), "s2".to_owned()));
    work.write("fifty.json", &fifty.to_string());
    let seven = at(7, "fifty.json");
    let left = nodes(&seven);
    assert_eq!(left.len(), 7);
    assert!(left.iter().all(|node| nodes(&fifty).contains(node)), "{left:?}");
    assert_eq!(seven["clusters"][0]["leaving"].as_array().map(Vec::len), Some(43));
    // A free number is used again.
    let gap = json!({"clusters": [{"name": "c", "nodes": [
        {"name": "c-1", "services": ["s1", "s3"], "hardwaretype": "hw1", "imagetype": "img1"},
        {"name": "c-4", "services": ["s2"], "hardwaretype": "hw2", "imagetype": "img1"},
    ]}]});
    work.write("gap.json", &gap.to_string());
    let three = at(3, "gap.json");
    let names: Vec<String> = nodes(&three).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["c-1", "c-2", "c-4"]);
    assert_eq!(three["clusters"][0]["nodes"][2]["hardwaretype"], "hw2");
}

#[test]
fn an_excluded_layout_gives_the_next_best() {
    let work = Work::new(&LOOM.replace("max: 1", "max: 2"));
    let (_, first) = work.solve(&[]);
    work.write("first.json", &first.to_string());
    let (status, second) = work.solve(&["--exclude", &work.path("first.json")]);
    assert_eq!(status, 0);
    let with_s1 = |layout: &Value| nodes(layout).iter().filter(|(_, services)| services.contains("s1")).count();
    assert_eq!((with_s1(&first), with_s1(&second)), (2, 1));
    work.write("second.json", &second.to_string());
    let (status, third) = work.solve(&["--exclude", &work.path("first.json"), "--exclude", &work.path("second.json")]);
    assert_eq!((status, &third["clusters"][0]["solvable"]), (1, &json!(false)));
}

#[test]
fn where_there_is_no_layout_the_rules_are_shown() {
    let work = Work::new(&LOOM.replace("s2: {imagetypes: [img1], quantities: {min: 1}}", "s2: {quantities: {max: 2}}"));
    let (status, answer) = work.solve(&[]);
    assert_eq!((status, &answer["clusters"][0]["solvable"]), (1, &json!(false)));
    let (status, out, err) = cobgen(&["solve", &work.path("model.yaml")]);
    assert_eq!((status, out.as_str()), (1, ""));
    insta::assert_snapshot!("contradiction", err.replace(&work.path(""), ""));
    let reason = answer["clusters"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("model.yaml:16:"), "{reason}");
    // `check` refuses the model with the same message.
    let (status, _, err) = cobgen(&["check", &work.path("model.yaml")]);
    assert!(status == 2 && err.contains("these rules contradict each other"), "{err}");
}

#[test]
fn an_unsolvable_cluster_is_reported_with_its_reason() {
    let work = Work::new(&LOOM.replace("nodes: 5", "nodes: 5, services: [s1, s3]"));
    let (status, answer) = work.solve(&[]);
    assert_eq!((status, &answer["clusters"][0]["solvable"]), (1, &json!(false)));
    let reason = answer["clusters"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("`s3` needs `s2`, which the cluster `c` lacks"), "{reason}");
    // An invalid model is refused before solving.
    work.write("model.yaml", &LOOM.replace("cantcoexist", "cantcoexists"));
    let (status, answer) = work.solve(&[]);
    assert_eq!((status, &answer["diagnostics"][0]["code"]), (2, &json!("unknown-key")));
    let (status, _, err) = cobgen(&["solve", &Work::new(LOOM).path("model.yaml"), "--cluster", "d"]);
    assert!(status == 2 && err.contains("no cluster `d`"), "{err}");
}

const INVENTORY: &str = r#"
security: loopback-only
hosts:
  big: {address: "tcp://127.0.1.1:7077", hardwaretype: large}
  n1: {address: "tcp://127.0.1.2:7077", hardwaretype: small, labels: {rack: a}}
  n2: {address: "tcp://127.0.1.3:7077", labels: {rack: a}}
hardwaretypes: {large: {}, small: {}}
services:
  db: {cobs: {server: {kind: noop, content: {exports: {type: "{{ node.hardwaretype }}", all: "{{ cluster.config.all }}"}}}}}
  app: {requires: [db], cobs: {server: {kind: noop}}}
templates:
  t:
    defaults: {services: [db, app], hardwaretype: small, config: {all: "%join(host.service.app,'+')% of {{ cluster.name }}"}}
    constraints:
      layout: {cantcoexist: [[db, app]]}
      services: {db: {hardwaretypes: [large]}, app: {hardwaretypes: [small]}}
clusters:
  c: {template: t, nodes: [{label: rack=a}, big]}
  by-hand: {services: {db: [n1]}, config: {all: x}}
"#;

#[test]
fn hosts_of_an_inventory_keep_their_own_hardware() {
    let work = Work::new(INVENTORY);
    let (status, layout) = work.solve(&["--cluster", "c"]);
    assert_eq!(status, 0);
    let on = |name: &str, service: &str| (name.to_owned(), service.to_owned());
    assert_eq!(nodes(&layout), [on("big", "db"), on("n1", "app"), on("n2", "app")]);
    // A host without types takes the types that the cluster asks for.
    assert_eq!(layout["clusters"][0]["nodes"][2]["hardwaretype"], "small");
    let (status, out, _) = cobgen(&["solve", &work.path("model.yaml")]);
    assert_eq!((status, out.lines().next()), (0, Some("by-hand: 1 node")));
    let (_, out, err) = cobgen(&["show", &work.path("model.yaml"), "big/db/server"]);
    assert!(out.contains(r#"{"exports":{"all":"n1+n2 of c","type":"large"}}"#), "{out}{err}");
    let (_, out, _) = cobgen(&["plan", &work.path("model.yaml"), "--cluster", "c", "--operation", "stop"]);
    assert!(out.contains("stage 1\n    stop app: n1, n2\n  stage 2\n    stop db: big\n"), "{out}");
}

/// Hosts that have the names of numbered nodes of a cluster.
const TYPED: &str = r#"
security: loopback-only
services:
  db: &service {actions: {install: "true", start: "true", stop: "true"}}
  app: *service
providers: {p: {}}
hardwaretypes: {big: {cost: 5, providers: {p: {}}}, small: {cost: 1, providers: {p: {}}}}
imagetypes: {deb: {providers: {p: {}}}}
hosts:
  mine-1: {address: "tcp://127.0.0.1:7001", hardwaretype: small, imagetype: deb}
  mine-2: {address: "tcp://127.0.0.1:7002", hardwaretype: small}
  mine-3: {address: "tcp://127.0.0.1:7003", hardwaretype: big, imagetype: deb}
templates:
  shop:
    defaults: {services: [db, app], provider: p}
    constraints:
      layout: {cantcoexist: [[db, app]]}
      services: {db: {hardwaretypes: [big], quantities: {max: 1}}, app: {hardwaretypes: [small]}}
clusters:
  mine: {template: shop, nodes: 3, address: "tcp://127.0.1.{{ index }}:7077"}
"#;

#[test]
fn hosts_that_are_counted_keep_their_own_hardware() {
    let on = |name: &str, service: &str| (name.to_owned(), service.to_owned());
    let work = Work::new(TYPED);
    let (_, layout) = work.solve(&[]);
    assert_eq!(nodes(&layout), [on("mine-1", "app"), on("mine-2", "app"), on("mine-3", "db")]);
    assert_eq!(layout["clusters"][0]["nodes"][2]["hardwaretype"], "big");
    // Nodes that are not hosts of the model take the remaining services.
    work.write("model.yaml", &TYPED.replace("nodes: 3", "nodes: 5").replace("  mine-2:", "  other:"));
    let (_, layout) = work.solve(&[]);
    let all: Vec<_> = (1..=5).map(|n| on(&format!("mine-{n}"), if n == 3 { "db" } else { "app" })).collect();
    assert_eq!(nodes(&layout), all);
    // A host that joins an existing cluster keeps its types, too.
    work.write("model.yaml", &TYPED.replace("nodes: 3", "nodes: 4").replace("  mine-2:", "  mine-4:"));
    let node = |n: u8, services: &str| {
        let hardware = if services == "db" { "big" } else { "small" };
        json!({"name": format!("mine-{n}"), "services": [services], "hardwaretype": hardware, "imagetype": "deb"})
    };
    let before = json!({"clusters": [{"name": "mine", "nodes": [node(1, "app"), node(2, "app"), node(3, "db")]}]});
    let existing = work.write("before.json", &before.to_string());
    let (_, layout) = work.solve(&["--existing", &existing]);
    let all: Vec<_> = (1..=4).map(|n| on(&format!("mine-{n}"), if n == 3 { "db" } else { "app" })).collect();
    assert_eq!(nodes(&layout), all);
    // Without a suitable host there is no layout.
    work.write("model.yaml", &TYPED.replace("hardwaretype: big", "hardwaretype: small"));
    assert_eq!(work.solve(&[]).0, 1);
    // Beside existing nodes, the solver does not choose a missing type of a host.
    let half = TYPED.replace("imagetypes: {", "imagetypes: {rpm: {providers: {p: {}}}, ");
    work.write("model.yaml", &half);
    let (status, layout) = work.solve(&[]);
    assert_eq!(status, 1);
    let reason = layout["clusters"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("the host mine-2 does not say its image type"), "{reason}");
}

#[test]
fn a_host_with_changed_hardware_gets_suitable_services() {
    let named = TYPED.replace("nodes: 3", "nodes: [mine-1, mine-2, mine-3]");
    let work = Work::new(&named);
    let (model, depot) = (work.path("model.yaml"), work.path("depot"));
    let generate = || {
        let (status, out, err) = cobgen(&["generate", &model, "--depot", &depot, "--json"]);
        assert_eq!(status, 0, "{err}");
        as_json(&out)
    };
    generate();
    let swapped = named.replace(
        "mine-3: {address: \"tcp://127.0.0.1:7003\", hardwaretype: big",
        "mine-3: {address: \"tcp://127.0.0.1:7003\", hardwaretype: small",
    );
    let swapped = swapped.replace("7001\", hardwaretype: small", "7001\", hardwaretype: big");
    work.write("model.yaml", &swapped);
    let (_, layout) = work.solve(&["--depot", &depot]);
    let on = |name: &str, service: &str| (name.to_owned(), service.to_owned());
    assert_eq!(nodes(&layout), [on("mine-1", "db"), on("mine-2", "app"), on("mine-3", "app")]);
    assert_eq!(layout["clusters"][0]["nodes"][0]["hardwaretype"], "big");
    assert_eq!(generate()["added"], json!(2));
    assert!(placed(&depot).contains(&"mine-1/db/instance".to_owned()));
}

/// The services of every host of a depot's newest generation.
fn placed(depot: &str) -> Vec<String> {
    let (status, out, err) = cobgen(&["show", "--depot", depot, "--json"]);
    assert_eq!(status, 0, "{err}");
    let shown = as_json(&out);
    let cobs = shown["cobs"].as_array().expect("change objects");
    cobs.iter().map(|cob| cob["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a_layout_in_the_depot_keeps_services_on_their_nodes() {
    let work = Work::new(LOOM);
    let (model, depot) = (work.path("model.yaml"), work.path("depot"));
    let generate = || {
        let (status, out, err) = cobgen(&["generate", &model, "--depot", &depot, "--json"]);
        assert_eq!(status, 0, "{err}");
        as_json(&out)
    };
    let first = generate();
    assert_eq!((&first["hosts"], &first["cobs"]), (&json!(5), &json!(6)));
    let before = placed(&depot);
    // A new spread layout would have s2 first; existing nodes stay, and the new node gets the remaining service.
    let moved = LOOM.replace("nodes: 5", "nodes: 6").replace("constraints:", "preference: spread\n    constraints:");
    work.write("model.yaml", &moved);
    let (_, by_itself) = work.solve(&[]);
    assert_eq!(nodes(&by_itself)[0].1, "s2");
    let second = generate();
    assert_eq!((&second["added"], &second["removed"]), (&json!(1), &json!(0)));
    let after = placed(&depot);
    assert!(before.iter().all(|id| after.contains(id)) && after.contains(&"c-6/s2/instance".to_owned()), "{after:?}");
    // The same model again makes no new generation.
    assert_eq!(generate()["generation"], second["generation"]);
}

/// A change object's folder and content, as its commands see them.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(place.0.path().join("state")).expect("made");
        place.content("{\"port\":1}");
        place
    }

    fn content(&self, text: &str) {
        std::fs::write(self.0.path().join("content"), text).expect("written");
    }

    fn run(&self, command: &str) -> (bool, String) {
        let output = Command::new("/bin/sh")
            .args(["-c", command])
            .current_dir(self.0.path())
            .env("COB_STATE_DIR", self.0.path().join("state"))
            .env("COB_CONTENT", self.0.path().join("content"))
            .output()
            .expect("a shell");
        (output.status.success(), String::from_utf8(output.stdout).expect("UTF-8"))
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        std::fs::remove_file(self.0.path().join("log")).ok();
        log.replace('\n', " ").trim().to_owned()
    }
}

#[test]
fn actions_move_a_service_through_coopr_states() {
    let model = r#"
security: loopback-only
hosts: {n1: {}}
services:
  db:
    actions:
      install: [sh, -c, 'echo "$COB_ACTION it''s" >> log']
      configure: echo $COB_ACTION >> log
      initialize: {run: "echo $COB_ACTION >> log; test ! -e broken", timeout: 7s, retries: 0}
      start: echo $COB_ACTION >> log
      stop: echo $COB_ACTION >> log
      remove: echo $COB_ACTION >> log
clusters: {c: {services: {db: [n1]}}}
"#;
    let draft = cobgen::expand::expand(cobgen::model::Model::of_text("model.yaml", model), &Default::default());
    let draft = draft.draft.unwrap_or_else(|| panic!("{:?}", draft.diagnostics));
    let kind = &draft.kinds.values().next().expect("a kind").value;
    let shell = |command: &Option<cob_types::Command>| match command {
        Some(cob_types::Command::Shell(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    let moves: Vec<String> = kind.transitions.iter().map(|t| format!("{} -> {}", t.from, t.to)).collect();
    assert_eq!(
        moves,
        [
            "absent -> installed",
            "installed -> configured",
            "configured -> initialized",
            "initialized -> started",
            "initialized -> stopped",
            "started -> stopped",
            "stopped -> started",
            "outdated -> stopped",
            "stopped -> absent",
            "initialized -> absent",
            "configured -> absent",
            "installed -> absent"
        ]
    );
    assert_eq!((kind.preferred.as_str(), kind.pre_remove.as_str()), ("started", "absent"));
    assert_eq!((kind.transitions[2].timeout_ms, kind.transitions[2].retries), (7000, 0));
    let place = Place::new();
    let check = || place.run(&shell(&kind.check.run)).1.trim().to_owned();
    let go = |from: &str, to: &str| {
        let found = kind.transitions.iter().find(|t| t.from == from && t.to == to);
        place.run(&shell(&found.unwrap_or_else(|| panic!("{from} -> {to}")).run)).0
    };
    assert_eq!(check(), "absent");
    assert!(go("absent", "installed"));
    assert_eq!((check().as_str(), place.log().as_str()), ("installed", "install it's"));
    assert!(go("installed", "configured"));
    assert_eq!((check().as_str(), place.log().as_str()), ("configured", "configure"));
    // A service configured with other content, and not yet initialized, is configured again.
    place.content("{\"port\":2}");
    assert_eq!(check(), "installed");
    assert!(go("installed", "configured"));
    // A failed action leaves the state unchanged.
    std::fs::write(place.0.path().join("broken"), "").expect("written");
    assert!(!go("configured", "initialized"));
    assert_eq!(check(), "configured");
    std::fs::remove_file(place.0.path().join("broken")).expect("removed");
    assert!(go("configured", "initialized") && go("initialized", "started"));
    assert_eq!((check().as_str(), place.log().as_str()), ("started", "configure initialize initialize start"));
    place.content("{\"port\":3}");
    assert_eq!(check(), "outdated");
    assert!(go("outdated", "stopped"));
    assert_eq!((check().as_str(), place.log().as_str()), ("stopped", "stop configure"));
    assert!(go("stopped", "started") && go("started", "stopped") && go("stopped", "absent"));
    assert_eq!((check().as_str(), place.log().as_str()), ("absent", "start stop remove"));
}

/// The kind that the actions of a service `db` on n1 make.
fn kind_of(actions: &str) -> cob_types::Kind {
    let model = format!(
        "security: loopback-only\nhosts: {{n1: {{}}}}\nservices: {{db: {{actions: {{{actions}}}}}}}\n\
         clusters: {{c: {{services: {{db: [n1]}}}}}}"
    );
    let draft = cobgen::expand::expand(cobgen::model::Model::of_text("model.yaml", &model), &Default::default());
    let draft = draft.draft.unwrap_or_else(|| panic!("{:?}", draft.diagnostics));
    draft.kinds.into_values().next().expect("a kind").value
}

/// The script of a kind's check, or of a transition.
fn text_of(kind: &cob_types::Kind, between: Option<(&str, &str)>) -> String {
    let run = match between {
        None => &kind.check.run,
        Some((from, to)) => {
            let found = kind.transitions.iter().find(|t| t.from == from && t.to == to);
            &found.unwrap_or_else(|| panic!("{from} -> {to}")).run
        }
    };
    match run {
        Some(cob_types::Command::Shell(text)) => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_action_ends_where_its_shell_says() {
    let place = Place::new();
    let install = |text: &str| {
        let kind = kind_of(&format!("install: {}", json!(text)));
        place.run(&text_of(&kind, Some(("absent", "installed")))).0
    };
    // `set -e` works as in any script.
    assert!(!install("set -e\necho begun >> log\nfalse\necho \"it's over\" >> log"));
    assert_eq!(place.log(), "begun");
    assert!(!place.0.path().join("state/state").exists());
    // The end of an action's text closes an open line or here-document.
    for text in ["echo $COB_ACTION >> log; true \\", "cat >> log <<END\ninstall\nEND", "echo install >> log # done"] {
        assert!(install(text), "{text}");
        assert_eq!(place.log(), "install", "{text}");
    }
    assert!(!install("exit 3") && !install("echo )"));
}

#[test]
fn a_transition_with_two_actions_has_the_sum_of_their_timeouts() {
    let outdated = |actions: &str| {
        let kind = kind_of(actions);
        let found = kind.transitions.iter().find(|t| t.from == "outdated" && t.to == "stopped").expect("a move");
        (found.timeout_ms, found.grace_ms, found.retry_delay_ms, found.retries)
    };
    let of_both = outdated(
        "start: x, stop: {run: x, timeout: 10m, grace: 30s, retries: 1}, \
         configure: {run: x, timeout: 2s, grace: 1s, retries: 3, retry_delay: 9s}",
    );
    assert_eq!(of_both, (602_000, 30_000, 9000, 3));
    // Missing settings have their usual defaults, but the retries never exceed the written number.
    let unsaid = outdated("start: x, stop: x, configure: {run: x, timeout: 2s, grace: 1s, retries: 0}");
    assert_eq!(unsaid, (302_000, 10_000, 1000, 0));
    assert_eq!(outdated("start: x, configure: x"), (300_000, 10_000, 1000, 2));
}

#[test]
fn configured_content_is_stored_as_a_digest() {
    let kind = kind_of("configure: x=1, start: x=1, stop: x=1, remove: x=1");
    let place = Place::new();
    place.content("{\"pw\":\"TopSecret\"}");
    let check = || place.run(&text_of(&kind, None)).1.trim().to_owned();
    let go = |from: &str, to: &str| place.run(&text_of(&kind, Some((from, to)))).0;
    let kept = || {
        let files = std::fs::read_dir(place.0.path().join("state")).expect("a folder");
        let texts = files.map(|f| std::fs::read_to_string(f.expect("a file").path()).expect("a text"));
        texts.collect::<String>()
    };
    assert!(go("absent", "configured") && go("configured", "started"));
    assert_eq!(check(), "started");
    assert!(!kept().contains("TopSecret"), "{}", kept());
    place.content("{\"pw\":\"Another\"}");
    assert_eq!(check(), "outdated");
    assert!(go("outdated", "stopped") && go("stopped", "started"));
    assert_eq!(check(), "started");
    // A copy by an earlier version still counts, and the next action removes it.
    let (copy, digest) = (place.0.path().join("state/content"), place.0.path().join("state/content.sha256"));
    std::fs::remove_file(&digest).expect("a digest");
    std::fs::write(&copy, "{\"pw\":\"Another\"}").expect("written");
    assert_eq!(check(), "started");
    assert!(go("started", "stopped") && !copy.exists() && digest.exists());
    assert_eq!(check(), "stopped");
    std::fs::remove_file(&digest).expect("a digest");
    std::fs::write(&copy, "{\"pw\":\"TopSecret\"}").expect("written");
    assert_eq!(check(), "outdated");
    assert!(go("stopped", "absent") && !copy.exists());
    assert_eq!(check(), "absent");
}

fn hadoop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hadoop")
}

#[test]
fn hadoop_is_laid_out_and_expanded_for_5_50_and_500_nodes() {
    let text = std::fs::read_to_string(hadoop().join("model.yaml")).expect("the model");
    let text_of_script = std::fs::read_to_string(hadoop().join("service.sh")).expect("the script");
    let mut before: Vec<(String, String)> = Vec::new();
    for count in [5, 50, 500] {
        let work = Work::new(&text.replace("nodes: 5\n", &format!("nodes: {count}\n")));
        let script = work.write("service.sh", &text_of_script);
        std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
        let (status, layout) = work.solve(&[]);
        assert_eq!(status, 0);
        let found = nodes(&layout);
        let with = |service: &str| found.iter().filter(|(_, all)| all.split(' ').any(|s| s == service)).count();
        assert_eq!((with("namenode"), with("datanode"), with("zookeeper")), (1, count - 1, 5.min(count)));
        assert_eq!(with("base"), count);
        // The nodes of a smaller cluster keep their services in a larger cluster.
        assert!(before.iter().all(|node| found.contains(node)) || count == 5, "{found:?}");
        before = found;
        let (status, out, err) = cobgen(&["check", &work.path("model.yaml")]);
        assert_eq!((status, err.as_str()), (0, ""));
        let slaves = count - 1;
        let gates = usize::from(count > 5) * 5;
        let cobs = count + 3 + 3 * slaves + 5;
        assert!(out.contains(&format!("{count} hosts")), "{out}");
        let made: usize =
            out.split(" change objects").next().and_then(|t| t.rsplit(' ').next()?.parse().ok()).unwrap_or(0);
        assert!(made >= cobs && made <= cobs + 2 * gates, "{made} change objects, {cobs} without gates");
    }
}

#[test]
fn the_order_of_files_and_sections_does_not_change_the_layout() {
    // Top-level sections begin at lines that start with a name.
    let text = std::fs::read_to_string(hadoop().join("model.yaml")).expect("the model");
    let mut sections: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with(|c: char| c.is_ascii_lowercase()) || sections.is_empty() {
            sections.push(String::new());
        }
        let last = sections.last_mut().expect("one was pushed");
        last.push_str(line);
        last.push('\n');
    }
    assert_eq!(sections.len(), 7);
    let mut answers = std::collections::BTreeSet::new();
    for turn in 0..4 {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::copy(hadoop().join("service.sh"), folder.path().join("service.sh")).expect("copied");
        for (at, section) in sections.iter().enumerate() {
            let name = format!("{}.yaml", (at * 7 + turn * 3) % sections.len().max(11));
            let mut there = std::fs::read_to_string(folder.path().join(&name)).unwrap_or_default();
            there.push_str(section);
            std::fs::write(folder.path().join(&name), there).expect("written");
        }
        let path = folder.path().to_str().expect("UTF-8");
        let (status, layout, err) = cobgen(&["solve", path, "--json"]);
        assert_eq!(status, 0, "{err}");
        let depot = folder.path().join("depot");
        let (status, _, err) = cobgen(&["generate", path, "--depot", depot.to_str().expect("UTF-8")]);
        assert_eq!(status, 0, "{err}");
        answers.insert((layout, placed(depot.to_str().expect("UTF-8"))));
    }
    assert_eq!(answers.len(), 1, "{answers:#?}");
}

#[test]
fn hadoop_starts_in_looms_order() {
    let (status, out, _) = cobgen(&["plan", hadoop().to_str().expect("UTF-8"), "--operation", "create"]);
    assert_eq!(status, 0);
    insta::assert_snapshot!("hadoop_plan", out);
}

#[test]
fn a_line_of_parents_may_be_long() {
    let mut text = LOOM.replacen("  t:\n", "  base:\n", 1);
    assert!(text.contains("  base:\n"));
    let mut templates = "templates:\n  t: {parent: p0}\n".to_owned();
    for level in 0..5_000 {
        templates += &format!("  p{level}: {{parent: p{}}}\n", level + 1);
    }
    templates += "  p5000: {parent: base}\n";
    text = text.replacen("templates:\n", &templates, 1);
    let (status, layout) = Work::new(&text).solve(&[]);
    assert_eq!((status, nodes(&layout).len()), (0, 5));
}
