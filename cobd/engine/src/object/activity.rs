//! Checks and actions: the running job of a change object, and the meaning of its result.

use std::sync::Arc;

use cob_types::Number;
use cob_types::cob::Fingerprint;
use cob_types::message::Values;

use crate::effect::Run;
use crate::event::{ActionOutcome, CheckOutcome};
use crate::names::StateId;
use crate::object::{Cx, LastAction, Object, Trouble, shared};
use crate::record::{Begun, Body};
use crate::spec::{Spec, StateIx};
use crate::time::{Span, Time};

/// The running job.
#[derive(Debug, Clone)]
pub(crate) enum Activity {
    /// No job.
    Idle,
    /// A check.
    Checking { job: Number },
    /// A transition of the kind.
    Acting(Action),
}

/// A running action.
#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub(crate) job: Number,
    pub(crate) transition: u16,
    /// A previous generation started it, in an earlier incarnation, under other needs.
    pub(crate) outlived: bool,
    /// A grant under which it runs was invalidated: check the change object when it has ended.
    pub(crate) suspect: bool,
    /// Adopted when it has ended.
    pub(crate) next_spec: Option<Arc<Spec>>,
}

impl Action {
    pub(crate) fn new(job: Number, transition: u16) -> Self {
        Self { job, transition, outlived: false, suspect: false, next_spec: None }
    }
}

/// The findings of a check besides the state.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    /// The state differs from the known state.
    drift: bool,
    /// The check could not determine the state, which was known before.
    unclear: bool,
    /// Failed attempts of long ago no longer count.
    renewed: bool,
}

/// The delay before a check without a result is repeated; doubles.
const CHECK_RETRY: Span = Span::secs(1);
const CHECK_RETRY_CAP: Span = Span::secs(60);
/// A change object that was in its own target state for this time is no longer judged by earlier attempts.
const STAYED: Span = Span::secs(60);
/// After this number of consecutive checks without a result, the change object is shown as failed.
pub(crate) const CHECKS_UNTIL_FAILED: u32 = 3;
const RETRY_CAP: Span = Span::secs(60);
/// The default check interval of an observed change object: other programs move it without a message.
const OBSERVE_EVERY: Span = Span::secs(60);

impl Object {
    pub(crate) fn start_check(&mut self, cx: &mut Cx<'_>) {
        let job = cx.number();
        self.activity = Activity::Checking { job };
        self.check_at = Time::NEVER;
        if self.state_on_record().is_none() {
            self.since = cx.now;
        }
        cx.out.run(Run::Check { cob: cx.names.cob_id(self.me).clone(), job });
    }

    /// Starts the periodic check when it is due. The state stays known meanwhile; only transitions wait.
    pub(crate) fn watch_drift(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.activity, Activity::Idle) {
            return;
        }
        if self.check_at <= cx.now {
            self.start_check(cx);
        } else if self.check_at == Time::NEVER
            && let Some(every) = self.spec.kind.recheck.or(self.spec.observe.then_some(OBSERVE_EVERY))
        {
            self.check_at = cx.now + every;
        }
    }

    pub(crate) fn check_ended(&mut self, cx: &mut Cx<'_>, job: Number, found: CheckOutcome) {
        if !matches!(self.activity, Activity::Checking { job: mine } if mine == job) {
            return;
        }
        self.activity = Activity::Idle;
        let known = |name| cx.names.find_state(name).and_then(|s| self.spec.kind.ix(s));
        match found {
            CheckOutcome::Found { state, values, detail, fresh } => match known(&state) {
                Some(ix) => {
                    if fresh && ix == self.spec.preferred {
                        self.rested_on = self.spec.rests_on;
                    }
                    self.found(cx, ix, values, detail);
                }
                None => self.check_failed(cx, format!("the check found {state}, which is no state of its kind")),
            },
            CheckOutcome::Failed(reason) => self.check_failed(cx, reason),
        }
        self.changed();
    }

    fn found(&mut self, cx: &mut Cx<'_>, found: StateIx, values: Values, detail: String) {
        let was_unclear = self.troubles.check_failures > 0;
        self.trouble(|t| (t.check_failures, t.check_error) = (0, None));
        let state = self.judge_content(found);
        let before = self.state_on_record();
        (self.state, self.recorded) = (before, None);
        let drift = before.is_some_and(|b| b != state);
        // It had failed, but its attempts have led to the target state all the same. The next failure is the last
        // again.
        let lifted = self.failed && self.last.as_ref().is_some_and(|last| last.to == state);
        if lifted {
            self.failed = false;
            let retries = self.retries_of_last();
            self.trouble(|t| t.failures = t.failures.min(retries));
        }
        // A change this long after the attempts is unrelated.
        let stayed = before == Some(self.own_target()) && cx.now >= self.since + STAYED;
        let renewed = drift && stayed && !self.failed && self.troubles.failures > 0;
        if renewed {
            self.trouble(|t| (t.failures, t.retry_at) = (0, Time(0)));
        }
        // A check without exported values keeps the values that the action exported, as long as the state lasts.
        if before == Some(state) && (values.is_empty() || *self.values == values) {
            if lifted || was_unclear {
                self.trouble(Trouble::forget_old_errors);
                self.record_check(cx, Found::default(), detail);
            }
            return;
        }
        if before != Some(state) {
            self.since = cx.now;
        }
        self.state = Some(state);
        self.values = shared(values);
        self.trouble(Trouble::forget_old_errors);
        self.record_check(cx, Found { drift, renewed, ..Found::default() }, detail);
        // After an activation the check is expected to find the old content: an ordinary recall follows.
        if Some(state) != self.spec.kind.outdated || drift {
            self.inform_holders(cx);
        }
    }

    /// Converts the preferred state to outdated if its dependencies differ from the dependencies that it started with.
    fn judge_content(&mut self, found: StateIx) -> StateIx {
        let spec = &self.spec;
        if found == spec.kind.pre_remove {
            // No part is left that could depend on other change objects.
            self.rested_on = spec.rests_on;
            return found;
        }
        if found != spec.preferred {
            // A program that starts an observed change object again starts it with the dependencies present then.
            self.rested_on = self.rested_on.filter(|_| !spec.observe);
            return found;
        }
        match (self.rested_on, spec.kind.outdated) {
            (Some(was), Some(outdated)) if spec.rests_on.unwrap_or(Fingerprint::NOTHING) != was => outdated,
            (Some(_) | None, Some(_) | None) => {
                self.rested_on = spec.rests_on;
                found
            }
        }
    }

    fn check_failed(&mut self, cx: &mut Cx<'_>, reason: String) {
        let times = self.troubles.check_failures;
        self.check_at = cx.now + CHECK_RETRY.doubled(times.min(16), CHECK_RETRY_CAP);
        self.trouble(|t| (t.check_failures, t.check_error) = (times.saturating_add(1), Some(reason.clone().into())));
        // A recheck without a result does not clear the known state.
        let unclear = self.state_on_record().is_some();
        self.record_check(cx, Found { unclear, ..Found::default() }, reason);
    }

    fn record_check(&self, cx: &mut Cx<'_>, found: Found, detail: String) {
        let Found { drift, unclear, renewed } = found;
        cx.record(Body::Checked {
            cob: cx.names.cob_id(self.me).clone(),
            state: self.state_on_record().map(|s| cx.names.state_name(self.spec.kind.id(s)).clone()),
            drift,
            failed: self.failed,
            values: self.values.as_ref().clone(),
            rests_on: self.rested_on,
            detail,
            unclear,
            renewed,
        });
    }

    pub(crate) fn start_action(&mut self, cx: &mut Cx<'_>, transition: u16) {
        let job = cx.number();
        let (from, to) = self.ends(transition);
        let attempt = self.troubles.failures + 1;
        let cob = cx.names.cob_id(self.me).clone();
        let locks = self.locks_of_transition(cx, transition);
        let imports = locks.iter().map(|l| (l.cob.clone(), l.state.clone(), l.values.clone())).collect();
        let (from_name, to_name) = (cx.names.state_name(from.1).clone(), cx.names.state_name(to.1).clone());
        let begun = Begun {
            job,
            from: from_name.clone(),
            to: to_name.clone(),
            attempt,
            process: self.spec.kind.process,
            locks,
            token: self.token_held(cx.names).map(Box::new),
            generation: cx.generation,
        };
        self.token_out.clone_from(&begun.token);
        cx.record(Body::Begun { cob: cob.clone(), begun });
        cx.out.run(Run::Action { cob, job, from: from_name, to: to_name, attempt, imports });
        self.activity = Activity::Acting(Action::new(job, transition));
        self.last = Some(LastAction { from: from.0, to: to.0, attempt, since: cx.now });
        self.since = cx.now;
        self.resend.stop();
    }

    /// The number of retries that the last action may have.
    fn retries_of_last(&self) -> u32 {
        let Some(last) = &self.last else { return 0 };
        let of = self.spec.kind.transitions.iter().find(|t| t.from == last.from && t.to == last.to);
        of.map_or(0, |t| t.retries)
    }

    fn ends(&self, transition: u16) -> ((StateIx, StateId), (StateIx, StateId)) {
        let kind = &self.spec.kind;
        let t = &kind.transitions[usize::from(transition)];
        ((t.from, kind.id(t.from)), (t.to, kind.id(t.to)))
    }

    pub(crate) fn action_ended(&mut self, cx: &mut Cx<'_>, job: Number, outcome: ActionOutcome, span: (u64, u64)) {
        let Some(Action { transition, suspect, next_spec, .. }) = self.take_action(job) else { return };
        let spec = self.spec.clone();
        let t = &spec.kind.transitions[usize::from(transition)];
        let attempt = self.last.as_ref().map_or(1, |l| l.attempt);
        let mut met_conflict = false;
        let (ok, error) = match outcome {
            ActionOutcome::Done { values } => {
                self.state = Some(t.to);
                self.values = shared(values);
                self.applied = Some(spec.fingerprint);
                self.rested_on = spec.rests_on;
                self.trouble(|t| *t = Trouble::default());
                self.livelock.acted();
                (Some(true), String::new())
            }
            ActionOutcome::Failed { error, conflict } => {
                met_conflict = conflict;
                self.state = t.failure;
                self.values = shared(Values::new());
                let before = self.troubles.failures;
                let failures = before.saturating_add(1);
                self.failed = failures > t.retries;
                let delay = t.retry_delay.doubled(before.min(16), RETRY_CAP);
                let retry_at = if self.failed { Time(0) } else { cx.now + self.jittered(cx, failures, delay) };
                self.trouble(|t| *t = Trouble { failures, retry_at, ..Trouble::default() });
                (Some(false), error)
            }
            ActionOutcome::Cancelled => {
                self.state = t.failure;
                self.values = shared(Values::new());
                let why = if next_spec.is_some() { "its content has changed" } else { "the switch was cancelled" };
                (Some(false), format!("ended before its time: {why}"))
            }
            ActionOutcome::Lost => {
                self.state = None;
                self.values = shared(Values::new());
                (None, "it left no result: its runner was killed, or the host died, while it ran".to_owned())
            }
        };
        if ok != Some(true) {
            self.trouble(|t| (t.error, t.conflict) = (Some(error.as_str().into()), met_conflict));
        }
        self.trouble(|t| (t.check_failures, t.check_error) = (0, None));
        if suspect {
            self.state = None;
        }
        let span = within(self.since, cx.now, span);
        self.since = cx.now;
        self.check_at = if self.state.is_none() { Time(0) } else { Time::NEVER };
        if next_spec.is_some() {
            // The previous generation's attempt failed: in this generation it starts anew.
            self.failed = false;
            self.trouble(|t| (t.failures, t.retry_at) = (0, Time(0)));
        }
        if self.is_back() && !self.failed {
            self.token_out = None;
        }
        let ((_, from), (_, to)) = self.ends(transition);
        cx.record(Body::Ended {
            cob: cx.names.cob_id(self.me).clone(),
            job,
            from: cx.names.state_name(from).clone(),
            to: cx.names.state_name(to).clone(),
            attempt,
            ok,
            state: self.state.map(|s| cx.names.state_name(spec.kind.id(s)).clone()),
            failures: self.troubles.failures,
            failed: self.failed,
            values: self.values.as_ref().clone(),
            applied: self.applied,
            rests_on: self.rested_on,
            span,
            error,
            token: self.token_out.clone(),
            conflict: met_conflict,
        });
        self.changed();
        if let Some(next) = next_spec {
            self.adopt(cx, next);
        }
    }

    /// The running action, if it has this number: it ends.
    fn take_action(&mut self, job: Number) -> Option<Action> {
        self.action().filter(|action| action.job == job)?;
        let ended = std::mem::replace(&mut self.activity, Activity::Idle);
        if let Activity::Acting(action) = ended { Some(action) } else { None }
    }

    /// The running action.
    pub(crate) fn action(&self) -> Option<&Action> {
        if let Activity::Acting(action) = &self.activity { Some(action) } else { None }
    }

    /// The check that is under way, or about to start.
    pub(crate) fn check(&self) -> Option<Number> {
        if let Activity::Checking { job } = self.activity { Some(job) } else { None }
    }

    /// A new generation is active, and changes it or not. A running action ends first.
    pub(crate) fn enter_generation(&mut self, cx: &mut Cx<'_>, spec: Option<Arc<Spec>>) {
        if let Activity::Acting(action) = &mut self.activity {
            action.next_spec = spec.or(action.next_spec.take()).or_else(|| Some(self.spec.clone()));
        } else if let Some(spec) = spec {
            self.adopt(cx, spec);
        } else {
            self.renew();
        }
    }

    /// Checks it at once.
    pub(crate) fn check_now(&mut self, cx: &Cx<'_>) {
        self.check_at = cx.now;
    }

    /// The running action, if its content is not the content of the next generation.
    pub(crate) fn action_with_earlier_content(&self) -> Option<&Action> {
        let action = self.action()?;
        let next = action.next_spec.as_ref()?;
        (next.fingerprint != self.spec.fingerprint).then_some(action)
    }

    /// Varies the delay by up to a fifth, by name and attempt: change objects that fail together retry apart.
    fn jittered(&self, cx: &Cx<'_>, failures: u32, delay: Span) -> Span {
        let seed = cx
            .names
            .cob_id(self.me)
            .as_str()
            .bytes()
            .fold(u64::from(failures), |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        let fifth = delay.0 / 5;
        Span(delay.0 - fifth + (seed >> 16) % (2 * fifth + 1))
    }

    /// Replaces the present spec by another generation's. Not while an action runs.
    fn adopt(&mut self, cx: &mut Cx<'_>, spec: Arc<Spec>) {
        let same_content = self.spec.fingerprint == spec.fingerprint;
        let taken_over = self.spec.observe && !spec.observe;
        // For an observed change object, its start and the dependencies present then are unknown.
        let rests_anew = self.spec.rests_on.is_none() && spec.rests_on.is_some();
        let from_nothing = rests_anew && self.rested_on.is_none() && !self.spec.observe;
        self.spec = spec;
        self.later_needs_granted = false;
        self.renew();
        if taken_over {
            // The present content may be as desired, and still not be made by COB.
            self.check_at = Time(0);
        }
        if same_content {
            return;
        }
        // No decision happens before the check: a pending request that no dependency names any more would be refused.
        while let Some(at) = self.locks.iter().position(|l| l.held.is_none() && !self.may_ask(l)) {
            self.release_lock(cx, at);
        }
        // A check determines the state; a running check is of the old content and does not count.
        self.activity = Activity::Idle;
        (self.state, self.recorded) = (None, None);
        self.last = None;
        self.trouble(|t| (t.check_failures, t.check_error, t.error) = (0, None, None));
        self.check_at = Time(0);
        self.since = cx.now;
        if from_nothing {
            self.rested_on = Some(Fingerprint::NOTHING);
        }
        let cob = cx.names.cob_id(self.me).clone();
        cx.record(Body::Unknown { cob, from_nothing });
    }
}

/// The start and end of an action, limited to the recorded times: when the action was ordered, and when the result
/// arrived. Zero: not known.
fn within(since: Time, now: Time, (began, ended): (u64, u64)) -> (u64, u64) {
    if ended == 0 {
        return (began, ended);
    }
    let took = if began == 0 { 0 } else { ended.saturating_sub(began) };
    let end = ended.max(since.0.saturating_add(took)).min(now.0);
    (if began == 0 { 0 } else { end.saturating_sub(took) }, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_ends_after_it_was_to_be_made_and_before_it_is_heard_of() {
        let within = |span| within(Time(100), Time(200), span);
        assert_eq!(within((110, 150)), (110, 150));
        assert_eq!(within((10, 50)), (100, 140), "a clock that was behind");
        assert_eq!(within((910, 950)), (160, 200), "a clock that was ahead");
        assert_eq!(within((0, 50)), (0, 100), "an unknown time stays unknown");
        assert_eq!(within((0, 0)), (0, 0));
    }
}
