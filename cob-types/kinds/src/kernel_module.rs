//! The kind `kernel-module`: a module of the kernel, loaded now and at every boot, or blocked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint, Place, Scalar, yes};

/// The content of `kernel-module`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelModule {
    /// The module.
    pub name: String,
    /// Its options, from the next time on that it is loaded.
    #[serde(default)]
    pub options: BTreeMap<String, Scalar>,
    /// It is kept out: unloaded now, and not loaded for a device that asks for it.
    #[serde(default)]
    pub blacklist: bool,
    /// Also after a restart, by files in `/etc/modules-load.d` and `/etc/modprobe.d`.
    #[serde(default = "yes")]
    pub persist: bool,
    /// A folder that is to become a host, instead of the host itself: its files alone.
    pub root: Option<PathBuf>,
}

impl Content for KernelModule {
    const KIND: Builtin = Builtin::setting("kernel-module");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let is_good = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        };
        if !is_good(&self.name) {
            let what = format!("{:?} is not the name of a kernel module", self.name);
            faults.add("name", what, "write it as in br_netfilter");
        }
        for (key, value) in &self.options {
            match option_text(key, value) {
                Ok(value) => {
                    let is_word = !value.chars().any(|c| c.is_whitespace() || c.is_control() || "\"'\\#".contains(c));
                    if !is_good(key) || !is_word {
                        let what = format!("the option {key:?} can't be set to {value:?}");
                        faults.add(("options", key), what, "write a single word, without quotes");
                    }
                }
                Err((what, help)) => faults.add(Place::Value("options", key.clone()), what, help),
            }
        }
        let has_options = !self.options.is_empty();
        if self.blacklist && has_options {
            faults.add("blacklist", "a blacklisted module takes no `options`", "remove either key");
        }
        if !self.persist && (self.blacklist || has_options) {
            let what = "`options` and `blacklist` need a file, but `persist` is false";
            faults.add(Place::Content, what, "remove `persist`");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let files = self.persist.then(|| [self.load_file(), self.options_file()]);
        Footprint::of("kernel module", self.kernel_name()).with_own(files.into_iter().flatten())
    }
}

/// The text of an option: the kernel reads truth values as `Y` and `N`.
fn option_text(key: &str, value: &Scalar) -> Result<String, (String, String)> {
    value.text(key, Some(["N", "Y"]))
}

impl KernelModule {
    /// The name that the kernel uses.
    #[must_use]
    pub fn kernel_name(&self) -> String {
        self.name.replace('-', "_")
    }

    /// The file that makes systemd and other init systems load the module at every boot.
    #[must_use]
    pub fn load_file(&self) -> String {
        format!("/etc/modules-load.d/cob-{}.conf", self.kernel_name())
    }

    /// The file that modprobe reads.
    #[must_use]
    pub fn options_file(&self) -> String {
        format!("/etc/modprobe.d/cob-{}.conf", self.kernel_name())
    }

    /// The options for modprobe: `a=1 b=Y`.
    #[must_use]
    pub fn options(&self) -> String {
        let options = self.options.iter().map(|(key, value)| {
            let value = option_text(key, value).unwrap_or_default();
            format!("{key}={value}")
        });
        options.collect::<Vec<_>>().join(" ")
    }
}
