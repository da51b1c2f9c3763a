//! Models from the entities of other systems.
//!
//! `coopr` reads Coopr's JSON entities, `yaml` writes the sections of a model that come of them.

pub mod coopr;
mod yaml;

pub use yaml::to_yaml;
