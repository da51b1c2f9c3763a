//! The model of a cluster: the catalogue, and a file with the cluster and its hosts.

use std::io;
use std::path::{Path, PathBuf};

use cob_hub_api::{Name, Wanted};
use serde_json::{Map, Value, json};

use super::machines::Table;
use super::order::Keys;
use crate::durable;
use crate::layout::Layout;

/// The file that the hub adds to the catalogue. The catalogue itself can't have a file of this name.
pub(crate) const FILE: &str = "cluster-of-the-hub.json";

/// The name of the hub among the operators.
const OPERATOR: &str = "cobhub";

/// What the file says of the nodes.
pub(crate) enum Nodes<'a> {
    /// Only their number: for the solver.
    Count,
    /// Their names, and all machines: for a generation.
    Named(&'a Layout),
}

/// Writes the file of a cluster into a copy of the catalogue. Returns the path of the model.
pub(crate) fn write(
    catalogue: &Path,
    name: &Name,
    owner: Option<&str>,
    wanted: &Wanted,
    nodes: &Nodes<'_>,
    machines: &Table,
    keys: Option<&Keys>,
) -> io::Result<PathBuf> {
    let mut cluster = Map::new();
    cluster.insert("template".to_owned(), json!(wanted.template));
    let (count, hosts) = match nodes {
        Nodes::Count => (json!(wanted.nodes), hosts(name, machines, |_| true)),
        Nodes::Named(layout) => {
            let names: Vec<&str> = layout.nodes.iter().map(|node| node.name.as_str()).collect();
            (json!(names), hosts(name, machines, |host| names.contains(&host)))
        }
    };
    cluster.insert("nodes".to_owned(), count);
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            cluster.insert(key.to_owned(), value);
        }
    };
    set("owner", owner.map(|owner| json!(owner)));
    set("services", wanted.services.as_ref().map(|services| json!(services)));
    set("provider", wanted.provider.as_ref().map(|provider| json!(provider)));
    set("hardwaretype", wanted.hardwaretype.as_ref().map(|ty| json!(ty)));
    set("imagetype", wanted.imagetype.as_ref().map(|ty| json!(ty)));
    set("config", (!wanted.config.is_empty()).then(|| json!(wanted.config)));
    write_sections(catalogue, json!({ "hosts": hosts, "clusters": { (name.as_str()): cluster } }), keys)
}

/// Writes the file of a cluster without services: its hosts only.
pub(crate) fn write_empty(catalogue: &Path, name: &Name, machines: &Table, keys: Option<&Keys>) -> io::Result<PathBuf> {
    write_sections(catalogue, json!({ "hosts": hosts(name, machines, |_| true) }), keys)
}

/// Writes the file, with the hub as an operator of the hosts. It may give orders, but run no commands of its own.
fn write_sections(catalogue: &Path, mut sections: Value, keys: Option<&Keys>) -> io::Result<PathBuf> {
    if let (Some(keys), Value::Object(sections)) = (keys, &mut sections) {
        sections.insert("operators".to_owned(), json!({ OPERATOR: { "role": "operate", "key": keys.operator } }));
    }
    durable::replace_json(&catalogue.join(FILE), &sections)?;
    Ok(catalogue.to_owned())
}

/// The machines as hosts of a model.
fn hosts(name: &Name, machines: &Table, which: impl Fn(&str) -> bool) -> Map<String, Value> {
    let mut hosts = Map::new();
    for (host, machine) in machines.iter().filter(|(host, _)| which(host)) {
        // A machine that was requested only has no address yet, and the solver does not need one.
        let Some(address) = &machine.address else { continue };
        let index = host.rsplit('-').next().and_then(|index| index.parse::<u32>().ok());
        let mut entry = Map::new();
        entry.insert("address".to_owned(), json!(address));
        entry.insert("labels".to_owned(), json!({ "cluster": name.as_str() }));
        if let Some(index) = index {
            entry.insert("vars".to_owned(), json!({ "index": index }));
        }
        for (key, ty) in [("hardwaretype", &machine.hardwaretype), ("imagetype", &machine.imagetype)] {
            if let Some(ty) = ty {
                entry.insert(key.to_owned(), json!(ty));
            }
        }
        hosts.insert(host.clone(), Value::Object(entry));
    }
    hosts
}
