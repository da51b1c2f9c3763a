//! What an earlier content of the same change object has left where that was a service of another form, or another
//! unit. It is stopped, and what was there before it is put back, before anything else is done.

use std::time::Instant;

use super::commands::Commands;
use super::driven::Driven;
use super::folder::{Look, Plan, ServiceFolder};
use super::kept::Kept;
use super::unit::Before;

/// How a service is looked after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// By a keeper.
    Kept,
    /// By itself; its commands drive it.
    Driven,
    /// By systemd, as this unit.
    Unit(&'a str),
}

impl Form<'_> {
    /// That in which something was begun by commands; none where it is not noted.
    fn of(plan: &Plan) -> Option<Self> {
        if plan.status.is_some() {
            return Some(Self::Driven);
        }
        // Only what has a keeper has a life.
        (plan.life > 0).then_some(Self::Kept)
    }
}

/// What another form, or another unit, has left there, in words; none: nothing.
///
/// # Errors
/// When nobody can know.
pub(super) fn left(folder: &ServiceFolder, form: Form<'_>) -> Result<Option<String>, String> {
    let present = if let Form::Unit(unit) = form { Some(unit) } else { None };
    if let Some(before) = Before::of_former(folder.path(), present)? {
        return Ok(Some(format!("an earlier content was about {}, which is not put back yet", before.unit())));
    }
    let may_run = match other(folder, form).as_ref().and_then(Form::of) {
        Some(Form::Kept) => matches!(folder.look(), Look::Running { .. } | Look::Unsupervised),
        // Its commands are asked by the move.
        Some(Form::Driven) => true,
        Some(Form::Unit(_)) | None => false,
    };
    Ok(may_run.then(|| "what an earlier content has started in another way is not stopped yet".to_owned()))
}

/// Ends what commands of another form have begun, and forgets it. Commands whose variables were secret find those of the
/// present content.
///
/// # Errors
/// In words; it may still run, and is still noted.
pub(super) fn end_commands(
    folder: &ServiceFolder,
    form: Form<'_>,
    own: &Commands,
    limit: Instant,
) -> Result<(), String> {
    let Some(plan) = other(folder, form) else { return Ok(()) };
    let theirs = plan.private.is_none().then(|| Commands::of(&plan, own));
    end(folder, &plan, theirs.as_ref().unwrap_or(own), limit)
        .and_then(|()| folder.forget_plan().map_err(|error| error.to_string()))
        .map_err(|why| format!("ending what an earlier content has started: {why}"))
}

/// What was begun in another form.
fn other(folder: &ServiceFolder, form: Form<'_>) -> Option<Plan> {
    folder.plan().filter(|plan| Form::of(plan).is_some_and(|noted| noted != form))
}

fn end(folder: &ServiceFolder, plan: &Plan, commands: &Commands, limit: Instant) -> Result<(), String> {
    let Some(status) = &plan.status else {
        return Kept { folder, commands, grace: commands.grace }.end(limit);
    };
    let driven = Driven { commands, status, limit };
    if driven.runs()? { driven.stop(plan.stop.as_ref()) } else { Ok(()) }
}
