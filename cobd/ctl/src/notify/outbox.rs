//! The unsent notices of a receiver: collected, sent together, repeated after failures.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::observe::{Notice, NoticeState};

/// The most unsent notices; the oldest give way.
const MOST: usize = 1000;
/// The most notices in a message.
const TOGETHER: usize = 50;
/// How long further notices are waited for, before a message is sent.
const GATHER: Duration = Duration::from_secs(2);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The unsent notices of a receiver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    unsent: VecDeque<Notice>,
    /// How many notices were dropped since the last message.
    dropped: u64,
    /// The time of the next attempt, in nanoseconds; meaningless without notices.
    due_ns: u64,
    /// The time of the last message.
    sent_ns: u64,
    /// How many attempts have failed since.
    failures: u32,
    /// How many notices the message under way has.
    #[serde(skip)]
    under_way: usize,
}

/// A message, as receivers get it in JSON.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The most urgent notice in a sentence.
    pub title: String,
    /// The notices, the oldest first.
    pub notices: Vec<Notice>,
    /// How many earlier notices were dropped, because the receiver could not be reached for long.
    #[serde(skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// How many notices follow in further messages.
    #[serde(skip_serializing_if = "is_none")]
    pub further: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_none(number: &usize) -> bool {
    *number == 0
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Outbox {
    /// Adds a notice; `every` is the shortest time between two messages.
    pub fn add(&mut self, notice: Notice, every: Duration, now_ns: u64) {
        if self.unsent.is_empty() {
            let earliest = if self.sent_ns == 0 { 0 } else { self.sent_ns.saturating_add(ns(every)) };
            self.due_ns = earliest.max(now_ns.saturating_add(ns(GATHER)));
        }
        if self.unsent.len() >= MOST {
            self.dropped += 1;
            if self.under_way > 0 {
                return;
            }
            self.unsent.pop_front();
        }
        self.unsent.push_back(notice);
    }

    /// The message to send now. The caller reports its end by [`Self::sent`] or [`Self::failed`].
    pub fn message(&mut self, now_ns: u64) -> Option<Message> {
        if self.unsent.is_empty() || self.under_way > 0 || now_ns < self.due_ns {
            return None;
        }
        let notices: Vec<Notice> = self.unsent.iter().take(TOGETHER).cloned().collect();
        self.under_way = notices.len();
        let further = self.unsent.len() - notices.len();
        Some(Message { title: title(&notices, further), notices, dropped: self.dropped, further })
    }

    /// The time of the next message, if any is due.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        (!self.unsent.is_empty() && self.under_way == 0).then_some(self.due_ns)
    }

    /// The message has arrived.
    pub fn sent(&mut self, every: Duration, now_ns: u64) {
        self.unsent.drain(..self.under_way.min(self.unsent.len()));
        (self.under_way, self.failures, self.dropped, self.sent_ns) = (0, 0, 0, now_ns);
        self.due_ns = now_ns.saturating_add(ns(every));
    }

    /// The message has not arrived. Returns the pause before the next attempt.
    pub fn failed(&mut self, now_ns: u64) -> Duration {
        let pause = Duration::from_secs(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        (self.under_way, self.failures) = (0, self.failures.saturating_add(1));
        self.due_ns = now_ns.saturating_add(ns(pause));
        pause
    }
}

fn title(notices: &[Notice], further: usize) -> String {
    let urgent = notices.iter().find(|notice| notice.state == NoticeState::Begun).or_else(|| notices.first());
    let text = urgent.map(|notice| notice.text.lines().next().unwrap_or_default()).unwrap_or_default();
    let mut title: String = text.chars().take(120).collect();
    if title.len() < text.len() {
        title.push('…');
    }
    match notices.len() + further {
        0 | 1 => title,
        all => format!("{title} (and {} more)", all - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::observe::NoticeKind;
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const EVERY: Duration = Duration::from_secs(30);

    fn notice(number: u64) -> Notice {
        Notice {
            id: number.to_string(),
            kind: NoticeKind::Drift,
            state: NoticeState::Happened,
            at_ns: number,
            host: None,
            cob: None,
            generation: None,
            text: format!("notice {number}"),
            next: String::new(),
        }
    }

    fn numbers(message: &Message) -> Vec<u64> {
        message.notices.iter().map(|notice| notice.at_ns).collect()
    }

    #[test]
    fn notices_of_a_moment_are_a_message_and_messages_keep_their_distance() {
        let mut outbox = Outbox::default();
        (1..=2).for_each(|number| outbox.add(notice(number), EVERY, SECOND));
        assert_eq!((outbox.message(2 * SECOND), outbox.due_ns()), (None, Some(3 * SECOND)));
        let message = outbox.message(3 * SECOND).expect("due");
        assert_eq!((message.title.as_str(), numbers(&message)), ("notice 1 (and 1 more)", vec![1, 2]));
        // A notice that comes while a message is under way is not lost.
        outbox.add(notice(3), EVERY, 3 * SECOND);
        assert_eq!((outbox.message(9 * SECOND), outbox.due_ns()), (None, None));
        outbox.sent(EVERY, 4 * SECOND);
        assert_eq!(outbox.message(33 * SECOND), None);
        assert_eq!(numbers(&outbox.message(34 * SECOND).expect("due")), [3]);
        outbox.sent(EVERY, 34 * SECOND);
        assert_eq!((outbox.message(99 * SECOND), outbox.due_ns()), (None, None));
    }

    #[test]
    fn failed_messages_are_repeated_with_growing_pauses() {
        let mut outbox = Outbox::default();
        outbox.add(notice(1), EVERY, 0);
        let mut now = 2 * SECOND;
        let mut pauses = Vec::new();
        for _ in 0..11 {
            assert_eq!(numbers(&outbox.message(now).expect("due")), [1]);
            let pause = outbox.failed(now);
            pauses.push(pause.as_secs());
            assert_eq!(outbox.message(now + ns(pause) - 1), None);
            now += ns(pause);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert!(outbox.message(now).is_some());
    }

    #[test]
    fn the_oldest_notices_give_way_and_are_counted() {
        let mut outbox = Outbox::default();
        (0..MOST as u64 + 5).for_each(|number| outbox.add(notice(number), EVERY, 0));
        let message = outbox.message(2 * SECOND).expect("due");
        assert_eq!((message.dropped, message.further, message.notices[0].at_ns), (5, MOST - TOGETHER, 5));
        outbox.sent(EVERY, 2 * SECOND);
        assert_eq!(outbox.message(32 * SECOND).expect("due").dropped, 0);
    }

    #[test]
    fn an_outbox_survives_a_restart() {
        let mut outbox = Outbox::default();
        outbox.add(notice(1), EVERY, 0);
        assert!(outbox.message(2 * SECOND).is_some());
        let mut again: Outbox =
            serde_json::from_str(&serde_json::to_string(&outbox).expect("JSON")).expect("an outbox");
        assert_eq!(numbers(&again.message(2 * SECOND).expect("due")), [1]);
    }
}
