//! The kind back ends `private-key` and `certificate`.
//!
//! The program `openssl` makes keys and certificates ([`openssl`]). A certificate for the key of another host is made
//! from its public key, which the other host exports; the private key stays in its file ([`key`]).
//!
//! The program `lego` gets certificates from ACME servers ([`acme`]).
//!
//! A certificate is outdated if a property differs from the content, or if its validity ends soon. Files that another
//! program has made count if they are as desired.

mod acme;
#[cfg(test)]
mod certificate_test;
mod file;
mod key;
mod lego;
mod openssl;
mod request;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use cob_kinds::{Certificate, Origin, PrivateKey, Usage};
use cob_types::canonical;
use cob_types::message::Values;
use serde_json::{Map, Value, json};

pub(super) use self::acme::AcmeSetting;
use self::file::{CertificateFile, EARLIER, EARLIER_KEY, RENEWED};
use self::key::KeyFile;
use self::openssl::{Order, Shown, Signer};
use super::{Entry, Setting, Spec, earlier, place};
use crate::durable::{self, Sync};
use crate::kinds::native::{Host, NOTE, imported};

/// In the own folder while a certificate is made: the public key.
const PUBLIC_KEY: &str = "public-key.pem";
/// In the own folder while a certificate is made: its extensions.
const EXTENSIONS: &str = "extensions.cnf";

/// The back end `private-key`.
#[derive(Debug)]
pub(super) struct PrivateKeySetting;

/// The back end `certificate`.
#[derive(Debug)]
pub(super) struct CertificateSetting;

/// The desired private key.
#[derive(Debug)]
struct WantedKey {
    key: KeyFile,
    own: PathBuf,
}

/// The desired certificate.
#[derive(Debug)]
struct WantedCertificate {
    host: Host,
    content: Certificate,
    file: CertificateFile,
    /// The private key that belongs to the change object.
    key: Option<KeyFile>,
    /// The public key or the certificate of another change object, in a transition.
    imported: Option<String>,
    own: PathBuf,
}

impl Setting for PrivateKeySetting {
    type Content = PrivateKey;

    fn spec(&self, Entry { content, host, own, .. }: Entry<PrivateKey>) -> Result<Box<dyn Spec>, String> {
        let accounts = (content.owner.as_ref(), content.group.as_ref());
        let key = KeyFile::new(&host, &content.file, content.key_type, content.mode(), accounts)?;
        Ok(Box::new(WantedKey { key, own }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, EARLIER_KEY]
    }
}

impl Spec for WantedKey {
    fn target(&self) -> String {
        self.key.file.clone()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        self.key.look().map(|found| Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        // The file is ours already.
        if self.own.join(NOTE).exists() {
            return Ok(None);
        }
        earlier::note(&self.key.path()?, &self.own, EARLIER_KEY).map(Some)
    }

    fn wanted(&self) -> Value {
        Value::Object(self.key.wanted())
    }

    fn of_use(&self) -> Result<(), String> {
        self.key.of_use()
    }

    fn hindered(&self) -> Result<(), String> {
        openssl::is_installed()
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.key.apply()
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        earlier::restore(&self.key.host, &self.key.file, &self.own, EARLIER_KEY, before.unwrap_or(&Value::Null))
    }

    fn exports(&self) -> Result<Values, String> {
        let path = self.key.path()?;
        let public =
            openssl::public_key(&path)?.ok_or_else(|| format!("{}: openssl reads no private key", path.display()))?;
        Ok([("public_key".to_owned(), canonical::json(&json!(public)))].into())
    }
}

impl Setting for CertificateSetting {
    type Content = Certificate;

    fn spec(&self, Entry { content, host, own, .. }: Entry<Certificate>) -> Result<Box<dyn Spec>, String> {
        let accounts = (content.owner.as_ref(), content.group.as_ref());
        let (key, imported) = match content.origin()? {
            Origin::Key(file) => {
                let key_type = content.key_type.unwrap_or_default();
                (Some(KeyFile::new(&host, file, key_type, content.mode(), accounts)?), None)
            }
            Origin::PublicKey(cob) => (None, imported(cob, "public_key")?),
            Origin::From(cob) => (None, imported(cob, "certificate")?),
        };
        let file = CertificateFile {
            host: host.clone(),
            file: content.file.clone(),
            on_renewal: content.on_renewal.clone(),
            own: own.clone(),
        };
        Ok(Box::new(WantedCertificate { host, content, file, key, imported, own }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, EARLIER, EARLIER_KEY, PUBLIC_KEY, EXTENSIONS, RENEWED]
    }
}

impl WantedCertificate {
    /// The public key of the certificate. `None`: it is not known now.
    fn public_key(&self) -> Result<Option<String>, String> {
        let private = match self.content.origin()? {
            Origin::PublicKey(_) => return Ok(self.imported.clone()),
            Origin::Key(file) => file,
            Origin::From(_) => match &self.content.key {
                Some(file) => file,
                None => return Ok(None),
            },
        };
        let path = place::real(&self.host, private)?;
        Ok(if path.exists() { openssl::public_key(&path)? } else { None })
    }

    /// The properties of a certificate in a text.
    fn look_at(&self, text: &str) -> Result<Map<String, Value>, String> {
        let content = &self.content;
        let Some(shown) = openssl::show(text)? else {
            return Ok(Map::from_iter([("certificate".to_owned(), json!("no certificate that openssl reads"))]));
        };
        let mut found = Map::new();
        let mut set = |key: &str, value: Value| found.insert(key.to_owned(), value);
        set("certificate", json!("there"));
        let renewal = match openssl::ends_within(text, content.renew_before())? {
            false => "not due".to_owned(),
            true => format!("due, for the certificate ends on {}", shown.ends),
        };
        set("renewal", json!(renewal));
        let is_expected = self.is_key_known();
        if is_expected {
            let is_for_it = self.public_key()?.is_some_and(|key| is_same(&key, &shown.public_key));
            set("for", json!(if is_for_it { "its key" } else { "another key" }));
        }
        match content.origin()? {
            Origin::From(_) => {
                if let Some(imported) = &self.imported {
                    set("text", json!(if is_same(imported, text) { "as exported" } else { "another text" }));
                }
            }
            Origin::Key(_) | Origin::PublicKey(_) => {
                set("subject", json!(shown.subject));
                set("names", json!(shown.names));
                set("usage", json!(shown.usage));
                set("authority", json!(shown.authority));
                set("signed_by", json!(self.signer_of(text, &shown)?));
            }
        }
        Ok(found)
    }

    /// Whether the key of the certificate can be compared.
    fn is_key_known(&self) -> bool {
        match self.content.origin() {
            Ok(Origin::Key(_)) => true,
            Ok(Origin::PublicKey(_)) => self.imported.is_some(),
            Ok(Origin::From(_)) => self.content.key.is_some(),
            Err(_) => false,
        }
    }

    /// The desired signer, in words.
    fn signer(&self) -> String {
        self.content.ca.as_ref().map_or_else(|| "its own key".to_owned(), |ca| ca.certificate.display().to_string())
    }

    /// The signer of a certificate, in words.
    fn signer_of(&self, text: &str, shown: &Shown) -> Result<String, String> {
        let is_right = match &self.content.ca {
            Some(ca) => openssl::is_signed_by(text, &ca.certificate)?,
            None => shown.subject == shown.issuer && openssl::is_signed_by(text, &self.file.path()?)?,
        };
        Ok(if is_right { self.signer() } else { format!("another key, that of {}", shown.issuer.join(", ")) })
    }

    /// The text of the new certificate, followed by the certificates of intermediate authorities.
    fn make(&self, public: &str) -> Result<String, String> {
        let (content, own) = (&self.content, &self.own);
        let is_rsa = openssl::type_of(public)?.starts_with("rsa");
        for (name, text) in [(PUBLIC_KEY, public.to_owned()), (EXTENSIONS, extensions(content, is_rsa))] {
            let written = durable::write_file(own, name, 0o600, text.as_bytes(), Sync::Later);
            written.map_err(|error| format!("{}: {error}", own.join(name).display()))?;
        }
        let private = self.key.as_ref().map(KeyFile::path).transpose()?;
        let signer = match (&content.ca, &private) {
            (Some(ca), _) => Signer::Authority(&ca.certificate, &ca.key),
            (None, Some(key)) => Signer::Own(key),
            (None, None) => return Err("content: no authority signs the certificate".to_owned()),
        };
        let made = openssl::make(&Order {
            public_key: &own.join(PUBLIC_KEY),
            extensions: &own.join(EXTENSIONS),
            subject: subject_of(content).iter().map(|(part, value)| format!("/{part}={}", escaped(value))).collect(),
            days: content.days(),
            signer,
        })?;
        [PUBLIC_KEY, EXTENSIONS].iter().try_for_each(|file| place::remove_all(&own.join(file)))?;
        let mut text = made;
        if let Some(ca) = &content.ca {
            let chain = fs::read_to_string(&ca.certificate);
            let chain = chain.map_err(|error| format!("{}: {error}", ca.certificate.display()))?;
            for one in openssl::all(&chain) {
                // Everyone who trusts the root has its certificate.
                if openssl::show(one)?.is_some_and(|shown| shown.subject != shown.issuer) {
                    text.push_str(one);
                    text.push('\n');
                }
            }
        }
        Ok(text)
    }

    /// The text of another certificate for the file, checked before it replaces the present certificate.
    fn next(&self) -> Result<String, String> {
        match self.content.origin()? {
            Origin::Key(file) => {
                let public = self.public_key()?.ok_or_else(|| format!("{file}: openssl reads no private key"))?;
                self.make(&public)
            }
            Origin::PublicKey(cob) => self.make(self.imported.as_ref().ok_or_else(|| not_exported(cob, "public_key"))?),
            Origin::From(cob) => {
                let text = self.imported.clone().ok_or_else(|| not_exported(cob, "certificate"))?;
                let found = self.look_at(&text)?;
                match self.wanted_certificate().iter().find(|(key, value)| found.get(*key) != Some(value)) {
                    None => Ok(text),
                    Some((key, _)) if key == "renewal" => Err(format!(
                        "{cob} has not renewed the certificate yet: the renewal is {}",
                        text_of(&found[key])
                    )),
                    Some((key, _)) if key == "for" => {
                        let file = self.content.key.as_deref().unwrap_or_default();
                        Err(format!("the certificate of {cob} is for another key than that in {file}"))
                    }
                    Some(_) => Err(format!("{cob} exports no certificate that openssl reads")),
                }
            }
        }
    }

    fn wanted_certificate(&self) -> Map<String, Value> {
        let content = &self.content;
        let mut wanted = Map::new();
        let mut set = |key: &str, value: Value| wanted.insert(key.to_owned(), value);
        set("certificate", json!("there"));
        set("renewal", json!("not due"));
        if self.is_key_known() {
            set("for", json!("its key"));
        }
        if content.from.is_some() {
            if self.imported.is_some() {
                set("text", json!("as exported"));
            }
            return wanted;
        }
        let subject = subject_of(content).iter().map(|(part, value)| format!("{part}={value}")).collect::<Vec<_>>();
        set("subject", json!(subject));
        set("names", json!(content.names.iter().map(|name| plain(name)).collect::<BTreeSet<_>>()));
        set("usage", json!(content.usage().into_iter().map(|usage| usage.names().1).collect::<BTreeSet<_>>()));
        set("authority", json!(content.authority));
        set("signed_by", json!(self.signer()));
        wanted
    }
}

impl Spec for WantedCertificate {
    fn target(&self) -> String {
        match &self.key {
            Some(key) => format!("{} for the key in {}", self.content.file, key.file),
            None => self.content.file.clone(),
        }
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = self.key.as_ref().map(KeyFile::look).transpose()?.unwrap_or_default();
        found.extend(match self.file.read()? {
            Ok(text) => self.look_at(&text)?,
            Err(is) => Map::from_iter([("certificate".to_owned(), json!(is))]),
        });
        if self.file.has_to_tell() {
            found.insert("on_renewal".to_owned(), json!("has not run"));
        }
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        self.file.before(self.key.as_ref())
    }

    fn wanted(&self) -> Value {
        let mut wanted = self.key.as_ref().map(KeyFile::wanted).unwrap_or_default();
        wanted.extend(self.wanted_certificate());
        Value::Object(wanted)
    }

    fn of_use(&self) -> Result<(), String> {
        self.key.as_ref().map_or(Ok(()), KeyFile::of_use)
    }

    fn hindered(&self) -> Result<(), String> {
        openssl::is_installed()
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if let Some(key) = &self.key
            && key.look()? != key.wanted()
        {
            key.apply()?;
        }
        let is_right = match self.file.read()? {
            Ok(text) => self.look_at(&text)? == self.wanted_certificate(),
            Err(_) => false,
        };
        if !is_right {
            self.file.put(&self.next()?)?;
        }
        self.file.tell()
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.file.restore(self.key.as_ref(), before)?;
        [PUBLIC_KEY, EXTENSIONS].iter().try_for_each(|file| place::remove_all(&self.own.join(file)))
    }

    fn exports(&self) -> Result<Values, String> {
        if self.content.from.is_some() {
            return Ok(Values::new());
        }
        let text = self.host.read(&self.content.file)?;
        Ok([("certificate".to_owned(), canonical::json(&json!(text)))].into())
    }
}

fn not_exported(cob: &str, name: &str) -> String {
    format!("{cob} exports no `{name}` to this change object; add `after: [{cob}]` beside `content`")
}

/// Whether two texts in PEM are the same, apart from blanks.
fn is_same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A name in the form that is equal for all spellings.
fn plain(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_owned(), |address| address.to_string())
}

/// The parts of the subject; without parts, the first name, because some programs show nothing else.
fn subject_of(content: &Certificate) -> Vec<(&'static str, &str)> {
    let parts: Vec<_> = content.parts().collect();
    match content.names.first().filter(|name| parts.is_empty() && name.len() <= 64) {
        Some(name) => vec![("CN", name)],
        None => parts,
    }
}

/// A value for the option `-subj`.
fn escaped(value: &str) -> String {
    value.chars().flat_map(|c| ['\\'].into_iter().filter(move |_| "\\/+=".contains(c)).chain([c])).collect()
}

/// The extensions of a new certificate, in the format of openssl.
fn extensions(content: &Certificate, is_rsa: bool) -> String {
    let (ca, usage) = match (content.authority, is_rsa) {
        (true, _) => ("TRUE", "keyCertSign,cRLSign"),
        (false, true) => ("FALSE", "digitalSignature,keyEncipherment"),
        (false, false) => ("FALSE", "digitalSignature"),
    };
    let mut text = format!(
        "basicConstraints=critical,CA:{ca}\nkeyUsage=critical,{usage}\nsubjectKeyIdentifier=hash\n\
         authorityKeyIdentifier=keyid\n"
    );
    let purposes: Vec<_> = content.usage().into_iter().map(|usage: Usage| usage.names().0).collect();
    if !purposes.is_empty() {
        text.push_str(&format!("extendedKeyUsage={}\n", purposes.join(",")));
    }
    let names = content.names.iter().map(|name| match name.parse::<IpAddr>() {
        Ok(address) => format!("IP:{address}"),
        Err(_) => format!("DNS:{name}"),
    });
    let names: Vec<_> = names.collect();
    if !names.is_empty() {
        let critical = if subject_of(content).is_empty() { "critical," } else { "" };
        text.push_str(&format!("subjectAltName={critical}{}\n", names.join(",")));
    }
    text
}
