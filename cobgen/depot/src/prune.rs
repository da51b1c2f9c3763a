//! Removes old generations from a depot and frees their space.
//!
//! Rules: pruning first decides what must stay and reads all of it, under the locks that publishers take; if a part of
//! it is missing or damaged, pruning deletes nothing. Then come these steps, each durable before the next: the commits
//! at which history ends (git's own file `shallow`), the refs, a new pack with the remaining objects of old packs, and
//! only then the files of objects. If it is killed, all that must stay is there, and the next run frees the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cob_types::GenerationNumber;
use git2::Oid;

use crate::depot::{Depot, names_below, number_of, ref_of, sync_folder};
use crate::error::{DepotError, PublishError};
use crate::lock::{ObjectsLock, PublisherLock};
use crate::publish::PATIENCE;
use crate::reach::Reached;
use crate::signatures::SIGNATURES;

mod free;
#[cfg(test)]
mod tests;

/// The rule that decides which generations are old.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rule {
    /// This many of the newest generations are not old.
    pub keep: Option<usize>,
    /// Generations published at this time or later are not old, in seconds since 1970-01-01 UTC.
    pub since: Option<i64>,
    /// Files of objects that changed this recently stay until the next run: another program may be writing them.
    pub grace: Duration,
}

/// The reason why an old generation stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It is pinned, for this reason.
    Pinned(String),
    /// This generation names it as a rollback target.
    WayBack(GenerationNumber),
}

/// The result of pruning, or its prediction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The removed generations, oldest first.
    pub gone: Vec<GenerationNumber>,
    /// The old generations that stay, and the reasons.
    pub stays: BTreeMap<GenerationNumber, Reason>,
    /// How many bytes of files were deleted; `None` in a prediction.
    pub freed: Option<u64>,
    /// How many files that killed programs left behind were, or would be, deleted.
    pub leftovers: u64,
}

/// The rollback targets of this many of the newest generations stay: hosts may not have the newest yet.
const WAYS_BACK_OF: usize = 2;

impl Depot {
    /// Predicts the effect of pruning by this rule.
    ///
    /// # Errors
    /// If the data that must stay can't be read.
    pub fn would_prune(&self, rule: &Rule) -> Result<Pruned, DepotError> {
        // Fails if the newest generation is lost: pruning is refused then.
        self.latest()?;
        let all = self.newest_first()?;
        let (pins, backs) = (self.pins()?, self.ways_back(&all)?);
        let mut pruned = Pruned::default();
        for (nth, number) in all.iter().enumerate().skip(1) {
            if rule.keep.is_some_and(|keep| nth < keep) {
                continue;
            }
            if let Some(since) = rule.since
                && self.commit(*number)?.time().seconds() >= since
            {
                continue;
            }
            if let Some(pin) = pins.get(number) {
                pruned.stays.insert(*number, Reason::Pinned(pin.reason.clone()));
            } else if let Some(of) = backs.get(number) {
                pruned.stays.insert(*number, Reason::WayBack(*of));
            } else {
                pruned.gone.push(*number);
            }
        }
        pruned.gone.reverse();
        pruned.leftovers = self.leftovers()?.len() as u64;
        Ok(pruned)
    }

    /// Prunes. The newest generation always stays, and with it the count: no number is ever used again.
    ///
    /// # Errors
    /// If another program holds a lock for too long; if the data that must stay is not whole (pruning has done nothing
    /// then); or if the depot can't be written (all that must stay is there then, and another run does the rest).
    pub fn prune(&self, rule: &Rule) -> Result<Pruned, PublishError> {
        let _objects = ObjectsLock::alone(&self.path, PATIENCE)?;
        let _lock = PublisherLock::take(&self.path, PATIENCE)?;
        let mut pruned = self.would_prune(rule)?;
        for name in names_in(&self.path)?.iter().filter(|name| name.starts_with(SHALLOW_ASIDE)) {
            // Left by a killed program.
            let _ = fs::remove_file(self.path.join(name));
        }
        let Some(newest) = self.latest()? else {
            (pruned.leftovers, _) = self.remove_leftovers()?;
            return Ok(Pruned { freed: Some(0), ..pruned });
        };
        let gone: BTreeSet<_> = pruned.gone.iter().copied().collect();
        let refs = self.superfluous_refs(&gone, newest)?;
        let ends = self.ends_without(&gone)?;
        let reached = Reached::of(self, &refs, &ends)?;
        let before = self.shallow()?;
        self.write_shallow(&ends.union(&before).copied().collect())?;
        for name in &refs {
            self.delete_ref(name)?;
        }
        let (leftovers, bytes) = self.remove_leftovers()?;
        pruned.leftovers = leftovers;
        pruned.freed = Some(bytes + free::free(self, &reached, rule.grace)?);
        self.write_shallow(&ends)?;
        Ok(pruned)
    }

    /// The rollback targets of the newest generations, each with the generation that names it.
    fn ways_back(
        &self,
        newest_first: &[GenerationNumber],
    ) -> Result<BTreeMap<GenerationNumber, GenerationNumber>, DepotError> {
        let mut backs = BTreeMap::new();
        for number in newest_first.iter().take(WAYS_BACK_OF) {
            let manifest = self.read_manifest(*number)?;
            // The parent too: without signatures hosts roll back to it.
            let ways = manifest.back.iter().map(|way| way.generation).chain([manifest.parent]);
            ways.for_each(|way| _ = backs.entry(way).or_insert(*number));
        }
        Ok(backs)
    }

    /// The refs of these generations, and of signatures whose generation is missing; generations first.
    fn superfluous_refs(
        &self,
        gone: &BTreeSet<GenerationNumber>,
        newest: GenerationNumber,
    ) -> Result<Vec<String>, DepotError> {
        let stays: BTreeSet<_> = self.newest_first()?.into_iter().filter(|number| !gone.contains(number)).collect();
        let mut refs: Vec<String> = gone.iter().map(|number| ref_of(*number)).collect();
        for folder in names_in(&self.path.join(SIGNATURES))? {
            let Some(number) = number_of(&folder).filter(|n| *n < newest && !stays.contains(n)) else { continue };
            let folder = format!("{SIGNATURES}{number}/");
            refs.extend(names_below(self, &folder)?.into_iter().map(|key| format!("{folder}{key}")));
        }
        for number in gone {
            let folder = format!("{SIGNATURES}{number}/");
            refs.extend(names_below(self, &folder)?.into_iter().map(|key| format!("{folder}{key}")));
        }
        let mut seen = BTreeSet::new();
        refs.retain(|name| seen.insert(name.clone()));
        Ok(refs)
    }

    /// The remaining commits whose parents are removed, or were removed before.
    fn ends_without(&self, gone: &BTreeSet<GenerationNumber>) -> Result<BTreeSet<Oid>, DepotError> {
        let stays = self.newest_first()?.into_iter().filter(|number| !gone.contains(number));
        let commits = stays.map(|number| self.commit(number)).collect::<Result<Vec<_>, _>>()?;
        let ids: BTreeSet<Oid> = commits.iter().map(git2::Commit::id).collect();
        let before = self.shallow()?;
        let ends = commits
            .iter()
            .filter(|commit| before.contains(&commit.id()) || commit.parent_ids().any(|parent| !ids.contains(&parent)));
        Ok(ends.map(git2::Commit::id).collect())
    }

    /// The commits at which this depot's history ends.
    pub(crate) fn shallow(&self) -> Result<BTreeSet<Oid>, DepotError> {
        let path = self.path.join(SHALLOW);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(DepotError::io(format!("can't read {}", path.display()))(error)),
        };
        let bad = || DepotError::damaged_file(&path, "a line is not the name of a commit");
        text.lines()
            .map(|line| if line.len() == 40 { Oid::from_str(line).map_err(|_| bad()) } else { Err(bad()) })
            .collect()
    }

    /// Replaces the file atomically and durably.
    fn write_shallow(&self, commits: &BTreeSet<Oid>) -> Result<(), DepotError> {
        let path = self.path.join(SHALLOW);
        let failed = || DepotError::io(format!("can't write {}", path.display()));
        if commits.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed()(error)),
                Ok(()) | Err(_) => Ok(()),
            };
        }
        let text: String = commits.iter().map(|id| format!("{id}\n")).collect();
        let mut file = tempfile::Builder::new().prefix(SHALLOW_ASIDE).tempfile_in(&self.path).map_err(failed())?;
        std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed())?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(mode).and_then(|()| file.as_file().sync_all()).map_err(failed())?;
        file.persist(&path).map_err(|error| failed()(error.error))?;
        sync_folder(&self.path).map_err(failed())
    }

    /// Deletes a ref, durably.
    pub(crate) fn delete_ref(&self, name: &str) -> Result<(), DepotError> {
        let failed = || DepotError::git(format!("can't delete {name}"));
        match self.repo.find_reference(name) {
            Ok(mut reference) => match reference.delete() {
                // Writers of these refs hold the publisher's lock, which we hold: a killed program left git's lock.
                Err(error) if error.code() == git2::ErrorCode::Locked => {
                    let lock = self.path.join(format!("{name}.lock"));
                    fs::remove_file(&lock).map_err(DepotError::io(format!("can't remove {}", lock.display())))?;
                    reference.delete().map_err(failed())?;
                }
                deleted => deleted.map_err(failed())?,
            },
            Err(error) if error.code() == git2::ErrorCode::NotFound => {}
            Err(error) => return Err(failed()(error)),
        }
        let path = self.path.join(name);
        if let Some(folder) = path.parent().filter(|_| name.starts_with(SIGNATURES)) {
            // Each generation has a folder. It is removed with the last signature.
            let _ = fs::remove_dir(folder);
        }
        match path.ancestors().skip(1).find(|folder| folder.exists()) {
            Some(folder) => sync_folder(folder).map_err(DepotError::io(format!("can't write {}", folder.display()))),
            None => Ok(()),
        }
    }
}

/// Git's file of commits whose parents are missing.
const SHALLOW: &str = "shallow";
/// The prefix of a new file before it is renamed into place.
const SHALLOW_ASIDE: &str = ".shallow-";

/// The names in a folder; empty if the folder does not exist.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>, DepotError> {
    let failed = || DepotError::io(format!("can't read {}", folder.display()));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed()(error)),
    };
    let name = |entry: std::io::Result<fs::DirEntry>| Ok(entry.map_err(failed())?.file_name().into_string().ok());
    entries.filter_map(|entry| name(entry).transpose()).collect()
}

/// Whether a file was unchanged for this long.
pub(crate) fn is_older(found: &fs::Metadata, than: Duration) -> bool {
    let modified = found.modified().ok();
    modified.and_then(|at| SystemTime::now().duration_since(at).ok()).is_some_and(|age| age >= than)
}
