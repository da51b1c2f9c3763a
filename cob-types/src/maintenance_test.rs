//! Windows minute by minute, beside a slow second way to judge them.

use proptest::prelude::*;

use super::*;
use crate::BlobHash;
use crate::generation::{ManifestHost, Security};

const HOUR: u64 = 3600;
/// `2026-11-23 00:00 UTC`, a Monday.
const MONDAY: u64 = 1_795_392_000;

fn window(text: &str) -> Window {
    Window::parse(text, Offset::default()).expect(text)
}

fn openings(texts: &[&str]) -> Openings {
    Openings::of(&texts.iter().map(|text| window(text)).collect::<Vec<_>>())
}

#[test]
fn windows_are_printed_in_a_normal_form() {
    for (text, form) in [
        ("Sat 02:00-04:00", "Sat 02:00-04:00 UTC"),
        ("sat  02:00-04:00 Z", "Sat 02:00-04:00 UTC"),
        ("Mon-Fri 22:00-02:00 +02:00", "Mon-Fri 22:00-02:00 +02:00"),
        ("Sun,Sat 00:00-24:00", "Sat,Sun 00:00-24:00 UTC"),
        ("Sun, Sat 00:00-24:00 UTC", "Sat,Sun 00:00-24:00 UTC"),
        ("Fri-Mon 01:00-02:00 -03:30", "Mon,Fri-Sun 01:00-02:00 -03:30"),
        ("daily 23:59-00:00", "daily 23:59-00:00 UTC"),
        ("Mon-Sun 01:00-02:00", "daily 01:00-02:00 UTC"),
    ] {
        assert_eq!(window(text).to_string(), form);
        assert_eq!(window(form), window(text), "{form}");
    }
    let zone = "+02:00".parse().expect("an offset");
    assert_eq!(Window::parse("Sat 02:00-04:00", zone).expect("a window").to_string(), "Sat 02:00-04:00 +02:00");
    assert_eq!(Window::parse("Sat 02:00-04:00 UTC", zone), Ok(window("Sat 02:00-04:00")));
}

#[test]
fn an_invalid_window_is_refused_with_a_proposal() {
    for (text, why) in [
        ("", "it is no window: write days and times such as"),
        ("Sat", "it is no window"),
        ("02:00-04:00", "it names no day: write \"daily 02:00-04:00\""),
        ("Sam 02:00-04:00", "\"Sam\" is no day: write Mon, Tue"),
        ("Sat,,Sun 02:00-04:00", "\"\" is no day"),
        ("Sat 02:00", "the times \"02:00\" are no span"),
        ("Sat 2:00-04:00", "the time \"2:00\" is not from 00:00 to 24:00, with two digits each"),
        ("Sat 02:00-24:01", "the time \"24:01\" is not"),
        ("Sat 02:60-04:00", "the time \"02:60\" is not"),
        ("Sat 24:00-02:00", "opens at 24:00, which is the next day: write 00:00"),
        ("Sat 02:00-02:00", "has no length: a whole day is 00:00-24:00"),
        ("Sat 02:00-04:00 Europe/Berlin", "the time zone \"Europe/Berlin\" is neither UTC nor a fixed offset"),
        ("Sat 02:00-04:00 +15:00", "the time zone \"+15:00\" is"),
        ("Sat 02:00-04:00 UTC now", "it is no window"),
    ] {
        let error = Window::parse(text, Offset::default()).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_window_opens_and_closes_at_its_times() {
    let sat = openings(&["Sat 02:00-04:00"]);
    let opens = MONDAY + 5 * 24 * HOUR + 2 * HOUR;
    assert_eq!(sat.opens_in(MONDAY), Some(opens - MONDAY));
    assert_eq!(sat.opens_in(opens - 1), Some(1));
    assert_eq!(sat.opens_in(opens), Some(0));
    assert!(sat.is_open(opens + 2 * HOUR - 1) && !sat.is_open(opens + 2 * HOUR));
    assert_eq!(sat.opens_in(opens + 2 * HOUR), Some(7 * 24 * HOUR - 2 * HOUR));
    assert_eq!(sat.longest(), Some(2 * HOUR));
    // Two hours east the same times come two hours earlier.
    let east = openings(&["Sat 02:00-04:00 +02:00"]);
    assert!(east.is_open(opens - 2 * HOUR) && !east.is_open(opens));
    // Over the end of the week, and of the day.
    let sunday = openings(&["Sun 22:00-02:00"]);
    assert!(sunday.is_open(MONDAY) && sunday.is_open(MONDAY - 2 * HOUR) && !sunday.is_open(MONDAY + 2 * HOUR));
    assert_eq!(sunday.longest(), Some(4 * HOUR));
    assert!(openings(&["daily 00:00-24:00"]).is_always());
    assert_eq!(openings(&["daily 00:00-24:00"]).longest(), None);
}

#[test]
fn a_switch_waits_for_the_windows_of_the_hosts_that_it_changes() {
    let name = |text: &str| HostName::new(text).expect("a name");
    let manifest = |number: u64, hosts: &[(&str, u8, &str)]| {
        let number = GenerationNumber(number);
        let mut manifest = Manifest::empty(number, GenerationNumber(number.0 - 1), Security::LoopbackOnly);
        for (host, content, windows) in hosts {
            let entry = ManifestHost { address: None, keys: Vec::new(), bundle: BlobHash([*content; 32]), cobs: 1 };
            manifest.hosts.insert(name(host), entry);
            if !windows.is_empty() {
                manifest.timetable.windows.insert(name(host), vec![window(windows)]);
            }
        }
        manifest
    };
    let (sat, early, sun) = ("Sat 02:00-04:00", "Sat 01:00-03:00", "Sun 02:00-04:00");
    let from = manifest(1, &[("a", 1, ""), ("b", 1, sun), ("c", 1, sun), ("gone", 1, sat)]);
    let to = manifest(2, &[("a", 2, early), ("b", 1, sun), ("c", 2, ""), ("new", 1, sun)]);
    let shared = SharedWindows::of_switch(Some(&from), &to, |_| true);
    let told: Vec<String> =
        shared.0.iter().map(|of| format!("{} {:?}", in_words(&of.windows), of.hosts.len())).collect();
    assert_eq!(told, ["Sat 01:00-03:00 UTC 1", "Sat 02:00-04:00 UTC 1"]);
    assert_eq!(shared.openings(), openings(&["Sat 02:00-03:00"]));
    // Of some hosts alone.
    let alone = SharedWindows::of_switch(Some(&from), &to, |host| *host == name("a"));
    assert_eq!(alone.openings(), openings(&[early]));
    assert!(SharedWindows::of_switch(Some(&from), &to, |host| *host == name("c")).openings().is_always());
    // Before the first generation no service runs; later, with an unknown generation, every host counts.
    assert!(SharedWindows::of_switch(None, &from, |_| true).openings().is_always());
    assert!(SharedWindows::of_switch(None, &to, |_| true).openings().is_never());
}

#[test]
fn of_many_hosts_some_are_named() {
    let mut to = Manifest::empty(GenerationNumber(2), GenerationNumber(1), Security::LoopbackOnly);
    for n in 0..100 {
        to.timetable
            .windows
            .insert(HostName::new(&format!("h{n:02}")).expect("a name"), vec![window("Sat 02:00-04:00")]);
    }
    let shared = SharedWindows::of_switch(None, &to, |_| true);
    assert_eq!((shared.0.len(), shared.0[0].hosts.len(), shared.0[0].more), (1, HostWindows::NAMED, 92));
}

#[test]
fn checks_of_many_hosts_are_spread_over_some_minutes() {
    let daily = Times::parse("0 3 * * *").expect("a schedule");
    let each_minute = Times::parse("* * * * *").expect("a schedule");
    let host = |n: u32| HostName::new(&format!("h{n}")).expect("a name");
    let found: BTreeSet<u64> = (0..1000).map(|n| spread(&host(n), &daily, 1000)).collect();
    assert!(found.len() > 200 && found.iter().all(|seconds| *seconds < SPREAD), "{found:?}");
    assert_eq!(spread(&host(7), &daily, 1000), spread(&host(7), &daily, 5000));
    assert!((0..1000).all(|n| spread(&host(n), &each_minute, 1000) < 30));
}

fn any_window() -> impl Strategy<Value = Window> {
    let times = (0..DAY, 1..=DAY).prop_filter("a length", |(from, to)| from != to);
    (1_u8..128, times, -MAX_OFFSET..=MAX_OFFSET).prop_map(|(days, (from, to), east)| Window {
        days,
        from,
        to,
        offset: Offset { east },
    })
}

/// Whether a window is open in a minute of the week in UTC, found minute by minute.
fn slowly(window: &Window, minute: u16) -> bool {
    let local = (i32::from(minute) + i32::from(window.offset.east)).rem_euclid(i32::from(WEEK));
    let (day, of_day) = (local / i32::from(DAY), local % i32::from(DAY));
    let has = |day: i32| window.days >> day.rem_euclid(7) & 1 == 1;
    let (from, to) = (i32::from(window.from), i32::from(window.to));
    if from < to {
        has(day) && (from..to).contains(&of_day)
    } else {
        has(day) && of_day >= from || has(day - 1) && of_day < to
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A window that is written and read stays the same.
    #[test]
    fn windows_are_read_as_written(window in any_window()) {
        prop_assert_eq!(Window::parse(&window.to_string(), Offset::default()), Ok(window));
    }

    /// Every minute of the week: joined and shared windows are open when some, or all, are.
    #[test]
    fn openings_equal_a_minute_by_minute_evaluation(
        one in prop::collection::vec(any_window(), 1..4),
        other in prop::collection::vec(any_window(), 1..4),
    ) {
        let (first, second) = (Openings::of(&one), Openings::of(&other));
        let both = first.and(&second);
        prop_assert_eq!(&both, &second.and(&first));
        for minute in 0..WEEK {
            let second_of = MONDAY + u64::from(minute) * 60;
            let (a, b) = (one.iter().any(|w| slowly(w, minute)), other.iter().any(|w| slowly(w, minute)));
            prop_assert_eq!(first.is_open(second_of), a, "minute {}", minute);
            prop_assert_eq!(both.is_open(second_of), a && b, "minute {}", minute);
        }
        prop_assert_eq!(both.is_never(), (0..WEEK).all(|m| !both.is_open(MONDAY + u64::from(m) * 60)));
    }

    /// The next opening is the first open second.
    #[test]
    fn the_next_opening_is_the_first_open_second(
        windows in prop::collection::vec(any_window(), 1..3),
        at in 0_u64..2 * 7 * 24 * HOUR,
    ) {
        let (openings, now) = (Openings::of(&windows), MONDAY + at);
        let wait = openings.opens_in(now).expect("each window opens within a week");
        prop_assert!(wait <= 7 * 24 * HOUR && openings.is_open(now + wait));
        prop_assert!(wait == 0 || !openings.is_open(now + wait - 1) && !openings.is_open(now));
        let steps = (now..now + wait).step_by(60);
        prop_assert!(steps.clone().all(|second| !openings.is_open(second)));
    }
}
