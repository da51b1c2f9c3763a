//! Keys of YAML files.

use serde_json::json;

use super::*;

fn path(key: &str) -> Vec<String> {
    cob_kinds::ConfigFormat::Yaml.parts(key).expect("a key")
}

/// The text after an edit; the earlier text returns byte for byte.
fn edited(text: &str, key: &str, wanted: Option<&Value>) -> Result<String, String> {
    let path = path(key);
    let saved = saved(text, &path)?;
    let edited = match wanted {
        Some(wanted) => set(text, &path, wanted)?,
        None => remove(text, &path)?,
    };
    assert_eq!(value(&edited, &path)?.as_ref(), wanted, "{edited}");
    assert_eq!(restore(&edited, &path, &saved)?, text, "{key} of {text:?}, after {edited:?}");
    Ok(edited)
}

#[test]
fn keys_are_set_removed_and_restored_byte_for_byte() {
    let file = "# licence\n---\nserver:   # the server\n    port:  80   # why\n    hosts: &all\n    - a\n    - b\n    \
                # about text\n    text: |\n        one\n\n        two\n\n# about log\nlog: {level: info}\n";
    let rows: &[(&str, &str, Value, &str)] = &[
        ("a: 1\nb: 2\n", "a", json!(3), "a: 3\nb: 2\n"),
        ("a: 1", "b", json!("x y"), "a: 1\nb: x y"),
        ("", "a.b", json!(true), "a:\n  b: true\n"),
        ("# only a comment", "a", json!(null), "# only a comment\na: null"),
        ("a:\r\n  b: 1\r\n", "a.c.d", json!([1, "x, y"]), "a:\r\n  b: 1\r\n  c:\r\n    d: [1, \"x, y\"]\r\n"),
        ("a:\nb: 1\n", "a.c", json!(1), "a:\n  c: 1\nb: 1\n"),
        ("a: # none\n  # inside\nb: 1\n", "a", json!("yes"), "a: \"yes\" # none\n  # inside\nb: 1\n"),
        ("a: 'x' # why\n", "a", json!("it's"), "a: 'it''s' # why\n"),
        ("a: \"x\"\n", "a", json!("plain"), "a: \"plain\"\n"),
        ("a: &x 1\nb: 2\n", "a", json!(5), "a: 5\nb: 2\n"),
        ("\"a.b\": 1\n80: x\n", "\"a.b\"", json!("1"), "\"a.b\": \"1\"\n80: x\n"),
        ("80: x\n", "80", json!({"a b": [], "c": {}}), "80: {\"a b\": [], c: {}}\n"),
        ("a:\n- 1\n- 2\nb: 1\n", "a", json!([3]), "a: [3]\nb: 1\n"),
        ("a: >-\n  x\n  y\n\n\nb: 1\n", "a", json!("z"), "a: z\n\n\nb: 1\n"),
        (file, "server.port", json!(8080), &file.replace("80   #", "8080   #")),
        (file, "server.name", json!("srv"), &file.replace("        two\n", "        two\n    name: srv\n")),
        (file, "server.text", json!("t"), &file.replace("text: |\n        one\n\n        two\n", "text: t\n")),
        (file, "new", json!(1.5), &format!("{file}new: 1.5\n")),
        (file, "log", json!({"level": "debug"}), &file.replace("info", "debug")),
    ];
    for (text, key, wanted, expected) in rows {
        assert_eq!(edited(text, key, Some(wanted)).as_deref(), Ok(*expected), "{key} of {text:?}");
    }
    let rows = [
        ("a: 1\nb: 2\nc: 3", "b", "a: 1\nc: 3"),
        ("a: 1", "a", ""),
        ("a:\n  # inside\n  b:\n    - 1\nc: 1\n", "a.b", "a:\n  # inside\nc: 1\n"),
        ("---\n# first\n\na: 1\n# second\nb: 2\n", "a", "---\n# first\n\n# second\nb: 2\n"),
        (file, "server.text", &file.replace("    text: |\n        one\n\n        two\n", "")),
        (file, "server", "# licence\n---\n\n# about log\nlog: {level: info}\n"),
    ];
    for (text, key, expected) in rows {
        assert_eq!(edited(text, key, None).as_deref(), Ok(expected), "{key} of {text:?}");
    }
}

#[test]
fn scalars_have_their_values() {
    let text = "a: ~\nb: True\nc: 0x1F\nd: 0o17\ne: -1.5e3\nf: yes\ng: '1'\nh: \"\\u00fc\"\ni: 1.2.3\nj: !secret x\nk: [1, {a: b}]\nl: +7\n";
    let rows = [
        ("a", json!(null)),
        ("b", json!(true)),
        ("c", json!(31)),
        ("d", json!(15)),
        ("e", json!(-1500.0)),
        ("f", json!("yes")),
        ("g", json!("1")),
        ("h", json!("ü")),
        ("i", json!("1.2.3")),
        ("k", json!([1, {"a": "b"}])),
        ("l", json!(7)),
    ];
    for (key, wanted) in rows {
        assert_eq!(value(text, &path(key)), Ok(Some(wanted)), "{key}");
    }
    assert!(value(text, &path("j")).is_ok_and(|value| value.is_some_and(|value| value.is_object())));
    // Every text can be written and read.
    for word in
        ["", " a", "a ", "a: b", "a #b", "- a", "yes", "null", "1", "1.5", "0x1", "a\nb\t", "ü", "{a}", "*a", "12:30"]
    {
        for text in ["k: 1\n", "k: 'a'\n", "k: \"a\"\n", ""] {
            edited(text, "k", Some(&json!(word))).expect("set");
            edited(text, "k.\"x y\"", Some(&json!([word, {word: word}]))).ok();
        }
    }
}

#[test]
fn yaml_that_cannot_be_edited_safely_is_refused() {
    for (text, key, wanted, why) in [
        ("a: {b: 1}\n", "a.b", Some(json!(2)), "a is not a mapping in block form: set it as a whole"),
        ("a: [1]\n", "a.b", Some(json!(2)), "a is not a mapping in block form"),
        ("a: text\n", "a.b", Some(json!(2)), "a is not a mapping in block form"),
        ("- a\n", "a", Some(json!(2)), "the file is not a mapping in block form"),
        ("x: &x {b: 1}\na:\n  <<: *x\n  c: 1\n", "a.b", None, ""),
        ("x: &x {b: 1}\na:\n  <<: *x\n  c: 1\n", "a.c", Some(json!(2)), "a merges another mapping"),
        ("a: &x\n  b: 1\nc: *x\n", "a.b", Some(json!(2)), "would also change other keys"),
        ("a: &x 1\nc: *x\n", "a", Some(json!(2)), "would also change other keys"),
        ("? a\n: 1\n", "a", Some(json!(2)), "a does not begin its line"),
        ("a: 1\n---\nb: 1\n", "a", Some(json!(2)), "several documents"),
        ("a: 1\na: 2\n", "a", Some(json!(2)), "the key \"a\" is there twice"),
        ("a: [1\n", "a", Some(json!(2)), "line"),
        ("a: b: c\n", "a", Some(json!(2)), "line 1"),
    ] {
        let done = match &wanted {
            Some(wanted) => set(text, &path(key), wanted),
            None => remove(text, &path(key)),
        };
        let told = done.err().unwrap_or_default();
        assert!(told.contains(why), "{text:?}: {told}");
    }
    assert!(value(&"[".repeat(100_000), &path("a")).is_err(), "it ends");
    let bomb = (1..40)
        .fold("a0: &a0 [x, x, x]\n".to_owned(), |text, n| format!("{text}a{n}: &a{n} [*a{0}, *a{0}, *a{0}]\n", n - 1));
    assert!(value(&bomb, &path("a")).is_err_and(|why| why.contains("more than")));
}
