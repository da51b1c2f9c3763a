//! Named groups of hosts in a manifest: labels, and the services of clusters.
//!
//! Tools select hosts and change objects by these names. Daemons act on none of them.
//!
//! A group holds positions in the sorted list of the manifest's hosts, as runs of neighbours: a label of 10,000 hosts with
//! consecutive names takes three bytes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::HostName;

/// The services of a cluster, each with its hosts.
pub type Services<H = BTreeSet<HostName>> = BTreeMap<String, H>;

/// The groups of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Groups {
    /// The hosts of each label, by `role=app`, or by `role` for a label without a value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, Runs>,
    /// The hosts of each service, by the name of the cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    clusters: BTreeMap<String, Services<Runs>>,
}

/// Positions of hosts: the first position of a run and the length of the run, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Runs(Vec<(u32, u32)>);

impl Groups {
    /// Groups of these hosts. Names of other hosts are left out.
    #[must_use]
    pub fn new<'h>(
        hosts: impl Iterator<Item = &'h HostName>,
        labels: &BTreeMap<String, BTreeSet<HostName>>,
        clusters: &BTreeMap<String, Services>,
    ) -> Self {
        let positions: BTreeMap<&HostName, u32> = hosts.zip(0..).collect();
        let runs = |group: &BTreeSet<HostName>| Runs::of(group.iter().filter_map(|host| positions.get(host).copied()));
        let by_name = |groups: &BTreeMap<String, BTreeSet<HostName>>| {
            groups.iter().map(|(name, group)| (name.clone(), runs(group))).collect::<BTreeMap<_, _>>()
        };
        let clusters = clusters.iter().map(|(name, services)| (name.clone(), by_name(services)));
        Self { labels: by_name(labels), clusters: clusters.collect() }
    }

    /// Whether there is neither a label nor a cluster.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.clusters.is_empty()
    }

    /// All labels, as `role=app` or `role`.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().map(String::as_str)
    }

    /// The names of all clusters.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.clusters.keys().map(String::as_str)
    }

    /// The hosts with a label: `role=app`, or `role` with any value; none: no host has this label.
    pub(crate) fn labelled(&self, label: &str, hosts: &[&HostName]) -> Option<BTreeSet<HostName>> {
        let any_value = format!("{label}=");
        let key = |name: &str| name == label || (!label.contains('=') && name.starts_with(&any_value));
        let found: Vec<&Runs> = self.labels.iter().filter(|(name, _)| key(name)).map(|(_, runs)| runs).collect();
        (!found.is_empty()).then(|| found.iter().flat_map(|runs| runs.names(hosts)).collect())
    }

    /// The services of a cluster with their hosts; none: there is no cluster of this name.
    pub(crate) fn cluster(&self, name: &str, hosts: &[&HostName]) -> Option<Services> {
        let services = self.clusters.get(name)?;
        Some(services.iter().map(|(service, runs)| (service.clone(), runs.names(hosts).collect())).collect())
    }
}

impl Runs {
    /// `positions` ascend.
    fn of(positions: impl Iterator<Item = u32>) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for at in positions {
            match runs.last_mut() {
                Some((first, len)) if first.saturating_add(*len) == at => *len += 1,
                _ => runs.push((at, 1)),
            }
        }
        Self(runs)
    }

    /// The names at these positions. A position without a host has none, however long a run claims to be.
    fn names<'h>(&self, hosts: &[&'h HostName]) -> impl Iterator<Item = HostName> + use<'h, '_> {
        let hosts = hosts.to_vec();
        let part = move |&(first, len): &(u32, u32)| {
            let first = usize::try_from(first).unwrap_or(usize::MAX).min(hosts.len());
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(hosts.len() - first);
            hosts[first..first + len].to_vec()
        };
        self.0.iter().flat_map(part).cloned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec;

    fn host(n: u32) -> HostName {
        HostName::new(&format!("n{n:03}")).expect("a name")
    }

    fn set(numbers: &[u32]) -> BTreeSet<HostName> {
        numbers.iter().map(|n| host(*n)).collect()
    }

    #[test]
    fn a_label_is_found_by_its_key_or_with_its_value() {
        let hosts: Vec<HostName> = (0..6).map(host).collect();
        let labels =
            [("role=app", set(&[1, 2, 5])), ("role=db", set(&[0])), ("rolex=app", set(&[3])), ("ssd", set(&[4]))];
        let labels = labels.into_iter().map(|(name, group)| (name.to_owned(), group)).collect();
        let groups = Groups::new(hosts.iter(), &labels, &BTreeMap::new());
        let all: Vec<&HostName> = hosts.iter().collect();
        assert_eq!(groups.labelled("role=app", &all), Some(set(&[1, 2, 5])));
        assert_eq!(groups.labelled("role", &all), Some(set(&[0, 1, 2, 5])));
        assert_eq!(groups.labelled("ssd", &all), Some(set(&[4])));
        assert_eq!(groups.labelled("rol", &all), None);
        assert_eq!(groups.labelled("role=web", &all), None);
    }

    #[test]
    fn runs_beyond_the_hosts_have_no_names() {
        let hosts: Vec<HostName> = (0..3).map(host).collect();
        let all: Vec<&HostName> = hosts.iter().collect();
        let runs = Runs(vec![(1, u32::MAX), (7, 2), (u32::MAX, u32::MAX)]);
        assert_eq!(runs.names(&all).collect::<BTreeSet<_>>(), set(&[1, 2]));
    }

    proptest! {
        /// What is put in comes out, also through the encoding, and neighbours take one run.
        #[test]
        fn services_come_back_as_they_were(on in prop::collection::btree_set(0_u32..200, 0..200)) {
            let hosts: Vec<HostName> = (0..200).map(host).collect();
            let group: BTreeSet<HostName> = on.iter().map(|n| host(*n)).collect();
            let clusters = [("c".to_owned(), Services::from([("web".to_owned(), group.clone())]))].into();
            let groups = Groups::new(hosts.iter(), &BTreeMap::new(), &clusters);
            let bytes = codec::encode(&groups).expect("encodes");
            let groups: Groups = codec::decode(&bytes, 1 << 20).expect("decodes");
            let all: Vec<&HostName> = hosts.iter().collect();
            prop_assert_eq!(groups.cluster("c", &all), Some(Services::from([("web".to_owned(), group)])));
            prop_assert_eq!(groups.cluster("d", &all), None);
            let starts = on.iter().filter(|n| **n == 0 || !on.contains(&(**n - 1))).count();
            prop_assert_eq!(groups.clusters["c"]["web"].0.len(), starts);
        }
    }
}
