//! Asks many daemons at once and combines their answers.
//!
//! An answer counts for a host only if it comes from that host: a daemon that answers under an unexpected name, or
//! reports change objects of other hosts, counts as unreachable.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use cob_types::HostName;
use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, HostStatus};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::{AskError, Client, MOST_WAITING};
use crate::clocks;
use crate::targets::Target;

/// How many daemons are asked at the same time.
const AT_ONCE: usize = 64;

/// Asks every target the same question; the answers have the order of the targets.
pub async fn each<I, T, F, Fut>(client: &Client, targets: &[I], ask: F) -> Vec<(I, T)>
where
    I: Clone + Send + 'static,
    T: Send + 'static,
    F: Fn(Client, I) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
{
    each_of(client, AT_ONCE, targets, ask).await
}

/// The same, with this many targets at the same time.
pub async fn each_of<I, T, F, Fut>(client: &Client, at_once: usize, targets: &[I], ask: F) -> Vec<(I, T)>
where
    I: Clone + Send + 'static,
    T: Send + 'static,
    F: Fn(Client, I) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(at_once));
    let mut asked = JoinSet::new();
    for (at, target) in targets.iter().enumerate() {
        let (places, target) = (Arc::clone(&places), target.clone());
        // In a box: tasks are compiled once for each type of answer, and not for each question.
        let asking: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(ask(client.clone(), target.clone()));
        asked.spawn(async move {
            let _place = places.acquire().await;
            (at, target, asking.await)
        });
    }
    let mut answers = Vec::with_capacity(targets.len());
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(e) => std::panic::resume_unwind(e.into_panic()),
        }
    }
    answers.sort_by_key(|(at, _, _)| *at);
    answers.into_iter().map(|(_, target, answer)| (target, answer)).collect()
}

/// The status of every target with all its change objects, by name.
pub async fn cluster(client: &Client, targets: &[Target]) -> ClusterStatus {
    cluster_of(client, targets, StatusOf::All).await
}

/// The status of every target, by name.
pub async fn cluster_of(client: &Client, targets: &[Target], of: StatusOf) -> ClusterStatus {
    let answers = each(client, targets, |client, target| async move { status(&client, &target, of).await });
    picture(answers.await.into_iter().map(|(_, status)| status))
}

/// The status of a target, or a status that contains the error. Daemons of the previous version report all change
/// objects, for every filter.
pub async fn status(client: &Client, target: &Target, of: StatusOf) -> HostStatus {
    match ask(client, target, of).await {
        Ok(status) => own_status(target, status),
        Err(error) => unreachable(target.stand_in(), why_silent(&error)),
    }
}

/// The status that a target reports, under any name.
///
/// # Errors
/// [`AskError`].
pub async fn ask(client: &Client, target: &Target, of: StatusOf) -> Result<HostStatus, AskError> {
    let path = match of {
        StatusOf::All => "/v1/status".to_owned(),
        StatusOf::Active => format!("/v1/status?cobs=restless&waiting={MOST_WAITING}"),
    };
    let began = clocks::now_ns();
    let mut status: HostStatus = client.get(&target.endpoint, &path).await?;
    if target.name.as_ref().is_some_and(|name| *name != status.name) {
        // Another host has the address now, and the intended host may still be at its previous address.
        for former in client.formers(&target.endpoint) {
            match client.get::<HostStatus>(&former, &path).await {
                Ok(own) if target.name.as_ref() == Some(&own.name) => {
                    status = own;
                    break;
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    status.clock_offset_ms = clocks::offset_ms(status.now_ns, began, clocks::now_ns());
    Ok(status)
}

/// The status that a target reported; if it is the status of another host, a status that contains the error.
#[must_use]
pub fn own_status(target: &Target, status: HostStatus) -> HostStatus {
    own(target, status).unwrap_or_else(|why| unreachable(target.stand_in(), why))
}

/// The prefix of the error of a host that refuses to answer.
const REFUSES: &str = "refuses: ";

/// Why there is no status, in a line; [`refusal`] recognises a refusal in it.
#[must_use]
pub fn why_silent(error: &AskError) -> String {
    let why = error.in_a_line();
    if is_refusal(error) { format!("{REFUSES}{why}") } else { why }
}

/// Why a host refuses to report its status, if it was reached and refused.
#[must_use]
pub fn refusal(host: &HostStatus) -> Option<&str> {
    host.error.as_deref().filter(|_| !host.reachable)?.strip_prefix(REFUSES)
}

/// The status of an unreachable host, with the error.
#[must_use]
pub fn unreachable(name: HostName, error: String) -> HostStatus {
    HostStatus { error: Some(error), ..HostStatus::unknown(name) }
}

/// Whether a daemon refused a switch or an order; otherwise it counts as not reached.
#[must_use]
pub fn is_refusal(error: &AskError) -> bool {
    error.is_from_daemon() && !error.is_passing()
}

fn own(target: &Target, mut status: HostStatus) -> Result<HostStatus, String> {
    target.is_answered_by(&status.name)?;
    if let Some(foreign) = status.cobs.iter().find(|c| c.id.host_str() != status.name.as_str()) {
        return Err(format!("{} answers as {} and names {} as its own", target.endpoint, status.name, foreign.id));
    }
    status.reachable = true;
    status.error = None;
    status.cobs.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(status)
}

/// The answers as the status of the cluster; if two daemons answer under the same name, both count as unreachable.
pub fn picture(answers: impl Iterator<Item = HostStatus>) -> ClusterStatus {
    let mut hosts: Vec<HostStatus> = answers.collect();
    let mut seen = BTreeSet::new();
    for host in &mut hosts {
        if !seen.insert(host.name.clone()) && host.reachable {
            *host = unreachable(host.name.clone(), format!("two daemons answer as {}", host.name));
        }
    }
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    ClusterStatus { hosts, ..ClusterStatus::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{host, settled};

    fn target(name: Option<&str>) -> Target {
        Target {
            name: name.map(|n| HostName::new(n).expect("a name")),
            endpoint: "tcp://127.0.0.1:1".parse().expect("an address"),
        }
    }

    #[test]
    fn an_answer_under_another_name_is_refused() {
        assert!(own(&target(Some("n1")), host("n1", 7, vec![])).is_ok());
        assert!(own(&target(None), host("n2", 7, vec![])).is_ok());
        let error = own(&target(Some("n1")), host("n2", 7, vec![])).expect_err("another host");
        assert_eq!(error, "tcp://127.0.0.1:1 answers as n2, not as n1");
        let error = own(&target(None), host("n1", 7, vec![settled("n2/db", "up")])).expect_err("a foreign id");
        assert!(error.contains("n2/db"), "{error}");
    }

    #[test]
    fn only_the_first_of_two_daemons_with_the_same_name_is_accepted() {
        let both = picture([host("n1", 7, vec![]), host("n1", 8, vec![])].into_iter());
        assert_eq!(both.hosts.iter().map(|h| h.reachable).collect::<Vec<_>>(), [true, false]);
    }
}
