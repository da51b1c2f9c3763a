//! For tests: the test program as its own runner.
//!
//! The test harness has its own `main`, so the hidden arguments come after a filter that selects the "test" below; it
//! finds them and does the work of `main`.

use std::path::Path;
use std::time::{Duration, Instant};

use super::program::{Program, hidden};

/// This test program, to be executed as a runner or supervisor.
pub(crate) fn program() -> Program {
    let first = ["--exact", "run::testing::as_runner", "--nocapture"].map(Into::into).to_vec();
    Program::with_first_arguments(&std::env::current_exe().expect("known"), first)
}

/// Waits for a condition, with a limit.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same, but other tasks of this thread continue in the meantime.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether any process has this text in its environment.
pub(crate) fn anybody_with(text: &str) -> bool {
    let own = std::process::id().to_string();
    std::fs::read_dir("/proc").expect("proc").flatten().any(|entry| {
        let pid = entry.file_name();
        let lives = || {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
        };
        pid != own.as_str()
            && std::fs::read(entry.path().join("environ"))
                .is_ok_and(|e| e.windows(text.len()).any(|w| w == text.as_bytes()))
            && lives()
    })
}

/// The number in a file that a process writes.
pub(crate) fn number_in(path: &Path) -> i32 {
    let mut number = None;
    wait_for("a number in a file", || {
        number = std::fs::read_to_string(path).ok().and_then(|t| t.split_whitespace().next()?.parse().ok());
        number.is_some()
    });
    number.expect("just seen")
}

/// The entry point of runners and supervisors; as an ordinary test it does no work.
#[test]
fn as_runner() {
    let args: Vec<_> = std::env::args_os().collect();
    for at in 0..args.len() {
        if hidden(&args[at..], &|| Ok(program())).is_some() {
            return;
        }
    }
}
