//! Where everything in a generation comes from: files, lines, and the user's own words.
//!
//! Made by `generation` beside the bundles, read by `check` and `cobgen show` for nothing but the
//! places that they print. It never reaches a daemon; in the depot it lies beside the bundles as
//! `provenance.json`, whose form is [`Provenance::to_json`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use cob_types::secret::SecretId;
use cob_types::{CobId, HostName, KindName, StateName};
use serde::{Deserialize, Serialize};

use crate::draft::{Place, When};

/// The form of `provenance.json` written here.
pub const FORMAT: u32 = 1;

/// Places of hosts, kinds and change objects, and the words behind every dependency.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provenance {
    /// Where each host is written.
    pub hosts: BTreeMap<HostName, Place>,
    /// Where each kind is written.
    pub kinds: BTreeMap<KindName, Place>,
    /// Where each change object and each of its dependencies is written.
    pub cobs: BTreeMap<CobId, Origin>,
    /// The names of the secrets whose marks stand in contents.
    pub secrets: BTreeMap<SecretId, String>,
}

/// Where a change object and its dependencies come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Where the change object is written.
    pub place: Place,
    /// What it names in `restarts_on` and `reloads_on`.
    pub restarts_on: Vec<CobId>,
    /// The words behind each need, by what it guards and whom it names. More than one where several
    /// words were merged into one need.
    pub arrows: BTreeMap<(When, CobId), Vec<Source>>,
}

/// One writing of a dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The words as the user wrote them.
    pub words: String,
    /// Where they stand.
    pub place: Place,
    /// The acceptable states that they mean; the need itself holds what all its sources share.
    pub states: Vec<StateName>,
}

/// Why a `provenance.json` was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProvenanceError {
    /// Not JSON, or not of this form.
    #[error("the record of where things come from is not understood: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Written by a newer program.
    #[error("the record of where things come from has format {found}; this program reads {FORMAT}: use a newer cobgen")]
    Newer {
        /// The format found.
        found: u32,
    },
    /// A place names a file that is not in the table.
    #[error("the record of where things come from names file {index} of {files}; it is damaged")]
    NoFile {
        /// The index found.
        index: usize,
        /// The length of the table.
        files: usize,
    },
    /// A dependency says neither which transition nor which promise it guards.
    #[error("the record of where {cob} comes from has a dependency on {on} that guards nothing; it is damaged")]
    GuardsNothing {
        /// The dependent.
        cob: CobId,
        /// The depended-on change object.
        on: CobId,
    },
}

/// A place as messages show it: `FILE:LINE:COLUMN`.
#[must_use]
pub fn at(place: &Place) -> String {
    format!("{}:{}:{}", place.file.display(), place.line, place.column)
}

impl Provenance {
    /// Where a change object is written.
    #[must_use]
    pub fn cob(&self, cob: &CobId) -> Option<&Place> {
        self.cobs.get(cob).map(|origin| &origin.place)
    }

    /// The words behind one need; empty when nothing is known.
    #[must_use]
    pub fn sources(&self, cob: &CobId, when: &When, on: &CobId) -> &[Source] {
        self.cobs.get(cob).and_then(|origin| origin.arrows.get(&(when.clone(), on.clone()))).map_or(&[], Vec::as_slice)
    }

    /// The bytes of `provenance.json`: the same content gives the same bytes.
    ///
    /// # Errors
    /// Never for values made by this program; the signature is that of the JSON writer.
    pub fn to_json(&self) -> Result<Vec<u8>, ProvenanceError> {
        let mut files = Files::default();
        let cobs = self
            .cobs
            .iter()
            .map(|(id, origin)| (id.clone(), RawOrigin::of(origin, &mut files)))
            .collect::<BTreeMap<_, _>>();
        let hosts = self.hosts.iter().map(|(name, place)| (name.clone(), files.position(place))).collect();
        let kinds = self.kinds.iter().map(|(name, place)| (name.clone(), files.position(place))).collect();
        let secrets = self.secrets.clone();
        let raw = Raw { format: FORMAT, files: files.names, hosts, kinds, cobs, secrets };
        Ok(serde_json::to_vec(&raw)?)
    }

    /// Reads `provenance.json`.
    ///
    /// # Errors
    /// [`ProvenanceError`] for anything that [`Provenance::to_json`] doesn't write.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ProvenanceError> {
        let FormatOnly { format } = serde_json::from_slice(bytes)?;
        if format > FORMAT {
            return Err(ProvenanceError::Newer { found: format });
        }
        let raw: Raw = serde_json::from_slice(bytes)?;
        let files: Vec<Arc<PathBuf>> = raw.files.into_iter().map(|name| Arc::new(PathBuf::from(name))).collect();
        let place = |position: Position| place_of(position, &files);
        let mut cobs = BTreeMap::new();
        for (id, origin) in raw.cobs {
            let origin = origin.read(&id, &files)?;
            cobs.insert(id, origin);
        }
        Ok(Self {
            hosts: raw.hosts.into_iter().map(|(n, p)| Ok((n, place(p)?))).collect::<Result<_, ProvenanceError>>()?,
            kinds: raw.kinds.into_iter().map(|(n, p)| Ok((n, place(p)?))).collect::<Result<_, ProvenanceError>>()?,
            cobs,
            secrets: raw.secrets,
        })
    }
}

/// File (by number in the table), line, column.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Position(usize, u32, u32);

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Raw {
    format: u32,
    files: Vec<String>,
    hosts: BTreeMap<HostName, Position>,
    kinds: BTreeMap<KindName, Position>,
    cobs: BTreeMap<CobId, RawOrigin>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<SecretId, String>,
}

#[derive(Serialize, Deserialize)]
struct RawOrigin {
    at: Position,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    restarts_on: Vec<CobId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arrows: Vec<RawArrow>,
}

#[derive(Serialize, Deserialize)]
struct RawArrow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<StateName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<StateName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<StateName>,
    on: CobId,
    sources: Vec<RawSource>,
}

#[derive(Serialize, Deserialize)]
struct RawSource {
    words: String,
    at: Position,
    states: Vec<StateName>,
}

impl RawOrigin {
    fn of(origin: &Origin, files: &mut Files) -> Self {
        let at = files.position(&origin.place);
        let arrows = origin
            .arrows
            .iter()
            .map(|((when, on), sources)| {
                let (from, to, state) = match when {
                    When::Transition { from, to } => (Some(from.clone()), Some(to.clone()), None),
                    When::Lock { state } => (None, None, Some(state.clone())),
                };
                let sources = sources
                    .iter()
                    .map(|s| RawSource {
                        words: s.words.clone(),
                        at: files.position(&s.place),
                        states: s.states.clone(),
                    })
                    .collect();
                RawArrow { from, to, state, on: on.clone(), sources }
            })
            .collect();
        Self { at, restarts_on: origin.restarts_on.clone(), arrows }
    }

    fn read(self, cob: &CobId, files: &[Arc<PathBuf>]) -> Result<Origin, ProvenanceError> {
        let mut arrows = BTreeMap::new();
        for raw in self.arrows {
            let when = match (raw.from, raw.to, raw.state) {
                (Some(from), Some(to), None) => When::Transition { from, to },
                (None, None, Some(state)) => When::Lock { state },
                (..) => return Err(ProvenanceError::GuardsNothing { cob: cob.clone(), on: raw.on }),
            };
            let sources = raw
                .sources
                .into_iter()
                .map(|s| Ok(Source { words: s.words, place: place_of(s.at, files)?, states: s.states }))
                .collect::<Result<Vec<_>, ProvenanceError>>()?;
            arrows.insert((when, raw.on), sources);
        }
        Ok(Origin { place: place_of(self.at, files)?, restarts_on: self.restarts_on, arrows })
    }
}

/// The table of files, in the order of their first use.
#[derive(Default)]
struct Files {
    names: Vec<String>,
    numbers: BTreeMap<OsString, usize>,
}

impl Files {
    fn position(&mut self, place: &Place) -> Position {
        let number = match self.numbers.get(place.file.as_os_str()) {
            Some(number) => *number,
            None => {
                self.names.push(place.file.to_string_lossy().into_owned());
                self.numbers.insert(place.file.as_os_str().to_owned(), self.names.len() - 1);
                self.names.len() - 1
            }
        };
        Position(number, place.line, place.column)
    }
}

fn place_of(position: Position, files: &[Arc<PathBuf>]) -> Result<Place, ProvenanceError> {
    let Position(index, line, column) = position;
    let file = files.get(index).ok_or(ProvenanceError::NoFile { index, files: files.len() })?;
    Ok(Place { file: file.clone(), line, column })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sketch;

    #[test]
    fn json_gives_back_what_went_in() {
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
        assert!(refused("{").contains("not understood"));
        assert!(refused(r#"{"format":9}"#).contains("format 9"));
        let rest = r#""files":[],"hosts":{"n1":[3,1,1]},"kinds":{},"cobs":{}}"#;
        assert!(refused(&format!(r#"{{"format":1,{rest}"#)).contains("file 3 of 0"));
        let arrow = r#"{"from":"down","on":"a/y","sources":[]}"#;
        let text = format!(
            r#"{{"format":1,"files":["m"],"hosts":{{}},"kinds":{{}},"cobs":{{"a/x":{{"at":[0,1,1],"arrows":[{arrow}]}}}}}}"#
        );
        assert!(refused(&text).contains("guards nothing"));
    }
}
