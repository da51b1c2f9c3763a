//! The steps of a script, and looks at the cluster, for scenarios with a known course.
//!
//! A script blocks links, lets actions fail, kills daemons and reinstalls hosts. The rest goes on as configured.

use std::sync::Arc;

use cob_types::{Batch, Bundle, CobId, GenerationNumber, HostName, Incarnation, Item, StateName};

use super::{Incident, World};
use crate::event::{Event, Order};
use crate::record::Durable;
use crate::sim::config::Outcome;
use crate::sim::reality::Thing;
use crate::sim::switching::Command;
use crate::time::{Span, Time};

impl World {
    /// Changes the real state of a change object behind the engines' backs, and tells its daemon to check.
    pub fn drift(&mut self, cob: &CobId, state: &StateName) {
        let Some(thing) = self.reality.find(cob) else { return };
        self.line(|_| format!("drift {cob} {state}"));
        let thing = &mut self.reality.things[thing];
        thing.state = state.clone();
        let host = thing.host;
        self.event(host, Event::CheckWanted(cob.clone()));
    }

    /// Gives an operator's order to a host.
    pub fn order(&mut self, host: &HostName, order: Order) {
        if let Order::Fence(lost) = &order
            && let Some(lost) = self.host_ix.get(lost).copied()
            && self.script.loses_power(lost)
        {
            self.reality.forget_promises_of(lost);
        }
        if let Some(host) = self.host_ix.get(host).copied() {
            self.event(host, Event::Order(order));
        }
    }

    /// Every host with a generation or an order has converged, and no crash is to come.
    #[must_use]
    pub fn has_come_to_rest(&self) -> bool {
        self.crashes_pending == 0
            && self.hosts.iter().all(|h| match &h.engine {
                Some(engine) => h.bundles.is_empty() || engine.is_converged(),
                None => false,
            })
            && self.reality.things.iter().all(|t| t.running.is_none())
    }

    /// Runs until the queue holds only timers beyond `quiet`.
    pub fn run_until_quiet(&mut self, quiet: Span) -> Outcome {
        while let Some((at, what)) = self.queue.peek() {
            let only_timer = matches!(what, Incident::Tick { .. });
            if only_timer && at > self.now + quiet {
                break;
            }
            if !self.outcome.violations.is_empty() || self.outcome.events >= self.config.max_events {
                break;
            }
            self.step();
        }
        self.conclude()
    }

    /// Replaces the daemon of a host by a liar: it sends these items to another host, in its last incarnation.
    pub fn lie(&mut self, from: &HostName, to: &HostName, items: Vec<Item>) {
        let (Some(from), Some(to)) = (self.host_ix.get(from).copied(), self.host_ix.get(to).copied()) else { return };
        let (name, incarnation) = (self.hosts[from].name.clone(), self.hosts[from].incarnation);
        self.script.liar = Some(name.clone());
        self.event(to, Event::Received(Batch { from: name, incarnation, lamport: 0, items, under_way: None }));
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

    /// Reinstalls a host: its daemon begins with an empty state folder, and its change objects have the states of a new
    /// machine. It gets its last order again.
    fn wipe(&mut self, host: usize) {
        self.line(|w| format!("{} is set up anew", w.hosts[host].name));
        self.talk = (0, self.now);
        // Grants that rely on its grants indirectly are not known to be wrong at once.
        self.deep = false;
        let id = self.random.bits();
        let h = &mut self.hosts[host];
        let was_up = h.engine.take().is_some();
        (h.cut, h.tick, h.rebooted, h.reinstalled) = (None, Time::NEVER, false, true);
        h.incarnation = Incarnation { id, start: 0 };
        h.durable = Durable::default();
        h.unsynced.clear();
        h.results.clear();
        if h.heading != GenerationNumber(0) {
            h.commands.push_front(Command { to: h.heading, back: false });
        }
        let bundle = h.bundles.get(&h.heading).cloned();
        for thing in 0..self.reality.things.len() {
            let Thing { id, host: at, .. } = &self.reality.things[thing];
            let kind = |bundle: &Arc<Bundle>| Some(bundle.kinds.get(&bundle.cobs.get(id)?.kind)?.pre_remove.clone());
            let state = bundle.as_ref().and_then(kind);
            if *at == host {
                self.reality.wipe(thing, state);
            }
        }
        if was_up && !self.script.stays_down(host) {
            self.push(self.now + Span::millis(1), Incident::Return { host });
        }
    }
}
