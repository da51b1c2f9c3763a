//! The kind back end `absent`: a file, link or folder that must not exist.
//!
//! What was there is moved into the change object's own folder, and moved back at the departure. If both are on
//! different file systems, a complete copy exists before the original is removed. What appears later at the path is
//! moved beside the first one, and stays in the own folder.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cob_kinds::Absent;
use serde_json::{Value, json};

use super::{Entry, Spec, place};
use crate::durable;
use crate::kinds::native::run_bounded;

/// In the own folder: what was at the path first.
const FIRST: &str = "removed";
/// In the own folder: what appeared there last.
const LATER: &str = "removed-later";
/// The end of the name of an unfinished copy.
const PARTIAL: &str = ".partial";

impl Entry<Absent> {
    fn real(&self) -> Result<PathBuf, String> {
        place::real(&self.host, self.content.path())
    }

    /// The sort of object at the path.
    fn found(&self) -> Result<Option<&'static str>, String> {
        let path = self.real()?;
        let meta = match fs::symlink_metadata(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            meta => meta.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        Ok(Some(match meta.file_type() {
            kind if kind.is_symlink() => "link",
            kind if kind.is_dir() => "folder",
            kind if kind.is_file() => "file",
            _ => "special file",
        }))
    }

    /// Whether it may be moved away.
    fn may_go(&self, path: &Path) -> Result<(), String> {
        if self.own.canonicalize().is_ok_and(|own| own.starts_with(path)) {
            return Err(format!("{} contains the daemon's own data", path.display()));
        }
        let device = |path: &Path| fs::symlink_metadata(path).map(|meta| meta.dev()).ok();
        let is_mounted = path.parent().is_some_and(|above| device(above) != device(path));
        if is_mounted { Err(format!("{} is a mount point: unmount it first", path.display())) } else { Ok(()) }
    }
}

impl Spec for Entry<Absent> {
    fn target(&self) -> String {
        self.content.path().to_owned()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        Ok(Some(json!(self.found()?.unwrap_or("absent"))))
    }

    fn wanted(&self) -> Value {
        json!("absent")
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let (path, first) = (self.real()?, self.own.join(FIRST));
        let has_first = first.symlink_metadata().is_ok();
        if self.found()?.is_none() {
            // A killed attempt may have left the rest of a copied original.
            return if has_first { place::remove_all(&beside(&path)) } else { Ok(()) };
        }
        self.may_go(&path)?;
        transfer(&path, &if has_first { self.own.join(LATER) } else { first })
    }

    fn restore(&self, _before: Option<&Value>) -> Result<(), String> {
        let (path, first) = (self.real()?, self.own.join(FIRST));
        if first.symlink_metadata().is_err() {
            return Ok(());
        }
        if self.found()?.is_some() {
            // Somebody made it anew. Neither is lost.
            eprintln!("{} was made again and stays; the removed version is in {}", path.display(), first.display());
            return Ok(());
        }
        transfer(&first, &path)
    }
}

/// Moves a file, link or folder; `to` is replaced. Killed at any point and repeated, it ends the same.
fn transfer(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{} can't be moved to {}: {error}", from.display(), to.display());
    let partial = beside(to);
    place::remove_all(&partial)?;
    match move_to(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        moved => return moved.map_err(failed),
    }
    // A complete copy, then a move within each file system.
    let mut copy = Command::new("cp");
    run_bounded(copy.args(["--archive", "--no-target-directory", "--"]).arg(from).arg(&partial), b"")?.ok()?;
    run_bounded(Command::new("sync").arg("--file-system").arg(&partial), b"")?.ok()?;
    move_to(&partial, to).map_err(failed)?;
    let rest = beside(from);
    place::remove_all(&rest)?;
    move_to(from, &rest).map_err(failed)?;
    place::remove_all(&rest)
}

/// Moves within a file system, durably.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    // A folder is not replaced by a move.
    if from.parent().map(device_of) == to.parent().map(device_of) {
        place::remove_all(to).map_err(io::Error::other)?;
    }
    fs::rename(from, to)?;
    [from, to].into_iter().filter_map(Path::parent).try_for_each(durable::sync_folder)
}

fn device_of(path: &Path) -> Option<u64> {
    fs::metadata(path).map(|meta| meta.dev()).ok()
}

/// The name of an unfinished copy beside a path.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{PARTIAL}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use cob_kinds::Content as _;

    use super::super::tests::{content, host, moved, setting};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;
    use crate::kinds::testing::{Bench, reason};

    #[tokio::test]
    async fn the_absent_setting_keeps_the_contract() {
        let host = host(&[("etc/a/old.conf", "theirs\n"), ("etc/a/more/x", "1"), ("etc/b", "2")]);
        let [own, other] = ["/etc/a", "/etc/b"].map(|path| content(host.path(), &format!(r#""path":"{path}""#)));
        let case = Case::new(Absent::KIND.kind(), &own).other(&other).watching(host.path()).kills(4);
        holds(&case, &[]).await;
    }

    #[tokio::test]
    async fn files_links_and_folders_return_as_they_were() {
        let host = host(&[("etc/x/file", "theirs\n"), ("etc/x/folder/deep/file", "deep")]);
        let path = |name: &str| host.path().join("etc/x").join(name);
        symlink("/nowhere", path("link")).expect("linked");
        fs::set_permissions(path("file"), fs::Permissions::from_mode(0o604)).expect("set");
        for name in ["file", "folder", "link", "missing"] {
            let mut bench = Bench::new();
            let keys = format!(r#""path":"/etc/x/{name}/""#);
            let context = bench.context(&setting("absent"), &content(host.path(), &keys));
            moved(&mut bench, &context, "absent", "present").await;
            assert!(fs::symlink_metadata(path(name)).is_err(), "{name}");
            moved(&mut bench, &context, "present", "absent").await;
        }
        assert_eq!(fs::read_to_string(path("file")).expect("read"), "theirs\n");
        assert_eq!(fs::metadata(path("file")).expect("there").permissions().mode() & 0o7777, 0o604);
        assert_eq!(fs::read_to_string(path("folder/deep/file")).expect("read"), "deep");
        assert_eq!(fs::read_link(path("link")).expect("a link"), Path::new("/nowhere"));
        assert!(!path("missing").exists());
    }

    #[tokio::test]
    async fn a_file_that_appears_later_is_removed_and_a_recreated_file_stays() {
        let host = host(&[("etc/x/old", "first")]);
        let path = host.path().join("etc/x/old");
        let mut bench = Bench::new();
        let context = bench.context(&setting("absent"), &content(host.path(), r#""path":"/etc/x/old""#));
        moved(&mut bench, &context, "absent", "present").await;
        for text in ["second", "third"] {
            fs::write(&path, text).expect("written");
            let found = bench.check(&context).await;
            assert!(found.state.is_ok_and(|state| state == *"outdated"));
            assert_eq!(found.difference, r#"wanted "absent", found "file""#);
            moved(&mut bench, &context, "outdated", "present").await;
        }
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!(fs::read_to_string(&path).expect("read"), "first");
        moved(&mut bench, &context, "absent", "present").await;
        fs::write(&path, "theirs").expect("written");
        moved(&mut bench, &context, "outdated", "absent").await;
        assert_eq!(fs::read_to_string(&path).expect("read"), "theirs");
    }

    #[tokio::test]
    async fn dangerous_paths_are_refused() {
        let mut bench = Bench::new();
        let context = bench.context(&setting("absent"), r#"{"path":"/proc/sys"}"#);
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(!why.is_empty(), "{why}");
        let host = host(&[("etc/x", "1")]);
        symlink("/usr", host.path().join("out")).expect("linked");
        let context = bench.context(&setting("absent"), &content(host.path(), r#""path":"/out/bin""#));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains("out of"), "{why}");
        assert!(Path::new("/usr/bin").exists());
    }

    /// A copy between file systems, as far as the machine has two that can be written.
    #[test]
    fn a_move_between_file_systems_copies_first() {
        let (here, there) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir_in("/dev/shm"));
        let Ok(there) = there else { return eprintln!("skipped: there is no /dev/shm") };
        if device_of(here.path()) == device_of(there.path()) {
            return eprintln!("skipped: there is only a single file system");
        }
        let (from, to) = (here.path().join("a"), there.path().join("b"));
        fs::create_dir_all(from.join("deep")).expect("made");
        fs::write(from.join("deep/file"), "1").expect("written");
        for (from, to) in [(&from, &to), (&to, &from)] {
            transfer(from, to).expect("moved");
            assert!(!from.exists());
            assert_eq!(fs::read_to_string(to.join("deep/file")).expect("read"), "1");
        }
        assert_eq!(fs::read_dir(here.path()).expect("read").count(), 1, "nothing is left over");
        assert_eq!(fs::read_dir(there.path()).expect("read").count(), 0, "nothing is left over");
    }
}
