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

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_kinds::Content;
use cob_types::message::Values;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::sharing;
use crate::kinds::backend::TransitionAttempt;
use crate::kinds::native::{Call, Found, Host, Made, NOTE, Native, Turn, note};

/// A property of the host that can be set.
pub(in crate::kinds) trait Setting: fmt::Debug + Send + Sync {
    /// Its content.
    type Content: Content;

    /// The property in a content, and its value. The content may have faults that an earlier version accepted.
    ///
    /// # Errors
    /// Why the content names no property, as text.
    fn spec(&self, entry: Entry<Self::Content>) -> Result<Box<dyn Spec>, String>;

    /// Whether it only reads and writes a few small files: see [`Native::is_short`].
    fn is_short(&self) -> bool {
        false
    }

    /// The files in a change object's own folder that record the original state.
    fn notes(&self) -> &'static [&'static str] {
        &[NOTE]
    }

    /// The content as the note of the original state has it, without values that must not stay on the host.
    fn noted(&self, content: &str) -> String {
        content.to_owned()
    }
}

/// A content with its change object and its host.
#[derive(Debug)]
pub(in crate::kinds) struct Entry<C> {
    pub(super) content: C,
    /// The host, or the root folder that becomes a host.
    pub(super) host: Host,
    /// The id of the change object.
    pub(super) cob: String,
    /// The change object's own folder, beside which file locks are.
    pub(super) own: PathBuf,
    /// The longest wait for a file lock.
    pub(super) longest: Duration,
}

/// The key that all settings have.
#[derive(Deserialize)]
struct Rooted {
    root: Option<PathBuf>,
}

impl<C: Content> Entry<C> {
    /// Reads the content. `own` is empty, if nothing is looked at.
    ///
    /// # Errors
    /// The fault of the text.
    pub(super) fn read(text: &str, cob: &str, own: &Path, longest: Duration) -> Result<Self, String> {
        let (content, Rooted { root }) = (cob_kinds::parse(text)?, cob_kinds::parse(text)?);
        let host = Host::below(root.as_deref())?;
        Ok(Self { content, host, cob: cob.to_owned(), own: own.to_owned(), longest })
    }
}

/// A kind whose content needs no further reading.
#[derive(Debug)]
pub(super) struct Plain<C>(PhantomData<fn() -> C>);

impl<C> Plain<C> {
    pub(super) const KIND: Self = Self(PhantomData);
}

impl<C: Content + fmt::Debug> Setting for Plain<C>
where
    Entry<C>: Spec + 'static,
{
    type Content = C;

    fn spec(&self, entry: Entry<C>) -> Result<Box<dyn Spec>, String> {
        Ok(Box::new(entry))
    }

    fn notes(&self) -> &'static [&'static str] {
        <Entry<C> as Spec>::notes()
    }
}

/// The specification of a setting, read from a content.
pub(in crate::kinds) trait Spec {
    /// The same as [`Setting::notes`], for kinds that are [`Plain`].
    fn notes() -> &'static [&'static str]
    where
        Self: Sized,
    {
        &[NOTE]
    }

    /// The name of the property, unique within the kind.
    fn target(&self) -> String;

    /// The name of a file lock for a whole transition, if its kinds share files. `None`: all its files are its own, or
    /// it takes a lock later.
    fn turn(&self) -> Option<&'static str> {
        None
    }

    /// The file that it edits together with other programs.
    fn shared(&self) -> Option<&str> {
        None
    }

    /// The name of the file lock for an edit of the shared file; default: the lock of a whole transition.
    fn edit_turn(&self) -> Option<&'static str> {
        self.turn()
    }

    /// The file or folder of others that several change objects edit: each finds the notes of the others
    /// ([`sharing::others`]).
    fn common(&self) -> Option<&str> {
        None
    }

    /// Removes leftovers of a killed edit beside a shared file.
    ///
    /// # Errors
    /// The reason as text, with the file.
    fn clear_killed(&self, host: &Host, own: &Path) -> Result<(), String> {
        let Some(file) = self.shared().filter(|file| host.is_half_edited(file)) else { return Ok(()) };
        let Some(turn) = self.edit_turn() else { return Ok(()) };
        // The holder of the lock is editing.
        Turn::take(own, turn).map_or(Ok(()), |_turn| host.clear_edit(file))
    }

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

    /// The note for a changed content: the noted original state, with the parts of the found state that were not noted.
    fn merged(&self, noted: Option<Value>, found: Option<Value>) -> Result<Option<Value>, String> {
        Ok(with_what_is_missing(noted, found))
    }

    /// The desired state, in the same format.
    fn wanted(&self) -> Value;

    /// Whether the setting can have an effect on this host.
    ///
    /// # Errors
    /// The reason why it would have no effect, as text.
    fn of_use(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether a transition to the desired state can begin now. Asked also before the first transition, for `prepare`.
    ///
    /// # Errors
    /// The reason why it would fail, as text.
    fn hindered(&self) -> Result<(), String> {
        Ok(())
    }

    /// Brings the property into the desired state.
    fn apply(&self, before: Option<&Value>) -> Result<(), String>;

    /// Restores the original state.
    fn restore(&self, before: Option<&Value>) -> Result<(), String>;

    /// What a person has to know although it is as desired.
    ///
    /// # Errors
    /// The reason why that is unknown, as text.
    fn remark(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// The values that dependents get while it is present.
    ///
    /// # Errors
    /// The reason as text.
    fn exports(&self) -> Result<Values, String> {
        Ok(Values::new())
    }
}

/// The note of the original state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The content at that time: a later content may be about another property.
    content: String,
    before: Option<Value>,
}

impl<S: Setting> Native for S {
    fn name(&self) -> &'static str {
        S::Content::KIND.name
    }

    fn states(&self) -> &'static [&'static str] {
        S::Content::KIND.states
    }

    fn accept(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<S::Content>(content)?;
        self.spec(Entry::read(content, "", Path::new(""), Duration::ZERO)?).map(|_| ())
    }

    fn check(&self, call: &Call) -> Result<Found, String> {
        checked(self, call)
    }

    fn make(&self, call: &Call, attempt: &TransitionAttempt) -> Made {
        moved(self, call, attempt).into()
    }

    fn is_short(&self) -> bool {
        Setting::is_short(self)
    }

    fn notes(&self) -> &'static [&'static str] {
        Setting::notes(self)
    }
}

fn checked(setting: &dyn Reader, call: &Call) -> Result<Found, String> {
    let property = setting.property(&call.content, call)?;
    let spec = property.spec.as_ref();
    if !call.observed {
        spec.clear_killed(&property.host, &call.own)?;
    }
    let Some(note) = note::read::<Note>(&call.own)? else {
        if call.observed {
            return seen(setting, spec, call);
        }
        let hindered = spec.hindered().err();
        return Ok(hindered.map_or_else(|| Found::state("absent"), |why| Found::differing("absent", why)));
    };
    let noted = setting.property(&note.content, call)?;
    if !noted.is(&property) {
        let (wanted, noted) = (property.name(), noted.name());
        return Ok(Found::differing("outdated", format!("wanted {wanted}, and {noted} is set")));
    }
    property.join(call)?;
    let (found, wanted) = (spec.look(note.before.as_ref())?, spec.wanted());
    let differs = (found.as_ref() != Some(&wanted)).then(|| difference(&wanted, found.as_ref()));
    let wrong: Vec<String> = differs.into_iter().chain(of_use(setting, spec, call).err()).collect();
    Ok(match wrong.is_empty() {
        true => Found::differing("present", spec.remark()?.unwrap_or_default()).with_exports(spec.exports()?),
        false => Found::differing("outdated", wrong.join("; ")),
    })
}

fn moved(setting: &dyn Reader, call: &Call, attempt: &TransitionAttempt) -> Result<Values, String> {
    let property = setting.property(&call.content, call)?;
    let spec = property.spec.as_ref();
    // A hanging mount from an unreachable server must not delay unrelated transitions.
    let _turn = spec.turn().map(|what| Turn::wait(&call.own, what, longest(call))).transpose()?;
    match attempt.to.as_str() {
        "present" => {
            of_use(setting, spec, call)?;
            present(setting, &property, call)?;
            spec.exports()
        }
        "absent" => undo(setting, &property, call).map(|()| Values::new()),
        other => Err(format!("it has no transition to {other}")),
    }
}

/// A setting without the type of its content, so that the rest is compiled once for all kinds.
trait Reader {
    fn property(&self, content: &str, call: &Call) -> Result<Property, String>;

    /// The content for the note.
    fn noted(&self, content: &str) -> String;

    /// Whether the content is valid.
    fn validate(&self, content: &str) -> Result<(), String>;
}

impl<S: Setting> Reader for S {
    fn property(&self, content: &str, call: &Call) -> Result<Property, String> {
        let entry = Entry::read(content, &call.cob, &call.own, longest(call))?;
        Ok(Property { host: entry.host.clone(), spec: self.spec(entry)? })
    }

    fn noted(&self, content: &str) -> String {
        Setting::noted(self, content)
    }

    fn validate(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<S::Content>(content).map(|_| ())
    }
}

/// A specification and its host.
struct Property {
    host: Host,
    spec: Box<dyn Spec>,
}

impl Property {
    /// Whether both are about the same property.
    fn is(&self, other: &Self) -> bool {
        (&self.host, self.spec.target()) == (&other.host, other.spec.target())
    }

    /// Lets other change objects of its file find its note.
    fn join(&self, call: &Call) -> Result<(), String> {
        self.spec.common().map_or(Ok(()), |path| sharing::join(&call.own, &self.host, path))
    }

    /// Leaves the change objects of its file.
    fn leave(&self, call: &Call) {
        if let Some(path) = self.spec.common() {
            sharing::leave(&call.own, &self.host, path);
        }
    }

    /// Its name for people.
    fn name(&self) -> String {
        match self.host.root() {
            Some(root) => format!("{} below {}", self.spec.target(), root.display()),
            None => self.spec.target(),
        }
    }
}

/// The longest wait for others.
fn longest(call: &Call) -> Duration {
    call.timeout() / 2
}

/// Whether the content is valid and the setting can have an effect.
fn of_use(setting: &dyn Reader, spec: &dyn Spec, call: &Call) -> Result<(), String> {
    setting.validate(&call.content)?;
    spec.of_use()
}

/// The state in observe mode: present if it is as desired, no matter which program set it.
fn seen(setting: &dyn Reader, spec: &dyn Spec, call: &Call) -> Result<Found, String> {
    let (found, wanted) = (spec.seen()?, spec.wanted());
    Ok(match found {
        Some(found) if found == wanted => match of_use(setting, spec, call) {
            Ok(()) => Found::state("present").with_exports(spec.exports()?),
            Err(why) => Found::differing("absent", why),
        },
        found => Found::differing("absent", difference(&wanted, found.as_ref())),
    })
}

fn present(setting: &dyn Reader, property: &Property, call: &Call) -> Result<(), String> {
    let spec = property.spec.as_ref();
    spec.hindered()?;
    let note = note::read::<Note>(&call.own)?;
    let is_about_this = match &note {
        Some(note) => setting.property(&note.content, call)?.is(property),
        None => true,
    };
    if !is_about_this {
        undo(setting, property, call)?;
    }
    let content = setting.noted(&call.content);
    let before = match note.filter(|_| is_about_this) {
        None => Some(spec.before()?),
        Some(note) if note.content == content => None,
        // The same property, perhaps with additional parts.
        Some(note) => Some(spec.merged(note.before, spec.before()?)?),
    };
    if let Some(before) = before {
        property.join(call)?;
        note::write(&call.own, &Note { content, before })?;
    }
    let before = note::read::<Note>(&call.own)?.and_then(|note| note.before);
    if spec.look(before.as_ref())? != Some(spec.wanted()) {
        spec.apply(before.as_ref())?;
    }
    let (found, wanted) = (spec.look(before.as_ref())?, spec.wanted());
    if found.as_ref() == Some(&wanted) {
        return Ok(());
    }
    Err(format!("it was set, and is not as wanted: {}", difference(&wanted, found.as_ref())))
}

/// The noted content of a change object and the noted original state. `None`: there is no readable note.
pub(super) fn read_note(own: &Path) -> Option<(String, Option<Value>)> {
    let note = note::read::<Note>(own).ok()??;
    Some((note.content, note.before))
}

/// The difference from the desired state: the parts of both that differ.
pub(super) fn difference(wanted: &Value, found: Option<&Value>) -> String {
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

fn undo(setting: &dyn Reader, property: &Property, call: &Call) -> Result<(), String> {
    let Some(note) = note::read::<Note>(&call.own)? else {
        property.leave(call);
        return Ok(());
    };
    let noted = setting.property(&note.content, call)?;
    // A content that changes only the removal needs no transition, and leaves the note as it was.
    let property = if noted.is(property) { property } else { &noted };
    property.spec.restore(note.before.as_ref())?;
    note::delete(&call.own)?;
    property.leave(call);
    Ok(())
}
