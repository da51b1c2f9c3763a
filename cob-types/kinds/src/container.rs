//! The kind `container`: a container that podman or docker runs below a unit of systemd.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::words::number;
use cob_types::{CobId, Command};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::commands::{CommandSchema, KindTime, check_variables};
use super::exec::is_empty;
use super::service::{STALE, UNITS};
use super::source::Size;
use super::{Builtin, Content, Faults, Footprint, Place, Scalar, Subject, Time, yes};

/// The longest name of a container: its unit's name has a beginning and an ending more.
const MAX_NAME: usize = 200;
/// The most ports of a range.
const MAX_PORTS: u16 = 1000;
/// The smallest memory that podman and docker accept.
const MIN_MEMORY: u64 = 6 << 20;
/// The name of the file in which docker looks for passwords of registries.
const DOCKER_AUTH_FILE: &str = "config.json";
/// Words for a network that is none of the program's own networks.
const NETWORK_MODES: [&str; 2] = ["host", "none"];

/// The content of `container`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-instead" = instead()))]
pub struct Container {
    /// The image with its registry and digest: `docker.io/library/nginx@sha256:…`.
    pub image: String,
    /// Accept an image without a digest: what the tag means on this host when the container starts.
    #[serde(default)]
    pub allow_tag: bool,
    /// The program that runs it; default: podman where it is installed, otherwise docker.
    pub runtime: Option<Runtime>,
    /// The name of the container; default: the name of the change object, `web-app` for `n1/web/app`.
    pub name: Option<String>,
    /// The words behind the image: arguments of its entry point, or its command.
    #[serde(default)]
    pub command: Vec<String>,
    /// Replaces the entry point of the image.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Ports of the host that lead into the container: `[ADDRESS:]PORT:PORT[/udp]`, also ranges.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Mounts: `/PATH:/PATH[:ro]` of the host, or `NAME:/PATH` of a volume of the runtime.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Delete the volumes that COB made when the change object leaves; default: no.
    #[serde(default)]
    pub remove_volumes: bool,
    /// The networks of the runtime, which are made if they are missing; or `[host]`, or `[none]`.
    #[serde(default)]
    pub networks: Vec<String>,
    /// Variables of its environment; numbers, as they are written, and truth values become texts.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Scalar>", extend("x-texts" = true))]
    pub env: BTreeMap<String, String>,
    /// The user in the container: a name or number, also `USER:GROUP`; default: that of the image.
    pub user: Option<Scalar>,
    /// Its root file system can't be written.
    #[serde(default)]
    pub read_only: bool,
    /// The most memory: `512M`.
    pub memory: Option<Size>,
    /// The most processors: `1.5`.
    pub cpus: Option<f64>,
    /// A command in the container that succeeds while it works.
    pub health: Option<Health>,
    /// Further options of `podman run` or `docker create`, each with its value in one word: `--cap-add=NET_ADMIN`.
    #[serde(default)]
    pub options: Vec<String>,
    /// The file with the passwords of registries, as `podman login` or `docker login` writes it.
    pub auth_file: Option<PathBuf>,
    /// Whether it is started when the machine starts; default: yes.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How long it must live to count as up; default: 1s.
    #[serde(default = "settle")]
    pub settle: Time,
    /// The time that a start with its pull, or a stop may take; default: 10m.
    #[schemars(with = "Option<KindTime>")]
    pub timeout: Option<String>,
    /// Between asking it to end and killing it; default: 10s.
    #[schemars(with = "Option<KindTime>")]
    pub grace: Option<String>,
    /// How often a failed start or stop is tried again; default: 2.
    pub retries: Option<u32>,
    /// Before the first retry; default: 1s.
    #[schemars(with = "Option<KindTime>")]
    pub retry_delay: Option<String>,
    /// Values for dependents.
    #[serde(default)]
    pub exports: Map<String, Json>,
}

/// The program that runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// Without a daemon.
    Podman,
    /// With its daemon `dockerd`.
    Docker,
}

/// How the runtime finds out whether a container works.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Runs in the container: a text for its shell, or a list of words.
    #[schemars(with = "CommandSchema")]
    pub command: Command,
    /// Between two runs; default: 30s.
    #[serde(default = "half_a_minute")]
    pub interval: Time,
    /// The time of a run; default: 30s.
    #[serde(default = "half_a_minute")]
    pub timeout: Time,
    /// After so many failures in sequence the container is killed, and started again; default: 3.
    #[serde(default = "three")]
    pub retries: u32,
    /// After its start failures do not count for this time; default: 0s.
    #[serde(default = "no_time")]
    pub start_period: Time,
}

fn settle() -> Time {
    Time::from_millis(1000)
}

fn half_a_minute() -> Time {
    Time::from_millis(30_000)
}

fn no_time() -> Time {
    Time::from_millis(0)
}

fn three() -> u32 {
    3
}

/// The right keys for keys of other tools.
fn instead() -> Json {
    let named: [(&[&str], &str); 13] = [
        (&["container_name"], "`name` is the name of the container"),
        (&["engine", "driver"], "`runtime` is the program that runs it: `podman` or `docker`"),
        (&["ports", "port", "expose"], "`publish` has the ports: `[\"127.0.0.1:8080:80\"]`"),
        (&["volume", "mounts", "binds"], "`volumes` has the mounts: `[\"/srv/www:/usr/share/nginx/html:ro\"]`"),
        (&["network", "network_mode"], "`networks` is a list: `[front]`, `[host]` or `[none]`"),
        (&["environment", "env_vars", "variables", "vars"], "`env` has the variables: `{PORT: \"80\"}`"),
        (&["cmd", "args", "arguments", "exec"], "`command` is the list of words behind the image"),
        (&["healthcheck", "health_check", "ready"], "`health` has the command that succeeds while it works"),
        (&["mem_limit", "memory_limit"], "`memory` is the most memory: `512M`"),
        (&["cpu", "cpu_limit"], "`cpus` is the most processors: `1.5`"),
        (&["restart", "restart_policy"], "a container that fails is always started again"),
        (
            &["cap_add", "cap_drop", "capabilities", "devices", "labels", "privileged", "tmpfs", "hostname", "ulimits"],
            "`options` has further options of the runtime: `[\"--cap-add=NET_ADMIN\"]`",
        ),
        (
            &["state", "started", "depends_on", "requires", "after", "restarts_on"],
            "states and dependencies stand beside `content`, on the change object",
        ),
    ];
    let all = named.into_iter().flat_map(|(keys, help)| keys.iter().map(move |key| ((*key).to_owned(), help.into())));
    Json::Object(all.collect())
}

/// Options of the runtime that a key of the content sets.
const BY_KEY: [(&str, &str); 18] = [
    ("--name", "name"),
    ("--entrypoint", "entrypoint"),
    ("--publish", "publish"),
    ("--volume", "volumes"),
    ("--network", "networks"),
    ("--net", "networks"),
    ("--env", "env"),
    ("--env-file", "env"),
    ("--user", "user"),
    ("--read-only", "read_only"),
    ("--memory", "memory"),
    ("--cpus", "cpus"),
    ("--health-cmd", "health"),
    ("--health-interval", "health"),
    ("--health-timeout", "health"),
    ("--health-retries", "health"),
    ("--health-start-period", "health"),
    ("--authfile", "auth_file"),
];

/// Options of the runtime by which COB and systemd keep hold of the container.
const OURS: [&str; 15] = [
    "--detach",
    "--rm",
    "--replace",
    "--cidfile",
    "--sdnotify",
    "--cgroups",
    "--pull",
    "--restart",
    "--interactive",
    "--tty",
    "--attach",
    "--health-on-failure",
    "--conmon-pidfile",
    "--pod",
    "--rootfs",
];

impl Content for Container {
    /// As a unit of `service`: a restart is a stop and a start.
    const KIND: Builtin = Builtin {
        states: &["down", "up", "outdated", "failed", STALE],
        transitions: &[
            ("down", "up"),
            ("up", "down"),
            ("outdated", "down"),
            ("failed", "up"),
            ("failed", "down"),
            (STALE, "up"),
        ],
        interval_ms: Some(10_000),
        timeout_ms: 10 * 60 * 1000,
        ..Builtin::program("container")
    };

    fn check(&self, faults: &mut Faults) {
        self.check_image(faults);
        if let Some(name) = self.name.as_ref().filter(|name| !is_name(name)) {
            let what = format!("{name:?} is not the name of a container");
            faults.add("name", what, "it has letters, digits and _ . -, and begins with a letter or digit");
        }
        self.check_published(faults);
        self.check_volumes(faults);
        self.check_networks(faults);
        check_variables(&self.env, faults);
        for (name, _) in self.env.iter().filter(|(name, _)| name.contains(char::is_whitespace) || name.ends_with('*')) {
            faults.add(
                ("env", name),
                format!("the variable {name:?} can't be set"),
                "podman and docker accept no such name",
            );
        }
        let texts = [("command", &self.command), ("entrypoint", &self.entrypoint), ("options", &self.options)];
        for (key, words) in texts {
            for word in words.iter().filter(|word| word.contains('\0')) {
                faults.add((key, word), "a word can't contain the character 0", "");
            }
        }
        for (name, _) in self.env.iter().filter(|(_, value)| value.contains('\0')) {
            faults.add(("env", name), "a value can't contain the character 0", "");
        }
        self.check_options(faults);
        faults.check_absolute("auth_file", self.auth_file.as_ref());
        if let Some(fault) = self.runtime.and_then(|runtime| self.auth_fault(runtime)) {
            faults.add("auth_file", fault, format!("name it `{DOCKER_AUTH_FILE}`, as `docker login` does"));
        }
        match self.user.as_ref().map(|user| user.text("user", None)) {
            Some(Err((what, help))) => faults.add("user", what, help),
            Some(Ok(user)) if user.is_empty() || user.contains(char::is_whitespace) => {
                faults.add("user", format!("{user:?} is not a user"), "write a name or number, or `USER:GROUP`");
            }
            Some(Ok(_)) | None => {}
        }
        if self.memory.is_some_and(|memory| memory.0 < MIN_MEMORY) {
            faults.add("memory", "a container needs 6 MiB of memory or more", "write it with its unit: `512M`");
        }
        if self.cpus.is_some_and(|cpus| !(0.01..=4096.0).contains(&cpus)) {
            faults.add("cpus", "`cpus` is no number of processors", "write a number, such as 1.5");
        }
        if let Some(health) = &self.health {
            health.check(faults);
        }
    }

    fn footprint(&self, cob: &CobId) -> Footprint {
        // A unit has a single container, of the same name.
        let unit = self.unit_name(cob);
        let file = format!("{UNITS}/{unit}");
        let mut footprint = Footprint::of(Subject::UNIT, unit).with_own([file]);
        // Two lines of the same container are a fault of the content, not of two owners.
        let ports: BTreeSet<String> =
            self.publish.iter().filter_map(|text| Published::read(text)).flat_map(|port| port.names()).collect();
        footprint.parts.extend(ports.into_iter().map(|name| Subject { sort: "port", name }));
        footprint
    }
}

impl Container {
    /// The name of the container.
    #[must_use]
    pub fn container_name(&self, cob: &CobId) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| cob.as_str().split_once('/').map_or(cob.as_str(), |(_, name)| name).replace('/', "-"))
    }

    /// The unit of systemd that runs it. Its beginning keeps it apart from units of packages.
    #[must_use]
    pub fn unit_name(&self, cob: &CobId) -> String {
        format!("container-{}.service", self.container_name(cob))
    }

    /// Why this runtime can't use the file of passwords.
    #[must_use]
    pub fn auth_fault(&self, runtime: Runtime) -> Option<String> {
        let file = self.auth_file.as_ref().filter(|_| runtime == Runtime::Docker)?;
        let is_named = file.file_name().is_some_and(|name| name == DOCKER_AUTH_FILE);
        (!is_named).then(|| format!("docker reads passwords of registries from a file {DOCKER_AUTH_FILE} alone"))
    }

    /// The folders of the host that it mounts.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|volume| volume.split(':').next()).filter(|source| source.starts_with('/'))
    }

    /// The volumes of the runtime, without folders of the host.
    pub fn named_volumes(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|volume| volume.split(':').next()).filter(|source| !source.starts_with('/'))
    }

    /// The networks of the runtime that must exist.
    pub fn named_networks(&self) -> impl Iterator<Item = &str> {
        self.networks.iter().map(String::as_str).filter(|name| !NETWORK_MODES.contains(name))
    }

    fn check_image(&self, faults: &mut Faults) {
        let image = &self.image;
        let (name, digest) =
            image.split_once('@').map_or((image.as_str(), None), |(name, digest)| (name, Some(digest)));
        let registry = name.split_once('/').map(|(registry, _)| registry).unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-/:[]".contains(c);
        if name.starts_with('-') || !name.chars().all(fits) {
            let what = format!("{image:?} is not the name of an image");
            faults.add("image", what, "write it as `podman pull` takes it: `docker.io/library/nginx@sha256:…`");
            return;
        }
        if registry != "localhost" && !registry.contains(['.', ':']) {
            let what = format!("{image:?} does not name its registry, so each host might take another image");
            faults.add("image", what, format!("for an image of Docker Hub write `docker.io/{}`", hub_name(image)));
        }
        let is_digest = |digest: &str| {
            let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            digest.strip_prefix("sha256:").is_some_and(|sum| sum.len() == 64 && sum.chars().all(hex))
        };
        match digest {
            Some(digest) if !is_digest(digest) => {
                faults.add("image", format!("{digest:?} is not a digest"), "it is `sha256:` and 64 hex digits");
            }
            None if !self.allow_tag => {
                let what = format!("{image:?} has no digest, so a host that pulls later may run something else");
                let help = "write `NAME@sha256:…` (`podman pull` and `skopeo inspect` show the digest), or `allow_tag: \
                            true`";
                faults.add_as("no-digest", "image", what, help);
            }
            Some(_) | None => {}
        }
    }

    fn check_published(&self, faults: &mut Faults) {
        for text in &self.publish {
            if Published::read(text).is_none() {
                let what = format!("{text:?} is not a published port");
                let help = "write `[ADDRESS:]PORT:PORT[/tcp|/udp]`, such as 127.0.0.1:8080:80 or [::1]:53:53/udp";
                faults.add(("publish", text), what, help);
            }
        }
        let is_mode = |mode: &&String| NETWORK_MODES.contains(&mode.as_str());
        if let (Some(mode), Some(port)) = (self.networks.iter().find(is_mode), self.publish.first()) {
            let what = format!("with the network `{mode}` no port is published");
            faults.add(("publish", port), what, "remove `publish`, or the network");
        }
    }

    fn check_volumes(&self, faults: &mut Faults) {
        for text in &self.volumes {
            let parts: Vec<&str> = text.split(':').collect();
            let fits = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_control() || c == ',');
            let is_volume = match parts.as_slice() {
                [source, target] | [source, target, _] => {
                    let is_source = source.starts_with('/') || is_name(source);
                    is_source && target.starts_with('/') && parts.iter().all(|part| fits(part))
                }
                _ => false,
            };
            let options = parts.get(2).is_none_or(|options| {
                options.split('+').all(|option| option.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
            });
            if !is_volume || !options {
                let what = format!("{text:?} is not a volume");
                let help = "write `/PATH:/PATH`, `/PATH:/PATH:ro`, or `NAME:/PATH` for a volume of the runtime";
                faults.add(("volumes", text), what, help);
            }
        }
        if self.remove_volumes && self.named_volumes().next().is_none() {
            let what = "there is no volume with a name to remove";
            faults.add("remove_volumes", what, "remove the key: folders of the host stay as they are");
        }
    }

    fn check_networks(&self, faults: &mut Faults) {
        for name in &self.networks {
            if NETWORK_MODES.contains(&name.as_str()) && self.networks.len() > 1 {
                let what = format!("`{name}` excludes all other networks");
                faults.add(("networks", name), what, format!("write `networks: [{name}]`"));
            } else if !is_name(name) {
                let what = format!("{name:?} is not the name of a network");
                let help = "it has letters, digits and _ . -; other modes belong into `options`";
                faults.add(("networks", name), what, help);
            }
        }
    }

    fn check_options(&self, faults: &mut Faults) {
        for option in &self.options {
            let name = option.split('=').next().unwrap_or_default();
            if !option.starts_with("--") || name.len() < 3 || name.contains(char::is_whitespace) {
                let what = format!("{option:?} is not an option with its value in one word");
                faults.add(("options", option), what, "write it in its long form: `--cap-add=NET_ADMIN`");
            } else if let Some((_, key)) = BY_KEY.iter().find(|(known, _)| *known == name) {
                faults.add(("options", option), format!("the key `{key}` sets {name}"), format!("use `{key}`"));
            } else if OURS.contains(&name) {
                let what = format!("{name} would take the container out of the hands of systemd and COB");
                faults.add(("options", option), what, "remove it");
            }
        }
    }
}

impl Health {
    fn check(&self, faults: &mut Faults) {
        let at = |key: &str| Place::Path(vec!["health".to_owned(), key.to_owned()]);
        if is_empty(&self.command) {
            faults.add_as("empty-command", at("command"), "`command` is empty", "write a command of the container");
        }
        for (key, time) in [("interval", self.interval), ("timeout", self.timeout)] {
            if time.0.as_secs() == 0 {
                faults.add(at(key), format!("`{key}` is shorter than a second"), "write a second or more: `10s`");
            }
        }
        if self.retries == 0 {
            faults.add(at("retries"), "`retries` is 0", "write how many failures in sequence end the container");
        }
    }
}

/// The name of an image at Docker Hub.
fn hub_name(image: &str) -> String {
    if image.contains('/') { image.to_owned() } else { format!("library/{image}") }
}

/// Whether podman and docker accept it as the name of a container, volume or network.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= MAX_NAME && name.chars().all(fits)
}

/// A published port, or a range of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Published {
    /// The address of the host; absent: all.
    address: Option<IpAddr>,
    /// The first and the last port of the host.
    ports: (u16, u16),
    protocol: &'static str,
}

impl Published {
    fn read(text: &str) -> Option<Self> {
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, "tcp")) => (rest, "tcp"),
            Some((rest, "udp")) => (rest, "udp"),
            Some((rest, "sctp")) => (rest, "sctp"),
            Some(_) => return None,
            None => (text, "tcp"),
        };
        let (rest, inner) = rest.rsplit_once(':')?;
        let (address, outer) = match rest.rsplit_once(':') {
            Some((address, outer)) => {
                let address = match address.strip_prefix('[') {
                    Some(address) => IpAddr::V6(address.strip_suffix(']')?.parse().ok()?),
                    None => IpAddr::V4(address.parse().ok()?),
                };
                (Some(address).filter(|address| !address.is_unspecified()), outer)
            }
            None => (None, rest),
        };
        let (ports, inner) = (range(outer)?, range(inner)?);
        let is_equally_long = ports.1 - ports.0 == inner.1 - inner.0;
        is_equally_long.then_some(Self { address, ports, protocol })
    }

    /// The names of all its ports.
    fn names(&self) -> impl Iterator<Item = String> + use<> {
        let at = match self.address {
            Some(IpAddr::V6(address)) => format!("[{address}]:"),
            Some(IpAddr::V4(address)) => format!("{address}:"),
            None => String::new(),
        };
        let protocol = self.protocol;
        (self.ports.0..=self.ports.1).map(move |port| format!("{at}{port}/{protocol}"))
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let port = |text: &str| number::<u16>(text).filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    (first <= last && last - first < MAX_PORTS).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(keys: &str) -> Footprint {
        let image = format!("a.b/c@sha256:{}", "0a".repeat(32));
        let content: Container = super::super::read(&format!("{{\"image\":\"{image}\"{keys}}}")).expect("good");
        content.footprint(&CobId::new("n1/web/app").expect("an id"))
    }

    fn ports(keys: &str) -> Vec<String> {
        footprint(keys).parts.into_iter().filter(|part| part.sort == "port").map(|part| part.name).collect()
    }

    #[test]
    fn a_container_owns_its_unit_and_its_ports() {
        let of_id = footprint("");
        let unit = Subject { sort: Subject::UNIT, name: "container-web-app.service".to_owned() };
        assert_eq!((of_id.subject, of_id.parts), (Some(unit), Vec::new()));
        assert_eq!(of_id.files[0].path, "/etc/systemd/system/container-web-app.service");
        let named = footprint(r#","name":"x""#).subject.map(|subject| subject.name);
        assert_eq!(named.as_deref(), Some("container-x.service"));
        // Two spellings of all addresses are the same port.
        for all in ["80:8080", "0.0.0.0:80:8080/tcp", "[::]:80:1"] {
            assert_eq!(ports(&format!(r#","publish":["{all}"]"#)), ["80/tcp"], "{all}");
        }
        let many = r#","publish":["127.0.0.1:8000-8001:80-81","[::1]:53:53/udp","[0:0::1]:53:54/udp"]"#;
        assert_eq!(ports(many), ["127.0.0.1:8000/tcp", "127.0.0.1:8001/tcp", "[::1]:53/udp"]);
    }

    #[test]
    fn named_volumes_and_networks_are_told_from_folders_and_modes() {
        let image = format!("a.b/c@sha256:{}", "0a".repeat(32));
        let content = format!(r#"{{"image":"{image}","volumes":["/a:/b","data:/data"],"networks":["front","back"]}}"#);
        let content: Container = super::super::read(&content).expect("good");
        assert_eq!(content.named_volumes().collect::<Vec<_>>(), ["data"]);
        assert_eq!(content.named_networks().collect::<Vec<_>>(), ["front", "back"]);
        let host = Container { networks: vec!["host".to_owned()], ..content };
        assert_eq!(host.named_networks().count(), 0);
    }
}
