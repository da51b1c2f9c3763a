//! `cobgen show`: change objects in full, their dependencies in the notation of the paper.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use cob_types::{CobId, Kind};
use serde_json::{Value, json};

use super::{Answer, Terminal, load};
use crate::diagnostic::shown;
use crate::draft::{Arrow, At, Draft, DraftCob, Place, When};
use crate::model::did_you_mean_or_list;

/// The options of `cobgen show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen show model.yaml
  cobgen show model.yaml n1/db/server
  cobgen show model.yaml n1 --json | jq '.cobs[].id'

(A, x, y) <- (B, z): A goes from x to y only while B is locked in z.
(C, u) <- (D, v): C promises to stay in u only while D is locked in v.")]
pub struct Args {
    /// A model file or folder
    model: PathBuf,
    /// A change object (HOST/NAME) or a host; default: all
    name: Option<String>,
    /// Print {"cobs": [{"id", "kind", "preferred", "content", "files", "restarts_on", "place",
    /// "transitions": [{"from", "to", "need", "words", "place"}], "locks": [{"state", "need", ...}]}]}
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let Some(draft) = load(&args.model, terminal)? else { return Ok(Answer::Bad) };
    let chosen = |id: &CobId| args.name.as_deref().is_none_or(|n| id.as_str() == n || id.host_str() == n);
    let cobs: BTreeMap<&CobId, &At<DraftCob>> = draft.cobs.iter().filter(|(id, _)| chosen(id)).collect();
    if let (Some(name), true) = (&args.name, cobs.is_empty())
        && !draft.hosts.contains_key(name.as_str())
    {
        writeln!(terminal.err, "error: the model has no change object and no host `{name}`")?;
        let hosts = draft.hosts.keys().map(|h| h.as_str());
        let names = hosts.chain(draft.cobs.keys().map(CobId::as_str));
        if let Some(help) = did_you_mean_or_list(name, names) {
            writeln!(terminal.err, "  help: {help}")?;
        }
        return Ok(Answer::Bad);
    }
    if args.json {
        let cobs: Vec<Value> = cobs.iter().map(|(id, cob)| as_json(id, cob)).collect();
        writeln!(terminal.out, "{:#}", json!({"cobs": cobs}))?;
        return Ok(Answer::Done);
    }
    let dependents = dependents(&draft);
    for (i, (id, cob)) in cobs.iter().enumerate() {
        if i > 0 {
            writeln!(terminal.out)?;
        }
        let kind = draft.kinds.get(&cob.value.kind).map(|k| &k.value);
        let needed = dependents.get(id).map(Vec::as_slice).unwrap_or_default();
        in_full(id, cob, kind, needed, terminal)?;
    }
    Ok(Answer::Done)
}

fn in_full(
    id: &CobId,
    cob: &At<DraftCob>,
    kind: Option<&Kind>,
    needed: &[(&CobId, &Arrow)],
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let At { value, place } = cob;
    let out = &mut terminal.out;
    writeln!(out, "{id}   {}", shown(place))?;
    let states = kind.map(|k| k.states.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", "));
    writeln!(out, "  kind       {} ({})", value.kind, states.unwrap_or_default())?;
    writeln!(out, "  preferred  {}", value.preferred)?;
    if value.content != json!({}) {
        writeln!(out, "  content    {}", value.content)?;
    }
    let files = kind.into_iter().flat_map(|k| k.files.keys()).chain(value.files.keys());
    let files: Vec<&str> = files.map(String::as_str).collect();
    if !files.is_empty() {
        writeln!(out, "  files      {}", files.join(", "))?;
    }
    if !value.restarts_on.is_empty() {
        let names: Vec<&str> = value.restarts_on.iter().map(CobId::as_str).collect();
        writeln!(out, "  rests on   {}", names.join(", "))?;
    }
    for arrow in &value.arrows {
        writeln!(out, "  {}   {}   {}", notation(id, arrow), arrow.words, shown(&arrow.place))?;
    }
    for (dependent, arrow) in needed {
        writeln!(out, "  needed by  {}", notation(dependent, arrow))?;
    }
    Ok(())
}

/// `(A, x, y) <- (B, z)` or `(C, u) <- (D, v)`.
fn notation(id: &CobId, arrow: &Arrow) -> String {
    let states: Vec<&str> = arrow.need.states.iter().map(|s| s.as_str()).collect();
    let need = format!("({}, {})", arrow.need.cob, states.join("|"));
    match &arrow.when {
        When::Transition { from, to } => format!("({id}, {from}, {to}) <- {need}"),
        When::Lock { state } => format!("({id}, {state}) <- {need}"),
    }
}

/// Who depends on each change object, and how.
fn dependents(draft: &Draft) -> BTreeMap<&CobId, Vec<(&CobId, &Arrow)>> {
    let mut found: BTreeMap<&CobId, Vec<(&CobId, &Arrow)>> = BTreeMap::new();
    for (id, cob) in &draft.cobs {
        for arrow in &cob.value.arrows {
            found.entry(&arrow.need.cob).or_default().push((id, arrow));
        }
    }
    found
}

fn as_json(id: &CobId, cob: &At<DraftCob>) -> Value {
    let At { value, place } = cob;
    let place_json = |p: &Place| json!({"file": p.file.display().to_string(), "line": p.line, "column": p.column});
    let mut transitions = Vec::new();
    let mut locks = Vec::new();
    for Arrow { when, need, words, place } in &value.arrows {
        let (need, place) = (need.to_string(), place_json(place));
        match when {
            When::Transition { from, to } => {
                transitions.push(json!({"from": from, "to": to, "need": need, "words": words, "place": place}));
            }
            When::Lock { state } => locks.push(json!({"state": state, "need": need, "words": words, "place": place})),
        }
    }
    json!({
        "id": id,
        "kind": value.kind,
        "preferred": value.preferred,
        "content": value.content,
        "files": value.files.keys().collect::<Vec<_>>(),
        "restarts_on": value.restarts_on,
        "place": place_json(place),
        "transitions": transitions,
        "locks": locks,
    })
}
