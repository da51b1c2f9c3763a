//! The kind, as the daemon uses it.

use std::fs;

use cob_types::Kind;

use crate::kinds::Outcome;
use crate::kinds::testing::{Bench, kind, reason, state};

fn file_tree() -> Kind {
    let template = kind("file-tree", &["down", "up"], |_, _| None).transitions[0].clone();
    let mut kind = kind("file-tree", &["absent", "outdated", "present", "conflict"], |_, _| None);
    let moves = [("absent", "present"), ("outdated", "present"), ("present", "absent"), ("outdated", "absent")];
    kind.transitions = moves
        .iter()
        .map(|(from, to)| cob_types::Transition { from: state(from), to: state(to), ..template.clone() })
        .collect();
    kind.preferred = state("present");
    kind.pre_remove = state("absent");
    kind
}

fn content(bench: &Bench, text: &str) -> String {
    let path = bench.path("host/x.conf");
    serde_json::json!({"files": {path.to_str().expect("text"): {"content": text}}}).to_string()
}

#[tokio::test]
async fn a_tree_goes_through_its_states() {
    let mut bench = Bench::new();
    let (first, second) = (content(&bench, "one\n"), content(&bench, "two\n"));
    let (first, second) = (bench.context(&file_tree(), &first), bench.context(&file_tree(), &second));
    assert_eq!(bench.state(&first).await, "absent");
    assert_eq!(bench.transition(&first, "absent", "present").await, Outcome::done());
    assert_eq!(bench.state(&first).await, "present");
    assert_eq!(bench.state(&second).await, "outdated");
    let found = bench.check(&second).await;
    assert!(found.difference.contains("-one\n+two\n"), "{}", found.difference);
    assert_eq!(bench.transition(&second, "outdated", "present").await, Outcome::done());
    assert_eq!(fs::read_to_string(bench.path("host/x.conf")).expect("read"), "two\n");
    bench.return_of_the_daemon();
    assert_eq!(bench.state(&second).await, "present");
    assert_eq!(bench.transition(&second, "present", "absent").await, Outcome::done());
    assert_eq!(bench.state(&second).await, "absent");
    assert!(!bench.path("host").exists());
}

#[tokio::test]
async fn what_is_in_the_way_is_said() {
    let mut bench = Bench::new();
    fs::create_dir_all(bench.path("host/x.conf")).expect("made");
    let content = content(&bench, "one\n");
    let context = bench.context(&file_tree(), &content);
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("is a folder, and a file is wanted there"), "{why}");
}
