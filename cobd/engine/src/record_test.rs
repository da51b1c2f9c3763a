//! The names and numbers under which records are written: they are the format. A renamed variant, or a new variant
//! before others, makes the journals of all hosts unreadable.

use cob_types::codec;
use cob_types::command_run::{RunId, RunRecord};
use cob_types::message::RankPhase;
use cob_types::status::Stopped;
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::{CobId, GenerationNumber, HostName, Incarnation, Number, Rank, StateName};

use crate::guard::Guard;
use crate::record::{Begun, Body, GrantOut, Note, OrderRecord};
use crate::switch::{Cause, RemovedHost, SwitchRecord, Terms, Waiting, Withdrawal};
use crate::testing::CONTENT;
use crate::time::Time;

fn id(text: &str) -> CobId {
    CobId::new(text).expect("an id")
}

fn state() -> StateName {
    StateName::new("up").expect("a state")
}

/// A body of each variant.
fn one_of_each() -> Vec<Body> {
    let number = Number { start: 1, counter: 2 };
    let cob = || id("n1/a");
    let life = Incarnation { id: 1, start: 2 };
    let begun = Begun {
        job: number,
        from: state(),
        to: state(),
        attempt: 1,
        process: true,
        locks: Vec::new(),
        token: None,
        generation: GenerationNumber(0),
    };
    let grant = GrantOut {
        folder: None,
        number,
        set: vec![state()],
        state: state(),
        rank: Rank { phase: RankPhase::STAY, generation: GenerationNumber(1), rank: 2 },
        origin: id("n2/b"),
        fingerprint: None,
        rests_on: Vec::new(),
        failed: false,
        at: Time(0),
    };
    let host = HostName::new("n2").expect("a host");
    let notes = [
        Note::Requested { of: cob(), set: Vec::new() },
        Note::Released { of: cob() },
        Note::Holds { of: cob(), state: state() },
        Note::Recalled { from: cob() },
        Note::Invalidated { from: cob() },
        Note::Stuck { circle: Vec::new(), more: false },
        Note::Chase { of: cob(), times: 1 },
        Note::Flap { state: state(), times: 1, because_of: None },
        Note::Ordered,
        Note::Overdrawn { by: cob(), at_most: 1 },
    ];
    let orders = [
        OrderRecord::Pause,
        OrderRecord::Resume,
        OrderRecord::Retry(cob()),
        OrderRecord::Fence(host, Some(life)),
        OrderRecord::Prepare(GenerationNumber(1)),
        OrderRecord::MarkDeparted(cob()),
        OrderRecord::Cancel(GenerationNumber(1)),
        OrderRecord::Discard(GenerationNumber(1)),
        OrderRecord::Limit(Some(2)),
        OrderRecord::Only(vec![HostName::new("n1").expect("a name")]),
    ];
    let mut all = vec![
        Body::Snapshot(Box::default()),
        Body::Incarnation(life),
        Body::SwitchStarted(GenerationNumber(1)),
        Body::Activated(GenerationNumber(1)),
        Body::Removed { cob: cob(), state: state(), kept_from: None },
        Body::Granted { cob: cob(), to: id("n2/b"), grant },
        Body::Returned { cob: cob(), from: id("n2/b"), number },
        Body::Begun { cob: cob(), begun },
        Body::Ended {
            cob: cob(),
            job: number,
            from: state(),
            to: state(),
            attempt: 1,
            ok: None,
            state: None,
            failures: 0,
            failed: false,
            values: Default::default(),
            applied: None,
            rests_on: Some(CONTENT),
            span: (1, 2),
            error: String::new(),
            token: None,
            conflict: false,
        },
        Body::Checked {
            cob: cob(),
            state: None,
            drift: false,
            failed: false,
            values: Default::default(),
            rests_on: None,
            detail: String::new(),
            unclear: false,
            renewed: false,
        },
        Body::Unknown { cob: cob(), from_nothing: false },
    ];
    all.extend(orders.into_iter().map(Body::Ordered));
    all.extend(notes.into_iter().map(|note| Body::Note { cob: cob(), note }));
    all.extend([Body::Departed { cob: cob() }, Body::DeparturesAnnounced { cobs: vec![id("n2/b")] }, Body::Epoch(3)]);
    all.push(Body::Settled(GenerationNumber(1)));
    all.extend(steps().into_iter().map(Body::Switch));
    all.push(Body::Invalidated { cob: cob(), from: id("n2/b"), number });
    all.push(Body::Note { cob: cob(), note: Note::Broken { of: cob() } });
    all.push(Body::Ordered(OrderRecord::LimitBudget(cob(), Some(2))));
    let n2 = || HostName::new("n2").expect("a name");
    all.push(Body::Switch(SwitchRecord::Reopened { by: n2() }));
    let parted = RemovedHost { generation: GenerationNumber(7), through: false };
    all.push(Body::Switch(SwitchRecord::Parted([(n2(), parted)].into())));
    all.push(Body::Switch(SwitchRecord::Through([n2()].into())));
    all.push(Body::Switch(SwitchRecord::Quiet(true)));
    all.push(Body::Ordered(OrderRecord::EndCancel));
    let (path, choice) = (Some("/x".to_owned()), "ours".to_owned());
    all.push(Body::Ordered(OrderRecord::Resolve { cob: cob(), path, choice }));
    let (path, version) = ("/x".to_owned(), "4f".to_owned());
    all.push(Body::Ordered(OrderRecord::Restore { cob: cob(), path, version }));
    all.push(Body::Ordered(OrderRecord::RaiseBudget(cob(), Some(3))));
    let stopped = Stopped { who: "alice".to_owned(), restart: true, with: Some(id("n2/b")), until_boot: true };
    all.push(Body::Ordered(OrderRecord::Stop(cob(), stopped)));
    all.push(Body::Ordered(OrderRecord::Start(cob())));
    all.push(Body::Ordered(OrderRecord::Reboot));
    let line = "id".to_owned();
    all.push(Body::Ordered(OrderRecord::Run(RunRecord::Begun { run: RunId::of(1), line, user: None })));
    let waiting = Waiting {
        generation: GenerationNumber(8),
        manifest: None,
        cause: Cause::Scheduled,
        on_failure: Some(OnFailure::Rollback),
        guard_ms: Some(9),
        alone: false,
        only: vec![n2()],
        seen: Some(GenerationNumber(7)),
        by: Some("alice".to_owned()),
        since: Time(5),
    };
    all.push(Body::Switch(SwitchRecord::Waiting(Some(Box::new(waiting)))));
    all.push(Body::Switch(SwitchRecord::IgnoresWindows(GenerationNumber(8))));
    all
}

/// The steps of a switch.
fn steps() -> Vec<SwitchRecord> {
    let policy = SwitchPolicy { on_failure: OnFailure::Rollback, guard_ms: Some(9) };
    let terms = Terms { policy, round: 1, alone: false };
    let (from, to) = (GenerationNumber(7), GenerationNumber(8));
    let peers = [HostName::new("n2").expect("a name")].into();
    let withdrawal =
        Withdrawal { to: from, round: 1, ordered: false, why: "w".to_owned(), cancelled: false, heard: false };
    vec![
        SwitchRecord::Begun { from, to, left: None, terms, peers },
        SwitchRecord::Reterm(terms),
        SwitchRecord::Guarded(Guard { ms: 9, left_ms: 8, restarts: 1, extended: false }),
        SwitchRecord::Confirmed,
        SwitchRecord::Made { cob: id("n1/a"), from: state(), to: state() },
        SwitchRecord::Settled,
        SwitchRecord::Withdrawn(to, withdrawal),
        SwitchRecord::Stopped { why: "w".to_owned() },
    ]
}

/// Its position in the source. A new variant is added here, and an example of it above.
fn place(body: &Body) -> usize {
    match body {
        Body::Snapshot(_) => 0,
        Body::Incarnation(_) => 1,
        Body::SwitchStarted(_) => 2,
        Body::Activated(_) => 3,
        Body::Removed { .. } => 4,
        Body::Granted { .. } => 5,
        Body::Returned { .. } => 6,
        Body::Begun { .. } => 7,
        Body::Ended { .. } => 8,
        Body::Checked { .. } => 9,
        Body::Unknown { .. } => 10,
        Body::Ordered(order) => match order {
            OrderRecord::Pause => 11,
            OrderRecord::Resume => 12,
            OrderRecord::Retry(_) => 13,
            OrderRecord::Fence(..) => 14,
            OrderRecord::Prepare(_) => 15,
            OrderRecord::MarkDeparted(_) => 16,
            OrderRecord::Cancel(_) => 17,
            OrderRecord::Discard(_) => 18,
            OrderRecord::Limit(_) => 19,
            OrderRecord::Only(_) => 20,
            OrderRecord::LimitBudget(..) => 45,
            OrderRecord::EndCancel => 50,
            OrderRecord::Resolve { .. } => 51,
            OrderRecord::Restore { .. } => 52,
            OrderRecord::RaiseBudget(..) => 53,
            OrderRecord::Stop(..) => 54,
            OrderRecord::Start(_) => 55,
            OrderRecord::Reboot => 56,
            OrderRecord::Run(_) => 57,
        },
        Body::Note { note, .. } => match note {
            Note::Requested { .. } => 21,
            Note::Released { .. } => 22,
            Note::Holds { .. } => 23,
            Note::Recalled { .. } => 24,
            Note::Invalidated { .. } => 25,
            Note::Stuck { .. } => 26,
            Note::Chase { .. } => 27,
            Note::Flap { .. } => 28,
            Note::Ordered => 29,
            Note::Overdrawn { .. } => 30,
            Note::Broken { .. } => 44,
        },
        Body::Departed { .. } => 31,
        Body::DeparturesAnnounced { .. } => 32,
        Body::Epoch(_) => 33,
        Body::Settled(_) => 34,
        Body::Switch(step) => match step {
            SwitchRecord::Begun { .. } => 35,
            SwitchRecord::Reterm(_) => 36,
            SwitchRecord::Guarded(_) => 37,
            SwitchRecord::Confirmed => 38,
            SwitchRecord::Made { .. } => 39,
            SwitchRecord::Settled => 40,
            SwitchRecord::Withdrawn(..) => 41,
            SwitchRecord::Stopped { .. } => 42,
            SwitchRecord::Reopened { .. } => 46,
            SwitchRecord::Parted(_) => 47,
            SwitchRecord::Through(_) => 48,
            SwitchRecord::Quiet(_) => 49,
            SwitchRecord::Waiting(_) => 58,
            SwitchRecord::IgnoresWindows(_) => 59,
        },
        Body::Invalidated { .. } => 43,
    }
}

/// Bytes as text: printable characters as they are, the rest in hexadecimal.
fn readable(bytes: &[u8]) -> String {
    bytes.iter().map(|b| if b.is_ascii_graphic() { char::from(*b).to_string() } else { format!("<{b:02x}>") }).collect()
}

#[test]
fn records_are_written_as_ever() {
    let all = one_of_each();
    assert_eq!(all.iter().map(place).collect::<Vec<_>>(), (0..=59).collect::<Vec<_>>(), "one of each");
    let lines: Vec<String> = all
        .iter()
        .map(|body| {
            let bytes = codec::encode_packed(body).expect("encodes");
            assert_eq!(codec::decode::<Body>(&bytes, 1 << 20).expect("decodes"), *body);
            readable(&bytes)
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    <a1>hSnapshot<a8><00><f6><01><00><02><00><03><f6><04><f4><05><a0><06><a0><07><a0>
    <a1>dLife<a2><00><01><01><02>
    <a1>bGo<01>
    <a1>iActivated<01>
    <a1><04><a2><00>dn1/a<01>bup
    <a1><05><a3><00>dn1/a<01>dn2/b<02><a7><00><a2><00><01><01><02><01><81>bup<02>bup<03><a3><00><01><01><01><02><02><04>dn2/b<05><f6><06><80>
    <a1><06><a3><00>dn1/a<01>dn2/b<02><a2><00><01><01><02>
    <a1><07><a2><00>dn1/a<01><a6><00><a2><00><01><01><02><01>bup<02>bup<03><01><04><f5><05><80>
    <a1><08><ae><00>dn1/a<01><a2><00><01><01><02><02>bup<03>bup<04><01><05><f6><06><f6><07><00><08><f4><09><a0><0a><f6><0b>P<07><07><07><07><07><07><07><07><07><07><07><07><07><07><07><07><0c><82><01><02><0d>`
    <a1><09><a7><00>dn1/a<01><f6><02><f4><03><f4><04><a0><05><f6><06>`
    <a1><0a><a1><00>dn1/a
    <a1>gOrdered<00>
    <a1>gOrdered<01>
    <a1>gOrdered<a1>eRetrydn1/a
    <a1>gOrdered<a1>eFence<82>bn2<a2><00><01><01><02>
    <a1>gOrdered<a1>gPrepare<01>
    <a1>gOrdered<a1>lDeclareFinaldn1/a
    <a1>gOrdered<a1>fCancel<01>
    <a1>gOrdered<a1>gCallOff<01>
    <a1>gOrdered<a1>eLimit<02>
    <a1>gOrdered<a1>dOnly<81>bn1
    <a1><0c><a2><00>dn1/a<01><a1><00><a2><00>dn1/a<01><80>
    <a1><0c><a2><00>dn1/a<01><a1><01><a1><00>dn1/a
    <a1><0c><a2><00>dn1/a<01><a1><02><a2><00>dn1/a<01>bup
    <a1><0c><a2><00>dn1/a<01><a1><03><a1><00>dn1/a
    <a1><0c><a2><00>dn1/a<01><a1><04><a1><00>dn1/a
    <a1><0c><a2><00>dn1/a<01><a1><05><a2><00><80><01><f4>
    <a1><0c><a2><00>dn1/a<01><a1><06><a2><00>dn1/a<01><01>
    <a1><0c><a2><00>dn1/a<01><a1><07><a3><00>bup<01><01><02><f6>
    <a1><0c><a2><00>dn1/a<01><08>
    <a1><0c><a2><00>dn1/a<01><a1><09><a2><00>dn1/a<01><01>
    <a1><0d><a1><00>dn1/a
    <a1><0e><a1><00><81>dn2/b
    <a1>dTurn<03>
    <a1>gSettled<01>
    <a1>fSwitch<a1><00><a5><00><07><01><08><02><f6><03><a3><00><a2><00><01><01><09><01><01><02><f4><04><81>bn2
    <a1>fSwitch<a1>fReterm<a3><00><a2><00><01><01><09><01><01><02><f4>
    <a1>fSwitch<a1>gGuarded<a4><00><09><01><08><02><01><03><f4>
    <a1>fSwitch<03>
    <a1>fSwitch<a1><04><a3><00>dn1/a<01>bup<02>bup
    <a1>fSwitch<05>
    <a1>fSwitch<a1>iWithdrawn<82><08><a4><00><07><01><01><02><f4><03>aw
    <a1>fSwitch<a1><07><a1><00>aw
    <a1><12><a3><00>dn1/a<01>dn2/b<02><a2><00><01><01><02>
    <a1><0c><a2><00>dn1/a<01><a1><0a><a1><00>dn1/a
    <a1>gOrdered<a1>kLimitBudget<82>dn1/a<02>
    <a1>fSwitch<a1><08><a1><00>bn2
    <a1>fSwitch<a1>fParted<a1>bn2<a2><00><07><01><f4>
    <a1>fSwitch<a1>gThrough<81>bn2
    <a1>fSwitch<a1>eQuiet<f5>
    <a1>gOrdered<0b>
    <a1>gOrdered<a1><0c><a3><00>dn1/a<01>b/x<02>dours
    <a1>gOrdered<a1><0d><a3><00>dn1/a<01>b/x<02>b4f
    <a1>gOrdered<a1>kRaiseBudget<82>dn1/a<03>
    <a1>gOrdered<a1>dStop<82>dn1/a<a4><00>ealice<01><f5><02>dn2/b<03><f5>
    <a1>gOrdered<a1>eStartdn1/a
    <a1>gOrdered<11>
    <a1>gOrdered<a1>cRun<a1><00><a3><00>l000000000001<01>bid<02><f6>
    <a1>fSwitch<a1>gWaiting<aa><00><08><01><f6><02><02><03><01><04><09><05><f4><06><81>bn2<07><07><08>ealice<09><05>
    <a1>fSwitch<a1>nIgnoresWindows<08>
    "#);
}
