//! The commands of a transcript.
//!
//! ```text
//! system                    the lines below it are generation 1; the switch is ordered on all hosts
//! generation                the lines below it are the next generation; the switch is ordered on all hosts
//! back [HOST]               the rollback to the previous generation is ordered on all hosts, or on this host
//! show WORD...              of: actions (default), messages, probes, hellos, nothing
//! run                       until all change objects have converged and no event is under way
//! run for 30 s | 20 ms      for this time
//! run until TEXT            until a line with this text would be printed
//! fail COB N                its next N actions fail
//! slow COB 300 ms           its actions take this long from now on
//! drift COB STATE           a check finds it in another state
//! reinstall HOST            the host is reinstalled, with an empty state folder
//! kill HOST, power-off HOST its daemon dies; with power-off its actions, too; then `revive HOST`
//! hold A B                  messages from A to B are held back; then `deliver A B` or `lose A B`
//! order HOST pause | resume | retry COB | fence HOST | declare-final COB
//! status                    a line for each change object, and for each host that waits to activate
//! expect ...                must hold, or the test fails: see [`Play::expect`]
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cob_engine::Order;
use cob_engine::sim::{Config, Initial, Scene, World};
use cob_engine::time::Span;
use cob_types::status::{CobStatus, Phase, Trouble, Wait};
use cob_types::{CobId, GenerationNumber, HostName, StateName};

use super::notation;
use crate::conditions::Conditions;
use crate::switching;
use crate::system::{IN_PROCESS, System};

/// The longest time that `run until` waits.
const PATIENCE: Span = Span::secs(3600);

/// The state of a transcript.
#[derive(Default)]
pub struct Play {
    world: Option<World>,
    system: System,
    /// The previous generation.
    before: System,
    generation: u64,
    shown: BTreeSet<String>,
    /// How much of the trace was printed.
    printed: usize,
    /// How many actions had started when the last `expect actions` counted them.
    counted: usize,
}

impl Play {
    /// Runs a command and returns its output.
    ///
    /// # Errors
    /// If the command is unknown, an expectation is not met, or a rule is violated.
    pub fn command(&mut self, command: &str, body: &[String]) -> Result<String, String> {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        let mut extra = String::new();
        match word {
            "system" => extra = self.start(notation::parse(body)?),
            "generation" => extra = self.next(notation::parse(body)?)?,
            "back" => self.back(rest)?,
            "show" => self.shown = rest.split_whitespace().map(str::to_owned).collect(),
            "run" => extra = self.run(rest)?,
            "fail" => {
                let (cob, times) = two_words(rest)?;
                let (cob, times) = (self.cob(cob)?, times.parse().map_err(|_| "not a number")?);
                self.world()?.fail(&cob, times);
            }
            "slow" => {
                let (cob, span) = two_words(rest)?;
                let (cob, span) = (self.cob(cob)?, read_span(span)?);
                self.world()?.let_last(&cob, span);
            }
            "drift" => {
                let (cob, state) = two_words(rest)?;
                let (cob, state) = (self.cob(cob)?, StateName::new(state).map_err(|e| e.to_string())?);
                self.world()?.drift(&cob, &state);
            }
            "kill" => self.world()?.kill(&read_host(rest)?),
            "reinstall" => self.world()?.reinstall(&read_host(rest)?),
            "power-off" => self.world()?.power_off(&read_host(rest)?),
            "revive" => self.world()?.revive(&read_host(rest)?),
            "hold" | "deliver" | "lose" => {
                let (from, to) = two_words(rest)?;
                let (from, to) = (read_host(from)?, read_host(to)?);
                let link: fn(&mut World, &HostName, &HostName) = match word {
                    "hold" => World::hold,
                    "deliver" => World::deliver,
                    _ => World::lose,
                };
                link(self.world()?, &from, &to);
            }
            "order" => {
                let (host, order) = two_words(rest)?;
                let (host, order) = (read_host(host)?, read_order(order)?);
                self.world()?.order(&host, order);
            }
            "status" => extra = self.status()?,
            "expect" => self.expect(rest)?,
            _ => return Err("no such command".to_owned()),
        }
        let violations = self.world()?.outcome().violations.join("; ");
        if !violations.is_empty() {
            return Err(violations);
        }
        Ok(self.new_lines() + &extra)
    }

    /// `HOST at N`: it has this generation; `converged` and `not converged`; `within P1-P4` and `fails P3` …; `COB in
    /// STATE`; `actions N`, or `actions COB FROM>TO …`: exactly these since the last line with `actions`, in this
    /// order; `stuck COB`, `chase COB`, `flap COB`, `no-route COB`, `failed COB`: its status reports this.
    fn expect(&mut self, what: &str) -> Result<(), String> {
        let words: Vec<&str> = what.split_whitespace().collect();
        match words.as_slice() {
            ["converged"] => self.met(self.converged()?, "somebody has not come to rest"),
            ["not", "converged"] => self.met(!self.converged()?, "everybody has come to rest"),
            ["within" | "fails", ..] => {
                let conditions = Conditions::of(&self.system).to_string();
                self.met(conditions == what, &format!("it is {conditions}"))
            }
            [host, "at", number] => {
                let engine = self.world.as_ref().and_then(|w| w.engine(&read_host(host).ok()?));
                let real = engine.map_or(String::new(), |e| e.generation().to_string());
                self.met(real == *number, &format!("it is at {real}"))
            }
            [cob, "in", state] => {
                let cob = self.cob(cob)?;
                let real = self.world()?.state_of(&cob).map_or(String::new(), ToString::to_string);
                self.met(real == *state, &format!("it is in {real}"))
            }
            ["actions", expected @ ..] => self.expect_actions(expected),
            [name, cob] => {
                let cob = self.cob(cob)?;
                let now = self.world()?.now();
                let host = cob.host();
                let engine = self.world()?.engine(&host).ok_or("its daemon is down")?;
                let status = engine.status_of(&cob, now).ok_or("its daemon does not know it")?;
                let named = names_of(&status);
                self.met(named.contains(name), &format!("it is named {named:?}"))
            }
            _ => Err("not understood".to_owned()),
        }
    }

    fn expect_actions(&mut self, expected: &[&str]) -> Result<(), String> {
        let actions = self.world()?.outcome().actions.clone();
        let new = &actions[self.counted..];
        self.counted = actions.len();
        if let [number] = expected
            && let Ok(number) = number.parse::<usize>()
        {
            return self.met(new.len() == number, &format!("there were {}", new.len()));
        }
        let found: Vec<String> = new.iter().flat_map(|a| [a.1.to_string(), format!("{}>{}", a.2, a.3)]).collect();
        self.met(found == expected, &format!("they were: {}", found.join(" ")))
    }

    #[expect(clippy::unused_self, reason = "reads as a sentence where it is used")]
    fn met(&self, is: bool, instead: &str) -> Result<(), String> {
        if is { Ok(()) } else { Err(format!("expectation not met: {instead}")) }
    }

    fn start(&mut self, system: System) -> String {
        let config =
            Config { delay_us: (1000, 1000), check_us: (1000, 1000), action_us: (10_000, 10_000), ..Config::default() };
        let bundles = system.bundles();
        let initial = Initial::Given(system.initial());
        let config = Config { trace: true, ..config };
        let mut world = World::new(&bundles, &initial, &[IN_PROCESS], config);
        world.go(GenerationNumber(1), &bundles);
        let conditions = Conditions::of(&system);
        *self = Self { world: Some(world), system, generation: 1, ..Self::default() };
        format!("{conditions}\n")
    }

    fn next(&mut self, system: System) -> Result<String, String> {
        self.generation += 1;
        let generation = GenerationNumber(self.generation);
        // A host without change objects in the generation receives it, too.
        let bundles = switching::all_bundles(&system, &self.system);
        let order = switching::order((&self.system, generation.0 - 1), (&system, generation.0));
        let order = order.map_err(|circle| format!("there is no order: {circle:?}"))?;
        self.world()?.switch(&order, &bundles, false);
        let conditions = Conditions::of(&system);
        self.before = std::mem::replace(&mut self.system, system);
        Ok(format!("{conditions}\n"))
    }

    /// Orders the rollback on all hosts, or on a single host.
    fn back(&mut self, alone: &str) -> Result<(), String> {
        let order = switching::order((&self.system, self.generation), (&self.before, self.generation - 1));
        let order = order.map_err(|circle| format!("there is no order: {circle:?}"))?;
        let mut bundles = switching::all_bundles(&self.before, &self.system);
        bundles.retain(|host, _| alone.is_empty() || host.as_str() == alone);
        self.world()?.switch(&order, &bundles, true);
        std::mem::swap(&mut self.system, &mut self.before);
        self.generation -= 1;
        Ok(())
    }

    fn run(&mut self, how: &str) -> Result<String, String> {
        if let Some(text) = how.strip_prefix("until ") {
            return self.run_until(text).map(|()| String::new());
        }
        let world = self.world()?;
        match how.strip_prefix("for ") {
            Some(span) => world.run_for(read_span(span)?),
            None if how.is_empty() => {
                world.run();
                world.run_until_quiet(Span::millis(0));
            }
            None => return Err("it must be: run, run for TIME or run until TEXT".to_owned()),
        }
        Ok(if self.converged()? { "converged\n" } else { "not converged\n" }.to_owned())
    }

    fn run_until(&mut self, text: &str) -> Result<(), String> {
        let printed = self.printed;
        let world = self.world()?;
        let end = world.now() + PATIENCE;
        while world.now() < end {
            if world.trace()[printed..].lines().any(|l| l.contains(text)) {
                return Ok(());
            }
            if !world.step() {
                break;
            }
        }
        Err("it did not happen".to_owned())
    }

    fn status(&mut self) -> Result<String, String> {
        let ids_of = |system: &System| (0..system.things.len()).map(|t| system.id(t)).collect::<Vec<_>>();
        let mut ids = ids_of(&self.system);
        let world = self.world.as_ref().ok_or("no system yet")?;
        let known = |id: &CobId| world.engine(&id.host()).is_some_and(|e| e.status_of(id, world.now()).is_some());
        let leaving: Vec<CobId> =
            ids_of(&self.before).into_iter().filter(|id| !ids.contains(id) && known(id)).collect();
        ids.extend(leaving);
        let hosts: BTreeSet<HostName> = ids.iter().map(CobId::host).collect();
        let world = self.world()?;
        let now = world.now();
        let mut text = String::new();
        for id in ids {
            match world.engine(&id.host()).map(|e| e.status_of(&id, now)) {
                Some(Some(status)) => _ = writeln!(text, "{}", status_line(&status)),
                Some(None) => _ = writeln!(text, "{id}: not known"),
                None => _ = writeln!(text, "{id}: its daemon is down"),
            }
        }
        for host in hosts {
            let engine = self.world()?.engine(&host);
            let Some((engine, to)) = engine.and_then(|e| Some((e, e.pending_generation()?))) else { continue };
            let waits = engine.switch_waits();
            let waits: Vec<_> = waits.iter().map(|w| format!("{} (asked {})", w.cob, w.asked)).collect();
            let _ = writeln!(text, "{host} goes to {to}, waits for {}", waits.join(", "));
        }
        Ok(text)
    }

    fn converged(&self) -> Result<bool, String> {
        let world = self.world.as_ref().ok_or("no system yet")?;
        let hosts = (0..self.system.things.len()).map(|t| self.system.id(t).host());
        Ok(hosts.into_iter().all(|h| world.engine(&h).is_some_and(cob_engine::Engine::is_converged)))
    }

    /// The new lines of the trace, as far as they are shown.
    fn new_lines(&mut self) -> String {
        let Some(world) = &self.world else { return String::new() };
        let new = world.trace()[self.printed..].to_owned();
        self.printed = world.trace().len();
        let mut text = String::new();
        for line in new.lines().filter(|l| self.is_shown(l)) {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn is_shown(&self, line: &str) -> bool {
        let shown = |word: &str| self.shown.contains(word);
        let text = line.split_once("us  ").map_or(line, |(_, text)| text);
        let is_message = text.split_once(": ").is_some_and(|(link, _)| link.contains(" -> "));
        if !is_message {
            shown("actions") || self.shown.is_empty()
        } else if text.contains(": probe of ") {
            shown("probes")
        } else if text.contains(": hello") {
            shown("hellos")
        } else {
            shown("messages")
        }
    }

    fn world(&mut self) -> Result<&mut World, String> {
        self.world.as_mut().ok_or_else(|| "no system yet".to_owned())
    }

    fn cob(&self, id: &str) -> Result<CobId, String> {
        let id = CobId::new(id).map_err(|e| e.to_string())?;
        let known = self.world.as_ref().is_some_and(|w| w.state_of(&id).is_some());
        if known { Ok(id) } else { Err(format!("there is no {id}")) }
    }
}

fn two_words(text: &str) -> Result<(&str, &str), String> {
    text.split_once(' ').ok_or_else(|| "it needs two words".to_owned())
}

fn read_host(text: &str) -> Result<HostName, String> {
    HostName::new(text).map_err(|e| e.to_string())
}

fn read_span(text: &str) -> Result<Span, String> {
    let (number, unit) = two_words(text)?;
    let number: u64 = number.parse().map_err(|_| format!("{number} is no number"))?;
    match unit {
        "ms" => Ok(Span::millis(number)),
        "s" => Ok(Span::secs(number)),
        _ => Err(format!("{unit} is neither ms nor s")),
    }
}

fn read_order(text: &str) -> Result<Order, String> {
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["pause"] => Ok(Order::Pause),
        ["resume"] => Ok(Order::Resume),
        ["limit", "none"] => Ok(Order::Limit(None)),
        ["limit", k] => Ok(Order::Limit(Some(k.parse().map_err(|_| format!("{k:?} is no number"))?))),
        ["retry", cob] => Ok(Order::Retry(CobId::new(cob).map_err(|e| e.to_string())?)),
        ["declare-final", cob] => Ok(Order::MarkDeparted(CobId::new(cob).map_err(|e| e.to_string())?)),
        ["fence", host] => Ok(Order::Fence(read_host(host)?)),
        ["let-lapse", hosts @ ..] => {
            Ok(Order::InvalidateGrants(hosts.iter().map(|h| read_host(h)).collect::<Result<_, _>>()?))
        }
        _ => Err("no such order".to_owned()),
    }
}

fn status_line(status: &CobStatus) -> String {
    let CobStatus { id, state, target, phase, failed, retiring, waits_for, trouble, held_by, .. } = status;
    let state = state.as_ref().map_or("unknown", StateName::as_str);
    let mut line = format!("{id} {state}");
    if let Some(target) = target.as_ref().filter(|t| t.as_str() != state) {
        let _ = write!(line, " -> {target}");
    }
    let phase = match phase {
        Phase::Checking => "checking",
        Phase::Moving => "moving",
        Phase::Waiting => "waiting",
        Phase::Settled => "settled",
    };
    let _ = write!(line, ", {phase}");
    let flags = [(*failed, ", failed"), (*retiring, ", retiring")];
    flags.iter().filter(|f| f.0).for_each(|f| line.push_str(f.1));
    for holder in held_by {
        let recalled = if holder.recalled { ", recalled" } else { "" };
        let _ = write!(line, "; {} holds it in {}{recalled}", holder.cob, holder.state);
    }
    waits_for.iter().for_each(|w| _ = write!(line, "; {}", wait_text(w)));
    trouble.iter().for_each(|t| _ = write!(line, "; {}", trouble_text(t)));
    line
}

fn wait_text(wait: &Wait) -> String {
    let join = |states: &[StateName]| states.iter().map(StateName::as_str).collect::<Vec<_>>().join("|");
    match wait {
        Wait::Lock { cob, states, recalled, refused, .. } => {
            let recalled = if *recalled { ", recalled" } else { "" };
            let refused = refused.as_ref().map(|r| format!(", refused: {r}")).unwrap_or_default();
            format!("waits for {cob}@{}{recalled}{refused}", join(states))
        }
        Wait::Token { cob, .. } => format!("waits for a token of {cob}"),
        Wait::Grant { cob, state, .. } => format!("wants {state} back from {cob}"),
        Wait::Retry { attempt, of, .. } => format!("attempt {attempt} of {of} comes"),
        Wait::Failed => "has given up".to_owned(),
        Wait::Paused => "paused".to_owned(),
        Wait::Limit { at_most } => format!("a place, of {at_most}"),
        Wait::Check => "its check runs".to_owned(),
        Wait::Other => "something unknown".to_owned(),
        Wait::Rest { .. } => "rests".to_owned(),
        Wait::NoRoute { to } => format!("no route to {to}"),
        Wait::Leaving => "is leaving".to_owned(),
        Wait::Observed { to } => format!("observed, would go to {to}"),
        Wait::After { cob, .. } => format!("leaves after {cob}"),
    }
}

fn trouble_text(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Stuck { circle, .. } => {
            format!("stuck: {}", circle.iter().map(CobId::as_str).collect::<Vec<_>>().join(" "))
        }
        Trouble::Chase { cob, .. } => format!("chase after {cob}"),
        Trouble::Flap { state, because_of, .. } => {
            let because_of = because_of.as_ref().map(|c| format!(" because of {c}")).unwrap_or_default();
            format!("flap: leaves {state} again and again{because_of}")
        }
        Trouble::Other => "other trouble".to_owned(),
    }
}

/// The words of `expect` for the problems of a change object.
fn names_of(status: &CobStatus) -> BTreeSet<&'static str> {
    let troubles = status.trouble.iter().map(|t| match t {
        Trouble::Stuck { .. } => "stuck",
        Trouble::Chase { .. } => "chase",
        Trouble::Flap { .. } => "flap",
        Trouble::Other => "other",
    });
    let waits = status.waits_for.iter().filter_map(|w| match w {
        Wait::NoRoute { .. } | Wait::Lock { refused: Some(_), .. } => Some("no-route"),
        Wait::Failed => Some("failed"),
        Wait::Lock { .. }
        | Wait::Token { .. }
        | Wait::Grant { .. }
        | Wait::Retry { .. }
        | Wait::Paused
        | Wait::Rest { .. }
        | Wait::Leaving
        | Wait::After { .. }
        | Wait::Observed { .. }
        | Wait::Limit { .. }
        | Wait::Check
        | Wait::Other => None,
    });
    troubles.chain(waits).collect()
}
