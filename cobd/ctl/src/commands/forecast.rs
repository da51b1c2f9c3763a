//! Compares a plan of `cobgen plan --from --json` with the hosts' histories.

use std::cmp::Ordering;
use std::path::Path;

use cob_forecast::SwitchPlan;
use cob_forecast::plan::Planned;
use cob_forecast::progress::{Made, Progress, Standing, WhyIdle};
use cob_forecast::show::time;
use cob_types::history::HistoryEntry;
use cob_types::{GenerationNumber, HostName};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::screen::{Paint, Screen};
use crate::words::{count, list};

/// A plan and its progress.
#[derive(Debug)]
pub(super) struct Beside {
    plan: SwitchPlan,
    progress: Progress,
}

impl Beside {
    /// Reads a plan.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let plan = SwitchPlan::read(path).map_err(|what| {
            let error = format!("the plan {} can't be read: {what}", path.display());
            Failure::usage(error).hint("`cobgen plan --from N --to M --json` prints one")
        })?;
        Ok(Self::of(plan))
    }

    fn of(plan: SwitchPlan) -> Self {
        Self { progress: Progress::new(&plan), plan }
    }

    /// Takes the next entry of the merged history.
    pub(super) fn take(&mut self, entry: &HistoryEntry) {
        self.progress.take(&self.plan, entry);
    }

    /// The generations before and after the switch: their hosts take part.
    pub(super) fn generations(&self) -> impl Iterator<Item = GenerationNumber> + use<> {
        [self.plan.from, self.plan.to].into_iter()
    }

    /// Whether the switch has ever started.
    pub(super) fn has_begun(&self) -> bool {
        self.progress.began().is_some()
    }

    /// Forgets a switch that all hosts have rolled back: the planned switch is still to come.
    pub(super) fn wait_for_the_next(&mut self) {
        if self.progress.is_left() {
            self.progress.begin(&self.plan);
        }
    }

    /// How many transitions have ended, how many wait for paused hosts, and when the last one ends.
    pub(super) fn stands(&self, now_ns: u64) -> (usize, usize, u64) {
        let stands = self.progress.stands(&self.plan, now_ns);
        (stands.ended, stands.held, stands.end_us)
    }

    /// The present forecast in a line.
    pub(super) fn line(&self, now_ns: u64) -> String {
        let (plan, Some(began)) = (&self.plan, self.progress.began()) else {
            return format!(
                "plan {} -> {}: not started; {} would take {}",
                self.plan.from,
                self.plan.to,
                count(self.plan.transitions.len(), "transition"),
                time(self.plan.forecast.p50_us)
            );
        };
        let stands = self.progress.stands(plan, now_ns);
        let all = plan.transitions.len();
        let made = format!("{} of {} made", stands.ended, count(all, "transition"));
        let late = apart(stands.end_us, plan.forecast.p50_us);
        let when = if stands.ended == all {
            format!("all done after {}", time(stands.end_us))
        } else if stands.held > 0 {
            let running = stands.running;
            return format!("plan {} -> {}: {made}, {running} run; end unknown{}", plan.from, plan.to, other(&stands));
        } else if stands.running == 0 && stands.ended + stands.stuck == all {
            return format!(
                "plan {} -> {}: {made}; no further transition starts by itself{}",
                plan.from,
                plan.to,
                other(&stands)
            );
        } else {
            let left = stands.end_us.saturating_sub(now_ns.saturating_sub(began) / 1000);
            format!("{} run; ends after {}, {} from now", stands.running, time(stands.end_us), time(left))
        };
        let beyond = other(&stands);
        format!("plan {} -> {}: {made}, {when}; {late}{beyond}", plan.from, plan.to)
    }

    /// The present forecast as JSON.
    pub(super) fn json(&self, now_ns: u64) -> Value {
        let stands = self.progress.stands(&self.plan, now_ns);
        let transition = |(step, now): (&Planned, &cob_forecast::progress::Expected)| {
            let made = match now.made {
                Made::Not => "not",
                Made::Runs(_) => "runs",
                Made::Failed(_) => "failed",
                Made::Ended(..) => "ended",
            };
            json!({
                "id": step.id, "cob": step.cob, "from": step.from, "to": step.to, "made": made,
                "planned": {"begin_us": step.begin_us, "end_us": step.end_us},
                "now": {"begin_us": now.begin_us, "end_us": now.end_us},
            })
        };
        let transitions: Vec<Value> = self.plan.transitions.iter().zip(&stands.transitions).map(transition).collect();
        json!({
            "from": self.plan.from, "to": self.plan.to, "begun": self.has_begun(),
            "planned_end_us": self.plan.forecast.end_us, "planned_p50_us": self.plan.forecast.p50_us,
            "planned_p90_us": self.plan.forecast.p90_us,
            "end_us": stands.end_us, "ended": stands.ended, "running": stands.running,
            "unplanned": stands.unplanned, "failed": stands.failed, "left": stands.left, "stuck": stands.stuck,
            "held": stands.held, "paused": still(&stands, WhyIdle::Paused), "cancelled": still(&stands, WhyIdle::Cancelled),
            "elsewhere": stands.elsewhere, "transitions": transitions,
        })
    }

    /// Planned and real times, for each transition and in total.
    pub(super) fn compared(&self, screen: &Screen) -> Vec<String> {
        // Unfinished transitions are not compared, so the present time does not matter.
        let stands = self.progress.stands(&self.plan, 0);
        let mut table = screen.table(&["TRANSITION", "PLANNED", "WAS", "BEGAN", "TOOK"]);
        for (step, now) in self.plan.transitions.iter().zip(&stands.transitions) {
            let planned = format!("{} to {}", time(step.begin_us), time(step.end_us));
            let (was, began, took) = match now.made {
                Made::Not => ("not made".to_owned(), String::new(), String::new()),
                Made::Runs(_) => ("runs".to_owned(), apart(now.begin_us, step.begin_us), String::new()),
                Made::Failed(_) => ("failed".to_owned(), String::new(), String::new()),
                Made::Ended(..) => {
                    let (planned, real) =
                        (step.end_us.saturating_sub(step.begin_us), now.end_us.saturating_sub(now.begin_us));
                    let was = format!("{} to {}", time(now.begin_us), time(now.end_us));
                    (was, apart(now.begin_us, step.begin_us), compared(real, planned, ("longer", "less")))
                }
            };
            table.add_row([format!("{} {} -> {}", step.cob, step.from, step.to), planned, was, began, took]);
        }
        let mut lines = screen.lines(&table);
        lines.push(String::new());
        lines.push(self.in_all(&stands, screen));
        lines
    }

    fn in_all(&self, stands: &Standing, screen: &Screen) -> String {
        let plan = &self.plan;
        let all = plan.transitions.len();
        if stands.ended < all {
            let text = format!("{} of {} made{}", stands.ended, count(all, "transition"), other(stands));
            return screen.paint(Paint::Bad, &text);
        }
        let (planned, real) = (plan.forecast.p50_us, stands.end_us);
        let error = planned.abs_diff(real).saturating_mul(1000) / real.max(1);
        let (percent, tenth) = (error / 10, error % 10);
        let within = if real <= plan.forecast.p90_us { "" } else { ", later than 90 % of the simulated runs" };
        format!(
            "planned end {}, real end {}: {}, {percent}.{tenth} % apart{within}{}",
            time(planned),
            time(real),
            apart(real, planned),
            other(stands)
        )
    }
}

/// The hosts that are paused for this reason.
fn still(stands: &Standing, why: WhyIdle) -> Vec<&HostName> {
    stands.still.iter().filter(|(_, is)| **is == why).map(|(host, _)| host).collect()
}

fn other(stands: &Standing) -> String {
    let mut text = String::new();
    for (why, word) in [(WhyIdle::Paused, "paused"), (WhyIdle::Cancelled, "cancelled")] {
        let hosts = still(stands, why);
        if !hosts.is_empty() {
            text.push_str(&format!("; {word} on {}", list(hosts, 6)));
        }
    }
    if stands.held > 0 {
        text.push_str(&format!("; {} wait for `cobctl resume`", count(stands.held, "transition")));
    }
    if stands.failed > 0 {
        text.push_str(&format!("; {} failed", count(stands.failed, "attempt")));
    }
    if stands.stuck > 0 {
        text.push_str(&format!("; {} will not start by themselves", count(stands.stuck, "transition")));
    }
    if stands.unplanned > 0 {
        text.push_str(&format!("; {} outside the plan", count(stands.unplanned, "transition")));
    }
    if stands.left > 0 {
        text.push_str(&format!("; {} switched elsewhere since, not counted", count(stands.left, "host")));
    }
    if !stands.elsewhere.is_empty() {
        let from = list(&stands.elsewhere, 3);
        text.push_str(&format!("; hosts came from generation {from}, unlike in the plan"));
    }
    text
}

fn apart(real: u64, planned: u64) -> String {
    compared(real, planned, ("late", "early"))
}

fn compared(real: u64, planned: u64, (more, less): (&str, &str)) -> String {
    match real.cmp(&planned) {
        Ordering::Greater => format!("{} {more}", time(real - planned)),
        Ordering::Less => format!("{} {less}", time(planned - real)),
        Ordering::Equal => "as planned".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, id, state, with_facts};

    /// Two transitions, one after the other, of a second each.
    fn plan() -> Beside {
        let step = |at: u64, cob: &str| {
            let before: Vec<u64> = (at > 0).then(|| at - 1).into_iter().collect();
            let mut step = json!({
                "id": at, "cob": cob, "from": "down", "to": "up", "begin_us": at * 1_000_000,
                "end_us": (at + 1) * 1_000_000, "after": before, "lag_us": 0, "slack_us": 0, "stage": at + 1,
                "why": {"because": "new"}, "duration": {"min": 1, "median": 1, "p90": 1}, "known": true,
            });
            if at > 0 {
                step["cause"] = json!(at - 1);
            }
            step
        };
        let plan = json!({
            "format": 1, "from": 6, "to": 7, "moved": [], "groups": [], "untouched_hosts": 0,
            "transitions": [step(0, "n1/db"), step(1, "n2/app")], "stages": [[0], [1]], "interrupted": [],
            "irreversible": [], "critical_path": [0, 1],
            "forecast": {"end_us": 2_000_000, "p50_us": 2_000_000, "p90_us": 2_500_000, "runs": 0, "seed": 1,
                "known": 2, "converges": true},
            "changes": {"what": "others read"},
        });
        Beside::of(SwitchPlan::of_json(&plan.to_string()).expect("a plan"))
    }

    const BEGAN: u64 = 1_000_000_000_000;

    fn told(beside: &mut Beside, cob: &str, event: &str, ms: u64, ok: Option<bool>) {
        let base = entry(id(cob).host_str(), 1, 1, BEGAN + ms * 1_000_000);
        let (from, to) = (Some(state("down")), Some(state("up")));
        beside.take(&HistoryEntry { cob: Some(id(cob)), event: event.to_owned(), from, to, ok, ..base });
    }

    fn go(beside: &mut Beside) {
        ["n1", "n2"].into_iter().for_each(|host| go_on(beside, host, 0));
    }

    fn go_on(beside: &mut Beside, host: &str, ms: u64) {
        let detail = "to generation 7".to_owned();
        beside.take(&with_facts(HistoryEntry {
            event: "go".to_owned(),
            detail,
            ..entry(host, 1, 1, BEGAN + ms * 1_000_000)
        }));
    }

    #[test]
    fn the_progress_of_a_plan_is_shown_in_a_line() {
        let mut beside = plan();
        let mut lines = vec![beside.line(BEGAN)];
        go(&mut beside);
        told(&mut beside, "n1/db", "start", 10, None);
        lines.push(beside.line(BEGAN + 500_000_000));
        told(&mut beside, "n1/db", "end", 1500, Some(true));
        lines.push(beside.line(BEGAN + 1_500_000_000));
        told(&mut beside, "n2/app", "start", 1500, None);
        told(&mut beside, "n2/app", "end", 2400, Some(true));
        lines.push(beside.line(BEGAN + 9_000_000_000));
        let expected = [
            "plan 6 -> 7: not started; 2 transitions would take 2.000 s",
            "plan 6 -> 7: 0 of 2 transitions made, 1 run; ends after 2.010 s, 1.510 s from now; 10 ms late",
            "plan 6 -> 7: 1 of 2 transitions made, 0 run; ends after 2.500 s, 1.000 s from now; 500 ms late",
            "plan 6 -> 7: 2 of 2 transitions made, all done after 2.400 s; 400 ms late",
        ];
        assert_eq!(lines, expected);
        assert_eq!(beside.json(BEGAN + 9_000_000_000)["end_us"], 2_400_000);
    }

    #[test]
    fn the_comparison_shows_planned_and_real_times() {
        let mut beside = plan();
        go(&mut beside);
        told(&mut beside, "n1/db", "start", 10, None);
        told(&mut beside, "n1/db", "end", 1500, Some(true));
        let (screen, _) = Screen::memory();
        let half = beside.compared(&screen);
        assert!(half.last().is_some_and(|line| line == "1 of 2 transitions made"), "{half:?}");
        told(&mut beside, "n2/app", "start", 1500, None);
        told(&mut beside, "n2/app", "end", 2400, Some(true));
        let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = beside.compared(&screen).into_iter().map(words).collect();
        let expected = [
            "TRANSITION PLANNED WAS BEGAN TOOK",
            "n1/db down -> up 0 ms to 1.000 s 10 ms to 1.500 s 10 ms late 490 ms longer",
            "n2/app down -> up 1.000 s to 2.000 s 1.500 s to 2.400 s 500 ms late 100 ms less",
            "",
            "planned end 2.000 s, real end 2.400 s: 400 ms late, 16.6 % apart",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_planned_transition_before_the_switch_of_its_own_host_counts() {
        let mut beside = plan();
        // Before any host has started: not part of the switch.
        told(&mut beside, "n1/db", "start", 0, None);
        go_on(&mut beside, "n2", 1);
        // An unplanned transition on a host that has not started does not count.
        told(&mut beside, "n1/other", "start", 2, None);
        told(&mut beside, "n1/other", "end", 3, Some(true));
        told(&mut beside, "n1/db", "start", 4, None);
        go_on(&mut beside, "n1", 5);
        told(&mut beside, "n1/db", "end", 1001, Some(true));
        told(&mut beside, "n2/app", "start", 1001, None);
        told(&mut beside, "n2/app", "end", 2001, Some(true));
        let (screen, _) = Screen::memory();
        let last = "planned end 2.000 s, real end 2.000 s: as planned, 0.0 % apart";
        assert_eq!(beside.compared(&screen).last().map(String::as_str), Some(last));
    }

    /// With an earlier `go` on its host, the transition would start from `outdated`.
    #[test]
    fn a_planned_transition_counts_also_from_another_state() {
        let mut beside = plan();
        go_on(&mut beside, "n2", 0);
        let from = |event: &str, from: &str, ms: u64, ok: Option<bool>| {
            let base = entry("n1", 1, 1, BEGAN + ms * 1_000_000);
            let (from, to) = (Some(state(from)), Some(state("up")));
            HistoryEntry { cob: Some(id("n1/db")), event: event.to_owned(), from, to, ok, ..base }
        };
        beside.take(&from("start", "half", 10, None));
        go_on(&mut beside, "n1", 15);
        beside.take(&from("end", "half", 20, Some(false)));
        beside.take(&from("start", "half", 30, None));
        let in_short = |beside: &Beside| {
            let now = beside.json(BEGAN + 2_500_000_000);
            ["ended", "running", "unplanned", "stuck"].map(|field| now[field].as_u64().expect("a number"))
        };
        assert_eq!(in_short(&beside), [0, 1, 0, 0]);
        beside.take(&from("end", "half", 1010, Some(true)));
        told(&mut beside, "n2/app", "start", 1010, None);
        told(&mut beside, "n2/app", "end", 2010, Some(true));
        assert_eq!(in_short(&beside), [2, 0, 0, 0]);
        // Another transition to that state is not planned.
        beside.take(&from("start", "half", 2020, None));
        assert_eq!(in_short(&beside), [2, 0, 1, 0]);
    }

    #[test]
    fn a_paused_or_cancelled_switch_has_no_predicted_end() {
        let order = |beside: &mut Beside, event: &str, ms: u64| {
            beside.take(&HistoryEntry { event: event.to_owned(), ..entry("n1", 1, 1, BEGAN + ms * 1_000_000) });
        };
        let at = |beside: &Beside, ms: u64| {
            let line = beside.line(BEGAN + ms * 1_000_000);
            line.strip_prefix("plan 6 -> 7: ").map_or(line.clone(), str::to_owned)
        };
        let mut beside = plan();
        go(&mut beside);
        order(&mut beside, "pause", 5);
        let mut lines = vec![at(&beside, 1000), at(&beside, 9000)];
        assert_eq!(beside.stands(BEGAN + 1_000_000_000), beside.stands(BEGAN + 9_000_000_000));
        order(&mut beside, "resume", 9000);
        told(&mut beside, "n1/db", "start", 9000, None);
        order(&mut beside, "cancel", 9500);
        lines.push(at(&beside, 9500));
        told(&mut beside, "n1/db", "end", 9600, Some(false));
        lines.push(at(&beside, 9600));
        let (screen, _) = Screen::memory();
        let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.extend(beside.compared(&screen).into_iter().map(words).filter(|line| line.contains("made")));
        order(&mut beside, "resume", 10_000);
        told(&mut beside, "n1/db", "start", 10_000, None);
        lines.push(at(&beside, 10_500));
        let expected = [
            "0 of 2 transitions made, 0 run; end unknown; paused on n1; \
             2 transitions wait for `cobctl resume`",
            "0 of 2 transitions made, 0 run; end unknown; paused on n1; \
             2 transitions wait for `cobctl resume`",
            "0 of 2 transitions made, 1 run; end unknown; cancelled on n1; \
             2 transitions wait for `cobctl resume`",
            "0 of 2 transitions made, 0 run; end unknown; cancelled on n1; \
             2 transitions wait for `cobctl resume`",
            "n1/db down -> up 0 ms to 1.000 s not made",
            "n2/app down -> up 1.000 s to 2.000 s not made",
            "0 of 2 transitions made; cancelled on n1; 2 transitions wait for `cobctl resume`",
            "0 of 2 transitions made, 1 run; ends after 12.000 s, 1.500 s from now; 10.000 s late",
        ];
        assert_eq!(lines, expected);
        let json = beside.json(BEGAN);
        assert_eq!([&json["held"], &json["failed"]], [0, 0], "a cancelled transition has not failed");
    }

    #[test]
    fn a_switch_from_another_generation_is_not_the_planned_switch() {
        let switched = |beside: &mut Beside, from: u64, to: u64, ms: u64| {
            for host in ["n1", "n2"] {
                let base = entry(host, 1, 1, BEGAN + ms * 1_000_000);
                let under = |generation| HistoryEntry { generation: GenerationNumber(generation), ..base.clone() };
                let detail = format!("to generation {to}, by ann");
                beside.take(&with_facts(HistoryEntry { event: "go".to_owned(), detail, ..under(from) }));
                beside.take(&HistoryEntry { event: "activate".to_owned(), ..under(to) });
            }
        };
        let mut beside = plan();
        switched(&mut beside, 3, 7, 0);
        let elsewhere = "; hosts came from generation 3, unlike in the plan";
        assert!(beside.has_begun() && beside.line(BEGAN).ends_with(elsewhere), "{}", beside.line(BEGAN));
        switched(&mut beside, 7, 8, 1000);
        assert!(beside.has_begun(), "transitions of hosts elsewhere do not count");
        switched(&mut beside, 8, 6, 2000);
        let line = "plan 6 -> 7: not started; 2 transitions would take 2.000 s";
        assert_eq!((beside.has_begun(), beside.line(BEGAN).as_str()), (false, line));
        // The planned switch counts, even after its rollback.
        switched(&mut beside, 6, 7, 3000);
        switched(&mut beside, 7, 6, 4000);
        assert!(beside.has_begun());
    }

    /// The last transitions of the previous switch may come after the first `go` of this switch in causal order.
    #[test]
    fn a_transition_that_ended_before_the_switch_does_not_count() {
        let mut beside = plan();
        go_on(&mut beside, "n2", 500);
        told(&mut beside, "n1/db", "start", 100, None);
        told(&mut beside, "n1/db", "end", 400, Some(true));
        go_on(&mut beside, "n1", 500);
        told(&mut beside, "n1/db", "start", 500, None);
        told(&mut beside, "n1/db", "end", 1500, Some(true));
        told(&mut beside, "n2/app", "start", 1500, None);
        told(&mut beside, "n2/app", "end", 2500, Some(true));
        let (screen, _) = Screen::memory();
        let last = "planned end 2.000 s, real end 2.000 s: as planned, 0.0 % apart";
        assert_eq!(beside.compared(&screen).last().map(String::as_str), Some(last));
    }

    #[test]
    fn an_invalid_plan_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("plan.json");
        for text in ["{}", "[1]", "nonsense"] {
            std::fs::write(&file, text).expect("written");
            let error = Beside::read(&file).expect_err(text);
            assert_eq!(error.code(), 2, "{text}");
        }
        assert_eq!(Beside::read(&folder.path().join("none")).expect_err("none").code(), 2);
    }
}
