//! Pending connections, which have not yet proved a key: how many a port keeps, how fast their handshakes start, and
//! which connection is evicted for a new connection.
//!
//! A connection waits without a slot until its first byte arrives; then it gets a slot for its handshake, of which
//! there are few. Both the queue and the slots are bounded, so under a flood some connections are evicted. Three rules
//! keep an attacker with any number of addresses from choosing the evicted connection:
//!
//! * Expected addresses (a manifest names them, or a key was proved from them recently) have reserved slots and a
//!   reserved handshake rate, which no other address can use.
//! * A source with many connections loses its connections first; below that number all sources are equal.
//! * Otherwise the evicted connection is drawn from the older half, and so is the next handshake. No rule compares
//!   addresses.
//!
//! The module has no input, output or clock: a port reports events to it and carries out its decisions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use cob_types::trust::PublicKey;

/// The most rate accounts that are kept.
const MAX_ACCOUNTS: usize = 1024;
/// The most waiting connections of a source that do not count as a crowd: several operators behind an address, each
/// with a retry.
const NO_CROWD: usize = 8;
/// The most addresses that are remembered for a key.
const ADDRESSES_OF_KEY: usize = 4;

/// The limits of pending connections and of the rate of their handshakes.
#[derive(Debug, Clone)]
pub struct PendingLimits {
    /// The most connections without a slot.
    pub waiting: usize,
    /// The most waiting connections from a source address (IPv6: a /64 network).
    pub waiting_per_source: usize,
    /// The most slots for handshakes.
    pub slots: usize,
    /// The most slots for a source.
    pub slots_per_source: usize,
    /// How long a slot is safe from waiting connections.
    pub grace: Duration,
    /// The rate of TLS handshakes from a source, and the burst after a pause.
    pub source_rate: Rate,
    /// The same for all sources together.
    pub total_rate: Rate,
    /// The most connections of expected addresses, waiting or in a slot, that are kept beyond the limits above.
    pub reserved: usize,
    /// The most of these connections for an expected address.
    pub reserved_per_source: usize,
    /// The rate of handshakes of an expected address that start even when the rate of all sources is used up.
    pub reserved_rate: Rate,
}

/// A rate of events.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Events a second, on average.
    pub per_second: u32,
    /// Events at once.
    pub burst: u32,
}

impl Default for PendingLimits {
    fn default() -> Self {
        Self {
            waiting: 256,
            waiting_per_source: 128,
            slots: 192,
            slots_per_source: 48,
            // All slots are recycled faster than the rate of all sources allows.
            grace: Duration::from_millis(150),
            source_rate: Rate { per_second: 200, burst: 400 },
            total_rate: Rate { per_second: 1000, burst: 1000 },
            reserved: 64,
            reserved_per_source: 8,
            reserved_rate: Rate { per_second: 10, burst: 20 },
        }
    }
}

/// Addresses from which connections of enrolled hosts and operators are expected.
#[derive(Debug, Default)]
pub struct Expected {
    named: BTreeSet<IpAddr>,
    proved: BTreeMap<PublicKey, VecDeque<IpAddr>>,
    all: BTreeSet<IpAddr>,
}

/// The number of a connection, growing.
pub type Id = u64;

/// The source of a connection: the part of an address that a sender can't change at will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source(IpAddr);

/// The pending connections of a port.
#[derive(Debug)]
pub struct Pending {
    limits: PendingLimits,
    expected: Expected,
    last: Id,
    /// By age.
    connections: BTreeMap<Id, Connection>,
    /// The connections that wait for a slot.
    queue: BTreeSet<Id>,
    /// The connections without and with a slot, by source; without reserved connections.
    waiting: Group,
    placed: Group,
    reserved: usize,
    accounts: BTreeMap<Source, Bucket>,
    reserved_accounts: BTreeMap<Source, Bucket>,
    total: Bucket,
    random: u64,
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    source: Source,
    /// Whether it is kept beyond the limits, as a connection of an expected address.
    reserved: bool,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has sent no byte.
    Silent,
    /// It waits for a slot; costly: with a TLS handshake.
    Waits { costly: bool },
    /// It has a slot.
    Placed,
}

/// A token bucket, stored as the time at which it will be full again.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    full_at: Instant,
}

/// Connections by source, the oldest first: by the time at which each joined the group.
#[derive(Debug, Default)]
struct Group {
    of: BTreeMap<Source, VecDeque<(Instant, Id)>>,
    count: usize,
}

/// The connection whose handshake starts.
#[derive(Debug, PartialEq, Eq)]
pub struct Placed {
    /// The connection.
    pub id: Id,
    /// The connection that loses its slot for it.
    pub evicted: Option<Id>,
}

impl Expected {
    /// Replaces the addresses that the manifest names, and removes keys for which `is_known` returns `false`.
    pub fn set(&mut self, named: impl IntoIterator<Item = IpAddr>, is_known: impl Fn(&PublicKey) -> bool) {
        self.named = named.into_iter().map(|ip| ip.to_canonical()).collect();
        self.proved.retain(|key, _| is_known(key));
        self.count();
    }

    /// A known key was proved from this address: further connections from there are expected. Only the last few
    /// addresses of a key count, so that no member can claim many.
    pub fn proved(&mut self, key: PublicKey, from: IpAddr) {
        let from = from.to_canonical();
        let addresses = self.proved.entry(key).or_default();
        if addresses.back() == Some(&from) {
            return;
        }
        addresses.retain(|address| *address != from);
        addresses.push_back(from);
        if addresses.len() > ADDRESSES_OF_KEY {
            addresses.pop_front();
        }
        self.count();
    }

    fn count(&mut self) {
        self.all = self.named.iter().chain(self.proved.values().flatten()).copied().collect();
    }
}

impl Pending {
    /// Without connections. `seed`: a number that attackers can't know.
    #[must_use]
    pub fn new(limits: PendingLimits, now: Instant, seed: u64) -> Self {
        Self {
            limits,
            expected: Expected::default(),
            last: 0,
            connections: BTreeMap::new(),
            queue: BTreeSet::new(),
            waiting: Group::default(),
            placed: Group::default(),
            reserved: 0,
            accounts: BTreeMap::new(),
            reserved_accounts: BTreeMap::new(),
            total: Bucket { full_at: now },
            random: seed,
        }
    }

    /// The addresses that have reserved slots.
    pub fn expected(&mut self) -> &mut Expected {
        &mut self.expected
    }

    /// Adds a new connection. Returns its number, and the connection that is evicted for it.
    pub fn arrive(&mut self, from: IpAddr, now: Instant) -> (Id, Option<Id>) {
        let from = from.to_canonical();
        let exact = Source(from);
        let reserved = self.expected.all.contains(&from) && self.has_reserve(exact);
        let source = if reserved { exact } else { Source::from(from) };
        let evicted = if reserved { None } else { self.makes_room_for(source) };
        if let Some(evicted) = evicted {
            self.leave(evicted);
        }
        self.last += 1;
        self.connections.insert(self.last, Connection { source, reserved, stage: Stage::Silent });
        if reserved {
            self.reserved += 1;
        } else {
            self.waiting.add(source, now, self.last);
        }
        (self.last, evicted)
    }

    /// Evicts a connection because file descriptors are short; never a reserved connection.
    pub fn make_room(&mut self) -> Option<Id> {
        let oldest = |group: &Group| group.oldest(None).map(|(_, id)| id);
        let evicted = self.of_a_crowd(NO_CROWD).or_else(|| oldest(&self.waiting)).or_else(|| oldest(&self.placed))?;
        self.leave(evicted);
        Some(evicted)
    }

    /// The first byte of a connection has arrived. Returns whether it may wait: it may have been closed meanwhile.
    pub fn spoke(&mut self, id: Id, costly: bool) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.stage = Stage::Waits { costly };
        self.queue.insert(id);
        true
    }

    /// Removes a connection that has ended or proved its key.
    pub fn leave(&mut self, id: Id) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.queue.remove(&id);
        if connection.reserved {
            self.reserved -= 1;
        } else {
            self.waiting.remove(connection.source, id);
            self.placed.remove(connection.source, id);
        }
    }

    /// Whether any connection waits for a slot.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Gives a slot to a connection, if any may have it.
    pub fn place(&mut self, now: Instant) -> Option<Placed> {
        let placed = self.place_reserved(now).or_else(|| self.place_common(now))?;
        if let Some(evicted) = placed.evicted {
            self.leave(evicted);
        }
        self.queue.remove(&placed.id);
        if let Some(connection) = self.connections.get_mut(&placed.id) {
            connection.stage = Stage::Placed;
            if !connection.reserved {
                self.waiting.remove(connection.source, placed.id);
                self.placed.add(connection.source, now, placed.id);
            }
        }
        Some(placed)
    }

    /// The oldest reserved connection within a rate, its own or that of all: it has its slot already.
    fn place_reserved(&mut self, now: Instant) -> Option<Placed> {
        let (own, all) = (self.limits.reserved_rate, self.limits.total_rate);
        let has_own = |source| has(&self.reserved_accounts, source, own, now);
        let has_any = |source| has_own(source) || (self.total.has(all, now) && self.has_rate(source, now));
        let (id, source, costly) = self.queued().find_map(|(id, c)| {
            let Stage::Waits { costly } = c.stage else { return None };
            (c.reserved && (!costly || has_any(c.source))).then_some((id, c.source, costly))
        })?;
        if costly && has_own(source) {
            take(&mut self.reserved_accounts, source, own, now);
        } else if costly {
            self.take_rate(source, now);
        }
        Some(Placed { id, evicted: None })
    }

    /// A waiting connection that may have a slot, drawn among the oldest of each source.
    fn place_common(&mut self, now: Instant) -> Option<Placed> {
        let is_full = self.placed.count >= self.limits.slots.max(1);
        let overdue = |(since, _): &(Instant, Id)| now >= *since + self.limits.grace;
        let any = self.placed.oldest(None).filter(overdue);
        if is_full && any.is_none() {
            return None;
        }
        // The connection that loses its slot for this source, if any must; `None`: there is no slot.
        let room_for = |source: Source| -> Option<Option<Id>> {
            if self.placed.count_of(source) >= self.limits.slots_per_source.max(1) {
                return self.placed.oldest(Some(source)).filter(overdue).map(|(_, id)| Some(id));
            }
            if is_full { any.map(|(_, id)| Some(id)) } else { Some(None) }
        };
        let has_total = self.total.has(self.limits.total_rate, now);
        let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
        let mut waiting: Vec<(Source, Id, bool)> = Vec::new();
        for (id, connection) in self.queued().filter(|(_, c)| !c.reserved) {
            let Stage::Waits { costly } = connection.stage else { continue };
            let count = counts.entry(connection.source).or_default();
            *count += 1;
            if *count <= NO_CROWD && (has_total || !costly) {
                waiting.push((connection.source, id, costly));
            }
        }
        let may = |(source, id, costly): (Source, Id, bool)| {
            let evicted = room_for(source)?;
            (!costly || self.has_rate(source, now)).then_some((source, id, costly, evicted))
        };
        let may: Vec<_> = waiting.into_iter().filter_map(may).collect();
        let (source, id, costly, evicted) = *may.get(self.below(may.len())?)?;
        if costly {
            self.take_rate(source, now);
        }
        Some(Placed { id, evicted })
    }

    /// The connections that wait for a slot, by age.
    fn queued(&self) -> impl Iterator<Item = (Id, &Connection)> {
        self.queue.iter().filter_map(|id| Some((*id, self.connections.get(id)?)))
    }

    fn has_rate(&self, source: Source, now: Instant) -> bool {
        has(&self.accounts, Source::from(source.0), self.limits.source_rate, now)
    }

    fn take_rate(&mut self, source: Source, now: Instant) {
        self.total.take(self.limits.total_rate, now);
        take(&mut self.accounts, Source::from(source.0), self.limits.source_rate, now);
    }

    /// Whether an expected address may have a further reserved connection.
    fn has_reserve(&self, source: Source) -> bool {
        let own = || self.connections.values().filter(|c| c.reserved && c.source == source).count();
        self.reserved < self.limits.reserved && own() < self.limits.reserved_per_source
    }

    /// The connection that is evicted for a connection of this source; `None`: there is space.
    fn makes_room_for(&mut self, source: Source) -> Option<Id> {
        if self.waiting.count_of(source) >= self.limits.waiting_per_source.max(1) {
            return self.drawn(Some(source));
        }
        if self.waiting.count >= self.limits.waiting.max(1) {
            return self.of_a_crowd(NO_CROWD).or_else(|| self.drawn(None));
        }
        None
    }

    /// The oldest connection of the source with the most waiting connections, if there are more than `no_crowd`: a
    /// silent connection, if there is any. Of equal crowds, the older.
    fn of_a_crowd(&self, no_crowd: usize) -> Option<Id> {
        let crowds = self.waiting.of.values().filter(|crowd| crowd.len() > no_crowd);
        let largest = crowds.max_by_key(|crowd| (crowd.len(), std::cmp::Reverse(crowd.front().copied())))?;
        let is_silent = |id: &Id| self.connections.get(id).is_some_and(|c| c.stage == Stage::Silent);
        let mut ids = largest.iter().map(|(_, id)| *id);
        let oldest = ids.clone().next();
        ids.find(is_silent).or(oldest)
    }

    /// A waiting connection (of this source), drawn from the older half: from its silent connections, if there are any.
    fn drawn(&mut self, only: Option<Source>) -> Option<Id> {
        let waiting = self.connections.iter().filter(|(_, c)| c.is_waiting() && only.is_none_or(|s| s == c.source));
        let mut older: Vec<(Id, Stage)> = waiting.map(|(id, c)| (*id, c.stage)).collect();
        older.truncate(older.len().div_ceil(2));
        if older.iter().any(|(_, stage)| *stage == Stage::Silent) {
            older.retain(|(_, stage)| *stage == Stage::Silent);
        }
        let drawn = self.below(older.len())?;
        older.get(drawn).map(|(id, _)| *id)
    }

    /// A random number below the bound (`SplitMix64`); `None` for 0.
    fn below(&mut self, bound: usize) -> Option<usize> {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        usize::try_from(bits.checked_rem(bound as u64)?).ok()
    }
}

impl Group {
    fn add(&mut self, source: Source, since: Instant, id: Id) {
        self.of.entry(source).or_default().push_back((since, id));
        self.count += 1;
    }

    fn remove(&mut self, source: Source, id: Id) {
        let Some(of_source) = self.of.get_mut(&source) else { return };
        let Some(at) = of_source.iter().position(|(_, other)| *other == id) else { return };
        of_source.remove(at);
        self.count -= 1;
        if of_source.is_empty() {
            self.of.remove(&source);
        }
    }

    fn count_of(&self, source: Source) -> usize {
        self.of.get(&source).map_or(0, VecDeque::len)
    }

    fn oldest(&self, only: Option<Source>) -> Option<(Instant, Id)> {
        match only {
            Some(source) => self.of.get(&source)?.front().copied(),
            None => self.of.values().filter_map(|of_source| of_source.front().copied()).min(),
        }
    }
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(network(address))
    }
}

/// The part of an address that counts as a source: a /64 network of IPv6, because a sender easily has many of its
/// addresses.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Connection {
    /// Without a slot, and not reserved.
    fn is_waiting(&self) -> bool {
        !self.reserved && self.stage != Stage::Placed
    }
}

/// Whether a source has a handshake left.
fn has(accounts: &BTreeMap<Source, Bucket>, source: Source, rate: Rate, now: Instant) -> bool {
    accounts.get(&source).is_none_or(|account| account.has(rate, now))
}

/// Takes a handshake from the account of a source. The number of accounts is bounded.
fn take(accounts: &mut BTreeMap<Source, Bucket>, source: Source, rate: Rate, now: Instant) {
    if accounts.len() >= MAX_ACCOUNTS && !accounts.contains_key(&source) {
        // A full bucket is the same as a missing bucket. The rate of all sources together keeps the others few; if not,
        // the fullest is removed.
        accounts.retain(|_, bucket| bucket.full_at > now);
        let fullest = accounts.iter().min_by_key(|(_, bucket)| bucket.full_at).map(|(source, _)| *source);
        if let Some(fullest) = fullest.filter(|_| accounts.len() >= MAX_ACCOUNTS) {
            accounts.remove(&fullest);
        }
    }
    accounts.entry(source).or_insert(Bucket { full_at: now }).take(rate, now);
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
#[path = "pending_test.rs"]
mod tests;
