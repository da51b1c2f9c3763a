//! Keys and certificates in a folder that stands for a host, made and judged by the real `openssl`.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use cob_types::message::Values;

use super::super::tests::{host, read, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, cob_id, reason, state};
use crate::kinds::{Context, Import, Outcome};

fn is_there() -> bool {
    let is_there = openssl::is_installed();
    if let Err(why) = &is_there {
        eprintln!("skipped: {why}");
    }
    is_there.is_ok()
}

/// The output of `openssl`, which must succeed.
fn openssl_says(words: &str) -> String {
    let ran = Command::new("openssl").args(words.split_whitespace()).output().expect("run");
    assert!(ran.status.success(), "{words}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

/// Makes a transition and returns the exported values.
async fn made(bench: &mut Bench, context: &Context, from: &str, to: &str) -> Values {
    let outcome = bench.transition(context, from, to).await;
    let Outcome::Done { exports, .. } = outcome else { panic!("{from} -> {to}: {outcome:?}") };
    let found = bench.check(context).await;
    assert_eq!(found.state.expect("known").as_str(), to, "{}", found.difference);
    if to == "present" {
        assert_eq!(found.exports, exports, "a check exports the same as the transition");
    }
    exports
}

/// The difference of an outdated change object.
async fn difference(bench: &mut Bench, context: &Context) -> String {
    let found = bench.check(context).await;
    assert_eq!(found.state.expect("known").as_str(), "outdated");
    found.difference
}

fn contents(host: &Path, keys: &str) -> String {
    format!(r#"{{"root":"{}","file":"/etc/web.pem",{keys}}}"#, host.display())
}

fn own(path: &Path) -> String {
    path.display().to_string()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

/// What the contract compares: random keys differ, their properties do not.
fn properties(root: &Path) -> String {
    let mut said = String::new();
    for name in ["etc/web.key", "etc/web.pem"] {
        let path = root.join(name);
        let Ok(text) = fs::read_to_string(&path) else {
            said.push_str(&format!("{name}: not there\n"));
            continue;
        };
        let public = match openssl::show(&text) {
            Ok(Some(shown)) => format!("{:?} {}", shown.subject, is_same(&shown.public_key, &public_of(root))),
            Ok(None) | Err(_) if text.contains("PRIVATE") => openssl::type_of(&public_of(root)).expect("a key"),
            Ok(None) | Err(_) => text,
        };
        said.push_str(&format!("{name}: {:o} {public}\n", mode(&path)));
    }
    let mut names: Vec<_> = fs::read_dir(root.join("etc")).into_iter().flatten().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    names.iter().for_each(|entry| said.push_str(&format!("{:?}\n", entry.file_name())));
    said
}

fn public_of(root: &Path) -> String {
    openssl::public_key(&root.join("etc/web.key")).expect("run").unwrap_or_default()
}

#[tokio::test]
async fn private_keys_and_certificates_keep_the_contract() {
    if !is_there() {
        return;
    }
    let folder = host(&[("etc/web.pem", "theirs\n")]);
    let root = folder.path().to_owned();
    let [one, other] = ["a", "b"].map(|name| contents(&root, &format!(r#""key":"/etc/web.key","names":["{name}"]"#)));
    let probed = root.clone();
    let case = Case::new(setting("certificate"), &one).other(&other).probing(move || properties(&probed)).kills(6);
    holds(&case, &[]).await;
    let [one, other] = ["ecdsa-p256", "ed25519"]
        .map(|key_type| format!(r#"{{"root":"{}","file":"/etc/web.key","type":"{key_type}"}}"#, root.display()));
    let case = Case::new(setting("private-key"), &one).other(&other);
    holds(&case.probing(move || properties(&root)).kills(6), &[]).await;
}

#[tokio::test]
async fn a_self_signed_certificate_is_renewed_with_the_same_key_and_leaves() {
    if !is_there() {
        return;
    }
    let folder = host(&[("etc/hosts", "")]);
    let (root, path) = (folder.path(), |name: &str| folder.path().join("etc").join(name));
    let (key, file) = (path("web.key"), path("web.pem"));
    let mut bench = Bench::new();
    let keys = r#""key":"/etc/web.key","names":["web.example.org","10.0.0.1","fd00:0::1"],"usage":["client","server"]"#;
    let context = bench.context(&setting("certificate"), &contents(root, keys));
    let exports = made(&mut bench, &context, "absent", "present").await;
    assert_eq!(serde_json::from_str::<String>(&exports["certificate"]).expect("a text"), read(file.clone()));
    assert_eq!((mode(&key), mode(&file)), (0o600, 0o644));
    openssl_says(&format!("verify -x509_strict -check_ss_sig -partial_chain -CAfile {0} {0}", own(&file)));
    for right in ["-verify_hostname web.example.org", "-verify_ip 10.0.0.1", "-verify_ip fd00::1"] {
        openssl_says(&format!("verify -partial_chain -purpose sslserver {right} -CAfile {0} {0}", own(&file)));
    }
    let (first_key, first) = (read(key.clone()), read(file.clone()));

    // A certificate of the same key whose time is nearly over.
    let public = path("public");
    fs::write(&public, public_of(root)).expect("written");
    let words = format!(
        "x509 -new -force_pubkey {} -subj /CN=web.example.org -days 20 -signkey {} -out {}",
        own(&public),
        own(&key),
        own(&file)
    );
    openssl_says(&words);
    fs::remove_file(&public).expect("removed");
    let differs = difference(&mut bench, &context).await;
    assert!(differs.contains("due, for the certificate ends on") && differs.contains("fd00::1"), "{differs}");
    made(&mut bench, &context, "outdated", "present").await;
    assert_eq!(read(key.clone()), first_key, "a renewal keeps the key");
    assert_ne!(read(file.clone()), first);

    // Edits of users.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("set");
    assert!(difference(&mut bench, &context).await.contains("0644"));
    made(&mut bench, &context, "outdated", "present").await;
    assert_eq!(read(key.clone()), first_key);
    for text in ["", "garbage\r\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        fs::write(&file, text).expect("written");
        assert!(difference(&mut bench, &context).await.contains("no certificate"), "{text:?}");
        made(&mut bench, &context, "outdated", "present").await;
    }
    fs::remove_file(&file).expect("removed");
    symlink("/etc/passwd", &file).expect("linked");
    assert!(difference(&mut bench, &context).await.contains("a link"));
    made(&mut bench, &context, "outdated", "present").await;
    fs::write(&key, "no key").expect("written");
    let differs = difference(&mut bench, &context).await;
    assert!(differs.contains("no private key") && !differs.contains("no key\""), "{differs}");
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains("move it away") && read(key.clone()) == "no key", "{why}");
    fs::remove_file(&key).expect("removed");
    made(&mut bench, &context, "outdated", "present").await;
    // Another type of the key, and another subject.
    let keys = r#""key":"/etc/web.key","key_type":"rsa2048","subject":{"O":"A/B + c=d","CN":"x"}"#;
    let other = bench.context(&setting("certificate"), &contents(root, keys));
    assert!(difference(&mut bench, &other).await.contains("rsa2048"));
    made(&mut bench, &other, "outdated", "present").await;
    let subject = openssl_says(&format!("x509 -noout -subject -in {}", own(&file)));
    assert!(subject.contains(r#"O = "A/B + c=d", CN = x"#), "{subject}");
    made(&mut bench, &other, "present", "absent").await;
    assert_eq!((key.exists(), file.exists()), (false, false));
}

#[tokio::test]
async fn earlier_files_count_if_they_are_right_and_return() {
    if !is_there() {
        return;
    }
    let folder = host(&[("etc/hosts", "")]);
    let (key, file) = (folder.path().join("etc/web.key"), folder.path().join("etc/web.pem"));
    let words = format!(
        "req -x509 -newkey ed25519 -nodes -keyout {} -out {} -days 300 -subj /CN=old -addext subjectAltName=DNS:old",
        own(&key),
        own(&file)
    );
    openssl_says(&words);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("set");
    let before = (read(key.clone()), read(file.clone()));
    let mut bench = Bench::new();
    let keys = |name: &str| format!(r#""key":"/etc/web.key","key_type":"ed25519","names":["{name}"]"#);
    let context = bench.context(&setting("certificate"), &contents(folder.path(), &keys("new")));
    made(&mut bench, &context, "absent", "present").await;
    assert_eq!((read(key.clone()), mode(&key)), (before.0.clone(), 0o600), "a usable key stays");
    openssl_says(&format!("verify -partial_chain -verify_hostname new -CAfile {0} {0}", own(&file)));
    made(&mut bench, &context, "present", "absent").await;
    assert_eq!((read(key.clone()), read(file), mode(&key)), (before.0, before.1, 0o640));
}

/// An import of a value.
fn imports(cob: &str, name: &str, exports: &Values) -> BTreeMap<cob_types::CobId, Import> {
    let values: Values = [(name.to_owned(), exports[name].clone())].into();
    [(cob_id(cob), Import { state: state("present"), values })].into()
}

#[tokio::test]
async fn an_authority_signs_the_key_of_another_host() {
    if !is_there() {
        return;
    }
    let [authority, web] = [host(&[("etc/hosts", "")]), host(&[("etc/hosts", "")])];
    let (ca, at) = (authority.path(), |name: &str| authority.path().join("etc").join(name));
    let mut bench = Bench::new();
    let id = |context: Context, name: &str| {
        let mut cob = (*context.cob).clone();
        cob.id = cob_id(name);
        Context { cob: Arc::new(cob), ..context }
    };
    let certificate = setting("certificate");
    let content =
        |root: &Path, file: &str, rest: &str| format!(r#"{{"root":"{}","file":"/etc/{file}",{rest}}}"#, root.display());
    let signed = |name: &str| {
        format!(
            r#""ca":{{"certificate":"{}","key":"{}"}}"#,
            own(&at(&format!("{name}.pem"))),
            own(&at(&format!("{name}.key")))
        )
    };
    let root = content(ca, "root.pem", r#""key":"/etc/root.key","subject":{"CN":"Root"},"authority":true"#);
    let root = id(bench.context(&certificate, &root), "n1/root");
    made(&mut bench, &root, "absent", "present").await;
    let rest = format!(r#""key":"/etc/ca.key","subject":{{"CN":"CA"}},"authority":true,{}"#, signed("root"));
    let between = id(bench.context(&certificate, &content(ca, "ca.pem", &rest)), "n1/ca");
    made(&mut bench, &between, "absent", "present").await;

    let key = format!(r#"{{"root":"{}","file":"/etc/ssl/private/web.key","type":"ed25519"}}"#, web.path().display());
    let key = id(bench.context(&setting("private-key"), &key), "n2/key");
    let exported = made(&mut bench, &key, "absent", "present").await;
    assert!(exported["public_key"].contains("BEGIN PUBLIC KEY") && exported.len() == 1);

    let rest = format!(r#""public_key":"n2/key","names":["web"],{}"#, signed("ca"));
    let mut issued = id(bench.context(&certificate, &content(ca, "web.pem", &rest)), "n1/web");
    let why = reason(bench.transition(&issued, "absent", "present").await);
    assert!(why.contains("add `after: [n2/key]`"), "{why}");
    issued.imports = imports("n2/key", "public_key", &exported);
    let certificates = made(&mut bench, &issued, "outdated", "present").await;

    let rest = r#""key":"/etc/ssl/private/web.key","from":"n1/web""#;
    let mut placed = id(bench.context(&certificate, &content(web.path(), "web.pem", rest)), "n2/web");
    let why = reason(bench.transition(&placed, "absent", "present").await);
    assert!(why.contains("add `after: [n1/web]`"), "{why}");
    placed.imports = imports("n1/web", "certificate", &certificates);
    made(&mut bench, &placed, "outdated", "present").await;
    let there = web.path().join("etc/web.pem");
    assert_eq!(read(there.clone()), read(at("web.pem")));
    openssl_says(&format!(
        "verify -x509_strict -purpose sslserver -verify_hostname web -CAfile {} -untrusted {1} {1}",
        own(&at("root.pem")),
        own(&there)
    ));
    assert_eq!(read(there.clone()).matches("BEGIN CERTIFICATE").count(), 2, "the authority between follows");

    // The authority issues another certificate: a check without a lock does not know it, a transition does.
    fs::remove_file(at("web.pem")).expect("removed");
    let renewed = made(&mut bench, &issued, "outdated", "present").await;
    assert_eq!(bench.state(&placed).await, "present");
    placed.imports = imports("n1/web", "certificate", &renewed);
    assert_eq!(bench.state(&placed).await, "outdated");
    made(&mut bench, &placed, "outdated", "present").await;
    assert_eq!(read(there.clone()), read(at("web.pem")));

    // A certificate for another key is refused before it replaces the right one.
    let right = read(there.clone());
    let exported = bench.check(&root).await.exports;
    placed.imports = imports("n1/web", "certificate", &exported);
    let why = reason(bench.transition(&placed, "outdated", "present").await);
    assert!(why.contains("is for another key"), "{why}");
    assert_eq!(read(there), right);
}

#[tokio::test]
async fn a_command_runs_after_a_renewal_and_again_after_a_failure() {
    if !is_there() {
        return;
    }
    let folder = host(&[("etc/hosts", "")]);
    let at = |name: &str| own(&folder.path().join("etc").join(name));
    let content = format!(
        r#"{{"file":"{}","key":"{}","names":["a"],"on_renewal":"echo ran >> {}; test ! -e {}"}}"#,
        at("web.pem"),
        at("web.key"),
        at("ran"),
        at("fail")
    );
    let ran = || fs::read_to_string(at("ran")).unwrap_or_default().lines().count();
    let mut bench = Bench::new();
    let context = bench.context(&setting("certificate"), &content);
    made(&mut bench, &context, "absent", "present").await;
    assert_eq!(ran(), 0, "no program used an earlier certificate");
    fs::write(at("web.pem"), "").expect("written");
    fs::write(at("fail"), "").expect("written");
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains("`on_renewal` has failed"), "{why}");
    assert!(difference(&mut bench, &context).await.contains("has not run"));
    let renewed = read(folder.path().join("etc/web.pem"));
    fs::remove_file(at("fail")).expect("removed");
    made(&mut bench, &context, "outdated", "present").await;
    assert_eq!((ran(), read(folder.path().join("etc/web.pem"))), (2, renewed));
    made(&mut bench, &context, "present", "absent").await;
}
