//! The daemon's side of a native kind: creates the calls of checks and transitions, and reads the answers.
//!
//! Short work is done in threads of the daemon: to start two processes for each takes longer than the work itself.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::{Cob, CobId, Kind};
use tracing::warn;

use super::act::answer_to;
use super::{Answer, Call, Native, Peers};
use crate::kinds::backend::{
    Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work, answer, make_folder, of_folder_name,
};
use crate::kinds::departure::Attempt;
use crate::kinds::pool::{Does, OneAtATime, Pool};
use crate::run::{ACT_KIND, Exit, JobResult, escape};

/// The back end of a native kind.
pub(in crate::kinds) struct NativeKind {
    native: &'static dyn Native,
    /// The threads for short work.
    pool: Pool,
    turns: Arc<OneAtATime>,
    /// The change objects of this host, and their subjects.
    peers: Arc<Mutex<Peers>>,
}

impl NativeKind {
    /// The back end of `native`, with threads that all native kinds share.
    pub(in crate::kinds) fn new(native: &'static dyn Native, pool: Pool) -> Self {
        Self { native, pool, turns: Arc::default(), peers: Arc::default() }
    }

    fn call(&self, context: &Context, attempt: Option<&TransitionAttempt>, timeout: Duration) -> Call {
        Call {
            backend: self.native.name().to_owned(),
            attempt: attempt.cloned(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            observed: context.cob.observe,
            leaving: context.leaving,
            content: String::new(),
            cob: String::new(),
            own: std::path::PathBuf::new(),
        }
    }

    /// Whether work is done inside the daemon. Secrets are decrypted for processes only. As long as a file does not
    /// answer, processes do the work: they can be killed.
    fn is_inside(&self, tools: &Tools, context: &Context) -> bool {
        self.native.is_short() && context.secrets.is_empty() && !tools.acts_apart() && !self.pool.has_abandoned()
    }

    /// Answers a call in a thread of the daemon.
    fn inside<T: Send + 'static>(
        &self,
        tools: &Tools,
        context: &Context,
        (does, call): (Does, Call),
        failed: fn(String) -> T,
        read: impl FnOnce(Answer) -> T + Send + 'static,
    ) -> Work<T> {
        let (native, turns, timeout, cob) = (self.native, self.turns.clone(), call.timeout(), context.cob.clone());
        let own = tools.own_folder(&cob.id);
        self.pool.work(does, Some(timeout), failed, move |_| {
            make_folder(&own).map_err(|error| format!("{}: {error}", own.display()))?;
            let call = Call { content: cob.content.clone(), cob: cob.id.to_string(), own, ..call };
            Ok(read(turns.alone(&cob.id, || answer_to(native, &call))))
        })
    }

    /// What the answer to a check means.
    fn checked(kind: &Kind, answer: Answer) -> CheckOutcome {
        match answer {
            Answer::Found { state, .. } if !kind.has_state(&state) => {
                CheckOutcome::unknown(format!("check: it is {state}, which is not a state of its kind"))
            }
            Answer::Found { state, difference, exports } => {
                CheckOutcome { state: Ok(state), difference: escape(&difference), exports, fresh: false }
            }
            Answer::Done { .. } => CheckOutcome::unknown("check: its answer is that to a transition"),
            Answer::Failed(why) | Answer::FailedBeside { why, .. } => CheckOutcome::unknown(format!("check: {why}")),
        }
    }

    /// Turns the end of a transition into its result. Other change objects that it has touched are checked again.
    fn moved(&self, tools: &Tools, cob: &CobId) -> impl FnOnce(Result<Answer, Outcome>) -> Outcome + Send + 'static {
        let (peers, drifts, cob) = (self.peers.clone(), tools.drifts().clone(), cob.clone());
        let check_again = move |concerned: &dyn Fn(&Peers) -> Vec<CobId>| {
            let peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
            for other in concerned(&peers).into_iter().filter(|other| *other != cob) {
                // If the queue is full, the kind's check interval finds the change later.
                let _ = drifts.try_send(other);
            }
        };
        move |ended| match ended {
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
    }

    /// A transition in a separate process.
    fn apart(&self, tools: &Tools, context: &Context, (call, grace): (&Call, Duration)) -> Work<Outcome> {
        let (timeout, moved) = (call.timeout(), self.moved(tools, &context.cob.id));
        let command = match tools.call(ACT_KIND, call) {
            Ok(command) => command,
            Err(why) => return Work::known(Outcome::failed(why)),
        };
        let read = move |result: JobResult| {
            moved(match result.exit {
                Exit::Lost => Err(Outcome::Lost),
                Exit::Cancelled => Err(Outcome::Cancelled),
                Exit::Exited(_) | Exit::Signal(_) | Exit::TimedOut | Exit::SpawnFailed(_) => {
                    answer(&result, timeout).map_err(|reason| Outcome::Failed { reason })
                }
            })
        };
        Work::process(command, timeout, grace, read)
    }

    /// The call of a transition, and the grace of its process.
    fn transition_call(&self, context: &Context, attempt: &TransitionAttempt) -> Result<(Call, Duration), Outcome> {
        let Some(transition) = context.transition(attempt) else {
            return Err(Outcome::failed(format!("its kind has no transition {} -> {}", attempt.from, attempt.to)));
        };
        let call = self.call(context, Some(attempt), Duration::from_millis(transition.timeout_ms));
        Ok((call, Duration::from_millis(transition.grace_ms)))
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

    fn checks_in_turn(&self) -> bool {
        self.native.is_short()
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let (timeout, kind) = (context.check_timeout(), context.kind.clone());
        let call = self.call(context, None, timeout);
        if self.is_inside(tools, context) {
            let unknown = |why: String| CheckOutcome::unknown(format!("check: {why}"));
            return self
                .inside(tools, context, (Does::Look, call), unknown, move |answer| Self::checked(&kind, answer));
        }
        let command = match tools.call(ACT_KIND, &call) {
            Ok(command) => command,
            Err(why) => return Work::known(CheckOutcome::unknown(why)),
        };
        let read = move |result: JobResult| {
            let checked = Self::checked(&kind, answer(&result, timeout).unwrap_or_else(Answer::Failed));
            match checked.state {
                Ok(_) => checked,
                Err(_) => CheckOutcome { difference: result.last_lines, ..checked },
            }
        };
        // A check does not change the host, so it needs no time to clean up.
        Work::process(command, timeout, Duration::from_secs(1), read)
    }

    fn transition(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        match self.transition_call(context, attempt) {
            Err(outcome) => Work::known(outcome),
            Ok((call, _)) if self.is_inside(tools, context) => {
                let moved = self.moved(tools, &context.cob.id);
                self.inside(tools, context, (Does::Wait, call), Outcome::failed, move |answer| moved(Ok(answer)))
            }
            Ok((call, grace)) => self.apart(tools, context, (&call, grace)),
        }
    }

    fn adopted(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        match self.transition_call(context, attempt) {
            Err(outcome) => Work::known(outcome),
            Ok((call, grace)) => self.apart(tools, context, (&call, grace)),
        }
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
