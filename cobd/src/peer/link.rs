//! A link that is up: moves a session's frames over a wire until either ends.
//!
//! `keeper` starts it after both hellos. Each iteration sends the batches that the window allows and any due
//! acknowledgement, then waits for a frame, for space in the daemon's queue, for a wake-up by the session, or for the
//! clock. Dropping the task closes the link.
//!
//! Rules: nothing is read while a batch waits for space in the daemon's queue, so a slow daemon slows down its peers
//! and its memory stays constant; a batch counts as received when the daemon has it; a peer that is silent for four
//! heartbeats is lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cob_types::codec::CodecError;
use cob_types::link::Frame;
use cob_types::{HostName, Incarnation, PublicKey};
use tokio::sync::mpsc::{self, Permit, error::TrySendError};
use tokio::time::{Instant, sleep_until, timeout};

use super::config::Limits;
use super::event::LinkEvent;
use super::peer_state::Peer;
use super::refusals::{self, Reason};
use super::relay::RelayEnd;
use super::session::{Fault, Verdict};
use super::wire::{Wire, WireEnd};

/// A peer is lost after this many silent heartbeats.
const SILENT_BEATS: u32 = 4;
/// The shortest heartbeat interval that a peer may ask for.
const SHORTEST_BEAT: Duration = Duration::from_millis(20);
/// Frames taken before other tasks get a turn.
const FRAMES_A_TURN: usize = 64;
/// If more bytes than this wait for a peer that does not read, no acknowledgements or heartbeats are added.
const MAX_BACKLOG: u64 = 64 << 10;

/// A link, from the hellos to its end.
pub(super) struct Link {
    pub(super) peer: Arc<Peer>,
    pub(super) number: u64,
    /// The key that the other side has proved; `None`: in clear.
    pub(super) key: Option<PublicKey>,
    pub(super) incarnation: Incarnation,
    pub(super) wire: Wire,
    pub(super) events: mpsc::Sender<LinkEvent>,
    pub(super) limits: Limits,
}

/// The reason why a link ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnd {
    #[error(transparent)]
    Wire(#[from] WireEnd),
    #[error("the other side broke the rules of the link: {0}")]
    Fault(#[from] Fault),
    #[error("the other side was silent for {} s", .0.as_secs_f32())]
    Silent(Duration),
    #[error("the other side shut down")]
    Bye,
    #[error("this daemon shuts down")]
    Left,
    #[error("a newer link of the same host takes its place")]
    Replaced,
    #[error("the host is not in the roster any more")]
    Dismissed,
    #[error("the key {0} of this connection is no longer a key of that host: it was revoked or replaced")]
    KeyGone(PublicKey),
    #[error("connections are protected otherwise from now on")]
    OtherProtection,
    #[error("a frame could not be made: {0}")]
    Encode(#[from] CodecError),
    #[error("a defect of the program: {0}")]
    Panic(#[from] tokio::task::JoinError),
}

impl LinkEnd {
    /// The counter for this end, if the other side is at fault.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self {
            LinkEnd::Fault(_) | LinkEnd::Wire(WireEnd::Relay(RelayEnd::Refused(_))) => Some(Reason::Broken),
            LinkEnd::Wire(WireEnd::Relay(RelayEnd::Failed(error))) => refusals::of_handshake(error),
            LinkEnd::Wire(_)
            | LinkEnd::Silent(_)
            | LinkEnd::Bye
            | LinkEnd::Left
            | LinkEnd::Replaced
            | LinkEnd::Dismissed
            | LinkEnd::KeyGone(_)
            | LinkEnd::OtherProtection
            | LinkEnd::Encode(_)
            | LinkEnd::Panic(_) => None,
        }
    }

    /// Whether the link ended on purpose.
    pub(super) fn is_planned(&self) -> bool {
        match self {
            LinkEnd::Bye | LinkEnd::Left | LinkEnd::Dismissed | LinkEnd::KeyGone(_) | LinkEnd::OtherProtection => true,
            LinkEnd::Wire(_)
            | LinkEnd::Fault(_)
            | LinkEnd::Silent(_)
            | LinkEnd::Replaced
            | LinkEnd::Encode(_)
            | LinkEnd::Panic(_) => false,
        }
    }
}

/// An event that waits for space in the daemon's queue.
enum Waiting {
    Up,
    Batch(Bytes),
    Resync,
}

/// The heartbeats of both sides.
struct Pulse {
    heard: Instant,
    spoke: Instant,
    /// The interval of heartbeats that the other side asks for.
    theirs: Duration,
    /// The interval of heartbeats that we have last asked for.
    told: Option<Duration>,
    /// The start of the present interval.
    since: Instant,
    interval: Duration,
    /// The time at which the other side's silence became too long. It gets a little more time: perhaps this process was
    /// stopped, and the other side's frames are still unread.
    doubted: Option<Instant>,
    /// Since when batches are unacknowledged without a new acknowledgement.
    unsettled: Option<Instant>,
}

impl Link {
    /// Runs the link to its end.
    pub(super) async fn run(mut self) -> LinkEnd {
        let mut waiting = Some(Waiting::Up);
        let mut pulse = Pulse::new(self.limits.heartbeat_idle);
        // The hellos may have acknowledged all batches.
        self.peer.settled.notify_one();
        loop {
            match self.turn(&mut waiting, &mut pulse).await {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
    }

    async fn turn(&mut self, waiting: &mut Option<Waiting>, pulse: &mut Pulse) -> Result<(), LinkEnd> {
        self.send_due(pulse).await?;
        let (leaving, resync_due, stopping) = {
            let state = self.peer.lock();
            (state.leaving, state.session.resync_due(), state.stopping)
        };
        if leaving {
            return Err(self.leave().await);
        }
        if stopping {
            self.discard(waiting);
        } else if waiting.is_none() && resync_due {
            *waiting = Some(Waiting::Resync);
        }
        let alarm = self.beat(pulse, waiting.is_some()).await?;
        let reads = waiting.is_none();
        let clogged = self.wire.backlog() > MAX_BACKLOG;
        let outflow = self.wire.outflow();
        tokio::select! {
            permit = self.events.reserve(), if !reads => {
                match (waiting.take(), permit) {
                    (Some(what), Ok(permit)) => hand_on(&self.peer, self.number, self.incarnation, what, permit),
                    // The daemon's receiver is gone, as in a shutdown.
                    (what, _) => *waiting = what,
                }
                if self.events.is_closed() {
                    self.discard(waiting);
                }
                pulse.heard = Instant::now();
            }
            frame = self.wire.next_if(reads) => {
                let mut next = Some(frame?);
                pulse.heard = Instant::now();
                self.peer.lock().hears();
                let mut taken = 0;
                while let Some(frame) = next {
                    *waiting = self.take(&frame, pulse)?;
                    taken += 1;
                    let more = waiting.is_none() && taken < FRAMES_A_TURN;
                    next = if more { self.wire.ready() } else { None };
                }
                if taken == FRAMES_A_TURN {
                    tokio::task::yield_now().await;
                }
            }
            () = self.peer.wake.notified() => {}
            () = outflow.moved.notified(), if clogged => {}
            () = sleep_until(alarm) => {}
        }
        Ok(())
    }

    /// Sends the batches that the window allows, and an acknowledgement if no batch carried it.
    async fn send_due(&mut self, pulse: &mut Pulse) -> Result<(), LinkEnd> {
        loop {
            let next = {
                let session = &mut self.peer.lock().session;
                session.next_data().map(|(number, batch)| (number, session.ack(), batch))
            };
            let Some((number, ack, batch)) = next else { break };
            self.send(&Frame::Data { number, ack, payload: &batch }, pulse).await?;
        }
        if self.wire.backlog() <= MAX_BACKLOG {
            let ack = {
                let session = &mut self.peer.lock().session;
                session.owes_ack().then(|| session.ack())
            };
            if let Some(ack) = ack {
                self.send(&Frame::Ack { ack }, pulse).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, frame: &Frame<'_>, pulse: &mut Pulse) -> Result<(), LinkEnd> {
        self.wire.send(frame.encode()?).await?;
        pulse.spoke = Instant::now();
        Ok(())
    }

    /// Handles an arrived frame; returns an event for which the daemon's queue has no space.
    fn take(&self, bytes: &Bytes, pulse: &mut Pulse) -> Result<Option<Waiting>, LinkEnd> {
        match Frame::decode(bytes).map_err(Fault::from)? {
            Frame::Data { number, ack, payload } => {
                self.acknowledged(ack, pulse)?;
                if self.peer.lock().session.judge(number)? == Verdict::Double {
                    return Ok(None);
                }
                let batch = Waiting::Batch(bytes.slice_ref(payload));
                if self.peer.lock().stopping {
                    return Ok(Some(batch));
                }
                match self.events.try_reserve() {
                    Ok(permit) => hand_on(&self.peer, self.number, self.incarnation, batch, permit),
                    Err(TrySendError::Full(()) | TrySendError::Closed(())) => return Ok(Some(batch)),
                }
            }
            Frame::Ack { ack } => self.acknowledged(ack, pulse)?,
            Frame::Beat { ack, interval_ms } => {
                self.acknowledged(ack, pulse)?;
                pulse.theirs = Duration::from_millis(interval_ms.into()).max(SHORTEST_BEAT);
            }
            Frame::Hello(_) => return Err(Fault::SecondHello.into()),
            Frame::Bye => return Err(LinkEnd::Bye),
        }
        Ok(None)
    }

    fn acknowledged(&self, ack: u64, pulse: &mut Pulse) -> Result<(), Fault> {
        let session = &mut self.peer.lock().session;
        if session.acknowledge(ack)? {
            pulse.unsettled = None;
            if session.is_settled() {
                self.peer.settled.notify_one();
            }
        }
        Ok(())
    }

    /// Sends a heartbeat if it is due, and checks that the other side is alive. Returns the time of the next check.
    async fn beat(&mut self, pulse: &mut Pulse, not_reading: bool) -> Result<Instant, LinkEnd> {
        let now = Instant::now();
        let (busy, settled) = {
            let state = self.peer.lock();
            (state.busy, state.session.is_settled())
        };
        let ours = pulse.wanted(busy, settled, now, &self.limits);
        // While this side does not read, it does not receive the other side's wanted interval, so it assumes the busy
        // interval.
        let every = if not_reading { pulse.interval.min(self.limits.heartbeat_busy) } else { pulse.interval };
        let beat_at = pulse.spoke + every;
        if (pulse.told != Some(ours) || beat_at <= now) && self.wire.backlog() <= MAX_BACKLOG {
            let ack = self.peer.lock().session.ack();
            let interval_ms = u32::try_from(ours.as_millis()).unwrap_or(u32::MAX);
            self.send(&Frame::Beat { ack, interval_ms }, pulse).await?;
            pulse.told = Some(ours);
        }
        let limit = pulse.interval * SILENT_BEATS;
        let silent_at = pulse.heard.max(pulse.since) + limit;
        pulse.doubted = if silent_at <= now && !not_reading { pulse.doubted.or(Some(now)) } else { None };
        let lost_at = pulse.doubted.map(|since| since + pulse.interval / 4);
        if lost_at.is_some_and(|at| at <= now) {
            return Err(LinkEnd::Silent(limit));
        }
        let unsettled_at = pulse.unsettled.map(|since| since + self.limits.heartbeat_busy);
        let alarms = [Some(pulse.spoke + every), Some(silent_at), lost_at, unsettled_at];
        Ok(alarms.into_iter().flatten().filter(|&at| at > now).min().unwrap_or(now + every))
    }

    /// Drops a waiting event: the daemon stops, and its next incarnation receives everything again.
    fn discard(&self, waiting: &mut Option<Waiting>) {
        if let Some(Waiting::Batch(batch)) = waiting.take() {
            self.peer.lock().session.took(batch.len());
        }
    }

    /// Sends the goodbye.
    async fn leave(&mut self) -> LinkEnd {
        let bye = async {
            self.wire.send(Frame::Bye.encode()?).await?;
            self.wire.flush().await;
            Ok::<_, LinkEnd>(())
        };
        match timeout(self.limits.bye_time, bye).await {
            Ok(Err(end)) => end,
            Ok(Ok(())) | Err(_) => LinkEnd::Left,
        }
    }
}

/// Passes an event to the daemon and records it under the same lock.
fn hand_on(peer: &Peer, link: u64, incarnation: Incarnation, what: Waiting, permit: Permit<'_, LinkEvent>) {
    let mut state = peer.lock();
    let host: HostName = peer.host.clone();
    match what {
        Waiting::Up => {
            state.set_up(link);
            permit.send(LinkEvent::Up { host, link, incarnation });
        }
        Waiting::Batch(bytes) => {
            state.session.took(bytes.len());
            permit.send(LinkEvent::Received { host, bytes });
        }
        Waiting::Resync => {
            state.session.resync_said();
            permit.send(LinkEvent::Resync { host });
        }
    }
}

impl Pulse {
    fn new(idle: Duration) -> Self {
        let now = Instant::now();
        Self {
            heard: now,
            spoke: now,
            theirs: idle,
            told: None,
            since: now,
            interval: idle,
            doubted: None,
            unsettled: None,
        }
    }

    /// The heartbeat interval that this side wants: short while the daemon says so or an acknowledgement is overdue.
    /// Both sides use the shorter of the two wanted intervals.
    fn wanted(&mut self, busy: bool, settled: bool, now: Instant, limits: &Limits) -> Duration {
        self.unsettled = if settled { None } else { self.unsettled.or(Some(now)) };
        let overdue = self.unsettled.is_some_and(|since| now >= since + limits.heartbeat_busy);
        let ours = if busy || overdue { limits.heartbeat_busy } else { limits.heartbeat_idle };
        let interval = ours.min(self.theirs);
        if interval != self.interval {
            self.interval = interval;
            self.since = now;
        }
        ours
    }
}

#[cfg(test)]
#[path = "link_test.rs"]
mod tests;
