//! `cobgen fmt` as a user starts it.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// The rest of a longer text would be lost without a word.
#[test]
fn a_too_long_standard_input_is_refused() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cobgen"))
        .args(["fmt", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = program.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || {
        // The program may end before it has read all.
        let line = format!("# {}\n", "x".repeat(1 << 20));
        let _ = (0..33).try_for_each(|_| input.write_all(line.as_bytes()));
    });
    let output = program.wait_with_output().expect("it ends");
    writer.join().expect("written");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert_eq!(output.stdout, b"");
    assert!(message.contains("can't read the standard input: it is longer than 32 MiB"), "{message}");
}
