//! Secrets: twenty are planted, through every possible input, and searched for everywhere.
//!
//! Each action proves that it got its secret by writing the secret's hash, and tries hard to spread it. Then the depot,
//! the state folder, the log, the API, the output of the programs, and the process list are searched for every secret,
//! raw, in base64 and in hex.

mod programs;
mod replaced;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cob_tests::cluster::Cluster;
use cob_tests::processes;
use cob_trust::SecretKey;
use cob_types::generation::Security;
use cob_types::{CobId, GenerationNumber};
use cobgen::make::After;
use cobgen::secrets::Vault;
use sha2::{Digest as _, Sha256};

use crate::{PATIENCE, cluster};

/// The behaviours of the change objects, each named like its secret.
const ACTIONS: [&str; 14] = [
    "plain", "stderr", "split", "base64", "hex", "json", "env", "fail", "exports", "saved", "slow", "flood", "lines",
    "quoted",
];
/// Change objects of other kinds than `noisy`.
const OTHERS: [&str; 7] = ["check", "script", "exec", "service", "dies", "ready", "commands"];

/// `$1`: `check`, or the state to enter.
const ACTION: &str = r#"#!/bin/sh
name=${COB_ID#n1/}
pw=$(sed -n 's/.*"pw":"\([^"]*\)".*/\1/p' "$COB_CONTENT")
if [ "$1" = check ]; then
  # A check that shows everything.
  echo "found $pw"; echo "complains of $pw" >&2; cat "$COB_CONTENT"; echo
  cat "$COB_STATE_DIR/state" 2>/dev/null || echo down
  exit 0
fi
printf %s "$pw" | sha256sum | cut -c1-64 > "PROOF/$name"
case $name in
  stderr) echo "the value is $pw" >&2 ;;
  split) printf %s "$pw" | cut -c1-9 | tr -d '\n'; sleep 0.4; printf '%s\n' "$pw" | cut -c10- ;;
  base64) printf %s "$pw" | base64 -w0; echo; printf 'user:%s' "$pw" | base64 -w0 ;;
  hex) printf %s "$pw" | od -An -v -tx1 | tr -d ' \n' ;;
  json) cat "$COB_CONTENT" ;;
  env) PW=$pw env ;;
  fail) if [ "$COB_ATTEMPT" = 1 ]; then echo "can't log in with $pw" >&2; exit 1; fi ;;
  exports) if [ "$COB_ATTEMPT" = 1 ]; then echo "{\"pw\": \"$pw\"}" > "$COB_EXPORT_OUT"; fi ;;
  saved) printf %s "$pw" > "$COB_RESULT_OUT" ;;
  slow) echo "begun with $pw"; while [ ! -e "PROOF/go" ]; do sleep 0.05; done; echo "went on with $pw" ;;
  flood) yes "$pw" | head -c 3000000 ;;
  lines|quoted) printf "$pw\n"; cat "$COB_CONTENT" ;;
  *) echo "the value is $pw" ;;
esac
echo "$1" > "$COB_STATE_DIR/state"
"#;

/// `$1`: the behaviour of the service.
const SERVICE: &str = r#"#!/bin/sh
name=${COB_ID#n1/}
printf %s "$PASSWORD" | sha256sum | cut -c1-64 > "PROOF/$name"
echo "$1 with $PASSWORD"
case $1 in
  run) exec sleep 1000 ;;
  dies) [ -e "PROOF/died" ] && exec sleep 1000; touch "PROOF/died"; sleep 3; echo "no $PASSWORD" >&2; exit 1 ;;
  start) touch "PROOF/commands.up" ;;
  stop) rm -f "PROOF/commands.up" ;;
  status) [ -e "PROOF/commands.up" ] ;;
esac
"#;

struct Planted {
    cluster: Cluster,
    generation: GenerationNumber,
    values: BTreeMap<&'static str, String>,
    /// The folder in memory for secrets.
    memory: tempfile::TempDir,
}

/// A value that does not occur by chance.
fn value(name: &str) -> String {
    let random: String =
        Sha256::digest(format!("{name}{}", std::process::id())).iter().fold(String::new(), |mut s, b| {
            let _ = write!(s, "{:x}", b % 16);
            s
        });
    let random = &random[..24];
    match name {
        "lines" => format!("-----BEGIN OF A KEY-----\n{random}\nsecond-{random}\n-----END-----"),
        "quoted" => format!("\"{random}\" \\ 'ü"),
        _ => format!("planted-{random}+/{name}"),
    }
}

/// The model; a third of the secrets come from a file, a third from a command, and a third encrypted.
fn model(cluster: &Cluster, values: &BTreeMap<&'static str, String>) -> (PathBuf, PathBuf) {
    let key = age::x25519::Identity::generate();
    let secrets = cluster.path("secrets");
    fs::create_dir(&secrets).expect("a folder");
    let key_file = secrets.join("publisher.key");
    let text = age::secrecy::ExposeSecret::expose_secret(&key.to_string()).to_owned();
    fs::write(&key_file, format!("{text}\n")).expect("written");
    fs::set_permissions(&key_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let proof = cluster.path("proof");
    fs::create_dir(&proof).expect("a folder");
    let mut yaml = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:1\"}}\nsecrets:\n".to_owned();
    for (n, (name, value)) in values.iter().enumerate() {
        fs::write(secrets.join(name), format!("{value}\n")).expect("written");
        let source = match n % 3 {
            0 => format!("{{file: ../secrets/{name}}}"),
            1 => format!("{{command: [cat, ../secrets/{name}]}}"),
            _ => {
                let armoured = age::encrypt_and_armor(&key.to_public(), value.as_bytes()).expect("encrypted");
                format!("\n    age: |\n      {}", armoured.trim().replace('\n', "\n      "))
            }
        };
        let _ = writeln!(yaml, "  {name}: {source}");
    }
    yaml.push_str(
        r#"
kinds:
  noisy:
    states: [down, up]
    preferred: up
    pre_remove: down
    retries: 3
    retry_delay: 50ms
    check: {run: ./action.sh check}
    transitions: [{from: down, to: up, run: ./action.sh up}, {from: up, to: down, run: ./action.sh down}]
cobs:
"#,
    );
    for name in ACTIONS.iter().chain(&["check"]) {
        let _ = writeln!(yaml, "  n1/{name}: {{kind: noisy, content: {{pw: \"{{{{ secret('{name}') }}}}\"}}}}");
    }
    let _ = writeln!(
        yaml,
        "  n1/script: {{kind: script, files: [./action.sh], content: {{pw: \"{{{{ secret('script') }}}}\", check: {{run: ./action.sh check}}, \
         transitions: [{{from: down, to: up, run: ./action.sh up}}, {{from: up, to: down, run: ./action.sh down}}, \
         {{from: outdated, to: up, run: ./action.sh up}}]}}}}"
    );
    for (name, how) in [
        ("service", "start: \"exec ./service.sh run\""),
        ("dies", "start: \"exec ./service.sh dies\""),
        ("ready", "start: \"exec ./service.sh run\", ready: \"./service.sh ready\""),
        ("commands", "start: ./service.sh start, stop: ./service.sh stop, status: ./service.sh status"),
    ] {
        let _ = writeln!(
            yaml,
            "  n1/{name}: {{kind: service, files: [./service.sh], content: {{{how}, env: {{PASSWORD: \"{{{{ secret('{name}') }}}}\"}}}}}}"
        );
    }
    yaml.push_str(
        "  n1/exec: {kind: exec, files: [./service.sh], content: {command: ./service.sh once, \
         env: {PASSWORD: \"{{ secret('exec') }}\"}}}\n",
    );
    // A service with actions has a secret in its configuration that another change object has, too.
    yaml.push_str(
        r#"services: {told: {actions: {configure: 'echo "configured with $(cat "$COB_CONTENT")"', start: "true", stop: "true"}}}
clusters: {c: {config: {pw: "{{ secret('plain') }}"}, services: {told: [n1]}}}
"#,
    );
    let here = |text: &str| text.replace("PROOF", &proof.display().to_string());
    let model = cluster
        .write_model("model", &[("model.yaml", &yaml), ("action.sh", &here(ACTION)), ("service.sh", &here(SERVICE))]);
    (model, key_file)
}

fn plant() -> Planted {
    let mut cluster = cluster(&["n1"]);
    let memory = tempfile::Builder::new().prefix("cob-test").tempdir_in("/dev/shm").expect("a folder in memory");
    fs::set_permissions(memory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("set");
    cluster.configure("n1", &format!("secrets_dir = \"{}\"", memory.path().display()));
    let names: BTreeSet<&'static str> = ACTIONS.into_iter().chain(OTHERS).collect();
    let values: BTreeMap<&str, String> = names.into_iter().map(|name| (name, value(name))).collect();
    assert_eq!(values.len(), 21);
    let (model, key_file) = model(&cluster, &values);
    fs::create_dir(cluster.path("n1")).expect("a folder");
    fs::set_permissions(cluster.path("n1"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("set");
    let key = SecretKey::load_or_create(&cluster.path("n1/identity.key")).expect("a key");
    // Sealed as for a host with a key; the protection of the links does not matter for secrets.
    let mut draft = cluster.load(&model);
    draft.security = Security::Identities;
    draft.hosts.values_mut().for_each(|host| host.value.keys = vec![key.public()]);
    let vault = Vault::new(Some(&cluster.path("secrets/site.key")), Some(&key_file));
    let found = vault.settle(&mut draft, &After::default());
    assert!(found.iter().all(|d| d.code == "new-site-key"), "{found:#?}");
    draft.security = Security::LoopbackOnly;
    draft.hosts.values_mut().for_each(|host| host.value.keys.clear());
    let generation = cluster.publish_draft(&draft);
    Planted { cluster, generation, values, memory }
}

impl Planted {
    /// The forms that must not occur anywhere, with the secret's name.
    fn forms(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut forms = Vec::new();
        for (name, value) in &self.values {
            let hex = value.bytes().fold(String::new(), |mut s, b| {
                let _ = write!(s, "{b:02x}");
                s
            });
            let json = serde_json::Value::from(value.as_str()).to_string();
            let json = json[1..json.len() - 1].to_owned();
            let mut all = vec![value.clone(), hex, json, STANDARD.encode(value).trim_end_matches('=').to_owned()];
            // Base64 is different after other bytes.
            for before in ["x", "xx"] {
                let shifted = STANDARD.encode(format!("{before}{value}"));
                all.push(shifted[4..shifted.len() - 4].to_owned());
            }
            // Two thirds of a value are too much, too.
            all.push(value.chars().take(value.chars().count() * 2 / 3).collect());
            forms.extend(all.into_iter().map(|form| (*name, form.into_bytes())));
        }
        forms
    }

    fn assert_clean(&self, place: &str, bytes: &[u8], forms: &[(&'static str, Vec<u8>)]) {
        for (name, form) in forms {
            let at = bytes.windows(form.len()).position(|w| w == form);
            let shown = |at: usize| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(80)..bytes.len().min(at + 80)]).into_owned()
            };
            assert!(at.is_none(), "{place} has the secret {name}: …{}…", at.map(shown).unwrap_or_default());
        }
    }

    /// Searches every file below a folder; returns the number of files.
    fn search_files(&self, folder: &Path, forms: &[(&'static str, Vec<u8>)]) -> usize {
        let mut open = vec![folder.to_owned()];
        let mut count = 0;
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file()
                    && let Ok(bytes) = fs::read(entry.path())
                {
                    count += 1;
                    self.assert_clean(&entry.path().display().to_string(), &bytes, forms);
                }
            }
        }
        count
    }

    /// Searches all stored data and all data that users can query.
    fn search(&self) {
        let forms = self.forms();
        let cluster = &self.cluster;
        assert!(self.search_files(&cluster.path("n1"), &forms) > 10);
        assert!(self.search_files(&cluster.path("depot"), &forms) > 5);
        self.search_depot(&forms);
        self.assert_clean("the log", cluster.log("n1").as_bytes(), &forms);
        let ids: Vec<CobId> = cluster.status("n1").expect("a status").cobs.into_iter().map(|c| c.id).collect();
        let paths = ["/v1/status".to_owned(), "/v1/history?limit=10000".to_owned()].into_iter();
        let paths = paths.chain(ids.iter().map(|id| format!("/v1/output/{id}")));
        for path in paths.chain(ids.iter().map(|id| format!("/v1/cobs/{id}"))) {
            let answer = cluster.http("n1", "GET", &path, "").unwrap_or_else(|e| e);
            self.assert_clean(&path, answer.as_bytes(), &forms);
        }
    }

    /// Searches every object of the depot's repository, unpacked.
    fn search_depot(&self, forms: &[(&'static str, Vec<u8>)]) {
        let repository = git2::Repository::open(self.cluster.path("depot")).expect("a repository");
        let objects = repository.odb().expect("objects");
        let mut count = 0;
        objects
            .foreach(|id| {
                let object = objects.read(*id).expect("an object");
                self.assert_clean(&format!("object {id}"), object.data(), forms);
                count += 1;
                true
            })
            .expect("listed");
        assert!(count > 3, "{count} objects");
    }

    /// Searches the command lines of all processes, and the environment of daemons, runners and supervisors.
    fn search_processes(&self) {
        let forms = self.forms();
        let mut ours = 0;
        for pid in processes::mentioning(&self.cluster.dir.path().display().to_string()) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            self.assert_clean(&format!("the command line of {pid}"), &line, &forms);
            let text = String::from_utf8_lossy(&line).into_owned();
            if ["__run-action", "__keep-service", "__move-service", "cobd\0run"].iter().any(|word| text.contains(word))
            {
                ours += 1;
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                self.assert_clean(&format!("the environment of {text}"), &environment, &forms);
            }
        }
        assert!(ours >= 3, "a daemon, a runner, keepers; found {ours}");
    }

    /// An administrator's command that shows the value of a secret, in its line and in its output.
    fn run_a_command(&self) {
        let value = &self.values["plain"];
        let line = format!("echo 'it is {value}'; printf %s \"$X\" | base64; echo \"$X\" >&2");
        let order = serde_json::json!({"command": line, "env": {"X": value}, "run": "00000000000a"}).to_string();
        let answer = self.cluster.http("n1", "POST", "/v1/run", &order).expect("it runs");
        assert!(answer.contains("it is [secret]") && answer.contains("{\"exited\":0}"), "{answer}");
        let kept = self.cluster.http("n1", "GET", "/v1/run/00000000000a", "").expect("kept");
        assert!(kept.contains("it is [secret]"), "{kept}");
        for (place, text) in [("the answer", answer), ("the kept output", kept)] {
            self.assert_clean(place, text.as_bytes(), &self.forms());
        }
    }

    fn in_memory(&self, what: &str) -> Vec<String> {
        let entries = fs::read_dir(self.memory.path().join(what)).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }
}

#[test]
fn planted_secrets_are_found_nowhere() {
    let mut planted = plant();
    let generation = planted.generation;
    planted.cluster.start_all();
    let watch = planted.watch();
    planted.cluster.switch_all(generation);
    let go = planted.cluster.path("proof/go");
    let output = |planted: &Planted| planted.cluster.http("n1", "GET", "/v1/output/n1/slow", "").unwrap_or_default();
    planted.cluster.until(PATIENCE, || output(&planted).contains("begun with [secret]"), "its output is shown");
    planted.cluster.until(
        PATIENCE,
        || {
            planted
                .cluster
                .status("n1")
                .is_some_and(|s| s.cobs.iter().filter(|c| c.state.as_ref().is_some_and(|s| *s == *"up")).count() == 19)
        },
        "all but one are up",
    );
    // `dies` is up until it dies, and again after that.
    let died = |planted: &Planted| planted.cluster.history("n1").iter().any(|e| e.detail.contains("no [secret]"));
    planted.cluster.until(PATIENCE, || died(&planted), "the service that dies has died");
    planted.search();
    planted.search_processes();
    planted.search_watched(watch);
    planted.search_programs();
    planted.run_a_command();
    planted.cluster.until(PATIENCE, || planted.in_memory("jobs").len() == 1, "one action runs");
    assert_eq!(planted.in_memory("services").len(), 3, "three services are kept");
    // The daemon crashes; the action continues with its values, and the next daemon gets its result.
    if !planted.crash() {
        println!("this machine keeps no core dump of anybody: that the daemon leaves none shows nothing here");
    }
    fs::create_dir(planted.memory.path().join("jobs/00000000000000aa")).expect("left by somebody");
    fs::write(&go, "").expect("written");
    planted.cluster.start("n1");
    planted.cluster.wait_converged(generation, PATIENCE);
    planted.cluster.until(PATIENCE, || planted.in_memory("jobs").is_empty(), "nothing of jobs is left in memory");
    assert!(output(&planted).is_empty() || output(&planted).contains("went on with [secret]"), "{}", output(&planted));
    planted.search();
    planted.search_processes();
    // The search would find it.
    let found = planted.cluster.path("n1/found");
    fs::write(&found, format!("a{}b", STANDARD.encode(&planted.values["plain"]))).expect("written");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| planted.search())).is_err());
    fs::remove_file(&found).expect("removed");
    // Every action had the right value.
    for (name, value) in planted.values.iter().filter(|(name, _)| **name != "quoted" && **name != "lines") {
        let wanted = Sha256::digest(value).iter().fold(String::new(), |mut s, b| {
            let _ = write!(s, "{b:02x}");
            s
        });
        let proof = fs::read_to_string(planted.cluster.path("proof").join(name)).unwrap_or_default();
        assert_eq!(proof.trim(), wanted, "{name}");
    }
    // A failure shows its reason, without the secret.
    let details: Vec<String> = planted.cluster.history("n1").into_iter().map(|e| e.detail).collect();
    for part in ["can't log in with [secret]", "an exported value contains a secret", "no [secret]"] {
        assert!(details.iter().any(|d| d.contains(part)), "{part:?} is not in {details:#?}");
    }
    // Ended services leave no data in memory either, and their last lines contain no secrets.
    let mut draft = cobgen::expand::load(&planted.cluster.path("model"), &BTreeSet::new()).draft.expect("a model");
    draft.cobs.clear();
    draft.hosts.values_mut().for_each(|h| h.value.address = Some(format!("tcp://{}", planted.cluster.address("n1"))));
    let empty = planted.cluster.publish_draft(&draft);
    planted.cluster.switch_all(empty);
    planted.cluster.wait_converged(empty, PATIENCE);
    planted.cluster.until(PATIENCE, || planted.in_memory("services").is_empty(), "nothing of services is left");
    let said = fs::read_to_string(planted.cluster.path("n1/services/n1+service/output")).expect("its last words");
    assert!(said.contains("run with [secret]"), "{said}");
    planted.search();
}

#[test]
fn a_host_refuses_secrets_sealed_for_another_key() {
    let mut planted = plant();
    fs::remove_file(planted.cluster.path("n1/identity.key")).expect("removed");
    let own = SecretKey::load_or_create(&planted.cluster.path("n1/identity.key")).expect("another key").public();
    planted.cluster.start_all();
    let body = format!("{{\"generation\": {}}}", planted.generation);
    let refused = planted.cluster.http("n1", "POST", "/v1/prepare", &body).expect_err("refused");
    assert!(refused.contains("it is encrypted for another key"), "{refused}");
    assert!(refused.contains(&format!("this host has {own}")), "{refused}");
}
