//! The messages between two daemons: the lock protocol, in batches.
//!
//! Meaning and answers: `docs/lock-protocol.md`. Any message may be lost, duplicated or overtaken; every message
//! carries the number of its request.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_with::skip_serializing_none;

use crate::cob::Fingerprint;
use crate::codec::{self, CodecError};
use crate::id::{BlobHash, CobId, GenerationNumber, HostName, StateName};
use crate::switch::SwitchPolicy;

/// The protocol version of this program.
pub const PROTOCOL: u16 = 1;
/// The largest batch, in bytes.
pub const MAX_BATCH: usize = 1 << 20;
/// The longest path in a probe; a longer path sets `more`.
pub const MAX_PROBE_PATH: usize = 32;
/// The most bytes of exported values that a grant carries.
pub const MAX_VALUES: usize = 64 << 10;

/// Values that a change object exports in a state, by name; canonical JSON each.
pub type Values = BTreeMap<String, String>;

/// An incarnation of a daemon: a random id made with its state folder, and the number of its starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Random, made with the state folder: a reinstalled host has another id.
    pub id: u64,
    /// Grows at each start.
    pub start: u32,
}

/// The number of a request: unique for its requester, growing. Packed without alignment, because each lock, request and
/// probe trace has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(C, packed(4))]
pub struct Number {
    /// The start of the daemon that made it.
    pub start: u32,
    /// Grows within a start.
    pub counter: u64,
}

/// Whether a request serves a departure. Departures have the lower number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RankPhase(u8);

impl RankPhase {
    /// On behalf of a departing change object.
    pub const DEPARTURE: Self = Self(0);
    /// On behalf of a change object that stays in the model.
    pub const STAY: Self = Self(1);

    /// Whether the request serves a departure.
    #[must_use]
    pub fn is_departure(self) -> bool {
        self == Self::DEPARTURE
    }
}

impl From<RankPhase> for u8 {
    fn from(phase: RankPhase) -> Self {
        phase.0
    }
}

/// The rank of a request: in an ordered change object the lower rank goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank {
    /// Departures are served first.
    pub phase: RankPhase,
    /// The generation that numbered the goal.
    pub generation: GenerationNumber,
    /// The goal's number in it.
    pub rank: u64,
}

impl Rank {
    /// Behind all other ranks.
    pub const LAST: Rank = Rank { phase: RankPhase(u8::MAX), generation: GenerationNumber(u64::MAX), rank: u64::MAX };
}

/// All messages of a daemon for another daemon in a tick of its loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The sender.
    pub from: HostName,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The sender's Lamport number.
    pub lamport: u64,
    /// The messages.
    pub items: Vec<Item>,
    /// The sender's switch under way: its requests belong to this switch.
    pub under_way: Option<UnderWay>,
}

/// A switch of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// Its goal.
    pub to: GenerationNumber,
    /// During a rollback: the generation that is rolled back.
    pub left: Option<GenerationNumber>,
    /// As in [`Going`].
    pub round: u32,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// Requests a state lock, or revises a request.
    Request(Request),
    /// Releases this number and all lower numbers.
    Release(About),
    /// Confirms a release.
    Released(About),
    /// Grants a state.
    Grant(Grant),
    /// Recalls a grant.
    Recall(About),
    /// Asks whether a request still stands.
    Query(About),
    /// The grant is invalidated: the depended-on change object was found in another state.
    Invalidated(About),
    /// Searches for a deadlock.
    Probe(Probe),
    /// The first message of an incarnation: the locks that it kept.
    Hello(Hello),
    /// Answers a hello.
    HelloAck(HelloAck),
    /// The request can't be served: no transitions lead to any state of its set.
    Refused(Refused),
    /// Asks which change objects of the receiving host have departed in a switch.
    AskDepartures(DepartureReport),
    /// These change objects of the sending host have departed in a switch.
    Departures(DepartureReport),
    /// Announces the generation that this host was ordered to activate: hosts that are not there yet follow.
    Going(Going),
    /// Announces a rollback: hosts that have activated the generation roll back, too.
    Withdrawn(Withdrawn),
    /// A removed host is drained: it has converged in this generation, which lacks it, and is done with the receiver.
    Through(GenerationNumber),
}

/// A pair and a number: the shape of most messages. `asker` is always the dependent, in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The dependent.
    pub asker: CobId,
    /// The depended-on change object.
    pub asked: CobId,
    /// The number of the request.
    pub number: Number,
}

/// A request for a state lock.
#[skip_serializing_none]
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
    /// Acceptable states, in order of preference.
    pub set: Vec<StateName>,
    /// The rank of the actor's goal.
    pub rank: Rank,
    /// The change object whose own desired state began the chain.
    pub origin: CobId,
    /// The fingerprint of the asked change object that the asker expects.
    #[serialize_always]
    pub fingerprint: Option<Fingerprint>,
    /// The active generation of the asker's host, which has a dependency that justifies the request; absent: the
    /// asker's daemon has an earlier version.
    pub generation: Option<GenerationNumber>,
    /// The asker has failed, and keeps its locks until an order: a budget then gives no more tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A grant.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The dependent.
    pub asker: CobId,
    /// The depended-on change object.
    pub asked: CobId,
    /// The request's number.
    pub number: Number,
    /// The newest revision of the request that the grantor has seen.
    pub rev: u64,
    /// The granted state.
    pub state: StateName,
    /// The values that the depended-on change object exports in it.
    pub values: Values,
    /// The state folder ([`Incarnation::id`]) of the requesting host. A reinstalled host uses the same numbers again,
    /// and must not take a grant to its predecessor. `None`: the grantor does not tell.
    pub folder: Option<u64>,
}

/// A refusal, with its reason.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The pair and number.
    pub about: About,
    /// The reason, for people.
    pub reason: String,
    /// The state from which no route leads to a requested state; absent: another reason, or a daemon of an earlier
    /// version.
    pub from: Option<StateName>,
}

/// Travels along the change objects that wait for each other; if it returns to its initiator, there is a deadlock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The change object to which it is forwarded.
    pub to: CobId,
    /// The change object that started it.
    pub initiator: CobId,
    /// Number of the probe, unique and growing for its initiator.
    pub number: Number,
    /// The initiator's generation.
    pub generation: GenerationNumber,
    /// The change objects on its way, at most [`MAX_PROBE_PATH`].
    pub path: Vec<CobId>,
    /// The path was longer.
    pub more: bool,
    /// Forwarded along all waits; otherwise along a single wait.
    pub wide: bool,
}

/// The first message of an incarnation, repeated until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Kept locks of earlier incarnations: a running action or a grant uses them.
    pub kept: Vec<About>,
}

/// The answer: which of the kept locks are granted, and in which state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloAck {
    /// The incarnation of the hello.
    pub incarnation: Incarnation,
    /// The locks of the hello that are granted here.
    pub granted: Vec<Grant>,
}

/// Change objects of a host that have departed in a switch, or that a host asks about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepartureReport {
    /// The active generation of the asking host.
    pub from: GenerationNumber,
    /// The generation to which it switches.
    pub to: GenerationNumber,
    /// The epoch: the number of switches that the sender knows to have ended early, by a rollback or for a newer
    /// generation. A departure in an abandoned switch no longer counts: two hosts accept each other's departures only
    /// in the same epoch.
    #[serde(rename = "turn")]
    pub epoch: u64,
    /// The change objects; in an answer without any, only the epoch counts.
    pub cobs: Vec<CobId>,
}

/// The most change objects in a [`DepartureReport`]: more are split over several.
pub const MAX_DEPARTURES: usize = 1000;
/// A host is switching to a generation, or has activated it. Only a pointer: the receiver acts only if the generation
/// is published and newer.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Going {
    /// The generation.
    pub generation: GenerationNumber,
    /// The policy of the order.
    pub policy: SwitchPolicy,
    /// How often the generation was ordered again after a rollback.
    pub round: u32,
    /// Hash of the generation's manifest: a host that knows another content under the number does not follow. Daemons
    /// of the previous version do not send it.
    pub manifest: Option<BlobHash>,
}

/// A host has rolled back from a generation, or is about to.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// The generation that is rolled back.
    pub generation: GenerationNumber,
    /// The generation that becomes active again.
    pub to: GenerationNumber,
    /// The round of [`Going`] that ends, with all earlier rounds.
    pub round: u32,
    /// An operator ordered it; otherwise the switch policy demands it.
    pub ordered: bool,
    /// The reason, for people.
    pub why: String,
    /// Hash of the manifest of the generation that is rolled back, as in [`Going`].
    pub manifest: Option<BlobHash>,
    /// The order was a cancel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

/// The longest reason of a rollback that is kept, in bytes.
pub const MAX_WHY: usize = 500;

impl Item {
    /// Whether the message speaks only for change objects of this host.
    #[must_use]
    pub fn speaks_for(&self, host: &HostName) -> bool {
        let own = |cob: &CobId| cob.host_str() == host.as_str();
        match self {
            Item::Request(request) => own(&request.asker),
            Item::Release(about) => own(&about.asker),
            Item::Released(about) | Item::Recall(about) | Item::Query(about) | Item::Invalidated(about) => {
                own(&about.asked)
            }
            Item::Grant(grant) => own(&grant.asked),
            Item::Refused(refused) => own(&refused.about.asked),
            Item::Probe(probe) => probe.path.last().is_some_and(own),
            Item::Hello(hello) => hello.kept.iter().all(|about| own(&about.asker)),
            Item::HelloAck(ack) => ack.granted.iter().all(|grant| own(&grant.asked)),
            // Asked of the receiver; the link tells the sender.
            Item::AskDepartures(_) => true,
            Item::Departures(finals) => finals.cobs.iter().all(own),
            Item::Going(_) | Item::Withdrawn(_) | Item::Through(_) => true,
        }
    }

    /// Whether the receiving host may have to change the state of a change object for it.
    #[must_use]
    pub fn may_move(&self) -> bool {
        matches!(self, Item::Request(_) | Item::Release(_) | Item::Recall(_))
    }

    /// Whether it is about the host's place in a switch, and not about a change object.
    #[must_use]
    pub fn is_of_switches(&self) -> bool {
        matches!(self, Item::Going(_) | Item::Withdrawn(_) | Item::Through(_))
    }

    /// All [names](Self::name).
    pub const NAMES: [&'static str; 16] = [
        "request",
        "release",
        "released",
        "grant",
        "recall",
        "query",
        "lapsed",
        "probe",
        "hello",
        "hello-ack",
        "refused",
        "ask-final",
        "final",
        "going",
        "withdrawn",
        "through",
    ];

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
            Item::Invalidated(_) => "lapsed",
            Item::Probe(_) => "probe",
            Item::Hello(_) => "hello",
            Item::HelloAck(_) => "hello-ack",
            Item::Refused(_) => "refused",
            Item::AskDepartures(_) => "ask-final",
            Item::Departures(_) => "final",
            Item::Going(_) => "going",
            Item::Withdrawn(_) => "withdrawn",
            Item::Through(_) => "through",
        }
    }
}

/// The outer form of a message: an unknown code is skipped and counted, and does not spoil the batch.
#[derive(Serialize, Deserialize)]
struct WireItem {
    code: u16,
    body: ByteBuf,
}

/// Follows the protocol version (two bytes, big-endian), so that a batch of another version is recognised before any
/// other byte is read.
#[skip_serializing_none]
#[derive(Serialize, Deserialize)]
struct WireBatch {
    from: HostName,
    incarnation: Incarnation,
    lamport: u64,
    items: Vec<WireItem>,
    under_way: Option<UnderWay>,
}

/// A decoded batch, and the number of unknown messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedBatch {
    /// The known messages.
    pub batch: Batch,
    /// Messages with a code that this version does not know.
    pub unknown: usize,
}

/// The reason why a batch was refused.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The sender speaks an unsupported version.
    #[error("protocol version {0} is not supported (this program supports {PROTOCOL})")]
    Version(u16),
    /// Shorter than a version.
    #[error("a batch of less than two bytes")]
    Short,
    /// The bytes are not a batch.
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

    /// Decodes the bytes of [`Batch::encode`]; unknown messages are counted.
    ///
    /// # Errors
    /// [`BatchError`] for another version, and for bytes that are no batch.
    pub fn decode(bytes: &[u8]) -> Result<ReceivedBatch, BatchError> {
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
        Ok(ReceivedBatch { batch, unknown })
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
            Item::Invalidated(m) => (7, codec::encode_packed(m)),
            Item::Probe(m) => (8, codec::encode_packed(m)),
            Item::Hello(m) => (9, codec::encode_packed(m)),
            Item::HelloAck(m) => (10, codec::encode_packed(m)),
            Item::Refused(m) => (11, codec::encode_packed(m)),
            Item::AskDepartures(m) => (12, codec::encode_packed(m)),
            Item::Departures(m) => (13, codec::encode_packed(m)),
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
            7 => Item::Invalidated(codec::decode(body, MAX_BATCH)?),
            8 => Item::Probe(codec::decode(body, MAX_BATCH)?),
            9 => Item::Hello(codec::decode(body, MAX_BATCH)?),
            10 => Item::HelloAck(codec::decode(body, MAX_BATCH)?),
            11 => Item::Refused(codec::decode(body, MAX_BATCH)?),
            12 => Item::AskDepartures(codec::decode(body, MAX_BATCH)?),
            13 => Item::Departures(codec::decode(body, MAX_BATCH)?),
            14 => Item::Going(codec::decode(body, MAX_BATCH)?),
            15 => Item::Withdrawn(codec::decode(body, MAX_BATCH)?),
            16 => Item::Through(codec::decode(body, MAX_BATCH)?),
            _ => return Ok(None),
        }))
    }
}

/// The order of incarnations.
impl Incarnation {
    /// Compares two incarnations of a state folder; `None` if the folders differ.
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
                    rank: Rank { phase: RankPhase::STAY, generation: GenerationNumber(4), rank: 5 },
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
                Item::Refused(Refused { about, reason: "no route".into(), from: None }),
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
            (Item::Invalidated(about.clone()), "n2"),
            (Item::Refused(Refused { about: about.clone(), reason: String::new(), from: None }), "n2"),
            (Item::Hello(Hello { kept: vec![about.clone()] }), "n1"),
        ] {
            for name in ["n1", "n2", "n3", "n"] {
                assert_eq!(item.speaks_for(&host(name)), name == speaker, "{name}: {item:?}");
            }
        }
        let finals = |cob: &str| DepartureReport {
            from: GenerationNumber(1),
            to: GenerationNumber(2),
            epoch: 0,
            cobs: vec![CobId::new(cob).expect("an id")],
        };
        assert!(Item::AskDepartures(finals("n2/b")).speaks_for(&host("n1")));
        assert!(Item::Departures(finals("n2/b")).speaks_for(&host("n2")));
        assert!(!Item::Departures(finals("n2/b")).speaks_for(&host("n1")));
        let mixed = Hello { kept: vec![about.clone(), About { asker: cob("n3/a"), ..about }] };
        assert!(!Item::Hello(mixed).speaks_for(&host("n1")));
        assert!(Item::Hello(Hello { kept: Vec::new() }).speaks_for(&host("n1")));
    }

    #[test]
    fn a_batch_survives_the_wire() {
        let batch = sample();
        let bytes = batch.encode().expect("encodes");
        assert_eq!(Batch::decode(&bytes).expect("decodes"), ReceivedBatch { batch, unknown: 0 });
    }

    #[test]
    fn a_batch_without_a_switch_is_encoded_as_in_the_version_before() {
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
