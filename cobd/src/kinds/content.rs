//! Reading the content of built-in kinds.

use std::fmt;
use std::time::Duration;

use cob_types::words::form;
use serde::de::{self, DeserializeOwned, Deserializer, Visitor};

/// The longest duration that a content may contain.
pub(super) const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reads a content. The error names an unknown or missing key.
pub(super) fn read<T: DeserializeOwned>(content: &str) -> Result<T, String> {
    // The model gave no content.
    let content = if content.trim().is_empty() || content == "null" { "{}" } else { content };
    if !content.trim_start().starts_with('{') {
        return Err("content: it must be a mapping".to_owned());
    }
    serde_json::from_str(content).map_err(|error| {
        let text = form(error);
        // The canonical JSON is one line that no user wrote, so the position is useless.
        let what = text.split(" at line ").next().unwrap_or(&text);
        format!("content: {what}")
    })
}

/// For `#[serde(deserialize_with)]`: `"500ms"`, `"2s"`, `"5m"`, `"1h"`, or a number of seconds.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_any(DurationVisitor)
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time like \"500ms\", \"2s\", \"5m\" or a number of seconds, at most a week")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "ms" => 0.001,
            "s" | "" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        };
        let number: f64 = digits.trim().parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))?;
        self.visit_f64(number * unit)
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
        Some(Duration::from_secs(seconds))
            .filter(|d| *d <= LONGEST)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(seconds), &self))
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
        let positive = u64::try_from(seconds).map_err(|_| E::invalid_value(de::Unexpected::Signed(seconds), &self))?;
        self.visit_u64(positive)
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Duration, E> {
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|d| *d <= LONGEST)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Float(seconds), &self))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Content {
        #[serde(deserialize_with = "duration")]
        time: Duration,
    }

    #[test]
    fn times_are_read_in_all_forms() {
        for (text, millis) in [
            ("\"500ms\"", 500),
            ("\"2s\"", 2000),
            ("\"1.5m\"", 90_000),
            ("\"1h\"", 3_600_000),
            ("3", 3000),
            ("0.25", 250),
        ] {
            let content: Content = read(&format!("{{\"time\":{text}}}")).expect(text);
            assert_eq!(content.time.as_millis(), millis, "{text}");
        }
        for text in ["-1", "\"2 weeks\"", "\"\"", "1e300", "\"NaN\"", "\"-1s\"", "[]", "99999999"] {
            let error = read::<Content>(&format!("{{\"time\":{text}}}")).expect_err(text);
            assert!(error.contains("500ms"), "{text}: {error}");
        }
        let error = read::<Content>(r#"{"tme":1}"#).expect_err("unknown");
        assert!(error.contains("tme") && error.contains("time") && !error.contains("line"), "{error}");
        assert!(read::<Content>("").expect_err("missing").contains("missing field `time`"));
    }
}
