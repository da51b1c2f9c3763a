//! `status`, `watch`, `explain`, `history`, `output` against daemons on real sockets.

use std::path::Path;

use crate::fake::{
    Daemon, NOW, cobctl, cobctl_while, entry, failed, id, lock, publish, settled, state, until, waiting,
};
use cob_types::GenerationNumber;
use cob_types::history::HistoryEntry;
use cob_types::status::{ClusterStatus, Holder, HostStatus, InvalidGrant, InvalidGrantCause};

#[tokio::test]
async fn status_is_asked_over_the_local_socket_and_over_tcp() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("cobd.sock");
    let daemon = Daemon::unix(&socket, "n1", 7, vec![settled("n1/db")]).await;
    let ran = cobctl(&["status", "--socket", socket.to_str().expect("text")]).await;
    assert!(ran.code == 0 && ran.out.contains("OK: generation 7 has converged on 1 host, 1 change object"), "{ran:?}");
    let ran = cobctl(&["--host", &daemon.address, "status", "--json"]).await;
    let cluster: ClusterStatus = serde_json::from_str(&ran.out).expect("a cluster");
    let clock_offset_ms = cluster.hosts[0].clock_offset_ms;
    assert_eq!(
        (ran.code, cluster.hosts[0].clone()),
        (0, HostStatus { clock_offset_ms, ..daemon.look().status.clone() })
    );
    let json = ran.json();
    assert_eq!(json.as_object().map(|o| o.keys().collect::<Vec<_>>()), Some(vec![&"hosts".to_owned()]));
    for field in ["id", "state", "target", "phase", "since_ns", "failed", "waits_for"] {
        assert!(json["hosts"][0]["cobs"][0].get(field).is_some(), "{field}");
    }

    let tcp = Daemon::tcp("n2", 7, vec![waiting("n2/app", vec![lock("n1/db")])]).await;
    let ran = cobctl(&["--host", &daemon.address, "--host", &tcp.address, "status"]).await;
    assert!(ran.code == 1 && ran.out.contains("n2: 1 change object not in its desired state: n2/app"), "{ran:?}");
    tcp.change(|status| status.cobs = vec![settled("n2/app")]);
    let ran = cobctl(&["--host", &daemon.address, "--host", &tcp.address, "status", "n2/app"]).await;
    assert!(ran.code == 0 && !ran.out.contains("n1/db"), "{ran:?}");
}

#[tokio::test]
async fn hosts_are_found_in_the_depot_and_silent_hosts_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = (Daemon::tcp("n1", 7, vec![]).await, Daemon::tcp("n2", 7, vec![]).await);
    publish(folder.path(), 6, &[("old", "tcp://127.0.0.1:1", 0)]);
    publish(folder.path(), 7, &[("n1", &n1.address, 0), ("n2", &n2.address, 0)]);
    let depot = folder.path().to_str().expect("text");
    assert_eq!(cobctl(&["--depot", depot, "status"]).await.code, 0);
    let ran = cobctl(&["--depot", depot, "status", "n2"]).await;
    assert!(ran.code == 0 && !ran.out.contains("n1"), "{ran:?}");
    let ran = cobctl(&["--depot", depot, "status", "n9"]).await;
    assert!(ran.code == 2 && ran.err.contains("there is no host n9") && ran.err.contains("n1 and n2"), "{ran:?}");

    drop(n2);
    let ran = cobctl(&["--depot", depot, "status", "--json"]).await;
    let hosts = ran.json()["hosts"].clone();
    assert_eq!((ran.code, &hosts[1]["name"], &hosts[1]["reachable"]), (3, &"n2".into(), &false.into()));
    assert!(hosts[1]["error"].as_str().is_some_and(|e| e.contains("no connection")), "{hosts}");
    let ran = cobctl(&["--depot", depot, "status"]).await;
    assert!(ran.code == 3 && ran.out.contains("n2 could not be reached"), "{ran:?}");
}

#[tokio::test]
async fn an_invalid_or_empty_depot_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = cobctl(&["--depot", folder.path().to_str().expect("text"), "status"]).await;
    assert!(ran.code == 2 && ran.err.contains("is not a depot: it is not a bare git repository"), "{ran:?}");
    cob_depot::Depot::create_or_open(folder.path()).expect("an empty depot");
    let ran = cobctl(&["--depot", folder.path().to_str().expect("text"), "status"]).await;
    assert!(ran.code == 2 && ran.err.contains("holds no generation"), "{ran:?}");
    let ran = cobctl(&["--host", "n1", "status"]).await;
    assert!(ran.code == 2 && ran.err.contains("no address is known for the host n1"), "{ran:?}");
}

#[tokio::test]
async fn a_damaged_depot_is_not_reported_as_bad_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    publish(folder.path(), 7, &[("n1", "tcp://127.0.0.1:1", 0)]);
    let inside = |folder: &Path| std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
    let folders = inside(&folder.path().join("objects"));
    let objects: Vec<_> = folders.flat_map(|folder| inside(&folder)).filter(|path| path.is_file()).collect();
    assert!(!objects.is_empty());
    for object in objects {
        std::fs::remove_file(&object).expect("removed");
        std::fs::write(&object, "x").expect("written");
    }
    let depot = folder.path().to_str().expect("text");
    for question in [&["status"][..], &["plan", "7"]] {
        let ran = cobctl(&[&["--depot", depot], question].concat()).await;
        assert!(ran.code == 3 && ran.err.contains("damaged"), "{question:?}: {ran:?}");
    }
    let ran = cobctl(&["--depot", "/nonexistent", "status"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[tokio::test]
async fn a_daemon_under_a_false_name_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let n2 = Daemon::tcp("n2", 7, vec![]).await;
    publish(folder.path(), 7, &[("n1", &n2.address, 0), ("n2", &n2.address, 0)]);
    let ran = cobctl(&["--depot", folder.path().to_str().expect("text"), "status"]).await;
    assert!(ran.code == 3 && ran.out.contains("answers as n2, not as n1"), "{ran:?}");

    // Also not for the outcome of a switch, which must not be recorded as complete.
    let go =
        HistoryEntry { event: "go".to_owned(), detail: "to generation 7".to_owned(), cob: None, ..entry("n2", 1, 1) };
    n2.look().history = vec![go];
    let outcomes = ["--depot", folder.path().to_str().expect("text"), "outcomes", "--record", "--json"];
    let ran = cobctl(&outcomes).await;
    assert!(ran.code == 3 && ran.err.contains("n1: ") && ran.err.contains("the history of n2, not of n1"), "{ran:?}");
    let newest = ran.json()["outcomes"][0].clone();
    assert_eq!((&newest["silent"], newest["hosts"].get("n1")), (&serde_json::json!(["n1"]), None), "{newest}");
    let ran = cobctl(&["--host", &n2.address, "--host", &n2.address, "outcomes"]).await;
    assert!(ran.code == 3 && ran.err.contains("two daemons answer as n2"), "{ran:?}");
}

#[tokio::test]
async fn only_the_named_hosts_answer() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    let n3 = Daemon::tcp("n3", 7, vec![settled("n3/db")]).await;
    let one = ["--host", &n1.address];
    for question in [
        &["check", "n2"][..],
        &["check", "n1/db", "n2"],
        &["status", "n1", "n2"],
        &["status", "n2/db"],
        &["facts", "n2"],
        &["at", "now", "n2"],
        &["at", "-1m", "n2", "--diff", "now", "--json"],
        &["watch", "n2"],
        &["history", "n2"],
    ] {
        let ran = cobctl(&[&one[..], question].concat()).await;
        let (said, nothing) = if question.contains(&"--json") { (&ran.out, &ran.err) } else { (&ran.err, &ran.out) };
        let told = said.contains("n2 was not asked, only n1");
        assert!(ran.code == 2 && told && nothing.is_empty(), "{question:?}: {ran:?}");
    }
    let both = ["--host", &n1.address, "--host", &n3.address];
    let ran = cobctl(&[&both[..], &["status", "n1", "n2"]].concat()).await;
    assert!(ran.code == 2 && ran.err.contains("n2 was not asked, only n1 and n3"), "{ran:?}");
    let asked = n3.look().asked;
    let ran = cobctl(&[&both[..], &["status", "n3/db"]].concat()).await;
    assert!(ran.code == 0 && ran.out.contains("OK: converged, 1 change object on 1 host"), "{ran:?}");
    assert!(n3.look().asked > asked && !ran.out.contains("n1"), "{ran:?}");
    // A silent daemon is reported under the name of the named host.
    let ran = cobctl(&["--host", "tcp://127.0.0.1:1", "status", "n2"]).await;
    assert!(ran.code == 3 && ran.out.contains("n2 could not be reached"), "{ran:?}");
}

#[tokio::test]
async fn explain_follows_waits_between_hosts_and_asks_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let n1 = Daemon::tcp("n1", 7, vec![failed("n1/db")]).await;
    let n2 = Daemon::tcp("n2", 7, vec![waiting("n2/app", vec![lock("n1/db")])]).await;
    let n3 = Daemon::tcp("n3", 7, vec![waiting("n3/lb", vec![lock("n2/app")])]).await;
    let n4 = Daemon::tcp("n4", 7, vec![]).await;
    let hosts = [("n1", &n1), ("n2", &n2), ("n3", &n3), ("n4", &n4)].map(|(n, d)| (n, d.address.as_str(), 1));
    publish(folder.path(), 7, &hosts);
    let depot = folder.path().to_str().expect("text");
    let ran = cobctl(&["--depot", depot, "explain", "n3/lb"]).await;
    let sentence = "n3/lb up waits for n2/app up, which waits for n1/db up, which failed \
                    after 3 attempts to move from down to up (exit status 1; last line: no space left)";
    assert_eq!((ran.code, ran.out.lines().next()), (0, Some(sentence)), "{ran:?}");
    assert!(ran.out.contains("hint: see `cobctl output n1/db`"), "{ran:?}");
    assert_eq!((n1.look().asked, n4.look().asked), (1, 0));

    let json = cobctl(&["--depot", depot, "--json", "explain", "n3/lb"]).await.json();
    assert_eq!((&json["answer"], &json["first_cause"]["cause"]), (&sentence.into(), &"given-up".into()));

    let ran = cobctl(&["--host", &n3.address, "explain", "n3/lb"]).await;
    assert!(ran.code == 3 && ran.out.contains("n2, which was not asked"), "{ran:?}");
    drop(n1);
    let ran = cobctl(&["--depot", depot, "explain", "n3/lb"]).await;
    assert!(ran.code == 3 && ran.out.contains("is on n1, which can't be reached (no connection"), "{ran:?}");
    let ran = cobctl(&["--depot", depot, "explain", "n3/lbb"]).await;
    assert!(ran.code == 1 && ran.err.contains("did you mean n3/lb?"), "{ran:?}");
    let ran = cobctl(&["--host", "tcp://127.0.0.1:1", "explain", "n3/lb"]).await;
    assert!(ran.code == 3 && ran.out.contains("is on n3, which can't be reached"), "{ran:?}");
}

#[tokio::test]
async fn invalidated_grants_are_shown_by_status_and_explain() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/net"), settled("n1/db")]).await;
    let (of, held_by) = (id("n1/net"), id("n2/app"));
    n1.change(|status| {
        status.invalid_grants = vec![InvalidGrant { of, held_by, since_ns: NOW, cause: InvalidGrantCause::Guard }]
    });
    let told = "n1/net invalidated its grant to n2/app 0 ms ago";
    for question in [&["status"][..], &["status", "n1/net"], &["explain", "n1"], &["explain", "n1/net"]] {
        let ran = cobctl(&[&["--host", &n1.address], question].concat()).await;
        assert!(
            ran.code == 0 && ran.out.contains(told) && ran.out.contains("cobctl fence n2"),
            "{question:?}: {ran:?}"
        );
    }
    let ran = cobctl(&["--host", &n1.address, "status"]).await;
    assert!(ran.out.contains("converged, 1 invalidated grant"), "{ran:?}");
    for other in ["status", "explain"] {
        let ran = cobctl(&["--host", &n1.address, other, "n1/db"]).await;
        assert!(ran.code == 0 && !ran.out.contains(told), "{ran:?}");
    }
    let json = cobctl(&["--host", &n1.address, "--json", "explain", "n1"]).await.json();
    assert_eq!((&json["lapses"][0]["of"], &json["lapses"][0]["cause"]), (&"n1/net".into(), &"guard".into()));
}

#[tokio::test]
async fn histories_are_merged_page_by_page() {
    let (n1, n2) = (Daemon::tcp("n1", 7, vec![]).await, Daemon::tcp("n2", 7, vec![]).await);
    // Three entries share a position: pages end within a position.
    n1.look().history = (1..=2500).map(|n| entry("n1", n / 3, 2 * n)).collect();
    n2.look().history = (1..=1200).map(|n| entry("n2", n, 2 * n + 1)).collect();
    let (first, second) = (n1.address.clone(), n2.address.clone());
    let both = ["--host", &first, "--host", &second];
    let ran = cobctl(&[&both[..], &["history", "--json"]].concat()).await;
    let lamports: Vec<u64> = ran
        .out
        .lines()
        .map(|l| serde_json::from_str::<cob_types::history::HistoryEntry>(l).expect("an entry").lamport)
        .collect();
    assert_eq!((ran.code, lamports.len()), (0, 3700));
    assert!(lamports.is_sorted());
    let ran = cobctl(&[&both[..], &["history", "--cob", "n2/db"]].concat()).await;
    assert_eq!((ran.code, ran.out.lines().count()), (0, 1200));
    let ran = cobctl(&[&both[..], &["history", "--since-generation", "8"]].concat()).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    drop(n2);
    let ran = cobctl(&[&both[..], &["history"]].concat()).await;
    assert_eq!((ran.code, ran.out.lines().count()), (3, 2500));
    assert!(ran.err.contains("is missing from here on: no connection"), "{}", ran.err);
}

#[tokio::test]
async fn a_history_shows_a_time_span_and_counts_the_left_out_entries() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    let of = |event: &str, at: u64| {
        let mut entry = entry("n1", at, at);
        (entry.event, entry.ts_ns) = (event.to_owned(), at * 1_000_000_000);
        entry
    };
    n1.look().history = vec![of("start", 10), of("grant", 20), of("end", 30), of("pause", 40)];
    let shown = async |words: &[&str]| {
        let ran = cobctl(&[&["--host", &n1.address, "history"], words].concat()).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        (
            ran.out.lines().map(|l| l.split_whitespace().nth(4).unwrap_or_default().to_owned()).collect::<Vec<_>>(),
            ran.err,
        )
    };
    let (events, said) = shown(&[]).await;
    assert_eq!(events, ["start", "end", "pause"]);
    assert!(said.contains("1 entry about locks not shown (--locks)"), "{said}");
    assert_eq!(shown(&["--locks"]).await.0, ["start", "grant", "end", "pause"]);
    let span = ["--since", "1970-01-01T00:00:20Z", "--until", "1970-01-01T00:00:30Z", "--locks"];
    assert_eq!(shown(&span).await.0, ["grant", "end"]);
    assert!(shown(&["--until", "1970-01-01T00:00:05Z"]).await.1.contains("no other entries were found"));
    let json = cobctl(&["--host", &n1.address, "history", "--json"]).await;
    assert_eq!(json.out.lines().count(), 4, "programs get everything");
    // A budget gives tokens, which are locks.
    for entry in &mut n1.look().history {
        entry.cob = Some(id("n1/budget/web"));
    }
    assert_eq!(shown(&["n1/budget/web"]).await.0, ["start", "grant", "end", "pause"]);
}

#[tokio::test]
async fn unknown_ids_are_errors_with_suggestions_in_every_command() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/db/server"), settled("n1/web")]).await;
    for words in [
        &["status", "n1/db/sever"][..],
        &["explain", "n1/db/sever"],
        &["history", "n1/db/sever"],
        &["output", "n1/db/sever"],
        &["watch", "n1/db/sever"],
        &["mark-departed", "n1/db/sever", "--yes"],
    ] {
        let ran = cobctl(&[&["--host", &n1.address], words].concat()).await;
        assert!(ran.code != 0 && ran.err.contains("did you mean n1/db/server?"), "{words:?}: {ran:?}");
    }
    let ran = cobctl(&["--host", &n1.address, "output", "n1/mail"]).await;
    assert!(ran.err.contains("n1 has no change object n1/mail") && ran.err.contains("`cobctl status n1`"), "{ran:?}");
}

#[tokio::test]
async fn errors_are_json_when_answers_are_json() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    let ran = cobctl(&["--host", &n1.address, "--json", "output", "n1/dv"]).await;
    let told: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!((ran.code, &told["error"]), (1, &"n1 has no change object n1/dv".into()));
    assert_eq!(told["hints"][0], "did you mean n1/db?");
    let ran = cobctl(&["--host", &n1.address, "--json", "status", "n1/dv"]).await;
    assert_eq!((ran.code, &ran.json()["error"]), (1, &"no host has n1/dv".into()));
    assert_eq!(ran.json()["hints"][0], "did you mean n1/db?");
    let ran = cobctl(&["--json", "switch"]).await;
    let told: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert!(ran.code == 2 && told["error"].as_str().is_some_and(|e| e.contains("N|latest")), "{ran:?}");
}

#[tokio::test]
async fn a_followed_history_continues() {
    let n1 = Daemon::tcp("n1", 7, vec![]).await;
    n1.look().history = vec![entry("n1", 1, 1)];
    let seen = async |written: cobctl::screen::Written| {
        let lines = async |n| until(|| written.out().lines().count() >= n).await;
        lines(1).await;
        n1.look().history.push(entry("n1", 2, 2));
        lines(2).await;
    };
    cobctl_while(&["--host", &n1.address, "history", "--follow"], seen).await;
}

#[tokio::test]
async fn a_watch_on_a_pipe_prints_each_change_until_convergence() {
    let n1 = Daemon::tcp("n1", 7, vec![waiting("n1/db", vec![lock("n2/ip")])]).await;
    let n2 = Daemon::tcp("n2", 7, vec![settled("n2/ip")]).await;
    let hosts = ["--host", &n1.address, "--host", &n2.address, "watch", "--until-converged"];
    let changing = async {
        n1.until(|inside| inside.asked > 0).await;
        n1.change(|status| status.cobs = vec![failed("n1/db")]);
        let asked = n1.look().asked;
        n1.until(|inside| inside.asked > asked + 1).await;
        n1.change(|status| status.cobs = vec![settled("n1/db")]);
    };
    let (ran, ()) = tokio::join!(cobctl(&hosts), changing);
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in
        ["n1/db down → up, waiting: n2/ip up", "n1/db down → up, failed: an order: `cobctl retry`", "n1/db up, settled"]
    {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(ran.out.ends_with("OK: generation 7 has converged on 2 hosts, 2 change objects\n"), "{}", ran.out);
}

#[tokio::test]
async fn output_is_printed_unchanged() {
    let n1 = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    let ran = cobctl(&["--host", &n1.address, "output", "n1/db"]).await;
    assert!(ran.code == 1 && ran.err.contains("no output of n1/db is kept"), "{ran:?}");
    n1.look().output = Some("\n".to_owned());
    let ran = cobctl(&["--host", &n1.address, "output", "n1/db"]).await;
    assert!(ran.out.is_empty() && ran.err.contains("the last action or check of n1/db printed no output"), "{ran:?}");
    n1.look().output = Some("one\ntwo\u{1b}[0m\n".to_owned());
    let ran = cobctl(&["--host", &n1.address, "output", "n1/db"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "one\ntwo\u{1b}[0m\n"));
    let ran = cobctl(&["--host", &n1.address, "output", "n2/db"]).await;
    assert!(ran.code == 2 && ran.err.contains("n2 was not asked, only n1"), "{ran:?}");
}

#[tokio::test]
async fn a_held_change_object_is_shown_with_its_holder() {
    let mut db = settled("n1/db");
    db.held_by = vec![Holder { cob: id("n2/app"), state: state("up"), recalled: false, since_ns: None, stops: false }];
    let n1 = Daemon::tcp("n1", 7, vec![db]).await;
    n1.change(|status| status.switching_to = Some(GenerationNumber(8)));
    let ran = cobctl(&["--host", &n1.address, "explain", "n1/db"]).await;
    assert!(ran.code == 0 && ran.out.contains("held in up by n2/app"), "{ran:?}");
    assert_eq!(cobctl(&["--host", &n1.address, "status"]).await.code, 1, "a switch is under way");
}

#[tokio::test]
async fn facts_are_a_section_of_a_model_and_silent_hosts_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = (Daemon::tcp("n1", 7, vec![]).await, Daemon::tcp("n2", 7, vec![]).await);
    publish(folder.path(), 7, &[("n1", &n1.address, 0), ("n2", &n2.address, 0)]);
    let depot = folder.path().to_str().expect("text");
    let ran = cobctl(&["--depot", depot, "facts", "--json"]).await;
    let facts = ran.json()["facts"].clone();
    assert_eq!(ran.code, 0, "{ran:?}");
    let has = |host: &str| facts[host]["cpus"].as_u64().is_some_and(|n| n > 0) && facts[host]["memory_bytes"].is_u64();
    assert!(has("n1") && has("n2"), "{facts}");
    let ran = cobctl(&["--depot", depot, "facts", "n2"]).await;
    assert!(ran.code == 0 && ran.out.contains("\nfacts:\n  n2:\n") && !ran.out.contains("n1"), "{ran:?}");

    drop(n2);
    let ran = cobctl(&["--depot", depot, "facts"]).await;
    assert!(ran.code == 3 && ran.err.contains("n2") && ran.err.contains("no connection"), "{ran:?}");
    assert!(ran.out.contains("  n1:\n") && !ran.out.contains("  n2:\n"), "{ran:?}");

    // A daemon that answers under another name does not count.
    publish(folder.path(), 8, &[("n3", &n1.address, 0)]);
    let ran = cobctl(&["--depot", depot, "facts"]).await;
    assert!(ran.code == 3 && ran.err.contains("answers as n1, not as n3"), "{ran:?}");
}
