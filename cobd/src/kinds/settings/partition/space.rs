//! The free space between partitions.

use super::table::{Part, Table};

/// Partitions begin and end at multiples of this number of bytes.
pub(super) const GRAIN: u64 = 1 << 20;

/// The wanted size of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// So many bytes, rounded up to [`GRAIN`].
    Bytes(u64),
    /// The largest free space, and all space behind the partition.
    Rest,
}

/// The place and the length of a new partition in a table; `used` has further places that are in use. The error is the
/// largest free space in bytes.
pub(super) fn place(table: &Table, used: &[(u64, u64)], wanted: Wanted) -> Result<(u64, u64), u64> {
    let grain = grain(table);
    let mut taken: Vec<(u64, u64)> =
        table.parts.iter().map(|part| (part.start, part.end())).chain(used.iter().copied()).collect();
    taken.push((table.last + 1, table.last + 1));
    taken.sort_unstable();
    let (mut free, mut at) = (Vec::new(), table.first);
    for (start, end) in taken {
        let (from, to) = (at.next_multiple_of(grain), start.min(table.last + 1) / grain * grain);
        if from < to {
            free.push((from, to - from));
        }
        at = at.max(end);
    }
    let largest = free.iter().copied().max_by_key(|(start, size)| (*size, u64::MAX - start));
    let found = match wanted {
        Wanted::Bytes(bytes) => {
            let size = sectors(table, bytes);
            free.into_iter().find(|(_, length)| *length >= size).map(|(start, _)| (start, size))
        }
        Wanted::Rest => largest,
    };
    found.ok_or_else(|| largest.map_or(0, |(_, size)| size.saturating_mul(table.sector)))
}

/// The size that a partition of the table shall have, never less than now. The error is the greatest possible size in
/// bytes, which is too small.
pub(super) fn grown(table: &Table, part: &Part, used: &[(u64, u64)], wanted: Wanted) -> Result<u64, u64> {
    let others = table.parts.iter().filter(|other| other.number != part.number);
    let taken = others.map(|other| (other.start, other.end())).chain(used.iter().copied());
    // A neighbour that overlaps leaves no room.
    let next = taken.filter(|(_, end)| *end > part.end()).map(|(start, _)| start).chain([table.last + 1]).min();
    let end = next.unwrap_or_default().max(part.end());
    match wanted {
        Wanted::Rest => {
            let end = end / grain(table) * grain(table);
            Ok(part.size.max(end.saturating_sub(part.start)))
        }
        Wanted::Bytes(bytes) if part.size >= bytes.div_ceil(table.sector) => Ok(part.size),
        Wanted::Bytes(bytes) => {
            let size = sectors(table, bytes);
            let room = end - part.start;
            if size <= room { Ok(size) } else { Err(room.saturating_mul(table.sector)) }
        }
    }
}

/// Whether a partition is larger than wanted.
pub(super) fn is_too_large(table: &Table, part: &Part, wanted: Wanted) -> bool {
    match wanted {
        Wanted::Rest => false,
        Wanted::Bytes(bytes) => part.size > sectors(table, bytes),
    }
}

/// The wanted size in sectors.
fn sectors(table: &Table, bytes: u64) -> u64 {
    bytes.div_ceil(GRAIN).saturating_mul(grain(table))
}

fn grain(table: &Table) -> u64 {
    (GRAIN / table.sector.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tables with partitions at any place that may overlap, and further places in use.
    fn tables() -> impl Strategy<Value = (Table, Vec<(u64, u64)>)> {
        let places = || prop::collection::vec((0..70_000_u64, 1..20_000_u64), 0..6);
        (prop::sample::select(vec![512_u64, 4096]), 0..5000_u64, 1..70_000_u64, places(), places()).prop_map(
            |(sector, first, more, parts, used)| {
                let part = |(at, (start, size)): (usize, (u64, u64))| Part {
                    number: u32::try_from(at).expect("few") + 1,
                    start,
                    size,
                    kind: String::new(),
                    uuid: String::new(),
                    name: String::new(),
                };
                let parts = parts.into_iter().enumerate().map(part).collect();
                let table = Table { id: String::new(), sector, first, last: first + more, is_short: false, parts };
                (table, used.into_iter().map(|(start, size)| (start, start + size)).collect())
            },
        )
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        prop_oneof![Just(Wanted::Rest), (1..100_000_000_u64).prop_map(Wanted::Bytes)]
    }

    fn overlaps((start, end): (u64, u64), table: &Table, used: &[(u64, u64)], without: u32) -> bool {
        let parts = table.parts.iter().filter(|part| part.number != without).map(|part| (part.start, part.end()));
        parts.chain(used.iter().copied()).any(|(from, to)| start < to && from < end)
    }

    proptest! {
        #[test]
        fn a_new_partition_is_in_free_space_at_whole_grains((table, used) in tables(), wanted in wanted()) {
            match place(&table, &used, wanted) {
                Ok((start, size)) => {
                    prop_assert!(start >= table.first && start + size <= table.last + 1 && size > 0);
                    prop_assert!((start * table.sector).is_multiple_of(GRAIN) && (size * table.sector).is_multiple_of(GRAIN));
                    prop_assert!(!overlaps((start, start + size), &table, &used, 0));
                    if let Wanted::Bytes(bytes) = wanted {
                        prop_assert!(size * table.sector >= bytes && size * table.sector < bytes + GRAIN);
                    }
                }
                Err(largest) => {
                    let found = place(&table, &used, Wanted::Rest);
                    prop_assert_eq!(found.map(|(_, size)| size * table.sector), if largest > 0 { Ok(largest) } else { Err(0) });
                    prop_assert!(matches!(wanted, Wanted::Bytes(bytes) if bytes > largest) || largest == 0);
                }
            }
        }

        #[test]
        fn a_partition_grows_into_free_space_and_never_shrinks((table, used) in tables(), wanted in wanted()) {
            for part in &table.parts {
                match grown(&table, part, &used, wanted) {
                    Ok(size) if size > part.size => {
                        prop_assert!(!overlaps((part.end(), part.start + size), &table, &used, part.number));
                        prop_assert!(part.start + size <= table.last + 1);
                        if let Wanted::Bytes(bytes) = wanted {
                            prop_assert!(size * table.sector >= bytes && size * table.sector < bytes + GRAIN);
                        }
                        // Once is enough.
                        let mut after = table.clone();
                        let at = after.parts.iter().position(|one| one.number == part.number).expect("there");
                        after.parts[at].size = size;
                        prop_assert_eq!(grown(&after, &after.parts[at], &used, wanted), Ok(size));
                        prop_assert!(!is_too_large(&after, &after.parts[at], wanted));
                    }
                    Ok(size) => prop_assert_eq!(size, part.size),
                    Err(most) => prop_assert!(matches!(wanted, Wanted::Bytes(bytes) if bytes.next_multiple_of(GRAIN) > most)),
                }
            }
        }
    }
}
