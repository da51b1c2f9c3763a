//! The machines of clusters, and those that providers have and no cluster knows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::path::PathBuf;

use cob_hub_api::{EntityKind, Machine, MachineQuery, MachineState, Name};
use cob_permissions::Standing;
use serde_json::{Map, Value};

use super::error::HubError;
use super::look::standing;
use super::records::ClusterRecord;
use super::{Caller, Hub, machines_in, may_see};
use crate::catalogue::Part;
use crate::job::{Log, Stop};
use crate::provider::{Action as Call, CallError, MachineList, Providers, Request, VERSION, process};

/// Providers: each has a name, a type and settings. Tenants may give the same name to different providers.
#[derive(Default)]
struct Sources(Vec<(Name, String, Map<String, Value>)>);

impl Sources {
    fn add(&mut self, name: Name, sort: &str, settings: &Map<String, Value>) {
        let same = |(n, s, m): &(Name, String, Map<String, Value>)| *n == name && s == sort && m == settings;
        if !self.0.iter().any(same) {
            self.0.push((name, sort.to_owned(), settings.clone()));
        }
    }
}

/// The machines that clusters know: tokens with the provider's names, as far as these are known.
type Known = BTreeSet<(String, Option<String>)>;

impl Hub {
    /// A page of the machines of all clusters that the caller may see. The machines of a cluster are on one page.
    ///
    /// # Errors
    ///
    /// A list of machines is damaged.
    pub async fn all_machines(&self, caller: &Caller, query: &MachineQuery) -> Result<Vec<Machine>, HubError> {
        let after = query.after.clone().and_then(|cluster| {
            let tenant = query.after_tenant.clone().or_else(|| caller.tenant.clone())?;
            Some((tenant, cluster))
        });
        let places: Vec<_> = {
            let state = self.state.lock().await;
            let here = |record: &&ClusterRecord| {
                caller.tenant.as_ref().is_none_or(|tenant| record.tenant == *tenant) && may_see(&state, caller, record)
            };
            let later = state.clusters.range((after.map_or(Unbounded, Excluded), Unbounded));
            later.map(|(_, record)| record).filter(here).map(|record| self.place(record)).collect()
        };
        let limit = query.limit();
        in_thread(move || {
            let mut machines = Vec::new();
            for (tenant, cluster, folder) in places {
                if machines.len() >= limit {
                    break;
                }
                let table = machines_in(&folder, &cluster)?;
                machines.extend(table.into_iter().map(|(host, machine)| machine.view(host, &tenant, &cluster)));
            }
            Ok(machines)
        })
        .await
    }

    /// The tenant, the name and the folder of a cluster.
    fn place(&self, record: &ClusterRecord) -> (Name, Name, PathBuf) {
        let folder = self.cluster_folder(&record.tenant, &record.name);
        (record.tenant.clone(), record.name.clone(), folder)
    }

    /// The machines that providers have and no cluster knows.
    ///
    /// # Errors
    ///
    /// The caller is no super administrator, a list of machines is damaged, or a provider does not answer.
    pub async fn orphans(&self, caller: &Caller) -> Result<Vec<Machine>, HubError> {
        let tenants: Vec<Name> = {
            let state = self.state.lock().await;
            if standing(&state.directory, caller) != Some(Standing::SuperAdministrator) {
                return Err(HubError::Forbidden("only a super administrator lists orphans".to_owned()));
            }
            state.directory.tenants.keys().filter_map(|name| Name::new(name.as_str()).ok()).collect()
        };
        let mut sources = self.catalogue_providers(tenants).await?;
        // Jobs create and delete machines meanwhile. A machine is on the list of its cluster before its provider creates
        // it, and until its provider has deleted it: so an orphan is on no list before the question and on none after.
        let mut known = self.known(&mut sources).await?;
        let listed = self.list(&sources).await?;
        known.extend(self.known(&mut Sources::default()).await?);
        let is_known = |machine: &Machine| {
            known.contains(&(machine.token.clone(), None))
                || known.contains(&(machine.token.clone(), machine.id.clone()))
        };
        Ok(listed.into_iter().filter(|machine| !is_known(machine)).collect())
    }

    /// The machines on the lists of clusters, and their providers.
    async fn known(&self, sources: &mut Sources) -> Result<Known, HubError> {
        let places: Vec<_> = self.state.lock().await.clusters.values().map(|record| self.place(record)).collect();
        let read = |(_, cluster, folder): (Name, Name, PathBuf)| machines_in(&folder, &cluster);
        let tables = in_thread(move || places.into_iter().map(read).collect::<Result<Vec<_>, _>>()).await?;
        let mut known = Known::new();
        for machine in tables.into_iter().flat_map(BTreeMap::into_values) {
            sources.add(machine.provider, &machine.sort, &machine.settings);
            known.insert((machine.token, machine.id));
        }
        Ok(known)
    }

    /// What the providers list, each machine once.
    async fn list(&self, sources: &Sources) -> Result<Vec<Machine>, HubError> {
        let broken = |e: std::io::Error| HubError::Internal(e.to_string());
        let log = Log::open(std::path::Path::new("/dev/null")).map_err(broken)?;
        let (_teller, stop) = Stop::new();
        let caller = Providers::new(self.config.providers.clone(), self.config.provider_state.clone());
        let mut all: BTreeMap<(Name, String, String), Machine> = BTreeMap::new();
        for (provider, sort, settings) in &sources.0 {
            let (state, settings) = (caller.state(provider.as_str()), settings.clone());
            let request = Request { version: VERSION, state, settings, machine: None };
            let listed: Result<MachineList, CallError> = caller.call(sort, Call::List, &request, &log, &stop).await;
            let machines = match listed {
                Ok(listed) => listed.machines,
                Err(CallError::Passing(failure) | CallError::Final(failure)) => {
                    return Err(HubError::Internal(failure.what));
                }
                Err(CallError::Canceled) => continue,
            };
            for machine in machines {
                let key = (provider.clone(), machine.token.clone(), machine.id.clone());
                all.entry(key).or_insert(Machine {
                    host: machine.host,
                    tenant: None,
                    cluster: None,
                    provider: provider.clone(),
                    id: Some(machine.id),
                    address: machine.address,
                    state: MachineState::Orphan,
                    token: machine.token,
                });
            }
        }
        Ok(all.into_values().collect())
    }

    /// The providers of the catalogue, with the built-in one.
    async fn catalogue_providers(&self, tenants: Vec<Name>) -> Result<Sources, HubError> {
        let mut sources = Sources::default();
        let own = Name::new(process::SORT).map_err(|e| HubError::Internal(e.to_string()))?;
        sources.add(own, process::SORT, &Map::new());
        let none = Map::new();
        for part in std::iter::once(Part::Shared).chain(tenants.into_iter().map(Part::Tenant)) {
            for (name, entity) in self.listed(part, EntityKind::Providers).await?.iter() {
                // No machine can come from a provider whose name is none of the hub's names.
                let Ok(provider) = Name::new(name) else { continue };
                let sort = entity.definition.get("type").and_then(Value::as_str).unwrap_or(name);
                let settings = entity.definition.get("settings").and_then(Value::as_object);
                sources.add(provider, sort, settings.unwrap_or(&none));
            }
        }
        Ok(sources)
    }
}

/// Reads the machines of clusters in a thread: many files must not hold up the other requests. A cluster that is deleted
/// meanwhile has no machines.
async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HubError> + Send + 'static,
) -> Result<T, HubError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| HubError::Internal(e.to_string()))?
}
