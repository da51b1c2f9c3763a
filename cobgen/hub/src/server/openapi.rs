//! The description of the API in OpenAPI 3.1, from the [table](super::table).
//!
//! `docs/hub-openapi.json` is the committed copy. `UPDATE=1 cargo test -p cobhub --lib openapi` writes it.

use std::sync::LazyLock;

use cob_api_server::described::{Document, Operation, Schemas, in_lines, operation_id, paths};
use cob_hub_api::{Name, Refusal};
use serde_json::{Map, Value, json};

use super::answer::Refused;
use super::table::{Route, of_callers, of_strangers};

/// The rules that hold for every route.
const ABOUT: &str = "\
The API of the hub of COB. docs/hub-api.md explains tenants, rights and operations.

Paths and fields are only added: ignore unknown fields of answers. A body with an unknown field is refused. Times are \
milliseconds since 1970 by the hub's clock.

The Unix socket of the hub needs no token: its caller is the super administrator `root`. Each other request has a token, \
except a log-in. Requests of web pages (with `Origin` or `Sec-Fetch-Site`) are refused, except those of the hub's own.";

/// The refusals of every route, with their meaning.
const REFUSALS: [(u16, &str); 10] = [
    (400, "The request is malformed."),
    (401, "No valid token came with the request."),
    (403, "The caller may not do this."),
    (404, "There is no such entity, or the caller may not know of it."),
    (405, "The path has other methods."),
    (409, "The state of the entity or a quota does not permit the request."),
    (422, "The model would be wrong; `faults` has the places."),
    (429, "Too many requests of the tenant are under way."),
    (500, "A file or program of the hub failed."),
    (503, "The audit or the store can't be written; nothing was done."),
];

/// The refusals of requests with a body besides.
const OF_BODIES: [(u16, &str); 2] =
    [(413, "The body is too long."), (415, "The content type of the body is not application/json.")];

/// The description, as text.
static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));

pub(super) async fn answer() -> Result<Document, Refused> {
    Ok(Document(&TEXT))
}

fn document() -> Value {
    let mut document = assembled();
    in_lines(&mut document);
    document
}

fn assembled() -> Value {
    let mut schemas = Schemas::default();
    let (callers, strangers) = (of_callers(), of_strangers());
    let of_callers = callers.iter().map(|route| (route, true));
    let routes = of_callers.chain(strangers.iter().map(|route| (route, false)));
    let paths = paths(routes.map(|(route, known)| (route.verb, route.path, operation(route, known, &mut schemas))));
    let refusal = json!({"application/json": {"schema": schemas.answered::<Refusal>()}});
    let tenant = schemas.asked::<Name>();
    let response = |(status, meaning): (u16, &str)| {
        (format!("Refused{status}"), json!({"description": meaning, "content": refusal}))
    };
    let responses: Map<String, Value> = REFUSALS.into_iter().chain(OF_BODIES).map(response).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "COB hub",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
            "description": ABOUT,
        },
        "servers": [{"url": "http://localhost:7080", "description": "The socket `hub.sock`, or the address of `--listen`."}],
        "paths": paths,
        "components": {
            "schemas": schemas.all(),
            "responses": responses,
            "parameters": {"tenant": {
                "in": "query",
                "name": "tenant",
                "required": false,
                "description": "The tenant that a super administrator asks about; others ask about their own.",
                "schema": tenant,
            }},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of the hub."},
            },
        },
    })
}

/// The id of an operation. Its parameters tell a section from an entity, and all clusters from one.
fn id(route: &Route) -> String {
    let parameters = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let words = parameters.map(|word| word.trim_start_matches('*'));
    words.fold(operation_id(route.verb, route.path), |id, word| format!("{id}_{word}"))
}

/// `known`: the route is for callers with a token or at the socket.
fn operation(route: &Route, known: bool, schemas: &mut Schemas) -> Value {
    let Operation { parameters, body, answers } = route.handler.describe(schemas);
    let of_body = if body.is_some() { &OF_BODIES[..] } else { &[] };
    let refused = REFUSALS
        .iter()
        .chain(of_body)
        .map(|(status, _)| (status.to_string(), json!({"$ref": format!("#/components/responses/Refused{status}")})));
    let responses: Map<String, Value> = refused.chain(answers).collect();
    let tenant = known.then(|| json!({"$ref": "#/components/parameters/tenant"}));
    let security = if known { json!([{"token": []}, {}]) } else { json!([]) };
    let mut operation = json!({
        "operationId": id(route),
        "summary": route.summary,
        "security": security,
        "parameters": parameters.into_iter().chain(tenant).collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_description_matches_the_route_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hub-openapi.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &*TEXT).expect("written");
        }
        let committed = std::fs::read_to_string(&path).expect("docs/hub-openapi.json");
        let committed: Value = serde_json::from_str(&committed).expect("JSON");
        assert!(committed == document(), "run `UPDATE=1 cargo test -p cobhub --lib openapi`, and read the difference");
    }

    #[test]
    fn every_parameter_of_a_path_is_described_once() {
        let document = document();
        let mut ids = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().expect("paths") {
            for operation in operations.as_object().expect("operations").values() {
                assert!(ids.insert(operation["operationId"].to_string()), "{path}: the id is used twice");
                let parameters = operation["parameters"].as_array().expect("parameters");
                let named: BTreeSet<String> = parameters
                    .iter()
                    .filter(|parameter| parameter["in"] == "path")
                    .map(|parameter| format!("{{{}}}", parameter["name"].as_str().expect("a name")))
                    .collect();
                let in_path: BTreeSet<String> =
                    path.split('/').filter(|part| part.starts_with('{')).map(str::to_owned).collect();
                assert_eq!(named, in_path, "{path}");
                let described = |p: &Value| p.get("$ref").is_some() || p["description"].as_str() != Some("");
                assert!(parameters.iter().all(described), "{path}: {parameters:?}");
            }
        }
    }
}
