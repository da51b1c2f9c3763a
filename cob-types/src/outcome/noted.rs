//! Adds an earlier note of a switch to the present reports: a host that no longer answers keeps its part.

use std::collections::BTreeSet;

use super::{Ended, SwitchOutcome, add_up};
use crate::id::HostName;

impl SwitchOutcome {
    /// Whether both describe the same switch. Its start is not certain: a host without a report may have been the
    /// first.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let both = || self.hosts.iter().filter_map(|(host, part)| Some((part, other.hosts.get(host)?)));
        let parts = || both().next().is_some() && both().all(|(one, other)| one.began_ns == other.began_ns);
        self.to == other.to && (self.began_ns == other.began_ns || parts())
    }

    /// Adds the noted parts of hosts without a present report; `heard` are the hosts that have answered.
    ///
    /// A host stays silent if its part had not ended, or if the switch has ended differently since.
    #[must_use]
    pub fn with_noted(mut self, noted: &Self, heard: &BTreeSet<HostName>) -> Self {
        if noted.began_ns < self.began_ns {
            (self.began_ns, self.by) = (noted.began_ns, noted.by.clone());
        }
        let goes_on = matches!(self.ended, Ended::Converged | Ended::UnderWay);
        for (host, part) in noted.hosts.iter().filter(|(host, _)| !heard.contains(*host)) {
            if goes_on || part.ended != Ended::UnderWay || !self.silent.contains(host) {
                self.hosts.entry(host.clone()).or_insert_with(|| part.clone());
            }
        }
        let still = noted.silent.iter().filter(|host| !heard.contains(*host) && !self.hosts.contains_key(*host));
        self.silent.extend(still.cloned());
        add_up(&mut self);
        let (ended, as_before) = (self.ended, self.ended == noted.ended);
        let was_whole = noted.ended_ns.is_some() && noted.silent.is_empty() && noted.alone().is_empty();
        self.silent.retain(|host| match noted.hosts.get(host) {
            Some(part) if part.ended == Ended::UnderWay => true,
            Some(part) => part.ended != ended && (!as_before || noted.silent.contains(host)),
            // The host had no part then, and no event has changed the end since.
            None => !(as_before && was_whole),
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::id::GenerationNumber;
    use crate::outcome::{FORMAT, HostOutcome};

    fn names(hosts: &[&str]) -> BTreeSet<HostName> {
        hosts.iter().map(|host| HostName::new(host).expect("a name")).collect()
    }

    /// A switch with these parts: the host, the time at which it began, and how it ended.
    fn switch(parts: &[(&str, u64, Ended)], silent: &[&str]) -> SwitchOutcome {
        let part = |(host, began_ns, ended): &(&str, u64, Ended)| {
            let ended_ns = Some(began_ns + 10).filter(|_| !matches!(ended, Ended::UnderWay | Ended::Failed));
            let part = HostOutcome {
                from: Some(GenerationNumber(1)),
                to: GenerationNumber(2),
                by: "ann".to_owned(),
                began_ns: *began_ns,
                activated_ns: None,
                ended_ns,
                ended: *ended,
                alone: false,
                widened_ns: None,
                cobs: Arc::default(),
                later: Vec::new(),
            };
            (HostName::new(host).expect("a name"), part)
        };
        let hosts: BTreeMap<_, _> = parts.iter().map(part).collect();
        let began_ns = parts.iter().map(|(_, began, _)| *began).min().unwrap_or(0);
        let mut switch = SwitchOutcome {
            format: FORMAT,
            to: GenerationNumber(2),
            by: "ann".to_owned(),
            began_ns,
            ended_ns: None,
            ended: Ended::Converged,
            hosts,
            silent: names(silent),
        };
        add_up(&mut switch);
        switch
    }

    #[test]
    fn a_switch_is_known_again_by_its_hosts_parts() {
        let noted = switch(&[("n2", 5, Ended::Converged)], &["n1"]);
        let is_it = |parts: &[(&str, u64, Ended)]| switch(parts, &[]).is_same_as(&noted);
        assert!(is_it(&[("n1", 3, Ended::Failed), ("n2", 5, Ended::RolledBack)]), "n1 was the first");
        assert!(!is_it(&[("n1", 3, Ended::Failed), ("n2", 9, Ended::Converged)]), "n2 has gone once more");
        assert!(!is_it(&[("n1", 3, Ended::Failed)]));
    }

    #[test]
    fn the_outcome_keeps_earlier_reports_of_a_silent_host() {
        use Ended::{Converged, Failed, RolledBack, UnderWay};
        let (n1, n2) = (|ended| ("n1", 3, ended), |ended| ("n2", 5, ended));
        let with = |before: &[(&str, u64, Ended)], now: &[(&str, u64, Ended)]| {
            let noted = switch(before, &[]);
            let merged = switch(now, &["n2"]).with_noted(&noted, &names(&["n1"]));
            (merged.in_words(), merged.hosts.len(), merged == noted)
        };
        let told = |words: &str, hosts, as_noted| (words.to_owned(), hosts, as_noted);
        for ended in [Converged, RolledBack] {
            assert_eq!(with(&[n1(ended), n2(ended)], &[n1(ended)]), told(ended.word(), 2, true));
        }
        let both = [n1(Converged), n2(Converged)];
        assert_eq!(with(&both, &[n1(RolledBack)]), told("rolled back (no report from n2)", 2, false));
        assert_eq!(with(&[n1(Failed), n2(Converged)], &[n1(Converged)]), told("converged", 2, false));
        assert_eq!(with(&[n1(Converged), n2(Failed)], &[n1(Converged)]), told("failed", 2, true));
        let goes_on = [n1(Converged), n2(UnderWay)];
        assert_eq!(with(&goes_on, &[n1(Converged)]), told("under way (no report from n2)", 2, false));
        assert_eq!(with(&goes_on, &[n1(RolledBack)]), told("rolled back (no report from n2)", 1, false));
        // The host was not concerned, because it came later.
        assert_eq!(with(&[n1(Converged)], &[n1(Converged)]), told("converged", 1, true));
        assert_eq!(with(&[n1(Failed)], &[n1(Converged)]), told("converged (no report from n2)", 1, false));
    }

    #[test]
    fn a_host_that_was_silent_is_so_until_it_answers() {
        let noted = switch(&[("n1", 3, Ended::Converged)], &["n2", "n3"]);
        let now = switch(&[("n1", 3, Ended::Converged), ("n2", 2, Ended::Converged)], &[]);
        let merged = now.with_noted(&noted, &names(&["n1", "n2"]));
        assert_eq!(
            (merged.in_words().as_str(), merged.began_ns),
            ("converged (no report from n3)", 2),
            "n3 was not asked"
        );
        let back = switch(&[("n1", 3, Ended::RolledBack)], &["n2"]);
        let noted =
            back.with_noted(&switch(&[("n1", 3, Ended::Converged), ("n2", 5, Ended::Converged)], &[]), &names(&["n1"]));
        let again = switch(&[("n1", 3, Ended::RolledBack)], &["n2"]).with_noted(&noted, &names(&["n1"]));
        assert_eq!(again, noted, "not known of n2, however often it is asked for");
    }
}
