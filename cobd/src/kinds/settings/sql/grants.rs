//! The privileges of a role or user on objects of a server.
//!
//! The content has all privileges of the grantee on its objects. The note has the privileges found at first, by object.
//! A later object had no earlier privileges: it loses the privileges of the content when the change object leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};

use super::super::Spec;

/// Privileges on an object, in words of the server.
pub(in crate::kinds::settings) type Privileges = BTreeSet<String>;

/// The key of the note of a content that also covers later objects: the privileges that it has given.
pub(in crate::kinds::settings) const ALL: &str = "all";

/// An object with privileges.
#[derive(Debug, Clone)]
pub(in crate::kinds::settings) struct Object {
    /// Its name in statements, unique in the content.
    pub(in crate::kinds::settings) key: String,
    /// The privileges that the grantee has.
    pub(in crate::kinds::settings) held: Privileges,
    /// The privileges that the content gives. `None`: an earlier content was about the object.
    pub(in crate::kinds::settings) wanted: Option<Privileges>,
    /// The key of the rule from which an object that is made later has its first privileges.
    pub(in crate::kinds::settings) inherits: Option<String>,
}

/// The objects of a grant.
#[derive(Debug, Default)]
pub(in crate::kinds::settings) struct Found {
    /// The objects of the content and of the note.
    pub(in crate::kinds::settings) objects: Vec<Object>,
    /// The privileges that the content gives, in words of the server.
    pub(in crate::kinds::settings) given: Privileges,
    /// Named objects that do not exist, for people.
    pub(in crate::kinds::settings) missing: Vec<String>,
}

/// A change of the privileges on an object.
#[derive(Debug)]
pub(in crate::kinds::settings) struct Change {
    /// The object.
    pub(in crate::kinds::settings) key: String,
    /// The privileges that it has.
    pub(in crate::kinds::settings) from: Privileges,
    /// The privileges that it gets.
    pub(in crate::kinds::settings) to: Privileges,
}

impl Change {
    /// The privileges to give.
    pub(in crate::kinds::settings) fn given(&self) -> Vec<&str> {
        self.to.difference(&self.from).map(String::as_str).collect()
    }

    /// The privileges to take away.
    pub(in crate::kinds::settings) fn taken(&self) -> Vec<&str> {
        self.from.difference(&self.to).map(String::as_str).collect()
    }
}

/// A grant of a content.
pub(in crate::kinds::settings) trait Grants: fmt::Debug {
    /// The grantee and the objects, for people.
    fn target(&self) -> String;

    /// Whether the client is installed.
    ///
    /// # Errors
    /// The reason, with the name of the package.
    fn is_installed(&self) -> Result<(), String>;

    /// The privileges in the content.
    fn privileges(&self) -> Privileges;

    /// Whether it covers all present and later objects of a place.
    fn is_open(&self) -> bool {
        false
    }

    /// Whether a key is a rule for later objects, not an object.
    fn is_rule(&self, _key: &str) -> bool {
        false
    }

    /// The objects of the content and of the noted keys. `None`: the grantee or the database does not exist.
    fn find(&self, noted: &BTreeSet<&str>) -> Result<Option<Found>, String>;

    /// The grantee, and the database if the server needs it, for people.
    fn grantee(&self) -> String;

    /// The name of the file lock for transitions, if the server can't change privileges in two sessions at once.
    fn turn(&self) -> Option<&'static str> {
        None
    }

    /// Changes privileges.
    fn change(&self, changes: &[Change]) -> Result<(), String>;
}

/// The specification of a grant.
#[derive(Debug)]
pub(in crate::kinds::settings) struct Granted<G>(pub(in crate::kinds::settings) G);

/// The noted privileges by object. `None`: the grantee or the database did not exist.
struct Noted(Option<BTreeMap<String, Privileges>>);

impl Noted {
    fn read(before: Option<&Value>) -> Result<Self, String> {
        let read = before.filter(|before| !before.is_null()).map(|before| serde_json::from_value(before.clone()));
        read.transpose().map(Self).map_err(|error| format!("the note: {error}"))
    }

    fn keys(&self) -> BTreeSet<&str> {
        self.0.iter().flat_map(BTreeMap::keys).map(String::as_str).collect()
    }

    fn get(&self, key: &str) -> Option<&Privileges> {
        self.0.as_ref()?.get(key)
    }

    /// The privileges that an object has to have while the change object is present.
    fn present(&self, object: &Object) -> Privileges {
        object.wanted.clone().unwrap_or_else(|| self.earlier(object))
    }

    /// The privileges that an object has to have when the change object leaves.
    fn earlier(&self, object: &Object) -> Privileges {
        if let Some(noted) = self.get(&object.key) {
            return noted.clone();
        }
        let all = self.get(ALL).filter(|_| object.inherits.is_some());
        if self.0.is_some() && all.is_none() {
            // The content about this object was never applied.
            return object.held.clone();
        }
        let is_given =
            |held: &&String| [all, object.wanted.as_ref()].into_iter().flatten().any(|by| by.contains(*held));
        let inherited = object.inherits.as_ref().and_then(|key| self.get(key));
        let others = object.held.iter().filter(|held| !is_given(held));
        others.chain(inherited.into_iter().flatten()).cloned().collect()
    }
}

impl<G: Grants> Granted<G> {
    fn change(&self, objects: Vec<Object>, to: impl Fn(&Object) -> Privileges) -> Result<(), String> {
        let changes = objects.into_iter().map(|object| Change { to: to(&object), key: object.key, from: object.held });
        let changes: Vec<Change> = changes.filter(|change| change.from != change.to).collect();
        if changes.is_empty() { Ok(()) } else { self.0.change(&changes) }
    }
}

impl<G: Grants> Spec for Granted<G> {
    fn target(&self) -> String {
        self.0.target()
    }

    fn turn(&self) -> Option<&'static str> {
        self.0.turn()
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let noted = Noted::read(before)?;
        let Some(Found { objects, missing, .. }) = self.0.find(&noted.keys())? else { return Ok(None) };
        let missing = missing.into_iter().map(|name| (name, json!("not found")));
        let differing = objects.iter().filter(|object| object.held != noted.present(object));
        let wrong: Map<String, Value> =
            differing.map(|object| (object.key.clone(), json!(object.held))).chain(missing).collect();
        Ok(Some(if wrong.is_empty() { self.wanted() } else { json!({ "privileges": wrong }) }))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let Some(Found { objects, given, .. }) = self.0.find(&BTreeSet::new())? else { return Ok(None) };
        let all = self.0.is_open().then(|| (ALL.to_owned(), given));
        let found: BTreeMap<_, _> = objects.into_iter().map(|object| (object.key, object.held)).chain(all).collect();
        Ok(Some(json!(found)))
    }

    /// An object that no earlier content was about had the privileges that it has now. After a content about all
    /// objects, objects without a note were made later.
    fn merged(&self, noted: Option<Value>, found: Option<Value>) -> Result<Option<Value>, String> {
        let (noted, found) = (Noted::read(noted.as_ref())?.0, Noted::read(found.as_ref())?.0);
        let Some(mut noted) = noted else { return Ok(None) };
        let was_open = noted.contains_key(ALL);
        for (key, held) in found.into_iter().flatten() {
            if key == ALL {
                noted.entry(key).or_default().extend(held);
            } else if !was_open || self.0.is_rule(&key) {
                noted.entry(key).or_insert(held);
            }
        }
        Ok(Some(json!(noted)))
    }

    fn wanted(&self) -> Value {
        json!({ "privileges": self.0.privileges() })
    }

    fn hindered(&self) -> Result<(), String> {
        self.0.is_installed()
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let noted = Noted::read(before)?;
        let found = self.0.find(&noted.keys())?;
        let missing = found.as_ref().map_or_else(|| vec![self.0.grantee()], |found| found.missing.clone());
        if let Some(name) = missing.first() {
            return Err(format!("{name} does not exist: let this change object `require` the change object of it"));
        }
        let objects = found.unwrap_or_default().objects;
        self.change(objects, |object| noted.present(object))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let noted = Noted::read(before)?;
        // Privileges go with the grantee and with the objects.
        let Some(Found { objects, .. }) = self.0.find(&noted.keys())? else { return Ok(()) };
        self.change(objects, |object| noted.earlier(object))
    }
}
