//! `cobctl durations`: the durations of actions, in the form that `cobgen plan --durations` reads.
//!
//! Services with `actions` have a change object on each node, `NODE/SERVICE/instance`, and each of its transitions is
//! an action, identified by its target state. A transition from `outdated` combines two actions, whose separate
//! durations are not known.

use std::collections::BTreeMap;

use cob_types::StateName;
use cob_types::history::HistoryEntry;
use cob_types::past::{RecordedTransition, Running};
use serde_json::Value;

use super::recorded::{Latest, Record, took};
use super::saved::{self, Parts};
use super::transitions::Transitions;
use super::{Context, history};
use crate::args::DurationsArgs;
use crate::failure::{CommandResult, Exit, Failure};
use crate::screen::Screen;

/// How many recent runs of each action on a node count.
const LAST: usize = 9;

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &DurationsArgs) -> CommandResult {
    if args.transitions {
        return Ok(print::<Transitions>(context, screen, args).await?.1);
    }
    let (recorded, exit) = print::<Recorded>(context, screen, args).await?;
    if recorded.others > 0 {
        let others = cob_types::words::count(recorded.others, "transition");
        screen.problem(
            "note",
            &format!("{others} of change objects without service actions left out: use `--transitions`"),
        );
    }
    Ok(exit)
}

async fn print<R: Record>(context: &Context, screen: &mut Screen, args: &DurationsArgs) -> Result<(R, Exit), Failure> {
    let since = args.since_generation.map(|named| context.generation(named)).transpose()?;
    let mut recorded = R::default();
    let mut exit = Exit::Yes;
    if args.histories.is_empty() {
        exit = history::each(context, screen, since, |entry| recorded.take(entry)).await?;
        recorded.end();
    }
    let counts = |entry: &HistoryEntry| since.is_none_or(|since| entry.generation >= since);
    let (mut wrong, mut parts) = (Vec::new(), Parts::default());
    for file in &args.histories {
        let mut part = Vec::new();
        let read = saved::each(file, screen, |entry| part.extend(Some(entry).filter(&counts)));
        wrong.extend(read.err());
        parts.add(part);
    }
    for history in parts.histories() {
        history.for_each(|entry| recorded.take(entry));
        recorded.end();
    }
    // Report all invalid files, and print no result.
    let last = wrong.pop();
    for failure in wrong {
        failure.print(screen);
    }
    if let Some(failure) = last {
        return Err(failure);
    }
    if recorded.left_out() > 0 {
        let times = cob_types::words::count(recorded.left_out(), "time");
        screen.problem("note", &format!("{times} left out, because a host's clock was corrected meanwhile"));
    }
    let lines = recorded.lines();
    let text = serde_json::to_string_pretty(&lines).map_err(Failure::environment)?;
    screen.line(&text)?;
    let exit = if exit == Exit::Yes && lines.is_empty() { Exit::No } else { exit };
    Ok((recorded, exit))
}

/// The durations of actions in the histories.
#[derive(Debug, Default)]
struct Recorded {
    running: Running,
    /// Milliseconds by action, service and node, each identified by the time of its end.
    times: BTreeMap<(&'static str, String, String), Latest<u64, u64>>,
    /// Successful transitions that are no action of a plan.
    others: usize,
    left_out: usize,
}

impl Record for Recorded {
    fn take(&mut self, entry: HistoryEntry) {
        if let Some(ended) = self.running.take(&entry) {
            self.ended(&ended, entry.ts_ns);
        }
    }

    fn end(&mut self) {
        self.running = Running::default();
    }

    fn left_out(&self) -> usize {
        self.left_out
    }

    /// `ACTION SERVICE NODE`, `ACTION SERVICE` and `ACTION`, each with the median.
    fn lines(&self) -> BTreeMap<String, Value> {
        let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for ((action, service, node), times) in &self.times {
            for key in [format!("{action} {service} {node}"), format!("{action} {service}"), (*action).to_owned()] {
                all.entry(key).or_default().extend(times.values());
            }
        }
        all.into_iter().map(|(key, times)| (key, format!("{}ms", median(times)).into())).collect()
    }
}

impl Recorded {
    fn ended(&mut self, RecordedTransition { cob, from, to, began_ns }: &RecordedTransition, at: u64) {
        let service = cob.name().strip_suffix("/instance").filter(|service| !service.contains('/'));
        let action = action(from, to);
        let (Some(service), Some(action)) = (service, action) else {
            self.others += 1;
            return;
        };
        let Some(ns) = took(*began_ns, at) else {
            self.left_out += 1;
            return;
        };
        let times = self.times.entry((action, service.to_owned(), cob.host_str().to_owned())).or_default();
        times.add(at, ns / 1_000_000, LAST);
    }
}

/// The action that a transition performs; `None`: another transition, or two actions in a single transition.
fn action(from: &StateName, to: &StateName) -> Option<&'static str> {
    if *from == StateName::OUTDATED {
        return None;
    }
    match to.as_str() {
        "installed" => Some("install"),
        "configured" => Some("configure"),
        "initialized" => Some("initialize"),
        "started" => Some("start"),
        "stopped" => Some("stop"),
        "absent" => Some("remove"),
        _ => None,
    }
}

/// The median; of an even number the upper middle value.
fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::testing::{entry, id, state};

    /// An action from `from` to `to` with this duration.
    fn action(recorded: &mut Recorded, cob: &str, from: &str, to: &str, ms: u64, ok: Option<bool>) {
        // No two actions end at the same moment.
        static BEGUN: AtomicU64 = AtomicU64::new(1_795_226_464_000_000_000);
        let base = entry(id(cob).host_str(), 1, 1, BEGUN.fetch_add(1, Ordering::Relaxed));
        let base = HistoryEntry { cob: Some(id(cob)), from: Some(state(from)), to: Some(state(to)), ..base };
        recorded.take(HistoryEntry { event: "start".to_owned(), ..base.clone() });
        recorded.take(HistoryEntry { event: "check".to_owned(), ..base.clone() });
        recorded.take(HistoryEntry { event: "end".to_owned(), ok, ts_ns: base.ts_ns + ms * 1_000_000, ..base });
    }

    fn lines(recorded: &Recorded) -> String {
        recorded
            .lines()
            .iter()
            .map(|(key, time)| format!("{key}: {}", time.as_str().expect("text")))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_duration_is_the_median_of_the_successful_actions() {
        let mut r = Recorded::default();
        for (ms, ok) in [(100, Some(true)), (90_000, Some(false)), (300, Some(true)), (5, None), (200, Some(true))] {
            action(&mut r, "n1/db/instance", "absent", "installed", ms, ok);
        }
        action(&mut r, "n2/db/instance", "absent", "installed", 1000, Some(true));
        action(&mut r, "n2/app/instance", "configured", "started", 40, Some(true));
        action(&mut r, "n2/app/instance", "started", "stopped", 20, Some(true));
        action(&mut r, "n2/app/instance", "stopped", "absent", 10, Some(true));
        let expected = "\
            install: 300ms\ninstall db: 300ms\ninstall db n1: 200ms\ninstall db n2: 1000ms\n\
            remove: 10ms\nremove app: 10ms\nremove app n2: 10ms\n\
            start: 40ms\nstart app: 40ms\nstart app n2: 40ms\nstop: 20ms\nstop app: 20ms\nstop app n2: 20ms";
        assert_eq!((lines(&r).as_str(), r.others), (expected, 0));
    }

    #[test]
    fn a_transition_without_an_action_of_a_plan_is_counted_and_left_out() {
        let mut r = Recorded::default();
        action(&mut r, "n1/db/server", "down", "up", 100, Some(true));
        action(&mut r, "n1/db/instance", "outdated", "stopped", 100, Some(true));
        action(&mut r, "n1/instance", "absent", "installed", 100, Some(true));
        assert_eq!((lines(&r).as_str(), r.others), ("", 3));
        // An end without a start: the history begins later.
        let base = entry("n1", 1, 1, 5);
        r.take(HistoryEntry { cob: Some(id("n1/db/instance")), event: "end".to_owned(), ok: Some(true), ..base });
        assert_eq!(lines(&r), "");
    }

    #[test]
    fn recent_durations_replace_old_durations() {
        let mut r = Recorded::default();
        for ms in [9000; 20].into_iter().chain([10; 9]) {
            action(&mut r, "n1/db/instance", "initialized", "started", ms, Some(true));
        }
        assert_eq!(r.lines()["start db n1"], "10ms");
    }
}
