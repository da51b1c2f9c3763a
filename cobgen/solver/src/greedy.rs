//! Tries a quick construction, which solves most solvable problems.
//!
//! It fills nodes in blocks of equal columns with the groups that still lack most nodes, and takes care that enough
//! placements remain for the other nodes. A failure proves no result.

use crate::problem::{Column, Problem, Slot, Solution};
use crate::set::Set;
use crate::steps::{OutOfSteps, Steps};

/// A solution, or `None` if this method finds no solution.
///
/// # Errors
/// If the steps run out.
pub(crate) fn construct(problem: &Problem, steps: &mut Steps) -> Result<Option<Solution>, OutOfSteps> {
    let mut rest = problem.clone();
    let mut solution = Solution::new();
    // Every block ends a slot, a group's demand or a group: more blocks than this mean an endless loop.
    for _ in 0..2 * (problem.groups.len() + problem.slots.len()) + 4 {
        if rest.nodes == 0 {
            break;
        }
        steps.spend((problem.groups.len() * 8) as u64 + 8)?;
        let Some((column, count)) = block(&rest, steps)? else { return Ok(None) };
        if !rest.take(&column, count) {
            return Ok(None);
        }
        solution.push((column, count));
    }
    let solution = crate::feasible::merge(solution);
    let members = || solution.iter().flat_map(|(column, _)| column.set.iter());
    let conflicts =
        members().map(|g| problem.conflicts.degree(g) as u64 + 1).sum::<u64>() * problem.empty_set().words();
    let counts = (solution.len() as u64).saturating_mul((problem.groups.len() + problem.slots.len()) as u64);
    steps.spend(counts.saturating_mul(2).saturating_add(conflicts))?;
    Ok(problem.satisfied_by(&solution).then_some(solution))
}

/// The next column and its number of nodes.
fn block(rest: &Problem, steps: &mut Steps) -> Result<Option<(Column, u64)>, OutOfSteps> {
    // Slots with a minimum come first, and of these the slot with the least choice; else the most helpful column.
    let choice = |slot: &Slot| slot.modes.iter().map(|m| m.allowed.len()).max().unwrap_or(0);
    let live = || rest.slots.iter().enumerate().filter(|(_, slot)| slot.max > 0);
    let due = live().filter(|(_, slot)| slot.min > 0).min_by_key(|(_, slot)| choice(slot));
    let pressed = pressed(rest);
    let mut best: Option<((u64, u64), usize, Set)> = None;
    for (at, slot) in due.map_or_else(|| live().collect(), |due| vec![due]) {
        let Some((worth, set)) = fill(rest, slot, &pressed, steps)? else { continue };
        let column = Column { slot: at, set };
        let key = (worth, rest.most(&column));
        if best.as_ref().is_none_or(|(before, ..)| key > *before) {
            best = Some((key, at, column.set));
        }
    }
    let Some((_, at, set)) = best else { return Ok(None) };
    let slot = &rest.slots[at];
    let room = if slot.min > 0 { slot.min } else { slot.max.min(rest.nodes) };
    let column = Column { slot: at, set };
    let mut count = room.min(rest.most(&column));
    let demands = column.set.iter().filter(|g| !slot.base.contains(*g)).map(|g| rest.groups[g].lo);
    count = demands.filter(|lo| *lo > 0).fold(count, u64::min);
    let others = (0..rest.groups.len()).filter(|g| !column.set.contains(*g)).map(|g| rest.groups[g].lo);
    if let Some(urgent) = others.max() {
        count = count.min(rest.nodes.saturating_sub(urgent));
    }
    count = count.min(spare(rest, &column));
    let added = column.set.without(&slot.base).len() as u64;
    if added > 1 {
        count = count.min(slack(rest) / (added - 1));
    }
    let filler = column.set.iter().find(|g| rest.groups[*g].lo == 0 && rest.groups[*g].odd == Some(false));
    if filler.is_some() && count > 1 {
        count -= count % 2;
    }
    Ok((count > 0).then_some((column, count)))
}

/// Groups that exclude each other and fill all nodes: every remaining node needs one of these.
fn pressed(rest: &Problem) -> Set {
    let mut pressed = rest.empty_set();
    for clique in rest.conflicts.cliques() {
        if clique.iter().fold(0u64, |sum, g| sum.saturating_add(rest.groups[*g].lo)) >= rest.nodes {
            clique.iter().for_each(|g| pressed.insert(*g));
        }
    }
    pressed
}

/// How many nodes of a column leave enough nodes for the other groups of each clique.
fn spare(rest: &Problem, column: &Column) -> u64 {
    let spare = |clique: &Vec<usize>| {
        let others = clique.iter().filter(|g| !column.set.contains(**g));
        rest.nodes.saturating_sub(others.fold(0u64, |sum, g| sum.saturating_add(rest.groups[*g].lo)))
    };
    rest.conflicts.cliques().iter().map(spare).min().unwrap_or(u64::MAX)
}

/// How many placements remain beyond the number of nodes that need a placement.
fn slack(rest: &Problem) -> u64 {
    let placements = rest.groups.iter().fold(0u64, |sum, g| sum.saturating_add(g.hi));
    let needy = rest.slots.iter().filter(|s| s.base.is_empty()).fold(0u64, |sum, s| sum.saturating_add(s.max));
    placements.saturating_sub(needy.min(rest.nodes))
}

/// The groups for a node of a slot, and how many nodes these groups still lack.
fn fill(rest: &Problem, slot: &Slot, pressed: &Set, steps: &mut Steps) -> Result<Option<(u64, Set)>, OutOfSteps> {
    steps.spend((rest.groups.len() * (4 + slot.modes.len())) as u64)?;
    let mut order: Vec<_> = (0..rest.groups.len()).filter(|g| rest.groups[*g].hi > 0).collect();
    order.sort_by_key(|g| (!pressed.contains(*g), std::cmp::Reverse(rest.groups[*g].lo), *g));
    let most = slack(rest).saturating_add(1);
    let mut best: Option<(u64, Set)> = None;
    for mode in &slot.modes {
        let mut set = slot.base.clone();
        let mut shut = rest.empty_set();
        set.iter().flat_map(|g| rest.conflicts.partners(g)).for_each(|g| shut.insert(*g));
        let mut worth = set.iter().fold(0u64, |sum, g| sum.saturating_add(rest.groups[g].lo));
        let (mut added, mut size) = (0, rest.size_of(&set));
        let wanted = order.iter().filter(|g| rest.groups[**g].lo > 0 && mode.allowed.contains(**g));
        for g in wanted {
            steps.spend(rest.conflicts.larger(*g).count() as u64 * set.words() + 1)?;
            let fits = added < most && size + rest.groups[*g].size <= slot.size.1 && !shut.contains(*g);
            if fits && !set.contains(*g) && !rest.conflicts.closes_larger(&set, *g) {
                set.insert(*g);
                steps.spend(rest.conflicts.partners(*g).len() as u64)?;
                rest.conflicts.partners(*g).iter().for_each(|g| shut.insert(*g));
                worth = worth.saturating_add(rest.groups[*g].lo);
                added += 1;
                size += rest.groups[*g].size;
            }
        }
        if set.is_empty() {
            let fillers = order.iter().filter(|g| mode.allowed.contains(**g));
            let plain = |g: &&usize| (rest.groups[**g].odd.is_none(), rest.groups[**g].hi, std::cmp::Reverse(**g));
            set.extend_one(fillers.max_by_key(plain).copied());
        }
        if !set.is_empty() && best.as_ref().is_none_or(|(w, _)| worth > *w) {
            best = Some((worth, set));
        }
    }
    Ok(best)
}
