//! Property test: cron reads the same table that a content describes, or the content is rejected.
//!
//! The test has its own reader, written from crontab(5) and from cron's `load_env` and `load_entry`: cron skips a whole
//! file for a single line that it can't read.

use proptest::prelude::*;
use serde_json::json;

use super::super::tests::spec_in;
use super::CronSetting;
use crate::kinds::native::Native;

/// The table that cron reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    variables: Vec<(String, String)>,
    /// Schedule, user and command.
    jobs: Vec<(String, String, String)>,
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

/// Returns `None` if cron skips the file.
fn read(text: &str) -> Option<Table> {
    let mut table = Table::default();
    // The last line must have a line end.
    for line in text.strip_suffix('\n')?.split('\n') {
        let line = line.trim_start_matches(is_blank);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match variable(line) {
            // cron would truncate a longer line.
            Some(_) if line.len() > 999 => return None,
            Some(variable) => table.variables.push(variable),
            None => table.jobs.push(job(line)?),
        }
    }
    Some(table)
}

/// Like C's `isspace`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\x0c')
}

/// A name and a value, each optionally in quotes, with a `=` between. No text may follow a quoted value.
fn variable(line: &str) -> Option<(String, String)> {
    let quoted = |text: &str| text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let (name, rest) = match quoted(line) {
        Some(quote) => line[1..].split_once(quote)?,
        None => line.split_at(line.find(|c| is_space(c) || c == '=')?),
    };
    let value = rest.trim_start_matches(is_space).strip_prefix('=')?.trim_start_matches(is_space);
    let value = match quoted(value) {
        Some(quote) => value[1..].split_once(quote).filter(|(_, rest)| rest.trim_start_matches(is_space).is_empty())?.0,
        // An empty text is no value.
        None => Some(value.trim_end_matches(is_space)).filter(|value| !value.is_empty())?,
    };
    Some((name.to_owned(), value.to_owned()))
}

fn job(line: &str) -> Option<(String, String, String)> {
    let mut rest = line;
    let mut word = || {
        let (word, more) = rest.split_at(rest.find(is_blank)?);
        rest = more.trim_start_matches(is_blank);
        Some(word)
    };
    let first = word()?;
    let schedule = if first.starts_with('@') {
        let words = ["@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
        words.contains(&first).then(|| first.to_owned())?
    } else {
        let fields = [first, word()?, word()?, word()?, word()?];
        let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
        let are_read =
            fields.iter().zip(bounds).all(|(field, bounds)| field.split(',').all(|part| is_read(part, bounds)));
        are_read.then(|| fields.join(" "))?
    };
    let user = word()?;
    let is_command = |command: &&str| !command.is_empty() && command.len() <= 998;
    Some((schedule, user.to_owned(), Some(rest).filter(is_command)?.to_owned()))
}

/// A number, a range or `*`; a range or `*` may have steps.
fn is_read(part: &str, (lowest, highest): (u32, u32)) -> bool {
    const NAMES: [&str; 19] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sun", "mon", "tue", "wed",
        "thu", "fri", "sat",
    ];
    let number = |text: &str| -> Option<u32> {
        let names = if highest == 12 { &NAMES[..12] } else { &NAMES[12..] };
        match names.iter().position(|name| *name == text.to_lowercase()).filter(|_| highest == 12 || highest == 7) {
            Some(at) => u32::try_from(at).ok().map(|at| at + lowest),
            None => text
                .parse()
                .ok()
                .filter(|n| text.starts_with(|c: char| c.is_ascii_digit()) && (lowest..=highest).contains(n)),
        }
    };
    let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
    let is_span = match span.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
        None => span == "*" || number(span).is_some(),
    };
    let is_step = |step: &str| step.parse::<u32>().is_ok_and(|n| n > 0) && !step.starts_with('+');
    is_span && step.is_none_or(|step| (span == "*" || span.contains('-')) && is_step(step))
}

fn values() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{0,8}",
        4 => "[ \ta'\"=#%\\\\-]{0,6}",
        1 => any::<String>(),
        1 => (985_usize..1002).prop_map(|n| "x".repeat(n)),
    ]
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[A-Z_][A-Z0-9_]{0,6}", 1 => "[ A-Z0-9#='\"_.-]{0,4}", 1 => any::<String>()]
}

fn schedules() -> impl Strategy<Value = String> {
    let field =
        prop_oneof![4 => Just("*".to_owned()), 2 => "[0-9]{1,2}", 1 => "[0-9*/,-]{1,5}", 1 => "(mon|Sun|jan|DEC)"];
    let blank =
        prop_oneof![20 => Just(" ".to_owned()), 2 => Just("\t".to_owned()), 1 => "[ \t\r\x0b\u{a0}\u{2003}]{1,2}"];
    prop_oneof![
        4 => prop::collection::vec((field, blank), 5)
            .prop_map(|fields| fields.into_iter().map(|(field, blank)| field + &blank).collect::<String>()),
        2 => Just("@daily".to_owned()),
        1 => "@[a-z]{0,8}",
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn a_written_cron_table_reads_back_the_same(
        variables in prop::collection::btree_map(names(), values(), 0..3),
        schedule in schedules(),
        command in prop_oneof![4 => "[a-z]{1,8}( [a-z%\\\\|'\"#=]{0,8}){0,2}", 2 => values()],
        user in prop_oneof![8 => Just("root".to_owned()), 1 => "[a-z=#'\"@ -]{0,4}", 1 => any::<String>()],
    ) {
        let content = json!({"name": "x", "schedule": schedule, "command": command, "user": user, "env": variables});
        let Ok(spec) = spec_in(&CronSetting, &content.to_string(), "n1/x") else { return Ok(()) };
        if Native::accept(&CronSetting, &content.to_string()).is_err() {
            return Ok(());
        }
        let text = spec.wanted().as_str().expect("a text").to_owned();
        let words = schedule.split_whitespace().collect::<Vec<_>>().join(" ");
        let told = Table {
            variables: variables.into_iter().collect(),
            jobs: vec![(words, user, command.trim().to_owned())],
        };
        prop_assert_eq!(read(&text), Some(told), "{:?}", text);
    }
}

/// The property says little if most contents are rejected, or if its reader accepts all tables.
#[test]
fn the_reader_of_the_test_accepts_and_skips_the_same_lines_as_cron() {
    let job = "* * * * * root true\n";
    for line in ["MAILTO=ops\n", "A=\"\"\n", " A = ' x ' \n", "\"A B\"=c\n", "A=b 'c'\n", "# note\n\n"] {
        assert!(read(&format!("{line}{job}")).is_some(), "{line}");
    }
    for line in [
        "MAILTO=\n",
        "A='b\n",
        "A=\"b\"c\n",
        "60 * * * * root true\n",
        "*\u{a0}* * * * root true\n",
        "@never root true\n",
    ] {
        assert_eq!(read(&format!("{line}{job}")), None, "{line}");
    }
    assert_eq!(read("* * * * * root true"), None);
    assert_eq!(read(&format!("* * * * * root {}\n", "x".repeat(999))), None);
    let table = read("A=' b '\n*/5 0-6 1,2 jan Sun root  date +\\%s = x\n").expect("read");
    assert_eq!(table.variables, [("A".to_owned(), " b ".to_owned())]);
    assert_eq!(table.jobs, [("*/5 0-6 1,2 jan Sun".to_owned(), "root".to_owned(), "date +\\%s = x".to_owned())]);
}
