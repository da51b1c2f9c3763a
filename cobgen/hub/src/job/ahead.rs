//! A look ahead: the layout and the plan of an operation, without any change.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cob_hub_api::{Name, Task, Wanted};
use serde::Deserialize;

use super::log::{Log, Stop};
use super::machines::Table;
use super::model::{self, Nodes};
use super::programs::{Programs, RunError};
use super::record::Failure;
use super::solve::solve;
use crate::layout::Layout;

/// The plan of an operation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Plan {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The numbers of tasks that can run at the same time, in order.
    pub stages: Vec<Vec<u32>>,
}

/// The answer of `cobgen plan --json`.
#[derive(Deserialize)]
struct Plans {
    plans: Vec<Plan>,
}

/// A cluster to look at.
#[derive(Debug)]
pub struct Place<'a> {
    /// The folder with the programs.
    pub programs: PathBuf,
    /// A copy of the catalogue that nobody else uses.
    pub catalogue: &'a Path,
    /// The cluster.
    pub cluster: &'a Name,
    /// Its depot, if it has one.
    pub depot: Option<&'a Path>,
    /// Its machines.
    pub machines: &'a Table,
}

/// Computes the layout of a shape, and the plan that leads to it.
///
/// # Errors
///
/// The model is refused, or there is no layout.
pub async fn look_ahead(place: &Place<'_>, wanted: &Wanted, operation: &str) -> Result<(Layout, Plan), Failure> {
    let broken = |error: std::io::Error| Failure::new(format!("can't look ahead: {error}"));
    let log = Log::open(Path::new("/dev/null")).map_err(broken)?;
    let (_teller, stop) = Stop::new();
    let programs = Programs::new(place.programs.clone());
    let model = model::write(place.catalogue, place.cluster, None, wanted, &Nodes::Count, place.machines, None)
        .map_err(broken)?;
    let layout = solve(&programs, &model, place.depot, &log, &stop).await.map_err(failure)?;
    let mut words: Vec<OsString> =
        vec!["plan".into(), model.into(), "--operation".into(), operation.into(), "--json".into()];
    if let Some(depot) = place.depot {
        words.extend(["--depot".into(), depot.into()]);
    }
    let plans: Plans = programs.cobgen(&words, &log, &stop).await.map_err(failure)?;
    let plan = plans.plans.into_iter().next().unwrap_or(Plan { tasks: Vec::new(), stages: Vec::new() });
    Ok((layout, plan))
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Failed(failure) => failure,
        RunError::Canceled => Failure::new("canceled"),
    }
}
