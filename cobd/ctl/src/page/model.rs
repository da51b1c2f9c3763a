//! The model that the page edits: its files, and the generator that checks and publishes them.
//!
//! The generator is this program under its other name, so that the page has the checks of `cobgen` and no others. An open
//! editor speaks to a `cobgen lsp` of its own, which ends with the editor's stream.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use cob_depot::model_files;
use cob_types::canonical;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The largest file of a model that the page edits, in bytes.
pub(crate) const LARGEST: usize = 4 << 20;
/// The longest name of a new file, in bytes.
const LONGEST: usize = 100;
/// How many editors may be open at the same time.
const EDITORS: usize = 8;
/// The longest header of a message of the Language Server Protocol, in bytes.
const HEADER: u64 = 1024;
/// The characters of a path that stay in an address (RFC 3986, section 3.3).
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The program itself, also while a new version replaces its file.
const THIS: &str = "/proc/self/exe";

/// A model on the disk of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// The file or folder.
    path: PathBuf,
    /// The depot that gets its generations.
    depot: Option<PathBuf>,
    editors: Arc<Mutex<Editors>>,
    /// Requests write files one after the other.
    writing: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Editors {
    last: u64,
    open: BTreeMap<u64, Arc<tokio::sync::Mutex<ChildStdin>>>,
}

/// The model, for the browser.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
pub(crate) struct Files {
    /// The file or folder.
    path: String,
    /// The files, by name.
    files: Vec<File>,
    /// The address of the folder, with a `/` at the end; absent: the model is a single file.
    folder: Option<String>,
    /// Whether it can be published: there is a depot.
    depot: bool,
}

/// A file of the model.
#[derive(Debug, Serialize)]
struct File {
    name: String,
    /// Its address in the Language Server Protocol.
    uri: String,
}

/// The text of a file.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Text {
    /// The text.
    pub text: String,
    /// The hash of the bytes: a later change names it.
    pub hash: String,
}

/// A change of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// The file.
    pub name: String,
    /// Its new text.
    pub text: String,
    /// The hash of the text that was edited; absent: the file is new.
    pub base: Option<String>,
}

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The model has no file of this name.
    #[error("the model has no file {0:?}")]
    Unknown(String),
    /// The file is not as the editor read it.
    #[error("{0} has changed on the disk since the editor read it")]
    Changed(String),
    /// A new file has the name of another one.
    #[error("the model has a file {0} already")]
    Exists(String),
    /// A new file can't have this name.
    #[error(
        "{0:?} is not the name of a file of a model: letters, digits, `_`, `-` and `.`, first a letter or a digit, with the \
         ending .yaml, .yml or .json"
    )]
    Name(String),
    /// The model is no folder.
    #[error("the model is a single file: a folder can have several")]
    NoFolder,
    /// The file is no text, or too large.
    #[error("{0} is not a text of at most 4 MiB")]
    NoText(String),
    /// The disk refuses.
    #[error("{0}: {1}")]
    Disk(String, io::Error),
}

impl Model {
    /// The model of a file or folder.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn open(path: &Path, depot: Option<&Path>) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let depot = depot.map(std::path::absolute).transpose()?;
        Ok(Self { path, depot, editors: Arc::default(), writing: Arc::default() })
    }

    /// The files of the model.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub(crate) fn files(&self) -> io::Result<Files> {
        let file = |path: &Path| {
            let name = path.file_name()?.to_str()?.to_owned();
            Some(File { name, uri: format!("file://{}", percent_encode(path.to_str()?.as_bytes(), KEPT)) })
        };
        let files = self.paths()?.iter().filter_map(|path| file(path)).collect();
        let folder = self.path.to_str().filter(|_| self.path.is_dir());
        let folder = folder.map(|path| format!("file://{}/", percent_encode(path.as_bytes(), KEPT)));
        Ok(Files { path: self.path.display().to_string(), files, folder, depot: self.depot.is_some() })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// See [`Fault`].
    pub(crate) fn read(&self, name: &str) -> Result<Text, Fault> {
        self.text_of(&self.path_of(name)?, name)
    }

    /// Writes a file as a whole, or makes a new one, and returns its new hash. The change of another editor is never
    /// overwritten.
    ///
    /// # Errors
    /// See [`Fault`].
    pub(crate) fn write(&self, change: &Change) -> Result<String, Fault> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &change.name;
        let disk = |error| Fault::Disk(name.clone(), error);
        match &change.base {
            Some(base) => {
                let path = self.path_of(name)?;
                if self.text_of(&path, name)?.hash != *base {
                    return Err(Fault::Changed(name.clone()));
                }
                model_files::replace(&path, &change.text).map_err(disk)?;
            }
            None => match model_files::create(&self.new_path(name)?, &change.text) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(Fault::Exists(name.clone())),
                made => made.map_err(disk)?,
            },
        }
        Ok(hash(change.text.as_bytes()))
    }

    /// The path of a new file: directly in the folder of the model.
    fn new_path(&self, name: &str) -> Result<PathBuf, Fault> {
        if !self.path.is_dir() {
            return Err(Fault::NoFolder);
        }
        let is_sign = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts || name.len() > LONGEST || !name.chars().all(is_sign) || !model_files::is_named(Path::new(name)) {
            return Err(Fault::Name(name.to_owned()));
        }
        Ok(self.path.join(name))
    }

    fn text_of(&self, path: &Path, name: &str) -> Result<Text, Fault> {
        let disk = |error| Fault::Disk(name.to_owned(), error);
        let file = std::fs::File::open(path).map_err(disk)?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, LARGEST as u64 + 1), &mut bytes).map_err(disk)?;
        let hash = hash(&bytes);
        match String::from_utf8(bytes) {
            Ok(text) if text.len() <= LARGEST => Ok(Text { text, hash }),
            Ok(_) | Err(_) => Err(Fault::NoText(name.to_owned())),
        }
    }

    /// The path of a file that the model has.
    fn path_of(&self, name: &str) -> Result<PathBuf, Fault> {
        let paths = self.paths().map_err(|error| Fault::Disk(name.to_owned(), error))?;
        let found = paths.into_iter().find(|path| path.file_name().is_some_and(|file| file == name));
        found.ok_or_else(|| Fault::Unknown(name.to_owned()))
    }

    /// The files that the generator reads.
    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        if !self.path.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        model_files::list(&self.path)
    }

    /// The words of a command of the generator about this model. Absent: there is no depot.
    pub(crate) fn words(&self, words: &[String]) -> Option<Vec<String>> {
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let end = ["--depot".to_owned(), text(self.depot.as_ref()?)?, "--".to_owned(), text(&self.path)?];
        Some(words.iter().cloned().chain(end).collect())
    }

    /// Starts a language server for an editor. Absent: too many editors are open.
    ///
    /// # Errors
    /// If it can't be started.
    pub(crate) fn editor(&self) -> io::Result<Option<Editor>> {
        let mut editors = self.editors.lock().unwrap_or_else(PoisonError::into_inner);
        if editors.open.len() >= EDITORS {
            return Ok(None);
        }
        let mut command = generator();
        command.arg("lsp");
        if let Some(depot) = &self.depot {
            command.arg("--depot").arg(depot);
        }
        let mut server = command
            .arg("--")
            .arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (server.stdin.take(), server.stdout.take()) else { return Ok(None) };
        editors.last += 1;
        let id = editors.last;
        editors.open.insert(id, Arc::new(tokio::sync::Mutex::new(stdin)));
        Ok(Some(Editor {
            id,
            said: false,
            stdout: BufReader::new(stdout),
            editors: Arc::clone(&self.editors),
            _server: server,
        }))
    }

    /// Passes a message of an editor to its language server. False: the editor has ended.
    pub(crate) async fn tell(&self, editor: u64, message: &[u8]) -> bool {
        let stdin = {
            let editors = self.editors.lock().unwrap_or_else(PoisonError::into_inner);
            editors.open.get(&editor).map(Arc::clone)
        };
        let Some(stdin) = stdin else { return false };
        let mut framed = format!("Content-Length: {}\r\n\r\n", message.len()).into_bytes();
        framed.extend_from_slice(message);
        let mut stdin = stdin.lock().await;
        stdin.write_all(&framed).await.is_ok() && stdin.flush().await.is_ok()
    }
}

/// An open editor: the messages of its language server. The server ends with it.
pub(crate) struct Editor {
    id: u64,
    said: bool,
    stdout: BufReader<ChildStdout>,
    editors: Arc<Mutex<Editors>>,
    _server: Child,
}

impl Editor {
    /// The next line for the browser: the number of the editor first, then the messages. Absent: the server has ended.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        let mut line = if std::mem::replace(&mut self.said, true) {
            let message = self.message().await.ok()??;
            serde_json::to_vec(&message).ok()?
        } else {
            format!("{{\"editor\":{}}}", self.id).into_bytes()
        };
        line.push(b'\n');
        Some(line)
    }

    async fn message(&mut self) -> io::Result<Option<Value>> {
        let mut length = None;
        loop {
            let mut header = String::new();
            if (&mut self.stdout).take(HEADER).read_line(&mut header).await? == 0 {
                return Ok(None);
            }
            match header.trim_end() {
                "" => break,
                header => {
                    let value = header.strip_prefix("Content-Length: ").and_then(|value| value.parse::<usize>().ok());
                    length = value.filter(|length| *length <= 4 * LARGEST).or(length);
                }
            }
        }
        let mut body = vec![0; length.ok_or_else(|| io::Error::other("a message without a length"))?];
        self.stdout.read_exact(&mut body).await?;
        Ok(Some(serde_json::from_slice(&body)?))
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.editors.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&self.id);
    }
}

/// Runs the generator with these words.
///
/// # Errors
/// If it can't be started.
pub(crate) async fn generate(words: &[String]) -> io::Result<Output> {
    generator().args(words).stdin(Stdio::null()).kill_on_drop(true).output().await
}

fn generator() -> Command {
    let mut command = std::process::Command::new(THIS);
    std::os::unix::process::CommandExt::arg0(&mut command, "cobgen");
    command.into()
}

fn hash(bytes: &[u8]) -> String {
    canonical::blob_hash(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn model() -> (tempfile::TempDir, Model) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("b.yaml"), "b: 1\n").expect("a file");
        std::fs::write(folder.path().join("a b.yml"), "a: 1\n").expect("a file");
        for other in ["notes.txt", ".hidden.yaml"] {
            std::fs::write(folder.path().join(other), "no model").expect("a file");
        }
        let model = Model::open(folder.path(), None).expect("a model");
        (folder, model)
    }

    #[test]
    fn a_folder_has_its_model_files() {
        let (_folder, model) = model();
        let files = model.files().expect("files");
        let names: Vec<&str> = files.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a b.yml", "b.yaml"]);
        assert!(files.files[0].uri.starts_with("file:///") && files.files[0].uri.ends_with("/a%20b.yml"));
        assert!(!files.depot && files.folder.is_some_and(|folder| files.files[0].uri == format!("{folder}a%20b.yml")));
    }

    #[test]
    fn only_files_of_the_model_are_read() {
        let (folder, model) = model();
        assert_eq!(model.read("b.yaml").expect("a text").text, "b: 1\n");
        for other in ["notes.txt", "../b.yaml", "", ".", "/etc/passwd"] {
            assert!(matches!(model.read(other), Err(Fault::Unknown(_))), "{other}");
        }
        std::fs::write(folder.path().join("c.yaml"), [0xff, 0xfe]).expect("a file");
        assert!(matches!(model.read("c.yaml"), Err(Fault::NoText(_))));
        std::fs::write(folder.path().join("c.yaml"), vec![b' '; LARGEST + 1]).expect("a file");
        assert!(matches!(model.read("c.yaml"), Err(Fault::NoText(_))));
    }

    #[test]
    fn the_change_of_another_editor_is_kept() {
        let (folder, model) = model();
        let path = folder.path().join("b.yaml");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("a mode");
        let base = model.read("b.yaml").expect("a text").hash;
        let change =
            |base: &str, text: &str| Change { name: "b.yaml".into(), text: text.into(), base: Some(base.into()) };
        let next = model.write(&change(&base, "b: 2\n")).expect("written");
        assert_eq!(model.read("b.yaml").expect("a text"), Text { text: "b: 2\n".into(), hash: next.clone() });
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o640);
        assert!(matches!(model.write(&change(&base, "b: 3\n")), Err(Fault::Changed(_))));
        std::fs::write(&path, "b: 4\n").expect("a file");
        assert!(matches!(model.write(&change(&next, "b: 3\n")), Err(Fault::Changed(_))));
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "b: 4\n");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 4, "no other file is left");
    }

    #[test]
    fn a_link_stays_a_link() {
        let (folder, model) = model();
        std::fs::rename(folder.path().join("b.yaml"), folder.path().join("target")).expect("renamed");
        symlink("target", folder.path().join("b.yaml")).expect("a link");
        let base = model.read("b.yaml").expect("a text").hash;
        model.write(&Change { name: "b.yaml".into(), text: "b: 2\n".into(), base: Some(base) }).expect("written");
        assert!(folder.path().join("b.yaml").is_symlink());
        assert_eq!(std::fs::read_to_string(folder.path().join("target")).expect("a file"), "b: 2\n");
    }

    #[test]
    fn a_new_file_is_in_the_folder_of_the_model_and_replaces_nothing() {
        let (folder, model) = model();
        let new = |name: &str| model.write(&Change { name: name.into(), text: "c: 1\n".into(), base: None });
        let hash = new("c.yaml").expect("written");
        assert_eq!(model.read("c.yaml").expect("a text"), Text { text: "c: 1\n".into(), hash });
        let outside = folder.path().parent().expect("a folder").join("outside.yaml");
        symlink(&outside, folder.path().join("link.yaml")).expect("a link");
        for name in ["c.yaml", "b.yaml", "link.yaml"] {
            assert!(matches!(new(name), Err(Fault::Exists(_))), "{name}");
        }
        assert_eq!(model.read("b.yaml").expect("a text").text, "b: 1\n");
        let long = format!("{}.yaml", "x".repeat(LONGEST));
        let names = [
            "",
            ".",
            "..",
            ".yaml",
            ".x.yaml",
            "../x.yaml",
            "/tmp/x.yaml",
            "a/x.yaml",
            "a\\x.yaml",
            "x.txt",
            "x",
            "-x.yaml",
            "a\0.yaml",
            "a\n.yaml",
            "ä.yaml",
            "x.yaml/",
            "x.YAML",
            &long,
        ];
        for name in names {
            assert!(matches!(new(name), Err(Fault::Name(_))), "{name:?}");
        }
        assert!(!outside.exists());
        let single = Model::open(&folder.path().join("b.yaml"), None).expect("a model");
        let change = Change { name: "d.yaml".into(), text: String::new(), base: None };
        assert!(matches!(single.write(&change), Err(Fault::NoFolder)));
        assert!(single.files().expect("files").folder.is_none());
    }

    #[test]
    fn the_model_is_never_an_option() {
        let folder = tempfile::tempdir().expect("a folder");
        let model = Model::open(folder.path(), Some(Path::new("/depot"))).expect("a model");
        let words = model.words(&["generate".to_owned()]).expect("words");
        let path = folder.path().canonicalize().expect("a path");
        assert_eq!(words, ["generate", "--depot", "/depot", "--", path.to_str().expect("a text")]);
    }
}
