//! Journal records as people read them: one history entry a record, where there is something to tell.

use cob_engine::record::{Body, Note, OrderRecord, Record};
use cob_types::history::HistoryEntry;
use cob_types::{CobId, HostName, Number, StateName};

/// The history entry of a record; none where it tells people nothing.
#[must_use]
pub fn entry(host: &HostName, seq: u64, record: &Record) -> Vec<HistoryEntry> {
    let base = |event: &str| HistoryEntry {
        ts_ns: record.at.0,
        host: host.clone(),
        seq,
        lamport: record.lamport,
        generation: record.generation,
        cob: None,
        event: event.to_owned(),
        from: None,
        to: None,
        attempt: None,
        ok: None,
        detail: String::new(),
    };
    let of = |event: &str, cob: &CobId| HistoryEntry { cob: Some(cob.clone()), ..base(event) };
    let one = match &record.body {
        Body::Snapshot(_) | Body::Unknown { .. } => return Vec::new(),
        Body::Life(life) => HistoryEntry { detail: format!("start {} of the daemon", life.start), ..base("daemon") },
        Body::Go(generation) => HistoryEntry { detail: format!("to generation {generation}"), ..base("go") },
        Body::Activated(generation) => HistoryEntry { generation: *generation, ..base("activate") },
        Body::Gone { cob, state } => HistoryEntry { to: Some(state.clone()), ..of("gone", cob) },
        Body::Granted { cob, to, grant } => HistoryEntry {
            to: Some(grant.state.clone()),
            detail: format!("to {to} ({})", number(grant.number)),
            ..of("grant", cob)
        },
        Body::Returned { cob, from, number: n } => {
            HistoryEntry { detail: format!("by {from} ({})", number(*n)), ..of("returned", cob) }
        }
        Body::Begun { cob, begun } => HistoryEntry {
            from: Some(begun.from.clone()),
            to: Some(begun.to.clone()),
            attempt: Some(begun.attempt),
            detail: locks(&begun.locks),
            ..of("start", cob)
        },
        Body::Ended { cob, from, to, attempt, ok, error, span, failed, .. } => {
            return ended(of("end", cob), of("failed", cob), (from, to), *attempt, *ok, error, *span, *failed);
        }
        Body::Checked { cob, state, drift, detail, .. } => HistoryEntry {
            to: state.clone(),
            ok: Some(state.is_some()),
            detail: detail.clone(),
            ..of(if *drift { "drift" } else { "check" }, cob)
        },
        Body::Ordered(order) => ordered(base("order"), order),
        Body::Note { cob, note } => noted(of("", cob), note),
    };
    vec![one]
}

#[expect(clippy::too_many_arguments, reason = "one record's fields, used in one place")]
fn ended(
    end: HistoryEntry,
    given_up: HistoryEntry,
    (from, to): (&StateName, &StateName),
    attempt: u32,
    ok: Option<bool>,
    error: &str,
    span: (u64, u64),
    failed: bool,
) -> Vec<HistoryEntry> {
    // Stamped when the action itself ended, not when the daemon heard of it.
    let ts_ns = if span.1 == 0 { end.ts_ns } else { span.1.min(end.ts_ns) };
    let detail = error.to_owned();
    let (from, to) = (Some(from.clone()), Some(to.clone()));
    let mut all = vec![HistoryEntry { ts_ns, from, to, attempt: Some(attempt), ok, detail, ..end }];
    if failed {
        let detail = format!("after {attempt} attempts");
        all.push(HistoryEntry { attempt: Some(attempt), detail, ..given_up });
    }
    all
}

fn ordered(base: HistoryEntry, order: &OrderRecord) -> HistoryEntry {
    match order {
        OrderRecord::Pause => HistoryEntry { event: "pause".to_owned(), ..base },
        OrderRecord::Resume => HistoryEntry { event: "resume".to_owned(), ..base },
        OrderRecord::Retry(cob) => HistoryEntry { event: "retry".to_owned(), cob: Some(cob.clone()), ..base },
        OrderRecord::Fence(host, _) => HistoryEntry { event: "fence".to_owned(), detail: host.to_string(), ..base },
    }
}

fn noted(of: HistoryEntry, note: &Note) -> HistoryEntry {
    let with = |event: &str, to: Option<StateName>, detail: String| HistoryEntry {
        event: event.to_owned(),
        to,
        detail,
        ..of.clone()
    };
    match note {
        Note::Requested { of, set } => {
            let states: Vec<_> = set.iter().map(StateName::as_str).collect();
            with("request", None, format!("{of}@{}", states.join("|")))
        }
        Note::Released { of } => with("release", None, of.to_string()),
        Note::Holds { of, state } => with("hold", Some(state.clone()), of.to_string()),
        Note::Recalled { from } => with("recall", None, format!("from {from}")),
        Note::Lapsed { from } => with("lapsed", None, format!("told to {from}")),
        Note::Stuck { circle, more } => {
            let names: Vec<_> = circle.iter().map(CobId::as_str).collect();
            with("stuck", None, format!("{}{}", names.join(" -> "), if *more { " -> …" } else { "" }))
        }
        Note::Chase { of, times } => with("chase", None, format!("asked {of} {times} times and withdrew it")),
        Note::Flap { state, times, because_of } => {
            let why = because_of.as_ref().map_or("its own preferred state".to_owned(), ToString::to_string);
            with("flap", None, format!("left {state} {times} times, now because of {why}"))
        }
        Note::Ordered => with("ordered", None, "goes by rank: a circle of waiters was found".to_owned()),
    }
}

fn number(n: Number) -> String {
    format!("{}.{}", n.start, n.counter)
}

fn locks(locks: &[cob_engine::record::HeldLock]) -> String {
    let all: Vec<_> = locks.iter().map(|l| format!("{}@{}", l.cob, l.state)).collect();
    if all.is_empty() { String::new() } else { format!("under {}", all.join(", ")) }
}
