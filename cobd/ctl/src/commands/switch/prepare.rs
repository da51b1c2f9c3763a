//! The two orders of a switch, to many hosts, with the patience that each deserves.

use std::time::Duration;

use cob_types::GenerationNumber;
use cobd::web::GenerationOrder;
use tokio::time::Instant;

use crate::client::{AskError, Client};
use crate::gather;
use crate::targets::Target;

/// When a host that was not ready is asked again.
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

/// Has every host prepare, trying until the time is up.
pub(super) async fn all(
    client: &Client,
    targets: &[Target],
    generation: GenerationNumber,
    until: Instant,
) -> Vec<(Target, Ready)> {
    gather::each(targets, |target| {
        let client = client.clone();
        async move { prepare(&client, &target, generation, until).await }
    })
    .await
}

/// Says `go` to every host.
pub(super) async fn go(client: &Client, targets: &[Target], generation: GenerationNumber) -> Vec<(Target, Gone)> {
    gather::each(targets, |target| {
        let client = client.clone();
        async move { order_go(&client, &target, generation).await }
    })
    .await
}

/// Brings a host that was absent to the switch, when it comes back. Ends when it has taken the `go`,
/// or has refused.
pub(super) async fn catch_up(client: Client, target: Target, generation: GenerationNumber) -> (Target, Gone) {
    loop {
        let soon = Instant::now() + Duration::from_secs(30);
        match prepare(&client, &target, generation, soon).await {
            Ready::Yes => match order_go(&client, &target, generation).await {
                Gone::Absent(_) => {}
                Gone::Yes => return (target, Gone::Yes),
                Gone::Refused(error) => return (target, Gone::Refused(error)),
            },
            Ready::Absent(_) => {}
            Ready::Refused(error) => return (target, Gone::Refused(error)),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn prepare(client: &Client, target: &Target, generation: GenerationNumber, until: Instant) -> Ready {
    let order = GenerationOrder { generation, who: client.who() };
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(LEAST);
        let error = match client.order_within(&target.endpoint, "/v1/prepare", &order, left).await {
            Ok(_) => return Ready::Yes,
            Err(error) => error,
        };
        // What is not in a host's depot may be on its way there; any other refusal is its last word.
        let may_come = error.is_passing() || error.is_not_found();
        let over = Instant::now() + AGAIN >= until;
        match error {
            error if !may_come => return Ready::Refused(error),
            error if over && error.is_not_found() => return Ready::Refused(error),
            error if over => return Ready::Absent(error),
            _ => tokio::time::sleep(AGAIN).await,
        }
    }
}

async fn order_go(client: &Client, target: &Target, generation: GenerationNumber) -> Gone {
    let order = GenerationOrder { generation, who: client.who() };
    match client.order(&target.endpoint, "/v1/switch", &order).await {
        Ok(_) => Gone::Yes,
        Err(error) if gather::is_refusal(&error) => Gone::Refused(error),
        Err(error) => Gone::Absent(error),
    }
}
