//! The kind back end `file-tree`: files, folders and links, brought about and taken back by the crate `cob-files`.
//!
//! ```text
//!   check, transition ──> a thread of its own ──> cob_files::Files ──> disk, and the store STATE/files/store.git
//!   inotify ──> watch ──> CheckWanted           (what others change is looked at within a moment)
//! ```
//! Its transitions run inside the daemon, and may be killed with it at any point: every file is its old content or the
//! new one, what is needed to go on is in the store, and the check after the daemon's return finds out how far it came.
//! So thousands of files need no processes, and what they record at the same time shares one write.
//!
//! Rules: one job at a time for a change object, also where the daemon has lost patience with the one before. Values of
//! secrets are opened for one job and wiped; what stood in a file with a secret before is sealed for this host.

mod backend;
#[cfg(test)]
mod file_tree_test;
mod pool;
mod query;
mod vault;
mod watch;
mod who;

pub(super) use backend::FileTree;
pub(crate) use backend::missing_store;
pub use query::{FileConflict, FileVersion, FilesAnswer, FilesQuery};
