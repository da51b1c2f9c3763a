//! The topics of log lines about links, with their intervals.

use std::time::Duration;

use cob_types::HostName;
use cob_types::log::LineLimit;
use tokio::time::Instant;

use super::refusals::Reason;

/// The subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// A link came up.
    Up,
    /// A link went down.
    Down,
    /// A host can't be dialled.
    Dial,
    /// The setup of a connection failed.
    Setup,
    /// A connection was refused, for this reason.
    Refused(Reason),
    /// No connection can be accepted.
    Accept,
    /// A batch could not be sent.
    Send,
    /// A received batch can't be decoded.
    Batch,
    /// A received batch names another host than the host of its link.
    Name,
    /// Items of a newer protocol were skipped.
    Items,
    /// Received items speak for change objects of other hosts.
    ForeignItems,
    /// Received numbers are implausible.
    Numbers,
    /// A host sends too much.
    TooMuch,
    /// This host can't switch to an announced generation.
    Told,
    /// This host does not follow an announced rollback.
    Withdrawal,
    /// A generation gives this host another listening address.
    Moved,
    /// This host can't prove its identity.
    Identity,
}

impl Topic {
    fn interval(self) -> Duration {
        match self {
            Topic::Up | Topic::Down => Duration::from_secs(1),
            Topic::Dial
            | Topic::Setup
            | Topic::Refused(_)
            | Topic::Accept
            | Topic::Send
            | Topic::Batch
            | Topic::Name
            | Topic::Items
            | Topic::ForeignItems
            | Topic::Numbers
            | Topic::TooMuch
            | Topic::Told
            | Topic::Withdrawal
            | Topic::Identity
            | Topic::Moved => Duration::from_secs(60),
        }
    }
}

/// Remembers the logged lines and their times.
#[derive(Debug, Default)]
pub(crate) struct Quiet(LineLimit<(Topic, Option<HostName>)>);

impl Quiet {
    /// Logs a line with `log`, unless a line on the same topic was logged a short while ago. The argument is the text
    /// to append: the number of suppressed lines, or an empty text.
    pub(crate) fn say(&self, topic: Topic, host: Option<&HostName>, log: impl FnOnce(String)) {
        let now = Instant::now().into_std();
        if let Some(more) = self.0.due_end((topic, host.cloned()), (topic, None), topic.interval(), now) {
            log(more);
        }
    }

    /// The problem is over: the next line about it comes at once.
    pub(super) fn over(&self, topic: Topic, host: &HostName) {
        self.0.over(&(topic, Some(host.clone())));
    }
}
