//! The next generation on the way to a target generation.
//!
//! A manifest has switch orders to its generation from a few earlier generations. A host that was away for longer
//! activates the missed generations in order. If any was rolled back or is not available any more, the host switches
//! directly to the newest.

use std::sync::Arc;

use cob_types::{GenerationNumber, Manifest};

/// The most generations that the search visits.
const STEPS_MAX: usize = 1000;

/// The first generation on the way to `goal` for a host with the active generation `active`; `None`: switch directly.
/// `manifest` returns only usable generations: `None` for a generation that was rolled back or is not available.
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

    /// A manifest with switch orders from the three generations before it.
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
    fn a_host_that_missed_generations_switches_in_steps() {
        assert_eq!(first(9, 8, &[]), None);
        assert_eq!(first(9, 6, &[]), None, "the order of that pair is there");
        assert_eq!(first(9, 5, &[]), Some(8));
        assert_eq!(first(9, 1, &[]), Some(4));
        assert_eq!(first(9, 0, &[]), None, "the first manifest");
        assert_eq!(first(8, 9, &[]), None, "a return");
        assert_eq!(first(9, 5, &[8]), None, "an intermediate generation is missing or rolled back: switch directly");
    }

    #[test]
    fn generations_without_orders_are_gone_to_directly() {
        let bare = Manifest { switches: Vec::new(), ..manifest(9) };
        assert_eq!(first_step(&bare, GenerationNumber(1), |_| None), None);
    }
}
