//! A hub with real programs in a folder of its own, and a client for its API.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cob_tests::odd_provider;
use cob_tests::processes::{self, Signal};
use cob_tests::wait::comes_true;
use serde_json::{Value, json};

/// The longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Hubs of several tests would compete for loopback addresses: one test after the other.
pub(crate) static ONE: Mutex<()> = Mutex::new(());

/// A hub with its folder.
pub(crate) struct Yard {
    pub(crate) dir: tempfile::TempDir,
    child: Option<Child>,
    /// Further arguments of `cobhub serve`.
    pub(crate) more: Vec<String>,
    pub(crate) listen: SocketAddr,
    /// Tokens of users, as `TENANT/USER`.
    tokens: BTreeMap<String, String>,
    _one: MutexGuard<'static, ()>,
}

/// A status and a body.
pub(crate) type Answer = (u16, Value);

/// The folder with all programs: hard links of a single file.
pub(crate) fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hub{}", std::process::id()));
        fs::create_dir_all(folder.join("providers")).expect("a folder");
        for name in ["cobd", "cobgen", "cobctl", "cobhub", "cob-provider-odd"] {
            let to = folder.join(name);
            let _ = fs::remove_file(&to);
            fs::hard_link(env!("CARGO_BIN_EXE_cob"), &to).expect("a program");
        }
        let to = folder.join("providers/cob-provider-odd");
        let _ = fs::remove_file(&to);
        std::os::unix::fs::symlink(folder.join("cob-provider-odd"), &to).expect("a link");
        folder
    })
}

impl Yard {
    /// A hub that runs.
    pub(crate) fn new(more: &[&str]) -> Self {
        let mut yard = Self::stopped(more);
        yard.start();
        yard
    }

    /// A hub that does not run yet.
    pub(crate) fn stopped(more: &[&str]) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::Builder::new().prefix("cob").tempdir().expect("a folder");
        let [port] = cob_processes::free_ports().expect("free");
        let listen = SocketAddr::from(([127, 0, 0, 1], port));
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        Self { dir, child: None, more, listen, tokens: BTreeMap::new(), _one: one }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("h")
    }

    /// The command that serves this hub.
    pub(crate) fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.dir.path().join("hub.log")).expect("a log");
        let mut command = Command::new(programs().join("cobhub"));
        command
            .args([
                "serve",
                "--switch-limit",
                "60",
                "--programs",
                programs().to_str().expect("a path"),
                "--listen",
                &self.listen.to_string(),
                "--folder",
            ])
            .arg(self.folder())
            .arg("--providers")
            .arg(programs().join("providers"))
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    pub(crate) fn start(&mut self) {
        self.child = Some(self.command().spawn().expect("a hub"));
        assert!(comes_true(PATIENCE, || self.try_root("GET", "/v1/whoami", None).is_ok()), "{}", self.log());
    }

    /// Kills the hub with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("reaped");
        }
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Whether the hub still runs.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().expect("a status"))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("hub.log")).unwrap_or_default()
    }

    /// A request of the owner of the hub, which may find no hub.
    pub(crate) fn try_root(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Answer> {
        exchange(UnixStream::connect(self.folder().join("hub.sock"))?, method, path, None, body)
    }

    /// A request of the owner of the hub.
    pub(crate) fn root(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.try_root(method, path, body.as_ref()).unwrap_or_else(|e| panic!("{method} {path}: {e}\n{}", self.log()))
    }

    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect(self.listen)
    }

    /// A request with a token.
    pub(crate) fn try_with(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> io::Result<Answer> {
        exchange(self.connect()?, method, path, Some(token), body)
    }

    pub(crate) fn token(&self, user: &str) -> &str {
        &self.tokens[user]
    }

    /// A request of a user.
    pub(crate) fn user(&self, user: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let answer = self.try_with(self.token(user), method, path, body.as_ref());
        answer.unwrap_or_else(|e| panic!("{user}: {method} {path}: {e}\n{}", self.log()))
    }

    /// Adds a tenant with an administrator `adm` and users, each with a token.
    pub(crate) fn tenant(&mut self, tenant: &str, users: &[&str]) {
        self.change(json!({ "add-tenant": { "tenant": tenant } }));
        for user in users.iter().chain(&["adm"]) {
            self.change(json!({ "add-user": { "tenant": tenant, "user": user, "administrator": *user == "adm" } }));
            let request = json!({ "user": { "tenant": tenant, "name": user } });
            let (status, answer) = self.root("POST", "/v1/tokens", Some(request));
            assert_eq!(status, 200, "{answer}");
            self.tokens.insert(format!("{tenant}/{user}"), text(&answer["token"]));
        }
    }

    pub(crate) fn change(&self, change: Value) {
        let (status, answer) = self.root("POST", "/v1/directory", Some(change));
        assert_eq!(status, 204, "{answer}");
    }

    /// The shared catalogue: the services `db` and `app`, the template `shop`, and the template `odd` on machines of
    /// the odd provider.
    pub(crate) fn catalogue(&self) {
        let (status, answer) =
            self.root("PUT", "/v1/files/security.yaml?shared=true", Some(json!({ "security": "loopback-only" })));
        assert_eq!(status, 200, "{answer}");
        let actions = json!({ "install": "true", "start": "true", "stop": "true", "remove": "true" });
        self.shared("services/db", json!({ "actions": actions }));
        self.shared(
            "services/app",
            json!({ "dependencies": { "runtime": { "requires": ["db"] } }, "actions": actions }),
        );
        self.shared("services/cache", json!({ "actions": actions }));
        let faults = self.dir.path().join("faults.json");
        self.shared("providers/odd", json!({ "type": "odd", "settings": { "faults": faults } }));
        let one_db = json!({ "services": { "db": { "quantities": { "min": 1, "max": 1 } } } });
        self.shared("templates/shop", json!({ "defaults": { "services": ["db", "app"] }, "constraints": one_db }));
        let defaults = json!({ "services": ["db", "app"], "provider": "odd" });
        self.shared("templates/odd", json!({ "defaults": defaults, "constraints": one_db }));
    }

    pub(crate) fn shared(&self, entity: &str, definition: Value) {
        let (status, answer) = self.root("PUT", &format!("/v1/catalogue/{entity}?shared=true"), Some(definition));
        assert_eq!(status, 200, "{entity}: {answer}");
    }

    /// What the odd provider does wrong.
    pub(crate) fn faults(&self, faults: Value) {
        let new = self.dir.path().join("faults.new");
        fs::write(&new, faults.to_string()).expect("written");
        fs::rename(new, self.dir.path().join("faults.json")).expect("renamed");
    }

    /// Orders a cluster, and returns the job.
    pub(crate) fn create(&self, user: &str, name: &str, template: &str, nodes: u32) -> u64 {
        let body = json!({ "name": name, "wanted": { "template": template, "nodes": nodes } });
        job(self.user(user, "POST", "/v1/clusters", Some(body)))
    }

    pub(crate) fn operate(&self, user: &str, name: &str, operation: Value) -> u64 {
        job(self.user(user, "POST", &format!("/v1/clusters/{name}/operations"), Some(operation)))
    }

    /// The job after its end.
    pub(crate) fn end_of(&self, user: &str, id: u64) -> Value {
        let mut last = Value::Null;
        let ended = comes_true(PATIENCE, || {
            last = self.user(user, "GET", &format!("/v1/jobs/{id}"), None).1;
            is_final(&last)
        });
        assert!(ended, "{last}\n{}\n{}", self.log_of(id), self.log());
        last
    }

    /// Waits until a job has succeeded.
    pub(crate) fn succeeds(&self, user: &str, id: u64) -> Value {
        let ended = self.end_of(user, id);
        assert_eq!(ended["state"], "succeeded", "{ended}\n{}", self.log_of(id));
        ended
    }

    pub(crate) fn log_of(&self, id: u64) -> String {
        fs::read_to_string(self.folder().join(format!("jobs/{id}/log"))).unwrap_or_default()
    }

    pub(crate) fn cluster(&self, user: &str, name: &str) -> Value {
        let (status, cluster) = self.user(user, "GET", &format!("/v1/clusters/{name}"), None);
        assert_eq!(status, 200, "{cluster}");
        cluster
    }

    /// The machines that the hub counts to clusters.
    pub(crate) fn machines(&self) -> Vec<Value> {
        let mut all = self.machine_page("");
        let mut rest = all.len() >= 1000;
        while rest {
            let last = all.last().expect("a machine");
            let place = format!("?after={}&after_tenant={}", text(&last["cluster"]), text(&last["tenant"]));
            let page = self.machine_page(&place);
            rest = page.len() >= 1000;
            all.extend(page);
        }
        all
    }

    /// A page of the machines of all tenants.
    pub(crate) fn machine_page(&self, query: &str) -> Vec<Value> {
        let (status, machines) = self.root("GET", &format!("/v1/machines{query}"), None);
        assert_eq!(status, 200, "{machines}");
        list(machines)
    }

    pub(crate) fn orphans(&self) -> Vec<Value> {
        let (status, machines) = self.root("GET", "/v1/machines?orphans=true", None);
        assert_eq!(status, 200, "{machines}");
        list(machines)
    }

    /// The machines that exist at a provider: identities of the provider, from its folder.
    pub(crate) fn existing(&self, provider: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.folder().join("providers").join(provider)).into_iter().flatten().flatten();
        let machines = entries.filter(|entry| entry.path().join("machine.json").is_file());
        machines
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|n| n != odd_provider::LABELS)
            .collect()
    }

    /// Verifies the audit.
    pub(crate) fn audit_is_whole(&self) {
        let verify =
            Command::new(programs().join("cobhub")).arg("verify-audit").arg(self.folder().join("audit")).output();
        let verify = verify.expect("verified");
        assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = self.dir.path().display();
            eprintln!("the log of the hub in {path}:\n{}", self.log());
        }
        self.kill();
        let folder = self.dir.path().display().to_string();
        for _ in 0..100 {
            let left = processes::mentioning(&folder);
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(|pid| processes::signal(pid, Signal::KILL));
            std::thread::yield_now();
        }
    }
}

/// Sends a request on a connection, and reads the answer to its end.
pub(crate) fn exchange(
    stream: impl Read + Write,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> io::Result<Answer> {
    let token = token.map(|token| ("Authorization", format!("Bearer {token}")));
    exchange_with(stream, method, path, &[Some(("Host", "hub".to_owned())), token], body)
}

/// The same, with these headers.
pub(crate) fn exchange_with(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[Option<(&str, String)>],
    body: Option<&Value>,
) -> io::Result<Answer> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in headers.iter().flatten() {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    // A server may answer and close before it has read the body.
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        sent.and(read)?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, serde_json::from_str(body).unwrap_or_else(|_| json!(body))))
}

/// A number of the environment.
pub(crate) fn from_environment<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text:?}")))
}

pub(crate) fn job((status, answer): Answer) -> u64 {
    assert_eq!(status, 202, "{answer}");
    answer["job"].as_u64().expect("a job")
}

pub(crate) fn is_final(job: &Value) -> bool {
    ["succeeded", "failed", "canceled"].iter().any(|state| job["state"] == *state)
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

pub(crate) fn list(value: Value) -> Vec<Value> {
    let Value::Array(all) = value else { panic!("{value} is no list") };
    all
}

pub(crate) fn hosts(cluster: &Value) -> BTreeSet<String> {
    cluster["machines"].as_array().into_iter().flatten().map(|machine| text(&machine["host"])).collect()
}
