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
use std::time::Duration;

use cob_trust::pending::{Id, Pending};
use cob_types::{HostName, PublicKey};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::admission::{self, Admitted, Proved, Unwelcome};
use super::gate::Gate;
use super::link_supervisor::{Accepted, Shared};
use super::quiet::Topic;

/// How often waiting connections are checked without other events.
const LOOK: Duration = Duration::from_millis(20);
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

/// A connection whose first byte has arrived.
struct Caller {
    stream: TcpStream,
    remote: SocketAddr,
    first: u8,
}

/// A task of the listener has ended.
enum Step {
    /// The first byte has arrived; or the connection closed without sending a byte.
    Spoke(Id, Option<Caller>),
    /// The handshake has ended, with or without success.
    Shaken(Id, Option<Shaken>),
    /// The setup of a link has ended.
    Done(Id),
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
    let pending = Pending::new(shared.limits.pending.clone(), now(), seed);
    let mut door = Listener {
        shared,
        directory,
        pending,
        gate: Arc::default(),
        tasks: JoinSet::new(),
        handshakes: BTreeMap::new(),
        waiting: BTreeMap::new(),
        hosts: BTreeMap::new(),
    };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => door.arrived(stream, remote),
                Err(error) => door.cannot_accept(&error).await,
            },
            Some(done) = door.tasks.join_next() => door.stepped(done),
            () = sleep(LOOK), if door.pending.has_queue() => {}
        }
        door.give_slots();
    }
}

struct Listener {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    pending: Pending,
    /// The gate whose addresses and keys have reserved slots.
    gate: Arc<Gate>,
    tasks: JoinSet<Step>,
    /// The tasks of pending connections, to abort them.
    handshakes: BTreeMap<Id, AbortHandle>,
    /// Connections that have sent a first byte and wait for a slot.
    waiting: BTreeMap<Id, Caller>,
    /// Setups of hosts that have proved their identity, oldest first.
    hosts: BTreeMap<HostName, VecDeque<(Id, AbortHandle)>>,
}

impl Listener {
    fn arrived(&mut self, stream: TcpStream, remote: SocketAddr) {
        if let Err(why) = admission::may_come_from(remote, &self.shared) {
            admission::log(&self.shared, Some(remote), None, &why);
            return;
        }
        self.expect();
        let (id, evicted) = self.pending.arrive(remote.ip(), now());
        self.send_away(evicted);
        let shared = self.shared.clone();
        let task = self.tasks.spawn(async move {
            let limit = shared.limits.first_word;
            let mut first = [0];
            let caller = match timeout(limit, stream.peek(&mut first)).await {
                Ok(Ok(1..)) => Some(Caller { stream, remote, first: first[0] }),
                // Scanners and health checks connect and disconnect without sending a byte.
                Ok(Ok(_) | Err(_)) => None,
                Err(_) => {
                    admission::log(&shared, Some(remote), None, &Unwelcome::Slow(limit));
                    None
                }
            };
            Step::Spoke(id, caller)
        });
        self.handshakes.insert(id, task);
    }

    async fn cannot_accept(&mut self, error: &std::io::Error) {
        self.shared.quiet.say(Topic::Accept, None, |more| {
            tracing::error!(
                "can't accept connections: {error}; if open files are short, raise their limit (ulimit -n){more}"
            );
        });
        let evicted = self.pending.make_room();
        self.send_away(evicted);
        sleep(self.shared.limits.accept_pause).await;
    }

    fn stepped(&mut self, done: Result<Step, JoinError>) {
        match done {
            Ok(Step::Spoke(id, caller)) => {
                self.handshakes.remove(&id);
                match caller {
                    Some(caller) => {
                        if self.pending.spoke(id, caller.first == admission::TLS) {
                            self.waiting.insert(id, caller);
                        }
                    }
                    None => self.pending.leave(id),
                }
            }
            Ok(Step::Shaken(id, shaken)) => {
                self.handshakes.remove(&id);
                self.pending.leave(id);
                let Some(Shaken { remote, key, host }) = shaken else { return };
                if let Some(key) = key {
                    self.pending.expected().proved(key, remote.ip());
                }
                if let Some(proved) = host {
                    self.introduce(id, *proved);
                }
            }
            Ok(Step::Done(id)) => {
                self.hosts.retain(|_, setups| {
                    setups.retain(|(other, _)| *other != id);
                    !setups.is_empty()
                });
            }
            Err(error) if error.is_cancelled() => {}
            Err(panic) => {
                let ended = self.handshakes.iter().filter(|(_, task)| task.is_finished()).map(|(id, _)| *id);
                for id in ended.collect::<Vec<_>>() {
                    self.handshakes.remove(&id);
                    self.pending.leave(id);
                }
                admission::log(&self.shared, None, None, &panic.into());
            }
        }
    }

    /// Starts the handshakes that have got a slot.
    fn give_slots(&mut self) {
        while let Some(placed) = self.pending.place(now()) {
            self.send_away(placed.evicted);
            let Some(caller) = self.waiting.remove(&placed.id) else {
                self.pending.leave(placed.id);
                continue;
            };
            let (shared, directory, id) = (self.shared.clone(), self.directory.clone(), placed.id);
            let task = self.tasks.spawn(async move {
                let Caller { stream, remote, first } = caller;
                let limit = shared.limits.setup_time;
                let mut host = None;
                let shaken = admission::admit(stream, remote, first, &shared, &directory, &mut host);
                let shaken = timeout(limit, shaken).await.unwrap_or(Err(Unwelcome::Slow(limit)));
                let shaken = match shaken {
                    Ok(Admitted::Host(proved)) => Some(Shaken { remote, key: Some(proved.key), host: Some(proved) }),
                    Ok(Admitted::Settled(key)) => Some(Shaken { remote, key, host: None }),
                    Err(why) => {
                        admission::log(&shared, Some(remote), host.as_ref(), &why);
                        None
                    }
                };
                Step::Shaken(id, shaken)
            });
            self.handshakes.insert(placed.id, task);
        }
    }

    /// Reserves slots for the addresses of hosts, and for addresses from which a host or operator has proved a key.
    fn expect(&mut self) {
        let gate = self.shared.gate();
        if !Arc::ptr_eq(&gate, &self.gate) {
            let is_known = |key: &PublicKey| gate.speaker(key).is_some();
            self.pending.expected().set(gate.addresses().iter().copied(), is_known);
            self.gate = gate;
        }
    }

    /// Passes a host with a proved key to its supervisor. Strangers can't hold it up any more.
    fn introduce(&mut self, id: Id, proved: Proved) {
        let host = proved.host.clone();
        let (shared, directory) = (self.shared.clone(), self.directory.clone());
        let task = self.tasks.spawn(async move {
            let (limit, remote, host) = (shared.limits.setup_time, proved.remote, proved.host.clone());
            let met = timeout(limit, admission::meet(proved, &shared, &directory)).await;
            if let Err(why) = met.unwrap_or(Err(Unwelcome::Slow(limit))) {
                admission::log(&shared, Some(remote), Some(&host), &why);
            }
            Step::Done(id)
        });
        let setups = self.hosts.entry(host).or_default();
        setups.push_back((id, task));
        if setups.len() > PER_HOST
            && let Some((_, oldest)) = setups.pop_front()
        {
            oldest.abort();
        }
    }

    fn send_away(&mut self, evicted: Option<Id>) {
        let Some(id) = evicted else { return };
        if let Some(task) = self.handshakes.remove(&id) {
            task.abort();
        }
        self.waiting.remove(&id);
        admission::log(&self.shared, None, None, &Unwelcome::Crowded);
    }
}

/// The time; tests may control it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
