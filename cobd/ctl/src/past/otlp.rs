//! A past switch as an OpenTelemetry trace, in the JSON encoding of OTLP (opentelemetry.io/docs/specs/otlp, section
//! "JSON Protobuf Encoding"): an `ExportTraceServiceRequest`, which a collector accepts as `/v1/traces`.
//!
//! The switch is the root span, and each transition a span below it. A link leads from a transition to the last
//! transition of each change object for which it waited. Ids are hashes of what they name, so the same history gives
//! the same bytes, and exports of several people merge.

use std::collections::BTreeMap;

use cob_types::{BlobHash, GenerationNumber};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::replay::{ReplayStep, Waited};
use super::report::{Parts, SwitchStep};

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_OK`.
const OK: u8 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// The trace of the last switch to a generation, from its steps (at least one).
#[must_use]
pub fn trace(steps: &[ReplayStep], generation: GenerationNumber) -> Value {
    let parts = Parts::of(steps, generation);
    // The entry with the smallest time is the beginning.
    let begin = steps.iter().map(|step| step.entry.ts_ns - step.offset_ns).min().unwrap_or_default();
    let end = steps.iter().map(|step| step.offset_ns).max().unwrap_or_default().max(parts.end_ns());
    let ids = Ids { trace: hash::<16>(&["switch", &generation.to_string(), &begin.to_string()]), begin };
    let root = ids.span("switch", 0);
    let failed = parts.failed().count();
    let activations = parts.activations.iter().map(
        |(host, ns)| json!({"timeUnixNano": ids.time(*ns), "name": "active", "attributes": [text("host.name", host)]}),
    );
    let mut spans: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut status = json!({"code": if failed == 0 { OK } else { ERROR }});
    if failed > 0 {
        status["message"] = json!(format!("{failed} of {} transitions failed", parts.transitions.len()));
    }
    spans.entry("").or_default().push(json!({
        "traceId": ids.trace,
        "spanId": root,
        "name": format!("switch to generation {generation}"),
        "kind": INTERNAL,
        "startTimeUnixNano": ids.time(0),
        "endTimeUnixNano": ids.time(end),
        "attributes": [number("cob.generation", generation.0)],
        "events": activations.collect::<Vec<_>>(),
        "status": status,
    }));
    // The span of the last transition of each change object.
    let mut last: BTreeMap<&str, String> = BTreeMap::new();
    for step in &parts.transitions {
        let id = ids.span(step.cob.as_str(), step.begin_ns);
        let mut span = ids.transition(step, &last, end);
        span["spanId"] = json!(id);
        span["parentSpanId"] = json!(root);
        spans.entry(step.cob.host_str()).or_default().push(span);
        last.insert(step.cob.as_str(), id);
    }
    let resources = spans.into_iter().map(|(host, spans)| {
        let mut attributes = vec![text("service.name", "cob")];
        if !host.is_empty() {
            attributes.push(text("host.name", host));
        }
        let scope = json!({"name": "cobctl replay", "version": env!("CARGO_PKG_VERSION")});
        json!({"resource": {"attributes": attributes}, "scopeSpans": [{"scope": scope, "spans": spans}]})
    });
    json!({"resourceSpans": resources.collect::<Vec<_>>()})
}

/// Names and times of a trace.
struct Ids {
    trace: String,
    /// The beginning of the switch, in nanoseconds since 1970.
    begin: u64,
}

impl Ids {
    /// A span of the trace: of a change object, or the root.
    fn span(&self, of: &str, offset_ns: u64) -> String {
        hash::<8>(&[&self.trace, of, &offset_ns.to_string()])
    }

    /// 64-bit numbers are texts in this encoding.
    fn time(&self, offset_ns: u64) -> String {
        (self.begin + offset_ns).to_string()
    }

    /// The span of a transition without its ids; `last` has the spans of the transitions that began before it.
    fn transition(&self, step: &SwitchStep, last: &BTreeMap<&str, String>, end: u64) -> Value {
        let about = |waited: &Waited| [text("cob.waited_for", &waited.of), number("cob.waited_ns", waited.ns)];
        let links = step.waited.iter().filter_map(|waited| {
            let span = last.get(waited.cob.as_str())?;
            Some(json!({"traceId": self.trace, "spanId": span, "attributes": about(waited)}))
        });
        let mut attributes = vec![
            text("cob.id", step.cob.as_str()),
            text("cob.from", step.from.as_str()),
            text("cob.to", step.to.as_str()),
            number("cob.attempts", step.attempts.into()),
        ];
        if step.end_ns.is_none() {
            attributes.push(json!({"key": "cob.unfinished", "value": {"boolValue": true}}));
        }
        let waits = step.waited.iter().map(
            |waited| json!({"timeUnixNano": self.time(step.begin_ns), "name": "waited", "attributes": about(waited)}),
        );
        let status = match step.ok {
            Some(true) => json!({"code": OK}),
            Some(false) => json!({"code": ERROR, "message": step.failure}),
            None => json!({}),
        };
        json!({
            "traceId": self.trace,
            "name": format!("{} {} → {}", step.cob, step.from, step.to),
            "kind": INTERNAL,
            "startTimeUnixNano": self.time(step.begin_ns),
            "endTimeUnixNano": self.time(step.end_ns.unwrap_or(end)),
            "attributes": attributes,
            "events": waits.collect::<Vec<_>>(),
            "links": links.collect::<Vec<_>>(),
            "status": status,
        })
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// The first `N` bytes of a SHA-256 over these words, as hexadecimal digits.
fn hash<const N: usize>(words: &[&str]) -> String {
    let mut digest = Sha256::new();
    for word in words {
        digest.update(word.as_bytes());
        // Not part of any word.
        digest.update([0]);
    }
    BlobHash(digest.finalize().into()).to_string().chars().take(2 * N).collect()
}

#[cfg(test)]
mod tests {
    use cob_types::history::HistoryEntry;

    use super::*;
    use crate::testing::{entry, id, state, with_facts};

    fn step(at: u64, event: &str, cob: &str, (from, to): (&str, &str), ok: Option<bool>) -> ReplayStep {
        let (host, _) = cob.split_once('/').expect("an id");
        let (from, to) = (Some(state(from)), Some(state(to)));
        let entry = HistoryEntry {
            cob: Some(id(cob)),
            event: event.to_owned(),
            from,
            to,
            ok,
            ..entry(host, at, at, 1000 + at)
        };
        ReplayStep { offset_ns: at, entry: with_facts(entry), waited: Vec::new() }
    }

    fn switch() -> Vec<ReplayStep> {
        let mut steps = vec![
            step(0, "start", "n2/db", ("down", "up"), None),
            step(4, "end", "n2/db", ("down", "up"), Some(true)),
            step(5, "start", "n1/web", ("down", "up"), None),
            step(6, "start", "n2/job", ("down", "up"), None),
            step(9, "end", "n1/web", ("down", "up"), Some(false)),
        ];
        steps[2].waited = vec![Waited { of: "n2/db@up".to_owned(), cob: "n2/db".to_owned(), ns: 4 }];
        steps[4].entry.detail = "port in use".to_owned();
        steps
    }

    #[test]
    fn a_switch_is_a_trace_with_a_span_per_transition_and_a_link_per_wait() {
        let trace = trace(&switch(), GenerationNumber(8));
        let of_host = |at: usize| &trace["resourceSpans"][at]["scopeSpans"][0]["spans"];
        let root = &of_host(0)[0];
        assert_eq!(root["name"], "switch to generation 8");
        assert_eq!((&root["startTimeUnixNano"], &root["endTimeUnixNano"]), (&json!("1000"), &json!("1009")));
        assert_eq!(root["status"], json!({"code": 2, "message": "1 of 3 transitions failed"}));
        let (web, database, job) = (&of_host(1)[0], &of_host(2)[0], &of_host(2)[1]);
        assert_eq!(web["name"], "n1/web down → up");
        assert_eq!(web["status"], json!({"code": 2, "message": "port in use"}));
        assert_eq!(web["parentSpanId"], root["spanId"]);
        assert_eq!(web["links"][0]["spanId"], database["spanId"]);
        assert_eq!(web["links"][0]["traceId"], root["traceId"]);
        assert_eq!(database["links"], json!([]));
        assert_eq!(job["endTimeUnixNano"], "1009", "it was under way at the end");
        assert_eq!(job["status"], json!({}));
        let lengths = [&root["traceId"], &root["spanId"]].map(|id| id.as_str().expect("a text").len());
        assert_eq!(lengths, [32, 16]);
    }

    #[test]
    fn the_same_history_gives_the_same_bytes() {
        let text = |steps: &[ReplayStep], to| trace(steps, GenerationNumber(to)).to_string();
        assert_eq!(text(&switch(), 8), text(&switch(), 8));
        assert_ne!(text(&switch(), 8), text(&switch(), 9));
    }
}
