//! The picture of the cluster, and what changes in it: a pure function of the daemons' statuses.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::status::{ClusterStatus, CobStatus, HostStatus, Phase, Trouble};
use cob_types::{CobId, GenerationNumber, HostName, StateName};

use super::layout::place;
use super::message::{
    Class, Cluster, Columns, DEPARTS, DRIFT, Delta, Graph, Host, Message, OBSERVED, Order, Row, Snapshot, Switch,
    TROUBLE,
};
use crate::commands::{host_in_words, needs_a_person};
use crate::verdict::{is_converged, is_left_there};
use crate::words::{clean, window_wait};

/// The largest difference of a host's clock that stays without a correction, in milliseconds: smaller ones are delays of
/// the answers.
const JITTER: i64 = 1000;

/// The input of the graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// The generation.
    pub generation: Option<GenerationNumber>,
    /// Pairs of a change object and another change object that the first needs.
    pub pairs: BTreeSet<(CobId, CobId)>,
    /// Why the pairs are not known.
    pub missing: Option<String>,
}

/// Names, each with a number.
#[derive(Debug, Clone, Default)]
struct Names {
    all: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Names {
    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }

    fn state(&mut self, state: Option<&StateName>) -> i64 {
        state.map_or(-1, |state| i64::try_from(self.number(state.as_str())).unwrap_or(-1))
    }
}

/// A change object in the picture.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kind: usize,
    row: Row,
}

/// A change object of the picture, with names instead of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Object<'a> {
    /// Its id.
    pub id: &'a CobId,
    /// Its kind.
    pub kind: &'a str,
    /// Its state, if known.
    pub state: Option<&'a str>,
    /// Its desired state, if known.
    pub target: Option<&'a str>,
    /// Its activity.
    pub class: Class,
    /// Its flags.
    pub flags: u8,
    /// Since when it has this state and phase, in milliseconds since 1970 by the clock of this machine.
    pub since_ms: u64,
}

/// The picture that all tabs have.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    seq: u64,
    cluster: Cluster,
    hosts: BTreeMap<HostName, Host>,
    cobs: BTreeMap<CobId, Seen>,
    kinds: Names,
    states: Names,
    drawn: Drawn,
    graph: Graph,
    orders: Vec<Order>,
    /// How far each host's clock is behind ours, in milliseconds.
    behind_ms: BTreeMap<HostName, i64>,
}

/// The input of the picture.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// The statuses.
    pub status: &'a ClusterStatus,
    /// The cluster as a whole.
    pub cluster: Cluster,
    /// The time of this machine, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Picture {
    /// The number of the last message.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The hosts, by name.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values()
    }

    /// The cluster as a whole.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The change objects, by id.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        let state = |number: i64| self.states.all.get(usize::try_from(number).ok()?).map(String::as_str);
        self.cobs.iter().map(move |(id, Seen { kind, row })| Object {
            id,
            kind: &self.kinds.all[*kind],
            state: state(row.1),
            target: state(row.2),
            class: Class::of(row.3),
            flags: row.4,
            since_ms: row.5,
        })
    }

    /// Takes the input of the graph; returns whether the input is new.
    pub(crate) fn take_drawn(&mut self, drawn: Drawn) -> bool {
        let is_new = self.drawn != drawn;
        if is_new {
            self.drawn = drawn;
            self.draw();
        }
        is_new
    }

    /// Takes the present statuses and orders. Returns the message for the tabs, if something has changed.
    pub(crate) fn take(&mut self, view: View<'_>, orders: Vec<Order>, is_redrawn: bool) -> Option<Message> {
        let known_states = self.states.all.len();
        let mut delta = Delta::default();
        if self.cluster != view.cluster {
            self.cluster = view.cluster;
            delta.cluster = Some(self.cluster.clone());
        }
        let (cobs, hosts) = self.look(view.status, view.now_ms);
        let is_new = |(name, host): &(&HostName, &Host)| self.hosts.get(*name) != Some(*host);
        delta.hosts = hosts.iter().filter(is_new).map(|(_, host)| host.clone()).collect();
        delta.orders = orders.iter().filter(|order| !self.orders.contains(order)).cloned().collect();
        let is_other_set = !cobs.keys().eq(self.cobs.keys())
            || !hosts.keys().eq(self.hosts.keys())
            || cobs.values().zip(self.cobs.values()).any(|(new, old)| new.kind != old.kind);
        delta.cobs =
            cobs.iter().filter(|(id, seen)| self.cobs.get(*id) != Some(*seen)).map(|(_, s)| s.row.clone()).collect();
        (self.cobs, self.hosts, self.orders) = (cobs, hosts, orders);
        if is_other_set {
            self.draw();
        }
        if is_other_set || is_redrawn {
            self.seq += 1;
            return Some(self.snapshot());
        }
        if delta.is_empty() {
            return None;
        }
        self.seq += 1;
        delta.seq = self.seq;
        delta.states = self.states.all[known_states..].to_vec();
        Some(Message::Delta(Box::new(delta)))
    }

    /// The whole picture.
    pub(crate) fn snapshot(&self) -> Message {
        let rows = || self.cobs.values().map(|seen| &seen.row);
        let cobs = Columns {
            id: self.cobs.keys().map(ToString::to_string).collect(),
            kinds: self.kinds.all.clone(),
            kind: self.cobs.values().map(|seen| seen.kind).collect(),
            states: self.states.all.clone(),
            state: rows().map(|row| row.1).collect(),
            target: rows().map(|row| row.2).collect(),
            class: rows().map(|row| row.3).collect(),
            flags: rows().map(|row| row.4).collect(),
            since_ms: rows().map(|row| row.5).collect(),
            waits: rows().filter(|row| !row.6.is_empty()).map(|row| (row.0, row.6.clone())).collect(),
        };
        Message::Snapshot(Box::new(Snapshot {
            seq: self.seq,
            cluster: self.cluster.clone(),
            hosts: self.hosts.values().cloned().collect(),
            cobs,
            graph: self.graph.clone(),
            orders: self.orders.clone(),
        }))
    }

    /// The change objects and hosts of a status. A host that does not answer keeps the change objects that it had.
    fn look(&mut self, status: &ClusterStatus, now_ms: u64) -> (BTreeMap<CobId, Seen>, BTreeMap<HostName, Host>) {
        let mut ids: BTreeSet<&CobId> = BTreeSet::new();
        let mut kept = BTreeMap::new();
        for host in &status.hosts {
            ids.extend(host.cobs.iter().map(|cob| &cob.id));
            if !host.reachable {
                let own = self.cobs.iter().filter(|(id, _)| id.host_str() == host.name.as_str());
                kept.extend(own.map(|(id, seen)| (id.clone(), seen.clone())));
            }
        }
        ids.extend(kept.keys());
        let numbers: BTreeMap<CobId, usize> = ids.into_iter().cloned().zip(0..).collect();
        let mut cobs = BTreeMap::new();
        let mut hosts = BTreeMap::new();
        for host in &status.hosts {
            let behind = self.behind(host, now_ms);
            let mut counts = [0; Class::ALL];
            for cob in &host.cobs {
                let class = class(cob);
                counts[class as usize] += 1;
                let row = Row(
                    numbers[&cob.id],
                    self.states.state(cob.state.as_ref()),
                    self.states.state(cob.target.as_ref()),
                    class as u8,
                    flags(cob),
                    (cob.since_ns / 1_000_000).saturating_add_signed(behind),
                    waits(cob, &numbers),
                );
                cobs.insert(cob.id.clone(), Seen { kind: self.kinds.number(&cob.kind), row });
            }
            if !host.reachable {
                for (id, seen) in kept.iter().filter(|(id, _)| id.host_str() == host.name.as_str()) {
                    counts[Class::Unknown as usize] += 1;
                    let row = Row(numbers[id], -1, -1, Class::Unknown as u8, 0, seen.row.5, Vec::new());
                    cobs.insert(id.clone(), Seen { kind: seen.kind, row });
                }
            }
            hosts.insert(host.name.clone(), in_view(host, counts));
        }
        (cobs, hosts)
    }

    /// How far the clock of a host is behind ours.
    fn behind(&mut self, host: &HostStatus, now_ms: u64) -> i64 {
        if !host.reachable {
            return 0;
        }
        let at = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let now = at(now_ms).saturating_sub(at(host.now_ns / 1_000_000));
        let known = self.behind_ms.entry(host.name.clone()).or_insert(if now.abs() < JITTER { 0 } else { now });
        if now.saturating_sub(*known).abs() >= JITTER {
            *known = now;
        }
        *known
    }

    /// Draws the graph of the present change objects.
    fn draw(&mut self) {
        let numbers: BTreeMap<&CobId, usize> = self.cobs.keys().zip(0..).collect();
        let known = |(a, b): &(CobId, CobId)| Some((*numbers.get(a)?, *numbers.get(b)?));
        let pairs: Vec<(usize, usize)> = self.drawn.pairs.iter().filter_map(known).collect();
        let hosts: Vec<&str> = self.cobs.keys().map(CobId::host_str).collect();
        let places = place(&hosts, &pairs);
        self.graph = Graph {
            generation: self.drawn.generation,
            needs: pairs.into_iter().flat_map(|(a, b)| [a, b]).collect(),
            x: places.x,
            y: places.y,
            bands: places.bands,
            missing: self.drawn.missing.clone(),
        };
    }
}

/// The class of a change object.
pub(crate) fn class(cob: &CobStatus) -> Class {
    match cob.phase {
        _ if needs_a_person(cob) => Class::Failed,
        Phase::Checking if cob.state.is_some() && is_converged(cob) => Class::Settled,
        Phase::Checking | Phase::Moving => Class::Moving,
        _ if cob.stopped.is_some() => Class::Stopped,
        Phase::Waiting => Class::Waiting,
        Phase::Settled if is_converged(cob) || is_left_there(cob) => Class::Settled,
        Phase::Settled => Class::Waiting,
    }
}

fn flags(cob: &CobStatus) -> u8 {
    let drifts = !cob.drift.is_empty() || cob.is_in_conflict();
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    flag(drifts, DRIFT)
        | flag(cob.trouble.iter().any(|t| !matches!(t, Trouble::Other)), TROUBLE)
        | flag(cob.observed, OBSERVED)
        | flag(cob.retiring, DEPARTS)
}

fn waits(cob: &CobStatus, numbers: &BTreeMap<CobId, usize>) -> Vec<usize> {
    let mut on: Vec<usize> = cob.waits_for.iter().filter_map(|wait| numbers.get(wait.on()?).copied()).collect();
    on.sort_unstable();
    on.dedup();
    on
}

fn in_view(host: &HostStatus, counts: [u64; Class::ALL]) -> Host {
    let (mark, words) = host_in_words(host);
    Host {
        name: host.name.to_string(),
        reachable: host.reachable,
        error: host.error.as_deref().map(clean),
        generation: host.generation,
        switching_to: host.goal(),
        converged: host.converged,
        paused: host.paused,
        held: host.held,
        words,
        mark,
        peers_down: host.peers.iter().filter(|p| !p.up).map(|p| p.host.to_string()).collect(),
        counts,
        switch: host.switch.as_ref().map(|switch| Switch {
            to: switch.to,
            stage: switch.stage,
            why: clean(&switch.why),
            left: switch.left,
        }),
        waits_for_window: host.window_wait.as_ref().map(window_wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, cluster, failed, host, id, lock, moving, settled, waiting};

    /// The time of this machine: that of the hosts.
    const NOW_MS: u64 = NOW / 1_000_000;

    fn take(picture: &mut Picture, hosts: Vec<HostStatus>) -> Option<Message> {
        let status = cluster(hosts);
        picture.take(View { status: &status, cluster: Cluster::default(), now_ms: NOW_MS }, Vec::new(), false)
    }

    fn snapshot(message: Option<Message>) -> Snapshot {
        match message {
            Some(Message::Snapshot(snapshot)) => *snapshot,
            other @ (Some(Message::Delta(_) | Message::Idle { .. }) | None) => panic!("a snapshot, not {other:?}"),
        }
    }

    fn delta(message: Option<Message>) -> Delta {
        match message {
            Some(Message::Delta(delta)) => *delta,
            other @ (Some(Message::Snapshot(_) | Message::Idle { .. }) | None) => panic!("a delta, not {other:?}"),
        }
    }

    #[test]
    fn a_change_is_sent_as_a_row_and_no_change_sends_no_message() {
        let mut picture = Picture::default();
        let before = || vec![host("n1", 7, vec![settled("n1/db", "up")]), host("n2", 7, vec![settled("n2/app", "up")])];
        let first = snapshot(take(&mut picture, before()));
        assert_eq!(first.cobs.id, ["n1/db", "n2/app"]);
        assert_eq!((first.seq, &first.cobs.class[..]), (1, &[0, 0][..]));
        assert_eq!(take(&mut picture, before()), None);
        let waits = waiting("n2/app", "down", "up", vec![lock("n1/db", "up")]);
        let changed = delta(take(
            &mut picture,
            vec![host("n1", 7, vec![moving("n1/db", "down", "up")]), host("n2", 7, vec![waits])],
        ));
        assert_eq!(changed.seq, 2);
        assert_eq!(changed.states, ["down"], "the new name of a state");
        let classes: Vec<_> = changed.cobs.iter().map(|row| (row.0, row.1, row.3, row.6.clone())).collect();
        assert_eq!(classes, [(0, 1, Class::Moving as u8, vec![]), (1, 1, Class::Waiting as u8, vec![0])]);
        assert_eq!(changed.hosts.len(), 2, "their counts have changed");
    }

    #[test]
    fn a_host_that_is_lost_keeps_its_change_objects_as_unknown() {
        let mut picture = Picture::default();
        let up = || host("n1", 7, vec![settled("n1/db", "up"), failed("n1/app", "down", "up")]);
        assert_eq!(snapshot(take(&mut picture, vec![up()])).hosts[0].counts, [1, 0, 0, 1, 0, 0]);
        let lost = crate::gather::unreachable(HostName::new("n1").expect("a name"), "no answer".to_owned());
        let message = delta(take(&mut picture, vec![lost.clone()]));
        let rows: Vec<_> = message.cobs.iter().map(|row| (row.0, row.1, row.3)).collect();
        assert_eq!(rows, [(0, -1, Class::Unknown as u8), (1, -1, Class::Unknown as u8)]);
        assert_eq!(message.hosts[0].counts, [0, 0, 0, 0, 0, 2]);
        assert_eq!(take(&mut picture, vec![lost]), None);
        assert_eq!(delta(take(&mut picture, vec![up()])).hosts[0].counts, [1, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn another_set_of_change_objects_is_a_new_snapshot_with_its_graph() {
        let mut picture = Picture::default();
        take(&mut picture, vec![host("n1", 7, vec![settled("n1/app", "up")])]);
        let pairs = BTreeSet::from([(id("n1/app"), id("n1/db")), (id("n1/app"), id("n9/away"))]);
        let needs = Drawn { generation: Some(GenerationNumber(8)), pairs, missing: None };
        assert!(picture.take_drawn(needs.clone()));
        assert!(!picture.take_drawn(needs));
        let both = vec![settled("n1/app", "up"), settled("n1/db", "up")];
        let new = snapshot(take(&mut picture, vec![host("n1", 8, both)]));
        assert_eq!(new.graph.needs, [0, 1], "only of what exists");
        assert!(new.graph.x[0] > new.graph.x[1], "it is to the right of what it needs");
        assert_eq!(new.graph.bands.len(), 1);
    }

    #[test]
    fn times_follow_the_local_clock_and_ignore_delays() {
        let mut picture = Picture::default();
        let of = |now_ns| HostStatus { now_ns, ..host("n1", 7, vec![settled("n1/db", "up")]) };
        let ahead = 600_000_000_000;
        let first = snapshot(take(&mut picture, vec![of(NOW + ahead)]));
        assert_eq!(first.cobs.since_ms, [NOW_MS - 180_000 - 600_000]);
        assert_eq!(take(&mut picture, vec![of(NOW + ahead + 40_000_000)]), None, "a delay is no change");
    }
}
