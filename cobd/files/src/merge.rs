//! Merges and compares texts.

use std::path::Path;

use git2::{DiffOptions, FileFavor, MergeFileInput, MergeFileOptions, Patch};

use crate::error::FilesError;

/// Precedes each side: no result is empty then, which libgit2 can't return, and no change is in the first line.
const GUARD: &[u8] = b"\x01\n";
/// Differences of larger contents are not shown. libgit2 takes a hundred bytes of memory for each line.
pub(crate) const MAX_DIFF: u64 = 1 << 20;
/// Texts with more bytes or more lines are not merged by lines.
const MAX_MERGED: usize = 16 << 20;
const MAX_LINES: usize = 400_000;
/// How many bytes are searched for a NUL to find out whether a content is a text.
const LOOKED_AT: usize = 8000;

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merged {
    Clean(Vec<u8>),
    /// The text with both sides where they differ.
    Conflict(Vec<u8>),
    /// A content that can't be merged by lines.
    Binary,
}

/// The side whose lines win a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

/// Merges two sides of a text, line by line.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Merged, FilesError> {
    merge_for(None, base, ours, theirs)
}

/// The same, but this side wins all conflicts, so that the result has no conflict.
pub(crate) fn merge_for(side: Option<Side>, base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Merged, FilesError> {
    if ours == theirs || theirs == base {
        return Ok(Merged::Clean(ours.to_vec()));
    }
    if ours == base {
        return Ok(Merged::Clean(theirs.to_vec()));
    }
    if [base, ours, theirs].iter().any(|side| is_binary(side) || is_large(side)) {
        return Ok(Merged::Binary);
    }
    let guarded = |side: &[u8]| [GUARD, side].concat();
    let (base, ours, theirs) = (guarded(base), guarded(ours), guarded(theirs));
    let input = |bytes| {
        let mut input = MergeFileInput::new();
        input.content(bytes);
        input
    };
    // libgit2 must be initialized first, and this is the only function of git2 that does not do it.
    drop(git2::Buf::new());
    let mut options = MergeFileOptions::new();
    options.our_label("on this host").their_label("wanted").ancestor_label("applied before").style_diff3(true);
    options.favor(match side {
        None => FileFavor::Normal,
        Some(Side::Ours) => FileFavor::Ours,
        Some(Side::Theirs) => FileFavor::Theirs,
    });
    let failed = |e: git2::Error| FilesError::Content(format!("a merge could not be made: {}", e.message()));
    let merged = git2::merge_file(&input(&base), &input(&ours), &input(&theirs), Some(&mut options)).map_err(failed)?;
    let content = merged.content();
    let text = content.strip_prefix(GUARD).unwrap_or(content).to_vec();
    Ok(if merged.is_automergeable() { Merged::Clean(text) } else { Merged::Conflict(text) })
}

fn is_large(text: &[u8]) -> bool {
    text.len() > MAX_MERGED || text.iter().filter(|b| **b == b'\n').count() > MAX_LINES
}

pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(LOOKED_AT)].contains(&0)
}

/// The difference of two contents as a unified diff of about `most` bytes or less.
pub(crate) fn diff(old: Option<&[u8]>, new: Option<&[u8]>, path: &str, most: usize) -> String {
    let (old_bytes, new_bytes) = (old.unwrap_or_default(), new.unwrap_or_default());
    let is_large = [old_bytes, new_bytes].iter().any(|bytes| bytes.len() as u64 > MAX_DIFF);
    if is_large || is_binary(old_bytes) || is_binary(new_bytes) {
        let sort = if is_large { "large" } else { "binary" };
        return format!("{sort} file {path} differs ({} and {} bytes)\n", old_bytes.len(), new_bytes.len());
    }
    let relative = path.trim_start_matches('/');
    let mut options = DiffOptions::new();
    options.context_lines(3);
    let named = Path::new(relative);
    let made = Patch::from_buffers(old_bytes, Some(named), new_bytes, Some(named), Some(&mut options));
    let text = made.and_then(|mut patch| Ok(patch.to_buf()?.to_vec()));
    let Ok(text) = text else { return format!("{path} differs\n") };
    let text = String::from_utf8_lossy(&text);
    // Skip git's header, which has its own names.
    let hunks = text.find("\n@@").map_or("", |at| &text[at + 1..]);
    let name = |side: Option<&[u8]>, letter| side.map_or("/dev/null".to_owned(), |_| format!("{letter}/{relative}"));
    let mut whole = format!("--- {}\n+++ {}\n{hunks}", name(old, 'a'), name(new, 'b'));
    if whole.len() > most {
        let at = (0..=most).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
        let at = whole[..at].rfind('\n').map_or(at, |n| n + 1);
        whole.truncate(at);
        whole.push_str("[the rest is left out]\n");
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(base: &str, ours: &str, theirs: &str) -> String {
        match merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()).expect("merged") {
            Merged::Clean(bytes) => String::from_utf8(bytes).expect("text"),
            Merged::Conflict(_) | Merged::Binary => panic!("not clean: {ours:?} {theirs:?}"),
        }
    }

    #[test]
    fn lines_of_both_sides_are_kept() {
        let base = "a\nb\nc\nd\ne\nf\ng\n";
        assert_eq!(clean(base, "mine\na\nb\nc\nd\ne\nf\ng\n", "a\nb\nc\nd\ne\nf\nG\n"), "mine\na\nb\nc\nd\ne\nf\nG\n");
        assert_eq!(clean("a\nb\nc\n", "a\nb\nc\n", ""), "");
        assert_eq!(clean("a\n", "b\n", "b\n"), "b\n", "both did the same");
        // Line endings stay.
        assert_eq!(
            clean("a\r\nb\r\nc\r\nd\r\n", "x\r\na\r\nb\r\nc\r\nd\r\n", "a\r\nb\r\nc\r\nd\r\ny\r\n"),
            "x\r\na\r\nb\r\nc\r\nd\r\ny\r\n"
        );
        assert_eq!(clean("a\nb\nc\nd", "x\na\nb\nc\nd", "a\nb\nc\nD"), "x\na\nb\nc\nD", "no line end at the end");
        assert_eq!(
            clean("a\nb\nc\nd\ne\n", "b\nc\nd\ne\n", "a\nb\nc\nd\n"),
            "b\nc\nd\n",
            "what each has removed is gone"
        );
    }

    #[test]
    fn a_file_emptied_on_both_sides_merges_without_error() {
        assert_eq!(clean("a\nb\nc\nd\ne\n", "", ""), "");
        let both = merge(b"a\nb\n", b"", b"a\nb\nc\n").expect("merged");
        assert!(matches!(both, Merged::Conflict(_)), "{both:?}");
    }

    #[test]
    fn a_conflict_is_shown_with_both_sides() {
        let Merged::Conflict(text) = merge(b"port 80\n", b"port 81\n", b"port 82\n").expect("merged") else {
            panic!("no conflict")
        };
        let text = String::from_utf8(text).expect("text");
        for part in ["<<<<<<< on this host\nport 81\n", "port 80", ">>>>>>> wanted\n", "port 82\n"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains('\x01'));
        assert_eq!(merge(b"a\0", b"b\0", b"c\0").expect("merged"), Merged::Binary);
        assert_eq!(merge(b"a\0", b"b\0", b"b\0").expect("merged"), Merged::Clean(b"b\0".to_vec()));
    }

    #[test]
    fn a_decided_conflict_takes_its_side_and_merges_the_rest() {
        let base = b"one\nport 80\ntwo\nthree\nfour\nfive\n";
        let ours = b"mine\none\nport 81\ntwo\nthree\nfour\nfive\n";
        let theirs = b"one\nport 82\ntwo\nthree\nfour\n5\n";
        let taken = |side| merge_for(Some(side), base, ours, theirs).expect("merged");
        let clean = |text: &str| Merged::Clean(text.as_bytes().to_vec());
        assert_eq!(taken(Side::Ours), clean("mine\none\nport 81\ntwo\nthree\nfour\n5\n"));
        assert_eq!(taken(Side::Theirs), clean("mine\none\nport 82\ntwo\nthree\nfour\n5\n"));
        let first = merge_for(Some(Side::Theirs), b"a\n", b"b\n", b"c\n").expect("merged");
        assert_eq!(first, clean("c\n"), "in the first line, too");
        assert_eq!(merge_for(Some(Side::Ours), b"a\0", b"b\0", b"c\0").expect("merged"), Merged::Binary);
    }

    #[test]
    fn a_difference_has_the_usual_format_and_a_limited_length() {
        let text = diff(Some(b"a\nb\n"), Some(b"a\nc\n"), "/etc/x", 1000);
        assert_eq!(text, "--- a/etc/x\n+++ b/etc/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
        assert!(diff(None, Some(b"a\n"), "/etc/x", 1000).starts_with("--- /dev/null\n+++ b/etc/x\n"));
        let long = "line\n".repeat(1000);
        let text = diff(None, Some(long.as_bytes()), "/etc/x", 200);
        assert!(text.len() < 240 && text.ends_with("[the rest is left out]\n"), "{text}");
        assert!(diff(Some(b"\0"), Some(b"x"), "/x", 100).contains("binary"));
        let lines = vec![b'\n'; MAX_LINES + 1];
        assert_eq!(merge(b"a", &lines, b"b").expect("merged"), Merged::Binary, "it would take a hundred bytes a line");
        assert!(diff(None, Some(&vec![b'\n'; 2 << 20]), "/x", 100).starts_with("large file"));
    }
}
