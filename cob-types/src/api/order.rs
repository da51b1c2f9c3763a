//! The orders of an operator: the bodies of POST requests.
//!
//! An order has the same name in the command line, here, in the daemon and in its history.

use std::ops::Not;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::command_run::RunOrder;
use crate::switch::OnFailure;
use crate::trust::Role;
use crate::{BlobHash, CobId, GenerationNumber, HostName};

/// An order: the body of a POST request to its path.
///
/// The first sentence of its comment is its summary in OpenAPI.
pub trait Order: Serialize + DeserializeOwned + JsonSchema + Clone + Send + Sync + 'static {
    /// The path.
    const PATH: &'static str;
    /// The role that the order needs.
    const ROLE: Role;
    /// The longest body, in bytes.
    const MOST_BYTES: usize = 64 << 10;

    /// The author that the order names; the daemon adds its own proof.
    fn who(&mut self) -> &mut Option<String>;

    /// The error and the remedy, if the values of the fields contradict each other.
    fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}

macro_rules! orders {
    ($($order:ident $path:literal $role:ident $({ $($more:tt)* })?)*) => {$(
        impl Order for $order {
            const PATH: &'static str = $path;
            const ROLE: Role = Role::$role;

            fn who(&mut self) -> &mut Option<String> {
                &mut self.who
            }

            $($($more)*)?
        }
    )*};
}

orders! {
    Prepare "/v1/prepare" Operate
    Switch "/v1/switch" Operate
    Rollback "/v1/rollback" Operate
    Cancel "/v1/cancel" Operate
    Discard "/v1/call-off" Operate
    Limit "/v1/limit" Operate
    Budget "/v1/budget" Operate
    Retry "/v1/retry" Operate
    Check "/v1/check" Operate
    Stop "/v1/stop" Operate
    Start "/v1/start" Operate
    Reboot "/v1/reboot" Administer
    Pause "/v1/pause" Operate
    Resume "/v1/resume" Operate
    Fence "/v1/fence" Administer
    Resolve "/v1/files/resolve" Operate {
        // The body may contain a whole file.
        const MOST_BYTES: usize = 1 << 20;
    }
    Restore "/v1/files/restore" Operate
    RunOrder "/v1/run" Administer
    MarkDeparted "/v1/declare-final" Administer {
        fn contradiction(&self) -> Option<(&'static str, &'static str)> {
            let what = "the body must name a change object or a host";
            (self.cob.is_some() == self.host.is_some()).then_some((what, "`cob` or `host`, and not both"))
        }
    }
}

/// Fetch and verify the bundle and manifest of a generation.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// The generation.
    pub generation: GenerationNumber,
    /// The author of the order, for the history.
    pub who: Option<String>,
    /// Hash of the generation's manifest, in hexadecimal: a host that knows another generation under the number
    /// refuses. Without the hash, the order means the generation of the host's own depot.
    #[serde(default, with = "crate::id::hex_if_any")]
    #[schemars(with = "Option<BlobHash>")]
    pub manifest: Option<BlobHash>,
}

/// Switch to a generation.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The generation.
    pub generation: GenerationNumber,
    /// The author of the order, for the history.
    pub who: Option<String>,
    /// The failure policy in place of the generation's.
    pub on_failure: Option<OnFailure>,
    /// The time of the guard in milliseconds in place of the generation's; zero: no guard.
    pub guard_ms: Option<u64>,
    /// The switch is for this host alone: it is not announced to others.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub alone: bool,
    /// The hosts that switch; they announce the switch to no other hosts. Empty: all hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<HostName>,
    /// The newest generation that the author has seen on any host. A host that has switched to a newer generation since
    /// refuses the order; without `seen`, the host rolls back to the older generation if that is allowed.
    pub seen: Option<GenerationNumber>,
    /// Hash of the generation's manifest, in hexadecimal: a host that knows another generation under the number
    /// refuses. Without the hash, the order means the generation of the host's own depot.
    #[serde(default, with = "crate::id::hex_if_any")]
    #[schemars(with = "Option<BlobHash>")]
    pub manifest: Option<BlobHash>,
    /// It starts at once, also outside the maintenance windows of the hosts that it changes.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub now: bool,
}

/// The terms of a switch that differ from the generation's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchHow {
    /// The failure policy.
    pub on_failure: Option<OnFailure>,
    /// The time of the guard in milliseconds; zero: no guard.
    pub guard_ms: Option<u64>,
    /// The switch is not announced to other hosts.
    pub alone: bool,
    /// It does not wait for maintenance windows.
    pub now: bool,
}

impl Switch {
    /// A switch to a generation on these terms.
    #[must_use]
    pub fn new(generation: GenerationNumber, how: SwitchHow) -> Self {
        let SwitchHow { on_failure, guard_ms, alone, now } = how;
        Self { generation, on_failure, guard_ms, alone, now, ..Self::default() }
    }

    /// Its terms: a switch for some hosts is not announced to others.
    #[must_use]
    pub fn how(&self) -> SwitchHow {
        let Self { on_failure, guard_ms, now, .. } = *self;
        SwitchHow { on_failure, guard_ms, alone: self.alone || !self.only.is_empty(), now }
    }
}

/// Roll back the last generation.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The rollback target; absent: the newest valid target.
    pub generation: Option<GenerationNumber>,
    /// Only prepare the rollback target, as for a switch.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub prepare: bool,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Stop the switch: running actions are asked to end, no transition starts, then the failure policy applies. If it
/// is rollback, a host on which the named generation has converged rolls back too.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The generation of the switch; absent: the switch under way.
    pub generation: Option<GenerationNumber>,
    /// The failure policy that applies; absent: the generation's.
    pub on_failure: Option<OnFailure>,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Discard a prepared generation to which no host has switched.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Discard {
    /// The generation.
    pub generation: GenerationNumber,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Limit the number of concurrent transitions.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The most concurrent transitions; null: no limit.
    #[serialize_always]
    pub at_most: Option<u32>,
    /// The budget whose tokens are limited instead; then null: as many tokens as in the model.
    pub budget: Option<CobId>,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Set the number of tokens of a budget until the next generation.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The budget.
    pub budget: CobId,
    /// The number of tokens until the next generation; null: as many as in the model.
    #[serialize_always]
    pub at_most: Option<u32>,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Retry a failed change object.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The change object; for `retry` a change object of this host.
    pub cob: CobId,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Check change objects now, even if their state is known.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The change objects of this host; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cobs: Vec<CobId>,
    /// The author of the order, for the log.
    pub who: Option<String>,
}

/// Move change objects to their stopped states, until they are started or the next generation is activated.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The change objects of this host that shall stop. The order stops all or is refused.
    pub cobs: Vec<StopOne>,
    /// Each change object starts again by itself as soon as it has stopped.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub restart: bool,
    /// Each change object starts again by itself after a reboot of this host.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub until_boot: bool,
    /// The author of the order, for the history and for reports on stopped change objects.
    pub who: Option<String>,
}

/// A change object that shall stop.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopOne {
    /// The change object.
    pub cob: CobId,
    /// The stopped change object that it needs, and because of which it stops too.
    pub with: Option<CobId>,
}

/// Start stopped change objects.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The stopped change objects of this host that shall start. The order starts all or is refused.
    pub cobs: Vec<CobId>,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Fence a host that will not come back as it was: release its locks on this host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fence {
    /// The host that will not come back as it was.
    pub host: HostName,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Mark departing change objects as departed, although they are not or their state is unknown: a change object or all of a
/// host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkDeparted {
    /// The change object that is marked as departed.
    pub cob: Option<CobId>,
    /// The host whose awaited change objects are all marked as departed.
    pub host: Option<HostName>,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Decide about conflicts in files.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// The change object.
    pub cob: CobId,
    /// The file; absent: all files with conflicts.
    pub path: Option<String>,
    /// Only this conflict, as `hunks` showed it (`conflict`).
    pub conflict: Option<String>,
    /// A prepared generation; absent: the active generation.
    pub generation: Option<GenerationNumber>,
    /// The decision.
    pub choice: ChoiceWord,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// A decision about a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChoiceWord {
    /// Keep the host's text.
    Ours,
    /// Write the model's text.
    Theirs,
    /// Write this text.
    Edited(String),
}

/// Restore a file from a kept version.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// The change object.
    pub cob: CobId,
    /// The version.
    pub version: String,
    /// The file.
    pub path: String,
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Reboot this host; all that runs on it is stopped first.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reboot {
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Pause: no new transition starts.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The author of the order, for the history.
    pub who: Option<String>,
}

/// Resume: transitions may start again.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The author of the order, for the history.
    pub who: Option<String>,
}
