//! The example of CONTRIBUTING.md: the kind `hostname` is defined here, registered in test builds, and tried.

use std::path::PathBuf;

use cob_kinds::{Builtin, Content, Faults, Footprint};
use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Setting, Spec};
use crate::kinds::native::Host;

/// The content of `hostname`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hostname {
    /// The name, without a domain.
    pub name: String,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Hostname {
    /// The file that sets the name at boot.
    pub const FILE: &'static str = "/etc/hostname";
}

impl Content for Hostname {
    const KIND: Builtin = Builtin::setting("hostname");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 63 || !self.name.chars().all(fits) {
            let what = format!("{:?} is not the name of a host", self.name);
            faults.add("name", what, "small letters, digits and hyphens, at most 63");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("host name in", Self::FILE).with_own([Self::FILE.to_owned()])
    }
}

/// The back end `hostname`.
#[derive(Debug)]
pub(super) struct HostnameSetting;

/// The desired file.
#[derive(Debug)]
struct NameFile {
    host: Host,
    text: String,
}

impl Setting for HostnameSetting {
    type Content = Hostname;

    fn spec(&self, content: Hostname, _cob: &str) -> Result<Box<dyn Spec>, String> {
        let host = Host::below(content.root.as_deref())?;
        Ok(Box::new(NameFile { host, text: format!("{}\n", content.name) }))
    }
}

impl Spec for NameFile {
    fn host(&self) -> &Host {
        &self.host
    }

    fn target(&self) -> String {
        Hostname::FILE.to_owned()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        Ok(self.host.read_if_there(Hostname::FILE)?.map(Value::from))
    }

    fn wanted(&self) -> Value {
        json!(self.text)
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        self.host.write(Hostname::FILE, &self.text, 0o644)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        match before.and_then(Value::as_str) {
            Some(text) => self.host.write(Hostname::FILE, text, 0o644),
            None => self.host.remove(Hostname::FILE),
        }
    }
}

#[cfg(test)]
mod tests {
    use cob_kinds::{Entry, Place};

    use super::super::tests::{content, host};
    use super::*;
    use crate::kinds::contract::Case;
    use crate::kinds::contract::tests::holds;

    #[test]
    fn contributing_shows_this_code() {
        let page = include_str!("../../../../CONTRIBUTING.md");
        let code = include_str!("example_test.rs");
        let start = |begin: &str| code.find(begin).expect("a part of the example");
        let [definition, setting] = ["/// The content of `hostname`.", "/// The back end `hostname`."].map(start);
        for part in [&code[definition..setting], &code[setting..start("#[cfg(test)]")]] {
            assert!(page.contains(part.trim_end()), "CONTRIBUTING.md should show:\n{part}");
        }
    }

    #[test]
    fn cobgen_finds_faults_and_owners() {
        let entry = Entry::of::<Hostname>();
        assert_eq!(entry.schema().expect("a schema")["required"], json!(["name"]));
        let faults = entry.check(&json!({"name": "Web 1", "root": "srv"})).expect("of the right form");
        let places: Vec<_> = faults.iter().map(|fault| fault.place.clone()).collect();
        assert_eq!(places, [Place::Key("root"), Place::Key("name")]);
        assert!(entry.check(&json!({"nmae": "web1"})).is_err());
        let cob = CobId::new("n1/name").expect("an id");
        assert_eq!(entry.footprint(&json!({"name": "web1"}), &cob).files[0].path, Hostname::FILE);
    }

    #[tokio::test]
    async fn it_keeps_the_contract() {
        let host = host(&[("etc/hostname", "theirs\n")]);
        let [own, other] = ["web1", "web2"].map(|name| content(host.path(), &format!(r#""name":"{name}""#)));
        let case = Case::new(Hostname::KIND.kind(), &own).other(&other).watching(host.path()).kills(4);
        holds(&case, &[]).await;
    }
}
