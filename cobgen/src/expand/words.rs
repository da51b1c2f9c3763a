//! Turns dependency words into transition and lock dependencies.
//!
//! A kind has an on state (preferred) and an off state (pre-remove). `requires: [X]` on A means: every transition of A
//! into its on state needs X on; every transition of X out of its on state, or out of `outdated`, needs A off; a grant
//! that A stays on needs X on. `after` is only the first of these rules. `excludes: [X]`: A goes on only while X is
//! off, and X only while A is off, each with the grant of it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cob_types::{CobId, Kind, Need, StateName, Transition};
use rayon::prelude::*;

use super::actions;
use super::arrows::{Arrows, Number};
use super::asks::Word;
use super::kinds::Known;
use super::objects::{Explicit, Objects};
use super::targets::Link;
use super::{ByCob, Report, service};
use crate::diagnostic::{Diagnostic, Severity};
use crate::draft::{Said, When};
use crate::model::{Mark, Marked, did_you_mean, did_you_mean_or_list};

/// Adds the explicit dependencies.
pub(super) fn explicit(objects: &Objects, arrows: &mut Arrows, report: &mut Report<'_>) {
    for (id, object) in &objects.all {
        let Some(known) = &object.kind else { continue };
        for written in &object.explicit {
            let when = when(known, written, report);
            let needs: Vec<(Need, String, Mark)> =
                written.needs.value.iter().filter_map(|text| need(id, text, objects, report)).collect();
            if written.needs.value.is_empty() {
                let fault = Diagnostic::error("empty-needs", "this dependency has no needs");
                report
                    .push(written.needs.mark, fault.help("write its needs, `needs: [HOST/NAME@state]`, or remove it"));
            }
            let Some(when) = when else { continue };
            for (Need { cob, states }, text, mark) in needs {
                let words = match &when {
                    When::Transition { from, to } => {
                        format!("transitions: [{{from: {from}, to: {to}, needs: [{text}]}}]")
                    }
                    When::Lock { state } => format!("locks: [{{state: {state}, needs: [{text}]}}]"),
                };
                let said = Said { when: when.clone(), states, words: words.into(), place: report.place(mark) };
                let said = arrows.say(said, mark);
                arrows.add(id, &cob, said);
            }
        }
    }
}

/// Adds the dependencies of the short words.
pub(super) fn short(links: &[Link], objects: &Objects, arrows: &mut Arrows, report: &mut Report<'_>) {
    // A word means the same for all change objects of the same two kinds: on thousands of nodes it is expanded once.
    let mut known: HashMap<Saying<'_>, Vec<(Side, Number)>> = HashMap::new();
    let kind = |id| objects.get(id).and_then(|object| object.kind.as_ref());
    let of_kinds = |link| -> Option<(&Link, &Known, &Known)> { Some((link, kind(&link.from)?, kind(&link.to)?)) };
    let links: Vec<_> = links.par_iter().filter_map(of_kinds).collect();
    // On thousands of nodes it is also reported once.
    let mut told: BTreeSet<Mark> = BTreeSet::new();
    for (link, a, x) in links {
        let excludes = link.word == Word::Excludes;
        let one_state = [(a, &link.from), (x, &link.to)].into_iter().find(|(known, _)| known.on() == known.off());
        if let (true, Some((_, cob))) = (excludes, one_state) {
            let what = format!("{cob} has the same state for on and off, so `excludes` has no effect");
            if told.insert(link.mark) {
                report.push(link.mark, Diagnostic::error("no-off-state", what));
            }
            continue;
        }
        let saying = (link.mark, link.word, &*link.words, Arc::as_ptr(&a.kind), Arc::as_ptr(&x.kind));
        let said = known.entry(saying).or_insert_with(|| {
            let (words, place) = (&link.words, report.place(link.mark));
            let say = |(side, when, states)| {
                let said = Said { when, states, words: Arc::clone(words), place: place.clone() };
                (side, arrows.say(said, link.mark))
            };
            stands_for(link.word, a, x).into_iter().map(say).collect()
        });
        for (side, said) in said {
            match side {
                Side::Asker => arrows.add(&link.from, &link.to, *said),
                Side::Asked => arrows.add(&link.to, &link.from, *said),
            }
        }
    }
}

/// The place, word and text of a statement, and the kinds of both sides: each kind exists once in memory.
type Saying<'a> = (Mark, Word, &'a str, *const Kind, *const Kind);

/// The side whose transitions and grants a dependency guards.
#[derive(Debug, Clone, Copy)]
enum Side {
    /// The change object that wrote the word.
    Asker,
    /// The change object that the word names.
    Asked,
}

/// The meaning of a word between change objects of the kinds `a` and `x`: the guarded side, its transition or grant,
/// and the states that it needs of the other side.
fn stands_for(word: Word, a: &Known, x: &Known) -> Vec<(Side, When, Vec<StateName>)> {
    use Side::{Asked, Asker};
    let mut all = Vec::new();
    match word {
        Word::Requires => {
            all.extend(coming_up(a).map(|move_| (Asker, move_, vec![x.on().clone()])));
            if a.runs() {
                all.push((Asker, When::Lock { state: a.on().clone() }, vec![x.on().clone()]));
                all.extend(leaving(x).map(|move_| (Asked, move_, a.resting())));
            }
        }
        Word::Install => {
            let first = if a.of_actions { Some(a.off()) } else { None };
            let installing = moves(a, |t| first.map_or(t.to == *a.on(), |first| t.from == *first));
            all.extend(installing.map(|move_| (Asker, move_, x.installed())));
            // Other servers are sometimes off without departing, which does not concern installations.
            if x.of_actions || x.builtin.is_some_and(|entry| entry.kind.gate) {
                all.extend(into(x, x.off()).map(|move_| (Asked, move_, vec![a.off().clone()])));
            }
        }
        Word::After | Word::Wants | Word::RestartsOn | Word::ReloadsOn => {
            all.extend(into(a, a.on()).map(|move_| (Asker, move_, vec![x.on().clone()])));
        }
        Word::Excludes => {
            for (side, own, other) in [(Asker, a, x), (Asked, x, a)] {
                all.extend(into(own, own.on()).map(|move_| (side, move_, vec![other.off().clone()])));
                all.push((side, When::Lock { state: own.on().clone() }, vec![other.off().clone()]));
            }
        }
    }
    all
}

/// The change objects that each change object relies on by `restarts_on` and `reloads_on`.
pub(super) fn restarts_on(links: &[Link]) -> ByCob<Vec<CobId>> {
    let mut found: ByCob<BTreeSet<CobId>> = ByCob::new();
    for link in links {
        match link.word {
            Word::RestartsOn | Word::ReloadsOn => {
                found.entry(link.from.clone()).or_default().insert(link.to.clone());
            }
            Word::Requires | Word::After | Word::Wants | Word::Excludes | Word::Install => {}
        }
    }
    found.into_iter().map(|(id, on)| (id, on.into_iter().collect())).collect()
}

/// Selected transitions. A repair while the service runs concerns no other change object.
fn moves(known: &Known, these: impl Fn(&Transition) -> bool) -> impl Iterator<Item = When> {
    let moves = known.kind.transitions.iter().filter(|t| !service::only_adjusts(&known.kind, t));
    let moves = moves.filter(move |t| these(t));
    moves.map(|t| When::Transition { from: t.from.clone(), to: t.to.clone() })
}

/// The transitions into a state.
fn into<'a>(known: &'a Known, state: &'a StateName) -> impl Iterator<Item = When> + 'a {
    moves(known, move |t| t.to == *state)
}

/// The transitions that need the requirements: into the on state; for a service with actions, initialization and start.
fn coming_up(known: &Known) -> impl Iterator<Item = When> + '_ {
    moves(known, |t| match known.of_actions {
        true => t.to == actions::INITIALIZED || t.to == actions::STARTED,
        false => t.to == *known.on(),
    })
}

/// The transitions that stop or restart: out of the on state, and out of `outdated`, except reloads.
fn leaving(known: &Known) -> impl Iterator<Item = When> + '_ {
    moves(known, |t| {
        (t.from == *known.on() || t.from == StateName::OUTDATED) && !service::keeps_running(&known.kind, t)
    })
}

/// The event that an explicit dependency guards; its transition must exist.
fn when(known: &Known, written: &Explicit, report: &mut Report<'_>) -> Option<When> {
    let to = known.state(&written.to, report);
    let Some(from) = &written.from else { return Some(When::Lock { state: to? }) };
    let (from, to) = (known.state(from, report)?, to?);
    if !known.kind.transitions.iter().any(|t| t.from == from && t.to == to) {
        let moves: Vec<String> = known.kind.transitions.iter().map(|t| format!("{} -> {}", t.from, t.to)).collect();
        let what = format!("the kind `{}` has no transition {from} -> {to}", known.kind.name);
        let fault = Diagnostic::error("unknown-transition", what).help(format!("it has {}", moves.join(", ")));
        report.push(written.mark, fault);
        return None;
    }
    Some(When::Transition { from, to })
}

/// Parses `HOST/NAME@state|state`.
fn need(
    id: &CobId,
    written: &Marked<String>,
    objects: &Objects,
    report: &mut Report<'_>,
) -> Option<(Need, String, Mark)> {
    let text = written.value.as_str();
    let bad = |what: String, help: String| Diagnostic::error("bad-need", what).help(help);
    let Some((name, states)) = text.split_once('@') else {
        let fault = bad(format!("`{text}` names no state"), format!("write the required state: {text}@up"));
        report.push(written.mark, fault);
        return None;
    };
    if !name.contains('/') {
        let help = format!("a need always begins with the host: {}/{text}", id.host_str());
        report.push(written.mark, bad(format!("`{text}` names no host"), help));
        return None;
    }
    let cob = report.name(&Marked { mark: written.mark, value: name.to_owned() }, CobId::new)?;
    if cob == *id {
        let fault = Diagnostic::error("self-dependency", format!("{id} depends on itself"));
        report.push(written.mark, fault.help("remove it: a change object knows its own state"));
        return None;
    }
    let Some(object) = objects.get(&cob) else {
        unknown_cob(&cob, written.mark, objects, report);
        return None;
    };
    let known = object.kind.as_ref()?;
    let mut found = Vec::new();
    for state in states.split('|') {
        let state = known.state(&Marked { mark: written.mark, value: state.trim().to_owned() }, report)?;
        if !found.contains(&state) {
            found.push(state);
        }
    }
    Some((Need { cob, states: found }, text.to_owned(), written.mark))
}

fn unknown_cob(cob: &CobId, mark: Mark, objects: &Objects, report: &mut Report<'_>) {
    let help = || {
        let known = objects.all.keys().map(CobId::as_str);
        let same_host = objects.all.keys().filter(|id| id.host_str() == cob.host_str()).map(CobId::as_str);
        did_you_mean(cob.as_str(), known.clone())
            .or_else(|| did_you_mean_or_list(cob.as_str(), same_host))
            .or_else(|| did_you_mean_or_list(cob.as_str(), known))
    };
    // The search for the nearest of many names takes time; beyond the shown errors it is wasted.
    let help = if report.out.has_room(Severity::Error) { help() } else { None };
    report.push(mark, Diagnostic::error("unknown-name", format!("unknown change object `{cob}`")).maybe_help(help));
}
