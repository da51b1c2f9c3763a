//! What people and their scripts are shown: the JSON of `cobctl status` and `cobctl explain`.
//!
//! Fields are only added. Times are nanoseconds since 1970-01-01 UTC by the clock of the host that
//! tells them.

mod cob;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, StateName};
use crate::switch::OnFailure;
use crate::trust::PublicKey;

pub use cob::{
    ActionStatus, CobStatus, EARLIER_CONTENT, FileDrift, Holder, IN_CONFLICT, Phase, Stopped, Trouble, Wait,
};

/// The cluster, as `cobctl status --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Every host that was asked.
    pub hosts: Vec<HostStatus>,
    /// Tokens of enrolment that were shown in vain, where `cobctl` may read the depot's list of them.
    #[serde(default, skip_serializing_if = "RefusedTokens::is_nothing")]
    pub refused_tokens: RefusedTokens,
    /// Hosts that know a newer generation than the depot has, and which. Only where `cobctl` knows the depot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ahead_of_depot: BTreeMap<HostName, GenerationNumber>,
}

/// Tokens that were shown to `cobgen serve` in vain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedTokens {
    /// By the host that the token is for: used already with another key, expired, shown for another host.
    pub hosts: BTreeMap<HostName, u64>,
    /// Those that nobody has made.
    pub unknown: u64,
}

impl RefusedTokens {
    /// Whether there was none.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// One host. A host that could not be reached has only its name, `reachable: false` and `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: HostName,
    /// Whether it answered.
    pub reachable: bool,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The generation that is active on it; absent: none yet, or not known.
    #[serde(default)]
    pub generation: Option<GenerationNumber>,
    /// The generation that it is switching to, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switching_to: Option<GenerationNumber>,
    /// Every change object is in its preferred state under the active generation, checked in this
    /// life of the daemon or recorded before it, and no switch is under way. Of those that are observed
    /// the state is known, whatever it is.
    pub converged: bool,
    /// No new transition starts: an operator's word.
    #[serde(default)]
    pub paused: bool,
    /// How links and orders are protected: `loopback-only` or `identities`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    /// The key by which it proves that it is this host; where its generation names none of its keys, the
    /// newest that it has. Absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PublicKey>,
    /// `tcp://IP:PORT` at which it listens for other hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// The host's clock when it answered.
    #[serde(default)]
    pub now_ns: u64,
    /// How far that was ahead of the machine's clock when the daemon was started, if by more than a minute: an earlier life had
    /// begun with a clock that was wrong, and times go on from there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_ahead_s: u64,
    /// What has gone over its links in this life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkCounters>,
    /// What it has refused within the last half to full hour, by reason.
    #[serde(default, skip_serializing_if = "Refused::is_nothing")]
    pub refused: Refused,
    /// Its links to other hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerStatus>,
    /// Requests to its API that were refused in this life of the daemon because their caller had no
    /// right to them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub denied: u64,
    /// Its change objects, by id.
    #[serde(default)]
    pub cobs: Vec<CobStatus>,
    /// What keeps it from activating the generation that it is switching to, by id; the first of them where they are
    /// many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switch_waits: Vec<SwitchWait>,
    /// The generation to which the switch was cancelled: the host stands still, as if paused, until it resumes or
    /// goes to another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<GenerationNumber>,
    /// At most so many transitions at a time: an operator's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The active generation has converged once since it was activated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub settled: bool,
    /// Generations that are here and verified, newer than the active one, and to which nobody has said `go`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepared: Vec<GenerationNumber>,
    /// The switch that it is in; or the last one, where it did not simply end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchStatus>,
    /// Budgets of this host that have so many tokens and no more: an operator's limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<CobId, u32>,
    /// Budgets of this host to which an operator gives so many tokens until the next generation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raised: BTreeMap<CobId, u32>,
    /// Promises that are broken and that somebody still counted on: its own that it let lapse, until their holders have
    /// given them back; and those of others that it held, until it has them anew. By who gave them, and who held them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lapses: Vec<Lapse>,
    /// It answers hosts that ask which change objects have left for good. Daemons of the version before do not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub says_final: bool,
    /// So many more change objects are where they should be, with nothing to be told of them. Only where it was asked
    /// for the others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_rest: u64,
    /// So many more do nothing but wait for others, or for the end of their first check. Only where no more than some of
    /// these were asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// Newer generations than the active one that were withdrawn here: only an order that names one leads there again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withdrawn: Vec<GenerationNumber>,
    /// It tells no other host of the generation that it has or goes to: the `go` was for it alone, or was cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alone: bool,
    /// The generation that it had before the switch that it is in, or was in last: the hosts of that may still be leaving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_from: Option<GenerationNumber>,
    /// Hash of the manifest of the active generation: two generations may bear one number where a depot was restored.
    #[serde(default, with = "crate::id::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
    /// The newest generation that the host has ever had, been told to go to, or prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_known: Option<GenerationId>,
    /// By how many milliseconds its clock was ahead of the clock of whoever asked, when it answered; negative: behind. The
    /// one who asks finds it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<i64>,
    /// Requests of other hosts that were refused within the last hour because no dependency justifies them, by host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unjustified: Vec<Unjustified>,
    /// Hosts that were removed and have said that they have left, with the last generation that names each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drained: BTreeMap<HostName, GenerationNumber>,
    /// The active generation does not say which change objects of other hosts may ask this host for what: it was made by an
    /// earlier version of `cobgen`, and every request counts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asked_by_anybody: bool,
}

/// The generations that a host knows, as it tells whoever is about to publish one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownGenerations {
    /// The host.
    pub host: HostName,
    /// The newest first, at most [`KnownGenerations::MOST`].
    pub known: Vec<GenerationId>,
}

impl KnownGenerations {
    /// Where a daemon tells them.
    pub const PATH: &'static str = "/v1/generations";
    /// So many are told.
    pub const MOST: usize = 32;
}

/// Requests of one host that were refused because no dependency justifies them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unjustified {
    /// The host.
    pub host: HostName,
    /// How many in this life of the daemon that refused them.
    pub requests: u64,
    /// When the last one came.
    pub last_ns: u64,
    /// The change object that asked last.
    pub asker: CobId,
    /// The change object that it asked.
    pub asked: CobId,
    /// The states that it asked for.
    pub states: Vec<StateName>,
    /// The generation that it named; absent: its daemon is of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
}

/// A promise that is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lapse {
    /// Who gave it.
    pub of: CobId,
    /// Who held it.
    pub held_by: CobId,
    /// Since when the host that tells this knows of it.
    pub since_ns: u64,
    /// Why.
    pub cause: LapseCause,
}

/// Why a promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LapseCause {
    /// The guard of a switch brought the giver's host back while the holder's was out of reach.
    Guard,
    /// A check found the giver elsewhere than promised.
    Drift,
    /// Its giver has said so: why, the giver's host tells.
    Told,
    /// A cause that a newer daemon knows, and this program does not.
    #[serde(other)]
    Other,
}

/// A switch, as one host sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// The generation that it leads to; on the way there the host may activate others.
    pub to: GenerationNumber,
    /// Where it is.
    pub stage: SwitchStage,
    /// On a return: the generation that was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<GenerationNumber>,
    /// Why it was withdrawn, or why the return has stopped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What a failure leads to.
    pub on_failure: OnFailure,
    /// What is left of the time in which the host must reach others; absent: no guard, or it is satisfied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_left_ms: Option<u64>,
    /// The hosts that the guard asks for and that are not reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<HostName>,
    /// After a return: moves of the withdrawn generation that can't be taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remains: Vec<MadeMove>,
    /// On a return: an operator has ordered it; else the policy of the switch, or the guard.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ordered: bool,
    /// Hash of the manifest of the generation that it leads to, where that is known.
    #[serde(default, with = "crate::id::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
}

/// Where a switch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchStage {
    /// It goes on.
    Going,
    /// The host has converged.
    Settled,
    /// A return has failed: it is for people now.
    Stopped,
}

/// A move that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeMove {
    /// Of which change object.
    pub cob: CobId,
    /// The state that was left.
    pub from: StateName,
    /// The state that was entered.
    pub to: StateName,
}

impl HostStatus {
    /// How many change objects it tells of, listed or not.
    #[must_use]
    pub fn cob_count(&self) -> u64 {
        self.at_rest.saturating_add(self.waiting).saturating_add(self.cobs.len() as u64)
    }

    /// Where it is being switched to, by however many steps: `switching_to` may be one on the way.
    #[must_use]
    pub fn goal(&self) -> Option<GenerationNumber> {
        let going = self.switch.as_ref().filter(|switch| switch.stage == SwitchStage::Going).map(|switch| switch.to);
        self.switching_to.max(going.filter(|to| Some(*to) > self.generation))
    }

    /// The newest generation that it has or is being switched to.
    #[must_use]
    pub fn newest(&self) -> Option<GenerationNumber> {
        self.generation.max(self.goal())
    }

    /// A host of which nothing is known but its name.
    #[must_use]
    pub fn unknown(name: HostName) -> Self {
        Self {
            name,
            reachable: false,
            error: None,
            generation: None,
            switching_to: None,
            converged: false,
            paused: false,
            security: None,
            identity: None,
            listen: None,
            now_ns: 0,
            clock_ahead_s: 0,
            links: None,
            refused: Refused::default(),
            peers: Vec::new(),
            denied: 0,
            cobs: Vec::new(),
            switch_waits: Vec::new(),
            held: None,
            limit: None,
            settled: false,
            prepared: Vec::new(),
            switch: None,
            limits: BTreeMap::new(),
            raised: BTreeMap::new(),
            lapses: Vec::new(),
            says_final: false,
            at_rest: 0,
            waiting: 0,
            withdrawn: Vec::new(),
            alone: false,
            came_from: None,
            manifest: None,
            newest_known: None,
            clock_offset_ms: None,
            unjustified: Vec::new(),
            drained: BTreeMap::new(),
            asked_by_anybody: false,
        }
    }
}

/// What a daemon has sent away of late: connections, and what came over links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// Connections of strangers: a key that no generation at hand names, no key where one is due, or a
    /// host that is not in the model.
    pub stranger: u64,
    /// Connections with a key that was revoked.
    pub revoked: u64,
    /// Hosts that were dialled and did not hold their key.
    pub wrong_key: u64,
    /// Connections that spoke no TLS 1.3 where it is due.
    pub not_tls: u64,
    /// Whatever was said in the name of another host.
    pub foreign_name: u64,
    /// Bytes that were recorded elsewhere or changed on their way, and hellos of earlier lives.
    pub replayed: u64,
    /// Connections that were silent, or made room for others before they had proved who they are.
    pub slow: u64,
    /// Connections that broke the rules of TLS or of the link.
    pub broken: u64,
}

impl Refused {
    /// Whether nothing was refused.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Every reason with its count, in the words of the JSON.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 8] {
        let Self { stranger, revoked, wrong_key, not_tls, foreign_name, replayed, slow, broken } = *self;
        [
            ("stranger", stranger),
            ("revoked", revoked),
            ("wrong_key", wrong_key),
            ("not_tls", not_tls),
            ("foreign_name", foreign_name),
            ("replayed", replayed),
            ("slow", slow),
            ("broken", broken),
        ]
    }
}

impl std::ops::Add for Refused {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            stranger: self.stranger + other.stranger,
            revoked: self.revoked + other.revoked,
            wrong_key: self.wrong_key + other.wrong_key,
            not_tls: self.not_tls + other.not_tls,
            foreign_name: self.foreign_name + other.foreign_name,
            replayed: self.replayed + other.replayed,
            slow: self.slow + other.slow,
            broken: self.broken + other.broken,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What has gone over the links of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Batches sent, repetitions included.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Batches received.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Batches given up: the queue was full, or the host began another life.
    pub dropped: u64,
}

/// One link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The host at its other end.
    pub host: HostName,
    /// Whether the link is up.
    pub up: bool,
    /// Since when it has been so.
    pub since_ns: u64,
    /// Why it is not, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the daemon at its other end says does not count here, link or not, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unheard: Option<Unheard>,
    /// An operator has fenced it, there is no link to it, and no later life of its daemon has spoken since.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fenced: bool,
}

/// Why what a daemon says does not count at another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unheard {
    /// This life of it was fenced by an operator.
    Fenced,
    /// Another state folder has spoken in the host's name since.
    Replaced,
    /// A reason that a newer daemon knows, and this program does not.
    #[serde(other)]
    Other,
}

/// What keeps a host from activating the generation that it goes to: a change object that leaves, here or elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchWait {
    /// Which.
    pub cob: CobId,
    /// Since when the host goes to the next generation.
    pub since_ns: u64,
    /// It is of another host, which was asked so often whether it is final.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_daemon_gives_as_a_reason_is_read_as_something_else() {
        let wait = r#"{"reason": "moon-phase", "until": "new moon"}"#;
        assert_eq!(serde_json::from_str::<Wait>(wait).expect("read"), Wait::Other);
        let trouble = r#"{"trouble": "tides", "high": [1, 2]}"#;
        assert_eq!(serde_json::from_str::<Trouble>(trouble).expect("read"), Trouble::Other);
        serde_json::from_str::<Wait>(r#"{"until": 3}"#).expect_err("no reason at all");
        assert_eq!(serde_json::from_str::<LapseCause>(r#""full-moon""#).expect("read"), LapseCause::Other);
    }
}
