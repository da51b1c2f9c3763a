//! The definition of a kind: states, transitions and times, and the type of its contents.

use cob_types::kind::KindCheck;
use cob_types::{CobId, Kind, KindName, StateName, Transition};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::fault::Faults;
use super::footprint::Footprint;
use super::form::schema_of;

/// Time limit of a transition.
pub const TIMEOUT_MS: u64 = 5 * 60 * 1000;
/// Time limit of a check.
pub const CHECK_TIMEOUT_MS: u64 = 30 * 1000;
/// The time between the request to end and the kill.
pub const GRACE_MS: u64 = 10 * 1000;
/// Repetitions of a failed transition.
pub const RETRIES: u32 = 2;
/// The pause before the first repetition.
pub const RETRY_DELAY_MS: u64 = 1000;

/// The content of a built-in kind.
///
/// The doc comments of its fields explain the keys: `cobgen` shows them beside faults.
pub trait Content: DeserializeOwned + JsonSchema {
    /// The kind.
    const KIND: Builtin;

    /// Reports each fault of the values, with its place. The form is already right.
    fn check(&self, faults: &mut Faults);

    /// The files that it writes, and the object of the host that it sets.
    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::default()
    }
}

/// States, transitions and times of a built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// The name of its back end.
    pub backend: &'static str,
    /// All states, without `unknown`.
    pub states: &'static [&'static str],
    /// The on state.
    pub preferred: &'static str,
    /// The off state.
    pub pre_remove: &'static str,
    /// The transitions.
    pub transitions: &'static [(&'static str, &'static str)],
    /// Whether it only represents the readiness of others: dependents of the gate's service also wait for the change
    /// objects that the gate requires.
    pub gate: bool,
    /// The interval of checks of a kind whose state can change by itself.
    pub interval_ms: Option<u64>,
    /// Time limit of each transition.
    pub timeout_ms: u64,
    /// The pause before the first repetition of a failed transition.
    pub retry_delay_ms: u64,
    /// Whether `absent` means "not managed": the kind restores the earlier state of the host.
    pub restores: bool,
}

impl Builtin {
    /// A kind that sets a property of a host and restores the earlier value.
    #[must_use]
    pub const fn setting(name: &'static str) -> Self {
        Self {
            name,
            backend: name,
            states: &["absent", "present", "outdated"],
            preferred: "present",
            pre_remove: "absent",
            transitions: &[
                ("absent", "present"),
                ("outdated", "present"),
                ("present", "absent"),
                ("outdated", "absent"),
            ],
            gate: false,
            interval_ms: Some(60_000),
            timeout_ms: 60_000,
            retry_delay_ms: RETRY_DELAY_MS,
            restores: true,
        }
    }

    /// A kind that is `down`, `up` or `outdated`.
    #[must_use]
    pub const fn program(name: &'static str) -> Self {
        Self {
            states: &["down", "up", "outdated"],
            preferred: "up",
            pre_remove: "down",
            transitions: &[("down", "up"), ("up", "down"), ("outdated", "down"), ("outdated", "up")],
            interval_ms: None,
            timeout_ms: TIMEOUT_MS,
            restores: false,
            ..Self::setting(name)
        }
    }

    /// A gate, which is `down` or `up`.
    #[must_use]
    pub const fn gate(name: &'static str) -> Self {
        Self {
            states: &["down", "up"],
            transitions: &[("down", "up"), ("up", "down")],
            gate: true,
            ..Self::program(name)
        }
    }

    /// The kind for bundles.
    ///
    /// # Panics
    /// If a name in the definition is not well formed.
    #[must_use]
    pub fn kind(&self) -> Kind {
        let states: Vec<_> = self.states.iter().map(|name| state(name)).collect();
        let (preferred, pre_remove) = (state(self.preferred), state(self.pre_remove));
        let mut priority = vec![pre_remove.clone()];
        priority.extend((preferred != pre_remove).then(|| preferred.clone()));
        priority.extend(states.iter().filter(|s| **s != preferred && **s != pre_remove).cloned());
        let transition = |(from, to): &(&str, &str)| Transition {
            timeout_ms: self.timeout_ms,
            retry_delay_ms: self.retry_delay_ms,
            ..plain_transition(from, to)
        };
        Kind {
            name: KindName::new(self.name).expect("names in definitions are well formed"),
            backend: self.backend.to_owned(),
            states,
            preferred,
            pre_remove,
            priority,
            check: plain_check(self.interval_ms),
            transitions: self.transitions.iter().map(transition).collect(),
            files: Default::default(),
        }
    }
}

/// A built-in kind in the table of kinds, independent of the type of its contents.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// States, transitions and times.
    pub kind: Builtin,
    form: Option<Form>,
}

/// The functions of a content type.
#[derive(Debug, Clone, Copy)]
struct Form {
    schema: fn(&str) -> Json,
    check: fn(&Json) -> Result<Faults, String>,
    footprint: fn(&Json, &CobId) -> Footprint,
}

impl Entry {
    /// The kind of a content type.
    #[must_use]
    pub const fn of<C: Content>() -> Self {
        Self {
            kind: C::KIND,
            form: Some(Form { schema: schema_of::<C>, check: check::<C>, footprint: footprint::<C> }),
        }
    }

    /// A kind whose contents `cobgen` reads in another way.
    #[must_use]
    pub const fn without_content(kind: Builtin) -> Self {
        Self { kind, form: None }
    }

    /// The JSON Schema of its contents.
    #[must_use]
    pub fn schema(&self) -> Option<Json> {
        self.form.map(|form| (form.schema)(&format!("content of {}", self.kind.name)))
    }

    /// The faults of a content.
    ///
    /// # Errors
    /// The difference from the form, as text.
    pub fn check(&self, content: &Json) -> Result<Faults, String> {
        self.form.map_or_else(|| Ok(Faults::default()), |form| (form.check)(content))
    }

    /// The files that a change object with this content writes, and the object of the host that it sets.
    #[must_use]
    pub fn footprint(&self, content: &Json, cob: &CobId) -> Footprint {
        self.form.map_or_else(Footprint::default, |form| (form.footprint)(content, cob))
    }
}

fn check<C: Content>(content: &Json) -> Result<Faults, String> {
    let empty = Json::Object(Map::new());
    let content = match content {
        Json::Null => &empty,
        Json::Object(_) => content,
        Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
            return Err("it must be a mapping".to_owned());
        }
    };
    let content = C::deserialize(content).map_err(|error| error.to_string())?;
    let mut faults = Faults::default();
    content.check(&mut faults);
    Ok(faults)
}

fn footprint<C: Content>(content: &Json, cob: &CobId) -> Footprint {
    C::deserialize(content).map_or_else(|_| Footprint::default(), |content| content.footprint(cob))
}

/// A transition with the default times.
#[must_use]
pub fn plain_transition(from: &str, to: &str) -> Transition {
    Transition {
        from: state(from),
        to: state(to),
        run: None,
        timeout_ms: TIMEOUT_MS,
        grace_ms: GRACE_MS,
        retries: RETRIES,
        retry_delay_ms: RETRY_DELAY_MS,
        failure: None,
        revert: None,
        irreversible: false,
    }
}

/// A check without a command, repeated after this time while the change object is idle.
#[must_use]
pub fn plain_check(interval_ms: Option<u64>) -> KindCheck {
    KindCheck { run: None, timeout_ms: CHECK_TIMEOUT_MS, interval_ms }
}

/// A state of a definition.
///
/// # Panics
/// If the name is not well formed.
#[must_use]
pub fn state(name: &str) -> StateName {
    StateName::new(name).expect("states in definitions are well formed")
}
