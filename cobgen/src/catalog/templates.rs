//! Templates, merged with their parents and included partials.
//!
//! The parent comes first, then each partial, then the template's own entries. A later entry overrides an earlier
//! entry; mappings are merged key by key. Lists are joined, but a later list of the types that a service may run on
//! replaces the earlier list. Neither the template nor a cluster may change an entry of an immutable partial.

use std::collections::{BTreeMap, BTreeSet};

use cob_solver::{Preference, Weights};

use super::number::Share;
use super::{Catalog, services::Services};
use crate::diagnostic::Diagnostic;
use crate::expand::Report;
use crate::model::{
    ConstraintsEntry, DefaultsEntry, Key, Map, Mark, Marked, Named, Node, PreferenceForm, QuantitiesEntry, Ratio,
    TemplateEntry, Value,
};

/// Costs are counted in millionths.
const MILLION: i64 = 1_000_000;

/// A rule about services that share nodes.
pub(crate) type Together = Marked<Vec<Marked<String>>>;

/// A template with all inherited entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Template {
    pub(crate) mark: Mark,
    pub(crate) partial: bool,
    /// The services that clusters may have; empty: any service.
    pub(crate) services: Vec<Marked<String>>,
    pub(crate) hardwaretypes: Vec<Marked<String>>,
    pub(crate) imagetypes: Vec<Marked<String>>,
    pub(crate) defaults: Defaults,
    pub(crate) mustcoexist: Vec<Together>,
    pub(crate) cantcoexist: Vec<Together>,
    pub(crate) rules: BTreeMap<String, Rule>,
    pub(crate) min: Option<Marked<u32>>,
    pub(crate) max: Option<Marked<u32>>,
    pub(crate) preference: Option<Marked<Preference>>,
    /// The entries of immutable partials, with the names of the partials.
    pub(crate) fixed: Vec<(String, Template)>,
}

/// The values for clusters that do not set their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) services: Vec<Marked<String>>,
    pub(crate) provider: Option<Marked<String>>,
    pub(crate) hardwaretype: Option<Marked<String>>,
    pub(crate) imagetype: Option<Marked<String>>,
    pub(crate) config: Map,
}

/// The placement of a service: types and counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rule {
    pub(crate) mark: Mark,
    /// Empty: any type.
    pub(crate) hardwaretypes: Marked<Vec<Marked<String>>>,
    pub(crate) imagetypes: Marked<Vec<Marked<String>>>,
    pub(crate) min: Option<Marked<u32>>,
    pub(crate) max: Option<Marked<u32>>,
    pub(crate) odd: Option<Marked<bool>>,
    pub(crate) least: Option<Marked<Share>>,
    pub(crate) most: Option<Marked<Share>>,
    pub(crate) requires: BTreeMap<String, Marked<u32>>,
}

/// All templates by name. A template that inherits from a faulty template has no value.
#[derive(Debug, Default)]
pub(crate) struct Templates(BTreeMap<String, Option<Template>>);

impl Templates {
    pub(super) fn read(entries: &Named<TemplateEntry>, report: &mut Report<'_>) -> Self {
        let mut written = BTreeMap::new();
        for (name, entry) in entries.iter() {
            report.segment("template", name);
            written.insert(name.value.as_str(), (name, entry));
        }
        let names = bases_first(&written);
        let mut builder = Builder { written, done: BTreeMap::new(), way: Vec::new() };
        for name in names {
            builder.build(name, report);
        }
        Self(builder.done)
    }

    /// The template with a name; an unknown name is an error with a suggestion.
    pub(crate) fn find(&self, name: &Marked<String>, report: &mut Report<'_>) -> Option<&Template> {
        let found = self.0.get(&name.value);
        if found.is_none() {
            let whole = self.0.iter().filter(|(_, t)| t.as_ref().is_none_or(|t| !t.partial));
            report.unknown("template", name, whole.map(|(n, _)| n.as_str()));
        }
        found?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Template)> {
        self.0.iter().filter_map(|(name, template)| Some((name.as_str(), template.as_ref()?)))
    }
}

/// The templates as they are written in the model.
type Written<'a> = BTreeMap<&'a str, (&'a Marked<String>, &'a TemplateEntry)>;

/// The longest circle that is reported step by step. Other templates are at most a level above finished templates.
const MOST_LEVELS: usize = 100;

/// The names of all templates, each after its parent and partials, except templates in a circle. An explicit stack
/// replaces recursion, because a chain of parents may be as long as the model.
fn bases_first<'a>(written: &Written<'a>) -> Vec<&'a str> {
    let bases = |name: &str, next: usize| {
        let entry: Option<&'a TemplateEntry> = written.get(name).map(|(_, entry)| *entry);
        entry.and_then(|entry| entry.parent.iter().chain(&entry.includes).nth(next)).map(|base| base.value.as_str())
    };
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut order = Vec::with_capacity(written.len());
    for root in written.keys() {
        let mut walk: Vec<(&str, usize)> = if seen.insert(root) { vec![(root, 0)] } else { Vec::new() };
        while let Some((name, next)) = walk.last_mut() {
            match bases(name, *next) {
                Some(base) => {
                    *next += 1;
                    if let Some((base, _)) = written.get_key_value(base).filter(|(base, _)| seen.insert(base)) {
                        walk.push((base, 0));
                    }
                }
                None => {
                    order.push(*name);
                    walk.pop();
                }
            }
        }
    }
    order
}

struct Builder<'a> {
    written: Written<'a>,
    done: BTreeMap<String, Option<Template>>,
    /// The templates on the path of parents that is under examination.
    way: Vec<Marked<String>>,
}

impl Builder<'_> {
    fn build(&mut self, name: &str, report: &mut Report<'_>) -> Option<Template> {
        if let Some(done) = self.done.get(name) {
            return done.clone();
        }
        let (marked, entry) = *self.written.get(name)?;
        let mut template = Template { mark: marked.mark, ..Template::default() };
        let mut whole = true;
        let inherited = entry.parent.iter().map(|name| (name, false)).chain(entry.includes.iter().map(|n| (n, true)));
        for (other, included) in inherited {
            match self.inherited(name, other, included, report) {
                Some(base) => template.lay_over(base),
                None => whole = false,
            }
        }
        let own = Template::of(marked.mark, entry, report);
        if own.partial && entry.immutable.as_ref().is_some_and(|i| i.value) {
            template.fixed.push((name.to_owned(), own.clone()));
        }
        if let (false, Some(immutable)) = (own.partial, &entry.immutable) {
            let fault =
                Diagnostic::error("not-partial", format!("`{name}` is not partial, so no template includes it"));
            report.push(immutable.mark, fault.help("only partial templates are immutable: add `partial: true`"));
        }
        template.lay_over(own);
        template.partial = entry.partial.as_ref().is_some_and(|p| p.value);
        let built = whole.then_some(template);
        self.done.insert(name.to_owned(), built.clone());
        built
    }

    /// A parent or partial; `None` if it has faults, which are already reported.
    fn inherited(
        &mut self,
        name: &str,
        other: &Marked<String>,
        included: bool,
        report: &mut Report<'_>,
    ) -> Option<Template> {
        let Some((_, entry)) = self.written.get(other.value.as_str()) else {
            let known: Vec<&str> = self.written.keys().copied().collect();
            report.unknown("template", other, known.iter().copied());
            return None;
        };
        let partial = entry.partial.as_ref().is_some_and(|p| p.value);
        if included != partial {
            let what = match included {
                true => format!("`{}` is not a partial template, so it can't be included", other.value),
                false => format!("`{}` is a partial template, so it can't be a parent", other.value),
            };
            let help = if included { "name it as `parent`, or make it `partial: true`" } else { "write `includes`" };
            report.push(other.mark, Diagnostic::error("not-partial", what).help(help));
            return None;
        }
        let step = Marked { mark: other.mark, value: name.to_owned() };
        if self.way.iter().any(|w| w.value == other.value) || name == other.value {
            self.tell_circle(&step, &other.value, report);
            return None;
        }
        if self.way.len() >= MOST_LEVELS {
            let what = format!("circular inheritance of more than {MOST_LEVELS} templates");
            let help = "remove a `parent` or `includes` entry of the circle";
            report.push(other.mark, Diagnostic::error("too-deep", what).help(help));
            return None;
        }
        self.way.push(step);
        let built = self.build(&other.value, report);
        self.way.pop();
        built
    }

    fn tell_circle(&self, last: &Marked<String>, first: &str, report: &mut Report<'_>) {
        let start = self.way.iter().position(|w| w.value == first).unwrap_or(self.way.len());
        let steps: Vec<&Marked<String>> = self.way[start..].iter().chain([last]).collect();
        let mut way: Vec<&str> = steps.iter().map(|s| s.value.as_str()).collect();
        way.push(first);
        let what = format!("circular inheritance of templates: {}", way.join(" -> "));
        let mut fault = Diagnostic::error("template-circle", what);
        for (step, pair) in steps.iter().zip(way.windows(2)).rev().skip(1) {
            fault =
                fault.note(Some(report.place(step.mark)), format!("`{}` inherits from `{}` here", pair[0], pair[1]));
        }
        report.push(last.mark, fault.help("remove an entry of the circle"));
    }
}

impl Template {
    /// The template's own entries.
    fn of(mark: Mark, entry: &TemplateEntry, report: &mut Report<'_>) -> Self {
        let mut template = Self { mark, partial: entry.partial.as_ref().is_some_and(|p| p.value), ..Self::default() };
        if let Some(may) = &entry.compatibility {
            template.services.clone_from(&may.services);
            template.hardwaretypes.clone_from(&may.hardwaretypes);
            template.imagetypes.clone_from(&may.imagetypes);
        }
        if let Some(DefaultsEntry { services, provider, hardwaretype, imagetype, config }) = &entry.defaults {
            let config = config.iter().map(|(n, v)| (Key { mark: n.mark, text: n.value.clone() }, v.clone()));
            template.defaults = Defaults {
                services: services.clone(),
                provider: provider.clone(),
                hardwaretype: hardwaretype.clone(),
                imagetype: imagetype.clone(),
                config: Map { entries: config.collect() },
            };
        }
        if let Some(ConstraintsEntry { layout, services, size }) = &entry.constraints {
            if let Some(layout) = layout {
                template.mustcoexist.clone_from(&layout.mustcoexist);
                template.cantcoexist.clone_from(&layout.cantcoexist);
            }
            for (name, written) in services.iter() {
                let mut rule = Rule { mark: name.mark, ..Rule::default() };
                rule.hardwaretypes = written.hardwaretypes.clone();
                rule.imagetypes = written.imagetypes.clone();
                if let Some(quantities) = &written.quantities {
                    rule.count(quantities, report);
                }
                template.rules.insert(name.value.clone(), rule);
            }
            if let Some(size) = size {
                (template.min, template.max) = (size.value.min.clone(), size.value.max.clone());
            }
        }
        let preferred = entry.preference.as_ref();
        template.preference = preferred.map(|p| Marked { mark: p.mark, value: preference(&p.value) });
        template
    }

    /// Puts another template on top of this template.
    fn lay_over(&mut self, upper: Self) {
        let Self { mark, partial: _, services, hardwaretypes, imagetypes, defaults, mustcoexist, cantcoexist, .. } =
            upper;
        self.mark = mark;
        join(&mut self.services, services);
        join(&mut self.hardwaretypes, hardwaretypes);
        join(&mut self.imagetypes, imagetypes);
        join(&mut self.defaults.services, defaults.services);
        self.defaults.provider = defaults.provider.or(self.defaults.provider.take());
        self.defaults.hardwaretype = defaults.hardwaretype.or(self.defaults.hardwaretype.take());
        self.defaults.imagetype = defaults.imagetype.or(self.defaults.imagetype.take());
        lay_config(&mut self.defaults.config, &defaults.config);
        join_rules(&mut self.mustcoexist, mustcoexist);
        join_rules(&mut self.cantcoexist, cantcoexist);
        for (name, rule) in upper.rules {
            self.rules.entry(name).or_default().lay_over(rule);
        }
        self.min = upper.min.or(self.min.take());
        self.max = upper.max.or(self.max.take());
        self.preference = upper.preference.or(self.preference.take());
        for (name, fixed) in upper.fixed {
            if !self.fixed.iter().any(|(n, _)| *n == name) {
                self.fixed.push((name, fixed));
            }
        }
    }

    /// Checks a template by itself: names, bounds, defaults that it does not allow.
    pub(super) fn check(&self, name: &str, catalog: &Catalog, report: &mut Report<'_>) {
        self.check_names(catalog, report);
        self.check_bounds(name, report);
        let allowed = |what: &str, value: &Marked<String>, list: &[Marked<String>], report: &mut Report<'_>| {
            if !list.is_empty() && !list.iter().any(|l| l.value == value.value) {
                let what = format!("the default {what} `{}` is not compatible with the template `{name}`", value.value);
                let names: Vec<String> = list.iter().map(|l| format!("`{}`", l.value)).collect();
                let fault = Diagnostic::error("incompatible", what);
                report.push(value.mark, fault.help(format!("compatible are {}", names.join(", "))));
            }
        };
        for service in &self.defaults.services {
            allowed("service", service, &self.services, report);
        }
        let provider = self.defaults.provider.as_ref();
        for (value, list, types) in [
            (&self.defaults.hardwaretype, &self.hardwaretypes, &catalog.hardwaretypes),
            (&self.defaults.imagetype, &self.imagetypes, &catalog.imagetypes),
        ] {
            let Some(value) = value else { continue };
            allowed(types.word, value, list, report);
            if let Some(provider) = provider
                && catalog.providers.names().any(|p| p == provider.value)
                && types.get(&value.value).is_some()
                && !types.is_mapped(&value.value, Some(&provider.value))
            {
                let what =
                    format!("the provider `{}` does not map the {} `{}`", provider.value, types.word, value.value);
                let fault = Diagnostic::error("not-mapped", what)
                    .note(Some(report.place(provider.mark)), "it is the default provider here");
                report.push(value.mark, fault.help("add a mapping for the provider to the type, or take another type"));
            }
        }
        for (partial, fixed) in self.fixed.iter().filter(|(n, _)| n != name) {
            fixed.hold(partial, &self.defaults, Some((name, self)), report);
        }
    }

    fn check_names(&self, catalog: &Catalog, report: &mut Report<'_>) {
        let Catalog { providers, hardwaretypes, imagetypes, services, .. } = catalog;
        let rules = self.mustcoexist.iter().chain(&self.cantcoexist).flat_map(|rule| &rule.value);
        let named: Vec<&Marked<String>> = self.services.iter().chain(&self.defaults.services).chain(rules).collect();
        for name in named {
            known(services, name, report);
        }
        for (name, rule) in &self.rules {
            known(services, &Marked { mark: rule.mark, value: name.clone() }, report);
            for (other, count) in &rule.requires {
                known(services, &Marked { mark: count.mark, value: other.clone() }, report);
            }
        }
        if let Some(provider) = &self.defaults.provider {
            providers.check(provider, report);
        }
        let of_rules =
            |pick: fn(&Rule) -> &Marked<Vec<Marked<String>>>| self.rules.values().flat_map(move |r| &pick(r).value);
        let hardware = self.hardwaretypes.iter().chain(&self.defaults.hardwaretype);
        for name in hardware.chain(of_rules(|r| &r.hardwaretypes)) {
            hardwaretypes.check(name, report);
        }
        for name in self.imagetypes.iter().chain(&self.defaults.imagetype).chain(of_rules(|r| &r.imagetypes)) {
            imagetypes.check(name, report);
        }
    }

    fn check_bounds(&self, name: &str, report: &mut Report<'_>) {
        let mut refuse = |what: String, min: Mark, max: Mark| {
            let fault = Diagnostic::error("bad-bounds", what).note(Some(report.place(min)), "the minimum is here");
            report.push(max, fault.help("no layout fulfils both limits; change the minimum or the maximum"));
        };
        let mut least = |what: &str, min: Option<&Marked<u32>>, max: Option<&Marked<u32>>| {
            if let (Some(min), Some(max)) = (min, max)
                && min.value > max.value
            {
                let what = format!("{what}: the minimum {} is greater than the maximum {}", min.value, max.value);
                refuse(what, min.mark, max.mark);
            }
        };
        least(&format!("the size of `{name}`"), self.min.as_ref(), self.max.as_ref());
        for (service, rule) in &self.rules {
            least(&format!("the nodes of `{service}`"), rule.min.as_ref(), rule.max.as_ref());
        }
        for (service, rule) in &self.rules {
            if let (Some(least), Some(most)) = (&rule.least, &rule.most)
                && least.value.is_more_than(most.value)
            {
                let what = format!("the share of `{service}`: the minimum is greater than the maximum");
                refuse(what, least.mark, most.mark);
            }
        }
    }

    /// Reports changes to the entries of an immutable partial, which `self` is: changes in `defaults`, and in `all`, a
    /// template with its name that includes the partial.
    pub(super) fn hold(&self, partial: &str, defaults: &Defaults, all: Option<(&str, &Self)>, report: &mut Report<'_>) {
        let mut same = |what: String, fixed: Option<Mark>, now: Option<Mark>| {
            if let (Some(fixed), Some(now)) = (fixed, now)
                && fixed != now
            {
                let fault = Diagnostic::error(
                    "immutable",
                    format!("{what} can't be changed: the partial template `{partial}` is immutable"),
                );
                let fault = fault.note(Some(report.place(fixed)), "the template sets it here");
                report.push(now, fault.help("remove it here, or do not include the partial template"));
            }
        };
        fn mark<T>(value: Option<&Marked<T>>) -> Option<Mark> {
            value.map(|v| v.mark)
        }
        let own = &self.defaults;
        same("the provider".to_owned(), mark(own.provider.as_ref()), mark(defaults.provider.as_ref()));
        same("the hardware type".to_owned(), mark(own.hardwaretype.as_ref()), mark(defaults.hardwaretype.as_ref()));
        same("the image type".to_owned(), mark(own.imagetype.as_ref()), mark(defaults.imagetype.as_ref()));
        let mut told = BTreeSet::new();
        leaves(&own.config, &mut Vec::new(), &mut |way, fixed| {
            let Some((depth, now)) = reached(&defaults.config, way) else { return };
            if now == fixed || told.insert(now) {
                same(format!("`config.{}`", way[..depth].join(".")), Some(fixed), Some(now));
            }
        });
        let Some((name, all)) = all else { return };
        same("the preference".to_owned(), mark(self.preference.as_ref()), mark(all.preference.as_ref()));
        let lists: [(&str, NamesOf<Self>); 3] = [
            ("compatible services", |t| &t.services),
            ("compatible hardware types", |t| &t.hardwaretypes),
            ("compatible image types", |t| &t.imagetypes),
        ];
        for (what, list) in lists {
            // An entry of another immutable partial is no change made by the template that includes it.
            let brought = |new: &str| {
                let mut others = all.fixed.iter().filter(|(other, _)| other != name);
                others.any(|(_, other)| list(other).iter().any(|o| o.value == new))
            };
            for more in list(all).iter().filter(|n| !brought(&n.value)) {
                same(format!("the list of {what}"), mark(list(self).first()), Some(more.mark));
            }
        }
        same("the minimum size".to_owned(), mark(self.min.as_ref()), mark(all.min.as_ref()));
        same("the maximum size".to_owned(), mark(self.max.as_ref()), mark(all.max.as_ref()));
        for (service, rule) in &self.rules {
            let Some(other) = all.rules.get(service) else { continue };
            let what = |of: &str| format!("{of} of `{service}`");
            let listed = |list: &Marked<Vec<Marked<String>>>| (!list.value.is_empty()).then_some(list.mark);
            same(what("the hardware types"), listed(&rule.hardwaretypes), listed(&other.hardwaretypes));
            same(what("the image types"), listed(&rule.imagetypes), listed(&other.imagetypes));
            same(what("the minimum number"), mark(rule.min.as_ref()), mark(other.min.as_ref()));
            same(what("the maximum number"), mark(rule.max.as_ref()), mark(other.max.as_ref()));
            same(what("the rule for an odd number"), mark(rule.odd.as_ref()), mark(other.odd.as_ref()));
            same(what("the minimum share"), mark(rule.least.as_ref()), mark(other.least.as_ref()));
            same(what("the maximum share"), mark(rule.most.as_ref()), mark(other.most.as_ref()));
            for (needed, count) in &rule.requires {
                same(what(&format!("the number of `{needed}`")), Some(count.mark), mark(other.requires.get(needed)));
            }
        }
    }
}

/// Selects a list of names from a template or rule.
type NamesOf<T> = fn(&T) -> &Vec<Marked<String>>;

impl Rule {
    fn count(&mut self, written: &QuantitiesEntry, report: &mut Report<'_>) {
        (self.min, self.max, self.odd) = (written.min.clone(), written.max.clone(), written.odd.clone());
        if let Some(ratio) = &written.ratio {
            self.least = ratio.min.as_ref().and_then(|r| share(r, report));
            self.most = ratio.max.as_ref().and_then(|r| share(r, report));
        }
        for (name, count) in written.requires.iter() {
            // The place of the number would lead to the rule, the place of the name leads to a misspelt name.
            let count = Marked { mark: name.mark, value: count.value };
            self.requires.insert(name.value.clone(), count);
        }
    }

    fn lay_over(&mut self, upper: Self) {
        let Self { mark, hardwaretypes, imagetypes, min, max, odd, least, most, requires } = upper;
        self.mark = mark;
        if !hardwaretypes.value.is_empty() {
            self.hardwaretypes = hardwaretypes;
        }
        if !imagetypes.value.is_empty() {
            self.imagetypes = imagetypes;
        }
        self.min = min.or(self.min.take());
        self.max = max.or(self.max.take());
        self.odd = odd.or(self.odd.take());
        self.least = least.or(self.least.take());
        self.most = most.or(self.most.take());
        self.requires.extend(requires);
    }
}

/// Weights apply to whole units of cost, as in the model; the solver counts in millionths.
fn preference(written: &PreferenceForm) -> Preference {
    match written {
        PreferenceForm::Default => Preference::Default,
        PreferenceForm::CheapestHardware => Preference::CheapestHardware,
        PreferenceForm::FewestImages => Preference::FewestImages,
        PreferenceForm::Spread => Preference::Spread,
        PreferenceForm::Pack => Preference::Pack,
        PreferenceForm::Weighted(weights) => Preference::Weighted(Weights {
            services: weights.services.unwrap_or(0).saturating_mul(MILLION),
            hardware_cost: weights.hardware_cost.unwrap_or(0),
            image_cost: 0,
        }),
    }
}

fn share(Ratio(written): &Ratio, report: &mut Report<'_>) -> Option<Marked<Share>> {
    let found = Share::parse(&written.value);
    if found.is_none() {
        let fault = Diagnostic::error("bad-share", format!("{:?} is not a share of the nodes", written.value));
        let text = written.value.trim();
        let places = text.split_once('.').map_or(0, |(_, part)| part.chars().take_while(char::is_ascii_digit).count());
        let help = if places > 16 {
            "it has too many decimal places; write a fraction, for example 1/3, or fewer places"
        } else {
            "write a number from 0 to 1, a fraction or a percentage: 0.25, 1/4, 25%"
        };
        report.push(written.mark, fault.help(help));
    }
    found.map(|value| Marked { mark: written.mark, value })
}

fn known(services: &Services, name: &Marked<String>, report: &mut Report<'_>) {
    if !services.contains(&name.value) {
        report.unknown("service", name, services.names());
    }
}

/// Appends the names that the list does not have yet.
fn join(list: &mut Vec<Marked<String>>, more: Vec<Marked<String>>) {
    let mut seen: BTreeSet<String> = list.iter().map(|m| m.value.clone()).collect();
    list.extend(more.into_iter().filter(|m| seen.insert(m.value.clone())));
}

/// The same for rules. Two rules are equal if they name the same services.
fn join_rules(list: &mut Vec<Together>, more: Vec<Together>) {
    let names = |rule: &Together| rule.value.iter().map(|m| m.value.clone()).collect::<BTreeSet<String>>();
    let mut seen: BTreeSet<BTreeSet<String>> = list.iter().map(names).collect();
    list.extend(more.into_iter().filter(|rule| seen.insert(names(rule))));
}

/// Puts a configuration on top of another configuration: mappings are merged, other values replaced.
pub(crate) fn lay_config(base: &mut Map, upper: &Map) {
    for (key, value) in &upper.entries {
        match base.entries.iter_mut().find(|(k, _)| k.text == key.text) {
            None => base.entries.push((key.clone(), value.clone())),
            Some((_, Node { value: Value::Map(there), .. })) if value.map().is_some() => {
                lay_config(there, value.map().expect("it was looked at"));
            }
            Some((k, there)) => (*k, *there) = (key.clone(), value.clone()),
        }
    }
}

/// Visits every value of a configuration that is no mapping, with the keys that lead to it.
fn leaves(map: &Map, way: &mut Vec<String>, each: &mut impl FnMut(&[String], Mark)) {
    for (key, value) in &map.entries {
        way.push(key.text.clone());
        match value.map() {
            Some(inner) if !inner.entries.is_empty() => leaves(inner, way, each),
            _ => each(way, value.mark),
        }
        way.pop();
    }
}

/// The number of keys that exist in a configuration along a path, and the place of the last value found.
fn reached(config: &Map, way: &[String]) -> Option<(usize, Mark)> {
    let mut at = config;
    let mut found = None;
    for (depth, key) in (1..).zip(way) {
        let node = at.get(key)?;
        found = Some((depth, node.mark));
        let Some(inner) = node.map() else { break };
        at = inner;
    }
    found
}
