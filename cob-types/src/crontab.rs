//! Lines of a crontab, in a form that both Debian's cron and cronie read back.
//!
//! A file of `/etc/cron.d` with a line that cron can't read is skipped as a whole, and only cron's own log shows it.

/// cron skips longer commands, and cuts longer lines of variables.
const MAX_LINE: usize = 998;

/// The line that assigns this value to a variable: quoted if cron would change or refuse it otherwise.
///
/// # Errors
/// The reason why there is no such line, to be read after the name of the variable.
pub fn assignment(name: &str, value: &str) -> Result<String, String> {
    let in_a_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || !name.chars().all(in_a_name) {
        return Err("it is not a valid variable name".to_owned());
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err("its value has several lines, or control characters".to_owned());
    }
    // Without quotes, cron removes blanks at the ends, and an opening quote needs a closing quote.
    let is_bare = !value.is_empty() && value.trim() == value && !value.starts_with(['"', '\'']);
    let quoted = |quote: char| (!value.contains(quote)).then(|| format!("{name}={quote}{value}{quote}"));
    let line = if is_bare { Some(format!("{name}={value}")) } else { quoted('"').or_else(|| quoted('\'')) };
    let line = line.ok_or("its value has both sorts of quotes, and starts with a quote or has blanks at its ends")?;
    if line.len() > MAX_LINE { Err(format!("its line is longer than {MAX_LINE} bytes")) } else { Ok(line) }
}

/// The variable and the value of a line; `None`: the line is no assignment.
#[must_use]
pub fn assigned(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim().trim_matches(['"', '\'']), value.trim());
    if name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    match value.chars().next()? {
        quote @ ('"' | '\'') => {
            value[1..].split_once(quote).filter(|(_, rest)| rest.is_empty()).map(|(in_it, _)| (name, in_it))
        }
        _ => Some((name, value)),
    }
}

/// Checks that cron runs a command.
///
/// # Errors
/// The reason why it does not, to be read after `the command`.
pub fn command(command: &str) -> Result<(), String> {
    if command.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if command.contains('\n') {
        return Err("has several lines".to_owned());
    }
    if command.chars().any(|c| c.is_control() && c != '\t') {
        return Err("has control characters".to_owned());
    }
    if command.trim().len() > MAX_LINE {
        return Err(format!("is longer than {MAX_LINE} bytes, which cron does not read"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_where_cron_needs_it() {
        for (value, line) in [
            ("ops", "A=ops"),
            ("", "A=\"\""),
            (" x ", "A=\" x \""),
            ("'", "A=\"'\""),
            ("\"x\"", "A='\"x\"'"),
            ("'a' b", "A=\"'a' b\""),
            ("a 'b' \"c\"", "A=a 'b' \"c\""),
            ("a=b # c", "A=a=b # c"),
        ] {
            assert_eq!(assignment("A", value).as_deref(), Ok(line));
            assert_eq!(assigned(line), Some(("A", value)), "{line}");
        }
        for (name, value, word) in [
            ("A B", "x", "not a valid"),
            ("", "x", "not a valid"),
            ("5", "x", "not a valid"),
            ("#A", "x", "not a valid"),
            ("A", "1\n2", "several lines"),
            ("A", "1\r", "control characters"),
            ("A", "'\"", "both sorts of quotes"),
            ("A", "' \" ", "both sorts of quotes"),
            ("A", &"x".repeat(MAX_LINE - 1), "longer than 998 bytes"),
        ] {
            let why = assignment(name, value).expect_err(value);
            assert!(why.contains(word), "{name} {value:?}: {why}");
        }
        assert!(assignment("A", &"x".repeat(MAX_LINE - 2)).is_ok());
        for line in ["* * * * * root true", "A=", "A='x", "A='a' b", "A B=c"] {
            assert_eq!(assigned(line), None, "{line}");
        }
    }

    #[test]
    fn commands_that_cron_does_not_read_are_refused() {
        for (text, word) in [(" ", "empty"), ("a\nb", "several lines"), ("a\rb", "control characters")] {
            assert!(command(text).expect_err(text).contains(word));
        }
        assert!(command(&"x".repeat(MAX_LINE + 1)).expect_err("long").contains("longer than 998 bytes"));
        assert!(command(&"x".repeat(MAX_LINE)).is_ok() && command("date \\% +1\t| mail").is_ok());
    }
}
