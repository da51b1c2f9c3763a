//! The hub: users create clusters from templates, and the hub creates the machines, makes the generations and switches the
//! hosts. Agents keep working without the hub, always.
//!
//! ```text
//! cli ── server (HTTP) ── hub (requests, jobs) ── catalogue (models in git), audit
//!                          │                           └ identity (log-ins elsewhere)
//!                          ├ job (the process of a job) ── provider (machines) ── layout ── durable
//!                          └ circle (several hubs on an etcd)           random (bytes for all)
//! ```

pub mod audit;
pub mod catalogue;
pub mod circle;
pub mod cli;
pub mod durable;
pub mod hub;
pub mod identity;
pub mod job;
pub mod layout;
pub mod provider;
mod random;
pub mod server;
