//! Following the depot: tells the loop of the newest generation, when there is a new one and at intervals.
//!
//! A hint only: where nothing can be watched, or the server is away, what is active stays as it is, and
//! orders still work. All reading and waiting is done beside the loop.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cob_types::GenerationNumber;
use notify::{EventKindMask, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, mpsc};
use tracing::{info, warn};

use super::start::AbortOnDrop;
use crate::blocking::beside;
use crate::config::Config;
use crate::generations::{FetchError, Generations};
use crate::remote::Remote;
use crate::source::Source;

/// What the watch misses (a network file system, an overflow) a look now and then finds.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(200);
/// How long one question to a server waits for something new.
const WAIT: Duration = Duration::from_secs(30);
/// Between two questions to a server that gives no answer.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];

/// Follows the depot. What is returned is kept as long as that goes on.
pub(super) fn follow(
    config: &Config,
    generations: &Generations,
    tell: mpsc::Sender<GenerationNumber>,
) -> Option<Box<dyn std::any::Any>> {
    match &config.depot {
        Source::Folder(folder) => {
            let wake = Arc::new(Notify::new());
            tokio::spawn(look(generations.clone(), wake.clone(), tell));
            match watch(&folder.join("refs"), wake) {
                Ok(watcher) => Some(Box::new(watcher)),
                Err(error) => {
                    warn!(%error, "the depot can't be watched; it is looked at every minute");
                    None
                }
            }
        }
        Source::Server(remote) => {
            tokio::spawn(listen(generations.clone(), remote.clone(), tell));
            None
        }
    }
}

/// Gives a hint at each change below a folder, but not of what is only opened there: each look would lead to the next one.
fn watch(folder: &Path, wake: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let handler = move |_: notify::Result<notify::Event>| wake.notify_one();
    let only_changes = notify::Config::default().with_event_kinds(EventKindMask::CORE);
    let mut watcher = RecommendedWatcher::new(handler, only_changes)?;
    watcher.watch(folder, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Looks into a folder at every hint and at intervals.
async fn look(generations: Generations, wake: Arc<Notify>, tell: mpsc::Sender<GenerationNumber>) {
    let (mut trouble, mut behind) = (Trouble::default(), Behind::default());
    loop {
        let asked = generations.clone();
        let newest = read_beside(move || asked.newest()).await;
        let newest = trouble.judge(newest);
        behind.judge(&generations, newest.flatten()).await;
        if let Some(Some(newest)) = newest
            && tell.send(newest).await.is_err()
        {
            return;
        }
        if tokio::time::timeout(LOOK_EVERY, wake.notified()).await.is_ok() {
            tokio::time::sleep(GATHER).await;
        }
    }
}

/// Asks a server again and again; each question waits there for something new.
async fn listen(generations: Generations, remote: Remote, tell: mpsc::Sender<GenerationNumber>) {
    let (mut trouble, mut behind) = (Trouble::default(), Behind::default());
    let (mut known, mut last, mut rest) = (None, None, AGAIN[0]);
    while !tell.is_closed() {
        let (remote, after) = (remote.clone(), known);
        let newest = read_beside(move || {
            let newest = match after {
                None => remote.newest(),
                Some(after) => remote.wait(after, WAIT),
            };
            newest.map_err(FetchError::from)
        });
        if let Some(newest) = trouble.judge(newest.await) {
            rest = AGAIN[0];
            known = Some(newest.unwrap_or_default());
            // Its manifest is not asked for again and again.
            if last != newest {
                behind.judge(&generations, newest).await;
                last = newest;
            }
            if let Some(newest) = newest
                && tell.send(newest).await.is_err()
            {
                return;
            }
        } else {
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(AGAIN[1]);
        }
    }
}

/// The newest generation could not be had or is not accepted yet: it is tried again, with growing pauses.
/// A server may come back, a signature may still be added, and neither makes a new generation to hear of.
#[derive(Debug)]
pub(super) struct Again {
    tell: mpsc::Sender<GenerationNumber>,
    /// What failed last, and in which words.
    failed: Option<(GenerationNumber, String)>,
    /// The first pause and the longest.
    bounds: [Duration; 2],
    pause: Duration,
    timer: Option<AbortOnDrop>,
}

impl Again {
    /// Tells of the generation here, as [`follow`] does.
    pub(super) fn new(tell: mpsc::Sender<GenerationNumber>) -> Self {
        Self::within(tell, AGAIN)
    }

    fn within(tell: mpsc::Sender<GenerationNumber>, bounds: [Duration; 2]) -> Self {
        Self { tell, failed: None, bounds, pause: bounds[0], timer: None }
    }

    /// It failed. Whether that is news: another generation, or another reason.
    pub(super) fn failed(&mut self, generation: GenerationNumber, error: &FetchError) -> bool {
        if self.failed.as_ref().is_none_or(|(other, _)| *other != generation) {
            self.pause = self.bounds[0];
        }
        let failed = Some((generation, error.to_string()));
        let is_news = failed != self.failed;
        self.failed = failed;
        let (pause, tell) = (self.pause, self.tell.clone());
        self.pause = (pause * 2).min(self.bounds[1]);
        // One timer, whoever asked: hints from elsewhere make no further ones.
        self.timer = Some(AbortOnDrop(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // Without a receiver the daemon is ending.
            let _ = tell.send(generation).await;
        })));
        is_news
    }

    /// One was taken: there is nothing to try again.
    pub(super) fn taken(&mut self) {
        *self = Self::within(self.tell.clone(), self.bounds);
    }
}

/// Looks for the newest one in a thread of its own.
async fn read_beside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    beside(read).await.unwrap_or_else(|lost| Err(FetchError::lost(GenerationNumber(0), lost)))
}

/// A depot that this host knows better than is told of when that begins, and when it is another one.
#[derive(Debug, Default)]
struct Behind(Option<String>);

impl Behind {
    async fn judge(&mut self, generations: &Generations, newest: Option<GenerationNumber>) {
        let generations = generations.clone();
        let behind = beside(move || newest.and_then(|newest| generations.behind(newest))).await;
        let Ok(behind) = behind else { return };
        if let Some(why) = behind.as_ref().filter(|_| behind != self.0) {
            warn!("the depot is not followed: {why}; was it restored from an older copy?");
        }
        self.0 = behind;
    }
}

/// Trouble with the depot is told when it begins, when it changes, and when it ends.
#[derive(Debug, Default)]
struct Trouble(Option<String>);

impl Trouble {
    fn judge<T>(&mut self, outcome: Result<T, FetchError>) -> Option<T> {
        match outcome {
            Ok(found) => {
                if self.0.take().is_some() {
                    info!("the depot can be followed again");
                }
                Some(found)
            }
            Err(error) => {
                let words = error.to_string();
                if self.0.as_ref() != Some(&words) {
                    warn!(error = words, "the depot can't be followed; what is active stays as it is");
                    self.0 = Some(words);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn untrusted(generation: u64) -> FetchError {
        FetchError::Bad { generation: GenerationNumber(generation), what: "nobody has signed it".to_owned() }
    }

    #[tokio::test]
    async fn what_is_only_read_in_the_depot_is_no_hint() {
        let folder = tempfile::tempdir().expect("folder");
        let heads = folder.path().join("heads");
        std::fs::create_dir(&heads).expect("made");
        std::fs::write(heads.join("main"), "one").expect("written");
        let wake = Arc::new(Notify::new());
        let watcher = watch(folder.path(), wake.clone()).expect("watched");
        let hint = || tokio::time::timeout(Duration::from_millis(300), wake.notified());
        std::fs::read_dir(&heads).expect("listed").for_each(|file| drop(std::fs::read(file.expect("there").path())));
        assert!(hint().await.is_err(), "a look leads to no other");
        std::fs::write(heads.join("new"), "two").expect("written");
        assert!(hint().await.is_ok(), "a change does");
        drop(watcher);
    }

    #[tokio::test]
    async fn what_failed_is_tried_again_with_growing_pauses_until_one_is_taken() {
        let (tell, mut told) = mpsc::channel(1);
        let ms = Duration::from_millis;
        let mut again = Again::within(tell, [ms(10), ms(80)]);
        let (one, two) = (GenerationNumber(1), GenerationNumber(2));
        for (n, pause) in [10, 20, 40, 80, 80].into_iter().enumerate() {
            let began = tokio::time::Instant::now();
            assert_eq!(again.failed(one, &untrusted(1)), n == 0, "told once");
            assert_eq!(told.recv().await, Some(one));
            assert!(began.elapsed() >= ms(pause), "{pause} ms");
        }
        // Another generation begins anew, and the timer of the first one is gone.
        again.failed(one, &untrusted(1));
        assert!(again.failed(two, &untrusted(2)), "that is news");
        assert_eq!(again.pause, ms(20));
        assert_eq!(told.recv().await, Some(two));
        again.failed(two, &untrusted(2));
        again.taken();
        assert_eq!(again.pause, ms(10));
        assert!(tokio::time::timeout(ms(200), told.recv()).await.is_err(), "nothing more is tried");
    }
}
