//! `cobgen plan --from N --to M`: the effects of a switch between two generations.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use cob_depot::{Depot, GenerationName};
use cob_types::secret::SecretId;
use cob_types::status::ClusterStatus;
use cob_types::{CobId, Generation, GenerationNumber, StateName};

use super::super::secrets::Keys;
use super::super::{Answer, CommandResult, Stop, Terminal, valid};
use crate::diagnostic::{Diagnostic, render};
use crate::make::{After, make_with};
use crate::model::Sources;
use crate::publish::latest;
use cob_depot::input;
use cob_forecast::NoOrder;
use cob_forecast::{Asked, Forecasted, Sides, Source, durations, forecast, show};

/// The largest file of states, in bytes.
const MAX_STATES: u64 = 256 << 20;
/// The most lines without a match in a warning.
const SHOWN: usize = 3;

/// The options that only a plan of a switch has.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Draw the transitions over time into this file, as SVG
    #[arg(long, value_name = "FILE", conflicts_with = "operation")]
    gantt: Option<PathBuf>,
    /// The states of change objects, from `cobctl status --json` or as {"HOST/NAME": STATE}; objects that it does not
    /// name are in the preferred states of the active generation; `-` is the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "operation")]
    states: Option<PathBuf>,
    /// Simulate the switch so often with random durations, if durations have a spread; fewer times if it is large
    #[arg(long, value_name = "K", default_value_t = 20, hide_default_value = true, conflicts_with = "operation")]
    runs: u64,
    /// The seed of the random durations
    #[arg(long, value_name = "S", default_value_t = 1, hide_default_value = true, conflicts_with = "operation")]
    seed: u64,
    #[command(flatten)]
    keys: Keys,
}

pub(super) fn run(args: &super::PlanArgs, from: GenerationName, terminal: &mut Terminal<'_>) -> CommandResult {
    let Some(path) = args.depot() else {
        return Err(Diagnostic::error("usage", "where are the generations? Name the depot with --depot").into());
    };
    if [&args.durations, &args.switch.states].iter().all(|file| file.as_deref() == Some(Path::new("-"))) {
        return Err(Diagnostic::error("usage", "--durations and --states can't both be the standard input").into());
    }
    let durations = args.durations.as_deref().map(durations::read).transpose();
    let durations = durations.map_err(|error| Diagnostic::error("durations", error))?.unwrap_or_default();
    let states = args.switch.states.as_deref().map(states).transpose();
    let states = states.map_err(|error| Diagnostic::error("states", error))?.unwrap_or_default();
    let asked = Asked { durations, states, runs: args.switch.runs, seed: args.switch.seed, ..Asked::default() };
    let depot = Depot::open(&path)?;
    let from = from.find(&depot)?;
    let wanted = if args.model.is_some() { args.to } else { Some(args.to.unwrap_or(GenerationName::LATEST)) };
    let to = wanted.map(|to| to.find(&depot)).transpose()?;
    let made = match &args.model {
        Some(model) => Some(of_model(args, model, &depot, terminal)?),
        None => None,
    };
    let empty = Generation::nothing();
    let of = |number: GenerationNumber| match number {
        GenerationNumber(0) => Source::Made(&empty),
        number => Source::Depot(&depot, number),
    };
    let to = match (&made, to) {
        (Some((generation, _)), _) => Source::Made(generation),
        (None, to) => of(to.unwrap_or_default()),
    };
    let names = made.as_ref().map(|(_, names)| names.clone()).unwrap_or_default();
    let sides = Sides::open(of(from), to).map_err(NoOrder::Depot);
    let planned = sides.and_then(|sides| forecast(sides.naming(names), asked));
    match planned {
        Ok(planned) => {
            warn("--durations", &planned.unused.durations, terminal)?;
            warn("--states", &planned.unused.states, terminal)?;
            print(args, &planned, terminal)
        }
        Err(NoOrder::Depot(error)) => Err(error.into()),
        Err(NoOrder::Circle(circle)) => {
            let names: Vec<&str> = circle.iter().map(CobId::as_str).collect();
            let what = format!(
                "circular order: each of these must depart before the next, and the last before the first: {}",
                names.join(", ")
            );
            let fault = Diagnostic::error("order", what);
            let help = "remove these objects from the model separately, each in its own generation";
            Err(Stop::Fault(Box::new(fault.help(help)), Answer::No))
        }
    }
}

/// Warns of lines of a file that match no object; names the first of these lines.
fn warn(of: &str, lines: &[String], terminal: &mut Terminal<'_>) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let shown = lines.iter().take(SHOWN).map(|line| format!("`{line}`")).collect::<Vec<_>>().join(", ");
    let more = lines.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = format!("{of}: these lines match no object of either generation, and have no effect: {shown}{more}");
    let warning = Diagnostic::warning("unknown-name", what);
    write!(terminal.err, "{}", render(&[warning], &Sources::default(), terminal.colour))
}

/// The next generation of a model, and the names of its secrets.
fn of_model(
    args: &super::PlanArgs,
    model: &Path,
    depot: &Depot,
    terminal: &mut Terminal<'_>,
) -> Result<(Generation, BTreeMap<SecretId, String>), Stop> {
    let after = After::latest(depot, &latest(depot)?)?;
    let made = make_with(model, &after, Some(&args.switch.keys.reading(model)));
    let assembled = valid(model, made, args.json, terminal)?;
    Ok((assembled.generation, assembled.provenance.secrets))
}

fn states(path: &Path) -> Result<BTreeMap<CobId, StateName>, String> {
    let text = input::read_given(path, MAX_STATES).map_err(|e| format!("can't read {}: {e}", path.display()))?;
    if let Ok(states) = serde_json::from_str(&text) {
        return Ok(states);
    }
    let told = |error| format!("{}: {}", path.display(), cob_types::words::form(error));
    let status: ClusterStatus = serde_json::from_str(&text).map_err(told)?;
    let cobs = status.hosts.into_iter().flat_map(|host| host.cobs);
    Ok(cobs.filter_map(|cob| Some((cob.id, cob.state?))).collect())
}

fn print(args: &super::PlanArgs, planned: &Forecasted, terminal: &mut Terminal<'_>) -> CommandResult {
    let Forecasted { plan, difference, .. } = planned;
    if let Some(file) = &args.switch.gantt
        && let Err(error) = std::fs::write(file, show::to_svg(plan))
    {
        let fault = Diagnostic::error("output", format!("can't write {}: {error}", file.display()));
        return Err(Stop::Fault(Box::new(fault), Answer::NotReached));
    }
    if args.json {
        writeln!(terminal.out, "{}", planned.to_json().map_err(io::Error::other)?)?;
    } else if args.dot {
        write!(terminal.out, "{}", show::to_dot(plan))?;
    } else {
        write!(terminal.out, "{}", show::painted(&show::in_words(plan, difference), terminal.out_colour))?;
    }
    Ok(if plan.forecast.converges { Answer::Done } else { Answer::No })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::super::{Cli, run};
    use super::*;

    fn told(args: &[&str]) -> (u8, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut terminal = Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false };
        let line = ["cobgen", "plan"].iter().chain(args).map(std::ffi::OsString::from);
        let status = run(line.collect(), &mut terminal);
        (status, String::from_utf8_lossy(&out).into_owned() + &String::from_utf8_lossy(&err))
    }

    #[test]
    fn the_two_forms_are_not_mixed() {
        Cli::command().debug_assert();
        for (args, wrong) in [
            (&["--from", "1", "--to", "2", "--operation", "create"][..], "cannot be used with"),
            (&["m.yaml", "--from", "1", "--to", "2"], "cannot be used with"),
            (&["--operation", "create"], "MODEL"),
            (&["--from", "active", "--to", "2"], "a depot does not know the active generation"),
            (&["m.yaml", "--operation", "create", "--gantt", "x"], "cannot be used with"),
            (&["m.yaml"], "--operation"),
        ] {
            let (status, text) = told(args);
            assert!(status == 2 && text.contains(wrong), "{args:?}: {status} {text}");
        }
    }

    #[test]
    fn generations_of_a_depot_and_a_model_are_planned() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let write = |ms: u64| {
            let text = format!(
                "security: loopback-only\nhosts:\n  n1: {{address: \"tcp://127.0.0.1:7301\"}}\n\
                 cobs:\n  n1/a: {{kind: wait, content: {{ms: {ms}}}}}\n"
            );
            std::fs::write(path("model.yaml"), text).expect("written");
        };
        write(100);
        let depot = path("depot");
        crate::publish(Path::new(&path("model.yaml")), Path::new(&depot), "").expect("published");
        let (status, text) = told(&["--from", "0", "--to", "latest", "--depot", &depot]);
        assert!(status == 0 && text.contains("generation 0 -> 1: 1 added"), "{text}");
        assert_eq!(told(&["--from", "0", "--depot", &depot]), (status, text.clone()), "the latest is meant");
        assert!(text.contains("1 transition, about 120 ms"), "a check of 20 ms and the wait itself: {text}");
        write(200);
        let args = [&path("model.yaml"), "--from", "latest", "--depot", &depot, "--json", "--gantt", &path("plan.svg")];
        let (status, text) = told(&args);
        let plan = cob_forecast::SwitchPlan::of_json(&text).expect("a plan");
        assert_eq!((status, plan.from.0, plan.to.0), (0, 1, 2));
        assert!(std::fs::read_to_string(path("plan.svg")).expect("drawn").starts_with("<svg"));
        // Lines about unknown objects are reported; the other lines count.
        std::fs::write(path("moves.yaml"), "n1/a down>up: 4s\nn1/nope down>up: 1s\nn1/a up>sideways: 1s\n\"*\": 1s\n")
            .expect("written");
        std::fs::write(path("states.json"), r#"{"n1/a": "asleep", "n9/b": "up"}"#).expect("written");
        let (from_file, states) = (path("moves.yaml"), path("states.json"));
        let args = ["--from", "0", "--depot", &depot, "--durations", &from_file, "--states", &states];
        let (status, text) = told(&args);
        assert_eq!(status, 0, "{text}");
        for part in [
            "--durations: these lines match no object",
            "`n1/nope down>up`",
            "`n1/a up>sideways`",
            "--states: ",
            "`n9/b up`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("`n1/a asleep`"), "{text}");
        let (status, text) = told(&["--from", "1", "--to", "7", "--depot", &depot]);
        assert!(status == 2 && text.contains('7'), "{text}");
    }

    /// `n1/between` exists from the second generation to the sixth.
    #[test]
    fn a_way_over_many_generations_is_planned_by_the_steps_that_hosts_take() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (model, depot) = (path("model.yaml"), path("depot"));
        for number in 1..=7 {
            let between =
                if (2..=6).contains(&number) { "  n1/between: {kind: wait, content: {ms: 50}}\n" } else { "" };
            let text = format!(
                "security: loopback-only\nhosts:\n  n1: {{address: \"tcp://127.0.0.1:7301\"}}\n\
                 cobs:\n  n1/a: {{kind: wait, content: {{ms: {number}00}}}}\n{between}"
            );
            std::fs::write(&model, text).expect("written");
            crate::publish(Path::new(&model), Path::new(&depot), "").expect("published");
        }
        let of = |from: &str, to: &str| {
            let (status, text) = told(&["--from", from, "--to", to, "--depot", &depot, "--json"]);
            let plan = cob_forecast::SwitchPlan::of_json(&text).unwrap_or_else(|e| panic!("{status} {e}: {text}"));
            (plan.steps.iter().map(|step| step.0).collect::<Vec<_>>(), plan)
        };
        assert_eq!((of("2", "7").0, of("3", "7").0, of("7", "1").0), (vec![6], vec![], vec![]));
        let (steps, plan) = of("1", "7");
        assert_eq!((steps, plan.from.0, plan.to.0), (vec![5], 1, 7));
        let moves = |step: u64| {
            let of_step = plan.transitions.iter().filter(move |t| t.step.is_some_and(|s| s.0 == step));
            of_step.map(|t| format!("{} {}>{}", t.cob, t.from, t.to)).collect::<Vec<_>>()
        };
        assert!(moves(5).contains(&"n1/between down>up".to_owned()), "{:?}", moves(5));
        assert!(moves(7).contains(&"n1/between up>down".to_owned()), "{:?}", moves(7));
        let ends = |step: u64| plan.transitions.iter().filter(move |t| t.step.is_some_and(|s| s.0 == step));
        let (first, second) = (ends(5).map(|t| t.end_us).max(), ends(7).map(|t| t.begin_us).min());
        assert!(first <= second && plan.groups.iter().map(|g| g.to.map(|to| to.0)).eq([Some(5), Some(7)]), "{plan:?}");
        let (_, text) = told(&["--from", "1", "--to", "7", "--depot", &depot]);
        assert!(text.contains("\nin steps through 5: there is no direct switch order from 1 to 7."), "{text}");
        assert!(text.contains("\n  generation 5\n    at once: n1\n  generation 7\n    n1, at "), "{text}");
    }
}
