//! Following the depot: reports the newest generation to the loop, after each change and at intervals.
//!
//! The reports are only hints: without them the active generation stays, and orders still work. All reading and waiting
//! happens outside the loop.

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

/// The interval of looks that find changes which the watch misses (a network file system, an overflow).
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Changes within this time share a look.
const GATHER: Duration = Duration::from_millis(200);
/// How long a question to a server waits for a new generation.
const WAIT: Duration = Duration::from_secs(30);
/// The first and the longest delay after a failed question to a server.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];

/// Follows the depot as long as the returned value is kept.
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
                    warn!(%error, "the depot can't be watched; it is polled every minute");
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

/// Wakes the task at each change below a folder, but not when a file is only opened: each look would cause the next.
fn watch(folder: &Path, wake: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let handler = move |_: notify::Result<notify::Event>| wake.notify_one();
    let only_changes = notify::Config::default().with_event_kinds(EventKindMask::CORE);
    let mut watcher = RecommendedWatcher::new(handler, only_changes)?;
    watcher.watch(folder, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Looks into a folder at every change and at intervals.
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

/// Asks a server repeatedly; each question waits there for a new generation.
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
            // The manifest is only fetched after a change.
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

/// Retries the newest generation at growing intervals if it could not be fetched or is not accepted yet. When a server
/// comes back or a signature is added, no new generation is reported.
#[derive(Debug)]
pub(super) struct Again {
    tell: mpsc::Sender<GenerationNumber>,
    /// The generation that failed last, and the error.
    failed: Option<(GenerationNumber, String)>,
    /// The shortest and the longest pause.
    bounds: [Duration; 2],
    pause: Duration,
    timer: Option<AbortOnDrop>,
}

impl Again {
    /// Reports the generation to this channel, like [`follow`].
    pub(super) fn new(tell: mpsc::Sender<GenerationNumber>) -> Self {
        Self::within(tell, AGAIN)
    }

    fn within(tell: mpsc::Sender<GenerationNumber>, bounds: [Duration; 2]) -> Self {
        Self { tell, failed: None, bounds, pause: bounds[0], timer: None }
    }

    /// Notes a failure. Returns whether it is new: another generation, or another error.
    pub(super) fn failed(&mut self, generation: GenerationNumber, error: &FetchError) -> bool {
        if self.failed.as_ref().is_none_or(|(other, _)| *other != generation) {
            self.pause = self.bounds[0];
        }
        let failed = Some((generation, error.to_string()));
        let is_news = failed != self.failed;
        self.failed = failed;
        let (pause, tell) = (self.pause, self.tell.clone());
        self.pause = (pause * 2).min(self.bounds[1]);
        // A single timer, also if several hints come.
        self.timer = Some(AbortOnDrop(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // Without a receiver the daemon is ending.
            let _ = tell.send(generation).await;
        })));
        is_news
    }

    /// A generation was accepted: ends the retries.
    pub(super) fn taken(&mut self) {
        *self = Self::within(self.tell.clone(), self.bounds);
    }
}

/// Looks up the newest generation in a thread of its own.
async fn read_beside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    beside(read).await.unwrap_or_else(|lost| Err(FetchError::lost(GenerationNumber(0), lost)))
}

/// Warns about a depot that is older than this host, or has different content: when that begins, and when it changes.
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

/// Logs failures of the depot: at their start, at each change, and at their end.
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
                    warn!(error = words, "the depot can't be followed; the active generation stays");
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
        FetchError::Bad { generation: GenerationNumber(generation), what: "it has no signature".to_owned() }
    }

    #[tokio::test]
    async fn a_read_in_the_depot_gives_no_hint() {
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
    async fn a_failed_generation_is_tried_again_with_growing_pauses() {
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
        // Another generation starts with the shortest pause, without the timer of the first.
        again.failed(one, &untrusted(1));
        assert!(again.failed(two, &untrusted(2)), "that is news");
        assert_eq!(again.pause, ms(20));
        assert_eq!(told.recv().await, Some(two));
        again.failed(two, &untrusted(2));
        again.taken();
        assert_eq!(again.pause, ms(10));
        assert!(tokio::time::timeout(ms(200), told.recv()).await.is_err(), "no further attempt follows");
    }
}
