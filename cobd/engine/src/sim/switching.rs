//! What is told to hosts of a switch, in the simulated world and where every run is explored.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::{Bundle, GenerationNumber, SwitchOrder};

use crate::bundle::AnyBundle;
use crate::event::Event;

/// What a host was given: its bundle in each generation.
pub(super) type Bundles = BTreeMap<GenerationNumber, Arc<Bundle>>;

/// The orders of all switches, by where they lead from and to.
#[derive(Debug, Clone, Default)]
pub(super) struct Orders(BTreeMap<(GenerationNumber, GenerationNumber), Arc<SwitchOrder>>);

impl Orders {
    pub(super) fn add(&mut self, order: &SwitchOrder) {
        self.0.insert((order.from, order.to), Arc::new(order.clone()));
    }

    /// The order of a switch; where there is none, nobody waits for another host.
    pub(super) fn between(&self, from: GenerationNumber, to: GenerationNumber) -> Arc<SwitchOrder> {
        self.0.get(&(from, to)).cloned().unwrap_or_else(|| Arc::new(SwitchOrder::free(from, to)))
    }
}

/// A switch, as a host is told of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    pub(super) to: GenerationNumber,
    /// It is the way back.
    pub(super) back: bool,
}

impl Word {
    /// What it is to the engine of a host with this bundle, to which the order leads.
    pub(super) fn event(self, bundle: impl Into<AnyBundle>, order: Arc<SwitchOrder>, in_process: Vec<String>) -> Event {
        let generation = self.to;
        if self.back {
            Event::Back { generation, bundle: bundle.into(), in_process, order }
        } else {
            Event::Go { generation, bundle: bundle.into(), in_process, order }
        }
    }
}
