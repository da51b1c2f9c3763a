//! What was: the state of everything at a moment, and a switch step by step, from the hosts' histories.
//!
//! Nothing here asks anybody: entries go in, in the order of the merged history, and a picture comes out. A host's
//! own entries count by its own clock; what its history does not tell is said to be not known.

pub mod moment;
pub mod picture;
pub mod replay;
