//! `cobctl logs`: the output of a service, its last lines or continuously.

use std::time::Duration;

use cob_types::api::LogsAnswer;
use serde::Serialize;

use super::Context;
use super::output::whole_lines;
use crate::args::LogsArgs;
use crate::client::AskError;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::screen::Screen;
use crate::words::clean_lines;

/// How often new output is requested.
const FOLLOW: Duration = Duration::from_millis(400);

#[derive(Serialize)]
struct Printed<'a> {
    cob: &'a cob_types::CobId,
    source: &'a str,
    text: &'a str,
    ended: bool,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &LogsArgs) -> CommandResult {
    let LogsArgs { cob, lines, previous, follow } = args;
    let target = context.locate(&cob.host()).await?;
    let ask = |more: String| {
        let path = format!("/v1/logs/{cob}?{more}");
        let (client, endpoint) = (&context.client, &target.endpoint);
        async move { client.get::<LogsAnswer>(endpoint, &path).await }
    };
    let mut abandoned = std::pin::pin!(screen.abandoned());
    let first = ask(format!("lines={}&previous={previous}", (*lines).max(1))).await;
    let mut answer = context.answer_of(cob, first).await?;
    if *lines == 0 {
        // Only the end position matters, not the text before it.
        answer.text.clear();
    }
    let mut away = false;
    loop {
        show(context, screen, args, &answer)?;
        if !follow {
            return Ok(Exit::Yes);
        }
        answer = loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep(FOLLOW) => {}
                error = &mut abandoned => return Err(error.into()),
            }
            match ask(format!("lines=10000&after={}", answer.next)).await {
                Ok(answer) => break answer,
                Err(error) if gather::is_refusal(&error) => return Err(error.into()),
                Err(error) => tell_away(screen, &mut away, &error),
            }
        };
        if std::mem::take(&mut away) {
            screen.say(&format!("{} answers again", target.stand_in()));
        }
    }
}

fn tell_away(screen: &mut Screen, away: &mut bool, error: &AskError) {
    if !std::mem::replace(away, true) {
        screen.problem("warning", &error.in_a_line());
    }
}

fn show(context: &Context, screen: &mut Screen, args: &LogsArgs, answer: &LogsAnswer) -> Result<(), Failure> {
    if context.json {
        if !(args.follow && answer.text.is_empty() && !answer.ended) {
            let LogsAnswer { source, text, ended, .. } = answer;
            let printed = Printed { cob: &args.cob, source, text, ended: *ended };
            screen.line(&serde_json::to_string(&printed).expect("it is text"))?;
        }
    } else if !screen.is_live() {
        screen.raw(&answer.text)?;
    } else if args.follow {
        // Its last line may continue.
        screen.raw(&clean_lines(&answer.text))?;
    } else {
        screen.raw(&whole_lines(clean_lines(&answer.text)))?;
    }
    if answer.ended && !context.json {
        screen.say(&format!("-- {} was started again --", args.cob));
    }
    Ok(())
}
