//! The files of a model: found, read as a whole, and kept for messages.
//!
//! A model is a file, or a folder whose `*.yaml`, `*.yml` and `*.json` files are read in the order of their names.
//! Reading is limited: only regular files, at most [`MAX_FILE`] bytes each and [`MAX_MODEL`] bytes together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_depot::model_files;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::draft::Place;
use crate::model::node::Mark;

/// The largest file of a model, in bytes.
pub(crate) const MAX_FILE: u64 = 32 << 20;
/// The largest model, in bytes.
const MAX_MODEL: u64 = 64 << 20;
/// The most files of a model.
const MAX_FILES: usize = 4096;

/// Texts that count in place of files.
pub(crate) type Texts = BTreeMap<PathBuf, String>;

/// The texts of a model's files, numbered in reading order.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

/// A file.
#[derive(Debug)]
struct Source {
    path: Arc<PathBuf>,
    text: String,
    /// The start of each line, in bytes.
    lines: Vec<usize>,
}

impl Sources {
    /// Reads the file or folder `path`, with some texts in place of files; unreadable files are reported and left out.
    pub(crate) fn read(path: &Path, texts: &Texts, diagnostics: &mut Diagnostics) -> Self {
        let mut sources = Self::default();
        let mut left = MAX_MODEL;
        // A file that its editor has not saved yet is no file on disk.
        let files = if texts.contains_key(path) { vec![path.to_owned()] } else { find(path, texts, diagnostics) };
        for file in files {
            let given = texts.get(&file).filter(|text| text.len() as u64 <= MAX_FILE.min(left));
            match given.map_or_else(|| read_file(&file, left), |text| Ok(text.clone())) {
                Ok(text) => {
                    left = left.saturating_sub(text.len() as u64);
                    sources.add(file, text);
                }
                Err(fault) => diagnostics.push(*fault),
            }
        }
        sources
    }

    /// Adds a file and returns its number.
    pub(crate) fn add(&mut self, path: PathBuf, text: String) -> u32 {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        self.files.push(Source { path: Arc::new(path), text, lines });
        u32::try_from(self.files.len() - 1).expect("fewer files than MAX_FILES")
    }

    /// All files with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(self.files.iter().map(|f| f.text.as_str()))
    }

    /// The files with their texts, in reading order.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files.iter().map(|f| (f.path.as_path(), f.text.as_str()))
    }

    /// The place of a mark.
    #[must_use]
    pub fn place(&self, mark: Mark) -> Place {
        let file = self
            .files
            .get(mark.file as usize)
            .map_or_else(|| Arc::new(PathBuf::from("<model>")), |f| Arc::clone(&f.path));
        Place { file, line: mark.line, column: mark.column }
    }

    /// The folder of a marked file, in which `./x` is looked up.
    #[must_use]
    pub fn folder(&self, mark: Mark) -> PathBuf {
        self.files.get(mark.file as usize).and_then(|f| f.path.parent()).map(Path::to_path_buf).unwrap_or_default()
    }

    /// The text of a line, without its end.
    #[must_use]
    pub fn line(&self, place: &Place) -> Option<&str> {
        let source = self.files.iter().find(|f| f.path == place.file)?;
        let line = (place.line as usize).checked_sub(1)?;
        let start = *source.lines.get(line)?;
        let end = source.lines.get(line + 1).copied().unwrap_or(source.text.len());
        source.text.get(start..end).map(|l| l.trim_end_matches(['\n', '\r']))
    }
}

/// The files of a folder, and the texts that stand for files which are not there yet.
pub(crate) fn list(folder: &Path, texts: &Texts) -> std::io::Result<Vec<PathBuf>> {
    let mut files = model_files::list(folder)?;
    let is_part = |file: &&PathBuf| file.parent() == Some(folder) && model_files::is_named(file);
    files.extend(texts.keys().filter(is_part).cloned());
    files.sort();
    files.dedup();
    Ok(files)
}

/// The files that a path refers to.
fn find(path: &Path, texts: &Texts, diagnostics: &mut Diagnostics) -> Vec<PathBuf> {
    let unreadable = |e: &std::io::Error| {
        Diagnostic::error("unreadable", format!("can't read {}: {e}", path.display()))
            .help("name a model file, or a folder of `*.yaml` files; `cobgen init` makes an example")
    };
    match std::fs::metadata(path) {
        Err(e) => diagnostics.push(unreadable(&e)),
        Ok(meta) if meta.is_dir() => match list(path, texts) {
            Err(e) => diagnostics.push(unreadable(&e)),
            Ok(files) if files.is_empty() => diagnostics.push(
                Diagnostic::error("no-files", format!("the folder {} holds no model files", path.display()))
                    .help("a model's files end in .yaml, .yml or .json; `cobgen init` makes an example"),
            ),
            Ok(files) if files.len() > MAX_FILES => diagnostics.push(Diagnostic::error(
                "too-large",
                format!(
                    "the folder {} holds {} model files; at most {MAX_FILES} are read",
                    path.display(),
                    files.len()
                ),
            )),
            Ok(files) => return files,
        },
        Ok(_) => return vec![path.to_path_buf()],
    }
    Vec::new()
}

fn read_file(path: &Path, left: u64) -> Result<String, Box<Diagnostic>> {
    let fault = |code, what: String| Box::new(Diagnostic::error(code, what));
    let unreadable = |e: std::io::Error| fault("unreadable", format!("can't read {}: {e}", path.display()));
    let meta = std::fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(fault("unreadable", format!("{} is no regular file", path.display())));
    }
    let limit = MAX_FILE.min(left);
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(limit + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        let what = format!("{} is too large", path.display());
        let why = format!("a file may have {} MiB, a whole model {} MiB", MAX_FILE >> 20, MAX_MODEL >> 20);
        return Err(Box::new(Diagnostic::error("too-large", what).help(why)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = e.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&e.as_bytes()[..good]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let place = Place { file: Arc::new(path.to_path_buf()), line: number(line), column: number(column) };
        Box::new(
            Diagnostic::error("not-utf8", format!("{} is no text in UTF-8", path.display()))
                .at(place)
                .help("save the file in UTF-8; a program or an archive is no model"),
        )
    })
}
