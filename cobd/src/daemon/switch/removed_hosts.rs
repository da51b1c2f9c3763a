//! Removed hosts (`RemovedHost`): hosts of the previous generation that the next generation lacks.
//!
//! Links to them stay: their change objects depart in order and may wait for other hosts or the reverse, and a host
//! that was away has yet to learn about the switch. So each host remembers the removed hosts (`Switching::parted`). A
//! drained host announces that to all hosts; the next switch forgets drained hosts without open work here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::switch::{RemovedHost, Stage, SwitchRecord};
use cob_types::{GenerationNumber, HostName, Item, Manifest};
use tracing::{info, warn};

use crate::daemon::Daemon;

impl Daemon {
    /// Records the removed hosts at the start of a switch.
    pub(in crate::daemon) fn part_for(&mut self, to: &Manifest) {
        let from: Vec<&Manifest> = self.present.active_and_pending().map(|p| &*p.manifest).collect();
        let stays = |host: &HostName, of: RemovedHost| {
            // A host that was away for long is forgotten: its generation is not kept.
            let is_awaited = !of.through && self.generations.keeps(of.generation);
            is_awaited || self.engine.is_open_with(host)
        };
        let parted = self.switch.state.parts_with(&self.config.host, &from, to, stays);
        self.switch.through.retain(|host| !to.hosts.contains_key(host));
        if let Some(parted) = parted {
            self.note_switch(parted, None);
        }
    }

    /// The manifests that name removed hosts, by their numbers.
    pub(in crate::daemon) fn manifests_of_parted(&self) -> BTreeMap<GenerationNumber, Arc<Manifest>> {
        let named: BTreeSet<_> = self.switch.state.parted.values().map(|of| of.generation).collect();
        let read = |generation| match self.manifest_of(generation) {
            Ok(manifest) => Some((generation, manifest)),
            Err(error) => {
                warn!(%generation, %error, "removed hosts can't be reached");
                None
            }
        };
        named.into_iter().filter_map(read).collect()
    }

    /// The generations that are kept for removed hosts: that of the last switch, and those of hosts with open work
    /// here.
    pub(in crate::daemon) fn needed_for_parted(&self) -> Vec<GenerationNumber> {
        let state = &self.switch.state;
        let open = state.parted.iter().filter(|(host, _)| self.engine.is_open_with(host));
        open.map(|(_, of)| of.generation).chain(state.current.as_ref().map(|c| c.from)).collect()
    }

    /// Whether a host is in the active or pending generation.
    pub(in crate::daemon) fn is_member(&self, host: &HostName) -> bool {
        self.present.active_and_pending().any(|p| p.manifest.hosts.contains_key(host))
    }

    /// Whether a host was removed.
    pub(in crate::daemon) fn has_parted_with(&self, host: &HostName) -> bool {
        self.switch.state.parted.contains_key(host)
    }

    /// The drained hosts: missing links to them are no problem.
    pub(in crate::daemon) fn are_through(&self) -> BTreeSet<HostName> {
        let parted = self.switch.state.parted.iter();
        let through = parted.filter(|(host, of)| of.through && !self.is_member(host));
        through.map(|(host, _)| host.clone()).collect()
    }

    /// Handles a new link: announcements of the previous link are sent again.
    pub(in crate::daemon) fn parting_anew(&mut self, host: &HostName) {
        self.switch.through.remove(host);
        self.switch.said_through.remove(host);
    }

    /// Handles the announcement that a host is drained. This host may be late, and record it as removed only
    /// afterwards.
    pub(super) fn heard_through(&mut self, host: &HostName) {
        self.switch.through.insert(host.clone());
    }

    /// At the end of a tick: records the drained hosts, and announces that this host is drained, if it is.
    pub(in crate::daemon) fn end_parting(&mut self) {
        let parted = &self.switch.state.parted;
        let news = |(host, of): (&HostName, &RemovedHost)| !of.through && self.switch.through.contains(host);
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

    /// Whether this host was removed from the model, and has settled in a generation without it.
    fn has_left(&self) -> bool {
        let me = &self.config.host;
        let settled = self.switch.state.current.as_ref().is_some_and(|c| c.stage == Stage::Settled);
        settled && self.has_parted_with(me) && !self.is_member(me)
    }

    /// Forgets a removed host that will not come back.
    pub(in crate::daemon) fn forget_parted(&mut self, host: &HostName) {
        let mut parted = self.switch.state.parted.clone();
        if parted.remove(host).is_some() {
            info!(%host, "a removed host is not waited for any longer");
            self.note_switch(SwitchRecord::Parted(parted), None);
            self.tell_roster();
        }
    }
}
