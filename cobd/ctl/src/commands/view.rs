//! Hosts and change objects as tables, for `status` and `watch`.

use std::collections::BTreeSet;

use cob_types::HostName;
use cob_types::status::{
    ClusterStatus, CobStatus, HostStatus, InvalidGrant, Phase, RefusedTokens, Trouble, Unjustified, WindowWait,
};
use comfy_table::Table;

use crate::args::Which;
use crate::clocks;
use crate::gather::refusal;
use crate::screen::{Mark, Paint, Screen};
use crate::verdict::{Expected, Verdict, is_converged, is_left_there, judge, judge_named};
use crate::words::{
    ago, clean, count, heading, invalid_grant, limits, list, phase, reasons, seconds, span, switch, window_wait,
};

/// Up to this many change objects are all shown; of more, only the ones that are not settled.
const MANY: usize = 60;

/// How many invalidated grants are shown.
const LAPSES: usize = 8;

/// Which change objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// All, if they are few or were named; otherwise the ones that are not settled.
    Fitting,
    /// All.
    All,
}

/// Keeps only the named hosts and change objects; without names, all.
pub(super) fn narrow(cluster: &mut ClusterStatus, only: &[Which]) {
    if only.is_empty() {
        return;
    }
    cluster.hosts.retain(|h| only.iter().any(|w| w.host() == h.name) || !h.reachable);
    for host in &mut cluster.hosts {
        host.cobs.retain(|c| only.iter().any(|which| which.covers(&c.id)));
    }
}

/// The verdict on the named hosts and change objects.
pub(super) fn answer(cluster: &ClusterStatus, only: &[Which], expected: &Expected) -> Verdict {
    let (mut whole, mut cobs) = (BTreeSet::new(), Vec::new());
    for which in only {
        match which {
            Which::Host(host) => drop(whole.insert(host.clone())),
            Which::Cob(cob) => cobs.push(cob),
        }
    }
    if cobs.is_empty() { judge(cluster, expected) } else { judge_named(cluster, &whole, &cobs, &expected.contents) }
}

/// The answer, hosts and change objects.
pub(super) fn lines(
    screen: &Screen,
    cluster: &ClusterStatus,
    only: &[Which],
    shown: Shown,
    verdict: &Verdict,
) -> Vec<String> {
    let mut lines = conclusion(screen, cluster, verdict);
    lines.push(String::new());
    lines.extend(screen.lines(&hosts(screen, cluster)));
    let named = !only.is_empty();
    let total: usize = cluster.hosts.iter().map(|h| h.cobs.len()).sum();
    let every = named || shown == Shown::All || total <= MANY;
    let rows: Vec<(&HostStatus, &CobStatus)> = cluster
        .hosts
        .iter()
        .flat_map(|h| h.cobs.iter().map(move |c| (h, c)))
        .filter(|(_, c)| every || !is_converged(c))
        .collect();
    if !rows.is_empty() {
        lines.push(String::new());
        lines.extend(screen.lines(&cobs(screen, &rows)));
    }
    if rows.len() < total {
        let rest = count(total - rows.len(), "settled change object");
        lines.push(screen.paint(Paint::Dim, &format!("{rest} not shown (see --all)")));
    }
    lines.extend(notes(screen, cluster, only));
    lines
}

/// The lines after the tables: rollbacks, waits for windows, invalidated grants, warnings, refused attempts.
pub(super) fn notes(screen: &Screen, cluster: &ClusterStatus, only: &[Which]) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(cluster.hosts.iter().flat_map(switch).map(|line| screen.paint(Paint::Bad, &line)));
    let waits = window_waits(cluster.hosts.iter().filter_map(|host| host.window_wait.as_ref()));
    lines.extend(waits.iter().map(|line| screen.paint(Paint::Strong, line)));
    lines.extend(invalid_grants(screen, cluster, only));
    lines.extend(safety(screen, cluster));
    let mut attempts: Vec<String> = cluster.hosts.iter().filter_map(refused).collect();
    attempts.extend(cluster.hosts.iter().flat_map(unjustified).map(|line| screen.paint(Paint::Bad, &line)));
    attempts.extend(refused_tokens(&cluster.refused_tokens));
    if !attempts.is_empty() {
        lines.push(String::new());
        lines.extend(attempts);
    }
    lines
}

/// Invalidated grants of the named hosts and change objects.
fn invalid_grants(screen: &Screen, cluster: &ClusterStatus, only: &[Which]) -> Vec<String> {
    let concerns = |host: &HostStatus, grant: &InvalidGrant| {
        only.is_empty()
            || only.iter().any(|which| match which {
                Which::Host(name) => *name == host.name,
                Which::Cob(id) => *id == grant.of || *id == grant.held_by,
            })
    };
    let of_host = |host: &HostStatus| -> Vec<String> {
        host.invalid_grants.iter().filter(|l| concerns(host, l)).map(|l| invalid_grant(host, l)).collect()
    };
    let all: Vec<String> = cluster.hosts.iter().flat_map(of_host).collect();
    let more = all.len().saturating_sub(LAPSES);
    let mut lines: Vec<String> = all.iter().take(LAPSES).map(|line| screen.paint(Paint::Bad, line)).collect();
    if more > 0 {
        lines.push(screen.paint(Paint::Dim, &format!("{} more (see --json)", count(more, "invalidated grant"))));
    }
    lines
}

/// Warnings about access, refused attempts and clocks.
fn safety(screen: &Screen, cluster: &ClusterStatus) -> Vec<String> {
    let differing = clocks::differing(cluster).into_iter();
    let mut lines: Vec<String> =
        differing.map(|(host, said)| screen.paint(Paint::Bad, &format!("{host}: {said}"))).collect();
    let open: Vec<_> = cluster.hosts.iter().filter(|h| h.security.as_deref() == Some("loopback-only")).collect();
    if !open.is_empty() {
        let all = open.len() == cluster.hosts.iter().filter(|h| h.reachable).count();
        let of = if all { String::new() } else { format!(" of {}", list(open.iter().map(|h| &h.name), 4)) };
        let text = format!("security{of}: loopback-only (no keys: all local users may give orders)");
        lines.push(screen.paint(Paint::Dim, &text));
    }
    for host in cluster.hosts.iter().filter(|h| h.denied > 0) {
        let text = format!("{} refused {} without a valid key", host.name, count64(host.denied));
        lines.push(screen.paint(Paint::Bad, &text));
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn count64(requests: u64) -> String {
    count(usize::try_from(requests).unwrap_or(usize::MAX), "request")
}

/// The requests that a host has refused recently, if any.
fn refused(host: &HostStatus) -> Option<String> {
    let counts = host.refused.counts();
    let told: Vec<_> =
        counts.iter().filter(|(_, n)| *n > 0).map(|(why, n)| format!("{} {n}", why.replace('_', " "))).collect();
    (!told.is_empty()).then(|| format!("{} refused: {} (see its log for the senders)", host.name, told.join(", ")))
}

/// Hosts that send a host requests without a dependency.
fn unjustified(host: &HostStatus) -> Vec<String> {
    let told = |refused: &Unjustified| {
        let (here, there) = (&host.name, &refused.host);
        let requests = count64(refused.requests);
        format!("{here} refused {requests} of {there} without a dependency (see `cobctl trust doctor {here} {there}`)")
    };
    host.unjustified.iter().map(told).collect()
}

/// Refused enrolment tokens.
fn refused_tokens(tokens: &RefusedTokens) -> Vec<String> {
    let times = |n: u64| count(usize::try_from(n).unwrap_or(usize::MAX), "time");
    let of_host = |(host, n): (&HostName, &u64)| {
        format!("`cobgen serve` refused the token of {host} {} (see `cobgen enroll --list`)", times(*n))
    };
    let mut lines: Vec<_> = tokens.hosts.iter().map(of_host).collect();
    if tokens.unknown > 0 {
        lines.push(format!("`cobgen serve` refused unknown tokens {}", times(tokens.unknown)));
    }
    lines
}

fn hosts(screen: &Screen, cluster: &ClusterStatus) -> Table {
    let mut table = screen.table(&["  HOST", "GENERATION", "STATE", "SETTLED"]);
    for host in &cluster.hosts {
        let converged = host.cobs.iter().filter(|c| is_converged(c)).count();
        let (mut mark, mut state) = host_state(host);
        if let Some(apart) = apart(host, cluster) {
            state.push_str(apart);
            mark = if mark == Mark::Good { Mark::Busy } else { mark };
        }
        table.add_row([
            format!("{} {}", mark.sign(), host.name),
            match (host.generation, host.switching_to.or(host.goal())) {
                (Some(active), Some(next)) => format!("{active} → {next}"),
                (Some(active), None) => active.to_string(),
                (None, Some(next)) => format!("– → {next}"),
                (None, None) => "–".to_owned(),
            },
            state,
            if host.reachable { format!("{converged} of {}", host.cobs.len()) } else { String::new() },
        ]);
    }
    table
}

/// Why a host has another generation than the others, if so: then it is not well, even if it says so.
fn apart(host: &HostStatus, cluster: &ClusterStatus) -> Option<&'static str> {
    let own = host.generation.filter(|_| host.reachable && host.goal().is_none())?;
    let others = || cluster.hosts.iter().filter(|other| other.reachable);
    let is_another = |other: &HostStatus| matches!((host.manifest, other.manifest), (Some(a), Some(b)) if a != b);
    if others().any(|other| other.newest() > Some(own)) {
        return Some(", in an older generation");
    }
    others().any(|other| other.generation == Some(own) && is_another(other)).then_some(", not the same on all hosts")
}

pub(crate) fn host_state(host: &HostStatus) -> (Mark, String) {
    if !host.reachable {
        if let Some(why) = refusal(host) {
            return (Mark::Bad, format!("refuses: {}", clean(why)));
        }
        let why = host.error.as_deref().unwrap_or("no reason is known");
        return (Mark::Unknown, format!("unreachable: {}", clean(why)));
    }
    let failed = host.cobs.iter().filter(|c| needs_a_hand(c)).count();
    let mut parts = vec![if host.goal().is_some() {
        "switching".to_owned()
    } else if host.generation.is_none() {
        "empty".to_owned()
    } else if host.converged && host.cobs.iter().all(|c| is_converged(c) || is_left_there(c)) {
        "converged".to_owned()
    } else if failed > 0 && !host.cobs.iter().any(|c| matches!(c.phase, Phase::Checking | Phase::Moving)) {
        // No change object progresses by itself.
        "not converged".to_owned()
    } else {
        "converging".to_owned()
    }];
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if let Some(generation) = host.held {
        parts.push(format!("held: switch to {generation} cancelled"));
    } else if host.paused {
        parts.push("paused".to_owned());
    }
    parts.extend(limits(host));
    parts.extend(host.window_wait.as_ref().map(|wait| {
        let opens = wait.opens_in_s.map_or("never open together".to_owned(), |s| format!("opens in {}", seconds(s)));
        format!("switch to {} waits for maintenance windows ({opens})", wait.to)
    }));
    if !host.prepared.is_empty() {
        parts.push(format!("{} prepared", list(host.prepared.iter(), 3)));
    }
    let down: Vec<_> = host.peers.iter().filter(|p| !p.up).map(|p| &p.host).collect();
    if !down.is_empty() {
        parts.push(format!("no link to {}", list(down.iter(), 3)));
    }
    let unheard: Vec<_> = host.peers.iter().filter(|p| p.unheard.is_some()).map(|p| &p.host).collect();
    if !unheard.is_empty() {
        parts.push(format!("does not hear {}", list(unheard.iter(), 3)));
    }
    if host.clock_ahead_s > 0 {
        parts.push(format!("its clock is {} ahead", span(host.clock_ahead_s.saturating_mul(1_000_000_000))));
    }
    if !host.invalid_grants.is_empty() {
        parts.push(count(host.invalid_grants.len(), "invalidated grant"));
    }
    let left = host.cobs.iter().filter(|c| is_left_there(c)).count();
    if left > 0 {
        parts.push(format!("{left} observed elsewhere"));
    }
    let mark = match parts.as_slice() {
        _ if failed > 0 => Mark::Bad,
        [only] if only == "converged" => Mark::Good,
        _ => Mark::Busy,
    };
    (mark, parts.join(", "))
}

/// Waiting switches in lines: hosts with the same wait share a line.
pub(super) fn window_waits<'a>(waits: impl Iterator<Item = &'a WindowWait>) -> Vec<String> {
    let mut told: Vec<&WindowWait> = Vec::new();
    for wait in waits {
        if !told.iter().any(|other| (other.to, &other.windows) == (wait.to, &wait.windows)) {
            told.push(wait);
        }
    }
    told.into_iter().map(window_wait).collect()
}

pub(crate) fn needs_a_hand(cob: &CobStatus) -> bool {
    cob.failed || cob.trouble.iter().any(|t| matches!(t, Trouble::Stuck { .. }))
}

fn cobs(screen: &Screen, rows: &[(&HostStatus, &CobStatus)]) -> Table {
    let mut table = screen.table(&["  COB", "STATE", "PHASE", "SINCE", "WAITS FOR"]);
    for (host, cob) in rows {
        let mark = match cob.phase {
            _ if needs_a_hand(cob) => Mark::Bad,
            Phase::Settled if is_converged(cob) => Mark::Good,
            Phase::Checking | Phase::Moving | Phase::Waiting | Phase::Settled => Mark::Busy,
        };
        table.add_row([
            format!("{} {}", mark.sign(), cob.id),
            heading(cob),
            phase(cob).to_owned(),
            ago(host.now_ns, cob.since_ns),
            reasons(cob, host.now_ns),
        ]);
    }
    table
}

/// The answer in words.
pub(super) fn conclusion(screen: &Screen, cluster: &ClusterStatus, verdict: &Verdict) -> Vec<String> {
    let total: usize = cluster.hosts.iter().map(|h| h.cobs.len()).sum();
    match verdict {
        Verdict::Converged(generation) => {
            let head = screen.paint(Paint::Good, "OK");
            let (hosts, cobs) = (count(cluster.hosts.len(), "host"), count(total, "change object"));
            let stopped = cluster.hosts.iter().flat_map(|h| &h.cobs).filter(|cob| cob.stopped.is_some()).count();
            let stopped = if stopped > 0 { format!("; {stopped} stopped by order") } else { String::new() };
            vec![match generation {
                Some(generation) => {
                    format!("{head}: generation {generation} has converged on {hosts}, {cobs}{stopped}")
                }
                None => format!("{head}: converged, {cobs} on {hosts}{stopped}"),
            }]
        }
        Verdict::Not(reasons) => told(screen, "not converged", Vec::new(), reasons, next_step(cluster)),
        Verdict::Unreached(hosts, reasons) => {
            let silent = format!("{} could not be reached", list(hosts, 4));
            told(screen, "unknown whether converged", vec![silent], reasons, next_step(cluster))
        }
    }
}

/// The command that helps an operator most if the cluster has not converged.
pub(super) fn next_step(cluster: &ClusterStatus) -> Option<String> {
    let reached = || cluster.hosts.iter().filter(|h| h.reachable);
    let away = || reached().flat_map(|h| &h.cobs).filter(|c| !is_converged(c) && !is_left_there(c));
    if let Some(cob) = away().find(|c| needs_a_hand(c)) {
        return Some(format!("`cobctl explain {}`", cob.id));
    }
    if let Some(host) = cluster.hosts.iter().find(|h| !h.reachable) {
        return Some(match refusal(host) {
            Some(_) => "`cobctl trust whoami`".to_owned(),
            None => format!("`systemctl status cobd` on {}", host.name),
        });
    }
    if reached().any(|h| h.paused || h.held.is_some()) {
        return Some("`cobctl resume`".to_owned());
    }
    if let Some(host) = reached().find(|h| h.goal().is_some()) {
        return Some(format!("`cobctl explain {}`", host.name));
    }
    if let Some(cob) = away().next() {
        return Some(format!("`cobctl explain {}`", cob.id));
    }
    match reached().filter_map(HostStatus::newest).max() {
        Some(newest) if reached().any(|h| h.generation != Some(newest)) => Some(format!("`cobctl switch {newest}`")),
        None if !cluster.hosts.is_empty() => Some("`cobctl switch latest`".to_owned()),
        Some(_) | None => None,
    }
}

fn told(screen: &Screen, head: &str, first: Vec<String>, reasons: &[String], next: Option<String>) -> Vec<String> {
    let shown = 6;
    let mut all: Vec<String> = first.into_iter().chain(reasons.iter().take(shown).cloned()).collect();
    if reasons.len() > shown {
        all.push(count(reasons.len() - shown, "more reason"));
    }
    let head = screen.paint(Paint::Bad, head);
    let next = next.map_or_else(String::new, |next| format!("; next: {next}"));
    match all.as_slice() {
        [] => vec![format!("{head}{next}")],
        [one] => vec![format!("{head}: {one}{next}")],
        many => std::iter::once(format!("{head}{next}")).chain(many.iter().map(|r| format!("  {r}"))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use crate::testing::{cluster, failed, host, lock, moving, settled, waiting};
    use cob_types::GenerationNumber;
    use cob_types::status::Wait;

    fn mixed() -> ClusterStatus {
        let mut n2 = host("n2", 6, vec![waiting("n2/app", "down", "up", vec![lock("n1/db", "up")])]);
        n2.switching_to = Some(GenerationNumber(7));
        n2.paused = true;
        let n3 = crate::gather::unreachable(
            cob_types::HostName::new("n3").expect("a name"),
            "no connection to tcp://127.0.0.1:7079: Connection refused".to_owned(),
        );
        let n1 = host("n1", 7, vec![moving("n1/db", "down", "up"), settled("n1/ip", "up")]);
        cluster(vec![n1, n2, n3, host("n4", 7, vec![failed("n4/fs", "absent", "mounted")])])
    }

    fn shown(cluster: &ClusterStatus, only: &[Which]) -> String {
        let (screen, _) = Screen::memory();
        let mut narrowed = cluster.clone();
        narrow(&mut narrowed, only);
        let verdict = answer(&narrowed, only, &Expected::default());
        lines(&screen, &narrowed, only, Shown::Fitting, &verdict).join("\n")
    }

    #[test]
    fn a_mixed_cluster_is_shown() {
        insta::assert_snapshot!(shown(&mixed(), &[]));
    }

    #[test]
    fn a_converged_cluster_is_shown() {
        insta::assert_snapshot!(shown(&cluster(vec![host("n1", 7, vec![settled("n1/ip", "up")])]), &[]));
    }

    #[test]
    fn an_observed_change_object_shows_its_desired_state() {
        let astray = vec![Wait::Observed { to: crate::testing::state("up") }];
        let db = CobStatus { observed: true, ..waiting("n1/db", "down", "up", astray) };
        let ip = CobStatus { observed: true, ..settled("n1/ip", "up") };
        insta::assert_snapshot!(shown(&cluster(vec![host("n1", 7, vec![db, ip])]), &[]));
    }

    #[test]
    fn only_unsettled_change_objects_of_many_are_shown() {
        let mut cobs: Vec<_> = (0..100).map(|n| settled(&format!("n1/c{n}"), "up")).collect();
        cobs.push(failed("n1/db", "down", "up"));
        let text = shown(&cluster(vec![host("n1", 7, cobs)]), &[]);
        assert!(text.contains("n1/db") && !text.contains("n1/c5"), "{text}");
        assert!(text.contains("100 settled change objects not shown (see --all)"), "{text}");
    }

    #[test]
    fn the_status_shows_hosts_without_keys_and_refused_requests() {
        let mut n1 = host("n1", 7, vec![]);
        n1.security = Some("loopback-only".to_owned());
        let mut n2 = host("n2", 7, vec![]);
        n2.security = Some("identities".to_owned());
        let text = shown(&cluster(vec![n1.clone()]), &[]);
        assert!(text.contains("security: loopback-only (no keys: all local users may give orders)"), "{text}");
        n2.denied = 3;
        let text = shown(&cluster(vec![n1, n2.clone()]), &[]);
        assert!(text.contains("security of n1: loopback-only"), "{text}");
        assert!(text.contains("n2 refused 3 requests without a valid key"), "{text}");
        n2.denied = 0;
        assert!(!shown(&cluster(vec![n2]), &[]).contains("security"));
    }

    #[test]
    fn a_request_without_a_dependency_is_reported_with_its_host() {
        let id = |text| cob_types::CobId::new(text).expect("an id");
        let mut n1 = host("n1", 7, vec![]);
        n1.unjustified.push(Unjustified {
            host: HostName::new("n2").expect("a name"),
            requests: 3,
            last_ns: 1,
            asker: id("n2/thing"),
            asked: id("n1/config"),
            states: Vec::new(),
            generation: None,
        });
        let text = shown(&cluster(vec![n1]), &[]);
        let line = "n1 refused 3 requests of n2 without a dependency (see `cobctl trust doctor n1 n2`)";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn refusals_are_counted_by_reason_and_by_token() {
        let mut n1 = host("n1", 7, vec![]);
        n1.refused.stranger = 200;
        n1.refused.not_tls = 1;
        let mut cluster = cluster(vec![n1]);
        let text = shown(&cluster, &[]);
        assert!(text.contains("n1 refused: stranger 200, not tls 1 (see its log for the senders)"), "{text}");
        assert!(!text.contains("token"), "{text}");
        cluster.refused_tokens.hosts.insert(HostName::new("n2").expect("a name"), 1);
        cluster.refused_tokens.unknown = 7;
        let text = shown(&cluster, &[]);
        assert!(text.contains("refused the token of n2 1 time (see `cobgen enroll --list`)"), "{text}");
        assert!(text.contains("refused unknown tokens 7 times"), "{text}");
    }

    #[test]
    fn a_named_change_object_gets_its_own_verdict() {
        let mixed = mixed();
        let verdict = |which: &[&str]| {
            let only: Vec<Which> = which.iter().map(|w| w.parse().expect("an id")).collect();
            let mut narrowed = mixed.clone();
            narrowed.hosts.retain(|h| h.reachable);
            narrow(&mut narrowed, &only);
            (answer(&narrowed, &only, &Expected::default()), narrowed)
        };
        let of = |which: &str| verdict(&[which]).0.exit();
        assert_eq!((of("n1/ip"), of("n1/db"), of("n1/nothing"), of("n1")), (Exit::Yes, Exit::No, Exit::No, Exit::No));

        // Other named hosts are judged as a whole, each with its own generation.
        let Verdict::Not(why) = verdict(&["n1/ip", "n4"]).0 else { panic!("n4/fs has failed") };
        assert_eq!(why, ["n4: 1 change object not in its desired state: n4/fs"]);
        let Verdict::Not(why) = verdict(&["n1/ip", "n2", "n4"]).0 else { panic!("n2 switches") };
        assert!(why[0].starts_with("n2 has generation 6 active and switches to 7"), "{why:?}");
        let (screen, _) = Screen::memory();
        let (converged, narrowed) = verdict(&["n1/ip"]);
        assert_eq!(conclusion(&screen, &narrowed, &converged), ["OK: converged, 1 change object on 1 host"]);
    }

    #[test]
    fn lines_fit_a_narrow_terminal() {
        let (mut screen, _) = Screen::memory();
        screen.set_width(60);
        let mixed = mixed();
        let verdict = judge(&mixed, &Expected::default());
        for line in lines(&screen, &mixed, &[], Shown::Fitting, &verdict).iter().take(14) {
            assert!(line.chars().count() <= 60, "{line}");
        }
    }
}
