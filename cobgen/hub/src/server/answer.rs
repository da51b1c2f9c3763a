//! Answers of the API.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::hub::HubError;

/// A refusal as an HTTP answer.
pub(super) struct Refused(pub(super) HubError);

impl From<HubError> for Refused {
    fn from(error: HubError) -> Self {
        Self(error)
    }
}

impl From<crate::catalogue::CatalogueError> for Refused {
    fn from(error: crate::catalogue::CatalogueError) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::warn!(error = %self.0, "a request failed");
        }
        (status, Json(self.0.refusal())).into_response()
    }
}

/// An answer, or a refusal.
pub(super) type Answer<T> = Result<Json<T>, Refused>;
