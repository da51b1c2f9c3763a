//! Whom to ask: the hosts of the depot's newest manifest, the ones named, or the local daemon.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cob_depot::Depot;
use cob_types::{GenerationNumber, HostName, Manifest};

use crate::args::Global;
use crate::failure::Failure;

/// Where a daemon is spoken with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// An address.
    Tcp(SocketAddr),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path behind it".to_owned())
            } else {
                Ok(Endpoint::Unix(path.into()))
            };
        }
        let Some(address) = text.strip_prefix("tcp://") else {
            return Err(format!("{text:?} is no address: write unix:/PATH or tcp://IP:PORT"));
        };
        address
            .parse()
            .map(Endpoint::Tcp)
            .map_err(|_| format!("{address:?} is not IP:PORT, as in tcp://127.0.0.1:7077"))
    }
}

/// What `--host` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostArg {
    /// A host of the depot.
    Name(HostName),
    /// An address, and the name that is expected to answer there, where it is given.
    At(Option<HostName>, Endpoint),
}

impl FromStr for HostArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(name) = HostName::new(text) {
            return Ok(HostArg::Name(name));
        }
        if let Some((name, address)) = text.split_once('=')
            && let Ok(name) = HostName::new(name)
        {
            return Ok(HostArg::At(Some(name), address.parse()?));
        }
        Ok(HostArg::At(None, text.parse()?))
    }
}

/// One daemon to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Who is expected to answer; none: whoever does.
    pub name: Option<HostName>,
    /// Where.
    pub endpoint: Endpoint,
}

impl Target {
    /// The name that stands for it when nobody has answered: its own, or its address in the letters
    /// that a host's name may have.
    #[must_use]
    pub fn stand_in(&self) -> HostName {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let address = match &self.endpoint {
            Endpoint::Unix(path) => path.display().to_string(),
            Endpoint::Tcp(address) => address.to_string(),
        };
        let letters: String =
            address.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' }).collect();
        let tail: String = letters.chars().skip(letters.len().saturating_sub(200)).collect();
        HostName::new(tail.trim_matches('_')).unwrap_or_else(|_| HostName::new("unknown").expect("a well-formed name"))
    }
}

/// The daemons to ask, and the depot if there is one.
#[derive(Debug, Clone)]
pub struct Targets {
    /// The daemons.
    pub all: Vec<Target>,
    /// The depot's folder.
    pub depot: Option<PathBuf>,
    /// The local daemon's socket.
    pub socket: PathBuf,
    /// Only some hosts were named.
    pub narrowed: bool,
}

impl Targets {
    /// Finds the daemons that the options name.
    ///
    /// # Errors
    /// [`Failure`] when the depot can't be read or does not know a host that was named.
    pub fn find(global: &Global) -> Result<Self, Failure> {
        let depot = global.depot.as_deref().map(Depot::open).transpose()?;
        let by_name = match &depot {
            Some(depot) if global.hosts.is_empty() || global.hosts.iter().any(|h| matches!(h, HostArg::Name(_))) => {
                hosts_of(depot, &global.socket)?
            }
            Some(_) | None => BTreeMap::new(),
        };
        let mut all = Vec::new();
        for host in &global.hosts {
            all.push(match host {
                HostArg::At(name, endpoint) => Target { name: name.clone(), endpoint: endpoint.clone() },
                HostArg::Name(name) => {
                    let Some(endpoint) = by_name.get(name) else {
                        return Err(unknown_host(name, depot.is_some(), by_name.keys()));
                    };
                    Target { name: Some(name.clone()), endpoint: endpoint.clone() }
                }
            });
        }
        if all.is_empty() {
            all = match &depot {
                Some(_) => by_name.into_iter().map(|(name, endpoint)| Target { name: Some(name), endpoint }).collect(),
                None => vec![Target { name: None, endpoint: Endpoint::Unix(global.socket.clone()) }],
            };
        }
        let depot = global.depot.clone();
        Ok(Self { all, depot, socket: global.socket.clone(), narrowed: !global.hosts.is_empty() })
    }

    /// Only the daemons of these hosts. Where names are not known beforehand, all of them.
    ///
    /// # Errors
    /// [`Failure`] for a host that is not among them.
    pub fn only(&self, hosts: &[HostName]) -> Result<Vec<Target>, Failure> {
        if hosts.is_empty() || self.all.iter().any(|t| t.name.is_none()) {
            return Ok(self.all.clone());
        }
        if let Some(unknown) = hosts.iter().find(|h| !self.all.iter().any(|t| t.name.as_ref() == Some(h))) {
            return Err(unknown_host(unknown, self.depot.is_some(), self.all.iter().filter_map(|t| t.name.as_ref())));
        }
        Ok(self.all.iter().filter(|t| t.name.as_ref().is_some_and(|n| hosts.contains(n))).cloned().collect())
    }

    /// The depot, if there is one.
    ///
    /// # Errors
    /// [`Failure`] when it can't be opened any more.
    pub fn open_depot(&self) -> Result<Option<Depot>, Failure> {
        Ok(self.depot.as_deref().map(Depot::open).transpose()?)
    }

    /// The manifest of a generation, if there is a depot.
    ///
    /// # Errors
    /// [`Failure`] when the depot has no such generation.
    pub fn manifest(&self, generation: GenerationNumber) -> Result<Option<Manifest>, Failure> {
        Ok(self.open_depot()?.map(|depot| depot.read_manifest(generation)).transpose()?)
    }
}

fn unknown_host<'a>(name: &HostName, depot: bool, known: impl Iterator<Item = &'a HostName>) -> Failure {
    let known = crate::words::list(known, 8);
    if depot || !known.is_empty() {
        Failure::usage(anyhow::anyhow!("there is no host {name}")).hint(format!("known are {known}"))
    } else {
        Failure::usage(anyhow::anyhow!("where is the host {name}?"))
            .hint("name its address, as in --host tcp://127.0.0.1:7077, or the depot that has it with --depot")
    }
}

/// The hosts of the newest generation of a depot and where they are.
///
/// # Errors
/// [`Failure`] when the depot can't be read or is empty.
pub fn hosts_of(depot: &Depot, socket: &Path) -> Result<BTreeMap<HostName, Endpoint>, Failure> {
    endpoints(&depot.read_manifest(latest(depot)?)?, socket)
}

/// The newest generation of a depot.
///
/// # Errors
/// [`Failure`] when the depot can't be read or is empty.
pub fn latest(depot: &Depot) -> Result<GenerationNumber, Failure> {
    depot.latest()?.ok_or_else(|| {
        Failure::usage(anyhow::anyhow!("the depot {} holds no generation", depot.path().display()))
            .hint("publish one with `cobgen generate MODEL --depot DIR`")
    })
}

/// The hosts of a manifest and where they are. A host without an address has no link to others: it
/// can only be this one.
///
/// # Errors
/// [`Failure`] for an address that is none.
pub fn endpoints(manifest: &Manifest, socket: &Path) -> Result<BTreeMap<HostName, Endpoint>, Failure> {
    let mut all = BTreeMap::new();
    for (name, host) in &manifest.hosts {
        let endpoint = match &host.address {
            Some(address) => address.parse().map_err(|e: String| {
                Failure::usage(anyhow::anyhow!(e).context(format!("generation {}, host {name}", manifest.generation)))
            })?,
            None => Endpoint::Unix(socket.to_owned()),
        };
        all.insert(name.clone(), endpoint);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["unix:/run/cob/cobd.sock", "tcp://127.0.0.1:7077", "tcp://[::1]:7077"] {
            assert_eq!(text.parse::<Endpoint>().expect(text).to_string(), text);
        }
        for bad in ["", "unix:", "tcp://localhost:1", "tcp://127.0.0.1", "http://127.0.0.1:1", "127.0.0.1:1"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_is_named_or_addressed_or_both() {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 7).into());
        let name = HostName::new("n1").expect("a name");
        assert_eq!("n1".parse(), Ok(HostArg::Name(name.clone())));
        assert_eq!("tcp://127.0.0.1:7".parse(), Ok(HostArg::At(None, endpoint.clone())));
        assert_eq!("n1=tcp://127.0.0.1:7".parse(), Ok(HostArg::At(Some(name), endpoint)));
        assert_eq!("unix:/a=b".parse(), Ok(HostArg::At(None, Endpoint::Unix("/a=b".into()))));
        assert!("n1=nowhere".parse::<HostArg>().is_err());
    }

    #[test]
    fn an_address_stands_in_for_a_name() {
        let named = |text: &str| Target { name: None, endpoint: text.parse().expect(text) }.stand_in().to_string();
        assert_eq!(named("tcp://127.0.0.1:7077"), "127.0.0.1_7077");
        assert_eq!(named("unix:/run/cob/cobd.sock"), "run_cob_cobd.sock");
        assert_eq!(named("unix:///"), "unknown");
        assert_eq!(named(&format!("unix:/{}", "x".repeat(500))).len(), 200);
    }
}
