//! All effects that the engine can cause, in the order in which the caller must perform these.

use cob_types::message::Values;
use cob_types::{CobId, HostName, Item, Number, StateName};

use crate::record::Record;

/// The output of the engine. The caller performs the fields top to bottom: a record that is
/// [durable](crate::record::Body::must_be_durable) is on the disk before the first item leaves, and before the first
/// job starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// First: write these records.
    pub persist: Vec<Record>,
    /// Then: send these items.
    pub send: Vec<(HostName, Item)>,
    /// Then: start these jobs. They were decided before this tick activated a generation, so they belong to the
    /// previous generation.
    pub run_first: Vec<Run>,
    /// Then: this tick activated a generation; this host needs no older generations any more.
    pub activated: bool,
    /// Then: start these jobs.
    pub run: Vec<Run>,
}

impl Effects {
    /// Whether there is no work to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.persist.is_empty() && self.send.is_empty() && self.run_first.is_empty() && self.run.is_empty()
    }

    /// Appends the effects of a later event of the same tick.
    pub fn extend(&mut self, then: Effects) {
        add(&mut self.persist, then.persist);
        add(&mut self.send, then.send);
        if then.activated {
            add(&mut self.run_first, std::mem::take(&mut self.run));
            add(&mut self.run_first, then.run_first);
            self.activated = true;
        }
        add(&mut self.run, then.run);
    }
}

/// Appends in place and reuses the larger allocation: ten thousand effects at once need no second list.
pub(crate) fn add<T>(all: &mut Vec<T>, mut then: Vec<T>) {
    if all.len() < then.len() {
        then.splice(..0, all.drain(..));
        *all = then;
    } else {
        all.append(&mut then);
    }
}

/// Work outside the engine; its result comes back as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// Determine the state.
    Check {
        /// The change object.
        cob: CobId,
        /// The job number, which the result carries.
        job: Number,
    },
    /// Make a transition.
    Action {
        /// The change object.
        cob: CobId,
        /// The job number, which the result carries.
        job: Number,
        /// The state before the transition.
        from: StateName,
        /// The state after the transition.
        to: StateName,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The exported values that the held locks carry.
        imports: Vec<(CobId, StateName, Values)>,
    },
}
