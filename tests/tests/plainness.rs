//! Plain English: pronouns that stand for a noun stay rare in comments, documentation and messages.
//!
//! A reader at night, whose first language is not English, has to understand every sentence at the first reading. A
//! sentence with a noun as its subject is easier than a sentence with *who*, *those* or *nobody*. The limits are shares of
//! all words; good English decides, not the number. Other projects have 0.5 % in comments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Words that stand for a noun, and for which English has another word.
const STAND_INS: [&str; 24] = [
    "who",
    "whom",
    "whoever",
    "what",
    "whatever",
    "those",
    "them",
    "one",
    "ones",
    "none",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "something",
    "anything",
    "everything",
    "nothing",
    "he",
    "him",
    "his",
    "such",
    "someone",
    "anyone",
];

/// At most so many of 1,000 words.
const COMMENTS: usize = 10;
const DOCUMENTS: usize = 10;
const MESSAGES: usize = 5;
const NAMES: usize = 5;
/// So many of the worst sentences are named.
const SHOWN: usize = 20;

/// A sentence and its file.
struct Sentence {
    file: String,
    text: String,
    words: usize,
    stand_ins: usize,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// Names of files of the repository with one of these ends; none if this is no git checkout.
fn files(ends: &[&str]) -> Vec<String> {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let listed = listed.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    let names = String::from_utf8(listed).expect("UTF-8");
    names.split('\0').filter(|name| ends.iter().any(|end| name.ends_with(end))).map(ToOwned::to_owned).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_default()
}

/// The words of prose, without code between backticks, addresses, targets of links and format arguments.
fn words(text: &str) -> Vec<String> {
    let (mut plain, mut in_code, mut braces) = (String::new(), false, 0_usize);
    for word in text.split(' ').filter(|word| !word.contains("://")) {
        for c in word.chars() {
            match c {
                '`' => in_code = !in_code,
                '{' => braces += 1,
                '}' => braces = braces.saturating_sub(1),
                c if !in_code && braces == 0 => plain.push(c),
                _ => {}
            }
        }
        plain.push(' ');
    }
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '\'' || c == '’' || c == '-';
    let found = plain.split(|c| !is_letter(c)).filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
    found.map(str::to_lowercase).collect()
}

fn sentence(file: &str, text: &str, least: usize) -> Option<Sentence> {
    let words = words(text);
    let stand_ins = words.iter().filter(|word| STAND_INS.contains(&word.as_str())).count();
    (words.len() >= least).then(|| Sentence {
        file: file.to_owned(),
        text: text.to_owned(),
        words: words.len(),
        stand_ins,
    })
}

/// Sentences of a text, split at full stops and blank lines.
fn sentences(file: &str, text: &str) -> Vec<Sentence> {
    let joined = text.replace("\n\n", ". ").replace(['\n', '|'], " ");
    joined.split(". ").filter_map(|part| sentence(file, part.trim(), 4)).collect()
}

/// Blocks of comment lines.
fn comments(file: &str) -> Vec<Sentence> {
    let text = read(file);
    let mut block = String::new();
    let mut found = Vec::new();
    for line in text.lines().chain([""]) {
        match line.trim_start().strip_prefix("//") {
            Some(comment) => {
                block.push_str(comment.trim_start_matches(['/', '!']));
                block.push('\n');
            }
            None => found.extend(sentences(file, &std::mem::take(&mut block))),
        }
    }
    found
}

/// Names of tests, as sentences.
fn names_of_tests(file: &str) -> Vec<Sentence> {
    let (text, mut is_test, mut found) = (read(file), false, Vec::new());
    for line in text.lines().map(str::trim) {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        match function.and_then(|rest| rest.split('(').next()).filter(|_| is_test) {
            Some(name) => {
                found.extend(sentence(file, &name.replace('_', " "), 1));
                is_test = false;
            }
            None => is_test |= line == "#[test]" || line.starts_with("#[tokio::test"),
        }
    }
    found
}

/// Texts in quotes, three words or more, on one line, without unit tests, attributes and the reasons of `expect`.
fn messages(file: &str) -> Vec<Sentence> {
    let text = read(file);
    let ends = |line: &str| matches!(line, "mod tests {" | "pub(crate) mod tests {");
    let lines = text.lines().take_while(|line| !ends(line.trim())).map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("//") && !line.contains("expect"));
    let texts = lines.flat_map(quoted).filter(|text| text.split(' ').count() > 2);
    texts.filter_map(|text| sentence(file, &text, 3)).collect()
}

fn quoted(line: &str) -> Vec<String> {
    let (mut found, mut inside, mut escaped) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match (&mut inside, c) {
            (Some(text), c) if escaped => {
                text.push(c);
                escaped = false;
            }
            (Some(_), '\\') => escaped = true,
            (Some(_), '"') => found.extend(inside.take()),
            (Some(text), c) => text.push(c),
            (None, '"') => inside = Some(String::new()),
            (None, _) => {}
        }
    }
    found
}

fn without_blocks(text: &str) -> String {
    text.split("```").step_by(2).collect::<Vec<_>>().join("\n\n")
}

fn judge(what: &str, mut all: Vec<Sentence>, limit: usize) {
    let words: usize = all.iter().map(|sentence| sentence.words).sum();
    let stand_ins: usize = all.iter().map(|sentence| sentence.stand_ins).sum();
    let share = |sentence: &Sentence| sentence.stand_ins * 1000 / (sentence.words + 4);
    all.sort_by_key(|sentence| std::cmp::Reverse(share(sentence)));
    let worst: Vec<String> = all.iter().take(SHOWN).map(|s| format!("  {}: {}", s.file, s.text.trim())).collect();
    assert!(
        stand_ins * 1000 <= words * limit,
        "{what}: {stand_ins} of {words} words stand for a noun; the limit is {limit} of 1,000. The worst:\n{}",
        worst.join("\n")
    );
}

#[test]
fn comments_name_their_subjects() {
    let all = files(&[".rs"]).iter().flat_map(|file| comments(file)).collect();
    judge("comments", all, COMMENTS);
}

#[test]
fn documents_name_their_subjects() {
    let all = files(&[".md"]).iter().flat_map(|file| sentences(file, &without_blocks(&read(file)))).collect();
    judge("documentation", all, DOCUMENTS);
}

#[test]
fn messages_name_their_subjects() {
    let files = files(&[".rs"]).into_iter().filter(|file| !file.contains("test"));
    judge("messages", files.flat_map(|file| messages(&file)).collect(), MESSAGES);
}

#[test]
fn names_of_tests_name_their_subjects() {
    let all: Vec<Sentence> = files(&[".rs"]).iter().flat_map(|file| names_of_tests(file)).collect();
    assert!(all.is_empty() || all.len() > 1_000, "only {} tests are found", all.len());
    judge("names of tests", all, NAMES);
}

#[test]
fn the_measure_counts_words_and_stand_ins() {
    let count = |text: &str| sentence("x", text, 1).map(|s| (s.words, s.stand_ins));
    assert_eq!(count("Whoever asks is told what nobody knows"), Some((7, 3)));
    assert_eq!(count("The daemon restarts `one` {none} https://who.what"), Some((3, 0)));
    assert_eq!(quoted(r#"say("who \"is\" there", x, "b");"#), ["who \"is\" there", "b"]);
    assert_eq!(without_blocks("a\n```\nwho\n```\nb"), "a\n\n\n\nb");
    assert!(std::panic::catch_unwind(|| judge("x", sentences("x", "Who knows what those are"), 10)).is_err());
}
