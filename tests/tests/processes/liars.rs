//! A host that was taken over and speaks the protocol well: whatever it says, it harms itself, and the others go on.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use cob_tests::cluster::{Cluster, host};
use cob_tests::processes;
use cob_tests::stranger::{handshake, message};
use cob_types::link::{Frame, Hello as LinkHello};
use cob_types::message::{Going, Hello, Incarnation, PROTOCOL};
use cob_types::switch::SwitchPolicy;
use cob_types::{Batch, GenerationNumber, Item};

use crate::{CHECK, PATIENCE, VERSIONED, cluster};

const LIFE: Incarnation = Incarnation { id: 0xBAD, start: 1 };

/// a0 is in the model, and nothing more: whoever says so is taken for it.
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
        // What it is told it does not care for, but it takes it and gives signs of life.
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
    assert_eq!(cluster.log("n1").matches("no daemon can have come to").count(), 1);
}

fn going(generation: u64, round: u32) -> Item {
    Item::Going(Going { generation: GenerationNumber(generation), policy: SwitchPolicy::default(), round })
}

#[test]
fn a_lie_of_where_one_goes_hides_no_word_that_is_true() {
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
    cluster.until(PATIENCE, || cluster.log("n2").contains("can't be gone to yet"), "the lie is heard first");
    cluster.start("n1");
    cluster.wait_converged(two, PATIENCE);
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
