//! Downloads from a server with faults, into a folder that stands for a host.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::json;

use super::super::tests::{host, moved, setting};
use super::super::web_test::{Page, Web};
use super::fetch::sum;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

fn sum_of(bytes: &[u8]) -> String {
    sum(&mut &*bytes).expect("read")
}

/// Bytes that take `curl` more than a single read.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).expect("small")).collect()
}

/// A content with further keys.
fn content(root: &std::path::Path, urls: &[String], bytes: &[u8], more: serde_json::Value) -> String {
    let mut content = json!({"root": root, "urls": urls, "sha256": sum_of(bytes), "to": "/opt/x/tool"});
    for (key, value) in more.as_object().into_iter().flatten() {
        content[key] = value.clone();
    }
    if content["checksum"].is_string() {
        content.as_object_mut().expect("a mapping").remove("sha256");
    }
    content.to_string()
}

#[tokio::test]
async fn downloads_keep_the_contract() {
    let (one, two) = (bytes(300_000), bytes(200_000));
    let web = Web::new(&[("/1", Page::File(one.clone())), ("/2", Page::File(two.clone()))]);
    for files in [&[][..], &[("opt/x/tool", "theirs, without a line end")]] {
        let host = host(files);
        let own = content(host.path(), &[web.url("/1")], &one, json!({"mode": "0755"}));
        let other = content(host.path(), &[web.url("/2")], &two, json!({}));
        let case = Case::new(setting("download"), &own).other(&other).watching(host.path()).kills(6);
        holds(&case, &[]).await;
        assert_eq!(host.path().join("opt").exists(), !files.is_empty(), "folders that were made are removed");
    }
}

#[tokio::test]
async fn a_file_without_a_checksum_keeps_the_contract() {
    let web = Web::new(&[("/1", Page::File(bytes(100_000))), ("/2", Page::File(bytes(1000)))]);
    let host = host(&[("opt/x/tool", "theirs")]);
    let [own, other] =
        ["/1", "/2"].map(|path| content(host.path(), &[web.url(path)], b"", json!({"checksum": "none"})));
    let case = Case::new(setting("download"), &own).other(&other).watching(host.path()).kills(4);
    holds(&case, &[]).await;
}

#[tokio::test]
async fn only_the_right_file_appears_and_the_earlier_file_returns() {
    let right = bytes(50_000);
    let web = Web::new(&[
        ("/wrong", Page::File(b"an error page with the status 200".to_vec())),
        ("/half", Page::Half(right.clone())),
        ("/right", Page::File(right.clone())),
    ]);
    let host = host(&[]);
    let file = host.path().join("opt/x/tool");
    fs::create_dir_all(file.parent().expect("below")).expect("made");
    let earlier = b"\xFF\x00 not UTF-8\r\nno line end";
    fs::write(&file, earlier).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).expect("set");
    let mut bench = Bench::new();
    let urls = ["/missing", "/wrong"].map(|path| web.url(path));
    let wrong = bench.context(&setting("download"), &content(host.path(), &urls, &right, json!({})));
    let why = reason(bench.transition(&wrong, "absent", "present").await);
    for word in ["the status 404", "/wrong: the file of 33 bytes has the checksum ", &sum_of(&right)] {
        assert!(why.contains(word), "{word}: {why}");
    }
    assert_eq!(fs::read(&file).expect("read"), earlier, "a wrong file never appears");
    // A mirror that breaks off; the next mirror continues its part.
    web.asked();
    let urls = ["/half", "/right"].map(|path| web.url(path));
    let context = bench.context(&setting("download"), &content(host.path(), &urls, &right, json!({})));
    assert_eq!(bench.state(&context).await, "outdated");
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(web.asked(), ["/half", "/right from 25000"]);
    assert_eq!(fs::read(&file).expect("read"), right);
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o7777, 0o644);
    // An edit is found and repaired; another mode needs no download.
    fs::write(&file, "edited").expect("written");
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated") && found.difference.contains(&sum_of(b"edited")));
    moved(&mut bench, &context, "outdated", "present").await;
    web.asked();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    assert_eq!(bench.state(&context).await, "outdated");
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(web.asked(), [""; 0]);
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(fs::read(&file).expect("read"), earlier);
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o7777, 0o4751);
}

#[tokio::test]
async fn a_part_is_continued_or_downloaded_anew() {
    let right = bytes(40_000);
    let web = Web::new(&[("/x", Page::Half(right.clone()))]);
    let host = host(&[]);
    let mut bench = Bench::new();
    let context = bench.context(&setting("download"), &content(host.path(), &[web.url("/x")], &right, json!({})));
    // Also the part of another file, which is longer, and a server that sends no parts.
    let pages = [Page::File(right.clone()), Page::Whole(right.clone())];
    let longer = bytes(90_000).split_off(1);
    for (page, part) in pages.iter().flat_map(|page| [(page, None), (page, Some(&longer))]) {
        web.set("/x", Page::Half(right.clone()));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains("curl: (18)"), "{why}");
        assert!(!host.path().join("opt/x/tool").exists());
        if let Some(part) = part {
            let mut own = fs::read_dir(bench.path("cobs")).expect("listed").flatten().map(|entry| entry.path());
            let own = own.find(|path| path.is_dir()).expect("the own folder");
            fs::write(own.join("part"), part).expect("written");
        }
        web.set("/x", page.clone());
        web.asked();
        moved(&mut bench, &context, "outdated", "present").await;
        let from = part.map_or(20_000, |part| part.len());
        assert_eq!(web.asked()[0], format!("/x from {from}"));
        assert_eq!(fs::read(host.path().join("opt/x/tool")).expect("read"), right);
        moved(&mut bench, &context, "present", "absent").await;
    }
}

#[tokio::test]
async fn redirects_and_sizes_have_limits() {
    let right = bytes(5000);
    let web = Web::new(&[
        ("/right", Page::File(right.clone())),
        ("/endless", Page::Endless),
        ("/file", Page::To("file:///etc/passwd".to_owned())),
        ("/secure", Page::To("https://127.0.0.1:9/x".to_owned())),
    ]);
    web.set("/away", Page::To(web.url("/away2")));
    web.set("/away2", Page::To("/right".to_owned()));
    web.set("/circle", Page::To(web.url("/circle")));
    let host = host(&[]);
    let mut bench = Bench::new();
    for (path, more, words) in [
        ("/endless", json!({"max_size": "1M"}), "larger than 1 MiB"),
        ("/right", json!({"max_size": 4999}), "larger than 4999 bytes"),
        ("/file", json!({}), "redirects to file:///etc/passwd, which is refused"),
        ("/circle", json!({}), "more than 10 redirects"),
        // Nothing listens there: the redirect itself is followed.
        ("/secure", json!({}), "curl: (7)"),
        ("/right", json!({"netrc": "/nonexistent/netrc"}), "/nonexistent/netrc is missing"),
        ("/right", json!({"owner": "nobody-of-this-name"}), "there is no user nobody-of-this-name"),
        ("/right", json!({"proxy": "http://127.0.0.1:9"}), "curl: (7)"),
    ] {
        let context = bench.context(&setting("download"), &content(host.path(), &[web.url(path)], &right, more));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{path}: {why}");
        assert!(!host.path().join("opt/x/tool").exists(), "{path}");
    }
    let context = bench.context(&setting("download"), &content(host.path(), &[web.url("/away")], &right, json!({})));
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
}

#[tokio::test]
async fn passwords_are_in_a_file_of_the_host() {
    let right = bytes(100);
    // `me:secret` in base64.
    let web = Web::new(&[("/x", Page::For("bWU6c2VjcmV0", right.clone()))]);
    let host = host(&[("netrc", "machine 127.0.0.1 login me password secret\n")]);
    let mut bench = Bench::new();
    let netrc = json!({"netrc": host.path().join("netrc")});
    let context = |more| content(host.path(), &[web.url("/x")], &right, more);
    let without = bench.context(&setting("download"), &context(json!({})));
    assert!(reason(bench.transition(&without, "absent", "present").await).contains("the status 401"));
    let with = bench.context(&setting("download"), &context(netrc));
    moved(&mut bench, &with, "outdated", "present").await;
    moved(&mut bench, &with, "present", "absent").await;
}

#[tokio::test]
async fn links_and_folders_at_the_place_are_safe() {
    let right = bytes(100);
    let web = Web::new(&[("/x", Page::File(right.clone()))]);
    let host = host(&[("opt/x/other", "theirs"), ("opt/y", "")]);
    let file = host.path().join("opt/x/tool");
    let mut bench = Bench::new();
    let context = bench.context(&setting("download"), &content(host.path(), &[web.url("/x")], &right, json!({})));
    symlink("other", &file).expect("linked");
    moved(&mut bench, &context, "absent", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(fs::read_link(&file).expect("a link"), std::path::Path::new("other"));
    assert_eq!(fs::read_to_string(&file).expect("read"), "theirs");
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("made");
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("it is a folder"), "{why}");
    let outside = tempfile::tempdir().expect("a folder");
    fs::remove_dir_all(host.path().join("opt/x")).expect("removed");
    symlink(outside.path(), host.path().join("opt/x")).expect("linked");
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("out of"), "{why}");
    assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 0);
}
