//! Announcements of switches between hosts, and the report on the switch for people.

use cob_engine::Time;
use cob_engine::record::Body;
use cob_engine::switch::{SETTLED_AFTER, Seen, Stage, SwitchRecord, Terms, Withdrawal};
use cob_engine::time::Span;
use cob_types::message::{Going, Withdrawn};
use cob_types::status::{MadeTransition, SwitchStage, SwitchStatus};
use cob_types::{Batch, GenerationNumber, HostName, Item};
use tracing::{info, warn};

use super::announcements::Next;
use super::{Aim, Start, told_withdrawal};
use crate::daemon::Daemon;
use crate::generations::Wanted;
use crate::peer::Topic;

/// The shortest guard that an announcement of another host may set.
const TOLD_GUARD_MS: u64 = 5000;
/// A host announces its switch to all others after this time, and after twice this time at the latest.
const REST: Span = Span::secs(5);

/// The hosts to which this host announces first: positions in a ring of `count` other hosts by name; `own` precede it.
///
/// They are 1, 2, 4, 8 … positions further on, as the fingers of Chord (Stoica et al., SIGCOMM 2001, section 4.3): all
/// hosts know after at most as many steps as there are fingers, with `count` times as many messages in all. If all
/// hosts announced to all, the switch of 1,000 hosts would cause a million messages at once.
fn spread(own: usize, count: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |step| Some(step * 2))
        .take_while(move |step| *step <= count)
        .map(move |step| (own + step - 1) % count)
}

/// When a host announces to the remaining hosts: each host at a different time, because these are many messages again.
fn tells_rest_after(own: usize, count: usize) -> Span {
    let share = |span: Span| span.0 * own as u64 / (count as u64 + 1);
    Span(REST.0 + share(REST))
}

impl Daemon {
    /// Announces the switch of this host to another host.
    pub(in crate::daemon) fn tell_switch(&mut self, host: &HostName) {
        if let Some(item) =
            self.switch.stance(&self.config.host, |generation| self.generations.manifest_known(generation))
        {
            self.turn.effects.send.push((host.clone(), item));
        }
    }

    pub(super) fn tell_all_of_switch(&mut self) {
        self.switch.tell_rest = Time::NEVER;
        self.linked().iter().for_each(|host| self.tell_switch(host));
    }

    /// Announces the switch to some hosts, which announce it further. Later this host announces it to all linked hosts:
    /// a host may lack links to its announcers.
    pub(super) fn spread_switch(&mut self) {
        let linked = self.linked();
        let own = linked.partition_point(|host| *host < self.config.host);
        for at in spread(own, linked.len()) {
            self.tell_switch(&linked[at]);
        }
        self.switch.tell_rest = self.clock.now() + tells_rest_after(own, linked.len());
    }

    /// The linked hosts, by name.
    pub(super) fn linked(&self) -> Vec<HostName> {
        self.neighbours.hosts(|peer| peer.up)
    }

    /// Handles another host's announcement of its switch.
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
            let item =
                told_withdrawal(&self.config.host, generation, withdrawal, self.generations.manifest_known(generation));
            self.turn.effects.send.push((host.clone(), item));
            return;
        }
        // Announcements of a removed host do not start a switch.
        if !self.is_member(host) {
            return;
        }
        let current = self.switch.state.current.as_ref().filter(|c| c.to == generation && c.left.is_none());
        if let Some(current) = current {
            if round > current.terms.round {
                let terms = Terms { round, ..current.terms };
                if !self.neighbours.may_record(host, self.clock.now()) {
                    return self.neighbours.too_much(host, 1);
                }
                self.note_switch(SwitchRecord::Reterm(terms), None);
            }
            return;
        }
        // The check whether this host follows reads files, so it happens later, in [`Self::follow_told`].
        let is_ahead = self.present.active().is_some() && generation > self.furthest();
        if is_ahead {
            policy.guard_ms = policy.guard_ms.map(|ms| ms.max(TOLD_GUARD_MS));
            let terms = Terms { policy, round, alone: false };
            self.switch.told.hear(host, Wanted { generation, manifest }, terms, self.clock.now());
        }
    }

    /// Whether an announcement names different content under a number that is known here: then it does not apply.
    fn is_told_of_another(&mut self, host: &HostName, told: Wanted) -> bool {
        let Err(error) = self.generations.is_the_one(told) else { return false };
        self.neighbours.quiet().say(Topic::Told, Some(host), |more| {
            warn!(generation = %told.generation, by = %host, %error, "an announcement of a switch is not followed{more}");
        });
        true
    }

    /// Fetches an announced generation when it is due and this host follows the announcement.
    pub(super) fn follow_told(&mut self, now: Time) {
        while let Some(Next { by, wanted, round, is_news }) = self.switch.told.next(now) {
            let generation = wanted.generation;
            if self.goes_when_told(generation, round) {
                if is_news {
                    info!(%generation, %by, "another host announces a switch");
                }
                self.switch.told.fetches(now);
                self.fetch(wanted, Aim::Go(Start::Told), None);
                return;
            }
            self.switch.told.forget(|other| other == generation);
        }
    }

    /// Handles the present switch in another host's batch. `greets`: the batch also contains an announcement, which
    /// this host answers if that generation was rolled back.
    pub(in crate::daemon) fn asked_in_switch(&mut self, batch: &mut Batch, greets: bool) {
        let Some(switch) = batch.under_way else { return };
        let state = &self.switch.state;
        if state.has_settled_in(switch) && batch.items.iter().any(Item::may_move) {
            self.switch.asked_by = Some(batch.from.clone());
        }
        // A host that sends a request in an abandoned switch does not know about the rollback yet. It rolls back later,
        // and until then its request must not fail here again. A host that does not roll back repeats its request.
        let (to, round) = (switch.to, switch.round);
        let unaware = state.is_rolling_back_from(to, round) || greets && state.is_withdrawn(to, round);
        if switch.left.is_none() && unaware {
            batch.items.retain(|item| !matches!(item, Item::Request(_)));
        }
    }

    /// Whether this host follows an announcement: only to a newer generation, and not to an abandoned one.
    pub(super) fn goes_when_told(&self, generation: GenerationNumber, round: u32) -> bool {
        let again = self.switch.state.withdrawn.contains_key(&generation);
        self.present.active().is_some()
            && generation > self.furthest()
            && !self.switch.state.is_withdrawn(generation, round)
            && (again || self.newest().is_ok_and(|newest| generation > newest))
    }

    fn heard_withdrawn(&mut self, host: &HostName, withdrawn: Withdrawn) {
        let Withdrawn { generation, to, round, ordered, why, manifest, cancelled } = withdrawn;
        if self.is_told_of_another(host, Wanted { generation, manifest }) {
            return;
        }
        let takes_part = self.is_member(host) || self.switch.state.takes_part(host);
        if takes_part && self.switch.state.was_ordered_since(generation, round) {
            // A host that was away follows an old announcement, and may have led others to follow it.
            return self.tell_switch(host);
        }
        if !takes_part || !self.switch.state.follows(generation, round, ordered) {
            return;
        }
        // Other hosts may have had no generation before, but this host may have had an installation.
        let had_nothing = || self.switch.state.came_from_nothing(generation);
        if !self.names_rollback_target(generation, to) || to == GenerationNumber(0) && !ordered && !had_nothing() {
            return self.neighbours.quiet().say(Topic::Withdrawal, Some(host), |more| {
                warn!(%generation, %to, by = %host, "a rollback is not followed: no manifest names its target{more}");
            });
        }
        // The announcement names the host that was the first.
        self.withdraw(generation, Withdrawal { to, round, ordered, why, cancelled, heard: true }, None);
    }

    /// The target of the present or last forward switch.
    pub(super) fn current_goal(&self) -> Option<GenerationNumber> {
        self.switch.state.current.as_ref().filter(|c| c.left.is_none()).map(|c| c.to)
    }

    /// The newer of two generations: the present target, and the target of the last forward switch.
    pub(super) fn furthest(&self) -> GenerationNumber {
        self.goal().max(self.current_goal().unwrap_or_default())
    }

    pub(super) fn seen(&self) -> Seen {
        let engine = &self.engine;
        let settled = |at: Time| at + SETTLED_AFTER <= self.clock.now();
        let converged = self.is_converged() && self.switch.converged.is_some_and(settled);
        Seen { active: engine.generation(), going: engine.pending_generation(), converged }
    }

    pub(super) fn note_switch(&mut self, step: SwitchRecord, by: Option<&str>) {
        let record = self.record(Body::Switch(step.clone()), by.map(ToOwned::to_owned));
        self.switch.state.apply(&step, record.at);
        self.turn.effects.persist.push(record);
    }

    /// The switch for people; absent: there is no report.
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
                .map(|(cob, from, to)| MadeTransition { cob: cob.clone(), from: from.clone(), to: to.clone() })
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

    /// The number of steps until all hosts know, and the number of messages.
    fn told(hosts: usize) -> (usize, usize) {
        let (mut known, mut news) = (BTreeSet::from([hosts / 3]), vec![hosts / 3]);
        let (mut steps, mut said) = (0, 0);
        while known.len() < hosts {
            steps += 1;
            for own in std::mem::take(&mut news) {
                for at in spread(own, hosts - 1) {
                    said += 1;
                    // The positions leave this host out.
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
    fn an_announcement_reaches_all_hosts_in_few_steps_and_messages() {
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
    fn hosts_send_the_remaining_announcements_at_different_times() {
        assert_eq!(tells_rest_after(0, 0), REST);
        let times: BTreeSet<u64> = (0..100).map(|own| tells_rest_after(own, 99).0).collect();
        assert_eq!(times.len(), 100);
        assert!(times.iter().all(|at| (REST.0..REST.0 * 2).contains(at)));
    }
}
