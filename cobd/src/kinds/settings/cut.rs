//! Lines that a setting takes out of a file of others, or shortens, and puts back later.
//!
//! The note has each line with its place. If no other program changed the file meanwhile, the file is the same afterwards,
//! byte for byte. Otherwise a line returns below the line that preceded it, and a line that others changed stays.

use serde::{Deserialize, Serialize};

use crate::kinds::native::{insert_line, lines};

/// The lines that go, and the lines that become shorter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cut {
    #[serde(default)]
    pub(super) gone: Vec<Gone>,
    #[serde(default)]
    pub(super) changed: Vec<Changed>,
}

/// A line that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gone {
    /// With its end.
    pub(super) line: String,
    /// The line above that stays, with its end.
    below: Option<String>,
    /// How many lines above stay.
    #[serde(default)]
    at: usize,
}

/// A line that becomes shorter; both with their ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changed {
    was: String,
    is: String,
}

/// The rest of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rest {
    /// The line stays as it is.
    Whole,
    /// The line stays with this text.
    Part(String),
    /// The line goes.
    Nothing,
}

/// A line without its end.
pub(super) fn bare(line: &str) -> &str {
    line.trim_end_matches(['\n', '\r'])
}

impl Cut {
    /// What the rule cuts out of a text.
    pub(super) fn of(text: &str, rule: &dyn Fn(&str) -> Rest) -> Self {
        let (mut cut, mut above, mut at) = (Self::default(), None, 0);
        for line in lines(text) {
            let stays = match rule(line) {
                Rest::Nothing => {
                    cut.gone.push(Gone { line: line.to_owned(), below: above.clone(), at });
                    continue;
                }
                Rest::Part(is) => {
                    cut.changed.push(Changed { was: line.to_owned(), is: is.clone() });
                    is
                }
                Rest::Whole => line.to_owned(),
            };
            (above, at) = (Some(stays), at + 1);
        }
        cut
    }

    /// Whether nothing is cut out.
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.changed.is_empty()
    }

    /// The text without the lines and parts.
    pub(super) fn out_of(text: &str, rule: &dyn Fn(&str) -> Rest) -> String {
        let rest = |line: &str| match rule(line) {
            Rest::Whole => line.to_owned(),
            Rest::Part(part) => part,
            Rest::Nothing => String::new(),
        };
        lines(text).into_iter().map(rest).collect()
    }

    /// The text with the lines and parts. `is_there(line, gone)`: a line that went exists again. `again(line, was)`:
    /// what a line that others changed becomes in place of an earlier line; `None`: it is another line, or it stays.
    pub(super) fn put_back(
        &self,
        text: &str,
        is_there: &dyn Fn(&str, &str) -> bool,
        again: &dyn Fn(&str, &str) -> Option<String>,
    ) -> String {
        let mut all: Vec<String> = lines(text).into_iter().map(str::to_owned).collect();
        let is_away = |gone: &&Gone| !lines(text).into_iter().any(|line| is_there(line, &gone.line));
        // From the last to the first, so that lines below the same line keep their order.
        self.gone.iter().rev().filter(is_away).for_each(|gone| gone.put_back(&mut all));
        for Changed { was, is } in &self.changed {
            match all.iter().position(|line| bare(line) == bare(is)) {
                Some(at) if all.iter().all(|line| bare(line) != bare(was)) => {
                    let end = all[at][bare(&all[at]).len()..].to_owned();
                    all[at] = format!("{}{end}", bare(was));
                }
                Some(_) => {}
                None => {
                    if let Some((at, new)) = all.iter().enumerate().find_map(|(at, line)| Some((at, again(line, was)?)))
                    {
                        all[at] = new;
                    }
                }
            }
        }
        all.concat()
    }
}

impl Gone {
    fn put_back(&self, all: &mut Vec<String>) {
        let at = self.place(all);
        // The last line of a file may have no end.
        if at == all.len() && !self.line.ends_with('\n') {
            if let Some(last) = all.last_mut().filter(|last| !last.ends_with('\n')) {
                last.push('\n');
            }
            all.push(self.line.clone());
        } else {
            insert_line(all, at, self.line.strip_suffix('\n').unwrap_or(&self.line));
        }
    }

    /// Below the line that preceded it: of equal lines, the one that is nearest to its former place. Without such a line, in
    /// its former place.
    fn place(&self, all: &[String]) -> usize {
        let Some(below) = &self.below else { return 0 };
        let equal = (0..all.len()).filter(|at| bare(&all[*at]) == bare(below)).map(|at| at + 1);
        equal.min_by_key(|at| at.abs_diff(self.at)).unwrap_or(self.at.min(all.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines with `x` go, and `y` becomes `z`.
    fn rule(line: &str) -> Rest {
        match bare(line) {
            text if text.contains('x') => Rest::Nothing,
            text if text.contains('y') => Rest::Part(line.replace('y', "z")),
            _ => Rest::Whole,
        }
    }

    fn back(cut: &Cut, text: &str) -> String {
        cut.put_back(text, &|line, gone| bare(line) == bare(gone), &|_, _| None)
    }

    #[test]
    fn a_text_is_restored_byte_for_byte() {
        for text in [
            "",
            "x",
            "x\n",
            "a\nx\nb\n",
            "#\n#\nx1\n#\nx2\n",
            "\n\nx\n\n\nx2\n\nb",
            "a\r\nx\r\ny\r\nb\r\n",
            "y\nx\na\ny2\nx",
            "x1\nx2\nx3",
            "a\nx1",
            "a",
        ] {
            let (cut, out) = (Cut::of(text, &rule), Cut::out_of(text, &rule));
            assert!(!out.contains(['x', 'y']), "{out:?}");
            assert_eq!(cut.is_empty(), text == out);
            assert_eq!(back(&cut, &out), text);
            assert_eq!(back(&cut, text), text, "a second time");
        }
    }

    #[test]
    fn lines_that_others_wrote_meanwhile_stay() {
        let text = "a\nx\nb\ny\nc\n";
        let cut = Cut::of(text, &rule);
        assert_eq!(back(&cut, "new\na\nb\nz\nnew\nc\n"), "new\na\nx\nb\ny\nnew\nc\n");
        assert_eq!(back(&cut, "b\nother\n"), "b\nx\nother\n", "the line above and the shortened line are gone");
        assert_eq!(back(&cut, "x\nb\nz\n"), "x\nb\ny\n", "the line was made anew");
        let again =
            cut.put_back("a\nb\nz!\n", &|_, _| true, &|line, _| line.starts_with('z').then(|| "y!\n".to_owned()));
        assert_eq!(again, "a\nb\ny!\n");
    }
}
