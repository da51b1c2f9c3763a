//! A job to its end: its log, its steps, its result.
//!
//! A job is independent of its observer: when this program is interrupted or the hub restarts, the job continues.

use std::time::{Duration, Instant};

use cob_hub_api::{Job, JobId, JobState};
use cob_hub_client::CallError;
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::{Paint, Screen};
use cobctl::words::clean_lines;
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, failure, show};

/// The pauses between two looks: the first and the longest.
const LOOKS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// How long a hub may be away while its job is followed.
const ABSENCE: Duration = Duration::from_mins(1);
/// The mark of a step in a log.
const STEP: &str = "== ";

/// Prints the log of a job until its end. The answer is yes if the job succeeded.
pub(super) async fn follow(context: &Context, screen: &mut Screen, id: JobId) -> CommandResult {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::environment)?;
    let ended = tokio::select! {
        biased;
        _ = interrupt.recv() => {
            screen.say(&format!("job {id} continues: `cobctl job watch {id}` follows it, `cobctl job cancel {id}` stops it"));
            return Err(Failure::ended_by(SignalKind::interrupt()));
        }
        ended = to_the_end(context, screen, id) => ended?,
    };
    if context.json {
        screen.json(&ended)?;
    }
    match ended.state {
        JobState::Succeeded => {
            if !context.json {
                let took = ended.started_ms.zip(ended.ended_ms).map(|(began, end)| end.saturating_sub(began));
                let took = took.map(|ms| format!(" after {}", show::length(ms))).unwrap_or_default();
                screen.line(&format!("job {id} succeeded{took}"))?;
            }
            Ok(Exit::Yes)
        }
        JobState::Failed
        | JobState::Canceled
        | JobState::Queued
        | JobState::Waiting
        | JobState::Starting
        | JobState::Running
        | JobState::Canceling => {
            if !context.json {
                screen.error(
                    &format!("job {id} {}", show::ended(&ended)),
                    &ended
                        .hint
                        .unwrap_or_else(|| format!("`cobctl cluster show {}` shows what is left", ended.cluster)),
                );
            }
            Ok(Exit::No)
        }
    }
}

async fn to_the_end(context: &Context, screen: &mut Screen, id: JobId) -> Result<Job, Failure> {
    let (mut from, mut pause, mut away) = (0, LOOKS.0, None);
    let mut waits = None;
    loop {
        let looked = async { Ok::<_, CallError>((context.client.log(id, from).await?, context.client.job(id).await?)) };
        match looked.await {
            Ok((part, job)) => {
                away = None;
                if part.next > from {
                    pause = LOOKS.0;
                }
                from = part.next;
                if !context.json {
                    log(screen, &part.text)?;
                    // A job that waits says for what, once.
                    if !job.state.is_final() && job.reason.is_some() && job.reason != waits {
                        screen.line(&format!("  {}", show::ended(&job)))?;
                    }
                    waits = job.reason.clone().filter(|_| !job.state.is_final());
                }
                if part.complete && job.state.is_final() {
                    return Ok(job);
                }
            }
            Err(error) => {
                let since = *away.get_or_insert_with(Instant::now);
                if !error.is_passing() || since.elapsed() > ABSENCE {
                    return Err(
                        failure(error).hint(format!("the job continues without the hub: `cobctl job watch {id}`"))
                    );
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOKS.1);
    }
}

/// Prints a part of a log; its steps stand out.
pub(super) fn log(screen: &mut Screen, text: &str) -> Result<(), Failure> {
    for line in clean_lines(text).lines() {
        match line.strip_prefix(STEP) {
            Some(step) => {
                let step = screen.paint(Paint::Strong, step);
                screen.line(&step)?;
            }
            None => {
                let line = screen.paint(Paint::Dim, line);
                screen.line(&format!("  {line}"))?;
            }
        }
    }
    Ok(())
}
