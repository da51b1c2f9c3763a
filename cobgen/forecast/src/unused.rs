//! Finds inputs that match no object of the two generations.

use std::collections::BTreeMap;

use cob_types::{CobId, Kind, StateName};

use crate::durations::Durations;
use crate::sides::Sides;

/// Lines without effect. Lines that may match hosts that are not loaded are not included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unused {
    /// Lines of durations, as `WHO FROM>TO`.
    pub durations: Vec<String>,
    /// Lines of states, as `COB STATE`.
    pub states: Vec<String>,
}

pub(crate) fn unused(sides: &Sides<'_>, durations: &Durations, states: &BTreeMap<CobId, StateName>) -> Unused {
    let line = |(who, transition): (&str, Option<(&str, &str)>)| {
        let text = transition.map_or_else(|| who.to_owned(), |(from, to)| format!("{who} {from}>{to}"));
        let states = transition.map_or(Vec::new(), |(from, to)| vec![from, to]);
        (!fits(sides, who, &states)).then_some(text)
    };
    let state = |(cob, state): (&CobId, &StateName)| {
        (!fits(sides, cob.as_str(), &[state.as_str()])).then(|| format!("{cob} {state}"))
    };
    Unused {
        durations: durations.lines().filter_map(line).collect(),
        states: states.iter().filter_map(state).collect(),
    }
}

/// Whether a change object of this name or kind with these states may exist.
fn fits(sides: &Sides<'_>, who: &str, states: &[&str]) -> bool {
    let has = |kind: &Kind| states.iter().all(|s| *s == StateName::OUTDATED || kind.states.iter().any(|k| k == s));
    let whole = sides.not_looked_at().is_empty();
    let mut bundles = [&sides.from, &sides.to].into_iter().flat_map(|side| side.bundles.values());
    if who == "*" {
        return true;
    }
    if let Some(name) = who.strip_prefix("*/") {
        let of_name = |bundle: &cob_types::Bundle| {
            let named = bundle.cobs.values().filter(|cob| cob.id.name() == name);
            named.filter_map(|cob| bundle.kinds.get(&cob.kind)).any(&has)
        };
        return !whole || bundles.any(|bundle| of_name(bundle));
    }
    if let Ok(id) = who.parse::<CobId>() {
        return sides.is_unseen(&id) || sides.in_both(&id).into_iter().flatten().any(|known| has(known.kind));
    }
    !whole || bundles.any(|bundle| bundle.kinds.iter().any(|(name, kind)| name.as_str() == who && has(kind)))
}
