//! `cobctl upgrade`: another version of the daemon, host by host, canaries first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cob_types::HostName;

use super::machines::{self, HostResult, Trouble, Work};
use crate::args::{Global, HostAt, UpgradeArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::install::artefact::{Artefact, Form};
use crate::install::facts::Facts;
use crate::install::steps::{self, Step};
use crate::screen::Screen;
use crate::words::{list, span};

/// The pause between two checks of a host that converges.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The settings for all hosts.
#[derive(Debug)]
struct Rollout {
    to: String,
    artefacts: Arc<Vec<Artefact>>,
    settle: Duration,
    unsettled: bool,
}

pub(super) async fn run(global: &Global, screen: &mut Screen, args: &UpgradeArgs) -> CommandResult {
    machines::once(&args.named)?;
    let artefacts = machines::artefacts(&args.artefacts)?;
    for artefact in artefacts.iter() {
        if let Form::Package(_, version) = &artefact.form
            && !is_of(version, &args.to)
        {
            let what = format!("{} has the version {version}, not {}", artefact.path.display(), args.to);
            return Err(Failure::usage(what));
        }
    }
    let order = batches(&args.named, &args.canaries, usize::from(args.batch))?;
    let (settle, unsettled) = (args.settle, args.unsettled);
    let rollout = Arc::new(Rollout { to: args.to.clone(), artefacts, settle, unsettled });
    let mut results: Vec<HostResult> = Vec::new();
    for batch in &order {
        if results.iter().any(|result| !result.is_good()) {
            for host in batch {
                let result = HostResult::untouched(host);
                if !global.json {
                    screen.line(&machines::line(screen, &result))?;
                }
                results.push(result);
            }
            continue;
        }
        let hosts = (batch.as_slice(), args.batch, &args.ssh);
        let ended = machines::each(screen, global.json, hosts, |mut work| {
            let rollout = Arc::clone(&rollout);
            async move {
                let ended = rollout.bring(&mut work).await;
                (work, ended)
            }
        });
        results.extend(ended.await?);
    }
    let exit = machines::conclude(screen, global.json, &results)?;
    if exit != Exit::Yes && !global.json {
        let next = "fix the cause and repeat the command, or downgrade with the older package and its version";
        screen.problem("hint", next);
    }
    Ok(exit)
}

/// Whether a package of this version contains this version of the program: the package's own revision may follow.
fn is_of(package: &str, version: &str) -> bool {
    let package = package.split_once(':').map_or(package, |(_, rest)| rest);
    package.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The batches: each canary alone, then this many hosts at a time.
fn batches(hosts: &[HostAt], canaries: &[HostName], size: usize) -> Result<Vec<Vec<HostAt>>, Failure> {
    let strangers: Vec<_> = canaries.iter().filter(|name| hosts.iter().all(|host| host.name != **name)).collect();
    if !strangers.is_empty() {
        let what = format!("the canary {} is not among the named hosts", list(strangers, 3));
        return Err(Failure::usage(what).hint("name it among the hosts, too"));
    }
    let first = hosts.first().map(|host| host.name.clone());
    let ahead: Vec<&HostName> = if canaries.is_empty() { first.iter().collect() } else { canaries.iter().collect() };
    let (canaries, others): (Vec<&HostAt>, Vec<&HostAt>) = hosts.iter().partition(|host| ahead.contains(&&host.name));
    let alone = canaries.into_iter().map(|host| vec![host.clone()]);
    Ok(alone.chain(others.chunks(size).map(|batch| batch.iter().map(|host| (*host).clone()).collect())).collect())
}

impl Rollout {
    async fn bring(&self, work: &mut Work) -> Result<Facts, Trouble> {
        work.does("connects").await;
        let mut facts = work.machine.look().await?;
        while let Some(step) = steps::upgrade(&facts, &self.artefacts)? {
            if work.did.is_empty() && facts.is_active() && !facts.is_settled() && !self.unsettled {
                return Err(Trouble {
                    what: format!("this host has not converged ({}): not upgraded", facts.status),
                    hint: format!(
                        "`cobctl explain {}` shows the reason; --unsettled upgrades it regardless",
                        work.host.name
                    ),
                    unreachable: false,
                });
            }
            let (does, did) = match step {
                Step::Install(artefact) => ("installs", format!("installed ({artefact})")),
                Step::Restart | Step::Start | Step::Join => ("restarts", "restarted".to_owned()),
            };
            work.makes(does).await?;
            facts = match step {
                Step::Install(artefact) => work.machine.install(artefact, Some(&self.to)).await?,
                Step::Restart | Step::Start | Step::Join => work.machine.restart().await?,
            };
            work.did.push(did);
        }
        self.settled(work, facts).await
    }

    /// Waits until the host has converged, so that the next host may start.
    async fn settled(&self, work: &Work, mut facts: Facts) -> Result<Facts, Trouble> {
        let begin = Instant::now();
        loop {
            if facts.number() != Some(self.to.as_str()) {
                let version = facts.version.unwrap_or_else(|| "nothing".to_owned());
                let what = format!("the installed program reports {version}, not cobd {}", self.to);
                return Err(Trouble { what, hint: String::new(), unreachable: false });
            }
            if facts.is_active() && facts.current && (self.unsettled || facts.is_settled()) {
                return Ok(facts);
            }
            if begin.elapsed() >= self.settle {
                let limit = span(u64::try_from(self.settle.as_nanos()).unwrap_or(u64::MAX));
                let what =
                    format!("the daemon is {}, and has not converged within {limit}: {}", facts.active, facts.status);
                let hint = format!("`cobctl explain {}` shows the first cause", work.host.name);
                return Err(Trouble { what, hint, unreachable: false });
            }
            work.does("settles").await;
            tokio::time::sleep(LOOK_EVERY).await;
            facts = work.machine.look().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_its_own_number_behind_the_version() {
        for (package, fits) in [("0.2.0-1", true), ("1:0.2.0-1", true), ("0.2.0", true), ("0.2.01-1", false)] {
            assert_eq!(is_of(package, "0.2.0"), fits, "{package}");
        }
    }

    #[test]
    fn canaries_upgrade_one_by_one_and_other_hosts_in_batches() {
        let hosts: Vec<HostAt> = ["a", "b", "c", "d", "e"].iter().map(|name| name.parse().expect("a host")).collect();
        let named = |canaries: &[&str]| {
            let canaries: Vec<_> = canaries.iter().map(|name| HostName::new(name).expect("a name")).collect();
            let order = batches(&hosts, &canaries, 2).map_err(|error| error.in_a_line())?;
            let batch = |batch: &Vec<HostAt>| batch.iter().map(|h| h.name.to_string()).collect::<String>();
            Ok::<_, String>(order.iter().map(batch).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(named(&[]).expect("an order"), "a bc de");
        assert_eq!(named(&["d", "b"]).expect("an order"), "b d ac e");
        assert!(named(&["x"]).expect_err("a stranger").contains("the canary x"));
    }
}
