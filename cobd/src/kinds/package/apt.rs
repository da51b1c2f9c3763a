//! apt and dpkg.
//!
//! Never a question: `DEBIAN_FRONTEND=noninteractive`, and of configuration files that somebody has changed the
//! changed one stays. With a repository of its own a change object has lists of its own, too: those of the host
//! are neither used nor touched, so nothing but what it was given can be installed, and no network is asked.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::content::Content;
use super::own::Own;
use super::{Installed, Manager, lock, not_fetched};
use crate::durable::Sync;
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

    /// All packages that are installed.
    fn all(&self) -> Result<BTreeSet<String>, String> {
        self.with_status("installed")
    }

    fn with_status(&self, status: &str) -> Result<BTreeSet<String>, String> {
        let told = self.query(&["-f", "${db:Status-Status}|${Package}\n"])?.ok()?;
        let names = told.lines().filter_map(|line| line.split_once('|')).filter(|(found, _)| *found == status);
        Ok(names.map(|(_, name)| name.to_owned()).collect())
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
        let told = self.query(&["-f", "${db:Status-Abbrev}|${Package}\n"])?;
        if told.code != Some(0) && !told.err.contains("no packages found") {
            return Err(told.complaint());
        }
        let half = |line: &str| {
            let (status, name) = line.split_once('|')?;
            let is_whole =
                matches!(status.get(1..2), Some("n" | "c" | "i")) && matches!(status.get(2..3), None | Some(" "));
            (!is_whole).then(|| (name.to_owned(), status.trim().to_owned()))
        };
        Ok(told.out.lines().filter_map(half).collect())
    }

    /// What would be installed besides.
    fn would_bring(&self, wanted: &str) -> Result<BTreeSet<String>, String> {
        let told = self.get(&["-s", "-y", "--allow-downgrades", "--allow-change-held-packages", "install", wanted])?;
        let told = done(told)?;
        let names = told.lines().filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next());
        Ok(names.filter(|name| *name != self.content.name).map(str::to_owned).collect())
    }

    fn remove_these(&self, verb: &str, names: &[String]) -> Result<(), String> {
        let names = names.iter().map(String::as_str);
        let arguments: Vec<&str> = ["-y", "--allow-change-held-packages", verb].into_iter().chain(names).collect();
        done(self.get(&arguments)?).map(|_| ())
    }

    /// What nobody needs any more.
    fn needless(&self) -> Result<BTreeSet<String>, String> {
        self.would_remove(&["autoremove"])
    }

    /// What would be removed by this.
    fn would_remove(&self, arguments: &[&str]) -> Result<BTreeSet<String>, String> {
        let told = self.get(&[&["-s", "-y"], arguments].concat())?.ok()?;
        let names = told.lines().filter_map(|line| {
            line.strip_prefix("Remv ").or_else(|| line.strip_prefix("Purg "))?.split_whitespace().next()
        });
        Ok(names.map(str::to_owned).collect())
    }
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
        let ran = self.query(&["-f", "${db:Status-Want} ${db:Status-Status} ${Version}\n", &self.content.name])?;
        if ran.code == Some(1) && ran.err.contains("no packages found") {
            return Ok(Installed::No);
        }
        let told = ran.ok()?;
        let mut words = told.lines().next().unwrap_or_default().split_whitespace();
        let (want, status, version) = (words.next(), words.next(), words.next());
        Ok(match (status, version) {
            (Some("installed"), Some(version)) => {
                Installed::Yes { version: version.to_owned(), held: want == Some("hold") }
            }
            (Some("not-installed") | None, _) => Installed::No,
            (Some("config-files"), _) => Installed::Configuration,
            (Some(status), _) => Installed::Half(status.to_owned()),
        })
    }

    fn available(&self) -> Result<Vec<String>, String> {
        let told = run_bounded(self.apt("apt-cache").args(["policy", &self.content.name]), b"")?.ok()?;
        let word = |key: &str| told.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
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
        let mut fixed = self.get(&["-y", "-f", "--no-install-recommends", "install"])?;
        // One that is unpacked in half has to be unpacked again before it can even be removed. One whose script fails
        // would only fail again.
        let half: Vec<_> = self.half_done()?.into_iter().filter(|(_, status)| is_in_half(status)).collect();
        if !half.is_empty() {
            let options = ["-y", "-f", "--no-install-recommends", "--reinstall", "--allow-downgrades", "install"];
            let names = half.iter().map(|(name, _)| name.as_str());
            fixed = self.get(&options.into_iter().chain(names).collect::<Vec<_>>())?;
        }
        self.mark_companions()?;
        self.repaired(done(fixed).map(|_| ()))
    }

    fn is_own_alone(&self) -> Result<bool, String> {
        // What another program is at may still be put right.
        let others = self.is_interrupted() || lock::holder(&self.host)?.is_some();
        let came_along = self.own.came_along();
        let is_own = |name: &String| *name == self.content.name || came_along.contains(name);
        Ok(!others && self.half_done()?.iter().all(|(name, _)| is_own(name)))
    }

    fn refresh(&self) -> Result<(), String> {
        let fetched = self.get(&["update", "-o", "APT::Update::Error-Mode=any"])?.ok();
        fetched.map(|_| ()).map_err(|why| not_fetched(self.content, "a file Packages", &why))
    }

    fn install(&self, version: &str) -> Result<(), String> {
        let wanted = format!("{}={version}", self.content.name);
        let there = self.all()?;
        self.own.note_coming(self.would_bring(&wanted)?, &there)?;
        // Where its script alone is missing apt finds no file to install again.
        let is_unpacked = |(name, status): &(String, String)| *name == self.content.name && !is_in_half(status);
        let again = if self.half_done()?.iter().any(is_unpacked) { &[][..] } else { &["--reinstall"] };
        let options = ["-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"];
        done(self.get(&[&options[..], again, &["install", &wanted]].concat())?).map(|_| ())
    }

    fn remove(&self, purge: bool) -> Result<(), String> {
        let verb = if purge { "purge" } else { "remove" };
        let mut names = vec![self.content.name.clone()];
        let removed = self.remove_these(verb, &names);
        let came_along = self.own.came_along();
        let half = self.half_done()?.into_iter().map(|(name, _)| name);
        names.extend(half.filter(|name| came_along.contains(name)));
        // What came along and has no script that succeeds is not to be configured on the way: it goes, too.
        match removed {
            Err(_) if names.len() > 1 => {
                let arguments: Vec<&str> = std::iter::once(verb).chain(names.iter().map(String::as_str)).collect();
                let is_ours = |name: &String| *name == self.content.name || came_along.contains(name);
                if self.would_remove(&arguments)?.iter().all(is_ours) {
                    self.remove_these(verb, &names)
                } else {
                    removed
                }
            }
            Ok(()) | Err(_) => removed,
        }
    }

    fn remove_companions(&self, purge: bool) -> Result<(), String> {
        let (verb, came_along) = (if purge { "purge" } else { "remove" }, self.own.came_along());
        if came_along.is_empty() {
            return Ok(());
        }
        let mut needless = self.needless()?;
        if purge {
            // Killed between the two, one has gone, and its configuration has not.
            needless.extend(self.with_status("config-files")?);
        }
        let needless: Vec<String> = needless.intersection(&came_along).cloned().collect();
        if needless.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = needless.iter().map(String::as_str).collect();
        done(self.get(&[&["-y", verb][..], &names].concat())?).map(|_| ())
    }

    fn hold(&self, hold: bool) -> Result<(), String> {
        self.wait_for_others()?;
        let line = format!("{} {}\n", self.content.name, if hold { "hold" } else { "install" });
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
