//! Exports in a folder that stands for a host, and with the real `exportfs` in own namespaces.

use std::fs;
use std::path::Path;

use super::super::tests::{content, host, in_namespaces, moved, own_fstab, run, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

const DATA: &str = r#""path":"/srv/the data","clients":{"10.0.0.0/8":["rw","no_root_squash"],"*":[]},"name":"data""#;

#[tokio::test]
async fn exports_keep_the_contract_in_a_folder() {
    let host = host(&[("etc/exports", "/srv/other *(ro)\n"), ("etc/exports.d/data.exports", "/srv/theirs *(ro)\n")]);
    let other = DATA.replace("no_root_squash", "sec=krb5p");
    let case = Case::new(setting("nfs-export"), &content(host.path(), DATA)).other(&content(host.path(), &other));
    holds(&case.watching(host.path()).kills(4), &[]).await;
    let mut bench = Bench::new();
    let context = bench.context(&setting("nfs-export"), &content(host.path(), DATA));
    moved(&mut bench, &context, "absent", "present").await;
    let text = fs::read_to_string(host.path().join("etc/exports.d/data.exports")).expect("read");
    assert_eq!(
        text,
        "# Written by cobd for n1/a/b.\n/srv/the\\040data *(ro,sync,no_subtree_check) \
         10.0.0.0/8(rw,sync,no_subtree_check,no_root_squash)\n"
    );
}

#[tokio::test]
async fn an_export_of_others_is_a_conflict() {
    let ours = "# none\n/srv/x *(ro)\n";
    for (file, text, place) in [
        ("etc/exports", "# all\n\n\"/srv/the data\" *(ro)\n", "/etc/exports:3"),
        ("etc/exports", "/srv/a \\\n  10.0.0.1\n/srv/the\\040data/ -rw\n", "/etc/exports:3"),
        ("etc/exports.d/mine.exports", "/srv/the\\040data 10.0.0.1\n", "/etc/exports.d/mine.exports:1"),
    ] {
        let host = host(&[(file, text), ("etc/exports.d/.hidden.exports", ours), ("etc/exports.d/data", text)]);
        let mut bench = Bench::new();
        let context = bench.context(&setting("nfs-export"), &content(host.path(), DATA));
        let found = bench.check(&context).await;
        let why = format!("/srv/the data is also exported in {place}, by others");
        assert!(found.state.is_ok_and(|state| state == *"absent") && found.difference.contains(&why), "{why}");
        let refused = reason(bench.transition(&context, "absent", "present").await);
        assert!(refused.contains(&why), "{refused}");
        assert!(!host.path().join("etc/exports.d/data.exports").exists());
        // An export that others add later is named, too.
        fs::write(host.path().join(file), ours).expect("written");
        moved(&mut bench, &context, "absent", "present").await;
        fs::write(host.path().join(file), text).expect("written");
        let found = bench.check(&context).await;
        assert!(found.state.is_ok_and(|state| state == *"outdated") && found.difference.contains(place), "{place}");
        moved(&mut bench, &context, "outdated", "absent").await;
        assert!(!host.path().join("etc/exports.d/data.exports").exists());
    }
}

#[tokio::test]
async fn the_folder_of_exports_goes_with_the_last_export_that_needs_it() {
    let other = r#""path":"/srv/other","clients":{"*":[]},"name":"other""#;
    let host = host(&[]);
    let before = fs::read_dir(host.path()).expect("listed").count();
    for first_leaves_first in [true, false] {
        let mut bench = Bench::new();
        let [one, two] = [("n1/one", DATA), ("n1/two", other)].map(|(id, text)| {
            let mut context = bench.context(&setting("nfs-export"), &content(host.path(), text));
            std::sync::Arc::make_mut(&mut context.cob).id = crate::kinds::testing::cob_id(id);
            context
        });
        moved(&mut bench, &one, "absent", "present").await;
        moved(&mut bench, &two, "absent", "present").await;
        let (first, last) = if first_leaves_first { (&one, &two) } else { (&two, &one) };
        moved(&mut bench, first, "present", "absent").await;
        assert!(host.path().join("etc/exports.d").is_dir());
        moved(&mut bench, last, "present", "absent").await;
        assert!(!host.path().join("etc").exists(), "nothing stays");
    }
    assert_eq!(fs::read_dir(host.path()).expect("listed").count(), before);
}

#[test]
fn tables_are_read_as_the_server_reads_them() {
    let text =
        "/a h1(rw) h2\n# c\n\n\"/b c\" -ro,sec=krb5 *.x(rw) @g # (comment)\n/d\\043/ (ro)\n/e \\\n\th#1(async)\n";
    let read = read_table("f", text);
    let shown: Vec<_> = read
        .iter()
        .map(|line| {
            let clients = line.clients.iter().map(|(client, options)| format!("{client}={options:?}"));
            format!("{} {} {}", line.place, line.path, clients.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "f:1 /a h1={\"rw\": \"\"} h2={}",
            "f:4 /b c *.x={\"rw\": \"\", \"sec\": \"krb5\"} @g={\"sec\": \"krb5\"}",
            "f:5 /d# *={}",
            "f:6 /e h#1={\"async\": \"\"}",
        ]
    );
    // The output of `exportfs -s`.
    let shown = "/srv/a\\040b  10.0.0.0/8(sync,wdelay,hide,no_subtree_check,sec=sys,rw,root_squash,no_all_squash)\n";
    let line = read_table("exportfs", shown).remove(0);
    assert_eq!((line.path.as_str(), line.clients["10.0.0.0/8"].len()), ("/srv/a b", 1));
    for path in ["/srv/a b", "/srv/\"q\"", "/srv/#x", "/srv/back\\slash", "/srv/ü(", "/\\040"] {
        assert_eq!(words(&quoted(path)), [path]);
    }
    assert!(is_same_client("DB.example.org", "db.example.org") && !is_same_client("10.0.0.1", "10.0.0.0/8"));
}

/// A host with the real `exportfs` and its own tables. `None`: the test is left out, or runs in its namespace.
fn own_server(test: &str, folder: &Path) -> bool {
    if !has_program(PROGRAM) {
        eprintln!("skipped: there is no exportfs");
        return false;
    }
    if in_namespaces(&format!("kinds::settings::nfs_export::tests::{test}"), &[]).is_some() {
        return false;
    }
    run("mount -t tmpfs none /var/lib && mkdir /var/lib/nfs");
    own_fstab(folder, "");
    run(
        "rm -rf /etc/exports /etc/exports.d; mkdir /etc/exports.d; : > /etc/exports; echo 10.9.9.9 db.example.org db >> /etc/hosts",
    );
    fs::create_dir(folder.join("the data")).expect("made");
    true
}

fn table() -> String {
    run("exportfs -s 2>/dev/null")
}

#[tokio::test]
async fn exports_of_a_server_keep_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    if !own_server("exports_of_a_server_keep_the_contract", folder.path()) {
        return;
    }
    run(&format!("echo '{} *(ro,sync,no_subtree_check)' > /etc/exports; exportfs -ra", folder.path().display()));
    let keys = |options: &str| {
        let path = folder.path().join("the data");
        format!(
            r#"{{"path":{path:?},"clients":{{"10.0.0.0/8":[{options}],"db":["sec=krb5:sys"]}},"options":["crossmnt"]}}"#
        )
    };
    let case = Case::new(setting("nfs-export"), &keys(r#""rw","anonuid=99""#)).other(&keys(""));
    holds(&case.watching(Path::new("/etc/exports.d")).probing(table).kills(6), &[]).await;
    assert_eq!(table().lines().count(), 1, "{}", table());
}

#[tokio::test]
async fn the_table_of_a_server_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    if !own_server("the_table_of_a_server_counts", folder.path()) {
        return;
    }
    let path = folder.path().join("the data");
    let keys = |client: &str| format!(r#"{{"path":{path:?},"clients":{{"{client}":["rw","fsid=root"],"*":["ro"]}}}}"#);
    let mut bench = Bench::new();
    let context = bench.context(&setting("nfs-export"), &keys("db"));
    // Faults of others do not matter.
    fs::write("/etc/exports.d/faulty.exports", "/srv/nope *(ro)\n/srv *(bogus)\n/srv nosuchhost.invalid(ro)\n")
        .expect("written");
    moved(&mut bench, &context, "absent", "present").await;
    let shown = table();
    assert!(
        shown.contains("db.example.org(") && shown.contains("fsid=0") && shown.contains("/the\\040data"),
        "{shown}"
    );
    // A change of the table by hand is drift, and is repaired.
    let by_hand = [
        format!("exportfs -u 'db.example.org:{}'", path.display()),
        format!("exportfs -i -o rw,fsid=0,no_root_squash,no_subtree_check 'db.example.org:{}'", path.display()),
        "exportfs -au".to_owned(),
    ];
    for change in by_hand {
        run(&format!("{change} 2>/dev/null"));
        let found = bench.check(&context).await;
        assert!(found.state.is_ok_and(|state| state == *"outdated"), "{change}");
        assert!(found.difference.contains("exported"), "{change}: {}", found.difference);
        moved(&mut bench, &context, "outdated", "present").await;
    }
    // A client that the server does not take is named.
    let unknown = bench.context(&setting("nfs-export"), &keys("nosuchhost.invalid"));
    let why = reason(bench.transition(&unknown, "outdated", "present").await);
    assert!(why.contains("is not exported to nosuchhost.invalid as desired") && why.contains("resolve"), "{why}");
    moved(&mut bench, &context, "outdated", "present").await;
    // Without the folder the export has no effect.
    fs::remove_dir(&path).expect("removed");
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert!(found.difference.contains("is not a folder of this host"), "{}", found.difference);
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(!table().contains("the\\040data"), "{}", table());
    assert!(Path::new("/etc/exports.d/faulty.exports").exists());
}
