//! Layouts: the services and types of a cluster's nodes, in the format of `cobgen solve`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_types::HostName;
use serde::{Deserialize, Serialize};

use cob_depot::input;

/// The largest file of layouts, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// A node of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutNode {
    /// Its name, which is also the name of its host.
    pub name: String,
    /// Its services by name.
    pub services: Vec<String>,
    /// Its type of hardware; `None` if the model has no types.
    #[serde(default)]
    pub hardwaretype: Option<String>,
    /// Its type of image.
    #[serde(default)]
    pub imagetype: Option<String>,
}

/// The nodes of clusters by the clusters' names.
pub type Layouts = BTreeMap<String, Vec<LayoutNode>>;

/// A file of layouts that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// It can't be read.
    #[error("can't read {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It has another format.
    #[error("{path} holds no layouts: {source}")]
    Wrong {
        /// The file.
        path: String,
        /// The fault.
        source: serde_json::Error,
    },
    /// It contains an invalid name.
    #[error("{path}, cluster `{cluster}`: {what}")]
    Name {
        /// The file.
        path: String,
        /// The cluster.
        cluster: String,
        /// The fault of the name.
        what: String,
    },
}

/// The output of `cobgen solve --json`, as far as it is read again.
#[derive(Deserialize)]
struct File {
    clusters: Vec<ClusterInFile>,
}

#[derive(Deserialize)]
struct ClusterInFile {
    name: String,
    #[serde(default)]
    nodes: Vec<LayoutNode>,
}

/// Reads layouts from a file.
///
/// # Errors
/// [`LayoutError`].
pub fn read(path: &Path) -> Result<Layouts, LayoutError> {
    let name = || path.display().to_string();
    let bytes = input::read(path, MAX_FILE).map_err(|source| LayoutError::Unreadable { path: name(), source })?;
    let layouts = of_bytes(&bytes).map_err(|source| LayoutError::Wrong { path: name(), source })?;
    for (cluster, nodes) in &layouts {
        if let Some(what) = wrong_name(nodes) {
            return Err(LayoutError::Name { path: name(), cluster: cluster.clone(), what });
        }
    }
    Ok(layouts)
}

/// The first name that is invalid for a node or service, or that two nodes have.
fn wrong_name(nodes: &[LayoutNode]) -> Option<String> {
    let mut seen = BTreeSet::new();
    for node in nodes {
        if let Err(error) = HostName::new(&node.name) {
            return Some(error.to_string());
        }
        if !seen.insert(&node.name) {
            return Some(format!("two nodes have the name `{}`", node.name));
        }
        if let Some(service) = node.services.iter().find(|s| HostName::new(s).is_err()) {
            return Some(format!("the node `{}` has {service:?}, which is not the name of a service", node.name));
        }
    }
    None
}

/// Reads layouts; a cluster without nodes has no layout.
///
/// # Errors
/// When the format is wrong.
pub fn of_bytes(bytes: &[u8]) -> Result<Layouts, serde_json::Error> {
    let file: File = serde_json::from_slice(bytes)?;
    let mut layouts = Layouts::new();
    for mut cluster in file.clusters.into_iter().filter(|c| !c.nodes.is_empty()) {
        for node in &mut cluster.nodes {
            node.services.sort();
            node.services.dedup();
        }
        layouts.insert(cluster.name, cluster.nodes);
    }
    Ok(layouts)
}

/// Layouts in the format that is read, every solvable cluster by name.
#[must_use]
pub fn to_bytes(layouts: &Layouts) -> Vec<u8> {
    #[derive(Serialize)]
    struct Written<'a> {
        name: &'a str,
        solvable: bool,
        nodes: &'a [LayoutNode],
    }
    let clusters: Vec<Written<'_>> =
        layouts.iter().map(|(name, nodes)| Written { name, solvable: true, nodes }).collect();
    serde_json::to_vec(&BTreeMap::from([("clusters", clusters)])).expect("texts and lists can be written as JSON")
}

/// A sort key for natural order: `c-2` before `c-10`.
pub(crate) fn natural(name: &str) -> (String, u64, String) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (front, number) = name.split_at(name.len() - digits);
    (front.to_owned(), number.parse().unwrap_or(u64::MAX), number.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_layout_is_read_back() {
        let node = |name: &str, hardwaretype: Option<&str>| LayoutNode {
            name: name.to_owned(),
            services: vec!["a".to_owned(), "b".to_owned()],
            hardwaretype: hardwaretype.map(str::to_owned),
            imagetype: None,
        };
        let layouts = Layouts::from([("c".to_owned(), vec![node("c-1", Some("small")), node("c-2", None)])]);
        assert_eq!(of_bytes(&to_bytes(&layouts)).expect("layouts"), layouts);
        let more = br#"{"clusters": [{"name": "c", "solvable": false, "nodes": [], "reason": "x"}], "more": 1}"#;
        assert_eq!(of_bytes(more).expect("layouts"), Layouts::new());
        assert!(of_bytes(b"{}").is_err() && of_bytes(b"[1]").is_err());
    }

    #[test]
    fn names_are_counted_as_people_do() {
        let mut names = ["c-10", "c-9", "b", "c-1", "c"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["b", "c", "c-1", "c-9", "c-10"]);
    }
}
