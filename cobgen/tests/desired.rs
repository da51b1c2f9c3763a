//! `desired: stopped` of services and clusters.

use std::collections::{BTreeMap, BTreeSet};

use cobgen::expand::expand;
use cobgen::model::Model;

#[test]
fn a_service_desired_stopped_prefers_its_stopped_state() {
    let model = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:7001"}
  n2: {address: "tcp://127.0.0.1:7002"}
  n3: {address: "tcp://127.0.0.1:7003"}
kinds:
  k:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "true"}
    transitions: [{from: down, to: up, run: x}, {from: up, to: down, run: x}]
services:
  db: {desired: stopped, cobs: {conf: {kind: user, content: {name: db}}, server: {kind: k, requires: [conf]}}}
  app: {requires: [db], desired: stopped, cobs: {server: {kind: k}}}
  web: {actions: {start: "true", stop: "true"}}
  other: {after: [db], cobs: {server: {kind: k}}}
clusters:
  c: {services: {db: [n1], app: [n2], other: [n3]}}
  d: {services: {web: [n3]}, desired: stopped}
"#;
    let expansion = expand(Model::of_text("model.yaml", model), &BTreeSet::new());
    let draft = expansion.draft.expect("a draft");
    let preferred: BTreeMap<&str, &str> =
        draft.cobs.iter().map(|(id, cob)| (id.as_str(), cob.value.preferred.as_str())).collect();
    let wanted = [
        ("n1/db/conf", "present"),
        ("n1/db/server", "down"),
        ("n2/app/server", "down"),
        ("n3/other/server", "up"),
        ("n3/web/instance", "stopped"),
    ];
    assert_eq!(preferred, wanted.into());
    // What only comes after a stopped service starts without it.
    assert!(draft.cobs["n3/other/server"].value.arrows.is_empty(), "{:?}", draft.cobs["n3/other/server"].value.arrows);
}
