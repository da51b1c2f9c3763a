//! Rules of this repository that a test can check: imports between crates, lengths of files, words that are not used.
//!
//! Each rule states its reason; `CONTRIBUTING.md` and `docs/architecture.md` describe the results. A rule reads text,
//! not syntax, so that it is simple enough to be trusted; clippy does the rest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the repository.
struct Text {
    /// The path from the root, with `/`.
    name: String,
    text: String,
}

impl Text {
    fn is_rust(&self) -> bool {
        self.name.ends_with(".rs")
    }

    /// Whether it is a test, a bench, or a part of the simulator, which is a big test.
    fn is_test(&self) -> bool {
        let parts: Vec<_> = self.name.split('/').collect();
        let folder = parts.iter().any(|p| ["tests", "benches", "bench", "sim"].contains(p));
        folder || ["_test.rs", "/tests.rs", "/testing.rs"].iter().any(|end| self.name.ends_with(end))
    }

    /// Lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines().map(without_comment))
    }

    /// A fault at a line, in the format of compilers.
    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.name)
    }
}

/// The line up to a comment; `//` inside a string does not start a comment.
fn without_comment(line: &str) -> &str {
    let mut in_text = false;
    let bytes = line.as_bytes();
    for at in 0..bytes.len() {
        match bytes[at] {
            b'"' if at == 0 || !matches!(bytes[at - 1], b'\\' | b'\'') => in_text = !in_text,
            b'/' if !in_text && bytes.get(at + 1) == Some(&b'/') => return &line[..at],
            _ => {}
        }
    }
    line
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// Every text file of the repository.
fn texts() -> Vec<Text> {
    let root = root();
    let mut names = Vec::new();
    let git = Command::new("git").arg("-C").arg(&root).args(["ls-files", "-co", "--exclude-standard", "-z"]).output();
    match git {
        Ok(output) if output.status.success() => {
            let all = String::from_utf8(output.stdout).expect("UTF-8");
            names.extend(all.split('\0').filter(|n| !n.is_empty()).map(str::to_owned));
        }
        // An unpacked archive without git.
        Ok(_) | Err(_) => walk(&root, "", &mut names),
    }
    // Files that are deleted but not yet committed are listed, too.
    let read = |name: String| Some(Text { text: fs::read_to_string(root.join(&name)).ok()?, name });
    let all: Vec<_> = names.into_iter().filter_map(read).collect();
    assert!(all.iter().filter(|t| t.is_rust()).count() > 100, "this is not the repository");
    all
}

fn walk(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            let skipped = name == ".git" || name.starts_with("target");
            if !skipped {
                walk(&entry.path(), &format!("{name}/"), names);
            }
        } else {
            names.push(name);
        }
    }
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The permitted imports between our crates: the arrows of the architecture. The engine knows neither the daemon nor
/// the generator; the daemon and the generator don't know each other, and the commands of `cobctl` know neither.
const ARROWS: [(&str, &str, &[&str]); 25] = [
    ("cob-types", "cob-types/", &[]),
    ("cob-journal", "cob-types/journal/", &[]),
    ("cob-kinds", "cob-types/kinds/", &["cob-types"]),
    ("cob-engine", "cobd/engine/", &["cob-types"]),
    ("cob-files", "cobd/files/", &["cob-types", "cob-depot"]),
    ("cob-api-server", "cobd/api-server/", &[]),
    ("cob-processes", "cobd/processes/", &[]),
    ("cob-depot", "cobgen/depot/", &["cob-types"]),
    (
        "cobhub",
        "cobgen/hub/",
        &[
            "cob-api-server",
            "cob-hub-api",
            "cob-hub-store",
            "cob-jobs",
            "cob-journal",
            "cob-permissions",
            "cob-processes",
        ],
    ),
    ("cob-hub-api", "cobgen/hub/api/", &["cob-permissions"]),
    ("cob-hub-client", "cobgen/hub/client/", &["cob-hub-api", "cob-permissions"]),
    ("cob-job-locks", "cobgen/hub/locks/", &[]),
    ("cob-jobs", "cobgen/hub/jobs/", &["cob-job-locks", "cob-processes"]),
    ("cob-permissions", "cobgen/hub/permissions/", &[]),
    ("cob-hub-store", "cobgen/hub/store/", &["cob-journal", "cob-processes"]),
    ("cob-planner", "cobgen/planner/", &[]),
    ("cob-solver", "cobgen/solver/", &[]),
    ("cob-forecast", "cobgen/forecast/", &["cob-types", "cob-engine", "cob-depot"]),
    (
        "cobgen",
        "cobgen/",
        &["cob-types", "cob-kinds", "cob-engine", "cob-depot", "cob-forecast", "cob-planner", "cob-solver"],
    ),
    (
        "cobctl",
        "cobd/ctl/",
        &["cob-types", "cob-kinds", "cob-depot", "cob-forecast", "cob-api-server", "cob-processes"],
    ),
    (
        "cobctl-program",
        "cobd/ctl/program/",
        &[
            "cob-types",
            "cob-forecast",
            "cob-hub-api",
            "cob-hub-client",
            "cob-permissions",
            "cob-processes",
            "cobctl",
            "cobd",
            "cobgen",
            "cobhub",
        ],
    ),
    (
        "cobd",
        "cobd/",
        &[
            "cob-types",
            "cob-journal",
            "cob-kinds",
            "cob-engine",
            "cob-depot",
            "cob-files",
            "cob-api-server",
            "cob-processes",
        ],
    ),
    ("cob-cedar", "tests/cedar/", &["cob-permissions"]),
    ("cob-explorer", "tests/explorer/", &["cob-types", "cob-engine"]),
    (
        "cob-tests",
        "tests/",
        &[
            "cob-types",
            "cob-kinds",
            "cob-engine",
            "cob-explorer",
            "cob-depot",
            "cob-forecast",
            "cob-solver",
            "cobd",
            "cobgen",
            "cobhub",
            "cob-hub-store",
            "cob-processes",
            "cobctl",
        ],
    ),
];

/// The further imports of tests: those of `cobctl` ask the API of the daemon, about generations that `cobgen` makes.
const ARROWS_OF_TESTS: [(&str, &[&str]); 1] = [("cobctl", &["cobd", "cobgen"])];

/// The crate of a file: the entry with the longest matching folder.
fn crate_of(name: &str) -> Option<&'static (&'static str, &'static str, &'static [&'static str])> {
    ARROWS.iter().filter(|(_, folder, _)| name.starts_with(folder)).max_by_key(|(_, folder, _)| folder.len())
}

#[test]
fn crates_import_only_along_the_arrows() {
    let mut faults = Vec::new();
    for text in texts() {
        let Some((own, _, allowed)) = crate_of(&text.name) else { continue };
        let of_tests = ARROWS_OF_TESTS.iter().find(|(name, _)| name == own).map_or(&[][..], |(_, allowed)| allowed);
        let others = ARROWS.iter().map(|(name, ..)| *name).filter(|name| name != own && !allowed.contains(name));
        for other in others {
            let path = format!("{}::", other.replace('-', "_"));
            let dependency = [format!("{other} ="), format!("{other}.workspace")];
            let tests = text.text.lines().position(|line| line == "[dev-dependencies]").unwrap_or(usize::MAX);
            for (line, code) in text.code() {
                if of_tests.contains(&other) && (text.is_test() || line > tests) {
                    continue;
                }
                let named = text.is_rust() && mentions(code, &path);
                let depends = text.name.ends_with("Cargo.toml") && dependency.iter().any(|d| code.starts_with(d));
                if named || depends {
                    faults.push(text.at(line, &format!("{own} must not know {other}")));
                }
            }
        }
    }
    assert_none(&faults);
}

/// Whether a path starts here, not only the end of a longer name.
fn mentions(code: &str, path: &str) -> bool {
    let begins = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    code.match_indices(path).any(|(at, _)| begins(at))
}

/// A length that a reader can keep in mind; most files have 200 to 600 lines.
const LONGEST: usize = 700;
/// Tests are read one at a time.
const LONGEST_TEST: usize = 900;

#[test]
fn files_are_short_enough_to_be_read() {
    let mut faults = Vec::new();
    for text in texts().iter().filter(|t| t.is_rust()) {
        let lines: Vec<_> = text.text.lines().collect();
        // Tests at the end of a file count like a test file.
        let inline = lines.windows(2).position(|w| w == ["#[cfg(test)]", "mod tests {"]).unwrap_or(lines.len());
        let max = if text.is_test() { LONGEST_TEST } else { LONGEST };
        if inline > max || lines.len() > LONGEST_TEST {
            let max = if inline > max { max } else { LONGEST_TEST };
            faults.push(text.at(lines.len(), &format!("longer than {max} lines: split it by concern")));
        }
    }
    assert_none(&faults);
}

#[test]
fn every_source_file_begins_with_its_responsibility() {
    let wrong = |t: &&Text| {
        let first = t.text.lines().next().unwrap_or_default();
        first.strip_prefix("//! ").is_none_or(|words| !words.starts_with(|c: char| c.is_alphanumeric() || c == '`'))
    };
    let texts = texts();
    let faults = texts.iter().filter(|t| t.is_rust()).filter(wrong);
    assert_none(
        &faults.map(|t| t.at(1, "the first line is to be `//! What this is responsible for.`")).collect::<Vec<_>>(),
    );
}

/// The engine is a function of its events: the same run replays everywhere. So it must not use any source of
/// differences between runs.
#[test]
fn the_engine_is_pure() {
    const WORLD: [&str; 17] = [
        "std::time",
        "std::fs",
        "std::io",
        "std::net",
        "std::os",
        "std::env",
        "std::process",
        "std::thread",
        "std::sync::mpsc",
        "Mutex",
        "Atomic",
        "Instant",
        "SystemTime",
        "RandomState",
        "tokio",
        "tracing",
        "thread_local",
    ];
    let mut faults = Vec::new();
    for text in texts().iter().filter(|t| t.is_rust() && t.name.starts_with("cobd/engine/src/")) {
        for (line, code) in text.code() {
            for word in WORLD.iter().filter(|w| code.contains(*w)) {
                faults.push(text.at(line, &format!("{word}: the engine has no clock, file, socket, thread or chance")));
            }
        }
        faults.extend(iterated_hash_maps(text));
    }
    assert_none(&faults);
}

/// Lookups in a hash map are allowed, but its order differs in every run.
fn iterated_hash_maps(text: &Text) -> Vec<String> {
    const DECLARED: [&str; 4] = [": HashMap<", ": HashSet<", " = HashMap::", " = HashSet::"];
    const WALKED: [&str; 8] =
        [".iter()", ".iter_mut()", ".keys()", ".values()", ".values_mut()", ".into_iter()", ".drain(", ".retain("];
    let mut names = Vec::new();
    for (_, code) in text.code() {
        let before = DECLARED.iter().find_map(|sort| Some(code.split_once(sort)?.0));
        let name = before.and_then(|b| b.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next());
        // A field is iterated as a field: a variable may have the same name.
        let dot = if code.trim_start().starts_with("let ") { "" } else { "." };
        names.extend(name.filter(|n| !n.is_empty()).map(|n| format!("{dot}{n}")));
    }
    let mut faults = Vec::new();
    for (line, code) in text.code() {
        for name in &names {
            let walked = WALKED.iter().any(|way| mentions_field(code, &format!("{name}{way}")));
            let looped = code.trim_start().starts_with("for ") && code.trim_end().ends_with(&format!("{name} {{"));
            if walked || looped {
                faults.push(text.at(line, &format!("{name} is a hash map: it has no order to go by")));
            }
        }
    }
    faults
}

/// Whether it occurs here as a whole name, or as a field.
fn mentions_field(code: &str, what: &str) -> bool {
    let begins = |at: usize| what.starts_with('.') || !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    code.match_indices(what).any(|(at, _)| begins(at))
}

/// The only module with unsafe code: no crate offers leases of files.
const UNSAFE: &str = "cobd/processes/src/writers.rs";

#[test]
fn no_code_is_unsafe_unfinished_or_silenced() {
    // Concatenated, so that this file does not break its own rules.
    let words = [
        (concat!("uns", "afe "), "forbidden in all modules but one"),
        (concat!("to", "do!"), "finish it, or leave it out"),
        (concat!("unimple", "mented!"), "finish it, or leave it out"),
        (concat!("db", "g!"), "left behind"),
        (concat!("#[al", "low("), "use #[expect(lint, reason = \"…\")]: it ends when its reason does"),
        (concat!("#![al", "low("), "use #![expect(lint, reason = \"…\")]: it ends when its reason does"),
        (concat!("process::", "exit"), "return an exit code from main, so that guards run"),
    ];
    let mut faults = Vec::new();
    for text in texts().iter().filter(|t| t.is_rust()) {
        for (line, code) in text.code() {
            let found = words.iter().filter(|(word, _)| mentions_field(code, word));
            let found = found.filter(|(word, _)| !(text.name == UNSAFE && word.starts_with("uns")));
            faults.extend(found.map(|(word, why)| text.at(line, &format!("`{word}`: {why}"))));
        }
    }
    assert_none(&faults);
}

/// One word for one thing: public types do not use the words that the glossary gives in brackets, which older texts had.
#[test]
fn public_types_are_named_by_the_glossary() {
    // These words are terms of their own too: a round of checks, the target of a switch, an order of an operator.
    const ALSO_TERMS: [&str; 5] = ["round", "target", "order", "return", "move"];
    let glossary = std::fs::read_to_string(root().join("docs/glossary.md")).expect("the glossary");
    let mut former: Vec<(String, &str)> = Vec::new();
    for row in glossary.lines().filter(|line| line.starts_with("| ")) {
        let Some((term, rest)) = row[2..].split_once(" | ") else { continue };
        let Some((_, words)) = rest.trim_end_matches(" |").split_once('[') else { continue };
        let words = words.trim_end_matches(']').split(", ");
        former.extend(words.filter(|word| !ALSO_TERMS.contains(word)).map(|word| (camel(word), term)));
    }
    assert!(former.iter().any(|(word, _)| word == "Hop"), "the glossary has its brackets: {former:?}");
    let mut faults = Vec::new();
    for text in texts().iter().filter(|t| t.is_rust()) {
        for (line, code) in text.code() {
            let Some(name) = public_type(code) else { continue };
            if let Some((_, term)) = former.iter().find(|(word, _)| has_word(name, word)) {
                faults.push(text.at(line, &format!("{name}: the glossary says {term}")));
            }
        }
    }
    assert_none(&faults);
}

/// Two public types of a crate with the same name are mixed up in imports and in conversation.
#[test]
fn a_public_type_has_a_name_of_its_own_in_its_crate() {
    let folders = || ARROWS.iter().map(|(_, folder, _)| *folder);
    let mut places: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    let texts = texts();
    for text in texts.iter().filter(|t| t.is_rust() && !t.is_test()) {
        let own = folders().filter(|folder| text.name.starts_with(folder)).max_by_key(|folder| folder.len());
        let tests = text.text.lines().position(|line| line == "#[cfg(test)]").unwrap_or(usize::MAX);
        for (line, code) in text.code().take_while(|(line, _)| *line <= tests) {
            if let (Some(own), Some(name)) = (own, public_type(code)) {
                places.entry((own, name.to_owned())).or_default().push(format!("{}:{line}", text.name));
            }
        }
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    assert_none(
        &twice.map(|((_, name), places)| format!("{}: {name} is also there", places.join(", "))).collect::<Vec<_>>(),
    );
}

/// `at rest` is `AtRest`.
fn camel(words: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    words.split(' ').map(capital).collect()
}

/// Whether the name contains this word as a whole: `HopNeeds` has `Hop`, `Hopper` has not.
fn has_word(name: &str, word: &str) -> bool {
    name.match_indices(word).any(|(at, _)| !name[at + word.len()..].starts_with(char::is_lowercase))
}

/// The name, if the line declares a public type.
fn public_type(code: &str) -> Option<&str> {
    let rest = code.trim_start().strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|word| rest.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

/// A number before a plural word in a formatted text: it would give `1 hosts`.
fn counts_by_hand(code: &str) -> bool {
    const MANY: [&str; 9] =
        ["hosts", "change objects", "dependencies", "runs", "errors", "warnings", "attempts", "times", "violations"];
    let behind = |word: &str| {
        code.match_indices(&format!("}} {word}")).any(|(at, found)| {
            let next = code[at + found.len()..].chars().next();
            // A limit is a constant greater than one.
            let limit = code[..at].rsplit('{').next().is_some_and(|inside| inside.starts_with(char::is_uppercase));
            next.is_none_or(|c| !c.is_alphanumeric()) && code[..at].contains('"') && !limit
        })
    };
    MANY.into_iter().any(behind)
}

#[test]
fn numbers_and_their_nouns_go_together() {
    let mut faults = Vec::new();
    for text in texts().iter().filter(|t| t.is_rust() && !t.is_test()) {
        for (line, _) in text.code().filter(|(_, code)| counts_by_hand(code)) {
            faults.push(text.at(line, "`cob_types::words::count` knows `1 host` from `2 hosts`"));
        }
    }
    assert_none(&faults);
}

#[test]
fn every_example_is_used_by_a_test() {
    let texts = texts();
    let examples = texts.iter().filter_map(|t| t.name.strip_prefix("examples/")?.split_once('/'));
    let examples: BTreeMap<_, _> = examples.collect();
    assert!(!examples.is_empty());
    let quoted = |name: &str| {
        let quoted = format!("\"{name}\"");
        texts.iter().any(|t| t.is_rust() && t.name.contains("tests/") && t.text.contains(&quoted))
    };
    let unused = examples.keys().filter(|name| !quoted(name));
    assert_none(&unused.map(|name| format!("examples/{name}: no test runs it")).collect::<Vec<_>>());
}

#[test]
fn no_file_has_paths_of_a_machine_or_is_left_by_a_tool() {
    let machine = [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];
    let tools = [".pending-snap", ".snap.new", ".orig", ".rej", ".swp"];
    let mut faults = Vec::new();
    for text in &texts() {
        for (line, words) in (1..).zip(text.text.lines()) {
            let found = machine.iter().filter(|path| words.contains(*path));
            faults.extend(found.map(|path| text.at(line, &format!("{path} is a path of one machine"))));
        }
        if tools.iter().any(|end| text.name.ends_with(end)) {
            faults.push(text.at(1, "left behind by a tool"));
        }
    }
    assert_none(&faults);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut faults = Vec::new();
    for text in texts().iter().filter(|t| t.name.ends_with(".md")) {
        let folder = root().join(&text.name).parent().expect("a folder").to_owned();
        for (line, words) in (1..).zip(text.text.lines()) {
            for link in links(words).filter(|link| !folder.join(link).exists()) {
                faults.push(text.at(line, &format!("{link} is not there")));
            }
        }
    }
    assert_none(&faults);
}

/// The files that a line of Markdown links to.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let all = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let files = all.map(|link| link.split_once('#').map_or(link, |(file, _)| file));
    files.filter(|link| !link.is_empty() && !link.contains("://") && !link.contains(' '))
}

/// Texts of other programs that our programs read, with the program.
const FOREIGN: [(&str, &str); 36] = [
    ("Membership information", "corosync-quorumtool"),
    ("ifup version 0.", "ifup"),
    ("Host key verification failed", "ssh"),
    ("Permission denied", "ssh"),
    (" at line ", "serde_json"),
    ("could not acquire lock", "sled"),
    ("no packages found", "dpkg-query"),
    ("Device or resource busy", "dpkg"),
    ("unmet dependencies:", "apt-get"),
    ("dpkg: error processing ", "dpkg"),
    ("Some index files failed", "apt-get"),
    ("PRIVATE KEY", "keys of OpenSSH and OpenPGP"),
    ("BEGIN SSH2 PUBLIC KEY", "RFC 4716"),
    ("-----BEGIN PGP PUBLIC KEY BLOCK-----", "OpenPGP"),
    ("-----END PGP PUBLIC KEY BLOCK-----", "OpenPGP"),
    ("is not installed", "rpm"),
    ("Operation aborted", "dnf"),
    ("is locked by", "zypper"),
    ("nothing provides", "dnf"),
    ("conflicting requests", "dnf"),
    ("failed to stat", "libgit2"),
    ("invalid name", "libgit2"),
    ("-----BEGIN AGE ENCRYPTED FILE-----", "age"),
    ("nesting limit", "the YAML parser"),
    ("recursion limit", "the YAML parser"),
    ("unknown anchor", "the YAML parser"),
    ("will expire", "openssl"),
    ("X509v3 Basic Constraints", "openssl"),
    ("X509v3 Extended Key Usage", "openssl"),
    ("X509v3 Subject Alternative Name", "openssl"),
    ("IP Address:", "openssl"),
    ("-----BEGIN PUBLIC KEY", "RFC 7468"),
    ("not found", "docker"),
    ("being accessed", "PostgreSQL"),
    ("depend on it", "PostgreSQL"),
    (" WITH GRANT OPTION", "MariaDB"),
];

/// The text in which a line of code searches for a sentence: a literal with two words or more.
fn parsed_sentence(code: &str) -> Option<&str> {
    const READERS: [&str; 9] = [
        "contains",
        "starts_with",
        "ends_with",
        "strip_prefix",
        "strip_suffix",
        "split_once",
        "rsplit_once",
        "find",
        "split",
    ];
    let is_sentence = |text: &&str| {
        let words = text.split(' ').filter(|w| w.chars().filter(char::is_ascii_alphabetic).count() > 1);
        words.count() > 1
    };
    READERS.iter().find_map(|reader| {
        let call = format!(".{reader}(\"");
        code.split(call.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).find(is_sentence)
    })
}

/// Programs exchange typed data; a text for people may change at any time.
#[test]
fn no_program_reads_our_own_sentences() {
    let mut faults = Vec::new();
    for text in texts().iter().filter(|t| t.is_rust() && !t.is_test()) {
        let tests = text.text.lines().position(|line| line == "#[cfg(test)]").unwrap_or(usize::MAX);
        for (line, code) in text.code().take_while(|(line, _)| *line <= tests) {
            let own = parsed_sentence(code).filter(|read| FOREIGN.iter().all(|(known, _)| known != read));
            if let Some(read) = own {
                faults.push(text.at(line, &format!("{read:?} is a text for people: programs read typed data")));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn every_crate_goes_by_the_workspaces_lints() {
    let texts = texts();
    let crates = texts.iter().filter(|t| t.name.ends_with("/Cargo.toml"));
    // The crate with the module of unsafe code has the same lints, and denies where the others forbid.
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let lints = |name: &str| {
        let (_, rest) = workspace.split_once(&format!("[workspace.lints.{name}]\n")).expect("lints of the workspace");
        let own = rest.split("\n\n").next().unwrap_or_default();
        format!("[lints.{name}]\n{own}\n").replace("\"forbid\"", "\"deny\"")
    };
    let has_own = |t: &Text| {
        t.name == "cobd/processes/Cargo.toml" && ["rust", "clippy"].iter().all(|name| t.text.contains(&lints(name)))
    };
    let faults = crates.filter(|t| !t.text.contains("[lints]\nworkspace = true\n") && !has_own(t));
    assert_none(&faults.map(|t| t.at(1, "it lacks `[lints] workspace = true`")).collect::<Vec<_>>());
}

#[test]
fn the_tidy_rules_find_their_faults() {
    assert_eq!(without_comment("let x = 1; // unsafe"), "let x = 1; ");
    assert_eq!(without_comment("let x = \"http://x\"; // y"), "let x = \"http://x\"; ");
    assert!(mentions("use cobd::run;", "cobd::") && mentions("(cobd::x)", "cobd::"));
    assert!(!mentions("use my_cobd::run;", "cobd::") && !mentions("crate::cobd::run", "cobd::"));
    assert_eq!(public_type("    pub struct LockNeeds<'a> {"), Some("LockNeeds"));
    assert_eq!(public_type("pub(crate) struct Task;"), None);
    assert!(counts_by_hand("format!(\"{n} hosts\")") && counts_by_hand("(\"{} change objects;\", n)"));
    assert!(!counts_by_hand("count(n, \"host\")") && !counts_by_hand("\"more than {MAX} hosts\""));
    assert_eq!(parsed_sentence("if why.contains(\" (told by \") {"), Some(" (told by "));
    assert_eq!(parsed_sentence("text.strip_prefix(\"remove \"), say(\"two words\")"), None);
    assert!(has_word("HopNeeds", "Hop") && has_word("LastHop", "Hop") && !has_word("Hopper", "Hop"));
    assert_eq!(camel("at rest"), "AtRest");
    let line = "[a](x.md#y), [b](#z), [c](http://x/y.md) and [`d`](../w)";
    assert_eq!(links(line).collect::<Vec<_>>(), ["x.md", "../w"]);
    let walked = "struct X { map: HashMap<u8, u8> }\nfn f(x: &X) { x.map.get(&1); x.map.keys(); }\nfor y in &x.map {\n";
    let text = Text { name: "x.rs".to_owned(), text: walked.to_owned() };
    assert_eq!(iterated_hash_maps(&text).len(), 2);
    let spared = "struct X { map: HashMap<u8, u8> }\nfn f(x: &X, map: &[u8]) { x.map.get(&1); map.iter(); }\n";
    assert!(iterated_hash_maps(&Text { name: "x.rs".to_owned(), text: spared.to_owned() }).is_empty());
    assert_eq!(crate_of("cobd/engine/src/lib.rs").map(|c| c.0), Some("cob-engine"));
    assert_eq!(crate_of("cobd/src/lib.rs").map(|c| c.0), Some("cobd"));
    assert_eq!(crate_of("cobd/ctl/program/src/main.rs").map(|c| c.0), Some("cobctl-program"));
    assert_eq!(crate_of("README.md").map(|c| c.0), None);
}

/// What the bed expects from other programs, or from texts of several parts.
const EXPECTED_OF_OTHERS: [&str; 11] = [
    "the program says cobd",
    "waves, the fewest possible",
    "the package manager would remove ccmta-",
    "FAILED  cancelled",
    "ExecStartPre= ended with signal",
    "could not be found",
    "the port is taken",
    "mounts /srv/set/data in /srv/set, which",
    "is hidden by a later mount on /srv/set",
    "this daemon is broken",
    "has rolled back from generation",
];

/// The longest part of a message that a line of the bed's scripts expects, without variables and names of hosts.
fn expected(line: &str) -> Option<String> {
    let calls = ["says ", "fails_with ", "is_refused ", "lines "];
    let at = calls.iter().filter_map(|call| line.find(call)).min()?;
    let (_, rest) = line[at..].split_once('"')?;
    let text = rest.split('"').next()?;
    // A word with a variable, an escape, a digit or a quotation mark ends a part; so does the name of a host.
    let ends = |word: &str| word.contains(['$', '\\', '`']) || word.contains(|c: char| c.is_ascii_digit());
    let mut parts = vec![String::new()];
    for word in text.split(' ') {
        if ends(word) {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            let space = if part.is_empty() { "" } else { " " };
            part.push_str(&format!("{space}{word}"));
        }
    }
    parts.into_iter().max_by_key(String::len).filter(|part| part.len() >= 16 && part.contains(' '))
}

#[test]
fn messages_that_the_bed_expects_exist() {
    assert_eq!(
        expected(r#"    says "the key $h2 of this connection is no longer a key" log h1"#).as_deref(),
        Some("of this connection is no longer a key")
    );
    let all = texts();
    let mut sources = String::new();
    for text in all.iter().filter(|text| text.is_rust() && !text.is_test()) {
        // A string that goes on in the next line.
        let mut lines = text.text.split("\\\n");
        sources.push_str(lines.next().unwrap_or_default());
        lines.for_each(|line| sources.push_str(line.trim_start()));
    }
    let mut faults = Vec::new();
    for text in all.iter().filter(|text| text.name.starts_with("tests/bed/") && text.name.ends_with(".sh")) {
        for (number, line) in (1..).zip(text.text.lines()) {
            let Some(part) = expected(line) else { continue };
            if !sources.contains(&part) && !EXPECTED_OF_OTHERS.iter().any(|other| part.contains(other)) {
                faults.push(text.at(number, &format!("no program says {part:?}")));
            }
        }
    }
    assert_none(&faults);
}
