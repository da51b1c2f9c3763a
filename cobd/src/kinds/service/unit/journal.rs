//! The output of units in the machine's journal: journalctl(1).

use std::io;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cob_types::api::{LogsAnswer, LogsQuery};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use super::ended::Ending;
use crate::run::{left_out, whole_line};

/// The time limit for reading the last lines of a unit.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// The most bytes that are kept of the output of `journalctl`, counted from the end.
const MAX_JOURNAL: usize = 4 << 20;
/// The most bytes of its output: it is read to its end, where the cursor is.
const MAX_PRINTED: u64 = 1 << 30;
/// The id of systemd's message that a process of a unit has ended (SD_MESSAGE_UNIT_PROCESS_EXIT).
const PROCESS_EXIT: &str = "MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15";
/// The time limit for a query.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(20);
/// The prefix of the line with the cursor at the end of `journalctl`'s output.
const CURSOR: &str = "-- cursor: ";
/// The most bytes of its error output.
const MAX_COMPLAINT: u64 = 256 << 10;

fn journalctl() -> Command {
    let mut command = Command::new("journalctl");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The output of a unit of systemd.
pub(in crate::kinds::service) async fn logs(unit: &str, query: &LogsQuery) -> Result<LogsAnswer, String> {
    if query.previous {
        return Err(format!("the journal has all runs of {unit} in sequence: leave out `previous`"));
    }
    let mut command = journalctl();
    command.args(["--quiet", "--no-pager", "--output=short-iso", "--show-cursor"]);
    command.arg(format!("--lines={}", query.lines)).arg(format!("--unit={unit}"));
    if let Some(after) = query.after.as_deref().filter(|after| !after.is_empty()) {
        let plain = after.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'=' | b';'));
        if !plain {
            return Err(format!("{after:?} is no position of an earlier answer"));
        }
        command.arg(format!("--after-cursor={after}"));
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |what: &str| format!("the journal can't be read: journalctl: {what}");
    let mut child = command.spawn().map_err(|error| failed(&error.to_string()))?;
    let read = async {
        let mut complaint = Vec::new();
        let out = child.stdout.take().expect("piped");
        let err = child.stderr.take().expect("piped");
        let (text, _) = tokio::try_join!(last_of(out.take(MAX_PRINTED), MAX_JOURNAL), async {
            err.take(MAX_COMPLAINT).read_to_end(&mut complaint).await
        })?;
        io::Result::Ok((child.wait().await?, text, complaint))
    };
    match timeout(JOURNAL_PATIENCE, read).await {
        Ok(Ok((exit, text, _))) if exit.success() => Ok(of_journal(&text, query.after.as_deref().unwrap_or_default())),
        Ok(Ok((_, _, complaint))) => Err(failed(String::from_utf8_lossy(&complaint).trim())),
        Ok(Err(error)) => Err(failed(&error.to_string())),
        Err(_) => Err(failed("it takes too long")),
    }
}

/// Reads to the end, and keeps the last whole lines that fit into `most` bytes. A note before the lines says how many
/// bytes were left out. A longer line is cut.
async fn last_of(mut from: impl AsyncRead + Unpin, most: usize) -> io::Result<Vec<u8>> {
    let (mut kept, mut gone) = (Vec::new(), 0);
    loop {
        // The buffer is trimmed only at twice the size, so that each byte moves at most once.
        if kept.len() >= 2 * most {
            gone += kept.drain(..kept.len() - most).len();
        }
        kept.reserve(64 << 10);
        if from.read_buf(&mut kept).await? == 0 {
            break;
        }
    }
    if gone + kept.len() > most {
        let from = kept.len() - kept.len().min(most);
        gone += kept.drain(..whole_line(&kept, from).unwrap_or(from)).len();
        kept.splice(..0, left_out(gone as u64).into_bytes());
    }
    Ok(kept)
}

/// Splits the output of `journalctl --show-cursor` into lines and cursor. Without a line there is no cursor.
fn of_journal(printed: &[u8], after: &str) -> LogsAnswer {
    let mut text = String::from_utf8_lossy(printed).into_owned();
    let begin = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
    let cursor = text[begin..].trim_end().strip_prefix(CURSOR).map(ToOwned::to_owned);
    if cursor.is_some() {
        text.truncate(begin);
    }
    LogsAnswer { source: "journal".to_owned(), text, next: cursor.unwrap_or_else(|| after.to_owned()), ended: false }
}

/// The last lines of a unit's run in the machine's journal. If the unit printed no lines, systemd's messages about it.
/// With `since`, only lines from that time on. Without a run (the start was skipped), earlier lines belong to an
/// earlier run, so `since` is required.
pub(super) async fn last_words(unit: &str, invocation: &str, since: Option<SystemTime>) -> String {
    // The latest lines must be included.
    printed(&["--sync"]).await;
    for of in asked(unit, invocation, since) {
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let said =
            printed(&[&["--quiet", "--no-pager", "--output=cat", "--lines=10", "--boot"], &of[..]].concat()).await;
        if !said.trim().is_empty() {
            return said;
        }
    }
    String::new()
}

/// The journal filters to try, the best filter first.
fn asked(unit: &str, invocation: &str, since: Option<SystemTime>) -> Vec<Vec<String>> {
    let of = match invocation.bytes().all(|b| b == b'0') {
        true if since.is_none() => return Vec::new(),
        true => [format!("_SYSTEMD_UNIT={unit}"), format!("UNIT={unit}")],
        false => [format!("_SYSTEMD_INVOCATION_ID={invocation}"), format!("INVOCATION_ID={invocation}")],
    };
    let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let since = since.map(|since| format!("--since=@{}.{:06}", since.as_secs(), since.subsec_micros()));
    of.into_iter().map(|of| since.iter().cloned().chain([of]).collect()).collect()
}

/// The end of a run's main process, which systemd forgets when it restarts the unit.
pub(super) async fn ending(invocation: &str) -> Option<Ending> {
    let of = format!("INVOCATION_ID={invocation}");
    let fields = "--output-fields=EXIT_CODE,EXIT_STATUS,COMMAND";
    let said = printed(&["--quiet", "--no-pager", "--output=json", fields, "--boot", PROCESS_EXIT, &of]).await;
    ending_of(&said)
}

/// The last process that ended counts, except for commands besides the main process.
fn ending_of(said: &str) -> Option<Ending> {
    let mut lines = said.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_main = |line: &serde_json::Value| line["COMMAND"].as_str().is_none_or(|command| command == "ExecStart");
    let line = lines.find(of_main)?;
    Ending::of_journal(line["EXIT_CODE"].as_str()?, line["EXIT_STATUS"].as_str()?)
}

/// The output of `journalctl`; empty if it is missing or slow.
async fn printed(arguments: &[&str]) -> String {
    let mut command = journalctl();
    match timeout(LAST_WORDS, command.args(arguments).stderr(Stdio::null()).output()).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(Err(_)) | Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_run_is_read_as_systemd_writes_it() {
        let main = r#"{"EXIT_CODE":"dumped","EXIT_STATUS":"11","COMMAND":"ExecStart","__CURSOR":"s=1"}"#;
        let beside = r#"{"EXIT_CODE":"exited","EXIT_STATUS":"0","COMMAND":"ExecStopPost"}"#;
        let dumped = Ending::of_journal("dumped", "11");
        assert!(dumped.is_some());
        assert_eq!(ending_of(&format!("{main}\n{beside}\n")), dumped);
        assert_eq!(ending_of(&format!("{beside}\n")), None);
        assert_eq!(ending_of("no entries\n"), None);
    }

    #[test]
    fn a_start_without_a_run_shows_no_lines_of_an_earlier_run() {
        let since = UNIX_EPOCH + Duration::from_micros(7_000_030);
        let none = "0".repeat(32);
        for none in ["", &none] {
            assert!(asked("a.service", none, None).is_empty());
            let asked = asked("a.service", none, Some(since));
            assert_eq!(
                asked,
                [["--since=@7.000030", "_SYSTEMD_UNIT=a.service"], ["--since=@7.000030", "UNIT=a.service"]]
            );
        }
        assert_eq!(asked("a.service", "a0", None), [["_SYSTEMD_INVOCATION_ID=a0"], ["INVOCATION_ID=a0"]]);
    }

    #[tokio::test]
    async fn the_last_whole_lines_of_a_long_output_are_kept() {
        let kept = async |text: &str, most: usize| {
            String::from_utf8(last_of(text.as_bytes(), most).await.expect("read")).expect("text")
        };
        assert_eq!(kept("one\ntwo\nthree\n", 14).await, "one\ntwo\nthree\n");
        assert_eq!(kept("one\ntwo\nthree\n", 10).await, left_out(4) + "two\nthree\n");
        assert_eq!(kept("one\ntwo\nthree\n", 9).await, left_out(8) + "three\n");
        // A line that is too long by itself.
        assert_eq!(kept("one\nlonger than that", 4).await, left_out(16) + "that");
        assert_eq!(kept("one\nlonger than that\n", 4).await, left_out(17) + "hat\n");
        let many: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
        let told = kept(&many, 1000).await;
        assert!(told.ends_with("\nline 199999\n") && told.len() <= 1000 + left_out(1 << 20).len(), "{}", told.len());
        let note = told.lines().nth(1).expect("a note");
        let gone: usize = note.split(' ').nth(1).expect("a number").parse().expect("a number");
        let rest = told.split_once("...]\n").expect("the note").1;
        assert_eq!(gone + rest.len(), many.len());
        assert!(rest.starts_with("line "), "{rest}");
    }

    #[test]
    fn journal_lines_come_with_the_position_of_their_end() {
        let printed = b"2026-11-23T12:00:00+0000 n1 app[7]: up\n-- cursor: s=ab;i=1\n";
        let answer = of_journal(printed, "old");
        let told = (answer.text.as_str(), answer.next.as_str());
        assert_eq!(told, ("2026-11-23T12:00:00+0000 n1 app[7]: up\n", "s=ab;i=1"));
        assert_eq!(of_journal(b"", "old").next, "old");
        assert_eq!(of_journal(b"-- cursor: s=1\n", "").text, "");
    }
}
