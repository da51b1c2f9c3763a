//! Bytes of a peer without a daemon: for tests with hostile hosts.

use cob_types::link::Frame;

/// The first bytes of a DEALER: the greeting of ZMTP 3.0, and a READY.
#[must_use]
pub fn handshake() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xFF;
    bytes[9] = 0x7F;
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes.extend(b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER");
    bytes
}

/// The header of a message of this length, without the message.
#[must_use]
pub fn header(length: u64) -> Vec<u8> {
    [&[2][..], &length.to_be_bytes()].concat()
}

/// A frame of a link as ZMTP carries it.
#[must_use]
pub fn message(frame: &Frame<'_>) -> Vec<u8> {
    let body = frame.encode().expect("encodes");
    [header(body.len() as u64), body].concat()
}

/// A `ClientHello` of TLS 1.2: it has no list of versions, so it offers 1.2.
#[must_use]
pub fn tls_1_2() -> Vec<u8> {
    let extensions: &[u8] = &[0, 13, 0, 4, 0, 2, 8, 7, 0, 10, 0, 4, 0, 2, 0, 29];
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xC0, 0x2B, 1, 0, 0, extensions.len() as u8]);
    body.extend(extensions);
    let mut bytes = vec![0x16, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    bytes.extend(body);
    bytes
}
