//! Reasons for which a daemon refuses to start, and following a depot if so configured.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;

use crate::{CHECK, PATIENCE, QUICK, cluster};

/// Two hosts with a change object each, of which the second requires the first.
pub(crate) const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
cobs:
  n1/a: {kind: quick}
  n2/b: {kind: quick, requires: [n1/a]}
"#;

fn published(hosts: &[&str]) -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(hosts);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    let generation = cluster.generate(&model);
    (cluster, generation)
}

/// Starts a daemon that can't come up; it must report the reason in a single line that contains all of these texts.
fn assert_refused(cluster: &Cluster, host: &str, code: i32, words: &[&str]) {
    let (status, said) = cluster.start_in_vain(host);
    assert_eq!(status.code(), Some(code), "{said}");
    let told: Vec<_> = said.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(told.len(), 1, "{said}");
    words.iter().for_each(|word| assert!(told[0].contains(word), "{word:?} is not in {:?}", told[0]));
}

#[test]
fn a_second_daemon_on_a_state_folder_is_refused() {
    let (mut cluster, generation) = published(&["n1", "n2"]);
    cluster.bring_up(generation, PATIENCE);
    let pid = cluster.pid("n1").expect("runs").to_string();
    assert_refused(&cluster, "n1", 1, &["n1/journal is in use by another daemon", &pid, "state_dir"]);
    assert!(cluster.is_converged(generation), "the first one does not mind");
}

#[test]
fn a_state_folder_that_others_may_write_to_is_refused() {
    let (mut cluster, _) = published(&["n1", "n2"]);
    let folder = cluster.path("n1");
    fs::create_dir(&folder).expect("made");
    for mode in [0o770, 0o707] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("set");
        assert_refused(&cluster, "n1", 1, &["state folder", "other users may write into it", "make it 0700"]);
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("set");
    cluster.start("n1");
    cluster.wait_answers("n1");
}

#[test]
fn an_invalid_log_filter_is_a_configuration_error() {
    let (cluster, _) = published(&["n1", "n2"]);
    cluster.configure("n1", "");
    let file = cluster.path("n1.toml");
    let text = fs::read_to_string(&file).expect("a configuration");
    fs::write(&file, text.replace("debug,zeromq=info", "nonsense=loudly")).expect("written");
    assert_refused(&cluster, "n1", 2, &["`log`", "nonsense=loudly", "no filter"]);
}

#[test]
fn a_public_key_that_is_lost_on_its_way_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let init = |out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
        command.args(["cobd", "init", "--state-dir"]).arg(folder.path().join("n1")).stdout(out).output().expect("runs")
    };
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("the device");
    let lost = init(full.into());
    let said = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert_eq!(lost.status.code(), Some(1), "{said}");
    assert!(said.contains("error: can't write the output: No space left"), "{said}");
    let shown = init(Stdio::piped());
    assert!(shown.status.success() && shown.stdout.starts_with(b"ed25519:"), "{shown:?}");
}

#[test]
fn addresses_outside_this_machine_are_refused() {
    let (mut cluster, first) = published(&["n1", "n2"]);
    for address in ["tcp://0.0.0.0:7001", "tcp://192.0.2.1:7001", "tcp://[::]:7001"] {
        cluster.configure("n1", &format!("listen = {address:?}"));
        let address = address.trim_start_matches("tcp://");
        assert_refused(&cluster, "n1", 1, &["refusing to listen", address, "not a loopback address"]);
    }
    cluster.configure("n1", "");
    cluster.start_all();
    cluster.switch_all(first);

    // A manifest that `cobgen` would not make.
    let mut draft = cluster.load(&cluster.path("model"));
    let n2 = draft.hosts.get_mut("n2").expect("in the model");
    n2.value.address = Some("tcp://192.0.2.1:7001".to_owned());
    let second = cluster.publish_unchecked(&draft);
    for order in ["prepare", "switch"] {
        let body = format!("{{\"generation\": {second}}}");
        let answer = cluster.http("n1", "POST", &format!("/v1/{order}"), &body).expect_err("refused");
        assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
        for words in ["generation 2", "host n2 is at 192.0.2.1:7001", "not a loopback address"] {
            assert!(answer.contains(words), "{words:?} is not in {answer}");
        }
    }
    cluster.wait_converged(first, PATIENCE);
}

#[test]
fn a_daemon_waits_for_its_first_generation_and_says_so() {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    let draft = cluster.load(&model);
    let waits = |cluster: &Cluster, host: &str, words: &str| {
        let line = format!("the daemon waits for its first generation: {words}");
        cluster.until(PATIENCE, || cluster.log(host).contains(&line), &format!("{host} says {line:?}"));
    };
    for host in ["n1", "n2"] {
        cluster.configure(host, "");
        cluster.start(host);
        waits(&cluster, host, "the depot");
    }
    // A generation without the host may belong to another cluster, or be an early generation.
    let early = MODEL.lines().filter(|line| !line.contains("n2")).collect::<Vec<_>>().join("\n");
    let early = cluster.write_model("early", &[("model.yaml", &early), QUICK, CHECK]);
    let first = cluster.generate(&early);
    waits(&cluster, "n2", "generation 1 has no host n2; it has n1: correct `host` in cobd.toml, or write this host");
    cluster.wait_answers("n1");
    let second = cluster.publish_draft(&draft);
    assert!(first < second);
    cluster.wait_answers("n2");
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
}

#[test]
fn a_failed_start_of_the_daemon_names_cause_and_remedy() {
    let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    cluster.generate(&model);
    cluster.configure("n1", "listen = \"tcp://192.0.2.55:7001\"");
    assert_refused(
        &cluster,
        "n1",
        1,
        &["192.0.2.55:7001", "this machine does not have the address", "`listen` in cobd.toml"],
    );
    cluster.configure("n1", "");
    let file = cluster.path("n1.toml");
    let text = fs::read_to_string(&file).expect("a configuration");
    let with = |key: &str, value: &str| {
        let lines = text.lines().filter(|line| !line.starts_with(&format!("{key} =")));
        let lines: Vec<&str> = lines.collect();
        fs::write(&file, format!("{}\n{key} = \"{value}\"\n", lines.join("\n"))).expect("written");
    };
    with("http", "no/such/folder/s");
    assert_refused(&cluster, "n1", 1, &["no/such/folder/s", "there is no folder", "set `http` in cobd.toml"]);
    with("depot", "model");
    assert_refused(&cluster, "n1", 1, &["can't fetch a generation", "model is not a depot"]);
}

#[test]
fn a_daemon_that_follows_switches_by_itself() {
    let (mut cluster, first) = published(&["n1", "n2"]);
    for host in ["n1", "n2"] {
        cluster.configure(host, "follow = true");
    }
    cluster.start_all();
    cluster.wait_converged(first, PATIENCE);
    // Another content, then another while its hosts are away.
    let mut draft = cluster.load(&cluster.path("model"));
    let mut next = |cluster: &mut Cluster, round: u32| {
        let a = draft.cobs.get_mut("n1/a").expect("in the model");
        a.value.content["round"] = round.into();
        cluster.publish_draft(&draft)
    };
    let second = next(&mut cluster, 2);
    cluster.wait_converged(second, PATIENCE);
    cluster.kill("n1");
    let third = next(&mut cluster, 3);
    cluster.start("n1");
    cluster.wait_converged(third, PATIENCE);
    assert_eq!(third, GenerationNumber(3));
}
