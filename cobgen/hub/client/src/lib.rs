//! A client of the hub: one method for each request of its API, with limits on time and size.
//!
//! ```text
//! calls (the requests) ── client (HTTP over a socket or an address) ── address ── error (what to do)
//! ```
//!
//! A request is sent once. A caller that repeats a request after a lost answer has to look first: the hub may have
//! received it.

mod address;
mod calls;
mod client;
mod error;

pub use address::{BadAddress, HubAddress};
pub use calls::Place;
pub use client::{Client, Credentials};
pub use error::CallError;
