//! Faults that prevent a generation.
//!
//! All faults of a draft are reported at once, each with its places.

use std::fmt;

use cob_types::askers::TooMany;
use cob_types::generation::{MAX_BUNDLE, MAX_MANIFEST};
use cob_types::{BlobHash, CobId, HostName, KindName};

use crate::diagnostic::Diagnostic;
use crate::draft::{Arrow, Place, When};
use crate::provenance::at;

/// All faults of a draft; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Each fault, in the order of the change objects' ids.
    pub faults: Vec<Fault>,
}

/// A fault of a draft.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A change object on an unknown host.
    #[error("{cob} is on {host}, a host that the model does not have; add it under `hosts`")]
    UnknownHost {
        /// The change object.
        cob: CobId,
        /// Its host.
        host: HostName,
        /// Its place.
        place: Place,
    },
    /// A change object of an unknown kind.
    #[error("{cob} is of the kind {kind}, which does not exist; add it under `kinds`")]
    UnknownKind {
        /// The change object.
        cob: CobId,
        /// Its kind.
        kind: KindName,
        /// Its place.
        place: Place,
    },
    /// A `restarts_on` with an unknown name.
    #[error("{cob} restarts on {on}, which does not exist")]
    UnknownRestart {
        /// The change object.
        cob: CobId,
        /// The unknown name.
        on: CobId,
        /// The place of the name.
        place: Place,
    },
    /// Change objects that rely on each other's content in a circle: they have no fingerprint.
    #[error("circular dependency of restarts: {}", circle(.steps))]
    RestartCircle {
        /// Each names the next, the last names the first.
        steps: Vec<RestartStep>,
    },
    /// Two statements of a dependency without a common state.
    #[error(
        "{cob} {} needs {on} both in {} ({}, {}) and in {} ({}, {}); no state satisfies both",
        guarded(.when), listed(&.two[0]), .two[0].said.words, at(&.two[0].said.place),
        listed(&.two[1]), .two[1].said.words, at(&.two[1].said.place)
    )]
    NoCommonState {
        /// The dependent.
        cob: CobId,
        /// The guarded event.
        when: When,
        /// The change object that it depends on.
        on: CobId,
        /// The first statement, with its remaining states, and the statement that excludes all these.
        two: Box<[Arrow; 2]>,
    },
    /// A file whose content is not in the draft.
    #[error("the content of the file {file} of {owner} is missing (it should have the hash {blob})")]
    MissingBlob {
        /// The change object or kind that carries the file.
        owner: String,
        /// The file's name.
        file: String,
        /// The expected hash.
        blob: BlobHash,
        /// The place of the owner.
        place: Place,
    },
    /// A file in the draft whose content does not match its hash.
    #[error("the content with the hash {blob} has a different hash")]
    WrongBlob {
        /// The hash under which it is stored.
        blob: BlobHash,
    },
    /// A bundle that daemons would refuse to read.
    #[error(
        "the bundle of {host} would be {len} bytes long; daemons read at most {MAX_BUNDLE}: put large files elsewhere"
    )]
    BundleTooLarge {
        /// The host.
        host: HostName,
        /// The length.
        len: usize,
        /// The place of the host.
        place: Place,
    },
    /// More dependencies between hosts than a daemon can serve.
    #[error(
        "the bundle of {host}: {many}; let a single change object of each host depend on it, and the others on that \
         object"
    )]
    TooManyAskers {
        /// The host with too many dependents.
        host: HostName,
        /// The exceeded limit.
        many: TooMany,
        /// The place of the host.
        place: Place,
    },
    /// A manifest that daemons would refuse to read.
    #[error("the manifest would be {len} bytes long; daemons read at most {MAX_MANIFEST}: use fewer hosts")]
    ManifestTooLarge {
        /// The length.
        len: usize,
    },
    /// A value that CBOR can't carry.
    #[error("{what} can't be written: {reason}")]
    Encoding {
        /// The value.
        what: String,
        /// The encoder's message.
        reason: String,
    },
}

/// An arrow in a circle of `restarts_on`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartStep {
    /// The change object that restarts.
    pub cob: CobId,
    /// The change object that it names.
    pub on: CobId,
    /// The place of this statement.
    pub place: Place,
}

impl Fault {
    /// The places of the fault, the most relevant first.
    #[must_use]
    pub fn places(&self) -> Vec<&Place> {
        match self {
            Self::UnknownHost { place, .. }
            | Self::UnknownKind { place, .. }
            | Self::UnknownRestart { place, .. }
            | Self::MissingBlob { place, .. }
            | Self::BundleTooLarge { place, .. }
            | Self::TooManyAskers { place, .. } => vec![place],
            Self::RestartCircle { steps } => steps.iter().map(|step| &step.place).collect(),
            Self::NoCommonState { two, .. } => vec![&two[1].said.place, &two[0].said.place],
            Self::WrongBlob { .. } | Self::ManifestTooLarge { .. } | Self::Encoding { .. } => Vec::new(),
        }
    }
}

impl From<Fault> for Diagnostic {
    fn from(fault: Fault) -> Self {
        match &fault {
            Fault::UnknownHost { cob, host, place } => {
                Self::error("unknown-name", format!("{cob} is on {host}, a host that the model does not have"))
                    .at(place.clone())
                    .help("add the host under `hosts`")
            }
            Fault::UnknownKind { cob, kind, place } => {
                Self::error("unknown-name", format!("{cob} is of the kind {kind}, which does not exist"))
                    .at(place.clone())
                    .help("add the kind under `kinds`")
            }
            Fault::UnknownRestart { place, .. } => {
                Self::error("unknown-name", fault.to_string()).at(place.clone()).help("correct or remove the name")
            }
            Fault::RestartCircle { steps } => {
                let circle = Self::error("restart-circle", "circular dependency of restarts");
                let circle = steps.iter().fold(circle, |told, RestartStep { cob, on, place }| {
                    told.note(Some(place.clone()), format!("{cob} restarts when {on} changes"))
                });
                circle.help("remove a `restarts_on` of the circle; `after` keeps the order without the restart")
            }
            Fault::NoCommonState { cob, when, on, two } => {
                let text = format!("{cob} {} needs {on} in a state that does not exist", guarded(when));
                let told = two.iter().fold(Self::error("no-common-state", text), |told, source| {
                    let states = listed(source).replace('|', " or ");
                    told.note(Some(source.said.place.clone()), format!("`{}` accepts {states}", source.said.words))
                });
                told.help("remove either dependency, or let both accept the same state")
            }
            Fault::MissingBlob { place, .. } => Self::error("files", fault.to_string())
                .at(place.clone())
                .help("the file may have been changed while it was read: try again"),
            Fault::BundleTooLarge { host, len, place } => {
                Self::error("too-large", format!("the bundle of {host} would be {len} bytes long"))
                    .at(place.clone())
                    .note(None, format!("daemons read at most {MAX_BUNDLE}"))
                    .help("let the actions download large files")
            }
            Fault::TooManyAskers { host, many, place } => Self::error(
                "too-large",
                format!("too many dependencies between hosts end on {host}"),
            )
            .at(place.clone())
            .note(None, many.to_string())
            .help("give each host its own change object that depends on it, and let the others depend on that object"),
            Fault::WrongBlob { .. } | Fault::ManifestTooLarge { .. } | Fault::Encoding { .. } => {
                Self::error("unfit", fault.to_string())
            }
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            if let Some(place) = fault.places().first() {
                write!(f, "{}: ", at(place))?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

fn guarded(when: &When) -> String {
    match when {
        When::Transition { from, to } => format!("to go {from} -> {to}"),
        When::Lock { state } => format!("to grant {state}"),
    }
}

fn listed(source: &Arrow) -> String {
    let names: Vec<&str> = source.said.states.iter().map(cob_types::StateName::as_str).collect();
    names.join("|")
}

fn circle(steps: &[RestartStep]) -> String {
    let arrows: Vec<String> =
        steps.iter().map(|step| format!("{} restarts on {} ({})", step.cob, step.on, at(&step.place))).collect();
    arrows.join(", ")
}
