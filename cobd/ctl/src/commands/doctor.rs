//! `cobctl trust doctor`: finds why two hosts do not trust each other.

use cob_types::api::StatusOf;
use cob_types::generation::{ManifestHost, Security};
use cob_types::status::{ClusterStatus, HostStatus, Unheard};
use cob_types::words::{count, join};
use cob_types::{HostName, Manifest, PublicKey};
use serde::Serialize;

use super::Context;
use crate::args::DoctorArgs;
use crate::client::{AskError, Client};
use crate::clocks;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::screen::{Mark, Screen};
use crate::targets::Target;
use crate::words::clean_to;

/// A fault and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    host: HostName,
    problem: String,
    remedy: String,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Diagnosis {
    hosts: [HostName; 2],
    generation: cob_types::GenerationNumber,
    /// Whether both hosts report that their link is up.
    up: bool,
    findings: Vec<Finding>,
}

/// A host, as described by the depot and by its daemon.
struct Side<'a> {
    status: &'a HostStatus,
    entry: &'a ManifestHost,
    /// The key that is shown at its address, if it is not a key of the host.
    shows: Option<PublicKey>,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &DoctorArgs) -> CommandResult {
    let depot = context.targets.need_depot("the depot is needed: it contains keys and addresses of both hosts")?;
    let manifest = depot.manifest(depot.latest()?)?;
    let hosts = [args.one.clone(), args.other.clone()];
    if args.one == args.other {
        return Err(Failure::usage(format!("{} has no link to itself", args.one)));
    }
    let targets = context.targets.only(&hosts)?;
    let (mut found, mut shown) = (Vec::new(), Vec::new());
    for host in &hosts {
        let target = targets.iter().find(|t| t.name.as_ref() == Some(host));
        let target = target.ok_or_else(|| Failure::usage(format!("no address is known for the host {host}")))?;
        let status = gather::status(&context.client, target, StatusOf::Active).await;
        shown.push(if status.reachable { None } else { other_key(&context.client, target).await });
        found.push(status);
    }
    let depot = depot.path().display().to_string();
    let entry = |host: &HostName| {
        let missing = || Failure::usage(format!("generation {} has no host {host}", manifest.generation));
        manifest.hosts.get(host).ok_or_else(missing)
    };
    let sides = [
        Side { status: &found[0], entry: entry(&hosts[0])?, shows: shown[0] },
        Side { status: &found[1], entry: entry(&hosts[1])?, shows: shown[1] },
    ];
    let diagnosis = diagnose(&manifest, &depot, &sides);
    if context.json {
        screen.json(&diagnosis)?;
    } else {
        show(screen, &diagnosis)?;
    }
    let unreached = sides.iter().any(|s| !s.status.reachable && gather::refusal(s.status).is_none());
    Ok(match (unreached, diagnosis.findings.is_empty() && diagnosis.up) {
        (true, _) => Exit::Unreached,
        (false, true) => Exit::Yes,
        (false, false) => Exit::No,
    })
}

/// The key that is shown at a host's address, if it is not the host's.
async fn other_key(client: &Client, target: &Target) -> Option<PublicKey> {
    match client.get::<HostStatus>(&target.endpoint, "/v1/status").await {
        Err(AskError::OtherKey { shown, .. }) => Some(shown),
        Ok(_) | Err(_) => None,
    }
}

fn show(screen: &mut Screen, diagnosis: &Diagnosis) -> Result<(), Failure> {
    for finding in &diagnosis.findings {
        screen.line(&format!("{} {}: {}", Mark::Bad.sign(), finding.host, clean_to(&finding.problem, 1000)))?;
        for line in finding.remedy.lines() {
            screen.line(&format!("    {line}"))?;
        }
    }
    let [one, other] = &diagnosis.hosts;
    let line = match (diagnosis.up, diagnosis.findings.is_empty()) {
        (true, true) => format!("{} the link between {one} and {other} is up, no faults found", Mark::Good.sign()),
        (true, false) => format!("the link between {one} and {other} is up, but has faults"),
        (false, true) => {
            format!("the link between {one} and {other} is not up, and no fault was found")
        }
        (false, false) => format!("the link between {one} and {other} is not up"),
    };
    Ok(screen.line(&line)?)
}

/// All faults between the two hosts, a cause before its effects.
fn diagnose(manifest: &Manifest, depot: &str, sides: &[Side<'_>; 2]) -> Diagnosis {
    let mut findings = Vec::new();
    for (side, other) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let mut say = |problem: String, remedy: &str| {
            findings.push(Finding { host: side.status.name.clone(), problem, remedy: remedy.to_owned() });
        };
        match side.shows {
            Some(shown) => other_machine(manifest, depot, side, shown, &mut say),
            None => place(side, &mut say),
        }
        if side.status.reachable {
            generation(manifest, side, &mut say);
            requests(side, other, &mut say);
        }
        if manifest.security == Security::Identities {
            keys(manifest, side, other, &mut say);
        }
    }
    let both =
        ClusterStatus { hosts: sides.iter().map(|side| side.status.clone()).collect(), ..ClusterStatus::default() };
    findings.extend(clocks::differing(&both).into_iter().map(|(host, problem)| {
        let remedy = "check its time synchronisation (`timedatectl`): histories and outcomes of hosts are compared by their times";
        Finding { host, problem, remedy: remedy.to_owned() }
    }));
    let up = linked(&sides[0], &sides[1]) && linked(&sides[1], &sides[0]);
    if !up {
        findings.extend(told(sides));
    }
    let hosts = [sides[0].status.name.clone(), sides[1].status.name.clone()];
    Diagnosis { hosts, generation: manifest.generation, up, findings }
}

/// A machine with another key answers at the host's address: the possible reasons, each with a remedy.
fn other_machine(
    manifest: &Manifest,
    depot: &str,
    side: &Side<'_>,
    shown: PublicKey,
    say: &mut impl FnMut(String, &str),
) {
    let host = &side.status.name;
    let address = side.entry.address.as_deref().unwrap_or("its address");
    let due = if side.entry.keys.is_empty() { "no key".to_owned() } else { list(&side.entry.keys) };
    let problem = format!(
        "the daemon at {address} shows the key {shown}, but generation {} has {due} for {host}",
        manifest.generation
    );
    let owner = manifest.hosts.iter().find(|(_, entry)| entry.keys.contains(&shown));
    let remedy = match owner {
        Some((other, _)) => format!(
            "this is the key of {other}, so an address is wrong: correct `address` of {host} or {other} in the model, \
             `cobgen generate MODEL --depot {depot}`, `cobctl switch latest`"
        ),
        None => format!(
            "First compare it with the output of `cobd init` on {host} itself, over another way (console, ssh):\n\
             - the same key: {host} was reinstalled. Enrol it again: `cobgen enroll {host} --depot {depot} --server tcp://IP:PORT`, \
             there the printed `cobd join`, `cobgen generate MODEL --depot {depot}`, `cobctl switch latest`\n\
             - another key, because the address is wrong: correct `address` of {host}, `cobgen generate MODEL --depot {depot}`, \
             `cobctl switch latest`\n\
             - another key at the right address: possibly an attacker in between. No data was sent; check the network (`ip neigh`, `traceroute`)"
        ),
    };
    say(problem, &remedy);
}

/// Checks whether the host can be reached, and listens at its address.
fn place(side: &Side<'_>, say: &mut impl FnMut(String, &str)) {
    if side.entry.address.is_none() {
        say(
            "the model gives this host no address, so no other host has a link to it".to_owned(),
            "add `address` to the host in the model",
        );
    }
    if let Some(why) = gather::refusal(side.status) {
        say(format!("its daemon refuses the request: {why}"), "`cobctl trust whoami` shows your rights there");
    } else if !side.status.reachable {
        let why = side.status.error.clone().unwrap_or_else(|| "no reason is known".to_owned());
        say(format!("its daemon can't be reached: {why}"), "check there: is the daemon running, is the port open?");
    }
    if let (Some(named), Some(listens)) = (&side.entry.address, &side.status.listen)
        && !covers(listens, named)
    {
        say(
            format!("its address in the model is {named}, but it listens at {listens}"),
            "its daemon retries each second, see its log; or correct `listen` in its cobd.toml or `address` in the model",
        );
    }
}

/// Whether a daemon that listens at `listens` is reached at `named`: same port, and same or wildcard address.
fn covers(listens: &str, named: &str) -> bool {
    let read = |text: &str| cob_types::link::parse_address(text).ok();
    match (read(listens), read(named)) {
        (Some(listens), Some(named)) => {
            listens.port() == named.port() && (listens.ip().is_unspecified() || listens.ip() == named.ip())
        }
        _ => listens == named,
    }
}

/// Checks whether the host has the depot's newest generation.
fn generation(manifest: &Manifest, side: &Side<'_>, say: &mut impl FnMut(String, &str)) {
    let status = side.status;
    let has = status.goal().or(status.generation);
    if has != Some(manifest.generation) {
        let has = has.map_or_else(|| "no generation".to_owned(), |g| format!("generation {g}"));
        let newest = manifest.generation;
        say(
            format!("it has {has}, but the depot's newest is {newest}: keys and addresses may differ"),
            "`cobctl switch latest`, which names obstacles",
        );
    }
    let wanted = word(manifest.security);
    if let Some(security) = status.security.as_deref().filter(|s| *s != wanted && has == Some(manifest.generation)) {
        say(
            format!("it runs with `security: {security}`, but the model says `{wanted}`"),
            "wait until the switch has ended on all hosts; then restart its daemon, if the difference remains",
        );
    }
}

/// Requests of the other host that no dependency justifies.
fn requests(side: &Side<'_>, other: &Side<'_>, say: &mut impl FnMut(String, &str)) {
    let name = &other.status.name;
    for refused in side.status.unjustified.iter().filter(|refused| refused.host == *name) {
        let requests = count(usize::try_from(refused.requests).unwrap_or(usize::MAX), "request");
        let states: Vec<String> = refused.states.iter().map(|state| clean_to(state.as_str(), 100)).collect();
        let by = refused.generation.map_or_else(String::new, |generation| format!(" of generation {generation}"));
        let problem = format!(
            "it refused {requests} of {name} without a dependency{by}, the last from {} for {} {}",
            refused.asker,
            refused.asked,
            join(&states, "or"),
        );
        let remedy = format!(
            "a correct cobd on {name} never sends this request: inspect {name} (see \"A compromised host\" in \
             docs/security.md); to cut it off, put its key into `revoked` of the model, generate and switch"
        );
        say(problem, &remedy);
    }
    if side.status.asked_by_anybody {
        say(
            "its generation does not list the permitted requests, so it accepts all requests of all hosts".to_owned(),
            "an earlier version of cobgen made the generation: publish a new generation with `cobgen generate`",
        );
    }
}

fn word(security: Security) -> &'static str {
    match security {
        Security::LoopbackOnly => "loopback-only",
        Security::Identities => "identities",
    }
}

/// Checks whether other hosts accept the host's key.
fn keys(manifest: &Manifest, side: &Side<'_>, other: &Side<'_>, say: &mut impl FnMut(String, &str)) {
    let named = &side.entry.keys;
    if named.is_empty() {
        say(
            "the model has no key for it".to_owned(),
            "`cobd init` there prints its key: put it into the model as `key`",
        );
    } else if named.iter().all(|k| manifest.revoked.contains(k)) {
        say(
            format!("the model revokes all its keys: {}", list(named)),
            "`cobd init --next` there creates a new key; put it into the model",
        );
    }
    if let Some(key) = named.iter().find(|k| other.entry.keys.contains(k)) {
        say(
            format!("it shares the key {key} with {}", other.status.name),
            "each host needs its own: remove the copied key file from the second host and run `cobd init` there",
        );
    }
    match side.status.identity {
        _ if !side.status.reachable => {}
        None => {
            say("its daemon has no key".to_owned(), "`cobd init` there, and put the key that it prints into the model")
        }
        Some(own) if manifest.revoked.contains(&own) => say(
            format!("its daemon shows the key {own}, which is revoked"),
            "`cobd init --next` there creates a new key; put it into the model",
        ),
        Some(own) if !named.contains(&own) && !named.is_empty() => say(
            format!("its daemon has the key {own}, but the model {}", list(named)),
            "put the daemon's key into the model, or restore the right key file; it may be another machine",
        ),
        Some(_) => {}
    }
}

fn list(keys: &[PublicKey]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn linked(side: &Side<'_>, other: &Side<'_>) -> bool {
    side.status.peers.iter().any(|p| p.up && p.unheard.is_none() && p.host == other.status.name)
}

/// The faults that the daemons themselves report, first from the daemon that opens the connection.
fn told(sides: &[Side<'_>; 2]) -> Vec<Finding> {
    let mut pairs = [(&sides[0], &sides[1]), (&sides[1], &sides[0])];
    pairs.sort_by_key(|(side, _)| &side.status.name);
    let why = |(side, other): (&Side<'_>, &Side<'_>)| {
        let name = &other.status.name;
        let peer = side.status.peers.iter().find(|p| p.host == *name);
        let unheard = peer.and_then(|peer| peer.unheard);
        if let Some(why) = unheard {
            let (why, remedy) = match why {
                Unheard::Fenced => ("its daemon was fenced", format!("restart cobd on {name}")),
                Unheard::Replaced | Unheard::Other => (
                    "another daemon has sent messages under its name since",
                    format!("stop the other daemon with the name {name}, then restart cobd there"),
                ),
            };
            let problem = format!("it ignores the messages of {name}: {why}");
            return Some(Finding { host: side.status.name.clone(), problem, remedy });
        }
        let problem = match peer {
            Some(peer) => format!("no link to {name}: {}", peer.error.as_ref()?),
            None if side.status.reachable => format!("its generation does not contain {name}"),
            None => return None,
        };
        let remedy = "this is the report of its daemon; see also `journalctl -u cobd` there".to_owned();
        Some(Finding { host: side.status.name.clone(), problem, remedy })
    };
    pairs.into_iter().filter_map(why).collect()
}

#[cfg(test)]
mod tests {
    use cob_types::status::{PeerStatus, Unjustified};
    use cob_types::{BlobHash, GenerationNumber};

    use super::*;

    fn name(text: &str) -> HostName {
        HostName::new(text).expect("a name")
    }

    fn key(n: u8) -> PublicKey {
        PublicKey([n; 32])
    }

    fn unjustified(requests: u64) -> Unjustified {
        let id = |text| cob_types::CobId::new(text).expect("an id");
        Unjustified {
            host: name("n2"),
            requests,
            last_ns: 7,
            asker: id("n2/thing"),
            asked: id("n1/sshd-config"),
            states: vec![cob_types::StateName::new("absent").expect("a state")],
            generation: Some(GenerationNumber(9)),
        }
    }

    fn manifest() -> Manifest {
        let mut manifest = Manifest::empty(GenerationNumber(7), GenerationNumber(6), Security::Identities);
        for (host, n) in [("n1", 1), ("n2", 2)] {
            let address = Some(format!("tcp://192.0.2.{n}:7077"));
            let entry = ManifestHost { address, keys: vec![key(n)], bundle: BlobHash([0; 32]), cobs: 0 };
            manifest.hosts.insert(name(host), entry);
        }
        manifest
    }

    fn status(host: &str, n: u8, to: &str) -> HostStatus {
        HostStatus {
            reachable: true,
            generation: Some(GenerationNumber(7)),
            security: Some("identities".to_owned()),
            identity: Some(key(n)),
            listen: Some("tcp://0.0.0.0:7077".to_owned()),
            peers: vec![PeerStatus {
                host: name(to),
                up: true,
                since_ns: 0,
                error: None,
                unheard: None,
                fenced: false,
            }],
            ..HostStatus::unknown(name(host))
        }
    }

    fn found(manifest: &Manifest, one: &HostStatus, other: &HostStatus) -> Diagnosis {
        let side = |status: &'static str| &manifest.hosts[&name(status)];
        let sides = [(one, "n1"), (other, "n2")].map(|(status, name)| Side { status, entry: side(name), shows: None });
        diagnose(manifest, "depot", &sides)
    }

    /// Spoils a healthy pair and expects this finding about this host.
    #[track_caller]
    fn finds(host: &str, problem: &str, spoil: impl FnOnce(&mut Manifest, &mut HostStatus, &mut HostStatus)) {
        let (mut manifest, mut one, mut other) = (manifest(), status("n1", 1, "n2"), status("n2", 2, "n1"));
        spoil(&mut manifest, &mut one, &mut other);
        let all = found(&manifest, &one, &other).findings;
        assert!(all.iter().any(|f| f.host == name(host) && f.problem.contains(problem)), "{problem:?}: {all:?}");
    }

    #[test]
    fn a_healthy_pair_of_hosts_has_no_findings() {
        let diagnosis = found(&manifest(), &status("n1", 1, "n2"), &status("n2", 2, "n1"));
        assert!(diagnosis.up && diagnosis.findings.is_empty(), "{diagnosis:?}");
    }

    #[test]
    fn each_fault_is_found_at_the_host_that_has_it() {
        finds("n2", "the model has no key for it", |m, _, _| m.hosts.values_mut().for_each(|h| h.keys.clear()));
        finds("n1", "its daemon has no key", |_, one, _| one.identity = None);
        finds("n2", "but the model ed25519:AgIC", |_, _, other| other.identity = Some(key(9)));
        finds("n1", "which is revoked", |m, _, _| m.revoked = [key(1)].into());
        finds("n1", "revokes all its keys", |m, _, _| m.revoked = [key(1)].into());
        finds("n1", " with n2", |m, _, _| {
            m.hosts.get_mut(&name("n2")).expect("there").keys.push(key(1));
        });
        finds("n2", "can't be reached: refused", |_, _, other| {
            *other = HostStatus { error: Some("refused".to_owned()), ..HostStatus::unknown(name("n2")) };
        });
        finds("n2", "listens at tcp://127.0.0.1:7077", |_, _, other| {
            other.listen = Some("tcp://127.0.0.1:7077".to_owned());
        });
        finds("n1", "gives this host no address", |m, _, _| {
            m.hosts.get_mut(&name("n1")).expect("there").address = None
        });
        finds("n1", "it has generation 6, but the depot's newest is 7", |_, one, _| {
            one.generation = Some(GenerationNumber(6));
        });
        finds("n2", "runs with `security: loopback-only`", |_, _, other| {
            other.security = Some("loopback-only".to_owned());
        });
        finds("n1", "no link to n2: wrong key", |_, one, _| {
            one.peers[0].up = false;
            one.peers[0].error = Some("wrong key".to_owned());
        });
        finds("n1", "it ignores the messages of n2: its daemon was fenced", |_, one, _| {
            one.peers[0].unheard = Some(Unheard::Fenced);
        });
        finds("n2", "its generation does not contain n1", |_, _, other| other.peers.clear());
        let refused = "it refused 3 requests of n2 without a dependency of generation 9, the last from n2/thing \
                       for n1/sshd-config absent";
        finds("n1", refused, |_, one, _| one.unjustified = vec![unjustified(3)]);
        finds("n2", "accepts all requests of all hosts", |_, _, other| other.asked_by_anybody = true);
    }
}
