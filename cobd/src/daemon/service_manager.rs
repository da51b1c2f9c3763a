//! What the service manager (systemd) is told: that the daemon is up, what it is at, that it stops,
//! and, from the loop itself, that it lives.
//!
//! The sign of life is given between two turns and nowhere else: a loop that hangs gives none, and is
//! started again. Without a service manager (no `NOTIFY_SOCKET`) nothing is ever due.

use std::time::Duration;

use cob_engine::Time;
use cob_engine::time::Span;
use cob_types::words::foreign;
use sd_notify::NotifyState;
use tracing::warn;

/// A changed status is told after this time at the earliest: a busy daemon changes it at every turn.
const STATUS_AFTER: Span = Span::secs(1);
/// How often the status is looked at where no sign of life is asked for.
const STATUS_EVERY: Span = Span::secs(60);

/// The longest status, in characters.
const STATUS_LENGTH: usize = 500;

/// The service manager that has started this daemon.
#[derive(Debug)]
pub(super) struct ServiceManager {
    /// Between two signs of life.
    every: Span,
    /// Whether signs of life are asked for.
    watched: bool,
    /// When the next word is due.
    due: Time,
    /// When the status was told, and what it said.
    told: (Time, String),
    tell: Tell,
}

/// Says it.
type Tell = fn(&[NotifyState<'_>]) -> std::io::Result<()>;

impl ServiceManager {
    /// The one that the environment names.
    pub(super) fn of_environment() -> Self {
        let there = std::env::var_os("NOTIFY_SOCKET").is_some();
        Self::new(there, sd_notify::watchdog_enabled(), sd_notify::notify)
    }

    fn new(there: bool, watchdog: Option<Duration>, tell: Tell) -> Self {
        // Three signs fit into the time after which it gives up: one may come late.
        let third = watchdog.map(|w| Span(u64::try_from(w.as_nanos() / 3).unwrap_or(u64::MAX)));
        Self {
            every: third.unwrap_or(STATUS_EVERY).min(STATUS_EVERY),
            watched: watchdog.is_some(),
            due: if there { Time(0) } else { Time::NEVER },
            told: (Time(0), String::new()),
            tell,
        }
    }

    /// The daemon is up: it answers, and is linked as far as its peers are there.
    pub(super) fn up(&self) {
        self.say(&[NotifyState::Ready]);
    }

    /// The daemon has no generation yet: it is up as far as it can be, and lives. `is_new`: the words are others than before.
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

    /// It begins to stop, as it was told to.
    pub(super) fn stopping(&self) {
        self.say(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// When the loop must come by again.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Called between two turns: the loop lives. `changed`: there may be another status.
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
        // A line end would begin another word to the service manager.
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
            warn!(%error, "the service manager can't be told how this daemon is");
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
    fn a_daemon_that_waits_for_its_first_generation_is_up_and_gives_signs_of_life() {
        let manager = ServiceManager::new(true, Some(Duration::from_secs(30)), hear);
        manager.waits("waits\nMAINPID=1", true);
        manager.waits("waits", false);
        assert_eq!(heard(), ["READY=1 WATCHDOG=1 STATUS=waits\\nMAINPID=1", "READY=1 WATCHDOG=1"]);
    }

    #[test]
    fn signs_of_life_come_in_time_and_changes_no_more_than_once_a_second() {
        let mut manager = ServiceManager::new(true, Some(Duration::from_secs(30)), hear);
        manager.up();
        manager.alive(seconds(0), true, || "a".to_owned());
        assert_eq!(heard(), ["READY=1", "WATCHDOG=1 STATUS=a"]);
        assert_eq!(manager.due(), seconds(10));
        // A turn in which nothing happened, and one that changes something at once.
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
    fn without_a_watchdog_only_changes_are_told_and_without_a_manager_nothing() {
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
