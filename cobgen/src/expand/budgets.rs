//! Budgets: for each budget of the model with members, a change object that grants its tokens.
//!
//! It is on the host that the model names, else on the host of the first member by id. A budget has a place, so without
//! its host no further member is disturbed. Members may be on any host.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::{CobId, HostName, Need};

use super::arrows::NoAddress;
use super::builtin;
use super::files::Payload;
use super::hosts::Hosts;
use super::kinds::Known;
use super::objects::{Object, ObjectOrigin, Objects};
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::draft::At;
use crate::model::{BudgetEntry, Mark, Marked, Sections};

/// The token of each member, with the place of its statement. Adds the budgets to the objects.
pub(super) fn give_out(
    sections: &Sections,
    hosts: &Hosts,
    objects: &mut Objects,
    no_address: &mut NoAddress,
    report: &mut Report<'_>,
) -> ByCob<At<Need>> {
    let mut members: BTreeMap<&str, Vec<(CobId, Mark)>> = BTreeMap::new();
    let names: Vec<&str> = sections.budgets.iter().map(|(name, _)| name.value.as_str()).collect();
    let mut misspelt = false;
    for (id, object) in &objects.all {
        let Some(named) = &object.budget else { continue };
        match names.iter().find(|name| **name == named.value) {
            Some(name) => members.entry(name).or_default().push((id.clone(), named.mark)),
            None => {
                misspelt = true;
                report.unknown("budget", named, names.iter().copied());
            }
        }
    }
    let mut tokens = BTreeMap::new();
    for (name, entry) in sections.budgets.iter() {
        let keeper =
            entry.host.as_ref().map(|host| hosts.named(&host.value, host.mark, report).map(|host| host.name.clone()));
        let good = report.segment("budget", name);
        let Some(members) = members.remove(name.value.as_str()) else {
            if !misspelt {
                let unused = format!("the budget `{}` is unused", name.value);
                let help = format!("write `budget: {}` on change objects", name.value);
                report.push(name.mark, Diagnostic::warning("unused", unused).help(help));
            }
            continue;
        };
        // An unknown host is already reported.
        let Some(keeper) = keeper.unwrap_or_else(|| Some(members[0].0.host())) else { continue };
        let (true, Some(at_most)) = (good, entry.at_most) else { continue };
        if let Some(token) = keep(name, at_most, entry, &keeper, objects, report) {
            // A token from a budget on another host is a dependency across hosts.
            for (id, mark) in &members {
                no_address.look(id, &token.cob, *mark, hosts);
            }
            let told = |mark| At { value: token.clone(), place: report.place(mark) };
            tokens.extend(members.into_iter().map(|(id, mark)| (id, told(mark))));
        }
    }
    tokens
}

/// Adds a budget and returns the need for its token.
fn keep(
    name: &Marked<String>,
    at_most: u32,
    entry: &BudgetEntry,
    keeper: &HostName,
    objects: &mut Objects,
    report: &mut Report<'_>,
) -> Option<Need> {
    let id = report.name(name, |name| CobId::on(keeper, &format!("budget/{name}")))?;
    let kind = Known::of(builtin::named("budget"));
    let token = Need { cob: id.clone(), states: vec![kind.on().clone()] };
    let mark = entry.host.as_ref().map_or(name.mark, |host| host.mark);
    let object = Object {
        mark: name.mark,
        home: ObjectOrigin::ByHand,
        preferred: Some(kind.on().clone()),
        kind: Some(kind),
        content: serde_json::json!({ "at_most": at_most }),
        files: Payload::new(),
        explicit: Vec::new(),
        asks: Arc::default(),
        budget: None,
        at_most: Some(at_most),
        keep: false,
        observe: false,
    };
    if let Some(first) = objects.all.get(&id) {
        let fault = Diagnostic::error("duplicate-name", format!("the budget's change object {id} already exists"));
        let fault = fault.note(Some(report.place(first.mark)), "here").help("rename either object");
        report.push(mark, fault);
        return None;
    }
    objects.all.insert(id, Box::new(object));
    Some(token)
}
