//! Generation numbers and their contents, and switches to older generations, against daemons on real sockets.

use std::path::Path;

use cob_types::status::{SwitchStage, SwitchStatus};
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, GenerationId, GenerationNumber};
use cobd::web::Command;

use crate::fake::{Daemon, cobctl, name, publish, settled};

const N6: GenerationNumber = GenerationNumber(6);
const N7: GenerationNumber = GenerationNumber(7);

/// Two hosts at generation 7, and a depot with the generations 6 and 7.
async fn two(depot: &Path) -> (Daemon, Daemon) {
    let (n1, n2) = (Daemon::tcp("n1", 7, vec![]).await, Daemon::tcp("n2", 7, vec![]).await);
    for generation in [6, 7] {
        publish(depot, generation, &[("n1", &n1.address, 0), ("n2", &n2.address, 0)]);
    }
    (n1, n2)
}

fn switches(daemon: &Daemon) -> usize {
    daemon.look().orders.iter().filter(|order| matches!(order, Command::Switch(_))).count()
}

#[tokio::test]
async fn a_switch_back_is_announced_and_needs_consent() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    let ran = cobctl(&["--depot", depot, "switch", "6", "--wait", "20s"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("this switches BACK from 7 to 6 on 2 hosts"), "{}", ran.err);
    assert!(ran.err.contains("`cobctl switch 6 --back` switches back"), "{}", ran.err);
    let ran = cobctl(&["--depot", depot, "switch", "6", "--wait", "20s", "--json"]).await;
    assert_eq!(
        (ran.code, ran.json()["error"].as_str()),
        (1, Some("this switches BACK from 7 to 6 on 2 hosts; no order was given"))
    );
    assert_eq!(n1.look().orders, [], "not even prepared");
    for (named, number) in [("-1", "6"), ("latest", "7")] {
        let ran = cobctl(&["--depot", depot, "replay", named]).await;
        assert!(ran.code == 1 && ran.err.contains(&format!("contain no switch to generation {number}")), "{ran:?}");
        let ran = cobctl(&["--depot", depot, "outcomes", named]).await;
        assert!(ran.err.contains(&format!("no switch to generation {number} is known")), "{ran:?}");
    }
    let ran = cobctl(&["--depot", depot, "discard", "-9"]).await;
    assert!(ran.code == 2 && ran.err.contains("there is no generation -9: the depot has 2 generations"), "{ran:?}");
    let ran = cobctl(&["--depot", depot, "switch", "-1", "--prepare"]).await;
    assert_eq!((ran.code, switches(&n1)), (0, 0), "a look needs no such word: {ran:?}");
    assert!(ran.err.contains("this switches BACK"), "{}", ran.err);
    let ran = cobctl(&["--depot", depot, "switch", "6", "--back", "--wait", "20s"]).await;
    assert_eq!((ran.code, switches(&n1), switches(&n2)), (0, 1, 1), "{ran:?}");
    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "20s"]).await;
    assert_eq!(ran.code, 0, "forward needs no word: {ran:?}");
}

/// A host has activated a generation that the depot does not have (any more).
#[tokio::test]
async fn hosts_ahead_of_the_depot_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    let known = GenerationId { generation: GenerationNumber(9), manifest: BlobHash([9; 32]) };
    n2.change(|status| status.newest_known = Some(known));
    let warning = "the depot is behind its hosts: its newest generation is 7, and n2 knows generation 9";
    let ran = cobctl(&["--depot", depot, "status"]).await;
    assert!(ran.code == 0 && ran.err.contains(warning), "{ran:?}");
    let ran = cobctl(&["--depot", depot, "status", "--json"]).await;
    assert_eq!(ran.json()["ahead_of_depot"]["n2"], 9);
    n1.change(|status| status.generation = Some(GenerationNumber(8)));
    let ran = cobctl(&["--depot", depot, "switch", "latest"]).await;
    assert!(ran.code == 1 && ran.err.contains("and n1 and n2 know generation 9"), "{ran:?}");
    assert!(ran.err.contains("this switches BACK from 8 to 7 on 1 host"), "{}", ran.err);
}

#[tokio::test]
async fn hosts_with_two_contents_of_a_generation_have_not_converged() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    let own = cob_depot::Depot::open(folder.path()).expect("a depot").read_manifest_hashed(N7).expect("read").1;
    n1.change(|status| status.manifest = Some(own));
    n2.change(|status| status.manifest = Some(own));
    assert_eq!(cobctl(&["--depot", depot, "status"]).await.code, 0);
    n2.change(|status| status.manifest = Some(BlobHash([7; 32])));
    let ran = cobctl(&["--depot", depot, "status"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("not converged: n2 has another generation 7 (manifest 070707070707)"), "{}", ran.out);
    // Without a depot the hosts are compared with each other.
    let named = ["--host", &n1.address, "--host", &n2.address, "status"];
    let ran = cobctl(&named).await;
    assert!(ran.code == 1 && ran.out.contains("generation 7 is not the same on all hosts"), "{ran:?}");
}

#[tokio::test]
async fn a_wait_for_a_switch_reports_a_rollback_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = (Daemon::tcp("n1", 6, vec![]).await, Daemon::tcp("n2", 6, vec![]).await);
    for generation in [6, 7] {
        publish(folder.path(), generation, &[("n1", &n1.address, 0), ("n2", &n2.address, 0)]);
    }
    n1.look().prompt = false;
    n2.look().prompt = false;
    let waits = ["--depot", depot, "switch", "7", "--wait", "60s"];
    let going_back = async {
        n1.until(|inside| inside.orders.len() == 2).await;
        n2.until(|inside| inside.orders.len() == 2).await;
        // Another operator has ordered the rollback of a host, which has just started.
        n1.change(|status| {
            status.generation = Some(N7);
            status.switching_to = Some(N6);
            status.switch = Some(SwitchStatus {
                to: N6,
                stage: SwitchStage::Going,
                left: Some(N7),
                why: "ordered by bob".to_owned(),
                on_failure: OnFailure::Hold,
                guard_left_ms: None,
                unreached: Vec::new(),
                remains: Vec::new(),
                ordered: true,
                manifest: None,
            });
        });
    };
    let (ran, ()) = tokio::join!(cobctl(&waits), going_back);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("generation 7 was rolled back"), "{}", ran.out);
    assert!(ran.out.contains("n1 rolls back from generation 7 to 6: ordered by bob"), "{}", ran.out);
}

#[tokio::test]
async fn hosts_whose_clocks_differ_are_named() {
    let (n1, n2) = (Daemon::tcp("n1", 7, vec![settled("n1/db")]).await, Daemon::tcp("n2", 7, vec![]).await);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let now = u64::try_from(now.as_nanos()).expect("not so late");
    n1.change(|status| status.now_ns = now);
    n2.change(|status| status.now_ns = now + 600_500_000_000);
    let named = ["--host", &n1.address, "--host", &n2.address, "status"];
    let ran = cobctl(&named).await;
    assert!(ran.out.contains("n2: its clock is 10 min ahead of the other clocks"), "{}", ran.out);
    assert!(!ran.out.contains(&format!("{}: its clock", name("n1"))), "{}", ran.out);
}
