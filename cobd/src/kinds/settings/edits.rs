//! The kind back ends `line` and `block`: edits in files that others own.
//!
//! Other lines stay as they are, also concurrent changes and lines of other change objects. The earlier lines are in the
//! note. A restore changes only what an edit left behind: a line that a user has changed since stays.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use cob_kinds::{Block, Line, expression};
use regex::Regex;
use serde_json::{Value, json};

use super::cut::{Cut, Gone, Rest, bare};
use super::{Entry, Setting, Spec};
use crate::kinds::native::{Host, insert_line, lines};

/// The names of the file locks for edits. Edits of a file have one lock; edits of different files seldom share one.
const TURNS: [&str; 16] = [
    "edits-0", "edits-1", "edits-2", "edits-3", "edits-4", "edits-5", "edits-6", "edits-7", "edits-8", "edits-9",
    "edits-a", "edits-b", "edits-c", "edits-d", "edits-e", "edits-f",
];
/// The mode of a new file.
const MODE: u32 = 0o644;

/// The back end `line`.
#[derive(Debug)]
pub(super) struct LineSetting;

/// The back end `block`.
#[derive(Debug)]
pub(super) struct BlockSetting;

/// A file in which a part is edited.
#[derive(Debug)]
struct Edited {
    host: Host,
    path: String,
    create: bool,
    after: Option<Regex>,
    before: Option<Regex>,
}

/// The name of the file lock for edits of a file. A link has the lock of its target.
pub(super) fn turn(host: &Host, path: &str) -> &'static str {
    let path = host.path(path);
    let target = path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)));
    let mut hasher = DefaultHasher::new();
    target.unwrap_or(path).hash(&mut hasher);
    let bytes = hasher.finish().to_le_bytes();
    TURNS[usize::from(bytes[0]) % TURNS.len()]
}

#[derive(Debug)]
struct OneLine {
    file: Edited,
    line: String,
    matching: Option<Regex>,
    name: String,
}

#[derive(Debug)]
struct NoLine {
    file: Edited,
    line: Option<String>,
    matching: Option<Regex>,
    name: String,
}

#[derive(Debug)]
struct Lines {
    file: Edited,
    block: Vec<String>,
    begin: String,
    end: String,
}

impl Setting for LineSetting {
    type Content = Line;

    fn is_short(&self) -> bool {
        true
    }

    fn spec(&self, Entry { content, host, .. }: Entry<Line>) -> Result<Box<dyn Spec>, String> {
        let file = Edited::of(host, content.path, content.create, content.after, content.before)?;
        let matching = content.matching.as_deref().map(expression).transpose()?;
        let of = content.matching.unwrap_or_default();
        let line = content.line.as_deref().unwrap_or_default();
        let name = format!("{}: {line}{}{of}", file.path, if of.is_empty() { "" } else { " for " });
        Ok(match (content.absent, content.line) {
            (false, Some(line)) => Box::new(OneLine { file, line, matching, name }),
            (false, None) => return Err("content: `line` is missing".to_owned()),
            (true, line) => Box::new(NoLine { file, line, matching, name: format!("no {name}") }),
        })
    }
}

impl Setting for BlockSetting {
    type Content = Block;

    fn is_short(&self) -> bool {
        true
    }

    fn spec(&self, Entry { content, host, cob, .. }: Entry<Block>) -> Result<Box<dyn Spec>, String> {
        let file = Edited::of(host, content.path, content.create, content.after, content.before)?;
        let [begin, end] = ["begin", "end"].map(|word| format!("{} {word} cob {cob}", content.comment));
        let block = content.block.lines().map(str::to_owned).collect();
        Ok(Box::new(Lines { file, block, begin, end }))
    }
}

/// Replaces the text of a line and keeps its end.
fn renewed(line: &str, text: &str) -> String {
    format!("{text}{}", &line[bare(line).len()..])
}

/// The end of the lines of a file.
fn line_end(lines: &[String]) -> &'static str {
    if lines.first().is_some_and(|line| line.ends_with("\r\n")) { "\r" } else { "" }
}

impl Edited {
    fn turn(&self) -> &'static str {
        turn(&self.host, &self.path)
    }

    fn of(
        host: Host,
        path: String,
        create: bool,
        after: Option<String>,
        before: Option<String>,
    ) -> Result<Self, String> {
        let place = |text: Option<String>| text.as_deref().map(expression).transpose();
        Ok(Self { host, path, create, after: place(after)?, before: place(before)? })
    }

    fn text(&self) -> Result<Option<String>, String> {
        self.host.read_if_there(&self.path)
    }

    /// Where new lines go.
    fn place(&self, lines: &[String]) -> usize {
        let matches = |place: &Regex, line: &String| place.is_match(bare(line));
        let after = |place: &Regex| lines.iter().rposition(|line| matches(place, line)).map(|at| at + 1);
        let before = |place: &Regex| lines.iter().position(|line| matches(place, line));
        let found = self.after.as_ref().and_then(after).or_else(|| self.before.as_ref().and_then(before));
        found.unwrap_or(lines.len())
    }

    /// Changes the lines; `None`: they are as wanted.
    fn edit(&self, change: &dyn Fn(Vec<String>) -> Option<Vec<String>>) -> Result<(), String> {
        if !self.create && self.text()?.is_none() {
            let path = &self.path;
            return Err(format!("{path} does not exist; `create: true` makes it, or let it come `after` its maker"));
        }
        let changed = |text: &str| {
            let old: Vec<String> = lines(text).into_iter().map(str::to_owned).collect();
            change(old).map(|lines| lines.concat()).filter(|new| new != text)
        };
        self.host.edit(&self.path, MODE, &changed).map(|_| ())
    }

    /// The same for a restore. A file that was made for the edit and is empty now is removed.
    fn restore(&self, was_there: bool, change: &dyn Fn(Vec<String>) -> Option<Vec<String>>) -> Result<(), String> {
        if self.text()?.is_none() {
            return Ok(());
        }
        self.edit(change)?;
        if !was_there && self.text()?.is_some_and(|text| text.is_empty()) {
            return self.host.remove(&self.path);
        }
        Ok(())
    }
}

impl OneLine {
    /// The index of the line that counts.
    fn index(&self, lines: &[String]) -> Option<usize> {
        let counts = |line: &String| {
            let line = bare(line);
            self.matching.as_ref().map_or(line == self.line, |matching| matching.is_match(line))
        };
        lines.iter().position(counts)
    }

    fn found(&self) -> Result<Option<String>, String> {
        let lines: Vec<String> = lines(&self.file.text()?.unwrap_or_default()).into_iter().map(str::to_owned).collect();
        Ok(self.index(&lines).map(|at| bare(&lines[at]).to_owned()))
    }
}

impl Spec for OneLine {
    fn target(&self) -> String {
        self.name.clone()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(self.file.turn())
    }

    fn shared(&self) -> Option<&str> {
        Some(&self.file.path)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        Ok(self.found()?.map(Value::from))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        Ok(Some(json!({ "file": self.file.text()?.is_some(), "line": self.found()? })))
    }

    fn wanted(&self) -> Value {
        json!(self.line)
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.file.edit(&|mut lines| {
            match self.index(&lines) {
                Some(at) => lines[at] = renewed(&lines[at], &self.line),
                None => {
                    let (place, end) = (self.file.place(&lines), line_end(&lines));
                    insert_line(&mut lines, place, &format!("{}{end}", self.line));
                }
            }
            Some(lines)
        })
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let was_there = before.is_none_or(|before| before["file"] != json!(false));
        let earlier = before.and_then(|before| before["line"].as_str());
        self.file.restore(was_there, &|mut lines| {
            // A line that a user has changed since is not ours.
            let at = self.index(&lines).filter(|at| bare(&lines[*at]) == self.line)?;
            match earlier {
                Some(earlier) => lines[at] = renewed(&lines[at], earlier),
                None => drop(lines.remove(at)),
            }
            Some(lines)
        })
    }
}

impl NoLine {
    fn is_meant(&self, line: &str) -> bool {
        let line = bare(line);
        self.line.as_ref().is_some_and(|one| one == line)
            || self.matching.as_ref().is_some_and(|matching| matching.is_match(line))
    }

    fn rest(&self, line: &str) -> Rest {
        if self.is_meant(line) { Rest::Nothing } else { Rest::Whole }
    }
}

impl Spec for NoLine {
    fn target(&self) -> String {
        self.name.clone()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(self.file.turn())
    }

    fn shared(&self) -> Option<&str> {
        Some(&self.file.path)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = self.file.text()?.unwrap_or_default();
        let found: Vec<&str> = lines(&text).into_iter().filter(|line| self.is_meant(line)).map(bare).collect();
        Ok(Some(json!(found)))
    }

    /// The lines with their places.
    fn before(&self) -> Result<Option<Value>, String> {
        let text = self.file.text()?.unwrap_or_default();
        Ok(Some(json!(Cut::of(&text, &|line| self.rest(line)).gone)))
    }

    fn wanted(&self) -> Value {
        json!([])
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if self.file.text()?.is_none() {
            return Ok(());
        }
        self.file.edit(&|mut lines| {
            lines.retain(|line| !self.is_meant(line));
            Some(lines)
        })
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let gone: Vec<Gone> = before.and_then(|gone| serde_json::from_value(gone.clone()).ok()).unwrap_or_default();
        let earlier = Cut { gone, ..Cut::default() };
        let is_there = |line: &str, gone: &str| bare(line) == bare(gone);
        self.file.restore(true, &|lines| Some(vec![earlier.put_back(&lines.concat(), &is_there, &|_, _| None)]))
    }
}

impl Lines {
    /// The lines of the block between its markers; more than one block, or an open one, counts as broken.
    fn found(&self, lines: &[String]) -> Option<Value> {
        let marks: Vec<usize> = (0..lines.len()).filter(|at| self.is_mark(&lines[*at])).collect();
        match marks.as_slice() {
            [] => None,
            [begin, end] if bare(&lines[*begin]) == self.begin && bare(&lines[*end]) == self.end => {
                Some(json!(lines[begin + 1..*end].iter().map(|line| bare(line)).collect::<Vec<_>>()))
            }
            _ => Some(json!({ "broken markers": marks.iter().map(|at| bare(&lines[*at])).collect::<Vec<_>>() })),
        }
    }

    fn is_mark(&self, line: &str) -> bool {
        [&self.begin, &self.end].into_iter().any(|mark| bare(line) == mark)
    }

    /// The lines without the block, and the place where it began. Lines between broken markers stay.
    fn without(&self, lines: Vec<String>) -> (Vec<String>, Option<usize>) {
        let first = lines.iter().position(|line| self.is_mark(line));
        let is_whole = self.found(&lines).is_some_and(|found| found.is_array());
        let mut inside = false;
        let kept = lines.into_iter().filter(|line| {
            let is_mark = self.is_mark(line);
            if is_mark {
                inside = is_whole && bare(line) == self.begin;
            }
            !is_mark && !inside
        });
        (kept.collect(), first)
    }
}

impl Spec for Lines {
    fn target(&self) -> String {
        format!("{}: {}", self.file.path, self.begin)
    }

    fn turn(&self) -> Option<&'static str> {
        Some(self.file.turn())
    }

    fn shared(&self) -> Option<&str> {
        Some(&self.file.path)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = self.file.text()?.unwrap_or_default();
        Ok(self.found(&lines(&text).into_iter().map(str::to_owned).collect::<Vec<_>>()))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        Ok(Some(json!({ "file": self.file.text()?.is_some() })))
    }

    fn wanted(&self) -> Value {
        json!(self.block)
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.file.edit(&|lines| {
            let end = line_end(&lines);
            let (mut lines, place) = self.without(lines);
            let at = place.unwrap_or_else(|| self.file.place(&lines));
            let block = [&self.begin].into_iter().chain(&self.block).chain([&self.end]);
            for (line, at) in block.zip(at..) {
                insert_line(&mut lines, at, &format!("{line}{end}"));
            }
            Some(lines)
        })
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let was_there = before.is_none_or(|before| before["file"] != json!(false));
        self.file.restore(was_there, &|lines| Some(self.without(lines).0))
    }
}

#[cfg(test)]
#[path = "edits_test.rs"]
mod tests;
