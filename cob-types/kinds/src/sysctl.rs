//! The kind `sysctl`: a kernel parameter, now and after a reboot.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint, Scalar, yes};

/// The longest parameter with a file name of at most 255 bytes.
const MAX_KEY: usize = 240;

/// The content of `sysctl`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sysctl {
    /// The parameter, as in `net.ipv4.ip_forward`.
    pub key: String,
    /// A number or a text.
    pub value: Scalar,
    /// Also after a restart, by a file in `/etc/sysctl.d`.
    #[serde(default = "yes")]
    pub persist: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Content for Sysctl {
    const KIND: Builtin = Builtin::setting("sysctl");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let key = &self.key;
        let part =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c));
        let is_odd = key.starts_with(['/', '-']) || key.ends_with('/') || key.contains("//");
        if !key.split('.').all(part) || is_odd {
            let what = format!("{key:?} is not a parameter of the kernel");
            faults.add("key", what, "write it as in net.ipv4.ip_forward");
        }
        if key.len() > MAX_KEY && self.persist {
            let what = format!("the parameter is longer than {MAX_KEY} bytes, and its file would be named after it");
            faults.add("key", what, "write `persist: false`");
        }
        match self.value.text("value", None) {
            // The kernel itself writes tabs between values.
            Ok(text) if text.trim().is_empty() || text.trim().chars().any(|c| c.is_control() && c != '\t') => {
                let what = "the value is empty, or has several lines or control characters";
                faults.add("value", what, "give a number or words");
            }
            Ok(_) => {}
            Err((what, help)) => faults.add("value", what, help),
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("parameter", in_dots(&self.key)).with_own(self.persist.then(|| self.file()))
    }
}

impl Sysctl {
    /// The file that sets it at boot.
    #[must_use]
    pub fn file(&self) -> String {
        format!("/etc/sysctl.d/60-cob-{}.conf", in_dots(&self.key).replace('/', "-"))
    }
}

/// The parameter in the format with dots. The first separator, dot or slash, decides the format.
#[must_use]
pub fn in_dots(key: &str) -> String {
    match key.find(['.', '/']).filter(|at| key[*at..].starts_with('/')) {
        Some(_) => with_dots_and_slashes_swapped(key),
        None => key.to_owned(),
    }
}

/// The other format: names of interfaces may contain dots, which are written as slashes in the format with dots.
#[must_use]
pub fn with_dots_and_slashes_swapped(key: &str) -> String {
    let other = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    key.chars().map(other).collect()
}
