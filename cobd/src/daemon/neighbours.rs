//! The other hosts: the links to them, the known keys, and the limits on their messages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use cob_engine::Time;
use cob_engine::time::Span;
use cob_types::status::{PeerStatus, Unheard};
use cob_types::{Batch, HostName, Manifest, PublicKey};
use tracing::{error, info, warn};

use super::rate_limits::RateLimits;
use crate::identity::Keys;
use crate::peer::{Links, Protection, Quiet, Reason, Refusals, Roster, Topic};

/// The interval of attempts to listen at an address that could not be bound.
const LISTEN_AGAIN: Span = Span::secs(1);
/// The most known hosts outside the roster.
const KNOWN: usize = 100_000;

/// The other hosts, as this daemon knows them.
pub(super) struct Neighbours {
    links: Links,
    /// Limits log lines about messages of peers.
    quiet: Quiet,
    /// Messages of peers that they had no right to send.
    refused: Refusals,
    /// Limits the records that messages of peers may cause.
    limits: RateLimits,
    /// Hosts whose messages are ignored, as last reported.
    unheard: BTreeMap<HostName, Unheard>,
    /// The address where the daemon listens since its start, because the generation in the depot names another address
    /// than the generation on disk.
    moved: Option<SocketAddr>,
    /// When the next attempt is made to listen on the address that the generation names.
    listen_again: Time,
    /// The key that this host shows, or else the newest key in its file.
    identity: Option<PublicKey>,
    /// Hosts of present generations, or of generations since the start, with their keys.
    known: BTreeMap<HostName, BTreeSet<PublicKey>>,
    /// The hosts with which work is under way.
    busy: BTreeSet<HostName>,
    /// When the busy hosts are looked up next.
    busy_at: Time,
}

impl Neighbours {
    /// With these links. `moved`: the address where they listen, if no generation on disk names it.
    pub(super) fn new(links: Links, moved: Option<SocketAddr>) -> Self {
        Self {
            links,
            quiet: Quiet::default(),
            refused: Refusals::default(),
            limits: RateLimits::default(),
            unheard: BTreeMap::new(),
            moved,
            listen_again: Time::NEVER,
            identity: None,
            known: BTreeMap::new(),
            busy: BTreeSet::new(),
            busy_at: Time(0),
        }
    }

    pub(super) fn links(&self) -> &Links {
        &self.links
    }

    pub(super) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Ends everything but the links.
    pub(super) fn into_links(self) -> Links {
        self.links
    }

    /// Limits log lines about messages of peers.
    pub(super) fn quiet(&self) -> &Quiet {
        &self.quiet
    }

    pub(super) fn identity(&self) -> Option<PublicKey> {
        self.identity
    }

    /// The number of refused messages and connections.
    pub(super) fn refused(&self) -> cob_types::status::RefusalCounts {
        self.links.refused() + self.refused.get()
    }

    /// The hosts whose links fulfil a condition.
    pub(super) fn hosts(&self, which: impl Fn(&PeerStatus) -> bool) -> Vec<HostName> {
        self.links.status().into_iter().filter(|peer| which(peer)).map(|peer| peer.host).collect()
    }

    pub(super) fn knows_nobody(&self) -> bool {
        self.known.is_empty()
    }

    /// Adds the hosts of generations, with their keys.
    pub(super) fn meet<'a>(&mut self, manifests: impl Iterator<Item = &'a Manifest>) {
        for (host, entry) in manifests.flat_map(|manifest| &manifest.hosts) {
            if self.known.len() < KNOWN || self.known.contains_key(host) {
                self.known.entry(host.clone()).or_default().extend(&entry.keys);
            }
        }
    }

    /// Gives the links another roster. `needs_key`: a generation names this host.
    pub(super) fn take_roster(&mut self, mut roster: Roster, keys: &Keys, needs_key: bool) {
        roster.former = self.former(&roster);
        self.identity = match &roster.protection {
            Protection::Identities(Some(identity)) => Some(identity.public()),
            Protection::Identities(None) | Protection::LoopbackOnly => keys.all().first().map(|k| k.public()),
        };
        if needs_key && matches!(roster.protection, Protection::Identities(None)) {
            self.quiet.say(Topic::Identity, None, |_| {
                error!(
                    "this host has no key that its generation names: it has no links; see \
                     `cobctl trust doctor`"
                );
            });
        }
        self.links.roster(roster);
    }

    /// The known hosts outside the roster, with their keys that are not revoked.
    fn former(&self, roster: &Roster) -> BTreeMap<HostName, BTreeSet<PublicKey>> {
        let gone = self.known.iter().filter(|(host, _)| !roster.hosts.contains_key(*host));
        let believed = |keys: &BTreeSet<PublicKey>| keys.difference(&roster.revoked).copied().collect();
        gone.map(|(host, keys)| (host.clone(), believed(keys))).collect()
    }

    /// When the next attempt is made to listen.
    pub(super) fn listen_again(&self) -> Time {
        self.listen_again
    }

    /// The address stays: the configuration names it, or no generation names this host.
    pub(super) fn listen_as_before(&mut self) {
        self.listen_again = Time::NEVER;
    }

    /// Listens at the address that a generation names. The previous address still answers, until another host has it
    /// in the active generation. `active`: the addresses there.
    pub(super) fn listen(
        &mut self,
        me: &HostName,
        address: SocketAddr,
        active: &BTreeMap<HostName, SocketAddr>,
        now: Time,
    ) {
        self.listen_again = Time::NEVER;
        if active.get(me).copied() == self.moved {
            self.moved = None;
        }
        // A departing host has no address in the active generation, and keeps its previous address.
        if active.contains_key(me) {
            let moved = self.moved;
            let of_others =
                |open: &SocketAddr| moved != Some(*open) && active.iter().any(|(host, at)| host != me && at == open);
            for closed in self.links.close(of_others) {
                info!("this host does not listen at {closed} any more: the active generation has another host there");
            }
        }
        match self.links.listen(address) {
            Ok(true) => info!("this host listens at {address}"),
            Ok(false) => {}
            Err(error) => {
                // The host that has the address may not have moved yet, or this machine does not have the address yet.
                self.listen_again = now + LISTEN_AGAIN;
                self.quiet.say(Topic::Moved, None, |more| {
                    warn!("this host can't listen at {address}: {error}; it tries again every second{more}");
                });
            }
        }
    }

    /// Decodes a batch from the link of a host. Only messages in the host's own name count.
    pub(super) fn screen(&self, host: &HostName, bytes: &[u8]) -> Option<Batch> {
        let quiet = &self.quiet;
        let mut received = Batch::decode(bytes)
            .inspect_err(|error| {
                quiet.say(Topic::Batch, Some(host), |more| {
                    warn!(%host, "a batch is dropped: {error}{more}");
                });
            })
            .ok()?;
        if received.batch.from != *host {
            self.refused.add(Reason::ForeignName);
            quiet.say(Topic::Name, Some(host), |more| {
                warn!(%host, named = %received.batch.from, "a batch in another host's name is dropped{more}");
            });
            return None;
        }
        if received.unknown > 0 {
            quiet.say(Topic::Items, Some(host), |more| {
                warn!(%host, items = received.unknown, "items of a newer protocol are skipped{more}");
            });
        }
        let said = received.batch.items.len();
        received.batch.items.retain(|item| item.speaks_for(host));
        let foreign = said - received.batch.items.len();
        if foreign > 0 {
            self.refuse(foreign, Reason::ForeignName);
            quiet.say(Topic::ForeignItems, Some(host), |more| {
                warn!(%host, items = foreign, "messages in the name of other hosts' change objects are dropped{more}");
            });
        }
        Some(received.batch)
    }

    fn refuse(&self, messages: usize, why: Reason) {
        (0..messages).for_each(|_| self.refused.add(why));
    }

    /// Reports numbers of a host that can't be.
    pub(super) fn refuse_numbers(&self, host: &HostName, impossible: usize) {
        if impossible > 0 {
            self.refuse(impossible, Reason::Broken);
            self.quiet.say(Topic::Numbers, Some(host), |more| {
                warn!(%host, "an impossibly high number is not taken over{more}");
            });
        }
    }

    /// Whether another message of a host may cause a record.
    pub(super) fn may_record(&mut self, host: &HostName, now: Time) -> bool {
        self.limits.allows(host, now)
    }

    /// Removes items with new epochs from a batch if its host exceeds the rate.
    pub(super) fn limit_epochs(&mut self, batch: &mut Batch, known: u64, now: Time) {
        let removed = self.limits.hold_turns(batch, known, now);
        self.too_much(&batch.from, removed);
    }

    /// Reports that a host exceeded its limits: this number of its messages was dropped.
    pub(super) fn too_much(&self, host: &HostName, messages: usize) {
        if messages == 0 {
            return;
        }
        self.refuse(messages, Reason::Broken);
        self.quiet.say(Topic::TooMuch, Some(host), |more| {
            warn!(%host, messages, "the host sends too many messages: the rest is left out{more}");
        });
    }

    /// Logs once that a host's messages are ignored here.
    pub(super) fn note_unheard(&mut self, host: &HostName, why: Option<Unheard>) {
        let Some(why) = why else {
            self.unheard.remove(host);
            return;
        };
        self.refused.add(Reason::Replayed);
        if self.unheard.insert(host.clone(), why) != Some(why) {
            let why = match why {
                Unheard::Fenced => "its daemon was fenced: restart the daemon",
                Unheard::Replaced | Unheard::Other => {
                    "another state folder has used its name since: do two daemons have the same `host`?"
                }
            };
            warn!(%host, why, "the messages of a host do not count");
        }
    }

    /// When the busy hosts are looked up next.
    pub(super) fn busy_at(&self) -> Time {
        self.busy_at
    }

    /// Looks up the busy hosts at this time, or earlier if that is due already.
    pub(super) fn look_by(&mut self, time: Time) {
        self.busy_at = self.busy_at.min(time);
    }

    /// Watches a host more closely while work with it is under way.
    pub(super) fn watch_busy(&mut self, is_busy: impl Fn(&HostName) -> bool) {
        let busy: BTreeSet<_> = self.hosts(|peer| is_busy(&peer.host)).into_iter().collect();
        for host in busy.symmetric_difference(&self.busy) {
            self.links.busy(host, busy.contains(host));
        }
        self.busy = busy;
        // Only a tick with effects changes the busy hosts: only it sets the next look.
        self.busy_at = Time::NEVER;
    }
}
