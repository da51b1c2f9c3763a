//! Entities of other systems: models from them, and they from models.
//!
//! `coopr` reads and writes Coopr's JSON entities, `yaml` writes the sections of a model.

pub mod coopr;
mod yaml;

pub use yaml::to_yaml;
