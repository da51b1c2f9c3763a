//! The front of a port: its pending connections with their tasks, from the first byte to the end of the handshake.
//!
//! [`Pending`] decides which connections get a slot or are evicted; a [`Front`] waits for first bytes, and starts and
//! aborts handshakes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::pending::{Expected, Id, Pending};

/// The interval for checks of connections that wait for a slot, without other events.
const LOOK: Duration = Duration::from_millis(20);

/// A connection whose first byte has arrived.
#[derive(Debug)]
pub struct Caller {
    /// The connection. No byte of it has been read.
    pub stream: TcpStream,
    /// The address of the other side.
    pub remote: SocketAddr,
    /// The first byte.
    pub first: u8,
}

/// The pending connections of a port. `G` is the result of a successful handshake.
#[derive(Debug)]
pub struct Front<G> {
    pending: Pending,
    /// Whether a first byte begins a handshake that counts in the rates.
    costly: fn(u8) -> bool,
    tasks: JoinSet<Step<G>>,
    /// The tasks of pending connections, to abort them.
    running: BTreeMap<Id, AbortHandle>,
    /// Connections that have sent a first byte and wait for a slot.
    waiting: BTreeMap<Id, Caller>,
}

/// The end of a pending connection's task.
#[derive(Debug)]
enum Step<G> {
    /// The first byte has arrived; or the connection ended before.
    Spoke(Id, Option<Caller>),
    /// The handshake is over, successful or not.
    Greeted(Id, Option<G>),
}

impl<G: Send + 'static> Front<G> {
    /// Without connections.
    #[must_use]
    pub fn new(pending: Pending, costly: fn(u8) -> bool) -> Self {
        Self { pending, costly, tasks: JoinSet::new(), running: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    /// The addresses that have reserved slots.
    pub fn expected(&mut self) -> &mut Expected {
        self.pending.expected()
    }

    /// Adds a new connection, which has this long for its first byte; then `late` is called. Returns whether another
    /// connection was evicted for it.
    pub fn arrive(
        &mut self,
        stream: TcpStream,
        remote: SocketAddr,
        limit: Duration,
        late: impl FnOnce() + Send + 'static,
    ) -> bool {
        let (id, evicted) = self.pending.arrive(remote.ip(), now());
        let evicts = self.end(evicted);
        let task = self.tasks.spawn(async move {
            let mut first = [0];
            let caller = match timeout(limit, stream.peek(&mut first)).await {
                Ok(Ok(1..)) => Some(Caller { stream, remote, first: first[0] }),
                // Scanners and health checks connect and disconnect without sending a byte.
                Ok(Ok(_) | Err(_)) => None,
                Err(_) => {
                    late();
                    None
                }
            };
            Step::Spoke(id, caller)
        });
        self.running.insert(id, task);
        evicts
    }

    /// Evicts a connection because file descriptors are short. Returns whether there was one.
    pub fn make_room(&mut self) -> bool {
        let evicted = self.pending.make_room();
        self.end(evicted)
    }

    /// Waits for the next event; [`Front::give_slots`] follows. Returns the result of a successful handshake. It may be
    /// dropped at any time.
    ///
    /// # Errors
    /// The panic of a handshake, whose connection is closed.
    pub async fn step(&mut self) -> Result<Option<G>, JoinError> {
        let done = tokio::select! {
            Some(done) = self.tasks.join_next() => done,
            () = sleep(LOOK), if self.pending.has_queue() => return Ok(None),
            else => std::future::pending().await,
        };
        match done {
            Ok(Step::Spoke(id, caller)) => {
                self.running.remove(&id);
                match caller {
                    Some(caller) if self.pending.spoke(id, (self.costly)(caller.first)) => {
                        self.waiting.insert(id, caller);
                    }
                    Some(_) | None => self.pending.leave(id),
                }
                Ok(None)
            }
            Ok(Step::Greeted(id, greeted)) => {
                self.running.remove(&id);
                self.pending.leave(id);
                Ok(greeted)
            }
            Err(error) if error.is_cancelled() => Ok(None),
            Err(panic) => {
                for (id, _) in self.running.extract_if(.., |_, task| task.is_finished()) {
                    self.pending.leave(id);
                }
                Err(panic)
            }
        }
    }

    /// Starts the handshakes that are due. Returns how many connections were evicted for them.
    pub fn give_slots<F>(&mut self, greet: impl Fn(Caller) -> F) -> usize
    where
        F: Future<Output = Option<G>> + Send + 'static,
    {
        let mut evicted = 0;
        while let Some(placed) = self.pending.place(now()) {
            evicted += usize::from(self.end(placed.evicted));
            let Some(caller) = self.waiting.remove(&placed.id) else {
                self.pending.leave(placed.id);
                continue;
            };
            let (id, greeted) = (placed.id, greet(caller));
            let task = self.tasks.spawn(async move { Step::Greeted(id, greeted.await) });
            self.running.insert(id, task);
        }
        evicted
    }

    /// Closes an evicted connection, if there is one.
    fn end(&mut self, evicted: Option<Id>) -> bool {
        let Some(id) = evicted else { return false };
        if let Some(task) = self.running.remove(&id) {
            task.abort();
        }
        self.waiting.remove(&id);
        true
    }
}

/// The time; tests may control it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
