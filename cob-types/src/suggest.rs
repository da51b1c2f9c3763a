//! Finds the known name nearest to an unknown name.

/// `did you mean ...?`, if a known name is near enough.
#[must_use]
pub fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(wrong, known).map(|name| with_odd_character(wrong, format!("did you mean `{name}`?")))
}

/// Adds to an advice the first character that is not ASCII: a no-break space, or a letter that looks like ASCII.
fn with_odd_character(wrong: &str, help: String) -> String {
    match wrong.chars().find(|c| !c.is_ascii()) {
        Some(odd) => format!("{help} The character {} is not ASCII", code_point(odd)),
        None => help,
    }
}

/// A character with its number, to distinguish it from lookalikes and invisible characters.
#[must_use]
pub fn code_point(character: char) -> String {
    format!("{character:?} (U+{:04X})", u32::from(character))
}

/// `did you mean ...?`, or else a list of the known names.
pub fn did_you_mean_or_list<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    const LISTED: usize = 12;
    if let Some(text) = did_you_mean(wrong, known.clone()) {
        return Some(text);
    }
    let mut names: Vec<&str> = known.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    let listed: Vec<String> = names.iter().take(LISTED).map(|n| format!("`{n}`")).collect();
    let help = match names.len() {
        0 => return None,
        n if n > LISTED => format!("there are {}, and {} more", listed.join(", "), n - LISTED),
        1 => format!("there is {}", listed.join(", ")),
        _ => format!("there are {}", listed.join(", ")),
    };
    Some(match wrong.is_ascii() {
        true => help,
        false => with_odd_character(wrong, format!("{help}.")),
    })
}

/// The known name with the fewest edits, if these are few for its length.
#[must_use]
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong: Vec<char> = wrong.chars().take(256).map(|c| c.to_ascii_lowercase()).collect();
    let limit = (wrong.len() / 3).clamp(1, 3);
    let mut best: Option<(usize, &str)> = None;
    for name in known {
        let bound = best.map_or(limit, |(d, _)| d.saturating_sub(1));
        // A character has at most four bytes.
        if name.len() > 4 * (wrong.len() + bound) || 4 * name.len() + bound < wrong.len() {
            continue;
        }
        let other: Vec<char> = name.chars().take(256).map(|c| c.to_ascii_lowercase()).collect();
        let distance = distance(&wrong, &other, limit);
        if distance <= limit && best.is_none_or(|(d, n)| (distance, name) < (d, n)) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours; beyond `limit` any larger number.
fn distance(a: &[char], b: &[char], limit: usize) -> usize {
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        if row.iter().all(|d| *d > limit) {
            return limit + 1;
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["preferred", "pre_remove", "states", "up", "down"];
        for (wrong, right) in [("prefered", "preferred"), ("stats", "states"), ("dwon", "down"), ("UP", "up")] {
            assert_eq!(did_you_mean(wrong, known).as_deref(), Some(&*format!("did you mean `{right}`?")), "{wrong}");
        }
        assert_eq!(did_you_mean("entirely-else", known), None);
        assert_eq!(did_you_mean_or_list("zzzzzz", ["b", "a"]).as_deref(), Some("there are `a`, `b`"));
    }
}
