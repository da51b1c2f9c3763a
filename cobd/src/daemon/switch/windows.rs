//! Maintenance windows: an order to switch waits until the windows of all hosts that it changes are open together.
//!
//! The manifest of the generation has the windows, so all hosts find the same times. The first host that starts tells the
//! others, which follow at once: a host does not judge a switch that has started.

use std::sync::Arc;

use cob_engine::Time;
use cob_engine::switch::{Cause, SwitchRecord, Waiting};
use cob_engine::time::Span;
use cob_types::api::{Done, SwitchHow};
use cob_types::maintenance::{SharedWindows, in_words};
use cob_types::status::WindowWait;
use cob_types::{GenerationNumber, Manifest};
use tracing::{info, warn};

use super::{Aim, Start};
use crate::clock;
use crate::daemon::words::Circumstances;
use crate::daemon::{Asked, Daemon};
use crate::generations::{FetchError, Wanted};

/// The wall clock may be set: it is read so often while an order waits.
const LOOK: Span = Span::secs(20);
/// Between two tries to start a switch whose windows are open.
const AGAIN: Span = Span::secs(60);

/// The order that waits, in this life of the daemon.
#[derive(Debug, Default)]
pub(super) struct WindowWatch {
    /// The windows of the switch between two generations.
    found: Option<(GenerationNumber, GenerationNumber, SharedWindows)>,
    /// When it is looked at next.
    due: Time,
    /// The switch is about to start.
    starts: bool,
}

/// The answer of the windows to a switch that is about to start.
#[derive(Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// They are closed, and the order says to ignore that.
    Ignored,
    Closed,
}

fn gate(windows: &SharedWindows, now: bool, second: u64) -> Gate {
    match windows.openings().is_open(second) {
        true => Gate::Open,
        false if now => Gate::Ignored,
        false => Gate::Closed,
    }
}

impl WindowWatch {
    /// The time of the next look at the waiting order.
    pub(super) fn due(&self, waiting: Option<&Waiting>) -> Time {
        if waiting.is_some() && !self.starts { self.due } else { Time::NEVER }
    }
}

impl Daemon {
    /// Takes an order to switch to a present generation, if the order has to wait for maintenance windows; else gives `asked`
    /// back.
    pub(in crate::daemon) fn waits_for_windows(
        &mut self,
        (goal, wanted): (&Arc<Manifest>, Wanted),
        start: Start,
        circumstances: &Circumstances,
        asked: Option<Asked>,
    ) -> Result<(), Option<Asked>> {
        let (cause, how) = match start {
            // A way back never waits.
            Start::Ordered(_) if goal.generation < self.goal() => return Err(asked),
            Start::Ordered(how) => (Cause::Ordered, how),
            // The order of an operator has terms that a depot and a schedule do not know.
            Start::Followed | Start::Scheduled
                if asked.is_none() && !circumstances.waited && self.operator_waits_for(goal.generation) =>
            {
                return Ok(());
            }
            Start::Followed => (Cause::Followed, SwitchHow::default()),
            Start::Scheduled => (Cause::Scheduled, SwitchHow::default()),
            Start::Told | Start::Return { .. } | Start::Onward => return Err(asked),
        };
        let windows = self.windows_to(goal, &circumstances.only, how.alone);
        let by = asked.as_ref().map(|asked| asked.who.clone()).or_else(|| circumstances.by.clone());
        match gate(&windows, how.now, clock::wall_s()) {
            Gate::Open => return Err(asked),
            Gate::Ignored => {
                info!(generation = %goal.generation, "the switch starts outside the maintenance windows");
                self.note_switch(SwitchRecord::IgnoresWindows(goal.generation), by.as_deref());
                return Err(asked);
            }
            Gate::Closed => {}
        }
        let waiting = Waiting {
            generation: goal.generation,
            manifest: wanted.manifest,
            cause,
            on_failure: how.on_failure,
            guard_ms: how.guard_ms,
            alone: how.alone,
            only: circumstances.only.clone(),
            seen: circumstances.seen,
            by,
            since: self.clock.now(),
        };
        let before = self.switch.state.waiting.as_deref();
        let known = before.is_some_and(|before| {
            let Waiting { by, since, .. } = before.clone();
            *before == Waiting { by, since, ..waiting.clone() }
        });
        if !known {
            info!(generation = %goal.generation, windows = words(&windows), "the switch waits for maintenance windows");
            let by = waiting.by.clone();
            self.note_switch(SwitchRecord::Waiting(Some(Box::new(waiting))), by.as_deref());
        }
        self.switch.windows = WindowWatch {
            found: Some((self.engine.generation(), goal.generation, windows)),
            due: Time(0),
            starts: false,
        };
        if let Some(Asked { reply, .. }) = asked {
            let detail = format!("generation {}: the switch waits for maintenance windows", goal.generation);
            let window_wait = self.window_wait();
            self.turn.answers.push((reply, Ok(Done { window_wait, ..Done::new(!known, detail) })));
        }
        Ok(())
    }

    /// The windows of a switch from the active generation.
    fn windows_to(&self, goal: &Manifest, only: &[cob_types::HostName], alone: bool) -> SharedWindows {
        let nothing = GenerationNumber(0);
        let active = self.present.manifest().cloned();
        // A host without an active generation goes by the previous generation, which the other hosts have.
        let newest = || goal.back.iter().map(|way| way.generation).max().filter(|newest| *newest != nothing);
        let from = active.filter(|from| from.generation != nothing);
        let from = from.or_else(|| newest().and_then(|newest| self.manifest_of(newest).ok()));
        SharedWindows::of_switch(from.as_deref(), goal, |host| match (only, alone) {
            ([], false) => true,
            ([], true) => *host == self.config.host,
            (only, _) => only.contains(host),
        })
    }

    /// Finds the windows of the waiting order, and keeps them until another generation is active.
    fn find_windows(&mut self, waiting: &Waiting) -> Result<(), FetchError> {
        let (from, to) = (self.engine.generation(), waiting.generation);
        if self.switch.windows.found.as_ref().is_none_or(|(f, t, _)| (*f, *t) != (from, to)) {
            let goal = self.manifest_of(to)?;
            let windows = self.windows_to(&goal, &waiting.only, waiting.alone);
            self.switch.windows.found = Some((from, to, windows));
        }
        Ok(())
    }

    /// Starts the waiting switch when its windows are open. The windows are judged once more when the generation is present.
    pub(super) fn look_at_windows(&mut self, now: Time) {
        if self.switch.windows.due(self.switch.state.waiting.as_deref()) > now {
            return;
        }
        let Some(waiting) = self.switch.state.waiting.as_deref().cloned() else { return };
        if let Err(error) = self.find_windows(&waiting) {
            warn!(generation = %waiting.generation, %error, "the maintenance windows of the switch that waits are not known");
        }
        let opens_in = match &self.switch.windows.found {
            Some((_, to, windows)) if *to == waiting.generation => windows.openings().opens_in(clock::wall_s()),
            // The generation is fetched once more, and judged then.
            Some(_) | None => Some(0),
        };
        let Some(0) = opens_in else {
            let left = opens_in.map_or(LOOK, Span::secs);
            self.switch.windows.due = now + left.min(LOOK);
            return;
        };
        self.switch.windows.starts = true;
        let Waiting { generation, manifest, cause, on_failure, guard_ms, alone, only, seen, by, .. } = waiting;
        let start = match cause {
            Cause::Ordered => Start::Ordered(SwitchHow { on_failure, guard_ms, alone, now: false }),
            Cause::Followed => Start::Followed,
            Cause::Scheduled => Start::Scheduled,
        };
        let circumstances = Circumstances { only, seen, by, waited: true };
        self.fetch_on(Wanted { generation, manifest }, Aim::Go(start), circumstances, None);
    }

    /// The switch that waited could not start: it is tried again.
    pub(in crate::daemon) fn window_start_failed(&mut self, generation: GenerationNumber, error: &FetchError) {
        warn!(%generation, %error, "the switch that waited for maintenance windows can't start yet");
        self.switch.windows.starts = false;
        self.switch.windows.due = self.clock.now() + AGAIN;
    }

    /// Whether an operator's order to switch to this generation, or to a later one, waits for its windows.
    pub(in crate::daemon) fn operator_waits_for(&self, generation: GenerationNumber) -> bool {
        let waiting = self.switch.state.waiting.as_deref();
        waiting.is_some_and(|waiting| waiting.cause == Cause::Ordered && waiting.generation >= generation)
    }

    /// Drops the waiting order of a generation for which `is_meant` holds. Returns the generation.
    pub(in crate::daemon) fn drop_waiting(
        &mut self,
        is_meant: impl Fn(GenerationNumber) -> bool,
        who: Option<&str>,
    ) -> Option<GenerationNumber> {
        let generation = self.switch.state.waiting.as_ref().map(|waiting| waiting.generation)?;
        if !is_meant(generation) {
            return None;
        }
        self.note_switch(SwitchRecord::Waiting(None), who);
        self.switch.windows = WindowWatch::default();
        Some(generation)
    }

    /// The order that waits, for people.
    pub(in crate::daemon) fn window_wait(&self) -> Option<WindowWait> {
        let waiting = self.switch.state.waiting.as_deref()?;
        let found = self.switch.windows.found.as_ref().filter(|(_, to, _)| *to == waiting.generation);
        let windows = found.map_or(SharedWindows(Vec::new()), |(.., windows)| windows.clone());
        let by = waiting.by.clone().unwrap_or_else(|| match waiting.cause {
            Cause::Ordered => String::new(),
            Cause::Followed => "the depot".to_owned(),
            Cause::Scheduled => "the schedule".to_owned(),
        });
        Some(WindowWait {
            to: waiting.generation,
            by,
            since_ns: waiting.since.0,
            opens_in_s: windows.openings().opens_in(clock::wall_s()),
            windows,
        })
    }
}

/// Windows for the log.
fn words(windows: &SharedWindows) -> String {
    windows.0.iter().map(|group| in_words(&group.windows)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use cob_types::HostName;
    use cob_types::maintenance::{HostWindows, Offset, Window};

    use super::*;

    /// `2026-11-28 02:00 UTC`, a Saturday.
    const OPENS: u64 = 1_795_831_200;

    #[test]
    fn a_window_is_judged_by_the_wall_clock_at_the_start() {
        let window = Window::parse("Sat 02:00-04:00", Offset::default()).expect("a window");
        let host = HostName::new("web1").expect("a name");
        let windows = SharedWindows(vec![HostWindows { windows: vec![window], hosts: vec![host], more: 0 }]);
        for (second, found) in [
            (OPENS - 1, Gate::Closed),
            (OPENS, Gate::Open),
            (OPENS + 7199, Gate::Open),
            // The clock jumps over the end of the window, and back.
            (OPENS + 7200, Gate::Closed),
            (OPENS + 3600, Gate::Open),
        ] {
            assert_eq!(gate(&windows, false, second), found, "{second}");
        }
        assert_eq!(gate(&windows, true, OPENS - 1), Gate::Ignored);
        assert_eq!(gate(&windows, true, OPENS), Gate::Open, "open windows are not ignored");
        assert_eq!(gate(&SharedWindows(Vec::new()), false, 0), Gate::Open);
    }
}
