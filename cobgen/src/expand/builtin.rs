//! The built-in kinds: a table with the `content` that each kind requires.
//!
//! A kind of this table has no commands of its own; the daemon's back end of the same name makes its transitions from
//! the content. The exception is `script`, whose content *is* a kind: states, check and transitions as in `kinds`. It
//! becomes a kind of its own, named by the hash of its definition, so that equal scripts share a kind.
//!
//! `service` has no transition outdated -> up: a restart is a stop and a start, so that all dependents that require it
//! are off in between by the ordinary rules. The differences for systemd units and reloads are in
//! [`service`](super::service).

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cob_types::{Kind, KindName, Transition, secret};
use hyper::Uri;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::file_tree::{self, FileTreeContent};
use super::files::{Files, Payload};
use super::kinds::{MAX_CONTENT_MS, build, builtin_state, check_duration, plain_check, plain_transition};
use super::{Report, hosted, plugin, service, system};
use crate::diagnostic::Diagnostic;
use crate::model::{
    self, CheckEntry, Duration, KindEntry, Map, Mark, Marked, Maybe, Named, Node, TransitionEntry, Value,
    check_structure,
};

/// A built-in kind.
#[derive(Debug)]
pub(super) struct Builtin {
    /// Its name, which is also the name of its back end.
    pub(super) name: &'static str,
    backend: &'static str,
    states: &'static [&'static str],
    preferred: &'static str,
    pre_remove: &'static str,
    transitions: &'static [(&'static str, &'static str)],
    /// Whether it only represents the readiness of others: dependents of the gate's service also wait for the change
    /// objects that the gate requires.
    pub(super) gate: bool,
    content: Content,
}

/// The content that a kind requires.
#[derive(Debug, Clone, Copy)]
enum Content {
    Script,
    Service,
    Wait,
    TcpCheck,
    HttpCheck,
    Noop,
    Budget,
    Plugin,
    /// A kind of a host's objects: its checker, the interval of checks, and the time limit of each transition.
    Hosted {
        settle: Settle,
        recheck_ms: u64,
        timeout_ms: u64,
    },
    FileTree,
}

/// Checks a content; returns `None` if it has faults, which are already reported.
type Settle = fn(&Node, &mut Files, &mut Report<'_>) -> Option<Settled>;

/// The states and transitions of kinds that set a property of a host.
const SETTING: &[&str] = &["absent", "present", "outdated"];
const SETTING_MOVES: &[(&str, &str)] =
    &[("absent", "present"), ("outdated", "present"), ("present", "absent"), ("outdated", "absent")];

/// All built-in kinds.
pub(super) const ALL: &[Builtin] = &[
    Builtin {
        name: "script",
        backend: "command",
        states: &["down", "up", "outdated"],
        preferred: "up",
        pre_remove: "down",
        transitions: &[],
        gate: false,
        content: Content::Script,
    },
    Builtin {
        name: "service",
        backend: "service",
        states: &["down", "up", "outdated", "failed"],
        preferred: "up",
        pre_remove: "down",
        transitions: &[("down", "up"), ("up", "down"), ("outdated", "down"), ("failed", "up"), ("failed", "down")],
        gate: false,
        content: Content::Service,
    },
    Builtin {
        name: "wait",
        backend: "wait",
        states: &["down", "up"],
        preferred: "up",
        pre_remove: "down",
        transitions: &[("down", "up"), ("up", "down")],
        gate: true,
        content: Content::Wait,
    },
    Builtin {
        name: "tcp-check",
        backend: "tcp-check",
        states: &["down", "up"],
        preferred: "up",
        pre_remove: "down",
        transitions: &[("down", "up"), ("up", "down")],
        gate: true,
        content: Content::TcpCheck,
    },
    Builtin {
        name: "http-check",
        backend: "http-check",
        states: &["down", "up"],
        preferred: "up",
        pre_remove: "down",
        transitions: &[("down", "up"), ("up", "down")],
        gate: true,
        content: Content::HttpCheck,
    },
    Builtin {
        name: "noop",
        backend: "noop",
        states: &["down", "up", "outdated"],
        preferred: "up",
        pre_remove: "down",
        transitions: &[("down", "up"), ("up", "down"), ("outdated", "down"), ("outdated", "up")],
        gate: true,
        content: Content::Noop,
    },
    Builtin {
        name: "plugin",
        backend: "plugin",
        states: &["down", "up", "outdated"],
        preferred: "up",
        pre_remove: "down",
        transitions: &[],
        gate: false,
        content: Content::Plugin,
    },
    Builtin {
        name: "package",
        backend: "package",
        states: &["absent", "present", "outdated", "held"],
        preferred: "present",
        pre_remove: "absent",
        transitions: &[
            ("absent", "present"),
            ("outdated", "present"),
            ("held", "present"),
            ("present", "absent"),
            ("outdated", "absent"),
            ("held", "absent"),
        ],
        gate: false,
        content: Content::Hosted { settle: hosted::package, recheck_ms: 600_000, timeout_ms: 1_800_000 },
    },
    Builtin {
        name: "sysctl",
        backend: "sysctl",
        states: SETTING,
        preferred: "present",
        pre_remove: "absent",
        transitions: SETTING_MOVES,
        gate: false,
        content: Content::Hosted { settle: hosted::sysctl, recheck_ms: 60_000, timeout_ms: 60_000 },
    },
    Builtin {
        name: "host-entry",
        backend: "host-entry",
        states: SETTING,
        preferred: "present",
        pre_remove: "absent",
        transitions: SETTING_MOVES,
        gate: false,
        content: Content::Hosted { settle: hosted::host_entry, recheck_ms: 60_000, timeout_ms: 60_000 },
    },
    Builtin {
        name: "cron",
        backend: "cron",
        states: SETTING,
        preferred: "present",
        pre_remove: "absent",
        transitions: SETTING_MOVES,
        gate: false,
        content: Content::Hosted { settle: hosted::cron, recheck_ms: 60_000, timeout_ms: 60_000 },
    },
    Builtin {
        name: "kernel-module",
        backend: "kernel-module",
        states: SETTING,
        preferred: "present",
        pre_remove: "absent",
        transitions: SETTING_MOVES,
        gate: false,
        content: Content::Hosted { settle: system::kernel_module, recheck_ms: 60_000, timeout_ms: 60_000 },
    },
    Builtin {
        name: "mount",
        backend: "mount",
        states: SETTING,
        preferred: "present",
        pre_remove: "absent",
        transitions: SETTING_MOVES,
        gate: false,
        content: Content::Hosted { settle: system::mount, recheck_ms: 60_000, timeout_ms: 120_000 },
    },
    Builtin {
        name: "user",
        backend: "user",
        states: SETTING,
        preferred: "present",
        pre_remove: "absent",
        transitions: SETTING_MOVES,
        gate: false,
        content: Content::Hosted { settle: hosted::user, recheck_ms: 60_000, timeout_ms: 60_000 },
    },
    Builtin {
        name: "group",
        backend: "group",
        states: SETTING,
        preferred: "present",
        pre_remove: "absent",
        transitions: SETTING_MOVES,
        gate: false,
        content: Content::Hosted { settle: hosted::group, recheck_ms: 60_000, timeout_ms: 60_000 },
    },
    Builtin {
        name: "budget",
        backend: "budget",
        states: &["open"],
        preferred: "open",
        pre_remove: "open",
        transitions: &[],
        gate: false,
        content: Content::Budget,
    },
    // No transition leads out of a conflict: a person decides, and then a check finds it outdated.
    Builtin {
        name: "file-tree",
        backend: "file-tree",
        states: &["absent", "outdated", "present", "conflict"],
        preferred: "present",
        pre_remove: "absent",
        transitions: &[("absent", "present"), ("outdated", "present"), ("present", "absent"), ("outdated", "absent")],
        gate: false,
        content: Content::FileTree,
    },
];

/// The result of checking a change object's content.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Its own kind, if the content defines a kind.
    pub(super) kind: Option<Kind>,
    /// Files that its commands name.
    pub(super) files: Payload,
    /// Its `env` with all values as text, as daemons require.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// The whole content for daemons, if it differs from the content in the model.
    pub(super) content: Option<Json>,
    /// Keys of the content that only the generator uses.
    pub(super) without: &'static [&'static str],
}

/// A built-in kind for change objects that the expansion itself adds.
pub(super) fn named(name: &str) -> &'static Builtin {
    ALL.iter().find(|b| b.name == name).expect("it is in the table")
}

impl Builtin {
    /// The check interval of kinds whose state can end by itself.
    fn recheck_ms(&self) -> Option<u64> {
        match self.content {
            Content::Service => Some(10_000),
            Content::TcpCheck | Content::HttpCheck => Some(30_000),
            // Changes are noticed as they happen; the check finds missed changes.
            Content::FileTree => Some(300_000),
            Content::Hosted { recheck_ms, .. } => Some(recheck_ms),
            Content::Script | Content::Plugin | Content::Wait | Content::Noop | Content::Budget => None,
        }
    }

    fn transition(&self, from: &str, to: &str) -> Transition {
        let plain = plain_transition(from, to);
        match self.content {
            Content::Hosted { timeout_ms, .. } => Transition { timeout_ms, ..plain },
            Content::Script
            | Content::Plugin
            | Content::FileTree
            | Content::Service
            | Content::Wait
            | Content::TcpCheck
            | Content::HttpCheck
            | Content::Noop
            | Content::Budget => plain,
        }
    }

    /// The kind for bundles.
    pub(super) fn kind(&self) -> Kind {
        let states: Vec<_> = self.states.iter().map(|s| builtin_state(s)).collect();
        let (preferred, pre_remove) = (builtin_state(self.preferred), builtin_state(self.pre_remove));
        let mut priority = vec![pre_remove.clone()];
        priority.extend((preferred != pre_remove).then(|| preferred.clone()));
        priority.extend(states.iter().filter(|s| **s != preferred && **s != pre_remove).cloned());
        Kind {
            name: KindName::new(self.name).expect("the table holds well-formed names"),
            backend: self.backend.to_owned(),
            states,
            preferred,
            pre_remove,
            priority,
            check: plain_check(self.recheck_ms()),
            transitions: self.transitions.iter().map(|(from, to)| self.transition(from, to)).collect(),
            files: Payload::new(),
        }
    }

    /// Checks a change object's content; returns `None` if it has faults, which are already reported.
    pub(super) fn settle(&self, content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
        match self.content {
            Content::Noop => settle_noop(content, report),
            Content::Budget => {
                let fault = Diagnostic::error("bad-content", "a budget can't be written as a change object");
                report.push(
                    content.mark,
                    fault.help("write `budgets: {NAME: {at_most: 1}}`, and `budget: NAME` on its members"),
                );
                None
            }
            Content::FileTree => {
                let tree: FileTreeContent = read(content, &FILE_TREE, "file-tree", report)?;
                let (content, files) = file_tree::settle(tree, content, files, report)?;
                Some(Settled { files, content: Some(content), ..Settled::default() })
            }
            Content::Script => script(content, files, report),
            Content::Plugin => plugin::settle(content, files, report),
            Content::Hosted { settle, .. } => settle(content, files, report),
            Content::Service => service::settle(content, files, report),
            Content::Wait => {
                let wait: WaitContent = read(content, &WAIT, "wait", report)?;
                if content.has("seconds") == content.has("ms") {
                    let fault =
                        Diagnostic::error("bad-content", "the content of `wait` needs either `seconds` or `ms`");
                    report.push(content.mark, fault.help("write `content: {seconds: 5}`"));
                    return None;
                }
                let ms = wait.ms.map_or_else(|| wait.seconds.map_or(0, |s| u64::from(s) * 1000), u64::from);
                if ms > MAX_CONTENT_MS {
                    report.push(content.mark, Diagnostic::error("bad-duration", "the wait is longer than 7 days"));
                    return None;
                }
                Some(Settled::default())
            }
            Content::TcpCheck => {
                let check: TcpContent = read(content, &TCP, "tcp-check", report)?;
                for time in [&check.interval, &check.timeout] {
                    check_duration(time.as_ref(), report);
                }
                let Marked { mark, value } = check.address?;
                let good = value.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|p| p > 0)
                });
                if !good {
                    let fault = Diagnostic::error("bad-address", format!("{value:?} is not an address"));
                    report.push(mark, fault.help("write HOST:PORT, for example 127.0.0.1:5432"));
                    return None;
                }
                Some(Settled::default())
            }
            Content::HttpCheck => {
                let check: HttpContent = read(content, &HTTP, "http-check", report)?;
                for time in [&check.interval, &check.timeout] {
                    check_duration(time.as_ref(), report);
                }
                let Marked { mark, value } = check.url?;
                // A secret in the URL is reported as another fault.
                if secret::marks(&value).next().is_none()
                    && let Err(why) = can_be_asked_for(&value)
                {
                    let fault = Diagnostic::error(
                        "bad-url",
                        format!(
                            "{value:?} is not a URL that can be checked: \
                        {why}"
                        ),
                    );
                    report.push(mark, fault.help("write http://HOST:PORT/PATH"));
                    return None;
                }
                Some(Settled::default())
            }
        }
    }
}

/// Whether the daemon can fetch a page.
fn can_be_asked_for(url: &str) -> Result<(), &'static str> {
    let uri: Uri = url.parse().map_err(|_| "it does not have the form of a URL")?;
    if uri.scheme_str() != Some("http") {
        return Err("only http:// is supported");
    }
    let authority = uri.authority().filter(|a| !a.host().is_empty()).ok_or("it names no host")?;
    if authority.as_str().contains('@') {
        return Err("user and password are not sent");
    }
    // For `http://h:port` the parser keeps the text and knows no number.
    let rest = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if rest.is_empty() || authority.port_u16().is_some_and(|port| port > 0) {
        Ok(())
    } else {
        Err("its port is not a number from 1 to 65535")
    }
}

/// The content of `script`: a kind. Other keys are data for its commands.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct ScriptContent {
    /// All states; default: down, up, outdated.
    states: Option<Vec<Marked<String>>>,
    /// The on state; default: up.
    preferred: Option<Marked<String>>,
    /// The off state; default: down.
    pre_remove: Option<Marked<String>>,
    /// Which state wins when two are asked for.
    priority: Option<Marked<Vec<Marked<String>>>>,
    /// Prints the state's name: `check: {run: ./check.sh}`.
    #[schemars(required)]
    check: Option<Marked<CheckEntry>>,
    /// The moves: `[{from: down, to: up, run: ./start.sh}]`.
    #[schemars(required)]
    transitions: Option<Vec<Marked<TransitionEntry>>>,
    /// The time that a transition may take.
    timeout: Option<Duration>,
    /// Between asking an action to end and killing it.
    grace: Option<Duration>,
    /// How often a failed transition is tried again.
    retries: Option<u32>,
    /// Before the first retry.
    retry_delay: Option<Duration>,
    /// The state after a failed transition.
    failure: Option<Marked<String>>,
}

/// The content of `wait`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WaitContent {
    /// How long.
    seconds: Option<u32>,
    /// How long, in milliseconds.
    ms: Option<u32>,
}

/// The content of `tcp-check`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TcpContent {
    /// Up once a connection to `HOST:PORT` is accepted.
    #[schemars(required)]
    address: Option<Marked<String>>,
    /// Between two tries; default: 500ms.
    interval: Option<Duration>,
    /// The time limit of a try; default: 2s.
    timeout: Option<Duration>,
}

/// The content of `http-check`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HttpContent {
    /// Up once a GET of this is answered as wanted.
    #[schemars(required)]
    url: Option<Marked<String>>,
    /// The status wanted; default: 200.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    #[schemars(range(min = 100, max = 599))]
    status: Option<u16>,
    /// The text that the page must contain.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    contains: Option<String>,
    /// Between two tries; default: 500ms.
    interval: Option<Duration>,
    /// The time limit of a try; default: 2s.
    timeout: Option<Duration>,
}

/// The content of `noop`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoopContent {
    /// Values for dependents.
    #[expect(dead_code, reason = "read by the daemon; only its form matters here")]
    exports: Option<Named<Node>>,
}

static SCRIPT: LazyLock<Json> = LazyLock::new(|| model::schema_of::<ScriptContent>("content of script"));
static NOOP: LazyLock<Json> = LazyLock::new(|| model::schema_of::<NoopContent>("content of noop"));
static FILE_TREE: LazyLock<Json> = LazyLock::new(|| model::schema_of::<FileTreeContent>("content of file-tree"));
static WAIT: LazyLock<Json> = LazyLock::new(|| model::schema_of::<WaitContent>("content of wait"));
static TCP: LazyLock<Json> = LazyLock::new(|| model::schema_of::<TcpContent>("content of tcp-check"));
static HTTP: LazyLock<Json> = LazyLock::new(|| model::schema_of::<HttpContent>("content of http-check"));

/// Checks the content of a change object whose back end is `noop`: the built-in kind or a user's kind.
pub(super) fn settle_noop(content: &Node, report: &mut Report<'_>) -> Option<Settled> {
    read::<NoopContent>(content, &NOOP, "noop", report).map(|_| Settled::default())
}

/// Reads content in its typed form; returns `None` if it has faults, which are already reported.
pub(super) fn read<T: for<'de> Deserialize<'de>>(
    content: &Node,
    schema: &Json,
    kind: &str,
    report: &mut Report<'_>,
) -> Option<T> {
    let mut node = content.clone();
    if node.value == Value::Null {
        node.value = Value::Map(Map::default());
    }
    let before = report.errors();
    let (sources, out) = report.parts();
    check_structure(&mut node, schema, &format!("the content of `{kind}`"), sources, out);
    (report.errors() == before).then(|| node.read().ok()).flatten()
}

fn script(content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let script: ScriptContent = read(content, &SCRIPT, "script", report)?;
    let words = |names: &[&str]| names.iter().map(|n| word(content.mark, n)).collect::<Vec<_>>();
    let by_default = !content.has("states");
    let or =
        |written: Option<Marked<String>>, name: &str| written.or_else(|| by_default.then(|| word(content.mark, name)));
    let entry = KindEntry {
        states: script.states.or_else(|| by_default.then(|| words(&["down", "up", "outdated"]))),
        preferred: or(script.preferred, "up"),
        pre_remove: or(script.pre_remove, "down"),
        priority: script.priority,
        // The key is mandatory.
        check: script.check.map_or(Maybe::Wrong, Maybe::There),
        transitions: script.transitions,
        timeout: script.timeout,
        grace: script.grace,
        retries: script.retries,
        retry_delay: script.retry_delay,
        failure: script.failure,
        ..KindEntry::default()
    };
    for key in ["preferred", "pre_remove"] {
        if !by_default && !content.has(key) {
            let fault = Diagnostic::error(
                "missing-key",
                format!("the content of `script` names its states, but lacks `{key}`"),
            );
            report.push(content.mark, fault.help("`preferred` is the on state, `pre_remove` the off state"));
        }
    }
    let kind = build(KindName::new("script").expect("well formed"), content.mark, &entry, files, report)?;
    Some(Settled { kind: Some(named_by_hash(kind)), ..Settled::default() })
}

/// Names a kind from a content by its hash, so that equal contents share a kind.
pub(super) fn named_by_hash(mut kind: Kind) -> Kind {
    let said = serde_json::to_vec(&kind).expect("a kind is plain data");
    let hash = cob_types::canonical::fingerprint(&[&said]).to_string();
    kind.name = KindName::new(&format!("{}.{}", kind.name, &hash[..16])).expect("made of letters, digits and a dot");
    kind
}

pub(super) fn word(mark: Mark, text: &str) -> Marked<String> {
    Marked { mark, value: text.to_owned() }
}

/// Kinds from scripts, by name.
pub(super) type Made = BTreeMap<KindName, Arc<Kind>>;
