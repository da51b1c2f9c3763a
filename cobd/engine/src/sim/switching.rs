//! The orders of a switch to hosts, in the simulator and the explorer.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::{Bundle, GenerationNumber, Packed, SwitchOrder};

use crate::event::Event;

/// A host's bundle in each generation.
pub(super) type Bundles = BTreeMap<GenerationNumber, Arc<Bundle>>;

/// The orders of all switches, by generation before and after.
#[derive(Debug, Clone, Default)]
pub(super) struct Orders(BTreeMap<(GenerationNumber, GenerationNumber), Arc<SwitchOrder>>);

impl Orders {
    pub(super) fn add(&mut self, order: &SwitchOrder) {
        self.0.insert((order.from, order.to), Arc::new(order.clone()));
    }

    /// The order of a switch; the default has no waits between hosts.
    pub(super) fn between(&self, from: GenerationNumber, to: GenerationNumber) -> Arc<SwitchOrder> {
        self.0.get(&(from, to)).cloned().unwrap_or_else(|| Arc::new(SwitchOrder::free(from, to)))
    }
}

/// A switch as ordered on a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    pub(super) to: GenerationNumber,
    /// It is a rollback.
    pub(super) back: bool,
}

impl Command {
    /// The event for the engine of a host with this bundle.
    pub(super) fn event(self, bundle: Arc<Packed>, order: Arc<SwitchOrder>, in_process: Vec<String>) -> Event {
        Event::Switch { generation: self.to, bundle, in_process, order, rollback: self.back }
    }
}
