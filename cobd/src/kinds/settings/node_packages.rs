//! The kind back end `node-packages`: a folder with packages from npm. [`Tree`] exchanges the folder.
//!
//! A check reads the files `package.json` of the packages, and runs no program.

use std::fs;
use std::path::Path;
use std::process::Command;

use cob_kinds::NodePackages;
use serde_json::{Value, json};

use super::tree::{NEW_RECORD, Nodes, Packages, RECORD, Rules, Tree};
use super::{Entry, Spec, packages, place};
use crate::kinds::native::{NOTE, inspect, needs_program};

/// The folder with the packages.
const MODULES: &str = "node_modules";
/// The description of a folder with packages.
const MANIFEST: &str = "package.json";
/// The exact versions of all packages.
const LOCK: &str = "package-lock.json";
/// The most lines of an error of npm that are shown.
const MAX_REASONS: usize = 3;

impl Entry<NodePackages> {
    fn tree(&self) -> Result<Tree, String> {
        let place = place::real(&self.host, &self.content.path)?;
        let packages = Packages { read, exact: self.content.exact, cache: ".cache" };
        let rules = Rules { owner: false, git: false, packages: Some(packages) };
        Ok(Tree { place, own: self.own.to_owned(), rules })
    }

    /// The options for npm.
    fn options(&self) -> Vec<String> {
        let content = &self.content;
        let mut options = Vec::new();
        options.extend(content.ignore_scripts.then(|| "--ignore-scripts".to_owned()));
        options.extend((content.lock.is_some() && !content.dev).then(|| "--omit=dev".to_owned()));
        options.extend(content.registry.iter().map(|url| format!("--registry={url}")));
        options
    }

    /// The description beside the lock file.
    fn manifest(lock: &str) -> String {
        lock.strip_suffix(LOCK).unwrap_or(lock).to_owned() + MANIFEST
    }

    /// The origin of the folder: all that decides about its content.
    fn source(&self) -> Result<String, String> {
        let mut words = vec!["npm".to_owned()];
        words.extend(self.options());
        for (name, version) in &self.content.packages {
            words.push(format!("{name}@{version}"));
            let Some(path) = version.strip_prefix("file:") else { continue };
            if !place::real(&self.host, path)?.is_dir() {
                words.push(format!("with checksum {}", packages::file(&self.host, path)?.1));
            }
        }
        if let Some(lock) = &self.content.lock {
            let [lock_sum, sum] =
                [lock, &Self::manifest(lock)].map(|path| packages::file(&self.host, path).map(|(_, sum)| sum));
            words.push(format!("{lock} with checksum {}, {MANIFEST} with checksum {}", lock_sum?, sum?));
        }
        Ok(words.join(" "))
    }

    /// The description for the new folder.
    fn new_manifest(&self) -> Result<Value, String> {
        let Some(lock) = &self.content.lock else {
            return Ok(json!({ "private": true, "dependencies": self.content.packages }));
        };
        let (path, _) = packages::file(&self.host, &Self::manifest(lock))?;
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let manifest: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let Value::Object(mut manifest) = manifest else {
            return Err(format!("{}: it is not an object of JSON", path.display()));
        };
        // Scripts of the application need its files, which are not here.
        manifest.remove("scripts");
        Ok(Value::Object(manifest))
    }

    /// Installs the packages into a new folder.
    fn install(&self, folder: &Path, temporary: &Path) -> Result<(), String> {
        let manifest = folder.join(MANIFEST);
        let text = format!("{:#}\n", self.new_manifest()?);
        fs::write(&manifest, text).map_err(|error| format!("{}: {error}", manifest.display()))?;
        if let Some(lock) = &self.content.lock {
            let (path, _) = packages::file(&self.host, lock)?;
            fs::copy(&path, folder.join(LOCK)).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut command = Command::new("npm");
        command.arg(if self.content.lock.is_some() { "ci" } else { "install" });
        command.args([
            "--json",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--no-progress",
            "--loglevel=error",
        ]);
        // A package that is a folder is copied, so that it does not change later.
        command.args(["--install-links", "--logs-max=0"]).arg("--cache").arg(temporary.join("cache"));
        command.args(self.options()).current_dir(folder);
        let ran = packages::run(&mut command, temporary)?;
        if ran.code == Some(0) {
            return Ok(());
        }
        Err(reason(&ran.out).unwrap_or_else(|| ran.complaint()))
    }
}

/// The error that npm wrote as JSON: its code, and the first lines of its text.
fn reason(out: &str) -> Option<String> {
    let written: Value = serde_json::from_str(out).ok()?;
    let error = written.get("error")?;
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    let lines = text("summary")
        .lines()
        .chain(text("detail").lines())
        .map(|line| line.trim().trim_end_matches('.'))
        .filter(|line| !line.is_empty());
    let lines = lines.take(MAX_REASONS).collect::<Vec<_>>().join("; ");
    // The exit status of a program of a package is a number.
    let code = Some(text("code")).filter(|code| !code.is_empty() && !lines.starts_with(code));
    Some(format!("npm: {}{lines}", code.map(|code| format!("{code}: ")).unwrap_or_default()))
}

/// The versions of the packages in a folder, and the links to their programs.
fn read(folder: &Path) -> Result<Nodes, String> {
    let mut nodes = Nodes::new();
    packages::read_source(folder, &mut nodes);
    let mut open = vec![String::new()];
    while let Some(above) = open.pop() {
        let modules = folder.join(&above).join(MODULES);
        for name in packages::names(&modules)? {
            let path = modules.join(&name);
            let names = match name.as_str() {
                ".bin" => {
                    for program in packages::names(&path)? {
                        let target = fs::read_link(path.join(&program)).unwrap_or_default();
                        nodes.insert(format!("{above}{MODULES}/.bin/{program}"), target.to_string_lossy().into_owned());
                    }
                    continue;
                }
                scope if scope.starts_with('@') => {
                    packages::names(&path)?.into_iter().map(|package| format!("{name}/{package}")).collect()
                }
                hidden if hidden.starts_with('.') => continue,
                _ => vec![name],
            };
            for name in names {
                let path = format!("{above}{MODULES}/{name}");
                if let Some(version) = version(&folder.join(&path))? {
                    nodes.insert(path.clone(), version);
                    open.push(format!("{path}/"));
                }
            }
        }
    }
    Ok(nodes)
}

/// The version of a package. `None`: it is not installed completely.
fn version(package: &Path) -> Result<Option<String>, String> {
    // A link leads out of the folder.
    if inspect(package)?.is_none_or(|meta| !meta.is_dir()) {
        return Ok(None);
    }
    let Ok(text) = fs::read(package.join(MANIFEST)) else { return Ok(None) };
    let manifest: Value = serde_json::from_slice(&text).unwrap_or_default();
    Ok(manifest.is_object().then(|| manifest["version"].as_str().unwrap_or_default().to_owned()))
}

impl Spec for Entry<NodePackages> {
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
        needs_program("npm", "npm")
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        self.tree()?.make(before, Some(&self.source()?), &|folder| {
            packages::fill(folder, &|| self.source(), &|temporary| self.install(folder, temporary))
        })
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.tree()?.restore(before)
    }
}

#[cfg(test)]
#[path = "node_packages_test.rs"]
mod tests;
