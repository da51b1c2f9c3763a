//! Why a change object is where it is: the chain of waits, across hosts, down to its first cause.
//!
//! ```text
//! statuses of hosts --> [walk]: what each waits for --> [cause]: whom somebody must see to
//!                                                   \-> [told]: one sentence, the tree, JSON
//! ```
//!
//! A pure function over what was fetched. The statuses of two hosts are never of the same instant, so
//! what fits together only a moment later ("its promise is on the way") is told as just that.

mod cause;
mod told;
mod walk;

#[cfg(test)]
mod tests;

pub use cause::{Cause, CauseKind};
pub use told::{Explained, ExplainedCause, ExplainedCob, ExplainedWait};
pub use walk::{Explanation, Seen, explain, explain_leaving, still_there};
