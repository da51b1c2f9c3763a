//! The daemon of one host: it keeps the journal, runs actions, and lets the engine decide.

pub mod durable;
pub mod journal;
pub mod kinds;
pub mod peer;
pub mod run;
pub mod web;
