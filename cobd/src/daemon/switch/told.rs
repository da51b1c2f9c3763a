//! What hosts tell each other of a switch, and what people are shown of it.

use cob_engine::Time;
use cob_engine::record::Body;
use cob_engine::switch::{Seen, Stage, SwitchRecord, Terms};
use cob_types::message::{Going, Withdrawn};
use cob_types::status::{MadeMove, SwitchStage, SwitchStatus};
use cob_types::{GenerationNumber, HostName, Item};
use tracing::{info, warn};

use super::{AGAIN, Aim, SETTLED_AFTER, Start, Told, told_withdrawal};
use crate::daemon::Daemon;
use crate::peer::Transport as _;

/// The shortest guard that another host's word may set.
const TOLD_GUARD_MS: u64 = 5000;

impl Daemon {
    /// Tells a host of the switch that this one is in.
    pub(in crate::daemon) fn tell_switch(&mut self, host: &HostName) {
        if let Some(item) = self.switch.stance() {
            self.turn.effects.send.push((host.clone(), item));
        }
    }

    pub(super) fn tell_all_of_switch(&mut self) {
        let linked: Vec<_> = self.links.status().into_iter().filter(|p| p.up).map(|p| p.host).collect();
        linked.iter().for_each(|host| self.tell_switch(host));
    }

    /// What another host says of its switch.
    pub(in crate::daemon) fn heard_of_switch(&mut self, host: &HostName, item: Item) {
        if let Item::Going(going) = item {
            self.heard_going(host, going);
        } else if let Item::Withdrawn(withdrawn) = item {
            self.heard_withdrawn(host, withdrawn);
        }
    }

    fn heard_going(&mut self, host: &HostName, going: Going) {
        let Going { generation, mut policy, round } = going;
        if let Some(withdrawal) = self.switch.state.withdrawn.get(&generation).filter(|w| w.round >= round) {
            let item = told_withdrawal(generation, withdrawal);
            self.turn.effects.send.push((host.clone(), item));
            return;
        }
        let current = self.switch.state.current.as_ref().filter(|c| c.to == generation && c.left.is_none());
        if let Some(current) = current {
            if round > current.terms.round {
                let terms = Terms { round, ..current.terms };
                self.note_switch(SwitchRecord::Reterm(terms), None);
            }
            return;
        }
        let known = self.switch.told.as_ref().is_some_and(|t| t.generation >= generation && t.terms.round >= round);
        if known || !self.goes_when_told(generation, round) {
            return;
        }
        policy.guard_ms = policy.guard_ms.map(|ms| ms.max(TOLD_GUARD_MS));
        info!(%generation, by = %host, "told of a switch");
        let terms = Terms { policy, round, alone: false };
        let told = Told { by: host.clone(), generation, terms, at: Time::NEVER, pause: AGAIN[0] };
        self.switch.told = Some(told);
        self.fetch(generation, Aim::Go(Start::Told), None);
    }

    /// Whether this host goes where another one says that it goes: onward only, and to nothing that was left.
    pub(super) fn goes_when_told(&self, generation: GenerationNumber, round: u32) -> bool {
        let here = self.here().max(self.current_goal().unwrap_or_default());
        let again = self.switch.state.withdrawn.contains_key(&generation);
        self.engine.generation() != GenerationNumber(0)
            && generation > here
            && !self.switch.state.is_withdrawn(generation, round)
            && (again || self.newest().is_ok_and(|newest| generation > newest))
    }

    fn heard_withdrawn(&mut self, host: &HostName, withdrawn: Withdrawn) {
        let Withdrawn { generation, to, round, ordered, why } = withdrawn;
        if !self.switch.state.follows(generation, round, ordered) {
            return;
        }
        if !self.names_way_back(generation, to) {
            warn!(%generation, %to, by = %host, "a withdrawal is not followed: no such way back is named");
            return;
        }
        let why = if why.contains(" (told by ") { why } else { format!("{why} (told by {host})") };
        self.withdraw(generation, to, ordered, why, None);
    }

    /// Where the switch forward that the host is in, or was in last, leads.
    pub(super) fn current_goal(&self) -> Option<GenerationNumber> {
        self.switch.state.current.as_ref().filter(|c| c.left.is_none()).map(|c| c.to)
    }

    pub(super) fn seen(&self) -> Seen {
        let engine = &self.engine;
        let settled = |at: Time| at + SETTLED_AFTER <= self.clock.now();
        let converged = engine.is_converged() && self.switch.converged.is_some_and(settled);
        Seen { active: engine.generation(), going: engine.going_to(), converged }
    }

    pub(super) fn note_switch(&mut self, step: SwitchRecord, by: Option<&str>) {
        let record = self.record(Body::Switch(step.clone()), by.map(ToOwned::to_owned));
        self.switch.state.apply(&step, record.at);
        self.turn.effects.persist.push(record);
    }

    /// The switch for people; none when there is nothing to say of it.
    pub(in crate::daemon) fn switch_status(&self) -> Option<SwitchStatus> {
        let current = self.switch.state.current.as_ref()?;
        let returned = self.switch.state.returned();
        if current.stage == Stage::Settled && current.left.is_none() {
            return None;
        }
        let now = self.clock.now();
        let moves = current.made.iter().filter(|_| current.left.is_some());
        let why = match (current.stage, returned) {
            (Stage::Stopped, _) | (_, None) => current.why.clone(),
            (Stage::UnderWay | Stage::Settled, Some((_, withdrawal))) => withdrawal.why.clone(),
        };
        Some(SwitchStatus {
            to: current.to,
            stage: match current.stage {
                Stage::UnderWay => SwitchStage::Going,
                Stage::Settled => SwitchStage::Settled,
                Stage::Stopped => SwitchStage::Stopped,
            },
            left: current.left,
            why,
            on_failure: current.terms.policy.on_failure,
            guard_left_ms: self.switch.guard.as_ref().map(|watch| watch.left_ms(now)),
            unreached: self.switch.guard.as_ref().map_or(Vec::new(), |_| self.unreached(&self.required(), now)),
            remains: moves
                .map(|(cob, from, to)| MadeMove { cob: cob.clone(), from: from.clone(), to: to.clone() })
                .collect(),
        })
    }
}
