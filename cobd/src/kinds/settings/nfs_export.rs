//! The kind back end `nfs-export`: a folder that NFS clients may mount, in a separate file below `/etc/exports.d`.
//!
//! `exportfs -ra` makes the table of the server from all files. It exits with a failure also for faults of other
//! exports, so the table decides whether the export is in effect. In a root folder that becomes a host, and on a host
//! without `exportfs`, only the file counts: the server reads it when it starts.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::Command;

use cob_kinds::{NfsExport, NfsOptions};
use serde_json::{Value, json};

use super::mounted::{escaped, unescaped};
use super::{Entry, Setting, Spec, place, sharing};
use crate::kinds::native::{Host, has_program, run_bounded};

/// The table that administrators write.
const TABLE: &str = "/etc/exports";
/// The program that makes the table of the server.
const PROGRAM: &str = "exportfs";
/// The keys of a look.
const FILE: &str = "file";
const EXPORTED: &str = "exported";
const OTHERS: &str = "also exported in";
/// The key of a note: the uppermost folder that was made for the file.
const MADE: &str = "made";

/// The back end `nfs-export`.
#[derive(Debug)]
pub(super) struct NfsExportSetting;

#[derive(Debug)]
struct Export {
    host: Host,
    own: PathBuf,
    path: String,
    file: String,
    text: String,
    clients: BTreeMap<String, NfsOptions>,
    /// The table of a running server counts.
    live: bool,
}

/// An export in a file of the host, or in the table of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// The file and the number of its line.
    place: String,
    path: String,
    clients: BTreeMap<String, NfsOptions>,
}

impl Setting for NfsExportSetting {
    type Content = NfsExport;

    fn spec(&self, Entry { content, host, cob, own, .. }: Entry<NfsExport>) -> Result<Box<dyn Spec>, String> {
        let mut clients = BTreeMap::new();
        let mut line = quoted(&content.path);
        for client in content.clients.keys() {
            let options = content.options_of(client)?;
            line.push_str(&format!(" {client}({})", NfsExport::write_options(&options)));
            clients.insert(client.clone(), options);
        }
        let (file, text) = (content.file(&cob), format!("# Written by cobd for {cob}.\n{line}\n"));
        let live = host.root().is_none() && has_program(PROGRAM);
        Ok(Box::new(Export { host, own, path: content.path, file, text, clients, live }))
    }
}

/// A path as a single word of a table.
fn quoted(path: &str) -> String {
    escaped(path).replace('"', "\\042")
}

impl Export {
    /// The exports of the path by others, in all files of the host.
    fn others(&self) -> Result<Vec<Line>, String> {
        let folder = std::fs::read_dir(self.host.path(NfsExport::FOLDER)).into_iter().flatten().flatten();
        let names = folder.filter_map(|entry| entry.file_name().into_string().ok());
        let names = names.filter(|name| name.ends_with(".exports") && !name.starts_with('.'));
        let mut files: Vec<String> = names.map(|name| format!("{}/{name}", NfsExport::FOLDER)).collect();
        files.sort();
        let mut found = Vec::new();
        for file in std::iter::once(TABLE.to_owned()).chain(files).filter(|file| *file != self.file) {
            let lines = read_table(&file, &self.host.read(&file)?);
            found.extend(lines.into_iter().filter(|line| line.path == self.path));
        }
        Ok(found)
    }

    /// The clients of the path in the table of the server. A client that the server shows under another name of the
    /// same host has its name in the content.
    fn exported(&self) -> Result<BTreeMap<String, NfsOptions>, String> {
        let shown = run_bounded(Command::new(PROGRAM).arg("-s").env("LC_ALL", "C.UTF-8"), b"")?.ok()?;
        let mut found = BTreeMap::new();
        for line in read_table(PROGRAM, &shown).into_iter().filter(|line| line.path == self.path) {
            for (client, options) in line.clients {
                let name = self.clients.keys().find(|wanted| is_same_client(wanted, &client));
                found.insert(name.cloned().unwrap_or(client), options);
            }
        }
        Ok(found)
    }

    /// Makes the table of the server from all files. Returns the lines of the output about this export.
    fn refresh(&self) -> Result<String, String> {
        let ran = run_bounded(Command::new(PROGRAM).arg("-ra").env("LC_ALL", "C.UTF-8"), b"")?;
        let is_ours = |line: &&str| {
            let words = self.clients.keys().chain([&self.path, &self.file]);
            words.into_iter().any(|word| word.len() > 1 && line.contains(word.as_str()))
        };
        let lines: Vec<&str> = ran.err.lines().map(str::trim).filter(is_ours).collect();
        Ok(if lines.is_empty() && ran.code != Some(0) { ran.complaint() } else { lines.join("; ") })
    }

    /// The reason why the export can't be in effect beside an export of others.
    fn conflict(&self) -> Result<(), String> {
        match self.others()?.first() {
            None => Ok(()),
            Some(line) => Err(format!(
                "{} is also exported in {}, by others: remove that line, or this export",
                self.path, line.place
            )),
        }
    }

    fn described(clients: &BTreeMap<String, NfsOptions>) -> Value {
        json!(
            clients
                .iter()
                .map(|(client, options)| (client, NfsExport::write_options(options)))
                .collect::<BTreeMap<_, _>>()
        )
    }
}

/// Whether the table of the server shows a client of a content under this name. The server has full names of hosts.
fn is_same_client(wanted: &str, shown: &str) -> bool {
    if wanted.eq_ignore_ascii_case(shown) {
        return true;
    }
    let is_host = |name: &str| !name.contains(['*', '?', '[', '@', '/', ':']) && name.parse::<IpAddr>().is_err();
    let addresses = |name: &str| -> Vec<IpAddr> {
        (name, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip()).collect()
    };
    is_host(wanted) && is_host(shown) && {
        let theirs = addresses(shown);
        addresses(wanted).iter().any(|address| theirs.contains(address))
    }
}

/// Reads a table in the form of exports(5).
fn read_table(file: &str, text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut rest = text.lines().enumerate();
    while let Some((number, line)) = rest.next() {
        let mut line = line.to_owned();
        while let Some(first) = line.strip_suffix('\\') {
            let next = rest.next().map(|(_, next)| next).unwrap_or_default();
            line = format!("{first} {next}");
        }
        let mut words = words(&line).into_iter();
        let Some(path) = words.next() else { continue };
        let (mut clients, mut common) = (BTreeMap::new(), String::new());
        for word in words {
            match word.strip_prefix('-') {
                Some(options) => common = options.to_owned(),
                None => {
                    let (client, own) = word.split_once('(').unwrap_or((&word, ""));
                    let options = format!("{common},{}", own.trim_end_matches(')'));
                    let client = if client.is_empty() { "*" } else { client };
                    clients.insert(client.to_owned(), NfsExport::read_options(&options));
                }
            }
        }
        let path = if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path };
        found.push(Line { place: format!("{file}:{}", number + 1), path, clients });
    }
    found
}

/// The words of a line, without quotes and octal numbers. A comment begins a word.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '#' if word.is_none() => break,
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words.iter().map(|word| unescaped(word)).collect()
}

impl Spec for Export {
    fn target(&self) -> String {
        format!("{} in {}", self.path, self.file)
    }

    fn turn(&self) -> Option<&'static str> {
        // The program reads all files, and the folder goes with the last export.
        Some("exports")
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({ FILE: self.host.read_if_there(&self.file)? });
        if self.live {
            found[EXPORTED] = Self::described(&self.exported()?);
        }
        if let (Some(_), Some(line)) = (before, self.others()?.first()) {
            found[OTHERS] = json!(line.place);
        }
        Ok(Some(found))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let mut found = self.look(None)?;
        let mut theirs = BTreeMap::new();
        for line in self.others()? {
            theirs.extend(line.clients);
        }
        if let Some(found) = found.as_mut().filter(|_| theirs == self.clients) {
            found[FILE] = json!(self.text);
        }
        Ok(found)
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let real = place::real(&self.host, &self.file)?;
        let missing = place::missing_folder(&real).map(place::text).transpose()?;
        // The folder goes with the last export.
        let others = sharing::others::<NfsExport>(&self.own, &self.host, NfsExport::FOLDER);
        let made = others.into_iter().find_map(|(_, before)| Some(before?[MADE].as_str()?.to_owned()));
        let made = missing.map(str::to_owned).or(made);
        Ok(Some(json!({ FILE: self.host.read_if_there(&self.file)?, MADE: made })))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({ FILE: self.text });
        if self.live {
            wanted[EXPORTED] = Self::described(&self.clients);
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        if self.host.root().is_none() && !self.host.path(&self.path).is_dir() {
            return Err(format!("{} is not a folder of this host: let the export come `after` its maker", self.path));
        }
        Ok(())
    }

    fn hindered(&self) -> Result<(), String> {
        self.conflict()
    }

    fn common(&self) -> Option<&str> {
        Some(NfsExport::FOLDER)
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if self.host.read_if_there(&self.file)?.as_ref() != Some(&self.text) {
            self.host.write(&self.file, &self.text, 0o644)?;
        }
        if !self.live {
            return Ok(());
        }
        let said = self.refresh()?;
        let found = self.exported()?;
        if found == self.clients || said.is_empty() {
            return Ok(());
        }
        let missing = self.clients.iter().filter(|(client, options)| found.get(*client) != Some(options));
        let missing: Vec<&str> = missing.map(|(client, _)| client.as_str()).collect();
        Err(format!("{} is not exported to {} as desired: {said}", self.path, missing.join(", ")))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        match before.and_then(|before| before[FILE].as_str()) {
            Some(text) => self.host.write(&self.file, text, 0o644)?,
            None => self.host.remove(&self.file)?,
        }
        if let Some(first) = before.and_then(|before| before[MADE].as_str()) {
            place::remove_folders(&place::real(&self.host, &self.file)?, first);
        }
        if !self.live {
            return Ok(());
        }
        let said = self.refresh()?;
        let earlier = read_table(&self.file, &self.host.read(&self.file)?);
        let is_left = self.others()?.is_empty() && earlier.iter().all(|line| line.path != self.path);
        let left = self.exported()?;
        if is_left && !left.is_empty() {
            let clients: Vec<&str> = left.keys().map(String::as_str).collect();
            return Err(format!("{} is still exported to {}: {said}", self.path, clients.join(", ")));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "nfs_export_test.rs"]
mod tests;
