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
    // The only unsupported macro is reported at each use.
    let (status, _, err) = cobgen(&["check", name]);
    assert_eq!(status, 2);
    assert!(err.contains("clusters have no owner") && err.contains("for the node s-1"), "{err}");
    let file = folder.join("templates.yaml");
    let text = std::fs::read_to_string(&file).expect("text").replace("%cluster.owner%", "me");
    std::fs::write(&file, text).expect("written");
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
fn a_folder_without_coopr_entities_is_refused() {
    for folder in ["tests/wrong", "no/such/folder"] {
        let (status, out, err) = cobgen(&["import", "coopr", folder]);
        assert_eq!((status, out.as_str()), (2, ""), "{folder}");
        assert!(err.contains("holds no entities of Coopr"), "{err}");
    }
    assert!(Path::new("tests/coopr").is_dir());
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
