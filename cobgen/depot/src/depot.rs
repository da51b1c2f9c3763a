//! Opens, creates and lists depots.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use cob_types::GenerationNumber;
use git2::{ErrorCode, Repository, RepositoryInitOptions};
use serde::Serialize;

use crate::error::DepotError;
use crate::integrity::Integrity;

/// The depot format written here; it is stored in the repository's own configuration.
const FORMAT: u32 = 1;
const FORMAT_KEY: &str = "cob.depot";
pub(crate) const MAIN: &str = "refs/heads/main";
const GENERATIONS: &str = "refs/generations/";

/// An open depot. Belongs to one thread at a time; each process and thread opens its own.
pub struct Depot {
    pub(crate) path: PathBuf,
    pub(crate) repo: Repository,
    /// Checks an object's files before git reads the object.
    pub(crate) integrity: Integrity,
}

/// A generation in the depot's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// Its number.
    pub generation: GenerationNumber,
    /// The publisher's message.
    pub message: String,
    /// When it was published, in seconds since 1970-01-01 UTC.
    pub time: i64,
    /// The publisher, `NAME <EMAIL>`.
    pub author: String,
    /// The size of the generation.
    pub counts: Counts,
}

/// How many hosts and change objects a generation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Hosts.
    pub hosts: u64,
    /// Change objects on all hosts.
    pub cobs: u64,
}

impl fmt::Debug for Depot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Depot").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Depot {
    /// Opens a depot for reading. Opening writes nothing; permission to read is enough.
    ///
    /// # Errors
    /// If there is no depot at `path`, or a newer program made it.
    pub fn open(path: &Path) -> Result<Self, DepotError> {
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        // A folder that can't be entered may hide a depot: report missing permission, not a missing depot.
        match path.try_exists().and_then(|is_there| if is_there { fs::read_dir(path).map(|_| true) } else { Ok(false) })
        {
            Ok(true) => {}
            Ok(false) => return Err(DepotError::Missing { path: path.to_owned() }),
            Err(error) if denied(&error) => return Err(DepotError::NoPermission { path: path.to_owned() }),
            // `open_bare` below reports all other cases.
            Err(_) => {}
        }
        let not = |why: &str| DepotError::NotADepot { path: path.to_owned(), why: why.to_owned() };
        // `open_bare` does not check the folder's owner: a daemon reads a depot that is not its own.
        let repo = Repository::open_bare(path).map_err(|error| {
            if error.code() == ErrorCode::NotFound {
                not("it is not a bare git repository")
            } else {
                DepotError::git(format!("can't open the depot {}", path.display()))(error)
            }
        })?;
        let integrity = Integrity::of(&repo);
        let depot = Self { path: path.to_owned(), repo, integrity };
        match depot.format()? {
            Some(found) if found > FORMAT => {
                let what = format!("the depot {}", path.display());
                Err(DepotError::Newer { what, found, known: FORMAT })
            }
            Some(_) => Ok(depot),
            // A mirror made by a git client has the refs, but not the configuration.
            None if !depot.numbers()?.is_empty() => Ok(depot),
            // Or `main` alone is left: readers of the generation report the loss.
            None if matches!(depot.latest(), Err(DepotError::Lost { .. })) => Ok(depot),
            None => Err(not("it is a git repository without generations")),
        }
    }

    /// Opens a depot for publishing, and creates it if the path does not exist or is an empty folder.
    ///
    /// # Errors
    /// If `path` is not a depot, or can't be written.
    pub fn create_or_open(path: &Path) -> Result<Self, DepotError> {
        let unreadable = || DepotError::io(format!("can't read {}", path.display()));
        if path.exists() && fs::read_dir(path).map_err(unreadable())?.next().is_some() {
            let depot = Self::open(path)?;
            depot.heal()?;
            depot.is_newest_of_outcomes()?;
            return Ok(depot);
        }
        match Self::create(path) {
            // Another process may have created it in the meantime.
            Err(DepotError::Io { .. }) if Repository::open_bare(path).is_ok() => Self::open(path),
            created => created,
        }
    }

    /// The depot's folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest generation; `None` in a depot without generations.
    ///
    /// # Errors
    /// If the refs can't be read, or a newer generation is lost.
    pub fn latest(&self) -> Result<Option<GenerationNumber>, DepotError> {
        let tip = self.tip();
        let newest = self.numbers()?.into_iter().max();
        self.is_newest(newest, tip)?;
        Ok(newest)
    }

    /// All generations, newest first.
    ///
    /// # Errors
    /// If a commit can't be read.
    pub fn list(&self) -> Result<Vec<LogEntry>, DepotError> {
        self.newest_first()?.into_iter().map(|number| self.log_entry(number)).collect()
    }

    /// The numbers of all generations, newest first.
    ///
    /// # Errors
    /// If the refs can't be read.
    pub fn newest_first(&self) -> Result<Vec<GenerationNumber>, DepotError> {
        let mut numbers = self.numbers()?;
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        Ok(numbers)
    }

    /// The numbers of all generations, unordered.
    fn numbers(&self) -> Result<Vec<GenerationNumber>, DepotError> {
        Ok(names_below(self, GENERATIONS)?.iter().filter_map(|name| number_of(name)).collect())
    }

    fn log_entry(&self, number: GenerationNumber) -> Result<LogEntry, DepotError> {
        let commit = self.commit(number)?;
        let (message, counts) = read_message(commit.message().unwrap_or_default());
        let counts = match counts {
            Some(counts) => counts,
            None => {
                let manifest = self.read_manifest(number)?;
                Counts { hosts: manifest.hosts.len() as u64, cobs: manifest.cobs }
            }
        };
        let (time, author) = (commit.time().seconds(), commit.author().to_string());
        Ok(LogEntry { generation: number, message, time, author, counts })
    }

    /// The commit of a generation.
    pub(crate) fn commit(&self, number: GenerationNumber) -> Result<git2::Commit<'_>, DepotError> {
        let failed = || DepotError::git(format!("can't read generation {number}"));
        let reference = match self.repo.find_reference(&ref_of(number)) {
            Ok(reference) => reference,
            Err(error) if error.code() == ErrorCode::NotFound => {
                return Err(DepotError::NoGeneration { number, latest: self.numbers()?.into_iter().max() });
            }
            Err(error) => return Err(failed()(error)),
        };
        let id = reference.target().ok_or_else(|| DepotError::damaged(number, "the ref", "it names no commit"))?;
        self.integrity.check_object(number, "the commit", id)?;
        self.repo.find_commit(id).map_err(|error| DepotError::object(number, "the commit", error))
    }

    fn format(&self) -> Result<Option<u32>, DepotError> {
        let failed = || DepotError::git(format!("can't read the configuration of {}", self.path.display()));
        let config = self.repo.config().and_then(|config| config.open_level(git2::ConfigLevel::Local));
        match config.and_then(|config| config.get_i64(FORMAT_KEY)) {
            Ok(format) => Ok(Some(u32::try_from(format).unwrap_or(u32::MAX))),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(failed()(error)),
        }
    }

    /// Creates a depot in a temporary folder and renames it into place, so that no program sees an incomplete depot.
    fn create(path: &Path) -> Result<Self, DepotError> {
        let failed = || DepotError::io(format!("can't make the depot {}", path.display()));
        let git_failed = || DepotError::git(format!("can't make the depot {}", path.display()));
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(failed())?;
        let aside = tempfile::Builder::new().prefix(".cob-depot-").tempdir_in(parent).map_err(failed())?;
        let made = aside.path().join("depot");
        let mut options = RepositoryInitOptions::new();
        options.bare(true).no_reinit(true).external_template(false).initial_head("main");
        let repo = Repository::init_opts(&made, &options).map_err(git_failed())?;
        let mut config = repo.config().map_err(git_failed())?;
        // Without this setting git writes objects and refs without any fsync.
        config.set_bool("core.fsyncObjectFiles", true).map_err(git_failed())?;
        config.set_i64(FORMAT_KEY, i64::from(FORMAT)).map_err(git_failed())?;
        drop((config, repo));
        // Created here, because git does not make the directory entries that it creates for a ref durable.
        fs::create_dir(made.join(GENERATIONS)).and_then(|()| sync_folder(&made.join("refs"))).map_err(failed())?;
        for file in ["config", "HEAD"] {
            File::open(made.join(file)).and_then(|file| file.sync_all()).map_err(failed())?;
        }
        sync_folder(&made).map_err(failed())?;
        fs::rename(&made, path).map_err(failed())?;
        sync_folder(parent).map_err(failed())?;
        Self::open(path)
    }
}

pub(crate) fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// The ref that makes a generation exist.
pub(crate) fn ref_of(number: GenerationNumber) -> String {
    format!("{GENERATIONS}{number}")
}

/// The names of the refs below a folder of refs, without the folder's own name.
///
/// Git skips a ref whose file is damaged. Here the ref counts: reading it fails, and the newest generation does not
/// vanish because of a single altered byte.
pub(crate) fn names_below(depot: &Depot, folder: &str) -> Result<BTreeSet<String>, DepotError> {
    let failed = || DepotError::git(format!("can't read {folder} of {}", depot.path.display()));
    let mut names = BTreeSet::new();
    for reference in depot.repo.references_glob(&format!("{folder}*")).map_err(failed())? {
        let reference = reference.map_err(failed())?;
        names.extend(reference.name().ok().and_then(|name| name.strip_prefix(folder)).map(str::to_owned));
    }
    let path = depot.path.join(folder);
    let unreadable = || DepotError::io(format!("can't read {}", path.display()));
    let files = match fs::read_dir(&path) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(names),
        Err(error) => return Err(unreadable()(error)),
    };
    for file in files {
        let name = file.map_err(unreadable())?.file_name();
        // Git's own lock files end with `.lock`; no ref does.
        names.extend(name.to_str().filter(|name| !name.ends_with(".lock")).map(str::to_owned));
    }
    Ok(names)
}

/// The number in a ref's name; `None` for names that this program does not write.
pub(crate) fn number_of(text: &str) -> Option<GenerationNumber> {
    let number = GenerationNumber(text.parse().ok()?);
    (number.0 > 0 && number.to_string() == text).then_some(number)
}

/// A commit message: the publisher's text, then the number and the counts for `git log`.
pub(crate) fn write_message(said: &str, number: GenerationNumber, counts: Counts) -> String {
    let said = said.trim();
    let said = if said.is_empty() { format!("generation {number}") } else { said.to_owned() };
    format!("{said}\n\nGeneration: {number}\nHosts: {}\nCobs: {}\n", counts.hosts, counts.cobs)
}

fn read_message(text: &str) -> (String, Option<Counts>) {
    let Some((said, trailer)) = text.trim_end().rsplit_once("\n\nGeneration: ") else {
        return (text.trim_end().to_owned(), None);
    };
    let value = |key: &str| trailer.lines().find_map(|line| line.strip_prefix(key)?.parse().ok());
    match (value("Hosts: "), value("Cobs: ")) {
        (Some(hosts), Some(cobs)) => (said.to_owned(), Some(Counts { hosts, cobs })),
        (_, _) => (text.trim_end().to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{publication, sketch_of};

    #[test]
    fn opening_a_folder_that_is_not_a_depot_says_why() {
        let folder = tempfile::tempdir().expect("folder");
        let refused = |path: &Path| Depot::open(path).expect_err("no depot").to_string();
        assert!(refused(&folder.path().join("none")).contains("there is no depot"));
        assert!(refused(folder.path()).contains("not a bare git repository"));
        let repo = folder.path().join("repo");
        Repository::init_bare(&repo).expect("made");
        assert!(refused(&repo).contains("without generations"));
        fs::write(folder.path().join("file"), "x").expect("written");
        let error = Depot::create_or_open(folder.path()).expect_err("not empty").to_string();
        assert!(error.contains("not a bare git repository"), "{error}");
    }

    #[test]
    fn a_newer_depot_is_not_touched() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(folder.path()).expect("made");
        depot.repo.config().expect("config").set_i64(FORMAT_KEY, 2).expect("set");
        let error = Depot::open(folder.path()).expect_err("newer").to_string();
        assert!(error.contains("format 2; this program reads 1"), "{error}");
    }

    #[test]
    fn an_empty_depot_has_no_generation() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("deep/depot");
        let depot = Depot::create_or_open(&path).expect("made");
        assert_eq!(depot.latest().expect("read"), None);
        assert_eq!(depot.list().expect("read"), []);
        let error = depot.read_manifest(GenerationNumber(1)).expect_err("none").to_string();
        assert_eq!(error, "generation 1 is not in the depot: it has no generation yet");
        assert_eq!(fs::read_dir(path.parent().expect("parent")).expect("listed").count(), 1, "nothing left aside");
        assert!(depot.repo.config().expect("config").get_bool("core.fsyncObjectFiles").expect("set"));
    }

    #[test]
    fn the_log_lists_author_time_message_and_counts() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(folder.path()).expect("made");
        for (i, message) in ["first", "", "second\n\nwith a body\n\nHosts: 99"].iter().enumerate() {
            let number = i as u64 + 1;
            let generation = sketch_of(number, &[("n1", number), ("n2", 0)]);
            depot.publish(&publication(&generation, message)).expect("published");
        }
        // Refs of other git clients are ignored.
        let main = depot.repo.refname_to_id(MAIN).expect("there");
        for name in ["refs/generations/latest", "refs/generations/007", "refs/generations/0"] {
            depot.repo.reference(name, main, false, "").expect("made");
        }
        let log = depot.list().expect("read");
        let told: Vec<(u64, &str)> = log.iter().map(|e| (e.generation.0, e.message.as_str())).collect();
        assert_eq!(told, [(3, "second\n\nwith a body\n\nHosts: 99"), (2, "generation 2"), (1, "first")]);
        assert!(log.iter().all(|e| e.counts == Counts { hosts: 2, cobs: 0 }));
        assert!(log.iter().all(|e| e.author == "Ann <ann@example.org>" && e.time == 1_700_000_000));
    }

    #[test]
    fn a_mirror_can_be_read() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(&folder.path().join("depot")).expect("made");
        let generation = sketch_of(1, &[("n1", 1)]);
        depot.publish(&publication(&generation, "first")).expect("published");
        let mirror = folder.path().join("mirror");
        let repo = Repository::init_bare(&mirror).expect("made");
        let mut origin = repo.remote_anonymous(&folder.path().join("depot").to_string_lossy()).expect("remote");
        origin.fetch(&["+refs/*:refs/*"], None, None).expect("fetched");
        let read = Depot::open(&mirror).expect("opened").read(GenerationNumber(1)).expect("read");
        assert_eq!(read, generation);
    }
}
