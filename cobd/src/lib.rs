//! The daemon of a host: it keeps the journal, runs actions, and lets the engine decide.
//!
//! [`daemon`] is the loop; [`config`] is its configuration, [`identity`] its key; [`generations`] fetches and keeps
//! generations from a [`source`], which may be [`remote`], and [`acceptance`] verifies them; [`join`] makes the host a
//! member; [`journal`] keeps its state, [`peer`] its links; [`kinds`] and [`run`] carry out actions, [`web`] takes
//! orders of operators, and [`history`] reports the past. [`permissions`] and [`process`] protect the daemon from other
//! users.

pub mod acceptance;
pub mod adhoc;
mod blocking;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod facts;
pub mod generations;
pub mod history;
pub mod identity;
pub mod join;
pub mod journal;
pub mod kinds;
pub mod peer;
pub mod permissions;
pub mod process;
pub mod remote;
pub mod run;
pub mod source;
pub mod web;

pub use cob_journal::durable;
