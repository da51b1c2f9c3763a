//! The process of a job: it performs the steps of an operation, and undoes these after a failure or a cancellation.
//!
//! The process needs nothing of the hub but the [`Order`] in the folder of the job. It writes its [`Record`] before and
//! after each step, so a hub that comes later can read the outcome, and another process can continue after a crash. In a
//! circle of hubs it also copies what it writes to the store, where another hub finds it.
//!
//! ```text
//! mod ── perform (a step) ── machines ── provider
//!  │        │  └ model (the file of the cluster) ── programs (cobgen, cobctl)
//!  └ steps (which steps) ── record (what is done) ── log (for people)
//! ```

mod ahead;
mod callback;
mod former;
mod log;
pub mod machines;
mod model;
mod order;
mod perform;
mod programs;
mod record;
mod solve;
mod steps;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub use ahead::{Place, Plan, look_ahead};
pub use log::{Log, Stop};
pub use order::{Keys, Order, Shape};
pub use record::{Failure, Progress};
pub use steps::Step;

pub(crate) use former::services as present_services;
pub(crate) use model::FILE as CLUSTER_FILE;

use crate::circle::Reign;
use crate::circle::ward::{self, Ward};
use callback::Event;
use machines::Machines;
use perform::Performer;
use programs::{Programs, RunError};
use record::{Entry, Record};

/// The number of steps of an operation.
pub(crate) fn steps_of(operation: &cob_hub_api::Operation) -> usize {
    steps::forward(operation, true).len()
}

/// The file with the order, in the folder of a job.
pub const ORDER: &str = "order.json";
/// The file with the record.
pub const RECORD: &str = "record";
/// The file with the log.
pub const LOG: &str = "log";

/// The exit status of a job's process: for people who look at it; the hub reads the record.
const SUCCEEDED: u8 = 0;
const FAILED: u8 = 1;
const BROKEN: u8 = 3;

/// Executes the job in a folder, from the step at which an earlier process stopped.
///
/// Returns the exit status of the process.
pub async fn execute(folder: &Path) -> u8 {
    // First: an order to stop that comes early would kill the process, and nothing would be undone.
    let terminate = signal(SignalKind::terminate());
    let log = match Log::open(&folder.join(LOG)) {
        Ok(log) => log,
        Err(error) => return broken(None, &format!("{}: {error}", folder.join(LOG).display())),
    };
    let order = fs::read(folder.join(ORDER)).map_err(|e| e.to_string());
    let order: Order = match order.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string())) {
        Ok(order) => order,
        Err(error) => return broken(Some(&log), &format!("{}: {error}", folder.join(ORDER).display())),
    };
    let ward = match order.reign.as_ref().map(|reign| guard(reign, &order)).transpose() {
        Ok(ward) => ward.map(Arc::new),
        Err(why) => return broken(Some(&log), &why),
    };
    let work = perform(folder, &order, &log, ward.clone(), terminate);
    match &ward {
        None => work.await,
        Some(ward) => tokio::select! {
            status = work => status,
            // What the job has started ends with it.
            () = ward.lost() => broken(Some(&log), "another hub has taken the job over"),
        },
    }
}

/// Claims the job in a circle of hubs.
fn guard(reign: &Reign, order: &Order) -> Result<Ward, String> {
    Ward::begin(reign, order.job, ward::areas(&reign.root, &order.folder, order.job))
}

async fn perform(
    folder: &Path,
    order: &Order,
    log: &Log,
    ward: Option<Arc<Ward>>,
    terminate: std::io::Result<Signal>,
) -> u8 {
    let broken_record =
        |error: std::io::Error| broken(Some(log), &format!("{}: {error}", folder.join(RECORD).display()));
    let mut record = match Record::open(&folder.join(RECORD), ward.clone()) {
        Ok(record) => record,
        Err(error) => return broken_record(error),
    };
    let epoch = ward.as_deref().map(Ward::epoch);
    let machines = match Machines::open(order, ward) {
        Ok(machines) => machines,
        Err(error) => {
            // No repetition helps. Nothing is done before the list of machines is good again.
            let file = order.folder.join(machines::FILE);
            let failure = Failure::new(format!("the list of the cluster's machines can't be read: {error}"))
                .hint(format!("restore {} from a copy", file.display()));
            log.line(&format!("failed: {failure}"));
            let ended =
                record.append(Entry::Failed { failure }).and_then(|()| record.append(Entry::Ended { clean: false }));
            return ended.map_or_else(broken_record, |()| FAILED);
        }
    };
    let (teller, stop) = Stop::new();
    let Ok(mut terminate) = terminate else { return broken(Some(log), "can't wait for signals") };
    tokio::spawn(async move {
        terminate.recv().await;
        // The receiver lives as long as the job.
        let _ = teller.send(true);
    });
    let programs = Programs::new(order.programs.clone());
    let performer = Performer { order, folder, programs, machines, log, stop, epoch };
    match run(performer, &mut record).await {
        Ok(status) => status,
        Err(error) => broken(Some(log), &format!("{}: {error}", folder.join(RECORD).display())),
    }
}

fn broken(log: Option<&Log>, what: &str) -> u8 {
    if let Some(log) = log {
        log.line(&format!("the job can't continue: {what}"));
    }
    BROKEN
}

async fn run(mut performer: Performer<'_>, record: &mut Record) -> std::io::Result<u8> {
    let order = performer.order;
    if let Some(clean) = record.progress().ended {
        return Ok(if clean && !record.progress().is_undoing() { SUCCEEDED } else { FAILED });
    }
    if !record.progress().is_undoing() && record.progress().begun.is_empty() {
        aim(order, record)?;
    }
    if !record.progress().is_undoing() {
        let ask = order.callback.as_ref().map(|_| Step::Ask);
        for step in ask.into_iter().chain(steps::forward(&order.operation, order.has_generation)) {
            match attempt(&performer, step, record).await? {
                Ok(()) => {}
                Err(RunError::Canceled) => {
                    performer.log.line("canceled");
                    record.append(Entry::Canceled)?;
                    break;
                }
                Err(RunError::Failed(failure)) => {
                    performer.log.line(&format!("failed: {failure}"));
                    record.append(Entry::Failed { failure })?;
                    break;
                }
            }
        }
    }
    if !record.progress().is_undoing() {
        if let Some(layout) = &record.progress().layout {
            former::keep(&order.folder, layout)?;
        }
        tell(&performer, Event::Succeeded, None).await;
        record.append(Entry::Ended { clean: true })?;
        return Ok(SUCCEEDED);
    }
    // A second order to stop does not stop the undoing; its own failure does.
    performer.stop = Stop::new().1;
    let begun = record.progress().begun.clone();
    let steps = steps::undo(order, &begun);
    let mut clean = !steps.is_empty() || steps::is_harmless(&begun);
    for step in steps {
        if let Err(error) = attempt(&performer, step, record).await? {
            let what = match error {
                RunError::Failed(failure) => failure.what,
                RunError::Canceled => "it was canceled".to_owned(),
            };
            performer.log.line(&format!("could not {}: {what}", step.describe()));
            clean = false;
            break;
        }
    }
    let reason = record.progress().failure.as_ref().map_or("it was canceled", |failure| failure.what.as_str());
    tell(&performer, Event::Failed, Some(reason)).await;
    record.append(Entry::Ended { clean })?;
    Ok(FAILED)
}

/// Tells the callback of the end. Its own failure has no effect.
async fn tell(performer: &Performer<'_>, event: Event, reason: Option<&str>) {
    if let Err(RunError::Failed(failure)) = performer.tell(event, reason).await {
        performer.log.line(&format!("the callback failed: {failure}"));
    }
}

/// Records the shape that the operation leads to.
fn aim(order: &Order, record: &mut Record) -> std::io::Result<()> {
    let present = former::services(&order.folder)?;
    let entry = match order.after(|| present) {
        Ok(after) => Entry::Aimed { after },
        Err(failure) => Entry::Failed { failure },
    };
    record.append(entry)
}

/// Performs a step that is not done.
async fn attempt(performer: &Performer<'_>, step: Step, record: &mut Record) -> std::io::Result<Result<(), RunError>> {
    if record.progress().done.contains(&step) {
        return Ok(Ok(()));
    }
    if performer.stop.is_told() {
        return Ok(Err(RunError::Canceled));
    }
    performer.log.line(&format!("== {}", step.describe()));
    record.append(Entry::Begun { step })?;
    let result = performer.step(step, record).await;
    if result.is_ok() {
        record.append(Entry::Done { step })?;
    }
    Ok(result)
}
