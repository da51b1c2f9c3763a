//! Hosts that a switch removes: the present generations of the other hosts do not contain them any more. A removed host
//! stops its services while the other hosts already have the new generation.
//!
//! The statuses of the other hosts name their present and previous generations, and these name the removed hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, HostStatus};
use cob_types::{GenerationNumber, HostName};

use super::Context;
use crate::failure::Failure;
use crate::gather;
use crate::targets::{Target, Targets, endpoints};

/// The time limit for their answers: most removed hosts are gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// The removed hosts that answer and are not drained yet, each with its status; empty if the user named hosts.
pub(super) async fn find(
    context: &Context,
    others: &ClusterStatus,
    of: StatusOf,
) -> Result<Vec<(Target, HostStatus)>, Failure> {
    find_in(context, others.hosts.iter().flat_map(generations), of).await
}

/// The same for the hosts that these generations name.
pub(super) async fn find_in(
    context: &Context,
    generations: impl Iterator<Item = GenerationNumber>,
    of: StatusOf,
) -> Result<Vec<(Target, HostStatus)>, Failure> {
    let named = named_in(&context.targets, generations, &context.targets.all)?;
    let asked = ask(context, &named, of).await;
    Ok(asked.into_iter().filter(|(_, host)| host.reachable && !is_through(host)).collect())
}

/// The status of each host, or the error.
pub(super) async fn ask(context: &Context, named: &[Target], of: StatusOf) -> Vec<(Target, HostStatus)> {
    let client = context.client.at_most(PATIENCE);
    gather::each(&client, named, |client, target| async move { gather::status(&client, &target, of).await }).await
}

/// The present and previous generations of a host: their hosts may be about to depart, or have departed.
pub(super) fn generations(h: &HostStatus) -> impl Iterator<Item = GenerationNumber> + use<> {
    [h.generation, h.came_from, h.switch.as_ref().and_then(|s| s.left)].into_iter().flatten()
}

/// The hosts that generations name, except these others; empty if the user named hosts.
pub(super) fn named_in(
    targets: &Targets,
    generations: impl Iterator<Item = GenerationNumber>,
    others: &[Target],
) -> Result<Vec<Target>, Failure> {
    let Some(depot) = targets.open_depot()?.filter(|_| !targets.narrowed) else { return Ok(Vec::new()) };
    let mut named = BTreeMap::new();
    for generation in generations.collect::<BTreeSet<_>>() {
        // A generation that the depot has lost, or that is not trusted, names no hosts.
        if let Ok(manifest) = depot.manifest(generation) {
            named.extend(endpoints(&manifest, &targets.socket)?);
        }
    }
    named.retain(|name, _| !others.iter().any(|t| t.name.as_ref() == Some(name)));
    Ok(Target::all_of(named))
}

/// Whether a generation names this host.
pub(super) fn names(targets: &Targets, generation: GenerationNumber, host: &HostName) -> bool {
    let manifest = targets.manifest(generation).ok().flatten();
    manifest.is_some_and(|manifest| manifest.hosts.contains_key(host))
}

/// Whether the host is drained and not blocked.
fn is_through(host: &HostStatus) -> bool {
    host.cob_count() == 0 && host.goal().is_none() && host.converged && !host.paused
}
