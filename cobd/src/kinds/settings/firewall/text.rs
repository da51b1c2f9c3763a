//! The table of a content in the language of nftables.

use std::fmt::{self, Write as _};

use cob_kinds::{Action, Chain, Firewall, Network, Ports, Rule, read_rate};

/// Messages without which hosts do not find each other in IPv6. No connection contains them.
const NEIGHBOURS: &str = "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, \
                          mld-listener-query, mld-listener-report, mld2-listener-report } accept";
/// An answer to each sort of packet.
const REJECT: [&str; 2] = ["meta l4proto tcp reject with tcp reset", "reject"];

/// A transaction that replaces the table `name` by the table in a text; an empty text removes the table.
pub(super) fn replacing(name: &str, table: &str) -> String {
    // The deletion of a missing table fails, so the table is added first.
    format!("add table {name}\ndelete table {name}\n{table}")
}

/// The table.
pub(super) fn table(content: &Firewall) -> String {
    let mut out = format!("table {} {{\n", content.full_name());
    for chain in content.chains() {
        for (number, rule) in chain.rules.iter().enumerate() {
            if let Some((count, unit)) = rule.rate.as_deref().and_then(read_rate) {
                line(&mut out, 1, format_args!("limit {} {{ rate {count}/{unit}; }}", limit(&chain, number)));
            }
        }
    }
    for chain in content.chains() {
        let policy = if chain.default == Action::Accept { "accept" } else { "drop" };
        line(&mut out, 1, format_args!("chain {} {{", chain.name));
        line(&mut out, 2, format_args!("type filter hook {} priority filter; policy {policy};", chain.name));
        for rule in first_rules(content, &chain) {
            line(&mut out, 2, format_args!("{rule}"));
        }
        for (number, rule) in chain.rules.iter().enumerate() {
            for rule in rules(&chain, number, rule) {
                line(&mut out, 2, format_args!("{rule}"));
            }
        }
        if chain.default == Action::Reject {
            REJECT.iter().for_each(|rule| line(&mut out, 2, format_args!("{rule}")));
        }
        out.push_str("\t}\n");
    }
    out.push_str("}\n");
    out
}

fn line(out: &mut String, depth: usize, line: fmt::Arguments<'_>) {
    let _ = writeln!(out, "{}{line}", "\t".repeat(depth));
}

/// The name of the limit of a rule: all rules of nftables that a rule becomes share it.
fn limit(chain: &Chain<'_>, number: usize) -> String {
    format!("{}_{number}", chain.name)
}

/// The rules before those of the content: existing connections, loopback, neighbours, the daemons of COB.
fn first_rules(content: &Firewall, chain: &Chain<'_>) -> Vec<String> {
    let mut rules = Vec::new();
    if content.stateful {
        rules.push("ct state established,related accept".to_owned());
    }
    if chain.name == "forward" {
        return rules;
    }
    let interface = if chain.name == "input" { "iifname" } else { "oifname" };
    rules.extend([format!("{interface} \"lo\" accept"), NEIGHBOURS.to_owned()]);
    let mut ports = content.daemons.clone();
    ports.sort_unstable();
    ports.dedup();
    if !ports.is_empty() {
        let ports = set(ports.iter().map(u16::to_string).collect());
        rules.push(format!("tcp dport {ports} accept comment \"daemons of COB\""));
        if !content.stateful {
            // Their answers.
            rules.push(format!("tcp sport {ports} accept comment \"daemons of COB\""));
        }
    }
    rules
}

/// The rules of nftables that a rule becomes: a rule for each address family and protocol.
fn rules(chain: &Chain<'_>, number: usize, rule: &Rule) -> Vec<String> {
    if let Some(raw) = &rule.raw {
        return vec![raw.trim().to_owned()];
    }
    let ways_in = if chain.name == "output" { "oifname" } else { "iifname" };
    let interface = |word: &str, name: &Option<String>| name.as_ref().map(|name| format!("{word} \"{name}\""));
    let interfaces = [interface(ways_in, &rule.interface), interface("oifname", &rule.out_interface)];
    let mut rules = Vec::new();
    for (from, to) in rule.families() {
        let addresses = [addresses("saddr", &from), addresses("daddr", &to)];
        for protocol in protocols(rule) {
            for verdict in verdicts(rule.action(), protocol.as_deref()) {
                let mut words: Vec<String> = interfaces.iter().chain(&addresses).flatten().cloned().collect();
                words.extend(protocol.clone());
                if rule.rate.is_some() {
                    words.push(format!("limit name \"{}\"", limit(chain, number)));
                }
                words.push((*verdict).to_owned());
                words.extend(rule.comment.as_ref().map(|comment| format!("comment \"{comment}\"")));
                rules.push(words.join(" "));
            }
        }
    }
    rules
}

/// The conditions on the protocol. `None`: any protocol.
fn protocols(rule: &Rule) -> Vec<Option<String>> {
    let of = |name: &str, ports: &Option<Ports>| {
        let range = |(first, last): (u16, u16)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        ports.as_ref().map(|ports| format!("{name} dport {}", set(ports.ranges().into_iter().map(range).collect())))
    };
    let icmp = rule.icmp.then(|| "meta l4proto { icmp, ipv6-icmp }".to_owned());
    let found: Vec<Option<String>> =
        [of("tcp", &rule.tcp), of("udp", &rule.udp), icmp].into_iter().filter(Option::is_some).collect();
    if found.is_empty() { vec![None] } else { found }
}

fn verdicts(action: Action, protocol: Option<&str>) -> &'static [&'static str] {
    match (action, protocol) {
        (Action::Accept, _) => &["accept"],
        (Action::Drop, _) => &["drop"],
        (Action::Reject, None) => &REJECT,
        (Action::Reject, Some(protocol)) if protocol.starts_with("tcp ") => &["reject with tcp reset"],
        (Action::Reject, Some(_)) => &["reject"],
    }
}

/// The condition on an address. `None`: any address.
fn addresses(word: &str, networks: &[Network]) -> Option<String> {
    let first = networks.first()?;
    let (family, protocol, bits) = if first.address.is_ipv4() { ("ip", "ipv4", 32) } else { ("ip6", "ipv6", 128) };
    if first.prefix == 0 {
        return Some(format!("meta nfproto {protocol}"));
    }
    let network = |network: &Network| match network.prefix {
        prefix if prefix == bits => network.address.to_string(),
        prefix => format!("{}/{prefix}", network.address),
    };
    Some(format!("{family} {word} {}", set(networks.iter().map(network).collect())))
}

/// A value, or a set of values.
fn set(values: Vec<String>) -> String {
    match values.as_slice() {
        [one] => one.clone(),
        all => format!("{{ {} }}", all.join(", ")),
    }
}
