//! Circles in graphs of numbered nodes: whether a circle exists, and the smallest circle.

use petgraph::graph::DiGraph;

/// The number of arrows after which the search for a smaller circle stops with the best so far: about a second.
const MOST_STEPS: usize = 100_000_000;

/// A graph: for each node the nodes that its arrows lead to.
pub(super) struct Arrows {
    starts: Vec<usize>,
    heads: Vec<u32>,
}

impl Arrows {
    /// Asks `heads_of` for the heads of each node in turn and drops duplicates.
    pub(super) fn of(nodes: usize, mut heads_of: impl FnMut(usize, &mut Vec<u32>)) -> Self {
        let mut arrows = Self { starts: Vec::with_capacity(nodes + 1), heads: Vec::new() };
        arrows.starts.push(0);
        let mut heads = Vec::new();
        for node in 0..nodes {
            heads.clear();
            heads_of(node, &mut heads);
            heads.sort_unstable();
            heads.dedup();
            arrows.heads.extend_from_slice(&heads);
            arrows.starts.push(arrows.heads.len());
        }
        arrows
    }

    pub(super) fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// The heads of a node's arrows, in ascending order.
    pub(super) fn from(&self, node: usize) -> &[u32] {
        &self.heads[self.starts[node]..self.starts[node + 1]]
    }

    pub(super) fn has(&self, from: usize, to: usize) -> bool {
        u32::try_from(to).is_ok_and(|to| self.from(from).binary_search(&to).is_ok())
    }

    /// The sets of nodes that lie in circles together, each sorted, ordered by first member.
    pub(super) fn components(&self) -> Vec<Vec<usize>> {
        let rest = self.behind_circles();
        let mut numbers = vec![u32::MAX; self.nodes()];
        for (i, node) in rest.iter().enumerate() {
            numbers[*node] = u32::try_from(i).unwrap_or(u32::MAX);
        }
        let edges = rest.iter().flat_map(|node| {
            let from = numbers[*node];
            self.from(*node).iter().map(move |to| (from, *to)).collect::<Vec<_>>()
        });
        // A head of a remaining node remains too: it lies behind the same circle.
        let graph = DiGraph::<(), ()>::from_edges(edges.map(|(from, to)| (from, numbers[to as usize])));
        let mut components: Vec<Vec<usize>> = petgraph::algo::kosaraju_scc(&graph)
            .into_iter()
            .map(|members| members.into_iter().map(|member| rest[member.index()]).collect::<Vec<_>>())
            .filter(|members| members.len() > 1 || members.iter().any(|node| self.has(*node, *node)))
            .collect();
        for members in &mut components {
            members.sort_unstable();
        }
        components.sort_unstable();
        components
    }

    /// Removes nodes without incoming arrows until there are no more. The rest lies in circles or behind circles.
    fn behind_circles(&self) -> Vec<usize> {
        let mut incoming = vec![0_u32; self.nodes()];
        for head in &self.heads {
            incoming[*head as usize] += 1;
        }
        let mut free: Vec<usize> = (0..self.nodes()).filter(|node| incoming[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for head in self.from(node) {
                let head = *head as usize;
                incoming[head] -= 1;
                if incoming[head] == 0 {
                    free.push(head);
                }
            }
        }
        (0..self.nodes()).filter(|node| incoming[*node] > 0).collect()
    }

    /// A smallest circle among the members of a component, from its lowest member: each node leads to the next, the
    /// last to the first. In very large components the smallest circle found within the bound of effort.
    pub(super) fn smallest_circle(&self, members: &[usize]) -> Vec<usize> {
        let place = |node: u32| members.binary_search(&(node as usize)).ok();
        let inner: Vec<Vec<usize>> =
            members.iter().map(|node| self.from(*node).iter().filter_map(|head| place(*head)).collect()).collect();
        let mut best: Vec<usize> = Vec::new();
        let mut steps = 0;
        // The search that last visited each node, and the predecessor in that search.
        let mut seen: Vec<(usize, usize)> = vec![(usize::MAX, 0); members.len()];
        let least = if inner.iter().enumerate().any(|(i, heads)| heads.contains(&i)) { 1 } else { 2 };
        for start in 0..members.len() {
            if !best.is_empty() && (best.len() <= least || steps > MOST_STEPS) {
                break;
            }
            if let Some(circle) = shortest_back(start, &inner, &mut seen, best.len(), &mut steps) {
                best = circle;
            }
        }
        let lowest = best.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(i, _)| i);
        best.rotate_left(lowest);
        best.into_iter().map(|node| members[node]).collect()
    }
}

/// Breadth-first search from `start` back to `start`, over fewer than `bound` nodes (0: no bound).
fn shortest_back(
    start: usize,
    inner: &[Vec<usize>],
    seen: &mut [(usize, usize)],
    bound: usize,
    steps: &mut usize,
) -> Option<Vec<usize>> {
    let mut level = vec![start];
    seen[start] = (start, start);
    let mut length = 1;
    while !level.is_empty() && (bound == 0 || length < bound) {
        let mut next = Vec::new();
        for node in level {
            for head in &inner[node] {
                *steps += 1;
                if *head == start {
                    let mut circle = vec![node];
                    while circle.last() != Some(&start) {
                        circle.extend(circle.last().map(|node| seen[*node].1));
                    }
                    circle.reverse();
                    return Some(circle);
                }
                if seen[*head].0 != start {
                    seen[*head] = (start, node);
                    next.push(*head);
                }
            }
        }
        level = next;
        length += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Arrows {
        Arrows::of(nodes, |node, heads| {
            let own = edges.iter().filter(|(from, _)| *from == node);
            heads.extend(own.map(|(_, to)| u32::try_from(*to).expect("small")));
        })
    }

    #[test]
    fn of_two_circles_the_smaller_is_found() {
        let arrows = graph(7, &[(0, 1), (1, 2), (2, 3), (3, 0), (3, 1), (4, 0), (5, 6), (6, 5)]);
        let components = arrows.components();
        assert_eq!(components, [vec![0, 1, 2, 3], vec![5, 6]]);
        assert_eq!(arrows.smallest_circle(&components[0]), [1, 2, 3]);
        assert_eq!(arrows.smallest_circle(&components[1]), [5, 6]);
    }

    #[test]
    fn an_acyclic_graph_has_no_circle() {
        assert!(graph(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]).components().is_empty());
    }

    proptest! {
        #[test]
        fn the_found_circle_is_a_shortest_circle(edges in vec((0..8_usize, 0..8_usize), 0..20)) {
            let edges: Vec<_> = edges.into_iter().filter(|(a, b)| a != b).collect();
            let arrows = graph(8, &edges);
            let mut distance = [[usize::MAX; 8]; 8];
            edges.iter().for_each(|(a, b)| distance[*a][*b] = 1);
            for k in 0..8 {
                for a in 0..8 {
                    for b in 0..8 {
                        distance[a][b] = distance[a][b].min(distance[a][k].saturating_add(distance[k][b]));
                    }
                }
            }
            let components = arrows.components();
            for (node, from) in distance.iter().enumerate() {
                let inside = components.iter().any(|members| members.contains(&node));
                prop_assert_eq!(inside, from[node] != usize::MAX);
            }
            for members in components {
                let circle = arrows.smallest_circle(&members);
                let shortest = members.iter().map(|node| distance[*node][*node]).min();
                prop_assert_eq!(Some(circle.len()), shortest);
                for (i, node) in circle.iter().enumerate() {
                    prop_assert!(arrows.has(*node, circle[(i + 1) % circle.len()]));
                }
            }
        }
    }
}
