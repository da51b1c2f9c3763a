//! The real client against fake daemons, and against servers that are no daemons.

mod fake;
mod hostile;
mod identity;
mod orders;
mod past;
mod questions;
mod trust;
