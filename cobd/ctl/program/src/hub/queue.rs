//! `cobctl hub queue`, `drain`, `undrain`, `set-rule` and `remove-rule`.

use clap::{Args, Subcommand};
use cob_hub_api::{Drain, DrainRequest, JobId, JobSelection, Name, Queue, Rule, RuleAction, RuleContent};
use cobctl::failure::{CommandResult, Exit};
use cobctl::screen::Screen;
use cobctl::words::{clean, count, list};
use serde_json::json;

use super::{Context, failure, help, show};

/// The most names in a message.
const NAMES: usize = 12;

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show the queue of jobs: its drain and its rules
    Queue,
    /// Refuse new orders; jobs that run or wait go on
    #[command(after_help = help::DRAIN)]
    Drain {
        /// Why, for users whose orders are refused
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Accept orders again
    Undrain,
    /// Write a rule that pauses, rejects or limits jobs
    #[command(after_help = help::SET_RULE)]
    SetRule(RuleArgs),
    /// Remove a rule; the jobs that it pauses may start
    RemoveRule {
        /// The rule
        name: Name,
    },
}

/// A rule: of the hub, or with --tenant of this tenant.
#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    /// The name of the rule
    name: Name,
    /// accept, pause, reject, continue (switched off), or rate-limit=N
    #[arg(value_parser = action)]
    action: RuleAction,
    /// The smaller number comes first
    #[arg(long, value_name = "N", default_value_t = RuleContent::PRIORITY)]
    priority: u32,
    /// Why, for users whose jobs it concerns
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Only these jobs; may be repeated, as all following
    #[arg(long = "job", value_name = "ID")]
    ids: Vec<JobId>,
    /// Only jobs of this tenant, in a rule of the hub
    #[arg(long = "of-tenant", value_name = "TENANT")]
    tenants: Vec<Name>,
    /// Only jobs of this user: TENANT/USER
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
    /// Only jobs of this cluster: TENANT/CLUSTER
    #[arg(long = "cluster", value_name = "CLUSTER")]
    clusters: Vec<String>,
    /// Only jobs with this operation: create, resize, delete, …
    #[arg(long = "operation", value_name = "OPERATION")]
    operations: Vec<String>,
    /// Only jobs of clusters on this provider
    #[arg(long = "provider", value_name = "PROVIDER")]
    providers: Vec<Name>,
    /// Only jobs that are ordered from now on
    #[arg(long)]
    new_only: bool,
}

fn action(text: &str) -> Result<RuleAction, String> {
    let limit = text.strip_prefix("rate-limit=").and_then(|most| most.parse().ok()).filter(|most| *most > 0);
    match (text, limit) {
        (_, Some(most)) => Ok(RuleAction::RateLimit(most)),
        ("accept", None) => Ok(RuleAction::Accept),
        ("pause", None) => Ok(RuleAction::Pause),
        ("reject", None) => Ok(RuleAction::Reject),
        ("continue", None) => Ok(RuleAction::Continue),
        _ => Err("the actions are accept, pause, reject, continue and rate-limit=N with N from 1".to_owned()),
    }
}

pub(super) async fn run(context: &Context, screen: &mut Screen, command: QueueCommand) -> CommandResult {
    let client = &context.client;
    match command {
        QueueCommand::Queue => {
            let queue = client.queue().await.map_err(failure)?;
            if context.json {
                screen.json(&queue)?;
                return Ok(Exit::Yes);
            }
            for line in lines(&queue) {
                screen.line(&line)?;
            }
            Ok(Exit::Yes)
        }
        QueueCommand::Drain { reason } => {
            let request = DrainRequest { reason };
            client.drain(&request).await.map_err(failure)?;
            context.answer(screen, &request, "the hub refuses new orders; `cobctl hub undrain` accepts them again")
        }
        QueueCommand::Undrain => {
            client.undrain().await.map_err(failure)?;
            context.answer(screen, &json!({ "drain": null }), "the hub accepts new orders")
        }
        QueueCommand::SetRule(args) => {
            let (name, content) = rule_of(args);
            client.set_rule(&name, &content).await.map_err(failure)?;
            let rule = Rule { name, tenant: client.tenant().cloned(), content };
            let text = format!("the rule was written: {}", rule_line(&rule));
            context.answer(screen, &rule, &text)
        }
        QueueCommand::RemoveRule { name } => {
            client.remove_rule(&name).await.map_err(failure)?;
            context.answer(screen, &json!({ "rule": name }), &format!("the rule {name} was removed"))
        }
    }
}

fn rule_of(args: RuleArgs) -> (Name, RuleContent) {
    let RuleArgs { name, action, priority, reason, ids, tenants, users, clusters, operations, providers, new_only } =
        args;
    let jobs = JobSelection {
        ids: ids.into_iter().collect(),
        tenants: tenants.into_iter().collect(),
        users: users.into_iter().collect(),
        clusters: clusters.into_iter().collect(),
        operations: operations.into_iter().collect(),
        providers: providers.into_iter().collect(),
        new_only,
    };
    (name, RuleContent { action, priority, reason, jobs })
}

/// The queue: its drain, its jobs, its rules.
pub(super) fn lines(queue: &Queue) -> Vec<String> {
    let accepts = queue.drain.as_ref().map_or_else(|| "the hub accepts new orders".to_owned(), drain_line);
    let jobs = format!("{} and {}", count(queue.running, "running job"), count(queue.waiting, "waiting job"));
    let rules = queue.rules.iter().map(rule_line);
    [accepts, jobs].into_iter().chain(rules).collect()
}

/// A drain with its reason.
pub(super) fn drain_line(drain: &Drain) -> String {
    let because = because(&drain.reason);
    format!(
        "{} drains the hub since {}{because}; it accepts no new orders",
        clean(&drain.by),
        show::moment(drain.since_ms)
    )
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {}", clean(reason)) }
}

/// A rule in a line.
fn rule_line(rule: &Rule) -> String {
    let RuleContent { action, priority, reason, jobs } = &rule.content;
    let action = match action {
        RuleAction::Accept => "accept".to_owned(),
        RuleAction::Pause => "pause".to_owned(),
        RuleAction::Reject => "reject".to_owned(),
        RuleAction::Continue => "off".to_owned(),
        RuleAction::RateLimit(most) => format!("run at most {most} of"),
    };
    let named = |what: &str, names: Vec<String>| {
        (!names.is_empty()).then(|| format!(" {what} {}", clean(&list(&names, NAMES))))
    };
    let texts = |names: &std::collections::BTreeSet<Name>| names.iter().map(ToString::to_string).collect();
    let conditions = [
        named("with the number", jobs.ids.iter().map(ToString::to_string).collect()),
        named("of the tenant", texts(&jobs.tenants)),
        named("of the user", jobs.users.iter().cloned().collect()),
        named("of the cluster", jobs.clusters.iter().cloned().collect()),
        named("for the operation", jobs.operations.iter().cloned().collect()),
        named("on the provider", texts(&jobs.providers)),
        jobs.new_only.then(|| " ordered later".to_owned()),
    ];
    let which: String = conditions.into_iter().flatten().collect();
    let keeper = rule.tenant.as_ref().map(|tenant| format!("{tenant}/")).unwrap_or_default();
    let all = if jobs.is_all() { "all jobs" } else { "jobs" };
    format!("rule {keeper}{} (priority {priority}): {action} {all}{which}{}", rule.name, because(reason))
}
