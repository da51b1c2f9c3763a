//! Journal records in readable form: at most a few history entries for each record.

use cob_engine::record::{Body, Note, OrderRecord, Record};
use cob_engine::switch::SwitchRecord;
use cob_types::command_run::RunRecord;
use cob_types::history::{Facts, HistoryEntry};
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, HostName, Number, StateName};

/// The history entries of a record; empty if it has no meaning for people.
#[must_use]
pub fn entry(host: &HostName, seq: u64, record: &Record) -> Vec<HistoryEntry> {
    let base = HistoryEntry {
        ts_ns: record.at.0,
        host: host.clone(),
        seq,
        lamport: record.lamport,
        generation: record.generation,
        cob: None,
        event: String::new(),
        from: None,
        to: None,
        attempt: None,
        ok: None,
        detail: String::new(),
        heard_ns: None,
        facts: None,
    };
    let of = |event: &str, cob: &CobId| told(of(&base, cob), event, String::new());
    let one = match &record.body {
        Body::Snapshot(_) | Body::Unknown { .. } | Body::Epoch(_) => return Vec::new(),
        Body::Incarnation(life) => told(base, "daemon", format!("start {} of the daemon", life.start)),
        Body::SwitchStarted(generation) => about(base, "go", *generation, format!("to generation {generation}")),
        Body::Activated(generation) => {
            HistoryEntry { generation: *generation, ..told(base, "activate", String::new()) }
        }
        Body::Removed { cob, state, .. } => HistoryEntry { to: Some(state.clone()), ..of("gone", cob) },
        Body::Granted { cob, to, grant } => {
            let failed = if grant.failed { ", which has failed: no more tokens" } else { "" };
            let detail = format!("to {to} ({}){failed}", number(grant.number));
            HistoryEntry { to: Some(grant.state.clone()), ..lock(of("grant", cob), to, detail) }
        }
        Body::Returned { cob, from, number: n } => {
            lock(of("returned", cob), from, format!("by {from} ({})", number(*n)))
        }
        Body::Invalidated { cob, from, number: n } => HistoryEntry {
            detail: format!("the grant to {from} ({}): its host is not reachable, and the guard has fired", number(*n)),
            ..of("lapsed", cob)
        },
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
        Body::Checked { cob, state, drift, detail, unclear, .. } => HistoryEntry {
            to: state.clone(),
            ok: Some(state.is_some() && !unclear),
            detail: detail.clone(),
            ..of(if *drift { "drift" } else { "check" }, cob)
        },
        Body::Departed { cob } => of("final", cob),
        Body::DeparturesAnnounced { cobs } => told(base, "told-final", names(cobs)),
        Body::Settled(generation) => about(base, "settled", *generation, format!("generation {generation}")),
        Body::Ordered(order) => ordered(base, order),
        Body::Note { cob, note } => noted(self::of(&base, cob), note),
        // The `go` reports other targets.
        Body::Switch(SwitchRecord::Begun { to, left: None, terms, .. })
            if record.by.is_some() && terms.policy.is_default() =>
        {
            about(base, "terms", *to, format!("to generation {to}"))
        }
        Body::Switch(step) => match of_switch(base, step) {
            Some(entry) => entry,
            None => return Vec::new(),
        },
    };
    vec![with_author(one, record.by.as_deref())]
}

fn told(base: HistoryEntry, event: &str, detail: String) -> HistoryEntry {
    HistoryEntry { event: event.to_owned(), detail, ..base }
}

fn of(base: &HistoryEntry, cob: &CobId) -> HistoryEntry {
    HistoryEntry { cob: Some(cob.clone()), ..base.clone() }
}

fn about(base: HistoryEntry, event: &str, generation: GenerationNumber, detail: String) -> HistoryEntry {
    let facts = Some(Facts { generation: Some(generation), ..Facts::default() });
    HistoryEntry { facts, ..told(base, event, detail) }
}

fn lock(base: HistoryEntry, other: &CobId, detail: String) -> HistoryEntry {
    HistoryEntry { facts: Some(Facts { other: Some(other.clone()), ..Facts::default() }), detail, ..base }
}

/// The names of change objects, separated by blanks.
fn names(cobs: &[CobId]) -> String {
    cobs.iter().map(CobId::as_str).collect::<Vec<_>>().join(" ")
}

/// Adds the author of an order to its entry.
fn with_author(mut entry: HistoryEntry, by: Option<&str>) -> HistoryEntry {
    let Some(by) = by else { return entry };
    entry.detail.push_str(if entry.detail.is_empty() { "by " } else { ", by " });
    entry.detail.push_str(by);
    entry.facts.get_or_insert_default().by = Some(by.to_owned());
    entry
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
    // The time stamp is the end of the action, not the arrival of its result.
    let ts_ns = if span.1 == 0 { end.ts_ns } else { span.1.min(end.ts_ns) };
    let heard_ns = Some(end.ts_ns).filter(|heard| *heard != ts_ns);
    let detail = error.to_owned();
    let (from, to) = (Some(from.clone()), Some(to.clone()));
    let mut all = vec![HistoryEntry { ts_ns, from, to, attempt: Some(attempt), ok, detail, heard_ns, ..end }];
    if failed {
        let detail = format!("after {}", count(attempt, "attempt"));
        all.push(HistoryEntry { attempt: Some(attempt), detail, ..given_up });
    }
    all
}

fn ordered(base: HistoryEntry, order: &OrderRecord) -> HistoryEntry {
    let of = |cob: &CobId, event: &str, detail: String| told(of(&base, cob), event, detail);
    let plain = String::new;
    match order {
        OrderRecord::Pause => told(base, "pause", plain()),
        OrderRecord::Resume => told(base, "resume", plain()),
        OrderRecord::Retry(cob) => of(cob, "retry", plain()),
        OrderRecord::Prepare(generation) => about(base, "prepare", *generation, format!("generation {generation}")),
        OrderRecord::MarkDeparted(cob) => of(cob, "declare-final", plain()),
        OrderRecord::Cancel(generation) => {
            about(base, "cancel", *generation, format!("the switch to generation {generation}"))
        }
        OrderRecord::EndCancel => told(base, "unhold", "the cancelled switch has another target".to_owned()),
        OrderRecord::Discard(generation) => about(base, "call-off", *generation, format!("generation {generation}")),
        OrderRecord::Limit(at_most) => {
            let detail = at_most.map_or("none".to_owned(), |k| format!("{} at a time", count(k, "transition")));
            told(base, "limit", detail)
        }
        OrderRecord::LimitBudget(budget, at_most) => {
            of(budget, "limit", at_most.map_or("none".to_owned(), |k| count(k, "token")))
        }
        OrderRecord::RaiseBudget(budget, tokens) => {
            let until = |k| format!("{} until the next generation", count(k, "token"));
            of(budget, "raise", tokens.map_or("as the model says".to_owned(), until))
        }
        OrderRecord::Stop(cob, stopped) => {
            let event = if stopped.restart { "ordered-restart" } else { "ordered-stop" };
            let until = stopped.until_boot.then(|| "until the next boot".to_owned());
            of(cob, event, stopped.with.as_ref().map(|with| format!("with {with}")).or(until).unwrap_or_default())
        }
        OrderRecord::Reboot => told(base, "reboot", plain()),
        OrderRecord::Run(RunRecord::Begun { run, line, user }) => {
            let user = user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
            told(base, "run", format!("{run}{user}: {line}"))
        }
        OrderRecord::Run(RunRecord::Ended { run, end }) => {
            HistoryEntry { ok: Some(end.is_success()), ..told(base, "run-ended", format!("{run}: {end}")) }
        }
        OrderRecord::Start(cob) => of(cob, "ordered-start", plain()),
        OrderRecord::Only(hosts) => {
            let everywhere = hosts.is_empty();
            let names: Vec<_> = hosts.iter().map(HostName::as_str).collect();
            let alone = || format!("for {} alone", names.join(", "));
            let detail = if everywhere { "for everybody".to_owned() } else { alone() };
            HistoryEntry { facts: Some(Facts { everywhere, ..Facts::default() }), ..told(base, "only", detail) }
        }
        OrderRecord::Fence(host, _) => told(base, "fence", host.to_string()),
        OrderRecord::Resolve { cob, path, choice } => {
            of(cob, "resolve", path.as_ref().map_or_else(|| choice.clone(), |path| format!("{choice} in {path}")))
        }
        OrderRecord::Restore { cob, path, version } => of(cob, "restore", format!("{path} as in version {version}")),
    }
}

/// A step of a switch; absent if `go` and `activate` tell people the same.
fn of_switch(base: HistoryEntry, step: &SwitchRecord) -> Option<HistoryEntry> {
    Some(match step {
        SwitchRecord::Begun { to, left: Some(left), .. } => {
            about(base, "return", *to, format!("from generation {left} to {to}"))
        }
        SwitchRecord::Begun { to, terms, .. } if !terms.policy.is_default() => {
            about(base, "terms", *to, format!("to generation {to}, {}", in_words(terms.policy)))
        }
        SwitchRecord::Reterm(terms) => told(base, "terms", in_words(terms.policy)),
        SwitchRecord::Guarded(guard) if guard.left_ms == guard.ms && guard.restarts == 0 => {
            let again = if guard.extended { ", extended: most hosts are reached" } else { "" };
            told(base, "guard", format!("{} ms to reach others{again}", guard.ms))
        }
        SwitchRecord::Begun { .. } | SwitchRecord::Guarded(_) | SwitchRecord::Parted(_) | SwitchRecord::Through(_) => {
            return None;
        }
        SwitchRecord::Confirmed => told(base, "confirmed", "all required hosts are reached".to_owned()),
        SwitchRecord::Made { cob, from, to } => HistoryEntry {
            from: Some(from.clone()),
            to: Some(to.clone()),
            ..told(of(&base, cob), "irreversible", String::new())
        },
        SwitchRecord::Settled => told(base, "settled", String::new()),
        SwitchRecord::Withdrawn(generation, withdrawal) => {
            let detail = format!("generation {generation}, back to {}: {}", withdrawal.to, withdrawal.why);
            let ordered = withdrawal.ordered && !withdrawal.cancelled;
            let facts = Some(Facts { generation: Some(*generation), ordered, ..Facts::default() });
            HistoryEntry { facts, ..told(base, "withdraw", detail) }
        }
        SwitchRecord::Stopped { why } => told(base, "stopped", why.clone()),
        SwitchRecord::Reopened { by } => told(base, "reopened", format!("asked by {by} in the switch")),
        SwitchRecord::Quiet(true) => {
            told(base, "quiet", "the switch is not announced to other hosts any more".to_owned())
        }
        SwitchRecord::Quiet(false) => told(base, "spread", "the switch is announced to other hosts again".to_owned()),
        SwitchRecord::Waiting(Some(waiting)) => {
            let detail = format!("the switch to generation {} waits for maintenance windows", waiting.generation);
            told(base, "window-wait", detail)
        }
        SwitchRecord::Waiting(None) => told(base, "window-wait-ended", "the order that waited is dropped".to_owned()),
        SwitchRecord::IgnoresWindows(generation) => told(
            base,
            "windows-ignored",
            format!("the switch to generation {generation} starts outside the maintenance windows"),
        ),
    })
}

fn in_words(policy: SwitchPolicy) -> String {
    let on_failure = match policy.on_failure {
        OnFailure::Hold => "hold",
        OnFailure::Rollback => "rollback",
    };
    match policy.guard_ms {
        Some(ms) => format!("on failure: {on_failure}, guard: {ms} ms"),
        None => format!("on failure: {on_failure}"),
    }
}

fn noted(base: HistoryEntry, note: &Note) -> HistoryEntry {
    match note {
        Note::Requested { of, set } => {
            let states: Vec<_> = set.iter().map(StateName::as_str).collect();
            told(lock(base, of, String::new()), "request", format!("{of}@{}", states.join("|")))
        }
        Note::Released { of } => told(lock(base, of, String::new()), "release", of.to_string()),
        Note::Holds { of, state } => {
            HistoryEntry { to: Some(state.clone()), ..told(lock(base, of, String::new()), "hold", of.to_string()) }
        }
        Note::Recalled { from } => told(base, "recall", format!("from {from}")),
        Note::Invalidated { from } => told(base, "lapsed", format!("told to {from}")),
        Note::Broken { of } => {
            told(base, "broken", format!("the grant of {of}: the objects that relied on it are checked"))
        }
        Note::Stuck { circle, more } => {
            let names: Vec<_> = circle.iter().map(CobId::as_str).collect();
            told(base, "stuck", format!("{}{}", names.join(" -> "), if *more { " -> …" } else { "" }))
        }
        Note::Chase { of, times } => {
            told(base, "chase", format!("asked {of} {} and withdrew it", count(*times, "time")))
        }
        Note::Flap { state, times, because_of } => {
            let why = because_of.as_ref().map_or("its own preferred state".to_owned(), ToString::to_string);
            told(base, "flap", format!("left {state} {}, now because of {why}", count(*times, "time")))
        }
        Note::Ordered => told(base, "ordered", "goes by rank: a deadlock was found".to_owned()),
        Note::Overdrawn { by, at_most } => {
            let why = "the holders of its tokens can't return before this transition";
            told(base, "overdrawn", format!("a token beyond {at_most} for {by}: {why}"))
        }
    }
}

fn number(Number { start, counter }: Number) -> String {
    format!("{start}.{counter}")
}

fn locks(locks: &[cob_engine::record::LockRecord]) -> String {
    let all: Vec<_> = locks.iter().map(|l| format!("{}@{}", l.cob, l.state)).collect();
    if all.is_empty() { String::new() } else { format!("under {}", all.join(", ")) }
}

#[cfg(test)]
#[path = "../../cob-types/tests/support/facts.rs"]
mod facts;

#[cfg(test)]
mod tests {
    use cob_engine::Time;
    use cob_engine::switch::Withdrawal;
    use cob_types::codec;
    use cob_types::command_run::{RunEnd, RunExit, RunId};
    use serde::Serialize;

    use super::facts::with_facts;
    use super::*;

    fn shown(record: &Record) -> Vec<(String, String)> {
        let host = HostName::new("n1").expect("a name");
        entry(&host, 1, record).into_iter().map(|e| (e.event, e.detail)).collect()
    }

    fn told(event: &str, detail: &str) -> Vec<(String, String)> {
        vec![(event.to_owned(), detail.to_owned())]
    }

    #[test]
    fn orders_in_the_history_bear_the_name_of_their_author() {
        let ordered = |body: Body| {
            let by = Some("alice (operate)".to_owned());
            let record = Record { at: Time(5), lamport: 1, generation: GenerationNumber(7), body, by };
            let bytes = codec::encode_packed(&record).expect("encodes");
            assert_eq!(codec::decode::<Record>(&bytes, 4096).expect("decodes"), record);
            shown(&record)
        };
        let n2 = HostName::new("n2").expect("a name");
        assert_eq!(ordered(Body::Ordered(OrderRecord::Pause)), told("pause", "by alice (operate)"));
        assert_eq!(ordered(Body::Ordered(OrderRecord::Fence(n2, None))), told("fence", "n2, by alice (operate)"));
        assert_eq!(
            ordered(Body::SwitchStarted(GenerationNumber(8))),
            told("go", "to generation 8, by alice (operate)")
        );
        let cancel = Body::Ordered(OrderRecord::Cancel(GenerationNumber(8)));
        assert_eq!(ordered(cancel), told("cancel", "the switch to generation 8, by alice (operate)"));
        let discard = Body::Ordered(OrderRecord::Discard(GenerationNumber(8)));
        assert_eq!(ordered(discard), told("call-off", "generation 8, by alice (operate)"));
        let limit = Body::Ordered(OrderRecord::Limit(Some(2)));
        assert_eq!(ordered(limit), told("limit", "2 transitions at a time, by alice (operate)"));
        let (cob, path) = (CobId::new("n1/conf").expect("an id"), "/etc/x".to_owned());
        let choice = "ours".to_owned();
        let resolve = Body::Ordered(OrderRecord::Resolve { cob: cob.clone(), path: Some(path.clone()), choice });
        assert_eq!(ordered(resolve), told("resolve", "ours in /etc/x, by alice (operate)"));
        let restore = Body::Ordered(OrderRecord::Restore { cob, path, version: "4f5a".to_owned() });
        assert_eq!(ordered(restore), told("restore", "/etc/x as in version 4f5a, by alice (operate)"));
        let prepare = Body::Ordered(OrderRecord::Prepare(GenerationNumber(8)));
        assert_eq!(ordered(prepare), told("prepare", "generation 8, by alice (operate)"));
        let run = RunId::of(7);
        let begun = RunRecord::Begun { run, line: "id -u".to_owned(), user: Some("ann".to_owned()) };
        let line = "000000000007 as ann: id -u, by alice (operate)";
        assert_eq!(ordered(Body::Ordered(OrderRecord::Run(begun))), told("run", line));
    }

    #[test]
    fn the_history_shows_the_end_of_a_command_and_whether_it_succeeded() {
        let host = HostName::new("n1").expect("a name");
        for (exit, ok) in [(RunExit::Exited(0), true), (RunExit::Exited(3), false), (RunExit::DaemonEnded, false)] {
            let end = RunEnd { exit, took_ms: Some(1200), cut: None };
            let detail = format!("000000000007: {end}");
            let body = Body::Ordered(OrderRecord::Run(RunRecord::Ended { run: RunId::of(7), end }));
            let record = Record { at: Time(5), lamport: 1, generation: GenerationNumber(7), body, by: None };
            let entry = entry(&host, 1, &record).remove(0);
            assert_eq!((entry.event.as_str(), entry.ok, entry.detail), ("run-ended", Some(ok), detail));
        }
    }

    #[test]
    fn facts_and_texts_of_older_daemons_give_the_same_history() {
        let host = HostName::new("n1").expect("a name");
        let eight = GenerationNumber(8);
        let (cob, other) = (CobId::new("n1/db").expect("an id"), CobId::new("n2/app").expect("an id"));
        let up = StateName::new("up").expect("a state");
        let note = |note: Note| Body::Note { cob: cob.clone(), note };
        let withdrawn = |ordered, cancelled, why: &str| {
            let (to, round, why) = (GenerationNumber(7), 1, why.to_owned());
            Body::Switch(SwitchRecord::Withdrawn(
                eight,
                Withdrawal { to, round, ordered, why, cancelled, heard: false },
            ))
        };
        let bodies = [
            Body::SwitchStarted(eight),
            Body::Settled(eight),
            Body::Ordered(OrderRecord::Prepare(eight)),
            Body::Ordered(OrderRecord::Cancel(eight)),
            Body::Ordered(OrderRecord::Discard(eight)),
            Body::Ordered(OrderRecord::Only([].into())),
            Body::Ordered(OrderRecord::Only([host.clone()].into())),
            withdrawn(true, false, "ordered by bob"),
            withdrawn(true, true, "cancelled by bob"),
            withdrawn(false, false, "n1/x has failed"),
            note(Note::Released { of: other.clone() }),
            note(Note::Holds { of: other.clone(), state: up.clone() }),
            note(Note::Requested { of: other.clone(), set: vec![up] }),
            Body::Returned { cob: cob.clone(), from: other.clone(), number: Number { start: 1, counter: 7 } },
        ];
        for body in bodies {
            let by = Some("alice (operate), for \"generation 9, by bob\"".to_owned());
            let ordered = matches!(body, Body::Ordered(_) | Body::SwitchStarted(_) | Body::Settled(_));
            let by = by.filter(|_| ordered);
            let record = Record { at: Time(5), lamport: 1, generation: GenerationNumber(7), body, by: by.clone() };
            let entry = entry(&host, 1, &record).remove(0);
            let told = with_facts(entry.clone());
            assert!(entry.facts.is_some() && entry.happened() == told.happened(), "{entry:?}");
            if ordered {
                assert_eq!((entry.author(), told.author()), (by.as_deref(), by.as_deref()), "{entry:?}");
            }
        }
    }

    #[test]
    fn records_without_the_name_of_an_author_are_read() {
        /// A record of a version without names.
        #[derive(Serialize)]
        struct Nameless {
            at: Time,
            lamport: u64,
            generation: GenerationNumber,
            body: Body,
        }
        let old = Nameless {
            at: Time(5),
            lamport: 1,
            generation: GenerationNumber(7),
            body: Body::Ordered(OrderRecord::Resume),
        };
        let bytes = codec::encode_packed(&old).expect("encodes");
        let record: Record = codec::decode(&bytes, 4096).expect("an old record is read");
        assert_eq!((record.by.clone(), shown(&record)), (None, told("resume", "")));
        assert_eq!(codec::encode_packed(&record).expect("encodes"), bytes, "and written alike");
    }
}
