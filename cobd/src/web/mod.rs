//! The daemon's HTTP/JSON API for operators and their programs.
//!
//! ```text
//! unix socket --> [serve] --+
//!                           +--> [guard] --> [routes] --> [`Api`] --Ask--> the daemon's loop
//! TCP, handed over --> -----+
//! ```
//!
//! The API knows only the queue of the loop: every question and every order is an [`Ask`] with a channel for the
//! answer. The reference for users is `docs/api.md`.
//!
//! [`Access`] contains the rights under the active generation; the guard checks it for each request before the request
//! is read any further. When the rights change, connections of callers that have lost theirs are cut (`standing`).
//!
//! Rules: each queue, body, connection count and wait has a bound; only an [`Ask::Order`] changes the host, and
//! [`Ask::Check`] starts checks; a page of another origin can neither read nor order.

mod access;
mod api;
mod files;
mod guard;
mod pace;
mod rate_limit;
mod routes;
mod run;
mod serve;
mod slots;
mod standing;
mod wire;

#[cfg(test)]
mod access_test;
#[cfg(test)]
mod tests;

pub use crate::kinds::{FileConflict, FileVersion, FilesAnswer, FilesQuery, LogsAnswer, LogsQuery};
pub use access::{Access, Operators, Proof, Who};
pub use api::{Api, Ask, Caller, Command, Departing, StatusOf, SwitchHow};
pub use files::{ChoiceWord, ResolveOrder, RestoreOrder};
pub(crate) use pace::WatchedStatus;
pub use routes::router;
pub use serve::{Front, ServeError, UnixServer, serve_connection, serve_unix};
pub use wire::{
    API_VERSION, BudgetOrder, CancelOrder, Change, CheckOrder, CobOrder, DepartedOrder, Done, GenerationOrder, GoOrder,
    HostOrder, LimitOrder, MEANT_FOR, PlainOrder, PrepareOrder, Refusal, RefusalBody, RefusalCode, RefusalKind,
    RollbackOrder, StartOrder, StopOne, StopOrder, Version, Whoami,
};
