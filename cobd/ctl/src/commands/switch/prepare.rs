//! The two orders of a switch, to many hosts, with the patience that each deserves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_types::{BlobHash, GenerationNumber, HostName};
use cobd::web::{Done, GenerationOrder, GoOrder, PrepareOrder, SwitchHow};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::{AskError, Client, Open};
use crate::gather;
use crate::targets::Target;
use crate::words::list;

/// A host that was not ready is not asked again with less than this left.
const AGAIN: Duration = Duration::from_millis(400);
/// The least that one question gets, however late it is.
const LEAST: Duration = Duration::from_millis(500);
/// So many connections are opened ahead, well within the open files that a user's programs have.
const OPEN: usize = 512;
/// Those that can be reached are not kept waiting longer than this by one that can't.
const OPENING: Duration = Duration::from_secs(1);

/// Whether a host has the generation and has verified it.
#[derive(Debug)]
pub(super) enum Ready {
    /// What it has no link to, and what excludes each other in it.
    Yes(Done),
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

/// What a `go` says.
#[derive(Debug, Clone)]
pub(super) struct Go {
    pub(super) generation: GenerationNumber,
    /// Which content that is; none: no depot is known.
    pub(super) manifest: Option<BlobHash>,
    pub(super) how: SwitchHow,
    /// For these alone; none: for everybody.
    pub(super) only: Vec<HostName>,
    /// The newest generation that was seen on any host.
    pub(super) seen: GenerationNumber,
}

impl Go {
    /// For everybody.
    pub(super) fn to_all(plan: &super::Plan) -> Self {
        let (generation, manifest) = (plan.generation, plan.manifest);
        Self { generation, manifest, how: plan.how, only: Vec::new(), seen: plan.newest }
    }
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
    plan: &super::Plan,
    pending: &Pending,
) -> Vec<(Target, Ready)> {
    targets.iter().for_each(|(target, _)| pending.note(target, String::new()));
    let wanted = (plan.generation, plan.manifest);
    let answers = gather::each(targets, |(target, until)| {
        let (client, pending) = (client.clone(), pending.clone());
        async move {
            let ready = prepare(&client, &target, wanted, until, &pending, &mut Backoff::default()).await;
            pending.done(&target);
            ready
        }
    });
    answers.await.into_iter().map(|((target, _), ready)| (target, ready)).collect()
}

/// Says `go` to every host, and to all in the same moment: connections are open before the first of them is told, so that
/// what it begins does not go on while the others are still called. An answer is waited for until then, if there is a time.
pub(super) async fn go(client: &Client, targets: &[Target], go: &Go, until: Option<Instant>) -> Vec<(Target, Gone)> {
    let opened = gather::each_of(OPEN, &targets[..targets.len().min(OPEN)], |target| {
        let client = client.at_most(OPENING);
        // Why it can't be opened is told when the order can't be given either.
        async move { client.open(&target.endpoint).await.ok() }
    });
    let mut opened = opened.await.into_iter().map(|(_, open)| open);
    let told: Vec<(Target, Held)> =
        targets.iter().map(|target| (target.clone(), Held::new(opened.next().flatten()))).collect();
    let answers = gather::each_of(OPEN, &told, |(target, held)| {
        let (client, go) = (client.clone(), go.clone());
        async move { order_go(&client, held.take(), &target, &go, until).await }
    });
    answers.await.into_iter().map(|((target, _), gone)| (target, gone)).collect()
}

/// A connection for one of many tasks.
#[derive(Debug, Clone)]
struct Held(Arc<Mutex<Option<Open>>>);

impl Held {
    fn new(open: Option<Open>) -> Self {
        Self(Arc::new(Mutex::new(open)))
    }

    fn take(&self) -> Option<Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Brings a host that was absent to the switch, when it comes back. Ends when it has taken the `go`,
/// or has refused.
pub(super) async fn catch_up(client: Client, target: Target, go: Go) -> (Target, Gone) {
    let wanted = (go.generation, go.manifest);
    let mut backoff = Backoff::default();
    loop {
        let soon = Instant::now() + Duration::from_secs(30);
        match prepare(&client, &target, wanted, soon, &Pending::default(), &mut backoff).await {
            Ready::Yes(_) => match order_go(&client, None, &target, &go, None).await {
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
    (generation, manifest): (GenerationNumber, Option<BlobHash>),
    until: Instant,
    pending: &Pending,
    backoff: &mut Backoff,
) -> Ready {
    let mut order = PrepareOrder { generation, who: client.who(), manifest };
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(LEAST);
        let error = match client.order_within(&target.endpoint, "/v1/prepare", &order, left).await {
            Ok(done) => return Ready::Yes(done),
            Err(error) => error,
        };
        if error.is_from_daemon() {
            backoff.answered();
        }
        // What is not in a host's depot may be on its way there; any other refusal is its last word.
        if order.manifest.is_some() && is_unknown_field(&error) {
            // A daemon of the version before knows generations by their numbers.
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
                // Once more at the very end, however long the pauses are by now.
                let last = until.saturating_duration_since(Instant::now() + AGAIN);
                tokio::time::sleep(backoff.pause().min(last.max(AGAIN))).await;
            }
        }
    }
}

async fn order_go(client: &Client, open: Option<Open>, target: &Target, go: &Go, until: Option<Instant>) -> Gone {
    let Go { generation, manifest, how, only, seen } = go.clone();
    let SwitchHow { on_failure, guard_ms, alone } = how;
    let mut order =
        GoOrder { generation, who: client.who(), on_failure, guard_ms, alone, only, seen: Some(seen), manifest };
    let mut answer = say_go(client, open, target, &order, until).await;
    if manifest.is_some() && answer.as_ref().is_err_and(is_unknown_field) {
        // A daemon of the version before knows generations by their numbers.
        order.manifest = None;
        answer = say_go(client, None, target, &order, until).await;
    }
    if answer.as_ref().is_err_and(is_unknown_field) && (on_failure, guard_ms) == (None, None) {
        // A daemon of version 0.1.0 tells nobody else of a `go`, and takes the words that it knows.
        let plain = GenerationOrder { generation, who: client.who() };
        answer = say_go(client, None, target, &plain, until).await;
    }
    match answer {
        Ok(_) => Gone::Yes,
        Err(error) if gather::is_refusal(&error) => Gone::Refused(error),
        Err(error) => Gone::Absent(error),
    }
}

/// Whether a daemon does not know a word of an order: it is of an earlier version.
fn is_unknown_field(error: &AskError) -> bool {
    matches!(error, AskError::Refused { status: 400, error, .. } if error.contains("unknown field"))
}

async fn say_go<B: serde::Serialize>(
    client: &Client,
    open: Option<Open>,
    target: &Target,
    order: &B,
    until: Option<Instant>,
) -> Result<Done, AskError> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(LEAST));
    client.order_over(open, &target.endpoint, "/v1/switch", order, left).await
}
