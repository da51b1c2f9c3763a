//! A link that is up: moves a session's frames over a wire until either ends.
//!
//! Started by `keeper` after both hellos. One turn: send what the window allows and the
//! acknowledgement that is due, then wait for a frame, for room at the daemon's, for a wish of ours or
//! for the clock. Dropping the task cuts the link.
//!
//! Rules: nothing is read while a batch waits for room at the daemon's, so a slow daemon holds back its
//! peers and its memory stays flat; a batch counts as received when the daemon has it; a peer that
//! says nothing for four heartbeats is gone.

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

/// A peer is gone when it has been silent for so many heartbeats.
const SILENT_BEATS: u32 = 4;
/// The shortest interval that a peer may ask us to beat at.
const SHORTEST_BEAT: Duration = Duration::from_millis(20);
/// Frames taken before it is somebody else's turn.
const FRAMES_A_TURN: usize = 64;
/// With more than this waiting for a peer that does not read, neither acknowledgements nor heartbeats
/// are added to it.
const MAX_BACKLOG: u64 = 64 << 10;

/// One link, from the hellos to its end.
pub(super) struct Link {
    pub(super) peer: Arc<Peer>,
    pub(super) number: u64,
    /// The key that the other side has proved to hold; none: in clear.
    pub(super) key: Option<PublicKey>,
    pub(super) incarnation: Incarnation,
    pub(super) wire: Wire,
    pub(super) events: mpsc::Sender<LinkEvent>,
    pub(super) limits: Limits,
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnd {
    #[error(transparent)]
    Wire(#[from] WireEnd),
    #[error("the other side broke the rules of the link: {0}")]
    Fault(#[from] Fault),
    #[error("the other side said nothing for {} s", .0.as_secs_f32())]
    Silent(Duration),
    #[error("the other side shut down")]
    Bye,
    #[error("this daemon shuts down")]
    Left,
    #[error("a newer link of the same host takes its place")]
    Replaced,
    #[error("the host is not in the roster any more")]
    Dismissed,
    #[error("the key {0}, by which it had proved who it is, is no longer that host's: it was revoked or replaced")]
    KeyGone(PublicKey),
    #[error("connections are protected otherwise from now on")]
    OtherProtection,
    #[error("a frame could not be made: {0}")]
    Encode(#[from] CodecError),
    #[error("a defect of the program: {0}")]
    Panic(#[from] tokio::task::JoinError),
}

impl LinkEnd {
    /// Under what it is counted, if the other side is to blame.
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

    /// Whether somebody wanted it so.
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

/// What the daemon has to be told as soon as it has room.
enum Waiting {
    Up,
    Batch(Bytes),
    Resync,
}

/// The heartbeats of both sides.
struct Pulse {
    heard: Instant,
    spoke: Instant,
    /// How often the other side wants signs of life.
    theirs: Duration,
    /// How often we have told it that we want them.
    told: Option<Duration>,
    /// Since when the present interval holds.
    since: Instant,
    interval: Duration,
    /// Since when the other side has been silent for too long. It gets a little more time: perhaps it was
    /// us who were stopped, and what it said has yet to be read.
    doubted: Option<Instant>,
    /// Since when something is unacknowledged and no acknowledgement has come.
    unsettled: Option<Instant>,
}

impl Link {
    /// Runs the link to its end.
    pub(super) async fn run(mut self) -> LinkEnd {
        let mut waiting = Some(Waiting::Up);
        let mut pulse = Pulse::new(self.limits.heartbeat_idle);
        // The hellos may have settled all.
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
                    // Nobody is there any more to be told: as in a shutdown.
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

    /// Sends the batches that the window allows, and the acknowledgement that went with none of them.
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

    /// Takes a frame that arrived; returns what the daemon has no room for.
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

    /// Says that we are alive, when that is due, and looks whether the other side is. Returns when to
    /// look again.
    async fn beat(&mut self, pulse: &mut Pulse, not_reading: bool) -> Result<Instant, LinkEnd> {
        let now = Instant::now();
        let (busy, settled) = {
            let state = self.peer.lock();
            (state.busy, state.session.is_settled())
        };
        let ours = pulse.wanted(busy, settled, now, &self.limits);
        // Who does not read does not learn how often the other side wants to hear of it.
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

    /// What waited for the daemon goes nowhere: it stops, and all is said again in its next life.
    fn discard(&self, waiting: &mut Option<Waiting>) {
        if let Some(Waiting::Batch(batch)) = waiting.take() {
            self.peer.lock().session.took(batch.len());
        }
    }

    /// Says goodbye.
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

/// Tells the daemon, and notes in the same breath that it knows.
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

    /// How often we want signs of life: fast while the daemon says so or an acknowledgement is overdue.
    /// Both sides go by the shorter of their wishes.
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
