//! A cluster of real daemons on loopback, each a process with a state folder of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cob_types::generation::{ManifestHost, Security};
use cob_types::history::HistoryEntry;
use cob_types::status::HostStatus;
use cob_types::{Bundle, Generation, GenerationNumber, HostName, Manifest};
use cobgen::depot::{Depot, Publication, Published};

/// Several daemons, a depot, and a folder that all of it goes with.
pub struct Cluster {
    /// Everything is below it.
    pub dir: tempfile::TempDir,
    program: PathBuf,
    daemons: BTreeMap<String, Option<Child>>,
}

impl Cluster {
    /// A cluster whose daemons are run as `program cobd run …`.
    ///
    /// # Panics
    /// When folders can't be made.
    #[must_use]
    pub fn new(program: &str, hosts: &[&str]) -> Self {
        // Socket paths are short: the folder must be too.
        let base = std::env::var_os("COB_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("cob").tempdir_in(base).expect("a folder");
        let cluster = Self {
            dir,
            program: PathBuf::from(program),
            daemons: hosts.iter().map(|h| ((*h).to_owned(), None)).collect(),
        };
        for host in hosts {
            let config = format!(
                "host = \"{host}\"\ndepot = \"depot\"\nstate_dir = \"{host}\"\nhttp = \"{host}.sock\"\nlog = \"debug,zeromq=info\"\n"
            );
            fs::write(cluster.path(&format!("{host}.toml")), config).expect("a configuration");
        }
        cluster
    }

    /// A path below the cluster's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Publishes the model of a file or folder as the next generation.
    ///
    /// # Panics
    /// When the model is refused.
    pub fn generate(&self, model: &Path) -> GenerationNumber {
        let expansion = cobgen::expand::load(model, &std::collections::BTreeSet::new());
        let draft = expansion.draft.unwrap_or_else(|| {
            panic!(
                "the model is refused:\n{}",
                cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false)
            )
        });
        let depot = Depot::create_or_open(&self.path("depot")).expect("a depot");
        let parent = depot.latest().expect("a depot that can be read").unwrap_or_default();
        let number = GenerationNumber(parent.0 + 1);
        let assembled = cobgen::generation::assemble(&draft, number, parent).expect("fits together");
        let findings = cobgen::check::check(&assembled.generation, Some(&assembled.provenance));
        assert!(findings.iter().all(|f| f.severity != cobgen::check::Severity::Error), "{findings:#?}");
        self.put(&depot, &assembled.generation)
    }

    /// Publishes bundles that were made elsewhere, unchecked, as the next generation; hosts listen on
    /// free ports.
    ///
    /// # Panics
    /// When the depot refuses them.
    pub fn publish(&self, bundles: &BTreeMap<HostName, std::sync::Arc<Bundle>>) -> GenerationNumber {
        let depot = Depot::create_or_open(&self.path("depot")).expect("a depot");
        let parent = depot.latest().expect("a depot that can be read").unwrap_or_default();
        let before = (parent.0 > 0).then(|| depot.read_manifest(parent).expect("its manifest"));
        let ports = free_ports(bundles.len());
        let host = |((name, bundle), port): ((&HostName, &std::sync::Arc<Bundle>), u16)| {
            let bytes = cob_types::codec::encode(&**bundle).expect("encodes");
            let known = before.as_ref().and_then(|m| m.hosts.get(name)?.address.clone());
            let entry = ManifestHost {
                address: Some(known.unwrap_or_else(|| format!("tcp://127.0.0.1:{port}"))),
                bundle: cob_types::canonical::blob_hash(&bytes),
                cobs: bundle.cobs.len() as u64,
            };
            (name.clone(), entry)
        };
        let hosts: BTreeMap<_, _> = bundles.iter().zip(ports).map(host).collect();
        let manifest = Manifest {
            format: cob_types::generation::FORMAT,
            generation: GenerationNumber(parent.0 + 1),
            parent,
            security: Security::LoopbackOnly,
            cobs: hosts.values().map(|h| h.cobs).sum(),
            hosts,
        };
        let bundles = bundles.iter().map(|(h, b)| (h.clone(), (**b).clone())).collect();
        self.put(&depot, &Generation { manifest, bundles })
    }

    fn put(&self, depot: &Depot, generation: &Generation) -> GenerationNumber {
        let author = depot.default_author();
        let (model, provenance) = (&BTreeMap::new(), &[][..]);
        let publication = Publication { generation, model, provenance, message: "", author: &author, time: 0 };
        match depot.publish(&publication).expect("published") {
            Published::New(number) | Published::Unchanged(number) => number,
        }
    }

    /// The process of a host's daemon.
    #[must_use]
    pub fn pid(&self, host: &str) -> Option<u32> {
        self.daemons.get(host)?.as_ref().map(Child::id)
    }

    /// Starts the daemon of a host.
    ///
    /// # Panics
    /// When it can't be executed.
    pub fn start(&mut self, host: &str) {
        let log = File::options().create(true).append(true).open(self.path(&format!("{host}.log"))).expect("a log");
        let child = Command::new(&self.program)
            .args(["cobd", "run", "--config"])
            .arg(self.path(&format!("{host}.toml")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the daemon's program");
        self.daemons.insert(host.to_owned(), Some(child));
    }

    /// Starts all of them.
    pub fn start_all(&mut self) {
        for host in self.hosts() {
            self.start(&host);
        }
        for host in self.hosts() {
            self.until(Duration::from_secs(20), || self.status(&host).is_some(), &format!("{host} answers"));
        }
    }

    /// The hosts' names.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        self.daemons.keys().cloned().collect()
    }

    /// Kills the daemon of a host with SIGKILL; its actions live on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self, host: &str) {
        let child = self.daemons.get_mut(host).and_then(Option::take);
        let mut child = child.unwrap_or_else(|| panic!("{host} does not run"));
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }

    /// Asks the daemon of a host over its Unix socket.
    ///
    /// # Errors
    /// What went wrong, or the answer's status and body when it is not 200.
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

    /// The history of a host.
    ///
    /// # Panics
    /// When the daemon does not tell.
    #[must_use]
    pub fn history(&self, host: &str) -> Vec<HistoryEntry> {
        let text = self.http(host, "GET", "/v1/history?limit=1000000", "").expect("a history");
        text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect()
    }

    /// The history of all hosts, by time.
    #[must_use]
    pub fn merged_history(&self) -> Vec<HistoryEntry> {
        let mut all: Vec<_> = self.hosts().iter().flat_map(|h| self.history(h)).collect();
        all.sort_by_key(|e| (e.ts_ns, e.lamport));
        all
    }

    /// Starts and ends of actions that ended well, in order: `id from -> to`.
    #[must_use]
    pub fn ended_actions(&self, generation: GenerationNumber) -> Vec<String> {
        let ends = self.merged_history().into_iter().filter(|e| e.event == "end" && e.generation == generation);
        ends.map(|e| format!("{} {} -> {}", e.cob.expect("a change object"), e.from.expect("from"), e.to.expect("to")))
            .collect()
    }

    /// Says `go` on one host.
    ///
    /// # Panics
    /// When it is refused.
    pub fn switch(&self, host: &str, generation: GenerationNumber) {
        let body = format!("{{\"generation\": {generation}}}");
        self.http(host, "POST", "/v1/switch", &body).unwrap_or_else(|e| panic!("{host}: {e}"));
    }

    /// Says `go` on every host.
    pub fn switch_all(&self, generation: GenerationNumber) {
        self.hosts().iter().for_each(|h| self.switch(h, generation));
    }

    /// Every host has this generation active and has converged.
    #[must_use]
    pub fn is_converged(&self, generation: GenerationNumber) -> bool {
        self.hosts().iter().all(|h| self.status(h).is_some_and(|s| s.converged && s.generation == Some(generation)))
    }

    /// Waits until all have converged.
    pub fn wait_converged(&self, generation: GenerationNumber, limit: Duration) {
        self.until(limit, || self.is_converged(generation), "all have converged");
    }

    /// Waits for a condition; shows statuses and logs when it does not come true.
    ///
    /// # Panics
    /// When the time is up.
    pub fn until(&self, limit: Duration, what: impl Fn() -> bool, name: &str) {
        let begin = Instant::now();
        while !what() {
            if begin.elapsed() > limit {
                for host in self.hosts() {
                    let log = fs::read_to_string(self.path(&format!("{host}.log"))).unwrap_or_default();
                    let tail: Vec<_> = log.lines().rev().take(40).collect();
                    eprintln!("---- {host}: {:#?}", self.status(&host));
                    tail.iter().rev().for_each(|l| eprintln!("{l}"));
                }
                panic!("after {limit:?} it is not so that {name}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.daemons.values_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The name of a host, for status values.
#[must_use]
pub fn host(name: &str) -> HostName {
    HostName::new(name).expect("well formed")
}

/// Ports on loopback that were free a moment ago.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn free_ports(n: usize) -> Vec<u16> {
    let held: Vec<_> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    held.iter().map(|l| l.local_addr().expect("an address").port()).collect()
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
