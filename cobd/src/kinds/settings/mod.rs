//! Built-in kinds that set a property of the host, and restore its original state.
//!
//! [`setting`] has the common part. Each entry of [`ALL`] is a kind; the other modules are helpers of the kinds.

mod absent;
mod account_absent;
mod accounts;
#[cfg(test)]
mod accounts_test;
mod alternative;
mod apt_source;
mod archive;
mod attributes;
mod augeas;
mod authorized_key;
mod bmc;
mod boot_table;
mod certificate;
mod conf;
mod config_keys;
mod cron;
mod cut;
mod debconf;
mod device;
mod divert;
mod download;
mod earlier;
mod edits;
#[cfg(test)]
#[expect(unreachable_pub, reason = "the definition of a kind is public in cob-kinds")]
mod example_test;
mod fetch;
mod filesystem;
mod firewall;
mod git_checkout;
mod group;
mod ha_cluster;
mod host_entry;
mod hostname;
mod ignored;
mod kernel_log;
mod kernel_module;
mod luks;
mod lvm_volume;
mod mariadb;
mod marked;
mod mount;
mod mount_absent;
mod mounted;
#[cfg(test)]
mod mounts_test;
mod network;
mod nfs_export;
mod node_packages;
#[cfg(test)]
mod observed_test;
mod packages;
mod parameter;
mod partition;
mod place;
mod postgresql;
mod python_env;
mod raid;
mod record;
mod refused;
mod remount;
mod setting;
mod sharing;
mod sql;
mod swap_file;
mod sysctl;
#[cfg(test)]
#[path = "settings_test.rs"]
pub(super) mod tests;
mod timezone;
mod tree;
mod unpack;
mod user;
#[cfg(test)]
mod web_test;

use cob_kinds::{
    Absent, Alternative, AptSource, Divert, Filesystem, Firewall, GitCheckout, Luks, LvmVolume, NodePackages,
    Partition, PythonEnv, Raid, SwapFile, Timezone,
};

pub(crate) use self::network::configures_interfaces;
use self::setting::{Entry, Plain, Setting, Spec};
use super::native::Native;

/// All these kinds.
pub(super) const ALL: &[&dyn Native] = &[
    &Plain::<Absent>::KIND,
    &certificate::AcmeSetting,
    &Plain::<Alternative>::KIND,
    &Plain::<AptSource>::KIND,
    &archive::ArchiveSetting,
    &attributes::AttributesSetting,
    &augeas::AugeasSetting,
    &authorized_key::AuthorizedKeySetting,
    &bmc::BmcSetting,
    &certificate::CertificateSetting,
    &config_keys::ConfigKeysSetting,
    &cron::CronSetting,
    &debconf::DebconfSetting,
    &Plain::<Divert>::KIND,
    &download::DownloadSetting,
    &edits::BlockSetting,
    &edits::LineSetting,
    #[cfg(test)]
    &Plain::<example_test::Motd>::KIND,
    &Plain::<Filesystem>::KIND,
    &Plain::<Firewall>::KIND,
    &Plain::<GitCheckout>::KIND,
    &group::GroupSetting,
    &ha_cluster::HaClusterSetting,
    &host_entry::HostEntrySetting,
    &hostname::HostnameSetting,
    &kernel_module::KernelModuleSetting,
    &Plain::<Luks>::KIND,
    &Plain::<LvmVolume>::KIND,
    &mariadb::DatabaseSetting,
    &mariadb::GrantSetting,
    &mariadb::UserSetting,
    &mount::MountSetting,
    &network::NetworkSetting,
    &nfs_export::NfsExportSetting,
    &Plain::<NodePackages>::KIND,
    &Plain::<Partition>::KIND,
    &postgresql::DatabaseSetting,
    &postgresql::ExtensionSetting,
    &postgresql::GrantSetting,
    &postgresql::RoleSetting,
    &certificate::PrivateKeySetting,
    &Plain::<PythonEnv>::KIND,
    &Plain::<Raid>::KIND,
    &Plain::<SwapFile>::KIND,
    &sysctl::SysctlSetting,
    &Plain::<Timezone>::KIND,
    &user::UserSetting,
];
