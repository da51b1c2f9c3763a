//! Hosts and operators that prove their identity, and depots that are trusted or not.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_depot::Depot;
use cob_trust::SecretKey;
use cob_trust::publishers::sign;
use cob_trust::tls::Admits;
use cob_types::api::order;
use cob_types::generation::{ManifestHost, Security};
use cob_types::trust::{Operator, PublicKey, Role, Signed};
use cob_types::{BlobHash, GenerationNumber, Manifest};
use cobd::web::Command;
use tempfile::TempDir;

use crate::fake::{Daemon, cobctl, name, publish_manifest};

fn secret(n: u8) -> SecretKey {
    SecretKey::from_seed(&[n; 32])
}

/// Generation `number` with the host n1 (key 1) at this address and the operators lou and olga (keys 3, 4).
fn manifest(number: u64, address: &str) -> Manifest {
    let parent = GenerationNumber(number - 1);
    let mut manifest = Manifest::empty(GenerationNumber(number), parent, Security::Identities);
    let host = ManifestHost {
        address: Some(address.to_owned()),
        keys: vec![secret(1).public()],
        bundle: BlobHash([0; 32]),
        cobs: 1,
    };
    manifest.hosts.insert(name("n1"), host);
    manifest.cobs = 1;
    for (who, n, role) in [("lou", 3, Role::Look), ("olga", 4, Role::Operate)] {
        let token = Some(cob_types::canonical::blob_hash(format!("token-of-{who}").as_bytes()));
        manifest.operators.insert(who.to_owned(), Operator { role, keys: vec![secret(n).public()], token });
    }
    manifest
}

fn anybody() -> Admits {
    Arc::new(|_: &PublicKey| true)
}

struct Place {
    folder: TempDir,
    daemon: Daemon,
}

impl Place {
    /// A daemon of n1 that holds this key, and a depot with generation 7, which names it.
    async fn new(holds: u8, admits: Admits) -> Self {
        let daemon = Daemon::tls("n1", &secret(holds), &manifest(7, "tcp://127.0.0.1:1"), admits).await;
        let place = Self { folder: tempfile::tempdir().expect("a folder"), daemon };
        publish_manifest(&place.depot(), &manifest(7, &place.daemon.address));
        for n in 3..=5 {
            secret(n).store(&place.key(n)).expect("stored");
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn depot(&self) -> PathBuf {
        self.path("depot")
    }

    fn key(&self, n: u8) -> PathBuf {
        self.path(&format!("{n}.key"))
    }

    /// Runs `cobctl` with the depot and the key of this number.
    async fn run(&self, n: u8, args: &[&str]) -> crate::fake::Ran {
        let (depot, key) = (self.depot(), self.key(n));
        let mut line = vec!["--depot", text(&depot), "--key", text(&key)];
        line.extend(args);
        cobctl(&line).await
    }

    fn signed_by(&self, number: u64, n: u8) -> Signed {
        let depot = Depot::open(&self.depot()).expect("a depot");
        sign(&secret(n), &depot.read_manifest_bytes(GenerationNumber(number)).expect("a manifest"))
    }

    fn add(&self, number: u64, signed: &Signed) {
        Depot::open(&self.depot()).expect("a depot").add_signature(GenerationNumber(number), signed).expect("added");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[tokio::test]
async fn an_operator_with_a_key_may_do_what_the_role_allows() {
    let place = Place::new(1, anybody()).await;
    let ran = place.run(4, &["status"]).await;
    assert!(ran.code == 0 && ran.out.contains("generation 7"), "{ran:?}");
    let ran = place.run(4, &["pause"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(place.daemon.look().orders, [Command::Pause(order::Pause { who: None })]);
    assert!(place.daemon.look().authors[0].starts_with("olga (operate)"), "{:?}", place.daemon.look().authors);
    let ran = place.run(3, &["pause"]).await;
    assert!(ran.code == 1 && ran.err.contains("lou may look; this needs the role operate"), "{ran:?}");
    let ran = place.run(4, &["fence", "n9", "--yes"]).await;
    assert!(ran.code == 1 && ran.err.contains("olga may operate; this needs the role administer"), "{ran:?}");
    let ran = place.run(5, &["status"]).await;
    assert!(ran.code == 1 && ran.out.contains("refuses: ") && ran.out.contains("is no operator's here"), "{ran:?}");
    assert_eq!(place.daemon.look().orders.len(), 1);
}

#[tokio::test]
async fn whoami_shows_the_name_and_role_or_the_reason_for_none() {
    let place = Place::new(1, anybody()).await;
    let ran = place.run(3, &["trust", "whoami"]).await;
    let mine = secret(3).public().to_string();
    assert!(ran.code == 0 && ran.out.contains(&mine) && ran.out.contains("lou") && ran.out.contains("look"), "{ran:?}");
    let json = place.run(4, &["trust", "whoami", "--json"]).await.json();
    assert_eq!(json["hosts"][0]["name"], "olga");
    assert_eq!(json["hosts"][0]["role"], "operate");
    let ran = place.run(5, &["trust", "whoami"]).await;
    assert!(ran.code == 1 && ran.err.contains("is no operator's here") && ran.err.contains("`operators`"), "{ran:?}");
}

#[tokio::test]
async fn a_token_is_enough_without_a_key() {
    let place = Place::new(1, anybody()).await;
    let file = place.path("token");
    std::fs::write(&file, "token-of-lou\n").expect("written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let depot = place.depot();
    // An unknown key does not prevent the check of the token.
    let (stranger, depot) = (place.key(5), text(&depot));
    let line = ["--depot", depot, "--key", text(&stranger), "--token-file", text(&file), "trust", "whoami", "--json"];
    let ran = cobctl(&line).await;
    assert_eq!((ran.code, ran.json()["hosts"][0]["proof"].as_str()), (0, Some("token")), "{ran:?}");
    std::fs::write(&file, "token-of-lu\n").expect("written");
    let ran = cobctl(&line).await;
    assert!(
        ran.code == 1 && ran.out.contains("no operator has this token") && !ran.out.contains("token-of"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_host_with_another_key_gets_no_order_and_is_reported() {
    let place = Place::new(2, anybody()).await;
    let ran = place.run(4, &["pause"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    let (shown, due) = (secret(2).public().to_string(), secret(1).public().to_string());
    for part in ["DOES NOT HOLD ITS HOST'S KEY", &shown, &due, "an attack", "reinstalled"] {
        assert!(ran.err.contains(part), "{part}: {ran:?}");
    }
    assert!(place.daemon.look().orders.is_empty(), "nothing was ordered");
    let ran = place.run(4, &["status"]).await;
    assert!(ran.code == 3 && ran.out.contains("DOES NOT HOLD"), "{ran:?}");
}

#[tokio::test]
async fn the_doctor_explains_the_possible_causes_of_another_key() {
    let place = Place::new(2, anybody()).await;
    let mut wider = manifest(8, &place.daemon.address);
    let other = Daemon::tls("n2", &secret(6), &wider, anybody()).await;
    let entry = ManifestHost {
        address: Some(other.address.clone()),
        keys: vec![secret(6).public()],
        bundle: BlobHash([0; 32]),
        cobs: 1,
    };
    wider.hosts.insert(name("n2"), entry);
    wider.cobs = 2;
    publish_manifest(&place.depot(), &wider);
    let ran = place.run(4, &["trust", "doctor", "n1", "n2"]).await;
    let (shown, due) = (secret(2).public().to_string(), secret(1).public().to_string());
    assert_eq!(ran.code, 3, "{ran:?}");
    for part in [
        &shown,
        &due,
        "reinstalled",
        "`cobgen enroll n1 --depot",
        "address is wrong",
        "`address`",
        "in between",
        "`cobd init`",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
}

#[tokio::test]
async fn a_handshake_refused_for_the_operators_key_is_explained() {
    let place = Place::new(1, Arc::new(|key: &PublicKey| *key == secret(4).public())).await;
    assert_eq!(place.run(4, &["status"]).await.code, 0);
    let ran = place.run(5, &["pause"]).await;
    let mine = secret(5).public().to_string();
    assert!(ran.code == 1 && ran.err.contains("does not accept the key") && ran.err.contains(&mine), "{ran:?}");
    assert!(ran.err.contains("`cobctl trust key`"), "{ran:?}");
    let ran = place.run(5, &["status"]).await;
    assert!(ran.code == 1 && ran.out.contains("refuses: ") && !ran.out.contains("unreachable"), "{ran:?}");
    let ran = place.run(5, &["switch", "7", "--prepare-timeout", "300ms"]).await;
    assert!(ran.code == 1 && ran.err.contains("n1 refuses: ") && !ran.err.contains("not reachable"), "{ran:?}");
    assert!(ran.err.contains("has not started") && ran.err.contains("a host refuses the generation"), "{ran:?}");
}

#[tokio::test]
async fn an_address_is_used_only_if_its_daemon_can_prove_its_identity() {
    let place = Place::new(1, anybody()).await;
    let (key, address) = (place.key(4), place.daemon.address.clone());
    let with = async |more: &[&str]| {
        let mut line = vec!["--key", text(&key), "--host", &address];
        line.extend(more);
        line.push("status");
        cobctl(&line).await
    };
    let (good, bad) = (secret(1).public().to_string(), secret(2).public().to_string());
    assert_eq!(with(&["--host-key", &good]).await.code, 0);
    assert!(with(&["--host-key", &bad]).await.out.contains("DOES NOT HOLD"));
    let depot = place.depot();
    assert_eq!(with(&["--depot", text(&depot)]).await.code, 0, "found in the manifest by its address");
    let ran = with(&[]).await;
    assert!(ran.code == 3 && ran.out.contains("closed the connection or is not a daemon"), "{ran:?}");
    let ran = with(&["--host", "tcp://127.0.0.1:9", "--host-key", &good]).await;
    assert!(ran.code == 2 && ran.err.contains("--host-key needs a single --host"), "{ran:?}");
    let ran = cobctl(&["--host", "tcp://10.0.0.1:7077", "status"]).await;
    assert!(ran.code == 2 && ran.err.contains("its key is not known"), "{ran:?}");
    let ran = cobctl(&["--depot", text(&depot), "--host", "tcp://127.0.0.1:9", "status"]).await;
    assert!(ran.code == 2 && ran.err.contains("generation 7 has no host at 127.0.0.1:9"), "{ran:?}");
}

#[tokio::test]
async fn only_generations_signed_by_trusted_publishers_are_accepted() {
    let place = Place::new(1, anybody()).await;
    let (ann, bob) = (secret(11).public().to_string(), secret(12).public().to_string());
    let trusting = ["--trust", &ann, "--trust", &bob, "--threshold", "2"];
    let run = async |more: &[&str]| place.run(4, &[&trusting[..], more].concat()).await;
    let ran = run(&["status"]).await;
    assert!(ran.code == 1 && ran.err.contains("generation 7") && ran.err.contains("it has no signature"), "{ran:?}");
    place.add(7, &place.signed_by(7, 11));
    place.add(7, &place.signed_by(7, 13));
    let ran = run(&["status"]).await;
    assert!(ran.code == 1 && ran.err.contains("it has 1 trusted signature, but 2 are required"), "{ran:?}");
    place.add(7, &place.signed_by(7, 12));
    assert_eq!(run(&["status"]).await.code, 0);
    // Generation 8 leads elsewhere, and its signature is that of another manifest.
    publish_manifest(&place.depot(), &manifest(8, "tcp://127.0.0.1:9"));
    place.add(8, &place.signed_by(7, 11));
    let ran = run(&["status"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in ["warning", "generation 8", "was altered", "looked up in generation 7"] {
        assert!(ran.err.contains(part), "{part}: {ran:?}");
    }
    let ran = run(&["switch", "latest"]).await;
    assert!(ran.code == 1 && ran.err.contains("generation 8") && ran.err.contains("is not accepted"), "{ran:?}");
    assert!(place.daemon.look().orders.is_empty(), "nothing was ordered");
}

#[tokio::test]
async fn the_public_key_is_printed_and_created_only_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/operator.key");
    let file = text(&path);
    let ran = cobctl(&["--key", file, "trust", "key"]).await;
    assert!(ran.code == 2 && ran.err.contains("trust key --create"), "{ran:?}");
    let made = cobctl(&["--key", file, "trust", "key", "--create"]).await;
    assert_eq!(made.code, 0, "{made:?}");
    let public = SecretKey::load(&path).expect("a key").public();
    assert_eq!(made.out.trim(), public.to_string());
    let again = cobctl(&["--key", file, "trust", "key", "--create"]).await;
    assert_eq!(again.out, made.out, "a key that is there stays");
    assert_eq!(cobctl(&["--key", file, "trust", "key", "--json"]).await.json()["key"], public.to_string());
}
