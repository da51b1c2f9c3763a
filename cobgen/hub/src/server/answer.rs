//! Answers of the API.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cob_api_server::described::{Answer, Schemas};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

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
pub(super) type Answered<T> = Result<Json<T>, Refused>;

/// The hub has accepted an order; the body tells where its progress is seen.
pub(super) struct Accepted<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Accepted<T> {
    fn into_response(self) -> Response {
        (StatusCode::ACCEPTED, Json(self.0)).into_response()
    }
}

impl<T: Serialize + JsonSchema> Answer for Accepted<T> {
    const STATUS: u16 = 202;

    fn describe(schemas: &mut Schemas) -> Value {
        <Json<T> as Answer>::describe(schemas)
    }
}

/// The hub has accepted an order; there is nothing to tell.
pub(super) struct Taken;

impl IntoResponse for Taken {
    fn into_response(self) -> Response {
        StatusCode::ACCEPTED.into_response()
    }
}

impl Answer for Taken {
    const STATUS: u16 = 202;

    fn describe(_: &mut Schemas) -> Value {
        json!({})
    }
}

/// The change is made.
pub(super) struct NoContent;

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

impl Answer for NoContent {
    const STATUS: u16 = 204;

    fn describe(_: &mut Schemas) -> Value {
        json!({})
    }
}
