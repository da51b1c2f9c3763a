//! A real cluster of one node: corosync and Pacemaker in namespaces of their own. A small program stands for systemd,
//! which does not run there.

use std::fs;
use std::path::Path;

use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::{holds, takes_minutes};
use crate::kinds::native::has_program;
use crate::kinds::settings::tests::{in_namespaces, moved, run, setting};
use crate::kinds::testing::{Bench, reason};
use crate::run::testing::wait_for;

/// Starts and stops both units; a file says that a unit is enabled.
const SYSTEMCTL: &str = r#"#!/bin/sh
order=$1 unit=${3%.service}
case $unit in corosync) program=corosync words=-f ;; *) program=pacemakerd words= ;; esac
is_active() { [ -n "$(pgrep -r D,R,S,T -x $program)" ]; }
case $order in
is-active) is_active ;;
is-enabled) [ -e UNITS/$unit ] ;;
enable) touch UNITS/$unit ;;
disable) rm -f UNITS/$unit ;;
start)
    [ $unit = corosync ] || systemctl start --quiet corosync.service || exit 1
    is_active && exit 0
    setsid env -i PATH="$PATH" $program $words < /dev/null > UNITS/../$unit.log 2>&1 &
    [ $unit = corosync ] || exit 0
    for n in $(seq 100); do
        corosync-quorumtool -s 2>/dev/null | grep -q '^Quorate' && exit 0
        is_active || [ $n -lt 5 ] || exit 1
        sleep 0.1
    done
    exit 1 ;;
stop)
    [ $unit = pacemaker ] || systemctl stop --quiet pacemaker.service
    pkill -TERM -x $program
    while is_active; do sleep 0.05; done ;;
esac
"#;

/// The number of Corosync. Nobody waits for programs that have ended.
const PID: &str = "pgrep -r D,R,S,T -x corosync";

/// Prepares the namespaces. `None`: the test is left out, or runs there.
fn prepared(test: &str) -> Option<tempfile::TempDir> {
    if tools::are_there().is_err() || !has_program("pgrep") {
        eprintln!("skipped: there is no corosync, pacemaker, pacemaker-cli-utils or procps");
        return None;
    }
    let apart = ["--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if in_namespaces(&format!("kinds::settings::ha_cluster::live_test::{test}"), &apart).is_some() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["etc", "units"] {
        fs::create_dir(folder.path().join(name)).expect("made");
    }
    let systemctl = folder.path().join("systemctl");
    let units = folder.path().join("units");
    fs::write(&systemctl, SYSTEMCTL.replace("UNITS", &units.display().to_string())).expect("written");
    run(&format!("chmod 755 {path} && mount --bind {path} /usr/bin/systemctl", path = systemctl.display()));
    run("ip link set lo up");
    run("mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && mkdir -p /run/lock /run/resource-agents");
    run(&format!("mount --bind {} /etc/corosync", folder.path().join("etc").display()));
    run("install -d -o hacluster -g haclient -m 750 /run/crm");
    run("mount -t tmpfs none /var/log && install -d -o hacluster -g haclient /var/log/pacemaker");
    run("mount -t tmpfs none /var/lib/corosync && mount -t tmpfs none /var/lib/pacemaker");
    run("cd /var/lib/pacemaker && install -d -o hacluster -g haclient -m 750 . cib pengine blackbox cores");
    Some(folder)
}

fn content(node: &str, more: &str) -> String {
    format!(r#"{{"name":"c","nodes":{{"{node}":{{"id":1,"addresses":["127.0.0.1"]}}}}{more}}}"#)
}

/// The files, the units and the former configuration of Pacemaker.
fn world() -> String {
    run("cd /etc/corosync && grep . * 2>/dev/null; for u in corosync pacemaker; do \
         systemctl is-active --quiet $u.service && echo $u runs; systemctl is-enabled --quiet $u.service && echo $u on; done; \
         [ ! -e /var/lib/pacemaker/cib/mark ] || cat /var/lib/pacemaker/cib/mark; true")
}

#[tokio::test]
async fn clusters_keep_the_contract() {
    if takes_minutes("clusters_keep_the_contract") {
        return;
    }
    let Some(_folder) = prepared("clusters_keep_the_contract") else { return };
    fs::write("/etc/corosync/corosync.conf", "# of a person\n").expect("written");
    fs::write("/var/lib/pacemaker/cib/mark", "of an earlier cluster\n").expect("written");
    let key = |c: &str| format!(r#","authkey":"{}""#, c.repeat(128));
    let case = Case::new(setting("ha-cluster"), &content("test", &key("a")));
    let case =
        case.other(&content("test", &format!(r#"{},"totem":{{"token":4000}}"#, key("a")))).probing(world).kills(1);
    holds(&case, &[]).await;
}

#[tokio::test]
async fn a_change_is_read_by_a_running_node_and_another_restarts_it() {
    let Some(_folder) = prepared("a_change_is_read_by_a_running_node_and_another_restarts_it") else { return };
    let (mut bench, kind, before) = (Bench::new(), setting("ha-cluster"), world());
    let context = bench.context(&kind, &content("n1", ""));
    moved(&mut bench, &context, "absent", "present").await;
    let pid = run(PID);
    // A time is changed while Corosync runs.
    let slower = bench.context(&kind, &content("n1", r#","totem":{"token":4000}"#));
    let found = bench.check(&slower).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert!(found.difference.contains("another token"), "{}", found.difference);
    moved(&mut bench, &slower, "outdated", "present").await;
    assert_eq!(run(PID), pid);
    assert!(run("corosync-cmapctl -g runtime.config.totem.token").ends_with("= 4000"));
    moved(&mut bench, &context, "outdated", "present").await;
    assert!(run("corosync-cmapctl -g runtime.config.totem.token").ends_with("= 3000"));
    // A wrong value is refused before anything changes.
    let text = fs::read_to_string("/etc/corosync/corosync.conf").expect("read");
    let wrong = bench.context(&kind, &content("n1", r#","totem":{"token":5}"#));
    let why = reason(bench.transition(&wrong, "outdated", "present").await);
    assert!(why.contains("Corosync refuses the configuration") && why.contains("may not be less than"), "{why}");
    assert_eq!(fs::read_to_string("/etc/corosync/corosync.conf").expect("read"), text);
    // Another name and a key need a restart. No other node hears this one.
    let renamed = content("n1", "").replace(r#""name":"c""#, r#""name":"d""#);
    let renamed = bench.context(&kind, &renamed);
    moved(&mut bench, &renamed, "outdated", "present").await;
    assert_ne!(run(PID), pid);
    let locked = bench.context(&kind, &content("n1", &format!(r#","authkey":"{}""#, "k".repeat(128))));
    moved(&mut bench, &locked, "outdated", "present").await;
    assert!(run("stat -c %a /etc/corosync/authkey").ends_with("400"));
    assert!(
        !run(&format!("grep -r kkkk {} || true", bench.folder.path().display())).contains("kkkk"),
        "the key is noted"
    );
    // A node that an earlier list had is forgotten.
    wait_for("the cluster has a controller", || run("crmadmin --dc_lookup 2>&1 || true").contains("n1"));
    run(r#"cibadmin --create --scope nodes --xml-text '<node id="7" uname="gone"/>'"#);
    let found = bench.check(&locked).await;
    assert!(found.difference.contains("gone"), "{}", found.difference);
    moved(&mut bench, &locked, "outdated", "present").await;
    assert!(!run("cibadmin --query --scope nodes").contains("gone"));
    // With a resource the last node stays.
    let web = r#"<primitive id="web" class="ocf" provider="pacemaker" type="Dummy"/>"#;
    run("crm_attribute --type crm_config --name stonith-enabled --update false");
    run(&format!("cibadmin --create --scope resources --xml-text '{web}' && crm_resource --wait"));
    let mut hasty = kind.clone();
    hasty.transitions.iter_mut().for_each(|transition| transition.timeout_ms = 8_000);
    let hasty = bench.context(&hasty, &locked.cob.content);
    let why = reason(bench.transition(&hasty, "present", "absent").await);
    assert!(why.contains("no node stays for the resources that run: web"), "{why}");
    assert!(!run(PID).is_empty());
    run("cibadmin --delete --xml-text '<primitive id=\"web\"/>' && crm_resource --wait");
    moved(&mut bench, &locked, "present", "absent").await;
    assert_eq!(world(), before);
    assert!(!Path::new("/var/lib/pacemaker/cib/cib.xml").exists());
}
