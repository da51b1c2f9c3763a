//! Differences of generations that a sketch makes.

use serde_json::json;

use cob_forecast::diff;
use cob_types::trust::Operator;
use cob_types::{CobId, PublicKey};

use crate::testing::Sketch;

fn before() -> Sketch {
    let mut sketch = Sketch::new();
    sketch.cob("n1/app", "up").cob("n1/db", "up").cob("n2/old", "up").cob("n1/conf", "up");
    sketch.content("n1/db", json!({"version": 7, "conf": "one\ntwo\nthree\nfour\n", "gone": true}));
    sketch.requires("n1/app", "n1/db").restarts_on("n1/db", "n1/conf");
    sketch
}

#[test]
fn the_same_is_no_difference() {
    let generation = before().assembled().generation;
    assert!(diff(&generation, &generation).is_empty());
}

/// A signer must see in a difference which keys gain power.
#[test]
fn keys_operators_and_revocations_are_differences() {
    let before = before().assembled().generation;
    let mut after = before.clone();
    let manifest = &mut after.manifest;
    manifest.security = cob_types::generation::Security::Identities;
    manifest.revoked.insert(PublicKey([3; 32]));
    let role = cob_types::trust::Role::Administer;
    manifest.operators.insert("eve".to_owned(), Operator { role, keys: vec![PublicKey([4; 32])], token: None });
    manifest.hosts.get_mut("n1").expect("there").keys.push(PublicKey([1; 32]));
    let difference = diff(&before, &after);
    assert!(!difference.is_empty());
    let paths: Vec<&str> = difference.trust.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["keys.n1", "operators.eve", "revoked[0]", "security"]);
    assert!(difference.to_string().contains("administer"), "{difference}");
}

#[test]
fn ranks_alone_are_no_difference() {
    let mut after = before();
    after.cob("n1/below", "up").requires("n1/db", "n1/below");
    let difference = diff(&before().assembled().generation, &after.assembled().generation);
    assert_eq!(difference.changed.keys().map(CobId::as_str).collect::<Vec<_>>(), ["n1/db"]);
}

#[test]
fn the_diff_shows_all_differences() {
    let mut after = before();
    after.content("n1/db", json!({"version": 8, "conf": "one\n2\nthree\nfour\n", "list": [1, 2]}));
    after.content("n1/conf", json!("new"));
    after.draft.cobs.remove("n2/old");
    after.draft.hosts.remove("n2");
    after.cob("n3/new", "up").after("n1/app", "n3/new");
    after.draft.cobs.get_mut("n1/app").expect("there").value.preferred = crate::testing::state("down");
    let difference = diff(&before().assembled().generation, &after.assembled().generation);
    insta::assert_snapshot!(difference, @r#"
    generation 1 -> 1: 1 added, 3 changed, 1 removed
    + host n3
    - host n2
    + n3/new (simple)
    - n2/old (simple)
    ~ n1/app (adopted in place)
        prefers: up -> down
        + (n1/app, down, up) <- n3/new@up
        + (n1/app, outdated, up) <- n3/new@up
    ~ n1/conf
        content: {} -> "new"
    ~ n1/db
        conf:
          @@ -1,3 +1,3 @@
           one
          -two
          +2
           three
        - gone: true
        + list: [1,2]
        version: 7 -> 8
        its dependencies changed
    "#);
    insta::assert_snapshot!(serde_json::to_string_pretty(&difference).expect("JSON"), @r#"
    {
      "from": 1,
      "to": 1,
      "hosts_added": [
        "n3"
      ],
      "hosts_removed": [
        "n2"
      ],
      "hosts_moved": {},
      "kinds_changed": [],
      "added": {
        "n3/new": "simple"
      },
      "removed": {
        "n2/old": "simple"
      },
      "changed": {
        "n1/app": {
          "outdated": false,
          "kind_changed": false,
          "rests_on_changed": false,
          "preferred": {
            "from": "up",
            "to": "down"
          },
          "dependencies_added": [
            "(n1/app, down, up) <- n3/new@up",
            "(n1/app, outdated, up) <- n3/new@up"
          ]
        },
        "n1/conf": {
          "outdated": true,
          "kind_changed": false,
          "content": [
            {
              "path": "",
              "from": {},
              "to": "new"
            }
          ],
          "rests_on_changed": false
        },
        "n1/db": {
          "outdated": true,
          "kind_changed": false,
          "content": [
            {
              "path": "conf",
              "from": "one\ntwo\nthree\nfour\n",
              "to": "one\n2\nthree\nfour\n",
              "lines": "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
            },
            {
              "path": "gone",
              "from": true
            },
            {
              "path": "list",
              "to": [
                1,
                2
              ]
            },
            {
              "path": "version",
              "from": 7,
              "to": 8
            }
          ],
          "rests_on_changed": true
        }
      }
    }
    "#);
}

#[test]
fn the_diff_shows_on_remove_and_mode_as_adopted_in_place() {
    let mut after = before();
    let app = &mut after.draft.cobs.get_mut("n1/app").expect("there").value;
    (app.keep, app.observe) = (true, true);
    let difference = diff(&before().assembled().generation, &after.assembled().generation);
    insta::assert_snapshot!(difference, @r"
    generation 1 -> 1: 0 added, 1 changed, 0 removed
    ~ n1/app (adopted in place)
        on_remove: undo -> keep
        mode: manage -> observe
    ");
}

#[test]
fn a_changed_kind_marks_its_objects_as_outdated() {
    let mut after = before();
    after.draft.kinds.get_mut("simple").expect("there").value.transitions[0].timeout_ms = 5000;
    let difference = diff(&before().assembled().generation, &after.assembled().generation);
    assert!(difference.changed.len() == 4 && difference.changed.values().all(|c| c.kind_changed && c.outdated));
    assert_eq!(difference.kinds_changed[0].changes[0].path, "transitions[0].timeout_ms");
}
