//! `switch`, `pause`, `resume`, `retry`, `fence` against daemons on real sockets.

use std::collections::BTreeMap;
use std::path::Path;

use crate::fake::{
    Daemon, cobctl, cobctl_while, entry, failed, id, lock, name, publish, settled, state, until, waiting, with_facts,
};
use cob_types::GenerationNumber;
use cob_types::api::order;
use cob_types::history::HistoryEntry;
use cob_types::outcome::{CobOutcome, Ended, OutcomeOf, of_host};
use cob_types::status::Holder;
use cob_types::switch::OnFailure;
use cobctl::screen::Written;
use cobd::web::{Command, RefusalKind};
use tokio::net::TcpListener;

const N7: GenerationNumber = GenerationNumber(7);

/// Two hosts at generation 6 and a depot with generation 7, in which each has a change object.
async fn two(depot: &Path) -> (Daemon, Daemon) {
    let (n1, n2) = (Daemon::tcp("n1", 6, vec![]).await, Daemon::tcp("n2", 6, vec![]).await);
    n1.look().next = vec![settled("n1/db")];
    n2.look().next = vec![settled("n2/app")];
    publish(depot, 6, &[("n1", &n1.address, 0), ("n2", &n2.address, 0)]);
    publish(depot, 7, &[("n1", &n1.address, 1), ("n2", &n2.address, 1)]);
    (n1, n2)
}

/// The orders that a daemon has received, with only the numbers of generations.
fn orders(daemon: &Daemon) -> Vec<Command> {
    let mut orders = daemon.look().orders.clone();
    for order in &mut orders {
        if let Command::Prepare(order::Prepare { manifest, .. }) | Command::Switch(order::Switch { manifest, .. }) =
            order
        {
            *manifest = None;
        }
    }
    orders
}

const N6: GenerationNumber = GenerationNumber(6);
const PREPARE: Command = Command::Prepare(order::Prepare { generation: N7, who: None, manifest: None });
const DISCARD: Command = Command::Discard(order::Discard { generation: N7, who: None });
const SWITCH: order::Switch = order::Switch {
    generation: N7,
    who: None,
    on_failure: None,
    guard_ms: None,
    alone: false,
    only: Vec::new(),
    seen: Some(N6),
    manifest: None,
    now: false,
};
const TAKEN: [Command; 2] = [PREPARE, Command::Switch(SWITCH)];

#[tokio::test]
async fn a_switch_prepares_all_hosts_starts_and_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    n2.look().prompt = false;
    let finishing = async {
        n2.until(|inside| inside.orders.len() == 2).await;
        n2.change(|status| {
            status.generation = Some(N7);
            status.switching_to = None;
            status.cobs = vec![waiting("n2/app", vec![lock("n1/db")])];
        });
        let asked = n2.look().asked;
        n2.until(|inside| inside.asked > asked + 1).await;
        n2.change(|status| status.cobs = vec![settled("n2/app")]);
    };
    let (ran, ()) = tokio::join!(cobctl(&["--depot", depot, "switch", "latest", "--wait", "20s"]), finishing);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out, "generation 7 is active and converged: 2 hosts, 2 change objects\n");
    assert_eq!((orders(&n1), orders(&n2)), (TAKEN.to_vec(), TAKEN.to_vec()));
    let content = cob_depot::Depot::open(folder.path()).expect("a depot").read_manifest_hashed(N7).expect("read").1;
    let names_it = |order: &Command| {
        let (Command::Prepare(order::Prepare { manifest, .. }) | Command::Switch(order::Switch { manifest, .. })) =
            order
        else {
            return false;
        };
        *manifest == Some(content)
    };
    assert!(n1.look().orders.iter().all(names_it), "every order names the content, too");

    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "20s", "--json"]).await;
    assert_eq!((ran.code, &ran.json()["converged"]), (0, &true.into()), "to the active one: waits only");
    assert_eq!(orders(&n1).len(), 2, "and orders nothing");
}

/// A host in a state that an interrupted canary, or an order to named hosts, leaves behind.
#[tokio::test]
async fn a_host_that_switched_alone_learns_that_the_switch_is_for_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    n1.change(|status| (status.generation, status.alone) = (Some(N7), true));
    n1.change(|status| status.cobs = vec![settled("n1/db")]);
    let go =
        |on_failure, seen| Command::Switch(order::Switch { on_failure: Some(on_failure), seen: Some(seen), ..SWITCH });
    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "20s"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(orders(&n1), [go(OnFailure::Hold, N7)]);
    assert_eq!(orders(&n2), [PREPARE, go(OnFailure::Hold, N7)], "and all the same");
    n1.change(|status| status.alone = false);
    let ran = cobctl(&["--depot", depot, "switch", "7", "--on-failure", "rollback", "--wait", "20s"]).await;
    assert_eq!((ran.code, orders(&n1).len(), orders(&n2).len()), (0, 2, 3), "{ran:?}");
    assert_eq!(orders(&n2).last(), Some(&go(OnFailure::Rollback, N7)));
}

/// One daemon has counted the outcome of the switch, the other was restarted since and has only its history.
#[tokio::test]
async fn the_outcome_of_a_switch_is_stored_in_the_depot() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = two(folder.path()).await;
    let tells = |ts_ns: u64, event: &str| {
        with_facts(HistoryEntry {
            ts_ns,
            generation: N6,
            cob: None,
            event: event.to_owned(),
            from: None,
            to: None,
            attempt: None,
            detail: "to generation 7, by ann".to_owned(),
            ..entry("n2", ts_ns, ts_ns)
        })
    };
    n2.look().history = vec![tells(1, "go"), tells(2, "settled")];
    let mut outcome = of_host(&[tells(1, "go"), tells(4, "settled")]).remove(0);
    outcome.cobs = [(id("n1/db"), CobOutcome { moves: 3, ..CobOutcome::default() })]
        .into_iter()
        .collect::<BTreeMap<_, _>>()
        .into();
    n1.look().outcome = Some(OutcomeOf { host: name("n1"), outcome });
    let ran = cobctl(&["--depot", folder.path().to_str().expect("text"), "switch", "7", "--wait", "20s"]).await;
    assert_eq!((ran.code, ran.err.contains("note")), (0, false), "{ran:?}");
    let depot = cob_depot::Depot::open(folder.path()).expect("a depot");
    let noted = depot.outcomes().expect("read").all.remove(0);
    assert_eq!((noted.to, noted.ended, noted.hosts.len()), (N7, Ended::Converged, 2));
    assert_eq!(noted.hosts[&name("n1")].cobs[&id("n1/db")].moves, 3);
    assert_eq!((noted.hosts[&name("n2")].began_ns, noted.hosts[&name("n2")].ended_ns), (1, Some(2)));
}

#[tokio::test]
async fn a_switch_without_a_wait_ends_when_it_has_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = two(folder.path()).await;
    n1.look().prompt = false;
    let ran = cobctl(&["--depot", folder.path().to_str().expect("text"), "switch", "7"]).await;
    assert!(ran.code == 0 && ran.out.contains("switch started on 2 hosts"), "{ran:?}");
    assert_eq!((orders(&n1), orders(&n2)), (TAKEN.to_vec(), TAKEN.to_vec()));
}

#[tokio::test]
async fn a_host_that_refuses_stops_the_switch_before_its_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = two(folder.path()).await;
    n2.look().refuses = Some(RefusalKind::Conflict);
    let ran = cobctl(&["--depot", folder.path().to_str().expect("text"), "switch", "7", "--wait"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("n2 refuses: generation 7 is not wanted here") && ran.err.contains("hint: ask why"));
    assert!(ran.err.contains("the switch has not started, no host has changed"), "{}", ran.err);
    let discarded = [PREPARE, DISCARD];
    assert_eq!(orders(&n1), discarded, "no go anywhere, and what was prepared for it is forgotten");
    // A generation that was prepared before the order stays prepared after it.
    n1.look().status.prepared = vec![N7];
    cobctl(&["--depot", folder.path().to_str().expect("text"), "switch", "7"]).await;
    assert_eq!(orders(&n1)[2..], [PREPARE]);
}

#[tokio::test]
async fn a_switch_waits_for_a_generation_missing_in_the_depot_of_a_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    n2.look().refuses = Some(RefusalKind::NotFound);
    let arriving = async {
        n2.until(|inside| inside.orders.len() > 1).await;
        n2.look().refuses = None;
    };
    let (ran, ()) = tokio::join!(cobctl(&["--depot", depot, "switch", "7", "--wait"]), arriving);
    assert_eq!((ran.code, orders(&n1)), (0, TAKEN.to_vec()), "{ran:?}");

    n2.look().refuses = Some(RefusalKind::NotFound);
    n2.change(|status| status.generation = Some(GenerationNumber(6)));
    let ran = cobctl(&["--depot", depot, "switch", "7", "--prepare-timeout", "100ms"]).await;
    assert!(ran.code == 1 && ran.err.contains("has not started"), "{ran:?}");
}

#[tokio::test]
async fn an_absent_host_is_named_and_follows_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let n1 = Daemon::tcp("n1", 6, vec![]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    publish(folder.path(), 7, &[("n1", &n1.address, 0), ("n2", &format!("tcp://{address}"), 0)]);
    let args = ["--depot", depot, "switch", "7", "--prepare-timeout", "300ms"];
    let ran = cobctl(&[&args[..], &["--require-all"]].concat()).await;
    assert!(!ran.err.contains("the other hosts continue"), "nothing goes on: {ran:?}");
    assert!(ran.code == 3 && ran.err.contains("no host has changed: not all hosts could be reached"), "{ran:?}");
    assert_eq!(orders(&n1), [PREPARE, DISCARD]);
    n1.look().orders.clear();
    let ran = cobctl(&args).await;
    assert!(ran.code == 3 && ran.err.contains("not reachable: n2: no connection"), "{ran:?}");
    assert_eq!(orders(&n1), TAKEN, "the others went on");

    let ran = cobctl(&[&args[..], &["--wait", "500ms", "--json"]].concat()).await;
    assert_eq!((ran.code, &ran.json()["absent"][0]), (3, &"n2".into()), "{ran:?}");

    let coming = async {
        let listener = TcpListener::bind(address).await.expect("bound again");
        let n2 = Daemon::on(listener, "n2", 6, vec![]);
        n2.until(|inside| inside.orders.len() == 2).await;
        n2
    };
    let wait = [&args[..], &["--wait", "20s"]].concat();
    let switching = cobctl(&wait);
    let late = async {
        n1.until(|inside| inside.asked > 3).await;
        coming.await
    };
    let (ran, n2) = tokio::join!(switching, late);
    // By then the other host has activated it.
    let go = Command::Switch(order::Switch { seen: Some(N7), ..SWITCH });
    assert_eq!((ran.code, orders(&n2)), (0, vec![TAKEN[0].clone(), go]), "{ran:?}");
}

#[tokio::test]
async fn a_silent_host_is_named_with_its_time_and_tried_rarely() {
    let folder = tempfile::tempdir().expect("a folder");
    let n1 = Daemon::tcp("n1", 6, vec![]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let n2 = format!("tcp://{}", listener.local_addr().expect("an address"));
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&tries);
    let away = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    publish(folder.path(), 7, &[("n1", &n1.address, 0), ("n2", &n2, 0)]);
    let depot = folder.path().to_str().expect("text");
    let ran = cobctl(&["--depot", depot, "switch", "7", "--prepare-timeout", "300ms", "--wait", "6s"]).await;
    away.abort();
    assert!(ran.code == 3 && ran.out.contains("n2 could not be reached"), "{ran:?}");
    assert!(ran.err.contains("waiting for n2, at most"), "{ran:?}");
    assert!(ran.err.contains("waiting for n2 (no answer for ") && ran.err.contains("; the wait ends in "), "{ran:?}");
    let tries = tries.load(std::sync::atomic::Ordering::Relaxed);
    assert!(tries <= 18, "{tries} connections in 6 s");
}

#[tokio::test]
async fn a_switch_that_reaches_no_host_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let n1 = Daemon::tcp("n1", 7, vec![]).await;
    publish(folder.path(), 7, &[("n1", &n1.address, 0), ("n2", "tcp://127.0.0.1:1", 0)]);
    let depot = folder.path().to_str().expect("text");
    let ran = cobctl(&["--depot", depot, "switch", "7", "--prepare-timeout", "100ms"]).await;
    assert_eq!((ran.code, orders(&n1).len()), (3, 0), "{ran:?}");
    assert!(ran.out.contains("not started, because n2 could not be reached"), "{ran:?}");
}

/// A port that accepts connections and never answers, like a host behind a broken link.
async fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = format!("tcp://{}", listener.local_addr().expect("an address"));
    (listener, address)
}

#[tokio::test]
async fn a_switch_waits_no_longer_than_its_time_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let n1 = Daemon::tcp("n1", 6, vec![]).await;
    let (_kept, n2) = silent().await;
    publish(folder.path(), 7, &[("n1", "tcp://127.0.0.1:1", 0), ("n2", &n2, 0)]);
    publish(folder.path(), 8, &[("n1", &n1.address, 0), ("n2", &n2, 0)]);
    let limit = std::time::Duration::from_secs(100);

    for args in [["switch", "7", "--wait", "1s"], ["switch", "7", "--timeout", "700ms"]] {
        let began = std::time::Instant::now();
        let ran = cobctl(&[&["--depot", depot][..], &args].concat()).await;
        assert!(ran.code == 3 && ran.err.contains("no host could be reached"), "{ran:?}");
        assert!(ran.err.contains("generation 7: preparing, waiting for n"), "{ran:?}");
        assert!(began.elapsed() < limit, "{:?}", began.elapsed());
    }

    let began = std::time::Instant::now();
    let ran = cobctl(&["--depot", depot, "switch", "8", "--wait", "2s"]).await;
    assert_eq!((ran.code, orders(&n1).len()), (3, 2), "the other one went on: {ran:?}");
    assert!(ran.err.contains("waiting for n2") && ran.out.contains("n2 could not be reached"), "{ran:?}");
    assert!(began.elapsed() < limit, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_hanging_host_does_not_delay_other_answers_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (_kept, n1) = silent().await;
    let n2 = Daemon::tcp("n2", 6, vec![]).await;
    publish(folder.path(), 6, &[("n1", &n1, 0), ("n2", &n2.address, 0)]);
    for word in ["pause", "resume", "cancel", "rollback"] {
        let args = ["--depot", depot, "--timeout", "300ms", word];
        cobctl_while(&args, async |written: Written| {
            until(|| written.out().contains("n2: ") && written.err().contains("waiting for n1, for ")).await;
            assert!(!written.out().contains("n1"), "{word}");
        })
        .await;
    }
    let (restore, resolve) = (["files", "restore", "n1/db", "123456", "/etc/f"], ["resolve", "n1/db", "--ours"]);
    for words in [&["retry", "n1/db"][..], &["limit", "2", "--budget", "n1/budget/one"], &restore, &resolve] {
        let args = [&["--depot", depot, "--timeout", "300ms"], words].concat();
        cobctl_while(&args, async |written: Written| {
            until(|| written.err().contains("waiting for n1, for ")).await;
        })
        .await;
    }
    let args = ["--depot", depot, "--timeout", "300ms", "check", "n1"];
    cobctl_while(&args, async |written: Written| {
        until(|| written.err().contains("waiting for n1: no answer yet")).await;
    })
    .await;
}

#[tokio::test]
async fn a_host_that_took_the_order_counts_as_reached() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    (n1.look().prompt, n2.look().prompt) = (false, false);
    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "0s"]).await;
    let taken = orders(&n1).len() == 2 && orders(&n2).len() == 2;
    assert!(!taken || ran.code == 1 && ran.out.contains("has not converged in time"), "{ran:?}");
    // A host that accepts the `go` and then falls silent was reached too.
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    (n1.look().prompt, n2.look().prompt) = (false, false);
    let gone = async {
        n2.until(|inside| inside.orders.len() == 2).await;
        n2.look().silent = true;
    };
    let (ran, ()) = tokio::join!(cobctl(&["--depot", depot, "switch", "7", "--wait", "2s"]), gone);
    assert!(ran.code == 1 && ran.out.contains("n2 does not answer now"), "{ran:?}");
}

#[tokio::test]
async fn a_failed_change_object_ends_the_wait_with_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    n1.look().next = vec![failed("n1/db")];
    n2.look().next = vec![waiting("n2/app", vec![lock("n1/db")])];
    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "1h"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("no transition can start") && ran.out.contains("n1/db up failed after"), "{}", ran.out);
    assert!(ran.err.contains("active on 2 of 2 hosts, 0 of 2 change objects settled"), "{}", ran.err);
}

#[tokio::test]
async fn a_timeout_reports_the_missing_hosts_and_change_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().to_str().expect("text");
    let (n1, n2) = two(folder.path()).await;
    n1.look().next = vec![];
    n2.look().prompt = false;
    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "300ms"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("n1 reports 0 change objects; its generation has 1"), "{}", ran.out);
    assert!(ran.out.contains("n2 has generation 6 active and switches to 7"), "{}", ran.out);
}

#[tokio::test]
async fn a_newer_switch_of_another_operator_ends_the_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = two(folder.path()).await;
    n2.look().prompt = false;
    let other = async {
        n1.until(|inside| inside.orders.len() == 2).await;
        n1.change(|status| status.switching_to = Some(GenerationNumber(9)));
    };
    let depot = folder.path().to_str().expect("text");
    let (ran, ()) = tokio::join!(cobctl(&["--depot", depot, "switch", "7", "--wait"]), other);
    assert!(ran.code == 1 && ran.out.contains("n1 switches to generation 9"), "{ran:?}");
}

#[tokio::test]
async fn departing_hosts_receive_the_order_to_switch() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = (Daemon::tcp("n1", 6, vec![]).await, Daemon::tcp("n2", 6, vec![]).await);
    publish(folder.path(), 6, &[("n1", &n1.address, 0), ("n2", &n2.address, 0), ("n3", "tcp://127.0.0.1:1", 0)]);
    publish(folder.path(), 7, &[("n1", &n1.address, 0)]);
    let depot = folder.path().to_str().expect("text");
    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "--prepare-timeout", "200ms"]).await;
    assert!(ran.code == 0 && ran.err.contains("not reachable: n3") && ran.err.contains("the host departs"), "{ran:?}");
    assert_eq!(orders(&n2), TAKEN);

    n1.change(|status| status.generation = Some(GenerationNumber(6)));
    n2.change(|status| status.generation = Some(GenerationNumber(6)));
    n2.look().refuses = Some(RefusalKind::Conflict);
    let ran = cobctl(&["--depot", depot, "switch", "7", "--wait", "--prepare-timeout", "200ms"]).await;
    assert!(ran.code == 1 && ran.out.contains("n2, which departs, has refused the switch"), "{ran:?}");
    assert!(ran.out.starts_with("generation 7 is active and converged: 1 host"), "{ran:?}");
}

#[tokio::test]
async fn a_switch_without_a_depot_is_only_for_the_named_hosts() {
    let n1 = Daemon::tcp("n1", 6, vec![settled("n1/db")]).await;
    let ran = cobctl(&["--host", &n1.address, "switch", "7", "--wait"]).await;
    let go = Command::Switch(order::Switch { alone: true, ..SWITCH });
    assert_eq!((ran.code, orders(&n1)), (0, vec![TAKEN[0].clone(), go]), "{ran:?}");
    let n2 = Daemon::tcp("n2", 7, vec![]).await;
    let ran = cobctl(&["--host", &n1.address, "--host", &n2.address, "switch", "7"]).await;
    assert_eq!((ran.code, orders(&n1).len(), orders(&n2).len()), (0, 2, 0), "active on both: {ran:?}");
    let ran = cobctl(&["--host", &n1.address, "switch", "latest"]).await;
    assert!(ran.code == 2 && ran.err.contains("the depot is needed to find the generation `latest`"), "{ran:?}");
    let ran = cobctl(&["--host", "tcp://127.0.0.1:1", "switch", "7", "--prepare-timeout", "100ms"]).await;
    assert!(ran.code == 3 && ran.err.contains("no host could be reached"), "{ran:?}");
}

#[tokio::test]
async fn an_order_goes_to_every_host_and_reports_its_effect() {
    let (n1, n2) = (Daemon::tcp("n1", 7, vec![]).await, Daemon::tcp("n2", 7, vec![]).await);
    let both = ["--host", &format!("n1={}", n1.address), "--host", &format!("n2={}", n2.address)].map(str::to_owned);
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    n2.change(|status| status.paused = true);
    let ran = cobctl(&[&both[..], &["pause"]].concat()).await;
    assert_eq!(ran.out, "n1: paused: running transitions finish, no new transitions start\nn2: was paused already\n");
    let ran = cobctl(&[&both[..], &["resume", "--json"]].concat()).await;
    assert_eq!((&ran.json()["hosts"][1]["name"], &ran.json()["hosts"][1]["changed"]), (&"n2".into(), &true.into()));
    let ran = cobctl(&[&both[..], &["retry", "n2/app"]].concat()).await;
    assert_eq!(
        (ran.code, orders(&n2).last()),
        (0, Some(&Command::Retry(order::Retry { cob: id("n2/app"), who: None }))),
        "{ran:?}"
    );
    drop(n1);
    let ran = cobctl(&[&both[..], &["pause"]].concat()).await;
    assert!(ran.code == 3 && ran.err.contains("n1: no connection") && ran.out.contains("n2: paused"), "{ran:?}");
}

#[tokio::test]
async fn a_fence_names_the_freed_locks_and_refuses_a_living_host() {
    let mut db = settled("n1/db");
    db.held_by = vec![Holder { cob: id("n2/app"), state: state("up"), recalled: true, since_ns: None, stops: false }];
    let n1 = Daemon::tcp("n1", 7, vec![db]).await;
    let ran = cobctl(&["--host", &n1.address, "fence", "n2", "--yes"]).await;
    assert!(ran.code == 0 && ran.err.contains("n1/db up, held by n2/app"), "{ran:?}");
    assert_eq!(orders(&n1), [Command::Fence(order::Fence { host: name("n2"), who: None })]);
    let n2 = Daemon::tcp("n2", 7, vec![]).await;
    let ran = cobctl(&["--host", &n1.address, "--host", &n2.address, "fence", "n2", "--yes"]).await;
    assert!(ran.code == 1 && ran.err.contains("n2 answers"), "{ran:?}");
    assert_eq!(orders(&n1).len(), 1);
}

#[tokio::test]
async fn no_lock_is_released_before_the_power_is_off() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    let n2 = Daemon::tcp("n2", 7, vec![]).await;
    let both = ["--host", &n1.address, "--host", &n2.address, "fence", "n2", "--power-off"];
    let ran = cobctl(&[&both[..], &["--yes"]].concat()).await;
    assert!(ran.code == 1 && ran.err.contains("no reachable host has an ha-set"), "{ran:?}");
    let ran = cobctl(&both).await;
    assert!(ran.code != 0 && ran.err.contains("n2 is not fenced"), "{ran:?}");
    assert_eq!((orders(&n1), orders(&n2)), (vec![], vec![]));
}

#[tokio::test]
async fn a_rollback_that_no_host_starts_fails() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    let ran = cobctl(&["--host", &n1.address, "--json", "rollback", "--wait", "300ms"]).await;
    assert!(
        ran.code == 1 && ran.json()["error"].as_str().is_some_and(|e| e.contains("no host has started its rollback")),
        "{ran:?}"
    );
    let gone = cobctl(&["--host", "tcp://127.0.0.1:1", "--json", "rollback", "--wait", "300ms"]).await;
    assert!(gone.code == 3 && gone.json()["hosts"].is_array(), "{gone:?}");
    let ran = cobctl(&["--host", &n1.address, "rollback", "--wait", "300ms"]).await;
    assert!(ran.code == 1 && ran.err.contains("no host has started its rollback"), "{ran:?}");
    let rollback = |prepare| Command::Rollback(order::Rollback { generation: None, prepare, who: None });
    assert_eq!(orders(&n1), [true, false, true, false].map(rollback));
}
