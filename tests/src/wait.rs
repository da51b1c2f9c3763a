//! Waiting for what should become true, instead of for a time in which it might.

use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Looks again and again until something is so. Tells whether it came true in time.
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
