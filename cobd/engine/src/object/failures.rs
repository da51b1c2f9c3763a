//! The failures of a change object since its counters were reset. Without a failure they take no room.

use std::ops::Deref;

use crate::object::Object;
use crate::time::Time;

/// The failures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Consecutive failed attempts of the next transition.
    pub(crate) failures: u32,
    /// Consecutive checks that could not determine the state.
    pub(crate) check_failures: u32,
    /// The time before which no attempt is made.
    pub(crate) retry_at: Time,
    /// Error of the last unsuccessful attempt, for reports.
    pub(crate) error: Option<Box<str>>,
    /// A person has to decide a conflict before the next attempt.
    pub(crate) conflict: bool,
    /// Error of the last check that could not determine the state, for reports.
    pub(crate) check_error: Option<Box<str>>,
}

/// The failures of a change object, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures(Option<Box<Trouble>>);

impl Deref for Failures {
    type Target = Trouble;

    fn deref(&self) -> &Trouble {
        static NOTHING: Trouble = Trouble {
            failures: 0,
            check_failures: 0,
            retry_at: Time(0),
            error: None,
            conflict: false,
            check_error: None,
        };
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl Trouble {
    /// A check found its state: errors of attempts matter only while the attempts count.
    pub(crate) fn forget_old_errors(&mut self) {
        self.error = self.error.take().filter(|_| self.failures > 0);
        self.conflict &= self.failures > 0;
    }
}

impl Object {
    /// Changes its failures.
    pub(crate) fn trouble(&mut self, change: impl FnOnce(&mut Trouble)) {
        let mut all = self.troubles.0.take().map_or_else(Trouble::default, |all| *all);
        change(&mut all);
        self.troubles.0 = (all != Trouble::default()).then(|| Box::new(all));
    }
}
