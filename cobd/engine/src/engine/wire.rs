//! The wire form of messages between change objects: full names instead of numbers.

use cob_types::message::{About, Grant, MAX_PROBE_PATH, MAX_VALUES, MAX_WHY, Probe, Refused, Request};
use cob_types::{CobId, Item, Number};

use crate::engine::Engine;
use crate::mail::{Asked, Granted, Mail, Msg, Probed, Refusal};
use crate::names::{CobRef, HostRef};
use crate::object::shared;

/// The most states in a set that are accepted from the wire.
const SET_MAX: usize = cob_types::kind::MAX_STATES;

impl Engine {
    pub(super) fn about(&self, asker: CobRef, asked: CobRef, number: Number) -> About {
        About { asker: self.names.cob_id(asker).clone(), asked: self.names.cob_id(asked).clone(), number }
    }

    /// A message for a change object of another host, with full names.
    pub(super) fn as_item(&self, mail: &Mail) -> Item {
        let id = |c: CobRef| self.names.cob_id(c).clone();
        let (from, to) = (mail.from, mail.to);
        match &mail.msg {
            Msg::Request(asked) => Item::Request(Request {
                asker: id(from),
                asked: id(to),
                number: asked.number,
                rev: asked.rev,
                set: self.names.state_names(&asked.set),
                rank: asked.rank,
                origin: id(asked.origin),
                fingerprint: asked.fingerprint,
                generation: Some(self.generation),
                failed: asked.failed,
            }),
            Msg::Release(n) => Item::Release(self.about(from, to, *n)),
            Msg::Query(n) => Item::Query(self.about(to, from, *n)),
            Msg::Released(n) => Item::Released(self.about(to, from, *n)),
            Msg::Recall(n) => Item::Recall(self.about(to, from, *n)),
            Msg::Invalidated(n) => Item::Invalidated(self.about(to, from, *n)),
            Msg::Grant(granted) => Item::Grant(Grant {
                asker: id(to),
                asked: id(from),
                number: granted.number,
                rev: granted.rev,
                state: self.names.state_name(granted.state).clone(),
                values: granted.values.as_ref().clone(),
                folder: self.peers.folder_of(self.names.host_of(to)),
            }),
            Msg::Refused { number, refusal } => Item::Refused(Refused {
                about: self.about(to, from, *number),
                reason: refusal.reason.to_string(),
                from: refusal.from.clone(),
            }),
            Msg::Probe(probe) => Item::Probe(Probe {
                to: id(to),
                initiator: id(probe.initiator),
                number: probe.number,
                generation: probe.generation,
                path: probe.path.iter().map(|c| id(*c)).collect(),
                more: probe.more,
                wide: probe.wide,
            }),
        }
    }

    /// A message of another host with interned names; `None` if this host may not send it to a local change object, or
    /// if it makes no sense.
    pub(super) fn as_mail(&mut self, host: HostRef, item: Item) -> Option<Mail> {
        let ((from, to), msg) = match item {
            Item::Request(r) => {
                let pair = self.pair(host, &r.asker, &r.asked)?;
                if r.set.is_empty() || r.set.len() > SET_MAX {
                    return None;
                }
                let set = r.set.iter().map(|s| self.names.state(s)).collect();
                let origin = self.names.cob(&r.origin);
                let Request { number, rev, rank, fingerprint, failed, .. } = r;
                (pair, Msg::Request(Asked { number, rev, set, rank, origin, fingerprint, failed }))
            }
            Item::Release(a) => (self.pair(host, &a.asker, &a.asked)?, Msg::Release(a.number)),
            Item::Released(a) => (self.pair(host, &a.asked, &a.asker)?, Msg::Released(a.number)),
            Item::Recall(a) => (self.pair(host, &a.asked, &a.asker)?, Msg::Recall(a.number)),
            Item::Query(a) => (self.pair(host, &a.asked, &a.asker)?, Msg::Query(a.number)),
            Item::Invalidated(a) => (self.pair(host, &a.asked, &a.asker)?, Msg::Invalidated(a.number)),
            Item::Grant(g) => {
                let pair = self.pair(host, &g.asked, &g.asker)?;
                if g.values.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_VALUES {
                    return None;
                }
                let state = self.names.state(&g.state);
                (pair, Msg::Grant(Granted { number: g.number, rev: g.rev, state, values: shared(g.values) }))
            }
            Item::Refused(r) => {
                let pair = self.pair(host, &r.about.asked, &r.about.asker)?;
                let reason = r.reason.chars().take(MAX_WHY).collect::<String>();
                let refusal = Refusal { reason: reason.into(), from: r.from };
                (pair, Msg::Refused { number: r.about.number, refusal })
            }
            Item::Probe(p) => {
                if p.path.len() > MAX_PROBE_PATH {
                    return None;
                }
                let pair = self.pair(host, p.path.last()?, &p.to)?;
                let initiator = self.names.cob(&p.initiator);
                let path = p.path.iter().map(|c| self.names.cob(c)).collect();
                let Probe { number, generation, more, wide, .. } = p;
                (pair, Msg::Probe(Probed { initiator, number, generation, path, more, wide }))
            }
            Item::Hello(_)
            | Item::HelloAck(_)
            | Item::AskDepartures(_)
            | Item::Departures(_)
            | Item::Going(_)
            | Item::Withdrawn(_)
            | Item::Through(_) => return None,
        };
        Some(Mail { from, to, msg })
    }

    /// The sender must be a change object of the sending host, the receiver a local one. Other names are not stored.
    fn pair(&mut self, host: HostRef, speaker: &CobId, listener: &CobId) -> Option<(CobRef, CobRef)> {
        let is_of = |cob: &CobId, host| cob.host_str() == self.names.host_name(host).as_str();
        let right = is_of(speaker, host) && is_of(listener, HostRef::HERE);
        right.then(|| (self.names.cob(speaker), self.names.cob(listener)))
    }
}
