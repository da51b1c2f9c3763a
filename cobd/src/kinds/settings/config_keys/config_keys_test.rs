//! Keys of configuration files that others own.

use std::fs;
use std::path::Path;

use cob_kinds::ConfigFormat;

use super::super::tests::{self, content, host, moved, setting, spec_in};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

fn keys(root: &Path, format: &str, keys: &str) -> Box<dyn Spec> {
    let keys = format!(r#""path":"/etc/conf","format":"{format}",{keys}"#);
    spec_in(&ConfigKeysSetting, &content(root, &keys), "n1/x").expect("good")
}

fn there_and_back(root: &Path, spec: &dyn Spec, text: &str) -> [String; 2] {
    tests::there_and_back(root, spec, text.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("text"))
}

#[tokio::test]
async fn config_keys_keep_the_contract() {
    let ini = "# theirs\n[Service]\nRestart=no\nExecStart=/a\nExecStart=/b";
    let json = "{\n  // theirs\n  \"a\": {\"b\": 1}, // why\n  \"c\": [1]\n}";
    for (format, text, own, other) in [
        (
            "ini",
            ini,
            r#""set":{"Service.Restart":"always","Service.ExecStart":["","/c","/d"],"New.x":1}"#,
            r#""absent":["Service.ExecStart"]"#,
        ),
        ("json", json, r#""set":{"a.b":2,"d.e":[1]},"absent":["c"]"#, r#""set":{"a":5}"#),
        ("toml", "a = 1\n[t]\nx.y = 1", r#""set":{"t.x.z":[1,2],"a":"s"}"#, r#""set":{"b":{"c":1}}"#),
    ] {
        let host = host(&[("etc/conf", text)]);
        let [own, other] =
            [own, other].map(|keys| content(host.path(), &format!(r#""path":"/etc/conf","format":"{format}",{keys}"#)));
        let case = Case::new(setting("config-keys"), &own).other(&other).watching(host.path()).kills(3);
        holds(&case, &[]).await;
        assert_eq!(fs::read_to_string(host.path().join("etc/conf")).expect("read"), text);
    }
}

#[test]
fn lines_are_edited_and_restored_byte_for_byte() {
    let folder = host(&[("etc/conf", "")]);
    let root = folder.path();
    let rows: &[(&str, &str, &str, &str)] = &[
        // An existing value, a new key in the style of its neighbours, and a new section.
        ("ini", r#""set":{"a.x":2}"#, "[a]\nx = 1 \n", "[a]\nx = 2 \n"),
        ("ini", r#""set":{"a.y":true}"#, "[a]\n\tx = 1\n\n# b\n[b]\n", "[a]\n\tx = 1\n\ty = true\n\n# b\n[b]\n"),
        ("ini", r#""set":{"c.y":"v w","c.x":1}"#, "[a]\nx=1", "[a]\nx=1\n\n[c]\nx=1\ny=v w"),
        ("ini", r#""set":{"c.y":1}"#, "", "[c]\ny=1\n"),
        ("ini", r#""set":{"top":1}"#, "# licence\n\n# about a\n[a]\r\n", "# licence\n\ntop=1\r\n# about a\n[a]\r\n"),
        // Line ends, a mark of the encoding, and a last line without an end.
        ("ini", r#""set":{"a.x":2,"a.y":3}"#, "\u{FEFF}[a]\r\nx=1", "\u{FEFF}[a]\r\nx=2\r\ny=3"),
        // Repeated keys.
        ("ini", r#""set":{"a.x":["","3"]}"#, "[a]\nx=1\n#\n[b]\nx=0\n[a]\nx=2\n", "[a]\nx=\n#\n[b]\nx=0\n[a]\nx=3\n"),
        ("ini", r#""set":{"a.x":["1","2","3"]}"#, "[a]\nx=0\n#\n", "[a]\nx=1\nx=2\nx=3\n#\n"),
        ("ini", r#""set":{"a.x":3}"#, "[a]\nx=1\n#\nx=2\n\nx=4\nz=\n", "[a]\nx=3\n#\n\nz=\n"),
        ("ini", r#""absent":["a.x","a.y"]"#, "[a]\n\nx=1\ny=2\n\n[b]\nx=1\n", "[a]\n\n\n[b]\nx=1\n"),
        ("ini", r#""set":{"a.flag":1}"#, "[a]\nflag\n", "[a]\nflag=1\n"),
        ("ini", r#""set":{"a.flag":1}"#, "[a]\nflag =\n", "[a]\nflag = 1\n"),
        ("ini", r#""set":{"PHP.\"session.gc\"":1}"#, "[PHP]\nsession.gc = 2 \n", "[PHP]\nsession.gc = 1 \n"),
        ("ini", r#""set":{"remote \"o\".url":"x"}"#, "[remote \"o\"]\n\turl = y\n", "[remote \"o\"]\n\turl = x\n"),
        ("properties", r#""set":{"a.b":"ü","c d":1}"#, "! x\na.b : 1\n", "! x\na.b : \\u00FC\nc\\ d : 1\n"),
        ("properties", r#""set":{"a":2}"#, "a 1 \\\n  more\nb=1", "a 2\nb=1"),
        ("env", r#""set":{"A":"x y","B":2,"C":"z"}"#, "export A='1' # c\nB=1", "export A='x y' # c\nB=2\nC=z"),
        ("env", r#""set":{"A":"$x \"y\""}"#, "", "A=\"\\$x \\\"y\\\"\"\n"),
        ("env", r#""absent":["A"]"#, "if x; then\nA=\"1\n2\"\nfi\n", "if x; then\nfi\n"),
        ("toml", r#""set":{"a":[1,"x"]}"#, "# c\na = 1 # why\r\n[t]\n", "# c\na = [1, \"x\"] # why\r\n[t]\n"),
        ("toml", r#""set":{"t.b":1.5}"#, "a=1\n[t] # t\n\n[t.u]\nb=2\n", "a=1\n[t] # t\nb=1.5\n\n[t.u]\nb=2\n"),
        ("toml", r#""set":{"t.b":"s"}"#, "a = 1\n[t.u]\nb = 2", "a = 1\n[t.u]\nb = 2\n\n[t]\nb = \"s\""),
        ("toml", r#""set":{"t.b c.d":true}"#, "", "[t.\"b c\"]\nd=true\n"),
        ("toml", r#""set":{"t.b":1}"#, "t.a = 1\nz = 1\n", "t.a = 1\nt.b = 1\nz = 1\n"),
        ("toml", r#""set":{"d.v":"2"}"#, "d = { v = '1', f = [] } # d\n", "d = { v = \"2\", f = [] } # d\n"),
        ("toml", r#""absent":["t.b","c"]"#, "c = '''\nx\n'''\n[t]\na = 1\nb = [\n1,\n]\n", "[t]\na = 1\n"),
        ("toml", r#""set":{"t":{"a":1}}"#, "[t]\na = 1\n", "[t]\na = 1\n"),
        ("toml", r#""set":{"x":1}"#, "[[l]]\na = 1\n", "x = 1\n[[l]]\na = 1\n"),
    ];
    for (format, names, text, edited) in rows {
        let [there, back] = there_and_back(root, keys(root, format, names).as_ref(), text);
        assert_eq!(there, *edited, "{format} {names}");
        assert_eq!(back, *text, "{format} {names}");
    }
}

#[test]
fn json_is_edited_and_restored_byte_for_byte() {
    let folder = host(&[("etc/conf", "")]);
    let root = folder.path();
    let rows: &[(&str, &str, &str)] = &[
        (r#""set":{"a":2}"#, "{\"a\":1}", "{\"a\":2}"),
        (r#""set":{"b":"ü"}"#, "{\"a\": 1}\n", "{\"a\": 1, \"b\": \"ü\"}\n"),
        (r#""set":{"b":2}"#, "{ \"ü\": 1 }", "{ \"ü\": 1, \"b\": 2 }"),
        (r#""set":{"b":2}"#, "{}", "{\n  \"b\": 2\n}"),
        (r#""set":{"b":2}"#, "{ // c\n}\n", "{ // c\n  \"b\": 2\n}\n"),
        (
            r#""set":{"b":null}"#,
            "\u{FEFF}{\r\n\t\"a\": 1\r\n}\r\n",
            "\u{FEFF}{\r\n\t\"a\": 1,\r\n\t\"b\": null\r\n}\r\n",
        ),
        (
            r#""set":{"x.y.z":[1,{"k":true}]}"#,
            "{\n    \"a\": 1 // one\n    // end\n}\n",
            "{\n    \"a\": 1, // one\n    \"x\": {\n        \"y\": {\n            \"z\": [\n                1,\n                {\n                    \"k\": true\n                }\n            ]\n        }\n    }\n    // end\n}\n",
        ),
        (
            r#""set":{"a.d":1}"#,
            "{\n  \"a\": {\n    \"c\": 1,\n  },\n  \"b\": 1,\n}\n",
            "{\n  \"a\": {\n    \"c\": 1,\n    \"d\": 1,\n  },\n  \"b\": 1,\n}\n",
        ),
        (r#""set":{"a.d":1}"#, "{\n  \"a\": {  }\n}\n", "{\n  \"a\": {\n    \"d\": 1\n  }\n}\n"),
        (r#""absent":["a"]"#, "{\"a\": 1, \"b\": 2}", "{ \"b\": 2}"),
        (r#""absent":["b"]"#, "{\"a\": 1, \"b\": 2}", "{\"a\": 1}"),
        (
            r#""absent":["b","c"]"#,
            "{\n  \"a\": 1,\n  // b\n  \"b\": {}, // why\n  \"c\": 2\n}",
            "{\n  \"a\": 1\n  // b\n}",
        ),
        (r#""absent":["a","b"]"#, "{\n  \"a\": 1,\n  \"b\": 2,\n}", "{\n}"),
        (r#""set":{"\"a.b\"":2}"#, "{\"a.b\": 1 , \"c\": 1}", "{\"a.b\": 2 , \"c\": 1}"),
        (
            r#""set":{"a":{"b":1}}"#,
            "{\n  \"a\": [1, 2], // c\n  \"c\": 1\n}",
            "{\n  \"a\": {\n    \"b\": 1\n  }, // c\n  \"c\": 1\n}",
        ),
        (r#""set":{"a":1.0}"#, "{\"a\": 1}", "{\"a\": 1}"),
    ];
    for (names, text, edited) in rows {
        let [there, back] = there_and_back(root, keys(root, "json", names).as_ref(), text);
        assert_eq!(there, *edited, "{names}");
        assert_eq!(back, *text, "{names}");
    }
}

#[tokio::test]
async fn edits_of_users_stay() {
    for (format, text, edited, users, after) in [
        ("ini", "[a]\nx=1\ny=1\n", "[a]\nx=2\ny=2\n", "# mine\n[a]\nz=1\nx=2\ny=9\n", "# mine\n[a]\nz=1\nx=1\ny=9\n"),
        ("env", "x=1\ny=1\n", "x=2\ny=2\n", "x=2 \ny=9\n#\n", "x=1 \ny=9\n#\n"),
        (
            "json",
            r#"{"x": 1, "y": 1}"#,
            r#"{"x": 2, "y": 2}"#,
            "{\"z\": [], /* mine */ \"y\": 9, \"x\": 2}",
            "{\"z\": [], /* mine */ \"y\": 9, \"x\": 1}",
        ),
        ("toml", "x = 1\ny = 1\n", "x = 2\ny = 2\n", "y = 9 # mine\nx = 2 # two\n", "y = 9 # mine\nx = 1 # two\n"),
    ] {
        let host = host(&[("etc/conf", text)]);
        let file = host.path().join("etc/conf");
        let mut bench = Bench::new();
        let [x, y] = ["x", "y"].map(|key| if format == "ini" { format!("a.{key}") } else { key.to_owned() });
        let keys = format!(r#""path":"/etc/conf","format":"{format}","set":{{"{x}":2,"{y}":2}}"#);
        let context = bench.context(&setting("config-keys"), &content(host.path(), &keys));
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!(fs::read_to_string(&file).expect("read"), edited);
        fs::write(&file, users).expect("written");
        let found = bench.check(&context).await;
        assert!(found.state.is_ok_and(|state| state == *"outdated"));
        assert!(
            found.difference.contains(&format!("\"{y}\"")) && !found.difference.contains(&x),
            "{}",
            found.difference
        );
        moved(&mut bench, &context, "outdated", "absent").await;
        assert_eq!(fs::read_to_string(&file).expect("read"), after);
    }
}

#[tokio::test]
async fn a_key_no_longer_in_the_content_gets_its_earlier_value() {
    let host = host(&[("etc/conf", "[a]\nx=1\ny=1\n")]);
    let file = host.path().join("etc/conf");
    let read = || fs::read_to_string(&file).expect("read");
    let mut bench = Bench::new();
    let keys = |bench: &Bench, set: &str| {
        let keys = format!(r#""path":"/etc/conf","format":"ini","set":{set}"#);
        bench.context(&setting("config-keys"), &content(host.path(), &keys))
    };
    let both = keys(&bench, r#"{"a.x":2,"a.y":2}"#);
    moved(&mut bench, &both, "absent", "present").await;
    let one = keys(&bench, r#"{"a.x":3}"#);
    let found = bench.check(&one).await;
    assert!(found.difference.contains("not managed any more"), "{}", found.difference);
    moved(&mut bench, &one, "outdated", "present").await;
    assert_eq!(read(), "[a]\nx=3\ny=1\n");
    // It is the user's key now, and a later take-over notes the user's value.
    fs::write(&file, "[a]\nx=3\ny=5\n").expect("written");
    assert_eq!(bench.state(&one).await, "present");
    moved(&mut bench, &both, "outdated", "present").await;
    assert_eq!(read(), "[a]\nx=2\ny=2\n");
    moved(&mut bench, &both, "present", "absent").await;
    assert_eq!(read(), "[a]\nx=1\ny=5\n");
}

#[tokio::test]
async fn several_change_objects_edit_the_same_file() {
    let host = host(&[]);
    let file = host.path().join("etc/conf");
    let mut bench = Bench::new();
    let contexts = ["b", "a"].map(|key| {
        let keys = format!(r#""path":"/etc/conf","format":"json","create":true,"set":{{"t.{key}":1}}"#);
        let mut context = bench.context(&setting("config-keys"), &content(host.path(), &keys));
        std::sync::Arc::make_mut(&mut context.cob).id = crate::kinds::testing::cob_id(&format!("n1/{key}"));
        context
    });
    for context in &contexts {
        moved(&mut bench, context, "absent", "present").await;
    }
    let text = "{\n  \"t\": {\n    \"b\": 1,\n    \"a\": 1\n  }\n}\n";
    assert_eq!(fs::read_to_string(&file).expect("read"), text);
    for context in contexts.iter().rev() {
        assert_eq!(bench.state(context).await, "present");
        moved(&mut bench, context, "present", "absent").await;
    }
    assert!(!file.exists(), "a file that was made for the keys goes");
}

#[tokio::test]
async fn a_file_that_can_not_be_edited_stays_as_it_is() {
    let host = host(&[("etc/conf", "")]);
    let file = host.path().join("etc/conf");
    let mut bench = Bench::new();
    for (format, text, set, words) in [
        ("json", "{\"a\": }", r#"{"a":1}"#, "its json can't be edited: "),
        ("json", "[1]", r#"{"a":1}"#, "it has no mapping `{…}` at its top"),
        ("json", "{\"a\": 1, \"a\": 2}", r#"{"a":3}"#, "the key \"a\" is there twice"),
        ("json", "{\"a\": 1}", r#"{"a.b":3}"#, "a is no mapping"),
        ("toml", "a = 1\nb =\n", r#"{"a":2}"#, "its toml can't be edited: line 2: "),
        ("toml", "[a]\nb = 1\n", r#"{"a":2}"#, "a is a table with its own lines: name the keys in it"),
        ("toml", "a = 1\n", r#"{"a.b":2}"#, "a is a list or a value on a single line"),
        ("toml", "[[a]]\nb = 1\n", r#"{"a.b":2}"#, "a is a list or a value on a single line"),
        ("ini", "[a]\n[b\n", r#"{"a.x":2}"#, "line 2: a section has no `]`"),
        ("env", "A='x\n", r#"{"A":2}"#, "line 1: its quote is not closed"),
    ] {
        fs::write(&file, text).expect("written");
        let keys = format!(r#""path":"/etc/conf","format":"{format}","set":{set}"#);
        let context = bench.context(&setting("config-keys"), &content(host.path(), &keys));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{format} {text}: {why}");
        assert_eq!(fs::read_to_string(&file).expect("read"), text);
        // A failed transition may leave a note: the next kind of file is another object.
        let _ = bench.transition(&context, "outdated", "absent").await;
        bench = Bench::new();
    }
}

#[tokio::test]
async fn odd_files_keep_their_bytes() {
    let host = host(&[("etc/real", ""), ("etc/big", "")]);
    let (real, link) = (host.path().join("etc/real"), host.path().join("etc/conf"));
    std::os::unix::fs::symlink("real", &link).expect("linked");
    let mut bench = Bench::new();
    let keys = |bench: &Bench, path: &str, more: &str| {
        let keys = format!(r#""path":"{path}","format":"ini","set":{{"a.x":2}}{more}"#);
        bench.context(&setting("config-keys"), &content(host.path(), &keys))
    };
    let bytes = b"; J\xFCrgen\r\n[a]\r\nx = 1\r\n\r\nnot \xFF UTF-8=1";
    fs::write(&real, bytes).expect("written");
    let context = keys(&bench, "/etc/conf", "");
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(fs::read(&real).expect("read"), b"; J\xFCrgen\r\n[a]\r\nx = 2\r\n\r\nnot \xFF UTF-8=1");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(fs::read(&real).expect("read"), bytes);
    // A file that is too long, and a file that is missing.
    let big = fs::OpenOptions::new().write(true).open(host.path().join("etc/big")).expect("open");
    big.set_len((16 << 20) + 1).expect("longer");
    for (path, words) in [("/etc/big", "it is longer than"), ("/etc/x/missing", "`create: true` makes it")] {
        let mut bench = Bench::new();
        let context = keys(&bench, path, "");
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{why}");
    }
    let mut bench = Bench::new();
    let context = keys(&bench, "/etc/x/missing", r#","create":true"#);
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(fs::read_to_string(host.path().join("etc/x/missing")).expect("read"), "[a]\nx=2\n");
    moved(&mut bench, &context, "present", "absent").await;
    assert!(!host.path().join("etc/x/missing").exists());
}

/// Any edit of any key of a text, forth and back.
#[test]
fn every_edit_is_undone_byte_for_byte() {
    let texts = [
        (ConfigFormat::Ini, "t=1\n# c\n[a]\nx=1\n\nx = 2\ny=3\n; d\n[b]\n\ty=1\n[a]\nz=5"),
        (ConfigFormat::Toml, "t = 1 # c\na.x = [\n 1,\n]\n\n# b\n[b] # d\ny = {k = 1}\n\n[b.c]\nz = 1\n"),
        (ConfigFormat::Json, "{ // c\n  \"t\": 1,\n\n  // a\n  \"a\": {\"x\": 1, \"y\": {}}, // d\n  \"b\": {\n  }\n}"),
        (ConfigFormat::Json, "{\"t\":1,\"a\":{\"x\":[1,2]},\"b\":{}}\n"),
    ];
    for (format, text) in texts {
        let names = ["t", "u", "a.x", "a.y", "a.z", "b.y", "b.n", "n.x", "n.y"];
        for wanted in 0..3_usize.pow(u32::try_from(names.len()).expect("few")) {
            // A third of all combinations is enough.
            if wanted % 7 != 0 {
                continue;
            }
            let mut rest = wanted;
            let mut keys = BTreeMap::new();
            for name in names {
                let parts = format.parts(name).expect("a key");
                let value = [None, Some(Some(json!(7))), Some(None)][rest % 3].clone();
                rest /= 3;
                keys.extend(value.map(|wanted| (name.to_owned(), Key { parts, wanted })));
            }
            let host = Host::below(None).expect("this host");
            let spec =
                Keys { host, path: String::new(), format: Format(format), create: false, own: PathBuf::new(), keys };
            let noted = spec.noted(text, &Siblings::default()).expect("noted");
            let Ok(edited) = spec.edited(text, &Noted::default()) else { continue };
            let back = spec.put_back(&edited, &noted.iter().collect()).expect("put back");
            assert_eq!(back, text, "{:?} {edited}", spec.keys);
        }
    }
}

#[tokio::test]
async fn a_shared_section_is_removed_with_its_last_change_object() {
    let ini = ("ini", r#""set":{"New.a":1}"#, r#""set":{"New.b":2}"#);
    let toml = ("toml", r#""set":{"new.a":1}"#, r#""set":{"new.b":2}"#);
    let json = ("json", r#""set":{"new.a.b":1}"#, r#""set":{"new.a.c":2}"#);
    let yaml = ("yaml", r#""set":{"new.a.b":1}"#, r#""set":{"new.a.c":2}"#);
    for (format, one, two) in [ini, toml, json, yaml] {
        let [closed, open] = match format {
            "json" => ["{\"x\": 1}\n", "{\n  \"x\": 1\n}"],
            "yaml" => ["x: 1\n", "x: 1"],
            _ => ["x = 1\n", "x = 1"],
        };
        for (text, first_leaves_first) in [(Some(closed), true), (Some(open), false), (None, true), (None, false)] {
            let host = host(&[("etc/other", "")]);
            let file = host.path().join("etc/conf");
            if let Some(text) = text {
                fs::write(&file, text).expect("written");
            }
            let mut bench = Bench::new();
            let contexts = [("n1/one", one), ("n1/two", two)].map(|(id, keys)| {
                let keys = format!(r#""path":"/etc/conf","format":"{format}","create":true,{keys}"#);
                let mut context = bench.context(&setting("config-keys"), &content(host.path(), &keys));
                std::sync::Arc::make_mut(&mut context.cob).id = crate::kinds::testing::cob_id(id);
                context
            });
            for context in &contexts {
                moved(&mut bench, context, "absent", "present").await;
            }
            let leaving = if first_leaves_first { [0, 1] } else { [1, 0] };
            for at in leaving {
                moved(&mut bench, &contexts[at], "present", "absent").await;
            }
            let left = fs::read_to_string(&file).ok();
            assert_eq!(left.as_deref(), text, "{format}, {first_leaves_first}");
        }
    }
}
