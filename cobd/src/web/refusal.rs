//! The refusal of a request, as the API answers it.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cob_types::api::{RefusalBody, RefusalCode};

/// A refused order or question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// The category: it tells which party must act.
    pub kind: RefusalKind,
    /// The refused request and the reason.
    pub error: String,
    /// The remedy.
    pub hint: String,
    /// The reason, for programs, if a program acts on it.
    pub code: Option<RefusalCode>,
}

/// The category of a refusal, which clients see as the status of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// 400: the request is malformed.
    Invalid,
    /// 401: the caller is not identified.
    Unauthorized,
    /// 403: not from this source, or not with this role.
    Forbidden,
    /// 404: no such object here.
    NotFound,
    /// 405: the path needs another method.
    Method,
    /// 409: not possible in the present state of the host.
    Conflict,
    /// 413: the body is too long.
    TooLong,
    /// 415: not JSON.
    NotJson,
    /// 429: too many wrong tokens.
    TooMany,
    /// 503: temporarily not possible; the client may repeat the request.
    Unavailable,
}

impl RefusalKind {
    /// All kinds.
    pub(super) const ALL: [Self; 10] = [
        Self::Invalid,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Method,
        Self::Conflict,
        Self::TooLong,
        Self::NotJson,
        Self::TooMany,
        Self::Unavailable,
    ];

    /// The meaning, for clients.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            RefusalKind::Invalid => "The request is malformed.",
            RefusalKind::Unauthorized => "The caller has no known key and no valid token.",
            RefusalKind::Forbidden => "The source or the role of the caller does not permit the request.",
            RefusalKind::NotFound => "The path, change object, generation or host is unknown.",
            RefusalKind::Method => "The path has another method: GET for questions, POST for orders.",
            RefusalKind::Conflict => "The state of the host does not permit the request, or another host is meant.",
            RefusalKind::TooLong => "The body is too long.",
            RefusalKind::NotJson => "The content type of the body is not application/json.",
            RefusalKind::TooMany => "The address has sent too many wrong tokens.",
            RefusalKind::Unavailable => "The daemon starts, stops or is busy; the client may repeat the request.",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::Unauthorized => StatusCode::UNAUTHORIZED,
            RefusalKind::Forbidden => StatusCode::FORBIDDEN,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Method => StatusCode::METHOD_NOT_ALLOWED,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            RefusalKind::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            RefusalKind::TooMany => StatusCode::TOO_MANY_REQUESTS,
            RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(kind: RefusalKind, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, error: error.into(), hint: hint.into(), code: None }
    }

    /// Adds the reason for programs.
    pub(super) fn with(self, code: RefusalCode) -> Self {
        Self { code: Some(code), ..self }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = RefusalBody { error: self.error, hint: self.hint, code: self.code };
        let mut response = (self.kind.status(), Json(body)).into_response();
        if self.kind == RefusalKind::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
