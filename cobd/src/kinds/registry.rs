//! All back ends, one line each.

use std::sync::Arc;

use super::backend::Backend;
use super::native::{Native, NativeKind};
use super::{budget, command, file_tree, http_check, noop, package, plugin, service, settings, tcp_check, wait};

/// Creates every back end.
pub(super) fn all() -> Vec<Arc<dyn Backend>> {
    let mut all: Vec<Arc<dyn Backend>> = vec![
        Arc::new(budget::Budget),
        Arc::new(command::CommandKind),
        Arc::new(file_tree::FileTree::default()),
        Arc::new(http_check::HttpCheck::default()),
        Arc::new(noop::Noop::default()),
        Arc::new(plugin::Plugin),
        Arc::new(service::Service::default()),
        Arc::new(tcp_check::TcpCheck::default()),
        Arc::new(wait::Wait::default()),
    ];
    all.extend(NATIVE.iter().map(|native| Arc::new(NativeKind::new(*native)) as Arc<dyn Backend>));
    all
}

/// The kinds that act in a separate process.
const NATIVE: &[&dyn Native] = &[
    &package::Package,
    &settings::Cron,
    &settings::GroupKind,
    &settings::HostEntry,
    &settings::KernelModule,
    &settings::Mount,
    &settings::Sysctl,
    &settings::User,
];

/// The native kind of this name.
pub(super) fn native(name: &str) -> Option<&'static dyn Native> {
    NATIVE.iter().copied().find(|n| n.name() == name)
}
