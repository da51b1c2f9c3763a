//! The kind `augeas`: values of a configuration file that others own, by a lens of Augeas.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint, Place, Scalar};

/// The most paths of a change object.
const MAX_PATHS: usize = 500;
/// The longest path in a tree.
const MAX_PATH: usize = 1000;
/// The longest value.
const MAX_VALUE: usize = 64 << 10;

/// The content of `augeas`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Augeas {
    /// The file: an absolute path.
    pub path: String,
    /// The lens that reads the file: `Sshd` or `Sshd.lns`; default: the lens that Augeas uses for this path.
    pub lens: Option<String>,
    /// The values by path in the tree of the file: `{Port: 2222}`; null: a node without a value.
    #[serde(default)]
    pub set: AugeasValues,
    /// The paths that must have no node.
    #[serde(default)]
    pub absent: Vec<String>,
    /// A path: new nodes go above the first node that it finds.
    pub before: Option<String>,
    /// A file that is missing is made.
    #[serde(default)]
    pub create: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// Values by path, in their order: a mapping, or a list of mappings if the order of new nodes counts.
#[derive(Debug, Clone, Default)]
pub struct AugeasValues(Vec<(String, Option<Scalar>)>);

impl Content for Augeas {
    const KIND: Builtin = Builtin::setting("augeas");

    fn check(&self, faults: &mut Faults) {
        super::edits::check_path(&self.path, self.root.as_ref(), faults);
        if let Some(lens) = self.lens.as_ref().filter(|lens| !is_lens(lens)) {
            let what = format!("{lens:?} is not the name of a lens");
            faults.add("lens", what, "write the module, as in `Sshd`, or module and lens, as in `Sshd.lns`");
        }
        if self.set.0.is_empty() && self.absent.is_empty() {
            faults.add("set", "no path is given", "write `set: {PATH: VALUE}` or `absent: [PATH]`");
        }
        if self.set.0.len() + self.absent.len() > MAX_PATHS {
            faults.add("set", format!("there are more than {MAX_PATHS} paths"), "use several change objects");
        }
        let mut seen = BTreeSet::new();
        let set = self.set.0.iter().map(|(path, _)| ("set", path));
        for (key, path) in set.chain(self.absent.iter().map(|path| ("absent", path))) {
            let place = Place::Part(key, path.clone());
            if let Err((what, help)) = check_tree_path(path) {
                faults.add(place, what, help);
            } else if !seen.insert(path) {
                faults.add(place, format!("{path:?} is there twice"), "name each path once");
            }
        }
        if let Some(Err((what, help))) = self.before.as_deref().map(check_tree_path) {
            faults.add("before", what, help);
        }
        for absent in &self.absent {
            if let Some((path, _)) = self.set.0.iter().find(|(path, _)| is_below(path, absent)) {
                let what = format!("{absent:?} must not exist, and {path:?} is below it");
                faults.add(Place::Part("absent", absent.clone()), what, "remove the key from `set` or from `absent`");
            }
        }
        for (path, value) in &self.set.0 {
            if let Err((what, help)) = value.as_ref().map_or(Ok(()), check_value) {
                faults.add(Place::Value("set", path.clone()), what, help);
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let mut footprint = Footprint::default().with_shared(&[&self.path]);
        let paths = self.set.0.iter().map(|(path, _)| path).chain(&self.absent);
        let name = |path: &String| {
            let parts = tree_parts(path).unwrap_or_default();
            let plain: Vec<String> = parts.iter().map(|part| Subject::plain_part(part)).collect();
            format!("{}: {}", self.path, plain.join("."))
        };
        let names: BTreeSet<String> = paths.map(name).collect();
        footprint.parts.extend(names.into_iter().map(|name| Subject { sort: Subject::KEY, name }));
        footprint
    }
}

impl AugeasValues {
    /// The paths with their values as texts, in their order. `None` in place of a text: a node without a value.
    ///
    /// # Errors
    /// The fault of a value, as text.
    pub fn texts(&self) -> Result<Vec<(String, Option<String>)>, String> {
        let text = |value: &Scalar| text_of(value).map_err(|(what, help)| format!("content: {what}; {help}"));
        let pair = |(path, value): &(String, Option<Scalar>)| Ok((path.clone(), value.as_ref().map(text).transpose()?));
        self.0.iter().map(pair).collect()
    }
}

impl<'de> Deserialize<'de> for AugeasValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValuesVisitor)
    }
}

impl JsonSchema for AugeasValues {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "AugeasValues".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let map = generator.subschema_for::<BTreeMap<String, Scalar>>();
        json_schema!({"x-what": "a mapping of paths to values, or a list of such mappings", "anyOf": [
            map, {"type": "array", "items": map, "minItems": 1},
        ]})
    }
}

struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = AugeasValues;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of paths to values, or a list of such mappings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AugeasValues, A::Error> {
        let mut values = Vec::new();
        while let Some(pair) = map.next_entry()? {
            values.push(pair);
        }
        Ok(AugeasValues(values))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<AugeasValues, A::Error> {
        let mut values = Vec::new();
        while let Some(map) = items.next_element::<BTreeMap<String, Option<Scalar>>>()? {
            values.extend(map);
        }
        Ok(AugeasValues(values))
    }
}

fn is_lens(lens: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (module, rest) = lens.split_once('.').unwrap_or((lens, "lns"));
    is_name(module) && is_name(rest) && module.starts_with(|c: char| c.is_ascii_uppercase())
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn text_of(value: &Scalar) -> Result<String, (String, String)> {
    value.text("set", Some(["false", "true"]))
}

fn check_value(value: &Scalar) -> Result<(), (String, String)> {
    let text = text_of(value)?;
    if text.len() > MAX_VALUE || text.contains(|c: char| c.is_control() && c != '\t' && c != '\n') {
        let what = format!("a value has control characters, or more than {MAX_VALUE} bytes");
        return Err((what, "write a text of letters, blanks, tabs and line ends".to_owned()));
    }
    Ok(())
}

/// Checks a path expression: it stays in the tree of the file, and finds the node that it makes.
fn check_tree_path(path: &str) -> Result<(), (String, String)> {
    let fault = |what: &str, help: &str| {
        Err((format!("{path:?} is not a path in the tree of the file: {what}"), help.to_owned()))
    };
    if path.is_empty() || path.len() > MAX_PATH || path.chars().any(char::is_control) {
        return fault("it is empty, too long, or has control characters", "write it as `augtool print` shows it");
    }
    let Some(parts) = tree_parts(path) else {
        return fault("a bracket or a quote is open", "for example `seq::*[ipaddr = '10.0.0.1']/canonical`");
    };
    if parts.iter().any(String::is_empty) {
        return fault("a part is empty", "write it below the file, without a slash at its beginning and end");
    }
    let bare = without_quotes(path);
    if parts.iter().any(|part| part.trim() == "..") || bare.replace("seq::", "").contains("::") || bare.contains('|') {
        return fault("it can lead out of the file", "write it without `..`, `|` and `::` (apart from `seq::`)");
    }
    let packed: String = bare.chars().filter(|c| !c.is_whitespace()).collect();
    if packed.contains("last()+") {
        return fault("each attempt would make a further node", "name the node by its value, or by a new number");
    }
    let has_blank = |part: &String| outside_of_brackets(part).replace("\\ ", "").contains(char::is_whitespace);
    if parts.iter().any(has_blank) {
        return fault("it has a blank outside of brackets", "write a blank in a name as `\\ `");
    }
    Ok(())
}

/// The path without the texts in quotes.
fn without_quotes(path: &str) -> String {
    let (mut bare, mut quote) = (String::new(), None);
    for c in path.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None => bare.push(c),
        }
    }
    bare
}

fn outside_of_brackets(part: &str) -> String {
    let mut depth = 0_usize;
    let outside = |c: &char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    };
    without_quotes(part).chars().filter(outside).collect()
}

/// The parts of a path expression, which slashes outside of brackets and quotes divide. `None`: a bracket or quote is
/// open.
#[must_use]
pub fn tree_parts(path: &str) -> Option<Vec<String>> {
    let (mut parts, mut depth, mut quote, mut is_escaped) = (vec![String::new()], 0_usize, None, false);
    for c in path.chars() {
        let is_plain = std::mem::take(&mut is_escaped);
        match (quote, c) {
            _ if is_plain => {}
            (None, '\\') => is_escaped = true,
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => {
                // A quote outside of brackets would be removed by the program.
                if depth == 0 {
                    return None;
                }
                quote = Some(c);
            }
            (None, '[') => depth += 1,
            (None, ']') => depth = depth.checked_sub(1)?,
            (None, '/') if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            (Some(_) | None, _) => {}
        }
        parts.last_mut()?.push(c);
    }
    (depth == 0 && quote.is_none() && !is_escaped).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_parts() {
        for (path, parts) in [
            ("Port", Some(&["Port"][..])),
            ("Match[1]/Settings/PermitTTY", Some(&["Match[1]", "Settings", "PermitTTY"])),
            ("*[ipaddr = '10.0/8']/a\\/b", Some(&["*[ipaddr = '10.0/8']", "a\\/b"])),
            ("a[b[1]/c]/d", Some(&["a[b[1]/c]", "d"])),
            ("a[", None),
            ("a]", None),
            ("a['x]", None),
            ("a\"b", None),
            ("a\\", None),
        ] {
            let parts = parts.map(|parts| parts.iter().map(|part| (*part).to_owned()).collect());
            assert_eq!(tree_parts(path), parts, "{path}");
        }
        for path in [
            "../x",
            "a/../x",
            "/augeas",
            "a|/augeas",
            "parent::*",
            "a[last() + 1]",
            "a/",
            "a b",
            "",
            "a[",
            "x\n",
            "a[1] b",
        ] {
            assert!(check_tree_path(path).is_err(), "{path}");
        }
        for path in ["a[b = '../x|y::']", "a\\ b", "*[. = 'a b']/c", "AcceptEnv/3", "seq::*[a = 'b']/c", "a[last()]"] {
            assert_eq!(check_tree_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn values_keep_the_order_of_a_list() {
        let list = r#"{"path":"/etc/hosts","set":[{"b":"1"},{"a":null},{"d":true,"c":2}]}"#;
        let content: Augeas = crate::read(list).expect("good");
        let texts = content.set.texts().expect("texts");
        let pair = |path: &str, value: Option<&str>| (path.to_owned(), value.map(str::to_owned));
        assert_eq!(texts, [pair("b", Some("1")), pair("a", None), pair("c", Some("2")), pair("d", Some("true"))]);
        let error = crate::read::<Augeas>(r#"{"path":"/x","set":"Port 22"}"#).expect_err("a text");
        assert!(error.contains("a mapping of paths to values"), "{error}");
    }
}
