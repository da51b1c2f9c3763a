//! Rests for what asks or moves again and again.
//!
//! Outside the conditions of progress two things send no probe home: a *chase* (the same asked and
//! withdrawn with no action between) and a *flap* (actions that undo each other). A change object
//! counts both since its lot last changed; from the eighth time on it rests before the next, 0.1 s
//! doubling to 60 s, and the pair is reported. A rest only delays, so counting too much does no harm.
//!
//! This is the livelock guard between hosts as well. Every other message is either the answer to one, and has no
//! answer itself that begins anew, or said by a timer. So two daemons can talk at a high rate without progress only as long
//! as one of them asks, asks again for what it has lost, or revises; and each of these three is counted here.

use thin_vec::ThinVec;

use crate::names::{CobRef, StateId};
use crate::object::{Cx, Object, room_for_one};
use crate::record::Note;
use crate::spec::{Set, StateIx};
use crate::time::{Span, Time};

/// So often something may happen before the next time is put off.
const FREE: u32 = 8;
/// So often a lock that was recalled or lost is asked for again before the next time is put off. Each state that its granter
/// has to be in for others takes one of these.
const FREE_AGAIN: u32 = 64;
/// So often a request may be revised before the next time is put off: more, for the rank of a
/// request that serves many changes with each of them that comes and goes.
const FREE_REVISIONS: u32 = 128;
const REST: Span = Span::millis(100);
const REST_CAP: Span = Span::secs(60);
/// Counts of a change object that has been quiet for so long begin anew.
const FORGIVEN: Span = Span::secs(600);

/// What is counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Brake {
    /// The activation since which it is counted: what was counted before the last one means nothing.
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

/// What is counted by the change object that is asked alone: the same wish under another number, or another rank, origin or
/// set under the same number.
#[derive(Debug, Clone)]
struct Of {
    of: CobRef,
    tally: Tally,
}

/// The count of one change object, in a list of few.
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
    /// The next time comes not before this; zero: not decided yet.
    rest_until: Time,
}

impl Tally {
    /// The first moment in which it begins anew.
    fn forgiven_at(&self) -> Time {
        self.last + FORGIVEN + Span(1)
    }

    fn is_forgiven(&self, now: Time) -> bool {
        now >= self.forgiven_at() && self.rest_until == Time(0)
    }

    /// Whether the next time may come now, so many being free. If so it is counted.
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

impl Brake {
    /// Nothing is put off, and there is nothing to be reported: the next activation may forget what it has counted when
    /// it is asked next.
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

    /// An action of its own ended well: whatever it asked for led to something.
    pub(crate) fn acted(&mut self) {
        // With their room: of a chain each asks once, and waits for long.
        self.asks = ThinVec::new();
        self.again = ThinVec::new();
        self.revisions = ThinVec::new();
    }

    /// Counts a wish for a lock, or puts it off.
    pub(crate) fn may_ask(&mut self, cx: &mut Cx<'_>, me: CobRef, of: CobRef, set: &Set) -> bool {
        self.begin(cx);
        // What was given back because it had been lost too often.
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

    /// Counts that a lock which was recalled or lost is asked for again, or puts it off: it is given back until then.
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

    /// Counts a revision of a request, or puts it off. What wants a lock on account of the very lock that
    /// it serves can revise both for ever, with nothing asked anew.
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

    /// Counts the leaving of a state, or says until when it rests first.
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

    /// Forgets what has been quiet for long, and with it what was to be reported.
    pub(crate) fn forgive(&mut self, now: Time) {
        let counts = |tally: &Tally| !tally.is_forgiven(now);
        self.asks.retain(|a| counts(&a.tally));
        self.again.retain(|a| counts(&a.tally));
        self.revisions.retain(|r| counts(&r.tally));
        self.leaves.retain(|l| counts(&l.tally));
    }

    /// When something that is reported may be forgotten: it is no news for ever.
    pub(crate) fn forgiven_at(&self) -> Option<Time> {
        let asks = self.asks.iter().map(|a| (&a.tally, FREE));
        let revisions = self.revisions.iter().map(|r| (&r.tally, FREE_REVISIONS));
        let leaves = self.leaves.iter().map(|l| (&l.tally, FREE));
        let again = self.again.iter().map(|a| (&a.tally, FREE_AGAIN));
        let all = asks.chain(again).chain(revisions).chain(leaves);
        all.filter(|(t, free)| t.times >= *free && t.rest_until == Time(0)).map(|(t, _)| t.forgiven_at()).min()
    }

    /// The earliest end of a rest that is on.
    pub(crate) fn next_end(&self, now: Time) -> Option<Time> {
        let tallies = self.asks.iter().map(|a| &a.tally).chain(self.leaves.iter().map(|l| &l.tally));
        let tallies = tallies.chain(self.again.iter().chain(&self.revisions).map(|r| &r.tally));
        tallies.map(|t| t.rest_until).filter(|t| *t > now).min()
    }

    /// Chases to report: of whom, how often.
    pub(crate) fn chases(&self) -> impl Iterator<Item = (CobRef, u32)> + '_ {
        let asks = self.asks.iter().filter(|a| a.tally.times >= FREE).map(|a| (a.of, a.tally.times));
        let again = self.again.iter().filter(|a| a.tally.times >= FREE_AGAIN).map(|a| (a.of, a.tally.times));
        // Revisions rest more than once before they are named: many that come and go are no chase.
        let revisions = self.revisions.iter().filter(|r| r.tally.times >= FREE_REVISIONS + FREE);
        asks.chain(again).chain(revisions.map(|r| (r.of, r.tally.times)))
    }

    /// Flaps to report: which state, how often, because of whom.
    pub(crate) fn flaps(&self) -> impl Iterator<Item = (StateIx, u32, Option<CobRef>)> + '_ {
        self.leaves.iter().filter(|l| l.tally.times >= FREE).map(|l| (l.state, l.tally.times, l.because_of))
    }
}

impl Object {
    /// Some wish or hop is put off.
    pub(crate) fn resting_until(&self, now: Time) -> Option<Time> {
        self.brake.next_end(now)
    }
}
