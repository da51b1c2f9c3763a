//! CBOR with limits: all stored and sent data is encoded and decoded here.
//!
//! A decoder gets a size limit from its caller, consumes the whole input, and is bounded in depth (128, by
//! `serde_cbor`). Hashes are taken of received bytes, never of a re-encoding.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The reason why bytes were refused.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Longer than the caller allows.
    #[error("{len} bytes; at most {max} are allowed here")]
    TooLong {
        /// The length found.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// Not CBOR, or not of the expected shape.
    #[error("not understood: {0}")]
    Malformed(#[from] serde_cbor::Error),
}

/// Encodes with field names: for stored data (bundles, manifests, snapshots).
///
/// # Errors
/// Only for values that CBOR can't carry.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    Ok(serde_cbor::to_vec(value)?)
}

/// As [`encode`], into a buffer that is emptied first: for many values in turn.
///
/// # Errors
/// As there; the content of the buffer then has no meaning.
pub fn encode_into<T: Serialize>(value: &T, buffer: &mut Vec<u8>) -> Result<(), CodecError> {
    buffer.clear();
    Ok(serde_cbor::to_writer(buffer, value)?)
}

/// Encodes with field numbers instead of names: for short data that is sent or written often (messages, journal
/// records). Fields may only be added at the end.
///
/// # Errors
/// Only for values that CBOR can't carry.
pub fn encode_packed<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    Ok(serde_cbor::ser::to_vec_packed(value)?)
}

/// As [`encode_packed`], for data too large for a buffer.
///
/// # Errors
/// As there, and errors of the writer.
pub fn write_packed<T: Serialize>(to: impl std::io::Write, value: &T) -> Result<(), CodecError> {
    let to = serde_cbor::ser::IoWrite::new(to);
    Ok(value.serialize(&mut serde_cbor::Serializer::new(to).packed_format())?)
}

/// Decodes either form.
///
/// # Errors
/// [`CodecError::TooLong`] before any byte is read, [`CodecError::Malformed`] for bytes that are not a whole value of
/// this type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], max: usize) -> Result<T, CodecError> {
    if bytes.len() > max {
        return Err(CodecError::TooLong { len: bytes.len(), max });
    }
    Ok(serde_cbor::from_slice(bytes)?)
}
