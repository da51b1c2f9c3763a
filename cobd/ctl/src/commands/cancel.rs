//! `cobctl cancel`, `discard`, `limit`: orders about a pending or prepared switch.
//!
//! Each order goes to every daemon, which answers with its change once that is durable. A repeated order has no effect.

use cob_types::api::{Done, Order, StatusOf, order};
use cob_types::status::{ClusterStatus, HostStatus};
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, HostName};

use super::orders::{patiently, to_all, to_everybody};
use super::{Context, leaving};
use crate::args::{AtMost, BudgetArgs, CancelArgs, DiscardArgs, LimitArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::screen::Screen;

pub(super) async fn cancel(context: &Context, screen: &mut Screen, args: &CancelArgs) -> CommandResult {
    let CancelArgs { generation, on_failure } = *args;
    let generation = generation.map(|named| context.generation(named)).transpose()?;
    // Hosts on which the switch has converged roll back with the others: the order must name its generation.
    let (generation, leave) = match generation {
        Some(named) => (Some(named), None),
        None => {
            let mut all = gather::cluster(&context.client, &context.targets.all).await;
            let found = leaving::find(context, &all, StatusOf::Active).await?;
            let (leave, told): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            all.hosts.extend(told);
            (under_way(&all), Some(leave))
        }
    };
    let order = order::Cancel { generation, on_failure: on_failure.map(Into::into), who: None };
    let words = ("cancelled", "no switch to cancel");
    to_everybody(context, screen, &order, words, leave).await
}

/// The generation to which a host is being switched.
fn under_way(cluster: &ClusterStatus) -> Option<GenerationNumber> {
    let of = |h: &HostStatus| {
        let converging = h.generation.filter(|_| !h.converged && !h.settled);
        let waits = h.window_wait.as_ref().map(|wait| wait.to);
        h.held.or(h.goal()).or(converging).or(waits)
    };
    cluster.hosts.iter().filter(|h| h.reachable).filter_map(of).max()
}

pub(super) async fn discard(context: &Context, screen: &mut Screen, args: &DiscardArgs) -> CommandResult {
    let order = order::Discard { generation: context.generation(args.generation)?, who: None };
    let words = ("discarded", "the generation was not prepared");
    to_all(context, screen, &context.targets.all, &order, words).await
}

pub(super) async fn limit(context: &Context, screen: &mut Screen, args: &LimitArgs) -> CommandResult {
    let AtMost(at_most) = args.at_most;
    if let Some(name) = &args.budget {
        return limit_budget(context, screen, name, at_most).await;
    }
    let order = order::Limit { at_most, budget: None, who: None };
    let words = ("limited", "unchanged");
    let words = if at_most.is_none() { ("not limited any more", "was not limited") } else { words };
    to_all(context, screen, &context.targets.all, &order, words).await
}

async fn limit_budget(context: &Context, screen: &mut Screen, name: &str, at_most: Option<u32>) -> CommandResult {
    let budget = find_budget(context, name).await?;
    let host = budget.host();
    let order = order::Limit { at_most, budget: Some(budget), who: None };
    order_budget(context, screen, &host, &order).await
}

pub(super) async fn budget(context: &Context, screen: &mut Screen, args: &BudgetArgs) -> CommandResult {
    let AtMost(at_most) = args.at_most;
    let budget = find_budget(context, &args.name).await?;
    let host = budget.host();
    let order = order::Budget { budget, at_most, who: None };
    order_budget(context, screen, &host, &order).await
}

async fn find_budget(context: &Context, name: &str) -> Result<CobId, Failure> {
    match CobId::new(name) {
        Ok(budget) => Ok(budget),
        Err(_) => named_budget(&gather::cluster(&context.client, &context.targets.all).await, name),
    }
}

/// Sends an order about a budget to its host, and prints the host's answer.
async fn order_budget<O: Order>(context: &Context, screen: &mut Screen, host: &HostName, order: &O) -> CommandResult {
    let target = context.locate(host).await?;
    let asked = context.client.order(&target.endpoint, order);
    let done: Done = patiently(context, screen, &target, asked).await?;
    context.answer(screen, &done, &format!("{}{}", done.detail, if done.changed { "" } else { " (unchanged)" }))?;
    Ok(Exit::Yes)
}

/// The budget of this name: it is on exactly one host.
fn named_budget(cluster: &ClusterStatus, name: &str) -> Result<CobId, Failure> {
    let all = || cluster.hosts.iter().flat_map(|h| &h.cobs).filter(|c| c.id.name().starts_with("budget/"));
    let found: Vec<&CobId> = all().map(|c| &c.id).filter(|id| id.name() == format!("budget/{name}")).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let known: Vec<&str> = all().map(|c| c.id.as_str()).collect();
            let silent = cluster.hosts.iter().filter(|h| !h.reachable).count();
            let known = if known.is_empty() {
                "there are no budgets".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            let asked = if silent == 0 { String::new() } else { format!("; no answer from {}", count(silent, "host")) };
            Err(Failure::refused(format!("no host has a budget `{name}`")).hint(format!("{known}{asked}")))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|id| id.as_str()).collect();
            let what = format!("several budgets have the name `{name}`: {}", names.join(", "));
            Err(Failure::refused(what).hint("name it in full: HOST/budget/NAME"))
        }
    }
}
