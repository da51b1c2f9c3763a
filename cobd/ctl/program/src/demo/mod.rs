//! `cobctl demo`: a cluster of three daemons on this machine, from a model to running servers, to a changed
//! configuration and a rollback, until all is removed.
//!
//! The demo is real: it runs the generator and the commands that an operator would type (each is shown before it runs,
//! inside this process), the daemons are separate processes that execute this program, and the servers of the web shop
//! are real too. Each printed result was observed.

pub(crate) mod hub;
mod hub_stage;
pub(crate) mod stage;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cob_types::status::{Phase, Wait};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::webshop::{self, Version};
use cobctl::args::DemoArgs;
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::{Paint, Screen};
use cobctl::signals::Ends;
use stage::Stage;

/// How long the demo waits for a step that should take a second.
const PATIENCE: &str = "60s";

/// Runs the demo.
pub(crate) async fn run(screen: &mut Screen, args: &DemoArgs) -> CommandResult {
    let mut signals = Signals::open().map_err(Failure::environment)?;
    let mut stage = Stage::set(args.keep.clone())?;
    let began = Instant::now();
    let played = signals.or(play(screen, &mut stage, args.keep.is_some())).await;
    match played {
        Ok(Ok(())) if args.keep.is_some() => {
            stage.leave_standing();
            how_to_look(screen, &stage)?;
            Ok(Exit::Yes)
        }
        Ok(Ok(())) => {
            let seconds = began.elapsed().as_secs_f64();
            screen.line("")?;
            screen.line(&format!("That was COB, in {seconds:.1} s. No trace is left on this machine."))?;
            Ok(Exit::Yes)
        }
        Ok(Err(failure)) => {
            stage.explain_failure(screen);
            Err(failure)
        }
        Err(signal) => {
            screen.say("interrupted: the demo stops its daemons and servers, and deletes its folder");
            stage.stop_daemons();
            stage.clear()?;
            Err(signal)
        }
    }
}

/// The signals that end a demo. Once this value exists, no signal ends this program by itself: the processes of the demo
/// would continue without it.
struct Signals {
    ends: Ends,
    interrupt: Signal,
}

impl Signals {
    fn open() -> io::Result<Self> {
        Ok(Self { ends: Ends::open()?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The result of the work; or the failure of a signal that comes first.
    async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            // The commands of the demo also receive the interrupt, and would treat it as their own end.
            biased;
            _ = self.interrupt.recv() => Err(Failure::ended_by(SignalKind::interrupt())),
            signal = self.ends.next() => Err(signal),
            done = work => Ok(done),
        }
    }
}

async fn play(screen: &mut Screen, stage: &mut Stage, keep: bool) -> Result<(), Failure> {
    tell(screen, stage).await?;
    if keep { Ok(()) } else { take_away(screen, stage).await }
}

async fn tell(screen: &mut Screen, stage: &mut Stage) -> Result<(), Failure> {
    scene(screen, "A data model: a database, two application servers, a load balancer, on three hosts")?;
    let model = stage.write_model(Version::First)?;
    for line in outline() {
        screen.line(&format!("    {line}"))?;
    }
    stage.generator(screen, &["check", &model])?;

    scene(
        screen,
        "A generation from the model: a bundle of change objects for each host, verified before publication",
    )?;
    let depot = stage.depot();
    stage.generator(screen, &["generate", &model, "--depot", &depot, "--message", "the first web shop"])?;

    scene(screen, "Three daemons, each with its own process and state folder")?;
    let started = Instant::now();
    stage.start_daemons().await?;
    done(screen, "n1, n2 and n3 are up", started)?;

    scene(screen, "The switch: each host gets an order; then the change objects agree among themselves")?;
    stage.show(screen, &["switch", "1"])?;
    stage.order(&["switch", "1"]).await?;
    if let Some(cob) = stage.somebody_who_waits().await {
        screen.line("")?;
        screen.line("  Why does it wait? Each wait can be explained, down to the first cause:")?;
        stage.command(screen, &["explain", &cob]).await?;
    }
    let started = Instant::now();
    stage.command(screen, &["switch", "1", "--wait", PATIENCE]).await?;
    done(screen, "all servers run", started)?;
    stage.customer(screen, Version::First)?;
    stage.command(screen, &["status"]).await?;

    scene(screen, "The price changes: a single line in the configuration of the database")?;
    let model = stage.write_model(Version::Second)?;
    stage.generator(screen, &["generate", &model, "--depot", &depot, "--message", "another price"])?;
    let started = Instant::now();
    stage.command(screen, &["switch", "2", "--wait", PATIENCE]).await?;
    done(screen, "the change is complete", started)?;
    screen.line("  The history, on three hosts and without a central controller:")?;
    stage.what_happened(screen, 2).await?;
    stage.customer(screen, Version::Second)?;

    scene(screen, "And back: the first content again, as a new generation (generations never change)")?;
    let model = stage.write_model(Version::First)?;
    stage.generator(screen, &["generate", &model, "--depot", &depot, "--message", "the old price again"])?;
    let started = Instant::now();
    stage.command(screen, &["switch", "3", "--wait", PATIENCE]).await?;
    done(screen, "the old price is back", started)?;
    stage.customer(screen, Version::First)?;
    Ok(())
}

async fn take_away(screen: &mut Screen, stage: &mut Stage) -> Result<(), Failure> {
    scene(screen, "Removal: a generation without the shop; all change objects depart in order")?;
    let model = stage.write_empty_model()?;
    let depot = stage.depot();
    stage.generator(screen, &["generate", &model, "--depot", &depot, "--message", "closed"])?;
    let started = Instant::now();
    stage.command(screen, &["switch", "4", "--wait", PATIENCE]).await?;
    stage.what_happened(screen, 4).await?;
    stage.stop_daemons();
    done(screen, "servers, daemons and folders are gone", started)?;
    stage.clear()
}

fn scene(screen: &mut Screen, title: &str) -> Result<(), Failure> {
    screen.line("")?;
    let title = screen.paint(Paint::Strong, title);
    screen.line(&title)?;
    Ok(())
}

fn done(screen: &mut Screen, what: &str, since: Instant) -> Result<(), Failure> {
    screen.line(&format!("  {what} ({:.2} s)", since.elapsed().as_secs_f64()))?;
    Ok(())
}

fn outline() -> [&'static str; 4] {
    [
        "n1: db/config  a file        n1: db/server   needs its configuration",
        "n2: app/server               n3: app/server  both need the database",
        "n3: lb/server  needs both application servers",
        "each server is a process that fails to start without its dependencies",
    ]
}

fn how_to_look(screen: &mut Screen, stage: &Stage) -> Result<(), Failure> {
    screen.line("")?;
    screen.line("The cluster continues to run. Look at it:")?;
    let depot = stage.depot();
    for words in ["status", "watch", "explain n3/lb/server", "history"] {
        screen.line(&format!("  cobctl --depot {depot} {words}"))?;
    }
    screen.line(&format!("  cobctl {} ask {}", webshop::SUBCOMMAND, stage.shop()))?;
    screen.line("End it, and delete its files:")?;
    screen.line(&format!("  cobctl demo --end {}", stage.folder().display()))?;
    Ok(())
}

/// Removes a cluster that an earlier `demo --keep` left.
pub(crate) fn end(screen: &mut Screen, folder: &Path) -> CommandResult {
    let stage = Stage::found(folder)?;
    stage.clear_all()?;
    screen.line(&format!("The cluster in {} is gone.", folder.display()))?;
    Ok(Exit::Yes)
}

/// Whether a change object waits for a lock, so that `explain` has an answer.
fn is_worth_asking(cob: &cob_types::status::CobStatus) -> bool {
    cob.phase == Phase::Waiting && cob.waits_for.iter().any(|w| matches!(w, Wait::Lock { .. }))
}

/// A command line of this program.
fn line(words: &[&str]) -> Vec<OsString> {
    std::iter::once("cobctl").chain(words.iter().copied()).map(OsString::from).collect()
}

/// The pause between two checks.
const LOOK: Duration = Duration::from_millis(20);
