//! Errors of reading and writing a depot.

use std::path::{Path, PathBuf};

use cob_types::words::count;
use cob_types::{GenerationNumber, HostName};

/// The reason why a depot can't be opened, or part of it can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    /// Nothing exists at the path.
    #[error("there is no depot at {}: `cobgen generate MODEL --depot DIR` creates it", path.display())]
    Missing {
        /// The path that was tried.
        path: PathBuf,
    },
    /// This user may not read the depot.
    #[error("the depot {} can't be read: permission denied; it, its files and each folder above must be readable by this user", path.display())]
    NoPermission {
        /// The path that was tried.
        path: PathBuf,
    },
    /// The path holds no depot.
    #[error("{} is not a depot: {why}", path.display())]
    NotADepot {
        /// Where it was looked for.
        path: PathBuf,
        /// What the path holds instead.
        why: String,
    },
    /// A newer program wrote it.
    #[error("{what} has format {found}; this program reads {known}: use a newer program")]
    Newer {
        /// The depot, a manifest or a bundle.
        what: String,
        /// The format found.
        found: u32,
        /// The newest format read here.
        known: u32,
    },
    /// The depot does not have this generation.
    #[error("generation {number} is not in the depot: {}", latest_in_words(*.latest))]
    NoGeneration {
        /// The number asked for.
        number: GenerationNumber,
        /// The newest generation in the depot.
        latest: Option<GenerationNumber>,
    },
    /// The depot has fewer generations than asked for.
    #[error("{}", too_few_in_words(*.back, *.has))]
    TooFewGenerations {
        /// How many generations before the latest were asked for.
        back: usize,
        /// How many generations there are.
        has: usize,
    },
    /// A generation was published and no ref names it now: its number would be used again.
    #[error("{}", lost_in_words(*.number, commit, other.as_deref(), path))]
    Lost {
        /// Its number.
        number: GenerationNumber,
        /// Its commit.
        commit: String,
        /// The commit that its ref names instead.
        other: Option<String>,
        /// The depot.
        path: PathBuf,
    },
    /// An outcome of a switch names a generation that the depot does not have.
    #[error(
        "refs/outcomes records a switch to generation {number}, but {}: generation {number} is lost, and its number \
         would be used again; fetch it from a copy with `git -C {} fetch COPY +refs/*:refs/*`. If it never existed, \
         delete the records of switches with `git -C {} update-ref -d refs/outcomes`",
        if newest.0 == 0 { "the depot has no generation".to_owned() } else { format!("the newest is {newest}") },
        path.display(),
        path.display()
    )]
    LostTrace {
        /// The number in the outcome.
        number: GenerationNumber,
        /// The newest generation in the depot, or 0.
        newest: GenerationNumber,
        /// The depot.
        path: PathBuf,
    },
    /// The generation does not have this host.
    #[error("generation {generation} has no host {host}")]
    NoHost {
        /// The generation.
        generation: GenerationNumber,
        /// The host asked for.
        host: HostName,
    },
    /// An object is missing.
    #[error(
        "{what} of generation {generation} is missing in the depot: if a copy is in progress, try again when it is \
         complete; else copy the depot again, or restore it (`git fsck` lists the missing objects)"
    )]
    Incomplete {
        /// The generation.
        generation: GenerationNumber,
        /// The missing object.
        what: String,
    },
    /// An object exists, but its content is wrong.
    #[error("{what} of generation {generation} is damaged in the depot: {why}; restore the depot from a copy")]
    Damaged {
        /// The generation.
        generation: GenerationNumber,
        /// The damaged object.
        what: String,
        /// The evidence of the damage.
        why: String,
    },
    /// A file of git exists, but its content is wrong.
    #[error(
        "{} is damaged: {why}; no part of it was used: restore the depot from a copy (`git fsck` lists further \
         damage)",
        path.display()
    )]
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// The evidence of the damage.
        why: String,
    },
    /// An object is longer than any valid object.
    #[error("{what} of generation {generation} is {len} bytes long; at most {max} are read")]
    TooLarge {
        /// The generation.
        generation: GenerationNumber,
        /// The object.
        what: String,
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The file of enrolled hosts.
    #[error("{}: {why}", path.display())]
    Enrolments {
        /// The file.
        path: PathBuf,
        /// The fault of the file, or of the entry to be added.
        why: String,
    },
    /// Git reported another error.
    #[error("{what}: {source}")]
    Git {
        /// The operation that failed.
        what: String,
        /// Git's error.
        source: git2::Error,
    },
    /// The operating system reported an error.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The reason why a generation was not published. No part of it is visible then.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Another publisher published a generation first.
    #[error(
        "generation {number} was made after {parent}, but the depot's latest is {}: another publisher was faster; \
         run `cobgen generate` again",
        latest.map_or_else(|| "none".to_owned(), |n| n.to_string())
    )]
    Overtaken {
        /// The number of the generation to be published.
        number: GenerationNumber,
        /// Its parent generation.
        parent: GenerationNumber,
        /// The latest generation of the depot.
        latest: Option<GenerationNumber>,
    },
    /// Another publisher, or git itself, has held a lock for too long.
    #[error("another program holds {}; try again, or remove the file if it was left behind", lock.display())]
    Busy {
        /// The lock's file.
        lock: PathBuf,
    },
    /// The parts of the generation contradict each other.
    #[error("generation {number} can't be published: {why}")]
    Unfit {
        /// Its number.
        number: GenerationNumber,
        /// The contradiction.
        why: String,
    },
    /// The name of a model file is not allowed in the depot.
    #[error("the model's file {path:?} can't be kept in the depot: {why}")]
    ModelPath {
        /// Its name.
        path: String,
        /// The reason.
        why: String,
    },
    /// A pin or another record is not fit for the depot.
    #[error("{why}")]
    Upkeep {
        /// The reason.
        why: String,
    },
    /// Reading or writing the depot failed.
    #[error(transparent)]
    Depot(#[from] DepotError),
}

/// The party at fault.
#[derive(PartialEq, Eq)]
enum Fault {
    /// The name that the caller gave.
    Mistake,
    /// The content of the depot.
    Damage,
    /// The system does not let the depot be read.
    Unreadable,
}

impl DepotError {
    /// Whether the name of the depot, or of a part of it, is wrong, so that the user must give another name. Otherwise
    /// the depot itself is damaged or can't be reached.
    #[must_use]
    pub fn is_mistake(&self) -> bool {
        self.fault() == Fault::Mistake
    }

    /// Whether the depot can be read but is damaged; other errors mean that its content could not be examined.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.fault() == Fault::Damage
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Missing { .. }
            | Self::NotADepot { .. }
            | Self::Newer { .. }
            | Self::NoGeneration { .. }
            | Self::TooFewGenerations { .. }
            | Self::NoHost { .. } => Fault::Mistake,
            Self::Incomplete { .. }
            | Self::Damaged { .. }
            | Self::Lost { .. }
            | Self::LostTrace { .. }
            | Self::DamagedFile { .. }
            | Self::TooLarge { .. }
            | Self::Enrolments { .. } => Fault::Damage,
            Self::Git { source, .. } if source.class() != git2::ErrorClass::Os => Fault::Damage,
            Self::Git { .. } | Self::Io { .. } | Self::NoPermission { .. } => Fault::Unreadable,
        }
    }

    pub(crate) fn git(what: impl Into<String>) -> impl FnOnce(git2::Error) -> Self {
        let what = what.into();
        move |source| Self::Git { what, source: with_home(source) }
    }

    /// The reason why an object can't be read: it is missing, not readable for this user, or damaged.
    pub(crate) fn object(generation: GenerationNumber, what: &str, error: git2::Error) -> Self {
        if error.code() == git2::ErrorCode::NotFound {
            Self::Incomplete { generation, what: what.to_owned() }
        } else if error.class() == git2::ErrorClass::Os {
            Self::Git { what: format!("can't read {what} of generation {generation}"), source: error }
        } else {
            Self::damaged(generation, what, error.message())
        }
    }

    pub(crate) fn damaged(generation: GenerationNumber, what: &str, why: impl Into<String>) -> Self {
        Self::Damaged { generation, what: what.to_owned(), why: why.into() }
    }

    pub(crate) fn damaged_file(path: &Path, why: impl Into<String>) -> Self {
        Self::DamagedFile { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

fn latest_in_words(latest: Option<GenerationNumber>) -> String {
    latest.map_or_else(|| "it has no generation yet".to_owned(), |latest| format!("the latest is {latest}"))
}

fn too_few_in_words(back: usize, has: usize) -> String {
    match has {
        0 => "the depot has no generation yet: `cobgen generate MODEL --depot DIR` makes the first".to_owned(),
        has => format!("there is no generation -{back}: the depot has {}", count(has, "generation")),
    }
}

fn lost_in_words(number: GenerationNumber, commit: &str, other: Option<&str>, path: &Path) -> String {
    let (depot, name) = (path.display(), format!("refs/generations/{number}"));
    match other {
        None => format!(
            "generation {number} is lost: its commit {commit} is in the history, but {name} does not exist, and its \
             number would be used again; `git -C {depot} update-ref {name} {commit}` brings it back (a copy needs \
             all refs: `git fetch ORIGIN +refs/*:refs/*`); `cobgen fsck` lists further losses"
        ),
        Some(other) => format!(
            "there are two commits of generation {number}: {name} names {other}, and refs/heads/main leads to \
             {commit}; hosts know the commit that was published first. If {name} names it, run `git -C {depot} \
             update-ref refs/heads/main {other}`; else restore the depot from a copy"
        ),
    }
}

/// The git library always looks for the user's configuration, and fails if it has no permission to look there.
fn with_home(error: git2::Error) -> git2::Error {
    if error.class() != git2::ErrorClass::Config || !error.message().starts_with("failed to stat") {
        return error;
    }
    let home = std::env::var("HOME").unwrap_or_default();
    let help = format!(
        "{}: git looks for its configuration in HOME ({home}), which this user may not read; set HOME to a folder that \
         it may read, or to one that does not exist (`HOME=/nonexistent cobgen ...`)",
        error.message()
    );
    git2::Error::new(error.code(), error.class(), help)
}
