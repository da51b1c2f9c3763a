//! Edits of the cluster's configuration (CIB): only the elements of a set change.

use std::collections::{BTreeMap, BTreeSet};

use cob_kinds::is_of_operators;

use super::elements::{PROPERTIES, Place, Section, differing};
use super::xml::Xml;

/// A configuration with the status of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cib {
    root: Xml,
}

impl Cib {
    /// Reads the output of `cibadmin --query`.
    ///
    /// # Errors
    /// The fault of the text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let root = Xml::read(text)?;
        let is_whole = root.tag == "cib" && root.child("configuration").is_some();
        if is_whole { Ok(Self { root }) } else { Err("the answer of cibadmin is not a configuration".to_owned()) }
    }

    /// Its text.
    pub(super) fn text(&self) -> String {
        self.root.text()
    }

    fn section(&self, section: Section) -> Option<&Xml> {
        let configuration = self.root.child("configuration")?;
        match section {
            Section::Resources => configuration.child("resources"),
            Section::Constraints => configuration.child("constraints"),
            Section::Properties => {
                configuration.child("crm_config")?.children.iter().find(|set| set.is("id", PROPERTIES))
            }
        }
    }

    fn section_mut(&mut self, section: Section) -> &mut Xml {
        let configuration = self.root.child_mut("configuration");
        match section {
            Section::Resources => configuration.child_mut("resources"),
            Section::Constraints => configuration.child_mut("constraints"),
            Section::Properties => {
                let all = configuration.child_mut("crm_config");
                let at = all.children.iter().position(|set| set.is("id", PROPERTIES)).unwrap_or_else(|| {
                    all.children.push(Xml::new("cluster_property_set", &[("id", PROPERTIES)]));
                    all.children.len() - 1
                });
                &mut all.children[at]
            }
        }
    }

    /// The element at a place.
    pub(super) fn find(&self, place: &Place) -> Option<&Xml> {
        self.section(place.0)?.children.iter().find(|element| is_at(element, place))
    }

    /// The resources, groups and clones of the cluster.
    pub(super) fn resources(&self) -> impl Iterator<Item = &Xml> {
        self.section(Section::Resources).into_iter().flat_map(|all| &all.children).filter(|one| !one.is_comment())
    }

    /// All constraints of the cluster.
    pub(super) fn constraints(&self) -> impl Iterator<Item = &Xml> {
        self.section(Section::Constraints).into_iter().flat_map(|all| &all.children)
    }

    /// The places that differ from the wanted elements, with the reason.
    pub(super) fn differences(&self, wanted: &BTreeMap<Place, Xml>) -> BTreeMap<Place, String> {
        let difference = |(place, element): (&Place, &Xml)| {
            let name = &place.1;
            let why = match self.find(place) {
                None => format!("{name} is missing"),
                Some(found) => {
                    let parts = differing(element, found);
                    if parts.is_empty() {
                        return None;
                    }
                    format!("{name} differs: {}", parts.join(", "))
                }
            };
            Some((place.clone(), why))
        };
        wanted.iter().filter_map(difference).collect()
    }

    /// Puts an element in its place. The decisions of operators about the former element stay.
    pub(super) fn put(&mut self, place: &Place, mut element: Xml) {
        if let Some(found) = self.find(place) {
            keep_decisions(found, &mut element);
            if place.0 == Section::Properties {
                // A pair may have another id: it is the same property.
                element.set("id", found.id());
            }
        }
        self.replace(place, Some(element));
    }

    /// Puts an element exactly as it is, or removes it.
    pub(super) fn replace(&mut self, place: &Place, element: Option<Xml>) {
        if element.is_none() && self.find(place).is_none() {
            return;
        }
        let section = self.section_mut(place.0);
        match (section.children.iter().position(|one| is_at(one, place)), element) {
            (Some(at), Some(element)) => section.children[at] = element,
            (None, Some(element)) => section.children.push(element),
            (Some(at), None) => {
                section.children.remove(at);
            }
            (None, None) => {}
        }
        if place.0 == Section::Properties && self.section(place.0).is_some_and(|set| set.children.is_empty()) {
            self.root.child_mut("configuration").child_mut("crm_config").children.retain(|set| set.id() != PROPERTIES);
        }
    }

    /// Changes an element that is there.
    pub(super) fn edit(&mut self, place: &Place, change: fn(&mut Xml)) {
        if let Some(mut element) = self.find(place).cloned() {
            change(&mut element);
            self.replace(place, Some(element));
        }
    }

    /// The element of others that contains one of these ids: a set can't have it.
    pub(super) fn foreign_container(&self, ids: &BTreeSet<String>, own: &BTreeSet<Place>) -> Option<(String, String)> {
        let is_foreign = |element: &&Xml| !own.contains(&(Section::Resources, element.id().to_owned()));
        let foreign = self.resources().filter(is_foreign);
        let mut inside = foreign.flat_map(|element| element.all().into_iter().map(|one| (one, element.id())));
        let is_resource = |one: &Xml| ["primitive", "group", "clone", "master", "bundle"].contains(&one.tag.as_str());
        let found = inside.find(|(one, _)| is_resource(one) && ids.contains(one.id()));
        found.map(|(one, container)| (one.id().to_owned(), container.to_owned()))
    }
}

fn is_at(element: &Xml, place: &Place) -> bool {
    match place.0 {
        Section::Resources | Section::Constraints => !element.is_comment() && element.is("id", &place.1),
        Section::Properties => element.is("name", &place.1),
    }
}

/// The id of the pair with which a set keeps a resource stopped. Decisions of operators have other ids.
fn mark_of(id: &str) -> String {
    format!("{id}-cob-target-role")
}

/// The id of the set of attributes with only this pair.
fn own_set_of(id: &str) -> String {
    format!("{id}-cob")
}

/// Whether the set itself keeps a resource stopped.
pub(super) fn is_marked(element: &Xml) -> bool {
    let mark = mark_of(element.id());
    decisions(element).any(|pair| pair.is("id", &mark) && pair.is("value", "Stopped"))
}

/// Keeps a resource stopped. An operator's `Stopped` stays beside, an operator's `Started` goes.
pub(super) fn mark(element: &mut Xml) {
    if is_marked(element) {
        return;
    }
    unmark(element);
    remove_pairs(element, |pair| pair.is("name", "target-role") && !pair.is("value", "Stopped"));
    let id = element.id().to_owned();
    let pair = Xml::new("nvpair", &[("id", &mark_of(&id)), ("name", "target-role"), ("value", "Stopped")]);
    let set = Xml::new("meta_attributes", &[("id", &own_set_of(&id))]).with([pair]);
    element.children.push(set);
}

/// Ends [`mark`].
pub(super) fn unmark(element: &mut Xml) {
    let mark = mark_of(element.id());
    remove_pairs(element, |pair| pair.is("id", &mark));
}

/// Removes pairs; a set of others that is then empty stays.
fn remove_pairs(element: &mut Xml, is_gone: impl Fn(&Xml) -> bool) {
    for set in element.children.iter_mut().filter(|set| set.tag == "meta_attributes") {
        set.children.retain(|pair| !is_gone(pair));
    }
    let own = own_set_of(element.id());
    element.children.retain(|set| set.id() != own || !set.children.is_empty());
}

/// The pairs of an element itself with which operators, and the set, decide about it.
pub(super) fn decisions(element: &Xml) -> impl Iterator<Item = &Xml> {
    let sets = element.children.iter().filter(|set| set.tag == "meta_attributes");
    sets.flat_map(|set| &set.children).filter(|pair| pair.attribute("name").is_some_and(is_of_operators))
}

/// The decisions of operators about an element and the resources in it: the resource, the name and the value.
pub(super) fn decided(element: &Xml) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for one in element.all() {
        let mark = mark_of(one.id());
        for pair in decisions(one).filter(|pair| !pair.is("id", &mark) || !pair.is("value", "Stopped")) {
            let value = |name| pair.attribute(name).unwrap_or_default().to_owned();
            all.push((one.id().to_owned(), value("name"), value("value")));
        }
    }
    all
}

/// Copies the decisions about the former element, and the resources in it, to the new element.
fn keep_decisions(former: &Xml, element: &mut Xml) {
    if let Some(same) = former.all().into_iter().find(|one| one.tag == element.tag && one.id() == element.id()) {
        let sets = same.children.iter().filter(|set| set.tag == "meta_attributes");
        for set in sets {
            let is_decision = |pair: &&Xml| pair.attribute("name").is_some_and(is_of_operators);
            let pairs: Vec<Xml> = set.children.iter().filter(is_decision).cloned().collect();
            if pairs.is_empty() {
                continue;
            }
            let own = |one: &&mut Xml| one.tag == set.tag && one.id() == set.id();
            match element.children.iter_mut().find(own) {
                Some(own) => own.children.extend(pairs),
                None => element.children.push(Xml::new(&set.tag, &[("id", set.id())]).with(pairs)),
            }
        }
    }
    for child in &mut element.children {
        keep_decisions(former, child);
    }
}
