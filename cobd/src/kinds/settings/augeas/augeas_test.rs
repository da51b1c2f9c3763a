//! Values of files in a folder that stands for a host, with the real `augtool`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::super::tests::{content, host, moved, setting};
use super::*;
use crate::kinds::Context;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, cob_id, reason};

const SSHD: &str =
    "# theirs\nPort   22\n\nPermitRootLogin   no # why\nAcceptEnv LANG LC_*\nMatch User x\n  X11Forwarding no\n";
const OWN: &str = r#""set":{"Port":2222,"AcceptEnv/3":"FOO","Match[1]/Settings/PermitTTY":"no"},
    "absent":["PermitRootLogin"]"#;

fn has() -> bool {
    let is_there = has_program(augtool::PROGRAM);
    if !is_there {
        eprintln!("skipped: there is no augtool");
    }
    is_there
}

/// A change object of a file.
fn context(bench: &Bench, host: &Path, id: &str, path: &str, keys: &str) -> Context {
    let mut context = bench.context(&setting("augeas"), &content(host, &format!(r#""path":"{path}",{keys}"#)));
    std::sync::Arc::make_mut(&mut context.cob).id = cob_id(id);
    context
}

fn sshd(bench: &Bench, host: &Path, keys: &str) -> Context {
    context(bench, host, "n1/sshd", "/etc/ssh/sshd_config", keys)
}

#[tokio::test]
async fn values_keep_the_contract() {
    if !has() {
        return;
    }
    let host = host(&[("etc/ssh/sshd_config", SSHD)]);
    let [own, other] = [OWN, r#""lens":"Sshd","before":"Match","set":{"Port":"23","X11Forwarding":"yes"}"#]
        .map(|keys| content(host.path(), &format!(r#""path":"/etc/ssh/sshd_config",{keys}"#)));
    holds(&Case::new(setting("augeas"), &own).other(&other).watching(host.path()).kills(4), &[]).await;
    assert_eq!(fs::read_to_string(host.path().join("etc/ssh/sshd_config")).expect("read"), SSHD);
}

#[tokio::test]
async fn values_are_set_and_edits_of_users_stay() {
    if !has() {
        return;
    }
    let host = host(&[("etc/ssh/sshd_config", SSHD)]);
    let file = host.path().join("etc/ssh/sshd_config");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
    let read = || fs::read_to_string(&file).expect("read");
    let mut bench = Bench::new();
    let own = sshd(&bench, host.path(), OWN);
    assert_eq!(bench.state(&own).await, "absent");
    moved(&mut bench, &own, "absent", "present").await;
    let edited = read();
    assert_eq!(
        edited,
        "# theirs\nPort   2222\n\nAcceptEnv LANG LC_* FOO\nMatch User x\n  X11Forwarding no\n  PermitTTY no\n"
    );
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o7777, 0o640);
    // The values are as desired: the file is not written.
    let inode = || fs::metadata(&file).expect("there").ino();
    let before = inode();
    moved(&mut bench, &own, "outdated", "present").await;
    assert_eq!(inode(), before);
    // A departure beside other edits leaves no trace, not even in blanks and comments.
    let [mine, theirs] = [&edited, SSHD].map(|text| text.replace("# theirs", "# mine\nUseDNS no"));
    fs::write(&file, mine).expect("written");
    assert_eq!(bench.state(&own).await, "present");
    moved(&mut bench, &own, "present", "absent").await;
    assert_eq!(read(), theirs);
    // A value of a user is drift; at the departure it stays, and other values return.
    fs::write(&file, SSHD).expect("written");
    moved(&mut bench, &own, "absent", "present").await;
    fs::write(&file, edited.replace("Port   2222", "Port 24").replace(" FOO", " FOO BAR")).expect("written");
    let found = bench.check(&own).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert_eq!(found.difference, r#"wanted {"Port":"2222"}, found {"Port":"24"}"#);
    moved(&mut bench, &own, "outdated", "absent").await;
    assert_eq!(
        read(),
        "# theirs\nPort 24\nPermitRootLogin no # why\n\nAcceptEnv LANG LC_* BAR\nMatch User x\n  X11Forwarding no\n"
    );
}

#[tokio::test]
async fn a_path_no_longer_in_the_content_gets_its_earlier_value() {
    if !has() {
        return;
    }
    let host = host(&[("etc/ssh/sshd_config", SSHD)]);
    let file = host.path().join("etc/ssh/sshd_config");
    let read = || fs::read_to_string(&file).expect("read");
    let mut bench = Bench::new();
    let own = sshd(&bench, host.path(), OWN);
    moved(&mut bench, &own, "absent", "present").await;
    let fewer = sshd(&bench, host.path(), r#""set":{"Port":23}"#);
    let found = bench.check(&fewer).await;
    assert!(found.difference.contains("not managed any more"), "{}", found.difference);
    moved(&mut bench, &fewer, "outdated", "present").await;
    let expected =
        "# theirs\nPort   23\nPermitRootLogin no # why\n\nAcceptEnv LANG LC_*\nMatch User x\n  X11Forwarding no\n";
    assert_eq!(read(), expected);
    moved(&mut bench, &fewer, "present", "absent").await;
    assert_eq!(read(), expected.replace("Port   23", "Port   22"));
    // Another lens: the nodes of the first lens go.
    fs::write(&file, SSHD).expect("written");
    moved(&mut bench, &own, "absent", "present").await;
    let other = sshd(&bench, host.path(), r#""lens":"Simplelines","set":{"1":"Port 9"}"#);
    moved(&mut bench, &other, "outdated", "present").await;
    assert_eq!(read(), SSHD.replace("Port   22", "Port 9"));
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(read(), SSHD);
}

#[tokio::test]
async fn several_change_objects_edit_the_same_file() {
    if !has() {
        return;
    }
    let text = "127.0.0.1 localhost\n";
    for leaves_first in [0, 1] {
        let host = host(&[("etc/hosts", text)]);
        let file = host.path().join("etc/hosts");
        let mut bench = Bench::new();
        let all = [("10.0.0.1", "db"), ("10.0.0.2", "web")].map(|(address, name)| {
            let node = format!("seq::*[ipaddr = '{address}']");
            let keys = format!(r#""set":[{{"{node}/ipaddr":"{address}"}},{{"{node}/canonical":"{name}"}}]"#);
            context(&bench, host.path(), &format!("n1/{name}"), "/etc/hosts", &keys)
        });
        for one in &all {
            moved(&mut bench, one, "absent", "present").await;
        }
        assert_eq!(fs::read_to_string(&file).expect("read"), format!("{text}10.0.0.1\tdb\n10.0.0.2\tweb\n"));
        for at in [leaves_first, 1 - leaves_first] {
            assert_eq!(bench.state(&all[at]).await, "present");
            moved(&mut bench, &all[at], "present", "absent").await;
        }
        assert_eq!(fs::read_to_string(&file).expect("read"), text);
    }
}

#[tokio::test]
async fn a_shared_section_and_file_go_with_the_last_change_object() {
    if !has() {
        return;
    }
    for (text, leaves_first) in [(Some("[a]\nx=1\n"), 0), (Some("[a]\nx=1\n"), 1), (None, 0), (None, 1)] {
        let host = host(&[("etc/puppet/other", "")]);
        let file = host.path().join("etc/puppet/puppet.conf");
        text.iter().for_each(|text| fs::write(&file, text).expect("written"));
        let mut bench = Bench::new();
        let all = ["ssldir", "logdir"].map(|name| {
            let keys = format!(r#""create":true,"set":{{"main/{name}":"/srv"}}"#);
            context(&bench, host.path(), &format!("n1/{name}"), "/etc/puppet/puppet.conf", &keys)
        });
        for one in &all {
            moved(&mut bench, one, "absent", "present").await;
        }
        let made = fs::read_to_string(&file).expect("made");
        assert!(made.ends_with("[main]\nssldir=/srv\nlogdir=/srv\n"), "{made}");
        moved(&mut bench, &all[leaves_first], "present", "absent").await;
        assert_eq!(bench.state(&all[1 - leaves_first]).await, "present");
        moved(&mut bench, &all[1 - leaves_first], "present", "absent").await;
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), text, "{leaves_first}");
    }
}

#[tokio::test]
async fn a_new_node_has_a_place_and_nodes_of_others_below_it_stay() {
    if !has() {
        return;
    }
    let host = host(&[("etc/ssh/sshd_config", SSHD)]);
    let file = host.path().join("etc/ssh/sshd_config");
    let read = || fs::read_to_string(&file).expect("read");
    let mut bench = Bench::new();
    let keys = r#""before":"Match","set":{"X11Forwarding":"yes","AllowUsers/1":"a"}"#;
    let placed = sshd(&bench, host.path(), keys);
    moved(&mut bench, &placed, "absent", "present").await;
    assert_eq!(read(), SSHD.replace("Match", "X11Forwarding yes\nAllowUsers a\nMatch"));
    moved(&mut bench, &placed, "present", "absent").await;
    assert_eq!(read(), SSHD);
    // A user has added an option to our block: the block stays, because the option needs its condition.
    let block = "Match[Condition/User = 'y']";
    let keys = format!(r#""set":[{{"{block}/Condition/User":"y"}},{{"{block}/Settings/PermitTTY":"no"}}]"#);
    let block = sshd(&bench, host.path(), &keys);
    moved(&mut bench, &block, "absent", "present").await;
    let edited = format!("{SSHD}Match User \"y\"\n  PermitTTY no\n");
    assert_eq!(read(), edited);
    moved(&mut bench, &block, "present", "absent").await;
    assert_eq!(read(), SSHD);
    moved(&mut bench, &block, "absent", "present").await;
    let extended = format!("{edited}  PermitTunnel no\n").replace("# theirs", "# mine");
    fs::write(&file, &extended).expect("written");
    moved(&mut bench, &block, "present", "absent").await;
    assert_eq!(read(), extended);
}

#[tokio::test]
async fn faults_of_files_and_lenses_are_named() {
    if !has() {
        return;
    }
    let hosts = "127.0.0.1 localhost\n10.0.0.1\n";
    let host = host(&[("etc/hosts", hosts), ("etc/ssh/sshd_config", SSHD), ("etc/unheard", "x"), ("etc/fine", "")]);
    for (path, keys, words) in [
        ("/etc/hosts", r#""set":{"1/canonical":"x"}"#, "/etc/hosts:2: the lens Hosts.lns can't read the file: "),
        ("/etc/hosts", r#""lens":"Nosuch","set":{"1/canonical":"x"}"#, "Can not find lens Nosuch.lns"),
        ("/etc/unheard", r#""set":{"x":"x"}"#, "Augeas has no lens for a file with this path"),
        ("/etc/nosuch", r#""lens":"Hosts","set":{"1/canonical":"x"}"#, "`create: true` makes it"),
        ("/etc/ssh/sshd_config", r#""set":{"AcceptEnv/*":"x"}"#, "AcceptEnv/* finds 2 nodes"),
        ("/etc/ssh/sshd_config", r#""set":{"Port/sub":"x"}"#, "can't write the values: "),
        (
            "/etc/ssh/sshd_config",
            r#""set":{"a[]":"x"}"#,
            "augtool can't carry out the content: Invalid path expression",
        ),
        ("/etc/ssh/sshd_config", r#""set":{"Port[":"x"}"#, "a bracket or a quote is open"),
        ("/etc/ssh/sshd_config", r#""set":{"Port":"1\nrm /files/text/Port\n"}"#, "can't write the values: "),
        // This node has another number after the edit: each attempt would add a line.
        ("/etc/fine", r#""lens":"Hosts","set":[{"01/ipaddr":"10.0.0.1"},{"01/canonical":"a"}]"#, "would find []"),
    ] {
        let read = || fs::read_to_string(host.path().join(&path[1..])).unwrap_or_default();
        let text = read();
        let mut bench = Bench::new();
        let context = context(&bench, host.path(), "n1/a", path, keys);
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{words}: {why}");
        assert_eq!(read(), text, "{words}");
        assert_eq!(bench.state(&context).await, "absent", "{words}");
    }
}

#[tokio::test]
async fn odd_values_and_files_keep_their_bytes() {
    if !has() {
        return;
    }
    let bytes = b"# J\xFCrgen\nA=\"\xC3\xA4 \xFF\"\n\n\tB=1";
    let host = host(&[]);
    let file = host.path().join("etc/default/a b");
    fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    fs::write(&file, bytes).expect("written");
    let mut bench = Bench::new();
    let keys = r#""lens":"Shellvars","set":{"C":"'x \"y\" ]\\ $(z) \t'","B":"\"a\nb\""}"#;
    let own = context(&bench, host.path(), "n1/a", "/etc/default/a b", keys);
    moved(&mut bench, &own, "absent", "present").await;
    assert_eq!(
        fs::read(&file).expect("read"),
        b"# J\xFCrgen\nA=\"\xC3\xA4 \xFF\"\n\n\tB=\"a\nb\"\nC='x \"y\" ]\\ $(z) \t'\n"
    );
    moved(&mut bench, &own, "present", "absent").await;
    assert_eq!(fs::read(&file).expect("read"), bytes);
    // A file that was made goes, and no folder of a run stays.
    let keys = r#""create":true,"set":{"A":"x"}"#;
    let made = context(&bench, host.path(), "n1/b", "/etc/default/made", keys);
    moved(&mut bench, &made, "absent", "present").await;
    assert_eq!(fs::read_to_string(host.path().join("etc/default/made")).expect("made"), "A=x\n");
    moved(&mut bench, &made, "present", "absent").await;
    assert!(!host.path().join("etc/default/made").exists());
    assert_eq!(fs::read_dir(bench.path("cobs/n1+b")).expect("there").count(), 0);
}
