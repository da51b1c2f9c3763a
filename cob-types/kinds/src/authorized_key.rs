//! The kind `authorized-key`: a public SSH key that opens an account.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{Builtin, Content, Faults, Footprint};

/// The content of `authorized-key`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorizedKey {
    /// The account; `/etc/passwd` has its home.
    pub user: String,
    /// The public key, as the line of a file `*.pub`: its type, the key in base64, and perhaps a comment.
    pub key: String,
    /// The options of the key, as sshd reads them: `restrict,command="backup"`.
    pub options: Option<String>,
    /// The comment; default: the comment in `key`.
    pub comment: Option<String>,
    /// The key must not open the account. Its earlier lines return when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// Its type, such as `ssh-ed25519`.
    pub sort: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The text behind it.
    pub comment: String,
}

impl Content for AuthorizedKey {
    const KIND: Builtin = Builtin::setting("authorized-key");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || ":/".contains(c);
        if self.user.is_empty() || self.user.contains(is_odd) {
            faults.add("user", format!("{:?} is not a user", self.user), "the name of an account");
        }
        if let Err((what, help)) = PublicKey::read(&self.key) {
            faults.add("key", what, help);
        }
        if let Some(why) = self.options.as_deref().and_then(fault_of_options) {
            let help = "write the options as in restrict,command=\"/usr/bin/backup\"";
            faults.add("options", format!("sshd can't read these options: {why}"), help);
        }
        if self.comment.as_ref().is_some_and(|comment| comment.contains(char::is_control)) {
            faults.add("comment", "the comment has several lines or control characters", "write a single line");
        }
        for (key, text) in [("options", &self.options), ("comment", &self.comment)] {
            if self.absent && text.is_some() {
                let what = format!("with `absent` no line is written, so `{key}` has no effect");
                faults.add(key, what, "remove the key");
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let Ok(key) = PublicKey::read(&self.key) else { return Footprint::default() };
        Footprint::of("authorized key of", format!("{}: {}", self.user, key.fingerprint()))
    }
}

impl AuthorizedKey {
    /// The line for `authorized_keys`, without its end.
    ///
    /// # Errors
    /// The fault of the key.
    pub fn line(&self) -> Result<String, String> {
        let key = PublicKey::read(&self.key).map_err(|(what, help)| format!("content: {what}; {help}"))?;
        let comment = self.comment.clone().unwrap_or_else(|| key.comment.clone());
        let parts = [self.options.clone().unwrap_or_default(), key.sort.clone(), STANDARD.encode(&key.bytes), comment];
        Ok(parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
    }
}

impl PublicKey {
    /// Reads the line of a file `*.pub`.
    ///
    /// # Errors
    /// The fault, without any part of the text, and the remedy: the text may be a private key.
    pub fn read(text: &str) -> Result<Self, (String, String)> {
        let fault = |what: &str, help: &str| Err((what.to_owned(), help.to_owned()));
        let text = text.trim();
        // The last form is the body of a private key of OpenSSH without its first line.
        if ["PRIVATE KEY", "PuTTY-User-Key-File", "b3BlbnNzaC1rZXktdjE"].iter().any(|sign| text.contains(sign)) {
            return fault(
                "`key` is a private key",
                "write the public key, from the file that ends with .pub; replace this private key, because the model \
                 has disclosed it",
            );
        }
        if text.contains("BEGIN SSH2 PUBLIC KEY") {
            return fault("`key` has the form of RFC 4716", "convert it: `ssh-keygen -i -f FILE`");
        }
        if text.contains(|c: char| c.is_control() && c != '\t') {
            return fault("`key` has several lines or control characters", "write a single key in a single line");
        }
        let Some((sort, encoded, comment)) = words(text) else {
            return fault("`key` is not an SSH key", "write it as in ssh-ed25519 AAAAC3… ada@laptop");
        };
        let is_known = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-sha2-"].iter().any(|begin| sort.starts_with(begin));
        if !is_known {
            return fault(
                "`key` does not begin with the type of an SSH key",
                "write the type first, for example ssh-ed25519, and options of the key into `options`",
            );
        }
        if sort.contains("-cert-v") {
            let help = "write the key of its authority, with `options: cert-authority`";
            return fault("`key` is a certificate, and sshd reads no certificates from this file", help);
        }
        let Ok(bytes) = STANDARD.decode(encoded) else {
            return fault(
                "`key` is not base64 behind its type",
                "copy the whole line from the file that ends with .pub",
            );
        };
        match fields(&bytes) {
            Some(fields) if fields.len() > 1 && fields[0] == sort.as_bytes() => {
                Ok(Self { sort: sort.to_owned(), bytes, comment: comment.to_owned() })
            }
            Some(fields) if fields.len() > 1 => fault(
                "`key` is a key of another type than the word in front of it",
                "copy the whole line from the file that ends with .pub",
            ),
            Some(_) | None => fault("`key` is cut off", "copy the whole line from the file that ends with .pub"),
        }
    }

    /// The key in a line of `authorized_keys`, and the options in front of it. `None`: a comment, or no key.
    #[must_use]
    pub fn in_line(line: &str) -> Option<(&str, Self)> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        if let Ok(key) = Self::read(line) {
            return Some(("", key));
        }
        let end = end_of_options(line)?;
        Some((&line[..end], Self::read(&line[end..]).ok()?))
    }

    /// Whether both are the same key.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }

    /// The hash that `ssh-keygen -l` shows.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&self.bytes)))
    }
}

/// The first two words, and the rest.
fn words(text: &str) -> Option<(&str, &str, &str)> {
    let (first, rest) = text.split_once([' ', '\t'])?;
    let rest = rest.trim_start();
    let (second, rest) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    Some((first, second, rest.trim()))
}

/// The fields of a public key: each has its length before it.
fn fields(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (field, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        fields.push(field);
        bytes = rest;
    }
    Some(fields)
}

/// The end of the options: the first blank outside quotes.
fn end_of_options(line: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    line.find(|c: char| {
        let is_end = !is_quoted && (c == ' ' || c == '\t');
        if c == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = c == '\\' && !is_escaped;
        is_end
    })
}

/// Why sshd would ignore the key with these options.
fn fault_of_options(options: &str) -> Option<String> {
    let mut rest = options;
    if rest.contains(char::is_control) {
        return Some("they have several lines or control characters".to_owned());
    }
    loop {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if name.is_empty() {
            return Some(format!("there is no name of an option at {rest:?}"));
        }
        rest = match behind.strip_prefix('=') {
            None => behind,
            Some(value) => {
                let Some(value) = value.strip_prefix('"') else {
                    return Some(format!("the value of {name} needs double quotes"));
                };
                let mut is_escaped = false;
                let end = value.find(|c: char| {
                    let is_end = c == '"' && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped;
                    is_end
                });
                match end {
                    Some(end) => &value[end + 1..],
                    None => return Some(format!("the value of {name} has no second double quote")),
                }
            }
        };
        if rest.is_empty() {
            return None;
        }
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some(format!("a comma must follow {name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK";

    #[test]
    fn a_key_is_found_behind_its_options() {
        let key = PublicKey::read(KEY).expect("a key");
        assert_eq!(key.fingerprint(), "SHA256:rZ30JKpLpUcRiICmmNpu8we2E3WOxW++ksyhn0DLpog");
        for (line, options) in [
            (KEY.to_owned(), ""),
            (format!("  {KEY} ada@laptop\r\n"), ""),
            (format!("restrict,command=\"a \\\" b\" {KEY}"), "restrict,command=\"a \\\" b\""),
            (format!("from=\"10.0.0.0/8\"\t{KEY} x y"), "from=\"10.0.0.0/8\""),
        ] {
            let (found, other) = PublicKey::in_line(&line).expect(&line);
            assert!(found == options && other.is(&key), "{line}");
        }
        for line in [format!("# {KEY}"), String::new(), "ssh-ed25519".to_owned(), format!("command=\"{KEY}\"")] {
            assert_eq!(PublicKey::in_line(&line), None, "{line}");
        }
    }

    #[test]
    fn an_error_message_does_not_reveal_a_private_key() {
        let secret = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ";
        for text in [
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{secret}\n-----END OPENSSH PRIVATE KEY-----\n"),
            secret.to_owned(),
            format!("ssh-ed25519 {secret}"),
        ] {
            let (what, help) = PublicKey::read(&text).expect_err("refused");
            assert!(what.contains("is a private key") && !format!("{what}{help}").contains("AAAA"), "{what}");
        }
        let (_, encoded) = KEY.split_once(' ').expect("two words");
        for (text, word) in [
            (format!("ssh-rsa {encoded}"), "another type"),
            (format!("ssh-ed25519 {}", &encoded[..40]), "cut off"),
            (format!("ssh-ed25519 {}", &encoded[..41]), "not base64"),
            (format!("restrict {KEY}"), "does not begin with the type"),
            (format!("{KEY}\n{KEY}"), "several lines"),
        ] {
            let (what, _) = PublicKey::read(&text).expect_err("refused");
            assert!(what.contains(word), "{text}: {what}");
        }
    }

    #[test]
    fn options_have_names_and_quoted_values() {
        for options in ["restrict", "no-pty,from=\"10.0.0.*\"", "command=\"echo \\\"a, b\\\"\",restrict"] {
            assert_eq!(fault_of_options(options), None, "{options}");
        }
        for options in ["", "restrict,", "a b", "command=x", "command=\"x", "command=\"x\" ", "# x", "a\nb", "a=\"\"b"]
        {
            assert!(fault_of_options(options).is_some(), "{options}");
        }
    }
}
