//! Who may speak, order and read: the cryptography of COB, all in one place.
//!
//! ```text
//!   enrol       tokens with which a new host is let in
//!   key         ed25519 keys: made, kept in files, signing
//!   pending     connections that have not proved a key yet: which may begin a handshake, which makes room
//!   publishers  whose signatures make a generation one that a host accepts
//!   tls         certificates and TLS 1.3 settings in which a key is the identity
//!   seal        values that one host alone can read (age, X25519 of the host's key)
//! ```
//!
//! Every host, publisher and operator has one ed25519 key (RFC 8032). What is signed carries a context,
//! so that a signature made for one purpose is good for no other.

pub mod enrol;
pub mod key;
pub mod pending;
pub mod publishers;
pub mod seal;
pub mod tls;

pub use key::{KeyFileError, SecretKey};
pub use publishers::{Publishers, Untrusted};
