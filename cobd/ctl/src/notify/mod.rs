//! Notifications: news of the cluster for people and programs.
//!
//! ```text
//! statuses, histories --> [observe]: conditions that begin and end --> [outbox]: messages, for each receiver
//!                                                                          --> [send]: command, webhook, mail
//! ```
//!
//! `observe` and `outbox` are pure: time is an argument. A condition is told once when it begins and once when it ends.
//! [`NotifyState`] survives a restart, so that nothing is told twice and no unsent message is lost.

mod config;
mod observe;
mod outbox;
mod send;

pub use config::{ConfigError, NotifyConfig, Receiver, Way};
pub use observe::{Delays, Notice, NoticeKind, NoticeState, Observer, of_entry};
pub use outbox::{Message, Outbox};
pub use send::send;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

use cob_types::HostName;
use serde::{Deserialize, Serialize};

/// The longest file of a former run, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// The data that a restart needs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NotifyState {
    /// The open conditions.
    pub observer: Observer,
    /// The unsent messages, by receiver.
    pub outboxes: BTreeMap<String, Outbox>,
    /// The number of the last entry that was read of each host's history.
    pub positions: BTreeMap<HostName, u64>,
}

impl NotifyState {
    /// Reads the file of a former run; `None` if there is none.
    ///
    /// # Errors
    /// The file can't be read, or is not from this program.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match cob_depot::input::read(path, MAX_FILE) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file as a whole.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().prefix(".notify-").tempfile_in(folder)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    }
}
