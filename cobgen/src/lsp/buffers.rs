//! The texts that an editor has open, and the model to which a file belongs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cob_depot::model_files;
use lsp_types::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::model::{self, Texts};

/// What a path keeps in an address (RFC 3986, section 3.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The open texts.
pub(super) struct Buffers {
    model: Option<PathBuf>,
    texts: Texts,
}

impl Buffers {
    pub(super) fn new(model: Option<PathBuf>) -> Self {
        Self { model, texts: BTreeMap::new() }
    }

    pub(super) fn texts(&self) -> &Texts {
        &self.texts
    }

    /// Sets the text of a file; without a text, the file on disk counts again.
    pub(super) fn set(&mut self, path: &Path, text: Option<String>) {
        match text {
            Some(text) => _ = self.texts.insert(path.to_owned(), text),
            None => _ = self.texts.remove(path),
        }
    }

    pub(super) fn text(&self, path: &Path) -> Option<String> {
        self.texts.get(path).cloned().or_else(|| fs::read_to_string(path).ok())
    }

    /// The model of a file: the given one, or the folder of the file if all YAML files in it look like parts of a model,
    /// or else the file alone.
    pub(super) fn model_of(&self, file: &Path) -> PathBuf {
        if let Some(model) = &self.model {
            return model.clone();
        }
        let folder = file.parent().unwrap_or(Path::new("."));
        let files = model_files::list(folder).unwrap_or_default();
        let is_part = |path: &PathBuf| self.text(path).is_some_and(|text| has_only_sections(&text));
        if files.len() > 1 && files.iter().all(is_part) { folder.to_owned() } else { file.to_owned() }
    }

    /// The files of a model, with their present texts.
    pub(super) fn files_of(&self, model: &Path) -> Vec<(PathBuf, String)> {
        let files = model::list_files(model, &self.texts).unwrap_or_else(|_| vec![model.to_owned()]);
        files.into_iter().filter_map(|path| Some((path.clone(), self.text(&path)?))).collect()
    }
}

/// Whether there are keys at the beginning of lines, and all of them are sections of a model.
fn has_only_sections(text: &str) -> bool {
    let sections = &model::schema()["properties"];
    let lines = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    let mut keys = lines.filter_map(|line| line.split_once(':')).map(|(key, _)| key).peekable();
    keys.peek().is_some() && keys.all(|key| sections.get(key).is_some() || key.starts_with("x-"))
}

/// The path of a file's address.
pub(super) fn path_of(uri: &Uri) -> Option<PathBuf> {
    let path = uri.as_str().strip_prefix("file://")?;
    // A host may precede the path.
    let path = &path[path.find('/')?..];
    let bytes: Vec<u8> = percent_decode_str(path).collect();
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// The address of a file.
pub(super) fn uri_of(path: &Path) -> Option<Uri> {
    let path = std::path::absolute(path).ok()?;
    format!("file://{}", percent_encode(path.as_os_str().as_bytes(), ENCODED)).parse().ok()
}
