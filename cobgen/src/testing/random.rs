//! Random drafts: wild drafts for the exactness of single steps, orderly drafts for the guarantees.

use proptest::collection::vec;
use proptest::prelude::*;

use super::Sketch;

const WILD: [&str; 3] = ["a", "b", "c"];

/// Any small model: kinds with traps, circles, sets, contradictions.
pub(crate) fn any_sketch() -> impl Strategy<Value = Sketch> {
    let kinds = vec(vec(any::<bool>(), 6), 2);
    let cobs = vec((0..2_usize, 0..3_usize), 2..7);
    let arrows = vec((any::<[u8; 3]>(), any::<bool>(), 1..8_u8), 0..14);
    (kinds, cobs, arrows).prop_map(|(kinds, cobs, arrows)| {
        let mut sketch = Sketch::new();
        for (k, present) in kinds.iter().enumerate() {
            let all = ["a>b", "b>a", "b>c", "c>b", "a>c", "c>a"];
            let transitions: Vec<&str> =
                all.iter().zip(present).filter(|(_, there)| **there).map(|(transition, _)| *transition).collect();
            sketch.kind(&format!("k{k}"), &WILD, &transitions);
        }
        for (c, (kind, preferred)) in cobs.iter().enumerate() {
            sketch.cob_of(&format!("k{kind}"), &format!("h{}/c{c}", c % 3), WILD[*preferred]);
        }
        for ([cob, on, what], lock, set) in arrows {
            let (cob, on) = (cob as usize % cobs.len(), on as usize % cobs.len());
            if cob == on {
                continue;
            }
            let set: Vec<&str> = (0..3).filter(|bit| set & (1 << bit) != 0).map(|bit| WILD[bit]).collect();
            let needed = format!("h{}/c{on}@{}", on % 3, set.join("|"));
            let name = format!("h{}/c{cob}", cob % 3);
            if lock {
                sketch.lock(&name, WILD[what as usize % 3], &needed);
                continue;
            }
            let transitions = sketch.kind_of(&name).transitions.clone();
            if let Some(transition) = transitions.get(what as usize % transitions.len().max(1)) {
                sketch.transition(&name, transition.from.as_str(), transition.to.as_str(), &needed);
            }
        }
        sketch
    })
}

/// A model of `requires`, `after` and `restarts_on` whose arrows all lead to lower numbers. No change object that
/// prefers on requires a change object that prefers off. A dependent by `requires` can go from `outdated` to off
/// directly: else it and its requirement, both outdated, would wait for each other.
pub(crate) fn orderly_sketch() -> impl Strategy<Value = Sketch> {
    let cobs = vec((0..4_usize, prop::bool::weighted(0.8)), 2..14);
    let words = vec((any::<[u8; 2]>(), 0..4_u8), 0..30);
    (cobs, words).prop_map(|(cobs, words)| {
        let mut sketch = Sketch::new();
        sketch.kind("down-first", &["outdated", "down", "up"], &["outdated>down", "down>up", "up>down"]);
        sketch.kind("restart", &["outdated", "down", "up"], &["outdated>up", "down>up", "up>down"]);
        sketch.kind("plain", &["down", "up"], &["down>up", "up>down"]);
        for kind in sketch.draft.kinds.values_mut() {
            kind.value.pre_remove = super::state("down");
        }
        let kinds = ["simple", "down-first", "restart", "plain"];
        let name = |c: usize| format!("h{}/c{c:02}", c % 4);
        for (c, (kind, on)) in cobs.iter().enumerate() {
            sketch.cob_of(kinds[*kind], &name(c), if *on { "up" } else { "down" });
        }
        for ([cob, on], word) in words {
            let cob = 1 + cob as usize % (cobs.len() - 1);
            let on = on as usize % cob;
            match word {
                0 => sketch.after(&name(cob), &name(on)),
                1 => sketch.restarts_on(&name(cob), &name(on)),
                _ if cobs[cob].1 && !cobs[on].1 || kinds[cobs[cob].0] == "restart" => continue,
                _ => sketch.requires(&name(cob), &name(on)),
            };
        }
        sketch
    })
}

/// The same model twice, the second with its dependencies in another order.
pub(crate) fn shuffled_pair() -> impl Strategy<Value = (Sketch, Sketch)> {
    (any_sketch(), any::<u64>()).prop_map(|(sketch, seed)| {
        let mut shuffled = sketch.clone();
        let mut seed = seed | 1;
        let mut next = |below: usize| {
            // xorshift: any permutation is fine.
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below as u64).expect("below a usize")
        };
        for cob in shuffled.draft.cobs.values_mut() {
            let arrows = &mut cob.value.arrows;
            for i in (1..arrows.len()).rev() {
                arrows.swap(i, next(i + 1));
            }
            cob.value.restarts_on.reverse();
        }
        (sketch, shuffled)
    })
}
