//! A switch to an older generation: announced in a sentence, and made only with the operator's consent.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, IsTerminal as _};

use cob_types::GenerationNumber;
use cob_types::status::{ClusterStatus, HostStatus};

use crate::screen::Screen;
use crate::words::{count, list};

/// Whether a switch to an older generation may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    /// The operator has consented.
    Given,
    /// The operator was asked, and has declined.
    Denied,
    /// No terminal to ask the operator.
    Missing,
}

/// Says from which generations a switch goes back; `None`: it goes forward on every host that has answered.
pub(super) fn in_words(to: GenerationNumber, cluster: &ClusterStatus) -> Option<String> {
    // For a host that already switches to this generation, the order has no effect.
    let leads_back = |h: &&HostStatus| h.reachable && h.goal() != Some(to);
    let mut from: BTreeMap<GenerationNumber, usize> = BTreeMap::new();
    for newest in cluster.hosts.iter().filter(leads_back).filter_map(HostStatus::newest).filter(|newest| *newest > to) {
        *from.entry(newest).or_default() += 1;
    }
    if from.is_empty() {
        return None;
    }
    let parts: Vec<String> =
        from.iter().rev().map(|(from, hosts)| format!("from {from} to {to} on {}", count(*hosts, "host"))).collect();
    Some(format!("this switches BACK {}", list(&parts, parts.len())))
}

/// Whether the operator consents: by `--back`, or by an answer on a terminal.
pub(super) async fn consent(screen: &mut Screen, said: bool, words: &str) -> Consent {
    if said {
        screen.problem("note", words);
        return Consent::Given;
    }
    if !(io::stdin().is_terminal() && screen.is_err_live()) {
        return Consent::Missing;
    }
    screen.problem("warning", words);
    screen.say("Continue? Type yes:");
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    match read.await {
        Ok(Ok(line)) if matches!(line.trim(), "yes" | "y") => Consent::Given,
        Ok(_) | Err(_) => Consent::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, host};

    fn words(to: u64, hosts: Vec<HostStatus>) -> Option<String> {
        in_words(GenerationNumber(to), &cluster(hosts))
    }

    #[test]
    fn a_switch_back_names_its_hosts() {
        let at = |name, generation| host(name, generation, Vec::new());
        assert_eq!(words(9, vec![at("n1", 8), at("n2", 9)]), None);
        assert_eq!(
            words(8, vec![at("n1", 9), at("n2", 9), at("n3", 9)]).as_deref(),
            Some("this switches BACK from 9 to 8 on 3 hosts")
        );
        let mut going = at("n3", 7);
        going.switching_to = Some(GenerationNumber(10));
        assert_eq!(
            words(8, vec![at("n1", 9), at("n2", 8), going]).as_deref(),
            Some("this switches BACK from 10 to 8 on 1 host and from 9 to 8 on 1 host")
        );
        // For a host that already rolls back by itself, the order has no effect.
        let mut returning = at("n1", 9);
        returning.switching_to = Some(GenerationNumber(8));
        assert_eq!(words(8, vec![returning, at("n2", 8)]), None);
    }

    #[tokio::test]
    async fn a_switch_back_without_a_terminal_needs_the_option() {
        let (mut screen, written) = Screen::memory();
        assert_eq!(consent(&mut screen, false, "this switches BACK").await, Consent::Missing);
        assert_eq!(consent(&mut screen, true, "this switches BACK").await, Consent::Given);
        assert_eq!(written.err(), "note: this switches BACK\n");
    }
}
