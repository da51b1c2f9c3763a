//! All inputs of the engine. Only these change its state.

use std::collections::BTreeSet;
use std::sync::Arc;

use cob_types::message::Values;
use cob_types::status::Stopped;
use cob_types::{Askers, Batch, CobId, GenerationNumber, HostName, Number, Packed, StateName, SwitchOrder};

/// An input of the engine.
#[derive(Debug, Clone)]
pub enum Event {
    /// An operator (or a host that follows the depot) has ordered the switch to this generation: the change objects
    /// that it lacks depart, then the host activates it.
    Switch {
        /// Its number.
        generation: GenerationNumber,
        /// This host's bundle, validated.
        bundle: Arc<Packed>,
        /// The backends that work inside the daemon; the others work in processes that outlive it.
        in_process: Vec<String>,
        /// The order of the departures, and the departures that this host waits for.
        order: Arc<SwitchOrder>,
        /// The generation may be older than the active generation: a rollback that its publishers have signed. The
        /// engine does not judge whether the rollback is allowed.
        rollback: bool,
    },
    /// A batch of messages from another daemon's tick.
    Received(Batch),
    /// The link to a host is new: the engine repeats all unanswered messages to it.
    LinkUp(HostName),
    /// A check has ended.
    CheckEnded {
        /// The change object.
        cob: CobId,
        /// The job.
        job: Number,
        /// The result of the check.
        found: CheckOutcome,
    },
    /// An action has ended.
    ActionEnded {
        /// The change object.
        cob: CobId,
        /// The job.
        job: Number,
        /// The outcome.
        outcome: ActionOutcome,
        /// When the action itself began and ended, by the clock of these events, in nanoseconds; zero: not known.
        span: (u64, u64),
    },
    /// The state of this change object may differ from the record: check it.
    CheckWanted(CobId),
    /// The askers of a generation that [requests wait for](crate::Engine::wanted_askers).
    Askers {
        /// Its number.
        generation: GenerationNumber,
        /// The known askers.
        askers: KnownAskers,
    },
    /// An order of an operator.
    Order(Order),
    /// Time has passed.
    Tick,
}

/// A daemon's knowledge of the askers of a generation.
#[derive(Debug, Clone)]
pub enum KnownAskers {
    /// The bundle of this host names the askers.
    Named(Arc<Askers>),
    /// A version that did not record askers made the generation.
    Unsaid,
    /// The generation is not available now.
    Unavailable,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The check found this state, with these exported values.
    Found {
        /// A state of the kind.
        state: StateName,
        /// The exported values.
        values: Values,
        /// The difference from the desired content, for people.
        detail: String,
        /// The running process, started by any program, is younger than the present content of its dependencies.
        fresh: bool,
    },
    /// The check could not determine the state.
    Failed(String),
}

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionOutcome {
    /// Success: the change object is in the state after the transition.
    Done {
        /// The values that it exports there.
        values: Values,
    },
    /// Failure.
    Failed {
        /// The reason, with the last lines that the action printed.
        error: String,
        /// A person has to decide a conflict.
        conflict: bool,
    },
    /// Unknown: the daemon or the host died while the action ran, and the action left no result.
    Lost,
    /// An operator cancelled the switch and ended the action early: no failure of the action.
    Cancelled,
}

/// An order of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// No new transition starts on this host.
    Pause,
    /// Transitions may start again.
    Resume,
    /// Clear the failure of this change object, so that it tries again.
    Retry(CobId),
    /// The host will not come back as it was: release the locks that its change objects hold here.
    Fence(HostName),
    /// A change object that departs with the pending switch counts as departed, here or on another host: no change
    /// object waits for it any longer.
    MarkDeparted(CobId),
    /// The switch to this generation is cancelled: the host is paused until it resumes or switches to another
    /// generation. The daemon asks the running actions to end.
    Cancel(GenerationNumber),
    /// The cancelled switch has a new target, reached by a step that this host has made or is making already: the
    /// cancel no longer pauses the host.
    EndCancel,
    /// The most parallel transitions on this host; `None`: no limit.
    Limit(Option<u32>),
    /// The connectivity guard has rolled this host back, and these hosts are out of reach: this host no longer waits
    /// for recalled grants that they hold, and informs these hosts as soon as they are reachable.
    InvalidateGrants(BTreeSet<HostName>),
    /// A budget of this host has at most this many tokens, even if the model gives it more; `None`: the number of the
    /// model. Granted tokens stay granted.
    LimitBudget(CobId, Option<u32>),
    /// A budget of this host has this many tokens until the next generation, independent of the model and of failed
    /// members; `None`: the number of the model.
    RaiseBudget(CobId, Option<u32>),
    /// A change object goes to its stopped state, and stays there until an operator starts it or the host activates the
    /// next generation.
    Stop(CobId, Stopped),
    /// End the stop of a change object.
    Start(CobId),
}
