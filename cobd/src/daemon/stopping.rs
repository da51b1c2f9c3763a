//! Change objects that an operator stops, starts and restarts.

use std::collections::BTreeSet;

use cob_engine::{Event, Order, Stops};
use cob_types::CobId;
use cob_types::status::Stopped;
use cob_types::words::count;

use super::{Daemon, Reply};
use crate::web::{RefusalKind, StopOne};

/// So many refused change objects are named.
const NAMED: usize = 8;

impl Daemon {
    /// All of these are stopped, or none.
    pub(super) fn stop(&mut self, cobs: Vec<StopOne>, restart: bool, who: &str, reply: Reply) {
        let refused: Vec<String> = cobs.iter().filter_map(|one| self.cannot_stop(&one.cob)).collect();
        if !refused.is_empty() {
            self.refuse_all(reply, &refused, "nothing was stopped on this host; name what can be stopped");
            return;
        }
        let stopped = self.engine.stopped();
        let mut news = 0;
        for StopOne { cob, with } in cobs {
            let order = Stopped { who: who.to_owned(), restart, with };
            // What was stopped by itself does not start with the one that it needs.
            let stands =
                stopped.get(&cob).is_some_and(|was| was.restart == restart && (was.with.is_none() || *was == order));
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

    /// All of these are stopped no more, or none.
    pub(super) fn start_again(&mut self, cobs: Vec<CobId>, who: &str, reply: Reply) {
        let unknown = |cob: &&CobId| self.engine.stops(cob).is_none();
        let refused: Vec<String> = cobs.iter().filter(unknown).map(|cob| format!("{cob} is not here")).collect();
        if !refused.is_empty() {
            self.refuse_all(reply, &refused, "nothing was started on this host; `cobctl status` lists what there is");
            return;
        }
        let stopped = self.engine.stopped();
        let meant: BTreeSet<CobId> = cobs.into_iter().filter(|cob| stopped.contains_key(cob)).collect();
        let news = meant.len();
        for cob in meant {
            self.feed_ordered(Event::Order(Order::Start(cob)), who);
        }
        let detail = if news == 0 {
            "none was stopped".to_owned()
        } else {
            format!("{} to be started", count(news, "change object"))
        };
        self.done(reply, news > 0, detail);
    }

    fn cannot_stop(&self, cob: &CobId) -> Option<String> {
        match self.engine.stops(cob) {
            Some(Stops::Yes) => None,
            Some(Stops::HasNothingToStop) => Some(format!("{cob} has nothing that could be stopped")),
            Some(Stops::IsObserved) => Some(format!("{cob} is only observed (`mode: observe`)")),
            Some(Stops::Leaves) => Some(format!("{cob} leaves with the switch under way")),
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
