//! Built-in kinds for objects of a host: the `content` that each requires.
//!
//! The daemon's back ends read the contents again; the checks here find mistakes before publication and report their
//! places.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cob_types::{crontab, schedule};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::Report;
use super::builtin::{Settled, read};
use super::files::Files;
use super::kinds::check_duration;
use crate::diagnostic::Diagnostic;
use crate::model::{self, Duration, Label, Mark, Marked, Named, Node, Value};

/// The longest name of a parameter whose file name `60-cob-KEY.conf` has at most 255 bytes.
const MAX_KEY: usize = 240;

/// The content of `package`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PackageContent {
    /// The package.
    #[schemars(required)]
    name: Option<Marked<String>>,
    /// The version: in full, its beginning and `*`, `latest`, or `any`, which is the default.
    version: Option<Marked<String>>,
    /// Others are kept from changing its version.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    hold: Option<bool>,
    /// A hold that another program has set does not count.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    override_hold: Option<bool>,
    /// Its configuration goes with it when it leaves.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    purge: Option<bool>,
    /// Other packages that may be removed for it: those that conflict with it, or need it when it leaves.
    may_remove: Option<Vec<Marked<String>>>,
    /// Other packages that may be changed to an older version for it.
    may_downgrade: Option<Vec<Marked<String>>>,
    /// Where it comes from, and nothing else: a folder, `file://`, `http://` or `https://`; behind it, for one that is
    /// not flat, suite and components.
    repository: Option<Marked<String>>,
    /// The repository need not be signed.
    trusted: Option<Marked<bool>>,
    /// The key that the repository is signed by: a file on the host.
    signed_by: Option<Marked<String>>,
    /// A folder that is to become a host, instead of the host itself.
    root: Option<Marked<String>>,
    /// How long others that work on packages are waited for.
    lock_timeout: Option<Duration>,
}

/// The content of `sysctl`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SysctlContent {
    /// The parameter, as in `net.ipv4.ip_forward`.
    #[schemars(required)]
    key: Option<Marked<String>>,
    /// A number or a text.
    #[schemars(required)]
    value: Option<Label>,
    /// Also after a restart, by a file in `/etc/sysctl.d`; default: true.
    persist: Option<bool>,
    /// A folder that is to become a host, instead of the host itself.
    root: Option<Marked<String>>,
}

/// The content of `host-entry`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HostEntryContent {
    /// The address.
    #[schemars(required)]
    address: Option<Marked<String>>,
    /// Its names, the full name first.
    #[schemars(required)]
    names: Option<Marked<Vec<Marked<String>>>>,
    /// A folder that is to become a host, instead of the host itself.
    root: Option<Marked<String>>,
}

/// The content of `cron`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CronContent {
    /// Five fields, `30 4 * * 1-5`, or `@daily` and the like.
    #[schemars(required)]
    schedule: Option<Marked<String>>,
    /// The command: a single line for the shell.
    #[schemars(required)]
    command: Option<Marked<String>>,
    /// The user; default: root.
    user: Option<Marked<String>>,
    /// The name of its file in `/etc/cron.d`; default: made of the change object's id.
    name: Option<Marked<String>>,
    /// Variables, such as `MAILTO`; numbers, as they are written, and truth values become texts.
    env: Option<Named<Label>>,
    /// A folder that is to become a host, instead of the host itself.
    root: Option<Marked<String>>,
}

/// The content of `group`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupContent {
    /// Its name.
    #[schemars(required)]
    name: Option<Marked<String>>,
    /// Its number; default: the next free number.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    gid: Option<u32>,
    /// Of the system's own range, when it is made.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    system: Option<bool>,
    /// A folder that is to become a host, instead of the host itself.
    root: Option<Marked<String>>,
}

/// The content of `user`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UserContent {
    /// Its name.
    #[schemars(required)]
    name: Option<Marked<String>>,
    /// Its number; default: the next free number.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    uid: Option<u32>,
    /// Its first group; default: a group of its own.
    group: Option<Marked<String>>,
    /// All its further groups.
    groups: Option<Vec<Marked<String>>>,
    /// Its home, absolute.
    home: Option<Marked<String>>,
    /// Its shell, absolute.
    shell: Option<Marked<String>>,
    /// Its full name.
    comment: Option<Marked<String>>,
    /// Of the system's own range, when it is made.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    system: Option<bool>,
    /// Its home is made with it.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    create_home: Option<bool>,
    /// Its home goes with it.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    remove_home: Option<bool>,
    /// A folder that is to become a host, instead of the host itself.
    root: Option<Marked<String>>,
}

static GROUP: LazyLock<Json> = LazyLock::new(|| model::schema_of::<GroupContent>("content of group"));
static USER: LazyLock<Json> = LazyLock::new(|| model::schema_of::<UserContent>("content of user"));
static SYSCTL: LazyLock<Json> = LazyLock::new(|| model::schema_of::<SysctlContent>("content of sysctl"));
static HOST_ENTRY: LazyLock<Json> = LazyLock::new(|| model::schema_of::<HostEntryContent>("content of host-entry"));
static CRON: LazyLock<Json> = LazyLock::new(|| model::schema_of::<CronContent>("content of cron"));
static PACKAGE: LazyLock<Json> = LazyLock::new(|| model::schema_of::<PackageContent>("content of package"));

/// Checks the content of `package`.
pub(super) fn package(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let package: PackageContent = read(content, &PACKAGE, "package", report)?;
    let before = report.errors();
    check_duration(package.lock_timeout.as_ref(), report);
    absolute("signed_by", package.signed_by.as_ref(), report);
    absolute("root", package.root.as_ref(), report);
    let name = package.name?;
    let in_a_name = |c: char| c.is_ascii_alphanumeric() || "+-.:_".contains(c);
    let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(in_a_name);
    let others = package.may_remove.iter().chain(&package.may_downgrade).flatten();
    for Marked { mark, value } in [&name].into_iter().chain(others).filter(|name| !is_name(&name.value)) {
        bad(*mark, format!("{value:?} is not the name of a package"), "use a change object for each package", report);
    }
    if let Some(Marked { mark, value }) = &package.version {
        let part = value.strip_suffix('*').unwrap_or(value);
        let good = |c: char| c.is_ascii_alphanumeric() || ".+-~:_^".contains(c);
        if !part.starts_with(|c: char| c.is_ascii_alphanumeric()) || !part.chars().all(good) {
            let help = "write it in full, or its beginning and `*`, or `latest`";
            bad(*mark, format!("{value:?} is not a version"), help, report);
        }
    }
    if let Some(Marked { mark, value }) = &package.repository {
        let known = ["/", "file://", "http://", "https://"].iter().any(|start| value.starts_with(start));
        if !known || value.contains(['[', ']', '#']) || value.chars().any(char::is_control) {
            let help = "write a folder, file:///…, http://… or https://…";
            bad(*mark, format!("{value:?} is not a repository"), help, report);
        }
    } else {
        let about = package.trusted.map(|t| ("trusted", t.mark)).or(package.signed_by.map(|s| ("signed_by", s.mark)));
        if let Some((key, mark)) = about {
            bad(mark, format!("`{key}` needs a `repository`"), "name a repository, or remove the key", report);
        }
    }
    (report.errors() == before).then(Settled::default)
}

/// Checks the content of `sysctl`.
pub(super) fn sysctl(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let sysctl: SysctlContent = read(content, &SYSCTL, "sysctl", report)?;
    let before = report.errors();
    absolute("root", sysctl.root.as_ref(), report);
    let Marked { mark, value } = sysctl.key?;
    let part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c));
    let is_odd = value.starts_with(['/', '-']) || value.ends_with('/') || value.contains("//");
    if !value.split('.').all(part) || is_odd {
        bad(mark, format!("{value:?} is not a parameter of the kernel"), "write it as in net.ipv4.ip_forward", report);
    }
    if value.len() > MAX_KEY && sysctl.persist != Some(false) {
        let what = format!("the parameter is longer than {MAX_KEY} bytes, and its file would be named after it");
        bad(mark, what, "write `persist: false`", report);
    }
    let value = sysctl.value?.0;
    let at = content.map().and_then(|map| map.get("value")).map_or(content.mark, |node| node.mark);
    // The kernel itself writes tabs between values.
    if value.trim().is_empty() || value.trim().chars().any(|c| c.is_control() && c != '\t') {
        let what = "the value is empty, or has several lines or control characters".to_owned();
        bad(at, what, "give a number or words", report);
    }
    plain(content, "value", false, report);
    (report.errors() == before).then(Settled::default)
}

/// Checks that the daemon accepts the value of this key: a text, a whole number of 64 bits, or (`truth`) a boolean.
pub(super) fn plain(within: &Node, key: &str, truth: bool, report: &mut Report<'_>) {
    let Some(node) = within.map().and_then(|map| map.get(key)) else { return };
    let (what, help) = match &node.value {
        Value::Bool(is) if !truth => {
            (format!("`{key}` is {is}, a truth value"), format!("write {}", if *is { "1" } else { "0" }))
        }
        Value::Float(..) => (format!("`{key}` is a number with a fraction"), "put it into quotes".to_owned()),
        Value::Int(number, _) if i64::try_from(*number).is_err() => {
            (format!("`{key}` is a number of more than 63 bits"), "put it into quotes".to_owned())
        }
        Value::Bool(_)
        | Value::Int(..)
        | Value::Text(_)
        | Value::Null
        | Value::List(_)
        | Value::Map(_)
        | Value::Invalid => return,
    };
    bad(node.mark, what, &help, report);
}

/// Checks the content of `host-entry`.
pub(super) fn host_entry(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let entry: HostEntryContent = read(content, &HOST_ENTRY, "host-entry", report)?;
    let before = report.errors();
    absolute("root", entry.root.as_ref(), report);
    let Marked { mark, value } = entry.address?;
    if value.parse::<std::net::IpAddr>().is_err() {
        bad(mark, format!("{value:?} is not an address"), "write it as in 10.0.0.1 or fe80::1", report);
    }
    let names = entry.names?;
    if names.value.is_empty() {
        bad(names.mark, "`names` is empty".to_owned(), "write at least a name", report);
    }
    let good = |name: &str| {
        !name.is_empty() && name.len() < 254 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    for Marked { mark, value } in names.value.iter().filter(|name| !good(&name.value)) {
        bad(*mark, format!("{value:?} is not the name of a host"), "letters, digits, dots and hyphens", report);
    }
    (report.errors() == before).then(Settled::default)
}

/// Checks the content of `cron`.
pub(super) fn cron(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let cron: CronContent = read(content, &CRON, "cron", report)?;
    let before = report.errors();
    absolute("root", cron.root.as_ref(), report);
    let Marked { mark, value } = cron.schedule?;
    if let Err(why) = schedule::check(&value) {
        let help = format!("write five fields as in \"30 4 * * 1-5\", or {}", schedule::WORDS.join(", "));
        bad(mark, format!("{value:?} is not a schedule: {why}"), &help, report);
    }
    let command = cron.command?;
    if let Err(why) = crontab::command(&command.value) {
        let help = "put long commands, or commands with several lines, into a script";
        bad(command.mark, format!("the command {why}"), help, report);
    }
    if let Some(Marked { mark, value }) = cron.user
        && (value.is_empty() || value.contains(|c: char| c.is_whitespace() || c.is_control()))
    {
        bad(mark, format!("{value:?} is not a user"), "the name of an account", report);
    }
    for (name, value) in cron.env.iter().flat_map(Named::iter) {
        if let Err(why) = crontab::assignment(&name.value, &value.0) {
            let help = "set it in a script that the command runs";
            bad(name.mark, format!("the variable {:?} can't be set: {why}", name.value), help, report);
        }
    }
    if let Some(Marked { mark, value }) = cron.name
        && (value.is_empty() || !value.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)))
    {
        bad(mark, format!("cron ignores a file with the name {value:?}"), "letters, digits, - and _", report);
    }
    let variables = cron.env.iter().flat_map(Named::iter);
    let env: BTreeMap<String, String> = variables.map(|(name, v)| (name.value.clone(), v.0.clone())).collect();
    (report.errors() == before).then(|| Settled { env: cron.env.is_some().then_some(env), ..Settled::default() })
}

/// Checks the content of `group`.
pub(super) fn group(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let group: GroupContent = read(content, &GROUP, "group", report)?;
    let before = report.errors();
    absolute("root", group.root.as_ref(), report);
    account_name("group", &group.name?, report);
    (report.errors() == before).then(Settled::default)
}

/// Checks the content of `user`.
pub(super) fn user(content: &Node, _files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let user: UserContent = read(content, &USER, "user", report)?;
    let before = report.errors();
    for (key, path) in [("root", &user.root), ("home", &user.home), ("shell", &user.shell)] {
        absolute(key, path.as_ref(), report);
    }
    for Marked { mark, value } in [&user.home, &user.shell, &user.comment].into_iter().flatten() {
        if value.contains([':', '\n']) {
            let help = "the line of an account is divided by colons";
            bad(*mark, format!("{value:?} has a colon or several lines"), help, report);
        }
    }
    account_name("user", &user.name?, report);
    for group in user.group.iter().chain(user.groups.iter().flatten()) {
        account_name("group", group, report);
    }
    (report.errors() == before).then(Settled::default)
}

/// Checks a name by the default rules of `useradd`.
fn account_name(what: &str, name: &Marked<String>, report: &mut Report<'_>) {
    let Marked { mark, value } = name;
    let first = value.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if !first || value.len() > 32 || !value.trim_end_matches('$').chars().all(rest) {
        let help = "small letters, digits, - and _, at most 32";
        bad(*mark, format!("{value:?} is not the name of a {what}"), help, report);
    }
}

/// Checks that a path of the host is absolute.
pub(super) fn absolute(key: &str, path: Option<&Marked<String>>, report: &mut Report<'_>) {
    if let Some(path) = path.filter(|path| !path.value.starts_with('/')) {
        bad(
            path.mark,
            format!("`{key}` must be an absolute path"),
            "write it from the root, for example /srv/x",
            report,
        );
    }
}

/// Reports a content that the daemon would refuse.
pub(super) fn bad(mark: Mark, what: String, help: &str, report: &mut Report<'_>) {
    report.push(mark, Diagnostic::error("bad-content", what).help(help));
}
