//! Commands that an operator runs on hosts at once, outside of any generation (`cobctl run`): the order, the answer of a
//! host, and the records for its history.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::id::HostName;
use crate::kind::Command;
use crate::words::{foreign, shell_word, span};

/// The longest time that a command may take, in milliseconds.
pub const LONGEST_MS: u64 = 3_600_000;
/// The default time limit, in milliseconds.
pub const DEFAULT_MS: u64 = 300_000;
/// The longest command line, in bytes of all words together.
pub const LONGEST_LINE: usize = 32 << 10;
/// The most variables of an order.
pub const MOST_VARIABLES: usize = 64;
/// So many bytes of each output stream are streamed. The command goes on when it prints more.
pub const MOST_OUTPUT: u64 = 1 << 20;
/// So many characters of a command line stand in the history.
const SHOWN: usize = 500;

/// The number of a `cobctl run`, the same on all of its hosts: 12 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(u64);

impl RunId {
    /// So many hexadecimal digits.
    const DIGITS: usize = 12;

    /// From a random number, of which 48 bits count.
    #[must_use]
    pub fn of(random: u64) -> Self {
        Self(random & 0xffff_ffff_ffff)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == Self::DIGITS && text.bytes().all(is_digit) {
            return u64::from_str_radix(text, 16).map(Self).map_err(|e| e.to_string());
        }
        Err(format!("{text:?} is not the number of a run: write the 12 hexadecimal digits that `cobctl run` prints"))
    }
}

impl TryFrom<String> for RunId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.to_string()
    }
}

impl JsonSchema for RunId {
    fn schema_name() -> Cow<'static, str> {
        "RunId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9a-f]{12}$"})
    }
}

/// Run a command, and follow its output until it ends.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOrder {
    /// A list: a program and its arguments. A text: a line for `/bin/sh -c`. At most 32 KiB.
    pub command: Command,
    /// The number of the run, new on the host; without it the host draws a number.
    pub run: Option<RunId>,
    /// The user of the process; without it the user of the daemon.
    pub user: Option<String>,
    /// The working folder; without it `/`.
    pub cwd: Option<String>,
    /// At most 64 variables in addition to the environment of actions; no name begins with `COB_`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The time limit in milliseconds, at most an hour; without it five minutes.
    pub timeout_ms: Option<u64>,
    /// The author's name for the history, as the client states it.
    pub who: Option<String>,
}

/// An event of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunEvent {
    /// The order is on record and the command runs.
    Begun {
        /// The host.
        host: HostName,
        /// The number of the run.
        run: RunId,
    },
    /// The command has printed this on its standard output.
    Out(String),
    /// The command has printed this on its standard error.
    Err(String),
    /// The command has ended: the last event.
    Ended(RunEnd),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunExit {
    /// By itself, with this exit status.
    Exited(i32),
    /// By a signal that the daemon did not send.
    Signal(i32),
    /// The daemon ended it at its time limit.
    TimedOut,
    /// The daemon ended it because the operator's connection was closed.
    Cancelled,
    /// It was ended because the daemon itself had ended.
    DaemonEnded,
    /// It could not be started; the reason.
    NotStarted(String),
    /// The supervising process was killed. The rest of the command was ended.
    Lost,
}

impl fmt::Display for RunExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::TimedOut => f.write_str("ended at its time limit"),
            Self::Cancelled => f.write_str("ended: the operator's connection was closed"),
            Self::DaemonEnded => f.write_str("ended: the daemon had stopped"),
            Self::NotStarted(why) => write!(f, "not started: {}", foreign(why, SHOWN)),
            Self::Lost => f.write_str("exit status not known: the supervising process was killed"),
        }
    }
}

/// The end of a command.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnd {
    /// How.
    pub exit: RunExit,
    /// The run time of the command in milliseconds, if it is known.
    pub took_ms: Option<u64>,
    /// Its output was cut off: so many bytes it has printed in all.
    pub cut: Option<u64>,
}

impl RunEnd {
    /// Whether the command succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.exit == RunExit::Exited(0)
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exit.fmt(f)?;
        if let Some(ms) = self.took_ms {
            write!(f, " after {}", span(ms.saturating_mul(1_000_000)))?;
        }
        if let Some(printed) = self.cut {
            write!(f, ", output cut off: {printed} bytes printed")?;
        }
        Ok(())
    }
}

/// A record of a run in the journal of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunRecord {
    /// A command is about to start.
    Begun {
        /// Its number.
        run: RunId,
        /// The command line as it is shown, without values of secrets.
        line: String,
        /// The user of the process, if the order names a user.
        user: Option<String>,
    },
    /// The command has ended.
    Ended {
        /// Its number.
        run: RunId,
        /// How.
        end: RunEnd,
    },
}

/// The output of a run that a host has kept, at `GET /v1/run/NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredRun {
    /// The number of the run.
    pub run: RunId,
    /// The host.
    pub host: HostName,
    /// The command line as it is shown.
    pub line: String,
    /// The author of the order.
    pub who: String,
    /// How it ended.
    pub end: RunEnd,
    /// Its standard output: all of it, or the beginning and the end.
    pub stdout: String,
    /// Its standard error, in the same way.
    pub stderr: String,
}

/// A command line as people read it: words that a shell would take apart are quoted, and a long line is cut.
#[must_use]
pub fn shown(command: &Command) -> String {
    let line = match command {
        Command::Shell(line) => line.clone(),
        Command::Argv(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    foreign(&line, SHOWN)
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    shell_word(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_run_is_read_as_it_is_written() {
        let run = RunId::of(0xabc0_0000_0000_012f);
        assert_eq!(run.to_string(), "00000000012f");
        assert_eq!("00000000012f".parse(), Ok(run));
        for bad in ["", "12f", "00000000012F", "00000000012g", "+0000000012f", "00000000012f0", "../../../etc"] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_string(&run).expect("text"), "\"00000000012f\"");
        assert!(serde_json::from_str::<RunId>("\"x\"").is_err());
    }

    #[test]
    fn a_command_line_is_shown_with_its_quotes_and_harmless() {
        let argv = |words: &[&str]| shown(&Command::Argv(words.iter().map(|w| (*w).to_owned()).collect()));
        assert_eq!(argv(&["systemctl", "is-active", "nginx"]), "systemctl is-active nginx");
        assert_eq!(argv(&["echo", "a b", "", "it's"]), r"echo 'a b' '' 'it'\''s'");
        assert_eq!(shown(&Command::Shell("a | b".to_owned())), "a | b");
        assert!(!argv(&["echo", "\u{1b}[31m"]).contains('\u{1b}'));
        assert!(argv(&["x".repeat(10_000).as_str()]).chars().count() <= SHOWN + 1);
    }

    #[test]
    fn the_end_of_a_command_shows_its_time_and_cut_output() {
        let end = |exit, took_ms, cut| RunEnd { exit, took_ms, cut }.to_string();
        assert_eq!(end(RunExit::Exited(3), Some(1200), None), "exit status 3 after 1.2 s");
        assert_eq!(
            end(RunExit::TimedOut, Some(2000), Some(7)),
            "ended at its time limit after 2.0 s, output cut off: 7 bytes printed"
        );
        assert_eq!(end(RunExit::NotStarted("x: not found".to_owned()), None, None), "not started: x: not found");
    }

    #[test]
    fn records_and_events_are_read_back() {
        let run = RunId::of(7);
        let end = RunEnd { exit: RunExit::Signal(9), took_ms: Some(3), cut: Some(1) };
        let begun = RunRecord::Begun { run, line: "id".to_owned(), user: Some("ann".to_owned()) };
        for record in [begun, RunRecord::Ended { run, end: end.clone() }] {
            let bytes = crate::codec::encode_packed(&record).expect("encodes");
            assert_eq!(crate::codec::decode::<RunRecord>(&bytes, 4096).expect("decodes"), record);
        }
        let host = HostName::new("web1").expect("a name");
        for event in [RunEvent::Begun { host, run }, RunEvent::Out("a\n".to_owned()), RunEvent::Ended(end)] {
            let text = serde_json::to_string(&event).expect("text");
            assert_eq!(serde_json::from_str::<RunEvent>(&text).expect("read"), event, "{text}");
        }
    }
}
