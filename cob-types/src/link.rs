//! Frames of a link: how two daemons number, acknowledge and carry batches.
//!
//! A frame is a message of the transport below. It starts with two bytes: the format and the kind of frame. Frames with
//! a batch or an acknowledgement have a fixed binary header, so that the batch behind it is never copied. The first
//! frame of both sides is a [`LinkHello`]; each side waits for the other's hello before it sends more.
//!
//! ```text
//! hello  | 1 | 1 | packed CBOR of Hello
//! data   | 1 | 2 | number (8) | ack (8) | a batch
//! ack    | 1 | 3 | ack (8)
//! beat   | 1 | 4 | ack (8) | interval in milliseconds (4)
//! bye    | 1 | 5 |
//! ```
//!
//! Numbers are big-endian. A number counts the batches of a stream, from 1 and without gaps; an ack is the highest
//! number received, 0 if no batch was received. A stream connects an incarnation of a daemon with an incarnation of
//! another; it ends when either side loses its state of it, and the next stream has another name.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::codec::{self, CodecError};
use crate::id::HostName;
use crate::message::{Incarnation, MAX_BATCH, PROTOCOL};

/// The format of these frames. A later format still starts with a [`LinkHello`] in this format.
pub const FORMAT: u8 = 1;
/// The oldest protocol that this program understands.
pub const OLDEST_PROTOCOL: u16 = PROTOCOL;
/// The bytes that a data frame adds to its batch.
pub const DATA_OVERHEAD: usize = 2 + 8 + 8;
/// The longest frame.
pub const MAX_FRAME: usize = MAX_BATCH + DATA_OVERHEAD;
/// The longest hello.
pub const MAX_HELLO: usize = 2048;

/// A message of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Opens a link.
    Hello(LinkHello),
    /// Carries a batch.
    Data {
        /// The batch's number.
        number: u64,
        /// The highest number received from the other side.
        ack: u64,
        /// The batch, encoded by [`crate::Batch::encode`].
        payload: &'a [u8],
    },
    /// Acknowledges batches when there is no batch to send.
    Ack {
        /// The highest number received from the other side.
        ack: u64,
    },
    /// A heartbeat.
    Beat {
        /// The highest number received from the other side.
        ack: u64,
        /// The interval in which the sender sends and expects a heartbeat.
        interval_ms: u32,
    },
    /// The sender closes this link on purpose.
    Bye,
}

/// Opens a link: sender, receiver, and the point at which the streams continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkHello {
    /// The newest protocol that the sender speaks.
    pub newest: u16,
    /// The oldest protocol that it understands.
    pub oldest: u16,
    /// The sender.
    pub from: HostName,
    /// The receiver.
    pub to: HostName,
    /// The sender's incarnation.
    pub session: Incarnation,
    /// The sender's name for the stream of its numbers.
    pub stream: u64,
    /// The last batch received from the other side; absent: no batch in this incarnation.
    pub received: Option<StreamPosition>,
}

/// The received part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    /// The incarnation of its sender.
    pub session: Incarnation,
    /// The sender's name for the stream.
    pub stream: u64,
    /// The highest number that arrived, with all lower ones.
    pub number: u64,
}

/// The reason why a frame was refused.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// An unknown format.
    #[error("link format {0} is not supported (this program supports {FORMAT})")]
    Format(u8),
    /// A kind of frame that this format does not have.
    #[error("link format {FORMAT} has no frame of kind {0}")]
    Kind(u8),
    /// Too short or too long for its kind.
    #[error("a frame of {len} bytes can't be {what}")]
    Length {
        /// The kind of frame.
        what: &'static str,
        /// Its length.
        len: usize,
    },
    /// A hello that can't be decoded.
    #[error("the hello is {0}")]
    Hello(#[from] CodecError),
}

impl Frame<'_> {
    /// The frame as bytes.
    ///
    /// # Errors
    /// Only for values that CBOR can't carry.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        Ok(match self {
            Frame::Hello(hello) => [vec![FORMAT, 1], codec::encode_packed(hello)?].concat(),
            Frame::Data { number, ack, payload } => {
                let mut bytes = Vec::with_capacity(DATA_OVERHEAD + payload.len());
                bytes.extend([FORMAT, 2]);
                bytes.extend(number.to_be_bytes());
                bytes.extend(ack.to_be_bytes());
                bytes.extend_from_slice(payload);
                bytes
            }
            Frame::Ack { ack } => [&[FORMAT, 3], &ack.to_be_bytes()[..]].concat(),
            Frame::Beat { ack, interval_ms } => {
                [&[FORMAT, 4], &ack.to_be_bytes()[..], &interval_ms.to_be_bytes()[..]].concat()
            }
            Frame::Bye => vec![FORMAT, 5],
        })
    }
}

impl<'a> Frame<'a> {
    /// Decodes the bytes of [`Frame::encode`]; a batch is not copied.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that are not a whole frame of this format.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let Some((&[format, kind], body)) = bytes.split_first_chunk::<2>() else {
            return Err(FrameError::Length { what: "any frame", len: bytes.len() });
        };
        if format != FORMAT {
            return Err(FrameError::Format(format));
        }
        let wrong_length = |what| FrameError::Length { what, len: bytes.len() };
        match kind {
            1 => Ok(Frame::Hello(codec::decode(body, MAX_HELLO)?)),
            2 => {
                let (number, rest) = split_u64(body).ok_or_else(|| wrong_length("a data frame"))?;
                let (ack, payload) = split_u64(rest).ok_or_else(|| wrong_length("a data frame"))?;
                if payload.len() > MAX_BATCH {
                    return Err(wrong_length("a data frame"));
                }
                Ok(Frame::Data { number, ack, payload })
            }
            3 => match split_u64(body) {
                Some((ack, [])) => Ok(Frame::Ack { ack }),
                Some(_) | None => Err(wrong_length("an ack")),
            },
            4 => match split_u64(body) {
                Some((ack, &[a, b, c, d])) => Ok(Frame::Beat { ack, interval_ms: u32::from_be_bytes([a, b, c, d]) }),
                Some(_) | None => Err(wrong_length("a beat")),
            },
            5 if body.is_empty() => Ok(Frame::Bye),
            5 => Err(wrong_length("a bye")),
            other => Err(FrameError::Kind(other)),
        }
    }

    /// A stable name, for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Frame::Hello(_) => "hello",
            Frame::Data { .. } => "data",
            Frame::Ack { .. } => "ack",
            Frame::Beat { .. } => "beat",
            Frame::Bye => "bye",
        }
    }
}

fn split_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), rest))
}

/// Parses `tcp://IP:PORT`, as in models and configurations.
///
/// # Errors
/// A text that describes the error.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let rest = text.strip_prefix("tcp://").ok_or_else(|| format!("{text:?} is not of the form tcp://IP:PORT"))?;
    rest.parse().map_err(|_| format!("{text:?} is not of the form tcp://IP:PORT (names are not looked up)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> LinkHello {
        LinkHello {
            newest: 1,
            oldest: 1,
            from: HostName::new("n1").expect("host"),
            to: HostName::new(&"n".repeat(255)).expect("host"),
            session: Incarnation { id: u64::MAX, start: u32::MAX },
            stream: u64::MAX,
            received: Some(StreamPosition { session: Incarnation { id: 3, start: 4 }, stream: 5, number: u64::MAX }),
        }
    }

    #[test]
    fn every_frame_survives_the_wire() {
        for frame in [
            Frame::Hello(hello()),
            Frame::Hello(LinkHello { received: None, ..hello() }),
            Frame::Data { number: 1, ack: u64::MAX, payload: b"batch" },
            Frame::Data { number: u64::MAX, ack: 0, payload: b"" },
            Frame::Ack { ack: 7 },
            Frame::Beat { ack: 7, interval_ms: 15_000 },
            Frame::Bye,
        ] {
            let bytes = frame.encode().expect("encodes");
            assert_eq!(Frame::decode(&bytes).expect("decodes"), frame);
        }
    }

    #[test]
    fn a_batch_above_the_size_limit_is_refused() {
        let batch = vec![0; MAX_BATCH + 1];
        let fits = Frame::Data { number: 1, ack: 0, payload: &batch[..MAX_BATCH] }.encode().expect("encodes");
        assert_eq!(fits.len(), MAX_FRAME);
        assert!(Frame::decode(&fits).is_ok());
        let larger = Frame::Data { number: 1, ack: 0, payload: &batch }.encode().expect("encodes");
        assert!(matches!(Frame::decode(&larger), Err(FrameError::Length { what: "a data frame", .. })));
    }

    #[test]
    fn an_undecodable_frame_is_named_in_the_error() {
        for (bytes, word) in [
            (&[][..], "a frame of 0 bytes can't be any frame"),
            (&[1], "1 bytes can't be any"),
            (&[2, 1, 0], "format 2"),
            (&[1, 9], "kind 9"),
            (&[1, 2, 0, 0], "4 bytes can't be a data frame"),
            (&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], "11 bytes can't be an ack"),
            (&[1, 4, 0, 0, 0, 0, 0, 0, 0, 0], "can't be a beat"),
            (&[1, 5, 0], "can't be a bye"),
            (&[1, 1, 0xFF], "hello is not understood"),
        ] {
            let error = Frame::decode(bytes).expect_err(word).to_string();
            assert!(error.contains(word), "{bytes:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), kind in 0u8..7) {
            let _ = Frame::decode(&bytes);
            bytes.splice(0..0, [FORMAT, kind]);
            if let Ok(frame) = Frame::decode(&bytes) {
                let again = frame.encode().expect("encodes");
                proptest::prop_assert_eq!(Frame::decode(&again).expect("decodes"), frame);
            }
        }
    }
}
