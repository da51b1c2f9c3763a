//! Compares a plan with the events of a real switch: finished and running transitions, and the expected end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_types::history::{HistoryEntry, HistoryEvent};
use cob_types::past::HostPast;
use cob_types::{CobId, GenerationNumber, HostName, StateName};

use crate::plan::{Planned, SwitchPlan};

/// The progress of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It has not started.
    Not,
    /// It runs since this time.
    Runs(u64),
    /// It started at this time and did not succeed: its attempts are used up, or its host left the switch.
    Failed(u64),
    /// It started and ended at these times.
    Ended(u64, u64),
}

/// The reason why a host starts no transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyIdle {
    /// It was paused.
    Paused,
    /// The switch was cancelled there.
    Cancelled,
}

/// The progress of a switch, from histories. Times are in nanoseconds, by the clocks of the hosts.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The time of the first `go`.
    began: Option<u64>,
    /// The hosts that received `go`, with the number of steps from the goal of their last `go` to the end.
    told: BTreeMap<HostName, usize>,
    /// Hosts that switched elsewhere afterwards, back or forward: their later events do not count.
    left: BTreeSet<HostName>,
    /// With intermediate generations: hosts that became idle in the final generation.
    settled: BTreeSet<HostName>,
    /// Some host received `go` in the start generation of the plan, or on the way from it.
    is_from_there: bool,
    /// Generations other than the plan's start in which hosts received `go`.
    elsewhere: BTreeSet<GenerationNumber>,
    /// By transition.
    made: Vec<Made>,
    /// The pending transitions of each change object to a state.
    coming: BTreeMap<(CobId, StateName), VecDeque<usize>>,
    running: BTreeMap<CobId, Option<usize>>,
    /// Running change objects whose attempt failed and will be repeated.
    between: BTreeSet<CobId>,
    hosts: BTreeMap<HostName, HostPast>,
    /// Transitions that are not in the plan.
    unplanned: u64,
    failed: u64,
    last_end: u64,
}

/// A transition, with its planned or real times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Its progress.
    pub made: Made,
    /// Its start in microseconds since `go`: the real time, or the plan's estimate.
    pub begin_us: u64,
    /// Its end.
    pub end_us: u64,
}

/// The state of the plan at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// By transition.
    pub transitions: Vec<Expected>,
    /// The end of all transitions, in microseconds since `go`.
    pub end_us: u64,
    /// The number of finished transitions.
    pub ended: usize,
    /// The number of running transitions.
    pub running: usize,
    /// Transitions that are not in the plan.
    pub unplanned: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The number of hosts that switched elsewhere afterwards.
    pub left: usize,
    /// The number of transitions that wait until stopped hosts resume: their own, and later transitions.
    pub held: usize,
    /// The stopped hosts that hold transitions.
    pub still: BTreeMap<HostName, WhyIdle>,
    /// The number of transitions that will not be made by themselves: failed transitions, later transitions, and
    /// transitions of hosts that switched elsewhere. After the others have ended, no further end is expected.
    pub stuck: usize,
    /// The start generations of hosts that the plan does not expect.
    pub elsewhere: BTreeSet<GenerationNumber>,
}

impl Progress {
    /// No event yet.
    #[must_use]
    pub fn new(plan: &SwitchPlan) -> Self {
        let mut progress = Self {
            began: None,
            told: BTreeMap::new(),
            left: BTreeSet::new(),
            settled: BTreeSet::new(),
            is_from_there: false,
            elsewhere: BTreeSet::new(),
            made: Vec::new(),
            coming: BTreeMap::new(),
            running: BTreeMap::new(),
            between: BTreeSet::new(),
            hosts: BTreeMap::new(),
            unplanned: 0,
            failed: 0,
            last_end: 0,
        };
        progress.begin(plan);
        progress
    }

    /// Resets the state for the next switch.
    pub fn begin(&mut self, plan: &SwitchPlan) {
        self.began = None;
        self.told.clear();
        self.left.clear();
        self.settled.clear();
        self.is_from_there = false;
        self.elsewhere.clear();
        self.made = vec![Made::Not; plan.transitions.len()];
        self.coming.clear();
        self.running.clear();
        self.between.clear();
        (self.unplanned, self.failed, self.last_end) = (0, 0, 0);
        for step in &plan.transitions {
            self.coming.entry((step.cob.clone(), step.to.clone())).or_default().push_back(step.id);
        }
    }

    /// Processes the next entry of the merged history.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
    pub fn take(&mut self, plan: &SwitchPlan, entry: &HistoryEntry) {
        self.hosts.entry(entry.host.clone()).or_default().take(entry);
        // A switch before the plan's start generation became active is not the planned switch.
        if !self.is_from_there && entry.generation == plan.from && self.left.contains(&entry.host) {
            self.begin(plan);
        }
        let leads = |to: Option<GenerationNumber>| to.and_then(|to| left_over(plan, to));
        match entry.happened() {
            HistoryEvent::Go(to) if let Some(steps) = leads(to) => {
                if self.told.get(&entry.host).is_some_and(|before| *before <= steps) {
                    // The same switch again: earlier events do not count.
                    self.begin(plan);
                }
                self.told.insert(entry.host.clone(), steps);
                self.left.remove(&entry.host);
                if entry.generation == plan.from || left_over(plan, entry.generation).is_some() {
                    self.is_from_there = true;
                } else {
                    self.elsewhere.insert(entry.generation);
                }
                self.began = Some(self.began.map_or(entry.ts_ns, |began| began.min(entry.ts_ns)));
            }
            HistoryEvent::Go(_) | HistoryEvent::Return(_) if self.told.contains_key(&entry.host) => {
                self.left.insert(entry.host.clone());
                let of_host = |cob: &CobId| cob.host_str() == entry.host.as_str();
                for (_, at) in self.running.extract_if(.., |cob, _| of_host(cob)) {
                    fail(&mut self.made, at);
                }
            }
            HistoryEvent::Settled(_) if !plan.steps.is_empty() && entry.generation == plan.to => {
                self.settled.insert(entry.host.clone());
            }
            HistoryEvent::Start(_) if self.left.contains(&entry.host) => {}
            // A host without `go` may start transitions that another host requests.
            HistoryEvent::Start(cob)
                if self.began.is_some()
                    && let (Some(from), Some(to)) = (&entry.from, &entry.to) =>
            {
                let next = self.next(plan, (cob, from, to), entry.generation);
                match next {
                    // A further attempt belongs to the first attempt.
                    Some(at) if self.made[at] == Made::Not => self.made[at] = Made::Runs(entry.ts_ns),
                    Some(at) => {
                        if let Made::Failed(since) = self.made[at] {
                            self.made[at] = Made::Runs(since);
                        }
                    }
                    None if self.told.contains_key(&entry.host) => self.unplanned += 1,
                    None => return,
                }
                self.between.remove(cob);
                self.running.insert(cob.clone(), next);
            }
            HistoryEvent::End(cob) if self.is_of_before(entry) => {
                if let Some(at) = self.running.remove(cob).flatten() {
                    self.made[at] = Made::Not;
                    let step = &plan.transitions[at];
                    self.coming.entry((step.cob.clone(), step.to.clone())).or_default().push_front(at);
                }
            }
            HistoryEvent::End(cob) => match (self.running.get(cob).copied(), entry.ok) {
                (Some(at), Some(true)) => {
                    self.running.remove(cob);
                    self.last_end = self.last_end.max(entry.ts_ns);
                    if let Some(at) = at
                        && let Made::Runs(since) = self.made[at]
                    {
                        self.made[at] = Made::Ended(since, entry.ts_ns);
                    }
                }
                (Some(at), Some(false) | None) => {
                    self.between.insert(cob.clone());
                    match at {
                        // A cancelled action has not failed; it starts again later.
                        Some(at) if self.is_cancelled(&entry.host) => self.made[at] = Made::Not,
                        Some(_) | None => self.failed += 1,
                    }
                }
                (None, _) => {}
            },
            HistoryEvent::Failed(cob) => {
                if let Some(at) = self.running.get(cob) {
                    fail(&mut self.made, *at);
                }
            }
            _ => {}
        }
    }

    fn stands_still(&self, host: &str) -> bool {
        self.hosts.get(host).is_some_and(HostPast::stands_still)
    }

    fn is_cancelled(&self, host: &HostName) -> bool {
        self.hosts.get(host).is_some_and(|host| host.is_cancelled)
    }

    /// The progress of a transition; on a stopped host a transition between attempts does not run.
    fn made(&self, plan: &SwitchPlan, at: usize) -> Made {
        let cob = &plan.transitions[at].cob;
        let runs = matches!(self.made[at], Made::Runs(_));
        if runs && self.between.contains(cob) && self.stands_still(cob.host_str()) { Made::Not } else { self.made[at] }
    }

    /// The transition of an event: the repeated transition, or the next pending transition in a leg that a host in this
    /// generation is at. The start state depends on when the host received `go`: a change object that must depart first
    /// starts from its present state, others from `outdated`. So a transition with the same end state matches, too.
    fn next(
        &mut self,
        plan: &SwitchPlan,
        (cob, from, to): (&CobId, &StateName, &StateName),
        generation: GenerationNumber,
    ) -> Option<usize> {
        let again = self.running.get(cob).copied().flatten().filter(|at| plan.transitions[*at].to == *to);
        let is_transition = |at: &usize| plan.transitions[*at].from == *from;
        if again.as_ref().is_some_and(is_transition) {
            return again;
        }
        let mut none = VecDeque::new();
        let coming = self.coming.get_mut(&(cob.clone(), to.clone())).unwrap_or(&mut none);
        let now = left_over(plan, generation).unwrap_or(usize::MAX);
        let is_past = |at: &usize| plan.transitions[*at].step.is_some_and(|leg| left_over(plan, leg) > Some(now));
        let exactly = coming.iter().position(|at| is_transition(at) && !is_past(at));
        if let Some(at) = exactly.or_else(|| coming.iter().position(is_transition)) {
            return coming.remove(at);
        }
        again.or_else(|| coming.remove(coming.iter().position(|at| !is_past(at))?))
    }

    /// The merged history is in causal order: an unrelated event that ended before the switch may follow the first
    /// `go`.
    fn is_of_before(&self, entry: &HistoryEntry) -> bool {
        !self.told.contains_key(&entry.host) && self.began.is_some_and(|began| entry.ts_ns < began)
    }

    /// Whether all hosts with `go` switched elsewhere afterwards.
    #[must_use]
    pub fn is_left(&self) -> bool {
        !self.told.is_empty() && self.told.keys().eq(&self.left)
    }

    /// The start of the switch, if it has started.
    #[must_use]
    pub fn began(&self) -> Option<u64> {
        self.began
    }

    /// The expectation at a moment: finished and running transitions as observed; each pending transition starts after
    /// its predecessors and not in the past.
    #[must_use]
    pub fn stands(&self, plan: &SwitchPlan, now_ns: u64) -> Standing {
        let began = self.began.unwrap_or(now_ns);
        let since = |ns: u64| ns.saturating_sub(began) / 1000;
        let now = since(now_ns);
        let mut transitions: Vec<Expected> = Vec::with_capacity(plan.transitions.len());
        let never = self.stuck(plan, false);
        let stuck = self.stuck(plan, true);
        for step in &plan.transitions {
            let lasts = step.end_us.saturating_sub(step.begin_us);
            let made = self.made(plan, step.id);
            let expected = match made {
                Made::Ended(from, to) => (since(from), since(to)),
                // The time is unknown: the planned time is shown and not counted.
                _ if stuck.contains(&step.id) => (step.begin_us, step.end_us),
                // An overdue transition can end at any moment.
                Made::Runs(from) => (since(from), since(from).saturating_add(lasts).max(now)),
                Made::Not | Made::Failed(_) => {
                    let ended = |at: &usize| transitions[*at].end_us;
                    let caused = step.cause.map_or(0, |cause| ended(&cause)).saturating_add(step.lag_us);
                    let begin = step.after.iter().map(ended).max().unwrap_or(0).max(caused);
                    let begin = if self.began.is_some() { begin.max(now) } else { begin };
                    (begin, begin.saturating_add(lasts))
                }
            };
            let (begin_us, end_us) = expected;
            transitions.push(Expected { made, begin_us, end_us });
        }
        let comes = |at: &usize| !stuck.contains(at);
        let last = (0..transitions.len()).filter(comes).map(|at| transitions[at].end_us).max().unwrap_or(0);
        let other = if self.last_end == 0 { 0 } else { since(self.last_end) };
        let end_us = last.max(other);
        let count = |is: fn(&Made) -> bool| transitions.iter().filter(|step| is(&step.made)).count();
        let ended = count(|made| matches!(made, Made::Ended(..)));
        let running = count(|made| matches!(made, Made::Runs(_)));
        let left_us = if ended + stuck.len() == self.made.len() { 0 } else { end_us.saturating_sub(now) };
        Standing {
            end_us: end_us.saturating_add_signed(beyond_medians(plan, left_us)),
            ended,
            running,
            transitions,
            unplanned: self.unplanned,
            failed: self.failed,
            left: self.left.len(),
            held: stuck.len() - never.len(),
            still: if stuck.len() > never.len() { self.holding(plan) } else { BTreeMap::new() },
            stuck: never.len(),
            elsewhere: self.elsewhere.clone(),
        }
    }

    /// The stopped hosts with unfinished transitions.
    fn holding(&self, plan: &SwitchPlan) -> BTreeMap<HostName, WhyIdle> {
        let waits = |step: &Planned| {
            let (host, past) = self.hosts.get_key_value(step.cob.host_str()).filter(|(_, past)| past.stands_still())?;
            // A host that is both paused and cancelled counts as cancelled.
            let why = if past.is_cancelled { WhyIdle::Cancelled } else { WhyIdle::Paused };
            let holds = match self.made(plan, step.id) {
                Made::Not => true,
                Made::Runs(_) => why == WhyIdle::Cancelled,
                Made::Failed(_) | Made::Ended(..) => false,
            };
            holds.then(|| (host.clone(), why))
        };
        plan.transitions.iter().filter_map(waits).collect()
    }

    /// Transitions that will not be made by themselves, with or without transitions that wait for hosts to resume.
    fn stuck(&self, plan: &SwitchPlan, with_held: bool) -> BTreeSet<usize> {
        let mut stuck = BTreeSet::new();
        for step in &plan.transitions {
            let host = step.cob.host();
            // A host that went on from an intermediate generation does not come back for its skipped transitions, and
            // need not make all later transitions that a full leg would have required.
            let goes_on = |leg| self.told.get(&host).is_some_and(|now| left_over(plan, leg) > Some(*now));
            let passed = step.step.is_some_and(goes_on) || self.settled.contains(&host);
            let gone = || self.left.contains(&host) || passed || with_held && self.stands_still(host.as_str());
            let is_of_leg = |before: &&usize| plan.transitions[**before].step == step.step;
            let behind = || step.after.iter().filter(is_of_leg).any(|before| stuck.contains(before));
            let never = match self.made(plan, step.id) {
                Made::Failed(_) => true,
                Made::Not => gone() || behind(),
                // It was told to end.
                Made::Runs(_) => with_held && self.is_cancelled(&host),
                Made::Ended(..) => false,
            };
            if never {
                stuck.insert(step.id);
            }
        }
        stuck
    }
}

/// The number of steps from a generation to the end; `None`: the way does not include it.
fn left_over(plan: &SwitchPlan, generation: GenerationNumber) -> Option<usize> {
    plan.steps.iter().chain([&plan.to]).rev().position(|step| *step == generation)
}

fn fail(made: &mut [Made], at: Option<usize>) {
    if let Some(at) = at
        && let Made::Runs(since) = made[at]
    {
        made[at] = Made::Failed(since);
    }
}

/// The expected extra time of the rest compared with all durations at their medians, in proportion to the whole plan's.
fn beyond_medians(plan: &SwitchPlan, left_us: u64) -> i64 {
    let f = &plan.forecast;
    let whole = i128::from(f.p50_us) - i128::from(f.end_us);
    let part = whole * i128::from(left_us.min(f.end_us)) / i128::from(f.end_us.max(1));
    i64::try_from(part).unwrap_or_default()
}
