//! What the tests of the whole share: small systems written down or drawn at random, and their way
//! into bundles.

pub mod cluster;
pub mod draw;
pub mod large;
pub mod system;
