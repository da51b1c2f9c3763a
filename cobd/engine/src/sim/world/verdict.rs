//! The checks of the simulated cluster: the invariants of its engines, and the real world.

use crate::engine::invariants;
use crate::record::{Body, Durable, DurableCob, Record};

use super::World;

impl World {
    /// A budget has a token back from a failed member, by the records of that member. A killed daemon may have lost the
    /// record of the end of the failure.
    pub(super) fn token_of_a_failed_member(&self, record: &Record) -> Option<String> {
        let Body::Returned { cob: budget, from: member, number } = &record.body else { return None };
        let host = &self.hosts[self.reality.things[self.reality.find(member)?].host];
        if !self.config.check || host.incarnation.start > 1 {
            return None;
        }
        let failed_with_it = |d: &Durable| {
            let token = |c: &DurableCob| c.token.as_ref().is_some_and(|t| t.cob == *budget && t.number == *number);
            d.cobs.get(member).is_some_and(|c| c.failed && token(c))
        };
        if !failed_with_it(&host.durable) {
            return None;
        }
        let mut recorded = host.durable.clone();
        host.unsynced.iter().for_each(|r| recorded.apply(r));
        failed_with_it(&recorded).then(|| format!("{member} has failed, and has given its token of {budget} back"))
    }

    /// The engine's own invariants, and its agreement with the records.
    pub(super) fn verify(&mut self, host: usize) {
        if !self.config.check {
            return;
        }
        let h = &self.hosts[host];
        let Some(engine) = &h.engine else { return };
        let mut found = invariants::check(engine).err();
        if found.is_none() && !self.config.faults.let_records_differ() {
            let mut recorded = h.durable.clone();
            h.unsynced.iter().for_each(|r| recorded.apply(r));
            found = invariants::agrees(engine, &recorded).err();
        }
        found = found.or_else(|| invariants::refuses_no_honest_host(engine, self.script.liar()).err());
        if let Some(what) = found {
            self.violation(what);
        }
    }

    pub(super) fn violation(&mut self, what: String) {
        let at = self.now.0 / 1000;
        let run = if self.is_planned() { String::new() } else { format!("seed {}, {at} us: ", self.config.seed) };
        self.outcome.violations.push(format!("{run}{what}"));
    }

    /// Checks the host's limit on running actions.
    pub(super) fn count_running(&mut self, thing: usize) {
        let Some(limit) = self.config.limit_actions else { return };
        let host = self.reality.things[thing].host;
        let running = self.reality.things.iter().filter(|t| t.host == host && t.running.is_some()).count();
        if running > limit as usize {
            self.violation(format!("{running} act on {} under a limit of {limit}", self.hosts[host].name));
        }
    }
}
