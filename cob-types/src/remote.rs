//! The depot over the network: what hosts ask of `cobgen serve`, and what it answers.
//!
//! HTTP/1.1 over TLS 1.3. A host asks with its own key and gets the manifests, the signatures and its
//! own bundles; a host that is being enrolled speaks another protocol in ALPN ([`ENROL`]) and can do
//! nothing but show its token. Fields are only added.

use serde::{Deserialize, Serialize};

use crate::id::{GenerationNumber, HostName};
use crate::trust::{PublicKey, Signature};

/// What a host that is being enrolled says in ALPN (RFC 7301): no other request is answered there.
pub const ENROL: &[u8] = b"cob-enrol/1";
/// Where the numbers of the generations are; with `?after=N&wait=SECONDS` the answer comes when there
/// is one above N, or the time is up.
pub const GENERATIONS: &str = "/v1/generations";
/// Where a token is shown.
pub const ENROL_PATH: &str = "/v1/enrol";
/// The last part of the path of a generation's manifest, in CBOR as it was published.
pub const MANIFEST: &str = "manifest";
/// The last part of the path of a generation's signatures, in JSON: a list of
/// [`Signed`](crate::trust::Signed).
pub const SIGNATURES: &str = "signatures";
/// The last part of the path of the caller's own bundle, in CBOR as it was published.
pub const BUNDLE: &str = "bundle";

/// The longest answer in JSON, and the longest request, in bytes.
pub const MAX_JSON: usize = 256 << 10;
/// The most generations that are listed, the newest ones.
pub const MAX_LISTED: usize = 1000;
/// The longest wait for a new generation, in seconds.
pub const MAX_WAIT: u64 = 60;

/// The generations that there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generations {
    /// The host that the caller's key stands for.
    pub host: HostName,
    /// The newest; none: there is none yet.
    pub newest: Option<GenerationNumber>,
    /// All of them, the newest first, at most [`MAX_LISTED`].
    pub generations: Vec<GenerationNumber>,
}

/// A new host shows its token and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// The token as it was given out.
    pub token: String,
    /// The host's key, the one with which it has connected.
    pub key: PublicKey,
    /// Its signature over server, token and key.
    pub signature: Signature,
}

/// How an enrolment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The host belongs to the cluster.
    Accepted,
    /// A person has to accept its key; ask again with the same token and key.
    Pending,
}

/// What the server answers to a token that is in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolled {
    /// How it stands.
    pub standing: Standing,
    /// The host that it now is.
    pub host: HostName,
    /// The publishers whose generations it is to accept.
    pub trust: Vec<PublicKey>,
    /// How many of them must have signed.
    pub threshold: usize,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// In words, with what to do.
    pub error: String,
}

/// The path of a part of a generation.
#[must_use]
pub fn path_of(generation: GenerationNumber, part: &str) -> String {
    format!("{GENERATIONS}/{generation}/{part}")
}
