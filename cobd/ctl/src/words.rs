//! Texts for people: durations, times, states, reasons to wait.
//!
//! Text that comes from a host (an error, a line that an action printed) goes through [`clean`] before it is shown: it
//! may contain terminal control sequences.

use std::fmt::Write as _;
use std::time::Duration;

use cob_kinds::is_unmanaged;
use cob_types::maintenance::{HostWindows, in_words};
use cob_types::status::{
    CobStatus, EARLIER_CONTENT, FileDrift, HostStatus, InvalidGrant, InvalidGrantCause, MadeTransition, Phase,
    SwitchStage, Trouble, Wait, WindowWait,
};
use cob_types::words::join;
pub use cob_types::words::{clean_lines, count, is_hostile, list, list_and, shell_word, span};
use cob_types::{StateName, calendar};

/// The longest text of a host that is shown in a line.
const LINE: usize = 200;
/// The limit of groups of hosts with the same maintenance windows in a message.
const GROUPS: usize = 4;

/// The time from `since` to `now`, by the same clock; `0 ms` if the clock was set back.
#[must_use]
pub fn ago(now_ns: u64, since_ns: u64) -> String {
    span(now_ns.saturating_sub(since_ns))
}

/// Parses a duration argument: `500ms`, `30s`, `5m`, `1h30m`.
///
/// # Errors
/// The fault in the text.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write a number with its unit, as in 500ms, 30s, 5m or 1h30m");
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let ms = match &rest[..letters] {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        let part = number.checked_mul(ms).map(Duration::from_millis).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
    }
    Ok(total)
}

/// A moment, in UTC: `2026-11-21 02:11:04.123Z`.
#[must_use]
pub fn utc(ns: u64) -> String {
    let (days, ms) = (ns / 86_400_000_000_000, ns / 1_000_000 % 86_400_000);
    let (year, month, day) = calendar::date(days.cast_signed());
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{:03}Z", ms % 1000)
}

/// A line of text that is safe to show: control characters are escaped, and long text is cut.
#[must_use]
pub fn clean(text: &str) -> String {
    clean_to(text, LINE)
}

/// The same with another limit.
#[must_use]
pub fn clean_to(text: &str, longest: usize) -> String {
    let mut shown = String::new();
    for (at, c) in text.trim_end().chars().enumerate() {
        if at == longest {
            shown.push('…');
            break;
        }
        match c {
            '\t' | '\n' | '\r' => shown.push(' '),
            c if is_hostile(c) => {
                let _ = write!(shown, "{}", c.escape_unicode());
            }
            c => shown.push(c),
        }
    }
    shown
}

/// The operator's limits on how many change objects of a host may move at a time.
#[must_use]
pub fn limits(host: &HostStatus) -> Vec<String> {
    let all = host.limit.map(|limit| format!("{limit} at a time"));
    let of_budget = |(budget, tokens): (&cob_types::CobId, &u32)| format!("{}: {tokens} at a time", budget.name());
    all.into_iter().chain(host.limits.iter().map(of_budget)).collect()
}

/// A number of seconds.
#[must_use]
pub fn seconds(seconds: u64) -> String {
    span(seconds.saturating_mul(1_000_000_000))
}

/// The maintenance windows that a switch waits for.
#[must_use]
pub fn window_wait(wait: &WindowWait) -> String {
    let group = |group: &HostWindows| {
        let windows = if group.windows.len() == 1 { "window" } else { "windows" };
        format!("the maintenance {windows} of {}: {}", clean(&group.hosts_in_words()), in_words(&group.windows))
    };
    let groups: Vec<String> = wait.windows.0.iter().take(GROUPS).map(group).collect();
    let more = match wait.windows.0.len().saturating_sub(GROUPS) {
        0 => String::new(),
        more => format!("; and of {}", count(more, "more group")),
    };
    let (open, opens) = match groups.len() {
        0 | 1 => ("", "opens"),
        _ => (" together", "they open"),
    };
    let when = match wait.opens_in_s {
        Some(0) => "it starts now".to_owned(),
        Some(s) => format!("{opens}{open} in {}", seconds(s)),
        None => "they are never open together".to_owned(),
    };
    let by = if wait.by.is_empty() { String::new() } else { format!(" (ordered by {})", clean(&wait.by)) };
    let windows = if groups.is_empty() { "maintenance windows".to_owned() } else { groups.join("; and ") };
    format!("the switch to generation {} waits for {windows}{more}, {when}{by}", wait.to)
}

/// The state of a host's switch, in lines.
#[must_use]
pub fn switch(host: &HostStatus) -> Vec<String> {
    let (Some(switch), name) = (&host.switch, &host.name) else { return Vec::new() };
    let why = if switch.why.is_empty() { String::new() } else { format!(": {}", clean(&switch.why)) };
    let mut lines = match (switch.stage, switch.left) {
        (SwitchStage::Stopped, _) => vec![format!("{name}: the rollback has stopped{why}")],
        (SwitchStage::Going | SwitchStage::Settled, Some(left)) => {
            // Whether this lasts is known a few seconds later.
            let there = host.converged && host.generation == Some(switch.to);
            let returns = if switch.stage == SwitchStage::Settled || there { "has rolled back" } else { "rolls back" };
            vec![format!("{name} {returns} from generation {left} to {}{why}", switch.to)]
        }
        (SwitchStage::Going, None) if host.goal() == Some(switch.to) && host.switching_to != Some(switch.to) => {
            vec![format!("{name} was not reachable: it continues to generation {}", switch.to)]
        }
        (SwitchStage::Going | SwitchStage::Settled, None) => Vec::new(),
    };
    if let Some(left) = switch.guard_left_ms {
        let unreached = if switch.unreached.is_empty() {
            String::new()
        } else {
            format!("; not reached: {}", list(&switch.unreached, 6))
        };
        lines.push(format!(
            "{name} rolls back in {} unless it reaches the other hosts{unreached}",
            span(left * 1_000_000)
        ));
    }
    let remains = |made: &MadeTransition| {
        format!("{name}: {} moved from {} to {}, which is irreversible", made.cob, made.from, made.to)
    };
    lines.extend(switch.remains.iter().map(remains));
    lines
}

/// An invalidated grant, and the next steps, as the host that knows of it reports.
#[must_use]
pub fn invalid_grant(host: &HostStatus, invalid_grant: &InvalidGrant) -> String {
    let InvalidGrant { of, held_by, since_ns, cause } = invalid_grant;
    let (since, holder) = (ago(host.now_ns, *since_ns), held_by.host_str());
    let hears = format!("{held_by} releases the grant, checks its state, and requests the grant again");
    match cause {
        InvalidGrantCause::Guard => format!(
            "{of} invalidated its grant to {held_by} {since} ago: the connectivity guard rolled {} back while {holder} was not \
             reachable; with the next link {hears}; if {holder} is off for good, `cobctl fence {holder}`",
            host.name
        ),
        InvalidGrantCause::Drift => format!(
            "a check {since} ago found {of} out of the state granted to {held_by}: {hears}; see `cobctl history --cob {of}`"
        ),
        InvalidGrantCause::Told => format!(
            "{held_by} lost its grant of {of} {since} ago: it checks its state and requests the grant again; for the reason see \
             `cobctl explain {of}` and `cobctl history --cob {of}`"
        ),
        InvalidGrantCause::Other => format!(
            "the grant of {of} to {held_by} has been invalid for {since}, for a reason that this cobctl does not know: its daemon is newer"
        ),
    }
}

/// `up`, `up or degraded`.
#[must_use]
pub fn states(all: &[StateName]) -> String {
    join(&all.iter().map(ToString::to_string).collect::<Vec<_>>(), "or")
}

/// A state that may be unknown.
#[must_use]
pub fn state(state: Option<&StateName>) -> &str {
    state.map_or("unknown", StateName::as_str)
}

/// The present and the desired state of a change object: `up`, `down → up`, `unknown`. An `absent` that says nothing
/// about the host is shown as `not managed`: the account or the file may exist.
#[must_use]
pub fn heading(cob: &CobStatus) -> String {
    let unmanaged = |state: &StateName| is_unmanaged(&cob.kind, state.as_str());
    match &cob.target {
        Some(target) if cob.state.as_ref() == Some(target) && unmanaged(target) => "not managed".to_owned(),
        Some(target) if cob.state.as_ref() != Some(target) => format!("{} → {target}", state(cob.state.as_ref())),
        Some(_) | None => state(cob.state.as_ref()).to_owned(),
    }
}

/// The phase in a word; faults take precedence.
#[must_use]
pub fn phase(cob: &CobStatus) -> &'static str {
    let stuck = cob.trouble.iter().any(|t| matches!(t, Trouble::Stuck { .. }));
    match cob.phase {
        _ if cob.failed => "failed",
        _ if stuck => "deadlock",
        Phase::Checking => "checking",
        Phase::Moving => "moving",
        Phase::Waiting | Phase::Settled if cob.observed => "observed",
        Phase::Waiting => "waiting",
        Phase::Settled if cob.stopped.is_some() => "stopped",
        Phase::Settled => "settled",
    }
}

/// The waits or the work of a change object, in a few words for a table.
#[must_use]
pub fn reasons(cob: &CobStatus, now_ns: u64) -> String {
    let told = |w: &Wait| {
        let met = cob.action.as_ref().is_some_and(|action| action.conflict);
        let decision = matches!(w, Wait::NoRoute { .. }) && cob.is_in_conflict() || matches!(w, Wait::Failed) && met;
        if decision { format!("a decision: `cobctl resolve {}`", cob.id) } else { wait(w, now_ns) }
    };
    let mut all: Vec<String> = cob.stopped.iter().map(|stopped| clean(&stopped.in_words())).collect();
    all.extend(cob.waits_for.iter().map(told));
    if all.is_empty() && cob.phase == Phase::Settled && cob.state.as_ref() != Some(&cob.preferred) {
        let by: Vec<_> = cob.held_by.iter().filter(|h| cob.state.as_ref() == Some(&h.state)).map(|h| &h.cob).collect();
        all.extend((!by.is_empty()).then(|| format!("kept in this state by {}", list(by, 3))));
    }
    if cob.action.as_ref().is_some_and(|action| action.earlier_content) {
        all.push(EARLIER_CONTENT.to_owned());
    }
    if let Some(action) = &cob.action {
        let mut text =
            if action.of > 1 { format!("attempt {} of {}", action.attempt, action.of) } else { String::new() };
        let last_line = if action.error.contains(&action.last_line) { "" } else { &action.last_line };
        for part in [&action.error, last_line] {
            if !part.is_empty() {
                text.push_str(if text.is_empty() { "" } else { ": " });
                text.push_str(&clean(part));
            }
        }
        if !text.is_empty() {
            all.push(text);
        }
    }
    all.extend(cob.trouble.iter().map(trouble));
    all.extend(cob.drift.iter().map(|file| drift(file, now_ns)));
    let shown = 4;
    let more = all.len().saturating_sub(shown);
    all.truncate(shown);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all.join("; ")
}

/// The change that others made to a file, and its known details.
#[must_use]
pub fn drift(file: &FileDrift, now_ns: u64) -> String {
    let mut text = format!("{} was changed by others", clean(&file.path));
    if let Some(at) = file.changed_s {
        text.push_str(&format!(" {} ago", ago(now_ns, at.saturating_mul(1_000_000_000))));
    }
    match &file.owner {
        Some(owner) => text.push_str(&format!(", belongs to {}", clean(owner))),
        None => text.push_str(", is gone"),
    }
    if !file.logged_in.is_empty() {
        text.push_str(&format!("; logged in: {}", clean(&file.logged_in.join(", "))));
    }
    text
}

/// A reason to wait, in a few words.
#[must_use]
pub fn wait(wait: &Wait, now_ns: u64) -> String {
    match wait {
        Wait::Lock { cob, states: wanted, refused: Some(reason), .. } => {
            format!("{cob} {} (refused: {})", states(wanted), clean(reason))
        }
        Wait::Lock { cob, states: wanted, recalled: true, .. } => {
            format!("{cob} {} again (recalled)", states(wanted))
        }
        Wait::Lock { cob, states: wanted, .. } => format!("{cob} {}", states(wanted)),
        Wait::Token { cob, .. } => format!("a token of {cob}"),
        Wait::Grant { cob, state, .. } => format!("{cob} to release {state}"),
        Wait::Retry { at_ns, attempt, of } => {
            format!("attempt {attempt} of {of} in {}", span(at_ns.saturating_sub(now_ns)))
        }
        Wait::Failed => "an order: `cobctl retry`".to_owned(),
        Wait::Paused => "an order: `cobctl resume`".to_owned(),
        Wait::Limit { at_most } => format!("its turn: {at_most} at a time"),
        Wait::Check => "its check to end".to_owned(),
        Wait::Other => "a reason that only a newer cobctl knows".to_owned(),
        Wait::Rest { until_ns } => format!("its next start in {}", span(until_ns.saturating_sub(now_ns))),
        Wait::NoRoute { to } => format!("no route to {to}"),
        Wait::Leaving => "departing: others wait for the switch".to_owned(),
        Wait::After { cob, .. } => format!("{cob} to depart"),
        Wait::Observed { to } => format!("observed only: it should be {to}"),
    }
}

/// A trouble of a change object, in a few words.
#[must_use]
pub fn trouble(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Stuck { circle: round, more } => format!("deadlock: {}", circle(round, *more)),
        Trouble::Chase { cob, times } => format!("requested {cob} and withdrew {}", count(*times, "time")),
        Trouble::Flap { state, times, because_of: Some(cob) } => {
            format!("left {state} {} because of {cob}", count(*times, "time"))
        }
        Trouble::Flap { state, times, because_of: None } if *state == "failed" => {
            format!("failed {}", count(*times, "time"))
        }
        Trouble::Flap { state, times, because_of: None } => format!("left {state} {} by itself", count(*times, "time")),
        Trouble::Other => "a fault that only a newer cobctl knows".to_owned(),
    }
}

/// `a waits for b waits for a`.
#[must_use]
pub fn circle(circle: &[cob_types::CobId], more: bool) -> String {
    let mut text = circle.iter().map(ToString::to_string).collect::<Vec<_>>().join(" waits for ");
    if more {
        text.push_str(" waits for …");
    }
    if let Some(first) = circle.first() {
        let _ = write!(text, " waits for {first}");
    }
    text
}

#[cfg(test)]
mod tests {
    use cob_types::maintenance::{Offset, SharedWindows, Window};

    use super::*;

    #[test]
    fn a_time_in_the_future_is_shown_as_zero() {
        assert_eq!((ago(9, 5).as_str(), ago(5, 9).as_str()), ("0 ms", "0 ms"));
    }

    #[test]
    fn a_switch_that_waits_names_windows_hosts_and_the_time_that_is_left() {
        let window = |text: &str| Window::parse(text, Offset::default()).expect("a window");
        let host = |name: &str| cob_types::HostName::new(name).expect("a name");
        let group = |text: &str, hosts: &[&str], more| HostWindows {
            windows: vec![window(text)],
            hosts: hosts.iter().map(|name| host(name)).collect(),
            more,
        };
        let mut wait = WindowWait {
            to: cob_types::GenerationNumber(8),
            by: "alice".to_owned(),
            since_ns: 0,
            windows: SharedWindows(vec![group("Sat 02:00-04:00", &["web1", "web2"], 0)]),
            opens_in_s: Some(3 * 3600 + 12 * 60),
        };
        assert_eq!(
            window_wait(&wait),
            "the switch to generation 8 waits for the maintenance window of web1, web2: Sat 02:00-04:00 UTC, opens in 3 h 12 min \
             (ordered by alice)"
        );
        wait.windows.0.push(group("Sun 02:00-04:00", &["db1"], 40));
        (wait.opens_in_s, wait.by) = (None, String::new());
        assert_eq!(
            window_wait(&wait),
            "the switch to generation 8 waits for the maintenance window of web1, web2: Sat 02:00-04:00 UTC; and the maintenance \
             window of db1 and 40 more: Sun 02:00-04:00 UTC, they are never open together"
        );
        wait.windows.0.clear();
        wait.opens_in_s = Some(0);
        assert_eq!(window_wait(&wait), "the switch to generation 8 waits for maintenance windows, it starts now");
    }

    #[test]
    fn an_off_state_without_effect_on_the_host_is_shown_as_not_managed() {
        let shown = |kind: &str, state: &str, target: &str| {
            heading(&CobStatus { kind: kind.to_owned(), ..crate::testing::moving("n1/x", state, target) })
        };
        assert_eq!(shown("user", "absent", "absent"), "not managed");
        assert_eq!(shown("user", "absent", "present"), "absent → present");
        assert_eq!(shown("user", "present", "present"), "present");
        assert_eq!(shown("package", "absent", "absent"), "absent");
        assert_eq!(shown("mine", "absent", "absent"), "absent");
    }

    #[test]
    fn spans_are_read_with_units_only() {
        assert_eq!(parse_span("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_span("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "7", "s", "1y", "1 s", "-1s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_are_right_over_leap_years() {
        assert_eq!(utc(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00.000Z");
        assert_eq!(utc(1_795_226_464_123_000_000), "2026-11-21 02:01:04.123Z");
        assert_eq!(utc(4_107_542_399_999_000_000), "2100-02-28 23:59:59.999Z");
        assert_eq!(utc(4_107_542_400_000_000_000), "2100-03-01 00:00:00.000Z");
        assert!(utc(u64::MAX).starts_with("2554-07-21"));
    }

    #[test]
    fn text_of_a_host_cannot_move_the_cursor() {
        assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}\n"), "a\\u{1b}[2Jb c\\u{202e}");
        assert_eq!(clean(&"x".repeat(1000)).chars().count(), LINE + 1);
        assert_eq!(clean_lines("a\tb\n\u{7}\r"), "a\tb\n\\u{7}\\u{d}");
    }

    #[test]
    fn lists_name_some_and_count_the_rest() {
        assert_eq!(list(["a"], 3), "a");
        assert_eq!(list(["a", "b", "c"], 3), "a, b and c");
        assert_eq!(list(["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!((count(1, "host"), count(0, "host")), ("1 host".to_owned(), "0 hosts".to_owned()));
    }
}
