//! The site's key: 32 random bytes in a file that only its owner reads.
//!
//! It makes ids of values (so that nobody who reads a depot can try guesses), and the tags by which a
//! publisher knows again what it has sealed.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The name of its file.
const FILE: &str = "secrets.key";

/// Where it is: as said, else beside the publisher's key, else in the user's configuration folder.
pub(super) fn path(said: Option<&Path>, publisher: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = said {
        return Ok(path.to_owned());
    }
    if let Some(key) = publisher {
        return Ok(key.with_file_name(FILE));
    }
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join("cob").join(FILE)).ok_or_else(|| {
        "the model uses secrets, and there is no place for the site's key: say `--site-key FILE`".to_owned()
    })
}

/// Reads it, or makes it; the second value says which.
pub(super) fn load_or_make(path: &Path) -> Result<(Zeroizing<[u8; 32]>, bool), String> {
    match load(path) {
        Err((error, _)) if error.kind() == io::ErrorKind::NotFound => {}
        Err((error, what)) => return Err(format!("the site key {}: {what}{error}", path.display())),
        Ok(key) => return Ok((key, false)),
    }
    match make(path) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => load(path)
            .map(|key| (key, false))
            .map_err(|(error, what)| format!("the site key {}: {what}{error}", path.display())),
        made => made.map(|key| (key, true)).map_err(|e| format!("the site key {} can't be made: {e}", path.display())),
    }
}

fn load(path: &Path) -> Result<Zeroizing<[u8; 32]>, (io::Error, &'static str)> {
    let plain = |error| (error, "");
    let wrong = |text: &str| (io::Error::new(io::ErrorKind::InvalidData, text), "");
    let mut file = fs::File::open(path).map_err(plain)?;
    let meta = file.metadata().map_err(plain)?;
    if meta.mode() & 0o077 != 0 {
        return Err(wrong("others may read or change it: `chmod 600` it, and make a new one if others could read it"));
    }
    if !meta.is_file() || meta.len() != 32 {
        return Err(wrong("it does not have the 32 bytes of a site key"));
    }
    let mut key = Zeroizing::new([0; 32]);
    file.read_exact(key.as_mut()).map_err(plain)?;
    Ok(key)
}

fn make(path: &Path) -> io::Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(key.as_mut()).map_err(io::Error::other)?;
    let folder = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(key.as_ref()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key is worse than none.
        let _ = fs::remove_file(path);
    }
    written?;
    fs::File::open(folder)?.sync_all()?;
    Ok(key)
}
