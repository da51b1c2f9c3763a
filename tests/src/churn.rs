//! Hosts that come and go: daemons restart, and hosts are reinstalled with an empty state folder, or replaced after an
//! operator has fenced them, at random moments. Now and then a change object drifts, or an operator stops, restarts or
//! starts a change object, so that locks are requested again.

use cob_engine::event::Order;
use cob_engine::sim::{Config, Initial, Outcome, Random, World};
use cob_engine::time::Span;
use cob_types::status::Stopped;
use cob_types::{CobId, GenerationNumber, HostName};

use crate::conditions::Conditions;
use crate::runs;
use crate::system::{IN_PROCESS, System};

/// After the last disturbance all change objects converge within this time. Most systems need seconds. A change object
/// that moves for many others in turn counts as flapping, and waits up to a minute before each further transition: of
/// 40,000 systems the slowest needed ten minutes.
const REST: Span = Span::secs(3600);
/// The most messages without effect: a base number, and a number for each dependency.
const TALK: (u64, u64) = (500, 200);

/// Runs a system through a random number of disturbances, and lets it converge.
///
/// # Errors
/// The violated rule, or the change objects that do not converge.
pub fn run(system: &System, config: Config) -> Result<Outcome, String> {
    let bundles = system.bundles();
    let hosts: Vec<HostName> = bundles.keys().cloned().collect();
    let mut random = Random::new(!config.seed);
    let dependencies: usize = system.things.iter().map(|t| t.depended_on().count()).sum();
    let talk = Some(TALK.0 + TALK.1 * dependencies as u64);
    let mut world = World::new(
        &bundles,
        &Initial::Given(system.initial()),
        &[IN_PROCESS],
        runs::traced_if_asked(Config { talk, ..config }),
    );
    world.go(GenerationNumber(1), &bundles);
    for _ in 0..random.between(2, 9) {
        world.run_for(pause(&mut random));
        disturb(&mut world, system, &hosts, &mut random);
    }
    for host in &hosts {
        for cob in stopped_on(&world, host) {
            world.order(host, Order::Start(cob));
        }
    }
    let end = world.now() + REST;
    loop {
        world.run_for(Span::millis(500));
        if world.has_come_to_rest() || world.now() > end || !world.outcome().violations.is_empty() {
            break;
        }
    }
    let outcome = world.outcome().clone();
    runs::show(world.trace());
    runs::converges(system, &outcome).map(|()| outcome)
}

/// Stops or restarts one change object at a time, and only if the system fulfils the conditions of progress also with
/// that change object preferring to be off.
fn stop_or_start(world: &mut World, system: &System, hosts: &[HostName], random: &mut Random) {
    let at = random.below(system.things.len() as u64) as usize;
    let (cob, restart) = (system.id(at), random.permille(500));
    let mut stopped = false;
    for host in hosts {
        for cob in stopped_on(world, host) {
            stopped = true;
            world.order(host, Order::Start(cob));
        }
    }
    let mut as_ordered = system.clone();
    as_ordered.things[at].preferred = system.things[at].pre_remove;
    if !stopped && Conditions::of(&as_ordered).hold() {
        let stopped = Stopped { who: "alice".to_owned(), restart, with: None, until_boot: false };
        world.order(&cob.host(), Order::Stop(cob, stopped));
    }
}

fn stopped_on(world: &World, host: &HostName) -> Vec<CobId> {
    world.engine(host).map(|engine| engine.stopped().into_keys().collect()).unwrap_or_default()
}

/// A pause: long enough to converge, or in the middle of the work.
fn pause(random: &mut Random) -> Span {
    let (low, high) = *random.pick(&[(1, 20), (20, 500), (2_000, 20_000)]);
    Span::millis(random.between(low, high))
}

fn disturb(world: &mut World, system: &System, hosts: &[HostName], random: &mut Random) {
    let host = random.pick(hosts).clone();
    match random.below(6) {
        0 => {
            world.kill(&host);
            world.run_for(pause(random));
            world.revive(&host);
        }
        1 => world.reinstall(&host),
        2 => {
            world.power_off(&host);
            world.run_for(pause(random));
            world.reinstall(&host);
            world.run_for(pause(random));
            world.revive(&host);
        }
        3 => {
            world.power_off(&host);
            for other in hosts.iter().filter(|other| **other != host) {
                world.order(other, Order::Fence(host.clone()));
            }
            world.run_for(pause(random));
            world.reinstall(&host);
            world.revive(&host);
        }
        4 => stop_or_start(world, system, hosts, random),
        // In an idle system no change object relies on the drifting state.
        _ if world.has_come_to_rest() => {
            let thing = random.below(system.things.len() as u64) as usize;
            let state = random.below(system.things[thing].states as u64) as usize;
            if system.things[thing].outdated != Some(state) {
                world.drift(&system.id(thing), &system.state(thing, state));
                // Before its host has noticed, an order could make another change object rely on it.
                world.run_for(Span::secs(1));
            }
        }
        _ => {}
    }
}
