//! Certificates from a real ACME server, `pebble`, with its own DNS server. `tests/programs.sh acme` gets the programs.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::super::super::tests::{host, read, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};
use crate::kinds::{Context, Outcome};
use crate::run::testing::{until, wait_for};

/// The server, its DNS server and their folder.
struct Pebble {
    folder: tempfile::TempDir,
    programs: Vec<Child>,
    /// The port of the directory.
    server: u16,
    /// The port that a proof of HTTP is read from.
    http: u16,
    dns: u16,
    /// The port on which records are set.
    records: u16,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

fn run(program: &str, words: &str) -> String {
    let ran = Command::new(program).args(words.split_whitespace()).output().expect("run");
    assert!(ran.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

impl Pebble {
    /// Starts the server. `None`: a program is missing.
    fn start(env: &[(&str, &str)]) -> Option<Self> {
        let has = crate::kinds::native::has_program;
        if let Some(program) = ["pebble", "pebble-challtestsrv", "lego", "openssl"].iter().find(|name| !has(name)) {
            eprintln!("skipped: {program} is not installed (tests/programs.sh acme gets it)");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        run(
            "openssl",
            &format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {} -out {} -days 30 \
                 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1",
                at("key.pem"),
                at("server.pem")
            ),
        );
        let [server, management, http, tls, dns, records] = cob_processes::free_ports().expect("free");
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{server}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": at("server.pem"),
            "privateKey": at("key.pem"),
            "httpPort": http,
            "tlsPort": tls,
        }});
        fs::write(at("pebble.json"), config.to_string()).expect("written");
        let log = |name: &str| Stdio::from(fs::File::create(at(name)).expect("made"));
        let answers = Command::new("pebble-challtestsrv")
            .args(["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", ""])
            .args(["-dns01", &format!("127.0.0.1:{dns}"), "-management", &format!("127.0.0.1:{records}")])
            .stdout(log("dns.log"))
            .stderr(log("dns.err"))
            .spawn()
            .expect("started");
        let pebble = Command::new("pebble")
            .args(["-config", &at("pebble.json"), "-dnsserver", &format!("127.0.0.1:{dns}")])
            .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_AUTHZREUSE", "100")])
            .envs(env.iter().copied())
            .stdout(log("pebble.log"))
            .stderr(log("pebble.err"))
            .spawn()
            .expect("started");
        let pebble = Self { folder, programs: vec![answers, pebble], server, http, dns, records };
        wait_for("the server listens", || TcpStream::connect(("127.0.0.1", server)).is_ok());
        wait_for("the DNS server listens", || TcpStream::connect(("127.0.0.1", records)).is_ok());
        Some(pebble)
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The content, with further keys.
    fn content(&self, root: &Path, challenge: &str, keys: &str) -> String {
        format!(
            r#"{{"root":"{}","server":"https://127.0.0.1:{}/dir","server_ca":"{}","mail":"a@example.org",
               "accept_terms":true,"challenge":{challenge},"file":"/etc/web.pem","key":"/etc/web.key",{keys}}}"#,
            root.display(),
            self.server,
            self.at("server.pem"),
        )
    }

    fn signal(&self, signal: Signal) {
        let server = self.programs.last().expect("started");
        kill_process(Pid::from_child(server), signal).expect("it lives");
    }

    fn by_port(&self) -> String {
        format!(r#"{{"port":{}}}"#, self.http)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("pebble.log")).unwrap_or_default()
            + &fs::read_to_string(self.at("pebble.err")).unwrap_or_default()
    }

    /// The numbers of orders, of certificates and of accounts.
    fn counts(&self) -> [usize; 3] {
        let log = self.log();
        ["Added order", "Issued certificate", "accounts in memory"].map(|words| log.matches(words).count())
    }
}

/// The folder of the accounts of a bench.
fn accounts(bench: &Bench) -> PathBuf {
    let all = lego_files(bench.folder.path());
    let key = all.iter().find(|path| path.extension().is_some_and(|end| end == "key")).expect("a key of an account");
    key.clone()
}

fn lego_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(lego_files(&path));
        } else if path.components().any(|part| part.as_os_str() == ".acme") {
            found.push(path);
        }
    }
    found
}

async fn made(bench: &mut Bench, context: &Context, from: &str, to: &str) -> Values {
    let outcome = bench.transition(context, from, to).await;
    let Outcome::Done { exports, .. } = outcome else { panic!("{from} -> {to}: {outcome:?}") };
    let found = bench.check(context).await;
    assert_eq!(found.state.expect("known").as_str(), to, "{}", found.difference);
    exports
}

async fn difference(bench: &mut Bench, context: &Context) -> String {
    let found = bench.check(context).await;
    assert_eq!(found.state.expect("known").as_str(), "outdated", "{}", found.difference);
    found.difference
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

/// The files of the host, without their random parts.
fn properties(root: &Path) -> String {
    let mut said = String::new();
    let public = openssl::public_key(&root.join("etc/web.key")).expect("run").unwrap_or_default();
    let mut names: Vec<_> = fs::read_dir(root.join("etc")).into_iter().flatten().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let is = match openssl::show(&text) {
            Ok(Some(shown)) => {
                let is_for_it = super::super::is_same(&shown.public_key, &public);
                format!("{:?} {is_for_it} {}", shown.names, openssl::all(&text).count())
            }
            Ok(None) | Err(_) if text.contains("PRIVATE") => openssl::type_of(&public).expect("a key"),
            Ok(None) | Err(_) => text,
        };
        said.push_str(&format!("{:?}: {:o} {is}\n", entry.file_name(), mode(&entry.path())));
    }
    said
}

#[tokio::test]
async fn certificates_of_a_server_keep_the_contract() {
    let Some(pebble) = Pebble::start(&[]) else { return };
    let folder = host(&[("etc/web.pem", "theirs\n"), ("etc/hosts", "")]);
    let root = folder.path().to_owned();
    let [one, other] = [r#""names":["a.example"]"#, r#""names":["b.example"],"chain":"/etc/chain.pem""#]
        .map(|keys| pebble.content(&root, &pebble.by_port(), keys));
    let case = Case::new(setting("acme-certificate"), &one).other(&other);
    holds(&case.probing(move || properties(&root)).kills(3), &[]).await;
}

/// A certificate of the same key and names that another authority has signed, and that ends in two days.
fn put_old_certificate(root: &Path) {
    let at = |name: &str| root.join(name).display().to_string();
    let config = "[ca]\ndefault_ca=x\n[x]\ndatabase=DIR/index\nserial=DIR/serial\nnew_certs_dir=DIR\ndefault_md=sha256\n\
                  policy=p\nemail_in_dn=no\ncopy_extensions=copy\n[p]\ncommonName=optional\n";
    fs::write(root.join("index"), "").expect("written");
    fs::write(root.join("serial"), "01\n").expect("written");
    fs::write(root.join("ca.cnf"), config.replace("DIR", &root.display().to_string())).expect("written");
    let (ca_key, ca, csr) = (at("ca.key"), at("ca.pem"), at("old.csr"));
    run("openssl", &format!("req -x509 -newkey ed25519 -nodes -keyout {ca_key} -out {ca} -days 900 -subj /CN=Old"));
    let key = at("etc/web.key");
    run("openssl", &format!("req -new -key {key} -subj /CN=a.example -addext subjectAltName=DNS:a.example -out {csr}"));
    let (year, month, day) = cob_types::calendar::date((wall_s() / DAY + 2).cast_signed());
    run(
        "openssl",
        &format!(
            "ca -batch -notext -config {} -cert {ca} -keyfile {ca_key} -md default -in {csr} -out {} \
             -startdate 20200101000000Z -enddate {year:04}{month:02}{day:02}000000Z",
            at("ca.cnf"),
            at("etc/web.pem"),
        ),
    );
}

#[tokio::test]
async fn a_certificate_is_asked_for_once_and_renewed_with_the_same_key_and_account() {
    let Some(pebble) = Pebble::start(&[]) else { return };
    let folder = host(&[("etc/hosts", "")]);
    let (root, path) = (folder.path(), |name: &str| folder.path().join("etc").join(name));
    let mut bench = Bench::new();
    let kind = setting("acme-certificate");
    let keys = r#""names":["a.example"],"chain":"/etc/chain.pem","mode":"0640""#;
    let context = bench.context(&kind, &pebble.content(root, &pebble.by_port(), keys));
    let exports = made(&mut bench, &context, "absent", "present").await;
    let text = read(path("web.pem"));
    assert_eq!(serde_json::from_str::<String>(&exports["certificate"]).expect("a text"), text);
    assert_eq!((mode(&path("web.key")), mode(&path("web.pem")), mode(&path("chain.pem"))), (0o640, 0o644, 0o644));
    let (leaf, chain) = (openssl::all(&text).next().expect("one"), read(path("chain.pem")));
    assert!(text.ends_with(&chain) && openssl::all(&chain).count() >= 1 && !chain.contains(leaf), "{text}\n{chain}");
    let key = read(path("web.key"));
    let account = accounts(&bench);
    let account_key = read(account.clone());
    let all = lego_files(bench.folder.path());
    assert!(all.iter().all(|path| mode(path) == 0o600), "{all:?}");

    // Repairs that need no other certificate.
    fs::set_permissions(path("web.key"), fs::Permissions::from_mode(0o644)).expect("set");
    fs::remove_file(path("chain.pem")).expect("removed");
    let differs = difference(&mut bench, &context).await;
    assert!(differs.contains("0644") && differs.contains("chain"), "{differs}");
    made(&mut bench, &context, "outdated", "present").await;
    // What a transition leaves that is killed after the files are in their places.
    let own = record_folder(&bench);
    fs::write(own.join(NEXT_KEY), &key).expect("written");
    assert!(difference(&mut bench, &context).await.contains("unfinished"));
    made(&mut bench, &context, "outdated", "present").await;
    assert!(!own.join(NEXT_KEY).exists());
    let certificates = own.join(lego::FOLDER).join("lego/certificates");
    fs::create_dir_all(&certificates).expect("made");
    fs::write(certificates.join("a.json"), "{}").expect("written");
    fs::write(certificates.join("a.crt"), &text).expect("written");
    assert!(difference(&mut bench, &context).await.contains("unfinished"));
    made(&mut bench, &context, "outdated", "present").await;
    assert!(!own.join(lego::FOLDER).exists());
    assert_eq!((pebble.counts()[1], read(path("web.pem")), mode(&path("web.key"))), (1, text.clone(), 0o640));
    let without = bench.context(&kind, &pebble.content(root, &pebble.by_port(), r#""names":["a.example"]"#));
    assert!(difference(&mut bench, &without).await.contains("former_chain"));
    made(&mut bench, &without, "outdated", "present").await;
    assert!(!path("chain.pem").exists() && pebble.counts()[1] == 1);

    // A certificate that is right, but ends soon.
    put_old_certificate(root);
    let differs = difference(&mut bench, &without).await;
    assert!(differs.contains("due, for the certificate ends on"), "{differs}");
    made(&mut bench, &without, "outdated", "present").await;
    assert_eq!((pebble.counts()[1], read(path("web.key"))), (2, key.clone()), "a renewal keeps the key");
    assert_eq!(read(account), account_key, "and the account");

    // Another type of the key, and other names.
    let other = r#""names":["b.example","a.example"],"key_type":"rsa2048""#;
    let other = bench.context(&kind, &pebble.content(root, &pebble.by_port(), other));
    assert!(difference(&mut bench, &other).await.contains("rsa2048"));
    made(&mut bench, &other, "outdated", "present").await;
    assert!(pebble.counts()[1] == 3 && read(path("web.key")) != key);
    made(&mut bench, &other, "present", "absent").await;
    assert!(!path("web.key").exists() && !path("web.pem").exists());
    made(&mut bench, &other, "absent", "present").await;
    assert_eq!(pebble.counts()[2], 1, "the account stays");
}

#[tokio::test]
async fn a_failed_request_changes_nothing_shows_the_message_and_waits() {
    let Some(pebble) = Pebble::start(&[("PEBBLE_AUTHZREUSE", "0")]) else { return };
    let folder = host(&[("etc/web.pem", "theirs\n"), ("etc/web.key", "")]);
    let (root, path) = (folder.path(), |name: &str| folder.path().join("etc").join(name));
    let mut bench = Bench::new();
    let kind = setting("acme-certificate");
    let names = r#""names":["a.example"]"#;
    // The server finds no proof on its port.
    let [port] = cob_processes::free_ports().expect("free");
    let wrong = bench.context(&kind, &pebble.content(root, &format!(r#"{{"port":{port}}}"#), names));
    let why = reason(bench.transition(&wrong, "absent", "present").await);
    assert!(why.contains("urn:ietf:params:acme:error:connection") && why.contains("a.example"), "{why}");
    assert_eq!((read(path("web.pem")).as_str(), read(path("web.key")).as_str()), ("theirs\n", ""));
    let orders = pebble.counts()[0];
    let again = reason(bench.transition(&wrong, "outdated", "present").await);
    assert!(
        again.contains("1 failed request: the next request may begin after") && again.contains(":connection"),
        "{again}"
    );
    assert_eq!(pebble.counts()[0], orders, "the server was not asked");
    // Another content is asked for at once.
    let right = bench.context(&kind, &pebble.content(root, &pebble.by_port(), names));
    made(&mut bench, &right, "outdated", "present").await;
    let text = read(path("web.pem"));

    // A renewal that fails waits with the present certificate, which still serves.
    put_old_certificate(root);
    let old = read(path("web.pem"));
    difference(&mut bench, &wrong).await;
    let why = reason(bench.transition(&wrong, "outdated", "present").await);
    assert!(why.contains("acme:error"), "{why}");
    assert_eq!(bench.state(&wrong).await, "present");
    assert_eq!(read(path("web.pem")), old);
    // The time of the wait is over.
    let own = record_folder(&bench);
    let mut record = Record::read(&own).expect("read");
    assert_eq!(record.failures, 1);
    record.failed_at -= 31;
    record.write(&own).expect("written");
    assert!(difference(&mut bench, &wrong).await.contains("due"));
    reason(bench.transition(&wrong, "outdated", "present").await);
    assert_eq!(Record::read(&own).expect("read").failures, 2);
    made(&mut bench, &right, "outdated", "present").await;
    assert_ne!(read(path("web.pem")), text);
    made(&mut bench, &right, "present", "absent").await;
    assert_eq!((read(path("web.pem")).as_str(), read(path("web.key")).as_str()), ("theirs\n", ""));
}

/// The own folder with the record.
fn record_folder(bench: &Bench) -> PathBuf {
    let cobs = bench.folder.path().join("cobs");
    let found = fs::read_dir(&cobs).expect("listed").flatten().map(|entry| entry.path());
    found.into_iter().find(|path| path.join(RECORD).exists()).expect("a record")
}

#[tokio::test]
async fn a_killed_client_leaves_no_proof_in_the_webroot() {
    let Some(pebble) = Pebble::start(&[("PEBBLE_AUTHZREUSE", "0")]) else { return };
    let folder = host(&[("etc/hosts", ""), ("srv/www/index.html", "theirs")]);
    let (root, www) = (folder.path(), folder.path().join("srv/www"));
    let proofs = www.join(".well-known/acme-challenge");
    let mut bench = Bench::new();
    let content = pebble.content(root, r#"{"webroot":"/srv/www"}"#, r#""names":["a.example"]"#);
    let context = bench.context(&setting("acme-certificate"), &content);
    // The web server accepts the question and doesn't answer: the ACME server can't decide before the client is killed.
    let listener = TcpListener::bind(("127.0.0.1", pebble.http)).expect("bound");
    listener.set_nonblocking(true).expect("set");
    let (job, handle) = bench.begin(&context, "absent", "present");
    let mut question = None;
    until("the server asks for the proof", || {
        question = listener.accept().ok();
        question.is_some()
    })
    .await;
    pebble.signal(Signal::STOP);
    handle.cancel();
    assert_eq!(bench.ended().await.job, job);
    bench.kinds.remove(job);
    let left: Vec<_> = fs::read_dir(&proofs).expect("listed").flatten().map(|entry| entry.path()).collect();
    assert_eq!(left.len(), 1, "the killed client has left its proof");
    pebble.signal(Signal::CONT);
    drop(question);
    // Proofs of others look alike.
    fs::write(proofs.join("other"), format!("other.{}", "x".repeat(43))).expect("written");
    made(&mut bench, &context, "outdated", "absent").await;
    let left: Vec<_> = fs::read_dir(&proofs).expect("listed").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["other"]);
    fs::remove_dir_all(www.join(".well-known")).expect("removed");

    // With a web server, the folders of the proof are gone as well.
    listener.set_nonblocking(false).expect("set");
    let shown = www.clone();
    std::thread::spawn(move || serve(&listener, &shown));
    made(&mut bench, &context, "absent", "present").await;
    let left: Vec<_> = fs::read_dir(&www).expect("listed").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["index.html"]);
}

/// A web server for the files of a folder.
fn serve(listener: &TcpListener, folder: &Path) {
    use std::io::{BufRead as _, BufReader, Write as _};
    for mut stream in listener.incoming().flatten() {
        let first = BufReader::new(&stream).lines().next();
        let path = first.and_then(Result::ok).and_then(|line| line.split(' ').nth(1).map(str::to_owned));
        let text =
            fs::read_to_string(folder.join(path.unwrap_or_default().trim_start_matches('/'))).unwrap_or_default();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
        let _ = stream.write_all(format!("{head}{text}").as_bytes());
    }
}

#[tokio::test]
async fn a_program_sets_records_and_removes_them_after_a_kill() {
    if !crate::kinds::native::has_program("curl") {
        return eprintln!("skipped: curl is not installed");
    }
    let Some(pebble) = Pebble::start(&[]) else { return };
    let folder = host(&[("etc/hosts", "")]);
    let (hook, calls, block) = (pebble.at("hook"), pebble.at("hook.log"), pebble.at("block"));
    let url = format!("http://127.0.0.1:{}", pebble.records);
    let script = format!(
        "#!/bin/sh\n[ \"$TOKEN\" = secret ] || exit 1\necho \"$@\" >> {calls}\ncase $1 in\n\
         present) curl -sf -d \"{{\\\"host\\\":\\\"$2\\\",\\\"value\\\":\\\"$3\\\"}}\" {url}/set-txt;;\n\
         cleanup) curl -sf -d \"{{\\\"host\\\":\\\"$2\\\"}}\" {url}/clear-txt;;\nesac\n\
         while [ $1 = present ] && [ -e {block} ]; do sleep 0.05; done\n"
    );
    fs::write(&hook, script).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    let challenge = format!(r#"{{"hook":"{hook}","resolvers":["127.0.0.1:{}"],"wait":false}}"#, pebble.dns);
    let keys = r#""names":["a.example","*.a.example"],"key_type":"ecdsa-p384","env":{"TOKEN":"secret"}"#;
    let content = pebble.content(folder.path(), &challenge, keys);
    let mut bench = Bench::new();
    let context = bench.context(&setting("acme-certificate"), &content);
    let lines = || fs::read_to_string(&calls).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    fs::write(&block, "").expect("written");
    let (job, handle) = bench.begin(&context, "absent", "present");
    until("the program was called", || !lines().is_empty()).await;
    handle.cancel();
    assert_eq!(bench.ended().await.job, job);
    bench.kinds.remove(job);
    fs::remove_file(&block).expect("removed");
    assert!(lines().iter().all(|line| line.starts_with("present ")), "{:?}", lines());
    let begun = Instant::now();
    made(&mut bench, &context, "outdated", "present").await;
    let said = lines();
    assert_eq!(said[1], said[0].replace("present", "cleanup"), "{said:?} after {:?}", begun.elapsed());
    let count = |what: &str| said.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!((count("present"), count("cleanup")), (3, 3), "{said:?}");
    let names = openssl::show(&read(folder.path().join("etc/web.pem"))).expect("run").expect("a certificate").names;
    assert_eq!(names, ["*.a.example", "a.example"].map(str::to_owned).into());
    // The value of a secret is in no note.
    let noted = fs::read_to_string(record_folder(&bench).join(NOTE)).expect("read");
    assert!(!noted.contains("secret"), "{noted}");
    made(&mut bench, &context, "present", "absent").await;
    // Without the program, no request begins.
    let orders = pebble.counts()[0];
    fs::remove_file(&hook).expect("removed");
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("the program of the challenge is missing") && pebble.counts()[0] == orders, "{why}");
}
