//! The fewest waves in which hosts can be drained, so that each limit holds within each wave.
//!
//! A limit counts interrupted members: the members of a budget, or the hosts of a service. Hosts of one wave are drained at the
//! same time; the next wave starts when the hosts of the wave before have returned.
//!
//! This is bin packing with several limits, and hard in general. First fit gives a number of waves, the largest limit a lower
//! bound; between them a search of bounded length looks for fewer.

use std::collections::BTreeMap;

/// So many placements are tried in the search for fewer waves.
const SEARCH: usize = 200_000;

/// A limit on the interrupted members of a wave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The name of the budget or service, for messages.
    pub(crate) name: String,
    /// At most so many members are interrupted in one wave.
    pub(crate) most: usize,
    /// The members that each host interrupts, by position of the host, in ascending order. A member may stand at several hosts.
    pub(crate) members: BTreeMap<usize, Vec<usize>>,
}

/// Waves of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waves {
    /// Positions of hosts, wave by wave.
    pub(crate) waves: Vec<Vec<usize>>,
    /// No division into fewer waves exists.
    pub(crate) fewest: bool,
    /// Limits that one host exceeds alone: position of the host and of the limit. The host shares its wave with no other
    /// host of this limit.
    pub(crate) exceeded: Vec<(usize, usize)>,
}

/// Divides `hosts` hosts into waves.
pub(crate) fn divide(hosts: usize, limits: &[Limit]) -> Waves {
    let mut exceeded = Vec::new();
    for host in 0..hosts {
        let over = |limit: &Limit| limit.members.get(&host).is_some_and(|members| members.len() > limit.most);
        exceeded.extend(limits.iter().enumerate().filter(|(_, limit)| over(limit)).map(|(at, _)| (host, at)));
    }
    let mut of_host: Vec<Vec<usize>> = vec![Vec::new(); hosts];
    for (at, limit) in limits.iter().enumerate() {
        limit.members.keys().for_each(|host| of_host[*host].push(at));
    }
    // Hosts with many members of tight limits first: they are the hardest to place.
    let weight = |host: &usize| {
        let share = |at: &usize| {
            let limit = &limits[*at];
            limit.members.get(host).map_or(0, Vec::len) * 1000 / limit.most.max(1)
        };
        of_host[*host].iter().map(share).max().unwrap_or(0)
    };
    let mut order: Vec<usize> = (0..hosts).collect();
    order.sort_by_key(|host| (std::cmp::Reverse(weight(host)), *host));
    let packing = Packing { limits, of_host: &of_host, order: &order };
    let mut best = packing.first_fit();
    let least = packing.least();
    let mut fewest = best.len() <= least;
    if !fewest {
        let mut steps = SEARCH;
        while best.len() > least {
            let found = packing.within(best.len() - 1, &mut steps);
            match found {
                Some(found) => best = found,
                None => break,
            }
        }
        // A search that did not run out has seen every division.
        fewest = best.len() <= least || steps > 0;
    }
    best.iter_mut().for_each(|wave| wave.sort_unstable());
    best.sort();
    Waves { waves: best, fewest, exceeded }
}

struct Packing<'a> {
    limits: &'a [Limit],
    of_host: &'a [Vec<usize>],
    order: &'a [usize],
}

/// How often each member of each limit is interrupted by a wave.
#[derive(Clone, Default)]
struct Load(BTreeMap<usize, BTreeMap<usize, usize>>);

impl Packing<'_> {
    fn fits(&self, load: &Load, host: usize) -> bool {
        self.of_host[host].iter().all(|at| {
            let (limit, taken) = (&self.limits[*at], load.0.get(at));
            let Some(taken) = taken.filter(|taken| !taken.is_empty()) else { return true };
            let more = limit.members[&host].iter().filter(|member| !taken.contains_key(member)).count();
            taken.len() + more <= limit.most
        })
    }

    fn add(&self, load: &mut Load, host: usize) {
        for at in &self.of_host[host] {
            let taken = load.0.entry(*at).or_default();
            for member in &self.limits[*at].members[&host] {
                *taken.entry(*member).or_default() += 1;
            }
        }
    }

    fn remove(&self, load: &mut Load, host: usize) {
        for at in &self.of_host[host] {
            let Some(taken) = load.0.get_mut(at) else { continue };
            for member in &self.limits[*at].members[&host] {
                if let Some(times) = taken.get_mut(member) {
                    *times -= 1;
                    if *times == 0 {
                        taken.remove(member);
                    }
                }
            }
        }
    }

    fn first_fit(&self) -> Vec<Vec<usize>> {
        let mut waves: Vec<(Load, Vec<usize>)> = Vec::new();
        for &host in self.order {
            let at = waves.iter().position(|(load, _)| self.fits(load, host));
            let at = at.unwrap_or_else(|| {
                waves.push(Default::default());
                waves.len() - 1
            });
            self.add(&mut waves[at].0, host);
            waves[at].1.push(host);
        }
        waves.into_iter().map(|(_, hosts)| hosts).collect()
    }

    /// No division has fewer waves: all distinct members of a limit, by its size; and hosts that exclude each other pairwise.
    fn least(&self) -> usize {
        let by_members = |limit: &Limit| {
            let mut members: Vec<usize> = limit.members.values().flatten().copied().collect();
            members.sort_unstable();
            members.dedup();
            let alone = limit.members.values().filter(|members| members.len() > limit.most).count();
            // A host that exceeds the limit alone takes a wave, however many its members are.
            if alone > 0 { alone } else { members.len().div_ceil(limit.most.max(1)) }
        };
        let of_limits = self.limits.iter().map(by_members).max().unwrap_or(0);
        let mut apart: Vec<usize> = Vec::new();
        for &host in self.order {
            let excludes = |other: &usize| {
                let mut load = Load::default();
                self.add(&mut load, *other);
                !self.fits(&load, host)
            };
            if apart.iter().all(excludes) {
                apart.push(host);
            }
        }
        of_limits.max(apart.len()).max(usize::from(!self.order.is_empty()))
    }

    /// A division into at most so many waves, if the search finds one within its steps.
    fn within(&self, most: usize, steps: &mut usize) -> Option<Vec<Vec<usize>>> {
        let mut waves: Vec<(Load, Vec<usize>)> = Vec::new();
        self.place(0, most, &mut waves, steps).then(|| waves.into_iter().map(|(_, hosts)| hosts).collect())
    }

    fn place(&self, at: usize, most: usize, waves: &mut Vec<(Load, Vec<usize>)>, steps: &mut usize) -> bool {
        let Some(&host) = self.order.get(at) else { return true };
        let open = waves.len();
        // A further empty wave is tried once: empty waves are alike.
        for wave in 0..(open + 1).min(most) {
            if *steps == 0 {
                return false;
            }
            *steps -= 1;
            if wave == open {
                waves.push(Default::default());
            }
            if self.fits(&waves[wave].0, host) {
                self.add(&mut waves[wave].0, host);
                waves[wave].1.push(host);
                if self.place(at + 1, most, waves, steps) {
                    return true;
                }
                waves[wave].1.pop();
                self.remove(&mut waves[wave].0, host);
            }
            if wave == open {
                waves.pop();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(most: usize, members: &[(usize, &[usize])]) -> Limit {
        let members = members.iter().map(|(host, of)| (*host, of.to_vec())).collect();
        Limit { name: "x".to_owned(), most, members }
    }

    fn holds(hosts: usize, limits: &[Limit], found: &Waves) -> Result<(), String> {
        let mut seen: Vec<usize> = found.waves.iter().flatten().copied().collect();
        seen.sort_unstable();
        if seen != (0..hosts).collect::<Vec<_>>() {
            return Err(format!("not each host once: {seen:?}"));
        }
        for wave in &found.waves {
            for (at, limit) in limits.iter().enumerate() {
                let of_wave: Vec<usize> =
                    wave.iter().copied().filter(|host| limit.members.contains_key(host)).collect();
                let mut members: Vec<usize> = of_wave.iter().flat_map(|host| &limit.members[host]).copied().collect();
                members.sort_unstable();
                members.dedup();
                let alone = of_wave.len() == 1 && found.exceeded.contains(&(of_wave[0], at));
                if members.len() > limit.most && !alone {
                    return Err(format!("limit {at} is exceeded in {wave:?}"));
                }
            }
        }
        Ok(())
    }

    /// The number of waves by exhaustive search.
    fn least(hosts: usize, limits: &[Limit]) -> usize {
        let of_host: Vec<Vec<usize>> = (0..hosts)
            .map(|host| (0..limits.len()).filter(|at| limits[*at].members.contains_key(&host)).collect())
            .collect();
        let order: Vec<usize> = (0..hosts).collect();
        let packing = Packing { limits, of_host: &of_host, order: &order };
        (0..=hosts).find(|most| packing.within(*most, &mut usize::MAX.clone()).is_some()).expect("each host alone")
    }

    #[test]
    fn hosts_without_limits_share_a_single_wave() {
        assert_eq!(divide(0, &[]).waves, Vec::<Vec<usize>>::new());
        assert_eq!(divide(3, &[]).waves, [vec![0, 1, 2]]);
    }

    #[test]
    fn a_budget_of_one_needs_a_wave_for_each_member() {
        let found = divide(5, &[limit(1, &[(0, &[0]), (2, &[1]), (4, &[2])])]);
        assert_eq!(found.waves, [vec![0, 1, 3], vec![2], vec![4]]);
        assert!(found.fewest && found.exceeded.is_empty());
    }

    #[test]
    fn a_member_that_two_hosts_interrupt_counts_once() {
        let found = divide(2, &[limit(1, &[(0, &[7]), (1, &[7])])]);
        assert_eq!(found.waves, [vec![0, 1]]);
    }

    #[test]
    fn a_host_that_exceeds_a_limit_alone_shares_its_wave_with_no_member() {
        let found = divide(3, &[limit(1, &[(0, &[0, 1]), (1, &[2])])]);
        assert_eq!((found.waves.len(), found.exceeded.as_slice()), (2, &[(0, 0)][..]));
    }

    #[test]
    fn the_search_finds_fewer_waves_than_first_fit() {
        // Six hosts of sizes 4, 4, 3, 3, 3, 3 and a limit of 10: first fit takes 4+4, 3+3+3, 3.
        let sizes = [4, 4, 3, 3, 3, 3];
        let mut next = 0;
        let members = sizes.iter().enumerate().map(|(host, size)| {
            next += size;
            (host, (next - size..next).collect())
        });
        let limits = [Limit { name: "x".to_owned(), most: 10, members: members.collect() }];
        let found = divide(6, &limits);
        assert_eq!((found.waves.len(), found.fewest), (2, true));
    }

    proptest! {
        #[test]
        fn waves_keep_every_limit_and_are_the_fewest(
            hosts in 0_usize..8,
            drawn in prop::collection::vec((0_usize..4, prop::collection::vec((0_usize..8, 0_usize..6), 0..12)), 0..4),
        ) {
            let limits: Vec<Limit> = drawn.into_iter().map(|(most, pairs)| {
                let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                pairs.into_iter().filter(|(host, _)| *host < hosts).for_each(|(host, m)| members.entry(host).or_default().push(m));
                members.values_mut().for_each(|of| { of.sort_unstable(); of.dedup(); });
                Limit { name: "x".to_owned(), most, members }
            }).collect();
            let found = divide(hosts, &limits);
            prop_assert_eq!(holds(hosts, &limits, &found), Ok(()));
            prop_assert!(found.fewest);
            prop_assert_eq!(found.waves.len(), least(hosts, &limits));
        }
    }
}
