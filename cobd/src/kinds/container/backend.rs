//! The daemon's side: contents of containers become contents of services.

use std::sync::Arc;

use cob_kinds::{Container, Content as _, Runtime, Service};
use cob_types::api::{LogsAnswer, LogsQuery};
use cob_types::{Cob, CobId, Kind};
use serde_json::json;

use super::choice::{choose, lack_of};
use super::runtime::{ALL, Program as _};
use super::supplies::Supplies;
use super::unit::{Derived, derive};
use crate::kinds::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};
use crate::kinds::service::{Call, ServiceKind};
use crate::run::MOVE_CONTAINER;

/// The back end `container`. The folders of services are those of containers, too, so the back end `service` also
/// restores the earlier state after a departure.
#[derive(Debug, Default)]
pub(in crate::kinds) struct ContainerKind {
    service: ServiceKind,
}

/// The service of a change object, and its context.
fn as_service(tools: &Tools, context: &Context) -> Result<(Derived, Context), String> {
    let content: Container = cob_kinds::read(&context.cob.content)?;
    let private = tools.private_container_folder(&context.cob.id);
    let grace_ms = context.kind.transitions.iter().map(|t| t.grace_ms).max().unwrap_or(cob_kinds::GRACE_MS);
    let runtime = choose(&content, &tools.service_folder(&context.cob.id), |runtime| runtime.is_installed());
    let derived = derive(&content, &context.cob.id, runtime, grace_ms, private.as_deref())?;
    let cob = with_content(&context.cob, derived.content.clone());
    Ok((derived, Context { cob, ..context.clone() }))
}

fn with_content(cob: &Cob, content: String) -> Arc<Cob> {
    Arc::new(Cob { content, ..cob.clone() })
}

impl Backend for ContainerKind {
    fn name(&self) -> &'static str {
        Container::KIND.name
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        self.service.accept(kind)
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<Container>(content).map(|_| ())
    }

    fn accept_here(&self, cob: &Cob) -> Result<(), String> {
        let content: Container = cob_kinds::read(&cob.content)?;
        accept_without(cob, content.runtime, |runtime| runtime.is_installed())
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        match as_service(tools, context) {
            Ok((_, context)) => self.service.check(tools, &context),
            Err(reason) => Work::known(CheckOutcome::unknown(reason)),
        }
    }

    fn transition(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        let Some(transition) = context.transition(attempt) else {
            let (from, to) = (&attempt.from, &attempt.to);
            return Work::known(Outcome::failed(format!("a container has no transition from {from} to {to}")));
        };
        let made = as_service(tools, context).and_then(|(derived, context)| {
            let service: Service = cob_kinds::read(&derived.content)?;
            let task = self.service.task(tools, &context, (attempt, transition), &service);
            let private = tools.private_container_folder(&context.cob.id);
            let pulls_first = attempt.from == "outdated" && !context.leaving && context.cob.preferred == "up";
            Ok((service, Supplies::new(&context.cob.id, task, derived, private, pulls_first)))
        });
        match made {
            Ok((service, call)) => {
                Call { word: MOVE_CONTAINER, call: &call, goal: call.goal(), transition }.work(tools, &service)
            }
            Err(reason) => Work::known(Outcome::failed(reason)),
        }
    }

    fn logs(&self, tools: &Tools, context: &Context, query: LogsQuery) -> Option<Work<Result<LogsAnswer, String>>> {
        match as_service(tools, context) {
            Ok((_, context)) => self.service.logs(tools, &context, query),
            Err(reason) => Some(Work::known(Err(reason))),
        }
    }

    fn is_here(&self, tools: &Tools, cob: &CobId) {
        self.service.is_here(tools, cob);
    }

    fn watch(&self, tools: &Tools, cobs: &mut dyn Iterator<Item = Arc<Cob>>) {
        let named = |cob: &Cob| {
            let content: Container = cob_kinds::read(&cob.content).ok()?;
            Some(with_content(cob, json!({ "unit": content.unit_name(&cob.id) }).to_string()))
        };
        self.service.watch(tools, &mut cobs.filter_map(|cob| named(&cob)));
    }
}

/// Refuses a container on a host without a runtime, unless another change object of the host comes first, which may
/// install it.
fn accept_without(cob: &Cob, wanted: Option<Runtime>, is_installed: impl Fn(Runtime) -> bool) -> Result<(), String> {
    let suitable: Vec<Runtime> = ALL.into_iter().filter(|runtime| wanted.is_none_or(|w| w == *runtime)).collect();
    let needs = cob.transitions.iter().flat_map(|t| &t.needs).chain(cob.locks.iter().flat_map(|l| &l.needs));
    let comes_later = needs.into_iter().any(|need| need.cob.host_str() == cob.id.host_str());
    if comes_later || cob.observe || suitable.iter().any(|runtime| is_installed(*runtime)) {
        return Ok(());
    }
    Err(lack_of(&suitable))
}

#[cfg(test)]
mod tests {
    use cob_types::cob::{Fingerprint, Need, TransitionNeeds};
    use cob_types::{KindName, StateName};

    use super::*;

    fn cob() -> Cob {
        Cob {
            id: CobId::new("n1/web").expect("an id"),
            kind: KindName::new("container").expect("a name"),
            preferred: StateName::new("up").expect("a state"),
            content: "{}".to_owned(),
            fingerprint: Fingerprint::NOTHING,
            rests_on: None,
            transitions: Default::default(),
            locks: Default::default(),
            ranks: Default::default(),
            expects: Default::default(),
            files: Default::default(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
        }
    }

    #[test]
    fn a_host_without_a_runtime_is_refused_unless_another_object_may_install_it() {
        let state = |name: &str| StateName::new(name).expect("a state");
        let only = |installed: Runtime| move |runtime: Runtime| runtime == installed;
        for runtime in ALL {
            accept_without(&cob(), None, only(runtime)).expect("one is installed");
            accept_without(&cob(), Some(runtime), only(runtime)).expect("it is installed");
        }
        let error = accept_without(&cob(), None, |_| false).expect_err("refused");
        for words in ["/usr/bin/podman and /usr/bin/docker", "package `podman` or `docker.io`"] {
            assert!(error.contains(words), "{error}");
        }
        let error = accept_without(&cob(), Some(Runtime::Docker), only(Runtime::Podman)).expect_err("refused");
        assert!(error.contains("lacks /usr/bin/docker; install the package `docker.io`"), "{error}");
        let mut after = cob();
        let need = |id: &str| Need { cob: CobId::new(id).expect("an id"), states: vec![state("present")] };
        after.transitions.push(TransitionNeeds {
            from: state("down"),
            to: state("up"),
            needs: vec![need("n2/podman")],
        });
        accept_without(&after, None, |_| false).expect_err("of another host");
        after.transitions[0].needs.push(need("n1/podman"));
        accept_without(&after, None, |_| false).expect("it may be installed first");
        accept_without(&Cob { observe: true, ..cob() }, None, |_| false).expect("it is only looked at");
    }
}
