//! The machines of a cluster: `absent → requested → created → confirmed`, and back over `deleting`.
//!
//! The list is a file in the cluster's folder. Only the job that works on the cluster writes it, and each change is on the
//! disk before the next call of a provider: so a machine that was requested is never forgotten.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cob_hub_api::{MachineState, Name};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::log::{Log, Stop};
use super::order::Order;
use super::programs::RunError;
use super::record::Failure;
use crate::durable;
use crate::layout::{Layout, Node};
use crate::provider::{
    Action, Answer, CallError, Deleted, MachineList, Providers, Request, VERSION, WantedMachine, process,
};

/// The file in the cluster's folder.
pub const FILE: &str = "machines.json";
/// How often a call is repeated that may succeed later.
const ATTEMPTS: u32 = 3;
/// The pause before a repetition; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
/// How many calls run at a time.
const AT_ONCE: usize = 8;

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// The label at the provider.
    pub token: String,
    /// The provider in the catalogue.
    pub provider: Name,
    /// The type of the provider.
    pub sort: String,
    /// The settings of the provider.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// The provider's values for the type of hardware.
    #[serde(default)]
    pub hardware: Value,
    /// The provider's values for the type of image.
    #[serde(default)]
    pub image: Value,
    /// The type of hardware.
    #[serde(default)]
    pub hardwaretype: Option<String>,
    /// The type of image.
    #[serde(default)]
    pub imagetype: Option<String>,
    /// The state.
    pub state: MachineState,
    /// The provider's name for it.
    #[serde(default)]
    pub id: Option<String>,
    /// The address of its daemon.
    #[serde(default)]
    pub address: Option<String>,
}

/// The machines of a cluster, by host name.
pub type Table = BTreeMap<String, MachineRecord>;

/// Reads the machines of a cluster.
///
/// # Errors
///
/// The file can't be read, or is damaged.
pub fn read(folder: &Path) -> io::Result<Table> {
    match fs::read(folder.join(FILE)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Table::new()),
        Err(error) => Err(error),
    }
}

/// The machines of the cluster that a job works on.
pub(crate) struct Machines<'a> {
    order: &'a Order,
    providers: Providers,
    path: PathBuf,
    table: Mutex<Table>,
}

impl<'a> Machines<'a> {
    pub(crate) fn open(order: &'a Order) -> io::Result<Self> {
        let providers = Providers::new(order.providers.clone(), order.provider_state.clone());
        Ok(Self { order, providers, path: order.folder.join(FILE), table: Mutex::new(read(&order.folder)?) })
    }

    /// The present table.
    pub(crate) fn table(&self) -> Table {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the table; the change is on the disk when the function returns.
    fn change(&self, change: impl FnOnce(&mut Table)) -> Result<(), Failure> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = table.clone();
        change(&mut new);
        durable::replace_json(&self.path, &new)
            .map_err(|e| Failure::new(format!("can't write {}: {e}", self.path.display())))?;
        *table = new;
        Ok(())
    }

    fn set(&self, host: &str, change: impl FnOnce(&mut MachineRecord)) -> Result<(), Failure> {
        self.change(|table| {
            if let Some(machine) = table.get_mut(host) {
                change(machine);
            }
        })
    }

    /// Creates and confirms the machines of all nodes that have none.
    pub(crate) async fn create(&self, layout: &Layout, log: &Log, stop: &Stop) -> Result<(), RunError> {
        let lacking: Vec<&Node> = layout.nodes.iter().filter(|node| !self.is_confirmed(&node.name)).collect();
        let one = async |node: &Node| self.create_one(layout, node, log, stop).await;
        together(lacking, one).await
    }

    fn is_confirmed(&self, host: &str) -> bool {
        self.table().get(host).is_some_and(|machine| machine.state == MachineState::Confirmed)
    }

    async fn create_one(&self, layout: &Layout, node: &Node, log: &Log, stop: &Stop) -> Result<(), RunError> {
        let host = &node.name;
        let former = self.table().get(host).cloned();
        if former.as_ref().is_some_and(|machine| machine.state == MachineState::Deleting) {
            // A former deletion was interrupted. Its machine must be gone before there is a new one.
            self.delete_one(host, log, stop).await?;
        }
        if !self.table().contains_key(host) {
            let machine = request(layout, node)?;
            // The token is on the disk before the provider hears of it.
            self.change(|table| {
                table.insert(host.clone(), machine);
            })?;
        }
        let Some(machine) = self.table().get(host).cloned() else { return Ok(()) };
        if machine.state == MachineState::Requested {
            log.line(&format!("{host}: create ({})", machine.provider));
            let answer = self.adopt_or_create(host, &machine, former.is_some(), log, stop).await?;
            self.set(host, |machine| {
                (machine.id, machine.address) = (Some(answer.id), answer.address);
                machine.state = MachineState::Created;
            })?;
        }
        let Some(machine) = self.table().get(host).cloned() else { return Ok(()) };
        let answer: Answer = self.call(host, &machine, Action::Confirm, log, stop).await?;
        let address = answer.address.or(machine.address);
        if address.is_none() {
            let what = format!("{host}: the provider {} confirms the machine without an address", machine.provider);
            return Err(Failure::new(what).into());
        }
        self.set(host, |machine| {
            machine.address = address;
            machine.state = MachineState::Confirmed;
        })?;
        log.line(&format!("{host}: confirmed"));
        Ok(())
    }

    /// Creates a machine. If an earlier call may have created it, a machine with its token is adopted instead: not every
    /// provider returns the same machine for the same token.
    async fn adopt_or_create(
        &self,
        host: &str,
        machine: &MachineRecord,
        repeated: bool,
        log: &Log,
        stop: &Stop,
    ) -> Result<Answer, RunError> {
        let mut repeated = repeated;
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            if repeated {
                let listed = self.list(machine, log, stop).await?;
                if let Some(found) = listed.machines.into_iter().find(|found| found.token == machine.token) {
                    log.line(&format!("{host}: adopted {}", found.id));
                    return Ok(Answer { id: found.id, address: found.address });
                }
            }
            match self.call_once(host, machine, Action::Create, log, stop).await {
                Err(CallError::Passing(failure)) if attempt < ATTEMPTS => {
                    log.line(&format!("{host}: {failure}; attempt {attempt} of {ATTEMPTS}"));
                    wait(pause, stop).await?;
                    (repeated, attempt, pause) = (true, attempt + 1, pause * 2);
                }
                answer => return answer.map_err(|error| with_host(host, error)),
            }
        }
    }

    async fn list(&self, machine: &MachineRecord, log: &Log, stop: &Stop) -> Result<MachineList, RunError> {
        let request = self.request(machine, None);
        self.providers
            .call(&machine.sort, Action::List, &request, log, stop)
            .await
            .map_err(|error| with_host(machine.provider.as_str(), error))
    }

    /// Deletes machines, and forgets each when its provider has it no more.
    pub(crate) async fn delete(&self, hosts: Vec<String>, log: &Log, stop: &Stop) -> Result<(), RunError> {
        together(hosts, async |host: String| self.delete_one(&host, log, stop).await).await
    }

    async fn delete_one(&self, host: &str, log: &Log, stop: &Stop) -> Result<(), RunError> {
        if !self.table().contains_key(host) {
            return Ok(());
        }
        self.set(host, |machine| machine.state = MachineState::Deleting)?;
        let Some(mut machine) = self.table().get(host).cloned() else { return Ok(()) };
        if machine.id.is_none() {
            // The answer to its creation was lost: the machine may exist nevertheless.
            let listed = self.list(&machine, log, stop).await?;
            machine.id = listed.machines.into_iter().find(|found| found.token == machine.token).map(|found| found.id);
        }
        log.line(&format!("{host}: delete"));
        let Deleted {} = self.call(host, &machine, Action::Delete, log, stop).await?;
        self.change(|table| {
            table.remove(host);
        })?;
        Ok(())
    }

    fn request(&self, machine: &MachineRecord, host: Option<&str>) -> Request {
        Request {
            version: VERSION,
            state: self.providers.state(machine.provider.as_str()),
            settings: machine.settings.clone(),
            machine: host.map(|host| WantedMachine {
                token: machine.token.clone(),
                host: host.to_owned(),
                tenant: self.order.tenant.to_string(),
                cluster: self.order.cluster.to_string(),
                hardware: machine.hardware.clone(),
                image: machine.image.clone(),
                depot: self.order.folder.join("depot"),
                programs: self.order.programs.clone(),
                id: machine.id.clone(),
            }),
        }
    }

    async fn call_once<T: serde::de::DeserializeOwned>(
        &self,
        host: &str,
        machine: &MachineRecord,
        action: Action,
        log: &Log,
        stop: &Stop,
    ) -> Result<T, CallError> {
        self.providers.call(&machine.sort, action, &self.request(machine, Some(host)), log, stop).await
    }

    /// Calls a provider, again after a failure that may pass.
    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        host: &str,
        machine: &MachineRecord,
        action: Action,
        log: &Log,
        stop: &Stop,
    ) -> Result<T, RunError> {
        let mut pause = PAUSE;
        for attempt in 1..ATTEMPTS {
            match self.call_once(host, machine, action, log, stop).await {
                Err(CallError::Passing(failure)) => {
                    log.line(&format!("{host}: {failure}; attempt {attempt} of {ATTEMPTS}"));
                    wait(pause, stop).await?;
                    pause *= 2;
                }
                answer => return answer.map_err(|error| with_host(host, error)),
            }
        }
        self.call_once(host, machine, action, log, stop).await.map_err(|error| with_host(host, error))
    }
}

/// The request for the machine of a node.
fn request(layout: &Layout, node: &Node) -> Result<MachineRecord, Failure> {
    let none = || (process::SORT.to_owned(), process::SORT.to_owned(), Map::new());
    let (provider, sort, settings) = layout.provider.as_ref().map_or_else(none, |offer| {
        let sort = offer.sort.clone().unwrap_or_else(|| offer.name.clone());
        (offer.name.clone(), sort, offer.settings.clone())
    });
    let provider = Name::new(&provider).map_err(|e| Failure::new(format!("the provider's name: {e}")))?;
    let values = |all: fn(&crate::layout::Offer) -> &BTreeMap<String, Value>, ty: &Option<String>| {
        let mapped = layout.provider.as_ref().zip(ty.as_ref()).and_then(|(offer, ty)| all(offer).get(ty));
        mapped.cloned().unwrap_or(Value::Null)
    };
    Ok(MachineRecord {
        token: token()?,
        hardware: values(|offer| &offer.hardwaretypes, &node.hardwaretype),
        image: values(|offer| &offer.imagetypes, &node.imagetype),
        hardwaretype: node.hardwaretype.clone(),
        imagetype: node.imagetype.clone(),
        provider,
        sort,
        settings,
        state: MachineState::Requested,
        id: None,
        address: None,
    })
}

/// 128 random bits in hexadecimal.
fn token() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| Failure::new(format!("no random numbers: {e}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn wait(pause: Duration, stop: &Stop) -> Result<(), RunError> {
    tokio::select! {
        () = tokio::time::sleep(pause) => Ok(()),
        () = stop.told() => Err(RunError::Canceled),
    }
}

fn with_host(host: &str, error: CallError) -> RunError {
    match error {
        CallError::Passing(failure) | CallError::Final(failure) => {
            RunError::Failed(Failure { what: format!("{host}: {}", failure.what), hint: failure.hint })
        }
        CallError::Canceled => RunError::Canceled,
    }
}

/// Handles items, some at a time. All are tried; the first failure is returned.
async fn together<T, F: AsyncFn(T) -> Result<(), RunError>>(items: Vec<T>, one: F) -> Result<(), RunError> {
    use futures_util::stream::{self, StreamExt as _};
    let results: Vec<_> = stream::iter(items).map(|item| one(item)).buffer_unordered(AT_ONCE).collect().await;
    results.into_iter().collect()
}
