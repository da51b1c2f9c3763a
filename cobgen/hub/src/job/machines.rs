//! The machines of a cluster: `absent → requested → created → confirmed`, and back over `deleting`.
//!
//! The list is a file in the cluster's folder. Only the job that works on the cluster writes it, and each change is on the
//! disk before the next call of a provider: so a machine that was requested is never forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_hub_api::{MachineState, Name};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::log::{Log, Stop};
use super::order::{Keys, Order};
use super::programs::{Programs, RunError};
use super::record::Failure;
use crate::circle::ward::Ward;
use crate::durable;
use crate::layout::{Layout, Node};
use crate::provider::{
    Action, Answer, CallError, Deleted, Join, MachineList, Providers, Request, VERSION, WantedMachine, process,
};
use crate::random;

/// The file in the cluster's folder.
pub const FILE: &str = "machines.json";
/// How often a call is repeated that may succeed later.
const ATTEMPTS: u32 = 6;
/// The pause before a repetition; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
/// How many calls run at a time.
const AT_ONCE: usize = 8;

/// A token that ends within so many seconds is made anew.
const SPARE: u64 = 600;
/// How long a new machine has to enrol.
const ENROLMENT: Duration = Duration::from_mins(10);

/// The answer of `cobgen enroll`.
#[derive(Deserialize)]
struct Issued {
    commands: Vec<IssuedToken>,
}

#[derive(Deserialize)]
struct IssuedToken {
    token: String,
    expires: u64,
}

/// The answer of `cobgen enroll --list`.
#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<ListedToken>,
}

#[derive(Deserialize)]
struct ListedToken {
    host: String,
    expires: u64,
    state: String,
}

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
    /// The token with which its daemon enrols, and when it ends, in seconds since 1970-01-01 UTC.
    #[serde(default)]
    pub enrolment: Option<(String, u64)>,
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
    programs: Programs,
    path: PathBuf,
    table: Mutex<Table>,
    ward: Option<Arc<Ward>>,
}

impl<'a> Machines<'a> {
    pub(crate) fn open(order: &'a Order, ward: Option<Arc<Ward>>) -> io::Result<Self> {
        let providers = Providers::new(order.providers.clone(), order.provider_state.clone());
        let programs = Programs::new(order.programs.clone());
        let (path, table) = (order.folder.join(FILE), Mutex::new(read(&order.folder)?));
        Ok(Self { order, providers, programs, path, table, ward })
    }

    /// The present table.
    pub(crate) fn table(&self) -> Table {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the table; the change is on the disk when the function returns, and in the store of a circle.
    fn change(&self, change: impl FnOnce(&mut Table)) -> Result<(), Failure> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = table.clone();
        change(&mut new);
        let written = durable::replace_json(&self.path, &new);
        written
            .and_then(|()| self.ward.as_ref().map_or(Ok(()), |ward| ward.save()))
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
        let Some(mut machine) = self.table().get(host).cloned() else { return Ok(()) };
        if machine.state == MachineState::Requested {
            log.line(&format!("{host}: create ({})", machine.provider));
            if let Some(keys) = &self.order.keys {
                machine.enrolment = Some(self.enrolment(keys, host, machine.enrolment, log, stop).await?);
                self.set(host, |kept| kept.enrolment.clone_from(&machine.enrolment))?;
            }
            let answer = self.adopt_or_create(host, &machine, former.is_some(), log, stop).await?;
            self.set(host, |machine| {
                (machine.id, machine.address) = (Some(answer.id), answer.address);
                machine.state = MachineState::Created;
            })?;
        }
        let Some(machine) = self.table().get(host).cloned() else { return Ok(()) };
        let answer: Answer = self.call(host, &machine, Action::Confirm, log, stop).await?;
        if let Some((_, ends)) = &machine.enrolment {
            self.wait_for_key(host, *ends, log, stop).await?;
        }
        let address = answer.address.or(machine.address);
        if address.is_none() {
            let what = format!("{host}: the provider {} confirms the machine without an address", machine.provider);
            return Err(Failure::new(what).into());
        }
        self.set(host, |machine| {
            machine.address = address;
            machine.state = MachineState::Confirmed;
            // It is used up.
            machine.enrolment = None;
        })?;
        log.line(&format!("{host}: confirmed"));
        Ok(())
    }

    /// The token for a new machine: the kept one, because an earlier call may have passed it on, or a new one.
    async fn enrolment(
        &self,
        keys: &Keys,
        host: &str,
        kept: Option<(String, u64)>,
        log: &Log,
        stop: &Stop,
    ) -> Result<(String, u64), RunError> {
        let now = crate::hub::now_ms() / 1000;
        if let Some(kept) = kept.filter(|(_, ends)| *ends > now.saturating_add(SPARE)) {
            return Ok(kept);
        }
        let depot = self.order.folder.join("depot");
        let words: Vec<OsString> = vec![
            "enroll".into(),
            host.into(),
            "--depot".into(),
            depot.into(),
            "--server".into(),
            (&keys.server).into(),
            "--json".into(),
        ];
        let issued: Issued = self.programs.cobgen(&words, log, stop).await?;
        let issued = issued.commands.into_iter().next().ok_or_else(|| Failure::new("cobgen enroll gave no token"))?;
        Ok((issued.token, issued.expires))
    }

    /// Waits until the machine has enrolled its key: only then it is the host that was asked for.
    async fn wait_for_key(&self, host: &str, ends: u64, log: &Log, stop: &Stop) -> Result<(), RunError> {
        let depot = self.order.folder.join("depot");
        let words: Vec<OsString> =
            vec!["enroll".into(), "--list".into(), "--depot".into(), depot.into(), "--json".into()];
        let begun = std::time::Instant::now();
        loop {
            let tokens: Tokens = self.programs.cobgen(&words, log, stop).await?;
            // A replaced machine had a token of its own, with another end.
            let is_ours = |token: &&ListedToken| token.host == host && token.expires == ends;
            if tokens.tokens.iter().find(is_ours).is_some_and(|token| token.state == "enrolled") {
                return Ok(());
            }
            if begun.elapsed() > ENROLMENT {
                let what = format!("{host}: the machine has not enrolled within {} minutes", ENROLMENT.as_secs() / 60);
                let hint = "does it reach the depot's server? Its log and `cobgen enroll --list` say more";
                return Err(Failure::new(what).hint(hint).into());
            }
            wait(PAUSE, stop).await?;
        }
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
        let Some(machine) = self.table().get(host).cloned() else { return Ok(()) };
        // The answer to its creation may be lost, and a provider that ignores tokens may have created more than one.
        let listed = self.list(&machine, log, stop).await?;
        let found = listed.machines.into_iter().filter(|found| found.token == machine.token);
        let mut ids: BTreeSet<Option<String>> = found.map(|found| Some(found.id)).collect();
        if ids.is_empty() || machine.id.is_some() {
            // A list may be incomplete.
            ids.insert(machine.id.clone());
        }
        for id in ids {
            log.line(&format!("{host}: delete {}", id.as_deref().unwrap_or_default()));
            let machine = MachineRecord { id, ..machine.clone() };
            let Deleted {} = self.call(host, &machine, Action::Delete, log, stop).await?;
        }
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
                join: match (&self.order.keys, &machine.enrolment) {
                    (Some(keys), Some((token, _))) => Join::Token { server: keys.server.clone(), token: token.clone() },
                    _ => Join::Depot(self.order.folder.join("depot")),
                },
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
        token: random::id().map_err(Failure::new)?,
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
        enrolment: None,
    })
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
