//! The routes of the API: method, path, role, summary, refusals and handler of each, once.
//!
//! The table makes the router, the roles that the guard demands, and the description in OpenAPI. A route without a role
//! does not compile: [`route`] needs all parts, and `Order::ROLE` has no default.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::extract::{Extension, State};
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::{Json, Router};
use cob_api_server::described::{Handled, Schemas, Verb, by, first_sentence};
use cob_types::api::order::{Check, Resolve, Restore};
use cob_types::api::{Done, Order};
use cob_types::command_run::RunOrder;
use cob_types::status::KnownGenerations;
use cob_types::trust::Role;

use super::access::Who;
use super::api::{Api, Command};
use super::described::Ordered;
use super::guard::guard;
use super::refusal::{Refusal, RefusalKind};
use super::{files, metrics, openapi, routes, run};

/// All routes.
pub(super) fn table() -> Vec<Route> {
    use RefusalKind::NotFound;
    use Role::{Administer, Look};
    use Verb::Get;

    vec![
        route(Get, "/v1/openapi.json", Look, "This description.", &[], by(openapi::answer)),
        route(Get, "/v1/version", Look, "The versions of the program and of the API.", &[], by(routes::version)),
        route(Get, "/v1/whoami", Look, "The identity and the role of the caller.", &[], by(routes::whoami)),
        route(Get, "/v1/status", Look, "The status of the host and of its change objects.", &[], by(routes::status)),
        route(Get, "/v1/cobs/{*id}", Look, "The status of a change object.", &[NotFound], by(routes::cob)),
        route(
            Get,
            KnownGenerations::PATH,
            Look,
            "The newest known generations; trusted publishers may ask, too.",
            &[],
            by(routes::generations),
        ),
        route(Get, "/metrics", Look, "Metrics of the host in the format of OpenMetrics.", &[], by(metrics::metrics)),
        route(Get, "/v1/facts", Look, "Facts of the host, read anew.", &[], by(routes::facts)),
        route(Get, "/v1/history", Look, "A page of the host's history, the oldest first.", &[], by(routes::history)),
        route(
            Get,
            "/v1/outcome",
            Look,
            "The result of the last switch to a generation since the daemon's start.",
            &[NotFound],
            by(routes::outcome),
        ),
        route(
            Get,
            "/v1/output/{*id}",
            Look,
            "The last 2 KiB that the last action of a change object printed.",
            &[NotFound],
            by(routes::output),
        ),
        route(Get, "/v1/logs/{*id}", Look, "The output of a service.", &[NotFound], by(routes::logs)),
        route(
            Get,
            "/v1/events",
            Look,
            "An event at once and after changes of the status, without an end.",
            &[],
            by(routes::events),
        ),
        route(
            Get,
            "/v1/check",
            Look,
            "A round of checks: its end, or after a second its progress.",
            &[NotFound],
            by(routes::check_round),
        ),
        ordered::<Check>(&[NotFound], by(routes::check)),
        route(
            Get,
            "/v1/files/diff/{*id}",
            Look,
            "The difference between a file tree and the model.",
            &[NotFound],
            by(files::diff),
        ),
        route(Get, "/v1/files/log/{*id}", Look, "The kept versions of a file tree.", &[NotFound], by(files::log)),
        route(Get, "/v1/files/show/{*id}", Look, "A kept version, or a file of it.", &[NotFound], by(files::show)),
        route(
            Get,
            "/v1/files/hunks/{*id}",
            Look,
            "A file in conflict, with both sides, for an editor.",
            &[NotFound],
            by(files::hunks),
        ),
        route(
            Get,
            "/v1/files/patch/{*id}",
            Look,
            "The changes of users to a file tree, as a patch.",
            &[NotFound],
            by(files::patch),
        ),
        ordered::<Resolve>(&[NotFound], by(files::resolve)),
        ordered::<Restore>(&[NotFound], by(files::restore)),
        ordered::<RunOrder>(&[], by(run::run)),
        // The output of an administrator's command may contain any file of the host.
        route(Get, "/v1/run/{run}", Administer, "The kept output of a command.", &[NotFound], by(run::kept)),
        order(Command::Prepare),
        order(Command::Switch),
        order(Command::Rollback),
        order(Command::Retry),
        order(Command::Stop),
        order(Command::Start),
        order(Command::Reboot),
        order(Command::Pause),
        order(Command::Resume),
        order(Command::Fence),
        order(Command::MarkDeparted),
        order(Command::Cancel),
        order(Command::Discard),
        order(Command::Limit),
        order(Command::Budget),
    ]
}

/// A route.
pub(super) struct Route {
    pub(super) verb: Verb,
    /// `{*id}` is the rest of the path.
    pub(super) path: &'static str,
    /// The role that a request needs.
    pub(super) role: Role,
    /// The effect or the answer, in a sentence.
    pub(super) summary: Cow<'static, str>,
    /// The refusals besides those of every route.
    pub(super) refusals: &'static [RefusalKind],
    pub(super) handler: Handled<Api>,
}

fn route(
    verb: Verb,
    path: &'static str,
    role: Role,
    summary: &'static str,
    refusals: &'static [RefusalKind],
    handler: Handled<Api>,
) -> Route {
    Route { verb, path, role, summary: summary.into(), refusals, handler }
}

/// The route of an order, whose type says path, role and summary.
fn ordered<T: Order>(refusals: &'static [RefusalKind], handler: Handled<Api>) -> Route {
    let summary = first_sentence(&Schemas::words_of::<T>()).into_owned().into();
    Route { verb: Verb::Post, path: T::PATH, role: T::ROLE, summary, refusals, handler }
}

/// The route of an order that becomes this command of the loop.
fn order<T: Order>(command: fn(T) -> Command) -> Route {
    let handler = move |State(api): State<Api>, Extension(author): Extension<Who>, Ordered(mut order): Ordered<T>| async move {
        if let Some((what, hint)) = order.contradiction() {
            return Err(Refusal::new(RefusalKind::Invalid, what, hint));
        }
        let who = author.author(order.who().take().as_deref());
        Ok::<Json<Done>, Refusal>(Json(api.order(command(order), who).await?))
    };
    ordered::<T>(&[RefusalKind::NotFound], by(handler))
}

/// The role of each route.
#[derive(Debug)]
pub(super) struct Roles(BTreeMap<(&'static str, Verb), Role>);

impl Roles {
    /// The role of the route with this path; absent: there is none, or it has another method.
    pub(super) fn of_route(&self, method: &Method, path: Option<&str>) -> Option<Role> {
        let (verb, path) = (Verb::of(method)?, path?);
        self.0.iter().find(|((known, v), _)| *known == path && *v == verb).map(|(_, role)| *role)
    }

    /// The role that a request without a route needs. It does nothing: a question is answered with 404 or 405, and an order
    /// of a newer version needs the highest role.
    pub(super) fn without_route(method: &Method) -> Role {
        match Verb::of(method) {
            Some(Verb::Get) => Role::Look,
            Some(Verb::Post | Verb::Put | Verb::Delete) | None => Role::Administer,
        }
    }
}

/// The API as a service. Every request must carry a [`Caller`](super::Caller) as an extension.
pub fn router(api: Api) -> Router {
    let mut roles = BTreeMap::new();
    let mut router = Router::new();
    for Route { verb, path, role, handler, .. } in table() {
        roles.insert((path, verb), role);
        router = router.route(path, handler.serve(verb));
    }
    router
        .fallback(routes::unknown_path)
        .method_not_allowed_fallback(routes::wrong_method)
        .layer(from_fn_with_state((api.clone(), std::sync::Arc::new(Roles(roles))), guard))
        .with_state(api)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlisted_route_needs_the_highest_role() {
        let roles = Roles(table().iter().map(|route| ((route.path, route.verb), route.role)).collect());
        let needed =
            |method: &Method, path| roles.of_route(method, path).unwrap_or_else(|| Roles::without_route(method));
        assert_eq!(needed(&Method::GET, Some("/v1/status")), Role::Look);
        assert_eq!(needed(&Method::HEAD, Some("/v1/status")), Role::Look);
        assert_eq!(needed(&Method::POST, Some("/v1/pause")), Role::Operate);
        for (method, path) in [
            (Method::POST, Some("/v1/fence")),
            (Method::POST, Some("/v1/run")),
            (Method::GET, Some("/v1/run/{run}")),
            (Method::HEAD, Some("/v1/run/{run}")),
            (Method::POST, Some("/v1/status")),
            (Method::PUT, Some("/v1/pause")),
            (Method::OPTIONS, Some("/v1/status")),
            (Method::POST, None),
        ] {
            assert_eq!(needed(&method, path), Role::Administer, "{method} {path:?}");
        }
    }

    /// The roles as they were before there was a table.
    #[test]
    fn every_order_has_its_role() {
        let needs = |role| {
            let orders = table().into_iter().filter(|route| route.verb == Verb::Post && route.role == role);
            let mut paths: Vec<&str> = orders.map(|route| route.path).collect();
            paths.sort_unstable();
            paths
        };
        assert_eq!(needs(Role::Look), [""; 0]);
        assert_eq!(needs(Role::Administer), ["/v1/declare-final", "/v1/fence", "/v1/reboot", "/v1/run"]);
        let of_operators = [
            "/v1/budget",
            "/v1/call-off",
            "/v1/cancel",
            "/v1/check",
            "/v1/files/resolve",
            "/v1/files/restore",
            "/v1/limit",
            "/v1/pause",
            "/v1/prepare",
            "/v1/resume",
            "/v1/retry",
            "/v1/rollback",
            "/v1/start",
            "/v1/stop",
            "/v1/switch",
        ];
        assert_eq!(needs(Role::Operate), of_operators);
    }
}
