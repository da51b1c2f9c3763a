//! Chains of attributes of which a step may be missing: `a.b.c | default(…)`, `a.b.c is defined`.
//!
//! The template engine refuses an attribute of what is not defined, also where a default follows. So before the engine reads
//! a template, such a chain becomes a call that gives nothing where a step is missing: `a.b.c | default(…)` is read as
//! `cob_value_at(a,'b','c') | default(…)`. Lines stay where they are.

use std::borrow::Cow;
use std::ops::Range;

use minijinja::value::{Rest, Value};
use minijinja::{Environment, Error};

use super::concat::{expressions, token};

/// The call that takes the place of a chain.
pub(super) const VALUE_AT: &str = "cob_value_at";

/// Gives an environment the call.
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

/// A template as the engine is to read it.
pub(super) fn in_template(text: &str) -> Cow<'_, str> {
    with(text, expressions(text).into_iter().flat_map(|part| chains(&text[part.clone()], part.start)).collect())
}

/// An expression by itself as the engine is to read it.
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

/// A chain that may miss a step.
struct Chain {
    place: Range<usize>,
    call: String,
}

/// The chains in an expression that begins at a place of the text.
fn chains(expression: &str, place: usize) -> Vec<Chain> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = expression[at..].chars().next() {
        let rest = &expression[at..];
        let len = token(rest, c);
        let is_attribute = expression[..at].trim_end().ends_with(['.', '|']);
        let begins = (c.is_alphabetic() || c == '_') && !is_attribute;
        let steps = if begins { steps(&rest[len..]) } else { Vec::new() };
        let end = len + steps.iter().map(|step| step.len()).sum::<usize>();
        if !steps.is_empty() && may_be_missing(&rest[end..]) {
            let step = |step: &&str| match step.strip_prefix('.') {
                Some(name) => format!(",'{name}'"),
                None => format!(",{}", &step[1..step.len() - 1]),
            };
            let steps: String = steps.iter().map(step).collect();
            found.push(Chain {
                place: place + at..place + at + end,
                call: format!("{VALUE_AT}({}{steps})", &rest[..len]),
            });
        }
        at += if steps.is_empty() { len } else { end };
    }
    found
}

/// The attributes and items by which a chain goes on, `.name`, `['name']` and `[1]`.
pub(super) fn steps(mut rest: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    while let Some(c) = rest.chars().next() {
        let inner = &rest[c.len_utf8()..];
        let Some(first) = inner.chars().next() else { break };
        let len = token(inner, first);
        let is_number = inner[..len].bytes().all(|b| b.is_ascii_digit());
        let end = match c {
            '.' if first.is_alphabetic() || first == '_' => 1 + len,
            '[' if (is_number || matches!(first, '"' | '\'')) && inner[len..].starts_with(']') => len + 2,
            _ => break,
        };
        steps.push(&rest[..end]);
        rest = &rest[end..];
    }
    steps
}

/// Whether what follows a name says what holds where it has no value.
pub(super) fn may_be_missing(after: &str) -> bool {
    let mut words = after.split(|c: char| c.is_whitespace() || "()[]{}%,|".contains(c)).filter(|w| !w.is_empty());
    let first = words.next();
    match after.trim_start().strip_prefix('|') {
        Some(filter) if !filter.starts_with('|') => matches!(first, Some("default" | "d")),
        Some(_) => false,
        None => {
            let test = match words.next() {
                Some("not") => words.next(),
                other => other,
            };
            first == Some("is") && matches!(test, Some("defined" | "undefined"))
        }
    }
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
            (
                "{{ a.b || default }} {{ a | default(1) }} {{ a[b] | d }}",
                "{{ a.b || default }} {{ a | default(1) }} {{ a[b] | d }}",
            ),
        ] {
            assert_eq!(in_template(text), read);
        }
    }
}
