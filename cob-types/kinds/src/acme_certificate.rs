//! The kind `acme-certificate`: a certificate from an ACME server (RFC 8555), which is renewed before it ends.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::{CobId, Command};
use schemars::JsonSchema;
use serde::Deserialize;

use super::certificate::{check_renewal, is_name};
use super::commands::{CommandSchema, check_variables};
use super::form::Scalar;
use super::private_key::{check_key_mode, key_mode};
use super::source;
use super::{Builtin, Content, Faults, Footprint, KeyType, Place, TIMEOUT_MS};

/// The most names of a certificate, as on public servers.
const MAX_NAMES: usize = 100;
/// The longest time between renewal and end, in days.
const MAX_DAYS: u32 = 365;

/// The content of `acme-certificate`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcmeCertificate {
    /// The URL of the server's directory, such as <https://acme-v02.api.letsencrypt.org/directory>.
    pub server: String,
    /// A file with the certificates that the server's own TLS certificate is checked with; default: those of the
    /// system.
    pub server_ca: Option<PathBuf>,
    /// The mail address of the account. All change objects of a host with this server and address share an account.
    pub mail: String,
    /// Whether the terms of service of the server are accepted: `true`.
    pub accept_terms: bool,
    /// The names of servers, such as web.example.org; with a challenge of DNS also *.example.org.
    pub names: Vec<String>,
    /// The proof that the host controls the names.
    pub challenge: Challenge,
    /// The file of the certificate: an absolute path. The certificates of intermediate authorities follow in it.
    pub file: String,
    /// The file of the private key.
    pub key: String,
    /// A file for the certificates of intermediate authorities alone.
    pub chain: Option<String>,
    /// The type of the key; default: ecdsa-p256.
    #[serde(default)]
    pub key_type: KeyType,
    /// How many days before its end the certificate is renewed; default: 30, at most a third of the validity.
    pub renew_before: Option<u32>,
    /// Runs after another certificate was put into the file, for example `systemctl reload nginx`.
    #[schemars(with = "Option<CommandSchema>")]
    pub on_renewal: Option<Command>,
    /// Variables of the client and of the program of the challenge; numbers, as they are written, and truth values
    /// become texts.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Scalar>", extend("x-texts" = true))]
    pub env: BTreeMap<String, String>,
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

/// The proof that a host controls names: one of the first four keys.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// HTTP: the folder that a web server on port 80 of the names shows.
    pub webroot: Option<PathBuf>,
    /// HTTP: the client listens on this port itself, as long as a request lasts.
    pub port: Option<u16>,
    /// DNS: a program that sets and removes a record: `PROGRAM present|cleanup NAME VALUE`.
    pub hook: Option<PathBuf>,
    /// DNS: a provider that the client knows, such as `hetzner`; `env` has its variables.
    pub provider: Option<String>,
    /// With `hook` or `provider`: the DNS servers that are asked, as HOST:PORT; default: those of the system.
    #[serde(default)]
    pub resolvers: Vec<String>,
    /// With `hook` or `provider`: whether the client waits until all name servers have the record; default: true.
    pub wait: Option<bool>,
}

/// How the proof is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof<'a> {
    /// A file in this folder.
    Webroot(&'a PathBuf),
    /// A server on this port.
    Port(u16),
    /// A record that this program sets.
    Hook(&'a PathBuf),
    /// A record that the client sets at this provider.
    Provider(&'a str),
}

impl Challenge {
    /// How the proof is given. `None`: the content names no way, or several.
    #[must_use]
    pub fn proof(&self) -> Option<Proof<'_>> {
        let ways = [
            self.webroot.as_ref().map(Proof::Webroot),
            self.port.map(Proof::Port),
            self.hook.as_ref().map(Proof::Hook),
            self.provider.as_deref().map(Proof::Provider),
        ];
        let mut given = ways.into_iter().flatten();
        given.next().filter(|_| given.next().is_none())
    }

    fn check(&self, names: &[String], faults: &mut Faults) {
        let at = |key: &str| Place::Value("challenge", key.to_owned());
        let Some(proof) = self.proof() else {
            let help =
                "write `{webroot: /var/www/html}`, `{port: 80}`, `{hook: /path/of/program}` or `{provider: NAME}`";
            faults.add("challenge", "`challenge` names no proof or several proofs", help);
            return;
        };
        let (is_dns, path) = match proof {
            Proof::Webroot(path) => (false, Some(("webroot", path))),
            Proof::Port(port) => {
                if port == 0 {
                    faults.add(at("port"), "0 is not a port", "public servers ask on port 80");
                }
                (false, None)
            }
            Proof::Hook(path) => (true, Some(("hook", path))),
            Proof::Provider(name) => {
                let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                if name.is_empty() || !name.bytes().all(is_plain) || ["exec", "manual"].contains(&name) {
                    let what = format!("{name:?} is not a provider");
                    faults.add(at("provider"), what, "`lego dnshelp` lists the providers; a program is a `hook`");
                }
                (true, None)
            }
        };
        if let Some((key, path)) = path.filter(|(_, path)| !path.is_absolute()) {
            let what = format!("{:?} must be an absolute path", path.display().to_string());
            faults.add(at(key), what, "write it from the root");
        }
        for (key, _) in [("resolvers", !self.resolvers.is_empty()), ("wait", self.wait.is_some())]
            .iter()
            .filter(|(_, given)| *given)
        {
            if !is_dns {
                faults.add(at(key), format!("`{key}` is about a challenge of DNS"), "remove it");
            }
        }
        for resolver in &self.resolvers {
            let port =
                resolver.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) || resolver.contains(char::is_whitespace) {
                faults.add(at("resolvers"), format!("{resolver:?} is not a DNS server"), "write HOST:PORT");
            }
        }
        for name in names.iter().filter(|name| name.starts_with("*.") && !is_dns) {
            let help = "use `hook` or `provider`: a server accepts no other proof for such names";
            faults.add(("names", name), format!("{name:?} needs a challenge of DNS"), help);
        }
    }
}

impl AcmeCertificate {
    /// How many days before its end it is renewed.
    #[must_use]
    pub fn renew_before(&self) -> u32 {
        self.renew_before.unwrap_or(30)
    }

    /// The mode of the private key. `None`: it is not a mode.
    #[must_use]
    pub fn mode(&self) -> Option<u32> {
        key_mode(self.mode.as_deref())
    }

    fn check_names(&self, faults: &mut Faults) {
        if self.names.is_empty() {
            faults.add("names", "the certificate has no names", "write `names: [web.example.org]`");
        }
        if self.names.len() > MAX_NAMES {
            faults.add(
                "names",
                format!("there are more than {MAX_NAMES} names"),
                "divide the names among several change objects",
            );
        }
        for name in &self.names {
            if name.parse::<IpAddr>().is_ok() {
                let help = "the client `lego` of Debian 12 asks for names alone; the kind `certificate` has addresses";
                faults.add(("names", name), format!("{name:?} is an address"), help);
            } else if !is_name(name) {
                let help = "write names like web.example.org or *.example.org";
                faults.add(("names", name), format!("{name:?} is not a name of a server"), help);
            }
        }
    }

    fn check_files(&self, faults: &mut Faults) {
        let files = [("file", Some(&self.file)), ("key", Some(&self.key)), ("chain", self.chain.as_ref())];
        let files: Vec<_> = files.into_iter().filter_map(|(key, path)| Some((key, path?))).collect();
        for (at, (key, path)) in files.iter().enumerate() {
            source::check_place(key, path, faults);
            if let Some((other, _)) = files[..at].iter().find(|(_, other)| other == path) {
                faults.add(*key, format!("`{key}` and `{other}` name the same file"), "name two files");
            }
        }
        faults.check_absolute("server_ca", self.server_ca.as_ref());
        faults.check_absolute("root", self.root.as_ref());
    }
}

impl Content for AcmeCertificate {
    // A request may wait for a DNS server, or for the request of another change object. A server counts failed requests,
    // so that the second attempt has time.
    const KIND: Builtin = Builtin {
        interval_ms: Some(600_000),
        timeout_ms: 2 * TIMEOUT_MS,
        retry_delay_ms: 40_000,
        ..Builtin::setting("acme-certificate")
    };

    fn check(&self, faults: &mut Faults) {
        if let Err(why) = source::address(&self.server, &["https"]) {
            let what = format!("{:?} is not a server: {why}", source::without_user(&self.server));
            let help = "write the URL of its directory, such as https://acme-v02.api.letsencrypt.org/directory";
            faults.add_as("bad-url", "server", what, help);
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._%+-".contains(c);
        let is_host = |host: &str| is_name(&host.to_lowercase()) && !host.starts_with('*');
        let mail = self.mail.split_once('@').filter(|(user, host)| !user.is_empty() && is_host(host));
        if !mail.is_some_and(|(user, _)| user.chars().all(is_plain) && !user.starts_with(['.', '-'])) {
            faults.add("mail", format!("{:?} is not a mail address", self.mail), "write NAME@HOST");
        }
        if !self.accept_terms {
            let what = "an ACME server gives certificates only to users who accept its terms of service";
            faults.add("accept_terms", what, "read the terms of the server, and write `accept_terms: true`");
        }
        self.check_names(faults);
        self.challenge.check(&self.names, faults);
        self.check_files(faults);
        check_key_mode(self.mode.as_ref(), faults);
        source::check_owner(self.owner.as_ref(), self.group.as_ref(), faults);
        check_variables(&self.env, faults);
        if !(1..=MAX_DAYS).contains(&self.renew_before()) {
            let what = format!("{} is not a number of days before the end", self.renew_before());
            faults.add("renew_before", what, format!("write a number from 1 to {MAX_DAYS}"));
        }
        check_renewal(self.on_renewal.as_ref(), self.root.as_ref(), faults);
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let files = [self.file.clone(), self.key.clone()];
        Footprint::of("file", &self.file).with_own(files).with_own(self.chain.clone())
    }
}
