//! Sets in a real cluster of one node: corosync and Pacemaker in namespaces of their own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::{holds, takes_minutes};
use crate::kinds::native::has_program;
use crate::kinds::settings::tests::{in_namespaces, run, setting};
use crate::kinds::testing::{Bench, reason};
use crate::kinds::{Context, Outcome};
use crate::run::testing::wait_for;

/// What others have in the cluster before a test.
const OTHERS: &str = r#"<cib crm_feature_set="3.16.1" validate-with="pacemaker-3.9" epoch="5" num_updates="0" admin_epoch="0">
  <configuration>
    <crm_config><cluster_property_set id="cib-bootstrap-options">
      <nvpair id="cib-bootstrap-options-stonith-enabled" name="stonith-enabled" value="false"/>
      <nvpair id="of-others-dc-deadtime" name="dc-deadtime" value="2s"/>
    </cluster_property_set></crm_config>
    <nodes><node id="1" uname="n1"/></nodes>
    <resources>
      <!-- of a person -->
      <primitive id="theirs" class="ocf" provider="pacemaker" type="Dummy"><meta_attributes id="theirs-meta"><nvpair id="theirs-meta-1" name="priority" value="7"/></meta_attributes></primitive>
    </resources>
    <constraints><rsc_location id="theirs-on-n1" rsc="theirs" node="n1" score="50"/></constraints>
  </configuration>
  <status/>
</cib>
"#;

/// The configuration of corosync.
const COROSYNC: &str =
    "totem {\n  version: 2\n  cluster_name: test\n  transport: knet\n  crypto_cipher: none\n  crypto_hash: none\n}
nodelist {\n  node {\n    ring0_addr: 127.0.0.1\n    name: n1\n    nodeid: 1\n  }\n}
quorum {\n  provider: corosync_votequorum\n}\nlogging {\n  to_syslog: no\n  to_stderr: yes\n}\n";

/// A cluster of one node, until it is dropped.
struct Cluster {
    _folder: tempfile::TempDir,
    programs: Vec<Child>,
}

impl Cluster {
    /// `None`: the test is left out, or runs in its namespaces.
    fn of(test: &str) -> Option<Self> {
        if !["corosync", "pacemakerd", "cibadmin", "crm_simulate"].iter().all(|program| has_program(program)) {
            eprintln!("skipped: there is no corosync, pacemaker or pacemaker-cli-utils");
            return None;
        }
        let apart = ["--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"];
        if in_namespaces(&format!("kinds::ha_set::live_test::{test}"), &apart).is_some() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let etc = folder.path().join("corosync");
        fs::create_dir(&etc).expect("made");
        fs::write(etc.join("corosync.conf"), COROSYNC).expect("written");
        fs::write(folder.path().join("cib.xml"), OTHERS).expect("written");
        run("ip link set lo up && hostname n1");
        run("mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && mkdir -p /run/lock /run/resource-agents");
        run(&format!("mount --bind {} /etc/corosync", etc.display()));
        run("install -d -o hacluster -g haclient -m 750 /run/crm");
        run("mount -t tmpfs none /var/log && install -d -o hacluster -g haclient /var/log/pacemaker");
        run("mount -t tmpfs none /var/lib/corosync && mount -t tmpfs none /var/lib/pacemaker");
        run("cd /var/lib/pacemaker && install -d -o hacluster -g haclient -m 750 . cib pengine blackbox cores");
        run(&format!(
            "install -o hacluster -g haclient -m 600 {}/cib.xml /var/lib/pacemaker/cib/cib.xml",
            folder.path().display()
        ));
        let mut cluster = Self { _folder: folder, programs: Vec::new() };
        cluster.start("corosync", &["-f"]);
        wait_for("corosync runs", || succeeds("corosync-quorumtool -s"));
        cluster.start("pacemakerd", &[]);
        wait_for("the resource of others runs", || {
            tools::monitor().and_then(|text| Monitor::read(&text)).is_ok_and(|now| !now.nodes("theirs").is_empty())
        });
        Some(cluster)
    }

    fn start(&mut self, program: &str, words: &[&str]) {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.programs.push(command.spawn().expect("started"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for program in self.programs.iter_mut().rev() {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

fn succeeds(line: &str) -> bool {
    Command::new("sh").args(["-c", line]).output().is_ok_and(|ran| ran.status.success())
}

/// The configuration without the status.
fn configuration() -> String {
    run("cibadmin --query --scope configuration")
}

fn nodes(id: &str) -> Vec<String> {
    Monitor::read(&tools::monitor().expect("reported")).expect("with quorum").nodes(id)
}

async fn moved(bench: &mut Bench, context: &Context, from: &str, to: &str) {
    let outcome = bench.transition(context, from, to).await;
    assert!(matches!(outcome, Outcome::Done { .. }), "{from} -> {to}: {outcome:?}");
    assert_eq!(bench.state(context).await, to);
}

/// Two resources in a group, one of which has a parameter, with constraints and a property.
fn content(flag: &Path, more: &str) -> String {
    let flag = flag.display();
    format!(
        r#"{{"primitives":{{"web":{{"type":"ocf:pacemaker:Dummy","params":{{"state":"{flag}"}},
            "ops":{{"monitor":{{"interval":"10s"}}}},"meta":{{"migration-threshold":3}}}},
            "ip":{{"type":"ocf:pacemaker:Dummy"}}}},"groups":{{"shop":["ip","web"]}},
            "constraints":{{"shop-on-n1":{{"location":"shop","node":"n1","score":100}},
            "after-theirs":{{"order":"theirs","then":"shop"}}}},"others":["theirs"],
            "properties":{{"cluster-recheck-interval":"7min"}}{more}}}"#
    )
}

#[tokio::test]
async fn sets_keep_the_contract() {
    if takes_minutes("sets_keep_the_contract") {
        return;
    }
    let Some(_cluster) = Cluster::of("sets_keep_the_contract") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let allowed = r#","allow":{"shop":["restart"]}"#;
    let own = content(&folder.path().join("a"), allowed);
    let other = content(&folder.path().join("b"), allowed);
    let case = Case::new(setting("ha-set"), &own).other(&other).probing(configuration).kills(1);
    // Only operators and failures lead to `degraded`: the tests below.
    holds(&case, &["degraded -> up", "degraded -> stopped", "degraded -> up", "degraded -> stopped"]).await;
}

#[tokio::test]
async fn a_set_starts_stopped_changes_as_allowed_and_leaves() {
    let Some(_cluster) = Cluster::of("a_set_starts_stopped_changes_as_allowed_and_leaves") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut bench, kind, before) = (Bench::new(), setting("ha-set"), configuration());
    let own = content(&folder.path().join("a"), "");
    let context = bench.context(&kind, &own);
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"absent"));
    assert!(found.difference.contains("the cluster would start ip on n1, start web on n1"), "{}", found.difference);
    moved(&mut bench, &context, "absent", "stopped").await;
    assert_eq!((nodes("web"), nodes("theirs")), (vec![], vec!["n1".to_owned()]));
    moved(&mut bench, &context, "stopped", "up").await;
    assert_eq!(nodes("web"), ["n1"]);
    // A change that the model does not allow is refused with its interruptions, and changes nothing.
    let other = content(&folder.path().join("b"), "");
    let changed = bench.context(&kind, &other);
    let found = bench.check(&changed).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    let shown = "web: parameter state; the cluster would restart web from n1 (resource definition change)";
    assert!(found.difference.contains(shown) && found.difference.contains("not allowed"), "{}", found.difference);
    let running = configuration();
    let why = reason(bench.transition(&changed, "outdated", "up").await);
    assert!(why.contains("nothing was changed: the cluster would restart web from n1"), "{why}");
    assert_eq!(configuration(), running);
    // With the permission, it restarts. A resource that is new starts, too; a dropped constraint goes.
    let more = other.replace(r#""ip":{"#, r#""new":{"type":"ocf:pacemaker:Dummy"},"ip":{"#);
    let more = more.replace(
        r#""after-theirs":{"order":"theirs","then":"shop"}"#,
        r#""x":{"order":"new","then":"shop","kind":"Optional"}"#,
    );
    let allowed = bench.context(&kind, &more.replace(r#""groups""#, r#""allow":{"web":["restart"]},"groups""#));
    moved(&mut bench, &allowed, "outdated", "up").await;
    assert!(folder.path().join("b").exists() && !folder.path().join("a").exists(), "it was restarted");
    assert!(!configuration().contains("after-theirs") && nodes("new") == ["n1"]);
    // The change of an operator stays.
    run("crm_resource --resource theirs --meta --set-parameter priority --parameter-value 9");
    moved(&mut bench, &allowed, "up", "stopped").await;
    assert_eq!((nodes("web"), nodes("theirs")), (vec![], vec!["n1".to_owned()]));
    moved(&mut bench, &allowed, "stopped", "absent").await;
    assert_eq!(configuration(), before.replace("value=\"7\"", "value=\"9\""));
}

#[tokio::test]
async fn decisions_of_operators_stay() {
    let Some(_cluster) = Cluster::of("decisions_of_operators_stay") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut bench, kind) = (Bench::new(), setting("ha-set"));
    let context = bench.context(&kind, &content(&folder.path().join("a"), ""));
    moved(&mut bench, &context, "absent", "stopped").await;
    moved(&mut bench, &context, "stopped", "up").await;
    let orders = [
        ("--resource shop --ban", "an operator has placed cli-ban-shop-on-n1", "--resource shop --clear"),
        (
            "--resource shop --meta --set-parameter target-role --parameter-value Stopped",
            "an operator has set target-role=Stopped for shop",
            "--resource shop --meta --delete-parameter target-role",
        ),
        (
            "--resource ip --meta --set-parameter target-role --parameter-value Stopped",
            "an operator has set target-role=Stopped for ip",
            "--resource ip --meta --delete-parameter target-role",
        ),
    ];
    for (order, drift, back) in orders {
        run(&format!("crm_resource {order} && crm_resource --wait"));
        let found = bench.check(&context).await;
        assert!(found.state.is_ok_and(|state| state == *"degraded"), "{order}");
        assert!(found.difference.contains(drift), "{}", found.difference);
        let decided = configuration();
        let why = reason(bench.transition(&context, "degraded", "up").await);
        assert!(why.contains(drift), "{why}");
        assert_eq!(configuration(), decided, "the decision stays");
        // Also not by a stop and a start.
        moved(&mut bench, &context, "degraded", "stopped").await;
        let why = reason(bench.transition(&context, "stopped", "up").await);
        assert!(why.contains(drift), "{why}");
        run(&format!("crm_resource {back} && crm_resource --wait"));
        wait_for("the resource runs again", || !nodes("web").is_empty());
        assert_eq!(bench.state(&context).await, "up");
    }
    run("crm_resource --resource shop --meta --set-parameter is-managed --parameter-value false");
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"up"), "it runs");
    assert!(found.difference.contains("an operator has set is-managed=false for shop"), "{}", found.difference);
    run("crm_resource --resource shop --meta --delete-parameter is-managed");
    moved(&mut bench, &context, "up", "stopped").await;
    moved(&mut bench, &context, "stopped", "absent").await;
}

#[tokio::test]
async fn no_change_of_an_operator_is_lost() {
    let Some(_cluster) = Cluster::of("no_change_of_an_operator_is_lost") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut bench, kind, before) = (Bench::new(), setting("ha-set"), configuration());
    let context = bench.context(&kind, &content(&folder.path().join("a"), ""));
    let operator = std::thread::spawn(|| {
        for number in 0..100 {
            run(&format!("crm_attribute --type crm_config --name operator-{number} --update {number}"));
        }
    });
    let mut rounds = 0;
    while !operator.is_finished() || rounds == 0 {
        for (from, to) in [("absent", "stopped"), ("stopped", "up"), ("up", "stopped"), ("stopped", "absent")] {
            moved(&mut bench, &context, from, to).await;
        }
        rounds += 1;
    }
    operator.join().expect("all changes were accepted");
    let after = configuration();
    for number in 0..100 {
        let pair = format!("name=\"operator-{number}\" value=\"{number}\"");
        assert!(after.contains(&pair), "after {rounds} rounds: {pair}");
        run(&format!("crm_attribute --type crm_config --name operator-{number} --delete"));
    }
    assert_eq!(configuration(), before, "after {rounds} rounds");
}

#[tokio::test]
async fn a_refused_attempt_takes_no_resource_of_operators() {
    let Some(_cluster) = Cluster::of("a_refused_attempt_takes_no_resource_of_operators") else { return };
    let (mut bench, kind) = (Bench::new(), setting("ha-set"));
    let content = r#"{"primitives":{"web":{"type":"ocf:pacemaker:Dummy"}},"others":["theirs"],
        "constraints":{"away":{"location":"theirs","node":"n1","score":"-INFINITY"}}}"#;
    let mut context = bench.context(&kind, content);
    let why = reason(bench.transition(&context, "absent", "stopped").await);
    assert!(why.contains("nothing was changed: the cluster would stop theirs"), "{why}");
    assert_eq!(bench.state(&context).await, "absent");
    // The operator makes the resource instead, and the set leaves.
    let web = r#"<primitive id="web" class="ocf" provider="pacemaker" type="Dummy"/>"#;
    run(&format!("cibadmin --create --scope resources --xml-text '{web}' && crm_resource --wait"));
    let made = configuration();
    assert_eq!(bench.state(&context).await, "outdated");
    context.leaving = true;
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "outdated", "absent").await;
    assert_eq!((configuration(), nodes("web")), (made, vec!["n1".to_owned()]));
}

#[tokio::test]
async fn a_failed_start_and_a_lost_quorum_are_reported() {
    let Some(mut cluster) = Cluster::of("a_failed_start_and_a_lost_quorum_are_reported") else { return };
    let (mut bench, kind) = (Bench::new(), setting("ha-set"));
    let context = bench
        .context(&kind, r#"{"primitives":{"web":{"type":"ocf:pacemaker:Dummy","params":{"fail_start_on":"n1"}}}}"#);
    moved(&mut bench, &context, "absent", "stopped").await;
    let why = reason(bench.transition(&context, "stopped", "up").await);
    assert!(why.contains("it is degraded, not up: web ") && why.contains("crm_resource --cleanup"), "{why}");
    moved(&mut bench, &context, "degraded", "stopped").await;
    moved(&mut bench, &context, "stopped", "absent").await;
    // A repaired resource with the same id starts.
    let repaired = bench.context(&kind, r#"{"primitives":{"web":{"type":"ocf:pacemaker:Dummy"}}}"#);
    for (from, to) in [("absent", "stopped"), ("stopped", "up"), ("up", "stopped"), ("stopped", "absent")] {
        moved(&mut bench, &repaired, from, to).await;
    }
    let missing = bench.context(&kind, r#"{"primitives":{"web":{"type":"ocf:pacemaker:Missing"}}}"#);
    moved(&mut bench, &missing, "absent", "stopped").await;
    let why = reason(bench.transition(&missing, "stopped", "up").await);
    assert!(why.contains("probe on n1: not installed"), "{why}");
    moved(&mut bench, &missing, "degraded", "stopped").await;
    moved(&mut bench, &missing, "stopped", "absent").await;
    // A wrong configuration is refused with the words of Pacemaker.
    let content = r#"{"primitives":{"a":{"type":"ocf:pacemaker:Dummy","ops":{"monitor":{"no-such":1}}}}}"#;
    let wrong = bench.context(&kind, content);
    let why = reason(bench.transition(&wrong, "absent", "stopped").await);
    assert!(why.contains("the configuration would be wrong: crm_verify"), "{why}");
    assert_eq!(bench.state(&wrong).await, "absent");
    // Without a cluster, the state is unknown, and a transition fails.
    for program in cluster.programs.iter_mut().rev() {
        let _ = program.kill();
        let _ = program.wait();
    }
    let state = bench.state(&context).await;
    assert!(state.starts_with("unknown: "), "{state}");
    let why = reason(bench.transition(&context, "absent", "stopped").await);
    assert!(why.contains("crm_mon"), "{why}");
}

#[tokio::test]
async fn a_host_without_the_programs_hears_the_name_of_the_package() {
    if has_program("cibadmin") {
        eprintln!("skipped: the programs are there");
        return;
    }
    let (mut bench, kind) = (Bench::new(), setting("ha-set"));
    let context = bench.context(&kind, r#"{"primitives":{"web":{"type":"systemd:nginx"}}}"#);
    let found = bench.check(&context).await;
    assert!(found.state.is_ok_and(|state| state == *"absent"));
    let why = reason(bench.transition(&context, "absent", "stopped").await);
    for text in [found.difference, why] {
        assert!(text.contains("cibadmin: not found") && text.contains("the package pacemaker-cli-utils"), "{text}");
    }
}

#[tokio::test]
async fn a_set_that_disabled_fencing_leaves_an_empty_cluster() {
    let Some(_cluster) = Cluster::of("a_set_that_disabled_fencing_leaves_an_empty_cluster") else { return };
    run(
        "crm_resource --resource theirs --set-parameter target-role --meta --parameter-value Stopped && crm_resource --wait",
    );
    for element in [
        r#"<rsc_location id="theirs-on-n1"/>"#,
        r#"<primitive id="theirs"/>"#,
        r#"<nvpair id="cib-bootstrap-options-stonith-enabled"/>"#,
    ] {
        run(&format!("cibadmin --delete --xml-text '{element}'"));
    }
    let before = configuration();
    assert!(tools::verify(&tools::query().expect("there")).is_err(), "an empty cluster is no valid configuration");
    let (mut bench, kind) = (Bench::new(), setting("ha-set"));
    let content = r#"{"primitives":{"web":{"type":"ocf:pacemaker:Dummy"}},"properties":{"stonith-enabled":false}}"#;
    let context = bench.context(&kind, content);
    for (from, to) in [("absent", "stopped"), ("stopped", "up"), ("up", "stopped"), ("stopped", "absent")] {
        moved(&mut bench, &context, from, to).await;
    }
    assert_eq!(configuration(), before);
}
