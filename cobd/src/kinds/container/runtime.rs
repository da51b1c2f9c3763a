//! The programs that run containers, and their commands.

use std::path::Path;
use std::process::Command;

use cob_kinds::Runtime;

use crate::kinds::native::{Ran, run_bounded};

/// The label of networks and volumes that COB has made.
pub(super) const LABEL: &str = "cob";

/// A thing of a runtime that has a name and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thing {
    Container,
    Image,
    Network,
    Volume,
}

impl Thing {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Image => "image",
            Self::Network => "network",
            Self::Volume => "volume",
        }
    }
}

/// Both runtimes, the first of which is taken where both are installed.
pub(super) const ALL: [Runtime; 2] = [Runtime::Podman, Runtime::Docker];

/// A runtime as a program of this host.
pub(super) trait Program: Copy {
    /// Its name, for users.
    fn name(self) -> &'static str;

    /// The words of each command: the program at its place in all distributions, for units of systemd name programs by
    /// their paths, and its general options.
    fn program(self) -> &'static [&'static str];

    /// A package with it.
    fn package(self) -> &'static str;

    /// The label with the unit that runs a container.
    fn unit_label(self) -> &'static str;

    /// What a failed look says of a thing that does not exist; otherwise the runtime itself has failed.
    fn is_missing(self, thing: Thing, said: &str) -> bool;

    /// The words that look for a thing.
    fn look(self, thing: Thing, name: &str) -> Vec<&str>;

    /// The path of the program.
    fn path(self) -> &'static str {
        self.program()[0]
    }

    fn is_installed(self) -> bool {
        Path::new(self.path()).exists()
    }

    /// Runs a command. The error is the reason of its failure.
    fn run(self, words: &[&str]) -> Result<String, String> {
        let ran = self.end_of(words)?;
        if ran.code == Some(0) { Ok(ran.out) } else { Err(self.complaint(words, ran.code, &ran.err)) }
    }

    /// Whether the runtime has it.
    fn has(self, thing: Thing, name: &str) -> Result<bool, String> {
        let words = self.look(thing, name);
        let ran = self.end_of(&words)?;
        match ran.code {
            Some(0) => Ok(true),
            Some(1) if self.is_missing(thing, &ran.err) => Ok(false),
            Some(_) | None => Err(self.complaint(&words, ran.code, &ran.err)),
        }
    }

    /// Whether COB has made this network or volume.
    fn is_ours(self, thing: Thing, name: &str) -> Result<bool, String> {
        let said = self.run(&[thing.word(), "inspect", "--format", "{{json .Labels}}", name])?;
        let labels: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(&said)
            .map_err(|error| format!("{} {} inspect {name}: {error}", self.name(), thing.word()))?;
        Ok(labels.is_some_and(|labels| labels.contains_key(LABEL)))
    }

    /// The unit that runs a container; empty for a container without a unit.
    fn unit_of(self, container: &str) -> Result<String, String> {
        let format = format!("{{{{index .Config.Labels \"{}\"}}}}", self.unit_label());
        let said = self.run(&["container", "inspect", "--format", &format, container])?;
        // The word of podman's templates for a missing label.
        Ok(Some(said.trim()).filter(|unit| *unit != "<no value>").unwrap_or_default().to_owned())
    }

    fn end_of(self, words: &[&str]) -> Result<Ran, String> {
        run_bounded(Command::new(self.path()).args(&self.program()[1..]).args(words), b"")
    }

    fn complaint(self, words: &[&str], code: Option<i32>, err: &str) -> String {
        let said = err.lines().map(str::trim).rfind(|line| !line.is_empty());
        let said = said.map(|line| line.strip_prefix("Error: ").unwrap_or(line));
        let how = code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit status {code}"));
        let named: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with("--")).take(2).collect();
        let told = format!("{} {}: {}", self.name(), named.join(" "), said.unwrap_or(&how));
        if lacks_daemon(err) {
            return format!(
                "{told}; start docker's daemon (`systemctl start docker`), or let the container require a change \
                 object of the kind `service` with `unit: docker.service`"
            );
        }
        told
    }
}

impl Program for Runtime {
    fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    fn program(self) -> &'static [&'static str] {
        match self {
            // Podman's notes of each step stay out of the journal, where the last words of a container are looked for.
            Self::Podman => &["/usr/bin/podman", "--events-backend=file"],
            // The daemon of this host, whatever the context of the user root is.
            Self::Docker => &["/usr/bin/docker", "--host=unix:///run/docker.sock"],
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker.io",
        }
    }

    fn unit_label(self) -> &'static str {
        match self {
            // Podman sets it for `podman auto-update`, too.
            Self::Podman => "PODMAN_SYSTEMD_UNIT",
            Self::Docker => "cob.unit",
        }
    }

    fn is_missing(self, thing: Thing, said: &str) -> bool {
        match self {
            Self::Podman => true,
            Self::Docker => {
                let said = said.to_lowercase();
                let not_found = said.contains("not found") && !lacks_daemon(&said);
                said.contains(&format!("no such {}", thing.word())) || not_found
            }
        }
    }

    fn look(self, thing: Thing, name: &str) -> Vec<&str> {
        match self {
            Self::Podman => vec![thing.word(), "exists", name],
            Self::Docker => vec![thing.word(), "inspect", "--format", "there", name],
        }
    }
}

/// Whether docker says that its daemon does not answer. Its versions say it in different words.
fn lacks_daemon(said: &str) -> bool {
    ["docker daemon running", "daemon is running"].iter().any(|words| said.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_does_not_have_is_told_from_a_docker_that_does_not_answer() {
        for (thing, said) in [
            (Thing::Image, "Error: No such image: h1:5000/web@sha256:12\n"),
            (Thing::Container, "Error: No such container: web-app\n"),
            (Thing::Network, "Error: No such network: front\n"),
            (Thing::Network, "Error response from daemon: network front not found\n"),
            (Thing::Volume, "Error response from daemon: get data: no such volume\n"),
        ] {
            assert!(Runtime::Docker.is_missing(thing, said), "{said}");
        }
        for said in [
            "Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?\n",
            "failed to connect to the docker API at unix:///run/docker.sock; check if the path is correct and if the \
             daemon is running: dial unix /run/docker.sock: connect: no such file or directory\n",
        ] {
            assert!(!Runtime::Docker.is_missing(Thing::Image, said), "{said}");
            let told = Runtime::Docker.complaint(&["image", "inspect", "--format", "x", "y"], Some(1), said);
            assert!(told.starts_with("docker image inspect: ") && told.contains("systemctl start docker"), "{told}");
        }
    }

    #[test]
    fn a_reason_names_the_command_and_no_option() {
        let told =
            Runtime::Podman.complaint(&["pull", "--authfile=/a", "a.b/c"], Some(125), "x\nError: manifest unknown\n");
        assert_eq!(told, "podman pull a.b/c: manifest unknown");
        let told = Runtime::Docker.complaint(&["--config=/a", "pull", "--quiet", "a.b/c"], Some(1), "");
        assert_eq!(told, "docker pull a.b/c: exit status 1");
    }
}
