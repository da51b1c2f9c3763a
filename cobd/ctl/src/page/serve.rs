//! The HTTP side: the page's files, the stream, questions and orders.

use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cob_api_server::page::{PageFile, files as files_of, protect};
use cob_types::CobId;
use cob_types::status::CobStatus;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::door::{Denied, Door};
use super::faults::{self, Trials};
use super::feed::Feed;
use super::model::{Change, Fault, LARGEST, Model};
use super::question::{Line, Order, Program, Values, question};
use super::worker::{Answer, Worker};
use crate::targets::Targets;

/// The longest body of an order.
const MAX_BODY: usize = 64 << 10;

/// The page's files. Built by `cobd/ctl/page/build.mjs`.
const FILES: [PageFile; 5] = [
    PageFile { path: "/", content: include_bytes!("../../page/bundle/index.html") },
    PageFile { path: "/page.js", content: include_bytes!("../../page/bundle/page.js") },
    PageFile { path: "/editor.js", content: include_bytes!("../../page/bundle/editor.js") },
    PageFile { path: "/page.css", content: include_bytes!("../../page/bundle/page.css") },
    PageFile { path: "/icon.svg", content: include_bytes!("../../page/bundle/icon.svg") },
];

/// The parts of the page that requests use.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    /// The check of requests.
    pub door: Door,
    /// The streams.
    pub feed: Feed,
    /// Questions and orders.
    pub worker: Worker,
    /// The model that the page edits.
    pub model: Option<Model>,
    /// Hosts and depot.
    pub targets: Targets,
    /// The trials of faults.
    pub trials: Trials,
    /// Questions that the page's own loop answers.
    pub own: mpsc::Sender<Own>,
}

/// A question that needs no command.
#[derive(Debug)]
pub(crate) enum Own {
    /// The status of a change object, with the time on its host.
    Cob(CobId, oneshot::Sender<Option<CobAnswer>>),
    /// The generations of the depot.
    Generations(oneshot::Sender<Answer>),
}

/// A change object in full.
#[derive(Debug, Serialize)]
pub(crate) struct CobAnswer {
    /// The time on its host, in milliseconds since 1970.
    pub host_now_ms: u64,
    /// Its status, as in the daemon's API.
    pub cob: CobStatus,
}

/// The server's paths.
pub(crate) fn router(desk: Desk) -> Router {
    let api = Router::new()
        .route("/api/stream", get(stream))
        .route("/api/cob", get(cob))
        .route("/api/ask/generations", get(generations))
        .route("/api/ask/{name}", get(ask))
        .route("/api/orders", post(order))
        .route("/api/faults", get(what_if))
        .route("/api/model", get(files))
        .route("/api/model/editor", get(editor))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        // A text of a model may be written with escapes.
        .route("/api/model/file", get(read).post(write).layer(DefaultBodyLimit::max(2 * LARGEST + MAX_BODY)))
        .route("/api/model/editor/{editor}", post(tell).layer(DefaultBodyLimit::max(2 * LARGEST + MAX_BODY)))
        .layer(from_fn_with_state(desk.door.clone(), operator));
    files_of(&FILES).merge(api).fallback(unknown).layer(from_fn_with_state(desk.door.clone(), visitor)).with_state(desk)
}

/// Refuses requests for another address, and sets the headers of every answer.
async fn visitor(State(door): State<Door>, request: Request, next: Next) -> Response {
    let mut response = match door.visitor(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(denied) => refused(denied),
    };
    protect(response.headers_mut());
    response
}

/// Refuses questions of others than the operator's browser.
async fn operator(State(door): State<Door>, request: Request, next: Next) -> Response {
    match door.operator(request.headers()) {
        Ok(()) if request.method() == Method::POST && !is_json(request.headers()) => {
            refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "an order must have the content type application/json", "")
        }
        Ok(()) => next.run(request).await,
        Err(denied) => refused(denied),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn refused(denied: Denied) -> Response {
    match denied {
        Denied::Foreign => refusal(
            StatusCode::FORBIDDEN,
            "this request comes from another page, or is for another address",
            "open the address that `cobctl page` prints",
        ),
        Denied::Secret => refusal(
            StatusCode::UNAUTHORIZED,
            "the key of the page is missing or wrong",
            "open the address that `cobctl page` prints; each start has a new key",
        ),
    }
}

fn refusal(status: StatusCode, error: &str, hint: &str) -> Response {
    (status, Json(json!({"error": error, "hint": hint}))).into_response()
}

async fn unknown() -> Response {
    refusal(StatusCode::NOT_FOUND, "the page has no file at this path", "")
}

async fn stream(State(desk): State<Desk>) -> Response {
    let lines = futures_util::stream::unfold(desk.feed.follow(), |mut stream| async move {
        let line = stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), stream))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// The progress and the result of a trial; it ends when the browser leaves.
async fn what_if(State(desk): State<Desk>, question: Result<Query<faults::Question>, QueryRejection>) -> Response {
    let question = match question {
        Ok(Query(question)) => question,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &cob_types::words::form(error.body_text()), ""),
    };
    match desk.trials.begin(desk.targets, question) {
        Ok(Some(told)) => {
            let lines = futures_util::stream::unfold(told, |mut told| async move {
                let mut line = serde_json::to_vec(&told.recv().await?).ok()?;
                line.push(b'\n');
                Some((Ok::<_, std::convert::Infallible>(line), told))
            });
            ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
        }
        Ok(None) => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the faults of another switch are tried at this moment",
            "wait for its end, or cancel it in its tab",
        ),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), ""),
    }
}

async fn ask(State(desk): State<Desk>, Path(name): Path<String>, Query(values): Query<Values>) -> Response {
    match question(&name, &values) {
        None => refusal(StatusCode::NOT_FOUND, "the page has no question of this name", ""),
        Some(Err(fault)) => refusal(StatusCode::BAD_REQUEST, &fault, ""),
        Some(Ok(line)) => match with_model(&desk, line) {
            Some(line) => match desk.worker.ask(line).await {
                Some(answer) => Json(answer).into_response(),
                None => busy(),
            },
            None => no_model(),
        },
    }
}

/// The command line, with the model and the depot if it is for the generator. Absent: the page has none.
fn with_model(desk: &Desk, line: Line) -> Option<Line> {
    if line.program == Program::Cobctl {
        return Some(line);
    }
    let words = desk.model.as_ref()?.words(&line.words)?;
    Some(Line { words, ..line })
}

fn no_model() -> Response {
    refusal(StatusCode::NOT_FOUND, "the page has no model", "start `cobctl page` with --model and with --depot")
}

fn fault(fault: &Fault) -> Response {
    let (status, hint) = match fault {
        Fault::Unknown(_) => (StatusCode::NOT_FOUND, ""),
        Fault::Changed(_) => (StatusCode::CONFLICT, "copy your text, and read the file again"),
        Fault::Exists(_) => (StatusCode::CONFLICT, "choose another name, or reload the page to edit that file"),
        Fault::Name(_) | Fault::NoFolder | Fault::NoText(_) => (StatusCode::UNPROCESSABLE_ENTITY, ""),
        Fault::Disk(..) => (StatusCode::INTERNAL_SERVER_ERROR, ""),
    };
    refusal(status, &fault.to_string(), hint)
}

async fn files(State(desk): State<Desk>) -> Response {
    let Some(model) = desk.model else { return no_model() };
    match model.files() {
        Ok(files) => Json(files).into_response(),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), ""),
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

async fn read(State(desk): State<Desk>, Query(Named { name }): Query<Named>) -> Response {
    let Some(model) = desk.model else { return no_model() };
    match model.read(&name) {
        Ok(text) => Json(text).into_response(),
        Err(found) => fault(&found),
    }
}

async fn write(State(desk): State<Desk>, change: Result<Json<Change>, JsonRejection>) -> Response {
    let Some(model) = desk.model else { return no_model() };
    match change {
        Ok(Json(change)) => match model.write(&change) {
            Ok(hash) => Json(json!({"hash": hash})).into_response(),
            Err(found) => fault(&found),
        },
        Err(error) => refusal(error.status(), &cob_types::words::form(error.body_text()), ""),
    }
}

/// The messages of a language server; it ends when the browser leaves.
async fn editor(State(desk): State<Desk>) -> Response {
    let Some(model) = desk.model else { return no_model() };
    match model.editor() {
        Ok(Some(editor)) => {
            let lines = futures_util::stream::unfold(editor, |mut editor| async move {
                let line = editor.next().await?;
                Some((Ok::<_, std::convert::Infallible>(line), editor))
            });
            ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
        }
        Ok(None) => busy(),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("cobgen can't be started: {error}"), ""),
    }
}

async fn tell(State(desk): State<Desk>, Path(editor): Path<u64>, message: Bytes) -> Response {
    let Some(model) = desk.model else { return no_model() };
    if model.tell(editor, &message).await {
        StatusCode::NO_CONTENT.into_response()
    } else {
        refusal(StatusCode::NOT_FOUND, "this editor has ended", "")
    }
}

fn busy() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "too many questions and orders at the same time", "try again in a moment")
}

#[derive(Deserialize)]
struct OfCob {
    id: CobId,
}

async fn cob(State(desk): State<Desk>, Query(OfCob { id }): Query<OfCob>) -> Response {
    let (tell, answer) = oneshot::channel();
    if desk.own.send(Own::Cob(id, tell)).await.is_err() {
        return busy();
    }
    match answer.await {
        Ok(Some(answer)) => Json(answer).into_response(),
        Ok(None) => refusal(StatusCode::NOT_FOUND, "no host that answers has this change object", ""),
        Err(_) => busy(),
    }
}

async fn generations(State(desk): State<Desk>) -> Response {
    let (tell, answer) = oneshot::channel();
    if desk.own.send(Own::Generations(tell)).await.is_err() {
        return busy();
    }
    match answer.await {
        Ok(answer) => Json(answer).into_response(),
        Err(_) => busy(),
    }
}

async fn order(State(desk): State<Desk>, order: Result<Json<Order>, JsonRejection>) -> Response {
    let order = match order {
        Ok(Json(order)) => order,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &cob_types::words::form(error.body_text()), ""),
    };
    match order.line().map(|line| with_model(&desk, line)) {
        Ok(Some(line)) => match desk.worker.order(line) {
            Some(id) => Json(json!({"id": id})).into_response(),
            None => busy(),
        },
        Ok(None) => no_model(),
        Err(fault) => refusal(StatusCode::BAD_REQUEST, &fault, ""),
    }
}
