//! The kind back ends of MariaDB: users, databases and privileges.
//!
//! [`client`] runs the statements, [`account`] has the users as the server stores them.

mod account;
mod client;
mod database;
mod grant;
#[cfg(test)]
mod mariadb_test;
mod user;

pub(super) use database::DatabaseSetting;
pub(super) use grant::GrantSetting;
pub(super) use user::UserSetting;
