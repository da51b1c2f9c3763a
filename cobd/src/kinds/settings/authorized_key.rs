//! The kind back end `authorized-key`: a public SSH key in `~/.ssh/authorized_keys`.
//!
//! The key identifies its line: an earlier line of the same key gives way, and is there again afterwards. All other
//! lines stay as they are, also concurrent changes. The user controls the folder, so that [`Folder`] opens it.
//!
//! With `absent` the lines of the key are cut out of the file, and put back at the departure.

use std::path::Path;

use cob_kinds::{AuthorizedKey, PublicKey};
use serde_json::{Value, json};

use super::cut::{Cut, Rest, bare};
use super::{Entry, Setting, Spec, accounts};
use crate::kinds::native::{Account, Folder, Host, Turn, insert_line, lines};

/// The folder in the home, and the file in it.
const FOLDER: &str = ".ssh";
const FILE: &str = "authorized_keys";
/// The name of the file lock for all changes of these files.
const TURN: &str = "authorized-keys";

/// The back end `authorized-key`.
#[derive(Debug)]
pub(super) struct AuthorizedKeySetting;

#[derive(Debug)]
struct KeyLine {
    host: Host,
    user: String,
    key: PublicKey,
    options: String,
    line: String,
}

/// A key that must not open the account.
#[derive(Debug)]
struct NoKey {
    entry: KeyLine,
}

impl Setting for AuthorizedKeySetting {
    type Content = AuthorizedKey;

    fn spec(&self, Entry { content, host, .. }: Entry<AuthorizedKey>) -> Result<Box<dyn Spec>, String> {
        let (line, is_absent) = (content.line()?, content.absent);
        let key = PublicKey::read(&content.key).map_err(|(what, _)| format!("content: {what}"))?;
        let options = content.options.unwrap_or_default();
        let entry = KeyLine { host, user: content.user, key, options, line };
        Ok(if is_absent { Box::new(NoKey { entry }) } else { Box::new(entry) })
    }
}

impl KeyLine {
    /// Where the account has its home: the path, and the account.
    fn account(&self) -> Result<Option<(String, Account)>, String> {
        let found = accounts::account(&self.host, &self.user)?;
        Ok(found.map(|found| (found.home, Account { uid: found.uid, gid: found.gid })))
    }

    /// The open home.
    fn home(&self) -> Result<Folder, String> {
        let user = &self.user;
        let (path, account) = self.account()?.ok_or_else(|| {
            format!("/etc/passwd has no user {user}; let the key come `after` the object that makes the user")
        })?;
        self.host.home(&path, account)?.ok_or_else(|| {
            format!("{path}, the home of {user}, does not exist; let the object that makes the user have `create_home`")
        })
    }

    /// The open folder of the file, if it exists.
    fn folder(&self) -> Result<Option<Folder>, String> {
        let Some((path, account)) = self.account()? else { return Ok(None) };
        self.host.home(&path, account)?.map_or(Ok(None), |home| home.folder(FOLDER))
    }

    /// The lines of this key, with their numbers.
    fn own(&self, text: &str) -> Vec<(usize, String)> {
        let is_own = |line: &str| PublicKey::in_line(line).is_some_and(|(_, key)| key.is(&self.key));
        lines(text).into_iter().enumerate().filter(|(_, line)| is_own(line)).map(|(at, l)| (at, l.to_owned())).collect()
    }

    /// The text with other lines for this key, the first of them in the place of its first line. The number of a line
    /// tells its distance from the first.
    fn with(&self, text: &str, new: &[(usize, String)]) -> String {
        let own = self.own(text);
        let is_own = |at: usize| own.iter().any(|(own, _)| *own == at);
        let others = lines(text).into_iter().enumerate().filter(|(at, _)| !is_own(*at));
        let mut all: Vec<String> = others.map(|(_, line)| line.to_owned()).collect();
        let place = own.first().map_or(all.len(), |(at, _)| *at);
        for (at, line) in new {
            let at = (place + at - new[0].0).min(all.len());
            match line.strip_suffix('\n') {
                // Without an end, it was the last line.
                None if at == all.len() && all.last().is_none_or(|last| last.ends_with('\n')) => all.push(line.clone()),
                line_without_end => insert_line(&mut all, at, line_without_end.unwrap_or(line)),
            }
        }
        all.concat()
    }

    /// Removes the line from a home, and puts the noted lines back.
    fn take_out(&self, home: &Folder, before: &Value) -> Result<(), String> {
        let noted: Vec<(usize, String)> = serde_json::from_value(before["lines"].clone()).unwrap_or_default();
        if let Some(folder) = home.folder(FOLDER)? {
            folder.clear_edit(FILE)?;
            // A file without our line stays as it is.
            let restored = |text: &str| {
                let is_there = !self.own(text).is_empty();
                is_there.then(|| self.with(text, &noted)).filter(|new| new != text)
            };
            if folder.read(FILE)?.is_some() {
                folder.edit(FILE, 0o600, &restored)?;
            }
            if before["file"] == json!(false) {
                folder.remove_empty_file(FILE)?;
            }
        }
        if before["folder"] == json!(false) {
            home.remove_empty_folder(FOLDER)?;
        }
        Ok(())
    }
}

impl Spec for KeyLine {
    fn target(&self) -> String {
        format!("the key {} of {}", self.key.fingerprint(), self.user)
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn clear_killed(&self, _host: &Host, own: &Path) -> Result<(), String> {
        let Ok(Some(folder)) = self.folder() else { return Ok(()) };
        if !folder.is_half_edited(FILE) {
            return Ok(());
        }
        // The holder of the lock is editing.
        Turn::take(own, TURN).map_or(Ok(()), |_turn| folder.clear_edit(FILE))
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        let own = self.own(&folder.read(FILE)?.unwrap_or_default());
        let texts: Vec<_> = own.iter().map(|(_, line)| line.strip_suffix('\n').unwrap_or(line)).collect();
        Ok(match texts.as_slice() {
            [] => None,
            [line] => Some(json!(line)),
            lines => Some(json!({ "lines": lines })),
        })
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let found = self.look(None)?;
        let has_effect = |line: &str| PublicKey::in_line(line).is_some_and(|(options, _)| options == self.options);
        let is_as_wanted = found.as_ref().and_then(Value::as_str).is_some_and(has_effect);
        Ok(if is_as_wanted { Some(self.wanted()) } else { found })
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let (home, account) = (self.home()?, self.account()?);
        let folder = home.folder(FOLDER)?;
        let text = folder.as_ref().map_or(Ok(None), |folder| folder.read(FILE))?;
        let own = self.own(text.as_deref().unwrap_or_default());
        let (path, account) = account.map_or_else(Default::default, |(path, account)| (path, json!(account)));
        Ok(Some(json!({
            "home": path, "account": account, "folder": folder.is_some(), "file": text.is_some(), "lines": own,
        })))
    }

    fn wanted(&self) -> Value {
        json!(self.line)
    }

    fn of_use(&self) -> Result<(), String> {
        self.home().map(|_| ())
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let home = self.home()?;
        let folder = match home.folder(FOLDER)? {
            // Here before, or made anew by the user.
            Some(folder) if before.is_none_or(|before| before["folder"] == json!(true)) => folder,
            Some(_) | None => home.make_folder(FOLDER)?,
        };
        let line = [(0, format!("{}\n", self.line))];
        let changed = |text: &str| Some(self.with(text, &line)).filter(|new| new != text);
        folder.edit(FILE, 0o600, &changed).map(|_| ())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        let noted = before["home"].as_str().map(str::to_owned);
        let noted = noted.zip(serde_json::from_value(before["account"].clone()).ok());
        // The home may have moved, with the file or without it.
        let present = self.account()?;
        let noted = noted.filter(|noted| present.as_ref().is_none_or(|present| present.0 != noted.0));
        for (path, account) in present.into_iter().chain(noted) {
            if let Some(home) = self.host.home(&path, account)? {
                self.take_out(&home, before)?;
            }
        }
        Ok(())
    }
}

impl NoKey {
    fn rest(&self, line: &str) -> Rest {
        let is_own = PublicKey::in_line(line).is_some_and(|(_, key)| key.is(&self.entry.key));
        if is_own { Rest::Nothing } else { Rest::Whole }
    }

    fn text(&self) -> Result<String, String> {
        let folder = self.entry.folder()?;
        Ok(folder.map_or(Ok(None), |folder| folder.read(FILE))?.unwrap_or_default())
    }

    /// Edits the file of a home, if it exists.
    fn edit(&self, folder: Option<Folder>, change: &dyn Fn(&str) -> String) -> Result<(), String> {
        let Some(folder) = folder else { return Ok(()) };
        folder.clear_edit(FILE)?;
        let changed = |text: &str| Some(change(text)).filter(|new| new != text);
        if folder.read(FILE)?.is_some() { folder.edit(FILE, 0o600, &changed).map(|_| ()) } else { Ok(()) }
    }
}

impl Spec for NoKey {
    fn target(&self) -> String {
        format!("no {}", self.entry.target())
    }

    fn turn(&self) -> Option<&'static str> {
        self.entry.turn()
    }

    fn clear_killed(&self, host: &Host, own: &Path) -> Result<(), String> {
        self.entry.clear_killed(host, own)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = self.text()?;
        Ok(Some(json!(self.entry.own(&text).iter().map(|(_, line)| bare(line)).collect::<Vec<_>>())))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let (path, account) = self.entry.account()?.unzip();
        let cut = Cut::of(&self.text()?, &|line| self.rest(line));
        Ok(Some(json!({ "home": path, "account": account, "cut": cut })))
    }

    fn wanted(&self) -> Value {
        json!([])
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.edit(self.entry.folder()?, &|text| Cut::out_of(text, &|line| self.rest(line)))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        let cut: Cut = serde_json::from_value(before["cut"].clone()).unwrap_or_default();
        let noted = before["home"].as_str().map(str::to_owned);
        let noted = noted.zip(serde_json::from_value(before["account"].clone()).ok());
        // The home may have moved with its files.
        let Some((path, account)) = self.entry.account()?.or(noted).filter(|_| !cut.is_empty()) else { return Ok(()) };
        let home = self.entry.host.home(&path, account)?;
        let folder = home.map_or(Ok(None), |home| home.folder(FOLDER))?;
        let is_there = |line: &str, gone: &str| bare(line) == bare(gone);
        self.edit(folder, &|text| cut.put_back(text, &is_there, &|_, _| None))
    }
}

#[cfg(test)]
#[path = "authorized_key_test.rs"]
mod tests;
