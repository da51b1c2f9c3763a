//! The askers of generations that requests of other hosts name, although this host does not have them: the other hosts
//! are ahead (a canary) or behind (after an absence).

use std::time::Duration;

use cob_engine::{Event, KnownAskers};
use cob_types::GenerationNumber;
use cob_types::status::Unjustified;
use tracing::info;

use super::Daemon;
use super::inbox::TaskResult;
use crate::blocking::beside;

/// How long refusals are shown.
const SHOWN: cob_engine::time::Span = cob_engine::time::Span::secs(3600);
/// The pause after a failed lookup, so that a lying host that names absent generations causes little work.
const REST: Duration = Duration::from_secs(1);

/// The result of a lookup, with its generation.
pub(super) type Found = (GenerationNumber, KnownAskers);

impl Daemon {
    /// Looks up the askers that requests of other hosts wait for: on disk, then in the depot.
    pub(super) fn look_for_askers(&mut self) {
        let Some(generation) = self.engine.wanted_askers().filter(|_| !self.fetches.askers) else { return };
        self.fetches.askers = true;
        let generations = self.generations.clone();
        let known = self.present.active().cloned();
        self.tasks.spawn(async move {
            let found = beside(move || generations.askers(generation, known.as_ref())).await;
            let askers = match found {
                Ok(Ok(askers)) => askers,
                Ok(Err(error)) => {
                    info!(%generation, %error, "the permitted requests of other hosts can't be determined");
                    tokio::time::sleep(REST).await;
                    KnownAskers::Unavailable
                }
                Err(_) => KnownAskers::Unavailable,
            };
            TaskResult::Askers((generation, askers))
        });
    }

    pub(super) fn askers_found(&mut self, (generation, askers): Found) {
        self.fetches.askers = false;
        self.feed(Event::Askers { generation, askers });
    }

    /// Recently refused requests of other hosts that no dependency justifies.
    pub(super) fn unjustified(&self) -> Vec<Unjustified> {
        let now = self.clock.now();
        let recent = self.engine.unjustified().filter(|(_, refused)| now < refused.at + SHOWN);
        let told = recent.map(|(host, refused)| Unjustified {
            host: host.clone(),
            requests: refused.count,
            last_ns: refused.at.0,
            asker: refused.asker.clone(),
            asked: refused.asked.clone(),
            states: refused.states.clone(),
            generation: refused.generation,
        });
        told.collect()
    }
}
