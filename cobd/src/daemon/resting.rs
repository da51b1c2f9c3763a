//! How long the dependencies of a change object have been unchanged: a service that was started later runs with them.

use std::time::Duration;

use cob_engine::Time;
use cob_types::status::CobStatus;
use cob_types::{Cob, CobId};

use super::Daemon;

impl Daemon {
    /// How long all dependencies of its start have been in the needed states; absent: a dependency is in another or
    /// unknown state, or on another host.
    pub(super) fn rested_for(&self, cob: &Cob) -> Option<Duration> {
        cob.rests_on?;
        let mut least: Option<Duration> = None;
        let up = cob.transitions.iter().filter(|transition| transition.to == cob.preferred);
        for need in up.flat_map(|transition| &transition.needs) {
            if need.cob.host_str() != cob.id.host_str() {
                return None;
            }
            let now = self.clock.now();
            let status = self.engine.status_of(&need.cob, now)?;
            let runs = status.action.as_ref().is_some_and(|action| action.running && action.to.is_some());
            if runs || !status.state.as_ref().is_some_and(|state| need.states.contains(state)) {
                return None;
            }
            let rested = self.unmoved_for(&status, now);
            least = Some(least.map_or(rested, |least| least.min(rested)));
        }
        least
    }

    /// How long the change object has been unchanged. Without a transition since the machine booted, it is older than
    /// all running services.
    fn unmoved_for(&self, status: &CobStatus, now: Time) -> Duration {
        let since = match self.jobs.moved_at(&status.id) {
            Some(at) => at.0,
            None if !self.boot.same => return Duration::MAX,
            None => status.since_ns,
        };
        Duration::from_nanos(now.0.saturating_sub(since))
    }

    /// Whether no dependency has changed since a check of the change object started.
    pub(super) fn still_rests(&self, cob: &CobId, check_began_ns: u64) -> bool {
        let Some((_, ready)) = self.present.ready(cob) else { return false };
        let began = self.clock.of_wall(check_began_ns).0;
        let since = Duration::from_nanos(self.clock.now().0.saturating_sub(began));
        check_began_ns > 0 && self.rested_for(&ready.cob).is_some_and(|rested| rested > since)
    }
}
