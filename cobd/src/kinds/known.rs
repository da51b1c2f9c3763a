//! The secret values that this host knows, to find them in text that others have written.
//!
//! The values are decrypted for the first search, shared by concurrent searches, and wiped after the last search.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cob_types::Packed;

use crate::run::{Opener, Redactor, Sealed};

/// Number of remembered bundles: a copy left by an editor may contain an older value.
const BUNDLES: usize = 4;

/// The secrets of this host's bundles.
#[derive(Default)]
pub(super) struct KnownSecrets {
    opener: Option<Opener>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The encrypted secrets of each bundle, the newest bundle last.
    sealed: Vec<Sealed>,
    /// Number of `Looking` handles.
    looking: usize,
    open: Option<Arc<Redactor>>,
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownSecrets").finish_non_exhaustive()
    }
}

impl KnownSecrets {
    pub(super) fn new(opener: Option<Opener>) -> Self {
        Self { opener, state: Mutex::default() }
    }

    /// Adds the active bundle.
    pub(super) fn know(&self, bundle: &Packed) {
        let sealed: Sealed = bundle.secrets().iter().map(|(id, sealed)| (*id, sealed.to_vec())).collect();
        let mut state = self.state();
        if sealed.is_empty() || state.sealed.last() == Some(&sealed) {
            return;
        }
        state.sealed.push(sealed);
        let surplus = state.sealed.len().saturating_sub(BUNDLES);
        state.sealed.drain(..surplus);
        state.open = None;
    }

    /// Whether there are secrets.
    pub(super) fn are_there(&self) -> bool {
        !self.state().sealed.is_empty()
    }

    /// Allows a search for secrets. `None`: there are no secrets.
    pub(super) fn look(self: &Arc<Self>) -> Option<Looking> {
        let mut state = self.state();
        if state.sealed.is_empty() {
            return None;
        }
        state.looking += 1;
        drop(state);
        Some(Looking(self.clone()))
    }

    fn redactor(&self) -> Arc<Redactor> {
        let mut state = self.state();
        if let Some(open) = &state.open {
            return open.clone();
        }
        // A value that this host can't decrypt exists nowhere in clear text.
        let opened = self.opener.iter().flat_map(|opener| {
            let all = state.sealed.iter().flatten();
            all.filter_map(|(id, sealed)| opener.open(std::iter::once((id, sealed.as_slice()))).ok())
        });
        let opened: Vec<_> = opened.collect();
        let redactor = Arc::new(Redactor::of(opened.iter().flat_map(|opened| opened.values())));
        if state.looking > 0 {
            state.open = Some(redactor.clone());
        }
        redactor
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to search for values. While a handle exists, values stay decrypted after the first search.
pub(super) struct Looking(Arc<KnownSecrets>);

impl Looking {
    /// The text with the values redacted.
    pub(super) fn text(&self, text: &str) -> String {
        if text.is_empty() { String::new() } else { self.0.redactor().text(text) }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.looking -= 1;
        if state.looking == 0 {
            state.open = None;
        }
    }
}

impl cob_files::Secrets for KnownSecrets {
    fn stand_in(&self, text: &[u8]) -> bool {
        self.redactor().stand_in(text)
    }

    fn longest(&self) -> usize {
        self.redactor().longest()
    }
}
