//! One switch, step by step: every entry with its time from the beginning and what it had waited for.

use std::collections::BTreeMap;

use cob_types::history::HistoryEntry;
use cob_types::{CobId, GenerationNumber, HostName};
use serde::Serialize;

use super::picture::generation_in;

/// A switch has ended when nothing has begun or ended for so long after the last host has activated.
const QUIET_NS: u64 = 60_000_000_000;

/// One entry of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Nanoseconds since the first entry of the switch, by the clocks of the hosts.
    pub offset_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: HistoryEntry,
    /// What it had waited for until then, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Waited>,
}

/// A lock that was waited for, or a change object that had to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// `COB@STATE|STATE`; or `COB gone`.
    pub of: String,
    /// How long.
    pub ns: u64,
}

/// Takes the entries of the merged history, and keeps those of the last switch to a generation.
#[derive(Debug)]
pub struct Replay {
    generation: GenerationNumber,
    hosts: BTreeMap<HostName, Part>,
    taken: usize,
}

/// What one host did in the switch.
#[derive(Debug, Default)]
struct Part {
    /// It has `go`, and no other one since.
    on: bool,
    /// Its word to get ready, as long as there is no `go`.
    prepared: Option<(usize, HistoryEntry)>,
    entries: Vec<(usize, HistoryEntry)>,
}

impl Replay {
    /// The last switch to this generation.
    #[must_use]
    pub fn of(generation: GenerationNumber) -> Self {
        Self { generation, hosts: BTreeMap::new(), taken: 0 }
    }

    /// Takes the next entry of the merged history.
    pub fn take(&mut self, entry: HistoryEntry) {
        let place = self.taken;
        self.taken += 1;
        let part = self.hosts.entry(entry.host.clone()).or_default();
        let here = || generation_in(&entry.detail) == Some(self.generation);
        match entry.event.as_str() {
            "prepare" if here() && !part.on => part.prepared = Some((place, entry)),
            "go" if here() && !part.on => {
                part.on = true;
                part.entries = part.prepared.take().into_iter().collect();
                part.entries.push((place, entry));
            }
            "go" if !here() => part.on = false,
            _ if part.on => part.entries.push((place, entry)),
            _ => {}
        }
    }

    /// The steps, in the order of the merged history; with `all`, until the next switch of each host.
    #[must_use]
    pub fn steps(self, all: bool) -> Vec<Step> {
        let mut entries: Vec<_> = self.hosts.into_values().flat_map(|part| part.entries).collect();
        entries.sort_by_key(|(place, _)| *place);
        let mut entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
        if !all {
            entries.truncate(end(&entries, self.generation));
        }
        let begin = entries.iter().map(|e| e.ts_ns).min().unwrap_or_default();
        let mut waiting = Waiting::default();
        let step = |entry: HistoryEntry| Step { offset_ns: entry.ts_ns - begin, waited: waiting.before(&entry), entry };
        entries.into_iter().map(step).collect()
    }
}

/// How many of the entries belong to the switch itself: up to the last beginning, end or departure that came not later
/// than [`QUIET_NS`] after the one before, once every host has activated.
fn end(entries: &[HistoryEntry], generation: GenerationNumber) -> usize {
    let activated = entries.iter().rposition(|e| e.event == "activate" && e.generation == generation);
    let (mut end, mut last, mut running) = (0, None, 0u32);
    for (at, entry) in entries.iter().enumerate() {
        let was_quiet = running == 0;
        match entry.event.as_str() {
            "start" => running += 1,
            "end" => running = running.saturating_sub(1),
            "go" | "prepare" | "activate" | "gone" | "failed" | "drift" => {}
            _ => continue,
        }
        let late = last.is_some_and(|last| entry.ts_ns > last + QUIET_NS);
        if late && was_quiet && activated.is_some_and(|activated| at > activated) {
            break;
        }
        (end, last) = (at + 1, Some(entry.ts_ns));
    }
    end
}

/// Who waits for what, as the entries tell.
#[derive(Debug, Default)]
struct Waiting {
    /// Asked for and not got, by who asks and who is asked: what, and since when.
    asked: BTreeMap<(CobId, String), (String, u64)>,
    got: BTreeMap<CobId, Vec<Waited>>,
    /// When each host was told to go, and what has left since.
    leaving: BTreeMap<HostName, (u64, Vec<Waited>)>,
}

impl Waiting {
    /// Takes note of an entry, and gives what it had waited for.
    fn before(&mut self, entry: &HistoryEntry) -> Vec<Waited> {
        let mut waited = match (entry.event.as_str(), &entry.cob) {
            ("go", _) => {
                self.leaving.insert(entry.host.clone(), (entry.ts_ns, Vec::new()));
                return Vec::new();
            }
            ("activate", _) => self.leaving.remove(&entry.host).map(|(_, left)| left).unwrap_or_default(),
            ("gone", Some(cob)) => {
                if let Some((since, left)) = self.leaving.get_mut(&entry.host) {
                    left.push(Waited { of: format!("{cob} gone"), ns: entry.ts_ns.saturating_sub(*since) });
                }
                return Vec::new();
            }
            ("start", Some(cob)) => self.got.remove(cob).unwrap_or_default(),
            (_, Some(cob)) => {
                self.lock(cob, entry);
                return Vec::new();
            }
            (_, None) => return Vec::new(),
        };
        waited.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.of.cmp(&b.of)));
        waited
    }

    fn lock(&mut self, cob: &CobId, entry: &HistoryEntry) {
        let of = entry.detail.rsplit_once('@').map_or(&*entry.detail, |(of, _)| of);
        let pair = (cob.clone(), of.to_owned());
        match entry.event.as_str() {
            "request" => _ = self.asked.entry(pair).or_insert((entry.detail.clone(), entry.ts_ns)),
            "hold" => {
                if let Some((of, since)) = self.asked.remove(&pair) {
                    let ns = entry.ts_ns.saturating_sub(since);
                    self.got.entry(cob.clone()).or_default().push(Waited { of, ns });
                }
            }
            "release" => {
                self.asked.remove(&pair);
                let begins = format!("{of}@");
                if let Some(got) = self.got.get_mut(cob) {
                    got.retain(|waited| !waited.of.starts_with(&begins));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, id};

    const S: u64 = 1_000_000_000;

    fn told(host: &str, seq: u64, at_s: u64, event: &str, cob: &str, detail: &str) -> HistoryEntry {
        let cob = (!cob.is_empty()).then(|| id(cob));
        HistoryEntry { cob, event: event.to_owned(), detail: detail.to_owned(), ..entry(host, seq, seq, at_s * S) }
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
            told("n1", 14, 510, "check", "n1/db", ""),
            told("n1", 15, 9000, "start", "n1/db", ""),
            told("n1", 16, 9001, "end", "n1/db", ""),
            told("n1", 17, 9005, "go", "", "to generation 9"),
            told("n1", 18, 9006, "start", "n1/db", ""),
        ]
    }

    fn steps(generation: u64, all: bool) -> Vec<Step> {
        let mut replay = Replay::of(GenerationNumber(generation));
        life().into_iter().for_each(|entry| replay.take(entry));
        replay.steps(all)
    }

    #[test]
    fn a_switch_is_cut_out_of_the_history() {
        let seqs = |steps: &[Step]| steps.iter().map(|s| s.entry.seq).collect::<Vec<_>>();
        assert_eq!(
            seqs(&steps(8, false)),
            (4..=13).collect::<Vec<_>>(),
            "a long action belongs to it, a later one not"
        );
        assert_eq!(seqs(&steps(8, true)), (4..=16).collect::<Vec<_>>());
        assert_eq!(seqs(&steps(9, false)), [17, 18]);
        assert_eq!(seqs(&steps(10, false)), [] as [u64; 0]);
    }

    #[test]
    fn every_step_knows_what_it_waited_for() {
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

    #[test]
    fn the_last_of_several_switches_to_it_counts() {
        let mut all = life();
        all.push(told("n1", 19, 9100, "go", "", "to generation 8"));
        all.push(told("n1", 20, 9101, "start", "n1/db", ""));
        let mut replay = Replay::of(GenerationNumber(8));
        all.into_iter().for_each(|entry| replay.take(entry));
        assert_eq!(replay.steps(true).iter().map(|s| s.entry.seq).collect::<Vec<_>>(), [19, 20]);
    }
}
