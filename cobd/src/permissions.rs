//! Checks that no other user may write the files that the daemon trusts: its state, its configuration, a depot without
//! signatures.
//!
//! If another user may change such a file or replace a folder above it, that user decides which programs run as the
//! daemon's user. So a daemon checks before it starts, and refuses with a remedy.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Other users may create names in a folder with this bit, but not replace names of others.
const STICKY: u32 = 0o1000;

/// A path that other users may write, or that can't be checked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}: {what}", .path.display())]
pub struct Exposed {
    /// The file or folder.
    pub path: PathBuf,
    /// The error and the remedy.
    pub what: String,
}

/// The user and group of this process.
#[derive(Debug, Clone, Copy)]
struct Me {
    user: u32,
    group: u32,
}

impl Me {
    fn now() -> Self {
        Self { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
    }

    /// Whether the owner is this process's user, or root, who has all rights anyway.
    fn trusts_owner(self, found: &Metadata) -> bool {
        [self.user, 0].contains(&found.uid())
    }

    /// Whether other users may write. A user's own group usually has no other member.
    fn others_may_write(self, found: &Metadata) -> bool {
        let by_group = found.mode() & 0o020 != 0 && ![self.group, 0].contains(&found.gid());
        by_group || found.mode() & 0o002 != 0
    }
}

/// Makes the state folder, or sets its mode to 0700. Only the daemon's user may own or replace it.
///
/// Returns the path without links: runners find the folder by this path, regardless of the links that led there.
///
/// # Errors
/// [`Exposed`]: another user owns the folder, may have written into it, or may replace it; or its path is not UTF-8.
pub fn own_folder(path: &Path) -> Result<PathBuf, Exposed> {
    let bad = |what: String| Exposed { path: path.to_owned(), what };
    let me = Me::now();
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| bad(e.to_string()))?;
    let found = fs::metadata(path).map_err(|e| bad(e.to_string()))?;
    if found.uid() != me.user {
        return Err(bad(format!(
            "user {} owns it, and not user {}, which runs this daemon: `chown -R` it if all its files are yours, \
             or name another `state_dir`",
            found.uid(),
            me.user
        )));
    }
    if found.mode() & 0o022 != 0 {
        return Err(bad(format!(
            "other users may write into it (mode {:o}); make it 0700, and check that all its files are yours",
            found.mode() & 0o7777
        )));
    }
    unreplaceable(path, me)?;
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(|e| bad(e.to_string()))?;
    }
    let path = path.canonicalize().map_err(|e| bad(e.to_string()))?;
    // Actions get the paths of their files, also in JSON.
    if path.to_str().is_none() {
        return Err(bad("its path is no text (UTF-8): name another `state_dir`".to_owned()));
    }
    Ok(path)
}

/// Checks a file or folder that is trusted as it is: a configuration, a depot without signatures.
///
/// # Errors
/// [`Exposed`]: the owner is neither this user nor root, or others may write or replace it.
pub fn believed(path: &Path) -> Result<(), Exposed> {
    let me = Me::now();
    look(path, me, 0)?;
    unreplaceable(path, me)
}

/// Checks the folders above: the right to rename in a folder is the right to replace the path below. Links are resolved
/// first.
fn unreplaceable(path: &Path, me: Me) -> Result<(), Exposed> {
    let real = fs::canonicalize(path).map_err(|e| Exposed { path: path.to_owned(), what: e.to_string() })?;
    real.ancestors().skip(1).try_for_each(|above| look(above, me, STICKY))
}

fn look(path: &Path, me: Me, harmless: u32) -> Result<(), Exposed> {
    let bad = |what: String| Exposed { path: path.to_owned(), what };
    let found = fs::metadata(path).map_err(|e| bad(e.to_string()))?;
    if !me.trusts_owner(&found) {
        return Err(bad(format!(
            "user {} owns it, and so controls this daemon, which runs as user {}: change the owner with `chown`, or move its content",
            found.uid(),
            me.user
        )));
    }
    if me.others_may_write(&found) && found.mode() & harmless == 0 {
        return Err(bad(format!(
            "other users may write it (mode {:o}, group {}), and so control this daemon: run `chmod go-w`",
            found.mode() & 0o7777,
            found.gid()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o7777
    }

    #[test]
    fn a_state_folder_is_private_and_a_writable_folder_is_refused() {
        let base = tempfile::tempdir().expect("folder");
        let path = base.path().join("a/state");
        own_folder(&path).expect("made");
        assert_eq!((mode(&path), mode(&base.path().join("a"))), (0o700, 0o700));
        for readable in [0o755, 0o750, 0o711] {
            set(&path, readable);
            own_folder(&path).expect("only readable");
            assert_eq!(mode(&path), 0o700);
        }
        for writable in [0o770, 0o702, 0o1777] {
            set(&path, writable);
            let error = own_folder(&path).expect_err("others may have written").to_string();
            assert!(error.contains("other users may write into it") && error.contains("make it 0700"), "{error}");
            assert_eq!(mode(&path), writable, "the mode stays");
        }
    }

    #[test]
    fn a_folder_below_a_writable_folder_is_refused() {
        let base = tempfile::tempdir().expect("folder");
        let above = base.path().join("above");
        let path = above.join("state");
        own_folder(&path).expect("made");
        let link = base.path().join("link");
        symlink(&path, &link).expect("a link");
        set(&above, 0o777);
        for named in [&path, &link] {
            let error = own_folder(named).expect_err("replaceable");
            assert_eq!(error.path, above.canonicalize().expect("there"));
            assert!(error.what.contains("chmod go-w"), "{error}");
        }
        // Like /tmp: names of other users can't be replaced there.
        set(&above, 0o1777);
        let own = own_folder(&link).expect("sticky");
        assert_eq!(own, path.canonicalize().expect("there"), "the same by every path");
    }

    #[test]
    fn a_state_folder_whose_path_is_no_text_is_refused() {
        let base = tempfile::tempdir().expect("folder");
        let odd = base.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        let error = own_folder(&odd).expect_err("refused").to_string();
        assert!(error.contains("no text (UTF-8)"), "{error}");
    }

    #[test]
    fn a_configuration_that_others_may_write_is_refused() {
        let base = tempfile::tempdir().expect("folder");
        let path = base.path().join("cobd.toml");
        fs::write(&path, "").expect("written");
        for (given, fine) in [(0o600, true), (0o644, true), (0o666, false), (0o602, false), (0o1602, false)] {
            set(&path, given);
            assert_eq!(believed(&path).is_ok(), fine, "{given:o}");
        }
        set(&path, 0o644);
        set(base.path(), 0o703);
        assert!(believed(&path).is_err());
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        if rustix::process::geteuid().as_raw() != 0 {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let base = tempfile::tempdir().expect("folder");
        let path = base.path().join("state");
        own_folder(&path).expect("made");
        chown(&path, Some(12345), None).expect("given away");
        for error in [own_folder(&path).map(drop), believed(&path)] {
            let error = error.expect_err("somebody else's").to_string();
            assert!(error.contains("user 12345 owns it") && error.contains("chown"), "{error}");
        }
        // The group of another user, with the right to write.
        chown(&path, Some(0), Some(12345)).expect("taken back");
        believed(&path).expect("it may not write yet");
        set(&path, 0o770);
        assert!(believed(&path).expect_err("it may").what.contains("group 12345"));
        chown(&path, None, Some(0)).expect("ours");
        believed(&path).expect("one's own group may");
    }
}
