//! Signed generations on real daemons: refused generations have no effect, and the rollback uses the signed target.

use cob_tests::cluster::Cluster;
use cob_trust::{SecretKey, publishers};
use cob_types::GenerationNumber;

use crate::{CHECK, PATIENCE, QUICK};

/// Two hosts, the second with a change object of this version.
fn model(version: &str) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
cobs:
  n1/a: {{kind: quick}}
  n2/b: {{kind: quick, requires: [n1/a]}}
  n2/of-{version}: {{kind: quick, requires: [n2/b]}}
"#
    )
}

fn cluster() -> Cluster {
    Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1", "n2"])
}

fn generate(cluster: &mut Cluster, version: &str) -> GenerationNumber {
    let model = cluster.write_model(version, &[("model.yaml", &model(version)), QUICK, CHECK]);
    cluster.generate(&model)
}

/// Asserts that the order is refused with this text, in its answer and in the log, and that the host is unchanged.
fn assert_refused(cluster: &Cluster, host: &str, order: &str, generation: u64, words: &[&str]) {
    let before = cluster.status(host).map(|s| (s.generation, s.switching_to));
    let body = format!("{{\"generation\": {generation}}}");
    let said = cluster.http(host, "POST", &format!("/v1/{order}"), &body).expect_err("refused");
    let log = cluster.log(host);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
        assert!(log.contains(word), "{word:?} is not in the log");
    }
    assert_eq!(cluster.status(host).map(|s| (s.generation, s.switching_to)), before);
}

#[test]
fn only_generations_signed_by_a_trusted_publisher_are_switched_to() {
    let mut cluster = cluster();
    let one = generate(&mut cluster, "one");
    cluster.bring_up(one, PATIENCE);

    cluster.signers.clear();
    let unsigned = generate(&mut cluster, "unsigned");
    let stranger = SecretKey::from_seed(&[9; 32]);
    for order in ["prepare", "switch"] {
        assert_refused(&cluster, "n1", order, unsigned.0, &["it has no signature", "cobgen sign"]);
    }
    let (depot, _) = cluster.depot();
    let bytes = depot.read_manifest_bytes(unsigned).expect("read");
    depot.add_signature(unsigned, &publishers::sign(&stranger, &bytes)).expect("added");
    let who = stranger.public().to_string();
    assert_refused(&cluster, "n1", "switch", unsigned.0, &["does not trust", &who]);
    // A publisher's signature over other bytes.
    depot.add_signature(unsigned, &publishers::sign(&cluster.publisher(), b"another")).expect("added");
    assert_refused(&cluster, "n1", "switch", unsigned.0, &["was altered"]);
    assert!(cluster.is_converged(one));

    depot.add_signature(unsigned, &publishers::sign(&cluster.publisher(), &bytes)).expect("added");
    cluster.switch_all(unsigned);
    cluster.wait_converged(unsigned, PATIENCE);
}

#[test]
fn rollback_targets_are_the_signed_ones_and_survive_restarts() {
    let mut cluster = cluster();
    let all = ["one", "two", "three", "four", "five", "six"].map(|version| generate(&mut cluster, version));
    let [one, two, .., five, six] = all;
    cluster.start_all();
    for generation in [one, five, six] {
        cluster.switch_all(generation);
        cluster.wait_converged(generation, PATIENCE);
    }
    // The manifest allows no direct switch from there.
    assert_refused(
        &cluster,
        "n1",
        "switch",
        one.0,
        &["generation 1 is older than 6", "does not name it as a rollback target"],
    );
    assert_refused(&cluster, "n1", "prepare", one.0, &["generation 1 is older than 6"]);

    cluster.switch_all(five);
    cluster.wait_converged(five, PATIENCE);
    assert!(cluster.cob("n2/of-five").is_some() && cluster.cob("n2/of-six").is_none());
    // The rollback targets of generation 5 were meant for hosts that came from 1: they do not count now.
    assert_refused(&cluster, "n1", "switch", one.0, &["generation 6 does not name it as a rollback target"]);
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_answers("n1");
    cluster.until(PATIENCE, || cluster.is_converged(five), "the return survives a crash");
    assert_refused(&cluster, "n1", "switch", one.0, &["generation 6 does not name it as a rollback target"]);

    cluster.switch_all(six);
    cluster.wait_converged(six, PATIENCE);
    // The other targets that it names are allowed as well.
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
    assert!(cluster.cob("n2/of-two").is_some() && cluster.cob("n2/of-six").is_none());
    let seven = generate(&mut cluster, "seven");
    cluster.switch_all(seven);
    cluster.wait_converged(seven, PATIENCE);
}

#[test]
fn a_daemon_does_not_follow_to_a_generation_it_left_by_rollback() {
    let mut cluster = cluster();
    let one = generate(&mut cluster, "one");
    for host in cluster.hosts() {
        cluster.configure(&host, "follow = true");
    }
    cluster.start_all();
    cluster.wait_converged(one, PATIENCE);
    let two = generate(&mut cluster, "two");
    cluster.wait_converged(two, PATIENCE);
    cluster.switch_all(one);
    cluster.wait_converged(one, PATIENCE);
    // A change in the depot makes the daemons check it; the unsigned generation is refused, and 2 stays abandoned.
    cluster.signers.clear();
    let unsigned = generate(&mut cluster, "unsigned");
    let refused = || cluster.hosts().iter().all(|host| cluster.log(host).contains("it has no signature"));
    cluster.until(PATIENCE, refused, "the unsigned one is refused");
    assert!(cluster.is_converged(one));
    let (depot, _) = cluster.depot();
    let bytes = depot.read_manifest_bytes(unsigned).expect("read");
    depot.add_signature(unsigned, &publishers::sign(&cluster.publisher(), &bytes)).expect("added");
    cluster.wait_converged(unsigned, PATIENCE);
}
