//! The process between the runner and a plug-in. It sends the message and validates the reply.

use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use cob_types::StateName;
use cob_types::message::Values;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::protocol::{Ask, MAX_REPLY, Reply};
use crate::run::exchange;
use crate::run::supervise::{why_not_begun, words};

/// The longest difference in characters; a longer text is cut.
const MAX_DIFFERENCE: usize = 16 << 10;
/// The longest answer that fits into a result.
const MAX_ANSWER: usize = 64 << 10;

/// The task of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) ask: Ask,
    pub(super) command: cob_types::Command,
    pub(super) states: Vec<StateName>,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Found { state: StateName, difference: String, exports: Values },
    Done { exports: Values, saved: Option<String> },
    Failed(String),
}

/// Calls the plug-in, in the process that was executed for the call.
pub(crate) fn call(call: &OsStr) -> ExitCode {
    let Some(out) = std::env::var_os("COB_RESULT_OUT").map(PathBuf::from) else {
        // A user started the program by hand.
        return ExitCode::from(2);
    };
    let read = call.to_str().and_then(|text| serde_json::from_str::<Call>(text).ok());
    let said = read.ok_or_else(|| "the call can't be read".to_owned()).and_then(|call| answer(&call));
    let mut said = said.unwrap_or_else(|why| Answer::Failed(format!("plug-in: {why}")));
    let mut bytes = serde_json::to_vec(&said).unwrap_or_default();
    if bytes.len() > MAX_ANSWER {
        said = Answer::Failed(format!("plug-in: its replies have more than {MAX_ANSWER} bytes"));
        bytes = serde_json::to_vec(&said).unwrap_or_default();
    }
    let written = fs::write(out, bytes);
    if written.is_err() || matches!(said, Answer::Failed(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn answer(call: &Call) -> Result<Answer, String> {
    let (about, saved) = (about()?, saved());
    if call.ask == Ask::Check {
        // Detects that the plug-in was replaced by another plug-in.
        speak(call, &Ask::Describe.message(&about, None))?.described(&call.states)?;
    }
    let reply = speak(call, &call.ask.message(&about, saved.as_deref()))?;
    Ok(match call.ask {
        Ask::Describe | Ask::Check => {
            let found = reply.checked()?;
            let state = call.states.iter().find(|s| **s == *found.state.as_str()).cloned().ok_or_else(|| {
                let known = call.states.iter().map(StateName::as_str).collect::<Vec<_>>().join(", ");
                let said = found.state.chars().take(80).collect::<String>();
                format!("it replied the state {said:?}, which its kind does not have ({known})")
            })?;
            let difference = found.difference.chars().take(MAX_DIFFERENCE).collect();
            Answer::Found { state, difference, exports: found.exports }
        }
        Ask::Transition(_) | Ask::Revert(_) => {
            let moved = reply.moved()?;
            Answer::Done { exports: moved.exports, saved: moved.saved }
        }
    })
}

/// The fields that are common to all messages.
fn about() -> Result<Map<String, Value>, String> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let json_of = |variable_name: &str| -> Result<Value, String> {
        let path = variable(variable_name);
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
    };
    let content = json_of("COB_CONTENT")?;
    let mut about = Map::new();
    about.insert("cob".to_owned(), json!(variable("COB_ID")));
    about.insert("host".to_owned(), json!(variable("COB_HOST")));
    about.insert("generation".to_owned(), json!(variable("COB_GENERATION").parse::<u64>().unwrap_or_default()));
    about.insert("state_dir".to_owned(), json!(variable("COB_STATE_DIR")));
    about.insert("config".to_owned(), content.get("config").cloned().unwrap_or(Value::Null));
    about.insert("imports".to_owned(), json_of("COB_IMPORTS_FILE")?);
    Ok(about)
}

/// The saved data of the transition that this call reverts.
fn saved() -> Option<String> {
    fs::read_to_string(std::env::var_os("COB_RESULT_FILE")?).ok()
}

/// Sends one message and reads one reply.
fn speak(call: &Call, message: &str) -> Result<Reply, String> {
    let words = words(&call.command);
    let (program, arguments) = words.split_first().ok_or("its command is empty")?;
    let folder = std::env::current_dir().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    // A plug-in answers only by its reply.
    command.env_remove("COB_RESULT_OUT").env_remove("COB_EXPORT_OUT");
    let mut child = command.spawn().map_err(|error| why_not_begun(&words, &folder, &error))?;
    let text = reply(&mut child, message);
    if text.is_err()
        && let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    {
        // The output of the plug-in and its children is no longer read.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let reply = text.and_then(|text| Reply::read(&text));
    match (reply, status.code()) {
        (Ok(reply), Some(0)) => Ok(reply),
        (Err(why), Some(0)) => Err(why),
        (Err(why), Some(code)) => Err(format!("{why} (exit status {code})")),
        (Ok(_), Some(code)) => Err(format!("it ended with exit status {code}; its reply does not count")),
        (Err(why), None) => Err(why),
        (Ok(_), None) => Err("it was ended by a signal; its reply does not count".to_owned()),
    }
}

/// The output of the plug-in up to its end. Background processes may keep the output open longer.
fn reply(child: &mut Child, message: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let said = exchange(child, message.as_bytes(), &mut |_, part| {
        bytes.extend_from_slice(part);
        if bytes.len() > MAX_REPLY { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    said.map_err(|error| format!("its reply can't be read: {error}"))?;
    if bytes.len() > MAX_REPLY {
        return Err(format!("its reply is longer than {MAX_REPLY} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "its reply is not UTF-8".to_owned())
}
