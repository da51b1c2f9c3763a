//! The messages of the stream to the browser. The browser's types are in `cobd/ctl/page/src/`.
//!
//! Change objects are numbered by their place in [`Columns::id`]. Numbers stay the same until the next snapshot.

use cob_types::GenerationNumber;
use cob_types::status::SwitchStage;
use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::screen::Mark;

/// A message: a line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Message {
    /// The whole picture. A new tab starts with it, and it follows when the set of change objects or the graph has changed.
    Snapshot(Box<Snapshot>),
    /// The changes since the message before.
    Delta(Box<Delta>),
    /// Nothing has changed; the connection is alive.
    Idle {
        /// The number of the last message.
        seq: u64,
        /// The time of this machine, in milliseconds since 1970.
        now_ms: u64,
    },
}

/// The whole picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    /// The number of the message.
    pub seq: u64,
    /// The cluster as a whole.
    pub cluster: Cluster,
    /// The hosts, by name.
    pub hosts: Vec<Host>,
    /// The change objects, by id.
    pub cobs: Columns,
    /// The needs of change objects, and their places in the drawing.
    pub graph: Graph,
    /// The orders of this page.
    pub orders: Vec<Order>,
}

/// The changes since the message before.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Delta {
    /// The number of the message.
    pub seq: u64,
    /// The cluster as a whole, if it has changed.
    pub cluster: Option<Cluster>,
    /// The hosts that have changed; each replaces the host of its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// Names of states that follow the known names: rows of this message may use them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// The change objects that have changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cobs: Vec<Row>,
    /// The orders that have changed; each replaces the order of its number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
}

impl Delta {
    /// Whether it has no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.cluster.is_none() && self.hosts.is_empty() && self.cobs.is_empty() && self.orders.is_empty()
    }
}

/// The answer of `cobctl status` in a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Judged {
    /// No host has answered yet.
    #[default]
    Open,
    /// The cluster is converged.
    Converged,
    /// The cluster is not converged.
    Not,
    /// Hosts could not be reached.
    Unreached,
}

/// The cluster as a whole.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cluster {
    /// The answer of `cobctl status`.
    pub verdict: Judged,
    /// The answer of `cobctl status`, in a sentence.
    pub sentence: String,
    /// Why it is not converged, a reason each.
    pub reasons: Vec<String>,
    /// The command that helps most.
    pub next: Option<String>,
    /// The generation that most hosts have.
    pub generation: Option<GenerationNumber>,
    /// The newest generation of the depot.
    pub newest: Option<GenerationNumber>,
    /// Whether a depot is known: without it there are no plans, no graph and no list of generations.
    pub depot: bool,
}

/// A host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Host {
    /// Its name.
    pub name: String,
    /// It has answered.
    pub reachable: bool,
    /// Why it has not.
    pub error: Option<String>,
    /// Its active generation.
    pub generation: Option<GenerationNumber>,
    /// The generation that it switches to.
    pub switching_to: Option<GenerationNumber>,
    /// Its own report.
    pub converged: bool,
    /// It starts no transitions.
    pub paused: bool,
    /// The cancelled generation; the host stands still.
    pub held: Option<GenerationNumber>,
    /// Its state as `cobctl status` shows it.
    pub words: String,
    /// Its mark.
    pub mark: Mark,
    /// The hosts to which it has no link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers_down: Vec<String>,
    /// How many change objects are of each [`Class`].
    pub counts: [u64; Class::ALL],
    /// The switch under way, or last rolled back.
    pub switch: Option<Switch>,
    /// The order that waits for maintenance windows, in words.
    pub waits_for_window: Option<String>,
}

/// A switch on a host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Switch {
    /// The generation.
    pub to: GenerationNumber,
    /// `going`, `settled` or `stopped`.
    pub stage: SwitchStage,
    /// Why it was rolled back or stopped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The abandoned generation.
    pub left: Option<GenerationNumber>,
}

/// The activity of a change object in one of few classes. The numbers are on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It is in its preferred state.
    Settled = 0,
    /// A transition or a check runs.
    Moving = 1,
    /// It waits for others, or it is away from its preferred state for others.
    Waiting = 2,
    /// It has failed, or a person has to act.
    Failed = 3,
    /// An operator has stopped it.
    Stopped = 4,
    /// Its host does not answer.
    Unknown = 5,
}

impl Class {
    /// How many there are.
    pub(crate) const ALL: usize = 6;

    /// Its word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Moving => "moving",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }

    /// The class with a number of the wire; another number is unknown.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0 => Self::Settled,
            1 => Self::Moving,
            2 => Self::Waiting,
            3 => Self::Failed,
            4 => Self::Stopped,
            _ => Self::Unknown,
        }
    }
}

/// A flag of a change object: it has drift, or a conflict.
pub(crate) const DRIFT: u8 = 1;
/// It is stuck, or goes to and fro.
pub(crate) const TROUBLE: u8 = 2;
/// It is observed, never changed.
pub(crate) const OBSERVED: u8 = 4;
/// It departs in the switch under way.
pub(crate) const DEPARTS: u8 = 8;

/// The change objects in columns: ten thousand rows as objects would be three times as long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Columns {
    /// `HOST/NAME`, sorted.
    pub id: Vec<String>,
    /// The names of kinds.
    pub kinds: Vec<String>,
    /// Each one's kind.
    pub kind: Vec<usize>,
    /// The names of states.
    pub states: Vec<String>,
    /// Each one's state; -1: unknown.
    pub state: Vec<i64>,
    /// Each one's desired state; -1: unknown.
    pub target: Vec<i64>,
    /// Each one's [`Class`].
    pub class: Vec<u8>,
    /// Each one's flags.
    pub flags: Vec<u8>,
    /// Since when it has this state and phase, in milliseconds since 1970 by the clock of this machine.
    pub since_ms: Vec<u64>,
    /// For each change object that waits: the change objects that it waits for.
    pub waits: std::collections::BTreeMap<usize, Vec<usize>>,
}

/// A changed change object: number, state, desired state, class, flags, since when, what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Row(pub usize, pub i64, pub i64, pub u8, pub u8, pub u64, pub Vec<usize>);

/// The needs of change objects, and their places in the drawing.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Graph {
    /// The generation of the graph.
    pub generation: Option<GenerationNumber>,
    /// Pairs in a row: the number of a change object, and the number of one that it needs.
    pub needs: Vec<usize>,
    /// The places of the change objects: one unit is a node with its distance.
    pub x: Vec<f32>,
    /// The other coordinate.
    pub y: Vec<f32>,
    /// The area of each host.
    pub bands: Vec<Band>,
    /// Why there is no graph.
    pub missing: Option<String>,
}

/// The area of a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Band {
    /// The host.
    pub host: String,
    /// Left.
    pub x: f32,
    /// Top.
    pub y: f32,
    /// Its width.
    pub width: f32,
    /// Its height.
    pub height: f32,
}

/// An order of this page.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Order {
    /// Its number.
    pub id: u64,
    /// The command line.
    pub words: String,
    /// Since when, in milliseconds since 1970.
    pub began_ms: u64,
    /// Until when.
    pub ended_ms: Option<u64>,
    /// Its exit status.
    pub exit: Option<u8>,
    /// The end of its output.
    pub output: String,
}
