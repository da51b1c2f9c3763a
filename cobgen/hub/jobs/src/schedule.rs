//! Which job starts, and what holds back the others.

use std::collections::{BTreeMap, BTreeSet};

use cob_job_locks::{Lock, Mode, Patience, Priority, Table, Target};
use serde::Serialize;

use crate::job::{Cause, Job, JobId, Millis, Outcome, Status};
use crate::limits::{Bucket, Usage};
use crate::queue::{Effect, Queue};
use crate::rules::{Action, Rule, applying};

/// Something that holds back a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle<L> {
    /// A job that has to be final before.
    Dependency(JobId),
    /// An earlier job of the same cluster.
    SameCluster(JobId),
    /// A rule pauses the job.
    Paused {
        /// The rule's id.
        rule: String,
        /// The reason of the rule.
        reason: String,
    },
    /// A limit without a free place.
    Limit(Limit),
    /// A lock that other jobs have.
    Lock {
        /// The lock that the job wants.
        lock: L,
        /// How it wants the lock.
        mode: Mode,
        /// The jobs that hold it, a group or a member of it.
        holders: BTreeSet<JobId>,
        /// Jobs that wait for it and were overtaken too often; they come first.
        reservations: BTreeSet<JobId>,
    },
}

/// A limit of running jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// All jobs: so many may run.
    Running(usize),
    /// The jobs of the tenant: so many may run.
    Tenant(usize),
    /// The jobs of a bucket.
    Bucket(Bucket),
    /// The jobs of a rule.
    Rule {
        /// The rule's id.
        rule: String,
        /// The most running jobs.
        limit: usize,
        /// The reason of the rule.
        reason: String,
    },
}

#[cfg(test)]
thread_local! {
    /// How many jobs were looked at for obstacles.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What a pass over the pending jobs has found so far.
struct Pass<L: Lock> {
    usage: Usage,
    /// The first open job of each cluster.
    clusters: BTreeMap<String, JobId>,
    /// The locks for which jobs wait that nobody may overtake any more.
    reserved: Table<L, JobId>,
}

impl<P: Clone, L: Lock> Queue<P, L> {
    /// Ends pending jobs that can't start any more, and starts jobs as long as places are free.
    pub(crate) fn settle(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = self.end_hopeless(now);
        loop {
            // A start or a further reservation changes the obstacles of jobs that the pass has seen already.
            let reserved = self.reserved();
            let started = self.start_jobs(now);
            self.count_overtaken(&started);
            effects.extend(started.iter().map(|id| Effect::Start(self.jobs[id].run())));
            if started.is_empty() && self.reserved() == reserved {
                return effects;
            }
        }
    }

    /// A pass over the pending jobs, in their order. Returns the started ones.
    fn start_jobs(&mut self, now: Millis) -> Vec<JobId> {
        let mut pass = self.pass();
        let mut started = Vec::new();
        if pass.usage.running >= self.limits.running {
            return started;
        }
        for id in self.order(now) {
            if pass.usage.running >= self.limits.running {
                break;
            }
            let Some(job) = self.jobs.get(&id) else { continue };
            let obstacles = self.first_obstacles(job, &pass);
            if obstacles.is_empty() && self.start(id) {
                pass.usage.add(&self.jobs[&id], &self.rules);
                started.push(id);
                continue;
            }
            let status = if only_locks(&obstacles) { Status::Waiting } else { Status::Queued };
            if let Some(job) = self.jobs.get_mut(&id)
                && job.enter(status)
            {
                self.changed.insert(id);
            }
            self.reserve(id, &mut pass);
        }
        started
    }

    /// Why a job does not run yet: all its obstacles. None if it has started, or is unknown.
    pub fn obstacles_of(&self, id: JobId) -> Vec<Obstacle<L>> {
        self.obstacles_where(|job| job == id).remove(&id).unwrap_or_default()
    }

    /// Why each pending job does not run yet: all its obstacles. This is one pass over the jobs that have not ended.
    pub fn obstacles(&self) -> BTreeMap<JobId, Vec<Obstacle<L>>> {
        self.obstacles_where(|_| true)
    }

    fn obstacles_where(&self, is_wanted: impl Fn(JobId) -> bool) -> BTreeMap<JobId, Vec<Obstacle<L>>> {
        let mut pass = self.pass();
        let mut all = BTreeMap::new();
        let pending = self.open_jobs().filter(|job| job.status.is_pending());
        // Only jobs with reservations hold back others by their place in the order, and they come first.
        let (reserved, others): (Vec<_>, Vec<_>) = pending.partition(|job| self.is_reserved(job));
        for job in reserved.iter().chain(&others) {
            if is_wanted(job.id) {
                let mut obstacles = self.other_obstacles(job, &pass);
                obstacles.extend(self.lock_obstacles(job, &pass));
                all.insert(job.id, obstacles);
            }
            if self.is_reserved(job) && only_locks(&self.first_obstacles(job, &pass)) {
                self.reserve(job.id, &mut pass);
            }
        }
        all
    }

    fn pass(&self) -> Pass<L> {
        let (mut usage, mut clusters) = (Usage::default(), BTreeMap::new());
        for job in self.open_jobs() {
            if job.status.is_active() {
                usage.add(job, &self.rules);
            }
            if let Some(cluster) = &job.spec.cluster {
                clusters.entry(cluster.clone()).or_insert(job.id);
            }
        }
        Pass { usage, clusters, reserved: Table::new() }
    }

    /// The pending jobs, in the order of the crate's rules.
    fn order(&self, now: Millis) -> Vec<JobId> {
        let aged = |job: &Job<P, L>| job.aged(self.limits.aging, now);
        let pending = || self.open_jobs().filter(|job| job.status.is_pending());
        let mut best: BTreeMap<&str, Priority> = BTreeMap::new();
        for job in pending() {
            if let Some(cluster) = &job.spec.cluster {
                let priority = best.entry(cluster).or_insert(aged(job));
                *priority = aged(job).min(*priority);
            }
        }
        let key = |job: &Job<P, L>| {
            if self.is_reserved(job) {
                return (false, Priority(0), job.id);
            }
            let inherited = job.spec.cluster.as_deref().and_then(|cluster| best.get(cluster).copied());
            (true, inherited.unwrap_or_else(|| aged(job)), job.id)
        };
        let mut order: Vec<_> = pending().map(key).collect();
        order.sort();
        order.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Whether a job waits for locks and was overtaken too often.
    fn is_reserved(&self, job: &Job<P, L>) -> bool {
        let patience = self.limits.patience;
        job.status == Status::Waiting && patience != Patience::ENDLESS && job.overtaken >= patience.0
    }

    fn reserved(&self) -> BTreeSet<JobId> {
        self.open.iter().copied().filter(|id| self.jobs.get(id).is_some_and(|job| self.is_reserved(job))).collect()
    }

    fn reserve(&self, id: JobId, pass: &mut Pass<L>) {
        if let Some(job) = self.jobs.get(&id).filter(|job| self.is_reserved(job)) {
            for (lock, mode) in &job.spec.locks {
                pass.reserved.set(&id, lock, Some(*mode));
            }
        }
    }

    /// The obstacles that decide about the status: locks only if there is no other obstacle.
    fn first_obstacles(&self, job: &Job<P, L>, pass: &Pass<L>) -> Vec<Obstacle<L>> {
        let others = self.other_obstacles(job, pass);
        if others.is_empty() { self.lock_obstacles(job, pass).collect() } else { others }
    }

    fn other_obstacles(&self, job: &Job<P, L>, pass: &Pass<L>) -> Vec<Obstacle<L>> {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let open = job.dependencies.keys().filter(|id| self.open.contains(id));
        let mut obstacles: Vec<_> = open.map(|id| Obstacle::Dependency(*id)).collect();
        let first = job.spec.cluster.as_ref().and_then(|cluster| pass.clusters.get(cluster).copied());
        obstacles.extend(first.filter(|first| *first != job.id).map(Obstacle::SameCluster));
        for rule in applying(&self.rules, job.id, &job.spec) {
            let (id, reason) = (rule.id.clone(), rule.reason.clone());
            match rule.action {
                Action::Pause => obstacles.push(Obstacle::Paused { rule: id, reason }),
                Action::RateLimit(limit) if taken(&pass.usage.rules, &rule.id) >= limit => {
                    obstacles.push(Obstacle::Limit(Limit::Rule { rule: id, limit, reason }));
                }
                Action::RateLimit(_) | Action::Accept | Action::Reject | Action::Continue => {}
            }
        }
        if pass.usage.running >= self.limits.running {
            obstacles.push(Obstacle::Limit(Limit::Running(self.limits.running)));
        }
        let limit = self.limits.of_tenant(&job.spec.tenant);
        if taken(&pass.usage.tenants, &job.spec.tenant) >= limit {
            obstacles.push(Obstacle::Limit(Limit::Tenant(limit)));
        }
        let full = Bucket::of(job).into_iter().filter(|bucket| taken(&pass.usage.buckets, bucket) >= bucket.limit);
        obstacles.extend(full.map(|bucket| Obstacle::Limit(Limit::Bucket(bucket))));
        obstacles
    }

    fn lock_obstacles(&self, job: &Job<P, L>, pass: &Pass<L>) -> impl Iterator<Item = Obstacle<L>> {
        job.spec.locks.iter().filter_map(|(lock, mode)| {
            let owners = |table: &Table<L, JobId>| table.conflicting(&job.id, lock, *mode).copied().collect();
            let (holders, reservations): (BTreeSet<_>, BTreeSet<_>) =
                (owners(self.locks.table()), owners(&pass.reserved));
            let is_free = holders.is_empty() && reservations.is_empty();
            (!is_free).then(|| Obstacle::Lock { lock: lock.clone(), mode: *mode, holders, reservations })
        })
    }

    /// Takes the locks of a job and gives it a process. Says whether it could.
    fn start(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let locks: Vec<(L, Target)> =
            job.spec.locks.iter().map(|(lock, mode)| (lock.clone(), (*mode).into())).collect();
        if self.locks.update(&id, &locks).is_err() || !job.enter(Status::Starting) {
            return false;
        }
        job.attempts = job.attempts.saturating_add(1);
        self.changed.insert(id);
        true
    }

    /// Counts for each waiting job the later jobs with conflicting locks that have started now.
    fn count_overtaken(&mut self, started: &[JobId]) {
        if started.is_empty() {
            return;
        }
        let mut waiting = Table::new();
        for job in self.open_jobs().filter(|job| job.status == Status::Waiting) {
            for (lock, mode) in &job.spec.locks {
                waiting.set(&job.id, lock, Some(*mode));
            }
        }
        for id in started {
            let Some(locks) = self.jobs.get(id).map(|job| job.spec.locks.clone()) else { continue };
            let conflicting = locks.iter().flat_map(|(lock, mode)| waiting.conflicting(id, lock, *mode).copied());
            let earlier: BTreeSet<JobId> = conflicting.filter(|other| other < id).collect();
            for other in earlier {
                if let Some(job) = self.jobs.get_mut(&other) {
                    job.overtaken = job.overtaken.saturating_add(1);
                    self.changed.insert(other);
                }
            }
        }
    }

    /// Cancels and fails the pending jobs that a rule rejects or whose dependencies are not fulfilled. Dependencies are
    /// earlier jobs, so one pass in the order of numbers is enough.
    fn end_hopeless(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        for id in self.open.clone() {
            let Some(job) = self.jobs.get(&id).filter(|job| job.status.is_pending()) else { continue };
            let rejects = applying(&self.rules, id, &job.spec).find(|rule| rule.action == Action::Reject);
            let cause = |rule: &Rule| Cause::Rule { rule: rule.id.clone(), reason: rule.reason.clone() };
            let rejected = rejects.map(|rule| (Outcome::Canceled, cause(rule)));
            if let Some((outcome, cause)) = rejected.or_else(|| self.unfulfilled(job)) {
                effects.push(self.finish(id, outcome, Some(cause), now));
            }
        }
        effects
    }

    /// The end of a job whose dependencies can't be fulfilled any more.
    fn unfulfilled(&self, job: &Job<P, L>) -> Option<(Outcome, Cause)> {
        job.dependencies.iter().find_map(|(id, permitted)| {
            // A later job, too, did not exist when this job was submitted.
            let Some(other) = self.jobs.get(id).filter(|_| *id < job.id) else {
                return Some((Outcome::Failed, Cause::UnknownDependency(*id)));
            };
            let outcome = other.status.outcome().filter(|outcome| !permitted.contains(outcome))?;
            let own = if outcome == Outcome::Canceled { Outcome::Canceled } else { Outcome::Failed };
            Some((own, Cause::Dependency(*id, outcome)))
        })
    }
}

fn only_locks<L>(obstacles: &[Obstacle<L>]) -> bool {
    !obstacles.is_empty() && obstacles.iter().all(|one| matches!(one, Obstacle::Lock { .. }))
}

fn taken<K: Ord>(places: &BTreeMap<K, usize>, key: &K) -> usize {
    places.get(key).copied().unwrap_or_default()
}
