//! The two orders of a switch, to many hosts, with the patience that each deserves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_types::{GenerationNumber, HostName};
use cobd::web::{GenerationOrder, GoOrder, SwitchHow};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::{AskError, Client};
use crate::gather;
use crate::targets::Target;
use crate::words::list;

/// A host that was not ready is not asked again with less than this left.
const AGAIN: Duration = Duration::from_millis(400);
/// The least that one question gets, however late it is.
const LEAST: Duration = Duration::from_millis(500);

/// Whether a host has the generation and has verified it.
#[derive(Debug)]
pub(super) enum Ready {
    Yes,
    Absent(AskError),
    Refused(AskError),
}

/// Whether a host has taken the `go`.
#[derive(Debug)]
pub(super) enum Gone {
    Yes,
    Absent(AskError),
    Refused(AskError),
}

/// The hosts that are not ready yet, by name, and what the last try at them came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Pending(Arc<Mutex<BTreeMap<HostName, String>>>);

impl Pending {
    fn note(&self, target: &Target, why: String) {
        self.hosts().insert(target.stand_in(), why);
    }

    fn done(&self, target: &Target) {
        self.hosts().remove(&target.stand_in());
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeMap<HostName, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `n1 and n2; n2: no connection to …`, the names and the first thing that went wrong.
    pub(super) fn in_words(&self) -> String {
        let hosts = self.hosts();
        let names: Vec<&HostName> = hosts.keys().collect();
        match hosts.iter().find(|(_, why)| !why.is_empty()) {
            Some((host, why)) => format!("{} ({host}: {why})", list(&names, 6)),
            None => list(&names, 6),
        }
    }
}

/// Has every host prepare, trying each until its time is up.
pub(super) async fn all(
    client: &Client,
    targets: &[(Target, Instant)],
    generation: GenerationNumber,
    pending: &Pending,
) -> Vec<(Target, Ready)> {
    targets.iter().for_each(|(target, _)| pending.note(target, String::new()));
    let answers = gather::each(targets, |(target, until)| {
        let (client, pending) = (client.clone(), pending.clone());
        async move {
            let ready = prepare(&client, &target, generation, until, &pending, &mut Backoff::default()).await;
            pending.done(&target);
            ready
        }
    });
    answers.await.into_iter().map(|((target, _), ready)| (target, ready)).collect()
}

/// Says `go` to every host. An answer is waited for until then, if there is a time.
pub(super) async fn go(
    client: &Client,
    targets: &[Target],
    (generation, how): (GenerationNumber, SwitchHow),
    until: Option<Instant>,
) -> Vec<(Target, Gone)> {
    gather::each(targets, |target| {
        let client = client.clone();
        async move { order_go(&client, &target, (generation, how), until).await }
    })
    .await
}

/// Brings a host that was absent to the switch, when it comes back. Ends when it has taken the `go`,
/// or has refused.
pub(super) async fn catch_up(
    client: Client,
    target: Target,
    (generation, how): (GenerationNumber, SwitchHow),
) -> (Target, Gone) {
    let mut backoff = Backoff::default();
    loop {
        let soon = Instant::now() + Duration::from_secs(30);
        match prepare(&client, &target, generation, soon, &Pending::default(), &mut backoff).await {
            Ready::Yes => match order_go(&client, &target, (generation, how), None).await {
                Gone::Absent(_) => {}
                Gone::Yes => return (target, Gone::Yes),
                Gone::Refused(error) => return (target, Gone::Refused(error)),
            },
            Ready::Absent(_) => {}
            Ready::Refused(error) => return (target, Gone::Refused(error)),
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

async fn prepare(
    client: &Client,
    target: &Target,
    generation: GenerationNumber,
    until: Instant,
    pending: &Pending,
    backoff: &mut Backoff,
) -> Ready {
    let order = GenerationOrder { generation, who: client.who() };
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(LEAST);
        let error = match client.order_within(&target.endpoint, "/v1/prepare", &order, left).await {
            Ok(_) => return Ready::Yes,
            Err(error) => error,
        };
        if error.is_from_daemon() {
            backoff.answered();
        }
        // What is not in a host's depot may be on its way there; any other refusal is its last word.
        let may_come = error.is_passing() || error.is_not_found();
        let over = Instant::now() + AGAIN >= until;
        match error {
            error if !may_come => return Ready::Refused(error),
            error if over && error.is_not_found() => return Ready::Refused(error),
            error if over => return Ready::Absent(error),
            error => {
                pending.note(target, error.in_a_line());
                // Once more at the very end, however long the pauses are by now.
                let last = until.saturating_duration_since(Instant::now() + AGAIN);
                tokio::time::sleep(backoff.pause().min(last.max(AGAIN))).await;
            }
        }
    }
}

async fn order_go(
    client: &Client,
    target: &Target,
    (generation, how): (GenerationNumber, SwitchHow),
    until: Option<Instant>,
) -> Gone {
    let SwitchHow { on_failure, guard_ms, alone } = how;
    let order = GoOrder { generation, who: client.who(), on_failure, guard_ms, alone };
    let answer = match until.map(|until| until.saturating_duration_since(Instant::now()).max(LEAST)) {
        Some(left) => client.order_within(&target.endpoint, "/v1/switch", &order, left).await,
        None => client.order(&target.endpoint, "/v1/switch", &order).await,
    };
    match answer {
        Ok(_) => Gone::Yes,
        Err(error) if gather::is_refusal(&error) => Gone::Refused(error),
        Err(error) => Gone::Absent(error),
    }
}
