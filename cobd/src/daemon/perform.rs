//! The second half of a tick: the engine's effects, in a fixed order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use cob_engine::{Event, Run};
use cob_types::message::MAX_BATCH;
use cob_types::{Batch, CobId, HostName, Item, Packed};
use tracing::{error, info, warn};

use super::folders::Folders;
use super::prechecks::Seen;
use super::{BUSY_EVERY, Daemon, RunError, job_id};
use crate::generations::Prepared;
use crate::kinds::{CheckOutcome, Context, Import, JobEnd, JobEnded, Outcome, TransitionAttempt};

/// The number of generations kept on this host's disk.
const KEEP_GENERATIONS: usize = 10;

/// The most items of a batch.
const AT_ONCE: usize = 4096;

impl Daemon {
    /// Performs the effects of the tick: records, answers, messages, jobs, and last the data that only serve people.
    pub(super) fn finish_turn(&mut self) -> Result<(), RunError> {
        let mut turn = std::mem::take(&mut self.turn);
        turn.effects.persist.extend(self.note_settled(turn.effects.activated));
        let mut effects = std::mem::take(&mut turn.effects);
        let quiet = effects.is_empty() && !turn.in_parts && turn.answers.is_empty();
        let persist = std::mem::take(&mut effects.persist);
        let now = self.clock.now();
        let written = self.book.end_turn(&persist, now)?;
        for (reply, answer) in turn.answers {
            // A failed send is harmless: the asker has gone.
            let _ = reply.send(answer);
        }
        for work in turn.beside {
            drop(tokio::spawn(work));
        }
        self.send(effects.send);
        for run in effects.run_first {
            self.start_job(run);
        }
        if effects.activated {
            self.activated();
        }
        for run in effects.run {
            self.start_job(run);
        }
        self.begin_waiting_checks();
        for cob in turn.cancel {
            self.jobs.cancel(&cob);
        }
        for job in turn.finished {
            self.kinds.remove(job);
        }
        self.book.list(persist, written, now)?;
        if !quiet {
            self.tell_change();
            self.neighbours.look_by(self.clock.now() + BUSY_EVERY);
        }
        if self.clock.now() >= self.neighbours.busy_at() {
            self.look_who_is_busy();
        }
        self.book.rotate_if_long(now)?;
        Ok(())
    }

    fn send(&mut self, items: Vec<(HostName, Item)>) {
        if items.is_empty() {
            return;
        }
        let mut by_host: BTreeMap<HostName, Vec<Item>> = BTreeMap::new();
        for (host, item) in items {
            by_host.entry(host).or_default().push(item);
        }
        for (host, mut items) in by_host {
            // A very long list would be encoded again and again to find the number that fits.
            while items.len() > AT_ONCE {
                let more = items.split_off(AT_ONCE);
                self.send_batch(&host, std::mem::replace(&mut items, more));
            }
            self.send_batch(&host, items);
        }
    }

    /// Sends a batch, or several if it is too large.
    fn send_batch(&mut self, host: &HostName, items: Vec<Item>) {
        let batch = Batch {
            from: self.config.host.clone(),
            incarnation: self.engine.incarnation(),
            lamport: self.engine.lamport(),
            items,
            under_way: self.switch.under_way(),
        };
        match batch.encode() {
            Ok(bytes) if bytes.len() > MAX_BATCH && batch.items.len() > 1 => {
                let mut front = batch.items;
                let back = front.split_off(front.len() / 2);
                self.send_batch(host, front);
                self.send_batch(host, back);
            }
            Ok(bytes) => self.neighbours.links_mut().send(host, Bytes::from(bytes)),
            Err(error) => error!(%host, %error, "a batch could not be encoded"),
        }
    }

    /// A generation was activated: makes its change objects ready for jobs.
    fn activated(&mut self) {
        let Some(prepared) = self.present.end_pending() else { return };
        info!(generation = %prepared.manifest.generation, "activated");
        self.looks_may_count(prepared.manifest.generation);
        self.end_outdated_waits();
        self.make_ready(prepared);
        let mut needed = vec![self.engine.generation()];
        let back = self.present.manifest().into_iter().flat_map(|manifest| &manifest.back);
        needed.extend(back.map(|way| way.generation));
        needed.extend(self.needed_for_parted());
        // An unreadable record of the abandoned generation stops the deletion: that generation may be needed.
        match self.generations.returned_from() {
            Ok(left) => needed.extend(left),
            Err(error) => {
                warn!(%error, "old generations are kept");
                return;
            }
        }
        self.generations.prune(KEEP_GENERATIONS, &needed);
    }

    /// Ends running transitions that only wait, if this generation changed what they wait for: they start again with
    /// the new content. Other transitions end by themselves.
    fn end_outdated_waits(&self) {
        for (cob, from, to) in self.engine.actions_with_earlier_content() {
            let kind = self.present.kind_of(&cob);
            let ends =
                kind.is_some_and(|kind| self.kinds.only_waits(kind, &TransitionAttempt { from, to, attempt: 1 }));
            if ends && self.jobs.job_of(&cob).is_some() {
                info!(%cob, "its dependencies have other names now: its wait starts again");
                self.jobs.cancel(&cob);
            }
        }
    }

    /// Puts a generation's files in place for jobs, and updates the links' roster. Unchanged change objects are ready
    /// already; departed change objects are forgotten.
    pub(super) fn make_ready(&mut self, prepared: Prepared) {
        let bundle = &prepared.bundle;
        let (before, earlier) = match self.present.end_active() {
            Some((active, folders)) => (active.bundle, folders),
            None => (Arc::new(Packed::empty(self.config.host.clone())), Folders::default()),
        };
        let (mut concerned, mut new, mut gone) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        new.extend(earlier.missing().filter(|id| bundle.has(id)).cloned());
        for id in bundle.changed(&before) {
            let kind_before = before.kind_of(id).and_then(|kind| before.kinds().get(kind));
            let kind_now = bundle.kind_of(id).and_then(|kind| bundle.kinds().get(kind));
            concerned.extend(kind_before.into_iter().chain(kind_now).map(|kind| kind.backend.clone()));
            new.extend(Some(id).filter(|id| bundle.has(id) && bundle.has_files(id)).cloned());
            let keeps = before.get(id).is_some_and(|cob| cob.leaves_as_it_is());
            let goes_on = kind_before.zip(kind_now).is_none_or(|(before, now)| keeps || now.continues(before));
            if let Some(kind) = kind_now.filter(|_| bundle.has(id)) {
                self.departures.end(id);
                self.kinds.is_here(id, kind);
            }
            if bundle.has(id) && goes_on {
                continue;
            }
            self.jobs.forget_output(id);
            if keeps {
                self.kinds.forget_kept(id);
            } else {
                gone.push(id.clone());
            }
        }
        let mut folders = Folders::of(&self.payload_root, bundle, new.iter().filter_map(|id| bundle.get(id)));
        folders.take_over(earlier, |id| bundle.has(id));
        self.jobs.keep_only(|id| bundle.has(id));
        self.kinds.watch(bundle, &concerned);
        // The notes of departed change objects are given up only after the new change objects are known.
        for id in gone {
            let departures = self.kinds.forget(&id);
            // The next change object with the same name and back end takes over the notes.
            let backend = |bundle: &Packed| Some(bundle.kinds().get(bundle.kind_of(&id)?)?.backend.clone());
            if backend(bundle).is_some_and(|now| backend(&before) == Some(now)) {
                drop(departures);
                bundle
                    .kind_of(&id)
                    .and_then(|kind| bundle.kinds().get(kind))
                    .inspect(|kind| self.kinds.is_here(&id, kind));
            } else {
                self.departures.add(departures, self.clock.now());
            }
        }
        self.rounds.only(|cob| bundle.has(cob));
        self.present.activate(prepared, folders);
        self.tell_roster();
    }

    pub(super) fn start_job(&mut self, run: Run) {
        let (cob, number) = match &run {
            Run::Check { cob, job } | Run::Action { cob, job, .. } => (cob.clone(), *job),
        };
        let job = job_id(number);
        let is_check = matches!(run, Run::Check { .. });
        if is_check {
            match self.seen_ahead(&cob, job) {
                Seen::Nothing => {}
                Seen::Soon(handle) => return self.jobs.begin(cob, job, handle),
                Seen::Found(ended) => {
                    self.jobs.ends_later(*ended);
                    return;
                }
            }
            if !self.may_check(&cob, number) {
                return;
            }
        } else {
            self.ahead.drop_looks();
            self.rounds.moved(&cob);
        }
        let begun = match self.context(&cob, Self::imports_of(&run)) {
            Ok(context) => {
                let begun = match run {
                    Run::Check { .. } => self.kinds.check(job, context),
                    Run::Action { from, to, attempt, .. } => {
                        self.jobs.forget_output(&cob);
                        self.kinds.transition(job, context, TransitionAttempt { from, to, attempt })
                    }
                };
                begun.map_err(|e| e.to_string())
            }
            Err(reason) => Err(reason),
        };
        match begun {
            Ok(handle) => self.jobs.begin(cob, job, handle),
            Err(reason) => self.could_not_begin(cob, job, is_check, reason),
        }
    }

    /// Reports a job that could not start as ended, in a later tick.
    fn could_not_begin(&mut self, cob: CobId, job: crate::run::JobId, is_check: bool, reason: String) {
        warn!(%cob, reason, "a job could not be started");
        let end = if is_check {
            JobEnd::Checked(CheckOutcome::unknown(reason))
        } else {
            JobEnd::Moved(Outcome::Failed { reason })
        };
        self.jobs.ends_later(JobEnded { job, cob, end, last_lines: String::new(), began_ns: 0, ended_ns: 0 });
    }

    /// The context of a change object without a transition.
    pub(super) fn context_of(&self, cob: &CobId) -> Result<Context, String> {
        self.context(cob, BTreeMap::new())
    }

    fn context(&self, cob: &CobId, imports: BTreeMap<CobId, Import>) -> Result<Context, String> {
        let (active, ready) = self.present.ready(cob).ok_or_else(|| "it is not in the active generation".to_owned())?;
        // A job that was decided before an activation starts under the previous generation: the engine is ahead.
        let context = ready.context_in(active)?;
        let leaving = !ready.cob.leaves_as_it_is()
            && self
                .present
                .pending()
                .is_some_and(|coming| coming.kind_of(cob).is_none_or(|next| !next.continues(ready.kind)));
        let rested_for = self.rested_for(&context.cob);
        Ok(Context { imports, leaving, rested_for, ..context })
    }

    /// The values that come with an action's locks.
    fn imports_of(run: &Run) -> BTreeMap<CobId, Import> {
        match run {
            Run::Check { .. } => BTreeMap::new(),
            Run::Action { imports, .. } => imports
                .iter()
                .map(|(id, state, values)| (id.clone(), Import { state: state.clone(), values: values.clone() }))
                .collect(),
        }
    }

    /// Adopts an action that an earlier incarnation started.
    pub(super) fn adopt_job(
        &mut self,
        cob: &CobId,
        number: cob_types::Number,
        attempt: TransitionAttempt,
    ) -> Result<(), String> {
        let job = job_id(number);
        let context = self.context_of(cob)?;
        let handle = self.kinds.adopt(job, context, attempt).map_err(|e| e.to_string())?;
        self.jobs.begin(cob.clone(), job, handle);
        Ok(())
    }

    /// Reports the ends of jobs that never started.
    pub(super) fn take_pending_ends(&mut self) -> bool {
        let ends = self.jobs.take_ends();
        let any = !ends.is_empty();
        ends.into_iter().for_each(|e| self.job_ended(e));
        any
    }

    pub(super) fn feed_lost(&mut self, cob: CobId, job: cob_types::Number) {
        let outcome = cob_engine::event::ActionOutcome::Lost;
        self.feed(Event::ActionEnded { cob, job, outcome, span: (0, 0) });
    }
}
