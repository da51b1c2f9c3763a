//! Hosts that leave with a switch: no generation that the others have names them any more, and they take down what they
//! have while the others are there already.
//!
//! They are found by what the others tell: the generations that these have, and those that they came from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_types::status::{ClusterStatus, HostStatus};
use cob_types::{GenerationNumber, HostName};
use cobd::web::StatusOf;

use super::Context;
use crate::failure::Failure;
use crate::gather;
use crate::targets::{Target, Targets, endpoints};

/// How long they are waited for: most hosts leave because they are gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those that answer and are not through, and what each tells of itself; nobody, where hosts were named.
pub(super) async fn find(
    context: &Context,
    others: &ClusterStatus,
    of: StatusOf,
) -> Result<Vec<(Target, HostStatus)>, Failure> {
    find_in(context, others.hosts.iter().flat_map(generations), of).await
}

/// The same of the hosts that these generations name.
pub(super) async fn find_in(
    context: &Context,
    generations: impl Iterator<Item = GenerationNumber>,
    of: StatusOf,
) -> Result<Vec<(Target, HostStatus)>, Failure> {
    let named = named_in(&context.targets, generations, &context.targets.all)?;
    let asked = ask(context, &named, of).await;
    Ok(asked.into_iter().filter(|(_, host)| host.reachable && !is_through(host)).collect())
}

/// What each of them tells of itself, or why it does not.
pub(super) async fn ask(context: &Context, named: &[Target], of: StatusOf) -> Vec<(Target, HostStatus)> {
    let answers = gather::each(named, |target| {
        let client = context.client.at_most(PATIENCE);
        async move { gather::status(&client, &target, of).await }
    });
    answers.await
}

/// The generations that a host has, and that it came from: what these name may be about to leave, or have left.
pub(super) fn generations(h: &HostStatus) -> impl Iterator<Item = GenerationNumber> + use<> {
    [h.generation, h.came_from, h.switch.as_ref().and_then(|s| s.left)].into_iter().flatten()
}

/// The hosts that generations name, but for these others; nobody, where hosts were named.
pub(super) fn named_in(
    targets: &Targets,
    generations: impl Iterator<Item = GenerationNumber>,
    others: &[Target],
) -> Result<Vec<Target>, Failure> {
    let Some(depot) = targets.open_depot()?.filter(|_| !targets.narrowed) else { return Ok(Vec::new()) };
    let mut named = BTreeMap::new();
    for generation in generations.collect::<BTreeSet<_>>() {
        // A generation that the depot has lost, or that is not believed, names no hosts.
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

/// Nothing of it is left, and nothing keeps it from going.
fn is_through(host: &HostStatus) -> bool {
    host.cob_count() == 0 && host.goal().is_none() && host.converged && !host.paused
}
