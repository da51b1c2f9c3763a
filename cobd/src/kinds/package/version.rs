//! Versions as rpm compares them.

use std::cmp::Ordering;

/// Compares two versions, `EPOCH:VERSION-RELEASE` each; without an epoch it is 0.
pub(super) fn by_rpm(one: &str, other: &str) -> Ordering {
    let ((e1, v1, r1), (e2, v2, r2)) = (parts(one), parts(other));
    e1.cmp(&e2).then_with(|| by_segments(v1, v2)).then_with(|| by_segments(r1, r2))
}

fn parts(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (version, release) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch.parse().unwrap_or_default(), version, release)
}

/// Segments of digits or of letters, one after the other; `~` is before anything, `^` after the same without it.
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
            // Whoever has more is newer.
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

    /// As rpm's own tests have them.
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
