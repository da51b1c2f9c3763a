//! Arguments of the commands that reach hosts by `ssh`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args as ClapArgs;
use cob_types::HostName;

use crate::ssh::{Destination, Ssh};
use crate::words::parse_span;

pub(super) const BOOTSTRAP: &str = "\
Examples:
  cobctl bootstrap web1 web2 db1 --depot site/depot --server tcp://10.0.0.100:7070 --package cob_0.1.0-1_amd64.deb
  cobctl bootstrap web1=root@10.0.0.1 --depot site/depot --server tcp://10.0.0.100:7070 --binary target/dist/cobd
  cobctl bootstrap web{1..50} --depot site/depot --server tcp://10.0.0.100:7070 --sudo --package amd64.deb --package arm64.deb

On each host, 20 at a time: installs the package or the program, enrols the host with a token for one use, starts the unit. \
Steps that are already done are skipped: a running host is reported and not changed, and the same command continues an \
interrupted run. `cobgen serve` must run at the address of --server, as seen from the hosts. Afterwards `cobgen generate` \
puts the keys of the new hosts into the next generation.

Hosts are reached with the program `ssh` and its configuration, agent and jump hosts; it never asks questions. The token is \
sent over the standard input. Faults and remedies: docs/how-to/install-hosts.md.

Exit status: 0 all hosts run; 1 a host refused or a step failed; 2 bad usage; 3 a host could not be reached. With --json: \
{\"hosts\": [{\"name\", \"destination\", \"outcome\": \"changed\", \"unchanged\", \"failed\" or \"unreachable\", \"did\", \"version\", \
\"status\", \"error\", \"hint\"}]}.";

pub(super) const UPGRADE: &str = "\
Examples:
  cobctl upgrade web{1..50} --to 0.2.0 --package cob_0.2.0-1_amd64.deb
  cobctl upgrade web{1..50} db1 --to 0.2.0 --package cob_0.2.0-1_amd64.deb --canary web1 --canary db1 --batch 10
  cobctl upgrade web1=root@10.0.0.1 --to 0.2.0 --binary target/dist/cobd

First the canaries, one after the other, then the others in batches. A host is done when its daemon runs, reports this \
version and has converged. The first failure ends the upgrade: later hosts are not changed. Services and actions continue to \
run while a daemon restarts. A host with this version is not changed, so the same command continues where it ended.

To downgrade: the same, with the older package and its version.

Exit status: 0 all hosts run the version; 1 a host refused or a step failed; 2 bad usage; 3 a host could not be reached. \
With --json: as for `cobctl bootstrap`, and \"outcome\" may be \"untouched\".";

/// A host, and where `ssh` finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAt {
    /// Its name in the model.
    pub name: HostName,
    /// Where it is.
    pub to: Destination,
}

impl FromStr for HostAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, to) = text.split_once('=').unwrap_or((text, text));
        if name.starts_with('-') {
            return Err(format!("{name:?} is not a host: a name can't begin with `-`"));
        }
        Ok(Self { name: HostName::new(name).map_err(|e| e.to_string())?, to: to.parse()? })
    }
}

/// How hosts are reached.
#[derive(Debug, ClapArgs)]
pub struct SshArgs {
    /// Become root with `sudo`, which must not ask for a password
    #[arg(long)]
    pub sudo: bool,
    /// Option for ssh, as in its configuration: Port=2222, User=admin, ProxyJump=bastion; may be repeated
    #[arg(long = "ssh-option", value_name = "OPTION", value_parser = ssh_option)]
    pub ssh_options: Vec<String>,
    /// Another configuration file for ssh [default: yours]
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// The program ssh
    #[arg(long, env = "COB_SSH", value_name = "PROGRAM", default_value = "ssh")]
    pub ssh: OsString,
    /// Time limit for a connection
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_span)]
    pub connect_timeout: Duration,
    /// What stands before all paths on the hosts: for tests
    #[arg(long, value_name = "DIR", default_value = "", hide = true)]
    pub root: String,
}

impl SshArgs {
    /// The program with these options.
    #[must_use]
    pub fn ssh(&self) -> Ssh {
        Ssh {
            program: self.ssh.clone(),
            config: self.ssh_config.clone(),
            options: self.ssh_options.clone(),
            connect_timeout: self.connect_timeout,
            sudo: self.sudo,
        }
    }
}

/// Options are words with a value; what a host is told to run is not left to them.
fn ssh_option(text: &str) -> Result<String, String> {
    let name: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
    let value = text[name.len()..].trim_start_matches(['=', ' ', '\t']);
    if name.is_empty() || value.is_empty() {
        return Err(format!("{text:?} is not an option of ssh: write NAME=VALUE, as in Port=2222"));
    }
    if ["RemoteCommand", "RequestTTY", "SessionType", "StdinNull", "ForkAfterAuthentication"]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(&name))
    {
        return Err(format!("{name} is set by cobctl itself"));
    }
    Ok(text.to_owned())
}

/// What is installed.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = true)]
pub struct ArtefactArgs {
    /// Package, deb or rpm; may be repeated: each host gets the package for its system
    #[arg(long = "package", value_name = "FILE")]
    pub packages: Vec<PathBuf>,
    /// Program cobd, instead of a package; may be repeated for several processors
    #[arg(long = "binary", value_name = "FILE")]
    pub binaries: Vec<PathBuf>,
}

/// Arguments of `bootstrap`.
#[derive(Debug, ClapArgs)]
pub struct BootstrapArgs {
    /// Hosts by their names in the model; with another name or address for ssh: NAME=DESTINATION
    #[arg(value_name = "HOST", required = true)]
    pub named: Vec<HostAt>,
    /// Address of `cobgen serve`, as seen from the hosts
    #[arg(long, value_name = "ADDRESS", value_parser = cob_types::link::parse_address)]
    pub server: SocketAddr,
    /// File of the server's key, as given to `cobgen serve`
    #[arg(long, value_name = "FILE")]
    pub server_key: Option<PathBuf>,
    /// What is installed.
    #[command(flatten)]
    pub artefacts: ArtefactArgs,
    /// Number of hosts at a time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: u16,
    /// Let a machine replace an enrolled machine of the same name; the old key is revoked
    #[arg(long)]
    pub replace: bool,
    /// Let the daemons switch to each new generation by themselves
    #[arg(long)]
    pub follow: bool,
    /// How hosts are reached.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Arguments of `upgrade`.
#[derive(Debug, ClapArgs)]
pub struct UpgradeArgs {
    /// Hosts, as for `cobctl bootstrap`: NAME or NAME=DESTINATION
    #[arg(value_name = "HOST", required = true)]
    pub named: Vec<HostAt>,
    /// Version that `cobd --version` must report afterwards
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub to: String,
    /// What is installed.
    #[command(flatten)]
    pub artefacts: ArtefactArgs,
    /// Named host to upgrade before the others; may be repeated [default: the first host]
    #[arg(long = "canary", value_name = "NAME")]
    pub canaries: Vec<HostName>,
    /// Number of hosts at a time, after the canaries
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub batch: u16,
    /// Time limit for a host to converge again
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_span)]
    pub settle: Duration,
    /// Upgrade hosts that have not converged, too, and check only their version afterwards
    #[arg(long)]
    pub unsettled: bool,
    /// How hosts are reached.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Digits, letters and points: `0.2.0`, `0.2.0-rc.1`.
fn version(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-+~".contains(c);
    if text.starts_with(|c: char| c.is_ascii_digit()) && text.len() <= 64 && text.chars().all(fits) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is not a version: write it as in 0.2.0"))
}

#[cfg(test)]
mod tests {
    use crate::args::{Args, Command};

    fn read(line: &str) -> Result<Command, String> {
        let line = format!("cobctl bootstrap --server tcp://10.0.0.1:7070 {line}");
        Args::read(line.split(' ')).map(|args| args.command).map_err(|e| e.to_string())
    }

    #[test]
    fn hosts_have_names_and_destinations() {
        let Ok(Command::Bootstrap(args)) = read("web1 db1=root@10.0.0.2 --package x.deb --binary y") else {
            panic!("not read")
        };
        let named: Vec<_> = args.named.iter().map(|h| (h.name.to_string(), h.to.to_string())).collect();
        assert_eq!(named, [("web1".into(), "web1".into()), ("db1".into(), "root@10.0.0.2".into())]);
        assert_eq!((args.artefacts.packages.len(), args.artefacts.binaries.len(), args.parallel), (1, 1, 20));
    }

    #[test]
    fn a_version_is_a_number() {
        for (line, fits) in [("0.2.0", true), ("0.2.0-rc.1", true), ("latest", false), ("1;x", false), ("-1", false)] {
            let line = format!("cobctl upgrade web1 --binary x --to={line}");
            assert_eq!(Args::read(line.split(' ')).is_ok(), fits, "{line}");
        }
    }

    #[test]
    fn a_dangerous_destination_or_option_is_bad_usage() {
        for (line, words) in [
            ("web1", "--package"),
            ("--package x", "HOST"),
            ("web1=-oProxyCommand=x --package x", "can't begin with `-`"),
            ("web1=a;b --package x", "not a destination"),
            ("--package x -- -oProxyCommand=x", "can't begin with `-`"),
            ("web1 --package x --parallel 0", "parallel"),
            ("web1 --package x --ssh-option =x", "NAME=VALUE"),
            ("web1 --package x --ssh-option RemoteCommand=x", "set by cobctl"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
