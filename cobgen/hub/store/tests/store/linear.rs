//! Whether a history of reads and compare-and-swaps of one key is linearizable: a search for an order of the calls that
//! explains all answers, and in which each call lies between its beginning and its end (Wing and Gong).

use std::collections::HashSet;

/// A call, between two moments of a counter that all callers share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) begun: u64,
    /// `u64::MAX`: no answer came, the call may have an effect at any later moment, or none.
    pub(crate) ended: u64,
    pub(crate) what: Done,
}

/// What a call did. A register begins with 0.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Done {
    /// It read this value.
    Read(u64),
    /// It changed `from` to `to`, or found another value. `None`: no answer came.
    Swap { from: u64, to: u64, succeeded: Option<bool> },
}

impl Done {
    /// The value after the call, if its answer fits the value before.
    fn after(self, value: u64) -> Option<u64> {
        match self {
            Done::Read(seen) => (seen == value).then_some(value),
            Done::Swap { from, to, succeeded: Some(true) } => (from == value).then_some(to),
            Done::Swap { from, succeeded: Some(false), .. } => (from != value).then_some(value),
            Done::Swap { from, to, succeeded: None } => Some(if from == value { to } else { value }),
        }
    }
}

/// Whether such an order exists.
pub(crate) fn is_linearizable(calls: &[Call]) -> bool {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.begun);
    let answered = calls.iter().filter(|call| call.ended != u64::MAX).count();
    let mut open = vec![(vec![false; calls.len()], 0_usize, 0_u64)];
    let mut seen = HashSet::new();
    while let Some((done, count, value)) = open.pop() {
        if count == answered {
            return true;
        }
        // A call can be next if no other call ended before it began.
        let pending = || calls.iter().zip(&done).enumerate().filter(|(_, (_, done))| !**done);
        let first_end = pending().map(|(_, (call, _))| call.ended).min().unwrap_or(u64::MAX);
        for (at, (call, _)) in pending().take_while(|(_, (call, _))| call.begun < first_end) {
            if let Some(after) = call.what.after(value) {
                let mut next = done.clone();
                next[at] = true;
                if seen.insert((next.clone(), after)) {
                    open.push((next, count + usize::from(call.ended != u64::MAX), after));
                }
            }
        }
    }
    false
}

#[test]
fn the_search_tells_right_from_wrong() {
    let swap = |begun, ended, from, to, succeeded| Call { begun, ended, what: Done::Swap { from, to, succeeded } };
    let read = |begun, ended, value| Call { begun, ended, what: Done::Read(value) };
    assert!(is_linearizable(&[swap(0, 3, 0, 1, Some(true)), read(1, 2, 0), read(4, 5, 1)]));
    assert!(is_linearizable(&[swap(0, 3, 0, 1, Some(true)), read(1, 2, 1)]));
    // A stale read, a write that is undone, two winners.
    assert!(!is_linearizable(&[swap(0, 1, 0, 1, Some(true)), read(2, 3, 0)]));
    assert!(!is_linearizable(&[swap(0, 9, 0, 1, Some(true)), read(1, 2, 1), read(3, 4, 0)]));
    assert!(!is_linearizable(&[swap(0, 9, 0, 1, Some(true)), swap(1, 8, 0, 2, Some(true))]));
    assert!(is_linearizable(&[swap(0, 9, 0, 1, Some(true)), swap(1, 8, 0, 2, Some(false))]));
    // Without an answer: it may have happened, late or never.
    for seen in [0, 1] {
        assert!(is_linearizable(&[swap(0, u64::MAX, 0, 1, None), read(2, 3, seen)]));
    }
    assert!(!is_linearizable(&[swap(0, u64::MAX, 0, 1, None), read(2, 3, 1), read(4, 5, 0)]));
}
