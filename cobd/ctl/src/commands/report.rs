//! `cobctl report`: what a switch did, as text, JSON, or a single HTML file.

use std::fs;

use anyhow::Context as _;
use cob_forecast::show::{Bar, Chart, chart};
use cob_types::GenerationNumber;
use cob_types::outcome::SwitchOutcome;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{Context, outcomes, replay};
use crate::args::ReportArgs;
use crate::failure::{Exit, Failure};
use crate::past::report::{Parts, SwitchStep};
use crate::screen::Screen;
use crate::words::{clean, count, span, utc};

/// The most rows of a table for people.
const ROWS: usize = 20;
/// The most rows of a table of an HTML file.
const ROWS_IN_HTML: usize = 1000;

/// The report. New versions only add fields.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct Report {
    generation: GenerationNumber,
    /// The message and the publisher of the generation; absent without a depot.
    published: Option<Published>,
    outcome: SwitchOutcome,
    #[serde(flatten)]
    parts: Parts,
}

#[derive(Debug, Serialize)]
struct Published {
    message: String,
    author: String,
    time_s: i64,
}

/// A table of a report.
#[derive(Debug, Serialize)]
struct Table {
    heading: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Row>,
    /// The rows that are left out.
    more: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    failed: bool,
    cells: Vec<String>,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &ReportArgs) -> Result<Exit, Failure> {
    let generation = context.generation(args.generation)?;
    let (steps, lost) = replay::steps(context, screen, generation, false).await?;
    let mut known = outcomes::known_to_hosts(context, screen, Some(generation)).await?;
    let outcome = known.outcomes.pop().ok_or_else(|| {
        Failure::refused(anyhow::anyhow!("no switch to generation {generation} is known"))
            .hint("`cobctl outcomes` lists the known switches")
    })?;
    let published = context.targets.open_depot()?.and_then(|depot| depot.published(generation));
    let published =
        published.map(|entry| Published { message: entry.message, author: entry.author, time_s: entry.time });
    let report = Report { generation, published, outcome, parts: Parts::of(&steps, generation) };
    if let Some(path) = &args.html {
        let text = html(&report)?;
        fs::write(path, text).with_context(|| format!("{}", path.display())).map_err(Failure::environment)?;
        screen.say(&format!("written: {}", path.display()));
    } else if context.json {
        screen.json(&report)?;
    } else {
        for line in lines(screen, &report) {
            screen.line(&line)?;
        }
    }
    let is_whole = !lost && known.silent.is_empty() && report.outcome.silent.is_empty();
    Ok(match report.outcome.is_converged() {
        _ if !is_whole => Exit::Unreached,
        true => Exit::Yes,
        false => Exit::No,
    })
}

/// The first sentence: how it ended.
fn sentence(report: &Report) -> String {
    let SwitchOutcome { began_ns, ended_ns, by, .. } = &report.outcome;
    let took = ended_ns.map(|end| format!(" after {}", span(end.saturating_sub(*began_ns)))).unwrap_or_default();
    let by = if by.is_empty() { String::new() } else { format!(", by {}", clean(by)) };
    format!("Generation {}: {}{took}; began {}{by}.", report.generation, report.outcome.in_words(), utc(*began_ns))
}

fn facts(report: &Report) -> Vec<String> {
    let Parts { transitions, interruptions, drifted, .. } = &report.parts;
    let mut facts = Vec::new();
    if let Some(Published { message, author, .. }) = &report.published {
        let first = message.lines().next().unwrap_or_default();
        facts.push(format!("published by {}: {}", clean(author), clean(first)));
    }
    let failed = report.parts.failed().count();
    let repeated = transitions.iter().filter(|step| step.attempts > 1).count();
    facts.push(format!(
        "{} on {}, {failed} failed, {repeated} repeated",
        count(transitions.len(), "transition"),
        count(report.outcome.hosts.len(), "host")
    ));
    match interruptions.first() {
        None => facts.push("no change object was interrupted".to_owned()),
        Some(longest) => facts.push(format!(
            "{} interrupted; the longest: {} for {}",
            count(interruptions.len(), "change object"),
            longest.cob,
            span(longest.ns)
        )),
    }
    if !drifted.is_empty() {
        facts.push(format!("changed from outside meanwhile: {}", count(drifted.len(), "change object")));
    }
    if !report.outcome.silent.is_empty() {
        facts.push(format!("without a report: {}", count(report.outcome.silent.len(), "host")));
    }
    facts
}

fn tables(report: &Report, most: usize) -> Vec<Table> {
    let parts = &report.parts;
    let table = |heading, columns, mut rows: Vec<Row>| {
        let more = rows.len().saturating_sub(most);
        rows.truncate(most);
        Table { heading, columns, rows, more }
    };
    let row = |cells: Vec<String>| Row { failed: false, cells };
    let hosts = report.outcome.hosts.iter().map(|(host, part)| {
        let moves: u32 = part.cobs.values().map(|cob| cob.moves).sum();
        let active = parts.activations.get(host.as_str()).map(|ns| format!("+{}", span(*ns))).unwrap_or_default();
        let from = part.from.map_or("none".to_owned(), |generation| generation.to_string());
        row(vec![host.to_string(), from, active, moves.to_string(), part.ended.word().to_owned()])
    });
    let failures = parts.failed().map(|step| Row {
        failed: true,
        cells: vec![step.cob.to_string(), states(step), step.attempts.to_string(), clean(&step.failure)],
    });
    let interruptions = parts.interruptions.iter().map(|away| {
        let at = format!("+{}", span(away.begin_ns));
        row(vec![away.cob.to_string(), away.state.to_string(), at, span(away.ns)])
    });
    let waits = parts.waits().into_iter().filter(|(_, waited)| waited.ns > 0);
    let waits = waits.map(|(cob, waited)| row(vec![cob.to_string(), clean(&waited.of), span(waited.ns)]));
    let mut longest: Vec<&SwitchStep> = parts.transitions.iter().filter(|step| step.end_ns.is_some()).collect();
    longest.sort_by_key(|step| std::cmp::Reverse(took(step)));
    let longest = longest.into_iter().map(|step| {
        let at = format!("+{}", span(step.begin_ns));
        row(vec![step.cob.to_string(), states(step), at, span(took(step)), step.attempts.to_string()])
    });
    let all = vec![
        table("Hosts", &["host", "from generation", "active", "transitions", "end"], hosts.collect()),
        table("Failures", &["change object", "transition", "attempts", "reason"], failures.collect()),
        table("Interruptions", &["change object", "state", "began", "took"], interruptions.collect()),
        table("Longest waits", &["change object", "waited for", "took"], waits.collect()),
        table("Longest transitions", &["change object", "transition", "began", "took", "attempts"], longest.collect()),
    ];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn states(step: &SwitchStep) -> String {
    format!("{} → {}", step.from, step.to)
}

fn took(step: &SwitchStep) -> u64 {
    step.end_ns.map_or(0, |end| end.saturating_sub(step.begin_ns))
}

/// The report for a terminal.
fn lines(screen: &Screen, report: &Report) -> Vec<String> {
    let mut lines = vec![sentence(report)];
    lines.extend(facts(report).into_iter().map(|fact| format!("  {fact}")));
    for table in tables(report, ROWS) {
        lines.push(String::new());
        lines.push(format!("{}:", table.heading));
        let mut shown = screen.table(table.columns);
        shown.add_rows(table.rows.into_iter().map(|row| row.cells));
        lines.extend(screen.lines(&shown));
        if table.more > 0 {
            lines.push(format!("… {} more, in the JSON", table.more));
        }
    }
    lines
}

/// The report as a file that loads nothing.
fn html(report: &Report) -> Result<String, Failure> {
    let bars = report.parts.transitions.iter().map(|step| {
        let end_ns = step.end_ns.unwrap_or_else(|| report.parts.end_ns());
        Bar {
            host: step.cob.host_str().to_owned(),
            label: format!("{} {}", step.cob.name(), step.to),
            notes: format!("{} {}, {}, {}", step.cob, states(step), span(took(step)), count(step.attempts, "attempt")),
            begin_us: step.begin_ns / 1000,
            end_us: end_ns / 1000,
            marked: step.ok == Some(false),
            framed: false,
        }
    });
    let title = format!("Switch to generation {}", report.generation);
    let picture = Chart { title: title.clone(), end_us: report.parts.end_ns() / 1000, bars: bars.collect() };
    let picture = if picture.bars.is_empty() { String::new() } else { chart(&picture) };
    let mut pages = minijinja::Environment::new();
    let template = pages.add_template("report.html", include_str!("report.html"));
    let text = template.and_then(|()| {
        pages.get_template("report.html")?.render(minijinja::context! {
            title,
            sentence => sentence(report),
            facts => facts(report),
            tables => minijinja::value::Serde(tables(report, ROWS_IN_HTML)),
            picture,
        })
    });
    text.context("the report can't be written as HTML").map_err(Failure::environment)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cob_types::outcome::Ended;

    use super::*;
    use crate::testing::{id, state};

    fn report() -> Report {
        let step = |cob: &str, to: &str, (begin_ns, end_ns), ok| SwitchStep {
            cob: id(cob),
            from: state("down"),
            to: state(to),
            begin_ns,
            end_ns: Some(end_ns),
            attempts: 1,
            ok: Some(ok),
            failure: if ok { String::new() } else { "<script>alert(1)</script>".to_owned() },
            waited: Vec::new(),
        };
        let transitions = vec![
            step("n1/web", "up", (1_000_000_000, 3_000_000_000), true),
            step("n2/db", "up", (2_000_000_000, 9_000_000_000), false),
        ];
        let outcome = SwitchOutcome {
            format: cob_types::outcome::FORMAT,
            to: GenerationNumber(4),
            by: "olga".to_owned(),
            began_ns: 1_700_000_000_000_000_000,
            ended_ns: Some(1_700_000_012_000_000_000),
            ended: Ended::Failed,
            hosts: BTreeMap::new(),
            silent: std::collections::BTreeSet::new(),
        };
        let published = Published { message: "a & b\n".to_owned(), author: "Ann <a@b>".to_owned(), time_s: 0 };
        let parts = Parts { transitions, ..Parts::default() };
        Report { generation: GenerationNumber(4), published: Some(published), outcome, parts }
    }

    #[test]
    fn a_report_for_people() {
        let text = lines(&Screen::memory().0, &report()).join("\n");
        assert!(text.starts_with("Generation 4: "), "{text}");
        for part in ["2 transitions on 0 hosts, 1 failed, 0 repeated", "\nFailures:\n", "\nLongest transitions:\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn no_text_of_a_host_becomes_markup() {
        let text = html(&report()).expect("HTML");
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script"), "{text}");
        assert!(text.contains("<svg ") && text.contains("a &amp; b"), "{text}");
    }
}
