//! The output of a tick, as it grows.

use std::collections::VecDeque;

use cob_types::{GenerationNumber, Item, Rank};

use crate::effect::{Effects, Run};
use crate::mail::Mail;
use crate::names::{CobRef, HostRef, Names};
use crate::record::{Body, Record};
use crate::time::Time;

/// Messages, records and jobs of the change objects, and the messages to other hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    mail: VecDeque<Mail>,
    /// Records that are not signed yet.
    records: Vec<Record>,
    runs: Vec<Run>,
    /// The change objects that could start, with the ranks of their goals, if a limit decides.
    ready: Vec<(CobRef, Rank)>,
    send: Vec<(HostRef, Item)>,
    activated: bool,
    /// In a tick that activates a generation, the previous generation, to which the earlier records belong. After a
    /// hand-over of records, the generation of the last of these records.
    came_from: Option<GenerationNumber>,
    /// Jobs that were decided before the activation in this tick.
    runs_first: Vec<Run>,
}

impl Output {
    /// Queues a message between change objects.
    pub(crate) fn post(&mut self, mail: Mail) {
        self.mail.push_back(mail);
    }

    pub(crate) fn next_mail(&mut self) -> Option<Mail> {
        self.mail.pop_front()
    }

    /// Adds a record; [`Self::sign_records`] sets its time, number and generation.
    pub(crate) fn record(&mut self, body: Body) {
        let (at, generation) = (Time(0), GenerationNumber(0));
        self.records.push(Record { at, lamport: 0, generation, body, by: None });
    }

    pub(crate) fn unsigned(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn run(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// A change object could start if the limit allows it.
    pub(crate) fn ready(&mut self, cob: CobRef, rank: Rank) {
        self.ready.push((cob, rank));
    }

    pub(crate) fn take_ready(&mut self) -> impl Iterator<Item = (CobRef, Rank)> {
        self.ready.drain(..)
    }

    pub(crate) fn send(&mut self, host: HostRef, item: Item) {
        self.send.push((host, item));
    }

    /// Puts items before all others.
    pub(crate) fn send_first(&mut self, mut items: Vec<(HostRef, Item)>) {
        if !items.is_empty() {
            items.append(&mut self.send);
            self.send = items;
        }
    }

    /// The receivers of items.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = HostRef> {
        self.send.iter().map(|(host, _)| *host)
    }

    /// A generation becomes active after another.
    pub(crate) fn activated(&mut self, before: GenerationNumber) {
        self.activated = true;
        self.came_from.get_or_insert(before);
        self.runs_first.append(&mut self.runs);
    }

    /// Takes the records made so far, and sets their time, number and generation. `active` is the active generation.
    pub(crate) fn sign_records(&mut self, active: GenerationNumber, lamport: &mut u64, now: Time) -> Vec<Record> {
        let mut records = std::mem::take(&mut self.records);
        let mut generation = self.came_from.unwrap_or(active);
        for record in &mut records {
            *lamport = lamport.saturating_add(1);
            if let Body::Activated(activated) = record.body {
                generation = activated;
            }
            (record.at, record.lamport, record.generation) = (now, *lamport, generation);
        }
        if let Some(came_from) = &mut self.came_from {
            *came_from = generation;
        }
        records
    }

    /// Ends the tick, after its last records.
    pub(crate) fn finish(&mut self, persist: Vec<Record>, names: &Names) -> Effects {
        self.came_from = None;
        let send = self.send.drain(..).map(|(host, item)| (names.host_name(host).clone(), item)).collect();
        Effects {
            persist,
            send,
            run_first: std::mem::take(&mut self.runs_first),
            activated: std::mem::take(&mut self.activated),
            run: std::mem::take(&mut self.runs),
        }
    }

    /// There is no output.
    pub(crate) fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.records.is_empty() && self.runs.is_empty() && self.ready.is_empty()
    }
}
