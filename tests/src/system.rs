//! A small system in numbers: change objects `0..n`, states `0..m`, transitions, needs. It becomes bundles without any
//! part of the generator, so that tests of the engine are independent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use cob_types::canonical;
use cob_types::cob::Fingerprint;
use cob_types::kind::KindCheck;
use cob_types::{
    Askers, Bundle, Cob, CobId, HostName, Kind, KindName, LockNeeds, Need, StateName, Transition, TransitionNeeds,
};

/// The back end whose actions run inside the daemon.
pub const IN_PROCESS: &str = "noop";

/// A need: a change object, in any of these states.
pub type N = (usize, Vec<usize>);

/// A change object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thing {
    /// The number of its host.
    pub host: usize,
    /// The number of its states.
    pub states: usize,
    /// States by priority, the strongest first.
    pub priority: Vec<usize>,
    /// Its preferred state.
    pub preferred: usize,
    /// Its pre-remove state.
    pub pre_remove: usize,
    /// Its initial state.
    pub initial: usize,
    /// Its transitions, in the kind's order: from, to, needs.
    pub transitions: Vec<(usize, usize, Vec<N>)>,
    /// Its lock dependencies: state, needs.
    pub locks: Vec<(usize, Vec<N>)>,
    /// A state that only checks find: it is named `outdated`.
    pub outdated: Option<usize>,
    /// Retries of each transition.
    pub retries: u32,
    /// Whether its actions run inside the daemon and die with it.
    pub in_process: bool,
    /// The names of its states; if empty, numbers and `outdated`.
    pub labels: Vec<String>,
    /// The content for its kind.
    pub content: String,
    /// The budget from which it takes tokens.
    pub budget: Option<usize>,
    /// It is a budget with this many tokens.
    pub at_most: Option<u32>,
    /// It departs without a transition.
    pub keep: bool,
    /// Whether it is only observed.
    pub observe: bool,
}

impl Thing {
    /// Every change object that it depends on, once per dependency.
    pub fn depended_on(&self) -> impl Iterator<Item = usize> + '_ {
        let transitions = self.transitions.iter().flat_map(|h| &h.2);
        transitions.chain(self.locks.iter().flat_map(|l| &l.1)).map(|n| n.0)
    }
}

/// A complete system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct System {
    /// Its change objects.
    pub things: Vec<Thing>,
    /// Names, by number; `c0`, `c1` … by default.
    pub names: Vec<String>,
    /// Names of hosts, by number; `h0`, `h1` … by default.
    pub hosts: Vec<String>,
}

impl System {
    /// The id of a change object.
    #[must_use]
    pub fn id(&self, thing: usize) -> CobId {
        let name = self.names.get(thing).cloned().unwrap_or_else(|| format!("c{thing}"));
        CobId::on(&self.host(self.things[thing].host), &name).expect("well formed")
    }

    /// The name of a host.
    #[must_use]
    pub fn host(&self, host: usize) -> HostName {
        let name = self.hosts.get(host).cloned().unwrap_or_else(|| format!("h{host}"));
        HostName::new(&name).expect("well formed")
    }

    /// The name of a state.
    #[must_use]
    pub fn state(&self, thing: usize, state: usize) -> StateName {
        let Thing { labels, outdated, .. } = &self.things[thing];
        let text = match labels.get(state) {
            Some(label) => label.clone(),
            None if *outdated == Some(state) => StateName::OUTDATED.to_owned(),
            None => state.to_string(),
        };
        StateName::new(&text).expect("well formed")
    }

    /// The initial states of all change objects.
    #[must_use]
    pub fn initial(&self) -> BTreeMap<CobId, StateName> {
        (0..self.things.len()).map(|t| (self.id(t), self.state(t, self.things[t].initial))).collect()
    }

    fn fingerprint(&self, thing: usize) -> Fingerprint {
        canonical::fingerprint(&[self.id(thing).as_str().as_bytes(), self.things[thing].content.as_bytes()])
    }

    fn needs(&self, needs: &[N]) -> Vec<Need> {
        needs
            .iter()
            .map(|(cob, set)| Need { cob: self.id(*cob), states: set.iter().map(|s| self.state(*cob, *s)).collect() })
            .collect()
    }

    /// Its bundles, by host, with ranks.
    ///
    /// # Panics
    /// If the system is not well formed.
    #[must_use]
    pub fn bundles(&self) -> BTreeMap<HostName, Arc<Bundle>> {
        let ranks = self.ranks();
        let mut bundles: BTreeMap<HostName, Bundle> = BTreeMap::new();
        for (t, thing) in self.things.iter().enumerate() {
            let host = self.host(thing.host);
            let bundle = bundles.entry(host.clone()).or_insert_with(|| Bundle::empty(host));
            let kind = self.kind(t);
            let state = |s: usize| self.state(t, s);
            let cob = Cob {
                id: self.id(t),
                kind: kind.name.clone(),
                preferred: state(thing.preferred),
                content: format!("{:?}", thing.content),
                fingerprint: self.fingerprint(t),
                rests_on: None,
                transitions: thing
                    .transitions
                    .iter()
                    .filter(|h| !h.2.is_empty())
                    .map(|(from, to, n)| TransitionNeeds { from: state(*from), to: state(*to), needs: self.needs(n) })
                    .collect(),
                locks: thing.locks.iter().map(|(s, n)| LockNeeds { state: state(*s), needs: self.needs(n) }).collect(),
                ranks: (0..thing.states).map(|s| (state(s), ranks[&(t, s)])).collect(),
                expects: thing.depended_on().map(|other| (self.id(other), self.fingerprint(other))).collect(),
                budget: thing.budget.map(|b| Box::new(Need { cob: self.id(b), states: vec![self.state(b, 0)] })),
                at_most: thing.at_most,
                keep: thing.keep,
                observe: thing.observe,
                files: BTreeMap::new(),
            };
            bundle.kinds.insert(kind.name.clone(), kind);
            bundle.cobs.insert(cob.id.clone(), Arc::new(cob));
        }
        Askers::fill(&mut bundles);
        for bundle in bundles.values() {
            bundle.validate().expect("a drawn bundle is well formed");
        }
        bundles.into_iter().map(|(h, b)| (h, Arc::new(b))).collect()
    }

    fn kind(&self, t: usize) -> Kind {
        let thing = &self.things[t];
        let state = |s: usize| self.state(t, s);
        Kind {
            name: KindName::new(&self.id(t).as_str().replace('/', ".")).expect("well formed"),
            backend: if thing.in_process { IN_PROCESS } else { "command" }.to_owned(),
            states: (0..thing.states).map(state).collect(),
            preferred: state(thing.preferred),
            pre_remove: state(thing.pre_remove),
            priority: thing.priority.iter().map(|s| state(*s)).collect(),
            check: KindCheck { run: None, timeout_ms: 1000, interval_ms: None },
            transitions: thing
                .transitions
                .iter()
                .map(|(from, to, _)| Transition {
                    from: state(*from),
                    to: state(*to),
                    run: None,
                    timeout_ms: 1000,
                    grace_ms: 1000,
                    retries: thing.retries,
                    retry_delay_ms: 20,
                    failure: None,
                    revert: None,
                    irreversible: false,
                })
                .collect(),
            files: BTreeMap::new(),
        }
    }

    /// The goals that a goal needs: `(C, t)` needs `(B, z)` if a transition on a route to `t`, or `t`'s lock
    /// dependencies, name it.
    fn goal_needs(&self, t: usize, target: usize) -> BTreeSet<(usize, usize)> {
        let thing = &self.things[t];
        let mut needs = BTreeSet::new();
        let mut add = |n: &[N]| {
            for (cob, set) in n {
                needs.extend(set.iter().map(|s| (*cob, *s)));
            }
        };
        for from in 0..thing.states {
            if let Some(transition) = first_transition(thing, from, target) {
                add(&thing.transitions[transition].2);
            }
        }
        for (_, n) in thing.locks.iter().filter(|l| l.0 == target) {
            add(n);
        }
        needs
    }

    /// A topological order of the goals, needed goals first; cycles are broken by number.
    #[must_use]
    pub fn ranks(&self) -> BTreeMap<(usize, usize), u64> {
        let goals = (0..self.things.len()).flat_map(|t| (0..self.things[t].states).map(move |s| (t, s)));
        let mut open: BTreeMap<(usize, usize), BTreeSet<(usize, usize)>> =
            goals.map(|g| (g, self.goal_needs(g.0, g.1))).collect();
        let mut ranks = BTreeMap::new();
        while !open.is_empty() {
            let free = open.iter().find(|(_, needs)| needs.iter().all(|n| ranks.contains_key(n))).map(|(g, _)| *g);
            let goal = free.or_else(|| open.keys().next().copied()).expect("some goal is left");
            open.remove(&goal);
            ranks.insert(goal, ranks.len() as u64);
        }
        ranks
    }
}

/// In the notation of the transcripts.
impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs = |needs: &[N]| {
            let text = needs.iter().map(|(cob, set)| {
                let states: Vec<_> = set.iter().map(|s| self.state(*cob, *s).to_string()).collect();
                format!("{}@{}", self.id(*cob), states.join("|"))
            });
            text.collect::<Vec<_>>().join(" ")
        };
        let states = |t: usize, states: &[usize]| {
            states.iter().map(|s| self.state(t, *s).to_string()).collect::<Vec<_>>().join(" ")
        };
        for (t, thing) in self.things.iter().enumerate() {
            let all: Vec<usize> = (0..thing.states).collect();
            writeln!(f, "cob {}: {}", self.id(t), states(t, &all))?;
            writeln!(f, "  priority {}", states(t, &thing.priority))?;
            writeln!(f, "  is {}", self.state(t, thing.initial))?;
            writeln!(f, "  prefers {}", self.state(t, thing.preferred))?;
            writeln!(f, "  leaves in {}", self.state(t, thing.pre_remove))?;
            if thing.keep {
                writeln!(f, "  leaves as it is")?;
            }
            if thing.observe {
                writeln!(f, "  observed")?;
            }
            if thing.in_process {
                writeln!(f, "  inside the daemon")?;
            }
            if let Some(at_most) = thing.at_most {
                writeln!(f, "  at most {at_most}")?;
            }
            if let Some(budget) = thing.budget {
                writeln!(f, "  budget {}", self.id(budget))?;
            }
            for (from, to, n) in &thing.transitions {
                let arrow = if n.is_empty() { "" } else { " <- " };
                writeln!(f, "  transition {} {}{arrow}{}", self.state(t, *from), self.state(t, *to), needs(n))?;
            }
            for (state, n) in &thing.locks {
                writeln!(f, "  lock {} <- {}", self.state(t, *state), needs(n))?;
            }
        }
        Ok(())
    }
}

/// The first transition of the shortest route; ties are broken by the order of the transitions.
#[must_use]
pub fn first_transition(thing: &Thing, from: usize, to: usize) -> Option<usize> {
    let distance = |start: usize| -> Option<usize> {
        let mut seen = BTreeSet::from([start]);
        let mut front = vec![start];
        let mut steps = 0;
        while !front.contains(&to) {
            let next: Vec<usize> = thing.transitions.iter().filter(|h| front.contains(&h.0)).map(|h| h.1).collect();
            front = next.into_iter().filter(|s| seen.insert(*s)).collect();
            steps += 1;
            if front.is_empty() {
                return None;
            }
        }
        Some(steps)
    };
    if from == to {
        return None;
    }
    let whole = distance(from)?;
    thing.transitions.iter().position(|h| h.0 == from && distance(h.1) == Some(whole - 1))
}
