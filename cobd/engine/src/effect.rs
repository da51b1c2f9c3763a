//! Everything that the engine can cause, in the order in which it must be carried out.

use cob_types::message::Values;
use cob_types::{CobId, HostName, Item, Number, StateName};

use crate::record::Record;

/// What comes out of the engine. The caller performs the fields top to bottom: a record that is
/// [durable](crate::record::Body::must_be_durable) is on the disk before the first item leaves, and
/// before the first job starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// First: write these.
    pub persist: Vec<Record>,
    /// Then: say these.
    pub send: Vec<(HostName, Item)>,
    /// Then: start these, which were decided on before a generation was activated in this turn, and so are of the one
    /// before.
    pub run_first: Vec<Run>,
    /// Then: a generation was activated in this turn; older ones need not be kept for this host.
    pub activated: bool,
    /// Then: start these.
    pub run: Vec<Run>,
}

impl Effects {
    /// Nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.persist.is_empty() && self.send.is_empty() && self.run_first.is_empty() && self.run.is_empty()
    }

    /// Adds what an event of the same turn has caused after all this.
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

/// Of ten thousand that come at once no second list is made.
pub(crate) fn add<T>(all: &mut Vec<T>, mut then: Vec<T>) {
    if all.len() < then.len() {
        then.splice(..0, all.drain(..));
        *all = then;
    } else {
        all.append(&mut then);
    }
}

/// Work outside the engine that reports back by an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// Find out the state.
    Check {
        /// Whose.
        cob: CobId,
        /// Comes back with the result.
        job: Number,
    },
    /// Make a transition.
    Action {
        /// Whose.
        cob: CobId,
        /// Comes back with the result.
        job: Number,
        /// The state that is left.
        from: StateName,
        /// The state that is entered.
        to: StateName,
        /// From 1.
        attempt: u32,
        /// What the held locks carry.
        imports: Vec<(CobId, StateName, Values)>,
    },
}
