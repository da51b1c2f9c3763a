//! `cobgen show`: change objects in full, their dependencies in the notation of the paper.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use cob_depot::{Depot, DepotError, GenerationName};
use cob_types::generation::Security;
use cob_types::{Cob, CobId, Generation, Kind, Manifest, Need, PublicKey};
use serde_json::{Value, json};

use super::sign::{names, signers};
use super::{Answer, CommandResult, Stop, Terminal, refused};
use crate::diagnostic::{Diagnostic, shown, summary};
use crate::draft::{Arrow, Place, When};
use crate::make::{After, Made, make};
use crate::model::did_you_mean_or_list;
use crate::provenance::Provenance;
use crate::secrets::shown as shown_secrets;

/// The options of `cobgen show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen show model.yaml
  cobgen show model.yaml n1/db/server
  cobgen show --depot depot n1                      of the latest generation
  cobgen show --depot depot --generation 3 n1 --json | jq '.cobs[].id'

(A, x, y) <- (B, z): A goes from x to y only while B is locked in z.
(C, u) <- (D, v): C grants u to others only while D is locked in v.
Behind each: its words in the model, and their place.")]
pub struct ShowArgs {
    /// A model file or folder (not with --depot)
    #[arg(value_name = "MODEL")]
    first: Option<PathBuf>,
    /// A change object (HOST/NAME) or a host; default: all
    #[arg(value_name = "NAME")]
    second: Option<String>,
    /// Show a generation of this depot instead of a model
    #[arg(long, value_name = "DIR")]
    pub(super) depot: Option<PathBuf>,
    /// The generation: its number, `latest`, or `-1` for the generation before the latest
    #[arg(long, value_name = "N", requires = "depot", default_value = "latest", allow_negative_numbers = true)]
    generation: GenerationName,
    /// Print {"cobs": [{"id", "kind", "preferred", "content", "files", "restarts_on", "place"?,
    /// "transitions": [{"from", "to", "need", "sources": [{"words", "place"}]}],
    /// "locks": [{"state", "need", "sources"}]}]}. Refused: {"diagnostics"} as in `check`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &ShowArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    match (&args.depot, &args.first, &args.second) {
        (Some(depot), name, None) => {
            let name = name.as_ref().map(|name| name.to_string_lossy());
            let Shown { generation, provenance, signers } = of_depot(depot, args.generation)?;
            if !args.json {
                tell_signers(&generation.manifest, &signers, terminal)?;
            }
            let view = View { generation: &generation, provenance: provenance.as_ref() };
            view.show(name.as_deref(), args.json, terminal)
        }
        (None, Some(model), name) => {
            let Made { assembled, diagnostics, sources, .. } = make(model, &After::default());
            let Some(assembled) = assembled else {
                refused(model, &diagnostics, &sources, args.json, terminal)?;
                return Err(Stop::Told(Answer::Bad));
            };
            // A model that the check refuses can be shown, which often helps to see the reason.
            if !diagnostics.is_empty() {
                let model = model.display();
                writeln!(terminal.err, "{model}: {}; see `cobgen check {model}`", summary(&diagnostics))?;
            }
            View { generation: &assembled.generation, provenance: Some(&assembled.provenance) }.show(
                name.as_deref(),
                args.json,
                terminal,
            )
        }
        (Some(_), _, Some(_)) => {
            let fault = Diagnostic::error("usage", "MODEL and --depot exclude each other");
            Err(fault.help("`cobgen show --depot DIR [NAME]`, or `cobgen show MODEL [NAME]`").into())
        }
        (None, None, _) => {
            let fault = Diagnostic::error("usage", "name a MODEL, or a depot with --depot");
            Err(fault.help("`cobgen show MODEL [NAME]`, or `cobgen show --depot DIR [NAME]`").into())
        }
    }
}

/// The data of a depot about a generation.
struct Shown {
    generation: Generation,
    provenance: Option<Provenance>,
    signers: Vec<PublicKey>,
}

/// Prints the signers of a generation; prints no line if it needs no signature.
fn tell_signers(manifest: &Manifest, signers: &[PublicKey], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let number = manifest.generation;
    if !signers.is_empty() {
        writeln!(terminal.err, "generation {number} is signed by {}", names(signers))
    } else if manifest.security == Security::Identities {
        writeln!(terminal.err, "generation {number} is not signed: no host accepts it (`cobgen sign`)")
    } else {
        Ok(())
    }
}

fn of_depot(path: &Path, named: GenerationName) -> Result<Shown, DepotError> {
    let depot = Depot::open(path)?;
    let number = named.find(&depot)?;
    // A generation can be shown without provenance.
    let provenance = depot.read_provenance(number)?.and_then(|bytes| Provenance::from_json(&bytes).ok());
    Ok(Shown { generation: depot.read(number)?, provenance, signers: signers(&depot, number)? })
}

/// A generation, with its provenance if known.
struct View<'a> {
    generation: &'a Generation,
    provenance: Option<&'a Provenance>,
}

/// A need of a change object.
struct Dependency<'a> {
    when: When,
    need: &'a Need,
    sources: &'a [Arrow],
}

impl<'a> View<'a> {
    fn show(&self, name: Option<&str>, as_json: bool, terminal: &mut Terminal<'_>) -> CommandResult {
        let all = || {
            self.generation.bundles.values().flat_map(|b| b.cobs.values().map(|cob| (&**cob, b.kinds.get(&cob.kind))))
        };
        let chosen = |id: &CobId| name.is_none_or(|n| id.as_str() == n || id.host_str() == n);
        let cobs: Vec<(&Cob, Option<&Kind>)> = all().filter(|(cob, _)| chosen(&cob.id)).collect();
        if let (Some(name), true) = (name, cobs.is_empty())
            && !self.generation.bundles.contains_key(name)
        {
            let what = format!("there is no change object and no host `{name}`");
            let hosts = self.generation.bundles.keys().map(|host| host.as_str());
            let names = hosts.chain(all().map(|(cob, _)| cob.id.as_str()));
            return Err(Diagnostic::error("unknown-name", what).maybe_help(did_you_mean_or_list(name, names)).into());
        }
        if as_json {
            let cobs: Vec<Value> = cobs.iter().map(|(cob, _)| self.as_json(cob)).collect();
            writeln!(terminal.out, "{:#}", json!({"cobs": cobs}))?;
            return Ok(Answer::Done);
        }
        let mut dependents: BTreeMap<&CobId, Vec<String>> = BTreeMap::new();
        for (cob, _) in all() {
            if let Some(token) = &cob.budget {
                dependents.entry(&token.cob).or_default().push(cob.id.to_string());
            }
            for arrow in self.arrows(cob) {
                dependents.entry(&arrow.need.cob).or_default().push(notation(&cob.id, &arrow));
            }
        }
        for (i, (cob, kind)) in cobs.iter().enumerate() {
            if i > 0 {
                writeln!(terminal.out)?;
            }
            self.in_full(cob, *kind, terminal)?;
            for dependent in dependents.get(&cob.id).into_iter().flatten() {
                writeln!(terminal.out, "  needed by  {dependent}")?;
            }
        }
        Ok(Answer::Done)
    }

    fn in_full(&self, cob: &Cob, kind: Option<&Kind>, terminal: &mut Terminal<'_>) -> io::Result<()> {
        let out = &mut terminal.out;
        match self.place(&cob.id) {
            Some(place) => writeln!(out, "{}   {}", cob.id, shown(place))?,
            None => writeln!(out, "{}", cob.id)?,
        }
        let states = kind.map(|k| k.states.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", "));
        writeln!(out, "  kind       {} ({})", cob.kind, states.unwrap_or_default())?;
        writeln!(out, "  preferred  {}", cob.preferred)?;
        if cob.content != "{}" {
            writeln!(out, "  content    {}", self.content(cob))?;
        }
        let files: Vec<&str> =
            kind.into_iter().flat_map(|k| k.files.keys()).chain(cob.files.keys()).map(String::as_str).collect();
        if !files.is_empty() {
            writeln!(out, "  files      {}", files.join(", "))?;
        }
        let rests_on = self.restarts_on(&cob.id);
        if !rests_on.is_empty() {
            let names: Vec<&str> = rests_on.iter().map(CobId::as_str).collect();
            writeln!(out, "  restart on {}", names.join(", "))?;
        }
        if let Some(token) = &cob.budget {
            writeln!(out, "  budget     {}", token.cob)?;
        }
        if cob.observe {
            writeln!(out, "  mode       observe: it is checked and never changed")?;
        }
        if cob.keep {
            writeln!(out, "  on_remove  keep")?;
        }
        for arrow in self.arrows(cob) {
            let text = notation(&cob.id, &arrow);
            let mut lines = arrow.sources.iter().map(|s| format!("{}   {}", s.said.words, shown(&s.said.place)));
            writeln!(out, "  {text}   {}", lines.next().unwrap_or_default())?;
            for line in lines {
                writeln!(out, "  {:width$}   {line}", "", width = text.chars().count())?;
            }
        }
        Ok(())
    }

    fn as_json(&self, cob: &Cob) -> Value {
        let mut transitions = Vec::new();
        let mut locks = Vec::new();
        for Dependency { when, need, sources } in self.arrows(cob) {
            let sources: Vec<Value> =
                sources.iter().map(|s| json!({"words": s.said.words, "place": place_json(&s.said.place)})).collect();
            let need = need.to_string();
            match when {
                When::Transition { from, to } => {
                    transitions.push(json!({"from": from, "to": to, "need": need, "sources": sources}));
                }
                When::Lock { state } => locks.push(json!({"state": state, "need": need, "sources": sources})),
            }
        }
        let mut value = json!({
            "id": cob.id,
            "kind": cob.kind,
            "preferred": cob.preferred,
            "content": serde_json::from_str::<Value>(&self.content(cob)).unwrap_or(Value::Null),
            "files": cob.files.keys().collect::<Vec<_>>(),
            "restarts_on": self.restarts_on(&cob.id),
            "transitions": transitions,
            "locks": locks,
        });
        if let (Some(token), Value::Object(fields)) = (&cob.budget, &mut value) {
            fields.insert("budget".to_owned(), json!(token.cob));
        }
        if let (true, Value::Object(fields)) = (cob.observe, &mut value) {
            fields.insert("mode".to_owned(), json!("observe"));
        }
        if let (true, Value::Object(fields)) = (cob.keep, &mut value) {
            fields.insert("on_remove".to_owned(), json!("keep"));
        }
        if let (Some(place), Value::Object(fields)) = (self.place(&cob.id), &mut value) {
            fields.insert("place".to_owned(), place_json(place));
        }
        value
    }

    fn arrows<'c>(&self, cob: &'c Cob) -> Vec<Dependency<'c>>
    where
        'a: 'c,
    {
        let arrow = |when: When, need: &'c Need| {
            let sources = self.provenance.map_or(&[][..], |p| p.sources(&cob.id, &when, &need.cob));
            Dependency { when, need, sources }
        };
        let moves = cob.transitions.iter().flat_map(|t| {
            t.needs.iter().map(move |need| arrow(When::Transition { from: t.from.clone(), to: t.to.clone() }, need))
        });
        let promises = cob
            .locks
            .iter()
            .flat_map(|l| l.needs.iter().map(move |need| arrow(When::Lock { state: l.state.clone() }, need)));
        moves.chain(promises).collect()
    }

    /// The content, with the names of secrets in place of their marks.
    fn content(&self, cob: &Cob) -> String {
        self.provenance
            .map_or_else(|| shown_secrets(&cob.content, &BTreeMap::new()), |p| shown_secrets(&cob.content, &p.secrets))
    }

    fn place(&self, id: &CobId) -> Option<&'a Place> {
        self.provenance.and_then(|p| p.cob(id))
    }

    fn restarts_on(&self, id: &CobId) -> &'a [CobId] {
        self.provenance.and_then(|p| p.cobs.get(id)).map_or(&[], |origin| &origin.restarts_on)
    }
}

/// `(A, x, y) <- (B, z)` or `(C, u) <- (D, v)`.
fn notation(id: &CobId, arrow: &Dependency<'_>) -> String {
    let states: Vec<&str> = arrow.need.states.iter().map(|s| s.as_str()).collect();
    let need = format!("({}, {})", arrow.need.cob, states.join("|"));
    match &arrow.when {
        When::Transition { from, to } => format!("({id}, {from}, {to}) <- {need}"),
        When::Lock { state } => format!("({id}, {state}) <- {need}"),
    }
}

fn place_json(place: &Place) -> Value {
    json!({"file": place.file.display().to_string(), "line": place.line, "column": place.column})
}
