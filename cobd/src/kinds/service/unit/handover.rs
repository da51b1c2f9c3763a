//! A unit that one change object leaves and another one is about from then on: what was noted of it goes over, so that the
//! one that has left puts nothing back in the other's place, and the other knows what was there before both.

use std::path::Path;

use super::before::Before;
use super::links::Links;

/// Gives what is noted of a unit in one folder over to another one, whose change object is about that unit now. Both are
/// locked. What else is noted stays.
///
/// # Errors
/// What can't be read or written, in words.
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

/// The same of a unit of which all but its run is put back.
fn put_back_as(mut before: Before, unit: &str) -> Before {
    if before.unit != unit {
        (before.unit, before.called) = (unit.to_owned(), None);
    }
    before.restored = true;
    before.files.clear();
    before.links = Some(Links::default());
    before
}
