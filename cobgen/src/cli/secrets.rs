//! The options by which commands find the values of secrets.

use std::path::PathBuf;

use crate::secrets::Vault;

/// Key files for the secrets of a model; without secrets none is looked at.
#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// The publisher's key file, which opens secrets that stand encrypted (`age`) in the model
    #[arg(long, value_name = "FILE", env = "COB_SECRET_KEY")]
    secret_key: Option<PathBuf>,
    /// The site's key, which ids of secrets are made with; made on first use [default: secrets.key
    /// beside the publisher's key, else $XDG_CONFIG_HOME/cob/secrets.key]
    #[arg(long, value_name = "FILE", env = "COB_SITE_KEY")]
    site_key: Option<PathBuf>,
}

impl Keys {
    /// What finds and seals the secrets.
    pub(super) fn vault(&self) -> Vault {
        Vault::new(self.site_key.as_deref(), self.secret_key.as_deref())
    }
}
