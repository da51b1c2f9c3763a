//! Times of this machine, and times in a readable form.

use std::time::{SystemTime, UNIX_EPOCH};

use cob_types::calendar;

/// Seconds since 1970-01-01 UTC, or 0 if the clock is earlier.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Seconds as the depot counts them.
pub(crate) fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// `2026-11-21 03:24:07 UTC`, from seconds since 1970-01-01 UTC.
pub(crate) fn utc(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = calendar::date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The same in the form of RFC 3339.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let text = utc(i64::try_from(seconds).unwrap_or(i64::MAX / 2));
    text.replacen(' ', "T", 1).replace(" UTC", "Z")
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
        assert_eq!(rfc3339(1_700_000_000), "2023-11-14T22:13:20Z");
        assert!(rfc3339(u64::MAX).ends_with('Z'));
    }
}
