//! The daemon's side: maps checks and transitions to calls, and answers to results.

use std::time::Duration;

use cob_types::{Command, Kind};
use serde::Deserialize;

use super::caller::{Answer, Call};
use super::protocol::Ask;
use crate::kinds::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work, answer};
use crate::run::{CALL_PLUGIN, Exit, JobResult, escape};

/// The back end `plugin`.
#[derive(Debug)]
pub(in crate::kinds) struct Plugin;

/// The field of the content that is read here. The other fields have become the kind.
#[derive(Debug, Deserialize)]
struct Content {
    #[serde(default)]
    run: Option<Command>,
}

impl Plugin {
    fn argv(tools: &Tools, context: &Context, command: &Command, ask: Ask) -> Result<Command, String> {
        tools.call(CALL_PLUGIN, &Call { ask, command: command.clone(), states: context.kind.states.clone() })
    }
}

/// Whether a transition is a revert. The generator adds a revert only if the kind has no other transition back.
fn is_revert(kind: &Kind, attempt: &TransitionAttempt) -> bool {
    kind.transitions.iter().any(|t| t.from == attempt.to && t.to == attempt.from && t.revert.is_some())
}

impl Backend for Plugin {
    fn name(&self) -> &'static str {
        "plugin"
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        if kind.check.run.is_none() || kind.transitions.iter().any(|t| t.run.is_none()) {
            return Err("it names no executable".to_owned());
        }
        Ok(())
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        match cob_kinds::parse::<Content>(content)?.run {
            Some(_) => Ok(()),
            None => Err("content: missing field `run`".to_owned()),
        }
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let command = context.kind.check.run.as_ref().ok_or_else(|| "its kind names no executable".to_owned());
        let command = match command.and_then(|command| Self::argv(tools, context, command, Ask::Check)) {
            Ok(command) => command,
            Err(why) => return Work::known(CheckOutcome::unknown(why)),
        };
        let timeout = context.check_timeout();
        let read = move |result: JobResult| match answer(&result, timeout) {
            Ok(Answer::Found { state, difference, exports }) => {
                CheckOutcome { state: Ok(state), difference: escape(&difference), exports, fresh: false }
            }
            Ok(Answer::Done { .. }) => CheckOutcome::unknown("check: it answered as to a transition"),
            Ok(Answer::Failed(why)) | Err(why) => {
                CheckOutcome { difference: result.last_lines, ..CheckOutcome::unknown(format!("check: {why}")) }
            }
        };
        Work::process(command, timeout, Duration::from_secs(1), read)
    }

    fn transition(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        let found = context.transition(attempt).and_then(|t| Some((t, t.run.as_ref()?)));
        let Some((transition, command)) = found else {
            return Work::known(Outcome::failed(format!(
                "its kind has no transition {} -> {}",
                attempt.from, attempt.to
            )));
        };
        let revert = is_revert(&context.kind, attempt);
        let ask = if revert { Ask::Revert(attempt.clone()) } else { Ask::Transition(attempt.clone()) };
        let command = match Self::argv(tools, context, command, ask) {
            Ok(command) => command,
            Err(why) => return Work::known(Outcome::failed(why)),
        };
        let timeout = Duration::from_millis(transition.timeout_ms);
        let read = move |result: JobResult| match result.exit {
            Exit::Lost => Outcome::Lost,
            Exit::Cancelled => Outcome::Cancelled,
            Exit::Exited(_) | Exit::Signal(_) | Exit::TimedOut | Exit::SpawnFailed(_) => match answer(&result, timeout)
            {
                Ok(Answer::Done { exports, saved }) => Outcome::Done { exports, saved },
                Ok(Answer::Found { .. }) => Outcome::failed("it answered as to a check"),
                Ok(Answer::Failed(reason)) | Err(reason) => Outcome::Failed { reason },
            },
        };
        Work::process(command, timeout, Duration::from_millis(transition.grace_ms), read)
    }
}
