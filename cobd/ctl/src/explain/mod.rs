//! Explains why a change object is in its state: the chain of waits, across hosts, to its first cause.
//!
//! ```text
//! statuses of hosts --> [walk]: the waits of each object --> [cause]: the reason that needs action
//!                                                        \-> [told]: a sentence, the tree, JSON
//! ```
//!
//! A pure function of the fetched statuses. The statuses of two hosts are never from the same moment, so a difference
//! that disappears a moment later is reported as temporary ("its promise is on the way").

mod cause;
mod told;
mod walk;

#[cfg(test)]
mod tests;

pub use cause::{Cause, CauseKind};
pub use told::{Explained, ExplainedCause, ExplainedCob, ExplainedWait};
pub use walk::{Explanation, Seen, explain, explain_in, explain_leaving, still_there};
