//! The form of model files: two spaces, 100 columns, comments kept.
//!
//! `pretty_yaml` prints the text, in [`parts`] that a formatter remembers, so that a change of a long text costs its part
//! alone. The result counts only if it has the same values as the text, read as a model is read.

mod parts;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pretty_yaml::config::{FormatOptions, LanguageOptions, LayoutOptions, ProseWrap, Quotes};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Node, Sources, Trace, values_of};

/// The longest line that a flow list or mapping may fill.
const WIDTH: usize = 100;

/// Why a text has no formatted form.
pub(crate) struct Unformatted {
    /// The faults.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The text, to show lines.
    pub(crate) sources: Sources,
}

/// Formats the text of a model file.
pub(crate) fn format(path: &Path, text: &str) -> Result<String, Unformatted> {
    Formatter::default().format(path, text)
}

/// Formats texts, and remembers the parts of the last text of each file.
#[derive(Debug, Default)]
pub(crate) struct Formatter {
    known: HashMap<PathBuf, HashMap<String, String>>,
}

impl Formatter {
    /// As [`format()`].
    pub(crate) fn format(&mut self, path: &Path, text: &str) -> Result<String, Unformatted> {
        let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
        let (values, trace) = values_of(&mut sources, path, text, &mut diagnostics);
        if diagnostics.has_errors() {
            return Err(Unformatted { diagnostics: diagnostics.into_sorted(), sources });
        }
        let keeps_values = |formatted: &String| {
            formatted == text || Trace::of(formatted).as_ref() == Some(&trace) || has_values(path, formatted, &values)
        };
        if let Some(formatted) = self.by_parts(path, text).filter(keeps_values) {
            return Ok(formatted);
        }
        let what = match print(text) {
            Some(formatted) if keeps_values(&formatted) => return Ok(formatted),
            Some(_) => "the formatted text would have another meaning",
            None => "the formatter does not understand it",
        };
        let help = "the file stays as it is; please report it with a part of the file that shows it";
        let fault = Diagnostic::error("format", format!("{} can't be formatted: {what}", path.display())).help(help);
        Err(Unformatted { diagnostics: vec![fault], sources })
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, path: &Path) {
        self.known.remove(path);
    }

    fn by_parts(&mut self, path: &Path, text: &str) -> Option<String> {
        let mut known = self.known.remove(path).unwrap_or_default();
        let parts = parts::of_text(text);
        let framed: Vec<_> = parts.iter().map(parts::Part::framed).map(|part| (known.remove(&part), part)).collect();
        let with_form = |(known, part): (Option<String>, String)| Some((known.or_else(|| print(&part))?, part));
        // No part of the first text of a file is known.
        let printed = framed.into_par_iter().map(with_form).collect::<Option<Vec<_>>>()?;
        let mut whole = String::with_capacity(text.len());
        for (part, (formatted, _)) in parts.iter().zip(&printed) {
            whole.push_str(part.unframed(formatted)?);
        }
        let known = printed.into_iter().map(|(formatted, part)| (part, formatted)).collect();
        self.known.insert(path.to_owned(), known);
        Some(whole)
    }
}

/// Whether a text has these values: another spelling of a value has another trace.
fn has_values(path: &Path, text: &str, values: &[Node]) -> bool {
    let (mut sources, mut faults) = (Sources::default(), Diagnostics::default());
    let (again, _) = values_of(&mut sources, path, text, &mut faults);
    !faults.has_errors() && again.iter().map(Node::to_json).eq(values.iter().map(Node::to_json))
}

fn print(text: &str) -> Option<String> {
    pretty_yaml::format_text(text, &options()).ok()
}

fn options() -> FormatOptions {
    FormatOptions {
        layout: LayoutOptions { print_width: WIDTH, ..LayoutOptions::default() },
        language: LanguageOptions {
            quotes: Quotes::PreferDouble,
            brace_spacing: false,
            prose_wrap: ProseWrap::Preserve,
            ..LanguageOptions::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        format(Path::new("m.yaml"), text).unwrap_or_else(|_| panic!("not formatted: {text}"))
    }

    #[test]
    fn comments_anchors_and_scripts_are_kept() {
        let text = "# top\nhosts:   {n1:  {address:   'tcp://10.0.0.1:7077'}}   # beside\n\n\nservices:\n    db:\n        \
                    actions: &all\n            install: |\n                echo  a\n                  b\n        # last\n    \
                    app: {actions: *all}\n";
        let once = formatted(text);
        for kept in ["# top", "# beside", "# last", "&all", "*all", "echo  a\n          b", "{n1: {address:"] {
            assert!(once.contains(kept), "{kept} in {once}");
        }
        assert_eq!(formatted(&once), once);
    }

    fn each_example(check: impl Fn(&str)) {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let mut count = 0;
        for folder in std::fs::read_dir(examples).expect("read").map(|entry| entry.expect("read").path()) {
            let Ok(files) = cob_depot::model_files::list(&folder) else { continue };
            for path in files.into_iter().filter(|path| path.extension().is_some_and(|e| e != "json")) {
                let text = std::fs::read_to_string(&path).expect("read");
                check(&text);
                count += 1;
            }
        }
        assert!(count > 5, "{count} files");
    }

    #[test]
    fn all_examples_keep_their_meaning_and_their_form() {
        each_example(|text| {
            let once = formatted(text);
            assert_eq!(formatted(&once), once);
        });
    }

    /// The entries of a mapping, taken by chance: forms of values, comments and empty lines at every boundary.
    fn mapping(choice: &mut std::vec::IntoIter<u8>, column: usize, depth: usize) -> String {
        let mut next = |below: u8| choice.next().unwrap_or_default() % below;
        let (count, step) = (next(5) + 1, usize::from(next(3)) + 1);
        let mut text = String::new();
        for number in 0..count {
            let trivia = ["", "", "", "\n", "\n\n", "# top\n", "  # deep\n", "          # deeper\n\n"];
            for _ in 0..2 {
                let found = trivia[usize::from(choice.next().unwrap_or_default() % 8)];
                text.push_str(&if found.contains('#') { format!("{:column$}{found}", "") } else { found.to_owned() });
            }
            let inner = column + step;
            let below = |text: &str| format!("{:inner$}{text}\n", "");
            let value = match choice.next().unwrap_or_default() % 16 {
                0 => ": 1\n".to_owned(),
                1 => ": 'it''s'   # beside\n".to_owned(),
                2 => ":\n".to_owned(),
                3 => format!(": {{long: [{}],   other: 'x'}}\n", "a long text, ".repeat(8)),
                4 => format!(": |\n{}{}\n", below("# text"), below("k1:")),
                5 => format!(": >+\n{}\n\n", below("text")),
                6 => format!(": some\n{}", below("words")),
                7 => format!(": 'a\n{}", below("  b'")),
                8 => format!(": [1,2,\n{}", below("3]  # end")),
                9 => format!(": &a{depth}\n{}", below("k: {l:   *a}")),
                10 => format!(":\n{:column$}- x\n{:column$}-   {{y:   1}}\n", "", ""),
                11 if depth < 4 => {
                    let items = mapping(choice, inner + 2, depth + 1);
                    let rest = items.trim_start_matches(' ');
                    if rest.starts_with('k') { format!(":\n{:inner$}- {rest}", "") } else { ": 2\n".to_owned() }
                }
                _ if depth < 4 => {
                    format!(":{}\n{}", ["", " # c"][usize::from(number % 2)], mapping(choice, inner, depth + 1))
                }
                _ => ": x\n".to_owned(),
            };
            text.push_str(&format!("{:column$}k{number}{value}", ""));
        }
        text
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]
        #[test]
        fn parts_have_the_form_that_the_whole_has(choice in proptest::collection::vec(0_u8..=255, 10..300)) {
            let text = mapping(&mut choice.into_iter(), 0, 0);
            let Some(whole) = print(&text).filter(|whole| Trace::of(whole) == Trace::of(&text)) else { return Ok(()) };
            let parts = parts::split(&text, 1);
            let formatted = parts.iter().map(|part| Some(part.unframed(&print(&part.framed())?)?.to_owned()));
            proptest::prop_assert_eq!(formatted.collect::<Option<String>>(), Some(whole), "{}", text);
        }
    }

    #[test]
    fn all_examples_keep_the_form_that_the_whole_has() {
        each_example(|text| assert_eq!(formatted(text), print(text).expect("printed")));
    }

    #[test]
    fn a_change_costs_its_part_alone() {
        let line = |number| {
            format!("  n1/c{number}:\n    kind:   line\n    # a comment\n    content: {{path: '/etc/{number}'}}\n")
        };
        let text = format!("hosts:\n  n1: {{}}\ncobs:\n{}", (0..1000).map(line).collect::<String>());
        let path = Path::new("m.yaml");
        let mut formatter = Formatter::default();
        let whole = formatter.format(path, &text).unwrap_or_else(|_| panic!("not formatted"));
        assert_eq!(Some(&whole), print(&text).as_ref());
        let known: std::collections::HashSet<String> = formatter.known[path].keys().cloned().collect();
        assert!(known.len() > 20, "{} parts", known.len());
        let changed = text.replace("  n1/c500:\n", "  n1/new: {kind: noop}\n  n1/c500:\n");
        let again = formatter.format(path, &changed).unwrap_or_else(|_| panic!("not formatted"));
        assert_eq!(again, whole.replace("  n1/c500:\n", "  n1/new: {kind: noop}\n  n1/c500:\n"));
        let new: Vec<&String> = formatter.known[path].keys().filter(|part| !known.contains(*part)).collect();
        assert!(new.len() <= 2 && new.iter().all(|part| part.len() < text.len() / 4), "{new:?}");
        formatter.forget(path);
        assert!(formatter.known.is_empty());
    }

    #[test]
    fn a_wrong_text_is_refused_with_its_place() {
        let Err(refused) = format(Path::new("m.yaml"), "hosts: {n1: [}\n") else { panic!("formatted") };
        assert!(refused.diagnostics.iter().any(|d| d.place.is_some()), "{:?}", refused.diagnostics);
    }
}
