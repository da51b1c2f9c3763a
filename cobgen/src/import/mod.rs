//! Models from the entities of other systems.
//!
//! `coopr` reads Coopr's JSON entities, `yaml` writes the resulting sections of a model.

pub mod coopr;
mod yaml;

pub use yaml::to_yaml;
