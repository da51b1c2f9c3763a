//! The site's key: 32 random bytes in a file that only its owner can read.
//!
//! It makes ids of values (so that no reader of a depot can test guesses), and the tags by which a publisher recognises
//! its sealed secrets.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The name of its file.
const FILE: &str = "secrets.key";

/// The possible folders of the site's key if no path is given.
#[derive(Debug, Default)]
pub(super) struct Places<'a> {
    /// The publisher's key files.
    pub(super) publisher: Vec<&'a Path>,
    /// A key file that is named for a single command: other commands do not look beside it.
    pub(super) once: Option<&'a Path>,
    /// The user's configuration folder.
    pub(super) user: Option<&'a Path>,
}

/// The path of the key file: as given, else the first existing file in this order: beside the publisher's keys, beside
/// the key for a single command, in the user's folder. If there is no file, the user's folder comes before `once`.
pub(super) fn path(said: Option<&Path>, places: &Places<'_>) -> Result<PathBuf, String> {
    if let Some(path) = said {
        return Ok(path.to_owned());
    }
    let beside = |key: &Path| key.with_file_name(FILE);
    let publisher: Vec<PathBuf> = places.publisher.iter().map(|key| beside(key)).collect();
    let (once, user) = (places.once.map(beside), places.user.map(|folder| folder.join(FILE)));
    let there = publisher.iter().chain(&once).chain(&user).find(|place| place.exists());
    there
        .or_else(|| publisher.iter().chain(&user).chain(&once).next())
        .cloned()
        .ok_or_else(|| "the model uses secrets, but there is no site key: name it with `--site-key FILE`".to_owned())
}

/// The user's configuration folder.
pub(super) fn of_user() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join("cob"))
}

/// Reads the key; `None`: the file does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Zeroizing<[u8; 32]>>, String> {
    match load(path) {
        Err((error, _)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err((error, what)) => Err(format!("the site key {}: {what}{error}", path.display())),
        Ok(key) => Ok(Some(key)),
    }
}

/// Makes the key, unless another process is quicker; the second value is true if this process made it.
pub(super) fn make_or_read(path: &Path) -> Result<(Zeroizing<[u8; 32]>, bool), String> {
    match make(path) {
        Ok(key) => Ok((key, true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match read(path)? {
            Some(key) => Ok((key, false)),
            None => Err(format!("the site key {} can't be made: {error}", path.display())),
        },
        Err(error) => Err(format!("the site key {} can't be made: {error}", path.display())),
    }
}

/// A temporary key that is not stored.
pub(super) fn for_once() -> Result<Zeroizing<[u8; 32]>, String> {
    by_chance().map_err(|error| format!("there are no random numbers: {error}"))
}

fn by_chance() -> Result<Zeroizing<[u8; 32]>, getrandom::Error> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(key.as_mut())?;
    Ok(key)
}

fn load(path: &Path) -> Result<Zeroizing<[u8; 32]>, (io::Error, &'static str)> {
    let plain = |error| (error, "");
    let wrong = |text: &str| (io::Error::new(io::ErrorKind::InvalidData, text), "");
    let mut file = fs::File::open(path).map_err(plain)?;
    let meta = file.metadata().map_err(plain)?;
    if meta.mode() & 0o077 != 0 {
        return Err(wrong(
            "other users may read or change it: run `chmod 600` on it, and make a new key if others \
            could read it",
        ));
    }
    if !meta.is_file() || meta.len() != 32 {
        return Err(wrong("it does not have the 32 bytes of a site key"));
    }
    let mut key = Zeroizing::new([0; 32]);
    file.read_exact(key.as_mut()).map_err(plain)?;
    Ok(key)
}

fn make(path: &Path) -> io::Result<Zeroizing<[u8; 32]>> {
    let key = by_chance().map_err(io::Error::other)?;
    let folder = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(key.as_ref()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key is worse than no key.
        let _ = fs::remove_file(path);
    }
    written?;
    fs::File::open(folder)?.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_key_is_taken_from_the_first_place_that_has_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let (secret, signing, user) = (at("a/secret.key"), at("b/publisher.key"), at("user"));
        for folder in ["a", "b", "user"] {
            fs::create_dir(at(folder)).expect("made");
        }
        let places = |publisher, once, user| Places { publisher, once, user };
        let found = || path(None, &places(vec![&secret, &signing], None, Some(&user)));
        assert_eq!(found(), Ok(at("a/secrets.key")));
        assert_eq!(path(None, &places(vec![], None, Some(&user))), Ok(at("user/secrets.key")));
        assert!(path(None, &Places::default()).expect_err("no place").contains("--site-key"));
        let for_once = |user| path(None, &places(vec![], Some(&signing), user));
        assert_eq!(for_once(Some(&user)), Ok(at("user/secrets.key")), "others would not look beside it");
        assert_eq!(for_once(None), Ok(at("b/secrets.key")));
        // An earlier key at another place is still found.
        for place in ["user/secrets.key", "b/secrets.key", "a/secrets.key"] {
            make(&at(place)).expect("made");
            assert_eq!(found(), Ok(at(place)));
        }
        assert_eq!(for_once(Some(&user)), Ok(at("b/secrets.key")));
    }
}
