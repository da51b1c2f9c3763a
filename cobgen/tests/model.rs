//! Loading models: scalars and positions, several files, the schema; and no text makes it crash.

use std::collections::BTreeSet;
use std::path::Path;

use cobgen::expand::expand;
use cobgen::model::{Model, schema};
use proptest::prelude::*;

/// A kind that accepts any content.
const KINDS: &str = "kinds: {k: {states: [a, b], preferred: b, pre_remove: a, check: {run: x}, \
     transitions: [{from: a, to: b, run: x}, {from: b, to: a, run: x}]}}\n";

/// The content of the change object `n1/a`.
fn content(text: &str) -> serde_json::Value {
    let model = format!(
        "security: loopback-only\nhosts: {{n1: {{}}}}\n{KINDS}cobs:\n  n1/a:\n    kind: k\n    content:\n{text}"
    );
    let expansion = expand(Model::of_text("model.yaml", &model), &BTreeSet::new());
    let told = cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false);
    assert_eq!(told, "");
    expansion.draft.expect("a draft").cobs.into_values().next().expect("one").value.content
}

#[test]
fn scalars_follow_the_core_schema_of_yaml_1_2() {
    let found = content(
        r#"
      numbers: [0, -7, +3, 0x1F, 0o17, 18446744073709551615, 1.5, -2e3, .5]
      truth: [true, False, TRUE]
      nothing: [null, ~, ]
      texts: [yes, no, on, off, "1", '0x1F', 1.2.3, 12:30:45, 0b1, 1_000, 2026-11-21, !!str 5]
      block: |
        one
          two
      folded: >-
        one
        two
"#,
    );
    insta::assert_snapshot!(found.to_string(), @r#"{"block":"one\n  two\n","folded":"one two","nothing":[null,null],"numbers":[0,-7,3,31,15,18446744073709551615,1.5,-2000.0,0.5],"texts":["yes","no","on","off","1","0x1F","1.2.3","12:30:45","0b1","1_000","2026-11-21","5"],"truth":[true,false,true]}"#);
}

#[test]
fn anchors_and_the_merge_key_are_understood() {
    let found = content(
        "
      base: &base {a: 1, b: 1}
      one: {<<: *base, b: 2}
      two: {b: 2, <<: [*base, {c: 3, a: 9}]}
",
    );
    insta::assert_snapshot!(found.to_string(), @r#"{"base":{"a":1,"b":1},"one":{"a":1,"b":2},"two":{"a":1,"b":2,"c":3}}"#);
}

#[test]
fn json_is_a_model_too() {
    let text = "{\n\t\"security\": \"loopback-only\",\n\t\"hosts\": {\"n1\": {\"address\": \"tcp:\\/\\/127.0.0.1:1\"}},\n\t\"cobs\": {\"n1/a\": {\"kind\": \"noop\", \"content\": {\"exports\": {\"x\": \"\\ud83d\\ude00\"}}}}\n}\n";
    let draft = expand(Model::of_text("model.json", text), &BTreeSet::new()).draft.expect("a draft");
    let cob = draft.cobs.values().next().expect("one");
    assert_eq!(cob.value.content, serde_json::json!({"exports": {"x": "😀"}}));
    assert_eq!((cob.place.line, cob.place.column), (4, 11));
}

#[test]
fn the_order_of_files_in_a_folder_does_not_change_the_model() {
    let parts = [
        "security: loopback-only\nvariables: {all: {a: 1}, host: {n1: {c: 3}}}\n",
        "hosts: {n1: {}}\nvariables: {all: {b: 2}, host: {n1: {d: 4}}}\n",
        "cobs: {n1/x: {kind: noop, content: {exports: {v: \"{{ a }}{{ b }}{{ c }}{{ d }}\"}}}}\n---\nhosts: {n2: {}}\n",
    ];
    for names in [["a.yaml", "b.yml", "c.json"], ["c.yaml", "b.yaml", "a.yaml"]] {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, part) in names.iter().zip(parts) {
            std::fs::write(dir.path().join(name), part).expect("written");
        }
        std::fs::write(dir.path().join("notes.txt"), "not: [read").expect("written");
        std::fs::write(dir.path().join(".hidden.yaml"), "not: [read").expect("written");
        let expansion = cobgen::expand::load(dir.path(), &BTreeSet::new());
        let draft = expansion.draft.unwrap_or_else(|| panic!("{:?}", expansion.diagnostics));
        assert_eq!(draft.hosts.len(), 2);
        assert_eq!(
            draft.cobs.values().next().expect("one").value.content,
            serde_json::json!({"exports": {"v": "1234"}})
        );
    }
}

#[test]
fn the_schema_has_all_sections_and_no_dangling_references() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let sections: Vec<&str> = schema["properties"].as_object().expect("sections").keys().map(String::as_str).collect();
    for section in ["hosts", "kinds", "cobs", "services", "clusters", "variables", "security"] {
        assert!(sections.contains(&section), "{section} is not among {sections:?}");
    }
    // Every reference has a definition.
    let text = schema.to_string();
    for reference in text.split("\"$ref\":\"#/$defs/").skip(1) {
        let name = reference.split('"').next().expect("a name");
        assert!(schema["$defs"].get(name).is_some(), "{name}");
    }
}

#[test]
fn ten_thousand_change_objects_take_moments() {
    let mut text = "security: loopback-only\nhosts: {n1: {}}\ncobs:\n".to_owned();
    for i in 0..10_000 {
        let requires = if i > 0 { format!(", requires: [c{}]", i - 1) } else { String::new() };
        text.push_str(&format!(
            "  n1/c{i}: {{kind: noop, content: {{exports: {{v: \"{{{{ host.name }}}}\"}}}}{requires}}}\n"
        ));
    }
    let began = std::time::Instant::now();
    let draft = expand(Model::of_text("model.yaml", &text), &BTreeSet::new()).draft.expect("a draft");
    assert_eq!(draft.cobs.len(), 10_000);
    // Half a second without optimisation; quadratic work would take minutes.
    assert!(began.elapsed() < std::time::Duration::from_secs(200), "{:?}", began.elapsed());
}

/// Texts that are nearly a model: a valid model with some bytes replaced by YAML syntax characters.
fn nearly_a_model() -> impl Strategy<Value = String> {
    let model = include_str!("../src/cli/init/model.yaml");
    let sign = prop::sample::select(vec![
        "{", "}", "[", "]", ":", "-", "*", "&a ", "!", "|", "\n", "  ", "\t", "\"", "'", "#", "{{", "%}", "<<", "é",
        "\0", "0", "@", "/",
    ]);
    let hits = prop::collection::vec((0..model.len(), sign, 0..4usize), 1..6);
    hits.prop_map(move |hits| {
        let mut text = model.to_owned();
        for (at, sign, gone) in hits {
            let inside =
                |text: &str, at: usize| (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
            let (start, end) = (inside(&text, at), inside(&text, at + gone));
            text.replace_range(start..end, sign);
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_a_draft_or_an_error_without_panic(text in prop_oneof![nearly_a_model(), any::<String>(), "[\\[\\]{}:,\\-&*!|>'\"%@` \na-c0-9]{0,60}"]) {
        let expansion = expand(Model::of_text("src/cli/init/model.yaml", &text), &BTreeSet::new());
        let told = cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, true);
        prop_assert_eq!(expansion.draft.is_none(), told.contains("error"));
    }
}

#[test]
fn a_path_is_shown_as_it_was_given() {
    let expansion = cobgen::expand::load(Path::new("tests/wrong/addresses.yaml"), &BTreeSet::new());
    let place = expansion.diagnostics[0].place.as_ref().expect("a place");
    assert_eq!(place.file.as_path(), Path::new("tests/wrong/addresses.yaml"));
}
