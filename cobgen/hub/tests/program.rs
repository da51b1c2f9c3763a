//! `cobhub` as a user starts it.

use std::process::{Command, Output};

fn cobhub(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cobhub")).args(words).output().expect("it runs")
}

#[test]
fn a_damaged_audit_is_named_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit");
    std::fs::write(&path, "no JSON\n").expect("written");
    let output = cobhub(&["verify-audit", path.to_str().expect("text")]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("line 1"), "{message}");
}

#[test]
fn a_path_that_is_no_socket_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    std::fs::write(&socket, "precious").expect("written");
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).expect("made");
    for name in ["cobd", "cobgen", "cobctl"] {
        std::fs::write(programs.join(name), "").expect("written");
    }
    let [hub, programs] = [folder.path(), &programs].map(|path| path.to_str().expect("text"));
    let output = cobhub(&["serve", "--folder", hub, "--programs", programs]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("is no socket: it is left alone"), "{message}");
    assert_eq!(std::fs::read_to_string(&socket).expect("still there"), "precious");
}
