//! The database of debconf, through its programs.
//!
//! `debconf-set-selections` makes a question that no package has made yet; `debconf-communicate` reads and changes
//! questions. Answers go through standard input and output, so that no argument has a password.
//!
//! A reader takes no lock: packages may be at work for a long time. A writer waits until other programs have released
//! the lock of the database.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::durable;
use crate::kinds::native::{Host, Ran, needs_program, run_bounded};

/// The programs, which the package debconf has.
const MAKE: &str = "debconf-set-selections";
const TALK: &str = "debconf-communicate";
/// The files that describe the database; the first that exists counts.
const DESCRIPTIONS: [&str; 2] = ["/etc/debconf.conf", "/usr/share/debconf/debconf.conf"];
/// The description that `debconf-set-selections` gives to a question without a package.
const DUMMY: &str = "Dummy template";
/// A file for debconf, in the own folder.
const TEMPLATES: &str = "templates";
/// The words of debconf about a lock that another program holds.
const LOCKED: &str = "is locked by another process";
/// The pause between two attempts to get the lock.
const PAUSE: Duration = Duration::from_millis(500);
/// The answer code of an escaped text. A smaller code: plain text; a greater code: a failure.
const ESCAPED: u32 = 1;

/// The database of a host.
#[derive(Debug)]
pub(super) struct Database<'a> {
    pub(super) host: &'a Host,
    /// The own folder of the change object.
    pub(super) own: &'a Path,
    /// The longest wait for other programs.
    pub(super) longest: Duration,
}

/// An answer of a package to a question.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) package: &'a str,
    pub(super) question: &'a str,
    pub(super) form: &'a str,
    pub(super) value: &'a str,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// The answer, or the default of the question.
    pub(super) value: String,
    /// The type. `None`: the question has no description, because a writer was killed.
    pub(super) form: Option<String>,
    /// Whether a user has seen the question, and is not asked again.
    pub(super) seen: bool,
    /// The packages that use the question.
    pub(super) owners: Vec<String>,
}

/// The description of the database.
#[derive(Debug, PartialEq, Eq)]
struct Description {
    /// The name of the database of answers.
    name: String,
    /// All files of the database.
    files: Vec<String>,
}

impl Database<'_> {
    /// Whether the programs and a database exist.
    ///
    /// # Errors
    /// The missing part, with the name of the package.
    pub(super) fn is_installed(&self) -> Result<(), String> {
        [MAKE, TALK].iter().try_for_each(|program| needs_program(program, "debconf of Debian"))?;
        self.description().map(|_| ())
    }

    fn description(&self) -> Result<Description, String> {
        for file in DESCRIPTIONS {
            if let Some(text) = self.host.read_if_there(file)? {
                return Ok(Description::read(&text));
            }
        }
        let file = self.host.path(DESCRIPTIONS[0]);
        Err(format!("{}: not found; install the package debconf there", file.display()))
    }

    /// Completes the replacement of a file whose writer was killed: debconf moves a file away before it moves the new
    /// file there, and would begin an empty database otherwise.
    pub(super) fn finish_replacements(&self) -> Result<(), String> {
        for file in self.description()?.files {
            let [path, new] = [file.clone(), format!("{file}-new")].map(|file| self.host.path(&file));
            if path.exists() {
                continue;
            }
            let failed = |error: io::Error| format!("{}: {error}", new.display());
            let writing = match OpenOptions::new().read(true).open(&new) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match writing.try_lock() {
                Ok(()) if path.exists() => {}
                Ok(()) => {
                    let moved = fs::rename(&new, &path);
                    let synced = moved.and_then(|()| path.parent().map_or(Ok(()), durable::sync_folder));
                    synced.map_err(failed)?;
                }
                // The writer is alive.
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// The questions with these names, as far as they exist.
    pub(super) fn questions<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<BTreeMap<String, Question>, String> {
        let names: Vec<&str> = names.into_iter().collect();
        let commands: Vec<String> = names
            .iter()
            .flat_map(|name| {
                let fields = ["type", "owners"].map(|field| format!("METAGET {name} {field}"));
                [format!("GET {name}"), format!("FGET {name} seen")].into_iter().chain(fields)
            })
            .collect();
        if commands.is_empty() {
            return Ok(BTreeMap::new());
        }
        let answers = self.ask(&commands)?;
        let question = |(name, answers): (&&str, &[Result<String, String>])| {
            let [value, seen, form, owners] = answers else { return None };
            let owners = owners.clone().unwrap_or_default();
            let question = Question {
                value: value.clone().ok()?,
                form: form.clone().ok().filter(|form| !form.is_empty()),
                seen: seen.as_deref() == Ok("true"),
                owners: owners.split(", ").filter(|owner| !owner.is_empty()).map(str::to_owned).collect(),
            };
            Some(((*name).to_owned(), question))
        };
        Ok(names.iter().zip(answers.chunks_exact(4)).filter_map(question).collect())
    }

    /// Whether a package has described a question. debconf asks for the description of no question without a type.
    pub(super) fn is_of_package(&self, name: &str, question: &Question) -> Result<bool, String> {
        if question.form.is_none() {
            return Ok(false);
        }
        Ok(self.ask(&[format!("METAGET {name} description")])?.iter().any(|answer| answer.as_deref() != Ok(DUMMY)))
    }

    fn ask(&self, commands: &[String]) -> Result<Vec<Result<String, String>>, String> {
        let mut command = Command::new(TALK);
        // The database under its own name, for readers only.
        command.env("DEBCONF_DB_REPLACE", self.description()?.name);
        answers(&run_in(self.host, command, &talk(commands))?, commands.len())
    }

    /// Whether the database has the dummy description of a question. A writer that was killed leaves the description
    /// without its question.
    pub(super) fn has_trace(&self, question: &str) -> Result<bool, String> {
        let begin = format!("Name: {question}\nDescription: {DUMMY}\n");
        for file in self.description()?.files {
            let text = self.host.read(&file)?;
            if text.starts_with(&begin) || text.contains(&format!("\n\n{begin}")) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes questions and sets their answers.
    pub(super) fn make(&self, answers: &[Answer<'_>]) -> Result<(), String> {
        self.complete(answers)?;
        if answers.is_empty() {
            return Ok(());
        }
        let line =
            |Answer { package, question, form, value }: &Answer<'_>| format!("{package} {question} {form} {value}");
        let all: Vec<String> = answers.iter().map(line).collect();
        self.write(&|| Command::new(MAKE), &lines(&all))?.ok().map(|_| ())
    }

    /// Makes questions of which only the description exists, because a writer was killed:
    /// `debconf-set-selections` fails at a description without a question.
    fn complete(&self, answers: &[Answer<'_>]) -> Result<(), String> {
        let file = self.own.join(TEMPLATES);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", file.display()));
            }
            Ok(()) | Err(_) => {}
        }
        let mut traces = Vec::new();
        for answer in answers {
            traces.extend(self.has_trace(answer.question)?.then_some(answer));
        }
        let found = self.questions(traces.iter().map(|answer| answer.question))?;
        for Answer { package, question, form, .. } in traces {
            if found.contains_key(*question) {
                continue;
            }
            let template = format!("Template: {question}\nType: {form}\nDescription: {DUMMY}\n");
            fs::write(&file, template).map_err(|error| format!("{}: {error}", file.display()))?;
            let path = file.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", file.display()))?;
            let loaded = self.change(package, &[format!("X_LOADTEMPLATEFILE {}", escaped(path))]);
            let removed = fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()));
            loaded.and(removed)?;
        }
        Ok(())
    }

    /// Carries out commands that change questions, on behalf of a package.
    pub(super) fn change(&self, package: &str, commands: &[String]) -> Result<(), String> {
        if commands.is_empty() {
            return Ok(());
        }
        let command = || {
            let mut command = Command::new(TALK);
            command.arg(package);
            command
        };
        let ran = self.write(&command, &talk(commands))?;
        answers(&ran, commands.len())?.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    fn write(&self, command: &dyn Fn() -> Command, input: &str) -> Result<Ran, String> {
        let limit = Instant::now() + self.longest;
        loop {
            let ran = run_in(self.host, command(), input)?;
            if !ran.err.contains(LOCKED) {
                return Ok(ran);
            }
            if Instant::now() >= limit {
                return Err(format!(
                    "another program has used debconf for all of {:?}: {}",
                    self.longest,
                    ran.complaint()
                ));
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Description {
    fn read(text: &str) -> Self {
        let pairs =
            || text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()));
        let is = |key: &'static str| move |pair: &(&str, &str)| pair.0.eq_ignore_ascii_case(key);
        let name = pairs().find(is("config")).map_or("configdb", |(_, name)| name).to_owned();
        Self { name, files: pairs().filter(is("filename")).map(|(_, file)| file.to_owned()).collect() }
    }
}

fn run_in(host: &Host, mut command: Command, input: &str) -> Result<Ran, String> {
    command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
    if let Some(root) = host.root() {
        command.env("DPKG_ROOT", root);
    }
    run_bounded(&mut command, input.as_bytes())
}

/// The input with commands. The first command asks for escaped texts.
fn talk(commands: &[String]) -> String {
    format!("CAPB escape\n{}", lines(commands))
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A text as the last word of a command.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            c if c == '\\' || c.is_whitespace() => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        plain.extend(match c {
            '\\' => chars.next().map(|c| if c == 'n' { '\n' } else { c }),
            c => Some(c),
        });
    }
    plain
}

/// The answers to commands: texts or reasons of failures.
///
/// # Errors
/// The program has ended before it has answered all commands.
fn answers(ran: &Ran, commands: usize) -> Result<Vec<Result<String, String>>, String> {
    let answer = |line: &str| {
        let (code, text) = line.split_once(' ').unwrap_or((line, ""));
        match code.parse::<u32>() {
            Ok(0) => Ok(text.to_owned()),
            Ok(ESCAPED) => Ok(unescaped(text)),
            Ok(_) | Err(_) => Err(format!("debconf: {text}")),
        }
    };
    let answers: Vec<_> = ran.out.lines().skip(1).map(answer).collect();
    if answers.len() == commands { Ok(answers) } else { Err(ran.complaint()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_escaped_text_is_a_word_and_comes_back(text in r"[ a-z\\\n\tü]{0,12}") {
            let word = escaped(&text);
            prop_assert_eq!(unescaped(&word), text);
            prop_assert!(!word.contains('\n'));
        }
    }

    #[test]
    fn a_description_names_the_database_and_its_files() {
        let text = "# x\nConfig: answers\nTemplates: t\n\nName: answers\nDriver: File\nFilename: /var/a.dat\n\n\
                    name: t\nfilename: /var/t.dat\n";
        let files = ["/var/a.dat", "/var/t.dat"].map(str::to_owned).to_vec();
        assert_eq!(Description::read(text), Description { name: "answers".to_owned(), files });
    }
}
