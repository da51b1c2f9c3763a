//! Differences between the clocks of hosts, and how times of different hosts are compared.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use cob_types::HostName;
use cob_types::status::{ClusterStatus, HostStatus};

use crate::words::span;

/// A smaller difference between clocks does not matter, neither for outcomes nor for people.
const SLACK_MS: i64 = 10_000;
/// Times are corrected by whole multiples of this value, so that a switch shows the same times at each query.
const STEP_MS: i64 = 10_000;

/// Nanoseconds since 1970 by this machine's clock.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// How far a host's clock is ahead, from an answer between two local times; `None`: the host does not send its time.
pub(crate) fn offset_ms(theirs_ns: u64, began_ns: u64, ended_ns: u64) -> Option<i64> {
    let ours_ns = began_ns / 2 + ended_ns / 2;
    let ahead = i128::from(theirs_ns) - i128::from(ours_ns);
    (theirs_ns > 0).then(|| i64::try_from(ahead / 1_000_000).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX }))
}

/// How far each clock is ahead of the median clock; the local clock counts too.
fn ahead_of_most(offsets: &BTreeMap<HostName, i64>) -> BTreeMap<HostName, i64> {
    let mut all: Vec<i64> = offsets.values().copied().chain([0]).collect();
    all.sort_unstable();
    let (low, high) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
    // With two medians, the median nearer to the local clock.
    let middle = if low.unsigned_abs() <= high.unsigned_abs() { low } else { high };
    offsets.iter().map(|(host, offset)| (host.clone(), offset.saturating_sub(middle))).collect()
}

/// The correction in nanoseconds to subtract from the times of each host with a deviating clock.
pub(crate) fn corrections(offsets: &BTreeMap<HostName, i64>) -> BTreeMap<HostName, i64> {
    let whole =
        |ms: i64| (ms.saturating_add(ms.signum().saturating_mul(STEP_MS / 2)) / STEP_MS).saturating_mul(STEP_MS);
    let ahead = ahead_of_most(offsets).into_iter().map(|(host, ms)| (host, whole(ms).saturating_mul(1_000_000)));
    ahead.filter(|(_, ns)| *ns != 0).collect()
}

/// The hosts whose clocks deviate too much from the others: a sentence for each.
pub(crate) fn differing(cluster: &ClusterStatus) -> Vec<(HostName, String)> {
    let offset = |h: &HostStatus| Some((h.name.clone(), h.clock_offset_ms.filter(|_| h.reachable)?));
    let ahead = ahead_of_most(&cluster.hosts.iter().filter_map(offset).collect());
    let differs = ahead.into_iter().filter(|(_, ms)| ms.unsigned_abs() > SLACK_MS.unsigned_abs());
    differs
        .map(|(host, ms)| {
            let way = if ms < 0 { "behind" } else { "ahead of" };
            let by = span(ms.unsigned_abs().saturating_mul(1_000_000));
            (host, format!("its clock is {by} {way} the other clocks"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, host};

    fn offsets(all: &[(&str, i64)]) -> BTreeMap<HostName, i64> {
        all.iter().map(|(name, ms)| (HostName::new(name).expect("a name"), *ms)).collect()
    }

    #[test]
    fn a_clock_offset_is_measured_at_the_middle_of_a_question() {
        assert_eq!(offset_ms(5_000_000_000, 1_000_000_000, 3_000_000_000), Some(3000));
        assert_eq!(offset_ms(1_000_000_000, 1_000_000_000, 3_000_000_000), Some(-1000));
        assert_eq!(offset_ms(0, 1, 3), None);
        assert_eq!(offset_ms(u64::MAX, 0, 0), Some(18_446_744_073_709));
    }

    #[test]
    fn the_majority_of_clocks_decides_and_the_local_clock_between_two() {
        let told = |all: &[(&str, i64)]| -> Vec<(String, i64)> {
            let seconds = |(host, ns): (HostName, i64)| (host.to_string(), ns / 1_000_000_000);
            corrections(&offsets(all)).into_iter().map(seconds).collect()
        };
        assert_eq!(told(&[("n1", 20), ("n2", 3_600_000), ("n3", -40)]), [("n2".to_owned(), 3600)]);
        assert_eq!(told(&[("n1", -60_000), ("n2", 0)]), [("n1".to_owned(), -60)]);
        assert_eq!(told(&[("n1", -60_000)]), [("n1".to_owned(), -60)]);
        // The local clock is wrong, and all hosts agree.
        assert_eq!(told(&[("n1", 90_000), ("n2", 90_010), ("n3", 89_990)]), []);
        assert_eq!(told(&[("n1", 4_900), ("n2", 0)]), [], "as good as the same");
        assert_eq!(told(&[("n1", 14_000), ("n2", 0)]), [("n1".to_owned(), 10)], "in whole steps");
        assert_eq!(told(&[]), []);
    }

    #[test]
    fn a_differing_clock_is_named() {
        let with = |name, ms| HostStatus { clock_offset_ms: Some(ms), ..host(name, 7, Vec::new()) };
        let told = |all: Vec<HostStatus>| -> Vec<String> {
            differing(&cluster(all)).into_iter().map(|(host, said)| format!("{host}: {said}")).collect()
        };
        assert_eq!(told(vec![with("n1", 5), with("n2", 9_000), with("n3", -8)]), Vec::<String>::new());
        assert_eq!(
            told(vec![with("n1", 5), with("n2", 3_600_000), with("n3", -90_000)]),
            ["n2: its clock is 60 min ahead of the other clocks", "n3: its clock is 90 s behind the other clocks"]
        );
    }
}
