//! The steps of a switch: every entry with its time since the start and the waits before it.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::history::{HistoryEntry, HistoryEvent, LockEvent};
use cob_types::past::HostPast;
use cob_types::{CobId, GenerationNumber, HostName};
use serde::Serialize;

/// A switch has ended when no work has started or ended for this time after the last host has activated.
const QUIET_NS: u64 = 60_000_000_000;

/// An entry of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayStep {
    /// Nanoseconds since the first entry of the switch, by the clocks of the hosts.
    pub offset_ns: u64,
    /// The entry.
    #[serde(flatten)]
    pub entry: HistoryEntry,
    /// The waits that ended with this entry, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Waited>,
}

/// A wait for a lock, or for a change object that had to depart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// `COB@STATE|STATE`; or `COB gone`.
    pub of: String,
    /// The change object of the lock, or the departing one.
    pub cob: String,
    /// The duration of the wait.
    pub ns: u64,
}

/// Takes the entries of the merged history, and keeps the entries of the last switch to a generation.
#[derive(Debug)]
pub struct Replay {
    generation: GenerationNumber,
    hosts: BTreeMap<HostName, Part>,
    taken: usize,
}

/// The part of a host in the switch.
#[derive(Debug, Default)]
struct Part {
    past: HostPast,
    /// Whether the host has received `go` for this switch, and no later `go` for another.
    on: bool,
    /// The `prepare` entry, until `go`.
    prepared: Option<(usize, HistoryEntry)>,
    /// The `terms` entry (the announced options of the switch) for this generation, until `go`.
    sets_out: Option<(usize, HistoryEntry)>,
    entries: Vec<(usize, HistoryEntry)>,
}

impl Replay {
    /// The last switch to this generation.
    #[must_use]
    pub fn of(generation: GenerationNumber) -> Self {
        Self { generation, hosts: BTreeMap::new(), taken: 0 }
    }

    /// Takes the next entry of the merged history.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
    pub fn take(&mut self, entry: HistoryEntry) {
        let place = self.taken;
        self.taken += 1;
        let part = self.hosts.entry(entry.host.clone()).or_default();
        let is_here = |to: Option<GenerationNumber>| to == Some(self.generation);
        if let Some(leg) = part.past.take(&entry).filter(|_| is_go(&entry)) {
            if leg.to == self.generation && !part.on {
                part.entries = part.prepared.take().into_iter().collect();
                part.entries.extend(part.sets_out.take().filter(|_| leg.next != leg.to));
            }
            part.on = leg.to == self.generation;
        }
        match entry.happened() {
            HistoryEvent::Prepare(to) if is_here(to) && !part.on => part.prepared = Some((place, entry)),
            HistoryEvent::Terms(to) if is_here(to) && !part.on => part.sets_out = Some((place, entry)),
            // Belongs to the next switch, before its `go`.
            HistoryEvent::Terms(Some(to)) if to != self.generation => {}
            _ if part.on => part.entries.push((place, entry)),
            _ => {}
        }
    }

    /// The generations that take part in the switch: this one, and the active generations of hosts at their `go`.
    #[must_use]
    pub fn generations(&self) -> BTreeSet<GenerationNumber> {
        let goes = self.hosts.values().flat_map(|part| &part.entries).filter(|(_, entry)| is_go(entry));
        goes.map(|(_, go)| go.generation).chain([self.generation]).collect()
    }

    /// The steps, in the order of the merged history; with `all`, until the next switch of each host.
    #[must_use]
    pub fn steps(self, all: bool) -> Vec<ReplayStep> {
        // The last entries of hosts that then switched to another generation.
        let last = |(host, part): (&HostName, &Part)| Some((host.clone(), part.entries.last()?.1.seq));
        let over = self.hosts.iter().filter(|(_, part)| !part.on).filter_map(last).collect();
        let mut entries: Vec<_> = self.hosts.into_values().flat_map(|part| part.entries).collect();
        entries.sort_by_key(|(place, _)| *place);
        let mut entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
        if !all {
            entries.truncate(end(&entries, self.generation, &over));
            let own = self.generation;
            entries.retain(|e| !matches!(e.happened(), HistoryEvent::Prepare(to) if to != Some(own)));
        }
        let begin = entries.iter().map(|e| e.ts_ns).min().unwrap_or_default();
        let mut waiting = Waiting::default();
        let step =
            |entry: HistoryEntry| ReplayStep { offset_ns: entry.ts_ns - begin, waited: waiting.before(&entry), entry };
        entries.into_iter().map(step).collect()
    }
}

fn is_go(entry: &HistoryEntry) -> bool {
    matches!(entry.happened(), HistoryEvent::Go(_))
}

/// How many of the entries belong to the switch itself: all entries of transitions, progress and rollback, up to the
/// first quiet period of [`QUIET_NS`] after every host has activated; and entries of checks and locks, until every host
/// has settled or has switched to another generation.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
fn end(entries: &[HistoryEntry], generation: GenerationNumber, over: &BTreeMap<HostName, u64>) -> usize {
    let is_activated = |e: &HistoryEntry| e.happened() == HistoryEvent::Activate && e.generation == generation;
    let activated = entries.iter().rposition(is_activated);
    let mut pending: BTreeSet<&HostName> = entries.iter().filter(|e| is_go(e)).map(|e| &e.host).collect();
    let (mut end, mut last) = (0, 0);
    let mut running: BTreeSet<&CobId> = BTreeSet::new();
    for (at, entry) in entries.iter().enumerate() {
        let was_quiet = running.is_empty();
        let mut leads = true;
        match entry.happened() {
            HistoryEvent::Start(cob) => _ = running.insert(cob),
            HistoryEvent::End(cob) => _ = running.remove(cob),
            HistoryEvent::Settled(_) => leads = entry.generation == generation && pending.remove(&entry.host),
            HistoryEvent::Prepare(to) => leads = to == Some(generation),
            HistoryEvent::Terms(_)
            | HistoryEvent::Go(_)
            | HistoryEvent::Activate
            | HistoryEvent::Gone(_)
            | HistoryEvent::Failed(_)
            | HistoryEvent::Drift(_)
            | HistoryEvent::Stuck(_)
            | HistoryEvent::Cancel(_)
            | HistoryEvent::Resume
            | HistoryEvent::Withdraw { .. }
            | HistoryEvent::Stopped(_)
            | HistoryEvent::Return(_) => {}
            _ => leads = false,
        }
        if leads || !pending.is_empty() {
            let late = end > 0 && entry.ts_ns > last + QUIET_NS;
            if late && was_quiet && activated.is_some_and(|activated| at > activated) {
                break;
            }
            end = at + 1;
        }
        if leads {
            last = entry.ts_ns;
        }
        if over.get(&entry.host) == Some(&entry.seq) {
            pending.remove(&entry.host);
            running.retain(|cob| cob.host_str() != entry.host.as_str());
        }
    }
    end
}

/// The pending waits, from the entries.
#[derive(Debug, Default)]
struct Waiting {
    /// Pending requests, by requester and requested change object: the lock, and the time of the request.
    asked: BTreeMap<(CobId, String), (String, u64)>,
    got: BTreeMap<CobId, Vec<Waited>>,
    /// The time of each host's `go`, and the change objects that have departed since.
    leaving: BTreeMap<HostName, (u64, Vec<Waited>)>,
}

impl Waiting {
    /// Processes an entry, and returns the waits that it ended.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
    fn before(&mut self, entry: &HistoryEntry) -> Vec<Waited> {
        let mut waited = match entry.happened() {
            HistoryEvent::Go(_) => {
                self.leaving.insert(entry.host.clone(), (entry.ts_ns, Vec::new()));
                return Vec::new();
            }
            HistoryEvent::Activate => self.leaving.remove(&entry.host).map(|(_, left)| left).unwrap_or_default(),
            HistoryEvent::Gone(cob) => {
                if let Some((since, left)) = self.leaving.get_mut(&entry.host) {
                    let ns = entry.ts_ns.saturating_sub(*since);
                    left.push(Waited { of: format!("{cob} gone"), cob: cob.to_string(), ns });
                }
                return Vec::new();
            }
            HistoryEvent::Start(cob) => {
                // A change object in a transition has all its locks: other requests are withdrawn without an entry.
                self.asked.retain(|(asker, _), _| asker != cob);
                self.got.remove(cob).unwrap_or_default()
            }
            HistoryEvent::Settled(_) => {
                self.asked.retain(|(asker, _), _| asker.host_str() != entry.host.as_str());
                return Vec::new();
            }
            HistoryEvent::Lock(event, cob, of) => {
                self.lock(event, (cob.clone(), of.to_owned()), entry);
                return Vec::new();
            }
            _ => return Vec::new(),
        };
        waited.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.of.cmp(&b.of)));
        waited
    }

    fn lock(&mut self, event: LockEvent, pair: (CobId, String), entry: &HistoryEntry) {
        match event {
            LockEvent::Request => _ = self.asked.entry(pair).or_insert((entry.detail.clone(), entry.ts_ns)),
            LockEvent::Hold => {
                if let Some((of, since)) = self.asked.remove(&pair) {
                    let ns = entry.ts_ns.saturating_sub(since);
                    self.got.entry(pair.0).or_default().push(Waited { of, cob: pair.1, ns });
                }
            }
            LockEvent::Release => {
                self.asked.remove(&pair);
                if let Some(got) = self.got.get_mut(&pair.0) {
                    got.retain(|waited| waited.cob != pair.1);
                }
            }
            LockEvent::Grant | LockEvent::Returned => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, id, with_facts};

    const S: u64 = 1_000_000_000;

    fn told(host: &str, seq: u64, at_s: u64, event: &str, cob: &str, detail: &str) -> HistoryEntry {
        let cob = (!cob.is_empty()).then(|| id(cob));
        with_facts(HistoryEntry {
            cob,
            event: event.to_owned(),
            detail: detail.to_owned(),
            ..entry(host, seq, seq, at_s * S)
        })
    }

    fn life() -> Vec<HistoryEntry> {
        vec![
            told("n1", 1, 1, "go", "", "to generation 7"),
            told("n1", 2, 2, "activate", "", ""),
            told("n1", 3, 3, "start", "n1/db", ""),
            told("n1", 4, 4, "prepare", "", "generation 8"),
            told("n1", 5, 5, "go", "", "to generation 8, by alice"),
            told("n1", 6, 6, "request", "n1/db", "n2/app@down"),
            told("n1", 7, 8, "request", "n1/db", "n1/x@up|on"),
            told("n1", 8, 9, "hold", "n1/db", "n1/x"),
            told("n1", 9, 11, "gone", "n1/old", ""),
            HistoryEntry { generation: GenerationNumber(8), ..told("n1", 10, 11, "activate", "", "") },
            told("n1", 11, 12, "hold", "n1/db", "n2/app"),
            told("n1", 12, 13, "start", "n1/db", ""),
            told("n1", 13, 500, "end", "n1/db", ""),
            HistoryEntry { generation: GenerationNumber(8), ..told("n1", 13, 500, "settled", "", "generation 8") },
            told("n1", 14, 510, "check", "n1/db", ""),
            told("n1", 15, 9000, "start", "n1/db", ""),
            told("n1", 16, 9001, "end", "n1/db", ""),
            told("n1", 17, 9005, "go", "", "to generation 9"),
            told("n1", 18, 9006, "start", "n1/db", ""),
        ]
    }

    fn steps(generation: u64, all: bool) -> Vec<ReplayStep> {
        let mut replay = Replay::of(GenerationNumber(generation));
        life().into_iter().for_each(|entry| replay.take(entry));
        replay.steps(all)
    }

    #[test]
    fn a_switch_is_cut_out_of_the_history() {
        let seqs = |steps: &[ReplayStep]| steps.iter().map(|s| s.entry.seq).collect::<Vec<_>>();
        let own = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13];
        assert_eq!(seqs(&steps(8, false)), own, "a long action belongs to it, a later action does not");
        assert_eq!(seqs(&steps(8, true)), [&own[..], &[14, 15, 16]].concat());
        assert_eq!(seqs(&steps(9, false)), [17, 18]);
        assert_eq!(seqs(&steps(10, false)), [] as [u64; 0]);
    }

    #[test]
    fn every_step_of_a_replay_shows_its_waits() {
        let steps = steps(8, false);
        let of = |seq: u64| {
            let step = steps.iter().find(|s| s.entry.seq == seq).expect("a step");
            let waited: Vec<_> = step.waited.iter().map(|w| (w.of.as_str(), w.ns / S)).collect();
            (step.offset_ns / S, waited)
        };
        assert_eq!(of(12), (9, vec![("n2/app@down", 6), ("n1/x@up|on", 1)]));
        assert_eq!(of(10), (7, vec![("n1/old gone", 6)]));
        assert_eq!(of(13), (496, vec![]));
    }

    /// The entries of a replay of generation 8 from these entries, as `HOST EVENT`.
    fn replayed(entries: Vec<HistoryEntry>) -> Vec<String> {
        let mut replay = Replay::of(GenerationNumber(8));
        for entry in entries {
            replay.take(HistoryEntry { generation: GenerationNumber(8), ..entry });
        }
        replay.steps(false).iter().map(|s| format!("{} {}", s.entry.host, s.entry.event)).collect()
    }

    #[test]
    fn a_switch_in_steps_is_a_single_switch() {
        let told = replayed(vec![
            told("n1", 1, 1, "prepare", "", "generation 8"),
            told("n1", 2, 2, "terms", "", "to generation 8, by ann"),
            told("n1", 2, 2, "go", "", "to generation 5, by ann"),
            told("n1", 3, 3, "activate", "", ""),
            told("n1", 4, 4, "start", "n1/db", ""),
            told("n1", 5, 4, "go", "", "to generation 8"),
            told("n1", 6, 5, "end", "n1/db", ""),
            told("n1", 7, 6, "go", "", "to generation 9"),
        ]);
        assert_eq!(told.join(", "), "n1 prepare, n1 terms, n1 go, n1 activate, n1 start, n1 go, n1 end");
    }

    #[test]
    fn a_replay_of_a_stuck_switch_ends_where_it_is_stuck() {
        let told = replayed(vec![
            told("n1", 1, 1, "go", "", "to generation 8"),
            told("n1", 2, 1, "activate", "", ""),
            told("n1", 3, 2, "check", "n1/db", ""),
            told("n1", 4, 2, "request", "n1/db", "n2/app@up"),
            told("n1", 5, 3, "prepare", "", "generation 9"),
            told("n1", 6, 9, "stuck", "n1/db", "n1/db -> n1/x"),
            told("n1", 7, 50, "cancel", "", "the switch to generation 8"),
            told("n1", 8, 300, "check", "n1/db", ""),
        ]);
        assert_eq!(told, ["n1 go", "n1 activate", "n1 check", "n1 request", "n1 stuck", "n1 cancel"]);
    }

    #[test]
    fn a_replay_of_a_rolled_back_switch_ends_at_its_rollback() {
        let told = replayed(vec![
            told("n1", 1, 1, "go", "", "to generation 8"),
            told("n2", 1, 1, "go", "", "to generation 8"),
            told("n1", 2, 1, "activate", "", ""),
            told("n1", 3, 2, "start", "n1/db", ""),
            told("n1", 4, 3, "cancel", "", "the switch to generation 8"),
            told("n1", 5, 3, "withdraw", "", "generation 8, back to 7: ordered"),
            told("n1", 6, 3, "return", "", "from generation 8 to 7"),
            told("n1", 7, 3, "go", "", "to generation 7"),
            told("n2", 2, 4, "withdraw", "", "generation 8, back to 7: ordered"),
            told("n2", 3, 4, "return", "", "from generation 8 to 7"),
            told("n2", 4, 4, "go", "", "to generation 7"),
            told("n1", 8, 5, "end", "n1/db", ""),
        ]);
        let back = ["n1 cancel", "n1 withdraw", "n1 return", "n2 withdraw", "n2 return"];
        assert_eq!(told, [&["n1 go", "n2 go", "n1 activate", "n1 start"][..], &back].concat());
    }

    #[test]
    fn a_replay_ends_when_all_hosts_have_converged() {
        let told = replayed(vec![
            told("n1", 1, 1, "go", "", "to generation 8"),
            told("n1", 2, 1, "activate", "", ""),
            told("n1", 3, 2, "settled", "", "generation 8"),
            told("n1", 4, 5, "prepare", "", "generation 9"),
            told("n1", 5, 6, "check", "n1/db", ""),
            told("n1", 6, 6, "settled", "", ""),
            told("n1", 7, 7, "terms", "", "to generation 9, on failure: rollback"),
            told("n1", 8, 7, "go", "", "to generation 9, by ann"),
        ]);
        assert_eq!(told, ["n1 go", "n1 activate", "n1 settled"]);
    }

    #[test]
    fn a_request_dropped_before_its_grant_is_not_shown_as_a_wait() {
        let mut replay = Replay::of(GenerationNumber(8));
        let entries = [
            told("n1", 1, 1, "go", "", "to generation 8"),
            told("n1", 2, 1, "request", "n1/db", "n2/app@up"),
            told("n1", 3, 2, "start", "n1/db", ""),
            told("n1", 4, 3, "end", "n1/db", ""),
            told("n1", 5, 30, "request", "n1/db", "n2/app@up"),
            told("n1", 6, 31, "hold", "n1/db", "n2/app"),
            told("n1", 7, 32, "start", "n1/db", ""),
        ];
        entries.into_iter().for_each(|entry| replay.take(entry));
        let steps = replay.steps(true);
        let waited = |at: usize| steps[at].waited.iter().map(|w| w.ns / S).collect::<Vec<_>>();
        assert_eq!((waited(2), waited(6)), (vec![], vec![1]));
    }

    #[test]
    fn a_replay_shows_the_last_of_several_switches_to_a_generation() {
        let mut all = life();
        all.push(told("n1", 19, 9100, "go", "", "to generation 8"));
        all.push(told("n1", 20, 9101, "start", "n1/db", ""));
        let mut replay = Replay::of(GenerationNumber(8));
        all.into_iter().for_each(|entry| replay.take(entry));
        assert_eq!(replay.steps(true).iter().map(|s| s.entry.seq).collect::<Vec<_>>(), [19, 20]);
    }
}
