//! The listening port: accepts links of other hosts and HTTP, distinguished by their first byte.
//!
//! In a model with identities the first byte must be `0x16`, which begins TLS; the handshake selects the protocol
//! inside (ALPN). Without identities `0xFF` begins a ZMTP greeting and so a link, and an upper-case letter an HTTP
//! request. A connection with any other byte is closed. A link's hello is read here, then the connection goes to the
//! supervisor of its host; an HTTP connection goes to the daemon unread.
//!
//! ```text
//! accept --> silent --> waits --> has a slot: handshake --> host known: hello --> keeper
//!            `-- pending, see `cob_trust::pending` --'          `--> the daemon (HTTP)
//! ```
//!
//! A stranger can't disturb a link that is up.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use cob_trust::front::{Caller, Front};
use cob_trust::pending::Pending;
use cob_types::{HostName, PublicKey};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::admission::{self, Admitted, Proved, Unwelcome};
use super::gate::Gate;
use super::link_supervisor::{Accepted, Shared};
use super::quiet::Topic;

/// The most connections of a host that may be in setup at a time: the current connection, and an earlier one that the
/// host has given up without this side having noticed.
const PER_HOST: usize = 2;

/// The supervisors of the hosts in the roster, by host.
#[derive(Debug, Default)]
pub(super) struct Directory {
    keepers: Mutex<BTreeMap<HostName, mpsc::Sender<Accepted>>>,
}

impl Directory {
    /// Replaces all entries.
    pub(super) fn set(&self, keepers: BTreeMap<HostName, mpsc::Sender<Accepted>>) {
        *self.keepers.lock().unwrap_or_else(PoisonError::into_inner) = keepers;
    }

    pub(super) fn find(&self, host: &HostName) -> Option<mpsc::Sender<Accepted>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }
}

/// The result of a successful handshake.
struct Shaken {
    remote: SocketAddr,
    /// The known key that the other side has proved.
    key: Option<PublicKey>,
    /// A host that requests a link.
    host: Option<Box<Proved>>,
}

/// Accepts connections for as long as the daemon runs.
pub(super) async fn keep_open(listener: TcpListener, shared: Arc<Shared>, directory: Arc<Directory>) {
    // A seed that strangers can't guess.
    let seed = RandomState::new().hash_one(());
    let pending = Pending::new(shared.limits.pending.clone(), Instant::now().into_std(), seed);
    let front = Front::new(pending, |first| first == admission::TLS);
    let (gate, setups, hosts) = (Arc::default(), JoinSet::new(), BTreeMap::new());
    let mut door = Listener { shared, directory, front, gate, setups, hosts };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => door.arrived(stream, remote),
                Err(error) => door.cannot_accept(&error).await,
            },
            greeted = door.front.step() => match greeted {
                Ok(Some(shaken)) => door.shaken(shaken),
                Ok(None) => {}
                Err(panic) => admission::log(&door.shared, None, None, &panic.into()),
            },
            Some(done) = door.setups.join_next() => door.set_up(done),
        }
        door.give_slots();
    }
}

struct Listener {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    front: Front<Shaken>,
    /// The gate whose addresses and keys have reserved slots.
    gate: Arc<Gate>,
    setups: JoinSet<()>,
    /// Setups of hosts that have proved their identity, oldest first.
    hosts: BTreeMap<HostName, VecDeque<AbortHandle>>,
}

impl Listener {
    fn arrived(&mut self, stream: TcpStream, remote: SocketAddr) {
        if let Err(why) = admission::may_come_from(remote, &self.shared) {
            admission::log(&self.shared, Some(remote), None, &why);
            return;
        }
        self.expect();
        let (shared, limit) = (self.shared.clone(), self.shared.limits.first_word);
        let late = move || admission::log(&shared, Some(remote), None, &Unwelcome::Slow(limit));
        let evicted = self.front.arrive(stream, remote, limit, late);
        self.note_evicted(evicted.into());
    }

    async fn cannot_accept(&mut self, error: &std::io::Error) {
        self.shared.quiet.say(Topic::Accept, None, |more| {
            tracing::error!(
                "can't accept connections: {error}; if open files are short, raise their limit (ulimit -n){more}"
            );
        });
        let evicted = self.front.make_room();
        self.note_evicted(evicted.into());
        sleep(self.shared.limits.accept_pause).await;
    }

    fn shaken(&mut self, Shaken { remote, key, host }: Shaken) {
        if let Some(key) = key {
            self.front.expected().proved(key, remote.ip());
        }
        if let Some(proved) = host {
            self.introduce(*proved);
        }
    }

    /// The setup of a link has ended.
    fn set_up(&mut self, done: Result<(), JoinError>) {
        self.hosts.retain(|_, setups| {
            setups.retain(|setup| !setup.is_finished());
            !setups.is_empty()
        });
        if let Err(panic) = done
            && panic.is_panic()
        {
            admission::log(&self.shared, None, None, &panic.into());
        }
    }

    /// Starts the handshakes that have got a slot.
    fn give_slots(&mut self) {
        let (shared, directory) = (&self.shared, &self.directory);
        let evicted = self.front.give_slots(|Caller { stream, remote, first }| {
            let (shared, directory) = (shared.clone(), directory.clone());
            async move {
                let limit = shared.limits.setup_time;
                let mut host = None;
                let shaken = admission::admit(stream, remote, first, &shared, &directory, &mut host);
                match timeout(limit, shaken).await.unwrap_or(Err(Unwelcome::Slow(limit))) {
                    Ok(Admitted::Host(proved)) => Some(Shaken { remote, key: Some(proved.key), host: Some(proved) }),
                    Ok(Admitted::Settled(key)) => Some(Shaken { remote, key, host: None }),
                    Err(why) => {
                        admission::log(&shared, Some(remote), host.as_ref(), &why);
                        None
                    }
                }
            }
        });
        self.note_evicted(evicted);
    }

    fn note_evicted(&self, evicted: usize) {
        for _ in 0..evicted {
            admission::log(&self.shared, None, None, &Unwelcome::Crowded);
        }
    }

    /// Reserves slots for the addresses of hosts, and for addresses from which a host or operator has proved a key.
    fn expect(&mut self) {
        let gate = self.shared.gate();
        if !Arc::ptr_eq(&gate, &self.gate) {
            let is_known = |key: &PublicKey| gate.speaker(key).is_some();
            self.front.expected().set(gate.addresses().iter().copied(), is_known);
            self.gate = gate;
        }
    }

    /// Passes a host with a proved key to its supervisor. Strangers can't hold it up any more.
    fn introduce(&mut self, proved: Proved) {
        let host = proved.host.clone();
        let (shared, directory) = (self.shared.clone(), self.directory.clone());
        let task = self.setups.spawn(async move {
            let (limit, remote, host) = (shared.limits.setup_time, proved.remote, proved.host.clone());
            let met = timeout(limit, admission::meet(proved, &shared, &directory)).await;
            if let Err(why) = met.unwrap_or(Err(Unwelcome::Slow(limit))) {
                admission::log(&shared, Some(remote), Some(&host), &why);
            }
        });
        let setups = self.hosts.entry(host).or_default();
        setups.push_back(task);
        if setups.len() > PER_HOST
            && let Some(oldest) = setups.pop_front()
        {
            oldest.abort();
        }
    }
}
