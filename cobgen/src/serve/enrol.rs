//! The service that enrols a new host by its token.
//!
//! The host has proved in the handshake that it holds its key; the token names the host that it will be; the signature
//! binds both to this server. Requests are handled in sequence, so that each is recorded once.

use std::sync::Arc;
use std::time::Duration;

use cob_depot::tokens::{self, Policy, Shown, Spent};
use cob_depot::{DepotError, PublishError};
use cob_trust::Publishers;
use cob_trust::enrol::Token;
use cob_trust::key::{Purpose, verify};
use cob_types::PublicKey;
use cob_types::remote::{EnrolRequest, Enrolled, Standing};
use hyper::StatusCode;
use tokio::sync::Mutex;

use super::answer::{Answer, json, refuse};
use super::notes::Notes;
use super::shelf::Shelf;
use super::trust::{self, TrustError};
use crate::calendar::{now, rfc3339};

/// The delay after an invalid token.
const REST: Duration = Duration::from_millis(50);

/// Enrolls new hosts.
pub(super) struct Desk {
    shelf: Arc<Shelf>,
    server: PublicKey,
    /// The publishers from the start options; `None`: `trust.toml` in the depot's folder is read at each enrolment.
    trust: Option<Publishers>,
    policy: Policy,
    /// Held by the single request in progress.
    busy: Mutex<()>,
    notes: Notes,
}

/// The reason why a host is refused.
#[derive(Debug, thiserror::Error)]
enum Turned {
    #[error("this is not a request of `cobd join`: {0}")]
    Form(String),
    #[error("the token is for another server: its key is {theirs}, this server's {ours}")]
    OtherServer { theirs: PublicKey, ours: PublicKey },
    #[error("the request names another key than the connection")]
    OtherKey,
    #[error("the signature of {0} does not match this server and token")]
    Signature(PublicKey),
    #[error("the key {0} was revoked: delete the host's key file and join with a new key")]
    Revoked(PublicKey),
    #[error(
        "the key belongs to another host: was the disk copied? Every host makes its own key: delete the key file \
         here and join again"
    )]
    Taken,
    #[error(
        "this server names no publisher (`cobgen serve --trust KEY`, or `trust.toml` in the depot's folder), so no \
         host can be enrolled"
    )]
    NoPublisher,
    #[error("this server does not know its publishers, so no host can be enrolled: {0}")]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Spent(#[from] Spent),
    #[error(transparent)]
    Files(#[from] PublishError),
}

impl Desk {
    pub(super) fn new(shelf: Arc<Shelf>, server: PublicKey, trust: Option<Publishers>, policy: Policy) -> Self {
        Self { shelf, server, trust, policy, busy: Mutex::new(()), notes: Notes::default() }
    }

    /// Answers a host that has connected with `key` and sent these bytes.
    pub(super) async fn enrol(&self, key: PublicKey, body: &[u8]) -> Answer {
        let enrolled = {
            let _alone = self.busy.lock().await;
            self.try_enrol(key, body, now()).await
        };
        match enrolled {
            Ok(enrolled) => json(StatusCode::OK, &enrolled),
            Err(turned) => {
                let about = turned.about();
                self.notes.warn(&about, &format_args!("a host with the key {key} was refused: {turned}"));
                // Only its own connection is delayed; other hosts do not wait.
                tokio::time::sleep(REST).await;
                refuse(turned.status(), &turned.to_string())
            }
        }
    }

    async fn try_enrol(&self, key: PublicKey, body: &[u8], now: u64) -> Result<Enrolled, Turned> {
        let token = self.check(key, body)?;
        // A publisher that was removed while the server runs must not be named to new hosts.
        let named = self.trust.clone().map_or_else(|| trust::read(self.shelf.path()), |trust| Ok(Some(trust)));
        let trust = named?.ok_or(Turned::NoPublisher)?;
        let known = self.shelf.known();
        if known.is_revoked(&key) {
            return Err(Turned::Revoked(key));
        }
        if known.host_of(&key).is_some_and(|host| host != token.host()) {
            return Err(Turned::Taken);
        }
        let (path, policy, for_task) = (self.shelf.path().to_owned(), self.policy, token.clone());
        let shown = tokio::task::spawn_blocking(move || {
            let (host, hash, at) = (for_task.host(), for_task.hash(), rfc3339(now));
            tokens::show(&path, &Shown { host, hash, key, now, at: &at }, policy)
        });
        let (standing, replaced) =
            shown.await.map_err(|_| Turned::Form("the request could not be checked".to_owned()))???;
        let host = token.host().clone();
        match standing {
            Standing::Accepted => {
                tracing::info!(%host, %key, "enrolled");
                for former in replaced {
                    tracing::warn!(
                        %host,
                        "the host had enrolled before: its former key {former} is revoked; `cobgen generate` and a \
                         switch inform all hosts"
                    );
                }
                // Its next connection may come at once.
                self.shelf.look().await;
            }
            Standing::Pending => self.notes.warn(
                &format!("pending {host}"),
                &format_args!("{host} waits with the key {key}: `cobgen enroll --accept {host}` accepts it"),
            ),
        }
        Ok(Enrolled { standing, host, trust: trust.keys().iter().copied().collect(), threshold: trust.threshold() })
    }

    /// Checks the request as far as possible without the issued tokens.
    fn check(&self, key: PublicKey, body: &[u8]) -> Result<Token, Turned> {
        let request: EnrolRequest =
            serde_json::from_slice(body).map_err(|e| Turned::Form(cob_types::words::form(e)))?;
        let token: Token = request.token.parse().map_err(|e| Turned::Form(format!("{e}")))?;
        if token.server() != self.server {
            return Err(Turned::OtherServer { theirs: token.server(), ours: self.server });
        }
        if request.key != key {
            return Err(Turned::OtherKey);
        }
        if !verify(&key, Purpose::Enrolment, &token.statement(&key), &request.signature) {
            return Err(Turned::Signature(key));
        }
        Ok(token)
    }
}

impl Turned {
    fn status(&self) -> StatusCode {
        match self {
            Self::Form(_) => StatusCode::BAD_REQUEST,
            Self::Files(PublishError::Depot(DepotError::Enrolments { .. })) => StatusCode::CONFLICT,
            Self::Files(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NoPublisher | Self::Trust(_) => StatusCode::CONFLICT,
            Self::OtherServer { .. }
            | Self::OtherKey
            | Self::Signature(_)
            | Self::Revoked(_)
            | Self::Taken
            | Self::Spent(_) => StatusCode::FORBIDDEN,
        }
    }

    /// The key for grouping log lines.
    fn about(&self) -> String {
        match self {
            Self::Spent(spent) => spent.to_string(),
            Self::Form(_) => "form".to_owned(),
            Self::OtherServer { .. } | Self::OtherKey | Self::Signature(_) => "signature".to_owned(),
            Self::Revoked(_) | Self::Taken => "key".to_owned(),
            Self::NoPublisher | Self::Trust(_) => "trust".to_owned(),
            Self::Files(_) => "files".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use cob_depot::Depot;
    use cob_depot::enrolled::{self, Former};
    use cob_trust::SecretKey;
    use cob_types::HostName;
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3600;

    struct Scene {
        dir: tempfile::TempDir,
        desk: Desk,
        token: Token,
        host: SecretKey,
    }

    fn scene(policy: Policy) -> Scene {
        let dir = tempfile::tempdir().expect("a folder");
        let depot = dir.path().join("depot");
        drop(Depot::create_or_open(&depot).expect("made"));
        let server = SecretKey::from_seed(&[1; 32]).public();
        let trust = Publishers::new([PublicKey([5; 32])], 1).expect("enough");
        let token = Token::generate(HostName::new("h1").expect("a name"), server).expect("made");
        tokens::issue(&depot, token.host(), token.hash(), (0, HOUR), Former::Revoke).expect("noted");
        let desk = Desk::new(Arc::new(Shelf::open(&depot).expect("opened")), server, Some(trust), policy);
        Scene { dir, desk, token, host: SecretKey::from_seed(&[2; 32]) }
    }

    impl Scene {
        fn request(&self, host: &SecretKey, token: &Token) -> Vec<u8> {
            let key = host.public();
            let signature = host.sign(Purpose::Enrolment, &token.statement(&key));
            serde_json::to_vec(&EnrolRequest { token: token.reveal().to_string(), key, signature }).expect("JSON")
        }

        fn try_it(&self, key: PublicKey, body: &[u8], now: u64) -> Result<Enrolled, Turned> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(self.desk.try_enrol(key, body, now))
        }

        fn enrolled(&self) -> usize {
            enrolled::read(&self.dir.path().join("depot")).expect("read").len()
        }
    }

    #[test]
    fn a_host_with_a_good_token_is_let_in_and_known_at_once() {
        let scene = scene(Policy::Token);
        let answer = scene.try_it(scene.host.public(), &scene.request(&scene.host, &scene.token), 1).expect("let in");
        assert_eq!((answer.standing, answer.host.as_str(), answer.threshold), (Standing::Accepted, "h1", 1));
        assert_eq!(answer.trust, [PublicKey([5; 32])]);
        let known = scene.desk.shelf.known();
        assert_eq!(known.host_of(&scene.host.public()), Some(&answer.host));
    }

    #[test]
    fn an_enrolment_without_valid_token_key_or_signature_is_refused() {
        let scene = scene(Policy::Token);
        let (host, thief) = (&scene.host, SecretKey::from_seed(&[9; 32]));
        let good = scene.request(host, &scene.token);
        let turned = |key: PublicKey, body: &[u8]| scene.try_it(key, body, 1).expect_err("turned away").to_string();
        assert!(turned(thief.public(), &good).contains("another key than the connection"));
        let other = Token::generate(scene.token.host().clone(), SecretKey::from_seed(&[7; 32]).public()).expect("made");
        assert!(turned(host.public(), &scene.request(host, &other)).contains("another server"));
        let guess = Token::generate(scene.token.host().clone(), scene.token.server()).expect("made");
        assert!(turned(host.public(), &scene.request(host, &guess)).contains("did not issue the token"));
        let renamed: Token = format!("{}2", *scene.token.reveal()).parse().expect("a token");
        assert!(turned(host.public(), &scene.request(host, &renamed)).contains("not for h12"));
        let mut forged: EnrolRequest = serde_json::from_slice(&good).expect("read");
        forged.signature = thief.sign(Purpose::Enrolment, &scene.token.statement(&host.public()));
        assert!(turned(host.public(), &serde_json::to_vec(&forged).expect("JSON")).contains("signature"));
        forged.signature = host.sign(Purpose::Generation, &scene.token.statement(&host.public()));
        assert!(turned(host.public(), &serde_json::to_vec(&forged).expect("JSON")).contains("signature"));
        assert_eq!(scene.enrolled(), 0);
        let late = scene.try_it(host.public(), &good, HOUR).expect_err("too late").to_string();
        assert!(late.contains("expired"), "{late}");
        assert_eq!(scene.enrolled(), 0);
        scene.try_it(host.public(), &good, 1).expect("still good for its host");
        assert!(turned(thief.public(), &scene.request(&thief, &scene.token)).contains("already used"));
        assert_eq!(scene.enrolled(), 1);
    }

    #[test]
    fn a_key_of_an_enrolled_host_can_not_enrol_another_host() {
        let scene = scene(Policy::Token);
        scene.try_it(scene.host.public(), &scene.request(&scene.host, &scene.token), 1).expect("let in");
        let second = Token::generate(HostName::new("h2").expect("a name"), scene.token.server()).expect("made");
        let depot = scene.dir.path().join("depot");
        tokens::issue(&depot, second.host(), second.hash(), (0, HOUR), Former::Revoke).expect("noted");
        let error = scene.try_it(scene.host.public(), &scene.request(&scene.host, &second), 1).expect_err("taken");
        assert!(error.to_string().contains("was the disk copied?"), "{error}");
    }

    #[test]
    fn enrolment_is_refused_if_the_trust_names_no_publisher() {
        let mut scene = scene(Policy::Token);
        scene.desk.trust = None;
        let body = scene.request(&scene.host, &scene.token);
        let error = scene.try_it(scene.host.public(), &body, 1).expect_err("refused").to_string();
        assert!(error.contains("names no publisher"), "{error}");
        let depot = scene.dir.path().join("depot");
        assert_eq!(tokens::read(&depot).expect("read").tokens[0].key, None, "the token is still good");
    }

    #[test]
    fn a_host_is_told_the_publishers_of_the_day() {
        let mut scene = scene(Policy::Token);
        scene.desk.trust = None;
        let file = scene.dir.path().join("depot").join(trust::TRUST);
        let body = scene.request(&scene.host, &scene.token);
        let told = |key: PublicKey| {
            std::fs::write(&file, format!("trust = [\"{key}\"]\n")).expect("written");
            scene.try_it(scene.host.public(), &body, 1).expect("let in").trust
        };
        for key in [PublicKey([5; 32]), PublicKey([6; 32])] {
            assert_eq!(told(key), [key]);
        }
        std::fs::write(&file, "trust = [").expect("written");
        let turned = scene.try_it(scene.host.public(), &body, 1).expect_err("nobody knows");
        assert!(turned.to_string().contains("does not know its publishers"), "{turned}");
        assert_eq!(turned.status(), StatusCode::CONFLICT);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_altered_request_is_taken(at in any::<prop::sample::Index>(), byte in any::<u8>(), noise in prop::collection::vec(any::<u8>(), 0..600)) {
            let scene = scene(Policy::Token);
            let key = scene.host.public();
            let mut body = scene.request(&scene.host, &scene.token);
            let before: EnrolRequest = serde_json::from_slice(&body).expect("read");
            let at = at.index(body.len());
            body[at] = byte;
            let same = serde_json::from_slice::<EnrolRequest>(&body).is_ok_and(|after| after == before);
            prop_assert!(scene.try_it(key, &noise, 1).is_err());
            prop_assert_eq!(scene.try_it(key, &body, 1).is_ok(), same);
            prop_assert_eq!(scene.enrolled(), usize::from(same));
        }
    }
}
