//! The kind `firewall`: a table of nftables with rules for packets.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::CobId;
use cob_types::words::number;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::network::prefixed;
use super::{Builtin, Content, Faults, Footprint, Place, Scalar, yes};

/// The longest name of a table.
const MAX_TABLE: usize = 60;
/// The longest name of an interface.
const MAX_INTERFACE: usize = 15;
/// The longest comment that nftables keeps, in bytes.
const MAX_COMMENT: usize = 120;
/// The units of a rate.
const UNITS: [&str; 4] = ["second", "minute", "hour", "day"];

/// The content of `firewall`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Firewall {
    /// The name of the table, which belongs to this change object alone; default: `cob`.
    #[serde(default = "table")]
    pub table: String,
    /// The action for packets that match no rule: `{input: drop}`. Default for a chain with rules: `drop`.
    #[serde(default)]
    pub default: ChainDefaults,
    /// Rules for packets to this host; the first rule that matches decides.
    #[serde(default)]
    pub input: Vec<Rule>,
    /// Rules for packets that this host passes on.
    #[serde(default)]
    pub forward: Vec<Rule>,
    /// Rules for packets of this host.
    #[serde(default)]
    pub output: Vec<Rule>,
    /// Accept the packets of existing connections first; default: true.
    #[serde(default = "yes")]
    pub stateful: bool,
    /// The TCP ports of COB's daemons, which are always accepted; default: those of all addresses in the model.
    #[serde(default)]
    pub daemons: Vec<u16>,
    /// Also load the table at every boot, before the network; default: true.
    #[serde(default = "yes")]
    pub persist: bool,
    /// Refused: a table of nftables is a part of a running kernel.
    pub root: Option<PathBuf>,
}

/// The actions for packets that match no rule.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainDefaults {
    /// For packets to this host.
    pub input: Option<Action>,
    /// For packets that this host passes on.
    pub forward: Option<Action>,
    /// For packets of this host.
    pub output: Option<Action>,
}

/// An action on a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The packet passes.
    #[default]
    Accept,
    /// The packet is dropped, and the sender is not told.
    Drop,
    /// The packet is dropped, and the sender is told.
    Reject,
}

/// A rule: all its conditions must match.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The action: `accept` (default), `drop` or `reject`.
    pub action: Option<Action>,
    /// TCP ports of the receiver: `22`, `8000-8010`, or a list.
    pub tcp: Option<Ports>,
    /// UDP ports of the receiver.
    pub udp: Option<Ports>,
    /// ICMP of both address families, for example `ping`.
    #[serde(default)]
    pub icmp: bool,
    /// Addresses of the sender: `10.0.0.0/8`, `fd00::1`, a list, or `{service: app}`.
    pub from: Option<Networks>,
    /// Addresses of the receiver.
    pub to: Option<Networks>,
    /// The interface on which the packet arrives; in `output` the interface on which it leaves. `eth*` is a pattern.
    pub interface: Option<String>,
    /// In `forward`: the interface on which the packet leaves.
    pub out_interface: Option<String>,
    /// Match at most so many packets in a time: `10/minute`. Only for `accept`.
    pub rate: Option<String>,
    /// A comment, which nftables shows.
    pub comment: Option<String>,
    /// A rule in the language of nftables, instead of the other keys.
    pub raw: Option<String>,
}

/// Ports as written: numbers and ranges.
#[derive(Debug, Clone)]
pub struct Ports(Vec<Scalar>);

/// Networks as written: addresses, and addresses with a prefix.
#[derive(Debug, Clone)]
pub struct Networks(Vec<String>);

/// A network: an address and the number of leading bits that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// The address; the other bits are zero.
    pub address: IpAddr,
    /// The number of leading bits.
    pub prefix: u8,
}

/// A chain of the table.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a> {
    /// `input`, `forward` or `output`.
    pub name: &'static str,
    /// Its rules.
    pub rules: &'a [Rule],
    /// The action for packets that match no rule.
    pub default: Action,
}

fn table() -> String {
    "cob".to_owned()
}

impl Content for Firewall {
    const KIND: Builtin = Builtin::setting("firewall");

    fn check(&self, faults: &mut Faults) {
        if self.root.is_some() {
            let what = "`root` is not possible: a table of nftables is a part of a running kernel";
            faults.add("root", what, "remove the key; the host gets the table when its own daemon runs");
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_name = self.table.starts_with(|c: char| c.is_ascii_alphabetic()) && self.table.chars().all(is_part);
        if !is_name || self.table.len() > MAX_TABLE {
            let what = format!("{:?} is not the name of a table", self.table);
            faults.add("table", what, format!("a letter, then letters, digits, `_`, `-`; at most {MAX_TABLE}"));
        }
        if self.daemons.contains(&0) {
            faults.add("daemons", "0 is not a port", "write ports from 1 to 65535");
        }
        for Chain { name, rules, .. } in self.chains() {
            for (number, rule) in rules.iter().enumerate() {
                rule.check(name, number, faults);
            }
        }
        if self.chains().next().is_none() {
            let what = "the firewall has no rules";
            faults.add(Place::Content, what, "write rules for `input`, `forward` or `output`, or a `default`");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let files = self.persist.then(|| [self.rules_file(), self.unit_file(), self.unit_link()]);
        Footprint::of("table of nftables", self.full_name()).with_own(files.into_iter().flatten())
    }
}

impl Firewall {
    /// The family and the name of the table.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("inet {}", self.table)
    }

    /// The chains that the content describes.
    pub fn chains(&self) -> impl Iterator<Item = Chain<'_>> {
        let all = [
            ("input", &self.input, self.default.input),
            ("forward", &self.forward, self.default.forward),
            ("output", &self.output, self.default.output),
        ];
        all.into_iter()
            .filter(|(_, rules, default)| !rules.is_empty() || default.is_some())
            .map(|(name, rules, default)| Chain { name, rules, default: default.unwrap_or(Action::Drop) })
    }

    /// The file with the table for the next boot.
    #[must_use]
    pub fn rules_file(&self) -> String {
        format!("/etc/nftables.d/cob-{}.nft", self.table)
    }

    /// The name of the unit that loads the table at boot.
    #[must_use]
    pub fn unit_name(&self) -> String {
        format!("cob-firewall-{}.service", self.table)
    }

    /// The file of this unit.
    #[must_use]
    pub fn unit_file(&self) -> String {
        format!("/etc/systemd/system/{}", self.unit_name())
    }

    /// The link that enables this unit.
    #[must_use]
    pub fn unit_link(&self) -> String {
        format!("/etc/systemd/system/sysinit.target.wants/{}", self.unit_name())
    }
}

impl Rule {
    fn check(&self, chain: &'static str, number: usize, faults: &mut Faults) {
        let at = |steps: &[&str]| {
            let start = [chain.to_owned(), number.to_string()];
            Place::Path(start.into_iter().chain(steps.iter().map(|step| (*step).to_owned())).collect())
        };
        if let Some(raw) = &self.raw {
            if !self.is_alone() {
                let what = "a rule with `raw` has no other key";
                faults.add(at(&["raw"]), what, "write the other conditions in `raw`, too, or divide the rule");
            }
            if let Err(what) = check_raw(raw) {
                faults.add(at(&["raw"]), what, "write one rule of nftables: `tcp dport 22 log prefix \"ssh \" accept`");
            }
            return;
        }
        if !self.has_condition() {
            let what = "this rule matches every packet";
            let help = format!("name ports, addresses or an interface, or write `default: {{{chain}: …}}`");
            faults.add(at(&[]), what, help);
        }
        for (key, ports) in [("tcp", &self.tcp), ("udp", &self.udp)] {
            for (place, what, help) in ports.iter().flat_map(|ports| ports.faults(key)) {
                faults.add(at(&[key, &place.to_string()]), what, help);
            }
        }
        for (key, networks) in [("from", &self.from), ("to", &self.to)] {
            for (place, what) in networks.iter().flat_map(Networks::faults) {
                let help = "write an address or a network: 10.0.0.7, 10.0.0.0/8, fd00::/8";
                faults.add(at(&[key, &place.to_string()]), what, help);
            }
        }
        if self.from.is_some() && self.to.is_some() && self.families().is_empty() {
            let what = "`from` and `to` have no address family in common, so no packet matches";
            faults.add(at(&["to"]), what, "write IPv4 addresses in both, or IPv6 addresses in both");
        }
        for (key, name) in [("interface", &self.interface), ("out_interface", &self.out_interface)] {
            if let Some(name) = name.as_ref().filter(|name| !is_interface(name)) {
                let what = format!("{name:?} is not the name of an interface");
                faults.add(at(&[key]), what, "write a name of at most 15 characters, or its beginning: eth0, eth*");
            }
        }
        if self.out_interface.is_some() && chain != "forward" {
            let what = format!("`out_interface` is for rules of `forward`, and this is a rule of `{chain}`");
            faults.add(at(&["out_interface"]), what, "write `interface`");
        }
        if let Some(rate) = &self.rate {
            if read_rate(rate).is_none() {
                let help = "write a number of packets in a second, minute, hour or day: 10/minute";
                faults.add(at(&["rate"]), format!("{rate:?} is not a rate"), help);
            }
            if self.action() != Action::Accept {
                let what = "`rate` is only for rules that accept";
                faults.add(
                    at(&["rate"]),
                    what,
                    "accept so many packets, and let a later rule or `default` drop the rest",
                );
            }
        }
        if let Some(comment) = &self.comment
            && (comment.len() > MAX_COMMENT || comment.contains(|c: char| c.is_control() || c == '"' || c == '\\'))
        {
            let help = format!("at most {MAX_COMMENT} bytes, without quotes and backslashes");
            faults.add(at(&["comment"]), format!("{comment:?} is not a comment for nftables"), help);
        }
    }

    fn has_condition(&self) -> bool {
        let has_words = self.interface.is_some() || self.out_interface.is_some();
        self.tcp.is_some() || self.udp.is_some() || self.icmp || self.from.is_some() || self.to.is_some() || has_words
    }

    fn is_alone(&self) -> bool {
        let has_more = self.action.is_some() || self.rate.is_some() || self.comment.is_some();
        !self.has_condition() && !has_more
    }

    /// The action.
    #[must_use]
    pub fn action(&self) -> Action {
        self.action.unwrap_or_default()
    }

    /// The senders and receivers for each address family that can match; empty lists: any address of any family.
    #[must_use]
    pub fn families(&self) -> Vec<(Vec<Network>, Vec<Network>)> {
        if self.from.is_none() && self.to.is_none() {
            return vec![(Vec::new(), Vec::new())];
        }
        let of = |networks: &Option<Networks>, v4: bool| match networks {
            None => Some(Vec::new()),
            Some(networks) => {
                let found = merged(networks.read().filter(|network| network.address.is_ipv4() == v4).collect());
                (!found.is_empty()).then_some(found)
            }
        };
        [true, false].into_iter().filter_map(|v4| Some((of(&self.from, v4)?, of(&self.to, v4)?))).collect()
    }
}

impl Ports {
    /// The ports as ranges, sorted, without overlaps. Wrong ports are left out.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u16, u16)> {
        let mut all: Vec<(u16, u16)> =
            self.0.iter().filter_map(|port| read_ports(&port.text("", None).ok()?)).collect();
        all.sort_unstable();
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (first, last) in all {
            match ranges.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                Some(_) | None => ranges.push((first, last)),
            }
        }
        ranges
    }

    /// The faults: the number of the item, the fault and its remedy.
    fn faults(&self, key: &str) -> Vec<(usize, String, String)> {
        let help = || "write ports from 1 to 65535, or ranges: 22, 8000-8010".to_owned();
        let fault = |(number, port): (usize, &Scalar)| match port.text(key, None) {
            Ok(text) if read_ports(&text).is_some() => None,
            Ok(text) => Some((number, format!("{text:?} is neither a port nor a range of ports"), help())),
            Err((what, _)) => Some((number, what, help())),
        };
        if self.0.is_empty() {
            return vec![(0, format!("`{key}` has no ports"), help())];
        }
        self.0.iter().enumerate().filter_map(fault).collect()
    }
}

impl Networks {
    /// The networks. Wrong networks are left out.
    fn read(&self) -> impl Iterator<Item = Network> {
        self.0.iter().filter_map(|text| Network::read(text))
    }

    fn faults(&self) -> Vec<(usize, String)> {
        if self.0.is_empty() {
            // An empty list could be taken for any address.
            return vec![(0, "the list has no addresses".to_owned())];
        }
        let wrong = self.0.iter().enumerate().filter(|(_, text)| Network::read(text).is_none());
        wrong.map(|(number, text)| (number, format!("{text:?} is neither an address nor a network"))).collect()
    }
}

impl Network {
    /// Reads an address, or an address with a prefix. `None`: it is neither.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let alone = |address: IpAddr| (address, if address.is_ipv4() { 32 } else { 128 });
        let (address, prefix) = prefixed(text).or_else(|| text.parse().ok().map(alone))?;
        Some(Self { address: masked(address, prefix), prefix })
    }

    fn contains(&self, other: &Self) -> bool {
        let is_family = self.address.is_ipv4() == other.address.is_ipv4();
        is_family && self.prefix <= other.prefix && masked(other.address, self.prefix) == self.address
    }
}

/// The address with only its leading bits.
pub(super) fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or_default();
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or_default();
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

/// The networks, sorted, without those inside others: older versions of nftables refuse overlaps.
fn merged(mut networks: Vec<Network>) -> Vec<Network> {
    networks.sort_unstable();
    let mut out: Vec<Network> = Vec::new();
    for network in networks {
        if !out.last().is_some_and(|last| last.contains(&network)) {
            out.push(network);
        }
    }
    out
}

/// A port or a range of ports.
fn read_ports(text: &str) -> Option<(u16, u16)> {
    let port = |text: &str| number::<u16>(text).filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first.trim())?, port(last.trim())?);
    (first <= last).then_some((first, last))
}

/// The count of packets and the unit of a rate.
#[must_use]
pub fn read_rate(text: &str) -> Option<(u32, &'static str)> {
    let (count, unit) = text.split_once('/')?;
    let count = number(count).filter(|count| *count > 0)?;
    Some((count, UNITS.into_iter().find(|known| *known == unit)?))
}

/// Whether a name, or its beginning before a `*`, can be that of an interface.
fn is_interface(name: &str) -> bool {
    let stem = name.strip_suffix('*').unwrap_or(name);
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "/*\"\\".contains(c);
    !stem.is_empty() && name.len() <= MAX_INTERFACE && !stem.contains(is_odd)
}

/// Checks that a text can only be a single rule: it must not end its chain or the table.
fn check_raw(raw: &str) -> Result<(), String> {
    if raw.trim().is_empty() {
        return Err("`raw` is empty".to_owned());
    }
    if raw.chars().any(|c| c.is_control() && c != '\t') {
        return Err("`raw` has several lines".to_owned());
    }
    let (mut depth, mut is_quoted) = (0_u32, false);
    for c in raw.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '{' => depth += 1,
            '}' => depth = depth.checked_sub(1).ok_or("`raw` has a brace that ends the chain")?,
            ';' => return Err("`raw` has a semicolon, which ends the rule".to_owned()),
            '#' => return Err("`raw` has a `#`, which begins a comment".to_owned()),
            '\\' => return Err("`raw` has a backslash".to_owned()),
            _ => {}
        }
    }
    if is_quoted || depth > 0 {
        return Err("`raw` has a quote or a brace without an end".to_owned());
    }
    let first = raw.split_whitespace().next().unwrap_or_default();
    // Words that are statements of a chain or of a file, and no rules.
    match ["include", "define", "redefine", "undefine", "type", "policy", "comment", "flags", "devices"]
        .contains(&first)
    {
        true => Err(format!("`raw` begins with `{first}`, which is not a rule")),
        false => Ok(()),
    }
}

/// A value, or a list of values.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> OneOrMany<T> {
    fn all(self) -> Vec<T> {
        match self {
            Self::Many(all) => all,
            Self::One(one) => vec![one],
        }
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OneOrMany::deserialize(deserializer).map(|ports| Self(ports.all()))
    }
}

impl<'de> Deserialize<'de> for Networks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OneOrMany::deserialize(deserializer).map(|networks| Self(networks.all()))
    }
}

impl JsonSchema for Ports {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Ports".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let item =
            serde_json::json!({"type": ["integer", "string"], "x-what": "a port or a range, such as `8000-8010`"});
        json_schema!({"x-what": "a port, a range such as `8000-8010`, or a list of these", "anyOf": [
            {"type": "array", "items": item, "minItems": 1},
            {"type": ["integer", "string"]},
        ]})
    }
}

impl JsonSchema for Networks {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Networks".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let what = "an address, a network such as `10.0.0.0/8`, or `{service: NAME}`";
        json_schema!({"x-what": format!("{what}, or a list of these"), "anyOf": [
            {"type": "array", "items": {"type": "string", "x-what": what}, "minItems": 1},
            {"type": "string"},
        ]})
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(text: &str) -> Firewall {
        super::super::read(text).expect(text)
    }

    #[test]
    fn ports_and_networks_are_merged_and_divided_by_family() {
        let firewall = read(
            r#"{"input": [{"tcp": ["90-100", 22, "80-95", 101], "from": ["10.1.2.3", "10.9.9.9/8", "fd00::1/8", "::1"]}]}"#,
        );
        let rule = &firewall.input[0];
        assert_eq!(rule.tcp.as_ref().map(Ports::ranges), Some(vec![(22, 22), (80, 101)]));
        let networks = |all: &[&str]| all.iter().filter_map(|text| Network::read(text)).collect::<Vec<_>>();
        assert_eq!(rule.families(), [(networks(&["10.0.0.0/8"]), vec![]), (networks(&["::1", "fd00::/8"]), vec![])]);
        let firewall = read(r#"{"forward": [{"from": ["10.0.0.1", "fd00::1"], "to": "10.0.0.2"}]}"#);
        assert_eq!(firewall.forward[0].families(), [(networks(&["10.0.0.1"]), networks(&["10.0.0.2"]))]);
    }

    #[test]
    fn a_chain_without_rules_and_default_does_not_exist() {
        let firewall = read(r#"{"default": {"forward": "accept"}, "input": [{"icmp": true}]}"#);
        let chains: Vec<_> = firewall.chains().map(|chain| (chain.name, chain.rules.len(), chain.default)).collect();
        assert_eq!(chains, [("input", 1, Action::Drop), ("forward", 0, Action::Accept)]);
    }

    #[test]
    fn all_faults_are_found_at_once_with_their_places() {
        let content = serde_json::json!({
            "table": "x y", "root": "/srv",
            "input": [
                {"tcp": [22, "9-1", 0], "from": ["10.0.0.0/33", "10.0.0.1"], "rate": "10/week", "action": "drop"},
                {"comment": "all"},
                {"raw": "accept }"},
                {"from": "10.0.0.1", "to": "fd00::1", "out_interface": "eth0"},
            ],
        });
        let entry = super::super::find("firewall").expect("a kind");
        let faults = entry.check(&content).expect("of the right form");
        let places: BTreeMap<String, usize> = faults.iter().fold(BTreeMap::new(), |mut places, fault| {
            let place = match &fault.place {
                Place::Path(steps) => steps.join("/"),
                Place::Key(key) => (*key).to_owned(),
                other @ (Place::Content | Place::Part(..) | Place::Value(..)) => format!("{other:?}"),
            };
            *places.entry(place).or_default() += 1;
            places
        });
        let expected = [
            ("input/0/from/0", 1),
            ("input/0/rate", 2),
            ("input/0/tcp/1", 1),
            ("input/0/tcp/2", 1),
            ("input/1", 1),
            ("input/2/raw", 1),
            ("input/3/out_interface", 1),
            ("input/3/to", 1),
            ("root", 1),
            ("table", 1),
        ];
        assert_eq!(places, expected.map(|(place, count)| (place.to_owned(), count)).into());
    }

    #[test]
    fn a_raw_rule_stays_inside_its_chain() {
        for raw in ["tcp dport { 1, 2 } accept", "log prefix \"a; } # b\" drop", "iifname \"x\" counter"] {
            assert_eq!(check_raw(raw), Ok(()), "{raw}");
        }
        let wrong = [
            "accept } chain x { accept",
            "accept; drop",
            "accept # all",
            "include \"/etc/x\"",
            "accept\nflush ruleset",
            "log prefix \"x",
            "tcp dport { 1 accept",
            "policy drop",
            " ",
            "drop \\",
        ];
        for raw in wrong {
            assert!(check_raw(raw).is_err(), "{raw}");
        }
    }
}
