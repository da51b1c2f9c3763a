//! The reports of the daemon about itself.

use cob_engine::ActiveObjects;
use cob_types::api::StatusOf;
use cob_types::manager_status::{CONVERGED, NO_GENERATION};
use cob_types::outcome::OutcomeOf;
use cob_types::status::{ActionStatus, CobStatus, HostStatus, LinkCounters, PeerStatus};
use cob_types::{CobId, GenerationNumber};
use tracing::warn;

use super::Daemon;
use crate::web::{Access, WatchedStatus};

impl Daemon {
    pub(super) fn host_status(&self, of: StatusOf, most_waiting: usize) -> HostStatus {
        let now = self.clock.now();
        let generation = self.engine.generation();
        let counters = self.neighbours.links().counters();
        let through = self.are_through();
        let ActiveObjects { mut cobs, waiting, idle } = match of {
            StatusOf::All => ActiveObjects { cobs: self.engine.status(now), waiting: 0, idle: 0 },
            StatusOf::Active => self.engine.status_of_active(now, most_waiting),
        };
        cobs.iter_mut().for_each(|c| self.add_more(c));
        cobs.extend(self.departures.status());
        HostStatus {
            name: self.config.host.clone(),
            reachable: true,
            error: None,
            generation: self.present.active().is_some().then_some(generation),
            switching_to: self.engine.pending_generation(),
            converged: self.is_converged(),
            paused: self.engine.is_paused(),
            security: self.security(),
            identity: self.neighbours.identity(),
            listen: Some(format!("tcp://{}", self.neighbours.links().address())),
            boots: self.boot.count,
            now_ns: now.0,
            clock_ahead_s: self.clock.ahead_s(),
            links: Some(LinkCounters {
                sent: counters.sent,
                sent_bytes: counters.sent_bytes,
                received: counters.received,
                received_bytes: counters.received_bytes,
                dropped: counters.dropped,
            }),
            refused: self.neighbours.refused(),
            peers: self
                .neighbours
                .links()
                .status()
                .into_iter()
                .filter(|p| !through.contains(&p.host))
                .map(|p| {
                    let fenced = !p.up && self.engine.counts_as_off(&p.host);
                    let unheard = self.engine.unheard(&p.host);
                    PeerStatus { unheard, fenced, ..p }
                })
                .collect(),
            denied: self.reports.api().denied(),
            switch_waits: self.engine.switch_waits(),
            cobs,
            held: self.engine.cancelled(),
            limit: self.engine.limit(),
            settled: self.book.durable().settled,
            prepared: self.prepared(),
            switch: self.switch_status(),
            limits: self.engine.limited_budgets(),
            raised: self.engine.raised_budgets(),
            invalid_grants: self.engine.invalid_grants(),
            says_final: true,
            idle: idle as u64,
            waiting: waiting as u64,
            withdrawn: self.switch.withdrawn().into_iter().filter(|g| *g > self.engine.generation()).collect(),
            alone: self.switch.is_alone(),
            came_from: self.switch.came_from(),
            manifest: self.present.active().map(|active| active.hash),
            newest_known: self.generations.newest_known(1).first().copied(),
            clock_offset_ms: None,
            unjustified: self.unjustified(),
            drained: self.switch.drained().clone(),
            window_wait: self.window_wait(),
            asked_by_anybody: generation != GenerationNumber(0) && !self.engine.judges_requests(),
        }
    }

    /// The result of the last switch to a generation, if it began in this incarnation.
    pub(super) fn outcome(&mut self, to: GenerationNumber) -> Option<OutcomeOf> {
        // A later incarnation must not contradict the report.
        if let Err(error) = self.book.commit() {
            warn!(%error, "the outcome of the switch is not reported");
            return None;
        }
        let outcome = self.book.course().newest_to(to)?;
        Some(OutcomeOf { host: self.config.host.clone(), outcome })
    }

    /// Reports a change, and the awaited part of the status, to watchers.
    pub(super) fn tell_change(&self) {
        self.reports.changed(WatchedStatus {
            converged: self.is_converged(),
            generation: self.engine.generation(),
            going_to: self.engine.pending_generation(),
            paused: self.engine.is_paused(),
        });
    }

    /// Reports to the service manager that the loop runs, and the status.
    pub(super) fn tell_manager(&mut self) {
        let now = self.clock.now();
        let through = self.are_through();
        let (converged, has_one) = (self.is_converged(), self.present.active().is_some());
        let (engine, links) = (&self.engine, self.neighbours.links());
        self.reports.alive(now, || {
            let peers: Vec<_> = links.status().into_iter().filter(|p| !through.contains(&p.host)).collect();
            let up = peers.iter().filter(|p| p.up).count();
            let state = match (engine.is_paused(), converged) {
                (true, _) if engine.cancelled().is_some() => "held",
                (true, _) => "paused",
                (false, true) => CONVERGED,
                (false, false) => "converging",
            };
            if !has_one {
                return format!("{NO_GENERATION}, {up} of {} peers linked", peers.len());
            }
            format!("generation {}, {state}, {up} of {} peers linked", engine.generation(), peers.len())
        });
    }

    /// The protection of this host: as in its generation or, before the first, as its configuration allows.
    fn security(&self) -> Option<String> {
        let word = match &*self.reports.api().access() {
            Access::LoopbackOnly => "loopback-only",
            Access::Operators(_) | Access::Nobody => "identities",
        };
        Some(word.to_owned())
    }

    pub(super) fn cob_status(&self, cob: &CobId) -> Option<CobStatus> {
        let Some(mut status) = self.engine.status_of(cob, self.clock.now()) else {
            return self.departures.status_of(cob);
        };
        self.add_more(&mut status);
        Some(status)
    }

    /// The output of the running action, or of the last action.
    pub(super) fn output(&self, cob: &CobId) -> Option<String> {
        self.jobs.output(&self.kinds, cob)
    }

    /// Adds the data that the engine lacks.
    fn add_more(&self, status: &mut CobStatus) {
        status.drift = self.kinds.drift(&status.id);
        let Some(ActionStatus { last_line, .. }) = status.action.as_mut() else { return };
        let output = self.output(&status.id).unwrap_or_default();
        last_line.clear();
        last_line.push_str(output.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default());
    }
}
