//! Outcomes of short histories.

use super::*;
use crate::history::{Facts, HistoryEntry};
use crate::id::StateName;

#[path = "../../tests/support/facts.rs"]
mod facts;
use facts::with_facts;

fn name(text: &str) -> HostName {
    HostName::new(text).expect("a name")
}

/// `5 @1 go to generation 2, by ann`: time, generation, event, and detail.
fn entries(lines: &[&str]) -> Vec<HistoryEntry> {
    let entry = |line: &&str| {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let ts_ns = word().parse().expect("a time");
        let generation = GenerationNumber(word()[1..].parse().expect("a generation"));
        let (event, detail) = (word().to_owned(), word().to_owned());
        let moved = matches!(event.as_str(), "start" | "end" | "failed" | "drift");
        let transition = detail.split_once('>');
        let state = |name: &str| StateName::new(name).expect("a state");
        let (from, to) = transition.map(|(from, to)| (state(from), state(to))).unzip();
        let detail = if transition.is_some() { String::new() } else { detail };
        with_facts(HistoryEntry {
            ts_ns,
            host: name("n1"),
            seq: ts_ns,
            lamport: ts_ns,
            generation,
            cob: moved.then(|| CobId::new("n1/a").expect("an id")),
            ok: moved.then_some(detail.is_empty()),
            event,
            from,
            to,
            attempt: None,
            detail,
            heard_ns: None,
            facts: None,
        })
    };
    lines.iter().map(entry).collect()
}

fn told(lines: &[&str]) -> Vec<(u64, &'static str, Option<u64>)> {
    of_host(&entries(lines)).iter().map(|s| (s.to.0, s.ended.word(), s.ended_ns)).collect()
}

#[test]
fn a_canary_that_is_sent_back_before_the_others_were_told_was_rolled_back() {
    let lines = [
        "1 @1 go to generation 2, by ann",
        "2 @1 only for n1 alone",
        "3 @2 activate",
        "4 @2 settled generation 2",
        "5 @2 go to generation 1, by ann",
        "6 @1 activate",
        "7 @1 settled generation 1",
    ];
    assert_eq!(told(&lines), [(2, "rolled back", Some(5)), (1, "converged", Some(7))]);
}

#[test]
fn a_switch_in_steps_is_one_outcome() {
    let lines = [
        "1 @1 terms to generation 9, by ann",
        "2 @1 go to generation 4, by ann",
        "3 @4 activate",
        "4 @4 end",
        "5 @4 go to generation 8",
        "6 @8 activate",
        "7 @8 go to generation 9",
        "8 @9 activate",
        "9 @9 end",
        "10 @9 settled generation 9",
        "11 @9 go to generation 10, by bob",
    ];
    let all = of_host(&entries(&lines));
    assert_eq!(told(&lines), [(9, "converged", Some(10)), (10, "under way", None)]);
    let HostOutcome { from, by, activated_ns, cobs, .. } = &all[0];
    assert_eq!((from.map(|g| g.0), by.as_str(), *activated_ns), (Some(1), "ann", Some(8)));
    assert_eq!(cobs.values().map(|c| c.moves).sum::<u32>(), 2, "those of the steps, too");
    // Another goal replaces it: a later generation, or the present step.
    let onward = [&lines[..5], &["6 @4 terms to generation 12, by bob", "7 @8 go to generation 12, by bob"]].concat();
    assert_eq!(told(&onward), [(9, "superseded", Some(7)), (12, "under way", None)]);
    let step = [&lines[..5], &["6 @4 return from generation 9 to 8, by bob", "7 @8 settled generation 8"]].concat();
    assert_eq!(told(&step), [(9, "rolled back", Some(6)), (8, "converged", Some(7))]);
    let back = [&lines[..5], &["6 @4 return from generation 9 to 1", "7 @4 go to generation 1"]].concat();
    assert_eq!(told(&back), [(9, "rolled back", Some(7)), (1, "under way", None)]);
}

#[test]
fn a_host_tells_how_each_of_its_switches_ended() {
    let lines = [
        "1 @0 go to generation 1, by root (unix socket)",
        "2 @1 activate",
        "3 @1 end",
        "4 @1 settled generation 1",
        "5 @1 end",
        "6 @1 call-off generation 2, by ann (operate)",
        "7 @1 go to generation 3, by ann (operate), for \"x, by y\"",
        "8 @3 activate",
        "9 @3 end exit status 1",
        "10 @3 failed after 1 attempt",
        "11 @3 cancel the switch to generation 3, by bob",
        "12 @3 go to generation 1, by bob",
        "13 @1 activate",
        "14 @1 settled generation 1",
        "15 @1 go to generation 4, by bob",
        "16 @1 go to generation 5, by bob",
        "17 @5 end no",
        "18 @5 failed after 1 attempt",
    ];
    let ends = [
        (1, "converged", Some(4)),
        (2, "called off", Some(6)),
        (3, "rolled back", Some(12)),
        (1, "converged", Some(14)),
        (4, "superseded", Some(16)),
        (5, "failed", None),
    ];
    assert_eq!(told(&lines), ends);
    let all = of_host(&entries(&lines));
    assert_eq!((all[0].from, all[0].by.as_str(), all[0].activated_ns), (None, "root (unix socket)", Some(2)));
    assert_eq!((all[2].from, all[2].by.as_str()), (Some(GenerationNumber(1)), "ann (operate), for \"x, by y\""));
    let cob = &all[2].cobs[&CobId::new("n1/a").expect("an id")];
    assert_eq!((cob.moves, cob.failures, cob.failed, &*cob.error), (0, 1, true, "exit status 1"));
}

#[test]
fn an_abandoned_rollback_is_superseded_and_not_rolled_back() {
    let lines = [
        "1 @3 go to generation 2, by ann",
        "2 @2 activate",
        "3 @2 go to generation 3, by ann",
        "4 @3 activate",
        "5 @3 settled generation 3",
    ];
    assert_eq!(told(&lines), [(2, "superseded", Some(3)), (3, "converged", Some(5))]);
    let all = of_host(&entries(&lines));
    assert_eq!(all.iter().map(HostOutcome::back_from).collect::<Vec<_>>(), [Some(GenerationNumber(3)), None]);
    let together = together([(name("n1"), all)].into());
    let back: Vec<_> = together.iter().map(SwitchOutcome::back_from).collect();
    assert_eq!(back, [Some(GenerationNumber(3)), None]);
}

/// A daemon reads the entries as they come, and forgets all but the newest ended part.
#[test]
fn outcomes_entry_by_entry_equal_those_of_the_whole_history() {
    let lines = [
        "1 @0 go to generation 1, by ann",
        "2 @1 activate",
        "3 @1 end",
        "4 @1 settled generation 1",
        "5 @1 go to generation 2, by ann",
        "6 @1 only for n1 alone",
        "7 @2 activate",
        "8 @2 end exit status 1",
        "9 @2 end",
        "10 @2 settled generation 2",
        "11 @2 go to generation 1, by ann",
        "12 @1 failed after 3 attempts",
    ];
    let history = entries(&lines);
    let mut course = Course::default();
    for (count, entry) in (1..).zip(&history) {
        course.note(entry);
        course.keep(1);
        let all = of_host(&history[..count]);
        let newest = all.last().expect("one");
        assert_eq!(course.newest_to(newest.to).as_ref(), Some(newest), "{}", lines[count - 1]);
        for to in (0..4).map(GenerationNumber) {
            let told = all.iter().rev().find(|part| part.to == to);
            assert!(course.newest_to(to).is_none_or(|known| Some(&known) == told), "{}", lines[count - 1]);
        }
    }
    assert_eq!(course.newest_to(GenerationNumber(2)).map(|part| part.ended), Some(Ended::RolledBack));
    assert_eq!(course.newest_to(GenerationNumber(3)), None);
}

#[test]
fn a_resumed_switch_is_under_way_again() {
    let lines = ["1 @1 go to generation 2", "2 @1 cancel the switch to generation 2", "3 @1 resume"];
    assert_eq!(told(&lines[..2]), [(2, "cancelled", Some(2))]);
    assert_eq!(told(&lines), [(2, "under way", None)]);
}

#[test]
fn strange_histories_are_read_all_the_same() {
    let odd = ["1 @1 go", "2 @1 go generation", "3 @1 go to generation 99999999999999999999999", "4 @1 settled x"];
    assert_eq!(told(&odd), []);
    assert_eq!(told(&["1 @1 activate", "2 @1 end", "3 @1 resume", "4 @1 cancel generation 1"]), []);
}

#[test]
fn parts_of_hosts_that_overlap_in_time_are_one_switch() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    let n1 = of(&["10 @1 go to generation 2, by ann", "20 @2 settled generation 2"]);
    // The host had switched before, and was rolled back.
    let n2 = of(&[
        "1 @1 go to generation 2, by ann",
        "5 @2 go to generation 1, by ann",
        "8 @1 settled generation 1",
        "11 @1 go to generation 2, by ann",
        "30 @2 settled generation 2",
    ]);
    let all = together([(name("n1"), n1), (name("n2"), n2)].into());
    let told: Vec<_> = all.iter().map(|s| (s.to.0, s.ended.word(), s.hosts.len(), s.ended_ns)).collect();
    let ends = [(2, "rolled back", 1, Some(5)), (1, "converged", 1, Some(8)), (2, "converged", 2, Some(30))];
    assert_eq!(told, ends);
}

#[test]
fn a_host_that_follows_the_others_late_is_part_of_their_switch() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    let n1 = of(&["10 @1 go to generation 2, by ann", "20 @2 settled generation 2"]);
    let n2 = of(&["90000000000 @1 go to generation 2", "90000000009 @2 settled generation 2"]);
    let ordered = of(&["90000000000 @1 go to generation 2, by bob", "90000000009 @2 settled generation 2"]);
    let told = |n2: Vec<HostOutcome>| {
        let all = together([(name("n1"), n1.clone()), (name("n2"), n2)].into());
        all.iter().map(|s| (s.by.clone(), s.hosts.len(), s.ended_ns)).collect::<Vec<_>>()
    };
    assert_eq!(told(n2), [("ann".to_owned(), 2, Some(90_000_000_009))]);
    let two = [("ann".to_owned(), 1, Some(20)), ("bob".to_owned(), 1, Some(90_000_000_009))];
    assert_eq!(told(ordered), two);
}

#[test]
fn a_way_back_is_no_part_of_the_switch_that_led_there_first() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    let n1 = of(&["10 @0 go to generation 1, by ann", "20 @1 settled generation 1"]);
    let n1_back = of(&["90 @2 go to generation 1", "99 @1 settled generation 1"]);
    // The host was new in the generation that is rolled back, and rolls back with the others, of which n3 is late.
    let n2 = of(&["91 @2 go to generation 1", "95 @2 failed after 1 attempt"]);
    let n3 = of(&["990000000000 @2 go to generation 1", "990000000009 @1 settled generation 1"]);
    let all = together([(name("n1"), [n1, n1_back].concat()), (name("n2"), n2), (name("n3"), n3)].into());
    let told: Vec<_> = all.iter().map(|s| (s.ended.word(), s.hosts.len(), s.back_from().map(|g| g.0))).collect();
    assert_eq!(told, [("converged", 1, None), ("failed", 3, Some(2))]);
}

#[test]
fn a_switch_for_some_or_of_which_some_are_silent_has_not_converged() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    let canary = ["10 @1 go to generation 2, by ann", "10 @1 only for n1 alone", "20 @2 settled generation 2"];
    let off = of(&["21 @1 call-off generation 2, by ann"]);
    let words = |hosts: &[(&str, Vec<HostOutcome>)]| {
        let all = together(hosts.iter().map(|(host, parts)| (name(host), parts.clone())).collect());
        (all[0].in_words(), all[0].is_converged())
    };
    assert_eq!(words(&[("n1", of(&canary))]), ("converged (only on n1)".to_owned(), false));
    assert_eq!(words(&[("n1", of(&canary)), ("n2", off.clone())]), ("called off (except n1)".to_owned(), false));
    assert_eq!(words(&[("n2", off)]), ("called off".to_owned(), false));
    let everybody = [&canary[..], &["30 @2 only for everybody, by ann"]].concat();
    let mut all = together([(name("n1"), of(&everybody))].into());
    assert_eq!((all[0].in_words().as_str(), all[0].is_converged()), ("converged", true));
    all[0].silent.insert(name("n3"));
    assert_eq!((all[0].in_words().as_str(), all[0].is_converged()), ("converged (no report from n3)", false));
}

#[test]
fn a_host_that_converged_early_shares_the_switch_of_the_others() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    let n1 = of(&["10 @1 go to generation 2, by ann", "20 @2 settled generation 2"]);
    let n2 = of(&["1000030 @1 go to generation 2, by ann", "2000000 @2 failed after 3 attempts"]);
    let all = together([(name("n1"), n1), (name("n2"), n2)].into());
    let told: Vec<_> = all.iter().map(|s| (s.to.0, s.ended.word(), s.hosts.len())).collect();
    assert_eq!(told, [(2, "failed", 2)]);
}

/// The host `n1` has a change to make; `n2` converges at once, and gets requests later.
fn asked_later(rest: &[&str], other: &[&str]) -> Vec<SwitchOutcome> {
    let of = |lines: &[&str]| of_host(&entries(lines));
    let n1 = ["1 @1 go to generation 2, by ann", "2 @2 activate", "3 @2 start old>up"];
    let n2 = ["1 @1 go to generation 2, by ann", "2 @2 activate", "2 @2 settled generation 2"];
    let parts = |first: &[&str], then: &[&str]| of(&[first, then].concat());
    together([(name("n1"), parts(&n1, other)), (name("n2"), parts(&n2, rest))].into())
}

#[test]
fn requests_to_a_converged_host_belong_to_the_switch() {
    let own = ["20 @2 end old>up", "20 @2 settled generation 2"];
    let down = ["5 @2 start up>down", "6 @2 end up>down"];
    let up = ["21 @2 start down>up", "30 @2 end down>up"];
    let told = |rest: &[&str], own: &[&str]| {
        let all = asked_later(rest, own);
        let part = &all[0].hosts[&name("n2")];
        let moves = part.cobs.values().map(|cob| cob.moves).sum::<u32>();
        (all[0].ended.word(), all[0].ended_ns, part.ended.word(), moves)
    };
    assert_eq!(told(&[&down[..], &up].concat(), &own), ("converged", Some(30), "converged", 2));
    assert_eq!(told(&down, &own), ("under way", None, "under way", 1), "it is not back yet");
    let failed = ["21 @2 start down>up", "22 @2 end exit status 1", "22 @2 failed after 1 attempt"];
    assert_eq!(told(&[&down[..], &failed].concat(), &own), ("failed", None, "failed", 1));
    let retried = [&down[..], &failed, &["90 @2 start down>up", "95 @2 end down>up"]].concat();
    assert_eq!(told(&retried, &own), ("converged", Some(95), "converged", 2));
    // All hosts roll back because of it, also the converged host.
    let back = [&down[..], &failed, &["23 @2 go to generation 1"]].concat();
    assert_eq!(
        told(&back, &[&own[..], &["23 @2 go to generation 1"]].concat()),
        ("rolled back", Some(23), "rolled back", 1)
    );
}

#[test]
fn transitions_after_all_hosts_converged_are_not_part_of_the_switch() {
    let own = ["20 @2 end old>up", "20 @2 settled generation 2"];
    let day = 86_400_000_000_000_u64;
    let told = |lines: &[String], own: &[&str]| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let all = asked_later(&lines, own);
        let part = &all[0].hosts[&name("n2")];
        (all[0].ended.word(), all[0].ended_ns, part.cobs.len(), part.later.len())
    };
    let converged = ("converged", Some(20), 0, 0);
    // As long as a failure counts, and no longer.
    let s = 1_000_000_000_u64;
    let restart = |at: u64| [format!("{at} @2 start up>down"), format!("{at} @2 end up>down")];
    assert_eq!(told(&restart(20 + 3 * s), &own), ("under way", None, 1, 0));
    for late in [21 + 3 * s, 5 * s, 9 * s, day] {
        assert_eq!(told(&restart(late), &own), converged, "after {late} ns");
    }
    let back = [format!("{day} @2 go to generation 1, by ann")];
    assert_eq!(told(&back, &[&own[..], &[back[0].as_str()]].concat()), converged, "somebody has sent it back");
    // Meanwhile COB repairs a change by others, which is no part of the switch.
    let mended = ["7 @2 drift", "8 @2 start old>up", "9 @2 end exit status 1", "9 @2 end old>up"].map(str::to_owned);
    assert_eq!(told(&mended, &own), converged);
}

#[test]
fn a_converged_host_that_returns_because_of_others_was_rolled_back() {
    let s = 1_000_000_000_u64;
    let told = |between: &[&str], why: &str| {
        let there = ["1 @1 go to generation 2, by ann", "2 @2 activate", "2 @2 settled generation 2"];
        let withdraw = format!("{} @2 withdraw generation 2, back to 1: {why}", 9 * s);
        let back = format!("{} @2 go to generation 1", 9 * s);
        let history = of_host(&entries(&[&there[..], between, &[withdraw.as_str(), back.as_str()]].concat()));
        // The host that caused it has no report.
        let all = together([(name("n2"), history)].into());
        (all[0].ended.word(), all[0].ended_ns, all[0].hosts[&name("n2")].cobs.len())
    };
    let rolled_back = ("rolled back", Some(9 * s), 0);
    for why in ["n1/a gave up (told by n1)", "ordered/a is in conflict (told by ordered)", "cancelled by ann"] {
        assert_eq!(told(&[], why), rolled_back, "{why}");
    }
    for why in ["ordered by ann", "ordered by ann (told by n1)", "ordered", "ordered (told by n1)"] {
        assert_eq!(told(&[], why), ("converged", Some(2), 0), "{why}");
    }
    let moved = [format!("{} @2 start up>down", 6 * s), format!("{} @2 end up>down", 6 * s)];
    let moved: Vec<&str> = moved.iter().map(String::as_str).collect();
    assert_eq!(told(&moved, "n1/a gave up"), ("rolled back", Some(9 * s), 1), "for others, in the same switch");
}

#[test]
fn a_failed_canary_and_a_staged_switch_are_two_switches() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    let canary = of(&[
        "10 @1 go to generation 2, by ann",
        "10 @1 only for n1 alone, by ann",
        "13 @2 go to generation 1, by ann",
        "15 @1 settled generation 1",
        "20 @1 go to generation 2, by ann",
        "20 @1 only for n1 alone, by ann",
        "30 @2 settled generation 2",
        "400000000000 @2 only for everybody, by ann",
    ]);
    let n2 = of(&[
        "12 @1 call-off generation 2, by ann",
        "400000000005 @1 go to generation 2, by ann",
        "400000000009 @2 settled generation 2",
    ]);
    let all = together([(name("n1"), canary), (name("n2"), n2)].into());
    let told: Vec<_> = all.iter().map(|s| (s.to.0, s.ended.word(), s.hosts.len())).collect();
    assert_eq!(told, [(2, "rolled back", 2), (1, "converged", 1), (2, "converged", 2)]);
    // Both switches were discarded before they began.
    let off = |at: &str| of(&[&format!("{at} @1 call-off generation 2, by ann")]);
    let all = together([(name("n1"), off("5")), (name("n2"), off("9"))].into());
    assert_eq!((all.len(), all[0].hosts.len(), all[0].ended), (1, 2, Ended::CalledOff));
}

#[test]
fn a_second_switch_is_not_merged_with_a_rolled_back_canary() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    // A canary that was rolled back, and a switch of both hosts that was rolled back: n2 is the first to do so.
    let n1 = of(&[
        "10 @1 go to generation 2, by ann",
        "10 @1 only for n1 alone, by ann",
        "20 @2 go to generation 1, by ann",
        "20 @2 only for n1 alone, by ann",
        "21 @1 settled generation 1",
        "30 @1 go to generation 2, by ann",
        "30 @1 only for everybody, by ann",
        "41 @2 go to generation 1",
        "43 @1 settled generation 1",
    ]);
    let n2 = of(&["31 @1 go to generation 2, by ann", "40 @2 go to generation 1", "42 @1 settled generation 1"]);
    let all = together([(name("n1"), n1), (name("n2"), n2)].into());
    let told: Vec<_> = all.iter().map(|s| (s.to.0, s.began_ns, s.hosts.len(), s.ended_ns)).collect();
    assert_eq!(told, [(2, 10, 1, Some(20)), (1, 20, 1, Some(21)), (2, 30, 2, Some(41)), (1, 40, 2, Some(43))]);
}

#[test]
fn a_canary_extended_to_all_hosts_is_one_switch() {
    let of = |lines: &[&str]| of_host(&entries(lines));
    // The check of the first canary fails, and it holds; that of the second canary rolls it back.
    let canary = of(&[
        "10 @1 go to generation 2, by ann",
        "10 @1 only for n1 alone, by ann",
        "20 @2 settled generation 2",
        "40 @2 only for everybody, by ann",
        "60 @2 go to generation 1, by ann",
        "65 @1 settled generation 1",
        "70 @1 go to generation 2, by ann",
        "70 @1 only for n1 alone, by ann",
        "80 @2 settled generation 2",
        "90 @2 go to generation 1, by ann",
    ]);
    // It learns of the switch from n1 first.
    let n2 = of(&[
        "30 @1 call-off generation 2, by ann",
        "41 @1 go to generation 2",
        "50 @2 settled generation 2",
        "61 @2 go to generation 1, by ann",
        "66 @1 settled generation 1",
        "85 @1 call-off generation 2, by ann",
    ]);
    let all = together([(name("n1"), canary), (name("n2"), n2)].into());
    let told: Vec<_> = all.iter().map(|s| (s.to.0, s.by.as_str(), s.ended.word(), s.hosts.len(), s.ended_ns)).collect();
    let switches = [
        (2, "ann", "rolled back", 2, Some(61)),
        (1, "ann", "converged", 2, Some(66)),
        (2, "ann", "rolled back", 2, Some(90)),
        (1, "ann", "under way", 1, None),
    ];
    assert_eq!(told, switches);
}

#[test]
fn corrected_clocks_merge_the_parts_of_a_switch() {
    const HOUR: i64 = 3_600_000_000_000;
    let lines = |from: u64| -> Vec<String> {
        let words = ["@1 go to generation 2, by ann", "@2 activate", "@2 settled generation 2"];
        words.iter().zip(from..).map(|(line, at)| format!("{at} {line}")).collect()
    };
    let of = |from: u64| {
        let lines = lines(from);
        of_host(&entries(&lines.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let ahead = || of(100 + HOUR.unsigned_abs());
    let wrong = together([(name("n1"), of(100)), (name("n2"), ahead())].into());
    assert_eq!(wrong.len(), 2, "an hour lies between them");
    let right = ahead().into_iter().map(|part| part.by_another_clock(HOUR)).collect();
    let right = together([(name("n1"), of(100)), (name("n2"), right)].into());
    assert_eq!(right.len(), 1);
    assert_eq!((right[0].began_ns, right[0].ended_ns, right[0].hosts.len()), (100, Some(102), 2));
    let behind = of(100).into_iter().map(|part| part.by_another_clock(-HOUR)).next().expect("one");
    assert_eq!(behind.began_ns, 100 + HOUR.unsigned_abs());
}
