//! Hides folders from a program and protects files from deletion: in a separate mount namespace, an empty folder is
//! mounted on each folder, and each file is mounted on itself.

use std::path::PathBuf;
use std::process::Command;

/// The exit status if a mount failed, and the program did not run.
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

/// The same command, with these folders hidden and these files protected.
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
