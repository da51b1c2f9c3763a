//! File trees of a host: the wanted tree, the files on the disk, their earlier contents, and the steps between them.
//!
//! ```text
//!   Content (a bundle) ──> Wanted ─┐
//!   disk (read only)  ──> Found  ──┼─> plan: steps, conflicts, old contents ──> record ──> carry out ──> record
//!   store (git)       ──> Past   ──┘
//! ```
//! [`Files`] is the entry point: it checks ([`Files::check`]), applies ([`Files::apply`]) and retires
//! ([`Files::retire`]) trees, and shows their history. It knows change objects only by name.
//!
//! Rules: a check changes no file. Before a file is overwritten or removed, the store has its content. A file always
//! has its whole old or whole new content. After a kill the action runs again with the same result. No link is
//! followed.

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
pub use wanted::{Content, Item, Manage, OnConflict, OnDrift, Secrets, Validator, Wanted};
