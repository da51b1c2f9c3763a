//! `cobctl cancel`, `call-off`, `limit`: words about a switch that is under way or about to be.
//!
//! Each goes to every daemon, which answers what it has changed when that is durable. Given again they change nothing.

use cob_types::GenerationNumber;
use cob_types::status::{ClusterStatus, HostStatus};
use cobd::web::{CancelOrder, GenerationOrder, LimitOrder};

use super::Context;
use super::orders::to_all;
use crate::args::{AtMost, CallOffArgs, CancelArgs, LimitArgs};
use crate::failure::{Exit, Failure};
use crate::gather;
use crate::screen::Screen;

pub(super) async fn cancel(context: &Context, screen: &mut Screen, args: &CancelArgs) -> Result<Exit, Failure> {
    let CancelArgs { generation, on_failure } = *args;
    // Hosts on which it has converged go back with the others: they must be told which one is meant.
    let generation = match generation {
        Some(named) => Some(named),
        None => under_way(&gather::cluster(&context.client, &context.targets.all).await),
    };
    let order = CancelOrder { generation, on_failure: on_failure.map(Into::into), who: context.client.who() };
    let words = ("cancelled", "nothing to cancel");
    to_all(context, screen, &context.targets.all, "/v1/cancel", &order, words).await
}

/// The generation to which some host is being switched.
fn under_way(cluster: &ClusterStatus) -> Option<GenerationNumber> {
    let of = |h: &HostStatus| {
        let converging = h.generation.filter(|_| !h.converged && !h.settled);
        h.held.or(h.switching_to).or(converging)
    };
    cluster.hosts.iter().filter(|h| h.reachable).filter_map(of).max()
}

pub(super) async fn call_off(context: &Context, screen: &mut Screen, args: &CallOffArgs) -> Result<Exit, Failure> {
    let order = GenerationOrder { generation: args.generation, who: context.client.who() };
    let words = ("called off", "nothing to call off");
    to_all(context, screen, &context.targets.all, "/v1/call-off", &order, words).await
}

pub(super) async fn limit(context: &Context, screen: &mut Screen, args: &LimitArgs) -> Result<Exit, Failure> {
    let AtMost(at_most) = args.at_most;
    let order = LimitOrder { at_most, who: context.client.who() };
    let words = ("limited", "as it was");
    let words = if at_most.is_none() { ("not limited any more", "was not limited") } else { words };
    to_all(context, screen, &context.targets.all, "/v1/limit", &order, words).await
}
