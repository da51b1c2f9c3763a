//! Parses moments as people write them: `2026-11-21T14:03:00Z`, `14:03`, `5m` (ago), `now`.

use std::str::FromStr;
use std::time::Duration;

use cob_types::calendar;

use crate::words::parse_span;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// A moment, as precise as the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// This long before now.
    Ago(Duration),
    /// Nanoseconds since 1970.
    At(u64),
    /// The latest moment at which clocks (UTC) show this many nanoseconds of a day.
    Clock(u64),
}

impl Moment {
    /// The moment in nanoseconds since 1970, when the present time is `now_ns`.
    #[must_use]
    pub fn ns(self, now_ns: u64) -> u64 {
        match self {
            Moment::Ago(span) => now_ns.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
            Moment::At(ns) => ns,
            Moment::Clock(of_day) => {
                let today = now_ns - now_ns % DAY + of_day;
                if today <= now_ns { today } else { today.saturating_sub(DAY) }
            }
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a time: write 2026-11-21T14:03:00Z, 14:03 (the last time that it was so, UTC), 5m (ago) or now"
            )
        };
        if text == "now" {
            return Ok(Moment::Ago(Duration::ZERO));
        }
        if let Some(span) = text.strip_prefix('-') {
            return parse_span(span).map(Moment::Ago).map_err(|_| wrong());
        }
        // A span alone also means the past: `10m`.
        if text.ends_with(|c: char| c.is_ascii_alphabetic())
            && let Ok(span) = parse_span(text)
        {
            return Ok(Moment::Ago(span));
        }
        let read = if text.as_bytes().get(4) == Some(&b'-') {
            date_time(text).map(Moment::At)
        } else {
            clock(text).map(Moment::Clock)
        };
        read.ok_or_else(wrong)
    }
}

/// Parses RFC 3339; without an offset as UTC, without a time as the start of the day.
fn date_time(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
        return None;
    }
    let begin = calendar::days(year, month, day)?.checked_mul(DAY)?;
    let Some(rest) = rest.strip_prefix(['T', 't', ' ']) else { return rest.is_empty().then_some(begin) };
    let (time, ahead_s) = offset(rest)?;
    let ns = begin.checked_add(clock(time)?)?;
    ns.checked_add_signed(-ahead_s.checked_mul(i64::try_from(SECOND).ok()?)?)
}

/// Cuts the offset off: returns the text before it, and how many seconds its clock is ahead of UTC.
fn offset(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = text.find(['+', '-']) else { return Some((text, 0)) };
    let (time, offset) = text.split_at(at);
    let (hours, minutes) = offset[1..].split_once(':')?;
    let seconds = i64::try_from((digits(hours, 2)? * 60 + digits(minutes, 2)?) * 60).ok()?;
    let inside = digits(hours, 2)? < 24 && digits(minutes, 2)? < 60;
    inside.then_some((time, if offset.starts_with('-') { -seconds } else { seconds }))
}

/// Parses `14:03`, `14:03:20`, `14:03:20.5` into nanoseconds of the day.
fn clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (second, part) = match parts.next() {
        None => (0, 0),
        Some(seconds) => {
            let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
            let len = u32::try_from(part.len()).ok().filter(|len| (1..=9).contains(len))?;
            (digits(whole, 2)?, digits(part, part.len())? * 10u64.pow(9 - len))
        }
    };
    let inside = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    inside.then(|| ((hour * 60 + minute) * 60 + second) * SECOND + part)
}

fn digits(text: &str, count: usize) -> Option<u64> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn days_of(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::utc;

    const NOW: u64 = 1_795_269_600 * SECOND;

    fn read(text: &str) -> String {
        utc(text.parse::<Moment>().unwrap_or_else(|e| panic!("{text}: {e}")).ns(NOW))
    }

    #[test]
    fn a_moment_is_read_in_all_usual_forms() {
        assert_eq!(read("now"), "2026-11-21 14:00:00.000Z");
        assert_eq!(read("-5m"), "2026-11-21 13:55:00.000Z");
        assert_eq!(read("5m"), read("-5m"));
        assert_eq!(read("-1h30m"), "2026-11-21 12:30:00.000Z");
        assert_eq!(read("14:00"), "2026-11-21 14:00:00.000Z");
        assert_eq!(read("14:03"), "2026-11-20 14:03:00.000Z", "it has not been today");
        assert_eq!(read("09:03:20.25"), "2026-11-21 09:03:20.250Z");
        assert_eq!(read("2026-11-21"), "2026-11-21 00:00:00.000Z");
        assert_eq!(read("2024-02-29T23:59:59Z"), "2024-02-29 23:59:59.000Z");
        assert_eq!(read("2026-11-21 14:03"), "2026-11-21 14:03:00.000Z");
        assert_eq!(read("2026-11-21T14:03:00+02:00"), "2026-11-21 12:03:00.000Z");
        assert_eq!(read("2026-11-21t14:03:00.5-03:30"), "2026-11-21 17:33:00.500Z");
        assert_eq!(read("2026-11-20 14:00:00.123Z"), "2026-11-20 14:00:00.123Z", "as they are shown");
    }

    #[test]
    fn an_invalid_moment_is_refused_with_an_example() {
        for text in [
            "",
            "-",
            "-5",
            "tomorrow",
            "24:00",
            "14:60",
            "14",
            "1:2",
            "2026-13-01",
            "2026-02-29",
            "2026-11-21T",
            "2026-11-21T14:03:00+2",
            "2026-11-21T14:03:00+25:00",
            "1969-12-31",
            "2026-11-21x",
            "14:03:20.",
            "2026-11-é",
        ] {
            let error = text.parse::<Moment>().expect_err(text);
            assert!(error.contains("write 2026-11-21T14:03:00Z"), "{error}");
        }
    }
}
