//! Which requests of other hosts count: see [`crate::justification`].

use cob_types::message::{About, Refused, Request};
use cob_types::words::join;
use cob_types::{CobId, GenerationNumber, HostName, Item, Number};

use crate::bundle::{ActiveBundle, SwitchTarget};
use crate::engine::Engine;
use crate::event::KnownAskers;
use crate::justification::{Table, Unjustified};
use crate::mail::{Mail, Msg};
use crate::names::{CobRef, HostRef, StateId};
use crate::time::Time;

enum Verdict {
    Counts,
    Refused,
    /// The askers of its generation are not known here.
    Unknown,
    /// There is no generation yet to judge it by, and it will be repeated.
    Early,
}

impl Engine {
    /// The generation whose askers requests wait for; the daemon looks for them and sends [`Event::Askers`].
    ///
    /// [`Event::Askers`]: crate::Event::Askers
    #[must_use]
    pub fn wanted_askers(&self) -> Option<GenerationNumber> {
        self.justification.wanted()
    }

    /// Hosts whose requests were refused because no dependency justifies them.
    pub fn unjustified(&self) -> impl Iterator<Item = (&HostName, &Unjustified)> {
        self.justification.refused().map(|(host, refused)| (self.names.host_name(host), refused))
    }

    /// Whether requests of other hosts are judged: the active generation names the askers.
    #[must_use]
    pub fn judges_requests(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.bundle.askers().is_some())
    }

    /// All hosts are trusted, as in a forecast: no request is judged.
    pub fn trust_askers(&mut self) {
        self.trusts_askers = true;
    }

    /// Whether a request of another host counts. A request of an unknown generation is stored until it is known.
    pub(super) fn is_justified(&mut self, host: HostRef, request: &Request, now: Time) -> bool {
        let to_say = self.is_between(host, &request.asker, &request.asked);
        if !to_say || self.trusts_askers || self.faults.believes_any_asker() || self.stands(request) {
            // The interning of names rejects requests that the host may not send.
            return true;
        }
        match self.judge(request, now) {
            Verdict::Counts => true,
            Verdict::Refused => {
                self.refuse_unjustified(host, request, now);
                false
            }
            Verdict::Unknown => {
                let kept = self.justification.keep(host, request);
                self.left_out += u64::from(!kept);
                false
            }
            Verdict::Early => false,
        }
    }

    /// The asker is a change object of the host, and the asked change object is local.
    pub(super) fn is_between(&self, host: HostRef, asker: &CobId, asked: &CobId) -> bool {
        let is_of = |cob: &CobId, host: &HostName| cob.host_str() == host.as_str();
        is_of(asker, self.names.host_name(host)) && is_of(asked, self.names.here())
    }

    fn judge(&self, request: &Request, now: Time) -> Verdict {
        let of_own = || self.own_tables().into_iter().flatten();
        let own_justify = || of_own().any(|(_, table)| table.justifies(request));
        let counts = match request.generation {
            // A daemon of an earlier version does not name its generation.
            None if self.active.is_none() && self.departures.pending.is_none() => return Verdict::Early,
            None => own_justify() || self.justification.tables().any(|(_, table)| table.justifies(request)),
            Some(generation) => {
                let own = of_own().find(|(own, _)| *own == generation).map(|(_, table)| table);
                match own.as_ref().or_else(|| self.justification.table_of(generation)) {
                    Some(Table::Unsaid) => own_justify(),
                    Some(table) => table.justifies(request),
                    None if generation == GenerationNumber(0) || self.justification.is_missing(generation, now) => {
                        false
                    }
                    None => return Verdict::Unknown,
                }
            }
        };
        if counts { Verdict::Counts } else { Verdict::Refused }
    }

    /// The tables of the active and the pending generation.
    fn own_tables(&self) -> [Option<(GenerationNumber, Table)>; 2] {
        let table = |generation, bundle: &ActiveBundle| (generation, Table::of(&bundle.bundle, Table::Anything));
        let pending = self.departures.pending.as_ref().map(|pending| &pending.target);
        [
            self.active.as_ref().map(|active| table(self.generation, active)),
            pending.map(|target| table(target.generation, &target.bundle)),
        ]
    }

    /// The request repeats a known request: perhaps of an earlier generation, for an action that still runs. After a
    /// restart its asker may name only the state that it holds.
    fn stands(&self, request: &Request) -> bool {
        let pair = (self.names.find_cob(&request.asked), self.names.find_cob(&request.asker));
        let (Some(asked), Some(asker)) = pair else { return false };
        let is_same = |number: Number, set: &[StateId], promised: Option<StateId>| {
            let same = |states: &[StateId]| {
                let names = states.iter().map(|state| self.names.state_name(*state));
                names.eq(request.set.iter())
            };
            number == request.number && (same(set) || promised.is_some_and(|state| same(&[state])))
        };
        let here = self.objects.get(asked).and_then(|o| o.request_of(asker));
        if let Some(known) = here.or_else(|| self.absent.find(asked, asker)) {
            return is_same(known.number, &known.set, known.granted.or(known.broken));
        }
        let early = self.absent.early(asked, asker).and_then(Mail::request);
        early.is_some_and(|early| is_same(early.number, &early.set, None))
    }

    /// Whether a known dependency names the pair: then its releases are worth storing.
    pub(super) fn may_ask(&self, about: &About) -> bool {
        self.own_tables().iter().flatten().chain(self.justification.tables()).any(|(_, table)| table.names(about))
    }

    fn refuse_unjustified(&mut self, host: HostRef, request: &Request, now: Time) {
        let Request { asker, asked, number, generation, .. } = request.clone();
        self.release_older(&asked, &asker, number);
        if self.justification.refuse(host, request, now) {
            let by = match generation {
                Some(generation) => format!("no dependency of generation {generation}, as this host has it,"),
                None => "no dependency of the generation here".to_owned(),
            };
            let wanted: Vec<String> = request.set.iter().map(ToString::to_string).collect();
            let wanted = join(&wanted, "or");
            let reason = format!("{by} lets {asker} ask {asked} for {wanted}");
            self.out.send(host, Item::Refused(Refused { about: About { asker, asked, number }, reason, from: None }));
        }
    }

    /// A request under a new number is the release of the previous number, even if it is refused itself.
    fn release_older(&mut self, asked: &CobId, asker: &CobId, newer: Number) {
        let pair = (self.names.find_cob(asked), self.names.find_cob(asker));
        let (Some(to), Some(from)) = pair else { return };
        if let Some(number) = self.number_of(to, from).filter(|number| *number < newer) {
            self.out.post(Mail { from, to, msg: Msg::Release(number) });
        }
    }

    fn number_of(&self, asked: CobRef, asker: CobRef) -> Option<Number> {
        let here = self.objects.get(asked).and_then(|o| Some(o.request_of(asker)?.number));
        let departed = || self.absent.find(asked, asker).map(|request| request.number);
        let early = || self.absent.early(asked, asker)?.number();
        here.or_else(departed).or_else(early)
    }

    /// The daemon has found the askers of a generation, or cannot get them.
    pub(super) fn on_askers(&mut self, generation: GenerationNumber, askers: KnownAskers, now: Time) {
        self.justification.forget_missing(generation, now);
        match askers {
            KnownAskers::Named(askers) => self.justification.learn(generation, Table::Named(askers)),
            KnownAskers::Unsaid => self.justification.learn(generation, Table::Unsaid),
            KnownAskers::Unavailable => self.justification.miss(generation, now),
        }
        self.judge_waiting(now);
    }

    /// Judges the stored requests, if their generation is known now.
    pub(super) fn judge_waiting(&mut self, now: Time) {
        for (host, request) in self.justification.take_waiting() {
            if let Some(mail) = self.take_in(host, Item::Request(request), now) {
                self.out.post(mail);
            }
        }
    }

    /// Another generation becomes active: hosts that are behind may still ask by the old.
    pub(super) fn keep_active_askers(&mut self) {
        let Some(active) = &self.active else { return };
        // Of two generations of a version without askers the older no longer counts.
        self.justification.forget_open_tables();
        self.justification.learn(self.generation, Table::of(&active.bundle, Table::Anything));
    }

    /// A switch is abandoned before its end: hosts that have gone further may ask by its generation in their rollback.
    pub(super) fn keep_pending_askers(&mut self, target: &SwitchTarget) {
        self.justification.learn(target.generation, Table::of(&target.bundle.bundle, Table::Unsaid));
    }
}

#[cfg(test)]
#[path = "justify_test.rs"]
mod tests;
