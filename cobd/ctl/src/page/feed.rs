//! The streams: each tab gets the whole picture, then what changes in it.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use tokio::sync::broadcast;

use super::message::{Message, Order};
use super::picture::{Drawn, Picture, View};

/// How many messages a slow tab may be behind; then its stream ends, and it asks for the whole picture again.
const BEHIND: usize = 64;

/// The picture, and the tabs that follow it.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    picture: Arc<Mutex<Picture>>,
    tabs: broadcast::Sender<Bytes>,
}

/// A tab's stream.
#[derive(Debug)]
pub(crate) struct Stream {
    first: Option<Bytes>,
    rest: broadcast::Receiver<Bytes>,
}

impl Feed {
    /// A feed without a picture.
    pub(crate) fn new() -> Self {
        Self { picture: Arc::default(), tabs: broadcast::channel(BEHIND).0 }
    }

    /// Takes the present statuses and orders, and sends the changes to the tabs.
    pub(crate) fn take(&self, view: View<'_>, orders: Vec<Order>, drawn: Option<Drawn>) {
        let mut picture = self.lock();
        let is_redrawn = drawn.is_some_and(|drawn| picture.take_drawn(drawn));
        if let Some(message) = picture.take(view, orders, is_redrawn) {
            self.send(&message);
        }
    }

    /// Tells the tabs that the connection is alive.
    pub(crate) fn idle(&self, now_ms: u64) {
        let seq = self.lock().seq();
        self.send(&Message::Idle { seq, now_ms });
    }

    /// The whole picture and everything after it.
    pub(crate) fn follow(&self) -> Stream {
        // The lock keeps messages away between the picture and the rest.
        let picture = self.lock();
        let rest = self.tabs.subscribe();
        Stream { first: (picture.seq() > 0).then(|| line(&picture.snapshot())), rest }
    }

    fn send(&self, message: &Message) {
        if self.tabs.receiver_count() > 0 {
            // Without a tab that listens there is nothing to do.
            let _ = self.tabs.send(line(message));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// The next line. Absent: the tab is too far behind.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        match self.first.take() {
            Some(first) => Some(first),
            None => self.rest.recv().await.ok(),
        }
    }
}

fn line(message: &Message) -> Bytes {
    let mut text = serde_json::to_string(message).unwrap_or_default();
    text.push('\n');
    text.into()
}
