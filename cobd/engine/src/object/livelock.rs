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
use crate::object::{Cx, Object, room_for_one};
use crate::record::Note;
use crate::spec::{Set, StateIx};
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
    asks: ThinVec<Ask>,
    again: ThinVec<Of>,
    revisions: ThinVec<Of>,
    leaves: ThinVec<Leave>,
}

#[derive(Debug, Clone)]
struct Ask {
    of: CobRef,
    set: Set,
    tally: Tally,
}

/// A counter per grantor: the same request under another number, or another rank, origin or set under the same number.
#[derive(Debug, Clone)]
struct Of {
    of: CobRef,
    tally: Tally,
}

/// The counter for a grantor, in a short list.
fn tally_of(list: &mut ThinVec<Of>, of: CobRef) -> &mut Tally {
    let at = match list.iter().position(|r| r.of == of) {
        Some(at) => at,
        None => {
            room_for_one(list);
            list.push(Of { of, tally: Tally::default() });
            list.len() - 1
        }
    };
    &mut list[at].tally
}

#[derive(Debug, Clone)]
struct Leave {
    state: StateIx,
    because_of: Option<CobRef>,
    tally: Tally,
}

#[derive(Debug, Clone, Default)]
struct Tally {
    times: u32,
    last: Time,
    /// The earliest time of the next repetition; zero: not decided yet.
    rest_until: Time,
}

impl Tally {
    /// The time at which counting starts anew.
    fn forgiven_at(&self) -> Time {
        self.last + FORGIVEN + Span(1)
    }

    fn is_forgiven(&self, now: Time) -> bool {
        now >= self.forgiven_at() && self.rest_until == Time(0)
    }

    /// Whether the next repetition may happen now, with `free` repetitions without delay. If so, it is counted.
    fn pass(&mut self, free: u32, now: Time) -> Result<(), Time> {
        if self.is_forgiven(now) {
            self.times = 0;
        }
        if self.times >= free {
            if self.rest_until == Time(0) {
                self.rest_until = now + REST.doubled(self.times - free, REST_CAP);
            }
            if now < self.rest_until {
                return Err(self.rest_until);
            }
        }
        self.times += 1;
        self.last = now;
        self.rest_until = Time(0);
        Ok(())
    }
}

impl LivelockGuard {
    /// There is no delay and no report: the next activation may reset the counters on their next use.
    pub(crate) fn is_slack(&self) -> bool {
        let slack = |tally: &Tally, free: u32| tally.rest_until == Time(0) && tally.times < free;
        self.asks.iter().all(|a| slack(&a.tally, FREE))
            && self.again.iter().all(|a| slack(&a.tally, FREE_AGAIN))
            && self.revisions.iter().all(|r| slack(&r.tally, FREE_REVISIONS))
            && self.leaves.iter().all(|l| slack(&l.tally, FREE))
    }

    fn begin(&mut self, cx: &Cx<'_>) {
        if self.since != cx.activations {
            *self = Self { since: cx.activations, ..Self::default() };
        }
    }

    /// An action of its own succeeded: its requests led to progress.
    pub(crate) fn acted(&mut self) {
        // Frees their memory: each change object of a chain asks once and waits long.
        self.asks = ThinVec::new();
        self.again = ThinVec::new();
        self.revisions = ThinVec::new();
    }

    /// Counts a request for a lock, or delays it.
    pub(crate) fn may_ask(&mut self, cx: &mut Cx<'_>, me: CobRef, of: CobRef, set: &Set) -> bool {
        self.begin(cx);
        // A lock that was released because it had been lost too often.
        let again = self.again.iter_mut().find(|a| a.of == of && a.tally.rest_until != Time(0));
        if again.is_some_and(|a| a.tally.pass(FREE_AGAIN, cx.now).is_err()) {
            return false;
        }
        let at = match self.asks.iter().position(|a| a.of == of && a.set == *set) {
            Some(at) => at,
            None => {
                room_for_one(&mut self.asks);
                self.asks.push(Ask { of, set: set.clone(), tally: Tally::default() });
                self.asks.len() - 1
            }
        };
        let tally = &mut self.asks[at].tally;
        let fresh = tally.rest_until == Time(0);
        let passed = tally.pass(FREE, cx.now).is_ok();
        if !passed && fresh {
            let times = tally.times;
            let of = cx.names.cob_id(of).clone();
            cx.note(me, Note::Chase { of, times });
        }
        passed
    }

    /// Counts a repeated request for a recalled or lost lock, or delays it: until then the lock is released.
    pub(crate) fn may_ask_again(&mut self, cx: &mut Cx<'_>, me: CobRef, of: CobRef) -> bool {
        self.begin(cx);
        let tally = tally_of(&mut self.again, of);
        let fresh = tally.rest_until == Time(0);
        let passed = tally.pass(FREE_AGAIN, cx.now).is_ok() || cx.faults.asks_without_end();
        if !passed && fresh {
            let times = tally.times;
            let of = cx.names.cob_id(of).clone();
            cx.note(me, Note::Chase { of, times });
        }
        passed
    }

    /// Counts a revision of a request, or delays it. A change object that wants a lock on account of the very lock that
    /// it serves can revise both forever, without a new request.
    pub(crate) fn may_revise(&mut self, cx: &mut Cx<'_>, me: CobRef, of: CobRef) -> bool {
        self.begin(cx);
        let tally = tally_of(&mut self.revisions, of);
        let fresh = tally.rest_until == Time(0);
        let passed = tally.pass(FREE_REVISIONS, cx.now).is_ok();
        if !passed && fresh && tally.times >= FREE_REVISIONS + FREE {
            let times = tally.times;
            let of = cx.names.cob_id(of).clone();
            cx.note(me, Note::Chase { of, times });
        }
        passed
    }

    /// Counts the leaving of a state, or returns the end of the delay.
    pub(crate) fn rest_before_leaving(
        &mut self,
        cx: &mut Cx<'_>,
        me: (CobRef, StateId),
        state: StateIx,
        because_of: Option<CobRef>,
    ) -> Option<Time> {
        self.begin(cx);
        let at = match self.leaves.iter().position(|l| l.state == state) {
            Some(at) => at,
            None => {
                room_for_one(&mut self.leaves);
                self.leaves.push(Leave { state, because_of, tally: Tally::default() });
                self.leaves.len() - 1
            }
        };
        let leave = &mut self.leaves[at];
        leave.because_of = because_of;
        let fresh = leave.tally.rest_until == Time(0);
        let until = leave.tally.pass(FREE, cx.now).err();
        if until.is_some() && fresh {
            let times = leave.tally.times;
            let because_of = because_of.map(|c| cx.names.cob_id(c).clone());
            cx.note(me.0, Note::Flap { state: cx.names.state_name(me.1).clone(), times, because_of });
        }
        until
    }

    /// Forgets counters that have been quiet for long, and their reports.
    pub(crate) fn forgive(&mut self, now: Time) {
        let counts = |tally: &Tally| !tally.is_forgiven(now);
        self.asks.retain(|a| counts(&a.tally));
        self.again.retain(|a| counts(&a.tally));
        self.revisions.retain(|r| counts(&r.tally));
        self.leaves.retain(|l| counts(&l.tally));
    }

    /// The time when a report expires.
    pub(crate) fn forgiven_at(&self) -> Option<Time> {
        let asks = self.asks.iter().map(|a| (&a.tally, FREE));
        let revisions = self.revisions.iter().map(|r| (&r.tally, FREE_REVISIONS));
        let leaves = self.leaves.iter().map(|l| (&l.tally, FREE));
        let again = self.again.iter().map(|a| (&a.tally, FREE_AGAIN));
        let all = asks.chain(again).chain(revisions).chain(leaves);
        all.filter(|(t, free)| t.times >= *free && t.rest_until == Time(0)).map(|(t, _)| t.forgiven_at()).min()
    }

    /// The earliest end of a running delay.
    pub(crate) fn next_end(&self, now: Time) -> Option<Time> {
        let tallies = self.asks.iter().map(|a| &a.tally).chain(self.leaves.iter().map(|l| &l.tally));
        let tallies = tallies.chain(self.again.iter().chain(&self.revisions).map(|r| &r.tally));
        tallies.map(|t| t.rest_until).filter(|t| *t > now).min()
    }

    /// Chases to report: the grantor and the count.
    pub(crate) fn chases(&self) -> impl Iterator<Item = (CobRef, u32)> + '_ {
        let asks = self.asks.iter().filter(|a| a.tally.times >= FREE).map(|a| (a.of, a.tally.times));
        let again = self.again.iter().filter(|a| a.tally.times >= FREE_AGAIN).map(|a| (a.of, a.tally.times));
        // Revisions are delayed several times before a report: many requests that come and go are no chase.
        let revisions = self.revisions.iter().filter(|r| r.tally.times >= FREE_REVISIONS + FREE);
        asks.chain(again).chain(revisions.map(|r| (r.of, r.tally.times)))
    }

    /// Flaps to report: the state, the count and the cause.
    pub(crate) fn flaps(&self) -> impl Iterator<Item = (StateIx, u32, Option<CobRef>)> + '_ {
        self.leaves.iter().filter(|l| l.tally.times >= FREE).map(|l| (l.state, l.tally.times, l.because_of))
    }
}

impl Object {
    /// The end of the delay of a request or transition.
    pub(crate) fn resting_until(&self, now: Time) -> Option<Time> {
        self.livelock.next_end(now)
    }
}
