//! The results of templates in a model: texts as written, values with their types, varying names.

use std::collections::BTreeSet;

use cob_types::CobId;
use cobgen::draft::Draft;
use cobgen::expand::expand;
use cobgen::model::Model;
use serde_json::json;

const HOSTS: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:7001", vars: {line: hello, port: 5, list: [a, b]}}
  n2: {address: "tcp://127.0.0.1:7002", vars: {line: hello, port: 2, list: [a]}}
kinds:
  k:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "true"}
    transitions: [{from: down, to: up, run: x}, {from: up, to: down, run: x}]
"#;

/// The draft of a text, after the usual hosts and the kind `k`, or its errors.
fn attempt(text: &str, previous: &[&str]) -> Result<Draft, String> {
    let previous: BTreeSet<CobId> = previous.iter().map(|id| CobId::new(id).expect("an id")).collect();
    let expansion = expand(Model::of_text("model.yaml", &format!("{HOSTS}{text}")), &previous);
    let told = cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false);
    expansion.draft.ok_or(told)
}

fn ids(text: &str, previous: &[&str]) -> Vec<String> {
    let draft = attempt(text, previous).unwrap_or_else(|told| panic!("{told}"));
    draft.cobs.keys().map(|id| id.as_str().to_owned()).collect()
}

fn content(text: &str, id: &str) -> serde_json::Value {
    let draft = attempt(text, &[]).unwrap_or_else(|told| panic!("{told}"));
    draft.cobs[&CobId::new(id).expect("an id")].value.content.clone()
}

#[test]
fn an_object_with_place_first_stays_on_its_node() {
    let model =
        |cobs: &str| format!("services: {{db: {{cobs: {{{cobs}}}}}}}\nclusters: {{c: {{services: {{db: [n2, n1]}}}}}}");
    for name in ["{{ d }}", "{% if true %}{{ d }}{% endif %}", "{{ d }}{{ '' }}"] {
        let model = model(&format!("\"{name}\": {{kind: noop, place: first, for: {{d: [a]}}}}"));
        assert_eq!(ids(&model, &[]), ["n2/db/a"], "{name}");
        assert_eq!(ids(&model, &["n1/db/a"]), ["n1/db/a"], "{name}");
        assert_eq!(ids(&model, &["n1/db/ab", "n1/other/a"]), ["n2/db/a"], "{name}");
    }
    // Another change object with the same prefix has no influence.
    let model = model("\"d-{{ d }}\": {kind: noop, place: first, for: {d: [a]}}, d-cache: {kind: noop}");
    assert_eq!(ids(&model, &["n1/db/d-cache", "n2/db/d-cache"]), ["n1/db/d-cache", "n2/db/d-a", "n2/db/d-cache"]);
    let before = ["n1/db/d-a", "n1/db/d-cache", "n2/db/d-cache"];
    assert_eq!(ids(&model, &before), before);
}

#[test]
fn a_renamed_object_with_place_first_stays_on_its_node() {
    let model = |cobs: &str| {
        format!(
            "services: {{db: {{cobs: {{{cobs}}}}}}}\n\
             clusters: {{c: {{services: {{db: [n1, n2]}}, config: {{version: 2}}}}}}"
        )
    };
    let first = |name: &str| format!("\"{name}\": {{kind: noop, place: first}}");
    let schema = first("schema-{{ cluster.config.version }}");
    assert_eq!(ids(&model(&schema), &["n2/db/schema-1"]), ["n2/db/schema-2"]);
    assert_eq!(ids(&model(&schema), &["n2/db/schema-1", "n1/db/schema-2"]), ["n1/db/schema-2"], "the very name counts");
    assert_eq!(ids(&model(&schema), &["n2/db/schemata-1", "n2/other/schema-1"]), ["n1/db/schema-2"]);
    let around = first("v{{ cluster.config.version }}-of-{{ cluster.config.version }}-now");
    assert_eq!(ids(&model(&around), &["n2/db/v1-of-1-now"]), ["n2/db/v2-of-2-now"]);
    assert_eq!(ids(&model(&around), &["n2/db/v1-of-now"]), ["n1/db/v2-of-2-now"]);
    // A previous name belongs to the entry that fits it better.
    let both = format!("{schema}, {}", first("schema-of-{{ cluster.config.version }}"));
    assert_eq!(ids(&model(&both), &["n2/db/schema-of-1"]), ["n1/db/schema-2", "n2/db/schema-of-2"]);
    let fixed = format!("{schema}, schema-cache: {{kind: noop, place: n2}}");
    assert_eq!(ids(&model(&fixed), &["n2/db/schema-cache"]), ["n1/db/schema-2", "n2/db/schema-cache"]);
}

#[test]
fn lists_of_immutable_partials_are_joined() {
    let model = |shop: &str| {
        format!(
            "services: {{db: {{cobs: {{x: {{kind: noop}}}}}}, app: {{cobs: {{x: {{kind: noop}}}}}}, web: {{cobs: {{x: {{kind: noop}}}}}}}}\n\
             templates:\n  base: {{partial: true, immutable: true, compatibility: {{services: [db]}}, defaults: {{services: [db]}}}}\n  \
               more: {{partial: true, immutable: true, compatibility: {{services: [app]}}, defaults: {{services: [app]}}}}\n  \
               shop: {{includes: [base, more]{shop}}}\n\
             clusters: {{mine: {{template: shop, nodes: [n1]}}}}\n"
        )
    };
    assert_eq!(ids(&model(""), &[]), ["n1/app/x", "n1/db/x"]);
    let told = attempt(&model(", compatibility: {services: [web]}"), &[]).expect_err("widened by who includes them");
    assert!(told.contains("the list of compatible services can't be changed"), "{told}");
    // A partial that includes an immutable partial may not change it either.
    let told = attempt(&model("").replace("more: {partial", "more: {includes: [base], partial"), &[]);
    let told = told.expect_err("widened by a partial");
    assert!(told.contains("the partial template `base` is immutable"), "{told}");
}

#[test]
fn a_name_for_place_first_is_computed_only_on_the_first_node() {
    // The name can't be made on n1, which is not the first: it is not needed there.
    let model = "services: {db: {cobs: {\"{{ host.vars.list[1] }}\": {kind: noop, place: first}}}}\n\
                 clusters: {c: {services: {db: [n1, n2]}}}";
    assert_eq!(ids(model, &["n1/db/x", "n2/db/x"]), ["n1/db/b"]);
}

#[test]
fn a_text_with_line_ends_stays_a_text() {
    let text = "cobs:\n  n1/a:\n    kind: k\n    content:\n      block: |\n        {{ host.vars.line }}\n      \
                number: |\n        {{ host.vars.port }}\n      cut: |-\n        {{ host.vars.port }}\n      plain: \"{{ host.vars.port }}\"\n";
    assert_eq!(content(text, "n1/a"), json!({"block": "hello\n", "number": "5\n", "cut": 5, "plain": 5}));
}

#[test]
fn conditions_and_loops_take_an_expression_as_templates_write_it() {
    let model = r#"
services:
  a:
    cobs:
      big: {kind: noop, when: "{{ host.vars.port > 3 }}"}
      small: {kind: noop, when: "host.vars.port <= 3"}
      "each-{{ i }}": {kind: noop, for: {i: "{{ host.vars.list }}"}, when: "{{ i != 'b' }}"}
clusters: {c: {services: {a: [n1, n2]}}}
"#;
    assert_eq!(ids(model, &[]), ["n1/a/big", "n1/a/each-a", "n2/a/each-a", "n2/a/small"]);
}

#[test]
fn keys_that_come_out_alike_are_told_of() {
    let told =
        attempt("variables: {all: {k: A}}\ncobs: {n1/a: {kind: k, content: {\"{{ k }}\": first, A: second}}}", &[]);
    let told = told.expect_err("refused");
    assert!(told.contains("the key `A` stands here twice") && told.contains("first here"), "{told}");
    let told = attempt("cobs: {n1/a: {kind: k, content: {map: \"{{ {'1': 2, 1: 3} }}\"}}}", &[]);
    let told = told.expect_err("refused");
    assert!(told.contains("the key `1` twice"), "{told}");
}

#[test]
fn numbers_that_become_texts_are_as_written() {
    let env = "env: {VERSION: 1.10, ID: 007, SHA: 1e3, HEX: 0x10, MODE: 0640, LESS: -0.50, PORT: 80, MADE: \"{{ host.vars.port }}\"}";
    let text = format!(
        "cobs:\n  n1/s: {{kind: service, content: {{start: x, {env}}}}}\n  \
         n1/c: {{kind: cron, content: {{schedule: \"@daily\", command: x, {env}}}}}\n"
    );
    let texts = json!({
        "VERSION": "1.10", "ID": "007", "SHA": "1e3", "HEX": "0x10", "MODE": "0640", "LESS": "-0.50", "PORT": "80", "MADE": "5"
    });
    assert_eq!(content(&text, "n1/s")["env"], texts);
    assert_eq!(content(&text, "n1/c")["env"], texts);
    // In a numeric field every notation of a number is a number.
    let text = "cobs: {n1/a: {kind: k, content: {a: 1.10, b: 0x10, c: [007, \"{{ 1.50 }}\"]}}}\nhardwaretypes: {h: {cost: 1e1}}\n";
    assert_eq!(content(text, "n1/a"), json!({"a": 1.1, "b": 16, "c": [7, 1.5]}));
    let text = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:1\", labels: {v: 1.0}}}\n\
                services: {a: {cobs: {x: {kind: noop}}}}\nclusters: {c: {services: {a: [{label: v=1.0}]}}}\n";
    let expansion = expand(Model::of_text("model.yaml", text), &BTreeSet::new());
    let told = cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false);
    assert_eq!((expansion.draft.expect(&told).cobs.len(), told.as_str()), (1, ""));
}

#[test]
fn an_undefined_name_takes_its_default_or_is_an_error() {
    let of = |text: &str| attempt(&format!("cobs: {{n1/a: {{kind: k, content: {{x: {text:?}}}}}}}"), &[]);
    let value = |text: &str| {
        let draft = of(text).unwrap_or_else(|told| panic!("{text}: {told}"));
        draft.cobs[&CobId::new("n1/a").expect("an id")].value.content["x"].clone()
    };
    assert_eq!(value("{{ nothing | default(80) }}"), json!(80));
    assert_eq!(value("{{ port | default(80) }}"), json!(5));
    assert_eq!(value("p={{ nothing | d('y') }}"), json!("p=y"));
    assert_eq!(value("{% if nothing is defined %}{{ nothing }}{% else %}none{% endif %}"), json!("none"));
    assert_eq!(value("{% if port is not defined %}none{% else %}{{ port }}{% endif %}"), json!("5"));
    assert_eq!(value("{{ nothing is undefined }}"), json!(true));
    assert_eq!(value("{{ {'a': {'b': nothing | d(1)}} }}"), json!({"a": {"b": 1}}));
    assert_eq!(value("{{ 'x}}' }} {{ '{{' }}"), json!("x}} {{"));
    // Also if a step before the last is missing.
    assert_eq!(value("{{ facts[host.name].os.name | default('?') }}"), json!("?"));
    assert_eq!(value("{{ (facts[host.name]\n .os) is defined }}"), json!(false));
    assert_eq!(value("{{ nothing.at.all | default(1) }}"), json!(1));
    assert_eq!(value("{{ facts.n9['os'].name | default('?') }}"), json!("?"));
    assert_eq!(value("{% if host.nothing.more is defined %}a{% else %}b{% endif %}"), json!("b"));
    for wrong in [
        "{{ nothing }}",
        "{{ nothing == 1 }}",
        "{{ [nothing] }}",
        "{{ nothing | tojson }}",
        "{{ host.nothing | tojson }}",
        "{{ nothing_else | default(1) }} {{ nothing }}",
        "{{ nothing.at | string | default(1) }}",
        "{{ nothing.at | default(1) }} {{ nothing.at }}",
        "{{ nothing | string | default(1) }}",
    ] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn truth_values_and_no_value_are_the_same_words_everywhere() {
    const MODEL: &str = "variables: {all: {tls: true, off: false, nil: ~}}
cobs: {n1/a: {kind: k, content: {
  whole: '{{ tls }}', text: 'tls = {{ tls }}, {{ off }}', nothing: 'x={{ nil }}', list: '{{ [tls, 1, \"a\"] }}.',
  map: '{{ {\"a\": tls, \"b\": none} }}.', string: '{{ tls | string }}.', join: '{{ [tls, none, 1] | join(\",\") }}',
  concat: '{{ tls ~ nil ~ 1 ~ (tls ~ off) }}', format: '{{ \"%s %s\" | format(tls, 1) }} {{ \"%d\" | format(tls) }}',
  filters: '{{ tls | replace(\"true\", \"on\") }}{{ off | trim }}{{ tls | indent(2, true) }}',
  json: '{{ {\"a\": [tls, none]} | tojson }}', test: '{{ tls == true }} {{ not tls }}', plain: '{{ [1, \"a\"] }}.'}}}
";
    let told = content(MODEL, "n1/a");
    let wanted = json!({
        "whole": true, "text": "tls = true, false", "nothing": "x=null", "list": "[true, 1, 'a'].",
        "map": "{'a': true, 'b': null}.", "string": "true.", "join": "true,null,1", "json": r#"{"a": [true, null]}"#,
        "concat": "truenull1truefalse", "format": "true 1 1", "filters": "onfalse  true",
        "test": "true false", "plain": "[1, 'a'].",
    });
    assert_eq!(told, wanted);
}

#[test]
fn a_comment_is_never_a_part_of_the_text() {
    const MODEL: &str = "cobs: {n1/a: {kind: k, content: {alone: '{# a comment #}text', beside: '{# a comment #}{{ port }}', shell: 'echo ${#list}'}}}";
    assert_eq!(content(MODEL, "n1/a"), json!({"alone": "text", "beside": "5", "shell": "echo ${#list}"}));
}

#[test]
fn top_level_keys_for_anchors_are_left_out() {
    const MODEL: &str =
        "x-defaults: &d {one: 1}\nx-more: [anything]\ncobs: {n1/a: {kind: k, content: {<<: *d, two: 2}}}";
    assert_eq!(content(MODEL, "n1/a"), json!({"one": 1, "two": 2}));
}

#[test]
fn a_part_of_a_list_or_text_is_taken() {
    let text = "variables: {all: {some: [1, 2, 3], text: abc, map: {of: {these: [4, 5]}}}}\ncobs: {n1/a: {kind: k, content: {
      a: '{{ some[1:] }}', b: '{{ text[0:2] }}', c: 'x{{ map.of.these[:1] }}', d: '{% for x in some[:2] %}{{ x }}{% endfor %}'}}}";
    assert_eq!(content(text, "n1/a"), json!({"a": [2, 3], "b": "ab", "c": "x[4]", "d": "12"}));
    for wrong in [
        "cobs: {n1/a: {kind: k, content: {a: '{{ nothing[1:] }}'}}}",
        "services: {s: {cobs: {a: {kind: k, when: 'nothing[0:1]'}}}}\nclusters: {c: {services: {s: [n1]}}}",
        "cobs: {n1/a: {kind: k, content: {a: '{{ [nothing] is defined }}'}}}",
    ] {
        assert!(attempt(wrong, &[]).is_err_and(|told| told.contains("nothing")), "{wrong}");
    }
    let made = "cobs: {n1/a: {kind: k, content: {a: '{% for x in [\"abc\"] %}{{ x[1:] }}{% endfor %}{% set y = \"de\" %}{{ y[:1] }}'}}}";
    assert_eq!(content(made, "n1/a"), json!({"a": "bcd"}));
}
