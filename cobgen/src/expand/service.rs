//! The built-in kind `service`: its `content`, and the kinds that contents make.
//!
//! A service is a unit of systemd (`unit`), or commands (`start` and others). Both have the states and transitions of
//! the table in [`builtin`](super::builtin); a unit also has the state `stale`, for differences that can be repaired
//! while it runs. With `on_change: reload` an outdated service is reloaded instead of stopped and started: then there
//! is a transition outdated -> up, and no dependent has to be off for it.

use std::sync::LazyLock;

use cob_kinds::{UNIT_TYPES, plain_transition, schema_of, state};
use cob_types::{Kind, KindName, StateName, Transition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::Report;
use super::builtin::{Settled, named, named_by_hash, read};
use super::files::{Files, Payload};
use super::kinds::{Timing, check_duration};
use crate::diagnostic::Diagnostic;
use crate::model::{Duration, Label, Marked, Named, Node, Run};

/// The state of a unit that runs as wanted but differs otherwise, for example is not enabled.
const STALE: &str = "stale";
/// The longest name that systemd accepts.
const MAX_UNIT_NAME: usize = 255;
/// The most bytes of a unit file or drop-in.
const MAX_UNIT_FILE: usize = 1 << 20;
/// The installed unit of the daemon. A daemon whose unit has another name detects that itself.
const OWN_UNIT: &str = "cobd.service";
/// The units of the system bus, through which the daemon talks to systemd.
const BUS_UNITS: [&str; 3] = ["dbus.service", "dbus.socket", "dbus-broker.service"];

/// Keys that become part of a kind and are not sent to daemons.
const OF_THE_KIND: &[&str] = &["timeout", "grace", "retries", "retry_delay"];

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

/// The content of `service`: a unit of systemd, or commands for machines without it and other inits.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-instead" = instead()))]
struct ServiceContent {
    /// The unit of systemd: `etcd.service`; without an ending it is a service.
    unit: Option<Marked<String>>,
    /// With `unit`: whether it is started when the machine starts; default: as it is found.
    enabled: Option<Marked<bool>>,
    /// With `unit`: whether it is masked while it is down, so that nothing else starts it. `false`: a mask that
    /// is found is taken away.
    mask: Option<Marked<bool>>,
    /// With `unit`: the unit file, as text or `{file: ./x.service}`; default: the existing file.
    unit_file: Option<Node>,
    /// With `unit`: drop-ins by name, as text or `{file: ./x.conf}`: `10-limits.conf: "[Service]…"`.
    drop_ins: Option<Named<Node>>,
    /// Starts it, and stays in the foreground as the service. With `status` it returns instead, when
    /// the service runs.
    start: Option<Run>,
    /// Stops it; default: its processes are asked to end. Needed with `status`.
    stop: Option<Run>,
    /// Succeeds while it runs, for services that look after themselves.
    status: Option<Run>,
    /// Makes it apply changes while it runs; needed with `on_change: reload`.
    reload: Option<Run>,
    /// Succeeds once it is ready for others; tried again and again.
    ready: Option<Run>,
    /// How long it must live to count as up, also where `ready` succeeds before; default: 250ms.
    settle: Option<Duration>,
    /// The user of `start`, `stop` and `reload`; default: root.
    user: Option<Marked<String>>,
    /// With `user`: the group; default: that of the user.
    group: Option<Marked<String>>,
    /// The time that a start or a stop may take; default: 5m.
    timeout: Option<Duration>,
    /// Between asking it to end and killing it; default: 10s.
    grace: Option<Duration>,
    /// How often a failed start or stop is tried again; default: 2.
    retries: Option<u32>,
    /// Before the first retry; default: 1s.
    retry_delay: Option<Duration>,
    /// The reaction when it is outdated: `restart` (default), or `reload`.
    on_change: Option<Marked<OnChange>>,
    /// The working folder, absolute; default: where the files that travel with it are.
    dir: Option<Marked<String>>,
    /// Variables of its environment; numbers, as they are written, and truth values become texts.
    env: Option<Named<Label>>,
    /// Values for dependents.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    exports: Option<Named<Node>>,
}

/// What is done when it is outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OnChange {
    /// It is stopped, and started again.
    Restart,
    /// It is reloaded.
    Reload,
}

static SCHEMA: LazyLock<Json> = LazyLock::new(|| schema_of::<ServiceContent>("content of service"));

/// Checks the content; `None` if it has faults, which are already reported.
pub(super) fn settle(content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let service: ServiceContent = read(content, &SCHEMA, "service", report)?;
    let before = report.errors();
    match &service.unit {
        Some(unit) => of_unit(&service, unit, report),
        // The meaning of the other keys depends on it.
        None if content.has("unit") => {}
        None => of_commands(&service, content, report),
    }
    check_duration(service.settle.as_ref(), report);
    for (name, _) in service.env.iter().flat_map(Named::iter) {
        if name.value.is_empty() || name.value.contains(['=', '\0']) || name.value.starts_with("COB_") {
            let fault = Diagnostic::error("bad-content", format!("the variable {:?} can't be set", name.value));
            report.push(name.mark, fault.help("names that begin with COB_ are reserved"));
        }
    }
    let env = service.env.as_ref().map(|env| env.iter().map(|(name, v)| (name.value.clone(), v.0.clone())).collect());
    let mut settled = Settled { env, ..Settled::default() };
    let commands = [&service.start, &service.stop, &service.status, &service.reload, &service.ready];
    for run in commands.into_iter().flatten() {
        files.command(run, &mut settled.files, report);
    }
    carry_texts(&service, &mut settled.files, files, report);
    let reloads = service.on_change.as_ref().is_some_and(|c| c.value == OnChange::Reload);
    let made = kind(service.unit.is_some(), reloads);
    let mut timed = made.clone().unwrap_or_else(|| named("service").kind.kind());
    let timing = Timing {
        timeout: service.timeout.as_ref(),
        grace: service.grace.as_ref(),
        retries: service.retries,
        retry_delay: service.retry_delay.as_ref(),
    };
    settled.kind = if timing.apply(&mut timed, report) { Some(named_by_hash(timed)) } else { made };
    settled.without = OF_THE_KIND;
    if let (Some(user), Some(file)) = (&service.user, settled.files.keys().next()) {
        let what = format!("`{file}` travels into a folder that only root may enter, and the service runs as a user");
        let fault = Diagnostic::error("bad-content", what);
        report.push(user.mark, fault.help("put it in its place with a `file-tree`, and name it from the root"));
    }
    (report.errors() == before).then_some(settled)
}

/// The kind for this sort of content; `None`: the kind of the table.
fn kind(unit: bool, reloads: bool) -> Option<Kind> {
    let name = match (unit, reloads) {
        (false, false) => return None,
        (false, true) => "service.reload",
        (true, false) => "service.unit",
        (true, true) => "service.unit-reload",
    };
    let mut kind = named("service").kind.kind();
    kind.name = KindName::new(name).expect("well-formed");
    if reloads {
        kind.transitions.insert(0, plain_transition("outdated", "up"));
    }
    if unit {
        kind.states.push(state(STALE));
        kind.priority.push(state(STALE));
        kind.transitions.push(plain_transition(STALE, "up"));
    }
    Some(kind)
}

/// Whether a transition out of `outdated` leaves the service running, so that dependents may stay on.
pub(super) fn keeps_running(kind: &Kind, t: &Transition) -> bool {
    kind.backend == "service" && t.from == StateName::OUTDATED && t.to == kind.preferred
}

/// Whether a transition does not affect the running service, so that it needs no others.
pub(super) fn only_adjusts(kind: &Kind, t: &Transition) -> bool {
    kind.backend == "service" && t.from == STALE
}

fn of_commands(service: &ServiceContent, content: &Node, report: &mut Report<'_>) {
    let mark = content.mark;
    for (key, name) in [("user", &service.user), ("group", &service.group)] {
        let Some(Marked { mark, value }) = name else { continue };
        let fits = |c: char| c.is_alphanumeric() || "._-$@\\".contains(c);
        if value.is_empty() || value.starts_with('-') || !value.chars().all(fits) {
            let fault = Diagnostic::error("bad-content", format!("{value:?} is not the name of a {key}"));
            report.push(*mark, fault.help("write it as in /etc/passwd and /etc/group"));
        }
    }
    if let Some(group) = service.group.as_ref().filter(|_| !content.has("user")) {
        let fault = Diagnostic::error("missing-key", "`group` needs `user`");
        report.push(group.mark, fault.help("add `user: NAME`"));
    }
    if !content.has("start") {
        let fault = Diagnostic::error("missing-key", "the content of `service` lacks `unit` or `start`");
        report.push(mark, fault.help("write `unit: NAME.service` for a unit of systemd, else `start: COMMAND`"));
    }
    if service.status.is_some() && !content.has("stop") {
        let fault = Diagnostic::error(
            "missing-key",
            "with `status` the service manages its processes, so `stop` is needed \
                too",
        );
        report.push(mark, fault.help("add `stop: …`, or remove `status`: then the daemon manages the processes"));
    }
    if let Some(dir) = service.dir.as_ref().filter(|dir| !dir.value.starts_with('/')) {
        report.push(
            dir.mark,
            Diagnostic::error(
                "bad-content",
                "`dir` must be an absolute path, for example \
            /srv/app",
            ),
        );
    }
    match (&service.on_change, &service.reload) {
        (Some(on_change), None) if on_change.value == OnChange::Reload && !content.has("reload") => {
            let fault = Diagnostic::error("missing-key", "`on_change: reload` needs the command `reload`");
            report.push(on_change.mark, fault.help("such as `reload: 'kill -HUP $COB_MAIN_PID'`"));
        }
        (None, Some(_)) if content.has("on_change") => {}
        (Some(_) | None, Some(reload)) if service.on_change.as_ref().is_none_or(|c| c.value != OnChange::Reload) => {
            let fault = Diagnostic::error("needless-command", "without `on_change: reload` this is never run");
            report.push(reload.at.mark, fault.help("add `on_change: reload`, or remove `reload`"));
        }
        (Some(_) | None, Some(_) | None) => {}
    }
    let of_units = [
        ("enabled", service.enabled.as_ref().map(|v| v.mark)),
        ("mask", service.mask.as_ref().map(|v| v.mark)),
        ("unit_file", service.unit_file.as_ref().map(|v| v.mark)),
        ("drop_ins", service.drop_ins.as_ref().and_then(|d| d.iter().next().map(|(name, _)| name.mark))),
    ];
    for (key, mark) in of_units {
        if let Some(mark) = mark {
            let fault = Diagnostic::error("bad-content", format!("`{key}` is for units of systemd"));
            report.push(mark, fault.help("name the unit, `unit: NAME.service`, or remove the key"));
        }
    }
}

fn of_unit(service: &ServiceContent, unit: &Marked<String>, report: &mut Report<'_>) {
    if let Err(why) = unit_name(&unit.value) {
        let fault = Diagnostic::error("bad-content", format!("{:?} is not a unit: {why}", unit.value));
        let with_ending = format!("{}.service", unit.value);
        let help = match unit_name(&with_ending) {
            Ok(()) => format!("of a service whose name has a dot write the ending, too: `{with_ending}`"),
            Err(_) => "write it as systemd does: `etcd.service`, `getty@tty1.service`".to_owned(),
        };
        report.push(unit.mark, fault.help(help));
    }
    let full = if unit.value.contains('.') { unit.value.clone() } else { format!("{}.service", unit.value) };
    if full == OWN_UNIT {
        let fault =
            Diagnostic::error("own-unit", "this is the daemon itself: after a stop no program would start it again");
        report.push(unit.mark, fault.help("manage its drop-ins with a `file-tree`, and restart it by hand"));
    } else if BUS_UNITS.contains(&full.as_str()) {
        let what = "its restart cuts the connection to systemd and disturbs many programs of the host";
        let fault = Diagnostic::warning("bus-unit", what);
        report.push(unit.mark, fault.help("manage its files with a `file-tree`, for the next start of the machine"));
    }
    let of_commands = [
        ("start", service.start.as_ref().map(|r| r.at.mark)),
        ("stop", service.stop.as_ref().map(|r| r.at.mark)),
        ("status", service.status.as_ref().map(|r| r.at.mark)),
        ("reload", service.reload.as_ref().map(|r| r.at.mark)),
        ("dir", service.dir.as_ref().map(|d| d.mark)),
        ("env", service.env.as_ref().and_then(|e| e.iter().next().map(|(name, _)| name.mark))),
        ("user", service.user.as_ref().map(|user| user.mark)),
        ("group", service.group.as_ref().map(|group| group.mark)),
    ];
    for (key, mark) in of_commands {
        if let Some(mark) = mark {
            let fault = Diagnostic::error(
                "bad-content",
                format!(
                    "with `unit` there is no `{key}`: write it in the \
                unit"
                ),
            );
            let line = match key {
                "start" => "ExecStart=\\nExecStart=…",
                "stop" => "ExecStop=…",
                "reload" => "ExecReload=…",
                "dir" => "WorkingDirectory=…",
                "env" => "Environment=NAME=…",
                "user" => "User=…",
                "group" => "Group=…",
                _ => "…",
            };
            report.push(
                mark,
                fault.help(format!("put it into a drop-in: `drop_ins: {{10-cob.conf: \"[Service]\\n{line}\\n\"}}`")),
            );
        }
    }
    if let (Some(mask), Some(_)) = (service.mask.as_ref().filter(|mask| mask.value), &service.unit_file) {
        let fault = Diagnostic::error("bad-content", "a mask would replace the `unit_file`");
        report.push(
            mask.mark,
            fault.help("remove either key: COB removes a unit file of the model when no object needs it"),
        );
    }
    for (name, _) in service.drop_ins.iter().flat_map(Named::iter) {
        let stem = name.value.strip_suffix(".conf").unwrap_or_default();
        if stem.is_empty() || name.value.starts_with('.') || name.value.contains(['/', '\0']) || name.value.len() > 200
        {
            let fault = Diagnostic::error("bad-content", format!("{:?} is not the name of a drop-in", name.value));
            report.push(name.mark, fault.help("it is a file name that ends with .conf: `10-limits.conf`"));
        }
    }
}

/// Checks the texts of unit file and drop-ins, and adds the named files to the payload.
fn carry_texts(service: &ServiceContent, payload: &mut Payload, files: &mut Files, report: &mut Report<'_>) {
    let drop_ins = service.drop_ins.iter().flat_map(Named::iter).map(|(_, node)| node);
    for node in service.unit_file.iter().chain(drop_ins) {
        let named = node.map().filter(|map| map.entries.len() == 1).and_then(|map| {
            let (key, value) = &map.entries[0];
            Some(Marked { mark: value.mark, value: value.text().filter(|_| key.text == "file")?.to_owned() })
        });
        match (node.text(), named) {
            (Some(text), _) if text.len() > MAX_UNIT_FILE || text.contains('\0') => {
                report.push(node.mark, Diagnostic::error("bad-content", "this is no file that systemd reads"));
            }
            (Some(_), _) => {}
            (None, Some(file)) => files.named(&[file], payload, report),
            (None, None) => {
                let fault = Diagnostic::error("bad-content", "this is neither a text nor a file beside the model");
                report.push(node.mark, fault.help("write the text itself, or `{file: ./x.conf}`"));
            }
        }
    }
}

/// Checks whether systemd would accept this name.
fn unit_name(name: &str) -> Result<(), &'static str> {
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
    fn units_are_named_as_systemd_names_them() {
        for name in
            ["etcd", "etcd.service", "getty@tty1.service", "a-b_c:d.timer", "srv-data.mount", "dev-sda\\x2d1.swap"]
        {
            assert_eq!(unit_name(name), Ok(()), "{name}");
        }
        for name in ["", ".service", "a/b.service", "a b", "x.conf", "getty@.service", "@x.service", "ä.service"] {
            assert!(unit_name(name).is_err(), "{name}");
        }
        assert!(unit_name(&format!("{}.service", "a".repeat(260))).is_err());
    }

    #[test]
    fn a_reload_is_a_move_of_its_own_and_nothing_stops_a_stale_unit() {
        let moves = |kind: Option<Kind>| -> Vec<String> {
            kind.expect("made").transitions.iter().map(|t| format!("{} -> {}", t.from, t.to)).collect()
        };
        assert!(kind(false, false).is_none());
        assert_eq!(
            moves(kind(true, true)),
            [
                "outdated -> up",
                "down -> up",
                "up -> down",
                "outdated -> down",
                "failed -> up",
                "failed -> down",
                "stale -> up"
            ]
        );
        assert!(!moves(kind(true, false)).contains(&"outdated -> up".to_owned()));
        let reloaded = kind(false, true).expect("made");
        let running = |t: &&Transition| keeps_running(&reloaded, t);
        assert_eq!(reloaded.transitions.iter().filter(running).count(), 1);
        let unit = kind(true, false).expect("made");
        let adjusting: Vec<_> = unit.transitions.iter().filter(|t| only_adjusts(&unit, t)).collect();
        assert!(adjusting.len() == 1 && adjusting[0].to == unit.preferred);
    }
}
