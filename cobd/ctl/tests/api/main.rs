//! The real client against daemons that are only their API, and against what is no daemon at all.

mod fake;
mod hostile;
mod identity;
mod kinds;
mod orders;
mod past;
mod program;
mod questions;
mod trust;
