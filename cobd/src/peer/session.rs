//! A session: what one host still owes another, and how far both have come.
//!
//! Numbers what is sent, keeps it until it is acknowledged, drops doubles, and outlives the links that
//! carry it: after a cut both sides say where they left off, and the rest is sent again. A batch waits
//! in the outbox until the window has room, and in the window until it is acknowledged. No input or
//! output, no clock; `link` moves the frames.
//!
//! Rules: both queues are bounded in messages and in bytes. When the outbox is full, all of it is
//! dropped, further batches too, and once everything else has arrived the engine is asked to say
//! again what is unsettled. A peer that began another life gets nothing that was meant for its last.
//! One that has lost what it knew of us, and one of which we have lost it, start over.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use bytes::Bytes;
use cob_types::link::{Frame, FrameError, Hello, OLDEST_PROTOCOL, Received};
use cob_types::message::PROTOCOL;
use cob_types::{HostName, Incarnation};

use super::config::Limits;
use super::event::Counters;

/// Both directions between this life of this daemon and another host.
#[derive(Debug)]
pub(super) struct Session {
    mine: Incarnation,
    limits: QueueLimits,
    /// What we call the stream that our numbers count.
    stream: u64,
    /// The life and stream of the other host that `received` counts; none before the first contact.
    theirs: Option<(Incarnation, u64)>,
    /// The highest number that the other host has acknowledged.
    acked: u64,
    /// Sent and not acknowledged: the numbers from `acked + 1`.
    window: Queue,
    /// How many of the window have been sent on the present link.
    sent: usize,
    /// Not yet sent, without a number.
    outbox: Queue,
    /// Something was dropped: the engine has to say again what is unsettled.
    owes_resync: bool,
    /// The highest number received.
    received: u64,
    /// The other host has not been told so.
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

/// Batches, and how many bytes they are.
#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Bytes>,
    bytes: usize,
}

/// Which end of a link this is. The host with the lower name dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Says its hello first.
    Dialled,
    /// Answers it.
    Accepted,
}

/// Why a link must be cut: the other host broke the rules of the link.
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
    #[error("its hello is of an earlier life ({}) than the one already met ({})", .said.start, .met.start)]
    EarlierLife { said: Incarnation, met: Incarnation },
    #[error("a gap: number {got} came where {expected} was due")]
    Gap { expected: u64, got: u64 },
    #[error("it acknowledges number {ack}; {acked} to {last} could be")]
    FalseAck { ack: u64, acked: u64, last: u64 },
    #[error("both sides start over: it knows of an earlier conversation with this life of ours")]
    StartOver,
}

/// What to do with a batch that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Hand it on, then say so with [`Session::took`].
    Fresh,
    /// It came before.
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

    /// Takes a batch to be sent; false when it was dropped, and what waited with it.
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

    /// What to say first on a new link.
    pub(super) fn hello(&self, me: &HostName, to: &HostName) -> Hello {
        Hello {
            newest: PROTOCOL,
            oldest: OLDEST_PROTOCOL,
            from: me.clone(),
            to: to.clone(),
            session: self.mine,
            stream: self.stream,
            received: self.theirs.map(|(session, stream)| Received { session, stream, number: self.received }),
        }
    }

    /// Takes the other host's hello and makes ready for a new link: what it has is dropped, the rest
    /// will be sent again. The caller has checked with [`check_hello`] who says it to whom.
    pub(super) fn greet(&mut self, hello: &Hello, end: End) -> Result<(), Fault> {
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
                // What we call the stream is already said at the dialling end. A life that was never
                // met can't know of it; one that was met before another came between must be told anew.
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

    /// Whether this hello would be taken as one of the life already met, or of a later one.
    pub(super) fn is_current(&self, hello: &Hello) -> Result<(), Fault> {
        self.theirs.map_or(Ok(()), |(met, _)| self.is_later(hello.session, met))
    }

    /// Frees what is kept for a host that has left the roster. Should it return, both start over.
    pub(super) fn forget(&mut self) {
        self.start_over();
        self.owes_resync = false;
        self.stream = new_stream();
        self.theirs = None;
        self.received = 0;
        self.owes_ack = false;
    }

    /// The next batch that may be sent, with its number. What was sent on an earlier link comes first.
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

    /// Whether the other host has still to be told what was received.
    pub(super) fn owes_ack(&self) -> bool {
        self.owes_ack
    }

    /// Takes an acknowledgement; says whether it told anything new.
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

    /// Judges the number of a batch that arrived.
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

    /// The batch that was judged fresh is handed on.
    pub(super) fn took(&mut self, len: usize) {
        self.received += 1;
        self.owes_ack = true;
        self.counters.received += 1;
        self.counters.received_bytes += len as u64;
    }

    /// Whether the engine has to be asked now to say again what is unsettled.
    pub(super) fn resync_due(&self) -> bool {
        self.owes_resync && self.is_settled()
    }

    /// The engine was asked.
    pub(super) fn resync_said(&mut self) {
        self.owes_resync = false;
    }

    /// Nothing waits, and everything sent was acknowledged.
    pub(super) fn is_settled(&self) -> bool {
        self.window.batches.is_empty() && self.outbox.batches.is_empty()
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// The highest number given out.
    fn last(&self) -> u64 {
        self.acked + self.window.batches.len() as u64
    }

    /// Forgets everything that was to be sent; the numbers begin again.
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

/// Checks who says a hello to whom, in which version.
pub(super) fn check_hello(hello: &Hello, me: &HostName, host: &HostName) -> Result<(), Fault> {
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
pub(super) fn read_hello(bytes: &[u8]) -> Result<Hello, Fault> {
    match Frame::decode(bytes)? {
        Frame::Hello(hello) => Ok(hello),
        other @ (Frame::Data { .. } | Frame::Ack { .. } | Frame::Beat { .. } | Frame::Bye) => {
            Err(Fault::NoHello(other.name()))
        }
    }
}

impl Queue {
    /// Whether this batch may come in too. One batch always may, however long.
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

    /// Drops all, and says how many that were.
    fn clear(&mut self) -> u64 {
        let dropped = self.batches.len() as u64;
        *self = Self::default();
        dropped
    }
}

/// A name for a stream that no other of this life has: every `RandomState` differs from the last.
fn new_stream() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
#[path = "session_test.rs"]
mod tests;
