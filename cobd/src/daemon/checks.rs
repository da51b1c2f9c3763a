//! Queued checks.
//!
//! After a start, the engine requests a check of every change object, perhaps ten thousand. Checks that wait for the
//! same few threads do not end sooner if all start at once, and each uses memory from its start: a context, a task and
//! two channels, some 3 KiB.

use std::collections::{BTreeSet, VecDeque};

use cob_engine::Run;
use cob_types::{CobId, Number};

use super::{Daemon, job_id};
use crate::run::JobId;

/// The most checks under way: enough to keep the threads busy until the next tick of the loop.
const MOST: usize = 128;

/// The queue of checks.
#[derive(Default)]
pub(super) struct Checks {
    begun: BTreeSet<JobId>,
    waiting: VecDeque<(CobId, Number)>,
}

impl Checks {
    /// Whether this check may start; otherwise it waits.
    pub(super) fn take(&mut self, cob: &CobId, number: Number) -> bool {
        let free = self.begun.len() < MOST;
        if free {
            self.begun.insert(job_id(number));
        } else {
            self.waiting.push_back((cob.clone(), number));
        }
        free
    }

    /// Notes the end of a job.
    pub(super) fn ended(&mut self, job: JobId) {
        self.begun.remove(&job);
    }

    pub(super) fn next(&mut self) -> Option<(CobId, Number)> {
        if self.begun.len() >= MOST {
            return None;
        }
        let next = self.waiting.pop_front();
        if self.waiting.is_empty() {
            // Frees the memory: the queue may have been very long.
            self.waiting = VecDeque::new();
        }
        next
    }
}

impl Daemon {
    /// Whether a check may start now; otherwise it starts after others have ended.
    pub(super) fn may_check(&mut self, cob: &CobId, number: Number) -> bool {
        let kind = self.present.kind_of(cob);
        let in_turn = kind.is_some_and(|kind| self.kinds.checks_in_turn(kind));
        !in_turn || self.jobs.may_check(cob, number)
    }

    /// Starts waiting checks that the engine still awaits.
    pub(super) fn begin_waiting_checks(&mut self) {
        while let Some((cob, job)) = self.jobs.next_check() {
            if self.engine.awaits_check(&cob, job) {
                self.start_job(Run::Check { cob, job });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_checks_start_in_order_as_others_end() {
        let mut checks = Checks::default();
        let cob = |n: u64| CobId::new(&format!("h/c{n}")).expect("an id");
        let number = |counter| Number { start: 1, counter };
        let most = MOST as u64;
        assert!((0..most).all(|n| checks.take(&cob(n), number(n))));
        assert!((most..most + 3).all(|n| !checks.take(&cob(n), number(n))));
        assert_eq!(checks.next(), None);
        // The end of an unrelated job changes nothing.
        checks.ended(job_id(number(most + 7)));
        assert_eq!(checks.next(), None);
        checks.ended(job_id(number(5)));
        assert_eq!(checks.next(), Some((cob(most), number(most))));
        assert!(checks.take(&cob(most), number(most)));
        assert_eq!(checks.next(), None);
        checks.ended(job_id(number(6)));
        checks.ended(job_id(number(most)));
        assert_eq!(checks.next(), Some((cob(most + 1), number(most + 1))));
    }
}
