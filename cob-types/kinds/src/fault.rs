//! Faults of contents, with their places inside the content.

use std::fmt;
use std::path::Path;

/// A fault of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The code of `cobgen`'s diagnostic.
    pub code: &'static str,
    /// The place.
    pub place: Place,
    /// The fault in words.
    pub what: String,
    /// The remedy.
    pub help: String,
    /// Whether the content is valid nevertheless.
    pub warning: bool,
}

/// A place in a content; `cobgen` shows its line and column in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The whole content.
    Content,
    /// The value of a key.
    Key(&'static str),
    /// Inside the value of a key: the item of a list with this text, or the key of a mapping.
    Part(&'static str, String),
    /// Inside the value of a key: the value of this key of a mapping.
    Value(&'static str, String),
    /// Inside the content: the keys of mappings and the numbers of items, from the outside to the inside.
    Path(Vec<String>),
}

/// The faults of a content, in the order of the checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl From<&'static str> for Place {
    fn from(key: &'static str) -> Self {
        Self::Key(key)
    }
}

impl From<(&'static str, &String)> for Place {
    fn from((key, part): (&'static str, &String)) -> Self {
        Self::Part(key, part.clone())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "content: {}", self.what)?;
        if self.help.is_empty() { Ok(()) } else { write!(f, "; {}", self.help) }
    }
}

impl Faults {
    /// Adds a fault.
    pub fn add(&mut self, place: impl Into<Place>, what: impl Into<String>, help: impl Into<String>) {
        self.add_as("bad-content", place, what, help);
    }

    /// Adds a fault with a code of its own.
    pub fn add_as(
        &mut self,
        code: &'static str,
        place: impl Into<Place>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(Fault { code, place: place.into(), what: what.into(), help: help.into(), warning: false });
    }

    /// Adds a warning.
    pub fn warn(
        &mut self,
        code: &'static str,
        place: impl Into<Place>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(Fault { code, place: place.into(), what: what.into(), help: help.into(), warning: true });
    }

    /// Checks that a path of the host is absolute.
    pub fn check_absolute(&mut self, key: &'static str, path: Option<impl AsRef<Path>>) {
        if path.is_some_and(|path| !path.as_ref().is_absolute()) {
            self.add(key, format!("`{key}` must be an absolute path"), "write it from the root, for example /srv/x");
        }
    }

    /// All faults and warnings.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    /// The first fault as text.
    ///
    /// # Errors
    /// The text, unless there are only warnings.
    pub fn first(&self) -> Result<(), String> {
        self.0.iter().find(|fault| !fault.warning).map_or(Ok(()), |fault| Err(fault.to_string()))
    }
}
