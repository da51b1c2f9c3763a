//! Keys that kinds with files from elsewhere share: addresses, checksums, sizes and places.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use http::Uri;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::{Faults, Place};

/// The most mirrors of a file.
const MAX_MIRRORS: usize = 16;
/// The longest path, as in Linux, less the names that a transition adds.
const MAX_PATH: usize = 4000;
/// The longest name in a folder, less the beginning and the end that a transition adds.
const MAX_NAME: usize = 230;

/// Folders that programs share.
const SHARED_FOLDERS: [&str; 13] = [
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/share",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/spool",
];

/// A size: `"500M"`, `"2G"`, or a number of bytes. A unit is a power of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// A number of GiB.
    #[must_use]
    pub const fn gib(number: u64) -> Self {
        Self(number << 30)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match [(30, "GiB"), (20, "MiB"), (10, "KiB")]
            .iter()
            .find(|(bits, _)| self.0 > 0 && self.0.is_multiple_of(1 << bits))
        {
            Some((bits, unit)) => write!(f, "{} {unit}", self.0 >> bits),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "x-what": "a size, such as `500M`, `2G` or a number of bytes",
        })
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size like \"500M\", \"2G\" or a number of bytes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let bits = match &text[digits.len()..] {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        };
        let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << bits));
        size.map(Size).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        u64::try_from(bytes).map(Size).map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
    }
}

/// All addresses, in the order of the attempts.
pub(super) fn addresses<'a>(url: Option<&'a String>, urls: &'a [String]) -> Vec<&'a str> {
    url.into_iter().chain(urls).map(String::as_str).collect()
}

/// Checks `url`, `urls`, `proxy` and `netrc`.
pub(super) fn check_addresses(
    (url, urls): (Option<&String>, &[String]),
    proxy: Option<&String>,
    netrc: Option<&PathBuf>,
    faults: &mut Faults,
) {
    if url.is_some() && !urls.is_empty() {
        faults.add(
            "urls",
            "`url` and `urls` are both given",
            "write all addresses into `urls`, the best address first",
        );
    }
    if urls.len() > MAX_MIRRORS {
        faults.add("urls", format!("there are more than {MAX_MIRRORS} addresses"), "remove some addresses");
    }
    let single = url.into_iter().map(|url| (Place::Key("url"), url));
    let mirrors = urls.iter().map(|url| (Place::Part("urls", url.clone()), url));
    for (place, url) in single.chain(mirrors) {
        if let Err(why) = address(url, &["https", "http"]) {
            let help = "write https://HOST/PATH; user and password belong into a file that `netrc` names";
            faults.add_as("bad-url", place, format!("{:?} can't be downloaded: {why}", without_user(url)), help);
        }
    }
    if let Some(proxy) = proxy
        && let Err(why) = address(proxy, &["http", "https", "socks5", "socks5h"])
    {
        let what = format!("{:?} is not a proxy: {why}", without_user(proxy));
        faults.add_as("bad-url", "proxy", what, "write http://HOST:PORT");
    }
    faults.check_absolute("netrc", netrc);
}

/// Checks that an address has one of these schemes and a host.
pub(super) fn address(text: &str, schemes: &[&str]) -> Result<(), String> {
    let uri: Uri = text.parse().map_err(|_| "it does not have the form of a URL".to_owned())?;
    if !uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)) {
        return Err(format!("it must begin with {}://", schemes.join(":// or ")));
    }
    let authority = uri.authority().filter(|it| !it.host().is_empty()).ok_or("it names no host")?;
    if authority.as_str().contains('@') {
        return Err("it contains a user, and all readers of the model would see the password".to_owned());
    }
    // A backslash or quote would need care in every program that reads the address.
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || ['"', '\\'].contains(&c);
    if text.contains(is_odd) { Err("it contains quotes, backslashes or blanks".to_owned()) } else { Ok(()) }
}

/// An address without user and password, for messages.
#[must_use]
pub fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, host)) if !scheme.is_empty() => {
            format!("{scheme}://…@{host}{}", &rest[user.len() + 1 + host.len()..])
        }
        Some(_) | None => url.to_owned(),
    }
}

/// Checks a SHA-256 checksum in hexadecimal.
pub(super) fn check_sha256(sha256: Option<&String>, faults: &mut Faults) {
    if let Some(sum) = sha256.filter(|sum| sum.len() != 64 || !sum.bytes().all(|b| b.is_ascii_hexdigit())) {
        let what = format!("{sum:?} is not a SHA-256 checksum");
        faults.add("sha256", what, "64 hexadecimal digits, as `sha256sum FILE` prints");
    }
}

/// Checks the place of a file or folder that a change object makes.
pub(super) fn check_place(key: &'static str, path: &str, faults: &mut Faults) {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && part.len() <= MAX_NAME;
    let is_path = path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_plain));
    if !is_path || path.len() > MAX_PATH || path.chars().any(char::is_control) {
        let what = format!("{path:?} is not a place for a file or folder");
        faults.add(key, what, "write it from the root, without `..` and without a slash at its end: /srv/x");
    }
}

/// Checks the place of a folder that a change object makes with everything in it.
pub(super) fn check_whole_folder(key: &'static str, path: &str, faults: &mut Faults) {
    check_place(key, path, faults);
    let is_shared = SHARED_FOLDERS.contains(&path) || !path.trim_start_matches('/').contains('/');
    if is_shared && path.starts_with('/') {
        let what = format!("{path:?} has files of others, and the whole folder would be replaced");
        faults.add(key, what, "name a folder of its own, for example /opt/x");
    }
}

/// A mode as a number. `None`: it is not a mode.
pub(super) fn mode(mode: &str) -> Option<u32> {
    let is_octal = (3..=4).contains(&mode.len()) && mode.bytes().all(|b| (b'0'..=b'7').contains(&b));
    u32::from_str_radix(mode, 8).ok().filter(|_| is_octal)
}

/// Checks a mode.
pub(super) fn check_mode(text: Option<&String>, faults: &mut Faults) {
    if let Some(text) = text.filter(|text| mode(text).is_none()) {
        faults.add("mode", format!("{text:?} is not a file mode"), "three or four octal digits, as in \"0644\"");
    }
}

/// Checks the names of an owner and a group.
pub(super) fn check_owner(owner: Option<&String>, group: Option<&String>, faults: &mut Faults) {
    for (key, name) in [("owner", owner), ("group", group)] {
        let is_odd = |name: &str| name.is_empty() || name.starts_with('-') || name.contains([':', ' ', '\n', '\t']);
        if let Some(name) = name.filter(|name| is_odd(name)) {
            faults.add(key, format!("{name:?} is not an account or group"), "the name of an account, or its number");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_all_forms() {
        let read = |text: &str| serde_json::from_str::<Size>(text);
        for (text, size) in [("\"500M\"", 500 << 20), ("\"2G\"", 2 << 30), ("12", 12), ("\"7\"", 7)] {
            assert_eq!(read(text).expect(text), Size(size), "{text}");
        }
        for text in ["\"2 GB\"", "-1", "\"\"", "1.5", "\"99999999T\"", "[]"] {
            assert!(read(text).expect_err(text).to_string().contains("500M"), "{text}");
        }
        let shown = [Size::gib(1), Size(3 << 20), Size(1000), Size(0)].map(|size| size.to_string());
        assert_eq!(shown, ["1 GiB", "3 MiB", "1000 bytes", "0 bytes"]);
    }

    #[test]
    fn messages_show_no_password() {
        assert_eq!(without_user("https://me:secret@h/x@y"), "https://…@h/x@y");
        assert_eq!(without_user("https://h/x@y"), "https://h/x@y");
        let mut faults = Faults::default();
        check_addresses((Some(&"https://me:secret@h/".to_owned()), &[]), None, None, &mut faults);
        assert!(faults.first().is_err_and(|why| why.contains("netrc") && !why.contains("secret")));
    }
}
