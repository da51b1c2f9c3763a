//! The options of `curl`, as the configuration file of curl(1), `--config`. By standard input, the list of processes shows
//! neither addresses nor secrets.

use std::fmt::Write as _;

/// Options of `curl`.
#[derive(Clone, Default)]
pub struct CurlOptions(String);

impl CurlOptions {
    /// The arguments with which `curl` reads its options from standard input, and from no file of a user.
    pub const ARGUMENTS: [&str; 3] = ["--disable", "--config", "-"];

    /// Adds an option without a value.
    #[must_use]
    pub fn flag(mut self, key: &str) -> Self {
        self.0 += key;
        self.0.push('\n');
        self
    }

    /// Adds an option with its value.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n").replace('\r', r"\r");
        let _ = writeln!(self.0, "{key} = \"{value}\"");
        self
    }

    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Options may have secrets.
impl std::fmt::Debug for CurlOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurlOptions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_in_its_line() {
        let options = CurlOptions::default().flag("fail").set("user", "a\"b\\c\nurl = \"x\"");
        assert_eq!(options.text(), "fail\nuser = \"a\\\"b\\\\c\\nurl = \\\"x\\\"\"\n");
    }
}
