//! Comparison of versions, as package managers do it.

use std::cmp::Ordering;

/// Compares two versions `EPOCH:VERSION-RELEASE`; a missing epoch is 0.
pub(super) fn by_rpm(one: &str, other: &str) -> Ordering {
    let ((e1, v1, r1), (e2, v2, r2)) = (parts(one), parts(other));
    e1.cmp(&e2).then_with(|| by_segments(v1, v2)).then_with(|| by_segments(r1, r2))
}

/// Compares two versions `EPOCH:UPSTREAM-REVISION` as dpkg does; a missing epoch is 0.
pub(super) fn by_dpkg(one: &str, other: &str) -> Ordering {
    let ((e1, v1, r1), (e2, v2, r2)) = (parts(one), parts(other));
    e1.cmp(&e2).then_with(|| by_runs(v1, v2)).then_with(|| by_runs(r1, r2))
}

/// Compares alternate runs of other characters and digits: letters sort before others, and `~` sorts before the end.
fn by_runs(mut one: &str, mut other: &str) -> Ordering {
    let weight = |char: Option<char>| match char {
        Some('~') => -1,
        None => 0,
        Some(char) if char.is_ascii_alphabetic() => char as i64,
        Some(char) => char as i64 + 256,
    };
    while !(one.is_empty() && other.is_empty()) {
        let split = |text: &str, digits: bool| text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
        let ((w1, rest1), (w2, rest2)) = (one.split_at(split(one, false)), other.split_at(split(other, false)));
        let (mut c1, mut c2) = (w1.chars(), w2.chars());
        loop {
            let (a, b) = (c1.next(), c2.next());
            let order = weight(a).cmp(&weight(b));
            if order.is_ne() {
                return order;
            }
            if a.is_none() && b.is_none() {
                break;
            }
        }
        let ((n1, rest1), (n2, rest2)) = (rest1.split_at(split(rest1, true)), rest2.split_at(split(rest2, true)));
        let (n1, n2) = (n1.trim_start_matches('0'), n2.trim_start_matches('0'));
        let order = n1.len().cmp(&n2.len()).then_with(|| n1.cmp(n2));
        if order.is_ne() {
            return order;
        }
        (one, other) = (rest1, rest2);
    }
    Ordering::Equal
}

fn parts(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (version, release) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch.parse().unwrap_or_default(), version, release)
}

/// Compares segments of digits or letters. `~` sorts before any text, and `^` sorts after the same text without it.
fn by_segments(mut one: &str, mut other: &str) -> Ordering {
    loop {
        let between = |c: char| !c.is_ascii_alphanumeric() && c != '~' && c != '^';
        (one, other) = (one.trim_start_matches(between), other.trim_start_matches(between));
        match (one.strip_prefix('~'), other.strip_prefix('~')) {
            (Some(a), Some(b)) => {
                (one, other) = (a, b);
                continue;
            }
            (Some(_), None) => return Ordering::Less,
            (None, Some(_)) => return Ordering::Greater,
            (None, None) => {}
        }
        match (one.strip_prefix('^'), other.strip_prefix('^')) {
            (Some(a), Some(b)) => {
                (one, other) = (a, b);
                continue;
            }
            (Some(_), None) => return if other.is_empty() { Ordering::Greater } else { Ordering::Less },
            (None, Some(_)) => return if one.is_empty() { Ordering::Less } else { Ordering::Greater },
            (None, None) => {}
        }
        let (Some(a), Some(b)) = (one.chars().next(), other.chars().next()) else {
            // The longer version is newer.
            return one.len().cmp(&other.len());
        };
        if a.is_ascii_digit() != b.is_ascii_digit() {
            // A number is newer than a word.
            return if a.is_ascii_digit() { Ordering::Greater } else { Ordering::Less };
        }
        let in_segment = |c: char| if a.is_ascii_digit() { c.is_ascii_digit() } else { c.is_ascii_alphabetic() };
        let cut = |text: &str| text.find(|c| !in_segment(c)).unwrap_or(text.len());
        let ((s1, rest1), (s2, rest2)) = (one.split_at(cut(one)), other.split_at(cut(other)));
        let order = if a.is_ascii_digit() {
            let (n1, n2) = (s1.trim_start_matches('0'), s2.trim_start_matches('0'));
            n1.len().cmp(&n2.len()).then_with(|| n1.cmp(n2))
        } else {
            s1.cmp(s2)
        };
        if order.is_ne() {
            return order;
        }
        (one, other) = (rest1, rest2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same results as `dpkg --compare-versions`.
    #[test]
    fn versions_are_compared_as_dpkg_does() {
        for (one, other, order) in [
            ("1.0", "1.0", Ordering::Equal),
            ("1.0-1", "1.0-1", Ordering::Equal),
            ("0:1.0", "1.0", Ordering::Equal),
            ("1.0", "1.0-0", Ordering::Equal),
            ("1.0-1", "1.0-2", Ordering::Less),
            ("1.9", "1.10", Ordering::Less),
            ("1:1.0", "2.0", Ordering::Greater),
            ("1.0~rc1", "1.0", Ordering::Less),
            ("1.0~~", "1.0~", Ordering::Less),
            ("1.0a", "1.0+b", Ordering::Less),
            ("1.0+deb12u1", "1.0", Ordering::Greater),
            ("2.36-9+deb12u14", "2.36-9+deb12u9", Ordering::Greater),
            ("1.001", "1.1", Ordering::Equal),
            ("9.0.0-3", "9.0.0-3.1", Ordering::Less),
        ] {
            assert_eq!(by_dpkg(one, other), order, "{one} {other}");
            assert_eq!(by_dpkg(other, one), order.reverse(), "{other} {one}");
        }
    }

    /// Cases from rpm's own tests.
    #[test]
    fn versions_are_compared_as_rpm_does() {
        for (one, other, order) in [
            ("1.0-1", "1.0-1", Ordering::Equal),
            ("1.0-1", "2.0-1", Ordering::Less),
            ("2.0.1-1", "2.0-1", Ordering::Greater),
            ("1.10-1", "1.9-1", Ordering::Greater),
            ("5.5p10-1", "5.5p2-1", Ordering::Greater),
            ("10xyz-1", "10.1xyz-1", Ordering::Less),
            ("xyz10-1", "xyz10.1-1", Ordering::Less),
            ("1.05-1", "1.5-1", Ordering::Equal),
            ("2a-1", "2.0-1", Ordering::Less),
            ("1.0~rc1-1", "1.0-1", Ordering::Less),
            ("1.0~rc1-1", "1.0~rc2-1", Ordering::Less),
            ("1.0^-1", "1.0-1", Ordering::Greater),
            ("1.0^git1-1", "1.0.1-1", Ordering::Less),
            ("1.0^git1~pre-1", "1.0^git1-1", Ordering::Less),
            ("1:1.0-1", "9.0-1", Ordering::Greater),
            ("1.0-2.el9", "1.0-10.el9", Ordering::Less),
        ] {
            assert_eq!(by_rpm(one, other), order, "{one} {other}");
            assert_eq!(by_rpm(other, one), order.reverse(), "{other} {one}");
        }
    }
}
