//! Handover of a unit from a departed change object to another change object that now manages it. The notes move, so
//! that the departure restores no state behind the other's back, and the other change object knows the original state.

use std::path::Path;

use super::before::Before;
use super::links::Links;

/// Moves the notes of a unit to the folder of the change object that now manages the unit. The caller holds both locks.
/// Other notes stay.
///
/// # Errors
/// The file that can't be read or written, as text.
pub(in crate::kinds::service) fn hand_over(theirs: &Path, own: &Path, unit: &str) -> Result<(), String> {
    let Some(mut from) = Before::read(theirs)? else { return Ok(()) };
    let ran = from.that_ran().contains(unit);
    let is_whole = !from.restored && from.unit == unit;
    if !ran && !is_whole {
        return Ok(());
    }
    let to = match Before::read(own)? {
        Some(mut to) if !to.restored => {
            if ran && to.unit == unit {
                to.ran = true;
            } else if ran {
                to.others_ran.insert(unit.to_owned());
            }
            to
        }
        put_back => {
            let mut others = put_back.map(|before| before.that_ran()).unwrap_or_default();
            let ran = others.remove(unit) || ran;
            let mut to = if is_whole { from.clone() } else { put_back_as(from.clone(), unit) };
            (to.ran, to.others_ran) = (ran, others);
            to
        }
    };
    to.write(own)?;
    if is_whole {
        from = put_back_as(from, unit);
    }
    from.hand_over(theirs, unit)
}

/// The note of a unit whose original state is restored, except for its run.
fn put_back_as(mut before: Before, unit: &str) -> Before {
    if before.unit != unit {
        (before.unit, before.called) = (unit.to_owned(), None);
    }
    before.restored = true;
    before.files.clear();
    before.links = Some(Links::default());
    before
}
