//! A trace beside the store's data, which shows that a part of the store was lost.
//!
//! ```text
//!   trace    `12 main`: the log has reached its 12th segment, and the repository has its branch
//! ```
//! An empty store in place of a lost store would take users' edits for files from before the model, and overwrite them.

use std::fs;
use std::path::Path;

use super::{MAIN, log};

const NAME: &str = "trace";

/// The progress of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Trace {
    /// The newest segment of the log.
    pub(super) segment: u64,
    /// The repository has its branch.
    pub(super) main: bool,
}

impl Trace {
    /// `None`: written by an earlier version without a trace, or not readable.
    pub(super) fn read(store: &Path) -> Option<Self> {
        let text = fs::read_to_string(store.join(NAME)).ok()?;
        let mut words = text.split_whitespace();
        let segment = words.next()?.parse().ok()?;
        Some(Self { segment, main: words.next() == Some("main") })
    }

    /// Not synced: after a power failure an older trace may be there.
    pub(super) fn write(self, store: &Path) -> std::io::Result<()> {
        let new = store.join(format!("{NAME}.new"));
        fs::write(&new, format!("{}{}\n", self.segment, if self.main { " main" } else { "" }))?;
        fs::rename(&new, store.join(NAME))
    }
}

/// The remedy for a store that has lost a part.
pub(crate) fn remedy(what: &str, store: &Path) -> String {
    // An empty store would take users' edits for files from before the model.
    let folder = store.parent().unwrap_or(store).display();
    format!(
        "{what}, so COB can't tell users' changes from applied contents; restore {folder} from a copy. Without a \
         copy, save the files that matter and remove {folder}: COB then manages all files as for the first time"
    )
}

/// The lost part of a store that was in use, in words. `None`: the store looks complete; it is not read.
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
