//! Schedules of cron: accepts a schedule only if every cron does, and finds its times.
//!
//! A file of `/etc/cron.d` with a schedule that cron can't read does not run, and only cron's own log shows it.

use crate::calendar;
use crate::words::number;

/// The words for a whole schedule.
pub const WORDS: [&str; 8] =
    ["@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// A field of a schedule.
struct Field {
    name: &'static str,
    lowest: u32,
    highest: u32,
    /// The names of its numbers, from the lowest on.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { name: "minute", lowest: 0, highest: 59, names: &[] },
    Field { name: "hour", lowest: 0, highest: 23, names: &[] },
    Field { name: "day of the month", lowest: 1, highest: 31, names: &[] },
    Field { name: "month", lowest: 1, highest: 12, names: MONTHS },
    // Both 0 and 7 are Sunday.
    Field { name: "day of the week", lowest: 0, highest: 7, names: DAYS },
];

/// Checks a schedule: five fields, or a word of [`WORDS`].
///
/// # Errors
/// The fault, to be read after the schedule: `"99 * * * *": the minute 99 is not from 0 to 59`.
pub fn check(schedule: &str) -> Result<(), String> {
    if schedule.contains('\n') {
        return Err("it has several lines".to_owned());
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    match fields[..] {
        [word] if WORDS.contains(&word) => Ok(()),
        [_, _, _, _, _] => FIELDS.iter().zip(fields).try_for_each(|(field, text)| field.check(text)),
        [word] if word.starts_with('@') => Err(format!("the known words are {}", WORDS.join(", "))),
        _ => Err(format!("it has {} fields instead of five, as in \"30 4 * * 1-5\"", fields.len())),
    }
}

impl Field {
    /// A list of numbers, ranges and `*`, the latter two optionally with a step.
    fn check(&self, text: &str) -> Result<(), String> {
        text.split(',').try_for_each(|part| self.check_part(part))
    }

    fn check_part(&self, part: &str) -> Result<(), String> {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        let is_one = match span.split_once('-') {
            _ if span == "*" => false,
            Some((first, last)) => {
                if self.number(first)? > self.number(last)? {
                    return Err(format!("the {} {span} ends before it begins", self.name));
                }
                false
            }
            None => {
                self.number(span)?;
                true
            }
        };
        match step {
            None => Ok(()),
            Some(_) if is_one => {
                let Self { name, highest, .. } = self;
                Err(format!("the {name} {part} has a step but no range: write {span}-{highest}/…, or */…"))
            }
            Some(step) if number::<u32>(step).is_some_and(|step| step > 0) => Ok(()),
            Some(step) => Err(format!("the {} {part} has the invalid step {step:?}", self.name)),
        }
    }

    /// The numbers of a text that [`check`](Self::check) has accepted, as bits.
    fn bits(&self, text: &str) -> u64 {
        let mut bits = 0;
        for part in text.split(',') {
            let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, number::<u32>(step)));
            let of = |text: &str| self.number(text).unwrap_or(self.highest);
            let (first, last) = match span.split_once('-') {
                _ if span == "*" => (self.lowest, self.highest),
                Some((first, last)) => (of(first), of(last)),
                None => (of(span), of(span)),
            };
            let step = step.and_then(|step| usize::try_from(step).ok()).unwrap_or(1).max(1);
            bits |= (first..=last).step_by(step).fold(0, |bits: u64, value| bits | 1 << value);
        }
        bits
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        if let Some(at) = named.and_then(|at| u32::try_from(at).ok()) {
            return Ok(self.lowest + at);
        }
        let Self { name, lowest, highest, names } = self;
        match number(text) {
            Some(number) if (*lowest..=*highest).contains(&number) => Ok(number),
            _ => {
                let or = names.first().zip(names.last()).map(|(first, last)| format!(", nor {first} to {last}"));
                Err(format!("the {name} {text:?} is not from {lowest} to {highest}{}", or.unwrap_or_default()))
            }
        }
    }
}

/// The times of a schedule, in minutes since 1970-01-01 UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// A bit for each minute, hour, day of the month (from 1), month (from 1) and day of the week (0: Sunday).
    fields: [u64; 5],
    /// Both kinds of days are restricted: as in cron, a match of either kind suffices.
    either: bool,
}

/// The days in which every date meets every day of the week: 29 February does so within 40 years.
const DAYS_AHEAD: u64 = 40 * 366;
const MINUTES: u64 = 24 * 60;

impl Times {
    /// Reads a schedule.
    ///
    /// # Errors
    /// Like [`check`]; and `@reboot`, which has no time.
    pub fn parse(schedule: &str) -> Result<Self, String> {
        check(schedule)?;
        let five = match schedule.trim() {
            "@reboot" => return Err("it names no time: write, for example, \"0 3 * * *\" or @daily".to_owned()),
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let texts: Vec<&str> = five.split_whitespace().collect();
        let mut fields = [0; 5];
        for ((bits, field), text) in fields.iter_mut().zip(FIELDS).zip(&texts) {
            *bits = field.bits(text);
        }
        // Both 0 and 7 are Sunday.
        fields[4] |= fields[4] >> 7 & 1;
        let restricted = |at: usize| texts.get(at).is_some_and(|text| !text.starts_with('*'));
        Ok(Self { fields, either: restricted(2) && restricted(4) })
    }

    /// The first time after a minute; `None` for dates such as 30 February.
    #[must_use]
    pub fn next_after(&self, minute: u64) -> Option<u64> {
        let first = minute.checked_add(1)?;
        let mut days = (first / MINUTES..).take(usize::try_from(DAYS_AHEAD).ok()?).filter(|day| self.has_day(*day));
        days.find_map(|day| {
            let begins = if day == first / MINUTES { first % MINUTES } else { 0 };
            let fits = |of: &u64| self.has(0, of % 60) && self.has(1, of / 60);
            (begins..MINUTES).find(fits).map(|of| day * MINUTES + of)
        })
    }

    /// The last time up to a minute, and after an earlier minute.
    #[must_use]
    pub fn last_within(&self, after: u64, up_to: u64) -> Option<u64> {
        // Only the last time counts: the search through times of more than two days ago stops at the first.
        let near = after.max(up_to.saturating_sub(2 * MINUTES));
        let within = |from: u64| self.next_after(from).filter(|next| *next <= up_to);
        let mut found = within(near).or_else(|| within(after))?;
        while let Some(next) = within(found) {
            found = next;
        }
        Some(found)
    }

    fn has(&self, field: usize, value: u64) -> bool {
        self.fields[field] >> value & 1 == 1
    }

    fn has_day(&self, day: u64) -> bool {
        let (_, month, of_month) = calendar::date(day.cast_signed());
        // 1970-01-01 was a Thursday.
        let (by_month, by_week) = (self.has(2, of_month), self.has(4, (day + 4) % 7));
        self.has(3, month) && if self.either { by_month || by_week } else { by_month && by_week }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_cron_schedules_are_accepted() {
        for schedule in [
            "* * * * *",
            "30 4 * * 1-5",
            " 0\t0 1,15 */2 Sun ",
            "*/5 0-23/2 1-31 jan-MAR mon,Wed,5-7",
            "59 23 31 12 7",
            "0 0 1 DEC 0",
            "*/90 * * * *",
            "05 04 * * *",
        ]
        .into_iter()
        .chain(WORDS)
        {
            assert_eq!(check(schedule), Ok(()), "{schedule}");
        }
    }

    #[test]
    fn invalid_cron_schedules_are_refused_with_the_reason() {
        for (schedule, why) in [
            ("99 * * * *", "the minute \"99\" is not from 0 to 59"),
            ("a b c d e", "the minute \"a\" is not from 0 to 59"),
            ("61 25 32 13 8", "the minute \"61\" is not"),
            ("0 25 * * *", "the hour \"25\" is not from 0 to 23"),
            ("0 0 0 * *", "the day of the month \"0\" is not from 1 to 31"),
            ("0 0 1 13 *", "the month \"13\" is not from 1 to 12, nor jan to dec"),
            ("0 0 * * 8", "the day of the week \"8\" is not from 0 to 7, nor sun to sat"),
            ("0 0 * january *", "the month \"january\" is not"),
            ("0 0 * * 5-1", "the day of the week 5-1 ends before it begins"),
            ("5/15 * * * *", "the minute 5/15 has a step but no range: write 5-59/…, or */…"),
            ("*/0 * * * *", "the minute */0 has the invalid step \"0\""),
            ("*/ * * * *", "the minute */ has the invalid step \"\""),
            ("1,,2 * * * *", "the minute \"\" is not"),
            ("-5 * * * *", "the minute \"\" is not"),
            ("+5 * * * *", "the minute \"+5\" is not"),
            ("*-5 * * * *", "the minute \"*\" is not"),
            ("1-2-3 * * * *", "the minute \"2-3\" is not"),
            ("99999999999 * * * *", "is not from 0 to 59"),
            ("* * * *", "it has 4 fields instead of five"),
            ("* * * * * *", "it has 6 fields instead of five"),
            ("@never", "the known words are @reboot, @yearly"),
            ("", "it has 0 fields"),
            ("* * * *\n*", "several lines"),
        ] {
            let error = check(schedule).expect_err(schedule);
            assert!(error.contains(why), "{schedule}: {error}");
        }
    }

    /// `2026-11-27 06:30 UTC`, a Friday.
    const NOW: u64 = 1_795_761_000 / 60;

    fn next(schedule: &str, after: u64) -> Option<u64> {
        Times::parse(schedule).expect(schedule).next_after(after).map(|minute| minute - after)
    }

    #[test]
    fn the_next_time_of_a_schedule_follows_the_calendar() {
        let (hour, day) = (60, 24 * 60);
        for (schedule, minutes) in [
            ("* * * * *", 1),
            ("30 6 * * *", day),
            ("31 6 * * *", 1),
            ("0 3 * * *", 20 * hour + 30),
            ("0 2 * * 6", 19 * hour + 30),
            ("0 2 * * sat", 19 * hour + 30),
            ("0 0 * * 7", day + 17 * hour + 30),
            ("*/15 * * * *", 15),
            ("0 0 1 * *", 3 * day + 17 * hour + 30),
            ("@yearly", 34 * day + 17 * hour + 30),
            ("@hourly", 30),
            // Both kinds of days: whichever comes first.
            ("0 0 1 * 6", 17 * hour + 30),
            ("0 0 1 * */2", 3 * day + 17 * hour + 30),
        ] {
            assert_eq!(next(schedule, NOW), Some(minutes), "{schedule}");
        }
        // 2028-02-29 12:00 UTC.
        assert_eq!(next("0 12 29 2 *", NOW), Some(1_835_438_400 / 60 - NOW));
        assert_eq!(next("0 0 30 2 *", NOW), None);
        assert!(Times::parse("@reboot").expect_err("no time").contains("no time"));
        assert!(Times::parse("nonsense").is_err());
    }

    #[test]
    fn the_last_missed_time_of_a_schedule_is_found() {
        let daily = Times::parse("0 3 * * *").expect("a schedule");
        let day = 24 * 60;
        let last = NOW - 3 * 60 - 30;
        assert_eq!(daily.last_within(NOW - 100 * day, NOW), Some(last));
        assert_eq!(daily.last_within(last - 1, NOW), Some(last));
        assert_eq!(daily.last_within(last, NOW), None);
        let monthly = Times::parse("@monthly").expect("a schedule");
        let first = NOW - 26 * day - 6 * 60 - 30;
        assert_eq!(monthly.last_within(NOW - 60 * day, NOW), Some(first));
        assert_eq!(monthly.last_within(first, NOW), None);
    }
}
