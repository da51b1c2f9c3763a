//! Conflicts that the model decides.

use cob_files::{FilesError, State};

use super::{Bench, COB};

fn text(port: &str, last: &str) -> String {
    format!("one\nport {port}\ntwo\nthree\nfour\n{last}\n")
}

fn merged(who: &str) -> String {
    format!(r#", "manage": "merge", "on_conflict": "{who}""#)
}

#[test]
fn the_model_decides_a_conflict_without_an_operator() {
    for (who, port) in [("ours", "9"), ("theirs", "2")] {
        let bench = Bench::new();
        let (first, second) = (bench.one(&text("1", "five"), &merged(who)), bench.one(&text("2", "5"), &merged(who)));
        bench.apply(&first).expect("applied");
        let mine = format!("mine\n{}", text("9", "five"));
        bench.write("x.conf", &mine);
        let checked = bench.files.check(COB, &second).expect("looked");
        assert_eq!(checked.state, State::Outdated, "there is nothing to wait for");
        assert!(checked.difference.contains(&format!("; decided: {who}, by the model\n")), "{}", checked.difference);
        bench.apply(&second).expect("applied");
        // Lines that only a single side changed are merged as always.
        assert_eq!(bench.read("x.conf"), format!("mine\n{}", text(port, "5")), "{who}");
        assert_eq!(bench.state(&second), State::Present);
        assert_eq!(bench.apply(&second).expect("nothing to do").changed, 0);
        let kept = bench.files.log(COB, 10).expect("versions").into_iter().any(|version| {
            let content = bench.files.content(COB, &version.id, &bench.tree_path("x.conf"));
            content.is_ok_and(|content| content == mine.as_bytes())
        });
        assert!(kept, "what stood there is in the history");
        // And back: the file is as its user had it.
        bench.apply(&first).expect("back");
        assert_eq!(bench.read("x.conf"), mine, "{who}");
    }
}

#[test]
fn a_departing_tree_is_not_blocked_by_an_edit_of_a_user() {
    for (who, left) in [("ours", "mine\n"), ("theirs", "from the distribution\n")] {
        let bench = Bench::new();
        let wanted = bench.one("the model's\n", &merged(who));
        bench.write("x.conf", "from the distribution\n");
        bench.apply(&wanted).expect("applied");
        bench.write("x.conf", "mine\n");
        bench.retire(&wanted).expect("retired");
        assert_eq!(bench.read("x.conf"), left, "{who}");
    }
}

#[test]
fn a_tree_that_is_off_for_a_while_keeps_the_edits_of_users() {
    for who in ["ours", "theirs"] {
        let bench = Bench::new();
        let wanted = bench.one(&text("1", "five"), &merged(who));
        bench.write("x.conf", &text("7", "before"));
        bench.apply(&wanted).expect("applied");
        let mine = text("9", "five");
        bench.write("x.conf", &mine);
        bench.off(&wanted).expect("off");
        bench.apply(&wanted).expect("again");
        assert_eq!(bench.read("x.conf"), mine, "{who}");
    }
}

#[test]
fn a_model_that_asks_leaves_the_conflict_to_an_operator() {
    let bench = Bench::new();
    let (first, second) = (bench.one("port 1\n", &merged("ask")), bench.one("port 2\n", &merged("ask")));
    bench.apply(&first).expect("applied");
    bench.write("x.conf", "port 9\n");
    assert_eq!(bench.state(&second), State::Conflict);
    let error = bench.apply(&second).map(drop).expect_err("nobody has decided");
    assert!(matches!(error, FilesError::Conflict(_)), "{error}");
}
