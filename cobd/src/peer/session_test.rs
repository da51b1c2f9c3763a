//! Sessions under every order of sends, cuts, losses and new incarnations.

use std::collections::{BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn host(name: &str) -> HostName {
    HostName::new(name).expect("host")
}

fn life(id: u64, start: u32) -> Incarnation {
    Incarnation { id, start }
}

fn limits() -> Limits {
    Limits { window_messages: 4, window_bytes: 100, outbox_messages: 6, outbox_bytes: 200, ..Limits::default() }
}

fn batch(len: usize) -> Bytes {
    Bytes::from(vec![7; len])
}

/// Two sessions after their first hellos; `a` dials.
fn pair() -> (Session, Session) {
    let mut a = Session::new(life(1, 1), &limits());
    let mut b = Session::new(life(2, 1), &limits());
    shake_hands(&mut a, &mut b).expect("first contact");
    (a, b)
}

fn shake_hands(a: &mut Session, b: &mut Session) -> Result<(), Fault> {
    b.greet(&a.hello(&host("a"), &host("b")), End::Accepted)?;
    a.greet(&b.hello(&host("b"), &host("a")), End::Dialled)
}

fn sent(session: &mut Session) -> Vec<u64> {
    std::iter::from_fn(|| session.next_data()).map(|(number, _)| number).collect()
}

fn receive(session: &mut Session, number: u64) {
    assert_eq!(session.judge(number).expect("no gap"), Verdict::Fresh);
    session.took(1);
}

#[test]
fn the_window_holds_back_by_messages_and_by_bytes() {
    let (mut a, _) = pair();
    for _ in 0..6 {
        assert!(a.push(batch(1)));
    }
    assert_eq!(sent(&mut a), [1, 2, 3, 4]);
    assert!(a.acknowledge(2).expect("fair"));
    assert_eq!(sent(&mut a), [5, 6]);
    assert!(a.acknowledge(6).expect("fair"));
    assert!(a.is_settled());

    for _ in 0..3 {
        assert!(a.push(batch(60)));
    }
    assert_eq!(sent(&mut a), [7], "two would be more than 100 bytes");
    assert!(a.acknowledge(7).expect("fair"));
    assert_eq!(sent(&mut a), [8]);
    assert!(!a.acknowledge(7).expect("fair"), "nothing new");
}

#[test]
fn a_batch_larger_than_the_window_is_sent_alone() {
    let (mut a, _) = pair();
    assert!(a.push(batch(150)));
    assert!(a.push(batch(1)));
    assert_eq!(sent(&mut a), [1]);
    a.acknowledge(1).expect("fair");
    assert_eq!(sent(&mut a), [2]);
}

#[test]
fn a_full_outbox_is_dropped_and_a_resync_follows() {
    let (mut a, _) = pair();
    for _ in 0..4 {
        assert!(a.push(batch(1)));
    }
    assert_eq!(sent(&mut a).len(), 4);
    for _ in 0..6 {
        assert!(a.push(batch(1)));
    }
    assert!(!a.push(batch(1)), "the outbox was full");
    assert!(!a.push(batch(1)), "nothing is taken until all is said again");
    assert_eq!(a.counters().dropped, 8);
    a.acknowledge(3).expect("fair");
    assert!(!a.resync_due());
    a.acknowledge(4).expect("fair");
    assert!(a.resync_due());
    a.resync_said();
    assert!(a.push(batch(1)));
    assert_eq!(sent(&mut a), [5], "the numbers go on without a gap");
}

#[test]
fn unacknowledged_batches_are_sent_again_on_the_next_link() {
    let (mut a, mut b) = pair();
    for _ in 0..3 {
        assert!(a.push(batch(1)));
    }
    assert_eq!(sent(&mut a), [1, 2, 3]);
    receive(&mut b, 1);
    shake_hands(&mut a, &mut b).expect("again");
    assert!(a.push(batch(1)));
    assert_eq!(sent(&mut a), [2, 3, 4]);
    assert_eq!((a.counters().sent, a.counters().resent), (6, 2));
}

#[test]
fn duplicates_are_dropped_and_acknowledged_and_gaps_cut_the_link() {
    let (mut a, mut b) = pair();
    assert!(a.push(batch(1)));
    sent(&mut a);
    receive(&mut b, 1);
    assert!(b.owes_ack());
    assert_eq!(b.ack(), 1);
    assert!(!b.owes_ack());
    assert_eq!(b.judge(1).expect("a double"), Verdict::Double);
    assert!(b.owes_ack());
    assert!(matches!(b.judge(3), Err(Fault::Gap { expected: 2, got: 3 })));
    assert!(matches!(b.judge(u64::MAX), Err(Fault::Gap { .. })));
    assert_eq!(b.judge(0).expect("a double"), Verdict::Double);
}

#[test]
fn an_acknowledgement_of_an_unsent_batch_cuts_the_link() {
    let (mut a, _) = pair();
    assert!(a.push(batch(1)));
    assert!(matches!(a.acknowledge(1), Err(Fault::FalseAck { ack: 1, acked: 0, last: 0 })));
    sent(&mut a);
    assert!(matches!(a.acknowledge(2), Err(Fault::FalseAck { ack: 2, acked: 0, last: 1 })));
}

#[test]
fn a_restarted_peer_gets_no_batch_for_its_earlier_incarnation() {
    for restarted in ["a", "b"] {
        let (mut a, mut b) = pair();
        assert!(a.push(batch(1)) && a.push(batch(2)) && b.push(batch(3)));
        assert_eq!((sent(&mut a), sent(&mut b)), (vec![1, 2], vec![1]));
        receive(&mut b, 1);
        match restarted {
            "a" => a = Session::new(life(1, 2), &limits()),
            _ => b = Session::new(life(2, 2), &limits()),
        }
        shake_hands(&mut a, &mut b).expect("a later life");
        assert_eq!((sent(&mut a), sent(&mut b)), (vec![], vec![]), "{restarted}");
        assert!(!a.resync_due() && !b.resync_due(), "the new incarnation says it all");
        assert!(a.push(batch(1)) && b.push(batch(1)));
        assert_eq!((sent(&mut a), sent(&mut b)), (vec![1], vec![1]), "{restarted}");
        receive(&mut a, 1);
        receive(&mut b, 1);
    }
}

#[test]
fn an_earlier_incarnation_is_refused() {
    let mut b = Session::new(life(2, 1), &limits());
    let late = Session::new(life(1, 4), &limits()).hello(&host("a"), &host("b"));
    let mut a = Session::new(life(1, 5), &limits());
    shake_hands(&mut a, &mut b).expect("first contact");
    assert!(b.push(batch(1)));
    let fault = b.greet(&late, End::Accepted).expect_err("late");
    assert!(fault.to_string().contains("an earlier incarnation (4) than the present incarnation (5)"), "{fault}");
    assert!(b.is_current(&late).is_err());
    assert_eq!(sent(&mut b), [1], "nothing was lost by it");
}

#[test]
fn batches_queued_before_the_first_contact_are_sent() {
    let mut a = Session::new(life(1, 1), &limits());
    let mut b = Session::new(life(2, 1), &limits());
    assert!(a.push(batch(1)));
    shake_hands(&mut a, &mut b).expect("first contact");
    assert_eq!(sent(&mut a), [1]);
}

#[test]
fn a_host_that_left_the_roster_and_returns_starts_over() {
    for forgetful in ["a", "b"] {
        let (mut a, mut b) = pair();
        assert!(a.push(batch(1)) && b.push(batch(1)));
        assert_eq!((sent(&mut a), sent(&mut b)), (vec![1], vec![1]));
        receive(&mut a, 1);
        receive(&mut b, 1);
        a.acknowledge(1).expect("fair");
        b.acknowledge(1).expect("fair");
        let remembers = match forgetful {
            "a" => {
                a.forget();
                &mut b
            }
            _ => {
                b.forget();
                &mut a
            }
        };
        assert!(remembers.push(batch(9)));
        shake_hands(&mut a, &mut b).expect("starts over");
        let remembers = if forgetful == "a" { &mut b } else { &mut a };
        assert!(remembers.resync_due(), "{forgetful} forgot: the other one's batch is gone");
        remembers.resync_said();
        assert!(a.push(batch(1)) && b.push(batch(1)));
        assert_eq!((sent(&mut a), sent(&mut b)), (vec![1], vec![1]), "{forgetful}");
        receive(&mut a, 1);
        receive(&mut b, 1);
    }
}

#[test]
fn hellos_for_others_and_of_other_versions_are_refused() {
    let hello = Session::new(life(1, 1), &limits()).hello(&host("a"), &host("b"));
    let check = |hello: LinkHello| check_hello(&hello, &host("b"), &host("a")).map_err(|fault| fault.to_string());
    assert_eq!(check(hello.clone()), Ok(()));
    assert_eq!(check(LinkHello { newest: 9, ..hello.clone() }), Ok(()), "it still speaks ours");
    for (wrong, words) in [
        (LinkHello { newest: 9, oldest: 8, ..hello.clone() }, "versions 8 to 9"),
        (LinkHello { newest: 0, oldest: 0, ..hello.clone() }, "versions 0 to 0"),
        (LinkHello { to: host("c"), ..hello.clone() }, "meant for host c"),
        (LinkHello { from: host("c"), ..hello }, "says that it is host c"),
    ] {
        let text = check(wrong).expect_err(words);
        assert!(text.contains(words), "{text}");
    }
    let ack = Frame::Ack { ack: 1 }.encode().expect("encodes");
    assert!(matches!(read_hello(&ack), Err(Fault::NoHello("ack"))));
}

/// A step of a chaos run; the flag chooses the host.
#[derive(Debug, Clone)]
enum Step {
    Push(bool, u8),
    /// A host sends all that it may, with its acknowledgement.
    Send(bool),
    /// A host takes this many of the frames on their way to it.
    Take(bool, u8),
    /// The link is cut, a new link is made, and cut again after this many steps of the hellos.
    Relink(u8),
    Restart(bool),
    /// A stranger claims to be the other host, and gets as far as its hello.
    Impostor(bool, End),
    Forget(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 1u8..4).prop_map(|(who, count)| Step::Push(who, count)),
        6 => any::<bool>().prop_map(Step::Send),
        6 => (any::<bool>(), 1u8..6).prop_map(|(who, count)| Step::Take(who, count)),
        3 => (0u8..=4).prop_map(Step::Relink),
        1 => any::<bool>().prop_map(Step::Restart),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(who, end)| Step::Impostor(who, if end { End::Dialled } else { End::Accepted })),
        1 => any::<bool>().prop_map(Step::Forget),
    ]
}

enum OnTheWay {
    Data(u64, u64, Bytes),
    Ack(u64),
}

struct Side {
    session: Session,
    id: u64,
    start: u32,
    inbox: VecDeque<OnTheWay>,
    /// The last payload pushed.
    pushed: u64,
    /// The highest payload of the other side received since this side knew of it.
    highest: u64,
    got: BTreeSet<u64>,
    /// Every payload up to this number may be missing: the sender's engine was asked to send again.
    excused: u64,
}

struct World {
    sides: [Side; 2],
    linked: bool,
    impostors: u64,
}

impl World {
    fn new() -> Self {
        let side = |id| Side {
            session: Session::new(life(id, 1), &limits()),
            id,
            start: 1,
            inbox: VecDeque::new(),
            pushed: 0,
            highest: 0,
            got: BTreeSet::new(),
            excused: 0,
        };
        Self { sides: [side(1), side(2)], linked: false, impostors: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Push(who, count) => (0..count).for_each(|_| self.push(who.into())),
            Step::Send(who) if self.linked => self.send(who.into()),
            Step::Take(who, count) if self.linked => (0..count).for_each(|_| self.take(who.into())),
            Step::Send(_) | Step::Take(..) => {}
            Step::Relink(until) => self.relink(until).expect("no chaos leads to a fault"),
            Step::Restart(who) => {
                self.cut();
                let side = &mut self.sides[usize::from(who)];
                side.start += 1;
                side.session = Session::new(life(side.id, side.start), &limits());
                self.excuse(usize::from(who));
                self.excuse(usize::from(!who));
            }
            Step::Impostor(who, end) => {
                self.cut();
                self.impostors += 1;
                let stranger = Session::new(life(100 + self.impostors, 1), &limits());
                let hello = stranger.hello(&host("x"), &host("y"));
                self.sides[usize::from(who)].session.greet(&hello, end).expect("it can't be told from the host");
                self.excuse(usize::from(who));
                self.sides[usize::from(who)].highest = 0;
            }
            Step::Forget(who) => {
                self.cut();
                self.sides[usize::from(who)].session.forget();
                self.excuse(usize::from(who));
                self.sides[usize::from(who)].highest = 0;
            }
        }
    }

    fn push(&mut self, who: usize) {
        let side = &mut self.sides[who];
        side.pushed += 1;
        if !side.session.push(Bytes::copy_from_slice(&side.pushed.to_be_bytes())) {
            self.excuse(who);
        }
    }

    /// Marks all batches that this side has pushed so far as possibly lost.
    fn excuse(&mut self, who: usize) {
        self.sides[who].excused = self.sides[who].pushed;
    }

    fn send(&mut self, who: usize) {
        while let Some((number, payload)) = self.sides[who].session.next_data() {
            let ack = self.sides[who].session.ack();
            self.sides[1 - who].inbox.push_back(OnTheWay::Data(number, ack, payload));
        }
        if self.sides[who].session.owes_ack() {
            let ack = self.sides[who].session.ack();
            self.sides[1 - who].inbox.push_back(OnTheWay::Ack(ack));
        }
    }

    fn take(&mut self, who: usize) {
        let Some(frame) = self.sides[who].inbox.pop_front() else { return };
        let side = &mut self.sides[who];
        match frame {
            OnTheWay::Ack(ack) => {
                side.session.acknowledge(ack).expect("an honest acknowledgement");
            }
            OnTheWay::Data(number, ack, payload) => {
                side.session.acknowledge(ack).expect("an honest acknowledgement");
                assert_eq!(side.session.judge(number).expect("no gap"), Verdict::Fresh, "hellos leave no doubles");
                side.session.took(payload.len());
                let payload = u64::from_be_bytes(payload[..].try_into().expect("8 bytes"));
                assert!(payload > side.highest, "out of order or twice: {payload} after {}", side.highest);
                side.highest = payload;
                side.got.insert(payload);
            }
        }
        if side.session.resync_due() {
            side.session.resync_said();
            self.excuse(who);
        }
    }

    fn cut(&mut self) {
        self.linked = false;
        self.sides.iter_mut().for_each(|side| side.inbox.clear());
    }

    /// Makes a new link, up to this step of the hellos.
    fn relink(&mut self, until: u8) -> Result<(), Fault> {
        self.cut();
        let [a, b] = &mut self.sides;
        if until == 0 {
            return Ok(());
        }
        let (a_said, b_met) = (a.session.hello(&host("a"), &host("b")), b.session.theirs);
        b.session.greet(&a_said, End::Accepted)?;
        if b_met.is_some_and(|(met, _)| met != a_said.session) {
            self.excuse(1);
        }
        if until == 1 {
            return self.excuse_the_asked();
        }
        let [a, b] = &mut self.sides;
        let (b_said, a_met) = (b.session.hello(&host("b"), &host("a")), a.session.theirs);
        let greeted = a.session.greet(&b_said, End::Dialled);
        if a_met.is_some_and(|(met, _)| met != b_said.session) {
            self.excuse(0);
        }
        self.excuse_the_asked()?;
        match greeted {
            Ok(()) => self.linked = until > 2,
            Err(Fault::StartOver) => {}
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn excuse_the_asked(&mut self) -> Result<(), Fault> {
        for who in 0..2 {
            if self.sides[who].session.resync_due() {
                self.sides[who].session.resync_said();
                self.excuse(who);
            }
        }
        Ok(())
    }

    /// Delivers all frames, and checks that no payload is missing.
    fn calm(&mut self) {
        self.relink(3).expect("no chaos leads to a fault");
        if !self.linked {
            self.relink(3).expect("no chaos leads to a fault");
        }
        assert!(self.linked, "both sides find together after starting over once");
        for _ in 0..20 {
            for who in [0, 1] {
                self.send(who);
                while !self.sides[1 - who].inbox.is_empty() {
                    self.take(1 - who);
                }
            }
        }
        for who in [0, 1] {
            assert!(self.sides[who].session.is_settled());
            let (sender, receiver) = (&self.sides[who], &self.sides[1 - who]);
            let missing = (sender.excused + 1..=sender.pushed).find(|payload| !receiver.got.contains(payload));
            assert_eq!(missing, None, "lost without a word");
        }
    }
}

proptest! {
    #[test]
    fn batches_arrive_once_and_in_order_or_a_resync_follows(steps in vec(step(), 0..80)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.calm();
        // The link still works.
        world.push(0);
        world.push(1);
        world.calm();
    }
}
