//! The import of Coopr's entities: the result, and the messages about the rest.

use std::path::Path;

use cobgen::cli::{self, Terminal};

/// Exit status, output, error output.
fn cobgen(args: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("cobgen").chain(args.iter().copied()).map(Into::into);
    let status =
        cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
    (status, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

#[test]
fn coopr_entities_become_a_model_and_the_rest_is_told() {
    let (status, model, told) = cobgen(&["import", "coopr", "tests/coopr"]);
    assert_eq!(status, 0, "{told}");
    insta::assert_snapshot!("coopr_model", model);
    insta::assert_snapshot!("coopr_told", told);
}

#[test]
fn an_imported_model_is_valid() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("model");
    let name = folder.to_str().expect("UTF-8");
    assert_eq!(cobgen(&["import", "coopr", "tests/coopr", "--out", name]).0, 0);
    for name in ["db.sh", "app.sh"] {
        std::fs::write(folder.join(name), "#!/bin/sh\n").expect("written");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.join(name), executable).expect("executable");
    }
    let clusters = "security: loopback-only\nclusters: {s: {template: shop, nodes: 3, address: \"tcp://127.0.1.{{ index }}:7077\"}}\n";
    std::fs::write(folder.join("clusters.yaml"), clusters).expect("written");
    let (status, out, err) = cobgen(&["solve", name]);
    assert_eq!(status, 0, "{err}");
    assert_eq!(out, "s: 3 nodes\n  s-1, s-2 (small, debian): app, base\n  s-3 (small, debian): base, db-17\n");
    // A macro without a value is reported at each use.
    let (status, _, err) = cobgen(&["check", name]);
    assert_eq!(status, 2);
    assert!(err.contains("the cluster has no `owner`") && err.contains("for the node s-1"), "{err}");
    let clusters = clusters.replace("{template", "{owner: me, template");
    std::fs::write(folder.join("clusters.yaml"), clusters).expect("written");
    let (status, out, err) = cobgen(&["check", name]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains(": ok: 3 hosts, 6 change objects"), "{out}");
    let (_, out, _) = cobgen(&["show", name, "s-2/app/instance"]);
    assert!(out.contains(r#""db":"s-3:5432","id":"2","owner":"me""#), "{out}");
    // Existing files are not overwritten.
    let (status, _, err) = cobgen(&["import", "coopr", "tests/coopr", "--out", name]);
    assert_eq!(status, 2);
    assert!(err.contains("already exists"), "{err}");
}

#[test]
fn a_place_without_coopr_entities_is_refused() {
    let none = "holds no entities of Coopr";
    for (path, what) in
        [("tests/wrong", none), ("tests/wrong/two_owners.yaml", none), ("no/such/folder", "can't read no/such/folder")]
    {
        let (status, out, err) = cobgen(&["import", "coopr", path]);
        assert_eq!((status, out.as_str()), (2, ""), "{path}");
        assert!(err.contains(what), "{err}");
    }
    assert!(Path::new("tests/coopr").is_dir());
}

/// The parsed output of a command with `--json`, and its text.
fn json(args: &[&str]) -> serde_json::Value {
    let (status, out, err) = cobgen(args);
    assert_eq!(status, 0, "{err}");
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn an_imported_model_is_exported_as_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, export) = (dir.path().join("model.json"), dir.path().join("export.json"));
    let [model, export] = [&model, &export].map(|path| path.to_str().expect("UTF-8"));
    let first = json(&["import", "coopr", "tests/coopr", "--json"]);
    std::fs::write(model, first["model"].to_string()).expect("written");
    let exported = json(&["export", "coopr", model, "--json"]);
    assert_eq!(exported["diagnostics"], serde_json::json!([]));
    assert_eq!((&exported["entities"], &first["entities"]), (&8.into(), &8.into()));
    std::fs::write(export, exported["document"].to_string()).expect("written");
    let second = json(&["import", "coopr", export, "--json"]);
    assert_eq!(second["model"], first["model"]);
    insta::assert_snapshot!("coopr_export", cobgen(&["export", "coopr", model]).1);
}

#[test]
fn parts_of_a_model_without_a_counterpart_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.yaml");
    let text = r#"
hosts: {n1: {address: "tcp://127.0.0.1:7001"}}
providers: {lab: {type: nspawn}}
services:
  web:
    cobs: {server: {kind: noop}}
  db:
    actions:
      install: {run: ./db.sh, retries: 3}
      start: [./db.sh, start]
      stop: systemctl stop db
templates:
  shop:
    preference: pack
    defaults: {services: [web, db]}
    constraints:
      services: {db: {quantities: {min: 1, odd: true}}}
  base: {partial: true, immutable: true}
  own: {parent: shop, includes: [base]}
"#;
    std::fs::write(&model, text).expect("written");
    let exported = json(&["export", "coopr", model.to_str().expect("UTF-8"), "--json"]);
    let told = exported["diagnostics"].as_array().expect("a list").iter();
    let told: Vec<String> =
        told.map(|d| format!("{}: {}", d["place"]["line"], d["message"].as_str().expect("text"))).collect();
    let none = "has no counterpart in Coopr";
    assert_eq!(
        told,
        [
            format!("2: `hosts` in the model {none}"),
            format!("6: `cobs` in `web` {none}"),
            format!("9: `retries` in an action {none}"),
            format!("10: an action with a list of words {none}"),
            format!("11: an action that is no script beside the model (`./x`) {none}"),
            format!("14: `preference` in `shop` {none}"),
            format!("17: `odd` in `quantities` {none}"),
        ]
    );
    let document = &exported["document"];
    let action = serde_json::json!({"install": {"type": "shell", "fields": {"script": "db.sh", "args": ""}}});
    assert_eq!(document["services"][1]["provisioner"]["actions"], action);
    assert_eq!(document["clustertemplates"][1]["extends"], serde_json::json!({"name": "shop"}));
    assert_eq!(document["partialtemplates"], serde_json::json!([{"name": "base", "immutable": true}]));
}

#[test]
fn the_import_reports_names_and_scripts_that_models_refuse() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("services");
    std::fs::create_dir(&folder).expect("made");
    let entity = |file: &str, name: &str, script: &str| {
        let action = serde_json::json!({"start": {"type": "shell", "fields": {"script": script}}});
        let text = serde_json::json!({"name": name, "provisioner": {"actions": action}}).to_string();
        std::fs::write(folder.join(file), text).expect("written");
    };
    entity("blank.json", "my db", "a.sh");
    entity("up.json", "../../../evil", "a.sh");
    entity("lines.json", "two\nlines", "a.sh");
    entity("script.json", "stolen", "../../../../etc/passwd");
    entity("absolute.json", "absolute", "/etc/passwd");
    entity("good.json", "good", "./bin/a.sh");
    let from = dir.path().to_str().expect("UTF-8");
    let (status, _, told) = cobgen(&["import", "coopr", from]);
    assert_eq!(status, 0, "{told}");
    for (file, what) in [
        ("blank.json", "the name \"my db\" contains ' '"),
        ("up.json", "the name \"../../../evil\" contains '/'"),
        ("lines.json", "the name \"two\\nlines\" contains '\\n'"),
        ("script.json", "the script \"../../../../etc/passwd\" is no file below the model's folder"),
        ("absolute.json", "the script \"/etc/passwd\" is no file below the model's folder"),
    ] {
        assert!(told.contains(file) && told.contains(what), "{what}: {told}");
    }
    assert!(told.contains("the import keeps it unchanged") && !told.contains("good.json"), "{told}");
}
