//! The messages to a plug-in, and the replies that it may give.

use cob_types::message::Values;
use cob_types::{StateName, canonical};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::kinds::backend::TransitionAttempt;

/// The version of the protocol.
pub(super) const VERSION: u64 = 1;
/// The longest reply, in bytes.
pub(super) const MAX_REPLY: usize = 48 << 10;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ask {
    /// The states that the plug-in knows.
    Describe,
    /// The state.
    Check,
    /// A transition.
    Transition(TransitionAttempt),
    /// The revert of a transition, with its saved data.
    Revert(TransitionAttempt),
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) state: String,
    pub(super) difference: String,
    pub(super) exports: Values,
}

/// The result of a transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) exports: Values,
    pub(super) saved: Option<String>,
}

/// All fields of a reply. A field that belongs to another call, or an unknown field, is an error that names it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reply {
    error: Option<String>,
    states: Option<Vec<String>>,
    state: Option<String>,
    difference: Option<String>,
    done: Option<bool>,
    saved: Option<String>,
    exports: Option<Map<String, Value>>,
}

impl Ask {
    fn word(&self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Check => "check",
            Self::Transition(_) => "transition",
            Self::Revert(_) => "revert",
        }
    }

    fn attempt(&self) -> Option<&TransitionAttempt> {
        match self {
            Self::Describe | Self::Check => None,
            Self::Transition(attempt) | Self::Revert(attempt) => Some(attempt),
        }
    }

    /// The message: one line. `about` are the fields of all calls except `describe`.
    pub(super) fn message(&self, about: &Map<String, Value>, saved: Option<&str>) -> String {
        let mut message = Map::new();
        message.insert("cob_plugin".to_owned(), json!(VERSION));
        message.insert("call".to_owned(), json!(self.word()));
        if *self != Self::Describe {
            message.extend(about.clone());
        }
        if let Some(attempt) = self.attempt() {
            message.insert("from".to_owned(), json!(attempt.from));
            message.insert("to".to_owned(), json!(attempt.to));
            message.insert("attempt".to_owned(), json!(attempt.attempt));
            message.insert("saved".to_owned(), json!(saved));
        }
        format!("{}\n", Value::Object(message))
    }
}

impl Reply {
    /// Reads the reply of a plug-in.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it sent no reply".to_owned());
        }
        // The version comes first: replies of other versions need not be readable.
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("its reply is not a single JSON object ({error}): {:?}", beginning(text)))?;
        let Value::Object(mut object) = value else {
            return Err(format!("its reply is no JSON object: {:?}", beginning(text)));
        };
        match object.remove("cob_plugin") {
            Some(version) if version.as_u64() == Some(VERSION) => {}
            Some(version) => {
                return Err(format!("it speaks version {version} of the protocol; this daemon speaks {VERSION}"));
            }
            None => return Err(format!("its reply lacks \"cob_plugin\": {VERSION}: {:?}", beginning(text))),
        }
        let reply: Self =
            serde_json::from_value(Value::Object(object)).map_err(|error| format!("its reply: {error}"))?;
        match reply.error {
            Some(why) if why.trim().is_empty() => Err("it replied an error without a message".to_owned()),
            Some(why) => Err(why),
            None => Ok(reply),
        }
    }

    /// The reply to `describe`: the plug-in must know at least these states.
    pub(super) fn described(self, wanted: &[StateName]) -> Result<(), String> {
        let known = self.states.ok_or_else(|| lacks("describe", "states"))?;
        match wanted.iter().find(|state| !known.iter().any(|k| **state == *k.as_str())) {
            Some(state) => Err(format!("it does not know the state {state}; it has {}", known.join(", "))),
            None => Ok(()),
        }
    }

    /// The reply to `check`.
    pub(super) fn checked(self) -> Result<Checked, String> {
        let state = self.state.ok_or_else(|| lacks("check", "state"))?;
        Ok(Checked { state, difference: self.difference.unwrap_or_default(), exports: values(self.exports) })
    }

    /// The reply to `transition` and `revert`.
    pub(super) fn moved(self) -> Result<Moved, String> {
        match self.done {
            Some(true) => Ok(Moved { exports: values(self.exports), saved: self.saved }),
            Some(false) => Err("it replied that it is not done, without a reason".to_owned()),
            None => Err(lacks("transition", "done")),
        }
    }
}

fn lacks(call: &str, key: &str) -> String {
    format!("its reply to {call} lacks {key:?}")
}

fn values(exports: Option<Map<String, Value>>) -> Values {
    exports.unwrap_or_default().into_iter().map(|(name, value)| (name, canonical::json(&value))).collect()
}

fn beginning(text: &str) -> String {
    text.trim().chars().take(80).collect()
}
