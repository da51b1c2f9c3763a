//! Hosts that come and go: daemons restart, hosts are set up anew with an empty state folder, or are replaced after an
//! operator has fenced them, at random moments; now and then something drifts, so that locks are asked for again.

use cob_engine::event::Order;
use cob_engine::sim::{Config, Initial, Outcome, Random, World};
use cob_engine::time::Span;
use cob_types::{GenerationNumber, HostName};

use crate::runs;
use crate::system::{IN_PROCESS, System};

/// After the last disturbance everybody comes to rest within this time. Most systems need seconds. A change object that
/// moves for many others in turn counts as one that flaps, and rests up to a minute before each further move: of 40,000
/// systems the slowest needed ten minutes.
const REST: Span = Span::secs(3600);
/// So many messages may be said with nothing coming of them, and so many more for each dependency.
const TALK: (u64, u64) = (500, 200);

/// Runs a system through a random number of disturbances, and lets it come to rest.
///
/// # Errors
/// What was breached, or what does not come to rest.
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

/// Long enough to come to rest, or in the midst of things.
fn pause(random: &mut Random) -> Span {
    let (low, high) = *random.pick(&[(1, 20), (20, 500), (2_000, 20_000)]);
    Span::millis(random.between(low, high))
}

fn disturb(world: &mut World, system: &System, hosts: &[HostName], random: &mut Random) {
    let host = random.pick(hosts).clone();
    match random.below(5) {
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
        // Where nothing moves nobody relies on what drifts.
        _ if world.has_come_to_rest() => {
            let thing = random.below(system.things.len() as u64) as usize;
            let state = random.below(system.things[thing].states as u64) as usize;
            if system.things[thing].outdated != Some(state) {
                world.drift(&system.id(thing), &system.state(thing, state));
            }
        }
        _ => {}
    }
}
