//! The depot over the network: requests of hosts to `cobgen serve`, and its answers.
//!
//! HTTP/1.1 over TLS 1.3. A host authenticates with its own key and gets the manifests, the signatures and its own
//! bundles. A host that is being enrolled selects another protocol in ALPN ([`ENROL`]) and can only present its token.
//! Fields are only added.

use serde::{Deserialize, Serialize};

use crate::id::{GenerationNumber, HostName};
use crate::trust::{PublicKey, Signature};

/// The ALPN protocol (RFC 7301) of a host that is being enrolled: no other request is answered there.
pub const ENROL: &[u8] = b"cob-enrol/1";
/// The path of the list of generations; with `?after=N&wait=SECONDS` the answer comes when there is a generation above
/// N, or after this time.
pub const GENERATIONS: &str = "/v1/generations";
/// The path for a token.
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
/// The most generations in a list, the newest first.
pub const MAX_LISTED: usize = 1000;
/// The longest wait for a new generation, in seconds.
pub const MAX_WAIT: u64 = 60;

/// The list of generations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generations {
    /// The host of the caller's key.
    pub host: HostName,
    /// The newest; absent: there is no generation yet.
    pub newest: Option<GenerationNumber>,
    /// All generations, the newest first, at most [`MAX_LISTED`].
    pub generations: Vec<GenerationNumber>,
}

/// A new host's request with its token and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// The token as given out.
    pub token: String,
    /// The host's key, with which it has connected.
    pub key: PublicKey,
    /// The host's signature over server, token and key.
    pub signature: Signature,
}

/// The state of an enrolment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The host belongs to the cluster.
    Accepted,
    /// A person has to accept the key; ask again with the same token and key.
    Pending,
}

/// The answer to a valid token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolled {
    /// The state of the enrolment.
    pub standing: Standing,
    /// The host's name.
    pub host: HostName,
    /// The publishers whose generations the host has to accept.
    pub trust: Vec<PublicKey>,
    /// How many publishers must have signed.
    pub threshold: usize,
}

/// A refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRefusal {
    /// The reason and the remedy, in words.
    pub error: String,
}

/// The path of a part of a generation.
#[must_use]
pub fn path_of(generation: GenerationNumber, part: &str) -> String {
    format!("{GENERATIONS}/{generation}/{part}")
}
