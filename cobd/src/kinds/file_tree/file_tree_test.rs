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

#[tokio::test]
async fn a_secret_is_in_its_file_and_nowhere_else() {
    let mut bench = Bench::new();
    let key = cob_trust::SecretKey::from_seed(&[7; 32]);
    bench.with_key(&key);
    let (value, before) = ("correct horse battery staple", "an older secret of this file");
    let id = cob_types::secret::SecretId([3; 16]);
    let sealed = cob_trust::seal::seal_for_bundle(&[9; 32], &[key.public()], id, value.as_bytes()).expect("sealed");
    let text = content(&bench, &format!("user=app\npassword={}\n", id.mark()));
    let mut context = bench.context(&file_tree(), &text);
    context.secrets.insert(id, sealed);
    let path = bench.path("host/x.conf");
    fs::create_dir_all(bench.path("host")).expect("made");
    fs::write(&path, before).expect("written");
    assert_eq!(bench.transition(&context, "absent", "present").await, Outcome::done());
    assert_eq!(fs::read_to_string(&path).expect("read"), format!("user=app\npassword={value}\n"));
    // What somebody else writes there may be one, too.
    fs::write(&path, "found secret of somebody").expect("written");
    let found = bench.check(&context).await;
    assert_eq!(found.state, Ok(state("outdated")));
    assert!(
        found.difference.contains("holds a secret") && !found.difference.contains("somebody"),
        "{}",
        found.difference
    );
    assert_eq!(bench.transition(&context, "outdated", "present").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "present");

    let store = git2::Repository::open_bare(bench.path("files/store.git")).expect("a store");
    let mut objects = 0;
    let odb = store.odb().expect("objects");
    odb.foreach(|object| {
        objects += 1;
        let bytes = odb.read(*object).expect("read").data().to_vec();
        let text = String::from_utf8_lossy(&bytes);
        assert!(![value, before, "found secret"].iter().any(|secret| text.contains(secret)), "{text}");
        true
    })
    .expect("walked");
    assert!(objects > 10);
    assert_eq!(bench.transition(&context, "present", "absent").await, Outcome::done());
    assert_eq!(fs::read_to_string(&path).expect("back"), before);
}
