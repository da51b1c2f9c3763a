//! A role, user or database that must not exist: it waits under another name until the change object leaves.

use std::fmt;

use cob_kinds::aside_name;
use serde_json::{Value, json};

use super::super::Spec;

/// An object of a server that can be renamed.
pub(in crate::kinds::settings) trait Renamed: fmt::Debug {
    /// The object for people: `role app at port 5432`.
    fn target(&self) -> String;

    /// Its name.
    fn name(&self) -> &str;

    /// Whether the client is installed.
    ///
    /// # Errors
    /// The reason, with the name of the package.
    fn is_installed(&self) -> Result<(), String>;

    /// The attributes that change when it is put aside. `None`: it does not exist.
    fn attributes(&self, name: &str) -> Result<Option<Value>, String>;

    /// Whether another object has the name `to`, so that `from` can't get it.
    fn is_taken(&self, _from: &str, to: &str) -> Result<bool, String> {
        Ok(self.attributes(to)?.is_some())
    }

    /// Renames it to `aside`, out of use.
    fn put_aside(&self, aside: &str) -> Result<(), String>;

    /// Renames it to its own name again, with these attributes.
    fn put_back(&self, aside: &str, attributes: &Value) -> Result<(), String>;

    /// Users have made the object again, while the earlier object waits as `aside`.
    ///
    /// # Errors
    /// The reason why it stays.
    fn made_again(&self, aside: &str) -> Result<(), String>;
}

/// The absence of an object.
#[derive(Debug)]
pub(in crate::kinds::settings) struct Aside<R>(pub(in crate::kinds::settings) R);

/// The reason why a database that users have made again stays.
pub(in crate::kinds::settings) fn data_twice(name: &str, aside: &str) -> String {
    format!("the database {name:?} exists again, and the earlier database waits as {aside:?}: drop or rename it")
}

impl<R: Renamed> Spec for Aside<R> {
    fn target(&self) -> String {
        format!("absence of {}", self.0.target())
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        Ok(Some(json!({ "exists": self.0.attributes(self.0.name())?.is_some() })))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        self.0.attributes(self.0.name())
    }

    fn wanted(&self) -> Value {
        json!({ "exists": false })
    }

    fn hindered(&self) -> Result<(), String> {
        self.0.is_installed()
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let (name, aside) = (self.0.name(), aside_name(self.0.name()));
        if self.0.attributes(name)?.is_none() {
            Ok(())
        } else if self.0.is_taken(name, &aside)? {
            self.0.made_again(&aside)
        } else {
            self.0.put_aside(&aside)
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let (name, aside) = (self.0.name(), aside_name(self.0.name()));
        if self.0.attributes(&aside)?.is_none() {
            return Ok(());
        }
        if self.0.is_taken(&aside, name)? {
            eprintln!("The name {name:?} is in use again: the earlier object stays as {aside:?}.");
            return Ok(());
        }
        self.0.put_back(&aside, before.unwrap_or(&Value::Null))
    }
}
