//! What hosts tell each other of a switch, and what people are shown of it.

use cob_engine::Time;
use cob_engine::record::Body;
use cob_engine::switch::{Seen, Stage, SwitchRecord, Terms};
use cob_engine::time::Span;
use cob_types::message::{Going, Withdrawn};
use cob_types::status::{MadeMove, SwitchStage, SwitchStatus};
use cob_types::{Batch, GenerationNumber, HostName, Item};
use tracing::{info, warn};

use super::tellers::Next;
use super::{Aim, SETTLED_AFTER, Start, told_withdrawal};
use crate::daemon::Daemon;
use crate::generations::Wanted;
use crate::peer::{Topic, Transport as _};

/// The shortest guard that another host's word may set.
const TOLD_GUARD_MS: u64 = 5000;
/// So long after it has set out, and up to twice as long, a host tells all others of it.
const REST: Span = Span::secs(5);

/// Of `count` others in a ring, in the order of their names, `own` of them before this host: those that it tells first.
///
/// They are 1, 2, 4, 8 … further on, as the fingers of Chord (Stoica et al., SIGCOMM 2001, section 4.3): all know after
/// at most as many steps as there are fingers, with `count` times as many messages in all. If everybody told everybody,
/// the `go` of 1,000 hosts would be a million messages in one moment.
fn spread(own: usize, count: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |step| Some(step * 2))
        .take_while(move |step| *step <= count)
        .map(move |step| (own + step - 1) % count)
}

/// When a host tells the rest: each at another time, as that is many messages again.
fn tells_rest_after(own: usize, count: usize) -> Span {
    let share = |span: Span| span.0 * own as u64 / (count as u64 + 1);
    Span(REST.0 + share(REST))
}

impl Daemon {
    /// Tells a host of the switch that this one is in.
    pub(in crate::daemon) fn tell_switch(&mut self, host: &HostName) {
        if let Some(item) = self.switch.stance(|generation| self.generations.manifest_known(generation)) {
            self.turn.effects.send.push((host.clone(), item));
        }
    }

    pub(super) fn tell_all_of_switch(&mut self) {
        self.switch.tell_rest = Time::NEVER;
        self.linked().iter().for_each(|host| self.tell_switch(host));
    }

    /// Tells some hosts that this one has set out; they tell others. When things have calmed down it tells all that it
    /// can reach: somebody may have no link to those who should have told it.
    pub(super) fn spread_switch(&mut self) {
        let linked = self.linked();
        let own = linked.partition_point(|host| *host < self.config.host);
        for at in spread(own, linked.len()) {
            self.tell_switch(&linked[at]);
        }
        self.switch.tell_rest = self.clock.now() + tells_rest_after(own, linked.len());
    }

    /// The hosts that there is a link to, by name.
    pub(super) fn linked(&self) -> Vec<HostName> {
        self.links.status().into_iter().filter(|p| p.up).map(|p| p.host).collect()
    }

    /// What another host says of its switch.
    pub(in crate::daemon) fn heard_of_switch(&mut self, host: &HostName, item: Item) {
        if let Item::Going(going) = item {
            self.heard_going(host, going);
        } else if let Item::Withdrawn(withdrawn) = item {
            self.heard_withdrawn(host, withdrawn);
        } else if let Item::Through(_) = item {
            self.heard_through(host);
        }
    }

    fn heard_going(&mut self, host: &HostName, going: Going) {
        let Going { generation, mut policy, round, manifest } = going;
        if self.is_told_of_another(host, Wanted { generation, manifest }) {
            return;
        }
        if let Some(withdrawal) = self.switch.state.withdrawn.get(&generation).filter(|w| w.round >= round) {
            let item = told_withdrawal(generation, withdrawal, self.generations.manifest_known(generation));
            self.turn.effects.send.push((host.clone(), item));
            return;
        }
        // Where others go is not for one to say that was left behind.
        if !self.is_member(host) {
            return;
        }
        let current = self.switch.state.current.as_ref().filter(|c| c.to == generation && c.left.is_none());
        if let Some(current) = current {
            if round > current.terms.round {
                let terms = Terms { round, ..current.terms };
                if !self.brakes.allows(host, self.clock.now()) {
                    return self.too_much(host, 1);
                }
                self.note_switch(SwitchRecord::Reterm(terms), None);
            }
            return;
        }
        // Whether it is gone to is looked at when its turn comes: that reads files.
        let is_ahead = self.active.is_some() && generation > self.furthest();
        if is_ahead {
            policy.guard_ms = policy.guard_ms.map(|ms| ms.max(TOLD_GUARD_MS));
            let terms = Terms { policy, round, alone: false };
            self.switch.told.hear(host, Wanted { generation, manifest }, terms, self.clock.now());
        }
    }

    /// Whether another host speaks of a generation that is another one here: what it says of it is not of this one.
    fn is_told_of_another(&mut self, host: &HostName, told: Wanted) -> bool {
        let Err(error) = self.generations.is_the_one(told) else { return false };
        self.quiet.say(Topic::Told, Some(host), |more| {
            warn!(generation = %told.generation, by = %host, %error, "what another host says of a switch is not followed{more}");
        });
        true
    }

    /// Fetches what another host has told of, if it is time and this host goes there.
    pub(super) fn follow_told(&mut self, now: Time) {
        while let Some(Next { by, wanted, round, is_news }) = self.switch.told.next(now) {
            let generation = wanted.generation;
            if self.goes_when_told(generation, round) {
                if is_news {
                    info!(%generation, %by, "told of a switch");
                }
                self.switch.told.fetches(now);
                self.fetch(wanted, Aim::Go(Start::Told), None);
                return;
            }
            self.switch.told.forget(|other| other == generation);
        }
    }

    /// What another host has said in the switch that it is under way in; `greets`: together with where it goes, which is
    /// answered if that was withdrawn.
    pub(in crate::daemon) fn asked_in_switch(&mut self, batch: &mut Batch, greets: bool) {
        let Some(switch) = batch.under_way else { return };
        let state = &self.switch.state;
        if state.has_settled_in(switch) && batch.items.iter().any(Item::may_move) {
            self.switch.asked_by = Some(batch.from.clone());
        }
        // Who asks for something in a switch that was left has not heard of that yet. It goes back as well, and what it
        // is not to have any more must not fail here once more. Who does not go back asks again.
        let (to, round) = (switch.to, switch.round);
        let unaware = state.is_on_its_way_back_from(to, round) || greets && state.is_withdrawn(to, round);
        if switch.left.is_none() && unaware {
            batch.items.retain(|item| !matches!(item, Item::Request(_)));
        }
    }

    /// Whether this host goes where another one says that it goes: onward only, and to nothing that was left.
    pub(super) fn goes_when_told(&self, generation: GenerationNumber, round: u32) -> bool {
        let again = self.switch.state.withdrawn.contains_key(&generation);
        self.active.is_some()
            && generation > self.furthest()
            && !self.switch.state.is_withdrawn(generation, round)
            && (again || self.newest().is_ok_and(|newest| generation > newest))
    }

    fn heard_withdrawn(&mut self, host: &HostName, withdrawn: Withdrawn) {
        let Withdrawn { generation, to, round, ordered, why, manifest } = withdrawn;
        if self.is_told_of_another(host, Wanted { generation, manifest }) {
            return;
        }
        let takes_part = self.is_member(host) || self.switch.state.takes_part(host);
        if takes_part && self.switch.state.was_ordered_since(generation, round) {
            // A host that was away goes by an old word, and may have led others by it.
            return self.tell_switch(host);
        }
        if !takes_part || !self.switch.state.follows(generation, round, ordered) {
            return;
        }
        // Where others had nothing before, this host may have had something.
        let had_nothing = || self.switch.state.came_from_nothing(generation);
        if !self.names_way_back(generation, to) || to == GenerationNumber(0) && !ordered && !had_nothing() {
            return self.quiet.say(Topic::Withdrawal, Some(host), |more| {
                warn!(%generation, %to, by = %host, "a withdrawal is not followed: no such way back is named{more}");
            });
        }
        let why = if why.contains(" (told by ") { why } else { format!("{why} (told by {host})") };
        self.withdraw(generation, to, ordered, why, None);
    }

    /// Where the switch forward that the host is in, or was in last, leads.
    pub(super) fn current_goal(&self) -> Option<GenerationNumber> {
        self.switch.state.current.as_ref().filter(|c| c.left.is_none()).map(|c| c.to)
    }

    /// The newest of where this host goes, and where the switch forward that it was in last led.
    pub(super) fn furthest(&self) -> GenerationNumber {
        self.goal().max(self.current_goal().unwrap_or_default())
    }

    pub(super) fn seen(&self) -> Seen {
        let engine = &self.engine;
        let settled = |at: Time| at + SETTLED_AFTER <= self.clock.now();
        let converged = self.is_converged() && self.switch.converged.is_some_and(settled);
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
            ordered: returned.is_some_and(|(_, withdrawal)| withdrawal.ordered),
            manifest: self.generations.manifest_known(current.to),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// How many steps it takes until all of so many hosts know, and how many messages are said.
    fn told(hosts: usize) -> (usize, usize) {
        let (mut known, mut news) = (BTreeSet::from([hosts / 3]), vec![hosts / 3]);
        let (mut steps, mut said) = (0, 0);
        while known.len() < hosts {
            steps += 1;
            for own in std::mem::take(&mut news) {
                for at in spread(own, hosts - 1) {
                    said += 1;
                    // The others, without this one.
                    let host = if at < own { at } else { at + 1 };
                    assert_ne!(host, own);
                    if known.insert(host) {
                        news.push(host);
                    }
                }
            }
            assert!(!news.is_empty() || known.len() == hosts, "of {hosts}: {known:?}");
        }
        (steps, said)
    }

    #[test]
    fn all_are_told_in_few_steps_with_few_messages() {
        for hosts in 1..200 {
            let fingers = (hosts as u32).ilog2() as usize + 1;
            let (steps, said) = told(hosts);
            assert!(steps <= fingers && said <= hosts * fingers, "of {hosts}: {steps} steps, {said} messages");
        }
        assert_eq!((told(2), told(3), told(4)), ((1, 1), (1, 2), (2, 6)));
        let (steps, said) = told(1000);
        assert!(steps <= 9 && said < 10_000, "{steps}, {said}");
    }

    #[test]
    fn the_rest_is_told_at_other_times() {
        assert_eq!(tells_rest_after(0, 0), REST);
        let times: BTreeSet<u64> = (0..100).map(|own| tells_rest_after(own, 99).0).collect();
        assert_eq!(times.len(), 100);
        assert!(times.iter().all(|at| (REST.0..REST.0 * 2).contains(at)));
    }
}
