//! UUIDs of partitions, arrays and headers that change objects make: a later change object knows them without a record.

use crate::kinds::native::{new_uuid, random};

/// The end of these UUIDs.
const MARK: &[u8; 3] = b"cob";

/// A random UUID with the mark: the version 8 is for own rules.
pub(super) fn marked_uuid() -> Result<String, String> {
    let mut bytes: [u8; 16] = random()?;
    bytes[13..].copy_from_slice(MARK);
    Ok(new_uuid(8, bytes))
}

/// Whether a change object made what has this UUID.
pub(super) fn is_marked(uuid: &str) -> bool {
    uuid.as_bytes().get(14) == Some(&b'8') && uuid.ends_with(&hex::encode(MARK))
}
