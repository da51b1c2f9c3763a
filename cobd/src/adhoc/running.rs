//! A command that runs, as its operator sees it: events up to the end. Dropping it ends the command.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use cob_types::HostName;
use cob_types::command_run::{RunEnd, RunEvent, RunId};
use tokio::sync::watch;

use super::follow::Follow;
use crate::blocking::beside;
use crate::run::{Canceller, Redactor};

/// The shortest and the longest pause between two reads, while a command is silent.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// A command that runs.
pub struct Running {
    /// Readers of standard output and standard error; absent after the end.
    follows: Option<[Follow; 2]>,
    ended: watch::Receiver<Option<RunEnd>>,
    next: VecDeque<RunEvent>,
    pause: Duration,
    _end: EndOnDrop,
}

/// Asks the command to end when its operator has gone away.
struct EndOnDrop(Canceller);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Err(error) = self.0.cancel() {
            tracing::warn!(%error, "a command can't be asked to end; it continues until its time limit");
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("ended", &*self.ended.borrow()).finish_non_exhaustive()
    }
}

impl Running {
    pub(super) fn new(
        host: HostName,
        run: RunId,
        outputs: [File; 2],
        redactor: Redactor,
        ended: watch::Receiver<Option<RunEnd>>,
        canceller: Canceller,
    ) -> Self {
        let redactor = Arc::new(redactor);
        let follows = outputs.map(|file| Follow::new(file, Arc::clone(&redactor)));
        let next = VecDeque::from([RunEvent::Begun { host, run }]);
        Self { follows: Some(follows), ended, next, pause: LOOK.0, _end: EndOnDrop(canceller) }
    }

    /// Waits for the next event; absent after the end of the command. Output is read only on demand, so a slow operator
    /// takes no memory.
    pub async fn next(&mut self) -> Option<RunEvent> {
        loop {
            if let Some(event) = self.next.pop_front() {
                return Some(event);
            }
            // Before the output is read: all output before the end is in the file then.
            let end = self.ended.borrow_and_update().clone();
            let mut follows = self.follows.take()?;
            let read = beside(move || {
                let read = follows.each_mut().map(Follow::read);
                (follows, read)
            });
            // Without a thread the output can't be read.
            let (mut follows, read) = read.await.ok()?;
            let events: [fn(String) -> RunEvent; 2] = [RunEvent::Out, RunEvent::Err];
            let mut is_quiet = true;
            for (read, event) in read.into_iter().zip(events) {
                let (more, text) = read.unwrap_or_default();
                is_quiet &= !more;
                self.next.extend((!text.is_empty()).then(|| event(text)));
            }
            match end {
                Some(end) if is_quiet => {
                    for (follow, event) in follows.iter_mut().zip(events) {
                        let text = follow.finish();
                        self.next.extend((!text.is_empty()).then(|| event(text)));
                    }
                    self.next.push_back(RunEvent::Ended(end));
                    continue;
                }
                Some(_) | None => self.follows = Some(follows),
            }
            if !is_quiet {
                self.pause = LOOK.0;
            } else if tokio::time::timeout(self.pause, self.ended.changed()).await.is_ok_and(|told| told.is_err()) {
                // The daemon stops.
                self.ended.borrow().as_ref()?;
            } else {
                self.pause = (self.pause * 2).min(LOOK.1);
            }
        }
    }
}
