//! A fault in a switch: a host or daemon that dies, an action that fails, a message that is lost.
//!
//! A fault names the step of the calm run, which has no fault, after which it happens. The same text gives the same run.

use std::fmt;
use std::str::FromStr;

use cob_types::{CobId, HostName, Item};

use crate::time::Span;

/// How long a host is away that has lost its power.
pub(super) const HOST_AWAY: Span = Span::secs(60);
/// How long a killed daemon is away.
pub(super) const DAEMON_AWAY: Span = Span::secs(2);
/// How long a link loses messages that are lost for a time: longer than the first repeats.
pub(super) const LINK_LOSES: Span = Span::secs(5);

/// A fault, and the step after which it happens: 0 is the order of the switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchFault {
    /// The fault.
    pub what: FaultKind,
    /// The step.
    pub step: u64,
}

/// The kinds of faults.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A host loses its power, or its daemon is killed. Both return.
    Kill {
        /// The host.
        host: HostName,
        /// The victim.
        victim: Victim,
        /// Only the records of the step were written: its messages were not sent, its jobs not started.
        early: bool,
    },
    /// The action that the step starts fails.
    Fail {
        /// The change object.
        cob: CobId,
        /// All attempts fail, otherwise the first.
        always: bool,
    },
    /// Messages of a kind that a host sends to another in the step are lost.
    Lose {
        /// [`Item::name`].
        item: &'static str,
        /// The sender.
        from: HostName,
        /// The receiver.
        to: HostName,
        /// All messages of the kind are lost on this link for [`LINK_LOSES`].
        long: bool,
    },
}

/// The victim of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Victim {
    /// The host with all its processes.
    Host,
    /// The daemon; the actions run on.
    Daemon,
}

/// Why a text is no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no fault: write `kill HOST at step N [after its records]`, `kill cobd on HOST at step N [after its \
     records]`, `fail HOST/NAME at step N once|always`, or `lose MESSAGE from HOST to HOST at step N once|for 5s`"
)]
pub struct NoFault(String);

impl FaultKind {
    /// Its first word.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::Fail { .. } => "fail",
            Self::Lose { .. } => "lose",
        }
    }
}

impl fmt::Display for SwitchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step;
        match &self.what {
            FaultKind::Kill { host, victim, early } => {
                let of = if *victim == Victim::Daemon { "cobd on " } else { "" };
                write!(f, "kill {of}{host} at step {step}{}", if *early { " after its records" } else { "" })
            }
            FaultKind::Fail { cob, always } => {
                write!(f, "fail {cob} at step {step} {}", if *always { "always" } else { "once" })
            }
            FaultKind::Lose { item, from, to, long } => {
                let how = if *long { format!("for {}s", LINK_LOSES.0 / 1_000_000_000) } else { "once".to_owned() };
                write!(f, "lose {item} from {from} to {to} at step {step} {how}")
            }
        }
    }
}

impl FromStr for SwitchFault {
    type Err = NoFault;

    fn from_str(text: &str) -> Result<Self, NoFault> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = match words.as_slice() {
            ["kill", "cobd", "on", host, "at", "step", step, end @ ..] => kill(host, Victim::Daemon, step, end),
            ["kill", host, "at", "step", step, end @ ..] => kill(host, Victim::Host, step, end),
            ["fail", cob, "at", "step", step, how @ ("once" | "always")] => fail(cob, step, *how == "always"),
            ["lose", item, "from", from, "to", to, "at", "step", step, "once"] => lose(item, from, to, step, false),
            ["lose", item, "from", from, "to", to, "at", "step", step, "for", "5s"] => lose(item, from, to, step, true),
            _ => None,
        };
        parsed.ok_or_else(|| NoFault(text.to_owned()))
    }
}

fn kill(host: &str, victim: Victim, step: &str, end: &[&str]) -> Option<SwitchFault> {
    let early = match end {
        [] => false,
        ["after", "its", "records"] => true,
        _ => return None,
    };
    let what = FaultKind::Kill { host: HostName::new(host).ok()?, victim, early };
    Some(SwitchFault { what, step: step.parse().ok()? })
}

fn fail(cob: &str, step: &str, always: bool) -> Option<SwitchFault> {
    let what = FaultKind::Fail { cob: CobId::new(cob).ok()?, always };
    Some(SwitchFault { what, step: step.parse().ok()? })
}

fn lose(item: &str, from: &str, to: &str, step: &str, long: bool) -> Option<SwitchFault> {
    let item = Item::NAMES.into_iter().find(|name| *name == item)?;
    let what = FaultKind::Lose { item, from: HostName::new(from).ok()?, to: HostName::new(to).ok()?, long };
    Some(SwitchFault { what, step: step.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        for text in [
            "kill h2 at step 41",
            "kill h2 at step 0 after its records",
            "kill cobd on h2 at step 41",
            "kill cobd on h2 at step 41 after its records",
            "fail h1/db/server at step 57 once",
            "fail h1/db/server at step 57 always",
            "lose grant from h1 to h2 at step 33 once",
            "lose ask-final from h1 to h2 at step 33 for 5s",
        ] {
            let fault: SwitchFault = text.parse().expect(text);
            assert_eq!(fault.to_string(), text);
        }
        for text in
            ["", "kill h2", "kill h2 at step x", "fail h1 at step 3 once", "lose love from h1 to h2 at step 1 once"]
        {
            let error = text.parse::<SwitchFault>().expect_err(text).to_string();
            assert!(error.contains("kill HOST at step N"), "{error}");
        }
    }
}
