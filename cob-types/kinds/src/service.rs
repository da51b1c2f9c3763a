//! The kind `service`: a unit of systemd, or a program that commands start and stop.
//!
//! A unit also has the state `stale`, for differences that can be repaired while it runs. With `on_change: reload` an
//! outdated service is reloaded instead of stopped and started: then there is a transition outdated -> up, and no
//! dependent has to be off for it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use cob_types::{CobId, Command, Kind, KindName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json};

use super::commands::{CommandSchema, KindTime, check_account, check_variables};
use super::{Builtin, Content, Faults, Footprint, Place, Scalar, Subject, Time, plain_transition, state};

/// The folder for administrators' systemd units.
pub const UNITS: &str = "/etc/systemd/system";
/// The state of a unit that runs as wanted but differs otherwise, for example is not enabled.
pub const STALE: &str = "stale";
/// The endings of unit names.
const UNIT_TYPES: [&str; 8] = ["service", "socket", "timer", "mount", "automount", "path", "target", "swap"];
/// The longest name that systemd accepts.
const MAX_UNIT_NAME: usize = 255;
/// The most bytes of a unit file or drop-in.
const MAX_UNIT_FILE: usize = 1 << 20;
/// The installed unit of the daemon. A daemon whose unit has another name detects that itself.
const OWN_UNIT: &str = "cobd.service";
/// The units of the system bus, through which the daemon talks to systemd.
const BUS_UNITS: [&str; 3] = ["dbus.service", "dbus.socket", "dbus-broker.service"];

/// The content of `service`: a unit of systemd, or commands for machines without it and other inits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-instead" = instead()))]
pub struct Service {
    /// The unit of systemd: `etcd.service`; without an ending it is a service.
    pub unit: Option<String>,
    /// With `unit`: whether it is started when the machine starts; default: as it is found.
    pub enabled: Option<bool>,
    /// With `unit`: whether it is masked while it is down, so that nothing else starts it. `false`: a mask that
    /// is found is taken away.
    pub mask: Option<bool>,
    /// With `unit`: the unit file, as text or `{file: ./x.service}`; default: the existing file.
    pub unit_file: Option<UnitText>,
    /// With `unit`: drop-ins by name, as text or `{file: ./x.conf}`: `10-limits.conf: "[Service]…"`.
    #[serde(default)]
    pub drop_ins: BTreeMap<String, UnitText>,
    /// Starts it, and stays in the foreground as the service. With `status` it returns instead, when
    /// the service runs.
    #[schemars(with = "Option<CommandSchema>")]
    pub start: Option<Command>,
    /// Stops it; default: its processes are asked to end. Needed with `status`.
    #[schemars(with = "Option<CommandSchema>")]
    pub stop: Option<Command>,
    /// Succeeds while it runs, for services that look after themselves.
    #[schemars(with = "Option<CommandSchema>")]
    pub status: Option<Command>,
    /// Makes it apply changes while it runs; needed with `on_change: reload`.
    #[schemars(with = "Option<CommandSchema>")]
    pub reload: Option<Command>,
    /// Succeeds once it is ready for others; tried again and again.
    #[schemars(with = "Option<CommandSchema>")]
    pub ready: Option<Command>,
    /// How long it must live to count as up, also where `ready` succeeds before; default: 250ms.
    #[serde(default = "settle")]
    pub settle: Time,
    /// The user of `start`, `stop` and `reload`; default: root.
    pub user: Option<String>,
    /// With `user`: the group; default: that of the user.
    pub group: Option<String>,
    /// The time that a start or a stop may take; default: 5m.
    #[schemars(with = "Option<KindTime>")]
    pub timeout: Option<String>,
    /// Between asking it to end and killing it; default: 10s.
    #[schemars(with = "Option<KindTime>")]
    pub grace: Option<String>,
    /// How often a failed start or stop is tried again; default: 2.
    pub retries: Option<u32>,
    /// Before the first retry; default: 1s.
    #[schemars(with = "Option<KindTime>")]
    pub retry_delay: Option<String>,
    /// The reaction when it is outdated: `restart` (default), or `reload`.
    #[serde(default)]
    pub on_change: OnChange,
    /// The working folder, absolute; default: where the files that travel with it are.
    pub dir: Option<PathBuf>,
    /// Variables of its environment; numbers, as they are written, and truth values become texts.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Scalar>", extend("x-texts" = true))]
    pub env: BTreeMap<String, String>,
    /// Values for dependents.
    #[serde(default)]
    pub exports: Map<String, Json>,
}

/// What is done when it is outdated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnChange {
    /// It is stopped, and started again.
    #[default]
    Restart,
    /// It is reloaded.
    Reload,
}

/// The text of a unit file or drop-in.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum UnitText {
    /// The text itself.
    Itself(String),
    /// A file beside the model, which travels in the bundle.
    InFile {
        /// The name of the file.
        file: String,
    },
    /// Neither: a fault.
    Other(IgnoredAny),
}

/// Most services that can't start report it at once; a longer time would delay all others.
fn settle() -> Time {
    Time::from_millis(250)
}

/// The right keys for keys of other tools.
fn instead() -> Json {
    let named: [(&[&str], &str); 12] = [
        (&["name", "service"], "`unit: NAME.service` names a unit of systemd"),
        (
            &["command", "cmd", "run", "exec", "program", "exec_start", "ExecStart"],
            "`start` starts it; for a unit use `unit_file` or a drop-in",
        ),
        (&["args", "arguments"], "write the arguments behind the program in `start`, a text or a list of words"),
        (&["cwd", "workdir", "working_dir", "working_directory", "chdir"], "`dir` is the working folder"),
        (&["environment", "variables", "vars"], "`env` has the variables: `{PORT: \"80\"}`"),
        (&["enable", "on_boot", "autostart"], "`enabled: true` has systemd start the unit when the machine starts"),
        (&["masked"], "`mask: true` has the unit masked while it is down"),
        (
            &["health", "healthcheck", "health_check", "readiness"],
            "`ready` is a command that succeeds once it is ready",
        ),
        (
            &["state", "running", "started"],
            "`preferred: up` or `preferred: down` stands beside `content`, on the change object",
        ),
        (
            &["restart", "restart_policy"],
            "a service that ends is always started again; `on_change` defines the reaction to a changed content",
        ),
        (
            &["start_timeout", "stop_timeout", "ready_timeout", "timeout_start", "timeout_stop", "timeouts"],
            "`timeout` is the time of each start and stop, `grace` the time between asking it to end and killing it",
        ),
        (
            &["requires", "after", "wants", "restarts_on", "reloads_on", "depends_on"],
            "dependencies stand beside `content`, on the change object",
        ),
    ];
    let all = named.into_iter().flat_map(|(keys, help)| keys.iter().map(move |key| ((*key).to_owned(), help.into())));
    Json::Object(all.collect())
}

impl JsonSchema for UnitText {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "UnitText".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

impl Content for Service {
    /// A restart is a stop and a start, so that all dependents that require it are off in between by the ordinary
    /// rules: there is no transition outdated -> up.
    const KIND: Builtin = Builtin {
        states: &["down", "up", "outdated", "failed"],
        transitions: &[("down", "up"), ("up", "down"), ("outdated", "down"), ("failed", "up"), ("failed", "down")],
        interval_ms: Some(10_000),
        ..Builtin::program("service")
    };

    fn check(&self, faults: &mut Faults) {
        match &self.unit {
            Some(unit) => self.check_unit(unit, faults),
            None => self.check_commands(faults),
        }
        check_variables(&self.env, faults);
        let drop_ins = self.drop_ins.iter().map(|(name, text)| (Place::Value("drop_ins", name.clone()), text));
        for (place, text) in self.unit_file.iter().map(|text| ("unit_file".into(), text)).chain(drop_ins) {
            match text {
                UnitText::Itself(text) if text.len() > MAX_UNIT_FILE || text.contains('\0') => {
                    faults.add(place, "this is no file that systemd reads", "");
                }
                UnitText::Itself(_) | UnitText::InFile { .. } => {}
                UnitText::Other(_) => {
                    let what = "this is neither a text nor a file beside the model";
                    faults.add(place, what, "write the text itself, or `{file: ./x.conf}`");
                }
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let Some(unit) = self.unit_name() else { return Footprint::default() };
        let is_written = self.unit_file.is_some() || self.mask == Some(true);
        let file = is_written.then(|| format!("{UNITS}/{unit}"));
        let drop_ins = self.drop_ins.keys().map(|name| format!("{UNITS}/{unit}.d/{name}"));
        Footprint::of(Subject::UNIT, unit.clone()).with_own(file.into_iter().chain(drop_ins))
    }
}

impl Service {
    /// The unit's name with its ending; `None`: a service of commands.
    #[must_use]
    pub fn unit_name(&self) -> Option<String> {
        self.unit.as_deref().map(full_unit_name)
    }

    /// The kind for this sort of content, if it differs from [`Content::KIND`].
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        let reloads = self.on_change == OnChange::Reload;
        let name = match (self.unit.is_some(), reloads) {
            (false, false) => return None,
            (false, true) => "service.reload",
            (true, false) => "service.unit",
            (true, true) => "service.unit-reload",
        };
        let mut kind = Self::KIND.kind();
        kind.name = KindName::new(name).ok()?;
        if reloads {
            kind.transitions.insert(0, plain_transition("outdated", "up"));
        }
        if self.unit.is_some() {
            kind.states.push(state(STALE));
            kind.priority.push(state(STALE));
            kind.transitions.push(plain_transition(STALE, "up"));
        }
        Some(kind)
    }

    fn check_commands(&self, faults: &mut Faults) {
        check_account(self.user.as_deref(), self.group.as_deref(), faults);
        if self.start.is_none() {
            let help = "write `unit: NAME.service` for a unit of systemd, else `start: COMMAND`";
            let what = "the content of `service` lacks `unit` or `start`";
            faults.add_as("missing-key", Place::Content, what, help);
        }
        if self.status.is_some() && self.stop.is_none() {
            let what = "with `status` the service manages its processes, so `stop` is needed too";
            let help = "add `stop: …`, or remove `status`: then the daemon manages the processes";
            faults.add_as("missing-key", Place::Content, what, help);
        }
        if self.dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            faults.add("dir", "`dir` must be an absolute path, for example /srv/app", "");
        }
        if self.on_change == OnChange::Reload && self.reload.is_none() {
            let help = "such as `reload: 'kill -HUP $COB_MAIN_PID'`";
            faults.add_as("missing-key", "on_change", "`on_change: reload` needs the command `reload`", help);
        }
        if self.on_change == OnChange::Restart && self.reload.is_some() {
            let help = "add `on_change: reload`, or remove `reload`";
            faults.add_as("needless-command", "reload", "without `on_change: reload` this is never run", help);
        }
        let of_units = [
            ("enabled".into(), "enabled", self.enabled.is_some()),
            ("mask".into(), "mask", self.mask.is_some()),
            ("unit_file".into(), "unit_file", self.unit_file.is_some()),
            (first("drop_ins", &self.drop_ins), "drop_ins", !self.drop_ins.is_empty()),
        ];
        for (place, key, _) in of_units.into_iter().filter(|(.., is_set)| *is_set) {
            let help = "name the unit, `unit: NAME.service`, or remove the key";
            faults.add(place, format!("`{key}` is for units of systemd"), help);
        }
    }

    fn check_unit(&self, unit: &str, faults: &mut Faults) {
        if let Err(why) = check_unit_name(unit) {
            let with_ending = format!("{unit}.service");
            let help = match check_unit_name(&with_ending) {
                Ok(()) => format!("of a service whose name has a dot write the ending, too: `{with_ending}`"),
                Err(_) => "write it as systemd does: `etcd.service`, `getty@tty1.service`".to_owned(),
            };
            faults.add("unit", format!("{unit:?} is not a unit: {why}"), help);
        }
        let full = full_unit_name(unit);
        if full == OWN_UNIT {
            let what = "this is the daemon itself: after a stop no program would start it again";
            faults.add_as("own-unit", "unit", what, "manage its drop-ins with a `file-tree`, and restart it by hand");
        } else if BUS_UNITS.contains(&full.as_str()) {
            let what = "its restart cuts the connection to systemd and disturbs many programs of the host";
            let help = "manage its files with a `file-tree`, for the next start of the machine";
            faults.warn("bus-unit", "unit", what, help);
        }
        let of_commands = [
            ("start".into(), "start", self.start.is_some(), "ExecStart=\\nExecStart=…"),
            ("stop".into(), "stop", self.stop.is_some(), "ExecStop=…"),
            ("status".into(), "status", self.status.is_some(), "…"),
            ("reload".into(), "reload", self.reload.is_some(), "ExecReload=…"),
            ("dir".into(), "dir", self.dir.is_some(), "WorkingDirectory=…"),
            (first("env", &self.env), "env", !self.env.is_empty(), "Environment=NAME=…"),
            ("user".into(), "user", self.user.is_some(), "User=…"),
            ("group".into(), "group", self.group.is_some(), "Group=…"),
        ];
        for (place, key, _, line) in of_commands.into_iter().filter(|(_, _, is_set, _)| *is_set) {
            let help = format!("put it into a drop-in: `drop_ins: {{10-cob.conf: \"[Service]\\n{line}\\n\"}}`");
            faults.add(place, format!("with `unit` there is no `{key}`: write it in the unit"), help);
        }
        if self.mask == Some(true) && self.unit_file.is_some() {
            let help = "remove either key: COB removes a unit file of the model when no object needs it";
            faults.add("mask", "a mask would replace the `unit_file`", help);
        }
        for name in self.drop_ins.keys() {
            let stem = name.strip_suffix(".conf").unwrap_or_default();
            if stem.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) || name.len() > 200 {
                let what = format!("{name:?} is not the name of a drop-in");
                faults.add(("drop_ins", name), what, "it is a file name that ends with .conf: `10-limits.conf`");
            }
        }
    }
}

/// The place of the first key of a mapping.
fn first<T>(key: &'static str, map: &BTreeMap<String, T>) -> Place {
    map.keys().next().map_or(Place::Key(key), |first| (key, first).into())
}

/// The name of a unit with its ending; the default is `.service`.
#[must_use]
pub fn full_unit_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((_, ending)) if UNIT_TYPES.contains(&ending) => name.to_owned(),
        Some(_) | None => format!("{name}.service"),
    }
}

/// Checks whether systemd would accept this name.
fn check_unit_name(name: &str) -> Result<(), &'static str> {
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, "service"));
    if !UNIT_TYPES.contains(&ending) {
        return Err("it does not end with an ending of systemd");
    }
    if stem.is_empty() || stem.starts_with('@') || stem.starts_with('.') || name.len() > MAX_UNIT_NAME {
        return Err("its name is empty or too long");
    }
    if stem.ends_with('@') {
        return Err("it is a template: name an instance");
    }
    if !stem.chars().all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c)) {
        return Err("only letters, digits and : - _ . \\ @ are allowed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unit_names_of_systemd_are_accepted() {
        for name in
            ["etcd", "etcd.service", "getty@tty1.service", "a-b_c:d.timer", "srv-data.mount", "dev-sda\\x2d1.swap"]
        {
            assert_eq!(check_unit_name(name), Ok(()), "{name}");
        }
        for name in ["", ".service", "a/b.service", "a b", "x.conf", "getty@.service", "@x.service", "ä.service"] {
            assert!(check_unit_name(name).is_err(), "{name}");
        }
        assert!(check_unit_name(&format!("{}.service", "a".repeat(260))).is_err());
    }
}
