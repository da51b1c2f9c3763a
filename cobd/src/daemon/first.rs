//! Start of a host without a generation: it waits until a generation names its address.
//!
//! The daemon of a new host may start before its first generation is published, before the depot is made, or before the
//! depot's server knows the host. These are no failures: the daemon reports its obstacle in the log and to the service
//! manager, and continues when the obstacle is gone. The start fails only for a reason that no generation can change.

use std::net::SocketAddr;
use std::time::Duration;

use cob_depot::DepotError;
use cob_types::manager_status;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::service_manager::ServiceManager;
use super::start::StartError;
use crate::config::Config;
use crate::generations::{self, FetchError, Generations};
use crate::remote::RemoteError;

/// How often the daemon looks into the depot.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the log repeats the same message.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Why there is no address yet.
#[derive(Debug)]
enum Missing {
    /// A later generation may contain it.
    NotYet(String),
    /// No later generation helps.
    Never(FetchError),
}

/// Waits until the newest generation of the depot names an address of this host.
///
/// # Errors
/// [`StartError::Unusable`] if no later generation can change it.
pub(super) async fn address(config: &Config, generations: &Generations) -> Result<SocketAddr, StartError> {
    let manager = ServiceManager::of_environment();
    let mut said: Option<(Instant, String)> = None;
    loop {
        let what = match look(config, generations) {
            Ok(address) => return Ok(address),
            Err(Missing::Never(error)) => return Err(StartError::Unusable(error)),
            Err(Missing::NotYet(what)) => what,
        };
        let is_new = said.as_ref().is_none_or(|(at, before)| *before != what || at.elapsed() >= SAY_EVERY);
        if is_new {
            warn!("the daemon {}", manager_status::waits(&what));
            said = Some((Instant::now(), what.clone()));
        }
        manager.waits(&manager_status::waits(&what), is_new);
        sleep(LOOK_EVERY).await;
    }
}

/// The address of this host in the newest generation of the depot, if it can be read now.
pub(super) fn address_in_depot(config: &Config, generations: &Generations) -> Option<SocketAddr> {
    look(config, generations).ok()
}

fn look(config: &Config, generations: &Generations) -> Result<SocketAddr, Missing> {
    let host = &config.host;
    let newest = generations.newest().map_err(judge)?.ok_or_else(|| {
        Missing::NotYet(format!("the depot {} is empty: `cobgen generate` makes its first generation", config.depot))
    })?;
    let manifest = generations.manifest_of_depot(newest).map_err(judge)?;
    generations::addresses(&manifest).get(host).copied().ok_or_else(|| {
        Missing::NotYet(format!(
            "generation {newest} gives {host} no address: write `address` in the model, or `listen` in cobd.toml"
        ))
    })
}

/// Judges whether a later generation may help.
fn judge(error: FetchError) -> Missing {
    let remedy = match &error {
        FetchError::Depot { source: DepotError::Missing { .. }, .. } => {
            "; if it is elsewhere, correct `depot` in cobd.toml"
        }
        FetchError::NotIn { .. } => ": correct `host` in cobd.toml, or write this host into the model",
        FetchError::Untrusted { .. } | FetchError::Unprotected { .. } => "",
        FetchError::Depot { source: DepotError::Incomplete { .. }, .. } => "",
        FetchError::Remote(
            RemoteError::Unreachable { .. } | RemoteError::Refused { .. } | RemoteError::Strange { .. },
        )
        | FetchError::NoThread => "; the daemon tries again",
        FetchError::Remote(RemoteError::NotKnown { .. }) => "; the daemon tries again",
        FetchError::Remote(RemoteError::OtherKey { .. } | RemoteError::Key(_) | RemoteError::Tls(_))
        | FetchError::Depot { .. }
        | FetchError::NobodyTrusted { .. }
        | FetchError::Another { .. }
        | FetchError::AnotherInDepot { .. }
        | FetchError::Older { .. }
        | FetchError::Bad { .. }
        | FetchError::NoneBefore
        | FetchError::Disk { .. } => return Missing::Never(error),
    };
    Missing::NotYet(format!("{error}{remedy}"))
}
