//! `cobctl jobs` and `cobctl job`.

use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;
use cobctl::words::clean_lines;
use serde_json::json;

use super::args::{JobCommand, JobsArgs};
use super::{Context, failure, follow, show};

pub(super) async fn list(context: &Context, screen: &mut Screen, args: &JobsArgs) -> CommandResult {
    let jobs = context.client.jobs(args.cluster.as_ref(), args.open).await.map_err(failure)?;
    if context.json {
        screen.json(&jobs)?;
    } else if jobs.is_empty() {
        screen.say(if args.open { "no open jobs" } else { "no jobs" });
    } else {
        for line in show::jobs(screen, &jobs, show::now_ms()) {
            screen.line(&line)?;
        }
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
