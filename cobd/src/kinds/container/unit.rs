//! The service of a container: the unit that runs it by its runtime.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cob_kinds::{Container, Health, Runtime};
use cob_types::words::shell_word;
use cob_types::{CobId, Command, canonical, secret};
use serde_json::json;

use super::runtime::Program as _;

/// The most bytes of the service's content: it becomes a word of a command, which the kernel limits.
const MAX: usize = 64 << 10;
/// The name of the file with secret variables, before the fingerprint of the secrets.
const VARIABLES: &str = "env-";

/// The service of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Derived {
    pub(super) runtime: Runtime,
    /// The content for the back end `service`.
    pub(super) content: String,
    /// The unit of systemd.
    pub(super) unit: String,
    /// The file in memory with the variables that have values of secrets.
    pub(super) variables: Option<PathBuf>,
    /// The names of these variables.
    pub(super) secrets: Vec<String>,
}

/// Derives the service. `private` is the container's folder in memory.
///
/// # Errors
/// The fault of the content, as text.
pub(super) fn derive(
    content: &Container,
    cob: &CobId,
    runtime: Runtime,
    grace_ms: u64,
    private: Option<&Path>,
) -> Result<Derived, String> {
    if let Some(fault) = content.auth_fault(runtime) {
        return Err(format!("content: `auth_file`: {fault}"));
    }
    let (name, unit) = (content.container_name(cob), content.unit_name(cob));
    let secrets = secret_variables(content);
    let variables = variables_file(content, &secrets, private)?;
    let ready = content.health.as_ref().map(|health| ready(runtime, &name, health));
    let service = json!({
        "unit": unit,
        "unit_file": unit_file(content, cob, runtime, grace_ms, variables.as_deref()),
        "enabled": content.enabled,
        "ready": ready,
        "settle": format!("{}ms", content.settle.0.as_millis()),
        "exports": content.exports,
    });
    let content = canonical::json(&service);
    if content.len() > MAX {
        return Err(format!("content: its unit file is longer than {} KiB; put long values into files", MAX >> 10));
    }
    Ok(Derived { runtime, content, unit, variables, secrets })
}

/// The variables with values of secrets: only their file has the values.
fn secret_variables(content: &Container) -> Vec<String> {
    content
        .env
        .iter()
        .filter(|(_, value)| secret::marks(value).next().is_some())
        .map(|(name, _)| name.clone())
        .collect()
}

/// The name has a fingerprint of the marks, so that another value gives another unit file.
fn variables_file(content: &Container, secrets: &[String], private: Option<&Path>) -> Result<Option<PathBuf>, String> {
    if secrets.is_empty() {
        return Ok(None);
    }
    let private = private.ok_or("content: it has secrets, and this host has no key")?;
    let parts: Vec<&[u8]> = secrets.iter().flat_map(|name| [name.as_bytes(), content.env[name].as_bytes()]).collect();
    Ok(Some(private.join(format!("{VARIABLES}{}", canonical::fingerprint(&parts)))))
}

/// The command that says that the container works: the runtime's own runs of the health command come seldom.
fn ready(runtime: Runtime, name: &str, health: &Health) -> Vec<String> {
    let words: Vec<String> = match &health.command {
        Command::Shell(text) => ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
        Command::Argv(words) => words.clone(),
    };
    let exec = runtime.program().iter().copied().chain(["exec", name]).map(str::to_owned);
    exec.chain(words).collect()
}

fn unit_file(content: &Container, cob: &CobId, runtime: Runtime, grace_ms: u64, variables: Option<&Path>) -> String {
    let mut text = Lines::default();
    text.line(&format!("# COB manages this file for {cob}: changes are lost."));
    text.line("[Unit]");
    text.line(&format!("Description=Container {} of {cob}", content.container_name(cob)));
    text.line("Wants=network-online.target");
    text.line("After=network-online.target");
    let places = match runtime {
        Runtime::Podman => Some("%t/containers".to_owned()),
        Runtime::Docker => None,
    };
    let places: Vec<String> = places.into_iter().chain(content.folders().map(quoted)).collect();
    if !places.is_empty() {
        text.line(&format!("RequiresMountsFor={}", places.join(" ")));
    }
    if runtime == Runtime::Docker {
        text.line("Requires=docker.service");
        text.line("After=docker.service");
    }
    if let Some(variables) = variables {
        // After a boot the file is missing until the daemon starts the container.
        text.line(&format!("ConditionPathExists={}", escaped(&variables.display().to_string())));
    }
    text.line("");
    text.line("[Service]");
    let grace = grace_ms.div_ceil(1000);
    match runtime {
        Runtime::Podman => podman_service(&mut text, content, cob, grace, variables),
        Runtime::Docker => docker_service(&mut text, content, cob, grace, variables),
    }
    text.line("");
    text.line("[Install]");
    text.line("WantedBy=multi-user.target");
    text.0
}

/// The text of a unit file.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, line: &str) {
        writeln!(self.0, "{line}").expect("a text takes all");
    }

    /// A command with an option on each line, and its last words.
    fn command(&mut self, begin: &str, options: &[String], words: impl Iterator<Item = String>) {
        self.line(&format!("{begin} \\"));
        for option in options {
            self.line(&format!("    {} \\", quoted(option)));
        }
        self.line(&format!("    {}", words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")));
    }
}

/// The lines that `podman generate systemd --new` writes.
fn podman_service(text: &mut Lines, content: &Container, cob: &CobId, grace: u64, variables: Option<&Path>) {
    let podman = Runtime::Podman.program().join(" ");
    text.line("Type=notify");
    text.line("NotifyAccess=all");
    text.line(&format!("Environment={}=%n", Runtime::Podman.unit_label()));
    text.line("Restart=on-failure");
    text.line("TimeoutStartSec=5min");
    text.line(&format!("TimeoutStopSec={}", grace + 60));
    text.line("ExecStartPre=/bin/rm -f %t/%n.ctr-id");
    let begin =
        format!("ExecStart={podman} run --cidfile=%t/%n.ctr-id --sdnotify=conmon --cgroups=no-conmon --detach --rm");
    let words = std::iter::once(&content.image).chain(&content.command).cloned();
    text.command(&begin, &options(content, cob, Runtime::Podman, variables), words);
    text.line(&format!("ExecStop={podman} stop --ignore --time={grace} --cidfile=%t/%n.ctr-id"));
    text.line(&format!("ExecStopPost={podman} rm --force --ignore --time={grace} --cidfile=%t/%n.ctr-id"));
}

/// The main process is docker's client, which ends with the container. Stop and removal find the container by its label,
/// because a container of the same name may belong to somebody else.
fn docker_service(text: &mut Lines, content: &Container, cob: &CobId, grace: u64, variables: Option<&Path>) {
    let docker = Runtime::Docker.program().join(" ");
    let name = content.container_name(cob);
    let label = format!("{}={}", Runtime::Docker.unit_label(), content.unit_name(cob));
    let shell = |script: &str| format!("/bin/sh -c {}", quoted(script));
    let each = |list: &str, action: &str| {
        let list = format!("{docker} container ls {list}--quiet --filter label={label}");
        shell(&format!("for id in $({list}); do {docker} container {action} $id; done >/dev/null"))
    };
    text.line("Type=exec");
    text.line("Restart=on-failure");
    text.line("TimeoutStartSec=5min");
    text.line(&format!("TimeoutStopSec={}", grace + 60));
    let folders: Vec<String> = content.folders().map(quoted).collect();
    if !folders.is_empty() {
        // Docker would make a missing folder.
        let look =
            "for it; do [ -e \"$it\" ] || { echo \"the host has no $it, which the container mounts\"; exit 1; }; done";
        text.line(&format!("ExecStartPre={} sh {}", shell(look), folders.join(" ")));
    }
    let remove = each("--all ", "rm --force");
    text.line(&format!("ExecStartPre=-{remove}"));
    let config = content.auth_file.as_ref().and_then(|file| file.parent());
    let config = config.map(|folder| format!(" {}", quoted(&format!("--config={}", folder.display()))));
    let begin = format!("ExecStartPre={docker}{} container create", config.unwrap_or_default());
    // Docker's option takes the first word alone.
    let words = std::iter::once(&content.image).chain(content.entrypoint.iter().skip(1)).chain(&content.command);
    text.command(&begin, &options(content, cob, Runtime::Docker, variables), words.cloned());
    // Before version 25 docker takes a single network at first.
    for network in content.networks.iter().skip(1) {
        text.line(&format!("ExecStartPre={docker} network connect {network} {name}"));
    }
    let start = format!("{docker} container start --attach {name}");
    let inspected = |what: &str| format!("\"$({docker} container inspect --format '{{{{.State.{what}}}}}' {name})\"");
    match &content.health {
        None => text.line(&format!("ExecStart={start}")),
        // Docker leaves an unhealthy container alone.
        Some(health) => text.line(&format!(
            "ExecStart={}",
            shell(&format!(
                "(while sleep {}; do [ {} != unhealthy ] || {docker} container kill {name}; done) >/dev/null 2>&1 & \
                 exec {start}",
                health.interval.0.as_secs().max(1),
                inspected("Health.Status"),
            ))
        )),
    }
    // The unit is active once the container runs.
    let wait =
        format!("until [ {} = true ] || ! kill -0 $MAINPID; do sleep 0.2; done 2>/dev/null", inspected("Running"));
    text.line(&format!("ExecStartPost={}", shell(&wait)));
    text.line(&format!("ExecStop=-{}", each("", &format!("stop -t {grace}"))));
    text.line(&format!("ExecStopPost=-{remove}"));
}

/// The options that the content gives.
fn options(content: &Container, cob: &CobId, runtime: Runtime, variables: Option<&Path>) -> Vec<String> {
    let is_docker = runtime == Runtime::Docker;
    let mut all = vec![format!("--name={}", content.container_name(cob))];
    if !is_docker {
        all.push("--replace".to_owned());
    }
    let mut add = |name: &str, value: &dyn std::fmt::Display| all.push(format!("--{name}={value}"));
    if is_docker {
        add("rm", &true);
        add("label", &format!("{}={}", runtime.unit_label(), content.unit_name(cob)));
    }
    add("pull", &"missing");
    // The journal has docker's output, too, from its client; this is a bounded copy for `docker logs`.
    add("log-driver", &if is_docker { "local" } else { "journald" });
    if let Some(file) = content.auth_file.as_ref().filter(|_| !is_docker) {
        add("authfile", &file.display());
    }
    match content.entrypoint.first() {
        Some(program) if is_docker => add("entrypoint", program),
        Some(_) => add("entrypoint", &json!(content.entrypoint)),
        None => {}
    }
    content.publish.iter().for_each(|port| add("publish", port));
    content.volumes.iter().for_each(|volume| add("volume", volume));
    let at_once = if is_docker { 1 } else { usize::MAX };
    content.networks.iter().take(at_once).for_each(|network| add("network", network));
    for (name, value) in content.env.iter().filter(|(_, value)| secret::marks(value).next().is_none()) {
        add("env", &format!("{name}={value}"));
    }
    if let Some(file) = variables {
        add("env-file", &file.display());
    }
    if let Some(user) = content.user.as_ref().and_then(|user| user.text("user", None).ok()) {
        add("user", &user);
    }
    if content.read_only {
        add("read-only", &true);
    }
    if let Some(memory) = content.memory {
        add("memory", &format!("{}b", memory.0));
    }
    if let Some(cpus) = content.cpus {
        add("cpus", &cpus);
    }
    if let Some(health) = &content.health {
        let time = |time: cob_kinds::Time| format!("{}ms", time.0.as_millis());
        match &health.command {
            Command::Shell(text) => add("health-cmd", text),
            Command::Argv(words) if is_docker => add("health-cmd", &shell_words(words)),
            // With the word `CMD` before it podman 4.3 takes the list for a text.
            Command::Argv(words) => add("health-cmd", &json!(words)),
        }
        add("health-interval", &time(health.interval));
        add("health-timeout", &time(health.timeout));
        add("health-retries", &health.retries);
        add("health-start-period", &time(health.start_period));
        if !is_docker {
            add("health-on-failure", &"kill");
        }
    }
    all.extend(content.options.iter().cloned());
    all
}

/// A list of words as a text for a shell.
fn shell_words(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

/// A word of a line in a unit file, as systemd reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::with_capacity(word.len() + 2);
    text.push('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '$' => text.push_str("$$"),
            '%' => text.push_str("%%"),
            '\n' => text.push_str("\\n"),
            c if c.is_control() && u32::from(c) < 0x100 => {
                write!(text, "\\x{:02x}", u32::from(c)).expect("a text takes all")
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// A text without specifiers of systemd.
fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "registry.example/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn container(keys: &str) -> Container {
        cob_kinds::read(&format!("{{\"image\":\"{IMAGE}\"{keys}}}")).expect("good")
    }

    fn derived_by(runtime: Runtime, keys: &str) -> Result<Derived, String> {
        let cob = CobId::new("n1/web/app").expect("an id");
        derive(&container(keys), &cob, runtime, 10_000, Some(Path::new("/dev/shm/x")))
    }

    fn derived(keys: &str) -> Result<Derived, String> {
        derived_by(Runtime::Podman, keys)
    }

    fn file(keys: &str) -> String {
        file_by(Runtime::Podman, keys)
    }

    fn file_by(runtime: Runtime, keys: &str) -> String {
        let derived = derived_by(runtime, keys).expect("derived");
        let service: cob_kinds::Service = cob_kinds::read(&derived.content).expect("a service");
        assert_eq!(service.unit.as_deref(), Some("container-web-app.service"));
        match service.unit_file {
            Some(cob_kinds::UnitText::Itself(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    /// Another text would restart all containers with the next version of the daemon.
    #[test]
    fn the_unit_of_podman_stays_as_it_is() {
        let text = file(r#","command":["-x"],"auth_file":"/a","health":{"command":"probe"}"#);
        let wanted = r#"# COB manages this file for n1/web/app: changes are lost.
[Unit]
Description=Container web-app of n1/web/app
Wants=network-online.target
After=network-online.target
RequiresMountsFor=%t/containers

[Service]
Type=notify
NotifyAccess=all
Environment=PODMAN_SYSTEMD_UNIT=%n
Restart=on-failure
TimeoutStartSec=5min
TimeoutStopSec=70
ExecStartPre=/bin/rm -f %t/%n.ctr-id
ExecStart=/usr/bin/podman --events-backend=file run --cidfile=%t/%n.ctr-id --sdnotify=conmon --cgroups=no-conmon --detach --rm \
    --name=web-app \
    --replace \
    --pull=missing \
    --log-driver=journald \
    --authfile=/a \
    --health-cmd=probe \
    --health-interval=30000ms \
    --health-timeout=30000ms \
    --health-retries=3 \
    --health-start-period=0ms \
    --health-on-failure=kill \
    IMAGE -x
ExecStop=/usr/bin/podman --events-backend=file stop --ignore --time=10 --cidfile=%t/%n.ctr-id
ExecStopPost=/usr/bin/podman --events-backend=file rm --force --ignore --time=10 --cidfile=%t/%n.ctr-id

[Install]
WantedBy=multi-user.target
"#;
        assert_eq!(text, wanted.replace("IMAGE", IMAGE));
    }

    #[test]
    fn the_unit_of_docker_finds_its_container_by_a_label() {
        let text = file_by(
            Runtime::Docker,
            r#","command":["-x"],"entrypoint":["/bin/a","b c"],"networks":["front","back"],"auth_file":"/a/config.json",
            "volumes":["/srv/a b:/b:ro","data:/data"]"#,
        );
        let wanted = r#"# COB manages this file for n1/web/app: changes are lost.
[Unit]
Description=Container web-app of n1/web/app
Wants=network-online.target
After=network-online.target
RequiresMountsFor="/srv/a b"
Requires=docker.service
After=docker.service

[Service]
Type=exec
Restart=on-failure
TimeoutStartSec=5min
TimeoutStopSec=70
ExecStartPre=/bin/sh -c "for it; do [ -e \"$$it\" ] || { echo \"the host has no $$it, which the container mounts\"; exit 1; }; done" sh "/srv/a b"
ExecStartPre=-/bin/sh -c "for id in $$(DOCKER container ls --all --quiet --filter label=cob.unit=container-web-app.service); do DOCKER container rm --force $$id; done >/dev/null"
ExecStartPre=DOCKER --config=/a container create \
    --name=web-app \
    --rm=true \
    --label=cob.unit=container-web-app.service \
    --pull=missing \
    --log-driver=local \
    --entrypoint=/bin/a \
    "--volume=/srv/a b:/b:ro" \
    --volume=data:/data \
    --network=front \
    IMAGE "b c" -x
ExecStartPre=DOCKER network connect back web-app
ExecStart=DOCKER container start --attach web-app
ExecStartPost=/bin/sh -c "until [ \"$$(DOCKER container inspect --format '{{.State.Running}}' web-app)\" = true ] || ! kill -0 $$MAINPID; do sleep 0.2; done 2>/dev/null"
ExecStop=-/bin/sh -c "for id in $$(DOCKER container ls --quiet --filter label=cob.unit=container-web-app.service); do DOCKER container stop -t 10 $$id; done >/dev/null"
ExecStopPost=-/bin/sh -c "for id in $$(DOCKER container ls --all --quiet --filter label=cob.unit=container-web-app.service); do DOCKER container rm --force $$id; done >/dev/null"

[Install]
WantedBy=multi-user.target
"#;
        let wanted = wanted.replace("DOCKER", "/usr/bin/docker --host=unix:///run/docker.sock").replace("IMAGE", IMAGE);
        assert_eq!(text, wanted);
        let fault = derived_by(Runtime::Docker, r#","auth_file":"/a/auth.json""#).expect_err("refused");
        assert!(fault.contains("`auth_file`") && fault.contains("config.json"), "{fault}");
    }

    #[test]
    fn docker_gets_a_health_command_as_text_and_its_unit_kills_the_unhealthy() {
        let keys = r#","health":{"command":["/bin/probe","it's"],"interval":"90s"}"#;
        let text = file_by(Runtime::Docker, keys);
        assert!(text.contains(r#""--health-cmd='/bin/probe' 'it'\\''s'""#), "{text}");
        assert!(!text.contains("health-on-failure"), "{text}");
        assert!(text.contains("(while sleep 90; do [ ") && text.contains("!= unhealthy ] || "), "{text}");
        let service: serde_json::Value =
            serde_json::from_str(&derived_by(Runtime::Docker, keys).expect("derived").content).expect("JSON");
        let docker = Runtime::Docker.program();
        assert_eq!(service["ready"], json!([docker[0], docker[1], "exec", "web-app", "/bin/probe", "it's"]));
    }

    #[test]
    fn the_unit_runs_podman_with_the_options_of_the_content() {
        let text = file(
            r#","publish":["127.0.0.1:8080:80"],"volumes":["/srv/a b:/b:ro","data:/data"],"networks":["front"],"user":7,
            "env":{"A":"50 % of $HOME \"x\"\\\n"},"command":["-x",""],"read_only":true,"memory":"512M","cpus":1.5,
            "options":["--cap-add=NET_ADMIN"],"entrypoint":["/bin/a","b c"]"#,
        );
        for line in [
            "    --name=web-app \\",
            "    --publish=127.0.0.1:8080:80 \\",
            "    \"--volume=/srv/a b:/b:ro\" \\",
            "    --volume=data:/data \\",
            "    --network=front \\",
            r#"    "--env=A=50 %% of $$HOME \"x\"\\\n" \"#,
            r#"    "--entrypoint=[\"/bin/a\",\"b c\"]" \"#,
            "    --user=7 \\",
            "    --read-only=true \\",
            "    --memory=536870912b \\",
            "    --cpus=1.5 \\",
            "    --cap-add=NET_ADMIN \\",
            &format!("    {IMAGE} -x \"\""),
            "RequiresMountsFor=%t/containers \"/srv/a b\"",
            "TimeoutStopSec=70",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("Condition") && !text.contains("env-file"), "{text}");
    }

    #[test]
    fn the_health_command_decides_that_it_is_up() {
        let service = |command: &str| {
            let keys = format!(r#","health":{{"command":{command},"interval":"10s","retries":2}}"#);
            let service: serde_json::Value =
                serde_json::from_str(&derived(&keys).expect("derived").content).expect("JSON");
            (service["ready"].clone(), service["unit_file"].as_str().expect("a text").to_owned())
        };
        let podman = Runtime::Podman.program();
        let (ready, text) = service(r#"["/bin/probe","x y"]"#);
        assert_eq!(ready, json!([podman[0], podman[1], "exec", "web-app", "/bin/probe", "x y"]));
        assert!(text.contains(r#""--health-cmd=[\"/bin/probe\",\"x y\"]""#), "{text}");
        assert!(text.contains("--health-interval=10000ms") && text.contains("--health-retries=2"), "{text}");
        assert!(text.contains("--health-on-failure=kill"), "{text}");
        let (ready, text) = service(r#""probe | grep ok""#);
        assert_eq!(ready, json!([podman[0], podman[1], "exec", "web-app", "/bin/sh", "-c", "probe | grep ok"]));
        assert!(text.contains(r#""--health-cmd=probe | grep ok""#), "{text}");
    }

    #[test]
    fn values_of_secrets_are_only_in_a_file_in_memory() {
        let mark = |byte: u8| secret::SecretId([byte; 16]).mark();
        let keys = |value: &str| format!(r#","env":{{"WORD":"{value}","COLOUR":"red"}}"#);
        let (one, other) = (keys(&mark(1)), keys(&format!("x{}", mark(2))));
        let text = file(&one);
        let path = derived(&one).expect("derived").variables.expect("a file");
        assert!(text.contains(&format!("--env-file={}", path.display())), "{text}");
        assert!(text.contains(&format!("ConditionPathExists={}", path.display())), "{text}");
        assert!(text.contains("--env=COLOUR=red") && !text.contains("WORD") && !text.contains("cob-secret"), "{text}");
        assert_ne!(file(&other), text, "another value gives another unit");
        assert_eq!(derived(&one).expect("derived").secrets, ["WORD"]);
        let without_key = derive(&container(&one), &CobId::new("n1/a").expect("an id"), Runtime::Podman, 1, None);
        assert!(without_key.expect_err("refused").contains("no key"));
    }

    #[test]
    fn a_content_that_does_not_fit_into_a_command_is_refused() {
        let error = derived(&format!(r#","env":{{"A":"{}"}}"#, "x".repeat(MAX))).expect_err("too long");
        assert!(error.contains("64 KiB"), "{error}");
    }
}
