//! Shared code of the system tests: small systems, written down or drawn at random, and their translation into bundles.

pub mod churn;
pub mod cluster;
pub mod conditions;
pub mod draw;
pub mod family;
pub mod large;
pub mod leaving;
pub mod liar;
pub mod odd_provider;
pub mod processes;
pub mod runs;
pub mod sbom;
pub mod script_log;
pub mod shrink;
pub mod small;
pub mod stranger;
pub mod switching;
pub mod system;
pub mod transcript;
pub mod wait;
