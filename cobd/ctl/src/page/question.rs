//! The browser's questions and orders, as command lines of `cobctl` and `cobgen`.
//!
//! Every part of a command line is a word of this file or a value that was read as what it stands for, so that no value
//! can be taken for an option.

use std::collections::BTreeMap;
use std::str::FromStr;

use cob_types::{CobId, GenerationNumber};
use serde::Deserialize;

use crate::args::Which;
use crate::past::moment::Moment;

/// The most entries of a history.
const ENTRIES: usize = 2000;
/// The number of entries, unless the question has another one.
const USUAL: usize = 200;
/// The longest value.
const LONGEST: usize = 4096;

/// The program of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The operator's tool.
    Cobctl,
    /// The generator, which gets the model and the depot besides the words.
    Cobgen,
}

impl Program {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cobctl => "cobctl",
            Self::Cobgen => "cobgen",
        }
    }
}

/// A command line without the program's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its program.
    pub program: Program,
    /// Its words.
    pub words: Vec<String>,
    /// Its answer is a list of documents, also if there is only one.
    pub many: bool,
}

impl Line {
    fn of<const N: usize>(words: [&str; N]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { program: Program::Cobctl, words, many: false }
    }

    fn by(self, program: Program) -> Self {
        Self { program, ..self }
    }

    fn with(mut self, word: impl ToString) -> Self {
        self.words.push(word.to_string());
        self
    }

    fn many(self) -> Self {
        Self { many: true, ..self }
    }
}

/// The values of a question.
pub(crate) type Values = BTreeMap<String, String>;

/// The command line of a question; `None`: there is no such question.
///
/// # Errors
/// The fault of a value.
pub(crate) fn question(name: &str, values: &Values) -> Option<Result<Line, String>> {
    let what = |key| value::<Which>(values, key, "a host or a change object");
    let cob = |key| value::<CobId>(values, key, "a change object");
    let generation = || value::<u64>(values, "generation", "a number");
    let number = |key, usual: usize, most: usize| match values.get(key) {
        Some(_) => value::<usize>(values, key, "a number").map(|n| n.min(most)),
        None => Ok(usual),
    };
    Some(match name {
        "explain" => what("what").map(|what| Line::of(["explain"]).with(what)),
        "output" => cob("cob").map(|cob| Line::of(["output"]).with(cob)),
        "diff" if values.contains_key("cob") => cob("cob").map(|cob| Line::of(["diff"]).with(cob)),
        "diff" => Ok(Line::of(["diff"])),
        "plan" => generation().map(|n| Line::of(["plan"]).with(n)),
        "replay" => generation().map(|n| Line::of(["replay", "--all"]).with(n).many()),
        "changes" => Ok(Line::of(["diff", "--json"]).by(Program::Cobgen)),
        "outcomes" => Ok(Line::of(["outcomes"])),
        "whoami" => Ok(Line::of(["trust", "whoami"])),
        "at" => value::<Moment>(values, "time", "a moment").map(|_| Line::of(["at"]).with(&values["time"])),
        "logs" => cob("cob").and_then(|cob| {
            let lines = number("lines", USUAL, ENTRIES)?;
            Ok(Line::of(["logs"]).with(cob).with("--lines").with(lines))
        }),
        "history" => number("limit", USUAL, ENTRIES).and_then(|last| {
            let line = Line::of(["history", "--moves", "--last"]).with(last).many();
            if values.contains_key("cob") { Ok(line.with("--cob").with(cob("cob")?)) } else { Ok(line) }
        }),
        "stop-plan" | "start-plan" | "restart-plan" => {
            let order = name.trim_end_matches("-plan");
            named(values.get("what").map_or("", String::as_str)).map(|what| Line::of([order, what, "--plan"]))
        }
        _ => return None,
    })
}

/// A value of a question, read as what it stands for.
fn value<T: FromStr>(values: &Values, key: &str, what: &str) -> Result<T, String> {
    let text = values.get(key).ok_or_else(|| format!("`{key}` is missing: {what}"))?;
    if text.len() > LONGEST || text.starts_with('-') {
        return Err(format!("`{key}` is not {what}"));
    }
    text.parse().map_err(|_| format!("`{key}` is {text:?}, which is not {what}"))
}

/// The name of a service, a cluster, a host or a change object.
fn named(name: &str) -> Result<&str, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "/._-:@".contains(c);
    if name.is_empty() || name.len() > LONGEST || name.starts_with('-') || !name.chars().all(is_name) {
        return Err(format!("{name:?} is not the name of a service, a host or a change object"));
    }
    Ok(name)
}

/// An order, as the browser sends it.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Switch to a generation.
    Switch {
        /// The generation.
        to: GenerationNumber,
        /// Do not wait for maintenance windows.
        #[serde(default)]
        now: bool,
    },
    /// Back to an earlier generation.
    Rollback {
        /// The generation; absent: the one before.
        to: Option<GenerationNumber>,
    },
    /// Start no new transitions.
    Pause {},
    /// Start transitions again.
    Resume {},
    /// Cancel a switch.
    Cancel {
        /// The generation.
        generation: GenerationNumber,
    },
    /// Try failed change objects again.
    Retry {
        /// The change object; absent: all that have failed.
        what: Option<CobId>,
    },
    /// Stop a service, and what needs it.
    Stop {
        /// Its name.
        what: String,
    },
    /// Start it again.
    Start {
        /// Its name.
        what: String,
    },
    /// Restart it.
    Restart {
        /// Its name.
        what: String,
    },
    /// Check everything now.
    Check {},
    /// Decide a conflict.
    Resolve {
        /// The change object.
        cob: CobId,
        /// The file; absent: all in conflict.
        path: Option<String>,
        /// Whose lines stay.
        keep: Keep,
    },
    /// Publish the model as the next generation.
    Publish {
        /// Its description.
        message: String,
    },
}

/// Whose lines stay in a conflict.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keep {
    /// The lines of the model.
    Model,
    /// The lines on the host.
    Host,
}

impl Order {
    /// The command line.
    ///
    /// # Errors
    /// The fault of a value.
    pub(crate) fn line(&self) -> Result<Line, String> {
        Ok(match self {
            Order::Switch { to, now } => {
                let line = Line::of(["switch"]).with(to).with("--wait");
                if *now { line.with("--now") } else { line }
            }
            Order::Rollback { to: Some(to) } => Line::of(["rollback"]).with(to).with("--wait"),
            Order::Rollback { to: None } => Line::of(["rollback", "--wait"]),
            Order::Pause {} => Line::of(["pause"]),
            Order::Resume {} => Line::of(["resume"]),
            Order::Cancel { generation } => Line::of(["cancel"]).with(generation),
            Order::Retry { what: Some(cob) } => Line::of(["retry"]).with(cob).with("--wait"),
            Order::Retry { what: None } => Line::of(["retry", "--all", "--wait"]),
            Order::Stop { what } => Line::of(["stop", named(what)?, "--wait"]),
            Order::Start { what } => Line::of(["start", named(what)?, "--wait"]),
            Order::Restart { what } => Line::of(["restart", named(what)?, "--wait"]),
            Order::Check {} => Line::of(["check"]),
            Order::Resolve { cob, path, keep } => {
                let choice = match keep {
                    Keep::Model => "--theirs",
                    Keep::Host => "--ours",
                };
                let line = Line::of(["resolve", choice]).with(cob);
                match path {
                    Some(path) if path.len() > LONGEST => return Err("the path is too long".to_owned()),
                    Some(path) => line.with(format!("--path={path}")),
                    None => line,
                }
            }
            Order::Publish { message } if message.len() > LONGEST => {
                return Err("the description is too long".to_owned());
            }
            Order::Publish { message } => {
                Line::of(["generate"]).with(format!("--message={message}")).by(Program::Cobgen)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;

    fn asked(name: &str, of: &[(&str, &str)]) -> Result<Line, String> {
        let values = of.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        question(name, &values).unwrap_or_else(|| Err("no such question".to_owned()))
    }

    #[test]
    fn cobctl_accepts_every_command_line_of_the_page() {
        let asked = [
            asked("explain", &[("what", "n1")]),
            asked("explain", &[("what", "n1/db")]),
            asked("output", &[("cob", "n1/db")]),
            asked("diff", &[]),
            asked("diff", &[("cob", "n1/db")]),
            asked("plan", &[("generation", "7")]),
            asked("replay", &[("generation", "7")]),
            asked("outcomes", &[]),
            asked("whoami", &[]),
            asked("at", &[("time", "10m")]),
            asked("logs", &[("cob", "n1/db"), ("lines", "50")]),
            asked("history", &[]),
            asked("history", &[("cob", "n1/db"), ("limit", "7")]),
            asked("stop-plan", &[("what", "db")]),
            asked("start-plan", &[("what", "n1/db")]),
            asked("restart-plan", &[("what", "service:db")]),
        ];
        let orders = [
            r#"{"order":"switch","to":8}"#,
            r#"{"order":"switch","to":8,"now":true}"#,
            r#"{"order":"rollback"}"#,
            r#"{"order":"rollback","to":7}"#,
            r#"{"order":"pause"}"#,
            r#"{"order":"resume"}"#,
            r#"{"order":"cancel","generation":8}"#,
            r#"{"order":"retry"}"#,
            r#"{"order":"retry","what":"n1/db"}"#,
            r#"{"order":"stop","what":"db"}"#,
            r#"{"order":"start","what":"db"}"#,
            r#"{"order":"restart","what":"db"}"#,
            r#"{"order":"check"}"#,
            r#"{"order":"resolve","cob":"n1/web/site","path":"--edit","keep":"model"}"#,
            r#"{"order":"resolve","cob":"n1/web/site","keep":"host"}"#,
        ];
        let ordered = orders.map(|order| serde_json::from_str::<Order>(order).expect("an order").line());
        for line in asked.into_iter().chain(ordered) {
            let line = line.expect("a line");
            let words = std::iter::once("cobctl").chain(line.words.iter().map(String::as_str));
            assert!(Args::read(words).is_ok(), "{line:?}");
        }
    }

    #[test]
    fn the_generator_gets_the_model_from_the_server() {
        let changes = asked("changes", &[("model", "/etc")]).expect("a line");
        assert_eq!((changes.program, changes.words), (Program::Cobgen, vec!["diff".to_owned(), "--json".to_owned()]));
        let order = |text: &str| serde_json::from_str::<Order>(text).expect("an order").line();
        let publish = order(r#"{"order":"publish","message":"--sign-with=/x"}"#).expect("a line");
        assert_eq!(publish.words, ["generate", "--message=--sign-with=/x"]);
        assert_eq!(publish.program, Program::Cobgen);
        assert!(order(&format!(r#"{{"order":"publish","message":"{}"}}"#, "x".repeat(LONGEST + 1))).is_err());
    }

    #[test]
    fn a_value_is_never_an_option() {
        for (name, values) in [
            ("explain", [("what", "--help")]),
            ("output", [("cob", "-h")]),
            ("plan", [("generation", "-1")]),
            ("at", [("time", "--diff=1m")]),
            ("stop-plan", [("what", "--all")]),
            ("stop-plan", [("what", "a b")]),
        ] {
            assert!(asked(name, &values).is_err(), "{name} {values:?}");
        }
        for order in [r#"{"order":"stop","what":"--hosts=n1"}"#, r#"{"order":"start","what":""}"#] {
            assert!(serde_json::from_str::<Order>(order).expect("an order").line().is_err(), "{order}");
        }
        for order in
            [r#"{"order":"run","what":"id"}"#, r#"{"order":"pause","more":1}"#, r#"{"order":"switch","to":"x"}"#]
        {
            assert!(serde_json::from_str::<Order>(order).is_err(), "{order}");
        }
    }

    #[test]
    fn a_missing_value_is_named() {
        assert_eq!(asked("plan", &[]), Err("`generation` is missing: a number".to_owned()));
        assert!(question("passwords", &Values::new()).is_none());
    }
}
