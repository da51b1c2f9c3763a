//! Tests the commands on a depot, as people and scripts use them.

use std::path::PathBuf;

use cobgen::cli::{self, Terminal};
use cobgen::depot::Depot;
use cobgen::depot::enrolled::Former;
use serde_json::{Value, json};

/// A model and a depot in their own folder.
struct Desk {
    dir: tempfile::TempDir,
}

const MODEL: &str = r#"security: loopback-only
hosts: {n1: {address: "tcp://127.0.0.1:7001"}, n2: {address: "tcp://127.0.0.1:7002"}}
kinds:
  k:
    states: [outdated, down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: outdated, to: down, run: "true"}
      - {from: down, to: up, run: "true"}
      - {from: up, to: down, run: "true"}
cobs:
  n1/config: {kind: k, content: {size: 1}}
  n1/db: {kind: k, restarts_on: [config]}
  n2/app: {kind: k, requires: [n1/db]}
"#;

impl Desk {
    fn new() -> Self {
        let desk = Self { dir: tempfile::tempdir().expect("a folder") };
        std::fs::create_dir(desk.path("model")).expect("made");
        std::fs::write(desk.path("model/check.sh"), "#!/bin/sh\necho up\n").expect("written");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(desk.path("model/check.sh"), executable).expect("executable");
        desk.model(MODEL);
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn model(&self, text: &str) {
        std::fs::write(self.path("model/model.yaml"), text).expect("written");
    }

    /// Exit status, output, error output; MODEL and DEPOT are replaced by the paths.
    fn run(&self, line: &str) -> (u8, String, String) {
        let (model, depot) = (self.path("model"), self.path("depot"));
        let (model, depot) = (model.to_str().expect("UTF-8"), depot.to_str().expect("UTF-8"));
        let word = |word: &str| word.replace("MODEL", model).replace("DEPOT", depot).into();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = std::iter::once("cobgen").chain(line.split(' ')).map(word);
        let status =
            cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8").replace(model, "MODEL").replace(depot, "DEPOT");
        (status, text(out), text(err))
    }

    fn json(&self, line: &str, status: u8) -> Value {
        let (found, out, err) = self.run(line);
        assert_eq!((found, err.as_str()), (status, ""), "{line}");
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{line}: {e}: {out}"))
    }

    fn generate(&self) -> Value {
        self.json("generate MODEL --depot DEPOT --json", 0)
    }
}

#[test]
fn generations_are_made_listed_compared_and_shown() {
    let desk = Desk::new();
    let (status, out, err) = desk.run("generate MODEL --depot DEPOT -m first");
    insta::assert_snapshot!(format!("{status}\n{out}{err}"), @r"
    0
    generation 1: 2 hosts, 3 change objects; 3 added, 0 changed, 0 removed
      + n1/config
      + n1/db
      + n2/app
    Next: `cobctl switch 1 --depot DEPOT`.
    ");
    let (status, out, err) = desk.run("generate MODEL --depot DEPOT");
    let same = "generation 1 already corresponds to the model; no new generation was made\n";
    assert_eq!((status, out.as_str(), err.as_str()), (0, same, ""));
    let numbers = json!({
        "generation": 1, "hosts": 2, "cobs": 3, "added": 0, "changed": 0, "removed": 0, "new_keys": [], "revoked_keys": [], "signed_by": [], "ahead": {},
    });
    assert_eq!(desk.generate(), numbers);

    let changed = MODEL.replace("size: 1", "size: 2").replace("n2/app: {kind: k,", "n2/web: {kind: k,");
    desk.model(&changed);
    let (status, out, err) = desk.run("diff MODEL --depot DEPOT");
    insta::assert_snapshot!(format!("{status}\n{out}{err}"), @r"
    1
    generation 1 -> 2: 1 added, 2 changed, 1 removed
    + n2/web (k)
    - n2/app (k)
    ~ n1/config
        size: 1 -> 2
    ~ n1/db
        its dependencies changed
        - (n1/db, outdated, down) <- n2/app@down
        - (n1/db, up, down) <- n2/app@down
        + (n1/db, outdated, down) <- n2/web@down
        + (n1/db, up, down) <- n2/web@down
    ");
    let numbers = json!({
        "generation": 2, "hosts": 2, "cobs": 3, "added": 1, "changed": 2, "removed": 1, "new_keys": [], "revoked_keys": [], "signed_by": [], "ahead": {},
    });
    assert_eq!(desk.generate(), numbers);
    assert_eq!(desk.run("diff --depot DEPOT"), (status, out.clone(), String::new()));
    assert_eq!(desk.run("diff 1 --depot DEPOT"), (status, out.clone(), String::new()));
    assert_eq!(desk.run("diff --depot DEPOT 1 2"), (status, out, String::new()));
    assert_eq!(desk.run("diff 2 --depot DEPOT").0, 0);
    let whole = desk.json("diff 0 1 --depot DEPOT --json", 1);
    assert_eq!(whole["added"], json!({"n1/config": "k", "n1/db": "k", "n2/app": "k"}));

    let log = desk.json("log --depot DEPOT --json", 0);
    let told: Vec<_> = log["generations"].as_array().expect("a list").iter().map(|g| &g["message"]).collect();
    assert_eq!(told, ["generation 2", "first"]);
    let (status, out, _) = desk.run("log --depot DEPOT");
    assert!(status == 0 && out.starts_with("generation 2   ") && out.contains("\n    first\n"), "{out}");

    let (status, out, err) = desk.run("show --depot DEPOT n1/db");
    insta::assert_snapshot!(format!("{status}\n{out}{err}"), @r"
    0
    n1/db   MODEL/model.yaml:15:3
      kind       k (outdated, down, up)
      preferred  up
      files      check.sh
      restart on n1/config
      (n1/db, down, up) <- (n1/config, up)   restarts_on: [config]   MODEL/model.yaml:15:34
      (n1/db, outdated, down) <- (n2/web, down)   requires: [n1/db]   MODEL/model.yaml:16:32
      (n1/db, up, down) <- (n2/web, down)   requires: [n1/db]   MODEL/model.yaml:16:32
      needed by  (n2/web, down, up) <- (n1/db, up)
      needed by  (n2/web, up) <- (n1/db, up)
    ");
    assert_eq!(desk.run("show MODEL n1/db").1, out);
    let older = desk.json("show --depot DEPOT --generation 1 n2 --json", 0);
    assert_eq!(older["cobs"][0]["id"], "n2/app");
    assert_eq!(older["cobs"][0]["locks"][0]["sources"][0]["words"], "requires: [n1/db]");
}

#[test]
fn the_depot_holds_the_model_as_given() {
    let desk = Desk::new();
    desk.model(&MODEL.replace("cobs:", "  unused: {states: [a, b], preferred: a, pre_remove: b, check: {run: ./other.sh}, transitions: [{from: a, to: b, run: x}, {from: b, to: a, run: x}]}\ncobs:"));
    std::fs::write(desk.path("model/other.sh"), "other").expect("written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(desk.path("model/other.sh"), executable).expect("executable");
    std::fs::write(desk.path("model/stranger"), "none of ours").expect("written");
    desk.generate();
    let number = cob_types::GenerationNumber(1);
    let files = Depot::open(&desk.path("depot")).expect("opened").read_model(number).expect("read");
    assert_eq!(files.keys().collect::<Vec<_>>(), ["check.sh", "model.yaml", "other.sh"]);
    for (name, bytes) in files {
        assert_eq!(std::fs::read(desk.path("model").join(name)).expect("there"), bytes);
    }
}

#[test]
fn a_wrong_model_makes_neither_a_generation_nor_a_depot() {
    let desk = Desk::new();
    desk.model(&MODEL.replace("content: {size: 1}", "requires: [n2/app]"));
    let (status, out, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("error: ") && err.ends_with("No generation was made.\n"), "{err}");
    let refused = desk.json("generate MODEL --depot DEPOT --json", 2);
    assert_eq!(refused["diagnostics"][0]["severity"], "error");
    assert!(!desk.path("depot").exists());
    // `show` still works, so that the cause can be found.
    let (status, out, err) = desk.run("show MODEL n1/config");
    assert!(status == 0 && out.contains("requires: [n2/app]"), "{out}");
    assert!(err.contains("see `cobgen check MODEL`"), "{err}");
}

#[test]
fn a_missing_depot_generation_or_object_is_reported() {
    let desk = Desk::new();
    let (status, _, err) = desk.run("log --depot DEPOT");
    assert_eq!(status, 2);
    insta::assert_snapshot!(err, @"error: there is no depot at DEPOT: `cobgen generate MODEL --depot DIR` creates it");
    let (status, _, err) = desk.run("log --depot MODEL");
    assert_eq!(status, 2);
    insta::assert_snapshot!(err, @"error: MODEL is not a depot: it is not a bare git repository");
    desk.generate();
    for size in [2, 3] {
        desk.model(&MODEL.replace("size: 1", &format!("size: {size}")));
        desk.generate();
    }
    let (status, out, err) = desk.run("diff 2 9 --depot DEPOT");
    assert_eq!((status, out.as_str()), (2, ""));
    insta::assert_snapshot!(err, @r"
    error: generation 9 is not in the depot: the latest is 3
      help: it has 1-3; see `cobgen log`
    ");
    let (status, _, err) = desk.run("show --depot DEPOT n1/dbb");
    assert_eq!(status, 2);
    insta::assert_snapshot!(err, @r"
    error: there is no change object and no host `n1/dbb`
      help: did you mean `n1/db`?
    ");
    for line in ["show", "show MODEL n1 --depot DEPOT", "diff MODEL 3 --depot DEPOT", "show MODEL --generation 3"] {
        let (status, out, err) = desk.run(line);
        assert!(status == 2 && out.is_empty() && err.starts_with("error: "), "{line}: {err}");
    }
}

#[test]
fn of_many_at_once_each_has_its_generation() {
    let desk = Desk::new();
    let models: Vec<PathBuf> = (0..6)
        .map(|i| {
            let path = desk.path(&format!("{i}.yaml"));
            let text = MODEL.replace("size: 1", &format!("size: {i}")).replace("./check.sh", "echo up");
            std::fs::write(&path, text).expect("written");
            path
        })
        .collect();
    let depot = desk.path("depot");
    std::thread::scope(|scope| {
        for model in &models {
            let depot = &depot;
            scope.spawn(move || cobgen::publish(model, depot, "at once").expect("published"));
        }
    });
    let log = Depot::open(&depot).expect("opened").list().expect("read");
    let numbers: Vec<u64> = log.iter().map(|entry| entry.generation.0).collect();
    assert_eq!(numbers, [6, 5, 4, 3, 2, 1]);
}

#[test]
fn an_object_on_the_first_node_stays_when_a_node_is_added() {
    let desk = Desk::new();
    let model = |nodes: &str| {
        format!(
            "{MODEL}services: {{s: {{cobs: {{once: {{kind: k, place: first}}}}}}}}\nclusters: {{c: {{services: {{s: [{nodes}]}}}}}}\n"
        )
    };
    desk.model(&model("n2"));
    desk.generate();
    desk.model(&model("n1, n2"));
    let difference = desk.run("diff MODEL --depot DEPOT");
    // The cluster has another host; no change object differs.
    assert!(difference.0 == 1 && difference.1.contains("0 added, 0 changed, 0 removed"), "{}", difference.1);
    assert_eq!(desk.generate()["generation"], 2);
}

/// A model whose hosts have keys; `n2` has none if `whole` is false.
fn with_keys(whole: bool) -> String {
    let key = |n: u8| cob_types::PublicKey([n; 32]).to_string();
    let second = if whole { format!(", key: \"{}\"", key(2)) } else { String::new() };
    let hosts = format!(
        "hosts: {{n1: {{address: \"tcp://192.0.2.1:7001\", key: \"{}\"}}, n2: {{address: \"tcp://192.0.2.2:7001\"{second}}}}}",
        key(1)
    );
    let mut lines: Vec<&str> = MODEL.lines().skip(2).collect();
    lines.insert(0, &hosts);
    lines.join("\n")
}

#[test]
fn a_generation_with_identities_is_signed_or_warned_of() {
    let desk = Desk::new();
    desk.model(&with_keys(true));
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!(status, 0, "{err}");
    assert!(err.contains("warning: generation 1 is not signed") && err.contains("`cobgen sign 1 --key FILE"), "{err}");
    let file = desk.path("publisher.key").display().to_string();
    let (status, ann, _) = desk.run(&format!("key {file}"));
    assert_eq!(status, 0);
    assert_eq!(desk.run(&format!("key {file}")).1, ann, "a key is never replaced");
    let (status, out, err) = desk.run(&format!("sign 1 --key {file} --depot DEPOT"));
    assert!(status == 0 && out.contains(ann.trim()) && out.contains("3 added"), "{out}{err}");

    let more = with_keys(true).replace("size: 1", "size: 2");
    desk.model(&more);
    let (status, out, err) = desk.run(&format!("generate MODEL --depot DEPOT --sign-with {file}"));
    assert!(status == 0 && out.contains(&format!("signed by {}", ann.trim())), "{out}{err}");
    // Two signatures.
    let second = desk.path("second.key").display().to_string();
    let bob = desk.run(&format!("key {second}")).1;
    let (_, out, _) = desk.run(&format!("sign 2 --key {second} --depot DEPOT --json"));
    let signed: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(signed["back"], json!([1, 0]), "the way back is signed together with the way forward");
    let mut both = [ann.trim(), bob.trim()];
    both.sort_by_key(|key| key.parse::<cob_types::PublicKey>().expect("a key"));
    assert_eq!(signed["signed_by"], json!(both));
    let log: Value = serde_json::from_str(&desk.run("log --depot DEPOT --json").1).expect("JSON");
    assert_eq!(log["generations"][0]["signed_by"], json!(both));
    assert!(desk.run("show --depot DEPOT").2.contains("generation 2 is signed by"));

    let (_, out, err) = desk.run(&format!("generate MODEL --depot DEPOT --sign-with {file}"));
    assert!(out.contains("generation 2 already corresponds to the model"), "{out}{err}");
    assert!(!err.contains("has not signed it"), "{err}");
    // A third key does not sign an existing generation unasked.
    let third = desk.path("third.key").display().to_string();
    let carol = desk.run(&format!("key {third}")).1;
    let (_, _, err) = desk.run(&format!("generate MODEL --depot DEPOT --sign-with {third}"));
    let told = format!("generation 2 already existed, and {} has not signed it", carol.trim());
    assert!(err.contains(&told) && err.contains(&format!("`cobgen sign 2 --key {third}")), "{err}");
    desk.model(&with_keys(true));
    desk.run(&format!("generate MODEL --depot DEPOT --no-way-back --sign-with {file}"));
    let depot = Depot::open(&desk.path("depot")).expect("opened");
    let three = depot.read_manifest(cob_types::GenerationNumber(3)).expect("read");
    assert_eq!(three.back, []);
}

/// The rollback targets of a generation.
fn ways_back(desk: &Desk, generation: u64) -> Vec<u64> {
    let depot = Depot::open(&desk.path("depot")).expect("opened");
    let manifest = depot.read_manifest(cob_types::GenerationNumber(generation)).expect("read");
    manifest.back.iter().map(|way| way.generation.0).collect()
}

#[test]
fn no_rollback_target_is_before_a_generation_without_rollback() {
    let desk = Desk::new();
    let generate = |size: u32, more: &str| {
        desk.model(&with_keys(true).replace("size: 1", &format!("size: {size}")));
        let (status, _, err) = desk.run(&format!("generate MODEL --depot DEPOT{more}"));
        assert_eq!(status, 0, "{err}");
    };
    for size in 1..=3 {
        generate(size, "");
    }
    assert_eq!(ways_back(&desk, 3), [2, 1, 0]);
    generate(4, " --no-way-back");
    assert_eq!(ways_back(&desk, 4), [0; 0]);
    generate(5, "");
    assert_eq!(ways_back(&desk, 5), [4]);
    generate(6, "");
    assert_eq!(ways_back(&desk, 6), [5, 4]);
}

#[test]
fn a_published_model_can_be_published_again_without_rollback() {
    let desk = Desk::new();
    let generate = |size: u32, more: &str| {
        desk.model(&with_keys(true).replace("size: 1", &format!("size: {size}")));
        let (status, out, err) = desk.run(&format!("generate MODEL --depot DEPOT{more}"));
        assert_eq!(status, 0, "{err}");
        out
    };
    generate(1, "");
    generate(2, "");
    let said = generate(2, " --no-way-back");
    assert!(!said.contains("already corresponds to the model"), "{said}");
    assert_eq!(ways_back(&desk, 3), [0; 0]);
    for more in [" --no-way-back", ""] {
        let said = generate(2, more);
        assert!(said.contains("generation 3 already corresponds to the model"), "once is enough: {said}");
    }
    generate(3, "");
    assert_eq!(ways_back(&desk, 4), [3]);
}

#[test]
fn no_generation_leads_back_to_where_a_key_counts_that_it_revokes() {
    let desk = Desk::new();
    let key = cob_types::PublicKey([9; 32]);
    let generate = |size: u32, of_key: &str| {
        desk.model(&format!("{}\n{of_key}\n", with_keys(true).replace("size: 1", &format!("size: {size}"))));
        let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
        assert_eq!(status, 0, "{err}");
        err
    };
    generate(1, "");
    for size in 2..=3 {
        generate(size, &format!("operators: {{mallory: {{role: operate, key: \"{key}\"}}}}"));
    }
    assert_eq!(ways_back(&desk, 3), [2, 1, 0]);
    let said = generate(4, &format!("revoked: [\"{key}\"]"));
    assert!(said.contains(&format!("there {key} would be valid again")), "{said}");
    // 1 does not know the key, but a rollback may not skip the generations between.
    assert_eq!(ways_back(&desk, 4), [0; 0]);
    // The key need not stay revoked for ever.
    let said = generate(5, "");
    assert_eq!(ways_back(&desk, 5), [4], "{said}");
    assert!(!said.contains("no-way-back"), "{said}");
    generate(6, "");
    assert_eq!(ways_back(&desk, 6), [5, 4]);
    // If the key counts again, its revocation was a mistake, and 3, in which the key counts, is a target again.
    generate(7, &format!("operators: {{mallory: {{role: operate, key: \"{key}\"}}}}"));
    assert_eq!(ways_back(&desk, 7), [6, 5, 4, 3]);
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let desk = Desk::new();
    desk.run("generate MODEL --depot DEPOT");
    let file = desk.path("open.key");
    std::fs::write(&file, "-----BEGIN PRIVATE KEY-----").expect("written");
    let (status, _, err) = desk.run(&format!("sign 1 --key {} --depot DEPOT", file.display()));
    assert!(status == 2 && err.contains("chmod 600"), "{err}");
    let (status, _, err) = desk.run("sign 1 --key no/such/file --depot DEPOT");
    assert!(status == 2 && err.contains("`cobgen key FILE` makes a key"), "{err}");
    let (status, _, err) = desk.run("key no/such/file");
    assert!(status == 2 && err.contains("there is no folder no/such: make it first"), "{err}");
}

#[test]
fn hosts_without_a_key_have_enrolled_or_are_named() {
    let desk = Desk::new();
    desk.model(&with_keys(false));
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!(status, 2);
    insta::assert_snapshot!(err);
    assert!(!desk.path("depot").exists());
    std::fs::create_dir(desk.path("depot")).expect("made");
    Depot::create_or_open(&desk.path("depot")).expect("made");
    let n2 = cob_types::HostName::new("n2").expect("name");
    let key = cob_types::PublicKey([2; 32]);
    cobgen::depot::enrolled::add(&desk.path("depot"), &n2, key, "2026-11-21T12:00:00Z", Former::Revoke).expect("added");
    // `check` knows the key if it knows the depot.
    let (status, _, err) = desk.run("check MODEL");
    assert!(status == 0 && err.contains("n2 has an address but no key"), "{err}");
    let (status, _, err) = desk.run("check MODEL --depot DEPOT");
    assert!(status == 0 && !err.contains("no key"), "{err}");
    let (status, _, err) = desk.run("check MODEL --depot no/such");
    assert!(status == 2 && err.contains("there is no depot"), "{err}");
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!(status, 0, "{err}");
    let manifest = Depot::open(&desk.path("depot")).expect("opened").read_manifest(cob_types::GenerationNumber(1));
    assert_eq!(manifest.expect("read").hosts["n2"].keys, [key]);
    // The host was lost and has enrolled again: its old key is revoked without a change of the model.
    let again = cob_types::PublicKey([12; 32]);
    cobgen::depot::enrolled::add(&desk.path("depot"), &n2, again, "2026-11-21T13:00:00Z", Former::Revoke)
        .expect("added");
    let (status, out, err) = desk.run("generate MODEL --depot DEPOT");
    assert!(status == 0 && !err.contains("loses its key"), "{err}");
    assert!(out.contains(&format!("the key {key} of n2 is revoked")), "{out}");
    let manifest = Depot::open(&desk.path("depot")).expect("opened").read_manifest(cob_types::GenerationNumber(2));
    let manifest = manifest.expect("read");
    assert_eq!((&manifest.hosts["n2"].keys, manifest.revoked), (&vec![again], [key].into()));
    let key = again;
    // An enrolled key that is revoked does not count.
    desk.model(&format!("revoked: [\"{key}\"]\n{}", with_keys(false)));
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert!(status == 2 && err.contains("host n2 has an address and no key"), "{err}");
}

#[test]
fn a_replaced_or_hidden_host_key_gives_a_warning() {
    let key = |n: u8| cob_types::PublicKey([n; 32]);
    let desk = Desk::new();
    desk.model(&with_keys(true));
    let (_, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert!(!err.contains("loses its key") && !err.contains("has enrolled with"), "{err}");
    let other = with_keys(true).replace(&key(2).to_string(), &key(3).to_string());
    desk.model(&other);
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!(status, 0, "{err}");
    for part in [
        &format!("host n2 loses its key {} and gets {} at once", key(2), key(3)),
        "MODEL/model.yaml:1:",
        &format!("`key: [\"{}\", \"{}\"]`", key(2), key(3)),
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    // Both keys for a generation, or the old key revoked: no warning.
    let both = other.replace(&format!("\"{}\"", key(3)), &format!("[\"{}\", \"{}\"]", key(3), key(4)));
    desk.model(&both);
    assert!(!desk.run("generate MODEL --depot DEPOT").2.contains("loses its key"));
    let gone = format!("revoked: [\"{}\", \"{}\"]\n{}", key(3), key(4), with_keys(true));
    desk.model(&gone);
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert!(status == 0 && !err.contains("loses its key"), "{err}");

    let n2 = cob_types::HostName::new("n2").expect("name");
    cobgen::depot::enrolled::add(&desk.path("depot"), &n2, key(5), "2026-11-21T12:00:00Z", Former::Revoke)
        .expect("added");
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!(status, 0, "{err}");
    for part in [
        &format!("host n2 has enrolled with {}, and the model names {}", key(5), key(2)),
        "MODEL/model.yaml:2:",
        "`cobd init`",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

#[test]
fn a_signature_that_no_host_is_told_to_believe_is_warned_of() {
    let desk = Desk::new();
    desk.model(&with_keys(true));
    let (ann, bob) = (desk.path("ann.key").display().to_string(), desk.path("bob.key").display().to_string());
    let keys = [&ann, &bob].map(|file| desk.run(&format!("key {file}")).1.trim().to_owned());
    desk.run(&format!("generate MODEL --depot DEPOT --sign-with {bob}"));
    let trust = |text: String| std::fs::write(desk.path("depot/trust.toml"), text).expect("written");
    let again = |signer: &str| desk.run(&format!("generate MODEL --depot DEPOT --sign-with {signer}"));
    assert!(!again(&bob).2.contains("warning"), "nobody is named: nothing is known");
    trust(format!("trust = [\"{}\"]\n", keys[0]));
    let (status, out, err) = again(&bob);
    assert!(status == 0 && out.contains("signed by"), "{out}{err}");
    for part in
        ["warning: no host will accept the signature of generation 1", &keys[0], "`cobgen sign 1 --key", "trust.toml"]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
    let (_, _, err) = desk.run(&format!("generate MODEL --depot DEPOT --json --sign-with {bob}"));
    assert!(err.contains("no host will accept the signature"), "{err}");
    trust(format!("trust = [\"{}\", \"{}\"]\nthreshold = 2\n", keys[0], keys[1]));
    let (_, _, err) = again(&bob);
    assert!(err.contains("generation 1 lacks signatures") && err.contains("require signatures from 2 of"), "{err}");
    desk.run(&format!("sign 1 --key {ann} --depot DEPOT"));
    assert!(!again(&bob).2.contains("warning"), "both have signed");
}

/// The switch orders of a generation in both directions; for later generations without the empty generation.
fn ways(desk: &Desk, number: u64) -> Vec<String> {
    let depot = Depot::open(&desk.path("depot")).expect("a depot");
    let manifest = depot.read_manifest(cob_types::GenerationNumber(number)).expect("read");
    let told = |order: &cob_types::SwitchOrder| {
        let waits = order.waits.iter().flat_map(|(host, all)| all.iter().map(move |cob| format!(" {host}<{cob}")));
        let after = order.after.iter().flat_map(|(cob, all)| all.iter().map(move |b| format!(" {b}<{cob}")));
        format!("{}->{}{}", order.from, order.to, waits.chain(after).collect::<String>())
    };
    let nothing = cob_types::GenerationNumber(0);
    manifest.switches.iter().filter(|order| number == 1 || order.to != nothing).map(told).collect()
}

#[test]
fn a_generation_has_switch_orders_forward_and_for_rollback() {
    let desk = Desk::new();
    // Two more change objects: `n1/mount` departs with the help of n2/app.
    let more = "  n1/mount: {kind: k, transitions: [{from: up, to: down, needs: [n2/app@up]}]}\n  n2/x: {kind: k}\n";
    desk.model(&format!("{MODEL}{more}"));
    desk.generate();
    let without_x = format!("{MODEL}{more}").replace("  n2/x: {kind: k}\n", "");
    desk.model(&without_x);
    desk.generate();
    desk.model(&without_x.replace("requires: [n1/db]", "content: {size: 2}, requires: [n1/db]"));
    desk.generate();
    desk.model(&format!("{MODEL}switch: {{on_failure: rollback, guard: 90s}}\n").replace("size: 1", "size: 3"));
    desk.generate();
    assert_eq!(ways(&desk, 1), ["1->0 n2<n1/mount n1/mount<n1/config n1/mount<n1/db n1/mount<n2/app"]);
    assert_eq!(ways(&desk, 2), ["1->2", "2->1"]);
    assert_eq!(ways(&desk, 3), ["2->3", "3->2", "1->3", "3->1"]);
    // n2/app changes, or its requirements do: its host waits for the departure of n1/mount, which needs n2/app.
    let forth = ways(&desk, 4).into_iter().filter(|way| !way.starts_with("4->")).collect::<Vec<_>>();
    assert_eq!(forth, ["3->4 n2<n1/mount", "2->4 n2<n1/mount", "1->4 n2<n1/mount"]);
    let back = ways(&desk, 4).into_iter().filter(|way| way.starts_with("4->")).collect::<Vec<_>>();
    assert_eq!(back, ["4->3", "4->2", "4->1"]);
    let depot = Depot::open(&desk.path("depot")).expect("a depot");
    let policy = depot.read_manifest(cob_types::GenerationNumber(4)).expect("read").policy;
    assert_eq!(format!("{policy:?}"), "SwitchPolicy { on_failure: Rollback, guard_ms: Some(90000) }");
    // The same model asks for the same generation, regardless of the switch orders.
    assert_eq!(desk.generate()["generation"], 4);
}

#[test]
fn objects_that_must_depart_before_each_other_are_refused() {
    let desk = Desk::new();
    let pair = "  n1/a: {kind: k, transitions: [{from: up, to: down, needs: [n2/b@up]}]}
  n2/b: {kind: k, transitions: [{from: up, to: down, needs: [n1/a@up]}]}
";
    desk.model(&format!("{MODEL}{pair}"));
    let (status, _, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!(status, 0);
    assert!(
        err.contains(
            "n1/a and n2/b can't leave the model in the same generation: each would have to leave \
        first"
        ),
        "{err}"
    );
    desk.model(MODEL);
    let (status, out, err) = desk.run("generate MODEL --depot DEPOT");
    assert_eq!((status, out.as_str()), (2, ""));
    insta::assert_snapshot!(err, @r#"
    error: no host could switch from generation 1 to this generation, 2: n2/b must depart before n1/a, n1/a must depart before n2/b
      help: remove these objects from the model separately, each in its own generation, or first remove the dependency that causes the circle

    MODEL: 1 error
    No generation was made.
    "#);
    // In two generations they can depart.
    desk.model(&format!("{MODEL}  n2/b: {{kind: k}}\n"));
    assert_eq!(desk.generate()["generation"], 2);
    desk.model(MODEL);
    assert_eq!(desk.generate()["generation"], 3);
    assert_eq!(ways(&desk, 3), ["2->3", "3->2", "3->1"], "from 1 hosts go by way of 2");
}

#[test]
fn old_generations_are_pruned_and_pinned_ones_stay() {
    let desk = Desk::new();
    for size in 1..=12 {
        desk.model(&MODEL.replace("size: 1", &format!("size: {size}")));
        desk.generate();
    }
    let (status, out, err) = desk.run("pin 2 --reason audited --depot DEPOT");
    assert!(status == 0 && out.starts_with("generation 2 is pinned") && out.ends_with("   audited\n"), "{out}{err}");
    let (status, _, err) = desk.run("pin 16 --depot DEPOT");
    assert!(status == 2 && err.contains("generation 16 is not in the depot"), "{err}");
    assert_eq!(desk.json("pin --depot DEPOT --json", 0)["pins"][0]["reason"], "audited");

    let would = desk.json("prune --keep 2 --dry-run --depot DEPOT --json", 0);
    let pruned = would["pruned"].as_array().expect("a list").clone();
    assert!(pruned.contains(&json!(1)) && !pruned.contains(&json!(2)) && !pruned.contains(&json!(7)), "{would}");
    assert!(would["stays"].as_array().expect("a list").contains(&json!({"generation": 2, "pinned": "audited"})));
    assert_eq!(would["freed_bytes"], Value::Null);
    let (status, out, err) = desk.run("prune --keep 2 --grace 0s --depot DEPOT");
    assert!(
        status == 0 && out.starts_with("pruned: 1, 3") && out.contains("stays: 2, pinned: audited\n"),
        "{out}{err}"
    );
    assert!(out.contains("a rollback target of"), "{out}");
    let log = desk.json("log --depot DEPOT --json", 0);
    let left: Vec<_> = log["generations"].as_array().expect("a list").iter().map(|g| g["generation"].clone()).collect();
    assert_eq!(left.len() + pruned.len(), 12, "{left:?}");
    let (status, out, _) = desk.run("unpin 2 --depot DEPOT");
    assert_eq!((status, out.as_str()), (0, "generation 2 is no longer pinned\n"));
    assert_eq!(desk.run("prune --keep 2 --older-than 1h --depot DEPOT").1, "pruned: none; 0 KiB of files freed\n");
    let (status, _, err) = desk.run("prune --depot DEPOT");
    assert!(status == 2 && err.contains("--keep") && err.contains("--older-than"), "{err}");

    desk.model(&MODEL.replace("size: 1", "size: 13"));
    assert_eq!(desk.generate()["generation"], 13, "the count goes on");
}

#[test]
fn fsck_finds_damaged_files_of_the_depot() {
    let desk = Desk::new();
    desk.generate();
    let report = desk.json("fsck --depot DEPOT --json", 0);
    assert_eq!((&report["generations"], &report["bundles"], &report["faults"]), (&json!([1]), &json!(2), &json!([])));
    let (status, out, _) = desk.run("fsck --depot DEPOT");
    assert!(status == 0 && out.starts_with("1 generation, 2 bundles, 0 signatures, 0 pins, "), "{out}");
    assert!(out.ends_with(": no damage\n"), "{out}");
    std::fs::write(desk.path("depot/refs/heads/main"), "ff\n").expect("written");
    std::fs::write(desk.path("depot/enrolled.json"), "{").expect("written");
    let (status, out, _) = desk.run("fsck --depot DEPOT");
    assert!(status == 1 && out.contains("refs/heads/main: ") && out.contains("enrolled.json: "), "{out}");
    // The other files that `cobgen serve` reads.
    std::fs::remove_file(desk.path("depot/enrolled.json")).expect("removed");
    desk.run("key DEPOT/server.key");
    for (file, text) in [("trust.toml", "trust = [\"ed25519:x\"]\n"), ("trust.toml", ""), ("server.key", "-----BEGIN")]
    {
        std::fs::write(desk.path("depot").join(file), text).expect("written");
        let (status, out, _) = desk.run("fsck --depot DEPOT");
        assert!(status == 1 && out.contains(&format!("{file}: ")), "{out}");
    }
    assert_eq!(desk.run("fsck --depot DEPOT/none").0, 2);
    // Damage that prevents even listing is reported as damage, not as a read failure.
    std::fs::write(desk.path("depot/packed-refs"), "# pack-refs with: peeled \nnonsense\n").expect("written");
    let (status, out, err) = desk.run("fsck --depot DEPOT");
    assert!(status == 1 && out.contains("fault"), "{status}: {out}{err}");
}

#[test]
fn durations_come_from_the_standard_input() {
    let desk = Desk::new();
    desk.generate();
    std::fs::write(desk.path("times"), "\"*\": 7s\n").expect("written");
    let depot = desk.path("depot");
    let plan = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cobgen"));
        command.args(["plan", "--from", "0", "--to", "1", "--depot"]).arg(&depot).args(more);
        let input = std::fs::File::open(desk.path("times")).expect("opened");
        let out = command.stdin(input).output().expect("run");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let (status, planned, told) = plan(&["--durations", "-"]);
    assert_eq!(status, Some(0), "{told}");
    let file = desk.path("times").display().to_string();
    assert_eq!(planned, plan(&["--durations", &file]).1);
    assert_ne!(planned, plan(&[]).1);
    let (status, _, told) = plan(&["--durations", "-", "--states", "-"]);
    assert!(status == Some(2) && told.contains("can't both be the standard input"), "{told}");
}

#[test]
fn a_home_that_can_not_be_read_is_named() {
    let desk = Desk::new();
    let home = desk.path("home");
    // Like a folder without permission, even for a user who may read all files.
    std::os::unix::fs::symlink(&home, &home).expect("a circle");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cobgen"));
    command.arg("generate").arg(desk.path("model")).arg("--depot").arg(desk.path("depot"));
    let out = command.env("HOME", &home).env_remove("XDG_CONFIG_HOME").output().expect("run");
    let told = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{told}");
    assert!(told.contains("set HOME to a folder"), "{told}");
    let out = command.env("HOME", "/nonexistent").output().expect("run");
    assert!(out.status.success(), "what the help says: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_lost_generation_stops_publishing_and_is_brought_back() {
    let desk = Desk::new();
    assert_eq!(desk.run("generate MODEL --depot DEPOT").0, 0);
    std::fs::remove_dir_all(desk.path("depot/refs/generations")).expect("removed");
    desk.model(&MODEL.replace("size: 1", "size: 2"));
    let (status, _, told) = desk.run("generate MODEL --depot DEPOT");
    assert!(status == 3 && told.contains("generation 1 is lost") && told.contains("update-ref"), "{told}");
    let (status, told, _) = desk.run("fsck --depot DEPOT");
    assert_eq!(status, 1, "{told}");
    let words = &told[told.find("update-ref refs/generations/1 ").expect("a command")..];
    let words: Vec<&str> = words.split('`').next().expect("its end").split_whitespace().collect();
    std::fs::create_dir(desk.path("depot/refs/generations")).expect("made");
    std::fs::write(desk.path("depot").join(words[1]), format!("{}\n", words[2])).expect("as told");
    assert_eq!(desk.run("fsck --depot DEPOT").0, 0);
    let (status, told, err) = desk.run("generate MODEL --depot DEPOT");
    assert!(status == 0 && told.contains("generation 2"), "{told}{err}");
}
