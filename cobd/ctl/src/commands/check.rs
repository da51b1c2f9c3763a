//! `cobctl check`: makes daemons check their change objects now, and shows the results.
//!
//! A daemon answers within a second, with the results so far; it is asked again until the round of checks has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_types::api::order;
use cob_types::check_round::CheckRound;
use cob_types::{CobId, GenerationNumber, HostName};
use tokio::time::{Instant, MissedTickBehavior};

use super::Context;
use super::orders::{Answer, Answers};
use crate::args::{CheckArgs, Which};
use crate::client::{AskError, Client};
use crate::failure::{CommandResult, Exit};
use crate::gather::each;
use crate::identity;
use crate::screen::{Paint, Screen};
use crate::targets::Target;
use crate::words::{clean, count, list};

/// How long a daemon may take to start a round.
const BEGIN: Duration = Duration::from_secs(60);
/// The interval between progress lines.
const TOLD: Duration = Duration::from_secs(1);

/// The answer of a host; an answer under an unexpected name does not count.
fn answer(target: &Target, told: Result<CheckRound, AskError>) -> Answer<CheckRound> {
    match told {
        Ok(round) => match target.is_answered_by(&round.host) {
            Ok(()) => Answer { name: round.host.clone(), ..Answer::new(target, Ok(round)) },
            Err(error) => Answer::unreached(target.stand_in(), error, String::new()),
        },
        Err(error) => Answer::new(target, Err(error)),
    }
}

fn is_well(answer: &Answer<CheckRound>) -> bool {
    answer.done.as_ref().is_some_and(CheckRound::is_well)
}

/// The progress of all rounds together.
#[derive(Debug, Default)]
struct Progress {
    asked: AtomicU64,
    looked: AtomicU64,
    /// The hosts that should have started by now.
    late: Mutex<BTreeSet<HostName>>,
}

impl Progress {
    fn late(&self) -> MutexGuard<'_, BTreeSet<HostName>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &CheckArgs) -> CommandResult {
    let hosts: Vec<_> = args.only.iter().map(Which::host).collect();
    let targets = context.only(&hosts).await?;
    let wanted = Arc::new(wanted(&args.only));
    let (until, progress) = (Instant::now() + args.wait, Arc::<Progress>::default());
    let rounds = each(&context.client, &targets, |client, target| {
        let (wanted, progress) = (Arc::clone(&wanted), Arc::clone(&progress));
        async move { round(&client, &target, &wanted, until, &progress).await }
    });
    let answers = with_progress(screen, rounds, &progress).await;
    let mut answers = Answers { hosts: answers.into_iter().map(|(target, told)| answer(&target, told)).collect() };
    for answer in answers.hosts.iter_mut().filter(|answer| answer.reachable && answer.error.is_some()) {
        for cob in wanted.get(&answer.name).into_iter().flatten() {
            if let Some(unknown) = context.unknown(cob).await {
                answer.hint = unknown.hints().join("; ");
            }
        }
    }
    if context.json {
        screen.json(&answers)?;
    } else {
        for answer in &answers.hosts {
            tell(screen, answer)?;
        }
    }
    let fits = identity::tell(&context.client, &context.targets, &targets, screen).await?;
    let hosts = &answers.hosts;
    Ok(if hosts.iter().any(|host| !host.reachable) {
        Exit::Unreached
    } else if fits && hosts.iter().all(is_well) {
        Exit::Yes
    } else {
        Exit::No
    })
}

/// The named change objects of each host that is not named itself.
fn wanted(only: &[Which]) -> BTreeMap<HostName, Vec<CobId>> {
    let mut wanted: BTreeMap<HostName, Vec<CobId>> = BTreeMap::new();
    for which in only {
        if let Which::Cob(cob) = which {
            wanted.entry(cob.host()).or_default().push(cob.clone());
        }
    }
    wanted.retain(|host, _| !only.contains(&Which::Host(host.clone())));
    wanted
}

/// A round on a host, until it has ended or the time is over.
async fn round(
    client: &Client,
    target: &Target,
    wanted: &BTreeMap<HostName, Vec<CobId>>,
    until: Instant,
    progress: &Progress,
) -> Result<CheckRound, AskError> {
    let cobs = target.name.as_ref().and_then(|name| wanted.get(name)).cloned().unwrap_or_default();
    let order = order::Check { cobs, who: None };
    let begun = client.order_within(&target.endpoint, &order, client.timeout().max(BEGIN));
    let mut told = not_silently(client, target, progress, begun).await?;
    progress.asked.fetch_add(told.asked, Ordering::Relaxed);
    let mut looked = 0;
    loop {
        progress.looked.fetch_add(told.looked.saturating_sub(looked), Ordering::Relaxed);
        looked = told.looked;
        if told.ended || Instant::now() >= until {
            return Ok(told);
        }
        told = client.get(&target.endpoint, &format!("/v1/check?round={}", told.round)).await?;
    }
}

/// Waits for the start of a round; a host that has not started within the timeout of a query is late.
async fn not_silently(
    client: &Client,
    target: &Target,
    progress: &Progress,
    begun: impl Future<Output = Result<CheckRound, AskError>>,
) -> Result<CheckRound, AskError> {
    tokio::pin!(begun);
    if let Ok(answer) = tokio::time::timeout(client.timeout(), &mut begun).await {
        return answer;
    }
    progress.late().insert(target.stand_in());
    let answer = begun.await;
    progress.late().remove(&target.stand_in());
    answer
}

/// Waits for all rounds; shows progress on a terminal, and late hosts everywhere.
async fn with_progress<T>(screen: &mut Screen, rounds: impl Future<Output = T>, progress: &Progress) -> T {
    tokio::pin!(rounds);
    let mut late = BTreeSet::new();
    let mut ticks = tokio::time::interval_at(Instant::now() + TOLD, TOLD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = false;
    loop {
        tokio::select! {
            answers = &mut rounds => {
                if told {
                    screen.say_over("");
                }
                return answers;
            }
            _ = ticks.tick() => {
                let now_late = progress.late().clone();
                if !now_late.is_subset(&late) {
                    let silent: Vec<_> = now_late.iter().collect();
                    if told {
                        screen.say_over("");
                    }
                    screen.say(&format!("waiting for {}: no answer yet", list(&silent, 6)));
                    late = now_late;
                }
                if !screen.is_err_live() {
                    continue;
                }
                told = true;
                let (looked, asked) = (&progress.looked, &progress.asked);
                let (looked, asked) = (looked.load(Ordering::Relaxed), asked.load(Ordering::Relaxed));
                screen.say_over(&format!("{looked} of {} checked", count(asked, "change object")));
            }
        }
    }
}

fn tell(screen: &mut Screen, answer: &Answer<CheckRound>) -> std::io::Result<()> {
    let name = &answer.name;
    let Some(round) = &answer.done else {
        answer.say_error(screen);
        return Ok(());
    };
    let (paint, words) = in_words(round);
    screen.line(&format!("{name}: {}", screen.paint(paint, &words)))?;
    for differing in &round.differing {
        let (cob, found, wanted) = (&differing.cob, &differing.found, &differing.wanted);
        let state = if found == wanted { found.to_string() } else { format!("{found}, should be {wanted}") };
        let detail = clean(&differing.detail);
        screen.line(&format!("  {cob}: {state}{}{detail}", if detail.is_empty() { "" } else { ": " }))?;
    }
    for unknown in &round.unknown {
        screen.line(&format!("  {}: unknown: {}", unknown.cob, clean(&unknown.why)))?;
    }
    let listed = (round.differing.len() + round.unknown.len()) as u64;
    let more = (round.differ + round.not_known).saturating_sub(listed);
    if more > 0 {
        screen.line(&format!("  {more} more"))?;
    }
    Ok(())
}

/// The state of a round in a line.
fn in_words(round: &CheckRound) -> (Paint, String) {
    if round.generation == GenerationNumber(0) {
        return (Paint::Bad, "no generation yet, so no desired states".to_owned());
    }
    let mut words = format!("{} checked", count(round.looked, "change object"));
    if round.is_well() {
        words.push_str(if round.asked == 1 { ", in its desired state" } else { ", all in their desired states" });
        return (Paint::Good, words);
    }
    let late = round.asked.saturating_sub(round.looked + round.moving);
    for (number, what) in [
        (round.differ, "not in the desired state"),
        (round.not_known, "unknown"),
        (round.moving, "in a transition"),
        (late, "not checked in time"),
    ] {
        if number > 0 {
            words.push_str(&format!(", {number} {what}"));
        }
    }
    (Paint::Bad, words)
}

#[cfg(test)]
mod tests {
    use cob_types::StateName;
    use cob_types::check_round::{Differing, Unknown};

    use super::*;

    fn round(asked: u64, looked: u64, as_wanted: u64, moving: u64) -> CheckRound {
        let host = HostName::new("n1").expect("a name");
        let (ended, differ) = (asked == looked + moving, looked - as_wanted);
        CheckRound { asked, looked, as_wanted, differ, moving, ended, ..CheckRound::new(host, 1, GenerationNumber(3)) }
    }

    #[test]
    fn a_check_reports_how_many_change_objects_are_as_desired() {
        let words = |round: &CheckRound| in_words(round).1;
        assert_eq!(words(&round(2, 2, 2, 0)), "2 change objects checked, all in their desired states");
        assert_eq!(words(&round(1, 1, 1, 0)), "1 change object checked, in its desired state");
        assert_eq!(words(&round(3, 3, 2, 0)), "3 change objects checked, 1 not in the desired state");
        assert_eq!(words(&round(3, 2, 2, 1)), "2 change objects checked, 1 in a transition");
        assert_eq!(words(&round(3, 1, 1, 0)), "1 change object checked, 2 not checked in time");
        let none = CheckRound { generation: GenerationNumber(0), ended: true, ..round(0, 0, 0, 0) };
        assert_eq!(words(&none), "no generation yet, so no desired states");
        assert!(!none.is_well());
    }

    #[test]
    fn a_check_names_the_change_objects_that_differ() {
        let (mut screen, written) = Screen::memory();
        let cob = |name: &str| CobId::new(&format!("n1/{name}")).expect("an id");
        let state = |name: &str| StateName::new(name).expect("a state");
        let mut told = CheckRound { differ: 1, not_known: 1, ..round(3, 3, 1, 0) };
        let detail = "2 lines\u{1b}[2J".to_owned();
        told.differing = vec![Differing { cob: cob("a"), found: state("off"), wanted: state("on"), detail }];
        told.unknown = vec![Unknown { cob: cob("b"), why: "exit status 7".to_owned() }];
        let target = Target { name: None, endpoint: "unix:/x".parse().expect("an address") };
        tell(&mut screen, &answer(&target, Ok(told))).expect("written");
        assert_eq!(
            written.out(),
            "n1: 3 change objects checked, 1 not in the desired state, 1 unknown\n  \
             n1/a: off, should be on: 2 lines\\u{1b}[2J\n  n1/b: unknown: exit status 7\n"
        );
    }

    #[test]
    fn a_check_of_a_whole_host_is_not_narrowed_to_named_change_objects() {
        let only: Vec<Which> = ["n1/a", "n2/b", "n1", "n2/c"].iter().map(|w| w.parse().expect("a name")).collect();
        let wanted = wanted(&only);
        let told: Vec<String> = wanted.iter().map(|(host, cobs)| format!("{host}: {}", cobs.len())).collect();
        assert_eq!(told, ["n2: 2"]);
    }
}
