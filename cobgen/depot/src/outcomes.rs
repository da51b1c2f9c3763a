//! Outcomes of switches: `refs/outcomes`, a separate line of commits with a commit per switch.
//!
//! Each commit holds `outcome.json` and has the previous outcome as its parent, so any git client can mirror and log
//! the outcomes, and no outcome is ever changed. Outcomes are information for people: no daemon relies on them, and
//! every writer of the depot could write false outcomes. Unreadable outcomes are reported beside the others.

use cob_types::outcome::{FORMAT, MAX_OUTCOME, SwitchOutcome};
use git2::{ErrorCode, ObjectType, Oid};
use serde::Deserialize;

use crate::depot::Depot;
use crate::error::{DepotError, PublishError};
use crate::lock::PublisherLock;
use crate::objects::Objects;
use crate::publish::{Author, PATIENCE};
use crate::read::check_length;

const OUTCOMES: &str = "refs/outcomes";
const FILE: &str = "outcome.json";
const LOCK: &str = "cob-outcomes.lock";
/// The most outcomes that are read, newest first.
const MAX_OUTCOMES: usize = 10_000;
/// The largest commit and tree of an outcome, in bytes.
const MAX_SMALL: usize = 64 << 10;

/// The recorded outcomes.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Outcomes, newest first.
    pub all: Vec<SwitchOutcome>,
    /// The unreadable outcomes, with reasons.
    pub problems: Vec<String>,
}

impl Depot {
    /// Records the outcome of a switch and returns `true`; returns `false` if the last record is the same outcome.
    ///
    /// # Errors
    /// If the depot can't be written.
    pub fn add_outcome(&self, outcome: &SwitchOutcome, author: &Author, time: i64) -> Result<bool, PublishError> {
        let failed = || DepotError::git("can't write the outcome of a switch");
        let bytes = serde_json::to_vec_pretty(outcome).expect("names, numbers and texts");
        let _lock = PublisherLock::take_file(self.path(), LOCK, PATIENCE)?;
        let last = self.last_outcome()?;
        if let Some(last) = last
            && self.read_outcome(last).is_ok_and(|(known, _)| known == *outcome)
        {
            return Ok(false);
        }
        let author = git2::Signature::new(&author.name, &author.email, &git2::Time::new(time, 0)).map_err(failed())?;
        let mut objects = Objects::open(self, false).map_err(failed())?;
        let blob = objects.blob(&bytes).map_err(failed())?;
        let tree = objects.folder(&[(FILE.to_owned(), blob)].into(), &Default::default()).map_err(failed())?;
        let message = format!("switch to generation {}: {}\n", outcome.to, outcome.ended.word());
        let commit = objects.commit(tree, last, &message, &author).map_err(failed())?;
        objects.finish().map_err(failed())?;
        self.set_ref(OUTCOMES, commit, true)?;
        self.sync_folders(&["refs"])?;
        Ok(true)
    }

    /// The recorded outcomes of switches, newest first.
    ///
    /// # Errors
    /// If the depot's refs can't be read.
    pub fn outcomes(&self) -> Result<Outcomes, DepotError> {
        let mut found = self.last_outcomes(MAX_OUTCOMES)?;
        if found.all.len() + found.problems.len() >= MAX_OUTCOMES {
            found.problems.push(format!("only the last {MAX_OUTCOMES} are shown"));
        }
        Ok(found)
    }

    /// Like [`Self::outcomes`], but only the last `most`.
    ///
    /// # Errors
    /// If the depot's refs can't be read.
    pub fn last_outcomes(&self, most: usize) -> Result<Outcomes, DepotError> {
        let mut found = Outcomes::default();
        let mut next = self.last_outcome()?;
        for _ in 0..most {
            let Some(commit) = next else { return Ok(found) };
            match self.read_outcome(commit) {
                Ok((outcome, parent)) => {
                    found.all.push(outcome);
                    next = parent;
                }
                Err((why, parent)) => {
                    found.problems.push(format!("the outcome in commit {commit} can't be read: {why}"));
                    next = parent;
                }
            }
        }
        Ok(found)
    }

    fn last_outcome(&self) -> Result<Option<Oid>, DepotError> {
        match self.repo.find_reference(OUTCOMES) {
            Ok(reference) => Ok(reference.target()),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(DepotError::git(format!("can't read {OUTCOMES}"))(error)),
        }
    }

    /// An outcome, and the commit of the previous outcome.
    fn read_outcome(&self, id: Oid) -> Result<(SwitchOutcome, Option<Oid>), (String, Option<Oid>)> {
        let broken = |e: git2::Error| (e.message().to_owned(), None);
        let damaged = |e: DepotError| (e.to_string(), None);
        self.check_small(id, ObjectType::Commit, MAX_SMALL).map_err(damaged)?;
        let commit = self.repo.find_commit(id).map_err(broken)?;
        let parent = commit.parent_id(0).ok();
        let beside = |what: String| (what, parent);
        self.check_small(commit.tree_id(), ObjectType::Tree, MAX_SMALL).map_err(|e| beside(e.to_string()))?;
        let tree = self.repo.find_tree(commit.tree_id()).map_err(|e| beside(e.message().to_owned()))?;
        let blob = tree.get_name(FILE).map(|entry| entry.id()).ok_or_else(|| beside(format!("it has no {FILE}")))?;
        self.check_small(blob, ObjectType::Blob, MAX_OUTCOME).map_err(|e| beside(e.to_string()))?;
        let read = self.repo.odb().and_then(|odb| odb.read(blob).map(|object| object.data().to_vec()));
        let bytes = read.map_err(|e| beside(e.message().to_owned()))?;
        decode(&bytes).map(|outcome| (outcome, parent)).map_err(beside)
    }

    fn check_small(&self, id: Oid, kind: ObjectType, max: usize) -> Result<(), DepotError> {
        check_length(self, cob_types::GenerationNumber(0), id, "an outcome", kind, max)
    }
}

/// The format comes first: a newer program may write any structure.
fn decode(bytes: &[u8]) -> Result<SwitchOutcome, String> {
    #[derive(Deserialize)]
    struct FormatOnly {
        format: u32,
    }
    let wrong = |e: serde_json::Error| cob_types::words::form(e);
    let FormatOnly { format } = serde_json::from_slice(bytes).map_err(wrong)?;
    if format > FORMAT {
        return Err(format!("it has format {format}; this program reads {FORMAT}"));
    }
    serde_json::from_slice(bytes).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use cob_types::outcome::Ended;
    use cob_types::{GenerationNumber, HostName};

    use super::*;
    use crate::testing::{publication, sketch_of};

    fn outcome(to: u64, ended: Ended) -> SwitchOutcome {
        SwitchOutcome {
            silent: Default::default(),
            format: FORMAT,
            to: GenerationNumber(to),
            by: "ann (operate)".to_owned(),
            began_ns: 5,
            ended_ns: Some(9),
            ended,
            hosts: [(
                HostName::new("n1").expect("a name"),
                cob_types::outcome::HostOutcome {
                    from: None,
                    to: GenerationNumber(to),
                    by: String::new(),
                    began_ns: 5,
                    activated_ns: Some(6),
                    ended_ns: Some(9),
                    ended,
                    alone: false,
                    widened_ns: None,
                    later: Vec::new(),
                    cobs: Default::default(),
                },
            )]
            .into(),
        }
    }

    fn depot(folder: &tempfile::TempDir) -> Depot {
        let depot = Depot::create_or_open(&folder.path().join("depot")).expect("made");
        depot.publish(&publication(&sketch_of(1, &[("n1", 1)]), "first")).expect("published");
        depot
    }

    fn add(depot: &Depot, outcome: &SwitchOutcome) -> bool {
        let ann = Author { name: "Ann".to_owned(), email: "ann@example.org".to_owned() };
        depot.add_outcome(outcome, &ann, 1_700_000_000).expect("written")
    }

    #[test]
    fn outcomes_are_added_and_never_changed() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = depot(&folder);
        assert!(depot.outcomes().expect("read").all.is_empty());
        let (first, second) = (outcome(1, Ended::Failed), outcome(1, Ended::Converged));
        assert!(add(&depot, &first) && add(&depot, &second));
        assert!(!add(&depot, &second), "the same once more is no other one");
        let found = depot.outcomes().expect("read");
        assert_eq!((found.all, found.problems), (vec![second, first], vec![]));
        assert_eq!(depot.latest().expect("read"), Some(GenerationNumber(1)), "it is no generation");
        let tip = depot.repo.find_reference(OUTCOMES).expect("there").peel_to_commit().expect("a commit");
        assert_eq!(tip.message(), Ok("switch to generation 1: converged\n"));
        assert_eq!(tip.parent(0).expect("the one before").message(), Ok("switch to generation 1: failed\n"));
    }

    #[test]
    fn hostile_bytes_are_told_and_the_rest_is_shown() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = depot(&folder);
        let good = outcome(1, Ended::Converged);
        add(&depot, &good);
        let deep = vec![b'['; 100_000];
        let newer = br#"{"format":99,"anything":[]}"#.to_vec();
        let strange =
            br#"{"format":1,"to":-1,"by":"\u0000","began_ns":1e99,"ended":"x","hosts":{"../..":{}}}"#.to_vec();
        for bytes in [vec![], b"\xff\xfe".to_vec(), deep, newer, strange, b"null".to_vec()] {
            let blob = depot.repo.blob(&bytes).expect("written");
            let mut tree = depot.repo.treebuilder(None).expect("a tree");
            tree.insert(FILE, blob, 0o100_644).expect("put");
            let tree = depot.repo.find_tree(tree.write().expect("written")).expect("there");
            let parent = depot.repo.find_commit(depot.last_outcome().expect("read").expect("one")).expect("there");
            let who = git2::Signature::new("x", "x", &git2::Time::new(0, 0)).expect("a name");
            depot.repo.commit(Some(OUTCOMES), &who, &who, "x", &tree, &[&parent]).expect("made");
        }
        let found = depot.outcomes().expect("read");
        assert_eq!((found.all, found.problems.len()), (vec![good], 6), "{:?}", found.problems);
        assert!(found.problems.iter().any(|p| p.contains("format 99")), "{:?}", found.problems);
        // A ref that names no commit, and a ref with garbage.
        let blob = depot.repo.blob(b"x").expect("written");
        depot.repo.reference(OUTCOMES, blob, true, "").expect("set");
        assert_eq!(depot.outcomes().expect("read").problems.len(), 1);
        std::fs::write(depot.path().join(OUTCOMES), "garbage\n").expect("written");
        let _ = depot.outcomes().map(|found| found.all.is_empty());
    }
}
