//! Messages and notes as lines of a trace.

use cob_types::message::DepartureReport;
use cob_types::{CobId, Item, Number, StateName};

use crate::record::Note;

/// A message in a line.
#[must_use]
pub fn describe(item: &Item) -> String {
    let n = |Number { start, counter }| format!("#{start}.{counter}");
    match item {
        Item::Request(r) => {
            let set: Vec<_> = r.set.iter().map(StateName::as_str).collect();
            format!("request {} of {}@{} {} rev {}", r.asker, r.asked, set.join("|"), n(r.number), r.rev & 0xffff)
        }
        Item::Grant(g) => format!("grant {}@{} to {} {}", g.asked, g.state, g.asker, n(g.number)),
        Item::Release(a) | Item::Released(a) | Item::Recall(a) | Item::Query(a) | Item::Invalidated(a) => {
            format!("{} {} of {} {}", item.name(), a.asker, a.asked, n(a.number))
        }
        Item::Refused(r) => format!("refused {} of {}: {}", r.about.asker, r.about.asked, r.reason),
        Item::Probe(p) => format!("probe of {} to {}", p.initiator, p.to),
        Item::Hello(h) => format!("hello, {} kept", h.kept.len()),
        Item::HelloAck(a) => format!("hello-ack, {} granted", a.granted.len()),
        Item::AskDepartures(f) => format!("ask final {}", finals(f)),
        Item::Departures(f) => format!("final {}", finals(f)),
        Item::Going(g) => format!("going to {}", g.generation),
        Item::Withdrawn(w) => format!("withdrawn: {}", w.generation),
        Item::Through(generation) => format!("through, in {generation}"),
    }
}

fn finals(finals: &DepartureReport) -> String {
    let cobs: Vec<_> = finals.cobs.iter().map(CobId::as_str).collect();
    format!("{} -> {}, turn {}: {}", finals.from, finals.to, finals.epoch, cobs.join(" ")).trim_end().to_owned()
}

/// The notes that belong into a trace.
pub(super) fn describe_note(cob: &CobId, note: &Note) -> Option<String> {
    match note {
        Note::Ordered => Some(format!("{cob} goes by rank")),
        Note::Overdrawn { by, .. } => Some(format!("{cob} is overdrawn by {by}")),
        Note::Stuck { circle, .. } => {
            let circle: Vec<_> = circle.iter().map(CobId::as_str).collect();
            Some(format!("stuck: {}", circle.join(" ")))
        }
        Note::Chase { of, times } => Some(format!("chase: {cob} has asked {of} {times} times")),
        Note::Flap { state, times, because_of } => {
            let because_of = because_of.as_ref().map(|c| format!(" because of {c}")).unwrap_or_default();
            Some(format!("flap: {cob} has left {state} {times} times{because_of}"))
        }
        Note::Invalidated { from } => Some(format!("{cob} breaks its grant to {from}")),
        // The message with the same content is in the trace.
        Note::Broken { .. } => None,
        Note::Requested { .. } | Note::Released { .. } | Note::Holds { .. } | Note::Recalled { .. } => None,
    }
}
