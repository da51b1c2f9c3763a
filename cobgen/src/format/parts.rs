//! A text in parts, each with lines around it that stand for the rest of the text.
//!
//! The form of an entry of a block mapping depends on its own lines and its depth alone. So a part begins at the key of an
//! entry, below a *head*: the keys of the mappings around it, and another entry of its mapping. A *tail* is the next entry.
//! The comments and empty lines at a boundary stand between the same keys as before. A text that is not understood line by
//! line stays a single part.

/// How many mappings a part may be inside.
const DEEPEST: usize = 4;
/// A deeper entry begins a part with this probability (1 in n), which its line alone decides: an inserted line moves no
/// other boundary.
const ONE_IN: u64 = 16;

/// A part of a text.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// The columns of the keys around it, and of its own; empty at the beginning of the text.
    columns: Vec<usize>,
    text: &'a str,
    /// The column and the level of the next part's key.
    next: Option<(usize, usize)>,
}

impl Part<'_> {
    /// The part between its head and its tail: a text of its own.
    pub(super) fn framed(&self) -> String {
        let tail = self.next.map(|(column, _)| tail(column)).unwrap_or_default();
        head(&self.columns) + self.text + &tail
    }

    /// The formatted part without the formatted head and tail. Absent: these have another form.
    pub(super) fn unframed<'f>(&self, formatted: &'f str) -> Option<&'f str> {
        let columns: Vec<usize> = (0..self.columns.len()).map(column_of).collect();
        let rest = formatted.strip_prefix(&head(&columns))?;
        match self.next {
            Some((_, level)) => rest.strip_suffix(&tail(column_of(level))),
            None => Some(rest),
        }
    }
}

/// The column of a level in a formatted text.
fn column_of(level: usize) -> usize {
    2 * level
}

fn head(columns: &[usize]) -> String {
    let last = columns.len().saturating_sub(1);
    let line = |(level, column): (usize, &usize)| {
        let entry = if level == last { "a: 1" } else { "a:" };
        format!("{:column$}{entry}\n", "", column = *column)
    };
    columns.iter().enumerate().map(line).collect()
}

fn tail(column: usize) -> String {
    format!("{:column$}z: 1\n", "")
}

/// The parts of a text; together they are the text.
pub(super) fn of_text(text: &str) -> Vec<Part<'_>> {
    split(text, ONE_IN)
}

/// As [`of_text`], with another probability.
pub(super) fn split(text: &str, one_in: u64) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut from, mut columns) = (0, Vec::new());
    for (at, inside) in boundaries(text, one_in) {
        let next = inside.last().map(|column| (*column, inside.len() - 1));
        parts.push(Part { columns: std::mem::replace(&mut columns, inside), text: &text[from..at], next });
        from = at;
    }
    parts.push(Part { columns, text: &text[from..], next: None });
    parts
}

/// Where parts after the first begin, with the columns of the keys around them.
fn boundaries(text: &str, one_in: u64) -> Vec<(usize, Vec<usize>)> {
    let is_mark = |line: &str| line.starts_with("---") || line.starts_with("...") || line.starts_with('%');
    // Documents, other line ends and tabs are left to the formatter, and its orders in comments.
    if text.contains(['\r', '\t', '\u{feff}']) || text.contains("pretty-yaml-") || text.lines().any(is_mark) {
        return Vec::new();
    }
    let mut found = Vec::new();
    // The columns of the block mappings around the line, the outermost first.
    let mut columns: Vec<usize> = Vec::new();
    // The last line was a key without a value.
    let mut opens = true;
    // The column of the line whose block scalar may go on.
    let mut scalar = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let (start, line) = (at, line.trim_end_matches('\n'));
        at = start + line.len() + 1;
        let rest = line.trim_start_matches(' ');
        let column = line.len() - rest.len();
        if rest.is_empty() || scalar.is_some_and(|of| column > of) || rest.starts_with('#') {
            continue;
        }
        scalar = has_block_scalar(rest).then_some(column);
        let is_first = std::mem::replace(&mut opens, false);
        let Some(value) = value_of_key(rest) else { continue };
        let kept = columns.iter().take_while(|other| **other <= column).count();
        columns.truncate(kept);
        if columns.last() == Some(&column) {
            let is_shallow = columns.len() == 1;
            if is_shallow || (columns.len() <= DEEPEST && hash(line).is_multiple_of(one_in)) {
                found.push((start, columns.clone()));
            }
        } else if is_first {
            columns.push(column);
        } else {
            continue;
        }
        opens = value.is_empty() || value.starts_with('#');
    }
    found
}

/// What follows a plain key and its colon.
fn value_of_key(rest: &str) -> Option<&str> {
    let is_sign = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let end = rest.find(|c| !is_sign(c)).filter(|end| *end > 0)?;
    let value = rest[end..].strip_prefix(':')?;
    (value.is_empty() || value.starts_with(' ')).then(|| value.trim())
}

/// Whether the value of a line is a block scalar, or may be one.
fn has_block_scalar(rest: &str) -> bool {
    let value = rest.split(" #").next().unwrap_or_default().trim_end();
    let header = value.trim_end_matches(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
    header.ends_with(['|', '>'])
}

/// FNV-1a, which has the same value on every machine.
fn hash(line: &str) -> u64 {
    line.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
