//! `cobctl test-kind`: the contract test on a kind, in a scratch folder of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cob_types::{Bundle, Cob, CobId, Kind, canonical, secret};
use cobd::kinds::contract::{self, Case, Report, Verdict};
use cobd::run::Program;
use cobgen::diagnostic::{self, Severity};
use cobgen::make::{After, make};

use cobctl::args::TestKindArgs;
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::{Mark, Screen};
use cobctl::words::clean_to;

/// The longest line of a command's output that is shown.
const LONGEST: usize = 1000;

pub(crate) async fn run(screen: &mut Screen, args: &TestKindArgs, json: bool) -> CommandResult {
    let scratch = scratch(args)?;
    let (kind, cob, bundle) = subject(args, scratch.path(), screen)?;
    let states = kind.states.clone();
    let mut case = Case::of(kind, cob, bundle.blobs).kills(args.kills.unwrap_or(contract::KILLS)).seed(args.seed);
    if let Some(other) = &args.other {
        case = case.other(&content(other, "--other")?);
    }
    for path in &args.watch {
        let path = path.canonicalize().map_err(|e| Failure::usage(at(path, &e)))?;
        case = case.watching(path);
    }
    for (state, command) in &args.arrange {
        if !states.contains(state) {
            let what =
                format!("--arrange: {} has no state {state}; it has {}", args.kind, cobctl::words::list(&states, 12));
            return Err(Failure::usage(what));
        }
        case = case.arranging(state.clone(), command.as_str());
    }
    let program = Program::this().map_err(Failure::environment)?;
    let report = contract::run(&case, &program, &scratch.path().join("run")).await;
    let report = report.map_err(|e| Failure::environment(format!("{}: {e}", scratch.path().display())))?;
    if json {
        screen.json(&report)?;
    } else {
        show(screen, &report)?;
    }
    Ok(if report.holds { Exit::Yes } else { Exit::No })
}

/// The folder for all files of the test, deleted at the end unless it was named.
enum Scratch {
    Named(PathBuf),
    Made(tempfile::TempDir),
}

impl Scratch {
    fn path(&self) -> &Path {
        match self {
            Scratch::Named(path) => path,
            Scratch::Made(folder) => folder.path(),
        }
    }
}

fn scratch(args: &TestKindArgs) -> Result<Scratch, Failure> {
    let scratch = match &args.scratch {
        Some(folder) => {
            fs::create_dir_all(folder).map_err(|e| Failure::usage(at(folder, &e)))?;
            if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
                let what = format!("the folder {} is not empty", folder.display());
                return Err(Failure::usage(what).hint("name an empty or new folder"));
            }
            Scratch::Named(folder.clone())
        }
        None => {
            Scratch::Made(tempfile::Builder::new().prefix("cob-test-kind-").tempdir().map_err(Failure::environment)?)
        }
    };
    let run = scratch.path().join("run");
    fs::create_dir(&run).map_err(|e| Failure::environment(at(&run, &e)))?;
    Ok(scratch)
}

/// The kind and the change object: from the model, or from a small model for a built-in kind.
fn subject(args: &TestKindArgs, scratch: &Path, screen: &mut Screen) -> Result<(Kind, Cob, Bundle), Failure> {
    let model = match &args.model {
        Some(model) => model.clone(),
        None => small_model(args, scratch)?,
    };
    let made = make(&model, &After::default());
    if made.diagnostics.iter().any(|d| d.severity == Severity::Error) {
        screen.say(diagnostic::render(&made.diagnostics, &made.sources, false).trim_end());
    }
    let assembled = made.assembled.as_ref().filter(|_| !made.is_refused()).ok_or_else(|| {
        let what = format!("{}: {}", model.display(), diagnostic::summary(&made.diagnostics));
        Failure::usage(what).hint(match &args.model {
            Some(model) => format!("`cobgen check {}` reports the same errors", model.display()),
            None => {
                "for a kind of your own, name its model with --model; for a built-in kind, give a content with --content".into()
            }
        })
    })?;
    let bundles = assembled.generation.bundles.values();
    let mut found =
        bundles.flat_map(|b| b.cobs.values().map(move |cob| (b, cob))).filter(|(_, cob)| is_meant(args, cob));
    let (bundle, cob) = found.next().ok_or_else(|| nothing_to_try(args, &model))?;
    if secret::marks(&cob.content).next().is_some() {
        let what = format!("the content of {} has secrets, which a test does not decrypt", cob.id);
        return Err(Failure::usage(what).hint("use a model without secrets"));
    }
    let kind = bundle.kinds.get(&cob.kind).cloned().expect("a bundle has the kinds of its change objects");
    let mut cob = cob.as_ref().clone();
    if let Some(text) = args.content.as_ref().filter(|_| args.model.is_some()) {
        cob.content = content(text, "--content")?;
    }
    Ok((kind, cob, bundle.clone()))
}

/// A kind that is made from a content is named after it: `script.0123…`.
fn is_meant(args: &TestKindArgs, cob: &Cob) -> bool {
    let name = cob.kind.as_str();
    let of_kind = name == args.kind || name.strip_prefix(&args.kind).is_some_and(|rest| rest.starts_with('.'));
    of_kind && args.cob.as_ref().is_none_or(|id| cob.id == *id)
}

fn nothing_to_try(args: &TestKindArgs, model: &Path) -> Failure {
    let model = model.display();
    let (what, hint) = match &args.cob {
        Some(id) => (format!("{model}: {id} is not a change object of the kind {}", args.kind), String::new()),
        None => (
            format!("{model}: no change object is of the kind {}", args.kind),
            format!("add one, as in `cobs: {{n1/try: {{kind: {}}}}}`", args.kind),
        ),
    };
    Failure::usage(what).hint(hint)
}

fn small_model(args: &TestKindArgs, scratch: &Path) -> Result<PathBuf, Failure> {
    let id = args.cob.clone().unwrap_or_else(|| CobId::new("test/cob").expect("well formed"));
    let content: serde_json::Value = match &args.content {
        Some(text) => json_of(text, "--content")?,
        None => serde_json::Value::Null,
    };
    let model = serde_json::json!({
        "security": "loopback-only",
        "hosts": BTreeMap::from([(id.host().to_string(), serde_json::json!({"address": "tcp://127.0.0.1:7077"}))]),
        "cobs": BTreeMap::from([(id.to_string(), serde_json::json!({"kind": args.kind, "content": content}))]),
    });
    let path = scratch.join("model.yaml");
    fs::write(&path, format!("{model:#}\n")).map_err(|e| Failure::environment(at(&path, &e)))?;
    Ok(path)
}

/// Content in the form of bundles.
fn content(text: &str, option: &str) -> Result<String, Failure> {
    json_of(text, option).map(|value| canonical::json(&value))
}

fn json_of(text: &str, option: &str) -> Result<serde_json::Value, Failure> {
    serde_json::from_str(text).map_err(|error| {
        let what = format!("{option} is not JSON: {error}");
        Failure::usage(what).hint(format!("as in {option} '{{\"port\": 80}}'"))
    })
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn show(screen: &mut Screen, report: &Report) -> Result<(), Failure> {
    for trial in &report.trials {
        let (mark, words) = (mark(&trial.verdict), trial.rule.words());
        screen.line(&format!("{} {words}: {}", mark.sign(), trial.about))?;
        match &trial.verdict {
            Verdict::Held => {}
            Verdict::Broken { what, help } => {
                screen.line(&format!("    {}", clean_to(what, LONGEST)))?;
                screen.line(&format!("    help: {help}"))?;
            }
            Verdict::Untried { why } => screen.line(&format!("    not tried: {}", clean_to(why, LONGEST)))?,
        }
    }
    let count = |wanted: Mark| report.trials.iter().filter(|t| mark(&t.verdict).sign() == wanted.sign()).count();
    let (broken, untried) = (count(Mark::Bad), count(Mark::Unknown));
    let left_out = if untried == 0 { String::new() } else { format!(", {untried} could not be tried") };
    let name = format!("{} ({})", report.kind, report.backend);
    screen.line(&if report.holds {
        format!("{name} keeps the contract{left_out}")
    } else {
        format!("{name} breaks the contract in {broken} of {}{left_out}; seed {}", report.trials.len(), report.seed)
    })?;
    Ok(())
}

fn mark(verdict: &Verdict) -> Mark {
    match verdict {
        Verdict::Held => Mark::Good,
        Verdict::Broken { .. } => Mark::Bad,
        Verdict::Untried { .. } => Mark::Unknown,
    }
}
