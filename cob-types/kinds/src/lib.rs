//! The built-in kinds: states, transitions, contents, checks of contents, and the objects of a host that they own.
//!
//! The generator and the daemon read the same definitions. A kind is a type that implements [`Content`], in a module of
//! its own, and a line of [`ALL`]. The generator finds the kinds there by name; the daemon's back ends name the types.

mod absent;
mod accounts;
mod acme_certificate;
mod alternative;
mod apt_source;
mod archive;
mod attributes;
mod augeas;
mod authorized_key;
mod bmc;
mod certificate;
mod commands;
mod config_keys;
mod container;
mod cron;
mod debconf;
mod divert;
mod download;
mod edits;
mod exec;
mod fault;
mod filesystem;
mod firewall;
mod footprint;
mod form;
mod gates;
mod git_checkout;
mod ha_cluster;
mod ha_set;
mod host_entry;
mod hostname;
mod kernel_module;
mod kind;
mod luks;
mod lvm_volume;
mod mariadb;
mod mount;
mod network;
mod nfs_export;
mod node_packages;
mod package;
mod partition;
mod postgresql;
mod private_key;
mod python_env;
mod raid;
mod service;
mod source;
mod sql;
mod swap_file;
mod sysctl;
mod timezone;

pub use absent::Absent;
pub use accounts::{Group, User};
pub use acme_certificate::{AcmeCertificate, Challenge, Proof};
pub use alternative::Alternative;
pub use apt_source::AptSource;
pub use archive::{Archive, ArchiveFormat};
pub use attributes::Attributes;
pub use augeas::{Augeas, tree_parts};
pub use authorized_key::{AuthorizedKey, PublicKey};
pub use bmc::{
    Bmc, BmcAction, BmcBoot, BmcDevice, BmcLan, BmcPrivilege, BmcProtocol, BmcRemote, BmcSource, BmcUser, BmcWatchdog,
};
pub use certificate::{Authority, Certificate, Origin, Usage};
pub use commands::TIMES;
pub use config_keys::{ConfigFormat, ConfigKeys, in_dots as key_in_dots};
pub use container::{Container, Health, Runtime};
pub use cron::Cron;
pub use debconf::{Debconf, DebconfAnswer, DebconfType};
pub use divert::Divert;
pub use download::{Checksum, Download};
pub use edits::{Block, Line, expression};
pub use exec::Exec;
pub use fault::{Fault, Faults, Place};
pub use filesystem::{Filesystem, FilesystemType, OnDeparture};
pub use firewall::{Action, Chain, Firewall, Network, Ports, Rule, read_rate};
pub use footprint::{Access, Footprint, OwnedFile, Subject};
pub use form::{Scalar, Time, parse, read, schema_of, yes};
pub use gates::{Budget, HttpAddress, HttpCheck, Noop, TcpCheck, Wait};
pub use git_checkout::GitCheckout;
pub use ha_cluster::{HaCluster, HaCrypto, HaNode, HaQuorum, HaTransport};
pub use ha_set::{HaClone, HaConstraint, HaPrimitive, HaSet, Interruption, cluster_text, is_of_operators};
pub use host_entry::HostEntry;
pub use hostname::Hostname;
pub use kernel_module::KernelModule;
pub use kind::{
    Builtin, CHECK_TIMEOUT_MS, Content, Entry, GRACE_MS, RETRIES, RETRY_DELAY_MS, TIMEOUT_MS, plain_check,
    plain_transition, state,
};
pub use luks::Luks;
pub use lvm_volume::{LvmVolume, VolumeSize};
pub use mariadb::{MariadbDatabase, MariadbGrant, MariadbServer, MariadbTls, MariadbUser};
pub use mount::{Mount, unit_name};
pub use network::{Bond, BondMode, Bridge, By, Dhcp, Interface, Route, Vlan, is_in_network, prefixed};
pub use nfs_export::{NfsExport, NfsOptions};
pub use node_packages::NodePackages;
pub use package::{Package, Version};
pub use partition::{Partition, PartitionType};
pub use postgresql::{
    PostgresqlDatabase, PostgresqlExtension, PostgresqlGrant, PostgresqlObjects, PostgresqlRole, PostgresqlServer,
};
pub use private_key::{KeyType, PrivateKey};
pub use python_env::PythonEnv;
pub use raid::Raid;
pub use service::{OnChange, STALE, Service, UNITS, UnitText, full_unit_name};
pub use source::{Size, without_user};
pub use sql::aside_name;
pub use swap_file::SwapFile;
pub use sysctl::{Sysctl, in_dots, with_dots_and_slashes_swapped};
pub use timezone::Timezone;

/// All built-in kinds. `script` and `plugin` have no content type, because their contents are kinds; the content of
/// `file-tree` is converted for the bundle: `cobgen` has its form in the model, and cob-files its form in bundles.
pub const ALL: &[Entry] = &[
    Entry::without_content(Builtin { backend: "command", transitions: &[], ..Builtin::program("script") }),
    Entry::of::<Service>(),
    Entry::of::<Container>(),
    Entry::of::<Exec>(),
    Entry::of::<Absent>(),
    Entry::of::<Line>(),
    Entry::of::<Block>(),
    Entry::of::<ConfigKeys>(),
    Entry::of::<Augeas>(),
    Entry::of::<Attributes>(),
    Entry::of::<Wait>(),
    Entry::of::<TcpCheck>(),
    Entry::of::<HttpCheck>(),
    Entry::of::<Noop>(),
    Entry::without_content(Builtin { transitions: &[], ..Builtin::program("plugin") }),
    Entry::of::<Package>(),
    Entry::of::<Sysctl>(),
    Entry::of::<HostEntry>(),
    Entry::of::<Cron>(),
    Entry::of::<Download>(),
    Entry::of::<Archive>(),
    Entry::of::<GitCheckout>(),
    Entry::of::<PythonEnv>(),
    Entry::of::<NodePackages>(),
    Entry::of::<KernelModule>(),
    Entry::of::<Mount>(),
    Entry::of::<SwapFile>(),
    Entry::of::<Partition>(),
    Entry::of::<LvmVolume>(),
    Entry::of::<Luks>(),
    Entry::of::<Raid>(),
    Entry::of::<Bmc>(),
    Entry::of::<Filesystem>(),
    Entry::of::<NfsExport>(),
    Entry::of::<User>(),
    Entry::of::<Group>(),
    Entry::of::<AuthorizedKey>(),
    Entry::of::<Hostname>(),
    Entry::of::<Timezone>(),
    Entry::of::<Interface>(),
    Entry::of::<Firewall>(),
    Entry::of::<PrivateKey>(),
    Entry::of::<Certificate>(),
    Entry::of::<AcmeCertificate>(),
    Entry::of::<PostgresqlRole>(),
    Entry::of::<PostgresqlDatabase>(),
    Entry::of::<PostgresqlGrant>(),
    Entry::of::<PostgresqlExtension>(),
    Entry::of::<MariadbUser>(),
    Entry::of::<MariadbDatabase>(),
    Entry::of::<MariadbGrant>(),
    Entry::of::<Alternative>(),
    Entry::of::<Debconf>(),
    Entry::of::<Divert>(),
    Entry::of::<AptSource>(),
    Entry::of::<HaCluster>(),
    Entry::of::<HaSet>(),
    Entry::of::<Budget>(),
    // No transition leads out of a conflict: a person decides, and then a check finds it outdated.
    Entry::without_content(Builtin {
        states: &["absent", "outdated", "present", "conflict"],
        transitions: &[("absent", "present"), ("outdated", "present"), ("present", "absent"), ("outdated", "absent")],
        // Changes are noticed as they happen; the check finds missed changes.
        interval_ms: Some(300_000),
        timeout_ms: TIMEOUT_MS,
        ..Builtin::setting("file-tree")
    }),
];

/// The kind with a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.kind.name == name)
}

/// Whether a state of a built-in kind only means that the change object does not manage the host: when the change
/// object enters it, it restores the earlier state of the host.
#[must_use]
pub fn is_unmanaged(kind: &str, state: &str) -> bool {
    state == "absent" && find(kind).is_some_and(|entry| entry.kind.restores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_spellings_of_a_name_are_the_same_subject() {
        assert_eq!(full_unit_name("a"), full_unit_name("a.service"));
        assert_eq!(full_unit_name("php8.2-fpm"), "php8.2-fpm.service");
        assert_ne!(full_unit_name("a.socket"), full_unit_name("a"));
        assert_eq!((Package::bare_name("app:amd64"), Package::bare_name("app:i386")), ("app", "app:i386"));
        assert_eq!(in_dots("net/ipv4/conf/eth0.1/forwarding"), in_dots("net.ipv4.conf.eth0/1.forwarding"));
        assert_ne!(in_dots("net.ipv4.ip_forward"), in_dots("net.ipv6.ip_forward"));
    }
}
