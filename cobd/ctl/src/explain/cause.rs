//! First causes: the reasons to wait that lead to no further change object.

use cob_types::status::{
    ActionStatus, CobStatus, EARLIER_CONTENT, HostStatus, IN_CONFLICT, PeerStatus, Phase, Stopped, Trouble, Unheard,
};
use cob_types::{CobId, GenerationNumber, StateName};
use serde::Serialize;

use crate::words::{ago, circle, clean, count, list, span, state, trouble};

/// The type of a first cause, in the order in which an operator should see them: first the causes that need an
/// operator, last the causes that end by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// A deadlock that the daemons have found and can't break.
    Stuck,
    /// It has failed after its last attempt.
    GivenUp,
    /// Its check fails, so that its state is not known.
    CheckFailing,
    /// It has no exit state: no transitions lead to its desired state.
    NoRoute,
    /// It is observed, and not in its preferred state: only people can bring it there.
    Observed,
    /// The change object that it asked has refused.
    Refused,
    /// Its host is not reachable from here.
    Unreachable,
    /// Its host and the requester's host do not reach each other.
    LinkDown,
    /// Its host does not know it.
    Absent,
    /// Its host was not among the hosts to ask.
    NotAsked,
    /// Its daemon is newer than this program, which does not know the reason.
    Newer,
    /// Its daemon has the previous version, and does not report its departure.
    Older,
    /// An operator has stopped it.
    Stopped,
    /// An operator has paused its host, or has cancelled the switch.
    Paused,
    /// An operator's limit allows no further transition on its host.
    Limit,
    /// Its host has another active generation than the requester's host.
    OtherGeneration,
    /// It is departing, and until then serves only other departing change objects.
    Leaving,
    /// A rate limit delays it.
    Rest,
    /// It waits for its next attempt.
    Retry,
    /// The waits form a cycle; the daemons look for a way to break it.
    Circle,
    /// Its transition runs.
    Moving,
    /// Its check runs.
    Checking,
    /// The awaited state is reached, or a message is on the way: no obstacle remains.
    OnItsWay,
    /// It does not wait.
    Settled,
}

/// A first cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Its type.
    pub kind: CauseKind,
    /// Its text, to be read after the change object's name: "failed after 3 attempts".
    pub words: String,
    /// A hint for the operator; empty: wait.
    pub hint: String,
}

impl Cause {
    fn new(kind: CauseKind, words: impl Into<String>) -> Self {
        Self { kind, words: words.into(), hint: String::new() }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds a further hint.
    pub(super) fn add_hint(&mut self, more: &str) {
        if !self.hint.is_empty() {
            self.hint.push_str("; ");
        }
        self.hint.push_str(more);
    }

    pub(super) fn moving(cob: &CobStatus, now_ns: u64) -> Self {
        let (way, since) = match &cob.action {
            Some(action) => (way(action), action.since_ns),
            None => (format!("to {}", state(cob.target.as_ref())), cob.since_ns),
        };
        let said = cob.action.as_ref().map(|a| remarks(a, a.of > 1)).unwrap_or_default();
        let words = format!("has been moving {way} for {}{said}", ago(now_ns, since));
        Self::new(CauseKind::Moving, words).hint(gate_remedy(cob).unwrap_or_default())
    }

    pub(super) fn checking(cob: &CobStatus, now_ns: u64) -> Self {
        match &cob.action {
            Some(action) if action.to.is_none() && !action.error.is_empty() => Self::check_failing(cob, action),
            Some(_) | None => {
                Self::new(CauseKind::Checking, format!("has been checking its state for {}", ago(now_ns, cob.since_ns)))
            }
        }
    }

    pub(super) fn check_failing(cob: &CobStatus, action: &ActionStatus) -> Self {
        let times = if action.attempt > 1 { format!(" {}", count(action.attempt, "time")) } else { String::new() };
        let words = format!("is in an unknown state: its check has failed{times}{}", remarks(action, false));
        Self::new(CauseKind::CheckFailing, words).hint(match acts_inside(cob) {
            true => "fix the reported error; the next check starts within a minute".to_owned(),
            false => format!("see `cobctl output {}`", cob.id),
        })
    }

    pub(super) fn given_up(host: &HostStatus, cob: &CobStatus) -> Self {
        let words = match &cob.action {
            Some(action) => {
                let attempts = count(action.attempt, "attempt");
                format!("failed after {attempts} to move {}{}", way(action), remarks(action, false))
            }
            None => "has failed".to_owned(),
        };
        let id = &cob.id;
        // On a paused host an attempt would not start.
        let resume = match host.held.is_some() || host.paused {
            true => format!("`cobctl resume --host {}` and ", host.name),
            false => String::new(),
        };
        let met_conflict = cob.action.as_ref().is_some_and(|action| action.conflict);
        let hint = match cob.kind.as_str() {
            "file-tree" if met_conflict => how_to_decide(id),
            "departure" => format!(
                "fix the reported error; the next attempt starts by itself, or at once with `cobctl retry {id}`"
            ),
            _ if cob.is_service() => {
                format!(
                    "see `cobctl output {id}` and `cobctl logs {id}`, fix the error, then {resume}`cobctl retry {id}`"
                )
            }
            _ if acts_inside(cob) => format!("fix the reported error, then {resume}`cobctl retry {id}`"),
            _ => format!("see `cobctl output {id}`, fix the error, then {resume}`cobctl retry {id}`"),
        };
        let mut cause = Self::new(CauseKind::GivenUp, words).hint(hint);
        gate_remedy(cob).iter().for_each(|remedy| cause.add_hint(remedy));
        cause
    }

    pub(super) fn stuck(cob: &CobStatus) -> Option<Self> {
        cob.trouble.iter().find_map(|t| match t {
            Trouble::Stuck { circle: round, more } => Some(
                Self::new(
                    CauseKind::Stuck,
                    format!("is in a deadlock that COB cannot resolve: {}", circle(round, *more)),
                )
                .hint("remove or reverse a dependency of this cycle in the model; `cobgen check` finds cycles"),
            ),
            Trouble::Chase { .. } | Trouble::Flap { .. } | Trouble::Other => None,
        })
    }

    pub(super) fn circle(round: &[CobId]) -> Self {
        Self::new(
            CauseKind::Circle,
            format!("waits in a cycle: {}; the daemons are resolving it", circle(round, false)),
        )
    }

    pub(super) fn no_route(cob: &CobStatus, to: &StateName) -> Self {
        if cob.is_in_conflict() {
            return Self::new(CauseKind::NoRoute, IN_CONFLICT).hint(how_to_decide(&cob.id));
        }
        let words = format!("can't reach {to}: no chain of transitions leads there from {}", state(cob.state.as_ref()));
        let (id, kind) = (&cob.id, &cob.kind);
        Self::new(CauseKind::NoRoute, words).hint(format!(
            "bring {id} to {to} by hand, or add the missing transition to the kind {kind}, if the model defines it"
        ))
    }

    pub(super) fn observed(cob: &CobStatus, to: &StateName) -> Self {
        let words = format!(
            "is only observed: it is {} instead of {to}, and COB does not change it",
            state(cob.state.as_ref())
        );
        Self::new(CauseKind::Observed, words)
            .hint(format!("bring {} to {to} by hand, or set `mode: manage` for it in the next generation", cob.id))
    }

    pub(super) fn refused(asked: &CobId, reason: &str) -> Self {
        Self::new(CauseKind::Refused, format!("was refused by {asked}: {}", clean(reason)))
    }

    /// An operator has stopped the change object, or a change object that needs it.
    pub(super) fn stopped(cob: &CobId, stopped: &Stopped, itself: bool) -> Self {
        let words = clean(&stopped.in_words());
        let words = if itself { format!("is {words}") } else { format!("waits for {cob}, which is {words}") };
        let start = stopped.with.as_ref().unwrap_or(cob);
        Self::new(CauseKind::Stopped, words).hint(format!("`cobctl start {start}`"))
    }

    pub(super) fn retry(cob: &CobStatus, now_ns: u64, at_ns: u64, attempt: u32, of: u32) -> Self {
        let said = cob.action.as_ref().map(|a| remarks(a, false)).unwrap_or_default();
        let wait = span(at_ns.saturating_sub(now_ns));
        Self::new(CauseKind::Retry, format!("failed and is retried in {wait} (attempt {attempt} of {of}){said}"))
            .hint(gate_remedy(cob).unwrap_or_default())
    }

    pub(super) fn paused(host: &HostStatus) -> Self {
        if let Some(generation) = host.held {
            let words = format!(
                "starts no transition: {} is held, because the switch to generation {generation} was cancelled",
                host.name
            );
            return Self::new(CauseKind::Paused, words)
                .hint("`cobctl resume` continues the switch; `cobctl switch` to another generation, or back, ends it");
        }
        Self::new(CauseKind::Paused, format!("starts no transition: {} is paused", host.name))
            .hint(format!("`cobctl resume --host {}` (or its address, if no depot is named)", host.name))
    }

    pub(super) fn limit(host: &HostStatus, at_most: u32) -> Self {
        let moving: Vec<_> = host.cobs.iter().filter(|c| c.phase == Phase::Moving).map(|c| &c.id).collect();
        let words = format!(
            "waits for its turn: the limit of {} is {at_most} at a time; running: {}",
            host.name,
            list(&moving, 3)
        );
        Self::new(CauseKind::Limit, words).hint("`cobctl limit none` removes the limit")
    }

    pub(super) fn newer(host: &HostStatus) -> Self {
        let words = format!("waits for a reason that this cobctl does not know: the daemon of {} is newer", host.name);
        Self::new(CauseKind::Newer, words).hint("use a cobctl of the daemon's version")
    }

    pub(super) fn rest(cob: &CobStatus, now_ns: u64, until_ns: u64) -> Self {
        let why: Vec<String> = cob.trouble.iter().map(trouble).collect();
        let why = if why.is_empty() { "it repeats requests or transitions".to_owned() } else { why.join("; ") };
        let by_itself = cob.trouble.iter().any(|t| matches!(t, Trouble::Flap { because_of: None, .. }));
        let id = &cob.id;
        let hint = match by_itself {
            true => format!(
                "it ends by itself, or another program changes it: see `cobctl history {id}` and `cobctl output {id}`"
            ),
            false => format!("two change objects undo each other: see `cobctl history {id}`"),
        };
        Self::new(CauseKind::Rest, format!("is delayed for {}: {why}", span(until_ns.saturating_sub(now_ns))))
            .hint(hint)
    }

    pub(super) fn leaving(cob: &CobStatus) -> Self {
        let goes = if cob.retiring { "departs with the switch under way" } else { "is departing" };
        Self::new(
            CauseKind::Leaving,
            format!("{goes} and grants locks only to departing change objects; the others wait until it has departed"),
        )
    }

    pub(super) fn absent(cob: &CobId, host: &HostStatus) -> Self {
        let words = match (host.generation, host.switching_to) {
            (None, _) => format!("is not known on {}: no generation is active there", host.name),
            (Some(active), Some(next)) => {
                format!(
                    "is not part of generation {active}, which is active on {} until it has switched to {next}",
                    host.name
                )
            }
            (Some(active), None) => format!("is not part of generation {active}, which is active on {}", host.name),
        };
        Self::new(CauseKind::Absent, words).hint(format!("`cobctl status {}` lists its change objects", cob.host_str()))
    }

    pub(super) fn unreachable(cob: &CobId, error: &str, holds: bool) -> Self {
        let host = cob.host_str();
        let keeps = if holds { "; its locks stay until it is back or fenced" } else { "" };
        let cause = Self::new(
            CauseKind::Unreachable,
            format!("is on {host}, which can't be reached ({}){keeps}", clean(error)),
        );
        if holds {
            cause.hint(format!("bring {host} back; or, if it is certainly off, `cobctl fence {host}`"))
        } else {
            cause.hint(format!(
                "bring {host} back; or, if it is gone for good, remove it from the model, and `cobctl fence {host}`"
            ))
        }
    }

    pub(super) fn leaves_unreachable(cob: &CobId, error: &str) -> Self {
        let host = cob.host_str();
        Self::unreachable(cob, error, false).hint(format!(
            "bring {host} back; or, if it is certainly off, `cobctl fence {host}` (the whole host) or `cobctl mark-departed {cob}` \
             (this change object): the other hosts continue without it"
        ))
    }

    /// It has departed, and its host does not understand the question whether it has.
    pub(super) fn says_nothing(cob: &CobId, host: &HostStatus) -> Self {
        let words =
            format!("has departed, but the daemon of {} is of an older version, which does not report it", host.name);
        Self::new(CauseKind::Older, words).hint(format!(
            "upgrade cobd on {}, and the switch continues by itself; or `cobctl mark-departed {cob}`, because it has departed",
            host.name
        ))
    }

    pub(super) fn not_told(host: &HostStatus) -> Self {
        let active = host.generation.map_or_else(|| "no generation".to_owned(), |g| format!("generation {g}"));
        let words = format!("has not started to depart: {} has {active} active and is not switching", host.name);
        Self::new(CauseKind::OtherGeneration, words).hint(format!(
            "`cobctl status {}` shows its orders; `cobctl switch` gives the order to all hosts",
            host.name
        ))
    }

    pub(super) fn not_asked(cob: &CobId) -> Self {
        Self::new(CauseKind::NotAsked, format!("is on {}, which was not asked", cob.host_str())).hint(format!(
            "name the depot with this host (--depot); if {0} is gone for good, `cobctl fence {0}`",
            cob.host_str()
        ))
    }

    /// `there` is the other end. If it has the lower name, it opens the connection, and so knows why this fails.
    pub(super) fn link_down(asking: &HostStatus, asked: &CobId, link: &PeerStatus, there: Option<&HostStatus>) -> Self {
        let caller = there.and_then(|there| there.peers.iter().find(|p| p.host == asking.name && !p.up));
        let theirs = caller.filter(|_| link.host < asking.name).and_then(|p| p.error.as_deref());
        let why = match (theirs, link.error.as_deref()) {
            (Some(theirs), _) => format!(" ({} says: {})", link.host, clean(theirs)),
            (None, Some(ours)) => format!(" ({})", clean(ours)),
            (None, None) => String::new(),
        };
        let since = ago(asking.now_ns, link.since_ns);
        Self::new(
            CauseKind::LinkDown,
            format!("can't ask {asked}: the link from {} to {} has been down for {since}{why}", asking.name, link.host),
        )
        .hint(format!("`cobctl trust doctor {} {}` checks network, addresses and keys", asking.name, link.host))
    }

    /// Two hosts, of `asked` and of the requester: the host `hears` ignores the messages of the host `says`.
    pub(super) fn unheard(asked: &CobId, says: &HostStatus, hears: &HostStatus, why: Unheard) -> Self {
        let (says, hears) = (&says.name, &hears.name);
        let (words, hint) = match why {
            Unheard::Fenced => (
                format!("can't ask {asked}: {says} was fenced, and {hears} ignores its daemon until a restart"),
                format!("restart cobd on {says}: the other hosts accept its new incarnation"),
            ),
            Unheard::Replaced | Unheard::Other => (
                format!("can't ask {asked}: another daemon with the name {says} has sent messages to {hears} since"),
                format!("stop the other daemon with the name {says}, then restart cobd on {says}"),
            ),
        };
        Self::new(CauseKind::LinkDown, words).hint(hint)
    }

    pub(super) fn other_generation(
        asked: &HostStatus,
        active: GenerationNumber,
        asking: &HostStatus,
        wanted: GenerationNumber,
    ) -> Self {
        let (there, here) = (&asked.name, &asking.name);
        Self::new(
            CauseKind::OtherGeneration,
            format!(
                "is at generation {active} on {there}, but {here} asks at generation {wanted}: a lock needs the same generation on both hosts"
            ),
        )
    }

    pub(super) fn on_its_way(words: impl Into<String>) -> Self {
        Self::new(CauseKind::OnItsWay, words)
    }

    pub(super) fn settled(cob: &CobStatus, now_ns: u64) -> Self {
        let here = state(cob.state.as_ref());
        let since = ago(now_ns, cob.since_ns);
        let words = if cob.state.as_ref() == Some(&cob.preferred) {
            format!("is OK: {here} for {since}")
        } else {
            format!(
                "is idle: other change objects need it {here}, for {since}; its preferred state is {}",
                cob.preferred
            )
        };
        Self::new(CauseKind::Settled, words)
    }
}

/// Whether the daemon itself acts, without a process that could print output.
fn acts_inside(cob: &CobStatus) -> bool {
    matches!(cob.kind.as_str(), "file-tree" | "noop" | "wait" | "tcp-check" | "http-check" | "budget")
}

/// How to resolve a conflict in a file.
fn how_to_decide(id: &CobId) -> String {
    format!(
        "`cobctl diff {id}` shows both; `cobctl resolve {id}` decides: --theirs takes the model's lines, --ours keeps the \
         host's lines, --edit merges by hand"
    )
}

/// `from down to up`.
fn way(action: &ActionStatus) -> String {
    match (&action.from, &action.to) {
        (Some(from), Some(to)) => format!("from {from} to {to}"),
        (None, Some(to)) => format!("to {to}"),
        (_, None) => "on".to_owned(),
    }
}

/// A hint for a gate that does not open; `None`: it is no gate, or has another desired state.
fn gate_remedy(cob: &CobStatus) -> Option<String> {
    let (opens, id) = (cob.target.as_ref() == Some(&cob.preferred), &cob.id);
    (cob.is_gate() && opens).then(|| {
        format!(
            "{id} can only wait: if a change object of the model fulfils its condition, give {id} that dependency (`requires`)"
        )
    })
}

/// ` (attempt 2 of 3; exit status 1; last line: …)`.
fn remarks(action: &ActionStatus, attempt: bool) -> String {
    let mut all = Vec::new();
    if attempt {
        all.push(format!("attempt {} of {}", action.attempt, action.of));
    }
    if action.earlier_content {
        all.push(EARLIER_CONTENT.to_owned());
    }
    if !action.error.is_empty() {
        all.push(clean(&action.error));
    }
    if !action.last_line.is_empty() && !action.error.contains(&action.last_line) {
        all.push(format!("last line: {}", clean(&action.last_line)));
    }
    if all.is_empty() { String::new() } else { format!(" ({})", all.join("; ")) }
}
