//! The provenance of each part of a generation: files, lines, and the user's own words.
//!
//! `generation` makes it beside the bundles; `check` and `cobgen show` use it only for printed places. It never reaches
//! a daemon. In the depot it is stored beside the bundles as `provenance.json`, in the form of [`Provenance::to_json`].

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use cob_depot::PROVENANCE_FORMAT;
use cob_types::secret::SecretId;
use cob_types::{CobId, HostName, IdError, KindName, StateName};
use serde::{Deserialize, Serialize};

use crate::draft::{Arrow, Place, Said, When};

/// Places of hosts, kinds and change objects, and the words behind every dependency.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provenance {
    /// The place of each host.
    pub hosts: BTreeMap<HostName, Place>,
    /// The place of each kind.
    pub kinds: BTreeMap<KindName, Place>,
    /// The places of each change object and its dependencies.
    pub cobs: BTreeMap<CobId, Origin>,
    /// The names of the secrets with marks in contents.
    pub secrets: BTreeMap<SecretId, String>,
}

/// The places of a change object and its dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The place of the change object.
    pub place: Place,
    /// The change objects that it names in `restarts_on` and `reloads_on`.
    pub restarts_on: Vec<CobId>,
    /// Its written dependencies, sorted by guard and target. Several with the same guard and target were merged into a
    /// single need, which has their common states.
    pub arrows: Vec<Arrow>,
}

impl Origin {
    /// The arrows behind each need.
    pub fn by_need(&self) -> impl Iterator<Item = &[Arrow]> {
        self.arrows.chunk_by(|a, b| a.guards() == b.guards())
    }
}

/// The reason why a `provenance.json` was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProvenanceError {
    /// No JSON, or not in this form.
    #[error("the provenance can't be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Written by a program of another version.
    #[error("the provenance has format {found}; this program reads {PROVENANCE_FORMAT}")]
    Format {
        /// The format found.
        found: u32,
    },
    /// It refers to a missing entry.
    #[error("the provenance is damaged: it refers to {what} {number} of {of}")]
    NoEntry {
        /// The name of the table.
        what: &'static str,
        /// The number found.
        number: usize,
        /// The length of the table.
        of: usize,
    },
    /// A name in it is invalid.
    #[error("the provenance is damaged: {0}")]
    Name(#[from] IdError),
}

/// A place in the form of messages: `FILE:LINE:COLUMN`.
#[must_use]
pub fn at(place: &Place) -> String {
    format!("{}:{}:{}", place.file.display(), place.line, place.column)
}

impl Provenance {
    /// The place of a change object.
    #[must_use]
    pub fn cob(&self, cob: &CobId) -> Option<&Place> {
        self.cobs.get(cob).map(|origin| &origin.place)
    }

    /// The words behind a need; empty if unknown.
    #[must_use]
    pub fn sources(&self, cob: &CobId, when: &When, on: &CobId) -> &[Arrow] {
        let Some(origin) = self.cobs.get(cob) else { return &[] };
        let begin = origin.arrows.partition_point(|arrow| arrow.guards() < (when, on));
        let behind = &origin.arrows[begin..];
        &behind[..behind.partition_point(|arrow| arrow.guards() == (when, on))]
    }

    /// The bytes of `provenance.json`: the same content gives the same bytes.
    ///
    /// # Errors
    /// Never for values made by this program; the signature is that of the JSON writer.
    pub fn to_json(&self) -> Result<Vec<u8>, ProvenanceError> {
        let mut tables = Tables::default();
        let mut cobs = BTreeMap::new();
        for (id, origin) in &self.cobs {
            let origin = tables.origin(id, origin);
            cobs.insert(id.clone(), tables.origins.number(origin));
        }
        let hosts = self.hosts.iter().map(|(name, place)| (name.clone(), tables.position(place))).collect();
        let kinds = self.kinds.iter().map(|(name, place)| (name.clone(), tables.position(place))).collect();
        let secrets = self.secrets.clone();
        let raw = Raw {
            format: PROVENANCE_FORMAT,
            files: tables.files.list.iter().map(|name| name.to_string_lossy()).collect(),
            hosts,
            kinds,
            guards: tables.guards.list,
            sources: tables.sources.list,
            origins: tables.origins.list,
            cobs,
            secrets,
        };
        Ok(serde_json::to_vec(&raw)?)
    }

    /// Reads `provenance.json`.
    ///
    /// # Errors
    /// [`ProvenanceError`] for all input that [`Provenance::to_json`] doesn't write.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ProvenanceError> {
        let FormatOnly { format } = serde_json::from_slice(bytes)?;
        if format != PROVENANCE_FORMAT {
            return Err(ProvenanceError::Format { found: format });
        }
        let raw: Raw<'_> = serde_json::from_slice(bytes)?;
        let mut read = Read::of(&raw)?;
        let mut cobs = BTreeMap::new();
        for (id, number) in &raw.cobs {
            cobs.insert(id.clone(), read.origin(id, entry("origin", &raw.origins, *number)?)?);
        }
        let places = |(name, at): (&HostName, &Position)| Ok((name.clone(), read.place(*at)?));
        let hosts = raw.hosts.iter().map(places).collect::<Result<_, ProvenanceError>>()?;
        let places = |(name, at): (&KindName, &Position)| Ok((name.clone(), read.place(*at)?));
        let kinds = raw.kinds.iter().map(places).collect::<Result<_, ProvenanceError>>()?;
        Ok(Self { hosts, kinds, cobs, secrets: raw.secrets })
    }
}

/// File (by number in the table), line, column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Position(usize, u32, u32);

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

/// Common data of many change objects is written once: the change objects of a service on a hundred nodes share an
/// origin.
#[derive(Serialize, Deserialize)]
struct Raw<'a> {
    format: u32,
    #[serde(borrow)]
    files: Vec<Cow<'a, str>>,
    hosts: BTreeMap<HostName, Position>,
    kinds: BTreeMap<KindName, Position>,
    guards: Vec<RawGuard>,
    #[serde(borrow)]
    sources: Vec<RawSource<'a>>,
    #[serde(borrow)]
    origins: Vec<RawOrigin<'a>>,
    /// By number in the table.
    cobs: BTreeMap<CobId, usize>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<SecretId, String>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct RawOrigin<'a> {
    at: Position,
    /// Names; a name on the same host is written without the host, from the first `/` on.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    restarts_on: Vec<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    arrows: Vec<RawArrow<'a>>,
}

/// The guard by number, the name of the change object that it depends on, the sources by number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct RawArrow<'a>(usize, #[serde(borrow)] Cow<'a, str>, Vec<usize>);

/// The event that a dependency guards: `[from, to]` or `[state]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum RawGuard {
    Transition(StateName, StateName),
    Lock([StateName; 1]),
}

/// The place, the words, the states.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct RawSource<'a>(Position, #[serde(borrow)] Cow<'a, str>, Vec<StateName>);

/// A list of distinct values, in the order of their first use.
struct Table<T> {
    list: Vec<T>,
    numbers: BTreeMap<T, usize>,
}

impl<T: Clone + Ord> Table<T> {
    fn number(&mut self, value: T) -> usize {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        self.list.push(value.clone());
        self.numbers.insert(value, self.list.len() - 1);
        self.list.len() - 1
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { list: Vec::new(), numbers: BTreeMap::new() }
    }
}

#[derive(Default)]
struct Tables<'a> {
    files: Table<&'a OsStr>,
    guards: Table<RawGuard>,
    sources: Table<RawSource<'a>>,
    origins: Table<RawOrigin<'a>>,
    /// The numbers of shared statements, so that each is processed once. For look-ups only, never iterated.
    known: HashMap<*const Said, (usize, usize)>,
}

impl<'a> Tables<'a> {
    fn position(&mut self, place: &'a Place) -> Position {
        Position(self.files.number(place.file.as_os_str()), place.line, place.column)
    }

    fn origin(&mut self, id: &CobId, origin: &'a Origin) -> RawOrigin<'a> {
        let host = id.host_str();
        let name =
            |of: &'a CobId| Cow::Borrowed(if of.host_str() == host { &of.as_str()[host.len()..] } else { of.as_str() });
        let at = self.position(&origin.place);
        let restarts_on = origin.restarts_on.iter().map(name).collect();
        let mut arrows = Vec::with_capacity(origin.arrows.len());
        for same in origin.by_need() {
            let guard = self.said(&same[0].said).0;
            let numbers = same.iter().map(|arrow| self.said(&arrow.said).1).collect();
            arrows.push(RawArrow(guard, name(&same[0].on), numbers));
        }
        RawOrigin { at, restarts_on, arrows }
    }

    /// The numbers of the guard and of the source.
    fn said(&mut self, said: &'a Arc<Said>) -> (usize, usize) {
        let Said { when, states, words, place } = &**said;
        if let Some(known) = self.known.get(&Arc::as_ptr(said)) {
            return *known;
        }
        let guard = self.guards.number(match when {
            When::Transition { from, to } => RawGuard::Transition(from.clone(), to.clone()),
            When::Lock { state } => RawGuard::Lock([state.clone()]),
        });
        let source = RawSource(self.position(place), Cow::Borrowed(words), states.clone());
        let numbers = (guard, self.sources.number(source));
        self.known.insert(Arc::as_ptr(said), numbers);
        numbers
    }
}

/// The tables as they were read.
struct Read {
    files: Vec<Arc<PathBuf>>,
    guards: Vec<When>,
    /// Words, place and states.
    sources: Vec<(Arc<str>, Place, Vec<StateName>)>,
    /// By guard and source.
    said: BTreeMap<(usize, usize), Arc<Said>>,
}

impl Read {
    fn of(raw: &Raw<'_>) -> Result<Self, ProvenanceError> {
        let files = raw.files.iter().map(|name| Arc::new(PathBuf::from(&**name))).collect();
        let guards = raw.guards.iter().map(|guard| match guard {
            RawGuard::Transition(from, to) => When::Transition { from: from.clone(), to: to.clone() },
            RawGuard::Lock([state]) => When::Lock { state: state.clone() },
        });
        let mut read = Self { files, guards: guards.collect(), sources: Vec::new(), said: BTreeMap::new() };
        for RawSource(at, words, states) in &raw.sources {
            read.sources.push((Arc::from(&**words), read.place(*at)?, states.clone()));
        }
        Ok(read)
    }

    fn place(&self, position: Position) -> Result<Place, ProvenanceError> {
        let Position(file, line, column) = position;
        Ok(Place { file: Arc::clone(entry("file", &self.files, file)?), line, column })
    }

    /// The origin of this change object.
    fn origin(&mut self, id: &CobId, raw: &RawOrigin<'_>) -> Result<Origin, ProvenanceError> {
        let name = |text: &str| match text.starts_with('/') {
            true => Ok(CobId::new(&format!("{}{text}", id.host_str()))?),
            false => Ok::<_, ProvenanceError>(CobId::new(text)?),
        };
        let mut arrows = Vec::new();
        for RawArrow(guard, on, numbers) in &raw.arrows {
            let on = name(on)?;
            for number in numbers {
                arrows.push(Arrow { on: on.clone(), said: self.said(*guard, *number)? });
            }
        }
        let restarts_on = raw.restarts_on.iter().map(|on| name(on)).collect::<Result<_, _>>()?;
        Ok(Origin { place: self.place(raw.at)?, restarts_on, arrows })
    }

    fn said(&mut self, guard: usize, source: usize) -> Result<Arc<Said>, ProvenanceError> {
        if let Some(known) = self.said.get(&(guard, source)) {
            return Ok(Arc::clone(known));
        }
        let when = entry("guard", &self.guards, guard)?.clone();
        let (words, place, states) = entry("source", &self.sources, source)?.clone();
        let said = Arc::new(Said { when, states, words, place });
        self.said.insert((guard, source), Arc::clone(&said));
        Ok(said)
    }
}

fn entry<'t, T>(what: &'static str, table: &'t [T], number: usize) -> Result<&'t T, ProvenanceError> {
    table.get(number).ok_or(ProvenanceError::NoEntry { what, number, of: table.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sketch;

    #[test]
    fn provenance_is_read_back_unchanged_from_json() {
        let mut sketch = Sketch::new();
        sketch
            .cob("a/app", "up")
            .cob("b/db", "up")
            .cob("b/conf", "up")
            .requires("a/app", "b/db")
            .after("a/app", "b/db");
        sketch.restarts_on("b/db", "b/conf");
        let provenance = sketch.assembled().provenance;
        let bytes = provenance.to_json().expect("written");
        assert_eq!(Provenance::from_json(&bytes).expect("read"), provenance);
    }

    #[test]
    fn damage_is_told_apart() {
        let refused = |text: &str| Provenance::from_json(text.as_bytes()).expect_err(text).to_string();
        assert!(refused("{").contains("can't be read"));
        assert!(refused(r#"{"format":9}"#).contains("format 9"));
        let with = |hosts: &str, origin: &str| {
            let tables = r#""files":["m"],"kinds":{},"guards":[["up"]],"sources":[[[0,1,1],"w",["up"]]]"#;
            refused(&format!(
                r#"{{"format":2,{tables},"hosts":{{{hosts}}},"origins":[{{"at":[0,1,1]{origin}}}],"cobs":{{"a/x":0}}}}"#
            ))
        };
        assert!(with(r#""n1":[3,1,1]"#, "").contains("file 3 of 1"));
        assert!(with("", r#","arrows":[[1,"/y",[0]]]"#).contains("guard 1 of 1"));
        assert!(with("", r#","arrows":[[0,"/y",[7]]]"#).contains("source 7 of 1"));
        assert!(with("", r#","arrows":[[0,"y",[0]]]"#).contains("names no host"));
    }

    #[test]
    fn provenance_that_nodes_share_is_written_once() {
        let place = Place { file: Arc::new(PathBuf::from("model.yaml")), line: 3, column: 5 };
        let state = StateName::new("up").expect("a state");
        let id = |node: usize, name: &str| CobId::new(&format!("n{node}/{name}")).expect("an id");
        let of = |node: usize| {
            let (when, states) = (When::Lock { state: state.clone() }, vec![state.clone()]);
            let said = Said { when, states, words: "requires: [db]".into(), place: place.clone() };
            let arrow = Arrow { on: id(node, "db"), said: Arc::new(said) };
            Origin { place: place.clone(), restarts_on: vec![id(node, "db")], arrows: vec![arrow] }
        };
        let nodes = |count: usize| Provenance {
            cobs: (10..10 + count).map(|node| (id(node, "app"), of(node))).collect(),
            ..Provenance::default()
        };
        let [ten, twenty] = [10, 20].map(|count| nodes(count).to_json().expect("written"));
        assert_eq!(twenty.len() - ten.len(), 10 * r#""n10/app":0,"#.len());
        assert_eq!(Provenance::from_json(&twenty).expect("read"), nodes(20));
    }
}
