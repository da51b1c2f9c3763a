//! The daemon's side of a native kind: creates the calls of checks and transitions, and reads the answers.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::{Cob, CobId, Command, Kind};
use tracing::warn;

use super::{Answer, Call, Native, Peers};
use crate::kinds::backend::{
    Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work, answer, of_folder_name,
};
use crate::kinds::departure::Attempt;
use crate::run::{ACT_KIND, Exit, JobResult, escape};

/// The back end of a native kind.
#[derive(Debug)]
pub(in crate::kinds) struct NativeKind {
    native: &'static dyn Native,
    /// The change objects of this host, and their subjects.
    peers: Arc<Mutex<Peers>>,
}

impl NativeKind {
    pub(in crate::kinds) fn new(native: &'static dyn Native) -> Self {
        Self { native, peers: Arc::default() }
    }

    /// The command line that executes this program with a call.
    fn command(
        &self,
        tools: &Tools,
        context: &Context,
        hop: Option<&TransitionAttempt>,
        timeout: Duration,
    ) -> Result<Command, String> {
        let call = Call {
            backend: self.native.name().to_owned(),
            hop: hop.cloned(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            observed: context.cob.observe,
            leaving: context.leaving,
            content: String::new(),
            cob: String::new(),
            own: std::path::PathBuf::new(),
        };
        tools.call(ACT_KIND, &call)
    }
}

impl Backend for NativeKind {
    fn name(&self) -> &'static str {
        self.native.name()
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        let known = self.native.states();
        match kind.states.iter().find(|s| !known.contains(&s.as_str())) {
            Some(state) => Err(format!("{} has no state {state}; it has {}", self.native.name(), known.join(", "))),
            None => Ok(()),
        }
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        self.native.accept(content)
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let (timeout, kind) = (context.check_timeout(), context.kind.clone());
        let command = match self.command(tools, context, None, timeout) {
            Ok(command) => command,
            Err(why) => return Work::known(CheckOutcome::unknown(why)),
        };
        let read = move |result: JobResult| match answer(&result, timeout) {
            Ok(Answer::Found { state, .. }) if !kind.has_state(&state) => {
                CheckOutcome::unknown(format!("check: it is {state}, which is not a state of its kind"))
            }
            Ok(Answer::Found { state, difference, exports }) => {
                CheckOutcome { state: Ok(state), difference: escape(&difference), exports, fresh: false }
            }
            Ok(Answer::Done { .. }) => CheckOutcome::unknown("check: its answer is that to a transition"),
            Ok(Answer::Failed(why) | Answer::FailedBeside { why, .. }) | Err(why) => {
                CheckOutcome { difference: result.last_lines, ..CheckOutcome::unknown(format!("check: {why}")) }
            }
        };
        // A check does not change the host, so it needs no time to clean up.
        Work::process(command, timeout, Duration::from_secs(1), read)
    }

    fn transition(&self, tools: &Tools, context: &Context, hop: &TransitionAttempt) -> Work<Outcome> {
        let Some(transition) = context.transition(hop) else {
            return Work::known(Outcome::failed(format!("its kind has no transition {} -> {}", hop.from, hop.to)));
        };
        let timeout = Duration::from_millis(transition.timeout_ms);
        let command = match self.command(tools, context, Some(hop), timeout) {
            Ok(command) => command,
            Err(why) => return Work::known(Outcome::failed(why)),
        };
        let (peers, drifts, cob) = (self.peers.clone(), tools.drifts().clone(), context.cob.id.clone());
        let check_again = move |concerned: &dyn Fn(&Peers) -> Vec<CobId>| {
            let peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
            for other in concerned(&peers).into_iter().filter(|other| *other != cob) {
                // If the queue is full, the kind's check interval finds the change later.
                let _ = drifts.try_send(other);
            }
        };
        let read = move |result: JobResult| {
            let ended = match result.exit {
                Exit::Lost => Err(Outcome::Lost),
                Exit::Cancelled => Err(Outcome::Cancelled),
                Exit::Exited(_) | Exit::Signal(_) | Exit::TimedOut | Exit::SpawnFailed(_) => {
                    answer(&result, timeout).map_err(|reason| Outcome::Failed { reason })
                }
            };
            match ended {
                Ok(Answer::Done { exports, touched }) => {
                    check_again(&|peers| peers.about(&touched));
                    Outcome::Done { exports, saved: None }
                }
                Ok(Answer::FailedBeside { why, touched }) => {
                    check_again(&|peers| peers.about(&touched));
                    Outcome::Failed { reason: why }
                }
                Ok(Answer::Failed(reason)) => Outcome::Failed { reason },
                Ok(Answer::Found { .. }) => Outcome::failed("its answer is that to a check"),
                // The transition was ended before it reported the subjects that it changed.
                Err(outcome) => {
                    check_again(&Peers::all);
                    outcome
                }
            }
        };
        Work::process(command, timeout, Duration::from_millis(transition.grace_ms), read)
    }

    fn kept(&self, tools: &Tools, cob: &CobId) {
        for note in self.native.notes() {
            match std::fs::remove_file(tools.own_folder(cob).join(note)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    warn!(%cob, %error, "the note of the original state can't be deleted");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn left(&self, tools: &Tools, cob: &CobId) -> Option<Attempt> {
        self.native.departed(&tools.own_folder(cob), cob)
    }

    fn is_here(&self, tools: &Tools, cob: &CobId) {
        if let Err(why) = self.native.is_here(&tools.own_folder(cob)) {
            warn!(%cob, why, "work of an earlier departure may be carried out although the change object is back");
        }
    }

    fn return_to(&self, tools: &Tools, here: &dyn Fn(&Path) -> bool) -> Vec<(CobId, Attempt)> {
        let entries = std::fs::read_dir(tools.cobs()).into_iter().flatten().flatten();
        let cobs = entries.filter_map(|entry| of_folder_name(entry.file_name().to_str()?));
        let gone = cobs.filter(|cob| !here(&tools.service_folder(cob)));
        gone.filter_map(|cob| Some((cob.clone(), self.left(tools, &cob)?))).collect()
    }

    fn watch(&self, tools: &Tools, cobs: &mut dyn Iterator<Item = Arc<Cob>>) {
        let peers = Peers::of(cobs.filter_map(|cob| {
            let is_wanted = !cob.observe && cob.preferred == "present";
            Some((cob.id.clone(), self.native.subject(&cob.content).filter(|_| is_wanted)?))
        }));
        let mut known = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == peers {
            return;
        }
        if let Err(error) = peers.write(&tools.cobs(), self.native.name()) {
            warn!(%error, "transitions do not know other change objects of their kind");
        }
        *known = peers;
    }
}
