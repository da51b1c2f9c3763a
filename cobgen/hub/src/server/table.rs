//! The routes of the API: method, path, summary and handler of each, once.
//!
//! The table makes the router and the description in OpenAPI. The rights of a request are those of its entity: each
//! handler asks the hub in the name of its caller.

use std::sync::Arc;

use axum::Router;
use cob_api_server::described::{Handled, Verb, by};

use super::{openapi, routes};
use crate::hub::Hub;

/// A route.
pub(super) struct Route {
    pub(super) verb: Verb,
    /// `{*path}` is the rest of the path.
    pub(super) path: &'static str,
    /// The effect or the answer, in a sentence.
    pub(super) summary: &'static str,
    pub(super) handler: Handled<Arc<Hub>>,
}

/// The routes of callers who have no token yet.
pub(super) fn of_strangers() -> Vec<Route> {
    use Verb::{Get, Post};

    let route = |verb, path, summary, handler| Route { verb, path, summary, handler };
    vec![
        route(Post, "/v1/sessions", "Begins a session with a password.", by(routes::log_in)),
        route(Get, "/v1/log-ins", "The log-ins at providers of identities.", by(routes::log_ins)),
        route(Post, "/v1/log-ins/{log_in}", "Begins a log-in at a provider.", by(routes::begin_log_in)),
        route(Post, "/v1/log-ins/{log_in}/session", "Ends a log-in: begins a session.", by(routes::finish_log_in)),
    ]
}

/// The routes of callers with a token, and of the hub's owner.
pub(super) fn of_callers() -> Vec<Route> {
    use Verb::{Delete, Get, Post, Put};

    let route = |verb, path, summary, handler| Route { verb, path, summary, handler };
    vec![
        route(Get, "/v1/openapi.json", "This description.", by(openapi::answer)),
        route(Get, "/v1/whoami", "The identity of the caller.", by(routes::whoami)),
        route(Get, "/v1/catalogue/{section}", "The names in a section of the catalogue.", by(routes::entities)),
        route(Get, "/v1/catalogue/{section}/{name}", "An entity of the catalogue.", by(routes::entity)),
        route(Put, "/v1/catalogue/{section}/{name}", "Writes an entity.", by(routes::set_entity)),
        route(Delete, "/v1/catalogue/{section}/{name}", "Removes an entity.", by(routes::delete_entity)),
        route(
            Get,
            "/v1/catalogue/{section}/{name}/versions",
            "The versions of an entity, the newest first.",
            by(routes::versions),
        ),
        route(Get, "/v1/export", "The entities of a part of the catalogue, as a document.", by(routes::export)),
        route(Post, "/v1/import", "Writes all entities of a document, in a single version.", by(routes::import)),
        route(Put, "/v1/files/{*path}", "Writes a script or another file of the catalogue.", by(routes::set_file)),
        route(Delete, "/v1/files/{*path}", "Removes a file of the catalogue.", by(routes::delete_file)),
        route(Get, "/v1/clusters", "A page of clusters, by name.", by(routes::clusters)),
        route(Post, "/v1/clusters", "Creates a cluster, by a job.", by(routes::create)),
        route(Get, "/v1/clusters/{name}", "A cluster with its machines.", by(routes::cluster)),
        route(Post, "/v1/clusters/{name}/operations", "Operates a cluster, by a job.", by(routes::operate)),
        route(
            Post,
            "/v1/clusters/{name}/preview",
            "The machines and tasks that an operation would make.",
            by(routes::preview),
        ),
        route(Put, "/v1/clusters/{name}/lease", "Sets the end of a cluster's lease.", by(routes::extend)),
        route(Post, "/v1/preview", "The machines and tasks that a creation would make.", by(routes::preview_creation)),
        route(Get, "/v1/jobs", "A page of jobs, the newest first.", by(routes::jobs)),
        route(Get, "/v1/jobs/{id}", "A job, with the reason of a wait or failure.", by(routes::job)),
        route(Get, "/v1/jobs/{id}/log", "A part of a job's log.", by(routes::log)),
        route(Post, "/v1/jobs/{id}/cancel", "Cancels a job, and ends all that it started.", by(routes::cancel)),
        route(
            Put,
            "/v1/jobs/{id}/priority",
            "Sets the priority of a job that has not started.",
            by(routes::set_priority),
        ),
        route(Get, "/v1/queue", "The drain and the rules of the queue of jobs.", by(routes::queue)),
        route(Put, "/v1/queue/drain", "Refuses new orders; jobs in the queue go on.", by(routes::drain)),
        route(Delete, "/v1/queue/drain", "Accepts orders again.", by(routes::undrain)),
        route(Put, "/v1/queue/rules/{name}", "Writes a rule about jobs, of the hub or a tenant.", by(routes::set_rule)),
        route(Delete, "/v1/queue/rules/{name}", "Removes a rule about jobs.", by(routes::remove_rule)),
        route(Get, "/v1/machines", "The machines of all clusters.", by(routes::machines)),
        route(
            Get,
            "/v1/directory",
            "The tenants, users, groups and grants that the caller may see.",
            by(routes::directory),
        ),
        route(Post, "/v1/directory", "Changes tenants, users, groups or grants.", by(routes::change_directory)),
        route(Get, "/v1/tokens", "Tokens, without their secrets.", by(routes::tokens)),
        route(Post, "/v1/tokens", "Makes a token, which is shown once.", by(routes::token)),
        route(Delete, "/v1/tokens/{id}", "Makes a token invalid.", by(routes::revoke_token)),
        route(Delete, "/v1/session", "Ends the session of the request.", by(routes::log_out)),
        route(Put, "/v1/password", "Sets or removes a password; the user's sessions end.", by(routes::set_password)),
        route(Get, "/v1/usage", "The use of quotas.", by(routes::usage)),
        route(Get, "/v1/audit", "Lines of the audit, at most 1,000.", by(routes::audit)),
    ]
}

/// Routes as a router.
pub(super) fn router(routes: Vec<Route>) -> Router<Arc<Hub>> {
    let add = |router: Router<_>, route: Route| router.route(route.path, route.handler.serve(route.verb));
    routes.into_iter().fold(Router::new(), add)
}

/// The refusals of unknown paths and methods.
pub(super) fn refusing(router: Router<Arc<Hub>>) -> Router<Arc<Hub>> {
    router.fallback(routes::unknown).method_not_allowed_fallback(routes::wrong_method)
}
