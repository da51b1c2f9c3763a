//! Compatibility with the previous version, from recordings (`tests/n-1`): its messages, records, manifests and depots
//! are read and written alike, daemons continue from its state, and it can skip new content or refuses it by name.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cob_engine::record::{Body, DurableCob, GrantOut, GrantRecord, Record};
use cob_engine::{Durable, Time};
use cob_tests::cluster::{Cluster, copy_folder};
use cob_types::generation::{MAX_BUNDLE, MAX_MANIFEST, ManifestHost, RollbackTarget, Security};
use cob_types::link::Frame;
use cob_types::switch::{OnFailure, SwitchOrder, SwitchPolicy};
use cob_types::trust::{Operator, PublicKey};
use cob_types::{Batch, Bundle, GenerationNumber, HostName, Manifest, codec};
use cobd::journal::{FileJournal, Journal as _, Keep, MAX_PAYLOAD, Past, What};
use cobgen::depot::Depot;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::{PATIENCE, cluster};

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("n-1").join(name)
}

/// A copy of a recorded folder that the test may change.
fn copy_of(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    copy_folder(&recorded(name), folder.path());
    folder
}

/// Frames of the recorded conversation, with their senders.
fn conversation() -> Vec<(u8, Vec<u8>)> {
    let bytes = fs::read(recorded("conversation.bin")).expect("recorded");
    let (mut rest, mut frames) = (&bytes[..], Vec::new());
    while let Some((&[who, a, b, c, d], after)) = rest.split_first_chunk::<5>() {
        let (frame, after) = after.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        frames.push((who, frame.to_vec()));
        rest = after;
    }
    frames
}

#[test]
fn its_messages_are_read_and_written_alike() {
    let (mut said, mut speakers) = (BTreeSet::new(), BTreeSet::new());
    for (who, bytes) in conversation() {
        let frame = Frame::decode(&bytes).expect("a frame");
        assert_eq!(frame.encode().expect("encodes"), bytes, "{frame:?}");
        if let Frame::Data { payload, .. } = frame {
            let received = Batch::decode(payload).expect("a batch");
            assert_eq!(received.unknown, 0);
            assert_eq!(received.batch.encode().expect("encodes"), payload, "{received:?}");
            said.extend(received.batch.items.iter().map(cob_types::Item::name));
            speakers.insert(who);
        }
    }
    assert_eq!(speakers, BTreeSet::from([b'<', b'>']));
    for name in ["request", "grant", "release", "released", "hello", "hello-ack"] {
        assert!(said.contains(name), "{name} is not among {said:?}");
    }
}

/// The records of a journal, as stored on disk.
fn records(folder: &Path) -> Vec<(What, Vec<u8>)> {
    let opened = FileJournal::open(folder, Keep { segments: 8, bytes: 0 }).expect("a journal");
    let all = Past::read(folder, 1, opened.journal.last_seq()).expect("listed").map(|entry| entry.expect("whole"));
    all.map(|entry| (entry.what, entry.payload.to_vec())).collect()
}

fn record(bytes: &[u8]) -> Record {
    codec::decode(bytes, MAX_PAYLOAD).expect("a record of the version before")
}

#[test]
fn its_records_are_read_and_written_alike_and_add_up_to_the_same() {
    let mut kinds = BTreeSet::new();
    for name in ["folded/n1", "folded/n2", "signed/n1/journal"] {
        let folder = copy_of(name);
        let (mut sum, mut snapshots) = (Durable::default(), 0);
        for (what, bytes) in records(folder.path()) {
            let record = record(&bytes);
            assert_eq!(codec::encode_packed(&record).expect("encodes"), bytes, "{name}: {record:?}");
            if let (What::Snapshot, Body::Snapshot(then)) = (what, &record.body) {
                assert_eq!(
                    (then.incarnation, then.lamport, then.active),
                    (sum.incarnation, sum.lamport, sum.active),
                    "{name}"
                );
                for (id, cob) in &then.cobs {
                    // The time of a grant follows from its record's time, which that version did not add up.
                    let timeless = sum.cobs.get(id).map(|added| without_times(added.as_ref().clone()));
                    assert_eq!(timeless.as_ref(), Some(cob.as_ref()), "{name}: what it has added up of {id}");
                }
                snapshots += 1;
            }
            sum.apply(&record);
            kinds.insert(body_then(&bytes).expect("it understands itself"));
        }
        assert_eq!(snapshots, 1, "{name}");
    }
    assert_eq!(kinds.len(), 13, "{kinds:?}");
}

/// The added-up state of a change object, without the times of its grants.
fn without_times(mut cob: DurableCob) -> DurableCob {
    let timeless = |kept: &GrantRecord| GrantRecord::of(&GrantOut { at: Time(0), ..kept.get() });
    for grants in [&mut cob.grants, &mut cob.invalidated] {
        for (to, kept) in grants.clone().iter() {
            grants.insert(to.clone(), timeless(kept));
        }
    }
    cob
}

#[test]
fn its_depots_manifests_and_bundles_are_read_and_written_alike() {
    for (name, signed) in [("loopback/depot", 0), ("signed/depot", 1)] {
        let folder = copy_of(name);
        let depot = Depot::open(folder.path()).expect("a depot");
        assert_eq!(depot.list().expect("read").len(), 2);
        for number in [1, 2].map(GenerationNumber) {
            let bytes = depot.read_manifest_bytes(number).expect("a manifest");
            let manifest: Manifest = codec::decode(&bytes, MAX_MANIFEST).expect("read");
            assert_eq!(codec::encode(&manifest).expect("encodes"), bytes);
            assert_eq!((manifest.switches.len(), manifest.policy), (0, SwitchPolicy::default()));
            for host in manifest.hosts.keys() {
                let bytes = depot.read_bundle_bytes(number, host).expect("a bundle");
                let bundle: Bundle = codec::decode(&bytes, MAX_BUNDLE).expect("read");
                assert_eq!(codec::encode(&bundle).expect("encodes"), bytes);
            }
            depot.read(number).expect("whole");
            assert_eq!(depot.signatures(number).expect("read").len(), signed);
        }
    }
}

/// Replaces a host's state folder by a recorded folder.
fn put_state(cluster: &Cluster, recorded_as: &str, host: &str) {
    let to = cluster.path(host);
    copy_folder(&recorded(recorded_as), &to);
    for (path, mode) in [("", 0o700), ("identity.key", 0o600)] {
        let path = to.join(path);
        if path.exists() {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        }
    }
}

/// The second generation of the recorded hosts, and an additional change object.
const THIRD: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
  n3: {address: "tcp://127.0.0.1:3"}
kinds:
  quick:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "cat $COB_STATE_DIR/state 2>/dev/null || echo down"}
    transitions:
      - {from: down, to: up, run: "echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/db: {kind: quick, content: {version: 3}}
  n2/app: {kind: quick, requires: [n1/db], content: {version: 1}}
  n2/long: {kind: quick, requires: [n1/db]}
  n2/new: {kind: quick, requires: [n2/app]}
  n3/away: {kind: quick, requires: [n1/db]}
"#;

#[test]
fn daemons_go_on_where_it_was_killed() {
    let mut cluster = cluster(&["n1", "n2"]);
    copy_folder(&recorded("loopback/depot"), &cluster.path("depot"));
    let model = cluster.write_model("third", &[("model.yaml", THIRD)]);
    cluster.load(&model);
    for host in cluster.hosts() {
        put_state(&cluster, &format!("loopback/{host}"), &host);
        // The recorded generation has other addresses.
        cluster.configure(&host, &format!("listen = \"tcp://{}\"", cluster.address(&host)));
    }
    cluster.start_all();
    let active = |host: &str| cluster.status(host).and_then(|s| s.generation);
    assert_eq!((active("n1"), active("n2")), (Some(GenerationNumber(2)), Some(GenerationNumber(2))));
    let told = cluster.history("n1");
    for event in ["prepare", "go", "activate", "start", "end", "failed", "retry", "grant", "gone"] {
        assert!(told.iter().any(|e| e.event == event), "{event} is not in the history of n1");
    }
    assert!(cluster.history("n2").iter().any(|e| e.event == "resume"));

    let third = cluster.generate(&model);
    assert_eq!(third, GenerationNumber(3));
    cluster.switch_all(third);
    cluster.wait_converged(third, PATIENCE);
    assert!(cluster.cob("n1/flaky").is_none() && cluster.cob("n2/new").is_some());

    // Back to the previous version: it reads the written records, or names the unknown record.
    for host in cluster.hosts() {
        cluster.stop(&host);
        for (_, bytes) in records(&cluster.path(&format!("{host}/journal"))) {
            let name = body_name(&record(&bytes).body);
            match body_then(&bytes) {
                Ok(then) => assert_eq!(then, name),
                Err(error) => assert!(error.contains("variant"), "{name}: {error}"),
            }
        }
    }
}

#[test]
fn a_signed_host_goes_on_and_returns() {
    let mut cluster = cluster(&["n1"]);
    copy_folder(&recorded("signed/depot"), &cluster.path("depot"));
    put_state(&cluster, "signed/n1", "n1");
    let model = cluster.write_model("third", &[("model.yaml", THIRD)]);
    cluster.load(&model);
    let trust = fs::read_to_string(recorded("signed/trust")).expect("recorded");
    cluster.configure("n1", &format!("trust = [\"{}\"]\nlisten = \"tcp://{}\"", trust.trim(), cluster.address("n1")));
    cluster.start_all();
    cluster.wait_converged(GenerationNumber(1), PATIENCE);
    for generation in [2, 1].map(GenerationNumber) {
        cluster.switch_all(generation);
        cluster.wait_converged(generation, PATIENCE);
    }
    assert!(cluster.cob("n1/of-1").is_some() && cluster.cob("n1/of-2").is_none());
}

/// A record as the previous version reads it, up to its type.
#[derive(Deserialize)]
#[expect(dead_code, reason = "fields stand for their numbers")]
struct RecordThen {
    at: IgnoredAny,
    lamport: u64,
    generation: GenerationNumber,
    body: BodyThen,
    #[serde(default)]
    by: Option<String>,
}

/// All record types that the previous version writes into a journal, in its order.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "what is in them is not looked at")]
enum BodyThen {
    Snapshot(IgnoredAny),
    Life(IgnoredAny),
    Go(IgnoredAny),
    Activated(IgnoredAny),
    Gone {},
    Granted {},
    Returned {},
    Begun {},
    Ended {},
    Checked {},
    Unknown {},
    Ordered(OrderThen),
    Note {},
}

#[derive(Debug, Deserialize)]
enum OrderThen {
    Pause,
    Resume,
    Retry(IgnoredAny),
    Fence(IgnoredAny, IgnoredAny),
    Prepare(IgnoredAny),
}

/// The type of a record for the previous version.
fn body_then(bytes: &[u8]) -> Result<String, String> {
    let record: RecordThen = codec::decode(bytes, MAX_PAYLOAD).map_err(|error| error.to_string())?;
    Ok(first_word(&record.body))
}

/// The recorded name of a type.
fn body_name(body: &Body) -> String {
    match first_word(body).as_str() {
        "Incarnation" => "Life".to_owned(),
        "SwitchStarted" => "Go".to_owned(),
        "Removed" => "Gone".to_owned(),
        name => name.to_owned(),
    }
}

fn first_word(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Its journal reader does not know later record types and reports that instead of misreading them: the daemon does not
/// start after a downgrade.
#[test]
fn it_refuses_records_that_it_does_not_know() {
    #[derive(serde::Serialize)]
    enum Later {
        #[serde(rename = "Snapshot")]
        _0,
        _1,
        _2,
        _3,
        _4,
        _5,
        _6,
        _7,
        _8,
        _9,
        _10,
        _11,
        _12,
        /// A later body with fields.
        Fields {
            cob: String,
        },
        /// A later body with a value.
        Value(GenerationNumber),
        /// A later body without content.
        Nothing,
    }
    #[derive(serde::Serialize)]
    struct Written {
        at: u64,
        lamport: u64,
        generation: GenerationNumber,
        body: Later,
    }
    for body in [Later::Fields { cob: "n1/a".to_owned() }, Later::Value(GenerationNumber(1)), Later::Nothing] {
        let written = Written { at: 1, lamport: 1, generation: GenerationNumber(1), body };
        let bytes = codec::encode_packed(&written).expect("encodes");
        let error = body_then(&bytes).expect_err("it is not known");
        assert!(error.contains("variant"), "{error}");
    }
}

/// A manifest as the previous version reads it.
#[derive(Debug, PartialEq, Deserialize)]
struct ManifestThen {
    format: u32,
    generation: GenerationNumber,
    parent: GenerationNumber,
    security: Security,
    hosts: std::collections::BTreeMap<HostName, ManifestHost>,
    cobs: u64,
    #[serde(default)]
    revoked: BTreeSet<PublicKey>,
    #[serde(default)]
    operators: std::collections::BTreeMap<String, Operator>,
    #[serde(default)]
    back: Vec<RollbackTarget>,
}

#[test]
fn it_reads_manifests_with_the_order_of_a_switch() {
    let folder = copy_of("signed/depot");
    let depot = Depot::open(folder.path()).expect("a depot");
    let mut manifest = depot.read_manifest(GenerationNumber(2)).expect("read");
    let order = SwitchOrder::free(GenerationNumber(1), GenerationNumber(2));
    manifest.switches = vec![
        order.clone(),
        SwitchOrder { waits: [(HostName::new("n1").expect("a name"), BTreeSet::new())].into(), ..order },
    ];
    manifest.policy = SwitchPolicy { on_failure: OnFailure::Rollback, guard_ms: Some(60_000) };
    let bytes = codec::encode(&manifest).expect("encodes");
    let then: ManifestThen = codec::decode(&bytes, MAX_MANIFEST).expect("what is new is passed over");
    let Manifest { format, generation, parent, security, hosts, cobs, revoked, operators, back, .. } = manifest;
    assert_eq!(then, ManifestThen { format, generation, parent, security, hosts, cobs, revoked, operators, back });
}
