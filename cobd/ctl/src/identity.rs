//! Compares the content behind a generation number on each host and in the depot.
//!
//! A depot that was restored from an older copy may assign a number twice. So hosts are in the same generation only if
//! the manifest is the same too, and hosts that know a newer generation than the depot are reported.

use std::collections::BTreeMap;

use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, HostStatus};
use cob_types::{BlobHash, GenerationNumber, HostName};

use crate::client::Client;
use crate::failure::Failure;
use crate::gather;
use crate::screen::Screen;
use crate::targets::{Target, Targets};
use crate::words::list;

/// The most hosts named in a line.
const NAMED: usize = 6;

/// The contents of a depot's generations, by number.
pub type Contents = BTreeMap<GenerationNumber, BlobHash>;

/// The depot's contents of the generations that hosts know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfDepot {
    /// The newest generation of the depot.
    newest: GenerationNumber,
    /// The depot's contents of the generations that hosts have or know.
    contents: Contents,
}

impl OfDepot {
    /// The depot's contents for the generations of these hosts; `None`: no depot is known.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be read.
    pub fn of(targets: &Targets, cluster: &ClusterStatus) -> Result<Option<Self>, Failure> {
        let Some(depot) = targets.open_depot()? else { return Ok(None) };
        let newest = depot.latest()?;
        let mut contents = Contents::new();
        let known = |h: &HostStatus| h.newest_known.map(|known| known.generation);
        for generation in cluster.hosts.iter().flat_map(|h| [h.generation, known(h)]).flatten() {
            if !contents.contains_key(&generation)
                && let Some(manifest) = depot.content(generation)
            {
                contents.insert(generation, manifest);
            }
        }
        Ok(Some(Self { newest, contents }))
    }

    /// The newest generation of the depot.
    #[must_use]
    pub fn newest(&self) -> GenerationNumber {
        self.newest
    }

    /// The contents that the depot has.
    #[must_use]
    pub fn contents(self) -> Contents {
        self.contents
    }

    /// The hosts that know a newer generation than the depot has.
    #[must_use]
    pub fn ahead(&self, cluster: &ClusterStatus) -> BTreeMap<HostName, GenerationNumber> {
        let known = |h: &HostStatus| h.newest_known.map(|known| known.generation).max(h.newest());
        let ahead = |h: &HostStatus| Some((h.name.clone(), known(h).filter(|known| *known > self.newest)?));
        cluster.hosts.iter().filter_map(ahead).collect()
    }

    /// Warns about hosts that know a newer generation than the depot has.
    pub fn tell_ahead(&self, cluster: &ClusterStatus, screen: &mut Screen) {
        let ahead = self.ahead(cluster);
        let Some(known) = ahead.values().max() else { return };
        let (newest, hosts) = (self.newest, list(ahead.keys(), NAMED));
        let knows = if ahead.len() == 1 { "knows" } else { "know" };
        screen.problem(
            "warning",
            &format!("the depot is behind its hosts: its newest generation is {newest}, and {hosts} {knows} generation {known}"),
        );
        screen.problem(
            "hint",
            &format!(
                "for an outdated mirror: name the depot itself. For a depot that was restored from an older copy: publish \
                 above {known} (`cobgen generate MODEL --depot DIR --above {known}`), see docs/how-to/restore-a-depot.md"
            ),
        );
    }
}

/// Asks hosts for the contents of their generations, and reports mismatches. Returns whether all contents match.
///
/// # Errors
/// [`Failure`] if the depot can't be read.
pub async fn tell(client: &Client, targets: &Targets, asked: &[Target], screen: &mut Screen) -> Result<bool, Failure> {
    let cluster = gather::cluster_of(client, asked, StatusOf::Active).await;
    let depot = OfDepot::of(targets, &cluster)?.unwrap_or_default();
    let others = others(cluster.hosts.iter(), &depot.contents);
    for line in &others {
        screen.problem("error", line);
    }
    if depot.newest != GenerationNumber(0) {
        depot.tell_ahead(&cluster, screen);
    }
    Ok(others.is_empty())
}

/// Hosts whose active generation has another content than the depot has under its number, or than other hosts have: a
/// sentence for each content.
#[must_use]
pub fn others<'a>(hosts: impl Iterator<Item = &'a HostStatus>, depot: &Contents) -> Vec<String> {
    let mut all: BTreeMap<GenerationNumber, BTreeMap<BlobHash, Vec<&HostName>>> = BTreeMap::new();
    for host in hosts.filter(|h| h.reachable) {
        if let (Some(generation), Some(manifest)) = (host.generation, host.manifest) {
            all.entry(generation).or_default().entry(manifest).or_default().push(&host.name);
        }
    }
    let mut told = Vec::new();
    for (generation, by_content) in &all {
        if let Some(own) = depot.get(generation) {
            let other = by_content.iter().filter(|(manifest, _)| *manifest != own);
            told.extend(other.map(|(manifest, hosts)| {
                let has = if hosts.len() == 1 { "has" } else { "have" };
                let (hosts, manifest, own) = (list(hosts, NAMED), manifest.short(), own.short());
                format!("{hosts} {has} another generation {generation} (manifest {manifest}) than the depot (manifest {own})")
            }));
        } else if by_content.len() > 1 {
            let of = |(manifest, hosts): (&BlobHash, &Vec<&HostName>)| {
                format!("manifest {} on {}", manifest.short(), list(hosts, NAMED))
            };
            let contents: Vec<String> = by_content.iter().map(of).collect();
            told.push(format!("generation {generation} is not the same on all hosts: {}", contents.join("; ")));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use cob_types::GenerationId;

    use super::*;
    use crate::testing::{cluster, host};

    fn with(name: &str, generation: u64, content: u8) -> HostStatus {
        let manifest = BlobHash([content; 32]);
        let newest_known = Some(GenerationId { generation: GenerationNumber(generation), manifest });
        HostStatus { manifest: Some(manifest), newest_known, ..host(name, generation, Vec::new()) }
    }

    #[test]
    fn two_contents_of_a_generation_number_are_reported() {
        let hosts = [with("n1", 2, 0xA), with("n2", 2, 0xB), with("n3", 2, 0xA), with("n4", 1, 0xC)];
        let depot = |contents: &[(u64, u8)]| -> Contents {
            contents.iter().map(|(n, c)| (GenerationNumber(*n), BlobHash([*c; 32]))).collect()
        };
        let told = |contents: &[(u64, u8)]| others(hosts.iter(), &depot(contents));
        assert_eq!(
            told(&[(2, 0xB)]),
            ["n1 and n3 have another generation 2 (manifest 0a0a0a0a0a0a) than the depot (manifest 0b0b0b0b0b0b)"]
        );
        let both = "generation 2 is not the same on all hosts: manifest 0a0a0a0a0a0a on n1 and n3; manifest 0b0b0b0b0b0b on n2";
        assert_eq!(told(&[]), [both]);
        assert_eq!(others(hosts[..1].iter(), &depot(&[(2, 0xA), (1, 0xF)])), Vec::<String>::new());
        // Daemons of the previous version do not report their content.
        assert_eq!(others([host("n1", 2, Vec::new())].iter(), &depot(&[(2, 0xB)])), Vec::<String>::new());
    }

    #[test]
    fn hosts_ahead_of_the_depot_are_reported_with_an_instruction() {
        let depot = OfDepot { newest: GenerationNumber(8), contents: Contents::new() };
        let mut withdrew = with("n2", 8, 1);
        withdrew.newest_known = Some(GenerationId { generation: GenerationNumber(9), manifest: BlobHash([9; 32]) });
        let hosts = cluster(vec![with("n1", 8, 1), withdrew, with("n3", 9, 9)]);
        let ahead: Vec<_> = depot.ahead(&hosts).into_iter().map(|(host, n)| (host.to_string(), n.0)).collect();
        assert_eq!(ahead, [("n2".to_owned(), 9), ("n3".to_owned(), 9)]);
        let (mut screen, written) = Screen::memory();
        depot.tell_ahead(&hosts, &mut screen);
        let told = written.err();
        assert!(told.contains("its newest generation is 8, and n2 and n3 know generation 9"), "{told}");
        assert!(told.contains("--above 9"), "{told}");
        let (mut screen, written) = Screen::memory();
        OfDepot { newest: GenerationNumber(9), ..depot }.tell_ahead(&hosts, &mut screen);
        assert_eq!(written.err(), "");
    }
}
