//! Tests of a vault, from a model to a host that opens its secrets.

use std::fs;

use cob_trust::SecretKey;
use cob_types::{Bundle, GenerationNumber};

use super::*;
use crate::diagnostic::Severity;
use crate::generation::{Assembled, assemble};
use cob_forecast::{Asked, Sides, Source, forecast};

const MODEL: &str = "
security: loopback-only
hosts: {n1: {}, n2: {}, n3: {}}
secrets:
  db: {file: db}
  api: {command: [cat, api]}
  unused: {file: nowhere}
services:
  app:
    cobs:
      server: {kind: service, content: {start: ./app, env: {PASSWORD: \"{{ secret('db') }}\", PORT: 80}}}
      data: {kind: data, content: {file: \"user=app password={{ secret('db') }}\\n\", key: [\"{{ secret('api') }}\"]}}
kinds:
  data:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: \"true\"}
    transitions: [{from: down, to: up, run: \"true\"}, {from: up, to: down, run: \"true\"}]
clusters: {c: {services: {app: [n1, n2]}}}
";

fn key(host: &str) -> SecretKey {
    SecretKey::from_seed(&[host.as_bytes()[1]; 32])
}

struct Site {
    folder: tempfile::TempDir,
    vault: Vault,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in
            [("model.yaml", MODEL), ("db", "hunter2-db\n"), ("api", "hunter2-api\n"), ("app", "#!/bin/sh\n")]
        {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path().join("app"), executable).expect("executable");
        let vault = Vault::new(Some(&folder.path().join("site/secrets.key")), None);
        Self { folder, vault }
    }

    fn draft(&self) -> Draft {
        let expansion = crate::expand::load(&self.folder.path().join("model.yaml"), &BTreeSet::new());
        let mut draft = expansion.draft.unwrap_or_else(|| panic!("{:#?}", expansion.diagnostics));
        draft.security = Security::Identities;
        for (name, host) in &mut draft.hosts {
            host.value.keys = vec![key(name.as_str()).public()];
        }
        draft
    }

    fn make(&self, after: &After) -> Assembled {
        let mut draft = self.draft();
        let found = self.vault.settle(&mut draft, after);
        assert!(found.iter().all(|d| d.severity == Severity::Warning), "{found:#?}");
        assemble(draft, GenerationNumber(after.number.0 + 1), after.number).expect("fits together")
    }
}

fn open(bundle: &Bundle, host: &str) -> Vec<String> {
    let opened = bundle.secrets.values().map(|sealed| seal::open_from_bundle(&[key(host)], sealed).expect("opened"));
    let mut texts: Vec<String> = opened.map(|v| String::from_utf8(v.to_vec()).expect("text")).collect();
    texts.sort();
    texts
}

#[test]
fn a_host_gets_only_its_secrets_and_only_it_opens_them() {
    let site = Site::new();
    let made = site.make(&After::default());
    let bundles = &made.generation.bundles;
    for host in ["n1", "n2"] {
        bundles[host].validate().expect("valid");
        assert_eq!(open(&bundles[host], host), ["hunter2-api", "hunter2-db"]);
    }
    assert!(bundles["n3"].secrets.is_empty());
    let other = bundles["n1"].secrets.values().next().expect("one");
    assert_eq!(seal::open_from_bundle(&[key("n2")], other), Err(seal::SealError::Open));
    let whole = format!("{:?}{:?}", made.generation, made.provenance);
    assert!(!whole.contains("hunter2"));
    let names: BTreeSet<&str> = made.provenance.secrets.values().map(String::as_str).collect();
    assert_eq!(names, ["api", "db"].into());
}

#[test]
fn an_unchanged_secret_keeps_its_ciphertext() {
    let site = Site::new();
    let first = site.make(&After::default());
    let again = site.make(&After::of(&first.generation));
    assert_eq!(first.generation.bundles, again.generation.bundles);
    fs::write(site.folder.path().join("api"), "hunter3-api").expect("written");
    let changed = site.make(&After::of(&first.generation));
    let (old, new) = (&first.generation.bundles["n1"], &changed.generation.bundles["n1"]);
    assert_eq!(old.secrets.keys().filter(|id| new.secrets.get(*id) == old.secrets.get(*id)).count(), 1);
    assert_eq!(open(new, "n1"), ["hunter2-db", "hunter3-api"]);
    assert_ne!(old.cobs["n1/app/data"].fingerprint, new.cobs["n1/app/data"].fingerprint);
    assert_eq!(old.cobs["n1/app/server"].fingerprint, new.cobs["n1/app/server"].fingerprint);
    let mut difference = cob_forecast::diff(&first.generation, &changed.generation);
    difference.name_secrets(&first.provenance.secrets, &changed.provenance.secrets);
    let text = difference.to_string();
    assert!(text.contains("key[0]: \"[secret api (changed)]\"\n"), "{text}");
    // A plan of the switch does the same.
    let names: BTreeMap<_, _> = first.provenance.secrets.into_iter().chain(changed.provenance.secrets).collect();
    let sides = Sides::open(Source::Made(&first.generation), Source::Made(&changed.generation)).expect("in memory");
    let planned = forecast(sides.naming(names), Asked::default()).expect("an order");
    assert_eq!(planned.difference.to_string(), text);
}

#[test]
fn a_secret_sealed_by_another_site_key_is_not_reused() {
    let site = Site::new();
    let mut first = site.make(&After::default()).generation;
    let bundle = first.bundles.values_mut().next().expect("n1");
    for (id, sealed) in &mut bundle.secrets {
        *sealed = seal::seal_for_bundle(&[1; 32], &[key("n1").public()], *id, b"planted").expect("sealed").into();
    }
    let again = site.make(&After::of(&first)).generation;
    assert_eq!(open(&again.bundles["n1"], "n1"), ["hunter2-api", "hunter2-db"]);
}

#[test]
fn a_new_key_of_a_host_gets_new_ciphertext() {
    let site = Site::new();
    let first = site.make(&After::default()).generation;
    let mut draft = site.draft();
    let both = vec![key("n1").public(), key("n9").public()];
    draft.hosts.get_mut("n1").expect("there").value.keys = both;
    assert!(site.vault.settle(&mut draft, &After::of(&first)).is_empty());
    let second = assemble(draft, GenerationNumber(2), GenerationNumber(1)).expect("fits").generation;
    assert_eq!(open(&second.bundles["n1"], "n1"), open(&second.bundles["n1"], "n9"));
    assert_eq!(first.bundles["n2"], second.bundles["n2"]);
}

#[test]
fn faults_are_told_without_values() {
    let site = Site::new();
    let model = site.folder.path().join("model.yaml");
    let made = crate::make::make(&model, &After::default());
    let text: Vec<String> = made.diagnostics.iter().map(|d| d.message.clone()).collect();
    assert!(made.is_refused() && text.iter().any(|t| t.contains("`db` can't be encrypted")), "{text:?}");
    fs::remove_file(site.folder.path().join("db")).expect("removed");
    fs::write(site.folder.path().join("api"), "pw").expect("written");
    let mut draft = site.draft();
    let found = site.vault.settle(&mut draft, &After::default());
    let codes: Vec<&str> = found.iter().map(|d| d.code).collect();
    assert_eq!(codes, ["new-site-key", "short-secret", "secret"], "{found:#?}");
    let missing = &found[2];
    assert!(missing.message.contains("`db`") && missing.place.is_some(), "{missing:?}");
    let mut draft = site.draft();
    draft.hosts.get_mut("n2").expect("there").value.keys.clear();
    fs::write(site.folder.path().join("db"), "long enough").expect("written");
    let found = site.vault.settle(&mut draft, &After::default());
    assert!(found.iter().any(|d| d.message.contains("host n2 needs secrets, but has no key")), "{found:#?}");
}

#[test]
fn a_plug_in_has_secrets_in_its_config_and_nowhere_else() {
    let site = Site::new();
    let path = site.folder.path().join("model.yaml");
    let found = |content: &str| {
        let plug = format!("\ncobs:\n  n1/plug: {{kind: plugin, content: {content}}}\n");
        fs::write(&path, format!("{}{plug}", MODEL.trim_end())).expect("written");
        crate::expand::load(&path, &BTreeSet::new()).diagnostics
    };
    let accepted = found("{run: /usr/bin/plug, config: {deep: [{password: \"{{ secret('db') }}\"}]}}");
    assert!(!accepted.iter().any(|d| d.severity == Severity::Error), "{accepted:#?}");
    let refused = found("{run: \"/usr/bin/plug {{ secret('db') }}\"}");
    assert!(refused.iter().any(|d| d.code == "secret-in-the-open"), "{refused:#?}");
}

#[test]
fn built_in_kinds_have_secrets_in_a_single_key() {
    let site = Site::new();
    let path = site.folder.path().join("model.yaml");
    for (kind, accepted, refused) in [
        ("postgresql-role", "{name: app, password: SECRET}", "{name: SECRET}"),
        ("mariadb-user", "{name: app, password: SECRET}", "{name: SECRET}"),
        ("mariadb-user", "{name: app, password_hash: SECRET}", "{name: SECRET}"),
        (
            "acme-certificate",
            "{server: \"https://a/\", mail: a@b.c, accept_terms: true, names: [a.b], file: /c, key: /k, \
              challenge: {provider: x}, env: {TOKEN: SECRET}}",
            "{server: \"https://a/\", mail: a@b.c, accept_terms: true, names: [a.b], file: /c, key: /k, \
              challenge: {provider: x}, on_renewal: [/bin/echo, SECRET]}",
        ),
        ("exec", "{command: [/bin/true], env: {PASSWORD: SECRET}}", "{command: [/bin/echo, SECRET]}"),
        (
            "container",
            "{image: localhost/a, allow_tag: true, env: {PASSWORD: SECRET}}",
            "{image: localhost/a, allow_tag: true, command: [SECRET]}",
        ),
    ] {
        let found = |content: &str| {
            let content = content.replace("SECRET", "\"{{ secret('db') }}\"");
            let object = format!("\ncobs:\n  n1/object: {{kind: {kind}, content: {content}}}\n");
            fs::write(&path, format!("{}{object}", MODEL.trim_end())).expect("written");
            crate::expand::load(&path, &BTreeSet::new()).diagnostics
        };
        let accepted = found(accepted);
        assert!(!accepted.iter().any(|d| d.severity == Severity::Error), "{accepted:#?}");
        let refused = found(refused);
        assert!(refused.iter().any(|d| d.code == "secret-in-the-open"), "{kind}: {refused:#?}");
    }
}

#[test]
fn a_bmc_has_secrets_in_passwords_alone() {
    let site = Site::new();
    let path = site.folder.path().join("model.yaml");
    let is_refused = |content: &str| {
        let content = content.replace("SECRET", "\"{{ secret('db') }}\"");
        let object = format!("\ncobs:\n  n1/object: {{kind: bmc, content: {content}}}\n");
        fs::write(&path, format!("{}{object}", MODEL.trim_end())).expect("written");
        let found = crate::expand::load(&path, &BTreeSet::new()).diagnostics;
        found.iter().any(|d| d.severity == Severity::Error)
    };
    let users = "users: {a: {privilege: user, password: SECRET}}";
    assert!(!is_refused(&format!("{{remote: {{host: h, user: u, password: SECRET}}, {users}}}")));
    assert!(is_refused(&format!("{{remote: {{host: h, user: SECRET, password: SECRET}}, {users}}}")));
    assert!(is_refused("{users: {a: {privilege: SECRET}}}"));
}

#[test]
fn a_secret_s_file_does_not_travel_in_the_open() {
    let site = Site::new();
    let path = site.folder.path().join("model.yaml");
    fs::write(&path, MODEL.replace("{kind: data, content", "{kind: data, files: [./db], content")).expect("written");
    let found = crate::expand::load(&path, &BTreeSet::new()).diagnostics;
    assert!(found.iter().any(|d| d.message.contains("the file of the secret `db` travels")), "{found:#?}");
}

#[test]
fn shown_content_has_names_of_secrets_instead_of_marks() {
    let site = Site::new();
    let made = site.make(&After::default());
    let content = &made.generation.bundles["n1"].cobs["n1/app/data"].content;
    assert!(content.contains('\u{2983}'));
    let text = shown(content, &made.provenance.secrets);
    assert!(text.contains("user=app password=[secret db]") && !text.contains('\u{2983}'), "{text}");
}

#[test]
fn the_depot_contains_only_sealed_secrets() {
    let site = Site::new();
    let host = |name: &str| format!("{name}: {{key: \"{}\"}}", key(name).public());
    let hosts = format!("{{{}, {}, {}}}", host("n1"), host("n2"), host("n3"));
    let model = MODEL.replace("loopback-only", "identities").replace("{n1: {}, n2: {}, n3: {}}", &hosts);
    let path = site.folder.path().join("model.yaml");
    fs::write(&path, model).expect("written");
    let depot = site.folder.path().join("depot");
    let publish = || {
        let options = crate::publish::PublishOptions::plain(&site.vault);
        crate::publish::publish_with(&path, &depot, &options).unwrap_or_else(|e| panic!("{e}"))
    };
    assert!(publish().new);
    assert!(!publish().new, "an unchanged secret keeps its ciphertext");
    fs::write(site.folder.path().join("db"), "hunter2-other").expect("written");
    let changed = publish();
    assert!(changed.new && changed.difference.changed.len() == 4, "{:#?}", changed.difference);
    let repository = git2::Repository::open(&depot).expect("a repository");
    let objects = repository.odb().expect("objects");
    let mut count = 0;
    let look = |id: &git2::Oid| {
        let object = objects.read(*id).expect("an object");
        assert!(!object.data().windows(7).any(|w| w == b"hunter2"), "{id}");
        count += 1;
        true
    };
    objects.foreach(look).expect("listed");
    assert!(count > 10, "{count} objects");
}

#[test]
fn no_site_key_is_made_for_a_question_or_beside_secrets_of_another() {
    let site = Site::new();
    let path = site.folder.path().join("keys/secrets.key");
    let publisher = path.with_file_name("publisher.key");
    let vault = || Vault { user: None, ..Vault::new(None, None).signing_with(Some(&publisher)) };
    let settle = |vault: Vault, after: &After| vault.settle(&mut site.draft(), after);
    assert_eq!(settle(vault().reading(), &After::default()), [], "there is none, and it is not needed");
    assert!(!path.exists());
    // Secrets of a generation that was made elsewhere.
    let after = After::of(&site.make(&After::default()).generation);
    for vault in [vault(), vault().reading()] {
        let found = settle(vault, &after);
        assert!(found.len() == 1 && found[0].severity == Severity::Error, "{found:#?}");
        assert!(found[0].message.contains("was not found") && found[0].message.contains("--site-key"), "{found:#?}");
        assert!(!path.exists());
    }
    // With an explicit path, the key is made.
    let named = || Vault::new(Some(&path), None);
    assert!(settle(named().reading(), &after).iter().any(|d| d.severity == Severity::Error));
    let found = settle(named(), &after);
    assert!(found.len() == 1 && found[0].code == "new-site-key", "{found:#?}");
    // An existing key is found beside the signing key, even by read-only commands.
    assert_eq!(settle(vault().reading(), &after), []);
}

#[test]
fn the_first_site_key_is_made_beside_the_key_that_signs() {
    let site = Site::new();
    let publisher = site.folder.path().join("keys/publisher.key");
    let vault =
        Vault { user: Some(site.folder.path().join("user")), ..Vault::new(None, None).signing_with(Some(&publisher)) };
    let found = vault.settle(&mut site.draft(), &After::default());
    assert!(found.len() == 1 && found[0].code == "new-site-key", "{found:#?}");
    assert!(publisher.with_file_name("secrets.key").exists());
}

#[test]
fn no_site_key_is_made_where_questions_do_not_look() {
    let site = Site::new();
    let at = |name: &str| site.folder.path().join(name);
    let named = at("elsewhere/ann.key");
    let vault = || Vault { user: Some(at("user")), ..Vault::new(None, None) };
    let found = vault().signing_with(Some(&named)).once().settle(&mut site.draft(), &After::default());
    assert!(found.len() == 1 && found[0].code == "new-site-key", "{found:#?}");
    assert!(at("user/secrets.key").exists() && !named.with_file_name("secrets.key").exists());
    // A read-only command about the next generation names no signing key.
    let after = After::of(&site.make(&After::default()).generation);
    assert_eq!(vault().reading().settle(&mut site.draft(), &after), []);
}
