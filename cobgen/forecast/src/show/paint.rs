//! Colours for printed differences and plans: added, removed, changed, and headings.

/// The text, with colours if `colour` is set. The first sign of a line gives its colour, at any indentation; a line
/// that starts at the margin is a heading.
#[must_use]
pub fn painted(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let mut painted = String::with_capacity(text.len() * 5 / 4);
    for line in text.split_inclusive('\n') {
        let (bare, end) = line.strip_suffix('\n').map_or((line, ""), |bare| (bare, "\n"));
        let code = match bare.trim_start().as_bytes() {
            [b'+', ..] => "32",
            [b'-', ..] => "31",
            [b'~', ..] => "33",
            [_, ..] if !bare.starts_with(' ') => "1",
            _ => "",
        };
        if code.is_empty() {
            painted.push_str(line);
        } else {
            painted.push_str(&format!("\x1b[{code}m{bare}\x1b[0m"));
            painted.push_str(end);
        }
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signs_and_headings_are_coloured() {
        let text = "Differences\n  + n1/a\n  - n1/b\n  ~ n1/c\n      +new line\n  as it is\n\nend";
        assert_eq!(painted(text, false), text);
        assert_eq!(
            painted(text, true),
            "\x1b[1mDifferences\x1b[0m\n\x1b[32m  + n1/a\x1b[0m\n\x1b[31m  - n1/b\x1b[0m\n\x1b[33m  ~ n1/c\x1b[0m\n\
             \x1b[32m      +new line\x1b[0m\n  as it is\n\n\x1b[1mend\x1b[0m"
        );
    }
}
