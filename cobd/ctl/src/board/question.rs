//! The questions of the board: commands whose answers are not a part of the status.

use cob_forecast::SwitchPlan;
use cob_types::history::HistoryEntry;
use cob_types::{CobId, GenerationNumber};
use serde::Deserialize as _;
use serde_json::Value;

use crate::page::question::{Line, Values, question};
use crate::page::worker::Answer;
use crate::words::{clean, clean_lines};

/// The number of shown entries of a history.
const ENTRIES: usize = 100;

/// A question, answered by a command as for `cobctl page`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// The output of the last action or check.
    Output(CobId),
    /// The history of a change object.
    History(CobId),
    /// The forecast of the rest of a switch.
    Plan(GenerationNumber),
    /// The entries of the last switch to a generation.
    Replay(GenerationNumber),
}

impl Question {
    /// The command line. Absent: the question is not of the page.
    pub(crate) fn line(&self) -> Option<Line> {
        let (name, values) = match self {
            Self::Output(cob) => ("output", vec![("cob", cob.to_string())]),
            Self::History(cob) => ("history", vec![("cob", cob.to_string()), ("limit", ENTRIES.to_string())]),
            Self::Plan(to) => ("plan", vec![("generation", to.to_string())]),
            Self::Replay(to) => ("replay", vec![("generation", to.to_string())]),
        };
        let values: Values = values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        question(name, &values)?.ok()
    }

    /// The least time between two questions, in milliseconds: plans and replays read whole histories.
    pub(crate) fn pause_ms(&self) -> u64 {
        match self {
            Self::Output(_) => 500,
            Self::History(_) => 1000,
            Self::Replay(_) => 2000,
            Self::Plan(_) => 3000,
        }
    }
}

/// A question that was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// A hash of the inputs of the answer: with another hash the question is asked again.
    pub of: u64,
    /// The answer is still to come.
    pub is_pending: bool,
    /// The last answer, and when its question was asked.
    pub answer: Option<(u64, Told)>,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    /// The lines of an output.
    Output(Vec<String>),
    /// The entries of a history or a replay.
    Entries(Vec<HistoryEntry>),
    /// A forecast.
    Plan(Box<SwitchPlan>),
    /// The command has failed, and why.
    Failed(String),
}

impl Told {
    /// The answer of the command of a question.
    pub(crate) fn of(question: &Question, answer: &Answer) -> Self {
        if let Some(failure) = &answer.failure {
            let text = |value: &Value| value.as_str().map(clean);
            let causes = failure["causes"].as_array().into_iter().flatten().filter_map(text);
            let parts: Vec<String> = text(&failure["error"]).into_iter().chain(causes).collect();
            return Self::Failed(parts.join(": "));
        }
        let documents = || answer.answer.as_array().into_iter().flatten();
        match question {
            Question::Output(_) => {
                let text = answer.answer["output"].as_str().map(clean_lines).unwrap_or_default();
                Self::Output(text.lines().map(|line| line.replace('\t', "    ")).collect())
            }
            Question::History(_) | Question::Replay(_) => {
                Self::Entries(documents().filter_map(|entry| HistoryEntry::deserialize(entry).ok()).collect())
            }
            Question::Plan(_) => match SwitchPlan::deserialize(&answer.answer) {
                Ok(plan) => Self::Plan(Box::new(plan)),
                Err(_) => Self::Failed("the forecast can't be read".to_owned()),
            },
        }
    }
}

impl Asked {
    /// Why there is no answer, if the command has failed.
    pub(crate) fn failure(&self) -> Option<&str> {
        match &self.answer {
            Some((_, Told::Failed(why))) => Some(why),
            Some((_, Told::Output(_) | Told::Entries(_) | Told::Plan(_))) | None => None,
        }
    }
}
