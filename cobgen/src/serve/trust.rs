//! `trust.toml` in the depot's folder: the publishers that new hosts shall trust.
//!
//! ```toml
//! trust = ["ed25519:…"]
//! threshold = 1
//! ```

use std::path::{Path, PathBuf};

use cob_trust::Publishers;
use cob_types::PublicKey;
use serde::Deserialize;

/// The file's name.
pub const TRUST: &str = "trust.toml";

/// A file of publishers that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", .path.display())]
pub struct TrustError {
    path: PathBuf,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    trust: Vec<PublicKey>,
    threshold: Option<usize>,
}

/// Reads the file; `None`: it does not exist.
///
/// # Errors
/// When it can't be read or is wrong.
pub fn read(depot: &Path) -> Result<Option<Publishers>, TrustError> {
    let path = depot.join(TRUST);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TrustError { path, why: format!("can't be read: {error}") }),
    };
    parse(&text).map(Some).map_err(|why| TrustError { path, why })
}

fn parse(text: &str) -> Result<Publishers, String> {
    let file: File = toml::from_str(text).map_err(cob_types::words::form)?;
    Publishers::new(file.trust, file.threshold.unwrap_or(1)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_are_read_and_faults_named() {
        let key = PublicKey([3; 32]);
        let good = parse(&format!("trust = [\"{key}\"]")).expect("in order");
        assert_eq!((good.keys().len(), good.threshold()), (1, 1));
        for (text, words) in [
            ("trust = []".to_owned(), "could ever be accepted"),
            (format!("trust = [\"{key}\"]\nthreshold = 2"), "2 publishers must sign"),
            (format!("trust = [\"{key}\"]\nthreshhold = 2"), "unknown field"),
            ("trust = [\"ed25519:x\"]".to_owned(), "another length"),
        ] {
            let error = parse(&text).expect_err("refused");
            assert!(error.contains(words), "{error}");
        }
        let dir = tempfile::tempdir().expect("a folder");
        assert!(read(dir.path()).expect("no file is no fault").is_none());
        std::fs::write(dir.path().join(TRUST), "x").expect("written");
        assert!(read(dir.path()).expect_err("no TOML").to_string().contains("trust.toml: "));
    }
}
