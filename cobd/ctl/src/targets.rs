//! The daemons to ask: the hosts of the depot's newest manifest, the named hosts, or the local daemon.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use cob_depot::Depot;
use cob_trust::Publishers;
use cob_types::generation::Security;
use cob_types::{BlobHash, GenerationNumber, HostName, Manifest, PublicKey};

use crate::args::Global;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::trusted::TrustedDepot;

/// The address of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// An address on this machine, without encryption.
    Tcp(SocketAddr),
    /// An address whose daemon must prove that it holds one of these keys.
    Tls(SocketAddr, Vec<PublicKey>),
}

impl Endpoint {
    /// The same host, with the same keys, at the address of another endpoint. `None`: the host is already there.
    fn moved_to(&self, other: &Self) -> Option<Self> {
        let (Endpoint::Tcp(there) | Endpoint::Tls(there, _)) = other else { return None };
        match self {
            Endpoint::Tcp(here) => (here != there).then_some(Endpoint::Tcp(*there)),
            Endpoint::Tls(here, keys) => (here != there).then(|| Endpoint::Tls(*there, keys.clone())),
            Endpoint::Unix(_) => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tcp(address) | Endpoint::Tls(address, _) => write!(f, "tcp://{address}"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path after it".to_owned())
            } else {
                Ok(Endpoint::Unix(path.into()))
            };
        }
        let Some(address) = text.strip_prefix("tcp://") else {
            return Err(format!("{text:?} is not an address: write unix:/PATH or tcp://IP:PORT"));
        };
        address
            .parse()
            .map(Endpoint::Tcp)
            .map_err(|_| format!("{address:?} is not IP:PORT, as in tcp://127.0.0.1:7077"))
    }
}

/// The value of `--host`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostArg {
    /// A host of the depot.
    Name(HostName),
    /// An address, and the host name that is expected to answer there, if given.
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

/// A daemon to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host that is expected to answer; `None`: any host.
    pub name: Option<HostName>,
    /// The address.
    pub endpoint: Endpoint,
}

impl Target {
    /// The targets for these hosts.
    pub(crate) fn all_of(hosts: BTreeMap<HostName, Endpoint>) -> Vec<Self> {
        hosts.into_iter().map(|(name, endpoint)| Self { name: Some(name), endpoint }).collect()
    }

    /// The name, or the address if no name is known.
    pub(crate) fn shown(&self) -> String {
        self.name.as_ref().map_or_else(|| self.endpoint.to_string(), ToString::to_string)
    }

    /// The error if a daemon answers under another name than this target has.
    pub(crate) fn is_answered_by(&self, host: &HostName) -> Result<(), String> {
        match &self.name {
            Some(name) if name != host => Err(format!("{} answers as {host}, not as {name}", self.endpoint)),
            Some(_) | None => Ok(()),
        }
    }

    /// The name to show while no daemon has answered: the expected name, or the address in the letters that a host name
    /// may have.
    #[must_use]
    pub fn stand_in(&self) -> HostName {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let address = match &self.endpoint {
            Endpoint::Unix(path) => path.display().to_string(),
            Endpoint::Tcp(address) | Endpoint::Tls(address, _) => address.to_string(),
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
    /// The daemons to ask.
    pub all: Vec<Target>,
    /// The depot's folder.
    pub depot: Option<PathBuf>,
    /// The publishers whose generations in the depot are trusted.
    trust: Option<Publishers>,
    /// The local daemon's socket.
    pub socket: PathBuf,
    /// The operator named some of the hosts.
    pub narrowed: bool,
    /// Warnings for the operator about the targets.
    pub warnings: Vec<String>,
}

/// The previous addresses of the hosts of a depot's newest generation, computed when a host does not answer.
#[derive(Debug, Clone, Default)]
pub struct PreviousAddresses {
    targets: Option<Arc<Targets>>,
    found: Arc<OnceLock<BTreeMap<Endpoint, Vec<Endpoint>>>>,
}

impl PreviousAddresses {
    /// Previous addresses from the generations of the depot of these targets.
    #[must_use]
    pub fn of_depot(targets: &Targets) -> Self {
        Self { targets: targets.depot.is_some().then(|| Arc::new(targets.clone())), found: Arc::default() }
    }

    /// The previous addresses of the host at an address, the most recent first.
    #[must_use]
    pub fn of(&self, at: &Endpoint) -> Vec<Endpoint> {
        let Some(targets) = &self.targets else { return Vec::new() };
        self.found.get_or_init(|| targets.moved().unwrap_or_default()).get(at).cloned().unwrap_or_default()
    }
}

impl Targets {
    /// The addresses that hosts had in the generations before the newest generation, by their present address.
    fn moved(&self) -> Option<BTreeMap<Endpoint, Vec<Endpoint>>> {
        let depot = self.open_depot().ok()??;
        let newest = depot.newest().ok()?.manifest;
        let now = endpoints(&newest, &self.socket).ok()?;
        let mut before: Vec<GenerationNumber> = newest.back.iter().map(|way| way.generation).collect();
        before.push(newest.parent);
        before.sort_unstable();
        before.dedup();
        let mut moved: BTreeMap<Endpoint, Vec<Endpoint>> = BTreeMap::new();
        // A generation that the depot has lost, or that is not trusted, names no hosts.
        for manifest in before.into_iter().rev().filter_map(|generation| depot.manifest(generation).ok()) {
            for (host, at) in endpoints(&manifest, &self.socket).unwrap_or_default() {
                let Some((own, at)) = now.get(&host).and_then(|own| Some((own, own.moved_to(&at)?))) else { continue };
                let formers = moved.entry(own.clone()).or_default();
                if !formers.contains(&at) {
                    formers.push(at);
                }
            }
        }
        Some(moved)
    }

    /// Finds the daemons that the options name.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be read, is not trusted or lacks a named host, and for an address without a key.
    pub fn find(global: &Global, settings: &Settings) -> Result<Self, Failure> {
        let mut targets = Self {
            all: Vec::new(),
            depot: settings.depot.clone(),
            trust: settings.trust.clone(),
            socket: global.socket.clone(),
            narrowed: !global.hosts.is_empty() || global.explicit.socket,
            warnings: Vec::new(),
        };
        one_place(global)?;
        if global.explicit.socket && global.hosts.is_empty() {
            // The command line takes precedence over a depot of the environment or of the settings.
            targets.depot = None;
            targets.all.push(Target { name: None, endpoint: Endpoint::Unix(global.socket.clone()) });
            return Ok(targets);
        }
        one_address(global)?;
        let manifest = targets.newest(global)?;
        let by_name = manifest.as_ref().map(|m| endpoints(m, &global.socket)).transpose()?.unwrap_or_default();
        for host in &global.hosts {
            let target = match host {
                HostArg::At(name, endpoint) => {
                    let endpoint = proving(name.as_ref(), endpoint, &global.host_keys, manifest.as_ref(), &by_name)?;
                    Target { name: name.clone(), endpoint }
                }
                HostArg::Name(name) => {
                    let known = by_name.get(name).cloned();
                    let Some(endpoint) = known.or_else(|| targets.endpoint_before(manifest.as_ref()?, name)) else {
                        return Err(unknown_host(name, targets.depot.is_some(), by_name.keys()));
                    };
                    Target { name: Some(name.clone()), endpoint }
                }
            };
            targets.all.push(target);
        }
        if targets.all.is_empty() {
            targets.all = match &targets.depot {
                Some(_) => Target::all_of(by_name),
                None => vec![Target { name: None, endpoint: Endpoint::Unix(global.socket.clone()) }],
            };
        }
        Ok(targets)
    }

    /// The manifest in which hosts are looked up, if any has to be looked up.
    fn newest(&mut self, global: &Global) -> Result<Option<Manifest>, Failure> {
        let Some(depot) = self.open_depot()? else { return Ok(None) };
        let over_network = |h: &HostArg| matches!(h, HostArg::At(_, Endpoint::Tcp(_)));
        let looked_up = |h: &HostArg| match h {
            HostArg::Name(_) => true,
            HostArg::At(..) => over_network(h) && global.host_keys.is_empty(),
        };
        if !(global.hosts.is_empty() || global.hosts.iter().any(looked_up)) {
            return Ok(None);
        }
        let newest = depot.newest()?;
        self.warnings = newest.warnings;
        Ok(Some(newest.manifest))
    }

    /// The last address of a host that the newest generation does not contain, from the latest earlier generation that
    /// did: the host may be about to depart.
    fn endpoint_before(&self, newest: &Manifest, name: &HostName) -> Option<Endpoint> {
        let depot = self.open_depot().ok()??;
        let mut before: Vec<GenerationNumber> = newest.back.iter().map(|way| way.generation).collect();
        before.sort_unstable();
        // A generation that the depot has lost, or that is not trusted, names no hosts.
        let manifests = before.into_iter().rev().filter_map(|generation| depot.manifest(generation).ok());
        let mut endpoint = manifests.filter_map(|m| endpoints(&m, &self.socket).ok()?.remove(name)).next()?;
        if let Endpoint::Tls(_, keys) = &mut endpoint {
            keys.retain(|key| !newest.revoked.contains(key));
        }
        Some(endpoint)
    }

    /// Whether any target uses TLS.
    #[must_use]
    pub fn need_credentials(&self) -> bool {
        self.all.iter().any(|t| matches!(t.endpoint, Endpoint::Tls(..)))
    }

    /// Only the daemons of these hosts. If a target has no name, all daemons: their answers will name them.
    ///
    /// # Errors
    /// [`Failure`] for a host that is not among the targets.
    pub fn only(&self, hosts: &[HostName]) -> Result<Vec<Target>, Failure> {
        if hosts.is_empty() || self.all.iter().any(|t| t.name.is_none()) {
            return Ok(self.all.clone());
        }
        let is_named = |t: &&Target| t.name.as_ref().is_some_and(|n| hosts.contains(n));
        let mut named: Vec<Target> = self.all.iter().filter(is_named).cloned().collect();
        for host in hosts.iter().filter(|h| !self.all.iter().any(|t| t.name.as_ref() == Some(h))) {
            let known = || self.all.iter().filter_map(|t| t.name.as_ref());
            named.push(self.before(host).ok_or_else(|| unknown_host(host, self.depot.is_some(), known()))?);
        }
        Ok(named)
    }

    /// The target for a host that the newest generation does not contain any more.
    fn before(&self, host: &HostName) -> Option<Target> {
        let newest = self.open_depot().ok()?.filter(|_| !self.narrowed)?.newest().ok()?;
        let endpoint = self.endpoint_before(&newest.manifest, host)?;
        Some(Target { name: Some(host.clone()), endpoint })
    }

    /// The depot, if there is one.
    ///
    /// # Errors
    /// [`Failure`] if it can't be opened any more.
    pub fn open_depot(&self) -> Result<Option<TrustedDepot>, Failure> {
        let depot = self.depot.as_deref().map(Depot::open).transpose()?;
        Ok(depot.map(|depot| TrustedDepot::new(depot, self.trust.clone())))
    }

    /// The depot for a command that needs it; `why` is the error if no depot is known.
    ///
    /// # Errors
    /// [`Failure`] if no depot is known, or it can't be read.
    pub fn need_depot(&self, why: &str) -> Result<TrustedDepot, Failure> {
        self.open_depot()?.ok_or_else(|| Failure::usage(why).hint("name the depot with --depot or COB_DEPOT"))
    }

    /// The content that the depot has under a number; `None`: there is no depot, or no such generation.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be opened any more.
    pub fn content(&self, generation: GenerationNumber) -> Result<Option<BlobHash>, Failure> {
        Ok(self.open_depot()?.and_then(|depot| depot.content(generation)))
    }

    /// The manifest of a generation, if there is a depot.
    ///
    /// # Errors
    /// [`Failure`] if the depot has no such generation, or it is not accepted.
    pub fn manifest(&self, generation: GenerationNumber) -> Result<Option<Manifest>, Failure> {
        self.open_depot()?.map(|depot| depot.manifest(generation)).transpose()
    }
}

/// Refuses `--socket` together with `--depot`: it would be unclear which daemons are meant.
fn one_place(global: &Global) -> Result<(), Failure> {
    if !(global.explicit.socket && global.explicit.depot && global.hosts.is_empty()) {
        return Ok(());
    }
    Err(Failure::usage("--socket names a single daemon, but --depot all hosts of its newest generation")
        .hint("use a single option; --host unix:PATH --depot DIR asks this daemon and knows the depot"))
}

/// Refuses `--host-key` unless exactly one address is named.
fn one_address(global: &Global) -> Result<(), Failure> {
    if global.host_keys.is_empty() || matches!(global.hosts.as_slice(), [HostArg::At(_, Endpoint::Tcp(_))]) {
        return Ok(());
    }
    Err(Failure::usage("--host-key needs a single --host tcp://IP:PORT")
        .hint("the keys of many hosts are looked up in the depot: --depot DIR"))
}

/// The same address, with the keys that its daemon must prove.
fn proving(
    name: Option<&HostName>,
    endpoint: &Endpoint,
    given: &[PublicKey],
    manifest: Option<&Manifest>,
    by_name: &BTreeMap<HostName, Endpoint>,
) -> Result<Endpoint, Failure> {
    let Endpoint::Tcp(address) = endpoint else { return Ok(endpoint.clone()) };
    if !given.is_empty() {
        return Ok(Endpoint::Tls(*address, given.to_vec()));
    }
    let is_there = |e: &&Endpoint| matches!(e, Endpoint::Tls(at, _) | Endpoint::Tcp(at) if at == address);
    let known = match name {
        // The host may be reached at another address than the manifest's, for example through a tunnel: only the key
        // counts.
        Some(name) => by_name.get(name),
        None => by_name.values().find(is_there),
    };
    if let Some(Endpoint::Tls(_, keys)) = known {
        return Ok(Endpoint::Tls(*address, keys.clone()));
    }
    let secured = manifest.filter(|m| m.security == Security::Identities);
    if let Some(manifest) = secured {
        let who = name.map_or_else(|| format!("has no host at {address}"), |name| format!("names no key of {name}"));
        let what = format!("generation {} {who}", manifest.generation);
        return Err(Failure::usage(what).hint("give its key with --host-key"));
    }
    if !address.ip().to_canonical().is_loopback() {
        let what = format!("{address} is not on this machine, and its key is not known");
        return Err(Failure::usage(what).hint("give the key with --host-key, or name its depot with --depot"));
    }
    Ok(endpoint.clone())
}

fn unknown_host<'a>(name: &HostName, depot: bool, known: impl Iterator<Item = &'a HostName>) -> Failure {
    let known = crate::words::list(known, 8);
    if depot || !known.is_empty() {
        Failure::usage(format!("there is no host {name}")).hint(format!("known are {known}"))
    } else {
        Failure::usage(format!("no address is known for the host {name}"))
            .hint("name its address, as in --host tcp://127.0.0.1:7077, or its depot with --depot")
    }
}

/// The hosts of a manifest and their addresses. A host without an address has no link to others: it can only be the
/// local host.
///
/// # Errors
/// [`Failure`] for an invalid address.
pub fn endpoints(manifest: &Manifest, socket: &Path) -> Result<BTreeMap<HostName, Endpoint>, Failure> {
    let mut all = BTreeMap::new();
    for (name, host) in &manifest.hosts {
        let endpoint = match &host.address {
            Some(address) => {
                let endpoint = address.parse().map_err(|e: String| {
                    let place = format!("generation {}, host {name}", manifest.generation);
                    Failure::usage(anyhow::Error::msg(e).context(place))
                })?;
                protected(manifest, &host.keys, endpoint)
            }
            None => Endpoint::Unix(socket.to_owned()),
        };
        all.insert(name.clone(), endpoint);
    }
    Ok(all)
}

/// Adds the keys that are not revoked, if the hosts have keys.
fn protected(manifest: &Manifest, keys: &[PublicKey], endpoint: Endpoint) -> Endpoint {
    match (manifest.security, endpoint) {
        (Security::Identities, Endpoint::Tcp(address)) => {
            Endpoint::Tls(address, keys.iter().filter(|k| !manifest.revoked.contains(k)).copied().collect())
        }
        (Security::Identities | Security::LoopbackOnly, endpoint) => endpoint,
    }
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
