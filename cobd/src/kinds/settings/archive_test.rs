//! Archives with faults, in a folder that stands for a host.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::super::tests::{host, moved, setting};
use super::super::web_test::{Page, Web};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

/// An entry of a tar archive: its sort, path, mode, and text or target.
type Entry<'a> = (u8, &'a str, u32, &'a str);

fn tar(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, path, mode, text) in entries {
        let mut header = tar::Header::new_gnu();
        let is_file = *kind == b'0';
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_mode(*mode);
        header.set_mtime(1_000_000_000);
        header.set_size(if is_file { text.len() as u64 } else { 0 });
        if !is_file {
            let target = &mut header.as_mut_bytes()[157..157 + text.len()];
            target.copy_from_slice(text.as_bytes());
        }
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        if is_file {
            bytes.extend_from_slice(text.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).expect("written");
    writer.finish().expect("written")
}

fn good(text: &str) -> Vec<u8> {
    tar(&[
        (b'5', "app-1/", 0o755, ""),
        (b'0', "app-1/bin/run", 0o4755, text),
        (b'0', "app-1/read.me", 0o640, "read\n"),
        (b'2', "app-1/lib/current", 0o777, "../bin/run"),
        (b'1', "app-1/again", 0o644, "app-1/read.me"),
        (b'5', "app-1/closed", 0o500, ""),
        (b'0', "app-1/closed/in", 0o600, "in"),
    ])
}

fn content(root: &Path, keys: &str) -> String {
    format!(r#"{{"root":"{}","to":"/opt/app",{keys}}}"#, root.display())
}

/// All paths below a folder, with modes and texts.
fn listing(root: &Path) -> BTreeMap<String, String> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).expect("there");
        let name = path.strip_prefix(root).expect("below").display().to_string();
        let text = if meta.is_symlink() {
            fs::read_link(&path).expect("read").display().to_string()
        } else if meta.is_dir() {
            open.extend(fs::read_dir(&path).expect("listed").map(|entry| entry.expect("read").path()));
            format!("{:o}", meta.mode() & 0o7777)
        } else {
            format!("{:o} {}", meta.mode() & 0o7777, fs::read_to_string(&path).expect("read"))
        };
        found.insert(name, text);
    }
    found
}

#[tokio::test]
async fn archives_keep_the_contract() {
    let large = "x".repeat(300_000);
    let (one, two) = (gzip(&good(&large)), gzip(&good("two")));
    let web = Web::new(&[("/1.tar.gz", Page::File(one.clone()))]);
    let sum = fetch::sum(&mut &*one).expect("read");
    for files in [&[][..], &[("opt/app/theirs", "theirs")]] {
        let host = host(files);
        fs::create_dir_all(host.path().join("srv")).expect("made");
        fs::write(host.path().join("srv/2.tgz"), &two).expect("written");
        let own = format!(r#""url":"{}","sha256":"{sum}","strip":1"#, web.url("/1.tar.gz"));
        let own = content(host.path(), &own);
        let other = content(host.path(), r#""path":"/srv/2.tgz""#);
        let case = Case::new(setting("archive"), &own).other(&other).watching(host.path()).kills(5);
        holds(&case, &[]).await;
        assert_eq!(host.path().join("opt").exists(), !files.is_empty(), "folders that were made are removed");
    }
}

#[tokio::test]
async fn an_archive_is_unpacked_and_the_earlier_folder_returns() {
    let host = host(&[("opt/app/theirs", "theirs"), ("srv/a.tar", "")]);
    fs::write(host.path().join("srv/a.tar"), good("run\n")).expect("written");
    let place = host.path().join("opt/app");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o711)).expect("set");
    let number = fs::metadata(&place).expect("there").ino();
    let mut bench = Bench::new();
    let context = bench.context(&setting("archive"), &content(host.path(), r#""path":"/srv/a.tar","strip":1"#));
    moved(&mut bench, &context, "absent", "present").await;
    let expected = [
        ("", "755"),
        ("again", "640 read\n"),
        ("bin", "755"),
        ("bin/run", "755 run\n"),
        ("closed", "500"),
        ("closed/in", "600 in"),
        ("lib", "755"),
        ("lib/current", "../bin/run"),
        ("read.me", "640 read\n"),
    ];
    assert_eq!(listing(&place), expected.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
    assert_eq!(fs::metadata(place.join("read.me")).expect("there").mtime(), 1_000_000_000);
    // Changes are found, repaired, and kept once.
    fs::write(place.join("bin/run"), "edited").expect("written");
    fs::write(place.join("new"), "new").expect("written");
    fs::remove_file(place.join("again")).expect("removed");
    let found = bench.check(&context).await;
    for words in ["again is missing", "bin/run is changed", "new is new"] {
        assert!(found.difference.contains(words), "{words}: {}", found.difference);
    }
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(listing(&place).len(), expected.len());
    let changed = host.path().join("opt/.app.cob-changed");
    assert_eq!(fs::read_to_string(changed.join("bin/run")).expect("read"), "edited");
    fs::remove_dir_all(&changed).expect("removed");
    // A new archive at the same path.
    fs::write(host.path().join("srv/a.tar"), good("run 2\n")).expect("written");
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(fs::read_to_string(place.join("lib/current")).expect("read"), "run 2\n");
    assert!(!changed.exists(), "an unchanged folder is not kept");
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(fs::metadata(&place).expect("there").ino(), number, "the folder itself returns");
    assert_eq!(fs::read_dir(host.path().join("opt")).expect("listed").count(), 1);
}

#[tokio::test]
async fn a_folder_with_changes_is_kept_at_the_departure() {
    let host = host(&[("srv/a.tar", "")]);
    fs::write(host.path().join("srv/a.tar"), good("run\n")).expect("written");
    let mut bench = Bench::new();
    let context = bench.context(&setting("archive"), &content(host.path(), r#""path":"/srv/a.tar""#));
    moved(&mut bench, &context, "absent", "present").await;
    fs::write(host.path().join("opt/app/data"), "precious").expect("written");
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(!host.path().join("opt/app").exists());
    assert_eq!(fs::read_to_string(host.path().join("opt/.app.cob-changed/data")).expect("read"), "precious");
}

#[tokio::test]
async fn dangerous_archives_are_refused_and_leave_no_files() {
    let outside = tempfile::tempdir().expect("a folder");
    let path = outside.path().join("x").display().to_string();
    let long = "x".repeat(5000);
    let rows: &[(&[Entry<'_>], &str, &str)] = &[
        (&[(b'0', "../x", 0o644, "x")], "", "leads out of the folder"),
        (&[(b'0', "a/../../x", 0o644, "x")], "", "leads out of the folder"),
        (&[(b'0', &path, 0o644, "x")], "", "leads out of the folder"),
        (&[(b'2', "a", 0o777, "/etc")], "", "out of the folder"),
        (&[(b'2', "d/a", 0o777, "../..")], "", "out of the folder"),
        (&[(b'2', "a", 0o777, "b"), (b'0', "a/x", 0o644, "x")], "", "is a link and a folder"),
        (&[(b'5', "b", 0o755, ""), (b'2', "a", 0o777, "b"), (b'5', "a", 0o755, "")], "", "is a link and a folder"),
        (&[(b'1', "a", 0o644, "/etc/passwd")], "", "no earlier file of the archive"),
        (&[(b'1', "a", 0o644, "../passwd")], "", "no earlier file of the archive"),
        (&[(b'3', "null", 0o666, "")], "", "neither a file nor a folder nor a link"),
        (&[(b'6', "pipe", 0o666, "")], "", "neither a file nor a folder nor a link"),
        (&[(b'0', "a", 0o644, &long)], r#","max_size":4000"#, "is larger than 4000 bytes"),
        (&[(b'0', "a", 0o644, ""), (b'0', "b", 0o644, "")], r#","max_entries":1"#, "more than 1 entries"),
        (&[(b'0', "a", 0o644, "")], r#","owner":"nobody-of-this-name""#, "there is no user"),
    ];
    for (entries, more, words) in rows {
        let host = host(&[("opt/app/theirs", "theirs"), ("srv/a.tgz", "")]);
        fs::write(host.path().join("srv/a.tgz"), gzip(&tar(entries))).expect("written");
        let mut bench = Bench::new();
        let context =
            bench.context(&setting("archive"), &content(host.path(), &format!(r#""path":"/srv/a.tgz"{more}"#)));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{entries:?}: {why}");
        assert_eq!(fs::read_to_string(host.path().join("opt/app/theirs")).expect("read"), "theirs");
        bench.transition(&context, "outdated", "absent").await;
        assert_eq!(fs::read_dir(host.path().join("opt")).expect("listed").count(), 1, "{entries:?}");
        assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 0, "{entries:?}");
    }
}

#[tokio::test]
async fn damaged_and_missing_archives_change_no_files() {
    let whole = gzip(&good(&"x".repeat(100_000)));
    let host = host(&[("srv/half.tar.gz", ""), ("srv/text.zip", "text"), ("srv/text.tar", "text")]);
    fs::write(host.path().join("srv/half.tar.gz"), &whole[..whole.len() / 2]).expect("written");
    symlink("/usr", host.path().join("out")).expect("linked");
    let zeros = "0".repeat(64);
    let sum = format!(r#""path":"/srv/text.tar","sha256":"{zeros}""#);
    for (keys, words) in [
        (r#""path":"/srv/half.tar.gz""#, "the archive is damaged"),
        (r#""path":"/srv/text.zip""#, "the archive can't be read"),
        (r#""path":"/srv/text.tar""#, "the archive is damaged"),
        (r#""path":"/srv/missing.tar""#, "let it come `after` the object that makes the archive"),
        (sum.as_str(), "has the checksum "),
    ] {
        let mut bench = Bench::new();
        let context = bench.context(&setting("archive"), &content(host.path(), keys));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{keys}: {why}");
        assert!(!host.path().join("opt/app").exists(), "{keys}");
    }
    let mut bench = Bench::new();
    let context = format!(r#"{{"root":"{}","to":"/out/app","path":"/srv/text.tar"}}"#, host.path().display());
    let context = bench.context(&setting("archive"), &context);
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("out of"), "{why}");
}

#[tokio::test]
async fn other_formats_are_unpacked() {
    let host = host(&[("srv/a.tar", "")]);
    fs::write(host.path().join("srv/a.tar"), good("run\n")).expect("written");
    let mut zipped = zip::ZipWriter::new(fs::File::create(host.path().join("srv/a.zip")).expect("made"));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zipped.start_file("app-1/bin/run", options.unix_permissions(0o755)).expect("written");
    zipped.write_all(b"run\n").expect("written");
    zipped.add_symlink("app-1/lib/current", "../bin/run", options).expect("written");
    zipped.finish().expect("written");
    for (program, end) in [("xz", "xz"), ("zstd", "zst"), ("", "zip")] {
        if !program.is_empty() {
            let packed =
                std::process::Command::new(program).args(["-k", "-q"]).arg(host.path().join("srv/a.tar")).status();
            if packed.is_err() {
                eprintln!("skipped: {program} is not installed");
                continue;
            }
        }
        let name = if program.is_empty() { "a.zip".to_owned() } else { format!("a.tar.{end}") };
        let mut bench = Bench::new();
        let keys = format!(r#""path":"/srv/{name}","strip":1"#);
        let context = bench.context(&setting("archive"), &content(host.path(), &keys));
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!(fs::read_to_string(host.path().join("opt/app/lib/current")).expect("read"), "run\n", "{name}");
        moved(&mut bench, &context, "present", "absent").await;
        assert!(!host.path().join("opt").exists(), "{name}");
    }
}
