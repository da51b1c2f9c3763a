//! Templates and expressions in a model: minijinja, strict, with bounded work.
//!
//! A text is a template if it contains `{{`, `{%` or a comment `{# … #}`. A text that is exactly `{{ expression }}`,
//! even without a line end, gives the expression's value with its type, so `"{{ host.vars.port }}"` stays a number. An
//! unknown name is an error with a suggestion, never an empty text; only in `when` a missing attribute counts as false.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value as Jinja, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

use super::bounded::{self, MAX_ITEMS, MAX_RENDERED};
use super::concat;
use super::secrets::Secrets;
use super::{Report, guarded};
use super::{as_text, chains};
use crate::diagnostic::Diagnostic;
use crate::model::{Key, Map, Mark, Node, Value, Written, did_you_mean_or_list};

/// The work limit of a template, in minijinja's instructions.
const FUEL: u64 = 1_000_000;
/// The greatest depth of an expression's value.
const MAX_DEPTH: usize = 32;

/// The names that a template can use.
pub(super) trait Names {
    /// The value of a name.
    fn get(&self, name: &str) -> Option<Jinja>;
    /// All names, for suggestions.
    fn known(&self) -> Vec<String>;
    /// The owner of these names: `n1/db/server`, `host n1`.
    fn of(&self) -> String;
    /// The secrets that templates may name, if any.
    fn secrets(&self) -> Option<&Secrets> {
        None
    }
}

/// The template engine.
#[derive(Debug)]
pub(super) struct Templates {
    strict: Environment<'static>,
    /// For conditions: a missing attribute is false.
    lenient: Environment<'static>,
}

/// The reason why a text has no result.
pub(super) struct Fault {
    pub(super) message: String,
    /// The line within the text, from 1.
    pub(super) line: Option<usize>,
    pub(super) help: Option<String>,
}

impl Default for Templates {
    fn default() -> Self {
        let with = |undefined| {
            let mut environment = Environment::new();
            environment.set_undefined_behavior(undefined);
            environment.set_fuel(Some(FUEL));
            environment.set_debug(true);
            // Keep line ends, so that a text with and without a template is treated alike.
            let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
            environment.set_syntax(syntax.expect("the usual delimiters"));
            environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
            bounded::bound(&mut environment);
            as_text::set(&mut environment);
            chains::set(&mut environment);
            environment
        };
        Self { strict: with(UndefinedBehavior::Strict), lenient: with(UndefinedBehavior::SemiStrict) }
    }
}

/// Whether a text is a template. A `{#` without an end is the shell's `${#name}`.
pub(super) fn is_template(text: &str) -> bool {
    let comment = || text.split_once("{#").is_some_and(|(_, rest)| rest.contains("#}"));
    text.contains("{{") || text.contains("{%") || comment()
}

impl Templates {
    /// Renders every text of a value; reports a failure and leaves an invalid value there.
    pub(super) fn node(&self, node: &Node, names: &dyn Names, report: &mut Report<'_>) -> Node {
        let value = match &node.value {
            Value::Text(text) if is_template(text) => {
                let _guarded = guarded(node.mark, report);
                self.value(text, names).unwrap_or_else(|fault| invalid(&fault, node.mark, names, report))
            }
            Value::List(items) => Value::List(items.iter().map(|n| self.node(n, names, report)).collect()),
            Value::Map(map) => {
                let mut entries: Vec<(Key, Node)> = Vec::with_capacity(map.entries.len());
                for (key, value) in &map.entries {
                    let text = self.text(&key.text, key.mark, names, report).unwrap_or_else(|| key.text.clone());
                    entries.push((Key { mark: key.mark, text }, self.node(value, names, report)));
                }
                if map.entries.iter().any(|(key, _)| is_template(&key.text)) {
                    each_once(&mut entries, names, report);
                }
                Value::Map(Map { entries })
            }
            Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Text(_) | Value::Invalid => {
                node.value.clone()
            }
        };
        Node { mark: node.mark, value }
    }

    /// Renders a text to a text.
    pub(super) fn text(&self, text: &str, mark: Mark, names: &dyn Names, report: &mut Report<'_>) -> Option<String> {
        if !is_template(text) {
            return Some(text.to_owned());
        }
        let _guarded = guarded(mark, report);
        self.rendered(text, names).map_err(|fault| invalid(&fault, mark, names, report)).ok()
    }

    /// Evaluates a condition.
    pub(super) fn condition(&self, text: &str, mark: Mark, names: &dyn Names, report: &mut Report<'_>) -> Option<bool> {
        let text = single_expression(text).unwrap_or(text);
        let _guarded = guarded(mark, report);
        let value = watched(names, || evaluate(&self.lenient, text, names), |_| Vec::new());
        value.map(|v| v.is_true()).map_err(|fault| invalid(&fault, mark, names, report)).ok()
    }

    /// The items of a loop: a literal list, or an expression with a list as its value.
    pub(super) fn items(&self, node: &Node, names: &dyn Names, report: &mut Report<'_>) -> Option<Vec<Jinja>> {
        if let Value::List(items) = &node.value {
            return Some(items.iter().map(|n| to_jinja(&self.node(n, names, report))).collect());
        }
        let text = node.scalar()?;
        let expression = single_expression(&text).unwrap_or(&text);
        let _guarded = guarded(node.mark, report);
        let value = watched(names, || evaluate(&self.strict, expression, names), |v| vec![v.to_string()]);
        match value.map(|v| (v.kind(), v)) {
            Ok((ValueKind::Seq | ValueKind::Iterable, list)) => Some(list.try_iter().ok()?.collect()),
            // A loop over a mapping takes its keys, as always in templates.
            Ok((ValueKind::Map, map)) => Some(map.try_iter().ok()?.collect()),
            Ok((kind, _)) => {
                let message = format!("`{text}` is not a list but: {kind}");
                let fault = Fault { message, line: None, help: Some("a loop needs a list".to_owned()) };
                invalid(&fault, node.mark, names, report);
                None
            }
            Err(fault) => {
                invalid(&fault, node.mark, names, report);
                None
            }
        }
    }

    /// The undefined names that an expression uses.
    pub(super) fn names_used(&self, expression: &str) -> Vec<String> {
        let expression = single_expression(expression).unwrap_or(expression);
        if bounded::too_deep_by_itself(expression).is_some() {
            return Vec::new();
        }
        let read = as_expression(expression);
        let compiled = self.strict.compile_expression(&read);
        let mut used: Vec<String> =
            compiled.map(|e| e.undeclared_variables(false).into_iter().collect()).unwrap_or_default();
        used.retain(|name| name != chains::VALUE_AT);
        used.extend(chains::sliced(expression).into_iter().map(str::to_owned));
        used.sort();
        used.dedup();
        used
    }

    /// The undefined names that a text uses as a template; `None`: it can't be parsed as a template.
    pub(super) fn names_in(&self, text: &str) -> Option<Vec<String>> {
        if bounded::too_deep(text).is_some() {
            return None;
        }
        let text = as_template(text);
        let template = self.strict.template_from_str(&text).ok()?;
        let mut used: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        used.retain(|name| name != chains::VALUE_AT);
        used.sort();
        Some(used)
    }

    fn value(&self, text: &str, names: &dyn Names) -> Result<Value, Fault> {
        // With line ends around it, it is an ordinary text: the line ends of a block stay as written.
        match single_expression(text).filter(|_| !text.starts_with('\n') && !text.ends_with('\n')) {
            Some(expression) => {
                let evaluated = || {
                    let value = evaluate(&self.strict, expression, names)?;
                    from_jinja(&value).map_err(|what| Fault {
                        message: format!("`{expression}` gives {what}"),
                        line: None,
                        help: None,
                    })
                };
                watched(names, evaluated, |value| {
                    let mut texts = Vec::new();
                    texts_of(value, &mut texts);
                    texts
                })
            }
            None => self.rendered(text, names).map(Value::Text),
        }
    }

    fn rendered(&self, text: &str, names: &dyn Names) -> Result<String, Fault> {
        watched(names, || self.rendered_unwatched(text, names), |rendered| vec![rendered.clone()])
    }

    fn rendered_unwatched(&self, text: &str, names: &dyn Names) -> Result<String, Fault> {
        not_too_deep(text, bounded::too_deep(text))?;
        let read = as_template(text);
        let template = self.strict.template_from_str(&read).map_err(|e| fault(&e, text))?;
        let context = context(&self.strict, template.undeclared_variables(false), names, text)?;
        let rendered = template.render(context).map_err(|e| fault(&e, text))?;
        if rendered.len() > MAX_RENDERED {
            let message = format!("this template gives more than {} MiB", MAX_RENDERED >> 20);
            return Err(Fault { message, line: None, help: None });
        }
        Ok(rendered)
    }
}

/// Reports equal keys made by templates, and keeps the first.
fn each_once(entries: &mut Vec<(Key, Node)>, names: &dyn Names, report: &mut Report<'_>) {
    let mut seen: BTreeMap<String, Mark> = BTreeMap::new();
    entries.retain(|(key, _)| {
        let Some(first) = seen.get(&key.text) else {
            seen.insert(key.text.clone(), key.mark);
            return true;
        };
        let fault = Diagnostic::error("duplicate-key", format!("the key `{}` stands here twice", key.text))
            .note(Some(report.place(*first)), "first here")
            .note(None, format!("for {}", names.of()));
        report.push(key.mark, fault.help("remove either key, or let the templates produce different keys"));
        false
    });
}

/// Refuses a text whose recursion would exceed the engine's stack.
fn not_too_deep(text: &str, deep: Option<usize>) -> Result<(), Fault> {
    let Some(at) = deep else { return Ok(()) };
    let line = text.get(..at).map(|before| before.matches('\n').count() + 1);
    let help = "divide it: a `{% set part = … %}` for each part, or a list and a loop".to_owned();
    Err(Fault { message: "this template nests too deep".to_owned(), line, help: Some(help) })
}

/// Runs a template and checks that secrets are unaltered in its output.
fn watched<T>(
    names: &dyn Names,
    run: impl FnOnce() -> Result<T, Fault>,
    texts: impl FnOnce(&T) -> Vec<String>,
) -> Result<T, Fault> {
    let Some(secrets) = names.secrets() else { return run() };
    secrets.begin();
    let outcome = run()?;
    secrets.look_at(&texts(&outcome))?;
    Ok(outcome)
}

/// All texts of a value, including keys.
fn texts_of(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::Text(text) => texts.push(text.clone()),
        Value::List(items) => items.iter().for_each(|node| texts_of(&node.value, texts)),
        Value::Map(map) => map.entries.iter().for_each(|(key, node)| {
            texts.push(key.text.clone());
            texts_of(&node.value, texts);
        }),
        Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => {}
    }
}

/// The expression of a text that is exactly `{{ expression }}`.
fn single_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?;
    // Braces inside belong to mappings and texts.
    if bounded::expression_end(inner, "}}") != inner.len() {
        return None;
    }
    let inner = inner.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    Some(inner.trim())
}

/// A template, rewritten for the engine.
fn as_template(text: &str) -> String {
    concat::in_template(&chains::in_template(text)).into_owned()
}

/// A single expression, rewritten for the engine.
fn as_expression(text: &str) -> String {
    concat::in_expression(&chains::in_expression(text)).into_owned()
}

fn evaluate(environment: &Environment<'static>, text: &str, names: &dyn Names) -> Result<Jinja, Fault> {
    not_too_deep(text, bounded::too_deep_by_itself(text))?;
    let read = as_expression(text);
    let expression = environment.compile_expression(&read).map_err(|e| fault(&e, text))?;
    let context = context(environment, expression.undeclared_variables(false), names, text)?;
    let value = expression.eval(context).map_err(|e| fault(&e, text))?;
    if value.is_undefined() && environment.undefined_behavior() == UndefinedBehavior::Strict {
        return Err(Fault { message: format!("`{text}` is not defined"), line: None, help: None });
    }
    Ok(value)
}

/// The values of the used names. A name without a value is a fault, unless the text handles a missing value.
fn context(
    environment: &Environment<'static>,
    used: impl IntoIterator<Item = String>,
    names: &dyn Names,
    text: &str,
) -> Result<BTreeMap<String, Jinja>, Fault> {
    // The engine does not report names that are sliced; names that the text itself defines need no value here.
    let sliced = chains::sliced(text).into_iter().filter(|name| !is_made(text, name)).map(str::to_owned);
    let used: BTreeSet<String> = used.into_iter().chain(sliced).collect();
    let mut context = BTreeMap::new();
    for name in used {
        if let Some(value) = names.get(&name) {
            context.insert(name, value);
        } else if !environment.globals().any(|(global, _)| global == name) && !may_be_undefined(text, &name) {
            let known = names.known();
            let line = text.lines().position(|l| l.contains(&name)).map(|i| i + 1);
            return Err(Fault {
                message: format!("unknown variable `{name}`"),
                line,
                help: did_you_mean_or_list(&name, known.iter().map(String::as_str)),
            });
        }
    }
    Ok(context)
}

/// Whether a text itself defines a name: in a loop, a `set`, a `with`, a macro.
fn is_made(text: &str, name: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).collect();
    let made = |at: usize| match (at.checked_sub(2).map(|two| words[two]), at.checked_sub(1).map(|one| words[one])) {
        (_, Some("for" | "set" | "with" | "macro")) => true,
        // `for key, value in`
        (Some("for"), Some(one)) => one != "in",
        _ => false,
    };
    words.iter().enumerate().any(|(at, word)| *word == name && made(at))
}

/// Whether a text somewhere handles the case that a name has no value: `name.more | default(…)`, `name is defined`. The
/// engine still refuses every other use of the undefined name.
fn may_be_undefined(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].trim_end();
        let attribute = before.ends_with('.') || text[..at].ends_with(word);
        let after = &text[at + name.len()..];
        if attribute || after.starts_with(word) {
            return false;
        }
        let steps = chains::steps(after).iter().map(|step| step.len()).sum();
        chains::may_be_missing(&after[steps..])
    })
}

/// Converts the engine's error to the model's terms.
fn fault(error: &Error, text: &str) -> Fault {
    let part = error.range().and_then(|r| text.get(r)).map(|p| format!(" in `{}`", p.trim())).unwrap_or_default();
    let detail = error.detail().map(|d| format!(": {d}")).unwrap_or_default();
    let help = |text: &str| Some(text.to_owned());
    #[expect(clippy::wildcard_enum_match_arm, reason = "the list is the template engine's and grows")]
    let (message, help) = match error.kind() {
        ErrorKind::SyntaxError => {
            let literal = "for a literal `{{`, `{%` or `{#` write {% raw %}…{% endraw %} around it, or {{ '{{' }}";
            (format!("template syntax{detail}"), Some(format!("a template is `{{{{ expression }}}}`; {literal}")))
        }
        ErrorKind::UndefinedError => {
            (format!("undefined value{part}{detail}"), help("define it, or give a default: `{{ x | default('y') }}`"))
        }
        ErrorKind::InvalidOperation if error.detail().is_some() => {
            (format!("{}{part}", error.detail().unwrap_or_default()), None)
        }
        ErrorKind::OutOfFuel => ("this template does not end".to_owned(), help("bound its loops")),
        kind => (format!("template: {kind}{part}{detail}"), None),
    };
    Fault { message, line: error.line(), help }
}

fn invalid(fault: &Fault, mark: Mark, names: &dyn Names, report: &mut Report<'_>) -> Value {
    let mut found = Diagnostic::error("template", &fault.message).note(None, format!("for {}", names.of()));
    if let Some(line) = fault.line.filter(|l| *l > 1) {
        found = found.note(None, format!("in line {line} of the text that begins here"));
    }
    report.push(mark, found.maybe_help(fault.help.clone()));
    Value::Invalid
}

/// Converts a model's value for templates.
pub(super) fn to_jinja(node: &Node) -> Jinja {
    match &node.value {
        Value::Null | Value::Invalid => Jinja::from(()),
        Value::Bool(b) => Jinja::from(*b),
        Value::Int(i, _) => i64::try_from(*i).map_or_else(|_| Jinja::from(*i), Jinja::from),
        Value::Float(f, _) => Jinja::from(*f),
        Value::Text(t) => Jinja::from(t.as_str()),
        Value::List(items) => items.iter().map(to_jinja).collect::<Vec<_>>().into(),
        Value::Map(map) => {
            map.entries.iter().map(|(k, v)| (k.text.clone(), to_jinja(v))).collect::<BTreeMap<String, Jinja>>().into()
        }
    }
}

/// Converts an expression's value for the model; an error names the unsupported value.
fn from_jinja(value: &Jinja) -> Result<Value, String> {
    Room { bytes: MAX_RENDERED, items: MAX_ITEMS }.value(value, MAX_DEPTH)
}

/// The remaining capacity of a value.
struct Room {
    bytes: usize,
    items: usize,
}

impl Room {
    fn text(&mut self, text: &Jinja) -> Result<String, String> {
        let text = text.to_string();
        let left = self.bytes.checked_sub(text.len());
        self.bytes = left.ok_or_else(|| format!("texts of more than {} MiB", MAX_RENDERED >> 20))?;
        Ok(text)
    }

    fn node(&mut self, value: &Jinja, depth: usize) -> Result<Node, String> {
        let left = self.items.checked_sub(1);
        self.items = left.ok_or_else(|| format!("more than {MAX_ITEMS} values"))?;
        self.value(value, depth - 1).map(|value| Node { mark: Mark::default(), value })
    }

    fn value(&mut self, value: &Jinja, depth: usize) -> Result<Value, String> {
        if depth == 0 {
            return Err("a value that is nested too deep".to_owned());
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "the list is the template engine's and grows")]
        Ok(match value.kind() {
            ValueKind::Undefined => return Err("an undefined value".to_owned()),
            ValueKind::None => Value::Null,
            ValueKind::Bool => Value::Bool(value.is_true()),
            ValueKind::Number if value.is_integer() => match i128::try_from(value.clone()) {
                Ok(i) if i >= i128::from(i64::MIN) && i <= i128::from(u64::MAX) => Value::Int(i, Written::default()),
                Ok(_) | Err(_) => return Err("a number that is too large".to_owned()),
            },
            ValueKind::Number => match f64::try_from(value.clone()) {
                Ok(f) if f.is_finite() => Value::Float(f, Written::default()),
                Ok(_) | Err(_) => return Err("a number that can't be represented".to_owned()),
            },
            ValueKind::String => Value::Text(self.text(value)?),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter().map_err(|e| e.to_string())?;
                Value::List(items.map(|v| self.node(&v, depth)).collect::<Result<_, _>>()?)
            }
            ValueKind::Map => {
                let keys = value.try_iter().map_err(|e| e.to_string())?;
                let mut entries = Vec::new();
                let mut seen = BTreeSet::new();
                for key in keys {
                    if !seen.insert(key.to_string()) {
                        return Err(format!("a mapping with the key `{key}` twice: once as a text"));
                    }
                    let item = value.get_item(&key).map_err(|e| e.to_string())?;
                    entries.push((Key { mark: Mark::default(), text: self.text(&key)? }, self.node(&item, depth)?));
                }
                Value::Map(Map { entries })
            }
            kind => return Err(format!("a value that a model can't hold: {kind}")),
        })
    }
}
