//! A depot restored from an older copy: a number never stands for two contents, and the chapter "Restore a depot" of
//! `docs/how-to/restore-a-depot.md` leads out of the situation.

use std::fs;
use std::process::{Command, Stdio};

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::generation::Security;

use crate::words::{cobctl, run};
use crate::{PATIENCE, VERSIONED};

const HOSTS: [&str; 2] = ["n1", "n2"];

/// A change object of this version on each host.
fn model(version: &str) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
cobs:
  n1/a: {{kind: versioned, content: {{v: {version}}}}}
  n2/b: {{kind: versioned, content: {{v: {version}}}}}
"#
    )
}

fn cluster(security: Security) -> Cluster {
    let program = env!("CARGO_BIN_EXE_cob");
    match security {
        Security::LoopbackOnly => Cluster::new(program, &HOSTS),
        Security::Identities => Cluster::with_identities(program, &HOSTS),
    }
}

fn generate(cluster: &mut Cluster, version: &str) -> GenerationNumber {
    let model = cluster.write_model(version, &[("model.yaml", &model(version)), VERSIONED]);
    cluster.generate(&model)
}

/// The contents of the change objects that are up.
fn versions(cluster: &Cluster) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(cluster.path(file)).unwrap_or_default();
    ["n1/cobs/n1+a/up", "n2/cobs/n2+b/up"].iter().map(|file| read(file)).collect()
}

/// Runs a command line in the folder of the cluster, with the programs by their names.
fn shell(cluster: &Cluster, line: &str) -> (i32, String) {
    let mut command = Command::new("/bin/sh");
    let program = env!("CARGO_BIN_EXE_cob");
    let names = format!(
        "cobgen() {{ '{program}' cobgen \"$@\"; }}; cobctl() {{ '{program}' cobctl --config /dev/null \"$@\"; }}\n"
    );
    command.arg("-c").arg(names + line).current_dir(cluster.dir.path());
    for name in ["COB_DEPOT", "COB_SOCKET", "COB_KEY", "COB_PUBLISHER_KEY"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run(command)
}

fn copy_depot(cluster: &Cluster) {
    let (code, said) = shell(cluster, "git clone --quiet --mirror depot copy");
    assert_eq!(code, 0, "{said}");
}

/// Replaces the depot by the older copy, in the same place for daemons and cluster.
fn lose_depot(cluster: &Cluster) {
    fs::rename(cluster.path("depot"), cluster.path("depot.first")).expect("put aside");
    fs::rename(cluster.path("copy"), cluster.path("depot")).expect("put into its place");
}

/// Two hosts that have generation 2, and a depot in which another generation 2 was published later.
fn with_two_contents(security: Security) -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(security);
    let one = generate(&mut cluster, "one");
    cluster.bring_up(one, PATIENCE);
    copy_depot(&cluster);
    let two = generate(&mut cluster, "two");
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
    lose_depot(&cluster);
    let again = generate(&mut cluster, "mended");
    assert_eq!(again, two, "the number is given out a second time");
    (cluster, two)
}

/// Asserts that the order was refused with this text, and that the hosts are unchanged.
fn assert_another(cluster: &Cluster, (code, said): (i32, String)) {
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("another generation 2"), "{said}");
    assert!(versions(cluster).iter().all(|text| text.contains("two")), "the hosts keep what they have");
}

fn a_number_with_two_contents(security: Security) {
    let (mut cluster, two) = with_two_contents(security);
    let ctl = |words: &[&str]| run(cobctl(&cluster, &HOSTS, words));
    let (code, said) = ctl(&["switch", "2", "--wait", "20s"]);
    assert!(said.contains("n1 refuses: generation 2 is refused: this host knows another generation 2"), "{said}");
    assert!(said.contains("--above") && said.contains("restore-a-depot"), "it says how to go on: {said}");
    assert_another(&cluster, (code, said));
    for words in [&["switch", "latest", "--wait", "20s"][..], &["status"], &["check"], &["diff"], &["plan", "2"]] {
        assert_another(&cluster, ctl(words));
    }
    let (_, said) = ctl(&["status"]);
    assert!(!said.contains("OK: "), "{said}");
    // An order by number alone, from a program without the depot: the daemon checks its own depot.
    for order in ["prepare", "switch"] {
        for host in HOSTS {
            let body = format!("{{\"generation\": {two}}}");
            let said = cluster.http(host, "POST", &format!("/v1/{order}"), &body).expect_err("refused");
            assert!(said.contains("this host knows another generation 2"), "{said}");
        }
    }
    // Across a restart, and with the host's own copy destroyed: the depot's content does not replace it.
    cluster.stop("n1");
    fs::remove_dir_all(cluster.path("n1/generations/2")).expect("destroyed");
    let (status, said) = cluster.start_in_vain("n1");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("this host knows another generation 2"), "{said}");
}

#[test]
fn a_number_with_two_contents_is_never_a_success() {
    a_number_with_two_contents(Security::LoopbackOnly);
}

#[test]
fn a_signed_number_with_two_contents_is_never_a_success() {
    a_number_with_two_contents(Security::Identities);
}

/// A new host takes the depot's content. The others have another content, and neither host is shown as converged.
#[test]
fn a_host_set_up_anew_between_two_contents_is_seen() {
    let (mut cluster, two) = with_two_contents(Security::LoopbackOnly);
    cluster.kill("n2");
    fs::remove_dir_all(cluster.path("n2")).expect("removed");
    cluster.start("n2");
    cluster.wait_answers("n2");
    let body = format!("{{\"generation\": {two}}}");
    cluster.http("n2", "POST", "/v1/switch", &body).expect("it knows no other one");
    cluster.until(PATIENCE, || versions(&cluster)[1].contains("mended"), "n2 has the depot's");
    let converged =
        || HOSTS.iter().all(|h| cluster.status(h).is_some_and(|s| s.converged && s.generation == Some(two)));
    cluster.until(PATIENCE, converged, "both call themselves converged");
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["status"]));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("n1 has another generation 2"), "{said}");
    let log =
        || cluster.log("n1").contains("another generation 2") || cluster.log("n2").contains("another generation 2");
    cluster.until(PATIENCE, log, "the daemons say that they do not follow each other");
}

/// The commands of the page's first example.
fn commands_of_the_page() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/restore-a-depot.md");
    let text = fs::read_to_string(path).expect("the page");
    let (_, example) = text.split_once("```console\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let lines = example.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn a_depot_is_restored_as_the_documentation_says() {
    let mut cluster = cluster(Security::LoopbackOnly);
    let one = generate(&mut cluster, "one");
    cluster.bring_up(one, PATIENCE);
    copy_depot(&cluster);
    for version in ["two", "three"] {
        let next = generate(&mut cluster, version);
        cluster.switch_all(next);
        cluster.wait_converged(next, PATIENCE);
    }
    let mut mended = model("mended");
    for (port, host) in [(1, "n1"), (2, "n2")] {
        mended = mended.replace(&format!("127.0.0.1:{port}\""), &format!("{}\"", cluster.address(host)));
    }
    cluster.write_model("model", &[("model.yaml", &mended), VERSIONED]);
    let commands = commands_of_the_page();
    assert_eq!(commands.len(), 7, "{commands:?}");
    let mut all = String::new();
    for command in &commands {
        let (code, said) = shell(&cluster, command);
        assert_eq!(code, 0, "{command}: {said}");
        all.push_str(&said);
    }
    assert!(
        all.contains("the depot is behind its hosts: its newest generation is 1, and n1 and n2 know generation 3"),
        "{all}"
    );
    assert!(all.contains("generation 4: 2 hosts"), "no number is given out twice: {all}");
    assert!(versions(&cluster).iter().all(|text| text.contains("mended")), "{:?}", versions(&cluster));
    let (code, said) = shell(&cluster, "cobctl status --depot depot");
    assert!(code == 0 && !said.contains("behind"), "{said}");
    // Further generations work as usual, and so does a rollback.
    let (code, said) =
        shell(&cluster, "sed -i 's/mended/next/' model/model.yaml && cobgen generate model --depot depot");
    assert!(code == 0 && said.contains("generation 5"), "{said}");
    let (code, said) =
        shell(&cluster, "cobctl switch latest --depot depot --wait 60s && cobctl rollback --depot depot --wait 60s");
    assert_eq!(code, 0, "{said}");
    assert!(versions(&cluster).iter().all(|text| text.contains("mended")), "{:?}", versions(&cluster));
}

/// The copy lacks the newest generation, and no newer one is published: "latest" would lead back.
#[test]
fn the_latest_of_an_older_copy_is_not_gone_back_to_without_a_word() {
    let mut cluster = cluster(Security::LoopbackOnly);
    let one = generate(&mut cluster, "one");
    cluster.bring_up(one, PATIENCE);
    copy_depot(&cluster);
    let two = generate(&mut cluster, "two");
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
    lose_depot(&cluster);
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["switch", "latest", "--wait", "20s"]));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("this switches BACK from 2 to 1 on 2 hosts"), "{said}");
    assert!(said.contains("the depot is behind its hosts") && said.contains("--back"), "{said}");
    assert!(cluster.is_converged(two), "nothing was ordered");
    // A number that the hosts can't report is skipped by hand, even if the model asks for the same.
    let (code, said) = shell(&cluster, "cobgen generate one --depot depot --offline --above 6");
    assert!(code == 0 && said.contains("generation 7"), "{said}");
    // With `--back` the operator confirms the way back.
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["switch", "1", "--back", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("this switches BACK from 2 to 1 on 2 hosts"), "{said}");
    assert!(versions(&cluster).iter().all(|text| text.contains("one")));
}
