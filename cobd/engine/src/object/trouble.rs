//! What went wrong with a change object, since its lot last changed: most have nothing of it, and take no room for it.

use std::ops::Deref;

use crate::object::Object;
use crate::time::Time;

/// What went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Failed attempts in a row, at the hop that it is to make.
    pub(crate) failures: u32,
    /// Checks in a row that could not tell the state.
    pub(crate) check_failures: u32,
    /// No attempt is made before.
    pub(crate) retry_at: Time,
    /// Of the last attempt that did not succeed, for reports.
    pub(crate) error: Option<Box<str>>,
    /// Of the last check that could not tell, for reports.
    pub(crate) check_error: Option<Box<str>>,
}

/// The trouble that a change object has, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Troubles(Option<Box<Trouble>>);

impl Deref for Troubles {
    type Target = Trouble;

    fn deref(&self) -> &Trouble {
        static NOTHING: Trouble =
            Trouble { failures: 0, check_failures: 0, retry_at: Time(0), error: None, check_error: None };
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl Trouble {
    /// Its state was found: what was said of attempts matters as long as they count.
    pub(crate) fn forget_what_counts_no_more(&mut self) {
        self.error = self.error.take().filter(|_| self.failures > 0);
    }
}

impl Object {
    /// Changes what is wrong with it.
    pub(crate) fn trouble(&mut self, change: impl FnOnce(&mut Trouble)) {
        let mut all = self.troubles.0.take().map_or_else(Trouble::default, |all| *all);
        change(&mut all);
        self.troubles.0 = (all != Trouble::default()).then(|| Box::new(all));
    }
}
