//! Built-in kinds that set a property of the host, and restore its original state.
//!
//! The common part is here: the first transition notes the original state, durably and before any change; the removal
//! restores the original state and deletes the note. The note distinguishes the states:
//!
//! | state | note | found |
//! | --- | --- | --- |
//! | `absent` | no note: the property is not ours | any value |
//! | `present` | a note | the desired value |
//! | `outdated` | a note | another value, or the note is about another property, or the setting has no effect |
//!
//! In observe mode a change object is also `present` without a note if the desired value is found.
//!
//! A kind is a [`Setting`]: it looks, applies and restores. Transitions may be repeated, and killed at any point,
//! because the note is written first and deleted last, and a look decides which work is left.

mod accounts;
mod conf;
mod cron;
mod group;
mod host_entry;
mod kernel_log;
mod kernel_module;
mod mount;
mod mounted;
#[cfg(test)]
mod mounts_test;
#[cfg(test)]
mod observed_test;
mod parameter;
mod refused;
mod remount;
mod sysctl;
#[cfg(test)]
#[path = "settings_test.rs"]
mod tests;
mod user;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use cob_types::message::Values;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::backend::Hop;
use super::native::{Call, Found, Host, Made, NOTE, Native, Turn};
use crate::durable;

pub(super) use cron::Cron;
pub(super) use group::GroupKind;
pub(super) use host_entry::HostEntry;
pub(super) use kernel_module::KernelModule;
pub(super) use mount::Mount;
pub(super) use sysctl::Sysctl;
pub(super) use user::User;

/// The states of all these kinds.
const STATES: [&str; 3] = ["absent", "present", "outdated"];
/// The format of the note.
const FORMAT: u32 = 1;

/// A property of the host that can be set.
trait Setting: fmt::Debug + Send + Sync {
    /// The name of its back end.
    fn name(&self) -> &'static str;

    /// Reads a content: the property and its value.
    ///
    /// # Errors
    /// The fault of the content, as text.
    fn read(&self, content: &str, cob: &str) -> Result<Box<dyn Wish>, String>;
}

/// The specification (`Wish`) in a content.
trait Wish {
    /// The host, or the root folder that becomes a host.
    fn host(&self) -> &Host;

    /// The name of the property, unique within the kind.
    fn target(&self) -> String;

    /// The name of a file lock for a whole transition, if its kinds share files. `None`: all its files are its own, or
    /// it takes a lock later.
    fn turn(&self) -> Option<&'static str> {
        None
    }

    /// The file that it edits together with other programs, and the name of the file lock for the edit.
    fn shared(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Sets the own folder, beside which file locks are, and the longest wait for a lock. Needed by kinds that take a
    /// lock in the middle of a transition.
    fn take_turns_at(&mut self, _own: &Path, _longest: Duration) {}

    /// The present state, limited to the properties in the content. `None`: absent. `before` is the noted original
    /// state: a property made here may be half-done, an existing property is as its owners left it.
    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String>;

    /// The present state by its effect, in the format of [`Self::look`]: a setting that others wrote in another way is
    /// as desired if it has the same effect.
    fn seen(&self) -> Result<Option<Value>, String> {
        self.look(None)
    }

    /// The original state, before any change.
    fn before(&self) -> Result<Option<Value>, String> {
        self.look(None)
    }

    /// The desired state, in the same format.
    fn wanted(&self) -> Value;

    /// Whether the content is valid, as far as this can be checked without the host. A content that an earlier version
    /// accepted can be restored nevertheless.
    ///
    /// # Errors
    /// The fault of the content, as text.
    fn sound(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether the setting can have an effect on this host.
    ///
    /// # Errors
    /// The reason why it would have no effect, as text.
    fn of_use(&self) -> Result<(), String> {
        self.sound()
    }

    /// Brings the property into the desired state.
    fn apply(&self, before: Option<&Value>) -> Result<(), String>;

    /// Restores the original state.
    fn restore(&self, before: Option<&Value>) -> Result<(), String>;
}

/// serde default: `true`.
fn yes() -> bool {
    true
}

/// The note of the original state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    format: u32,
    /// The content at that time: a later content may be about another property.
    content: String,
    before: Option<Value>,
}

impl Note {
    fn read(own: &Path) -> Result<Option<Self>, String> {
        let path = own.join(NOTE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        let note: Self = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if note.format == FORMAT {
            Ok(Some(note))
        } else {
            Err(format!("{}: it has format {}; this program reads {FORMAT}", path.display(), note.format))
        }
    }

    fn write(&self, own: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).expect("a note is plain data");
        let written = durable::write_file(own, NOTE, 0o600, &bytes, durable::Sync::Now);
        written.map_err(|error| format!("{}: {error}", own.join(NOTE).display()))
    }

    fn delete(own: &Path) -> Result<(), String> {
        let deleted = fs::remove_file(own.join(NOTE)).and_then(|()| durable::sync_folder(own));
        deleted.map_err(|error| format!("{}: {error}", own.join(NOTE).display()))
    }
}

impl<S: Setting> Native for S {
    fn name(&self) -> &'static str {
        Setting::name(self)
    }

    fn states(&self) -> &'static [&'static str] {
        &STATES
    }

    fn accept(&self, content: &str) -> Result<(), String> {
        self.read(content, "")?.sound()
    }

    fn check(&self, call: &Call) -> Result<Found, String> {
        let wish = wish(self, &call.content, call)?;
        if !call.observed {
            clear_killed(wish.as_ref(), &call.own)?;
        }
        let Some(note) = Note::read(&call.own)? else {
            return if call.observed { seen(wish.as_ref()) } else { Ok(Found::state("absent")) };
        };
        let noted = self.read(&note.content, &call.cob)?;
        if !is_one_thing(noted.as_ref(), wish.as_ref()) {
            let (wanted, noted) = (named(wish.as_ref()), named(noted.as_ref()));
            return Ok(Found::differing("outdated", format!("wanted {wanted}, and {noted} is set")));
        }
        let (found, wanted) = (wish.look(note.before.as_ref())?, wish.wanted());
        let differs = (found.as_ref() != Some(&wanted)).then(|| difference(&wanted, found.as_ref()));
        let wrong: Vec<String> = differs.into_iter().chain(wish.of_use().err()).collect();
        Ok(match wrong.is_empty() {
            true => Found::state("present"),
            false => Found::differing("outdated", wrong.join("; ")),
        })
    }

    fn make(&self, call: &Call, hop: &Hop) -> Made {
        moved(self, call, hop).map(|()| Values::new()).into()
    }
}

fn moved(setting: &impl Setting, call: &Call, hop: &Hop) -> Result<(), String> {
    let wish = wish(setting, &call.content, call)?;
    // A hanging mount from an unreachable server must not delay unrelated transitions.
    let _turn = wish.turn().map(|what| Turn::wait(&call.own, what, longest(call))).transpose()?;
    match hop.to.as_str() {
        "present" => {
            wish.of_use()?;
            present(setting, wish.as_ref(), call)
        }
        "absent" => undo(setting, wish.as_ref(), call),
        other => Err(format!("it has no transition to {other}")),
    }
}

/// Removes leftovers of a killed edit beside a shared file.
fn clear_killed(wish: &dyn Wish, own: &Path) -> Result<(), String> {
    let Some((file, turn)) = wish.shared().filter(|(file, _)| wish.host().is_half_edited(file)) else { return Ok(()) };
    // The holder of the lock is editing.
    Turn::take(own, turn).map_or(Ok(()), |_turn| wish.host().clear_edit(file))
}

/// The specification in a content, with its own folder for file locks.
fn wish(setting: &impl Setting, content: &str, call: &Call) -> Result<Box<dyn Wish>, String> {
    let mut wish = setting.read(content, &call.cob)?;
    wish.take_turns_at(&call.own, longest(call));
    Ok(wish)
}

/// The longest wait for others.
fn longest(call: &Call) -> Duration {
    call.timeout() / 2
}

/// The state in observe mode: present if it is as desired, no matter which program set it.
fn seen(wish: &dyn Wish) -> Result<Found, String> {
    let (found, wanted) = (wish.seen()?, wish.wanted());
    Ok(match found {
        Some(found) if found == wanted => match wish.of_use() {
            Ok(()) => Found::state("present"),
            Err(why) => Found::differing("absent", why),
        },
        found => Found::differing("absent", difference(&wanted, found.as_ref())),
    })
}

/// Whether both are about the same property.
fn is_one_thing(one: &dyn Wish, other: &dyn Wish) -> bool {
    (one.host(), one.target()) == (other.host(), other.target())
}

/// The name of the property for people.
fn named(wish: &dyn Wish) -> String {
    match wish.host().root() {
        Some(root) => format!("{} below {}", wish.target(), root.display()),
        None => wish.target(),
    }
}

fn present(setting: &impl Setting, wish: &dyn Wish, call: &Call) -> Result<(), String> {
    let note = Note::read(&call.own)?;
    let is_about_this = match &note {
        Some(note) => is_one_thing(setting.read(&note.content, &call.cob)?.as_ref(), wish),
        None => true,
    };
    if !is_about_this {
        undo(setting, wish, call)?;
    }
    let before = match note.filter(|_| is_about_this) {
        None => Some(wish.before()?),
        Some(note) if note.content == call.content => None,
        // The same property, perhaps with additional parts.
        Some(note) => Some(with_what_is_missing(note.before, wish.before()?)),
    };
    if let Some(before) = before {
        Note { format: FORMAT, content: call.content.clone(), before }.write(&call.own)?;
    }
    let before = Note::read(&call.own)?.and_then(|note| note.before);
    if wish.look(before.as_ref())? != Some(wish.wanted()) {
        wish.apply(before.as_ref())?;
    }
    let (found, wanted) = (wish.look(before.as_ref())?, wish.wanted());
    if found.as_ref() == Some(&wanted) {
        return Ok(());
    }
    Err(format!("it was set, and is not as wanted: {}", difference(&wanted, found.as_ref())))
}

/// The difference from the desired state: the parts of both that differ.
fn difference(wanted: &Value, found: Option<&Value>) -> String {
    match (wanted, found) {
        (Value::Object(wanted), Some(Value::Object(found))) => {
            let without = |one: &Map<String, Value>, other: &Map<String, Value>| {
                let differs = one.iter().filter(|(key, value)| other.get(*key) != Some(value));
                Value::Object(differs.map(|(key, value)| (key.clone(), value.clone())).collect())
            };
            format!("wanted {}, found {}", without(wanted, found), without(found, wanted))
        }
        (wanted, Some(found)) => format!("wanted {wanted}, found {found}"),
        (wanted, None) => format!("wanted {wanted}, not found"),
    }
}

/// The noted parts, and from the found state only the parts that were not noted.
fn with_what_is_missing(noted: Option<Value>, found: Option<Value>) -> Option<Value> {
    match (noted, found) {
        (Some(Value::Object(mut noted)), Some(Value::Object(found))) => {
            for (key, value) in found {
                noted.entry(key).or_insert(value);
            }
            Some(Value::Object(noted))
        }
        (noted, _) => noted,
    }
}

fn undo(setting: &impl Setting, wish: &dyn Wish, call: &Call) -> Result<(), String> {
    let Some(note) = Note::read(&call.own)? else { return Ok(()) };
    let noted = self::wish(setting, &note.content, call)?;
    // A content that changes only the removal needs no transition, and leaves the note as it was.
    let wish = if is_one_thing(noted.as_ref(), wish) { wish } else { noted.as_ref() };
    wish.restore(note.before.as_ref())?;
    Note::delete(&call.own)
}
