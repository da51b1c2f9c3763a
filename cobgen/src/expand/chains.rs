//! Chains of attributes with a step that may be missing: `a.b.c | default(…)`, `a.b.c is defined`.
//!
//! The template engine refuses an attribute of an undefined value, even if a default follows. So before the engine
//! reads a template, a chain of this form becomes a call that returns undefined if a step is missing: `a.b.c |
//! default(…)` is read as `cob_value_at(a,'b','c') | default(…)`. Line numbers do not change.

use std::borrow::Cow;
use std::ops::Range;

use minijinja::value::{Rest, Value};
use minijinja::{Environment, Error};

use super::concat::{WORDS, expressions, token};
use super::template::is_template;

/// The function that replaces a chain.
pub(super) const VALUE_AT: &str = "cob_value_at";

/// Adds the function to an environment.
pub(super) fn set(environment: &mut Environment<'static>) {
    environment.add_function(VALUE_AT, value_at);
}

#[expect(clippy::needless_pass_by_value, reason = "the engine passes arguments like this")]
fn value_at(root: &Value, steps: Rest<Value>) -> Result<Value, Error> {
    let mut at = root.clone();
    for step in steps.iter() {
        if at.is_undefined() {
            break;
        }
        at = at.get_item(step)?;
    }
    Ok(at)
}

/// A template, rewritten for the engine.
pub(super) fn in_template(text: &str) -> Cow<'_, str> {
    with(text, expressions(text).into_iter().flat_map(|part| chains(&text[part.clone()], part.start)).collect())
}

/// A single expression, rewritten for the engine.
pub(super) fn in_expression(text: &str) -> Cow<'_, str> {
    with(text, chains(text, 0))
}

fn with(text: &str, chains: Vec<Chain>) -> Cow<'_, str> {
    if chains.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut whole = String::with_capacity(text.len() + 32 * chains.len());
    let mut at = 0;
    for Chain { place, call } in chains {
        whole.push_str(&text[at..place.start]);
        whole.push_str(&call);
        at = place.end;
    }
    whole.push_str(&text[at..]);
    Cow::Owned(whole)
}

/// A chain in which a step may be missing.
struct Chain {
    place: Range<usize>,
    call: String,
}

/// The chains in an expression that starts at a position of the text.
fn chains(expression: &str, place: usize) -> Vec<Chain> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = expression[at..].chars().next() {
        let rest = &expression[at..];
        let len = token(rest, c);
        let is_attribute = expression[..at].trim_end().ends_with(['.', '|']);
        let begins = is_name(&rest[..len]) && !is_attribute;
        let steps = if begins { steps(&rest[len..]) } else { Vec::new() };
        let end = len + steps.iter().map(|step| step.len()).sum::<usize>();
        if !steps.is_empty() && may_be_missing(behind(&expression[..at], &rest[end..])) {
            let step = |step: &&str| match step.trim_start().strip_prefix('.') {
                Some(name) => format!(",'{}'", name.trim()),
                // The index expression of an item may contain chains itself.
                None => {
                    let inner = step.trim();
                    format!(",{}", in_expression(&inner[1..inner.len() - 1]))
                }
            };
            let call: String = steps.iter().map(step).collect();
            // Keep the line numbers.
            let lines = "\n".repeat(rest[..end].matches('\n').count().saturating_sub(call.matches('\n').count()));
            let call = format!("{VALUE_AT}({}{call}{lines})", &rest[..len]);
            found.push(Chain { place: place + at..place + at + end, call });
            at += end;
        } else {
            at += len;
        }
    }
    found
}

/// The attributes and items that continue a chain: `.name`, `['name']`, `[1]`, `[host.name]`. A slice does not count.
pub(super) fn steps(mut rest: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    loop {
        let blank = rest.len() - rest.trim_start().len();
        let inner = &rest[blank..];
        let end = match inner.chars().next() {
            Some('.') => {
                let name = inner[1..].trim_start();
                let before = inner.len() - name.len();
                match name.chars().next() {
                    Some(first) if first.is_alphabetic() || first == '_' => before + token(name, first),
                    Some(_) | None => break,
                }
            }
            Some('[') => match item(inner) {
                Some(end) => end,
                None => break,
            },
            Some(_) | None => break,
        };
        steps.push(&rest[..blank + end]);
        rest = &rest[blank + end..];
    }
    steps
}

/// The text after a chain; after a chain alone in brackets, the text after the brackets.
fn behind<'t>(before: &str, after: &'t str) -> &'t str {
    let is_group = before.trim_end().strip_suffix('(').is_some_and(|outside| {
        let called = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']');
        !outside.trim_end().ends_with(called)
    });
    after.trim_start().strip_prefix(')').filter(|_| is_group).unwrap_or(after)
}

/// Whether a word is the name of a value and no word of the language.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && !WORDS.contains(&word)
        && !["not", "is"].contains(&word)
}

/// The names that are sliced, as in `name.more[1:2]`.
pub(super) fn sliced(text: &str) -> Vec<&str> {
    let whole = 0..text.len();
    let parts = if is_template(text) { expressions(text) } else { Vec::from([whole]) };
    let mut found = Vec::new();
    for part in parts {
        let (expression, mut at) = (&text[part], 0);
        while let Some(c) = expression[at..].chars().next() {
            let rest = &expression[at..];
            let len = token(rest, c);
            if is_name(&rest[..len]) && !expression[..at].trim_end().ends_with(['.', '|']) {
                let end = len + steps(&rest[len..]).iter().map(|step| step.len()).sum::<usize>();
                if rest[end..].trim_start().starts_with('[') {
                    found.push(&rest[..len]);
                }
            }
            at += len;
        }
    }
    found
}

/// The length of the leading brackets, if they select a single item.
fn item(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(c) = text[at..].chars().next() {
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth = depth.checked_sub(1)?,
            ':' | ',' if depth == 1 => return None,
            _ => {}
        }
        at += token(&text[at..], c);
        if depth == 0 {
            return (text[1..at - 1].trim() != "").then_some(at);
        }
    }
    None
}

/// Whether the text after a name handles a missing value.
pub(super) fn may_be_missing(after: &str) -> bool {
    let word = |text: &str| -> usize { text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len()) };
    let after = after.trim_start();
    if let Some(filter) = after.strip_prefix('|') {
        let filter = filter.trim_start();
        return matches!(&filter[..word(filter)], "default" | "d");
    }
    let Some(test) = after.strip_prefix("is").filter(|rest| rest.starts_with(char::is_whitespace)) else {
        return false;
    };
    let test = test.trim_start();
    let test =
        test.strip_prefix("not").filter(|rest| rest.starts_with(char::is_whitespace)).unwrap_or(test).trim_start();
    matches!(&test[..word(test)], "defined" | "undefined")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_with_a_way_out_becomes_a_call() {
        for (text, read) in [
            ("{{ a.b.c }}", "{{ a.b.c }}"),
            ("a.b|d(1) {{ a.b|d(1) }}", "a.b|d(1) {{ cob_value_at(a,'b')|d(1) }}"),
            ("{% if a['x y'][0].z is not defined %}", "{% if cob_value_at(a,'x y',0,'z') is not defined %}"),
            (
                "{{ f(a.b) | default(c.d | default('e.f | d')) }}",
                "{{ f(a.b) | default(cob_value_at(c,'d') | default('e.f | d')) }}",
            ),
            ("{{ a.b || default }} {{ a | default(1) }}", "{{ a.b || default }} {{ a | default(1) }}"),
            ("{{ 1 in [1] | d }} {{ not [a] is defined }}", "{{ 1 in [1] | d }} {{ not [a] is defined }}"),
            ("{{ a.upper() is defined }}", "{{ a.upper() is defined }}"),
            ("{{ (a.b) | d }} {{ f(a.b) | d }}", "{{ (cob_value_at(a,'b')) | d }} {{ f(a.b) | d }}"),
            ("{{ a[b.c|d(1)].z | d }}", "{{ cob_value_at(a,cob_value_at(b,'c')|d(1),'z') | d }}"),
            ("{{ a[-1] . b\n.c | d }} {{ a[1:2] | d }}", "{{ cob_value_at(a,-1,'b','c'\n) | d }} {{ a[1:2] | d }}"),
            (
                "{{ x[f(a.b | d)] }} {% raw %}endraw {{ a.b|d }}{% endraw %}{{ a.b|d }}",
                "{{ x[f(cob_value_at(a,'b') | d)] }} {% raw %}endraw {{ a.b|d }}{% endraw %}{{ cob_value_at(a,'b')|d }}",
            ),
        ] {
            assert_eq!(in_template(text), read);
        }
    }
}
