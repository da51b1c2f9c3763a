//! The programs of Pacemaker.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::kinds::native::needs_program;

/// The package that has all these programs.
const PACKAGE: &str = "pacemaker-cli-utils";
const PROGRAMS: [&str; 6] = ["cibadmin", "crm_diff", "crm_mon", "crm_resource", "crm_simulate", "crm_verify"];
/// The longest output that is read.
const MAX_OUTPUT: u64 = 64 << 20;
/// The exit status of a patch that was made for another version of the configuration.
const OLD_DATA: i32 = 103;
/// The exit status of `crm_diff` for inputs that differ.
const DIFFERENT: i32 = 1;

/// The end of a program.
struct Ran {
    code: Option<i32>,
    out: String,
    complaint: String,
}

/// The end of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patched {
    Done,
    /// Another program has changed the configuration since it was read.
    Outdated,
}

/// Whether the programs are installed.
///
/// # Errors
/// The missing program, with its package.
pub(super) fn are_there() -> Result<(), String> {
    PROGRAMS.iter().try_for_each(|program| needs_program(program, PACKAGE))
}

/// The configuration and the status of the cluster.
pub(super) fn query() -> Result<String, String> {
    run("cibadmin", &["--query"], "")?.succeeded()
}

/// The state of all resources.
pub(super) fn monitor() -> Result<String, String> {
    run("crm_mon", &["--one-shot", "--inactive", "--output-as=xml"], "")?.succeeded()
}

/// Checks a configuration.
pub(super) fn verify(cib: &str) -> Result<(), String> {
    run("crm_verify", &["--xml-pipe", "--verbose"], cib)?.succeeded().map(|_| ())
}

/// What the cluster would do with a configuration.
pub(super) fn simulate(cib: &str) -> Result<String, String> {
    run("crm_simulate", &["--xml-pipe", "--run", "--output-as=xml"], cib)?.succeeded()
}

/// The patch from a configuration to another; `None`: they are equal. It fails if somebody else has changed the
/// configuration meanwhile, and works if only the status has changed.
pub(super) fn patch_between(old: &str, new: &str) -> Result<Option<String>, String> {
    let (old, new) = (in_memory(old)?, in_memory(new)?);
    let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let ran = run("crm_diff", &["--original", &path(&old), "--new", &path(&new)], "")?;
    match ran.code {
        Some(0) => Ok(None),
        Some(DIFFERENT) if !ran.out.trim().is_empty() => Ok(Some(without_updates(&ran.out))),
        Some(_) | None => Err(ran.complaint),
    }
}

/// Applies a patch.
pub(super) fn patch(patch: &str) -> Result<Patched, String> {
    let ran = run("cibadmin", &["--patch", "--xml-pipe"], patch)?;
    if ran.code == Some(OLD_DATA) {
        return Ok(Patched::Outdated);
    }
    ran.succeeded().map(|_| Patched::Done)
}

/// Waits until the cluster has nothing to do. The exit status is not reliable. With an invalid configuration, for example
/// an empty one, a cluster does nothing, and never says that it is idle.
pub(super) fn wait(longest: Duration) -> Result<(), String> {
    if verify(&query()?).is_err() {
        return Ok(());
    }
    let seconds = longest.as_secs().max(1).to_string();
    run("crm_resource", &["--wait", "--timeout", &seconds], "").map(|_| ())
}

/// Forgets the failures of a resource.
pub(super) fn clean_up(resource: &str) -> Result<(), String> {
    run("crm_resource", &["--cleanup", "--resource", resource], "")?.succeeded().map(|_| ())
}

/// The patch without the counter of status changes: with it, the cluster would refuse the patch after each change of
/// its status. All other parts of the version stay, so that no change of others is overwritten.
fn without_updates(patch: &str) -> String {
    let mut text = String::with_capacity(patch.len());
    for line in patch.split_inclusive('\n') {
        let is_version = ["<source ", "<target "].iter().any(|tag| line.trim_start().starts_with(tag));
        match line.split_once(" num_updates=\"").filter(|_| is_version) {
            Some((before, rest)) => {
                text.push_str(before);
                text.push_str(rest.split_once('"').map_or("", |(_, after)| after));
            }
            None => text.push_str(line),
        }
    }
    text
}

/// Values of parameters may be secret, so no file on a disk has them.
fn in_memory(text: &str) -> Result<File, String> {
    let made = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create("cib", MemfdFlags::CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    };
    made().map_err(|error| format!("no file in memory: {error}"))
}

fn run(program: &str, words: &[&str], input: &str) -> Result<Ran, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut out = in_memory("")?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::from(in_memory(input)?)).stderr(Stdio::piped());
    command.stdout(Stdio::from(out.try_clone().map_err(failed)?));
    let ended = command.spawn().and_then(std::process::Child::wait_with_output).map_err(failed)?;
    let mut text = String::new();
    out.seek(SeekFrom::Start(0)).and_then(|_| out.take(MAX_OUTPUT).read_to_string(&mut text)).map_err(failed)?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(6);
    let how = ended.status.code().map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit status {code}"));
    let said: Vec<String> = lines.map(|line| line.replace('\t', " ")).collect();
    let complaint = [vec![format!("{program}: {how}")], said].concat().join(": ");
    Ok(Ran { code: ended.status.code(), out: text, complaint })
}

impl Ran {
    fn succeeded(self) -> Result<String, String> {
        if self.code == Some(0) { Ok(self.out) } else { Err(self.complaint) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_counter_of_status_changes_leaves_the_patch() {
        let patch = r#"<diff format="2">
  <version>
    <source admin_epoch="0" epoch="5" num_updates="4"/>
    <target admin_epoch="0" epoch="5" num_updates="4"/>
  </version>
  <change operation="create" path="/cib/configuration/resources" position="0">
    <primitive id="a num_updates=&quot;1&quot;"/>
  </change>
</diff>
"#;
        assert_eq!(without_updates(patch), patch.replace(" num_updates=\"4\"", ""));
    }
}
