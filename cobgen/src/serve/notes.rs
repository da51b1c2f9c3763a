//! Limits log lines about strangers to a line a minute of each sort.

use std::fmt;
use std::time::{Duration, Instant};

use cob_types::log::LineLimit;

const EVERY: Duration = Duration::from_secs(60);

/// The warnings by their sort.
#[derive(Debug, Default)]
pub(super) struct Notes(LineLimit<String>);

impl Notes {
    /// Warns, unless the same sort was logged within the last minute.
    pub(super) fn warn(&self, about: &str, what: &dyn fmt::Display) {
        if let Some(more) = self.0.due_end(about.to_owned(), String::new(), EVERY, Instant::now()) {
            tracing::warn!("{what}{more}");
        }
    }
}
