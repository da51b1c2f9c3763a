//! apt and dpkg.
//!
//! The programs never ask: `DEBIAN_FRONTEND=noninteractive`, and a configuration file that a user has changed stays.
//! With its own repository a change object has its own lists, too. The host's lists are neither used nor changed, so
//! only packages of this repository can be installed, and no other network source is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cob_kinds::Package;

use super::own::Own;
use super::plan::Plan;
use super::{Installed, Manager, hiding, lock, not_fetched};
use crate::durable::Sync;
use crate::kinds::kept;
use crate::kinds::native::{Host, Ran, run_bounded};

/// The folder of dpkg's database.
pub(in crate::kinds) const DATABASE: &str = "/var/lib/dpkg";
/// How long to wait for another program that has dpkg's lock, in seconds.
const LOCK_SECONDS: u64 = 120;
/// The change object's own list of sources, package lists and settings.
const SOURCES: &str = "sources.list";
const LISTS: &str = "lists";
const SETTINGS: &str = "apt.conf";

/// The package manager apt, for one package.
#[derive(Debug)]
pub(super) struct Apt<'a> {
    content: &'a Package,
    host: Host,
    own: Own,
}

/// A command of apt that never asks, with the paths of the host. The file `own` has the text of [`settings`].
pub(in crate::kinds) fn command(program: &str, host: &Host, own: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("DEBIAN_FRONTEND", "noninteractive").env("APT_LISTCHANGES_FRONTEND", "none").env("LC_ALL", "C.UTF-8");
    let Some(root) = host.root() else { return command };
    if own.exists() {
        command.env("APT_CONFIG", own);
    }
    let root = root.display();
    for option in [
        format!("Dir={root}"),
        format!("Dir::State::status={root}/var/lib/dpkg/status"),
        "Dir::Bin::Methods=/usr/lib/apt/methods".to_owned(),
        "Dir::Bin::dpkg=/usr/bin/dpkg".to_owned(),
        format!("DPkg::Options::=--root={root}"),
    ] {
        command.args(["-o", &option]);
    }
    command
}

/// The settings for a root folder that becomes a host: apt reads them first, so that the settings below the root
/// folder apply and not the settings of this host.
pub(in crate::kinds) fn settings(host: &Host) -> Option<String> {
    host.root().map(|root| format!("Dir \"{}/\";\n", root.display()))
}

impl<'a> Apt<'a> {
    /// Returns `None` if the host has another package manager.
    pub(super) fn of(content: &'a Package, host: &Host, own: &Path) -> Option<Self> {
        host.path(DATABASE).is_dir().then(|| Self { content, host: host.clone(), own: Own::new(own) })
    }

    /// Writes the change object's own settings and list of sources, and creates the folder of lists.
    fn prepare(&self) -> Result<(), String> {
        let write = |name: &str, text: &str| self.own.write(name, 0o644, text, Sync::Later);
        if let Some(text) = settings(&self.host) {
            write(SETTINGS, &text)?;
        }
        if let Some(source) = self.content.source() {
            write(SOURCES, &source)?;
            let partial = self.own.join(LISTS).join("partial");
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(partial)
                .map_err(|error| self.own.failed(&error))?;
        }
        Ok(())
    }

    /// A command of apt with all paths and options.
    fn apt(&self, program: &str) -> Command {
        let mut command = command(program, &self.host, &self.own.join(SETTINGS));
        let mut set = |option: String| _ = command.args(["-o", &option]);
        if self.content.is_own_repository() {
            set(format!("Dir::Etc::SourceList={}", self.own.join(SOURCES).display()));
            set("Dir::Etc::SourceParts=/dev/null".to_owned());
            set(format!("Dir::State::Lists={}", self.own.join(LISTS).display()));
            // The sandbox user of apt has no access to the own folder.
            set("APT::Sandbox::User=root".to_owned());
        }
        // The cache was built from other lists.
        set("Dir::Cache::pkgcache=".to_owned());
        set("Dir::Cache::srcpkgcache=".to_owned());
        set(format!("DPkg::Lock::Timeout={LOCK_SECONDS}"));
        // The child processes stay in the action's process group, so that its end reaches dpkg, too.
        set("Dpkg::Use-Pty=0".to_owned());
        set("DPkg::Options::=--force-confdef".to_owned());
        set("DPkg::Options::=--force-confold".to_owned());
        command
    }

    fn dpkg(&self) -> Command {
        let mut command = Command::new("dpkg");
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
        if let Some(root) = self.host.root() {
            command.arg(format!("--root={}", root.display()));
        }
        command
    }

    fn get(&self, arguments: &[&str]) -> Result<Ran, String> {
        self.prepare()?;
        run_bounded(self.apt("apt-get").args(arguments), b"")
    }

    /// dpkg itself never waits, and a running transaction of another program looks like an interrupted one.
    fn wait_for_others(&self) -> Result<(), String> {
        lock::wait_until_free(&self.host, self.content.patience(Duration::from_secs(LOCK_SECONDS)))
    }

    fn is_interrupted(&self) -> bool {
        let updates = self.host.path("/var/lib/dpkg/updates");
        fs::read_dir(&updates).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Describes interrupted or half-done packages, no matter which program left them.
    fn unfinished(&self) -> Result<Option<String>, String> {
        if self.is_interrupted() {
            return Ok(Some("dpkg was interrupted".to_owned()));
        }
        let half = self.half_done()?;
        let shown: Vec<_> =
            half.iter().take(5).map(|(name, status)| format!("{name} ({})", in_words(status))).collect();
        Ok((!shown.is_empty()).then(|| format!("half-done: {}", shown.join(", "))))
    }

    /// The host's own architecture.
    fn architecture(&self) -> Result<String, String> {
        let told = run_bounded(self.dpkg().arg("--print-architecture"), b"")?.ok()?;
        Ok(told.trim().to_owned())
    }

    /// The name that apt uses for a package: with its architecture, unless it is the host's own.
    fn qualified(package: &str, architecture: &str, native: &str) -> String {
        if architecture == native || ["all", "any", "native"].contains(&architecture) {
            package.to_owned()
        } else {
            format!("{package}:{architecture}")
        }
    }

    /// The name that apt uses for this package.
    fn name(&self) -> Result<String, String> {
        match self.content.name.split_once(':') {
            Some((package, architecture)) => Ok(Self::qualified(package, architecture, &self.architecture()?)),
            None => Ok(self.content.name.clone()),
        }
    }

    /// This package with a version, as an argument of `apt-get install`. After a version that ends with `+`, a second
    /// `+` follows: apt reads a `+` at the end as "install".
    fn with_version(&self, version: &str) -> Result<String, String> {
        let end = if version.ends_with('+') { "+" } else { "" };
        Ok(format!("{}={version}{end}", self.name()?))
    }

    /// The entries of dpkg's database for these packages; for an empty list, all entries.
    fn known(&self, packages: &[&str]) -> Result<Vec<Known>, String> {
        let native = self.architecture()?;
        let format =
            "${Package}|${Architecture}|${Version}|${db:Status-Want}|${db:Status-Status}|${db:Status-Abbrev}|\n";
        let ran = self.query(&[&["-f", format], packages].concat())?;
        if ran.code != Some(0) && !ran.err.contains("no packages found") {
            return Err(ran.complaint());
        }
        let read = |line: &str| {
            let mut words = line.split('|').map(str::to_owned);
            let (package, architecture, version) = (words.next()?, words.next()?, words.next()?);
            let (want, status, abbreviated) = (words.next()?, words.next()?, words.next()?);
            let name = Self::qualified(&package, &architecture, &native);
            Some(Known { name, version, held: want == "hold", status, abbreviated })
        };
        Ok(ran.out.lines().filter_map(read).collect())
    }

    /// All installed packages.
    fn all(&self) -> Result<BTreeSet<String>, String> {
        Ok(self.known(&[])?.into_iter().filter(Known::is_installed).map(|known| known.name).collect())
    }

    fn query(&self, arguments: &[&str]) -> Result<Ran, String> {
        let mut command = Command::new("dpkg-query");
        let database = self.host.path("/var/lib/dpkg");
        command.env("LC_ALL", "C.UTF-8").arg(format!("--admindir={}", database.display())).arg("-W").args(arguments);
        run_bounded(&mut command, b"")
    }

    /// Marks companions as automatic, so that they go with the package: a kill or a repair may have lost the mark.
    fn mark_companions(&self) -> Result<(), String> {
        let mut there = self.all()?;
        there.extend(self.half_done()?.into_iter().map(|(name, _)| name));
        let companions: Vec<_> = self.own.came_along().into_iter().filter(|name| there.contains(name)).collect();
        if companions.is_empty() {
            return Ok(());
        }
        run_bounded(self.apt("apt-mark").arg("auto").args(&companions), b"")?.ok().map(|_| ())
    }

    /// Packages that are neither completely installed nor absent, with dpkg's status. A package that waits for triggers
    /// (`t`, `W`) is complete: the next run of apt works them off.
    fn half_done(&self) -> Result<Vec<(String, String)>, String> {
        let is_whole = |status: &str| {
            let is_done = matches!(status.get(1..2), Some("n" | "c" | "i" | "t" | "W"));
            is_done && matches!(status.get(2..3), None | Some(" "))
        };
        let half = self.known(&[])?.into_iter().filter(|known| !is_whole(&known.abbreviated));
        Ok(half.map(|known| (known.name, known.abbreviated.trim().to_owned())).collect())
    }

    /// Simulates a transaction.
    fn simulated(&self, arguments: &[&str]) -> Result<Plan, String> {
        let all = [&["-s", "-y", "--allow-downgrades", "--allow-change-held-packages"], arguments].concat();
        done(self.get(&all)?).map(|told| Plan::of_apt(&told))
    }

    fn remove_these(&self, verb: &str, names: &[&str]) -> Result<(), String> {
        let mut kept = kept::paths_beside(self.own.folder(), self.host.root());
        if verb == "purge" && !kept.is_empty() {
            self.remove_these("remove", names)?;
            // dpkg itself deletes configuration files; they are not data.
            let configuration = self.configuration(names)?;
            kept.retain(|path| !configuration.contains(path));
            return self.purge_beside(names, &kept);
        }
        let arguments = [&["-y", "--allow-change-held-packages", verb], names].concat();
        done(self.get(&arguments)?).map(|_| ())
    }

    /// The configuration files of packages, as dpkg lists them.
    fn configuration(&self, names: &[&str]) -> Result<BTreeSet<PathBuf>, String> {
        let ran = self.query(&[&["-f", "${Conffiles}\\n"], names].concat())?;
        let listed = ran.out.lines().filter_map(|line| line.split_whitespace().next());
        Ok(listed.map(|path| self.host.path(path)).collect())
    }

    /// Purges removed packages, while the paths to keep are hidden from their scripts.
    fn purge_beside(&self, names: &[&str], kept: &[PathBuf]) -> Result<(), String> {
        self.prepare()?;
        let purge = || -> Result<Ran, String> {
            let mut command = self.apt("apt-get");
            command.args(["-y", "--allow-change-held-packages", "purge"]).args(names);
            run_bounded(&mut hiding::without(kept, &command), b"")
        };
        let mut ran = purge()?;
        if ran.code == Some(hiding::FAILED) {
            let kept: Vec<_> = kept.iter().map(|path| path.display().to_string()).collect();
            return Err(format!(
                "the scripts of {} may delete {}, which the model keeps, and can't be kept from them: {}; write \
                 `purge: false`",
                names.join(", "),
                kept.join(", "),
                ran.complaint()
            ));
        }
        // The script has done its other work, and fails only because it can't delete the hidden folder.
        if ran.code != Some(0) && ran.err.contains("Device or resource busy") {
            for name in names {
                self.host.remove(&format!("{DATABASE}/info/{name}.postrm"))?;
            }
            ran = purge()?;
        }
        done(ran).map(|_| ())
    }

    /// Whether a plan removes only this package, its companions and packages that may be removed.
    fn goes_alone(&self, plan: &Plan) -> Result<bool, String> {
        let (name, came_along) = (self.name()?, self.own.came_along());
        let is_ours =
            |gone: &String| *gone == name || came_along.contains(gone) || self.content.may_remove.contains(gone);
        Ok(plan.going().iter().all(is_ours))
    }

    /// Lets apt repair the database, unless the repair would remove other packages.
    fn fix(&self, arguments: &[&str]) -> Result<Ran, String> {
        let arguments = [&["-y", "-f", "--no-install-recommends"], arguments].concat();
        let simulated = self.get(&[&["-s"], &arguments[..]].concat())?;
        let plan = Plan::of_apt(&simulated.out);
        if simulated.code != Some(0) || self.goes_alone(&plan)? {
            return self.get(&arguments);
        }
        let going: Vec<String> = plan.going().into_iter().collect();
        Err(format!("a repair by apt would remove {}, and was not made", going.join(", ")))
    }
}

/// An entry of dpkg's database.
#[derive(Debug)]
struct Known {
    name: String,
    version: String,
    held: bool,
    status: String,
    abbreviated: String,
}

impl Known {
    /// Whether it is installed, perhaps with triggers that the next run of apt works off.
    fn is_installed(&self) -> bool {
        ["installed", "triggers-pending", "triggers-awaited"].contains(&self.status.as_str())
    }
}

/// The abbreviated status of a half-done package in words.
fn in_words(status: &str) -> String {
    let word = match status.get(1..2) {
        Some("H") => "half-installed",
        Some("U") => "unpacked, not configured",
        Some("F") => "configured half-way",
        _ => status,
    };
    if status.ends_with('R') { format!("{word}, to be installed again") } else { word.to_owned() }
}

/// Whether some files of a half-done package are missing, according to its dpkg status.
fn is_in_half(status: &str) -> bool {
    status.get(1..2) == Some("H") || status.ends_with('R')
}

/// The output after success. The error includes missing dependencies and the output of a failed package script.
fn done(ran: Ran) -> Result<String, String> {
    let said = of_a_script(&ran.err).map(|said| format!("; {said}")).unwrap_or_default();
    let missing = ran.out.split_once("unmet dependencies:").map(|(_, rest)| {
        let lines = rest.lines().map(str::trim).filter(|line| !line.is_empty()).take(3);
        format!("; {}", lines.collect::<Vec<_>>().join("; "))
    });
    ran.ok().map_err(|why| why + &missing.unwrap_or_default() + &said)
}

/// The failed script of a package and its last output: the line after dpkg's first error, and the line before it.
fn of_a_script(err: &str) -> Option<String> {
    let lines: Vec<&str> = err.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let at = lines.iter().position(|line| line.starts_with("dpkg: error processing "))?;
    let what = lines.get(at + 1)?;
    let words = at.checked_sub(1).map(|above| lines[above]).filter(|line| !line.starts_with("dpkg"));
    Some(words.map_or_else(|| (*what).to_owned(), |words| format!("{what}: {words}")))
}

impl Manager for Apt<'_> {
    fn installed(&self) -> Result<Installed, String> {
        let name = self.name()?;
        let package = name.split_once(':').map_or(name.as_str(), |(package, _)| package);
        let Some(known) = self.known(&[package])?.into_iter().find(|known| known.name == name) else {
            return Ok(Installed::No);
        };
        Ok(match known.status.as_str() {
            _ if known.is_installed() => Installed::Yes { version: known.version, held: known.held },
            "not-installed" => Installed::No,
            "config-files" => Installed::Configuration,
            status => Installed::Half(status.to_owned()),
        })
    }

    fn snapshot(&self) -> Result<BTreeMap<String, String>, String> {
        let line = |known: Known| (known.name, format!("{} {}", known.abbreviated.trim(), known.version));
        Ok(self.known(&[])?.into_iter().map(line).collect())
    }

    fn names(&self) -> Result<Vec<String>, String> {
        let name = self.name()?;
        let explicit = (!name.contains(':')).then(|| Ok::<_, String>(format!("{name}:{}", self.architecture()?)));
        Ok([name].into_iter().chain(explicit.transpose()?).collect())
    }

    fn held(&self) -> Result<BTreeSet<String>, String> {
        Ok(self.known(&[])?.into_iter().filter(|known| known.held).map(|known| known.name).collect())
    }

    fn is_automatic(&self) -> Result<bool, String> {
        let name = self.name()?;
        let told = run_bounded(self.apt("apt-mark").args(["showauto", &name]), b"")?.ok()?;
        Ok(told.lines().any(|line| line.trim() == name))
    }

    fn mark(&self, name: &str, automatic: bool) -> Result<(), String> {
        self.wait_for_others()?;
        let verb = if automatic { "auto" } else { "manual" };
        run_bounded(self.apt("apt-mark").args([verb, name]), b"")?.ok().map(|_| ())
    }

    fn available(&self) -> Result<Vec<String>, String> {
        let told = run_bounded(self.apt("apt-cache").args(["policy", &self.content.name]), b"")?.ok()?;
        let word = |key: &str| told.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
        // apt takes an unknown package name as a pattern: it reads `x+` also as `x`, and then reports `x`.
        let name = self.name()?;
        let is_it = |line: &str| line.strip_suffix(':').is_some_and(|told| told == name || told == self.content.name);
        if !told.lines().next().is_some_and(is_it) {
            return Ok(Vec::new());
        }
        // The table has a line per version, with its sources indented below. Three stars mark the installed version.
        let table = told.lines().skip_while(|line| line.trim() != "Version table:").skip(1);
        let mut versions: Vec<(String, bool)> = Vec::new();
        for line in table {
            let is_version = line.starts_with(" *** ") || (line.starts_with("     ") && !line.starts_with("      "));
            let text = line.trim_start_matches(" *** ").trim();
            if is_version {
                versions.push((text.split_whitespace().next().unwrap_or_default().to_owned(), false));
            } else if let Some(last) = versions.last_mut() {
                // A version that only dpkg knows is installed, and can't be fetched again.
                last.1 |= !text.ends_with("/dpkg/status");
            }
        }
        let offered = versions.into_iter().filter(|(_, offered)| *offered).map(|(version, _)| version);
        let mut offered: Vec<String> = offered.collect();
        if let Some(at) = word("Candidate:").and_then(|first| offered.iter().position(|v| v == first)) {
            offered[..=at].rotate_right(1);
        }
        Ok(offered)
    }

    fn broken(&self) -> Result<Option<String>, String> {
        self.wait_for_others()?;
        let mut found = self.unfinished()?;
        // Another program may have started meanwhile; wait for its end, too.
        if found.is_some() && lock::holder(&self.host)?.is_some() {
            self.wait_for_others()?;
            found = self.unfinished()?;
        }
        Ok(found)
    }

    fn repair(&self) -> Result<(), String> {
        self.wait_for_others()?;
        // A half-unpacked package can't be configured; the next steps repair it with the repository.
        let mut configure = self.dpkg();
        run_bounded(configure.args(["--force-confdef", "--force-confold", "--configure", "-a"]), b"")?;
        if self.content.is_own_repository() {
            self.refresh()?;
        }
        let mut fixed = self.fix(&["install"])?;
        // A half-unpacked package must be unpacked again before it can even be removed. A package with a failing script
        // would only fail again.
        let half: Vec<_> = self.half_done()?.into_iter().filter(|(_, status)| is_in_half(status)).collect();
        if !half.is_empty() {
            let options = ["--reinstall", "--allow-downgrades", "install"];
            let names = half.iter().map(|(name, _)| name.as_str());
            fixed = self.fix(&options.into_iter().chain(names).collect::<Vec<_>>())?;
        }
        self.mark_companions()?;
        self.repaired(done(fixed).map(|_| ()))
    }

    fn is_own_alone(&self) -> Result<bool, String> {
        // Another running program may still complete the half-done packages.
        let others = self.is_interrupted() || lock::holder(&self.host)?.is_some();
        let came_along = self.own.came_along();
        let own = self.name()?;
        let is_own = |name: &String| *name == own || came_along.contains(name);
        Ok(!others && self.half_done()?.iter().all(|(name, _)| is_own(name)))
    }

    fn refresh(&self) -> Result<(), String> {
        let fetched = self.get(&["update", "-o", "APT::Update::Error-Mode=any"])?.ok();
        fetched.map(|_| ()).map_err(|why| not_fetched(self.content, "a file Packages", &why))
    }

    fn plan(&self, version: &str) -> Result<Plan, String> {
        self.simulated(&["--no-install-recommends", "install", &self.with_version(version)?])
    }

    fn plan_removal(&self) -> Result<Plan, String> {
        self.simulated(&["remove", &self.name()?])
    }

    fn install(&self, version: &str, plan: &Plan, over_hold: bool) -> Result<(), String> {
        let name = self.name()?;
        let wanted = self.with_version(version)?;
        let mut coming = plan.coming();
        coming.remove(&name);
        self.own.note_coming(coming, &self.all()?)?;
        // If only the script of a package failed, apt finds no file for a reinstallation.
        let is_unpacked = |(half, status): &(String, String)| *half == name && !is_in_half(status);
        let again = if self.half_done()?.iter().any(is_unpacked) { &[][..] } else { &["--reinstall"] };
        let mut options = vec!["-y", "--no-install-recommends"];
        // apt may do only what the simulation showed.
        options.extend(plan.going().is_empty().then_some("--no-remove"));
        options.extend(plan.has_downgrade().then_some("--allow-downgrades"));
        options.extend(over_hold.then_some("--allow-change-held-packages"));
        done(self.get(&[&options[..], again, &["install", &wanted]].concat())?).map(|_| ())
    }

    fn remove(&self, purge: bool) -> Result<(), String> {
        let verb = if purge { "purge" } else { "remove" };
        let mut names = vec![self.name()?];
        let removed = self.remove_these(verb, &[&names[0]]);
        let came_along = self.own.came_along();
        let half = self.half_done()?.into_iter().map(|(name, _)| name);
        names.extend(half.filter(|name| came_along.contains(name)));
        // A removal would configure a companion with a failing script again, so both are removed together.
        match removed {
            Err(_) if names.len() > 1 => {
                let arguments: Vec<&str> = std::iter::once(verb).chain(names.iter().map(String::as_str)).collect();
                match self.goes_alone(&self.simulated(&arguments)?)? {
                    true => self.remove_these(verb, &arguments[1..]),
                    false => removed,
                }
            }
            Ok(()) | Err(_) => removed,
        }
    }

    fn needless(&self, purge: bool) -> Result<BTreeSet<String>, String> {
        // A suggestion of another package does not count as a need.
        let told = self.get(&["-s", "-y", "-o", "APT::AutoRemove::SuggestsImportant=false", "autoremove"])?.ok()?;
        let mut needless = Plan::of_apt(&told).going();
        if purge {
            // A kill between removal and purge leaves the configuration of a removed package.
            let removed = self.known(&[])?.into_iter().filter(|known| known.status == "config-files");
            needless.extend(removed.map(|known| known.name));
        }
        Ok(needless)
    }

    fn remove_needless(&self, names: &BTreeSet<String>, purge: bool) -> Result<(), String> {
        let verb = if purge { "purge" } else { "remove" };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let plan = self.simulated(&[&[verb], &names[..]].concat())?;
        let others: Vec<String> = plan.going().into_iter().filter(|name| !names.contains(&name.as_str())).collect();
        if !others.is_empty() {
            return Err(format!("to remove {} apt would remove {}, too", names.join(", "), others.join(", ")));
        }
        self.remove_these(verb, &names)
    }

    fn hold(&self, hold: bool) -> Result<(), String> {
        self.wait_for_others()?;
        let line = format!("{} {}\n", self.name()?, if hold { "hold" } else { "install" });
        run_bounded(self.dpkg().arg("--set-selections"), line.as_bytes())?.ok().map(|_| ())
    }

    fn how_to_repair(&self) -> &'static str {
        "`dpkg --configure -a`, `apt-get -f install`"
    }

    fn how_to_unhold(&self) -> String {
        format!("`apt-mark unhold {}`", self.content.name)
    }

    fn forget(&self) -> Result<(), String> {
        self.own.clear(&[SOURCES, SETTINGS], LISTS)
    }
}
