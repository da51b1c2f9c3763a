//! `cobctl replay`: a past switch, step by step.

use std::fs;
use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use cob_depot::GenerationName;
use cob_types::GenerationNumber;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

use super::Context;
use super::history::{self, Following};
use crate::failure::{CommandResult, Exit, Failure};
use crate::past::otlp;
use crate::past::replay::{Replay, ReplayStep};
use crate::screen::Screen;
use crate::signals::Ends;
use crate::words::{clean, count, span};

/// Shorter waits are not shown.
const WORTH_NS: u64 = 1_000_000;
/// The end-of-text character, which Ctrl-C sends if it is read as a key.
const CTRL_C: u8 = 3;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// The generation that was switched to; of several switches to it, the last one
    #[arg(value_name = "GENERATION", value_parser = crate::args::generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
    /// Wait between the steps as it was then, so many times as fast
    #[arg(long, value_name = "X", value_parser = speed, conflicts_with = "step")]
    pub speed: Option<f64>,
    /// One step per key: Enter or space continues, `a` shows the rest, `q` quits; the default on a terminal
    #[arg(long)]
    pub step: bool,
    /// Show all entries until each host's next switch
    #[arg(long)]
    pub all: bool,
    /// Write the switch as an OpenTelemetry trace (OTLP, JSON); `-` is the standard output
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["speed", "step", "all"])]
    pub otlp: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    let found = text.trim_end_matches('x').parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
    found.ok_or_else(|| format!("{text:?} is not a speed: write a factor, as in 1, 10 or 0.5"))
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &ReplayArgs) -> CommandResult {
    let generation = context.generation(args.generation)?;
    let (steps, lost) = steps(context, screen, generation, args.all).await?;
    let ended = if lost { Exit::Unreached } else { Exit::Yes };
    if let Some(path) = &args.otlp {
        let trace = otlp::trace(&steps, generation).to_string();
        if path.as_os_str() == "-" {
            screen.line(&trace)?;
        } else {
            fs::write(path, trace).with_context(|| path.display().to_string()).map_err(Failure::environment)?;
            screen.say(&format!("written: {}", path.display()));
        }
        return Ok(ended);
    }
    let keys = Keys::open(args, screen, context.json)?;
    play(context, screen, args, &steps, keys).await?;
    Ok(ended)
}

/// The steps of the last switch to a generation, at least one, and whether a history could not be read.
pub(super) async fn steps(
    context: &Context,
    screen: &mut Screen,
    generation: GenerationNumber,
    all: bool,
) -> Result<(Vec<ReplayStep>, bool), Failure> {
    let mut histories = Following::new(context);
    let replay = loop {
        let mut replay = Replay::of(generation);
        histories.go_on(context, screen, |entry| replay.take(entry)).await?;
        // Hosts that departed with the switch or later: their entries belong to it too.
        if histories.add_hosts_of(context, screen, replay.generations().into_iter()).await?.is_empty() {
            break replay;
        }
        histories.begin_again();
    };
    let lost = histories.lost();
    let steps = replay.steps(all);
    if steps.is_empty() {
        let none = format!("the readable histories contain no switch to generation {generation}");
        return Err(if lost.is_empty() { Failure::refused(none) } else { Failure::environment(none) }
            .hint("`cobctl history` shows their entries; old entries are deleted"));
    }
    Ok((steps, !lost.is_empty()))
}

async fn play(
    context: &Context,
    screen: &mut Screen,
    args: &ReplayArgs,
    steps: &[ReplayStep],
    mut keys: Option<Keys>,
) -> Result<(), Failure> {
    let mut last = steps.first().map_or(0, |s| s.offset_ns);
    for (nth, step) in steps.iter().enumerate() {
        if let Some(speed) = args.speed {
            let wait = Duration::from_nanos(step.offset_ns.saturating_sub(last)).div_f64(speed.max(1e-6));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                gone = screen.abandoned() => return Err(gone.into()),
            }
        }
        last = last.max(step.offset_ns);
        let text = if context.json { serde_json::to_string(step).map_err(Failure::environment)? } else { line(step) };
        screen.line(&text)?;
        if nth + 1 < steps.len()
            && let Some(open) = &mut keys
        {
            match open.next().await? {
                Key::Next => {}
                Key::All => keys = None,
                Key::Quit => return Ok(()),
            }
        }
    }
    if !context.json {
        let length = span(steps.iter().map(|s| s.offset_ns).max().unwrap_or_default());
        screen.line(&format!("{} in {length}", count(steps.len(), "step")))?;
    }
    Ok(())
}

/// A step for people.
fn line(step: &ReplayStep) -> String {
    let entry = &step.entry;
    let (seconds, ms) = (step.offset_ns / 1_000_000_000, step.offset_ns / 1_000_000 % 1000);
    let mut text = format!("+{seconds:>5}.{ms:03}  {}", history::what(entry));
    let worth = step.waited.iter().filter(|w| w.ns >= WORTH_NS);
    let waited: Vec<_> = worth.map(|w| format!("{} for {}", span(w.ns), w.of)).collect();
    if !waited.is_empty() {
        text.push_str(&format!("  after {}", clean(&waited.join(", "))));
    }
    text
}

/// The meaning of a key.
enum Key {
    Next,
    All,
    Quit,
}

/// Reads the keyboard key by key; restores the terminal when dropped.
struct Keys {
    before: Termios,
    ends: Ends,
}

impl Keys {
    /// `None` without a terminal, or with `--speed`.
    fn open(args: &ReplayArgs, screen: &Screen, json: bool) -> Result<Option<Self>, Failure> {
        let terminal = std::io::stdin().is_terminal() && screen.is_live();
        if args.speed.is_some() || !terminal || (json && !args.step) {
            if args.step && !terminal {
                return Err(
                    Failure::usage("--step needs a terminal for its keys").hint("without --step, each step is a line")
                );
            }
            return Ok(None);
        }
        let (before, ends) = (tcgetattr(std::io::stdin()).map_err(std::io::Error::from)?, Ends::open()?);
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &keys).map_err(std::io::Error::from)?;
        Ok(Some(Self { before, ends }))
    }

    /// Waits for a key with a meaning.
    async fn next(&mut self) -> Result<Key, Failure> {
        loop {
            let key = tokio::select! {
                key = key() => key?,
                failure = self.ends.next() => return Err(failure),
            };
            match key {
                None => return Ok(Key::Quit),
                Some(b'\n' | b'\r' | b' ') => return Ok(Key::Next),
                Some(b'a') => return Ok(Key::All),
                Some(b'q' | CTRL_C) => return Ok(Key::Quit),
                Some(_) => {}
            }
        }
    }
}

/// Waits for the next key; `None`: the input has ended. A read can't be interrupted: it runs on a thread, which may
/// remain until the program ends.
async fn key() -> std::io::Result<Option<u8>> {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let mut key = [0];
        let read = loop {
            match std::io::stdin().read(&mut key) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        // Without a receiver a signal has ended the program.
        let _ = tell.send(read.map(|read| (read > 0).then_some(key[0])));
    });
    told.await.unwrap_or(Ok(None))
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
