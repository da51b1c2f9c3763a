//! File trees on a host: what is wanted, what is there, what was there before, and the way between them.
//!
//! ```text
//!   Content (a bundle) ──> Wanted ─┐
//!   disk (read only)  ──> Found  ──┼─> plan: steps, conflicts, what to keep first ──> record ──> carry out ──> record
//!   store (git)       ──> Past   ──┘
//! ```
//! [`Files`] is the way in: look ([`Files::check`]), bring about ([`Files::apply`]), take back ([`Files::retire`]), and
//! walk what was. It knows nothing of change objects but their names, and nothing of the daemon.
//!
//! Rules: a look changes nothing. What is overwritten or removed is in the store first, durably. A file is its old content
//! or the new one, whole, at every moment. Whatever is killed is done again and ends the same: after a kill the disk and the
//! store tell how far it came. No link is followed.

mod apply;
mod attributes;
mod decisions;
mod disk;
mod error;
mod files;
mod history;
mod merge;
mod path;
mod plan;
mod sealing;
mod sides;
mod store;
mod wanted;

pub use attributes::{Attributes, Bytes, Managed, Who};
pub use decisions::Choice;
pub use disk::{Found, Stamp};
pub use error::{Conflict, FilesError, MAX_ENTRIES, MAX_FILE, MAX_TREE};
pub use files::{Applied, Checked, Files, Job, NoVault, State, Vault, missing};
pub use history::Shown;
pub use path::{PathError, TreePath};
pub use store::{Info, Reason};
pub use wanted::{Content, Item, Manage, OnConflict, OnDrift, Secrets, Wanted};
