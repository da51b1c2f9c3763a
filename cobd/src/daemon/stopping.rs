//! Stop, start and restart of change objects by an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use cob_engine::record::OrderRecord;
use cob_engine::{Event, Order, Stops};
use cob_types::api::{Done, order};
use cob_types::status::{CobStatus, Stopped};
use cob_types::words::{count, foreign};
use cob_types::{CobId, Kind};

use tracing::{error, info};

use super::{Daemon, Reply};
use crate::web::{Refusal, RefusalKind};

/// How long the command of a reboot may run before it counts as accepted: `systemctl reboot` returns at once, other
/// commands end with the machine.
const REBOOT: Duration = Duration::from_secs(5);
/// So many bytes of its last words are shown.
const LAST_WORDS: usize = 400;

/// Runs the command that reboots the machine.
async fn reboot_with(command: &str) -> Result<(), String> {
    let run = tokio::process::Command::new("/bin/sh").arg("-c").arg(command).stdin(Stdio::null()).output();
    match tokio::time::timeout(REBOOT, run).await {
        Err(_) => Ok(()),
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let last = output.stderr.len().saturating_sub(LAST_WORDS);
            let words = String::from_utf8_lossy(&output.stderr[last..]).trim().to_owned();
            Err(format!("{}: {}", output.status, foreign(&words, LAST_WORDS)))
        }
        Ok(Err(error)) => Err(error.to_string()),
    }
}

/// The most refused change objects that an answer names.
const NAMED: usize = 8;

impl Daemon {
    /// Stops all of these change objects, or refuses the order.
    pub(super) fn stop(&mut self, order: order::Stop, who: &str, reply: Reply) {
        let order::Stop { cobs, restart, until_boot, .. } = order;
        // Each change object once: with the last of what was said of it.
        let cobs: BTreeMap<CobId, Option<CobId>> = cobs.into_iter().map(|one| (one.cob, one.with)).collect();
        if cobs.is_empty() {
            self.refuse_empty(reply);
            return;
        }
        let stopped = self.engine.stopped();
        let is_stopped = |cob: &CobId| stopped.get(cob).filter(|was| restart && !was.restart);
        let in_the_way = |cob: &CobId| is_stopped(cob).map(|was| format!("{cob} is {}", was.in_words()));
        let refused = |cob: &CobId| self.cannot_stop(cob).or_else(|| in_the_way(cob));
        let refused: Vec<String> = cobs.keys().filter_map(refused).collect();
        if !refused.is_empty() {
            self.refuse_all(
                reply,
                &refused,
                "no change object was stopped on this host; leave out the named change objects",
            );
            return;
        }
        let mut news = 0;
        for (cob, with) in cobs {
            let order = Stopped { who: who.to_owned(), restart, with, until_boot };
            // A change object that was stopped on its own does not start with its dependency, nor after the next boot.
            let stands = stopped.get(&cob).is_some_and(|was| {
                let own = was.with.is_none() && !was.until_boot;
                was.restart == restart && (own || until_boot || *was == order)
            });
            if !stands {
                news += 1;
                self.feed_ordered(Event::Order(Order::Stop(cob, order)), who);
            }
        }
        let what = if restart { "restarted" } else { "stopped" };
        let detail = if news == 0 {
            format!("{what} already")
        } else {
            format!("{} to be {what}", count(news, "change object"))
        };
        self.done(reply, news > 0, detail);
    }

    fn refuse_empty(&mut self, reply: Reply) {
        let (error, hint) = ("the order names no change object", "name at least one change object");
        self.refuse(reply, RefusalKind::Invalid, error, hint);
    }

    /// Starts all of these stopped change objects, or refuses the order.
    pub(super) fn start_again(&mut self, cobs: Vec<CobId>, who: &str, reply: Reply) {
        if cobs.is_empty() {
            self.refuse_empty(reply);
            return;
        }
        let unknown = |cob: &&CobId| self.engine.stops(cob).is_none();
        let refused: Vec<String> = cobs.iter().filter(unknown).map(|cob| format!("{cob} is not here")).collect();
        if !refused.is_empty() {
            self.refuse_all(
                reply,
                &refused,
                "no change object was started on this host; `cobctl status` lists the change objects",
            );
            return;
        }
        let stopped = self.engine.stopped();
        let meant: BTreeSet<CobId> = cobs.into_iter().filter(|cob| stopped.contains_key(cob)).collect();
        let news = meant.len();
        for cob in meant {
            self.feed_ordered(Event::Order(Order::Start(cob)), who);
        }
        let detail = if news == 0 {
            "no change object was stopped".to_owned()
        } else {
            format!("{} to be started", count(news, "change object"))
        };
        self.done(reply, news > 0, detail);
    }

    /// Reboots this host, if operators have stopped all running change objects until then.
    pub(super) fn reboot(&mut self, who: &str, reply: Reply) {
        let now = self.clock.now();
        let by_model = |cob: &CobStatus| {
            let kind = self.present.kind_of(&cob.id);
            kind.is_some_and(|kind| kind.stopped() == Some(&cob.preferred))
        };
        let is_stopped =
            |cob: &CobStatus| cob.state.as_ref() == Some(&cob.preferred) && (cob.stopped.is_some() || by_model(cob));
        let bundle = self.present.bundle();
        let running = bundle.into_iter().flat_map(|bundle| bundle.iter_of(Kind::runs)).filter(|cob| !cob.observe);
        let left: Vec<String> = running
            .filter(|cob| !self.engine.status_of(&cob.id, now).is_some_and(|cob| is_stopped(&cob)))
            .map(|cob| cob.id.to_string())
            .collect();
        if !left.is_empty() {
            let what = format!("these still run: {}", left.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "));
            self.refuse(
                reply,
                RefusalKind::Conflict,
                &what,
                "`cobctl drain HOST --reboot` stops these change objects first",
            );
            return;
        }
        info!(%who, at = now.0, "the host is rebooted by order");
        self.note_order(OrderRecord::Reboot, Some(who.to_owned()));
        let command = self.config.reboot.clone();
        // After the records of this tick are durable.
        self.turn.beside.push(Box::pin(async move {
            let answer = match reboot_with(&command).await {
                Ok(()) => Ok(Done::new(true, "rebooting".to_owned())),
                Err(why) => {
                    error!(%command, %why, "the reboot failed");
                    let what = format!("the reboot failed: `{command}`: {why}");
                    Err(Refusal::new(RefusalKind::Conflict, &what, "`reboot` in cobd.toml names the command"))
                }
            };
            // The caller may be gone.
            let _ = reply.send(answer);
        }));
    }

    fn cannot_stop(&self, cob: &CobId) -> Option<String> {
        match self.engine.stops(cob) {
            Some(Stops::Yes) => None,
            Some(Stops::HasNothingToStop) => Some(format!("{cob} can't be stopped: its kind has no stopped state")),
            Some(Stops::IsObserved) => Some(format!("{cob} is only observed (`mode: observe`)")),
            Some(Stops::Leaves) => Some(format!("{cob} departs with the present switch")),
            None => Some(format!("{cob} is not here")),
        }
    }

    fn refuse_all(&mut self, reply: Reply, why: &[String], hint: &str) {
        let mut words = why.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
        if why.len() > NAMED {
            words.push_str(&format!("; and {} more", why.len() - NAMED));
        }
        self.refuse(reply, RefusalKind::Invalid, &words, hint);
    }
}
