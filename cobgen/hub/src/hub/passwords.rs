//! Passwords. The store has a hash of each password (Argon2id, RFC 9106).
//!
//! A wrong password and an unknown user get the same answer after the same work. Wrong passwords of a user delay the
//! next attempt for this user; the delay is short, because anyone can cause it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use argon2::password_hash::SaltString;
use argon2::{Algorithm, Argon2, Params, PasswordHash, PasswordHasher as _, PasswordVerifier as _, Version};
use cob_hub_api::{PasswordRequest, Session};
use cob_permissions::{Action, Entity, UserId};
use tokio::sync::Semaphore;

use super::book::Changes;
use super::error::HubError;
use super::records::Password;
use super::{Caller, Hub, is_known, now_ms, user_text};
use crate::random;

/// The fewest and the most bytes of a password.
const LENGTH: std::ops::RangeInclusive<usize> = 10..=256;
/// The wrong passwords of a user that have no delay.
const FREE: u32 = 5;
/// The longest delay.
const LONGEST: Duration = Duration::from_mins(1);
/// Wrong passwords count so long.
const FORGOTTEN: Duration = Duration::from_mins(15);
/// The most claims whose wrong passwords are counted; a further one takes the place of the oldest.
const MOST_COUNTED: usize = 4096;
/// The most refused log-ins in the audit in a minute.
const MOST_NOTED: u32 = 60;
/// The hashes that are computed at a time; each needs [`MEMORY`].
const AT_A_TIME: usize = 2;
/// The memory of a hash in KiB, its passes and lanes (the second recommendation of OWASP's password storage page).
const MEMORY: (u32, u32, u32) = (19 * 1024, 2, 1);
/// The hash of no password, for users without one: its check takes the same time.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5J3Mgc2FsdC4uLg$bm8gcGFzc3dvcmQgaGFzIHRoaXMgaGFzaCwgbm9uZS4";

/// Checks of passwords under way, and the wrong passwords of the last minutes.
#[derive(Debug)]
pub(super) struct Gate {
    work: Arc<Semaphore>,
    wrong: Arc<Mutex<BTreeMap<Claim, Wrong>>>,
    noted: Mutex<Noted>,
}

/// Who wants to be whom: the user, and the address of the person if a proxy tells it. Wrong passwords from an address
/// delay this address alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The user.
    pub user: UserId,
    /// The address.
    pub address: Option<IpAddr>,
}

/// The refused log-ins in the audit, in this minute.
#[derive(Debug, Default)]
struct Noted {
    minute: u64,
    count: u32,
}

/// Wrong passwords of a claim. Times are of a clock that no person sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wrong {
    count: u32,
    last: Instant,
}

impl Wrong {
    /// When the next attempt may begin.
    fn next(self) -> Instant {
        let doubled = self.count.checked_sub(FREE).map_or(0, |over| 1 << over.min(10));
        self.last + Duration::from_secs(doubled).min(LONGEST)
    }

    fn is_forgotten(self, now: Instant) -> bool {
        now.duration_since(self.last) >= FORGOTTEN
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self { work: Arc::new(Semaphore::new(AT_A_TIME)), wrong: Arc::default(), noted: Mutex::default() }
    }
}

/// An attempt counts as wrong until it is right, or until its end without a result: so attempts at the same time count.
#[derive(Debug)]
struct Attempt {
    claim: Claim,
    wrong: Arc<Mutex<BTreeMap<Claim, Wrong>>>,
    is_decided: bool,
}

impl Attempt {
    fn right(mut self) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.claim);
        self.is_decided = true;
    }

    fn wrong(mut self) {
        self.is_decided = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.is_decided {
            return;
        }
        let mut all = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = all.get_mut(&self.claim) {
            of.count = of.count.saturating_sub(1);
        }
    }
}

impl Gate {
    /// Begins an attempt.
    ///
    /// # Errors
    ///
    /// The user must wait.
    fn begin(&self, claim: &Claim, now: Instant) -> Result<Attempt, HubError> {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.retain(|_, of| !of.is_forgotten(now));
        let of = wrong.get(claim).copied().unwrap_or(Wrong { count: 0, last: now });
        let left = of.next().saturating_duration_since(now);
        if of.count > 0 && !left.is_zero() {
            return Err(HubError::Later { seconds: left.as_millis().div_ceil(1000) });
        }
        if wrong.len() >= MOST_COUNTED && !wrong.contains_key(claim) {
            // Invented names must not lock out anybody.
            let oldest = wrong.iter().min_by_key(|(_, of)| of.last).map(|(claim, _)| claim.clone());
            oldest.map(|claim| wrong.remove(&claim));
        }
        wrong.insert(claim.clone(), Wrong { count: of.count + 1, last: now });
        Ok(Attempt { claim: claim.clone(), wrong: self.wrong.clone(), is_decided: false })
    }

    /// Whether a refusal still fits into the audit of this minute: anyone can cause refusals, and must not fill the disk.
    fn may_note(&self, now: u64) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = now / 60_000;
        if noted.minute != minute {
            *noted = Noted { minute, count: 0 };
        }
        noted.count += 1;
        noted.count <= MOST_NOTED
    }

    /// Runs work with a hash on a thread of its own.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, HubError> {
        let failed = |e: &dyn std::fmt::Display| HubError::Internal(format!("the password can't be checked: {e}"));
        let place = self.work.clone().acquire_owned().await.map_err(|e| failed(&e))?;
        let run = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        run.await.map_err(|e| failed(&e))
    }
}

fn hasher() -> Result<Argon2<'static>, HubError> {
    let (memory, passes, lanes) = MEMORY;
    let params = Params::new(memory, passes, lanes, None).map_err(|e| HubError::Internal(e.to_string()))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// The hash of a password, with a new salt.
fn hash(password: &str) -> Result<String, HubError> {
    let salt = random::bytes::<16>().map_err(HubError::Internal)?;
    let failed = |e: argon2::password_hash::Error| HubError::Internal(format!("the password can't be hashed: {e}"));
    let salt = SaltString::encode_b64(&salt).map_err(failed)?;
    Ok(hasher()?.hash_password(password.as_bytes(), &salt).map_err(failed)?.to_string())
}

fn is_right(password: &str, hash: &str) -> bool {
    let (Ok(hasher), Ok(hash)) = (hasher(), PasswordHash::new(hash)) else { return false };
    hasher.verify_password(password.as_bytes(), &hash).is_ok()
}

impl Hub {
    /// Sets or removes the password of a user. All sessions of the user end.
    ///
    /// # Errors
    ///
    /// The caller may not manage the credentials of the user, or the password is too short or too long.
    pub async fn set_password(&self, caller: &Caller, request: PasswordRequest) -> Result<(), HubError> {
        let PasswordRequest { user, password, present } = request;
        let user = user.unwrap_or_else(|| caller.subject.user.clone());
        let known = {
            let state = self.state.lock().await;
            let exists = is_known(&state.directory, &user);
            self.decide(&state.directory, caller, Action::Execute, &Entity::user(&user), exists)?;
            if caller.subject.scope.is_some() {
                self.note(caller, None, None, "refused: the token of the caller has a scope")?;
                return Err(HubError::Forbidden("a token with a scope sets no password".to_owned()));
            }
            state.passwords.get(&user_text(&user)).cloned()
        };
        if let Some(password) = &password
            && !LENGTH.contains(&password.len())
        {
            let (least, most) = (LENGTH.start(), LENGTH.end());
            let length = password.len();
            return Err(HubError::Bad(format!("the password has {length} bytes; it needs {least} to {most}")));
        }
        // Whoever finds an open page must not take over its user.
        if let Some(known) = known.filter(|_| caller.session.is_some() && user == caller.subject.user) {
            let present =
                present.ok_or_else(|| HubError::Bad("`present` is missing: the present password".to_owned()))?;
            let attempt = self.gate.begin(&Claim { user: user.clone(), address: None }, Instant::now())?;
            if !self.gate.run(move || is_right(&present, &known.hash)).await? {
                attempt.wrong();
                self.note(caller, None, None, "refused: the present password is wrong")?;
                return Err(HubError::Forbidden("the present password is wrong".to_owned()));
            }
            attempt.right();
        }
        let hash = match password {
            Some(password) => Some(self.gate.run(move || hash(&password)).await??),
            None => None,
        };
        let mut state = self.state.lock().await;
        if !is_known(&state.directory, &user) {
            return Err(HubError::Missing { what: "user", name: user_text(&user) });
        }
        let what = if hash.is_some() { "a password for" } else { "the end of the password of" };
        self.note(caller, None, None, format!("{what} {}", user_text(&user)))?;
        let mut changes = Changes::default();
        let password = hash.map(|hash| Password { user: user.clone(), hash });
        changes.password(&user, password.as_ref())?;
        match password {
            Some(password) => _ = state.passwords.insert(user_text(&user), password),
            None => _ = state.passwords.remove(&user_text(&user)),
        }
        let sessions = state.credentials.iter().filter(|(_, other)| other.session && other.user == user);
        let ended: Vec<String> = sessions.map(|(hash, _)| hash.clone()).collect();
        for hash in ended {
            changes.credential(&hash, None)?;
            state.credentials.remove(&hash);
        }
        self.write(changes).await
    }

    /// Begins a session: with the password in the hub, or with that of a directory that takes users of the tenant.
    ///
    /// # Errors
    ///
    /// The user or the password is wrong, there were too many wrong passwords, or no directory can tell.
    pub async fn log_in(&self, claim: Claim, password: String) -> Result<Session, HubError> {
        if password.len() > *LENGTH.end() {
            // No user has such a password: there is nothing to count.
            return Err(HubError::WrongPassword);
        }
        let attempt = self.gate.begin(&claim, Instant::now())?;
        let user = claim.user;
        let known = self.state.lock().await.passwords.get(&user_text(&user)).cloned();
        let checked = known.as_ref().map_or_else(|| NOBODY.to_owned(), |password| password.hash.clone());
        let word = password.clone();
        let is_own = self.gate.run(move || is_right(&word, &checked)).await? && known.is_some();
        // An unknown user is asked for like a known one: the time tells nothing.
        let by = if is_own { Ok(None) } else { self.identities.checks(&user, &password).await };
        let by = match by {
            Ok(by) => by,
            Err(error) => {
                // The password in the hub was wrong.
                attempt.wrong();
                return Err(error.into());
            }
        };
        let state = self.state.lock().await;
        // The password, or the user, may have changed meanwhile.
        let is_right = if is_own { state.passwords.get(&user_text(&user)) == known.as_ref() } else { by.is_some() };
        if !is_right || !is_known(&state.directory, &user) {
            attempt.wrong();
            self.note_refusal(&user, "refused: the user or the password is wrong")?;
            return Err(HubError::WrongPassword);
        }
        attempt.right();
        self.begin_session(state, user, by.map(cob_hub_api::Name::as_str)).await
    }

    /// Notes a refused log-in, as long as the audit of this minute has room.
    pub(super) fn note_refusal(&self, user: &UserId, decision: &str) -> Result<(), HubError> {
        if self.gate.may_note(now_ms()) { self.note_log_in(user, decision) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> Claim {
        let user = UserId { tenant: None, name: cob_permissions::Name::new(name).expect("a name") };
        Claim { user, address: None }
    }

    /// An attempt with a wrong password.
    fn fail(gate: &Gate, claim: &Claim, now: Instant) {
        gate.begin(claim, now).expect("no delay").wrong();
    }

    fn seconds(begun: Result<Attempt, HubError>) -> u128 {
        match begun {
            Err(HubError::Later { seconds }) => seconds,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_hash_fits_its_password_alone() {
        let (one, again) = (hash("correct horse").expect("a hash"), hash("correct horse").expect("a hash"));
        assert_ne!(one, again, "each hash has its own salt");
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
        assert!(is_right("correct horse", &one));
        assert!(!is_right("correct horsf", &one));
        assert!(!is_right("", &one));
        assert!(!is_right("correct horse", "no hash"));
    }

    #[test]
    fn an_unknown_user_costs_the_same_work() {
        let parsed = PasswordHash::new(NOBODY).expect("a valid hash");
        let one = hash("correct horse").expect("a hash");
        let other = PasswordHash::new(&one).expect("a valid hash");
        assert_eq!((parsed.algorithm, parsed.version, &parsed.params), (other.algorithm, other.version, &other.params));
        assert_eq!(parsed.hash.expect("a hash").len(), other.hash.expect("a hash").len());
        assert!(!is_right("correct horse", NOBODY));
    }

    #[test]
    fn wrong_passwords_delay_the_next_attempt_of_the_same_claim() {
        let gate = Gate::default();
        let (ann, ben) = (claim("ann"), claim("ben"));
        let mut now = Instant::now();
        for _ in 0..FREE {
            fail(&gate, &ann, now);
        }
        assert_eq!(seconds(gate.begin(&ann, now)), 1);
        fail(&gate, &ben, now);
        let elsewhere = Claim { address: Some(IpAddr::from([192, 0, 2, 7])), ..ann.clone() };
        fail(&gate, &elsewhere, now);
        // A refused attempt does not count.
        assert_eq!(seconds(gate.begin(&ann, now)), 1);
        for delay in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(seconds(gate.begin(&ann, now)), delay.into());
            now += Duration::from_secs(delay);
            fail(&gate, &ann, now);
        }
        now += Duration::from_secs(60);
        gate.begin(&ann, now).expect("the delay is over").right();
        fail(&gate, &ann, now);
        now += FORGOTTEN;
        fail(&gate, &ann, now);
        assert_eq!(gate.wrong.lock().expect("whole").len(), 1, "what is forgotten leaves no trace");
    }

    #[test]
    fn an_attempt_without_a_result_does_not_count() {
        let (gate, ann, now) = (Gate::default(), claim("ann"), Instant::now());
        for _ in 0..100 {
            drop(gate.begin(&ann, now).expect("no delay"));
        }
        let at_once: Vec<_> = (0..FREE).map(|_| gate.begin(&ann, now).expect("no delay")).collect();
        assert_eq!(seconds(gate.begin(&ann, now)), 1, "attempts at the same time count");
        drop(at_once);
        gate.begin(&ann, now).expect("no delay").right();
    }

    #[test]
    fn invented_names_lock_out_nobody() {
        let (gate, now) = (Gate::default(), Instant::now());
        for number in 0..2 * MOST_COUNTED {
            fail(&gate, &claim(&format!("u{number}")), now);
        }
        assert_eq!(gate.wrong.lock().expect("whole").len(), MOST_COUNTED);
        fail(&gate, &claim("ann"), now);
    }
}
