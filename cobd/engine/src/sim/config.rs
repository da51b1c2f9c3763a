//! What may happen in a run of the simulated cluster, and how one has ended.

use std::collections::BTreeMap;

use cob_types::status::{Trouble, Wait};
use cob_types::{CobId, StateName};

use crate::engine::Faults;
use crate::time::{Span, Time};

/// The span in which messages are counted that nothing comes of.
pub const TALK: Span = Span::secs(10);

/// What may happen in a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Everything random follows from it.
    pub seed: u64,
    /// Batches that get lost, of a thousand.
    pub loss: u32,
    /// Batches that arrive twice, of a thousand.
    pub double: u32,
    /// How long a batch is under way, in microseconds, from and to.
    pub delay_us: (u64, u64),
    /// Batches of one sender never overtake each other.
    pub fifo: bool,
    /// How long an action takes, in microseconds, from and to.
    pub action_us: (u64, u64),
    /// How long a check takes, in microseconds, from and to.
    pub check_us: (u64, u64),
    /// Actions that fail, of a thousand, as long as failures are left.
    pub fail: u32,
    /// So many actions fail at the most.
    pub failures: u32,
    /// So many daemons are killed, at random moments of the first [`Config::trouble_us`].
    pub crashes: u32,
    /// Of a thousand crashes, so many are hosts that lose power: every action on them dies as well.
    pub power: u32,
    /// The span in which crashes are spread, in microseconds.
    pub trouble_us: u64,
    /// Messages pass through their wire form.
    pub codec: bool,
    /// Engines are checked after every event, and records compared with them. Costs a scan.
    pub check: bool,
    /// The run ends after this virtual time.
    pub limit: Span,
    /// The run ends after so many events.
    pub max_events: u64,
    /// At most so many transitions at a time on each host: an operator's limit.
    pub limit_actions: Option<u32>,
    /// So many messages may be said in [`TALK`] without anything coming of them; none: as many as they like.
    pub talk: Option<u64>,
    /// Planted faults.
    pub faults: Faults,
    /// A restart does not raise the incarnation: a planted fault.
    pub same_incarnation: bool,
    /// Keep a trace of what happens.
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

/// Where change objects are in the beginning.
#[derive(Debug, Clone)]
pub enum Initial {
    /// Each in its pre-remove state.
    PreRemove,
    /// As given; the others in their pre-remove states.
    Given(BTreeMap<CobId, StateName>),
}

/// How a run ended.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Every host has converged.
    pub converged: bool,
    /// Breaches of safety or of an engine's invariants, in words. Always empty unless we have a bug.
    pub violations: Vec<String>,
    /// Named trouble at the end.
    pub troubles: Vec<(CobId, Trouble)>,
    /// Those that have given up at the end, with the attempts that they made.
    pub failed: Vec<(CobId, u32)>,
    /// What everybody waits for at the end.
    pub waits: Vec<(CobId, Wait)>,
    /// Virtual time at the end.
    pub end: Time,
    /// Events handled.
    pub events: u64,
    /// Batches sent.
    pub batches: u64,
    /// Messages sent between hosts.
    pub messages: u64,
    /// Of these: probes.
    pub probes: u64,
    /// Bytes of all batches, if they passed through their wire form.
    pub bytes: u64,
    /// Actions started, in order.
    pub actions: Vec<(Time, CobId, StateName, StateName)>,
    /// Times that a change object went over to rank order.
    pub ordered: u64,
    /// Times that a budget gave a token beyond its number.
    pub overdrawn: u64,
    /// Daemons killed.
    pub crashes: u64,
}
