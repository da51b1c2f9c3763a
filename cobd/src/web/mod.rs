//! The daemon's HTTP/JSON API for operators and their programs.
//!
//! ```text
//! unix socket --> [serve] --+
//!                           +--> [guard] --> [routes] --> [`Api`] --Ask--> the daemon's loop
//! TCP, handed over --> -----+
//! ```
//!
//! The [table] states each route once: method, path, role, types of query, body and answer. It makes the router, the
//! roles of the guard and the description in OpenAPI.
//!
//! The API knows only the queue of the loop: every question and every order is an [`Ask`] with a channel for the
//! answer. `cob_types::api` defines the JSON; the reference for users is `docs/api.md`.
//!
//! [`Access`] contains the rights under the active generation; the guard checks it for each request before the request
//! is read any further. When the rights change, connections of callers that have lost theirs are cut (`standing`).
//!
//! Rules: each queue, body, connection count and wait has a bound; only an [`Ask::Order`] changes the host, and
//! [`Ask::Check`] starts checks; a page of another origin can neither read nor order.

mod access;
mod api;
mod described;
mod epoch;
mod files;
mod guard;
mod metrics;
mod openapi;
mod pace;
mod rate_limit;
mod refusal;
mod routes;
mod run;
mod serve;
mod slots;
mod standing;
mod table;

#[cfg(test)]
mod access_test;
#[cfg(test)]
mod tests;

pub use access::{Access, Operators, Proof, Who};
pub use api::{Api, Ask, Caller, Command};
pub use openapi::text as openapi;
pub(crate) use pace::WatchedStatus;
pub use refusal::{Refusal, RefusalKind};
pub use serve::{Front, UnixServer, serve_connection};
pub use table::router;
