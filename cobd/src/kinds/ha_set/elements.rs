//! The elements of a set, as the cluster's configuration has them, and their comparison with elements found.

use std::collections::{BTreeMap, BTreeSet};

use cob_kinds::{HaClone, HaConstraint, HaPrimitive, HaSet, Scalar, cluster_text, is_of_operators};
use serde::{Deserialize, Serialize};

use super::xml::Xml;

/// The id of the set of properties that all tools of the cluster use.
pub(super) const PROPERTIES: &str = "cib-bootstrap-options";

/// The sections of the configuration with elements of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Section {
    Resources,
    Constraints,
    Properties,
}

/// The place of an element: its section and its id, or the name of a property.
pub(super) type Place = (Section, String);

/// The elements that a content describes: resources are running, as far as the set decides.
///
/// # Errors
/// The fault of a value, as text.
pub(super) fn wanted(content: &HaSet) -> Result<BTreeMap<Place, Xml>, String> {
    let mut all = BTreeMap::new();
    let mut add = |section, id: &str, element| all.insert((section, id.to_owned()), element);
    for (id, device) in &content.fence {
        add(Section::Resources, id, primitive(id, device, true)?);
    }
    for (id, one) in content.primitives.iter().filter(|(id, _)| content.container_of(id).is_none()) {
        add(Section::Resources, id, primitive(id, one, false)?);
    }
    for id in content.groups.keys().filter(|id| content.container_of(id).is_none()) {
        add(Section::Resources, id, group(id, content)?);
    }
    for (id, clone) in &content.clones {
        add(Section::Resources, id, cloned(id, clone, content)?);
    }
    for (id, one) in &content.constraints {
        add(Section::Constraints, id, constraint(id, one));
    }
    for (name, value) in &content.properties {
        let id = format!("{PROPERTIES}-{name}");
        let value = text(name, value)?;
        add(Section::Properties, name, Xml::new("nvpair", &[("id", &id), ("name", name), ("value", &value)]));
    }
    Ok(all)
}

fn primitive(id: &str, content: &HaPrimitive, is_fence: bool) -> Result<Xml, String> {
    let mut element = Xml::new("primitive", &[("id", id)]);
    if is_fence {
        element.set("class", "stonith");
        element.set("type", &content.agent);
    } else {
        let (class, provider, name) =
            content.parts().ok_or_else(|| format!("content: {:?} is not an agent", content.agent))?;
        element.set("class", class);
        if let Some(provider) = provider {
            element.set("provider", provider);
        }
        element.set("type", name);
    }
    element.children.extend(pairs("instance_attributes", id, &content.params)?);
    if !content.ops.is_empty() {
        let ops = content.ops.iter().map(|(key, attributes)| operation(id, key, attributes));
        element.children.push(Xml::new("operations", &[]).with(ops.collect::<Result<Vec<_>, _>>()?));
    }
    element.children.extend(pairs("meta_attributes", id, &content.meta)?);
    Ok(element)
}

fn operation(id: &str, key: &str, attributes: &BTreeMap<String, Scalar>) -> Result<Xml, String> {
    let mut op = Xml::new("op", &[("id", &format!("{id}-{key}")), ("name", key), ("interval", "0s")]);
    for (name, value) in attributes {
        op.set(name, &text(name, value)?);
    }
    Ok(op)
}

/// A set of names and values. `None`: it would be empty.
fn pairs(tag: &str, of: &str, all: &BTreeMap<String, Scalar>) -> Result<Option<Xml>, String> {
    if all.is_empty() {
        return Ok(None);
    }
    let id = format!("{of}-{tag}");
    let pair = |(name, value): (&String, &Scalar)| {
        let own = format!("{id}-{}", name.replace('#', "_"));
        text(name, value).map(|value| Xml::new("nvpair", &[("id", &own), ("name", name), ("value", &value)]))
    };
    Ok(Some(Xml::new(tag, &[("id", &id)]).with(all.iter().map(pair).collect::<Result<Vec<_>, _>>()?)))
}

fn group(id: &str, content: &HaSet) -> Result<Xml, String> {
    let members = content.groups.get(id).map_or(&[][..], Vec::as_slice).iter();
    let member = |member: &String| content.primitives.get(member).map(|one| primitive(member, one, false));
    Ok(Xml::new("group", &[("id", id)]).with(members.filter_map(member).collect::<Result<Vec<_>, _>>()?))
}

fn cloned(id: &str, clone: &HaClone, content: &HaSet) -> Result<Xml, String> {
    let inner = match content.primitives.get(&clone.of) {
        Some(one) => primitive(&clone.of, one, false)?,
        None => group(&clone.of, content)?,
    };
    Ok(Xml::new("clone", &[("id", id)]).with([inner]).with(pairs("meta_attributes", id, &clone.meta)?))
}

fn constraint(id: &str, content: &HaConstraint) -> Xml {
    let HaConstraint { location, colocation, order, .. } = content;
    let score = content.score_text();
    let symmetrical = content.symmetrical.map(|is| is.to_string());
    let (tag, attributes) = if order.is_some() {
        let kind = content.kind.as_deref().unwrap_or("Mandatory");
        let attributes = vec![
            ("first", order.as_deref()),
            ("then", content.then.as_deref()),
            ("kind", Some(kind)),
            ("first-action", content.first_action.as_deref()),
            ("then-action", content.then_action.as_deref()),
            ("symmetrical", symmetrical.as_deref()),
        ];
        ("rsc_order", attributes)
    } else if colocation.is_some() {
        let attributes = vec![
            ("rsc", colocation.as_deref()),
            ("with-rsc", content.with.as_deref()),
            ("score", score.as_deref()),
            ("rsc-role", content.role.as_deref()),
            ("with-rsc-role", content.with_role.as_deref()),
        ];
        ("rsc_colocation", attributes)
    } else {
        let attributes = vec![
            ("rsc", location.as_deref()),
            ("node", content.node.as_deref()),
            ("score", score.as_deref()),
            ("role", content.role.as_deref()),
        ];
        ("rsc_location", attributes)
    };
    let mut element = Xml::new(tag, &[("id", id)]);
    for (name, value) in attributes {
        if let Some(value) = value {
            element.set(name, value);
        }
    }
    element
}

fn text(key: &str, value: &Scalar) -> Result<String, String> {
    cluster_text(key, value).map_err(|(what, help)| format!("content: {what}; {help}"))
}

/// What an element means, as names with values: the order of names, the ids of sets and pairs, and the decisions of
/// operators do not count. The order of members counts.
pub(super) fn meaning(element: &Xml) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    gather(element, "", &mut all);
    all
}

fn gather(element: &Xml, before: &str, all: &mut BTreeMap<String, String>) {
    all.insert(format!("{before}element"), element.tag.clone());
    for (name, value) in &element.attributes {
        let is_of_pair = element.tag == "nvpair" && name == "id";
        if !is_of_pair {
            all.insert(format!("{before}{name}"), value.clone());
        }
    }
    let mut members = Vec::new();
    for child in element.children.iter().filter(|child| !child.is_comment()) {
        match child.tag.as_str() {
            "instance_attributes" | "meta_attributes" | "utilization" => {
                let word = if child.tag == "instance_attributes" { "parameter" } else { &child.tag };
                for pair in child.children.iter().filter(|pair| pair.tag == "nvpair") {
                    let name = pair.attribute("name").unwrap_or_default();
                    if child.tag != "meta_attributes" || !is_of_operators(name) {
                        // The first of several pairs has the effect.
                        let value = pair.attribute("value").unwrap_or_default().to_owned();
                        all.entry(format!("{before}{word} {name}")).or_insert(value);
                    }
                }
                for other in child.children.iter().filter(|other| other.tag != "nvpair" && !other.is_comment()) {
                    all.insert(format!("{before}{word} {}", other.tag), other.text());
                }
            }
            "operations" => child.children.iter().filter(|op| op.tag == "op").for_each(|op| {
                let name = op.attribute("name").unwrap_or_default();
                let (role, interval) = (op.attribute("role").unwrap_or_default(), op.attribute("interval"));
                let key = format!("{before}operation {name} {} {role}", interval.unwrap_or("0s"));
                let values = op.attributes.iter().filter(|(name, _)| name != "id");
                let mut values: Vec<String> = values.map(|(name, value)| format!("{name}={value:?}")).collect();
                values.sort_unstable();
                values.extend(op.children.iter().map(Xml::text));
                all.insert(key.trim_end().to_owned(), values.join(" "));
            }),
            _ => {
                members.push(child.id());
                gather(child, &format!("{before}{}: ", child.id()), all);
            }
        }
    }
    if !members.is_empty() {
        all.insert(format!("{before}members"), members.join(" "));
    }
}

/// The differing parts of two elements, by name; values may be secret.
pub(super) fn differing(wanted: &Xml, found: &Xml) -> Vec<String> {
    let (wanted, found) = (meaning(wanted), meaning(found));
    let names: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    names.into_iter().filter(|name| wanted.get(*name) != found.get(*name)).cloned().collect()
}

/// The ids of the primitives in an element.
pub(super) fn primitives(element: &Xml) -> Vec<&Xml> {
    element.all().into_iter().filter(|one| one.tag == "primitive").collect()
}
