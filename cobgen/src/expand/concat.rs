//! The operator `~` of templates.
//!
//! The template engine has no option for how `~` writes booleans. So before the engine reads a template, each operand
//! of a `~` gets the filter `string`, which writes `true` and `false`: `a ~ b` is read as `(a)|string ~ (b)|string`.
//! Line numbers do not change, so errors name the right lines.

use std::borrow::Cow;
use std::ops::Range;

use super::bounded::expression_end;

/// Words that end an operand. `not` also ends an operand, but not after `is`.
pub(super) const WORDS: [&str; 12] =
    ["and", "call", "elif", "else", "filter", "for", "if", "in", "include", "or", "set", "with"];

/// A template, rewritten for the engine.
pub(super) fn in_template(text: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    expressions(text).into_iter().for_each(|part| look(&text[part.clone()], part.start, &mut found));
    with(text, found)
}

/// The ranges of expressions in a template: the text between the marks, except comments and raw blocks.
pub(super) fn expressions(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = text[at..].find('{').map(|found| at + found) {
        let rest = &text[begin..];
        let skipped = |to: &str| rest.find(to).map_or(rest.len(), |end| end + to.len());
        let end = match rest.as_bytes().get(1) {
            Some(b'#') => skipped("#}"),
            Some(b'%') if is_tag(rest, "raw") => end_of_raw(rest),
            Some(mark @ (b'{' | b'%')) => {
                let inner = &rest[2..];
                let end = expression_end(inner, if *mark == b'{' { "}}" } else { "%}" });
                let expression = inner[..end].trim_end_matches(['}', '%', '-', '+']);
                let signs = expression.len() - expression.trim_start_matches(['-', '+']).len();
                found.push(begin + 2 + signs..begin + 2 + expression.len());
                2 + end
            }
            Some(_) | None => 1,
        };
        at = begin + end;
    }
    found
}

/// Whether the text starts with a statement of this name.
fn is_tag(text: &str, name: &str) -> bool {
    let inner = text.strip_prefix("{%").map(|inner| inner.trim_start_matches(['-', '+']).trim_start());
    inner
        .and_then(|inner| inner.strip_prefix(name))
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// The position of the statement that ends a raw block.
fn end_of_raw(text: &str) -> usize {
    let mut marks = text.match_indices("{%").skip(1);
    marks.find(|(at, _)| is_tag(&text[*at..], "endraw")).map_or(text.len(), |(at, _)| at + 2)
}

/// A single expression, rewritten for the engine.
pub(super) fn in_expression(text: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    look(text, 0, &mut found);
    with(text, found)
}

fn with(text: &str, mut operands: Vec<Range<usize>>) -> Cow<'_, str> {
    if operands.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut signs: Vec<(usize, &str)> = Vec::new();
    // At a common end, inner operands close before outer operands.
    operands.sort_by_key(|operand| (operand.end, std::cmp::Reverse(operand.start)));
    signs.extend(operands.iter().map(|operand| (operand.end, ")|string")));
    signs.extend(operands.iter().map(|operand| (operand.start, "(")));
    signs.sort_by_key(|(at, _)| *at);
    let mut whole = String::with_capacity(text.len() + 9 * signs.len());
    let mut at = 0;
    for (place, sign) in signs {
        whole.push_str(&text[at..place]);
        whole.push_str(sign);
        at = place;
    }
    whole.push_str(&text[at..]);
    Cow::Owned(whole)
}

/// The text between two brackets, up to the current position.
#[derive(Default)]
struct Level {
    /// The current operand.
    operand: Option<Range<usize>>,
    /// The earlier operands of `~`.
    before: Vec<Range<usize>>,
}

impl Level {
    fn add(&mut self, place: Range<usize>) {
        let begin = self.operand.as_ref().map_or(place.start, |operand| operand.start);
        self.operand = Some(begin..place.end);
    }

    /// Ends the operand at an operator that binds looser than `~`.
    fn end(&mut self, found: &mut Vec<Range<usize>>) {
        let operand = self.operand.take();
        if !self.before.is_empty() {
            found.append(&mut self.before);
            found.extend(operand);
        }
    }
}

/// Finds the operands of `~` in an expression that starts at a position of the text.
fn look(expression: &str, place: usize, found: &mut Vec<Range<usize>>) {
    if !expression.contains('~') {
        return;
    }
    let mut levels = vec![Level::default()];
    let mut after_is = false;
    let mut at = 0;
    while let Some(c) = expression[at..].chars().next() {
        let rest = &expression[at..];
        let len = token(rest, c);
        let here = place + at..place + at + len;
        let attribute = expression[..at].trim_end().ends_with('.');
        at += len;
        let Some(level) = levels.last_mut() else { return };
        let word = &rest[..len];
        let ends = match c {
            _ if c.is_whitespace() => continue,
            '~' => {
                let Some(operand) = level.operand.take() else { return };
                level.before.push(operand);
                continue;
            }
            '(' | '[' | '{' => {
                level.add(here);
                levels.push(Level::default());
                continue;
            }
            ')' | ']' | '}' => {
                level.end(found);
                levels.pop();
                if levels.is_empty() {
                    return;
                }
                false
            }
            ',' | ':' | '=' | '!' | '<' | '>' | '+' => true,
            '-' => level.operand.is_some(),
            _ => !attribute && (WORDS.contains(&word) || word == "not" && !after_is),
        };
        after_is = word == "is";
        match levels.last_mut() {
            Some(level) if ends => level.end(found),
            Some(level) => level.add(here),
            None => {}
        }
    }
    levels.iter_mut().for_each(|level| level.end(found));
}

/// The length of the leading text, number, name or sign.
pub(super) fn token(rest: &str, first: char) -> usize {
    if matches!(first, '"' | '\'') {
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, c)| {
            let ends = !escaped && *c == first;
            escaped = !escaped && *c == '\\';
            ends
        });
        return end.map_or(rest.len(), |(at, _)| at + 1);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_operand_becomes_a_text() {
        for (text, read) in [
            ("{{ a }} ~ b", "{{ a }} ~ b"),
            ("x ~ {{ a ~ b }}", "x ~ {{ (a)|string ~ (b)|string }}"),
            ("{{- a ~ -b|abs ~ 'x~y' -}}", "{{- (a)|string ~ (-b|abs)|string ~ ('x~y')|string -}}"),
            ("{{ a + b ~ c * 2 == d ~ e }}", "{{ a + (b)|string ~ (c * 2)|string == (d)|string ~ (e)|string }}"),
            (
                "{{ f(a ~ b, c)['d' ~ e] ~ g }}",
                "{{ (f((a)|string ~ (b)|string, c)[('d')|string ~ (e)|string])|string ~ (g)|string }}",
            ),
            ("{% if not a ~ b in c %}~{% endif %}", "{% if not (a)|string ~ (b)|string in c %}~{% endif %}"),
            (
                "{% set x = a ~ b if c else d.if ~ e %}",
                "{% set x = (a)|string ~ (b)|string if c else (d.if)|string ~ (e)|string %}",
            ),
            ("{{ a is not defined ~ b }}", "{{ (a is not defined)|string ~ (b)|string }}"),
            ("{# a ~ b #}{% raw %}{{ a ~ b }}{% endraw %}", "{# a ~ b #}{% raw %}{{ a ~ b }}{% endraw %}"),
            ("{{ (a ~ b) ~ c }}", "{{ (((a)|string ~ (b)|string))|string ~ (c)|string }}"),
            ("{{ {'k': a ~ b} }}", "{{ {'k': (a)|string ~ (b)|string} }}"),
            ("{{ a ~ }} {{ ~ b }} {{ ) ~ a }}", "{{ (a)|string ~ }} {{ ~ b }} {{ ) ~ a }}"),
        ] {
            assert_eq!(in_template(text), read);
        }
    }

    /// Generates expressions of names, texts and operators that bind like `~`.
    fn expression() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["a", "b", "'~x'", "1", "-2", "a|upper", "l[0]", "l[1:]|join('~')"]);
        leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
            let two = (inner.clone(), inner.clone());
            let sign = prop::sample::select(vec!["~", "~", "*", "==", "in", "and", "or"]);
            prop_oneof![
                (two.clone(), sign).prop_map(|((a, b), sign)| format!("{a} {sign} {b}")),
                inner.clone().prop_map(|a| format!("({a})")),
                two.clone().prop_map(|(a, b)| format!("[{a}, {b}]|join")),
                two.prop_map(|(a, b)| format!("({a} if {b} is defined else 'none')")),
                inner.prop_map(|a| format!("(not {a})")),
            ]
        })
    }

    proptest! {
        /// Without booleans in a concatenation the engine gives the same result as for the original text, or an error
        /// in both cases.
        #[test]
        fn rewriting_concatenations_keeps_the_result(text in expression()) {
            let engine = Environment::new();
            let names = context!(a => "A", b => "b", l => ["x", "y"]);
            let value = |text: &str| engine.render_str(text, names.clone()).ok();
            let text = format!("{{{{ {text} }}}}");
            let (written, read) = (value(&text), value(&in_template(&text)));
            prop_assert_eq!(written, read, "{}", in_template(&text));
        }

        #[test]
        fn no_text_is_too_odd(text in "[{}%#~a-b()'\" ,if|.é-]{0,40}") {
            let _ = in_template(&text);
            let _ = in_expression(&text);
        }
    }
}
