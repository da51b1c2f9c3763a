//! The daemon's shared connection to systemd: opened on first use, and again after a disconnection.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::unit::Bus;
use crate::kinds::systemd::Systemd;

/// The connection that all checks share.
#[derive(Debug, Clone, Default)]
pub(super) struct Link(Arc<Mutex<Option<Bus>>>);

impl Link {
    /// Returns the connection.
    ///
    /// # Errors
    /// The reason as text, if systemd can't be reached.
    pub(super) async fn bus(&self, systemd: &Systemd) -> Result<Bus, String> {
        let mut kept = self.0.lock().await;
        if let Some(bus) = kept.as_ref().filter(|bus| bus.lives()) {
            return Ok(bus.clone());
        }
        *kept = None;
        let bus = Bus::connect(systemd).await?;
        *kept = Some(bus.clone());
        Ok(bus)
    }
}
