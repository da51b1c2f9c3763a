//! A watch in etcd: a stream of JSON messages, a message a line. If it breaks, it is continued at another member, from
//! the revision after the last change that was told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::time::Instant;

use super::body;
use super::http::{Failed, Members, Stream};
use super::messages::{self, Streamed, WatchReply};
use crate::Watch;
use crate::entry::{Change, Prefix, Revision};
use crate::error::StoreError;

/// The longest message. etcd cuts messages at two megabytes, which base64 and JSON make longer.
const MAX_MESSAGE: usize = 16 << 20;
/// A stream without a message for this long is checked: its member may have stopped.
const IDLE: Duration = Duration::from_secs(3);
/// How long a broken watch tries to continue before it reports the fault.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// A watch of a store in etcd.
#[derive(Debug)]
pub struct EtcdWatch {
    members: Arc<Members>,
    prefix: Prefix,
    /// The revision from which a new stream has to tell.
    from: Revision,
    stream: Option<Stream>,
    /// The bytes of the stream that are not a whole message yet.
    bytes: BytesMut,
    /// Changes that are whole.
    ready: VecDeque<Change>,
    /// A change of which further events may follow in the next message.
    partial: Option<Change>,
}

impl EtcdWatch {
    pub(super) async fn begin(members: Arc<Members>, prefix: Prefix, from: Revision) -> Result<Self, StoreError> {
        let mut watch =
            Self { members, prefix, from, stream: None, bytes: BytesMut::new(), ready: VecDeque::new(), partial: None };
        watch.connect().await.map_err(super::not_done)?;
        Ok(watch)
    }

    async fn connect(&mut self) -> Result<(), Failed> {
        let request = body(&messages::watch(&self.prefix, self.from));
        self.stream = Some(self.members.stream("/v3/watch", request).await?);
        Ok(())
    }

    /// Drops the stream, with all that it has not told whole.
    fn disconnect(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.members.avoid(stream.member);
        }
        self.bytes.clear();
        self.partial = None;
    }

    /// Reads on. An error names why the stream has ended.
    async fn read(&mut self) -> Result<(), Ended> {
        let Some(stream) = &mut self.stream else {
            return self.connect().await.map_err(|failed| Ended::Broken(super::not_done(failed).to_string()));
        };
        let frame = match tokio::time::timeout(IDLE, stream.body.frame()).await {
            Ok(frame) => frame,
            Err(_) => {
                let member = stream.member;
                // Any answer will do.
                let question = body(&json!({"key": "AA==", "serializable": true}));
                let asked = self.members.ask(member, "/v3/kv/range", question).await;
                return asked.map_err(|_| Ended::Broken("the member has stopped".to_owned()));
            }
        };
        let frame = frame.ok_or_else(|| Ended::Broken("the stream has ended".to_owned()))?;
        let frame = frame.map_err(|error| Ended::Broken(error.to_string()))?;
        self.bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
        while let Some(length) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let message = self.bytes.split_to(length + 1);
            self.take(&message)?;
        }
        if self.bytes.len() > MAX_MESSAGE {
            return Err(Ended::Broken(format!("a message of more than {MAX_MESSAGE} bytes")));
        }
        Ok(())
    }

    fn take(&mut self, message: &[u8]) -> Result<(), Ended> {
        let message: Streamed<WatchReply> =
            serde_json::from_slice(message).map_err(|error| Ended::Broken(error.to_string()))?;
        let Some(reply) = message.result else {
            return Err(Ended::Broken(message.error.unwrap_or_default().message));
        };
        if reply.compact_revision.0 > 0 {
            return Err(Ended::Compacted(Revision(reply.compact_revision.0)));
        }
        if reply.canceled {
            return Err(Ended::Broken(reply.cancel_reason));
        }
        for event in reply.events {
            let revision = Revision(event.kv.mod_revision.0);
            let event = event.event().map_err(Ended::Broken)?;
            // What another stream has told already is not told again.
            if revision < self.from {
                continue;
            }
            match &mut self.partial {
                Some(partial) if partial.revision == revision => partial.events.push(event),
                partial => {
                    let whole = partial.replace(Change { revision, events: vec![event] });
                    self.ready.extend(whole);
                }
            }
        }
        if !reply.fragment {
            self.ready.extend(self.partial.take());
        }
        if let Some(last) = self.ready.back() {
            self.from = last.revision.next();
        }
        Ok(())
    }
}

/// Why a stream does not go on.
enum Ended {
    Broken(String),
    Compacted(Revision),
}

impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        let mut broken = None;
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            match self.read().await {
                Ok(()) if self.stream.is_some() => broken = None,
                Ok(()) => {}
                Err(Ended::Compacted(oldest)) => {
                    self.disconnect();
                    return Err(StoreError::Compacted { asked: self.from, oldest });
                }
                Err(Ended::Broken(because)) => {
                    self.disconnect();
                    let since = *broken.get_or_insert_with(Instant::now);
                    if since.elapsed() > PATIENCE {
                        return Err(StoreError::Unavailable { because });
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
