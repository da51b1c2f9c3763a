//! The programs of Corosync, Pacemaker and systemd.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cob_kinds::HaCluster;
use serde::{Deserialize, Serialize};

use super::live::{Cib, InUse, Nodes, Quorum};
use crate::durable::{self, Sync};
use crate::kinds::native::{Ran, needs_program, run_bounded};
use crate::kinds::settings::place;

/// The programs, each with its package.
const PROGRAMS: [(&str, &str); 9] = [
    ("corosync", "corosync"),
    ("corosync-cfgtool", "corosync"),
    ("corosync-cmapctl", "corosync"),
    ("corosync-quorumtool", "corosync"),
    ("pacemakerd", "pacemaker"),
    ("cibadmin", "pacemaker-cli-utils"),
    ("crm_attribute", "pacemaker-cli-utils"),
    ("crm_mon", "pacemaker-cli-utils"),
    ("crm_node", "pacemaker-cli-utils"),
];
/// The files of a trial.
const TRIAL: &str = "trial.conf";
const TRIAL_KEY: &str = "trial.key";
/// The pause between two looks.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

/// A unit of systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Corosync,
    Pacemaker,
}

/// The state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnitState {
    pub(super) is_active: bool,
    pub(super) is_enabled: bool,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Corosync => "corosync.service",
            Self::Pacemaker => "pacemaker.service",
        }
    }

    pub(super) fn state(self) -> Result<UnitState, String> {
        let is = |question: &str| run("systemctl", &[question, "--quiet", self.name()]).map(|ran| ran.code == Some(0));
        Ok(UnitState { is_active: is("is-active")?, is_enabled: is("is-enabled")? })
    }

    pub(super) fn is_active(self) -> Result<bool, String> {
        self.state().map(|state| state.is_active)
    }

    /// Starts it, and has it start at each boot.
    pub(super) fn switch_on(self) -> Result<(), String> {
        self.enable(true)?;
        self.start_if_stopped()
    }

    pub(super) fn start_if_stopped(self) -> Result<(), String> {
        if self.is_active()? { Ok(()) } else { self.start() }
    }

    pub(super) fn start(self) -> Result<(), String> {
        let name = self.name();
        self.order("start").map_err(|why| format!("{name} does not start: {why}; see `journalctl --unit {name}`"))
    }

    pub(super) fn stop(self) -> Result<(), String> {
        if self.is_active()? { self.order("stop") } else { Ok(()) }
    }

    pub(super) fn enable(self, enabled: bool) -> Result<(), String> {
        if self.state()?.is_enabled == enabled {
            return Ok(());
        }
        self.order(if enabled { "enable" } else { "disable" })
    }

    fn order(self, order: &str) -> Result<(), String> {
        succeeded("systemctl", &[order, "--quiet", self.name()]).map(|_| ())
    }
}

impl UnitState {
    pub(super) fn word(self) -> &'static str {
        match (self.is_active, self.is_enabled) {
            (true, true) => "runs, also after a boot",
            (true, false) => "runs, not after a boot",
            (false, true) => "does not run before a boot",
            (false, false) => "does not run",
        }
    }
}

/// Whether the programs are installed.
pub(super) fn are_there() -> Result<(), String> {
    PROGRAMS.iter().try_for_each(|(program, package)| needs_program(program, package))
}

/// Has Corosync test a configuration on this host.
///
/// # Errors
/// The fault, in the words of Corosync.
pub(super) fn try_out(content: &HaCluster, own: &Path) -> Result<(), String> {
    let write = |name: &str, text: &str| {
        let written = durable::write_file(own, name, 0o600, text.as_bytes(), Sync::Later);
        written.map_err(|error| format!("{}: {error}", own.join(name).display()))
    };
    let mut text = content.text();
    if let Some(key) = &content.authkey {
        write(TRIAL_KEY, key)?;
        let line = format!("totem {{\n  keyfile: {}\n", place::text(&own.join(TRIAL_KEY))?);
        text = text.replacen("totem {\n", &line, 1);
    }
    write(TRIAL, &text)?;
    let tested = run("corosync", &["-t", "-c", place::text(&own.join(TRIAL))?]);
    end_trial(own)?;
    let tested = tested?;
    if tested.code == Some(0) {
        return Ok(());
    }
    // The last line says only that it ends.
    let lines: Vec<&str> = tested.err.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let why = if let [.., why, _] = lines[..] { why.to_owned() } else { tested.complaint() };
    Err(format!("Corosync refuses the configuration: {why}"))
}

/// Removes the files of a trial.
pub(super) fn end_trial(own: &Path) -> Result<(), String> {
    [TRIAL, TRIAL_KEY].iter().try_for_each(|name| place::remove_all(&own.join(name)))
}

/// Has Corosync read its file again.
pub(super) fn reload() -> Result<(), String> {
    succeeded("corosync-cfgtool", &["-R"]).map(|_| ())
}

/// The configuration in use.
pub(super) fn in_use() -> Result<InUse, String> {
    succeeded("corosync-cmapctl", &[]).map(|text| InUse::read(&text))
}

/// The votes and members.
pub(super) fn quorum() -> Result<Quorum, String> {
    // Its exit status says whether there is a quorum.
    let ran = run("corosync-quorumtool", &["-s"])?;
    Quorum::read(&ran.out).ok_or_else(|| ran.complaint())
}

/// The nodes and the turn in the configuration of Pacemaker.
pub(super) fn cib() -> Result<Cib, String> {
    Cib::read(&succeeded("cibadmin", &["--query", "--local"])?)
}

/// The nodes and resources, as the cluster sees them.
pub(super) fn nodes() -> Result<Nodes, String> {
    Nodes::read(&succeeded("crm_mon", &["--one-shot", "--inactive", "--output-as=xml"])?)
}

/// Sets or deletes an attribute of a node. One that lasts stays in the configuration until the node is forgotten; any
/// other ends with the membership.
pub(super) fn set_attribute(node: &str, (name, lasts): (&str, bool), value: Option<&str>) -> Result<(), String> {
    let lifetime = if lasts { "forever" } else { "reboot" };
    let words = ["--node", node, "--name", name, "--lifetime", lifetime];
    let more = value.map_or_else(|| vec!["--delete"], |value| vec!["--update", value]);
    succeeded("crm_attribute", &[&words[..], &more[..]].concat()).map(|_| ())
}

/// Puts the turn of a node into the configuration. It fails if there is another.
pub(super) fn put_turn(xml: &str) -> Result<(), String> {
    succeeded("cibadmin", &["--create", "--scope", "crm_config", "--xml-text", xml]).map(|_| ())
}

/// Deletes the element at an XPath.
pub(super) fn delete(xpath: &str) -> Result<(), String> {
    succeeded("cibadmin", &["--delete", "--xpath", xpath]).map(|_| ())
}

/// Waits until the cluster has nothing to do. The exit status is not reliable.
pub(super) fn settle(longest: Duration) -> Result<(), String> {
    run("crm_resource", &["--wait", "--timeout", &longest.as_secs().max(1).to_string()]).map(|_| ())
}

/// Has Pacemaker forget a node that left.
pub(super) fn forget(node: &str) -> Result<(), String> {
    succeeded("crm_node", &["--force", "--remove", node]).map(|_| ())
}

/// Repeats an order until it succeeds.
pub(super) fn again<T>(limit: Instant, order: impl Fn() -> Result<T, String>) -> Result<T, String> {
    loop {
        match order() {
            Err(_) if Instant::now() < limit => std::thread::sleep(PAUSE),
            ended => return ended,
        }
    }
}

fn run(program: &str, words: &[&str]) -> Result<Ran, String> {
    run_bounded(Command::new(program).args(words).env("LC_ALL", "C.UTF-8"), b"")
}

fn succeeded(program: &str, words: &[&str]) -> Result<String, String> {
    run(program, words)?.ok()
}
