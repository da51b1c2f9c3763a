//! Passwords of an LDAP directory (RFC 4511): the server takes the password for the user's own name, or refuses it.

use std::path::PathBuf;

use serde::Deserialize;

use super::settings::{is_local, read_secret};
use super::{curl, spelled};

/// The place of a user's name in a template.
const USER: &str = "{user}";
/// `curl`: the server refused the name or the password.
const LOGIN_DENIED: i32 = 67;

/// A directory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ldap {
    /// `ldaps://HOST[:PORT]`; `ldap://` on this machine alone, or with `start_tls`.
    url: String,
    /// The name of a user in the directory: `uid={user},ou=people,dc=example,dc=org`.
    #[serde(default)]
    user: Option<String>,
    /// How a user is found whose name in the directory does not follow from the user's name.
    #[serde(default)]
    search: Option<Search>,
    /// Whether the connection is encrypted after its begin.
    #[serde(default)]
    start_tls: bool,
    /// The certificates of authorities that the hub trusts for this server; default: those of the system.
    #[serde(default)]
    ca: Option<PathBuf>,
}

/// A search for users.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    /// The name of the entry below which users are.
    base: String,
    /// The filter (RFC 4515): `(&(objectClass=person)(mail={user}))`.
    filter: String,
    /// The name with which the hub searches; default: without a name.
    #[serde(default)]
    bind: Option<String>,
    /// The file with the password of this name.
    #[serde(default)]
    password_file: Option<PathBuf>,
}

impl Ldap {
    pub(super) fn check(&self) -> Result<(), String> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let host = rest.trim_end_matches('/');
        if !matches!(scheme, "ldap" | "ldaps") || host.is_empty() || host.contains(['/', '?', '@']) {
            return Err(format!("`url` is {:?}: write ldaps://HOST or ldaps://HOST:PORT", self.url));
        }
        if scheme == "ldap" && !self.start_tls && !is_local(host) {
            return Err(
                "`url` has no encryption, and passwords would be readable: write ldaps://, or `start_tls: true`"
                    .to_owned(),
            );
        }
        match (&self.user, &self.search) {
            (Some(user), None) if user.contains(USER) => Ok(()),
            (Some(_), None) => Err(format!("`user` does not contain {USER}")),
            (None, Some(search)) if !search.filter.contains(USER) => Err(format!("`filter` does not contain {USER}")),
            (None, Some(search)) if search.bind.is_some() != search.password_file.is_some() => {
                Err("`bind` and `password_file` belong together".to_owned())
            }
            (None, Some(search)) => search.password_file.as_deref().map_or(Ok(()), |file| read_secret(file).map(drop)),
            (None, None) | (Some(_), Some(_)) => Err("write `user` or `search`".to_owned()),
        }
    }

    /// Whether the directory takes the password.
    ///
    /// # Errors
    ///
    /// The directory can't be asked.
    pub(super) async fn is_right(&self, user: &str, password: &str) -> Result<bool, String> {
        let name = match (&self.user, &self.search) {
            (Some(template), _) => Some(template.replace(USER, &quoted(user))),
            (None, Some(search)) => self.find(search, user).await?,
            (None, None) => None,
        };
        // The work is the same for an unknown user.
        let (name, exists) = name.map_or((format!("cn={}", quoted(user)), false), |name| (name, true));
        // The root entry can be read with every name.
        let answer = self.ask("", "base", "(objectClass=*)", Some((&name, password))).await?;
        match answer.code {
            Some(0) => Ok(exists),
            Some(LOGIN_DENIED) => Ok(false),
            _ => Err(said(&answer)),
        }
    }

    /// The name of a user in the directory.
    async fn find(&self, search: &Search, user: &str) -> Result<Option<String>, String> {
        let password = search.password_file.as_deref().map(read_secret).transpose()?;
        let bind = search.bind.as_deref().zip(password.as_deref());
        let filter = search.filter.replace(USER, &quoted(user));
        let answer = self.ask(&search.base, "sub", &filter, bind).await?;
        match answer.code {
            Some(0) => {}
            Some(LOGIN_DENIED) => {
                return Err("the directory refuses the name of `bind`, or its password".to_owned());
            }
            _ => return Err(said(&answer)),
        }
        let text = String::from_utf8(answer.body).map_err(|_| "a name in the directory is not UTF-8".to_owned())?;
        let mut names = text.lines().filter_map(|line| line.strip_prefix("DN: "));
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(Some(name.to_owned())),
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(format!("`filter` finds several entries for {user:?}")),
        }
    }

    async fn ask(
        &self,
        base: &str,
        scope: &str,
        filter: &str,
        bind: Option<(&str, &str)>,
    ) -> Result<curl::Answer, String> {
        // RFC 4516; `1.1` stands for no attribute.
        let url = format!("{}/{}?1.1?{scope}?{}", self.url.trim_end_matches('/'), escaped(base), escaped(filter));
        let mut options = curl::options("=ldap,ldaps", &url, self.ca.as_deref());
        if self.start_tls {
            options = options.flag("ssl-reqd");
        }
        if let Some((name, password)) = bind {
            // `curl` takes what follows the first colon for the password.
            options = options.set("user", &format!("{}:{password}", name.replace(':', r"\3A")));
        }
        curl::run(&options).await
    }
}

fn said(answer: &curl::Answer) -> String {
    match answer.message.as_str() {
        "" => "curl was ended".to_owned(),
        message => message.to_owned(),
    }
}

/// A value in a name (RFC 4514, section 2.4) or in a filter (RFC 4515, section 3).
fn quoted(text: &str) -> String {
    spelled(text, "-_.@", '\\')
}

/// A part of an address (RFC 3986).
fn escaped(text: &str) -> String {
    spelled(text, "-_.~", '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ldap(text: &str) -> Result<(), String> {
        serde_json::from_str::<Ldap>(text).expect("a directory").check()
    }

    #[test]
    fn a_user_can_be_no_part_of_a_name_filter_or_address() {
        assert_eq!(quoted("a+b:c,d"), r"a\2Bb\3Ac\2Cd");
        assert_eq!(quoted("a*)(b"), r"a\2A\29\28b");
        assert_eq!(escaped("ou=a b,dc=x?y"), "ou%3Da%20b%2Cdc%3Dx%3Fy");
    }

    #[test]
    fn a_directory_without_encryption_is_refused() {
        for url in ["ldaps://example.org", "ldaps://example.org:636/", "ldap://127.0.0.1:389", "ldap://localhost"] {
            assert_eq!(ldap(&format!(r#"{{"url": "{url}", "user": "uid={{user}}"}}"#)), Ok(()), "{url}");
        }
        for url in ["ldap://example.org", "ldap://127.0.0.1.example.org", "http://127.0.0.1", "ldaps://", "ldaps://a/b"]
        {
            assert!(ldap(&format!(r#"{{"url": "{url}", "user": "uid={{user}}"}}"#)).is_err(), "{url}");
        }
        let started = r#"{"url": "ldap://example.org", "start_tls": true, "user": "uid={user}"}"#;
        assert_eq!(ldap(started), Ok(()));
    }

    #[test]
    fn a_directory_has_one_way_to_a_user() {
        let search = r#"{"base": "dc=x", "filter": "(uid={user})"}"#;
        let of = |rest: &str| ldap(&format!(r#"{{"url": "ldaps://x"{rest}}}"#));
        assert_eq!(of(&format!(r#", "search": {search}"#)), Ok(()));
        assert!(of("").is_err());
        assert!(of(r#", "user": "uid=ann""#).is_err());
        assert!(of(&format!(r#", "user": "uid={{user}}", "search": {search}"#)).is_err());
        assert!(of(r#", "search": {"base": "dc=x", "filter": "(uid=ann)"}"#).is_err());
        assert!(of(r#", "search": {"base": "dc=x", "filter": "(uid={user})", "bind": "cn=a"}"#).is_err());
    }
}
