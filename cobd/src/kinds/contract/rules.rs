//! The rules, one after the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cob_types::{Kind, StateName};

use super::report::{Report, Rule, Verdict};
use super::subject::{As, Kill, Subject};
use super::world::World;
use super::{Case, KILLS};
use crate::kinds::backend::{CheckOutcome, Outcome};
use crate::run::Program;

/// How long a check may report an unknown state after a kill or an accident: a process may still be busy.
const UNKNOWN: Duration = Duration::from_secs(30);
/// The pause between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Tries all rules. `program` executes the processes; the daemon's data is below `scratch`.
///
/// # Errors
/// If the scratch folder can't be used, or watched files can't be read.
pub async fn run(case: &Case, program: &Program, scratch: &Path) -> io::Result<Report> {
    let subject = Subject::new(case, program, scratch)?;
    let report = Report {
        kind: case.kind.name.to_string(),
        backend: case.kind.backend.clone(),
        seed: case.seed,
        holds: true,
        trials: Vec::new(),
    };
    let arranged = case.arranged.clone();
    let mut trying = Trying { subject, report, arranged, at: None, seen: BTreeSet::new(), took: BTreeMap::new() };
    trying.all(case).await?;
    Ok(trying.report)
}

struct Trying {
    subject: Subject,
    report: Report,
    /// The commands that lead into states without incoming transitions.
    arranged: BTreeMap<StateName, String>,
    /// The state that the last check found. `None`: unknown.
    at: Option<StateName>,
    /// The states in which the check rule was tried.
    seen: BTreeSet<String>,
    /// The undisturbed duration of each transition.
    took: BTreeMap<(StateName, StateName), Duration>,
}

/// Why a state was not reached.
enum Away {
    /// No transitions lead there.
    NoWay(String),
    /// A step failed; the trial of that step reports it.
    Stumbled(String),
}

impl Away {
    fn why(self) -> String {
        match self {
            Self::NoWay(why) | Self::Stumbled(why) => why,
        }
    }
}

type Tried<T> = io::Result<Result<T, String>>;

impl Trying {
    async fn all(&mut self, case: &Case) -> io::Result<()> {
        let accepted = self.subject.accepted();
        let refused = accepted.is_err();
        self.report.judge(Rule::Accepted, "kind and content", accepted);
        if refused {
            return Ok(());
        }
        let Some((first, world)) = self.first().await? else { return Ok(()) };
        let kind = self.subject.kind.clone();
        for transition in &kind.transitions {
            self.one_move(&transition.from, &transition.to).await?;
        }
        self.undo(&first, &world).await?;
        if case.kills > 0 {
            let mut draws = Draws(case.seed);
            for transition in &kind.transitions {
                self.killed(&transition.from, &transition.to, case.kills, &mut draws).await?;
            }
        }
        // Departs, to switch off the effects of the test.
        let _ = self.leave().await?;
        Ok(())
    }

    /// The first check's result, and the world before it.
    async fn first(&mut self) -> io::Result<Option<(CheckOutcome, World)>> {
        let before = self.subject.world()?;
        let first = match self.look(As::Own).await? {
            Ok(first) => first,
            Err(what) => {
                self.report.judge(Rule::Check, "first", Err(what));
                return Ok(None);
            }
        };
        if let Err(why) = &first.state {
            let what = format!("the state is not known: {why}");
            self.report.judge(Rule::Check, "first", Err(what));
            return Ok(None);
        }
        Ok(Some((first, before)))
    }

    /// Checks, and compares the world before and after. In a new state it checks twice.
    async fn look(&mut self, whose: As) -> Tried<CheckOutcome> {
        let before = self.subject.world()?;
        let found = match self.subject.check(whose).await {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let between = self.subject.world()?;
        self.at = found.state.as_ref().ok().cloned();
        let about = found.state.as_ref().map_or_else(|_| "unknown".to_owned(), ToString::to_string);
        let mut seen =
            before.touched(&between).map_or(Ok(()), |what| Err(format!("a check has made a change: {what}")));
        let is_new = !self.seen.contains(&about);
        if is_new && seen.is_ok() {
            match self.subject.check(whose).await {
                Ok(again) if again != found => {
                    seen = Err(format!(
                        "the second of two checks in a row says {}, the first {}",
                        said(&again),
                        said(&found)
                    ));
                }
                Ok(_) => {
                    let changed = between.touched(&self.subject.world()?);
                    seen = changed.map_or(Ok(()), |what| Err(format!("a second check has made a change: {what}")));
                }
                Err(why) => seen = Err(why),
            }
        }
        if is_new || seen.is_err() {
            self.seen.insert(about.clone());
            self.report.judge(Rule::Check, format!("in {about}"), seen);
        }
        Ok(Ok(found))
    }

    /// Makes a transition, and checks that it ends in its state.
    async fn step(&mut self, whose: As, from: &StateName, to: &StateName) -> Tried<CheckOutcome> {
        let begun = Instant::now();
        let outcome = match self.subject.make(whose, from, to).await {
            Ok(outcome) => outcome,
            Err(why) => return Ok(Err(why)),
        };
        let took = begun.elapsed();
        let complaint = match outcome {
            Outcome::Done { .. } => None,
            Outcome::Failed { reason } | Outcome::Conflict { reason } => {
                Some(format!("the transition has failed: {reason}"))
            }
            Outcome::Cancelled | Outcome::Lost => Some("the transition was ended from outside".to_owned()),
        };
        self.took.insert((from.clone(), to.clone()), took);
        let found = match self.look(whose).await? {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        Ok(match (complaint, &found.state) {
            (Some(complaint), _) => Err(complaint),
            (None, Ok(state)) if state == to => Ok(found),
            (None, _) => {
                Err(format!("the transition has succeeded, but a check says {} instead of {to}", said(&found)))
            }
        })
    }

    /// Moves to a state along the shortest path.
    async fn reach(&mut self, whose: As, to: &StateName) -> io::Result<Result<(), Away>> {
        let kind = self.subject.kind.clone();
        let mut steps = kind.states.len() + 1;
        if whose == As::Other || self.at.is_none() {
            let _ = self.look(whose).await?;
        }
        loop {
            let Some(at) = self.at.clone() else {
                return Ok(Err(Away::Stumbled("the state is not known".to_owned())));
            };
            if at == *to {
                return Ok(Ok(()));
            }
            let Some(next) = next_on_the_way(&kind, &at, to) else {
                return Ok(Err(Away::NoWay(format!("no transitions lead from {at} to {to}"))));
            };
            steps -= 1;
            if steps == 0 {
                return Ok(Err(Away::Stumbled(format!("{to} was not reached"))));
            }
            if let Err(what) = self.step(whose, &at, &next).await? {
                return Ok(Err(Away::Stumbled(format!("{at} -> {next}: {what}"))));
            }
        }
    }

    /// Reaches the first state of a transition: by transitions, by a given command, or with another content.
    async fn arrange(&mut self, from: &StateName) -> io::Result<Result<(), Away>> {
        let kind = self.subject.kind.clone();
        let no_way = match self.reach(As::Own, from).await? {
            Ok(()) => return Ok(Ok(())),
            Err(stumbled @ Away::Stumbled(_)) => return Ok(Err(stumbled)),
            Err(Away::NoWay(why)) => why,
        };
        if let Some(command) = self.arranged.get(from).cloned() {
            return self.arrange_by(&command, from).await;
        }
        if kind.outdated() != Some(from) {
            return Ok(Err(Away::NoWay(no_way)));
        }
        if !self.subject.has_other() {
            return Ok(Err(Away::NoWay("no other content is given with which it could be outdated".to_owned())));
        }
        for (whose, to) in [(As::Own, &kind.pre_remove), (As::Other, &kind.preferred)] {
            if let Err(away) = self.reach(whose, to).await? {
                return Ok(Err(away));
            }
        }
        Ok(match self.look(As::Own).await? {
            Ok(found) if found.state.as_ref().ok() == Some(from) => Ok(()),
            Ok(found) => {
                Err(Away::Stumbled(format!("after a transition with another content, it is found {}", said(&found))))
            }
            Err(why) => Err(Away::Stumbled(why)),
        })
    }

    /// Reaches the first state of a transition by a given command.
    async fn arrange_by(&mut self, command: &str, from: &StateName) -> io::Result<Result<(), Away>> {
        let kind = self.subject.kind.clone();
        if let Err(away) = self.reach(As::Own, &kind.preferred).await? {
            return Ok(Err(away));
        }
        let ran = tokio::process::Command::new("/bin/sh").arg("-c").arg(command).stdin(Stdio::null()).output().await?;
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            return Ok(Err(Away::Stumbled(format!("`{command}`: {}: {said}", ran.status))));
        }
        let limit = Instant::now() + UNKNOWN;
        while self.subject.check(As::Own).await.is_ok_and(|found| found.state.as_ref().ok() != Some(from)) {
            if Instant::now() >= limit {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(match self.look(As::Own).await? {
            Ok(found) if found.state.as_ref().ok() == Some(from) => Ok(()),
            Ok(found) => Err(Away::Stumbled(format!("after `{command}` it is found {}", said(&found)))),
            Err(why) => Err(Away::Stumbled(why)),
        })
    }

    /// Tries two rules: a transition ends in its state, and made twice it ends as if made once.
    async fn one_move(&mut self, from: &StateName, to: &StateName) -> io::Result<()> {
        let about = format!("{from} -> {to}");
        if let Err(away) = self.arrange(from).await? {
            self.untried(Rule::Move, about, away, from);
            return Ok(());
        }
        let once = self.step(As::Own, from, to).await?;
        let arrived = once.is_ok();
        self.report.judge(Rule::Move, about.clone(), once.map(|_| ()));
        if !arrived {
            return Ok(());
        }
        let world = self.subject.world()?;
        let took = self.took.get(&(from.clone(), to.clone())).copied();
        let twice = self.step(As::Own, from, to).await?;
        // The second time there may be no work, which is much faster, so the first duration stays.
        if let Some(took) = took {
            self.took.insert((from.clone(), to.clone()), took);
        }
        let same = match twice {
            Ok(_) => world.differs(&self.subject.world()?, &BTreeSet::new()).map_or(Ok(()), Err),
            Err(what) => Err(what),
        };
        self.report.judge(Rule::Twice, about, same.map_err(|what| format!("made a second time: {what}")));
        Ok(())
    }

    /// Leaves the first state and comes back: the first answer and world must be back. Unless the first state is the
    /// preferred one, the change object comes back by a departure.
    async fn undo(&mut self, first: &CheckOutcome, world: &World) -> io::Result<()> {
        let kind = self.subject.kind.clone();
        let Ok(start) = first.state.clone() else { return Ok(()) };
        let leaves = start != kind.preferred;
        let away = if leaves { &kind.preferred } else { &kind.pre_remove };
        let about = format!("{start} -> {away} -> {start}");
        if *away == start {
            return Ok(());
        }
        let mut reached = self.reach(As::Own, away).await?;
        if reached.is_ok() {
            reached = if leaves { self.leave().await? } else { self.reach(As::Own, &start).await? };
        }
        if let Err(away) = reached {
            self.untried(Rule::Undo, about, away, &start);
            return Ok(());
        }
        let seen = match self.look(As::Own).await? {
            Ok(found) if found != *first => {
                Err(format!("the check says {}, at first it said {}", said(&found), said(first)))
            }
            Ok(_) => world.differs(&self.subject.world()?, &BTreeSet::new()).map_or(Ok(()), Err),
            Err(why) => Err(why),
        };
        self.report.judge(Rule::Undo, about, seen);
        Ok(())
    }

    /// Moves to the pre-remove state and departs.
    async fn leave(&mut self) -> io::Result<Result<(), Away>> {
        let kind = self.subject.kind.clone();
        self.subject.begin_to_leave();
        let reached = self.reach(As::Own, &kind.pre_remove).await;
        self.subject.end_leaving(matches!(reached, Ok(Ok(())))).await;
        reached
    }

    /// Tries the rule that a killed and repeated transition ends as if it had not been killed.
    async fn killed(&mut self, from: &StateName, to: &StateName, kills: u32, draws: &mut Draws) -> io::Result<()> {
        let about = format!("{from} -> {to}");
        // Two undisturbed transitions: a difference between them is normal.
        let mut worlds = Vec::new();
        for _ in 0..2 {
            if let Err(away) = self.arrange(from).await? {
                self.untried(Rule::Killed, about, away, from);
                return Ok(());
            }
            if let Err(what) = self.step(As::Own, from, to).await? {
                self.report.add(Rule::Killed, about, Verdict::Untried { why: what });
                return Ok(());
            }
            worlds.push(self.subject.world()?);
        }
        let volatile = worlds[0].volatile(&worlds[1]);
        let took = self.took.get(&(from.clone(), to.clone())).copied().unwrap_or_default();
        let mut killed = 0;
        for round in 0..kills {
            let after = draws.moment(took, round, kills);
            let what = match self.kill_once(from, to, after).await? {
                Ok(false) => None,
                Ok(true) => {
                    killed += 1;
                    worlds[1].differs(&self.subject.world()?, &volatile)
                }
                Err(what) => Some(what),
            };
            if let Some(what) = what {
                self.report.judge(Rule::Killed, about, Err(format!("killed after {after:.1?} of {took:.1?}: {what}")));
                return Ok(());
            }
        }
        // After the last kill, the first state must be reachable, too.
        if let Err(what) = self.begin_again(from).await? {
            self.report.judge(Rule::Killed, about, Err(what));
            return Ok(());
        }
        let about = format!("{about}, killed before its end in {killed} of {kills}");
        self.report.judge(Rule::Killed, about, Ok(()));
        Ok(())
    }

    /// Reaches the first state of the transition.
    async fn begin_again(&mut self, from: &StateName) -> Tried<()> {
        let arranged = self.arrange(from).await?;
        Ok(arranged.map_err(|away| format!("afterwards it can't be brought to {from} again: {}", away.why())))
    }

    /// Kills a transition and continues from its state. Returns whether the kill came before the end.
    async fn kill_once(&mut self, from: &StateName, to: &StateName, after: Duration) -> Tried<bool> {
        if let Err(what) = self.begin_again(from).await? {
            return Ok(Err(what));
        }
        let killed = match self.subject.kill(from, to, after).await {
            Ok(killed) => killed == Kill::Killed,
            Err(why) => return Ok(Err(why)),
        };
        // Another process may still be busy: systemd starts or stops a unit, for example.
        let limit = Instant::now() + UNKNOWN;
        while self.subject.check(As::Own).await.is_ok_and(|found| found.state.is_err()) && Instant::now() < limit {
            tokio::time::sleep(LOOK).await;
        }
        let found = match self.look(As::Own).await? {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = found.state {
            return Ok(Err(format!("a check does not know the state then: {why}")));
        }
        Ok(match self.reach(As::Own, to).await? {
            Ok(()) => Ok(killed),
            Err(away) => Err(format!("{to} is not reached any more: {}", away.why())),
        })
    }

    /// Reports that a rule could not be tried. A missing way to undo breaks the rule.
    fn untried(&mut self, rule: Rule, about: String, away: Away, from: &StateName) {
        match away {
            Away::NoWay(why) if rule == Rule::Undo => self.report.judge(rule, about, Err(why)),
            Away::NoWay(why) | Away::Stumbled(why) => {
                let why = format!("{from} could not be had: {why}");
                self.report.add(rule, about, Verdict::Untried { why });
            }
        }
    }
}

/// The next state on the shortest path; among equal paths, the transition that is declared first.
fn next_on_the_way(kind: &Kind, from: &StateName, to: &StateName) -> Option<StateName> {
    let mut open = VecDeque::from([(from, None::<&StateName>)]);
    let mut seen = BTreeSet::from([from]);
    while let Some((at, first)) = open.pop_front() {
        if at == to {
            return first.cloned();
        }
        for next in kind.transitions.iter().filter(|t| t.from == *at).map(|t| &t.to) {
            if seen.insert(next) {
                open.push_back((next, first.or(Some(next))));
            }
        }
    }
    None
}

fn said(outcome: &CheckOutcome) -> String {
    let state = outcome.state.as_ref().map_or_else(|why| format!("unknown ({why})"), ToString::to_string);
    let mut text = state;
    if !outcome.difference.is_empty() {
        text.push_str(&format!(" with the difference {:?}", outcome.difference));
    }
    if !outcome.exports.is_empty() {
        text.push_str(&format!(" with the values {:?}", outcome.exports));
    }
    text
}

/// A small random generator (splitmix64) with a seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random moment in the given part of a duration, so that each part gets a kill.
    fn moment(&mut self, took: Duration, round: u32, rounds: u32) -> Duration {
        let part = took / rounds.clamp(1, KILLS.max(rounds));
        let share = u32::try_from(self.next() % 1000).unwrap_or_default();
        part * round + part * share / 1000
    }
}
