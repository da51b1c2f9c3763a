//! Killed daemons, hosts without power, and reinstalled hosts.

use cob_types::CobId;

use crate::event::{ActionOutcome, Event};
use crate::sim::daemon::Restart;
use crate::sim::reality::Thing;
use crate::time::{Span, Time};

use super::{Incident, World};

impl World {
    /// Spreads the crashes of the configuration over the time that comes.
    pub fn plan_crashes(&mut self) {
        for _ in 0..self.config.crashes {
            let host = self.random.below(self.hosts.len() as u64) as usize;
            let after = Span(self.random.below(self.config.trouble_us) * 1000);
            let cut = self.random.below(5) as u8;
            self.push(self.now + after, Incident::Crash { host, cut });
        }
    }

    pub(in crate::sim) fn crash(&mut self, host: usize) {
        self.outcome.crashes += 1;
        self.line(|w| format!("crash {}", w.hosts[host].name));
        let (is_planned, loses_power) = (self.is_planned(), self.script.loses_power(host));
        let h = &mut self.hosts[host];
        h.engine = None;
        h.cut = None;
        h.tick = Time::NEVER;
        // A prefix of the unsynced records survives.
        let kept = match is_planned {
            true if loses_power => 0,
            true => h.unsynced.len(),
            false => self.random.below(h.unsynced.len() as u64 + 1) as usize,
        };
        for record in h.unsynced.drain(..).take(kept) {
            h.durable.apply(&record);
        }
        self.hosts[host].rebooted = self.script.loses_power(host) || self.random.permille(self.config.power);
        self.abort_actions(host);
        let after = Span(self.random.between(1_000, 400_000) * 1000);
        if !self.script.stays_down(host) {
            self.push(self.now + after, Incident::Return { host });
        }
    }

    /// Actions inside the daemon die with it, and all actions with the host; half-way.
    fn abort_actions(&mut self, host: usize) {
        for ix in 0..self.reality.things.len() {
            let Thing { id, host: at, running, .. } = &self.reality.things[ix];
            let dies = self.hosts[host].rebooted || self.is_in_process(host, id);
            if *at == host && dies && running.is_some() {
                let arrives = !self.is_planned() && self.random.permille(500);
                self.reality.end(ix, arrives);
            }
        }
    }

    fn is_in_process(&self, host: usize, cob: &CobId) -> bool {
        let mut bundles = self.hosts[host].bundles.values().rev();
        let kind = bundles.find_map(|b| b.kinds.get(&b.cobs.get(cob)?.kind));
        kind.is_some_and(|k| self.in_process.contains(&k.backend))
    }

    pub(in crate::sim) fn come_back(&mut self, host: usize) {
        if self.hosts[host].engine.is_some() {
            return;
        }
        let same = self.config.same_incarnation;
        let h = &mut self.hosts[host];
        h.incarnation.start += u32::from(!same);
        let restart = Restart {
            name: &h.name,
            incarnation: h.incarnation,
            durable: &h.durable,
            orders: &self.orders,
            in_process: &self.in_process,
            same_boot: !std::mem::take(&mut h.rebooted),
            faults: &self.config.faults,
        };
        let (active, engine, effects) = restart.recover(|of| h.packed.get(&of).cloned(), self.now);
        let running = engine.running_actions();
        h.engine = Some(engine);
        self.line(|w| format!("return {}", w.hosts[host].name));
        self.perform(host, active, effects);
        // The source of an order repeats it to a host that had not answered.
        self.give_commands(host);
        for (cob, job) in running {
            if self.reality.runs(&cob, job) {
                continue;
            }
            let outcome = self.hosts[host].results.get(&job).cloned().unwrap_or(ActionOutcome::Lost);
            self.event(host, Event::ActionEnded { cob, job, outcome, span: (0, 0) });
        }
        self.take_up_switch(host);
    }
}
