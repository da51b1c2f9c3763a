//! Formats of lines: `ini`, `properties` and `env`.

use cob_kinds::ConfigFormat;
use serde_json::Value;

use super::pieces::{Entry, Piece, Tag};

/// A format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    Ini,
    Properties,
    Env,
}

/// The key and the value in a line.
struct Found {
    key: String,
    /// In the line.
    key_end: usize,
    value_end: usize,
}

impl Lines {
    /// The format, if it is one of lines.
    pub(super) fn of(format: ConfigFormat) -> Option<Self> {
        match format {
            ConfigFormat::Ini => Some(Self::Ini),
            ConfigFormat::Properties => Some(Self::Properties),
            ConfigFormat::Env => Some(Self::Env),
            ConfigFormat::Toml | ConfigFormat::Json | ConfigFormat::Yaml => None,
        }
    }

    /// The pieces of a text whose last line has a line end.
    pub(super) fn pieces(self, text: &str) -> Result<Vec<Piece>, String> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut section: Vec<String> = Vec::new();
        let mut lines = text.split_inclusive('\n').enumerate();
        while let Some((number, line)) = lines.next() {
            let mut line = line.to_owned();
            while self.continues(&line).map_err(|why| format!("line {}: {why}", number + 1))? {
                match lines.next() {
                    Some((_, next)) => line.push_str(next),
                    None if self == Self::Env && !is_comment(&line, &['#']) && is_open(&line) => {
                        return Err(format!("line {}: its quote is not closed", number + 1));
                    }
                    None => break,
                }
            }
            let bare = line.trim();
            if self == Self::Ini && bare.starts_with('[') {
                let name = bare[1..].rsplit_once(']').map(|(name, _)| name.trim());
                let name = name.ok_or_else(|| format!("line {}: a section has no `]`", number + 1))?;
                section = vec![name.to_owned()];
                pieces.push(Piece { text: line, tag: Tag::Header(section.clone()) });
            } else if self.continues_last(&line) && pieces.last().is_some_and(|last| last.entry().is_some()) {
                if let Some(Piece { text, tag: Tag::Entry(entry) }) = pieces.last_mut() {
                    entry.value.end = text.len() + line.trim_end().len();
                    text.push_str(&line);
                }
            } else {
                let tag = match self.entry(&line) {
                    None => Tag::Other,
                    Some(Found { key, key_end, value_end }) => {
                        let path = section.iter().cloned().chain([key]).collect();
                        Tag::Entry(Entry { path, value: key_end..value_end, comma: None })
                    }
                };
                pieces.push(Piece { text: line, tag });
            }
        }
        Ok(pieces)
    }

    /// Whether the next line belongs to the text.
    fn continues(self, text: &str) -> Result<bool, String> {
        if text.contains('\0') {
            return Err("it has a null character, so the file is not a text".to_owned());
        }
        let bare = text.trim_end_matches(['\n', '\r']);
        let is_escaped = (bare.len() - bare.trim_end_matches('\\').len()) % 2 == 1;
        Ok(match self {
            Self::Ini => is_escaped && !is_comment(text, &['#', ';']),
            Self::Properties => is_escaped && !is_comment(text, &['#', '!']),
            Self::Env => !is_comment(text, &['#']) && self.entry(text).is_some() && (is_open(text) || is_escaped),
        })
    }

    /// Whether a line continues the entry above it, as in files for Python.
    fn continues_last(self, line: &str) -> bool {
        let bare = line.trim();
        self == Self::Ini
            && line.starts_with([' ', '\t'])
            && !bare.is_empty()
            && !is_comment(line, &['#', ';'])
            && !bare.contains('=')
    }

    fn entry(self, line: &str) -> Option<Found> {
        let indent = line.len() - line.trim_start().len();
        let end = line.trim_end().len();
        let bare = line.get(indent..end).filter(|bare| !bare.is_empty())?;
        match self {
            Self::Ini => {
                if bare.starts_with(['#', ';']) {
                    return None;
                }
                let colon = || bare.find(": ").or_else(|| bare.ends_with(':').then(|| bare.len() - 1));
                let separator = bare.find('=').or_else(colon).unwrap_or(bare.len());
                let key = bare[..separator].trim_end();
                Some(Found { key: key.to_owned(), key_end: indent + key.len(), value_end: end })
            }
            Self::Properties => {
                if bare.starts_with(['#', '!']) {
                    return None;
                }
                let mut escaped = false;
                let is_end = |char: char| {
                    let was_escaped = escaped;
                    escaped = char == '\\' && !was_escaped;
                    !was_escaped && is_separator(char)
                };
                let length = bare.find(is_end).unwrap_or(bare.len());
                Some(Found { key: unescaped(&bare[..length]), key_end: indent + length, value_end: end })
            }
            Self::Env => {
                let start = bare.strip_prefix("export ").map_or(bare, str::trim_start);
                let (key, value) = start.split_once('=')?;
                let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
                if key.is_empty() || !key.chars().all(is_word) {
                    return None;
                }
                let key_end = end - start.len() + key.len();
                // A comment may follow a quoted value.
                let closed = quote_end(value).filter(|close| {
                    let rest = &value[*close..];
                    rest.is_empty() || rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#')
                });
                let value_end = closed.map_or(end, |close| key_end + 1 + close);
                Some(Found { key: key.to_owned(), key_end, value_end })
            }
        }
    }

    /// The value in the raw text.
    pub(super) fn value_of(self, raw: &str) -> String {
        let text = raw.trim();
        match self {
            Self::Ini => text.strip_prefix(['=', ':']).unwrap_or(text).trim_start().to_owned(),
            Self::Properties => unescaped(text.strip_prefix(['=', ':']).unwrap_or(text).trim_start()),
            Self::Env => {
                let text = text.strip_prefix('=').unwrap_or(text);
                match text.chars().next().filter(|_| quote_end(text) == Some(text.len())) {
                    Some('\'') => text[1..text.len() - 1].to_owned(),
                    Some('"') => {
                        let (mut value, mut chars) = (String::new(), text[1..text.len() - 1].chars().peekable());
                        while let Some(char) = chars.next() {
                            let next = chars.next_if(|next| char == '\\' && ['"', '\\', '$', '`', '\n'].contains(next));
                            value.extend(next.or(Some(char)).filter(|char| next.is_none() || *char != '\n'));
                        }
                        value
                    }
                    Some(_) | None => text.to_owned(),
                }
            }
        }
    }

    /// A value in the notation of the format. `like`: the raw text of the earlier value.
    pub(super) fn notation(self, value: &Value, like: &str) -> String {
        let text = text_of(value);
        match self {
            Self::Ini => text,
            Self::Properties => escaped(&text),
            Self::Env => {
                let is_plain = |char: char| char.is_ascii_alphanumeric() || "_./:,@%+=-".contains(char);
                let quote = like.trim_start_matches(['=', ' ']).chars().next();
                match quote.filter(|quote| ['"', '\''].contains(quote)) {
                    Some('\'') if !text.contains('\'') => format!("'{text}'"),
                    None if text.chars().all(is_plain) => text,
                    Some(_) | None => {
                        let mut quoted = String::from("\"");
                        for char in text.chars() {
                            quoted.extend(['"', '\\', '$', '`'].contains(&char).then_some('\\'));
                            quoted.push(char);
                        }
                        quoted + "\""
                    }
                }
            }
        }
    }

    /// The characters between key and value.
    pub(super) fn separators(self) -> &'static [char] {
        match self {
            Self::Ini => &['=', ':'],
            Self::Properties => &['=', ':', ' '],
            Self::Env => &['='],
        }
    }

    /// A key in the notation of the format.
    pub(super) fn key(self, key: &str) -> String {
        match self {
            Self::Ini | Self::Env => key.to_owned(),
            Self::Properties => {
                let mut out = String::new();
                for char in key.chars() {
                    out.extend((is_separator(char) || ['#', '!', '\\'].contains(&char)).then_some('\\'));
                    out.push(char);
                }
                out
            }
        }
    }
}

/// A number, a truth value or a text as text.
pub(super) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is_comment(line: &str, marks: &[char]) -> bool {
    line.trim_start().starts_with(marks)
}

fn is_separator(char: char) -> bool {
    ['=', ':', ' ', '\t'].contains(&char)
}

/// Whether the value of a variable begins with a quote that is not closed.
fn is_open(line: &str) -> bool {
    let value = line.split_once('=').map_or("", |(_, value)| value);
    value.starts_with(['"', '\'']) && quote_end(value).is_none()
}

/// The end of a quoted value.
fn quote_end(value: &str) -> Option<usize> {
    let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    let mut escaped = false;
    for (at, char) in value.char_indices().skip(1) {
        if char == quote && !escaped {
            return Some(at + 1);
        }
        escaped = char == '\\' && !escaped && quote == '"';
    }
    None
}

/// The text of a Java property without escapes.
fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars().peekable());
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0C'),
            Some('u') => {
                let digits: String = chars.clone().take(4).collect();
                let mut units = u16::from_str_radix(&digits, 16).into_iter().collect::<Vec<_>>();
                chars.by_ref().take(4).for_each(drop);
                // Two escapes may be one character.
                let mut after = chars.clone();
                if units.first().is_some_and(|unit| (0xD800..0xDC00).contains(unit))
                    && (after.next(), after.next()) == (Some('\\'), Some('u'))
                    && let Ok(low) = u16::from_str_radix(&after.clone().take(4).collect::<String>(), 16)
                {
                    units.push(low);
                    chars.by_ref().take(6).for_each(drop);
                }
                out.push_str(&String::from_utf16_lossy(&units));
            }
            // A continued line loses its line end and the blanks at the beginning of the next line.
            Some('\r' | '\n') => while chars.next_if(|next| next.is_whitespace()).is_some() {},
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// The value of a Java property with escapes, in ASCII.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (at, char) in text.char_indices() {
        match char {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            ' ' if at == 0 => out.push_str("\\ "),
            ' '..='~' => out.push(char),
            _ => out.extend(char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}"))),
        }
    }
    // A blank at the end would be cut off.
    match out.strip_suffix(' ') {
        Some(rest) if !rest.ends_with('\\') => format!("{rest}\\u0020"),
        Some(_) | None => out,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(format: Lines, text: &str) -> Vec<(String, String)> {
        let pieces = format.pieces(text).expect("read");
        assert_eq!(pieces.iter().map(|piece| piece.text.as_str()).collect::<String>(), text);
        let of = |piece: &Piece| Some((piece.entry()?.path.join("/"), format.value_of(piece.raw())));
        pieces.iter().filter_map(of).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn files_of_lines_are_read() {
        let ini = "top=1\n# c=1\n[ A b ]\r\nk = v ; not a comment\r\n; c\n\tx=\nflag\nport: 80\nmany =\n  one\n  two\n\
                   [B.c]\nExecStart=/bin/a \\\n  -b\nlast=1\n";
        assert_eq!(
            entries(Lines::Ini, ini),
            pairs(&[
                ("top", "1"),
                ("A b/k", "v ; not a comment"),
                ("A b/x", ""),
                ("A b/flag", ""),
                ("A b/port", "80"),
                ("A b/many", "one\n  two"),
                ("B.c/ExecStart", "/bin/a \\\n  -b"),
                ("B.c/last", "1"),
            ])
        );
        let properties = "! c\\\n# c\na.b=1\nc : 2\nd 3\nx\\ y\\:z=\\u00fc\\n\\\n   more\nempty\n";
        assert_eq!(
            entries(Lines::Properties, properties),
            pairs(&[("a.b", "1"), ("c", "2"), ("d", "3"), ("x y:z", "ü\nmore"), ("empty", "")])
        );
        let env = "A=1\nexport B=\"x \\\"y\\\" $z\" # why\nC='a\nb'\nif true; then\nD=a\\\nb\nE=\"a\"b\n#F=\"\n";
        assert_eq!(
            entries(Lines::Env, env),
            pairs(&[("A", "1"), ("B", "x \"y\" $z"), ("C", "a\nb"), ("D", "a\\\nb"), ("E", "\"a\"b")])
        );
    }

    #[test]
    fn files_of_another_form_are_refused() {
        for (format, text, words) in [
            (Lines::Ini, "a=1\n[b\n", "line 2: a section has no `]`"),
            (Lines::Ini, "a\0", "line 1: it has a null character"),
            (Lines::Env, "A=1\nB=\"x\nC=1\n", "line 2: its quote is not closed"),
        ] {
            assert!(format.pieces(text).is_err_and(|why| why.starts_with(words)), "{text:?}");
        }
    }

    #[test]
    fn every_value_is_read_as_it_was_written() {
        let texts = ["", "a", "a b", "ü€😀", "\\", "a\\b\"c$d`e", " x ", "a#b", "'", "x=y:z", "a\tb"];
        for text in texts {
            for (format, like) in
                [(Lines::Properties, ""), (Lines::Env, ""), (Lines::Env, "=''"), (Lines::Env, "=\"\"")]
            {
                let written = format!("{}={}\n", format.key("k"), format.notation(&json!(text), like));
                assert_eq!(entries(format, &written), pairs(&[("k", text)]), "{written}");
            }
        }
        let odd = "a b:c=d\\#!";
        assert_eq!(entries(Lines::Properties, &format!("{}=1\n", Lines::Properties.key(odd))), pairs(&[(odd, "1")]));
    }
}
