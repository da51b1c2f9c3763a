//! Times of this machine, and times in a readable form.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use cob_types::calendar::utc;

/// Seconds since 1970-01-01 UTC, or 0 if the clock is earlier.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Seconds as the depot counts them.
pub(crate) fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Seconds since 1970-01-01 UTC in the form of RFC 3339.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let text = utc(i64::try_from(seconds).unwrap_or(i64::MAX / 2));
    text.replacen(' ', "T", 1).replace(" UTC", "Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_in_rfc_3339() {
        assert_eq!(rfc3339(1_700_000_000), "2023-11-14T22:13:20Z");
        assert!(rfc3339(u64::MAX).ends_with('Z'));
    }
}
