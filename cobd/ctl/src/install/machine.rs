//! Runs the scripts on a host through `ssh`.

use std::net::SocketAddr;
use std::time::Duration;

use cob_trust::enrol::Token;

use super::Script;
use super::artefact::{Artefact, Form, Manager, unit};
use super::facts::Facts;
use crate::ssh::{Destination, Input, Ssh, SshError};

/// The time limits of scripts, in addition to the connection time: to look and to enrol, to install (a package manager
/// may wait for another process), to start.
const QUICK: Duration = Duration::from_secs(120);
const INSTALLING: Duration = Duration::from_secs(1200);
const STARTING: Duration = Duration::from_secs(240);
/// How long the unit may take to become active, in seconds.
const START_SECONDS: &str = "60";

/// A host.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The connection.
    pub ssh: Ssh,
    /// The destination.
    pub to: Destination,
    /// The prefix of all paths on the host: empty except in tests.
    pub root: String,
}

impl Machine {
    /// Reads the facts of the host.
    ///
    /// # Errors
    /// [`SshError`], as for all functions below.
    pub async fn look(&self) -> Result<Facts, SshError> {
        self.run(Script::Look, &[], &Input::Nothing, QUICK).await
    }

    /// Installs a package or a program. If `version` is given, a package may also replace a newer package, and a
    /// program that reports another version is not installed.
    ///
    /// # Errors
    /// As for [`Machine::look`].
    pub async fn install(&self, artefact: &Artefact, version: Option<&str>) -> Result<Facts, SshError> {
        let input = Input::File(artefact.bytes.clone());
        let (script, second) = match &artefact.form {
            Form::Package(Manager::Deb, _) => (Script::Package, "deb".to_owned()),
            Form::Package(Manager::Rpm, _) => (Script::Package, "rpm".to_owned()),
            Form::Program => (Script::Program, unit()),
        };
        self.run(script, &[&artefact.sum, &second, version.unwrap_or_default()], &input, INSTALLING).await
    }

    /// Enrols the host.
    ///
    /// # Errors
    /// As for [`Machine::look`].
    pub async fn join(&self, server: SocketAddr, token: Token, follow: bool) -> Result<Facts, SshError> {
        let server = format!("tcp://{server}");
        let follow = if follow { "yes" } else { "no" };
        self.run(Script::Join, &[&server, follow], &Input::Token(token), QUICK).await
    }

    /// Starts the daemon.
    ///
    /// # Errors
    /// As for [`Machine::look`].
    pub async fn start(&self) -> Result<Facts, SshError> {
        self.run(Script::Start, &["start", START_SECONDS], &Input::Nothing, STARTING).await
    }

    /// Restarts the daemon.
    ///
    /// # Errors
    /// As for [`Machine::look`].
    pub async fn restart(&self) -> Result<Facts, SshError> {
        self.run(Script::Start, &["restart", START_SECONDS], &Input::Nothing, STARTING).await
    }

    async fn run(&self, script: Script, args: &[&str], input: &Input, limit: Duration) -> Result<Facts, SshError> {
        let mut all = vec![self.root.as_str()];
        all.extend(args);
        let limit = limit + self.ssh.connect_timeout;
        let lines = self.ssh.run(&self.to, &script.text(), &all, input, limit).await?;
        Ok(Facts::read(&lines))
    }
}
