//! Hosts that have taken the order of a switch, and wait for maintenance windows.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::HostName;
use cob_types::status::WindowWait;
use tokio::time::Instant;

use super::report::Report;
use crate::commands::Context;
use crate::commands::view::window_waits;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::words::{list, window_wait};

/// The hosts that wait, with their answers.
pub(super) type Waits = BTreeMap<HostName, WindowWait>;

/// Ends a switch that waits for maintenance windows, if they do not open while it is waited for.
pub(super) fn ended(
    context: &Context,
    screen: &mut Screen,
    report: &Report,
    deadline: Option<Instant>,
) -> Result<Option<Exit>, Failure> {
    let Some(first) = report.window_waits.values().next() else { return Ok(None) };
    let left = deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(Instant::now()));
    let opens_in_time = |wait: &WindowWait| wait.opens_in_s.is_some_and(|s| Duration::from_secs(s) < left);
    // Hosts that the operator named get separate orders, each within the windows of its host.
    let lines = window_waits(report.window_waits.values());
    if report.window_waits.values().all(opens_in_time) {
        lines.iter().for_each(|line| screen.say(line));
        return Ok(None);
    }
    if context.json {
        screen.json(report)?;
    } else {
        let hosts = list(report.window_waits.keys(), 6);
        screen.line(&format!("generation {}: the order was accepted on {hosts}", first.to))?;
        lines.iter().try_for_each(|line| screen.line(line))?;
        let to = first.to;
        screen.problem(
            "hint",
            &format!("`cobctl switch {to} --now` starts the switch at once; `cobctl cancel {to}` drops the order"),
        );
    }
    // Without a wait the order is all that was asked for.
    Ok(Some(if deadline.is_some() { Exit::No } else { report.exit() }))
}

/// A switch that requires all hosts does not wait: when the windows open, no program compares the hosts with the generation.
pub(super) fn not_all(waits: &Waits) -> String {
    let first = waits.values().next().map(window_wait).unwrap_or_default();
    format!("{first}; --require-all needs open windows, or --now; the waiting order was dropped")
}

/// A stage that has to wait is not begun: the program, which leads the stages, does not stay for days.
pub(super) fn no_stage(waits: &Waits) -> Option<String> {
    let first = waits.values().next()?;
    Some(format!("{}; stages start only within open windows: repeat the order then, or with --now", window_wait(first)))
}
