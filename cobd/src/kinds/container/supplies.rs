//! The mover: makes what the unit of a container needs, and carries out the unit's transition.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use cob_kinds::{Container, Runtime, Service};
use cob_types::CobId;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::choice::{self, lack_of};
use super::runtime::{LABEL, Program as _, Thing};
use super::unit::Derived;
use crate::durable::{self, Sync};
use crate::kinds::backend::make_folder;
use crate::kinds::service::{Goal, Task, answer, content_path, move_unit};
use crate::run::remove_folder;

/// The second argument, as JSON. Command lines are public: it has no values of secrets.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Supplies {
    cob: String,
    runtime: Runtime,
    /// The transition of the unit.
    task: Task,
    /// The content of the service.
    service: String,
    unit: String,
    /// The folder in memory for secrets.
    private: Option<PathBuf>,
    /// The file there for the variables with values of secrets.
    variables: Option<PathBuf>,
    /// The names of these variables.
    secrets: Vec<String>,
    /// A stop is a part of a change: the new image comes first.
    pulls_first: bool,
}

impl Supplies {
    pub(super) fn new(cob: &CobId, task: Task, derived: Derived, private: Option<PathBuf>, pulls_first: bool) -> Self {
        let Derived { runtime, content: service, unit, variables, secrets } = derived;
        Self { cob: cob.to_string(), runtime, task, service, unit, private, variables, secrets, pulls_first }
    }

    pub(super) fn goal(&self) -> Goal {
        self.task.goal
    }
}

/// Carries out a transition. `main_if_runner` calls it in a separate process.
pub(crate) fn make_move(call: &OsStr) -> ExitCode {
    answer(serde_json::from_slice(call.as_encoded_bytes()).map_err(|e| format!("the call: {e}")).and_then(moved))
}

fn moved(mut call: Supplies) -> Result<(), String> {
    let begun = Instant::now();
    let path = content_path();
    let content = fs::read_to_string(&path).map(Zeroizing::new).map_err(|e| format!("{}: {e}", path.display()))?;
    let content: Container = cob_kinds::read(&content)?;
    let service: Service = cob_kinds::read(&call.service)?;
    let cob = CobId::new(&call.cob).map_err(|e| e.to_string())?;
    let name = content.container_name(&cob);
    match call.task.goal {
        Goal::Start => call.supply(&content, &name)?,
        Goal::Stop if call.pulls_first => call.pull(&content)?,
        Goal::Stop | Goal::Adjust | Goal::Reload => {}
    }
    // The end of the action's time limit is the same.
    let spent = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    call.task.timeout_ms = call.task.timeout_ms.saturating_sub(spent);
    move_unit(&call.task, service)?;
    if call.task.goal == Goal::Stop { call.clear(&content, &name) } else { Ok(()) }
}

impl Supplies {
    /// Makes image, networks, volumes and the file of secrets for a start.
    fn supply(&self, content: &Container, name: &str) -> Result<(), String> {
        let runtime = self.runtime;
        if !runtime.is_installed() {
            let elsewhere = if content.runtime.is_none() { "; `runtime` moves it to another program" } else { "" };
            return Err(lack_of(&[runtime]) + elsewhere);
        }
        choice::note(&self.task.folder, runtime)?;
        if runtime.has(Thing::Container, name)? && runtime.unit_of(name)? != self.unit {
            return Err(format!(
                "the host has a container {name} that COB did not start; remove it (`{} rm --force {name}`), or \
                 give this container another `name`",
                runtime.name()
            ));
        }
        self.pull(content)?;
        for network in content.named_networks() {
            self.make(Thing::Network, network)?;
        }
        for volume in content.named_volumes() {
            self.make(Thing::Volume, volume)?;
        }
        self.hand_over_secrets(content)
    }

    /// Makes a network or volume that does not exist.
    fn make(&self, thing: Thing, name: &str) -> Result<(), String> {
        if self.runtime.has(thing, name)? {
            return Ok(());
        }
        let label = format!("--label={LABEL}={}", self.cob);
        match self.runtime.run(&[thing.word(), "create", &label, name]) {
            // The transition of another container may have made it meanwhile.
            Err(why) if !self.runtime.has(thing, name)? => Err(why),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Writes the variables with values of secrets into the file in memory that the unit names.
    fn hand_over_secrets(&self, content: &Container) -> Result<(), String> {
        let (Some(folder), Some(file)) = (&self.private, &self.variables) else { return Ok(()) };
        let mut text = Zeroizing::new(String::new());
        for name in &self.secrets {
            let value = content.env.get(name).map(String::as_str).unwrap_or_default();
            if value.contains(['\n', '\r', '\0']) {
                return Err(format!(
                    "the value of `{name}` has several lines, which {} reads from no file of variables; write \
                     the secret into a file with a `file-tree`, and mount it with `volumes`",
                    self.runtime.name()
                ));
            }
            text.extend([name.as_str(), "=", value, "\n"]);
        }
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let written = remove_folder(folder)
            .and_then(|()| make_folder(folder))
            .and_then(|()| durable::write_file(folder, name, 0o600, text.as_bytes(), Sync::Later));
        written.map_err(|e| format!("putting its secrets into memory: {}: {e}", folder.display()))
    }

    /// Removes the rest of a stopped container.
    fn clear(&self, content: &Container, name: &str) -> Result<(), String> {
        if let Some(folder) = &self.private {
            remove_folder(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        // Its package may have left before.
        if self.runtime.is_installed() {
            if self.runtime.has(Thing::Container, name)? && self.runtime.unit_of(name)? == self.unit {
                let removed = self.runtime.run(&["rm", "--force", name]);
                // It may have ended meanwhile, and is removed then.
                if self.runtime.has(Thing::Container, name)? {
                    removed?;
                }
            }
            if self.task.leaving {
                clear_made(self.runtime, content)?;
            }
        }
        if self.task.leaving {
            let all = choice::noted(&self.task.folder);
            for former in all.into_iter().filter(|former| *former != self.runtime && former.is_installed()) {
                // It need not work any more.
                let _ = clear_made(former, content);
            }
            choice::forget(&self.task.folder)?;
        }
        Ok(())
    }

    /// Loads the image, unless the host has it.
    fn pull(&self, content: &Container) -> Result<(), String> {
        if self.runtime.has(Thing::Image, &content.image)? {
            return Ok(());
        }
        let file = content.auth_file.as_ref();
        let (config, file) = match self.runtime {
            Runtime::Podman => (None, file.map(|file| format!("--authfile={}", file.display()))),
            Runtime::Docker => {
                (file.and_then(|file| file.parent()).map(|folder| format!("--config={}", folder.display())), None)
            }
        };
        let words = config.as_deref().into_iter().chain(["pull"]).chain(file.as_deref());
        self.runtime.run(&words.chain([content.image.as_str()]).collect::<Vec<_>>()).map(drop)
    }
}

/// Removes the networks and volumes that COB made, once nothing uses them.
fn clear_made(runtime: Runtime, content: &Container) -> Result<(), String> {
    for volume in content.named_volumes().filter(|_| content.remove_volumes) {
        if runtime.has(Thing::Volume, volume)? && runtime.is_ours(Thing::Volume, volume)? {
            runtime.run(&["volume", "rm", volume])?;
        }
    }
    for network in content.named_networks() {
        if runtime.has(Thing::Network, network)? && runtime.is_ours(Thing::Network, network)? {
            // Other containers may use it: the last of these removes it.
            let _ = runtime.run(&["network", "rm", network]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn supplies(private: &std::path::Path) -> Supplies {
        let task = json!({
            "goal": "start", "folder": "/x", "identity": "", "working_folder": "/x", "private": null, "timeout_ms": 1,
            "grace_ms": 1, "systemd": {"address": null, "units": "/x"}, "rests_on": null, "rests_down": false,
            "leaving": false, "triggers": [],
        });
        let call = json!({
            "cob": "n1/web", "runtime": "docker", "task": task, "service": "{}", "unit": "container-web.service",
            "private": private, "variables": private.join("env-1"), "secrets": ["TOKEN", "WORD"], "pulls_first": false,
        });
        serde_json::from_value(call).expect("a call")
    }

    fn container(word: &str) -> Container {
        let env = json!({"TOKEN": "a b=c", "WORD": word, "COLOUR": "red"});
        let content = json!({"image": "localhost/web:1", "allow_tag": true, "env": env});
        cob_kinds::read(&content.to_string()).expect("good")
    }

    #[test]
    fn values_of_secrets_are_handed_over_in_a_file_for_root_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let private = folder.path().join("containers/n1+web");
        let supplies = supplies(&private);
        make_folder(&private).expect("made");
        fs::write(private.join("env-0"), "OLD=secret").expect("written");
        supplies.hand_over_secrets(&container("x")).expect("handed over");
        let names: Vec<_> =
            fs::read_dir(&private).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(names, ["env-1"], "values of an earlier content are gone");
        assert_eq!(fs::read_to_string(private.join("env-1")).expect("read"), "TOKEN=a b=c\nWORD=x\n");
        let mode = |path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
        assert_eq!((mode(private.clone()), mode(private.join("env-1"))), (0o700, 0o600));
        for lines in ["-----BEGIN\nkey", "a\r"] {
            let error = supplies.hand_over_secrets(&container(lines)).expect_err("several lines");
            assert!(error.contains("`WORD`") && error.contains("file-tree") && !error.contains(lines), "{error}");
        }
    }
}
