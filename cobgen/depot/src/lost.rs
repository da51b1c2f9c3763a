//! Detects published generations that no ref names any more.
//!
//! A publisher counts on from the newest ref. If that ref were lost, its number would be used again, and hosts would
//! know two generations with the same number. `main` and the outcomes of switches are traces of a lost generation.

use cob_types::generation::MAX_MANIFEST;
use cob_types::{GenerationNumber, Manifest, codec};
use git2::{ErrorCode, ObjectType, Oid};

use crate::depot::{Depot, MAIN, number_of, ref_of};
use crate::error::DepotError;
use crate::read::{MANIFEST, check_length};

/// How many of the latest outcomes are searched for generation numbers.
const OUTCOMES: usize = 100;

impl Depot {
    /// The commit that `main` names. Read it before the refs of generations: a publisher sets these before `main`.
    pub(crate) fn tip(&self) -> Option<Oid> {
        self.repo.refname_to_id(MAIN).ok()
    }

    /// Checks that `main` names no generation newer than `newest` whose ref is lost.
    ///
    /// # Errors
    /// [`DepotError::Lost`], with the remedy.
    pub(crate) fn is_newest(&self, newest: Option<GenerationNumber>, tip: Option<Oid>) -> Result<(), DepotError> {
        let Some(tip) = tip else { return Ok(()) };
        if newest.is_some_and(|newest| self.repo.refname_to_id(&ref_of(newest)).ok() == Some(tip)) {
            return Ok(());
        }
        match self.number_in(tip)? {
            Some(number) => self.is_named(number, tip, newest),
            // A foreign commit: no generation is lost with it.
            None => Ok(()),
        }
    }

    /// Whether a commit's number has its ref; an older generation may have been pruned.
    fn is_named(&self, number: GenerationNumber, id: Oid, newest: Option<GenerationNumber>) -> Result<(), DepotError> {
        let lost = |other: Option<Oid>| {
            let (commit, other) = (id.to_string(), other.map(|other| other.to_string()));
            Err(DepotError::Lost { number, commit, other, path: self.path.clone() })
        };
        match self.repo.refname_to_id(&ref_of(number)) {
            Ok(named) if named == id => Ok(()),
            Ok(named) => lost(Some(named)),
            Err(error) if error.code() == ErrorCode::NotFound && newest.is_none_or(|newest| newest < number) => {
                lost(None)
            }
            // The ref's file is damaged, which its readers report; or `main` is only behind.
            Err(_) => Ok(()),
        }
    }

    /// The generation number of a commit.
    fn number_in(&self, id: Oid) -> Result<Option<GenerationNumber>, DepotError> {
        let failed = || {
            let what = format!(
                "{MAIN} names {id}, which can't be read and may be a lost generation: restore the depot {} from a \
                 copy, or delete {MAIN} if no generation is missing",
                self.path.display()
            );
            DepotError::git(what)
        };
        self.integrity.check(id)?;
        let commit = self.repo.find_commit(id).map_err(failed())?;
        let said = commit.message().unwrap_or_default().trim_end().rsplit_once("\n\nGeneration: ");
        if let Some(number) = said.and_then(|(_, trailer)| number_of(trailer.lines().next()?)) {
            return Ok(Some(number));
        }
        self.integrity.check(commit.tree_id())?;
        let tree = commit.tree().map_err(failed())?;
        let Some(blob) = tree.get_name(MANIFEST).map(|entry| entry.id()) else { return Ok(None) };
        check_length(self, GenerationNumber(0), blob, "the manifest", ObjectType::Blob, MAX_MANIFEST)?;
        let bytes = self.repo.odb().and_then(|odb| Ok(odb.read(blob)?.data().to_vec())).map_err(failed())?;
        Ok(codec::decode::<Manifest>(&bytes, MAX_MANIFEST).ok().map(|manifest| manifest.generation))
    }

    /// Checks that no outcome of a switch names a generation newer than the newest in the depot.
    ///
    /// # Errors
    /// [`DepotError::LostTrace`], with the remedy.
    pub(crate) fn is_newest_of_outcomes(&self) -> Result<(), DepotError> {
        let told = self.last_outcomes(OUTCOMES)?.all.iter().map(|outcome| outcome.to).max().unwrap_or_default();
        let newest = self.latest()?.unwrap_or_default();
        if told > newest {
            return Err(DepotError::LostTrace { number: told, newest, path: self.path.clone() });
        }
        Ok(())
    }

    /// Every generation in the commit history that no ref names, newest first: an error for each.
    ///
    /// # Errors
    /// If a commit of the history can't be read.
    pub(crate) fn lost(&self) -> Result<Vec<DepotError>, DepotError> {
        let ends = self.shallow()?;
        let mut lost = Vec::new();
        let newest = self.newest_first()?.first().copied();
        let of_newest = newest.and_then(|newest| self.repo.refname_to_id(&ref_of(newest)).ok());
        let mut seen = std::collections::BTreeSet::new();
        for from in [self.tip(), of_newest].into_iter().flatten() {
            let mut next = Some(from);
            while let Some(id) = next.take().filter(|id| seen.insert(*id)) {
                let Some(number) = self.number_in(id)? else { break };
                // A commit in the history was not pruned, so its ref must exist at any age.
                match self.is_named(number, id, None) {
                    Err(error @ DepotError::Lost { .. }) => lost.push(error),
                    named => named?,
                }
                next = (!ends.contains(&id)).then(|| self.repo.find_commit(id).ok()?.parent_id(0).ok()).flatten();
            }
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cob_types::outcome::{Ended, SwitchOutcome};

    use crate::testing::{publication, sketch_of};
    use crate::{Author, Depot, DepotError, PublishError};

    /// Three generations.
    fn three(path: &Path) -> Depot {
        let depot = Depot::create_or_open(path).expect("made");
        for number in 1..=3 {
            depot.publish(&publication(&sketch_of(number, &[("n1", number)]), "one")).expect("published");
        }
        depot
    }

    fn faults(path: &Path) -> String {
        let report = Depot::open(path).and_then(|depot| depot.fsck(|_, _| true)).expect("gone through");
        report.faults.iter().map(|fault| format!("{}: {}\n", fault.at, fault.what)).collect()
    }

    /// Runs the command that the error message names.
    fn do_as_told(words: &str) {
        let command = &words[words.find("`git -C ").expect("a command") + 1..];
        let words: Vec<&str> = command.split('`').next().expect("its end").split_whitespace().collect();
        let ["git", "-C", path, "update-ref", name, commit] = words[..] else { panic!("{words:?}") };
        let depot = Depot::open(Path::new(path)).expect("opened");
        let commit = git2::Oid::from_str(commit).expect("an id");
        depot.repo.reference(name, commit, true, "as told").expect("set");
    }

    #[test]
    fn a_lost_number_is_not_used_again() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("depot");
        let depot = three(&path);
        let right = depot.read(cob_types::GenerationNumber(3)).expect("read");
        std::fs::remove_file(path.join("refs/generations/3")).expect("removed");
        let other = sketch_of(3, &[("n1", 33)]);
        let refused = depot.publish(&publication(&other, "another")).expect_err("refused");
        assert!(matches!(&refused, PublishError::Depot(DepotError::Lost { number, .. }) if number.0 == 3), "{refused}");
        let told = Depot::create_or_open(&path).expect_err("refused").to_string();
        assert!(told.contains("generation 3 is lost"), "{told}");
        assert_eq!(Depot::open(&path).expect("for reading").latest().expect_err("told").to_string(), told);
        assert!(depot.prune(&crate::prune::Rule::default()).is_err(), "what is lost is not pruned");
        let found = faults(&path);
        assert!(found.contains("generation 3 is lost") && !found.contains("sets it right"), "{found}");
        do_as_told(&told);
        assert_eq!(faults(&path), "");
        assert_eq!(depot.read(cob_types::GenerationNumber(3)).expect("there again"), right);
    }

    #[test]
    fn a_depot_without_its_refs_is_damaged() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("depot");
        let depot = three(&path);
        std::fs::remove_dir_all(path.join("refs/generations")).expect("removed");
        let found = faults(&path);
        for number in 1..=3 {
            assert!(found.contains(&format!("generation {number} is lost")), "{found}");
        }
        assert!(depot.publish(&publication(&sketch_of(1, &[("n1", 9)]), "from the start")).is_err());
        assert!(Depot::create_or_open(&path).is_err());
        found.lines().for_each(do_as_told);
        assert_eq!(faults(&path), "");
        // The same with packed refs.
        let main = depot.repo.refname_to_id("refs/heads/main").expect("there");
        std::fs::write(path.join("packed-refs"), format!("{main} refs/heads/main\n")).expect("written");
        std::fs::remove_file(path.join("refs/heads/main")).expect("removed");
        std::fs::remove_dir_all(path.join("refs/generations")).expect("removed");
        assert!(faults(&path).contains("generation 3 is lost"));
        assert!(Depot::create_or_open(&path).is_err());
    }

    #[test]
    fn two_commits_of_the_same_generation_are_reported() {
        let folder = tempfile::tempdir().expect("folder");
        let (path, beside) = (folder.path().join("depot"), folder.path().join("beside"));
        let depot = three(&path);
        let other = three(&beside);
        drop(other.repo.find_reference("refs/generations/3").expect("there").delete());
        other
            .repo
            .reference("refs/heads/main", other.repo.refname_to_id("refs/generations/2").expect("2"), true, "")
            .expect("set back");
        other.publish(&publication(&sketch_of(3, &[("n1", 33)]), "another")).expect("published");
        let mut remote = depot.repo.remote_anonymous(&beside.to_string_lossy()).expect("a remote");
        remote.fetch(&["+refs/heads/main:refs/heads/main"], None, None).expect("fetched");
        let told = Depot::create_or_open(&path).expect_err("refused").to_string();
        assert!(told.contains("two commits of generation 3"), "{told}");
        assert!(faults(&path).contains("two commits of generation 3"));
        do_as_told(&told);
        assert_eq!(faults(&path), "");
    }

    #[test]
    fn outcomes_are_a_trace_of_lost_numbers() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("depot");
        let depot = three(&path);
        let author = Author { name: "Ann".to_owned(), email: "ann@example.org".to_owned() };
        for to in [3, 2] {
            let outcome = SwitchOutcome {
                silent: Default::default(),
                format: cob_types::outcome::FORMAT,
                to: cob_types::GenerationNumber(to),
                by: String::new(),
                began_ns: 1,
                ended_ns: Some(2),
                ended: Ended::Converged,
                hosts: [].into(),
            };
            depot.add_outcome(&outcome, &author, 1).expect("noted");
        }
        Depot::create_or_open(&path).expect("all are there");
        // Removes all traces of the third generation except the outcome of a switch to it.
        let second = depot.repo.refname_to_id("refs/generations/2").expect("2");
        depot.repo.reference("refs/heads/main", second, true, "set back").expect("set");
        std::fs::remove_file(path.join("refs/generations/3")).expect("removed");
        let told = Depot::create_or_open(&path).expect_err("refused").to_string();
        assert!(told.contains("a switch to generation 3, but the newest is 2"), "{told}");
        assert_eq!(faults(&path), format!("refs/outcomes: {told}\n"));
        assert_eq!(Depot::open(&path).expect("for reading").latest().expect("2").map(|n| n.0), Some(2));
    }

    #[test]
    fn main_may_be_behind() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("depot");
        let depot = three(&path);
        let second = depot.repo.refname_to_id("refs/generations/2").expect("2");
        depot.repo.reference("refs/heads/main", second, true, "killed").expect("set");
        assert_eq!(depot.latest().expect("fine").map(|n| n.0), Some(3));
        assert!(faults(&path).contains("the next publisher sets it right"));
        depot.publish(&publication(&sketch_of(4, &[("n1", 4)]), "next")).expect("published");
        assert_eq!(faults(&path), "");
    }
}
