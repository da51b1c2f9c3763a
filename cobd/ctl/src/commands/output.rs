//! `cobctl output`: what the last action or check of a change object printed.

use serde::Serialize;

use super::Context;
use crate::args::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::words::clean_lines;

#[derive(Serialize)]
struct Output<'a> {
    cob: &'a cob_types::CobId,
    output: String,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &OutputArgs) -> Result<Exit, Failure> {
    let target = context.locate(&args.cob.host()).await?;
    let output = context.client.text(&target.endpoint, &format!("/v1/output/{}", args.cob)).await?;
    if context.json {
        screen.json(&Output { cob: &args.cob, output })?;
    } else if screen.is_live() {
        let end = if output.ends_with('\n') || output.is_empty() { "" } else { "\n" };
        screen.raw(&format!("{}{end}", clean_lines(&output)))?;
    } else {
        screen.raw(&output)?;
    }
    Ok(Exit::Yes)
}
