//! How long a plan takes, in stages and without them.

use std::collections::BTreeMap;

use crate::action::Action;
use crate::plan::{Job, Plan};
use crate::stages::in_order;

/// How long jobs take, in milliseconds; the most exact that is known of a job counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    /// Of whatever nothing else is known.
    other: u64,
    known: BTreeMap<(Action, Option<String>, Option<String>), u64>,
}

/// How long a plan takes, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// In stages: of each the longest job, one stage after the other.
    pub staged: u64,
    /// Each job as soon as what it comes after has ended.
    pub ordered: u64,
    /// The jobs that the latter time is made of, in their order.
    pub longest: Vec<usize>,
}

impl Durations {
    /// Durations that are all the same, in milliseconds, until more is said.
    #[must_use]
    pub fn all(ms: u64) -> Self {
        Self { other: ms, known: BTreeMap::new() }
    }

    /// Says how long an action takes, with one service or all, on one node or all.
    pub fn set(&mut self, action: Action, service: Option<&str>, node: Option<&str>, ms: u64) {
        self.known.insert((action, service.map(str::to_owned), node.map(str::to_owned)), ms);
    }

    /// How long a job takes.
    #[must_use]
    pub fn of(&self, job: &Job) -> u64 {
        let node = Some(job.node.clone());
        let exact = [(job.service.clone(), node.clone()), (job.service.clone(), None), (None, node), (None, None)];
        exact.into_iter().find_map(|(s, n)| self.known.get(&(job.action, s, n)).copied()).unwrap_or(self.other)
    }
}

impl Plan {
    /// How long it takes.
    #[must_use]
    pub fn times(&self, durations: &Durations) -> Times {
        let of: Vec<u64> = self.steps.iter().map(|s| s.job.as_ref().map_or(0, |job| durations.of(job))).collect();
        let slowest = |stage: &Vec<usize>| stage.iter().map(|at| of[*at]).max().unwrap_or(0);
        let staged = self.stages.iter().map(slowest).fold(0, u64::saturating_add);
        let mut ends = vec![0_u64; self.steps.len()];
        let mut came: Vec<Option<usize>> = vec![None; self.steps.len()];
        for at in in_order(&self.steps) {
            // Of several equally late ones the first: the same plan shows the same way.
            let last = self.steps[at].after.iter().copied().max_by_key(|b| (ends[*b], std::cmp::Reverse(*b)));
            came[at] = last;
            ends[at] = last.map_or(0, |b| ends[b]).saturating_add(of[at]);
        }
        let mut at = (0..ends.len()).max_by_key(|at| (ends[*at], std::cmp::Reverse(*at)));
        let ordered = at.map_or(0, |at| ends[at]);
        let mut longest = Vec::new();
        while let Some(step) = at {
            if self.steps[step].job.is_some() {
                longest.push(step);
            }
            at = came[step];
        }
        longest.reverse();
        Times { staged, ordered, longest }
    }
}
