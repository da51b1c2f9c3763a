//! Variables of a model: where they are declared, and where templates and expressions read them.
//!
//! ```text
//! text --> units (a line, or a block scalar) --> {{ … }} and {% … %} --> tokens --> mentions of a name
//!      \-> keys of groups and loops, values of `when` and `for` ------------------/
//! ```
//!
//! A name is a single variable in all groups, because templates take the nearest group. A loop of a change object has
//! names of its own. A name that a template makes (`{% set x = … %}`) belongs to this template.

use super::cursor::{self, Cursor, block_key};

/// The words of templates that are no names, and the names that variables can't have.
const WORDS: [&str; 32] = [
    "and", "block", "break", "call", "cluster", "continue", "do", "elif", "else", "extends", "facts", "false",
    "filter", "for", "from", "host", "if", "import", "in", "include", "is", "macro", "node", "none", "not", "on", "or",
    "peers", "secret", "set", "true", "with",
];

/// The variables that a name may stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of the groups.
    Model,
    /// That of a loop.
    Loop {
        /// The service.
        service: String,
        /// The change object as it is written.
        cob: String,
    },
}

/// A place where a variable is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) row: u32,
    pub(super) column: usize,
    pub(super) scope: Scope,
    pub(super) declares: bool,
    /// It is `vars.NAME`, so it can be nothing else.
    pub(super) of_host: bool,
}

/// The variable's name at a column of a line: letters, digits and `_`.
pub(super) fn name_at(line: &str, at: usize) -> Option<(usize, String)> {
    words(line).into_iter().find(|(column, word)| (*column..=column + word.chars().count()).contains(&at))
}

/// Whether a variable can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(is_sign) && !WORDS.contains(&name.to_ascii_lowercase().as_str())
}

fn is_sign(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn words(line: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (column, c) in line.chars().enumerate() {
        match words.last_mut().filter(|_| goes_on && is_sign(c)) {
            Some((_, word)) => word.push(c),
            None if is_sign(c) => words.push((column, c.to_string())),
            None => {}
        }
        goes_on = is_sign(c);
    }
    words
}

/// Whether a name at a place may be a variable: it costs less than a search of the text.
pub(super) fn may_be(text: &str, row: u32, column: usize, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let Some(line) = lines.get(row as usize).copied() else { return false };
    let unit = units(&lines).into_iter().find(|unit| unit.rows.contains(&(row as usize)));
    let Some(unit) = unit else { return false };
    let is_here = |(at, place, _): &(usize, usize, bool)| (*at, *place) == (row as usize, column);
    in_templates(&lines, &unit, name).iter().any(is_here)
        || (!unit.is_block && written(text, row as usize, uncommented(line), column).is_some())
}

/// The places of a name as a variable, in the order of the text.
pub(super) fn of_text(text: &str, name: &str) -> Vec<Mention> {
    if !text.contains(name) {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let units = units(&lines);
    let mut mentions = Vec::new();
    for unit in &units {
        for row in unit.rows.clone().filter(|row| !unit.is_block && lines[*row].contains(name)) {
            let line = uncommented(lines[row]);
            for (column, _) in words(line).into_iter().filter(|(_, word)| word == name) {
                mentions.extend(written(text, row, line, column));
            }
        }
        for (row, column, of_host) in in_templates(&lines, unit, name) {
            mentions.push(Mention { row: number(row), column, scope: Scope::Model, declares: false, of_host });
        }
    }
    let loops: Vec<Scope> =
        mentions.iter().filter(|m| m.declares && m.scope != Scope::Model).map(|m| m.scope.clone()).collect();
    for mention in mentions.iter_mut().filter(|m| !m.declares && !m.of_host && !loops.is_empty()) {
        mention.scope = cob_at(text, mention.row, lines[mention.row as usize], mention.column)
            .filter(|scope| loops.contains(scope))
            .unwrap_or(Scope::Model);
    }
    mentions.sort_by_key(|mention| (mention.row, mention.column));
    mentions.dedup_by_key(|mention| (mention.row, mention.column));
    mentions
}

/// The declaration at a place outside of block scalars, or a name in the expression of a `when` or `for`.
fn written(text: &str, row: usize, line: &str, column: usize) -> Option<Mention> {
    let before = line.chars().take(column).last().unwrap_or(' ');
    // Most words of a model are parts of longer words.
    if "-/@".contains(before) {
        return None;
    }
    let cursor = Cursor::at(text, number(row), cursor::units(line, column));
    let path: Vec<&str> = cursor.keys.iter().map(String::as_str).collect();
    let mention = |scope, declares, of_host| Some(Mention { row: number(row), column, scope, declares, of_host });
    if cursor.value_of.is_none() {
        let name = words(line).into_iter().find(|(at, _)| *at == column)?.1;
        let end = column + name.chars().count();
        let after: String = line.chars().skip(end).take(2).collect();
        if !after.trim_start_matches(['"', '\'']).starts_with(':') {
            return None;
        }
        return match path.as_slice() {
            ["variables", "all"]
            | ["variables", "label" | "service" | "cluster" | "host", _]
            | ["hosts", _, "vars"] => mention(Scope::Model, true, false),
            ["services", service, "cobs", cob, "for"] => {
                mention(Scope::Loop { service: (*service).to_owned(), cob: (*cob).to_owned() }, true, false)
            }
            _ => None,
        };
    }
    let is_expression =
        matches!(path.as_slice(), ["services", _, "cobs", _, "when"] | ["services", _, "cobs", _, "for", _]);
    if !is_expression {
        return None;
    }
    // The value begins behind the key; quotes of YAML around it are not part of it.
    let chars: Vec<char> = line.chars().collect();
    let colon = (1..column).rev().find(|at| chars[at - 1] == ':' && chars[*at] == ' ')?;
    let start = (colon..column).find(|at| !chars[*at].is_whitespace()).unwrap_or(column);
    let start = if start < column && "\"'".contains(chars[start]) { start + 1 } else { start };
    let expression: Vec<Sign> = (start..chars.len()).map(|at| (row, at, chars[at])).collect();
    let name = words(line).into_iter().find(|(at, _)| *at == column)?.1;
    let found = read(&tokens(&expression).0, false, &name).names.into_iter().find(|(at, _)| *at == (row, column));
    found.and_then(|(_, of_host)| mention(Scope::Model, false, of_host))
}

/// The change object around a place, or of the key at this place.
fn cob_at(text: &str, row: u32, line: &str, column: usize) -> Option<Scope> {
    let cursor = Cursor::at(text, row, cursor::units(line, column));
    let path: Vec<&str> = cursor.keys.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["services", service, "cobs"] => {
            let key = block_key(line).filter(|key| column < key.value_column)?;
            Some(Scope::Loop { service: (*service).to_owned(), cob: key.name })
        }
        ["services", service, "cobs", cob, ..] => {
            Some(Scope::Loop { service: (*service).to_owned(), cob: (*cob).to_owned() })
        }
        _ => None,
    }
}

/// Lines that may hold a template together.
struct Unit {
    rows: std::ops::Range<usize>,
    /// They are the text of a block scalar.
    is_block: bool,
    /// Their templates are rendered: they are neither values of variables nor commands of kinds.
    is_rendered: bool,
}

fn units(lines: &[&str]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    // The column of the line whose block scalar may go on.
    let mut scalar: Option<usize> = None;
    let mut is_rendered = true;
    for (row, line) in lines.iter().enumerate() {
        let rest = line.trim_start_matches(' ');
        let column = line.len() - rest.len();
        if scalar.is_some_and(|of| column > of || rest.is_empty()) {
            match units.last_mut().filter(|unit| unit.is_block) {
                Some(unit) => unit.rows.end = row + 1,
                None => units.push(Unit { rows: row..row + 1, is_block: true, is_rendered }),
            }
            continue;
        }
        let has_key = rest.contains(": ") || rest.trim_end().ends_with(':');
        if has_key && column == 0 {
            let section = rest.split(':').next().unwrap_or_default();
            is_rendered = !matches!(section, "variables" | "kinds" | "facts");
        }
        let bare = uncommented(line);
        let header = bare.trim_end().trim_end_matches(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
        scalar = header.ends_with(['|', '>']).then_some(column);
        // A text in quotes may go on in the next line.
        let goes_on = !has_key && !rest.is_empty() && !rest.starts_with(['-', '#']);
        match units.last_mut().filter(|unit| goes_on && !unit.is_block) {
            Some(unit) => unit.rows.end = row + 1,
            None => units.push(Unit { rows: row..row + 1, is_block: false, is_rendered }),
        }
    }
    units
}

/// A line without its comment.
fn uncommented(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            None if c == '#' && before.is_whitespace() => return &line[..at],
            None if (c == '"' || c == '\'') && !is_sign(before) => quote = Some(c),
            Some(open) if c == open => quote = None,
            None | Some(_) => {}
        }
        before = c;
    }
    line
}

/// A character with its row and column.
type Sign = (usize, usize, char);

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String, (usize, usize)),
    /// A text, with the place behind its quote.
    Text(String, (usize, usize)),
    Sign(char),
}

/// The names that the templates of a unit read; `true`: as a variable of a host.
fn in_templates(lines: &[&str], unit: &Unit, name: &str) -> Vec<(usize, usize, bool)> {
    let rows = unit.rows.clone();
    if !unit.is_rendered || !rows.clone().any(|row| lines[row].contains(name)) {
        return Vec::new();
    }
    let mut signs: Vec<Sign> = Vec::new();
    for row in rows {
        let line = if unit.is_block { lines[row] } else { uncommented(lines[row]) };
        signs.extend(line.chars().chain(['\n']).enumerate().map(|(column, c)| (row, column, c)));
    }
    let is = |at: usize, pair: [char; 2]| signs.get(at).zip(signs.get(at + 1)).is_some_and(|(a, b)| [a.2, b.2] == pair);
    let (mut found, mut makes, mut at) = (Vec::new(), false, 0);
    let mut is_raw = false;
    while at < signs.len() {
        if is(at, ['{', '#']) && !is_raw {
            at = (at + 2..signs.len()).find(|end| is(*end, ['#', '}'])).map_or(at + 2, |end| end + 2);
        } else if is(at, ['{', '%']) || (is(at, ['{', '{']) && !is_raw) {
            let is_statement = signs[at + 1].2 == '%';
            let (tokens, length) = tokens(&signs[at + 2..]);
            at += 2 + length;
            let first = match tokens.iter().find(|token| **token != Token::Sign('-')) {
                Some(Token::Word(word, _)) => word.as_str(),
                Some(Token::Text(..) | Token::Sign(_)) | None => "",
            };
            if is_statement && (first == "raw" || first == "endraw") {
                is_raw = first == "raw";
            } else if !is_raw {
                let read = read(&tokens, is_statement, name);
                makes |= read.makes;
                found.extend(read.names.into_iter().map(|((row, column), of_host)| (row, column, of_host)));
            }
        } else {
            at += 1;
        }
    }
    // The template has its own value for this name.
    found.retain(|(_, _, of_host)| *of_host || !makes);
    found
}

/// The tokens up to the end of an expression or statement, and how many characters they take.
fn tokens(signs: &[Sign]) -> (Vec<Token>, usize) {
    let (mut tokens, mut at, mut depth) = (Vec::new(), 0, 0_usize);
    while let Some((row, column, c)) = signs.get(at).copied() {
        let next = signs.get(at + 1).map(|sign| sign.2);
        match c {
            '}' | '%' if next == Some('}') && depth == 0 => return (tokens, at + 2),
            '"' | '\'' => {
                let end = (at + 1..signs.len()).find(|end| signs[*end].2 == c).unwrap_or(signs.len());
                let text: String = signs[at + 1..end].iter().map(|sign| sign.2).collect();
                tokens.push(Token::Text(text, (row, column + 1)));
                at = end;
            }
            _ if is_sign(c) => {
                let end = (at..signs.len()).find(|end| !is_sign(signs[*end].2)).unwrap_or(signs.len());
                tokens.push(Token::Word(signs[at..end].iter().map(|sign| sign.2).collect(), (row, column)));
                at = end - 1;
            }
            _ if c.is_whitespace() => {}
            _ => {
                match c {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                tokens.push(Token::Sign(c));
            }
        }
        at += 1;
    }
    (tokens, signs.len())
}

/// What an expression or statement does with a name.
#[derive(Debug, Default)]
struct Read {
    names: Vec<((usize, usize), bool)>,
    /// It gives the name a value.
    makes: bool,
}

fn read(tokens: &[Token], is_statement: bool, name: &str) -> Read {
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word, _)) => Some(word.as_str()),
        Some(Token::Text(..) | Token::Sign(_)) | None => None,
    };
    let sign = |at: usize, c: char| tokens.get(at) == Some(&Token::Sign(c));
    let begin = usize::from(sign(0, '-') || sign(0, '+'));
    let statement = word(begin).filter(|_| is_statement).unwrap_or_default();
    let in_at = (0..tokens.len()).find(|at| word(*at) == Some("in")).unwrap_or(0);
    let mut read = Read::default();
    for (at, token) in tokens.iter().enumerate() {
        let is_before = |back: usize, c: char| at >= back && sign(at - back, c);
        let before = |back: usize| at.checked_sub(back).and_then(word);
        match token {
            Token::Text(text, place) if text == name && is_before(1, '[') && before(2) == Some("vars") => {
                read.names.push((*place, true));
            }
            Token::Word(found, place) if found == name => {
                if is_before(1, '.') {
                    if before(2) == Some("vars") {
                        read.names.push((*place, true));
                    }
                    continue;
                }
                let is_test = before(1) == Some("is") || (before(1) == Some("not") && before(2) == Some("is"));
                if is_before(1, '|') || is_test {
                    continue;
                }
                let is_given = sign(at + 1, '=') && !sign(at + 2, '=');
                match statement {
                    "set" if is_given || at == begin + 1 => read.makes = true,
                    "with" if is_given => read.makes = true,
                    "for" if at < in_at => read.makes = true,
                    "macro" | "import" | "from" => read.makes = true,
                    // The name of an argument.
                    _ if is_given => {}
                    _ => read.names.push((*place, false)),
                }
            }
            Token::Word(..) | Token::Text(..) | Token::Sign(_) => {}
        }
    }
    read
}

fn number(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns where the name is read in a template of a line.
    fn columns(line: &str) -> Vec<usize> {
        let unit = Unit { rows: 0..1, is_block: true, is_rendered: true };
        in_templates(&[line], &unit, "port").into_iter().map(|(_, column, _)| column).collect()
    }

    #[test]
    fn names_are_told_from_attributes_filters_arguments_and_texts() {
        for (line, expected) in [
            ("port {{ port }} port", &[8][..]),
            ("{{ host.port }} {{ host.vars.port }} {{ h.vars['port'] }}", &[29, 48]),
            ("{{ 'port' }} {{ x | port }} {{ x is port }} {{ x is not port }}", &[]),
            ("{{ f(port=port) }} {{ port == 1 }} {{ {'port': port}['a'] }}", &[10, 22, 47]),
            ("{% if port > 1 %}{{- port -}}{% endif %}{# port #}", &[6, 21]),
            ("{% raw %}{{ port }}{% endraw %}{{ port }}", &[34]),
            ("{% set port = 1 %}{{ port }}{{ host.vars.port }}", &[41]),
            ("{% for port in x %}{{ port }}{% endfor %}", &[]),
            ("{% for x in port %}{% endfor %}{% set y = port %}", &[12, 42]),
            ("{{ ports }} {{ port_a }} {{ port", &[28]),
        ] {
            assert_eq!(columns(line), expected, "{line}");
        }
    }

    #[test]
    fn no_text_stops_the_search() {
        for text in
            ["", "port", "{{", "{%", "{#port", "{{ 'port", "port:\n|\n  port", "{{ }}}} port {%%}", "\"port", "'{{port"]
        {
            let _ = of_text(text, "port");
            let _ = of_text(&format!("services:\n  a: {{cobs: {{b: {{when: {text}"), "port");
        }
    }
}
