//! Two hubs on three members of etcd: a hub dies, is paused, or loses its store. Jobs go on elsewhere, a stale hub writes
//! nothing, and no machine is made twice.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cob_tests::processes::{self, Signal};
use cob_tests::wait::comes_true;
use serde_json::{Value, json};

use crate::etcd::Members;
use crate::yard::{Answer, ONE, PATIENCE, exchange, is_final, job, list, programs, text};

/// Hubs of a circle. The first are `a` and `b`.
struct Circle {
    hubs: Vec<Hub>,
    etcd: Members,
    dir: tempfile::TempDir,
    ports: u16,
    publisher: String,
    _one: MutexGuard<'static, ()>,
}

struct Hub {
    name: &'static str,
    folder: PathBuf,
    child: Option<Child>,
}

impl Hub {
    fn try_ask(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Answer> {
        exchange(UnixStream::connect(self.folder.join("hub.sock"))?, method, path, None, body)
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let answer = self.try_ask(method, path, body.as_ref());
        answer.unwrap_or_else(|e| panic!("{}: {method} {path}: {e}\n{}", self.name, self.log()))
    }

    /// What the hub says of itself, in the header `cob-hub`.
    fn role(&self) -> String {
        let role = || {
            let mut stream = UnixStream::connect(self.folder.join("hub.sock"))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(b"GET /v1/whoami HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            let line = text.lines().find_map(|line| line.strip_prefix("cob-hub: ")).unwrap_or_default().to_owned();
            std::io::Result::Ok(line)
        };
        role().unwrap_or_default()
    }

    fn leads(&self) -> bool {
        self.role().ends_with("; leads")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.with_extension("log")).unwrap_or_default()
    }

    /// The processes of the hub, of its jobs and of its depots: all that would end with its machine.
    fn processes(&self) -> Vec<u32> {
        processes::mentioning(&format!("{}/", self.folder.display()))
            .into_iter()
            .chain(self.child.as_ref().map(Child::id))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// The machine of the hub dies.
    fn kill(&mut self) {
        loop {
            let all = self.processes();
            if all.iter().all(|pid| !processes::lives(*pid)) {
                break;
            }
            all.into_iter().for_each(|pid| processes::signal(pid, Signal::KILL));
            std::thread::yield_now();
        }
        if let Some(mut child) = self.child.take() {
            child.wait().expect("reaped");
        }
    }

    /// The machine of the hub stands still. The address of the depots goes to another machine.
    fn pause(&self) {
        for pid in self.processes() {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let is_server = String::from_utf8_lossy(&line).contains("\0serve\0--depot\0");
            processes::signal(pid, if is_server { Signal::KILL } else { Signal::STOP });
        }
    }

    fn go_on(&self) {
        self.processes().into_iter().for_each(|pid| processes::signal(pid, Signal::CONT));
    }
}

impl Circle {
    /// Two hubs, with a catalogue and the tenant `web`. `None` without an etcd.
    fn new() -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let etcd = Members::start(3)?;
        let dir = tempfile::Builder::new().prefix("cob").tempdir().expect("a folder");
        let key = dir.path().join("publisher.key");
        let output =
            Command::new(programs().join("cobgen")).arg("key").arg(&key).arg("--json").output().expect("a key");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let signer = dir.path().join("signer");
        let script = format!(
            "#!/bin/sh\nexec {}/cobgen sign \"$2\" --depot \"$1\" --key {}\n",
            programs().display(),
            key.display()
        );
        fs::write(&signer, script).expect("written");
        fs::set_permissions(&signer, fs::Permissions::from_mode(0o755)).expect("executable");
        let [ports] = cob_processes::free_ports().expect("free");
        let mut circle = Self { hubs: Vec::new(), etcd, dir, ports, publisher: text(&answer["key"]), _one: one };
        for name in ["a", "b"] {
            let folder = circle.dir.path().join(name);
            circle.hubs.push(Hub { name, folder, child: None });
            circle.start(circle.hubs.len() - 1);
        }
        circle.fill();
        Some(circle)
    }

    fn start(&mut self, hub: usize) {
        let Hub { name, folder, .. } = &self.hubs[hub];
        let log = File::options().create(true).append(true).open(folder.with_extension("log")).expect("a log");
        let child = Command::new(programs().join("cobhub"))
            .args(["serve", "--switch-limit", "60", "--name", name, "--store", &self.etcd.store()])
            .args(["--publisher", &self.publisher, "--depot-ports", &self.ports.to_string()])
            .arg("--programs")
            .arg(programs())
            .arg("--signer")
            .arg(self.dir.path().join("signer"))
            .arg("--provider-state")
            .arg(self.dir.path().join("p"))
            .arg("--folder")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a hub");
        self.hubs[hub].child = Some(child);
        let hub = &self.hubs[hub];
        assert!(comes_true(PATIENCE, || !hub.role().is_empty()), "{}", hub.log());
        let leads = || self.hubs.iter().any(Hub::leads);
        assert!(comes_true(PATIENCE, leads), "nobody leads: {}", hub.log());
    }

    fn leader(&self) -> usize {
        let mut leader = None;
        let found = comes_true(PATIENCE, || {
            leader = self.hubs.iter().position(Hub::leads);
            leader.is_some()
        });
        assert!(found, "nobody leads");
        leader.expect("found")
    }

    /// All that is written goes through the hub that follows.
    fn fill(&self) {
        let follower = &self.hubs[1 - self.leader()];
        let change = json!({ "add-tenant": { "tenant": "web" } });
        let (status, answer) = follower.ask("POST", "/v1/directory", Some(change));
        assert_eq!(status, 204, "{answer}\n{}", follower.log());
        // Each installation is counted, and waits until it may end.
        let folder = self.dir.path().display();
        let install = format!("echo x >> {folder}/installed; while [ -e {folder}/wait ]; do sleep 0.1; done");
        let actions = json!({ "install": install, "start": "true", "stop": "true", "remove": "true" });
        for (entity, definition) in [
            ("services/app", json!({ "actions": actions })),
            ("templates/shop", json!({ "defaults": { "services": ["app"] } })),
        ] {
            let path = format!("/v1/catalogue/{entity}?shared=true");
            let (status, answer) = follower.ask("PUT", &path, Some(definition));
            assert_eq!(status, 200, "{entity}: {answer}\n{}", follower.log());
        }
    }

    /// Orders a cluster at a hub.
    fn create(&self, hub: usize, name: &str, nodes: u32) -> u64 {
        let body = json!({ "name": name, "wanted": { "template": "shop", "nodes": nodes } });
        job(self.hubs[hub].ask("POST", "/v1/clusters?tenant=web", Some(body)))
    }

    fn wait_for_step(&self, hub: usize, id: u64, step: &str) {
        let mut last = Value::Null;
        let is_there = comes_true(PATIENCE, || {
            last = self.hubs[hub].ask("GET", &format!("/v1/jobs/{id}"), None).1;
            last["step"].as_str().is_some_and(|now| now.contains(step))
        });
        assert!(is_there, "{last}\n{}\n{}", self.hubs[hub].log(), self.log_of(hub, id));
    }

    fn log_of(&self, hub: usize, id: u64) -> String {
        let (_, answer) = self.hubs[hub].ask("GET", &format!("/v1/jobs/{id}/log"), None);
        answer["text"].as_str().unwrap_or_default().to_owned()
    }

    fn ends(&self, hub: usize, id: u64, state: &str) {
        let mut last = Value::Null;
        let path = format!("/v1/jobs/{id}");
        let ended = comes_true(PATIENCE, || {
            last = self.hubs[hub].ask("GET", &path, None).1;
            is_final(&last)
        });
        assert!(ended && last["state"] == state, "{last}\n{}\n{}", self.hubs[hub].log(), self.log_of(hub, id));
    }

    /// Orders the hosts of a cluster to resume, as the hub's operator. Returns whether they did, and the output.
    fn resume_hosts(&self, hub: usize, cluster: &str, more: &[&str]) -> (bool, String) {
        let folder = &self.hubs[hub].folder;
        let output = Command::new(programs().join("cobctl"))
            .arg("--depot")
            .arg(folder.join("clusters/web").join(cluster).join("depot"))
            .arg("--key")
            .arg(folder.join("operator.key"))
            .args(more)
            .arg("resume")
            .output()
            .expect("cobctl runs");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.success(), said)
    }

    fn hold(&self) {
        fs::write(self.dir.path().join("wait"), "").expect("written");
    }

    fn let_go(&self) {
        fs::remove_file(self.dir.path().join("wait")).expect("removed");
    }

    fn installed(&self) -> usize {
        fs::read_to_string(self.dir.path().join("installed")).unwrap_or_default().lines().count()
    }

    /// The machines at the provider.
    fn existing(&self) -> usize {
        let entries = fs::read_dir(self.dir.path().join("p/process")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().join("machine.json").is_file()).count()
    }

    fn machines(&self, hub: usize) -> Vec<Value> {
        let (status, machines) = self.hubs[hub].ask("GET", "/v1/machines", None);
        assert_eq!(status, 200, "{machines}");
        list(machines)
    }
}

impl Drop for Circle {
    fn drop(&mut self) {
        for hub in &mut self.hubs {
            if std::thread::panicking() {
                eprintln!("the log of hub {}:\n{}", hub.name, hub.log());
            }
            hub.go_on();
            hub.kill();
        }
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

#[test]
fn a_job_of_a_dead_hub_goes_on_at_another() {
    let Some(mut circle) = Circle::new() else { return };
    let (leader, other) = (circle.leader(), 1 - circle.leader());
    circle.hold();
    let id = circle.create(other, "one", 2);
    circle.wait_for_step(other, id, "switch");
    assert!(comes_true(PATIENCE, || circle.installed() == 2), "{}", circle.log_of(leader, id));
    assert_eq!(circle.machines(other), circle.machines(leader), "both hubs have the same machines");
    let begun = Instant::now();
    circle.hubs[leader].kill();
    assert!(comes_true(PATIENCE, || circle.hubs[other].leads()), "{}", circle.hubs[other].log());
    let led = begun.elapsed();
    let jobs = circle.hubs[other].folder.join("jobs").display().to_string();
    assert!(comes_true(PATIENCE, || !processes::mentioning(&jobs).is_empty()), "{}", circle.hubs[other].log());
    eprintln!("another hub leads after {led:?}, and the job goes on after {:?}", begun.elapsed());
    circle.let_go();
    circle.ends(other, id, "succeeded");
    assert_eq!((circle.existing(), circle.installed()), (2, 2), "nothing is done twice");
    // Hosts know the epoch of the second process: a late order of the first is refused, an order of a person is not.
    let (done, _) = circle.resume_hosts(other, "one", &[]);
    assert!(done);
    let (done, said) = circle.resume_hosts(other, "one", &["--epoch", "1"]);
    assert!(!done && said.contains("epoch 1,") && said.contains("another hub has taken over"), "{said}");
    // The dead hub comes back, follows, and knows all; then a change goes through it.
    circle.start(leader);
    let path = format!("/v1/jobs/{id}");
    let knows = || circle.hubs[leader].ask("GET", &path, None) == circle.hubs[other].ask("GET", &path, None);
    assert!(comes_true(PATIENCE, knows), "{}", circle.hubs[leader].log());
    assert!(circle.hubs[leader].role().contains("; follows"), "{}", circle.hubs[leader].role());
    let delete = json!({ "operation": "delete" });
    let id = job(circle.hubs[leader].ask("POST", "/v1/clusters/one/operations?tenant=web", Some(delete)));
    circle.ends(leader, id, "succeeded");
    assert_eq!(circle.existing(), 0);
    let folder = circle.hubs[leader].folder.join("clusters/web/one/machines.json");
    assert!(comes_true(PATIENCE, || !folder.exists()), "the files of a deleted cluster stay");
}

#[test]
fn a_paused_hub_changes_nothing_when_it_goes_on() {
    let Some(circle) = Circle::new() else { return };
    let (leader, other) = (circle.leader(), 1 - circle.leader());
    circle.hold();
    let id = circle.create(leader, "one", 2);
    circle.wait_for_step(other, id, "switch");
    assert!(comes_true(PATIENCE, || circle.installed() == 2), "{}", circle.log_of(other, id));
    circle.hubs[leader].pause();
    assert!(comes_true(PATIENCE, || circle.hubs[other].leads()), "{}", circle.hubs[other].log());
    circle.let_go();
    circle.ends(other, id, "succeeded");
    let second = circle.create(other, "two", 1);
    circle.ends(other, second, "succeeded");
    let record = |hub: usize| fs::read_to_string(circle.hubs[hub].folder.join(format!("jobs/{id}/record")));
    let before = record(other).expect("a record");
    let state = |hub: usize| {
        let jobs = circle.hubs[hub].ask("GET", "/v1/jobs", None);
        (jobs, circle.hubs[hub].ask("GET", "/v1/clusters?tenant=web", None), circle.machines(hub))
    };
    let expected = state(other);
    circle.hubs[leader].go_on();
    let follows = || circle.hubs[leader].role().contains("; follows") && state(leader) == expected;
    assert!(comes_true(PATIENCE, follows), "{:?}\n{}", state(leader), circle.hubs[leader].log());
    let jobs = circle.hubs[leader].folder.join("jobs").display().to_string();
    let ended = || processes::mentioning(&jobs).into_iter().all(|pid| !processes::lives(pid));
    assert!(comes_true(PATIENCE, ended), "the stale job still works");
    assert_eq!(state(other), expected, "the stale hub has changed the store");
    assert_eq!(record(other).expect("a record"), before);
    assert!(comes_true(PATIENCE, || record(leader).is_ok_and(|text| text == before)), "the stale record stays");
    assert_eq!((circle.existing(), circle.installed()), (3, 3), "nothing is done twice");
}

#[test]
fn each_hub_cancels_each_job() {
    let Some(circle) = Circle::new() else { return };
    let (leader, other) = (circle.leader(), 1 - circle.leader());
    circle.hold();
    let id = circle.create(leader, "one", 2);
    circle.wait_for_step(other, id, "switch");
    assert!(comes_true(PATIENCE, || circle.installed() == 2), "{}", circle.log_of(other, id));
    let (status, answer) = circle.hubs[other].ask("POST", &format!("/v1/jobs/{id}/cancel"), None);
    assert_eq!(status, 202, "{answer}");
    circle.let_go();
    circle.ends(other, id, "canceled");
    assert_eq!(circle.existing(), 0, "{}", circle.log_of(other, id));
    // A secret is not passed on.
    let request = json!({ "user": { "name": "root" } });
    let (status, answer) = circle.hubs[other].ask("POST", "/v1/tokens", Some(request.clone()));
    assert_eq!(status, 503, "{answer}");
    assert!(text(&answer["error"]).contains(circle.hubs[leader].name), "{answer}");
    assert_eq!(circle.hubs[leader].ask("POST", "/v1/tokens", Some(request)).0, 200);
}

#[test]
fn hubs_without_a_store_answer_questions_only() {
    let Some(mut circle) = Circle::new() else { return };
    circle.etcd.kill(0);
    let hub = circle.leader();
    circle.hold();
    let id = circle.create(1 - hub, "one", 1);
    circle.wait_for_step(hub, id, "switch");
    assert!(comes_true(PATIENCE, || circle.installed() == 1), "{}", circle.log_of(hub, id));
    circle.etcd.signal(Signal::STOP);
    let follow = || circle.hubs.iter().all(|hub| hub.role().contains("; follows"));
    assert!(comes_true(PATIENCE, follow), "{:?}", circle.hubs.iter().map(Hub::role).collect::<Vec<_>>());
    for hub in &circle.hubs {
        let (status, answer) = hub.ask("GET", "/v1/clusters?tenant=web", None);
        assert_eq!((status, &answer[0]["name"]), (200, &json!("one")), "{answer}");
        assert_eq!(hub.ask("GET", &format!("/v1/jobs/{id}"), None).0, 200);
        let change = json!({ "add-tenant": { "tenant": "late" } });
        let (status, answer) = hub.ask("POST", "/v1/directory", Some(change));
        assert_eq!(status, 503, "{answer}");
        assert!(text(&answer["error"]).contains("no hub leads"), "{answer}");
    }
    circle.let_go();
    circle.etcd.signal(Signal::CONT);
    let hub = circle.leader();
    circle.ends(hub, id, "succeeded");
    assert_eq!((circle.existing(), circle.installed()), (1, 1), "nothing is done twice");
    let (_, directory) = circle.hubs[hub].ask("GET", "/v1/directory", None);
    assert!(directory["tenants"].get("late").is_none(), "a refused change is done: {directory}");
}
