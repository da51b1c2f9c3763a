//! The output of the programs, and the remains of a crash: the twenty secrets are searched for there, too.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use cob_tests::processes::{self, Signal};
use cob_trust::SecretKey;
use cob_types::CobId;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::Planted;
use crate::PATIENCE;

/// `cobctl watch`, as text and as JSON, each into a file.
pub(super) struct Watch {
    running: Vec<(&'static str, Child)>,
}

impl Planted {
    fn program(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
        command.args(args).current_dir(self.cluster.dir.path()).stdin(Stdio::null());
        for name in ["COB_DEPOT", "COB_SOCKET", "COB_KEY", "COB_TOKEN"] {
            command.env_remove(name);
        }
        let settings = self.cluster.path("cobctl.toml");
        fs::write(&settings, "").expect("written");
        command.env("COB_CONFIG", settings);
        command
    }

    /// Starts to watch, as an operator would before a switch.
    pub(super) fn watch(&self) -> Watch {
        let running = [("watch.txt", None), ("watch.json", Some("--json"))].map(|(file, more)| {
            let into = File::create(self.cluster.path(file)).expect("made");
            let errors = into.try_clone().expect("cloned");
            let args = ["cobctl", "watch", "--socket", "n1.sock"].into_iter().chain(more);
            let mut command = self.program(&args.collect::<Vec<_>>());
            (file, command.stdout(into).stderr(errors).spawn().expect("the program"))
        });
        Watch { running: running.into() }
    }

    /// Ends the watching once it has reported all change objects, and searches its output.
    pub(super) fn search_watched(&self, watch: Watch) {
        let forms = self.forms();
        for (file, mut child) in watch.running {
            let said = || fs::read(self.cluster.path(file)).unwrap_or_default();
            let has = |name: &str| String::from_utf8_lossy(&said()).contains(&format!("n1/{name}"));
            self.cluster.until(PATIENCE, || self.values.keys().all(|name| has(name)), "all have been watched");
            processes::signal(child.id(), Signal::TERM);
            child.wait().expect("ended");
            self.assert_clean(file, &said(), &forms);
        }
    }

    /// The same model for hosts that prove their keys: without keys `cobgen` accepts no secret.
    fn write_model_with_keys(&self, folder: &str) {
        let key = SecretKey::load(&self.cluster.path("n1/identity.key")).expect("a key").public();
        let text = |file: &str| fs::read_to_string(self.cluster.path("model").join(file)).expect("a model");
        let model = text("model.yaml").replace("security: loopback-only", "security: identities");
        let model = model.replace("127.0.0.1:1\"", &format!("127.0.0.1:1\", key: \"{key}\""));
        assert!(model.contains("identities") && model.contains("key: "), "{model}");
        let (action, service) = (text("action.sh"), text("service.sh"));
        self.cluster.write_model(folder, &[("model.yaml", &model), ("action.sh", &action), ("service.sh", &service)]);
    }

    /// Searches all output for operators and model authors: as text and as JSON.
    pub(super) fn search_programs(&self) {
        let (now, socket) = (self.generation.to_string(), ["--socket", "n1.sock"]);
        let ids: Vec<String> = self.values.keys().map(|name| format!("n1/{name}")).collect();
        let mut all: Vec<Vec<&str>> = Vec::new();
        for words in [&["status"][..], &["status", "--all"], &["history"], &["trust", "whoami"]] {
            all.push([&["cobctl"], words, &socket].concat());
        }
        for id in &ids {
            CobId::new(id).expect("an id");
            for words in [&["explain", id.as_str()][..], &["output", id], &["status", id], &["history", "--cob", id]] {
                all.push([&["cobctl"], words, &socket].concat());
            }
        }
        let depot = ["--depot", "depot"];
        let keys = ["--secret-key", "secrets/publisher.key", "--site-key", "secrets/site.key"];
        all.push([&["cobgen", "show"][..], &depot].concat());
        all.push([&["cobgen", "show"][..], &depot, &["--generation", &now]].concat());
        self.write_model_with_keys("with-keys");
        all.push(vec!["cobgen", "show", "with-keys"]);
        all.push([&["cobgen", "diff"][..], &depot, &["0", &now]].concat());
        all.push([&["cobgen", "diff", "with-keys"][..], &depot, &keys].concat());
        all.push([&["cobgen", "log"][..], &depot].concat());
        let (forms, mut said) = (self.forms(), String::new());
        for args in &all {
            for more in [None, Some("--json")] {
                let args: Vec<&str> = args.iter().copied().chain(more).collect();
                let output = self.program(&args).output().expect("the program");
                let told = [output.stdout, output.stderr].concat();
                assert!(output.status.code() < Some(2), "{args:?}: {}", String::from_utf8_lossy(&told));
                self.assert_clean(&args.join(" "), &told, &forms);
                said.push_str(&String::from_utf8_lossy(&told));
            }
        }
        // The search was useful: values occurred there, and were removed.
        for part in ["begun with [secret]", "found [secret]", "can't log in with [secret]", "no [secret]"] {
            assert!(said.contains(part), "{part:?} is nowhere in what the programs say");
        }
    }

    /// The daemon crashes with a limit under which other processes leave a core dump. Returns whether they do so on
    /// this machine.
    pub(super) fn crash(&mut self) -> bool {
        let pid = self.cluster.pid("n1").expect("runs");
        let would = leaves_core(&mut Command::new("sleep").arg("100").current_dir(&self.memory).spawn().expect("runs"));
        raise_core_limit(pid);
        let status = self.cluster.crash("n1");
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
        assert!(!status.core_dumped(), "the daemon has left a picture of its memory");
        let left = fs::read_dir(self.cluster.dir.path()).expect("a folder").flatten().map(|entry| entry.file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("core")).collect();
        assert!(left.is_empty(), "{left:?}");
        would
    }
}

/// Whether an ordinary process leaves a core dump.
fn leaves_core(child: &mut Child) -> bool {
    raise_core_limit(child.id());
    processes::signal(child.id(), Signal::ABORT);
    child.wait().expect("ended").core_dumped()
}

/// As root it ignores the limit that the process has set; other users raise it as far as they may.
fn raise_core_limit(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    for maximum in [None, rustix::process::getrlimit(Resource::Core).maximum] {
        if prlimit(pid, Resource::Core, Rlimit { current: maximum, maximum }).is_ok() {
            return;
        }
    }
}
