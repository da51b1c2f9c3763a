//! The duration of a plan, in stages and without stages.

use std::collections::BTreeMap;

use crate::action::Action;
use crate::plan::{Job, Plan};
use crate::stages::in_order;

/// Durations of jobs in milliseconds; the most specific entry for a job counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    /// The duration of jobs without an entry.
    other: u64,
    known: BTreeMap<(Action, Option<String>, Option<String>), u64>,
}

/// The duration of a plan, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// In stages: the sum of the longest job of each stage.
    pub staged: u64,
    /// Without stages: each job starts as soon as its dependencies have ended.
    pub ordered: u64,
    /// The jobs on the critical path of the latter, in order.
    pub longest: Vec<usize>,
}

impl Durations {
    /// The same duration for all jobs, in milliseconds, until `set` refines it.
    #[must_use]
    pub fn all(ms: u64) -> Self {
        Self { other: ms, known: BTreeMap::new() }
    }

    /// Sets the duration of an action, for a single service or all, on a single node or all.
    pub fn set(&mut self, action: Action, service: Option<&str>, node: Option<&str>, ms: u64) {
        self.known.insert((action, service.map(str::to_owned), node.map(str::to_owned)), ms);
    }

    /// The duration of a job.
    #[must_use]
    pub fn of(&self, job: &Job) -> u64 {
        let node = Some(job.node.clone());
        let exact = [(job.service.clone(), node.clone()), (job.service.clone(), None), (None, node), (None, None)];
        exact.into_iter().find_map(|(s, n)| self.known.get(&(job.action, s, n)).copied()).unwrap_or(self.other)
    }
}

impl Plan {
    /// The duration of the plan.
    #[must_use]
    pub fn times(&self, durations: &Durations) -> Times {
        let of: Vec<u64> = self.steps.iter().map(|s| s.job.as_ref().map_or(0, |job| durations.of(job))).collect();
        let slowest = |stage: &Vec<usize>| stage.iter().map(|at| of[*at]).max().unwrap_or(0);
        let staged = self.stages.iter().map(slowest).fold(0, u64::saturating_add);
        let mut ends = vec![0_u64; self.steps.len()];
        let mut came: Vec<Option<usize>> = vec![None; self.steps.len()];
        for at in in_order(&self.steps) {
            // On a tie the first job counts, so that the same plan always shows the same critical path.
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
