//! Built-in kinds that act in a separate process: this program, executed again below the runner.
//!
//! An action on the host therefore outlives the daemon, has a timeout, and can be ended with all its child processes,
//! without a waiting thread in the daemon. A native kind implements [`Native`] with plain, synchronous code for checks
//! and transitions. [Short](Native::is_short) work is done in a thread of the daemon instead.
//!
//! ```text
//!   NativeKind (in the daemon) ── Call, as an argument ──> runner ──> act ──> Native
//!        │└──────── Answer, through COB_RESULT_OUT <──────────────────────────┘
//!        └─── Pool ──> Native
//! ```

mod act;
mod backend;
mod bytes;
mod home;
mod host;
mod imports;
pub(super) mod note;
mod peers;
mod shared;
mod turn;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_types::message::Values;
use cob_types::{CobId, StateName};
use serde::{Deserialize, Serialize};

use super::backend::TransitionAttempt;
use super::departure::Attempt;

pub(crate) use act::act;
pub(super) use backend::NativeKind;
pub(super) use bytes::{bytes_of, text_of};
pub(super) use home::{Account, Folder};
pub(super) use host::{Host, Ran, copy, has_program, inspect, needs_program, not_found, own_link, run_bounded};
pub(super) use imports::imported;
pub(super) use peers::Peers;
pub(super) use shared::{insert_line, lines};
pub(super) use turn::Turn;

/// The note of the original state, in a change object's own folder.
pub(super) const NOTE: &str = "before.json";

/// A built-in kind that acts in a separate process.
pub(super) trait Native: fmt::Debug + Send + Sync {
    /// The name of its back end.
    fn name(&self) -> &'static str;

    /// All states of the kind.
    fn states(&self) -> &'static [&'static str];

    /// Validates a content before its first use.
    ///
    /// # Errors
    /// The fault of the content, as text.
    fn accept(&self, content: &str) -> Result<(), String>;

    /// Finds out the state, without any change.
    ///
    /// # Errors
    /// The reason why the state is unknown.
    fn check(&self, call: &Call) -> Result<Found, String>;

    /// Whether it only reads and writes a few small files. Such work is done inside the daemon, and ends with it.
    fn is_short(&self) -> bool {
        false
    }

    /// Carries out a transition. Made twice, or killed and repeated, it ends as if made once.
    fn make(&self, call: &Call, attempt: &TransitionAttempt) -> Made;

    /// The name of the subject of a content, such as a package. Transitions of other change objects may change this
    /// subject. `None`: no transition changes the subject of another change object.
    fn subject(&self, _content: &str) -> Option<String> {
        None
    }

    /// The files in a change object's own folder that record the original state and its own effects.
    fn notes(&self) -> &'static [&'static str] {
        &[NOTE]
    }

    /// The work that is left after the departure of a change object with this own folder. `None`: no work.
    fn departed(&self, _own: &Path, _cob: &CobId) -> Option<Attempt> {
        None
    }

    /// The change object with this own folder is in the model: work of an earlier departure ends.
    ///
    /// # Errors
    /// The reason as text, with the file.
    fn is_here(&self, _own: &Path) -> Result<(), String> {
        Ok(())
    }
}

/// The result of a transition.
#[derive(Debug)]
pub(super) struct Made {
    /// The exported values, or the reason of the failure.
    pub(super) result: Result<Values, String>,
    /// The subjects of other change objects that it has changed.
    pub(super) touched: BTreeSet<String>,
}

impl From<Result<Values, String>> for Made {
    fn from(result: Result<Values, String>) -> Self {
        Self { result, touched: BTreeSet::new() }
    }
}

/// The task of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    backend: String,
    #[serde(rename = "hop")]
    attempt: Option<TransitionAttempt>,
    /// The time limit, after which the process is ended.
    timeout_ms: u64,
    /// The change object is in observe mode: state made by others counts like its own.
    #[serde(default)]
    pub(super) observed: bool,
    /// It departs from the model, and its effects shall not stay.
    #[serde(default)]
    pub(super) leaving: bool,
    /// The content, with the values of secrets.
    #[serde(skip)]
    pub(super) content: String,
    /// The change object.
    #[serde(skip)]
    pub(super) cob: String,
    /// Its own folder.
    #[serde(skip)]
    pub(super) own: PathBuf,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    state: &'static str,
    difference: String,
    exports: Values,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Found {
        state: StateName,
        difference: String,
        exports: Values,
    },
    Done {
        exports: Values,
        #[serde(default)]
        touched: BTreeSet<String>,
    },
    Failed(String),
    /// Failed, after other change objects were touched.
    FailedBeside {
        why: String,
        touched: BTreeSet<String>,
    },
}

impl Call {
    /// The time limit.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// The time limit in milliseconds.
    pub(super) fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }
}

impl Found {
    /// A state without difference.
    pub(super) fn state(state: &'static str) -> Self {
        Self { state, difference: String::new(), exports: Values::new() }
    }

    /// A state with a difference from the desired content.
    pub(super) fn differing(state: &'static str, difference: impl Into<String>) -> Self {
        Self { difference: difference.into(), ..Self::state(state) }
    }

    /// The exported values.
    pub(super) fn into_exports(self) -> Values {
        self.exports
    }

    /// Sets the exported values.
    pub(super) fn with_exports(self, exports: Values) -> Self {
        Self { exports, ..self }
    }

    /// Adds an exported value.
    pub(super) fn exporting(mut self, name: &str, value: &serde_json::Value) -> Self {
        self.exports.insert(name.to_owned(), cob_types::canonical::json(value));
        self
    }
}

/// Random bytes that nobody can guess.
///
/// # Errors
/// The system has none.
pub(super) fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(bytes)
}

/// A UUID of a version from these bytes (RFC 9562, section 4).
pub(super) fn new_uuid(version: u8, mut bytes: [u8; 16]) -> String {
    bytes[6] = (version << 4) | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    in_groups(&hex::encode(bytes))
}

/// The 32 hexadecimal digits of a UUID in their five groups. Another text stays as it is.
pub(super) fn in_groups(hex: &str) -> String {
    match [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| hex.get(group)) {
        [Some(a), Some(b), Some(c), Some(d), Some(e)] => [a, b, c, d, e].join("-"),
        _ => hex.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_an_earlier_daemon_keeps_its_transition() {
        let text = r#"{"backend":"line","hop":{"from":"absent","to":"present","attempt":2},"timeout_ms":1000}"#;
        let call: Call = serde_json::from_str(text).expect("a call");
        assert_eq!(call.attempt.map(|attempt| attempt.attempt), Some(2));
    }
}
