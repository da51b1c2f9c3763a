//! Strangers on the listening port: how many there may be, how fast, and who has to go first.
//!
//! A connection is a stranger's until it has proved whose it is. It waits without a place until its
//! first byte is there; then it gets one of a few places for its handshake. Who is silent, or slow in
//! a place that others wait for, makes room: the oldest first, of the source with the most. So a newcomer
//! is never sent away for the crowd that was there before.
//!
//! Free of input and output: `door` tells it what happens and does what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

/// More sources than this at a time share one account.
const MAX_SOURCES: usize = 1024;

/// How many strangers there may be, and how fast.
#[derive(Debug, Clone)]
pub struct StrangerLimits {
    /// The most connections that have no place yet.
    pub waiting: usize,
    /// The most of them from one source address (IPv6: one /64 network).
    pub waiting_per_source: usize,
    /// The most places for handshakes.
    pub places: usize,
    /// The most of them for one source.
    pub places_per_source: usize,
    /// So long a place is safe from those who wait for one.
    pub grace: Duration,
    /// TLS handshakes a second from one source, and how many at once after a pause.
    pub source_rate: Rate,
    /// The same for all sources together.
    pub total_rate: Rate,
}

/// How often something may happen.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Times a second, in the long run.
    pub per_second: u32,
    /// Times at once.
    pub burst: u32,
}

impl Default for StrangerLimits {
    fn default() -> Self {
        Self {
            waiting: 256,
            waiting_per_source: 128,
            places: 64,
            places_per_source: 32,
            grace: Duration::from_millis(250),
            source_rate: Rate { per_second: 200, burst: 400 },
            total_rate: Rate { per_second: 1000, burst: 1000 },
        }
    }
}

/// From where a connection comes, as far as one sender can't change it at will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source(IpAddr);

impl Source {
    const OTHERS: Source = Source(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The number of a connection, growing.
pub(super) type Id = u64;

/// The strangers there are.
#[derive(Debug)]
pub(super) struct Lobby {
    limits: StrangerLimits,
    last: Id,
    guests: BTreeMap<Id, Guest>,
    accounts: BTreeMap<Source, Bucket>,
    total: Bucket,
}

#[derive(Debug)]
struct Guest {
    source: Source,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Has not said a word.
    Silent,
    /// Waits for a place; costly: it is a TLS handshake that is due.
    Waits { costly: bool },
    /// Has one.
    Placed { since: Instant },
}

/// A token bucket, kept as the time at which it would be full again.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    full_at: Instant,
}

/// Who is next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) id: Id,
    /// Who has to go for it.
    pub(super) evicted: Option<Id>,
}

impl Lobby {
    pub(super) fn new(limits: StrangerLimits, now: Instant) -> Self {
        let total = Bucket { full_at: now };
        Self { limits, last: 0, guests: BTreeMap::new(), accounts: BTreeMap::new(), total }
    }

    /// A connection came. Returns its number, and who has to go for it.
    pub(super) fn arrive(&mut self, from: IpAddr, now: Instant) -> (Id, Option<Id>) {
        let source = self.account(from.into(), now);
        let evicted = if self.waiting(Some(source)) >= self.limits.waiting_per_source.max(1) {
            self.oldest_waiting(Some(source))
        } else if self.waiting(None) >= self.limits.waiting.max(1) {
            self.oldest_waiting(self.most_crowded())
        } else {
            None
        };
        if let Some(evicted) = evicted {
            self.guests.remove(&evicted);
        }
        self.last += 1;
        self.guests.insert(self.last, Guest { source, stage: Stage::Silent });
        (self.last, evicted)
    }

    /// Somebody to send away for want of file descriptors.
    pub(super) fn make_room(&mut self) -> Option<Id> {
        let evicted = self.oldest_waiting(self.most_crowded())?;
        self.guests.remove(&evicted);
        Some(evicted)
    }

    /// The first byte of a connection is there. Tells whether it may wait: it may have been sent away
    /// in the meantime.
    pub(super) fn spoke(&mut self, id: Id, costly: bool) -> bool {
        let guest = self.guests.get_mut(&id);
        guest.is_some_and(|guest| {
            guest.stage = Stage::Waits { costly };
            true
        })
    }

    /// A connection is gone, or no stranger's any more.
    pub(super) fn leave(&mut self, id: Id) {
        self.guests.remove(&id);
    }

    /// Whether anybody waits for a place.
    pub(super) fn has_queue(&self) -> bool {
        self.guests.values().any(|g| matches!(g.stage, Stage::Waits { .. }))
    }

    /// Gives a place to the oldest that may have one.
    pub(super) fn place(&mut self, now: Instant) -> Option<Placed> {
        // What was found for one of a source holds for all of it: a crowd costs no more than its sources.
        let mut looked_at = BTreeSet::new();
        let (id, source, costly, evicted) = self.guests.iter().find_map(|(id, guest)| {
            let Stage::Waits { costly } = guest.stage else { return None };
            if !looked_at.insert((guest.source, costly)) || (costly && !self.has_rate(guest.source, now)) {
                return None;
            }
            Some((*id, guest.source, costly, self.room_for(guest.source, now)?))
        })?;
        if costly {
            self.total.take(self.limits.total_rate, now);
            self.accounts.entry(source).or_insert(Bucket { full_at: now }).take(self.limits.source_rate, now);
        }
        if let Some(evicted) = evicted {
            self.guests.remove(&evicted);
        }
        if let Some(guest) = self.guests.get_mut(&id) {
            guest.stage = Stage::Placed { since: now };
        }
        Some(Placed { id, evicted })
    }

    /// Whether a handshake may begin, as far as their rate goes.
    fn has_rate(&self, source: Source, now: Instant) -> bool {
        let account = self.accounts.get(&source);
        self.total.has(self.limits.total_rate, now) && account.is_none_or(|a| a.has(self.limits.source_rate, now))
    }

    /// Whether there is a place for this source, and who has to go for it; none: there is none.
    fn room_for(&self, source: Source, now: Instant) -> Option<Option<Id>> {
        let placed = |only: Option<Source>| {
            let placed = self.guests.iter().filter_map(|(id, guest)| match guest.stage {
                Stage::Placed { since } => Some((*id, guest.source, since)),
                Stage::Silent | Stage::Waits { .. } => None,
            });
            placed.filter(move |(_, source, _)| only.is_none_or(|only| only == *source))
        };
        let overdue = |only| placed(only).filter(|(_, _, since)| now >= *since + self.limits.grace).min_by_key(|p| p.2);
        if placed(Some(source)).count() >= self.limits.places_per_source.max(1) {
            overdue(Some(source)).map(|(id, ..)| Some(id))
        } else if placed(None).count() >= self.limits.places.max(1) {
            overdue(None).map(|(id, ..)| Some(id))
        } else {
            Some(None)
        }
    }

    fn waiting(&self, only: Option<Source>) -> usize {
        self.guests.values().filter(|g| g.is_waiting() && only.is_none_or(|only| only == g.source)).count()
    }

    /// The oldest silent one, or the oldest that waits where none is silent.
    fn oldest_waiting(&self, only: Option<Source>) -> Option<Id> {
        let of_them = |guest: &Guest| only.is_none_or(|only| only == guest.source);
        let silent = self.guests.iter().find(|(_, g)| g.stage == Stage::Silent && of_them(g));
        silent.or_else(|| self.guests.iter().find(|(_, g)| g.is_waiting() && of_them(g))).map(|(id, _)| *id)
    }

    fn most_crowded(&self) -> Option<Source> {
        let mut crowds: BTreeMap<Source, usize> = BTreeMap::new();
        for guest in self.guests.values().filter(|g| g.is_waiting()) {
            *crowds.entry(guest.source).or_default() += 1;
        }
        crowds.into_iter().max_by_key(|(_, count)| *count).map(|(source, _)| source)
    }

    /// The account of a source. The number of accounts is bounded.
    fn account(&mut self, source: Source, now: Instant) -> Source {
        if self.accounts.contains_key(&source) {
            return source;
        }
        if self.accounts.len() >= MAX_SOURCES {
            // A full bucket says nothing that an absent one does not.
            self.accounts.retain(|_, bucket| bucket.full_at > now);
        }
        let source = if self.accounts.len() >= MAX_SOURCES { Source::OTHERS } else { source };
        self.accounts.entry(source).or_insert(Bucket { full_at: now });
        source
    }
}

impl Guest {
    fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Silent | Stage::Waits { .. })
    }
}

impl Bucket {
    fn has(&self, rate: Rate, now: Instant) -> bool {
        self.full_at <= now + rate.time_of(rate.burst.max(1) - 1)
    }

    fn take(&mut self, rate: Rate, now: Instant) {
        self.full_at = self.full_at.max(now) + rate.time_of(1);
    }
}

impl Rate {
    fn time_of(self, times: u32) -> Duration {
        Duration::from_secs(1) * times / self.per_second.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn small() -> StrangerLimits {
        StrangerLimits {
            waiting: 6,
            waiting_per_source: 4,
            places: 3,
            places_per_source: 2,
            grace: Duration::from_millis(100),
            source_rate: Rate { per_second: 10, burst: 4 },
            total_rate: Rate { per_second: 100, burst: 100 },
        }
    }

    fn lobby() -> (Lobby, Instant) {
        let now = Instant::now();
        (Lobby::new(small(), now), now)
    }

    #[test]
    fn the_oldest_silent_one_makes_room_for_a_newcomer_of_its_source() {
        let (mut lobby, now) = lobby();
        let ids: Vec<_> = (0..4).map(|_| lobby.arrive(HERE, now)).collect();
        assert!(ids.iter().all(|(_, evicted)| evicted.is_none()));
        lobby.spoke(ids[0].0, true);
        assert_eq!(lobby.arrive(HERE, now).1, Some(ids[1].0), "the first has spoken");
        assert_eq!(lobby.arrive(THERE, now).1, None);
    }

    #[test]
    fn the_most_crowded_source_makes_room_for_others() {
        let (mut lobby, now) = lobby();
        let first = lobby.arrive(HERE, now).0;
        for _ in 0..3 {
            lobby.arrive(HERE, now);
        }
        for _ in 0..2 {
            lobby.arrive(THERE, now);
        }
        assert_eq!(lobby.arrive(IpAddr::V4(Ipv4Addr::LOCALHOST), now).1, Some(first));
        assert_eq!(lobby.guests.len(), 6);
    }

    #[test]
    fn a_full_source_does_not_keep_another_out() {
        let (mut lobby, now) = lobby();
        for _ in 0..3 {
            let (id, _) = lobby.arrive(HERE, now);
            lobby.spoke(id, true);
        }
        let (other, _) = lobby.arrive(THERE, now);
        lobby.spoke(other, true);
        let placed: Vec<_> = std::iter::from_fn(|| lobby.place(now)).map(|p| p.id).collect();
        assert_eq!(placed, [1, 2, 4]);
        assert!(lobby.has_queue());
        // The third gets its turn when the first of its source has had its time.
        assert_eq!(lobby.place(now + Duration::from_millis(99)), None);
        assert_eq!(lobby.place(now + Duration::from_millis(100)), Some(Placed { id: 3, evicted: Some(1) }));
    }

    #[test]
    fn handshakes_are_held_to_their_rate() {
        let (mut lobby, start) = lobby();
        let mut placed = 0;
        for millisecond in 0..2000 {
            let now = start + Duration::from_millis(millisecond);
            let (id, _) = lobby.arrive(HERE, now);
            lobby.spoke(id, true);
            while let Some(next) = lobby.place(now) {
                placed += 1;
                lobby.leave(next.id);
            }
        }
        assert!((23..=24).contains(&placed), "4 at once and 10 a second: {placed}");
        let (id, _) = lobby.arrive(HERE, start);
        lobby.spoke(id, false);
        let now = start + Duration::from_millis(1999);
        assert_eq!(lobby.place(now).map(|p| p.id), Some(id), "what costs nothing need not wait");
    }

    #[test]
    fn addresses_made_up_at_will_do_not_fill_the_memory() {
        let (mut lobby, now) = lobby();
        for n in 0..10_000_u32 {
            let (id, _) = lobby.arrive(IpAddr::V4(Ipv4Addr::from(n + 1)), now);
            lobby.spoke(id, true);
            while let Some(placed) = lobby.place(now) {
                lobby.leave(placed.id);
            }
        }
        assert!(lobby.accounts.len() <= MAX_SOURCES + 1 && lobby.guests.len() <= 9);
        let network: Source = "2001:db8::1".parse::<IpAddr>().expect("address").into();
        assert_eq!(network, "2001:db8::ffff:1".parse::<IpAddr>().expect("address").into());
        assert_ne!(network, "2001:db8:0:1::1".parse::<IpAddr>().expect("address").into());
    }
}
