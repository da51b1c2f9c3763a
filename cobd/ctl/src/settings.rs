//! Settings for every command besides the command line: `cobctl.toml`, the operator's key and token, and the trusted
//! publishers.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cob_trust::tls::Identity;
use cob_trust::{KeyFileError, Publishers, SecretKey};
use cob_types::PublicKey;
use hyper::header::HeaderValue;
use serde::Deserialize;

use crate::args::Global;
use crate::failure::Failure;

/// The names of the files in the configuration folder.
const FILE: &str = "cobctl.toml";
const KEY: &str = "operator.key";
/// The longest token file that is read, in bytes.
const MAX_TOKEN: u64 = 1 << 10;

/// The settings that were found.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The depot's folder.
    pub depot: Option<PathBuf>,
    /// The trusted publishers; `None`: every generation of the depot is trusted.
    pub trust: Option<Publishers>,
    /// The path of the operator's key, whether or not it exists.
    pub key: Option<KeyPath>,
    /// The file of the token.
    token_file: Option<PathBuf>,
}

/// The path of an operator's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPath {
    /// The file.
    pub path: PathBuf,
    /// Whether the user named it; otherwise it is the usual path, and may be missing.
    pub named: bool,
}

/// The credentials that prove the operator's identity to a host.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The key.
    pub identity: Option<Identity>,
    /// `Bearer TOKEN`. Never printed, not even by `{:?}`.
    pub token: Option<HeaderValue>,
}

/// The text of `cobctl.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    trust: Vec<PublicKey>,
    threshold: Option<usize>,
    depot: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Settings {
    /// Reads the settings: the command line takes precedence over the file.
    ///
    /// # Errors
    /// [`Failure`] if the file is invalid, or was named and can't be read.
    pub fn find(global: &Global) -> Result<Self, Failure> {
        let folder = folder(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"));
        Self::find_in(global, folder.as_deref())
    }

    fn find_in(global: &Global, folder: Option<&Path>) -> Result<Self, Failure> {
        let usual = folder.map(|f| f.join(FILE));
        let path = global.config.as_deref().or(usual.as_deref());
        let file = match path {
            Some(path) => read(path, global.config.is_some())?,
            None => File::default(),
        };
        let beside = |p: PathBuf| path.and_then(Path::parent).map_or_else(|| p.clone(), |base| base.join(&p));
        let trust = if global.trust.is_empty() { &file.trust } else { &global.trust };
        let named = global.key.clone().or_else(|| file.key.map(beside)).map(|path| KeyPath { path, named: true });
        let usual = || folder.map(|f| KeyPath { path: f.join(KEY), named: false });
        Ok(Self {
            trust: publishers(trust, global.threshold.or(file.threshold))?,
            depot: global.depot.clone().or_else(|| file.depot.map(beside)),
            key: named.or_else(usual),
            token_file: global.token_file.clone(),
        })
    }

    /// Reads key and token. A key at the usual path may be missing.
    ///
    /// # Errors
    /// [`Failure`] if a named file is missing, or if others may read it.
    pub fn credentials(&self) -> Result<Credentials, Failure> {
        let identity = match self.secret_key()? {
            Some(key) => Some(Identity::new(&key).map_err(Failure::usage)?),
            None => None,
        };
        let token = match &self.token_file {
            Some(path) => Some(read_token(path)?),
            None => std::env::var("COB_TOKEN").ok().filter(|t| !t.is_empty()),
        };
        Ok(Credentials { identity, token: token.as_deref().map(bearer).transpose()? })
    }

    /// The operator's key, if it exists.
    ///
    /// # Errors
    /// [`Failure`] if a named key is missing, and if the key can't be used.
    pub fn secret_key(&self) -> Result<Option<SecretKey>, Failure> {
        let Some(KeyPath { path, named }) = &self.key else { return Ok(None) };
        match SecretKey::load(path) {
            Ok(key) => Ok(Some(key)),
            Err(KeyFileError::Io { source, .. }) if !named && source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(bad_key(error)),
        }
    }

    /// The operator's key; creates it if it is missing.
    ///
    /// # Errors
    /// [`Failure`] if the key can't be created, or an existing key can't be used.
    pub fn create_key(&self) -> Result<(SecretKey, &Path), Failure> {
        let Some(KeyPath { path, .. }) = &self.key else {
            return Err(Failure::usage("the place of your key is unknown, because HOME is not set")
                .hint("name a file with --key"));
        };
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| unreadable(folder, e))?;
        }
        Ok((SecretKey::load_or_create(path).map_err(Failure::usage)?, path))
    }
}

/// `cob` in the folder of a user's settings, as defined by the XDG base directory specification.
fn folder(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |text: OsString| Some(PathBuf::from(text)).filter(|p| p.is_absolute());
    let base = xdg.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".config")))?;
    Some(base.join("cob"))
}

fn read(path: &Path, named: bool) -> Result<File, Failure> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if !named && error.kind() == io::ErrorKind::NotFound => return Ok(File::default()),
        Err(error) => return Err(unreadable(path, error)),
    };
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        Failure::usage(format!("{}, line {line}: {}", path.display(), error.message()))
            .hint("known are trust, threshold, depot and key")
    })
}

fn publishers(keys: &[PublicKey], threshold: Option<usize>) -> Result<Option<Publishers>, Failure> {
    match (keys, threshold) {
        ([], None) => Ok(None),
        ([], Some(_)) => Err(Failure::usage("`threshold` without `trust`: no publisher could sign")),
        (keys, threshold) => {
            Ok(Some(Publishers::new(keys.iter().copied(), threshold.unwrap_or(1)).map_err(Failure::usage)?))
        }
    }
}

fn bad_key(error: KeyFileError) -> Failure {
    let missing = matches!(&error, KeyFileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
    let failure = Failure::usage(error);
    if missing { failure.hint("make a key with `cobctl trust key --create`") } else { failure }
}

fn unreadable(path: &Path, error: io::Error) -> Failure {
    Failure::usage(anyhow::Error::from(error).context(format!("{} can't be used", path.display())))
}

/// The token in a file: the first line of a file that only the user may read.
///
/// # Errors
/// [`Failure`] if the file can't be read, or if others may read it.
pub fn read_token(path: &Path) -> Result<String, Failure> {
    let failed = |e| unreadable(path, e);
    let file = fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let open = format!("other users can read or change {} (mode {mode:03o})", path.display());
        return Err(
            Failure::usage(open).hint("run `chmod 600` on it, and get a new token if other users could read it")
        );
    }
    let mut text = String::new();
    file.take(MAX_TOKEN).read_to_string(&mut text).map_err(failed)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let visible = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    let value = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| visible);
    let mut value = value.ok_or_else(|| {
        Failure::usage("the token is not valid: it is empty, or contains spaces or characters outside ASCII")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::args::Args;

    fn global(line: &[&str]) -> Global {
        let line = ["cobctl"].iter().chain(line).chain(&["pause"]);
        Args::read(line).expect("parses").global
    }

    fn said(failure: &Failure) -> String {
        let (mut screen, written) = crate::screen::Screen::memory();
        failure.print(&mut screen);
        written.err()
    }

    #[test]
    fn the_command_line_has_precedence_over_the_settings_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let text = format!("trust = [\"{one}\", \"{two}\"]\nthreshold = 2\ndepot = \"depot\"\n");
        fs::write(folder.path().join(FILE), text).expect("written");
        let find = |line: &[&str]| Settings::find_in(&global(line), Some(folder.path())).expect("found");
        let found = find(&[]);
        assert_eq!(found.trust, Some(Publishers::new([one, two], 2).expect("enough")));
        assert_eq!(found.depot, Some(folder.path().join("depot")));
        assert_eq!(found.key, Some(KeyPath { path: folder.path().join(KEY), named: false }));
        let found = find(&["--trust", &two.to_string(), "--threshold", "1", "--depot", "/d", "--key", "/k"]);
        assert_eq!(found.trust, Some(Publishers::new([two], 1).expect("enough")));
        assert_eq!((found.depot, found.key.map(|k| k.path)), (Some("/d".into()), Some("/k".into())));
        let nothing =
            Settings::find_in(&global(&[]), Some(&folder.path().join("other"))).expect("empty settings are valid");
        assert!(nothing.trust.is_none() && nothing.depot.is_none());
    }

    #[test]
    fn an_invalid_settings_file_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        for (text, word) in [
            ("trsut = []", "known are trust"),
            ("trust = [\"ed25519:x\"]", "another length"),
            ("threshold = 2", "no publisher could sign"),
        ] {
            fs::write(folder.path().join(FILE), text).expect("written");
            let failure = Settings::find_in(&global(&[]), Some(folder.path())).expect_err(text);
            assert!(said(&failure).contains(word), "{text}: {}", said(&failure));
        }
        let failure = Settings::find_in(&global(&["--config", "/nonexistent/x"]), None).expect_err("named");
        assert!(said(&failure).contains("/nonexistent/x"), "{}", said(&failure));
    }

    #[test]
    fn keys_and_tokens_that_others_can_read_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, "open-sesame\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        let settings = Settings { token_file: Some(path.clone()), ..Settings::default() };
        let found = settings.credentials().expect("a token");
        assert_eq!(found.token.as_ref().map(HeaderValue::as_bytes), Some(&b"Bearer open-sesame"[..]));
        assert!(!format!("{found:?}").contains("sesame"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        assert!(said(&settings.credentials().expect_err("open")).contains("mode 640"));
        assert!(bearer("two words").is_err() && bearer("").is_err() && bearer("a\r\nb").is_err());
        let named = KeyPath { path: folder.path().join("none"), named: true };
        let settings = Settings { key: Some(named), ..Settings::default() };
        assert!(said(&settings.credentials().expect_err("missing")).contains("trust key --create"));
    }

    #[test]
    fn the_settings_file_is_in_the_configuration_folder_of_the_user() {
        let at = |xdg: Option<&str>, home: Option<&str>| folder(xdg.map(OsString::from), home.map(OsString::from));
        assert_eq!(at(Some("/x"), Some("/h")), Some("/x/cob".into()));
        assert_eq!(at(Some("relative"), Some("/h")), Some("/h/.config/cob".into()));
        assert_eq!(at(None, None), None);
    }
}
