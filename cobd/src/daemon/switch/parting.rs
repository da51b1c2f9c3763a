//! Hosts that are left behind: those of the generation that is left which the next one lacks.
//!
//! They need their links still. What they have leaves in its turn, and may need others for that, or be waited for by them;
//! and who was away has yet to hear of the switch. So each host remembers whom it has left behind (`Switching::parted`), and
//! speaks with them as before. A host that has left says so to everybody; with the next switch whoever has said it, and
//! has nothing open here, is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::switch::{Parted, Stage, SwitchRecord};
use cob_types::{GenerationNumber, HostName, Item, Manifest};
use tracing::{info, warn};

use crate::daemon::Daemon;

impl Daemon {
    /// Notes whom this host leaves behind as it sets out for a generation.
    pub(in crate::daemon) fn part_for(&mut self, to: &Manifest) {
        let from = [self.active.as_ref().map(|a| &a.prepared), self.coming.as_ref()];
        let from: Vec<&Manifest> = from.into_iter().flatten().map(|p| &*p.manifest).collect();
        let stays = |host: &HostName, of: Parted| {
            // Who has been away for so long is not known any more: its generation is not kept.
            let is_awaited = !of.through && self.generations.keeps(of.generation);
            is_awaited || self.engine.is_open_with(host)
        };
        let parted = self.switch.state.parts_with(&self.config.host, &from, to, stays);
        self.switch.through.retain(|host| !to.hosts.contains_key(host));
        if let Some(parted) = parted {
            self.note_switch(parted, None);
        }
    }

    /// The manifests that name hosts which were left behind, by their numbers.
    pub(in crate::daemon) fn manifests_of_parted(&self) -> BTreeMap<GenerationNumber, Arc<Manifest>> {
        let named: BTreeSet<_> = self.switch.state.parted.values().map(|of| of.generation).collect();
        let read = |generation| match self.manifest_of(generation) {
            Ok(manifest) => Some((generation, manifest)),
            Err(error) => {
                warn!(%generation, %error, "hosts that are left behind can't be spoken to");
                None
            }
        };
        named.into_iter().filter_map(read).collect()
    }

    /// The generations that are kept for those who were left behind: of the last switch, and of whoever has something open
    /// here.
    pub(in crate::daemon) fn needed_for_parted(&self) -> Vec<GenerationNumber> {
        let state = &self.switch.state;
        let open = state.parted.iter().filter(|(host, _)| self.engine.is_open_with(host));
        open.map(|(_, of)| of.generation).chain(state.current.as_ref().map(|c| c.from)).collect()
    }

    /// Whether a host is in the generation that this one has or goes to.
    pub(in crate::daemon) fn is_member(&self, host: &HostName) -> bool {
        let at_hand = self.active.iter().map(|a| &a.prepared).chain(&self.coming);
        at_hand.into_iter().any(|p| p.manifest.hosts.contains_key(host))
    }

    /// Whether a host was left behind.
    pub(in crate::daemon) fn has_parted_with(&self, host: &HostName) -> bool {
        self.switch.state.parted.contains_key(host)
    }

    /// Those that were left behind and have left: whether there are links to them is nobody's worry.
    pub(in crate::daemon) fn are_through(&self) -> BTreeSet<HostName> {
        let parted = self.switch.state.parted.iter();
        let through = parted.filter(|(host, of)| of.through && !self.is_member(host));
        through.map(|(host, _)| host.clone()).collect()
    }

    /// The link to a host is new: what was said over the one before is said again.
    pub(in crate::daemon) fn parting_anew(&mut self, host: &HostName) {
        self.switch.through.remove(host);
        self.switch.said_through.remove(host);
    }

    /// A host says that it has left. This one may be late, and part with it only then.
    pub(super) fn heard_through(&mut self, host: &HostName) {
        self.switch.through.insert(host.clone());
    }

    /// Once all of a turn is known: notes who is through, and says so if this host is.
    pub(in crate::daemon) fn end_parting(&mut self) {
        let parted = &self.switch.state.parted;
        let news = |(host, of): (&HostName, &Parted)| !of.through && self.switch.through.contains(host);
        let through: BTreeSet<_> = parted.iter().filter(|of| news(*of)).map(|(host, _)| host.clone()).collect();
        if !through.is_empty() {
            self.note_switch(SwitchRecord::Through(through), None);
        }
        if !self.has_left() {
            self.switch.said_through.clear();
            return;
        }
        for host in self.linked() {
            if !self.switch.said_through.contains(&host) && !self.engine.is_open_with(&host) {
                let item = Item::Through(self.engine.generation());
                self.turn.effects.send.push((host.clone(), item));
                self.switch.said_through.insert(host);
            }
        }
    }

    /// This host was taken out of the model, and has settled in a generation without it.
    fn has_left(&self) -> bool {
        let me = &self.config.host;
        let settled = self.switch.state.current.as_ref().is_some_and(|c| c.stage == Stage::Settled);
        settled && self.has_parted_with(me) && !self.is_member(me)
    }

    /// A host that was left behind will not come back: it is spoken to no longer.
    pub(in crate::daemon) fn forget_parted(&mut self, host: &HostName) {
        let mut parted = self.switch.state.parted.clone();
        if parted.remove(host).is_some() {
            info!(%host, "not waited for any longer: it was left behind");
            self.note_switch(SwitchRecord::Parted(parted), None);
            self.tell_roster();
        }
    }
}
