//! The kind `certificate`: an X.509 certificate in a file, which is renewed before it ends.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::{CobId, Command};
use schemars::JsonSchema;
use serde::Deserialize;

use super::commands::CommandSchema;
use super::exec::is_empty;
use super::private_key::{check_key_mode, key_mode};
use super::source;
use super::{Builtin, Content, Faults, Footprint, KeyType, Place, TIMEOUT_MS};

/// The longest validity, in days.
const MAX_DAYS: u32 = 36_500;
/// The most names.
const MAX_NAMES: usize = 500;
/// The longest value of a part of the subject.
const MAX_PART: usize = 64;

/// The content of `certificate`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The file of the certificate: an absolute path. Certificates of intermediate authorities follow in it.
    pub file: String,
    /// The file of the private key, which is made if it is missing. With `from`: another change object makes it.
    pub key: Option<String>,
    /// The type of the key; default: ecdsa-p256.
    pub key_type: Option<KeyType>,
    /// The subject: `{CN: web.example.org, O: Example}`.
    #[serde(default)]
    pub subject: BTreeMap<String, String>,
    /// Names of servers, such as web.example.org or *.example.org, and addresses.
    #[serde(default)]
    pub names: Vec<String>,
    /// The purposes; default: [server].
    pub usage: Option<Vec<Usage>>,
    /// Whether the certificate is that of an authority, which signs others.
    #[serde(default)]
    pub authority: bool,
    /// The authority on this host that signs; default: the certificate is signed with its own key.
    pub ca: Option<Authority>,
    /// A change object that exports `public_key`, usually a `private-key` of another host: its key gets the certificate.
    pub public_key: Option<String>,
    /// A change object that exports `certificate`: its certificate is put into the file.
    pub from: Option<String>,
    /// The validity in days; default: 90, of an authority 3650.
    pub days: Option<u32>,
    /// How many days before its end the certificate is renewed; default: 30, with `from` 15, of an authority 365.
    pub renew_before: Option<u32>,
    /// Runs after another certificate was put into the file, for example `systemctl reload nginx`.
    #[schemars(with = "Option<CommandSchema>")]
    pub on_renewal: Option<Command>,
    /// The mode of the private key, in quotes; default: "0600".
    #[schemars(extend("x-mode" = true, "x-what" = "a file mode in quotes"))]
    pub mode: Option<String>,
    /// The owner of the private key, a name or a number; default: the daemon's user.
    pub owner: Option<String>,
    /// The group of the private key, a name or a number; default: the daemon's group.
    pub group: Option<String>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// An authority with its key on this host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// The file of its certificate.
    pub certificate: PathBuf,
    /// The file of its private key.
    pub key: PathBuf,
}

/// A purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Usage {
    /// A TLS server.
    Server,
    /// A TLS client.
    Client,
    /// Signatures of programs.
    CodeSigning,
    /// Mail.
    Email,
}

/// The place from which a certificate comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// It is made for the private key in this file.
    Key(&'a str),
    /// It is made for the public key that this change object exports.
    PublicKey(&'a str),
    /// This change object exports it.
    From(&'a str),
}

impl Usage {
    /// The name of the program `openssl`, and the words in which it shows the purpose.
    #[must_use]
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Server => ("serverAuth", "TLS Web Server Authentication"),
            Self::Client => ("clientAuth", "TLS Web Client Authentication"),
            Self::CodeSigning => ("codeSigning", "Code Signing"),
            Self::Email => ("emailProtection", "E-mail Protection"),
        }
    }
}

impl Certificate {
    /// The parts of a subject, in their usual order.
    pub const PARTS: [&'static str; 6] = ["C", "ST", "L", "O", "OU", "CN"];

    /// The place from which it comes.
    ///
    /// # Errors
    /// The content names no place or several places.
    pub fn origin(&self) -> Result<Origin<'_>, String> {
        match (&self.key, &self.public_key, &self.from) {
            (_, None, Some(from)) => Ok(Origin::From(from)),
            (None, Some(of), None) => Ok(Origin::PublicKey(of)),
            (Some(key), None, None) => Ok(Origin::Key(key)),
            (None, None, None) => Err("content: it needs `key`, `public_key` or `from`".to_owned()),
            (_, Some(_), _) => Err("content: `public_key` excludes `key` and `from`".to_owned()),
        }
    }

    /// The parts of the subject with their values, in their usual order.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        Self::PARTS.into_iter().filter_map(|part| Some((part, self.subject.get(part)?.as_str())))
    }

    /// The purposes, without doubles.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let default = || if self.authority { Vec::new() } else { vec![Usage::Server] };
        let mut usage = self.usage.clone().unwrap_or_else(default);
        usage.sort();
        usage.dedup();
        usage
    }

    /// The validity in days.
    #[must_use]
    pub fn days(&self) -> u32 {
        self.days.unwrap_or(if self.authority { 3650 } else { 90 })
    }

    /// How many days before its end it is renewed.
    #[must_use]
    pub fn renew_before(&self) -> u32 {
        let default = || match (self.from.is_some(), self.authority) {
            (true, _) => 15,
            (false, true) => 365,
            (false, false) => 30,
        };
        self.renew_before.unwrap_or_else(|| default().min(self.days() / 3))
    }

    /// The mode of the private key. `None`: it is not a mode.
    #[must_use]
    pub fn mode(&self) -> Option<u32> {
        key_mode(self.mode.as_deref())
    }

    fn check_origin(&self, faults: &mut Faults) {
        let help = "write `key` with the file of the private key; with `public_key`, the certificate of another \
                    host's key is made; with `from`, the certificate of another change object is used";
        if let Err(why) = self.origin() {
            let what = why.trim_start_matches("content: ").to_owned();
            faults.add(if self.public_key.is_some() { "public_key" } else { "file" }, what, help);
        }
        for (key, cob) in [("public_key", &self.public_key), ("from", &self.from)] {
            if let Some(cob) = cob.as_ref().filter(|cob| CobId::new(cob).is_err()) {
                let what = format!("{cob:?} is not a change object");
                faults.add(key, what, "write HOST/NAME or HOST/SERVICE/NAME, as `cobgen show` prints it");
            }
        }
        if self.public_key.is_some() && self.ca.is_none() {
            let help = "write `ca: {certificate: FILE, key: FILE}`, files of this host";
            faults.add("public_key", "no authority signs the certificate of another host's key", help);
        }
        let of_key = [
            ("key_type", self.key_type.is_some()),
            ("mode", self.mode.is_some()),
            ("owner", self.owner.is_some()),
            ("group", self.group.is_some()),
        ];
        let of_making = [
            ("subject", !self.subject.is_empty()),
            ("names", !self.names.is_empty()),
            ("usage", self.usage.is_some()),
            ("authority", self.authority),
            ("ca", self.ca.is_some()),
            ("days", self.days.is_some()),
        ];
        let makes_no_key = self.public_key.is_some() || self.from.is_some();
        for (key, _) in of_key.into_iter().filter(|(_, given)| *given && makes_no_key) {
            faults.add(key, format!("`{key}` is about a private key that is made elsewhere"), "remove it");
        }
        for (key, _) in of_making.into_iter().filter(|(_, given)| *given && self.from.is_some()) {
            faults.add(key, format!("`{key}` is about a certificate that is made elsewhere"), "remove it");
        }
    }

    fn check_names(&self, faults: &mut Faults) {
        for (part, value) in &self.subject {
            if !Self::PARTS.contains(&part.as_str()) {
                let what = format!("{part:?} is not a part of a subject");
                faults.add(("subject", part), what, format!("the parts are {}", Self::PARTS.join(", ")));
            }
            let is_country = part != "C" || (value.len() == 2 && value.bytes().all(|b| b.is_ascii_uppercase()));
            let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
            let is_right = !value.is_empty() && value.len() <= MAX_PART && value.chars().all(is_plain);
            if !is_right || value.trim() != value || !is_country {
                let what = format!("{value:?} can't be the part {part} of a subject");
                let help = "at most 64 ASCII characters; `C` is a country with two capital letters";
                faults.add(Place::Value("subject", part.clone()), what, help);
            }
        }
        if self.from.is_none() && self.subject.is_empty() && self.names.is_empty() {
            faults.add(
                "file",
                "the certificate has neither `names` nor a `subject`",
                "write `names: [web.example.org]`",
            );
        }
        if self.names.len() > MAX_NAMES {
            faults.add("names", format!("there are more than {MAX_NAMES} names"), "remove some names");
        }
        for name in self.names.iter().filter(|name| !is_name(name)) {
            let help = "write names like web.example.org or *.example.org, and addresses";
            faults.add(("names", name), format!("{name:?} is neither a name of a server nor an address"), help);
        }
    }
}

/// Checks the command after a renewal.
pub(super) fn check_renewal(command: Option<&Command>, root: Option<&PathBuf>, faults: &mut Faults) {
    if command.is_some_and(is_empty) {
        faults.add_as("empty-command", "on_renewal", "`on_renewal` is empty", "write a command, or remove the key");
    }
    if command.is_some() && root.is_some() {
        faults.add("on_renewal", "no command can run on a host that is still a folder", "remove `on_renewal`");
    }
}

/// Whether a certificate may have this name.
pub(super) fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_letter) && !label.starts_with('-')
    };
    let is_of_names = name.len() <= 253 && name.strip_prefix("*.").unwrap_or(name).split('.').all(is_label);
    name.parse::<IpAddr>().is_ok() || is_of_names
}

impl Content for Certificate {
    // A check runs a few programs, and a long key takes a while.
    const KIND: Builtin =
        Builtin { interval_ms: Some(600_000), timeout_ms: TIMEOUT_MS, ..Builtin::setting("certificate") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("file", &self.file, faults);
        if let Some(key) = &self.key {
            source::check_place("key", key, faults);
            if *key == self.file {
                faults.add("key", "the private key and the certificate have the same file", "name two files");
            }
        }
        self.check_origin(faults);
        self.check_names(faults);
        check_key_mode(self.mode.as_ref(), faults);
        source::check_owner(self.owner.as_ref(), self.group.as_ref(), faults);
        if let Some(ca) = &self.ca {
            for (key, path) in [("certificate", &ca.certificate), ("key", &ca.key)] {
                if !path.is_absolute() {
                    let what = format!("`{key}` of the authority must be an absolute path");
                    faults.add(Place::Value("ca", key.to_owned()), what, "write it from the root");
                }
            }
        }
        if !(1..=MAX_DAYS).contains(&self.days()) {
            let what = format!("a certificate can't be valid for {} days", self.days());
            faults.add("days", what, format!("write a number from 1 to {MAX_DAYS}"));
        } else if self.from.is_none() && self.renew_before() >= self.days() {
            let (before, days) = (self.renew_before(), self.days());
            let what =
                format!("a certificate of {days} days would be renewed again at once, {before} days before its end");
            faults.add("renew_before", what, "write fewer days than `days`");
        }
        check_renewal(self.on_renewal.as_ref(), self.root.as_ref(), faults);
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let key = self.key.clone().filter(|_| self.from.is_none());
        Footprint::of("file", &self.file).with_own([self.file.clone()]).with_own(key)
    }
}
