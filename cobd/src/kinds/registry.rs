//! All back ends, one line each.

use std::sync::Arc;

use super::backend::Backend;
use super::native::{Native, NativeKind};
use super::pool::Pool;
use super::{
    budget, command, container, exec, file_tree, ha_set, http_check, noop, package, plugin, service, settings,
    tcp_check, wait,
};

/// Creates every back end.
pub(super) fn all() -> Vec<Arc<dyn Backend>> {
    let mut all: Vec<Arc<dyn Backend>> = vec![
        Arc::new(budget::BudgetKind),
        Arc::new(command::CommandKind),
        Arc::new(container::ContainerKind::default()),
        Arc::new(file_tree::FileTree::default()),
        Arc::new(http_check::HttpCheckKind::default()),
        Arc::new(noop::NoopKind::default()),
        Arc::new(plugin::Plugin),
        Arc::new(service::ServiceKind::default()),
        Arc::new(tcp_check::TcpCheckKind::default()),
        Arc::new(wait::WaitKind::default()),
    ];
    let pool = Pool::default();
    all.extend(natives().map(|native| Arc::new(NativeKind::new(native, pool.clone())) as Arc<dyn Backend>));
    all
}

/// The kinds that act in a separate process.
fn natives() -> impl Iterator<Item = &'static dyn Native> {
    settings::ALL.iter().copied().chain([&exec::ExecKind as &dyn Native, &ha_set::HaSetKind, &package::PackageKind])
}

/// The native kind of this name.
pub(super) fn native(name: &str) -> Option<&'static dyn Native> {
    natives().find(|native| native.name() == name)
}
