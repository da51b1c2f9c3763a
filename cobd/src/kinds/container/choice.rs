//! Which runtime runs a container of this host.

use std::fs;
use std::io;
use std::path::Path;

use cob_kinds::{Container, Runtime};

use super::runtime::{ALL, Program as _};
use crate::durable::{self, Sync};
use crate::kinds::backend::make_folder;

/// The note in the container's folder: the runtimes that it has had, a line each, the last of which is the present one.
/// The note outlives the container, so that a later installation of the other program changes nothing.
const NOTE: &str = "runtime";

/// The runtime of a container with this folder: that of the content, otherwise that of its last start, otherwise the
/// first that is installed.
pub(super) fn choose(content: &Container, folder: &Path, is_installed: impl Fn(Runtime) -> bool) -> Runtime {
    let first = || ALL.into_iter().find(|runtime| is_installed(*runtime));
    content.runtime.or_else(|| noted(folder).pop()).or_else(first).unwrap_or(ALL[0])
}

/// All runtimes that the container has had.
pub(super) fn noted(folder: &Path) -> Vec<Runtime> {
    let text = fs::read_to_string(folder.join(NOTE)).unwrap_or_default();
    text.lines().filter_map(|line| ALL.into_iter().find(|runtime| runtime.name() == line)).collect()
}

/// Notes the runtime of a start.
pub(super) fn note(folder: &Path, runtime: Runtime) -> Result<(), String> {
    let mut all = noted(folder);
    if all.last() == Some(&runtime) {
        return Ok(());
    }
    all.retain(|earlier| *earlier != runtime);
    all.push(runtime);
    let text: String = all.into_iter().flat_map(|runtime| [runtime.name(), "\n"]).collect();
    let written =
        make_folder(folder).and_then(|()| durable::write_file(folder, NOTE, 0o600, text.as_bytes(), Sync::Now));
    written.map_err(|error| format!("noting its runtime: {}: {error}", folder.display()))
}

/// Deletes the note: the container leaves.
pub(super) fn forget(folder: &Path) -> Result<(), String> {
    match fs::remove_file(folder.join(NOTE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.join(NOTE).display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The reason why a host without these runtimes runs no container.
pub(super) fn lack_of(runtimes: &[Runtime]) -> String {
    let named = |named: fn(Runtime) -> String, or: &str| {
        runtimes.iter().map(|runtime| named(*runtime)).collect::<Vec<_>>().join(or)
    };
    let paths = named(|runtime| runtime.path().to_owned(), " and ");
    let packages = named(|runtime| format!("`{}`", runtime.package()), " or ");
    format!(
        "this host lacks {paths}; install the package {packages}, or let the container require a change object of the \
         kind `package` that does"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(keys: &str) -> Container {
        cob_kinds::read(&format!("{{\"image\":\"localhost/web:1\",\"allow_tag\":true{keys}}}")).expect("good")
    }

    #[test]
    fn a_program_that_is_installed_later_takes_no_container_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("n1+web");
        let (any, podman) = (container(""), container(r#","runtime":"podman""#));
        let only = |installed: Runtime| move |runtime: Runtime| runtime == installed;
        assert_eq!(choose(&any, &place, |_| false), Runtime::Podman);
        assert_eq!(choose(&any, &place, |_| true), Runtime::Podman);
        assert_eq!(choose(&any, &place, only(Runtime::Docker)), Runtime::Docker);
        for _ in 0..2 {
            note(&place, Runtime::Docker).expect("noted");
            assert_eq!(choose(&any, &place, |_| true), Runtime::Docker);
            assert_eq!(choose(&any, &place, only(Runtime::Podman)), Runtime::Docker);
            assert_eq!(choose(&podman, &place, |_| true), Runtime::Podman, "the content decides");
            assert_eq!(noted(&place), [Runtime::Docker]);
        }
        note(&place, Runtime::Podman).expect("noted");
        assert_eq!(
            (choose(&any, &place, |_| true), noted(&place)),
            (Runtime::Podman, vec![Runtime::Docker, Runtime::Podman])
        );
        note(&place, Runtime::Docker).expect("noted");
        assert_eq!(noted(&place), [Runtime::Podman, Runtime::Docker]);
        for _ in 0..2 {
            forget(&place).expect("forgotten");
            assert_eq!(choose(&any, &place, |_| true), Runtime::Podman);
        }
    }
}
