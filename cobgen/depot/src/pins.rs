//! Pins: generations that must not be pruned at any age.
//!
//! `refs/pins/N` names a blob: JSON with the reason, the author and the time. A pin is a ref, so that a mirror has it
//! too; the generation itself never changes.

use std::collections::BTreeMap;

use cob_types::GenerationNumber;
use serde::{Deserialize, Serialize};

use crate::depot::{Depot, names_below, number_of};
use crate::error::{DepotError, PublishError};
use crate::lock::{ObjectsLock, PublisherLock};
use crate::publish::PATIENCE;
use crate::read::named_blob;

pub(crate) const PINS: &str = "refs/pins/";
/// The longest pin that is read, in bytes.
const MAX_PIN: usize = 8 << 10;
/// The longest accepted reason, in bytes.
pub const MAX_REASON: usize = 2 << 10;

/// The reason why a generation is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The reason in the author's words; may be empty.
    pub reason: String,
    /// The author of the pin, `NAME <EMAIL>`.
    pub by: String,
    /// The time of the pin, in seconds since 1970-01-01 UTC.
    pub at: i64,
}

impl Depot {
    /// All pins, by generation.
    ///
    /// # Errors
    /// If a pin can't be read.
    pub fn pins(&self) -> Result<BTreeMap<GenerationNumber, Pin>, DepotError> {
        let numbers = names_below(self, PINS)?.into_iter().filter_map(|name| number_of(&name));
        numbers.map(|number| Ok((number, self.read_pin(number)?))).collect()
    }

    /// Pins an existing generation and replaces its earlier pin.
    ///
    /// # Errors
    /// If the depot does not have the generation, or can't be written.
    pub fn pin(&self, number: GenerationNumber, pin: &Pin) -> Result<(), PublishError> {
        if pin.reason.len() > MAX_REASON {
            let why = format!("the reason is {} bytes long; at most {MAX_REASON} are kept", pin.reason.len());
            return Err(PublishError::Upkeep { why });
        }
        let _objects = ObjectsLock::shared(&self.path, PATIENCE)?;
        let _lock = PublisherLock::take(&self.path, PATIENCE)?;
        // Checked under the lock, so that the generation can't be pruned in the meantime.
        self.commit(number)?;
        let bytes = serde_json::to_vec(pin).expect("texts and a number");
        self.set_blob(&ref_of(number), &bytes, "a pin")?;
        self.sync_folders(&["objects", "refs", "refs/pins"])
    }

    /// Removes the pin of a generation; returns `false` if there was no pin.
    ///
    /// # Errors
    /// If the depot can't be written.
    pub fn unpin(&self, number: GenerationNumber) -> Result<bool, PublishError> {
        let _lock = PublisherLock::take(&self.path, PATIENCE)?;
        if !names_below(self, PINS)?.contains(&number.to_string()) {
            return Ok(false);
        }
        self.delete_ref(&ref_of(number))?;
        Ok(true)
    }

    fn read_pin(&self, number: GenerationNumber) -> Result<Pin, DepotError> {
        let bytes = named_blob(self, number, &ref_of(number), "the pin", MAX_PIN)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| DepotError::damaged(number, "the pin", cob_types::words::form(&error)))
    }
}

fn ref_of(number: GenerationNumber) -> String {
    format!("{PINS}{number}")
}
