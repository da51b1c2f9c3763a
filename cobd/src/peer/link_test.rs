//! A link whose other side is simulated over a stream in memory.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::super::session::{End, Session};
use super::super::socket_dir::SocketDir;
use super::super::task::Owned;
use super::super::testing::{dealer_handshake, host, life, quick, within, zmtp};
use super::*;

/// The link under test and the ends that the simulated peer uses.
struct Stage {
    peer: Arc<Peer>,
    far: DuplexStream,
    events: mpsc::Receiver<LinkEvent>,
    task: Owned<LinkEnd>,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn set(limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let sockets = SocketDir::open(folder.path()).expect("opens");
        let mut session = Session::new(life(1, 1), &limits);
        let theirs = Session::new(life(2, 1), &limits).hello(&host("b"), &host("a"));
        session.greet(&theirs, End::Accepted).expect("first contact");
        let peer = Arc::new(Peer::new(host("b"), session));
        let (near, mut far) = duplex(1000);
        far.write_all(&dealer_handshake()).await.expect("writes");
        let opened = Wire::open(near, &sockets, limits.max_frame, Duration::from_secs(5));
        let wire = within("the handshake", opened).await.expect("opens");
        let (events_in, events) = mpsc::channel(4);
        let link =
            Link { peer: peer.clone(), number: 7, key: None, incarnation: life(2, 1), wire, events: events_in, limits };
        let task = Owned::spawn(link.run());
        let mut stage = Self { peer, far, events, task, _folder: folder };
        let mut said = dealer_handshake();
        stage.far.read_exact(&mut said).await.expect("reads");
        assert!(matches!(stage.event().await, LinkEvent::Up { link: 7, .. }));
        stage
    }

    async fn event(&mut self) -> LinkEvent {
        within("an event", self.events.recv()).await.expect("the link lives")
    }

    async fn say(&mut self, frame: &Frame<'_>) {
        within("the write", self.far.write_all(&zmtp(frame))).await.expect("writes");
    }

    /// The next frame that the link sends.
    async fn hear(&mut self) -> Vec<u8> {
        within("a frame", async {
            let mut header = [0; 2];
            self.far.read_exact(&mut header).await.expect("reads");
            let len = match header {
                [0, len] => usize::from(len),
                [2, 0] => {
                    let mut rest = [0; 7];
                    self.far.read_exact(&mut rest).await.expect("reads");
                    usize::from(rest[5]) << 8 | usize::from(rest[6])
                }
                other => panic!("a header of {other:?}"),
            };
            let mut body = vec![0; len];
            self.far.read_exact(&mut body).await.expect("reads");
            body
        })
        .await
    }

    /// The next frame that is not a heartbeat.
    async fn hear_more_than_beats(&mut self) -> Vec<u8> {
        loop {
            let frame = self.hear().await;
            if !matches!(Frame::decode(&frame), Ok(Frame::Beat { .. })) {
                return frame;
            }
        }
    }
}

#[tokio::test]
async fn a_burst_is_acknowledged_once() {
    let mut stage = Stage::set(Limits { heartbeat_idle: Duration::from_secs(60), ..quick() }).await;
    let burst: Vec<_> = (1..=4).flat_map(|number| zmtp(&Frame::Data { number, ack: 0, payload: b"x" })).collect();
    stage.far.write_all(&burst).await.expect("writes");
    for _ in 0..4 {
        assert!(matches!(stage.event().await, LinkEvent::Received { .. }));
    }
    let frame = stage.hear_more_than_beats().await;
    assert_eq!(Frame::decode(&frame).expect("decodes"), Frame::Ack { ack: 4 });
}

#[tokio::test]
async fn a_batch_carries_the_acknowledgement() {
    let mut stage = Stage::set(quick()).await;
    stage.peer.lock().session.took(1);
    stage.peer.lock().session.push(Bytes::from_static(b"batch"));
    stage.peer.wake.notify_one();
    let frame = stage.hear_more_than_beats().await;
    assert_eq!(Frame::decode(&frame).expect("decodes"), Frame::Data { number: 1, ack: 1, payload: b"batch" });
}

#[tokio::test]
async fn both_hosts_of_a_link_use_the_shorter_interval() {
    let mut stage = Stage::set(Limits { heartbeat_idle: Duration::from_secs(60), ..quick() }).await;
    let first = stage.hear().await;
    assert_eq!(Frame::decode(&first).expect("decodes"), Frame::Beat { ack: 0, interval_ms: 60_000 });
    stage.say(&Frame::Beat { ack: 0, interval_ms: 100 }).await;
    let start = Instant::now();
    for _ in 0..2 {
        let next = stage.hear().await;
        assert_eq!(Frame::decode(&next).expect("decodes"), Frame::Beat { ack: 0, interval_ms: 60_000 });
    }
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
    // Its own timeout follows that interval, too: the other side stays silent from now on.
    let end = within("the end", &mut stage.task).await.expect("no panic");
    assert_eq!(end.to_string(), "the other side was silent for 0.4 s");
}

#[tokio::test]
async fn a_missing_acknowledgement_ends_the_link() {
    let limits = Limits { heartbeat_idle: Duration::from_secs(60), ..quick() };
    let mut stage = Stage::set(limits).await;
    stage.peer.lock().session.push(Bytes::from_static(b"batch"));
    stage.peer.wake.notify_one();
    let end = within("the end", &mut stage.task).await.expect("no panic");
    assert_eq!(end.to_string(), "the other side was silent for 0.2 s");
}

#[tokio::test]
async fn acknowledgements_for_a_host_that_does_not_read_stay_bounded() {
    let mut stage = Stage::set(Limits { heartbeat_idle: Duration::from_secs(60), ..quick() }).await;
    stage.say(&Frame::Data { number: 1, ack: 0, payload: b"x" }).await;
    assert!(matches!(stage.event().await, LinkEvent::Received { .. }));
    const DOUBLES: u64 = 10_000;
    for number in 1..=DOUBLES {
        stage.say(&Frame::Data { number: 1, ack: 0, payload: b"" }).await;
        within("the double", async {
            while stage.peer.lock().session.counters().doubles < number {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    // Queued frames come before later frames.
    stage.peer.lock().session.push(Bytes::from_static(b"marker"));
    stage.peer.wake.notify_one();
    let mut acks = 0;
    while !matches!(Frame::decode(&stage.hear_more_than_beats().await), Ok(Frame::Data { .. })) {
        acks += 1;
    }
    let bytes = acks * (2 + Frame::Ack { ack: 1 }.encode().expect("encodes").len() as u64);
    assert!(acks > 1000 && bytes < MAX_BACKLOG + 2000, "{acks} acknowledgements for {DOUBLES} doubles");
}

#[tokio::test]
async fn a_daemon_that_was_stopped_itself_reads_before_it_cuts_a_link() {
    let mut stage = Stage::set(Limits { heartbeat_idle: Duration::from_millis(50), ..quick() }).await;
    for _ in 0..3 {
        // Sent in time, but not read: the tasks of this thread are blocked.
        stage.say(&Frame::Beat { ack: 0, interval_ms: 50 }).await;
        std::thread::sleep(Duration::from_millis(250));
        stage.say(&Frame::Beat { ack: 0, interval_ms: 50 }).await;
        stage.hear().await;
    }
    assert!(stage.task.is_running());
}
