//! Identities in a model: keys of hosts, revoked keys, operators.
//!
//! A host's keys are in the model, or the host has enrolled in the depot; the model has priority. A key is a single
//! identity: it belongs to a single host or operator.

use std::collections::{BTreeMap, BTreeSet};

use cob_depot::enrolled::Enrolments;
use cob_types::BlobHash;
use cob_types::generation::Security;
use cob_types::trust::{Operator, PublicKey, Role};

use super::hosts::Hosts;
use super::{Known, Report};
use crate::diagnostic::Diagnostic;
use crate::model::{KeySet, Mark, Marked, OperatorEntry, RoleEntry, Sections};

/// Keys of hosts by host name.
pub type Keys = BTreeMap<cob_types::HostName, Vec<PublicKey>>;

/// The most keys of a host or operator: the old and the new key.
const MAX_KEYS: usize = 2;

/// The identities of a model.
#[derive(Debug, Default)]
pub(super) struct Trust {
    pub(super) keys: Keys,
    pub(super) revoked: BTreeSet<PublicKey>,
    pub(super) operators: BTreeMap<String, Operator>,
}

impl Trust {
    /// Reads the identities. Without `known.enrolled` enrolments are unknown: the check warns of hosts without a key.
    pub(super) fn read(
        sections: &Sections,
        security: Option<Security>,
        hosts: &Hosts,
        known: &Known<'_>,
        report: &mut Report<'_>,
    ) -> Self {
        let mut reader = Reader { revoked: BTreeMap::new(), owners: BTreeMap::new(), report };
        reader.read_revoked(&sections.revoked);
        let mut trust = Self::default();
        for (name, entry) in sections.hosts.iter() {
            if let (Some((host, _)), Some(keys)) = (hosts.0.get_key_value(name.value.as_str()), &entry.key) {
                trust.keys.insert(host.clone(), reader.keys(keys, &format!("host {host}")));
            }
        }
        for (name, entry) in sections.operators.iter() {
            trust.operators.extend(reader.operator(name, entry).map(|operator| (name.value.clone(), operator)));
        }
        match security {
            Some(Security::LoopbackOnly) => {
                reader.without_effect(sections);
                return Self::default();
            }
            Some(Security::Identities) => {
                reader.hidden(sections, known.enrolled, &trust.keys);
                reader.enrolled(hosts, known.enrolled, &mut trust.keys);
                trust.revoked = reader.replaced_by_enrolment(known.enrolled);
                reader.replaced(sections, hosts, (known.before, &trust.keys), &trust.revoked);
            }
            None => {}
        }
        trust.revoked.extend(reader.revoked.into_keys());
        trust
    }
}

struct Reader<'a, 'r> {
    revoked: BTreeMap<PublicKey, Mark>,
    /// The owner of each key, with the place in the model; without a place the key was enrolled.
    owners: BTreeMap<PublicKey, (String, Option<Mark>)>,
    report: &'a mut Report<'r>,
}

impl Reader<'_, '_> {
    fn read_revoked(&mut self, keys: &[Marked<String>]) {
        for key in keys {
            if let Some(parsed) = self.key(key) {
                self.revoked.entry(parsed).or_insert(key.mark);
            }
        }
    }

    fn key(&mut self, text: &Marked<String>) -> Option<PublicKey> {
        match text.value.parse() {
            Ok(key) => Some(key),
            Err(error) => {
                let fault = Diagnostic::error("bad-key", format!("{error}"))
                    .help("`cobgen key FILE` prints public keys as they are written here");
                self.report.push(text.mark, fault);
                None
            }
        }
    }

    /// The usable keys of a host or operator.
    fn keys(&mut self, set: &KeySet, owner: &str) -> Vec<PublicKey> {
        if let Some(third) = set.0.get(MAX_KEYS) {
            let fault = Diagnostic::error("too-many-keys", format!("{owner} has {} keys", set.0.len()))
                .help("write a single key, or the old and the new key during a replacement");
            self.report.push(third.mark, fault);
        }
        let mut found = Vec::new();
        for text in &set.0 {
            let Some(key) = self.key(text) else { continue };
            if let Some(revoked) = self.revoked.get(&key) {
                let fault = Diagnostic::error("revoked-key", format!("the key of {owner} is revoked"))
                    .note(Some(self.report.place(*revoked)), "revoked here")
                    .help(format!("make a new key for {owner} and use the new key"));
                self.report.push(text.mark, fault);
            } else if self.claim(key, owner, text.mark) {
                found.push(key);
            }
        }
        found
    }

    /// Records the owner of a key; a key with another owner is a fault.
    fn claim(&mut self, key: PublicKey, owner: &str, mark: Mark) -> bool {
        let Some((other, first)) = self.owners.get(&key) else {
            self.owners.insert(key, (owner.to_owned(), Some(mark)));
            return true;
        };
        let message = if other == owner {
            format!("{owner} has the same key twice")
        } else {
            format!("{owner} has the key of {other}")
        };
        let mut fault = Diagnostic::error("duplicate-key", message)
            .help("a key is an identity: make a key for every host and operator, on the machine where it is used");
        if let Some(first) = first {
            fault = fault.note(Some(self.report.place(*first)), "first named here");
        }
        self.report.push(mark, fault);
        false
    }

    fn operator(&mut self, name: &Marked<String>, entry: &OperatorEntry) -> Option<Operator> {
        let errors = self.report.errors();
        self.report.segment("operator", name);
        let owner = format!("operator {}", name.value);
        let keys = entry.key.as_ref().map(|keys| self.keys(keys, &owner)).unwrap_or_default();
        let token = entry.token_sha256.as_ref().and_then(|text| self.token(text));
        if entry.key.is_none() && entry.token_sha256.is_none() && errors == self.report.errors() {
            let fault = Diagnostic::error("no-proof", format!("{owner} has neither `key` nor `token_sha256`")).help(
                "name a key (`cobgen key FILE` makes a key) or the SHA-256 of a token: either proves the identity",
            );
            self.report.push(name.mark, fault);
        }
        // A missing or wrong role is already reported with the structure.
        let role = match entry.role? {
            RoleEntry::Look => Role::Look,
            RoleEntry::Operate => Role::Operate,
            RoleEntry::Administer => Role::Administer,
        };
        Some(Operator { role, keys, token })
    }

    fn token(&mut self, text: &Marked<String>) -> Option<BlobHash> {
        let hash = from_hex(&text.value);
        if hash.is_none() {
            // The text is not shown: it may be the token itself.
            let fault = Diagnostic::error("bad-token", "`token_sha256` is not 64 hexadecimal digits")
                .help("write the SHA-256 of the token, never the token: `printf %s TOKEN | sha256sum`");
            self.report.push(text.mark, fault);
        }
        hash
    }

    /// Adds enrolled keys of hosts without a key in the model; reports hosts without any key.
    fn enrolled(&mut self, hosts: &Hosts, enrolled: Option<&Enrolments>, keys: &mut Keys) {
        let mut without: Vec<(&cob_types::HostName, Mark)> = Vec::new();
        for host in hosts.0.values() {
            if keys.contains_key(&host.name) {
                continue;
            }
            let known = enrolled.and_then(|all| all.keys.get(&host.name)).into_iter().flatten();
            let mut usable: Vec<PublicKey> = known.copied().filter(|key| !self.revoked.contains_key(key)).collect();
            usable.retain(|key| self.claim(*key, &format!("host {}", host.name), host.mark));
            if usable.is_empty() && host.has_address {
                without.push((&host.name, host.mark));
            }
            keys.insert(host.name.clone(), usable);
        }
        if enrolled.is_some() {
            for (host, mark) in without {
                let fault = Diagnostic::error("no-key", format!("host {host} has an address and no key"))
                    .note(
                        None,
                        "without a key the host can't prove its identity, so other hosts refuse its connections",
                    )
                    .help(
                        "enrol it (docs/how-to/enroll-hosts.md), or write its key here: `key: ed25519:…`, as it prints it",
                    );
                self.report.push(mark, fault);
            }
        }
    }

    /// The old keys of hosts that enrolled again, except keys in the model: they are revoked as if the model said so.
    fn replaced_by_enrolment(&self, enrolled: Option<&Enrolments>) -> BTreeSet<PublicKey> {
        let replaced = enrolled.into_iter().flat_map(|all| &all.revoked);
        replaced.filter(|key| !self.owners.contains_key(*key)).copied().collect()
    }

    /// Warns of hosts that enrolled with another key than the model names: the model's key counts.
    fn hidden(&mut self, sections: &Sections, enrolled: Option<&Enrolments>, keys: &Keys) {
        for (host, named) in keys {
            let newest = enrolled.and_then(|all| all.keys.get(host)?.last());
            let Some(newest) = newest.filter(|key| !named.contains(key) && !self.revoked.contains_key(key)) else {
                continue;
            };
            let Some(mark) = key_mark(sections, host).filter(|_| !named.is_empty()) else { continue };
            let message = format!("host {host} has enrolled with {newest}, and the model names {}", list(named));
            let fault = Diagnostic::warning("other-key", message)
                .note(None, "the model's key counts: other hosts refuse a host that has only the other key")
                .help(format!(
                    "find out which key {host} has (`cobd init` there prints it); remove `key` to use the enrolled \
                     key, or put the other key under `revoked` if it is not the host's"
                ));
            self.report.push(mark, fault);
        }
    }

    /// Warns of hosts whose keys have all changed: no generation accepts both the old and the new key.
    fn replaced(
        &mut self,
        sections: &Sections,
        hosts: &Hosts,
        (before, keys): (&Keys, &Keys),
        revoked: &BTreeSet<PublicKey>,
    ) {
        for host in hosts.0.values() {
            let (Some(old), Some(new)) = (before.get(&host.name), keys.get(&host.name)) else { continue };
            let still = |key: &&PublicKey| !self.revoked.contains_key(*key) && !revoked.contains(*key);
            let old: Vec<PublicKey> = old.iter().filter(still).copied().collect();
            if old.is_empty() || new.is_empty() || old.iter().any(|key| new.contains(key)) {
                continue;
            }
            let name = &host.name;
            let message = format!("host {name} loses its key {} and gets {} at once", list(&old), list(new));
            let fault = Diagnostic::warning("replaced-key", message)
                .note(
                    None,
                    "hosts refuse the new key before their switch and the old key after it: the links with this host \
                     break until all have switched",
                )
                .help(format!(
                    "list both for one generation, `key: [\"{}\", \"{}\"]`, switch all hosts to it, then remove the \
                     old key; if the old key is lost or stolen, put it under `revoked`",
                    old[0], new[0]
                ));
            let mark = key_mark(sections, name).unwrap_or(host.mark);
            self.report.push(mark, fault);
        }
    }

    fn without_effect(&mut self, sections: &Sections) {
        let host = sections.hosts.iter().find_map(|(_, entry)| Some(entry.key.as_ref()?.0.first()?.mark));
        let operator = sections.operators.iter().map(|(name, _)| name.mark).next();
        let revoked = sections.revoked.first().map(|key| key.mark);
        if let Some(mark) = host.or(operator).or(revoked) {
            let fault =
                Diagnostic::warning("no-effect", "keys and operators have no effect under `security: loopback-only`")
                    .help("leave `security` out, so that every host proves its identity");
            self.report.push(mark, fault);
        }
    }
}

/// The place in the model that names the keys of a host.
fn key_mark(sections: &Sections, host: &cob_types::HostName) -> Option<Mark> {
    let (_, entry) = sections.hosts.iter().find(|(name, _)| name.value == host.as_str())?;
    Some(entry.key.as_ref()?.0.first()?.mark)
}

fn list(keys: &[PublicKey]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn from_hex(text: &str) -> Option<BlobHash> {
    BlobHash::of_hex(&text.to_ascii_lowercase())
}
