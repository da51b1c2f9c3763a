//! Tokens of the API. The hub keeps their hashes.

use cob_hub_api::TokenInfo;
use cob_permissions::{Action, Entity, may};
use sha2::{Digest as _, Sha256};

use super::book::Changes;
use super::error::HubError;
use super::orders::check_length;
use super::{Caller, Credential, Hub, is_known, now_ms, user_text};
use crate::random;

/// The most tokens of a user.
const MOST_TOKENS: usize = 100;
/// How much of a hash names a token.
const ID: usize = 16;

/// The hash of a token, in hexadecimal.
pub(super) fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token))
}

/// A new token, with its hash.
pub(super) fn new_token() -> Result<(String, String), HubError> {
    let token = format!("cob_{}", hex::encode(random::bytes::<32>().map_err(HubError::Internal)?));
    let hash = hash(&token);
    Ok((token, hash))
}

impl Hub {
    /// Makes a credential. Returns its token.
    ///
    /// # Errors
    ///
    /// The caller may not manage the credentials of the user, or has a narrowed token.
    pub async fn make_token(&self, caller: &Caller, mut credential: Credential) -> Result<String, HubError> {
        let mut state = self.state.lock().await;
        let exists = is_known(&state.directory, &credential.user);
        self.decide(&state.directory, caller, Action::Execute, &Entity::user(&credential.user), exists)?;
        if caller.subject.scope.is_some() {
            // The new token could have rights that the present token was made without.
            self.note(caller, None, None, "refused: the token of the caller has a scope")?;
            return Err(HubError::Forbidden("a token with a scope makes no tokens".to_owned()));
        }
        check_length(&credential)?;
        // A token that ends makes no token that lives longer.
        credential.ends_ms = credential.ends_ms.into_iter().chain(caller.token_ends_ms).min();
        let now = now_ms();
        let of_user = state.credentials.iter().filter(|(_, other)| other.user == credential.user && !other.session);
        let (lapsed, valid): (Vec<_>, Vec<_>) = of_user.partition(|(_, other)| other.has_ended(now));
        if valid.len() >= MOST_TOKENS {
            let user = user_text(&credential.user);
            return Err(HubError::Conflict(format!("{user} has {MOST_TOKENS} tokens, the most of a user")));
        }
        let lapsed: Vec<String> = lapsed.into_iter().map(|(hash, _)| hash.clone()).collect();
        let (token, hash) = new_token()?;
        self.note(caller, None, None, format!("a token for {}", user_text(&credential.user)))?;
        let mut changes = Changes::default();
        changes.credential(&hash, Some(&credential))?;
        state.credentials.insert(hash, credential);
        for hash in lapsed {
            changes.credential(&hash, None)?;
            state.credentials.remove(&hash);
        }
        self.write(changes).await?;
        Ok(token)
    }

    /// The tokens of all users whose credentials the caller may manage.
    pub async fn tokens(&self, caller: &Caller) -> Vec<TokenInfo> {
        let state = self.state.lock().await;
        let tenant = caller.tenant.as_ref().map(cob_hub_api::Name::as_str);
        let wanted = |credential: &Credential| {
            let of = credential.user.tenant.as_ref().map(cob_permissions::Name::as_str);
            let user = Entity::user(&credential.user);
            (tenant.is_none() || tenant == of)
                && may(&state.directory, &caller.subject, Action::Execute, &user).is_allowed()
        };
        let tokens = state.credentials.iter().filter(|(_, credential)| wanted(credential));
        let info = |(hash, credential): (&String, &Credential)| TokenInfo {
            id: hash.chars().take(ID).collect(),
            user: credential.user.clone(),
            label: credential.label.clone(),
            made_ms: credential.made_ms,
            ends_ms: credential.ends_ms,
        };
        tokens.map(info).collect()
    }

    /// Takes a token back. It is not valid any more when this returns.
    ///
    /// # Errors
    ///
    /// There is no such token of a user whose credentials the caller may manage.
    pub async fn revoke_token(&self, caller: &Caller, id: &str) -> Result<(), HubError> {
        let missing = || HubError::Missing { what: "token", name: id.chars().take(ID).collect() };
        let mut state = self.state.lock().await;
        let mut named = state.credentials.iter().filter(|(hash, _)| id.len() >= ID && hash.starts_with(id));
        let (Some((hash, credential)), None) = (named.next(), named.next()) else { return Err(missing()) };
        let (hash, user) = (hash.clone(), credential.user.clone());
        // A token of another user is as unknown as a token that does not exist.
        if !may(&state.directory, &caller.subject, Action::Execute, &Entity::user(&user)).is_allowed() {
            self.note(caller, None, None, "not found: a token of another user")?;
            return Err(missing());
        }
        self.note(caller, None, None, format!("the end of a token of {}", user_text(&user)))?;
        let mut changes = Changes::default();
        changes.credential(&hash, None)?;
        state.credentials.remove(&hash);
        self.write(changes).await
    }
}
