//! Log-ins that other systems check: passwords of an LDAP directory, and OpenID Connect. All users stay users of the hub's
//! directory, which alone decides about rights.
//!
//! ```text
//! mod ── settings (file) ── ldap, oidc ── curl
//! ```

mod curl;
mod ldap;
mod oidc;
mod settings;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cob_hub_api::Name;
use cob_permissions::{self as rights, UserId};

pub use oidc::Begun;
pub use settings::SettingsError;
use settings::{Settings, Way};

/// How long a person may take for the log-in at a provider of identities.
const PENDING: Duration = Duration::from_mins(10);
/// The most log-ins under way; a further one ends the oldest.
const MOST_PENDING: usize = 1000;

/// Why another system gave no answer that counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// There is no such log-in, or it takes no user of this tenant.
    #[error("there is no log-in {0:?} for this tenant")]
    Missing(String),
    /// The log-in has ended, or was never begun.
    #[error("the log-in took too long, or was used before: begin again")]
    NotBegun,
    /// The other system refuses the person.
    #[error("{name} refuses the log-in: {because}")]
    Refused {
        /// The name of the log-in.
        name: String,
        /// The reason.
        because: String,
    },
    /// The other system can't be asked, or its answer is not valid.
    #[error("the log-in {name} fails: {because}")]
    Failed {
        /// The name of the log-in.
        name: String,
        /// The reason.
        because: String,
    },
}

/// A person at a provider of identities.
#[derive(Debug)]
struct Pending {
    since: Instant,
    name: String,
    tenant: Option<rights::Name>,
    begun: oidc::Pending,
}

/// All log-ins that other systems check.
#[derive(Debug)]
pub struct Identities {
    all: BTreeMap<Name, Settings>,
    providers: oidc::Providers,
    pending: Mutex<VecDeque<(String, Pending)>>,
}

impl Identities {
    /// Reads the settings of a file.
    ///
    /// # Errors
    ///
    /// The file can't be read, or is not valid.
    pub fn read(file: &Path) -> Result<Self, SettingsError> {
        settings::read(file).map(Self::new)
    }

    fn new(all: BTreeMap<Name, Settings>) -> Self {
        Self { all, providers: oidc::Providers::default(), pending: Mutex::default() }
    }

    /// Only passwords in the hub.
    #[must_use]
    pub fn none() -> Self {
        Self::new(BTreeMap::new())
    }

    /// The names of log-ins at a provider of identities.
    pub fn providers(&self) -> impl Iterator<Item = &Name> {
        self.all.iter().filter(|(_, of)| matches!(of.way, Way::Oidc(_))).map(|(name, _)| name)
    }

    /// Asks the LDAP directories for users of this tenant. Returns the name of the one that takes the password.
    ///
    /// # Errors
    ///
    /// No directory takes it, and one can't be asked.
    pub async fn checks(&self, user: &UserId, password: &str) -> Result<Option<&Name>, IdentityError> {
        let mut failed = None;
        for (name, settings) in &self.all {
            let Way::Ldap(ldap) = &settings.way else { continue };
            // A server takes a name without a password for a guest, and confirms it (RFC 4513, section 5.1.2).
            if !settings.takes(user.tenant.as_ref()) || password.is_empty() || password.contains('\0') {
                continue;
            }
            let _place = settings.places.acquire().await;
            match ldap.is_right(user.name.as_str(), password).await {
                Ok(true) => return Ok(Some(name)),
                Ok(false) => {}
                Err(because) => failed = Some(IdentityError::Failed { name: name.as_str().to_owned(), because }),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Begins a log-in at a provider. The person opens the address; the provider leads back to `page`.
    ///
    /// # Errors
    ///
    /// There is no such log-in, or the provider can't be asked.
    pub async fn begin(&self, name: &str, tenant: Option<rights::Name>, page: &str) -> Result<Begun, IdentityError> {
        let (known, settings, way) = self.provider(name, tenant.as_ref())?;
        let failed = |because| IdentityError::Failed { name: name.to_owned(), because };
        let _place = settings.places.acquire().await;
        let (begun, pending) = self.providers.begin(known, way, page).await.map_err(failed)?;
        let pending = Pending { since: Instant::now(), name: name.to_owned(), tenant, begun: pending };
        let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, of)| of.since.elapsed() < PENDING);
        if all.len() >= MOST_PENDING {
            all.pop_front();
        }
        all.push_back((begun.state.clone(), pending));
        Ok(begun)
    }

    /// Ends a log-in at a provider, with the words that it gave to the person's browser. Returns the user. A log-in ends
    /// once, also if this fails.
    ///
    /// # Errors
    ///
    /// The log-in was not begun, or the provider does not confirm it.
    pub async fn finish(&self, name: &str, state: &str, code: &str) -> Result<UserId, IdentityError> {
        let pending = {
            let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            let at = all.iter().position(|(of, pending)| of == state && pending.name == name);
            at.and_then(|at| all.remove(at)).map(|(_, pending)| pending)
        };
        let pending = pending.filter(|of| of.since.elapsed() < PENDING).ok_or(IdentityError::NotBegun)?;
        let (_, settings, way) = self.provider(name, pending.tenant.as_ref())?;
        let _place = settings.places.acquire().await;
        let user = way.finish(&pending.begun, code).await.map_err(|error| match error {
            oidc::Failure::Refused(because) => IdentityError::Refused { name: name.to_owned(), because },
            oidc::Failure::Other(because) => IdentityError::Failed { name: name.to_owned(), because },
        })?;
        Ok(UserId { tenant: pending.tenant, name: user })
    }

    fn provider(
        &self,
        name: &str,
        tenant: Option<&rights::Name>,
    ) -> Result<(&Name, &Settings, &oidc::Oidc), IdentityError> {
        let found = self.all.iter().find(|(known, settings)| known.as_str() == name && settings.takes(tenant));
        match found.map(|(known, settings)| (known, settings, &settings.way)) {
            Some((known, settings, Way::Oidc(oidc))) => Ok((known, settings, oidc)),
            Some((_, _, Way::Ldap(_))) | None => Err(IdentityError::Missing(name.chars().take(128).collect())),
        }
    }
}

/// Bytes as pairs of hexadecimal digits, except letters, digits and these.
fn spelled(text: &str, also: &str, sign: char) -> String {
    let mut spelled = String::new();
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || also.contains(c) {
            spelled.push(c);
        } else {
            spelled.push(sign);
            spelled.push_str(&hex::encode_upper([byte]));
        }
    }
    spelled
}
