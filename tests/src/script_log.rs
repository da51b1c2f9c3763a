//! The log that the scripts of `examples/simple` write, and a judge of it.
//!
//! The judge knows the real events and their order from the scripts themselves, and the permitted events from the
//! bundles. It shares no code with the engine: it keeps the state of every change object according to the log and
//! checks for each start of an action whether it was permitted.
//!
//! ```text
//! start oss1/ost0 down up 1795226399000000000 [GENERATION]
//! end oss1/ost0 down up 1795226399200000000 [GENERATION]
//! ```
//!
//! Rules: a change object has one action at a time; the action leaves the state that the last action entered; its needs
//! are fulfilled, with the content that it was made for, and stay fulfilled until it has ended, and so do the needs of
//! the grants it uses; at the end all change objects are in their desired states.

use std::collections::BTreeMap;
use std::fmt;

use cob_types::cob::Fingerprint;
use cob_types::{Cob, CobId, Generation, GenerationNumber, Kind, Need, StateName};

/// Generations by number: the source of the dependencies.
pub type Generations = BTreeMap<GenerationNumber, Generation>;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Whether the action starts; otherwise it ends.
    pub begins: bool,
    /// The change object of the action.
    pub cob: CobId,
    /// The state left.
    pub from: StateName,
    /// The state entered.
    pub to: StateName,
    /// The generation under which it acts.
    pub generation: GenerationNumber,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { cob, from, to, generation, .. } = self;
        write!(f, "{} {cob} {from} {to} ({generation})", if self.begins { "start" } else { "end" })
    }
}

/// Reads a log. Lines without a generation belong to `generation`.
///
/// # Errors
/// The first invalid line, for example a half written line.
pub fn read(text: &str, generation: GenerationNumber) -> Result<Vec<Line>, String> {
    text.lines()
        .map(|line| read_line(line, generation).ok_or_else(|| format!("{line:?} is no line of a log")))
        .collect()
}

fn read_line(line: &str, generation: GenerationNumber) -> Option<Line> {
    let words: Vec<_> = line.split(' ').collect();
    let (&[word, cob, from, to, at], rest) = words.split_first_chunk()?;
    at.parse::<u64>().ok()?;
    let generation = match rest {
        [] => generation,
        [own] => GenerationNumber(own.parse().ok()?),
        _ => return None,
    };
    Some(Line {
        begins: match word {
            "start" => true,
            "end" => false,
            _ => return None,
        },
        cob: CobId::new(cob).ok()?,
        from: StateName::new(from).ok()?,
        to: StateName::new(to).ok()?,
        generation,
    })
}

/// Judges a whole log, from the first action of the cluster to the last; returns every fault as text.
#[must_use]
pub fn judge(log: &[Line], generations: &Generations) -> Vec<String> {
    let mut judge = Judge { generations, things: BTreeMap::new(), faults: Vec::new() };
    for (number, line) in (1..).zip(log) {
        let before = judge.faults.len();
        if line.begins {
            judge.begins(line);
        } else {
            judge.ends(line);
        }
        judge.faults[before..].iter_mut().for_each(|fault| *fault = format!("line {number}, {line}: {fault}"));
    }
    judge.rests();
    judge.faults
}

/// The change objects outside the desired states of the last generation, judged by the ends in the log alone.
#[must_use]
pub fn unfinished(log: &[Line], generations: &Generations) -> Vec<String> {
    let mut judge = Judge { generations, things: BTreeMap::new(), faults: Vec::new() };
    for line in log {
        let state = if line.begins { judge.state(&line.cob) } else { line.to.clone() };
        let action = line.begins.then(|| Action { begun: line.clone(), rests_on: Vec::new() });
        judge.things.insert(line.cob.clone(), Thing { state, content: line.generation, action });
    }
    judge.rests();
    judge.faults
}

struct Judge<'a> {
    generations: &'a Generations,
    things: BTreeMap<CobId, Thing>,
    faults: Vec<String>,
}

/// The state of a change object according to the log. Without a line it is in its pre-remove state, untouched.
struct Thing {
    state: StateName,
    /// The generation whose content it was last moved with.
    content: GenerationNumber,
    action: Option<Action>,
}

struct Action {
    begun: Line,
    /// The change objects that it relies on until it ends.
    rests_on: Vec<CobId>,
}

impl Judge<'_> {
    fn begins(&mut self, line: &Line) {
        let Some((cob, kind)) = self.find(&line.cob, line.generation) else {
            self.faults.push("there is no such change object in this generation".to_owned());
            return;
        };
        let needs: Vec<Need> = cob
            .transitions
            .iter()
            .filter(|t| t.from == line.from && t.to == line.to)
            .flat_map(|t| t.needs.clone())
            .collect();
        if !kind.transitions.iter().any(|t| t.from == line.from && t.to == line.to) {
            self.faults.push("its kind has no such transition".to_owned());
        }
        self.leaves_where_it_was(line);
        let users = self.things.iter().filter_map(|(id, thing)| {
            let action = thing.action.as_ref()?;
            action.rests_on.contains(&line.cob).then(|| format!("it moves while an action of {id} rests on it"))
        });
        let users: Vec<_> = users.collect();
        self.faults.extend(users);
        let mut rests_on = Vec::new();
        self.rest_on(&needs, line.generation, &mut rests_on);
        let state = self.state(&line.cob);
        let content = self.things.get(&line.cob).map_or(GenerationNumber(0), |t| t.content);
        let action = Some(Action { begun: line.clone(), rests_on });
        self.things.insert(line.cob.clone(), Thing { state, content, action });
    }

    fn leaves_where_it_was(&mut self, line: &Line) {
        let state = self.state(&line.cob);
        let Some(thing) = self.things.get(&line.cob) else {
            if line.from != state {
                self.faults.push(format!("it is in {state}"));
            }
            return;
        };
        if let Some(action) = &thing.action {
            self.faults.push(format!("another action of it runs: {}", action.begun));
        }
        let changed = self.print(&line.cob, thing.content) != self.print(&line.cob, line.generation);
        let outdated = line.from == StateName::OUTDATED && changed && !self.is_off(&line.cob, &state);
        if line.from != state && !outdated {
            self.faults.push(format!("it is in {state}"));
        }
    }

    /// Checks the needs and the needs of their grants, and collects all of these change objects.
    fn rest_on(&mut self, needs: &[Need], generation: GenerationNumber, all: &mut Vec<CobId>) {
        for need in needs {
            let state = self.state(&need.cob);
            if self.things.get(&need.cob).is_some_and(|t| t.action.is_some()) {
                self.faults.push(format!("it needs {need}, which is being moved"));
            } else if !need.states.contains(&state) {
                self.faults.push(format!("it needs {need}, which is in {state}"));
            } else if !self.has_content_of(&need.cob, generation) {
                self.faults.push(format!("it needs {need}, which has the content of another generation"));
            }
            if all.contains(&need.cob) {
                continue;
            }
            all.push(need.cob.clone());
            self.promise_rests(&need.cob, &state, generation, all);
        }
    }

    /// A grant of `state` was made under the lock dependencies of the grantor's host: that host may be a generation
    /// ahead of this one, or a generation behind.
    fn promise_rests(&mut self, cob: &CobId, state: &StateName, generation: GenerationNumber, all: &mut Vec<CobId>) {
        let near = [generation.0, generation.0 + 1, generation.0.saturating_sub(1)].map(GenerationNumber);
        let mut first_faults = None;
        for number in near {
            let Some((cob, _)) = self.find(cob, number) else { continue };
            let needs: Vec<_> = cob.locks.iter().filter(|l| l.state == *state).flat_map(|l| l.needs.clone()).collect();
            let (before, mut rests_on) = (self.faults.len(), all.clone());
            self.rest_on(&needs, number, &mut rests_on);
            let faults = self.faults.split_off(before);
            if faults.is_empty() {
                *all = rests_on;
                return;
            }
            first_faults.get_or_insert(faults);
        }
        let faults = first_faults.unwrap_or_default();
        self.faults.extend(faults.into_iter().map(|fault| format!("the promise of {cob}@{state}: {fault}")));
    }

    fn ends(&mut self, line: &Line) {
        let begun = self.things.get_mut(&line.cob).and_then(|t| t.action.take()).map(|a| a.begun);
        let fits = begun.is_some_and(|b| (&b.from, &b.to, b.generation) == (&line.from, &line.to, line.generation));
        if !fits {
            self.faults.push("no such action has begun".to_owned());
        }
        let thing = Thing { state: line.to.clone(), content: line.generation, action: None };
        self.things.insert(line.cob.clone(), thing);
    }

    /// All change objects have the states and contents of the last generation; removed change objects are off.
    fn rests(&mut self) {
        let Some((&last, generation)) = self.generations.last_key_value() else { return };
        for (id, thing) in &self.things {
            if let Some(action) = &thing.action {
                self.faults.push(format!("at the end an action of {id} runs: {}", action.begun));
            }
            if self.find(id, last).is_none() && !self.is_off(id, &thing.state) {
                self.faults.push(format!("at the end {id}, which should be gone, is in {}", thing.state));
            }
        }
        for (id, cob) in generation.bundles.values().flat_map(|b| &b.cobs) {
            let state = self.state(id);
            if state != cob.preferred {
                self.faults.push(format!("at the end {id} is in {state}, not in {}", cob.preferred));
            } else if !self.has_content_of(id, last) {
                self.faults.push(format!("at the end {id} has the content of another generation"));
            }
        }
    }

    fn state(&self, cob: &CobId) -> StateName {
        match self.things.get(cob) {
            Some(thing) => thing.state.clone(),
            None => {
                let mut kinds = self.generations.keys().filter_map(|g| Some(self.find(cob, *g)?.1));
                kinds.next().map_or_else(|| StateName::new("unheard-of").expect("a name"), |k| k.pre_remove.clone())
            }
        }
    }

    fn is_off(&self, cob: &CobId, state: &StateName) -> bool {
        self.generations.keys().filter_map(|g| self.find(cob, *g)).any(|(_, kind)| kind.pre_remove == *state)
    }

    /// A change object that is off has no content.
    fn has_content_of(&self, cob: &CobId, generation: GenerationNumber) -> bool {
        let content = self.things.get(cob).map(|t| t.content);
        let wanted = self.print(cob, generation);
        self.is_off(cob, &self.state(cob)) || wanted.is_none() || content.and_then(|c| self.print(cob, c)) == wanted
    }

    fn print(&self, cob: &CobId, generation: GenerationNumber) -> Option<Fingerprint> {
        self.find(cob, generation).map(|(cob, _)| cob.fingerprint)
    }

    fn find(&self, cob: &CobId, generation: GenerationNumber) -> Option<(&Cob, &Kind)> {
        let bundle = self.generations.get(&generation)?.bundles.get(cob.host_str())?;
        let cob = bundle.cobs.get(cob)?;
        Some((cob, bundle.kinds.get(&cob.kind)?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The example `simple`, and a second generation with another content of oss1/net.
    fn generations() -> Generations {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/simple");
        let mut draft = cobgen::expand::load(&model, &BTreeSet::new()).draft.expect("a right model");
        let mut all = Generations::new();
        for number in [1, 2].map(GenerationNumber) {
            let assembled = cobgen::generation::assemble(draft.clone(), number, GenerationNumber(number.0 - 1));
            all.insert(number, assembled.expect("fits together").generation);
            let net = draft.cobs.get_mut("oss1/net").expect("in the example");
            net.value.content["round"] = 2.into();
        }
        all
    }

    const FIRST: [&str; 6] = [
        "mds1/net down up 1",
        "oss1/net down up 1",
        "oss2/net down up 1",
        "mds1/mdt down up 1",
        "oss1/ost0 down up 1",
        "oss2/ost0 down up 1",
    ];
    const SECOND: [&str; 3] = ["oss1/ost0 up down 1", "oss1/net outdated up 2", "oss1/ost0 down up 2"];

    /// Each action starts and ends before the next.
    fn one_by_one(actions: &[&str]) -> Vec<String> {
        let both = |a: &&str| {
            let (rest, generation) = a.rsplit_once(' ').expect("with a generation");
            ["start", "end"].map(|word| format!("{word} {rest} 1795226399000000000 {generation}"))
        };
        actions.iter().flat_map(both).collect()
    }

    fn faults(lines: &[String]) -> Vec<String> {
        judge(&read(&lines.join("\n"), GenerationNumber(1)).expect("a log"), &generations())
    }

    fn good() -> Vec<String> {
        one_by_one(&[&FIRST[..], &SECOND].concat())
    }

    #[test]
    fn a_good_log_has_no_fault() {
        assert_eq!(faults(&good()), [""; 0]);
        // Actions of different hosts at the same time.
        let mut lines = good();
        lines.swap(1, 2);
        lines.swap(9, 10);
        assert_eq!(faults(&lines), [""; 0]);
    }

    #[test]
    fn each_fault_is_found() {
        let all = [&FIRST[..], &SECOND].concat();
        let without = |gone: usize| {
            let kept = all.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, a)| *a);
            one_by_one(&kept.collect::<Vec<_>>())
        };
        let swapped = |a: usize, b: usize| {
            let mut lines = good();
            lines.swap(a, b);
            lines
        };
        let replaced = |at: usize, by: &str| {
            let mut actions = all.clone();
            actions[at] = by;
            one_by_one(&actions)
        };
        for (lines, fault) in [
            (without(3), "oss1/ost0 down up (1): it needs mds1/mdt@up, which is in down"),
            (without(1), "it needs oss1/net@up, which is in down"),
            (swapped(7, 8), "start oss1/ost0 down up (1): it needs mds1/mdt@up, which is being moved"),
            (swapped(13, 14), "it needs oss1/ost0@down, which is being moved"),
            (without(6), "it needs oss1/ost0@down, which is in up"),
            (swapped(14, 15), "end oss1/net outdated up (2): no such action has begun"),
            (replaced(0, "mds1/net up down 1"), "start mds1/net up down (1): it is in down"),
            (replaced(8, "oss1/ost0 down up 1"), "it needs oss1/net@up, which has the content of another generation"),
            (replaced(8, "oss1/ost0 down outdated 2"), "its kind has no such transition"),
            (replaced(7, "oss1/net outdated up 1"), "start oss1/net outdated up (1): it is in up"),
            (replaced(7, "oss3/net down up 1"), "there is no such change object in this generation"),
            (without(8), "at the end oss1/ost0 is in down, not in up"),
            (one_by_one(&FIRST), "at the end oss1/net has the content of another generation"),
            (good()[..17].to_vec(), "at the end an action of oss1/ost0 runs"),
            ([good(), vec![good()[16].clone()]].concat(), "start oss1/ost0 down up (2): it is in up"),
            ([&good()[..1], &good()].concat(), "another action of it runs: start mds1/net down up (1)"),
        ] {
            let found = faults(&lines);
            assert!(found.iter().any(|f| f.contains(fault)), "{fault:?} is not among {found:#?}");
        }
    }

    #[test]
    fn unfinished_transitions_are_found_at_the_end_of_the_log() {
        let left = |lines: &[String]| {
            unfinished(&read(&lines.join("\n"), GenerationNumber(1)).expect("a log"), &generations())
        };
        assert_eq!(left(&good()), [""; 0]);
        assert_eq!(left(&one_by_one(&SECOND)).len(), 4, "four have not come up");
        assert_eq!(
            left(&good()[..17]),
            [
                "at the end an action of oss1/ost0 runs: start oss1/ost0 down up (2)",
                "at the end oss1/ost0 is in down, not in up",
            ]
        );
    }

    #[test]
    fn the_lock_needs_of_a_granted_state_must_hold_too() {
        // ost0 is started while mdt has granted to stay up, which it may do only while its net is up.
        let mut lines = good();
        let end = lines.remove(9);
        lines.insert(9, "start mds1/net up down 1795226399000000000 1".to_owned());
        lines.insert(10, end);
        let found = faults(&lines);
        assert!(
            found.iter().any(|f| f.contains("mds1/net up down (1): it moves while an action of oss1/ost0")),
            "{found:#?}"
        );
    }

    #[test]
    fn a_torn_line_is_refused() {
        for line in ["start mds1/net down up", "start mds1/net down up x", "begin n1/a down up 1", "end n1 down up 1"] {
            read(line, GenerationNumber(1)).expect_err(line);
        }
    }
}
