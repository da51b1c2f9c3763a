//! What a store leaves outside of what it is made of, so that a part of it that is gone is missed.
//!
//! ```text
//!   trace    `12 main`: the log has come to its 12th segment, and the repository has its branch
//! ```
//! A store that was made anew in the place of one that is gone would take what users have changed for what was there before
//! the model, and overwrite it.

use std::fs;
use std::path::Path;

use super::{MAIN, log};

const NAME: &str = "trace";

/// How far a store had come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Trace {
    /// The newest segment of the log.
    pub(super) segment: u64,
    /// There is a branch.
    pub(super) main: bool,
}

impl Trace {
    /// None: an earlier version has left none, or it can't be read.
    pub(super) fn read(store: &Path) -> Option<Self> {
        let text = fs::read_to_string(store.join(NAME)).ok()?;
        let mut words = text.split_whitespace();
        let segment = words.next()?.parse().ok()?;
        Some(Self { segment, main: words.next() == Some("main") })
    }

    /// After a power failure it may be an older one.
    pub(super) fn write(self, store: &Path) -> std::io::Result<()> {
        let new = store.join(format!("{NAME}.new"));
        fs::write(&new, format!("{}{}\n", self.segment, if self.main { " main" } else { "" }))?;
        fs::rename(&new, store.join(NAME))
    }
}

/// What to do about a store of which something is gone.
pub(crate) fn remedy(what: &str, store: &Path) -> String {
    // Made anew, it would take users' changes for what was there before the model.
    let folder = store.parent().unwrap_or(store).display();
    format!(
        "{what}, and without it what users have changed can't be told from what was applied; put {folder} back from a copy, \
         or, if there is none, save the files that matter and remove {folder}: then all is managed as for the first time"
    )
}

/// What is gone of a store that was in use, in words; none: it is there, as far as that can be told without reading it.
pub(crate) fn missing(store: &Path) -> Option<String> {
    if !store.join("objects").is_dir() || !store.join("refs").is_dir() {
        return Some(if store.exists() { "a part of it is gone".to_owned() } else { "it is gone".to_owned() });
    }
    let trace = Trace::read(store);
    let newest = log::newest_segment(&store.join("log"));
    match (newest, trace.unwrap_or_default().segment) {
        (None, _) => return Some("its log is gone".to_owned()),
        (Some(newest), last) if newest < last => return Some(format!("segment {last} of its log is gone")),
        (Some(_), _) => {}
    }
    let has_main = store.join(MAIN).exists() || store.join("packed-refs").exists();
    let had_main = trace.is_some_and(|trace| trace.main);
    (had_main && !has_main).then(|| format!("{MAIN} is gone"))
}
