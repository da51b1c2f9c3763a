//! A session: the batches that a host still has to deliver to another, and how far both have come.
//!
//! It numbers sent batches, keeps them until they are acknowledged, drops duplicates, and outlives the links that carry
//! it: after a cut both sides say how far they have come, and the rest is sent again. A batch waits in the outbox until
//! the window has space, and in the window until it is acknowledged. It does no input or output and has no clock;
//! `link` moves the frames.
//!
//! Rules: both queues are bounded in messages and in bytes. When the outbox is full, all of it is dropped, and further
//! batches too; once the window is acknowledged, the engine is asked to send its open messages again. A new incarnation
//! of a peer gets no batch meant for its predecessor. If either side has lost its state about the other, both start
//! over.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use bytes::Bytes;
use cob_types::link::{Frame, FrameError, LinkHello, OLDEST_PROTOCOL, StreamPosition};
use cob_types::message::PROTOCOL;
use cob_types::{HostName, Incarnation};

use super::config::Limits;
use super::event::Counters;

/// Both directions between this incarnation of this daemon and another host.
#[derive(Debug)]
pub(super) struct Session {
    mine: Incarnation,
    limits: QueueLimits,
    /// Our name for the stream that our numbers count.
    stream: u64,
    /// The incarnation and stream of the other host that `received` counts; `None` before the first contact.
    theirs: Option<(Incarnation, u64)>,
    /// The highest number that the other host has acknowledged.
    acked: u64,
    /// Sent but unacknowledged batches: the numbers from `acked + 1`.
    window: Queue,
    /// How many batches of the window were sent on the present link.
    sent: usize,
    /// Not yet sent, without numbers.
    outbox: Queue,
    /// A batch was dropped: the engine has to send its open messages again.
    owes_resync: bool,
    /// The highest number received.
    received: u64,
    /// The other host does not know this number yet.
    owes_ack: bool,
    counters: Counters,
}

#[derive(Debug, Clone, Copy)]
struct QueueLimits {
    window_messages: usize,
    window_bytes: usize,
    outbox_messages: usize,
    outbox_bytes: usize,
}

/// Batches with their total size in bytes.
#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Bytes>,
    bytes: usize,
}

/// The role of this end of a link. The host with the lower name dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Sends its hello first.
    Dialled,
    /// Answers the hello.
    Accepted,
}

/// The reason why a link must be closed: the other host broke the rules of the link.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("a frame that is not understood: {0}")]
    Frame(#[from] FrameError),
    #[error("a frame of kind {0} where a hello was due")]
    NoHello(&'static str),
    #[error("a second hello")]
    SecondHello,
    #[error(
        "it speaks the protocol versions {oldest} to {newest}, this program {OLDEST_PROTOCOL} to {PROTOCOL}: \
         bring the older of the two daemons up to date"
    )]
    Protocol { newest: u16, oldest: u16 },
    #[error("its hello is meant for host {0}: check the addresses of the hosts")]
    NotForUs(HostName),
    #[error("it says that it is host {0}: check the addresses of the hosts")]
    AnotherHost(HostName),
    #[error("its hello is of an earlier incarnation ({}) than the present incarnation ({})", .said.start, .met.start)]
    EarlierLife { said: Incarnation, met: Incarnation },
    #[error("a gap: number {got} came where {expected} was due")]
    Gap { expected: u64, got: u64 },
    #[error("it acknowledges number {ack}; {acked} to {last} could be")]
    FalseAck { ack: u64, acked: u64, last: u64 },
    #[error("both sides start over: it remembers an earlier conversation with this incarnation")]
    StartOver,
}

/// The handling of an arrived batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Pass it on, then call [`Session::took`].
    Fresh,
    /// A duplicate.
    Double,
}

impl Session {
    pub(super) fn new(mine: Incarnation, limits: &Limits) -> Self {
        let limits = QueueLimits {
            window_messages: limits.window_messages,
            window_bytes: limits.window_bytes,
            outbox_messages: limits.outbox_messages,
            outbox_bytes: limits.outbox_bytes,
        };
        Self {
            mine,
            limits,
            stream: new_stream(),
            theirs: None,
            acked: 0,
            window: Queue::default(),
            sent: 0,
            outbox: Queue::default(),
            owes_resync: false,
            received: 0,
            owes_ack: false,
            counters: Counters::default(),
        }
    }

    /// Queues a batch to be sent; returns false if it was dropped with all waiting batches.
    pub(super) fn push(&mut self, batch: Bytes) -> bool {
        let fits = self.outbox.fits(&batch, self.limits.outbox_messages, self.limits.outbox_bytes);
        if self.owes_resync || !fits {
            self.owes_resync = true;
            self.counters.dropped += 1 + self.outbox.clear();
            return false;
        }
        self.outbox.push(batch);
        true
    }

    /// The hello for a new link.
    pub(super) fn hello(&self, me: &HostName, to: &HostName) -> LinkHello {
        LinkHello {
            newest: PROTOCOL,
            oldest: OLDEST_PROTOCOL,
            from: me.clone(),
            to: to.clone(),
            session: self.mine,
            stream: self.stream,
            received: self.theirs.map(|(session, stream)| StreamPosition { session, stream, number: self.received }),
        }
    }

    /// Handles the other host's hello and prepares a new link: batches that it has received are dropped, the rest will
    /// be sent again. The caller has checked the names with [`check_hello`].
    pub(super) fn greet(&mut self, hello: &LinkHello, end: End) -> Result<(), Fault> {
        let known = match hello.received {
            Some(received) if (received.session, received.stream) == (self.mine, self.stream) => received.number,
            Some(_) | None => 0,
        };
        match self.theirs {
            None if known == 0 => {}
            None => return Err(self.false_ack(known)),
            Some((met, _)) if met == hello.session => {
                if known == 0 && self.acked > 0 {
                    self.start_over();
                    self.owes_resync = true;
                } else if known < self.acked {
                    return Err(self.false_ack(known));
                }
                self.acknowledge(known)?;
            }
            Some((met, _)) => {
                self.is_later(hello.session, met)?;
                self.start_over();
                self.owes_resync = false;
                // The dialler's hello has already named its stream. A new incarnation can't know the name, so the
                // stream goes on. If the peer knows the name from an earlier contact, the dialler must start over.
                match end {
                    End::Accepted => self.stream = new_stream(),
                    End::Dialled if known == 0 => {}
                    End::Dialled => {
                        self.stream = new_stream();
                        return Err(Fault::StartOver);
                    }
                }
            }
        }
        let theirs = Some((hello.session, hello.stream));
        if self.theirs != theirs {
            self.theirs = theirs;
            self.received = 0;
        }
        self.sent = 0;
        self.owes_ack = false;
        Ok(())
    }

    /// Checks that this hello comes from the known incarnation or from a later one.
    pub(super) fn is_current(&self, hello: &LinkHello) -> Result<(), Fault> {
        self.theirs.map_or(Ok(()), |(met, _)| self.is_later(hello.session, met))
    }

    /// Frees the state for a host that is not in the roster any more. If it returns, both start over.
    pub(super) fn forget(&mut self) {
        self.start_over();
        self.owes_resync = false;
        self.stream = new_stream();
        self.theirs = None;
        self.received = 0;
        self.owes_ack = false;
    }

    /// The next batch that may be sent, with its number. Batches of an earlier link come first.
    pub(super) fn next_data(&mut self) -> Option<(u64, Bytes)> {
        let again = self.sent < self.window.batches.len();
        if !again {
            let next = self.outbox.batches.front()?;
            if !self.window.fits(next, self.limits.window_messages, self.limits.window_bytes) {
                return None;
            }
            let next = self.outbox.pop()?;
            self.window.push(next);
        }
        let batch = self.window.batches.get(self.sent)?.clone();
        self.sent += 1;
        self.counters.sent += 1;
        self.counters.sent_bytes += batch.len() as u64;
        self.counters.resent += u64::from(again);
        Some((self.acked + self.sent as u64, batch))
    }

    /// The highest number received, to be sent with the next frame.
    pub(super) fn ack(&mut self) -> u64 {
        self.owes_ack = false;
        self.received
    }

    /// Whether the other host does not know yet how far this side has received.
    pub(super) fn owes_ack(&self) -> bool {
        self.owes_ack
    }

    /// Handles an acknowledgement; returns whether it was new.
    pub(super) fn acknowledge(&mut self, ack: u64) -> Result<bool, Fault> {
        if ack > self.last() {
            return Err(self.false_ack(ack));
        }
        let new = self.acked < ack;
        while self.acked < ack {
            self.window.pop();
            self.acked += 1;
            self.sent = self.sent.saturating_sub(1);
        }
        Ok(new)
    }

    /// Checks the number of an arrived batch.
    pub(super) fn judge(&mut self, number: u64) -> Result<Verdict, Fault> {
        match number.cmp(&(self.received + 1)) {
            Ordering::Equal => Ok(Verdict::Fresh),
            Ordering::Less => {
                self.counters.doubles += 1;
                self.owes_ack = true;
                Ok(Verdict::Double)
            }
            Ordering::Greater => Err(Fault::Gap { expected: self.received + 1, got: number }),
        }
    }

    /// Records that the batch judged fresh was passed on.
    pub(super) fn took(&mut self, len: usize) {
        self.received += 1;
        self.owes_ack = true;
        self.counters.received += 1;
        self.counters.received_bytes += len as u64;
    }

    /// Whether it is time to ask the engine for its open messages.
    pub(super) fn resync_due(&self) -> bool {
        self.owes_resync && self.is_settled()
    }

    /// Records that the engine was asked.
    pub(super) fn resync_said(&mut self) {
        self.owes_resync = false;
    }

    /// Whether no batch waits, and all sent batches are acknowledged.
    pub(super) fn is_settled(&self) -> bool {
        self.window.batches.is_empty() && self.outbox.batches.is_empty()
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// The highest assigned number.
    fn last(&self) -> u64 {
        self.acked + self.window.batches.len() as u64
    }

    /// Drops all queued batches; the numbers start again.
    fn start_over(&mut self) {
        self.counters.dropped += self.window.clear() + self.outbox.clear();
        self.acked = 0;
        self.sent = 0;
    }

    fn is_later(&self, said: Incarnation, met: Incarnation) -> Result<(), Fault> {
        match said.compare(met) {
            Some(Ordering::Less) => Err(Fault::EarlierLife { said, met }),
            Some(Ordering::Equal | Ordering::Greater) | None => Ok(()),
        }
    }

    fn false_ack(&self, ack: u64) -> Fault {
        Fault::FalseAck { ack, acked: self.acked, last: self.last() }
    }
}

/// Checks the version, sender and receiver of a hello.
pub(super) fn check_hello(hello: &LinkHello, me: &HostName, host: &HostName) -> Result<(), Fault> {
    if hello.oldest > PROTOCOL || hello.newest < OLDEST_PROTOCOL {
        return Err(Fault::Protocol { newest: hello.newest, oldest: hello.oldest });
    }
    if hello.to != *me {
        return Err(Fault::NotForUs(hello.to.clone()));
    }
    if hello.from != *host {
        return Err(Fault::AnotherHost(hello.from.clone()));
    }
    Ok(())
}

/// Reads a frame that must be a hello.
pub(super) fn read_hello(bytes: &[u8]) -> Result<LinkHello, Fault> {
    match Frame::decode(bytes)? {
        Frame::Hello(hello) => Ok(hello),
        other @ (Frame::Data { .. } | Frame::Ack { .. } | Frame::Beat { .. } | Frame::Bye) => {
            Err(Fault::NoHello(other.name()))
        }
    }
}

impl Queue {
    /// Whether the queue has space for this batch. An empty queue accepts a batch of any size.
    fn fits(&self, batch: &Bytes, messages: usize, bytes: usize) -> bool {
        self.batches.is_empty() || (self.batches.len() < messages && self.bytes + batch.len() <= bytes)
    }

    fn push(&mut self, batch: Bytes) {
        self.bytes += batch.len();
        self.batches.push_back(batch);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.len();
        Some(batch)
    }

    /// Drops all batches and returns their number.
    fn clear(&mut self) -> u64 {
        let dropped = self.batches.len() as u64;
        *self = Self::default();
        dropped
    }
}

/// A stream name that is unique in this incarnation: every `RandomState` differs from the last.
fn new_stream() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
#[path = "session_test.rs"]
mod tests;
