//! The lines that the history keeps: the newest lines, and besides the newest orders and lines of switches.
//!
//! Messages from other hosts cause only lines of other classes (requests, grants, releases, terms of later switch
//! attempts). So a host that floods this host with valid messages displaces lines of these classes, but no order.

use cob_types::history::HistoryEntry;

use super::{FORGET_BATCH, Index, IndexError, key};

/// Orders of operators.
const ORDERS: [&str; 14] = [
    "pause",
    "resume",
    "retry",
    "prepare",
    "declare-final",
    "cancel",
    "unhold",
    "call-off",
    "limit",
    "only",
    "fence",
    "resolve",
    "restore",
    "terms",
];
/// Switches of this host, and starts of its daemon.
const SWITCHES: [&str; 7] = ["go", "activate", "return", "withdrawn", "guard", "stopped", "daemon"];

/// Classes of lines that are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Order,
    Switch,
}

impl Class {
    const ALL: [Self; 2] = [Self::Order, Self::Switch];

    /// The first byte of the keys that point to these lines.
    pub(super) fn sort(self) -> u8 {
        match self {
            Self::Order => b'o',
            Self::Switch => b's',
        }
    }
}

/// The class of a line; `None`: no separate class.
pub(super) fn class_of(entry: &HistoryEntry) -> Option<Class> {
    let is_of = |events: &[&str]| events.contains(&entry.event.as_str());
    // Other hosts cause later switch attempts without an operator of this host.
    let anonymous = entry.event == "terms" && entry.author().is_none();
    if is_of(&ORDERS) && !anonymous {
        Some(Class::Order)
    } else if is_of(&SWITCHES) {
        Some(Class::Switch)
    } else {
        None
    }
}

/// The counts of kept lines.
#[derive(Debug, Default)]
pub(super) struct LineCounts {
    /// The number of lines of each class; `None`: not counted yet.
    pub(super) lines: Option<[u64; 2]>,
    /// Before this key, only lines of these classes are left.
    passed: Vec<u8>,
}

impl Index {
    pub(super) fn kept_lines(&mut self) -> Result<[u64; 2], IndexError> {
        let lines = match self.kept.lines {
            Some(lines) => lines,
            None => [self.count(Class::Order.sort())?, self.count(Class::Switch.sort())?],
        };
        self.kept.lines = Some(lines);
        Ok(lines)
    }

    /// Deletes the oldest lines if there are too many.
    pub(super) fn forget_surplus(&mut self) -> Result<(), IndexError> {
        while self.lines()?.saturating_sub(self.kept_lines()?.iter().sum()) >= self.most + FORGET_BATCH as u64 {
            self.forget_some()?;
        }
        for class in Class::ALL {
            while self.kept_lines()?[class as usize] >= self.most_kept + FORGET_BATCH as u64 {
                self.forget_kept(class)?;
            }
        }
        Ok(())
    }

    fn forget_some(&mut self) -> Result<(), IndexError> {
        let mut batch = sled::Batch::default();
        let (mut forgotten, mut kept, mut passed) = (0, self.kept_lines()?, self.kept.passed.clone());
        let from = if passed.is_empty() { b"h".to_vec() } else { passed.clone() };
        for found in self.tree.range(from..b"i".to_vec()) {
            let (line, value) = found.map_err(|e| self.store_error(&e))?;
            let entry = serde_json::from_slice::<HistoryEntry>(&value).ok();
            passed = line.to_vec();
            if let Some(class) = entry.as_ref().and_then(class_of) {
                // An earlier version has written the line without a pointer to it.
                let pointer = key(class.sort(), &[], &line[1..]);
                let known = self.tree.contains_key(&pointer).map_err(|e| self.store_error(&e))?;
                kept[class as usize] += u64::from(!known);
                batch.insert(pointer, &[]);
                continue;
            }
            forget(&mut batch, &line, entry);
            forgotten += 1;
            if forgotten == FORGET_BATCH {
                break;
            }
        }
        // Missing lines can't be deleted, so the true count replaces a wrong count.
        let is_all = forgotten < FORGET_BATCH;
        let others = self.lines()?.saturating_sub(forgotten as u64);
        let lines = if is_all { kept.iter().sum() } else { others };
        self.apply(batch, self.upto, lines)?;
        self.kept = LineCounts { lines: Some(kept), passed };
        Ok(())
    }

    fn forget_kept(&mut self, class: Class) -> Result<(), IndexError> {
        let oldest: Result<Vec<_>, _> = self.tree.scan_prefix([class.sort()]).keys().take(FORGET_BATCH).collect();
        let oldest = oldest.map_err(|e| self.store_error(&e))?;
        let (mut batch, mut forgotten) = (sled::Batch::default(), 0);
        for pointer in &oldest {
            let line = key(b'h', &[], &pointer[1..]);
            if let Some(value) = self.tree.get(&line).map_err(|e| self.store_error(&e))? {
                forget(&mut batch, &line, serde_json::from_slice(&value).ok());
                forgotten += 1;
            }
            batch.remove(pointer);
        }
        let lines = self.lines()?.saturating_sub(forgotten);
        let mut kept = self.kept_lines()?;
        let is_all = oldest.len() < FORGET_BATCH;
        kept[class as usize] = if is_all { 0 } else { kept[class as usize].saturating_sub(oldest.len() as u64) };
        self.apply(batch, self.upto, lines)?;
        self.kept.lines = Some(kept);
        Ok(())
    }
}

fn forget(batch: &mut sled::Batch, line: &[u8], entry: Option<HistoryEntry>) {
    if let Some(cob) = entry.and_then(|e| e.cob) {
        batch.remove(key(b'c', &[cob.as_str()], &line[1..]));
    }
    batch.remove(line);
}
