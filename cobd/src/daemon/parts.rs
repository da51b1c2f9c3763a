//! Very large batches, in parts: each part has a tick of its own, and operators get answers in between.

use std::collections::VecDeque;

use cob_types::{Batch, Item};

/// The most items that the engine gets at once. With the largest state that a peer can cause here, an item takes a
/// fraction of a millisecond.
const ITEMS: usize = 256;

/// The batch in parts, in the order of its items; a hello, which the engine needs first, is in the first part.
pub(super) fn in_parts(mut batch: Batch) -> VecDeque<Batch> {
    if batch.items.len() <= ITEMS {
        return VecDeque::from([batch]);
    }
    let items = std::mem::take(&mut batch.items);
    let (hellos, others): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| matches!(item, Item::Hello(_)));
    let mut items = hellos.into_iter().take(1).chain(others).peekable();
    let mut parts = VecDeque::new();
    while items.peek().is_some() {
        parts.push_back(Batch { items: items.by_ref().take(ITEMS).collect(), ..batch.clone() });
    }
    parts
}

#[cfg(test)]
mod tests {
    use cob_types::message::{Hello, Incarnation};
    use cob_types::{GenerationNumber, HostName};

    use super::*;

    fn batch(items: Vec<Item>) -> Batch {
        let from = HostName::new("n1").expect("a name");
        Batch { from, incarnation: Incarnation { id: 1, start: 1 }, lamport: 7, items, under_way: None }
    }

    fn through(n: u64) -> Item {
        Item::Through(GenerationNumber(n))
    }

    #[test]
    fn a_short_batch_stays_whole() {
        for items in [Vec::new(), (0..ITEMS as u64).map(through).collect()] {
            let whole = batch(items);
            assert_eq!(in_parts(whole.clone()), [whole]);
        }
    }

    #[test]
    fn parts_keep_the_order_and_begin_with_the_hello() {
        let mut items: Vec<Item> = (0..1000).map(through).collect();
        items.insert(900, Item::Hello(Hello { kept: Vec::new() }));
        let parts = in_parts(batch(items.clone()));
        let hello = items.remove(900);
        items.insert(0, hello);
        assert!(parts.iter().all(|part| part.items.len() <= ITEMS && part.lamport == 7));
        assert_eq!(parts.into_iter().flat_map(|part| part.items).collect::<Vec<_>>(), items);
    }
}
