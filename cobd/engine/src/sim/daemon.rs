//! The daemon around an engine, as far as simulator and explorer share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::{Batch, GenerationNumber, HostName, Incarnation, Item, Packed};

use crate::effect::Effects;
use crate::engine::{Engine, RestartInput};
use crate::event::KnownAskers;
use crate::faults::Faults;
use crate::record::Durable;
use crate::sim::switching::Orders;
use crate::time::Time;

/// The result of a daemon's search for the askers of a generation.
#[must_use]
pub fn known_askers(bundle: Option<&Packed>) -> KnownAskers {
    match bundle.map(|bundle| bundle.askers().cloned()) {
        Some(Some(askers)) => KnownAskers::Named(askers),
        Some(None) => KnownAskers::Unsaid,
        None => KnownAskers::Unavailable,
    }
}

/// The items of a tick in batches, by the index of their receiver; items for unknown hosts are dropped.
pub fn batches(
    name: &HostName,
    engine: &Engine,
    send: Vec<(HostName, Item)>,
    find: impl Fn(&HostName) -> Option<usize>,
) -> Vec<(usize, Batch)> {
    let mut by_host: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
    for (to, item) in send {
        if let Some(to) = find(&to) {
            by_host.entry(to).or_default().push(item);
        }
    }
    let (incarnation, lamport) = (engine.incarnation(), engine.lamport());
    let batch = |items| Batch { from: name.clone(), incarnation, lamport, items, under_way: None };
    by_host.into_iter().map(|(to, items)| (to, batch(items))).collect()
}

/// A daemon that restarts on its state folder.
#[derive(Debug)]
pub struct Restart<'a> {
    /// The host.
    pub name: &'a HostName,
    /// Its new incarnation.
    pub incarnation: Incarnation,
    /// The state on its disk.
    pub durable: &'a Durable,
    /// The orders of all switches.
    pub orders: &'a Orders,
    /// As in [`crate::event::Event::Switch`].
    pub in_process: &'a [String],
    /// The host itself has not restarted since.
    pub same_boot: bool,
    /// Planted faults.
    pub faults: &'a Faults,
}

impl Restart<'_> {
    /// The active generation, the engine and its first effects.
    #[must_use]
    pub fn recover(
        &self,
        bundle: impl Fn(GenerationNumber) -> Option<Arc<Packed>>,
        now: Time,
    ) -> (GenerationNumber, Engine, Effects) {
        let (active, pending) = self.durable.needed_generations();
        let back = RestartInput {
            host: self.name,
            incarnation: self.incarnation,
            durable: self.durable,
            active: active.and_then(&bundle),
            pending: pending.and_then(&bundle),
            order: self.orders.between(active.unwrap_or_default(), pending.unwrap_or_default()),
            in_process: self.in_process,
            same_boot: self.same_boot,
        };
        let (engine, effects) = Engine::recover_with(&back, self.faults.clone(), now);
        (active.unwrap_or_default(), engine, effects)
    }
}
