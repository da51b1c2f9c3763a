//! The descriptions of handlers: the types of a handler's arguments and answer are the types that OpenAPI shows.
//!
//! So the description can't differ from what the daemon reads and writes.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cob_types::CobId;
use cob_types::api::Order;
use cob_types::command_run::RunId;
use futures_util::stream::{Stream, StreamExt as _};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::api::Api;
use super::refusal::{Refusal, RefusalKind};
use super::routes::{body, cob_id};

/// Where OpenAPI keeps its schemas.
const SCHEMAS: &str = "/components/schemas";

/// The schemas of a description; each type is described once.
#[derive(Debug)]
pub(super) struct Schemas {
    asked: SchemaGenerator,
    answered: SchemaGenerator,
}

/// The parts of an operation that the types of its handler say.
#[derive(Debug, Default)]
pub(super) struct Operation {
    /// Parameters of path and query.
    pub(super) parameters: Vec<Value>,
    /// The body of the request.
    pub(super) body: Option<Value>,
    /// The bodies of the answer, by content type.
    pub(super) answer: Value,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
            settings
        };
        Self {
            asked: settings().for_deserialize().into_generator(),
            answered: settings().for_serialize().into_generator(),
        }
    }

    /// The schema of a type that the daemon reads.
    pub(super) fn asked<T: JsonSchema>(&mut self) -> Value {
        self.asked.subschema_for::<T>().to_value()
    }

    /// The schema of a type that the daemon writes.
    pub(super) fn answered<T: JsonSchema>(&mut self) -> Value {
        self.answered.subschema_for::<T>().to_value()
    }

    /// The description of a type that the daemon reads.
    pub(super) fn words_of<T: JsonSchema>() -> String {
        let schema = Self::new().asked.into_root_schema_for::<T>();
        schema.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ")
    }

    /// All schemas by name. A type that the daemon reads and writes has one schema in both directions.
    pub(super) fn all(mut self) -> Map<String, Value> {
        let mut all = self.answered.take_definitions(true);
        for (name, schema) in self.asked.take_definitions(true) {
            let known = all.insert(name.clone(), schema.clone());
            debug_assert!(known.is_none_or(|known| known == schema), "{name} is read and written in different forms");
        }
        all
    }
}

/// An argument of a handler.
pub(super) trait Argument {
    /// Adds the argument to the description; arguments that are not of the request add nothing.
    fn describe(_: &mut Operation, _: &mut Schemas) {}
}

impl Argument for State<Api> {}
impl<T> Argument for Extension<T> {}
impl<T> Argument for Option<Extension<T>> {}

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
        let query = Q::json_schema(&mut schemas.asked).to_value();
        let required: Vec<&str> =
            query["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, schema) in query["properties"].as_object().into_iter().flatten() {
            operation.parameters.push(parameter("query", name, required.contains(&name.as_str()), schema.clone()));
        }
    }
}

fn parameter(place: &str, name: &str, required: bool, mut schema: Value) -> Value {
    without_null(&mut schema);
    let description = schema.as_object_mut().and_then(|schema| schema.remove("description")).unwrap_or_default();
    json!({"in": place, "name": name, "required": required, "description": description, "schema": schema})
}

/// A parameter is absent or has a value: it is never null.
fn without_null(schema: &mut Value) {
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|one| one != "null");
        if let [one] = &types[..] {
            schema["type"] = one.clone();
        }
    }
    if let Some([one, _]) = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice) {
        let mut only = one.clone();
        if let Some(description) = schema.get("description") {
            only["description"] = description.clone();
        }
        *schema = only;
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
        let schema = schemas.asked::<T>();
        // An empty body counts as an empty object.
        let required = serde_json::from_str::<T>("{}").is_err();
        operation.body = Some(json!({"required": required, "content": {"application/json": {"schema": schema}}}));
    }
}

/// The answer of a handler.
pub(super) trait Answer: IntoResponse {
    /// The bodies by content type.
    fn describe(schemas: &mut Schemas) -> Value;
}

impl<T: Serialize + JsonSchema> Answer for Json<T> {
    fn describe(schemas: &mut Schemas) -> Value {
        json!({"application/json": {"schema": schemas.answered::<T>()}})
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

/// A handler whose types describe it.
pub(super) trait Described<Arguments> {
    /// The description.
    fn describe(schemas: &mut Schemas) -> Operation;
}

macro_rules! described {
    ($($argument:ident)*) => {
        impl<F, Future, A, $($argument),*> Described<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Future,
            Future: std::future::Future<Output = Result<A, Refusal>>,
            A: Answer,
            $($argument: Argument),*
        {
            fn describe(schemas: &mut Schemas) -> Operation {
                let arguments: &[fn(&mut Operation, &mut Schemas)] = &[$($argument::describe),*];
                let mut operation = Operation { answer: A::describe(schemas), ..Operation::default() };
                arguments.iter().for_each(|argument| argument(&mut operation, schemas));
                operation
            }
        }
    };
}

described! {}
described! {A1}
described! {A1 A2}
described! {A1 A2 A3}
described! {A1 A2 A3 A4}
described! {A1 A2 A3 A4 A5}

/// The first sentence of a text.
pub(super) fn first_sentence(text: &str) -> Cow<'_, str> {
    match text.split_once(". ") {
        Some((first, _)) => format!("{first}.").into(),
        None => text.into(),
    }
}
