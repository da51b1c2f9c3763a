//! Communication with systemd over the system bus.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt as _, select_all};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout, timeout_at};
use zbus::message::Type;
use zbus::{
    Connection, DynamicType, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant, fdo, match_rule,
};

use super::ended::{self, ServiceState};
use crate::kinds::systemd::Systemd;

pub(super) const NAME: &str = "org.freedesktop.systemd1";
pub(super) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
/// The parent path of all units.
pub(in crate::kinds::service) const UNITS_PATH: &str = "/org/freedesktop/systemd1/unit";
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const TIMER: &str = "org.freedesktop.systemd1.Timer";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const CONNECT: Duration = Duration::from_secs(5);
/// A reload of a manager with thousands of units takes seconds.
const CALL: Duration = Duration::from_secs(90);
const WITHOUT: &str = "is this machine run by systemd, with a system bus (package dbus)? Where it is not, describe \
                       the service by commands: `start`, `stop`, `status`, `ready`";

/// A connection to systemd.
#[derive(Debug, Clone)]
pub(in crate::kinds::service) struct Bus(Connection);

/// The properties of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::kinds::service) struct UnitState {
    /// Its main name.
    pub(super) id: String,
    pub(super) load: String,
    pub(super) load_error: String,
    pub(super) active: String,
    pub(super) sub: String,
    pub(super) file_state: String,
    /// The unit file; empty without a file.
    pub(super) fragment: PathBuf,
    pub(super) drop_ins: Vec<PathBuf>,
    /// The source of a generated unit file, otherwise empty.
    pub(super) source: PathBuf,
    /// Files have changed since systemd read them.
    pub(super) needs_reload: bool,
    pub(super) can_reload: bool,
    /// The id of the present run.
    pub(super) invocation: String,
    /// When it became active, in microseconds since 1970.
    pub(super) active_since_us: u64,
    /// When its present run began, before it was active, in microseconds since the boot.
    pub(super) began_us: u64,
    /// The units that may start it.
    pub(super) triggered_by: Vec<String>,
    /// The units that it starts, for timers, sockets and paths.
    pub(super) triggers: Vec<String>,
}

/// A signal of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds::service) enum Change {
    /// A unit changed: the last part of its object path, and its present state.
    Unit(String, [String; 2]),
    /// Unit files changed, or systemd has read them again.
    Files,
    /// An unreadable signal.
    Nothing,
}

impl Change {
    fn of_unit(message: Result<Message, zbus::Error>) -> Self {
        let Ok(message) = message else { return Self::Nothing };
        let header = message.header();
        let unit = header.path().and_then(|path| path.as_str().rsplit('/').next()).map(str::to_owned);
        let body = message.body();
        let changed = body.deserialize::<(String, BTreeMap<String, OwnedVariant>, Vec<String>)>();
        let (Some(unit), Ok((_, changed, _))) = (unit, changed) else { return Self::Nothing };
        let text = |name| changed.get(name).and_then(|value| <&str>::try_from(value).ok()).unwrap_or_default();
        Self::Unit(unit, ["ActiveState", "SubState"].map(|name| text(name).to_owned()))
    }
}

impl Bus {
    /// Connects to systemd.
    ///
    /// # Errors
    /// The reason as text, with advice.
    pub(in crate::kinds::service) async fn connect(systemd: &Systemd) -> Result<Self, String> {
        let builder = match &systemd.address {
            Some(address) => zbus::connection::Builder::address(address.as_str()),
            None => zbus::connection::Builder::system(),
        };
        match timeout(CONNECT, builder.method_timeout(CALL).build()).await {
            Ok(Ok(connection)) => Ok(Self(connection)),
            Ok(Err(error)) => Err(format!("systemd can't be spoken to: {error}; {WITHOUT}")),
            Err(_) => Err(format!("the system bus does not answer within {CONNECT:?}; {WITHOUT}")),
        }
    }

    /// Whether the connection is open.
    pub(in crate::kinds::service) fn lives(&self) -> bool {
        !self.0.is_closed()
    }

    /// The stream of signals from now on: changes of unit properties and of unit files.
    pub(in crate::kinds::service) async fn changes(&self) -> Result<impl Stream<Item = Change> + Unpin, String> {
        self.subscribe().await;
        let rule = signal_of("org.freedesktop.DBus.Properties", "PropertiesChanged").path_namespace(UNITS_PATH);
        let units = self.stream(rule.arg(0, UNIT)).await?.map(Change::of_unit).boxed();
        let mut all = vec![units];
        for member in ["UnitFilesChanged", "Reloading"] {
            let stream = self.stream(signal_of(MANAGER, member)).await?;
            all.push(stream.map(|message| if message.is_ok() { Change::Files } else { Change::Nothing }).boxed());
        }
        Ok(select_all(all))
    }

    async fn stream(&self, rule: match_rule::Builder<'_>) -> Result<MessageStream, String> {
        let rule = rule.build().map_err(words)?;
        MessageStream::for_match_rule(rule, &self.0, 1024.try_into().ok()).await.map_err(words)
    }

    /// Without a subscription systemd sends no signals. A second subscription fails without harm.
    async fn subscribe(&self) {
        let _ = self.manager::<_, ()>("Subscribe", &()).await;
    }

    /// Reads the properties of a unit; a missing unit is `not-found`.
    pub(in crate::kinds::service) async fn look(&self, unit: &str) -> Result<UnitState, String> {
        let path: OwnedObjectPath = self.manager("LoadUnit", &unit).await?;
        let all: BTreeMap<String, OwnedVariant> =
            self.call(path.as_str(), "org.freedesktop.DBus.Properties", "GetAll", &UNIT).await?;
        let mut state = UnitState::of(all);
        if state.id.is_empty() {
            unit.clone_into(&mut state.id);
        }
        Ok(state)
    }

    /// Reads the properties of a service; empty for units of another type.
    pub(super) async fn service(&self, unit: &str) -> ServiceState {
        let asked = async {
            let path: OwnedObjectPath = self.manager("LoadUnit", &unit).await?;
            self.call(path.as_str(), "org.freedesktop.DBus.Properties", "GetAll", &SERVICE).await
        };
        asked.await.map(ServiceState::of).unwrap_or_default()
    }

    /// Whether a unit is a timer that elapses only once and is inactive afterwards, so that it can't be up. See
    /// systemd.timer(5), `RemainAfterElapse=`.
    pub(super) async fn elapses_for_good(&self, unit: &str) -> bool {
        if !unit.ends_with(".timer") {
            return false;
        }
        let asked = async {
            let path: OwnedObjectPath = self.manager("LoadUnit", &unit).await?;
            self.call(path.as_str(), "org.freedesktop.DBus.Properties", "GetAll", &TIMER).await
        };
        asked.await.is_ok_and(ended::elapses_for_good)
    }

    /// Starts a job of systemd (`StartUnit` and similar) and waits for its end.
    pub(super) async fn job(&self, method: &str, unit: &str, limit: Instant) -> Result<(), String> {
        self.subscribe().await;
        let mut removed = self.stream(signal_of(MANAGER, "JobRemoved")).await?;
        let job: OwnedObjectPath = self.manager(method, &(unit, "replace")).await?;
        let end = async {
            while let Some(message) = removed.next().await {
                let message = message.map_err(words)?;
                let (_, ended, _, result): (u32, OwnedObjectPath, String, String) =
                    message.body().deserialize().map_err(|e| e.to_string())?;
                if ended == job {
                    return Ok(result);
                }
            }
            Err("systemd has closed the connection".to_owned())
        };
        match timeout_at(limit, end).await {
            Ok(Ok(result)) if result == "done" => Ok(()),
            Ok(Ok(result)) => Err(job_in_words(&result)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err("systemd was not done in time".to_owned()),
        }
    }

    /// Makes systemd read all unit files again.
    pub(super) async fn reload(&self) -> Result<(), String> {
        self.manager("Reload", &()).await.map_err(|e| format!("daemon-reload: {e}"))
    }

    /// Enables the unit. The flag is false if the unit has no section `[Install]`.
    pub(super) async fn enable(&self, unit: &str, runtime: bool) -> Result<(bool, Changes), String> {
        let body = (vec![unit], runtime, true);
        self.manager("EnableUnitFiles", &body).await.map_err(|e| format!("enabling {unit}: {e}"))
    }

    pub(super) async fn disable(&self, unit: &str, runtime: bool) -> Result<Changes, String> {
        let body = (vec![unit], runtime);
        self.manager("DisableUnitFiles", &body).await.map_err(|e| format!("disabling {unit}: {e}"))
    }

    pub(super) async fn mask(&self, unit: &str) -> Result<(), String> {
        let body = (vec![unit], false, false);
        let _: Changes = self.manager("MaskUnitFiles", &body).await.map_err(|e| format!("masking {unit}: {e}"))?;
        self.reload().await
    }

    pub(super) async fn unmask(&self, unit: &str, runtime: bool) -> Result<Changes, String> {
        let body = (vec![unit], runtime);
        self.manager("UnmaskUnitFiles", &body).await.map_err(|e| format!("unmasking {unit}: {e}"))
    }

    /// Resets the failed state and the start counter.
    pub(super) async fn reset_failed(&self, unit: &str) {
        // A unit that is not loaded has no failed state.
        let _ = self.manager::<_, ()>("ResetFailedUnit", &unit).await;
    }

    async fn manager<B, T>(&self, method: &str, body: &B) -> Result<T, String>
    where
        B: Serialize + DynamicType,
        T: for<'de> Deserialize<'de> + zbus::Type,
    {
        self.call(MANAGER_PATH, MANAGER, method, body).await
    }

    async fn call<B, T>(&self, path: &str, interface: &str, method: &str, body: &B) -> Result<T, String>
    where
        B: Serialize + DynamicType,
        T: for<'de> Deserialize<'de> + zbus::Type,
    {
        let answer: Message =
            self.0.call_method(Some(NAME), path, Some(interface), method, body).await.map_err(words)?;
        answer.body().deserialize().map_err(|e| format!("systemd's answer to {method}: {e}"))
    }
}

/// Changes of links: type, file, target.
pub(super) type Changes = Vec<(String, String, String)>;

impl UnitState {
    fn of(mut all: BTreeMap<String, OwnedVariant>) -> Self {
        fn take<T: TryFrom<OwnedVariant>>(all: &mut BTreeMap<String, OwnedVariant>, name: &str) -> Option<T> {
            T::try_from(all.remove(name)?).ok()
        }
        let mut text = |name: &str| take::<String>(&mut all, name).unwrap_or_default();
        let mut state = Self {
            id: text("Id"),
            load: text("LoadState"),
            active: text("ActiveState"),
            sub: text("SubState"),
            file_state: text("UnitFileState"),
            fragment: text("FragmentPath").into(),
            source: text("SourcePath").into(),
            ..Self::default()
        };
        if let Some(error) = all.remove("LoadError")
            && let Ok((_, message)) = <(String, String)>::try_from(error)
        {
            state.load_error = message;
        }
        let paths = take::<Vec<String>>(&mut all, "DropInPaths").unwrap_or_default();
        state.drop_ins = paths.into_iter().map(PathBuf::from).collect();
        state.triggered_by = take(&mut all, "TriggeredBy").unwrap_or_default();
        state.triggers = take(&mut all, "Triggers").unwrap_or_default();
        state.began_us = take(&mut all, "InactiveExitTimestampMonotonic").unwrap_or(0);
        state.needs_reload = take(&mut all, "NeedDaemonReload").unwrap_or(false);
        state.can_reload = take(&mut all, "CanReload").unwrap_or(false);
        state.active_since_us = take(&mut all, "ActiveEnterTimestamp").unwrap_or(0);
        let invocation: Vec<u8> = take(&mut all, "InvocationID").unwrap_or_default();
        state.invocation = hex::encode(invocation);
        state
    }

    pub(super) fn is_there(&self) -> bool {
        self.load == "loaded"
    }

    pub(super) fn is_masked(&self) -> bool {
        self.load == "masked" || self.file_state.starts_with("masked")
    }

    /// Whether the unit is active.
    pub(super) fn runs(&self) -> bool {
        ["active", "reloading", "refreshing"].contains(&self.active.as_str())
    }

    /// Whether the unit is changing its state.
    pub(super) fn moves(&self) -> bool {
        ["activating", "deactivating", "maintenance"].contains(&self.active.as_str())
    }

    /// Whether the unit has ended, and systemd is about to restart it.
    pub(super) fn restarts(&self) -> bool {
        self.sub.starts_with("auto-restart")
    }
}

/// A signal of systemd.
fn signal_of<'m>(interface: &'m str, member: &'m str) -> match_rule::Builder<'m> {
    MatchRule::builder().msg_type(Type::Signal).sender(NAME).interface(interface).member(member)
}

fn job_in_words(result: &str) -> String {
    match result {
        "canceled" => "its job was cancelled by another program".to_owned(),
        "timeout" => "its job in systemd has timed out".to_owned(),
        "dependency" => "a unit that it needs has failed".to_owned(),
        "skipped" => "systemd has skipped the job".to_owned(),
        "failed" => "it has failed".to_owned(),
        other => format!("systemd says {other}"),
    }
}

/// An error of the bus as text.
fn words(error: zbus::Error) -> String {
    if let zbus::Error::MethodError(_, Some(text), _) = error {
        return text;
    }
    if let zbus::Error::FDO(error) = &error
        && let fdo::Error::ServiceUnknown(what) | fdo::Error::NameHasNoOwner(what) = &**error
    {
        return format!("systemd is not on the system bus: {what}; {WITHOUT}");
    }
    error.to_string()
}
