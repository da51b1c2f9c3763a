//! Places for connections to the API (`ConnectionPlaces`): their number, and which connection yields to a new connection.
//!
//! Three kinds of callers have separate slots and do not block each other: the Unix socket, operators with a proved
//! key, and all others. The others are unknown at first. A new connection takes the slot of the oldest connection that
//! is not admitted yet, from the source with the most of these; if no source has many, from all. A client that sends
//! its request at once is admitted before its slot is taken.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cob_trust::pending::network;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Places of the Unix socket: for all watchers, and some more.
const LOCAL: usize = 96;
/// Places of connections with an operator's proved key.
const KNOWN: usize = 96;
/// Places of all others.
const UNKNOWN: usize = 96;

/// Up to this number of connections from a source are no crowd.
const NO_CROWD: usize = 8;

/// The slots of an API.
#[derive(Debug)]
pub(super) struct ConnectionPlaces {
    local: Arc<Semaphore>,
    known: Arc<Semaphore>,
    unknown: Arc<Unknown>,
}

/// The slot of a connection, for as long as it is kept.
#[derive(Debug)]
pub(super) struct Place {
    _held: PlaceKind,
    let_in: Admission,
}

#[derive(Debug)]
enum PlaceKind {
    Permit { _permit: OwnedSemaphorePermit },
    UnknownCaller { id: u64, of: Arc<Unknown> },
}

/// Admits the caller of a connection: its slot can no longer be taken. Goes with a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Admission(Option<(u64, Arc<Unknown>, Arc<Notify>)>);

/// Connections of unknown callers, by increasing numbers.
#[derive(Debug, Default)]
struct Unknown {
    guests: Mutex<UnknownCallers>,
}

#[derive(Debug, Default)]
struct UnknownCallers {
    last: u64,
    here: BTreeMap<u64, UnknownCaller>,
}

#[derive(Debug)]
struct UnknownCaller {
    source: IpAddr,
    let_in: bool,
    leave: Arc<Notify>,
}

impl Default for ConnectionPlaces {
    fn default() -> Self {
        Self { local: Arc::new(Semaphore::new(LOCAL)), known: Arc::new(Semaphore::new(KNOWN)), unknown: Arc::default() }
    }
}

impl ConnectionPlaces {
    /// Waits for a slot for a connection of the Unix socket.
    pub(super) async fn local(&self) -> Option<Place> {
        let permit = self.local.clone().acquire_owned().await.ok()?;
        Some(Place::of(permit))
    }

    /// A slot for an operator with a proved key, if there is one.
    pub(super) fn known(&self) -> Option<Place> {
        self.known.clone().try_acquire_owned().ok().map(Place::of)
    }

    /// A slot for a caller from this source; absent: admitted callers have all slots.
    pub(super) fn unknown(&self, source: IpAddr) -> Option<Place> {
        let mut guests = self.unknown.lock();
        if guests.here.len() >= UNKNOWN {
            let goes = guests.next_to_go()?;
            if let Some(guest) = guests.here.remove(&goes) {
                guest.leave.notify_one();
            }
        }
        guests.last += 1;
        let (id, leave) = (guests.last, Arc::new(Notify::new()));
        guests.here.insert(id, UnknownCaller { source: network(source), let_in: false, leave: leave.clone() });
        let of = self.unknown.clone();
        Some(Place { let_in: Admission(Some((id, of.clone(), leave))), _held: PlaceKind::UnknownCaller { id, of } })
    }
}

impl Place {
    fn of(permit: OwnedSemaphorePermit) -> Self {
        Self { _held: PlaceKind::Permit { _permit: permit }, let_in: Admission::default() }
    }

    /// The admission that goes with the request of this connection.
    pub(super) fn let_in(&self) -> Admission {
        self.let_in.clone()
    }

    /// Waits until another connection needs the slot.
    pub(super) async fn needed(&self) {
        match &self.let_in.0 {
            Some((_, _, leave)) => leave.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Admission {
    /// Admits the caller: it keeps the slot until the end of the connection.
    pub(super) fn now(&self) {
        let Some((id, of, _)) = &self.0 else { return };
        if let Some(guest) = of.lock().here.get_mut(id) {
            guest.let_in = true;
        }
    }
}

impl Drop for PlaceKind {
    fn drop(&mut self) {
        if let PlaceKind::UnknownCaller { id, of } = self {
            of.lock().here.remove(id);
        }
    }
}

impl Unknown {
    fn lock(&self) -> MutexGuard<'_, UnknownCallers> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnknownCallers {
    /// The oldest connection that is not admitted: of the source with the most such connections, if that is a crowd.
    fn next_to_go(&self) -> Option<u64> {
        // For each source: the number of connections, and the oldest.
        let mut crowds: BTreeMap<IpAddr, (usize, Reverse<u64>)> = BTreeMap::new();
        for (id, guest) in self.here.iter().filter(|(_, guest)| !guest.let_in) {
            crowds.entry(guest.source).or_insert((0, Reverse(*id))).0 += 1;
        }
        // In a flood, each address may have a single connection: two callers behind an address are no crowd.
        let crowd = crowds.values().filter(|(count, _)| *count > NO_CROWD).max();
        let oldest = || crowds.values().max_by_key(|(_, oldest)| *oldest);
        crowd.or_else(oldest).map(|(_, Reverse(oldest))| *oldest)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Whether another connection needs the slot.
    async fn must_go(place: &Place) -> bool {
        timeout(Duration::from_millis(1), place.needed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_new_connection_replaces_the_oldest_of_the_largest_source() {
        let places = ConnectionPlaces::default();
        let honest: Vec<_> = (0..4).map(|n| places.unknown(ip(n)).expect("a place")).collect();
        let crowd: Vec<_> = (4..UNKNOWN).map(|_| places.unknown(ip(66)).expect("a place")).collect();
        let _newcomer = places.unknown(ip(7)).expect("a place");
        assert!(must_go(&crowd[0]).await && !must_go(&crowd[1]).await);
        let _another = places.unknown(ip(66)).expect("a place");
        assert!(must_go(&crowd[1]).await);
        for place in &honest {
            assert!(!must_go(place).await);
        }
    }

    #[tokio::test]
    async fn a_flood_from_many_addresses_does_not_replace_a_source_with_two() {
        let places = ConnectionPlaces::default();
        let flood = |n: usize| {
            IpAddr::from([198, 51, 100 + u8::try_from(n / 250).expect("few"), u8::try_from(n % 250).expect("few")])
        };
        let strangers: Vec<_> = (0..UNKNOWN - 2).map(|n| places.unknown(flood(n)).expect("a place")).collect();
        let honest: Vec<_> = (0..2).map(|_| places.unknown(ip(7)).expect("a place")).collect();
        let _more: Vec<_> = (100..100 + UNKNOWN / 2).map(|n| places.unknown(flood(n)).expect("a place")).collect();
        assert!(must_go(&strangers[0]).await);
        for place in &honest {
            assert!(!must_go(place).await, "the oldest goes, independent of its address");
        }
    }

    #[tokio::test]
    async fn an_admitted_connection_stays_and_a_closed_one_frees_its_place() {
        let places = ConnectionPlaces::default();
        let mut all: Vec<_> = (0..UNKNOWN).map(|_| places.unknown(ip(1)).expect("a place")).collect();
        all.iter().for_each(|place| place.let_in().now());
        assert!(places.unknown(ip(2)).is_none(), "all are served");
        all.pop();
        let place = places.unknown(ip(2)).expect("a place");
        assert!(!must_go(&place).await && !must_go(&all[0]).await);
    }

    #[tokio::test]
    async fn kinds_of_callers_do_not_block_each_other() {
        let places = ConnectionPlaces::default();
        let _strangers: Vec<_> = (0..500).map(|_| places.unknown(ip(1)).expect("a place")).collect();
        let operators: Vec<_> = std::iter::from_fn(|| places.known()).collect();
        let local = timeout(Duration::from_secs(5), places.local()).await.expect("at once");
        assert!(local.is_some() && operators.len() == KNOWN);
        assert_eq!(places.unknown.lock().here.len(), UNKNOWN);
    }
}
