//! The values of a `firewall` that come from the model: the addresses of services, hosts and labels in its rules, and
//! the ports of the daemons.
//!
//! A daemon knows only addresses, so `from: {service: app}` becomes the list of the addresses of these hosts.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use cob_types::HostName;

use super::Report;
use super::scope::Scope;
use crate::diagnostic::Diagnostic;
use crate::model::{HostPick, Key, Map, Mark, Node, Value, Written};

/// The keys with rules.
const CHAINS: [&str; 3] = ["input", "forward", "output"];
/// The keys of a rule with addresses.
const ADDRESSES: [&str; 2] = ["from", "to"];
/// The key with the ports of the daemons.
const DAEMONS: &str = "daemons";

/// The content with addresses and ports. Other forms are left to the check of the content.
pub(super) fn resolve(content: &Node, scope: &Scope<'_>, report: &mut Report<'_>) -> Node {
    let mut content = content.clone();
    let mark = content.mark;
    let Value::Map(map) = &mut content.value else { return content };
    for (_, rules) in map.entries.iter_mut().filter(|(key, _)| CHAINS.contains(&key.text.as_str())) {
        let Value::List(rules) = &mut rules.value else { continue };
        for rule in rules {
            let Value::Map(rule) = &mut rule.value else { continue };
            for (_, node) in rule.entries.iter_mut().filter(|(key, _)| ADDRESSES.contains(&key.text.as_str())) {
                *node = addresses(node, scope, report);
            }
        }
    }
    if map.get(DAEMONS).is_none() {
        let port = |port: u16| Node { mark, value: Value::Int(port.into(), Written::default()) };
        let ports = daemon_ports(scope).into_iter().map(port).collect();
        map.entries.push((Key { mark, text: DAEMONS.to_owned() }, Node { mark, value: Value::List(ports) }));
    }
    content
}

/// The ports of all daemons in the model.
fn daemon_ports(scope: &Scope<'_>) -> BTreeSet<u16> {
    let addresses = scope.world.hosts.0.values().filter_map(|host| host.address.as_ref()?.strip_prefix("tcp://"));
    addresses.filter_map(|address| Some(address.parse::<SocketAddr>().ok()?.port())).collect()
}

/// The addresses in a value: a text, a choice of hosts, or a list of both.
fn addresses(node: &Node, scope: &Scope<'_>, report: &mut Report<'_>) -> Node {
    match &node.value {
        Value::Map(choice) => chosen(node.mark, choice, scope, report),
        Value::List(items) => {
            let mut all = Vec::with_capacity(items.len());
            for item in items {
                // A template may give a list, too.
                match addresses(item, scope, report) {
                    Node { value: Value::List(inner), .. } => all.extend(inner),
                    other => all.push(other),
                }
            }
            Node { mark: node.mark, value: Value::List(all) }
        }
        Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Text(_) | Value::Invalid => {
            node.clone()
        }
    }
}

/// The addresses of the chosen hosts; an invalid value after a fault, which is reported.
fn chosen(mark: Mark, choice: &Map, scope: &Scope<'_>, report: &mut Report<'_>) -> Node {
    let invalid = Node { mark, value: Value::Invalid };
    let (key, name) = match choice.entries.as_slice() {
        [(key, Node { value: Value::Text(name), .. })] if ["service", "host", "label"].contains(&key.text.as_str()) => {
            (key, name)
        }
        _ => {
            let fault = Diagnostic::error("bad-content", "these words choose no hosts");
            report.push(mark, fault.help("write one of `{service: app}`, `{host: n1}`, `{label: role=app}`"));
            return invalid;
        }
    };
    let at = choice.entries.first().map_or(mark, |(_, name)| name.mark);
    let of = |fault: Diagnostic| fault.note(None, format!("for {}", scope.of));
    let hosts = &scope.world.hosts;
    let found: Vec<&HostName> = match key.text.as_str() {
        "service" => match scope.hosts_of(name) {
            Ok(nodes) => nodes.iter().collect(),
            Err(what) => {
                report.push(at, of(Diagnostic::error("unknown-name", what)));
                return invalid;
            }
        },
        "host" => hosts.of_pick(&HostPick::Host(name.clone()), at, report),
        _ => hosts.of_pick(&HostPick::Label(name.clone()), at, report),
    };
    if found.is_empty() {
        // An unknown host or label is reported already.
        if key.text == "service" {
            let fault = Diagnostic::error("no-hosts", format!("no host has the service `{name}`"));
            report.push(at, of(fault.help("place the service on a host, or remove the rule")));
        }
        return invalid;
    }
    let mut texts = Vec::with_capacity(found.len());
    for host in found.into_iter().filter_map(|name| hosts.0.get(name)) {
        match host.ip() {
            Some(ip) => texts.push(Node { mark, value: Value::Text(ip) }),
            // A wrong address is reported already.
            None if host.has_address => return invalid,
            None => {
                let what = format!("the rule needs the address of {}, but the model has none", host.name);
                let fault = Diagnostic::error("no-address", what).note(Some(report.place(host.mark)), "the host");
                report.push(at, of(fault.help("write `address: \"tcp://IP:PORT\"` at the host, or its IP here")));
                return invalid;
            }
        }
    }
    Node { mark, value: Value::List(texts) }
}
