//! The service of a container: the unit that runs `podman run`, as `podman generate systemd --new` writes it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cob_kinds::{Container, Health};
use cob_types::{CobId, Command, canonical, secret};
use serde_json::json;

use super::podman::{PODMAN, QUIET};

/// The most bytes of the service's content: it becomes a word of a command, which the kernel limits.
const MAX: usize = 64 << 10;
/// The name of the file with secret variables, before the fingerprint of the secrets.
const VARIABLES: &str = "env-";

/// The service of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Derived {
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
    grace_ms: u64,
    private: Option<&Path>,
) -> Result<Derived, String> {
    let (name, unit) = (content.container_name(cob), content.unit_name(cob));
    let secrets = secret_variables(content);
    let variables = variables_file(content, &secrets, private)?;
    let ready = content.health.as_ref().map(|health| ready(&name, health));
    let service = json!({
        "unit": unit,
        "unit_file": unit_file(content, cob, grace_ms, variables.as_deref()),
        "enabled": content.enabled,
        "ready": ready,
        "settle": format!("{}ms", content.settle.0.as_millis()),
        "exports": content.exports,
    });
    let content = canonical::json(&service);
    if content.len() > MAX {
        return Err(format!("content: its unit file is longer than {} KiB; put long values into files", MAX >> 10));
    }
    Ok(Derived { content, unit, variables, secrets })
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

/// The command that says that the container works: podman's own runs of the health command come seldom.
fn ready(name: &str, health: &Health) -> Vec<String> {
    let words: Vec<String> = match &health.command {
        Command::Shell(text) => ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
        Command::Argv(words) => words.clone(),
    };
    [PODMAN, QUIET, "exec", name].map(str::to_owned).into_iter().chain(words).collect()
}

fn unit_file(content: &Container, cob: &CobId, grace_ms: u64, variables: Option<&Path>) -> String {
    let grace = grace_ms.div_ceil(1000);
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").expect("a text takes all");
    line(&format!("# COB manages this file for {cob}: changes are lost."));
    line("[Unit]");
    line(&format!("Description=Container {} of {cob}", content.container_name(cob)));
    line("Wants=network-online.target");
    line("After=network-online.target");
    let folders = content.volumes.iter().filter_map(|volume| volume.split(':').next());
    let folders = folders.filter(|source| source.starts_with('/')).map(|source| format!(" {}", quoted(source)));
    line(&format!("RequiresMountsFor=%t/containers{}", folders.collect::<String>()));
    if let Some(variables) = variables {
        // After a boot the file is missing until the daemon starts the container.
        line(&format!("ConditionPathExists={}", escaped(&variables.display().to_string())));
    }
    line("");
    line("[Service]");
    line("Type=notify");
    line("NotifyAccess=all");
    line("Environment=PODMAN_SYSTEMD_UNIT=%n");
    line("Restart=on-failure");
    line("TimeoutStartSec=5min");
    line(&format!("TimeoutStopSec={}", grace + 60));
    line("ExecStartPre=/bin/rm -f %t/%n.ctr-id");
    line(&format!(
        "ExecStart={PODMAN} {QUIET} run --cidfile=%t/%n.ctr-id --sdnotify=conmon --cgroups=no-conmon --detach --rm \\"
    ));
    let options = options(content, cob, variables);
    for option in &options {
        line(&format!("    {} \\", quoted(option)));
    }
    let command: Vec<String> =
        std::iter::once(&content.image).chain(&content.command).map(|word| quoted(word)).collect();
    line(&format!("    {}", command.join(" ")));
    line(&format!("ExecStop={PODMAN} {QUIET} stop --ignore --time={grace} --cidfile=%t/%n.ctr-id"));
    line(&format!("ExecStopPost={PODMAN} {QUIET} rm --force --ignore --time={grace} --cidfile=%t/%n.ctr-id"));
    line("");
    line("[Install]");
    line("WantedBy=multi-user.target");
    text
}

/// The options of `podman run` that the content gives.
fn options(content: &Container, cob: &CobId, variables: Option<&Path>) -> Vec<String> {
    let mut all = vec![
        format!("--name={}", content.container_name(cob)),
        "--replace".to_owned(),
        "--pull=missing".to_owned(),
        "--log-driver=journald".to_owned(),
    ];
    let mut add = |name: &str, value: &dyn std::fmt::Display| all.push(format!("--{name}={value}"));
    if let Some(file) = &content.auth_file {
        add("authfile", &file.display());
    }
    if !content.entrypoint.is_empty() {
        add("entrypoint", &json!(content.entrypoint));
    }
    content.publish.iter().for_each(|port| add("publish", port));
    content.volumes.iter().for_each(|volume| add("volume", volume));
    content.networks.iter().for_each(|network| add("network", network));
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
            // With the word `CMD` before it podman 4.3 takes the list for a text.
            Command::Argv(words) => add("health-cmd", &json!(words)),
        }
        add("health-interval", &time(health.interval));
        add("health-timeout", &time(health.timeout));
        add("health-retries", &health.retries);
        add("health-start-period", &time(health.start_period));
        add("health-on-failure", &"kill");
    }
    all.extend(content.options.iter().cloned());
    all
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

    fn derived(keys: &str) -> Result<Derived, String> {
        derive(&container(keys), &CobId::new("n1/web/app").expect("an id"), 10_000, Some(Path::new("/dev/shm/x")))
    }

    fn file(keys: &str) -> String {
        let service: cob_kinds::Service = cob_kinds::read(&derived(keys).expect("derived").content).expect("a service");
        assert_eq!(service.unit.as_deref(), Some("container-web-app.service"));
        match service.unit_file {
            Some(cob_kinds::UnitText::Itself(text)) => text,
            other => panic!("{other:?}"),
        }
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
        let (ready, text) = service(r#"["/bin/probe","x y"]"#);
        assert_eq!(ready, json!([PODMAN, QUIET, "exec", "web-app", "/bin/probe", "x y"]));
        assert!(text.contains(r#""--health-cmd=[\"/bin/probe\",\"x y\"]""#), "{text}");
        assert!(text.contains("--health-interval=10000ms") && text.contains("--health-retries=2"), "{text}");
        assert!(text.contains("--health-on-failure=kill"), "{text}");
        let (ready, text) = service(r#""probe | grep ok""#);
        assert_eq!(ready, json!([PODMAN, QUIET, "exec", "web-app", "/bin/sh", "-c", "probe | grep ok"]));
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
        let without_key = derive(&container(&one), &CobId::new("n1/a").expect("an id"), 1, None);
        assert!(without_key.expect_err("refused").contains("no key"));
    }

    #[test]
    fn a_content_that_does_not_fit_into_a_command_is_refused() {
        let error = derived(&format!(r#","env":{{"A":"{}"}}"#, "x".repeat(MAX))).expect_err("too long");
        assert!(error.contains("64 KiB"), "{error}");
    }
}
