//! A host that was taken over and speaks the protocol correctly: it harms only itself, and the others continue.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use cob_tests::cluster::{Cluster, host};
use cob_tests::processes;
use cob_tests::stranger::{handshake, message};
use cob_types::cob::Fingerprint;
use cob_types::history::HistoryEntry;
use cob_types::link::{Frame, LinkHello};
use cob_types::message::{DepartureReport, Going, Hello, Incarnation, PROTOCOL, RankPhase, Request};
use cob_types::switch::SwitchPolicy;
use cob_types::{Batch, CobId, GenerationNumber, Item, Number, Rank, StateName};

use crate::{CHECK, PATIENCE, VERSIONED, cluster};

const LIFE: Incarnation = Incarnation { id: 0xBAD, start: 1 };

/// a0 is in the model without change objects: a stranger can claim its name.
fn publish(cluster: &mut Cluster, number: u64) -> GenerationNumber {
    let text = format!(
        r#"
security: loopback-only
hosts:
  a0: {{address: "tcp://127.0.0.1:1"}}
  n1: {{address: "tcp://127.0.0.1:2"}}
  n2: {{address: "tcp://127.0.0.1:3"}}
cobs:
  n1/a: {{kind: versioned, content: {{v: {number}, is: good}}}}
  n2/b: {{kind: versioned, content: {{v: {number}, is: good}}, requires: [n1/a]}}
"#
    );
    let model = cluster.write_model("model", &[("model.yaml", &text), VERSIONED, CHECK]);
    cluster.generate(&model)
}

fn converged() -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(&["n1", "n2"]);
    let generation = publish(&mut cluster, 1);
    cluster.bring_up(generation, PATIENCE);
    (cluster, generation)
}

/// The link of a0 to a host.
struct Liar {
    link: Arc<Mutex<TcpStream>>,
    said: u64,
}

impl Liar {
    fn new(cluster: &Cluster, to: &str) -> Self {
        let mut stream = TcpStream::connect(cluster.address(to)).expect("connected");
        let hello = LinkHello {
            newest: PROTOCOL,
            oldest: PROTOCOL,
            from: host("a0"),
            to: host(to),
            session: LIFE,
            stream: 7,
            received: None,
        };
        stream.write_all(&[handshake(), message(&Frame::Hello(hello))].concat()).expect("taken");
        // It ignores the answers, but reads them and sends heartbeats.
        let mut answers = stream.try_clone().expect("a second handle");
        std::thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            while answers.read(&mut bytes).is_ok_and(|read| read > 0) {}
        });
        let link = Arc::new(Mutex::new(stream));
        let beats = Arc::downgrade(&link);
        std::thread::spawn(move || {
            while let Some(link) = beats.upgrade() {
                let beat = message(&Frame::Beat { ack: 0, interval_ms: 1000 });
                if link.lock().expect("whole").write_all(&beat).is_err() {
                    break;
                }
                drop(link);
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
        });
        let mut liar = Self { link, said: 0 };
        liar.say(0, vec![Item::Hello(Hello { kept: Vec::new() })]);
        liar
    }

    fn say(&mut self, lamport: u64, items: Vec<Item>) {
        let batch = Batch { from: host("a0"), incarnation: LIFE, lamport, items, under_way: None };
        let payload = &batch.encode().expect("encodes");
        self.said += 1;
        let frame = message(&Frame::Data { number: self.said, ack: 0, payload });
        self.link.lock().expect("whole").write_all(&frame).expect("taken");
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        let _ = self.link.lock().expect("whole").shutdown(Shutdown::Both);
    }
}

fn broken(cluster: &Cluster, host: &str) -> u64 {
    cluster.status(host).expect("answers").refused.broken
}

fn unjustified(cluster: &Cluster, host: &str) -> u64 {
    cluster.status(host).expect("answers").unjustified.iter().map(|refused| refused.requests).sum()
}

/// As in `member-takes-others-down`: a0 has no connection to n1/a, and requests it to be off.
#[test]
fn an_unjustified_request_is_refused_and_reported() {
    let (cluster, _) = converged();
    // The result of a check may arrive late.
    let is_of_it =
        |entry: &&HistoryEntry| entry.event == "start" && entry.cob.as_ref().is_some_and(|cob| cob.as_str() == "n1/a");
    let moves = |cluster: &Cluster| cluster.history("n1").iter().filter(is_of_it).count();
    let before = moves(&cluster);
    let mut liar = Liar::new(&cluster, "n1");
    liar.say(1, vec![request("a0/thing", 7, "down", "a0/thing")]);
    cluster.until(PATIENCE, || unjustified(&cluster, "n1") == 1, "it is refused");
    let status = cluster.status("n1").expect("answers");
    let refused = &status.unjustified[0];
    let named = (refused.host.as_str(), refused.asker.as_str(), refused.asked.as_str(), refused.states[0].as_str());
    assert_eq!(named, ("a0", "a0/thing", "n1/a", "down"));
    assert!(status.converged && !status.asked_by_anybody, "{status:?}");
    assert_eq!(moves(&cluster), before);
    // A generation that does not exist, which the request names.
    let Item::Request(mut of_another) = request("a0/thing", 8, "down", "a0/thing") else { panic!("a request") };
    of_another.generation = Some(GenerationNumber(77));
    liar.say(2, vec![Item::Request(of_another)]);
    cluster.until(PATIENCE, || unjustified(&cluster, "n1") == 2, "it is refused");
    assert_eq!(moves(&cluster), before);
}

#[test]
fn a_lamport_number_from_the_end_of_all_numbers_ends_no_daemon() {
    let (mut cluster, _) = converged();
    let mut liar = Liar::new(&cluster, "n1");
    liar.say(u64::MAX - 40, Vec::new());
    liar.say(u64::MAX, Vec::new());
    cluster.until(PATIENCE, || broken(&cluster, "n1") >= 2, "it is counted");
    let two = publish(&mut cluster, 2);
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
    for name in ["n1", "n2"] {
        cluster.kill(name);
        cluster.start(name);
    }
    cluster.wait_converged(two, PATIENCE);
    assert!(cluster.merged_history().iter().all(|entry| entry.lamport < 1 << 20), "{:#?}", cluster.merged_history());
    assert_eq!(cluster.log("n1").matches("an impossibly high number").count(), 1);
}

fn going(generation: u64, round: u32) -> Item {
    let generation = GenerationNumber(generation);
    Item::Going(Going { generation, policy: SwitchPolicy::default(), round, manifest: None })
}

#[test]
fn a_false_switch_announcement_does_not_hide_a_true_one() {
    let (mut cluster, _) = converged();
    cluster.kill("n2");
    let two = publish(&mut cluster, 2);
    cluster.switch("n1", two);
    let is_in_two = |cluster: &Cluster, name: &str| cluster.status(name).is_some_and(|s| s.generation == Some(two));
    cluster.until(PATIENCE, || is_in_two(&cluster, "n1"), "n1 is there");
    cluster.kill("n1");
    cluster.start("n2");
    cluster.wait_answers("n2");
    let mut liar = Liar::new(&cluster, "n2");
    liar.say(1, vec![going(u64::MAX, 0)]);
    cluster.until(PATIENCE, || cluster.log("n2").contains("can't be fetched yet"), "the lie is heard first");
    cluster.start("n1");
    cluster.wait_converged(two, PATIENCE);
}

/// A request of a0/x for a state that does not exist.
fn request(asker: &str, number: u64, state: &str, origin: &str) -> Item {
    let asker = CobId::new(asker).expect("an id");
    Item::Request(Request {
        asker,
        asked: CobId::new("n1/a").expect("an id"),
        number: Number { start: 1, counter: number },
        rev: 0,
        set: vec![StateName::new(state).expect("a state")],
        rank: Rank { phase: RankPhase::STAY, generation: GenerationNumber(1), rank: 1 },
        origin: CobId::new(origin).expect("an id"),
        fingerprint: Some(Fingerprint([7; 16])),
        generation: Some(GenerationNumber(1)),
        failed: false,
    })
}

/// The bytes in a daemon's journal.
fn journal_bytes(cluster: &Cluster, host: &str) -> u64 {
    let folder = cluster.path(host).join("journal");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|of| of.len()).sum()
}

/// A liar sends items of several mebibytes; checks the daemon's memory, journal and log afterwards.
fn flood(name: &str, make: impl Fn(u64) -> Item) {
    let (mut cluster, _) = converged();
    let mut liar = Liar::new(&cluster, "n1");
    liar.say(1, vec![going(1, 0)]);
    let pid = cluster.pid("n1").expect("runs");
    let say = |liar: &mut Liar, from: u64| {
        for batch in 0..20 {
            liar.say(1, (0..2000).map(|n| make(from + batch * 2000 + n)).collect());
        }
    };
    // Its memory is measured after the first items have made it grow to its working size.
    say(&mut liar, 1);
    cluster.until(PATIENCE, || broken(&cluster, "n1") > 0, "it is counted");
    let (before, written, log) = (processes::resident_kib(pid), journal_bytes(&cluster, "n1"), cluster.log("n1").len());
    for more in 1..=3 {
        say(&mut liar, 1 + more * 40_000);
    }
    cluster.until(PATIENCE, || broken(&cluster, "n1") > 100_000, "all of it is counted");
    let grown = processes::resident_kib(pid).saturating_sub(before);
    assert!(grown < 16 << 10, "{name}: it has grown by {grown} KiB over {before}");
    let written = journal_bytes(&cluster, "n1").saturating_sub(written);
    assert!(written < 64 << 10, "{name}: {written} bytes more on record");
    assert!(cluster.log("n1").len() < log + 4000, "{name}: {}", &cluster.log("n1")[log..]);
    let two = publish(&mut cluster, 2);
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
}

#[test]
fn rounds_without_end_leave_little_on_record() {
    flood("rounds", |n| going(1, u32::try_from(n).expect("a small number")));
}

#[test]
fn turns_without_end_leave_little_on_record() {
    flood("turns", |n| {
        let (from, to) = (GenerationNumber(1), GenerationNumber(1));
        Item::AskDepartures(DepartureReport { from, to, epoch: n, cobs: Vec::new() })
    });
}

#[test]
fn words_of_ever_newer_generations_are_followed_up_now_and_then() {
    let (mut cluster, _) = converged();
    let mut liar = Liar::new(&cluster, "n1");
    let pid = cluster.pid("n1").expect("runs");
    let before = processes::resident_kib(pid);
    for batch in 0..50 {
        liar.say(1, (0..2000).map(|n| going(1_000_000 + batch * 2000 + n, 0)).collect());
    }
    liar.say(u64::MAX, Vec::new());
    cluster.until(PATIENCE, || broken(&cluster, "n1") > 0, "all of it is heard");
    let grown = processes::resident_kib(pid).saturating_sub(before);
    assert!(grown < 24 << 10, "it has grown by {grown} KiB over {before}");
    assert!(cluster.log("n1").len() < 20_000, "{}", cluster.log("n1").len());
    let two = publish(&mut cluster, 2);
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
}

#[test]
fn ever_new_names_and_askers_fill_no_memory() {
    let (mut cluster, _) = converged();
    let mut liar = Liar::new(&cluster, "n1");
    let pid = cluster.pid("n1").expect("runs");
    let before = processes::resident_kib(pid);
    let pad = "x".repeat(180);
    let mut number = 0;
    for _ in 0..170 {
        let items = (0..1000).map(|_| {
            number += 1;
            request(&format!("a0/z{number}"), number, &format!("s{number}{pad}"), &format!("a0/o{number}{pad}"))
        });
        liar.say(1, items.collect());
    }
    cluster.until(PATIENCE, || unjustified(&cluster, "n1") == number, "all of it is refused");
    let grown = processes::resident_kib(pid).saturating_sub(before);
    assert!(grown < 32 << 10, "it has grown by {grown} KiB over {before}");
    let two = publish(&mut cluster, 2);
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
}
