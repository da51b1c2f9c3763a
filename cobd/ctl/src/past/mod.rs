//! The past: the state of the cluster at a moment, and the steps of a switch, from the hosts' histories.
//!
//! This module asks no daemon: the entries of the merged history go in, in order, and a picture comes out. The entries
//! of a host count by its own clock; unrecorded facts are reported as not known.

pub mod moment;
pub mod otlp;
pub mod picture;
pub mod replay;
pub mod report;
