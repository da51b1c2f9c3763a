//! The kind back end `plugin`: any executable that speaks one JSON message a call.
//!
//! ```text
//!   Plugin (in the daemon) ── Call, as an argument ──> runner ──> call ── message ──> executable
//!        └──────── Answer, through COB_RESULT_OUT <────────────────┴──── reply ───────────┘
//! ```
//!
//! The executable is begun anew for each call, reads one message from its standard input and writes one reply to its
//! standard output; what it writes to its standard error is shown to people. What it says is checked here, so that a
//! hostile or broken one gives a failure in words and nothing else. `docs/kinds/plugin.md` has the protocol.

mod backend;
mod caller;
mod protocol;
#[cfg(test)]
#[path = "plugin_test.rs"]
mod tests;

pub(super) use backend::Plugin;
pub(crate) use caller::call;
