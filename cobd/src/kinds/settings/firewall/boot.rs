//! The files that load the table at the next boot: a unit of systemd, ordered before the network, with the rules.

use std::fs;

use cob_kinds::Firewall;
use serde_json::{Value, json};

use super::super::place;
use super::text;
use crate::kinds::native::Host;

/// The key in a note: for each path the uppermost folder that was missing.
const MADE: &str = "made";

/// The files of a content.
pub(super) struct Boot<'a> {
    pub(super) host: &'a Host,
    pub(super) content: &'a Firewall,
}

impl Boot<'_> {
    /// The desired texts of the files. `None`: no file.
    fn files(&self) -> [(String, Option<String>); 2] {
        let name = self.content.full_name();
        let rules = format!("# Written by cobd.\n{}", text::replacing(&name, &text::table(self.content)));
        let unit = format!(
            "# Written by cobd.\n\
             [Unit]\n\
             Description=The table {name} of nftables, before the network\n\
             DefaultDependencies=no\n\
             # The service of the distribution may begin with an empty rule set.\n\
             After=nftables.service\n\
             Wants=network-pre.target\n\
             Before=network-pre.target shutdown.target\n\
             Conflicts=shutdown.target\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             ExecStart=nft -f {}\n",
            self.content.rules_file()
        );
        [(self.content.rules_file(), rules), (self.content.unit_file(), unit)]
            .map(|(file, text)| (file, self.content.persist.then_some(text)))
    }

    fn link(&self) -> Result<Option<String>, String> {
        let link = self.content.unit_link();
        match self.host.inspect(&link)? {
            None => Ok(None),
            Some(meta) if meta.is_symlink() => {
                let target = fs::read_link(self.host.path(&link)).map_err(|error| format!("{link}: {error}"))?;
                place::text(&target).map(|target| Some(target.to_owned()))
            }
            Some(_) => Err(format!("{link} is no link; move it away")),
        }
    }

    /// The files as they are.
    pub(super) fn look(&self) -> Result<Value, String> {
        let mut found = json!({ self.content.unit_link(): self.link()? });
        for (file, _) in self.files() {
            found[&file] = json!(self.host.read_if_there(&file)?);
        }
        Ok(found)
    }

    /// The desired files.
    pub(super) fn wanted(&self) -> Value {
        let target = self.content.persist.then(|| self.content.unit_file());
        let mut wanted = json!({ self.content.unit_link(): target });
        for (file, text) in self.files() {
            wanted[&file] = json!(text);
        }
        wanted
    }

    /// The files before the first change, and the folders that are missing.
    pub(super) fn before(&self) -> Result<Value, String> {
        let mut before = self.look()?;
        let mut made = json!({});
        for path in [self.content.rules_file(), self.content.unit_file(), self.content.unit_link()] {
            let real = place::real(self.host, &path)?;
            made[&path] = json!(place::missing_folder(&real).map(place::text).transpose()?);
        }
        before[MADE] = made;
        Ok(before)
    }

    /// Writes or removes the files.
    pub(super) fn apply(&self) -> Result<(), String> {
        for (file, text) in self.files() {
            self.put(&file, text.as_deref())?;
        }
        let target = self.content.persist.then(|| self.content.unit_file());
        self.put_link(target.as_deref())
    }

    /// Brings the earlier files back.
    pub(super) fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        let link = self.content.unit_link();
        self.put_link(before[&link].as_str())?;
        for (file, _) in self.files() {
            self.put(&file, before[&file].as_str())?;
        }
        for path in [link, self.content.unit_file(), self.content.rules_file()] {
            if let Some(first) = before[MADE][&path].as_str() {
                place::remove_folders(&place::real(self.host, &path)?, first);
            }
        }
        Ok(())
    }

    fn put(&self, file: &str, text: Option<&str>) -> Result<(), String> {
        match text {
            Some(text) => self.host.write(file, text, 0o644),
            None => self.host.remove(file),
        }
    }

    fn put_link(&self, target: Option<&str>) -> Result<(), String> {
        let link = self.content.unit_link();
        match target {
            Some(target) => {
                place::make_folders(&place::real(self.host, &link)?)?;
                self.host.link(&link, target)
            }
            None => self.host.remove(&link),
        }
    }
}
