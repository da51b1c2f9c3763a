//! Forks of a simulated cluster, and the faults that strike them: to try many faults at each step of the same run.

use cob_types::{HostName, Item};

use super::{Incident, World};
use crate::engine::Engine;
use crate::record::Durable;
use crate::sim::config::Outcome;
use crate::sim::fault::{DAEMON_AWAY, FaultKind, HOST_AWAY, LINK_LOSES, SwitchFault, Victim};
use crate::sim::reality::{Crowded, Running, Thing};
use crate::sim::script::{FailingTransition, LosingLink};
use crate::switch::Stage;
use crate::time::{Span, Time};

/// A run without a start or end of an action for this long has come to a stand: all delays of repeats and retries are
/// shorter.
const STANDS: Span = Span::secs(900);

/// The events and effects of a step.
#[derive(Debug, Clone, Default)]
pub struct Happened {
    /// The hosts that handled an event.
    pub hosts: Vec<usize>,
    /// Hosts whose records of the step had to be durable.
    pub recorded: Vec<usize>,
    /// Messages: sender, receiver, content.
    pub sent: Vec<(usize, usize, Item)>,
    /// Started actions, by the number of the change object.
    pub started: Vec<usize>,
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// Every host has converged.
    Converged,
    /// The run has come to a stand.
    Stands,
    /// It did not end within its events.
    Endless,
    /// A rule of the real world was violated.
    Violated,
}

impl World {
    /// Runs until all hosts with a generation have converged. Returns whether this is so.
    pub fn settle_in(&mut self, events: u64) -> bool {
        let last = self.outcome.events + events;
        let rests = |h: &super::Host| h.bundles.is_empty() || h.engine.as_ref().is_some_and(Engine::is_converged);
        while !self.hosts.iter().all(rests) {
            if self.outcome.events >= last || !self.step() {
                return false;
            }
        }
        true
    }

    /// Collects events and effects from now on.
    pub fn watch(&mut self) {
        self.happened = Some(Happened::default());
    }

    /// The events and effects since the last call. A fork of this moment can undo the messages and jobs of this step.
    pub fn take_happened(&mut self) -> Happened {
        self.happened.replace(Happened::default()).unwrap_or_default()
    }

    /// Marks the start of a step: its messages and jobs differ from earlier messages and jobs.
    pub fn begin_step(&mut self) {
        self.step_began = self.queue.order();
    }

    /// Performs the next event as a step of its own.
    pub fn next_step(&mut self) -> bool {
        self.begin_step();
        self.step()
    }

    /// A copy that runs on by itself. It collects no events; `trace`: it writes a trace.
    #[must_use]
    pub fn fork(&self, trace: bool) -> Self {
        let mut fork = self.clone();
        (fork.happened, fork.config.trace) = (None, trace);
        fork.trace.clear();
        fork.outcome.actions.clear();
        fork
    }

    /// Performs the next event. Returns false if the queue is empty.
    pub fn step(&mut self) -> bool {
        let Some((at, what)) = self.queue.pop() else { return false };
        self.happen_at(at, what);
        true
    }

    /// Lets a fault happen after the step that was just performed.
    ///
    /// # Errors
    /// If the step gives no occasion for it, in words.
    pub fn strike(&mut self, fault: &SwitchFault, step: &Happened) -> Result<(), String> {
        self.line(|_| fault.to_string());
        match &fault.what {
            FaultKind::Kill { host, victim, early } => {
                let at = self.number_of(host)?;
                self.kill_at(at, *victim, early.then_some(step));
                Ok(())
            }
            FaultKind::Fail { cob, always } => {
                let begun = step.started.iter().copied().find(|thing| self.reality.things[*thing].id == *cob);
                let Some(thing) = begun else {
                    return Err(format!("step {} starts no action of {cob}", fault.step));
                };
                self.fail_action(thing, *always);
                Ok(())
            }
            FaultKind::Lose { item, from, to, long } => {
                let (sender, receiver) = (self.number_of(from)?, self.number_of(to)?);
                let is_sent = |(a, b, sent): &(usize, usize, Item)| (*a, *b, sent.name()) == (sender, receiver, *item);
                if !step.sent.iter().any(is_sent) {
                    return Err(format!("step {} sends no {item} from {from} to {to}", fault.step));
                }
                self.unsend(sender, Some((receiver, item)));
                if *long {
                    let until = self.now + LINK_LOSES;
                    self.script.losing = Some(LosingLink { from: sender, to: receiver, item, until });
                }
                Ok(())
            }
        }
    }

    fn number_of(&self, host: &HostName) -> Result<usize, String> {
        self.host_ix.get(host).copied().ok_or_else(|| format!("no host {host} takes part in the switch"))
    }

    /// `early`: the step, whose messages are not sent and whose jobs are not started.
    fn kill_at(&mut self, host: usize, victim: Victim, early: Option<&Happened>) {
        if let Some(step) = early {
            self.unsend(host, None);
            for thing in step.started.iter().copied() {
                if self.reality.things[thing].host == host {
                    self.reality.end(thing, false);
                }
            }
        }
        self.script.down.insert(host);
        let away = match victim {
            Victim::Host => {
                self.script.without_power.insert(host);
                self.reality.power_off(host);
                HOST_AWAY
            }
            Victim::Daemon => DAEMON_AWAY,
        };
        self.crash(host);
        self.push(self.now + away, Incident::Return { host });
    }

    fn fail_action(&mut self, thing: usize, always: bool) {
        let Thing { id, host, running, .. } = &self.reality.things[thing];
        let Some(Running { from, to, .. }) = running.clone() else { return };
        let bundles = self.hosts[*host].bundles.values().rev();
        let of = bundles.filter_map(|bundle| bundle.kinds.get(&bundle.cobs.get(id)?.kind));
        let transition = of.flat_map(|kind| &kind.transitions).find(|t| t.from == from && t.to == to);
        let retries = transition.map_or(0, |t| t.retries);
        let becomes = transition.and_then(|t| t.failure.clone());
        let times = if always { retries.saturating_add(1) } else { 1 };
        self.script.fails = Some(FailingTransition { thing, from, to, times, becomes });
    }

    /// Takes back messages of the last step of a host: all, or those of a kind to another host.
    fn unsend(&mut self, host: usize, which: Option<(usize, &str)>) {
        let (sender, began) = (self.hosts[host].name.clone(), self.step_began);
        self.queue.change_since(began, |what| {
            let Incident::Deliver { to, batch } = what else { return };
            if batch.from == sender && which.is_none_or(|(receiver, _)| receiver == *to) {
                batch.items.retain(|item| which.is_some_and(|(_, name)| item.name() != name));
            }
        });
    }

    /// Runs to the end of the switch or of its rollback, or until the run has come to a stand.
    pub fn run_out(&mut self, events: u64) -> RunEnd {
        let last = self.outcome.events.saturating_add(events);
        let mut moved = self.now;
        loop {
            if !self.outcome.violations.is_empty() {
                return RunEnd::Violated;
            }
            if self.is_over() {
                return RunEnd::Converged;
            }
            if self.outcome.events >= last {
                return RunEnd::Endless;
            }
            let Some((at, what)) = self.queue.peek() else { return RunEnd::Stands };
            if at > moved + STANDS {
                return RunEnd::Stands;
            }
            let ends = matches!(what, Incident::ActionDone { .. } | Incident::Return { .. });
            let begun = self.outcome.actions.len();
            self.step();
            if ends || self.outcome.actions.len() > begun {
                moved = self.now;
            }
        }
    }

    /// Every host has converged, in a switch that has settled or stopped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_open = |h: &super::Host| h.switch.state.current.as_ref().is_some_and(|c| c.stage == Stage::UnderWay);
        !self.hosts.iter().any(is_open) && self.all_converged()
    }

    /// The engine of a host, while its daemon is up.
    #[must_use]
    pub fn engine(&self, host: &HostName) -> Option<&Engine> {
        self.hosts[*self.host_ix.get(host)?].engine.as_ref()
    }

    /// The hosts, in the order of their numbers.
    pub fn host_names(&self) -> impl Iterator<Item = &HostName> {
        self.hosts.iter().map(|host| &host.name)
    }

    /// The name of a host by its number.
    #[must_use]
    pub fn host_name(&self, host: usize) -> &HostName {
        &self.hosts[host].name
    }

    /// The state on the disk of a host.
    #[must_use]
    pub fn durable(&self, host: usize) -> &Durable {
        &self.hosts[host].durable
    }

    /// A change object by its number.
    #[must_use]
    pub fn thing(&self, thing: usize) -> &Thing {
        &self.reality.things[thing]
    }

    /// Members of budgets that went out of service while too many others were out of service already, some because
    /// their hosts had lost power.
    #[must_use]
    pub fn crowded(&self) -> &[Crowded] {
        &self.reality.crowded
    }

    /// The trace, a line per event, if requested.
    #[must_use]
    pub fn trace(&self) -> &str {
        &self.trace
    }

    /// The counts so far.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Whether chance has no part in faults: a supervised switch has only given faults.
    pub(super) fn is_planned(&self) -> bool {
        self.supervision.is_some()
    }

    /// A killed host or daemon is back.
    pub(super) fn end_outage(&mut self, host: usize) {
        if self.is_planned() {
            self.script.down.remove(&host);
            if self.script.without_power.remove(&host) {
                let active = self.hosts[host].active_bundle().cloned();
                self.reality.boot(host, active.as_ref());
            }
        }
    }

    /// Virtual time since a moment.
    #[must_use]
    pub fn since(&self, began: Time) -> Span {
        Span(self.now.0.saturating_sub(began.0))
    }
}
