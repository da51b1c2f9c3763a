//! Why the hub refuses.

use cob_hub_api::{Name, Refusal};

use crate::audit::AuditError;
use crate::catalogue::CatalogueError;

/// A refused or failed request.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The request is wrong in itself.
    #[error("{0}")]
    Bad(String),
    /// The path has other methods.
    #[error("the path has other methods")]
    Method,
    /// The body is too long.
    #[error("the body of the request is too long")]
    TooLong,
    /// The body is not said to be JSON.
    #[error("the content type of the body is not application/json")]
    NotJson,
    /// No valid credential came with the request.
    #[error("no valid token came with the request")]
    Stranger,
    /// The user or the password is wrong: the answer doesn't tell which.
    #[error("the user or the password is wrong")]
    WrongPassword,
    /// Another system does not confirm the person.
    #[error("{0}")]
    NoLogIn(String),
    /// A system that checks log-ins can't be asked.
    #[error("the log-in {0} does not work at present")]
    NoIdentity(String),
    /// There were too many wrong passwords of the user.
    #[error("too many wrong passwords: the next attempt may begin in {seconds} s")]
    Later {
        /// The wait in seconds.
        seconds: u128,
    },
    /// A page of another address asks, or the request is for another address.
    #[error("this request comes from another web page, or is for another address than the hub's")]
    ForeignPage,
    /// The user may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The entity does not exist, or the user may not know of it.
    #[error("no {what} {name:?}")]
    Missing {
        /// The kind of the entity.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The entity is not in a state for this.
    #[error("{0}")]
    Conflict(String),
    /// The tenant has too many requests under way.
    #[error("too many requests of the tenant are under way")]
    Busy,
    /// A quota is exceeded.
    #[error("{0}")]
    Quota(String),
    /// The catalogue refused.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The audit could not be written: nothing was done.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The store failed. The hub stops, because its memory may be ahead of its disk.
    #[error("the store of the hub failed: {0}")]
    Store(String),
    /// Another hub of the circle has to do it.
    #[error("{0}")]
    Elsewhere(String),
    /// A file or program of the hub failed.
    #[error("{0}")]
    Internal(String),
}

impl HubError {
    /// A missing cluster.
    pub(crate) fn no_cluster(name: &Name) -> Self {
        Self::Missing { what: "cluster", name: name.to_string() }
    }

    /// The HTTP status (RFC 9110, section 15).
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Bad(_) => 400,
            Self::Method => 405,
            Self::TooLong => 413,
            Self::NotJson => 415,
            Self::Stranger | Self::WrongPassword | Self::NoLogIn(_) => 401,
            Self::Busy | Self::Later { .. } => 429,
            Self::Forbidden(_) | Self::ForeignPage => 403,
            Self::Missing { .. } => 404,
            Self::Conflict(_) | Self::Quota(_) => 409,
            Self::Catalogue(error) => match error {
                CatalogueError::NoVersion(_) | CatalogueError::NoEntity { .. } => 404,
                CatalogueError::BadName(_) | CatalogueError::BadPath(_) | CatalogueError::BadDocument(_) => 400,
                CatalogueError::InOtherFile { .. } | CatalogueError::Busy => 409,
                CatalogueError::Refused(_) | CatalogueError::Unreadable(_) | CatalogueError::TooLarge => 422,
                CatalogueError::Git(_) | CatalogueError::Io(_) | CatalogueError::Unchecked(_) => 500,
            },
            Self::Audit(_) | Self::Store(_) | Self::Elsewhere(_) => 503,
            Self::NoIdentity(_) => 502,
            Self::Internal(_) => 500,
        }
    }

    /// The body of the answer.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        let hint = match self {
            Self::Stranger => Some(
                "send `Authorization: Bearer TOKEN`; an administrator makes a token with `POST /v1/tokens`".to_owned(),
            ),
            Self::Busy | Self::Catalogue(CatalogueError::Busy) => Some("try again".to_owned()),
            Self::Method => Some("see `GET /v1/openapi.json` for the methods of each path".to_owned()),
            Self::NotJson => Some("send `Content-Type: application/json`".to_owned()),
            Self::Quota(_) => Some("delete clusters that nobody needs, or ask for a greater quota".to_owned()),
            Self::WrongPassword => Some("an administrator sets a password with `cobctl hub password`".to_owned()),
            Self::ForeignPage => Some(
                "open the page at the address of --listen, or at the address that the hub's owner names with --page"
                    .to_owned(),
            ),
            Self::NoIdentity(_) => Some("try again; the log of the hub has the reason".to_owned()),
            Self::Later { .. } => Some("wait, and try again".to_owned()),
            Self::Elsewhere(_) => {
                Some("`GET /v1/whoami` of each hub says in its header `cob-hub` whether it leads".to_owned())
            }
            Self::Bad(_)
            | Self::TooLong
            | Self::Forbidden(_)
            | Self::Missing { .. }
            | Self::Conflict(_)
            | Self::Catalogue(_)
            | Self::Audit(_)
            | Self::Store(_)
            | Self::NoLogIn(_)
            | Self::Internal(_) => None,
        };
        let faults = match self {
            Self::Catalogue(CatalogueError::Refused(faults) | CatalogueError::Unreadable(faults)) => faults.clone(),
            Self::Bad(_)
            | Self::Method
            | Self::TooLong
            | Self::NotJson
            | Self::Stranger
            | Self::WrongPassword
            | Self::NoLogIn(_)
            | Self::NoIdentity(_)
            | Self::ForeignPage
            | Self::Later { .. }
            | Self::Forbidden(_)
            | Self::Missing { .. }
            | Self::Conflict(_)
            | Self::Quota(_)
            | Self::Busy
            | Self::Catalogue(_)
            | Self::Audit(_)
            | Self::Store(_)
            | Self::Elsewhere(_)
            | Self::Internal(_) => Vec::new(),
        };
        Refusal { error: self.to_string(), hint, faults }
    }
}
