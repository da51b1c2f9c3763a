//! The kind back end `ha-set`: resources of a Pacemaker cluster with all that belongs to them.
//!
//! The configuration (CIB) of the cluster is the only truth: the elements of a set have the ids of the model, and a mark
//! of its own says that the set keeps a resource stopped. The note in the change object's own folder has the earlier
//! elements with these ids. A transition edits a copy, has it checked and simulated, and applies the difference as a patch,
//! which the cluster refuses if another program has changed the configuration meanwhile.
//!
//! ```text
//!   query ─> edit a copy ─> verify ─> simulate ─> diff ─> patch ─> wait ─> judge
//!     ^                                 │ not allowed        │
//!     └──── changed meanwhile ──────────┼────────────────────┘
//!                                       └─> refused, with the actions
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | `xml` | elements, read and written |
//! | `elements` | the elements of a content, and their comparison |
//! | `cib` | edits of a configuration |
//! | `simulation` | the judgement of simulated actions |
//! | `monitor`, `judge` | the state |
//! | `note` | the earlier elements |
//! | `tools` | the programs |

mod cib;
mod elements;
#[cfg(test)]
mod ha_set_test;
mod judge;
#[cfg(test)]
mod live_test;
mod monitor;
mod note;
mod simulation;
mod tools;
mod xml;

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cob_kinds::{Content as _, HaSet};
use cob_types::message::Values;

use self::cib::{Cib, is_marked, mark, unmark};
use self::elements::{Place, Section, primitives};
use self::judge::{Set, Verdict};
use self::monitor::Monitor;
use self::note::Note;
use self::simulation::{Action, Purpose, listed, refused};
use self::tools::Patched;
use self::xml::Xml;
use super::backend::TransitionAttempt;
use super::native::{Call, Found, Made, Native, note as file};

/// How long a check waits for a cluster that is at work, such as a move to another node.
const BUSY: Duration = Duration::from_secs(15);
/// How long a cluster has to do nothing before its state counts as final.
const SETTLED: Duration = Duration::from_secs(3);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause before a refused patch is made again.
const AGAIN: Duration = Duration::from_millis(20);

/// The back end `ha-set`.
#[derive(Debug)]
pub(super) struct HaSetKind;

impl Native for HaSetKind {
    fn name(&self) -> &'static str {
        HaSet::KIND.name
    }

    fn states(&self) -> &'static [&'static str] {
        HaSet::KIND.states
    }

    fn accept(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<HaSet>(content).map(|_| ())
    }

    fn check(&self, call: &Call) -> Result<Found, String> {
        let set = Set::of(cob_kinds::parse(&call.content)?)?;
        // An observed set has no note: elements of others count as its own.
        let note = if call.observed { Some(Note::default()) } else { Note::read(&call.own)? };
        if note.is_none() && call.leaving {
            // It has changed nothing, and elements of others with its ids stay.
            return Ok(Found::state("absent"));
        }
        if let Err(why) = tools::are_there() {
            return if note.is_none() { Ok(Found::differing("absent", why)) } else { Err(why) };
        }
        let limit = Instant::now() + BUSY;
        loop {
            let look = Look::now(&set, note.as_ref())?;
            let is_final = !look.verdict.is_busy || look.verdict.state == "up" || Instant::now() >= limit;
            if is_final {
                return Ok(look.found(&set, call.observed));
            }
            sleep(PAUSE);
        }
    }

    fn make(&self, call: &Call, attempt: &TransitionAttempt) -> Made {
        let (from, to) = (attempt.from.as_str(), attempt.to.as_str());
        let made = Transition::of(call).and_then(|transition| match to {
            "stopped" => transition.to_stopped(from),
            "up" => transition.to_up(),
            "absent" => transition.to_absent(),
            other => Err(format!("it has no transition to {other}")),
        });
        made.map(|()| Values::new()).into()
    }
}

/// The cluster at a moment.
struct Look {
    cib: Cib,
    verdict: Verdict,
}

impl Look {
    fn now(set: &Set, note: Option<&Note>) -> Result<Self, String> {
        let monitor = Monitor::read(&tools::monitor()?)?;
        let text = tools::query()?;
        let cib = Cib::read(&text)?;
        let planned = Action::read(&tools::simulate(&text)?)?;
        let mut verdict = set.judge(note, &cib, &monitor, &planned);
        if monitor.is_in_maintenance() {
            verdict.drift.push("the whole cluster is in maintenance".to_owned());
        }
        Ok(Self { cib, verdict })
    }

    /// The answer to a check. It includes the simulation of a transition.
    fn found(&self, set: &Set, observed: bool) -> Found {
        let Verdict { state, .. } = &self.verdict;
        let mut text = self.verdict.text();
        if ["absent", "outdated", "stopped"].contains(state) && !observed {
            let preview = self.preview(set).unwrap_or_else(|why| format!("it would be refused: {why}"));
            text = [text, preview].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        }
        let state = if observed && *state != "up" { "absent" } else { state };
        if text.is_empty() { Found::state(state) } else { Found::differing(state, text) }
    }

    /// The actions of the cluster until the set is up.
    fn preview(&self, set: &Set) -> Result<String, String> {
        let mut new = self.cib.clone();
        set.define(&mut new);
        set.resources().for_each(|place| new.edit(place, unmark));
        if new == self.cib {
            return Ok(String::new());
        }
        let text = new.text();
        tools::verify(&text)?;
        let actions = Action::read(&tools::simulate(&text)?)?;
        let forbidden = refused(&actions, &set.content, &set.resource_ids(), Purpose::Start);
        let would = if actions.is_empty() { String::new() } else { format!("the cluster would {}", listed(&actions)) };
        Ok(if forbidden.is_empty() { would } else { format!("{would}; not allowed: {}", listed(forbidden)) })
    }
}

impl Set {
    /// Puts the elements that differ.
    fn define(&self, cib: &mut Cib) {
        for place in cib.differences(&self.wanted).into_keys() {
            cib.put(&place, self.wanted[&place].clone());
        }
    }
}

/// A transition of a set.
struct Transition<'a> {
    call: &'a Call,
    set: Set,
    limit: Instant,
}

impl<'a> Transition<'a> {
    fn of(call: &'a Call) -> Result<Self, String> {
        tools::are_there()?;
        let set = Set::of(cob_kinds::parse(&call.content)?)?;
        // The rest is for the last look, and for the answer.
        Ok(Self { call, set, limit: Instant::now() + call.timeout() * 4 / 5 })
    }

    /// All elements are in the configuration, and all resources are kept stopped.
    fn to_stopped(&self, from: &str) -> Result<(), String> {
        self.bring(if from == "absent" { Purpose::Define } else { Purpose::Stop }, mark, "stopped")
    }

    /// All elements are in the configuration, and no resource is kept stopped.
    fn to_up(&self) -> Result<(), String> {
        self.bring(Purpose::Start, unmark, "up")
    }

    /// Brings the set into a state. All changes are a single patch, so that a new resource does not hinder the others
    /// while it is stopped.
    fn bring(&self, purpose: Purpose, change: fn(&mut Xml), state: &str) -> Result<(), String> {
        HaSetKind.accept(&self.call.content)?;
        self.change(purpose, |cib, note| {
            self.leave_former(cib, note)?;
            self.set.define(cib);
            self.set.resources().for_each(|place| cib.edit(place, change));
            Ok(())
        })?;
        self.forget_former()?;
        self.reach(state)
    }

    /// Own resources stop, then the earlier elements return.
    fn to_absent(&self) -> Result<(), String> {
        let Some(note) = Note::read(&self.call.own)? else { return Ok(()) };
        let resources = || note.places().filter(|place| place.0 == Section::Resources);
        self.change_noted(Purpose::Stop, |cib, note| {
            for place in resources() {
                let before = note.before(place)?;
                // After a kill, the earlier element may be back already.
                if before.as_ref() != cib.find(place) {
                    cib.edit(place, mark);
                }
            }
            Ok(())
        })?;
        self.reach_stop(&note)?;
        self.forget_failures(&note)?;
        self.change_noted(Purpose::Return, |cib, note| {
            note.places().try_for_each(|place| note.before(place).map(|before| cib.replace(place, before)))
        })?;
        if self.call.leaving {
            // The cluster may leave now, too, and answers no further question.
            return file::delete(&self.call.own);
        }
        tools::wait(self.left())?;
        let cib = Cib::read(&tools::query()?)?;
        for place in note.places() {
            if note.before(place)?.as_ref() != cib.find(place) {
                return Err(format!("{} was restored, and another program has changed it since", place.1));
            }
        }
        file::delete(&self.call.own)
    }

    /// Restores the earlier elements at places that the content does not name any more.
    fn leave_former(&self, cib: &mut Cib, note: &Note) -> Result<(), String> {
        let mut former = note.places().filter(|place| !self.set.wanted.contains_key(*place));
        former.try_for_each(|place| note.before(place).map(|before| cib.replace(place, before)))
    }

    fn forget_former(&self) -> Result<(), String> {
        let Some(note) = Note::read(&self.call.own)? else { return Ok(()) };
        let rest = note.clone().only(|place| self.set.wanted.contains_key(place));
        if rest == note { Ok(()) } else { rest.write(&self.call.own) }
    }

    /// Changes the configuration; before the first change of a place, notes its element.
    fn change(&self, purpose: Purpose, edit: impl Fn(&mut Cib, &Note) -> Result<(), String>) -> Result<(), String> {
        self.change_with(purpose, edit, |note, cib| note.including(self.set.wanted.keys(), cib))
    }

    /// Changes the configuration at the noted places.
    fn change_noted(
        &self,
        purpose: Purpose,
        edit: impl Fn(&mut Cib, &Note) -> Result<(), String>,
    ) -> Result<(), String> {
        self.change_with(purpose, edit, |note, _| note)
    }

    /// Repeats the change until no other program has changed the configuration in between. A refused change notes
    /// nothing: others may change the elements before the next attempt.
    fn change_with(
        &self,
        purpose: Purpose,
        edit: impl Fn(&mut Cib, &Note) -> Result<(), String>,
        noted: impl Fn(Note, &Cib) -> Note,
    ) -> Result<(), String> {
        let before = Note::read(&self.call.own)?;
        loop {
            Monitor::read(&tools::monitor()?)?;
            let text = tools::query()?;
            let cib = Cib::read(&text)?;
            self.is_free(&cib)?;
            let note = noted(before.clone().unwrap_or_default(), &cib);
            let mut new = cib.clone();
            edit(&mut new, &note)?;
            if new == cib {
                return self.keep(&note);
            }
            let changed = new.text();
            // A new cluster was no valid configuration before: it had neither fence devices nor a property against them.
            let is_empty = purpose == Purpose::Return && new.resources().next().is_none();
            if !is_empty {
                tools::verify(&changed).map_err(|why| format!("the configuration would be wrong: {why}"))?;
            }
            self.is_allowed(purpose, (&cib, &text), (&new, &changed), &note)?;
            let patch = tools::patch_between(&text, &changed)?;
            self.keep(&note)?;
            let Some(patch) = patch else { return Ok(()) };
            match tools::patch(&patch)? {
                Patched::Done => return Ok(()),
                Patched::Outdated if Instant::now() < self.limit => sleep(AGAIN),
                Patched::Outdated => {
                    before.map_or_else(|| file::delete(&self.call.own), |before| self.keep(&before))?;
                    return Err("other programs changed the configuration again and again".to_owned());
                }
            }
        }
    }

    /// Writes a note, unless it is there already.
    fn keep(&self, note: &Note) -> Result<(), String> {
        if Note::read(&self.call.own)?.as_ref() == Some(note) { Ok(()) } else { note.write(&self.call.own) }
    }

    /// No element of others contains a resource of the set.
    fn is_free(&self, cib: &Cib) -> Result<(), String> {
        let noted = Note::read(&self.call.own)?.unwrap_or_default();
        let own = self.set.resources().chain(noted.places()).cloned().collect();
        match cib.foreign_container(&self.set.resource_ids(), &own) {
            Some((id, container)) => Err(format!(
                "{id} is a part of {container} of others; take it out of {container}, or choose another id"
            )),
            None => Ok(()),
        }
    }

    /// Whether each action that a change would cause is the purpose of the transition, or allowed.
    fn is_allowed(
        &self,
        purpose: Purpose,
        (cib, text): (&Cib, &str),
        (new, changed): (&Cib, &str),
        note: &Note,
    ) -> Result<(), String> {
        let places: BTreeSet<&Place> = note.places().chain(self.set.wanted.keys()).collect();
        let elements = places.into_iter().flat_map(|place| [cib.find(place), new.find(place)]).flatten();
        let mut own = self.set.resource_ids();
        own.extend(elements.flat_map(primitives).map(|one| one.id().to_owned()));
        let actions = Action::read(&tools::simulate(changed)?)?;
        if refused(&actions, &self.set.content, &own, purpose).is_empty() {
            return Ok(());
        }
        // Actions that the cluster takes anyway are no effect of this change.
        let anyway = Action::read(&tools::simulate(text)?)?;
        let forbidden = refused(actions.difference(&anyway), &self.set.content, &own, purpose);
        if forbidden.is_empty() {
            return Ok(());
        }
        let what = listed(forbidden);
        Err(format!("nothing was changed: the cluster would {what}; if it may, add the resource to `allow`"))
    }

    fn left(&self) -> Duration {
        self.limit.saturating_duration_since(Instant::now())
    }

    /// Waits for a state. A cluster that does nothing more will not reach it.
    fn reach(&self, state: &str) -> Result<(), String> {
        let note = Note::read(&self.call.own)?;
        let mut idle_since = None;
        loop {
            let verdict = Look::now(&self.set, note.as_ref())?.verdict;
            if verdict.state == state {
                return Ok(());
            }
            let is_idle = idle_since.is_some_and(|at: Instant| at.elapsed() >= SETTLED);
            if is_idle || Instant::now() >= self.limit {
                return Err(format!("it is {}, not {state}: {}", verdict.state, verdict.text()));
            }
            if verdict.is_busy {
                idle_since = None;
                tools::wait(self.left())?;
            } else {
                idle_since = idle_since.or_else(|| Some(Instant::now()));
            }
            sleep(PAUSE);
        }
    }

    /// Forgets the failures of noted resources: they would hinder later resources with the same ids.
    fn forget_failures(&self, note: &Note) -> Result<(), String> {
        let monitor = Monitor::read(&tools::monitor()?)?;
        let cib = Cib::read(&tools::query()?)?;
        let failed = kept_stopped(note, &cib).filter(|one| monitor.past_failures(one.id()).is_some());
        failed.map(Xml::id).try_for_each(tools::clean_up)
    }

    /// Waits until no noted resource that is kept stopped is active.
    fn reach_stop(&self, note: &Note) -> Result<(), String> {
        loop {
            let monitor = Monitor::read(&tools::monitor()?)?;
            let cib = Cib::read(&tools::query()?)?;
            let active = kept_stopped(note, &cib).map(Xml::id).find(|id| !monitor.nodes(id).is_empty());
            let Some(active) = active else { return Ok(()) };
            if Instant::now() >= self.limit {
                return Err(format!("{active} does not stop on {}", monitor.nodes(active).join(", ")));
            }
            sleep(PAUSE);
        }
    }
}

/// The primitives at noted places that the set keeps stopped.
fn kept_stopped<'a>(note: &Note, cib: &'a Cib) -> impl Iterator<Item = &'a Xml> {
    note.places().filter_map(|place| cib.find(place)).filter(|element| is_marked(element)).flat_map(primitives)
}
