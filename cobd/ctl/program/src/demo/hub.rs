//! `cobctl demo --hub`: a hub on this machine, from nothing to a cluster of five machines, to a larger cluster, to a
//! machine that dies and is replaced, to a deletion.
//!
//! The hub, the jobs, the daemons of the machines and the servers of the shop are real processes; all of them execute
//! this program. Each command is shown before it runs, inside this process. Each printed result was observed.

use std::time::Instant;

use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;

use super::hub_stage::{As, HubStage};
use super::{Signals, done, scene};

/// The machines of the cluster at first, and later.
const NODES: (&str, &str) = ("5", "6");

/// Runs the demo.
pub(crate) async fn run(screen: &mut Screen) -> CommandResult {
    let mut signals = Signals::open().map_err(Failure::environment)?;
    let began = Instant::now();
    let mut stage = HubStage::set()?;
    let played = signals.or(tell(screen, &mut stage)).await;
    match played {
        Ok(Ok(())) => {
            stage.clear()?;
            screen.line("")?;
            let seconds = began.elapsed().as_secs_f64();
            screen.line(&format!("That was the hub, in {seconds:.1} s. No trace is left on this machine."))?;
            Ok(Exit::Yes)
        }
        Ok(Err(failure)) => {
            stage.explain_failure(screen);
            Err(failure)
        }
        Err(signal) => {
            screen.say("interrupted: the demo stops its hub and machines, and deletes its folder");
            stage.clear()?;
            Err(signal)
        }
    }
}

async fn tell(screen: &mut Screen, stage: &mut HubStage) -> Result<(), Failure> {
    scene(screen, "A hub: users, a catalogue, jobs and machines in one program")?;
    let started = Instant::now();
    stage.start_hub(screen).await?;
    done(screen, "the hub answers at its socket, whose owner is its super administrator", started)?;

    scene(screen, "The administrator: a tenant with a quota, a user, a token")?;
    for words in [
        &["hub", "add-tenant", "web", "--machines", "10"][..],
        &["hub", "add-user", "ann", "--tenant", "web"],
        &["hub", "token", "--user", "ann", "--tenant", "web", "--output", "ann.token"],
    ] {
        stage.command(screen, As::Administrator, words).await?;
    }

    scene(screen, "The catalogue: a web shop as three services and a template; each change is checked first")?;
    stage.write_catalogue()?;
    for line in OUTLINE {
        screen.line(&format!("    {line}"))?;
    }
    let shared = ["catalogue", "set-file", "security.yaml", "security.yaml", "--shared"];
    stage.command(screen, As::Administrator, &shared).await?;
    for service in ["db", "app", "lb"] {
        let file = format!("{service}.yaml");
        stage
            .command(screen, As::Administrator, &["catalogue", "set", "service", service, &file, "--tenant", "web"])
            .await?;
    }
    for template in ["wrong", "webshop"] {
        let file = format!("{template}.yaml");
        let words = ["catalogue", "set", "template", template, &file, "--tenant", "web"];
        let told = stage.status(screen, As::Administrator, &words).await?;
        if (told == 0) != (template == "webshop") {
            return Err(Failure::environment(format!("`{}` ended with status {told}", words.join(" "))));
        }
    }

    scene(screen, "The user: first the plan, then the cluster")?;
    stage.become_user(screen)?;
    let create = ["cluster", "create", "shop", "--template", "webshop", "--nodes", NODES.0];
    stage.command(screen, As::User, &[&create[..], &["--plan"]].concat()).await?;
    let started = Instant::now();
    stage.command(screen, As::User, &[&create[..], &["--wait"]].concat()).await?;
    done(screen, "five machines run the shop", started)?;
    stage.command(screen, As::User, &["cluster", "show", "shop"]).await?;
    stage.customer(screen).await?;

    scene(screen, "Expansion: a sixth machine; the load balancer learns of it")?;
    let started = Instant::now();
    stage.command(screen, As::User, &["cluster", "resize", "shop", NODES.1, "--wait"]).await?;
    done(screen, "six machines run the shop", started)?;
    stage.customer(screen).await?;

    scene(screen, "A machine dies, and a new machine takes its place")?;
    let node = stage.kill_machine(screen).await?;
    let started = Instant::now();
    stage.command(screen, As::User, &["cluster", "replace", "shop", &node, "--yes", "--wait"]).await?;
    done(screen, "the shop is whole again", started)?;
    stage.customer(screen).await?;

    scene(screen, "Deletion: services stop in order, then the machines go")?;
    let started = Instant::now();
    stage.command(screen, As::User, &["cluster", "delete", "shop", "--yes", "--wait"]).await?;
    done(screen, "services and machines are gone", started)?;
    stage.command(screen, As::User, &["jobs"]).await?;
    stage.command(screen, As::Administrator, &["hub", "machines", "--orphans"]).await
}

const OUTLINE: [&str; 3] = [
    "db   a database with its price list, on one machine",
    "app  application servers, on the other machines; they need the database",
    "lb   a load balancer, on one machine; it needs all application servers",
];
