//! Rollback to the previous content: a file is as its users had it, also if a conflict was decided on the way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cob_files::{Choice, FilesError, Job, State, Wanted};

use super::{Bench, COB};

/// The first and the second content, and a user's edit of the first.
fn sides(bench: &Bench) -> (Wanted, Wanted, String) {
    let text = |port: u32, last: &str| format!("one\nport {port}\ntwo\nthree\nfour\n{last}\n");
    let of = |port, last| bench.one(&text(port, last), r#", "manage": "merge""#);
    (of(1, "five"), of(2, "5"), format!("mine\n{}", text(9, "five")))
}

fn is_conflict(ended: Result<cob_files::Applied, FilesError>) -> bool {
    matches!(ended, Err(FilesError::Conflict(_)))
}

#[test]
fn a_rollback_restores_the_user_s_text_before_an_unchanged_decision() {
    for choice in [Choice::Ours, Choice::Theirs, Choice::Edited(b"port 2 # was 9\n".to_vec())] {
        let mut bench = Bench::new();
        let (first, second, mine) = sides(&bench);
        bench.apply(&first).expect("applied");
        bench.write("x.conf", &mine);
        bench.files.resolve(COB, &second, false, None, None, &choice).expect("decided");
        bench.apply(&second).expect("applied");
        bench.again();
        // Discarding decisions about a future content does not affect the rollback.
        bench.files.undecide(COB);
        assert_eq!(bench.state(&first), State::Outdated, "{choice:?}: nothing to decide");
        bench.apply(&first).expect("back");
        assert_eq!((bench.read("x.conf"), bench.state(&first)), (mine.clone(), State::Present), "{choice:?}");
        // The second content conflicts again.
        assert!(is_conflict(bench.apply(&second)), "{choice:?}");
    }
}

#[test]
fn a_rollback_merges_changes_made_since_the_decision() {
    let bench = Bench::new();
    let (first, second, mine) = sides(&bench);
    bench.apply(&first).expect("applied");
    bench.write("x.conf", &mine);
    bench.files.resolve(COB, &second, false, None, None, &Choice::Theirs).expect("decided");
    bench.apply(&second).expect("applied");
    let now = bench.read("x.conf");
    bench.write("x.conf", &now.replace("port 2", "port 8"));
    assert!(is_conflict(bench.apply(&first)));
    bench.write("x.conf", &now.replace("three", "3"));
    bench.apply(&first).expect("back");
    assert_eq!(bench.read("x.conf"), "mine\none\nport 1\ntwo\n3\nfour\nfive\n");
}

#[test]
fn an_equal_change_of_user_and_model_stays_with_the_user() {
    let bench = Bench::new();
    let of = |port: u32| bench.one(&format!("port {port}\n"), r#", "manage": "merge""#);
    bench.apply(&of(1)).expect("applied");
    bench.write("x.conf", "port 2\n");
    bench.apply(&of(2)).expect("nothing to write");
    bench.apply(&of(1)).expect("back");
    assert_eq!(bench.read("x.conf"), "port 2\n");
}

#[test]
fn an_edit_that_the_user_undid_does_not_return() {
    let bench = Bench::new();
    let of = |port: u32| bench.one(&format!("port {port}\n"), r#", "manage": "merge""#);
    bench.apply(&of(1)).expect("applied");
    bench.write("x.conf", "port 9\n");
    bench.files.resolve(COB, &of(2), false, None, None, &Choice::Theirs).expect("decided");
    bench.apply(&of(2)).expect("applied");
    bench.apply(&of(1)).expect("back");
    bench.write("x.conf", "port 1\n");
    bench.apply(&of(2)).expect("there again");
    bench.apply(&of(1)).expect("and back");
    assert_eq!(bench.read("x.conf"), "port 1\n");
}

#[test]
fn a_rollback_survives_an_interruption() {
    let mut bench = Bench::new();
    const FILES: usize = 120;
    let of = |bench: &Bench, port: u32| {
        let file = |n| format!(r#""@/{n}.conf": {{"content": "port {port}\n"}}"#);
        let files: Vec<String> = (0..FILES).map(file).collect();
        bench.wanted(&format!(r#"{{"manage": "merge", "on_conflict": "theirs", "files": {{{}}}}}"#, files.join(", ")))
    };
    let (first, second) = (of(&bench, 1), of(&bench, 2));
    let ports = |bench: &Bench| (0..FILES).map(|n| bench.read(&format!("{n}.conf"))).collect::<Vec<_>>();
    bench.apply(&first).expect("applied");
    (0..FILES).for_each(|n| bench.write(&format!("{n}.conf"), &format!("port {}\n", 900 + n)));
    let mine = ports(&bench);
    // No matter when attempts are cancelled or the process is replaced, the last attempt succeeds.
    let mut go = |wanted: &Wanted| {
        for after in [0, 1, 2, 4, 8, 16] {
            let cancelled = AtomicBool::new(false);
            let ended = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(after));
                    cancelled.store(true, Ordering::Relaxed);
                });
                bench.files.apply(&Job {
                    cob: COB,
                    generation: 1,
                    wanted,
                    is_cancelled: &|| cancelled.load(Ordering::Relaxed),
                })
            });
            assert!(matches!(ended, Ok(_) | Err(FilesError::Cancelled)), "{ended:?}");
            bench.again();
        }
        bench.apply(wanted).expect("in the end");
        ports(&bench)
    };
    assert_eq!(go(&second), vec!["port 2\n"; FILES]);
    assert_eq!(go(&first), mine);
}
