//! Built-in kinds that set something of the host, and put back what was there before.
//!
//! What is the same for all is here: the first move notes, durably and before anything is changed, what it finds;
//! the way back restores that and deletes the note. The note is what tells the states apart:
//!
//! | state | note | found |
//! | --- | --- | --- |
//! | `absent` | none: nothing here is ours | whatever it is |
//! | `present` | there | what is wanted |
//! | `outdated` | there | something else, or the note is about something else, or it is set in vain |
//!
//! One that is observed is `present` without a note, too, where what is found is what is wanted.
//!
//! A kind is a [`Setting`]: it looks, applies and restores. Moves may be made twice and killed at any point, because
//! the note is written first and deleted last, and looking decides what is left to do.

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

/// The states of every such kind.
const STATES: [&str; 3] = ["absent", "present", "outdated"];
/// The format of the note.
const FORMAT: u32 = 1;

/// Something of the host that can be set.
trait Setting: fmt::Debug + Send + Sync {
    /// The name of its back end.
    fn name(&self) -> &'static str;

    /// Reads a content: what is set, and to what.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn read(&self, content: &str, cob: &str) -> Result<Box<dyn Wish>, String>;
}

/// What one content asks for.
trait Wish {
    /// The host that it is set on, or the folder that is to become one.
    fn host(&self) -> &Host;

    /// What is set there, by a name that no other thing of the kind has.
    fn target(&self) -> String;

    /// What others of its kinds work on as well, so that one works after the other; none: what it works on all the time is
    /// its own.
    fn turn(&self) -> Option<&'static str> {
        None
    }

    /// The file that it changes and that others change as well, and the name of the turn under which it does.
    fn shared(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Its own folder, where turns are taken, and how long they are waited for, by those that take one only when they have
    /// come to it.
    fn take_turns_at(&mut self, _own: &Path, _longest: Duration) {}

    /// How it is now, as far as it is asked for; none: not there. `before` is what was noted: what was made here may be
    /// half-done, what was there is as its owners have it.
    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String>;

    /// How it is now in the same words, where its effect alone counts: what others have written otherwise, and does the
    /// same, is as wanted.
    fn seen(&self) -> Result<Option<Value>, String> {
        self.look(None)
    }

    /// What the way back has to know, before anything is changed.
    fn before(&self) -> Result<Option<Value>, String> {
        self.look(None)
    }

    /// How it is to be, in the same words.
    fn wanted(&self) -> Value;

    /// Whether the content makes sense, as far as that shows without the host. What it was set to by an earlier program,
    /// which may have taken more, is given back all the same.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn sound(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether the host can do anything with it once it is set.
    ///
    /// # Errors
    /// Why it would be set in vain, in words.
    fn of_use(&self) -> Result<(), String> {
        self.sound()
    }

    /// Makes it so.
    fn apply(&self, before: Option<&Value>) -> Result<(), String>;

    /// Makes it as it was.
    fn restore(&self, before: Option<&Value>) -> Result<(), String>;
}

/// What a content says that says nothing.
fn yes() -> bool {
    true
}

/// What was there before, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    format: u32,
    /// The content under which it was written: another one may be about another thing.
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
    // A mount from a server that is away hangs: it must not delay moves that have nothing to do with it.
    let _turn = wish.turn().map(|what| Turn::wait(&call.own, what, longest(call))).transpose()?;
    match hop.to.as_str() {
        "present" => {
            wish.of_use()?;
            present(setting, wish.as_ref(), call)
        }
        "absent" => undo(setting, wish.as_ref(), call),
        other => Err(format!("nothing moves it to {other}")),
    }
}

/// Takes away what a change of a shared file that was killed has left beside it.
fn clear_killed(wish: &dyn Wish, own: &Path) -> Result<(), String> {
    let Some((file, turn)) = wish.shared().filter(|(file, _)| wish.host().is_half_edited(file)) else { return Ok(()) };
    // Whoever has the turn is at it.
    Turn::take(own, turn).map_or(Ok(()), |_turn| wish.host().clear_edit(file))
}

/// What a content asks for, ready to be worked on.
fn wish(setting: &impl Setting, content: &str, call: &Call) -> Result<Box<dyn Wish>, String> {
    let mut wish = setting.read(content, &call.cob)?;
    wish.take_turns_at(&call.own, longest(call));
    Ok(wish)
}

/// How long others are waited for.
fn longest(call: &Call) -> Duration {
    call.timeout() / 2
}

/// What is observed is present when it is as wanted, whoever has made it so.
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

/// Whether both are about the same, however it is to be.
fn is_one_thing(one: &dyn Wish, other: &dyn Wish) -> bool {
    (one.host(), one.target()) == (other.host(), other.target())
}

/// What a wish is about, for people.
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
        // The same thing, and perhaps more of it than before.
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

/// In what the host differs from what is wanted: of both, what is not the same.
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
        (wanted, None) => format!("wanted {wanted}, found nothing"),
    }
}

/// What was noted, and of what is found now only what was not.
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
    // A content that changes nothing but the way back needs no move, and leaves the note as it was.
    let wish = if is_one_thing(noted.as_ref(), wish) { wish } else { noted.as_ref() };
    wish.restore(note.before.as_ref())?;
    Note::delete(&call.own)
}
