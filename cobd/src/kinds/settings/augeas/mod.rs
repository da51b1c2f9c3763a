//! The kind back end `augeas`: values of a configuration file that others own, by a lens of Augeas.
//!
//! An edit is a function from text to text. The note has the text without and with the own edit, and for each path its
//! earlier nodes and the values that the change object has set. A restore undoes the lines of the edit, so that each
//! byte is as before. If others have changed the same lines since, each path that still has a value of the change
//! object gets its earlier nodes instead.

mod augtool;
mod lines;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cob_kinds::{Augeas, tree_parts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::augtool::{Augtool, Found, full_lens, node, quoted};
use super::edits;
use super::sharing;
use super::{Entry, Setting, Spec};
use crate::kinds::native::Host;

/// The mode of a new file.
const MODE: u32 = 0o644;

/// The back end `augeas`.
#[derive(Debug)]
pub(super) struct AugeasSetting;

/// The value of a node. A node may have no value.
type NodeValue = Option<String>;

/// The desired nodes.
#[derive(Debug)]
struct Nodes {
    host: Host,
    path: String,
    lens: Option<String>,
    before: Option<String>,
    create: bool,
    tool: Augtool,
    /// The paths in the order of the content. `None`: there must be no node.
    changes: Vec<(String, Option<NodeValue>)>,
    others: Others,
}

/// The file and the nodes that other change objects have made: the last change object removes both.
#[derive(Debug, Default)]
struct Others {
    file: bool,
    nodes: BTreeSet<String>,
}

/// The note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// The lens that the paths are for.
    lens: String,
    /// Whether the file existed.
    file: bool,
    /// The text without the edit.
    without: String,
    /// The text with the edit.
    with: String,
    nodes: BTreeMap<String, NotedNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NotedNode {
    /// The earlier nodes of the path.
    was: Vec<Earlier>,
    /// The values that the change object has set. Empty: it has removed the node.
    ours: Vec<Vec<NodeValue>>,
    /// The beginnings of the path that found no node, the longest first.
    made: Vec<String>,
    /// The content names it no more.
    #[serde(default)]
    dropped: bool,
}

/// A node that was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Earlier {
    path: String,
    value: NodeValue,
    below: Vec<(String, NodeValue)>,
    above: Above,
}

/// The node above an earlier node, which has the same parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Above {
    /// The node was the first of its parent.
    Nothing,
    Node(String),
    Unknown,
}

/// The nodes that go with the change object, the last first: the numbers of nodes behind a removed node change.
#[derive(Debug, Default)]
struct Leaving {
    gone: Vec<String>,
    /// Nodes above these, which were made for them, and go if no other node is below.
    emptied: Vec<String>,
}

impl Leaving {
    fn of(nodes: &BTreeMap<&String, &NotedNode>, now: &[Vec<Found>]) -> Self {
        let (mut gone, mut emptied) = (Vec::new(), Vec::new());
        let made = |(node, found): &(&&NotedNode, &Vec<Found>)| node.was.is_empty() && node.is_left(&values(found));
        for (node, found) in nodes.values().zip(now).filter(made) {
            for one in found {
                emptied.extend(beginnings(&one.path).into_iter().take(node.made.len()));
                gone.push(one.path.clone());
            }
        }
        emptied.retain(|path| !gone.contains(path));
        for paths in [&mut gone, &mut emptied] {
            paths.sort_by_key(|path| Reverse(numbered(path)));
            paths.dedup();
        }
        Self { gone, emptied }
    }

    fn all(&self) -> Vec<String> {
        self.gone.iter().chain(&self.emptied).cloned().collect()
    }

    /// Whether a node of others is below the nodes that go.
    fn has_others(&self, found: &[Vec<Found>]) -> bool {
        let is_other = |path: String| !self.gone.contains(&path) && !self.emptied.contains(&path);
        let mut all = found.iter().flatten();
        all.any(|one| one.below.iter().any(|(below, _)| is_other(format!("{}/{below}", one.path))))
    }
}

impl Setting for AugeasSetting {
    type Content = Augeas;

    fn spec(&self, Entry { content, host, own, .. }: Entry<Augeas>) -> Result<Box<dyn Spec>, String> {
        let set = content.set.texts()?.into_iter().map(|(path, value)| (path, Some(value)));
        let changes = set.chain(content.absent.iter().map(|path| (path.clone(), None))).collect();
        let mut others = Others::default();
        for (other, before) in sharing::others::<Augeas>(&own, &host, &content.path) {
            if other.content.path == content.path
                && let Some(noted) = noted(before.as_ref())
            {
                others.file |= !noted.file;
                others.nodes.extend(noted.nodes.into_values().flat_map(|node| node.made));
            }
        }
        let tool = Augtool::new(&content.path, own);
        let lens = content.lens.as_deref().map(full_lens);
        let Augeas { path, before, create, .. } = content;
        Ok(Box::new(Nodes { host, path, lens, before, create, tool, changes, others }))
    }
}

fn noted(before: Option<&Value>) -> Option<Noted> {
    Noted::deserialize(before?).ok()
}

/// The beginnings of a path, the longest first.
fn beginnings(path: &str) -> Vec<String> {
    let parts = tree_parts(path).unwrap_or_default();
    (1..parts.len()).rev().map(|length| parts[..length].join("/")).collect()
}

fn values(found: &[Found]) -> Vec<NodeValue> {
    found.iter().map(|one| one.value.clone()).collect()
}

impl NotedNode {
    fn was(&self) -> Vec<NodeValue> {
        self.was.iter().map(|one| one.value.clone()).collect()
    }

    /// Whether the path has a value of the change object that is not its earlier value.
    fn is_left(&self, now: &[NodeValue]) -> bool {
        self.was() != now && self.ours.iter().any(|one| one == now)
    }
}

impl Nodes {
    fn text(&self) -> Result<Option<String>, String> {
        self.host.read_if_there(&self.path)
    }

    /// The lens: of the content, of the note, or of Augeas for this path.
    fn lens(&self, noted: Option<&Noted>, text: &str) -> Result<String, String> {
        match (&self.lens, noted) {
            (Some(lens), _) => Ok(lens.clone()),
            (None, Some(noted)) => Ok(noted.lens.clone()),
            (None, None) => self.tool.default_lens(text),
        }
    }

    fn paths(&self) -> Vec<String> {
        self.changes.iter().map(|(path, _)| path.clone()).collect()
    }

    /// The nodes that the content names no more.
    fn dropped<'a>(&self, noted: &'a Noted) -> BTreeMap<&'a String, &'a NotedNode> {
        let paths: BTreeSet<&String> = self.changes.iter().map(|(path, _)| path).collect();
        noted.nodes.iter().filter(|(path, _)| !paths.contains(path)).collect()
    }

    /// The note of the nodes in a text without the own edit.
    fn noted(&self, lens: &str, text: &str) -> Result<BTreeMap<String, NotedNode>, String> {
        let above = |path: &String| format!("{path}/preceding-sibling::*[1]");
        let asked: Vec<String> =
            self.paths().iter().flat_map(|path| [vec![above(path)], beginnings(path)].concat()).collect();
        let first: BTreeMap<String, Option<String>> =
            asked.iter().cloned().zip(self.tool.first(lens, text, &asked)?).collect();
        let is_there = |beginning: &String| first.get(beginning).is_some_and(Option::is_some);
        let mut noted = BTreeMap::new();
        for ((path, wanted), found) in self.changes.iter().zip(self.tool.find(lens, text, &self.paths())?) {
            let above = match (found.len(), first.get(&above(path)).cloned().flatten()) {
                (1, Some(above)) => Above::Node(above),
                (1, None) => Above::Nothing,
                (_, _) => Above::Unknown,
            };
            let earlier =
                |one: Found| Earlier { path: one.path, value: one.value, below: one.below, above: above.clone() };
            let is_made = |beginning: &String| !is_there(beginning) || self.others.nodes.contains(beginning);
            let node = NotedNode {
                was: found.into_iter().map(earlier).collect(),
                ours: vec![wanted.iter().cloned().collect()],
                made: beginnings(path).into_iter().take_while(is_made).collect(),
                dropped: false,
            };
            noted.insert(path.clone(), node);
        }
        Ok(noted)
    }

    /// The text with all nodes as desired.
    fn edited(&self, lens: &str, text: &str) -> Result<String, String> {
        let (mut commands, mut new) = (Vec::new(), Vec::new());
        for ((path, wanted), found) in self.changes.iter().zip(self.tool.find(lens, text, &self.paths())?) {
            match (wanted, found.as_slice()) {
                (Some(wanted), [one]) if one.value == *wanted => {}
                (None, []) => {}
                (Some(_), [_, _, ..]) => {
                    let (count, file) = (found.len(), &self.path);
                    return Err(format!(
                        "{path} finds {count} nodes in {file}: add its number, for example `{path}[1]`"
                    ));
                }
                (Some(value), found) => {
                    new.extend(Some(path).filter(|_| found.is_empty()));
                    commands.push(set(path, value));
                }
                (None, _) => commands.push(format!("rm {}", node(path))),
            }
        }
        commands.splice(..0, self.placed(lens, text, &new)?);
        let edited = self.tool.edit(lens, text, &commands)?;
        for ((path, wanted), found) in self.changes.iter().zip(self.tool.find(lens, &edited, &self.paths())?) {
            let (found, wanted): (_, Vec<NodeValue>) = (values(&found), wanted.iter().cloned().collect());
            if found != wanted {
                let (file, wanted, found) = (&self.path, json!(wanted), json!(found));
                return Err(format!(
                    "{file} stays as it is: after the edit, {path} would find {found} instead of {wanted}; name the \
                     node in another way, for example by a value: `seq::*[ipaddr = '10.0.0.1']/canonical`"
                ));
            }
        }
        Ok(edited)
    }

    /// The text without the edit, unless users have changed the same values since.
    fn put_back(&self, noted: &Noted, text: &str) -> Result<String, String> {
        let (paths, lens): (Vec<String>, _) = (noted.nodes.keys().cloned().collect(), &noted.lens);
        let nodes = noted.nodes.iter().collect();
        let now = self.tool.find(lens, text, &paths)?;
        let leaving = Leaving::of(&nodes, &now);
        let goal = |(node, found): (&NotedNode, Vec<Found>)| {
            let now = values(&found);
            if node.is_left(&now) { node.was() } else { now }
        };
        let goal: Vec<Vec<NodeValue>> = noted.nodes.values().zip(now).map(goal).collect();
        if let Some(undone) = lines::undone(&noted.without, &noted.with, text)
            && !leaving.has_others(&self.tool.find(lens, text, &leaving.all())?)
            && let Ok(found) = self.tool.find(lens, &undone, &paths)
            && found.iter().map(|found| values(found)).eq(goal)
            && self.tool.first(lens, &undone, &leaving.emptied)?.iter().all(Option::is_none)
        {
            return Ok(undone);
        }
        self.put_nodes_back(lens, text, &nodes)
    }

    /// Gives paths their earlier nodes back, unless users have changed the values since.
    fn put_nodes_back(&self, lens: &str, text: &str, nodes: &BTreeMap<&String, &NotedNode>) -> Result<String, String> {
        let paths: Vec<String> = nodes.keys().map(|path| (*path).clone()).collect();
        let now = self.tool.find(lens, text, &paths)?;
        let leaving = Leaving::of(nodes, &now);
        let (mut commands, mut again) = (Vec::new(), Vec::new());
        for (node, found) in nodes.values().zip(&now).filter(|(node, found)| node.is_left(&values(found))) {
            match (node.was.as_slice(), found.as_slice()) {
                ([], _) => {}
                ([one], [found]) => commands.push(set(&found.path, &one.value)),
                (was, _) => {
                    for one in was {
                        again.extend(self.made_again(lens, text, one)?);
                    }
                }
            }
        }
        // A node with nodes of others below it stays.
        let all = leaving.all();
        let found = self.tool.find(lens, text, &all)?;
        let shared = all.iter().zip(&found).filter(|(_, found)| leaving.has_others(std::slice::from_ref(*found)));
        let shared: Vec<&String> = shared.map(|(path, _)| path).collect();
        let edit = |stays: &dyn Fn(&String) -> bool| {
            let gone = leaving.gone.iter().filter(|path| !shared.contains(path) && !stays(path));
            let emptied = leaving.emptied.iter().map(|path| format!("rm {}[count(*) = 0]", node(path)));
            let removed = gone.map(|path| format!("rm {}", node(path))).chain(emptied);
            let all: Vec<String> = commands.iter().cloned().chain(removed).chain(again.clone()).collect();
            self.tool.edit(lens, text, &all)
        };
        let is_beside_others = |path: &String| beginnings(path).iter().any(|above| shared.contains(&above));
        // The nodes of others may need our nodes, as the options of a block need its condition.
        edit(&|_| false).or_else(|why| if shared.is_empty() { Err(why) } else { edit(&is_beside_others) })
    }

    /// The commands that make a removed node with the nodes below it again, at its earlier place if that exists.
    fn made_again(&self, lens: &str, text: &str, one: &Earlier) -> Result<Vec<String>, String> {
        let parts = tree_parts(&one.path).unwrap_or_default();
        let Some((name, parent)) = parts.split_last() else { return Ok(Vec::new()) };
        let label = name.split('[').next().unwrap_or(name);
        let inside = |name: &str| [parent, &[name.to_owned()]].concat().join("/");
        let (place, made, beside) = match &one.above {
            Above::Node(above) => ("after", format!("{above}/following-sibling::*[1]"), Some(above.clone())),
            Above::Nothing => ("before", inside("*[1]"), Some(inside("*[1]"))),
            Above::Unknown => ("", String::new(), None),
        };
        let is_there = beside.clone().map(|beside| self.tool.first(lens, text, &[beside])).transpose()?;
        let (made, mut commands) = match beside.filter(|_| is_there.is_some_and(|first| first[0].is_some())) {
            Some(beside) => (made, vec![format!("ins {label} {place} {}", node(&beside))]),
            None => (inside(&format!("{label}[last()]")), vec![set(&inside(&format!("{label}[last()+1]")), &None)]),
        };
        commands.extend(one.value.iter().map(|value| set(&made, &Some(value.clone()))));
        commands.extend(one.below.iter().map(|(below, value)| set(&format!("{made}/{below}"), value)));
        Ok(commands)
    }

    /// The commands that make new nodes above the node of `before`, to which the values are set afterwards.
    fn placed(&self, lens: &str, text: &str, new: &[&String]) -> Result<Vec<String>, String> {
        let Some(before) = &self.before else { return Ok(Vec::new()) };
        let Some(place) = self.tool.first(lens, text, std::slice::from_ref(before))?.remove(0) else {
            return Ok(Vec::new());
        };
        let all: Vec<String> = new.iter().flat_map(|path| [beginnings(path), vec![(*path).clone()]].concat()).collect();
        let first = self.tool.first(lens, text, &all)?;
        let missing: BTreeSet<&String> =
            all.iter().zip(&first).filter(|(_, found)| found.is_none()).map(|(path, _)| path).collect();
        let divided =
            |path: &str| path.rsplit_once('/').map_or((String::new(), path.to_owned()), |(a, b)| (a.into(), b.into()));
        let (parent, above) = divided(&place);
        let mut made = Vec::new();
        for path in all.iter().filter(|path| missing.contains(path)) {
            let (own_parent, label) = divided(path);
            let is_plain = label.chars().all(|c| c.is_alphanumeric() || "_-#".contains(c));
            // A further node of the same label would change the number of the place.
            if own_parent == parent && is_plain && above.split('[').next() != Some(&label) && !made.contains(&label) {
                made.push(label);
            }
        }
        Ok(made.iter().map(|label| format!("ins {label} before {}", node(&place))).collect())
    }

    fn sets_values(&self) -> bool {
        self.changes.iter().any(|(_, wanted)| wanted.is_some())
    }

    /// Whether a missing file may be made, if it must exist.
    fn may_make(&self, text: Option<&str>) -> Result<(), String> {
        if text.is_some() || self.create || !self.sets_values() {
            return Ok(());
        }
        Err(format!("{} does not exist; `create: true` makes it, or let it come `after` its maker", self.path))
    }

    /// Changes the file by an edit that may fail.
    fn edit(&self, change: &dyn Fn(&str) -> Result<String, String>) -> Result<(), String> {
        self.host.try_edit(&self.path, MODE, change)
    }
}

/// The parts of a path, each with the number of the node among nodes of the same name.
fn numbered(path: &str) -> Vec<(String, u64)> {
    let number = |part: &str| part.strip_suffix(']').and_then(|part| part.rsplit_once('[')?.1.parse().ok());
    let numbered = |part: &String| (part.split('[').next().unwrap_or(part).to_owned(), number(part).unwrap_or(1));
    tree_parts(path).unwrap_or_default().iter().map(numbered).collect()
}

fn set(path: &str, value: &NodeValue) -> String {
    match value {
        Some(value) => format!("set {} {}", node(path), quoted(value)),
        None => format!("clear {}", node(path)),
    }
}

impl Spec for Nodes {
    fn target(&self) -> String {
        match &self.lens {
            Some(lens) => format!("{} ({lens})", self.path),
            None => self.path.clone(),
        }
    }

    fn turn(&self) -> Option<&'static str> {
        Some(edits::turn(&self.host, &self.path))
    }

    fn shared(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn common(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let (text, noted) = (self.text()?.unwrap_or_default(), noted(before));
        let lens = self.lens(noted.as_ref(), &text)?;
        let dropped = noted.as_ref().map(|noted| self.dropped(noted)).unwrap_or_default();
        let mut paths = self.paths();
        paths.extend(dropped.keys().map(|path| (*path).clone()));
        let all = self.tool.find(&lens, &text, &paths)?;
        let mut found = Map::new();
        for (path, nodes) in paths.iter().zip(&all).take(self.changes.len()) {
            match nodes.as_slice() {
                [] => {}
                [one] => drop(found.insert(path.clone(), json!(one.value))),
                several => drop(found.insert(path.clone(), json!(values(several)))),
            }
        }
        for ((path, node), nodes) in dropped.into_iter().zip(&all[self.changes.len()..]) {
            if node.is_left(&values(nodes)) {
                found.insert(path.clone(), json!("not managed any more, and not as it was before"));
            }
        }
        Ok(Some(Value::Object(found)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let text = self.text()?;
        self.may_make(text.as_deref())?;
        let (file, without) = (text.is_some() && !self.others.file, text.unwrap_or_default());
        let lens = self.lens(None, &without)?;
        let nodes = self.noted(&lens, &without)?;
        let with = self.edited(&lens, &without)?;
        Ok(Some(json!(Noted { lens, file, without, with, nodes })))
    }

    fn merged(&self, earlier: Option<Value>, found: Option<Value>) -> Result<Option<Value>, String> {
        let Some(earlier) = noted(earlier.as_ref()) else { return Ok(found) };
        let text = self.text()?.unwrap_or_default();
        let paths: Vec<String> = earlier.nodes.keys().cloned().collect();
        let now = self.tool.find(&earlier.lens, &text, &paths)?;
        let without = self.put_back(&earlier, &text)?;
        let mut new = self.noted(&earlier.lens, &without)?;
        let mut nodes = BTreeMap::new();
        for ((path, node), found) in earlier.nodes.into_iter().zip(now) {
            let is_left = node.is_left(&values(&found));
            match new.remove(&path) {
                // It was given back, and is taken again.
                Some(new) if node.dropped && !is_left => drop(nodes.insert(path, new)),
                Some(new) => {
                    let ours: Vec<_> = new.ours.into_iter().filter(|one| !node.ours.contains(one)).collect();
                    let ours = [node.ours, ours].concat();
                    nodes.insert(path, NotedNode { ours, dropped: false, ..node });
                }
                None if is_left => drop(nodes.insert(path, NotedNode { dropped: true, ..node })),
                None => {}
            }
        }
        nodes.extend(new);
        let with = self.edited(&earlier.lens, &without)?;
        Ok(Some(json!(Noted { lens: earlier.lens, file: earlier.file, without, with, nodes })))
    }

    fn wanted(&self) -> Value {
        let wanted = |(path, value): &(String, Option<NodeValue>)| Some((path.clone(), json!(value.as_ref()?)));
        Value::Object(self.changes.iter().filter_map(wanted).collect())
    }

    fn of_use(&self) -> Result<(), String> {
        Augtool::is_there()
    }

    fn hindered(&self) -> Result<(), String> {
        Augtool::is_there()
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let noted = noted(before).ok_or("the note of the earlier values is missing")?;
        let text = self.text()?;
        self.may_make(text.as_deref())?;
        if text.is_none() && !self.sets_values() {
            return Ok(());
        }
        let dropped = self.dropped(&noted);
        self.edit(&|text| self.edited(&noted.lens, &self.put_nodes_back(&noted.lens, text, &dropped)?))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.tool.clear()?;
        let Some(noted) = noted(before).filter(|noted| !noted.nodes.is_empty()) else { return Ok(()) };
        if self.text()?.is_none() {
            return Ok(());
        }
        self.edit(&|text| self.put_back(&noted, text))?;
        if !noted.file && self.text()?.is_some_and(|text| text.trim().is_empty()) {
            return self.host.remove(&self.path);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "augeas_test.rs"]
mod tests;
