//! Scalars of YAML: the core schema of YAML 1.2, and a notation that YAML 1.1 reads in the same way.

use serde_json::{Number, Value};

/// Words that YAML 1.1 reads as truth values.
const TRUTHS: [&str; 6] = ["yes", "no", "on", "off", "y", "n"];

/// The value of a scalar without quotes.
pub(super) fn resolved(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Value::from(text), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let of_radix =
        |digits: &str, radix| i64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with(['+', '-']));
    if let Some(octal) = text.strip_prefix("0o") {
        return of_radix(octal, 8).map(Number::from);
    }
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return of_radix(hexadecimal, 16).map(Number::from);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || "eE.+-".contains(c));
    if !is_number {
        return None;
    }
    let plain = text.strip_prefix('+').unwrap_or(text);
    let whole = plain.parse::<i64>().map(Number::from).or_else(|_| plain.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| plain.parse().ok().and_then(Number::from_f64))
}

/// A value on a single line. `like`: the text of the earlier value, whose quotes stay.
pub(super) fn notation(value: &Value, like: &str) -> String {
    match value {
        Value::String(text) => {
            let is_printable = !text.contains(|c: char| c.is_control());
            match like.chars().next() {
                Some('\'') if is_printable => format!("'{}'", text.replace('\'', "''")),
                Some('"') => value.to_string(),
                Some(_) | None if is_plain(text, " :@+=%~") => text.clone(),
                Some(_) | None => value.to_string(),
            }
        }
        Value::Array(items) => format!("[{}]", items.iter().map(in_flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| format!("{}: {}", key_notation(key), in_flow(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A value inside of a list or mapping on a single line.
fn in_flow(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text, "") => text.clone(),
        Value::String(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => notation(value, ""),
    }
}

/// A key, in quotes if needed.
pub(super) fn key_notation(key: &str) -> String {
    if is_plain(key, "") { key.to_owned() } else { Value::from(key).to_string() }
}

/// Whether a text needs no quotes. `more`: characters that are allowed inside.
fn is_plain(text: &str, more: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let is_known = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c) || more.contains(c);
    begins
        && text.chars().all(is_known)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !TRUTHS.contains(&text.to_ascii_lowercase().as_str())
        && resolved(text).is_string()
}
