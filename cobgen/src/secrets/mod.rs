//! Reads the values of secrets and seals each value into the bundles of the hosts that use it.
//!
//! `source` reads a value from the source that the model names; `site` keeps the key that makes ids from values. A
//! [`Vault`] combines both: after [`Vault::settle`] the marks of a draft have the ids of the values, and every host has
//! the secrets that its contents name, encrypted only for this host. Without a vault a draft can still be checked and
//! shown; then no value is read.
//!
//! Rules: a value is in memory only until it is sealed, and is wiped; no message contains a value or a part of it;
//! secrets that were sealed before for the same keys are reused, so that the bundle of an unchanged host keeps its
//! bytes.

mod site;
mod source;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cob_trust::seal;
use cob_types::generation::Security;
use cob_types::secret::{self, SecretId};
use cob_types::{HostName, PublicKey};
use zeroize::Zeroizing;

use crate::diagnostic::Diagnostic;
use crate::draft::{At, Draft, DraftHost, DraftSecret};
use crate::make::After;

/// Shorter values are not recognised in the output of actions.
const SHORTEST: usize = 4;

/// Reads and seals the values of secrets.
#[derive(Debug)]
pub struct Vault {
    site_key: Option<PathBuf>,
    secret_key: Option<PathBuf>,
    signing_key: Option<PathBuf>,
    /// Other commands do not look beside the signing key.
    signing_once: bool,
    /// The user's configuration folder.
    user: Option<PathBuf>,
    /// The command only reads: no file is written.
    only_reads: bool,
    loaded: OnceCell<Zeroizing<[u8; 32]>>,
}

impl Vault {
    /// `secret_key` is the publisher's key file, which decrypts encrypted secrets in the model; `site_key` the file of
    /// the site's key, by default beside the publisher's key.
    #[must_use]
    pub fn new(site_key: Option<&Path>, secret_key: Option<&Path>) -> Self {
        Self {
            site_key: site_key.map(Path::to_owned),
            secret_key: secret_key.map(Path::to_owned),
            signing_key: None,
            signing_once: false,
            user: site::of_user(),
            only_reads: false,
            loaded: OnceCell::new(),
        }
    }

    /// Sets the key file that signs generations: the site's key may be beside it, too.
    #[must_use]
    pub fn signing_with(self, key: Option<&Path>) -> Self {
        Self { signing_key: key.map(Path::to_owned), ..self }
    }

    /// The signing key was named for a single command: other commands do not look beside it, so a site's key is made
    /// there only if there is no other place.
    #[must_use]
    pub fn once(self) -> Self {
        Self { signing_once: true, ..self }
    }

    /// For a read-only command: it makes no key of a site. If there is no key, and no secret was ever sealed under such
    /// a key, a temporary key makes the ids.
    #[must_use]
    pub fn reading(self) -> Self {
        Self { only_reads: true, ..self }
    }

    /// Reads the value of every secret in use and seals it for the hosts that use it. Returns faults and warnings; with
    /// an error the draft can't be published.
    pub fn settle(&self, draft: &mut Draft, after: &After) -> Vec<Diagnostic> {
        let mut found = refused(draft);
        if draft.secrets.is_empty() || !found.is_empty() {
            return found;
        }
        let site_key = match self.site_key(after, &mut found) {
            Ok(key) => key,
            Err(why) => {
                found.push(Diagnostic::error("secret", why));
                return found;
            }
        };
        let mut values = BTreeMap::new();
        let mut ids = BTreeMap::new();
        let mut secrets: Vec<_> = draft.secrets.iter().collect();
        secrets.sort_by_key(|(_, secret)| &secret.value.name);
        for (by_name, At { value, place }) in secrets {
            match source::read(&value.source, self.secret_key.as_deref()) {
                Ok(read) => {
                    if read.len() < SHORTEST {
                        let what = format!("the secret `{}` has fewer than {SHORTEST} bytes", value.name);
                        let warning = Diagnostic::warning("short-secret", what).at(place.clone());
                        found
                            .push(warning.help(
                                "COB can't recognise so short a secret in the output of actions: make it longer",
                            ));
                    }
                    let id = seal::id(site_key, &read);
                    ids.insert(*by_name, id);
                    values.insert(id, read);
                }
                Err(why) => {
                    let what = format!("the secret `{}`: {why}", value.name);
                    found.push(Diagnostic::error("secret", what).at(place.clone()));
                }
            }
        }
        if found.iter().all(|d| d.severity != crate::diagnostic::Severity::Error) {
            rename(draft, &ids);
            found.extend(seal_all(draft, site_key, &values, after));
        }
        found
    }

    fn site_key(&self, after: &After, found: &mut Vec<Diagnostic>) -> Result<&[u8; 32], String> {
        if let Some(key) = self.loaded.get() {
            return Ok(key);
        }
        let (signing, once) = match self.signing_once {
            true => (None, self.signing_key.as_deref()),
            false => (self.signing_key.as_deref(), None),
        };
        let publisher = self.secret_key.as_deref().into_iter().chain(signing).collect();
        let places = site::Places { publisher, once, user: self.user.as_deref() };
        let path = site::path(self.site_key.as_deref(), &places)?;
        let (key, made) = match site::read(&path)? {
            Some(key) => (key, false),
            None if !after.sealed.is_empty() && (self.only_reads || self.site_key.is_none()) => {
                return Err(format!(
                    "generation {} has secrets, but their site key was not found: neither {} nor another searched \
                     file exists; copy it from the machine that made that generation, or name it with `--site-key \
                     FILE`, or name the publisher's key beside it with `--secret-key` (`generate` creates a named \
                     file that does not exist: then every secret counts as changed)",
                    after.number,
                    path.display()
                ));
            }
            None if self.only_reads => (site::for_once()?, false),
            None => site::make_or_read(&path)?,
        };
        if made {
            let what = format!("made a new site key, {}: ids of secrets are made with it", path.display());
            let note = Diagnostic::warning("new-site-key", what);
            found.push(
                note.help("keep it with the publisher's key; with another site key every secret counts as changed"),
            );
        }
        Ok(self.loaded.get_or_init(|| key))
    }
}

/// The reasons why the draft's secrets can't be encrypted.
pub(crate) fn refused(draft: &Draft) -> Vec<Diagnostic> {
    if draft.security != Security::LoopbackOnly {
        return Vec::new();
    }
    let refuse = |At { value, place }: &At<DraftSecret>| {
        let what = format!(
            "the secret `{}` can't be encrypted: under `security: loopback-only` hosts have no keys",
            value.name
        );
        Diagnostic::error("secret-without-keys", what)
            .at(place.clone())
            .help("write `security: identities` and give every host its `key`, or leave the secret out")
    };
    draft.secrets.values().map(refuse).collect()
}

/// Takes secrets as they were: a secret of this name has the id and the sealed values of the generation before. Nothing is
/// read or sealed.
pub(crate) fn as_before(draft: &mut Draft, after: &After) {
    let ids = draft.secrets.iter().filter_map(|(id, secret)| Some((*id, *after.secrets.get(&secret.value.name)?)));
    let ids: BTreeMap<SecretId, SecretId> = ids.collect();
    if ids.is_empty() {
        return;
    }
    rename(draft, &ids);
    let mut sealed: BTreeMap<HostName, BTreeMap<SecretId, Vec<u8>>> = BTreeMap::new();
    for (id, cob) in &draft.cobs {
        let host = id.host();
        let Some(known) = after.sealed.get(&host) else { continue };
        let content = cob.value.content.to_string();
        let found = secret::marks(&content).filter_map(|id| Some((id, known.get(&id)?.clone())));
        sealed.entry(host).or_default().extend(found);
    }
    draft.sealed.extend(sealed.into_iter().filter(|(_, values)| !values.is_empty()));
}

/// The keys that prove a host's identity; each opens the secrets sealed for it.
fn keys_of(host: &DraftHost) -> &[PublicKey] {
    &host.keys
}

/// Replaces the ids in all marks by the ids of the values.
fn rename(draft: &mut Draft, ids: &BTreeMap<SecretId, SecretId>) {
    for cob in draft.cobs.values_mut() {
        let replaced = secret::replace(&mut cob.value.content, &mut |id| {
            ids.get(&id).map(|id| id.mark()).or_else(|| Some(id.mark()))
        });
        debug_assert!(replaced.is_ok(), "every id is answered");
    }
    let mut renamed: BTreeMap<SecretId, At<DraftSecret>> = BTreeMap::new();
    for (id, secret) in std::mem::take(&mut draft.secrets) {
        // Two secrets with the same value are merged under the alphabetically first name.
        let kept = renamed.entry(ids.get(&id).copied().unwrap_or(id)).or_insert_with(|| secret.clone());
        if secret.value.name < kept.value.name {
            *kept = secret;
        }
    }
    draft.secrets = renamed;
}

/// Seals for each host the secrets that its change objects name.
fn seal_all(
    draft: &mut Draft,
    site_key: &[u8; 32],
    values: &BTreeMap<SecretId, Zeroizing<Vec<u8>>>,
    after: &After,
) -> Vec<Diagnostic> {
    let mut needed: BTreeMap<HostName, BTreeSet<SecretId>> = BTreeMap::new();
    for (id, cob) in &draft.cobs {
        let content = cob.value.content.to_string();
        needed.entry(id.host()).or_default().extend(secret::marks(&content));
    }
    let mut found = Vec::new();
    for (host, ids) in needed {
        let Some(At { value, place }) = draft.hosts.get(&host).filter(|_| !ids.is_empty()) else { continue };
        let keys = keys_of(value);
        if keys.is_empty() {
            let what = format!("host {host} needs secrets, but has no key for their encryption");
            found.push(
                Diagnostic::error("secret-without-keys", what).at(place.clone()).help("add the `key` of the host"),
            );
            continue;
        }
        let mut sealed = BTreeMap::new();
        for id in ids {
            let before = after.sealed.get(&host).and_then(|sealed| sealed.get(&id));
            let kept = before.filter(|bytes| seal::is_ours(site_key, keys, id, bytes));
            let made = match (kept, values.get(&id)) {
                (Some(kept), _) => Ok(kept.clone()),
                (None, Some(value)) => seal::seal_for_bundle(site_key, keys, id, value),
                // The mark of an unknown secret: the check reports it.
                (None, None) => continue,
            };
            match made {
                Ok(bytes) => drop(sealed.insert(id, bytes)),
                Err(error) => {
                    let what = format!("a secret of host {host}: {error}");
                    found.push(Diagnostic::error("secret", what).at(place.clone()));
                }
            }
        }
        draft.sealed.insert(host, sealed);
    }
    found
}

/// A text for people, with names of secrets in place of their marks.
#[must_use]
pub fn shown(text: &str, names: &BTreeMap<SecretId, String>) -> String {
    let mut shown = |id| Some(format!("[secret {}]", secret::name_of(id, names)));
    secret::replace_text(text, &mut shown).unwrap_or_default()
}

#[cfg(test)]
mod tests;
