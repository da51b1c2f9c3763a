//! The daemon's HTTP/JSON API: what operators and their programs are told, and what they may order.
//!
//! ```text
//! unix socket --> [serve] --+
//!                           +--> [guard] --> [routes] --> [`Api`] --Ask--> the daemon's loop
//! TCP, handed over --> -----+
//! ```
//!
//! It knows nothing of the loop but its queue: every question and every order is an [`Ask`] with a
//! place for the answer. The reference for users is `docs/api.md`.
//!
//! [`Access`] says who may do what, as the active generation has it; the guard asks it about every
//! request before anything of the request is looked at. When it changes, connections are cut whose callers
//! may no longer have what they are being given (`standing`).
//!
//! Rules: every queue, body, connection count and wait has a bound; nothing here changes anything but
//! through an [`Ask::Order`], and [`Ask::Check`] lets it be looked; a page of another origin can neither read nor order.

mod access;
mod api;
mod brake;
mod files;
mod guard;
mod pace;
mod places;
mod routes;
mod serve;
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
pub(crate) use pace::Stands;
pub use routes::router;
pub use serve::{Front, ServeError, UnixServer, serve_connection, serve_unix};
pub use wire::{
    API_VERSION, BudgetOrder, CancelOrder, Change, CheckOrder, CobOrder, Done, FinalOrder, GenerationOrder, GoOrder,
    HostOrder, LimitOrder, MEANT_FOR, PlainOrder, PrepareOrder, Refusal, RefusalBody, RefusalKind, RollbackOrder,
    StartOrder, StopOne, StopOrder, Version, Whoami,
};
