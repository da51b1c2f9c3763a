//! The layout of a model, by `cobgen solve`.

use std::ffi::OsString;
use std::path::Path;

use super::log::{Log, Stop};
use super::programs::{Programs, RunError};
use super::record::Failure;
use crate::layout::{Answer, Layout};

/// The layout of the only cluster of a model.
pub(super) async fn solve(
    programs: &Programs,
    model: &Path,
    depot: Option<&Path>,
    log: &Log,
    stop: &Stop,
) -> Result<Layout, RunError> {
    let mut words: Vec<OsString> = vec!["solve".into(), model.into(), "--json".into()];
    if let Some(depot) = depot {
        words.extend(["--depot".into(), depot.into()]);
    }
    let answer: Answer = programs.cobgen(&words, log, stop).await?;
    let solved = answer.clusters.into_iter().next().ok_or_else(|| Failure::new("the model has no cluster"))?;
    if solved.solvable == Some(true) {
        return Ok(solved.layout);
    }
    let reason = solved.reason.unwrap_or_else(|| "the solver found no layout within its limit".to_owned());
    Err(Failure::new(reason).hint("change the number of nodes, the services or the template").into())
}
