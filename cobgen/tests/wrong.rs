//! Invalid models, and all messages of `cobgen check` about each: the snapshots are the promise.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cobgen::cli::{self, Terminal};

/// Exit status, output, error output.
fn cobgen(args: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("cobgen").chain(args.iter().copied()).map(Into::into);
    let status =
        cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
    (status, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

/// The messages about a text that is too large or too odd to be kept in a file.
fn check_bytes(name: &str, bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(name);
    std::fs::File::create(&path).and_then(|mut f| f.write_all(bytes)).expect("written");
    let began = Instant::now();
    let (status, out, err) = cobgen(&["check", path.to_str().expect("UTF-8")]);
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    assert!(began.elapsed() < Duration::from_secs(200), "took {:?}", began.elapsed());
    err.replace(dir.path().to_str().expect("UTF-8"), "DIR")
}

#[test]
fn every_wrong_model_is_refused_with_its_error() {
    let folder = Path::new("tests/wrong");
    let mut models: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the folder").map(|e| e.expect("an entry").path()).collect();
    models.sort();
    assert!(models.len() >= 50, "only {} models", models.len());
    for model in models {
        let (status, out, err) = cobgen(&["check", model.to_str().expect("UTF-8")]);
        assert_eq!((status, out.as_str()), (2, ""), "{}", model.display());
        assert!(err.contains("error: "), "{}", model.display());
        insta::assert_snapshot!(model.file_stem().and_then(|s| s.to_str()).expect("a name"), err);
    }
}

#[test]
fn doubtful_models_get_warnings_and_are_accepted() {
    let mut models: Vec<PathBuf> =
        std::fs::read_dir("tests/doubtful").expect("the folder").map(|e| e.expect("an entry").path()).collect();
    models.sort();
    for model in models {
        let (status, out, err) = cobgen(&["check", model.to_str().expect("UTF-8")]);
        assert!(status == 0 && out.contains(": ok: ") && !err.contains("error: "), "{}: {err}", model.display());
        insta::assert_snapshot!(model.file_stem().and_then(|s| s.to_str()).expect("a name"), err);
    }
}

#[test]
fn the_same_as_json_has_the_same_errors() {
    let (status, out, err) = cobgen(&["check", "--json", "tests/wrong/misspelt_names.yaml"]);
    assert_eq!((status, err.as_str()), (2, ""));
    insta::assert_snapshot!("json", out);
}

#[test]
fn ten_megabytes_of_nesting_are_refused_at_once() {
    for (open, name) in
        [("[", "flow.yaml"), ("{a: ", "maps.yaml"), ("- ", "block.yaml"), ("? ", "keys.yaml"), ("&a [", "anchors.yaml")]
    {
        let text = open.repeat((10 << 20) / open.len());
        let err = check_bytes(name, text.as_bytes());
        assert!(["levels of nesting", "a key must be a text"].iter().any(|word| err.contains(word)), "{name}: {err}");
    }
}

#[test]
fn a_model_file_that_is_not_text_is_refused() {
    for (name, bytes, word) in [
        ("nul.yaml", &b"a: \0"[..], "not valid YAML"),
        ("program.yaml", &b"\x7fELF\x02\x01\x01\0\0\0\0\xff"[..], "UTF-8"),
        ("bom.yaml", &b"\xef\xbb\xbfhosts: []"[..], "must be a mapping"),
    ] {
        let err = check_bytes(name, bytes);
        assert!(err.contains(word), "{name}: {err}");
    }
}

#[test]
fn a_line_of_ten_megabytes_is_not_printed() {
    let err = check_bytes("long.yaml", format!("hosts: {{n1: {{}}, {}: 5}}", "x".repeat(10 << 20)).as_bytes());
    assert!(err.len() < 10_000, "{} bytes", err.len());
}

#[test]
fn a_hundred_thousand_errors_are_told_in_bounded_space() {
    let lines: String = (0..100_000).map(|i| format!("  n1/c{i}: {{kind: nop}}\n")).collect();
    let err =
        check_bytes("many.yaml", format!("security: loopback-only\nhosts: {{n1: {{}}}}\ncobs:\n{lines}").as_bytes());
    assert!(err.contains("further errors are not shown"), "{}", &err[err.len() - 500..]);
    assert_eq!(err.matches("unknown kind").count(), 1000);
}

#[test]
fn folders_and_paths_that_hold_no_model_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let empty = dir.path().to_str().expect("UTF-8");
    for (path, word) in
        [(empty, "holds no model files"), ("no/such/model.yaml", "can't read"), ("/dev/null", "no regular file")]
    {
        let (status, out, err) = cobgen(&["check", path]);
        assert_eq!((status, out.as_str()), (2, ""), "{path}");
        assert!(err.contains(word) && err.contains(path), "{path}: {err}");
    }
}

#[test]
fn bad_usage_is_told_with_the_right_status() {
    let (status, out, err) = cobgen(&["chekc"]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("check"), "{err}");
    let (status, out, err) = cobgen(&["check", "--help"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("Examples:"), "{out}");
}

#[test]
fn circles_of_many_templates_are_refused() {
    let mut text = "templates:\n".to_owned();
    for level in 0..20_000 {
        text += &format!("  t{level}: {{parent: t{}}}\n", (level + 1) % 20_000);
    }
    let told = check_bytes("model.yaml", text.as_bytes());
    assert!(told.contains("circular inheritance of more than 100 templates"), "{told}");
}
