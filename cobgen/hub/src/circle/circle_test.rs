//! Claims and copies in a real etcd with one member. Needs the program `etcd` (`etcd-server`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cob_hub_store::{Etcd, Store as _};

use super::claim::{Claim, Keeper};
use super::copies::{Copies, CopyError};
use super::ward::{Ward, areas};
use super::{Circle, Reign};

#[path = "../../store/tests/store/members.rs"]
mod members;

/// A member, which ends with it.
struct Member {
    circle: Circle,
    _members: members::Members,
}

impl Member {
    /// Starts a member. `None`, with a clear word, if there is no etcd.
    fn start() -> Option<Self> {
        let members = members::Members::start(1)?;
        let circle = Circle { members: members.addresses.clone(), prefix: "cob/".to_owned(), hub: "a".to_owned() };
        Some(Self { circle, _members: members })
    }

    fn store(&self) -> Etcd {
        self.circle.store().expect("members")
    }

    async fn lead(&self) -> Option<Claim> {
        let key = self.circle.leader().expect("a key");
        Claim::take(&self.store(), &key, "a".to_owned(), None).await.expect("an answer")
    }
}

fn write(folder: &Path, name: &str, content: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, content).expect("written");
}

/// The files under a folder, with their contents and modes.
fn all(folder: &Path) -> Vec<(String, Vec<u8>, u32)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let mode = fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
                let name = path.strip_prefix(folder).expect("inside").display().to_string();
                found.push((name, fs::read(&path).expect("read"), mode));
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_claim_is_held_once_and_lapses_with_its_holder() {
    let Some(member) = Member::start() else { return };
    let first = member.lead().await.expect("nobody has it");
    assert!(member.lead().await.is_none(), "somebody has it");
    let keeper = Keeper::begin(&member.circle, first.clone(), None).expect("held");
    // A later key that is not held lapses meanwhile.
    let other = member.circle.key("other").expect("a key");
    assert!(Claim::take(&member.store(), &other, "a".to_owned(), None).await.expect("an answer").is_some());
    let begun = Instant::now();
    while member.store().get(&other).await.expect("an answer").is_some() {
        assert!(begun.elapsed() < Duration::from_secs(30), "a claim that is not held stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!keeper.is_lost() && member.lead().await.is_none(), "a claim that is held lapses");
    keeper.end().await;
    let second = member.lead().await.expect("it was given up");
    assert!(second.revision > first.revision);
    // Nobody holds the second claim.
    let begun = Instant::now();
    let third = loop {
        if let Some(claim) = member.lead().await {
            break claim;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "a claim that nobody holds stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(third.revision > second.revision);
    let late = Keeper::begin(&member.circle, second, None).expect("begun");
    late.lost().await;
}

#[tokio::test]
async fn copies_are_equal_and_only_the_holder_writes() {
    let Some(member) = Member::start() else { return };
    let (from, to) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut copies = Copies::new(&member.circle, from.path()).expect("members");
    let mut other = Copies::new(&member.circle, to.path()).expect("members");
    let claim = member.lead().await.expect("nobody has it");
    // On a busy machine the copies take longer than a lease.
    let keeper = Keeper::begin(&member.circle, claim.clone(), None).expect("held");
    let long: Vec<u8> = (0..3_000_000_u32).map(|n| u8::try_from(n % 251).expect("small")).collect();
    write(from.path(), "catalogue.git/HEAD", b"ref: refs/heads/main\n");
    write(from.path(), "clusters/web/a/depot/objects/aa/bb", &long);
    write(from.path(), "clusters/web/a/depot/server.key", b"secret");
    fs::set_permissions(from.path().join("clusters/web/a/depot/server.key"), fs::Permissions::from_mode(0o600))
        .expect("changed");
    for n in 0..300 {
        write(from.path(), &format!("clusters/web/a/depot/objects/{n:03}"), n.to_string().as_bytes());
    }
    write(from.path(), "jobs/1/record", b"");
    let areas = ["catalogue.git/", "clusters/", "jobs/"].map(str::to_owned);
    copies.push(&areas, &claim.fence()).await.expect("pushed");
    write(to.path(), "clusters/web/gone/machines.json", b"{}");
    other.pull("").await.expect("pulled");
    assert!(to.path().join("catalogue.git/objects").is_dir(), "git wants this folder");
    assert!(all(to.path()) == all(from.path()), "the copies differ");
    // A part of a long file changes, a file goes, a file becomes another.
    let mut changed = long;
    changed[2_000_000] = 255;
    write(from.path(), "clusters/web/a/depot/objects/aa/bb", &changed);
    write(from.path(), "jobs/1/record", b"one\n");
    fs::remove_file(from.path().join("clusters/web/a/depot/objects/007")).expect("removed");
    copies.push(&areas, &claim.fence()).await.expect("pushed");
    other.pull("").await.expect("pulled");
    assert!(all(to.path()) == all(from.path()), "the copies differ");
    // Whoever has no claim any more writes nothing.
    keeper.end().await;
    let next = member.lead().await.expect("it was given up");
    let _keeper = Keeper::begin(&member.circle, next.clone(), None).expect("held");
    write(from.path(), "jobs/1/record", b"one\nstale\n");
    assert!(matches!(copies.push(&areas, &claim.fence()).await, Err(CopyError::Lost)));
    other.pull("").await.expect("pulled");
    assert_eq!(fs::read(to.path().join("jobs/1/record")).expect("read"), b"one\n");
    copies.push(&areas, &next.fence()).await.expect("pushed");
    other.pull("jobs/1/").await.expect("pulled");
    assert_eq!(fs::read(to.path().join("jobs/1/record")).expect("read"), b"one\nstale\n");
}

#[tokio::test]
async fn a_ward_ends_with_the_lead_of_its_hub() {
    let Some(member) = Member::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "clusters/web/a/machines.json", b"{}");
    write(folder.path(), "jobs/7/record", b"begun\n");
    let lead = member.lead().await.expect("nobody has it");
    let reign = Reign { circle: member.circle.clone(), epoch: lead.revision.0, root: folder.path().to_owned() };
    let keeper = Keeper::begin(&member.circle, lead, None).expect("held");
    let begin = |reign: Reign| {
        let areas = areas(&reign.root, &reign.root.join("clusters/web/a"), 7);
        tokio::task::spawn_blocking(move || Ward::begin(&reign, 7, areas))
    };
    let ward = begin(reign.clone()).await.expect("no panic").expect("claimed");
    assert!(ward.epoch() > reign.epoch);
    ward.save().expect("saved");
    let copy = tempfile::tempdir().expect("a folder");
    let mut copies = Copies::new(&member.circle, copy.path()).expect("members");
    copies.pull("").await.expect("pulled");
    assert!(all(copy.path()) == all(folder.path()), "the copies differ");
    keeper.end().await;
    ward.lost().await;
    assert!(ward.save().is_err(), "a ward without its key saves");
    // The key is gone; without a hub that leads nobody gets it.
    let owner = member.circle.owner(7).expect("a key");
    let begun = Instant::now();
    while member.store().get(&owner).await.expect("an answer").is_some() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the key of the job stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let refused = begin(reign).await.expect("no panic").expect_err("stale");
    assert_eq!(refused, "another hub leads");
}
