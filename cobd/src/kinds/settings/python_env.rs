//! The kind back end `python-env`: a virtual environment of Python. [`Tree`] exchanges the folder.
//!
//! Programs of an environment name its folder. The new environment is made beside the place, so the texts in it that
//! name the new folder are changed before the exchange. A check reads the metadata that pip leaves in the environment,
//! and runs no program of it, which other users may write.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use cob_kinds::PythonEnv;
use serde_json::{Value, json};

use super::tree::{NEW_RECORD, Nodes, Packages, RECORD, Rules, Tree};
use super::{Entry, Spec, fetch, packages, place};
use crate::kinds::native::{NOTE, inspect, needs_program};

/// The package that has Python with the modules for environments.
const PACKAGE: &str = "python3-venv of Debian, or python3";
/// Tells by the exit status whether the interpreter has the modules for environments with pip.
const MODULES: &str = "import ensurepip, venv";
/// The most bytes of a package's metadata that are read.
const MAX_METADATA: u64 = 64 << 10;
/// The largest program whose content counts; of larger programs only the size counts.
const MAX_SCRIPT: u64 = 64 << 10;

impl Entry<PythonEnv> {
    fn tree(&self) -> Result<Tree, String> {
        let place = place::real(&self.host, &self.content.path)?;
        let packages = Packages { read, exact: self.content.exact, cache: "__pycache__" };
        let rules = Rules { owner: false, git: false, packages: Some(packages) };
        Ok(Tree { place, own: self.own.to_owned(), rules })
    }

    /// The options for pip.
    fn options(&self) -> Result<Vec<String>, String> {
        let content = &self.content;
        let mut options = Vec::new();
        options.extend(content.no_index.then(|| "--no-index".to_owned()));
        options.extend(content.index.iter().map(|url| format!("--index-url={url}")));
        options.extend(content.extra_indexes.iter().map(|url| format!("--extra-index-url={url}")));
        for folder in &content.find_links {
            let folder = place::real(&self.host, folder)?;
            options.push(format!("--find-links={}", place::text(&folder)?));
        }
        options.extend(content.only_binary.then(|| "--only-binary=:all:".to_owned()));
        Ok(options)
    }

    /// The origin of the environment: all that decides about its content.
    fn source(&self) -> Result<String, String> {
        let mut words = vec![self.content.interpreter.clone()];
        words.extend(self.options()?);
        words.extend(self.content.specifiers());
        if let Some(path) = &self.content.requirements {
            words.push(format!("-r {path} with checksum {}", packages::file(&self.host, path)?.1));
        }
        Ok(words.join(" "))
    }

    /// Makes the environment and installs the packages.
    fn install(&self, folder: &Path, temporary: &Path, place: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.content.interpreter);
        command.args(["-m", "venv", "--prompt"]).arg(place.file_name().unwrap_or_default()).arg(folder);
        packages::run(&mut command, temporary)?.ok()?;
        let mut arguments = self.options()?;
        arguments.push("--".to_owned());
        arguments.extend(self.content.specifiers());
        let mut command = Command::new(folder.join("bin/python"));
        command.args(["-m", "pip", "install", "--no-input", "--no-cache-dir", "--progress-bar=off"]);
        command.args(["--disable-pip-version-check", "--no-warn-script-location"]);
        if let Some(path) = &self.content.requirements {
            command.arg("-r").arg(packages::file(&self.host, path)?.0);
        }
        if self.content.requirements.is_some() || !self.content.packages.is_empty() {
            packages::run(command.args(arguments), temporary)?.ok()?;
        }
        relocate(folder, place)
    }
}

/// Changes the texts of an environment that name its folder.
fn relocate(from: &Path, to: &Path) -> Result<(), String> {
    let (old, new) = (place::text(from)?, place::text(to)?);
    let programs = packages::names(&from.join("bin"))?.into_iter().map(|name| from.join("bin").join(name));
    for path in programs.chain([from.join("pyvenv.cfg")]) {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let Some(meta) = inspect(&path)?.filter(fs::Metadata::is_file) else { continue };
        let bytes = fs::read(&path).map_err(|error| failed(&error))?;
        if !bytes.windows(old.len()).any(|part| part == old.as_bytes()) {
            continue;
        }
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let text =
            text.ok_or_else(|| failed(&"this program names the folder where it was built, and can't be moved"))?;
        fs::write(&path, text.replace(old, new)).map_err(|error| failed(&error))?;
        let mode = fs::Permissions::from_mode(meta.permissions().mode());
        fs::set_permissions(&path, mode).map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// The names and versions of the packages in an environment, its programs, and its interpreter.
fn read(folder: &Path) -> Result<Nodes, String> {
    let mut nodes = Nodes::new();
    packages::read_source(folder, &mut nodes);
    let bin = folder.join("bin");
    // An upgrade of the host may remove or replace the interpreter.
    if let Ok(real) = bin.join("python").canonicalize() {
        nodes.insert("the interpreter".to_owned(), real.to_string_lossy().into_owned());
    }
    for name in packages::names(&bin)? {
        let path = bin.join(&name);
        let Some(meta) = inspect(&path)?.filter(fs::Metadata::is_file) else { continue };
        let mode = meta.permissions().mode() & 0o7777;
        let content = if meta.len() > MAX_SCRIPT { meta.len().to_string() } else { fetch::sum_of(&path)? };
        nodes.insert(format!("bin/{name}"), format!("{mode:04o} {content}"));
    }
    for python in packages::names(&folder.join("lib"))?.iter().filter(|name| name.starts_with("python")) {
        let site = folder.join("lib").join(python).join("site-packages");
        for name in packages::names(&site)?.iter().filter(|name| name.ends_with(".dist-info")) {
            if let Some((name, version)) = metadata(&site.join(name).join("METADATA")) {
                nodes.insert(PythonEnv::normalized(&name), version);
            }
        }
    }
    Ok(nodes)
}

/// Name and version in the metadata of a package. `None`: it is not installed completely.
fn metadata(path: &Path) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MAX_METADATA).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let headers = || text.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let header = |key: &str| headers().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.trim());
    Some((header("Name")?.to_owned(), header("Version")?.to_owned()))
}

impl Spec for Entry<PythonEnv> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, RECORD, NEW_RECORD]
    }

    fn target(&self) -> String {
        self.content.path.clone()
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        self.tree()?.look("packages", before)
    }

    fn before(&self) -> Result<Option<Value>, String> {
        self.tree()?.before()
    }

    fn wanted(&self) -> Value {
        json!({ "packages": self.source().unwrap_or_else(|why| why), "changes": [] })
    }

    fn hindered(&self) -> Result<(), String> {
        let interpreter = &self.content.interpreter;
        needs_program(interpreter, PACKAGE)?;
        let ran = Command::new(interpreter).args(["-c", MODULES]).stdin(Stdio::null()).output();
        match ran.map_err(|error| format!("{interpreter}: {error}"))?.status.success() {
            true => Ok(()),
            false => Err(format!("{interpreter} can't make environments with pip; install the package {PACKAGE}")),
        }
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let tree = self.tree()?;
        let install = |folder: &Path, temporary: &Path| self.install(folder, temporary, &tree.place);
        tree.make(before, Some(&self.source()?), &|folder| {
            packages::fill(folder, &|| self.source(), &|temporary| install(folder, temporary))
        })
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.tree()?.restore(before)
    }
}

#[cfg(test)]
#[path = "python_env_test.rs"]
mod tests;
