//! Probes: the search for deadlock cycles, and the effect of a probe that returns.
//!
//! A change object that has waited sends a probe along its waits: to the change objects of needs that it does not hold,
//! and to the holders of grants that it recalls. Each waiting receiver forwards it. If it returns to an initiator whose
//! requests are in conflict, the initiator decides by rank from then on (until it has no requests left), which is
//! enough to dissolve every cycle that can be dissolved. A late or false return only turns state priority into rank
//! order: it does no harm.
//!
//! There are two sorts. A change object with requests in conflict sends a *wide* probe along all its waits: any cycle
//! through it must be found, and once it decides by rank every holder must send the rank that counts now. All other
//! waiting change objects only want to report a cycle that cannot be dissolved; they send a *narrow* probe, along a
//! single wait each. When no change object moves any more, each waits for another that waits, so a single edge each
//! leads into a cycle whose members all receive their own probes. Narrow probes keep the messages few while a large
//! cluster waits for a slow action: each follows a single path.
//!
//! A row of a thousand waiting change objects would send a thousand probes over a thousand steps each; so the probes of
//! a host take turns, wide and narrow probes apart, within limits ([`Probing`]). This loses no cycle: each gets its
//! turn, and a change object that a probe passes twice (in a cycle, or where two paths meet) gets it at once.
//!
//! This is the edge-chasing scheme of Chandy, Misra and Haas (1983) for the AND model, with rank order in place of an
//! abort.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use cob_types::Number;
use cob_types::message::MAX_PROBE_PATH;
use thin_vec::ThinVec;

use crate::mail::{Msg, Probed};
use crate::names::CobRef;
use crate::object::{Cx, Object, Request};
use crate::record::Note;
use crate::repeat::Window;
use crate::time::{Span, Time};

const WAIT: Span = Span::millis(200);
const WAIT_CAP: Span = Span::secs(60);
/// After this time an initiator's last number is forgotten: a probe still under way is then forwarded again.
const SEEN_FOR: Span = Span::secs(60);
/// After this number of consecutive returns without a change, the rules cannot dissolve the cycle.
const RETURNS_UNTIL_STUCK: u32 = 3;
/// The most initiators that are remembered; the oldest goes first.
const SEEN_MAX: usize = 4096;

/// The most steps of the probes that a host sends within [`WAIT`], if each goes as far as it can. So up to 64 waiting
/// change objects on a host need no turns; with more of them than steps, a probe goes only every few [`WAIT`].
const STEPS: usize = 4096;

/// The most steps of other hosts' probes through this host within [`WAIT`]. A probe beyond that is lost here; its
/// initiator sends the next.
const PASSED: usize = 32_768;

/// The turns of a host's probes. Wide probes have their own: they may dissolve a cycle, narrow probes only report it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probing {
    wide: Window,
    narrow: Window,
    /// Steps of forwarded probes, and since when they are counted.
    passed: (usize, Time),
}

impl Probing {
    /// Whether another probe may be forwarded. A probe with very many steps delays the probes after it.
    pub(crate) fn may_pass(&mut self, now: Time) -> bool {
        let (steps, since) = self.passed;
        let times = now.0.saturating_sub(since.0) / WAIT.0;
        if times > 0 {
            let free = PASSED.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX));
            self.passed = (steps.saturating_sub(free), now);
        }
        self.passed.0 < PASSED
    }

    /// Counts the steps of a forwarded probe.
    pub(crate) fn pass(&mut self, steps: usize) {
        self.passed.0 = self.passed.0.saturating_add(steps);
    }

    /// Takes a turn, if any is free.
    fn turn(&mut self, wide: bool, now: Time, waiters: usize) -> bool {
        let turns = if wide { &mut self.wide } else { &mut self.narrow };
        let times = waiters.div_ceil(STEPS).max(1);
        turns.take((STEPS / waiters.max(1)).max(1), Span(WAIT.0.saturating_mul(times as u64)), now)
    }
}

/// The probe data of a change object; empty as long as no probe concerns it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProbeState(Option<Box<StoredProbe>>);

/// The stored probe data.
#[derive(Debug, Clone)]
pub(crate) struct StoredProbe {
    /// When the next probe is sent; never: it does not wait.
    at: Time,
    sent: u32,
    number: Option<Number>,
    /// The current number has returned.
    returned: bool,
    returns: u32,
    /// Highest number seen, by initiator (sorted), and when.
    seen: ThinVec<(CobRef, Number, Time)>,
    circle: Option<Box<(Vec<CobRef>, bool)>>,
    /// Its own probe is put off until its turn.
    put_off: bool,
    /// It has a turn independent of the others: it is in a cycle.
    first: bool,
}

impl Default for StoredProbe {
    fn default() -> Self {
        Self {
            at: Time::NEVER,
            sent: 0,
            number: None,
            returned: false,
            returns: 0,
            seen: ThinVec::new(),
            circle: None,
            put_off: false,
            first: false,
        }
    }
}

impl Deref for ProbeState {
    type Target = StoredProbe;

    fn deref(&self) -> &StoredProbe {
        static NOTHING: LazyLock<StoredProbe> = LazyLock::new(StoredProbe::default);
        self.0.as_deref().unwrap_or_else(|| &NOTHING)
    }
}

impl DerefMut for ProbeState {
    fn deref_mut(&mut self) -> &mut StoredProbe {
        self.0.get_or_insert_default()
    }
}

impl ProbeState {
    /// A change restarts its wait.
    pub(crate) fn restart(&mut self) {
        self.leave(|StoredProbe { number, returned, seen, .. }| StoredProbe {
            number,
            returned,
            seen,
            ..StoredProbe::default()
        });
    }

    pub(crate) fn forget(&mut self) {
        self.leave(|StoredProbe { number, seen, .. }| StoredProbe { number, seen, ..StoredProbe::default() });
    }

    /// It does not wait.
    fn rest(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.at = Time::NEVER;
        }
    }

    fn leave(&mut self, left: impl FnOnce(StoredProbe) -> StoredProbe) {
        let Some(kept) = &mut self.0 else { return };
        **kept = left(std::mem::take(&mut **kept));
        if kept.number.is_none() && kept.seen.is_empty() {
            self.0 = None;
        }
    }

    /// There is no data to forget.
    pub(crate) fn is_idle(&self) -> bool {
        let StoredProbe { at, sent, number: _, returned, returns, seen: _, circle, put_off, first } = &**self;
        *at == Time::NEVER && (*sent, *returns) == (0, 0) && circle.is_none() && !(*returned || *put_off || *first)
    }

    /// The number of its pending probe, and whether it has returned.
    #[cfg(feature = "explored")]
    pub(crate) fn awaited(&self) -> Option<(Number, bool)> {
        self.number.map(|n| (n, self.returned))
    }

    /// The highest number seen of an initiator, unless it has expired.
    #[cfg(feature = "explored")]
    pub(crate) fn seen_of(&self, initiator: CobRef, now: Time) -> Option<Number> {
        let at = self.seen.binary_search_by_key(&initiator, |s| s.0).ok()?;
        Some(self.seen[at].1).filter(|_| now < self.seen[at].2 + SEEN_FOR)
    }

    /// Whether its own probe is put off, and whether it has a turn independent of the others.
    #[cfg(feature = "explored")]
    pub(crate) fn turns(&self) -> [bool; 2] {
        [self.put_off, self.first]
    }

    /// The deadlock cycle that contains it, if it has been reported.
    pub(crate) fn circle(&self) -> Option<&(Vec<CobRef>, bool)> {
        self.circle.as_deref()
    }
}

impl Object {
    /// Forgets the numbers of some initiators, which start anew.
    pub(crate) fn forget_probes(&mut self, of: impl Fn(CobRef) -> bool) {
        if let Some(kept) = &mut self.probe.0 {
            kept.seen.retain(|(initiator, ..)| !of(*initiator));
        }
    }

    /// It waits: for a lock, for the release of a grant, with requests in conflict, or until the change objects that
    /// act on its own desired state no longer need it (forever, if its desired state needs itself).
    pub(crate) fn waits(&self) -> bool {
        !self.acting()
            && self.state.is_some()
            && (self.view.missing
                || self.view.conflict
                || self.view.serves_own_desire
                || self.view.drained
                || self.requests.iter().any(|r| r.recalled))
    }

    /// When the next probe is due.
    pub(crate) fn probe_deadline(&mut self, cx: &Cx<'_>) -> Option<Time> {
        if cx.faults.no_probes() || !self.waits() {
            self.probe.rest();
            return None;
        }
        if self.probe.at == Time::NEVER {
            let times = self.probe.sent.min(16);
            self.probe.at = cx.now + WAIT.doubled(times, WAIT_CAP);
        }
        Some(self.probe.at)
    }

    pub(crate) fn send_probe_if_due(&mut self, cx: &mut Cx<'_>) {
        if cx.now < self.probe.at || !self.waits() {
            return;
        }
        let first = std::mem::take(&mut self.probe.first);
        let wide = self.view.conflict;
        // A drained budget's probe takes a single step.
        self.probe.put_off = !self.view.drained && !first && !cx.probing.turn(wide, cx.now, cx.unsettled);
        if self.probe.put_off {
            self.probe.at = cx.now + WAIT;
            return;
        }
        self.probe.at = Time::NEVER;
        self.probe.sent = self.probe.sent.saturating_add(1);
        if !self.probe.returned {
            self.probe.returns = 0;
        }
        self.probe.returned = false;
        self.send_unsent(cx);
        let number = cx.number();
        self.probe.number = Some(number);
        let (initiator, generation) = (self.me, cx.generation);
        if self.view.drained {
            if let Some(holder) = self.next_watched(self.probe.sent) {
                let path = vec![initiator];
                let probe = Probed { initiator, number, generation, path, more: false, wide: true };
                cx.post(self.me, holder, Msg::Probe(probe));
            }
            return;
        }
        self.pass_on(cx, Probed { initiator, number, generation, path: Vec::new(), more: false, wide });
    }

    /// Handles a received probe. Returns it if its sender waits for the state of this change object in the generation
    /// that the host switches to: then it leads on to the hosts that this host waits for.
    pub(crate) fn on_probe(&mut self, cx: &mut Cx<'_>, from: CobRef, probe: Probed) -> Option<Probed> {
        // It must come along a wait. An unrelated sender could hide the probes of others by higher numbers in their
        // names.
        let asked = self.request_ix(from).ok();
        if asked.is_none() && self.lock_ix(from).is_err() {
            return None;
        }
        let is_of_another = |r: &Request| r.fingerprint.is_some_and(|expected| expected != self.spec.fingerprint);
        let comes = asked.map(|at| &self.requests[at]).is_some_and(|r| r.is_open() && is_of_another(r));
        let onward = comes.then(|| probe.clone());
        if self.lead_on(cx, from, probe) { onward } else { None }
    }

    /// Forwards a probe if appropriate; returns whether it did. The host has admitted probes of hosts that wait for it.
    pub(crate) fn lead_on(&mut self, cx: &mut Cx<'_>, from: CobRef, probe: Probed) -> bool {
        if probe.initiator == self.me {
            self.on_probe_returned(cx, from, probe.number, &probe.path, probe.more);
            return false;
        }
        if self.acting() || self.state.is_none() {
            return false;
        }
        self.send_unsent(cx);
        if self.failed {
            return false;
        }
        if !self.is_news(cx, probe.initiator, probe.number) {
            if std::mem::take(&mut self.probe.put_off) {
                self.probe.first = true;
                self.probe.at = cx.now;
            }
            return false;
        }
        if cx.probing.may_pass(cx.now) {
            let steps = self.pass_on(cx, probe);
            cx.probing.pass(steps);
        }
        true
    }

    fn on_probe_returned(&mut self, cx: &mut Cx<'_>, from: CobRef, number: Number, path: &[CobRef], more: bool) {
        if self.probe.number != Some(number) || self.probe.returned || !self.waits() {
            return;
        }
        self.probe.returned = true;
        if self.view.drained {
            if !self.watched_is_blocked(cx, from) {
                // Examine the next holder at once: only holders that may still come back deserve a wait.
                self.probe.at = cx.now;
            }
            return;
        }
        self.probe.returns += 1;
        if self.view.conflict && !self.ordered {
            self.ordered = true;
            cx.note(self.me, Note::Ordered);
            self.changed();
        } else if self.probe.returns >= RETURNS_UNTIL_STUCK {
            let mut circle = vec![self.me];
            circle.extend(path.iter().copied().filter(|c| *c != self.me));
            if self.probe.circle.is_none() {
                let names = circle.iter().map(|c| cx.names.cob_id(*c).clone()).collect();
                cx.note(self.me, Note::Stuck { circle: names, more });
            }
            self.probe.circle = Some(Box::new((circle, more)));
        }
    }

    fn is_news(&mut self, cx: &Cx<'_>, initiator: CobRef, number: Number) -> bool {
        let seen = &mut self.probe.seen;
        match seen.binary_search_by_key(&initiator, |s| s.0) {
            Ok(i) if seen[i].1 >= number && cx.now < seen[i].2 + SEEN_FOR => return false,
            Ok(i) => seen[i] = (initiator, number, cx.now),
            Err(_) => {
                if seen.len() == seen.capacity() {
                    seen.retain(|s| cx.now < s.2 + SEEN_FOR);
                }
                if seen.len() < 4 {
                    // Most members of a waiting row see very few.
                    seen.reserve_exact(1);
                }
                let i = seen.partition_point(|s| s.0 < initiator);
                seen.insert(i, (initiator, number, cx.now));
            }
        }
        if seen.len() > SEEN_MAX
            && let Some(oldest) = (0..seen.len()).min_by_key(|i| seen[*i].2)
        {
            seen.remove(oldest);
        }
        true
    }

    /// Forwards to the change objects of needs not held and to the holders of grants: to all, or to the first. Returns
    /// how many.
    fn pass_on(&self, cx: &mut Cx<'_>, mut probe: Probed) -> usize {
        // An observed change object never moves, so it recalls grants only if their locks are recalled.
        let from = probe.path.last().copied();
        let gives_back = self.locks.iter().any(|l| Some(l.asked) == from && l.held.is_some());
        let wants_back = |r: &&Request| r.granted.is_some() && (!self.spec.observe || r.recalled || gives_back);
        // The last element of the path is always the sender: it tells the receiver's host the origin of the message.
        if probe.path.len() >= MAX_PROBE_PATH {
            probe.path.truncate(MAX_PROBE_PATH - 1);
            probe.more = true;
        }
        probe.path.push(self.me);
        let needed = self.locks.iter().filter(|l| l.needed && !l.speculative && !l.usable()).map(|l| l.asked);
        let holders = self.requests.iter().map(AsRef::as_ref).filter(wants_back).map(|r| r.asker);
        let mut steps = 0;
        for to in needed.chain(holders).take(if probe.wide { usize::MAX } else { 1 }) {
            cx.post(self.me, to, Msg::Probe(probe.clone()));
            steps += 1;
        }
        steps
    }
}
