//! The cryptography of COB, all in one crate: authentication, authorization and encryption.
//!
//! ```text
//!   enrol       tokens with which a new host is admitted
//!   front       the tasks of pending connections, up to the end of their handshakes
//!   key         ed25519 keys: generated, stored in files, used to sign
//!   pending     connections that have not proved a key yet: which may start a handshake, which is evicted
//!   publishers  the publishers whose signatures a host requires of a generation
//!   tls         certificates and TLS 1.3 settings in which a key is the identity
//!   seal        values that a single host can read (age, X25519 of the host's key)
//! ```
//!
//! Every host, publisher and operator has an ed25519 key (RFC 8032). Signed data includes a context, so that a
//! signature for a purpose is not valid for another.

pub mod enrol;
pub mod front;
pub mod key;
pub mod pending;
pub mod publishers;
pub mod seal;
pub mod tls;

pub use key::{KeyFileError, SecretKey};
pub use publishers::{Publishers, Untrusted};
