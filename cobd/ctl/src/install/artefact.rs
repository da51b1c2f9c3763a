//! The packages and programs to install, and the choice for each host.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cob_types::canonical::blob_hash;

/// The largest file that is sent, in bytes.
const LARGEST: u64 = 1 << 30;
/// The name of the package.
const NAME: &str = "cob";
/// The unit of the package, and the program that it starts.
const UNIT: &str = include_str!("../../../../packaging/cobd.service");
const PACKAGED: &str = "/usr/bin/cobd ";
const ALONE: &str = "/usr/local/bin/cobd ";

/// A processor architecture, by its Linux name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// `x86_64`, in packages also `amd64`.
    X86,
    /// `aarch64`, in packages also `arm64`.
    Arm,
}

impl Processor {
    /// Parses the output of `uname -m`, or the architecture of a package.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "amd64" => Some(Self::X86),
            "aarch64" | "arm64" => Some(Self::Arm),
            _ => None,
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86 => "x86-64",
            Self::Arm => "arm64",
        })
    }
}

/// The package manager for a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// apt and dpkg.
    Deb,
    /// dnf, yum, zypper or rpm.
    Rpm,
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        })
    }
}

/// The form of an artefact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A package, and its version.
    Package(Manager, String),
    /// The program `cobd` alone.
    Program,
}

/// A file that is installed on hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artefact {
    /// Its path on this machine.
    pub path: PathBuf,
    /// Its form.
    pub form: Form,
    /// The processor that it is built for; `None`: any processor.
    pub processor: Option<Processor>,
    /// The content that is sent.
    pub bytes: Arc<Vec<u8>>,
    /// Its SHA-256.
    pub sum: String,
}

/// Why a file can't be installed.
#[derive(Debug, thiserror::Error)]
pub enum ArtefactError {
    /// The file is unsuitable.
    #[error("{}: {why}", .path.display())]
    Unfit {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl Artefact {
    /// Reads a package and its metadata.
    ///
    /// # Errors
    /// If the file can't be read, or is no package of COB.
    pub fn package(path: &Path) -> Result<Self, ArtefactError> {
        let unfit = |why: String| ArtefactError::Unfit { path: path.to_owned(), why };
        let bytes = read(path)?;
        let manager = if bytes.starts_with(b"!<arch>\ndebian-binary") {
            Manager::Deb
        } else if bytes.starts_with(&[0xed, 0xab, 0xee, 0xdb]) {
            Manager::Rpm
        } else {
            return Err(unfit("this is neither a deb nor an rpm package".to_owned()));
        };
        let label = asked(manager, path).or_else(|| named(manager, path)).ok_or_else(|| {
            let (program, name) = match manager {
                Manager::Deb => ("dpkg-deb", "cob_VERSION_ARCHITECTURE.deb"),
                Manager::Rpm => ("rpm", "cob-VERSION-RELEASE.ARCHITECTURE.rpm"),
            };
            unfit(format!("its version can't be read: there is no {program} here, and its name is not {name}"))
        })?;
        if label.name != NAME {
            return Err(unfit(format!("this is the package {:?}, not {NAME}", label.name)));
        }
        let processor = match label.architecture.as_str() {
            "all" | "noarch" => None,
            name => Some(
                Processor::of(name).ok_or_else(|| unfit(format!("it is for {name:?}: COB has x86-64 and arm64")))?,
            ),
        };
        Ok(Self::new(path, Form::Package(manager, label.version), processor, bytes))
    }

    /// Reads the program `cobd`.
    ///
    /// # Errors
    /// If the file can't be read, or is no program for Linux on a supported processor.
    pub fn program(path: &Path) -> Result<Self, ArtefactError> {
        let unfit = |why: &str| ArtefactError::Unfit { path: path.to_owned(), why: why.to_owned() };
        let bytes = read(path)?;
        // A 64-bit, little-endian ELF file; bytes 18 and 19 name the processor.
        let processor = match bytes.get(..20) {
            Some(head) if head.starts_with(b"\x7fELF\x02\x01") => match (head[18], head[19]) {
                (62, 0) => Processor::X86,
                (183, 0) => Processor::Arm,
                _ => return Err(unfit("it is for an unknown processor: COB has x86-64 and arm64")),
            },
            _ => return Err(unfit("this is not a program for Linux on x86-64 or arm64: name the program cobd itself")),
        };
        Ok(Self::new(path, Form::Program, Some(processor), bytes))
    }

    fn new(path: &Path, form: Form, processor: Option<Processor>, bytes: Vec<u8>) -> Self {
        let sum = blob_hash(&bytes).to_string();
        Self { path: path.to_owned(), form, processor, bytes: Arc::new(bytes), sum }
    }

    /// Whether the artefact fits a host.
    #[must_use]
    pub fn fits(&self, processor: Processor, manager: Option<Manager>) -> bool {
        let managed = match self.form {
            Form::Package(own, _) => manager == Some(own),
            Form::Program => true,
        };
        managed && self.processor.is_none_or(|own| own == processor)
    }
}

impl fmt::Display for Artefact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Package(manager, version) => write!(f, "{manager} package {version}"),
            Form::Program => f.write_str("program"),
        }
    }
}

/// The unit for a program that is installed without a package.
#[must_use]
pub fn unit() -> String {
    UNIT.replace(PACKAGED, ALONE)
}

fn read(path: &Path) -> Result<Vec<u8>, ArtefactError> {
    let unfit = |why: String| ArtefactError::Unfit { path: path.to_owned(), why };
    let length = std::fs::metadata(path).map_err(|e| unfit(e.to_string()))?.len();
    if length > LARGEST {
        return Err(unfit(format!("it is longer than {LARGEST} bytes")));
    }
    std::fs::read(path).map_err(|e| unfit(e.to_string()))
}

/// The metadata of a package.
#[derive(Debug, PartialEq, Eq)]
struct Label {
    name: String,
    version: String,
    architecture: String,
}

/// Asks the tools of this machine, if they are installed.
fn asked(manager: Manager, path: &Path) -> Option<Label> {
    let path = std::path::absolute(path).ok()?;
    let output = match manager {
        Manager::Deb => Command::new("dpkg-deb")
            .args(["--show", "--showformat=${Package} ${Version} ${Architecture}"])
            .arg(path)
            .output(),
        Manager::Rpm => Command::new("rpm")
            .args(["-qp", "--nosignature", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH}"])
            .arg(path)
            .output(),
    };
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut words = text.split_whitespace().map(str::to_owned);
    Some(Label { name: words.next()?, version: words.next()?, architecture: words.next()? })
}

/// Parses the file's name, as package tools write it.
fn named(manager: Manager, path: &Path) -> Option<Label> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    let label = |name: &str, version: &str, architecture: &str| {
        let all = [name, version, architecture].iter().all(|part| !part.is_empty());
        let label = || Label {
            name: name.to_owned(),
            version: version.replace("%3a", ":"),
            architecture: architecture.to_owned(),
        };
        all.then(label)
    };
    match manager {
        Manager::Deb => {
            let mut parts = name.strip_suffix(".deb")?.split('_');
            let found = label(parts.next()?, parts.next()?, parts.next()?);
            found.filter(|_| parts.next().is_none())
        }
        Manager::Rpm => {
            let (rest, architecture) = name.strip_suffix(".rpm")?.rsplit_once('.')?;
            let (rest, release) = rest.rsplit_once('-')?;
            let (name, version) = rest.rsplit_once('-')?;
            label(name, &format!("{version}-{release}"), architecture)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(manager: Manager, name: &str) -> Option<(String, String, String)> {
        named(manager, Path::new(name)).map(|l| (l.name, l.version, l.architecture))
    }

    #[test]
    fn packages_are_known_by_their_names() {
        let found = |a: &str, b: &str, c: &str| Some((a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(label(Manager::Deb, "/x/cob_0.1.0-1_amd64.deb"), found("cob", "0.1.0-1", "amd64"));
        assert_eq!(label(Manager::Deb, "cob_1%3a0.1.0-1_arm64.deb"), found("cob", "1:0.1.0-1", "arm64"));
        assert_eq!(label(Manager::Rpm, "cob-0.1.0-1.x86_64.rpm"), found("cob", "0.1.0-1", "x86_64"));
        for (manager, name) in [(Manager::Deb, "cob.deb"), (Manager::Deb, "a_b_c_d.deb"), (Manager::Rpm, "cob.rpm")] {
            assert_eq!(label(manager, name), None, "{name}");
        }
    }

    #[test]
    fn programs_are_known_by_their_first_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cobd");
        let made = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            Artefact::program(&path)
        };
        let elf = |machine: u8| [&b"\x7fELF\x02\x01\x01"[..], &[0; 11], &[machine, 0, 1]].concat();
        let arm = made(&elf(183)).expect("a program");
        assert_eq!((arm.processor, arm.sum.len()), (Some(Processor::Arm), 64));
        assert!(arm.fits(Processor::Arm, None) && !arm.fits(Processor::X86, Some(Manager::Deb)));
        for (bytes, words) in [(elf(3), "unknown processor"), (b"#!/bin/sh".to_vec(), "not a program for Linux")] {
            let error = made(&bytes).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = Artefact::package(&path).expect_err("a script").to_string();
        assert!(error.contains("neither a deb nor an rpm"), "{error}");
    }

    #[test]
    fn the_unit_starts_the_program_that_was_put_there() {
        assert!(unit().contains("\nExecStart=/usr/local/bin/cobd run --config /etc/cob/cobd.toml\n"));
    }
}
