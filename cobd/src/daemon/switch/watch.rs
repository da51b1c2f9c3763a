//! Supervision of the switch: it settles, is rolled back, stops, or continues to the next generation.

use std::collections::BTreeSet;

use cob_engine::event::{Event, Order};
use cob_engine::guard::{GuardTimer, Heard, Judgement};
use cob_engine::no_exit_state::{Lasting, NoExitCheck};
use cob_engine::switch::{Act, Current, Failing, SETTLED_AFTER, Stage, SwitchRecord, Withdrawal};
use cob_engine::{Time, time::Span};
use cob_types::status::IN_CONFLICT;
use cob_types::words::count;
use cob_types::{CobId, HostName};
use tracing::{error, info, warn};

use super::{Aim, NO_ROLLBACK_TARGET, Start, short};
use crate::daemon::Daemon;
use crate::generations::Wanted;

/// How often a guard is checked.
const LOOK: Span = Span::millis(500);
/// After this time in a rollback, grants to unreachable hosts are invalidated; after half the guard, if that is less.
const CUT_OFF: Span = Span::secs(7);

impl Daemon {
    /// Continues the switch of an earlier incarnation.
    pub(in crate::daemon) fn take_up_switch(&mut self) {
        let guard = self.switch.state.current.as_ref().and_then(|c| c.guard);
        if let Some(guard) = guard {
            let guard = guard.restarted();
            self.note_switch(SwitchRecord::Guarded(guard), None);
            self.switch.guard = Some(GuardTimer::new(guard, self.clock.now()));
        }
        if let Some((cob, at)) = self.switch.failed_before.take() {
            self.cob_failed(&cob, at);
        }
        self.suspect_all();
        self.look_after_switch();
    }

    /// Reports failures in the present switch whose records are not repeated: from an earlier incarnation, or from
    /// before a change of the policy.
    pub(super) fn suspect_all(&mut self) {
        let Some(current) = &self.switch.state.current else { return };
        self.switch.failed.extend(self.engine.failed_since(current.at));
        self.switch.no_exit_states.suspect(self.engine.without_exit_state(current.at));
    }

    /// Performs the next step of the switch at the end of a tick.
    pub(in crate::daemon) fn look_after_switch(&mut self) {
        let now = self.clock.now();
        if self.is_converged() {
            self.switch.converged.get_or_insert(now);
        } else {
            self.switch.converged = None;
        }
        self.reopen();
        self.hear_of_the_turn();
        self.check_no_exit_states(now);
        self.look_at_guard(now);
        self.invalidate_overdue(now);
        self.follow_told(now);
        self.look_at_windows(now);
        if self.switch.tell_rest <= now {
            self.tell_all_of_switch();
        }
        self.switch.due = self.next_look(now);
        // First the generation that was activated in this tick is made ready.
        if self.turn.effects.activated {
            self.switch.due = now;
            return;
        }
        match self.switch.state.next(self.seen()) {
            Some(Act::Settle) => {
                info!(generation = %self.engine.generation(), "settled");
                self.note_switch(SwitchRecord::Settled, None);
            }
            Some(Act::GoBack { left, to }) => self.get(self.way_named(left, to), Start::Return { left }),
            // A cancelled switch is paused at its present step.
            Some(Act::GoOn(_)) if self.engine.cancelled().is_some() => {}
            Some(Act::GoOn(goal)) => self.get(goal.into(), Start::Onward),
            Some(Act::Guard(guard)) => {
                self.note_switch(SwitchRecord::Guarded(guard), None);
                self.switch.guard = Some(GuardTimer::new(guard, now));
                self.switch.due = now;
                self.neighbours.look_by(now);
            }
            None => {}
        }
    }

    /// If a host that is still under way has sent a request that makes this host move, this host is under way again.
    fn reopen(&mut self) {
        let Some(by) = self.switch.asked_by.take() else { return };
        if self.switch.converged.is_none() {
            info!(%by, "a host that has not converged needs a transition: the switch continues");
            self.note_switch(SwitchRecord::Reopened { by }, None);
        }
    }

    fn get(&mut self, wanted: Wanted, start: Start) {
        let generation = wanted.generation;
        let now = self.clock.now();
        let rests = self.switch.again.is_some_and(|(which, at)| which == generation && at > now);
        if self.switch.fetching != Some(generation) && !rests {
            self.switch.fetching = Some(generation);
            self.fetch(wanted, Aim::Go(start), None);
        }
    }

    fn next_look(&self, now: Time) -> Time {
        let looks = self.switch.guard.is_some() || self.switch.cut_off.is_some();
        let guard = if looks { now + LOOK } else { Time::NEVER };
        let told = self.switch.told.due();
        let again = self.switch.again.map_or(Time::NEVER, |(_, at)| if at > now { at } else { Time::NEVER });
        let settles =
            self.switch.converged.filter(|_| self.switch.is_open()).map_or(Time::NEVER, |at| at + SETTLED_AFTER);
        let no_exit = self.switch.no_exit_states.due();
        let windows = self.switch.windows.due(self.switch.state.waiting.as_deref());
        told.min(windows).min(guard).min(again).min(self.switch.tell_rest).min(no_exit).min(if settles > now {
            settles
        } else {
            Time::NEVER
        })
    }

    /// Handles failures and irreversible transitions of the tick.
    fn hear_of_the_turn(&mut self) {
        let failed = std::mem::take(&mut self.switch.failed);
        let made = std::mem::take(&mut self.switch.made);
        if self.switch.state.current.as_ref().is_none_or(|c| c.stage != Stage::UnderWay) {
            return;
        }
        let now = self.clock.now();
        for (cob, from, to) in made {
            let kind = self.present.kind_of(&cob);
            let transition = kind.and_then(|kind| kind.transitions.iter().find(|t| t.from == from && t.to == to));
            if transition.is_some_and(|t| t.irreversible) {
                self.note_switch(SwitchRecord::Made { cob, from, to }, None);
            }
        }
        for cob in failed {
            if self.engine.status_of(&cob, now).is_some_and(|status| status.failed) {
                self.cob_failed(&cob, now);
            }
        }
    }

    /// Under the policy `rollback`, a lasting dead end is a failure.
    fn check_no_exit_states(&mut self, now: Time) {
        if self.switch.state.on_failure(now) != Failing::Withdraw {
            return self.switch.no_exit_states.forget();
        }
        let Self { engine, switch, .. } = self;
        let checked = |cob: &CobId| engine.check_of(cob).is_some();
        let stands = |cob: &CobId| match engine.has_no_exit_state(cob) {
            true => NoExitCheck::InOne,
            false if engine.is_known(cob) => NoExitCheck::Elsewhere,
            false => NoExitCheck::Unknown,
        };
        let Lasting { look, failed } = switch.no_exit_states.look(now, stands, checked);
        let failed = failed.first().and_then(|cob| engine.status_of(cob, now));
        for cob in look {
            self.feed(Event::CheckWanted(cob));
        }
        let Some(cob) = failed else { return };
        let (Some(state), Some(target)) = (&cob.state, &cob.target) else { return };
        self.withdraw_by_policy(match cob.is_in_conflict() {
            true => format!("{} {IN_CONFLICT}", cob.id),
            false => format!("{} is {state}, and no transition leads to {target} from there", cob.id),
        });
    }

    /// The state before a departed change object can't be restored: a failure of the switch in which it departed.
    pub(in crate::daemon) fn departure_failed(&mut self, why: String) {
        if self.switch.state.current.as_ref().is_some_and(|c| c.stage == Stage::UnderWay) {
            let now = self.clock.now();
            self.has_failed(self.switch.state.on_failure(now), why);
        }
    }

    fn cob_failed(&mut self, cob: &CobId, at: Time) {
        let failing = self.switch.state.on_failure(at);
        let why = match self.engine.status_of(cob, self.clock.now()).and_then(|status| status.action) {
            Some(action) => match (&action.from, &action.to) {
                (Some(from), Some(to)) => format!("{cob} failed to go from {from} to {to}: {}", action.error),
                _ => format!("{cob} can't be checked: {}", action.error),
            },
            None => format!("{cob} failed"),
        };
        self.has_failed(failing, why);
    }

    fn has_failed(&mut self, failing: Failing, why: String) {
        match failing {
            Failing::Hold => {}
            Failing::Stop => {
                error!(why, "the rollback has stopped");
                self.note_switch(SwitchRecord::Stopped { why: short(why) }, None);
            }
            Failing::Withdraw => self.withdraw_by_policy(why),
        }
    }

    /// Rolls back the present generation, if there is a rollback target.
    fn withdraw_by_policy(&mut self, why: String) {
        let Some(left) = self.current_goal() else { return };
        match self.rollback_target(left) {
            Some(to) => self.withdraw(left, Withdrawal { to, why, ..Withdrawal::default() }, None),
            None => {
                error!(generation = %left, why, "it names {NO_ROLLBACK_TARGET}: it can't be rolled back");
                let why = format!("{why}; generation {left} names {NO_ROLLBACK_TARGET}");
                self.note_switch(SwitchRecord::Stopped { why: short(why) }, None);
            }
        }
    }

    fn look_at_guard(&mut self, now: Time) {
        let Some(mut watch) = self.switch.guard.take() else { return };
        let required = self.required();
        let heard: Vec<Heard> = required.iter().map(|host| self.heard(host)).collect();
        let converged = self.is_converged();
        match watch.look(&heard, converged, now) {
            Judgement::Wait => self.switch.guard = Some(watch),
            Judgement::Note(guard) => {
                self.note_switch(SwitchRecord::Guarded(guard), None);
                self.switch.guard = Some(watch);
            }
            Judgement::Confirmed => {
                info!("the guard is satisfied: all required hosts are reached");
                self.note_switch(SwitchRecord::Confirmed, None);
            }
            Judgement::Lost(_) => {
                // This record keeps the permission to invalidate grants, also after a restart.
                self.note_switch(SwitchRecord::Guarded(watch.guard().fired()), None);
                let lost: Vec<_> = self.unreached(&required, now);
                let of = count(required.len(), "host");
                let lost: Vec<&str> = lost.iter().map(HostName::as_str).collect();
                self.withdraw_by_policy(format!("the guard: not reached of {of}: {}", lost.join(", ")));
            }
        }
    }

    /// During a rollback that this host's guard began: recalled grants of unreachable hosts are invalidated. Otherwise
    /// this host could never leave a state that they *require*, and so never restore the network.
    fn invalidate_overdue(&mut self, now: Time) {
        let returns = |c: &&Current| c.left.is_some() && c.stage == Stage::UnderWay && !c.peers.is_empty();
        let Some(current) = self.switch.state.current.as_ref().filter(returns) else {
            self.switch.cut_off = None;
            return;
        };
        let peers: Vec<HostName> = current.peers.iter().cloned().collect();
        let lost: BTreeSet<HostName> = self.unreached(&peers, now).into_iter().collect();
        if lost.is_empty() {
            self.switch.cut_off = None;
            return;
        }
        // Links need a moment to come up after a start, and the rollback may restore them.
        let pause = current.terms.policy.guard_ms.map_or(CUT_OFF, |ms| CUT_OFF.min(Span::millis(ms / 2)));
        let since = *self.switch.cut_off.get_or_insert(now);
        if now >= since + pause && lost.iter().any(|host| self.engine.recalls_from(host)) {
            let hosts: Vec<&str> = lost.iter().map(HostName::as_str).collect();
            warn!(hosts = hosts.join(", "), "not reachable: the recalled grants of these hosts are invalidated");
            self.feed(Event::Order(Order::InvalidateGrants(lost)));
        }
    }

    /// The hosts that the guard requires: they answered before, and are in the generation.
    pub(super) fn required(&self) -> Vec<HostName> {
        let (Some(current), Some(active)) = (&self.switch.state.current, self.present.manifest()) else {
            return Vec::new();
        };
        let hosts = &active.hosts;
        current.peers.iter().filter(|host| hosts.contains_key(*host)).cloned().collect()
    }

    fn heard(&self, host: &HostName) -> Heard {
        let at = self.neighbours.links().heard(host);
        Heard { up: at.is_some(), at: at.map_or(Time(0), |at| self.clock.at(at)) }
    }

    pub(super) fn unreached(&self, required: &[HostName], now: Time) -> Vec<HostName> {
        let silent = |h: Heard| !h.up || now.0.saturating_sub(h.at.0) > Span::secs(7).0;
        required.iter().filter(|host| silent(self.heard(host))).cloned().collect()
    }

    /// The hosts from which a message must arrive soon.
    pub(in crate::daemon) fn guarded_hosts(&self) -> Vec<HostName> {
        if self.switch.guard.is_some() { self.required() } else { Vec::new() }
    }
}
