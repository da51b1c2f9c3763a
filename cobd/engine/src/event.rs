//! Everything that can happen to a daemon. Nothing else changes its state.

use std::collections::BTreeSet;
use std::sync::Arc;

use cob_types::message::Values;
use cob_types::status::Stopped;
use cob_types::{Askers, Batch, CobId, GenerationNumber, HostName, Number, StateName, SwitchOrder};

use crate::bundle::AnyBundle;

/// What goes into the engine.
#[derive(Debug, Clone)]
pub enum Event {
    /// An operator (or a host that follows the depot) has said `go` for this generation: what is
    /// missing in it retires, then it is activated.
    Go {
        /// Its number.
        generation: GenerationNumber,
        /// This host's part of it, validated.
        bundle: AnyBundle,
        /// Which backends do their work in processes that outlive the daemon, and which inside it.
        in_process: Vec<String>,
        /// Who leaves before whom, and what this host waits for.
        order: Arc<SwitchOrder>,
    },
    /// As [`Event::Go`], for a generation that may be older than the active one: the way back that its
    /// publishers have signed. Whether it is allowed is not the engine's to judge.
    Back {
        /// Its number.
        generation: GenerationNumber,
        /// This host's part of it, validated.
        bundle: AnyBundle,
        /// As in [`Event::Go`].
        in_process: Vec<String>,
        /// As in [`Event::Go`].
        order: Arc<SwitchOrder>,
    },
    /// Another daemon's messages of one turn.
    Received(Batch),
    /// The link to a host is new: what is unsettled with it is said again.
    LinkUp(HostName),
    /// A check has ended.
    CheckEnded {
        /// Whose.
        cob: CobId,
        /// Which.
        job: Number,
        /// What it found.
        found: CheckOutcome,
    },
    /// An action has ended.
    ActionEnded {
        /// Whose.
        cob: CobId,
        /// Which.
        job: Number,
        /// How.
        outcome: ActionOutcome,
        /// When the action itself began and ended, by the clock of these events, in nanoseconds; zero: not known.
        span: (u64, u64),
    },
    /// Something says that this change object may not be as recorded: look.
    CheckWanted(CobId),
    /// The askers of a generation that [requests wait for](crate::Engine::wanted_askers).
    Askers {
        /// Its number.
        generation: GenerationNumber,
        /// What is known of them.
        askers: KnownAskers,
    },
    /// An operator's word.
    Order(Order),
    /// Time has passed.
    Tick,
}

/// What a daemon knows of the askers of a generation.
#[derive(Debug, Clone)]
pub enum KnownAskers {
    /// The bundle of this host names them.
    Named(Arc<Askers>),
    /// The generation was made by a version that did not say who may ask.
    Unsaid,
    /// The generation can't be had now.
    Unavailable,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// This state, with these exported values.
    Found {
        /// A state of the kind.
        state: StateName,
        /// What it exports.
        values: Values,
        /// The difference to what is wanted, for people.
        detail: String,
        /// What runs was started after everything that it rests on had come to be as it is now, whoever started it.
        fresh: bool,
    },
    /// It could not tell.
    Failed(String),
}

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionOutcome {
    /// Well: the change object is in the state that the transition enters.
    Done {
        /// What it exports there.
        values: Values,
    },
    /// Not well.
    Failed {
        /// Why, with the last lines that it printed.
        error: String,
    },
    /// Nobody knows: it was running when the daemon or the host died, and left no result.
    Lost,
    /// It was ended before its time because an operator cancelled the switch: no failure of its own.
    Cancelled,
}

/// An operator's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// No new transition starts on this host.
    Pause,
    /// They may start again.
    Resume,
    /// Forget that this change object has given up.
    Retry(CobId),
    /// The host will not come back as it was: free what its change objects hold here.
    Fence(HostName),
    /// A change object that leaves with the switch under way counts as final, here or on another host: nothing
    /// waits for it any longer.
    DeclareFinal(CobId),
    /// The switch to this generation is cancelled: the host stands still, as if paused, until it resumes or goes to
    /// another generation. What runs the daemon asks to end.
    Cancel(GenerationNumber),
    /// What was cancelled leads elsewhere now, by a step that this host is at or on its way to already: it stands still for
    /// it no longer.
    Unhold,
    /// At most so many transitions at a time on this host; none: as many as can go.
    Limit(Option<u32>),
    /// The guard of a switch has brought this host back, and these hosts are out of reach: promises to them that
    /// are asked back are waited for no longer. They are told as soon as they are there.
    LetLapse(BTreeSet<HostName>),
    /// A budget of this host has so many tokens and no more, however many the model gives it; none: as many as that.
    /// Tokens that are out stay out.
    LimitBudget(CobId, Option<u32>),
    /// A budget of this host has so many tokens until the next generation, whatever the model gives it and whatever
    /// member has failed; none: as many as the model gives it.
    RaiseBudget(CobId, Option<u32>),
    /// A change object goes to the state in which it is stopped, and stays there until it is started or the next generation
    /// is activated.
    Stop(CobId, Stopped),
    /// It is stopped no more.
    Start(CobId),
}
