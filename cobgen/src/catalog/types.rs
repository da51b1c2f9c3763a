//! Providers, and the types of hardware and images that they offer.

use std::collections::BTreeMap;

use super::number::Decimal;
use crate::diagnostic::Diagnostic;
use crate::expand::Report;
use crate::model::{Cost, HardwaretypeEntry, ImagetypeEntry, Mark, Marked, Named, Node, ProviderEntry};

/// A type of hardware or image.
#[derive(Debug, Default)]
pub(crate) struct TypeInfo {
    cost: Option<Decimal>,
    /// The providers that map it, each with its own cost of the type.
    providers: BTreeMap<String, Option<Decimal>>,
}

/// All types of hardware, or all of images.
#[derive(Debug)]
pub(crate) struct Types {
    /// The name of this sort of type in messages.
    pub(crate) word: &'static str,
    all: BTreeMap<String, TypeInfo>,
}

/// Names of providers.
#[derive(Debug, Default)]
pub(crate) struct Providers(BTreeMap<String, Mark>);

impl Providers {
    pub(super) fn read(entries: &Named<ProviderEntry>, report: &mut Report<'_>) -> Self {
        let good = entries.iter().filter(|(name, _)| report.segment("provider", name));
        Self(good.map(|(name, _)| (name.value.clone(), name.mark)).collect())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.keys().map(String::as_str)
    }

    /// Returns whether the provider exists; reports an unknown name with a suggestion.
    pub(crate) fn check(&self, name: &Marked<String>, report: &mut Report<'_>) -> bool {
        let known = self.0.contains_key(&name.value);
        if !known {
            report.unknown("provider", name, self.names());
        }
        known
    }
}

impl Types {
    pub(super) fn hardware(entries: &Named<HardwaretypeEntry>, providers: &Providers, report: &mut Report<'_>) -> Self {
        let all = entries.iter().map(|(name, e)| (name, e.cost.as_ref(), &e.providers));
        Self::read("hardware type", all, providers, report)
    }

    pub(super) fn images(entries: &Named<ImagetypeEntry>, providers: &Providers, report: &mut Report<'_>) -> Self {
        let all = entries.iter().map(|(name, e)| (name, None, &e.providers));
        Self::read("image type", all, providers, report)
    }

    fn read<'a>(
        word: &'static str,
        entries: impl Iterator<Item = (&'a Marked<String>, Option<&'a Cost>, &'a Named<Node>)>,
        providers: &Providers,
        report: &mut Report<'_>,
    ) -> Self {
        let mut all = BTreeMap::new();
        for (name, cost, mapped) in entries {
            if !report.segment(word, name) {
                continue;
            }
            let cost = cost.and_then(|Cost(cost)| read_cost(cost, report));
            let mut info = TypeInfo { cost, providers: BTreeMap::new() };
            for (provider, mapping) in mapped.iter() {
                providers.check(provider, report);
                let own = mapping.map().and_then(|m| m.get("cost"));
                let own = own.and_then(|node| Some(Marked { mark: node.mark, value: node.plain()? }));
                let own = own.and_then(|cost| read_cost(&cost, report));
                info.providers.insert(provider.value.clone(), own);
            }
            all.insert(name.value.clone(), info);
        }
        Self { word, all }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.all.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TypeInfo> {
        self.all.get(name)
    }

    /// Returns whether the type exists; reports an unknown name with a suggestion.
    pub(crate) fn check(&self, name: &Marked<String>, report: &mut Report<'_>) -> bool {
        let known = self.all.contains_key(&name.value);
        if !known {
            report.unknown(self.word, name, self.names());
        }
        known
    }

    /// Whether nodes of a provider can have this type.
    pub(crate) fn is_mapped(&self, name: &str, provider: Option<&str>) -> bool {
        provider.is_none_or(|p| self.all.get(name).is_some_and(|t| t.providers.contains_key(p)))
    }
}

impl TypeInfo {
    /// The cost of a node of this type at a provider.
    pub(crate) fn cost(&self, provider: Option<&str>) -> Option<Decimal> {
        let own = provider.and_then(|p| self.providers.get(p).copied().flatten());
        own.or(self.cost)
    }
}

fn read_cost(written: &Marked<String>, report: &mut Report<'_>) -> Option<Decimal> {
    let cost = Decimal::parse(&written.value);
    if cost.is_none() {
        let fault = Diagnostic::error("bad-cost", format!("{:?} is not a cost", written.value));
        let help = "write a number that is not negative, with at most 6 decimal places: 0.044";
        report.push(written.mark, fault.help(help));
    }
    cost
}
