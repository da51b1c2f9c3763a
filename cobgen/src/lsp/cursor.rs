//! The keys above a place in a text that may be incomplete, by the indentation of its lines.
//!
//! Columns are characters from 0; the protocol counts UTF-16 units ([`units`]).

use std::collections::BTreeSet;

/// A place in a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The keys from the top to the mapping of this place, or to its value; `[]` stands for an item of a list.
    pub(super) keys: Vec<String>,
    /// The key whose value is here; `None`: a key is here, or may be.
    pub(super) value_of: Option<String>,
    /// The keys that the mapping has already.
    pub(super) siblings: BTreeSet<String>,
    /// The word here.
    pub(super) word: Option<String>,
    /// The kind of the change object whose content is here.
    pub(super) kind: Option<String>,
    /// The service here.
    pub(super) service: Option<String>,
}

/// The key of a line in block style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockKey {
    /// The column of the last `-` before the key.
    dash: Option<usize>,
    pub(super) column: usize,
    pub(super) name: String,
    /// The column after the colon.
    pub(super) value_column: usize,
}

/// The key of a line, if it has one.
pub(super) fn block_key(line: &str) -> Option<BlockKey> {
    let (dash, column) = start(line);
    let rest: Vec<char> = line.chars().skip(column).collect();
    let (name, length) = match rest.first()? {
        '#' | '{' | '[' | '-' => return None,
        quote @ ('"' | '\'') => {
            let end = rest.iter().skip(1).position(|c| c == quote)? + 1;
            (rest[1..end].iter().collect(), end + 1)
        }
        _ => {
            let is_end = |at: &usize| rest[*at] == ':' && rest.get(at + 1).is_none_or(|next| *next == ' ');
            let end = (0..rest.len()).find(is_end)?;
            (rest[..end].iter().collect::<String>(), end)
        }
    };
    (rest.get(length) == Some(&':')).then(|| BlockKey { dash, column, name, value_column: column + length + 1 })
}

/// The column of the last `-` that begins an item, and the column of what follows.
fn start(line: &str) -> (Option<usize>, usize) {
    let (mut dash, mut column) = (None, 0);
    let chars: Vec<char> = line.chars().collect();
    loop {
        match chars.get(column) {
            Some(' ') => column += 1,
            Some('-') if chars.get(column + 1).is_none_or(|next| *next == ' ') => {
                dash = Some(column);
                column += 1;
            }
            _ => return (dash, column),
        }
    }
}

/// The UTF-16 units before a column.
pub(super) fn units(line: &str, column: usize) -> u32 {
    u32::try_from(line.chars().take(column).map(char::len_utf16).sum::<usize>()).unwrap_or(u32::MAX)
}

/// The column at a number of UTF-16 units.
pub(super) fn column_at(line: &str, units: u32) -> usize {
    let mut left = units as usize;
    line.chars()
        .take_while(|c| {
            let fits = left >= c.len_utf16();
            left = left.saturating_sub(c.len_utf16());
            fits
        })
        .count()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "_-./@".contains(c)
}

/// A word of a line, with its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) column: usize,
    pub(super) text: String,
}

impl Token {
    /// The column behind it.
    pub(super) fn end(&self) -> usize {
        self.column + self.text.chars().count()
    }
}

/// The words of a line, without its comment.
pub(super) fn tokens(line: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let (mut quote, mut before, mut goes_on) = (None, ' ', false);
    for (column, c) in line.chars().enumerate() {
        match quote {
            None if c == '#' && before.is_whitespace() => break,
            None if (c == '"' || c == '\'') && !is_word(before) => quote = Some(c),
            Some(open) if c == open => quote = None,
            None | Some(_) => {}
        }
        match tokens.last_mut().filter(|_| goes_on && is_word(c)) {
            Some(token) => token.text.push(c),
            None if is_word(c) => tokens.push(Token { column, text: c.to_string() }),
            None => {}
        }
        (goes_on, before) = (is_word(c), c);
    }
    tokens
}

/// The UTF-16 range of the token that begins at a column: up to a space or a sign of YAML.
pub(super) fn token_at(line: &str, column: usize) -> (u32, u32) {
    let length = line.chars().skip(column).take_while(|c| !c.is_whitespace() && !",]}:".contains(*c)).count();
    (units(line, column), units(line, column + length.max(1)))
}

/// The keys of a `{…}` that begins after a column, without those of mappings in it.
pub(super) fn flow_keys(line: &str, column: usize) -> Vec<(String, usize)> {
    let mut flow = Flow::default();
    let mut keys = Vec::new();
    for (at, c) in line.chars().enumerate().skip(column) {
        let ends_key = c == ':' && flow.frames.len() == 1 && flow.quote.is_none();
        let word = flow.token.trim().to_owned();
        flow.take(c);
        if ends_key && flow.frames.last().is_some_and(|frame| frame.key.is_some()) {
            let name = word.trim_matches(['"', '\'']).to_owned();
            keys.push((name, at - word.chars().count()));
        }
    }
    keys
}

/// The open `{` and `[` of a line.
#[derive(Debug, Default)]
struct Flow {
    frames: Vec<Frame>,
    token: String,
    quote: Option<char>,
}

#[derive(Debug, Default)]
struct Frame {
    is_list: bool,
    key: Option<String>,
    /// The keys before.
    seen: Vec<(String, String)>,
}

impl Flow {
    fn take(&mut self, c: char) {
        if let Some(quote) = self.quote {
            self.quote = self.quote.filter(|_| c != quote);
            self.token.push(c);
            return;
        }
        match c {
            '"' | '\'' if self.token.trim().is_empty() => {
                self.quote = Some(c);
                self.token.push(c);
            }
            '{' | '[' if self.token.trim().is_empty() => {
                self.frames.push(Frame { is_list: c == '[', ..Frame::default() });
                self.token.clear();
            }
            '}' | ']' => {
                self.end_value();
                self.frames.pop();
            }
            ',' if !self.frames.is_empty() => self.end_value(),
            ':' => {
                if let Some(frame) = self.frames.last_mut().filter(|frame| !frame.is_list && frame.key.is_none()) {
                    frame.key = Some(self.token.trim().trim_matches(['"', '\'']).to_owned());
                    self.token.clear();
                } else {
                    self.token.push(c);
                }
            }
            _ => self.token.push(c),
        }
    }

    fn end_value(&mut self) {
        let value = std::mem::take(&mut self.token).trim().to_owned();
        if let Some(frame) = self.frames.last_mut()
            && let Some(key) = frame.key.take()
        {
            frame.seen.push((key, value));
        }
    }
}

impl Cursor {
    /// The place at a line and a number of UTF-16 units in it.
    pub(super) fn at(text: &str, row: u32, units: u32) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let row = row as usize;
        let line = lines.get(row).copied().unwrap_or_default();
        let at = column_at(line, units);
        let mut cursor = Self { word: word_at(line, at), ..Self::default() };
        let (dash, first) = start(line);
        let own = block_key(line);
        let is_blank = line.trim().is_empty();
        let column = if is_blank { at } else { first };
        cursor.parents(&lines, row, column, dash);
        let has_key = own.is_some();
        if let Some(key) = own.filter(|key| at >= key.value_column) {
            if key.name == "content" {
                cursor.kind =
                    siblings(&lines, row, key.column).into_iter().find(|(name, _)| name == "kind").map(|k| k.1);
            }
            cursor.keys.push(key.name.clone());
            cursor.value_of = Some(key.name);
            cursor.flow(line, key.value_column, at);
        } else if dash.is_some() && !has_key {
            // An item that may become a text or a mapping.
            cursor.value_of = cursor.keys.iter().rfind(|key| *key != "[]").cloned();
            cursor.flow(line, first, at);
        } else {
            let others = siblings(&lines, row, column).into_iter().map(|(name, _)| name);
            cursor.siblings = others.filter(|name| Some(name) != cursor.word.as_ref()).collect();
        }
        cursor.service = match cursor.keys.as_slice() {
            [section, service, ..] if section == "services" => Some(service.clone()),
            _ => None,
        };
        cursor
    }

    /// The keys above a line whose key, or item, begins at a column.
    fn parents(&mut self, lines: &[&str], row: usize, column: usize, dash: Option<usize>) {
        let mut found = Vec::new();
        // Below this column, or at it: a key of the same mapping.
        let mut limit = column;
        // The column of the items of a list whose key comes further up.
        let mut list = dash;
        if let Some(dash) = dash {
            found.push("[]".to_owned());
            limit = dash;
        }
        for (above, line) in lines[..row.min(lines.len())].iter().enumerate().rev() {
            let Some(key) = block_key(line) else { continue };
            let is_parent = match list {
                Some(list) => key.column <= list && key.dash != Some(list),
                None => key.column < limit,
            };
            let begins_item = list.is_none() && key.column == limit && key.dash.is_some();
            if is_parent {
                if key.name == "content" && self.kind.is_none() {
                    let others = siblings(lines, above, key.column);
                    self.kind = others.into_iter().find(|(name, _)| name == "kind").map(|(_, value)| value);
                }
                found.push(key.name.clone());
                (limit, list) = (key.column, None);
            }
            if (is_parent || begins_item)
                && let Some(dash) = key.dash
            {
                found.push("[]".to_owned());
                (limit, list) = (dash, Some(dash));
            }
            if limit == 0 && list.is_none() {
                break;
            }
        }
        found.reverse();
        self.keys = found;
    }

    /// Goes on into the `{` and `[` of the line.
    fn flow(&mut self, line: &str, from: usize, to: usize) {
        let mut flow = Flow::default();
        for c in line.chars().skip(from).take(to.saturating_sub(from)) {
            flow.take(c);
        }
        for frame in flow.frames {
            if frame.is_list {
                self.keys.push("[]".to_owned());
                continue;
            }
            if frame.key.as_deref() == Some("content") || self.keys.last().is_some_and(|key| key == "content") {
                let kind = frame.seen.iter().find(|(name, _)| name == "kind");
                self.kind = kind.map(|(_, value)| value.clone()).or(self.kind.take());
            }
            self.siblings = frame.seen.into_iter().map(|(name, _)| name).collect();
            self.value_of.clone_from(&frame.key);
            self.keys.extend(frame.key);
        }
    }
}

/// The word that touches a column.
fn word_at(line: &str, at: usize) -> Option<String> {
    let chars: Vec<char> = line.chars().collect();
    let at = at.min(chars.len());
    let begin = (0..at).rev().take_while(|i| is_word(chars[*i])).last().unwrap_or(at);
    let word: String = chars[begin..].iter().take_while(|c| is_word(**c)).collect();
    (!word.is_empty()).then_some(word)
}

/// The keys of the mapping that has a key at a column of a line, with their values.
fn siblings(lines: &[&str], row: usize, column: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut take = |line: &str, key: BlockKey| {
        let value: String = line.chars().skip(key.value_column).collect();
        let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']).to_owned();
        found.push((key.name, value));
    };
    let own = lines.get(row).and_then(|line| block_key(line).filter(|key| key.column == column));
    let begins = own.as_ref().is_some_and(|key| key.dash.is_some());
    if let Some(key) = own {
        take(lines[row], key);
    }
    if !begins {
        for line in lines[..row.min(lines.len())].iter().rev() {
            let Some(key) = block_key(line) else { continue };
            if key.column < column {
                break;
            }
            let ends = key.column == column && key.dash.is_some();
            if key.column == column {
                take(line, key);
            }
            if ends {
                break;
            }
        }
    }
    for line in lines.iter().skip(row + 1) {
        let Some(key) = block_key(line) else { continue };
        if key.column < column || (key.column == column && key.dash.is_some()) {
            break;
        }
        if key.column == column {
            take(line, key);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
hosts: {n1: {address: 'tcp://127.0.0.1:1'}}
services:
  web:
    on: all
    cobs:
      conf:
        kind: line
        content:
          path: /etc/x
          
      app:
        kind: service
        requires:
          - conf
          - cob: db
            
        content: {unit: web.service, re
cobs:
  n1/db: {kind: firewall, content: {rules: [{action: accept, 
";

    /// The place at the end of the line with this number.
    fn end(row: u32) -> Cursor {
        let line = TEXT.lines().nth(row as usize).expect("a line");
        Cursor::at(TEXT, row, units(line, line.chars().count()))
    }

    fn seen(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_keys_above_a_place_are_found_in_incomplete_texts() {
        let blank = end(9);
        assert_eq!(blank.keys, ["services", "web", "cobs", "conf", "content"]);
        assert_eq!((blank.kind.as_deref(), blank.siblings), (Some("line"), seen(&["path"])));
        let value = end(6);
        assert_eq!(value.keys, ["services", "web", "cobs", "conf", "kind"]);
        assert_eq!((value.value_of.as_deref(), value.word.as_deref()), (Some("kind"), Some("line")));
        let item = end(13);
        assert_eq!(item.keys, ["services", "web", "cobs", "app", "requires", "[]"]);
        assert_eq!((item.value_of.as_deref(), item.service.as_deref()), (Some("requires"), Some("web")));
        let in_item = end(15);
        assert_eq!(in_item.keys, ["services", "web", "cobs", "app", "requires", "[]"]);
        assert_eq!((in_item.value_of, in_item.siblings), (None, seen(&["cob"])));
        let flow = end(16);
        assert_eq!(flow.keys, ["services", "web", "cobs", "app", "content"]);
        assert_eq!((flow.kind.as_deref(), flow.value_of, flow.siblings), (Some("service"), None, seen(&["unit"])));
        let deep = end(18);
        assert_eq!(deep.keys, ["cobs", "n1/db", "content", "rules", "[]"]);
        assert_eq!((deep.kind.as_deref(), deep.value_of, deep.siblings), (Some("firewall"), None, seen(&["action"])));
    }

    #[test]
    fn columns_are_characters_and_the_protocol_counts_utf_16_units() {
        assert_eq!((units("😀é: x", 2), column_at("😀é: x", 3), column_at("ab", 9)), (3, 2, 2));
        assert_eq!(token_at("a: böse, x", 3), (3, 7));
        assert_eq!(flow_keys("hosts: {n1: {a: 1}, \"n 2\": {}}", 6), [("n1".to_owned(), 8), ("n 2".to_owned(), 20)]);
    }

    #[test]
    fn no_text_stops_the_search() {
        for text in ["", ":", "- - - a: {", "\t:\n- :", "'", "\"a", "a:\n- b\n-", "{{{[[[", "]}],:"] {
            for row in 0..4 {
                for column in 0..12 {
                    let _ = Cursor::at(text, row, column);
                }
            }
        }
    }
}
