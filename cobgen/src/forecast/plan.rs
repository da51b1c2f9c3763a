//! A plan as data: what `cobgen plan --from N --to M --json` prints, and `cobctl` reads.
//!
//! Times are whole microseconds since `go`. Transitions are numbered by their beginnings, so one comes only after
//! those with lower numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_types::{CobId, GenerationNumber, HostName, StateName};
use serde::{Deserialize, Serialize};

use super::durations::Spread;
use crate::input;

/// The largest plan that is read, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// The form of plans written here.
pub const FORMAT: u32 = 1;

/// What a switch comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPlan {
    /// [`FORMAT`].
    pub format: u32,
    /// The generation that is active.
    pub from: GenerationNumber,
    /// The generation that is switched to.
    pub to: GenerationNumber,
    /// Generations that are activated on the way, as there is no order of a switch between the two: each of these is gone
    /// on from as soon as a host has it, and planned as if all came to rest in it first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<GenerationNumber>,
    /// Change objects that another host has from then on, under the same name.
    pub moved: Vec<Moved>,
    /// Hosts that activate the generation together or one after the other; those for which nothing differs are not
    /// among them.
    pub groups: Vec<Group>,
    /// Hosts for which nothing differs.
    pub untouched_hosts: u64,
    /// Every transition, by its beginning.
    pub transitions: Vec<Planned>,
    /// Numbers of transitions: each stage comes after a transition of the stage before it. For people; nothing waits
    /// for a stage.
    pub stages: Vec<Vec<usize>>,
    /// Change objects that leave the state in which they serve, and come back or go elsewhere for good.
    pub interrupted: Vec<Interrupted>,
    /// What can't be taken back.
    pub irreversible: Vec<Irreversible>,
    /// Where that begins; absent: everything can be taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point_of_no_return: Option<PointOfNoReturn>,
    /// Numbers of the transitions of which each began because the one before it ended, up to the last end.
    pub critical_path: Vec<usize>,
    /// When it ends.
    pub forecast: Forecast,
}

/// A change object that changes its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// As it is called before.
    pub from: CobId,
    /// As it is called afterwards.
    pub to: CobId,
}

/// Hosts that wait for each other, or one alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// On a way in steps: the generation that is activated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<GenerationNumber>,
    /// Its hosts; several: each waits for something that leaves on another one of them.
    pub hosts: Vec<HostName>,
    /// Numbers of the groups that have something which this one waits for.
    pub after: Vec<usize>,
    /// What leaves and is waited for, its own and that of others. Empty: it activates at once.
    pub waits_for: BTreeSet<CobId>,
    /// When the last of its hosts activates.
    pub activated_us: u64,
}

/// One transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Its number.
    pub id: usize,
    /// Whose.
    pub cob: CobId,
    /// The state left.
    pub from: StateName,
    /// The state entered.
    pub to: StateName,
    /// When it begins.
    pub begin_us: u64,
    /// When it ends.
    pub end_us: u64,
    /// Transitions that must have ended before.
    pub after: Vec<usize>,
    /// The one on whose end it waited last; absent: on `go`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<usize>,
    /// From the end of the cause to its beginning: checks, messages, rests.
    pub lag_us: u64,
    /// So much longer it may take before the whole ends later.
    pub slack_us: u64,
    /// The stage that it is in, from 1.
    pub stage: usize,
    /// On a way in steps: on the way to this generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<GenerationNumber>,
    /// Why it is made.
    pub why: Why,
    /// It can't be taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub irreversible: bool,
    /// How long it takes.
    pub duration: Spread,
    /// Whether that was recorded or said; else a second is taken.
    pub known: bool,
}

/// Why a transition is made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum Why {
    /// It is new.
    New,
    /// The generation lacks it.
    Leaves,
    /// Its content, its files or its kind's definition differ.
    Content,
    /// It is something else, of another kind: what it was leaves, and it comes anew.
    Kind,
    /// It rests on others (`restarts_on`) of which the content differs.
    RestsOn {
        /// Those.
        on: Vec<CobId>,
    },
    /// It prefers another state.
    Preferred,
    /// Others make moves that need it elsewhere.
    NeededBy {
        /// Those moves.
        moves: Vec<NeededBy>,
    },
    /// It was not where the active generation wants it.
    Astray,
}

/// A move that needs a change object in some state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NeededBy {
    /// The number of the transition.
    pub transition: usize,
    /// Whose.
    pub cob: CobId,
    /// In which states it is needed.
    pub states: Vec<StateName>,
}

/// A change object that does not serve for a while, or no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupted {
    /// Which one.
    pub cob: CobId,
    /// When it leaves the state in which it serves.
    pub begin_us: u64,
    /// When it is back; absent: it does not come back, or goes elsewhere for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_us: Option<u64>,
    /// One transition brings the new content about; it rests in no other state meanwhile.
    pub in_place: bool,
    /// Where it stays, if it prefers another state from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<StateName>,
    /// Why.
    pub why: Why,
}

/// A transition that can't be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irreversible {
    /// Its number.
    pub transition: usize,
    /// Its author has marked it; else no transition of its kind leads back.
    pub marked: bool,
    /// The latest moment at which it may begin without the whole ending later.
    pub latest_us: u64,
}

/// From where on not everything can be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointOfNoReturn {
    /// The transition that crosses it.
    pub transition: usize,
    /// When that begins.
    pub at_us: u64,
    /// The latest moment to which the order lets it be moved without the whole ending later.
    pub latest_us: u64,
    /// Transitions that need not wait for anything irreversible: so many may be made before.
    pub before: usize,
    /// Transitions that come after something irreversible in any order, and those that are irreversible.
    pub behind: usize,
}

/// When the switch ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// With every duration at its median: when the transitions of the plan end.
    pub end_us: u64,
    /// What is expected: half of the runs ended by then. As `end_us` where there were none.
    ///
    /// Who waits for several waits for the slowest of them, which is seldom one that takes its median: with every
    /// duration at its median the end comes too early (the merge event bias; MacCrimmon and Ryavec, "An analytical
    /// study of the PERT assumptions", Operations Research 12(1), 1964).
    pub p50_us: u64,
    /// Nine of ten runs ended by then.
    pub p90_us: u64,
    /// How many runs were made with durations by chance; none where no duration has a spread.
    pub runs: u64,
    /// What chance came from.
    pub seed: u64,
    /// Transitions whose durations are recorded or said.
    pub known: u64,
    /// All hosts come to rest.
    pub converges: bool,
    /// Who waits for what in the end, where they do not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stuck: BTreeMap<CobId, Vec<String>>,
}

impl SwitchPlan {
    /// Reads a file with what was printed.
    ///
    /// # Errors
    /// In words.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::of_json(&input::read_text(path, MAX_FILE).map_err(|e| e.to_string())?)
    }

    /// Reads what was printed.
    ///
    /// # Errors
    /// In words.
    pub fn of_json(text: &str) -> Result<Self, String> {
        let plan: Self = serde_json::from_str(text).map_err(|e| cob_types::words::form(&e))?;
        if plan.format > FORMAT {
            return Err(format!("its form is {}, and this program knows {FORMAT}; use a newer one", plan.format));
        }
        for (at, step) in plan.transitions.iter().enumerate() {
            if step.id != at || step.after.iter().chain(&step.cause).any(|before| *before >= at) {
                return Err(format!("transition {at} is out of its order"));
            }
            if step.end_us < step.begin_us || step.end_us > plan.forecast.end_us {
                return Err(format!("transition {at} ends before it begins, or after all have ended"));
            }
        }
        let known = |at: &usize| *at < plan.transitions.len();
        if !plan.critical_path.iter().chain(plan.stages.iter().flatten()).all(known) {
            return Err("its stages or its critical path name a transition that it does not have".to_owned());
        }
        Ok(plan)
    }
}
