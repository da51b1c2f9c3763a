//! Commands of podman.

use std::path::Path;
use std::process::Command;

use crate::kinds::native::{Ran, run_bounded};

/// The program, at the place in all distributions: units of systemd name programs by their paths.
pub(super) const PODMAN: &str = "/usr/bin/podman";

/// Keeps podman's notes of each step out of the journal, where the last words of a container are looked for.
pub(super) const QUIET: &str = "--events-backend=file";

/// The label of networks and volumes that COB has made.
pub(super) const LABEL: &str = "cob";

/// The label with the unit that runs a container; podman sets it for `podman auto-update`, too.
const UNIT: &str = "PODMAN_SYSTEMD_UNIT";

/// A thing of podman that has a name and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thing {
    Container,
    Image,
    Network,
    Volume,
}

impl Thing {
    fn word(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Image => "image",
            Self::Network => "network",
            Self::Volume => "volume",
        }
    }
}

pub(super) fn is_installed() -> bool {
    Path::new(PODMAN).exists()
}

/// Runs podman. The error is the reason of its failure.
pub(super) fn podman(words: &[&str]) -> Result<String, String> {
    let ran = end_of(words)?;
    if ran.code == Some(0) { Ok(ran.out) } else { Err(complaint(words, &ran)) }
}

/// Whether podman has it.
pub(super) fn exists(thing: Thing, name: &str) -> Result<bool, String> {
    let words = [thing.word(), "exists", name];
    let ran = end_of(&words)?;
    match ran.code {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        Some(_) | None => Err(complaint(&words, &ran)),
    }
}

/// Whether COB has made this network or volume.
pub(super) fn is_ours(thing: Thing, name: &str) -> Result<bool, String> {
    let said = podman(&[thing.word(), "inspect", "--format", "{{json .Labels}}", name])?;
    let labels: Option<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_str(&said).map_err(|error| format!("podman {} inspect {name}: {error}", thing.word()))?;
    Ok(labels.is_some_and(|labels| labels.contains_key(LABEL)))
}

/// The unit that runs a container; empty for a container without a unit.
pub(super) fn unit_of(container: &str) -> Result<String, String> {
    let format = format!("{{{{index .Config.Labels \"{UNIT}\"}}}}");
    let said = podman(&["container", "inspect", "--format", &format, container])?;
    // The word of podman's templates for a missing label.
    Ok(Some(said.trim()).filter(|unit| *unit != "<no value>").unwrap_or_default().to_owned())
}

fn end_of(words: &[&str]) -> Result<Ran, String> {
    run_bounded(Command::new(PODMAN).arg(QUIET).args(words), b"")
}

fn complaint(words: &[&str], ran: &Ran) -> String {
    let said = ran.err.lines().map(str::trim).rfind(|line| !line.is_empty());
    let said = said.map(|line| line.strip_prefix("Error: ").unwrap_or(line));
    let how = ran.code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit status {code}"));
    format!("podman {}: {}", words.iter().take(2).copied().collect::<Vec<_>>().join(" "), said.unwrap_or(&how))
}
