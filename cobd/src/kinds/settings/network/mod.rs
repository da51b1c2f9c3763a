//! The kind back end `network`: an interface, configured by systemd-networkd, NetworkManager or ifupdown.
//!
//! [`Lan`] has what all three have in common: the files, and the note of the earlier state. [`link`] reads, completes
//! and restores the interfaces of the kernel. A [`Program`] writes its files for a content, configures the interface by
//! them, and gives it back. All of them remove the addresses of an interface that no file names any more, so the note
//! has the addresses, too.

mod family;
mod ifupdown;
mod link;
mod network_manager;
#[cfg(test)]
mod network_test;
mod networkd;

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cob_kinds::{By, Interface};
use serde_json::{Value, json};

use self::link::Link;
use super::setting::{difference, read_note};
use super::{Entry, Setting, Spec, place};
use crate::kinds::native::{Host, NOTE, Ran, needs_program, run_bounded};

/// The file in the change object's own folder that stays until the program has read the files.
const UNREAD: &str = "unread";
/// The key of an interface in a note, before its name.
const LINK: &str = "interface ";
/// The key of the folder that was missing in a note, before the path.
const MADE: &str = "made ";
/// The key of what a program had for an interface in a note, before its name.
const HAD: &str = "had ";
/// The first line of each file.
const HEAD: &str = "# Written by cobd.\n";
/// The pause between two looks at an interface.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for a program.
const LONGEST: Duration = Duration::from_secs(30);
/// The time after which a failure is about the present files.
const SETTLED: Duration = Duration::from_secs(5);

/// The back end `network`.
#[derive(Debug)]
pub(super) struct NetworkSetting;

impl Setting for NetworkSetting {
    type Content = Interface;

    fn spec(&self, entry: Entry<Interface>) -> Result<Box<dyn Spec>, String> {
        let Entry { content, host, own, longest, .. } = entry;
        Ok(Box::new(Lan { content, host, own, longest, by: OnceCell::new() }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, UNREAD]
    }
}

/// Whether change objects below a state folder have configured interfaces of this host.
pub(crate) fn configures_interfaces(state_dir: &Path) -> bool {
    let own = fs::read_dir(state_dir.join("cobs")).into_iter().flatten().flatten();
    let mut notes = own.filter_map(|entry| read_note(&entry.path())?.1);
    notes.any(|before| before.as_object().is_some_and(|before| before.keys().any(|key| key.starts_with(LINK))))
}

/// A program that configures interfaces.
trait Program {
    fn by(&self) -> By;

    /// Its files for a content, with their texts.
    fn files(&self, content: &Interface) -> Vec<(String, String)>;

    /// The mode of its files.
    fn mode(&self) -> u32 {
        0o644
    }

    /// Whether its files can express the content.
    ///
    /// # Errors
    /// The key that they can't express, as text.
    fn expresses(&self, lan: &Lan) -> Result<(), String>;

    /// Whether it configures interfaces on this host.
    ///
    /// # Errors
    /// The reason why it does not, as text.
    fn is_active(&self) -> Result<(), String>;

    /// Whether the interface of this host can be configured by it.
    ///
    /// # Errors
    /// The reason why its file would have no effect, as text.
    fn hindered(&self, lan: &Lan) -> Result<(), String>;

    /// The desired answer of [`Self::look`].
    fn wanted(&self, content: &Interface) -> Value;

    /// The state of the interface according to the program.
    fn look(&self, content: &Interface) -> Result<Value, String>;

    /// The program's own record of an interface, for the note of the earlier state.
    fn had(&self, _name: &str) -> Result<Option<Value>, String> {
        Ok(None)
    }

    /// Writes the files, and configures the interface by them.
    fn apply(&self, lan: &Lan, before: Option<&Value>) -> Result<(), String>;

    /// Puts its files back as they were, and the interfaces.
    fn restore(&self, lan: &Lan, before: &Value) -> Result<(), String>;
}

fn program(by: By) -> &'static dyn Program {
    match by {
        By::Networkd => &networkd::Networkd,
        By::NetworkManager => &network_manager::NetworkManager,
        By::Ifupdown => &ifupdown::Ifupdown,
    }
}

/// An interface with its host.
struct Lan {
    content: Interface,
    host: Host,
    own: PathBuf,
    longest: Duration,
    by: OnceCell<By>,
}

/// The files have been written.
struct Put {
    is_changed: bool,
    /// The interfaces that the content does not name any more.
    left: Vec<String>,
}

impl Lan {
    fn is_live(&self) -> bool {
        self.host.root().is_none()
    }

    fn name(&self) -> &str {
        &self.content.interface
    }

    /// The interface and its ports.
    fn links(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.content.interface).chain(self.content.ports())
    }

    fn program(&self) -> &'static dyn Program {
        program(*self.by.get_or_init(|| self.choose()))
    }

    /// The program of the content; else the program that has configured the interface, which may be away for a moment;
    /// else the first that is active.
    fn choose(&self) -> By {
        let live = || By::ALL.into_iter().find(|by| self.is_live() && program(*by).is_active().is_ok());
        self.content.by.or_else(|| self.noted()).or_else(live).unwrap_or(By::Networkd)
    }

    fn noted(&self) -> Option<By> {
        let before = read_note(&self.own)?.1?;
        let mut noted: Vec<_> = By::ALL.into_iter().filter(|by| before.get(by.file(self.name())).is_some()).collect();
        // An earlier content may have named another program.
        noted.sort_by_key(|by| !self.host.path(&by.file(self.name())).exists());
        noted.first().copied()
    }

    /// Whether a file is of an earlier content, and goes before anything is configured.
    fn is_going(&self, file: &str) -> Result<bool, String> {
        let before = read_note(&self.own).and_then(|(_, before)| before);
        let Some(text) = before.as_ref().and_then(|before| before.get(file)) else { return Ok(false) };
        Ok(json!(self.host.read_if_there(file)?) != *text)
    }

    fn set_unread(&self) -> Result<(), String> {
        let path = self.own.join(UNREAD);
        fs::write(&path, "").map_err(|error| format!("{}: {error}", path.display()))
    }

    fn clear_unread(&self) -> Result<(), String> {
        place::remove_all(&self.own.join(UNREAD))
    }

    fn is_unread(&self) -> bool {
        self.own.join(UNREAD).exists()
    }

    fn put(&self, by: By, file: &str, text: Option<&str>) -> Result<(), String> {
        match text {
            Some(text) => self.host.write(file, text, program(by).mode()),
            None => self.host.remove(file),
        }
    }

    /// The files of earlier contents that are not files of this content, with their earlier texts.
    fn left_over<'a>(&self, before: Option<&'a Value>) -> Vec<(&'a String, &'a Value)> {
        let files = self.content.files(self.program().by());
        let noted = before.and_then(Value::as_object).into_iter().flatten();
        noted.filter(|(key, _)| key.starts_with('/') && !files.contains(key)).collect()
    }

    /// Writes the files that differ, and puts back those that the content does not name any more. An interface is
    /// removed before a file that defines it anew.
    fn put_files(
        &self,
        before: Option<&Value>,
        is_redefined: &dyn Fn(&str, &str, &str) -> bool,
    ) -> Result<Put, String> {
        let (program, mut put) = (self.program(), Put { is_changed: false, left: Vec::new() });
        for (file, text) in program.files(&self.content) {
            let found = self.host.read_if_there(&file)?;
            if found.as_ref() == Some(&text) {
                continue;
            }
            put.is_changed = true;
            if found.is_some_and(|found| is_redefined(&file, &found, &text)) && self.is_live() {
                link::delete(self.name())?;
            }
            self.put(program.by(), &file, Some(&text))?;
        }
        for (file, text) in self.left_over(before) {
            let Some(by) = By::of_file(file).filter(|by| *by == program.by()) else { continue };
            put.is_changed = true;
            self.put(by, file, text.as_str())?;
            let noted = before.and_then(Value::as_object).into_iter().flatten();
            let mut names = noted.filter_map(|(key, _)| key.strip_prefix(LINK));
            put.left.extend(names.find(|name| by.file(name) == **file).map(str::to_owned));
        }
        Ok(put)
    }

    /// Puts the files of a program back as they were.
    fn put_back(&self, before: &Value, by: By) -> Result<(), String> {
        for (file, text) in before.as_object().into_iter().flatten() {
            if By::of_file(file) != Some(by) {
                continue;
            }
            self.put(by, file, text.as_str())?;
            if let Some(first) = before[format!("{MADE}{file}")].as_str() {
                place::remove_folders(&place::real(&self.host, file)?, first);
            }
        }
        Ok(())
    }

    /// The noted interfaces that existed; none for a folder.
    fn noted_links<'a>(&self, before: &'a Value) -> Result<Vec<(&'a str, Link)>, String> {
        let links = before.as_object().into_iter().flatten();
        let links = links.filter_map(|(key, link)| Some((key.strip_prefix(LINK)?, link)));
        let read = |(name, link): (&'a str, &Value)| {
            let link = serde_json::from_value(link.clone()).map_err(|error| format!("note: {error}"))?;
            Ok((name, link))
        };
        links.filter(|(_, link)| !link.is_null()).map(read).collect()
    }

    /// Removes the interfaces that did not exist.
    fn delete_made(&self, before: &Value) -> Result<(), String> {
        let links = before.as_object().into_iter().flatten();
        let links = links.filter(|(_, link)| link.is_null()).filter_map(|(key, _)| key.strip_prefix(LINK));
        links.into_iter().try_for_each(link::delete)
    }

    /// Removes the interface, if a change object has made it and its definition differs.
    fn delete_redefined(&self, before: Option<&Value>) -> Result<(), String> {
        let is_made =
            before.and_then(|before| before.get(format!("{LINK}{}", self.name()))).is_some_and(Value::is_null);
        if is_made && link::is_redefined(&self.content)? { link::delete(self.name()) } else { Ok(()) }
    }

    /// The desired state of the interface, limited to the keys of the content.
    fn wanted_link(&self) -> Value {
        joined(link::wanted(&self.content), &self.program().wanted(&self.content))
    }

    /// The interface as it is, limited to the keys of the content.
    fn look_at_link(&self) -> Result<Value, String> {
        let Some(found) = link::look(&self.content)? else { return Ok(json!({ "interface": "not there" })) };
        Ok(match self.program().is_active() {
            Ok(()) => joined(found, &self.program().look(&self.content)?),
            Err(why) => joined(found, &json!({ "state": why })),
        })
    }

    /// Waits until the interface is as desired.
    fn wait(&self, program: &str, question: &str) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let (found, wanted) = (self.look_at_link()?, self.wanted_link());
            if found == wanted {
                return Ok(());
            }
            // The state may still be of the earlier files.
            let has_failed = found["state"] == "failed" && begun.elapsed() > SETTLED;
            if has_failed || begun.elapsed() > LONGEST.min(self.longest) {
                return Err(format!(
                    "{program} has not configured {}: {}; `{question}` and its journal say more",
                    self.name(),
                    difference(&wanted, Some(&found))
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether the other programs leave the interface and its ports alone.
    fn is_left_alone(&self) -> Result<(), String> {
        for name in self.links() {
            for by in By::ALL.into_iter().filter(|by| *by != self.program().by()) {
                if self.is_going(&by.file(name))? {
                    continue;
                }
                let (found, remedy) = match by {
                    By::Networkd => (networkd::file_of(name)?, "write `by: networkd`, or remove the file"),
                    By::NetworkManager => {
                        let found = network_manager::connection_of(name)?;
                        (found, "write `by: NetworkManager`, or delete the connection")
                    }
                    By::Ifupdown => {
                        let found = ifupdown::file_of(&self.host, name, &[])?;
                        let found = found.map(|file| format!("`iface {name}` in {file}"));
                        (found, "remove its lines, for example with the kind `line`")
                    }
                };
                if let Some(found) = found {
                    return Err(format!(
                        "{} configures {name}, too ({found}), and both would undo each other's work: {remedy}",
                        by.name()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether the interfaces that the content does not make exist.
    fn has_links(&self) -> Result<(), String> {
        let below = self.content.vlan.iter().map(|vlan| &vlan.on);
        for name in self.links().skip(usize::from(self.content.is_virtual())).chain(below) {
            if !link::exists(name)? {
                return Err(format!("there is no interface {name} on this host; `ip link` shows the interfaces"));
            }
        }
        Ok(())
    }
}

fn joined(mut object: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

/// Runs a program, which answers in English.
fn run(program: &str, arguments: &[&str]) -> Result<Ran, String> {
    run_bounded(Command::new(program).args(arguments).env("LC_ALL", "C.UTF-8"), b"")
}

/// Asks systemd about a unit.
fn is_unit(question: &str, unit: &str) -> bool {
    run("systemctl", &[question, "--quiet", unit]).is_ok_and(|ran| ran.code == Some(0))
}

impl Spec for Lan {
    fn target(&self) -> String {
        self.content.interface.clone()
    }

    /// Several change objects may name the same interfaces, and a program reads all files at once.
    fn turn(&self) -> Option<&'static str> {
        self.is_live().then_some("network")
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({});
        for file in self.content.files(self.program().by()) {
            found[&file] = json!(self.host.read_if_there(&file)?);
        }
        for (file, text) in self.left_over(before) {
            let now = json!(self.host.read_if_there(file)?);
            if now != *text {
                found[file] = now;
            }
        }
        if self.is_unread() {
            found["unfinished"] = json!(true);
        }
        if self.is_live() {
            found[LINK.trim()] = self.look_at_link()?;
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let mut before = json!({});
        for file in self.content.files(self.program().by()) {
            before[&file] = json!(self.host.read_if_there(&file)?);
            let real = place::real(&self.host, &file)?;
            before[format!("{MADE}{file}")] = json!(place::missing_folder(&real).map(place::text).transpose()?);
        }
        for name in self.links().filter(|_| self.is_live()) {
            before[format!("{LINK}{name}")] = json!(link::find(name)?);
            if let Some(had) = self.program().had(name)? {
                before[format!("{HAD}{name}")] = had;
            }
        }
        Ok(Some(before))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({});
        for (file, text) in self.program().files(&self.content) {
            wanted[file] = json!(text);
        }
        if self.is_live() {
            wanted[LINK.trim()] = self.wanted_link();
        }
        wanted
    }

    fn hindered(&self) -> Result<(), String> {
        if self.is_live() {
            needs_program("ip", "iproute2")?;
            if self.content.by.is_none() && self.noted().is_none() {
                is_any_active()?;
            }
            self.program().is_active()?;
            self.is_left_alone()?;
            self.program().hindered(self)?;
            self.has_links()?;
        }
        self.program().expresses(self)
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let is_unread = self.is_unread();
        self.set_unread()?;
        // An earlier content has named other programs.
        for by in By::ALL.into_iter().filter(|by| *by != self.program().by()) {
            let left = self.left_over(before).into_iter().filter(|(file, _)| By::of_file(file) == Some(by));
            let mut is_left = false;
            for (file, text) in left {
                is_left |= is_unread || json!(self.host.read_if_there(file)?) != *text;
            }
            if let Some(before) = before.filter(|_| is_left) {
                self.restore_by(by, before)?;
            }
        }
        if self.is_live() {
            // A restored file may configure the interface.
            self.is_left_alone()?;
            self.delete_redefined(before)?;
            self.program().apply(self, before)?;
        } else {
            self.put_files(before, &|_, _, _| false)?;
        }
        self.clear_unread()
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        let files = || before.as_object().into_iter().flatten().filter_map(|(key, _)| By::of_file(key));
        for by in By::ALL.into_iter().filter(|by| files().any(|of| of == *by)) {
            self.restore_by(by, before)?;
        }
        self.clear_unread()
    }
}

impl Lan {
    fn restore_by(&self, by: By, before: &Value) -> Result<(), String> {
        if self.is_live() { program(by).restore(self, before) } else { self.put_back(before, by) }
    }
}

/// Whether the host has a program that configures interfaces.
fn is_any_active() -> Result<(), String> {
    let mut whys = Vec::new();
    for by in By::ALL {
        match program(by).is_active() {
            Ok(()) => return Ok(()),
            Err(why) => whys.push(why),
        }
    }
    Err(format!("no program configures interfaces here: {}", whys.join("; ")))
}
