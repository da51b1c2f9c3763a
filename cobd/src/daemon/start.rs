//! Start of the daemon: state folder, journal, a new incarnation, the recovered engine, links, API.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_api_server::SocketError;
use cob_engine::record::{Body, Record};
use cob_engine::{Durable, Effects, Engine, RestartInput, Time};
use cob_types::message::Incarnation;
use cob_types::{CobId, GenerationNumber, HostName, Manifest, Number, SwitchOrder, codec};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::departures::Departures;
use super::follow::{Again, follow};
use super::inbox::{Inbox, Sources};
use super::indexing::Indexing;
use super::job_table::JobTable;
use super::neighbours::Neighbours;
use super::outputs::Outputs;
use super::present::Present;
use super::record_writer::RecordWriter;
use super::reports::Reports;
use super::rounds::Rounds;
use super::switch::SwitchWatch;
use super::words::Fetches;
use super::{Daemon, Tick, job_number, trust};
use crate::adhoc::Adhoc;
use crate::clock::Clock;
use crate::config::Config;
use crate::durable;
use crate::generations::{self, FetchError, Generations, Prepared};
use crate::journal::index::{Index, IndexError};
use crate::journal::{FileJournal, Journal as _, JournalError, Keep, MAX_PAYLOAD, What, remedy};
use crate::kinds::{Kinds, configures_interfaces, missing_store};
use crate::peer::{Limits, LinkConfig, LinkError, LinkEvent, Links};
use crate::permissions::{self, Exposed};
use crate::run::{Opener, Program};
use crate::source::Source;
use crate::web::{Access, Api, Front, UnixServer};

/// The file with the boot of the machine in which the last daemon ran.
const BOOT_ID: &str = "boot-id";
/// The most events in a queue to the loop.
const QUEUE: usize = 1024;

/// Why a daemon can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder.
    #[error("state folder {0}")]
    StateDir(Exposed),
    /// Others may write the depot, and generations are followed without signatures.
    #[error("`follow` without `trust` accepts every generation in the depot {0}; or name the publishers in `trust`")]
    Depot(Exposed),
    /// The key of this host is unusable.
    #[error("the key of this host: {0}")]
    Identity(#[from] cob_trust::KeyFileError),
    /// The journal.
    #[error("{_0}{}", remedy(_0))]
    Journal(#[from] JournalError),
    /// The file store.
    #[error("{0}")]
    Files(String),
    /// A record that this version does not understand.
    #[error("journal record {seq} is not understood ({what}); was the state folder used by a newer cobd?")]
    Record {
        /// The number of the record.
        seq: u64,
        /// The error.
        what: String,
    },
    /// The state folder belongs to another host.
    #[error(
        "{} is the state folder of the host {theirs}, and cobd.toml says `host = \"{host}\"`: correct `host` or \
         `state_dir`; a renamed host is a new host and starts with an empty state folder",
        folder.display()
    )]
    OtherHost {
        /// The state folder.
        folder: PathBuf,
        /// The owner of the state folder.
        theirs: HostName,
        /// This host.
        host: HostName,
    },
    /// A necessary generation can't be read.
    #[error("generation {generation}, which this host has activated, can't be read: {source}")]
    Generation {
        /// The generation.
        generation: GenerationNumber,
        /// The cause.
        source: FetchError,
    },
    /// The host has no generation, and can't get one from this depot.
    #[error("this host has no generation yet, and can't fetch a generation: {0}")]
    Unusable(FetchError),
    /// The links.
    #[error(transparent)]
    Links(#[from] LinkError),
    /// The API.
    #[error("{0}; to choose another socket, set `http` in cobd.toml")]
    Api(#[from] SocketError),
    /// Another error of the system.
    #[error("{doing}: {source}")]
    System {
        /// The failed operation.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Daemon {
    /// Starts a daemon. `program` is this very program, to run itself again. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: Config, program: Program) -> Result<Self, StartError> {
        let state_dir = permissions::own_folder(&config.state_dir).map_err(StartError::StateDir)?;
        crate::identity::Keys::load(&config.identity)?;
        if let (true, None, Source::Folder(depot)) = (config.follow, &config.trust, &config.depot) {
            // A user who may write the parent folder can create a missing depot.
            let there = depot.ancestors().find(|p| p.exists()).unwrap_or(depot);
            permissions::believed(there).map_err(StartError::Depot)?;
        }
        let journal = config.state_dir.join("journal");
        let trace = trace_of_use(&config.state_dir);
        let held = FileJournal::hold(&journal)?;
        let mut opened = held.open(Keep::FOR_HISTORY, trace.as_deref())?;
        missing_store(&config.state_dir).map_or(Ok(()), |what| Err(StartError::Files(what)))?;
        let mut durable = Durable::default();
        let mut last = Time(0);
        let snapshot = opened.entries.first().filter(|first| first.what == What::Snapshot);
        let snapshot_bytes = snapshot.map_or(0, |snapshot| snapshot.payload.len() as u64);
        for entry in std::mem::take(&mut opened.entries) {
            let record: Record = codec::decode(&entry.payload, MAX_PAYLOAD)
                .map_err(|e| StartError::Record { seq: entry.seq, what: e.to_string() })?;
            durable.apply(&record);
            last = last.max(record.at);
        }
        if let Some(theirs) = of_another(&durable, &config.host) {
            return Err(StartError::OtherHost { folder: config.state_dir, theirs, host: config.host });
        }
        // Before anything is written: a journal that has lost its end is not continued.
        let index = usable(config.state_dir.join("index"), &opened.journal)?;
        let clock = Clock::start(last);
        let seconds = clock.ahead_s();
        if seconds > 0 {
            warn!(
                seconds,
                "the last recorded time is ahead of this machine's clock, which is or was wrong: times go on from there"
            );
        }
        if durable.keep_possible(clock.now()) {
            warn!("recorded numbers are impossibly high: another host has lied. The numbers are reduced");
        }
        let life = next_life(durable.incarnation);
        // Recorded before the links exist: they announce the incarnation in their first messages.
        note_life(&mut opened.journal, &mut durable, life, clock.now())?;
        let boot = Boot::note(&config.state_dir)?;
        let generations = Generations::new(&config.state_dir, &config.depot, &config.host, config.trust.clone());
        let (ended_tx, ended) = mpsc::channel(QUEUE);
        let opener = Opener::new(&config.identity, &config.state_dir, config.secrets_dir.as_deref());
        let no_folders = |source| StartError::System { doing: "making folders for jobs", source };
        let (notes, command_notes) = mpsc::channel(QUEUE);
        let mut kinds =
            Kinds::with_opener(&state_dir, program.clone(), Some(opener.clone()), ended_tx).map_err(no_folders)?;
        let adhoc = Adhoc::new(&config, &state_dir, program, opener, notes).map_err(no_folders)?;
        kinds.wake();
        let (active, coming) = load_needed(&generations, &durable)?;
        let listen = match config.listen {
            Some(address) => vec![address],
            None => {
                let named_by = durable.switching.parted.get(&config.host).map(|of| of.generation);
                match own_addresses(&config.host, &generations, active.as_ref(), coming.as_ref(), named_by) {
                    named if named.is_empty() => vec![super::first::address(&config, &generations).await?],
                    named => named,
                }
            }
        };
        let (link_tx, link_events) = mpsc::channel(QUEUE);
        let link_config = |listen| LinkConfig {
            me: config.host.clone(),
            listen,
            awaits_address: false,
            socket_dir: config.state_dir.join("links"),
            protection: trust::protection(&config, [active.as_ref(), coming.as_ref()]),
            session: life,
            limits: Limits::default(),
        };
        let mut started = start_links(&listen, &link_config, link_tx.clone()).await;
        // The host was away while its address changed: the generation on disk names the old address.
        let elsewhere = matches!(started, Err(LinkError::Listen { .. })) && config.listen.is_none();
        let moved = elsewhere.then(|| super::first::address_in_depot(&config, &generations)).flatten();
        let mut moved = moved.filter(|address| !listen.contains(address));
        if let Some(address) = moved {
            warn!(%address, "can't listen at the previous address: the newest generation names another");
            started = start_links(&[address], &link_config, link_tx.clone()).await;
        }
        // An action that was killed has taken the address away, and its next attempt brings it back.
        if let Some(error) = started.as_ref().err().filter(|error| error.is_absent())
            && configures_interfaces(&config.state_dir)
        {
            warn!("{error}. Change objects configure interfaces of this host, so the daemon starts all the same");
            let early = |listen| LinkConfig { awaits_address: true, ..link_config(listen) };
            (started, moved) = (start_links(&listen, &early, link_tx).await, None);
        }
        let links = started?;
        let (ask_tx, asks) = mpsc::channel(64);
        let publishers = config.trust.as_ref().map(|trust| trust.keys().clone()).unwrap_or_default();
        let api = Api::new(ask_tx, config.host.clone()).trusting(publishers);
        let manifest = |prepared: &Option<Prepared>| prepared.as_ref().map(|p| p.manifest.clone());
        api.set_journal(config.state_dir.join("journal"));
        let unread = |source| StartError::System { doing: "reading the file `epoch` in the state folder", source };
        api.keep_epochs(&config.state_dir).map_err(unread)?;
        api.set_access(access(&config, manifest(&active).as_deref(), manifest(&coming).as_deref()));
        let front = Front::from(api);
        let unix = tokio::spawn(UnixServer::bind(&config.http).await?.run(front.clone()));
        let (depot_tx, depot_changes) = mpsc::channel(1);
        let mut guards: Vec<Box<dyn std::any::Any>> = vec![Box::new(AbortOnDrop(unix))];
        let waits_for_the_first = config.trust.is_some() && active.is_none() && coming.is_none();
        let again = Again::new(depot_tx.clone());
        if config.follow || waits_for_the_first {
            guards.extend(follow(&config, &generations, depot_tx));
        }

        let in_process: Vec<String> =
            [active.as_ref(), coming.as_ref()].into_iter().flatten().flat_map(|p| p.in_process(&kinds)).collect();
        let back = RestartInput {
            host: &config.host,
            incarnation: life,
            durable: &durable,
            active: active.as_ref().map(|p| p.bundle.clone()),
            pending: coming.as_ref().map(|p| p.bundle.clone()),
            order: order_of_return(&generations, active.as_ref(), coming.as_ref()),
            in_process: &in_process,
            same_boot: boot.same,
        };
        let (engine, mut effects) = Engine::recover(&back, clock.now());
        let switch = SwitchWatch::returned(&durable);
        // The new incarnation is on record already.
        effects.persist.retain(|r| !matches!(r.body, Body::Incarnation(_)));
        info!(
            host = %config.host, start = life.start, generation = %engine.generation(), listen = %links.address(),
            "up"
        );
        let missed = durable.cobs.iter().filter(|(_, cob)| cob.missed.is_some()).map(|(cob, _)| cob);
        let outputs = Outputs::returned(config.state_dir.join("outputs"), missed);
        let last = opened.journal.last_seq();
        let index = Indexing::new(config.host.clone(), journal, last, index, clock.now());
        let payload_root = config.state_dir.join("payload");
        durable::sweep(&payload_root);
        let (inbox, tasks) = Inbox::new(Sources {
            jobs: ended,
            links: link_events,
            drifts: kinds.take_drifts().unwrap_or_else(|| unreachable!("it was made just now")),
            departures: kinds.departed(),
            asks,
            notes: command_notes,
            depot: depot_changes,
            _guards: guards,
        });
        let mut daemon = Self {
            clock,
            engine,
            book: RecordWriter::new(config.host.clone(), opened.journal, durable, index, snapshot_bytes),
            kinds: Arc::new(kinds),
            neighbours: Neighbours::new(links, moved),
            generations,
            present: Present::with_pending(coming),
            fetches: Fetches::new(again),
            jobs: JobTable::new(outputs),
            adhoc,
            reports: Reports::new(front),
            turn: Tick::default(),
            payload_root,
            inbox,
            tasks,
            boot,
            departures: Departures::default(),
            rounds: Rounds::default(),
            ahead: super::prechecks::Prechecks::default(),
            switch,
            scheduled: super::scheduled::Scheduled::returned(&config.state_dir),
            config,
        };
        daemon.come_back(active, effects)?;
        Ok(daemon)
    }

    /// Makes the active generation ready, and handles the jobs of earlier incarnations.
    fn come_back(&mut self, active: Option<Prepared>, effects: Effects) -> Result<(), StartError> {
        if let Some(active) = active {
            let bundles = [Some(&active), self.present.pending()];
            let here = bundles.into_iter().flatten().flat_map(|p| p.bundle.ids().cloned()).collect();
            self.departures.add(self.kinds.return_to(&here), self.clock.now());
            self.make_ready(active);
        } else {
            self.tell_roster();
        }
        self.turn.effects = effects;
        self.take_up_switch();
        let found = self.kinds.scan().map_err(|source| StartError::System { doing: "looking for jobs", source })?;
        // Actions that the engine starts during recovery have no job yet.
        let start = self.engine.incarnation().start;
        let earlier = self.engine.running_actions().into_iter().filter(|(_, number)| number.start != start);
        let mut running: BTreeMap<CobId, Number> = earlier.collect();
        for job in found {
            let number = job_number(job.job);
            let label = job.label.as_ref();
            let wanted = label.is_some_and(|l| l.attempt.is_some() && running.get(&l.cob) == Some(&number));
            match label {
                Some(label) if wanted => {
                    running.remove(&label.cob);
                    let attempt = label.attempt.clone().unwrap_or_else(|| unreachable!("looked at above"));
                    info!(cob = %label.cob, running = job.running, "an action of an earlier daemon is taken over");
                    if let Err(reason) = self.adopt_job(&label.cob, number, attempt) {
                        warn!(cob = %label.cob, reason, "it can't be");
                        self.feed_lost(label.cob.clone(), number);
                    }
                }
                Some(_) | None => self.kinds.discard(job.job),
            }
        }
        for (cob, number) in running {
            self.feed_lost(cob, number);
        }
        self.cancel_again();
        self.adhoc.returned();
        Ok(())
    }
}

/// The access rights of the API.
pub(super) fn access(config: &Config, active: Option<&Manifest>, coming: Option<&Manifest>) -> Access {
    Access::of(&config.host, config.trust.is_some(), active, coming)
}

/// A task that is aborted with its owner.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A file that exists only if a daemon has recorded its first incarnation.
fn trace_of_use(state_dir: &Path) -> Option<PathBuf> {
    [BOOT_ID, "generations", "index"].iter().map(|name| state_dir.join(name)).find(|path| path.exists())
}

/// The owner of the journal, if it has records of change objects but none of this host.
fn of_another(durable: &Durable, host: &HostName) -> Option<HostName> {
    let mut all = durable.cobs.keys().chain(durable.gone.keys());
    let first = all.clone().next()?;
    let own = all.any(|cob| cob.host_str() == host.as_str());
    (!own).then(|| first.host())
}

fn next_life(last: Option<Incarnation>) -> Incarnation {
    match last {
        Some(last) => Incarnation { start: last.start.saturating_add(1), ..last },
        None => Incarnation { id: random(), start: 1 },
    }
}

/// Makes a new incarnation durable.
fn note_life(journal: &mut FileJournal, durable: &mut Durable, life: Incarnation, at: Time) -> Result<(), StartError> {
    let body = Body::Incarnation(life);
    let record = Record { at, lamport: durable.lamport.saturating_add(1), generation: durable.active, body, by: None };
    let bytes = codec::encode_packed(&record)
        .map_err(|e| StartError::Record { seq: journal.last_seq() + 1, what: e.to_string() })?;
    journal.append(&bytes)?;
    journal.commit()?;
    durable.apply(&record);
    Ok(())
}

/// A number from the system's entropy, like the seed of the standard library's hasher.
fn random() -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// The boots of the machine, as the daemons of this state folder have seen them.
#[derive(Debug)]
pub(super) struct Boot {
    /// The number of boots, with the present one.
    pub(super) count: u64,
    /// The last daemon ran in the same boot.
    pub(super) same: bool,
}

impl Boot {
    /// Compares the present boot with the boot on record, and records it. The file holds the id of the boot as the kernel says
    /// it, and in its second line the count.
    fn note(state_dir: &Path) -> Result<Self, StartError> {
        let system = |doing| move |source| StartError::System { doing, source };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(system("reading the boot id"))?;
        let path = state_dir.join(BOOT_ID);
        let last = fs::read_to_string(&path).unwrap_or_default();
        let (id, count) = last.split_once('\n').unwrap_or((&last, ""));
        // Older versions wrote no count.
        let count: u64 = count.trim().parse().unwrap_or(u64::from(!id.is_empty()));
        if id.trim() == boot.trim() {
            return Ok(Self { count, same: true });
        }
        let count = count.saturating_add(1);
        let record = format!("{}\n{count}\n", boot.trim());
        durable::write_file(state_dir, BOOT_ID, 0o600, record.as_bytes(), durable::Sync::Now)
            .map_err(system("noting the boot id"))?;
        Ok(Self { count, same: false })
    }
}

fn load_needed(
    generations: &Generations,
    durable: &Durable,
) -> Result<(Option<Prepared>, Option<Prepared>), StartError> {
    let load = |generation: Option<GenerationNumber>, known: Option<&Prepared>| {
        let failed = |generation| move |source| StartError::Generation { generation, source };
        generation.map(|g| generations.fetch(g, true, known).map_err(failed(g))).transpose()
    };
    let (active, going) = durable.needed_generations();
    let active = load(active, None)?;
    let going = load(going, active.as_ref())?;
    Ok((active, going))
}

/// The switch order of an interrupted switch: from the newest of its generations that contains it.
fn order_of_return(
    generations: &Generations,
    active: Option<&Prepared>,
    coming: Option<&Prepared>,
) -> std::sync::Arc<SwitchOrder> {
    let number = |p: Option<&Prepared>| p.map_or(GenerationNumber(0), |p| p.manifest.generation);
    let (from, to) = (number(active), number(coming));
    let left = generations.returned_from().ok().flatten().filter(|left| *left != from);
    let left = left.and_then(|left| generations.manifest(left).ok());
    let at_hand = [coming.filter(|_| to > from), active].into_iter().flatten().map(|p| p.manifest.clone());
    super::orders::order_in(left.into_iter().chain(at_hand), from, active.map(Prepared::id), to)
}

/// Starts the links at the first usable address: a host with a new address may still have the old one.
async fn start_links(
    addresses: &[std::net::SocketAddr],
    config: &impl Fn(std::net::SocketAddr) -> LinkConfig,
    events: mpsc::Sender<LinkEvent>,
) -> Result<Links, LinkError> {
    let mut failed = None;
    for address in addresses {
        match Links::start(config(*address), events.clone()).await {
            Ok(links) => return Ok(links),
            Err(error @ LinkError::Listen { .. }) => failed = failed.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(failed.unwrap_or_else(|| unreachable!("there is an address, or an error before")))
}

/// The addresses of this host in the present manifests, the newest first. `named_by`: the last generation that named
/// the host, if it was removed.
fn own_addresses(
    host: &HostName,
    generations: &Generations,
    active: Option<&Prepared>,
    coming: Option<&Prepared>,
    named_by: Option<GenerationNumber>,
) -> Vec<std::net::SocketAddr> {
    let of = |p: &Prepared| p.addresses().get(host).copied();
    let mut named: Vec<_> = [coming.and_then(of), active.and_then(of)].into_iter().flatten().collect();
    if !named.is_empty() {
        named.dedup();
        return named;
    }
    let left_from = named_by.and_then(|generation| generations.manifest(generation).ok());
    left_from.and_then(|manifest| generations::addresses(&manifest).get(host).copied()).into_iter().collect()
}

/// The folder of the index, and the last record in it. Without an index there is no history; all else works.
fn usable(index: PathBuf, journal: &FileJournal) -> Result<Option<(PathBuf, u64)>, JournalError> {
    match Index::known_beside(&index, journal.last_seq()) {
        Ok(known) => Ok(Some((index, known))),
        Err(error @ IndexError::Ahead { .. }) => Err(journal.lost(error.to_string())),
        Err(error) => {
            warn!(%error, "there is no index; history is not available");
            Ok(None)
        }
    }
}
