//! The JSON of `cobctl status` and `cobctl explain`, for people and their scripts.
//!
//! Fields are only added. Times are nanoseconds since 1970-01-01 UTC by the clock of the host that reports them.

mod cob;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::id::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, StateName};
use crate::maintenance::SharedWindows;
use crate::switch::OnFailure;
use crate::trust::PublicKey;

pub use cob::{
    ActionStatus, CobStatus, EARLIER_CONTENT, FileDrift, Holder, IN_CONFLICT, Phase, Stopped, Trouble, Wait,
};

/// The cluster, as in `cobctl status --json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The queried hosts.
    pub hosts: Vec<HostStatus>,
    /// Refused enrolment tokens, if `cobctl` may read the depot's list of them.
    #[serde(default, skip_serializing_if = "RefusedTokens::is_nothing")]
    pub refused_tokens: RefusedTokens,
    /// Hosts that know a newer generation than the depot has, with its number; only if `cobctl` knows the depot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ahead_of_depot: BTreeMap<HostName, GenerationNumber>,
}

/// Enrolment tokens that `cobgen serve` refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedTokens {
    /// By the host of the token: already used with another key, expired, or shown for another host.
    pub hosts: BTreeMap<HostName, u64>,
    /// Tokens that do not exist.
    pub unknown: u64,
}

impl RefusedTokens {
    /// Whether there are no refused tokens.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A host. An unreachable host has only its name, `reachable: false` and `error`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostStatus {
    /// Its name.
    pub name: HostName,
    /// Whether it answered.
    pub reachable: bool,
    /// Why it did not answer.
    pub error: Option<String>,
    /// Its active generation; absent: no generation yet, or not known.
    #[serde(default)]
    #[serialize_always]
    pub generation: Option<GenerationNumber>,
    /// The generation to which it switches, if a switch is under way.
    pub switching_to: Option<GenerationNumber>,
    /// Every change object is in its preferred state under the active generation, according to a check of this
    /// incarnation or to the record of an earlier one, and no switch is under way. Of observed change objects any known
    /// state counts.
    pub converged: bool,
    /// An operator has paused the host: no new transition starts.
    #[serde(default)]
    pub paused: bool,
    /// The protection of links and orders: `loopback-only` or `identities`.
    pub security: Option<String>,
    /// The key with which the host proves its identity; its newest key if its generation does not name its keys.
    /// Absent: it has no key.
    pub identity: Option<PublicKey>,
    /// `tcp://IP:PORT` where it listens for other hosts.
    pub listen: Option<String>,
    /// The number of boots of its machine that its daemons have seen, with the present one; zero: not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub boots: u64,
    /// The host's clock at its answer.
    #[serde(default)]
    pub now_ns: u64,
    /// How far the daemon's clock was ahead of the machine's clock at its start, if by more than a minute: an earlier
    /// incarnation had started with a wrong clock, and times continue from there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_ahead_s: u64,
    /// The traffic of its links in this incarnation.
    pub links: Option<LinkCounters>,
    /// Refusals of the last 30 to 60 minutes, by reason.
    #[serde(default, skip_serializing_if = "RefusalCounts::is_nothing")]
    pub refused: RefusalCounts,
    /// Its links to other hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerStatus>,
    /// API requests that were refused in this incarnation because the caller lacked the right.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub denied: u64,
    /// Its change objects, by id.
    #[serde(default)]
    pub cobs: Vec<CobStatus>,
    /// The departing change objects that keep the host from activating its next generation, by id; only the first of
    /// many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switch_waits: Vec<SwitchWait>,
    /// The generation whose switch was cancelled: the host is paused until it resumes or switches elsewhere.
    pub held: Option<GenerationNumber>,
    /// An operator's limit of concurrent transitions.
    pub limit: Option<u32>,
    /// The active generation has converged at least once since its activation.
    #[serde(default, skip_serializing_if = "is_false")]
    pub settled: bool,
    /// Prepared (verified) generations that are newer than the active generation, and that no order activates yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepared: Vec<GenerationNumber>,
    /// The switch under way; or the last switch, unless it simply converged.
    pub switch: Option<SwitchStatus>,
    /// Budgets of this host whose tokens an operator has limited to this number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<CobId, u32>,
    /// Budgets of this host whose tokens an operator has raised to this number until the next generation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raised: BTreeMap<CobId, u32>,
    /// Invalidated grants that still matter, with grantor and holder: grants of this host until their holders
    /// have released them, and grants that this host held until it holds them anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "lapses")]
    pub invalid_grants: Vec<InvalidGrant>,
    /// The host answers the question which of its change objects have departed. Daemons of the previous version do not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub says_final: bool,
    /// The number of further change objects in their desired state, without a report. Only if the query excluded them.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[serde(rename = "at_rest")]
    pub idle: u64,
    /// The number of further change objects that only wait for others, or for the end of their first check. Only if the
    /// query limited their list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// Newer generations than the active one that were rolled back here: only an order that names one activates it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withdrawn: Vec<GenerationNumber>,
    /// The host does not announce its generation to others: the order was for this host alone, or was cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alone: bool,
    /// The generation before the present or last switch: its hosts may still be departing.
    pub came_from: Option<GenerationNumber>,
    /// Hash of the active generation's manifest: after the restore of a depot, two generations may have the same
    /// number.
    #[serde(default, with = "crate::id::hex_if_any")]
    #[schemars(with = "Option<BlobHash>")]
    pub manifest: Option<BlobHash>,
    /// The newest generation that the host has ever activated, prepared, or been ordered to activate.
    pub newest_known: Option<GenerationId>,
    /// How many milliseconds the host's clock was ahead of the client's clock; negative: behind. Filled in by the
    /// client.
    pub clock_offset_ms: Option<i64>,
    /// Requests of other hosts that were refused within the last hour because no dependency justifies them, by host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unjustified: Vec<Unjustified>,
    /// Removed hosts that have reported their departure, with the last generation that names each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drained: BTreeMap<HostName, GenerationNumber>,
    /// The active generation does not say which change objects of other hosts may send requests to this host: an
    /// earlier version of `cobgen` made it, and every request counts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asked_by_anybody: bool,
    /// The order of a switch that waits for maintenance windows.
    pub window_wait: Option<WindowWait>,
}

/// The order of a switch that waits for the maintenance windows of the hosts that it changes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowWait {
    /// The generation.
    pub to: GenerationNumber,
    /// The author of the order: an operator, a schedule, or the depot that the host follows.
    pub by: String,
    /// When the order was taken.
    pub since_ns: u64,
    /// The windows; the switch starts when the windows of all hosts are open together.
    pub windows: SharedWindows,
    /// The seconds until it may start, zero if it starts now; absent if the windows are never open together.
    pub opens_in_s: Option<u64>,
}

/// The generations that a host knows, for a publisher that is about to publish another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnownGenerations {
    /// The host.
    pub host: HostName,
    /// The newest first, at most 32.
    pub known: Vec<GenerationId>,
}

impl KnownGenerations {
    /// The path of the daemon's API.
    pub const PATH: &'static str = "/v1/generations";
    /// The most generations in an answer.
    pub const MOST: usize = 32;
}

/// Requests of a host that were refused because no dependency justifies them.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unjustified {
    /// The host.
    pub host: HostName,
    /// Their number in this incarnation of the refusing daemon.
    pub requests: u64,
    /// When the last request arrived.
    pub last_ns: u64,
    /// The change object that sent the last request.
    pub asker: CobId,
    /// The change object that received it.
    pub asked: CobId,
    /// The requested states.
    pub states: Vec<StateName>,
    /// The generation in the request; absent: the daemon has an earlier version.
    pub generation: Option<GenerationNumber>,
}

/// An invalidated grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InvalidGrant {
    /// The grantor.
    pub of: CobId,
    /// The holder.
    pub held_by: CobId,
    /// Since when the reporting host knows.
    pub since_ns: u64,
    /// The cause.
    pub cause: InvalidGrantCause,
}

/// The cause of an invalidated grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidGrantCause {
    /// The connectivity guard rolled the grantor's host back while the holder's host was out of reach.
    Guard,
    /// A check found the grantor in another state than granted.
    Drift,
    /// The grantor has announced it; the grantor's host knows the cause.
    Told,
    /// A cause that only a newer version knows.
    #[serde(other)]
    Other,
}

/// A switch, as seen by a host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchStatus {
    /// Its goal; on the way there the host may activate other generations.
    pub to: GenerationNumber,
    /// Its stage.
    pub stage: SwitchStage,
    /// During a rollback: the generation that is rolled back.
    pub left: Option<GenerationNumber>,
    /// Why it was rolled back, or why the rollback has stopped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The reaction to a failure.
    pub on_failure: OnFailure,
    /// The rest of the time in which the host must reach others; absent: no guard, or it is satisfied.
    pub guard_left_ms: Option<u64>,
    /// The hosts that the guard requires and that are not reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<HostName>,
    /// After a rollback: transitions of the rolled-back generation that can't be reverted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remains: Vec<MadeTransition>,
    /// During a rollback: an operator ordered it; otherwise the switch policy or the guard did.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ordered: bool,
    /// Hash of the goal's manifest, if known.
    #[serde(default, with = "crate::id::hex_if_any")]
    #[schemars(with = "Option<BlobHash>")]
    pub manifest: Option<BlobHash>,
}

/// The stage of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchStage {
    /// It is under way.
    Going,
    /// The host has converged.
    Settled,
    /// The rollback has failed, and an operator has to act.
    Stopped,
}

/// A transition that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MadeTransition {
    /// The change object.
    pub cob: CobId,
    /// The state before.
    pub from: StateName,
    /// The state after.
    pub to: StateName,
}

impl HostStatus {
    /// The number of its change objects, listed or not.
    #[must_use]
    pub fn cob_count(&self) -> u64 {
        self.idle.saturating_add(self.waiting).saturating_add(self.cobs.len() as u64)
    }

    /// The goal of the switch under way, over any number of steps: `switching_to` may be a step.
    #[must_use]
    pub fn goal(&self) -> Option<GenerationNumber> {
        let going = self.switch.as_ref().filter(|switch| switch.stage == SwitchStage::Going).map(|switch| switch.to);
        self.switching_to.max(going.filter(|to| Some(*to) > self.generation))
    }

    /// The newest generation that is active or the goal of a switch.
    #[must_use]
    pub fn newest(&self) -> Option<GenerationNumber> {
        self.generation.max(self.goal())
    }

    /// A host of which only the name is known.
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
            boots: 0,
            now_ns: 0,
            clock_ahead_s: 0,
            links: None,
            refused: RefusalCounts::default(),
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
            invalid_grants: Vec::new(),
            says_final: false,
            idle: 0,
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
            window_wait: None,
        }
    }
}

/// Connections and link data that a daemon has recently refused, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RefusalCounts {
    /// Unknown connections: a key that no present generation names, no key although required, or a host that is not in
    /// the model.
    pub stranger: u64,
    /// Connections with a revoked key.
    pub revoked: u64,
    /// Dialled hosts that did not have their key.
    pub wrong_key: u64,
    /// Connections without TLS 1.3 although required.
    pub not_tls: u64,
    /// Messages in the name of another host.
    pub foreign_name: u64,
    /// Bytes that were replayed or altered on their way, and hellos of earlier incarnations.
    pub replayed: u64,
    /// Connections that stayed silent, or were dropped for others before they had authenticated.
    pub slow: u64,
    /// Connections that violated the protocol of TLS or of the link.
    pub broken: u64,
}

impl RefusalCounts {
    /// Whether there are no refusals.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Every reason with its count, named as in the JSON.
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

impl std::ops::Add for RefusalCounts {
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

/// The traffic of a host's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LinkCounters {
    /// Batches sent, repetitions included.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Batches received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Dropped batches: the queue was full, or the host had a new incarnation.
    pub dropped: u64,
}

/// A link.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerStatus {
    /// The host at its other end.
    pub host: HostName,
    /// Whether the link is up.
    pub up: bool,
    /// Since when.
    pub since_ns: u64,
    /// Why it is not up, if known.
    pub error: Option<String>,
    /// Why messages of the daemon at its other end do not count here, with or without a link.
    pub unheard: Option<Unheard>,
    /// An operator has fenced the host, there is no link to it, and no later incarnation of its daemon has sent
    /// messages since.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fenced: bool,
}

/// Why a daemon's messages do not count at another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unheard {
    /// An operator has fenced this incarnation.
    Fenced,
    /// Another state folder has since sent messages in the host's name.
    Replaced,
    /// A reason that only a newer version knows.
    #[serde(other)]
    Other,
}

/// A departing change object, here or elsewhere, that keeps a host from activating its next generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchWait {
    /// The change object.
    pub cob: CobId,
    /// Since when the host has been switching to the next generation.
    pub since_ns: u64,
    /// For a change object of another host: how often that host was asked whether it has departed.
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
    fn unknown_reasons_of_a_newer_daemon_are_read_as_other() {
        let wait = r#"{"reason": "moon-phase", "until": "new moon"}"#;
        assert_eq!(serde_json::from_str::<Wait>(wait).expect("read"), Wait::Other);
        let trouble = r#"{"trouble": "tides", "high": [1, 2]}"#;
        assert_eq!(serde_json::from_str::<Trouble>(trouble).expect("read"), Trouble::Other);
        serde_json::from_str::<Wait>(r#"{"until": 3}"#).expect_err("no reason at all");
        assert_eq!(
            serde_json::from_str::<InvalidGrantCause>(r#""full-moon""#).expect("read"),
            InvalidGrantCause::Other
        );
    }
}
