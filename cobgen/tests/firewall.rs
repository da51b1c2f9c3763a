//! The kind `firewall` in models: addresses of hosts that a service, a name or a label chooses, and ports of daemons.

use cob_types::CobId;
use cobgen::draft::Draft;
use cobgen::expand::expand;
use cobgen::model::Model;
use serde_json::{Value, json};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:7001", labels: {role: db}}
  n2: {address: "tcp://127.0.0.2:7002", labels: {role: app}}
  n3: {address: "tcp://127.0.0.3:7002", labels: {role: app}}
services:
  app: {cobs: {server: {kind: noop}}}
  db:
    cobs:
      rules: {kind: firewall, content: {input: [{tcp: 5432, from: {service: app}}]}}
clusters:
  shop: {services: {db: [n1], app: [n2, n3]}}
"#;

fn draft(text: &str) -> Draft {
    let expansion = expand(Model::of_text("model.yaml", text), &Default::default());
    assert_eq!(cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false), "");
    expansion.draft.expect("a draft")
}

fn content(draft: &Draft, cob: &str) -> Value {
    draft.cobs[&CobId::new(cob).expect("an id")].value.content.clone()
}

#[test]
fn a_service_stands_for_the_addresses_of_its_hosts() {
    let draft = draft(MODEL);
    let rules = content(&draft, "n1/db/rules");
    let expected = json!({"input": [{"tcp": 5432, "from": ["127.0.0.2", "127.0.0.3"]}], "daemons": [7001, 7002]});
    assert_eq!(rules, expected);
}

#[test]
fn choices_addresses_and_templates_go_together() {
    let more = r#"
cobs:
  n2/rules:
    kind: firewall
    content:
      daemons: [9999]
      input:
        - {tcp: 1, from: [10.0.0.0/8, {service: db}, {host: n2}, {label: role=app}]}
        - {tcp: 2, from: "{{ on('app') | map(attribute='ip') | list }}"}
        - {tcp: 3, from: ["::1", "{{ on('app') | map(attribute='ip') | list }}"], to: {host: n2}}
"#;
    let rules = content(&draft(&format!("{MODEL}{more}")), "n2/rules");
    let expected = json!({
        "daemons": [9999],
        "input": [
            {"tcp": 1, "from": ["10.0.0.0/8", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.3"]},
            {"tcp": 2, "from": ["127.0.0.2", "127.0.0.3"]},
            {"tcp": 3, "from": ["::1", "127.0.0.2", "127.0.0.3"], "to": ["127.0.0.2"]},
        ],
    });
    assert_eq!(rules, expected);
}

#[test]
fn the_model_of_the_page_is_right() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kinds/firewall.md"));
    let page = page.expect("the page");
    let block = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a model");
    let rules = content(&draft(&format!("{}{block}", MODEL.replace("{input: ", "{table: db, input: "))), "n1/firewall");
    assert_eq!(rules["input"][2]["from"], json!(["127.0.0.2", "127.0.0.3"]));
}
