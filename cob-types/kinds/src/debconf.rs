//! The kind `debconf`: answers to the questions that packages of Debian ask.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cob_types::{CobId, secret};
use schemars::JsonSchema;
use serde::Deserialize;

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint, Package, Place, Scalar};

/// The content of `debconf`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Debconf {
    /// The package that asks the questions.
    pub package: String,
    /// The answers.
    pub answers: Vec<DebconfAnswer>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// An answer to a question.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DebconfAnswer {
    /// The name of the question, as `debconf-show PACKAGE` shows it.
    pub question: String,
    /// The type of the question.
    #[serde(rename = "type")]
    pub form: DebconfType,
    /// The answer; that of a password is a secret, as in `"{{ secret('db') }}"`.
    pub value: Scalar,
}

/// The type of a question that takes an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DebconfType {
    /// `true` or `false`.
    Boolean,
    /// Any of the choices, divided by a comma and a blank.
    Multiselect,
    /// A password: debconf keeps it in a file of root.
    Password,
    /// A single choice.
    Select,
    /// A line of text.
    String,
    /// A text, which packages only show.
    Text,
}

impl DebconfType {
    /// The word for it in debconf.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Multiselect => "multiselect",
            Self::Password => "password",
            Self::Select => "select",
            Self::String => "string",
            Self::Text => "text",
        }
    }
}

impl DebconfAnswer {
    /// The answer as text.
    ///
    /// # Errors
    /// The fault and its remedy, without the value.
    pub fn text(&self) -> Result<String, (String, String)> {
        let fault = |what: &str, help: &str| Err((format!("`value` {what}"), help.to_owned()));
        let text = self.value.text("value", Some(["false", "true"]))?;
        if text.chars().any(char::is_control) || text.ends_with('\\') {
            return fault("has control characters, or ends with a backslash", "write a single line");
        }
        if text.trim() != text {
            return fault("begins or ends with blanks", "remove the blanks, which debconf does not keep");
        }
        if self.form == DebconfType::Boolean && !["true", "false"].contains(&text.as_str()) {
            return fault("of a boolean is neither true nor false", "write true or false");
        }
        Ok(text)
    }
}

impl Content for Debconf {
    const KIND: Builtin = Builtin { interval_ms: Some(600_000), timeout_ms: 1_800_000, ..Builtin::setting("debconf") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        if let Err((what, help)) = Package::check_name(&self.package) {
            faults.add("package", what, help);
        }
        if self.answers.is_empty() {
            faults.add("answers", "there are no answers", "write `{question: …, type: …, value: …}`");
        }
        let mut seen = BTreeSet::new();
        for (number, answer) in self.answers.iter().enumerate() {
            let at = |key: &str| Place::Path(["answers", &number.to_string(), key].map(str::to_owned).to_vec());
            let name = &answer.question;
            if name.is_empty() || name.starts_with('#') || name.contains(|c: char| !c.is_ascii_graphic() || c == '\\') {
                let what = format!("{name:?} is not the name of a question");
                faults.add(at("question"), what, "write it as `debconf-show PACKAGE` shows it: postfix/mailname");
            } else if !seen.insert(name) {
                faults.add(at("question"), format!("{name} has two answers"), "remove either answer");
            }
            if let Err((what, help)) = answer.text() {
                faults.add(at("value"), what, help);
            } else if answer.form == DebconfType::Password && answer.text().is_ok_and(|text| is_open(&text)) {
                let what = format!("all readers of the model see the password of {name}");
                faults.warn("open-secret", at("value"), what, "write a secret: `\"{{ secret('NAME') }}\"`");
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let part = |answer: &DebconfAnswer| Subject { sort: "question of debconf", name: answer.question.clone() };
        Footprint { parts: self.answers.iter().map(part).collect(), ..Footprint::default() }
    }
}

/// Whether a password is not a secret of the model.
fn is_open(password: &str) -> bool {
    !password.is_empty() && secret::marks(password).next().is_none()
}
