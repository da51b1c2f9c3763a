//! The listening port: links of other hosts and HTTP, told apart by their first byte.
//!
//! In a model with identities the first byte must be `0x16`, which begins TLS; what goes on inside is
//! agreed in the handshake (ALPN). Without them `0xFF` begins a ZMTP greeting and so a link, and an
//! upper-case letter an HTTP request. Anything else is cut. A link's hello is read here, then the
//! connection goes to the keeper of its host; HTTP is handed to the daemon with nothing of it read.
//!
//! ```text
//! accept --> silent --> waits --> has a place: handshake --> host known: hello --> keeper
//!            `------- strangers, see `lobby` -------'            `--> the daemon (HTTP)
//! ```
//!
//! Nothing that a stranger does is noticed by a link that is up.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::HostName;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::admission::{self, Admitted, Proved, Unwelcome};
use super::keeper::{Accepted, Shared};
use super::lobby::{Id, Lobby};
use super::quiet::Topic;

/// How often those who wait for a place are looked at when nothing else happens.
const LOOK: Duration = Duration::from_millis(20);
/// The most connections of one host that may be in setup at a time: the one that counts, and one that the
/// host has given up and we have not heard of it.
const PER_HOST: usize = 2;

/// Where the keepers of the hosts in the roster take connections.
#[derive(Debug, Default)]
pub(super) struct Directory {
    keepers: Mutex<BTreeMap<HostName, mpsc::Sender<Accepted>>>,
}

impl Directory {
    /// Replaces the whole roster.
    pub(super) fn set(&self, keepers: BTreeMap<HostName, mpsc::Sender<Accepted>>) {
        *self.keepers.lock().unwrap_or_else(PoisonError::into_inner) = keepers;
    }

    pub(super) fn find(&self, host: &HostName) -> Option<mpsc::Sender<Accepted>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }
}

/// A connection whose first byte is there.
struct Caller {
    stream: TcpStream,
    remote: SocketAddr,
    first: u8,
}

/// A task of the door has come to its end.
enum Step {
    /// The first byte is there; or it went without a word.
    Spoke(Id, Option<Caller>),
    /// It is known who it is, and it wants to be a link; or it has gone, one way or another.
    Shaken(Id, Option<Box<Proved>>),
    /// The setup of a link is over.
    Done(Id),
}

/// Accepts connections for as long as the daemon lives.
pub(super) async fn keep_open(listener: TcpListener, shared: Arc<Shared>, directory: Arc<Directory>) {
    let lobby = Lobby::new(shared.limits.strangers.clone(), Instant::now());
    let mut door = Door {
        shared,
        directory,
        lobby,
        tasks: JoinSet::new(),
        strangers: BTreeMap::new(),
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
            () = sleep(LOOK), if door.lobby.has_queue() => {}
        }
        door.give_places();
    }
}

struct Door {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    lobby: Lobby,
    tasks: JoinSet<Step>,
    /// The tasks of strangers, for sending them away.
    strangers: BTreeMap<Id, AbortHandle>,
    /// Those who have spoken and wait for a place.
    waiting: BTreeMap<Id, Caller>,
    /// Setups of hosts that have proved who they are, oldest first.
    hosts: BTreeMap<HostName, VecDeque<(Id, AbortHandle)>>,
}

impl Door {
    fn arrived(&mut self, stream: TcpStream, remote: SocketAddr) {
        if let Err(why) = admission::may_come_from(remote, &self.shared) {
            admission::log(&self.shared, Some(remote), None, &why);
            return;
        }
        let (id, evicted) = self.lobby.arrive(remote.ip(), Instant::now());
        self.send_away(evicted);
        let shared = self.shared.clone();
        let task = self.tasks.spawn(async move {
            let limit = shared.limits.first_word;
            let mut first = [0];
            let caller = match timeout(limit, stream.peek(&mut first)).await {
                Ok(Ok(1..)) => Some(Caller { stream, remote, first: first[0] }),
                // Scanners and health checks connect and leave again without a word.
                Ok(Ok(_) | Err(_)) => None,
                Err(_) => {
                    admission::log(&shared, Some(remote), None, &Unwelcome::Slow(limit));
                    None
                }
            };
            Step::Spoke(id, caller)
        });
        self.strangers.insert(id, task);
    }

    async fn cannot_accept(&mut self, error: &std::io::Error) {
        self.shared.quiet.say(Topic::Accept, None, |more| {
            tracing::error!(
                "can't accept connections: {error}; if open files are short, raise their limit (ulimit -n){more}"
            );
        });
        let evicted = self.lobby.make_room();
        self.send_away(evicted);
        sleep(self.shared.limits.accept_pause).await;
    }

    fn stepped(&mut self, done: Result<Step, JoinError>) {
        match done {
            Ok(Step::Spoke(id, caller)) => {
                self.strangers.remove(&id);
                match caller {
                    Some(caller) => {
                        if self.lobby.spoke(id, caller.first == admission::TLS) {
                            self.waiting.insert(id, caller);
                        }
                    }
                    None => self.lobby.leave(id),
                }
            }
            Ok(Step::Shaken(id, proved)) => {
                self.strangers.remove(&id);
                self.lobby.leave(id);
                if let Some(proved) = proved {
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
                let ended = self.strangers.iter().filter(|(_, task)| task.is_finished()).map(|(id, _)| *id);
                for id in ended.collect::<Vec<_>>() {
                    self.strangers.remove(&id);
                    self.lobby.leave(id);
                }
                admission::log(&self.shared, None, None, &panic.into());
            }
        }
    }

    /// Begins the handshakes of those whose turn it is.
    fn give_places(&mut self) {
        while let Some(placed) = self.lobby.place(Instant::now()) {
            self.send_away(placed.evicted);
            let Some(caller) = self.waiting.remove(&placed.id) else {
                self.lobby.leave(placed.id);
                continue;
            };
            let (shared, directory, id) = (self.shared.clone(), self.directory.clone(), placed.id);
            let task = self.tasks.spawn(async move {
                let Caller { stream, remote, first } = caller;
                let limit = shared.limits.setup_time;
                let mut host = None;
                let shaken = admission::admit(stream, remote, first, &shared, &directory, &mut host);
                let shaken = timeout(limit, shaken).await.unwrap_or(Err(Unwelcome::Slow(limit)));
                Step::Shaken(
                    id,
                    match shaken {
                        Ok(Admitted::Host(proved)) => Some(proved),
                        Ok(Admitted::Settled) => None,
                        Err(why) => {
                            admission::log(&shared, Some(remote), host.as_ref(), &why);
                            None
                        }
                    },
                )
            });
            self.strangers.insert(placed.id, task);
        }
    }

    /// Sees a host that has proved who it is to its keeper. No stranger is in its way any more.
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
        if let Some(task) = self.strangers.remove(&id) {
            task.abort();
        }
        self.waiting.remove(&id);
        admission::log(&self.shared, None, None, &Unwelcome::Crowded);
    }
}
