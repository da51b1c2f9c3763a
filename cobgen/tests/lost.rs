//! Lost output is reported.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

#[test]
fn a_full_disk_is_told_of_by_every_command() {
    let work = tempfile::tempdir().expect("a folder");
    let model = work.path().join("model");
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let run = |args: &[&str], out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cobgen"));
        command.args(args).env_remove("COB_DEPOT").stdout(out).output().expect("run")
    };
    let (model, depot) = (text(&model), text(&work.path().join("depot")));
    assert!(run(&["init", &model], Stdio::null()).status.success());
    assert!(run(&["generate", &model, "--depot", &depot], Stdio::null()).status.success());
    for args in [
        &["check", &model, "--json"][..],
        &["show", &model],
        &["schema"],
        &["log", "--depot", &depot],
        &["fsck", "--depot", &depot],
        &["generate", &model, "--depot", &depot],
        &["--help"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("the device");
        let ran = run(args, full.into());
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(3), "{args:?}: {said}");
        assert_eq!(said.matches("error: can't write the output: No space left").count(), 1, "{args:?}: {said}");
    }
}
