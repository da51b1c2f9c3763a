//! Epochs: orders of a hub that another hub has replaced are refused.
//!
//! Each job of several hubs has a number that grows with each takeover. The host keeps the greatest number that came with
//! an order, in a file, before it carries the order out. Orders of people have no number, and are not concerned.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderMap;
use cob_journal::durable::{self, Sync};
use cob_types::api::EPOCH;

use super::refusal::{Refusal, RefusalKind};

/// The file in the state folder.
pub(crate) const FILE: &str = "epoch";

/// The greatest epoch.
#[derive(Debug, Default)]
pub(super) struct Epochs(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Absent in tests without a state folder.
    folder: Option<PathBuf>,
    greatest: u64,
}

impl Epochs {
    /// Reads the epoch of a state folder.
    pub(super) fn open(&self, folder: &Path) -> io::Result<()> {
        let greatest = match fs::read_to_string(folder.join(FILE)) {
            Ok(text) => text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        *self.kept() = Kept { folder: Some(folder.to_owned()), greatest };
        Ok(())
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses an order with an earlier epoch, and keeps a later epoch.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(given) = headers.get(EPOCH) else { return Ok(()) };
        let Some(epoch) = given.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else {
            let error = format!("the header {EPOCH} is no number");
            return Err(Refusal::new(RefusalKind::Invalid, error, "send the number of the hub's job"));
        };
        let mut kept = self.kept();
        if epoch < kept.greatest {
            let error = format!(
                "this order has the epoch {epoch}, but an order with the epoch {} came before: another hub has taken over",
                kept.greatest
            );
            return Err(Refusal::new(RefusalKind::Conflict, error, "the hub that leads gives the orders now"));
        }
        if epoch > kept.greatest {
            if let Some(folder) = &kept.folder {
                durable::write_file(folder, FILE, 0o600, format!("{epoch}\n").as_bytes(), Sync::Now).map_err(|e| {
                    let error = format!("the epoch {epoch} can't be kept: {e}");
                    Refusal::new(RefusalKind::Unavailable, error, "repair the disk of this host")
                })?;
            }
            kept.greatest = epoch;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(epoch: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(EPOCH, epoch.parse().expect("a value"));
        headers
    }

    #[test]
    fn an_earlier_epoch_is_refused_also_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let epochs = Epochs::default();
        epochs.open(folder.path()).expect("opened");
        for fine in ["7", "7", "9"] {
            assert_eq!(epochs.admit(&with(fine)), Ok(()), "{fine}");
        }
        assert_eq!(epochs.admit(&HeaderMap::new()), Ok(()), "orders of people");
        let again = Epochs::default();
        again.open(folder.path()).expect("opened");
        for epochs in [&epochs, &again] {
            let refusal = epochs.admit(&with("8")).expect_err("refused");
            assert_eq!(refusal.kind, RefusalKind::Conflict);
            assert!(refusal.error.contains("epoch 8") && refusal.error.contains("epoch 9"), "{refusal}");
            assert_eq!(epochs.admit(&with("x")).expect_err("refused").kind, RefusalKind::Invalid);
            assert_eq!(epochs.admit(&with("9")), Ok(()));
        }
    }

    #[test]
    fn a_damaged_file_is_no_first_epoch() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(FILE), "x").expect("written");
        assert!(Epochs::default().open(folder.path()).is_err());
    }
}
