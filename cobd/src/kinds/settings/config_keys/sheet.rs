//! The text of a configuration file, and edits of single keys.

use cob_kinds::{ConfigFormat, key_in_dots};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lines::{Lines, text_of};
use super::pieces::{Earlier, Entry, Piece, Tag, earlier, end_of, places, put_back, renewed, section};
use super::{json, toml, yaml};

/// A mark at the beginning of files from other systems.
pub(super) const MARK: char = '\u{FEFF}';

/// A key as it was before the first edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Saved {
    /// The entries, and how many lines the header of their section needs.
    Lines {
        entries: Vec<Earlier>,
        header: usize,
    },
    /// The value inside of an inline table.
    Inline(String),
    Json(json::Saved),
    Yaml(yaml::Saved),
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format(pub(super) ConfigFormat);

/// A text of lines in pieces.
struct Sheet {
    format: Format,
    pieces: Vec<Piece>,
    /// The line end of the file.
    end: &'static str,
    /// The last line has no line end.
    is_open: bool,
}

impl Format {
    /// The value of a key. `None`: the key does not exist.
    pub(super) fn value(self, text: &str, path: &[String]) -> Result<Option<Value>, String> {
        let (_, text) = split_mark(text);
        match self.0 {
            ConfigFormat::Json => json::value(text, path),
            ConfigFormat::Toml => toml::value(text, path),
            ConfigFormat::Yaml => yaml::value(text, path),
            ConfigFormat::Ini | ConfigFormat::Properties | ConfigFormat::Env => {
                let sheet = self.sheet(text)?;
                let lines = Lines::of(self.0).unwrap_or(Lines::Ini);
                let of = |at: usize| Value::from(lines.value_of(sheet.pieces[at].raw()));
                let mut values: Vec<Value> = places(&sheet.pieces, path).into_iter().map(of).collect();
                Ok(if values.len() > 1 { Some(Value::Array(values)) } else { values.pop() })
            }
        }
    }

    /// A wanted value in the form of [`Self::value`].
    pub(super) fn wanted(self, value: &Value) -> Value {
        match (self.0, value) {
            (ConfigFormat::Json | ConfigFormat::Toml | ConfigFormat::Yaml, _) => value.clone(),
            (_, Value::Array(items)) => match items.as_slice() {
                [item] => self.wanted(item),
                items => Value::Array(items.iter().map(|item| self.wanted(item)).collect()),
            },
            (_, value) => Value::from(text_of(value)),
        }
    }

    /// What is needed to put a key back.
    pub(super) fn saved(self, text: &str, path: &[String]) -> Result<Saved, String> {
        let (_, text) = split_mark(text);
        if self.0 == ConfigFormat::Json {
            return json::saved(text, path).map(Saved::Json);
        }
        if self.0 == ConfigFormat::Yaml {
            return yaml::saved(text, path).map(Saved::Yaml);
        }
        if let Some(place) = self.inline(text, path)? {
            return Ok(Saved::Inline(text[place].to_owned()));
        }
        let sheet = self.sheet(text)?;
        let header = if sheet.place(path).is_some() { 0 } else { 1 + usize::from(sheet.needs_gap()) };
        Ok(Saved::Lines { entries: earlier(&sheet.pieces, path), header })
    }

    /// The text with a value for a key.
    pub(super) fn set(self, text: &str, path: &[String], value: &Value) -> Result<String, String> {
        let (mark, text) = split_mark(text);
        let edited = match self.0 {
            ConfigFormat::Json => json::set(text, path, value)?,
            ConfigFormat::Toml => self.set_toml(text, path, value)?,
            ConfigFormat::Yaml => yaml::set(text, path, value)?,
            ConfigFormat::Ini | ConfigFormat::Properties | ConfigFormat::Env => {
                let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                let mut sheet = self.sheet(text)?;
                self.set_values(&mut sheet, path, values);
                sheet.text()
            }
        };
        // An edit that the format does not allow changes nothing.
        let is_done = self.value(&edited, path)?.is_some_and(|found| is_same(&found, &self.wanted(value)));
        if is_done { Ok(format!("{mark}{edited}")) } else { Err(format!("{} can't be set here", key_in_dots(path))) }
    }

    /// The text without a key.
    pub(super) fn remove(self, text: &str, path: &[String]) -> Result<String, String> {
        let (mark, text) = split_mark(text);
        if self.0 == ConfigFormat::Json {
            return Ok(format!("{mark}{}", json::remove(text, path)?));
        }
        if self.0 == ConfigFormat::Yaml {
            return Ok(format!("{mark}{}", yaml::remove(text, path)?));
        }
        let mut sheet = self.sheet(text)?;
        for at in places(&sheet.pieces, path).into_iter().rev() {
            sheet.pieces.remove(at);
        }
        let edited = sheet.text();
        match self.value(&edited, path)? {
            None => Ok(format!("{mark}{edited}")),
            Some(_) => Err(self.in_the_way(text, path)?),
        }
    }

    /// The text with the earlier key.
    pub(super) fn restore(self, text: &str, path: &[String], saved: &Saved) -> Result<String, String> {
        let (mark, text) = split_mark(text);
        let edited = match saved {
            Saved::Json(saved) => json::restore(text, path, saved)?,
            Saved::Yaml(saved) => yaml::restore(text, path, saved)?,
            Saved::Inline(raw) => match self.inline(text, path)? {
                Some(place) => format!("{}{raw}{}", &text[..place.start], &text[place.end..]),
                None => text.to_owned(),
            },
            Saved::Lines { entries, header } => {
                let mut sheet = self.sheet(text)?;
                put_back(&mut sheet.pieces, path, entries);
                if *header > 0 {
                    sheet.remove_header(&path[..path.len() - 1], *header);
                }
                let edited = sheet.text();
                // The file may have changed so much that the key has no place any more.
                self.sheet(&edited)?;
                edited
            }
        };
        Ok(format!("{mark}{edited}"))
    }

    /// Whether a text has no key and no comment.
    pub(super) fn is_empty(self, text: &str) -> bool {
        let (_, text) = split_mark(text);
        match self.0 {
            ConfigFormat::Json => json::is_empty(text),
            ConfigFormat::Yaml => yaml::is_empty(text),
            ConfigFormat::Ini | ConfigFormat::Properties | ConfigFormat::Env | ConfigFormat::Toml => {
                text.trim().is_empty()
            }
        }
    }

    fn sheet(self, text: &str) -> Result<Sheet, String> {
        let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let is_open = !text.is_empty() && !text.ends_with('\n');
        let text = if is_open { format!("{text}{end}") } else { text.to_owned() };
        let pieces = match Lines::of(self.0) {
            Some(lines) => lines.pieces(&text)?,
            None => toml::pieces(&text)?,
        };
        Ok(Sheet { format: self, pieces, end, is_open })
    }

    fn inline(self, text: &str, path: &[String]) -> Result<Option<std::ops::Range<usize>>, String> {
        if self.0 == ConfigFormat::Toml { toml::inline(text, path) } else { Ok(None) }
    }

    fn notation(self, value: &Value, like: &str) -> String {
        Lines::of(self.0).map_or_else(|| toml::notation(value), |lines| lines.notation(value, like))
    }

    fn separators(self) -> &'static [char] {
        Lines::of(self.0).map_or(&['='], Lines::separators)
    }

    fn set_toml(self, text: &str, path: &[String], value: &Value) -> Result<String, String> {
        if let Some(place) = toml::inline(text, path)? {
            return Ok(format!("{}{}{}", &text[..place.start], toml::notation(value), &text[place.end..]));
        }
        if toml::obstacle(text, path)?.is_some() {
            return Err(self.in_the_way(text, path)?);
        }
        let mut sheet = self.sheet(text)?;
        self.set_values(&mut sheet, path, std::slice::from_ref(value));
        Ok(sheet.text())
    }

    /// The reason why a key can't be edited.
    fn in_the_way(self, text: &str, path: &[String]) -> Result<String, String> {
        let key = key_in_dots(path);
        let obstacle = if self.0 == ConfigFormat::Toml { toml::obstacle(text, path)? } else { None };
        Ok(match obstacle.map(key_in_dots) {
            Some(other) if other == key => format!("{key} is a table with its own lines: name the keys in it"),
            Some(other) => format!("{other} is a list or a value on a single line: set {other} as a whole"),
            None => format!("{key} is inside of a table on a single line: set the table as a whole"),
        })
    }

    fn set_values(self, sheet: &mut Sheet, path: &[String], values: &[Value]) {
        let there = places(&sheet.pieces, path);
        for (at, value) in there.iter().zip(values) {
            let raw = sheet.pieces[*at].raw().to_owned();
            let value = self.notation(value, &raw);
            let default = sheet.separator(self.separators());
            sheet.pieces[*at].replace(&renewed(&raw, self.separators(), &default, &value));
        }
        for at in there.iter().skip(values.len()).rev() {
            sheet.pieces.remove(*at);
        }
        let mut place = there.last().map(|last| last + 1);
        for value in values.iter().skip(there.len()) {
            let at = place.or_else(|| sheet.place(path)).unwrap_or_else(|| sheet.add_header(&path[..path.len() - 1]));
            let piece = self.entry(sheet, at, path, value);
            sheet.pieces.insert(at, piece);
            place = Some(at + 1);
        }
    }

    /// A new line in the style of its neighbours.
    fn entry(self, sheet: &Sheet, at: usize, path: &[String], value: &Value) -> Piece {
        let of_section = at.checked_sub(1).map_or(&[][..], |above| section(&sheet.pieces, above));
        let name = match Lines::of(self.0) {
            Some(lines) => path.last().map(|name| lines.key(name)).unwrap_or_default(),
            None => toml::dotted(path.strip_prefix(of_section).unwrap_or(path)),
        };
        let above = at.checked_sub(1).and_then(|above| sheet.pieces.get(above)).filter(|piece| piece.entry().is_some());
        let indent = above.map_or("", |piece| &piece.text[..piece.text.len() - piece.text.trim_start().len()]);
        let raw = format!("{}{}", sheet.separator(self.separators()), self.notation(value, ""));
        let start = indent.len() + name.len();
        let entry = Entry { path: path.to_vec(), value: start..start + raw.len(), comma: None };
        Piece { text: format!("{indent}{name}{raw}{}", sheet.end), tag: Tag::Entry(entry) }
    }
}

impl Sheet {
    fn text(mut self) -> String {
        if self.is_open
            && let Some(last) = self.pieces.last_mut()
        {
            let end = last.text.strip_suffix('\n').map_or(last.text.len(), |text| text.trim_end_matches('\r').len());
            last.text.truncate(end);
        }
        self.pieces.into_iter().map(|piece| piece.text).collect()
    }

    /// The separator of the entries.
    fn separator(&self, separators: &[char]) -> String {
        let of = |piece: &Piece| {
            let raw = piece.raw();
            let end = raw.find(|char: char| !separators.contains(&char) && !char.is_whitespace()).unwrap_or(raw.len());
            raw[..end].contains(separators).then(|| raw[..end].to_owned()).filter(|_| end < raw.len())
        };
        self.pieces.iter().find_map(of).unwrap_or_else(|| "=".to_owned())
    }

    /// The place of a new entry. `None`: it needs a header.
    fn place(&self, path: &[String]) -> Option<usize> {
        let above = &path[..path.len() - 1];
        // Keys of TOML may be written with dots: `a.b = 1`.
        let is_beside = |at: &usize| {
            let entry = self.pieces[*at].entry();
            entry.is_some_and(|entry| entry.path.len() > above.len() && entry.path.starts_with(above))
                && above.starts_with(section(&self.pieces, *at))
        };
        let beside = || (0..self.pieces.len()).rfind(is_beside).map(|at| at + 1);
        end_of(&self.pieces, above).or_else(beside)
    }

    fn needs_gap(&self) -> bool {
        self.pieces.last().is_some_and(|last| !last.text.trim().is_empty())
    }

    /// Adds the header of a section. Returns the place below it.
    fn add_header(&mut self, path: &[String]) -> usize {
        if self.needs_gap() {
            self.pieces.push(Piece::other(self.end));
        }
        let name = if self.format.0 == ConfigFormat::Toml { toml::dotted(path) } else { path.concat() };
        self.pieces.push(Piece { text: format!("[{name}]{}", self.end), tag: Tag::Header(path.to_vec()) });
        self.pieces.len()
    }

    /// Removes a header that has nothing below it, and the blank line that was made with it.
    fn remove_header(&mut self, path: &[String], lines: usize) {
        let is_it = |piece: &Piece| matches!(&piece.tag, Tag::Header(header) if header == path);
        let Some(at) = self.pieces.iter().position(is_it) else { return };
        let below = self.pieces[at + 1..].iter().take_while(|piece| !matches!(piece.tag, Tag::Header(_)));
        if below.into_iter().any(|piece| !piece.text.trim().is_empty()) {
            return;
        }
        self.pieces.remove(at);
        let is_blank = |at: usize| self.pieces[at].text.trim().is_empty();
        if let Some(above) = at.checked_sub(1).filter(|above| lines > 1 && is_blank(*above)) {
            self.pieces.remove(above);
        }
    }
}

impl Saved {
    /// The place of the key among others.
    pub(super) fn at(&self) -> usize {
        match self {
            Self::Lines { entries, .. } => entries.first().map_or(0, |entry| entry.at),
            Self::Inline(_) => 0,
            Self::Json(saved) => saved.at(),
            Self::Yaml(saved) => saved.at(),
        }
    }
}

fn split_mark(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with(MARK) { MARK.len_utf8() } else { 0 })
}

/// Whether two values are equal. Numbers count in any notation.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_there =
                |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(is_there)
        }
        (one, other) => one == other,
    }
}
