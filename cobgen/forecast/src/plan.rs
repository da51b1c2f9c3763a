//! A plan as data: the output of `cobgen plan --from N --to M --json`, which `cobctl` reads.
//!
//! Times are whole microseconds since `go`. Transitions are numbered by their start, so a transition comes only after
//! transitions with lower numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_types::{CobId, GenerationNumber, HostName, StateName};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::durations::Spread;
use cob_depot::input;

/// The largest plan file, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// The format version of new plans.
pub const FORMAT: u32 = 1;

/// The forecast of a switch.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPlan {
    /// [`FORMAT`].
    pub format: u32,
    /// The active generation.
    pub from: GenerationNumber,
    /// The target generation of the switch.
    pub to: GenerationNumber,
    /// Intermediate generations, if there is no switch order between the two. A host continues from each as soon as it
    /// is active there; the plan assumes that all change objects become idle in it first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<GenerationNumber>,
    /// Change objects that move to another host under the same name.
    pub moved: Vec<Moved>,
    /// Hosts that activate the generation, together or in sequence; unchanged hosts are not included.
    pub groups: Vec<Group>,
    /// The number of unchanged hosts.
    pub untouched_hosts: u64,
    /// Every transition, ordered by start.
    pub transitions: Vec<Planned>,
    /// Numbers of transitions: each stage comes after a transition of the stage before it. For people; no transition
    /// waits for a stage.
    pub stages: Vec<Vec<usize>>,
    /// Change objects that leave the state in which they serve, and come back or change their preferred state.
    pub interrupted: Vec<Interrupted>,
    /// Irreversible transitions.
    pub irreversible: Vec<Irreversible>,
    /// The point of no return; absent: all transitions are reversible.
    pub point_of_no_return: Option<PointOfNoReturn>,
    /// Numbers of transitions on the critical path: each started because the previous transition ended, up to the last
    /// end.
    pub critical_path: Vec<usize>,
    /// The predicted end.
    pub forecast: Forecast,
}

/// A change object that changes its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Its id before.
    pub from: CobId,
    /// Its id afterwards.
    pub to: CobId,
}

/// Hosts that wait for each other, or a single host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// With intermediate generations: the generation that is activated.
    pub to: Option<GenerationNumber>,
    /// Its hosts; if several, each waits for a departure on another host of the group.
    pub hosts: Vec<HostName>,
    /// Numbers of the groups with departures that this group waits for.
    pub after: Vec<usize>,
    /// The departing change objects that it waits for, its own and others. Empty: it activates at once.
    pub waits_for: BTreeSet<CobId>,
    /// The time when the last of its hosts activates.
    pub activated_us: u64,
}

/// A transition.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Its number.
    pub id: usize,
    /// Its change object.
    pub cob: CobId,
    /// The state before.
    pub from: StateName,
    /// The state after.
    pub to: StateName,
    /// The start time.
    pub begin_us: u64,
    /// The end time.
    pub end_us: u64,
    /// Transitions that must have ended before.
    pub after: Vec<usize>,
    /// The transition whose end it waited for last; absent: it started on `go`.
    pub cause: Option<usize>,
    /// The time from the end of the cause to its start: checks, messages, pauses.
    pub lag_us: u64,
    /// The extra time that does not delay the end of the switch.
    pub slack_us: u64,
    /// Its stage, from 1.
    pub stage: usize,
    /// With intermediate generations: the target generation of its leg.
    pub step: Option<GenerationNumber>,
    /// The reason for the transition.
    pub why: Why,
    /// It is irreversible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub irreversible: bool,
    /// Its duration.
    pub duration: Spread,
    /// Whether the duration was recorded or given; else a second is assumed.
    pub known: bool,
}

/// The reason for a transition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum Why {
    /// The change object is new.
    New,
    /// The generation lacks the change object.
    Leaves,
    /// Its content, its files or its kind's definition differ.
    Content,
    /// The change object has another kind: the old departs, and the new starts.
    Kind,
    /// The content of change objects that it relies on (`restarts_on`) differs.
    RestsOn {
        /// These change objects.
        on: Vec<CobId>,
    },
    /// Its preferred state differs.
    Preferred,
    /// Other transitions need it in another state.
    NeededBy {
        /// These transitions.
        moves: Vec<NeededBy>,
    },
    /// It was not in the state that the active generation wants.
    Astray,
}

/// A transition that needs a change object in some state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NeededBy {
    /// The number of the transition.
    pub transition: usize,
    /// The change object of that transition.
    pub cob: CobId,
    /// The states that it needs.
    pub states: Vec<StateName>,
}

/// A change object that does not serve for a while, or no longer serves.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupted {
    /// The change object.
    pub cob: CobId,
    /// The time when it leaves the state in which it serves.
    pub begin_us: u64,
    /// The time when it serves again; absent: it does not come back, or changes its preferred state.
    pub end_us: Option<u64>,
    /// A single transition applies the new content, without another state in between.
    pub in_place: bool,
    /// Its new preferred state, if that differs.
    pub to: Option<StateName>,
    /// The reason.
    pub why: Why,
}

/// An irreversible transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irreversible {
    /// Its number.
    pub transition: usize,
    /// The kind's author has marked it; else no transition of its kind leads back.
    pub marked: bool,
    /// The latest start time that does not delay the end of the switch.
    pub latest_us: u64,
}

/// The point from which on the switch is not fully reversible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointOfNoReturn {
    /// The transition that crosses it.
    pub transition: usize,
    /// The start time of that transition.
    pub at_us: u64,
    /// The latest time to which the order allows moving it without a delay of the whole.
    pub latest_us: u64,
    /// Transitions that need not wait for an irreversible transition: all these may be made before.
    pub before: usize,
    /// Irreversible transitions, and transitions that come after these in any order.
    pub behind: usize,
}

/// The predicted end of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The end with every duration at its median, as in the plan's transitions.
    pub end_us: u64,
    /// The expected end: half of the runs ended by then. Equal to `end_us` without runs.
    ///
    /// A transition that waits for several others waits for the slowest, which seldom takes only its median: with every
    /// duration at its median the end comes too early (the merge event bias; MacCrimmon and Ryavec, "An analytical
    /// study of the PERT assumptions", Operations Research 12(1), 1964).
    pub p50_us: u64,
    /// Nine of ten runs ended by then.
    pub p90_us: u64,
    /// The number of runs with random durations; 0 if no duration has a spread.
    pub runs: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of transitions with recorded or given durations.
    pub known: u64,
    /// All hosts converge.
    pub converges: bool,
    /// If they do not: the change objects that still wait in the end, with the reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stuck: BTreeMap<CobId, Vec<String>>,
}

impl SwitchPlan {
    /// Reads a plan from a file.
    ///
    /// # Errors
    /// The fault in words.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::of_json(&input::read_text(path, MAX_FILE).map_err(|e| e.to_string())?)
    }

    /// Parses a printed plan.
    ///
    /// # Errors
    /// The fault in words.
    pub fn of_json(text: &str) -> Result<Self, String> {
        let plan: Self = serde_json::from_str(text).map_err(|e| cob_types::words::form(&e))?;
        if plan.format > FORMAT {
            return Err(format!("its format is {}, but this program reads {FORMAT}; use a newer program", plan.format));
        }
        for (at, step) in plan.transitions.iter().enumerate() {
            if step.id != at || step.after.iter().chain(&step.cause).any(|before| *before >= at) {
                return Err(format!("transition {at} is out of order"));
            }
            if step.end_us < step.begin_us || step.end_us > plan.forecast.end_us {
                return Err(format!("transition {at} ends before it begins, or after all have ended"));
            }
        }
        let known = |at: &usize| *at < plan.transitions.len();
        if !plan.critical_path.iter().chain(plan.stages.iter().flatten()).all(known) {
            return Err("its stages or its critical path name a transition that the plan does not contain".to_owned());
        }
        Ok(plan)
    }
}
