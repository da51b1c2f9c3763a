//! Maintenance windows and schedules: the times at which hosts may be switched, and at which they act by themselves.
//!
//! A window is weekly and has a fixed offset from UTC, so it is a set of minutes of the week. The windows of a host are joined;
//! a switch of several hosts may start in the minutes that all of these hosts share.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::canonical::blob_hash;
use crate::generation::Manifest;
use crate::id::{GenerationNumber, HostName};
use crate::schedule::Times;
use crate::words::number;

/// The limit of windows per host.
pub const MAX_WINDOWS: usize = 64;
/// The minutes of a day and of a week.
const DAY: u16 = 24 * 60;
const WEEK: u16 = 7 * DAY;
/// The largest offset from UTC, in minutes.
const MAX_OFFSET: i16 = 14 * 60;
/// The longest time by which the checks of many hosts are spread, in seconds.
const SPREAD: u64 = 300;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// How a window is written.
const FORM: &str =
    "write days and times such as \"Sat 02:00-04:00\", \"Mon-Fri 22:00-02:00\" or \"daily 01:00-03:00 +02:00\"";

/// A weekly window: `Sat 02:00-04:00 UTC`. A window may cross midnight; its days are the days on which it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    /// A bit for each day, Monday first.
    days: u8,
    /// Minutes of the day.
    from: u16,
    /// Minutes of the day, at most 24:00. Not after `from`: on the next day.
    to: u16,
    offset: Offset,
}

/// A fixed offset from UTC: `UTC`, `+02:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Offset {
    /// Minutes east of Greenwich.
    east: i16,
}

impl FromStr for Offset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "the time zone {text:?} is neither UTC nor a fixed offset: write `UTC` or an offset such as `+02:00`; COB knows no \
                 daylight saving time"
            )
        };
        if matches!(text, "UTC" | "Z") {
            return Ok(Self::default());
        }
        let (sign, rest) = match text.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            Some(_) | None => return Err(wrong()),
        };
        let minutes = clock(rest).and_then(|minutes| i16::try_from(minutes).ok()).filter(|m| *m <= MAX_OFFSET);
        minutes.map(|minutes| Self { east: sign * minutes }).ok_or_else(wrong)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.east.unsigned_abs();
        match self.east {
            0 => f.write_str("UTC"),
            east => write!(f, "{}{:02}:{:02}", if east < 0 { '-' } else { '+' }, minutes / 60, minutes % 60),
        }
    }
}

impl Window {
    /// Reads a window; `zone` is the default time zone.
    ///
    /// # Errors
    /// The fault and a proposal, to be read after the text: `"Sam 02:00-04:00": "Sam" is no day …`.
    pub fn parse(text: &str, zone: Offset) -> Result<Self, String> {
        let listed = text.replace(", ", ",");
        let words: Vec<&str> = listed.split_whitespace().collect();
        let (days, times, offset) = match words[..] {
            [days, times] => (days, times, zone),
            [days, times, zone] => (days, times, zone.parse()?),
            [times] if times.contains(':') => {
                return Err(format!("it names no day: write \"daily {times}\", or days such as \"Sat {times}\""));
            }
            _ => return Err(format!("it is no window: {FORM}")),
        };
        let days = days.split(',').try_fold(0, |all, part| Ok::<u8, String>(all | day_range(part)?))?;
        let wrong = |time: &str| format!("the time {time:?} is not from 00:00 to 24:00, with two digits each: {FORM}");
        let Some((from, to)) = times.split_once('-') else {
            return Err(format!("the times {times:?} are no span: {FORM}"));
        };
        let read = |time: &str| clock(time).filter(|minutes| *minutes <= DAY).ok_or_else(|| wrong(time));
        let (from, to) = (read(from)?, read(to)?);
        if from == DAY {
            return Err(format!("the window opens at 24:00, which is the next day: write {}", at(0)));
        }
        if from == to {
            return Err(format!("the window {times} has no length: a whole day is 00:00-24:00"));
        }
        Ok(Self { days, from, to, offset })
    }

    /// How long it is open, in minutes.
    fn length(&self) -> u16 {
        if self.to > self.from { self.to - self.from } else { DAY - self.from + self.to }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { days, from, to, offset } = self;
        write!(f, "{} {}-{} {offset}", day_words(*days), at(*from), at(*to))
    }
}

impl TryFrom<String> for Window {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text, Offset::default()).map_err(|why| format!("the maintenance window {text:?}: {why}"))
    }
}

impl From<Window> for String {
    fn from(window: Window) -> Self {
        window.to_string()
    }
}

/// `HH:MM` as minutes.
fn clock(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let of_two = |text: &str| number::<u16>(text).filter(|_| text.len() == 2);
    let (hours, minutes) = (of_two(hours)?, of_two(minutes)?);
    (minutes < 60).then_some(hours * 60 + minutes)
}

fn at(minutes: u16) -> String {
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// `Sat`, `Mon-Fri`, `Fri-Mon`, `daily` as bits.
fn day_range(text: &str) -> Result<u8, String> {
    if text.eq_ignore_ascii_case("daily") {
        return Ok(0x7f);
    }
    let day = |text: &str| {
        let found = DAYS.iter().position(|day| day.eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            format!("{text:?} is no day: write Mon, Tue, Wed, Thu, Fri, Sat, Sun, a range such as Mon-Fri, or daily")
        })
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (day(first)?, day(last)?),
        None => (day(text)?, day(text)?),
    };
    let many = (last + 7 - first) % 7;
    Ok((0..=many).fold(0, |bits, n| bits | 1 << ((first + n) % 7)))
}

/// Days as they are written: `daily`, `Mon-Fri`, `Tue,Sat`.
fn day_words(days: u8) -> String {
    let has = |day: usize| days >> day & 1 == 1;
    if days & 0x7f == 0x7f {
        return "daily".to_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    let mut day = 0;
    while day < 7 {
        let end = (day..7).take_while(|day| has(*day)).last();
        match end {
            None => day += 1,
            Some(end) if end < day + 2 => {
                parts.extend((day..=end).map(|day| DAYS[day].to_owned()));
                day = end + 1;
            }
            Some(end) => {
                parts.push(format!("{}-{}", DAYS[day], DAYS[end]));
                day = end + 1;
            }
        }
    }
    parts.join(",")
}

/// Windows in words: `Sat 02:00-04:00 UTC and Sun 02:00-04:00 UTC`.
#[must_use]
pub fn in_words(windows: &[Window]) -> String {
    windows.iter().map(Window::to_string).collect::<Vec<_>>().join(" and ")
}

/// Minutes of the week in UTC, Monday 00:00 first: spans in order, with a gap between each two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Openings(Vec<(u16, u16)>);

impl Openings {
    /// The whole week.
    #[must_use]
    pub fn always() -> Self {
        Self(vec![(0, WEEK)])
    }

    /// The minutes in which some window is open. Without windows: the whole week.
    #[must_use]
    pub fn of(windows: &[Window]) -> Self {
        if windows.is_empty() {
            return Self::always();
        }
        let mut spans = Vec::new();
        for window in windows {
            for day in (0..7).filter(|day| window.days >> day & 1 == 1) {
                let start = i32::from(DAY) * day + i32::from(window.from) - i32::from(window.offset.east);
                let start = u16::try_from(start.rem_euclid(i32::from(WEEK))).unwrap_or_default();
                let end = start + window.length();
                spans.push((start, end.min(WEEK)));
                if end > WEEK {
                    spans.push((0, end - WEEK));
                }
            }
        }
        Self::joined(spans)
    }

    fn joined(mut spans: Vec<(u16, u16)>) -> Self {
        spans.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (start, end) in spans {
            match joined.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => joined.push((start, end)),
            }
        }
        Self(joined)
    }

    /// The minutes of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let pairs = self.0.iter().flat_map(|a| other.0.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
        Self::joined(pairs.filter(|(start, end)| start < end).collect())
    }

    /// Whether there is no minute at all.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is every minute.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.0 == [(0, WEEK)]
    }

    /// Whether this second, counted from 1970-01-01 UTC, is in it.
    #[must_use]
    pub fn is_open(&self, second: u64) -> bool {
        let minute = minute_of_week(second);
        self.0.iter().any(|(start, end)| (*start..*end).contains(&minute))
    }

    /// The seconds until the next opening, zero while it is open; `None` if it never opens.
    #[must_use]
    pub fn opens_in(&self, second: u64) -> Option<u64> {
        if self.is_open(second) {
            return Some(0);
        }
        let minute = minute_of_week(second);
        let later = self.0.iter().find(|(start, _)| *start > minute).map(|(start, _)| start - minute);
        let minutes = later.or_else(|| self.0.first().map(|(start, _)| WEEK - minute + start))?;
        Some(u64::from(minutes) * 60 - second % 60)
    }

    /// The longest span, in seconds; `None` if it never closes.
    #[must_use]
    pub fn longest(&self) -> Option<u64> {
        if self.is_always() {
            return None;
        }
        let mut lengths: Vec<u16> = self.0.iter().map(|(start, end)| end - start).collect();
        // A span that crosses the end of the week is written as two.
        if let (Some((0, first)), Some((last, WEEK))) = (self.0.first(), self.0.last()) {
            lengths.push(first + WEEK - last);
        }
        Some(u64::from(lengths.into_iter().max().unwrap_or_default()) * 60)
    }
}

/// 1970-01-01 was a Thursday.
fn minute_of_week(second: u64) -> u16 {
    u16::try_from((second / 60 + 3 * u64::from(DAY)) % u64::from(WEEK)).unwrap_or_default()
}

/// The times at which a host acts by itself, in UTC: lines in the form of cron.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// It checks all its change objects.
    pub check: Option<String>,
    /// It switches to the newest published generation.
    pub switch: Option<String>,
}

impl Schedule {
    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The delay of a host after the times of its schedule, in seconds, which keeps many hosts from acting in the same second. The
/// delay of a host is constant, at most five minutes, and at most half of the time between two runs.
#[must_use]
pub fn spread(host: &HostName, times: &Times, minute: u64) -> u64 {
    let next = times.next_after(minute).map_or(SPREAD, |next| (next - minute) * 60);
    let most = SPREAD.min(next / 2).max(1);
    let hash = blob_hash(host.as_str().as_bytes()).0;
    u64::from_be_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]]) % most
}

/// The windows and schedules of all hosts of a generation. A host without windows may be switched at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timetable {
    /// The windows by host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<HostName, Vec<Window>>,
    /// The schedules by host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub schedules: BTreeMap<HostName, Schedule>,
}

impl Timetable {
    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.schedules.is_empty()
    }
}

impl JsonSchema for Window {
    fn schema_name() -> Cow<'static, str> {
        "Window".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "A weekly time, such as `Sat 02:00-04:00 UTC`."})
    }
}

/// The windows that a switch waits for: the windows of the hosts that it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedWindows(pub Vec<HostWindows>);

/// Hosts with the same windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostWindows {
    /// Their windows.
    pub windows: Vec<Window>,
    /// The hosts by name, at most eight.
    pub hosts: Vec<HostName>,
    /// The number of further hosts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

impl HostWindows {
    /// The limit of host names.
    pub const NAMED: usize = 8;

    /// `web1, web2`, `web1, web2 and 3 more`.
    #[must_use]
    pub fn hosts_in_words(&self) -> String {
        let names = self.hosts.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ");
        if self.more == 0 { names } else { format!("{names} and {} more", self.more) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl SharedWindows {
    /// The windows of a switch from one generation to another, of the hosts in `only` whose bundles it changes.
    ///
    /// A host that stays has its windows of the new generation, a host that leaves its windows of the old generation. A new
    /// host does not count, because it runs no services yet. If the old generation is unknown, every host counts, except in
    /// the first generation of a depot.
    #[must_use]
    pub fn of_switch(from: Option<&Manifest>, to: &Manifest, only: impl Fn(&HostName) -> bool) -> Self {
        let mut groups: BTreeMap<&Vec<Window>, BTreeSet<&HostName>> = BTreeMap::new();
        let first = from.is_none() && to.parent == GenerationNumber(0);
        let changes = |host: &HostName| match from.map(|from| (from.hosts.get(host), to.hosts.get(host))) {
            Some((Some(before), Some(after))) => before.bundle != after.bundle,
            Some((None, _)) => false,
            Some((Some(_), None)) => true,
            None => !first,
        };
        let leaves = |(host, _): &(&HostName, &Vec<Window>)| !to.hosts.contains_key(*host);
        let left = from.into_iter().flat_map(|from| from.timetable.windows.iter().filter(leaves));
        for (host, windows) in to.timetable.windows.iter().chain(left) {
            if !windows.is_empty() && only(host) && changes(host) {
                groups.entry(windows).or_default().insert(host);
            }
        }
        let group = |(windows, hosts): (&Vec<Window>, BTreeSet<&HostName>)| HostWindows {
            windows: windows.clone(),
            more: hosts.len().saturating_sub(HostWindows::NAMED) as u64,
            hosts: hosts.into_iter().take(HostWindows::NAMED).cloned().collect(),
        };
        Self(groups.into_iter().map(group).collect())
    }

    /// The minutes in which the windows of all these hosts are open.
    #[must_use]
    pub fn openings(&self) -> Openings {
        self.0.iter().fold(Openings::always(), |all, group| all.and(&Openings::of(&group.windows)))
    }
}

#[cfg(test)]
#[path = "maintenance_test.rs"]
mod tests;
