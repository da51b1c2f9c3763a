//! Random sequences of events. After each event, a brute-force model, which goes through plain lists, has to agree on
//! what may run, and what could start.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::queue_test::{Name, spec};
use crate::{
    Action, Effect, Job, JobId, Limits, Lock, Millis, Mode, Obstacle, Outcome, Patience, Priority, Queue, Report,
    Request, Rule, Run, Selection, State, Status,
};

type Jobs = Queue<(), Name>;

#[derive(Clone, Debug)]
struct Draft {
    cluster: Option<u8>,
    tenant: u8,
    priority: i8,
    locks: Vec<(u8, bool)>,
    dependencies: Vec<(i64, u8)>,
    bucket: bool,
    attempts: u32,
}

#[derive(Clone, Debug)]
enum Event {
    Submit(Vec<Draft>),
    Started(usize),
    Ended(usize, u8),
    Died(usize),
    Cancel(usize),
    Kill(usize),
    Priority(usize, i8),
    Rule(u8, u8),
    Tick(u64),
    Resume,
}

const KEEP: u64 = 5_000;
const RUNNING: usize = 3;
const PER_TENANT: usize = 2;

fn limits(patience: Patience) -> Limits {
    Limits {
        running: RUNNING,
        per_tenant: PER_TENANT,
        aging: 500,
        patience,
        grace: 100,
        keep: KEEP,
        ..Limits::default()
    }
}

fn request(draft: &Draft) -> Request<(), Name> {
    let mut spec = spec("create");
    spec.cluster = draft.cluster.map(|cluster| format!("c{cluster}"));
    spec.tenant = format!("t{}", draft.tenant);
    spec.priority = Priority(draft.priority);
    let mode = |exclusive| if exclusive { Mode::Exclusive } else { Mode::Shared };
    spec.locks = draft.locks.iter().map(|(lock, exclusive)| (Name(*lock), mode(*exclusive))).collect();
    if draft.bucket {
        spec.reason.push("rate-limit:1:b".to_owned());
    }
    spec.max_attempts = draft.attempts;
    let all = [Outcome::Succeeded, Outcome::Failed, Outcome::Canceled];
    let permitted = |bits: u8| (0..3).filter(|bit| bits & 1 << bit != 0).map(|bit| all[bit]).collect();
    Request { spec, dependencies: draft.dependencies.iter().map(|(job, bits)| (*job, permitted(*bits))).collect() }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let draft = (
        prop::option::of(0..3u8),
        0..3u8,
        -2..3i8,
        prop::collection::vec((0..4u8, any::<bool>()), 0..3),
        prop::collection::vec((prop_oneof![-2..0i64, 1..12i64], 1..8u8), 0..2),
        prop::bool::weighted(0.2),
        1..3u32,
    )
        .prop_map(|(cluster, tenant, priority, locks, dependencies, bucket, attempts)| Draft {
            cluster,
            tenant,
            priority,
            locks,
            dependencies,
            bucket,
            attempts,
        });
    let one = prop_oneof![
        5 => prop::collection::vec(draft, 1..4).prop_map(Event::Submit),
        6 => any::<usize>().prop_map(Event::Started),
        5 => (any::<usize>(), 0..3u8).prop_map(|(at, how)| Event::Ended(at, how)),
        3 => any::<usize>().prop_map(Event::Died),
        2 => any::<usize>().prop_map(Event::Cancel),
        1 => any::<usize>().prop_map(Event::Kill),
        1 => (any::<usize>(), -20..20i8).prop_map(|(at, priority)| Event::Priority(at, priority)),
        1 => (0..4u8, 0..5u8).prop_map(|(id, action)| Event::Rule(id, action)),
        2 => (0..3_000u64).prop_map(Event::Tick),
        1 => Just(Event::Resume),
    ];
    prop::collection::vec(one, 1..60)
}

fn at(queue: &Jobs, index: usize) -> Option<Run> {
    let jobs: Vec<_> = queue.jobs().collect();
    (!jobs.is_empty()).then(|| jobs[index % jobs.len()].run())
}

fn act(queue: &mut Jobs, event: &Event, now: Millis) -> Vec<Effect> {
    let refused_or = |done: Result<Vec<Effect>, crate::NotDone>| done.unwrap_or_default();
    let index = match event {
        Event::Submit(drafts) => {
            let requests = drafts.iter().map(request).collect();
            return queue.submit(requests, now).map(|(_, effects)| effects).unwrap_or_default();
        }
        Event::Rule(id, action) => {
            let id = format!("r{id}");
            if queue.rules().iter().any(|rule| rule.id == id) {
                return refused_or(queue.remove_rule(&id, now));
            }
            let action = [Action::Accept, Action::Pause, Action::Reject, Action::Continue, Action::RateLimit(1)]
                [*action as usize];
            let watermark = JobId(queue.next_id().0 - 1);
            let jobs = Selection { tenants: ["t1".to_owned()].into(), ..Selection::default() };
            let rule = Rule { id, tenant: None, priority: 0, watermark, jobs, action, reason: String::new() };
            return queue.set_rule(rule, now);
        }
        Event::Tick(_) => return queue.tick(now),
        Event::Resume => return queue.resume(now),
        Event::Started(index)
        | Event::Ended(index, _)
        | Event::Died(index)
        | Event::Cancel(index)
        | Event::Kill(index)
        | Event::Priority(index, _) => *index,
    };
    let Some(run) = at(queue, index) else { return Vec::new() };
    let reports = [Report::Succeeded, Report::Failed("no".to_owned()), Report::Canceled];
    refused_or(match event {
        Event::Started(_) => queue.started(run, now),
        Event::Ended(_, how) => queue.ended(run, reports[*how as usize].clone(), now),
        Event::Died(_) => queue.died(run, now),
        Event::Cancel(_) => queue.cancel(run.job, now),
        Event::Kill(_) => queue.kill(run.job, now),
        Event::Priority(_, priority) => queue.set_priority(run.job, Priority(*priority), now),
        Event::Submit(_) | Event::Rule(..) | Event::Tick(_) | Event::Resume => unreachable!("done above"),
    })
}

fn conflict(a: &Job<(), Name>, b: &Job<(), Name>) -> bool {
    let near = |a: Name, b: Name| a == b || a.groups().contains(&b) || b.groups().contains(&a);
    let clash = |a: Mode, b: Mode| a == Mode::Exclusive || b == Mode::Exclusive;
    a.spec.locks.iter().any(|(x, m)| b.spec.locks.iter().any(|(y, n)| near(*x, *y) && clash(*m, *n)))
}

/// The rule that applies, by other means: all rules of the test concern tenant 1.
fn action(queue: &Jobs, job: &Job<(), Name>) -> Option<Action> {
    let mut rules: Vec<_> = queue.rules().iter().filter(|rule| rule.action != Action::Continue).collect();
    rules.sort_by_key(|rule| (rule.watermark, rule.id.clone()));
    rules.first().filter(|_| job.spec.tenant == "t1").map(|rule| rule.action)
}

/// Whether a pending job could start now, if locks were not reserved.
fn could_start(queue: &Jobs, job: &Job<(), Name>) -> bool {
    let jobs: Vec<_> = queue.jobs().collect();
    let active: Vec<_> = jobs.iter().filter(|other| other.status.is_active()).collect();
    let of_tenant = |other: &&&&Job<(), Name>| other.spec.tenant == job.spec.tenant;
    let tenant = active.iter().filter(of_tenant).count();
    let bucket = active.iter().filter(|other| !other.spec.reason.is_empty()).count();
    job.status.is_pending()
        && active.len() < RUNNING
        && tenant < PER_TENANT
        && (job.spec.reason.is_empty() || bucket < 1)
        && match action(queue, job) {
            Some(Action::Pause | Action::Reject) => false,
            Some(Action::RateLimit(limit)) => tenant < limit,
            Some(Action::Accept | Action::Continue) | None => true,
        }
        && job.dependencies.keys().all(|id| queue.job(*id).is_some_and(|other| other.status.outcome().is_some()))
        && !jobs.iter().any(|other| {
            other.spec.cluster.is_some()
                && other.spec.cluster == job.spec.cluster
                && other.id < job.id
                && other.status.outcome().is_none()
        })
        && !active.iter().any(|other| conflict(other, job))
}

struct Check {
    patience: Patience,
    finals: BTreeMap<JobId, Job<(), Name>>,
    now: u64,
}

impl Check {
    fn step(&mut self, queue: &mut Jobs, event: &Event) -> Result<Vec<Effect>, TestCaseError> {
        self.now += if let Event::Tick(by) = event { *by } else { 1 };
        let before = queue.state();
        let effects = act(queue, event, Millis(self.now));
        // All that has changed is named.
        let changed = queue.take_changed();
        let unchanged = |state: &State<(), Name>| -> Vec<_> {
            state.jobs.iter().filter(|job| !changed.contains(&job.id)).cloned().collect()
        };
        prop_assert_eq!(unchanged(&before), unchanged(&queue.state()));
        self.invariants(queue)?;
        for effect in &effects {
            if let Effect::Finished(id, outcome) = effect {
                prop_assert_eq!(queue.job(*id).and_then(|job| job.status.outcome()), Some(*outcome));
            }
        }
        Ok(effects)
    }

    fn invariants(&mut self, queue: &Jobs) -> Result<(), TestCaseError> {
        let jobs: Vec<_> = queue.jobs().collect();
        let active: Vec<_> = jobs.iter().filter(|job| job.status.is_active()).collect();
        prop_assert!(active.len() <= RUNNING);
        let all = queue.obstacles();
        for job in &jobs {
            if let Some(old) = self.finals.get(&job.id) {
                prop_assert_eq!(old, *job, "a final job has changed");
            }
            let held = queue.locks().held(&job.id).into_iter().collect::<Vec<_>>();
            let wanted = if job.status.is_active() { job.spec.locks.clone() } else { Vec::new() };
            prop_assert_eq!(held, wanted);
            if job.status.outcome().is_some() {
                self.finals.insert(job.id, (*job).clone());
            }
            if !job.status.is_pending() && job.attempts > 0 {
                for (id, permitted) in &job.dependencies {
                    let other = self.finals.get(id).and_then(|other| other.status.outcome());
                    prop_assert!(
                        other.is_some_and(|outcome| permitted.contains(&outcome)),
                        "a dependency was overtaken"
                    );
                }
            }
            let obstacles = queue.obstacles_of(job.id);
            prop_assert_eq!(all.get(&job.id).cloned().unwrap_or_default(), obstacles.clone());
            prop_assert_eq!(obstacles.is_empty(), !job.status.is_pending(), "{:?} {:?}", obstacles, job);
            // With endless patience, no job waits that could start. Otherwise only for reservations.
            let reserved = |one: &Obstacle<Name>| matches!(one, Obstacle::Lock { holders, .. } if holders.is_empty());
            let startable = could_start(queue, job);
            prop_assert_eq!(startable, job.status.is_pending() && obstacles.iter().all(reserved), "{:?}", job);
            prop_assert!(!startable || self.patience != Patience::ENDLESS, "{:?} does not start", job);
        }
        for (index, one) in active.iter().enumerate() {
            for other in &active[..index] {
                prop_assert!(!conflict(one, other), "conflicting locks");
                let same = one.spec.cluster.is_some() && one.spec.cluster == other.spec.cluster;
                prop_assert!(!same, "two jobs of a cluster");
            }
            let of_tenant = active.iter().filter(|other| other.spec.tenant == one.spec.tenant).count();
            prop_assert!(of_tenant <= PER_TENANT);
            let overtaken = jobs.iter().any(|other| {
                let same = one.spec.cluster.is_some() && one.spec.cluster == other.spec.cluster;
                same && other.id < one.id && other.status.outcome().is_none()
            });
            prop_assert!(!overtaken, "an earlier job of the cluster was overtaken");
        }
        Ok(())
    }
}

/// `PROPTEST_CASES` asks for more sequences.
fn runner() -> TestRunner {
    let config = Config::default();
    TestRunner::new(Config { cases: config.cases.max(256), failure_persistence: None, ..config })
}

fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![Just(Patience(0)), Just(Patience(1)), Just(Patience(3)), Just(Patience::ENDLESS)]
}

#[test]
fn random_sequences_keep_all_rules_and_start_all_jobs_in_the_end() {
    let property = |(events, patience): (Vec<Event>, Patience)| {
        let mut queue = Jobs::new(limits(patience));
        let mut check = Check { patience, finals: BTreeMap::new(), now: 0 };
        for event in &events {
            // A restart changes nothing: the loaded queue behaves equally, and its state survives its text.
            let text = serde_json::to_string(&queue.state()).expect("JSON");
            let mut again = Jobs::load(serde_json::from_str(&text).expect("a state"), limits(patience)).expect("valid");
            let now = check.now;
            let effects = check.step(&mut queue, event)?;
            let at = now + if let Event::Tick(by) = event { *by } else { 1 };
            prop_assert_eq!(act(&mut again, event, Millis(at)), effects);
            prop_assert_eq!(again.state(), queue.state());
        }
        // Without rules, and if each process ends, each job ends.
        for rule in queue.rules().to_vec() {
            queue.remove_rule(&rule.id, Millis(check.now)).expect("there");
        }
        let mut rounds = 0;
        loop {
            let active = queue.jobs().position(|job| job.status.is_active());
            let Some(index) = active else { break };
            rounds += 1;
            prop_assert!(rounds < 1_000);
            check.step(&mut queue, &Event::Started(index))?;
            check.step(&mut queue, &Event::Ended(index, 0))?;
            // A canceled job that did not work yet has no report.
            check.step(&mut queue, &Event::Died(index))?;
        }
        let open: BTreeSet<_> = queue.jobs().filter(|job| job.status.outcome().is_none()).map(|job| job.id).collect();
        prop_assert_eq!(open, BTreeSet::new(), "these jobs never start");
        // Time alone empties the table.
        check.step(&mut queue, &Event::Tick(KEEP))?;
        prop_assert_eq!(queue.jobs().count(), 0);
        prop_assert_eq!(queue.next_tick(), None);
        Ok(())
    };
    runner().run(&(events(), patience()), property).unwrap_or_else(|fault| panic!("{fault}"));
}

/// A stored state with random changes in its text.
#[test]
fn damaged_states_never_panic() {
    let property = |(events, changes): (Vec<Event>, Vec<(usize, u8)>)| {
        let mut queue = Jobs::new(limits(Patience(1)));
        for (now, event) in events.iter().enumerate() {
            act(&mut queue, event, Millis(now as u64));
        }
        let mut state = serde_json::to_value(queue.state()).expect("JSON");
        let others = queue.state();
        let jobs = state["jobs"].as_array_mut().expect("jobs");
        for (index, what) in changes {
            let count = jobs.len();
            let Some(job) = (count > 0).then(|| &mut jobs[index % count]) else { break };
            let fields = ["status", "attempts", "id", "kill_at", "ended", "dependencies", "false_starts", "started"];
            let field = fields[what as usize % fields.len()];
            let from = serde_json::to_value(&others.jobs[(index / 7) % others.jobs.len()]).expect("JSON");
            job[field] = from[field].clone();
        }
        let Ok(state) = serde_json::from_value(state) else { return Ok(()) };
        if let Ok(mut queue) = Jobs::load(state, limits(Patience(1))) {
            queue.resume(Millis(0));
            for event in &events {
                act(&mut queue, event, Millis(u64::MAX));
            }
            let statuses: BTreeSet<Status> = queue.jobs().map(|job| job.status).collect();
            prop_assert!(statuses.len() <= 8);
        }
        Ok(())
    };
    let changes = prop::collection::vec((any::<usize>(), any::<u8>()), 1..6);
    runner().run(&(events(), changes), property).unwrap_or_else(|fault| panic!("{fault}"));
}
