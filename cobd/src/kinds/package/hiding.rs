//! Folders of the host that a program does not see: in a mount namespace of its own an empty folder is mounted on each.

use std::path::PathBuf;
use std::process::Command;

/// The exit status when they can't be hidden, and the program was not run.
pub(super) const FAILED: i32 = 97;

/// Mounts an empty folder on each of the first `$1` words, and executes the rest.
const HIDE: &str = r#"count=$1
shift
while [ "$count" -gt 0 ]; do
    mount -t tmpfs -o mode=0755,size=64k cob-kept "$1" || exit 97
    shift
    count=$((count - 1))
done
exec "$@""#;

/// The same command, without these folders.
pub(super) fn without(folders: &[PathBuf], command: &Command) -> Command {
    let mut hiding = Command::new("unshare");
    hiding.args(["--mount", "--propagation", "private", "--", "sh", "-c"]);
    hiding.arg(HIDE).arg("sh").arg(folders.len().to_string()).args(folders);
    hiding.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => hiding.env(name, value),
            None => hiding.env_remove(name),
        };
    }
    hiding
}
