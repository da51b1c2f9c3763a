//! The file of a certificate, and the command after a renewal.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::super::{earlier, place};
use super::key::KeyFile;
use crate::durable::{self, Sync};
use crate::kinds::native::{Host, NOTE, inspect, run_bounded};
use crate::kinds::service::words_as;

/// The earlier private key, in the own folder.
pub(super) const EARLIER_KEY: &str = "earlier-key";
/// The earlier certificate, in the own folder.
pub(super) const EARLIER: &str = "earlier-certificate";
/// In the own folder while the command after a renewal has not run.
pub(super) const RENEWED: &str = "renewed";

/// The file.
#[derive(Debug)]
pub(super) struct CertificateFile {
    pub(super) host: Host,
    pub(super) file: String,
    pub(super) on_renewal: Option<cob_types::Command>,
    pub(super) own: PathBuf,
}

impl CertificateFile {
    pub(super) fn path(&self) -> Result<PathBuf, String> {
        place::real(&self.host, &self.file)
    }

    /// The text in the file; otherwise, what is at its place.
    pub(super) fn read(&self) -> Result<Result<String, &'static str>, String> {
        match inspect(&self.path()?)? {
            Some(meta) if meta.is_file() => self.host.read(&self.file).map(Ok),
            Some(meta) => Ok(Err(if meta.is_symlink() { "a link" } else { "no regular file" })),
            None => Ok(Err("not there")),
        }
    }

    /// Puts a certificate into the file.
    pub(super) fn put(&self, text: &str) -> Result<(), String> {
        let path = self.path()?;
        let found = inspect(&path)?;
        if found.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(format!("{}: a folder is at the place of the certificate: move it away", path.display()));
        }
        if found.is_some() && self.on_renewal.is_some() {
            let noted = durable::write_file(&self.own, RENEWED, 0o600, b"", Sync::Now);
            noted.map_err(|error| format!("{}: {error}", self.own.join(RENEWED).display()))?;
        }
        place::make_folders(&path)?;
        let (folder, name) = earlier::parts(&path)?;
        let written = durable::write_file(folder, name, 0o644, text.as_bytes(), Sync::Now);
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Whether the command after a renewal still has to run.
    pub(super) fn has_to_tell(&self) -> bool {
        self.on_renewal.is_some() && self.own.join(RENEWED).exists()
    }

    /// Runs the command after a renewal.
    pub(super) fn tell(&self) -> Result<(), String> {
        let Some(command) = self.on_renewal.as_ref().filter(|_| self.has_to_tell()) else { return Ok(()) };
        let words = words_as(None, command);
        let ran = run_bounded(Command::new(&words[0]).args(&words[1..]), b"")?;
        ran.ok().map_err(|why| format!("the certificate was renewed, and `on_renewal` has failed: {why}"))?;
        place::remove_all(&self.own.join(RENEWED))
    }

    /// What is at the places of the certificate and of its key, for the note. `None`: the files are ours already.
    pub(super) fn before(&self, key: Option<&KeyFile>) -> Result<Option<Value>, String> {
        if self.own.join(NOTE).exists() {
            return Ok(None);
        }
        let key = key.map(|key| earlier::note(&key.path()?, &self.own, EARLIER_KEY)).transpose()?;
        let certificate = earlier::note(&self.path()?, &self.own, EARLIER)?;
        Ok(Some(json!({ "key": key, "certificate": certificate })))
    }

    /// Restores the earlier files of both places.
    pub(super) fn restore(&self, key: Option<&KeyFile>, before: Option<&Value>) -> Result<(), String> {
        let nothing = Value::Null;
        let before = before.unwrap_or(&nothing);
        earlier::restore(&self.host, &self.file, &self.own, EARLIER, &before["certificate"])?;
        if let Some(key) = key {
            earlier::restore(&self.host, &key.file, &self.own, EARLIER_KEY, &before["key"])?;
        }
        place::remove_all(&self.own.join(RENEWED))
    }
}
