//! Builders of values for tests.

use cob_types::history::{Facts, HistoryEntry};
use cob_types::status::{ActionStatus, ClusterStatus, CobStatus, HostStatus, Phase, Wait};
use cob_types::{CobId, GenerationNumber, HostName, StateName};

#[path = "../../../cob-types/tests/support/facts.rs"]
mod facts;
pub(crate) use facts::with_facts;

/// The time on every host's clock: 1000 s.
pub(crate) const NOW: u64 = 1_000_000_000_000;

pub(crate) fn s(seconds: u64) -> u64 {
    seconds * 1_000_000_000
}

pub(crate) fn id(text: &str) -> CobId {
    CobId::new(text).expect("an id")
}

pub(crate) fn state(text: &str) -> StateName {
    StateName::new(text).expect("a state")
}

pub(crate) fn host(name: &str, generation: u64, cobs: Vec<CobStatus>) -> HostStatus {
    HostStatus {
        reachable: true,
        generation: Some(GenerationNumber(generation)),
        converged: true,
        says_final: true,
        boots: 0,
        now_ns: NOW,
        cobs,
        ..HostStatus::unknown(HostName::new(name).expect("a name"))
    }
}

pub(crate) fn cluster(hosts: Vec<HostStatus>) -> ClusterStatus {
    ClusterStatus { hosts, ..ClusterStatus::default() }
}

pub(crate) fn settled(cob: &str, at: &str) -> CobStatus {
    CobStatus {
        id: id(cob),
        kind: "service".to_owned(),
        state: Some(state(at)),
        target: Some(state(at)),
        preferred: state(at),
        phase: Phase::Settled,
        since_ns: NOW - s(180),
        failed: false,
        retiring: false,
        waits_for: Vec::new(),
        action: None,
        trouble: Vec::new(),
        held_by: Vec::new(),
        observed: false,
        drift: Vec::new(),
        stopped: None,
    }
}

pub(crate) fn waiting(cob: &str, from: &str, to: &str, waits_for: Vec<Wait>) -> CobStatus {
    CobStatus { state: Some(state(from)), phase: Phase::Waiting, since_ns: NOW - s(12), waits_for, ..settled(cob, to) }
}

pub(crate) fn moving(cob: &str, from: &str, to: &str) -> CobStatus {
    CobStatus {
        phase: Phase::Moving,
        since_ns: NOW - 3_200_000_000,
        action: Some(ActionStatus {
            from: Some(state(from)),
            to: Some(state(to)),
            attempt: 2,
            of: 3,
            running: true,
            since_ns: NOW - 3_200_000_000,
            error: String::new(),
            last_line: "waiting for port 5432".to_owned(),
            earlier_content: false,
            conflict: false,
        }),
        ..waiting(cob, from, to, vec![])
    }
}

pub(crate) fn failed(cob: &str, from: &str, to: &str) -> CobStatus {
    CobStatus {
        failed: true,
        action: Some(ActionStatus {
            from: Some(state(from)),
            to: Some(state(to)),
            attempt: 3,
            of: 3,
            running: false,
            since_ns: NOW - s(20),
            error: "exit status 1".to_owned(),
            last_line: "port 5432 is taken".to_owned(),
            earlier_content: false,
            conflict: false,
        }),
        ..waiting(cob, from, to, vec![Wait::Failed])
    }
}

pub(crate) fn lock(cob: &str, wanted: &str) -> Wait {
    Wait::Lock {
        cob: id(cob),
        states: vec![state(wanted)],
        since_ns: NOW - s(12),
        recalled: false,
        refused: None,
        refused_in: None,
    }
}

pub(crate) fn grant(cob: &str, held: &str) -> Wait {
    Wait::Grant { cob: id(cob), state: state(held), since_ns: NOW - s(5) }
}

pub(crate) fn entry(host: &str, seq: u64, lamport: u64, ts_ns: u64) -> HistoryEntry {
    HistoryEntry {
        ts_ns,
        host: HostName::new(host).expect("a name"),
        seq,
        lamport,
        generation: GenerationNumber(7),
        cob: None,
        event: "activate".to_owned(),
        from: None,
        to: None,
        attempt: None,
        ok: None,
        detail: String::new(),
        heard_ns: None,
        facts: None,
    }
}
