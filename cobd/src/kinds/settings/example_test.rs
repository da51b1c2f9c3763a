//! The example of CONTRIBUTING.md: the kind `motd` is defined here, registered in test builds, and tried.

use std::path::PathBuf;

use cob_kinds::{Builtin, Content, Faults, Footprint};
use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Entry, Spec};

/// The content of `motd`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Motd {
    /// The text.
    pub text: String,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Motd {
    /// The file that a login shows.
    pub const FILE: &'static str = "/etc/motd";

    /// The text of the file.
    #[must_use]
    pub fn file_text(&self) -> String {
        format!("{}\n", self.text.trim_end())
    }
}

impl Content for Motd {
    const KIND: Builtin = Builtin::setting("motd");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let is_shown = |c: char| !c.is_control() || c == '\n' || c == '\t';
        if self.text.trim().is_empty() || !self.text.chars().all(is_shown) {
            let what = format!("{:?} is not a text for a terminal", self.text);
            faults.add("text", what, "write lines without control characters");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("message in", Self::FILE).with_own([Self::FILE.to_owned()])
    }
}

/// The back end `motd`.
impl Spec for Entry<Motd> {
    fn target(&self) -> String {
        Motd::FILE.to_owned()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        Ok(self.host.read_if_there(Motd::FILE)?.map(Value::from))
    }

    fn wanted(&self) -> Value {
        json!(self.content.file_text())
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.host.write(Motd::FILE, &self.content.file_text(), 0o644)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        match before.and_then(Value::as_str) {
            Some(text) => self.host.write(Motd::FILE, text, 0o644),
            None => self.host.remove(Motd::FILE),
        }
    }
}

#[cfg(test)]
mod tests {
    use cob_kinds::Place;

    use super::super::tests::{content, host};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;

    #[test]
    fn contributing_shows_this_code() {
        let page = include_str!("../../../../CONTRIBUTING.md");
        let code = include_str!("example_test.rs");
        let start = |begin: &str| code.find(begin).expect("a part of the example");
        let [definition, setting] = ["/// The content of `motd`.", "/// The back end `motd`."].map(start);
        for part in [&code[definition..setting], &code[setting..start("#[cfg(test)]")]] {
            assert!(page.contains(part.trim_end()), "CONTRIBUTING.md should show:\n{part}");
        }
    }

    #[test]
    fn cobgen_finds_faults_and_owners() {
        let entry = cob_kinds::Entry::of::<Motd>();
        assert_eq!(entry.schema().expect("a schema")["required"], json!(["text"]));
        let faults = entry.check(&json!({"text": " ", "root": "srv"})).expect("of the right form");
        let places: Vec<_> = faults.iter().map(|fault| fault.place.clone()).collect();
        assert_eq!(places, [Place::Key("root"), Place::Key("text")]);
        assert!(entry.check(&json!({"txet": "web1"})).is_err());
        let cob = CobId::new("n1/motd").expect("an id");
        assert_eq!(entry.footprint(&json!({"text": "Welcome"}), &cob).files[0].path, Motd::FILE);
    }

    #[tokio::test]
    async fn the_example_setting_keeps_the_contract() {
        let host = host(&[("etc/motd", "theirs\n")]);
        let [own, other] = ["Welcome", "Good-bye"].map(|text| content(host.path(), &format!(r#""text":"{text}""#)));
        let case = Case::new(Motd::KIND.kind(), &own).other(&other).watching(host.path()).kills(4);
        holds(&case, &[]).await;
    }
}
