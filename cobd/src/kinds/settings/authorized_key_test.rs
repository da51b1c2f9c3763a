//! Keys in the home of an account, in a folder that stands for a host.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use super::super::tests::{content, host, moved, setting, spec_in};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK";
const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGn0LdaiC5fmXI9E46I/XIEPgLx3Mk2PG5E4DnUqNp8M";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A host with the account `ada` and its home. Only root can have files of another user.
fn with_home() -> tempfile::TempDir {
    let uid = if is_root() { 1234 } else { rustix::process::geteuid().as_raw() };
    let gid = if is_root() { 1235 } else { rustix::process::getegid().as_raw() };
    let passwd = format!("root:x:0:0::/root:/bin/sh\nada:x:{uid}:{gid}::/users/ada:/bin/sh\n");
    let host = host(&[("etc/passwd", &passwd), ("users/ada/notes", "mine\n"), ("private/secret", "secret\n")]);
    chown(host.path().join("users/ada"), Some(uid), Some(gid)).expect("given");
    host
}

fn keys(extra: &str) -> String {
    format!(r#""user":"ada","key":"{KEY} ada@laptop"{extra}"#)
}

fn spec(root: &Path) -> Box<dyn Spec> {
    spec_in(&AuthorizedKeySetting, &content(root, &keys("")), "n1/a").expect("good")
}

/// A file of the home with this content.
fn write(host: &tempfile::TempDir, text: &[u8]) -> PathBuf {
    let folder = host.path().join("users/ada/.ssh");
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join(FILE), text).expect("written");
    folder.join(FILE)
}

#[tokio::test]
async fn a_key_is_added_and_removed_with_its_folder_and_file() {
    let host = with_home();
    let file = host.path().join("users/ada/.ssh/authorized_keys");
    let mut bench = Bench::new();
    let context = bench.context(&setting("authorized-key"), &content(host.path(), &keys(r#","options":"restrict""#)));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), format!("restrict {KEY} ada@laptop\n"));
    let home = fs::metadata(host.path().join("users/ada")).expect("there");
    for (path, mode) in [(file.as_path(), 0o600), (file.parent().expect("below"), 0o700)] {
        let is = fs::metadata(path).expect("there");
        assert_eq!((is.mode() & 0o7777, is.uid(), is.gid()), (mode, home.uid(), home.gid()), "{}", path.display());
    }
    // Another comment is another line of the same key.
    let other = content(host.path(), &keys(r#","comment":"Ada""#));
    let other = bench.context(&setting("authorized-key"), &other);
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), format!("{KEY} Ada\n"));
    // The user gives the key more rights, or removes the file.
    fs::write(&file, format!("{OTHER}\n{KEY}\n{KEY} Ada\n")).expect("written");
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), format!("{OTHER}\n{KEY} Ada\n"));
    // A file with lines of the user stays.
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), format!("{OTHER}\n"));
    fs::remove_dir_all(file.parent().expect("below")).expect("removed");
    moved(&mut bench, &other, "absent", "present").await;
    moved(&mut bench, &other, "present", "absent").await;
    assert!(!host.path().join("users/ada/.ssh").exists());
    // Another key in the same change object: the first key goes.
    moved(&mut bench, &other, "absent", "present").await;
    let key = content(host.path(), &format!(r#""user":"ada","key":"{OTHER}""#));
    let key = bench.context(&setting("authorized-key"), &key);
    assert_eq!(bench.state(&key).await, "outdated");
    moved(&mut bench, &key, "outdated", "present").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), format!("{OTHER}\n"));
}

#[test]
fn other_lines_and_earlier_lines_of_the_key_stay_byte_for_byte() {
    for text in [
        String::new(),
        "# mine\n\n".to_owned(),
        format!("{OTHER}\r\n# mine\r\n"),
        format!("{OTHER} no end"),
        format!("{OTHER}\n{KEY} old"),
        format!("{OTHER}\ncommand=\"x\" {KEY} old\n# last"),
        format!("{KEY}\n{OTHER}\nrestrict {KEY} again\n# x\n{KEY}\r\n"),
        format!("{KEY}\n{KEY}"),
    ] {
        for bytes in [text.clone().into_bytes(), [b"# b\xFCro\n".as_slice(), text.as_bytes()].concat()] {
            let host = with_home();
            let file = write(&host, &bytes);
            let spec = spec(host.path());
            let before = spec.before().expect("seen");
            for _ in 0..2 {
                spec.apply(before.as_ref()).expect("applied");
                assert_eq!(spec.look(before.as_ref()).expect("seen"), Some(spec.wanted()), "{text:?}");
            }
            let with = fs::read(&file).expect("read");
            assert!(!bytes.starts_with(b"# b") || with.starts_with(b"# b\xFCro\n"), "{text:?}");
            // The note is JSON.
            let note = serde_json::to_string(&before).expect("plain data");
            let before: Option<Value> = serde_json::from_str(&note).expect("read");
            for _ in 0..2 {
                spec.restore(before.as_ref()).expect("restored");
                assert_eq!(fs::read(&file).expect("read"), bytes, "{text:?}");
            }
        }
    }
}

#[test]
fn later_lines_stay_after_an_earlier_line_without_a_line_end() {
    let host = with_home();
    let file = write(&host, format!("# mine\n{KEY} old").as_bytes());
    let spec = spec(host.path());
    let before = spec.before().expect("seen");
    spec.apply(before.as_ref()).expect("applied");
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, format!("# first\n{text}# last\n")).expect("written");
    spec.restore(before.as_ref()).expect("restored");
    assert_eq!(fs::read_to_string(&file).expect("read"), format!("# first\n# mine\n{KEY} old\n# last\n"));
}

/// A thing that a user has put into the home, and a word of the refusal.
type Planted<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn a_file_outside_the_home_is_neither_read_nor_written() {
    let folder = |home: &Path| fs::create_dir(home.join(".ssh")).expect("made");
    let planted: [Planted<'_>; 7] = [
        ("follows no link", &|home| symlink("../../private", home.join(".ssh")).expect("linked")),
        ("follows no link", &|home| symlink("notes", home.join(".ssh")).expect("linked")),
        ("is not a folder", &|home| fs::write(home.join(".ssh"), "x").expect("written")),
        ("follows no link", &|home| {
            folder(home);
            symlink("../../../private/secret", home.join(".ssh/authorized_keys")).expect("linked");
        }),
        ("not a regular file", &|home| {
            folder(home);
            fs::create_dir(home.join(".ssh/authorized_keys")).expect("made");
        }),
        ("not a regular file", &|home| {
            folder(home);
            let pipe = home.join(".ssh/authorized_keys");
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).expect("made");
        }),
        ("longer than", &|home| {
            folder(home);
            let file = fs::File::create(home.join(".ssh/authorized_keys")).expect("made");
            file.set_len((16 << 20) + 1).expect("longer");
        }),
    ];
    let of_root: [Planted<'_>; 3] = [
        ("belongs to user 0, and not", &|home| {
            folder(home);
            fs::hard_link(home.join("../../private/secret"), home.join(".ssh/authorized_keys")).expect("linked");
        }),
        ("belongs to user 4321, and not", &|home| {
            folder(home);
            chown(home.join(".ssh"), Some(4321), None).expect("given");
        }),
        ("could lead the change to another place", &|home| {
            chown(home.parent().expect("below"), Some(4321), None).expect("given");
        }),
    ];
    for (word, plant) in planted.iter().chain(of_root.iter().filter(|_| is_root())) {
        let host = with_home();
        let spec = spec(host.path());
        let before = spec.before().expect("seen");
        plant(&host.path().join("users/ada"));
        for (done, result) in [
            ("look", spec.look(None).map(|_| ())),
            ("before", spec.before().map(|_| ())),
            ("apply", spec.apply(before.as_ref())),
            ("restore", spec.restore(before.as_ref())),
        ] {
            let why = result.expect_err(word);
            assert!(why.contains(word) && why.contains("/users"), "{done}: {word}: {why}");
        }
        assert_eq!(fs::read_to_string(host.path().join("private/secret")).expect("read"), "secret\n");
        assert_eq!(fs::read_to_string(host.path().join("users/ada/notes")).expect("read"), "mine\n");
        assert_eq!(fs::read_dir(host.path().join("private")).expect("list").count(), 1);
    }
}

#[test]
fn a_link_to_the_home_leads_to_a_folder_below_the_root() {
    let host = with_home();
    fs::create_dir(host.path().join("srv")).expect("made");
    fs::rename(host.path().join("users"), host.path().join("srv/homes")).expect("moved");
    for target in ["/srv/homes", "srv/../../srv/homes", "./srv/homes/"] {
        symlink(target, host.path().join("users")).expect("linked");
        let spec = spec(host.path());
        let before = spec.before().expect("seen");
        spec.apply(before.as_ref()).expect("applied");
        assert!(host.path().join("srv/homes/ada/.ssh/authorized_keys").exists(), "{target}");
        spec.restore(before.as_ref()).expect("restored");
        assert!(!host.path().join("srv/homes/ada/.ssh").exists(), "{target}");
        fs::remove_file(host.path().join("users")).expect("removed");
    }
    symlink("users", host.path().join("users")).expect("linked");
    assert!(spec(host.path()).before().expect_err("a circle").contains("too many links"));
    if is_root() {
        fs::remove_file(host.path().join("users")).expect("removed");
        symlink("/private", host.path().join("users")).expect("linked");
        std::os::unix::fs::lchown(host.path().join("users"), Some(4321), None).expect("given");
        assert!(spec(host.path()).before().expect_err("a link of others").contains("user 4321 owns it"));
    }
}

#[tokio::test]
async fn a_user_or_a_home_that_is_missing_is_named() {
    let host = with_home();
    let mut bench = Bench::new();
    let context = bench.context(&setting("authorized-key"), &content(host.path(), &keys("")));
    fs::rename(host.path().join("users/ada"), host.path().join("users/away")).expect("moved");
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("/users/ada, the home of ada, does not exist") && why.contains("create_home"), "{why}");
    fs::rename(host.path().join("users/away"), host.path().join("users/ada")).expect("moved");
    moved(&mut bench, &context, "absent", "present").await;
    // The account goes before the key: the key is removed from the earlier home.
    fs::write(host.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").expect("written");
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert!(found.difference.contains("/etc/passwd has no user ada"), "{}", found.difference);
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(!host.path().join("users/ada/.ssh").exists());
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("let the key come `after` the object"), "{why}");
}

#[tokio::test]
async fn a_key_of_others_is_observed_by_its_effect() {
    let host = with_home();
    let mut bench = Bench::new();
    let mut context = bench.context(&setting("authorized-key"), &content(host.path(), &keys("")));
    std::sync::Arc::make_mut(&mut context.cob).observe = true;
    for (text, state) in [
        (format!("{KEY} other comment\n"), "present"),
        (format!("from=\"10.0.0.1\" {KEY} ada@laptop\n"), "absent"),
        (format!("{KEY}\nrestrict {KEY}\n"), "absent"),
        (format!("# {KEY}\n"), "absent"),
    ] {
        write(&host, text.as_bytes());
        assert_eq!(bench.state(&context).await, state, "{text}");
    }
}

#[tokio::test]
async fn leftovers_of_a_killed_edit_are_removed() {
    let host = with_home();
    let mut bench = Bench::new();
    let context = bench.context(&setting("authorized-key"), &content(host.path(), &keys("")));
    moved(&mut bench, &context, "absent", "present").await;
    let left = host.path().join("users/ada/.ssh/.authorized_keys.cob-new");
    symlink("../../../private/secret", &left).expect("linked");
    assert_eq!(bench.state(&context).await, "present");
    assert!(fs::symlink_metadata(&left).is_err());
}

#[tokio::test]
async fn authorized_keys_keep_the_contract() {
    for text in [None, Some(format!("# mine\nrestrict {KEY} old\n{OTHER}"))] {
        let host = with_home();
        if let Some(text) = text {
            fs::set_permissions(write(&host, text.as_bytes()), fs::Permissions::from_mode(0o640)).expect("set");
        }
        let case = Case::new(setting("authorized-key"), &content(host.path(), &keys("")));
        let case = case.other(&content(host.path(), &keys(r#","options":"restrict,pty""#)));
        holds(&case.watching(host.path()).kills(6), &[]).await;
    }
}

#[tokio::test]
async fn an_unwanted_key_is_removed_and_returns_byte_for_byte() {
    let host = with_home();
    let text = format!("# first\r\n{KEY}\n{OTHER}\nrestrict {KEY} ada@laptop\n\n{KEY} again");
    let file = write(&host, text.as_bytes());
    let context = content(host.path(), &keys(r#","absent":true"#));
    let mut bench = Bench::new();
    let context = bench.context(&setting("authorized-key"), &context);
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), format!("# first\r\n{OTHER}\n\n"));
    fs::write(&file, format!("# first\r\n{OTHER}\n\n{KEY} x\n")).expect("written");
    let found = bench.check(&context).await;
    assert_eq!(found.difference, format!(r#"wanted [], found ["{KEY} x"]"#));
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(fs::read_to_string(&file).expect("read"), text);
    let case = Case::new(setting("authorized-key"), &content(host.path(), &keys(r#","absent":true"#)));
    // Without another content it is never outdated.
    let outdated = ["outdated -> present", "outdated -> absent"];
    holds(&case.watching(&file).kills(4), &[outdated, outdated].concat()).await;
    // Without the account, the file or the folder there is nothing to do.
    fs::remove_dir_all(host.path().join("users/ada/.ssh")).expect("removed");
    moved(&mut bench, &context, "absent", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert!(!host.path().join("users/ada/.ssh").exists());
}
