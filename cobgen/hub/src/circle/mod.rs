//! Several hubs that share an etcd: a circle. One hub leads, the others follow.
//!
//! The leading hub holds a leased key. The revision at which it has put the key, its epoch, is a condition of each of its
//! writes: a hub that has lost the key writes nothing. Each job that works holds a key of its own in the same way. All
//! files that hubs have in common are copied through the store.
//!
//! ```text
//! PREFIX leader                 the name of the leading hub, leased
//!        owners/JOB             the hub whose process performs the job, leased
//!        book/…                 what `hub::book` keeps
//!        files/PATH             length, mode and parts of a file
//!        blobs/PATH/HASH        a part of a file
//!        requests/ID            a request that a following hub passes on, leased
//!        answers/ID             its answer, leased
//! ```
//!
//! ```text
//! mod (names) ── claim (leased keys) ── copies (files)
//!                     └── ward (of a job's process) ──┘
//! ```

pub(crate) mod claim;
pub(crate) mod copies;
pub(crate) mod ward;

#[cfg(test)]
mod circle_test;

use std::path::PathBuf;
use std::time::Duration;

use cob_hub_store::{Etcd, Key, Prefix, Refusal};
use serde::{Deserialize, Serialize};

/// How long a member of etcd has for an answer, before another is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a hub takes part in a circle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circle {
    /// The members of etcd, each as `http://HOST:PORT`.
    pub members: Vec<String>,
    /// The beginning of all keys.
    pub prefix: String,
    /// The name of this hub.
    pub hub: String,
}

/// The circle of a job's process, and the reign under which the job began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reign {
    /// The circle.
    pub circle: Circle,
    /// The revision at which the leading hub has put its key.
    pub epoch: u64,
    /// The folder of the leading hub.
    pub root: PathBuf,
}

impl Circle {
    /// The members in `etcd:http://HOST:PORT,…`.
    ///
    /// # Errors
    /// The text names another store, or is no list of members.
    pub fn members(text: &str) -> Result<Vec<String>, String> {
        let list = text.strip_prefix("etcd:").ok_or("a store is etcd:http://HOST:PORT, with commas between members")?;
        let members: Vec<String> = list.split(',').map(str::to_owned).collect();
        Etcd::new(&members, PATIENCE).map_err(|error| error.to_string())?;
        Ok(members)
    }

    /// The store. Each thread has a store of its own, because connections belong to the runtime that made them.
    pub(crate) fn store(&self) -> Result<Etcd, Refusal> {
        Etcd::new(&self.members, PATIENCE)
    }

    pub(crate) fn key(&self, name: &str) -> Result<Key, Refusal> {
        Key::new(format!("{}{name}", self.prefix))
    }

    pub(crate) fn under(&self, name: &str) -> Result<Prefix, Refusal> {
        Prefix::new(format!("{}{name}", self.prefix))
    }

    /// The rest of a key of this circle.
    pub(crate) fn name_of(&self, key: &Key) -> Option<String> {
        let text = std::str::from_utf8(key.as_bytes()).ok()?;
        text.strip_prefix(&self.prefix).map(str::to_owned)
    }

    pub(crate) fn leader(&self) -> Result<Key, Refusal> {
        self.key("leader")
    }

    pub(crate) fn owner(&self, job: u64) -> Result<Key, Refusal> {
        self.key(&format!("owners/{job}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_list_of_members() {
        let members = Circle::members("etcd:http://127.0.0.1:2379,http://[::1]:2379").expect("members");
        assert_eq!(members, ["http://127.0.0.1:2379", "http://[::1]:2379"]);
        for wrong in ["", "etcd:", "http://127.0.0.1:2379", "etcd:127.0.0.1:2379"] {
            assert!(Circle::members(wrong).is_err(), "{wrong}");
        }
    }
}
