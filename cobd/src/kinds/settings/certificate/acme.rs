//! The kind back end `acme-certificate`.
//!
//! ```text
//!   key: the present key, or a new key in the own folder ── request ──> server ── answer ──> own folder ──> files
//! ```
//!
//! The private key and the certificate are replaced together, after the answer: a request that fails leaves both. A
//! request begins only if the present certificate is not as desired, and if no earlier request of the same content has
//! failed shortly before. The answer stays in the own folder until it is in its place: a killed transition asks once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_kinds::AcmeCertificate;
use cob_types::calendar::utc;
use cob_types::canonical;
use cob_types::message::Values;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::{Entry, Setting, Spec, earlier, place, record};
use super::file::{CertificateFile, EARLIER, EARLIER_KEY, RENEWED};
use super::key::{KeyFile, map};
use super::lego::{self, Client};
use super::openssl;
use super::request::{RECORD, Record, checksum};
use crate::clock::wall_s;
use crate::durable::{self, Sync};
use crate::kinds::native::{Host, NOTE, Turn};

/// A key that has no certificate yet, in the own folder.
const NEXT_KEY: &str = "next-key";
/// The earlier file at the place of `chain`, in the own folder.
const EARLIER_CHAIN: &str = "earlier-chain";
/// The note of the file at the place of `chain`, in the own folder.
const CHAIN: &str = "chain.json";
const DAY: u64 = 24 * 3600;

/// The back end `acme-certificate`.
#[derive(Debug)]
pub(in crate::kinds::settings) struct AcmeSetting;

/// The desired certificate.
#[derive(Debug)]
struct Wanted {
    host: Host,
    content: AcmeCertificate,
    key: KeyFile,
    file: CertificateFile,
    own: PathBuf,
    longest: Duration,
}

/// The note of the file at the place of `chain`. The content may get this file later than the other files.
#[derive(Debug, Serialize, Deserialize)]
struct ChainNote {
    path: String,
    before: Value,
}

impl Setting for AcmeSetting {
    type Content = AcmeCertificate;

    fn spec(&self, entry: Entry<AcmeCertificate>) -> Result<Box<dyn Spec>, String> {
        let Entry { content, host, own, longest, .. } = entry;
        let accounts = (content.owner.as_ref(), content.group.as_ref());
        let key = KeyFile::new(&host, &content.key, content.key_type, content.mode(), accounts)?;
        let file = CertificateFile {
            host: host.clone(),
            file: content.file.clone(),
            on_renewal: content.on_renewal.clone(),
            own: own.clone(),
        };
        Ok(Box::new(Wanted { host, content, key, file, own, longest }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, EARLIER, EARLIER_KEY, EARLIER_CHAIN, CHAIN, RECORD, NEXT_KEY, RENEWED]
    }

    fn noted(&self, content: &str) -> String {
        // The variables may be secrets.
        match serde_json::from_str(content) {
            Ok(Value::Object(mut keys)) => {
                keys.remove("env");
                canonical::json(&Value::Object(keys))
            }
            Ok(_) | Err(_) => content.to_owned(),
        }
    }
}

impl Wanted {
    fn client(&self) -> Client<'_> {
        Client { content: &self.content, host: &self.host, own: &self.own }
    }

    /// The checksum of the request.
    fn about(&self) -> String {
        let AcmeCertificate { server, server_ca, mail, names, challenge, key_type, env, .. } = &self.content;
        checksum(&format!("{:?}", (server, server_ca, mail, names, challenge, key_type, env)))
    }

    fn names(&self) -> BTreeSet<&str> {
        self.content.names.iter().map(String::as_str).collect()
    }

    /// The properties of a certificate for the private key in a file.
    fn look_at(&self, text: &str, key: &Path, record: &Record) -> Result<Map<String, Value>, String> {
        let Some(shown) = openssl::show(text)? else {
            return Ok(Map::from_iter([("certificate".to_owned(), json!("no certificate that openssl reads"))]));
        };
        let public = if key.is_file() { openssl::public_key(key)? } else { None };
        let is_for_it = public.is_some_and(|key| super::is_same(&key, &shown.public_key));
        let is_own = shown.subject == shown.issuer;
        let found = json!({
            "certificate": "there",
            "renewal": self.renewal(text, record)?,
            "for": if is_for_it { "its key" } else { "another key" },
            "names": shown.names,
            "signed_by": if is_own { "its own key" } else { "an authority" },
            "server": record.server_of(text).unwrap_or(&self.content.server),
        });
        Ok(map(found))
    }

    fn wanted_certificate(&self) -> Map<String, Value> {
        map(json!({
            "certificate": "there",
            "renewal": "not due",
            "for": "its key",
            "names": self.names(),
            "signed_by": "an authority",
            "server": self.content.server,
        }))
    }

    /// Whether the certificate has to be renewed now.
    fn renewal(&self, text: &str, record: &Record) -> Result<String, String> {
        let (dates, now) = (openssl::validity(text)?, wall_s());
        // A certificate for a few days would be due at once.
        let before = (u64::from(self.content.renew_before()) * DAY).min(dates.end.saturating_sub(dates.begin) / 3);
        let (is_due, has_ended) = (now >= dates.end.saturating_sub(before), now >= dates.end);
        // A certificate that still serves waits for the next request; the failed request is shown meanwhile.
        let waits = !has_ended && record.waits(&self.about(), now).is_some();
        Ok(match is_due && !waits {
            false => "not due".to_owned(),
            true => format!("due, for the certificate ends on {}", utc(dates.end.cast_signed())),
        })
    }

    /// Whether the files are as desired, apart from mode and owner.
    fn is_right(&self, record: &Record) -> Result<bool, String> {
        Ok(self.key.is_usable()?
            && match self.file.read()? {
                Ok(text) => self.look_at(&text, &self.key.path()?, record)? == self.wanted_certificate(),
                Err(_) => false,
            })
    }

    /// Gets another certificate and puts it in its place, with its key if the key is new.
    fn renew(&self, record: &mut Record) -> Result<(), String> {
        let (client, about) = (self.client(), self.about());
        let next = self.own.join(NEXT_KEY);
        let key = if self.key.is_usable()? { self.key.path()? } else { self.next_key()? };
        let fits = |text: &str, record: &Record| -> Result<bool, String> {
            Ok(self.look_at(text, &key, record)? == self.wanted_certificate())
        };
        let earlier = client.answer()?.filter(|_| record.about == about);
        let text = match earlier {
            Some(text) if fits(&text, &Record::default())? => text,
            Some(_) | None => self.ask(&key, record)?,
        };
        record.issue(&self.content.server, &text, self.file.read()?.ok().as_deref());
        record.write(&self.own)?;
        if key == next {
            let text = fs::read_to_string(&next).map_err(|error| format!("{}: {error}", next.display()))?;
            self.key.put(&text)?;
        }
        self.file.put(&text)
    }

    /// The file of a key that has no certificate yet. It stays until it has one.
    fn next_key(&self) -> Result<PathBuf, String> {
        let path = self.own.join(NEXT_KEY);
        let public = if path.exists() { openssl::public_key(&path)? } else { None };
        let found = public.map(|public| openssl::type_of(&public)).transpose()?;
        if found.as_deref() != Some(self.content.key_type.name()) {
            let text = openssl::new_key(self.content.key_type)?;
            let written = durable::write_file(&self.own, NEXT_KEY, 0o600, text.as_bytes(), Sync::Now);
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(path)
    }

    /// Asks the server, unless an earlier request has failed shortly before.
    fn ask(&self, key: &Path, record: &mut Record) -> Result<String, String> {
        let (client, about) = (self.client(), self.about());
        if let Some(why) = record.waits(&about, wall_s()) {
            return Err(why);
        }
        let running = client.plan()?;
        if record.about != about {
            record.failures = 0;
            record.about.clone_from(&about);
        }
        record.running = Some(running.clone());
        record.write(&self.own)?;
        let asked = client.ask(key, &running, self.longest);
        self.clean(record)?;
        let answer = asked.and_then(|()| {
            let text = client.answer()?.ok_or("lego has brought no certificate")?;
            let (found, wanted) = (self.look_at(&text, key, &Record::default())?, self.wanted_certificate());
            match wanted.iter().find(|(key, value)| found.get(*key) != Some(value)) {
                None => Ok(text),
                Some((key, value)) => {
                    let is = found.get(key).unwrap_or(&Value::Null);
                    Err(format!("the certificate of the server is not as desired: {key} is {is}, and not {value}"))
                }
            }
        });
        answer.map_err(|why| {
            let why = format!("{}: {why}", self.content.server);
            record.fail(&about, wall_s(), &why);
            match record.write(&self.own) {
                Ok(()) => why,
                Err(error) => format!("{why}; {error}"),
            }
        })
    }

    /// Cleans up after a request that has ended or was killed.
    fn clean(&self, record: &mut Record) -> Result<(), String> {
        let Some(running) = &record.running else { return Ok(()) };
        self.client().clean(running)?;
        record.running = None;
        record.write(&self.own)
    }

    /// The text for the file of `chain`.
    fn chain(&self) -> Result<String, String> {
        let text = self.file.read()?.unwrap_or_default();
        let rest: Vec<_> = openssl::all(&text).skip(1).collect();
        Ok(rest.iter().map(|one| format!("{one}\n")).collect())
    }

    fn chain_note(&self) -> Result<Option<ChainNote>, String> {
        record::read(&self.own, CHAIN)
    }

    /// Puts the file of `chain` in its place, or away.
    fn put_chain(&self) -> Result<(), String> {
        let note = self.chain_note()?;
        if note.as_ref().map(|note| &note.path) != self.content.chain.as_ref() {
            self.restore_chain()?;
        }
        let Some(path) = &self.content.chain else { return Ok(()) };
        let real = place::real(&self.host, path)?;
        if self.chain_note()?.is_none() {
            let before = earlier::note(&real, &self.own, EARLIER_CHAIN)?;
            record::write(&self.own, CHAIN, &ChainNote { path: path.clone(), before })?;
        }
        let text = self.chain()?;
        if self.found_chain(path)? == Some(text.clone()) {
            return Ok(());
        }
        place::make_folders(&real)?;
        let (folder, name) = earlier::parts(&real)?;
        let written = durable::write_file(folder, name, 0o644, text.as_bytes(), Sync::Now);
        written.map_err(|error| format!("{}: {error}", real.display()))
    }

    /// The text at the place of `chain`. `None`: there is no file.
    fn found_chain(&self, path: &str) -> Result<Option<String>, String> {
        let file =
            CertificateFile { host: self.host.clone(), file: path.to_owned(), on_renewal: None, own: self.own.clone() };
        Ok(file.read()?.ok())
    }

    fn restore_chain(&self) -> Result<(), String> {
        let Some(note) = self.chain_note()? else { return Ok(()) };
        earlier::restore(&self.host, &note.path, &self.own, EARLIER_CHAIN, &note.before)?;
        place::remove_all(&self.own.join(CHAIN))
    }
}

impl Spec for Wanted {
    fn target(&self) -> String {
        format!("{} for the key in {}", self.content.file, self.content.key)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let record = Record::read(&self.own)?;
        let mut found = self.key.look()?;
        found.extend(match self.file.read()? {
            Ok(text) => self.look_at(&text, &self.key.path()?, &record)?,
            Err(is) => Map::from_iter([("certificate".to_owned(), json!(is))]),
        });
        if let Some(path) = &self.content.chain {
            let is_right = self.found_chain(path)? == Some(self.chain()?);
            found.insert("chain".to_owned(), json!(if is_right { "as the server sent it" } else { "another text" }));
        }
        if let Some(note) = self.chain_note()?.filter(|note| Some(&note.path) != self.content.chain.as_ref()) {
            found.insert("former_chain".to_owned(), json!(note.path));
        }
        // The transition was killed with all files in their places.
        if self.own.join(NEXT_KEY).exists() || self.client().answer()?.is_some() {
            found.insert("unfinished".to_owned(), json!(true));
        }
        if self.file.has_to_tell() {
            found.insert("on_renewal".to_owned(), json!("has not run"));
        }
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        self.file.before(Some(&self.key))
    }

    fn wanted(&self) -> Value {
        let mut wanted = self.key.wanted();
        wanted.extend(self.wanted_certificate());
        if self.content.chain.is_some() {
            wanted.insert("chain".to_owned(), json!("as the server sent it"));
        }
        Value::Object(wanted)
    }

    fn of_use(&self) -> Result<(), String> {
        self.key.of_use()
    }

    fn hindered(&self) -> Result<(), String> {
        openssl::is_installed().and_then(|()| lego::is_installed())
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let mut record = Record::read(&self.own)?;
        self.clean(&mut record)?;
        if !self.is_right(&record)? {
            // All requests of a host may need the same port, and share the accounts.
            let _turn = Turn::wait(&self.own, "acme", self.longest * 9 / 10)?;
            self.renew(&mut record)?;
        }
        // An earlier transition may have been killed with all files in their places.
        place::remove_all(&self.own.join(NEXT_KEY))?;
        self.client().forget()?;
        self.key.protect()?;
        self.put_chain()?;
        self.file.tell()
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.clean(&mut Record::read(&self.own)?)?;
        self.restore_chain()?;
        self.file.restore(Some(&self.key), before)?;
        self.client().forget()?;
        [NEXT_KEY, RECORD].iter().try_for_each(|file| place::remove_all(&self.own.join(file)))
    }

    fn exports(&self) -> Result<Values, String> {
        let text = self.host.read(&self.content.file)?;
        Ok([("certificate".to_owned(), canonical::json(&json!(text)))].into())
    }
}

#[cfg(test)]
#[path = "acme_test.rs"]
mod tests;
