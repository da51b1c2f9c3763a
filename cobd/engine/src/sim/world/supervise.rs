//! The supervision of a switch on every host, as the daemon does it: the switch settles, and a failure rolls it back.
//!
//! [`Switching`] derives each step; this module performs it in the simulated cluster. The connectivity guard and
//! maintenance windows are left out: all hosts get the order at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_types::message::Withdrawn;
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::{Batch, Bundle, CobId, GenerationNumber, HostName, Item, Packed, SwitchOrder};

use super::{Incident, World};
use crate::event::Event;
use crate::no_exit_state::{NoExitCheck, NoExitStates};
use crate::record::{Body, Record};
use crate::sim::switching::Command;
use crate::switch::{Act, Failing, SETTLED_AFTER, Seen, Stage, SwitchRecord, Switching, Terms, Withdrawal};
use crate::time::Time;

/// The data that all hosts share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Supervision {
    /// The rollback target; `None`: there is no usable target.
    back: Option<GenerationNumber>,
}

/// A switch with all that a rollback needs.
#[derive(Debug, Clone)]
pub struct SupervisedSwitch {
    /// The order of the switch.
    pub order: SwitchOrder,
    /// The bundles of its target.
    pub bundles: BTreeMap<HostName, Arc<Bundle>>,
    /// The reaction to a failure.
    pub on_failure: OnFailure,
    /// The order of the rollback, and the bundles of its target.
    pub back: Option<(SwitchOrder, BTreeMap<HostName, Arc<Bundle>>)>,
}

/// The switch of a host in the present incarnation of its daemon.
#[derive(Debug, Clone, Default)]
pub(super) struct HostSwitch {
    pub(super) state: Switching,
    /// Since when it has been converged without a break.
    converged: Option<Time>,
    /// Change objects that may have failed in this tick.
    failed: Vec<CobId>,
    /// A host that has sent a request, in the switch in which this host has settled.
    asked_by: Option<HostName>,
    no_exit_states: NoExitStates,
    /// The next look.
    due: Option<Time>,
}

impl HostSwitch {
    fn hear(&mut self, record: &Record) {
        if self.state.on_failure(record.at) == Failing::Withdraw {
            self.no_exit_states.hear(record);
        }
        self.failed.extend(record.body.may_have_failed().cloned());
    }
}

impl World {
    /// Orders a supervised switch on every host.
    pub fn switch_supervised(&mut self, switch: &SupervisedSwitch) {
        let SupervisedSwitch { order, bundles, on_failure, back } = switch;
        let to = back.as_ref().map(|(order, _)| order.to);
        self.supervision = Some(Supervision { back: to });
        if let Some((order, bundles)) = back {
            self.orders.add(order);
            for (name, bundle) in bundles {
                let Some(host) = self.host_ix.get(name).copied() else { continue };
                let h = &mut self.hosts[host];
                h.packed.entry(order.to).or_insert_with(|| Arc::new(Packed::decoded(bundle)));
                h.bundles.entry(order.to).or_insert_with(|| bundle.clone());
            }
        }
        let terms = Terms { policy: SwitchPolicy { on_failure: *on_failure, guard_ms: None }, round: 0, alone: false };
        for host in 0..self.hosts.len() {
            let h = &mut self.hosts[host];
            let stuck = h.engine.as_ref().map(|engine| engine.without_exit_state(Time(0)).collect());
            h.switch.no_exit_states.begin(stuck.unwrap_or_default());
            let begun =
                SwitchRecord::Begun { from: order.from, to: order.to, left: None, terms, peers: BTreeSet::new() };
            self.note_switch(host, begun);
        }
        self.switch(order, bundles, false);
    }

    /// The knowledge of a host about its switch.
    #[must_use]
    pub fn switching_of(&self, host: &HostName) -> Option<&Switching> {
        Some(&self.hosts[*self.host_ix.get(host)?].switch.state)
    }

    /// Collects results of transitions; they are judged at the end of the tick.
    pub(super) fn hear_record(&mut self, host: usize, record: &Record) {
        if self.supervision.is_some() {
            self.hosts[host].switch.hear(record);
        }
    }

    fn note_switch(&mut self, host: usize, step: SwitchRecord) {
        let Some(engine) = &self.hosts[host].engine else { return };
        let (lamport, generation) = (engine.lamport(), engine.generation());
        self.hosts[host].switch.state.apply(&step, self.now);
        let record = Record { at: self.now, lamport, generation, body: Body::Switch(step), by: None };
        self.persist(host, vec![record]);
    }

    /// Handles the announcements of a batch, and the switch that its sender is in.
    pub(super) fn hear_of_switch(&mut self, host: usize, batch: &mut Batch) {
        if self.supervision.is_none() || self.hosts[host].engine.is_none() {
            return;
        }
        let state = &self.hosts[host].switch.state;
        if let Some(switch) = batch.under_way {
            let unaware = switch.left.is_none() && state.is_rolling_back_from(switch.to, switch.round);
            if state.has_settled_in(switch) && batch.items.iter().any(Item::may_move) {
                self.hosts[host].switch.asked_by = Some(batch.from.clone());
            }
            if unaware {
                batch.items.retain(|item| !matches!(item, Item::Request(_)));
            }
        }
        for item in &batch.items {
            let Item::Withdrawn(Withdrawn { generation, to, round, ordered, why, .. }) = item else { continue };
            if self.hosts[host].switch.state.follows(*generation, *round, *ordered) {
                let (round, why) = (*round, why.clone());
                let withdrawal = Withdrawal { to: *to, round, why, heard: true, ..Withdrawal::default() };
                self.note_switch(host, SwitchRecord::Withdrawn(*generation, withdrawal));
            }
        }
    }

    /// Performs the next step of the switch at the end of a tick.
    pub(super) fn look_after_switch(&mut self, host: usize) {
        if self.supervision.is_none() || self.hosts[host].switch.state.current.is_none() {
            return;
        }
        let now = self.now;
        let h = &mut self.hosts[host];
        h.switch.due = h.switch.due.filter(|due| *due > now);
        let Some(engine) = &h.engine else { return };
        let is_converged = engine.is_converged();
        let since = is_converged.then(|| h.switch.converged.unwrap_or(now));
        h.switch.converged = since;
        if let Some(by) = h.switch.asked_by.take()
            && since.is_none()
        {
            self.note_switch(host, SwitchRecord::Reopened { by });
        }
        self.judge_failures(host);
        self.check_no_exit_states(host);
        let h = &self.hosts[host];
        let Some(engine) = &h.engine else { return };
        let settles = since.map(|since| since + SETTLED_AFTER);
        let (active, going) = (engine.generation(), engine.pending_generation());
        let seen = Seen { active, going, converged: settles.is_some_and(|at| at <= now) };
        match h.switch.state.next(seen) {
            Some(Act::Settle) => self.note_switch(host, SwitchRecord::Settled),
            Some(Act::GoBack { left, to }) => self.go_back(host, left, to),
            Some(Act::GoOn(_) | Act::Guard(_)) | None => {}
        }
        let switch = &self.hosts[host].switch;
        let is_open = switch.state.current.as_ref().is_some_and(|c| c.stage != Stage::Settled);
        let settles = settles.filter(|at| *at > now && is_open);
        let due = settles.into_iter().chain([switch.no_exit_states.due()]).min().filter(|at| *at < Time::NEVER);
        if let Some(at) = due.map(|at| at.max(now))
            && switch.due.is_none_or(|due| at < due)
        {
            self.hosts[host].switch.due = Some(at);
            self.push(at, Incident::Supervise { host });
        }
    }

    fn judge_failures(&mut self, host: usize) {
        let failed = std::mem::take(&mut self.hosts[host].switch.failed);
        for cob in failed {
            let h = &self.hosts[host];
            let is_open = h.switch.state.current.as_ref().is_some_and(|c| c.stage == Stage::UnderWay);
            let status = h.engine.as_ref().and_then(|engine| engine.status_of(&cob, self.now));
            let Some(status) = status.filter(|status| status.failed && is_open) else { continue };
            let why = match status.action.map(|action| (action.from, action.to)) {
                Some((Some(from), Some(to))) => format!("{cob} failed to go from {from} to {to}"),
                Some(_) | None => format!("{cob} failed"),
            };
            self.has_failed(host, why);
        }
    }

    fn has_failed(&mut self, host: usize, why: String) {
        let state = &self.hosts[host].switch.state;
        let left = state.current.as_ref().map(|c| c.to).unwrap_or_default();
        let back = self.supervision.and_then(|supervision| supervision.back);
        match (state.on_failure(self.now), back) {
            (Failing::Hold, _) => {}
            (Failing::Withdraw, Some(to)) => {
                let round = state.current.as_ref().map_or(0, |c| c.terms.round);
                let withdrawal = Withdrawal { to, round, why, ..Withdrawal::default() };
                self.note_switch(host, SwitchRecord::Withdrawn(left, withdrawal));
            }
            (Failing::Withdraw, None) => {
                let why = format!("{why}; generation {left} names no usable rollback target");
                self.note_switch(host, SwitchRecord::Stopped { why });
            }
            (Failing::Stop, _) => self.note_switch(host, SwitchRecord::Stopped { why }),
        }
    }

    /// Under the policy `rollback`, a lasting dead end is a failure.
    fn check_no_exit_states(&mut self, host: usize) {
        let now = self.now;
        let h = &mut self.hosts[host];
        let Some(engine) = &h.engine else { return };
        if h.switch.state.on_failure(now) != Failing::Withdraw {
            return h.switch.no_exit_states.forget();
        }
        let stands = |cob: &CobId| match engine.has_no_exit_state(cob) {
            true => NoExitCheck::InOne,
            false if engine.is_known(cob) => NoExitCheck::Elsewhere,
            false => NoExitCheck::Unknown,
        };
        let lasting = h.switch.no_exit_states.look(now, stands, |cob| engine.check_of(cob).is_some());
        let status = lasting.failed.first().and_then(|cob| engine.status_of(cob, now));
        for cob in lasting.look {
            self.event(host, Event::CheckWanted(cob));
        }
        if let Some(cob) = status
            && let (Some(state), Some(target)) = (&cob.state, &cob.target)
        {
            self.has_failed(host, format!("{} is {state}, and no transition leads to {target} from there", cob.id));
        }
    }

    fn go_back(&mut self, host: usize, left: GenerationNumber, to: GenerationNumber) {
        let h = &self.hosts[host];
        let terms = h.switch.state.current.as_ref().map(|c| c.terms).unwrap_or_default();
        let begun = SwitchRecord::Begun { from: h.active(), to, left: Some(left), terms, peers: BTreeSet::new() };
        self.note_switch(host, begun);
        self.line(|w| format!("{} rolls back to {to}", w.hosts[host].name));
        let others: Vec<usize> = (0..self.hosts.len()).filter(|other| *other != host).collect();
        others.into_iter().for_each(|other| self.announce_rollback(host, other));
        self.hosts[host].commands.push_back(Command { to, back: true });
        self.deep = false;
        self.give_commands(host);
    }

    /// Announces the rollback of a host, if there is one: at its start, and when a link is up again.
    fn announce_rollback(&mut self, host: usize, to: usize) {
        let h = &self.hosts[host];
        let Some((generation, withdrawal)) = h.switch.state.returned().filter(|_| h.engine.is_some()) else { return };
        let Withdrawal { to: target, round, why, .. } = withdrawal.clone();
        let item = Withdrawn { generation, to: target, round, ordered: false, why, manifest: None, cancelled: false };
        let receiver = self.hosts[to].name.clone();
        self.send(host, vec![(receiver, Item::Withdrawn(item))]);
    }

    /// Takes up the switch after a restart of the daemon.
    pub(super) fn take_up_switch(&mut self, host: usize) {
        if self.supervision.is_none() {
            return;
        }
        let h = &mut self.hosts[host];
        h.switch = HostSwitch { state: h.durable.switching.clone(), ..HostSwitch::default() };
        if let (Some(current), Some(engine)) = (&h.switch.state.current, &h.engine) {
            h.switch.failed.extend(engine.failed_since(current.at));
            h.switch.no_exit_states.suspect(engine.without_exit_state(current.at));
        }
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            self.announce_rollback(host, other);
            self.announce_rollback(other, host);
        }
        self.look_after_switch(host);
    }
}
