//! Waits for conditions instead of fixed times.

use std::time::{Duration, Instant};

/// The pause between two checks.
const LOOK: Duration = Duration::from_millis(10);

/// Checks a condition repeatedly; returns whether it came true in time.
pub fn comes_true(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}
