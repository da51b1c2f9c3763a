//! Previous forms: a service that an earlier content of the change object described as another form or another unit. It
//! is stopped, and its original state restored, before any other work.

use std::time::Instant;

use super::commands::Commands;
use super::external::Driven;
use super::folder::{Look, Plan, ServiceFolder};
use super::supervised::Kept;
use super::unit::Before;

/// How a service is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// By a supervisor (`keeper`).
    Kept,
    /// As an external service, by its commands.
    Driven,
    /// By systemd, as this unit.
    Unit(&'a str),
}

impl Form<'_> {
    /// The form in which commands started a service. `None`: it is not noted.
    fn of(plan: &Plan) -> Option<Self> {
        if plan.status.is_some() {
            return Some(Self::Driven);
        }
        // Only supervised services have a run id.
        (plan.life > 0).then_some(Self::Kept)
    }
}

/// Describes a service of another form or unit that is left. `None`: there is no other service.
///
/// # Errors
/// If the original state of a unit can't be read.
pub(super) fn left(folder: &ServiceFolder, form: Form<'_>) -> Result<Option<String>, String> {
    let present = if let Form::Unit(unit) = form { Some(unit) } else { None };
    if let Some(before) = Before::of_former(folder.path(), present)? {
        return Ok(Some(format!("an earlier content managed {}, which is not restored yet", before.unit())));
    }
    let may_run = match other(folder, form).as_ref().and_then(Form::of) {
        Some(Form::Kept) => matches!(folder.look(), Look::Running { .. } | Look::Unsupervised),
        // The transition will run its commands.
        Some(Form::Driven) => true,
        Some(Form::Unit(_)) | None => false,
    };
    Ok(may_run.then(|| "the service of an earlier content is not stopped yet".to_owned()))
}

/// Ends a service that commands of another form started, and deletes its plan. If the variables of its commands were
/// secret, the variables of the present content are used.
///
/// # Errors
/// The reason as text; the service may still run, and its plan stays.
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
        .map_err(|why| format!("stopping the service of an earlier content: {why}"))
}

/// The plan of a service with another form.
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
