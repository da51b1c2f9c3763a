//! Suggestions for ids that no host knows.

use cob_types::CobId;
use cob_types::status::CobStatus;

use super::Context;
use crate::client::AskError;
use crate::failure::Failure;
use crate::gather;
use crate::words::list;

impl Context {
    /// The error for a change object that its host does not have, with similar ids; `None`: the host has it, or can't
    /// be asked.
    pub(super) async fn unknown(&self, cob: &CobId) -> Option<Failure> {
        let target = self.locate(&cob.host()).await.ok()?;
        let cluster = gather::cluster(&self.client, &[target]).await;
        let host = cluster.hosts.iter().find(|host| host.reachable)?;
        if host.cobs.iter().any(|c| c.id == *cob) {
            return None;
        }
        let like = near(host.cobs.iter(), cob);
        let hint = if like.is_empty() {
            format!("`cobctl status {}` lists its change objects", host.name)
        } else {
            format!("did you mean {}?", list(like, 3))
        };
        Some(Failure::refused(format!("{} has no change object {cob}", host.name)).hint(hint))
    }

    /// A host's answer about a change object. A refusal has suggestions if the host does not have the change object.
    pub(super) async fn answer_of<T>(&self, cob: &CobId, answer: Result<T, AskError>) -> Result<T, Failure> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let unknown = if error.is_not_found() { self.unknown(cob).await } else { None };
        Err(unknown.unwrap_or_else(|| error.into()))
    }
}

/// Change objects with ids similar to a missing id: the same last part, or a letter or two different.
pub(super) fn near<'c>(cobs: impl Iterator<Item = &'c CobStatus>, cob: &CobId) -> Vec<CobId> {
    let last = |id: &CobId| id.as_str().rsplit('/').next().unwrap_or_default().to_owned();
    let mut all: Vec<(usize, CobId)> = cobs
        .map(|c| {
            let far = distance(c.id.as_str(), cob.as_str());
            (if last(&c.id) == last(cob) { far.min(2) } else { far }, c.id.clone())
        })
        .filter(|(far, _)| *far <= 3)
        .collect();
    all.sort();
    all.into_iter().take(3).map(|(_, id)| id).collect()
}

/// The number of letters to add, drop or change between the two texts.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            let best = (corner + usize::from(x != *y)).min(above + 1).min(left + 1);
            row[j] = left;
            corner = above;
            left = best;
        }
        row[b.len()] = left;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{host, id, settled};

    #[test]
    fn distances_count_letters() {
        for (a, b, far) in [("", "", 0), ("db", "db", 0), ("db", "bd", 2), ("n1/db", "n1/dbs", 1), ("abc", "", 3)] {
            assert_eq!((distance(a, b), distance(b, a)), (far, far), "{a} {b}");
        }
    }

    #[test]
    fn mistyped_ids_are_recognised() {
        let n1 = host("n1", 7, vec![settled("n1/db/server", "up"), settled("n1/web", "up")]);
        assert_eq!(near(n1.cobs.iter(), &id("n1/db/sever")), [id("n1/db/server")]);
        assert_eq!(near(n1.cobs.iter(), &id("n1/server")), [id("n1/db/server")]);
        assert!(near(n1.cobs.iter(), &id("n1/mail")).is_empty());
    }
}
