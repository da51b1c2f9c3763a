//! `cobctl output`: the output of the last action or check of a change object.

use cob_types::CobId;
use serde::Serialize;

use super::Context;
use crate::args::OutputArgs;
use crate::failure::{CommandResult, Exit, Failure};
use crate::screen::Screen;
use crate::words::clean_lines;

#[derive(Serialize)]
struct Output<'a> {
    cob: &'a CobId,
    output: String,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &OutputArgs) -> CommandResult {
    match (&args.cob, args.run) {
        (Some(cob), _) => of_cob(context, screen, cob).await,
        (None, Some(run)) => super::adhoc::kept(context, screen, run).await,
        (None, None) => {
            Err(Failure::usage("the output of which change object or run?")
                .hint("name a change object, or --run NUMBER"))
        }
    }
}

async fn of_cob(context: &Context, screen: &mut Screen, cob: &CobId) -> CommandResult {
    let target = context.locate(&cob.host()).await?;
    let asked = context.client.text(&target.endpoint, &format!("/v1/output/{cob}")).await;
    let output = context.answer_of(cob, asked).await?;
    if context.json {
        screen.json(&Output { cob, output })?;
    } else if output.trim().is_empty() {
        screen.say(&format!(
            "the last action or check of {cob} printed no output; `cobctl history {cob}` shows its result, `cobctl logs {cob}` \
             the output of a service"
        ));
    } else if screen.is_live() {
        screen.raw(&whole_lines(clean_lines(&output)))?;
    } else {
        screen.raw(&output)?;
    }
    Ok(Exit::Yes)
}

/// Ends the last line, so that a terminal's prompt starts on a new line.
pub(super) fn whole_lines(mut text: String) -> String {
    if !(text.is_empty() || text.ends_with('\n')) {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_ends_too() {
        let told = ["", "a", "a\n", "a\nb", "a\u{1b}"].map(|text| whole_lines(clean_lines(text)));
        assert_eq!(told, ["", "a\n", "a\n", "a\nb\n", "a\\u{1b}\n"]);
    }
}
