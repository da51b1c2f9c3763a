//! The kind back end `plugin`: any executable that exchanges one JSON message per call.
//!
//! ```text
//!   Plugin (in the daemon) ── Call, as an argument ──> runner ──> call ── message ──> executable
//!        └──────── Answer, through COB_RESULT_OUT <────────────────┴──── reply ───────────┘
//! ```
//!
//! The executable starts anew for each call, reads one message from its standard input and writes one reply to its
//! standard output; its standard error is shown to users. The caller validates the reply: a hostile or broken
//! executable can only cause a failure with a reason. `docs/kinds/plugin.md` has the protocol.

mod backend;
mod caller;
mod protocol;
#[cfg(test)]
#[path = "plugin_test.rs"]
mod tests;

pub(super) use backend::Plugin;
pub(crate) use caller::call;
