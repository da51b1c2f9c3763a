//! Why a request has no answer, and what to do.

use std::io;
use std::time::Duration;

use cob_hub_api::Refusal;

use crate::address::HubAddress;

/// The failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing answers there. The hub has received nothing.
    #[error("no hub answers at {at}")]
    Connect {
        /// The address.
        at: HubAddress,
        /// The cause.
        source: io::Error,
    },
    /// The answer did not come in time. The hub may have received the request.
    #[error("the hub at {at} did not answer within {} s", limit.as_secs())]
    Late {
        /// The address.
        at: HubAddress,
        /// The limit.
        limit: Duration,
    },
    /// The connection ended before the answer. The hub may have received the request.
    #[error("the connection to the hub at {at} broke: {what}")]
    Broken {
        /// The address.
        at: HubAddress,
        /// The fault.
        what: String,
    },
    /// The answer is longer than this client reads.
    #[error("the answer of the hub at {at} is too long")]
    TooLong {
        /// The address.
        at: HubAddress,
    },
    /// The answer is not one of this API.
    #[error("the answer of {at} is not one of a hub: {what}")]
    NotUnderstood {
        /// The address.
        at: HubAddress,
        /// The fault.
        what: String,
    },
    /// The hub refuses the request, and has changed nothing.
    #[error("{refusal}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason.
        refusal: Refusal,
    },
    /// The token can't be sent.
    #[error("the token has characters that no token has")]
    BadToken,
}

impl CallError {
    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("only the owner of the hub may use its socket; name its http address, and a token".to_owned())
            }
            Self::Connect { .. } => {
                Some("start the hub with `cobhub serve --folder FOLDER`, or name the right one with --hub".to_owned())
            }
            Self::Late { .. } | Self::Broken { .. } => {
                Some("`cobctl jobs` shows whether the hub has received the order".to_owned())
            }
            Self::TooLong { .. } => Some("ask for less".to_owned()),
            Self::NotUnderstood { .. } => Some("the hub may have another version than this program".to_owned()),
            Self::Refused { status: 401, .. } => {
                Some("name the file of a token with --token-file, or set COB_HUB_TOKEN; an administrator makes one with `cobctl hub token`".to_owned())
            }
            Self::Refused { refusal, .. } => refusal.hint.clone(),
            Self::BadToken => Some("a token begins with `cob_`; its file has the token in the first line".to_owned()),
        }
    }

    /// Whether the hub may be reached later: it restarts, or is slow.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connect { source, .. } => source.kind() != io::ErrorKind::PermissionDenied,
            Self::Late { .. } | Self::Broken { .. } => true,
            Self::Refused { status, .. } => *status == 503,
            Self::TooLong { .. } | Self::NotUnderstood { .. } | Self::BadToken => false,
        }
    }
}
