//! Generations: the published manifest, and the bundles of the hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::askers::Askers;
use crate::canonical::blob_hash;
use crate::cob::Cob;
use crate::codec;
use crate::groups::{Groups, Services};
use crate::id::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, KindName, StateName};
use crate::kind::{Kind, PayloadFile, check_payload_name};
use crate::maintenance::Timetable;
use crate::switch::{SwitchOrder, SwitchPolicy};
use crate::trust::{Operator, PublicKey};

/// The format of bundles and manifests written here.
pub const FORMAT: u32 = 1;
/// The largest bundle that is read, in bytes.
pub const MAX_BUNDLE: usize = 256 << 20;
/// The largest manifest that is read, in bytes.
pub const MAX_MANIFEST: usize = 64 << 20;

/// The part of a generation that all hosts share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Its number.
    pub generation: GenerationNumber,
    /// The generation on which it was based; zero: none.
    pub parent: GenerationNumber,
    /// The protection of links.
    pub security: Security,
    /// All hosts of the model, also hosts without change objects.
    pub hosts: BTreeMap<HostName, ManifestHost>,
    /// The number of change objects in all bundles.
    pub cobs: u64,
    /// Keys that no longer count, no matter where they are named. Links with a host of a revoked key are cut as soon as
    /// a host learns of this generation.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub revoked: BTreeSet<PublicKey>,
    /// The operators that may give orders over the network, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operators: BTreeMap<String, Operator>,
    /// Rollback targets: earlier generations to which a host may roll back from this generation without a new
    /// signature. The signature of this generation covers them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub back: Vec<RollbackTarget>,
    /// The switch orders from earlier generations to this generation, and from this generation back to its [rollback
    /// targets](Self::back).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchOrder>,
    /// The switch policy of this generation.
    #[serde(default, skip_serializing_if = "SwitchPolicy::is_default")]
    pub policy: SwitchPolicy,
    /// It fixes a fault of the earlier generations, so neither it nor a later generation has these as rollback targets.
    /// Read when generations are made; hosts use [`back`](Self::back).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mends: bool,
    /// The hosts of labels and of the services of clusters, by which tools select.
    #[serde(default, skip_serializing_if = "Groups::is_empty")]
    pub groups: Groups,
    /// Maintenance windows and schedules of hosts.
    #[serde(default, skip_serializing_if = "Timetable::is_empty")]
    pub timetable: Timetable,
}

/// A rollback target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackTarget {
    /// Its number.
    pub generation: GenerationNumber,
    /// Hash of its manifest's bytes.
    pub manifest: BlobHash,
}

/// The protection of links between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// No keys and no signatures; every address is a loopback address.
    LoopbackOnly,
    /// Every host has a key and proves it on every link; every generation is signed.
    Identities,
}

/// A host in the manifest.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestHost {
    /// `tcp://IP:PORT`; absent: the host has no link to others.
    pub address: Option<String>,
    /// The keys with which the host proves its identity: a single key, or the old and the new key during a rollover.
    /// Empty under [`Security::LoopbackOnly`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<PublicKey>,
    /// Hash of the bundle's bytes.
    pub bundle: BlobHash,
    /// The number of change objects in the bundle.
    pub cobs: u64,
}

/// The part of a generation for a host. It does not contain the generation's number: the bundle of an unchanged host is
/// byte for byte the same in the next generation, and costs no space.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// [`FORMAT`].
    pub format: u32,
    /// The host.
    pub host: HostName,
    /// The kinds of its change objects, by name.
    pub kinds: BTreeMap<KindName, Kind>,
    /// Its change objects, by id. Bundles of several generations may share equal change objects.
    pub cobs: BTreeMap<CobId, Arc<Cob>>,
    /// Contents of the files that travel with kinds and change objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blobs: BTreeMap<BlobHash, serde_bytes::ByteBuf>,
    /// The secrets of its contents, each encrypted for this host alone, by [`SecretId`](crate::secret::SecretId).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<crate::secret::SecretId, serde_bytes::ByteBuf>,
    /// The change objects of other hosts that may send requests to this host; absent: an earlier version made the
    /// bundle.
    pub askers: Option<Arc<Askers>>,
}

/// A whole generation, which `cobgen` assembles and writes into the depot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The part that all hosts share.
    pub manifest: Manifest,
    /// The bundle of each host.
    pub bundles: BTreeMap<HostName, Bundle>,
}

impl Generation {
    /// The generation before the first: it has no hosts.
    #[must_use]
    pub fn nothing() -> Self {
        let manifest = Manifest::empty(GenerationNumber(0), GenerationNumber(0), Security::LoopbackOnly);
        Self { manifest, bundles: BTreeMap::new() }
    }
}

/// The error for a bundle that was decoded but is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bundle of {host}: {what}")]
pub struct BundleError {
    /// The host.
    pub host: HostName,
    /// The first fault, in words.
    pub what: String,
}

impl Manifest {
    /// A manifest without hosts, in which only root on each host may give orders.
    #[must_use]
    pub fn empty(generation: GenerationNumber, parent: GenerationNumber, security: Security) -> Self {
        Self {
            format: FORMAT,
            generation,
            parent,
            security,
            hosts: BTreeMap::new(),
            cobs: 0,
            revoked: BTreeSet::new(),
            operators: BTreeMap::new(),
            back: Vec::new(),
            switches: Vec::new(),
            policy: SwitchPolicy::default(),
            mends: false,
            groups: Groups::default(),
            timetable: Timetable::default(),
        }
    }

    /// The empty generation before the first: the same hosts, keys and operators, and no change objects. It is in no
    /// depot. Its number is zero, and it follows from this manifest: a signature of this manifest covers it.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let nothing = |(name, host): (&HostName, &ManifestHost)| {
            let bundle = blob_hash(&codec::encode(&Bundle::empty(name.clone())).unwrap_or_default());
            (name.clone(), ManifestHost { bundle, cobs: 0, ..host.clone() })
        };
        let zero = GenerationNumber(0);
        Self {
            hosts: self.hosts.iter().map(nothing).collect(),
            revoked: self.revoked.clone(),
            operators: self.operators.clone(),
            ..Self::empty(zero, zero, self.security)
        }
    }

    /// The empty generation as a rollback target.
    #[must_use]
    pub fn way_to_nothing(&self) -> RollbackTarget {
        let manifest = blob_hash(&codec::encode(&self.emptied()).unwrap_or_default());
        RollbackTarget { generation: GenerationNumber(0), manifest }
    }

    /// Whether the two differ only in their numbers, and in rollback targets and switch orders, which follow from them.
    #[must_use]
    pub fn asks_for_the_same(&self, other: &Self) -> bool {
        let Self {
            format,
            generation: _,
            parent: _,
            security,
            hosts,
            cobs,
            revoked,
            operators,
            back: _,
            switches: _,
            policy,
            mends: _,
            groups,
            timetable,
        } = self;
        (*format, *security, *cobs) == (other.format, other.security, other.cobs)
            && (hosts, revoked, operators, policy) == (&other.hosts, &other.revoked, &other.operators, &other.policy)
            && *groups == other.groups
            && *timetable == other.timetable
    }

    /// The hosts with a label: `role=app`, or `role` with any value; none: no host has this label.
    #[must_use]
    pub fn hosts_with(&self, label: &str) -> Option<BTreeSet<HostName>> {
        self.groups.labelled(label, &self.hosts.keys().collect::<Vec<_>>())
    }

    /// The services of a cluster with their hosts; none: there is no cluster of this name.
    #[must_use]
    pub fn services_of(&self, cluster: &str) -> Option<Services> {
        self.groups.cluster(cluster, &self.hosts.keys().collect::<Vec<_>>())
    }

    /// Whether a key counts in it for a host or an operator.
    #[must_use]
    pub fn believes(&self, key: &PublicKey) -> bool {
        let mut named = self.hosts.values().map(|h| &h.keys).chain(self.operators.values().map(|o| &o.keys));
        !self.revoked.contains(key) && named.any(|keys| keys.contains(key))
    }

    /// Whether it was based on another content under the same number. If so, its switch orders from that number do not
    /// apply to this content.
    #[must_use]
    pub fn follows_another(&self, id: GenerationId) -> bool {
        self.back.iter().any(|way| way.generation == id.generation && way.manifest != id.manifest)
    }

    /// The switch order between two generations, if this manifest has it.
    #[must_use]
    pub fn switch_order(&self, from: GenerationNumber, to: GenerationNumber) -> Option<&SwitchOrder> {
        self.switches.iter().find(|order| order.from == from && order.to == to)
    }
}

impl Bundle {
    /// An empty bundle.
    #[must_use]
    pub fn empty(host: HostName) -> Self {
        Self {
            format: FORMAT,
            host,
            kinds: BTreeMap::new(),
            cobs: BTreeMap::new(),
            blobs: BTreeMap::new(),
            secrets: BTreeMap::new(),
            askers: None,
        }
    }

    /// Checks all conditions that the engine relies on: every name resolves, every state exists, every change object is
    /// of this host, every rank is there. Bytes from a disk or the network are checked here before any use.
    ///
    /// # Errors
    /// [`BundleError`] with the first fault.
    pub fn validate(&self) -> Result<(), BundleError> {
        let fault = |what: String| Err(BundleError { host: self.host.clone(), what });
        if self.format != FORMAT {
            return fault(format!("format {} is not supported (this program reads {FORMAT})", self.format));
        }
        for (name, kind) in &self.kinds {
            if let Err(what) = validate_kind(name, kind).and_then(|()| self.validate_files(&kind.files, None)) {
                return fault(format!("kind {name}: {what}"));
            }
        }
        self.validate_blobs()?;
        self.validate_askers()?;
        self.cobs.iter().try_for_each(|(id, cob)| self.validate_one(id, cob))
    }

    pub(crate) fn validate_askers(&self) -> Result<(), BundleError> {
        let fault = |what: String| BundleError { host: self.host.clone(), what };
        self.askers.as_ref().map_or(Ok(()), |askers| askers.validate(&self.host)).map_err(fault)?;
        self.check_room().map_err(|many| fault(many.to_string()))
    }

    pub(crate) fn validate_one(&self, id: &CobId, cob: &Cob) -> Result<(), BundleError> {
        let named = |what| BundleError { host: self.host.clone(), what: format!("change object {id}: {what}") };
        self.validate_cob(id, cob).map_err(named)
    }

    pub(crate) fn validate_blobs(&self) -> Result<(), BundleError> {
        match self.blobs.iter().find(|(hash, bytes)| blob_hash(bytes) != **hash) {
            Some((hash, _)) => {
                let what = format!("the content {hash} of a file does not have this hash");
                Err(BundleError { host: self.host.clone(), what })
            }
            None => Ok(()),
        }
    }

    /// Checks travelling files before any program uses them: names that lead below the folder, plain permission bits,
    /// and a content for each. `beside`: files in the same folder.
    fn validate_files(
        &self,
        files: &BTreeMap<String, PayloadFile>,
        beside: Option<&BTreeMap<String, PayloadFile>>,
    ) -> Result<(), String> {
        let all = |name: &str| files.contains_key(name) || beside.is_some_and(|beside| beside.contains_key(name));
        for (name, file) in files {
            check_payload_name(name, all).map_err(|what| format!("its file {name:?}: {what}"))?;
            if file.mode > 0o777 {
                return Err(format!("its file {name:?} has the mode {:#o}: at most 0777 is allowed", file.mode));
            }
            if !self.blobs.contains_key(&file.blob) {
                return Err(format!("the content {} of its file {name:?} is not in the bundle", file.blob));
            }
        }
        let is_in_the_way = |name: &&String| check_payload_name(name, all).is_err();
        match beside.into_iter().flat_map(BTreeMap::keys).find(is_in_the_way) {
            Some(name) => Err(format!("a file of its own stands where the file {name:?} of its kind needs a folder")),
            None => Ok(()),
        }
    }

    fn validate_cob(&self, id: &CobId, cob: &Cob) -> Result<(), String> {
        if cob.id != *id {
            return Err(format!("is filed under another id than its own, {}", cob.id));
        }
        if id.host_str() != self.host.as_str() {
            return Err("belongs to another host".to_owned());
        }
        let Some(kind) = self.kinds.get(&cob.kind) else {
            return Err(format!("its kind {} is not in the bundle", cob.kind));
        };
        let known = |state: &StateName| {
            if kind.has_state(state) { Ok(()) } else { Err(format!("kind {} has no state {state}", kind.name)) }
        };
        known(&cob.preferred)?;
        for state in &kind.states {
            if !cob.ranks.contains_key(state) {
                return Err(format!("the goal {state} has no rank"));
            }
        }
        for t in &cob.transitions {
            known(&t.from)?;
            known(&t.to)?;
            if !kind.transitions.iter().any(|k| k.from == t.from && k.to == t.to) {
                return Err(format!("kind {} has no transition {} -> {}", kind.name, t.from, t.to));
            }
            validate_needs(id, &t.needs)?;
        }
        for l in &cob.locks {
            known(&l.state)?;
            validate_needs(id, &l.needs)?;
        }
        if let Some(budget) = &cob.budget {
            validate_needs(id, std::slice::from_ref(budget))?;
        }
        if cob.at_most == Some(0) {
            return Err("has `at_most` 0, so no change object could get a grant".to_owned());
        }
        if !cob.files.is_empty() {
            self.validate_files(&cob.files, Some(&kind.files))?;
        }
        match crate::secret::marks(&cob.content).find(|secret| !self.secrets.contains_key(secret)) {
            Some(secret) => Err(format!("its content names the secret {secret}, which is not in the bundle")),
            None => Ok(()),
        }
    }
}

/// Up to this number of needs, comparing each pair is faster than sorting.
const FEW: usize = 16;

fn validate_needs(id: &CobId, needs: &[crate::cob::Need]) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    for (at, need) in needs.iter().enumerate() {
        if need.cob == *id {
            return Err("depends on itself".to_owned());
        }
        if need.states.is_empty() {
            return Err(format!("needs {} in an empty list of states", need.cob));
        }
        let again = match needs.len() <= FEW {
            true => needs[..at].iter().any(|other| other.cob == need.cob),
            false => !seen.insert(&need.cob),
        };
        if again {
            return Err(format!("lists {} twice in the same dependency", need.cob));
        }
    }
    Ok(())
}

fn validate_kind(name: &KindName, kind: &Kind) -> Result<(), String> {
    if kind.name != *name {
        return Err(format!("is filed under another name than its own, {}", kind.name));
    }
    if kind.states.is_empty() || kind.states.len() > crate::kind::MAX_STATES {
        return Err(format!("has {} states (1 to {} are allowed)", kind.states.len(), crate::kind::MAX_STATES));
    }
    let all: std::collections::BTreeSet<_> = kind.states.iter().collect();
    if all.len() != kind.states.len() {
        return Err("names a state twice".to_owned());
    }
    if all != kind.priority.iter().collect() || kind.priority.len() != kind.states.len() {
        return Err("its priority does not hold every state once".to_owned());
    }
    let mut mentioned: Vec<&StateName> = vec![&kind.preferred, &kind.pre_remove];
    for t in &kind.transitions {
        mentioned.extend([&t.from, &t.to]);
        mentioned.extend(t.failure.as_ref());
        if t.from == t.to {
            return Err(format!("has a transition from {} to itself", t.from));
        }
    }
    match mentioned.into_iter().find(|s| !all.contains(s)) {
        Some(state) => Err(format!("mentions the state {state}, which it does not have")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;
    use serde_bytes::ByteBuf;

    use super::*;
    use crate::codec;
    use crate::packed::Packed;
    use crate::testing::{bundle, kind};

    /// A bundle whose kind and change object have files of their own.
    fn with_files(of_kind: &[(&str, u32)], of_cob: &[(&str, u32)]) -> Bundle {
        let mut bundle = bundle(&[(1, 1)]);
        let content = ByteBuf::from(*b"x");
        let blob = blob_hash(&content);
        bundle.blobs.insert(blob, content);
        let files = |named: &[(&str, u32)]| -> BTreeMap<String, PayloadFile> {
            named.iter().map(|(name, mode)| ((*name).to_owned(), PayloadFile { mode: *mode, blob })).collect()
        };
        let name = kind("k").name;
        bundle.kinds.insert(name, Kind { files: files(of_kind), ..kind("k") });
        for cob in bundle.cobs.values_mut() {
            *cob = Arc::new(Cob { files: files(of_cob), ..(**cob).clone() });
        }
        bundle
    }

    /// The error of a host that prepares the bundle.
    fn refused(bundle: &Bundle) -> Option<String> {
        let bytes = codec::encode(bundle).expect("encodes");
        Packed::read(&bytes, None).err().map(|error| error.to_string())
    }

    #[test]
    fn a_bundle_with_unsafe_file_names_or_modes_is_refused() {
        assert_eq!(refused(&with_files(&[("check.sh", 0o755), ("lib/x.sh", 0o644)], &[("lib/y.sh", 0o600)])), None);
        let long = "x".repeat(256);
        for name in ["../../evil", "/tmp/evil", "a/../../evil", "..", ".", "", "a//b", "a/", "a\0b", &long] {
            for bundle in [with_files(&[(name, 0o644)], &[]), with_files(&[], &[(name, 0o644)])] {
                assert!(refused(&bundle).is_some_and(|error| error.contains("its file")), "{name:?}");
            }
        }
        for mode in [0o4777, 0o2755, 0o1777, u32::MAX] {
            assert!(
                refused(&with_files(&[("suid", mode)], &[])).expect("refused").contains("has the mode"),
                "{mode:o}"
            );
        }
        for (of_kind, of_cob) in [(vec!["p", "p/x"], vec![]), (vec!["p"], vec!["p/x"]), (vec!["p/x"], vec!["p"])] {
            let [of_kind, of_cob] =
                [of_kind, of_cob].map(|names| names.into_iter().map(|name| (name, 0o644)).collect::<Vec<_>>());
            assert!(refused(&with_files(&of_kind, &of_cob)).is_some(), "{of_kind:?} {of_cob:?}");
        }
    }

    #[test]
    fn a_bundle_with_missing_or_altered_file_content_is_refused() {
        for bundle in [with_files(&[("a", 0o644)], &[]), with_files(&[], &[("a", 0o644)])] {
            let mut missing = bundle.clone();
            missing.blobs.clear();
            assert!(refused(&missing).expect("refused").contains("is not in the bundle"));
            let mut altered = bundle.clone();
            altered.blobs.values_mut().for_each(|bytes| bytes.push(0));
            assert!(refused(&altered).expect("refused").contains("does not have this hash"));
            // A check in an earlier bundle does not count without the content.
            let known = Packed::of(&bundle).expect("packed");
            let bytes = codec::encode(&missing).expect("encodes");
            Packed::read(&bytes, Some(&known)).expect_err("its content is gone");
        }
    }

    fn names() -> impl Strategy<Value = Vec<(String, u32)>> {
        let name = prop_oneof![
            4 => "[ab]{1,2}(/[ab]{1,2}){0,2}",
            2 => prop::collection::vec(prop::sample::select(&["..", ".", "", "a", "\0", "b"][..]), 1..5)
                .prop_map(|parts| parts.join("/")),
            1 => any::<String>(),
        ];
        prop::collection::vec((name, prop_oneof![6 => 0_u32..0o1000, 1 => any::<u32>()]), 0..4)
    }

    proptest! {
        /// For any author of a bundle: the files of an accepted bundle lie below their folder, each at a different
        /// place, and have only plain permissions.
        #[test]
        fn files_of_a_bundle_that_is_read_lead_nowhere_else(of_kind in names(), of_cob in names()) {
            let of = |named: &[(String, u32)]| named.iter().map(|(name, mode)| (name.clone(), *mode)).collect::<Vec<_>>();
            let (of_kind, of_cob) = (of(&of_kind), of(&of_cob));
            fn lent(named: &[(String, u32)]) -> Vec<(&str, u32)> {
                named.iter().map(|(name, mode)| (name.as_str(), *mode)).collect()
            }
            if refused(&with_files(&lent(&of_kind), &lent(&of_cob))).is_some() {
                return Ok(());
            }
            let all: BTreeMap<&String, u32> = of_kind.iter().chain(&of_cob).map(|(name, mode)| (name, *mode)).collect();
            for (name, mode) in &all {
                let path = Path::new(name);
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))), "{name:?}");
                prop_assert!(path.components().count() > 0 && !name.contains('\0'), "{name:?}");
                prop_assert!(path.ancestors().skip(1).all(|above| !all.keys().any(|name| Path::new(name) == above)), "{name:?}");
                prop_assert_eq!(mode & !0o777, 0, "{:?}", name);
            }
        }

        /// Altered bytes are a valid bundle, or are refused: no panic, and memory in proportion to the bytes.
        #[test]
        fn altered_bytes_of_a_bundle_are_refused_or_in_order(
            cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..6),
        ) {
            let bundle = with_files(&[("check.sh", 0o755)], &[("lib/y.sh", 0o600)]);
            let mut bytes = codec::encode(&bundle).expect("encodes");
            for (at, byte, what) in cuts {
                let at = at.index(bytes.len().max(1));
                match what {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at.min(bytes.len()), byte),
                    _ => bytes.get_mut(at).into_iter().for_each(|b| *b = byte),
                }
            }
            if let Ok(read) = codec::decode::<Bundle>(&bytes, MAX_BUNDLE) {
                let is_in_order = read.validate().is_ok();
                prop_assert!(is_in_order || Packed::read(&bytes, None).is_err());
            }
        }
    }
}
