//! A cluster by script: which links are blocked, which actions fail, which daemons die, instead of random choices.
//!
//! For scenarios with a known course. The rest goes on as configured.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::{Batch, CobId, HostName, Item};

use crate::event::Event;
use crate::sim::world::{Incident, World};
use crate::time::{Span, Time};

/// The deviations of a script from random choices.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    /// Blocked links, and the batches kept back on them.
    held: BTreeMap<(usize, usize), Vec<Batch>>,
    /// The number of the next actions that fail, by thing.
    failing: BTreeMap<usize, u32>,
    /// The duration of actions, by thing.
    lasting: BTreeMap<usize, Span>,
    /// Hosts that restart only by script.
    down: BTreeSet<usize>,
    /// Hosts among these that have lost power.
    without_power: BTreeSet<usize>,
    /// A host whose daemon lies.
    liar: Option<HostName>,
}

impl Script {
    pub(super) fn must_fail(&mut self, thing: usize) -> bool {
        match self.failing.get_mut(&thing) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn lasts(&self, thing: usize) -> Option<Span> {
        self.lasting.get(&thing).copied()
    }

    pub(super) fn liar(&self) -> Option<&HostName> {
        self.liar.as_ref()
    }

    pub(super) fn stays_down(&self, host: usize) -> bool {
        self.down.contains(&host)
    }

    pub(super) fn loses_power(&self, host: usize) -> bool {
        self.without_power.contains(&host)
    }

    /// Returns the batch, unless its link is blocked.
    pub(super) fn keep_back(&mut self, from: usize, to: usize, batch: Batch) -> Option<Batch> {
        match self.held.get_mut(&(from, to)) {
            Some(kept) => {
                kept.push(batch);
                None
            }
            None => Some(batch),
        }
    }
}

impl World {
    /// Replaces the daemon of a host by a liar: it sends these items to another host, in its last incarnation.
    pub fn lie(&mut self, from: &HostName, to: &HostName, items: Vec<Item>) {
        let (Some(from), Some(to)) = (self.host_ix.get(from).copied(), self.host_ix.get(to).copied()) else { return };
        let (name, incarnation) = (self.hosts[from].name.clone(), self.hosts[from].incarnation);
        self.script.liar = Some(name.clone());
        self.event(to, Event::Received(Batch { from: name, incarnation, lamport: 0, items, under_way: None }));
    }

    /// Performs the next event. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        let Some((at, what)) = self.queue.pop() else { return false };
        self.happen_at(at, what);
        true
    }

    /// Performs all events until this span of time has passed.
    pub fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        while self.next_at().is_some_and(|at| at <= end) && self.outcome.violations.is_empty() {
            self.step();
        }
        self.now = self.now.max(end);
        self.conclude();
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.queue.peek().map(|(at, _)| at)
    }

    /// The next `times` actions of a change object fail without an effect.
    pub fn fail(&mut self, cob: &CobId, times: u32) {
        if let Some(thing) = self.reality.find(cob) {
            self.script.failing.insert(thing, times);
        }
    }

    /// From now on actions of a change object take this long.
    pub fn let_last(&mut self, cob: &CobId, span: Span) {
        if let Some(thing) = self.reality.find(cob) {
            self.script.lasting.insert(thing, span);
        }
    }

    /// Kills a daemon; it stays down until [`World::revive`].
    pub fn kill(&mut self, host: &HostName) {
        if let Some(host) = self.host_ix.get(host).copied()
            && self.hosts[host].engine.is_some()
        {
            self.script.down.insert(host);
            self.crash(host);
        }
    }

    /// Cuts the power of a host: its daemon and all its actions die.
    pub fn power_off(&mut self, host: &HostName) {
        if let Some(ix) = self.host_ix.get(host) {
            self.script.without_power.insert(*ix);
        }
        self.kill(host);
    }

    /// Starts a daemon that was killed, or a host that had no power.
    pub fn revive(&mut self, host: &HostName) {
        if let Some(host) = self.host_ix.get(host).copied() {
            self.script.without_power.remove(&host);
            self.script.down.remove(&host);
            self.come_back(host);
        }
    }

    /// Reinstalls a host, with an empty state folder. A killed daemon stays down until [`World::revive`].
    pub fn reinstall(&mut self, host: &HostName) {
        if let Some(host) = self.host_ix.get(host).copied() {
            self.reality.forget_promises_of(host);
            self.wipe(host);
        }
    }

    /// Keeps back the messages from a host to another, from now on.
    pub fn hold(&mut self, from: &HostName, to: &HostName) {
        if let Some(link) = self.link(from, to) {
            self.script.held.entry(link).or_default();
        }
    }

    /// Delivers the kept-back batches, in their order, and unblocks the link.
    pub fn deliver(&mut self, from: &HostName, to: &HostName) {
        for batch in self.let_go(from, to) {
            if let Some(to) = self.host_ix.get(to).copied() {
                self.happen(Incident::Deliver { to, batch });
            }
        }
    }

    /// Loses the kept-back batches, and unblocks the link.
    pub fn lose(&mut self, from: &HostName, to: &HostName) {
        self.let_go(from, to);
    }

    fn let_go(&mut self, from: &HostName, to: &HostName) -> Vec<Batch> {
        self.link(from, to).and_then(|link| self.script.held.remove(&link)).unwrap_or_default()
    }

    fn link(&self, from: &HostName, to: &HostName) -> Option<(usize, usize)> {
        Some((*self.host_ix.get(from)?, *self.host_ix.get(to)?))
    }
}
