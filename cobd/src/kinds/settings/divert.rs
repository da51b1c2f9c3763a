//! The kind back end `divert`: a file of a package under another name, by `dpkg-divert`.
//!
//! The state is read from the file in which dpkg keeps the diversions; only the program changes the file. The program
//! records a diversion before it renames the file, and renames a file back before it removes the record. The note has
//! the identity of the file, so that an attempt after a kill sees whether the file was renamed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use cob_kinds::Divert;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Entry, Spec};
use crate::kinds::native::{NOTE, needs_program, run_bounded};
use crate::kinds::package::{DPKG, TURN, wait_until_free};

const PROGRAM: &str = "dpkg-divert";
/// All diversions: of each the path, the other path, and the package whose own file keeps the path.
const RECORD: &str = "/var/lib/dpkg/diversions";
/// In the place of a package: a diversion of the administrator, for all packages.
const LOCAL: &str = ":";

/// A recorded diversion.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Diversion {
    path: String,
    to: String,
    package: String,
}

/// Device, inode, length and time of a file: a rename keeps all four. A later file with the same inode has another time.
type Identity = (u64, u64, u64, i64, i64);

/// The host before the first change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// The diversion existed, and belongs to others.
    diverted: bool,
    /// The identity of the file. `None`: the file did not exist.
    file: Option<Identity>,
    /// Whether a file had the other path.
    taken: bool,
}

fn noted(before: Option<&Value>) -> Noted {
    before.and_then(|before| Noted::deserialize(before).ok()).unwrap_or_default()
}

/// The diversions in a record.
fn diversions(record: &str) -> Vec<Diversion> {
    let lines: Vec<&str> = record.lines().collect();
    let diversion = |lines: &[&str]| {
        let [path, to, package] = [0, 1, 2].map(|at| lines[at].to_owned());
        Diversion { path, to, package }
    };
    lines.chunks_exact(3).map(diversion).collect()
}

impl Diversion {
    /// The diversion for people.
    fn described(&self) -> String {
        let Self { path, to, package } = self;
        match package.as_str() {
            LOCAL => format!("an administrator diverts {path} to {to}"),
            package => format!("the package {package} diverts {path} to {to}"),
        }
    }
}

impl Entry<Divert> {
    fn diversions(&self) -> Result<Vec<Diversion>, String> {
        Ok(diversions(&self.host.read(RECORD)?))
    }

    /// The diversion of the path.
    fn found(&self) -> Result<Option<Diversion>, String> {
        Ok(self.diversions()?.into_iter().find(|diversion| diversion.path == self.content.path))
    }

    fn is_wanted(&self, diversion: &Diversion) -> bool {
        diversion.to == self.content.to() && diversion.package == LOCAL
    }

    fn identity(&self, path: &str) -> Result<Option<Identity>, String> {
        let identity = |file: fs::Metadata| (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        Ok(self.host.inspect(path)?.map(identity))
    }

    /// Whether the file still has its path, because the program was killed before it has renamed the file.
    fn is_unfinished(&self, noted: &Noted) -> Result<bool, String> {
        let file = self.identity(&self.content.path)?;
        Ok(self.content.rename && !noted.diverted && file.is_some() && file == noted.file)
    }

    fn run(&self, action: &str, rename: bool) -> Result<(), String> {
        wait_until_free(&self.host, self.longest)?;
        let mut command = Command::new(PROGRAM);
        if let Some(root) = self.host.root() {
            command.arg("--root").arg(root);
        }
        command.args(["--quiet", "--local", if rename { "--rename" } else { "--no-rename" }]);
        command.args(["--divert", &self.content.to(), action, &self.content.path]);
        run_bounded(command.env("LC_ALL", "C.UTF-8"), b"")?.ok().map(|_| ())
    }

    /// Whether no diversion of others touches the paths.
    fn is_free(&self) -> Result<(), String> {
        let (path, to) = (&self.content.path, self.content.to());
        let touches = |other: &Diversion| [path, &to].iter().any(|own| [&other.path, &other.to].contains(own));
        let foreign = |other: &Diversion| touches(other) && !(other.path == *path && self.is_wanted(other));
        match self.diversions()?.into_iter().find(foreign) {
            Some(other) => Err(format!("{}; remove that diversion, or this change object", other.described())),
            None => Ok(()),
        }
    }

    fn has(&self, path: &str) -> Result<bool, String> {
        self.identity(path).map(|file| file.is_some())
    }

    /// Removes the file of a rename that was killed, if the other path has a copy of the file.
    fn remove_copied(&self) -> Result<(), String> {
        let (path, to) = (&self.content.path, self.content.to());
        let [file, copy] = [path, &to].map(|path| fs::read(self.host.path(path)));
        match file.and_then(|file| Ok(file == copy?)) {
            Ok(true) => self.host.remove(path),
            Ok(false) | Err(_) => Err(self.both()),
        }
    }

    fn both(&self) -> String {
        let (path, to) = (&self.content.path, self.content.to());
        format!("{path} and {to} exist; remove either file, or choose another `to`")
    }
}

impl Spec for Entry<Divert> {
    fn target(&self) -> String {
        format!("diversion of {} to {}", self.content.path, self.content.to())
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(found) = self.found()? else { return Ok(None) };
        let is_renamed = before.is_none() || !self.is_unfinished(&noted(before))?;
        Ok(Some(json!({ "to": found.to, "package": found.package, "renamed": is_renamed })))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let [file, other] = [&self.content.path, &self.content.to()].map(|path| self.identity(path));
        let noted = Noted { diverted: self.found()?.is_some(), file: file?, taken: other?.is_some() };
        Ok(Some(json!(noted)))
    }

    fn wanted(&self) -> Value {
        json!({ "to": self.content.to(), "package": LOCAL, "renamed": true })
    }

    fn hindered(&self) -> Result<(), String> {
        needs_program(PROGRAM, "dpkg of Debian")?;
        let database = self.host.path(DPKG);
        if !database.is_dir() {
            return Err(format!("{}: not found; the host has no packages of dpkg", database.display()));
        }
        // A diversion to another path, which this change object has made, leaves first.
        if self.own.join(NOTE).exists() { Ok(()) } else { self.is_free() }
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.is_free()?;
        let (path, to) = (&self.content.path, self.content.to());
        // Of recorded diversions, only an unfinished diversion differs.
        if self.found()?.is_some() {
            if self.has(&to)? {
                return self.remove_copied();
            }
            self.run("--remove", false)?;
        }
        if self.content.rename && self.has(path)? && self.has(&to)? {
            return Err(self.both());
        }
        if self.host.inspect(path)?.is_some_and(|is| is.is_dir()) {
            return Err(format!("{path} is a folder; dpkg diverts only files and links"));
        }
        self.run("--add", self.content.rename)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let noted = noted(before);
        if noted.diverted {
            return Ok(());
        }
        let (path, to) = (&self.content.path, self.content.to());
        let is_unfinished = self.is_unfinished(&noted)?;
        match self.found()? {
            Some(found) if !self.is_wanted(&found) => Ok(()),
            Some(_) if !self.content.rename => self.run("--remove", false),
            Some(_) if is_unfinished && self.has(&to)? => {
                self.remove_copied()?;
                self.run("--remove", true)
            }
            Some(_) if is_unfinished => self.run("--remove", false),
            Some(_) if self.has(path)? && self.has(&to)? => Err(format!(
                "{path} has another file, so {to} can't get its name back; remove {path}, or let its change object come \
                 `after` this one"
            )),
            Some(_) => self.run("--remove", true),
            // The record was removed without the program's rename.
            None if self.content.rename && !noted.taken && !self.has(path)? && self.has(&to)? => {
                self.run("--add", false)?;
                self.run("--remove", true)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "divert_test.rs"]
mod tests;
