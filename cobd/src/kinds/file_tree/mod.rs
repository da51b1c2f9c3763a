//! The kind back end `file-tree`: files, folders and links, brought about and taken back by the crate `cob-files`.
//!
//! ```text
//!   check, transition ──> a thread of its own ──> cob_files::Files ──> disk, and the store STATE/files/store.git
//!   inotify ──> watch ──> CheckWanted           (what others change is looked at within a moment)
//! ```
//! Transitions run inside the daemon, and may be killed with it at any point. Every file has its old content or its new
//! content, the store contains the data to continue, and the check after the daemon's restart finds the progress.
//! Thousands of files need no processes, and concurrent records share one write.
//!
//! Rules: only one job of a change object runs at a time, even if the daemon gave up on the previous job. Values of
//! secrets are decrypted for one job and wiped; the original content of a file with a secret is sealed for this host.

mod backend;
#[cfg(test)]
mod file_tree_test;
mod query;
mod validate;
mod vault;
mod watch;
mod who;

pub(super) use backend::FileTree;
pub(crate) use backend::missing_store;
