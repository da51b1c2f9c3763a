//! Fake daemons: a real server on a real socket, with answers that the test has prepared.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use cob_trust::SecretKey;
use cob_trust::tls::{self, Admits, Identity};
use cob_types::api::{Done, StatusOf, order};
use cob_types::generation::{ManifestHost, Security};
use cob_types::history::{Facts, HistoryEntry};
use cob_types::outcome::OutcomeOf;
use cob_types::status::{ActionStatus, CobStatus, HostStatus, Phase, Wait};
use cob_types::{BlobHash, CobId, GenerationNumber, HostName, Manifest, StateName, codec};
use cobctl::screen::{Screen, Written};
use cobctl::verdict::is_converged;
use cobd::peer::HttpStream;
use cobd::web::{Access, Api, Ask, Command, Refusal, RefusalKind, UnixServer, serve_connection};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

#[path = "../../../../cob-types/tests/support/facts.rs"]
mod facts;
pub(crate) use facts::with_facts;

/// The time on every host's clock.
pub(crate) const NOW: u64 = 1_000_000_000_000;

pub(crate) fn id(text: &str) -> CobId {
    CobId::new(text).expect("an id")
}

pub(crate) fn state(text: &str) -> StateName {
    StateName::new(text).expect("a state")
}

pub(crate) fn name(text: &str) -> HostName {
    HostName::new(text).expect("a name")
}

/// A change object in its preferred state, `up`.
pub(crate) fn settled(cob: &str) -> CobStatus {
    CobStatus {
        id: id(cob),
        kind: "service".to_owned(),
        state: Some(state("up")),
        target: Some(state("up")),
        preferred: state("up"),
        phase: Phase::Settled,
        since_ns: NOW,
        failed: false,
        retiring: false,
        waits_for: Vec::new(),
        action: None,
        trouble: Vec::new(),
        held_by: Vec::new(),
        observed: false,
        drift: Vec::new(),
        stopped: None,
    }
}

/// A change object that waits to come up.
pub(crate) fn waiting(cob: &str, waits_for: Vec<Wait>) -> CobStatus {
    CobStatus { state: Some(state("down")), phase: Phase::Waiting, waits_for, ..settled(cob) }
}

/// A change object that has failed after its last attempt.
pub(crate) fn failed(cob: &str) -> CobStatus {
    let action = ActionStatus {
        from: Some(state("down")),
        to: Some(state("up")),
        attempt: 3,
        of: 3,
        running: false,
        since_ns: NOW,
        error: "exit status 1".to_owned(),
        last_line: "no space left".to_owned(),
        earlier_content: false,
        conflict: false,
    };
    CobStatus { failed: true, action: Some(action), ..waiting(cob, vec![Wait::Failed]) }
}

pub(crate) fn lock(cob: &str) -> Wait {
    Wait::Lock {
        cob: id(cob),
        states: vec![state("up")],
        since_ns: NOW,
        recalled: false,
        refused: None,
        refused_in: None,
    }
}

pub(crate) fn entry(host: &str, seq: u64, lamport: u64) -> HistoryEntry {
    HistoryEntry {
        ts_ns: NOW + lamport,
        host: name(host),
        seq,
        lamport,
        generation: GenerationNumber(7),
        cob: Some(id(&format!("{host}/db"))),
        event: "start".to_owned(),
        from: Some(state("down")),
        to: Some(state("up")),
        attempt: Some(1),
        ok: None,
        detail: String::new(),
        heard_ns: None,
        facts: None,
    }
}

/// The state and behaviour of a fake daemon.
pub(crate) struct Inside {
    pub(crate) status: HostStatus,
    pub(crate) history: Vec<HistoryEntry>,
    /// The outcome of the last switch that it reports without its history.
    pub(crate) outcome: Option<OutcomeOf>,
    pub(crate) output: Option<String>,
    /// The orders that it received.
    pub(crate) orders: Vec<Command>,
    /// The authors of the orders.
    pub(crate) authors: Vec<String>,
    /// How often its status was queried so far.
    pub(crate) asked: usize,
    /// Its answer to a `prepare`.
    pub(crate) refuses: Option<RefusalKind>,
    /// The change objects that it has after a switch.
    pub(crate) next: Vec<CobStatus>,
    /// Whether it activates a generation at once; otherwise the switch stays pending.
    pub(crate) prompt: bool,
    /// Whether it accepts queries and gives no answers.
    pub(crate) silent: bool,
    kept: Vec<Ask>,
    changes: watch::Sender<u64>,
}

impl Inside {
    fn answer(&mut self, ask: Ask) {
        if self.silent {
            self.kept.push(ask);
            return;
        }
        match ask {
            Ask::Status { of, reply, .. } => {
                self.asked += 1;
                let mut status = self.status.clone();
                if of == StatusOf::Active {
                    status.cobs.retain(|c| !is_converged(c) || c.retiring);
                    status.idle = (self.status.cobs.len() - status.cobs.len()) as u64;
                }
                drop(reply.send(status));
            }
            Ask::Known { reply } => drop(reply.send(self.status.newest_known.into_iter().collect())),
            Ask::Cob { id, reply } => drop(reply.send(self.status.cobs.iter().find(|c| c.id == id).cloned())),
            Ask::History { since, cob, limit, newest, reply } => {
                let wanted = |e: &&HistoryEntry| e.seq >= since && (cob.is_none() || e.cob == cob);
                let all = self.history.iter().filter(wanted);
                let before = if newest { all.clone().count().saturating_sub(limit) } else { 0 };
                drop(reply.send(all.skip(before).take(limit).cloned().map(with_facts).map(Ok).collect()));
            }
            Ask::Outcome { reply, .. } => drop(reply.send(self.outcome.clone())),
            Ask::Output { reply, .. } => drop(reply.send(self.output.clone())),
            Ask::Watch { reply } => drop(reply.send(self.changes.subscribe())),
            Ask::Files { cob, reply, .. } => {
                let none = Refusal::new(RefusalKind::Conflict, format!("{cob} has no files"), "");
                drop(reply.send(Err(none)));
            }
            Ask::Logs { cob, reply, .. } => {
                let none = Refusal::new(RefusalKind::Conflict, format!("{cob} is no service"), "");
                drop(reply.send(Err(none)));
            }
            Ask::Check { reply, .. } => {
                let what = "checks are the business of real daemons";
                drop(reply.send(Err(Refusal::new(RefusalKind::Unavailable, what, ""))));
            }
            Ask::CheckRound { reply, .. } => drop(reply.send(None)),
            Ask::Run { reply, .. } => {
                let what = "commands are the business of real daemons";
                drop(reply.send(Err(Refusal::new(RefusalKind::Forbidden, what, ""))));
            }
            Ask::StoredRun { reply, .. } => drop(reply.send(None)),
            Ask::Order { order, who, reply } => {
                self.authors.push(who);
                drop(reply.send(self.order(order)));
            }
        }
    }

    fn order(&mut self, order: Command) -> Result<Done, Refusal> {
        self.orders.push(order.clone());
        let done = |changed| Ok(Done::new(changed, String::new()));
        match order {
            Command::Prepare(order::Prepare { generation, .. }) => match self.refuses {
                Some(kind) => Err(Refusal::new(kind, format!("generation {generation} is not wanted here"), "ask why")),
                None => done(true),
            },
            Command::Switch(order::Switch { generation, .. }) => {
                if self.prompt {
                    self.status.generation = Some(generation);
                    self.status.cobs = self.next.clone();
                } else {
                    self.status.switching_to = Some(generation);
                }
                self.changes.send_modify(|n| *n += 1);
                done(true)
            }
            Command::Rollback(_) => done(true),
            Command::Pause(_) => {
                let changed = !std::mem::replace(&mut self.status.paused, true);
                done(changed)
            }
            Command::Resume(_) => {
                let changed = std::mem::replace(&mut self.status.paused, false);
                done(changed)
            }
            Command::Cancel(_)
            | Command::Discard(_)
            | Command::Limit(_)
            | Command::Budget(_)
            | Command::Retry(_)
            | Command::Stop(_)
            | Command::Start(_)
            | Command::Reboot(_)
            | Command::MarkDeparted(_)
            | Command::Fence(_) => done(true),
        }
    }
}

/// A fake daemon; stops when dropped.
pub(crate) struct Daemon {
    inside: Arc<Mutex<Inside>>,
    /// Its address for `--host`.
    pub(crate) address: String,
    _tasks: JoinSet<()>,
}

impl Daemon {
    /// On a TCP port of this machine.
    pub(crate) async fn tcp(host: &str, generation: u64, cobs: Vec<CobStatus>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        Self::on(listener, host, generation, cobs)
    }

    /// On this listener.
    pub(crate) fn on(listener: TcpListener, host: &str, generation: u64, cobs: Vec<CobStatus>) -> Self {
        let address = format!("tcp://{}", listener.local_addr().expect("an address"));
        let (api, inside, mut tasks) = Self::inside(host, generation, cobs);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve_connection(HttpStream::Plain(stream), api.clone()));
            }
        });
        Self { inside, address, _tasks: tasks }
    }

    /// With TLS and this key, for the operators of this manifest. Keys that `admits` rejects end the handshake.
    pub(crate) async fn tls(host: &str, key: &SecretKey, manifest: &Manifest, admits: Admits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = format!("tcp://{}", listener.local_addr().expect("an address"));
        let (api, inside, mut tasks) = Self::inside(host, manifest.generation.0, vec![settled(&format!("{host}/db"))]);
        api.set_access(Access::of(&name(host), true, Some(manifest), None));
        let settings = tls::server(&Identity::new(key).expect("made"), admits, true, &[tls::HTTP]).expect("settings");
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, peer)) = listener.accept().await {
                let (acceptor, api) = (TlsAcceptor::from(settings.clone()), api.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let key = tls::peer_key(stream.get_ref().1.peer_certificates());
                    serve_connection(HttpStream::Tls { stream: Box::new(stream), peer, key }, api).await;
                });
            }
        });
        Self { inside, address, _tasks: tasks }
    }

    /// On a unix socket.
    pub(crate) async fn unix(path: &Path, host: &str, generation: u64, cobs: Vec<CobStatus>) -> Self {
        let server = UnixServer::bind(path).await.expect("bound");
        let (api, inside, mut tasks) = Self::inside(host, generation, cobs);
        tasks.spawn(server.run(api));
        Self { inside, address: format!("unix:{}", path.display()), _tasks: tasks }
    }

    fn inside(host: &str, generation: u64, cobs: Vec<CobStatus>) -> (Api, Arc<Mutex<Inside>>, JoinSet<()>) {
        let status = HostStatus {
            reachable: true,
            generation: Some(GenerationNumber(generation)),
            converged: true,
            security: Some("loopback-only".to_owned()),
            says_final: true,
            now_ns: NOW,
            cobs: cobs.clone(),
            ..HostStatus::unknown(name(host))
        };
        let inside = Arc::new(Mutex::new(Inside {
            status,
            history: Vec::new(),
            outcome: None,
            output: None,
            orders: Vec::new(),
            authors: Vec::new(),
            asked: 0,
            refuses: None,
            next: cobs,
            prompt: true,
            silent: false,
            kept: Vec::new(),
            changes: watch::channel(0).0,
        }));
        let name = inside.lock().expect("not poisoned").status.name.clone();
        let (tx, mut asked) = mpsc::channel(8);
        let mut tasks = JoinSet::new();
        let own = Arc::clone(&inside);
        tasks.spawn(async move {
            while let Some(ask) = asked.recv().await {
                own.lock().expect("not poisoned").answer(ask);
            }
        });
        let api = Api::new(tx, name);
        api.set_access(Access::LoopbackOnly);
        (api, inside, tasks)
    }

    /// Its state, to read and to change.
    pub(crate) fn look(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("not poisoned")
    }

    /// Changes its status and notifies its watchers.
    pub(crate) fn change(&self, change: impl FnOnce(&mut HostStatus)) {
        let mut inside = self.look();
        change(&mut inside.status);
        inside.changes.send_modify(|n| *n += 1);
    }

    /// Waits until its state fulfils the condition.
    pub(crate) async fn until(&self, wanted: impl Fn(&Inside) -> bool) {
        until(|| wanted(&self.look())).await;
    }
}

/// Waits until the condition is true.
pub(crate) async fn until(wanted: impl Fn() -> bool) {
    let met = async {
        while !wanted() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), met).await.expect("met in time");
}

/// The result of a run of `cobctl`.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs `cobctl` with these arguments, to its end.
pub(crate) fn cobctl(args: &[&str]) -> impl Future<Output = Ran> + use<> {
    let line = line(args);
    async move {
        let (mut screen, written) = Screen::memory();
        let running = cobctl::run(line, &mut screen);
        let code = tokio::time::timeout(std::time::Duration::from_secs(30), running).await.expect("ends in time");
        Ran { code, out: written.out(), err: written.err() }
    }
}

/// Runs `cobctl` with a command that does not end, while `seen` checks its output.
pub(crate) async fn cobctl_while(args: &[&str], seen: impl AsyncFnOnce(Written)) {
    let (mut screen, written) = Screen::memory();
    tokio::select! {
        code = cobctl::run(line(args), &mut screen) => panic!("ended with {code}"),
        () = seen(written) => {}
    }
}

/// Without the settings of the user who runs the tests.
fn line(args: &[&str]) -> Vec<std::ffi::OsString> {
    ["cobctl", "--config", "/dev/null"].iter().chain(args).map(std::ffi::OsString::from).collect()
}

/// A depot with a generation: these hosts, their addresses and their numbers of change objects.
pub(crate) fn publish(depot: &Path, generation: u64, hosts: &[(&str, &str, u64)]) {
    let host = |address: &str, cobs| ManifestHost {
        address: Some(address.to_owned()).filter(|a| !a.is_empty()),
        keys: Vec::new(),
        bundle: BlobHash([0; 32]),
        cobs,
    };
    let number = GenerationNumber(generation);
    let manifest = Manifest {
        hosts: hosts.iter().map(|(n, address, cobs)| (name(n), host(address, *cobs))).collect::<BTreeMap<_, _>>(),
        cobs: hosts.iter().map(|(_, _, cobs)| cobs).sum(),
        ..Manifest::empty(number, GenerationNumber(generation - 1), Security::LoopbackOnly)
    };
    publish_manifest(depot, &manifest);
}

/// Creates a depot with this generation, or adds the generation.
pub(crate) fn publish_manifest(depot: &Path, manifest: &Manifest) {
    let generation = manifest.generation;
    let repository = git2::Repository::init_bare(depot).expect("a repository");
    let blob = repository.blob(&codec::encode(manifest).expect("encodes")).expect("a blob");
    let mut tree = repository.treebuilder(None).expect("a tree");
    tree.insert("manifest.cbor", blob, 0o100_644).expect("inserted");
    let tree = repository.find_tree(tree.write().expect("written")).expect("found");
    let author = git2::Signature::new("test", "test@localhost", &git2::Time::new(0, 0)).expect("a signature");
    let reference = format!("refs/generations/{generation}");
    repository.commit(Some(&reference), &author, &author, "a generation", &tree, &[]).expect("committed");
}
