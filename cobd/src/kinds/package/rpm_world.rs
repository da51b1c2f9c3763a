//! A root folder and a repository of packages, which a real `rpmbuild` has built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
}
