//! All back ends: one line each.

use std::sync::Arc;

use super::backend::Backend;
use super::{budget, command, http_check, noop, service, tcp_check, wait};

/// Every back end there is.
pub(super) fn all() -> Vec<Arc<dyn Backend>> {
    vec![
        Arc::new(budget::Budget),
        Arc::new(command::CommandKind),
        Arc::new(http_check::HttpCheck::default()),
        Arc::new(noop::Noop::default()),
        Arc::new(service::Service::default()),
        Arc::new(tcp_check::TcpCheck::default()),
        Arc::new(wait::Wait::default()),
    ]
}
