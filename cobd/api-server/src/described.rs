//! The description of an API in OpenAPI 3.1: the types of a handler's arguments and answer are the types that it shows.
//!
//! So the description can't differ from what the server reads and writes.

use std::borrow::Cow;
use std::fmt;

use axum::Json;
use axum::extract::{Extension, State};
use axum::handler::Handler;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Where OpenAPI keeps its schemas.
const SCHEMAS: &str = "/components/schemas";

/// The method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// A question; `HEAD` is answered, too.
    Get,
    /// An order.
    Post,
    /// Writes an entity.
    Put,
    /// Removes an entity.
    Delete,
}

impl Verb {
    /// The verb of a method.
    #[must_use]
    pub fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::POST => Some(Self::Post),
            Method::PUT => Some(Self::Put),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    /// The name in OpenAPI.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// A handler with its description. `S` is the state of the router.
pub struct Handled<S> {
    serve: Box<dyn FnOnce(MethodFilter) -> MethodRouter<S>>,
    describe: fn(&mut Schemas) -> Operation,
}

impl<S> Handled<S> {
    /// The handler as a route of the router.
    pub fn serve(self, verb: Verb) -> MethodRouter<S> {
        (self.serve)(verb.filter())
    }

    /// The description of the handler.
    #[must_use]
    pub fn describe(&self, schemas: &mut Schemas) -> Operation {
        (self.describe)(schemas)
    }
}

impl<S> fmt::Debug for Handled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a handler")
    }
}

/// A handler that its types describe.
pub fn by<S, H, T, Arguments>(handler: H) -> Handled<S>
where
    H: Handler<T, S> + Described<Arguments>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    Handled { serve: Box::new(move |method| on(method, handler)), describe: H::describe }
}

/// The schemas of a description; each type is described once.
#[derive(Debug)]
pub struct Schemas {
    asked: SchemaGenerator,
    answered: SchemaGenerator,
}

/// The parts of an operation that the types of its handler say.
#[derive(Debug, Default)]
pub struct Operation {
    /// Parameters of path and query.
    pub parameters: Vec<Value>,
    /// The body of the request.
    pub body: Option<Value>,
    /// The answers without refusals, by status.
    pub answers: Map<String, Value>,
}

impl Default for Schemas {
    fn default() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
            settings
        };
        Self {
            asked: settings().for_deserialize().with_transform(RecursiveTransform(merged)).into_generator(),
            answered: settings().for_serialize().into_generator(),
        }
    }
}

/// A list of different items may have an item twice: the server merges them.
fn merged(schema: &mut Schema) {
    schema.remove("uniqueItems");
}

impl Schemas {
    /// The schema of a type that the server reads.
    pub fn asked<T: JsonSchema>(&mut self) -> Value {
        self.asked.subschema_for::<T>().to_value()
    }

    /// The schema of a type that the server writes.
    pub fn answered<T: JsonSchema>(&mut self) -> Value {
        self.answered.subschema_for::<T>().to_value()
    }

    /// The description of a type that the server reads.
    pub fn words_of<T: JsonSchema>() -> String {
        let schema = Self::default().asked.into_root_schema_for::<T>();
        schema.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ")
    }

    /// All schemas by name. A type that the server reads and writes has the schema of a request in both directions: a
    /// request may leave out what an answer always has.
    pub fn all(mut self) -> Map<String, Value> {
        let mut all = self.answered.take_definitions(true);
        all.extend(self.asked.take_definitions(true));
        all
    }
}

/// An argument of a handler.
pub trait Argument {
    /// Adds the argument to the description; arguments that are not of the request add nothing.
    fn describe(_: &mut Operation, _: &mut Schemas) {}
}

impl<S> Argument for State<S> {}
impl<T> Argument for Extension<T> {}
impl<T> Argument for Option<Extension<T>> {}

/// The parameters of a query or path: the fields of a type.
pub fn parameters<T: JsonSchema>(place: &str, operation: &mut Operation, schemas: &mut Schemas) {
    let fields = T::json_schema(&mut schemas.asked).to_value();
    let required: Vec<&str> = fields["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, schema) in fields["properties"].as_object().into_iter().flatten() {
        let required = required.contains(&name.as_str());
        operation.parameters.push(parameter(place, name, required, schema.clone()));
    }
}

/// The JSON body of a request. An empty body counts as an empty object.
pub fn json_body<T: JsonSchema + DeserializeOwned>(operation: &mut Operation, schemas: &mut Schemas) {
    let schema = schemas.asked::<T>();
    let required = serde_json::from_str::<T>("{}").is_err();
    operation.body = Some(json!({"required": required, "content": {"application/json": {"schema": schema}}}));
}

/// A parameter with its description.
#[must_use]
pub fn parameter(place: &str, name: &str, required: bool, mut schema: Value) -> Value {
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

/// The answer of a handler.
pub trait Answer: IntoResponse {
    /// The status.
    const STATUS: u16 = 200;

    /// The bodies by content type.
    fn describe(schemas: &mut Schemas) -> Value;
}

impl<T: Serialize + JsonSchema> Answer for Json<T> {
    fn describe(schemas: &mut Schemas) -> Value {
        json!({"application/json": {"schema": schemas.answered::<T>()}})
    }
}

/// A text in JSON that is sent as it is.
#[derive(Debug)]
pub struct Document(pub &'static str);

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

impl Answer for Document {
    fn describe(_: &mut Schemas) -> Value {
        json!({"application/json": {"schema": {"type": "object", "description": "OpenAPI 3.1"}}})
    }
}

/// A handler whose types describe it.
pub trait Described<Arguments> {
    /// The description.
    fn describe(schemas: &mut Schemas) -> Operation;
}

macro_rules! described {
    ($($argument:ident)*) => {
        impl<F, Future, A, Refusal, $($argument),*> Described<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Future,
            Future: std::future::Future<Output = Result<A, Refusal>>,
            A: Answer,
            $($argument: Argument),*
        {
            fn describe(schemas: &mut Schemas) -> Operation {
                let arguments: &[fn(&mut Operation, &mut Schemas)] = &[$($argument::describe),*];
                let mut operation = Operation::default();
                let answer = json!({"description": "The answer.", "content": A::describe(schemas)});
                operation.answers.insert(A::STATUS.to_string(), answer);
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
#[must_use]
pub fn first_sentence(text: &str) -> Cow<'_, str> {
    match text.split_once(". ") {
        Some((first, _)) => format!("{first}.").into(),
        None => text.into(),
    }
}

/// The id of an operation: the method and the words of its path.
#[must_use]
pub fn operation_id(verb: Verb, path: &str) -> String {
    let words = path.trim_start_matches("/v1").split(['/', '.', '-']);
    let words = words.filter(|word| !word.is_empty() && !word.starts_with('{'));
    words.fold(verb.word().to_owned(), |id, word| format!("{id}_{word}"))
}

/// The paths of a description, each with its operations.
pub fn paths(operations: impl IntoIterator<Item = (Verb, &'static str, Value)>) -> Map<String, Value> {
    let mut paths = Map::new();
    for (verb, path, operation) in operations {
        // OpenAPI has no form for a parameter with several parts.
        let path = paths.entry(path.replace("{*", "{")).or_insert_with(|| json!({}));
        path[verb.word()] = operation;
    }
    paths
}

/// Comments of the code have line ends in their sentences.
pub fn in_lines(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.split("\n\n").map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
            }
            fields.values_mut().for_each(in_lines);
        }
        Value::Array(items) => items.iter_mut().for_each(in_lines),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
