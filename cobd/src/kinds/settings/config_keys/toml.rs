//! The format TOML. `toml_edit` tells the places of keys and values; edits are made in the text.

use std::ops::Range;

use serde_json::{Value, json};
use toml_edit::{Document, Item, Table, Value as Toml};

use super::pieces::{Entry, Piece, Tag};

fn document(text: &str) -> Result<Document<&str>, String> {
    Document::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        format!("line {line}: {}", error.message().replace('\n', ", "))
    })
}

/// The pieces of a text whose last line has a line end.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let document = document(text)?;
    let mut marks = Vec::new();
    collect(document.as_table(), &mut Vec::new(), &mut marks);
    marks.sort_by_key(|(range, _)| range.start);
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line_end = |at: usize| text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
    let (mut pieces, mut done) = (Vec::new(), 0);
    for (range, tag) in marks {
        let lines = line_start(range.start)..line_end(range.end);
        pieces.extend(text[done..lines.start].split_inclusive('\n').map(Piece::other));
        let inside = |at: usize| at - lines.start;
        let tag = match tag {
            Tag::Entry(entry) => {
                let value = inside(entry.value.start)..inside(entry.value.end);
                Tag::Entry(Entry { value, ..entry })
            }
            Tag::Header(_) | Tag::Other => tag,
        };
        pieces.push(Piece { text: text[lines.clone()].to_owned(), tag });
        done = lines.end;
    }
    pieces.extend(text[done..].split_inclusive('\n').map(Piece::other));
    Ok(pieces)
}

/// Collects headers and entries with their places in the text.
fn collect(table: &Table, path: &mut Vec<String>, marks: &mut Vec<(Range<usize>, Tag)>) {
    for (name, item) in table {
        path.push(name.to_owned());
        match item {
            Item::Value(value) => {
                let key = table.key(name).and_then(toml_edit::Key::span);
                if let Some((key, value)) = key.zip(value.span()) {
                    let entry = Entry { path: path.clone(), value: key.end..value.end, comma: None };
                    marks.push((key.start..value.end, Tag::Entry(entry)));
                }
            }
            Item::Table(inner) => {
                if let Some(span) = inner.span().filter(|_| !inner.is_dotted() && !inner.is_implicit()) {
                    marks.push((span, Tag::Header(path.clone())));
                }
                collect(inner, path, marks);
            }
            Item::ArrayOfTables(tables) => {
                for (number, inner) in tables.iter().enumerate() {
                    // No key of a content leads there.
                    path.push(format!("\0{number}"));
                    if let Some(span) = inner.span() {
                        marks.push((span, Tag::Header(path.clone())));
                    }
                    collect(inner, path, marks);
                    path.pop();
                }
            }
            Item::None => {}
        }
        path.pop();
    }
}

/// The value of a key, which may be a whole table.
pub(super) fn value(text: &str, path: &[String]) -> Result<Option<Value>, String> {
    let document = document(text)?;
    Ok(path.iter().try_fold(document.as_item(), |item, name| item.get(name)).map(json_of))
}

/// The place of a value inside of an inline table.
pub(super) fn inline(text: &str, path: &[String]) -> Result<Option<Range<usize>>, String> {
    let document = document(text)?;
    let (mut item, mut is_inline) = (document.as_item(), false);
    for name in path {
        is_inline |= item.is_inline_table();
        match item.get(name) {
            Some(inner) => item = inner,
            None => return Ok(None),
        }
    }
    Ok(item.span().filter(|_| is_inline))
}

/// The part of a key that leads to an inline table, a list or a plain value, but not to the key.
pub(super) fn obstacle<'a>(text: &str, path: &'a [String]) -> Result<Option<&'a [String]>, String> {
    let document = document(text)?;
    let mut item = document.as_item();
    for at in 0..path.len() {
        let Some(inner) = item.get(&path[at]) else { return Ok(None) };
        let is_last = at + 1 == path.len();
        if matches!(inner, Item::Table(_)) == is_last {
            return Ok(Some(&path[..=at]));
        }
        item = inner;
    }
    Ok(None)
}

fn json_of(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => json_of_value(value),
        Item::Table(table) => json_of_table(table),
        Item::ArrayOfTables(tables) => Value::Array(tables.iter().map(json_of_table).collect()),
    }
}

fn json_of_table(table: &Table) -> Value {
    Value::Object(table.iter().map(|(name, item)| (name.to_owned(), json_of(item))).collect())
}

fn json_of_value(value: &Toml) -> Value {
    match value {
        Toml::String(text) => json!(text.value()),
        Toml::Integer(number) => json!(number.value()),
        Toml::Float(number) => json!(number.value()),
        Toml::Boolean(is) => json!(is.value()),
        // JSON has no times, so that no wanted value is equal.
        Toml::Datetime(time) => json!({ "time": time.value().to_string() }),
        Toml::Array(items) => Value::Array(items.iter().map(json_of_value).collect()),
        Toml::InlineTable(table) => {
            Value::Object(table.iter().map(|(name, value)| (name.to_owned(), json_of_value(value))).collect())
        }
    }
}

/// A value in the notation of TOML.
pub(super) fn notation(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(notation).collect::<Vec<_>>().join(", ")),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let pairs: Vec<_> =
                map.iter().map(|(name, value)| format!("{} = {}", key(name), notation(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

/// A part of a key in the notation of TOML.
pub(super) fn key(name: &str) -> String {
    let is_bare = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { quoted(name) }
}

/// Several parts of a key.
pub(super) fn dotted(parts: &[String]) -> String {
    parts.iter().map(|part| key(part)).collect::<Vec<_>>().join(".")
}

/// The escapes of JSON are valid in TOML, which escapes one more character.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\x7F', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(key: &str) -> Vec<String> {
        key.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn a_file_is_read_in_pieces() {
        let text = "# top\na = 1 # why\nb.c = \"x\"\n\n[ d . \"e f\" ] # head\r\ng = '''\nlong\n'''\r\nh = [\n 1, # one\n 2,\n]\n\
                    [[list]]\ni = 1\n[[list]]\ni = 2\n[d]\nj = {k = 1, l.m = 2}\n# end\n";
        let pieces = pieces(text).expect("read");
        assert_eq!(pieces.iter().map(|piece| piece.text.as_str()).collect::<String>(), text);
        let shown: Vec<_> = pieces
            .iter()
            .filter_map(|piece| match &piece.tag {
                Tag::Header(path) => Some(format!("[{}]", path.join("/").replace('\0', "#"))),
                Tag::Entry(entry) => Some(format!("{}{}", entry.path.join("/").replace('\0', "#"), piece.raw())),
                Tag::Other => None,
            })
            .collect();
        let expected = [
            "a = 1",
            "b/c = \"x\"",
            "[d/e f]",
            "d/e f/g = '''\nlong\n'''",
            "d/e f/h = [\n 1, # one\n 2,\n]",
            "[list/#0]",
            "list/#0/i = 1",
            "[list/#1]",
            "list/#1/i = 2",
            "[d]",
            "d/j = {k = 1, l.m = 2}",
        ];
        assert_eq!(shown, expected);
        assert_eq!(value(text, &parts("b.c")), Ok(Some(json!("x"))));
        assert_eq!(value(text, &parts("d.j")), Ok(Some(json!({"k": 1, "l": {"m": 2}}))));
        assert_eq!(value(text, &parts("x.y")), Ok(None));
        let place = inline(text, &parts("d.j.l.m")).expect("read").expect("there");
        assert_eq!(&text[place], "2");
        assert_eq!(inline(text, &parts("a")), Ok(None));
        assert!(pieces.iter().all(|piece| piece.text.ends_with('\n')));
    }

    #[test]
    fn every_value_is_read_as_it_was_written() {
        for wanted in [
            json!("a\"b\\c\n\u{7F}ü"),
            json!(-5),
            json!(1.5e300),
            json!(true),
            json!([1, "x", [true]]),
            json!({"a b": {"c": []}, "d": {}}),
        ] {
            let text = format!("{} = {}\n", key("a b"), notation(&wanted));
            assert_eq!(value(&text, &["a b".to_owned()]), Ok(Some(wanted)), "{text}");
        }
        assert!(document("a = 1\nb = \n").is_err_and(|why| why.starts_with("line 2: ")));
    }
}
