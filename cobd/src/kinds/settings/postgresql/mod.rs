//! The kind back ends `postgresql-role` and `postgresql-database`.
//!
//! [`psql`] runs the statements, [`scram`] has the passwords as the server stores them.

mod database;
#[cfg(test)]
mod postgresql_test;
mod psql;
mod role;
mod scram;

pub(super) use database::DatabaseSetting;
pub(super) use role::RoleSetting;
