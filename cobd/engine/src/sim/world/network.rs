//! The network of the simulated cluster, and hosts that exchange messages without progress.

use cob_types::{Batch, HostName, Item};

use crate::sim::config::TALK;
use crate::sim::daemon::batches;
use crate::sim::trace::describe;
use crate::time::Span;

use super::{Incident, World};

impl World {
    pub(super) fn send(&mut self, host: usize, send: Vec<(HostName, Item)>) {
        if send.is_empty() {
            return;
        }
        for (_, item) in &send {
            self.outcome.messages += 1;
            self.talk.0 += 1;
            self.outcome.probes += u64::from(matches!(item, Item::Probe(_)));
        }
        self.count_talk();
        let Some(engine) = &self.hosts[host].engine else { return };
        let under_way = self.hosts[host].switch.state.under_way();
        for (to, mut batch) in batches(&self.hosts[host].name, engine, send, |to| self.host_ix.get(to).copied()) {
            self.outcome.batches += 1;
            batch.under_way = under_way;
            if let Some(happened) = &mut self.happened {
                happened.sent.extend(batch.items.iter().map(|item| (host, to, item.clone())));
            }
            self.script.lose(host, to, self.now, &mut batch);
            if batch.items.is_empty() {
                continue;
            }
            self.transmit(host, to, batch);
        }
    }

    fn transmit(&mut self, from: usize, to: usize, batch: Batch) {
        let batch = if self.config.codec {
            match self.through_the_wire(&batch) {
                Some(batch) => batch,
                None => return,
            }
        } else {
            batch
        };
        if self.config.trace {
            for item in &batch.items {
                let text = format!("{} -> {}: {}", batch.from, self.hosts[to].name, describe(item));
                self.line(|_| text);
            }
        }
        let Some(batch) = self.script.keep_back(from, to, batch) else { return };
        if self.random.permille(self.config.loss) {
            self.line(|_| "  (lost)".to_owned());
            return;
        }
        let copies = if self.random.permille(self.config.double) { 2 } else { 1 };
        for _ in 0..copies {
            let (low, high) = self.config.delay_us;
            let mut at = self.now + Span(self.random.between(low, high) * 1000);
            if self.config.fifo {
                let last = self.last_arrival.entry((from, to)).or_insert(at);
                at = at.max(*last);
                *last = at;
            }
            self.push(at, Incident::Deliver { to, batch: batch.clone() });
        }
    }

    fn through_the_wire(&mut self, batch: &Batch) -> Option<Batch> {
        let read = batch.encode().ok().and_then(|bytes| {
            self.outcome.bytes += bytes.len() as u64;
            Batch::decode(&bytes).ok()
        });
        match read {
            Some(received) if received.batch == *batch && received.unknown == 0 => Some(received.batch),
            Some(_) | None => {
                self.violation("a batch did not survive its wire form".to_owned());
                None
            }
        }
    }

    /// Checks that hosts do not exchange messages without progress.
    fn count_talk(&mut self) {
        let Some(most) = self.config.talk else { return };
        if self.now > self.talk.1 + TALK {
            self.talk = (0, self.now);
        } else if self.talk.0 > most {
            let (messages, millis) = (self.talk.0, (self.now.0 - self.talk.1.0) / 1_000_000);
            self.violation(format!("{messages} messages in {millis} ms, and no progress"));
            self.talk = (0, self.now);
        }
    }
}
