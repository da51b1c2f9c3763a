//! Small systems as text.
//!
//! ```text
//! cob h1/web: down up            its states
//!   priority down up             the strongest first; default: as listed
//!   is down                      the initial state; default: the first
//!   prefers up                   the preferred state; default: the last
//!   leaves in down               its pre-remove state; default: the first
//!   leaves as it is              it departs without a transition
//!   observed                     it is checked and never moved
//!   transition down up <- h2/db@up      a transition with its needs (`@a|b`: either state serves)
//!   lock up <- h2/db@up          a lock dependency
//!   retries 3                    of every transition; default: no limit
//!   content v2                   default: empty
//!   inside the daemon            where its actions run
//!   at most 1                    it is a budget with this many tokens
//!   budget h1/b                  it takes a token of this budget to leave
//! ```
//! A change object of two states has both transitions, whether listed or not; a change object with more states has only
//! the listed transitions.

use crate::system::{N, System, Thing};

/// Reads a system.
///
/// # Errors
/// The invalid line, and the reason.
pub fn parse(lines: &[String]) -> Result<System, String> {
    let mut system = System::default();
    for line in lines {
        if let Some(header) = line.trim().strip_prefix("cob ") {
            let thing = read_header(&mut system, header).map_err(|e| format!("{line:?}: {e}"))?;
            system.things.push(thing);
        }
    }
    let mut at: Option<usize> = None;
    for line in lines {
        let text = line.trim();
        if text.starts_with("cob ") {
            at = Some(at.map_or(0, |a| a + 1));
            continue;
        }
        let at = at.ok_or_else(|| format!("{line:?}: no change object before it"))?;
        read_line(&mut system, at, text).map_err(|e| format!("{line:?}: {e}"))?;
    }
    for thing in &mut system.things {
        if thing.states == 2 {
            for (from, to) in [(0, 1), (1, 0)] {
                if !thing.transitions.iter().any(|h| (h.0, h.1) == (from, to)) {
                    thing.transitions.push((from, to, Vec::new()));
                }
            }
        }
    }
    Ok(system)
}

fn read_header(system: &mut System, header: &str) -> Result<Thing, String> {
    let (id, states) = header.split_once(':').ok_or("no colon after the name")?;
    let (host, name) = id.split_once('/').ok_or("no host before the name")?;
    let host = system.hosts.iter().position(|h| h == host).unwrap_or_else(|| {
        system.hosts.push(host.to_owned());
        system.hosts.len() - 1
    });
    system.names.push(name.to_owned());
    let labels: Vec<String> = states.split_whitespace().map(str::to_owned).collect();
    if labels.is_empty() {
        return Err("no states".to_owned());
    }
    Ok(Thing {
        host,
        states: labels.len(),
        priority: (0..labels.len()).collect(),
        preferred: labels.len() - 1,
        pre_remove: 0,
        initial: 0,
        outdated: labels.iter().position(|l| l == "outdated"),
        labels,
        retries: 1_000_000,
        ..Thing::default()
    })
}

fn read_line(system: &mut System, at: usize, text: &str) -> Result<(), String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let state = |label: &str| state_of(system, at, label);
    match word {
        "priority" => {
            let priority: Vec<usize> = rest.split_whitespace().map(state).collect::<Result<_, _>>()?;
            system.things[at].priority = priority;
        }
        "is" => system.things[at].initial = state(rest)?,
        "prefers" => system.things[at].preferred = state(rest)?,
        "leaves" if rest == "as it is" => system.things[at].keep = true,
        "leaves" => {
            system.things[at].pre_remove =
                state(rest.strip_prefix("in ").ok_or("it must be: leaves in STATE, or: leaves as it is")?)?;
        }
        "transition" => {
            let (ends, needs) = rest.split_once("<-").unwrap_or((rest, ""));
            let (from, to) = ends.trim().split_once(' ').ok_or("it must be: transition FROM TO")?;
            let transition = (state(from)?, state(to.trim())?, read_needs(system, needs)?);
            system.things[at].transitions.push(transition);
        }
        "lock" => {
            let (label, needs) = rest.split_once("<-").ok_or("it must be: lock STATE <- NEEDS")?;
            let lock = (state(label.trim())?, read_needs(system, needs)?);
            system.things[at].locks.push(lock);
        }
        "retries" => system.things[at].retries = rest.parse().map_err(|_| "not a number")?,
        "content" => rest.clone_into(&mut system.things[at].content),
        "at" => {
            let number = rest.strip_prefix("most ").ok_or("it must be: at most NUMBER")?;
            system.things[at].at_most = Some(number.parse().map_err(|_| "not a number")?);
        }
        "budget" => {
            let budget = (0..system.things.len()).find(|t| system.id(*t).as_str() == rest);
            system.things[at].budget = Some(budget.ok_or_else(|| format!("there is no {rest}"))?);
        }
        "observed" => system.things[at].observe = true,
        "inside" => system.things[at].in_process = true,
        _ => return Err("not understood".to_owned()),
    }
    Ok(())
}

fn read_needs(system: &System, text: &str) -> Result<Vec<N>, String> {
    let read = |need: &str| {
        let (id, set) = need.split_once('@').ok_or_else(|| format!("{need} names no state"))?;
        let cob = (0..system.things.len()).find(|t| system.id(*t).as_str() == id);
        let cob = cob.ok_or_else(|| format!("there is no {id}"))?;
        let states = set.split('|').map(|label| state_of(system, cob, label));
        Ok((cob, states.collect::<Result<_, String>>()?))
    };
    text.split_whitespace().map(read).collect()
}

fn state_of(system: &System, thing: usize, label: &str) -> Result<usize, String> {
    let found = system.things[thing].labels.iter().position(|l| l == label.trim());
    found.ok_or_else(|| format!("{} has no state {label}", system.id(thing)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::{BUDGETS, WITHIN};
    use cob_engine::sim::Random;

    #[test]
    fn a_printed_system_is_parsed_to_the_same_system() {
        for seed in 0..50 {
            let drawn = if seed % 2 == 0 { WITHIN[6] } else { BUDGETS[1] };
            let drawn = (drawn.draw)(&mut Random::new(seed));
            let printed = drawn.to_string();
            let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
            let read = parse(&lines).expect("its own notation");
            assert_eq!(read.to_string(), printed);
            assert_eq!(read.bundles().keys().collect::<Vec<_>>(), drawn.bundles().keys().collect::<Vec<_>>());
        }
    }

    #[test]
    fn mistakes_are_named() {
        let read = |text: &str| parse(&text.lines().map(str::to_owned).collect::<Vec<_>>()).expect_err("refused");
        assert!(read("cob h/a: 0 1\n  transition 0 2").contains("h/a has no state 2"));
        assert!(read("cob h/a: 0 1\n  transition 0 1 <- h/b@1").contains("there is no h/b"));
        assert!(read("cob h/a: 0 1\n  jump 0 1").contains("not understood"));
        assert!(read("  is 0").contains("no change object before it"));
    }
}
