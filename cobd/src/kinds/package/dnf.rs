//! dnf and rpm.
//!
//! The programs run with `-y`, so they never ask. A configuration file that a user has changed stays, as usual with
//! rpm. A change object with its own repository also has its own cache; the repositories of the host are neither used
//! nor changed.
//!
//! rpm records a package after its files are there, and deletes the record after they are gone. So only our mark shows
//! a half-done package after a kill. It is installed again before any other step, which makes all its files known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use cob_kinds::Package;

use super::own::Own;
use super::plan::Plan;
use super::rpm::{self, Rpm};
use super::{Installed, Manager, not_fetched};
use crate::kinds::native::{Host, Ran, run_bounded};

/// The change object's own cache of repository data.
const CACHE: &str = "dnf";
/// The package manager dnf, for one package.
#[derive(Debug)]
pub(super) struct Dnf<'a> {
    content: &'a Package,
    host: Host,
    own: Own,
    rpm: Rpm,
}

impl<'a> Dnf<'a> {
    /// Returns `None` if the host has another package manager.
    pub(super) fn of(content: &'a Package, host: &Host, own: &Path) -> Option<Self> {
        let rpm = Rpm::new(host, None);
        rpm::folder(host).map(|_| Self { content, host: host.clone(), own: Own::new(own), rpm })
    }

    /// Runs dnf with all paths and options.
    fn dnf(&self, arguments: &[&str]) -> Result<Ran, String> {
        let mut command = Command::new("dnf");
        command.env("LC_ALL", "C.UTF-8").args(["-y", "--setopt=install_weak_deps=False"]);
        // Only the named package is removed here; its companions are removed afterwards.
        command.args(["--setopt=clean_requirements_on_remove=False", "--setopt=keepcache=0"]);
        if let Some(root) = self.host.root() {
            command.arg(format!("--installroot={}", root.display()));
        }
        if let Some(url) = self.content.base_url() {
            command.arg(format!("--setopt=cachedir={}", self.own.join(CACHE).display()));
            command.args(["--setopt=reposdir=/dev/null", "--disablerepo=*"]);
            command.arg(format!("--repofrompath=cob,{url}")).arg("--enablerepo=cob");
            let check = if self.content.trusted { "0" } else { "1" };
            command.arg(format!("--setopt=cob.gpgcheck={check}"));
            if let Some(key) = &self.content.signed_by {
                command.arg(format!("--setopt=cob.gpgkey=file://{}", key.display()));
            }
        }
        run_bounded(command.args(arguments), b"")
    }

    /// The name that dnf uses for a version of the package.
    fn exactly(&self, version: &str) -> String {
        format!("{}-{version}", self.content.name)
    }

    /// Simulates a transaction: dnf asks for a confirmation, and the answer is no.
    fn simulated(&self, arguments: &[&str]) -> Result<Plan, String> {
        let ran = self.dnf(&[&["--assumeno"], arguments].concat())?;
        let is_asked = [&ran.out, &ran.err].iter().any(|said| said.contains("Operation aborted"));
        if ran.code != Some(0) && !is_asked {
            return done(ran).map(|()| Plan::default());
        }
        Ok(Plan::of_dnf(&ran.out, &self.snapshot()?))
    }
}

/// Success, or an error with the lines about missing dependencies.
fn done(ran: Ran) -> Result<(), String> {
    let said = format!("{}\n{}", ran.out, ran.err);
    let telling = |line: &&str| {
        line.contains("nothing provides") || line.contains("conflicting requests") || line.starts_with("Error:")
    };
    let why = rpm::causes(said.lines().map(str::trim).filter(telling));
    ran.ok().map(|_| ()).map_err(|error| error + &why)
}

impl Manager for Dnf<'_> {
    fn installed(&self) -> Result<Installed, String> {
        self.rpm.installed(&self.content.name)
    }

    fn available(&self) -> Result<Vec<String>, String> {
        if self.content.is_own_repository() && !self.own.join(CACHE).is_dir() {
            return Err("its repository has not been fetched yet".to_owned());
        }
        // From the cache only: a check fetches no data.
        let arguments = ["-q", "-C", "repoquery", "--available", "--showduplicates", "--qf", "%{evr}\n"];
        let told = self.dnf(&[&arguments[..], &[&self.content.name]].concat())?.ok()?;
        let versions = told.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(rpm::newest_first(versions.map(str::to_owned)))
    }

    fn broken(&self) -> Result<Option<String>, String> {
        self.rpm.broken(&self.content.name)
    }

    fn how_to_repair(&self) -> &'static str {
        "`rpm --rebuilddb`, `dnf remove --duplicates`"
    }

    fn repair(&self) -> Result<(), String> {
        self.rpm.rebuild()?;
        if self.content.is_own_repository() {
            self.refresh()?;
        }
        let done_again = match self.installed()? {
            Installed::Half(_) => self.dnf(&["remove", "--duplicates"])?,
            Installed::Yes { version, .. } => self.dnf(&["reinstall", &self.exactly(&version)])?,
            Installed::No | Installed::Configuration => {
                self.rpm.note_coming(
                    &self.own,
                    &self.content.name,
                    &self.simulated(&["install", &self.content.name])?,
                )?;
                self.dnf(&["install", &self.content.name])?
            }
        };
        let came_along = self.rpm.companions(&self.own)?;
        if !came_along.is_empty() {
            let names = came_along.iter().map(String::as_str);
            self.dnf(&["mark", "remove"].into_iter().chain(names).collect::<Vec<_>>())?;
        }
        self.repaired(done(done_again))
    }

    fn refresh(&self) -> Result<(), String> {
        let fetched = self.dnf(&["-q", "makecache", "--refresh"])?.ok();
        fetched.map(|_| ()).map_err(|why| not_fetched(self.content, "a folder repodata", &why))
    }

    fn snapshot(&self) -> Result<BTreeMap<String, String>, String> {
        self.rpm.snapshot()
    }

    fn names(&self) -> Result<Vec<String>, String> {
        Ok(vec![self.content.name.clone()])
    }

    fn is_automatic(&self) -> Result<bool, String> {
        let told = self.dnf(&["-q", "-C", "repoquery", "--userinstalled", "--qf", "%{name}\n"])?.ok()?;
        Ok(!told.lines().any(|line| line.trim() == self.content.name))
    }

    fn mark(&self, name: &str, automatic: bool) -> Result<(), String> {
        done(self.dnf(&["mark", if automatic { "remove" } else { "install" }, name])?)
    }

    fn plan(&self, version: &str) -> Result<Plan, String> {
        self.simulated(&["install", &self.exactly(version)])
    }

    fn plan_removal(&self) -> Result<Plan, String> {
        self.simulated(&["remove", &self.content.name])
    }

    fn install(&self, version: &str, plan: &Plan, _over_hold: bool) -> Result<(), String> {
        self.rpm.note_coming(&self.own, &self.content.name, plan)?;
        done(self.dnf(&["install", &self.exactly(version)])?)
    }

    fn remove(&self, _purge: bool) -> Result<(), String> {
        done(self.dnf(&["remove", &self.content.name])?)
    }

    fn needless(&self, _purge: bool) -> Result<BTreeSet<String>, String> {
        let told = self.dnf(&["-q", "-C", "repoquery", "--unneeded", "--qf", "%{name}\n"])?.ok()?;
        Ok(told.lines().map(|line| line.trim().to_owned()).collect())
    }

    fn remove_needless(&self, names: &BTreeSet<String>, _purge: bool) -> Result<(), String> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        done(self.dnf(&[&["remove"][..], &names].concat())?)
    }

    fn hold(&self, hold: bool) -> Result<(), String> {
        match hold {
            true => Err(super::NO_HOLDS.to_owned()),
            false => Ok(()),
        }
    }

    fn how_to_unhold(&self) -> String {
        String::new()
    }

    fn forget(&self) -> Result<(), String> {
        self.own.clear(&[], CACHE)
    }
}
