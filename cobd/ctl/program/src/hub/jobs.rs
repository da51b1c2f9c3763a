//! `cobctl jobs` and `cobctl job`.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use cob_hub_api::{JobId, JobQuery, JobState, Name, Operation};
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;
use cobctl::words::{clean_lines, parse_span};
use serde_json::json;

use super::args::At;
use super::{Context, failure, follow, help, queue, show};

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Only jobs that have not ended
    #[arg(long)]
    pub(crate) open: bool,
    /// Only jobs in this state: queued, waiting, starting, running, canceling, succeeded, failed, canceled
    #[arg(long, value_name = "STATE", value_parser = job_state)]
    pub(crate) state: Option<JobState>,
    /// Only jobs of this cluster
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: Option<Name>,
    /// Only jobs of this user: TENANT/USER, or a super administrator
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Only jobs with this operation
    #[arg(long, value_name = "OPERATION", value_parser = PossibleValuesParser::new(Operation::NAMES))]
    pub(crate) operation: Option<String>,
    /// Only jobs that were ordered in the last time, as in 2h or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub(crate) since: Option<Duration>,
    /// Only jobs before this number: the next page
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<JobId>,
    /// The most jobs, at most 1000
    #[arg(long, value_name = "N", default_value_t = JobQuery::MOST)]
    pub(crate) limit: usize,
}

fn job_state(text: &str) -> Result<JobState, String> {
    serde_json::from_value(text.into()).map_err(|error: serde_json::Error| error.to_string())
}

#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    pub(crate) at: At,
    #[command(subcommand)]
    pub(crate) command: JobCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show a job: state, reason, step
    Show {
        /// The job
        id: JobId,
    },
    /// Print the log of a job so far
    Log {
        /// The job
        id: JobId,
    },
    /// Follow a job to its end; exit 0 only if it succeeds
    Watch {
        /// The job
        id: JobId,
    },
    /// Change the priority of a job that has not started
    #[command(after_help = help::SET_PRIORITY)]
    SetPriority {
        /// The job
        id: JobId,
        /// -20 (the most important) to 19
        #[arg(allow_negative_numbers = true)]
        priority: i8,
    },
    /// Cancel a job: it rolls back what it has begun
    Cancel {
        /// The job
        id: JobId,
        /// Kill its process at once; the cluster stays as it is at that moment
        #[arg(long)]
        kill: bool,
    },
}

pub(super) async fn list(context: &Context, screen: &mut Screen, args: &JobsArgs) -> CommandResult {
    let past = |since: Duration| show::now_ms().saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let query = JobQuery {
        open: args.open,
        state: args.state,
        cluster: args.cluster.clone(),
        user: args.user.clone(),
        operation: args.operation.clone(),
        since_ms: args.since.map(past),
        before: args.before,
        limit: Some(args.limit),
    };
    let jobs = context.client.jobs(&query).await.map_err(failure)?;
    if context.json {
        screen.json(&jobs)?;
        return Ok(Exit::Yes);
    }
    if jobs.is_empty() {
        screen.say(if args.open { "no open jobs" } else { "no jobs" });
    } else {
        for line in show::jobs(screen, &jobs, show::now_ms()) {
            screen.line(&line)?;
        }
    }
    if let Some(last) = jobs.last().filter(|_| jobs.len() == query.limit()) {
        screen.say(&format!("older jobs: --before {}", last.id));
    }
    // The list is the answer also if the hub is older and has no such request.
    if let Some(drain) = context.client.queue().await.ok().and_then(|queue| queue.drain) {
        screen.say(&queue::drain_line(&drain));
    }
    Ok(Exit::Yes)
}

pub(super) async fn run(context: &Context, screen: &mut Screen, command: JobCommand) -> CommandResult {
    match command {
        JobCommand::Show { id } => {
            let job = context.client.job(id).await.map_err(failure)?;
            if context.json {
                screen.json(&job)?;
                return Ok(Exit::Yes);
            }
            for line in show::job(&job, show::now_ms()) {
                screen.line(&line)?;
            }
            if let Some(hint) = &job.hint {
                screen.problem("hint", hint);
            }
            Ok(Exit::Yes)
        }
        JobCommand::Log { id } => log(context, screen, id).await,
        JobCommand::Watch { id } => follow::follow(context, screen, id).await,
        JobCommand::SetPriority { id, priority } => {
            let job = context.client.set_priority(id, priority).await.map_err(failure)?;
            context.answer(screen, &job, &format!("job {id} has the priority {priority}"))
        }
        JobCommand::Cancel { id, kill } => {
            context.client.cancel(id, kill).await.map_err(failure)?;
            let text = format!("job {id} was told to stop; `cobctl job watch {id}` shows its end");
            context.answer(screen, &json!({ "job": id }), &text)
        }
    }
}

/// The log so far, unchanged.
async fn log(context: &Context, screen: &mut Screen, id: u64) -> CommandResult {
    let (mut from, mut all) = (0, String::new());
    loop {
        let part = context.client.log(id, from).await.map_err(failure)?;
        let is_end = part.next <= from || part.text.is_empty();
        from = part.next;
        if context.json {
            all.push_str(&part.text);
        } else {
            let text = if screen.is_live() { clean_lines(&part.text) } else { part.text };
            screen.raw(&text).map_err(Failure::from)?;
        }
        if is_end {
            break;
        }
    }
    if context.json {
        screen.json(&json!({ "job": id, "text": all }))?;
    }
    Ok(Exit::Yes)
}
