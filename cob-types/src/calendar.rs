//! Dates of the Gregorian calendar, without time zones.

/// The year, month and day of a day counted from 1970-01-01 (Howard Hinnant's `civil_from_days`).
#[must_use]
pub fn date(days: i64) -> (i64, u64, u64) {
    // Days since 0000-03-01 of a calendar that repeats every 400 years; years start in March, so that the leap day is
    // the last day.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097).unsigned_abs());
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year.cast_signed() + era * 400 + later, month, day)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; `None` for earlier dates.
#[must_use]
pub fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years begin in March, so that the leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}

/// `2026-11-21 03:24:07 UTC`, from seconds since 1970-01-01 UTC.
#[must_use]
pub fn utc(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_calendar_form() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), shown);
        }
    }

    #[test]
    fn days_and_dates_are_inverse() {
        for day in (0..80_000).step_by(13).chain(11_000..11_100) {
            let (year, month, of_month) = date(day);
            assert_eq!(
                days(year.unsigned_abs(), month, of_month),
                Some(day.unsigned_abs()),
                "{year}-{month}-{of_month}"
            );
        }
        assert_eq!(days(1969, 12, 31), None);
    }
}
