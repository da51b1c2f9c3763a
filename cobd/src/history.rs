//! Journal records in readable form: at most a few history entries for each record.

use cob_engine::record::{Body, Note, OrderRecord, Record};
use cob_engine::switch::SwitchRecord;
use cob_types::command_run::RunRecord;
use cob_types::history::HistoryEntry;
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::words::count;
use cob_types::{CobId, HostName, Number, StateName};

/// The history entries of a record; empty if it has no meaning for people.
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
        heard_ns: None,
    };
    let of = |event: &str, cob: &CobId| HistoryEntry { cob: Some(cob.clone()), ..base(event) };
    let one = match &record.body {
        Body::Snapshot(_) | Body::Unknown { .. } | Body::Epoch(_) => return Vec::new(),
        Body::Incarnation(life) => {
            HistoryEntry { detail: format!("start {} of the daemon", life.start), ..base("daemon") }
        }
        Body::SwitchStarted(generation) => HistoryEntry { detail: format!("to generation {generation}"), ..base("go") },
        Body::Activated(generation) => HistoryEntry { generation: *generation, ..base("activate") },
        Body::Removed { cob, state, .. } => HistoryEntry { to: Some(state.clone()), ..of("gone", cob) },
        Body::Granted { cob, to, grant } => HistoryEntry {
            to: Some(grant.state.clone()),
            detail: if grant.failed {
                format!("to {to} ({}), which has failed: no more tokens", number(grant.number))
            } else {
                format!("to {to} ({})", number(grant.number))
            },
            ..of("grant", cob)
        },
        Body::Returned { cob, from, number: n } => {
            HistoryEntry { detail: format!("by {from} ({})", number(*n)), ..of("returned", cob) }
        }
        Body::Lapsed { cob, from, number: n } => HistoryEntry {
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
        Body::DeparturesAnnounced { cobs } => HistoryEntry { detail: names(cobs), ..base("told-final") },
        Body::Settled(generation) => HistoryEntry { detail: format!("generation {generation}"), ..base("settled") },
        Body::Ordered(order) => ordered(base("order"), order),
        Body::Note { cob, note } => noted(of("", cob), note),
        // The `go` reports other targets.
        Body::Switch(SwitchRecord::Begun { to, left: None, terms, .. })
            if record.by.is_some() && terms.policy.is_default() =>
        {
            HistoryEntry { detail: format!("to generation {to}"), ..base("terms") }
        }
        Body::Switch(step) => match of_switch(base("switch"), step) {
            Some(entry) => entry,
            None => return Vec::new(),
        },
    };
    vec![with_author(one, record.by.as_deref())]
}

/// The names of change objects, separated by blanks.
fn names(cobs: &[CobId]) -> String {
    cobs.iter().map(CobId::as_str).collect::<Vec<_>>().join(" ")
}

/// Adds the author of an order to its entry.
fn with_author(entry: HistoryEntry, by: Option<&str>) -> HistoryEntry {
    let Some(by) = by else { return entry };
    let detail = if entry.detail.is_empty() { format!("by {by}") } else { format!("{}, by {by}", entry.detail) };
    HistoryEntry { detail, ..entry }
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
    match order {
        OrderRecord::Pause => HistoryEntry { event: "pause".to_owned(), ..base },
        OrderRecord::Resume => HistoryEntry { event: "resume".to_owned(), ..base },
        OrderRecord::Retry(cob) => HistoryEntry { event: "retry".to_owned(), cob: Some(cob.clone()), ..base },
        OrderRecord::Prepare(generation) => {
            HistoryEntry { event: "prepare".to_owned(), detail: format!("generation {generation}"), ..base }
        }
        OrderRecord::MarkRemoved(cob) => {
            HistoryEntry { event: "declare-final".to_owned(), cob: Some(cob.clone()), ..base }
        }
        OrderRecord::Cancel(generation) => HistoryEntry {
            event: "cancel".to_owned(),
            detail: format!("the switch to generation {generation}"),
            ..base
        },
        OrderRecord::EndCancel => {
            let detail = "the cancelled switch has another target".to_owned();
            HistoryEntry { event: "unhold".to_owned(), detail, ..base }
        }
        OrderRecord::Discard(generation) => {
            HistoryEntry { event: "call-off".to_owned(), detail: format!("generation {generation}"), ..base }
        }
        OrderRecord::Limit(at_most) => {
            let detail = at_most.map_or("none".to_owned(), |k| format!("{} at a time", count(k, "transition")));
            HistoryEntry { event: "limit".to_owned(), detail, ..base }
        }
        OrderRecord::LimitBudget(budget, at_most) => {
            let detail = at_most.map_or("none".to_owned(), |k| count(k, "token"));
            HistoryEntry { event: "limit".to_owned(), cob: Some(budget.clone()), detail, ..base }
        }
        OrderRecord::RaiseBudget(budget, tokens) => {
            let until = |k| format!("{} until the next generation", count(k, "token"));
            let detail = tokens.map_or("as the model says".to_owned(), until);
            HistoryEntry { event: "raise".to_owned(), cob: Some(budget.clone()), detail, ..base }
        }
        OrderRecord::Stop(cob, stopped) => {
            let event = if stopped.restart { "ordered-restart" } else { "ordered-stop" };
            let until = stopped.until_boot.then(|| "until the next boot".to_owned());
            let detail = stopped.with.as_ref().map(|with| format!("with {with}")).or(until).unwrap_or_default();
            HistoryEntry { event: event.to_owned(), cob: Some(cob.clone()), detail, ..base }
        }
        OrderRecord::Reboot => HistoryEntry { event: "reboot".to_owned(), ..base },
        OrderRecord::Run(RunRecord::Begun { run, line, user }) => {
            let user = user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
            HistoryEntry { event: "run".to_owned(), detail: format!("{run}{user}: {line}"), ..base }
        }
        OrderRecord::Run(RunRecord::Ended { run, end }) => HistoryEntry {
            event: "run-ended".to_owned(),
            ok: Some(end.is_success()),
            detail: format!("{run}: {end}"),
            ..base
        },
        OrderRecord::Start(cob) => HistoryEntry { event: "ordered-start".to_owned(), cob: Some(cob.clone()), ..base },
        OrderRecord::Only(hosts) => {
            let names: Vec<_> = hosts.iter().map(HostName::as_str).collect();
            let detail =
                if names.is_empty() { "for everybody".to_owned() } else { format!("for {} alone", names.join(", ")) };
            HistoryEntry { event: "only".to_owned(), detail, ..base }
        }
        OrderRecord::Fence(host, _) => HistoryEntry { event: "fence".to_owned(), detail: host.to_string(), ..base },
        OrderRecord::Resolve { cob, path, choice } => {
            let detail = path.as_ref().map_or_else(|| choice.clone(), |path| format!("{choice} in {path}"));
            HistoryEntry { event: "resolve".to_owned(), cob: Some(cob.clone()), detail, ..base }
        }
        OrderRecord::Restore { cob, path, version } => {
            let detail = format!("{path} as in version {version}");
            HistoryEntry { event: "restore".to_owned(), cob: Some(cob.clone()), detail, ..base }
        }
    }
}

/// A step of a switch; absent if `go` and `activate` tell people the same.
fn of_switch(base: HistoryEntry, step: &SwitchRecord) -> Option<HistoryEntry> {
    let told = |event: &str, detail: String| Some(HistoryEntry { event: event.to_owned(), detail, ..base.clone() });
    match step {
        SwitchRecord::Begun { to, left: Some(left), .. } => told("return", format!("from generation {left} to {to}")),
        SwitchRecord::Begun { to, terms, .. } if !terms.policy.is_default() => {
            told("terms", format!("to generation {to}, {}", in_words(terms.policy)))
        }
        SwitchRecord::Reterm(terms) => told("terms", in_words(terms.policy)),
        SwitchRecord::Guarded(guard) if guard.left_ms == guard.ms && guard.restarts == 0 => {
            let again = if guard.extended { ", extended: most hosts are reached" } else { "" };
            told("guard", format!("{} ms to reach others{again}", guard.ms))
        }
        SwitchRecord::Begun { .. } | SwitchRecord::Guarded(_) | SwitchRecord::Parted(_) | SwitchRecord::Through(_) => {
            None
        }
        SwitchRecord::Confirmed => told("confirmed", "all required hosts are reached".to_owned()),
        SwitchRecord::Made { cob, from, to } => Some(HistoryEntry {
            event: "irreversible".to_owned(),
            cob: Some(cob.clone()),
            from: Some(from.clone()),
            to: Some(to.clone()),
            ..base
        }),
        SwitchRecord::Settled => told("settled", String::new()),
        SwitchRecord::Withdrawn(generation, withdrawal) => {
            told("withdraw", format!("generation {generation}, back to {}: {}", withdrawal.to, withdrawal.why))
        }
        SwitchRecord::Stopped { why } => told("stopped", why.clone()),
        SwitchRecord::Reopened { by } => told("reopened", format!("asked by {by} in the switch")),
        SwitchRecord::Quiet(true) => told("quiet", "the switch is not announced to other hosts any more".to_owned()),
        SwitchRecord::Quiet(false) => told("spread", "the switch is announced to other hosts again".to_owned()),
        SwitchRecord::Waiting(Some(waiting)) => {
            let detail = format!("the switch to generation {} waits for maintenance windows", waiting.generation);
            told("window-wait", detail)
        }
        SwitchRecord::Waiting(None) => told("window-wait-ended", "the order that waited is dropped".to_owned()),
        SwitchRecord::IgnoresWindows(generation) => told(
            "windows-ignored",
            format!("the switch to generation {generation} starts outside the maintenance windows"),
        ),
    }
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
        Note::Broken { of } => {
            with("broken", None, format!("the grant of {of}: the objects that relied on it are checked"))
        }
        Note::Stuck { circle, more } => {
            let names: Vec<_> = circle.iter().map(CobId::as_str).collect();
            with("stuck", None, format!("{}{}", names.join(" -> "), if *more { " -> …" } else { "" }))
        }
        Note::Chase { of, times } => {
            with("chase", None, format!("asked {of} {} and withdrew it", count(*times, "time")))
        }
        Note::Flap { state, times, because_of } => {
            let why = because_of.as_ref().map_or("its own preferred state".to_owned(), ToString::to_string);
            with("flap", None, format!("left {state} {}, now because of {why}", count(*times, "time")))
        }
        Note::Ordered => with("ordered", None, "goes by rank: a deadlock was found".to_owned()),
        Note::Overdrawn { by, at_most } => {
            let why = "the holders of its tokens can't return before this transition";
            with("overdrawn", None, format!("a token beyond {at_most} for {by}: {why}"))
        }
    }
}

fn number(Number { start, counter }: Number) -> String {
    format!("{start}.{counter}")
}

fn locks(locks: &[cob_engine::record::HeldLock]) -> String {
    let all: Vec<_> = locks.iter().map(|l| format!("{}@{}", l.cob, l.state)).collect();
    if all.is_empty() { String::new() } else { format!("under {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use cob_engine::Time;
    use cob_types::command_run::{RunEnd, RunExit, RunId};
    use cob_types::{GenerationNumber, codec};
    use serde::Serialize;

    use super::*;

    fn shown(record: &Record) -> Vec<(String, String)> {
        let host = HostName::new("n1").expect("a name");
        entry(&host, 1, record).into_iter().map(|e| (e.event, e.detail)).collect()
    }

    fn told(event: &str, detail: &str) -> Vec<(String, String)> {
        vec![(event.to_owned(), detail.to_owned())]
    }

    #[test]
    fn orders_bear_the_name_of_who_gave_them() {
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
        let call_off = Body::Ordered(OrderRecord::Discard(GenerationNumber(8)));
        assert_eq!(ordered(call_off), told("call-off", "generation 8, by alice (operate)"));
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
    fn the_end_of_a_command_is_told_and_whether_it_has_succeeded() {
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

    /// Outcomes of switches are computed from these texts.
    #[test]
    fn what_an_order_is_about_and_whose_it_is_can_be_read_back() {
        let host = HostName::new("n1").expect("a name");
        let eight = GenerationNumber(8);
        let orders = [
            Body::SwitchStarted(eight),
            Body::Settled(eight),
            Body::Ordered(OrderRecord::Prepare(eight)),
            Body::Ordered(OrderRecord::Cancel(eight)),
            Body::Ordered(OrderRecord::Discard(eight)),
        ];
        for body in orders {
            let by = Some("alice (operate), for \"generation 9, by bob\"".to_owned());
            let record = Record { at: Time(5), lamport: 1, generation: GenerationNumber(7), body, by: by.clone() };
            let entry = entry(&host, 1, &record).remove(0);
            assert_eq!((entry.about(), entry.author()), (Some(eight), by.as_deref()), "{entry:?}");
        }
    }

    #[test]
    fn records_of_journals_without_names_are_read() {
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
