//! Conditions of the cluster for notices, from the statuses of all hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::history::{HistoryEntry, HistoryEvent};
use cob_types::status::{ClusterStatus, CobStatus, HostStatus, SwitchStage};
use cob_types::{CobId, GenerationNumber, HostName};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::explain::{CauseKind, explain_in};
use crate::gather::refusal;
use crate::verdict::{Expected, Verdict, is_converged, is_left_there, judge};
use crate::words::{clean_to, count, state};

/// The longest text of a notice, in characters.
const LONGEST: usize = 2000;
/// The most change objects that are explained at a time.
const EXPLAINED: usize = 100;

/// The subject of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// All hosts have a new generation.
    Switched,
    /// A switch is rolled back.
    RolledBack,
    /// A rollback has stopped: a person has to act.
    Stopped,
    /// A change object has used up its attempts.
    Failed,
    /// A file has a conflict that a person has to decide.
    Conflict,
    /// Others have changed an object.
    Drift,
    /// Change objects are on their way for long.
    Stuck,
    /// A host gives no answer.
    HostAway,
}

impl NoticeKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Switched,
        Self::RolledBack,
        Self::Stopped,
        Self::Failed,
        Self::Conflict,
        Self::Drift,
        Self::Stuck,
        Self::HostAway,
    ];

    /// The word in files and messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Switched => "switched",
            Self::RolledBack => "rolled-back",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Conflict => "conflict",
            Self::Drift => "drift",
            Self::Stuck => "stuck",
            Self::HostAway => "host-away",
        }
    }

    /// Whether its end is told, too.
    fn has_end(self) -> bool {
        match self {
            Self::Stopped | Self::Failed | Self::Conflict | Self::Stuck | Self::HostAway => true,
            Self::Switched | Self::RolledBack | Self::Drift => false,
        }
    }
}

/// Whether a condition begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeState {
    /// It begins.
    Begun,
    /// It ends.
    Ended,
    /// It has no duration.
    Happened,
}

/// A notice.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The same for the begin and the end of a condition, and for all observers of a cluster that saw its begin.
    pub id: String,
    /// Its subject.
    pub kind: NoticeKind,
    /// Whether the condition begins or ends.
    pub state: NoticeState,
    /// When it was observed, in nanoseconds since 1970-01-01 UTC.
    pub at_ns: u64,
    /// The host of the subject, if any.
    pub host: Option<HostName>,
    /// The change object of the subject, if any.
    pub cob: Option<CobId>,
    /// The generation of the subject, if any.
    pub generation: Option<GenerationNumber>,
    /// A sentence for people.
    pub text: String,
    /// The command that comes next; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
}

/// The identity of a condition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    kind: NoticeKind,
    /// A change object, a host, or a generation.
    subject: String,
}

/// A condition of a picture.
#[derive(Debug, Clone)]
struct Condition {
    /// Since when, by the clock of its host.
    since_ns: u64,
    host: Option<HostName>,
    cob: Option<CobId>,
    generation: Option<GenerationNumber>,
    text: String,
    next: String,
}

/// A condition that was observed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open {
    key: Key,
    /// When it was observed first, by the observer's clock.
    seen_ns: u64,
    /// The notice of its begin, and whether it was told.
    begin: Notice,
    is_told: bool,
}

/// Compares pictures of the cluster.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Observer {
    /// Sorted by key.
    open: Vec<Open>,
    /// The last generation that all hosts had.
    generation: Option<GenerationNumber>,
    /// Whether there was a picture before.
    has_looked: bool,
}

/// How long conditions last before they are told.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    /// Of a change object on its way.
    pub stuck: Duration,
    /// Of a host without an answer.
    pub away: Duration,
}

impl Observer {
    /// The notices of a picture. All hosts must have been asked.
    pub fn look(&mut self, cluster: &ClusterStatus, now_ns: u64, delays: Delays) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut present = conditions(cluster, now_ns, delays);
        let mut open: BTreeMap<Key, Open> = self.open.drain(..).map(|open| (open.key.clone(), open)).collect();
        let silent = |host: &HostName| cluster.hosts.iter().any(|h| h.name == *host && !h.reachable);
        open.retain(|key, open| {
            // The daemon of a host without an answer knows nothing new of its change objects.
            let is_unknown = key.kind != NoticeKind::HostAway && open.begin.host.as_ref().is_some_and(silent);
            let stays = is_unknown || present.contains_key(key);
            if !stays && open.is_told && key.kind.has_end() {
                let text = format!("resolved: {}", open.begin.text);
                let state = NoticeState::Ended;
                notices.push(Notice { state, at_ns: now_ns, text, next: String::new(), ..open.begin.clone() });
            }
            stays
        });
        // A rollback that ended before the first picture is no news.
        let is_news = |key: &Key| self.has_looked || key.kind != NoticeKind::RolledBack;
        for (key, condition) in std::mem::take(&mut present) {
            let entry = open.entry(key.clone());
            let open = entry.or_insert_with(|| {
                let is_told = !is_news(&key);
                let begin = notice(&key, NoticeState::Begun, now_ns, &condition);
                Open { key: key.clone(), seen_ns: now_ns, begin, is_told }
            });
            let away = u64::try_from(delays.away.as_nanos()).unwrap_or(u64::MAX);
            let delay = if key.kind == NoticeKind::HostAway { away } else { 0 };
            if !open.is_told && now_ns.saturating_sub(open.seen_ns) >= delay {
                open.is_told = true;
                // The text may have changed since.
                let begin = notice(&key, NoticeState::Begun, now_ns, &condition);
                open.begin = Notice { id: open.begin.id.clone(), ..begin };
                notices.push(open.begin.clone());
            }
        }
        self.open = open.into_values().collect();
        notices.extend(self.switched(cluster, now_ns));
        self.has_looked = true;
        notices
    }

    fn switched(&mut self, cluster: &ClusterStatus, now_ns: u64) -> Option<Notice> {
        let Verdict::Converged(Some(generation)) = judge(cluster, &Expected::default()) else { return None };
        let former = self.generation.replace(generation);
        let former = former.filter(|former| *former != generation)?;
        let hosts = count(cluster.hosts.len(), "host");
        let back = if former > generation { "again " } else { "" };
        let text = format!("generation {generation} is {back}active on {hosts}, and all change objects are converged");
        let key = Key { kind: NoticeKind::Switched, subject: generation.to_string() };
        let condition = Condition {
            since_ns: cluster.hosts.iter().map(|host| host.now_ns).max().unwrap_or_default(),
            host: None,
            cob: None,
            generation: Some(generation),
            text,
            next: format!("cobctl report {generation}"),
        };
        Some(notice(&key, NoticeState::Happened, now_ns, &condition))
    }
}

/// The notice of an entry of the history, if people want to hear of it.
#[must_use]
pub fn of_entry(entry: &HistoryEntry) -> Option<Notice> {
    let HistoryEvent::Drift(cob) = entry.happened() else { return None };
    let found = entry.to.as_ref().map(|state| format!(": it is {state}")).unwrap_or_default();
    let detail = if entry.detail.is_empty() { String::new() } else { format!(": {}", entry.detail) };
    Some(Notice {
        id: format!("drift/{}/{}", entry.host, entry.seq),
        kind: NoticeKind::Drift,
        state: NoticeState::Happened,
        at_ns: entry.ts_ns,
        host: Some(entry.host.clone()),
        cob: Some(cob.clone()),
        generation: Some(entry.generation),
        text: clean_to(&format!("{cob} was changed by others{found}{detail}"), LONGEST),
        next: format!("cobctl history {cob}"),
    })
}

fn notice(key: &Key, state: NoticeState, now_ns: u64, condition: &Condition) -> Notice {
    Notice {
        id: format!("{}/{}/{}", key.kind.word(), key.subject, condition.since_ns),
        kind: key.kind,
        state,
        at_ns: now_ns,
        host: condition.host.clone(),
        cob: condition.cob.clone(),
        generation: condition.generation,
        text: clean_to(&condition.text, LONGEST),
        next: condition.next.clone(),
    }
}

fn conditions(cluster: &ClusterStatus, now_ns: u64, delays: Delays) -> BTreeMap<Key, Condition> {
    let mut found = BTreeMap::new();
    for host in &cluster.hosts {
        if host.reachable {
            of_switch(host, &mut found);
            host.cobs.iter().for_each(|cob| of_cob(host, cob, &mut found));
        } else if refusal(host).is_none() {
            let why = host.error.as_deref().unwrap_or_default();
            let text = format!("{} gives no answer: {why}", host.name);
            let condition = of_host(host, now_ns, text, format!("cobctl status {}", host.name));
            found.insert(Key { kind: NoticeKind::HostAway, subject: host.name.to_string() }, condition);
        }
    }
    stuck(cluster, delays, &mut found);
    found
}

fn of_host(host: &HostStatus, since_ns: u64, text: String, next: String) -> Condition {
    Condition { since_ns, host: Some(host.name.clone()), cob: None, generation: host.generation, text, next }
}

fn of_switch(host: &HostStatus, found: &mut BTreeMap<Key, Condition>) {
    let Some(switch) = &host.switch else { return };
    if let Some(left) = switch.left {
        let text = format!("the switch to generation {left} is rolled back to {}: {}", switch.to, switch.why);
        let next = format!("cobctl report {left}");
        // A condition of the cluster: the first host has the word.
        let condition = Condition { generation: Some(left), host: None, ..of_host(host, 0, text, next) };
        found.entry(Key { kind: NoticeKind::RolledBack, subject: left.to_string() }).or_insert(condition);
    }
    if switch.stage == SwitchStage::Stopped {
        let text = format!("the rollback of {} has stopped: {}", host.name, switch.why);
        let condition = of_host(host, 0, text, format!("cobctl explain {}", host.name));
        found.insert(Key { kind: NoticeKind::Stopped, subject: host.name.to_string() }, condition);
    }
}

fn of_cob(host: &HostStatus, cob: &CobStatus, found: &mut BTreeMap<Key, Condition>) {
    let (kind, text, next) = if cob.is_in_conflict() {
        let text = format!("{} {}", cob.id, cob_types::status::IN_CONFLICT);
        (NoticeKind::Conflict, text, format!("cobctl diff {}", cob.id))
    } else if cob.failed {
        let text = format!("{} has failed{}", cob.id, attempts(cob));
        (NoticeKind::Failed, text, format!("cobctl output {0}; cobctl retry {0}", cob.id))
    } else {
        return;
    };
    let condition = Condition { cob: Some(cob.id.clone()), ..of_host(host, cob.since_ns, text, next) };
    found.insert(Key { kind, subject: cob.id.to_string() }, condition);
}

/// The last attempt of a failed change object, in words.
fn attempts(cob: &CobStatus) -> String {
    let Some(action) = &cob.action else { return String::new() };
    let (from, to) = (state(action.from.as_ref()), state(action.to.as_ref()));
    let parts = [action.error.as_str(), action.last_line.as_str()].map(|part| match part {
        "" => String::new(),
        part => format!(": {part}"),
    });
    format!(" ({from} → {to}, attempt {} of {}){}", action.attempt, action.of, parts.concat())
}

/// The first causes of change objects that are on their way for long. Failures, conflicts and hosts without an answer
/// are conditions of their own. Stops and pauses are orders of operators, and so no news.
fn stuck(cluster: &ClusterStatus, delays: Delays, found: &mut BTreeMap<Key, Condition>) {
    let limit = u64::try_from(delays.stuck.as_nanos()).unwrap_or(u64::MAX);
    let is_stuck = |host: &HostStatus, cob: &CobStatus| {
        !is_converged(cob)
            && !is_left_there(cob)
            && !cob.failed
            && !cob.is_in_conflict()
            && host.now_ns.saturating_sub(cob.since_ns) >= limit
    };
    let hosts = cluster.hosts.iter().filter(|host| host.reachable && !host.paused);
    let late =
        hosts.flat_map(|host| host.cobs.iter().filter(move |cob| is_stuck(host, cob)).map(move |cob| (host, cob)));
    let mut causes: BTreeMap<CobId, (Condition, usize)> = BTreeMap::new();
    for (host, cob) in late.take(EXPLAINED) {
        let explanation = explain_in(cluster, &cob.id);
        if matches!(
            explanation.first.kind,
            CauseKind::GivenUp | CauseKind::Unreachable | CauseKind::Stopped | CauseKind::Paused
        ) {
            continue;
        }
        let text = format!("since {} and longer: {}", crate::words::span(limit), explanation.sentence());
        let next = format!("cobctl explain {}", cob.id);
        let condition = Condition { cob: Some(cob.id.clone()), ..of_host(host, cob.since_ns, text, next) };
        causes.entry(explanation.culprit().clone()).or_insert((condition, 0)).1 += 1;
    }
    for (culprit, (mut condition, all)) in causes {
        if all > 1 {
            condition.text.push_str(&format!("; the same cause delays {}", count(all - 1, "other change object")));
        }
        found.insert(Key { kind: NoticeKind::Stuck, subject: culprit.to_string() }, condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, cluster, entry, failed, host, lock, s, settled, waiting};

    const DELAYS: Delays = Delays { stuck: Duration::from_secs(10), away: Duration::from_secs(60) };

    fn lines(notices: &[Notice]) -> String {
        let line = |n: &Notice| format!("{:?} {} | {} | {} | {}", n.state, n.kind.word(), n.id, n.text, n.next);
        notices.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn well(generation: u64) -> Vec<HostStatus> {
        vec![
            host("n1", generation, vec![settled("n1/db", "up")]),
            host("n2", generation, vec![settled("n2/app", "up")]),
        ]
    }

    #[test]
    fn a_failure_is_told_once_when_it_begins_and_once_when_it_ends() {
        let mut observer = Observer::default();
        let mut hosts = well(7);
        hosts[0].cobs = vec![failed("n1/db", "down", "up")];
        let broken = cluster(hosts);
        let begun = observer.look(&broken, NOW, DELAYS);
        // As after a restart of the observer.
        let text = serde_json::to_string(&observer).expect("JSON");
        let mut observer: Observer = serde_json::from_str(&text).expect("an observer");
        assert_eq!(observer.look(&broken, NOW + s(1), DELAYS), []);
        let ended = observer.look(&cluster(well(7)), NOW + s(2), DELAYS);
        assert_eq!(begun[0].id, ended[0].id);
        insta::assert_snapshot!(lines(&[begun, ended].concat()));
    }

    #[test]
    fn a_host_is_away_after_a_while_and_its_objects_keep_their_conditions() {
        let mut observer = Observer::default();
        let mut hosts = well(7);
        hosts[0].cobs = vec![failed("n1/db", "down", "up")];
        observer.look(&cluster(hosts.clone()), NOW, DELAYS);
        hosts[0] = crate::gather::unreachable(hosts[0].name.clone(), "connection refused".to_owned());
        assert_eq!(observer.look(&cluster(hosts.clone()), NOW + s(1), DELAYS), []);
        assert_eq!(observer.look(&cluster(hosts.clone()), NOW + s(60), DELAYS), []);
        let away = observer.look(&cluster(hosts.clone()), NOW + s(61), DELAYS);
        let back = observer.look(&cluster(well(7)), NOW + s(90), DELAYS);
        insta::assert_snapshot!(lines(&[away, back].concat()));
    }

    #[test]
    fn a_short_absence_is_not_told() {
        let mut observer = Observer::default();
        let mut hosts = well(7);
        hosts[0] = crate::gather::unreachable(hosts[0].name.clone(), "connection refused".to_owned());
        assert_eq!(observer.look(&cluster(hosts), NOW, DELAYS), []);
        assert_eq!(observer.look(&cluster(well(7)), NOW + s(59), DELAYS), []);
    }

    #[test]
    fn objects_that_wait_for_the_same_cause_are_a_single_notice() {
        let mut observer = Observer::default();
        let hosts = vec![
            host("n1", 7, vec![waiting("n1/db", "down", "up", Vec::new())]),
            host("n2", 7, vec![waiting("n2/app", "down", "up", vec![lock("n1/db", "up")])]),
            host("n3", 7, vec![waiting("n3/app", "down", "up", vec![lock("n1/db", "up")])]),
        ];
        let told = observer.look(&cluster(hosts.clone()), NOW, DELAYS);
        assert_eq!(observer.look(&cluster(hosts), NOW, Delays { stuck: Duration::from_secs(13), ..DELAYS }).len(), 1);
        insta::assert_snapshot!(lines(&told));
    }

    #[test]
    fn a_switch_and_a_rollback_are_told_and_old_ones_are_not() {
        use cob_types::status::SwitchStatus;
        use cob_types::switch::OnFailure;
        let mut observer = Observer::default();
        let back = |left: u64, to: u64| {
            let mut hosts = well(to);
            for host in &mut hosts {
                host.switch = Some(SwitchStatus {
                    to: GenerationNumber(to),
                    stage: SwitchStage::Settled,
                    left: Some(GenerationNumber(left)),
                    why: "n1/db has failed".to_owned(),
                    on_failure: OnFailure::Rollback,
                    guard_left_ms: None,
                    unreached: Vec::new(),
                    remains: Vec::new(),
                    ordered: false,
                    manifest: None,
                });
            }
            cluster(hosts)
        };
        assert_eq!(observer.look(&back(6, 5), NOW, DELAYS), []);
        let switched = observer.look(&cluster(well(7)), NOW + s(1), DELAYS);
        let rolled_back = observer.look(&back(7, 5), NOW + s(2), DELAYS);
        assert_eq!(observer.look(&back(7, 5), NOW + s(3), DELAYS), []);
        insta::assert_snapshot!(lines(&[switched, rolled_back].concat()));
    }

    #[test]
    fn drift_comes_from_the_history() {
        let mut drift = entry("n1", 12, 40, NOW);
        assert_eq!(of_entry(&drift), None);
        drift.event = "drift".to_owned();
        drift.cob = CobId::new("n1/web").ok();
        drift.detail = "/etc/x: -a\n+b".to_owned();
        insta::assert_snapshot!(lines(&[of_entry(&drift).expect("a notice")]));
    }
}
