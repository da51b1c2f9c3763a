//! A cluster of real daemons on loopback, each a process with its own state folder.
//!
//! Tests create a cluster, publish generations into its depot, start, kill and query its daemons, and wait for
//! conditions. When the cluster is dropped, every process that was started below its folder is killed.
//!
//! Each cluster has its own loopback address (127.0.0.0/8 is wide): outgoing connections use ports of 127.0.0.1, so a
//! killed daemon always finds its port free when it restarts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use cob_trust::{SecretKey, publishers};
use cob_types::generation::{ManifestHost, Security};
use cob_types::history::HistoryEntry;
use cob_types::status::{CobStatus, HostStatus, Phase};
use cob_types::trust::{PublicKey, Signed};
use cob_types::{Bundle, CobId, Generation, GenerationNumber, HostName, Manifest, canonical, codec};
use cobgen::depot::{Depot, Publication, Published};
use cobgen::draft::Draft;
use cobgen::make::{earlier, reach_nothing, ways_back};
use cobgen::switches::give_orders;

use crate::processes;
use crate::wait::comes_true;

/// Several daemons, a depot, and a folder that contains all their files.
pub struct Cluster {
    /// The folder of all files.
    pub dir: tempfile::TempDir,
    program: PathBuf,
    daemons: BTreeMap<String, Option<Child>>,
    address: Ipv4Addr,
    first_port: u16,
    ports: BTreeMap<HostName, u16>,
    /// Whether hosts have keys, and generations are signed.
    security: Security,
    /// The keys that sign further generations; with identities initially the cluster's publisher.
    pub signers: Vec<SecretKey>,
    generations: BTreeMap<GenerationNumber, Generation>,
}

impl Cluster {
    /// A cluster whose daemons are run as `program cobd run …`.
    ///
    /// # Panics
    /// If folders can't be created.
    #[must_use]
    pub fn new(program: &str, hosts: &[&str]) -> Self {
        Self::with(program, hosts, Security::LoopbackOnly)
    }

    /// Like [`Cluster::new`], with a key for every host, links that prove it, and generations signed by a publisher
    /// that every host trusts, each with the previous generation as rollback target.
    ///
    /// # Panics
    /// If folders or keys can't be created.
    #[must_use]
    pub fn with_identities(program: &str, hosts: &[&str]) -> Self {
        Self::with(program, hosts, Security::Identities)
    }

    fn with(program: &str, hosts: &[&str], security: Security) -> Self {
        // Socket paths are short, so the folder's path must be short, too.
        let base = std::env::var_os("COB_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("cob").tempdir_in(base).expect("a folder");
        let (address, first_port) = own_place();
        let mut cluster = Self {
            dir,
            program: PathBuf::from(program),
            daemons: hosts.iter().map(|h| ((*h).to_owned(), None)).collect(),
            address,
            first_port,
            ports: BTreeMap::new(),
            security,
            signers: Vec::new(),
            generations: BTreeMap::new(),
        };
        if security == Security::Identities {
            cluster.signers.push(cluster.publisher());
            hosts.iter().for_each(|host| cluster.store_key(host));
        }
        hosts.iter().for_each(|host| cluster.configure(host, ""));
        cluster
    }

    /// A path below the cluster's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The publisher that the hosts of a cluster with identities trust.
    #[must_use]
    pub fn publisher(&self) -> SecretKey {
        self.key("a publisher")
    }

    /// The key of a host of a cluster with identities.
    #[must_use]
    pub fn host_key(&self, host: &str) -> SecretKey {
        self.key(&format!("host {host}"))
    }

    /// Every cluster has its own keys.
    fn key(&self, of: &str) -> SecretKey {
        SecretKey::from_seed(&canonical::blob_hash(format!("{} {of}", self.dir.path().display()).as_bytes()).0)
    }

    fn store_key(&self, host: &str) {
        let folder = self.path(host);
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("a state folder");
        self.host_key(host).store(&folder.join("identity.key")).expect("a key");
    }

    /// Writes the configuration of a host's daemon, with further lines.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn configure(&self, host: &str, more: &str) {
        let trust = match self.security {
            Security::LoopbackOnly => String::new(),
            Security::Identities => format!("trust = [\"{}\"]\n", self.publisher().public()),
        };
        let config = format!(
            "host = \"{host}\"\ndepot = \"depot\"\nstate_dir = \"{host}\"\nhttp = \"{host}.sock\"\n\
             log = \"debug,zeromq=info\"\n{trust}{more}\n"
        );
        fs::write(self.path(&format!("{host}.toml")), config).expect("a configuration");
    }

    /// The listening address of a host.
    ///
    /// # Panics
    /// If no model has named the host yet.
    #[must_use]
    pub fn address(&self, host: &str) -> SocketAddr {
        let port = self.ports.get(host).unwrap_or_else(|| panic!("no model has named {host} yet"));
        SocketAddr::from((self.address, *port))
    }
}

/// Models and generations.
impl Cluster {
    /// Writes a model's files into a folder of the cluster; scripts are made executable.
    ///
    /// # Panics
    /// If the files can't be written.
    pub fn write_model(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.path(name);
        fs::create_dir_all(&folder).expect("a folder");
        for (file, text) in files {
            let path = folder.join(file);
            fs::write(&path, text).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(if file.ends_with(".sh") { 0o755 } else { 0o644 });
            fs::set_permissions(&path, mode).expect("set");
        }
        folder
    }

    /// A copy of an example of this repository, which the test may change.
    ///
    /// # Panics
    /// If it can't be copied.
    #[must_use]
    pub fn copy_example(&self, name: &str) -> PathBuf {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
        let to = self.path(name);
        copy_folder(&from, &to);
        to
    }

    /// Loads a model and gives its hosts addresses of this cluster.
    ///
    /// # Panics
    /// If the model is refused.
    pub fn load(&mut self, model: &Path) -> Draft {
        let expansion = cobgen::expand::load(model, &std::collections::BTreeSet::new());
        let mut draft = expansion.draft.unwrap_or_else(|| {
            panic!(
                "the model is refused:\n{}",
                cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false)
            )
        });
        draft.security = self.security;
        for (host, entry) in &mut draft.hosts {
            entry.value.address = Some(self.give_address(host));
            entry.value.keys = self.keys_of(host);
        }
        draft
    }

    fn keys_of(&self, host: &HostName) -> Vec<PublicKey> {
        match self.security {
            Security::LoopbackOnly => Vec::new(),
            Security::Identities => vec![self.host_key(host.as_str()).public()],
        }
    }

    fn give_address(&mut self, host: &HostName) -> String {
        let next = self.first_port + u16::try_from(self.ports.len()).expect("few hosts");
        let port = *self.ports.entry(host.clone()).or_insert(next);
        format!("tcp://{}:{port}", self.address)
    }

    /// Publishes the model of a file or folder as the next generation.
    ///
    /// # Panics
    /// If the model is refused.
    pub fn generate(&mut self, model: &Path) -> GenerationNumber {
        let draft = self.load(model);
        self.publish_draft(&draft)
    }

    /// Publishes a draft as the next generation.
    ///
    /// # Panics
    /// If the generator refuses it.
    pub fn publish_draft(&mut self, draft: &Draft) -> GenerationNumber {
        self.make(draft, true)
    }

    /// Publishes a draft that the generator's check would refuse.
    ///
    /// # Panics
    /// If it can't even be assembled.
    pub fn publish_unchecked(&mut self, draft: &Draft) -> GenerationNumber {
        self.make(draft, false)
    }

    fn make(&mut self, draft: &Draft, checked: bool) -> GenerationNumber {
        let (depot, parent) = self.depot();
        let number = GenerationNumber(parent.0 + 1);
        let assembled = cobgen::generation::assemble(draft.clone(), number, parent).expect("fits together");
        if checked {
            let findings = cobgen::check::check(&assembled.generation, Some(&assembled.provenance));
            assert!(findings.iter().all(|f| f.severity != cobgen::diagnostic::Severity::Error), "{findings:#?}");
        }
        self.put(&depot, assembled.generation)
    }

    /// Publishes existing bundles, unchecked, as the next generation.
    ///
    /// # Panics
    /// If the depot refuses them.
    pub fn publish(&mut self, bundles: &BTreeMap<HostName, Arc<Bundle>>) -> GenerationNumber {
        let (depot, parent) = self.depot();
        let host = |(name, bundle): (&HostName, &Arc<Bundle>)| {
            let bytes = codec::encode(&**bundle).expect("encodes");
            let address = Some(self.give_address(name));
            let cobs = bundle.cobs.len() as u64;
            let keys = self.keys_of(name);
            (name.clone(), ManifestHost { address, keys, bundle: canonical::blob_hash(&bytes), cobs })
        };
        let hosts: BTreeMap<_, _> = bundles.iter().map(host).collect();
        let cobs = hosts.values().map(|h| h.cobs).sum();
        let number = GenerationNumber(parent.0 + 1);
        let manifest = Manifest { hosts, cobs, ..Manifest::empty(number, parent, self.security) };
        let bundles = bundles.iter().map(|(h, b)| (h.clone(), (**b).clone())).collect();
        self.put(&depot, Generation { manifest, bundles })
    }

    /// The depot, and the number of its newest generation.
    ///
    /// # Panics
    /// If it can't be opened.
    #[must_use]
    pub fn depot(&self) -> (Depot, GenerationNumber) {
        let depot = Depot::create_or_open(&self.path("depot")).expect("a depot");
        let latest = depot.latest().expect("a depot that can be read").unwrap_or_default();
        (depot, latest)
    }

    /// Publishes a generation as it is, with the switch orders and the rollback targets; with identities it is signed.
    ///
    /// # Panics
    /// If the depot refuses it, or hosts could not switch to it.
    pub fn put(&mut self, depot: &Depot, mut generation: Generation) -> GenerationNumber {
        let parent = generation.manifest.parent;
        if generation.manifest.back.is_empty() {
            let earlier = earlier(depot, parent).expect("a depot that can be read");
            generation.manifest.back = ways_back(&generation.manifest, &earlier, reach_nothing(&earlier));
        }
        if generation.manifest.switches.is_empty() {
            let before = match parent {
                GenerationNumber(0) => Generation::nothing(),
                parent => depot.read(parent).expect("the generation before"),
            };
            let said = give_orders(&mut generation, &before, Some(depot)).expect("a depot that can be read");
            assert!(said.is_empty(), "{said:#?}");
        }
        let bytes = codec::encode(&generation.manifest).expect("encodes");
        let signatures: Vec<Signed> = self.signers.iter().map(|key| publishers::sign(key, &bytes)).collect();
        let author = depot.default_author();
        let (model, provenance) = (&BTreeMap::new(), &[][..]);
        let publication = Publication {
            generation: &generation,
            model,
            provenance,
            message: "",
            author: &author,
            time: 0,
            signatures: &signatures,
        };
        let (Published::New(number) | Published::Unchanged(number)) = depot.publish(&publication).expect("published");
        self.generations.entry(number).or_insert(generation);
        number
    }

    /// All generations published so far.
    #[must_use]
    pub fn generations(&self) -> &BTreeMap<GenerationNumber, Generation> {
        &self.generations
    }
}

/// Daemons as processes.
impl Cluster {
    /// Starts the daemon of a host.
    ///
    /// # Panics
    /// If it can't be executed.
    pub fn start(&mut self, host: &str) {
        self.start_as(host, |_| {});
    }

    /// Starts the daemon of a host with another environment, or other changes to the command.
    ///
    /// # Panics
    /// If it can't be executed.
    pub fn start_as(&mut self, host: &str, change: impl FnOnce(&mut Command)) {
        let mut command = self.command(host);
        change(&mut command);
        let child = command.spawn().expect("the daemon's program");
        self.daemons.insert(host.to_owned(), Some(child));
    }

    fn command(&self, host: &str) -> Command {
        let log = File::options().create(true).append(true).open(self.path(&format!("{host}.log"))).expect("a log");
        // Like a first-time user: every path in the configuration is relative, and so is its own path.
        let mut command = Command::new(&self.program);
        command.args(["cobd", "run", "--config", &format!("{host}.toml")]).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// Starts all daemons.
    pub fn start_all(&mut self) {
        for host in self.hosts() {
            self.start(&host);
        }
        for host in self.hosts() {
            self.wait_answers(&host);
        }
    }

    /// Starts all daemons, orders the switch on every host, and waits until all have converged.
    pub fn bring_up(&mut self, generation: GenerationNumber, limit: Duration) {
        self.start_all();
        self.switch_all(generation);
        self.wait_converged(generation, limit);
    }

    /// Waits until a daemon answers.
    pub fn wait_answers(&self, host: &str) {
        self.until(Duration::from_secs(20), || self.status(host).is_some(), &format!("{host} answers"));
    }

    /// Starts a daemon that can't come up, and returns its output.
    ///
    /// # Panics
    /// If it comes up, or does not end.
    #[must_use]
    pub fn start_in_vain(&self, host: &str) -> (ExitStatus, String) {
        let before = self.log(host).len();
        let child = self.command(host).spawn().expect("the daemon's program");
        let status = self.wait_ended(child, host);
        (status, self.log(host)[before..].to_owned())
    }

    /// Waits until a daemon has ended by itself, and returns its exit status.
    ///
    /// # Panics
    /// If it was not running, or does not end.
    pub fn wait_stopped(&mut self, host: &str) -> ExitStatus {
        let child = self.take(host);
        self.wait_ended(child, host)
    }

    fn wait_ended(&self, mut child: Child, host: &str) -> ExitStatus {
        let mut status = None;
        comes_true(Duration::from_secs(20), || {
            status = child.try_wait().expect("waited for");
            status.is_some()
        });
        status.unwrap_or_else(|| {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the daemon of {host} does not end:\n{}", self.log(host));
        })
    }

    /// Kills the daemon of a host with SIGKILL; its actions live on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self, host: &str) {
        let mut child = self.take(host);
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }

    /// Lets the daemon of a host crash, as a defect would, and returns its exit status; its actions live on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn crash(&mut self, host: &str) -> ExitStatus {
        let child = self.take(host);
        processes::signal(child.id(), processes::Signal::ABORT);
        self.wait_ended(child, host)
    }

    /// Asks the daemon of a host to end, as an init system does, and waits for it.
    ///
    /// # Panics
    /// If it does not run, or exits with an error.
    pub fn stop(&mut self, host: &str) {
        let child = self.take(host);
        processes::signal(child.id(), processes::Signal::TERM);
        let status = self.wait_ended(child, host);
        assert!(status.success(), "{host}: {status}\n{}", self.log(host));
    }

    fn take(&mut self, host: &str) -> Child {
        let child = self.daemons.get_mut(host).and_then(Option::take);
        child.unwrap_or_else(|| panic!("{host} does not run"))
    }

    /// The process of a host's daemon.
    #[must_use]
    pub fn pid(&self, host: &str) -> Option<u32> {
        self.daemons.get(host)?.as_ref().map(Child::id)
    }

    /// The hosts' names.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        self.daemons.keys().cloned().collect()
    }

    /// The log of a host's daemon, over all its incarnations.
    #[must_use]
    pub fn log(&self, host: &str) -> String {
        fs::read_to_string(self.path(&format!("{host}.log"))).unwrap_or_default()
    }
}

/// Queries and orders.
impl Cluster {
    /// Sends a request to the daemon of a host over its Unix socket.
    ///
    /// # Errors
    /// The failure, or the answer's status and body if the status is not 200.
    pub fn http(&self, host: &str, method: &str, path: &str, body: &str) -> Result<String, String> {
        let text = |e: std::io::Error| e.to_string();
        let mut stream = UnixStream::connect(self.path(&format!("{host}.sock"))).map_err(text)?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(text)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(text)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(text)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunk(body) } else { body.to_owned() };
        if head.starts_with("HTTP/1.1 200") { Ok(body) } else { Err(format!("{head}\n{body}")) }
    }

    /// The status of a host, if its daemon answers.
    #[must_use]
    pub fn status(&self, host: &str) -> Option<HostStatus> {
        serde_json::from_str(&self.http(host, "GET", "/v1/status", "").ok()?).ok()
    }

    /// The status of a host, with a line for each change object; those in their desired state come last.
    fn summary(&self, host: &str) -> String {
        let Some(mut status) = self.status(host) else { return "no answer".to_owned() };
        status.cobs.sort_by_key(|cob| cob.phase == Phase::Settled);
        let cobs: String = status.cobs.drain(..).map(|cob| format!("{cob:?}\n")).collect();
        format!("{cobs}{status:?}")
    }

    /// The status of a change object, if its daemon answers and has it.
    #[must_use]
    pub fn cob(&self, id: &str) -> Option<CobStatus> {
        let host = CobId::new(id).expect("an id").host();
        self.status(host.as_str())?.cobs.into_iter().find(|c| c.id.as_str() == id)
    }

    /// The history of a host, from its start.
    ///
    /// # Panics
    /// If the daemon does not answer.
    #[must_use]
    pub fn history(&self, host: &str) -> Vec<HistoryEntry> {
        let mut all: Vec<HistoryEntry> = Vec::new();
        loop {
            let since = all.last().map_or(0, |e| e.seq + 1);
            let text = self.http(host, "GET", &format!("/v1/history?since={since}&limit=10000"), "");
            let text = text.expect("a history");
            let before = all.len();
            all.extend(text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))));
            if all.len() - before < 10_000 {
                return all;
            }
        }
    }

    /// The history of all hosts, by time.
    #[must_use]
    pub fn merged_history(&self) -> Vec<HistoryEntry> {
        let mut all: Vec<_> = self.hosts().iter().flat_map(|h| self.history(h)).collect();
        all.sort_by_key(|e| (e.ts_ns, e.lamport));
        all
    }

    /// Ends of actions, in order: `id from -> to`. Of all generations: a request of a switching host may move a change
    /// object of another host before that host switches.
    #[must_use]
    pub fn ended_actions(&self) -> Vec<String> {
        let ends = self.merged_history().into_iter().filter(|e| e.event == "end");
        ends.map(|e| format!("{} {} -> {}", e.cob.expect("a change object"), e.from.expect("from"), e.to.expect("to")))
            .collect()
    }

    /// Orders the switch on a host.
    ///
    /// # Panics
    /// If it is refused.
    pub fn switch(&self, host: &str, generation: GenerationNumber) {
        let body = format!("{{\"generation\": {generation}}}");
        self.http(host, "POST", "/v1/switch", &body).unwrap_or_else(|e| panic!("{host}: {e}"));
    }

    /// Orders the switch on every host.
    pub fn switch_all(&self, generation: GenerationNumber) {
        self.hosts().iter().for_each(|h| self.switch(h, generation));
    }

    /// Whether every host has this generation active and has converged.
    #[must_use]
    pub fn is_converged(&self, generation: GenerationNumber) -> bool {
        self.hosts().iter().all(|h| self.status(h).is_some_and(|s| s.converged && s.generation == Some(generation)))
    }

    /// Waits until all have converged.
    pub fn wait_converged(&self, generation: GenerationNumber, limit: Duration) {
        self.until(limit, || self.is_converged(generation), "all have converged");
    }

    /// Waits for a condition; shows statuses and logs if it does not come true.
    ///
    /// # Panics
    /// If the time is up.
    pub fn until(&self, limit: Duration, what: impl Fn() -> bool, name: &str) {
        if comes_true(limit, what) {
            return;
        }
        for host in self.hosts() {
            let log = self.log(&host);
            let tail: Vec<_> = log.lines().rev().take(40).collect();
            eprintln!("---- {host}: {}", self.summary(&host));
            tail.iter().rev().for_each(|l| eprintln!("{l}"));
        }
        panic!("after {limit:?} it is not so that {name}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.daemons.values_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Runners, actions and services outlive their daemons, but not the test.
        let folder = self.dir.path().display().to_string();
        processes::mentioning(&folder).into_iter().for_each(|pid| processes::signal(pid, processes::Signal::KILL));
    }
}

/// The address of a new cluster: an address of 127.0.0.0/8 and the first of its ports, which no other cluster of this
/// machine has. Process ids have at most 22 bits, so an address distinguishes four clusters of a process; the next four
/// get other ports.
fn own_place() -> (Ipv4Addr, u16) {
    static CLUSTERS: AtomicU16 = AtomicU16::new(0);
    let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let fourth = u8::try_from(cluster % 4).expect("less than four");
    (Ipv4Addr::new(127, (high & 0x3f) | (fourth << 6), middle, low), 7001 + cluster / 4 * 64)
}

/// The name of a host, for status values.
///
/// # Panics
/// If the name is not valid.
#[must_use]
pub fn host(name: &str) -> HostName {
    HostName::new(name).expect("well formed")
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// Copies a folder with all its content.
///
/// # Panics
/// If it can't be copied.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let (path, to) = entry.map(|e| (e.path(), to.join(e.file_name()))).expect("an entry");
        if path.is_dir() {
            copy_folder(&path, &to);
        } else {
            fs::copy(&path, &to).expect("copied");
        }
    }
}
