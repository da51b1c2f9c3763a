//! Messages about locks that this change object has asked for: the dependent's side.
//!
//! A message about another number than the current one has no effect. Where it could leave an orphaned grant, the
//! answer is a release of that number: this repairs every grant that was in flight when its request was released.

use cob_types::Number;

use crate::mail::{Granted, Msg, Refusal};
use crate::names::CobRef;
use crate::object::{Activity, Cx, Lock, Object};
use crate::record::Note;

impl Object {
    pub(crate) fn on_grant(&mut self, cx: &mut Cx<'_>, asked: CobRef, granted: Granted) {
        let Granted { number, state, values, rev } = granted;
        let Some(at) = self.current(cx, asked, number) else { return };
        let lock = &mut self.locks[at];
        lock.rev_known = lock.rev_known.max(rev);
        if lock.held.is_some() {
            return;
        }
        lock.held = Some(state);
        lock.values = values;
        lock.objections = None;
        let (of, state) = (cx.names.cob_id(asked).clone(), cx.names.state_name(state).clone());
        cx.note(self.me, Note::Holds { of, state });
        self.changed();
    }

    pub(crate) fn on_recall(&mut self, cx: &mut Cx<'_>, asked: CobRef, number: Number) {
        let Some(at) = self.current(cx, asked, number) else { return };
        if !self.locks[at].recalled {
            self.locks[at].recalled = true;
            self.changed();
        }
    }

    /// The grant is invalidated: like a recall, and the work that ran under it is checked.
    pub(crate) fn on_invalidated(&mut self, cx: &mut Cx<'_>, asked: CobRef, number: Number) {
        let Some(at) = self.current(cx, asked, number) else { return };
        let lock = &mut self.locks[at];
        if lock.held.is_some() && lock.invalidated().is_none() {
            lock.objections.get_or_insert_default().invalidated = Some(cx.now);
            cx.note(self.me, Note::Broken { of: cx.names.cob_id(asked).clone() });
        }
        self.lose(at);
    }

    /// Its grantor confirms a lock of an earlier incarnation, or does not know it.
    pub(crate) fn judge_restored(&mut self, asked: CobRef, stands: bool) {
        if let Ok(at) = self.lock_ix(asked) {
            if stands {
                self.locks[at].confirmed = true;
            } else {
                self.lose(at);
            }
        }
    }

    /// Held locks turned out to be invalid.
    pub(crate) fn lose_all(&mut self, which: impl Fn(&Lock) -> bool) {
        for at in 0..self.locks.len() {
            if which(&self.locks[at]) {
                self.lose(at);
            }
        }
    }

    /// Forgets releases to change objects that cannot acknowledge these.
    pub(crate) fn forget_releases(&mut self, to: impl Fn(CobRef) -> bool) {
        self.unacknowledged.retain(|(asked, _)| !to(*asked));
    }

    /// A held lock turned out to be invalid.
    pub(crate) fn lose(&mut self, at: usize) {
        self.locks[at].recalled = true;
        self.locks[at].confirmed = true;
        if let Activity::Acting(action) = &mut self.activity {
            action.suspect = true;
        }
        self.changed();
    }

    pub(crate) fn on_released(&mut self, asked: CobRef, number: Number) {
        if let Ok(i) = self.unacknowledged.binary_search_by_key(&asked, |g| g.0)
            && self.unacknowledged[i].1 <= number
        {
            self.unacknowledged.remove(i);
        }
        // The grantor has forgotten a number that is still needed (a fence, a reinstalled host).
        if let Ok(at) = self.lock_ix(asked)
            && self.locks[at].number <= number
        {
            self.lose(at);
        }
    }

    /// The grantor asks whether a request is still needed.
    pub(crate) fn on_query(&mut self, cx: &mut Cx<'_>, asked: CobRef, number: Number) {
        match self.lock_ix(asked) {
            // A change object waits: send the changes that were not worth a message before.
            Ok(at) if self.locks[at].number == number && self.locks[at].unsent => self.revise(cx, at),
            Ok(at) if self.locks[at].number == number => self.post_request(cx, at),
            // A newer request is under way, and replaces the queried one.
            Ok(at) if self.locks[at].number > number => {}
            Ok(_) | Err(_) => cx.post(self.me, asked, Msg::Release(number)),
        }
    }

    pub(crate) fn on_refused(&mut self, asked: CobRef, number: Number, refusal: Refusal) {
        if let Ok(at) = self.lock_ix(asked)
            && self.locks[at].number == number
        {
            self.locks[at].objections.get_or_insert_default().refused = Some(refusal);
        }
    }

    /// The index of the lock that a message is about, if its number is the current one. Otherwise the number is
    /// released.
    fn current(&mut self, cx: &mut Cx<'_>, asked: CobRef, number: Number) -> Option<usize> {
        if let Ok(at) = self.lock_ix(asked)
            && (self.locks[at].number == number || cx.faults.takes_any_grant())
        {
            return Some(at);
        }
        cx.post(self.me, asked, Msg::Release(number));
        None
    }
}
