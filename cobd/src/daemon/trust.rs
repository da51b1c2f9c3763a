//! The roster for the links, with the keys of the present generations, and the acceptance of messages.

use std::collections::{BTreeMap, BTreeSet};

use cob_trust::tls::Identity;
use cob_trust::{Publishers, SecretKey};
use cob_types::generation::Security;
use cob_types::link::parse_address;
use cob_types::{HostName, Item, Manifest, PublicKey};
use tracing::error;

use super::Daemon;
use crate::config::Config;
use crate::generations::Prepared;
use crate::identity::Keys;
use crate::peer::{Protection, Roster, RosterHost};

impl Daemon {
    /// Updates the roster with the hosts of the active and the pending generation, and the removed hosts: a switch
    /// needs links to all, and a key that either generation revokes is not trusted any more.
    pub(super) fn tell_roster(&mut self) {
        let active = self.present.manifest().map(|manifest| &**manifest);
        let coming = self.present.pending().map(|p| &*p.manifest);
        let introduction = self.present.introduction();
        self.reports.api().set_access(super::start::access(&self.config, active.or(introduction), coming));
        let manifests: Vec<&Manifest> = [active, coming, introduction].into_iter().flatten().collect();
        let keys = Keys::load(&self.config.identity).unwrap_or_else(|error| {
            error!("this host's key can't be read: {error}");
            Keys::default()
        });
        let ahead = self.ahead.meets();
        let parted = self.manifests_of_parted();
        let behind = self.switch.parted().iter();
        let behind = behind.filter_map(|(host, of)| Some((host, &**parted.get(&of.generation)?)));
        let named_me = behind.clone().find(|(host, _)| **host == self.config.host).map(|(_, manifest)| manifest);
        let also: Vec<&Manifest> = ahead.into_iter().chain(named_me).collect();
        let mut roster = roster(&self.config, &manifests, &also, &keys);
        if introduction.is_some() {
            // There is no reason yet to communicate with other hosts.
            roster.hosts.clear();
        }
        if let Some(ahead) = ahead {
            meet_ahead(&mut roster, ahead, &self.config.host);
        }
        keep_parted(&mut roster, behind, &self.config.host);
        let former: Vec<&Manifest> = parted.values().map(|manifest| &**manifest).chain(ahead).collect();
        let seen = manifests.iter().copied().chain(former);
        if self.neighbours.knows_nobody() {
            let kept: Vec<_> =
                self.generations.kept().iter().filter_map(|g| self.generations.manifest(*g).ok()).collect();
            self.neighbours.meet(kept.iter().map(|manifest| &**manifest));
        }
        self.neighbours.meet(seen);
        roster.young = active.is_none() && coming.is_none();
        let takes_part = manifests.iter().any(|m| m.hosts.contains_key(&self.config.host));
        self.neighbours.take_roster(roster, &keys, takes_part);
        self.listen_where_named();
    }

    /// Listens at the address in the pending generation, or else in the active generation.
    pub(super) fn listen_where_named(&mut self) {
        let active = self.present.active().map(Prepared::addresses).unwrap_or_default();
        let coming = self.present.pending().map(Prepared::addresses).unwrap_or_default();
        let me = &self.config.host;
        let named = coming.get(me).or_else(|| active.get(me)).copied();
        match named.filter(|_| self.config.listen.is_none()) {
            Some(address) => self.neighbours.listen(me, address, &active, self.clock.now()),
            None => self.neighbours.listen_as_before(),
        }
    }

    /// Handles a batch that arrived over the link of a host.
    pub(super) fn received(&mut self, host: &HostName, bytes: &[u8]) {
        let Some(mut batch) = self.neighbours.screen(host, bytes) else { return };
        let now = self.clock.now();
        let impossible = self.engine.keep_possible(&mut batch, now);
        self.neighbours.refuse_numbers(host, impossible);
        self.neighbours.limit_epochs(&mut batch, self.engine.epoch(), now);
        let all = batch.items.len();
        let of_switches = batch.items.extract_if(.., |i| i.is_of_switches());
        // Announcements of a host that is not a member yet do not count.
        let counts = self.is_member(host) || self.has_parted_with(host);
        let of_switches: Vec<Item> = of_switches.filter(|_| counts).collect();
        let greets = of_switches.iter().any(|item| matches!(item, Item::Going(_)));
        if !of_switches.is_empty() {
            self.engine.note_lamport(batch.lamport);
        }
        for item in of_switches {
            self.heard_of_switch(host, item);
        }
        self.asked_in_switch(&mut batch, greets);
        // A batch with announcements only concerns no change object.
        if all == 0 || !batch.items.is_empty() {
            self.inbox.divide(batch);
            self.take_part();
        }
    }

    /// Passes the next part of a host's batch to the engine, if there is one.
    pub(super) fn take_part(&mut self) -> bool {
        let Some(part) = self.inbox.part() else { return false };
        let (host, left_out) = (part.from.clone(), self.engine.left_out());
        self.feed(cob_engine::Event::Received(part));
        self.neighbours.too_much(&host, (self.engine.left_out() - left_out) as usize);
        self.neighbours.note_unheard(&host, self.engine.unheard(&host));
        true
    }
}

/// The protection of connections before the first roster.
pub(super) fn protection(config: &Config, prepared: [Option<&Prepared>; 2]) -> Protection {
    let with = prepared.into_iter().flatten().any(|p| p.manifest.security == Security::Identities);
    if with || config.trust.is_some() { Protection::Identities(None) } else { Protection::LoopbackOnly }
}

/// The roster for these manifests; `also`: further manifests for the choice of this host's key, if the first do not
/// name a key.
fn roster(config: &Config, manifests: &[&Manifest], also: &[&Manifest], keys: &Keys) -> Roster {
    let mut hosts: BTreeMap<HostName, RosterHost> = BTreeMap::new();
    let mut roster = Roster::default();
    for manifest in manifests {
        for (host, entry) in &manifest.hosts {
            let known = hosts.entry(host.clone()).or_default();
            // The addresses were verified when the generation was accepted.
            let address = entry.address.as_deref().and_then(|a| parse_address(a).ok());
            known.address = address.or(known.address);
            known.keys.extend(&entry.keys);
        }
        roster.operators.extend(manifest.operators.values().flat_map(|o| &o.keys));
        roster.revoked.extend(&manifest.revoked);
    }
    // A publisher may ask which generations this host knows; the API checks its further rights.
    roster.operators.extend(config.trust.iter().flat_map(Publishers::keys));
    let revoked: &BTreeSet<PublicKey> = &roster.revoked;
    hosts.values_mut().for_each(|h| h.keys.retain(|k| !revoked.contains(k)));
    roster.operators.retain(|k| !revoked.contains(k));
    roster.hosts = hosts;
    let with_identities = manifests.iter().any(|m| m.security == Security::Identities);
    if with_identities || (manifests.is_empty() && config.trust.is_some()) {
        let key = keys.to_show(&config.host, manifests);
        let believed = |key: &&SecretKey| !roster.revoked.contains(&key.public());
        let key = key.or_else(|| also.iter().find_map(|m| keys.to_show(&config.host, &[m]).filter(believed)));
        let own = key.and_then(|key| match Identity::new(key) {
            Ok(identity) => Some(identity),
            Err(error) => {
                error!("this host's key is unusable: {error}");
                None
            }
        });
        roster.protection = Protection::Identities(own);
    }
    roster
}

/// Adds the new hosts of a prepared generation: links to them are opened before the switch. Known hosts and the rights
/// of operators do not change.
fn meet_ahead(roster: &mut Roster, ahead: &Manifest, host: &HostName) {
    let as_protected = roster.protection.has_identities() == (ahead.security == Security::Identities);
    if !as_protected || !ahead.hosts.contains_key(host) {
        return;
    }
    for host in ahead.hosts.keys() {
        let met = entry_of(ahead, host, &roster.revoked).filter(|_| !roster.hosts.contains_key(host));
        roster.hosts.extend(met.map(|met| (host.clone(), met)));
    }
}

/// Adds the removed hosts, each as in the last generation that names it. A host whose keys are all revoked is left out,
/// and so is a host with a different protection.
fn keep_parted<'a>(roster: &mut Roster, parted: impl Iterator<Item = (&'a HostName, &'a Manifest)>, me: &HostName) {
    let with_identities = roster.protection.has_identities();
    for (host, manifest) in parted.filter(|(host, _)| *host != me) {
        let as_protected = with_identities == (manifest.security == Security::Identities);
        let kept = entry_of(manifest, host, &roster.revoked).filter(|of| !with_identities || !of.keys.is_empty());
        if let Some(kept) = kept.filter(|_| as_protected && !roster.hosts.contains_key(host)) {
            roster.hosts.insert(host.clone(), kept);
        }
    }
}

/// A host's entry in a manifest, with the keys that are not revoked.
fn entry_of(manifest: &Manifest, host: &HostName, revoked: &BTreeSet<PublicKey>) -> Option<RosterHost> {
    let entry = manifest.hosts.get(host)?;
    let believed = |key: &&PublicKey| !revoked.contains(key) && !manifest.revoked.contains(key);
    let address = entry.address.as_deref().and_then(|a| parse_address(a).ok());
    Some(RosterHost { address, keys: entry.keys.iter().filter(believed).copied().collect() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cob_trust::SecretKey;
    use cob_types::generation::ManifestHost;
    use cob_types::{BlobHash, GenerationNumber};

    use super::*;

    fn name(text: &str) -> HostName {
        HostName::new(text).expect("a name")
    }

    fn key(n: u8) -> PublicKey {
        SecretKey::from_seed(&[n; 32]).public()
    }

    fn manifest(number: u64, hosts: &[(&str, u16, &[PublicKey])], revoked: &[PublicKey]) -> Manifest {
        let security =
            if hosts.iter().any(|h| !h.2.is_empty()) { Security::Identities } else { Security::LoopbackOnly };
        let mut manifest = Manifest::empty(GenerationNumber(number), GenerationNumber(number - 1), security);
        for (host, port, keys) in hosts {
            let address = Some(format!("tcp://127.0.0.1:{port}"));
            let entry = ManifestHost { address, keys: keys.to_vec(), bundle: BlobHash([0; 32]), cobs: 0 };
            manifest.hosts.insert(name(host), entry);
        }
        manifest.revoked = revoked.iter().copied().collect();
        manifest
    }

    fn told(manifests: &[&Manifest]) -> Roster {
        let config = Config::new(name("n1"), Path::new("/depot"), Path::new("/state"));
        roster(&config, manifests, &[], &Keys::default())
    }

    #[test]
    fn a_prepared_generation_adds_only_its_new_hosts() {
        let active = manifest(7, &[("n1", 1, &[key(1)]), ("n2", 2, &[key(2)])], &[key(9)]);
        let new: &[PublicKey] = &[key(3), key(8), key(9)];
        let mut ahead = manifest(8, &[("n1", 1, &[key(1)]), ("n2", 5, &[key(4)]), ("n3", 3, new)], &[key(2), key(8)]);
        let met = |ahead: &Manifest, host: &str| {
            let mut roster = told(&[&active]);
            meet_ahead(&mut roster, ahead, &name(host));
            roster
        };
        let mut expected = told(&[&active]).hosts;
        let n3 = RosterHost { address: Some(([127, 0, 0, 1], 3).into()), keys: [key(3)].into() };
        expected.insert(name("n3"), n3);
        let roster = met(&ahead, "n1");
        assert_eq!(roster.hosts, expected, "n2 keeps its address and key until `go`");
        assert_eq!(roster.revoked, [key(9)].into());
        assert_eq!(met(&ahead, "n9").hosts, told(&[&active]).hosts, "a host outside the generation has no links");
        ahead.security = Security::LoopbackOnly;
        assert_eq!(met(&ahead, "n1").hosts, told(&[&active]).hosts, "no connection changes its protection");
    }

    #[test]
    fn a_host_left_behind_keeps_its_link_unless_its_key_is_revoked() {
        let before = manifest(7, &[("n1", 1, &[key(1)]), ("n2", 2, &[key(2)]), ("n3", 3, &[key(3)])], &[]);
        let active = manifest(8, &[("n1", 1, &[key(1)])], &[key(3)]);
        let (n1, n2, n3) = (name("n1"), name("n2"), name("n3"));
        let kept = |active: &Manifest, before: &Manifest| {
            let mut roster = told(&[active]);
            keep_parted(&mut roster, [&n1, &n2, &n3].map(|host| (host, before)).into_iter(), &n1);
            roster
        };
        let roster = kept(&active, &before);
        let mut expected = told(&[&active]).hosts;
        let met = RosterHost { address: Some(([127, 0, 0, 1], 2).into()), keys: [key(2)].into() };
        expected.insert(n2.clone(), met);
        assert_eq!(roster.hosts, expected, "n3 has no key that is believed");
        assert!(roster.operators.is_empty());
        let plain = manifest(7, &[("n1", 1, &[]), ("n2", 2, &[])], &[]);
        assert_eq!(kept(&active, &plain).hosts, told(&[&active]).hosts, "no connection changes its protection");
        let now = manifest(8, &[("n1", 1, &[]), ("n2", 5, &[])], &[]);
        let port = |roster: Roster| roster.hosts[&n2].address.map(|a| a.port());
        assert_eq!(port(kept(&now, &plain)), Some(5), "the active generation comes first");
    }

    #[test]
    fn the_roster_has_the_keys_of_both_generations_except_revoked_keys() {
        let active = manifest(7, &[("n1", 1, &[key(1)]), ("n2", 2, &[key(2)])], &[key(9)]);
        let coming = manifest(8, &[("n1", 1, &[key(1), key(3)]), ("n3", 3, &[key(4), key(9)])], &[key(2)]);
        let roster = told(&[&active, &coming]);
        let keys =
            |host: &str| roster.hosts[&name(host)].keys.iter().copied().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(keys("n1"), [key(1), key(3)].into());
        assert_eq!(keys("n2"), [].into(), "revoked by the coming generation");
        assert_eq!(keys("n3"), [key(4)].into(), "revoked by the active generation");
        assert_eq!(roster.revoked, [key(2), key(9)].into());
        assert!(roster.protection.has_identities());
        let moved = manifest(8, &[("n1", 5, &[key(1)])], &[]);
        assert_eq!(told(&[&active, &moved]).hosts[&name("n1")].address.map(|a| a.port()), Some(5));
    }

    #[test]
    fn a_single_generation_with_identities_ends_unencrypted_links() {
        let plain = manifest(7, &[("n1", 1, &[])], &[]);
        let keyed = manifest(8, &[("n1", 1, &[key(1)])], &[]);
        assert!(!told(&[&plain]).protection.has_identities());
        assert!(told(&[&plain, &keyed]).protection.has_identities());
        assert!(told(&[&keyed, &plain]).protection.has_identities());
    }
}
