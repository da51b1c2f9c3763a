//! A root folder and a repository of packages, which a real `rpmbuild` has built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tests::{found, moved, package};
use crate::kinds::testing::{Bench, reason};

/// A package that is always installed.
const BASE: &str = "cobbase";

/// A root folder, and a repository.
pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    manager: &'static str,
}

impl World {
    /// Returns `None` without the needed programs or without root.
    fn new(manager: &'static str) -> Option<Self> {
        let there = ["rpm", "rpmbuild", manager, "createrepo_c"].iter().all(|p| Path::new("/usr/bin").join(p).exists());
        if !there || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: it takes rpm, rpmbuild, {manager}, createrepo_c and root");
            return None;
        }
        let world = Self { folder: tempfile::tempdir().expect("folder"), manager };
        for folder in ["root/var/lib/rpm", "root/etc", "repository"] {
            fs::create_dir_all(world.folder.path().join(folder)).expect("made");
        }
        let etc = world.root().join("etc");
        match manager {
            "dnf" => {
                fs::create_dir(etc.join("dnf")).expect("made");
                fs::write(etc.join("dnf/dnf.conf"), "[main]\n").expect("written");
            }
            _ => fs::create_dir_all(etc.join("zypp/repos.d")).expect("made"),
        }
        Some(world)
    }

    /// Adds two versions of cobtest, which needs cobdep.
    pub(super) fn filled(manager: &'static str) -> Option<Self> {
        let world = Self::new(manager)?;
        world.build("cobdep", "1.0", "");
        world.build("cobtest", "1.0", "Requires: cobdep\n");
        world.build("cobtest", "2.0", "Requires: cobdep\n");
        world.build("needy", "1", "Requires: nobody-has-this\n");
        world.index();
        if manager == "zypper" {
            // libsolv can't read a database that has become empty.
            world.build(BASE, "1", "");
            let base = world.folder.path().join(format!("repository/noarch/{BASE}-1-1.noarch.rpm"));
            let ran = world.rpm().arg("-i").arg(base).output().expect("rpm");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        }
        Some(world)
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(super) fn build(&self, name: &str, version: &str, more: &str) {
        let spec = format!(
            "Name: {name}\nVersion: {version}\nRelease: 1\nSummary: a test\nLicense: none\nBuildArch: noarch\n{more}\n\
             %description\na test\n%install\nmkdir -p %{{buildroot}}/usr/share/{name} %{{buildroot}}/etc/{name}\n\
             echo {version} > %{{buildroot}}/usr/share/{name}/version\n\
             echo setting of {version} > %{{buildroot}}/etc/{name}/conf\n\
             %files\n%dir /usr/share/{name}\n/usr/share/{name}/version\n%dir /etc/{name}\n%config(noreplace) /etc/{name}/conf\n"
        );
        let path = self.folder.path().join(format!("{name}.spec"));
        fs::write(&path, spec).expect("written");
        let ran = Command::new("rpmbuild")
            .arg("-bb")
            .args(["--define", &format!("_topdir {}", self.folder.path().join("build").display())])
            .args(["--define", &format!("_rpmdir {}", self.folder.path().join("repository").display())])
            .arg(&path)
            .output()
            .expect("rpmbuild");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }

    pub(super) fn index(&self) {
        let ran = Command::new("createrepo_c").arg("-q").arg(self.folder.path().join("repository")).output();
        assert!(ran.expect("createrepo_c").status.success());
    }

    pub(super) fn content(&self, keys: &str) -> String {
        let (root, repository) = (self.root(), self.folder.path().join("repository"));
        let (root, repository) = (root.display(), repository.display());
        format!(r#"{{"name":"cobtest","repository":"{repository}","root":"{root}","trusted":true{keys}}}"#)
    }

    /// A command of rpm on the root folder: zypper does not ask rpm for the folder of its database.
    pub(super) fn rpm(&self) -> Command {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(self.root());
        if self.manager == "zypper" {
            rpm.args(["--dbpath", "/var/lib/rpm"]);
        }
        rpm
    }

    /// Installed packages with their versions, sorted.
    pub(super) fn installed(&self) -> Vec<String> {
        let ran = self.rpm().args(["-qa", "--qf", "%{NAME} %{VERSION}\\n"]).output().expect("rpm");
        let mut all: Vec<String> = String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect();
        all.retain(|package| !package.starts_with(BASE));
        all.sort();
        all
    }

    /// A package is installed, upgraded, downgraded and removed.
    pub(super) async fn changes_versions(&self, bench: &mut Bench) {
        let old = bench.context(&package(), &self.content(r#","version":"1.0-1""#));
        assert_eq!(found(bench, &old).await, ("absent".to_owned(), String::new()));
        moved(bench, &old, "absent", "present").await;
        assert_eq!(self.installed(), ["cobdep 1.0", "cobtest 1.0"]);
        let new = bench.context(&package(), &self.content(r#","version":"2*""#));
        let (state, difference) = found(bench, &new).await;
        assert_eq!(
            (state.as_str(), difference.as_str()),
            ("outdated", "wanted 2*, found 1.0-1, available 2.0-1 1.0-1")
        );
        // A configuration file changed by a user stays, without a question.
        fs::write(self.root().join("etc/cobtest/conf"), "mine\n").expect("written");
        moved(bench, &new, "outdated", "present").await;
        assert_eq!(fs::read_to_string(self.root().join("etc/cobtest/conf")).expect("read"), "mine\n");
        let latest = bench.context(&package(), &self.content(r#","version":"latest""#));
        assert_eq!(found(bench, &latest).await.0, "present");
        // And a downgrade.
        moved(bench, &old, "outdated", "present").await;
        assert_eq!(self.installed(), ["cobdep 1.0", "cobtest 1.0"]);
        assert_eq!(found(bench, &latest).await.0, "outdated");
        moved(bench, &old, "present", "absent").await;
        assert_eq!(self.installed(), [""; 0]);
    }

    /// An installation that can't succeed tells its reason; `more`: further keys, each with a word of its reason.
    pub(super) async fn gives_reasons(&self, bench: &mut Bench, more: &[(&str, &str)]) {
        let needy = self.content("").replace("\"cobtest\"", "\"needy\"");
        let unknown = self.content("").replace("\"cobtest\"", "\"unknown-package\"");
        let nowhere = self.content("").replace("/repository\"", "/nowhere\"");
        let suite = self.content("").replace("/repository\"", "/repository bookworm main\"");
        let faults = [
            (self.content(r#","version":"3.0-1""#), "has no version that fits 3.0-1; it has 2.0-1 1.0-1"),
            (unknown, "it has no version at all"),
            (needy, "nothing provides nobody-has-this"),
            (nowhere, "is it there, with a folder repodata"),
            (suite, "no suite and no components"),
            (self.content(r#","hold":true"#), "`hold` is known for apt alone"),
        ];
        let more = more.iter().map(|(keys, word)| (self.content(keys), *word));
        for (content, word) in faults.into_iter().chain(more) {
            let context = bench.context(&package(), &content);
            let (outcome, lines) = bench.transition_with_lines(&context, "absent", "present").await;
            let why = reason(outcome);
            assert!(why.contains(word) || lines.contains(word), "{content}: {why}\n{lines}");
        }
    }
}
