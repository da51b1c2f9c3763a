//! Which generation comes next on the way to another one.
//!
//! A manifest has the order of switches to its generation from a few earlier ones. A host that was away for longer
//! activates what it has missed one after the other, and goes straight to the newest where one of these was
//! withdrawn or can't be had any more.

use std::sync::Arc;

use cob_types::{GenerationNumber, Manifest};

/// The most generations that are looked at for a way.
const STEPS_MAX: usize = 1000;

/// The first generation on the way to `goal` for a host that has `active`; none: it goes there directly. `manifest` gives
/// those that can be gone by: what was withdrawn, or can't be had, is none.
pub fn first_step(
    goal: &Manifest,
    active: GenerationNumber,
    manifest: impl Fn(GenerationNumber) -> Option<Arc<Manifest>>,
) -> Option<GenerationNumber> {
    let direct = |to: &Manifest| to.switches.is_empty() || to.switch_order(active, to.generation).is_some();
    if active == GenerationNumber(0) || goal.generation <= active || direct(goal) {
        return None;
    }
    let mut parent = goal.parent;
    for _ in 0..STEPS_MAX {
        if parent <= active {
            return None;
        }
        let on_the_way = manifest(parent)?;
        if direct(&on_the_way) || on_the_way.parent == active {
            return Some(parent);
        }
        parent = on_the_way.parent;
    }
    None
}

#[cfg(test)]
mod tests {
    use cob_types::SwitchOrder;
    use cob_types::generation::Security;

    use super::*;

    /// With orders from the three generations before.
    fn manifest(n: u64) -> Manifest {
        let number = GenerationNumber;
        let mut manifest = Manifest::empty(number(n), number(n.saturating_sub(1)), Security::LoopbackOnly);
        manifest.switches =
            (n.saturating_sub(3).max(1)..n).map(|from| SwitchOrder::free(number(from), number(n))).collect();
        manifest
    }

    fn first(goal: u64, active: u64, lost: &[u64]) -> Option<u64> {
        let known = |g: GenerationNumber| (!lost.contains(&g.0)).then(|| Arc::new(manifest(g.0)));
        first_step(&manifest(goal), GenerationNumber(active), known).map(|g| g.0)
    }

    #[test]
    fn who_was_away_goes_by_the_generations_in_between() {
        assert_eq!(first(9, 8, &[]), None);
        assert_eq!(first(9, 6, &[]), None, "the order of that pair is there");
        assert_eq!(first(9, 5, &[]), Some(8));
        assert_eq!(first(9, 1, &[]), Some(4));
        assert_eq!(first(9, 0, &[]), None, "the first one");
        assert_eq!(first(8, 9, &[]), None, "a return");
        assert_eq!(first(9, 5, &[8]), None, "one in between is lost or withdrawn: straight on");
    }

    #[test]
    fn generations_without_orders_are_gone_to_directly() {
        let bare = Manifest { switches: Vec::new(), ..manifest(9) };
        assert_eq!(first_step(&bare, GenerationNumber(1), |_| None), None);
    }
}
