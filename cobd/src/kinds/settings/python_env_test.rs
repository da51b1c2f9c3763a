//! Environments with small wheels, below a folder of its own. No test needs an index.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::OnceLock;

use super::super::tests::{host, moved, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

/// Whether the tests can run.
fn has_python() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let ran = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
        let has = ran.is_ok_and(|ran| ran.status.success());
        if !has {
            eprintln!("skipped: python3 with venv and ensurepip is not installed");
        }
        has
    })
}

/// A program that makes environments quickly: they use pip from an environment that it makes once in `folder`.
fn quick_python(folder: &Path) -> String {
    let (first, program) = (folder.join("first"), folder.join("python"));
    let made = Command::new("python3").args(["-m", "venv"]).arg(&first).output().expect("it starts");
    assert!(made.status.success(), "{made:?}");
    let script = format!(
        r#"#!/bin/sh
python={}/bin/python
[ "$1 $2" = "-m venv" ] || exec "$python" "$@"
shift 2
"$python" -m venv --without-pip "$@" || exit
for new; do :; done
for site in "$new"/lib/python*/site-packages; do echo {} > "$site/pip.pth"; done
"#,
        first.display(),
        info(&first, "").display()
    );
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    program.to_str().expect("text").to_owned()
}

/// Writes a wheel with a module and a program that prints its version.
fn wheel(folder: &Path, name: &str, version: &str) {
    fs::create_dir_all(folder).expect("made");
    let file = fs::File::create(folder.join(format!("{name}-{version}-py3-none-any.whl"))).expect("made");
    let mut zipped = zip::ZipWriter::new(file);
    let info = format!("{name}-{version}.dist-info");
    let program = name.replace('_', "-");
    for (path, text) in [
        (format!("{name}.py"), format!("def main():\n    print('{version}')\n")),
        (format!("{info}/METADATA"), format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: no\n")),
        (format!("{info}/WHEEL"), "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n".to_owned()),
        (format!("{info}/entry_points.txt"), format!("[console_scripts]\n{program} = {name}:main\n")),
        (format!("{info}/RECORD"), format!("{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")),
    ] {
        zipped.start_file(path, zip::write::SimpleFileOptions::default()).expect("written");
        zipped.write_all(text.as_bytes()).expect("written");
    }
    zipped.finish().expect("written");
}

/// A host with wheels.
fn with_wheels(files: &[(&str, &str)]) -> tempfile::TempDir {
    let host = host(files);
    let wheels = host.path().join("srv/wheels");
    for (name, version) in [("one_two", "1.0"), ("one_two", "2.0"), ("more", "1.0")] {
        wheel(&wheels, name, version);
    }
    fs::create_dir_all(host.path().join("opt")).expect("made");
    host
}

fn content(root: &Path, keys: &str) -> String {
    let root = root.display();
    format!(r#"{{"path":"{root}/opt/app","find_links":["{root}/srv/wheels"],"no_index":true,{keys}}}"#)
}

/// The output of a program of the environment.
fn output(place: &Path, name: &str) -> String {
    let out = Command::new(place.join("bin").join(name)).output().expect("it starts");
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

fn info(place: &Path, name: &str) -> std::path::PathBuf {
    let python = packages::names(&place.join("lib")).expect("listed").remove(0);
    place.join("lib").join(python).join("site-packages").join(name)
}

#[tokio::test]
async fn environments_keep_the_contract() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let python = quick_python(folder.path());
    let host = with_wheels(&[("opt/app/theirs", "theirs")]);
    let [own, other] = [r#"{"One.Two":"1.0"}"#, r#"{"more":""}"#]
        .map(|packages| content(host.path(), &format!(r#""interpreter":"{python}","packages":{packages}"#)));
    let case = Case::new(setting("python-env"), &own).other(&other).watching(host.path().join("opt")).kills(3);
    holds(&case, &[]).await;
    assert_eq!(packages::names(&host.path().join("opt")).expect("listed"), ["app"]);
    assert_eq!(fs::read_to_string(host.path().join("opt/app/theirs")).expect("read"), "theirs");
}

#[tokio::test]
async fn programs_work_after_each_exchange() {
    if !has_python() {
        return;
    }
    let host = with_wheels(&[("opt/app/theirs", "theirs"), ("srv/requirements.txt", "one-two<2\n")]);
    let place = host.path().join("opt/app");
    let mut bench = Bench::new();
    let keys = format!(r#""requirements":"{}/srv/requirements.txt","packages":{{"more":"1"}}"#, host.path().display());
    let context = bench.context(&setting("python-env"), &content(host.path(), &keys));
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!([output(&place, "one-two"), output(&place, "more")], ["1.0", "1.0"]);
    let activate = fs::read_to_string(place.join("bin/activate")).expect("read");
    assert!(activate.contains(&*place.to_string_lossy()) && activate.contains("(app)"), "{activate}");
    for name in packages::names(&place.join("bin")).expect("listed") {
        let bytes = fs::read(place.join("bin").join(&name)).expect("read");
        assert!(!String::from_utf8_lossy(&bytes).contains("cob-new"), "{name}");
    }
    // Caches that Python fills are no changes.
    assert_eq!(output(&place, "one-two"), "1.0");
    assert_eq!(bench.state(&context).await, "present");
    // The requirements change.
    fs::write(host.path().join("srv/requirements.txt"), "one-two\n").expect("written");
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(output(&place, "one-two"), "2.0");
    assert!(!host.path().join("opt/.app.cob-changed").exists(), "an unchanged environment is not kept");
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(packages::names(&host.path().join("opt")).expect("listed"), ["app"]);
    assert_eq!(fs::read_to_string(place.join("theirs")).expect("read"), "theirs");
}

#[tokio::test]
async fn changes_of_packages_are_repaired() {
    if !has_python() {
        return;
    }
    let host = with_wheels(&[]);
    let place = host.path().join("opt/app");
    let changed = host.path().join("opt/.app.cob-changed");
    let folder = tempfile::tempdir().expect("a folder");
    let keys = format!(r#""interpreter":"{}","packages":{{"one_two":"1.0"}}"#, quick_python(folder.path()));
    let mut bench = Bench::new();
    let context = bench.context(&setting("python-env"), &content(host.path(), &keys));
    moved(&mut bench, &context, "absent", "present").await;
    let pip = |arguments: &[&str]| {
        let wheels = format!("--find-links={}", host.path().join("srv/wheels").display());
        let mut command = Command::new(place.join("bin/python"));
        command.args(["-m", "pip", "--disable-pip-version-check"]).args(arguments);
        if arguments[0] == "install" {
            command.args(["--no-index", &wheels]);
        }
        assert!(command.output().expect("it starts").status.success(), "{arguments:?}");
    };
    // A package that a user adds is drift only with `exact`.
    pip(&["install", "more"]);
    assert_eq!(bench.state(&context).await, "present");
    let exact = bench.context(&setting("python-env"), &content(host.path(), &format!(r#"{keys},"exact":true"#)));
    let found = bench.check(&exact).await;
    assert!(found.difference.contains("more is new"), "{}", found.difference);
    moved(&mut bench, &exact, "outdated", "present").await;
    assert!(!place.join("bin/more").exists() && changed.join("bin/more").exists(), "the changed folder is kept");
    fs::remove_dir_all(&changed).expect("removed");
    // Another version, a package that is gone, a changed program, and an interpreter that is gone.
    type Edit<'a> = &'a dyn Fn();
    let edits: [(Edit<'_>, &str); 4] = [
        (&|| pip(&["install", "one-two==2.0"]), "one-two is changed"),
        (
            &|| fs::remove_file(info(&place, "one_two-1.0.dist-info").join("METADATA")).expect("removed"),
            "one-two is missing",
        ),
        (&|| fs::write(place.join("bin/one-two"), "#!/bin/sh\n").expect("written"), "bin/one-two is changed"),
        (
            &|| {
                fs::remove_file(place.join("bin/python")).expect("removed");
                symlink("/no/such/python", place.join("bin/python")).expect("linked");
            },
            "the interpreter is missing",
        ),
    ];
    for (edit, words) in edits {
        edit();
        let found = bench.check(&context).await;
        assert!(found.difference.contains(words), "{words}: {}", found.difference);
        moved(&mut bench, &context, "outdated", "present").await;
        assert_eq!(output(&place, "one-two"), "1.0", "{words}");
    }
    // Data in the environment stays beside it at the departure.
    fs::write(place.join("data"), "precious").expect("written");
    moved(&mut bench, &context, "present", "absent").await;
    assert!(!place.exists());
    assert_eq!(fs::read_to_string(changed.join("data")).expect("read"), "precious");
}

#[tokio::test]
async fn failures_leave_the_earlier_folder() {
    if !has_python() {
        return;
    }
    let host = with_wheels(&[("opt/app/theirs", "theirs")]);
    let folder = tempfile::tempdir().expect("a folder");
    let python = quick_python(folder.path());
    let missing = format!(r#""requirements":"{}/srv/missing.txt""#, host.path().display());
    let unknown = format!(r#""interpreter":"{python}","packages":{{"no-such-package":"1.0"}}"#);
    let later = format!(r#""interpreter":"{python}","packages":{{"one_two":"3.0"}}"#);
    for (keys, words) in [
        (unknown.as_str(), "No matching distribution found for no-such-package==1.0"),
        (later.as_str(), "No matching distribution found for one_two==3.0"),
        (
            r#""interpreter":"no-such-python""#,
            "no-such-python: not found on this host; install the package python3-venv",
        ),
        (missing.as_str(), "let it come `after` the object that makes the file"),
    ] {
        let mut bench = Bench::new();
        let context = bench.context(&setting("python-env"), &content(host.path(), keys));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{keys}: {why}");
        assert_eq!(fs::read_to_string(host.path().join("opt/app/theirs")).expect("read"), "theirs");
        bench.transition(&context, "outdated", "absent").await;
        assert_eq!(packages::names(&host.path().join("opt")).expect("listed"), ["app"], "{keys}");
    }
    // A missing program, or one without the modules, is found before the first transition.
    for (interpreter, words) in [
        ("no-such-python", "no-such-python: not found on this host; install the package python3-venv"),
        ("false", "false can't make environments with pip; install the package python3-venv"),
    ] {
        let mut bench = Bench::new();
        let keys = format!(r#""interpreter":"{interpreter}""#);
        let context = bench.context(&setting("python-env"), &content(host.path(), &keys));
        let found = bench.check(&context).await;
        assert!(found.difference.contains(words), "{}", found.difference);
    }
}

#[test]
fn programs_that_can_not_be_moved_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let new = folder.path().join(".app.cob-new");
    fs::create_dir_all(new.join("bin")).expect("made");
    fs::write(new.join("bin/binary"), format!("\0{}\0", new.display())).expect("written");
    let why = relocate(&new, &folder.path().join("app")).expect_err("refused");
    assert!(why.contains("bin/binary: this program names the folder where it was built"), "{why}");
}
