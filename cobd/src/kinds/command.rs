//! The kind back end `command`: check and transitions are commands of the kind's author.
//!
//! The check prints the state's name as the last line of its standard output that is not empty. If it fails, prints
//! nothing, or names a state that the kind does not have, the state is `unknown`, with the reason. The other lines are
//! shown as the difference. A transition succeeds with exit status 0.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::{Kind, StateName};

use super::backend::{Backend, CheckOutcome, Context, Outcome, Process, Tools, TransitionAttempt, Work, complaint};
use crate::run::{Exit, JobResult, escape};

/// The back end `command`.
#[derive(Debug)]
pub(super) struct CommandKind;

impl Backend for CommandKind {
    fn name(&self) -> &'static str {
        "command"
    }

    fn saves(&self) -> bool {
        true
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        if kind.check.run.is_none() {
            return Err("it has no check command: without a check command its state is unknown".to_owned());
        }
        match kind.transitions.iter().find(|t| t.run.is_none()) {
            Some(t) => Err(format!("its transition {} -> {} has no command", t.from, t.to)),
            None => Ok(()),
        }
    }

    fn accept_content(&self, _content: &str) -> Result<(), String> {
        // Only the author's scripts can validate it.
        Ok(())
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let Some(command) = context.kind.check.run.clone() else {
            return Work::known(CheckOutcome::unknown("its kind has no check command"));
        };
        let (states, timeout) = (context.kind.states.clone(), context.check_timeout());
        Work::Process(Process {
            command,
            environment: BTreeMap::new(),
            timeout,
            // A check does not change the host, so it needs no time to clean up.
            grace: Duration::from_secs(1),
            stdout_apart: true,
            read: Box::new(move |result| read_check(&states, timeout, result)),
        })
    }

    fn transition(&self, _tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        let transition = context.transition(attempt);
        let Some((transition, command)) = transition.and_then(|t| Some((t, t.run.clone()?))) else {
            let what = format!("its kind has no command for {} -> {}", attempt.from, attempt.to);
            return Work::known(Outcome::failed(what));
        };
        let timeout = Duration::from_millis(transition.timeout_ms);
        let grace = Duration::from_millis(transition.grace_ms);
        Work::process(command, timeout, grace, move |result| read_transition(timeout, result))
    }
}

fn read_check(states: &[StateName], timeout: Duration, result: JobResult) -> CheckOutcome {
    if let Some(complaint) = complaint(&result, timeout) {
        return CheckOutcome { difference: result.last_lines, ..CheckOutcome::unknown(format!("check: {complaint}")) };
    }
    let mut lines: Vec<_> = result.stdout.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let Some(name) = lines.pop() else {
        let difference = result.last_lines;
        return CheckOutcome { difference, ..CheckOutcome::unknown("check: it printed no state") };
    };
    let difference = if !lines.is_empty() {
        escape(&lines.join("\n"))
    } else if result.last_lines.trim() == escape(name) {
        String::new()
    } else {
        result.last_lines
    };
    let Some(state) = states.iter().find(|s| **s == *name) else {
        let known = states.iter().map(StateName::as_str).collect::<Vec<_>>().join(", ");
        let name = escape(name).chars().take(80).collect::<String>();
        let reason = format!("check: it printed {name:?}, which is no state of its kind ({known})");
        return CheckOutcome { difference, ..CheckOutcome::unknown(reason) };
    };
    match result.exports {
        Ok(exports) => CheckOutcome { state: Ok(state.clone()), difference, exports, fresh: false },
        Err(reason) => CheckOutcome { difference, ..CheckOutcome::unknown(format!("check: {reason}")) },
    }
}

fn read_transition(timeout: Duration, result: JobResult) -> Outcome {
    match (&result.exit, complaint(&result, timeout)) {
        (Exit::Lost, _) => Outcome::Lost,
        (Exit::Cancelled, _) => Outcome::Cancelled,
        (Exit::Exited(_) | Exit::Signal(_) | Exit::TimedOut | Exit::SpawnFailed(_), Some(reason)) => {
            Outcome::Failed { reason }
        }
        (Exit::Exited(_) | Exit::Signal(_) | Exit::TimedOut | Exit::SpawnFailed(_), None) => {
            match (result.exports, result.saved) {
                (Ok(exports), Ok(saved)) => Outcome::Done { exports, saved },
                (Err(reason), _) => Outcome::Failed { reason },
                (_, Err(why)) => Outcome::failed(format!("saved result: {why}")),
            }
        }
    }
}
