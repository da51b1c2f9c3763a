//! Events and their whole effect lists.

use std::collections::BTreeSet;

use cob_job_locks::{Lock, Mode, Patience, Priority};
use serde::{Deserialize, Serialize};

use crate::Effect::{Archive, Confirm, Finished, Kill, Start, Terminate, Watch};
use crate::Mode::{Exclusive, Shared};
use crate::{
    Action, Bucket, Cause, Corrupt, Drain, Effect, JobId, Limit, Limits, Millis, NotDone, Obstacle, Outcome, Queue,
    Refused, Report, Request, Rule, Run, Selection, Spec, Status,
};

/// A lock; 0 is the group of all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Name(pub(crate) u8);

impl Lock for Name {
    fn groups(&self) -> Vec<Self> {
        if self.0 == 0 { Vec::new() } else { vec![Self(0)] }
    }
}

type Jobs = Queue<(), Name>;

const NOW: Millis = Millis(1_000);

pub(crate) fn spec(kind: &str) -> Spec<(), Name> {
    Spec {
        payload: (),
        kind: kind.to_owned(),
        cluster: None,
        user: "ada".to_owned(),
        tenant: "t1".to_owned(),
        provider: None,
        priority: Priority(0),
        reason: Vec::new(),
        locks: Vec::new(),
        max_attempts: 1,
    }
}

fn job() -> Request<(), Name> {
    Request { spec: spec("create"), dependencies: Vec::new() }
}

fn with(change: impl Fn(&mut Spec<(), Name>)) -> Request<(), Name> {
    let mut request = job();
    change(&mut request.spec);
    request
}

fn locking(locks: &[(u8, Mode)]) -> Request<(), Name> {
    with(|spec| spec.locks = locks.iter().map(|(lock, mode)| (Name(*lock), *mode)).collect())
}

fn after(reference: i64, permitted: &[Outcome]) -> Request<(), Name> {
    Request { dependencies: vec![(reference, permitted.iter().copied().collect())], ..job() }
}

fn limits(running: usize) -> Limits {
    Limits { running, patience: Patience::ENDLESS, ..Limits::default() }
}

pub(crate) fn run(job: u64) -> Run {
    Run { job: JobId(job), attempt: 1 }
}

fn start(job: u64) -> Effect {
    Start(run(job))
}

fn finished(job: u64, outcome: Outcome) -> Effect {
    Finished(JobId(job), outcome)
}

impl Jobs {
    fn add(&mut self, requests: Vec<Request<(), Name>>) -> Vec<Effect> {
        self.submit(requests, NOW).expect("accepted").1
    }

    fn works(&mut self, job: u64) {
        assert_eq!(self.started(run(job), NOW), Ok(vec![Confirm(run(job))]));
    }

    fn end(&mut self, job: u64, report: Report) -> Vec<Effect> {
        self.works(job);
        self.ended(run(job), report, NOW).expect("it works")
    }

    fn status(&self, job: u64) -> Status {
        self.job(JobId(job)).expect("in the table").status
    }

    fn cause(&self, job: u64) -> String {
        self.job(JobId(job)).and_then(|job| job.cause.as_ref()).expect("a cause").to_string()
    }

    fn holds_back(&self, job: u64) -> Vec<Obstacle<Name>> {
        self.obstacles_of(JobId(job))
    }
}

#[test]
fn a_job_starts_works_and_ends() {
    let mut queue = Jobs::new(limits(1));
    assert_eq!(queue.submit(vec![job(), job()], NOW), Ok((vec![JobId(1), JobId(2)], vec![start(1)])));
    assert_eq!(queue.take_changed(), BTreeSet::from([JobId(1), JobId(2)]));
    assert_eq!(queue.holds_back(2), vec![Obstacle::Limit(Limit::Running(1))]);
    assert_eq!(queue.started(run(1), Millis(1_500)), Ok(vec![Confirm(run(1))]));
    assert_eq!(queue.take_changed(), BTreeSet::from([JobId(1)]));
    // A repetition: the confirmation may have been lost.
    assert_eq!(queue.started(run(1), Millis(1_600)), Ok(vec![Confirm(run(1))]));
    let done = queue.ended(run(1), Report::Succeeded, Millis(2_000));
    assert_eq!(done, Ok(vec![finished(1, Outcome::Succeeded), start(2)]));
    assert_eq!(queue.take_changed(), BTreeSet::from([JobId(1), JobId(2)]));
    let first = queue.job(JobId(1)).expect("kept");
    assert_eq!((first.submitted, first.started, first.ended), (NOW, Some(Millis(1_500)), Some(Millis(2_000))));
    // A final job does not change.
    let refused = Err(NotDone::Status { job: JobId(1), status: Status::Succeeded });
    assert_eq!(queue.died(run(1), NOW), refused);
    assert_eq!(queue.cancel(JobId(1), NOW), refused);
    assert_eq!(queue.started(run(1), NOW), refused);
    assert_eq!(queue.cancel(JobId(9), NOW), Err(NotDone::Unknown(JobId(9))));
}

#[test]
fn the_most_important_job_starts_first_then_the_oldest() {
    let mut queue = Jobs::new(limits(1));
    queue.add(vec![job()]);
    queue.add(vec![job(), with(|spec| spec.priority = Priority(-10)), job()]);
    assert_eq!(queue.set_priority(JobId(4), Priority(-11), NOW), Ok(vec![]));
    assert_eq!(queue.end(1, Report::Succeeded), vec![finished(1, Outcome::Succeeded), start(4)]);
    assert_eq!(queue.end(4, Report::Succeeded), vec![finished(4, Outcome::Succeeded), start(3)]);
    assert_eq!(queue.end(3, Report::Succeeded), vec![finished(3, Outcome::Succeeded), start(2)]);
    let refused = NotDone::Status { job: JobId(2), status: Status::Starting };
    assert_eq!(queue.set_priority(JobId(2), Priority(1), NOW), Err(refused));
    assert_eq!(queue.set_priority(JobId(2), Priority(20), NOW), Err(NotDone::Priority(Priority(20))));
}

#[test]
fn jobs_of_a_cluster_run_in_order_whatever_their_priorities_are() {
    let mut queue = Jobs::new(limits(1));
    let of_cluster = |priority| {
        with(|spec| {
            spec.cluster = Some("shop".to_owned());
            spec.priority = Priority(priority);
        })
    };
    queue.add(vec![job()]);
    queue.add(vec![job(), of_cluster(5), of_cluster(-5)]);
    assert_eq!(queue.holds_back(4)[0], Obstacle::SameCluster(JobId(3)));
    // Job 3 has the priority of job 4, so it comes before job 2.
    assert_eq!(queue.end(1, Report::Succeeded), vec![finished(1, Outcome::Succeeded), start(3)]);
    assert_eq!(queue.end(3, Report::Failed("no".to_owned())), vec![finished(3, Outcome::Failed), start(4)]);
    assert_eq!(queue.cause(3), "no");
}

#[test]
fn dependencies_cancel_fail_or_release_the_dependants() {
    use Outcome::{Canceled, Failed, Succeeded};
    let mut queue = Jobs::new(limits(20));
    let mut both = after(-1, &[Succeeded]);
    both.dependencies.push((-2, [Succeeded, Failed].into()));
    let effects = queue.add(vec![job(), after(-1, &[Succeeded]), both, after(1, &[Failed]), after(77, &[Succeeded])]);
    assert_eq!(effects, vec![finished(5, Failed), start(1)]);
    assert_eq!(queue.cause(5), "it depends on job 77, which does not exist");
    assert_eq!(queue.holds_back(3), vec![Obstacle::Dependency(JobId(1)), Obstacle::Dependency(JobId(2))]);
    let effects = queue.end(1, Report::Failed("no".to_owned()));
    assert_eq!(effects, vec![finished(1, Failed), finished(2, Failed), finished(3, Failed), start(4)]);
    assert_eq!(queue.cause(3), "it depends on job 2, which failed");
    // A canceled dependency cancels; if it is permitted, it does not.
    queue.add(vec![after(4, &[Succeeded]), after(-1, &[Succeeded]), after(6, &[Canceled])]);
    let effects = queue.cancel(JobId(6), NOW);
    assert_eq!(effects, Ok(vec![finished(6, Canceled), finished(7, Canceled), start(8)]));
    assert_eq!(queue.cause(7), "it depends on job 6, which was canceled");
    // The next number is no job yet.
    assert_eq!(queue.add(vec![after(9, &[Succeeded]), after(11, &[Succeeded])])[0], finished(9, Failed));
}

#[test]
fn a_wrong_submission_is_refused_whole() {
    let mut queue = Jobs::new(limits(20));
    let before = queue.state();
    let refused = queue.submit(vec![job(), after(-2, &[])], NOW).expect_err("out of the submission");
    assert_eq!(refused, Refused::Reference { index: 1, reference: -2 });
    let text = "job 2 of the submission depends on job -2: the submission has no such job before";
    assert_eq!(refused.to_string(), text);
    let refused = queue.submit(vec![after(i64::MIN, &[])], NOW);
    assert_eq!(refused, Err(Refused::Reference { index: 0, reference: i64::MIN }));
    let priority = Priority(-21);
    let refused = queue.submit(vec![job(), with(|spec| spec.priority = priority)], NOW);
    assert_eq!(refused, Err(Refused::Priority { index: 1, priority }));
    queue.drain(Some(Drain { reason: "we move".to_owned(), by: "root".to_owned(), since: NOW }));
    let refused = queue.submit(vec![job()], NOW).expect_err("drained");
    assert_eq!(refused, Refused::Drained("we move".to_owned()));
    assert_eq!(refused.to_string(), "the queue is drained and accepts no new jobs: we move");
    queue.drain(None);
    assert_eq!(queue.state(), before);
    assert_eq!(queue.take_changed(), BTreeSet::new());
}

#[test]
fn a_job_waits_for_its_locks_and_names_the_holders() {
    let mut queue = Jobs::new(limits(20));
    let effects =
        queue.add(vec![locking(&[(3, Shared), (5, Exclusive)]), locking(&[(4, Shared)]), locking(&[(0, Shared)])]);
    assert_eq!(effects, vec![start(1), start(2)]);
    assert_eq!((queue.status(3), queue.holds_back(2)), (Status::Waiting, vec![]));
    let lock = |lock, mode, holders: &[u64]| Obstacle::Lock {
        lock: Name(lock),
        mode,
        holders: holders.iter().copied().map(JobId).collect(),
        reservations: BTreeSet::new(),
    };
    assert_eq!(queue.holds_back(3), vec![lock(0, Shared, &[1])]);
    queue.add(vec![locking(&[(4, Exclusive), (5, Shared), (4, Shared)])]);
    assert_eq!(queue.holds_back(4), vec![lock(4, Exclusive, &[2]), lock(5, Shared, &[1])]);
    assert_eq!(queue.end(1, Report::Succeeded), vec![finished(1, Outcome::Succeeded), start(3)]);
    assert_eq!(queue.holds_back(4), vec![lock(4, Exclusive, &[2, 3])]);
}

#[test]
fn a_job_that_waits_for_locks_is_not_overtaken_for_ever() {
    for (patience, overtakers) in [(Patience(0), 0), (Patience(3), 3), (Patience::ENDLESS, 49)] {
        let mut queue = Jobs::new(Limits { patience, ..limits(2) });
        queue.add(vec![locking(&[(7, Shared)]), locking(&[(7, Exclusive)])]);
        let mut last = 1;
        let mut overtaken = 0;
        while overtaken < 49 {
            // Another reader, more important, starts before the present one ends.
            let next = queue.next_id().0;
            let reader = with(|spec| {
                spec.locks = vec![(Name(7), Shared)];
                spec.priority = Priority(-20);
            });
            if queue.add(vec![reader]).is_empty() {
                let (holders, reservations) = (BTreeSet::new(), BTreeSet::from([JobId(2)]));
                let lock = Obstacle::Lock { lock: Name(7), mode: Shared, holders, reservations };
                assert_eq!(queue.holds_back(next), vec![lock]);
                break;
            }
            queue.end(last, Report::Succeeded);
            (last, overtaken) = (next, overtaken + 1);
        }
        assert_eq!(overtaken, overtakers);
        assert!(queue.end(last, Report::Succeeded).contains(&start(2)));
    }
}

#[test]
fn tenants_and_buckets_have_limits() {
    let mut queue = Jobs::new(Limits { per_tenant: 2, tenants: [("t2".to_owned(), 0)].into(), ..limits(20) });
    let in_bucket = || with(|spec| spec.reason = vec!["because".to_owned(), "rate-limit:1:moves".to_owned()]);
    let other = with(|spec| spec.tenant = "t2".to_owned());
    let effects = queue.add(vec![in_bucket(), in_bucket(), job(), job(), other]);
    assert_eq!(effects, vec![start(1), start(3)]);
    let bucket = Limit::Bucket(Bucket { limit: 1, name: "moves".to_owned() });
    assert_eq!(queue.holds_back(2), vec![Obstacle::Limit(Limit::Tenant(2)), Obstacle::Limit(bucket)]);
    assert_eq!(queue.holds_back(5), vec![Obstacle::Limit(Limit::Tenant(0))]);
    assert_eq!(queue.end(3, Report::Succeeded), vec![finished(3, Outcome::Succeeded), start(4)]);
    assert_eq!(queue.end(1, Report::Succeeded), vec![finished(1, Outcome::Succeeded), start(2)]);
    assert_eq!(queue.set_limits(limits(20), NOW), vec![start(5)]);
}

#[test]
fn a_drained_queue_finishes_its_jobs() {
    let mut queue = Jobs::new(limits(1));
    queue.add(vec![job(), job()]);
    queue.drain(Some(Drain { reason: String::new(), by: "root".to_owned(), since: NOW }));
    assert_eq!(queue.submit(vec![job()], NOW), Err(Refused::Drained(String::new())));
    let state = queue.state();
    let mut queue = Jobs::load(state.clone(), limits(1)).expect("valid");
    assert_eq!(queue.state(), state, "the drain is part of the state");
    assert_eq!(queue.end(1, Report::Succeeded), vec![finished(1, Outcome::Succeeded), start(2)]);
}

#[test]
fn a_job_that_waits_becomes_more_important() {
    let mut queue = Jobs::new(Limits { aging: 1_000, ..limits(1) });
    queue.add(vec![job()]);
    queue.add(vec![with(|spec| spec.priority = Priority(19)), with(|spec| spec.priority = Priority(2))]);
    // 3,000 ms later: job 3 has the priority -1 by its age, as the new job 4, and was submitted before.
    let late = |milliseconds| Millis(NOW.0 + milliseconds);
    let ends = |queue: &mut Jobs, job, at| {
        queue.started(run(job), at).expect("it starts");
        queue.ended(run(job), Report::Succeeded, at).expect("it works")
    };
    let important = || with(|spec| spec.priority = Priority(-1));
    queue.submit(vec![important()], late(3_000)).expect("accepted");
    assert_eq!(ends(&mut queue, 1, late(3_000)), vec![finished(1, Outcome::Succeeded), start(3)]);
    // A change of the priority begins a new age.
    queue.set_priority(JobId(2), Priority(18), late(3_000)).expect("it waits");
    queue.submit(vec![with(|spec| spec.priority = Priority(-20))], late(38_000)).expect("accepted");
    assert_eq!(ends(&mut queue, 3, late(40_000)), vec![finished(3, Outcome::Succeeded), start(4)]);
    assert_eq!(ends(&mut queue, 4, late(40_999)), vec![finished(4, Outcome::Succeeded), start(5)]);
    // In the end, no later job is more important.
    queue.submit(vec![with(|spec| spec.priority = Priority(-20))], late(41_000)).expect("accepted");
    assert_eq!(ends(&mut queue, 5, late(41_000)), vec![finished(5, Outcome::Succeeded), start(2)]);
}

#[test]
fn rules_pause_reject_and_limit_jobs_in_their_order() {
    let mut queue = Jobs::new(limits(20));
    let rule = |id: &str, priority, kind: &str, action| Rule {
        id: id.to_owned(),
        tenant: None,
        priority,
        watermark: JobId(0),
        jobs: Selection { kinds: [kind.to_owned()].into(), ..Selection::default() },
        action,
        reason: format!("because of {id}"),
    };
    let of = |kind: &str| Request { spec: spec(kind), dependencies: Vec::new() };
    assert_eq!(queue.set_rule(rule("pause", 9, "delete", Action::Pause), NOW), vec![]);
    let mut accept = rule("accept", 5, "delete", Action::Accept);
    accept.jobs.jobs.insert(JobId(2));
    assert_eq!(queue.set_rule(accept, NOW), vec![]);
    assert_eq!(queue.add(vec![of("delete"), of("delete"), of("create"), of("create")]).len(), 3);
    let paused = Obstacle::Paused { rule: "pause".to_owned(), reason: "because of pause".to_owned() };
    assert_eq!(queue.holds_back(1), vec![paused]);
    queue.set_rule(rule("off", 0, "delete", Action::Continue), NOW);
    queue.set_rule(rule("two", 4, "create", Action::RateLimit(2)), NOW);
    assert_eq!(queue.add(vec![of("create")]), vec![]);
    let limit = Limit::Rule { rule: "two".to_owned(), limit: 2, reason: "because of two".to_owned() };
    assert_eq!(queue.holds_back(5), vec![Obstacle::Limit(limit)]);
    assert_eq!(queue.end(4, Report::Succeeded), vec![finished(4, Outcome::Succeeded), start(5)]);
    // A rule with the same id replaces the rule at once: the paused job does not start in between.
    let before = queue.rules().len();
    assert_eq!(queue.set_rule(rule("pause", 8, "delete", Action::Pause), NOW), vec![]);
    assert_eq!(queue.rules().len(), before);
    // A rejection cancels waiting jobs, leaves running jobs alone, and refuses new jobs.
    assert_eq!(queue.set_rule(rule("reject", 7, "delete", Action::Reject), NOW), vec![finished(1, Outcome::Canceled)]);
    assert_eq!(queue.cause(1), "the rule reject rejects it: because of reject");
    let refused = queue.submit(vec![of("create"), of("delete")], NOW).expect_err("rejected");
    let (rule, reason) = ("reject".to_owned(), "because of reject".to_owned());
    assert_eq!(refused, Refused::Rejected { index: 1, rule, reason });
    assert_eq!(refused.to_string(), "the rule reject rejects job 2 of the submission: because of reject");
    queue.remove_rule("reject", NOW).expect("there");
    assert_eq!(queue.remove_rule("reject", NOW), Err(NotDone::UnknownRule("reject".to_owned())));
    queue.add(vec![of("delete")]);
    assert_eq!(queue.remove_rule("pause", NOW), Ok(vec![start(6)]));
}

#[test]
fn a_job_waits_for_a_rule_of_the_hub_and_for_one_of_its_tenant() {
    let mut queue = Jobs::new(limits(20));
    let rule = |id: &str, tenant: Option<&str>, action| Rule {
        id: id.to_owned(),
        tenant: tenant.map(str::to_owned),
        priority: 0,
        watermark: JobId(0),
        jobs: Selection::default(),
        action,
        reason: String::new(),
    };
    queue.set_rule(rule("one", None, Action::RateLimit(1)), NOW);
    queue.set_rule(rule("t1/hold", Some("t1"), Action::Pause), NOW);
    let other = || with(|spec| spec.tenant = "t2".to_owned());
    assert_eq!(queue.add(vec![job(), other(), other()]), vec![start(2)]);
    let limited = Obstacle::Limit(Limit::Rule { rule: "one".to_owned(), limit: 1, reason: String::new() });
    let paused = Obstacle::Paused { rule: "t1/hold".to_owned(), reason: String::new() };
    let expected = [(JobId(1), vec![limited.clone(), paused]), (JobId(3), vec![limited])];
    assert_eq!(queue.obstacles(), expected.into());
    // The rules of a tenant end with the tenant.
    assert_eq!(queue.remove_rules_of("t1", NOW), (vec!["t1/hold".to_owned()], vec![]));
    assert_eq!(queue.end(2, Report::Succeeded), vec![finished(2, Outcome::Succeeded), start(1)]);
}

#[test]
fn the_obstacles_of_jobs_cost_one_look_at_each_waiting_job() {
    let mut queue = Jobs::new(limits(2));
    for id in 1..=300 {
        queue.add(vec![job()]);
        queue.end(id, Report::Succeeded);
    }
    queue.add((0..50).map(|_| job()).collect());
    let looks = || crate::schedule::LOOKS.take();
    looks();
    assert_eq!(queue.obstacles().len(), 48);
    assert_eq!(looks(), 48, "ended jobs cost nothing");
    assert_eq!(queue.holds_back(350).len(), 1);
    assert_eq!(looks(), 1, "nor do other jobs, if none has reserved its locks");
}

#[test]
fn a_canceled_job_is_asked_then_killed_and_stays_until_its_death() {
    let mut queue = Jobs::new(Limits { grace: 500, ..limits(1) });
    queue.add(vec![job(), job(), job()]);
    assert_eq!(queue.cancel(JobId(3), NOW), Ok(vec![finished(3, Outcome::Canceled)]), "it has no process");
    assert_eq!(queue.cancel(JobId(3), NOW), Ok(vec![]));
    queue.works(1);
    assert_eq!(queue.cancel(JobId(1), NOW), Ok(vec![Terminate(run(1))]));
    assert_eq!(queue.cancel(JobId(1), NOW), Ok(vec![]));
    assert_eq!(queue.next_tick(), Some(Millis(1_500)));
    assert_eq!(queue.tick(Millis(1_499)), vec![]);
    assert_eq!(queue.tick(Millis(1_500)), vec![Kill(run(1))]);
    assert_eq!(queue.tick(Millis(9_999)), vec![]);
    assert_eq!((queue.status(1), queue.status(2)), (Status::Canceling, Status::Queued));
    assert_eq!(queue.died(run(1), NOW), Ok(vec![finished(1, Outcome::Canceled), start(2)]));
    // A process that announces itself too late is not confirmed, and so has no report.
    assert_eq!(queue.kill(JobId(2), NOW), Ok(vec![Terminate(run(2)), Kill(run(2))]));
    assert_eq!(queue.started(run(2), NOW), Ok(vec![Terminate(run(2))]));
    let refused = NotDone::Status { job: JobId(2), status: Status::Canceling };
    assert_eq!(queue.ended(run(2), Report::Succeeded, NOW), Err(refused));
    assert_eq!(queue.died(run(2), NOW), Ok(vec![finished(2, Outcome::Canceled)]));
    // What a process reports that was asked to end counts.
    queue.add(vec![job()]);
    queue.works(4);
    assert_eq!(queue.cancel(JobId(4), NOW), Ok(vec![Terminate(run(4))]));
    assert_eq!(queue.ended(run(4), Report::Succeeded, NOW), Ok(vec![finished(4, Outcome::Succeeded)]));
}

#[test]
fn a_dead_process_fails_its_job_or_is_replaced() {
    let mut queue = Jobs::new(limits(1));
    let resumable = with(|spec| {
        spec.max_attempts = 2;
        spec.locks = vec![(Name(1), Exclusive)];
    });
    queue.add(vec![job(), resumable]);
    queue.works(1);
    assert_eq!(queue.died(run(1), NOW), Ok(vec![finished(1, Outcome::Failed), start(2)]));
    assert_eq!(queue.job(JobId(1)).and_then(|job| job.cause.clone()), Some(Cause::Died));
    let second = |attempt| Run { job: JobId(2), attempt };
    // It died before it began to work: this does not count as an attempt.
    assert_eq!(queue.died(second(1), NOW), Ok(vec![Start(second(2))]));
    assert_eq!(queue.died(second(1), NOW), Ok(vec![]), "old news");
    assert!(queue.ended(second(2), Report::Succeeded, NOW).is_err(), "it did not work yet");
    assert_eq!(queue.started(second(2), NOW), Ok(vec![Confirm(second(2))]));
    assert_eq!(queue.died(second(2), NOW), Ok(vec![Start(second(3))]));
    assert_eq!(queue.locks().held(&JobId(2)).len(), 1, "the locks stay");
    assert_eq!(queue.started(second(3), NOW), Ok(vec![Confirm(second(3))]));
    assert_eq!(queue.died(second(3), NOW), Ok(vec![finished(2, Outcome::Failed)]));
    assert_eq!(queue.locks().held(&JobId(2)).len(), 0);
    queue.add(vec![job()]);
    let third = |attempt| Run { job: JobId(3), attempt };
    assert_eq!(queue.died(third(1), NOW), Ok(vec![Start(third(2))]));
    assert_eq!(queue.died(third(2), NOW), Ok(vec![Start(third(3))]));
    assert_eq!(queue.died(third(3), NOW), Ok(vec![finished(3, Outcome::Failed)]));
    assert_eq!(queue.cause(3), "its process ended repeatedly before it began to work");
}

#[test]
fn a_restarted_hub_starts_watches_and_ends_processes() {
    let mut queue = Jobs::new(Limits { grace: 500, ..limits(4) });
    queue.add(vec![job(), job(), job(), job(), job()]);
    for id in [2, 3, 4] {
        queue.works(id);
    }
    queue.cancel(JobId(3), NOW).expect("it runs");
    queue.kill(JobId(4), NOW).expect("it runs");
    let mut again = Jobs::load(queue.state(), Limits { grace: 500, ..limits(4) }).expect("a valid state");
    assert_eq!(
        again.resume(Millis(2_000)),
        vec![start(1), Watch(run(2)), Watch(run(3)), Terminate(run(3)), Watch(run(4)), Kill(run(4)), Kill(run(3))]
    );
    assert_eq!(again.died(run(4), NOW), Ok(vec![finished(4, Outcome::Canceled), start(5)]));
}

#[test]
fn the_oldest_final_jobs_of_a_tenant_leave_early() {
    let mut queue = Jobs::new(Limits { keep_most: 2, ..limits(4) });
    queue.add(vec![job(), job(), job(), with(|spec| spec.tenant = "t2".to_owned())]);
    for id in [1, 2, 4] {
        queue.end(id, Report::Succeeded);
    }
    assert_eq!(queue.tick(NOW), []);
    queue.end(3, Report::Succeeded);
    assert_eq!(queue.tick(NOW), [Archive(JobId(1))]);
}

#[test]
fn old_final_jobs_go_to_the_archive_unless_a_job_depends_on_them() {
    let mut queue = Jobs::new(Limits { keep: 100, ..limits(1) });
    queue.add(vec![job(), job(), after(1, &[Outcome::Succeeded])]);
    queue.end(1, Report::Succeeded);
    queue.end(2, Report::Succeeded);
    // Job 3 runs and depends on job 1.
    assert_eq!(queue.next_tick(), Some(Millis(1_100)));
    queue.take_changed();
    assert_eq!(queue.tick(Millis(1_100)), vec![Archive(JobId(2))]);
    assert_eq!(queue.take_changed(), BTreeSet::from([JobId(2)]));
    assert_eq!(queue.end(3, Report::Succeeded), vec![finished(3, Outcome::Succeeded)]);
    assert_eq!(queue.tick(Millis(1_100)), vec![Archive(JobId(1)), Archive(JobId(3))]);
    assert_eq!((queue.jobs().count(), queue.next_tick(), queue.next_id()), (0, None, JobId(4)));
}

#[test]
fn a_damaged_state_is_refused() {
    let mut queue = Jobs::new(limits(20));
    let of_cluster = with(|spec| spec.cluster = Some("shop".to_owned()));
    queue.add(vec![locking(&[(1, Exclusive)]), locking(&[(2, Shared)]), of_cluster.clone(), of_cluster]);
    let good = queue.state();
    let refused = |change: &dyn Fn(&mut crate::State<(), Name>)| {
        let mut state = good.clone();
        change(&mut state);
        Jobs::load(state, limits(20)).map(|_| ()).expect_err("damaged")
    };
    assert_eq!(refused(&|s| s.jobs.push(s.jobs[0].clone())), Corrupt::Twice(JobId(1)));
    assert_eq!(refused(&|s| s.next = JobId(2)), Corrupt::Number { job: JobId(2), next: JobId(2) });
    assert_eq!(refused(&|s| s.jobs[0].id = JobId(0)), Corrupt::Number { job: JobId(0), next: JobId(5) });
    let locks = Corrupt::Locks { job: JobId(2), others: [JobId(1)].into() };
    assert_eq!(refused(&|s| s.jobs[1].spec.locks[0].0 = Name(1)), locks);
    let cluster = Corrupt::Cluster { first: JobId(3), second: JobId(4) };
    let active = |s: &mut crate::State<(), Name>| (s.jobs[3].status, s.jobs[3].attempts) = (Status::Starting, 1);
    assert_eq!(refused(&active), cluster);
    let field = |status, field| Corrupt::Field { job: JobId(1), status, field };
    assert_eq!(refused(&|s| s.jobs[0].status = Status::Running), field(Status::Running, "started"));
    assert_eq!(refused(&|s| s.jobs[0].status = Status::Failed), field(Status::Failed, "ended"));
    assert_eq!(refused(&|s| s.jobs[0].status = Status::Canceling), field(Status::Canceling, "kill_at"));
    assert_eq!(refused(&|s| s.jobs[0].status = Status::Queued), field(Status::Queued, "attempts"));
    assert_eq!(refused(&|s| s.jobs[0].spec.priority = Priority(99)), field(Status::Starting, "priority"));
    let text = serde_json::to_string(&good).expect("JSON");
    for (from, to) in
        [("\"starting\"", "\"gone\""), ("\"attempts\":1", "\"attempts\":-1"), ("\"jobs\":[", "\"jobs\":[7,")]
    {
        assert!(serde_json::from_str::<crate::State<(), Name>>(&text.replacen(from, to, 1)).is_err(), "{to}");
    }
    let text = Corrupt::Field { job: JobId(7), status: Status::Queued, field: "attempts" }.to_string();
    assert_eq!(text, "job 7 is stored as Queued, but its attempts contradicts this");
}

#[test]
fn the_last_number_is_not_exceeded() {
    let mut state = Jobs::new(limits(1)).state();
    state.next = JobId(u64::MAX);
    let mut queue = Jobs::load(state, limits(1)).expect("valid");
    assert_eq!(queue.submit(vec![job()], NOW), Err(Refused::Exhausted));
}
