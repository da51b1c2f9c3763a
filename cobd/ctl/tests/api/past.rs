//! `at` and `replay` against daemons on real sockets.

use cob_types::GenerationNumber;
use cob_types::history::HistoryEntry;

use crate::fake::{Daemon, NOW, cobctl, entry, id, publish, state};

/// An entry of a host, `at` nanoseconds after the start.
fn told(host: &str, seq: u64, at: u64, event: &str, cob: &str, detail: &str) -> HistoryEntry {
    let cob = (!cob.is_empty()).then(|| id(cob));
    let (event, detail) = (event.to_owned(), detail.to_owned());
    HistoryEntry { ts_ns: NOW + at, cob, event, detail, from: None, to: None, attempt: None, ..entry(host, seq, at) }
}

fn moved(host: &str, seq: u64, at: u64, event: &str, ok: Option<bool>) -> HistoryEntry {
    let entry = told(host, seq, at, event, &format!("{host}/db"), "");
    HistoryEntry { from: Some(state("down")), to: Some(state("up")), attempt: Some(1), ok, ..entry }
}

/// A switch to generation 7, in which n1/db waits for n2/db.
async fn two() -> (Daemon, Daemon) {
    let (n1, n2) = (Daemon::tcp("n1", 7, vec![]).await, Daemon::tcp("n2", 7, vec![]).await);
    let before = |entry: HistoryEntry| HistoryEntry { generation: GenerationNumber(6), ..entry };
    let down = |entry: HistoryEntry| HistoryEntry { to: Some(state("down")), ..entry };
    n1.look().history = vec![
        before(told("n1", 1, 1_000_000, "daemon", "", "start 1 of the daemon")),
        before(told("n1", 2, 2_000_000, "go", "", "to generation 7, by root")),
        told("n1", 3, 3_000_000, "activate", "", ""),
        down(told("n1", 4, 4_000_000, "check", "n1/db", "")),
        told("n1", 5, 5_000_000, "request", "n1/db", "n2/db@up"),
        told("n1", 6, 2_505_000_000, "hold", "n1/db", "n2/db"),
        moved("n1", 7, 2_506_000_000, "start", None),
        moved("n1", 8, 3_000_000_000, "end", Some(true)),
    ];
    n2.look().history = vec![
        before(told("n2", 1, 1_000_000, "daemon", "", "start 1 of the daemon")),
        before(told("n2", 2, 2_500_000, "go", "", "to generation 7, by root")),
        told("n2", 3, 3_500_000, "activate", "", ""),
        moved("n2", 4, 10_000_000, "start", None),
        moved("n2", 5, 2_000_000_000, "end", Some(true)),
    ];
    (n1, n2)
}

#[tokio::test]
async fn a_past_moment_is_shown_as_it_was() {
    let (n1, n2) = two().await;
    let hosts = ["--host", &n1.address, "--host", &n2.address];
    let at = |words: &'static [&'static str]| cobctl(&[&hosts[..], &["at"], words].concat());
    for ahead in [&["2099-01-01T00:00:00Z"][..], &["-5m", "--diff", "2099-01-01T00:00:00Z"]] {
        let ran = at(ahead).await;
        assert!(ran.code == 2 && ran.err.contains("2099-01-01 00:00:00.000Z is in the future"), "{ran:?}");
    }
    // The fake clock starts 1000 s after 1970.
    let ran = at(&["1970-01-01T00:16:41Z"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in ["n1: generation 7\n", "n1/db  down  for 996 ms  waits for n2/db@up", "n2/db  down → up  for 990 ms"]
    {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let ran = at(&["1970-01-01T00:16:42.700Z", "n2", "--json"]).await;
    let json = ran.json();
    assert_eq!((ran.code, json["hosts"].as_array().map(Vec::len)), (0, Some(1)), "{json}");
    let cob = &json["hosts"][0]["cobs"][0];
    assert_eq!((&cob["id"], &cob["state"], &cob["known"]), (&"n2/db".into(), &"up".into(), &true.into()));
    let ran = at(&["1970-01-01T00:16:41Z", "--diff", "now"]).await;
    assert!(ran.code == 1 && ran.out.contains("n1/db: down, then up\nn2/db: down → up, then up\n"), "{ran:?}");
    let ran = at(&["-5m", "--diff", "now"]).await;
    assert!(ran.code == 0 && ran.out.ends_with("no changes\n"), "{ran:?}");
    let ran = at(&["yesterday"]).await;
    assert!(ran.code == 2 && ran.err.contains("is not a time"), "{ran:?}");
    // A truncated history is reported.
    n1.look().history.drain(..4);
    let ran = at(&["1970-01-01T00:16:40.003Z"]).await;
    assert!(ran.code == 1 && ran.out.contains("n1: not known\n  incomplete: its history begins later"), "{ran:?}");
}

#[tokio::test]
async fn a_host_with_a_clock_ahead_is_asked_by_its_own_clock() {
    let n1 = Daemon::tcp("n1", 7, vec![]).await;
    // The 1st of January 2099.
    let ahead = 4_070_908_800_000_000_000;
    n1.look().history = vec![told("n1", 1, ahead - NOW, "daemon", "", "start 1 of the daemon")];
    let at = |time: &'static str| cobctl(&["--host", &n1.address, "at", time]);
    let ran = at("2099-01-01T00:00:00Z").await;
    assert!(ran.code == 2 && ran.err.contains("is in the future"), "{ran:?}");
    n1.change(|status| status.now_ns = ahead);
    let ran = at("2099-01-01T00:00:00Z").await;
    assert!(ran.code != 2 && ran.out.starts_with("2099-01-01 00:00:00.000Z, by each host's clock"), "{ran:?}");
    let ran = at("2099-01-01T00:02:00Z").await;
    assert!(ran.code == 2 && ran.err.contains("in the future: it is 2099-01-01 00:00:00.000Z"), "{ran:?}");
}

#[tokio::test]
async fn a_switch_is_replayed() {
    let (n1, n2) = two().await;
    let hosts = ["--host", &n1.address, "--host", &n2.address, "replay"];
    let ran = cobctl(&[&hosts[..], &["7"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let starts: Vec<_> = ran.out.lines().filter(|line| line.contains(" start ")).collect();
    assert_eq!(starts.len(), 2, "{ran:?}");
    assert!(starts[0].starts_with("+    0.008") && starts[0].contains("n2/db"), "{starts:?}");
    assert!(starts[1].starts_with("+    2.504") && starts[1].ends_with("after 2.5 s for n2/db@up"), "{starts:?}");
    assert!(!ran.out.contains("daemon") && ran.out.ends_with(" steps in 2.9 s\n"), "{ran:?}");
    let ran = cobctl(&[&hosts[..], &["7", "--json", "--speed", "1000"]].concat()).await;
    let steps: Vec<serde_json::Value> = ran.out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let last = steps.iter().find(|s| s["event"] == "start" && s["host"] == "n1").expect("a step");
    assert_eq!((&last["waited"][0]["of"], last["waited"][0]["ns"].as_u64()), (&"n2/db@up".into(), Some(2_500_000_000)));

    let ran = cobctl(&[&hosts[..], &["8"]].concat()).await;
    assert!(ran.code == 1 && ran.err.contains("no switch to generation 8"), "{ran:?}");
    let ran = cobctl(&[&hosts[..], &["7", "--step"]].concat()).await;
    assert!(ran.code == 2 && ran.err.contains("needs a terminal"), "{ran:?}");
}

#[tokio::test]
async fn an_unreachable_host_is_named_as_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = two().await;
    publish(folder.path(), 7, &[("n1", &n1.address, 1), ("n2", &n2.address, 1)]);
    drop(n2);
    let depot = folder.path().to_str().expect("text");
    let ran = cobctl(&["--depot", depot, "at", "1970-01-01T00:16:41Z"]).await;
    assert!(ran.code == 3 && ran.err.contains("n2 is missing"), "{ran:?}");
    assert!(ran.out.contains("n2: not known") && ran.out.contains("n1/db  down"), "{ran:?}");
    let ran = cobctl(&["--depot", depot, "replay", "7"]).await;
    assert!(ran.code == 3 && ran.out.contains("n1/db") && ran.err.contains("n2 is missing"), "{ran:?}");
}

/// A plan of the switch of [`two`], with a second for each transition.
fn plan() -> String {
    let step = |at: u64, cob: &str| {
        serde_json::json!({
            "id": at, "cob": cob, "from": "down", "to": "up", "begin_us": 0, "end_us": 1_000_000, "after": [], "lag_us": 0,
            "slack_us": 0, "stage": 1, "why": {"because": "new"}, "duration": {"min": 1, "median": 1, "p90": 1}, "known": true,
        })
    };
    serde_json::json!({
        "format": 1, "from": 6, "to": 7, "moved": [], "groups": [], "untouched_hosts": 0,
        "transitions": [step(0, "n1/db"), step(1, "n2/db")], "stages": [[0, 1]], "interrupted": [], "irreversible": [],
        "critical_path": [0],
        "forecast": {"end_us": 1_000_000, "p50_us": 1_000_000, "p90_us": 1_000_000, "runs": 0, "seed": 1, "known": 2,
            "converges": true},
    })
    .to_string()
}

#[tokio::test]
async fn the_history_of_departed_hosts_is_included() {
    let folder = tempfile::tempdir().expect("a folder");
    let (n1, n2) = two().await;
    n1.change(|status| status.came_from = Some(GenerationNumber(6)));
    publish(folder.path(), 6, &[("n1", &n1.address, 1), ("n2", &n2.address, 1)]);
    publish(folder.path(), 7, &[("n1", &n1.address, 1)]);
    let file = folder.path().join("plan.json");
    std::fs::write(&file, plan()).expect("written");
    let (depot, file) = (folder.path().to_str().expect("text"), file.to_str().expect("text"));
    let ask = |words: &'static [&'static str]| cobctl(&[&["--depot", depot], words].concat());
    let at = ["--depot", depot, "at", "1970-01-01T00:16:41Z"];
    let compare = ["--depot", depot, "history", "--compare-plan", file];

    let ran = ask(&["history"]).await;
    assert!(ran.code == 0 && ran.out.contains("n2/db"), "{ran:?}");
    let ran = cobctl(&compare).await;
    assert!(ran.code == 0 && ran.out.contains("planned end") && !ran.out.contains("not made"), "{ran:?}");
    let ran = cobctl(&at).await;
    assert!(ran.code == 0 && ran.out.contains("n2/db  down → up  for 990 ms"), "{ran:?}");
    let ran = ask(&["replay", "7"]).await;
    assert!(ran.code == 0 && ran.out.contains("n2/db") && ran.out.contains("after 2.5 s for n2/db@up"), "{ran:?}");
    let json = ask(&["outcomes", "--json"]).await.json();
    let hosts = json["outcomes"][0]["hosts"].as_object().expect("hosts");
    assert_eq!(hosts.keys().collect::<Vec<_>>(), ["n1", "n2"], "{json}");

    drop(n2);
    for ran in [ask(&["history"]).await, cobctl(&compare).await, cobctl(&at).await, ask(&["replay", "7"]).await] {
        assert!(ran.code == 3 && ran.err.matches("n2 is missing").count() == 1, "{ran:?}");
    }
    let ran = ask(&["outcomes", "--json"]).await;
    assert_eq!((ran.code, &ran.json()["outcomes"][0]["silent"]), (3, &serde_json::json!(["n2"])), "{ran:?}");
    let ran = cobctl(&[&at[..], &["--diff", "now"]].concat()).await;
    assert_eq!(ran.err.matches("n2: incomplete").count(), 1, "{ran:?}");
    // With named hosts, only these count.
    let ran = cobctl(&["--host", &n1.address, "--depot", depot, "history"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[tokio::test]
async fn an_unknown_change_object_of_the_past_is_reported() {
    let (n1, _n2) = two().await;
    let ran = cobctl(&["--host", &n1.address, "at", "now", "n1/db", "n1/nope"]).await;
    assert!(ran.code == 1 && ran.out.contains("n1/db") && ran.err.contains("do not contain n1/nope"), "{ran:?}");
}

#[tokio::test]
async fn durations_come_from_saved_histories_too() {
    let (n1, n2) = two().await;
    let saved = cobctl(&["--host", &n1.address, "--host", &n2.address, "history", "--json"]).await.out;
    let asked = cobctl(&["--host", &n1.address, "--host", &n2.address, "durations", "--transitions"]).await;
    assert!(asked.code == 0 && asked.out.contains("n1/db down>up"), "{asked:?}");
    drop((n1, n2));

    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (first, again) = (file("first", &saved), file("again", &saved));
    let ran = cobctl(&["durations", "--transitions", &first, &again]).await;
    assert_eq!((ran.code, ran.out), (0, asked.out), "what both have counts once, and nobody is asked");
    let none = cobctl(&["durations", "--transitions", "--since-generation", "8", &first]).await;
    assert_eq!((none.code, none.out.trim()), (1, "{}"));

    let lines: Vec<&str> = saved.lines().collect();
    // The parts of a history are joined again, for every split.
    let whole = cobctl(&["durations", "--transitions", &first]).await.out;
    let of = |host: &str| {
        lines.iter().filter(|l| l.contains(&format!("\"host\":\"{host}\""))).copied().collect::<Vec<_>>().join("\n")
    };
    let halves = |at: usize| [lines[..at].join("\n"), lines[at..].join("\n")];
    for [one, other] in (1..lines.len()).map(halves).chain([[of("n2"), of("n1")]]) {
        let (one, other) = (file("one", &one), file("other", &other));
        for files in [[&one, &other], [&other, &one]] {
            let ran = cobctl(&["durations", "--transitions", files[0], files[1]]).await;
            assert_eq!((ran.code, &ran.out), (0, &whole));
        }
    }

    let wrong = file("wrong", &format!("{}\n\n5\n{}\n{{\"ts_ns\": \n", lines[0], lines[1]));
    let ran = cobctl(&["durations", &first, &wrong, "/nonexistent"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    for part in [
        "wrong:3: not a history entry: at byte 1: invalid type: integer `5`, expected an object\n",
        "wrong:5: not a history entry: at byte 9: EOF while parsing a value",
        "error: /nonexistent: No such file or directory",
        "hint: `cobctl history --json` prints a valid file",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
}
