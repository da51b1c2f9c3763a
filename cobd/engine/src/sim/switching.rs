//! The orders of a switch to hosts, in the simulator and the explorer.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::{Bundle, GenerationNumber, Packed, SwitchOrder};

use crate::event::Event;

/// A host's bundle in each generation.
pub type Bundles = BTreeMap<GenerationNumber, Arc<Bundle>>;

/// The orders of all switches, by generation before and after.
#[derive(Debug, Clone, Default)]
pub struct Orders(BTreeMap<(GenerationNumber, GenerationNumber), Arc<SwitchOrder>>);

impl Orders {
    /// Adds the order of a switch.
    pub fn add(&mut self, order: &SwitchOrder) {
        self.0.insert((order.from, order.to), Arc::new(order.clone()));
    }

    /// The order of a switch; the default has no waits between hosts.
    #[must_use]
    pub fn between(&self, from: GenerationNumber, to: GenerationNumber) -> Arc<SwitchOrder> {
        self.0.get(&(from, to)).cloned().unwrap_or_else(|| Arc::new(SwitchOrder::free(from, to)))
    }
}

/// A switch as ordered on a host.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// The target of the switch.
    pub to: GenerationNumber,
    /// It is a rollback.
    pub back: bool,
}

impl Command {
    /// The event for the engine of a host with this bundle.
    #[must_use]
    pub fn event(self, bundle: Arc<Packed>, order: Arc<SwitchOrder>, in_process: Vec<String>) -> Event {
        Event::Switch { generation: self.to, bundle, in_process, order, rollback: self.back }
    }
}
