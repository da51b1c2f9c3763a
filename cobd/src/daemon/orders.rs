//! Orders and questions of operators, as they arrive through the API.

use std::sync::Arc;

use cob_engine::record::OrderRecord;
use cob_engine::{Event, Order};
use cob_files::Choice;
use cob_types::api::{Done, FilesAnswer, order};
use cob_types::status::{KnownGenerations, SwitchWait};
use cob_types::words::count;
use cob_types::{CobId, GenerationId, GenerationNumber, HostName, Manifest, SwitchOrder};
use tracing::{info, warn};

use super::folders::put_in_place;
use super::inbox::TaskResult;
use super::route::Route;
use super::switch::{Aim, Start};
use super::words::Circumstances;
use super::{Asked, Daemon, Fetched, Reply};
use crate::acceptance::{AllowedDirection, Newest};
use crate::blocking::beside;
use crate::generations::{FetchError, Prepared, Wanted};
use crate::journal::index::Query;
use crate::kinds::FilesQuery;
use crate::remote::RemoteError;
use crate::web::{Ask, Command, Refusal, RefusalKind};

impl Daemon {
    pub(super) fn answer(&mut self, ask: Ask) {
        // A failed send is harmless: the asker has gone.
        match ask {
            Ask::Status { of, most_waiting, reply } => {
                let began = std::time::Instant::now();
                let status = self.host_status(of, most_waiting);
                self.reports.api().pace.status_took(began.elapsed());
                let _ = reply.send(status);
            }
            Ask::Known { reply } => drop(reply.send(self.generations.newest_known(KnownGenerations::MOST))),
            Ask::Cob { id, reply } => drop(reply.send(self.cob_status(&id))),
            Ask::History { since, cob, limit, newest, reply } => {
                let query = Query { since, cob, limit, newest };
                // An empty history would claim that no event has happened.
                let unavailable = |why: String| {
                    let hint = "restart the daemon: the index is built from the journal";
                    Refusal::new(RefusalKind::Unavailable, why, hint)
                };
                let told = move |answer| {
                    let entries = match answer {
                        Ok(Some(Ok(entries))) => Ok(entries),
                        Ok(Some(Err(error))) => Err(unavailable(format!("the history can't be read: {error}"))),
                        Ok(None) => Err(unavailable("there is no index of the history".to_owned())),
                        Err(error) => Err(unavailable(format!("the history can't be sent: {error}"))),
                    };
                    let _ = reply.send(entries);
                };
                self.book.history(query, told);
            }
            Ask::Outcome { to, reply } => drop(reply.send(self.outcome(to))),
            Ask::Output { cob, reply } => {
                let _ = reply.send(self.output(&cob));
            }
            Ask::Files { cob, generation, query, who, reply } => self.files(&cob, generation, query, who, reply),
            Ask::Logs { cob, query, reply } => {
                let asked = self.context_of(&cob).and_then(|context| self.kinds.logs(&context, query));
                self.beside(&cob, asked, "`cobctl status` and `cobctl explain` show its state", reply);
            }
            Ask::Check { cobs, reply } => drop(reply.send(self.begin_round(&cobs))),
            Ask::CheckRound { round, reply } => drop(reply.send(self.rounds.standing(round))),
            Ask::Run { order, who, reply } => self.run_command(*order, who, reply),
            Ask::StoredRun { run, reply } => self.adhoc.kept(run, reply),
            Ask::Watch { reply } => {
                let _ = reply.send(self.reports.subscribe());
            }
            Ask::Order { order, who, reply } => {
                info!(%who, "ordered: {order}");
                self.order(order, Asked { who, reply });
            }
        }
    }

    /// Answers a question about files in a task of its own. An order about files is recorded before it starts.
    fn files(
        &mut self,
        cob: &CobId,
        ahead: Option<GenerationNumber>,
        mut query: FilesQuery,
        who: Option<String>,
        reply: tokio::sync::oneshot::Sender<Result<FilesAnswer, Refusal>>,
    ) {
        let about = match (ahead, self.engine.status_of(cob, self.clock.now())) {
            (None, Some(status)) => self.context_of(cob).map(|context| (context, status.retiring)),
            (None, None) => return drop(reply.send(Err(unknown(cob)))),
            (Some(generation), _) => self.context_ahead(generation, cob),
        };
        let (context, retires) = match about {
            Ok(about) => about,
            Err(_) if self.is_nowhere(cob) => return drop(reply.send(Err(unknown(cob)))),
            Err(why) => return drop(reply.send(Err(Refusal::new(RefusalKind::Conflict, why, NOT_AHEAD)))),
        };
        let asked_about = if let FilesQuery::Would(order) = &mut query { &mut **order } else { &mut query };
        if let FilesQuery::Diff { retire, .. } | FilesQuery::Hunks { retire, .. } | FilesQuery::Resolve { retire, .. } =
            asked_about
        {
            *retire = retires;
        }
        let order = order_about_files(cob, ahead, &query);
        let asked = self.kinds.files(&context, query);
        if let (Ok(_), Some(order)) = (&asked, order) {
            info!(%cob, who = who.as_deref().unwrap_or_default(), "ordered about its files");
            self.note_order(order, who);
        }
        self.beside(cob, asked, "`cobctl diff` and `cobctl files log` show its files", reply);
    }

    /// Whether no present generation contains the change object.
    fn is_nowhere(&self, cob: &CobId) -> bool {
        !self.present.all().any(|prepared| prepared.bundle.has(cob))
    }

    /// Computes a slow answer in a task of its own, after the records of this tick are durable.
    fn beside<T: Send + 'static>(
        &mut self,
        cob: &CobId,
        asked: Result<impl Future<Output = Result<T, String>> + Send + 'static, String>,
        hint: &'static str,
        reply: tokio::sync::oneshot::Sender<Result<T, Refusal>>,
    ) {
        let refused = move |why: String| Refusal::new(RefusalKind::Conflict, why, hint);
        match asked {
            Ok(answer) => self.turn.beside.push(Box::pin(async move {
                // A failed send is harmless: the asker has gone.
                let _ = reply.send(answer.await.map_err(refused));
            })),
            Err(_) if self.engine.status_of(cob, self.clock.now()).is_none() => drop(reply.send(Err(unknown(cob)))),
            Err(why) => drop(reply.send(Err(refused(why)))),
        }
    }

    /// Carries out an order. An order that names a generation by its number alone is identified first.
    fn order(&mut self, mut order: Command, asked: Asked) {
        match order.named() {
            Some((generation, None)) if self.generations.manifest_known(generation).is_some() => {
                self.identify(generation, order, asked);
            }
            Some(_) | None => self.identified(order, asked),
        }
    }

    /// Looks up the depot's manifest for an order that names a generation by its number alone, in a task of its own. If
    /// this host knows the number, the hash shows whether both are the same generation.
    fn identify(&mut self, generation: GenerationNumber, mut order: Command, asked: Asked) {
        let generations = self.generations.clone();
        self.tasks.spawn(async move {
            // If the lookup fails, the order means the generation that this host knows.
            let found = beside(move || generations.manifest_in_depot(generation)).await.ok().flatten();
            if let Some((_, manifest)) = order.named() {
                *manifest = found;
            }
            TaskResult::Identified(order, asked)
        });
    }

    /// Carries out an order after the lookup of its generation.
    pub(super) fn identified(&mut self, order: Command, asked: Asked) {
        let Asked { who, reply } = asked;
        match order {
            Command::Prepare(order) => {
                let wanted = Wanted { generation: order.generation, manifest: order.manifest };
                self.prepare(wanted, Asked { who, reply });
            }
            Command::Switch(order) => self.switch(order, Asked { who, reply }),
            Command::Cancel(order) => self.cancel(&order, &who, reply),
            Command::Discard(order) => self.discard(order.generation, who, reply),
            Command::Limit(order) => self.limit(order, &who, reply),
            Command::Budget(order) => self.budget(order, &who, reply),
            Command::Rollback(order) => self.rollback(&order, Asked { who, reply }),
            Command::Retry(order) => self.retry(order.cob, &who, reply),
            Command::Stop(order) => self.stop(order, &who, reply),
            Command::Start(order) => self.start_again(order.cobs, &who, reply),
            Command::Reboot(_) => self.reboot(&who, reply),
            Command::Pause(_) => self.pause(true, &who, reply),
            Command::Resume(_) => self.pause(false, &who, reply),
            Command::MarkDeparted(order) => self.mark_departed(&order, &who, reply),
            Command::Fence(order) => self.fence(order.host, &who, reply),
        }
    }

    fn fence(&mut self, host: HostName, who: &str, reply: Reply) {
        if host == self.config.host {
            self.refuse(reply, RefusalKind::Invalid, "a host can't be fenced from itself", "ask another host");
            return;
        }
        let has_links = !self.neighbours.hosts(|peer| peer.host == host).is_empty();
        let parted = self.has_parted_with(&host);
        if !has_links && !parted && self.engine.is_unknown(&host) {
            let unknown = format!("this host does not know the host {host}");
            self.refuse(reply, RefusalKind::NotFound, &unknown, "`cobctl status` lists the hosts");
            return;
        }
        if self.engine.is_fenced(&host) && !parted {
            self.done(reply, false, format!("all incarnations of {host} that this host knows are fenced already"));
            return;
        }
        let is_awaited = |wait: &&SwitchWait| wait.cob.host_str() == host.as_str();
        let awaited = self.engine.switch_waits().iter().filter(is_awaited).count();
        self.feed_ordered(Event::Order(Order::Fence(host.clone())), who);
        self.forget_parted(&host);
        let departed = match awaited {
            0 => String::new(),
            n => format!("; {} on which the switch waited count as departed", count(n, "change object")),
        };
        let detail = format!("{host} is fenced: the locks of its change objects on this host are released{departed}");
        self.done(reply, true, detail);
    }

    pub(super) fn prepare(&mut self, wanted: Wanted, asked: Asked) {
        let generation = wanted.generation;
        if let Err(error) = self.generations.is_the_one(wanted) {
            return self.refuse_generation(generation, &error, Some(asked.reply));
        }
        // The operator learns at `prepare` already that the switch would be refused.
        match self.way_to(generation) {
            Err(error @ FetchError::Older { .. }) if generation != self.here() => {
                self.refuse_generation(generation, &error, Some(asked.reply));
            }
            Ok(_) | Err(_) => self.fetch(wanted, Aim::Keep, Some(asked)),
        }
    }

    fn switch(&mut self, order: order::Switch, asked: Asked) {
        let (Asked { who, reply }, how) = (asked, order.how());
        let order::Switch { generation, manifest, only, seen, .. } = order;
        let wanted = Wanted { generation, manifest };
        if let Err(error) = self.generations.is_the_one(wanted) {
            self.refuse_generation(generation, &error, Some(reply));
        } else if generation == self.goal() && self.present.active().is_some() {
            self.widen(&only, &who);
            // A paused switch continues only with `resume`.
            let told_again = self.engine.cancelled().is_none() && self.speak_again(&who);
            if let Some(terms) = self.other_terms(generation, how) {
                self.reterm(terms, Some(&who));
                self.done(reply, true, format!("generation {generation}: the switch continues with the new terms"));
                return;
            }
            if told_again {
                self.done(reply, true, format!("generation {generation}: it is announced to other hosts again"));
                return;
            }
            let is_active = generation == self.engine.generation();
            let word = if is_active { "is active" } else { "is being switched to" };
            let held = match self.engine.cancelled() {
                Some(_) => ", and was cancelled: `cobctl resume` continues it",
                None => "",
            };
            self.done(reply, false, format!("generation {generation} {word} already{held}"));
        } else if let Some(newer) = self.overtaken(generation, seen) {
            self.refuse_overtaken(generation, newer, reply);
        } else if let Err(error) = self.way_to(generation) {
            self.refuse_generation(generation, &error, Some(reply));
        } else {
            let circumstances = Circumstances { only, seen, ..Circumstances::default() };
            self.fetch_on(wanted, Aim::Go(Start::Ordered(how)), circumstances, Some(Asked { who, reply }));
        }
    }

    /// The generation of the pending switch, else the active generation. It may be a step on a longer path.
    pub(super) fn here(&self) -> GenerationNumber {
        self.engine.pending_generation().unwrap_or(self.engine.generation())
    }

    /// The target generation of the present switch, after all its steps; else the active generation. Messages about a
    /// switch are compared with it.
    pub(super) fn goal(&self) -> GenerationNumber {
        let here = self.here();
        self.switch.beyond(here).unwrap_or(here)
    }

    /// The newest generation to which this host was switched, also if it was abandoned later.
    pub(super) fn newest(&self) -> Result<GenerationNumber, FetchError> {
        let goal = self.goal();
        Ok(self.generations.returned_from()?.map_or(goal, |left| left.max(goal)))
    }

    /// Whether this host may switch to a generation. The pending step counts as forward.
    pub(super) fn way_to(&self, generation: GenerationNumber) -> Result<AllowedDirection, FetchError> {
        let here = self.here();
        if generation > here || here == GenerationNumber(0) || generation == here && here < self.goal() {
            return Ok(AllowedDirection::Forward);
        }
        let newest = self.newest()?;
        let manifest = self.manifest_of(newest)?;
        Newest { generation: newest, manifest: Some(&manifest) }.way(here, generation)
    }

    /// The manifest of a present or earlier generation of this host.
    pub(super) fn manifest_of(&self, generation: GenerationNumber) -> Result<Arc<Manifest>, FetchError> {
        match self.present.active_and_pending().find(|p| p.manifest.generation == generation) {
            Some(prepared) => Ok(prepared.manifest.clone()),
            None => self.generations.manifest(generation),
        }
    }

    /// Refuses a generation: answers the order, if any, and logs the error.
    pub(super) fn refuse_generation(&mut self, generation: GenerationNumber, error: &FetchError, reply: Option<Reply>) {
        warn!(%generation, %error, "a generation is refused");
        if let Some(reply) = reply {
            let (kind, hint) = hint_for(error);
            self.refuse(reply, kind, &error.to_string(), hint);
        }
    }

    /// Fetches a generation in a task of its own, which reports to [`Daemon::generation_fetched`].
    pub(super) fn fetch(&mut self, wanted: impl Into<Wanted>, aim: Aim, asked: Option<Asked>) {
        self.fetch_on(wanted.into(), aim, Circumstances::default(), asked);
    }

    /// Like [`Daemon::fetch`], for a switch in these circumstances.
    pub(super) fn fetch_on(&mut self, wanted: Wanted, aim: Aim, circumstances: Circumstances, asked: Option<Asked>) {
        let generation = wanted.generation;
        let fetch = self.fetches.begin(generation);
        let active = self.engine.generation();
        let accepted = self.present.active().cloned();
        // The switch reuses the result of its `prepare`.
        let at_hand = self.present.prepared().filter(|p| p.manifest.generation == generation).cloned();
        let withdrawn = self.switch.withdrawn();
        let (generations, kinds) = (self.generations.clone(), self.kinds.clone());
        let (host, key_file) = (self.config.host.clone(), self.config.identity.clone());
        let payload_root = self.payload_root.clone();
        self.tasks.spawn(async move {
            let fetched = beside(move || {
                let leaving = accepted.is_some();
                let take = |wanted: Wanted| {
                    let generation = wanted.generation;
                    if let Some(prepared) = at_hand.as_ref().filter(|p| p.manifest.generation == generation)
                        && wanted.manifest.is_none_or(|manifest| manifest == prepared.hash)
                        && generations.keeps(generation)
                    {
                        return Ok(prepared.clone());
                    }
                    let prepared = generations.fetch(wanted, leaving, accepted.as_ref())?;
                    prepared.accept(&kinds, accepted.as_ref(), generation < active)?;
                    crate::identity::check(&prepared.manifest, &host, &key_file)
                        .map_err(|error| FetchError::Bad { generation, what: error.to_string() })?;
                    put_in_place(&payload_root, &prepared, accepted.as_ref());
                    Ok(prepared)
                };
                let goal = take(wanted)?;
                generations.fetch_ways_back(&goal.manifest);
                Route::to(goal, active, |step| take(step.into()), |g| withdrawn.contains(&g))
            });
            let result = fetched.await.unwrap_or_else(|lost| Err(FetchError::lost(generation, lost)));
            TaskResult::Fetched(Box::new(Fetched { wanted, result, aim, circumstances, fetch, asked }))
        });
    }

    pub(super) fn generation_fetched(&mut self, fetched: Fetched) {
        let Fetched { wanted, result, aim, circumstances, fetch, asked } = fetched;
        let generation = wanted.generation;
        if let Aim::Go(Start::Told) = aim {
            self.switch.told_was_fetched();
        }
        let discarded = self.fetches.is_void(generation, fetch);
        if discarded && !matches!(aim, Aim::Go(Start::Return { .. } | Start::Onward)) {
            self.switch.window_start_void(circumstances.waited);
            return self.was_discarded(generation, result.is_ok(), asked);
        }
        let (route, start) = match (result, aim) {
            (Ok(route), Aim::Go(start)) => (route, start),
            (Ok(route), Aim::Keep) => return self.kept(generation, &route, asked),
            (Err(error), Aim::Go(_)) if circumstances.waited => return self.window_start_failed(generation, &error),
            (Err(error), aim) => return self.not_fetched(wanted, &error, aim, asked),
        };
        if asked.is_none() && matches!(start, Start::Followed) {
            self.fetches.again.taken();
        }
        // A present generation has a known manifest, even if the order or announcement named only the number.
        let here = Wanted { manifest: self.generations.manifest_known(generation).or(wanted.manifest), ..wanted };
        if !self.still_wanted(here, start) {
            if circumstances.waited {
                self.drop_waiting(|waits| waits == generation, None);
            }
            if let Some(Asked { reply, .. }) = asked {
                self.done(reply, false, format!("another switch was faster: generation {generation}"));
            }
            return;
        }
        if let Some(newer) = self.overtaken(generation, circumstances.seen) {
            if circumstances.waited {
                self.drop_waiting(|waits| waits == generation, None);
            }
            match asked {
                Some(Asked { reply, .. }) => self.refuse_overtaken(generation, newer, reply),
                None => info!(%generation, %newer, "a generation is not followed: a newer generation was faster"),
            }
            return;
        }
        let asked = match self.waits_for_windows((&route.goal, here), start, &circumstances, asked) {
            Ok(()) => return,
            Err(asked) => asked,
        };
        let Circumstances { only, by, waited, .. } = circumstances;
        let who = asked.as_ref().map(|a| a.who.clone()).or(by);
        match self.set_out(route, start, only, who.as_deref()) {
            Ok(()) => {
                if let Some(Asked { reply, .. }) = asked {
                    self.done(reply, true, format!("switching: generation {generation}"));
                }
            }
            Err(error) if waited => self.window_start_failed(generation, &error),
            Err(error) => self.not_set_out(wanted, &error, start, asked),
        }
    }

    /// Keeps a fetched generation that is not switched to yet.
    fn kept(&mut self, generation: GenerationNumber, route: &Route, asked: Option<Asked>) {
        let new = self.have_at_hand(Some(route));
        if let Some(Asked { who, reply }) = asked {
            self.note_order(OrderRecord::Prepare(generation), Some(who));
            let detail = format!("generation {generation} is here and verified");
            self.look_ahead(&route.next, new, reply, detail);
        } else {
            self.fetches.again.taken();
            if self.waits_for_the_first() && self.present.introduce(&route.goal) {
                info!(%generation, "its operators may give the first order");
                self.tell_roster();
            }
        }
    }

    /// A generation could not be fetched: an order gets the error; a followed generation is tried again.
    fn not_fetched(&mut self, wanted: Wanted, error: &FetchError, aim: Aim, asked: Option<Asked>) {
        let generation = wanted.generation;
        match aim {
            Aim::Go(start @ (Start::Return { .. } | Start::Onward | Start::Told)) => {
                self.not_set_out(wanted, error, start, asked);
            }
            Aim::Go(Start::Scheduled) => self.refuse_generation(generation, error, None),
            Aim::Keep | Aim::Go(Start::Ordered(_) | Start::Followed) => {
                if asked.is_some() || self.fetches.again.failed(generation, error) {
                    self.refuse_generation(generation, error, asked.map(|a| a.reply));
                }
            }
        }
    }

    /// Starts the switch in the engine, if the path is still allowed.
    fn set_out(
        &mut self,
        route: Route,
        start: Start,
        only: Vec<HostName>,
        who: Option<&str>,
    ) -> Result<(), FetchError> {
        let Route { goal, next: prepared } = route;
        let generation = prepared.manifest.generation;
        // The newest generation is abandoned. A host that was behind may roll "back" to a higher number.
        let left = match start {
            Start::Return { left } => Some(self.newest()?.max(left)),
            Start::Ordered(_) if goal.generation < self.goal() => Some(self.newest()?),
            Start::Ordered(_) | Start::Followed | Start::Scheduled | Start::Told | Start::Onward => None,
        };
        if let Some(left) = left {
            self.generations.note_return(left)?;
        }
        if generation == self.here() {
            // The step is pending already: only the target changes.
            self.begin(&goal, start, left, who, who);
            if self.engine.cancelled().is_some() {
                self.feed(Event::Order(Order::EndCancel));
            }
            self.ahead.meet((goal.generation != generation).then_some(goal));
            return Ok(());
        }
        let way = self.way_to(generation)?;
        let in_process = prepared.in_process(&self.kinds);
        let bundle = prepared.bundle.clone();
        let rollback = matches!(way, AllowedDirection::Back(_));
        let order = match way {
            AllowedDirection::Forward => self.order_of(&prepared, None),
            AllowedDirection::Back(signed) if signed.manifest != prepared.hash => {
                let what = format!(
                    "it is not the signed rollback target (its manifest has the hash {}, not {})",
                    prepared.hash, signed.manifest
                );
                return Err(FetchError::Bad { generation, what });
            }
            AllowedDirection::Back(_) => self.order_of(&prepared, left),
        };
        let event = Event::Switch { generation, bundle, in_process, order, rollback };
        info!(%generation, "{}", if rollback { "go back" } else { "go" });
        // A switch in several steps records its source, also without an operator's order.
        let in_steps = goal.generation != generation;
        let manifest = self.generations.manifest_known(goal.generation);
        let told = Wanted { generation: goal.generation, manifest };
        let by = who.map(ToOwned::to_owned).or_else(|| self.switch.teller(told, start)).filter(|_| in_steps);
        self.begin(&goal, start, left, who, by.as_deref());
        self.part_for(&prepared.manifest);
        self.present.begin(prepared);
        self.ahead.meet((goal.generation != generation).then_some(goal));
        self.tell_roster();
        let onward = if let Start::Onward = start { self.switch.by.clone() } else { None };
        match who.map(ToOwned::to_owned).or(onward) {
            Some(who) => self.feed_ordered(event, &who),
            None => self.feed(event),
        }
        if !only.is_empty() {
            self.note_only(only, who);
        }
        Ok(())
    }

    /// The switch order from the active generation: forward from the target's manifest; on a rollback from the newest
    /// manifest, or from that of the active generation if this host had not reached it or has abandoned it.
    /// Without a recorded order, no host waits for another host.
    fn order_of(&self, prepared: &Prepared, newest: Option<GenerationNumber>) -> Arc<SwitchOrder> {
        let from = self.engine.generation();
        let left = newest.map(|newest| [newest, from]).into_iter().flatten();
        let left = left.filter_map(|generation| self.manifest_of(generation).ok());
        let active = self.present.active().map(|active| active.id());
        order_in(left.chain([prepared.manifest.clone()]), from, active, prepared.manifest.generation)
    }

    /// Whether no generation is active or pending, but publishers are trusted: their generations name the operators.
    fn waits_for_the_first(&self) -> bool {
        self.config.trust.is_some() && self.present.is_empty()
    }

    /// Handles a new newest generation of the depot.
    pub(super) fn depot_changed(&mut self, newest: GenerationNumber) {
        if !self.config.follow {
            if self.waits_for_the_first() {
                self.fetch(newest, Aim::Keep, None);
            }
            return;
        }
        // An abandoned generation is not followed again.
        let is_left = self.switch.withdrawn().contains(&newest) || self.switch.keeps_from_following(newest);
        match self.newest() {
            Ok(known) if newest > known && !is_left => {
                let circumstances = Circumstances { seen: Some(known), ..Circumstances::default() };
                self.fetch_on(newest.into(), Aim::Go(Start::Followed), circumstances, None);
            }
            Ok(_) => {}
            Err(error) => warn!(%error, "the depot can't be followed"),
        }
    }

    fn retry(&mut self, cob: CobId, who: &str, reply: Reply) {
        let Some(status) = self.engine.status_of(&cob, self.clock.now()) else {
            match self.departures.retry(&cob) {
                Some(failed) => {
                    let detail = format!("{cob} has departed; the restore of its original state is tried again");
                    self.done(reply, failed, detail);
                }
                None => self.turn.answers.push((reply, Err(unknown(&cob)))),
            }
            return;
        };
        self.feed_ordered(Event::Order(Order::Retry(cob.clone())), who);
        let detail = if status.failed { format!("{cob} is tried again") } else { format!("{cob} had not failed") };
        self.done(reply, status.failed, detail);
    }

    fn pause(&mut self, pause: bool, who: &str, reply: Reply) {
        // The pause of a cancelled switch is no pause by an operator: the next switch ends it.
        let changed = if pause { !self.engine.is_paused_by_order() } else { self.engine.is_paused() };
        if changed {
            self.feed_ordered(Event::Order(if pause { Order::Pause } else { Order::Resume }), who);
        }
        let told_again = !pause && self.speak_again(who);
        let word = match (pause, changed) {
            (true, _) => "no new transition starts; running transitions finish",
            (false, false) if told_again => "the cancelled switch is announced to other hosts again",
            (false, _) => "transitions start again",
        };
        self.done(reply, changed || told_again, word.to_owned());
    }

    /// Queues an answer until the records of this tick are durable.
    pub(super) fn done(&mut self, reply: Reply, changed: bool, detail: String) {
        self.turn.answers.push((reply, Ok(Done::new(changed, detail))));
    }

    pub(super) fn refuse(&mut self, reply: Reply, kind: RefusalKind, error: &str, hint: &str) {
        self.turn.answers.push((reply, Err(Refusal::new(kind, error, hint))));
    }
}

/// The hint for an older generation without a rollback target.
pub(super) const OLDER_CONTENT: &str = "to go back, make a new generation with the older content and switch to that";

/// The hint for different content under a known number.
const ANOTHER: &str = "publish again: `cobgen generate MODEL --depot DIR` takes a number above all that hosts know, or say \
    `--above N`. see docs/how-to/restore-a-depot.md; `cobctl discard N` discards a prepared generation";

/// The hint if a prepared generation cannot be inspected.
const NOT_AHEAD: &str = "`cobctl switch N --prepare` fetches a generation to its hosts without a change";

fn unknown(cob: &CobId) -> Refusal {
    Refusal::new(
        RefusalKind::NotFound,
        format!("this host has no change object {cob}"),
        "`cobctl status` lists the change objects",
    )
}

/// The record of an order about files; a question has no record.
fn order_about_files(cob: &CobId, ahead: Option<GenerationNumber>, query: &FilesQuery) -> Option<OrderRecord> {
    let cob = cob.clone();
    match query {
        FilesQuery::Resolve { path, choice, .. } => {
            let choice = match choice {
                Choice::Ours => "ours",
                Choice::Theirs => "theirs",
                Choice::Edited(_) => "an edited text",
            };
            let of = ahead.map(|generation| format!(" ahead of generation {generation}")).unwrap_or_default();
            Some(OrderRecord::Resolve { cob, path: path.clone(), choice: choice.to_owned() + &of })
        }
        FilesQuery::Restore { version, path } => {
            Some(OrderRecord::Restore { cob, path: path.clone(), version: version.clone() })
        }
        FilesQuery::Diff { .. }
        | FilesQuery::Log
        | FilesQuery::Show { .. }
        | FilesQuery::Hunks { .. }
        | FilesQuery::Patch
        | FilesQuery::Undecide
        | FilesQuery::Would(_) => None,
    }
}

/// The switch order of the first manifest that contains it. A manifest that refers to different content under the
/// number of the `active` generation has no valid switch order for this host.
pub(super) fn order_in(
    manifests: impl Iterator<Item = Arc<Manifest>>,
    from: GenerationNumber,
    active: Option<GenerationId>,
    to: GenerationNumber,
) -> Arc<SwitchOrder> {
    let fits = |manifest: &Arc<Manifest>| !active.is_some_and(|active| manifest.follows_another(active));
    let order = manifests.filter(fits).find_map(|manifest| manifest.switch_order(from, to).cloned());
    Arc::new(order.unwrap_or_else(|| SwitchOrder::free(from, to)))
}

fn hint_for(error: &FetchError) -> (RefusalKind, &'static str) {
    match error {
        FetchError::Depot { .. } => (RefusalKind::NotFound, "`cobgen log --depot …` lists the generations"),
        FetchError::Remote(RemoteError::Refused { status: 404, .. }) => {
            (RefusalKind::NotFound, "`cobgen log --depot …`, where the server is, lists the generations")
        }
        FetchError::Remote(_) => {
            (RefusalKind::Unavailable, "look at `depot` and `depot_key` in cobd.toml, and at the server")
        }
        FetchError::NotIn { .. } => (RefusalKind::Conflict, "is `host` in cobd.toml the name that the model uses?"),
        FetchError::Untrusted { .. } => (RefusalKind::Conflict, "`cobgen log` shows the signatures of each generation"),
        FetchError::Unprotected { .. } => {
            (RefusalKind::Conflict, "leave `security` out of the model, give its hosts keys, and generate again")
        }
        FetchError::NobodyTrusted { .. } => {
            (RefusalKind::Conflict, "`trust = [\"ed25519:…\"]` in cobd.toml, then restart the daemon")
        }
        FetchError::Older { .. } => (RefusalKind::Conflict, OLDER_CONTENT),
        FetchError::Another { .. } => (RefusalKind::Conflict, ANOTHER),
        FetchError::AnotherInDepot { .. } => (
            RefusalKind::Conflict,
            "does `depot` in this host's cobd.toml name the same depot, or a mirror of it that is up to date?",
        ),
        FetchError::Bad { .. } => (RefusalKind::Conflict, "make the generation again with `cobgen generate`"),
        FetchError::NoneBefore => (RefusalKind::NotFound, "`cobctl rollback` names the rollback targets"),
        FetchError::NoThread => {
            (RefusalKind::Unavailable, "look at the limits of processes and memory, and give the order again")
        }
        FetchError::Disk { .. } => (RefusalKind::Unavailable, "look at the state folder's disk"),
    }
}
