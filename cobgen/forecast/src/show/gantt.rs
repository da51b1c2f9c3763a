//! The transitions over time as an SVG picture: rows by host, a bar per transition, the critical path marked.

use std::collections::BTreeMap;
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

/// Draws a plan.
#[must_use]
pub fn to_svg(plan: &SwitchPlan) -> String {
    let mut hosts: BTreeMap<&str, Vec<&Planned>> = BTreeMap::new();
    for step in &plan.transitions {
        hosts.entry(step.cob.host_str()).or_default().push(step);
    }
    let on_path: std::collections::BTreeSet<&str> =
        plan.critical_path.iter().map(|at| plan.transitions[*at].cob.host_str()).collect();
    let mut drawn: Vec<(&str, Vec<Vec<&Planned>>)> =
        hosts.into_iter().map(|(host, steps)| (host, lanes(&steps))).collect();
    drawn.sort_by_key(|(host, _)| !on_path.contains(host));
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
    let end = plan.forecast.end_us.max(1);
    let title = format!("generation {} to {}, {}", plan.from, plan.to, time(plan.forecast.end_us));
    let _ = writeln!(out, "<text x=\"8\" y=\"16\" font-size=\"13\">{}</text>", escaped(&title));
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
            for step in lane {
                bar(&mut out, plan, step, end, TOP + row * ROW);
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
fn lanes<'p>(steps: &[&'p Planned]) -> Vec<Vec<&'p Planned>> {
    let mut lanes: Vec<Vec<&Planned>> = Vec::new();
    for step in steps {
        let free = |lane: &&mut Vec<&Planned>| lane.last().is_none_or(|last| last.end_us <= step.begin_us);
        match lanes.iter_mut().find(free) {
            Some(lane) => lane.push(step),
            None => lanes.push(vec![step]),
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

fn bar(out: &mut String, plan: &SwitchPlan, step: &Planned, end: u64, y: u64) {
    let (from, to) = (place(step.begin_us, end), place(step.end_us, end));
    let wide = (to - from).max(2);
    let critical = plan.critical_path.binary_search(&step.id).is_ok();
    let fill = if critical { "#b3261e" } else { "#5b7fa6" };
    let stroke = if step.irreversible { " stroke=\"#000000\" stroke-width=\"2\"" } else { "" };
    let what = format!("{} {} -> {}", step.cob, step.from, step.to);
    let notes = format!(
        "{what}\n{} to {}, may start up to {} later{}{}",
        time(step.begin_us),
        time(step.end_us),
        time(step.slack_us),
        if critical { "; on the critical path" } else { "" },
        if step.irreversible { "; irreversible" } else { "" }
    );
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect x=\"{from}\" y=\"{}\" width=\"{wide}\" height=\"{}\" rx=\"2\" fill=\"{fill}\"{stroke}/>",
        escaped(&notes),
        y + 2,
        ROW - 4
    );
    // A letter is about six dots wide.
    let letters = usize::try_from(wide / 6).unwrap_or(0);
    if letters >= 6 {
        let label = escaped(&short(&format!("{} {}", step.cob.name(), step.to), letters));
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
