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
