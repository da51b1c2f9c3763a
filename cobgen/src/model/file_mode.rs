//! File modes in models, and advice if a number stands in place of a mode.
//!
//! A mode is three or four octal digits in quotes. YAML reads `mode: 0644` as the decimal number 644, JSON can only
//! write the decimal 420, and `0o644` and `0x1a4` are numbers, too. The advice names the intended mode.

use super::node::Value;
use super::yaml;

/// The required form of a file mode.
const FORM: &str = "write three or four octal digits in quotes";

/// Usual modes of files and folders. They decide whether `420` is the decimal form of 0644 or the digits 0420.
const USUAL: [u32; 18] = [
    0o400, 0o440, 0o444, 0o500, 0o550, 0o555, 0o600, 0o640, 0o644, 0o660, 0o664, 0o666, 0o700, 0o750, 0o755, 0o770,
    0o775, 0o777,
];

/// The bits of a mode; `None`: the text is not a mode.
#[must_use]
pub(crate) fn parse(text: &str) -> Option<u32> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    octal.then(|| u32::from_str_radix(text, 8).ok()).flatten()
}

/// The advice for a number in place of a mode. `written` is its spelling, if it is not the decimal form.
pub(super) fn help_for(number: i128, written: Option<&str>) -> String {
    let decimal = number.to_string();
    let digits = parse(written.unwrap_or(&decimal));
    let value = u32::try_from(number).ok().filter(|bits| *bits <= 0o7777);
    let prefixed = written.is_some_and(|text| text.starts_with("0x") || text.starts_with("0o"));
    let meant = match (digits, value) {
        (Some(digits), Some(value)) if !USUAL.contains(&digits) && USUAL.contains(&value) => Some(value),
        (Some(digits), _) => Some(digits),
        (None, Some(value)) if prefixed || USUAL.contains(&value) => Some(value),
        (None, _) => None,
    };
    meant.map_or_else(|| format!("{FORM}: \"0644\""), |mode| format!("{FORM}: \"{mode:04o}\""))
}

/// The advice for a text that is no mode.
pub(crate) fn help_for_text(text: &str) -> String {
    match yaml::number(text) {
        Some(Some(Value::Int(number, written))) => help_for(number, Some(written.text().unwrap_or(text))),
        Some(_) | None => format!("{FORM}: \"0644\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_the_place_of_a_mode_is_answered_with_the_mode_that_it_meant() {
        for (number, written, mode) in [
            (420, None, "0644"),
            (420, Some("0x1a4"), "0644"),
            (420, Some("0o644"), "0644"),
            (644, None, "0644"),
            (644, Some("0644"), "0644"),
            (493, None, "0755"),
            (755, None, "0755"),
            (1777, None, "1777"),
            (1023, Some("0o1777"), "1777"),
            (99_999, None, "0644"),
            (-1, None, "0644"),
        ] {
            let help = help_for(number, written);
            assert_eq!(help, format!("{FORM}: \"{mode}\""), "{number} {written:?}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_file_mode_gets_a_proposal() {
        assert_eq!((parse("0640"), parse("640"), parse("7777")), (Some(0o640), Some(0o640), Some(0o7777)));
        for (text, mode) in [("0o644", "0644"), ("0x1a4", "0644"), ("493", "0755"), ("u=rw", "0644"), ("0999", "0644")]
        {
            assert_eq!(parse(text), None, "{text}");
            assert_eq!(help_for_text(text), format!("{FORM}: \"{mode}\""), "{text}");
        }
    }
}
