//! The daemon's one connection to systemd: made when it is needed first, and anew when it is gone.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::unit::{Bus, Systemd};

/// Shared by all checks.
#[derive(Debug, Clone, Default)]
pub(super) struct Link(Arc<Mutex<Option<Bus>>>);

impl Link {
    /// # Errors
    /// Why systemd can't be spoken to, in words.
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
