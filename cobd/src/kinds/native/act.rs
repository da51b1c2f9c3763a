//! The process of a native kind: reads a call and answers it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cob_types::StateName;

use super::{Answer, Call, Made, Native};
use crate::kinds::registry;

/// The longest difference: an answer must fit into a result.
const MAX_DIFFERENCE: usize = 16 << 10;

/// Answers a call, in the process that was executed for it. Its output is shown to users.
pub(crate) fn act(call: &OsStr) -> ExitCode {
    let (Some(content), Some(answer), Some(own)) =
        (variable("COB_CONTENT"), variable("COB_RESULT_OUT"), variable("COB_STATE_DIR"))
    else {
        // A user started the program by hand.
        return ExitCode::from(2);
    };
    let said = read(call, &content, own).and_then(|call| Ok(answer_to(known(&call)?, &call)));
    let said = said.unwrap_or_else(Answer::Failed);
    let failed = matches!(said, Answer::Failed(_) | Answer::FailedBeside { .. });
    let written = serde_json::to_vec(&said).map_err(std::io::Error::other).and_then(|bytes| fs::write(&answer, bytes));
    if failed || written.is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn read(call: &OsStr, content: &Path, own: PathBuf) -> Result<Call, String> {
    let text = call.to_str().ok_or("the call is not text")?;
    let call: Call = serde_json::from_str(text).map_err(|e| format!("the call can't be read: {e}"))?;
    let content = fs::read_to_string(content).map_err(|e| format!("{}: {e}", content.display()))?;
    let cob = std::env::var("COB_ID").unwrap_or_default();
    Ok(Call { content, cob, own, ..call })
}

fn known(call: &Call) -> Result<&'static dyn Native, String> {
    registry::native(&call.backend).ok_or_else(|| format!("there is no kind {:?} that acts by itself", call.backend))
}

/// Does the work of a call.
pub(super) fn answer_to(native: &dyn Native, call: &Call) -> Answer {
    match &call.attempt {
        Some(attempt) => match native.make(call, attempt) {
            Made { result: Ok(exports), touched } => Answer::Done { exports, touched },
            Made { result: Err(why), touched } if touched.is_empty() => Answer::Failed(why),
            Made { result: Err(why), touched } => Answer::FailedBeside { why, touched },
        },
        None => native.check(call).map_or_else(Answer::Failed, |found| Answer::Found {
            state: StateName::new(found.state).expect("a kind's states are well formed"),
            difference: cut(found.difference),
            exports: found.exports,
        }),
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_DIFFERENCE {
        let end = (0..=MAX_DIFFERENCE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push_str("\n… (longer)");
    }
    text
}
