//! The kind back end `wait`: waits for a time before it is on.
//!
//! `content: {seconds: 2}` or `{ms: 200}`. The transition to the preferred state takes this time; other transitions
//! take none. The transition's own timeout does not apply, so that ten minutes in the content are ten minutes.

use std::time::Duration;

use cob_types::{CobId, Kind};
use serde::Deserialize;

use super::backend::{Backend, CheckOutcome, Context, Hop, Outcome, Tools, Work};
use super::content;
use super::gate::{self, Remembered};

/// The back end `wait`.
#[derive(Debug, Default)]
pub(super) struct Wait {
    remembered: Remembered,
}

/// The content of a `wait`: exactly one of the two fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    ms: Option<u64>,
    #[serde(default, deserialize_with = "some_duration")]
    seconds: Option<Duration>,
}

fn some_duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    content::duration(deserializer).map(Some)
}

fn time(text: &str) -> Result<Duration, String> {
    let content: Content = content::read(text)?;
    match (content.ms, content.seconds) {
        (Some(ms), None) if Duration::from_millis(ms) <= content::LONGEST => Ok(Duration::from_millis(ms)),
        (Some(ms), None) => Err(format!("content: {ms} ms are longer than a week")),
        (None, Some(seconds)) => Ok(seconds),
        (None, None) | (Some(_), Some(_)) => Err("content: name the time once, as `seconds` or as `ms`".to_owned()),
    }
}

impl Backend for Wait {
    fn name(&self) -> &'static str {
        "wait"
    }

    fn durable(&self) -> bool {
        false
    }

    fn accept(&self, _kind: &Kind) -> Result<(), String> {
        Ok(())
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        time(content).map(|_| ())
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let state = self.remembered.state(&context.cob.id, &context.kind);
        Work::known(CheckOutcome::found(state.unwrap_or_else(|| context.kind.pre_remove.clone())))
    }

    fn transition(&self, _tools: &Tools, context: &Context, hop: &Hop) -> Work<Outcome> {
        let pause = if gate::opens(&context.kind, hop) { time(&context.cob.content) } else { Ok(Duration::ZERO) };
        let (remembered, cob, to) = (self.remembered.clone(), context.cob.id.clone(), hop.to.clone());
        let future = async move {
            match pause {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(reason) => return Outcome::failed(reason),
            }
            remembered.set(cob, to);
            Outcome::done()
        };
        Work::Inside { future: Box::pin(future), timeout: None }
    }

    fn only_waits(&self, kind: &Kind, hop: &Hop) -> bool {
        gate::opens(kind, hop)
    }

    fn forget(&self, cob: &CobId) {
        self.remembered.forget(cob);
    }
}
