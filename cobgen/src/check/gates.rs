//! Gates that wait for an address of the model without a dependency on the change object that answers there.
//!
//! A `tcp-check`, an `http-check` or a command that waits for a port hides a dependency: no rule orders the gate after
//! the change object that answers. If a budget, a limit or a `requires` keeps that change object from starting before
//! the gate is up, both wait forever, and the daemons cannot detect the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cob_types::kind::Command;
use cob_types::{Generation, HostName};

use super::finding::{Finding, Findings, Step};
use super::system::{System, Want};
use crate::diagnostic::Severity;

/// The code of all findings of this module.
const CODE: &str = "gate";
/// Parts of commands that wait for a port.
const WAITERS: [&str; 7] = ["nc ", "ncat ", "/dev/tcp/", "pg_isready", "curl ", "wget ", "wait-for"];
/// The most change objects that a finding names as possible servers of an address.
const MOST_NAMES: usize = 3;

/// An address that a gate waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Address<'t> {
    host: &'t str,
    port: u16,
}

/// Reports gates that depend on no change object that answers at their address.
pub(super) fn report(generation: &Generation, system: &System<'_>, findings: &mut Findings) {
    let hosts = Hosts::of(generation);
    let texts = Texts::of(system);
    for gate in 0..system.cobs.len() {
        for address in awaited(system, gate) {
            report_one(system, &hosts, &texts, gate, &address, findings);
        }
    }
}

fn report_one(
    system: &System<'_>,
    hosts: &Hosts<'_>,
    texts: &Texts,
    gate: usize,
    address: &Address<'_>,
    findings: &mut Findings,
) {
    let id = &system.cobs[gate].cob.id;
    let at = hosts.at(address.host, id.host_str());
    if at.is_empty() {
        return;
    }
    let answers: Vec<usize> = at.iter().flat_map(|host| texts.with_port(host, address.port)).collect();
    let answers: Vec<usize> = answers.into_iter().filter(|cob| *cob != gate).collect();
    // An unknown service on the gate's own host is not part of the model.
    if answers.is_empty() && at.iter().any(|host| host.as_str() == id.host_str()) {
        return;
    }
    let needed = reached(system, gate);
    // If no content names the port, any change object of that host may serve it.
    let is_there = |cob: &usize| at.iter().any(|host| host.as_str() == system.host_of(*cob));
    let brings = |cob: &usize| if answers.is_empty() { is_there(cob) } else { answers.contains(cob) };
    if needed.iter().any(brings) {
        return;
    }
    let names: Vec<&str> = answers.iter().take(MOST_NAMES).map(|cob| system.id(*cob)).collect();
    let whose = if names.is_empty() {
        format!("an address of the host {}", at.iter().map(|h| h.as_str()).collect::<Vec<_>>().join(", "))
    } else {
        format!("where {} shall answer", names.join(" or "))
    };
    let first = answers.iter().copied().take(MOST_NAMES);
    let behind: Vec<usize> = first.filter(|cob| reached(system, *cob).contains(&gate)).collect();
    let steps = behind.iter().map(|cob| Step {
        text: format!("{} waits for {id}, and {id} for it: neither could start", system.id(*cob)),
        words: None,
        place: system.place_of(*cob),
    });
    let help = match (names.first(), behind.is_empty()) {
        (_, false) => "let the gate wait for a service that starts earlier, or remove that dependency".to_owned(),
        (Some(first), true) => format!("write `after: [{first}]` at {id}, or `requires: [{first}]`"),
        (None, true) => format!("write `after: [HOST/NAME]` at {id}, with the change object that answers there"),
    };
    findings.push(Finding {
        severity: Severity::Warning,
        code: CODE,
        message: format!(
            "{id} waits for {}:{}, {whose}, but does not depend on it: if a budget or limit delays that service, \
             both wait for ever",
            address.host, address.port
        ),
        place: system.place_of(gate),
        steps: steps.collect(),
        help,
    });
}

/// All change objects that must be in their preferred state for this change object, transitively. A need for another
/// state does not count: the change object has it so that it can leave its state.
fn reached(system: &System<'_>, from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(cob) = next.pop() {
        let is_to_be_there =
            |want: &&Want<'_>| system.cobs[want.on].preferred.is_none_or(|preferred| want.states.contains(&preferred));
        for want in system.cobs[cob].guards.iter().flat_map(|guard| &guard.wants).filter(is_to_be_there) {
            if found.insert(want.on) {
                next.push(want.on);
            }
        }
    }
    found
}

/// The addresses that a gate waits for; empty for other change objects.
fn awaited<'a>(system: &System<'a>, cob: usize) -> BTreeSet<Address<'a>> {
    let (kind, content) = (system.kind_of(cob).kind, system.cobs[cob].cob.content.as_str());
    match kind.backend.as_str() {
        "tcp-check" => value_of(content, "\"address\"").and_then(of_url).into_iter().collect(),
        "http-check" => value_of(content, "\"url\"").and_then(of_url).into_iter().collect(),
        "service" => {
            let ready = value_of(content, "\"ready\"");
            let start = value_of(content, "\"start\"").filter(|text| waits(text));
            ready.into_iter().chain(start).flat_map(of_command).collect()
        }
        "command" => {
            let runs = kind.transitions.iter().filter_map(|t| t.run.as_ref()).chain(&kind.check.run);
            let words = runs.flat_map(|run| match run {
                Command::Shell(text) => std::slice::from_ref(text),
                Command::Argv(words) => words.as_slice(),
            });
            words.filter(|text| waits(text)).flat_map(|text| of_command(text)).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// Whether a command may wait for a port.
fn waits(text: &str) -> bool {
    WAITERS.iter().any(|waiter| text.contains(waiter))
}

/// The text of a key in a content, as JSON contains it.
fn value_of<'t>(content: &'t str, key: &str) -> Option<&'t str> {
    let rest = content[content.find(key)? + key.len()..].trim_start().strip_prefix(':')?.trim_start();
    let rest = rest.strip_prefix('"')?;
    rest.find('"').map(|end| &rest[..end])
}

/// `HOST:PORT`, `http://HOST:PORT/PATH`, `[::1]:80`.
fn of_url(text: &str) -> Option<Address<'_>> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.split(['/', '?', '#']).next()?;
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        Some(_) | None => (rest, if scheme == "https" { 443 } else { 80 }),
    };
    Some(Address { host: host.trim_matches(['[', ']']), port })
}

/// The addresses in a waiting command: `HOST:PORT`, `/dev/tcp/HOST/PORT`, `nc -z HOST PORT`, `-h HOST -p PORT`.
fn of_command(text: &str) -> BTreeSet<Address<'_>> {
    let is_end = |c: char| c.is_whitespace() || "'\"`;|&()<>=,$\\".contains(c);
    let words: Vec<&str> = text.split(is_end).filter(|word| !word.is_empty()).collect();
    let mut found = BTreeSet::new();
    let option = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    if let Some(host) = option("-h") {
        let port = option("-p").and_then(|port| port.parse().ok());
        let usual = words.contains(&"pg_isready").then_some(5432);
        found.extend(port.or(usual).map(|port| Address { host, port }));
    }
    for (at, word) in words.iter().enumerate() {
        if let Some((host, port)) = word.split_once("/dev/tcp/").and_then(|(_, rest)| rest.split_once('/')) {
            found.extend(port.parse().ok().map(|port| Address { host, port }));
        } else if word.contains("://") || word.contains(':') {
            found.extend(of_url(word));
        } else if let Some(port) = words.get(at + 1).and_then(|port| port.parse().ok())
            && !word.starts_with('-')
            && (word.contains('.') || at > 0 && is_before_host(words[at - 1]))
        {
            found.insert(Address { host: word, port });
        }
    }
    found
}

/// Whether a word stands before a host in a command: `nc HOST PORT`, `nc -z HOST PORT`.
fn is_before_host(word: &str) -> bool {
    matches!(word, "nc" | "ncat") || word.starts_with('-')
}

/// The hosts of the model by their addresses.
struct Hosts<'a> {
    by_ip: BTreeMap<IpAddr, Vec<&'a HostName>>,
    names: BTreeSet<&'a HostName>,
}

impl<'a> Hosts<'a> {
    fn of(generation: &'a Generation) -> Self {
        let mut by_ip: BTreeMap<IpAddr, Vec<&'a HostName>> = BTreeMap::new();
        for (name, host) in &generation.manifest.hosts {
            let address = host.address.as_deref().and_then(|address| of_url(address.strip_prefix("tcp://")?));
            if let Some(ip) = address.and_then(|address| address.host.parse().ok()) {
                by_ip.entry(ip).or_default().push(name);
            }
        }
        Self { by_ip, names: generation.manifest.hosts.keys().collect() }
    }

    /// The hosts with an address or name, as seen from the host `own`.
    fn at(&self, address: &str, own: &str) -> Vec<&'a HostName> {
        let by_name = |name: &str| self.names.iter().copied().filter(|host| host.as_str() == name).collect::<Vec<_>>();
        let ip: Option<IpAddr> = address.parse().ok();
        match ip.and_then(|ip| self.by_ip.get(&ip)) {
            Some(hosts) => hosts.clone(),
            None if address == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) => by_name(own),
            None => by_name(address),
        }
    }
}

/// The possible ports in the contents of each host's change objects.
struct Texts {
    /// For each host its change objects, each with the numbers in its content that can be ports.
    of_host: BTreeMap<String, Vec<(usize, BTreeSet<u16>)>>,
}

impl Texts {
    fn of(system: &System<'_>) -> Self {
        let mut of_host: BTreeMap<String, Vec<(usize, BTreeSet<u16>)>> = BTreeMap::new();
        for (cob, view) in system.cobs.iter().enumerate() {
            // These kinds do not answer at a port: they are other gates, or stand for other change objects.
            if matches!(
                system.kind_of(cob).kind.backend.as_str(),
                "tcp-check" | "http-check" | "noop" | "budget" | "wait"
            ) {
                continue;
            }
            let numbers = view.cob.content.split(|c: char| !c.is_ascii_digit());
            let ports: BTreeSet<u16> = numbers.filter_map(|n| n.parse().ok()).filter(|port| *port > 1).collect();
            of_host.entry(view.cob.id.host_str().to_owned()).or_default().push((cob, ports));
        }
        Self { of_host }
    }

    /// The change objects of a host with this number in their content.
    fn with_port(&self, host: &HostName, port: u16) -> impl Iterator<Item = usize> {
        let all = self.of_host.get(host.as_str()).into_iter().flatten();
        all.filter(move |(_, ports)| ports.contains(&port)).map(|(cob, _)| *cob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_urls_and_commands() {
        let of = |text: &str| of_url(text).map(|a| format!("{} {}", a.host, a.port));
        assert_eq!(of("10.0.0.2:5432").as_deref(), Some("10.0.0.2 5432"));
        assert_eq!(of("http://web/health").as_deref(), Some("web 80"));
        assert_eq!(of("https://u:p@[::1]:8443/x").as_deref(), Some("::1 8443"));
        assert_eq!(of("https://[::1]/x").as_deref(), Some("::1 443"));
        let in_command = |text| of_command(text).iter().map(|a| format!("{} {}", a.host, a.port)).collect::<Vec<_>>();
        assert_eq!(in_command("until nc -z db.example 5432; do sleep 1; done"), ["db.example 5432"]);
        assert_eq!(in_command("nc -z db 5432"), ["db 5432"]);
        assert_eq!(in_command("exec 3<>/dev/tcp/10.0.0.2/80"), ["10.0.0.2 80"]);
        assert_eq!(in_command("pg_isready -h 10.0.0.2"), ["10.0.0.2 5432"]);
        assert_eq!(in_command("curl -fsS http://10.0.0.2:8080/x"), ["10.0.0.2 8080"]);
    }
}
