//! Writes values as YAML for people to edit: block style, with quotes only where they are needed.

use serde_json::Value;

/// A value as a YAML document.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

/// The width up to which a list or mapping of plain values is on a single line.
const LINE: usize = 100;

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                out.push_str(&"  ".repeat(depth));
                out.push_str(&text(key));
                out.push(':');
                rest(value, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&"  ".repeat(depth));
                out.push('-');
                rest(item, depth, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            out.push_str(&"  ".repeat(depth));
            out.push_str(&flow(value));
            out.push('\n');
        }
    }
}

/// Writes the part after a key or a dash.
fn rest(value: &Value, depth: usize, out: &mut String) {
    let on_line = flow(value);
    let nested = matches!(value, Value::Object(map) if map.values().any(Value::is_object));
    let fits = on_line.len() + 2 * depth < LINE && !nested;
    if fits || !(value.is_object() || value.is_array()) {
        out.push(' ');
        out.push_str(&on_line);
        out.push('\n');
    } else {
        out.push('\n');
        block(value, depth + 1, out);
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(words) => text(words),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{}: {}", text(key), flow(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// A text without quotes if it is unambiguous, else in quotes.
fn text(words: &str) -> String {
    let first = |c: char| c.is_ascii_alphabetic() || ['/', '_'].contains(&c);
    let others = |c: char| c.is_ascii_alphanumeric() || ['_', '-', '.', '/'].contains(&c);
    let plain = words.starts_with(first) && words.chars().all(others);
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if plain && !reserved.contains(&words.to_ascii_lowercase().as_str()) {
        words.to_owned()
    } else {
        // YAML reads quoted JSON strings alike.
        Value::from(words).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_reads_as_it_was() {
        let value = json!({
            "services": {"db-1": {"cobs": {}, "list": [1, "two", null, true], "deep": {"a": {"b": [["x", "y"], ["z"]]}}}},
            "texts": ["yes", "1.0", "a: b", "", "#", "it's", "two\nlines", "%host.self%", "{{ x }}", "é", "- a", "NULL"],
            "long": ["a".repeat(60), "b".repeat(60)],
        });
        let text = to_yaml(&value);
        let back: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(back, value, "{text}");
        assert!(text.contains("\n    deep:\n      a: {b: [[x, "), "{text}");
    }
}
