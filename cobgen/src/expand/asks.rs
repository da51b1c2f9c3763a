//! Short dependency words of change objects: `requires: [db/server]`.
//!
//! If no template makes a difference, all change objects made from an entry share its words.

use std::collections::HashMap;
use std::sync::Arc;

use super::Report;
use super::scope::Scope;
use super::template::is_template;
use crate::model::{CobEntry, Marked, On, Target};

/// A short dependency word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Word {
    Requires,
    After,
    Wants,
    RestartsOn,
    ReloadsOn,
    Excludes,
    /// The needs of a service with dependencies before its installation.
    Install,
}

impl Word {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Requires => "requires",
            Self::After => "after",
            Self::Wants => "wants",
            Self::RestartsOn => "restarts_on",
            Self::ReloadsOn => "reloads_on",
            Self::Excludes => "excludes",
            Self::Install => "install requires",
        }
    }
}

/// A short word and its target.
#[derive(Debug)]
pub(super) struct Asks {
    pub(super) word: Word,
    pub(super) target: Target,
    /// Both in the user's words.
    pub(super) words: Arc<str>,
}

impl Asks {
    pub(super) fn new(word: Word, target: Target) -> Self {
        let words = format!("{}: [{}]", word.as_str(), target.words()).into();
        Self { word, target, words }
    }
}

/// Results for entries without templates. For look-ups only: the order is not used.
#[derive(Debug, Default)]
pub(super) struct Plain(HashMap<*const CobEntry, Arc<[Asks]>>);

impl Plain {
    /// The short words of a change object that is made from `entry`.
    pub(super) fn of(&mut self, entry: &CobEntry, scope: &Scope<'_>, report: &mut Report<'_>) -> Arc<[Asks]> {
        if let Some(made) = self.0.get(&std::ptr::from_ref(entry)) {
            return Arc::clone(made);
        }
        let text = |written: &Marked<String>, report: &mut Report<'_>| {
            let value = scope.world.templates.text(&written.value, written.mark, scope, report)?;
            Some(Marked { mark: written.mark, value })
        };
        let mut asks = Vec::new();
        let mut plain = true;
        for (word, targets) in words(entry) {
            for target in targets {
                plain &= !is_template(&target.words());
                let cob = text(&target.cob, report);
                let on = target.on.as_ref().map(|on| render_on(on, |t, r| text(t, r), report));
                if let (Some(cob), Some(on)) = (cob, on.map_or(Some(None), |on| on.map(Some))) {
                    asks.push(Asks::new(word, Target { cob, on }));
                }
            }
        }
        let asks: Arc<[Asks]> = asks.into();
        if plain {
            self.0.insert(std::ptr::from_ref(entry), Arc::clone(&asks));
        }
        asks
    }
}

/// The short words of a change object, in the order in which they are expanded.
fn words(entry: &CobEntry) -> [(Word, &[Target]); 6] {
    [
        (Word::Requires, &entry.requires),
        (Word::After, &entry.after),
        (Word::Wants, &entry.wants),
        (Word::RestartsOn, &entry.restarts_on),
        (Word::ReloadsOn, &entry.reloads_on),
        (Word::Excludes, &entry.excludes),
    ]
}

fn render_on(
    on: &Marked<On>,
    text: impl Fn(&Marked<String>, &mut Report<'_>) -> Option<Marked<String>>,
    report: &mut Report<'_>,
) -> Option<Marked<On>> {
    let mut render = |name: &String| text(&Marked { mark: on.mark, value: name.clone() }, report).map(|t| t.value);
    let value = match &on.value {
        On::Host(name) => On::Host(render(name)?),
        On::Label(name) => On::Label(render(name)?),
        same @ (On::SameNode | On::All | On::Any | On::First | On::Peers) => same.clone(),
    };
    Some(Marked { mark: on.mark, value })
}
