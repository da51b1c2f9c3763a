//! The schedule of a host: at its times the host checks all its change objects, and switches to the newest generation of the
//! depot.
//!
//! The active generation has the schedule. A file keeps the last judged minute, so a restart runs no time twice. A daemon that
//! was down makes up for the last missed check; a missed switch waits for its next time, unless a maintenance window of the
//! host is open.

use std::path::{Path, PathBuf};

use cob_engine::Time;
use cob_engine::time::Span;
use cob_types::maintenance::{Openings, Schedule, spread};
use cob_types::schedule::Times;
use cob_types::{GenerationNumber, HostName};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::Daemon;
use super::inbox::TaskResult;
use super::switch::{Aim, Start};
use super::words::Circumstances;
use crate::blocking::beside;
use crate::clock;
use crate::durable;
use crate::generations::FetchError;

/// The file in the state folder.
const FILE: &str = "schedule.json";
/// The wall clock may be set: it is read so often.
const LOOK: u64 = 60;
/// A switch that comes later than this was missed, in minutes.
const LATE: u64 = 5;

/// The minutes since 1970-01-01 UTC up to which times were judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Judged {
    check: Option<u64>,
    switch: Option<u64>,
}

/// A line of a schedule, and its times.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    text: String,
    times: Times,
}

impl Line {
    fn read(text: Option<&String>) -> Option<Self> {
        let text = text?.clone();
        match Times::parse(&text) {
            Ok(times) => Some(Self { text, times }),
            Err(why) => {
                warn!(schedule = text, why, "the schedule of this host can't be read, and is not followed");
                None
            }
        }
    }
}

/// The due actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Due {
    check: bool,
    switch: Option<Punctual>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Punctual {
    OnTime,
    Missed,
}

/// The lines of a host, judged by the wall clock.
#[derive(Debug, Clone, Default)]
struct Plan {
    check: Option<Line>,
    switch: Option<Line>,
    judged: Judged,
}

impl Plan {
    /// The actions that are due at this second, and the seconds until the next look; `None` without a schedule.
    fn look(&mut self, host: &HostName, second: u64) -> (Due, Option<u64>) {
        let minute = second / 60;
        let mut due = Due::default();
        let mut wait = None;
        if let Some(Line { times, .. }) = &self.check {
            let judged = from(&mut self.judged.check, minute);
            if let Some(at) = times.last_within(*judged, minute) {
                let begins = at * 60 + spread(host, times, at);
                if begins <= second {
                    *judged = minute;
                    due.check = true;
                } else {
                    wait = Some(begins - second);
                }
            }
            let next = times.next_after(minute).map(|next| next * 60 - second);
            wait = wait.or(next);
        }
        if let Some(Line { times, .. }) = &self.switch {
            let judged = from(&mut self.judged.switch, minute);
            if let Some(at) = times.last_within(*judged, minute) {
                *judged = minute;
                due.switch = Some(if minute - at <= LATE { Punctual::OnTime } else { Punctual::Missed });
            }
            let next = times.next_after(minute).map(|next| next * 60 - second);
            wait = wait.into_iter().chain(next).min();
        }
        (due, wait.map(|wait| wait.min(LOOK)))
    }
}

/// The last judged minute: the present minute, if no minute is known, or if the clock has been set back since.
fn from(judged: &mut Option<u64>, minute: u64) -> &mut u64 {
    let judged = judged.get_or_insert(minute);
    if *judged > minute + 1 {
        *judged = minute;
    }
    judged
}

/// The schedule of this host.
#[derive(Debug)]
pub(super) struct Scheduled {
    folder: PathBuf,
    /// The generation that the lines are of.
    of: Option<GenerationNumber>,
    plan: Plan,
    due: Time,
}

/// The newest generation of the depot, or the error.
pub(super) type Found = Result<Option<GenerationNumber>, FetchError>;

impl Scheduled {
    pub(super) fn returned(folder: &Path) -> Self {
        let judged = std::fs::read(folder.join(FILE)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let plan = Plan { judged: judged.unwrap_or_default(), ..Plan::default() };
        Self { folder: folder.to_owned(), of: None, plan, due: Time::NEVER }
    }

    pub(super) fn due(&self) -> Time {
        self.due
    }

    fn keep(&self) {
        let written = serde_json::to_vec(&self.plan.judged).map_err(std::io::Error::from);
        let written =
            written.and_then(|bytes| durable::write_file(&self.folder, FILE, 0o600, &bytes, durable::Sync::Later));
        if let Err(error) = written {
            warn!(%error, "a restart may repeat the actions of the schedule that have just begun");
        }
    }
}

impl Daemon {
    /// Carries out the due actions of the schedule.
    pub(super) fn look_at_schedule(&mut self) {
        let now = self.clock.now();
        let generation = self.present.manifest().map(|manifest| manifest.generation);
        if generation != self.scheduled.of {
            let Schedule { check, switch } = self.own_schedule();
            let plan = &mut self.scheduled.plan;
            (plan.check, plan.switch) = (Line::read(check.as_ref()), Line::read(switch.as_ref()));
            // A line that is gone, and comes again, begins anew.
            plan.judged.check = plan.judged.check.filter(|_| check.is_some());
            plan.judged.switch = plan.judged.switch.filter(|_| switch.is_some());
            self.scheduled.of = generation;
            self.scheduled.due = now;
        }
        if self.scheduled.due > now {
            return;
        }
        let before = self.scheduled.plan.judged;
        let (due, wait) = self.scheduled.plan.look(&self.config.host, clock::wall_s());
        self.scheduled.due = wait.map_or(Time::NEVER, |wait| now + Span::secs(wait.max(1)));
        if self.scheduled.plan.judged != before {
            self.scheduled.keep();
        }
        if due.check {
            self.check_by_schedule();
        }
        match due.switch {
            Some(Punctual::OnTime) => self.switch_by_schedule(),
            Some(Punctual::Missed) if self.has_open_window() => self.switch_by_schedule(),
            Some(Punctual::Missed) => info!("a scheduled switch was missed: it waits for its next time"),
            None => {}
        }
    }

    fn own_schedule(&self) -> Schedule {
        let manifest = self.present.manifest();
        let own = manifest.and_then(|manifest| manifest.timetable.schedules.get(&self.config.host));
        own.cloned().unwrap_or_default()
    }

    /// Whether a maintenance window of this host is open.
    fn has_open_window(&self) -> bool {
        let manifest = self.present.manifest();
        let own = manifest.and_then(|manifest| manifest.timetable.windows.get(&self.config.host));
        own.is_some_and(|own| !own.is_empty() && Openings::of(own).is_open(clock::wall_s()))
    }

    fn check_by_schedule(&mut self) {
        match self.begin_round(&[]) {
            Ok(_) => info!("the schedule checks all change objects"),
            Err(refused) => warn!(why = refused.error, "the scheduled check is skipped"),
        }
    }

    fn switch_by_schedule(&mut self) {
        let generations = self.generations.clone();
        self.tasks.spawn(async move {
            let newest = beside(move || generations.newest()).await;
            TaskResult::Scheduled(newest.unwrap_or_else(|lost| Err(FetchError::lost(GenerationNumber(0), lost))))
        });
    }

    /// The newest generation of the depot is known, to which the schedule switches.
    pub(super) fn scheduled_newest(&mut self, found: Found) {
        let newest = match found {
            Ok(Some(newest)) => newest,
            Ok(None) => return,
            Err(error) => {
                return warn!(%error, "the scheduled switch waits for its next time: the depot can't be read");
            }
        };
        if self.operator_waits_for(newest) {
            return info!(generation = %newest, "the schedule leaves the switch to the waiting order of an operator");
        }
        match self.newest() {
            Ok(known) if newest > known && !self.switch.withdrawn().contains(&newest) => {
                let line = self.scheduled.plan.switch.as_ref().map(|line| format!("schedule {}", line.text));
                let circumstances = Circumstances { seen: Some(known), by: line, ..Circumstances::default() };
                info!(generation = %newest, "the schedule switches to the newest generation");
                self.fetch_on(newest.into(), Aim::Go(Start::Scheduled), circumstances, None);
            }
            Ok(_) => info!("the schedule finds no newer generation"),
            Err(error) => warn!(%error, "the scheduled switch waits for its next time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `2026-11-28 02:00 UTC`, a Saturday.
    const SATURDAY: u64 = 1_795_831_200;
    const HOUR: u64 = 3600;

    fn host() -> HostName {
        HostName::new("web1").expect("a name")
    }

    fn plan(check: Option<&str>, switch: Option<&str>) -> Plan {
        let line = |text: Option<&str>| Line::read(text.map(ToOwned::to_owned).as_ref());
        Plan { check: line(check), switch: line(switch), judged: Judged::default() }
    }

    #[test]
    fn a_check_runs_once_at_its_time_and_a_few_minutes_later_on_each_host() {
        let mut plan = plan(Some("0 2 * * *"), None);
        let (due, wait) = plan.look(&host(), SATURDAY - HOUR);
        assert_eq!((due, wait), (Due::default(), Some(LOOK)), "earlier times do not count");
        let line = plan.check.clone().expect("a line");
        let spread = spread(&host(), &line.times, SATURDAY / 60);
        assert!((1..300).contains(&spread), "{spread}");
        assert_eq!(plan.look(&host(), SATURDAY), (Due::default(), Some(spread.min(LOOK))));
        assert!(plan.look(&host(), SATURDAY + spread).0.check);
        assert!(!plan.look(&host(), SATURDAY + spread).0.check, "once");
        assert!(!plan.look(&host(), SATURDAY + 23 * HOUR).0.check);
        // The host makes up for the last of many missed checks.
        assert!(plan.look(&host(), SATURDAY + 100 * HOUR).0.check);
        assert!(!plan.look(&host(), SATURDAY + 100 * HOUR).0.check);
    }

    #[test]
    fn a_late_scheduled_switch_is_missed() {
        let mut plan = plan(None, Some("0 2 * * 6"));
        assert_eq!(plan.look(&host(), SATURDAY - 1), (Due::default(), Some(1)));
        assert_eq!(plan.look(&host(), SATURDAY).0.switch, Some(Punctual::OnTime));
        assert_eq!(plan.look(&host(), SATURDAY + 1).0.switch, None);
        assert_eq!(plan.look(&host(), SATURDAY + 8 * 24 * HOUR).0.switch, Some(Punctual::Missed));
        assert_eq!(plan.look(&host(), SATURDAY + 8 * 24 * HOUR).0.switch, None);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_end_a_schedule() {
        let mut plan = plan(None, Some("0 2 * * 6"));
        let year = 365 * 24 * HOUR;
        plan.look(&host(), SATURDAY + year);
        assert_eq!(plan.look(&host(), SATURDAY - HOUR).0, Due::default());
        assert_eq!(plan.look(&host(), SATURDAY).0.switch, Some(Punctual::OnTime));
    }

    #[test]
    fn a_judged_schedule_is_known_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut scheduled = Scheduled::returned(folder.path());
        assert_eq!(scheduled.plan.judged, Judged::default());
        scheduled.plan.judged.check = Some(7);
        scheduled.keep();
        assert_eq!(Scheduled::returned(folder.path()).plan.judged, Judged { check: Some(7), switch: None });
        std::fs::write(folder.path().join(FILE), "{").expect("written");
        assert_eq!(Scheduled::returned(folder.path()).plan.judged, Judged::default(), "a damaged file does not count");
    }
}
