//! The guard of a job's process in a circle: it holds the job's key, and copies what the process writes.
//!
//! The process works only while it holds the key, and while the hub leads that has started it. Whoever takes the job over
//! waits until the key is gone.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cob_hub_store::{Compare, Etcd, Revision, Store as _};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::Reign;
use super::claim::{Claim, Keeper};
use super::copies::{Copies, CopyError};

/// The most copies that are asked for at a time.
const ASKS: usize = 16;
/// How long a former process of the job has to end.
const FORMER: Duration = Duration::from_secs(20);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// The pause between two copies of the log.
const PERIOD: Duration = Duration::from_secs(1);

type Answer = Sender<Result<(), String>>;

/// The guard. The key is given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Ward {
    /// Absent while the guard ends.
    asks: Option<mpsc::Sender<Answer>>,
    lost: watch::Receiver<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
    epoch: u64,
}

/// What a ward works with.
struct Post {
    copies: Copies,
    areas: Vec<String>,
    fence: Compare,
    keeper: Keeper,
    epoch: u64,
}

impl Ward {
    /// Claims the key of a job, and waits for a former process. `areas` are copied in their order.
    pub(crate) fn begin(reign: &Reign, job: u64, areas: Vec<String>) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let (teller, lost) = watch::channel(false);
        let (asks, asked) = mpsc::channel(ASKS);
        let (begun, answer) = channel();
        let reign = reign.clone();
        let work = move || {
            runtime.block_on(async {
                match post(&reign, job, areas).await {
                    Ok(post) => {
                        // The process waits for it.
                        let _ = begun.send(Ok(post.epoch));
                        stand(post, asked, &teller).await;
                    }
                    Err(why) => {
                        let _ = begun.send(Err(why));
                    }
                }
            });
            let _ = teller.send(true);
        };
        let thread = std::thread::Builder::new().name("ward".to_owned()).spawn(work).map_err(|e| e.to_string())?;
        let epoch = answer.recv().map_err(|e| e.to_string())??;
        Ok(Self { asks: Some(asks), lost, thread: Some(thread), epoch })
    }

    /// The revision of the claim: it grows when another process takes the job over.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Copies what has changed. It is in the store when this returns.
    pub(crate) fn save(&self) -> std::io::Result<()> {
        let (sender, answer) = channel();
        let gone = || std::io::Error::other("another hub has taken the job over");
        // The process waits for each answer, so there is room.
        self.asks.as_ref().ok_or_else(gone)?.try_send(sender).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?.map_err(std::io::Error::other)
    }

    /// Waits until the process must not work any more.
    pub(crate) async fn lost(&self) {
        let mut lost = self.lost.clone();
        // The thread has ended otherwise.
        let _ = lost.wait_for(|lost| *lost).await;
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        // The thread ends when nobody can ask it any more.
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The files that a job changes, the record last.
pub(crate) fn areas(root: &Path, cluster: &Path, job: u64) -> Vec<String> {
    let cluster = cluster.strip_prefix(root).unwrap_or(cluster).display();
    vec![format!("{cluster}/"), format!("jobs/{job}/")]
}

async fn post(reign: &Reign, job: u64, areas: Vec<String>) -> Result<Post, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let circle = &reign.circle;
    let store: Etcd = circle.store().map_err(|e| text(&e))?;
    let (leader, owner) = (circle.leader().map_err(|e| text(&e))?, circle.owner(job).map_err(|e| text(&e))?);
    let epoch = Revision(reign.epoch);
    let begun = tokio::time::Instant::now();
    let claim = loop {
        let reigns = Compare::created(leader.clone(), epoch);
        match Claim::take(&store, &owner, circle.hub.clone(), Some(reigns)).await {
            Ok(Some(claim)) => break claim,
            Ok(None) => {
                let led = store.get(&leader).await.map_err(|e| text(&e))?;
                if led.is_none_or(|entry| entry.create_revision != epoch) {
                    return Err("another hub leads".to_owned());
                }
                if begun.elapsed() > FORMER {
                    return Err(format!("a former process of job {job} still holds its key"));
                }
            }
            Err(error) if begun.elapsed() > FORMER => return Err(text(&error)),
            Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    };
    let (fence, own) = (claim.fence(), claim.revision.0);
    let keeper = Keeper::begin(circle, claim, Some((leader, epoch)))?;
    let mut copies = Copies::new(circle, &reign.root).map_err(|e| text(&e))?;
    for area in &areas {
        copies.list(area).await.map_err(|e| text(&e))?;
    }
    Ok(Post { copies, areas, fence, keeper, epoch: own })
}

/// Copies on demand, and now and then, until the key is lost or nobody asks any more.
async fn stand(mut post: Post, mut asked: mpsc::Receiver<Answer>, teller: &watch::Sender<bool>) {
    loop {
        let answer = tokio::select! {
            () = post.keeper.lost() => break,
            answer = asked.recv() => match answer {
                Some(answer) => Some(answer),
                None => break,
            },
            () = tokio::time::sleep(PERIOD) => None,
        };
        let saved = tokio::select! {
            () = post.keeper.lost() => Err("another hub has taken the job over".to_owned()),
            saved = save(&mut post.copies, &post.areas, &post.fence) => saved,
        };
        if let Err(why) = &saved {
            warn!(why, "the files of the job are not copied");
        }
        if let Some(answer) = answer {
            // The process may have ended.
            let _ = answer.send(saved);
        }
    }
    if post.keeper.is_lost() {
        let _ = teller.send(true);
        return;
    }
    tokio::select! {
        () = post.keeper.lost() => {}
        _ = save(&mut post.copies, &post.areas, &post.fence) => {}
    }
    post.keeper.end().await;
}

/// Copies until it succeeds. Only what no repetition helps against is a failure.
async fn save(copies: &mut Copies, areas: &[String], fence: &Compare) -> Result<(), String> {
    loop {
        match copies.push(areas, fence).await {
            Ok(()) => return Ok(()),
            Err(CopyError::Store(error)) => {
                warn!(%error, "the store does not answer");
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
