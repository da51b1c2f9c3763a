//! Places of change objects in the drawing of what they need.
//!
//! Each host has an area; areas fill a page from left to right, by name, so that a host keeps its place when others come
//! and go in the same order. Within an area, columns are ranks: a change object is to the right of everything that it
//! needs. The order within a column follows the neighbours (barycentres), which keeps lines short.

use std::collections::BTreeMap;

use super::message::Band;

/// The longest column; a longer one continues beside itself.
const TALL: usize = 12;
/// How often the order within columns is improved.
const PASSES: usize = 8;
/// The line for the host's name above the nodes of an area, and the space between areas.
const MARGIN: f32 = 1.0;
/// The space beside the nodes of an area: a unit is wider than tall.
const SIDE: f32 = 0.15;
/// How much wider than tall the whole drawing may be.
const ASPECT: f32 = 1.6;

/// The places of nodes, and the areas of hosts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Places {
    pub x: Vec<f32>,
    pub y: Vec<f32>,
    pub bands: Vec<Band>,
}

/// Places nodes; `hosts` has the host of each node, `needs` pairs of a node and one that it needs.
pub(crate) fn place(hosts: &[&str], needs: &[(usize, usize)]) -> Places {
    let ranks = ranks(hosts.len(), needs);
    let mut near = vec![Vec::new(); hosts.len()];
    for &(a, b) in needs {
        near[a].push(b);
        near[b].push(a);
    }
    let mut by_host: BTreeMap<&str, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (node, host) in hosts.iter().enumerate() {
        by_host.entry(host).or_default().entry(ranks[node]).or_default().push(node);
    }
    // The height of a node within its column, from 0 to 1.
    let mut height = vec![0.5_f32; hosts.len()];
    for _ in 0..PASSES {
        for column in by_host.values_mut().flat_map(BTreeMap::values_mut) {
            column.sort_by(|a, b| centre(&height, &near, *a).total_cmp(&centre(&height, &near, *b)).then(a.cmp(b)));
            let length = as_f32(column.len());
            for (at, node) in column.iter().enumerate() {
                height[*node] = (as_f32(at) + 0.5) / length;
            }
        }
    }
    let areas: Vec<(&str, Area)> = by_host.into_iter().map(|(host, columns)| (host, Area::of(&columns))).collect();
    flow(hosts.len(), &areas)
}

/// The middle of a node's neighbours.
fn centre(height: &[f32], near: &[Vec<usize>], node: usize) -> f32 {
    let near = &near[node];
    if near.is_empty() {
        return height[node];
    }
    near.iter().map(|other| height[*other]).sum::<f32>() / as_f32(near.len())
}

/// The length of the longest way from each node along its needs. Needs that close a circle do not count.
fn ranks(nodes: usize, needs: &[(usize, usize)]) -> Vec<usize> {
    let mut lists = vec![Vec::new(); nodes];
    for &(a, b) in needs.iter().filter(|(a, b)| a != b) {
        lists[a].push(b);
    }
    let mut ranks: Vec<Option<usize>> = vec![None; nodes];
    let mut on_way = vec![false; nodes];
    for start in 0..nodes {
        // The way from the start: a node, and how many of its needs are done.
        let mut way = vec![(start, 0)];
        while let Some((node, done)) = way.last_mut() {
            let node = *node;
            if ranks[node].is_some() {
                way.pop();
                continue;
            }
            on_way[node] = true;
            match lists[node].get(*done) {
                Some(next) => {
                    *done += 1;
                    if ranks[*next].is_none() && !on_way[*next] {
                        way.push((*next, 0));
                    }
                }
                None => {
                    ranks[node] = Some(lists[node].iter().filter_map(|n| ranks[*n]).map(|r| r + 1).max().unwrap_or(0));
                    on_way[node] = false;
                    way.pop();
                }
            }
        }
    }
    ranks.into_iter().map(Option::unwrap_or_default).collect()
}

/// The nodes of a host, each with its place in the host's area.
struct Area {
    nodes: Vec<(usize, f32, f32)>,
    width: f32,
    height: f32,
}

impl Area {
    fn of(columns: &BTreeMap<usize, Vec<usize>>) -> Self {
        let mut nodes = Vec::new();
        let (mut left, mut tallest) = (0, 0);
        for column in columns.values() {
            for (at, node) in column.iter().enumerate() {
                nodes.push((*node, as_f32(left + at / TALL), as_f32(at % TALL)));
            }
            tallest = tallest.max(column.len().min(TALL));
            left += column.len().div_ceil(TALL);
        }
        Self { nodes, width: as_f32(left) + SIDE, height: as_f32(tallest) + MARGIN }
    }
}

/// Lets areas fill a page, line by line.
fn flow(nodes: usize, areas: &[(&str, Area)]) -> Places {
    let surface: f32 = areas.iter().map(|(_, a)| (a.width + SIDE) * (a.height + MARGIN)).sum();
    let widest = areas.iter().map(|(_, a)| a.width).fold(0.0, f32::max);
    let most = (surface * ASPECT).sqrt().max(widest);
    let mut places = Places { x: vec![0.0; nodes], y: vec![0.0; nodes], bands: Vec::new() };
    let (mut x, mut y, mut line) = (0.0_f32, 0.0_f32, 0.0_f32);
    for (host, area) in areas {
        if x > 0.0 && x + area.width > most {
            (x, y, line) = (0.0, y + line + MARGIN, 0.0);
        }
        for &(node, across, down) in &area.nodes {
            places.x[node] = x + across + SIDE;
            places.y[node] = y + down + MARGIN;
        }
        places.bands.push(Band { host: (*host).to_owned(), x, y, width: area.width, height: area.height });
        x += area.width + SIDE;
        line = line.max(area.height);
    }
    places
}

/// Exact for every number of nodes that fits on a page.
#[expect(clippy::cast_precision_loss, reason = "places are drawn, not counted")]
fn as_f32(number: usize) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_to_the_right_of_its_dependencies() {
        assert_eq!(ranks(4, &[(1, 0), (2, 1), (2, 0), (3, 3)]), [0, 1, 2, 0]);
    }

    #[test]
    fn the_layout_of_a_circle_ends() {
        let ranks = ranks(3, &[(0, 1), (1, 2), (2, 0)]);
        assert_eq!(ranks, [2, 1, 0]);
    }

    #[test]
    fn areas_hold_their_nodes_and_do_not_overlap() {
        let names: Vec<String> = (0..300).map(|n| format!("n{:02}", n % 23)).collect();
        let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
        let needs: Vec<(usize, usize)> = (1..300).map(|n| (n, n / 2)).collect();
        let places = place(&hosts, &needs);
        let mut taken = std::collections::BTreeSet::new();
        for (node, host) in hosts.iter().enumerate() {
            let band = places.bands.iter().find(|b| b.host == *host).expect("each host has an area");
            let (x, y) = (places.x[node], places.y[node]);
            assert!(x >= band.x && x <= band.x + band.width && y >= band.y && y <= band.y + band.height, "{node}");
            assert!(taken.insert((x.to_bits(), y.to_bits())), "two nodes at {x}, {y}");
        }
        for (nth, a) in places.bands.iter().enumerate() {
            for b in &places.bands[nth + 1..] {
                let apart =
                    a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
                assert!(apart, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn an_empty_graph_has_no_places() {
        assert_eq!(place(&[], &[]), Places::default());
    }
}
