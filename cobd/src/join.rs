//! `cobd join`: a new host makes its key, shows its token to the server, and writes its configuration.
//!
//! The token names the server's key, so the host sends data only to it; the answer names the publishers to trust. After
//! any failure, the command may be repeated: the key is made once, and the server accepts the same token and key again.
//! A host that has lost its state folder makes a new key and shows a new token, although its configuration exists.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_trust::enrol::Token;
use cob_trust::key::Purpose;
use cob_trust::tls::{Identity, TlsError};
use cob_trust::{KeyFileError, SecretKey};
use cob_types::PublicKey;
use cob_types::remote::{ENROL, ENROL_PATH, EnrolRequest, Enrolled, MAX_JSON, Standing};
use hyper::Method;

use crate::config::{Config, ConfigError};
use crate::remote::{Question, RemoteError, Server};

/// The name of the key file in the state folder.
const IDENTITY: &str = "identity.key";
/// The longest time for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(20);
/// The interval of questions whether a person has accepted the key.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The data that a host needs to join.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// The address of the server.
    pub server: SocketAddr,
    /// The token.
    pub token: Token,
    /// The path of the configuration to write.
    pub config: PathBuf,
    /// The state folder: all data of the daemon.
    pub state_dir: PathBuf,
    /// The socket of the API, if it is not the default.
    pub http: Option<PathBuf>,
    /// The address where the daemon listens; absent: the address in the manifest.
    pub listen: Option<SocketAddr>,
    /// Whether the daemon switches by itself to the newest generation.
    pub follow: bool,
    /// How long to wait for a person to accept the key.
    pub wait: Duration,
}

/// Why a host has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is a different configuration.
    #[error(
        "{} has another content and is left alone: move it away, or name another file with --config", .path.display()
    )]
    Configured {
        /// The file.
        path: PathBuf,
    },
    /// The existing configuration can't be read.
    #[error("{0}")]
    Unreadable(#[from] ConfigError),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The server's answer is not for this host.
    #[error("the server's answer is for the host {0}, not for this host: it is ignored")]
    Answer(cob_types::HostName),
    /// The key was not accepted in time.
    #[error(
        "this host's key {0} is not accepted yet: have it compared and accepted with `cobgen enroll --accept HOST`, \
         then run this command again"
    )]
    Waiting(PublicKey),
    /// The system call failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The result of [`join`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// The host is a member now, with this key.
    New(PublicKey),
    /// The configuration existed and the key did not: the host is a member again, with this new key and the old
    /// configuration.
    Again(PublicKey),
    /// The host was a member of this cluster already.
    Already,
}

/// Joins. `waits` is called once with this host's key, if a person has to accept it.
///
/// # Errors
/// [`JoinError`]; then only the key was written.
pub fn join(invitation: &Invitation, waits: impl FnOnce(&PublicKey)) -> Result<Joined, JoinError> {
    let Invitation { token, config, state_dir, .. } = invitation;
    let server = Server { address: invitation.server, keys: vec![token.server()] };
    let configured = config.symlink_metadata().is_ok().then(|| configured(invitation, &server)).transpose()?;
    let lost = match &configured {
        Some(there) if there.identity.symlink_metadata().is_ok() => {
            SecretKey::load(&there.identity)?;
            return Ok(Joined::Already);
        }
        Some(there) => Some(&there.identity),
        None => None,
    };
    // If there is a configuration, a key file under its final name means that the host is a member: it gets that name
    // last.
    let file = lost.map_or_else(|| state_dir.join(IDENTITY), |identity| identity.with_extension("joining.key"));
    make_folder(file.parent().unwrap_or(state_dir), 0o700)?;
    let key = SecretKey::load_or_create(&file)?;
    let identity = Identity::new(&key)?;
    let question = question(token, &key);
    let begin = Instant::now();
    let mut waits = Some(waits);
    let enrolled = loop {
        let enrolled: Enrolled = server.parse(&server.ask(&identity, ENROL, &question)?)?;
        if enrolled.host != *token.host() {
            return Err(JoinError::Answer(enrolled.host));
        }
        match enrolled.standing {
            Standing::Accepted => break enrolled,
            Standing::Pending if begin.elapsed() >= invitation.wait => return Err(JoinError::Waiting(key.public())),
            Standing::Pending => {
                if let Some(waits) = waits.take() {
                    waits(&key.public());
                }
                std::thread::sleep(ASK_EVERY.min(invitation.wait));
            }
        }
    };
    if let Some(identity) = lost {
        let io = |source| JoinError::Io { path: identity.clone(), source };
        // Unlike a rename, this does not replace a key that another process has written meanwhile.
        fs::hard_link(&file, identity).and_then(|()| fs::remove_file(&file)).map_err(io)?;
        crate::durable::sync_folder(identity.parent().unwrap_or(state_dir)).map_err(io)?;
        return Ok(Joined::Again(key.public()));
    }
    write(config, &text(invitation, &enrolled))?;
    Ok(Joined::New(key.public()))
}

fn question(token: &Token, key: &SecretKey) -> Question {
    let signature = key.sign(Purpose::Enrolment, &token.statement(&key.public()));
    let request = EnrolRequest { token: token.reveal().to_string(), key: key.public(), signature };
    let body = serde_json::to_vec(&request).expect("texts can always be written as JSON");
    Question { method: Method::POST, path: ENROL_PATH.to_owned(), body, max: MAX_JSON, patience: PATIENCE }
}

/// Accepts the existing configuration if it fits the invitation, and never changes it.
fn configured(invitation: &Invitation, server: &Server) -> Result<Config, JoinError> {
    let path = &invitation.config;
    let there = Config::read(path)?;
    let same_depot = matches!(&there.depot, crate::source::Source::Server(remote) if remote.server == *server);
    if there.host == *invitation.token.host() && same_depot {
        return Ok(there);
    }
    Err(JoinError::Configured { path: path.clone() })
}

fn text(invitation: &Invitation, enrolled: &Enrolled) -> String {
    let Invitation { server, token, state_dir, listen, http, follow, .. } = invitation;
    // A JSON string is also a TOML string.
    let quoted = |path: &Path| serde_json::Value::String(path.display().to_string()).to_string();
    let trust: Vec<String> = enrolled.trust.iter().map(|key| format!("\"{key}\"")).collect();
    let mut text = format!(
        "# Written by `cobd join`. All keys are explained in docs/reference-cobd.md.\n\
         host = \"{}\"\n\
         state_dir = {}\n\
         # Where generations come from, and the key by which that server is known.\n\
         depot = \"tcp://{server}\"\n\
         depot_key = \"{}\"\n\
         # The publishers whose generations are accepted, and how many of the publishers must sign.\n\
         trust = [{}]\n\
         threshold = {}\n",
        enrolled.host,
        quoted(state_dir),
        token.server(),
        trust.join(", "),
        enrolled.threshold,
    );
    if let Some(listen) = listen {
        text.push_str(&format!("listen = \"tcp://{listen}\"\n"));
    }
    if let Some(http) = http {
        text.push_str(&format!("http = {}\n", quoted(http)));
    }
    if *follow {
        text.push_str("follow = true\n");
    }
    text
}

/// Writes the complete configuration, unless it exists.
fn write(path: &Path, text: &str) -> Result<(), JoinError> {
    let io = |source| JoinError::Io { path: path.to_owned(), source };
    let folder = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    make_folder(folder, 0o755)?;
    let temp = tempfile::Builder::new().prefix(".cobd").tempdir_in(folder).map_err(io)?;
    let aside = temp.path().join("cobd.toml");
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&aside).map_err(io)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    // Unlike a rename, this does not replace a file that another process has written meanwhile.
    fs::hard_link(&aside, path).map_err(io)?;
    crate::durable::sync_folder(folder).map_err(io)
}

fn make_folder(path: &Path, mode: u32) -> Result<(), JoinError> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|source| JoinError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use cob_types::HostName;

    use super::*;

    fn invitation(folder: &Path) -> Invitation {
        let host = HostName::new("h1").expect("a name");
        Invitation {
            server: "127.0.0.1:1".parse().expect("an address"),
            token: Token::generate(host, PublicKey([1; 32])).expect("made"),
            config: folder.join("etc/cobd.toml"),
            state_dir: folder.join("a \"state\" folder"),
            http: Some(folder.join("s")),
            listen: Some("10.0.0.1:7077".parse().expect("an address")),
            follow: true,
            wait: Duration::ZERO,
        }
    }

    #[test]
    fn a_joining_host_writes_a_valid_configuration_and_never_overwrites_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let invitation = invitation(dir.path());
        let host = invitation.token.host().clone();
        let enrolled = Enrolled { standing: Standing::Accepted, host, trust: vec![PublicKey([2; 32])], threshold: 1 };
        write(&invitation.config, &text(&invitation, &enrolled)).expect("written");
        let config = Config::read(&invitation.config).expect("in order");
        assert_eq!((config.host.as_str(), &config.state_dir, config.follow), ("h1", &invitation.state_dir, true));
        assert_eq!((config.listen, Some(&config.http)), (invitation.listen, invitation.http.as_ref()));
        assert_eq!(config.trust.map(|t| t.keys().len()), Some(1));
        write(&invitation.config, "x").expect_err("the file exists");
        let file = invitation.state_dir.join(IDENTITY);
        for _ in 0..2 {
            let lost = join(&invitation, |_| ()).expect_err("no server is there").to_string();
            assert!(lost.contains("can't reach `cobgen serve`"), "a host without a key enrols: {lost}");
        }
        let key = SecretKey::load_or_create(&file).expect("made");
        assert_eq!(join(&invitation, |_| ()).expect("the same"), Joined::Already);
        assert_eq!(SecretKey::load(&file).expect("kept").public(), key.public());
        let other = Invitation { server: "127.0.0.1:2".parse().expect("an address"), ..invitation };
        let error = join(&other, |_| ()).expect_err("another").to_string();
        assert!(error.contains("has another content and is left alone"), "{error}");
        assert_eq!(fs::read_dir(dir.path().join("etc")).expect("listed").count(), 1);
    }

    #[test]
    fn a_join_without_a_server_leaves_only_the_key() {
        let dir = tempfile::tempdir().expect("a folder");
        let invitation = invitation(dir.path());
        let error = join(&invitation, |_| ()).expect_err("no server answers").to_string();
        assert!(error.contains("can't reach `cobgen serve` at tcp://127.0.0.1:1"), "{error}");
        assert!(!invitation.config.exists());
        assert!(SecretKey::load(&invitation.state_dir.join(IDENTITY)).is_ok());
    }
}
