//! Comparison of parameter values with the kernel's output, which may have another format.

/// Whether the kernel shows a value as this text, or has accepted it and kept further numbers that the value left out.
pub(super) fn is_same(wanted: &str, shown: &str) -> bool {
    wanted == shown || are_same_numbers(wanted, shown) || are_same_ranges(wanted, shown) || is_same_mask(wanted, shown)
}

/// Numbers in any base. The kernel accepts the first numbers of a list alone.
fn are_same_numbers(wanted: &str, shown: &str) -> bool {
    let all = |text: &str| text.split_whitespace().map(number).collect::<Option<Vec<_>>>();
    let (Some(wanted), Some(shown)) = (all(wanted), all(shown)) else { return false };
    !wanted.is_empty() && shown.starts_with(&wanted)
}

/// A number as the kernel reads it: `0x` is the prefix of base 16, `0` is the prefix of base 8.
fn number(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let read = match (digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")), digits.strip_prefix('0')) {
        (Some(digits), _) => i128::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => i128::from_str_radix(digits, 8),
        (None, _) => digits.parse(),
    };
    read.ok().map(|number| sign * number)
}

/// Lists of numbers and ranges, for example of ports or processors: `8080,8081` equals `8080-8081`.
fn are_same_ranges(wanted: &str, shown: &str) -> bool {
    let (Some(wanted), Some(shown)) = (ranges(wanted), ranges(shown)) else { return false };
    wanted == shown
}

fn ranges(text: &str) -> Option<Vec<(u64, u64)>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    };
    let mut all = text.split(',').map(|part| range(part.trim())).collect::<Option<Vec<(u64, u64)>>>()?;
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, last) in all {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            Some(_) | None => merged.push((first, last)),
        }
    }
    Some(merged)
}

/// Bit masks, shown in groups of eight hexadecimal digits: `f` equals `00000000,0000000f`.
fn is_same_mask(wanted: &str, shown: &str) -> bool {
    let is_mask = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit() || c == ',');
    let is_grouped = shown.split(',').all(|group| group.len() == 8);
    let bits = |text: &str| text.replace(',', "").trim_start_matches('0').to_ascii_lowercase();
    is_mask(wanted) && is_mask(shown) && is_grouped && bits(wanted) == bits(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_the_words_of_the_kernel_are_the_same() {
        for (wanted, shown) in [
            ("1", "1"),
            ("0x10", "16"),
            ("010", "8"),
            ("+1", "1"),
            ("-1", "-1"),
            ("4096 87380", "4096 87380 6291456"),
            ("4", "4 4 1 7"),
            ("8080,8081,8082", "8080-8082"),
            ("8081,8080", "8080-8081"),
            ("80,443,8080-8090,8085", "80,443,8080-8090"),
            ("f", "00000000,0000000f"),
            ("FF", "000000ff"),
            ("cubic", "cubic"),
        ] {
            assert!(is_same(wanted, shown), "{wanted:?} {shown:?}");
        }
        for (wanted, shown) in [
            ("1", "0"),
            ("1", "16"),
            ("4 4 1 7", "4"),
            ("8080,8082", "8080-8082"),
            ("f", "f0000000"),
            ("10", "00000010,00000000"),
            ("cubic", "reno"),
            ("", "1"),
            ("8080-8070", "8080-8070x"),
            ("1e", "1"),
        ] {
            assert!(!is_same(wanted, shown), "{wanted:?} {shown:?}");
        }
    }
}
