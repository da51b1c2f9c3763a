//! What two daemons say to each other: the lock protocol's messages, in batches.
//!
//! Meaning and answers: `docs/lock-protocol.md`. Everything here may be lost, doubled or overtaken;
//! every message carries the number that says which request it is about.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::cob::Fingerprint;
use crate::codec::{self, CodecError};
use crate::id::{BlobHash, CobId, GenerationNumber, HostName, StateName};
use crate::switch::SwitchPolicy;

/// The protocol version spoken here.
pub const PROTOCOL: u16 = 1;
/// The largest batch, in bytes.
pub const MAX_BATCH: usize = 1 << 20;
/// The longest path that a probe carries; a longer one ends with "more".
pub const MAX_PROBE_PATH: usize = 32;
/// The most bytes of exported values that a grant carries.
pub const MAX_VALUES: usize = 64 << 10;

/// Values that a change object exports in a state, by name; canonical JSON each.
pub type Values = BTreeMap<String, String>;

/// One life of a daemon: a random id made with its state folder, and how often it has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Random, made with the state folder: a reinstalled host has another.
    pub id: u64,
    /// Grows at each start.
    pub start: u32,
}

/// The number of a request: unique for its requester, growing. Without the room that its alignment would cost: it stands in
/// each lock, request and trace of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(C, packed(4))]
pub struct Number {
    /// The start of the daemon in which it was made.
    pub start: u32,
    /// Grows within one start.
    pub counter: u64,
}

/// The rank of a request: less goes first in an ordered change object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank {
    /// 0: for a retirement; 1: all else.
    pub phase: u8,
    /// The generation that numbered the goal.
    pub generation: GenerationNumber,
    /// The goal's number in it.
    pub rank: u64,
}

impl Rank {
    /// Behind all others.
    pub const LAST: Rank = Rank { phase: u8::MAX, generation: GenerationNumber(u64::MAX), rank: u64::MAX };
}

/// All that one daemon tells another in one turn of its loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Who says it.
    pub from: HostName,
    /// The life of the sender in which it is said.
    pub incarnation: Incarnation,
    /// Lamport number of the sender.
    pub lamport: u64,
    /// What is said.
    pub items: Vec<Item>,
    /// The switch that the sender is in and has not settled in: what it asks for, it asks for in this one.
    pub under_way: Option<UnderWay>,
}

/// A switch of the host that says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// Where it leads.
    pub to: GenerationNumber,
    /// On a return: the generation that is left.
    pub left: Option<GenerationNumber>,
    /// As in [`Going`].
    pub round: u32,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// Asks for a state lock, or revises what was asked.
    Request(Request),
    /// Gives back this number and all lower ones.
    Release(About),
    /// Confirms a release.
    Released(About),
    /// Promises a state.
    Grant(Grant),
    /// Asks for a lock back.
    Recall(About),
    /// Asks whether a request is still meant.
    Query(About),
    /// The promise is broken: the depended-on change object was found in another state.
    Lapsed(About),
    /// Looks for a circle of waiters.
    Probe(Probe),
    /// Said first in a life: the numbers that it kept.
    Hello(Hello),
    /// Answers a hello.
    HelloAck(HelloAck),
    /// The request can't be served: no route leads to any state of its set.
    Refused(Refused),
    /// Asks which of the change objects of the host that hears it are final in a switch.
    AskFinal(Finals),
    /// These change objects of the host that says it are final in a switch.
    Final(Finals),
    /// The generation that this host was told to go to: whoever is not there yet goes too.
    Going(Going),
    /// A generation is not wanted any more: whoever has gone to it goes back.
    Withdrawn(Withdrawn),
    /// The host is in this generation, which lacks it, and has nothing more to do with the one that hears it.
    Through(GenerationNumber),
}

/// A pair and a number: the shape of most messages. `asker` is always the dependent, whoever speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The dependent.
    pub asker: CobId,
    /// The depended-on change object.
    pub asked: CobId,
    /// The number spoken of.
    pub number: Number,
}

/// A request for a state lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The dependent.
    pub asker: CobId,
    /// The depended-on change object.
    pub asked: CobId,
    /// Its number.
    pub number: Number,
    /// Grows when set, rank or origin change under the same number.
    pub rev: u64,
    /// Acceptable states, in order.
    pub set: Vec<StateName>,
    /// The rank of its actor's goal.
    pub rank: Rank,
    /// Whose own wish began the chain.
    pub origin: CobId,
    /// The fingerprint that the asker expects of the asked.
    pub fingerprint: Option<Fingerprint>,
    /// The generation that is active on the asker's host, a dependency of which justifies the request; none: the version
    /// of the asker's daemon does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
    /// The asker has failed, and keeps what it holds until an operator's word: a budget gives no more tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The dependent.
    pub asker: CobId,
    /// The depended-on change object.
    pub asked: CobId,
    /// The request's number.
    pub number: Number,
    /// The newest revision of the request that the granter has seen.
    pub rev: u64,
    /// The one state that is promised.
    pub state: StateName,
    /// What the depended-on change object exports in it.
    pub values: Values,
    /// The state folder ([`Incarnation::id`]) of the host whose request is granted. A host that was set up anew asks under
    /// the same numbers again, and a grant to its predecessor is not for it. None: the granter does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<u64>,
}

/// A refusal, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The pair and number.
    pub about: About,
    /// Why, for people.
    pub reason: String,
}

/// Travels along what a change object waits for; one that comes home has found a circle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The change object that it is sent on to.
    pub to: CobId,
    /// Who sent it out.
    pub initiator: CobId,
    /// Number of the probe, unique and growing for its initiator.
    pub number: Number,
    /// The initiator's generation.
    pub generation: GenerationNumber,
    /// Whom it passed, at most [`MAX_PROBE_PATH`].
    pub path: Vec<CobId>,
    /// The path was longer.
    pub more: bool,
    /// It is sent on along everything that is waited for; else along one thing.
    pub wide: bool,
}

/// The first message of a life, repeated until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Locks of earlier lives that are kept: they are under a running action or a grant.
    pub kept: Vec<About>,
}

/// The answer: which of the kept locks are granted, and in which state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloAck {
    /// The incarnation that is answered.
    pub incarnation: Incarnation,
    /// The locks of the hello that are granted here.
    pub granted: Vec<Grant>,
}

/// Change objects of one host, and the switch in which they are final, or are asked whether they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finals {
    /// The generation that the asking host has.
    pub from: GenerationNumber,
    /// The generation that it goes to.
    pub to: GenerationNumber,
    /// How many switches the speaker knows to have been left before their end, by a way back or for a newer
    /// one. What was final in a switch that was left is final no more: a fact counts between two hosts that know of
    /// the same number.
    pub turn: u64,
    /// Which; in an answer without any, only the turn counts.
    pub cobs: Vec<CobId>,
}

/// The most change objects in one [`Finals`]: more are said in several.
pub const MAX_FINALS: usize = 1000;
/// A host is on its way to a generation, or in it. Says nothing that the host itself would be believed: where it
/// leads must have been published, and be newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Going {
    /// Which.
    pub generation: GenerationNumber,
    /// What was ordered with it.
    pub policy: SwitchPolicy,
    /// How often the generation was gone to again after it had been withdrawn.
    pub round: u32,
    /// Hash of the generation's manifest: a host that knows another content under the number goes nowhere. Daemons of
    /// the version before do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
}

/// A host has gone back from a generation, or is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// The one that was left.
    pub generation: GenerationNumber,
    /// The one that is returned to.
    pub to: GenerationNumber,
    /// The round of [`Going`] that it ends, and all before.
    pub round: u32,
    /// An operator's word; else what the policy of the switch asks for.
    pub ordered: bool,
    /// Why, for people.
    pub why: String,
    /// Hash of the manifest of the generation that was left, as in [`Going`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
}

/// The longest reason of a withdrawal that is kept, in bytes.
pub const MAX_WHY: usize = 500;

impl Item {
    /// Whether all that it says is for this host to say: it speaks for change objects of it alone.
    #[must_use]
    pub fn speaks_for(&self, host: &HostName) -> bool {
        let own = |cob: &CobId| cob.host_str() == host.as_str();
        match self {
            Item::Request(request) => own(&request.asker),
            Item::Release(about) => own(&about.asker),
            Item::Released(about) | Item::Recall(about) | Item::Query(about) | Item::Lapsed(about) => own(&about.asked),
            Item::Grant(grant) => own(&grant.asked),
            Item::Refused(refused) => own(&refused.about.asked),
            Item::Probe(probe) => probe.path.last().is_some_and(own),
            Item::Hello(hello) => hello.kept.iter().all(|about| own(&about.asker)),
            Item::HelloAck(ack) => ack.granted.iter().all(|grant| own(&grant.asked)),
            // Asked of the one who hears it; whose question it is says the link.
            Item::AskFinal(_) => true,
            Item::Final(finals) => finals.cobs.iter().all(own),
            Item::Going(_) | Item::Withdrawn(_) | Item::Through(_) => true,
        }
    }

    /// Whether a change object of the host that hears it may have to move for it.
    #[must_use]
    pub fn may_move(&self) -> bool {
        matches!(self, Item::Request(_) | Item::Release(_) | Item::Recall(_))
    }

    /// Whether it concerns no change object: it says where its host stands in a switch.
    #[must_use]
    pub fn is_of_switches(&self) -> bool {
        matches!(self, Item::Going(_) | Item::Withdrawn(_) | Item::Through(_))
    }

    /// A stable name, for logs and counters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Item::Request(_) => "request",
            Item::Release(_) => "release",
            Item::Released(_) => "released",
            Item::Grant(_) => "grant",
            Item::Recall(_) => "recall",
            Item::Query(_) => "query",
            Item::Lapsed(_) => "lapsed",
            Item::Probe(_) => "probe",
            Item::Hello(_) => "hello",
            Item::HelloAck(_) => "hello-ack",
            Item::Refused(_) => "refused",
            Item::AskFinal(_) => "ask-final",
            Item::Final(_) => "final",
            Item::Going(_) => "going",
            Item::Withdrawn(_) => "withdrawn",
            Item::Through(_) => "through",
        }
    }
}

/// The outer form on the wire: an unknown code is skipped and counted, it does not spoil the batch.
#[derive(Serialize, Deserialize)]
struct WireItem {
    code: u16,
    body: ByteBuf,
}

/// Follows the protocol version, which stands in front in two bytes (big-endian), so that a batch of
/// another version is recognised before anything else of it is read.
#[derive(Serialize, Deserialize)]
struct WireBatch {
    from: HostName,
    incarnation: Incarnation,
    lamport: u64,
    items: Vec<WireItem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    under_way: Option<UnderWay>,
}

/// A decoded batch, and what of it was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// What was understood.
    pub batch: Batch,
    /// Items with a code that this version does not know.
    pub unknown: usize,
}

/// Why a batch was refused.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The sender speaks a version that this one does not.
    #[error("protocol version {0} is not spoken here (this program speaks {PROTOCOL})")]
    Version(u16),
    /// Not even a version.
    #[error("a batch of less than two bytes")]
    Short,
    /// Broken bytes.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl Batch {
    /// The batch as bytes.
    ///
    /// # Errors
    /// Only for values that CBOR can't carry.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let items = self.items.iter().map(WireItem::encode).collect::<Result<_, _>>()?;
        let Self { incarnation, lamport, under_way, .. } = *self;
        let wire = WireBatch { from: self.from.clone(), incarnation, lamport, items, under_way };
        let mut bytes = PROTOCOL.to_be_bytes().to_vec();
        bytes.extend(codec::encode_packed(&wire)?);
        Ok(bytes)
    }

    /// Reads what [`Batch::encode`] wrote; unknown items are counted.
    ///
    /// # Errors
    /// [`BatchError`] for another version, and for bytes that are no batch.
    pub fn decode(bytes: &[u8]) -> Result<Received, BatchError> {
        let Some((version, body)) = bytes.split_first_chunk::<2>() else {
            return Err(BatchError::Short);
        };
        let version = u16::from_be_bytes(*version);
        if version != PROTOCOL {
            return Err(BatchError::Version(version));
        }
        let wire: WireBatch = codec::decode(body, MAX_BATCH)?;
        let mut items = Vec::with_capacity(wire.items.len().min(1024));
        let mut unknown = 0;
        for item in &wire.items {
            match item.decode()? {
                Some(item) => items.push(item),
                None => unknown += 1,
            }
        }
        let WireBatch { from, incarnation, lamport, under_way, .. } = wire;
        let batch = Batch { from, incarnation, lamport, items, under_way };
        Ok(Received { batch, unknown })
    }
}

impl WireItem {
    fn encode(item: &Item) -> Result<Self, CodecError> {
        let (code, body) = match item {
            Item::Request(m) => (1, codec::encode_packed(m)),
            Item::Release(m) => (2, codec::encode_packed(m)),
            Item::Released(m) => (3, codec::encode_packed(m)),
            Item::Grant(m) => (4, codec::encode_packed(m)),
            Item::Recall(m) => (5, codec::encode_packed(m)),
            Item::Query(m) => (6, codec::encode_packed(m)),
            Item::Lapsed(m) => (7, codec::encode_packed(m)),
            Item::Probe(m) => (8, codec::encode_packed(m)),
            Item::Hello(m) => (9, codec::encode_packed(m)),
            Item::HelloAck(m) => (10, codec::encode_packed(m)),
            Item::Refused(m) => (11, codec::encode_packed(m)),
            Item::AskFinal(m) => (12, codec::encode_packed(m)),
            Item::Final(m) => (13, codec::encode_packed(m)),
            Item::Going(m) => (14, codec::encode_packed(m)),
            Item::Withdrawn(m) => (15, codec::encode_packed(m)),
            Item::Through(m) => (16, codec::encode_packed(m)),
        };
        Ok(Self { code, body: ByteBuf::from(body?) })
    }

    fn decode(&self) -> Result<Option<Item>, CodecError> {
        let body = self.body.as_slice();
        Ok(Some(match self.code {
            1 => Item::Request(codec::decode(body, MAX_BATCH)?),
            2 => Item::Release(codec::decode(body, MAX_BATCH)?),
            3 => Item::Released(codec::decode(body, MAX_BATCH)?),
            4 => Item::Grant(codec::decode(body, MAX_BATCH)?),
            5 => Item::Recall(codec::decode(body, MAX_BATCH)?),
            6 => Item::Query(codec::decode(body, MAX_BATCH)?),
            7 => Item::Lapsed(codec::decode(body, MAX_BATCH)?),
            8 => Item::Probe(codec::decode(body, MAX_BATCH)?),
            9 => Item::Hello(codec::decode(body, MAX_BATCH)?),
            10 => Item::HelloAck(codec::decode(body, MAX_BATCH)?),
            11 => Item::Refused(codec::decode(body, MAX_BATCH)?),
            12 => Item::AskFinal(codec::decode(body, MAX_BATCH)?),
            13 => Item::Final(codec::decode(body, MAX_BATCH)?),
            14 => Item::Going(codec::decode(body, MAX_BATCH)?),
            15 => Item::Withdrawn(codec::decode(body, MAX_BATCH)?),
            16 => Item::Through(codec::decode(body, MAX_BATCH)?),
            _ => return Ok(None),
        }))
    }
}

/// How two incarnations relate.
impl Incarnation {
    /// Compares two lives of one state folder; none when the folders differ.
    #[must_use]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        (self.id == other.id).then(|| self.start.cmp(&other.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Batch {
        let asker = CobId::new("n1/a").expect("id");
        let asked = CobId::new("n2/b").expect("id");
        let number = Number { start: 3, counter: 9 };
        let about = About { asker: asker.clone(), asked: asked.clone(), number };
        let up = StateName::new("up").expect("state");
        Batch {
            from: HostName::new("n1").expect("host"),
            incarnation: Incarnation { id: 77, start: 3 },
            lamport: 12,
            items: vec![
                Item::Request(Request {
                    asker: asker.clone(),
                    asked: asked.clone(),
                    number,
                    rev: 0,
                    set: vec![up.clone()],
                    rank: Rank { phase: 1, generation: GenerationNumber(4), rank: 5 },
                    origin: asker.clone(),
                    fingerprint: Some(Fingerprint([7; 16])),
                    generation: Some(GenerationNumber(4)),
                    failed: false,
                }),
                Item::Grant(Grant {
                    asker,
                    asked,
                    number,
                    rev: 2,
                    state: up,
                    values: Values::from([("ip".into(), "\"::1\"".into())]),
                    folder: Some(7),
                }),
                Item::Recall(about.clone()),
                Item::Refused(Refused { about, reason: "no route".into() }),
                Item::Through(GenerationNumber(5)),
            ],
            under_way: Some(UnderWay { to: GenerationNumber(4), left: None, round: 1 }),
        }
    }

    #[test]
    fn a_host_speaks_for_its_own_change_objects() {
        let cob = |text: &str| CobId::new(text).expect("an id");
        let number = Number { start: 1, counter: 1 };
        let about = About { asker: cob("n1/a"), asked: cob("n2/b"), number };
        let host = |name: &str| HostName::new(name).expect("a name");
        for (item, speaker) in [
            (Item::Release(about.clone()), "n1"),
            (Item::Released(about.clone()), "n2"),
            (Item::Recall(about.clone()), "n2"),
            (Item::Query(about.clone()), "n2"),
            (Item::Lapsed(about.clone()), "n2"),
            (Item::Refused(Refused { about: about.clone(), reason: String::new() }), "n2"),
            (Item::Hello(Hello { kept: vec![about.clone()] }), "n1"),
        ] {
            for name in ["n1", "n2", "n3", "n"] {
                assert_eq!(item.speaks_for(&host(name)), name == speaker, "{name}: {item:?}");
            }
        }
        let finals = |cob: &str| Finals {
            from: GenerationNumber(1),
            to: GenerationNumber(2),
            turn: 0,
            cobs: vec![CobId::new(cob).expect("an id")],
        };
        assert!(Item::AskFinal(finals("n2/b")).speaks_for(&host("n1")));
        assert!(Item::Final(finals("n2/b")).speaks_for(&host("n2")));
        assert!(!Item::Final(finals("n2/b")).speaks_for(&host("n1")));
        let mixed = Hello { kept: vec![about.clone(), About { asker: cob("n3/a"), ..about }] };
        assert!(!Item::Hello(mixed).speaks_for(&host("n1")));
        assert!(Item::Hello(Hello { kept: Vec::new() }).speaks_for(&host("n1")));
    }

    #[test]
    fn a_batch_survives_the_wire() {
        let batch = sample();
        let bytes = batch.encode().expect("encodes");
        assert_eq!(Batch::decode(&bytes).expect("decodes"), Received { batch, unknown: 0 });
    }

    #[test]
    fn a_batch_says_nothing_of_switches_as_the_version_before_did_when_there_is_none_to_speak_of() {
        #[derive(Serialize, Deserialize)]
        struct Before {
            from: HostName,
            incarnation: Incarnation,
            lamport: u64,
            items: Vec<WireItem>,
        }
        let said = sample().encode().expect("encodes");
        let before: Before = codec::decode(&said[2..], MAX_BATCH).expect("what is new is skipped");
        let silent = Batch { under_way: None, ..sample() };
        let bytes = [&said[..2], &codec::encode_packed(&before).expect("encodes")].concat();
        assert_eq!(silent.encode().expect("encodes"), bytes);
        assert_eq!(Batch::decode(&bytes).expect("decodes").batch, silent);
    }

    #[test]
    fn a_grant_is_understood_by_the_version_before() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Before {
            asker: CobId,
            asked: CobId,
            number: Number,
            rev: u64,
            state: StateName,
            values: Values,
        }
        let Some(Item::Grant(grant)) = sample().items.into_iter().find(|item| matches!(item, Item::Grant(_))) else {
            panic!("the sample has a grant")
        };
        let said = codec::encode_packed(&grant).expect("encodes");
        let before: Before = codec::decode(&said, MAX_BATCH).expect("what is new is skipped");
        let heard: Grant = codec::decode(&codec::encode_packed(&before).expect("encodes"), MAX_BATCH).expect("decodes");
        assert_eq!(heard, Grant { folder: None, ..grant });
    }

    #[test]
    fn a_switch_is_announced_as_the_version_before_did_where_the_manifest_is_not_known() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Before {
            generation: GenerationNumber,
            policy: SwitchPolicy,
            round: u32,
        }
        let before = Before { generation: GenerationNumber(7), policy: SwitchPolicy::default(), round: 2 };
        let going =
            |manifest| Going { generation: GenerationNumber(7), policy: SwitchPolicy::default(), round: 2, manifest };
        let old = codec::encode_packed(&before).expect("encodes");
        assert_eq!(codec::encode_packed(&going(None)).expect("encodes"), old);
        assert_eq!(codec::decode::<Going>(&old, MAX_BATCH).expect("decodes"), going(None));
        let new = going(Some(BlobHash([9; 32])));
        let bytes = codec::encode_packed(&new).expect("encodes");
        assert_eq!(codec::decode::<Going>(&bytes, MAX_BATCH).expect("decodes"), new);
        assert_eq!(codec::decode::<Before>(&bytes, MAX_BATCH).expect("the older version reads it"), before);
    }

    #[test]
    fn a_newer_item_is_counted_and_the_rest_is_read() {
        let mut bytes = sample().encode().expect("encodes");
        let mut wire: WireBatch = codec::decode(&bytes[2..], MAX_BATCH).expect("decodes");
        wire.items[1].code = 999;
        bytes.truncate(2);
        bytes.extend(codec::encode_packed(&wire).expect("encodes"));
        let received = Batch::decode(&bytes).expect("decodes");
        assert_eq!((received.batch.items.len(), received.unknown), (sample().items.len() - 1, 1));
    }

    #[test]
    fn a_newer_protocol_is_refused() {
        let mut bytes = sample().encode().expect("encodes");
        bytes[..2].copy_from_slice(&2u16.to_be_bytes());
        let error = Batch::decode(&bytes).expect_err("refused");
        assert!(error.to_string().contains("version 2"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..512)) {
            let _ = Batch::decode(&bytes);
        }

        #[test]
        fn a_batch_with_a_changed_byte_never_panics(at in 0usize..400, to in proptest::num::u8::ANY) {
            let mut bytes = sample().encode().expect("encodes");
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = Batch::decode(&bytes);
        }
    }
}
