//! Errors and warnings of the commands, with `--json` as from `check`.

use cobgen::cli::{self, Terminal};
use serde_json::Value;

/// Exit status, output, error output.
fn cobgen(args: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("cobgen").chain(args.iter().copied()).map(Into::into);
    let status =
        cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
    (status, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

/// A folder with a valid model.
struct Work(tempfile::TempDir);

const MODEL: &str = r#"
security: loopback-only
providers: {p: {}}
hardwaretypes: {small: {providers: {p: {}}}}
imagetypes: {img: {providers: {p: {}}}}
services:
  db: {actions: {start: {run: "true"}, stop: {run: "true"}}}
  app: {actions: {start: {run: "true"}, stop: {run: "true"}}}
templates:
  shop:
    defaults: {services: [db, app]}
    constraints: {services: {db: {quantities: {max: 1}}, app: {quantities: {min: 1}}}}
clusters:
  shop: {template: shop, nodes: 3, address: "tcp://127.0.0.{{ host.vars.index }}:7077"}
"#;

impl Work {
    fn new() -> Self {
        let work = Self(tempfile::tempdir().expect("a folder"));
        work.write("model.yaml", MODEL);
        work
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name).to_str().expect("UTF-8").to_owned();
        std::fs::write(&path, text).expect("written");
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// The names of the nodes in the output of `solve`.
    fn nodes(&self, more: &[&str]) -> Vec<String> {
        let (status, out, err) = cobgen(&[&["solve", &self.path("model.yaml"), "--json"], more].concat());
        assert_eq!((status, err.as_str()), (0, ""), "{out}");
        let all: Value = serde_json::from_str(&out).expect("JSON");
        let nodes = all["clusters"][0]["nodes"].as_array().expect("nodes").clone();
        nodes.iter().map(|n| n["name"].as_str().expect("a name").to_owned()).collect()
    }
}

#[test]
fn refusals_are_json_with_the_json_option() {
    let work = Work::new();
    let (model, none, folder) = (work.path("model.yaml"), work.path("none"), work.path(""));
    let wrong = work.write("wrong.yaml", "services: {db: {bos: 1}}\n");
    let text = work.write("text.json", "{}");
    let existing = ["--existing", text.as_str()];
    let cases: Vec<Vec<&str>> = vec![
        vec!["solve", &model, "--cluster", "shp"],
        vec!["solve", &model, "--existing", &none],
        [&["solve", &model][..], &existing].concat(),
        vec!["solve", &model, "--exclude", &none],
        vec!["solve", &model, "--depot", &none],
        vec!["solve", &wrong],
        vec!["plan", &model, "--operation", "create", "--cluster", "shp"],
        vec!["plan", &model, "--operation", "expand"],
        vec!["plan", &model, "--operation", "create", "--durations", &none],
        vec!["plan", &model, "--operation", "create", "--existing", &none],
        vec!["plan", &model, "--operation", "start", "--services", "nobody"],
        vec!["plan", &wrong, "--operation", "create"],
        vec!["show", &wrong],
        vec!["show", &model, "nobody"],
        vec!["show"],
        vec!["show", "--depot", &none],
        vec!["diff", "--depot", &none],
        vec!["diff", &model, "2", "--depot", &none],
        vec!["diff", &model, "--depot", &none],
        vec!["generate", &wrong, "--depot", &none],
        vec!["generate", &model, "--depot", &folder],
        vec!["generate", &model, "--depot", &none, "--sign-with", &text],
        vec!["log", "--depot", &none],
        vec!["check"],
        vec!["key", &model],
        vec!["solve", &model, "--nonsense"],
        vec!["nonsense"],
    ];
    for case in cases {
        let (status, out, err) = cobgen(&[&case[..], &["--json"]].concat());
        assert_eq!((status, err.as_str()), (2, ""), "{case:?}: {out}");
        let told: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{case:?}: {e}: {out}"));
        let mut all = told["diagnostics"].as_array().expect("a list").iter();
        let first = all.find(|d| d["severity"] == "error").unwrap_or_else(|| panic!("{case:?}: {out}"));
        // The text output has the same message on the error output.
        let (again, out, err) = cobgen(&case);
        let message = first["message"].as_str().expect("a text").lines().next().expect("a line");
        assert!(again == status && out.is_empty() && err.contains(message), "{case:?}: {err}");
    }
}

#[test]
fn layouts_of_unknown_clusters_are_reported() {
    let work = Work::new();
    let model = work.path("model.yaml");
    let other = r#"{"clusters": [{"name": "shp", "nodes": [{"name": "shp-1", "services": ["db"]}]}]}"#;
    let other = work.write("other.json", other);
    for option in ["--existing", "--exclude"] {
        let (status, _, err) = cobgen(&["solve", &model, option, &other]);
        let told = "has a layout of the cluster `shp`, which the model does not have\n  help: did you mean `shop`?";
        assert!(status == 0 && err.contains(told), "{option}: {err}");
    }
    for (nodes, wrong) in [
        (r#"{"name": "a b", "services": ["db"]}"#, "a b"),
        (r#"{"name": "", "services": ["db"]}"#, "cluster `shop`"),
        (r#"{"name": "n1", "services": ["../db"]}"#, "which is not the name of a service"),
        (r#"{"name": "n1", "services": []}, {"name": "n1", "services": []}"#, "two nodes have the name `n1`"),
    ] {
        let file = work.write("odd.json", &format!(r#"{{"clusters": [{{"name": "shop", "nodes": [{nodes}]}}]}}"#));
        let (status, out, err) = cobgen(&["solve", &model, "--existing", &file]);
        assert!(status == 2 && out.is_empty() && err.contains(wrong), "{nodes}: {err}");
    }
}

#[test]
fn a_depot_says_how_clusters_are() {
    let work = Work::new();
    let (model, depot) = (work.path("model.yaml"), work.path("depot"));
    // The first layout has a name that the solver would not choose again.
    work.write("model.yaml", &MODEL.replace("nodes: 3", "nodes: 4"));
    let (status, _, err) = cobgen(&["generate", &model, "--depot", &depot]);
    assert_eq!(status, 0, "{err}");
    work.write("model.yaml", &MODEL.replace("services: [db, app]", "services: [db]").replace("nodes: 3", "nodes: 1"));
    assert_eq!(work.nodes(&[]).len(), 1);
    work.write("model.yaml", MODEL);
    assert_eq!(work.nodes(&["--depot", &depot]), ["shop-1", "shop-2", "shop-3"]);
    let (status, out, err) = cobgen(&["plan", &model, "--operation", "shrink", "--depot", &depot, "--json"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    let plan: Value = serde_json::from_str(&out).expect("JSON");
    let tasks = plan["plans"][0]["tasks"].as_array().expect("tasks");
    assert!(!tasks.is_empty() && tasks.iter().all(|t| t["node"] == "shop-4"), "{out}");
}

#[test]
fn durations_of_unknown_services_and_nodes_are_reported() {
    let work = Work::new();
    let model = work.path("model.yaml");
    let times = work.write("times.yaml", "start: 1s\nstart db: 2s\nstart dbb: 3s\ncreate shop-9: 1m\n");
    let (status, out, err) = cobgen(&["plan", &model, "--operation", "create", "--durations", &times]);
    assert!(status == 0 && !out.is_empty(), "{err}");
    assert!(err.contains("the model has no service `dbb`") && err.contains("did you mean `db`?"), "{err}");
    assert!(err.contains("the model has no node `shop-9`") && err.contains("`create shop-9`"), "{err}");
    let times = work.write("times.yaml", "start: 1s\nstart db: 2s\nstart app shop-2: 3s\n");
    let (_, _, err) = cobgen(&["plan", &model, "--operation", "create", "--durations", &times]);
    assert_eq!(err, "");
}

#[test]
fn solve_refuses_the_names_that_check_refuses() {
    let work = Work::new();
    let model = work
        .write("model.yaml", &MODEL.replace("  app: {actions", "  ../app: {actions").replace(", app]", ", ../app]"));
    let (status, _, checked) = cobgen(&["check", &model]);
    assert_eq!(status, 2, "{checked}");
    let (status, out, solved) = cobgen(&["solve", &model]);
    assert!(status == 2 && out.is_empty() && solved.contains("service"), "{solved}");
    let told = |text: &str| text.matches("error: service").count();
    assert_eq!((told(&checked), told(&solved)), (1, 1), "once each: {checked}{solved}");
}

#[test]
fn shares_have_as_many_places_as_programs_write() {
    let work = Work::new();
    let with = |share: &str| {
        let text = MODEL.replace("{max: 1}", &format!("{{ratio: {{max: {share}}}}}"));
        cobgen(&["solve", &work.write("model.yaml", &text)])
    };
    for share in ["0.333333333", "0.3333333333333333", "33.33333333333333%"] {
        let (status, _, err) = with(share);
        assert!(
            status == 1 && err.contains("has no layout"),
            "a third of three nodes is not quite one: {share}: {err}"
        );
    }
    assert_eq!(with("\"0.33333333333333334\"").0, 0);
    let (status, _, err) = with("\"0.33333333333333333333333333\"");
    assert!(status == 2 && err.contains("write a fraction, for example 1/3"), "{err}");
}

#[test]
fn a_type_that_the_model_lacks_is_told() {
    let work = Work::new();
    let model = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:7077\", hardwaretype: smal}}\n";
    let (status, _, err) = cobgen(&["check", &work.write("model.yaml", model)]);
    assert!(status == 0 && err.contains("the model has no hardware types, so `smal` is unknown"), "{err}");
}

/// A model with this template in a file of a host.
fn with_template(work: &Work, template: &str) -> String {
    let quoted = serde_json::to_string(template).expect("JSON");
    let service = format!("services: {{s: {{cobs: {{x: {{kind: noop, content: {{exports: {{t: {quoted}}}}}}}}}}}}}");
    let hosts = "hosts: {n: {address: \"tcp://127.0.0.1:7077\"}}\nclusters: {c: {services: {s: [n]}}}";
    work.write("t.yaml", &format!("security: loopback-only\n{service}\n{hosts}\n"))
}

#[test]
fn a_template_that_asks_for_too_much_is_refused_before_it_has_it() {
    let work = Work::new();
    for (template, told) in [
        ("{{ range(100000)|list|join('x' * 100000) }}", "`join` would give a text of more than 16 MiB"),
        ("{{ [{'a': 'x' * 10000000}, {'a': 'x' * 10000000}]|join(attribute='a') }}", "`join` would give a text"),
        ("{{ ('x' * 100000)|join(d='y' * 1000) }}", "`join` would give a text"),
        ("{{ ('x' * 100000)|replace('x', 'y' * 100000) }}", "`replace` would give a text of more than 16 MiB"),
        ("{{ 'x'|indent(10000000000) }}", "`indent` would give a text of more than 16 MiB"),
        ("{{ 'x'|indent(width=10000000000) }}", "`indent` would give a text"),
        ("{{ '%10000000000d'|format(1) }}", "`format` would give a text of more than 16 MiB"),
        ("{{ ('%s' * 100000)|format('x' * 100000) }}", "`format` would give a text"),
        ("{{ [1,2,3]|batch(1000000000, 0) }}", "`batch` would give a list of more than 1000000 items"),
        ("{{ [1,2,3]|slice(1000000000) }}", "`slice` would give a list of more than 1000000 items"),
        ("{{ ('x ' * 10000000)|split }}", "`split` would give a list of more than 1000000 items"),
        ("{{ ('x' * 10000000)|list }}", "`list` would give a list of more than 1000000 items"),
        ("{{ [1] * 10000000 }}", "gives more than 1000000 values"),
        ("{{ 'x' * 50000000 }}", "gives texts of more than 16 MiB"),
    ] {
        let (status, out, err) = cobgen(&["check", &with_template(&work, template)]);
        assert_eq!((status, out.as_str()), (2, ""), "{template}");
        assert!(err.contains(told) && err.contains("t.yaml:2:"), "{template}: {err}");
    }
    for (template, given) in [
        ("{{ ['a', 1, true]|join('-') }} {{ 'ab'|join(d=':') }}", "a-1-true a:b"),
        ("{{ [{'a': {'b': 7}}, {'a': {'b': 8}}]|join('+', attribute='a.b') }}.", "7+8."),
        ("{{ 'a b'|replace(' ', '__') }}.{{ 'x'|indent(2, true) }}.", "a__b.  x."),
        ("{{ '%03d %s'|format(7, 'x') }}. {{ 'a,b,c'|split(',', 1)|join(';') }}", "007 x. a;b,c"),
        (
            "{{ range(3)|list|length }}{{ 'a\nb'|lines|length }}{{ [1,2,3]|batch(2, 0)|length }}{{ [1]|slice(3)|length }}.",
            "3223.",
        ),
    ] {
        let (status, out, err) = cobgen(&["show", &with_template(&work, template), "n/s/x"]);
        assert!(status == 0 && out.contains(given), "{template}: {out}{err}");
    }
}

#[test]
fn a_template_that_nests_too_deep_is_refused() {
    let work = Work::new();
    const MANY: usize = 20_000;
    let long = |head: &str, part: &str, tail: &str| format!("{head}{}{tail}", part.repeat(MANY));
    for template in [
        long("{{ ", "-", "1 }}"),
        long("{{ ", "- \n", "1 }}"),
        long("a {{ ", "-", "1 }}"),
        long("{{ ", "not ", "1 }}"),
        long("{{ ", "1 if 1 else (", "1 }}"),
        long("{{ ", "1 if 1 else ", "1 }}"),
        long("{{ 'x'", "|upper", " }}"),
        long("{{ host", ".a", " }}"),
        long("{{ host", "[0]", " }}"),
        long("{{ host", "()", " }}"),
        long("{{ 1", " + 1", " }}"),
        long("{{ 'a'", " ~ 'a'", " }}"),
        long("{{ 2", " ** 2", " }}"),
        long("{{ ", "[", "1 }}"),
        long("{{ ", "{1:", "1 }}"),
        long("{{ ", "(", "1 }}"),
        long("", "{% if 1 %}", ""),
        long("", "{% for i in [1] %}", ""),
        long("", "{% set a %}", ""),
        long("", "{% filter upper %}", ""),
        long("{% if 1 %}", "{% elif 1 %}", "{% endif %}"),
        long("{% filter upper", "|upper", " %}{% endfilter %}"),
    ] {
        let (status, out, err) = cobgen(&["check", &with_template(&work, &template)]);
        assert_eq!((status, out.as_str()), (2, ""), "{}", &template[..30]);
        let told = ["nests too deep", "recursion limits"].iter().any(|told| err.contains(told));
        assert!(told, "{}: {}", &template[..30], err.chars().take(500).collect::<String>());
    }
    // A long text without deep nesting is accepted, and so is a text just below the limit.
    let list = format!("{{{{ [{}]|length }}}}", "-1, ".repeat(5_000));
    let ifs = "{% if 1 %}a{% elif 2 %}b{% endif %}".repeat(2_000);
    let quoted = format!("{{{{ '{}' }}}}", "-".repeat(5_000));
    let raw = format!("{{% raw %}}{{{{ {} }}}}{{% endraw %}}{{# {} #}}", "-".repeat(5_000), "{{ -".repeat(5_000));
    let deep = [format!("{{{{ {}1 }}}}", "-".repeat(450)), format!("{{{{ 1{} }}}}", " + 1".repeat(225))];
    let chains = [format!("{{{{ 'x'{} }}}}", "|upper".repeat(225)), format!("{{{{ {}1 }}}}", "not ".repeat(450))];
    for template in [list, ifs, quoted, raw].iter().chain(&deep).chain(&chains) {
        let (status, _, err) = cobgen(&["check", &with_template(&work, template)]);
        assert_eq!(status, 0, "{}: {err}", &template[..20]);
    }
}

#[test]
fn a_value_that_nests_deep_does_not_take_the_stack() {
    let work = Work::new();
    let set = "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% endfor %}";
    for used in
        ["{{ ns.a }}", "{{ ('x' ~ ns.a)|length }}", "{{ [ns.a]|join|length }}", "{{ ns.a == [ns.a] }}", "{{ 1 }}"]
    {
        let model = with_template(&work, &format!("{set}{used}"));
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_cobgen")).args(["check", &model]).output();
        let output = output.expect("it runs");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{used}: {:?} {err:.300}", output.status);
    }
}

#[test]
fn a_text_that_doubles_itself_ends_the_program_and_not_the_machine() {
    let work = Work::new();
    let loops =
        "{% set ns = namespace(a='xxxxxxxxxx') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}";
    let written = format!("{{% set a = 'xxxxxxxxxx' %}}{}", "{% set a = a ~ a %}".repeat(60));
    for doubling in [loops.to_owned(), written] {
        let model = with_template(&work, &(doubling + "{{ 1 }}"));
        let run = |more: &[&str]| {
            let program = std::process::Command::new(env!("CARGO_BIN_EXE_cobgen"));
            let output = { program }.args(["check", &model]).args(more).output().expect("it runs");
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
            (output.status.code(), text(output.stdout), text(output.stderr))
        };
        let (status, out, err) = run(&[]);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{err}");
        assert!(
            err.starts_with("error: this template takes more than 512 MiB\n") && err.contains("t.yaml:2:"),
            "{err}"
        );
        let (status, out, err) = run(&["--json"]);
        assert_eq!((status, err.as_str()), (Some(2), ""), "{out}");
        let told: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((&told["ok"], &told["diagnostics"][0]["place"]["line"]), (&Value::from(false), &Value::from(2)));
    }
}

#[test]
fn a_wrong_request_is_a_wrong_model() {
    let work = Work::new();
    for (right, wrong, told) in [
        ("template: shop", "template: shp", "unknown template `shp`"),
        ("nodes: 3", "nodes: five", "unknown host `five`"),
        ("nodes: 3", "nodes: \"5\"", "write 5 without quotes"),
        ("nodes: 3", "nodes: 3, services: [bd]", "unknown service `bd`"),
    ] {
        let model = work.write("wrong.yaml", &MODEL.replace(right, wrong));
        for command in [&["solve", &model][..], &["plan", &model, "--operation", "create"], &["check", &model]] {
            let (status, out, err) = cobgen(command);
            assert_eq!((status, out.as_str()), (2, ""), "{command:?}: {err}");
            assert!(err.contains(told) && err.contains("wrong.yaml:14:"), "{command:?}: {err}");
        }
        let (status, out, _) = cobgen(&["solve", &model, "--json"]);
        assert!(status == 2 && out.contains("\"diagnostics\""), "{out}");
    }
    // A misspelt service in a template's defaults is reported once.
    let model =
        work.write("wrong.yaml", &MODEL.replace("defaults: {services: [db, app]}", "defaults: {services: [bd, app]}"));
    let (status, _, err) = cobgen(&["solve", &model]);
    assert_eq!((status, err.matches("unknown service `bd`").count()), (2, 1), "{err}");
}

#[test]
fn a_wrong_value_is_reported_once_with_its_place() {
    let work = Work::new();
    let model = work.write("wrong.yaml", &MODEL.replace("{max: 1}", "{requires: {app: x}}"));
    for command in ["check", "solve"] {
        let (status, _, err) = cobgen(&[command, &model]);
        assert_eq!((status, err.matches("error: ").count()), (2, 1), "{err}");
        assert!(err.contains("wrong.yaml:12:") && err.contains("whole number"), "{err}");
    }
}

#[test]
fn a_number_outside_of_a_macro_is_warned_of() {
    let work = Work::new();
    let text = MODEL.replace("nodes: 3,", "nodes: 3, config: {first: \"%host.service.db%[0]\"},");
    let (status, _, err) = cobgen(&["check", &work.write("model.yaml", &text)]);
    assert_eq!((status, err.matches("warning: ").count()), (0, 1), "{err}");
    assert!(
        err.contains("to select an entry, put the number inside: `%host.service.db[0]%`")
            && err.contains("model.yaml:14:"),
        "{err}"
    );
}

#[test]
fn a_thousand_warnings_hide_no_error() {
    let work = Work::new();
    let with = |more: &str| {
        let warned: String = (0..1000).map(|i| format!("  n1/c{i}: {{kind: noop, wants: [n1/x{i}]}}\n")).collect();
        let head = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:7077\"}}\ncobs:\n";
        cobgen(&["check", &work.write("many.yaml", &format!("{head}{warned}  n1/db: {{kind: noop}}\n{more}"))])
    };
    let (status, _, err) = with("");
    assert_eq!((status, err.matches("warning: ").count()), (0, 1000), "{err}");
    for wrong in [
        "  n1/z: {kind: noop, requires: [n1/dbb]}\n",
        "  n1/z: {kind: noop, transitions: [{from: down, to: up, needs: [n1/dbb@up]}]}\n",
    ] {
        let (status, out, err) = with(wrong);
        assert_eq!((status, out.as_str(), err.matches("error: ").count()), (2, "", 1), "{err}");
        assert!(err.contains("n1/dbb`") && err.contains("did you mean `n1/db`?"), "{err}");
        assert!(err.contains("no more than 1000 are shown: 1 further warning left out"), "{err}");
    }
}

#[test]
fn any_number_of_warnings_is_accepted() {
    let work = Work::new();
    let unplaced: String = (0..1001).map(|i| format!("  s{i}: {{cobs: {{x: {{kind: noop}}}}}}\n")).collect();
    let model =
        work.write("many.yaml", &format!("security: loopback-only\nhosts: {{n1: {{}}}}\nservices:\n{unplaced}"));
    let (status, _, err) = cobgen(&["check", &model]);
    assert_eq!((status, err.matches("error: ").count()), (0, 0), "{err}");
    assert!(err.contains("no more than 1000 are shown: 1 further warning left out"), "{err}");
}

#[test]
fn outcomes_that_can_not_be_read_are_told_for_machines_too() {
    let work = Work::new();
    let (model, depot) = (work.path("model.yaml"), work.path("depot"));
    assert_eq!(cobgen(&["generate", &model, "--depot", &depot]).0, 0);
    let log = || -> Value { serde_json::from_str(&cobgen(&["log", "--depot", &depot, "--json"]).1).expect("JSON") };
    assert_eq!(log()["problems"], serde_json::json!([]));
    // The commit of a generation is not an outcome.
    let generation = std::fs::read_to_string(work.path("depot/refs/generations/1")).expect("a ref");
    std::fs::write(work.path("depot/refs/outcomes"), generation).expect("written");
    let all = log();
    let problem = all["problems"][0].as_str().expect("a text");
    assert!(problem.contains("can't be read") && all["generations"][0]["generation"] == 1, "{all}");
    let (status, _, err) = cobgen(&["log", "--depot", &depot]);
    assert!(status == 0 && err.contains(problem), "{err}");
}

#[test]
fn verify_ends_as_other_commands_do() {
    let work = Work::new();
    let (model, depot) = (work.path("model.yaml"), work.path("depot"));
    let (status, _, err) = cobgen(&["verify", &model, "--runs", "0"]);
    assert!(status == 2 && err.contains("--runs"), "{err}");
    let (status, out, err) = cobgen(&["verify", &model, "--runs", "2", "--seed", &u64::MAX.to_string()]);
    assert!(status == 0 && out.contains("2 of 2 runs converged"), "{out}{err}");
    let wrong = work.write("wrong.yaml", "security: loopback-only\nhost: {}\n");
    let (status, out, err) = cobgen(&["verify", &wrong, "--json"]);
    assert!(status == 2 && out.contains("\"diagnostics\"") && err.is_empty(), "{out}{err}");
    assert_eq!(cobgen(&["verify", "--depot", &depot]).0, 2, "the depot has no generation");
    assert_eq!(cobgen(&["generate", &model, "--depot", &depot]).0, 0);
    assert_eq!(cobgen(&["verify", "--depot", &depot, "--generation", "7"]).0, 2);
    std::fs::remove_dir_all(work.path("depot/objects")).expect("removed");
    std::fs::create_dir(work.path("depot/objects")).expect("made");
    for command in ["show", "verify"] {
        let (status, out, err) = cobgen(&[command, "--depot", &depot, "--generation", "1", "--json"]);
        assert!(status == 3 && out.contains("\"diagnostics\""), "{command}: {out}{err}");
    }
}

#[test]
fn a_wrong_value_is_not_reported_as_missing_too() {
    let work = Work::new();
    let with = |content: &str| {
        let cobs = format!("services: {{s: {{cobs: {{x: {{{content}}}}}}}}}");
        let hosts = "hosts: {n: {address: \"tcp://127.0.0.1:7077\"}}\nclusters: {c: {services: {s: [n]}}}";
        let model = work.write("wrong.yaml", &format!("security: loopback-only\n{cobs}\n{hosts}\n"));
        cobgen(&["check", &model])
    };
    for (content, told) in [
        ("kind: service, content: {start: \"exec sleep {{ nope }}\"}", "nope"),
        ("kind: service, content: {unit: \"{{ nope }}\", mask: true}", "nope"),
        ("kind: service, content: {start: a, status: b, stop: \"{{ nope }}\"}", "nope"),
        ("kind: service, content: {start: a, on_change: reload, reload: \"{{ nope }}\"}", "nope"),
        ("kind: service, content: {start: a, on_change: \"{{ nope }}\", reload: b}", "nope"),
        ("kind: wait, content: {ms: .inf}", ".inf"),
        ("kind: wait, content: {seconds: \"{{ nope }}\"}", "nope"),
        ("kind: script, content: {check: \"{{ nope }}\", transitions: []}", "nope"),
        ("kind: script, content: {check: {run: \"{{ nope }}\"}, transitions: []}", "nope"),
        (
            "kind: script, content: {states: [a, b], preferred: \"{{ nope }}\", pre_remove: b, check: {run: c}, transitions: []}",
            "nope",
        ),
        ("kind: plugin, content: {run: ./p, states: [a, b], transitions: \"{{ nope }}\", preferred: a}", "nope"),
        ("kind: plugin, content: {run: p, states: \"{{ nope }}\", transitions: [{from: a, to: b}]}", "nope"),
        ("kind: file-tree, content: {root: \"{{ nope }}\", files: {a: {content: b}}}", "nope"),
    ] {
        let (status, _, err) = with(content);
        assert_eq!((status, err.matches("error: ").count()), (2, 1), "{content}: {err}");
        assert!(err.contains(told), "{content}: {err}");
    }
    let kind = "kinds: {k: {states: [a, b], preferred: b, pre_remove: a, check: CHECK, transitions: [{from: a, to: b, run: RUN}]}}";
    for (more, told) in [
        (kind.replace("CHECK", "5").replace("RUN", "x"), "`check` must be"),
        (kind.replace("CHECK", "{run: x}").replace("RUN", "{x: y}"), "`run` must be"),
        ("services: {s: {}}\nclusters: {c: {services: [s], nodes: 1.5}}".to_owned(), "`nodes` must be"),
    ] {
        let (status, _, err) = cobgen(&["check", &work.write("wrong.yaml", &format!("{more}\nhosts: {{n: {{}}}}\n"))]);
        assert_eq!((status, err.matches("error: ").count()), (2, 1), "{more}: {err}");
        assert!(err.contains(told), "{more}: {err}");
    }
}

#[test]
fn a_root_without_relative_paths_gives_a_warning() {
    let work = Work::new();
    let with = |files: &str| {
        let cob = format!("n/x: {{kind: file-tree, content: {{root: /srv, files: {{{files}}}}}}}");
        let head = "security: loopback-only\nhosts: {n: {address: \"tcp://127.0.0.1:7077\"}}\ncobs:";
        cobgen(&["check", &work.write("root.yaml", &format!("{head}\n  {cob}\n"))])
    };
    let (status, _, err) = with("/etc/a: {content: a}, /etc/b: {content: b}");
    assert!(status == 0 && err.contains("warning: all of `files` are absolute paths, so `root`"), "{err}");
    assert!(err.contains("root.yaml:4:"), "{err}");
    assert_eq!(with("/etc/a: {content: a}, b: {content: b}").2, "");
}

#[test]
fn on_conflict_without_possible_conflicts_gives_a_warning() {
    let work = Work::new();
    let with = |content: &str| {
        let cob = format!("n/x: {{kind: file-tree, content: {{{content}}}}}");
        let head = "security: loopback-only\nhosts: {n: {address: \"tcp://127.0.0.1:7077\"}}\ncobs:";
        cobgen(&["check", &work.write("decides.yaml", &format!("{head}\n  {cob}\n"))])
    };
    let (status, _, err) = with("on_conflict: ours, files: {/etc/a: {content: a}}");
    assert!(
        status == 0 && err.contains("warning: this tree has no files that users may edit, so `on_conflict`"),
        "{err}"
    );
    assert!(err.contains("decides.yaml:4:"), "{err}");
    for content in [
        "on_conflict: ours, manage: merge, files: {/etc/a: {content: a}}",
        "on_conflict: theirs, files: {/etc/a: {content: a, manage: merge}}",
        "on_conflict: theirs, on_drift: adopt, files: {/etc/a: {content: a}}",
        "on_conflict: ask, on_drift: report, files: {/etc/a: {content: a}}",
    ] {
        assert_eq!(with(content).2, "", "{content}");
    }
    let (status, _, err) = with("on_conflict: mine, manage: merge, files: {/etc/a: {content: a}}");
    assert!(status == 2 && err.contains("mine"), "{err}");
}

#[test]
fn a_label_in_another_spelling_is_warned_of() {
    let work = Work::new();
    let with = |label: &str, chosen: &str| {
        let hosts = format!(
            "  n1: {{address: \"tcp://127.0.0.1:7001\", labels: {{rack: 1}}}}\n  \
             n2: {{address: \"tcp://127.0.0.1:7002\", labels: {{rack: {label}}}}}\n"
        );
        let service = format!(
            "services: {{s: {{cobs: {{x: {{kind: noop}}}}}}}}\nclusters: {{c: {{services: {{s: {{label: {chosen}}}}}}}}}"
        );
        let model = format!(
            "security: loopback-only\nhosts:\n{hosts}{service}\nvariables: {{label: {{{chosen}: {{a: 1}}}}}}\n"
        );
        cobgen(&["check", &work.write("labels.yaml", &model)])
    };
    let told = "warning: `rack=1` does not match n2, which has the label `rack: 01`";
    let (status, _, err) = with("01", "rack=1");
    assert_eq!((status, err.matches(told).count(), err.matches("warning: ").count()), (0, 2, 2), "{err}");
    assert!(err.contains("labels.yaml:6:") && err.contains("labels.yaml:7:"), "{err}");
    assert_eq!(with("1.0", "rack=1").2.matches("warning: ").count(), 2);
    for (label, chosen) in [("\"01\"", "rack=1"), ("1", "rack=1"), ("2", "rack=1"), ("01", "rack"), ("one", "rack=1")] {
        let (status, _, err) = with(label, chosen);
        assert_eq!((status, err.as_str()), (0, ""), "{label}");
    }
    // A label without any host is an error as before, with the existing spelling.
    let (status, _, err) = with("one", "rack=01");
    assert!(status == 2 && err.contains("did you mean `rack=1`?"), "{err}");
}

#[test]
fn control_characters_are_escaped_in_messages() {
    let work = Work::new();
    work.write(
        "more\u{1b}[2J.yaml",
        "hosts: {h: {}}\ncobs:\n  h/a: {kind: \"no\\e[31mop\"}\n  h/b: {kind: \"\\u202eb\"}\n",
    );
    let (status, _, err) = cobgen(&["check", &work.path("")]);
    assert!(status == 2 && !err.contains('\u{1b}') && !err.contains('\u{202e}'), "{err:?}");
    for told in ["no\\u{1b}[31mop", "\\u{202e}b", "more\\u{1b}[2J.yaml:"] {
        assert!(err.contains(told), "{told}: {err}");
    }
}
