//! Rate limits for repeated requests and transitions: the livelock guard.
//!
//! Outside the conditions of progress, two patterns let no probe return: a *chase* (the same request made and withdrawn
//! with no action in between) and a *flap* (actions that undo each other). A change object counts both since its
//! counters were reset; from the eighth time on it pauses before the next, 0.1 s doubling to 60 s, and reports the
//! pair. A pause only delays, so counting too much does no harm.
//!
//! This also guards against a livelock between hosts. Every other message is either an answer, which causes no new
//! request, or sent by a timer. So two daemons can exchange messages at a high rate without progress only while either
//! asks, asks again for a lost lock, or revises a request; each of these three is counted here.

use thin_vec::ThinVec;

use crate::names::{CobRef, StateId};
use crate::object::{Cx, room_for_one};
use crate::record::Note;
use crate::spec::Set;
use crate::time::{Span, Time};

/// The repetitions before the first delay.
const FREE: u32 = 8;
/// The repeated requests for a recalled or lost lock before the first delay. Each state that its grantor has to take
/// for others uses up a repetition.
const FREE_AGAIN: u32 = 64;
/// The revisions of a request before the first delay: more, because the rank of a request that serves many changes is
/// revised whenever any change comes or goes.
const FREE_REVISIONS: u32 = 128;
const REST: Span = Span::millis(100);
const REST_CAP: Span = Span::secs(60);
/// After this quiet time, the counts of a change object start anew.
const FORGIVEN: Span = Span::secs(600);

/// The counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct LivelockGuard {
    /// The activation at which counting started: counts of earlier activations do not matter.
    since: u64,
    tallies: ThinVec<Tally>,
}

#[derive(Debug, Clone)]
struct Tally {
    of: Repetition,
    times: u32,
    last: Time,
    /// The earliest time of the next repetition; zero: not decided yet.
    rest_until: Time,
}

/// A counted repetition.
#[derive(Debug, Clone)]
enum Repetition {
    /// A request for a lock.
    Ask(CobRef, Set),
    /// The same request under another number, for a recalled or lost lock.
    Again(CobRef),
    /// Another rank, origin or set under the same number.
    Revision(CobRef),
    /// The leaving of a state, and the last cause.
    Leave(StateId, Option<CobRef>),
}

impl Repetition {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ask(of, set), Self::Ask(other, others)) => of == other && set == others,
            (Self::Again(of), Self::Again(other)) | (Self::Revision(of), Self::Revision(other)) => of == other,
            (Self::Leave(state, _), Self::Leave(other, _)) => state == other,
            (Self::Ask(..) | Self::Again(_) | Self::Revision(_) | Self::Leave(..), _) => false,
        }
    }

    /// The repetitions before the first delay.
    fn free(&self) -> u32 {
        match self {
            Self::Ask(..) | Self::Leave(..) => FREE,
            Self::Again(_) => FREE_AGAIN,
            Self::Revision(_) => FREE_REVISIONS,
        }
    }

    /// The repetitions before a report. Revisions are delayed several times before: many requests that come and go are
    /// no chase.
    fn unreported(&self) -> u32 {
        if let Self::Revision(_) = self { FREE_REVISIONS + FREE } else { self.free() }
    }
}

impl Tally {
    /// The time at which counting starts anew.
    fn forgiven_at(&self) -> Time {
        self.last + FORGIVEN + Span(1)
    }

    fn is_delayed(&self) -> bool {
        self.rest_until != Time(0)
    }

    fn is_forgiven(&self, now: Time) -> bool {
        now >= self.forgiven_at() && !self.is_delayed()
    }

    fn is_reported(&self) -> bool {
        self.times >= self.of.unreported()
    }

    /// Whether the next repetition may happen now. If so, it is counted.
    fn pass(&mut self, now: Time) -> bool {
        if self.is_forgiven(now) {
            self.times = 0;
        }
        if self.times >= self.of.free() {
            if !self.is_delayed() {
                self.rest_until = now + REST.doubled(self.times - self.of.free(), REST_CAP);
            }
            if now < self.rest_until {
                return false;
            }
        }
        self.times += 1;
        self.last = now;
        self.rest_until = Time(0);
        true
    }
}

impl LivelockGuard {
    /// There is no delay and no report: the next activation may reset the counters on their next use.
    pub(crate) fn is_slack(&self) -> bool {
        self.tallies.iter().all(|tally| !tally.is_delayed() && tally.times < tally.of.free())
    }

    /// Counts a repetition, or delays it and reports the delay.
    fn count(&mut self, cx: &mut Cx<'_>, me: CobRef, of: Repetition) -> bool {
        if self.since != cx.activations {
            *self = Self { since: cx.activations, ..Self::default() };
        }
        let at = match self.tallies.iter().position(|tally| tally.of.is(&of)) {
            Some(at) => at,
            None => {
                room_for_one(&mut self.tallies);
                self.tallies.push(Tally { of: of.clone(), times: 0, last: Time(0), rest_until: Time(0) });
                self.tallies.len() - 1
            }
        };
        let tally = &mut self.tallies[at];
        tally.of = of;
        let was_delayed = tally.is_delayed();
        let passed = tally.pass(cx.now);
        if !passed && !was_delayed && tally.is_reported() {
            let (times, id) = (tally.times, |cob| cx.names.cob_id(cob).clone());
            let note = match tally.of {
                Repetition::Ask(of, _) | Repetition::Again(of) | Repetition::Revision(of) => {
                    Note::Chase { of: id(of), times }
                }
                Repetition::Leave(state, because_of) => {
                    Note::Flap { state: cx.names.state_name(state).clone(), times, because_of: because_of.map(id) }
                }
            };
            cx.note(me, note);
        }
        passed
    }

    /// An action of its own succeeded: its requests led to progress.
    pub(crate) fn acted(&mut self) {
        // Frees their memory: each change object of a chain asks once and waits long.
        self.tallies.retain(|tally| matches!(tally.of, Repetition::Leave(..)));
        self.tallies.shrink_to_fit();
    }

    /// Counts a request for a lock, or delays it.
    pub(crate) fn may_ask(&mut self, cx: &mut Cx<'_>, me: CobRef, of: CobRef, set: &Set) -> bool {
        // A lock that was released because it had been lost too often.
        let again = Repetition::Again(of);
        let is_delayed = |tally: &Tally| self.since == cx.activations && tally.is_delayed() && tally.of.is(&again);
        if let Some(at) = self.tallies.iter().position(is_delayed)
            && !self.tallies[at].pass(cx.now)
        {
            return false;
        }
        self.count(cx, me, Repetition::Ask(of, set.clone()))
    }

    /// Counts a repeated request for a recalled or lost lock, or delays it: until then the lock is released.
    pub(crate) fn may_ask_again(&mut self, cx: &mut Cx<'_>, me: CobRef, of: CobRef) -> bool {
        cx.faults.asks_without_end() || self.count(cx, me, Repetition::Again(of))
    }

    /// Counts a revision of a request, or delays it. A change object that wants a lock on account of the very lock that
    /// it serves can revise both forever, without a new request.
    pub(crate) fn may_revise(&mut self, cx: &mut Cx<'_>, me: CobRef, of: CobRef) -> bool {
        self.count(cx, me, Repetition::Revision(of))
    }

    /// Counts the leaving of a state, or delays it.
    pub(crate) fn may_leave(&mut self, cx: &mut Cx<'_>, me: CobRef, state: StateId, cause: Option<CobRef>) -> bool {
        self.count(cx, me, Repetition::Leave(state, cause))
    }

    /// Forgets counters that have been quiet for long, and their reports.
    pub(crate) fn forgive(&mut self, now: Time) {
        self.tallies.retain(|tally| !tally.is_forgiven(now));
    }

    /// The time when a report expires.
    pub(crate) fn forgiven_at(&self) -> Option<Time> {
        let reported = self.tallies.iter().filter(|tally| tally.times >= tally.of.free() && !tally.is_delayed());
        reported.map(Tally::forgiven_at).min()
    }

    /// The earliest end of the running delay of a request or transition.
    pub(crate) fn next_end(&self, now: Time) -> Option<Time> {
        self.tallies.iter().map(|tally| tally.rest_until).filter(|until| *until > now).min()
    }

    /// Chases to report: the grantor and the count.
    pub(crate) fn chases(&self) -> impl Iterator<Item = (CobRef, u32)> + '_ {
        let of_sort = |sort: fn(&Repetition) -> Option<CobRef>| {
            let reported = self.tallies.iter().filter(|tally| tally.is_reported());
            reported.filter_map(move |tally| Some((sort(&tally.of)?, tally.times)))
        };
        let asks = of_sort(|of| if let Repetition::Ask(of, _) = of { Some(*of) } else { None });
        let again = of_sort(|of| if let Repetition::Again(of) = of { Some(*of) } else { None });
        let revisions = of_sort(|of| if let Repetition::Revision(of) = of { Some(*of) } else { None });
        asks.chain(again).chain(revisions)
    }

    /// Flaps to report: the state, the count and the cause.
    pub(crate) fn flaps(&self) -> impl Iterator<Item = (StateId, u32, Option<CobRef>)> + '_ {
        self.tallies.iter().filter(|tally| tally.is_reported()).filter_map(|tally| match tally.of {
            Repetition::Leave(state, cause) => Some((state, tally.times, cause)),
            Repetition::Ask(..) | Repetition::Again(_) | Repetition::Revision(_) => None,
        })
    }
}
