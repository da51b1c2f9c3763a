//! `cobctl history`: the merged history, to its end or continuously.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cob_types::api::StatusOf;
use cob_types::history::HistoryEntry;
use cob_types::{CobId, GenerationNumber, HostName};

use super::forecast::Beside;
use super::{Context, leaving};
use crate::args::{HistoryArgs, Which};
use crate::client::{AskError, Client};
use crate::clocks::now_ns;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::merge::Merge;
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::{clean, utc};

/// How many entries are requested at once.
const PAGE: usize = 1000;
/// The most entries that a daemon returns at once.
const LONGEST_PAGE: usize = 10_000;
/// How often hosts are asked for new entries.
const FOLLOW: Duration = Duration::from_millis(400);

/// The events of locks.
const LOCKS: [&str; 6] = ["request", "hold", "grant", "release", "returned", "recall"];

/// Selects entries.
#[derive(Debug, Clone)]
struct Wanted {
    cob: Option<CobId>,
    since_generation: Option<GenerationNumber>,
    /// Leaves out the events of locks.
    moves: bool,
    /// Only from this time on, in nanoseconds.
    since_ns: u64,
    /// Only up to this time.
    until_ns: u64,
}

impl Wanted {
    fn takes(&self, entry: &HistoryEntry) -> bool {
        self.is_in_time(entry) && !self.leaves_out(entry)
    }

    fn is_in_time(&self, entry: &HistoryEntry) -> bool {
        self.since_generation.is_none_or(|since| entry.generation >= since)
            && (self.since_ns..=self.until_ns).contains(&entry.ts_ns)
    }

    /// Whether the entry is about a lock, and these are left out.
    fn leaves_out(&self, entry: &HistoryEntry) -> bool {
        self.moves && LOCKS.contains(&entry.event.as_str())
    }
}

/// The read position in the history of a host.
#[derive(Debug, Clone)]
struct Reading {
    target: Target,
    /// The position of the last printed entry.
    next: u64,
    /// How many entries of this position are printed: entries of a single write share a position, and a page may end
    /// between them.
    told: usize,
    /// Whether it could not be reached, and this was reported.
    lost: bool,
    /// Whether it is removed or about to depart, and does not answer: it is not asked again.
    silent: bool,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &HistoryArgs) -> CommandResult {
    if let Some(plan) = &args.compare_plan {
        return compare(context, screen, plan).await;
    }
    let (host, cob) = match &args.what {
        Some(Which::Host(host)) => (Some(host.clone()), None),
        Some(Which::Cob(cob)) => (None, Some(cob.clone())),
        None => (None, args.cob.clone()),
    };
    // A budget gives tokens, which are locks.
    let is_budget = cob.as_ref().is_some_and(|cob| cob.name().starts_with("budget/"));
    let now = now_ns();
    let wanted = Wanted {
        cob,
        since_generation: args.since_generation.map(|named| context.generation(named)).transpose()?,
        moves: args.moves || !(args.locks || context.json || is_budget),
        since_ns: args.since.map_or(0, |moment| moment.ns(now)),
        until_ns: args.until.map_or(u64::MAX, |moment| moment.ns(now)),
    };
    let mut following = match host {
        Some(host) => Following::of(&[context.locate(&host).await?]),
        None => Following::of_everybody(context, screen).await?,
    };
    let mut abandoned = std::pin::pin!(screen.abandoned());
    let (mut nothing, mut left_out) = (true, 0_usize);
    let mut last = args.last.map(|most| (most, VecDeque::new()));
    loop {
        let tell = |screen: &mut Screen, entry: HistoryEntry| {
            nothing = false;
            match &mut last {
                Some((most, kept)) => {
                    kept.push_back(entry);
                    if kept.len() > *most {
                        kept.pop_front();
                    }
                    Ok(())
                }
                None => Ok(screen.line(&told(context.json, &entry)?)?),
            }
        };
        left_out += to_the_end(context, screen, &wanted, &mut following.readings, tell).await?;
        for entry in last.take().into_iter().flat_map(|(_, kept)| kept) {
            screen.line(&told(context.json, &entry)?)?;
        }
        if !args.follow {
            break;
        }
        nothing = false;
        tokio::select! {
            () = tokio::time::sleep(FOLLOW) => {}
            error = &mut abandoned => return Err(error.into()),
        }
    }
    let exit = following.exit();
    if let Some(cob) = wanted.cob.as_ref().filter(|_| nothing && left_out == 0 && exit == Exit::Yes)
        && let Some(unknown) = context.unknown(cob).await
    {
        return Err(unknown);
    }
    if context.json && nothing && exit == Exit::Unreached {
        return Err(Failure::environment("no history could be read"));
    }
    if !context.json {
        note(screen, following.readings.len(), left_out, nothing);
    }
    Ok(exit)
}

/// Reports the order of the history, and the entries that are left out.
fn note(screen: &mut Screen, hosts: usize, left_out: usize, nothing: bool) {
    let mut parts = Vec::new();
    if nothing {
        parts.push("no other entries were found".to_owned());
    } else if hosts > 1 {
        parts.push("in causal order: an effect follows its cause, even if clocks differ".to_owned());
    }
    if left_out > 0 {
        parts.push(format!("{} about locks not shown (--locks)", cob_types::words::count(left_out, "entry")));
    }
    if !parts.is_empty() {
        screen.say(&format!("({})", parts.join("; ")));
    }
}

/// Compares a plan with the real switch.
async fn compare(context: &Context, screen: &mut Screen, plan: &std::path::Path) -> CommandResult {
    let mut beside = Beside::read(plan)?;
    let mut following = Following::new(context);
    following.add_hosts_of(context, screen, beside.generations()).await?;
    following.go_on(context, screen, |entry| beside.take(&entry)).await?;
    let exit = following.exit();
    if context.json {
        screen.json(&beside.json(0))?;
    } else if beside.has_begun() {
        for line in beside.compared(screen) {
            screen.line(&line)?;
        }
    } else {
        screen.line(&beside.line(0))?;
    }
    Ok(if exit == Exit::Yes && !beside.has_begun() { Exit::No } else { exit })
}

/// The histories of some hosts, read continuously.
#[derive(Debug)]
pub(super) struct Following {
    readings: Vec<Reading>,
}

impl Following {
    /// The histories of the hosts to ask.
    pub(super) fn new(context: &Context) -> Self {
        Self::of(&context.targets.all)
    }

    fn of(targets: &[Target]) -> Self {
        Self { readings: targets.iter().map(beginning).collect() }
    }

    /// The histories of all hosts, with the hosts that the present or last switch of the others removes.
    async fn of_everybody(context: &Context, screen: &mut Screen) -> Result<Self, Failure> {
        let mut all = Self::new(context);
        if !context.targets.narrowed && context.targets.depot.is_some() {
            let others = gather::cluster_of(&context.client, &context.targets.all, StatusOf::Active).await;
            all.add_hosts_of(context, screen, others.hosts.iter().flat_map(leaving::generations)).await?;
        }
        Ok(all)
    }

    /// Adds further hosts that these generations name, unless the user named hosts; reports hosts that do not answer.
    /// Returns the names of the added hosts.
    pub(super) async fn add_hosts_of(
        &mut self,
        context: &Context,
        screen: &mut Screen,
        generations: impl Iterator<Item = GenerationNumber>,
    ) -> Result<Vec<HostName>, Failure> {
        let known: Vec<Target> = self.readings.iter().map(|r| r.target.clone()).collect();
        let named = leaving::named_in(&context.targets, generations, &known)?;
        let mut names = Vec::new();
        for (target, status) in leaving::ask(context, &named, StatusOf::Active).await {
            let silent = !status.reachable;
            if silent {
                let why = status.error.unwrap_or_default();
                screen.problem("error", &format!("{} is missing (departed or departing): {why}", status.name));
            }
            names.push(target.stand_in());
            self.readings.push(Reading { lost: silent, silent, ..beginning(&target) });
        }
        Ok(names)
    }

    /// Takes new entries.
    pub(super) async fn go_on(
        &mut self,
        context: &Context,
        screen: &mut Screen,
        mut take: impl FnMut(HistoryEntry),
    ) -> Result<(), Failure> {
        let take = |_: &mut Screen, entry| {
            take(entry);
            Ok(())
        };
        to_the_end(context, screen, &ALL, &mut self.readings, take).await?;
        Ok(())
    }

    /// The number of the last read entry of each host.
    pub(super) fn positions(&self) -> BTreeMap<HostName, u64> {
        let read = self.readings.iter().filter(|reading| reading.told > 0);
        read.map(|reading| (reading.target.stand_in(), reading.next)).collect()
    }

    /// Continues behind these entries.
    pub(super) fn continue_at(&mut self, positions: &BTreeMap<HostName, u64>) {
        for reading in &mut self.readings {
            reading.next = positions.get(&reading.target.stand_in()).map_or(reading.next, |last| last + 1);
        }
    }

    /// Starts again at the first entry.
    pub(super) fn begin_again(&mut self) {
        self.readings.iter_mut().for_each(|reading| (reading.next, reading.told) = (0, 0));
    }

    /// The hosts whose histories could not be read completely.
    pub(super) fn lost(&self) -> BTreeSet<HostName> {
        self.readings.iter().filter(|r| r.lost).map(|r| r.target.stand_in()).collect()
    }

    fn exit(&self) -> Exit {
        if self.readings.iter().any(|r| r.lost) { Exit::Unreached } else { Exit::Yes }
    }
}

/// Selects every entry.
const ALL: Wanted = Wanted { cob: None, since_generation: None, moves: false, since_ns: 0, until_ns: u64::MAX };

/// Takes every entry of the hosts, in the order of the merged history; returns whether all hosts were reached.
pub(super) async fn each(
    context: &Context,
    screen: &mut Screen,
    since_generation: Option<GenerationNumber>,
    mut take: impl FnMut(HistoryEntry),
) -> CommandResult {
    let what = Wanted { since_generation, ..ALL };
    let mut following = Following::new(context);
    let take = |_: &mut Screen, entry| {
        take(entry);
        Ok(())
    };
    to_the_end(context, screen, &what, &mut following.readings, take).await?;
    Ok(following.exit())
}

fn beginning(target: &Target) -> Reading {
    Reading { target: target.clone(), next: 0, told: 0, lost: false, silent: false }
}

/// Merges the histories from their read positions; returns how many entries about locks were left out.
async fn to_the_end(
    context: &Context,
    screen: &mut Screen,
    what: &Wanted,
    readings: &mut [Reading],
    mut tell: impl FnMut(&mut Screen, HistoryEntry) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let mut left_out = 0;
    let mut merge = Merge::new(readings.len());
    for (at, _) in readings.iter().enumerate().filter(|(_, reading)| reading.silent) {
        merge.feed(at, Vec::new(), false);
    }
    loop {
        let wanted = merge.wanted();
        if !wanted.is_empty() {
            for (at, limit, page) in pages(&context.client, what, readings, &wanted).await {
                let reading = &mut readings[at];
                match page.and_then(|page| advance(reading, page, limit)) {
                    Ok((page, more)) => {
                        reading.lost = false;
                        merge.feed(at, page, more);
                    }
                    Err(error) => {
                        if !reading.lost {
                            let name = reading.target.stand_in();
                            screen.problem("error", &format!("{name} is missing from here on: {}", error.in_a_line()));
                        }
                        reading.lost = true;
                        merge.feed(at, Vec::new(), false);
                    }
                }
            }
        }
        while let Some(entry) = merge.next_entry() {
            left_out += usize::from(what.is_in_time(&entry) && what.leaves_out(&entry));
            if what.takes(&entry) {
                tell(screen, entry)?;
            }
        }
        if merge.wanted().is_empty() {
            return Ok(left_out);
        }
    }
}

/// The next pages of these histories, each with its limit.
async fn pages(
    client: &Client,
    what: &Wanted,
    readings: &[Reading],
    wanted: &[usize],
) -> Vec<(usize, usize, Result<Vec<HistoryEntry>, AskError>)> {
    let only = what.cob.as_ref().map(|cob| format!("&cob={cob}")).unwrap_or_default();
    let ask = |at: usize| {
        let reading = &readings[at];
        let limit = (PAGE + reading.told).min(LONGEST_PAGE);
        let path = format!("/v1/history?since={}&limit={limit}{only}", reading.next);
        (at, limit, reading.target.endpoint.clone(), path)
    };
    let asked: Vec<_> = wanted.iter().map(|at| ask(*at)).collect();
    let answers = gather::each(client, &asked, |client, (_, _, endpoint, path)| async move {
        client.lines::<HistoryEntry>(&endpoint, &path).await
    });
    answers.await.into_iter().map(|((at, limit, _, _), page)| (at, limit, page)).collect()
}

/// Moves a read position past a page, which must be from this host, in order, and start where it was requested. Removes
/// entries that are printed already.
fn advance(
    reading: &mut Reading,
    mut page: Vec<HistoryEntry>,
    limit: usize,
) -> Result<(Vec<HistoryEntry>, bool), AskError> {
    let wrong = |what: String| AskError::NotUnderstood { endpoint: reading.target.endpoint.clone(), what };
    let mut at = reading.next;
    for entry in &page {
        if reading.target.name.as_ref().is_some_and(|name| *name != entry.host) {
            return Err(wrong(format!("the answer is the history of {}", entry.host)));
        }
        if entry.seq < at {
            return Err(wrong(format!("entry {} was sent, but {at} or later was requested", entry.seq)));
        }
        at = entry.seq;
    }
    let more = page.len() >= limit;
    let again = page.iter().take(reading.told).take_while(|e| e.seq == reading.next).count();
    if more && again == page.len() {
        return Err(wrong(format!("no progress after entry {at}")));
    }
    let last = page.iter().rev().take_while(|e| e.seq == at).count();
    reading.told = if at == reading.next { last.max(reading.told) } else { last };
    reading.next = at;
    page.drain(..again);
    Ok((page, more))
}

fn told(json: bool, entry: &HistoryEntry) -> Result<String, Failure> {
    if json {
        return serde_json::to_string(entry).map_err(Failure::environment);
    }
    Ok(line(entry))
}

/// An entry as a line for people.
pub(crate) fn line(entry: &HistoryEntry) -> String {
    format!("{}  {}", utc(entry.ts_ns), what(entry))
}

/// An entry without the time.
pub(super) fn what(entry: &HistoryEntry) -> String {
    let subject = entry.cob.as_ref().map_or_else(|| entry.host.to_string(), ToString::to_string);
    let mut text = format!("g{:<3} {subject:<24} {:<9}", entry.generation, clean(&entry.event));
    match (&entry.from, &entry.to) {
        (Some(from), Some(to)) => text.push_str(&format!(" {from} → {to}")),
        (None, Some(to)) => text.push_str(&format!(" {to}")),
        (Some(from), None) => text.push_str(&format!(" {from} →")),
        (None, None) => {}
    }
    if let Some(attempt) = entry.attempt.filter(|n| *n > 1) {
        text.push_str(&format!("  attempt {attempt}"));
    }
    match entry.ok {
        Some(true) => text.push_str("  ok"),
        Some(false) => text.push_str("  FAILED"),
        None if entry.event == "end" => text.push_str("  result not known"),
        None => {}
    }
    if !entry.detail.is_empty() {
        text.push_str("  ");
        text.push_str(&clean(&entry.detail));
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, id, state};

    fn ended(ok: Option<bool>, attempt: u32, detail: &str) -> HistoryEntry {
        HistoryEntry {
            cob: Some(id("n1/db/server")),
            event: "end".to_owned(),
            from: Some(state("down")),
            to: Some(state("up")),
            attempt: Some(attempt),
            ok,
            detail: detail.to_owned(),
            ..entry("n1", 4, 9, 1_795_226_464_123_000_000)
        }
    }

    #[test]
    fn each_entry_is_shown_in_a_line() {
        let lines = [
            line(&entry("n1", 1, 1, 1_795_226_464_000_000_000)),
            line(&ended(Some(true), 1, "")),
            line(&ended(Some(false), 2, "exit status 1\u{1b}[2J")),
            line(&ended(None, 1, "")),
        ];
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn json_lines_have_the_fields_of_an_entry() {
        let text = told(true, &ended(None, 1, "")).expect("told");
        assert!(text.contains("\"ok\":null") && !text.contains('\n'), "{text}");
        assert_eq!(serde_json::from_str::<HistoryEntry>(&text).expect("an entry"), ended(None, 1, ""));
    }

    fn reading() -> Reading {
        let target = Target { name: None, endpoint: "tcp://127.0.0.1:1".parse().expect("an address") };
        Reading { target, next: 0, told: 0, lost: false, silent: false }
    }

    fn seqs(seqs: &[u64]) -> Vec<HistoryEntry> {
        seqs.iter().map(|seq| entry("n1", *seq, 1, 1)).collect()
    }

    #[test]
    fn a_page_may_end_between_entries_of_the_same_position() {
        let mut reading = reading();
        let mut read = |page: &[u64], limit| {
            let (page, more) = advance(&mut reading, seqs(page), limit).expect("in order");
            (page.iter().map(|e| e.seq).collect::<Vec<_>>(), more, reading.next, reading.told)
        };
        assert_eq!(read(&[3, 5, 5], 3), (vec![3, 5, 5], true, 5, 2));
        assert_eq!(read(&[5, 5, 5, 5, 5], 5), (vec![5, 5, 5], true, 5, 5));
        assert_eq!(read(&[5, 5, 5, 5, 5, 6], 8), (vec![6], false, 6, 1));
        assert_eq!(read(&[6], 4), (vec![], false, 6, 1));
        assert_eq!(read(&[], 4), (vec![], false, 6, 1), "an index that is not there for a while");
    }

    #[test]
    fn a_history_with_decreasing_positions_is_refused() {
        let mut reading = Reading { next: 5, told: 1, ..reading() };
        let mut fails = |page: Vec<HistoryEntry>| advance(&mut reading, page, 3).expect_err("refused").to_string();
        assert!(fails(seqs(&[4])).contains("entry 4 was sent, but 5"), "before the requested entry");
        assert!(fails(seqs(&[8, 7])).contains("entry 7 was sent, but 8"), "out of order");
        reading.told = 3;
        let error = advance(&mut reading, seqs(&[5, 5, 5]), 3).expect_err("refused").to_string();
        assert!(error.contains("no progress after entry 5"), "{error}");
        reading.target.name = Some("n2".parse().expect("a name"));
        let error = advance(&mut reading, seqs(&[9]), 3).expect_err("refused").to_string();
        assert!(error.contains("is the history of n1"), "{error}");
    }
}
