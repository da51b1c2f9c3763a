//! Schedules of cron: accepts a schedule only if every cron does.
//!
//! A file of `/etc/cron.d` with a schedule that cron can't read does not run, and only cron's own log shows it.

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
        return Err("it has more than one line".to_owned());
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
            Some(step) if number(step).is_some_and(|step| step > 0) => Ok(()),
            Some(step) => Err(format!("the {} {part} has the invalid step {step:?}", self.name)),
        }
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

/// Only digits, without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cron_takes_is_taken() {
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
    fn what_cron_would_skip_is_refused() {
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
            ("*/0 * * * *", "the minute */0 has a step that is none"),
            ("*/ * * * *", "the minute */ has a step that is none"),
            ("1,,2 * * * *", "the minute \"\" is not"),
            ("-5 * * * *", "the minute \"\" is not"),
            ("+5 * * * *", "the minute \"+5\" is not"),
            ("*-5 * * * *", "the minute \"*\" is not"),
            ("1-2-3 * * * *", "the minute \"2-3\" is not"),
            ("99999999999 * * * *", "is not from 0 to 59"),
            ("* * * *", "it has 4 fields, and not five"),
            ("* * * * * *", "it has 6 fields, and not five"),
            ("@never", "the known words are @reboot, @yearly"),
            ("", "it has 0 fields"),
            ("* * * *\n*", "more than one line"),
        ] {
            let error = check(schedule).expect_err(schedule);
            assert!(error.contains(why), "{schedule}: {error}");
        }
    }
}
