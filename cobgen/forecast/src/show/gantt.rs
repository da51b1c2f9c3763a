//! The transitions over time as an SVG picture: rows by host, a bar per transition, the critical path marked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cob_types::words::count;

use super::words::time;
use crate::plan::{Planned, SwitchPlan};

/// The most rows drawn; in a larger plan the hosts of the critical path come first.
const ROWS: usize = 1500;
const LEFT: u64 = 190;
const WIDTH: u64 = 1000;
const ROW: u64 = 18;
const TOP: u64 = 46;

/// Bars over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// The text above.
    pub title: String,
    /// The length of the axis in microseconds.
    pub end_us: u64,
    /// The bars, by their start.
    pub bars: Vec<Bar>,
}

/// A bar of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// The host in whose rows it is.
    pub host: String,
    /// The text in the bar, as far as there is room.
    pub label: String,
    /// The text that appears under the pointer.
    pub notes: String,
    /// Its start in microseconds.
    pub begin_us: u64,
    /// Its end in microseconds.
    pub end_us: u64,
    /// It has the colour of important bars; their hosts are drawn in any case.
    pub marked: bool,
    /// It has a frame.
    pub framed: bool,
}

/// Draws a plan.
#[must_use]
pub fn to_svg(plan: &SwitchPlan) -> String {
    chart(&Chart {
        title: format!("generation {} to {}, {}", plan.from, plan.to, time(plan.forecast.end_us)),
        end_us: plan.forecast.end_us,
        bars: plan.transitions.iter().map(|step| planned(plan, step)).collect(),
    })
}

fn planned(plan: &SwitchPlan, step: &Planned) -> Bar {
    let critical = plan.critical_path.binary_search(&step.id).is_ok();
    let notes = format!(
        "{} {} -> {}\n{} to {}, may start up to {} later{}{}",
        step.cob,
        step.from,
        step.to,
        time(step.begin_us),
        time(step.end_us),
        time(step.slack_us),
        if critical { "; on the critical path" } else { "" },
        if step.irreversible { "; irreversible" } else { "" }
    );
    Bar {
        host: step.cob.host_str().to_owned(),
        label: format!("{} {}", step.cob.name(), step.to),
        notes,
        begin_us: step.begin_us,
        end_us: step.end_us,
        marked: critical,
        framed: step.irreversible,
    }
}

/// Draws a chart. No text of it becomes markup.
#[must_use]
pub fn chart(chart: &Chart) -> String {
    let mut hosts: BTreeMap<&str, Vec<&Bar>> = BTreeMap::new();
    for bar in &chart.bars {
        hosts.entry(&bar.host).or_default().push(bar);
    }
    let marked: BTreeSet<&str> = chart.bars.iter().filter(|bar| bar.marked).map(|bar| bar.host.as_str()).collect();
    let mut drawn: Vec<(&str, Vec<Vec<&Bar>>)> = hosts.into_iter().map(|(host, bars)| (host, lanes(&bars))).collect();
    drawn.sort_by_key(|(host, _)| !marked.contains(host));
    let (mut rows, mut shown) = (0, 0);
    for (_, lanes) in &drawn {
        if rows + lanes.len() > ROWS && shown > 0 {
            break;
        }
        rows += lanes.len();
        shown += 1;
    }
    let left_out = drawn.len() - shown;
    drawn.truncate(shown);
    drawn.sort_by_key(|(host, _)| *host);
    let height = TOP + rows as u64 * ROW + 24;
    let full = LEFT + WIDTH + 20;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full} {height}\" width=\"{full}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{full}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let end = chart.end_us.max(1);
    let _ = writeln!(out, "<text x=\"8\" y=\"16\" font-size=\"13\">{}</text>", escaped(&chart.title));
    axis(&mut out, end, height);
    let mut row = 0;
    for (number, (host, lanes)) in drawn.iter().enumerate() {
        let (y, tall) = (TOP + row * ROW, lanes.len() as u64 * ROW);
        if number % 2 == 0 {
            let _ = writeln!(out, "<rect x=\"0\" y=\"{y}\" width=\"{full}\" height=\"{tall}\" fill=\"#f3f5f7\"/>");
        }
        let name = escaped(&short(host, 28));
        let _ = writeln!(out, "<text x=\"8\" y=\"{}\">{name}</text>", y + 13);
        for lane in lanes {
            for one in lane {
                bar(&mut out, one, end, TOP + row * ROW);
            }
            row += 1;
        }
    }
    if left_out > 0 {
        let y = height - 8;
        let _ = writeln!(out, "<text x=\"8\" y=\"{y}\">{} not drawn</text>", count(left_out, "host"));
    }
    out.push_str("</svg>\n");
    out
}

/// Bars that do not overlap share a row.
fn lanes<'b>(bars: &[&'b Bar]) -> Vec<Vec<&'b Bar>> {
    let mut lanes: Vec<Vec<&Bar>> = Vec::new();
    for bar in bars {
        let free = |lane: &&mut Vec<&Bar>| lane.last().is_none_or(|last| last.end_us <= bar.begin_us);
        match lanes.iter_mut().find(free) {
            Some(lane) => lane.push(bar),
            None => lanes.push(vec![bar]),
        }
    }
    lanes
}

fn axis(out: &mut String, end: u64, height: u64) {
    let step = tick(end);
    for at in (0..=end / step).map(|n| n * step) {
        let x = place(at, end);
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{}\" stroke=\"#d5d9de\"/><text x=\"{x}\" y=\"{}\" \
             text-anchor=\"middle\" fill=\"#555\">{}</text>",
            TOP - 6,
            height - 24,
            TOP - 10,
            time(at)
        );
    }
}

/// A round time span that fits at most ten times into the whole.
fn tick(end: u64) -> u64 {
    let mut unit = 1;
    loop {
        for n in [1, 2, 5] {
            if end / (unit * n) <= 10 {
                return unit * n;
            }
        }
        unit *= 10;
    }
}

fn place(at: u64, end: u64) -> u64 {
    LEFT + u64::try_from(u128::from(at) * u128::from(WIDTH) / u128::from(end)).unwrap_or(WIDTH)
}

fn bar(out: &mut String, bar: &Bar, end: u64, y: u64) {
    let (from, to) = (place(bar.begin_us, end), place(bar.end_us, end));
    let wide = to.saturating_sub(from).max(2);
    let fill = if bar.marked { "#b3261e" } else { "#5b7fa6" };
    let stroke = if bar.framed { " stroke=\"#000000\" stroke-width=\"2\"" } else { "" };
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect x=\"{from}\" y=\"{}\" width=\"{wide}\" height=\"{}\" rx=\"2\" fill=\"{fill}\"{stroke}/>",
        escaped(&bar.notes),
        y + 2,
        ROW - 4
    );
    // A letter is about six dots wide.
    let letters = usize::try_from(wide / 6).unwrap_or(0);
    if letters >= 6 {
        let label = escaped(&short(&bar.label, letters));
        let _ =
            writeln!(out, "<text x=\"{}\" y=\"{}\" fill=\"#ffffff\" font-size=\"10\">{label}</text>", from + 4, y + 13);
    }
    out.push_str("</g>\n");
}

fn short(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Escapes a name so that it can only be text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_becomes_markup() {
        let hostile = "a</text><script>alert('x')</script>&\"\u{1b}[2J";
        let safe = escaped(hostile);
        assert_eq!(safe, "a&lt;/text&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;[2J");
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (end, expected) in [(10, 1), (11, 2), (999, 100), (1000, 100), (3_200_000, 500_000), (1, 1)] {
            assert_eq!(tick(end), expected, "{end}");
        }
    }
}
