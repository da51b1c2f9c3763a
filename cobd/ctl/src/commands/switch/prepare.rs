//! The two orders of a switch, to many hosts, each with a suitable time limit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_types::api::{Done, SwitchHow, order};
use cob_types::status::WindowWait;
use cob_types::{BlobHash, GenerationNumber, HostName};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::{AskError, Client, Open};
use crate::gather;
use crate::targets::Target;
use crate::words::list;

/// The least remaining time to ask an unready host again.
const AGAIN: Duration = Duration::from_millis(400);
/// The least time limit of a query, even at the deadline.
const LEAST: Duration = Duration::from_millis(500);
/// How many connections are opened in advance, well within the usual limit of open files.
const OPEN: usize = 512;
/// The longest delay that an unreachable host causes for reachable hosts.
const OPENING: Duration = Duration::from_secs(1);

/// Whether a host has fetched and verified the generation.
#[derive(Debug)]
pub(super) enum Ready {
    /// The answer contains its missing links, and the conflicts in the generation.
    Yes(Done),
    Absent(AskError),
    Refused(AskError),
}

/// Whether a host has accepted the order to switch.
#[derive(Debug)]
pub(super) enum Activation {
    Yes,
    /// It has, and waits for maintenance windows.
    Waits(WindowWait),
    Absent(AskError),
    Refused(AskError),
}

/// The hosts that are not ready yet, by name, and the result of the last attempt.
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

    /// `n1 and n2; n2: no connection to …`, the names and the first error.
    pub(super) fn in_words(&self) -> String {
        let hosts = self.hosts();
        let names: Vec<&HostName> = hosts.keys().collect();
        match hosts.iter().find(|(_, why)| !why.is_empty()) {
            Some((host, why)) => format!("{} ({host}: {why})", list(&names, 6)),
            None => list(&names, 6),
        }
    }
}

/// Makes every host prepare, and repeats this for each host until its deadline.
pub(super) async fn all(
    client: &Client,
    targets: &[(Target, Instant)],
    plan: &super::Plan,
    pending: &Pending,
) -> Vec<(Target, Ready)> {
    targets.iter().for_each(|(target, _)| pending.note(target, String::new()));
    let wanted = (plan.generation, plan.manifest);
    let answers = gather::each(client, targets, |client, (target, until)| {
        let pending = pending.clone();
        async move {
            let ready = prepare(&client, &target, wanted, until, &pending, &mut Backoff::default()).await;
            pending.done(&target);
            ready
        }
    });
    answers.await.into_iter().map(|((target, _), ready)| (target, ready)).collect()
}

/// Orders all hosts to switch at once: connections are open before the first host gets the order, so that its work does not run
/// while other hosts are still being connected. Waits for answers until the deadline, if there is one.
pub(super) async fn switch(
    client: &Client,
    targets: &[Target],
    order: &order::Switch,
    until: Option<Instant>,
) -> Vec<(Target, Activation)> {
    let first = &targets[..targets.len().min(OPEN)];
    let quick = client.at_most(OPENING);
    let opened = gather::each_of(&quick, OPEN, first, |client, target| async move {
        // The order reports the error if it can't be sent either.
        client.open(&target.endpoint).await.ok()
    });
    let mut opened = opened.await.into_iter().map(|(_, open)| open);
    let told: Vec<(Target, SharedConnection)> =
        targets.iter().map(|target| (target.clone(), SharedConnection::new(opened.next().flatten()))).collect();
    let answers = gather::each_of(client, OPEN, &told, |client, (target, held)| {
        let order = order.clone();
        async move { switch_one(&client, held.take(), &target, order, until).await }
    });
    answers.await.into_iter().map(|((target, _), gone)| (target, gone)).collect()
}

/// A connection that is passed to one of many tasks.
#[derive(Debug, Clone)]
struct SharedConnection(Arc<Mutex<Option<Open>>>);

impl SharedConnection {
    fn new(open: Option<Open>) -> Self {
        Self(Arc::new(Mutex::new(open)))
    }

    fn take(&self) -> Option<Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Adds an absent host to the switch when it comes back. Ends when the host has accepted the order, or has refused.
pub(super) async fn catch_up(client: Client, target: Target, order: order::Switch) -> (Target, Activation) {
    let wanted = (order.generation, order.manifest);
    let mut backoff = Backoff::default();
    loop {
        let soon = Instant::now() + Duration::from_secs(30);
        match prepare(&client, &target, wanted, soon, &Pending::default(), &mut backoff).await {
            Ready::Yes(_) => match switch_one(&client, None, &target, order.clone(), None).await {
                Activation::Absent(_) => {}
                Activation::Yes | Activation::Waits(_) => return (target, Activation::Yes),
                Activation::Refused(error) => return (target, Activation::Refused(error)),
            },
            Ready::Absent(_) => {}
            Ready::Refused(error) => return (target, Activation::Refused(error)),
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

async fn prepare(
    client: &Client,
    target: &Target,
    (generation, manifest): (GenerationNumber, Option<BlobHash>),
    until: Instant,
    pending: &Pending,
    backoff: &mut Backoff,
) -> Ready {
    let mut order = order::Prepare { generation, who: None, manifest };
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(LEAST);
        let error = match client.order_within(&target.endpoint, &order, left).await {
            Ok(done) => return Ready::Yes(done),
            Err(error) => error,
        };
        if error.is_from_daemon() {
            backoff.answered();
        }
        // A generation that a host's depot lacks may still arrive; every other refusal is final.
        if order.manifest.is_some() && error.is_misfit() {
            // A daemon of the previous version knows generations by their numbers.
            order.manifest = None;
            continue;
        }
        let may_come = error.is_passing() || error.is_not_found();
        let over = Instant::now() + AGAIN >= until;
        match error {
            error if !may_come => return Ready::Refused(error),
            error if over && error.is_not_found() => return Ready::Refused(error),
            error if over => return Ready::Absent(error),
            error => {
                pending.note(target, error.in_a_line());
                // Try a last time shortly before the deadline, however long the pauses are.
                let last = until.saturating_duration_since(Instant::now() + AGAIN);
                tokio::time::sleep(backoff.pause().min(last.max(AGAIN))).await;
            }
        }
    }
}

async fn switch_one(
    client: &Client,
    open: Option<Open>,
    target: &Target,
    mut order: order::Switch,
    until: Option<Instant>,
) -> Activation {
    let mut answer = send(client, open, target, &order, until).await;
    if order.now && answer.as_ref().is_err_and(AskError::is_misfit) {
        // A daemon of the version before knows no maintenance windows.
        order.now = false;
        answer = send(client, None, target, &order, until).await;
    }
    if order.manifest.is_some() && answer.as_ref().is_err_and(AskError::is_misfit) {
        // A daemon of the previous version knows generations by their numbers.
        order.manifest = None;
        answer = send(client, None, target, &order, until).await;
    }
    if answer.as_ref().is_err_and(AskError::is_misfit) && (order.on_failure, order.guard_ms) == (None, None) {
        // A daemon of version 0.1.0 does not pass an order on, and accepts only the fields that it knows.
        order = order::Switch::new(order.generation, SwitchHow::default());
        answer = send(client, None, target, &order, until).await;
    }
    match answer {
        Ok(Done { window_wait: Some(wait), .. }) => Activation::Waits(wait),
        Ok(_) => Activation::Yes,
        Err(error) if gather::is_refusal(&error) => Activation::Refused(error),
        Err(error) => Activation::Absent(error),
    }
}

async fn send(
    client: &Client,
    open: Option<Open>,
    target: &Target,
    order: &order::Switch,
    until: Option<Instant>,
) -> Result<Done, AskError> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(LEAST));
    client.order_over(open, &target.endpoint, order, left).await
}
