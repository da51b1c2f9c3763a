//! The daemon's side of a native kind: makes calls of checks and moves, and outcomes of answers.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::{Command, Kind};

use super::{Answer, Call, Native};
use crate::kinds::backend::{Backend, CheckOutcome, Context, Hop, Outcome, Process, Tools, Work, complaint};
use crate::run::{ACT_KIND, Exit, JobResult, escape};

/// The back end of a native kind.
#[derive(Debug)]
pub(in crate::kinds) struct NativeKind(pub(in crate::kinds) &'static dyn Native);

impl NativeKind {
    /// This program, with what it is to do.
    fn command(
        &self,
        tools: &Tools,
        context: &Context,
        hop: Option<&Hop>,
        timeout: Duration,
    ) -> Result<Command, String> {
        let call = Call {
            backend: self.0.name().to_owned(),
            hop: hop.cloned(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            observed: context.cob.observe,
            content: String::new(),
            cob: String::new(),
            own: std::path::PathBuf::new(),
        };
        let mut argv = Vec::new();
        for word in tools.program().argv(ACT_KIND) {
            argv.push(word.into_string().map_err(|word| format!("{}: not UTF-8", word.display()))?);
        }
        argv.push(serde_json::to_string(&call).expect("a call is plain data"));
        Ok(Command::Argv(argv))
    }
}

impl Backend for NativeKind {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn durable(&self) -> bool {
        true
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        let known = self.0.states();
        match kind.states.iter().find(|s| !known.contains(&s.as_str())) {
            Some(state) => Err(format!("{} has no state {state}; it has {}", self.0.name(), known.join(", "))),
            None => Ok(()),
        }
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        self.0.accept(content)
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let (timeout, kind) = (context.check_timeout(), context.kind.clone());
        let command = match self.command(tools, context, None, timeout) {
            Ok(command) => command,
            Err(why) => return Work::known(CheckOutcome::unknown(why)),
        };
        let read = move |result: JobResult| match answer(&result, timeout) {
            Ok(Answer::Found { state, .. }) if !kind.has_state(&state) => {
                CheckOutcome::unknown(format!("check: it is {state}, and its kind has no such state"))
            }
            Ok(Answer::Found { state, difference, exports }) => {
                CheckOutcome { state: Ok(state), difference: escape(&difference), exports }
            }
            Ok(Answer::Done { .. }) => CheckOutcome::unknown("check: it answered as to a move"),
            Ok(Answer::Failed(why)) | Err(why) => {
                CheckOutcome { difference: result.last_lines, ..CheckOutcome::unknown(format!("check: {why}")) }
            }
        };
        // It changes nothing, so nothing has to be put in order either.
        Work::Process(process(command, timeout, Duration::from_secs(1), Box::new(read)))
    }

    fn transition(&self, tools: &Tools, context: &Context, hop: &Hop) -> Work<Outcome> {
        let Some(transition) = context.transition(hop) else {
            return Work::known(Outcome::failed(format!("its kind has no move {} -> {}", hop.from, hop.to)));
        };
        let timeout = Duration::from_millis(transition.timeout_ms);
        let command = match self.command(tools, context, Some(hop), timeout) {
            Ok(command) => command,
            Err(why) => return Work::known(Outcome::failed(why)),
        };
        let read = move |result: JobResult| match result.exit {
            Exit::Lost => Outcome::Lost,
            Exit::Cancelled => Outcome::Cancelled,
            Exit::Exited(_) | Exit::Signal(_) | Exit::TimedOut | Exit::SpawnFailed(_) => match answer(&result, timeout)
            {
                Ok(Answer::Done { exports }) => Outcome::Done { exports, saved: None },
                Ok(Answer::Found { .. }) => Outcome::failed("it answered as to a check"),
                Ok(Answer::Failed(reason)) | Err(reason) => Outcome::Failed { reason },
            },
        };
        Work::Process(process(command, timeout, Duration::from_millis(transition.grace_ms), Box::new(read)))
    }
}

fn process<T>(
    command: Command,
    timeout: Duration,
    grace: Duration,
    read: Box<dyn FnOnce(JobResult) -> T + Send>,
) -> Process<T> {
    Process { command, environment: BTreeMap::new(), timeout, grace, stdout_apart: false, read }
}

/// What it answered; else how it ended.
fn answer(result: &JobResult, timeout: Duration) -> Result<Answer, String> {
    let said = match &result.exit {
        Exit::Exited(_) => result.saved.as_ref().ok().and_then(|text| serde_json::from_str(text.as_deref()?).ok()),
        Exit::Signal(_) | Exit::TimedOut | Exit::Cancelled | Exit::SpawnFailed(_) | Exit::Lost => None,
    };
    said.ok_or_else(|| complaint(result, timeout).unwrap_or_else(|| "it ended without a word".to_owned()))
}
