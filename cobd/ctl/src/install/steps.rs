//! Chooses the next step from the facts of a host: a pure function, so that it can be repeated.

use std::net::SocketAddr;

use cob_types::{HostName, PublicKey};

use super::artefact::{Artefact, Form, Manager, Processor};
use super::facts::Facts;

/// The desired installation of a host.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its name in the model.
    pub host: &'a HostName,
    /// The artefacts to choose from.
    pub artefacts: &'a [Artefact],
    /// The server that enrols it.
    pub server: SocketAddr,
    /// The key of that server.
    pub server_key: PublicKey,
    /// The keys with which a host of this name has enrolled.
    pub enrolled: &'a [PublicKey],
    /// Whether its key may replace these keys.
    pub replace: bool,
}

/// A missing step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Install the daemon.
    Install(&'a Artefact),
    /// Enrol the host.
    Join,
    /// Start the unit: it does not run, or not at each boot.
    Start,
    /// Restart the unit: it runs a program that was replaced.
    Restart,
}

/// Why a host is left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The login is not root.
    #[error("the login on this host is not root")]
    NotRoot,
    /// The host has no systemd.
    #[error("systemd does not run this host")]
    NoSystemd,
    /// A processor without a build of COB.
    #[error("COB runs on x86-64 and arm64, not on {0:?}")]
    Processor(String),
    /// No named artefact fits the host.
    #[error("the given packages and programs do not fit this host: {processor}, {}",
        .manager.map_or_else(|| "no apt and no rpm".to_owned(), |m| format!("packages are {m}")))]
    NothingFits {
        /// Its processor.
        processor: Processor,
        /// Its package manager.
        manager: Option<Manager>,
    },
    /// COB was installed in another way.
    #[error("COB was already installed differently: {0}")]
    OtherWay(&'static str),
    /// COB is not installed.
    #[error("COB is not installed on this host, or not enrolled")]
    NotThere,
    /// A daemon of another version runs.
    #[error("this host runs version {running}, not {named}: not changed")]
    OtherVersion {
        /// The running version.
        running: String,
        /// The named version.
        named: String,
    },
    /// The configuration can't be read.
    #[error("/etc/cob/cobd.toml exists but can't be read: not changed")]
    BadConfig,
    /// The configuration belongs to another host.
    #[error("/etc/cob/cobd.toml exists for another host ({0}): not changed")]
    OtherHost(String),
    /// The configuration names another depot.
    #[error("/etc/cob/cobd.toml exists for another depot or depot key ({0}): not changed")]
    OtherDepot(String),
    /// The key can't be read.
    #[error("the key of this host, /var/lib/cob/identity.key, can't be read")]
    BadKey,
    /// Another machine has enrolled under the name.
    #[error("{host} has enrolled with {}, but this machine has another key", keys(.enrolled))]
    OtherKey {
        /// The host.
        host: HostName,
        /// The keys that it has enrolled with.
        enrolled: Vec<PublicKey>,
        /// Whether this machine's configuration says that it has enrolled as that host.
        configured: bool,
    },
    /// A step succeeded, and the host's facts are unchanged.
    #[error("the script to {0} succeeded, but has not changed the host")]
    NoEffect(&'static str),
}

fn keys(all: &[PublicKey]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

impl Refusal {
    /// A hint for the operator.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotRoot => "log in as root (NAME=root@ADDRESS), or add --sudo".to_owned(),
            Self::NoSystemd => "install it by hand: docs/reference-cobd.md".to_owned(),
            Self::NothingFits { processor, .. } => {
                format!("name a --package of its kind, or a --binary for {processor}; both may be repeated")
            }
            Self::OtherWay(_) => "continue in the same way, or remove the installed files first".to_owned(),
            Self::NotThere => "`cobctl bootstrap` installs and enrols it".to_owned(),
            Self::OtherVersion { .. } => "`cobctl upgrade` changes the version of hosts that run".to_owned(),
            Self::BadConfig | Self::OtherHost(_) | Self::OtherDepot(_) => {
                "if the destination is right, move the file away and repeat the command".to_owned()
            }
            Self::BadKey => "see the output of `cobd init` there; without its key, replace the host".to_owned(),
            Self::OtherKey { configured: true, .. } => {
                "another machine has replaced it: find out which machine is right; docs/how-to/replace-a-lost-host.md"
                    .to_owned()
            }
            Self::OtherKey { .. } => {
                "if that machine is off for good, add --replace, and its key is revoked; else the destination is wrong"
                    .to_owned()
            }
            Self::Processor(_) | Self::NoEffect(_) => String::new(),
        }
    }
}

/// Whether the host has the artefact.
#[derive(Debug, PartialEq, Eq)]
enum Has {
    Same,
    Other(String),
    Nothing,
}

/// The next step of an installation; `None`: the host has the desired installation.
///
/// # Errors
/// [`Refusal`].
pub fn install<'a>(facts: &Facts, wanted: &Wanted<'a>) -> Result<Option<Step<'a>>, Refusal> {
    let artefact = fitting(facts, wanted.artefacts)?;
    match has(facts, artefact)? {
        Has::Same => {}
        Has::Other(running) if facts.is_active() => {
            return Err(Refusal::OtherVersion { running, named: artefact.to_string() });
        }
        Has::Other(_) | Has::Nothing => return Ok(Some(Step::Install(artefact))),
    }
    if !is_member(facts, wanted)? {
        return Ok(Some(Step::Join));
    }
    Ok((!facts.is_active() || !facts.enabled).then_some(Step::Start))
}

/// The next step of an upgrade; `None`: the host runs the named version.
///
/// # Errors
/// [`Refusal`].
pub fn upgrade<'a>(facts: &Facts, artefacts: &'a [Artefact]) -> Result<Option<Step<'a>>, Refusal> {
    let artefact = fitting(facts, artefacts)?;
    match has(facts, artefact)? {
        Has::Nothing => Err(Refusal::NotThere),
        _ if facts.config.is_none() => Err(Refusal::NotThere),
        Has::Other(_) => Ok(Some(Step::Install(artefact))),
        Has::Same => Ok((!facts.is_active() || !facts.current).then_some(Step::Restart)),
    }
}

/// The artefact for this host.
fn fitting<'a>(facts: &Facts, artefacts: &'a [Artefact]) -> Result<&'a Artefact, Refusal> {
    if !facts.is_root {
        return Err(Refusal::NotRoot);
    }
    if !facts.systemd {
        return Err(Refusal::NoSystemd);
    }
    let processor = facts.processor().ok_or_else(|| Refusal::Processor(facts.arch.clone()))?;
    let manager = facts.manager;
    let fitting = artefacts.iter().find(|a| a.fits(processor, manager));
    fitting.ok_or(Refusal::NothingFits { processor, manager })
}

fn has(facts: &Facts, artefact: &Artefact) -> Result<Has, Refusal> {
    let running = || facts.version.clone().unwrap_or_else(|| "unknown".to_owned());
    match &artefact.form {
        Form::Package(..) if facts.alone.is_some() || facts.unit.is_some() => {
            Err(Refusal::OtherWay("a program in /usr/local/bin/cobd, or a unit in /etc/systemd/system/cobd.service"))
        }
        Form::Program if facts.package.is_some() => Err(Refusal::OtherWay("the package cob")),
        Form::Package(_, version) => Ok(match &facts.package {
            Some((installed, true)) if same(installed, version) => Has::Same,
            Some((installed, true)) => Has::Other(installed.clone()),
            Some((_, false)) | None => Has::Nothing,
        }),
        Form::Program => {
            let unit = cob_types::canonical::blob_hash(super::artefact::unit().as_bytes()).to_string();
            Ok(match (&facts.alone, &facts.unit) {
                (None, _) => Has::Nothing,
                (Some(sum), Some(there)) if *sum == artefact.sum && *there == unit => Has::Same,
                (Some(sum), None) if *sum == artefact.sum => Has::Nothing,
                (Some(_), _) => Has::Other(running()),
            })
        }
    }
}

/// A missing epoch counts as zero.
fn same(installed: &str, named: &str) -> bool {
    let plain = |text: &str| text.strip_prefix("0:").unwrap_or(text).to_owned();
    plain(installed) == plain(named)
}

fn is_member(facts: &Facts, wanted: &Wanted<'_>) -> Result<bool, Refusal> {
    if facts.has_key_file && facts.key.is_none() {
        return Err(Refusal::BadKey);
    }
    if let Some(config) = &facts.config {
        match &config.host {
            _ if config.broken => return Err(Refusal::BadConfig),
            Some(host) if host == wanted.host => {}
            Some(host) => return Err(Refusal::OtherHost(host.to_string())),
            None => return Err(Refusal::BadConfig),
        }
        if config.server != Some(wanted.server) || !config.depot_keys.contains(&wanted.server_key) {
            return Err(Refusal::OtherDepot(config.depot.clone()));
        }
        if !config.usual {
            // The host was set up manually: its administrator has chosen the path of the key.
            return Ok(true);
        }
    }
    let known = facts.key.is_some_and(|key| wanted.enrolled.contains(&key));
    let configured = facts.config.is_some() && facts.has_key_file;
    if !wanted.enrolled.is_empty() && !known && (configured || !wanted.replace) {
        let enrolled = wanted.enrolled.to_vec();
        return Err(Refusal::OtherKey { host: wanted.host.clone(), enrolled, configured });
    }
    Ok(configured)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::facts::Configured;
    use super::*;

    fn package(version: &str) -> Artefact {
        Artefact {
            path: "cob.deb".into(),
            form: Form::Package(Manager::Deb, version.to_owned()),
            processor: Some(Processor::X86),
            bytes: Arc::default(),
            sum: "p".to_owned(),
        }
    }

    fn program(sum: &str) -> Artefact {
        Artefact { form: Form::Program, sum: sum.to_owned(), ..package("") }
    }

    fn key(n: u8) -> PublicKey {
        PublicKey([n; 32])
    }

    fn empty() -> Facts {
        Facts {
            arch: "x86_64".to_owned(),
            is_root: true,
            systemd: true,
            manager: Some(Manager::Deb),
            ..Facts::default()
        }
    }

    fn config() -> Configured {
        Configured {
            host: HostName::new("web1").ok(),
            server: "10.0.0.1:7070".parse().ok(),
            depot_keys: vec![key(9)],
            usual: true,
            ..Configured::default()
        }
    }

    fn done() -> Facts {
        Facts {
            package: Some(("0.1.0-1".to_owned(), true)),
            version: Some("cobd 0.1.0".to_owned()),
            key: Some(key(1)),
            has_key_file: true,
            config: Some(config()),
            active: "active".to_owned(),
            enabled: true,
            current: true,
            ..empty()
        }
    }

    /// The next step as a word, if these keys have enrolled.
    fn next(facts: &Facts, artefact: &Artefact, enrolled: &[u8], replace: bool) -> Result<&'static str, Refusal> {
        let host = HostName::new("web1").expect("a name");
        let enrolled: Vec<_> = enrolled.iter().map(|n| key(*n)).collect();
        let artefacts = [artefact.clone()];
        let server = "10.0.0.1:7070".parse().expect("an address");
        let wanted =
            Wanted { host: &host, artefacts: &artefacts, server, server_key: key(9), enrolled: &enrolled, replace };
        Ok(word(install(facts, &wanted)?))
    }

    fn word(step: Option<Step<'_>>) -> &'static str {
        match step {
            Some(Step::Install(_)) => "install",
            Some(Step::Join) => "join",
            Some(Step::Start) => "start",
            Some(Step::Restart) => "restart",
            None => "done",
        }
    }

    #[test]
    fn an_installation_proceeds_step_by_step_to_its_end() {
        let deb = package("0.1.0-1");
        let mut facts = empty();
        assert_eq!(next(&facts, &deb, &[], false), Ok("install"));
        facts.package = Some(("0.1.0-1".to_owned(), false));
        assert_eq!(next(&facts, &deb, &[], false), Ok("install"), "an interrupted run");
        facts.package = Some(("0.1.0-1".to_owned(), true));
        assert_eq!(next(&facts, &deb, &[], false), Ok("join"));
        (facts.key, facts.has_key_file) = (Some(key(1)), true);
        assert_eq!(next(&facts, &deb, &[1], false), Ok("join"), "enrolled, and the answer was lost");
        facts.config = Some(config());
        assert_eq!(next(&facts, &deb, &[1], false), Ok("start"));
        facts.active = "active".to_owned();
        assert_eq!(next(&facts, &deb, &[1], false), Ok("start"), "not at each boot");
        assert_eq!(next(&done(), &deb, &[1], false), Ok("done"));
        assert_eq!(next(&done(), &deb, &[], false), Ok("done"), "its key is in the model");
        assert_eq!(next(&done(), &package("0:0.1.0-1"), &[1], false), Ok("done"));
    }

    #[test]
    fn an_installation_never_changes_a_running_host() {
        let refused = |facts: &Facts, artefact: &Artefact, enrolled: &[u8]| {
            next(facts, artefact, enrolled, true).expect_err("refused")
        };
        let deb = package("0.1.0-1");
        assert!(matches!(refused(&done(), &package("0.2.0-1"), &[1]), Refusal::OtherVersion { .. }));
        assert!(matches!(refused(&done(), &program("a"), &[1]), Refusal::OtherWay(_)));
        assert!(matches!(refused(&done(), &deb, &[2]), Refusal::OtherKey { configured: true, .. }));
        let with = |config| Facts { config: Some(config), ..done() };
        let other = HostName::new("web2").ok();
        assert_eq!(
            refused(&with(Configured { host: other, ..config() }), &deb, &[1]),
            Refusal::OtherHost("web2".to_owned())
        );
        let elsewhere = Configured { server: None, depot: "/srv/depot".to_owned(), ..config() };
        assert_eq!(refused(&with(elsewhere), &deb, &[1]), Refusal::OtherDepot("/srv/depot".to_owned()));
        let key_changed = Configured { depot_keys: vec![key(8)], ..config() };
        assert!(matches!(refused(&with(key_changed), &deb, &[1]), Refusal::OtherDepot(_)));
        assert_eq!(refused(&with(Configured { broken: true, ..config() }), &deb, &[1]), Refusal::BadConfig);
        assert_eq!(refused(&Facts { key: None, ..done() }, &deb, &[1]), Refusal::BadKey);
        let by_hand = with(Configured { usual: false, ..config() });
        assert_eq!(next(&by_hand, &deb, &[2], false), Ok("done"));
    }

    #[test]
    fn an_enrolled_name_is_taken_over_only_with_the_option() {
        let deb = package("0.1.0-1");
        let installed = Facts { package: Some(("0.1.0-1".to_owned(), true)), ..empty() };
        let error = next(&installed, &deb, &[7], false).expect_err("another machine");
        assert!(error.hint().contains("--replace") && error.to_string().contains("ed25519:"), "{error}");
        assert_eq!(next(&installed, &deb, &[7], true), Ok("join"));
        let lost = Facts { key: None, has_key_file: false, ..done() };
        assert!(next(&lost, &deb, &[7], false).is_err());
        assert_eq!(next(&lost, &deb, &[7], true), Ok("join"), "its state folder was lost");
    }

    #[test]
    fn an_unsuitable_host_is_refused_with_its_reason() {
        let deb = package("0.1.0-1");
        let error = |facts: Facts| next(&facts, &deb, &[], false).expect_err("refused");
        assert_eq!(error(Facts { is_root: false, ..empty() }), Refusal::NotRoot);
        assert_eq!(error(Facts { systemd: false, ..empty() }), Refusal::NoSystemd);
        assert_eq!(error(Facts { arch: "riscv64".into(), ..empty() }), Refusal::Processor("riscv64".into()));
        assert!(matches!(error(Facts { arch: "aarch64".into(), ..empty() }), Refusal::NothingFits { .. }));
        let error = error(Facts { manager: Some(Manager::Rpm), ..empty() });
        assert!(error.to_string().contains("x86-64, packages are rpm"), "{error}");
    }

    #[test]
    fn a_program_without_a_package_gets_its_unit_too() {
        let unit = cob_types::canonical::blob_hash(super::super::artefact::unit().as_bytes()).to_string();
        let mut facts = Facts { package: None, alone: Some("a".to_owned()), ..done() };
        facts.active = "inactive".to_owned();
        assert_eq!(next(&facts, &program("a"), &[1], false), Ok("install"), "it broke off before the unit");
        facts.unit = Some(unit);
        assert_eq!(next(&facts, &program("a"), &[1], false), Ok("start"));
        assert_eq!(next(&facts, &program("b"), &[1], false), Ok("install"), "nothing runs yet");
        facts.active = "active".to_owned();
        assert!(matches!(next(&facts, &program("b"), &[1], false), Err(Refusal::OtherVersion { .. })));
    }

    #[test]
    fn an_upgrade_installs_and_restarts_an_existing_daemon() {
        let next = |facts: &Facts, artefact: Artefact| upgrade(facts, &[artefact]).map(word);
        assert_eq!(next(&done(), package("0.1.0-1")), Ok("done"));
        assert_eq!(next(&done(), package("0.2.0-1")), Ok("install"));
        assert_eq!(next(&Facts { current: false, ..done() }, package("0.1.0-1")), Ok("restart"));
        assert_eq!(next(&Facts { active: "failed".into(), ..done() }, package("0.1.0-1")), Ok("restart"));
        assert_eq!(next(&empty(), package("0.1.0-1")), Err(Refusal::NotThere));
        assert_eq!(next(&Facts { config: None, ..done() }, package("0.2.0-1")), Err(Refusal::NotThere));
    }
}
