//! The configuration of a run of the simulated cluster, and its outcome.

use std::collections::BTreeMap;

use cob_types::status::{Trouble, Wait};
use cob_types::{CobId, StateName};

use crate::faults::Faults;
use crate::time::{Span, Time};

/// The span in which messages without progress are counted.
pub const TALK: Span = Span::secs(10);

/// The configuration of a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// The seed of all random choices.
    pub seed: u64,
    /// Batches that get lost, of a thousand.
    pub loss: u32,
    /// Batches that arrive twice, of a thousand.
    pub double: u32,
    /// The delay of a batch, in microseconds, from and to.
    pub delay_us: (u64, u64),
    /// Batches of a sender never overtake each other.
    pub fifo: bool,
    /// The duration of an action, in microseconds, from and to.
    pub action_us: (u64, u64),
    /// The duration of a check, in microseconds, from and to.
    pub check_us: (u64, u64),
    /// Actions that fail, of a thousand, as long as failures are left.
    pub fail: u32,
    /// The most failed actions.
    pub failures: u32,
    /// The number of killed daemons, at random moments of the first [`Config::trouble_us`].
    pub crashes: u32,
    /// How many of a thousand crashes are power losses, which end every action on the host, too.
    pub power: u32,
    /// The span in which crashes are spread, in microseconds.
    pub trouble_us: u64,
    /// Messages pass through their wire form.
    pub codec: bool,
    /// Engines are checked after every event, and records compared with them. Costs a scan.
    pub check: bool,
    /// The virtual time at which the run ends.
    pub limit: Span,
    /// The number of events at which the run ends.
    pub max_events: u64,
    /// An operator's limit on parallel transitions on each host.
    pub limit_actions: Option<u32>,
    /// The most messages in [`TALK`] without progress; `None`: no limit.
    pub talk: Option<u64>,
    /// Planted faults.
    pub faults: Faults,
    /// A restart does not raise the incarnation: a planted fault.
    pub same_incarnation: bool,
    /// Write a trace.
    pub trace: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            loss: 0,
            double: 0,
            delay_us: (50, 200),
            fifo: true,
            action_us: (500, 5000),
            check_us: (100, 500),
            fail: 0,
            failures: 0,
            crashes: 0,
            power: 0,
            trouble_us: 500_000,
            codec: false,
            check: true,
            limit: Span::secs(3600),
            max_events: 2_000_000,
            limit_actions: None,
            talk: None,
            faults: Faults::default(),
            same_incarnation: false,
            trace: false,
        }
    }
}

/// The initial states of change objects.
#[derive(Debug, Clone)]
pub enum Initial {
    /// Each in its pre-remove state.
    PreRemove,
    /// As given; the others in their pre-remove states.
    Given(BTreeMap<CobId, StateName>),
}

/// The outcome of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Every host has converged.
    pub converged: bool,
    /// Breaches of safety or of an engine's invariants, in words. Always empty, except for bugs.
    pub violations: Vec<String>,
    /// Reported trouble at the end.
    pub troubles: Vec<(CobId, Trouble)>,
    /// The change objects that have failed at the end, with their attempts.
    pub failed: Vec<(CobId, u32)>,
    /// All waits at the end.
    pub waits: Vec<(CobId, Wait)>,
    /// Virtual time at the end.
    pub end: Time,
    /// Events handled.
    pub events: u64,
    /// Batches sent.
    pub batches: u64,
    /// Messages sent between hosts.
    pub messages: u64,
    /// Probes among the messages.
    pub probes: u64,
    /// Bytes of all batches, if they passed through their wire form.
    pub bytes: u64,
    /// Actions started, in order.
    pub actions: Vec<(Time, CobId, StateName, StateName)>,
    /// The number of changes to rank order.
    pub ordered: u64,
    /// The number of tokens granted beyond a budget's number.
    pub overdrawn: u64,
    /// Daemons killed.
    pub crashes: u64,
}
