//! The kind `git-checkout`: a folder with the files of a git repository.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source;
use super::{Builtin, Content, Faults, Footprint};

/// The content of `git-checkout`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitCheckout {
    /// The repository: `https://HOST/PATH`, `ssh://USER@HOST/PATH`, `USER@HOST:PATH`, or a path on the host.
    pub repo: String,
    /// A branch, a tag, or a commit with all its digits.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The folder: an absolute path. It has only the files of the repository.
    pub path: String,
    /// Submodules are checked out, too.
    #[serde(default)]
    pub submodules: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Content for GitCheckout {
    // A check reads all files.
    const KIND: Builtin =
        Builtin { interval_ms: Some(600_000), timeout_ms: 1_800_000, ..Builtin::setting("git-checkout") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_whole_folder("path", &self.path, faults);
        if let Err(why) = self.check_repo() {
            let help = "write https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, or a path from the root";
            faults.add_as(
                "bad-url",
                "repo",
                format!("{:?} is not a repository: {why}", source::without_user(&self.repo)),
                help,
            );
        }
        let name = &self.reference;
        let is_odd = |char: char| char.is_control() || " ~^:?*[\\".contains(char);
        let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
        if name.starts_with('-')
            || name.contains(is_odd)
            || name.contains("..")
            || name.contains("@{")
            || name.ends_with('.')
            || !name.split('/').all(is_part)
        {
            faults.add("ref", format!("{name:?} is not a branch, tag or commit"), "for example `main` or `v1.4`");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("folder", &self.path).with_whole([self.path.clone()])
    }
}

impl GitCheckout {
    fn check_repo(&self) -> Result<(), String> {
        let repo = &self.repo;
        if repo.is_empty() || repo.starts_with('-') || repo.contains(|char: char| char.is_control() || char == ' ') {
            return Err("it is empty, or has blanks or a dash at its beginning".to_owned());
        }
        if repo.starts_with('/') {
            return Ok(());
        }
        match repo.split_once("://") {
            Some(("https", _)) => source::address(repo, &["https"]),
            // A user of ssh is no secret; a password would be.
            Some(("ssh", rest)) => {
                let user =
                    rest.split('/').next().and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
                let is_secret = user.is_some_and(|user| user.contains(':'));
                if is_secret { Err("all readers of the model would see its password".to_owned()) } else { Ok(()) }
            }
            Some((scheme, _)) => Err(format!("{scheme}:// is neither https:// nor ssh://")),
            None => match repo.split_once(':') {
                Some((host, path)) if !host.is_empty() && !path.is_empty() && !host.contains('/') => Ok(()),
                Some(_) | None => Err("it has neither a scheme nor a host".to_owned()),
            },
        }
    }
}
