//! The callback: a program of the hub's administrator that hears of jobs, and can forbid them.
//!
//! It is run as `PROGRAM EVENT FILE`. The file has the event as JSON. Before the first step (`before`) a status other than
//! 0 forbids the operation; its last line of output is the reason. After the end (`succeeded`, `failed`) its status has no
//! effect. A crash of the job repeats a call, so the program hears of an event at least once.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use cob_hub_api::{JobId, Name, Operation};
use serde::Serialize;

use super::log::{Log, Stop};
use super::order::Order;
use super::programs::{Programs, RunError};
use super::record::Failure;
use crate::durable;

/// The file with the event, in the folder of the job.
const FILE: &str = "callback.json";
/// How long the program may run.
const LIMIT: Duration = Duration::from_mins(1);

/// The moments that a callback hears of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Event {
    /// Nothing was done yet.
    Before,
    /// The operation is done.
    Succeeded,
    /// The operation failed, or was canceled.
    Failed,
}

impl Event {
    fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }
}

/// The content of the file.
#[derive(Serialize)]
struct Content<'a> {
    event: Event,
    job: JobId,
    tenant: &'a Name,
    cluster: &'a Name,
    operation: &'a Operation,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// Tells the callback of an event. Without a callback nothing happens.
pub(super) async fn tell(
    (order, folder): (&Order, &Path),
    event: Event,
    reason: Option<&str>,
    programs: &Programs,
    log: &Log,
    stop: &Stop,
) -> Result<(), RunError> {
    let Some(program) = &order.callback else { return Ok(()) };
    let Order { job, tenant, cluster, operation, .. } = order;
    let content = Content { event, job: *job, tenant, cluster, operation, reason };
    let file = folder.join(FILE);
    durable::replace_json(&file, &content).map_err(|e| Failure::new(format!("can't write {}: {e}", file.display())))?;
    log.line(&format!("callback: {}", event.word()));
    let words: [OsString; 2] = [event.word().into(), file.into()];
    let output = programs.run_path(program, &words, LIMIT, log, stop).await?;
    let said = String::from_utf8_lossy(&output.text);
    for line in said.lines() {
        log.line(line);
    }
    if output.status.success() {
        return Ok(());
    }
    let reason = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason").to_owned();
    Err(Failure::new(format!("the callback forbids the operation: {reason}")).into())
}
