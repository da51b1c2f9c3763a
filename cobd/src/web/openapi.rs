//! The description of the API in OpenAPI 3.1, from the [table](super::table).
//!
//! `docs/openapi.json` is the committed copy. `UPDATE=1 cargo test -p cobd --lib openapi` writes it.

use std::sync::LazyLock;

use cob_api_server::described::{Document, Operation, Schemas, Verb, in_lines, operation_id, paths};
use cob_types::api::{EPOCH, MEANT_FOR, RefusalBody};
use serde_json::{Map, Value, json};

use super::refusal::{Refusal, RefusalKind};
use super::table::{Route, table};

/// The rules that hold for every route.
const ABOUT: &str = "\
The API of a COB daemon. Each daemon answers for its own host. docs/api.md explains roles, streams and orders.

Paths and fields are only added: ignore unknown fields, and unknown words of a list of words. Times are nanoseconds since \
1970 by the host's clock.

A request that needs a right proves a key or a token over TLS, or comes through the Unix socket. The role stands in \
`x-cob-role`. Every refusal has a JSON object with `error`, `hint` and, for programs, `code`. Only bytes that are not HTTP, \
and a head of more than 16 KiB, are refused without a body.

Pages: the history has `since` and `limit`. Streams: `x-cob-item` is the schema of an event or of a line.";

/// The refusals of every route.
const ALWAYS: [RefusalKind; 6] = [
    RefusalKind::Invalid,
    RefusalKind::Unauthorized,
    RefusalKind::Forbidden,
    RefusalKind::Conflict,
    RefusalKind::TooMany,
    RefusalKind::Unavailable,
];

/// The refusals of every order besides.
const OF_ORDERS: [RefusalKind; 2] = [RefusalKind::TooLong, RefusalKind::NotJson];

/// The description, as text.
static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));

/// The description, as text.
#[must_use]
pub fn text() -> &'static str {
    &TEXT
}

pub(super) async fn answer() -> Result<Document, Refusal> {
    Ok(Document(text()))
}

fn document() -> Value {
    let mut document = assembled();
    in_lines(&mut document);
    document
}

fn assembled() -> Value {
    let mut schemas = Schemas::default();
    let paths = paths(table().iter().map(|route| (route.verb, route.path, operation(route, &mut schemas))));
    let refusal = json!({"application/json": {"schema": schemas.answered::<RefusalBody>()}});
    let response =
        |kind: RefusalKind| (format!("{kind:?}"), json!({"description": kind.meaning(), "content": refusal}));
    let responses: Map<String, Value> = RefusalKind::ALL.into_iter().map(response).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "COB daemon",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
            "description": ABOUT,
        },
        "servers": [{"url": "http://localhost", "description": "The Unix socket, or the port of a daemon."}],
        "tags": [
            {"name": "questions", "description": "GET: changes no state."},
            {"name": "orders", "description": "POST: durable when answered; a repetition has no effect."},
        ],
        "paths": paths,
        "components": {
            "schemas": schemas.all(),
            "responses": responses,
            "parameters": {MEANT_FOR: {
                "in": "header",
                "name": MEANT_FOR,
                "required": false,
                "description": "The intended host: the daemon of another host refuses the request.",
                "schema": {"type": "string"},
            }, EPOCH: {
                "in": "header",
                "name": EPOCH,
                "required": false,
                "description": "The epoch of a hub: a host that knows a greater epoch refuses the order.",
                "schema": {"type": "integer", "format": "uint64", "minimum": 0},
            }},
            "securitySchemes": {
                "key": {"type": "mutualTLS", "description": "The key of an operator, over TLS 1.3."},
                "token": {"type": "http", "scheme": "bearer", "description": "The token of an operator, over TLS 1.3."},
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let Operation { parameters, body, answers } = route.handler.describe(schemas);
    let (tag, more) = match route.verb {
        Verb::Get => ("questions", &[][..]),
        Verb::Post | Verb::Put | Verb::Delete => ("orders", &OF_ORDERS[..]),
    };
    let refusals = ALWAYS.iter().chain(more).chain(route.refusals);
    let refused = refusals.map(|kind| {
        let answer = json!({"$ref": format!("#/components/responses/{kind:?}")});
        (kind.status().as_str().to_owned(), answer)
    });
    let responses: Map<String, Value> = refused.chain(answers).collect();
    let meant_for = json!({"$ref": format!("#/components/parameters/{MEANT_FOR}")});
    let epoch = (tag == "orders").then(|| json!({"$ref": format!("#/components/parameters/{EPOCH}")}));
    let role = route.role.to_string();
    let mut operation = json!({
        "operationId": operation_id(route.verb, route.path),
        "summary": route.summary,
        "tags": [tag],
        "x-cob-role": role,
        "security": [{"key": [role]}, {"token": [role]}, {}],
        "parameters": parameters.into_iter().chain([meant_for]).chain(epoch).collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_description_matches_the_route_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, text()).expect("written");
        }
        let committed = std::fs::read_to_string(&path).expect("docs/openapi.json");
        let committed: Value = serde_json::from_str(&committed).expect("JSON");
        assert!(committed == document(), "run `UPDATE=1 cargo test -p cobd --lib openapi`, and read the difference");
    }

    #[test]
    fn every_operation_is_complete() {
        let document = document();
        let mut ids = std::collections::BTreeSet::new();
        for (path, operations) in document["paths"].as_object().expect("paths") {
            for (verb, operation) in operations.as_object().expect("operations") {
                assert!(ids.insert(operation["operationId"].to_string()), "{path}: the id is used twice");
                let summary = operation["summary"].as_str().expect("a summary");
                assert!(summary.ends_with('.') && summary.len() < 140, "{verb} {path}: {summary:?}");
                let in_path = path.matches('{').count();
                let parameters = operation["parameters"].as_array().expect("parameters");
                assert_eq!(parameters.iter().filter(|p| p["in"] == "path").count(), in_path, "{path}");
                let described =
                    |p: &Value| p.get("$ref").is_some() || p["description"].as_str().is_some_and(|d| !d.is_empty());
                let typed = |p: &Value| p.get("schema").is_none_or(|schema| !schema.to_string().contains("null"));
                assert!(parameters.iter().all(typed), "{verb} {path}: {parameters:?}");
                assert!(parameters.iter().all(described), "{verb} {path}: {parameters:?}");
                assert_eq!(operation.get("requestBody").is_some(), verb == "post", "{verb} {path}");
            }
        }
        let text = text();
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        for target in text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(schemas.contains_key(target), "{target}");
        }
    }
}
