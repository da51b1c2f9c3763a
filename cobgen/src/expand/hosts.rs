//! Hosts: names, addresses, labels, and their values in templates.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use cob_types::HostName;
use cob_types::generation::Security;
use cob_types::words::list;
use minijinja::value::Value as Jinja;

use super::Report;
use super::template::{Names, Templates, to_jinja};
use crate::diagnostic::Diagnostic;
use crate::model::{HostEntry, HostPick, HostSet, Mark, Marked, Mode, Named, Node, did_you_mean_or_list};

/// A host of the model.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: HostName,
    pub(crate) mark: Mark,
    pub(super) address: Option<String>,
    /// The model has a wrong address, which is already reported.
    pub(super) misaddressed: bool,
    /// Whether the model has an address for it, right or wrong.
    pub(super) has_address: bool,
    /// `NAME=VALUE` for each label.
    pub(super) labels: BTreeMap<String, String>,
    /// The names of labels whose values were written as numbers.
    numbers: BTreeSet<String>,
    /// The host was made for a cluster that requests a number of nodes; its place is the cluster's.
    pub(super) implied: bool,
    /// Its types, if the model names them.
    pub(crate) hardwaretype: Option<String>,
    pub(crate) imagetype: Option<String>,
    /// Its change objects are observed by default.
    pub(super) observe: bool,
    /// Its own variables.
    pub(super) vars: BTreeMap<String, Jinja>,
    /// `host` in templates.
    pub(super) value: Jinja,
}

/// All hosts by name.
#[derive(Debug, Default)]
pub(crate) struct Hosts(pub(crate) BTreeMap<HostName, Host>, ByLabel, ByNumber);

/// The hosts with each label, `role` and `role=app`: many change objects name the same few labels.
type ByLabel = BTreeMap<String, BTreeSet<HostName>>;
/// The hosts with labels written as numbers: by the normalized label `rack=1`, then by the spelling of each host.
type ByNumber = BTreeMap<String, BTreeMap<String, BTreeSet<HostName>>>;

impl Hosts {
    /// Checks every host; a host with a wrong address is kept without its address.
    pub(super) fn read(
        entries: &Named<HostEntry>,
        security: Option<Security>,
        templates: &Templates,
        report: &mut Report<'_>,
    ) -> Self {
        let mut hosts = BTreeMap::new();
        let mut listening: BTreeMap<String, (HostName, Mark)> = BTreeMap::new();
        for (name, entry) in entries.iter() {
            let Some(host) = report.name(name, HostName::new) else { continue };
            let read = Host::read(host.clone(), name.mark, entry, (security, templates), report);
            if let (Some(address), Some(mark)) = (&read.address, entry.address.as_ref().map(|a| a.mark))
                && let Some((other, first)) = listening.insert(address.clone(), (host.clone(), mark))
            {
                let fault = Diagnostic::error("duplicate-address", format!("{host} has the address of {other}"))
                    .note(Some(report.place(first)), "first used here")
                    .help("give every host an address and port of its own");
                report.push(mark, fault);
            }
            hosts.insert(host, read);
        }
        let mut all = Self::default();
        hosts.into_values().for_each(|host| all.insert(host));
        all
    }

    fn insert(&mut self, host: Host) {
        // A label with `=` in its key can't be selected: the first `=` ends the key.
        for (key, value) in host.labels.iter().filter(|(key, _)| !key.contains('=')) {
            for label in [key.clone(), format!("{key}={value}")] {
                self.1.entry(label).or_default().insert(host.name.clone());
            }
        }
        for key in &host.numbers {
            if let Some(value) = host.labels.get(key)
                && let Some(label) = by_number(key, value)
            {
                self.2.entry(label).or_default().entry(value.clone()).or_default().insert(host.name.clone());
            }
        }
        self.0.insert(host.name.clone(), host);
    }

    /// Warns of hosts that a label does not match because they spell the same number differently.
    pub(super) fn warn_of_spelling(&self, label: &str, mark: Mark, report: &mut Report<'_>) {
        let Some((key, value)) = label.split_once('=') else { return };
        let Some(spelt) = by_number(key, value).and_then(|label| self.2.get(&label)) else { return };
        for (other, hosts) in spelt.iter().filter(|(other, _)| *other != value) {
            let what = format!("`{label}` does not match {}, which has the label `{key}: {other}`", list(hosts, 3));
            let help = format!(
                "labels are compared as texts: write both alike; if the labels shall differ, write `{key}: \
                 \"{other}\"`"
            );
            report.push(mark, Diagnostic::warning("label-spelling", what).help(help));
        }
    }

    /// Adds hosts made for a cluster; the model has no entries for these hosts.
    pub(super) fn add(
        &mut self,
        entries: &Named<HostEntry>,
        security: Option<Security>,
        templates: &Templates,
        report: &mut Report<'_>,
    ) {
        let taken: BTreeMap<String, HostName> =
            self.0.values().filter_map(|h| Some((h.address.clone()?, h.name.clone()))).collect();
        let more = Self::read(entries, security, templates, report);
        for (name, mut host) in more.0 {
            host.implied = true;
            if let Some(other) = host.address.as_ref().and_then(|a| taken.get(a)) {
                let fault = Diagnostic::error("duplicate-address", format!("{name} has the address of {other}"));
                report.push(host.mark, fault.help("give every host an address and port of its own"));
            }
            self.insert(host);
        }
    }

    /// Adds the known facts of the hosts.
    pub(super) fn learn(&mut self, facts: &Named<Node>) {
        for (name, facts) in facts.iter() {
            if let Some(host) = self.0.get_mut(name.value.as_str()) {
                host.value = host.value_with(to_jinja(facts));
            }
        }
    }

    /// The hosts that a set names, in written order, without duplicates; hosts of a label are sorted by name.
    pub(crate) fn of_set(&self, set: &HostSet, report: &mut Report<'_>) -> Vec<HostName> {
        let mut found: Vec<HostName> = Vec::new();
        let mut seen: BTreeSet<&HostName> = BTreeSet::new();
        for pick in &set.0 {
            let hosts = self.of_pick(&pick.value, pick.mark, report);
            found.extend(hosts.into_iter().filter(|h| seen.insert(h)).cloned());
        }
        found
    }

    /// Whether every name and label of a set exists.
    pub(crate) fn has_all_of(&self, set: &HostSet) -> bool {
        set.0.iter().all(|pick| match &pick.value {
            HostPick::Host(name) => self.0.contains_key(name.as_str()),
            HostPick::Label(label) => self.labelled(label).next().is_some(),
        })
    }

    /// The hosts of a single name or label.
    pub(super) fn of_pick<'a>(&'a self, pick: &HostPick, mark: Mark, report: &mut Report<'_>) -> Vec<&'a HostName> {
        match pick {
            HostPick::Host(name) => self.named(name, mark, report).map(|h| &h.name).into_iter().collect(),
            HostPick::Label(label) => {
                let found: Vec<&HostName> = self.labelled(label).collect();
                if found.is_empty() {
                    let known = self.labels();
                    let fault = Diagnostic::error("unknown-label", format!("no host has the label `{label}`"))
                        .maybe_help(did_you_mean_or_list(label, known.iter().map(String::as_str)));
                    report.push(mark, fault);
                } else {
                    self.warn_of_spelling(label, mark, report);
                }
                found
            }
        }
    }

    /// The host with a name; an unknown name is an error with a suggestion.
    pub(super) fn named(&self, name: &str, mark: Mark, report: &mut Report<'_>) -> Option<&Host> {
        let found = self.0.get(name);
        if found.is_none() {
            report.unknown("host", &Marked { mark, value: name.to_owned() }, self.0.keys().map(HostName::as_str));
        }
        found
    }

    /// The hosts with a label.
    pub(super) fn labelled<'a>(&'a self, label: &str) -> impl Iterator<Item = &'a HostName> + use<'a> {
        self.1.get(label).into_iter().flatten()
    }

    /// The hosts of each label.
    pub(super) fn by_label(&self) -> BTreeMap<String, BTreeSet<HostName>> {
        let mut all: BTreeMap<String, BTreeSet<HostName>> = BTreeMap::new();
        for host in self.0.values() {
            for label in host.label_texts() {
                all.entry(label).or_default().insert(host.name.clone());
            }
        }
        all
    }

    /// Every label that some host has.
    pub(super) fn labels(&self) -> Vec<String> {
        let mut all: Vec<String> = self.0.values().flat_map(Host::label_texts).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl Host {
    fn read(
        name: HostName,
        mark: Mark,
        entry: &HostEntry,
        (security, templates): (Option<Security>, &Templates),
        report: &mut Report<'_>,
    ) -> Self {
        let labels: BTreeMap<String, String> =
            entry.labels.iter().map(|(k, v)| (k.value.clone(), v.text.clone())).collect();
        let numbers = entry.labels.iter().filter(|(_, v)| v.is_number).map(|(k, _)| k.value.clone()).collect();
        let vars: BTreeMap<String, Jinja> = entry.vars.iter().map(|(k, v)| (k.value.clone(), to_jinja(v))).collect();
        let mut host = Self {
            value: Jinja::from(()),
            name: name.clone(),
            mark,
            address: None,
            misaddressed: false,
            has_address: entry.address.is_some(),
            implied: false,
            hardwaretype: entry.hardwaretype.as_ref().map(|t| t.value.clone()),
            imagetype: entry.imagetype.as_ref().map(|t| t.value.clone()),
            observe: entry.mode.as_ref().is_some_and(|mode| mode.value == Mode::Observe),
            labels,
            numbers,
            vars,
        };
        let none = || Jinja::from(BTreeMap::<String, Jinja>::new());
        host.value = host.value_with(none());
        if let Some(written) = &entry.address {
            let text = templates.text(&written.value, written.mark, &OwnNames(&host), report);
            let address = text.and_then(|text| address_of(&text, security, written.mark, report));
            host.misaddressed = address.is_none();
            host.address = address.map(|a| format!("tcp://{a}"));
            host.value = host.value_with(none());
        }
        host
    }

    /// The value of `host` in templates.
    fn value_with(&self, facts: Jinja) -> Jinja {
        Jinja::from_pairs([
            ("name", Jinja::from(self.name.as_str())),
            ("ip", self.ip().map_or_else(|| Jinja::from(()), Jinja::from)),
            ("labels", Jinja::from(self.labels.clone())),
            ("vars", Jinja::from(self.vars.clone())),
            ("facts", facts),
        ])
    }

    /// Its IP address as text.
    pub(super) fn ip(&self) -> Option<String> {
        let address = self.address.as_ref()?.strip_prefix("tcp://")?;
        Some(address.parse::<SocketAddr>().ok()?.ip().to_string())
    }

    /// Whether it has a label: `role=app`, or `role` with any value.
    pub(super) fn has_label(&self, label: &str) -> bool {
        match label.split_once('=') {
            Some((key, value)) => self.labels.get(key).is_some_and(|v| v == value),
            None => self.labels.contains_key(label),
        }
    }

    /// Its labels in the form that selects hosts.
    pub(super) fn label_texts(&self) -> impl Iterator<Item = String> {
        self.labels.iter().map(|(k, v)| if v.is_empty() { k.clone() } else { format!("{k}={v}") })
    }
}

/// `rack=1` for a label of this number in any spelling: `01`, `1.0`.
fn by_number(key: &str, value: &str) -> Option<String> {
    if let Ok(whole) = value.parse::<i128>() {
        return Some(format!("{key}={whole}"));
    }
    let number = value.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some(format!("{key}={number}"))
}

/// Parses `tcp://IP:PORT`. Without identities only loopback addresses are allowed.
fn address_of(text: &str, security: Option<Security>, mark: Mark, report: &mut Report<'_>) -> Option<SocketAddr> {
    let parsed = text.strip_prefix("tcp://").and_then(|rest| rest.parse::<SocketAddr>().ok());
    let fault = match parsed {
        None => Diagnostic::error("bad-address", format!("{text:?} is not an address"))
            .help("write tcp://IP:PORT, for example tcp://127.0.0.1:7077 or tcp://[::1]:7077; names are not looked up"),
        Some(a) if a.port() == 0 => Diagnostic::error("bad-address", format!("{text:?} has no port"))
            .help("other hosts need the port: name a port from 1 to 65535"),
        Some(a) if a.ip().is_unspecified() || a.ip().is_multicast() => {
            Diagnostic::error("bad-address", format!("{text:?} is not the address of a single host"))
                .help("name the address at which the other hosts reach it")
        }
        Some(a) if security == Some(Security::LoopbackOnly) && !a.ip().is_loopback() => Diagnostic::error(
            "not-loopback",
            format!("{text:?} is not a loopback address, but the model says `security: loopback-only`"),
        )
        .help("links between machines need keys: leave `security` out and give every host its `key`; or use 127.0.0.0/8 or [::1]"),
        Some(address) => return Some(address),
    };
    report.push(mark, fault);
    None
}

/// The names in an address template: the host's own values.
struct OwnNames<'a>(&'a Host);

impl Names for OwnNames<'_> {
    fn get(&self, name: &str) -> Option<Jinja> {
        if name == "host" { Some(self.0.value.clone()) } else { self.0.vars.get(name).cloned() }
    }
    fn known(&self) -> Vec<String> {
        self.0.vars.keys().cloned().chain(["host".to_owned()]).collect()
    }
    fn of(&self) -> String {
        format!("host {}", self.0.name)
    }
}

/// A group of variables for templates.
pub(super) fn variables(entries: &Named<Node>) -> BTreeMap<String, Jinja> {
    entries.iter().map(|(k, v)| (k.value.clone(), to_jinja(v))).collect()
}
