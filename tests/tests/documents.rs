//! Rules of the documentation that a test can check: the table of contents, links with their anchors, sizes of pages
//! and lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A page that is longer is split.
const LONGEST_PAGE: usize = 25_000;
/// Characters in a line of prose; tables, code and links have no limit.
const LONGEST_LINE: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// The pages of the folder `docs`, and those that link into it from outside, by their paths from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    collect(&root(), Path::new("docs"), &mut found);
    collect(&root(), Path::new("examples"), &mut found);
    for name in ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] {
        found.insert(name.into(), fs::read_to_string(root().join(name)).expect("a page"));
    }
    assert!(found.len() > 50, "this is not the repository");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder") {
        let path = folder.join(entry.expect("an entry").file_name());
        if root.join(&path).is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            let text = fs::read_to_string(root.join(&path)).expect("a page");
            found.insert(path, text);
        }
    }
}

/// Lines outside of code blocks and comments, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut code, mut comment) = (false, false);
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        let begins = !code && line.starts_with("<!--");
        let shown = !fence && !code && !comment && !begins;
        code ^= fence;
        comment = (comment || begins) && !line.contains("-->");
        shown
    })
}

/// The targets of the links of a line, without code spans.
fn links(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).collect()
}

/// The anchor of a heading, as GitHub and mdbook make it.
fn anchor(heading: &str) -> String {
    let mut plain = heading.replace('`', "");
    while let Some((before, rest)) = plain.split_once("](") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        plain = format!("{}{after}", before.replacen('[', "", 1));
    }
    let kept = plain.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#'))).collect()
}

/// `a/../b` is `b`.
fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            found.pop();
        } else {
            found.push(part);
        }
    }
    found
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_table_of_contents_lists_every_page() {
    let pages = pages();
    let summary = &pages[Path::new("docs/SUMMARY.md")];
    let listed: BTreeSet<_> =
        prose(summary).flat_map(|(_, line)| links(line)).map(|link| Path::new("docs").join(link)).collect();
    let ours = pages.keys().filter(|page| page.starts_with("docs") && !page.ends_with("SUMMARY.md"));
    let missing = ours.filter(|page| !listed.contains(*page));
    assert_none(&missing.map(|page| format!("{}: add it to docs/SUMMARY.md", page.display())).collect::<Vec<_>>());
}

#[test]
fn every_link_and_anchor_resolves() {
    let pages = pages();
    let known: BTreeMap<_, _> = pages.iter().map(|(page, text)| (page, anchors(text))).collect();
    let mut faults = Vec::new();
    for (page, text) in &pages {
        let folder = page.parent().expect("a folder");
        for (line, link) in prose(text).flat_map(|(line, words)| links(words).into_iter().map(move |link| (line, link)))
        {
            let (file, heading) = link.split_once('#').map_or((&*link, None), |(file, heading)| (file, Some(heading)));
            let target = if file.is_empty() { page.clone() } else { normal(&folder.join(file)) };
            let found = match (heading, known.get(&target)) {
                (Some(heading), Some(anchors)) => anchors.contains(heading),
                (Some(_), None) => false,
                (None, _) => root().join(&target).exists(),
            };
            if !found {
                faults.push(format!("{}:{line}: {link} does not resolve", page.display()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn pages_and_lines_are_short() {
    let mut faults = Vec::new();
    for (page, text) in pages().iter().filter(|(page, _)| !page.ends_with("CHANGELOG.md")) {
        if text.len() > LONGEST_PAGE {
            faults.push(format!("{}: longer than {LONGEST_PAGE} bytes: split it", page.display()));
        }
        for (line, words) in prose(text) {
            let bound = !words.starts_with('|') && !words.contains("](") && !words.starts_with('#');
            if bound && words.chars().count() > LONGEST_LINE {
                faults.push(format!("{}:{line}: longer than {LONGEST_LINE} characters", page.display()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn the_document_rules_find_their_faults() {
    let text = "# A b\n```sh\n# no\n```\n<!-- x\n# no\n-->\n## `C`, d [e](f.md)!\n";
    assert_eq!(anchors(text), BTreeSet::from(["a-b".to_owned(), "c-d-e".to_owned()]));
    assert_eq!(links("[a](b.md#c) `[d](e)` [f](http://g) ![h](i.svg)"), ["b.md#c", "i.svg"]);
    assert_eq!(normal(Path::new("docs/how-to/../model.md")), Path::new("docs/model.md"));
}
