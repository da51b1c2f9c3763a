//! The kind back ends of PostgreSQL: roles, databases, privileges and extensions.
//!
//! [`psql`] runs the statements, [`scram`] has the passwords as the server stores them.

mod database;
mod extension;
mod grant;
#[cfg(test)]
mod grant_test;
#[cfg(test)]
mod postgresql_test;
mod psql;
mod role;
mod scram;

pub(super) use database::DatabaseSetting;
pub(super) use extension::ExtensionSetting;
pub(super) use grant::GrantSetting;
pub(super) use role::RoleSetting;
