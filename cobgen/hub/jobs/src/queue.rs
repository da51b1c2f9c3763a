//! Events in, effects out.

use std::collections::{BTreeMap, BTreeSet};

use cob_job_locks::{Lock, Locks, Mode, Patience, Priority};

use crate::job::{Cause, Job, JobId, LEAST_IMPORTANT, MOST_IMPORTANT, Millis, Outcome, Report, Run, Spec, Status};
use crate::limits::Limits;
use crate::rules::{Action, Drain, Rule, applying, because, sort};

/// The jobs of a hub. See the [crate](crate) for the rules.
#[derive(Clone, Debug)]
pub struct Queue<P, L: Lock> {
    pub(crate) jobs: BTreeMap<JobId, Job<P, L>>,
    /// The jobs that are not final.
    pub(crate) open: BTreeSet<JobId>,
    /// The number of the next job.
    pub(crate) next: JobId,
    /// In their order.
    pub(crate) rules: Vec<Rule>,
    pub(crate) drain: Option<Drain>,
    pub(crate) limits: Limits,
    /// The locks of active jobs.
    pub(crate) locks: Locks<L, JobId>,
    pub(crate) changed: BTreeSet<JobId>,
}

/// An order to the caller. It is performed after the changed jobs are durable, in the order of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Start a process for the job. If it announces itself: [`Queue::started`]; if it fails: [`Queue::died`].
    Start(Run),
    /// Permit the process that has announced itself to work.
    Confirm(Run),
    /// Ask the process and all that it has started to end. A process that was not confirmed is dropped.
    Terminate(Run),
    /// Kill the process and all that it has started.
    Kill(Run),
    /// After a restart: wait for the death of this process, which an earlier hub has started.
    Watch(Run),
    /// The job has become final.
    Finished(JobId, Outcome),
    /// The job has left the table. Its record moves to the archive.
    Archive(JobId),
}

/// A job to submit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<P, L> {
    /// The job.
    pub spec: Spec<P, L>,
    /// Jobs that have to be final before, and the permitted outcomes. A negative number counts backwards within one
    /// submission: -1 is the job before this one.
    pub dependencies: Vec<(i64, BTreeSet<Outcome>)>,
}

/// Why a submission was refused: no job of it is in the queue.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The queue accepts no jobs.
    #[error("the queue is drained and accepts no new jobs{}", because(.0))]
    Drained(String),
    /// The priority is not one of -20 to 19.
    #[error("the priority {} of job {} of the submission is not between -20 and 19", .priority.0, .index + 1)]
    Priority {
        /// The place in the submission, from 0.
        index: usize,
        /// The wrong priority.
        priority: Priority,
    },
    /// A relative dependency leads out of the submission.
    #[error("job {} of the submission depends on job {reference}: the submission has no such job before", .index + 1)]
    Reference {
        /// The place in the submission, from 0.
        index: usize,
        /// The wrong reference.
        reference: i64,
    },
    /// A rule rejects a job.
    #[error("the rule {rule} rejects job {} of the submission{}", .index + 1, because(.reason))]
    Rejected {
        /// The place in the submission, from 0.
        index: usize,
        /// The rule's id.
        rule: String,
        /// The reason of the rule.
        reason: String,
    },
    /// There is no further job number.
    #[error("the numbers of jobs are used up")]
    Exhausted,
}

/// Why an event or a change was refused: nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotDone {
    /// The table has no such job.
    #[error("there is no job {0}; it was never submitted, or is archived")]
    Unknown(JobId),
    /// The status of the job does not permit it.
    #[error("job {job} is {status:?}")]
    Status {
        /// The job.
        job: JobId,
        /// Its status.
        status: Status,
    },
    /// The priority is not one of -20 to 19.
    #[error("the priority {} is not between -20 and 19", .0.0)]
    Priority(Priority),
    /// There is no rule with this id.
    #[error("there is no rule {0}")]
    UnknownRule(String),
}

type Done = Result<Vec<Effect>, NotDone>;

/// Whether jobs may have this priority.
pub fn is_permitted(priority: Priority) -> bool {
    (MOST_IMPORTANT..=LEAST_IMPORTANT).contains(&priority)
}

impl<P: Clone, L: Lock> Queue<P, L> {
    /// No job was ever submitted.
    pub fn new(limits: Limits) -> Self {
        Self {
            jobs: BTreeMap::new(),
            open: BTreeSet::new(),
            next: JobId(1),
            rules: Vec::new(),
            drain: None,
            locks: Locks::new(Patience::ENDLESS),
            limits,
            changed: BTreeSet::new(),
        }
    }

    /// All jobs that are not archived.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &Job<P, L>> {
        self.jobs.values()
    }

    /// The jobs that have not ended.
    pub fn open_jobs(&self) -> impl DoubleEndedIterator<Item = &Job<P, L>> {
        self.open.iter().filter_map(|id| self.jobs.get(id))
    }

    /// A job.
    pub fn job(&self, id: JobId) -> Option<&Job<P, L>> {
        self.jobs.get(&id)
    }

    /// The held locks.
    pub fn locks(&self) -> &Locks<L, JobId> {
        &self.locks
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Why the queue refuses new jobs, if it does.
    pub fn drained(&self) -> Option<&Drain> {
        self.drain.as_ref()
    }

    /// The number that the next job gets. The watermark of a new rule is one less.
    pub fn next_id(&self) -> JobId {
        self.next
    }

    /// The jobs that have changed since the last call: their records have to be written, or moved to the archive if the
    /// table does not have them any more. [`Self::next_id`], [`Self::rules`] and [`Self::drained`] belong to the
    /// state, too.
    pub fn take_changed(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.changed)
    }

    /// Submits jobs: all, or none.
    ///
    /// # Errors
    ///
    /// A refusal; nothing has changed.
    pub fn submit(&mut self, requests: Vec<Request<P, L>>, now: Millis) -> Result<(Vec<JobId>, Vec<Effect>), Refused> {
        if let Some(drain) = &self.drain {
            return Err(Refused::Drained(drain.reason.clone()));
        }
        let first = self.next.0;
        let next =
            first.checked_add(requests.len() as u64).filter(|next| *next < u64::MAX).ok_or(Refused::Exhausted)?;
        let mut jobs = Vec::new();
        for (index, request) in requests.into_iter().enumerate() {
            let id = JobId(first + index as u64);
            let priority = request.spec.priority;
            if !is_permitted(priority) {
                return Err(Refused::Priority { index, priority });
            }
            let rule = applying(&self.rules, id, &request.spec).find(|rule| rule.action == Action::Reject);
            if let Some(rule) = rule {
                return Err(Refused::Rejected { index, rule: rule.id.clone(), reason: rule.reason.clone() });
            }
            let mut dependencies: BTreeMap<JobId, BTreeSet<Outcome>> = BTreeMap::new();
            for (reference, permitted) in request.dependencies {
                let job = resolve(reference, index, first).ok_or(Refused::Reference { index, reference })?;
                // The same job twice: both conditions count.
                let before = dependencies.get(&job);
                let both = before.map(|before| before & &permitted).unwrap_or(permitted);
                dependencies.insert(job, both);
            }
            jobs.push(new_job(id, request.spec, dependencies, now));
        }
        let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
        self.next = JobId(next);
        for job in jobs {
            self.open.insert(job.id);
            self.changed.insert(job.id);
            self.jobs.insert(job.id, job);
        }
        Ok((ids, self.settle(now)))
    }

    /// A process has announced itself: its lock file is on record.
    ///
    /// # Errors
    ///
    /// The job does not start.
    pub fn started(&mut self, run: Run, now: Millis) -> Done {
        let Some(job) = self.current(run)? else { return Ok(Vec::new()) };
        match job.status {
            Status::Starting => {
                job.enter(Status::Running);
                job.started.get_or_insert(now);
                self.changed.insert(run.job);
                Ok(vec![Effect::Confirm(run)])
            }
            Status::Running => Ok(vec![Effect::Confirm(run)]),
            Status::Canceling => Ok(vec![Effect::Terminate(run)]),
            Status::Queued | Status::Waiting | Status::Succeeded | Status::Failed | Status::Canceled => {
                Err(NotDone::Status { job: run.job, status: job.status })
            }
        }
    }

    /// A process is dead and has left a report.
    ///
    /// # Errors
    ///
    /// The job has no process that works.
    pub fn ended(&mut self, run: Run, report: Report, now: Millis) -> Done {
        let Some(job) = self.current(run)? else { return Ok(Vec::new()) };
        // A process that was never confirmed has not worked.
        if !matches!(job.status, Status::Running | Status::Canceling) || job.started.is_none() {
            return Err(NotDone::Status { job: run.job, status: job.status });
        }
        let (outcome, cause) = match report {
            Report::Succeeded => (Outcome::Succeeded, None),
            Report::Failed(message) => (Outcome::Failed, Some(Cause::Reported(message))),
            Report::Canceled => (Outcome::Canceled, Some(Cause::Requested)),
        };
        let mut effects = vec![self.finish(run.job, outcome, cause, now)];
        effects.extend(self.settle(now));
        Ok(effects)
    }

    /// A process is dead without a report, or could not be started.
    ///
    /// # Errors
    ///
    /// The job has no process.
    pub fn died(&mut self, run: Run, now: Millis) -> Done {
        let false_starts = self.limits.false_starts;
        let Some(job) = self.current(run)? else { return Ok(Vec::new()) };
        let (outcome, cause) = match job.status {
            Status::Canceling => (Outcome::Canceled, Cause::Requested),
            Status::Starting => {
                job.false_starts = job.false_starts.saturating_add(1);
                if job.false_starts < false_starts {
                    return Ok(self.restart(run.job));
                }
                (Outcome::Failed, Cause::NotStarted)
            }
            Status::Running if job.attempts.saturating_sub(job.false_starts) < job.spec.max_attempts => {
                return Ok(self.restart(run.job));
            }
            Status::Running => (Outcome::Failed, Cause::Died),
            Status::Queued | Status::Waiting | Status::Succeeded | Status::Failed | Status::Canceled => {
                return Err(NotDone::Status { job: run.job, status: job.status });
            }
        };
        let mut effects = vec![self.finish(run.job, outcome, Some(cause), now)];
        effects.extend(self.settle(now));
        Ok(effects)
    }

    /// Cancels a job: at once if it has no process. A repetition has no effect.
    ///
    /// # Errors
    ///
    /// The job has succeeded or failed already.
    pub fn cancel(&mut self, id: JobId, now: Millis) -> Done {
        let grace = self.limits.grace;
        let job = self.jobs.get_mut(&id).ok_or(NotDone::Unknown(id))?;
        match job.status {
            Status::Queued | Status::Waiting => {
                let mut effects = vec![self.finish(id, Outcome::Canceled, Some(Cause::Requested), now)];
                effects.extend(self.settle(now));
                Ok(effects)
            }
            Status::Starting | Status::Running => {
                job.enter(Status::Canceling);
                job.kill_at = Some(now.after(grace));
                self.changed.insert(id);
                Ok(vec![Effect::Terminate(job.run())])
            }
            Status::Canceling | Status::Canceled => Ok(Vec::new()),
            status @ (Status::Succeeded | Status::Failed) => Err(NotDone::Status { job: id, status }),
        }
    }

    /// Cancels a job without patience: its process is killed at once.
    ///
    /// # Errors
    ///
    /// The job has succeeded or failed already.
    pub fn kill(&mut self, id: JobId, now: Millis) -> Done {
        let mut effects = self.cancel(id, now)?;
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.status == Status::Canceling && !job.killed) {
            job.killed = true;
            self.changed.insert(id);
            effects.push(Effect::Kill(job.run()));
        }
        Ok(effects)
    }

    /// Changes the priority of a job that has not started.
    ///
    /// # Errors
    ///
    /// The job has started, or the priority is wrong.
    pub fn set_priority(&mut self, id: JobId, priority: Priority, now: Millis) -> Done {
        if !is_permitted(priority) {
            return Err(NotDone::Priority(priority));
        }
        let job = self.jobs.get_mut(&id).ok_or(NotDone::Unknown(id))?;
        if !job.status.is_pending() {
            return Err(NotDone::Status { job: id, status: job.status });
        }
        job.spec.priority = priority;
        job.ranked = Some(now);
        self.changed.insert(id);
        Ok(self.settle(now))
    }

    /// Makes a rule, or replaces the rule with this id. It cancels the jobs that it rejects.
    pub fn set_rule(&mut self, rule: Rule, now: Millis) -> Vec<Effect> {
        self.rules.retain(|other| other.id != rule.id);
        self.rules.push(rule);
        sort(&mut self.rules);
        self.settle(now)
    }

    /// Removes a rule.
    ///
    /// # Errors
    ///
    /// There is no such rule.
    pub fn remove_rule(&mut self, id: &str, now: Millis) -> Done {
        let at = self.rules.iter().position(|rule| rule.id == id);
        self.rules.remove(at.ok_or_else(|| NotDone::UnknownRule(id.to_owned()))?);
        Ok(self.settle(now))
    }

    /// Removes all rules that a tenant keeps. Returns their ids.
    pub fn remove_rules_of(&mut self, tenant: &str, now: Millis) -> (Vec<String>, Vec<Effect>) {
        let removed = self.rules.extract_if(.., |rule| rule.tenant.as_deref() == Some(tenant));
        let removed = removed.map(|rule| rule.id).collect();
        (removed, self.settle(now))
    }

    /// Refuses new jobs, or accepts them again. Jobs in the queue go on.
    pub fn drain(&mut self, drain: Option<Drain>) {
        self.drain = drain;
    }

    /// Changes the settings.
    pub fn set_limits(&mut self, limits: Limits, now: Millis) -> Vec<Effect> {
        self.limits = limits;
        self.settle(now)
    }

    /// Time has passed: kills processes that have not ended in time, and archives.
    pub fn tick(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        for id in &self.open {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if !job.killed && job.kill_at.is_some_and(|at| at <= now) {
                job.killed = true;
                self.changed.insert(*id);
                effects.push(Effect::Kill(job.run()));
            }
        }
        let due: BTreeSet<_> = self.archivable().filter(|(_, at)| *at <= now).map(|(id, _)| id).collect();
        for id in due {
            self.jobs.remove(&id);
            self.changed.insert(id);
            effects.push(Effect::Archive(id));
        }
        effects.extend(self.settle(now));
        effects
    }

    /// When [`Self::tick`] has to be called.
    pub fn next_tick(&self) -> Option<Millis> {
        let open = self.open.iter().filter_map(|id| self.jobs.get(id));
        let kills = open.filter(|job| !job.killed).filter_map(|job| job.kill_at);
        kills.chain(self.archivable().map(|(_, at)| at)).min()
    }

    /// The hub has restarted with a loaded state: what it has to do about the jobs that had started.
    pub fn resume(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        for job in self.open.iter().filter_map(|id| self.jobs.get(id)) {
            let run = job.run();
            match job.status {
                // No process was confirmed, so none works. A former process ends by itself.
                Status::Starting => effects.push(Effect::Start(run)),
                Status::Running => effects.push(Effect::Watch(run)),
                Status::Canceling => {
                    let again = if job.killed { Effect::Kill(run) } else { Effect::Terminate(run) };
                    effects.extend([Effect::Watch(run), again]);
                }
                Status::Queued | Status::Waiting | Status::Succeeded | Status::Failed | Status::Canceled => {}
            }
        }
        effects.extend(self.tick(now));
        effects
    }

    /// The job of a process; none if the news is about a former process.
    fn current(&mut self, run: Run) -> Result<Option<&mut Job<P, L>>, NotDone> {
        let job = self.jobs.get_mut(&run.job).ok_or(NotDone::Unknown(run.job))?;
        Ok(Some(job).filter(|job| run.attempt == job.attempts))
    }

    /// The next process of a job, which keeps its locks.
    fn restart(&mut self, id: JobId) -> Vec<Effect> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        job.enter(Status::Starting);
        job.attempts = job.attempts.saturating_add(1);
        self.changed.insert(id);
        vec![Effect::Start(job.run())]
    }

    /// Makes a job final. Its process is dead, or never was.
    pub(crate) fn finish(&mut self, id: JobId, outcome: Outcome, cause: Option<Cause>, now: Millis) -> Effect {
        if let Some(job) = self.jobs.get_mut(&id)
            && job.enter(outcome.status())
        {
            job.cause = cause;
            job.ended = Some(now);
            job.kill_at = None;
            job.killed = false;
        }
        self.open.remove(&id);
        self.changed.insert(id);
        self.locks.release_all(&id);
        Effect::Finished(id, outcome)
    }

    /// Final jobs on which no open job depends, and when they leave the table.
    fn archivable(&self) -> impl Iterator<Item = (JobId, Millis)> {
        let open = self.open.iter().filter_map(|id| self.jobs.get(id));
        let needed: BTreeSet<JobId> = open.flat_map(|job| job.dependencies.keys().copied()).collect();
        let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
        // The newest first: the oldest of too many leave at once.
        self.jobs.values().rev().filter_map(move |job| {
            let ended = job.ended?;
            let kept = kept.entry(job.spec.tenant.as_str()).or_default();
            *kept += 1;
            let at = if *kept > self.limits.keep_most { ended } else { ended.after(self.limits.keep) };
            (!needed.contains(&job.id)).then_some((job.id, at))
        })
    }
}

fn resolve(reference: i64, index: usize, first: u64) -> Option<JobId> {
    if let Ok(id) = u64::try_from(reference) {
        return Some(JobId(id));
    }
    let back = usize::try_from(reference.unsigned_abs()).ok()?;
    let at = index.checked_sub(back)?;
    Some(JobId(first + at as u64))
}

fn new_job<P, L: Lock>(
    id: JobId,
    mut spec: Spec<P, L>,
    dependencies: BTreeMap<JobId, BTreeSet<Outcome>>,
    now: Millis,
) -> Job<P, L> {
    // Each lock once, in the stronger mode.
    let mut locks: BTreeMap<L, Mode> = BTreeMap::new();
    for (lock, mode) in spec.locks {
        let strongest = locks.entry(lock).or_insert(mode);
        *strongest = mode.max(*strongest);
    }
    spec.locks = locks.into_iter().collect();
    Job {
        id,
        spec,
        dependencies,
        status: Status::Queued,
        cause: None,
        submitted: now,
        ranked: None,
        started: None,
        ended: None,
        attempts: 0,
        false_starts: 0,
        kill_at: None,
        killed: false,
        overtaken: 0,
    }
}
