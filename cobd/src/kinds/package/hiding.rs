//! Folders of the host that a program does not see, and files that it can't delete: in a mount namespace of its own an empty
//! folder is mounted on each folder, and each file on itself.

use std::path::PathBuf;
use std::process::Command;

/// The exit status when they can't be hidden, and the program was not run.
pub(super) const FAILED: i32 = 97;

/// Hides each of the first `$1` words, and executes the rest.
const HIDE: &str = r#"count=$1
shift
while [ "$count" -gt 0 ]; do
    if [ -d "$1" ]; then
        mount -t tmpfs -o mode=0755,size=64k cob-kept "$1" || exit 97
    else
        mount --bind "$1" "$1" || exit 97
    fi
    shift
    count=$((count - 1))
done
exec "$@""#;

/// The same command, without these folders and files.
pub(super) fn without(paths: &[PathBuf], command: &Command) -> Command {
    let mut hiding = Command::new("unshare");
    hiding.args(["--mount", "--propagation", "private", "--", "sh", "-c"]);
    hiding.arg(HIDE).arg("sh").arg(paths.len().to_string()).args(paths);
    hiding.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => hiding.env(name, value),
            None => hiding.env_remove(name),
        };
    }
    hiding
}
