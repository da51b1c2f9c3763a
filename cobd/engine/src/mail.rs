//! Messages between change objects, with interned names.

use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::{GenerationNumber, Number, Rank, StateName};

use crate::names::{CobRef, StateId};
use crate::spec::Set;

/// A message with sender and receiver.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    pub(crate) from: CobRef,
    pub(crate) to: CobRef,
    pub(crate) msg: Msg,
}

impl Mail {
    /// The request that it is.
    pub(crate) fn request(&self) -> Option<&Asked> {
        if let Msg::Request(asked) = &self.msg { Some(asked) } else { None }
    }

    /// The number of the request that it is.
    pub(crate) fn number(&self) -> Option<Number> {
        self.request().map(|asked| asked.number)
    }
}

/// A message between two change objects.
#[derive(Debug, Clone)]
pub(crate) enum Msg {
    Request(Asked),
    Release(Number),
    Released(Number),
    Grant(Granted),
    Recall(Number),
    Query(Number),
    Invalidated(Number),
    Refused { number: Number, refusal: Refusal },
    Probe(Probed),
}

/// A grantor's refusal of a request.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) reason: Box<str>,
    /// The state from which no route leads to a requested state, if that is the reason.
    pub(crate) from: Option<StateName>,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) number: Number,
    pub(crate) rev: u64,
    pub(crate) set: Set,
    pub(crate) rank: Rank,
    pub(crate) origin: CobRef,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) failed: bool,
}

/// A grant.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) number: Number,
    /// The revision that the grantor knew.
    pub(crate) rev: u64,
    pub(crate) state: StateId,
    pub(crate) values: Arc<Values>,
}

/// A probe.
#[derive(Debug, Clone)]
pub(crate) struct Probed {
    pub(crate) initiator: CobRef,
    pub(crate) number: Number,
    pub(crate) generation: GenerationNumber,
    pub(crate) path: Vec<CobRef>,
    pub(crate) more: bool,
    pub(crate) wide: bool,
}
