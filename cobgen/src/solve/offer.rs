//! What a provider has to know to make the nodes of a cluster.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::LayoutNode;
use crate::catalog::Request;
use crate::model::{Named, Node, Sections};

/// The provider of a cluster, with its own words for the types of the nodes.
#[derive(Serialize)]
pub(crate) struct Offer {
    name: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    sort: Option<String>,
    settings: BTreeMap<String, Value>,
    /// By type of hardware.
    hardwaretypes: BTreeMap<String, Value>,
    /// By type of image.
    imagetypes: BTreeMap<String, Value>,
}

impl Offer {
    /// The provider of a request, for the nodes of its layout.
    pub(crate) fn of(request: &Request<'_>, nodes: &[LayoutNode], sections: &Sections) -> Option<Self> {
        let name = request.provider.as_ref()?.value.clone();
        let provider = sections.providers.iter().find(|(named, _)| named.value == name)?.1;
        let own = |providers: &Named<Node>| {
            let mapped = providers.iter().find(|(provider, _)| provider.value == name);
            mapped.map_or(Value::Null, |(_, words)| words.to_json())
        };
        let hardware = sections.hardwaretypes.iter().map(|(ty, entry)| (ty.value.as_str(), &entry.providers));
        let image = sections.imagetypes.iter().map(|(ty, entry)| (ty.value.as_str(), &entry.providers));
        let hardware: BTreeMap<_, _> = hardware.collect();
        let image: BTreeMap<_, _> = image.collect();
        let used = |all: &BTreeMap<&str, &Named<Node>>, of: fn(&LayoutNode) -> &Option<String>| {
            let names = nodes.iter().filter_map(|node| of(node).as_deref());
            names.filter_map(|ty| Some((ty.to_owned(), own(all.get(ty)?)))).collect()
        };
        Some(Self {
            sort: provider.sort.as_ref().map(|sort| sort.value.clone()),
            settings: provider.settings.iter().map(|(key, value)| (key.value.clone(), value.to_json())).collect(),
            hardwaretypes: used(&hardware, |node| &node.hardwaretype),
            imagetypes: used(&image, |node| &node.imagetype),
            name,
        })
    }
}
