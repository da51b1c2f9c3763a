//! Hosts that leave with a switch: no generation that the others have names them any more, and they take down what they
//! have while the others are there already.
//!
//! They are found by what the others tell: the generations that these have, and those that they came from.

use std::collections::BTreeSet;
use std::time::Duration;

use cob_types::GenerationNumber;
use cob_types::status::{ClusterStatus, HostStatus};
use cobd::web::StatusOf;

use super::Context;
use crate::failure::Failure;
use crate::gather;
use crate::targets::{Target, endpoints};

/// How long they are waited for: most hosts leave because they are gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those that answer and are not through, and what each tells of itself; nobody, where hosts were named.
pub(super) async fn find(
    context: &Context,
    others: &ClusterStatus,
    of: StatusOf,
) -> Result<Vec<(Target, HostStatus)>, Failure> {
    let named = named_before(context, others)?;
    let answers = gather::each(&named, |target| {
        let client = context.client.at_most(PATIENCE);
        async move { gather::status(&client, &target, of).await }
    });
    Ok(answers.await.into_iter().filter(|(_, host)| host.reachable && !is_through(host)).collect())
}

/// The hosts of the generations that the others have or came from, but for these others.
fn named_before(context: &Context, others: &ClusterStatus) -> Result<Vec<Target>, Failure> {
    let targets = &context.targets;
    let Some(depot) = targets.open_depot()?.filter(|_| !targets.narrowed) else { return Ok(Vec::new()) };
    let of_host = |h: &HostStatus| [h.generation, h.came_from, h.switch.as_ref().and_then(|s| s.left)];
    let generations: BTreeSet<GenerationNumber> = others.hosts.iter().flat_map(of_host).flatten().collect();
    let mut named = std::collections::BTreeMap::new();
    for generation in generations {
        // A generation that the depot has lost, or that is not believed, names no hosts.
        if let Ok(manifest) = depot.manifest(generation) {
            named.extend(endpoints(&manifest, &targets.socket)?);
        }
    }
    named.retain(|name, _| !targets.all.iter().any(|t| t.name.as_ref() == Some(name)));
    Ok(named.into_iter().map(|(name, endpoint)| Target { name: Some(name), endpoint }).collect())
}

/// Nothing of it is left, and nothing keeps it from going.
fn is_through(host: &HostStatus) -> bool {
    host.cob_count() == 0 && host.switching_to.is_none() && host.converged && !host.paused
}
