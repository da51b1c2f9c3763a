//! apt and dpkg.
//!
//! Never a question: `DEBIAN_FRONTEND=noninteractive`, and of configuration files that somebody has changed the
//! changed one stays. With a repository of its own a change object has lists of its own, too: those of the host
//! are neither used nor touched, so nothing but what it was given can be installed, and no network is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::content::Content;
use super::own::Own;
use super::plan::Plan;
use super::{Installed, Manager, hiding, lock, not_fetched};
use crate::durable::Sync;
use crate::kinds::kept;
use crate::kinds::native::{Host, Ran, run_bounded};

/// Where dpkg's database is.
pub(super) const DATABASE: &str = "/var/lib/dpkg";
/// Another program that has dpkg's lock is waited for so long, in seconds.
const LOCK_SECONDS: u64 = 120;
/// The own list of sources, lists, and settings.
const SOURCES: &str = "sources.list";
const LISTS: &str = "lists";
const SETTINGS: &str = "apt.conf";

/// apt for one package.
#[derive(Debug)]
pub(super) struct Apt<'a> {
    content: &'a Content,
    host: Host,
    own: Own,
}

impl<'a> Apt<'a> {
    /// None: the host has another package manager.
    pub(super) fn of(content: &'a Content, host: &Host, own: &Path) -> Option<Self> {
        host.path(DATABASE).is_dir().then(|| Self { content, host: host.clone(), own: Own::new(own) })
    }

    /// The own settings, sources and lists.
    fn prepare(&self) -> Result<(), String> {
        let write = |name: &str, text: &str| self.own.write(name, 0o644, text, Sync::Later);
        if let Some(root) = self.host.root() {
            // Read before all else, so that the settings below the folder count and not those of this host.
            write(SETTINGS, &format!("Dir \"{}/\";\n", root.display()))?;
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

    /// A program of apt, with everything in its place.
    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("APT_LISTCHANGES_FRONTEND", "none")
            .env("LC_ALL", "C.UTF-8");
        let mut set = |option: String| _ = command.args(["-o", &option]);
        if let Some(root) = self.host.root() {
            let root = root.display();
            set(format!("Dir={root}"));
            set(format!("Dir::State::status={root}/var/lib/dpkg/status"));
            set("Dir::Bin::Methods=/usr/lib/apt/methods".to_owned());
            set("Dir::Bin::dpkg=/usr/bin/dpkg".to_owned());
            set(format!("DPkg::Options::=--root={root}"));
        }
        if self.content.is_own_repository() {
            set(format!("Dir::Etc::SourceList={}", self.own.join(SOURCES).display()));
            set("Dir::Etc::SourceParts=/dev/null".to_owned());
            set(format!("Dir::State::Lists={}", self.own.join(LISTS).display()));
            // The own folder is nobody else's, so nobody else can be sent to fetch into it.
            set("APT::Sandbox::User=root".to_owned());
        }
        // What is kept there is made of other lists.
        set("Dir::Cache::pkgcache=".to_owned());
        set("Dir::Cache::srcpkgcache=".to_owned());
        set(format!("DPkg::Lock::Timeout={LOCK_SECONDS}"));
        // In the action's own process group, so that its end reaches dpkg, too.
        set("Dpkg::Use-Pty=0".to_owned());
        set("DPkg::Options::=--force-confdef".to_owned());
        set("DPkg::Options::=--force-confold".to_owned());
        if self.host.root().is_some() && self.own.join(SETTINGS).exists() {
            command.env("APT_CONFIG", self.own.join(SETTINGS));
        }
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

    /// dpkg itself waits for nobody, and what others are at looks like what was interrupted.
    fn wait_for_others(&self) -> Result<(), String> {
        lock::wait_until_free(&self.host, self.content.patience(Duration::from_secs(LOCK_SECONDS)))
    }

    fn is_interrupted(&self) -> bool {
        let updates = self.host.path("/var/lib/dpkg/updates");
        fs::read_dir(&updates).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// What is interrupted or half-done, by whomever.
    fn unfinished(&self) -> Result<Option<String>, String> {
        if self.is_interrupted() {
            return Ok(Some("dpkg was interrupted".to_owned()));
        }
        let half = self.half_done()?;
        let shown: Vec<_> = half.iter().take(5).map(|(name, status)| format!("{name} ({status})")).collect();
        Ok((!shown.is_empty()).then(|| format!("half-done: {}", shown.join(", "))))
    }

    /// The architecture of the host's own packages.
    fn architecture(&self) -> Result<String, String> {
        let told = run_bounded(self.dpkg().arg("--print-architecture"), b"")?.ok()?;
        Ok(told.trim().to_owned())
    }

    /// A package as apt calls it: with its architecture where that is not the host's own.
    fn qualified(package: &str, architecture: &str, native: &str) -> String {
        if architecture == native || ["all", "any", "native"].contains(&architecture) {
            package.to_owned()
        } else {
            format!("{package}:{architecture}")
        }
    }

    /// This package, as apt calls it.
    fn name(&self) -> Result<String, String> {
        match self.content.name.split_once(':') {
            Some((package, architecture)) => Ok(Self::qualified(package, architecture, &self.architecture()?)),
            None => Ok(self.content.name.clone()),
        }
    }

    /// This package in a version, as `apt-get install` takes it. Of a `+` at the end, which means that it is to be installed,
    /// there may be one more than of the version.
    fn with_version(&self, version: &str) -> Result<String, String> {
        let end = if version.ends_with('+') { "+" } else { "" };
        Ok(format!("{}={version}{end}", self.name()?))
    }

    /// What dpkg knows of these packages; of none: of all.
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

    /// All packages that are installed.
    fn all(&self) -> Result<BTreeSet<String>, String> {
        self.with_status("installed")
    }

    fn with_status(&self, status: &str) -> Result<BTreeSet<String>, String> {
        let known = self.known(&[])?.into_iter().filter(|known| known.status == status);
        Ok(known.map(|known| known.name).collect())
    }

    fn query(&self, arguments: &[&str]) -> Result<Ran, String> {
        let mut command = Command::new("dpkg-query");
        let database = self.host.path("/var/lib/dpkg");
        command.env("LC_ALL", "C.UTF-8").arg(format!("--admindir={}", database.display())).arg("-W").args(arguments);
        run_bounded(&mut command, b"")
    }

    /// What came along goes along, also when apt was killed before it had noted that, or it was named above.
    fn mark_companions(&self) -> Result<(), String> {
        let mut there = self.all()?;
        there.extend(self.half_done()?.into_iter().map(|(name, _)| name));
        let companions: Vec<_> = self.own.came_along().into_iter().filter(|name| there.contains(name)).collect();
        if companions.is_empty() {
            return Ok(());
        }
        run_bounded(self.apt("apt-mark").arg("auto").args(&companions), b"")?.ok().map(|_| ())
    }

    /// Packages that are neither installed nor not, with what dpkg says of them.
    fn half_done(&self) -> Result<Vec<(String, String)>, String> {
        let is_whole = |status: &str| {
            matches!(status.get(1..2), Some("n" | "c" | "i")) && matches!(status.get(2..3), None | Some(" "))
        };
        let half = self.known(&[])?.into_iter().filter(|known| !is_whole(&known.abbreviated));
        Ok(half.map(|known| (known.name, known.abbreviated.trim().to_owned())).collect())
    }

    /// What these arguments would do.
    fn simulated(&self, arguments: &[&str]) -> Result<Plan, String> {
        let all = [&["-s", "-y", "--allow-downgrades", "--allow-change-held-packages"], arguments].concat();
        done(self.get(&all)?).map(|told| Plan::of_apt(&told))
    }

    fn remove_these(&self, verb: &str, names: &[&str]) -> Result<(), String> {
        let mut kept = kept::paths_beside(self.own.folder(), self.host.root());
        if verb == "purge" && !kept.is_empty() {
            self.remove_these("remove", names)?;
            // What dpkg itself deletes is no data.
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

    /// Purges packages that are removed already, while what is to stay is hidden from their scripts.
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
        // The script has done all that it may, and fails for the folder that it may not delete.
        if ran.code != Some(0) && ran.err.contains("Device or resource busy") {
            for name in names {
                self.host.remove(&format!("{DATABASE}/info/{name}.postrm"))?;
            }
            ran = purge()?;
        }
        done(ran).map(|_| ())
    }

    /// Whether only this package, what came along with it and what may go would go.
    fn goes_alone(&self, plan: &Plan) -> Result<bool, String> {
        let (name, came_along) = (self.name()?, self.own.came_along());
        let is_ours =
            |gone: &String| *gone == name || came_along.contains(gone) || self.content.may_remove.contains(gone);
        Ok(plan.going().iter().all(is_ours))
    }

    /// Has apt put the database in order, without other packages going for it.
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

/// What dpkg knows of a package.
#[derive(Debug)]
struct Known {
    name: String,
    version: String,
    held: bool,
    status: String,
    abbreviated: String,
}

/// Whether not even its files are all there, by what dpkg says of a package that is half-done.
fn is_in_half(status: &str) -> bool {
    status.get(1..2) == Some("H") || status.ends_with('R')
}

/// What it printed, when it succeeded; else why not, with what is missing, or what a package's own script said.
fn done(ran: Ran) -> Result<String, String> {
    let said = of_a_script(&ran.err).map(|said| format!("; {said}")).unwrap_or_default();
    let missing = ran.out.split_once("unmet dependencies:").map(|(_, rest)| {
        let lines = rest.lines().map(str::trim).filter(|line| !line.is_empty()).take(3);
        format!("; {}", lines.collect::<Vec<_>>().join("; "))
    });
    ran.ok().map_err(|why| why + &missing.unwrap_or_default() + &said)
}

/// Which script of a package failed, and its last words: dpkg's line below its first error, and what stands above.
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
            "installed" => Installed::Yes { version: known.version, held: known.held },
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
        // A name of no package is a pattern for apt: `x+` stands for `x`, too, and tells of that.
        let name = self.name()?;
        let is_it = |line: &str| line.strip_suffix(':').is_some_and(|told| told == name || told == self.content.name);
        if !told.lines().next().is_some_and(is_it) {
            return Ok(Vec::new());
        }
        // A version stands under its number, its places below it, the one that is installed with three stars.
        let table = told.lines().skip_while(|line| line.trim() != "Version table:").skip(1);
        let mut versions: Vec<(String, bool)> = Vec::new();
        for line in table {
            let is_version = line.starts_with(" *** ") || (line.starts_with("     ") && !line.starts_with("      "));
            let text = line.trim_start_matches(" *** ").trim();
            if is_version {
                versions.push((text.split_whitespace().next().unwrap_or_default().to_owned(), false));
            } else if let Some(last) = versions.last_mut() {
                // What only dpkg knows is there, and can't be had again.
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
        // By somebody who has begun since; he is waited for as well.
        if found.is_some() && lock::holder(&self.host)?.is_some() {
            self.wait_for_others()?;
            found = self.unfinished()?;
        }
        Ok(found)
    }

    fn repair(&self) -> Result<(), String> {
        self.wait_for_others()?;
        // Half-unpacked ones can't be configured; what helps them comes next, with what the repository has.
        let mut configure = self.dpkg();
        run_bounded(configure.args(["--force-confdef", "--force-confold", "--configure", "-a"]), b"")?;
        if self.content.is_own_repository() {
            self.refresh()?;
        }
        let mut fixed = self.fix(&["install"])?;
        // One that is unpacked in half has to be unpacked again before it can even be removed. One whose script fails
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
        // What another program is at may still be put right.
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
        // Where its script alone is missing apt finds no file to install again.
        let is_unpacked = |(half, status): &(String, String)| *half == name && !is_in_half(status);
        let again = if self.half_done()?.iter().any(is_unpacked) { &[][..] } else { &["--reinstall"] };
        let mut options = vec!["-y", "--no-install-recommends"];
        // What was not simulated is not done either.
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
        // What came along and has no script that succeeds is not to be configured on the way: it goes, too.
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
        // What another package merely suggests is not needed by it.
        let told = self.get(&["-s", "-y", "-o", "APT::AutoRemove::SuggestsImportant=false", "autoremove"])?.ok()?;
        let mut needless = Plan::of_apt(&told).going();
        if purge {
            // Killed between the two, a package has gone, and its configuration has not.
            needless.extend(self.with_status("config-files")?);
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
