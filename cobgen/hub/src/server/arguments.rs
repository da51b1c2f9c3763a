//! The parts of a request as arguments of the handlers. A part that is not valid is refused in JSON.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use cob_api_server::described::{Argument, Operation, Schemas, json_body, parameters};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::answer::Refused;
use crate::hub::HubError;

/// The words of the query.
pub(super) struct Words<Q>(pub(super) Q);

impl<S: Sync, Q: DeserializeOwned> FromRequestParts<S> for Words<Q> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let Query(words) = Query::try_from_uri(&parts.uri).map_err(|error| HubError::Bad(error.body_text()))?;
        Ok(Self(words))
    }
}

impl<Q: JsonSchema> Argument for Words<Q> {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        parameters::<Q>("query", operation, schemas);
    }
}

/// The parameters in the path.
pub(super) struct InPath<P>(pub(super) P);

impl<S: Send + Sync, P: DeserializeOwned + Send> FromRequestParts<S> for InPath<P> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let Path(found) =
            Path::from_request_parts(parts, state).await.map_err(|error| HubError::Bad(error.body_text()))?;
        Ok(Self(found))
    }
}

impl<P: JsonSchema> Argument for InPath<P> {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        parameters::<P>("path", operation, schemas);
    }
}

/// The body of the request, in JSON.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let is_json = is_json(request.headers());
        let Content(bytes) = Content::from_request(request, state).await?;
        if !is_json && !bytes.is_empty() {
            return Err(HubError::NotJson.into());
        }
        // An empty body counts as an empty object.
        let bytes = if bytes.is_empty() { &b"{}"[..] } else { &bytes[..] };
        let body = serde_json::from_slice(bytes).map_err(|error| HubError::Bad(format!("the body: {error}")))?;
        Ok(Self(body))
    }
}

impl<T: JsonSchema + DeserializeOwned> Argument for Body<T> {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        json_body::<T>(operation, schemas);
    }
}

/// Whether the content type says JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let told = headers.get(header::CONTENT_TYPE).and_then(|told| told.to_str().ok()).unwrap_or_default();
    let kind = told.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// The body of the request as it is.
pub(super) struct Content(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Content {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        Bytes::from_request(request, state).await.map(Self).map_err(|error| refused(&error).into())
    }
}

fn refused(error: &BytesRejection) -> HubError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => HubError::TooLong,
        _ => HubError::Bad(error.body_text()),
    }
}

impl Argument for Content {
    fn describe(operation: &mut Operation, _: &mut Schemas) {
        operation.body = Some(json!({"required": false, "content": {"application/octet-stream": {}}}));
    }
}
