//! The program `lego`: a client for ACME servers.
//!
//! `lego` gets a request for a certificate that `openssl` has made, and never the private key of the certificate. It
//! keeps the accounts of all change objects of a host in a common folder, so that a server has a single account.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use cob_kinds::{AcmeCertificate, Proof};
use cob_types::words::shell_word;
use sha2::{Digest as _, Sha256};

use super::super::place;
use super::openssl;
use super::request::Running;
use crate::durable::{self, Sync};
use crate::kinds::native::{Host, inspect, needs_program, run_bounded};

/// The folder of a request, in the own folder.
pub(super) const FOLDER: &str = "request";
/// The folder of the accounts, beside the own folders of all change objects.
const ACCOUNTS: &str = ".acme";
/// The calls of the program of the challenge, in the folder of a request.
const CALLS: &str = "calls";
/// The folder in which a web server shows the proof, below the web server's folder.
const PROOFS: &str = "/.well-known/acme-challenge";
/// The longest reason.
const MAX_REASON: usize = 1000;

/// A client for the certificate of a change object.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) content: &'a AcmeCertificate,
    pub(super) host: &'a Host,
    pub(super) own: &'a Path,
}

/// Whether the program is installed.
///
/// # Errors
/// The reason, with the name of the package.
pub(super) fn is_installed() -> Result<(), String> {
    needs_program("lego", "lego")
}

impl Client<'_> {
    fn folder(&self) -> PathBuf {
        self.own.join(FOLDER)
    }

    fn accounts(&self) -> PathBuf {
        self.own.parent().unwrap_or(self.own).join(ACCOUNTS)
    }

    /// What has to be cleaned up after a request.
    ///
    /// # Errors
    /// No request of this content can succeed now.
    pub(super) fn plan(&self) -> Result<Running, String> {
        let later = "let this object come `after` the object that makes it";
        match self.content.challenge.proof().ok_or("content: `challenge` does not name a single proof")? {
            Proof::Webroot(root) => {
                let root = place::text(root)?;
                if !place::real(self.host, root)?.is_dir() {
                    return Err(format!("{root}: the folder for the proof is missing; {later}"));
                }
                let proofs = place::real(self.host, &format!("{}{PROOFS}", root.trim_end_matches('/')))?;
                let made = place::missing_folder(&proofs.join("proof")).map(Path::to_owned);
                Ok(Running { proofs: Some(proofs), made, hook: None })
            }
            Proof::Hook(hook) => {
                let meta = fs::metadata(hook).ok().filter(fs::Metadata::is_file);
                if meta.is_none_or(|meta| meta.permissions().mode() & 0o111 == 0) {
                    return Err(format!(
                        "{}: the program of the challenge is missing, or not executable; {later}",
                        hook.display()
                    ));
                }
                Ok(Running { hook: Some(hook.clone()), ..Running::default() })
            }
            Proof::Port(_) | Proof::Provider(_) => Ok(Running::default()),
        }
    }

    /// Asks the server for a certificate for a private key. It is in [`Self::answer`] then.
    pub(super) fn ask(&self, key: &Path, running: &Running, limit: Duration) -> Result<(), String> {
        let (folder, accounts) = (self.folder(), self.accounts());
        place::remove_all(&folder)?;
        make_private(&folder)?;
        make_private(&accounts)?;
        self.mend_accounts()?;
        let client = folder.join("lego");
        make_private(&client)?;
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        let link = client.join("accounts");
        symlink(&accounts, &link).map_err(|error| failed(&link, error))?;
        let csr = openssl::new_request(key, &self.content.names)?;
        write(&folder, "request.pem", 0o600, &csr)?;
        let mut command = self.command(&client, &folder.join("request.pem"), limit);
        if let Some(hook) = &running.hook {
            let calls = folder.join(CALLS);
            let [calls, hook] = [calls.as_path(), hook].map(|path| place::text(path).map(shell_word));
            let script = format!("#!/bin/sh\necho \"$1 $2 $3\" >> {} || exit\nexec {} \"$@\"\n", calls?, hook?);
            write(&folder, "hook", 0o700, &script)?;
            command.env("EXEC_PATH", folder.join("hook"));
        }
        let ran = run_bounded(&mut command, b"");
        // The program makes keys that all users could read if they could enter the folder.
        protect(&accounts)?;
        let ran = ran?;
        match ran.code {
            Some(0) => Ok(()),
            Some(124) => Err(format!("lego did not end within {} s: {}", limit.as_secs(), reason(&ran.err))),
            Some(code) if code < 124 => Err(reason(&ran.err)),
            Some(_) | None => Err(format!("lego was killed: {}", reason(&ran.err))),
        }
    }

    fn command(&self, client: &Path, csr: &Path, limit: Duration) -> Command {
        let content = self.content;
        // The group of `timeout` ends with the client, and so do the programs that the client has started.
        let mut command = Command::new("timeout");
        command.arg("--kill-after=5").arg(limit.as_secs().to_string()).args(["lego", "--accept-tos"]);
        command.args(["--server", &content.server, "--email", &content.mail]);
        command.args([OsStr::new("--path"), client.as_os_str(), OsStr::new("--csr"), csr.as_os_str()]);
        match content.challenge.proof() {
            Some(Proof::Webroot(root)) => {
                let root = self.host.path(&root.to_string_lossy());
                command.args([OsStr::new("--http"), OsStr::new("--http.webroot"), root.as_os_str()]);
            }
            Some(Proof::Port(port)) => {
                command.args(["--http", "--http.port", &format!(":{port}")]);
            }
            Some(Proof::Hook(_)) => {
                // The records of a name are set one after the other; `wait` waits for the servers.
                command.args(["--dns", "exec"]).env("EXEC_SEQUENCE_INTERVAL", "2");
            }
            Some(Proof::Provider(name)) => {
                command.args(["--dns", name]);
            }
            None => {}
        }
        for resolver in &content.challenge.resolvers {
            command.args(["--dns.resolvers", resolver]);
        }
        if content.challenge.wait == Some(false) {
            command.arg("--dns.disable-cp");
        }
        if let Some(ca) = &content.server_ca {
            command.env("LEGO_CA_CERTIFICATES", ca);
        }
        command.envs(&content.env).arg("run");
        command
    }

    /// The certificate that the last request has got, followed by the certificates of intermediate authorities. `None`:
    /// the request has not come to its end.
    pub(super) fn answer(&self) -> Result<Option<String>, String> {
        let folder = self.folder().join("lego/certificates");
        let mut text = None;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // The program writes the description of the certificate last.
            if path.extension() == Some(OsStr::new("json")) && is_json(&path) {
                let file = path.with_extension("crt");
                text = Some(fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?);
            }
        }
        Ok(text)
    }

    /// Takes back what a request has done outside of the own folder, as far as the client has not done so.
    pub(super) fn clean(&self, running: &Running) -> Result<(), String> {
        let thumbprints = self.thumbprints();
        running.clear_proofs(|name, text| {
            text.trim_end()
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|thumbprint| thumbprints.iter().any(|ours| ours == thumbprint))
        })?;
        let Some(hook) = &running.hook else { return Ok(()) };
        let calls = fs::read_to_string(self.folder().join(CALLS)).unwrap_or_default();
        for rest in left_of(&calls) {
            // The record has no use any more, and the program may be missing: a failure has no effect.
            let words = ["cleanup"].into_iter().chain(rest.split(' '));
            let _ = run_bounded(Command::new(hook).args(words).envs(&self.content.env), b"");
        }
        place::remove_all(&self.folder().join(CALLS))
    }

    /// Removes the folder of the request.
    pub(super) fn forget(&self) -> Result<(), String> {
        place::remove_all(&self.folder())
    }

    /// The files of the accounts with this extension.
    fn account_files(&self, extension: &str) -> Vec<PathBuf> {
        files_below(&self.accounts())
            .into_iter()
            .filter(|path| path.extension() == Some(OsStr::new(extension)))
            .collect()
    }

    /// Removes files of accounts that a killed client has not written to their end: a new description comes from the
    /// server, which knows the account by its key.
    fn mend_accounts(&self) -> Result<(), String> {
        for path in self.account_files("json").iter().filter(|path| !is_json(path)) {
            place::remove_all(path)?;
        }
        for path in self.account_files("key") {
            if openssl::public_key(&path)?.is_none() {
                place::remove_all(&path)?;
            }
        }
        protect(&self.accounts())
    }

    /// The thumbprints of the accounts' keys (RFC 7638), with which the files of a proof end.
    fn thumbprints(&self) -> Vec<String> {
        let keys = self.account_files("key");
        keys.iter().filter_map(|path| thumbprint(&openssl::public_key(path).ok()??)).collect()
    }
}

/// The thumbprint of a key of the type P-256, which the client makes for accounts.
fn thumbprint(public: &str) -> Option<String> {
    let body: String = public.lines().filter(|line| !line.starts_with("-----")).collect();
    let key = STANDARD.decode(body).ok()?;
    // The point is the end of the key.
    let point = key.get(key.len().checked_sub(64)?..)?;
    let [x, y] = [&point[..32], &point[32..]].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    let text = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    Some(URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes())))
}

/// The calls that set a record which no later call has removed, without their first word.
fn left_of(calls: &str) -> Vec<&str> {
    let mut left = Vec::new();
    for line in calls.lines() {
        match line.split_once(' ') {
            Some(("present", rest)) => left.push(rest),
            Some((_, rest)) => left.retain(|one| *one != rest),
            None => {}
        }
    }
    left
}

/// The reason of a failure: the last entry of the client's log, which may have several lines.
fn reason(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    let first = lines.iter().rposition(|line| after_time(line).is_some()).unwrap_or(0);
    let entry = lines[first.min(lines.len())..].iter().map(|line| after_time(line).unwrap_or(line).trim());
    let text = entry.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let text = if text.is_empty() { "lego has failed without a reason".to_owned() } else { text };
    text.chars().take(MAX_REASON).collect()
}

/// The rest of a line that begins with a time such as `2026/11/28 21:35:46`.
fn after_time(line: &str) -> Option<&str> {
    let (time, rest) = line.split_at_checked("2026/11/28 21:35:46 ".len())?;
    let is_time = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'/',
        10 | 19 => byte == b' ',
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    };
    time.bytes().enumerate().all(is_time).then_some(rest)
}

fn write(folder: &Path, name: &str, mode: u32, text: &str) -> Result<(), String> {
    let written = durable::write_file(folder, name, mode, text.as_bytes(), Sync::Later);
    written.map_err(|error| format!("{}: {error}", folder.join(name).display()))
}

fn make_private(folder: &Path) -> Result<(), String> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| format!("{}: {error}", folder.display()))
}

fn is_json(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).is_ok())
}

/// All regular files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        match inspect(&path) {
            Ok(Some(meta)) if meta.is_dir() => found.extend(files_below(&path)),
            Ok(Some(meta)) if meta.is_file() => found.push(path),
            Ok(_) | Err(_) => {}
        }
    }
    found
}

/// Makes all files below a folder readable for their owner alone.
fn protect(folder: &Path) -> Result<(), String> {
    for path in files_below(folder) {
        let set = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
        set.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_entry_of_the_log() {
        let log = "2026/11/28 21:38:39 [INFO] acme: Trying\n2026/11/28 21:38:39 Could not obtain certificates:\n\terror: \
                   one or more domains had a problem:\n[a.example] acme: error: 400 :: urn:x :: refused\n";
        let wanted = "Could not obtain certificates: error: one or more domains had a problem: [a.example] acme: error: \
                      400 :: urn:x :: refused";
        assert_eq!(reason(log), wanted);
        assert_eq!(reason("unknown option\n"), "unknown option");
        assert_eq!(reason(""), "lego has failed without a reason");
        assert_eq!(reason(&"ü".repeat(5000)).chars().count(), MAX_REASON);
    }

    #[test]
    fn records_that_were_set_and_not_removed_are_left() {
        let calls = "present a. 1\npresent b. 2\ncleanup a. 1\npresent a. 3\n";
        assert_eq!(left_of(calls), ["b. 2", "a. 3"]);
        assert_eq!(shell_word("/a b's"), r"'/a b'\''s'");
    }
}
