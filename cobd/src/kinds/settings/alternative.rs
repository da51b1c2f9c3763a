//! The kind back end `alternative`: the program behind a common name, set by `update-alternatives`.
//!
//! The state is read from the links and from the file that the program keeps for each name; only the program changes
//! it, because further links, such as those of manual pages, go with it. The program makes a further link only if its target
//! exists; so the further links are noted, and are as they were afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use cob_kinds::Alternative;
use serde_json::{Value, json};

use super::{Entry, Spec};
use crate::kinds::native::run_bounded;

/// The folders of the program's files: of Debian and of Red Hat.
const FOLDERS: [&str; 2] = ["/var/lib/dpkg/alternatives", "/var/lib/alternatives"];
const PROGRAM: &str = "update-alternatives";
/// The folder of the links to the chosen programs.
const LINKS: &str = "/etc/alternatives";
/// The name of the file lock for all changes: the program has no lock.
const TURN: &str = "alternatives";

impl Entry<Alternative> {
    /// The file that the program keeps for the name. Its first line is `auto` or `manual`; behind an empty line it has
    /// the paths of all programs, among lines of other sorts.
    fn record(&self) -> Result<Option<String>, String> {
        for folder in FOLDERS {
            let record = self.host.read_if_there(&format!("{folder}/{}", self.content.name))?;
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }

    /// The programs that packages offer for the name.
    fn offered(record: &str) -> Vec<&str> {
        // The first part names the link, and the further links that go with it.
        let mut lines = record.lines().skip(2);
        let further = lines.by_ref().take_while(|line| !line.is_empty()).count() / 2;
        let mut offered = Vec::new();
        // Each part: path, priority, and the targets of the further links, which may be empty.
        while let Some(path) = lines.next().filter(|path| path.starts_with('/')) {
            offered.push(path);
            lines.by_ref().take(1 + further).for_each(drop);
        }
        offered
    }

    /// The further links: the path of each, and its place among the alternatives.
    fn further(record: &str) -> Vec<[String; 2]> {
        let lines: Vec<&str> = record.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        let pairs = lines.chunks_exact(2).map(|pair| [pair[1].to_owned(), format!("{LINKS}/{}", pair[0])]);
        pairs.filter(|[path, _]| path.starts_with('/')).collect()
    }

    /// The targets of the further links. `None`: there is no link.
    fn targets(&self, record: &str) -> BTreeMap<String, Option<String>> {
        let target = |path: String| {
            let target =
                fs::read_link(self.host.path(&path)).ok().and_then(|target| target.to_str().map(str::to_owned));
            (path, target)
        };
        Self::further(record).into_iter().flatten().map(target).collect()
    }

    /// Gives the further links their earlier targets, unless packages have changed the alternatives since.
    fn restore_targets(&self, before: &Value, record: &str) -> Result<(), String> {
        let is_same = before["offers"].as_str().is_some_and(|offers| offers == offers_of(record));
        let noted = serde_json::from_value::<BTreeMap<String, Option<String>>>(before["further"].clone());
        let Ok(noted) = noted.map(|noted| noted.into_iter().filter(|_| is_same)) else { return Ok(()) };
        let now = self.targets(record);
        for (path, target) in noted.filter(|(path, target)| now.get(path) != Some(target)) {
            let is_link = self.host.inspect(&path)?.is_none_or(|is| is.is_symlink());
            let has_folder = self.host.path(&path).parent().is_some_and(std::path::Path::is_dir);
            match target {
                Some(target) if is_link && has_folder => self.host.link(&path, &target)?,
                None if is_link => self.host.remove(&path)?,
                // A file of somebody stays.
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    fn run(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(PROGRAM);
        if let Some(root) = self.host.root() {
            command.arg("--root").arg(root);
        }
        run_bounded(command.args(arguments).env("LC_ALL", "C.UTF-8"), b"")?.ok().map(|_| ())
    }
}

/// The record without its mode: all programs with their further links.
fn offers_of(record: &str) -> &str {
    record.split_once('\n').map_or("", |(_, offers)| offers)
}

/// Whether the program is in a folder of `PATH`.
fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(PROGRAM).exists())
}

impl Spec for Entry<Alternative> {
    fn target(&self) -> String {
        self.content.name.clone()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(record) = self.record()? else { return Ok(None) };
        let path = self.host.path(&self.content.link());
        let target = fs::read_link(&path).ok().map(|target| target.display().to_string());
        Ok(Some(json!({ "path": target, "mode": record.lines().next().unwrap_or_default() })))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let (Some(mut found), Some(record)) = (self.look(None)?, self.record()?) else { return Ok(None) };
        found["further"] = json!(self.targets(&record));
        found["offers"] = json!(offers_of(&record));
        Ok(Some(found))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        // The mode has no effect at present.
        if let Some(found) = found.as_mut().filter(|found| found["path"] == json!(self.content.path)) {
            found["mode"] = json!("manual");
        }
        Ok(found)
    }

    fn wanted(&self) -> Value {
        json!({ "path": self.content.path, "mode": "manual" })
    }

    fn of_use(&self) -> Result<(), String> {
        let Alternative { name, path, .. } = &self.content;
        if !is_installed() {
            return Err(format!("{PROGRAM} is missing: install the package dpkg, or alternatives on Red Hat"));
        }
        let Some(record) = self.record()? else {
            return Err(format!("the host has no alternatives for {name}; install a package that offers {path}"));
        };
        let offered = Self::offered(&record);
        if !offered.contains(&path.as_str()) {
            let offered = offered.join(", ");
            return Err(format!("{path} is no alternative for {name}; install its package, or choose from: {offered}"));
        }
        match self.host.path(path).exists() || self.host.root().is_some() {
            true => Ok(()),
            false => Err(format!("{path} does not exist; install its package")),
        }
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.run(&["--set", &self.content.name, &self.content.path])
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        // Without a record, no package offers a program any more.
        let (Some(before), Some(record)) = (before, self.record()?) else { return Ok(()) };
        let is_back =
            self.look(None)?.is_some_and(|found| ["path", "mode"].iter().all(|key| found[key] == before[key]));
        if !is_back {
            let earlier = before["path"].as_str().filter(|path| Self::offered(&record).contains(path));
            match earlier.filter(|_| before["mode"] == json!("manual")) {
                Some(path) => self.run(&["--set", &self.content.name, path])?,
                // The earlier program may be gone: the program then chooses another.
                None => self.run(&["--auto", &self.content.name])?,
            }
        }
        self.restore_targets(before, &record)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::super::tests::{content, host, moved, setting};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;
    use crate::kinds::testing::{Bench, reason};

    const RECORD: &str = "auto\n/usr/bin/editor\neditor.1.gz\n/usr/share/man/man1/editor.1.gz\neditor.x\n/usr/x\n\n\
                          /bin/ed\n-100\n/usr/share/man/man1/ed.1.gz\n\n/bin/nano\n40\n\n\n\n";

    /// A host with two editors. Returns `None` without the program.
    fn editors() -> Option<tempfile::TempDir> {
        let told = Command::new(PROGRAM).arg("--help").output();
        if !told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("--root")) {
            eprintln!("skipped: it takes the update-alternatives of Debian");
            return None;
        }
        let host = host(&[
            ("bin/ed", ""),
            ("bin/nano", ""),
            ("usr/bin/others", ""),
            ("usr/share/man/man1/ed.1.gz", ""),
            ("var/lib/dpkg/alternatives/others", ""),
            ("var/log/others", ""),
            ("etc/alternatives/README", ""),
        ]);
        fs::remove_file(host.path().join("var/lib/dpkg/alternatives/others")).expect("removed");
        for (path, priority, further) in
            [("/bin/ed", "-100", Some("/usr/share/man/man1/ed.1.gz")), ("/bin/nano", "40", None)]
        {
            let mut command = Command::new(PROGRAM);
            command.arg("--quiet").arg("--root").arg(host.path());
            command.args(["--install", "/usr/bin/editor", "editor", path, priority]);
            if let Some(further) = further {
                command.args(["--slave", "/usr/share/man/man1/editor.1.gz", "editor.1.gz", further]);
            }
            assert!(command.status().expect("run").success());
        }
        // The program's own log grows with each call.
        fs::remove_dir_all(host.path().join("var/log")).expect("removed");
        Some(host)
    }

    fn link(host: &Path) -> String {
        fs::read_link(host.join("etc/alternatives/editor")).expect("a link").display().to_string()
    }

    fn mode(host: &Path) -> String {
        let record = fs::read_to_string(host.join("var/lib/dpkg/alternatives/editor")).expect("read");
        record.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn a_choice_is_made_and_the_earlier_choice_comes_back() {
        let Some(host) = editors() else { return };
        let mut bench = Bench::new();
        let context =
            bench.context(&setting("alternative"), &content(host.path(), r#""name":"editor","path":"/bin/ed""#));
        assert_eq!((link(host.path()).as_str(), mode(host.path()).as_str()), ("/bin/nano", "auto"));
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!((link(host.path()).as_str(), mode(host.path()).as_str()), ("/bin/ed", "manual"));
        // A user chooses another program.
        let set = |path: &str| {
            let mut command = Command::new(PROGRAM);
            command.arg("--root").arg(host.path()).args(["--set", "editor", path]);
            assert!(command.output().expect("run").status.success());
        };
        set("/bin/nano");
        assert_eq!(bench.state(&context).await, "outdated");
        moved(&mut bench, &context, "outdated", "present").await;
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!((link(host.path()).as_str(), mode(host.path()).as_str()), ("/bin/nano", "auto"));
        // A choice of the user is there again.
        set("/bin/nano");
        moved(&mut bench, &context, "absent", "present").await;
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!((link(host.path()).as_str(), mode(host.path()).as_str()), ("/bin/nano", "manual"));
    }

    #[tokio::test]
    async fn an_alternative_that_no_package_offers_is_refused() {
        let Some(host) = editors() else { return };
        let mut bench = Bench::new();
        for (keys, word) in [
            (r#""name":"editor","path":"/bin/vi""#, "choose from: /bin/ed, /bin/nano"),
            (r#""name":"pager","path":"/bin/less""#, "no alternatives for pager; install a package"),
        ] {
            let context = bench.context(&setting("alternative"), &content(host.path(), keys));
            let why = reason(bench.transition(&context, "absent", "present").await);
            assert!(why.contains(word), "{why}");
        }
        // The record goes with its packages: there is no earlier choice to return to.
        let context =
            bench.context(&setting("alternative"), &content(host.path(), r#""name":"editor","path":"/bin/ed""#));
        moved(&mut bench, &context, "absent", "present").await;
        fs::remove_file(host.path().join("var/lib/dpkg/alternatives/editor")).expect("removed");
        assert_eq!(bench.state(&context).await, "outdated");
        moved(&mut bench, &context, "outdated", "absent").await;
    }

    #[tokio::test]
    async fn links_of_manual_pages_are_restored_also_without_the_pages() {
        let Some(host) = editors() else { return };
        let page = "usr/share/man/man1/editor.1.gz";
        let links = || {
            let target = |path: &str| fs::read_link(host.path().join(path)).ok();
            [page, "etc/alternatives/editor.1.gz", "usr/bin/editor"].map(target)
        };
        let mut command = Command::new(PROGRAM);
        command.arg("--root").arg(host.path()).args(["--set", "editor", "/bin/ed"]);
        assert!(command.output().expect("run").status.success());
        let was = links();
        assert!(was[0].is_some() && was[1].is_some(), "{was:?}");
        // An image without documentation has the link, and not the page.
        fs::remove_file(host.path().join("usr/share/man/man1/ed.1.gz")).expect("removed");
        let mut bench = Bench::new();
        let keys = r#""name":"editor","path":"/bin/nano""#;
        let context = bench.context(&setting("alternative"), &content(host.path(), keys));
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!(links()[..2], [None, None]);
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!(links(), was);
        // A page that a user has put there stays.
        moved(&mut bench, &context, "absent", "present").await;
        fs::write(host.path().join(page), "theirs").expect("written");
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!(fs::read_to_string(host.path().join(page)).expect("read"), "theirs");
    }

    #[test]
    fn the_offered_programs_are_read_from_the_record() {
        assert_eq!(Entry::<Alternative>::offered(RECORD), ["/bin/ed", "/bin/nano"]);
        let further = ["/usr/share/man/man1/editor.1.gz", "/etc/alternatives/editor.1.gz"].map(str::to_owned);
        assert_eq!(Entry::<Alternative>::further(RECORD)[0], further);
        for odd in ["", "auto", "auto\n/x\n\n", "manual\n/x\n/bin/ed\n", "\u{10_FFFF}\n\n\n"] {
            assert!(!Entry::<Alternative>::offered(odd).contains(&"/bin/ed"), "{odd:?}");
        }
    }

    #[tokio::test]
    async fn a_choice_of_others_is_observed_by_its_effect() {
        if !is_installed() {
            eprintln!("skipped: it takes update-alternatives");
            return;
        }
        let host = host(&[("var/lib/dpkg/alternatives/editor", RECORD), ("etc/alternatives/README", "")]);
        symlink("/bin/nano", host.path().join("etc/alternatives/editor")).expect("linked");
        let mut bench = Bench::new();
        for (path, state) in [("/bin/nano", "present"), ("/bin/ed", "absent")] {
            let keys = format!(r#""name":"editor","path":"{path}""#);
            let mut context = bench.context(&setting("alternative"), &content(host.path(), &keys));
            std::sync::Arc::make_mut(&mut context.cob).observe = true;
            assert_eq!(bench.state(&context).await, state);
        }
    }

    #[tokio::test]
    async fn alternatives_keep_the_contract() {
        let Some(host) = editors() else { return };
        let [own, other] =
            ["/bin/ed", "/bin/nano"].map(|path| content(host.path(), &format!(r#""name":"editor","path":"{path}""#)));
        let case = Case::new(setting("alternative"), &own).other(&other).kills(4);
        holds(&case.watching(host.path().join("etc")).watching(host.path().join("usr")), &[]).await;
    }
}
