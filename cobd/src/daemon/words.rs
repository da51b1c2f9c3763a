//! Orders about a present or future switch: cancel, discard (`discard`), limit, and the circumstances of an order to switch.
//!
//! ```text
//!   prepare --- discard: forgotten without a trace
//!      |
//!     go  --- overtaken: a switch to a newer generation has started meanwhile
//!      |
//!   retire, activate, converge --- cancel: actions are asked to end, no transition starts; then pause or rollback
//! ```

use std::collections::BTreeMap;

use cob_engine::record::{Body, OrderRecord, Record};
use cob_engine::switch::Withdrawal;
use cob_engine::{Event, Order};
use cob_types::api::order;
use cob_types::switch::OnFailure;
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, HostName};
use tracing::info;

use super::follow::Again;
use super::switch::NO_ROLLBACK_TARGET;
use super::{Asked, Daemon, Reply};
use crate::web::RefusalKind;

/// The circumstances of an order to switch, besides its terms.
#[derive(Debug, Clone, Default)]
pub(super) struct Circumstances {
    /// The hosts that switch; empty: all.
    pub(super) only: Vec<HostName>,
    /// The newest generation that the author of the order knew.
    pub(super) seen: Option<GenerationNumber>,
    /// The author of an order to which no operator waits for an answer.
    pub(super) by: Option<String>,
    /// The order has waited for maintenance windows.
    pub(super) waited: bool,
}

/// Numbered fetches, and for each discarded generation the last fetch that does not count.
#[derive(Debug)]
pub(super) struct Fetches {
    last: u64,
    /// Fetches that have not ended.
    under_way: BTreeMap<u64, GenerationNumber>,
    void: BTreeMap<GenerationNumber, u64>,
    /// A followed generation that could not be fetched yet.
    pub(super) again: Again,
    /// Whether askers of a generation are being looked up: one lookup at a time.
    pub(super) askers: bool,
}

impl Fetches {
    pub(super) fn new(again: Again) -> Self {
        Self { last: 0, under_way: BTreeMap::new(), void: BTreeMap::new(), again, askers: false }
    }

    pub(super) fn begin(&mut self, generation: GenerationNumber) -> u64 {
        self.last += 1;
        self.under_way.insert(self.last, generation);
        self.last
    }

    /// Handles the end of a fetch. Returns whether it does not count.
    pub(super) fn is_void(&mut self, generation: GenerationNumber, fetch: u64) -> bool {
        self.under_way.remove(&fetch);
        let void = self.void.get(&generation).is_some_and(|last| fetch <= *last);
        self.void.retain(|generation, last| self.under_way.range(..=*last).any(|(_, g)| g == generation));
        void
    }

    /// Discards the running fetches of these generations. Returns whether there are any.
    fn discard(&mut self, which: impl Fn(GenerationNumber) -> bool) -> bool {
        let discarded: Vec<_> = self.under_way.values().copied().filter(|g| which(*g)).collect();
        for generation in &discarded {
            self.void.insert(*generation, self.last);
        }
        !discarded.is_empty()
    }
}

impl Daemon {
    /// The generation to which a switch is under way here: started and not yet converged.
    fn switching(&self) -> Option<GenerationNumber> {
        let (active, goal) = (self.engine.generation(), self.goal());
        let converging = self.present.active().is_some() && !self.book.durable().settled && !self.is_converged();
        (goal != active || converging).then_some(goal)
    }

    /// Marks change objects as departed that this host awaits before it activates: a single change object, or all of a
    /// host.
    pub(super) fn mark_departed(&mut self, order: &order::MarkDeparted, who: &str, reply: Reply) {
        let next = self.engine.pending_generation();
        let order::MarkDeparted { cob, host, .. } = order;
        let is_meant = |one: &CobId| {
            cob.as_ref() == Some(one) || host.as_ref().is_some_and(|host| one.host_str() == host.as_str())
        };
        let awaited = self.engine.switch_waits().into_iter().map(|wait| wait.cob).filter(is_meant);
        let awaited: Vec<CobId> = awaited.collect();
        for cob in &awaited {
            self.feed_ordered(Event::Order(Order::MarkDeparted(cob.clone())), who);
        }
        let it = |cob: &CobId| (cob.to_string(), "it".to_owned());
        let of = |host: &HostName| {
            (format!("change objects of {host}"), format!("{} of {host}", count(awaited.len(), "change object")))
        };
        let (named, without) = cob.as_ref().map(it).or(host.as_ref().map(of)).unwrap_or_default();
        let detail = match (next, awaited.len()) {
            (Some(next), 0) => format!("the switch to generation {next} does not wait for {named} here"),
            (Some(next), _) => format!("the switch to generation {next} goes on without {without}"),
            (None, _) => "no switch is under way here".to_owned(),
        };
        self.done(reply, !awaited.is_empty(), detail);
    }

    pub(super) fn cancel(&mut self, order: &order::Cancel, who: &str, reply: Reply) {
        let order::Cancel { generation: wanted, on_failure, .. } = *order;
        let under_way = self.switching().is_some();
        let is_meant = |waits| wanted.map_or(!under_way, |wanted| wanted == waits);
        if let Some(generation) = self.drop_waiting(is_meant, Some(who)) {
            let detail = format!("generation {generation}: the order that waited for maintenance windows is dropped");
            self.done(reply, true, detail);
            return;
        }
        // A switch that has converged here may be under way elsewhere: then the rollback includes this host.
        let here = wanted.filter(|w| *w == self.engine.generation() && self.present.active().is_some());
        let Some(generation) = self.switching().or(here) else {
            let is_meant = |g| wanted.is_none_or(|w| w == g);
            let fetching = self.fetches.discard(is_meant) | self.switch.forget_told(is_meant);
            let detail = if fetching { "the switch had not started yet: called off" } else { "no switch is under way" };
            self.done(reply, fetching, detail.to_owned());
            return;
        };
        // The operator may see the present step instead of the target.
        if let Some(other) = wanted.filter(|w| *w != generation && *w != self.here()) {
            let what = format!("the switch under way is to generation {generation}, not to {other}");
            let hint = format!("`cobctl cancel {generation}` cancels it; without a number, the present switch");
            self.refuse(reply, RefusalKind::Conflict, &what, &hint);
            return;
        }
        // A fetch for a newer generation was ordered before this order.
        self.fetches.discard(|g| g > generation);
        let again = self.engine.cancelled() == Some(generation);
        let ended = self.switching().is_none() && !again;
        let policy = on_failure.unwrap_or_else(|| self.on_failure(generation));
        // Another host that rolls back must not start the cancelled switch, wherever that has converged.
        let hushed = self.hush(generation, who);
        if ended && policy == OnFailure::Hold {
            let then = if hushed { ": it stays, and is not announced any more" } else { "" };
            self.done(reply, hushed, format!("generation {generation} has converged here{then}"));
            return;
        }
        if again && policy == OnFailure::Hold {
            self.done(reply, false, format!("the switch to generation {generation} is cancelled already"));
            return;
        }
        let running: Vec<CobId> = self.engine.running_actions().into_iter().map(|(cob, _)| cob).collect();
        let ending = match running.len() {
            0 => "no transition was running".to_owned(),
            n => format!("{} asked to end", count(n, "transition")),
        };
        if !again && !ended {
            self.feed_ordered(Event::Order(Order::Cancel(generation)), who);
        }
        self.turn.cancel.extend(running);
        let then = match policy {
            OnFailure::Hold => {
                "held: no transition starts until `resume`, or a switch to another generation".to_owned()
            }
            OnFailure::Rollback => match self.go_back_from(generation, who) {
                Ok(to) => format!("rolling back to generation {to}"),
                Err(why) => format!("held: it can't be rolled back ({why})"),
            },
        };
        self.done(reply, true, format!("generation {generation}: {ending}; {then}"));
    }

    /// Rolls back the cancelled generation to the target that its publishers have signed.
    fn go_back_from(&mut self, generation: GenerationNumber, who: &str) -> Result<GenerationNumber, String> {
        self.manifest_of(generation).map_err(|_| "it is not at hand")?;
        let to = self.rollback_target(generation).ok_or_else(|| format!("it names {NO_ROLLBACK_TARGET}"))?;
        self.way_to(to).map_err(|error| error.to_string())?;
        let why = format!("cancelled by {who}");
        let withdrawal = Withdrawal { to, ordered: true, why, cancelled: true, ..Withdrawal::default() };
        self.withdraw(generation, withdrawal, Some(who));
        Ok(to)
    }

    /// Repeats the cancel of running actions after the daemon ended in between.
    pub(super) fn cancel_again(&mut self) {
        if self.engine.cancelled().is_some() {
            self.turn.cancel.extend(self.engine.running_actions().into_iter().map(|(cob, _)| cob));
        }
    }

    pub(super) fn discard(&mut self, generation: GenerationNumber, who: String, reply: Reply) {
        if let Some(goal) = self.switching().filter(|goal| *goal == generation || self.here() == generation) {
            let what = format!("the switch has started already: this host is being switched to generation {goal}");
            let hint = "`cobctl cancel` stops it where it is; to go back, switch to the generation before";
            self.refuse(reply, RefusalKind::Conflict, &what, hint);
            return;
        }
        if self.engine.generation() == generation {
            let what = format!("generation {generation} is active on this host");
            self.refuse(reply, RefusalKind::Conflict, &what, "to go back, switch to the generation before");
            return;
        }
        let waited = self.drop_waiting(|waits| waits == generation, Some(&who)).is_some();
        let fetching = self.fetches.discard(|g| g == generation) || waited;
        let is_here = self.generations.kept().contains(&generation);
        // A generation that was active here is kept as a rollback target, and is not discarded.
        let forgotten = match self.never_gone_to().contains(&generation).then(|| self.generations.forget(generation)) {
            None => self.looked_at() == Some(generation),
            Some(Ok(forgotten)) => forgotten,
            Some(Err(error)) => {
                self.refuse(reply, RefusalKind::Unavailable, &error.to_string(), "look at the state folder's disk");
                return;
            }
        };
        if is_here {
            self.undecide(generation);
        }
        self.forget_looks_at(generation);
        let changed = fetching || forgotten;
        if changed {
            self.note_order(OrderRecord::Discard(generation), Some(who));
        }
        let detail = match (forgotten, fetching) {
            (_, true) => "its fetch was cancelled",
            (true, false) => "the prepared generation is discarded",
            (false, false) => "it was not prepared",
        };
        self.done(reply, changed, format!("generation {generation}: {detail}"));
    }

    /// Prepared generations to which this host does not switch.
    pub(super) fn prepared(&self) -> Vec<GenerationNumber> {
        let mut prepared = self.never_gone_to();
        prepared.extend(self.looked_at().filter(|older| !prepared.contains(older)));
        prepared.sort_unstable();
        prepared
    }

    /// The last prepared generation, unless the host switches to it. It may be older.
    fn looked_at(&self) -> Option<GenerationNumber> {
        let looked_at = self.ahead.meets()?.generation;
        (self.switching().is_none() && looked_at != self.engine.generation()).then_some(looked_at)
    }

    /// Present generations that are newer than the target of this host and were never switched to.
    fn never_gone_to(&self) -> Vec<GenerationNumber> {
        let Ok(newest) = self.newest() else { return Vec::new() };
        self.generations.kept().into_iter().filter(|g| *g > newest).collect()
    }

    pub(super) fn limit(&mut self, order: order::Limit, who: &str, reply: Reply) {
        let order::Limit { at_most, budget, .. } = order;
        if at_most == Some(0) {
            let hint = "`cobctl pause` stops new transitions; `cobctl limit none` lifts the limit";
            self.refuse(reply, RefusalKind::Invalid, "a limit of 0 would stop all transitions", hint);
            return;
        }
        if let Some(budget) = budget {
            self.limit_budget(budget, at_most, who, reply);
            return;
        }
        let changed = self.engine.limit() != at_most;
        if changed {
            self.feed_ordered(Event::Order(Order::Limit(at_most)), who);
        }
        let detail = match at_most {
            Some(k) => format!("at most {} at a time", count(k, "transition")),
            None => "any number of transitions at a time".to_owned(),
        };
        self.done(reply, changed, detail);
    }

    pub(super) fn budget(&mut self, order: order::Budget, who: &str, reply: Reply) {
        let order::Budget { budget, at_most, .. } = order;
        let Some(tokens) = self.engine.tokens_of(&budget) else {
            self.refuse_budget(reply, &budget);
            return;
        };
        if at_most == Some(0) {
            let hint = "`cobctl pause` stops new transitions";
            self.refuse(reply, RefusalKind::Invalid, "a budget of 0 tokens would stop all its change objects", hint);
            return;
        }
        let changed = self.engine.raised_budgets().get(&budget).copied() != at_most;
        if changed {
            self.feed_ordered(Event::Order(Order::RaiseBudget(budget.clone(), at_most)), who);
        }
        let mut detail = match at_most {
            Some(k) => format!("{budget}: {} instead of {tokens}, until the next generation", count(k, "token")),
            None => format!("{budget}: {}, as the model says", count(tokens, "token")),
        };
        if let Some(limit) = self.engine.limited_budgets().get(&budget) {
            let lifts = format!("`cobctl limit none --budget {budget}` lifts it");
            detail.push_str(&format!("; the operator's limit of {} holds: {lifts}", count(*limit, "token")));
        }
        self.done(reply, changed, detail);
    }

    fn refuse_budget(&mut self, reply: Reply, budget: &CobId) {
        let unknown = format!("this host has no budget {budget}");
        self.refuse(reply, RefusalKind::NotFound, &unknown, "`cobctl status` lists the budgets: HOST/budget/NAME");
    }

    fn limit_budget(&mut self, budget: CobId, at_most: Option<u32>, who: &str, reply: Reply) {
        let Some(tokens) = self.engine.tokens_of(&budget) else {
            self.refuse_budget(reply, &budget);
            return;
        };
        // A limit at or above the model's number of tokens is no limit, also if a later model has more.
        let at_most = at_most.filter(|k| *k < tokens);
        let changed = self.engine.limited_budgets().get(&budget).copied() != at_most;
        if changed {
            self.feed_ordered(Event::Order(Order::LimitBudget(budget.clone(), at_most)), who);
        }
        let detail = match at_most {
            Some(k) => format!("{budget}: {} instead of {tokens}", count(k, "token")),
            None => format!("{budget}: {}, as the model says", count(tokens, "token")),
        };
        self.done(reply, changed, detail);
    }

    /// The newer generation to which a switch has started since the author of an order for a newer generation looked.
    pub(super) fn overtaken(
        &self,
        generation: GenerationNumber,
        seen: Option<GenerationNumber>,
    ) -> Option<GenerationNumber> {
        let goal = self.goal();
        (generation < goal && seen.is_some_and(|seen| seen < goal)).then_some(goal)
    }

    pub(super) fn refuse_overtaken(&mut self, generation: GenerationNumber, newer: GenerationNumber, reply: Reply) {
        let what = format!(
            "the switch to generation {generation} was replaced: this host was ordered to switch to {newer} since"
        );
        let hint = format!("`cobctl status` shows where it is; to go back from {newer}, give the order again");
        self.refuse(reply, RefusalKind::Conflict, &what, &hint);
    }

    /// A fetch of a discarded generation has ended: its result is deleted.
    pub(super) fn was_discarded(&mut self, generation: GenerationNumber, kept: bool, asked: Option<Asked>) {
        info!(%generation, "called off while it was fetched");
        self.switch.forget_told(|told| told == generation);
        if kept
            && self.never_gone_to().contains(&generation)
            && let Err(error) = self.generations.forget(generation)
        {
            tracing::warn!(%generation, %error, "it can't be deleted, and is not used");
        }
        if let Some(Asked { reply, .. }) = asked {
            let what = format!("the switch to generation {generation} was called off meanwhile");
            self.refuse(reply, RefusalKind::Conflict, &what, "`cobctl history` names the operator");
        }
    }

    /// Extends a switch for some hosts to all, if the order is repeated without a list of hosts.
    pub(super) fn widen(&mut self, only: &[HostName], who: &str) {
        if only.is_empty() && !self.book.durable().only.is_empty() {
            self.note_only(Vec::new(), Some(who));
        }
    }

    /// Records the hosts of the switch that was just ordered.
    pub(super) fn note_only(&mut self, only: Vec<HostName>, who: Option<&str>) {
        self.note_order(OrderRecord::Only(only), who.map(str::to_owned));
    }

    /// The record of the first time that the host is converged after an activation, for the outcome of the switch.
    pub(super) fn note_settled(&self, activated: bool) -> Option<Record> {
        // The departures of this activation are known only after it is made ready: the next tick looks again.
        let first = !activated && !self.book.durable().settled;
        (first && self.is_converged()).then(|| self.record(Body::Settled(self.engine.generation()), None))
    }

    pub(super) fn note_order(&mut self, order: OrderRecord, by: Option<String>) {
        let record = self.record(Body::Ordered(order), by);
        self.turn.effects.persist.push(record);
    }

    /// A record that does not come from the engine.
    pub(super) fn record(&self, body: Body, by: Option<String>) -> Record {
        let (lamport, generation) = (self.engine.lamport(), self.engine.generation());
        Record { at: self.clock.now(), lamport, generation, body, by }
    }
}
