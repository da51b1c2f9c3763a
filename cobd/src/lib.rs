//! The daemon of one host: it keeps the journal, runs actions, and lets the engine decide.
//!
//! [`daemon`] is the loop; [`config`] says what it is told, [`identity`] who it is; [`generations`] gets
//! and keeps what it is to do, from a [`source`] that may be [`remote`], and [`acceptance`] says which of
//! them it takes; [`join`] makes it a member; [`journal`] is its memory, [`peer`] its links, [`kinds`] and
//! [`run`] its hands, [`web`] its ear for operators, [`history`] what it tells of the past.
//! [`permissions`] and [`process`] keep others out.

pub mod acceptance;
mod blocking;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod durable;
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
