//! OpenID Connect: the code flow (OpenID Connect Core 1.0, section 3.1) with a proof key (RFC 7636).
//!
//! The hub gets the identity from the provider itself over TLS, so the certificate of the provider stands for the
//! signature of the token (section 3.1.3.7, point 6).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cob_hub_api::Name;
use cob_permissions as rights;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::settings::{is_local, read_secret};
use super::{curl, spelled};
use crate::hub::now_ms;
use crate::random;

/// How long the description of a provider is used.
const FRESH: Duration = Duration::from_mins(5);
/// How much the clocks of provider and hub may differ, in seconds.
const SKEW: u64 = 60;
/// `curl`: the server answered with a status from 400 on.
const REFUSED: i32 = 22;

/// A provider of identities.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Oidc {
    /// The address of the provider, exactly as it calls itself.
    issuer: String,
    /// The name of the hub at the provider.
    client: String,
    /// The file with the secret of this name; absent: the provider needs none.
    #[serde(default)]
    secret_file: Option<PathBuf>,
    /// The claim with the name of the user.
    #[serde(default = "user_claim")]
    user_claim: String,
    /// Further scopes; `openid` and `profile` are always asked for.
    #[serde(default)]
    scopes: Vec<String>,
    /// The certificates of authorities that the hub trusts for this provider; default: those of the system.
    #[serde(default)]
    ca: Option<PathBuf>,
}

fn user_claim() -> String {
    "preferred_username".to_owned()
}

/// The description of a provider (OpenID Connect Discovery 1.0, section 3).
#[derive(Debug, Clone, Deserialize)]
struct Description {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

/// The descriptions that the hub has read.
#[derive(Debug, Default)]
pub(super) struct Providers(Mutex<BTreeMap<Name, (Instant, Description)>>);

/// A log-in that a person goes on with at the provider.
#[derive(Debug)]
pub struct Begun {
    /// The address that the person opens.
    pub url: String,
    /// The name of this log-in, which the provider sends back with the person.
    pub state: String,
}

/// What the hub remembers of a log-in.
#[derive(Debug)]
pub(super) struct Pending {
    nonce: String,
    verifier: String,
    redirect: String,
    token_endpoint: String,
}

/// Why a log-in has no user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The provider refuses.
    Refused(String),
    /// The provider's answer is not valid, or does not come.
    Other(String),
}

/// The answer to a code (section 3.1.3.3).
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// The refusal of a code (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct TokenError {
    error: String,
    #[serde(default)]
    error_description: String,
}

/// One or several (section 2, `aud`).
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// The claims of an identity that the hub checks.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    exp: f64,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Providers {
    /// Begins a log-in that leads back to `redirect`.
    pub(super) async fn begin(&self, name: &Name, oidc: &Oidc, redirect: &str) -> Result<(Begun, Pending), String> {
        let known = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(name).filter(|(since, _)| since.elapsed() < FRESH).map(|(_, known)| known.clone())
        };
        let description = match known {
            Some(known) => known,
            None => {
                let read = oidc.describe().await?;
                let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(name.clone(), (Instant::now(), read.clone()));
                read
            }
        };
        let (state, nonce, verifier) = (word()?, word()?, word()?);
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let scopes: Vec<&str> =
            ["openid", "profile"].into_iter().chain(oidc.scopes.iter().map(String::as_str)).collect();
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &oidc.client),
            ("redirect_uri", redirect),
            ("scope", &scopes.join(" ")),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let endpoint = &description.authorization_endpoint;
        let sign = if endpoint.contains('?') { '&' } else { '?' };
        let url = format!("{endpoint}{sign}{query}");
        let pending =
            Pending { nonce, verifier, redirect: redirect.to_owned(), token_endpoint: description.token_endpoint };
        Ok((Begun { url, state }, pending))
    }
}

impl Oidc {
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { issuer, client, user_claim, .. } = self;
        safe(issuer).map_err(|because| format!("`issuer` {because}"))?;
        if client.is_empty() {
            return Err("`client` is empty: the name of the hub at the provider".to_owned());
        }
        if let Some(file) = &self.secret_file {
            read_secret(file)?;
        }
        if user_claim.is_empty() {
            return Err("`user_claim` is empty: the claim with the name of the user".to_owned());
        }
        Ok(())
    }

    /// Reads the description of the provider.
    async fn describe(&self) -> Result<Description, String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let answer = curl::run(&curl::options("=http,https", &url, self.ca.as_deref()).flag("fail")).await?;
        if answer.code != Some(0) {
            return Err(answer.message);
        }
        let description: Description = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("{url}: no description of a provider: {error}"))?;
        if description.issuer != self.issuer {
            return Err(format!(
                "{url} calls itself {:?}, and not {:?}: write its own word",
                description.issuer, self.issuer
            ));
        }
        for (key, endpoint) in [
            ("authorization_endpoint", &description.authorization_endpoint),
            ("token_endpoint", &description.token_endpoint),
        ] {
            safe(endpoint).map_err(|because| format!("{url}: `{key}` {because}"))?;
        }
        Ok(description)
    }

    /// Exchanges the code for the identity, and returns the name of the user.
    pub(super) async fn finish(&self, pending: &Pending, code: &str) -> Result<rights::Name, Failure> {
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &pending.redirect),
            ("client_id", &self.client),
            ("code_verifier", &pending.verifier),
        ];
        let secret = self.secret_file.as_deref().map(read_secret).transpose().map_err(Failure::Other)?;
        let mut options = curl::options("=http,https", &pending.token_endpoint, self.ca.as_deref())
            .flag("fail-with-body")
            .set("header", "Accept: application/json");
        if let Some(secret) = &secret {
            // RFC 6749, section 2.3.1.
            options = options.set("user", &format!("{}:{}", in_form(&self.client), in_form(secret)));
            fields.retain(|(key, _)| *key != "client_id");
        }
        let answer = curl::run(&options.set("data", &form(&fields))).await.map_err(Failure::Other)?;
        match answer.code {
            Some(0) => {}
            Some(REFUSED) => {
                return Err(match serde_json::from_slice(&answer.body) {
                    Ok(TokenError { error, error_description }) => {
                        Failure::Refused(format!("{error} {error_description}").trim().chars().take(300).collect())
                    }
                    Err(_) => Failure::Other(answer.message),
                });
            }
            _ => return Err(Failure::Other(answer.message)),
        }
        let tokens: Tokens = serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::Other(format!("the answer has no identity: {error}")))?;
        self.user(&tokens.id_token, &pending.nonce, now_ms() / 1000)
    }

    /// The name of the user of an identity (section 3.1.3.7).
    fn user(&self, token: &str, nonce: &str, now: u64) -> Result<rights::Name, Failure> {
        let other = |because: String| Failure::Other(format!("the identity is not valid: {because}"));
        let mut parts = token.split('.');
        let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(other("it has not three parts".to_owned()));
        };
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).map_err(|error| other(error.to_string()))?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|error| other(error.to_string()))?;
        let (audience, many) = match &claims.aud {
            Audience::One(name) => (*name == self.client, false),
            Audience::Many(names) => (names.contains(&self.client), names.len() > 1),
        };
        if claims.iss != self.issuer {
            return Err(other(format!("it is of {:?}", claims.iss)));
        }
        if !audience || (many && claims.azp.is_none()) || claims.azp.as_ref().is_some_and(|name| *name != self.client) {
            return Err(other("it is for another program".to_owned()));
        }
        if claims.nonce.as_deref() != Some(nonce) {
            return Err(other("it belongs to another log-in".to_owned()));
        }
        if claims.exp + SKEW as f64 <= now as f64 {
            return Err(other("its time is over; compare the clocks of the hub and the provider".to_owned()));
        }
        let claim = &self.user_claim;
        if claim == "email" && claims.more.get("email_verified") != Some(&Value::Bool(true)) {
            return Err(Failure::Refused("the address of the person is not verified".to_owned()));
        }
        let Some(name) = claims.more.get(claim).and_then(Value::as_str) else {
            let known: Vec<&str> = claims.more.keys().map(String::as_str).collect();
            return Err(Failure::Other(format!(
                "the identity has no text in the claim `{claim}`; it has {}: set `user_claim`, or `scopes`",
                known.join(", ")
            )));
        };
        rights::Name::new(name).map_err(|error| Failure::Refused(error.to_string()))
    }
}

/// Whether an address has encryption, or is on this machine.
fn safe(url: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = scheme == "http" && is_local(host);
    if host.is_empty() || host.contains('@') || !(scheme == "https" || plain) || url.contains(['#', ' ', '\n']) {
        return Err(format!("is {url:?}: an address begins with https://"));
    }
    Ok(())
}

/// A word that nobody can guess.
fn word() -> Result<String, String> {
    random::bytes::<32>().map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Fields as `application/x-www-form-urlencoded`.
fn form(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}={}", in_form(value))).collect();
    fields.join("&")
}

fn in_form(text: &str) -> String {
    spelled(text, "-_.~", '%')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn oidc(claim: &str) -> Oidc {
        let text = json!({"issuer": "https://id.example.org", "client": "hub", "user_claim": claim});
        serde_json::from_value(text).expect("a provider")
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id.example.org", "aud": "hub", "exp": 1000, "nonce": "n", "preferred_username": "ann",
            "email": "ann@example.org", "email_verified": true,
        })
    }

    fn user(oidc: &Oidc, claims: &Value) -> Result<String, Failure> {
        let part = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        oidc.user(&format!("e30.{part}.c2ln"), "n", 1000).map(String::from)
    }

    #[test]
    fn an_identity_counts_for_its_own_log_in_alone() {
        let own = oidc("preferred_username");
        assert_eq!(user(&own, &claims()), Ok("ann".to_owned()));
        let faults = [
            ("iss", json!("https://id.example.org/")),
            ("aud", json!("other")),
            ("aud", json!(["hub", "other"])),
            ("azp", json!("other")),
            ("nonce", json!("m")),
            ("nonce", Value::Null),
            ("exp", json!(940)),
            ("preferred_username", json!("")),
            ("preferred_username", json!("ann web")),
            ("preferred_username", json!(["ann"])),
        ];
        for (key, value) in faults {
            let mut other = claims();
            other[key] = value;
            assert!(user(&own, &other).is_err(), "{other}");
        }
        let mut many = claims();
        many["aud"] = json!(["hub", "other"]);
        many["azp"] = json!("hub");
        assert!(user(&own, &many).is_ok());
        for token in ["", "e30", "e30.e30", "e30.e30.e30", "e30.!.e30", "a.b.c.d"] {
            assert!(own.user(token, "n", 0).is_err(), "{token}");
        }
    }

    #[test]
    fn an_address_without_a_check_is_no_name() {
        let own = oidc("email");
        assert_eq!(user(&own, &claims()), Ok("ann@example.org".to_owned()));
        for value in [json!(false), json!("true"), Value::Null] {
            let mut other = claims();
            other["email_verified"] = value;
            assert!(matches!(user(&own, &other), Err(Failure::Refused(_))), "{other}");
        }
    }

    #[test]
    fn only_addresses_with_encryption_are_used() {
        for url in ["https://id.example.org/realms/x", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:1/x"]
        {
            assert_eq!(safe(url), Ok(()), "{url}");
        }
        for url in
            ["http://id.example.org", "https://", "id.example.org", "https://a@b", "http://127.0.0.1.x", "https://a#b"]
        {
            assert!(safe(url).is_err(), "{url}");
        }
    }
}
