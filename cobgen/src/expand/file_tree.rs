//! The content of `file-tree`: the wanted files, in explicit form.
//!
//! Templates are rendered and folders beside the model are listed file by file, so that the daemon gets for each file
//! its absolute path, and its text or the name of the payload file.

use std::collections::BTreeMap;
use std::path::Path;

use cob_types::secret;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map as JsonMap, Value as Json, json};

use super::files::{Files, Payload};
use super::objects::Object;
use super::template::{Names, Templates, is_template};
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::model::{Key, Label, Mark, Marked, Named, Node, Value, file_mode};

/// The most files from a folder beside the model.
const MAX_FILES: usize = 100_000;

/// The content of `file-tree`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTreeContent {
    /// The files, by path: `{/etc/motd: {content: "hello\n"}}`.
    #[schemars(required)]
    files: Option<Named<FileEntry>>,
    /// The absolute folder that paths without a slash at the beginning are in.
    root: Option<Marked<String>>,
    /// Whether users' changes are overwritten or merged; default: copy.
    manage: Option<Marked<ManageEntry>>,
    /// The reaction to users' changes in copied files; default: heal.
    on_drift: Option<Marked<OnDriftEntry>>,
    /// The decision if users and the model have changed the same lines of a merged file; default: ask.
    on_conflict: Option<Marked<OnConflictEntry>>,
}

/// A file, folder or link.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    /// Its text.
    content: Option<Marked<String>>,
    /// A file or folder beside the model.
    from: Option<Marked<String>>,
    /// A file beside the model that is a template.
    template: Option<Marked<String>>,
    /// It is a symbolic link that leads there.
    link: Option<Marked<String>>,
    /// It is a folder.
    folder: Option<Marked<bool>>,
    /// Permission bits, octal and in quotes: `"0640"`.
    #[schemars(extend("x-mode" = true, "x-what" = "a file mode in quotes"))]
    mode: Option<Marked<String>>,
    /// The owner, a name or a number.
    owner: Option<Label>,
    /// The group, a name or a number.
    group: Option<Label>,
    /// Extended attributes by name.
    xattrs: Option<Named<Label>>,
    /// As for the whole tree.
    manage: Option<Marked<ManageEntry>>,
    /// A command that must accept a new text before the file is written; `%` in it is a file with the text:
    /// `visudo -cf %`.
    validate: Option<Marked<String>>,
    /// Of a folder: entries that the model does not name are removed.
    whole: Option<Marked<bool>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ManageEntry {
    /// The model's text counts.
    Copy,
    /// Lines of both.
    Merge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OnDriftEntry {
    /// Overwritten at once.
    Heal,
    /// Left and told.
    Report,
    /// Left, told, and merged with what comes.
    Adopt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OnConflictEntry {
    /// A person, with `cobctl resolve`.
    Ask,
    /// What is on the host stays.
    Ours,
    /// What the model wants is written.
    Theirs,
}

/// Renders the templates that a content names into plain texts.
pub(super) fn render_templates(
    content: &Node,
    files: &Files,
    templates: &Templates,
    names: &dyn Names,
    report: &mut Report<'_>,
) -> Node {
    let mut content = content.clone();
    let Value::Map(top) = &mut content.value else { return content };
    let Some((_, Node { value: Value::Map(entries), .. })) = top.entries.iter_mut().find(|(k, _)| k.text == "files")
    else {
        return content;
    };
    for (_, entry) in &mut entries.entries {
        let Value::Map(entry) = &mut entry.value else { continue };
        let several = entry.entries.iter().any(|(k, _)| k.text == "content");
        let Some((key, node)) = entry.entries.iter_mut().find(|(k, _)| k.text == "template") else { continue };
        let Value::Text(name) = &node.value else { continue };
        let Some(text) = files.text(name, node.mark, report) else {
            node.value = Value::Invalid;
            continue;
        };
        let rendered = if is_template(&text) { templates.text(&text, node.mark, names, report) } else { Some(text) };
        if !several {
            *key = Key { mark: key.mark, text: "content".to_owned() };
        }
        node.value = rendered.map_or(Value::Invalid, Value::Text);
    }
    content
}

/// The content in the daemon's form; `None` if it has faults, which are already reported.
pub(super) fn settle(
    tree: FileTreeContent,
    content: &Node,
    files: &mut Files,
    report: &mut Report<'_>,
) -> Option<(Json, Payload)> {
    let (before, mark, spoiled) = (report.errors(), content.mark, spoiled(content));
    if let Some(root) = &tree.root {
        check_root(root, tree.files.as_ref(), report);
    }
    let entries = tree.files.as_ref()?;
    if entries.0.is_empty() {
        report.push(mark, Diagnostic::error("bad-content", "`files` is empty").help("write {/etc/x: {content: …}}"));
    }
    if let Some(decides) = &tree.on_conflict {
        check_decides(decides, &tree, entries, report);
    }
    let mut made = Made {
        files,
        out: BTreeMap::new(),
        marks: BTreeMap::new(),
        payload: Payload::new(),
        merges: tree.manage.as_ref().is_some_and(|m| m.value == ManageEntry::Merge)
            || tree.on_drift.as_ref().is_some_and(|d| d.value == OnDriftEntry::Adopt),
    };
    for (path, entry) in entries.iter() {
        let whole = match (&tree.root, path.value.starts_with('/')) {
            (_, true) => path.value.clone(),
            (Some(root), false) => format!("{}/{}", root.value.trim_end_matches('/'), path.value),
            // The wrong root is already reported.
            (None, false) if content.has("root") => continue,
            (None, false) => {
                let fault = Diagnostic::error("bad-path", format!("{:?} is not an absolute path", path.value));
                report.push(path.mark, fault.help("begin it with `/`, or write its `root` beside `files`"));
                continue;
            }
        };
        if let Some(what) = path_fault(&whole) {
            let fault = Diagnostic::error("bad-path", format!("the path {whole:?} can't be managed: {what}"));
            report
                .push(path.mark, fault.help("write the path as it is, without `.`, `..`, `//` and a slash at the end"));
            continue;
        }
        if !spoiled.contains(&path.mark) {
            made.entry(&whole, path.mark, entry, report);
        }
    }
    made.check_folders(report);
    let Made { out, payload, .. } = made;
    let mut content = JsonMap::new();
    content.insert("files".to_owned(), Json::Object(out.into_iter().collect()));
    if tree.manage.is_some_and(|m| m.value == ManageEntry::Merge) {
        content.insert("manage".to_owned(), json!("merge"));
    }
    match tree.on_drift.map(|d| d.value) {
        Some(OnDriftEntry::Report) => drop(content.insert("on_drift".to_owned(), json!("report"))),
        Some(OnDriftEntry::Adopt) => drop(content.insert("on_drift".to_owned(), json!("adopt"))),
        Some(OnDriftEntry::Heal) | None => {}
    }
    match tree.on_conflict.map(|d| d.value) {
        Some(OnConflictEntry::Ours) => drop(content.insert("on_conflict".to_owned(), json!("ours"))),
        Some(OnConflictEntry::Theirs) => drop(content.insert("on_conflict".to_owned(), json!("theirs"))),
        Some(OnConflictEntry::Ask) | None => {}
    }
    (report.errors() == before).then_some((Json::Object(content), payload))
}

fn check_root(root: &Marked<String>, entries: Option<&Named<FileEntry>>, report: &mut Report<'_>) {
    let in_none = |entries: &Named<FileEntry>| !entries.0.is_empty() && entries.names().all(|p| p.starts_with('/'));
    if path_fault(&root.value).is_some() && root.value != "/" {
        let fault = Diagnostic::error("bad-path", format!("`root` must be an absolute path, not {:?}", root.value));
        report.push(root.mark, fault.help("for example /etc/app"));
    } else if entries.is_some_and(in_none) {
        let what = "all of `files` are absolute paths, so `root` has no effect";
        let help = "write paths in `root` without a slash at the beginning, or remove `root`";
        report.push(root.mark, Diagnostic::warning("needless-root", what).help(help));
    }
}

/// `on_conflict` has a meaning only if conflicts are possible.
fn check_decides(
    decides: &Marked<OnConflictEntry>,
    tree: &FileTreeContent,
    entries: &Named<FileEntry>,
    report: &mut Report<'_>,
) {
    let merges = |manage: &Option<Marked<ManageEntry>>| manage.as_ref().is_some_and(|m| m.value == ManageEntry::Merge);
    let tolerates = tree.on_drift.as_ref().is_some_and(|d| d.value != OnDriftEntry::Heal);
    if !merges(&tree.manage) && !tolerates && !entries.iter().any(|(_, entry)| merges(&entry.manage)) {
        let what = "this tree has no files that users may edit, so `on_conflict` has no effect";
        let help = "write `manage: merge` for the tree or for a path, or remove `on_conflict`";
        report.push(decides.mark, Diagnostic::warning("needless-on-conflict", what).help(help));
    }
}

fn check_validate(path: &str, command: &Marked<String>, has_no_text: bool, report: &mut Report<'_>) {
    let (what, help) = if has_no_text {
        (format!("{path} has no text that a command could validate"), "remove `validate`")
    } else if !command.value.contains('%') {
        let what = format!("the command {:?} does not name the file with the new text", command.value);
        (what, "write `%` for this file, as in `visudo -cf %`")
    } else if command.value.contains("%s") {
        let what = format!("the command {:?} has `%s`, which would be the file's name with an s", command.value);
        (what, "write `%` alone")
    } else {
        return;
    };
    report.push(command.mark, Diagnostic::error("bad-content", what).help(help));
}

/// Entries with an already reported fault: a part that is missing now was written.
fn spoiled(content: &Node) -> Vec<Mark> {
    let Value::Map(top) = &content.value else { return Vec::new() };
    let files = top.entries.iter().filter(|(key, _)| key.text == "files");
    let entries = files.filter_map(|(_, files)| if let Value::Map(map) = &files.value { Some(map) } else { None });
    let is_spoiled = |node: &Node| {
        let parts = if let Value::Map(entry) = &node.value { entry.entries.as_slice() } else { &[] };
        node.value == Value::Invalid || parts.iter().any(|(_, value)| value.value == Value::Invalid)
    };
    entries.flat_map(|map| &map.entries).filter(|(_, node)| is_spoiled(node)).map(|(key, _)| key.mark).collect()
}

/// The entries processed so far.
struct Made<'f> {
    files: &'f mut Files,
    out: BTreeMap<String, Json>,
    marks: BTreeMap<String, Mark>,
    payload: Payload,
    /// Files without their own `manage` are merged.
    merges: bool,
}

impl Made<'_> {
    fn entry(&mut self, path: &str, mark: Mark, entry: &FileEntry, report: &mut Report<'_>) {
        let folder = entry.folder.as_ref().is_some_and(|f| f.value);
        let said: Vec<&str> = [
            ("content", entry.content.is_some()),
            ("from", entry.from.is_some()),
            ("template", entry.template.is_some()),
            ("link", entry.link.is_some()),
            ("folder", folder),
        ]
        .into_iter()
        .filter_map(|(key, is)| is.then_some(key))
        .collect();
        if said.len() != 1 {
            let what = match said.as_slice() {
                [] => format!("{path} has no content"),
                several => format!("{path} can't have all of {}", several.join(", ")),
            };
            let fault = Diagnostic::error("bad-content", what);
            report.push(mark, fault.help("write `content`, `from`, `template`, `link` or `folder: true`"));
            return;
        }
        if let Some(mode) = entry.mode.as_ref().filter(|mode| file_mode::parse(&mode.value).is_none()) {
            let fault = Diagnostic::error("bad-mode", format!("{:?} is not a file mode", mode.value));
            report.push(mode.mark, fault.help(file_mode::help_for_text(&mode.value)));
        }
        let mut out = self.common(path, mark, entry, report);
        if let Some(validate) = &entry.validate {
            check_validate(path, validate, folder || entry.link.is_some(), report);
            out.insert("validate".to_owned(), json!(validate.value));
        }
        match (&entry.content, &entry.from, &entry.link) {
            (Some(text), ..) => {
                out.insert("content".to_owned(), json!(text.value));
                self.check_secret(path, text, entry, report);
                self.check_whole(entry, report);
            }
            (_, Some(from), _) => return self.from(path, mark, from, entry, out, report),
            (.., Some(link)) => {
                if link.value.is_empty() || link.value.contains('\0') {
                    report.push(link.mark, Diagnostic::error("bad-content", format!("the link {path} has no target")));
                }
                if entry.mode.is_some() || entry.owner.is_some() || entry.group.is_some() || entry.xattrs.is_some() {
                    let fault =
                        Diagnostic::error("bad-content", format!("{path} is a link: it has no attributes of its own"));
                    report.push(mark, fault.help("remove `mode`, `owner`, `group` and `xattrs`"));
                }
                out.insert("link".to_owned(), json!(link.value));
                self.check_whole(entry, report);
            }
            _ => {
                out.insert("folder".to_owned(), json!(true));
                if entry.whole.as_ref().is_some_and(|w| w.value) {
                    out.insert("whole".to_owned(), json!(true));
                }
            }
        }
        self.add(path, mark, out, report);
    }

    /// Attributes that any entry may have.
    fn common(&self, path: &str, mark: Mark, entry: &FileEntry, report: &mut Report<'_>) -> JsonMap<String, Json> {
        let mut out = JsonMap::new();
        if let Some(mode) = &entry.mode {
            out.insert("mode".to_owned(), json!(mode.value));
        }
        for (key, who) in [("owner", &entry.owner), ("group", &entry.group)] {
            let Some(Label(who)) = who else { continue };
            let good = |c: char| c.is_ascii_alphanumeric() || "_.-$@+".contains(c);
            if who.is_empty() || !who.chars().all(good) {
                let fault = Diagnostic::error(
                    "bad-content",
                    format!("the {key} {who:?} of {path} is neither a name nor a number"),
                );
                report.push(mark, fault);
            }
            out.insert(key.to_owned(), json!(who));
        }
        if let Some(xattrs) = &entry.xattrs {
            for (name, _) in xattrs.iter().filter(|(name, _)| !name.value.contains('.') || name.value.contains('\0')) {
                let fault =
                    Diagnostic::error("bad-content", format!("{:?} is not the name of an attribute", name.value));
                report.push(name.mark, fault.help("it has a namespace, as in user.origin"));
            }
            let all: JsonMap<_, _> = xattrs.iter().map(|(name, value)| (name.value.clone(), json!(value.0))).collect();
            out.insert("xattrs".to_owned(), Json::Object(all));
        }
        match entry.manage.as_ref().map(|m| m.value) {
            Some(ManageEntry::Merge) => drop(out.insert("manage".to_owned(), json!("merge"))),
            Some(ManageEntry::Copy) => drop(out.insert("manage".to_owned(), json!("copy"))),
            None => {}
        }
        out
    }

    fn check_whole(&self, entry: &FileEntry, report: &mut Report<'_>) {
        if let Some(whole) = entry.whole.as_ref().filter(|w| w.value) {
            report.push(whole.mark, Diagnostic::error("bad-content", "only a folder can be `whole`"));
        }
    }

    /// No base version of a secret is kept, so it cannot be merged.
    fn check_secret(&self, path: &str, text: &Marked<String>, entry: &FileEntry, report: &mut Report<'_>) {
        let merged = entry.manage.as_ref().map_or(self.merges, |m| m.value == ManageEntry::Merge);
        if secret::marks(&text.value).next().is_none() {
            return;
        }
        if merged {
            let fault = Diagnostic::error("secret-merged", format!("{path} holds a secret, so it can't be merged"));
            let help = "write `manage: copy` for this file: COB keeps no copy of a secret for a merge";
            report.push(text.mark, fault.help(help));
        } else if entry.mode.is_none() {
            let what =
                format!("{path} holds a secret and has no `mode`: a new file may be read by all users of the host");
            let help = "`mode: \"0600\"`, or \"0640\" with a `group`";
            report.push(text.mark, Diagnostic::warning("open-secret", what).help(help));
        }
    }

    /// A file or folder beside the model.
    fn from(
        &mut self,
        path: &str,
        mark: Mark,
        from: &Marked<String>,
        entry: &FileEntry,
        out: JsonMap<String, Json>,
        report: &mut Report<'_>,
    ) {
        let name = from.value.strip_prefix("./").unwrap_or(&from.value).trim_end_matches('/').to_owned();
        let there = report.folder(from.mark).join(&name);
        if !there.is_dir() {
            self.check_whole(entry, report);
            self.file(path, mark, &name, from.mark, out, report);
            return;
        }
        if let Some(mode) = &entry.mode {
            let fault = Diagnostic::error(
                "bad-mode",
                format!("{:?} is a folder, and `mode` would also apply to its files", name),
            );
            report.push(mode.mark, fault.help("list the files that need a different mode separately"));
            return;
        }
        let mut folder = out.clone();
        folder.remove("xattrs");
        let inner = folder.clone();
        folder.remove("validate");
        folder.insert("folder".to_owned(), json!(true));
        if entry.whole.as_ref().is_some_and(|w| w.value) {
            folder.insert("whole".to_owned(), json!(true));
        }
        self.add(path, mark, folder, report);
        let Some(below) = self.files.below(&name, from.mark, MAX_FILES, report) else { return };
        for (relative, sort) in below {
            let path = format!("{path}/{relative}");
            let mut out = inner.clone();
            if !matches!(sort, Below::File) {
                out.remove("validate");
            }
            match sort {
                Below::Folder => {
                    out.insert("folder".to_owned(), json!(true));
                    self.add(&path, mark, out, report);
                }
                Below::Link(target) => {
                    ["owner", "group"].iter().for_each(|key| drop(out.remove(*key)));
                    out.insert("link".to_owned(), json!(target));
                    self.add(&path, mark, out, report);
                }
                Below::File => self.file(&path, mark, &format!("{name}/{relative}"), from.mark, out, report),
            }
        }
    }

    fn file(
        &mut self,
        path: &str,
        mark: Mark,
        name: &str,
        from: Mark,
        mut out: JsonMap<String, Json>,
        report: &mut Report<'_>,
    ) {
        let word = Marked { mark: from, value: format!("./{name}") };
        self.files.named(&[word], &mut self.payload, report);
        let executable = self.payload.get(name).is_some_and(|file| file.mode & 0o111 != 0);
        if executable && !out.contains_key("mode") {
            out.insert("mode".to_owned(), json!("0755"));
        }
        out.insert("from".to_owned(), json!(name));
        self.add(path, mark, out, report);
    }

    fn add(&mut self, path: &str, mark: Mark, out: JsonMap<String, Json>, report: &mut Report<'_>) {
        if let Some(first) = self.marks.get(path) {
            let fault = Diagnostic::error("duplicate-name", format!("{path} is named twice"));
            report.push(mark, fault.note(Some(report.place(*first)), "first here"));
            return;
        }
        self.marks.insert(path.to_owned(), mark);
        self.out.insert(path.to_owned(), Json::Object(out));
    }

    /// Reports paths below an entry that is no folder.
    fn check_folders(&self, report: &mut Report<'_>) {
        for (path, mark) in &self.marks {
            let mut above = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
            let wrong = above.find(|above| self.out.get(*above).is_some_and(|e| e.get("folder").is_none()));
            if let Some(above) = wrong {
                let fault = Diagnostic::error("bad-path", format!("{path} is impossible: {above} is not a folder"));
                report.push(*mark, fault.note(self.marks.get(above).map(|m| report.place(*m)), "defined here"));
            }
        }
    }
}

/// An entry of a folder beside the model.
pub(super) enum Below {
    File,
    Folder,
    Link(String),
}

/// Reports paths that two change objects of a host manage, and paths in a folder that another manages as a whole.
pub(super) fn report_overlaps(objects: &ByCob<Box<Object>>, report: &mut Report<'_>) {
    let mut owners: BTreeMap<(String, String), (&cob_types::CobId, &Object, bool)> = BTreeMap::new();
    let trees = || objects.iter().filter(|(_, o)| o.kind.as_ref().is_some_and(|k| k.kind.backend == "file-tree"));
    for (id, object) in trees() {
        for (path, entry) in object.content["files"].as_object().into_iter().flatten() {
            let whole = entry["whole"] == json!(true);
            let key = (id.host_str().to_owned(), path.clone());
            let Some((first, other, first_whole)) = owners.get(&key) else {
                owners.insert(key, (id, object, whole));
                continue;
            };
            // Several change objects may share a folder.
            let shared = entry["folder"] == json!(true) && !whole && !first_whole;
            let same = object.content["files"][path] == other.content["files"][path];
            if !(shared && same) {
                let fault =
                    Diagnostic::error("two-owners", format!("two change objects, {first} and {id}, manage {path}"));
                let fault = fault.note(Some(report.place(other.mark)), "the first");
                let help = "a path belongs to a single change object: remove it from the other";
                report.push(object.mark, fault.help(help));
            }
        }
    }
    for (id, object) in trees() {
        for path in object.content["files"].as_object().into_iter().flatten().map(|(path, _)| path) {
            for above in Path::new(path).ancestors().skip(1).filter_map(Path::to_str) {
                let owner = owners.get(&(id.host_str().to_owned(), above.to_owned()));
                if let Some((other, first, true)) = owner.filter(|(other, ..)| *other != id) {
                    let what = format!("{path} of {id} is in {above}, which {other} manages as a whole");
                    let fault = Diagnostic::error("two-owners", what)
                        .note(Some(report.place(first.mark)), "`whole` is set here");
                    report.push(
                        object.mark,
                        fault.help(
                            "the owner of the folder would remove the file: manage the file there or here, not in both",
                        ),
                    );
                }
            }
        }
    }
}

/// The fault of an absolute path, if any.
fn path_fault(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("it is not absolute") };
    if path.len() > 4095 {
        return Some("it is too long");
    }
    rest.split('/').find_map(|part| match part {
        "" => Some("a part of it is empty"),
        "." | ".." => Some("a part of it is `.` or `..`"),
        _ if part.len() > 255 => Some("a part of it is too long"),
        _ if part.contains('\0') => Some("it has a NUL in it"),
        // The daemon uses these names beside the files that it writes.
        _ if part.starts_with('.') && part.ends_with(".cob-new") => {
            Some("names `.….cob-new` are reserved for files that COB is still writing")
        }
        _ => None,
    })
}
