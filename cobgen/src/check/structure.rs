//! Checks that every name in use exists and that all forms fit together.
//!
//! Reports all problems, with places if the provenance knows them. The checks of the daemons when they read a bundle
//! (`Bundle::validate`) are the last safety net.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use cob_types::generation::{FORMAT, Security};
use cob_types::suggest::nearest;
use cob_types::words::count;
use cob_types::{BlobHash, Bundle, Cob, CobId, Generation, HostName, Kind, Need, StateName};
use cob_types::{canonical, codec};
use rayon::prelude::*;

use super::finding::{Finding, Findings, Step};
use crate::diagnostic::Severity;
use crate::draft::{Place, When};
use crate::provenance::Provenance;

/// The most unknown names that get a suggestion: each is compared with every existing name.
const MOST_SUGGESTIONS: usize = 20;

/// Reports all problems of names and forms.
pub(super) fn report(generation: &Generation, provenance: Option<&Provenance>, findings: &mut Findings) {
    manifest(generation, findings);
    addresses(generation, provenance, findings);
    let mut names = Names::of(generation, provenance);
    for bundle in generation.bundles.values() {
        let before = names.found;
        contents(bundle, findings);
        for cob in bundle.cobs.values() {
            match bundle.kinds.get(&cob.kind) {
                Some(kind) => names.cob(cob, kind, findings),
                None => names.fault(
                    findings,
                    format!("{} is of the kind {}, which its bundle does not have", cob.id, cob.kind),
                    names.place(&cob.id),
                    None,
                    String::new(),
                ),
            }
        }
        if let (true, Err(error)) = (names.found == before, bundle.validate()) {
            findings.push(damaged(error.to_string()));
        }
    }
}

fn damaged(message: String) -> Finding {
    Finding {
        severity: Severity::Error,
        code: "structure",
        message,
        place: None,
        steps: Vec::new(),
        help: "the generation is damaged or was not made by cobgen: generate it again".to_owned(),
    }
}

fn manifest(generation: &Generation, findings: &mut Findings) {
    let manifest = &generation.manifest;
    let mut fault = |message: String| findings.push(damaged(message));
    if manifest.format != FORMAT {
        fault(format!("the manifest has format {}; {FORMAT} is expected", manifest.format));
    }
    if manifest.generation <= manifest.parent {
        fault(format!("generation {} comes after {}, which is not lower", manifest.generation, manifest.parent));
    }
    let all: u64 = generation.bundles.values().map(|bundle| bundle.cobs.len() as u64).sum();
    if manifest.cobs != all {
        fault(format!("the manifest counts {}; the bundles hold {all}", count(manifest.cobs, "change object")));
    }
    for host in manifest.hosts.keys().filter(|host| !generation.bundles.contains_key(*host)) {
        fault(format!("the host {host} has no bundle"));
    }
    let hash = |buffer: &mut Vec<u8>, (host, bundle)| {
        let encoded = codec::encode_into(bundle, buffer);
        (host, encoded.is_ok().then(|| canonical::blob_hash(buffer)))
    };
    let hashes: BTreeMap<&HostName, Option<BlobHash>> =
        generation.bundles.par_iter().map_init(Vec::new, hash).collect();
    for (host, bundle) in &generation.bundles {
        if bundle.host != *host {
            fault(format!("the bundle filed under {host} is of {}", bundle.host));
        }
        let Some(entry) = manifest.hosts.get(host) else {
            fault(format!("the bundle of {host} is of no host of the manifest"));
            continue;
        };
        if entry.cobs != bundle.cobs.len() as u64 {
            fault(format!(
                "the manifest counts {} on {host}; its bundle holds {}",
                count(entry.cobs, "change object"),
                bundle.cobs.len()
            ));
        }
        if hashes.get(host).copied().flatten() != Some(entry.bundle) {
            fault(format!("the bundle of {host} does not have the hash that the manifest says"));
        }
    }
    let mut kinds: BTreeMap<_, (&Kind, &Bundle)> = BTreeMap::new();
    for bundle in generation.bundles.values() {
        for (name, kind) in &bundle.kinds {
            let (first, owner) = kinds.entry(name).or_insert((kind, bundle));
            if *first != kind {
                fault(format!("the kind {name} differs between the bundles of {} and {}", owner.host, bundle.host));
            }
        }
    }
}

/// Every content of a file must exist under its right hash, and every stored content must be in use.
fn contents(bundle: &Bundle, findings: &mut Findings) {
    let kinds = bundle.kinds.values().flat_map(|kind| kind.files.values());
    let cobs = bundle.cobs.values().flat_map(|cob| cob.files.values());
    let used: BTreeSet<_> = kinds.chain(cobs).map(|file| file.blob).collect();
    for blob in used.iter().filter(|blob| !bundle.blobs.contains_key(*blob)) {
        findings.push(damaged(format!("the bundle of {} lacks the content {blob} of a file", bundle.host)));
    }
    for (blob, bytes) in &bundle.blobs {
        if canonical::blob_hash(bytes) != *blob {
            findings.push(damaged(format!("the bundle of {} holds a content that is not {blob}", bundle.host)));
        }
        if !used.contains(blob) {
            findings
                .push(damaged(format!("the bundle of {} holds the content {blob}, which no file has", bundle.host)));
        }
    }
}

fn addresses(generation: &Generation, provenance: Option<&Provenance>, findings: &mut Findings) {
    let hosts = &generation.manifest.hosts;
    let place = |host: &cob_types::HostName| provenance.and_then(|p| p.hosts.get(host)).cloned();
    for (host, entry) in hosts {
        let Some(address) = &entry.address else { continue };
        let parsed: Option<SocketAddr> = address.strip_prefix("tcp://").and_then(|rest| rest.parse().ok());
        let (message, help) = match (parsed, generation.manifest.security) {
            (None, _) => (
                format!("the address {address} of {host} is not understood"),
                "write tcp://IP:PORT, for IPv6 tcp://[IP]:PORT".to_owned(),
            ),
            (Some(parsed), Security::LoopbackOnly) if !parsed.ip().is_loopback() => (
                format!(
                    "{host} has the address {address}, but `security: loopback-only` has neither keys nor signatures"
                ),
                "use addresses of 127.0.0.0/8 or ::1, or give the hosts identities".to_owned(),
            ),
            (Some(_), Security::Identities) if entry.keys.is_empty() => (
                format!("{host} has an address but no key, so other hosts can't verify that it is {host}"),
                "enrol it with `cobgen enroll`, or write its public key as `key: ed25519:…` at the host".to_owned(),
            ),
            (Some(_), Security::LoopbackOnly | Security::Identities) => continue,
        };
        // Only a warning: a command that makes a generation for a depot knows the enrolled hosts and refuses it.
        let keyless = parsed.is_some() && generation.manifest.security == Security::Identities;
        let severity = if keyless { Severity::Warning } else { Severity::Error };
        findings.push(Finding { severity, code: "address", message, place: place(host), steps: Vec::new(), help });
    }
    let mut silent: BTreeMap<&str, (&CobId, &CobId)> = BTreeMap::new();
    for cob in generation.bundles.values().flat_map(|bundle| bundle.cobs.values()) {
        for on in cob.needs().map(|need| &need.cob).filter(|on| on.host_str() != cob.id.host_str()) {
            for end in [&cob.id, on] {
                if hosts.get(end.host_str()).is_some_and(|host| host.address.is_none()) {
                    silent.entry(end.host_str()).or_insert((&cob.id, on));
                }
            }
        }
    }
    // Nodes that a number creates share a place, and a single word there gives addresses to all nodes.
    let mut standing: BTreeMap<Place, usize> = BTreeMap::new();
    let place_of = |host: &str| hosts.get_key_value(host).and_then(|(host, _)| place(host));
    for place in silent.keys().filter_map(|host| place_of(host)) {
        *standing.entry(place).or_default() += 1;
    }
    for (host, (cob, on)) in silent {
        let place = place_of(host);
        let here = match &place {
            Some(place) => standing.remove(place),
            None => Some(1),
        };
        // The first host of a place is reported for all.
        let Some(here) = here else { continue };
        let others = match here {
            1 => String::new(),
            n => format!("; the same holds for {} more hosts that are defined in the same place", n - 1),
        };
        findings.push(Finding {
            severity: Severity::Warning,
            code: "address",
            message: format!("{cob} needs {on} on another host, but {host} has no address{others}"),
            place,
            steps: Vec::new(),
            help: format!("give {host} an address: tcp://IP:PORT"),
        });
    }
}

/// All existing names, and the problems of the used names.
struct Names<'a> {
    /// For look-ups only: the order is not used.
    kinds: HashMap<&'a CobId, Option<&'a Kind>>,
    generation: &'a Generation,
    provenance: Option<&'a Provenance>,
    suggestions: BTreeMap<CobId, Option<&'a CobId>>,
    found: usize,
}

impl<'a> Names<'a> {
    fn of(generation: &'a Generation, provenance: Option<&'a Provenance>) -> Self {
        let bundles = generation.bundles.values();
        let kinds = bundles.flat_map(|b| b.cobs.iter().map(|(id, cob)| (id, b.kinds.get(&cob.kind)))).collect();
        Self { kinds, generation, provenance, suggestions: BTreeMap::new(), found: 0 }
    }

    fn place(&self, cob: &CobId) -> Option<Place> {
        self.provenance.and_then(|p| p.cob(cob)).cloned()
    }

    fn fault(
        &mut self,
        findings: &mut Findings,
        message: String,
        place: Option<Place>,
        step: Option<Step>,
        help: String,
    ) {
        self.found += 1;
        let steps = step.into_iter().collect();
        findings.push(Finding { severity: Severity::Error, code: "name", message, place, steps, help });
    }

    fn cob(&mut self, cob: &Cob, kind: &Kind, findings: &mut Findings) {
        let known = |state: &StateName| kind.has_state(state);
        let states = || format!("{} has {}", kind.name, joined(&kind.states));
        if !known(&cob.preferred) {
            let message = format!("{} prefers {}, a state that {} does not have", cob.id, cob.preferred, kind.name);
            self.fault(findings, message, self.place(&cob.id), None, states());
        }
        let mut moves = BTreeSet::new();
        for t in &cob.transitions {
            let when = When::Transition { from: t.from.clone(), to: t.to.clone() };
            if !kind.transitions.iter().any(|k| k.from == t.from && k.to == t.to) {
                let message = format!(
                    "{} has dependencies for {} -> {}, a transition that {} does not have",
                    cob.id, t.from, t.to, kind.name
                );
                let step = t.needs.first().map(|need| self.step(cob, &when, need));
                let moves: Vec<String> = kind.transitions.iter().map(|k| format!("{} -> {}", k.from, k.to)).collect();
                self.fault(
                    findings,
                    message,
                    self.place(&cob.id),
                    step,
                    format!("{} has {}", kind.name, moves.join(", ")),
                );
            }
            if !moves.insert((&t.from, &t.to)) {
                findings.push(damaged(format!("{} has two entries for {} -> {}", cob.id, t.from, t.to)));
            }
            self.needs(cob, &when, &t.needs, findings);
        }
        let mut promised = BTreeSet::new();
        for l in &cob.locks {
            let when = When::Lock { state: l.state.clone() };
            if !known(&l.state) {
                let message = format!(
                    "{} has dependencies for grants of {}, a state that {} does not have",
                    cob.id, l.state, kind.name
                );
                let step = l.needs.first().map(|need| self.step(cob, &when, need));
                self.fault(findings, message, self.place(&cob.id), step, states());
            }
            if !promised.insert(&l.state) {
                findings.push(damaged(format!("{} has two entries for grants of {}", cob.id, l.state)));
            }
            self.needs(cob, &when, &l.needs, findings);
        }
    }

    fn needs(&mut self, cob: &Cob, when: &When, needs: &[Need], findings: &mut Findings) {
        for need in needs {
            let of = self.kinds.get(&need.cob).copied();
            let (message, help) = match of {
                None => {
                    let help = match self.suggest(&need.cob) {
                        Some(near) => format!("did you mean {near}?"),
                        None => "name a change object of the model, HOST/NAME".to_owned(),
                    };
                    (format!("{} needs {}, which does not exist", cob.id, need.cob), help)
                }
                Some(_) if need.cob == cob.id => {
                    (format!("{} needs itself", cob.id), "remove this dependency".to_owned())
                }
                Some(None) => continue,
                Some(Some(kind)) => match need.states.iter().find(|state| !kind.has_state(state)) {
                    None => continue,
                    Some(state) => (
                        format!("{} needs {} {state}, a state that {} does not have", cob.id, need.cob, kind.name),
                        format!("{} has {}", kind.name, joined(&kind.states)),
                    ),
                },
            };
            let step = self.step(cob, when, need);
            self.fault(findings, message, step.place.clone(), Some(step), help);
        }
    }

    /// The need, with the words that it came from.
    fn step(&self, cob: &Cob, when: &When, need: &Need) -> Step {
        let text = match when {
            When::Transition { from, to } => format!("({}, {from}, {to}) <- {need}", cob.id),
            When::Lock { state } => format!("({}, {state}) <- {need}", cob.id),
        };
        let source = self.provenance.and_then(|p| p.sources(&cob.id, when, &need.cob).first());
        Step { text, words: source.map(|s| s.said.words.to_string()), place: source.map(|s| s.said.place.clone()) }
    }

    fn suggest(&mut self, unknown: &CobId) -> Option<&'a CobId> {
        if let Some(known) = self.suggestions.get(unknown) {
            return *known;
        }
        if self.suggestions.len() >= MOST_SUGGESTIONS {
            return None;
        }
        let mut all: Vec<&CobId> = self.generation.bundles.values().flat_map(|bundle| bundle.cobs.keys()).collect();
        all.sort_unstable();
        let near = nearest(unknown.as_str(), all.iter().map(|id| id.as_str()));
        let near = near.and_then(|near| all.iter().copied().find(|id| id.as_str() == near));
        let elsewhere = || all.iter().copied().find(|id| id.name() == unknown.name());
        let near = near.or_else(elsewhere);
        self.suggestions.insert(unknown.clone(), near);
        near
    }
}

fn joined(states: &[StateName]) -> String {
    states.iter().map(StateName::as_str).collect::<Vec<_>>().join(", ")
}
