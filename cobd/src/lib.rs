//! The daemon of one host: it keeps the journal, runs actions, and lets the engine decide.
//!
//! [`daemon`] is the loop; [`config`] says what it is told, [`identity`] who it is; [`generations`] gets and keeps what it is
//! to do, [`acceptance`] says which of them it takes; [`journal`] is its memory, [`peer`] its links, [`kinds`] and [`run`] its hands, [`web`] its
//! ear for operators, [`history`] what it tells of the past. [`permissions`] and [`process`] keep others
//! out.

pub mod acceptance;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod durable;
pub mod generations;
pub mod history;
pub mod identity;
pub mod journal;
pub mod kinds;
pub mod peer;
pub mod permissions;
pub mod process;
pub mod run;
pub mod web;
