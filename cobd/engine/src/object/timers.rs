//! Deadlines of a change object: when it must be woken without an event, and which messages it then repeats.
//!
//! Only messages to other hosts can get lost, so only these are repeated.

use cob_types::Number;

use crate::mail::Msg;
use crate::names::CobRef;
use crate::object::{Activity, Cx, Object, Request};
use crate::time::{Span, Time};

/// After this time without a grant, a request is queried.
const QUERY_AFTER: Span = Span::secs(10);

impl Object {
    /// Sets the time of the next repeat.
    pub(crate) fn set_deadlines(&mut self, cx: &mut Cx<'_>) {
        if !self.resend.is_scheduled() && self.has_unanswered(cx) {
            self.resend.schedule(cx.now);
        }
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&mut self, cx: &Cx<'_>) -> Time {
        if self.acting() {
            return Time::NEVER;
        }
        let idle = matches!(self.activity, Activity::Idle);
        let check = if idle { self.check_at } else { Time::NEVER };
        let retry_at = self.troubles.retry_at;
        let retry = if retry_at > cx.now && !self.failed { retry_at } else { Time::NEVER };
        let rest = self.livelock.next_end(cx.now).or_else(|| self.livelock.forgiven_at()).unwrap_or(Time::NEVER);
        let probe = self.probe_deadline(cx).unwrap_or(Time::NEVER);
        check.min(retry).min(rest).min(probe).min(self.resend.at())
    }

    /// Performs the due work; the caller decides afterwards.
    pub(crate) fn wake(&mut self, cx: &mut Cx<'_>) {
        if self.acting() {
            return;
        }
        self.livelock.forgive(cx.now);
        if cx.now >= self.resend.at() {
            self.resend.count();
            self.repeat_unanswered(cx, |_| true);
        }
        self.send_probe_if_due(cx);
    }

    fn has_unanswered(&self, cx: &Cx<'_>) -> bool {
        let away = |c: CobRef| !cx.is_here(c);
        !self.unacknowledged.is_empty()
            || self.locks.iter().any(|l| l.unanswered() && away(l.asked))
            || self.requests.iter().any(|r| away(r.asker) && (r.granted.is_none() || r.recalled || r.restored))
            || (self.is_kept_away() && self.requests.iter().any(|r| away(r.asker)))
    }

    /// Only its grants keep it out of its own target state, or from departing. A holder that has left its model cannot
    /// repeat a lost release: query whether the grant is still needed.
    fn is_kept_away(&self) -> bool {
        self.state.is_some() && (self.departs_as_it_is() || self.state != Some(self.own_target()))
    }

    /// Repeats the unanswered messages to the hosts that `to` picks.
    pub(crate) fn repeat_unanswered(&self, cx: &mut Cx<'_>, to: impl Fn(CobRef) -> bool) {
        let away = |cx: &Cx<'_>, c: CobRef| !cx.is_here(c) && to(c);
        for at in 0..self.locks.len() {
            let lock = &self.locks[at];
            if lock.unanswered() && away(cx, lock.asked) {
                self.post_request(cx, at);
            }
        }
        for (asked, number) in &self.unacknowledged {
            if away(cx, *asked) {
                cx.post(self.me, *asked, Msg::Release(*number));
            }
        }
        for request in &self.requests {
            if !away(cx, request.asker) {
                continue;
            }
            if let Some(msg) = repeat_to_asker(request, self.is_kept_away(), cx.now) {
                cx.post(self.me, request.asker, msg);
            }
        }
    }
}

impl Request {
    /// It has waited long enough to be queried.
    pub(crate) fn has_waited(&self, now: Time) -> bool {
        has_waited_since(self.since, now)
    }
}

/// Whether a request that waits since `since` is queried now.
pub(crate) fn has_waited_since(since: Time, now: Time) -> bool {
    now > since + QUERY_AFTER
}

/// The message to repeat to an asker.
fn repeat_to_asker(request: &Request, kept_away: bool, now: Time) -> Option<Msg> {
    let number: Number = request.number;
    if request.invalidated {
        Some(Msg::Invalidated(number))
    } else if request.recalled {
        Some(Msg::Recall(number))
    } else if request.restored || ((request.granted.is_none() || kept_away) && request.has_waited(now)) {
        Some(Msg::Query(number))
    } else {
        None
    }
}
