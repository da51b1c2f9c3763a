//! Undoes an edit of a text, line by line, in a text that others have edited since.

use std::ops::Range;

use git2::{DiffOptions, Patch};

/// The most lines in which two texts may differ.
const MAX_DIFFERENCES: usize = 1000;

/// The text `now` with the lines that an edit from `before` to `after` has changed as they were in `before`. Lines that
/// others have changed again stay.
pub(super) fn undone(before: &str, after: &str, now: &str) -> Option<String> {
    let [before, after, now] = [before, after, now].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let edits = gaps(&common(&after, &before)?, after.len(), before.len());
    let mut places = vec![None; after.len()];
    for (line, place) in common(&after, &now)? {
        places[line] = Some(place);
    }
    let mut undone: Vec<String> = now.iter().map(|line| (*line).to_owned()).collect();
    for (ours, earlier) in edits.into_iter().rev() {
        let Some(place) = place_of(&ours, &before[earlier.clone()], &places, &now) else { continue };
        let is_last = place.end == now.len();
        let lines = before[earlier].iter().map(|line| match is_last || line.ends_with('\n') {
            true => (*line).to_owned(),
            false => format!("{line}\n"),
        });
        undone.splice(place, lines.collect::<Vec<_>>());
    }
    Some(undone.concat())
}

/// The place of changed lines in a later text. `None`: others have changed the lines, or brought the earlier lines back.
fn place_of(ours: &Range<usize>, earlier: &[&str], places: &[Option<usize>], now: &[&str]) -> Option<Range<usize>> {
    if !ours.is_empty() {
        let first = places[ours.start]?;
        let is_whole = ours.clone().enumerate().all(|(nth, line)| places[line] == Some(first + nth));
        return is_whole.then_some(first..first + ours.len());
    }
    let above = if ours.start == 0 { Some(0) } else { places[ours.start - 1].map(|line| line + 1) };
    let below = if ours.start == places.len() { Some(now.len()) } else { places[ours.start] };
    match (above, below) {
        (Some(above), Some(below)) => {
            let is_back = now[above..below].windows(earlier.len()).any(|lines| lines == earlier);
            (!is_back).then_some(above..above)
        }
        (Some(place), None) | (None, Some(place)) => Some(place..place),
        (None, None) => None,
    }
}

/// The parts between common lines.
fn gaps(common: &[(usize, usize)], one_end: usize, other_end: usize) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut gaps, mut from) = (Vec::new(), (0, 0));
    for (one, other) in common.iter().copied().chain([(one_end, other_end)]) {
        if (one, other) != from {
            gaps.push((from.0..one, from.1..other));
        }
        from = (one + 1, other + 1);
    }
    gaps
}

/// The common lines of two texts, as git finds them. `None`: the texts differ too much.
fn common(one: &[&str], other: &[&str]) -> Option<Vec<(usize, usize)>> {
    let [old, new] = [one, other].map(buffer);
    let mut options = DiffOptions::new();
    options.context_lines(0).force_text(true);
    let patch = Patch::from_buffers(&old, None, &new, None, Some(&mut options)).ok()?;
    let (mut pairs, mut from, mut differences) = (Vec::new(), (0, 0), 0);
    for nth in 0..patch.num_hunks() {
        let (hunk, _) = patch.hunk(nth).ok()?;
        let (removed, added) = (hunk.old_lines() as usize, hunk.new_lines() as usize);
        // Lines have numbers from 1; a hunk without lines has the number of the line above.
        let begin = |start: u32, lines: usize| (start as usize + usize::from(lines == 0)).saturating_sub(1);
        let (old, new) = (begin(hunk.old_start(), removed), begin(hunk.new_start(), added));
        pairs.extend((from.0..old).zip(from.1..new));
        from = (old + removed, new + added);
        differences += removed + added;
    }
    pairs.extend((from.0..one.len()).zip(from.1..other.len()));
    (differences <= MAX_DIFFERENCES).then_some(pairs)
}

/// The lines for git: each with an end, and a mark if it has none.
fn buffer(lines: &[&str]) -> Vec<u8> {
    let line = |line: &&str| match line.strip_suffix('\n') {
        Some(line) => format!(" {line}\n"),
        None => format!("-{line}\n"),
    };
    lines.iter().map(line).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(words: &str) -> String {
        words.chars().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn common_lines_are_the_longest_sequence() {
        for (one, other, length) in [
            ("", "", 0),
            ("abc", "abc", 3),
            ("abcabba", "cbabac", 4),
            ("abc", "", 0),
            ("", "abc", 0),
            ("abc", "xyz", 0),
            ("xabc", "abcy", 3),
            ("aaaa", "aa", 2),
            ("abcdefgh", "bdfh", 4),
        ] {
            let [one, other] =
                [one, other].map(|words| words.split("").filter(|word| !word.is_empty()).collect::<Vec<_>>());
            let pairs = common(&one, &other).expect("few lines");
            assert_eq!(pairs.len(), length, "{one:?} {other:?} {pairs:?}");
            assert!(pairs.iter().all(|(a, b)| one[*a] == other[*b]), "{pairs:?}");
            assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{pairs:?}");
        }
    }

    #[test]
    fn an_edit_is_undone_beside_edits_of_others() {
        for (before, after, now, undone) in [
            ("abc", "aXc", "aXc", "abc"),
            ("abc", "aXc", "naXcm", "nabcm"),
            ("abc", "aXc", "aYc", "aYc"),
            ("abc", "abcX", "abmcX", "abmc"),
            ("abc", "ac", "ac", "abc"),
            ("abc", "ac", "anc", "abnc"),
            // The user has brought the line back.
            ("abc", "ac", "abc", "abc"),
            ("abc", "", "", "abc"),
            ("", "abc", "abcd", "d"),
            ("abcd", "aXcY", "aXcZ", "abcZ"),
        ] {
            let [before, after, now, wanted] = [before, after, now, undone].map(lines);
            assert_eq!(super::undone(&before, &after, &now), Some(wanted), "{before:?} {after:?} {now:?}");
        }
        // A last line without its end gets an end if a line follows.
        assert_eq!(super::undone("a\nb", "a\nx\n", "a\nx\nc\n").as_deref(), Some("a\nb\nc\n"));
        assert_eq!(super::undone("a\nb", "a\nx\n", "a\nx\n").as_deref(), Some("a\nb"));
        let [long, other] =
            [0, 9000].map(|first| (first..first + 4000).map(|line| format!("{line}\n")).collect::<String>());
        assert_eq!(super::undone(&long, &other, &long), None, "the texts differ too much");
    }
}
