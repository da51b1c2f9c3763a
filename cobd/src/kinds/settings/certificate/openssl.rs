//! The program `openssl`: makes keys and certificates, and shows their properties.
//!
//! Certificates and public keys go through its standard input; of private keys only the path is passed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use cob_kinds::KeyType;
use cob_types::calendar;

use crate::kinds::native::{Ran, needs_program, random, run_bounded};

/// The beginning of a certificate in a text.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// The end of a certificate in a text.
const END: &str = "-----END CERTIFICATE-----";
/// The beginning of a line with the end of the validity.
const ENDS: &str = "notAfter=";

/// The dates of a certificate, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// The properties of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// The parts of the subject, such as `CN=web`.
    pub(super) subject: Vec<String>,
    /// The parts of the subject of the authority.
    pub(super) issuer: Vec<String>,
    /// The names of servers and the addresses.
    pub(super) names: BTreeSet<String>,
    /// The purposes, in the words of openssl.
    pub(super) usage: BTreeSet<String>,
    pub(super) authority: bool,
    /// The public key in PEM.
    pub(super) public_key: String,
    /// The end of the validity, for people.
    pub(super) ends: String,
}

/// What a certificate is signed with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signer<'a> {
    /// Its own private key.
    Own(&'a Path),
    /// An authority: the file of its certificate, and that of its private key.
    Authority(&'a Path, &'a Path),
}

/// The input of a new certificate.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// The file of the public key.
    pub(super) public_key: &'a Path,
    /// The file with the extensions.
    pub(super) extensions: &'a Path,
    pub(super) subject: String,
    pub(super) days: u32,
    pub(super) signer: Signer<'a>,
}

/// Whether a usable version is installed.
///
/// # Errors
/// The reason, with the name of the package.
pub(super) fn is_installed() -> Result<(), String> {
    needs_program("openssl", "openssl")?;
    let version = run(["version"], b"")?.ok()?;
    let major = version.split([' ', '.']).nth(1).and_then(|number| number.parse::<u32>().ok());
    match major {
        Some(major) if major < 3 => Err(format!("{}: certificates need OpenSSL 3.0 or newer", version.trim())),
        Some(_) | None => Ok(()),
    }
}

/// Makes a private key.
pub(super) fn new_key(key_type: KeyType) -> Result<String, String> {
    let (algorithm, option) = match key_type {
        KeyType::EcdsaP256 => ("EC", Some("ec_paramgen_curve:P-256")),
        KeyType::EcdsaP384 => ("EC", Some("ec_paramgen_curve:P-384")),
        KeyType::Ed25519 => ("ED25519", None),
        KeyType::Rsa2048 => ("RSA", Some("rsa_keygen_bits:2048")),
        KeyType::Rsa3072 => ("RSA", Some("rsa_keygen_bits:3072")),
        KeyType::Rsa4096 => ("RSA", Some("rsa_keygen_bits:4096")),
    };
    let options = option.into_iter().flat_map(|option| ["-pkeyopt", option]);
    run(["genpkey", "-quiet", "-algorithm", algorithm].into_iter().chain(options), b"")?.ok()
}

/// The public key of a private key. `None`: the file has no private key, or a key with a password.
pub(super) fn public_key(private: &Path) -> Result<Option<String>, String> {
    // An empty password keeps the program from asking for one.
    let words = ["pkey", "-passin", "pass:", "-pubout", "-in"].map(OsStr::new);
    let ran = run(words.into_iter().chain([private.as_os_str()]), b"")?;
    Ok((ran.code == Some(0)).then_some(ran.out))
}

/// The type of a public key: the name in a model, or else a description.
pub(super) fn type_of(public: &str) -> Result<String, String> {
    let text = run(["pkey", "-pubin", "-text", "-noout"], public.as_bytes())?.ok()?;
    let first = text.lines().next().unwrap_or_default();
    let bits = first.split_once('(').and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default();
    let curve = |name: &str| text.lines().any(|line| line.trim() == format!("ASN1 OID: {name}"));
    Ok(match () {
        () if first.starts_with("ED25519") => KeyType::Ed25519.name().to_owned(),
        () if curve("prime256v1") => KeyType::EcdsaP256.name().to_owned(),
        () if curve("secp384r1") => KeyType::EcdsaP384.name().to_owned(),
        () if text.contains("Modulus:") => format!("rsa{bits}"),
        () => first.trim_end_matches(':').to_owned(),
    })
}

/// The properties of the first certificate in a text. `None`: there is no certificate.
pub(super) fn show(text: &str) -> Result<Option<Shown>, String> {
    let Some(first) = all(text).next() else { return Ok(None) };
    let words = "x509 -noout -subject -issuer -enddate -pubkey -nameopt sep_multiline,utf8,sname \
                 -ext basicConstraints,extendedKeyUsage,subjectAltName";
    let ran = run(words.split_whitespace(), first.as_bytes())?;
    Ok(ran.ok().ok().map(|text| read(&text)))
}

/// The certificates in a text.
pub(super) fn all(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(BEGIN).filter_map(|(at, _)| Some(&text[at..at + text[at..].find(END)? + END.len()]))
}

/// Whether less than so many days of the validity are left.
pub(super) fn ends_within(text: &str, days: u32) -> Result<bool, String> {
    let seconds = (u64::from(days) * 24 * 3600).to_string();
    let ran = run(["x509", "-noout", "-checkend", seconds.as_str()], text.as_bytes())?;
    match ran.code {
        Some(0) => Ok(false),
        Some(1) if ran.out.contains("will expire") => Ok(true),
        Some(_) | None => Err(ran.complaint()),
    }
}

/// The dates of the first certificate in a text.
pub(super) fn validity(text: &str) -> Result<Validity, String> {
    let text = run("x509 -noout -dates -dateopt iso_8601".split(' '), text.as_bytes())?.ok()?;
    let date = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(seconds).ok_or_else(|| format!("openssl shows no date after {name:?}"))
    };
    Ok(Validity { begin: date("notBefore=")?, end: date(ENDS)? })
}

/// A time such as `2026-11-28 21:35:52Z`, in seconds since 1970.
fn seconds(text: &str) -> Option<u64> {
    let numbers: Option<Vec<u64>> = text.trim_end_matches('Z').split(['-', ' ', ':']).map(|n| n.parse().ok()).collect();
    let [year, month, day, hour, minute, second] = numbers?.try_into().ok()?;
    Some(calendar::days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Whether the key of a certificate in the file `authority` has signed the first certificate in a text.
pub(super) fn is_signed_by(text: &str, authority: &Path) -> Result<bool, String> {
    let words = "verify -partial_chain -check_ss_sig -no_check_time -no-CApath -no-CAstore -CAfile";
    let words = words.split_whitespace().map(OsStr::new).chain([authority.as_os_str()]);
    Ok(run(words, text.as_bytes())?.code == Some(0))
}

/// Makes a request for a certificate with these names, for the private key in a file.
pub(super) fn new_request(key: &Path, names: &[String]) -> Result<String, String> {
    let names: Vec<_> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let names = format!("subjectAltName={}", names.join(","));
    let words = ["req", "-new", "-passin", "pass:", "-subj", "/", "-addext", &names, "-key"].map(OsStr::new);
    run(words.into_iter().chain([key.as_os_str()]), b"")?.ok()
}

/// Makes a certificate.
pub(super) fn make(order: &Order<'_>) -> Result<String, String> {
    let (days, serial) = (order.days.to_string(), serial()?);
    let mut words: Vec<&OsStr> = ["x509", "-new", "-passin", "pass:", "-subj", &order.subject, "-days", &days]
        .into_iter()
        .chain(["-set_serial", &serial])
        .map(OsStr::new)
        .collect();
    words.extend([OsStr::new("-force_pubkey"), order.public_key.as_os_str()]);
    words.extend([OsStr::new("-extfile"), order.extensions.as_os_str()]);
    match order.signer {
        Signer::Own(key) => words.extend([OsStr::new("-signkey"), key.as_os_str()]),
        Signer::Authority(certificate, key) => {
            words.extend([OsStr::new("-CA"), certificate.as_os_str(), OsStr::new("-CAkey"), key.as_os_str()]);
        }
    }
    run(words, b"")?.ok()
}

/// A random serial number of 126 bits.
fn serial() -> Result<String, String> {
    let mut bytes = random::<16>()?;
    // The number is positive, and never shorter.
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    Ok(format!("0x{}", hex::encode(bytes)))
}

/// Runs the program to its end. A program that was killed has no answer: a key must not count as unreadable then.
fn run(words: impl IntoIterator<Item = impl AsRef<OsStr>>, input: &[u8]) -> Result<Ran, String> {
    let ran = run_bounded(Command::new("openssl").args(words).env("LC_ALL", "C.UTF-8"), input)?;
    if ran.code.is_some() { Ok(ran) } else { Err(ran.complaint()) }
}

/// Reads the output of [`show`].
fn read(text: &str) -> Shown {
    let mut shown = Shown::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut indented = || {
            let mut all = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
                all.push(line.trim().to_owned());
            }
            all
        };
        let listed = |lines: Vec<String>| lines.join(" ").split(", ").map(str::to_owned).collect::<BTreeSet<_>>();
        if line.starts_with("subject=") {
            shown.subject = indented();
        } else if line.starts_with("issuer=") {
            shown.issuer = indented();
        } else if line.starts_with("X509v3 Basic Constraints") {
            shown.authority = listed(indented()).contains("CA:TRUE");
        } else if line.starts_with("X509v3 Extended Key Usage") {
            shown.usage = listed(indented());
        } else if line.starts_with("X509v3 Subject Alternative Name") {
            shown.names = listed(indented()).iter().map(|name| plain_name(name)).collect();
        } else if let Some(ends) = line.strip_prefix(ENDS) {
            ends.clone_into(&mut shown.ends);
        } else if line.starts_with("-----BEGIN PUBLIC KEY") {
            let rest = lines.by_ref().take_while(|line| !line.starts_with("-----END"));
            let body = rest.collect::<Vec<_>>().join("\n");
            shown.public_key = format!("{line}\n{body}\n-----END PUBLIC KEY-----\n");
        }
    }
    shown
}

/// A name as in a model: openssl shows `DNS:web.example.org` and `IP Address:FD00:0:0:0:0:0:0:1`.
fn plain_name(name: &str) -> String {
    let address = name.strip_prefix("IP Address:").and_then(|address| address.parse::<IpAddr>().ok());
    match (address, name.strip_prefix("DNS:")) {
        (Some(address), _) => address.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => name.to_owned(),
    }
}
