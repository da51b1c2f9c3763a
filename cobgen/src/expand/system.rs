//! Built-in kinds of the host's kernel: the `content` of `kernel-module` and `mount`.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::Report;
use super::builtin::{Settled, read};
use super::files::Files;
use super::hosted::{absolute, bad, plain};
use crate::model::{self, Label, Marked, Named, Node};

/// The content of `kernel-module`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KernelModuleContent {
    /// The module.
    #[schemars(required)]
    name: Option<Marked<String>>,
    /// Its options, from the next time on that it is loaded.
    options: Option<Named<Label>>,
    /// It is kept out: unloaded now, and not loaded for a device that asks for it.
    blacklist: Option<Marked<bool>>,
    /// Also after a restart, by files in `/etc/modules-load.d` and `/etc/modprobe.d`; default: true.
    persist: Option<bool>,
    /// A folder that is to become a host, instead of the host itself: its files alone.
    root: Option<Marked<String>>,
}

/// The content of `mount`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MountContent {
    /// Where: an absolute path. Folders that are missing are made.
    #[schemars(required)]
    path: Option<Marked<String>>,
    /// What: a device, `UUID=…`, `LABEL=…`, `HOST:/PATH`, a folder for `bind`, any word for `tmpfs`.
    #[schemars(required)]
    source: Option<Marked<String>>,
    /// The type of file system: `ext4`, `nfs`, `tmpfs`, `bind`, `auto`.
    #[schemars(required)]
    r#type: Option<Marked<String>>,
    /// Options, each separately: `[ro, noexec, size=1g]`; default: `defaults`.
    options: Option<Vec<Marked<String>>>,
    /// In which turn it is checked at the start: 0 (not at all, the default), 1 or 2.
    pass: Option<Marked<u8>>,
    /// A folder that is to become a host, instead of the host itself: its `/etc/fstab` alone.
    root: Option<Marked<String>>,
}

static KERNEL_MODULE: LazyLock<Json> =
    LazyLock::new(|| model::schema_of::<KernelModuleContent>("content of kernel-module"));
static MOUNT: LazyLock<Json> = LazyLock::new(|| model::schema_of::<MountContent>("content of mount"));

/// Checks the content of `kernel-module`.
pub(super) fn kernel_module(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let module: KernelModuleContent = read(content, &KERNEL_MODULE, "kernel-module", report)?;
    let before = report.errors();
    absolute("root", module.root.as_ref(), report);
    let good = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    let Marked { mark, value } = module.name?;
    if !good(&value) {
        bad(mark, format!("{value:?} is not the name of a kernel module"), "write it as in br_netfilter", report);
    }
    for (key, Label(value)) in module.options.iter().flat_map(Named::iter) {
        if !good(&key.value) || value.chars().any(|c| c.is_whitespace() || c.is_control() || "\"'\\#".contains(c)) {
            let what = format!("the option {:?} can't be set to {value:?}", key.value);
            bad(key.mark, what, "write a single word, without quotes", report);
        }
    }
    if let Some(options) = content.map().and_then(|map| map.get("options")) {
        for (key, _) in module.options.iter().flat_map(Named::iter) {
            plain(options, &key.value, true, report);
        }
    }
    let has_options = module.options.as_ref().is_some_and(|options| !options.0.is_empty());
    let kept_out = module.blacklist.filter(|blacklist| blacklist.value);
    if let Some(blacklist) = kept_out.as_ref().filter(|_| has_options) {
        let what = "a blacklisted module takes no `options`".to_owned();
        bad(blacklist.mark, what, "remove either key", report);
    }
    if module.persist == Some(false) && (has_options || kept_out.is_some()) {
        let what = "`options` and `blacklist` need a file, but `persist` is false".to_owned();
        bad(content.mark, what, "remove `persist`", report);
    }
    (report.errors() == before).then(Settled::default)
}

/// Checks the content of `mount`.
pub(super) fn mount(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let mount: MountContent = read(content, &MOUNT, "mount", report)?;
    let before = report.errors();
    absolute("root", mount.root.as_ref(), report);
    let Marked { mark, value } = mount.path?;
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !value.trim_end_matches('/').strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_plain)) {
        let help = "write it from the root, for example /srv/data";
        bad(mark, format!("{value:?} is not a path for a mount"), help, report);
    }
    let Marked { mark, value } = mount.source?;
    if value.is_empty() || value.starts_with(['-', '#']) || value.chars().any(char::is_control) {
        bad(mark, format!("{value:?} can't be mounted"), "a device, UUID=…, HOST:/PATH or a path", report);
    }
    let Marked { mark, value } = mount.r#type?;
    let is_ignored = |option: &&Marked<String>| option.value.contains('=') && !option.value.starts_with("mode=");
    if let Some(option) = mount.options.iter().flatten().filter(|_| value == "ramfs").find(is_ignored) {
        bad(option.mark, format!("`ramfs` ignores {:?}", option.value), "`tmpfs` does", report);
    }
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !value.starts_with(|c: char| c.is_ascii_alphanumeric()) || !value.chars().all(good) {
        bad(mark, format!("{value:?} is not a type of file system"), "ext4, xfs, nfs, tmpfs, bind or auto", report);
    }
    for Marked { mark, value } in mount.options.iter().flatten() {
        let is_word = !value.is_empty() && !value.contains([',', ' ', '\\']) && !value.chars().any(char::is_control);
        if !is_word || value == "remount" {
            let help = "write each option separately, as in [ro, noexec]";
            bad(*mark, format!("{value:?} is not an option of a mount"), help, report);
        }
    }
    if let Some(Marked { mark, value }) = mount.pass.filter(|pass| pass.value > 2) {
        bad(mark, format!("`pass` is 0, 1 or 2, and not {value}"), "0: it is not checked at the start", report);
    }
    (report.errors() == before).then(Settled::default)
}
