//! Sessions of people: log-in at a provider of identities, and log-out. The store has a hash of each session's token.

use cob_hub_api::{AuditNote, LogIn, LogInEnd, LogInStart, LogInStarted, Session};
use cob_permissions::UserId;
use tokio::sync::MutexGuard;
use tracing::warn;

use super::book::{Changes, State};
use super::error::HubError;
use super::{Caller, Credential, Hub, is_known, now_ms, tokens, user_text};
use crate::identity::IdentityError;

/// The duration of a session.
const SESSION_MS: u64 = 12 * 3600 * 1000;
/// The most sessions of a user; a further one ends the oldest.
const MOST_SESSIONS: usize = 20;

impl From<IdentityError> for HubError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Missing(name) => Self::Missing { what: "log-in", name },
            IdentityError::NotBegun | IdentityError::Refused { .. } => Self::NoLogIn(error.to_string()),
            IdentityError::Failed { name, because } => {
                // Strangers need not know the addresses of other systems.
                warn!(name, because, "a log-in fails");
                Self::NoIdentity(name)
            }
        }
    }
}

impl Hub {
    /// The log-ins besides passwords.
    #[must_use]
    pub fn log_ins(&self) -> Vec<LogIn> {
        self.identities.providers().map(|name| LogIn { name: name.as_str().to_owned() }).collect()
    }

    /// Begins a log-in at a provider of identities, which leads back to the page.
    ///
    /// # Errors
    ///
    /// There is no such log-in for the tenant, or the provider can't be asked.
    pub async fn begin_log_in(&self, name: &str, start: LogInStart, page: &str) -> Result<LogInStarted, HubError> {
        let begun = self.identities.begin(name, start.tenant, page).await?;
        Ok(LogInStarted { url: begun.url, state: begun.state })
    }

    /// Ends a log-in at a provider of identities, and begins a session.
    ///
    /// # Errors
    ///
    /// The provider does not confirm the person, or the hub does not know the user.
    pub async fn finish_log_in(&self, name: &str, end: LogInEnd) -> Result<Session, HubError> {
        let user = self.identities.finish(name, &end.state, &end.code).await?;
        let state = self.state.lock().await;
        if !is_known(&state.directory, &user) {
            let text = user_text(&user);
            self.note_refusal(&user, &format!("refused: {name} confirms the user, whom the hub does not know"))?;
            return Err(HubError::NoLogIn(format!("the hub has no user {text}: an administrator adds users")));
        }
        self.begin_session(state, user, Some(name)).await
    }

    /// Notes a log-in in the audit.
    pub(super) fn note_log_in(&self, user: &UserId, decision: &str) -> Result<(), HubError> {
        self.append(AuditNote {
            tenant: user.tenant.as_ref().map(ToString::to_string),
            user: user_text(user),
            request: "log-in".to_owned(),
            decision: decision.to_owned(),
            ..AuditNote::default()
        })
    }

    /// Begins a session of a user whose identity is proven: by a password in the hub, or by a log-in of this name.
    pub(super) async fn begin_session(
        &self,
        mut state: MutexGuard<'_, State>,
        user: UserId,
        by: Option<&str>,
    ) -> Result<Session, HubError> {
        let decision = by.map_or_else(|| "allowed".to_owned(), |name| format!("allowed by {name}"));
        self.note_log_in(&user, &decision)?;
        let now = now_ms();
        let (token, hash) = tokens::new_token()?;
        let ends_ms = now.saturating_add(SESSION_MS);
        let credential = Credential {
            user: user.clone(),
            label: "log-in".to_owned(),
            scope: None,
            made_ms: now,
            ends_ms: Some(ends_ms),
            session: true,
        };
        let mut changes = Changes::default();
        changes.credential(&hash, Some(&credential))?;
        let sessions = state.credentials.iter().filter(|(_, other)| other.session && other.user == user);
        let mut sessions: Vec<(bool, u64, String)> =
            sessions.map(|(hash, other)| (!other.has_ended(now), other.made_ms, hash.clone())).collect();
        sessions.sort();
        let over = (sessions.len() + 1).saturating_sub(MOST_SESSIONS);
        let ended = sessions.iter().enumerate().filter(|(at, (lives, ..))| !lives || *at < over);
        for (_, (_, _, hash)) in ended {
            changes.credential(hash, None)?;
            state.credentials.remove(hash);
        }
        state.credentials.insert(hash, credential);
        self.write(changes).await?;
        Ok(Session { token, ends_ms })
    }

    /// Ends the session of the caller.
    ///
    /// # Errors
    ///
    /// The request has no session.
    pub async fn log_out(&self, caller: &Caller) -> Result<(), HubError> {
        let Some(hash) = &caller.session else {
            return Err(HubError::Conflict("the request came without a session".to_owned()));
        };
        let mut state = self.state.lock().await;
        self.note(caller, None, None, "the end of the session")?;
        let mut changes = Changes::default();
        changes.credential(hash, None)?;
        state.credentials.remove(hash);
        self.write(changes).await
    }
}
