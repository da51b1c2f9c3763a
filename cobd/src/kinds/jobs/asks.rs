//! Queries of users about change objects besides their states: files and output.

use std::future::Future;
use std::pin::Pin;

use cob_types::api::{FilesAnswer, LogsAnswer, LogsQuery};
use cob_types::{Cob, Kind};

use super::Kinds;
use crate::kinds::backend::{Context, Work};
use crate::kinds::queries::FilesQuery;

impl Kinds {
    /// Queries a change object's files. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The reason as text, if the kind has no files or can't answer.
    pub fn files(
        &self,
        context: &Context,
        query: FilesQuery,
    ) -> Result<impl Future<Output = Result<FilesAnswer, String>> + Send + use<>, String> {
        let backend = self.backend(&context.kind).map_err(|e| e.to_string())?;
        inside(backend.files(&self.hands.tools, context, query))
            .ok_or_else(|| format!("{} is of the kind {}, which has no files", context.cob.id, context.kind.name))
    }

    /// Whether a user's change to a change object may conflict with the desired state.
    #[must_use]
    pub fn may_conflict(&self, kind: &Kind, cob: &Cob) -> bool {
        self.backend(kind).is_ok_and(|backend| backend.may_conflict(&cob.content))
    }

    /// Queries the output of a change object. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The reason as text, if no process of it runs or the kind can't answer.
    pub fn logs(
        &self,
        context: &Context,
        query: LogsQuery,
    ) -> Result<impl Future<Output = Result<LogsAnswer, String>> + Send + use<>, String> {
        let backend = self.backend(&context.kind).map_err(|e| e.to_string())?;
        inside(backend.logs(&self.hands.tools, context, query)).ok_or_else(|| {
            let (cob, kind) = (&context.cob.id, &context.kind.name);
            format!(
                "{cob} is of the kind {kind}, which is no service: `cobctl history {cob}` shows its past, and \
                 `cobctl output {cob}` the output of its last action"
            )
        })
    }
}

/// The future of a query that is answered in this process.
fn inside<T>(work: Option<Work<T>>) -> Option<Pin<Box<dyn Future<Output = T> + Send>>> {
    match work? {
        Work::Inside { future, .. } => Some(future),
        Work::Process(_) => None,
    }
}
