//! Notifications to the service manager (systemd): ready, status, stopping, and the watchdog from the loop itself.
//!
//! The loop sends the watchdog message between two ticks and nowhere else: the service manager restarts a daemon whose
//! loop hangs. Without a service manager (no `NOTIFY_SOCKET`), no notification is ever due.

use std::time::Duration;

use cob_engine::Time;
use cob_engine::time::Span;
use cob_types::words::foreign;
use sd_notify::NotifyState;
use tracing::warn;

/// The shortest interval of status messages: a busy daemon changes its status in every tick.
const STATUS_AFTER: Span = Span::secs(1);
/// How often the status is computed without a watchdog.
const STATUS_EVERY: Span = Span::secs(60);

/// The longest status, in characters.
const STATUS_LENGTH: usize = 500;

/// The service manager that started this daemon.
#[derive(Debug)]
pub(super) struct ServiceManager {
    /// The interval of notifications.
    every: Span,
    /// Whether the service manager expects watchdog messages.
    watched: bool,
    /// When the next notification is due.
    due: Time,
    /// The time and text of the last status.
    told: (Time, String),
    tell: Tell,
}

/// Sends a notification.
type Tell = fn(&[NotifyState<'_>]) -> std::io::Result<()>;

impl ServiceManager {
    /// The service manager in the environment.
    pub(super) fn of_environment() -> Self {
        let there = std::env::var_os("NOTIFY_SOCKET").is_some();
        Self::new(there, sd_notify::watchdog_enabled(), sd_notify::notify)
    }

    fn new(there: bool, watchdog: Option<Duration>, tell: Tell) -> Self {
        // A third of the watchdog's timeout: a single message may be late.
        let third = watchdog.map(|w| Span(u64::try_from(w.as_nanos() / 3).unwrap_or(u64::MAX)));
        Self {
            every: third.unwrap_or(STATUS_EVERY).min(STATUS_EVERY),
            watched: watchdog.is_some(),
            due: if there { Time(0) } else { Time::NEVER },
            told: (Time(0), String::new()),
            tell,
        }
    }

    /// The daemon is ready: it answers, and has links to the peers that are up.
    pub(super) fn up(&self) {
        self.say(&[NotifyState::Ready]);
    }

    /// The daemon runs, but has no generation yet. `is_new`: the text has changed.
    pub(super) fn waits(&self, what: &str, is_new: bool) {
        let mut words = vec![NotifyState::Ready];
        if self.watched {
            words.push(NotifyState::Watchdog);
        }
        let what = foreign(what, STATUS_LENGTH);
        if is_new {
            words.push(NotifyState::Status(&what));
        }
        self.say(&words);
    }

    /// The daemon begins to stop, as ordered.
    pub(super) fn stopping(&self) {
        self.say(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// When the loop must call again.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Called between two ticks: the loop runs. `changed`: the status may have changed.
    pub(super) fn alive(&mut self, now: Time, changed: bool, status: impl FnOnce() -> String) {
        if self.due == Time::NEVER {
            return;
        }
        if changed {
            self.due = self.due.min(now.max(self.told.0 + STATUS_AFTER));
        }
        if now < self.due {
            return;
        }
        // A line end would start another field of the notification.
        let status = foreign(&status(), STATUS_LENGTH);
        let mut words = Vec::new();
        if self.watched {
            words.push(NotifyState::Watchdog);
        }
        if status != self.told.1 {
            words.push(NotifyState::Status(&status));
        }
        if !words.is_empty() {
            self.say(&words);
        }
        self.told = (now, status);
        self.due = now + self.every;
    }

    fn say(&self, words: &[NotifyState<'_>]) {
        if self.due == Time::NEVER {
            return;
        }
        if let Err(error) = (self.tell)(words) {
            warn!(%error, "the status of this daemon can't be reported to the service manager");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn hear(words: &[NotifyState<'_>]) -> std::io::Result<()> {
        HEARD.with_borrow_mut(|heard| heard.push(words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")));
        Ok(())
    }

    fn heard() -> Vec<String> {
        HEARD.take()
    }

    fn seconds(n: u64) -> Time {
        Time(0) + Span::secs(1_000_000 + n)
    }

    #[test]
    fn a_daemon_without_a_generation_is_up_and_sends_signs_of_life() {
        let manager = ServiceManager::new(true, Some(Duration::from_secs(30)), hear);
        manager.waits("waits\nMAINPID=1", true);
        manager.waits("waits", false);
        assert_eq!(heard(), ["READY=1 WATCHDOG=1 STATUS=waits\\nMAINPID=1", "READY=1 WATCHDOG=1"]);
    }

    #[test]
    fn signs_of_life_are_in_time_and_changes_at_most_once_a_second() {
        let mut manager = ServiceManager::new(true, Some(Duration::from_secs(30)), hear);
        manager.up();
        manager.alive(seconds(0), true, || "a".to_owned());
        assert_eq!(heard(), ["READY=1", "WATCHDOG=1 STATUS=a"]);
        assert_eq!(manager.due(), seconds(10));
        // A tick without changes, and then an immediate change.
        manager.alive(seconds(0), false, || unreachable!("not due"));
        manager.alive(seconds(0), true, || unreachable!("too soon"));
        assert_eq!((heard().len(), manager.due()), (0, seconds(1)));
        manager.alive(seconds(1), false, || "b".to_owned());
        assert_eq!((heard(), manager.due()), (vec!["WATCHDOG=1 STATUS=b".to_owned()], seconds(11)));
        manager.alive(seconds(11), false, || "b".to_owned());
        manager.stopping();
        assert_eq!(heard(), ["WATCHDOG=1", "STOPPING=1 STATUS=stopping"]);
    }

    #[test]
    fn only_changes_are_sent_without_a_watchdog_and_none_without_a_manager() {
        let mut manager = ServiceManager::new(true, None, hear);
        for _ in 0..3 {
            manager.alive(manager.due().max(seconds(0)), false, || "a".to_owned());
        }
        assert_eq!(heard(), ["STATUS=a"]);
        let mut nobody = ServiceManager::new(false, None, hear);
        nobody.up();
        nobody.alive(seconds(5), true, || unreachable!("nobody asks"));
        nobody.stopping();
        assert_eq!((heard().len(), nobody.due()), (0, Time::NEVER));
    }
}
