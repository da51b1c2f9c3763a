//! The form of model files: two spaces, 100 columns, comments kept.
//!
//! `pretty_yaml` prints the text. The result counts only if it has the same values as the text, read as a model is read.

use std::path::Path;

use pretty_yaml::config::{FormatOptions, LanguageOptions, LayoutOptions, ProseWrap, Quotes};

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Sources, values_of};

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
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let values = values_of(&mut sources, path, text, &mut diagnostics);
    if diagnostics.has_errors() {
        return Err(Unformatted { diagnostics: diagnostics.into_sorted(), sources });
    }
    let refused = |what: &str| {
        let help = "the file stays as it is; please report it with a part of the file that shows it";
        Diagnostic::error("format", format!("{} can't be formatted: {what}", path.display())).help(help)
    };
    let fault = match pretty_yaml::format_text(text, &options()) {
        Ok(formatted) => {
            let (mut again, mut faults) = (Sources::default(), Diagnostics::default());
            if values_of(&mut again, path, &formatted, &mut faults) == values && !faults.has_errors() {
                return Ok(formatted);
            }
            refused("the formatted text would have another meaning")
        }
        Err(_) => refused("the formatter does not understand it"),
    };
    Err(Unformatted { diagnostics: vec![fault], sources })
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

    #[test]
    fn all_examples_keep_their_meaning_and_their_form() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let mut count = 0;
        for folder in std::fs::read_dir(examples).expect("read").map(|entry| entry.expect("read").path()) {
            let Ok(files) = cob_depot::model_files::list(&folder) else { continue };
            for path in files.into_iter().filter(|path| path.extension().is_some_and(|e| e != "json")) {
                let text = std::fs::read_to_string(&path).expect("read");
                let once = formatted(&text);
                assert_eq!(formatted(&once), once, "{}", path.display());
                count += 1;
            }
        }
        assert!(count > 5, "{count} files");
    }

    #[test]
    fn a_wrong_text_is_refused_with_its_place() {
        let Err(refused) = format(Path::new("m.yaml"), "hosts: {n1: [}\n") else { panic!("formatted") };
        assert!(refused.diagnostics.iter().any(|d| d.place.is_some()), "{:?}", refused.diagnostics);
    }
}
