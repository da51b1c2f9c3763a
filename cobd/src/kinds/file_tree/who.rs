//! Evidence from the host about the user who changed a file.
//!
//! A file does not record its writer. It has an owner and a change time, which the kernel sets (a privileged process
//! can only change it by setting the clock). The evidence adds the users who were logged in at that time: systemd's
//! sessions, or the login records of other systems. A process without a session (a timer, a container, a leftover
//! program) is not included, and several users may be logged in. Proof needs the kernel's audit.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cob_types::status::FileDrift;

use crate::clock::wall_s;

/// The size of a login record in `/run/utmp`, in glibc's format with 32-bit seconds.
const RECORD: usize = 384;
const LINE: std::ops::Range<usize> = 8..40;
const USER: std::ops::Range<usize> = 44..76;
const HOST: std::ops::Range<usize> = 76..332;
const SECONDS: std::ops::Range<usize> = 340..344;
/// The record type of a session with a logged-in user.
const USER_PROCESS: [u8; 2] = 7_i16.to_le_bytes();
/// The most bytes read of a file, and the most reported sessions.
const MAX_FILE: u64 = 1 << 20;
const MAX_SESSIONS: usize = 5;

/// A session of a logged-in user.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    user: String,
    line: String,
    from: String,
    since: u64,
}

/// The evidence that the host at `root` has about a changed path.
pub(super) fn evidence(root: &Path, path: &Path) -> FileDrift {
    let told = path.display().to_string();
    let Ok(meta) = path.symlink_metadata() else {
        // The removal changed the folder.
        let gone = path.parent().and_then(|folder| folder.symlink_metadata().ok());
        let changed_s = gone.and_then(|meta| u64::try_from(meta.ctime()).ok());
        return FileDrift { path: told, changed_s, owner: None, logged_in: logged_in(root, changed_s) };
    };
    let changed_s = u64::try_from(meta.ctime()).ok();
    let owner = name_of(root, meta.uid());
    FileDrift { path: told, changed_s, owner: Some(owner), logged_in: logged_in(root, changed_s) }
}

/// The evidence as a line of text.
pub(super) fn line(drift: &FileDrift) -> String {
    let mut text = format!("{}:", drift.path);
    text.push_str(&drift.owner.as_ref().map_or(" it is gone".to_owned(), |owner| format!(" it belongs to {owner}")));
    if let Some(at) = drift.changed_s {
        text.push_str(&format!(", was changed {} s before this was seen", wall_s().saturating_sub(at)));
    }
    let who = if drift.logged_in.is_empty() { "no known user".to_owned() } else { drift.logged_in.join(", ") };
    text.push_str(&format!("; logged in then: {who}\n"));
    text
}

fn name_of(root: &Path, uid: u32) -> String {
    let text = read(&root.join("etc/passwd"));
    let text = String::from_utf8_lossy(&text);
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| uid.to_string())
}

/// The users whose session began before that time and still exists.
fn logged_in(root: &Path, at: Option<u64>) -> Vec<String> {
    let mut sessions = systemd(&root.join("run/systemd/sessions"));
    if sessions.is_empty() {
        sessions = login_records(&read(&root.join("run/utmp")));
    }
    let before = sessions.into_iter().filter(|session| at.is_none_or(|at| session.since <= at));
    let told: BTreeSet<String> = before.map(|session| session.told()).collect();
    told.into_iter().take(MAX_SESSIONS).collect()
}

impl Session {
    fn told(&self) -> String {
        let place: Vec<&str> = [self.line.as_str(), self.from.as_str()].into_iter().filter(|p| !p.is_empty()).collect();
        if place.is_empty() { self.user.clone() } else { format!("{} ({})", self.user, place.join(", ")) }
    }
}

/// The sessions of systemd: one file each, with lines of `NAME=value`.
fn systemd(folder: &Path) -> BTreeSet<Session> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|entry| systemd_session(&String::from_utf8_lossy(&read(&entry.path())))).collect()
}

fn systemd_session(text: &str) -> Option<Session> {
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default().to_owned()
    };
    let user = value("USER");
    let is_user = value("CLASS").starts_with("user") && value("CLASS") != "user-incomplete";
    let since = value("REALTIME").parse::<u64>().unwrap_or(0) / 1_000_000;
    (is_user && !user.is_empty()).then(|| Session { user, line: value("TTY"), from: value("REMOTE_HOST"), since })
}

fn login_records(bytes: &[u8]) -> BTreeSet<Session> {
    if !bytes.len().is_multiple_of(RECORD) {
        // Another format.
        return BTreeSet::new();
    }
    let text = |bytes: &[u8]| {
        let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).escape_debug().to_string()
    };
    let session = |record: &[u8]| {
        let since = u32::from_le_bytes(record[SECONDS].try_into().ok()?);
        let user = text(&record[USER]);
        let is_user = record[..2] == USER_PROCESS && !user.is_empty();
        is_user.then(|| Session { user, line: text(&record[LINE]), from: text(&record[HOST]), since: u64::from(since) })
    };
    bytes.chunks_exact(RECORD).filter_map(session).collect()
}

/// The first bytes of a file; empty if it can't be read.
fn read(path: &Path) -> Vec<u8> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let Ok(file) = fs::File::open(path) else { return bytes };
    let _ = file.take(MAX_FILE).read_to_end(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> tempfile::TempDir {
        let host = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(host.path().join("run/systemd/sessions")).expect("made");
        fs::create_dir_all(host.path().join("etc")).expect("made");
        host
    }

    fn record(sort: i16, user: &str, line: &str, from: &str, since: u32) -> Vec<u8> {
        let mut bytes = vec![0; RECORD];
        bytes[..2].copy_from_slice(&sort.to_le_bytes());
        bytes[LINE][..line.len()].copy_from_slice(line.as_bytes());
        bytes[USER][..user.len()].copy_from_slice(user.as_bytes());
        bytes[HOST][..from.len()].copy_from_slice(from.as_bytes());
        bytes[SECONDS].copy_from_slice(&since.to_le_bytes());
        bytes
    }

    #[test]
    fn login_records_name_the_users_logged_in_when_a_file_changed() {
        let host = host();
        let file = host.path().join("x.conf");
        fs::write(&file, "x").expect("written");
        let uid = file.metadata().expect("there").uid();
        fs::write(host.path().join("etc/passwd"), format!("other:x:1:1::/:\nmaria:x:{uid}:1::/:/bin/sh\n"))
            .expect("made");
        let records = [
            record(7, "alice", "pts/0", "10.0.0.7", 1_000_000),
            record(7, "late", "pts/1", "", u32::MAX),
            record(8, "gone", "pts/2", "", 1_000_000),
            record(7, "bob", "tty1", "", 1_000_000),
        ];
        fs::write(host.path().join("run/utmp"), records.concat()).expect("written");
        let drift = evidence(host.path(), &file);
        assert_eq!(drift.owner.as_deref(), Some("maria"));
        assert_eq!(drift.logged_in, ["alice (pts/0, 10.0.0.7)", "bob (tty1)"]);
        assert!(line(&drift).contains("it belongs to maria, was changed "), "{}", line(&drift));
        // A partial record makes the file invalid.
        fs::write(host.path().join("run/utmp"), &records.concat()[..RECORD + 7]).expect("written");
        assert_eq!(evidence(host.path(), &file).logged_in, Vec::<String>::new());
    }

    #[test]
    fn only_user_sessions_of_systemd_are_read() {
        let host = host();
        let session = |name: &str, text: &str| fs::write(host.path().join("run/systemd/sessions").join(name), text);
        let alice = "# This is private data. Do not parse.\nUID=1000\nUSER=alice\nCLASS=user\nTTY=pts/3\nREMOTE_HOST=10.0.0.9\nREALTIME=5000000\n";
        session("3", alice).expect("written");
        session("c1", "USER=gdm\nCLASS=greeter\nREALTIME=5000000\n").expect("written");
        session("3.ref", "").expect("written");
        let gone = evidence(host.path(), &host.path().join("gone.conf"));
        assert_eq!(gone.owner, None);
        assert_eq!(gone.logged_in, ["alice (pts/3, 10.0.0.9)"]);
        assert!(line(&gone).contains("it is gone"), "{}", line(&gone));
        assert_eq!(logged_in(host.path(), Some(4)), Vec::<String>::new(), "before any login");
    }
}
