//! Edits in files that others own.

use std::fs;
use std::path::Path;

use super::super::tests::{content, host, moved, setting, spec_in, there_and_back};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

fn line(root: &Path, keys: &str) -> Box<dyn Spec> {
    spec_in(&LineSetting, &content(root, &format!(r#""path":"/etc/conf",{keys}"#)), "n1/x").expect("good")
}

fn block(root: &Path, keys: &str) -> Box<dyn Spec> {
    spec_in(&BlockSetting, &content(root, &format!(r#""path":"/etc/conf",{keys}"#)), "n1/x").expect("good")
}

#[tokio::test]
async fn lines_and_blocks_keep_the_contract() {
    let text = "# theirs\nPort 22\nlast";
    for (name, keys, other) in [
        ("line", r#""line":"Port 2222","match":"^Port ""#, r#""line":"Port 99","match":"^Port ""#),
        ("line", r#""match":"^Port ","absent":true"#, r#""line":"UsePAM yes""#),
        ("block", r##""block":"a\nb\n","after":"^Port""##, r#""block":"c""#),
    ] {
        let host = host(&[("etc/conf", text)]);
        let [own, other] = [keys, other].map(|keys| content(host.path(), &format!(r#""path":"/etc/conf",{keys}"#)));
        let case = Case::new(setting(name), &own).other(&other).watching(host.path()).kills(3);
        holds(&case, &[]).await;
    }
}

#[test]
fn lines_are_replaced_inserted_and_restored_byte_for_byte() {
    let folder = host(&[("etc/conf", "")]);
    let root = folder.path();
    let rows: &[(&str, &[u8], &[u8])] = &[
        (r#""line":"b","match":"^[bx]""#, b"a\nx\nc", b"a\nb\nc"),
        (r#""line":"b","match":"^[bx]""#, b"a\r\nx\r\nc\r\n", b"a\r\nb\r\nc\r\n"),
        (r#""line":"b","match":"^[bx]""#, b"x\nx\n", b"b\nx\n"),
        (r#""line":"b""#, b"", b"b\n"),
        (r#""line":"b""#, b"a", b"b\na"),
        (r#""line":"b""#, b"a\nb\nc\n", b"a\nb\nc\n"),
        (r#""line":"b""#, b"\xFF\xFE\n", b"\xFF\xFE\nb\n"),
        (r#""line":"b","after":"^a""#, b"a\na\nz\n", b"a\na\nb\nz\n"),
        (r#""line":"b","before":"^z""#, b"a\nz\nz\n", b"a\nb\nz\nz\n"),
        (r#""line":"b","before":"^q""#, b"a\r\n", b"a\r\nb\r\n"),
        (r#""line":"b","absent":true"#, b"a\nb\nb\nc", b"a\nc"),
        (r#""match":"^x","absent":true"#, b"x1\na\nx2\nx3", b"a\n"),
    ];
    for (keys, text, edited) in rows {
        let [there, back] = there_and_back(root, line(root, keys).as_ref(), text);
        assert_eq!(there, *edited, "{keys}: {}", String::from_utf8_lossy(&there));
        assert_eq!(back, *text, "{keys}: {}", String::from_utf8_lossy(&back));
    }
}

#[test]
fn blocks_are_inserted_repaired_and_restored() {
    let folder = host(&[("etc/conf", "")]);
    let root = folder.path();
    let rows: &[(&str, &str, &str)] = &[
        (r#""block":"1\n2""#, "a\n", "a\n# begin cob n1/x\n1\n2\n# end cob n1/x\n"),
        (r#""block":"1","comment":"//","after":"^a""#, "a\nz\n", "a\n// begin cob n1/x\n1\n// end cob n1/x\nz\n"),
        (r#""block":"","before":"^a""#, "a\r\n", "# begin cob n1/x\r\n# end cob n1/x\r\na\r\n"),
    ];
    for (keys, text, edited) in rows {
        let [there, back] = there_and_back(root, block(root, keys).as_ref(), text.as_bytes());
        assert_eq!(
            (String::from_utf8_lossy(&there), String::from_utf8_lossy(&back)),
            ((*edited).into(), (*text).into())
        );
    }
    // Broken markers are removed, and the lines beside them stay.
    let spec = block(root, r#""block":"1""#);
    fs::write(root.join("etc/conf"), "a\n# begin cob n1/x\nb\n# begin cob n1/x\nc\n").expect("written");
    spec.apply(None).expect("applied");
    let text = fs::read_to_string(root.join("etc/conf")).expect("read");
    assert_eq!(text, "a\n# begin cob n1/x\n1\n# end cob n1/x\nb\nc\n");
}

#[tokio::test]
async fn edits_of_users_stay() {
    let host = host(&[("etc/conf", "a\nPort 22\nz\n")]);
    let file = host.path().join("etc/conf");
    let mut bench = Bench::new();
    let keys = |keys: &str| content(host.path(), &format!(r#""path":"/etc/conf",{keys}"#));
    let port = bench.context(&setting("line"), &keys(r#""line":"Port 2222","match":"^Port ""#));
    moved(&mut bench, &port, "absent", "present").await;
    // Another line is theirs alone.
    fs::write(&file, "new\na\nPort 2222\nz\n").expect("written");
    assert_eq!(bench.state(&port).await, "present");
    // Another value of ours: the one that was there first returns.
    let other = bench.context(&setting("line"), &keys(r#""line":"Port 99","match":"^Port ""#));
    moved(&mut bench, &other, "outdated", "present").await;
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), "new\na\nPort 22\nz\n");
    // A line that a user has changed since is theirs.
    moved(&mut bench, &port, "absent", "present").await;
    fs::write(&file, "Port 80\n").expect("written");
    assert_eq!(bench.state(&port).await, "outdated");
    moved(&mut bench, &port, "outdated", "absent").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), "Port 80\n");
}

#[tokio::test]
async fn a_missing_file_is_created_only_on_demand_and_removed_again() {
    let host = host(&[("etc/other", "")]);
    let file = host.path().join("etc/conf");
    for (name, keys) in [("line", r#""line":"a""#), ("block", r#""block":"a""#)] {
        let mut bench = Bench::new();
        let keys = |more: &str| content(host.path(), &format!(r#""path":"/etc/conf",{keys}{more}"#));
        let missing = bench.context(&setting(name), &keys(""));
        let why = reason(bench.transition(&missing, "absent", "present").await);
        assert!(why.contains("/etc/conf does not exist; `create: true` makes it"), "{why}");
        let mut bench = Bench::new();
        let made = bench.context(&setting(name), &keys(r#","create":true"#));
        moved(&mut bench, &made, "absent", "present").await;
        assert!(file.exists());
        moved(&mut bench, &made, "present", "absent").await;
        assert!(!file.exists(), "{name}");
    }
}
