//! Answers as streams of events (`text/event-stream`).

use std::time::Duration;

use cob_types::api::Change;
use cob_types::command_run::RunEvent;
use cob_types::status::HostStatus;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;

use super::{AskError, Line, MAX_ANSWER, parse};
use crate::targets::Endpoint;
use crate::words::span;

/// The longest silence: during a silent command the daemon sends a comment every 5 s.
const SILENCE: Duration = Duration::from_secs(30);

/// The events of an answer.
#[derive(Debug)]
pub(super) struct Events {
    at: Endpoint,
    body: Incoming,
    /// The bytes of an incomplete event.
    read: Vec<u8>,
    /// How many bytes of `read` were already searched for the end of the event.
    searched: usize,
    _line: Line,
}

impl Events {
    pub(super) fn of(at: &Endpoint, response: Response<Incoming>, line: Line) -> Self {
        Self { at: at.clone(), body: response.into_body(), read: Vec::new(), searched: 0, _line: line }
    }

    /// Waits for the next event: its data (HTML, 9.2.6), in a single line as daemons write it, or a comment without data.
    /// Absent: the daemon has closed the connection.
    async fn next(&mut self) -> Result<Option<Option<Vec<u8>>>, AskError> {
        loop {
            let unsearched = self.read.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..self.searched + end + 2).collect();
                self.searched = 0;
                let data = event.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"data:"));
                return Ok(Some(data.map(<[u8]>::to_vec)));
            }
            self.searched = self.read.len().saturating_sub(1);
            match self.body.frame().await {
                Some(Ok(frame)) => self.read.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) | None => return Ok(None),
            }
            if self.read.len() > MAX_ANSWER {
                return Err(AskError::TooLong { endpoint: self.at.clone() });
            }
        }
    }
}

/// The stream of changes of a daemon.
#[derive(Debug)]
pub struct Changes(pub(super) Events);

impl Changes {
    /// Waits for the next sign of life: a change, with the status if the daemon sends it, or a comment. Absent: the daemon has
    /// closed the connection.
    ///
    /// # Errors
    /// [`AskError`], if an event is malformed or too long.
    pub async fn next(&mut self) -> Result<Option<Option<HostStatus>>, AskError> {
        let Some(data) = self.0.next().await? else { return Ok(None) };
        Ok(Some(data.map(|data| parse::<Change>(&self.0.at, &data)).transpose()?.and_then(|change| change.status)))
    }
}

/// A command that runs on a host. Dropping it closes the connection, and with that the host ends the command.
#[derive(Debug)]
pub struct RunEvents(pub(super) Events);

impl RunEvents {
    /// Waits for the next event. Absent: the connection was closed.
    ///
    /// # Errors
    /// [`AskError`], if the host is silent for too long or an event is malformed.
    pub async fn next(&mut self) -> Result<Option<RunEvent>, AskError> {
        loop {
            let Ok(event) = tokio::time::timeout(SILENCE, self.0.next()).await else {
                let after = span(u64::try_from(SILENCE.as_nanos()).unwrap_or(u64::MAX));
                return Err(AskError::Late { endpoint: self.0.at.clone(), after });
            };
            match event? {
                Some(Some(data)) => return parse(&self.0.at, &data).map(Some),
                Some(None) => {}
                None => return Ok(None),
            }
        }
    }
}
