//! Reinstalled hosts, and hosts that exchange messages without progress.

use std::sync::Arc;

use cob_types::{Bundle, GenerationNumber, Incarnation};

use crate::record::Durable;
use crate::sim::reality::Thing;
use crate::sim::switching::Word;
use crate::time::{Span, Time};

use super::{Incident, TALK, World};

impl World {
    /// Reinstalls a host: its daemon begins with an empty state folder, and its change objects have the states of a new
    /// machine. It gets its last order again.
    pub(in crate::sim) fn wipe(&mut self, host: usize) {
        self.line(|w| format!("{} is set up anew", w.hosts[host].name));
        self.talk = (0, self.now);
        // Grants that rely on its grants indirectly are not known to be wrong at once.
        self.deep = false;
        let id = self.random.bits();
        let h = &mut self.hosts[host];
        let was_up = h.engine.take().is_some();
        (h.cut, h.tick, h.rebooted, h.reinstalled) = (None, Time::NEVER, false, true);
        h.life = Incarnation { id, start: 0 };
        h.durable = Durable::default();
        h.unsynced.clear();
        h.results.clear();
        if h.heading != GenerationNumber(0) {
            h.words.push_front(Word { to: h.heading, back: false });
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

    /// Checks that hosts do not exchange messages without progress.
    pub(super) fn count_talk(&mut self) {
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
