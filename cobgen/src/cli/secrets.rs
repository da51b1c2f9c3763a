//! The options by which commands find the values of secrets.

use std::path::{Path, PathBuf};

use super::generate::key_beside;
use crate::secrets::Vault;

/// Key files for the secrets of a model; ignored without secrets.
#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// The publisher's key file, which opens secrets that stand encrypted (`age`) in the model
    #[arg(long, value_name = "FILE", env = "COB_SECRET_KEY")]
    secret_key: Option<PathBuf>,
    /// The site's key, which ids of secrets are made with; `generate` makes it on first use [default:
    /// secrets.key beside the publisher's key (--secret-key, or the signing key), or
    /// $XDG_CONFIG_HOME/cob/secrets.key if it is there alone, or the key to sign with is named by --sign-with]
    #[arg(long, value_name = "FILE", env = "COB_SITE_KEY")]
    site_key: Option<PathBuf>,
}

impl Keys {
    /// The vault that finds and seals the secrets of a generation of the model that is signed with this key.
    pub(super) fn vault(&self, model: &Path, signing_key: Option<&Path>) -> Vault {
        let vault = self.given().signing_with(signing_key);
        let whole = |key: &Path| key.canonicalize().unwrap_or_else(|_| key.to_owned());
        if signing_key.map(whole) == publisher_key(model).as_deref().map(whole) { vault } else { vault.once() }
    }

    /// The vault that finds the secrets of a model for a read-only command.
    pub(super) fn reading(&self, model: &Path) -> Vault {
        self.given().signing_with(publisher_key(model).as_deref()).reading()
    }

    fn given(&self) -> Vault {
        Vault::new(self.site_key.as_deref(), self.secret_key.as_deref())
    }
}

/// The key that signs a model if the command line names no key.
fn publisher_key(model: &Path) -> Option<PathBuf> {
    std::env::var_os("COB_PUBLISHER_KEY").map(PathBuf::from).or_else(|| key_beside(model))
}
