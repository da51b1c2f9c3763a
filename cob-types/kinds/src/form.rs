//! The form of contents: reading, durations, and values that are numbers or texts.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use cob_types::words::form;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde_json::Value as Json;

use super::{Content, Faults};

/// The longest duration that a content may contain.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// A duration: `"500ms"`, `"2s"`, `"5m"`, `"1h"`, in daemons also a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A number, a truth value or a text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Scalar(Json);

/// serde default: `true`.
#[must_use]
pub fn yes() -> bool {
    true
}

/// Reads a content and checks its values.
///
/// # Errors
/// The first fault, as text.
pub fn read<C: Content>(content: &str) -> Result<C, String> {
    let content: C = parse(content)?;
    let mut faults = Faults::default();
    content.check(&mut faults);
    faults.first().map(|()| content)
}

/// Reads a content without a check of its values. The error names an unknown or missing key.
///
/// # Errors
/// The difference from the form, as text.
pub fn parse<T: DeserializeOwned>(content: &str) -> Result<T, String> {
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

/// The JSON Schema of a type.
#[must_use]
pub fn schema_of<T: JsonSchema>(title: &str) -> Json {
    let mut schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.to_value()
}

impl Time {
    /// A number of milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Whether a content may contain it.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        self.0 <= LONGEST
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h)$",
            "x-what": "a duration with its unit, such as `30s`, `500ms`, `2m` or `1h`",
            "x-time": true,
        })
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time like \"500ms\", \"2s\", \"5m\" or a number of seconds, at most a week")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
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

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Time, E> {
        Some(Time(Duration::from_secs(seconds)))
            .filter(|time| time.is_allowed())
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(seconds), &self))
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Time, E> {
        let positive = u64::try_from(seconds).map_err(|_| E::invalid_value(de::Unexpected::Signed(seconds), &self))?;
        self.visit_u64(positive)
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Time, E> {
        Duration::try_from_secs_f64(seconds)
            .ok()
            .map(Time)
            .filter(|time| time.is_allowed())
            .ok_or_else(|| E::invalid_value(de::Unexpected::Float(seconds), &self))
    }
}

impl Scalar {
    /// The value of `key` as text; `truth`: the words for false and true, if truth values are allowed.
    ///
    /// # Errors
    /// The fault and its remedy.
    pub fn text(&self, key: &str, truth: Option<[&str; 2]>) -> Result<String, (String, String)> {
        let quotes = || "put it into quotes".to_owned();
        match (&self.0, truth) {
            (Json::String(text), _) => Ok(text.clone()),
            (Json::Bool(is), Some(words)) => Ok(words[usize::from(*is)].to_owned()),
            (Json::Bool(is), None) => {
                Err((format!("`{key}` is {is}, a truth value"), format!("write {}", u8::from(*is))))
            }
            (Json::Number(number), _) if number.is_f64() => {
                Err((format!("`{key}` is a number with a fraction"), quotes()))
            }
            (Json::Number(number), _) if number.as_i64().is_none() => {
                Err((format!("`{key}` is a number of more than 63 bits"), quotes()))
            }
            (Json::Number(number), _) => Ok(number.to_string()),
            (Json::Null | Json::Array(_) | Json::Object(_), _) => {
                Err((format!("`{key}` is neither a number nor a text"), quotes()))
            }
        }
    }
}

impl JsonSchema for Scalar {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "number", "boolean", "null"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Timed {
        time: Time,
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
            let content: Timed = parse(&format!("{{\"time\":{text}}}")).expect(text);
            assert_eq!(content.time.0.as_millis(), millis, "{text}");
        }
        for text in ["-1", "\"2 weeks\"", "\"\"", "1e300", "\"NaN\"", "\"-1s\"", "[]", "99999999"] {
            let error = parse::<Timed>(&format!("{{\"time\":{text}}}")).expect_err(text);
            assert!(error.contains("500ms"), "{text}: {error}");
        }
        let error = parse::<Timed>(r#"{"tme":1}"#).expect_err("unknown");
        assert!(error.contains("tme") && error.contains("time") && !error.contains("line"), "{error}");
        assert!(parse::<Timed>("").expect_err("missing").contains("missing field `time`"));
    }
}
