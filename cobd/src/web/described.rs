//! Arguments and answers of the daemon's handlers, with their descriptions.

use std::marker::PhantomData;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cob_api_server::described::{Answer, Argument, Operation, Schemas, json_body, parameter, parameters};
use cob_types::CobId;
use cob_types::api::Order;
use cob_types::command_run::RunId;
use futures_util::stream::{Stream, StreamExt as _};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::api::Api;
use super::refusal::{Refusal, RefusalKind};
use super::routes::{body, cob_id};

/// The words of a query.
#[derive(Debug)]
pub(super) struct Words<Q>(pub(super) Q);

/// The type of a query.
pub(super) trait QueryWords: DeserializeOwned + JsonSchema + Send {
    /// The remedy for an unfit query.
    const KNOWN: &'static str;
}

impl<Q: QueryWords> FromRequestParts<Api> for Words<Q> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Refusal> {
        let Query(words) =
            Query::try_from_uri(&parts.uri).map_err(|e| Refusal::new(RefusalKind::Invalid, e.body_text(), Q::KNOWN))?;
        Ok(Self(words))
    }
}

impl<Q: QueryWords> Argument for Words<Q> {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        parameters::<Q>("query", operation, schemas);
    }
}

/// The change object in a path.
#[derive(Debug)]
pub(super) struct CobPath(pub(super) CobId);

/// The run in a path.
#[derive(Debug)]
pub(super) struct RunPath(pub(super) RunId);

async fn path_text(parts: &mut Parts, api: &Api) -> Result<String, Refusal> {
    let Path(text) = Path::<String>::from_request_parts(parts, api).await.map_err(|e| {
        Refusal::new(RefusalKind::Invalid, e.body_text(), "an id has only letters, digits, `_`, `.`, `-`")
    })?;
    Ok(text)
}

impl FromRequestParts<Api> for CobPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refusal> {
        cob_id(&path_text(parts, api).await?).map(Self)
    }
}

impl Argument for CobPath {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        let mut of = parameter("path", "id", true, schemas.asked::<CobId>());
        of["description"] = "The change object. Write its `/` as `/` or as `%2F`.".into();
        operation.parameters.push(of);
    }
}

impl FromRequestParts<Api> for RunPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refusal> {
        let run = path_text(parts, api).await?.parse().map_err(|why| Refusal::new(RefusalKind::Invalid, why, ""))?;
        Ok(Self(run))
    }
}

impl Argument for RunPath {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        let mut of = parameter("path", "run", true, schemas.asked::<RunId>());
        of["description"] = "The number of the run.".into();
        operation.parameters.push(of);
    }
}

/// The order in the body of a request.
#[derive(Debug)]
pub(super) struct Ordered<T>(pub(super) T);

impl<T: Order> FromRequest<Api> for Ordered<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Refusal> {
        body(api, request).await.map(Self)
    }
}

impl<T: Order> Argument for Ordered<T> {
    fn describe(operation: &mut Operation, schemas: &mut Schemas) {
        json_body::<T>(operation, schemas);
    }
}

/// Plain text.
#[derive(Debug)]
pub(super) struct Text(pub(super) String);

impl IntoResponse for Text {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.0).into_response()
    }
}

impl Answer for Text {
    fn describe(_: &mut Schemas) -> Value {
        json!({"text/plain": {"schema": {"type": "string"}}})
    }
}

/// A JSON object for each line.
#[derive(Debug)]
pub(super) struct Lines<T>(Vec<u8>, PhantomData<T>);

impl<T: Serialize> Lines<T> {
    pub(super) fn of(entries: &[T]) -> Result<Self, Refusal> {
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)
                .map_err(|e| Refusal::new(RefusalKind::Unavailable, format!("an entry can't be written: {e}"), ""))?;
            lines.push(b'\n');
        }
        Ok(Self(lines, PhantomData))
    }
}

impl<T> IntoResponse for Lines<T> {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/x-ndjson")], self.0).into_response()
    }
}

impl<T: JsonSchema> Answer for Lines<T> {
    fn describe(schemas: &mut Schemas) -> Value {
        stream("application/x-ndjson", "Each line is an object of this schema.", schemas.answered::<T>())
    }
}

/// A stream of server-sent events with JSON.
#[derive(Debug)]
pub(super) struct Events<T>(Response, PhantomData<T>);

impl<T: Serialize + 'static> Events<T> {
    /// Events of this name; a comment comes after so long a silence.
    pub(super) fn of(name: &'static str, events: impl Stream<Item = T> + Send + 'static, silence: Duration) -> Self {
        // An error ends the stream.
        let events = events.map(move |data| Event::default().event(name).json_data(data));
        let sse = Sse::new(events).keep_alive(KeepAlive::new().interval(silence));
        Self(sse.into_response(), PhantomData)
    }
}

impl<T> IntoResponse for Events<T> {
    fn into_response(self) -> Response {
        self.0
    }
}

impl<T: JsonSchema> Answer for Events<T> {
    fn describe(schemas: &mut Schemas) -> Value {
        stream("text/event-stream", "The data of each event is an object of this schema.", schemas.answered::<T>())
    }
}

/// OpenAPI 3.1 has no form for the parts of a stream.
fn stream(content_type: &'static str, what: &str, item: Value) -> Value {
    json!({content_type: {"schema": {"type": "string", "description": what}, "x-cob-item": item}})
}
