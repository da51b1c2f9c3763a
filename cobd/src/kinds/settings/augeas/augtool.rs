//! Runs of `augtool` on a text: Augeas neither reads nor writes the file of the host.
//!
//! The text is a file in a folder of its own, inside of the change object's folder. The folder stands for the root of a
//! host. Augeas loads only the module of the lens.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::place;
use super::NodeValue;
use crate::kinds::native::{Host, Ran, bytes_of, needs_program, run_bounded, text_of};

pub(super) const PROGRAM: &str = "augtool";
const PACKAGE: &str = "augeas-tools";
/// The folder of the text.
const FOLDER: &str = "augeas";
/// The text in the folder, and its tree.
const TEXT: &str = "/text";
const TREE: &str = "/files/text";
/// A command whose output divides the outputs of other commands.
const MARK: &str = "match /augeas/version";
/// The beginning of this output.
const MARKED: &str = "/augeas/version = ";
/// The longest reason of Augeas in a message.
const REASON: usize = 400;

/// The program, for texts of a file.
#[derive(Debug)]
pub(super) struct Augtool {
    /// The path of the file on its host.
    path: String,
    /// The change object's own folder.
    own: PathBuf,
    /// Earlier runs: each takes some tenths of a second.
    runs: RefCell<BTreeMap<Input, Output>>,
}

/// The input of a run: the lens, the text, and the commands. `None`: there is no file.
type Input = (String, Option<String>, Vec<String>);

/// The output of a run: the output of each command, and the text afterwards.
type Output = (Vec<String>, Option<String>);

/// A node that an expression finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The path in the tree of the file.
    pub(super) path: String,
    pub(super) value: NodeValue,
    /// The nodes below, each with the rest of its path.
    pub(super) below: Vec<(String, NodeValue)>,
}

impl Augtool {
    pub(super) fn new(path: &str, own: PathBuf) -> Self {
        Self { path: path.to_owned(), own, runs: RefCell::default() }
    }

    /// Whether the program is there.
    pub(super) fn is_there() -> Result<(), String> {
        needs_program(PROGRAM, PACKAGE)
    }

    fn folder(&self) -> PathBuf {
        self.own.join(FOLDER)
    }

    /// Removes the folder of a run that was killed.
    pub(super) fn clear(&self) -> Result<(), String> {
        place::remove_all(&self.folder())
    }

    /// The nodes that each expression finds in a text.
    pub(super) fn find(&self, lens: &str, text: &str, expressions: &[String]) -> Result<Vec<Vec<Found>>, String> {
        if expressions.is_empty() {
            return Ok(Vec::new());
        }
        let commands: Vec<String> = expressions.iter().map(|one| format!("print {}", node(one))).collect();
        let (sections, _) = self.run(lens, text, &commands)?;
        sections.iter().zip(expressions).map(|(section, expression)| self.found(section, expression)).collect()
    }

    /// The path of the first node that each expression finds.
    pub(super) fn first(&self, lens: &str, text: &str, expressions: &[String]) -> Result<Vec<Option<String>>, String> {
        if expressions.is_empty() {
            return Ok(Vec::new());
        }
        let commands: Vec<String> = expressions.iter().map(|one| format!("match {}", node(one))).collect();
        let (sections, _) = self.run(lens, text, &commands)?;
        let path = |section: &String| {
            let path = section.lines().next()?.split(" = ").next()?;
            inside(path).map(str::to_owned)
        };
        Ok(sections.iter().map(path).collect())
    }

    /// The text after commands that change its tree. A tree that the lens can't write is an error.
    pub(super) fn edit(&self, lens: &str, text: &str, commands: &[String]) -> Result<String, String> {
        if commands.is_empty() {
            return Ok(text.to_owned());
        }
        let commands: Vec<String> = commands.iter().cloned().chain(["save".to_owned()]).collect();
        let (_, text) = self.run(lens, text, &commands)?;
        Ok(text.unwrap_or_default())
    }

    /// The lens that Augeas uses for the path of the file: only this run loads the modules of all lenses.
    pub(super) fn default_lens(&self, text: &str) -> Result<String, String> {
        let ran = self.in_folder(&self.path, Some(text), &mut |root| augtool(root, &[], b"print /augeas/files\n"))?;
        let lens =
            |(path, value): (String, NodeValue)| Some(value.filter(|_| path.ends_with("/lens"))?.replace('@', ""));
        match ran.out.lines().filter_map(read_node).find_map(lens) {
            Some(module) => Ok(full_lens(&module)),
            None => Err(format!(
                "{}: Augeas has no lens for a file with this path; name a lens, for example `lens: Simplevars` (`ls \
                 /usr/share/augeas/lenses/dist` shows all)",
                self.path
            )),
        }
    }

    /// The nodes in the output of `print`: each node that was found, followed by the nodes below it.
    fn found(&self, section: &str, expression: &str) -> Result<Vec<Found>, String> {
        let mut all: Vec<Found> = Vec::new();
        for (path, value) in section.lines().filter_map(read_node) {
            let Some(path) = inside(&path).map(str::to_owned) else {
                return Err(format!("content: the path {expression:?} leads to {path}, out of {}", self.path));
            };
            let below = |one: &Found| Some(path.strip_prefix(&one.path)?.strip_prefix('/')?.to_owned());
            match all.last_mut().and_then(|last| below(last).map(|rest| (last, rest))) {
                // A node that is listed again was found itself.
                Some((last, rest)) if !last.below.iter().any(|(one, _)| *one == rest) => last.below.push((rest, value)),
                Some(_) | None => all.push(Found { path, value, below: Vec::new() }),
            }
        }
        Ok(all)
    }

    /// An empty file is a missing file, because many lenses take no empty text.
    fn run(&self, lens: &str, text: &str, commands: &[String]) -> Result<Output, String> {
        let text = Some(text.to_owned()).filter(|text| !text.is_empty());
        let input = (lens.to_owned(), text, commands.to_vec());
        if let Some(output) = self.runs.borrow().get(&input) {
            return Ok(output.clone());
        }
        // A line end would begin another command.
        if let Some(command) = commands.iter().find(|command| command.contains(char::is_control)) {
            return Err(format!("content: {command:?} has control characters"));
        }
        let mut script = format!(
            "set /augeas/load/Cob/lens {lens}\nset /augeas/load/Cob/incl {TEXT}\nload\n\
             print /augeas//error\n{MARK}\n"
        );
        for command in commands {
            script.push_str(&format!("{command}\n{MARK}\n"));
        }
        script.push_str("print /augeas//error\n");
        let output = self.in_folder(TEXT, input.1.as_deref(), &mut |root| {
            let ran = augtool(root, &["--noautoload", "--noload"], &bytes_of(&script))?;
            self.outputs(lens, ran, commands.len()).and_then(|sections| {
                let text = Host::below(Some(root))?.read_if_there(TEXT)?;
                Ok((sections, text))
            })
        })?;
        self.runs.borrow_mut().insert(input, output.clone());
        Ok(output)
    }

    /// Runs something with a folder that has the text as a file with this path.
    fn in_folder<T>(
        &self,
        path: &str,
        text: Option<&str>,
        run: &mut dyn FnMut(&Path) -> Result<T, String>,
    ) -> Result<T, String> {
        self.clear()?;
        let (root, file) = (self.folder(), self.folder().join(path.trim_start_matches('/')));
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(file.parent().unwrap_or(&root))
            .and_then(|()| text.map_or(Ok(()), |text| fs::write(&file, bytes_of(text))));
        let ran = made.map_err(|error| format!("{}: {error}", file.display())).and_then(|()| run(&root));
        self.clear()?;
        ran
    }

    /// The output of each command.
    fn outputs(&self, lens: &str, ran: Ran, count: usize) -> Result<Vec<String>, String> {
        let mut sections = vec![String::new()];
        for line in ran.out.lines() {
            match line.starts_with(MARKED) {
                true => sections.push(String::new()),
                false => {
                    let section = sections.last_mut().expect("the first section is there");
                    section.push_str(line);
                    section.push('\n');
                }
            }
        }
        for section in [sections.first(), sections.last()].into_iter().flatten() {
            self.error_in(lens, section)?;
        }
        if ran.code != Some(0) {
            let said: Vec<&str> = ran.err.lines().map(|line| line.trim_start_matches("error: ").trim()).collect();
            return Err(format!(
                "{}: {PROGRAM} can't carry out the content: {}",
                self.path,
                shortened(&said.join("; "))
            ));
        }
        if sections.len() != count + 2 {
            return Err(format!("{}: the output of {PROGRAM} is too long, or not as expected", self.path));
        }
        sections.remove(0);
        sections.pop();
        Ok(sections)
    }

    /// The error that Augeas has put into its tree.
    fn error_in(&self, lens: &str, section: &str) -> Result<(), String> {
        let nodes: Vec<(String, NodeValue)> = section.lines().filter_map(read_node).collect();
        let value =
            |end: &str| nodes.iter().find(|(path, _)| path.ends_with(end)).and_then(|(_, value)| value.as_deref());
        let Some(what) = value("/error") else { return Ok(()) };
        let reason = value("/error/message").unwrap_or(what).replace(&format!("{TREE}/"), "");
        let (path, reason) = (&self.path, shortened(&reason));
        Err(match (what, value("/error/line")) {
            ("put_failed", _) => format!("{path} stays as it is: the lens {lens} can't write the values: {reason}"),
            (_, Some(line)) => format!("{path}:{line}: the lens {lens} can't read the file: {reason}"),
            (_, None) => format!("{path}: the lens {lens} can't be used: {reason}"),
        })
    }
}

/// A lens with its module.
pub(super) fn full_lens(lens: &str) -> String {
    if lens.contains('.') { lens.to_owned() } else { format!("{lens}.lns") }
}

/// The node at a path in the tree of the file, as an argument of a command.
pub(super) fn node(path: &str) -> String {
    format!("{TREE}/{path}")
}

/// A value as an argument of a command.
pub(super) fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\t', "\\t").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

fn augtool(root: &Path, options: &[&str], script: &[u8]) -> Result<Ran, String> {
    let mut command = Command::new(PROGRAM);
    command.args(options).arg("--root").arg(root).env("LC_ALL", "C.UTF-8");
    run_bounded(&mut command, script)
}

/// The path in the tree of the file.
fn inside(path: &str) -> Option<&str> {
    path.strip_prefix(TREE)?.strip_prefix('/')
}

fn shortened(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= REASON { text } else { format!("{} …", text.chars().take(REASON).collect::<String>()) }
}

/// A line of `print`: a path, and a value in quotes with escapes.
fn read_node(line: &str) -> Option<(String, NodeValue)> {
    if !line.starts_with('/') {
        return None;
    }
    let Some((path, value)) = line.split_once(" = \"") else { return Some((line.to_owned(), None)) };
    let (mut bytes, mut rest) = (Vec::new(), value.strip_suffix('"')?.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        bytes.push(match escape {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            b'0'..=b'3' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let octal = format!("{}{}", char::from(*escape), std::str::from_utf8(digits).ok()?);
                u8::from_str_radix(&octal, 8).ok()?
            }
            other => *other,
        });
    }
    Some((path.to_owned(), Some(text_of(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_output_is_read() {
        let node = |path: &str, value: Option<&str>| Some((path.to_owned(), value.map(str::to_owned)));
        for (line, read) in [
            ("/files/text/1", node("/files/text/1", None)),
            (r#"/files/text/a = "x \"y\" = \\ \n\t""#, node("/files/text/a", Some("x \"y\" = \\ \n\t"))),
            (r#"/files/text/a = "J\303\274rgen""#, node("/files/text/a", Some("Jürgen"))),
            ("  (no matches)", None),
        ] {
            assert_eq!(read_node(line), read, "{line}");
        }
        let (_, value) = read_node(r#"/files/text/a = "\374""#).expect("a node");
        assert_eq!(bytes_of(&value.expect("a value")).as_ref(), b"\xFC", "a byte that is no character stays");
    }

    #[test]
    fn a_value_is_a_single_argument() {
        assert_eq!(quoted("a\"\nrm /files\\"), r#""a\"\nrm /files\\""#);
    }

    #[test]
    fn nodes_inside_of_found_nodes_are_found_themselves() {
        let told =
            "/files/text/1\n/files/text/1/a = \"x\"\n/files/text/1/a/b\n/files/text/1/a = \"x\"\n/files/text/1/a/b\n";
        let found = Augtool::new("/etc/x", PathBuf::new()).found(told, "*").expect("inside");
        let paths: Vec<(&str, usize)> = found.iter().map(|one| (one.path.as_str(), one.below.len())).collect();
        assert_eq!(paths, [("1", 2), ("1/a", 1)]);
    }
}
