//! A depot over the network: hosts are admitted with tokens, and get only their own data.
//!
//! Real programs on their own loopback address: `cobgen serve`, `cobgen enroll`, `cobd join`. Attacks of strangers use
//! the same TLS as the programs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cob_tests::processes;
use cob_tests::wait::comes_true;
use cob_trust::SecretKey;
use cob_trust::tls::{HTTP, Identity, client, name};
use cob_types::canonical::blob_hash;
use cob_types::generation::{ManifestHost, Security};
use cob_types::remote::ENROL;
use cob_types::{Bundle, Generation, GenerationNumber, HostName, Manifest, PublicKey, codec};
use cobgen::depot::{Depot, Publication, enrolled};
use serde_json::Value;

/// A depot, its server, and a folder that contains all files.
pub(crate) struct Site {
    _dir: Option<tempfile::TempDir>,
    folder: PathBuf,
    depot: &'static str,
    server: Option<Child>,
    address: SocketAddr,
    key: PublicKey,
}

impl Site {
    /// Starts the server with further options; no program has the publisher's key.
    pub(crate) fn new(more: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("cobe").tempdir().expect("a folder");
        let depot = dir.path().join("depot");
        drop(Depot::create_or_open(&depot).expect("made"));
        let publisher = SecretKey::from_seed(&[77; 32]).public();
        fs::write(depot.join("trust.toml"), format!("trust = [\"{publisher}\"]\n")).expect("written");
        let address = "127.0.0.1:0".parse().expect("an address");
        let folder = dir.path().to_owned();
        let mut site = Self { _dir: Some(dir), folder, depot: "depot", server: None, address, key: publisher };
        site.serve(more);
        site
    }

    /// Serves an existing depot, on a free port.
    fn of(folder: &Path, depot: &'static str) -> Self {
        let address = "127.0.0.1:0".parse().expect("an address");
        let key = PublicKey([0; 32]);
        let mut site = Self { _dir: None, folder: folder.to_owned(), depot, server: None, address, key };
        site.serve(&[]);
        site
    }

    fn serve(&mut self, more: &[&str]) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).expect("a log");
        let listen = format!("tcp://{}", self.address);
        let mut server = self
            .program("cobgen", &["serve", "--depot", self.depot, "--listen", &listen])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the program");
        let mut said = String::new();
        let out = server.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut said).expect("a line");
        self.server = Some(server);
        let words: Vec<&str> = said.split_whitespace().collect();
        let at =
            words.iter().find_map(|w| w.strip_prefix("tcp://")).unwrap_or_else(|| panic!("{said}\n{}", self.log()));
        self.address = at.parse().expect("an address");
        self.key = words.last().expect("the key").parse().expect("a key");
    }

    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            processes::signal(server.id(), processes::Signal::TERM);
            let status = server.wait().expect("ended");
            assert!(status.success(), "{status}");
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn server_key(&self) -> PublicKey {
        self.key
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("a log")
    }

    fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
        command.arg(program).args(args).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, program: &str, args: &[&str]) -> Output {
        self.program(program, args).output().expect("the program")
    }

    /// The arguments of the command that enrols a host.
    pub(crate) fn enroll(&self, host: &str, expires: &str) -> Vec<String> {
        let server = format!("tcp://{}", self.address);
        let output =
            self.run("cobgen", &["enroll", host, "--depot", self.depot, "--server", &server, "--expires", expires]);
        assert!(output.status.success(), "{output:?}");
        words(&String::from_utf8(output.stdout).expect("UTF-8"))
    }

    /// Runs that command for a host whose files are below `folder`.
    pub(crate) fn join(&self, command: &[String], folder: &str) -> Output {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        let (config, state) = (format!("{folder}/cobd.toml"), format!("{folder}/state"));
        args.extend(["--config", &config, "--state-dir", &state, "--wait", "0"]);
        self.run("cobd", &args)
    }

    fn refused(&self, command: &[String], folder: &str, words: &str) {
        let output = self.join(command, folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{words:?} is not in {said}");
        assert!(!self.path(folder).join("cobd.toml").exists(), "no configuration is written");
    }

    pub(crate) fn list(&self) -> Value {
        let output = self.run("cobgen", &["enroll", "--list", "--json", "--depot", "depot"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn key_of(&self, folder: &str) -> SecretKey {
        SecretKey::load(&self.path(folder).join("state/identity.key")).expect("a key")
    }

    pub(crate) fn enrolled(&self) -> Vec<String> {
        enrolled::read(&self.path("depot")).expect("read").into_keys().map(|h| h.as_str().to_owned()).collect()
    }

    /// Sends a request with this host key; returns the status and the body, or `None` if the connection was refused.
    fn ask(&self, key: &SecretKey, alpn: &[u8], request: &str) -> Option<(u16, Vec<u8>)> {
        self.send(key, alpn, request)?.answer()
    }

    /// Sends a request, or returns `None` if the connection was refused.
    fn send(&self, key: &SecretKey, alpn: &[u8], request: &str) -> Option<Asked> {
        let identity = Identity::new(key).expect("a certificate");
        let config = client(Some(&identity), &[self.key], alpn).expect("settings");
        let tls = rustls::ClientConnection::new(config, name()).expect("a client");
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(crate::PATIENCE)).expect("set");
        let mut asked = Asked(rustls::StreamOwned::new(tls, stream));
        asked.0.write_all(request.as_bytes()).ok()?;
        Some(asked)
    }

    pub(crate) fn get(&self, key: &SecretKey, path: &str) -> Option<(u16, Vec<u8>)> {
        self.ask(key, HTTP, &get(path))
    }

    /// Publishes a generation of these hosts with empty bundles.
    pub(crate) fn publish(&self, hosts: &[(&str, &SecretKey)], revoked: &[PublicKey]) -> GenerationNumber {
        let depot = Depot::open(&self.path("depot")).expect("opened");
        let parent = depot.latest().expect("read").unwrap_or_default();
        let number = GenerationNumber(parent.0 + 1);
        let mut manifest = Manifest::empty(number, parent, Security::Identities);
        manifest.revoked.extend(revoked);
        let mut bundles = std::collections::BTreeMap::new();
        for (host, key) in hosts {
            let host = HostName::new(host).expect("a name");
            let bundle = Bundle::empty(host.clone());
            let hash = blob_hash(&codec::encode(&bundle).expect("encodes"));
            let entry = ManifestHost { address: None, keys: vec![key.public()], bundle: hash, cobs: 0 };
            manifest.hosts.insert(host.clone(), entry);
            bundles.insert(host, bundle);
        }
        let generation = Generation { manifest, bundles };
        let author = depot.default_author();
        let publication = Publication {
            generation: &generation,
            model: &std::collections::BTreeMap::new(),
            provenance: b"",
            message: "",
            author: &author,
            time: 0,
            signatures: &[],
        };
        depot.publish(&publication).expect("published");
        number
    }

    /// Waits until a condition holds.
    pub(crate) fn until(&self, what: &str, so: impl Fn() -> bool) {
        assert!(comes_true(crate::PATIENCE, so), "it is not so that {what}:\n{}", self.log());
    }
}

/// A sent request.
struct Asked(rustls::StreamOwned<rustls::ClientConnection, TcpStream>);

impl Asked {
    /// The status and the body, or `None` if the connection was refused.
    fn answer(mut self) -> Option<(u16, Vec<u8>)> {
        let mut answer = Vec::new();
        let end = self.0.read_to_end(&mut answer);
        if answer.is_empty() {
            assert!(end.is_err(), "an answer without a word");
            return None;
        }
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let status = String::from_utf8_lossy(&answer[9..12]).parse().expect("a status");
        Some((status, answer.split_off(head + 4)))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// The arguments of a command after the program's name.
fn words(command: &str) -> Vec<String> {
    command.split_whitespace().skip(1).map(str::to_owned).collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

#[test]
fn a_host_joins_with_a_token_that_is_good_once() {
    let site = Site::new(&[]);
    let command = site.enroll("h1", "1h");
    let tokens = text(&site.path("depot/tokens.json"));
    let secret = command[2].split('.').nth(2).expect("the secret");
    assert!(!tokens.contains(secret), "the secret is not kept");
    let output = site.join(&command, "h1");
    assert!(output.status.success(), "{output:?}\n{}", site.log());
    let config = cobd::config::Config::read(&site.path("h1/cobd.toml")).expect("in order");
    assert_eq!(config.host.as_str(), "h1");
    assert_eq!(config.trust.map(|t| t.keys().len()), Some(1));
    let written = text(&site.path("h1/cobd.toml"));
    assert!(written.contains(&format!("depot_key = \"{}\"", site.key)), "{written}");
    assert_eq!(site.enrolled(), ["h1"]);

    // Again, by the same host: no change. By a thief: refused, counted, and logged once.
    assert!(site.join(&command, "h1").status.success());
    fs::remove_file(site.path("h1/cobd.toml")).expect("removed");
    assert!(site.join(&command, "h1").status.success(), "its answer may have been lost");
    assert_eq!(text(&site.path("h1/cobd.toml")), written);
    for _ in 0..3 {
        site.refused(&command, "thief", "already used with another key");
    }
    assert_eq!(site.list()["tokens"][0]["refused"], 3);
    assert_eq!(site.log().matches("already used").count(), 1, "{}", site.log());
    assert!(site.get(&site.key_of("thief"), "/v1/generations").is_none());
    assert_eq!(site.enrolled(), ["h1"]);

    // A configuration of another cluster is not changed.
    fs::create_dir(site.path("h2")).expect("made");
    fs::write(site.path("h2/cobd.toml"), "host = \"h2\"\ndepot = \"/elsewhere\"\n").expect("written");
    let output = site.join(&site.enroll("h2", "1h"), "h2");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is left alone"), "{output:?}");
    assert_eq!(site.enrolled(), ["h1"]);
}

#[test]
fn a_lost_host_enrols_with_a_new_key_and_the_old_is_revoked() {
    let site = Site::new(&[]);
    assert!(site.join(&site.enroll("h1", "1h"), "h1").status.success());
    let (old, config) = (site.key_of("h1"), text(&site.path("h1/cobd.toml")));
    // The old key is in a generation, as usual after some time.
    site.publish(&[("h1", &old)], &[]);
    site.until("the old key counts", || site.get(&old, "/v1/generations/1/bundle").is_some());

    fs::remove_dir_all(site.path("h1/state")).expect("lost");
    let server = format!("tcp://{}", site.address);
    let output = site.run("cobgen", &["enroll", "h1", "--depot", "depot", "--server", &server]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("h1 has enrolled before, with {}", old.public())), "{said}");
    let command = words(&String::from_utf8(output.stdout).expect("UTF-8"));
    let output = site.join(&command, "h1");
    assert!(output.status.success(), "{output:?}\n{}", site.log());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let new = site.key_of("h1");
    assert!(said.contains("had lost its key") && said.contains(&new.public().to_string()), "{said}");
    assert_ne!(new.public(), old.public());
    assert_eq!(text(&site.path("h1/cobd.toml")), config, "the configuration is left as it was");
    assert!(site.log().contains(&format!("its former key {} is revoked", old.public())), "{}", site.log());

    assert!(
        site.get(&old, "/v1/generations").is_none(),
        "the old key is good for nothing, although a manifest names it"
    );
    assert!(site.get(&new, "/v1/generations").is_some());
    // The old key can't enrol again, and a member keeps its key.
    fs::create_dir_all(site.path("thief/state")).expect("made");
    fs::remove_file(site.path("h1/state/identity.key")).expect("lost again");
    assert!(site.join(&site.enroll("h1", "1h"), "h1").status.success());
    assert!(site.get(&new, "/v1/generations").is_none(), "it was replaced, too");
    assert!(String::from_utf8_lossy(&site.join(&command, "h1").stdout).contains("is a member already"));
    let accept = ["enroll", "--depot", "depot", "--accept", "h1", &old.public().to_string()];
    let output = site.run("cobgen", &accept);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("is revoked: delete the key file on the host"),
        "{output:?}"
    );
}

#[test]
fn tokens_that_are_late_altered_or_of_another_server_are_refused() {
    let site = Site::new(&[]);
    let other = Site::new(&[]);
    let late = site.enroll("h1", "1s");
    site.until("the token has expired", || site.list()["tokens"][0]["state"] == "expired");
    site.refused(&late, "h1", "has expired");

    let good = site.enroll("h2", "1h");
    let mut renamed = good.clone();
    renamed[2] = format!("{}0", good[2]);
    site.refused(&renamed, "h2", "the token is not for h20");
    let mut guessed = good.clone();
    guessed[2] = other.enroll("h2", "1h")[2].clone();
    guessed[2] =
        guessed[2].replace(guessed[2].split('.').nth(1).expect("key"), good[2].split('.').nth(1).expect("key"));
    site.refused(&guessed, "h2", "this server did not issue the token");
    assert_eq!(site.list()["unknown"], 1);

    // The token pins the server: no data is sent to another server, and the token stays valid.
    let mut lured = good.clone();
    lured[1] = format!("tcp://{}", other.address);
    site.refused(&lured, "h2", "does not hold the key");
    assert_eq!(other.list()["unknown"], 0);
    assert!(site.join(&good, "h2").status.success());
    assert_eq!(site.enrolled(), ["h2"]);
}

#[test]
fn a_person_accepts_keys_where_that_is_asked_for() {
    let publisher = SecretKey::from_seed(&[78; 32]).public();
    let site = Site::new(&["--policy", "manual", "--trust", &publisher.to_string()]);
    let command = site.enroll("h1", "1h");
    site.refused(&command, "h1", "is not accepted yet");
    assert_eq!(site.list()["tokens"][0]["state"], "waits");
    let key = site.key_of("h1");
    assert!(site.get(&key, "/v1/generations").is_none(), "not yet");
    let accept = |args: &[&str]| site.run("cobgen", &[&["enroll", "--depot", "depot", "--accept"], args].concat());
    assert_eq!(accept(&["h9"]).status.code(), Some(1));
    assert!(accept(&["h1"]).status.success());
    assert!(site.join(&command, "h1").status.success());
    let trust = cobd::config::Config::read(&site.path("h1/cobd.toml")).expect("in order").trust.expect("named");
    assert_eq!(trust.keys(), &[publisher].into(), "what is said at the start counts, not the file");
    site.until("h1 is known", || site.get(&key, "/v1/generations").is_some());

    let brought = SecretKey::generate().expect("made");
    assert!(accept(&["h2", &brought.public().to_string()]).status.success());
    site.until("h2 is known", || site.get(&brought, "/v1/generations").is_some());
    assert_eq!(site.enrolled(), ["h1", "h2"]);
}

#[test]
fn a_host_gets_only_its_own_bundle() {
    let site = Site::new(&[]);
    for host in ["h1", "h2"] {
        let output = site.join(&site.enroll(host, "1h"), host);
        assert!(output.status.success(), "{output:?}");
    }
    let (h1, h2, stranger) = (site.key_of("h1"), site.key_of("h2"), SecretKey::generate().expect("made"));
    let (_, body) = site.get(&h1, "/v1/generations").expect("let in");
    let empty: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((&empty["host"], &empty["newest"]), (&Value::from("h1"), &Value::Null));

    // A waiting host gets the next generation when it is published. The answer to another host comes first: by then the
    // server has the first request.
    let waiting = site.send(&h1, HTTP, &get("/v1/generations?after=0&wait=50")).expect("sent");
    site.get(&h2, "/v1/generations").expect("let in");
    let begin = Instant::now();
    site.publish(&[("h1", &h1), ("h2", &h2)], &[]);
    let (_, body) = waiting.answer().expect("let in");
    assert_eq!(serde_json::from_slice::<Value>(&body).expect("JSON")["newest"], 1);
    assert!(begin.elapsed() < Duration::from_secs(45));
    for (key, host) in [(&h1, "h1"), (&h2, "h2")] {
        let (status, bytes) = site.get(key, "/v1/generations/1/bundle").expect("let in");
        let bundle: Bundle = codec::decode(&bytes, 1 << 20).expect("a bundle");
        assert_eq!((status, bundle.host.as_str()), (200, host));
        let (_, manifest) = site.get(key, "/v1/generations/1/manifest").expect("let in");
        assert_eq!(codec::decode::<Manifest>(&manifest, 1 << 20).expect("a manifest").hosts.len(), 2);
        assert_eq!(site.get(key, "/v1/generations/1/signatures").expect("let in"), (200, b"[]".to_vec()));
    }
    for path in [
        "/v1/generations/1/bundle/h2",
        "/v1/generations/1/bundles/h2.cbor",
        "/v1/generations/1/model",
        "/v1/generations/1/provenance",
        "/v1/generations/../tokens.json",
        "/tokens.json",
        "/v1/enrol",
        "/v1/generations/9/bundle",
    ] {
        let (status, body) = site.get(&h1, path).expect("let in");
        assert_eq!(status, 404, "{path}: {}", String::from_utf8_lossy(&body));
    }
    assert_eq!(site.get(&h1, "/v1/generations?host=h2").expect("let in").0, 400);
    assert!(site.get(&stranger, "/v1/generations/1/manifest").is_none());
    // A host in enrolment can't request any data.
    assert_eq!(site.ask(&stranger, ENROL, &get("/v1/generations/1/manifest")).expect("an answer").0, 404);

    // A revoked key is refused, regardless of its earlier status.
    site.publish(&[("h1", &h1)], &[h2.public()]);
    site.until("the revoked key is refused", || site.get(&h2, "/v1/generations/1/bundle").is_none());
    assert!(site.get(&h1, "/v1/generations/2/bundle").is_some());
    // Each type of refusal is logged once, for any number of invented keys.
    for n in 0..20 {
        assert!(site.get(&h2, "/v1/generations").is_none());
        assert!(site.get(&SecretKey::from_seed(&[100 + n; 32]), "/v1/generations").is_none());
    }
    let log = site.log();
    let said = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!(said(&format!("its key {} was revoked", h2.public())), 1, "{log}");
    assert_eq!((said("does not belong to a known host"), said("was closed")), (1, 2), "{log}");
}

#[test]
fn five_hundred_silent_connections_do_not_block_an_enrolment() {
    let site = Site::new(&[]);
    let command = site.enroll("h1", "1h");
    let silent: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(site.address).expect("connected")).collect();
    let output = site.join(&command, "h1");
    assert!(output.status.success(), "{output:?}\n{}", site.log());
    let key = site.key_of("h1");
    assert!(site.get(&key, "/v1/generations").is_some());
    let server = site.server.as_ref().expect("runs").id();
    let files = || fs::read_dir(format!("/proc/{server}/fd")).expect("listed").count();
    assert!(files() < 200, "{} files are open", files());
    // Incomplete handshakes and noise cost no more.
    for n in 0..200_u32 {
        let mut stream = TcpStream::connect(site.address).expect("connected");
        let noise: &[u8] =
            if n % 2 == 0 { &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3] } else { b"GET / HTTP/1.1\r\n\r\n" };
        let _ = stream.write_all(noise);
    }
    assert!(site.get(&key, "/v1/generations").is_some());
    drop(silent);
    site.until("all is closed again", || files() < 30);
    assert!(processes::resident_kib(server) < 100 << 10, "{} KiB", processes::resident_kib(server));
    assert!(site.log().lines().count() < 30, "{}", site.log());
}

#[test]
fn a_restarted_server_keeps_its_key_and_its_hosts() {
    let mut site = Site::new(&[]);
    let command = site.enroll("h1", "1h");
    assert!(site.join(&command, "h1").status.success());
    let (key, host) = (site.key, site.key_of("h1"));
    site.stop();
    let remote = match cobd::config::Config::read(&site.path("h1/cobd.toml")).expect("in order").depot {
        cobd::source::Source::Server(remote) => remote,
        cobd::source::Source::Folder(folder) => panic!("{}", folder.display()),
    };
    let away = remote.newest().expect_err("nobody is there").to_string();
    assert!(away.contains("can't reach `cobgen serve`"), "{away}");
    site.serve(&[]);
    assert_eq!(site.key, key);
    assert_eq!(remote.newest().expect("there again"), None);
    site.publish(&[("h1", &host)], &[]);
    site.until("it hears of the generation", || remote.newest().expect("there") == Some(GenerationNumber(1)));
    assert_eq!(remote.signatures(GenerationNumber(1)).expect("there"), []);

    // A daemon with the wrong key for the server, and a daemon without a key known to the server, report this.
    let mut wrong = remote.clone();
    wrong.server.keys = vec![PublicKey([9; 32])];
    let error = wrong.newest().expect_err("another server").to_string();
    assert!(error.contains("does not hold the key"), "{error}");
    let other = site.path("other.key");
    SecretKey::load_or_create(&other).expect("made");
    let unknown = cobd::remote::Remote { identity: other, ..remote };
    let error = unknown.newest().expect_err("a stranger").to_string();
    assert!(error.contains("does not know this host's key"), "{error}");
}

/// A change object on each of two hosts.
#[test]
fn daemons_follow_a_depot_over_the_network_and_do_not_mind_when_it_is_away() {
    let mut cluster = crate::cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", crate::setup::MODEL), crate::QUICK, crate::CHECK]);
    let first = cluster.generate(&model);
    let mut site = Site::of(cluster.dir.path(), "depot");
    for host in ["n1", "n2"] {
        let state = cluster.path(host);
        fs::create_dir(&state).expect("made");
        fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("set");
        let key = SecretKey::load_or_create(&state.join("identity.key")).expect("made").public();
        let name = HostName::new(host).expect("a name");
        enrolled::add(&cluster.path("depot"), &name, key, "2026-11-21T12:00:00Z", enrolled::Former::Revoke)
            .expect("added");
        let config = format!(
            "host = \"{host}\"\ndepot = \"tcp://{}\"\ndepot_key = \"{}\"\nstate_dir = \"{host}\"\n\
             http = \"{host}.sock\"\nfollow = true\nlog = \"debug,zeromq=info\"\n",
            site.address, site.key
        );
        fs::write(cluster.path(&format!("{host}.toml")), config).expect("written");
    }
    site.until("the hosts are known", || {
        let key = SecretKey::load(&cluster.path("n2/identity.key")).expect("a key");
        site.get(&key, "/v1/generations").is_some()
    });
    cluster.start_all();
    cluster.wait_converged(first, crate::PATIENCE);

    // The server stops: the daemons only log it, and a daemon still stops at once on order.
    site.stop();
    let said = |host: &str| cluster.log(host).contains("can't reach `cobgen serve`");
    cluster.until(crate::PATIENCE, || said("n1") && said("n2"), "they say so");
    assert!(cluster.is_converged(first));
    cluster.stop("n2");
    cluster.start("n2");
    cluster.wait_converged(first, crate::PATIENCE);
    let refused = cluster.http("n1", "POST", "/v1/prepare", "{\"generation\": 9}").expect_err("refused");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("can't reach"), "{refused}");

    let mut draft = cluster.load(&model);
    draft.cobs.get_mut("n1/a").expect("in the model").value.content["round"] = 2.into();
    let second = cluster.publish_draft(&draft);
    site.serve(&[]);
    cluster.wait_converged(second, crate::PATIENCE);
    assert!(cluster.log("n1").contains("the depot can be followed again"));
}

#[test]
fn the_first_generation_is_tried_again_until_it_is_signed() {
    let mut cluster = crate::cluster(&["h1"]);
    fs::remove_file(cluster.path("h1.toml")).expect("removed");
    let folder = cluster.dir.path().to_owned();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_cob")).arg(program).args(args).current_dir(&folder).output();
        let output = output.expect("the program");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{middle}.{low}:7911", high & 0x3f);
    run("cobgen", &["init", "--secure", "site", &format!("h1={address}")]);
    let site = Site::of(&folder, "site/depot");
    let server = format!("tcp://{}", site.address);
    let line = run("cobgen", &["enroll", "h1", "--depot", "site/depot", "--server", &server]);
    let args: Vec<String> = words(line.lines().next().expect("a command"));
    let more = ["--config", "h1.toml", "--state-dir", "h1", "--http", "h1.sock"];
    run("cobd", &[&*args.iter().map(String::as_str).collect::<Vec<_>>(), &more].concat());
    // It does not trust the generation, so it can't learn its listening address from it.
    let config = fs::read_to_string(folder.join("h1.toml")).expect("written");
    fs::write(folder.join("h1.toml"), format!("{config}listen = \"tcp://{address}\"\n")).expect("written");
    let (key, away) = (folder.join("site/keys/publisher.key"), folder.join("publisher.key"));
    fs::rename(&key, &away).expect("renamed");
    run("cobgen", &["generate", "site", "--depot", "site/depot"]);
    cluster.start_all();
    cluster.until(crate::PATIENCE, || cluster.log("h1").contains("a generation is refused"), "it is not signed");
    // There is no newer generation, only an additional signature.
    run("cobgen", &["sign", "1", "--key", "publisher.key", "--depot", "site/depot"]);
    let known = || cluster.log("h1").contains("its operators may give the first order");
    cluster.until(Duration::from_secs(20), known, "it is taken soon after");
    assert_eq!(cluster.log("h1").matches("a generation is refused").count(), 1, "told once");
}

#[test]
fn six_commands_lead_from_nothing_to_three_enrolled_hosts() {
    let mut cluster = crate::cluster(&["h1", "h2", "h3"]);
    cluster.hosts().iter().for_each(|host| fs::remove_file(cluster.path(&format!("{host}.toml"))).expect("removed"));
    let folder = cluster.dir.path().to_owned();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_cob")).arg(program).args(args).current_dir(&folder).output();
        let output = output.expect("the program");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let hosts: Vec<String> = (1..=3).map(|n| format!("h{n}=127.{}.{middle}.{low}:{}", high & 0x3f, 7900 + n)).collect();
    // Step one.
    run("cobgen", &[&["init", "--secure", "site"], &*hosts.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    // Step two, whose server keeps running.
    let site = Site::of(&folder, "site/depot");
    // Step three.
    let server = format!("tcp://{}", site.address);
    let printed = run("cobgen", &["enroll", "h1", "h2", "h3", "--depot", "site/depot", "--server", &server]);
    // Steps four to six, each on its host; here each host has its own configuration, state folder and socket.
    for (line, host) in printed.lines().zip(["h1", "h2", "h3"]) {
        let (config, http) = (format!("{host}.toml"), format!("{host}.sock"));
        let more = ["--config", &config, "--state-dir", host, "--http", &http];
        let args: Vec<String> = words(line);
        run("cobd", &[&*args.iter().map(String::as_str).collect::<Vec<_>>(), &more].concat());
    }
    assert_eq!(enrolled::read(&folder.join("site/depot")).expect("read").len(), 3);

    // The result works: the generation is signed by the key beside the model, and the hosts trust its publisher.
    let said = run("cobgen", &["generate", "site", "--depot", "site/depot"]);
    assert!(said.contains("signed by"), "{said}");
    for host in ["h1", "h2", "h3"] {
        let key = SecretKey::load(&folder.join(host).join("identity.key")).expect("a key").public();
        assert!(said.contains(&format!("{host} has the new key {key}")), "{said}");
    }
    cluster.start_all();
    // The operator named by this generation gives the first remote order; a stranger can't.
    let operator = ["--depot", "site/depot", "--key", "site/keys/operator.key"];
    let as_operator = |words: &[&str]| run("cobctl", &[words, &operator].concat());
    cluster.until(
        crate::PATIENCE,
        || {
            let logs = ["h1", "h2", "h3"].map(|host| cluster.log(host));
            logs.iter().all(|log| log.contains("its operators may give the first order"))
        },
        "all hosts know whom to obey",
    );
    run("cobgen", &["key", "stranger.key"]);
    let stranger = ["cobctl", "switch", "1", "--depot", "site/depot", "--key", "stranger.key", "--timeout", "2s"];
    let refused = Command::new(env!("CARGO_BIN_EXE_cob")).args(stranger).current_dir(&folder).output().expect("runs");
    assert!(!refused.status.success(), "{refused:?}");
    as_operator(&["switch", "1", "--wait", "60s"]);
    let first = GenerationNumber(1);
    assert!(cluster.is_converged(first));
    assert_eq!(cluster.ended_actions().len(), 4);
    assert!(as_operator(&["history"]).contains("(operate)") || as_operator(&["history"]).contains("(administer)"));
    assert!(as_operator(&["trust", "whoami"]).contains("h3"));
}
