//! The metrics of the host in the text format of OpenMetrics, made at each request (`GET /metrics`).
//!
//! No label names a change object or a host: the number of series does not grow with the cluster.

use std::path::Path;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cob_api_server::described::{Answer, Schemas};
use cob_types::api::StatusOf;
use cob_types::status::{CobStatus, HostStatus, Phase, Wait};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Value, json};

use super::api::{Api, Ask};
use super::refusal::{Refusal, RefusalKind};
use crate::blocking::beside;

/// The content type of the format.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics as text.
#[derive(Debug)]
pub(super) struct Metrics(String);

impl IntoResponse for Metrics {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, FORMAT)], self.0).into_response()
    }
}

impl Answer for Metrics {
    fn describe(_: &mut Schemas) -> Value {
        json!({"application/openmetrics-text": {"schema": {"type": "string"}}})
    }
}

pub(super) async fn metrics(State(api): State<Api>) -> Result<Metrics, Refusal> {
    let (of, most_waiting) = (StatusOf::Active, usize::MAX);
    let status = api.ask(|reply| Ask::Status { of, most_waiting, reply }).await?;
    let failed = |what: String| Refusal::new(RefusalKind::Unavailable, what, "");
    let journal = match api.journal().map(Path::to_owned) {
        Some(folder) => beside(move || size_of(&folder)).await.map_err(|e| failed(e.to_string()))?.ok(),
        None => None,
    };
    text_of(&status, journal).map(Metrics).map_err(|e| failed(format!("the metrics can't be written: {e}")))
}

/// The bytes of the files of a folder.
fn size_of(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        // A file that is gone by now has no bytes.
        bytes += entry?.metadata().map_or(0, |file| file.len());
    }
    Ok(bytes)
}

fn text_of(status: &HostStatus, journal_bytes: Option<u64>) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("cob");
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The version of the daemon", build);
    let mut gauge = |name: &str, help: &str, value: u64| registry.register(name, help, ConstGauge::new(value));
    gauge(
        "host_converged",
        "1: all change objects are in their preferred states and idle",
        u64::from(status.converged),
    );
    gauge("host_paused", "1: an operator has paused the host", u64::from(status.paused));
    gauge(
        "generation",
        "The active generation; 0: no generation is active",
        status.generation.map_or(0, |number| number.0),
    );
    gauge("switch_running", "1: a switch is under way", u64::from(status.goal().is_some()));
    let failed = status.cobs.iter().filter(|cob| cob.failed).count();
    gauge("objects_failed", "Change objects that have used up their retries", failed as u64);

    by_label(&mut registry, "objects", "Change objects by phase", "phase", &phases(status));
    let up = status.peers.iter().filter(|peer| peer.up).count() as u64;
    let links = [("up", up), ("down", status.peers.len() as u64 - up)];
    by_label(&mut registry, "links", "Links to other hosts", "state", &links);
    let refused = status.refused.counts();
    by_label(&mut registry, "links_refused", "Refused connections of the last 30 to 60 minutes", "reason", &refused);

    let help = "Requests to the API that were refused for a missing right";
    registry.register("requests_denied", help, ConstCounter::new(status.denied));
    let help = "The age of the oldest request for a lock that is not granted";
    let oldest = status.cobs.iter().filter_map(oldest_lock_wait).min();
    let age = oldest.map_or(Duration::ZERO, |since| Duration::from_nanos(status.now_ns.saturating_sub(since)));
    registry.register_with_unit("lock_wait_age_max", help, Unit::Seconds, ConstGauge::new(age.as_secs_f64()));
    if let Some(bytes) = journal_bytes {
        registry.register_with_unit("journal_size", "The files of the journal", Unit::Bytes, ConstGauge::new(bytes));
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn by_label(registry: &mut Registry, name: &str, help: &str, label: &'static str, values: &[(&'static str, u64)]) {
    let family = Family::<[(&'static str, &'static str); 1], Gauge>::default();
    for (word, value) in values {
        family.get_or_create(&[(label, *word)]).set(i64::try_from(*value).unwrap_or(i64::MAX));
    }
    registry.register(name, help, family);
}

/// The number of change objects in each phase. Idle change objects are counted by the loop.
fn phases(status: &HostStatus) -> [(&'static str, u64); 4] {
    let of = |phase| status.cobs.iter().filter(|cob| cob.phase == phase).count() as u64;
    [
        ("checking", of(Phase::Checking)),
        ("moving", of(Phase::Moving)),
        ("waiting", of(Phase::Waiting)),
        ("settled", of(Phase::Settled) + status.idle),
    ]
}

fn oldest_lock_wait(cob: &CobStatus) -> Option<u64> {
    let since = |wait: &Wait| if let Wait::Lock { since_ns, .. } = wait { Some(*since_ns) } else { None };
    cob.waits_for.iter().filter_map(since).min()
}

#[cfg(test)]
mod tests {
    use cob_types::status::PeerStatus;
    use cob_types::{CobId, GenerationNumber, HostName, StateName};

    use super::*;

    fn state(name: &str) -> StateName {
        StateName::new(name).expect("a name")
    }

    fn waiting() -> CobStatus {
        let of = CobId::new("n2/net").expect("an id");
        let lock = |since_ns| Wait::Lock {
            cob: of.clone(),
            states: vec![state("up")],
            since_ns,
            recalled: false,
            refused: None,
            refused_in: None,
        };
        CobStatus {
            id: CobId::new("n1/app").expect("an id"),
            kind: "service".to_owned(),
            state: Some(state("down")),
            target: Some(state("up")),
            preferred: state("up"),
            phase: Phase::Waiting,
            since_ns: 1,
            failed: true,
            retiring: false,
            waits_for: vec![lock(7_500_000_000), lock(9_000_000_000)],
            action: None,
            trouble: Vec::new(),
            held_by: Vec::new(),
            observed: false,
            drift: Vec::new(),
            stopped: None,
        }
    }

    #[test]
    fn a_host_has_its_metrics_in_base_units_and_without_names() {
        let name = |text: &str| HostName::new(text).expect("a name");
        let peer = |host: &str, up| PeerStatus {
            host: name(host),
            up,
            since_ns: 1,
            error: None,
            unheard: None,
            fenced: false,
        };
        let status = HostStatus {
            generation: Some(GenerationNumber(7)),
            switching_to: Some(GenerationNumber(8)),
            idle: 5,
            denied: 2,
            now_ns: 10_000_000_000,
            peers: vec![peer("n2", true), peer("n3", false), peer("n4", true)],
            cobs: vec![waiting()],
            ..HostStatus::unknown(name("n1"))
        };
        let text = text_of(&status, Some(4096)).expect("text");
        for line in [
            "cob_host_converged 0",
            "cob_host_paused 0",
            "cob_generation 7",
            "cob_switch_running 1",
            "cob_objects_failed 1",
            "cob_objects{phase=\"waiting\"} 1",
            "cob_objects{phase=\"settled\"} 5",
            "cob_links{state=\"up\"} 2",
            "cob_links{state=\"down\"} 1",
            "cob_links_refused{reason=\"stranger\"} 0",
            "cob_requests_denied_total 2",
            "cob_lock_wait_age_max_seconds 2.5",
            "cob_journal_size_bytes 4096",
            concat!("cob_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("n2") && !text.contains("app"), "{text}");
    }
}
