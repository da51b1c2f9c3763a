//! `cobctl graph`: draws change objects with their needs and states.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cob_depot::GenerationName;
use cob_types::{CobId, GenerationNumber};

use super::Context;
use super::plan::most_common;
use crate::args::{GraphArgs, GraphFormat};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::needs::Needs;
use crate::page::layout::place;
use crate::page::message::Class;
use crate::page::picture::class;
use crate::screen::Screen;
use crate::words::state;

/// The size of a node of the drawing, and of a unit of its places.
const NODE: (f32, f32) = (150.0, 22.0);
const UNIT: (f32, f32) = (190.0, 34.0);

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &GraphArgs) -> CommandResult {
    let status = gather::cluster(&context.client, &context.targets.all).await;
    let generation = match args.generation {
        Some(named) => context.generation(named)?,
        None => match most_common(&status) {
            GenerationNumber(0) => context.generation(GenerationName::LATEST)?,
            active => active,
        },
    };
    let Some(all) = Needs::read(&context.targets, generation)? else {
        return Err(Failure::usage("a graph needs the depot").hint("name the depot with --depot or COB_DEPOT"));
    };
    let is_named = |id: &CobId| args.only.iter().any(|which| which.covers(id));
    let needs = if args.only.is_empty() { all } else { all.near(is_named) };
    if let Some(unknown) = args.only.iter().find(|which| !needs.cobs.iter().any(|id| which.covers(id))) {
        return Err(Failure::refused(format!("generation {generation} has no {unknown}")));
    }
    let seen = status.hosts.iter().flat_map(|host| &host.cobs);
    let seen: BTreeMap<&CobId, (Class, String)> =
        seen.map(|cob| (&cob.id, (class(cob), state(cob.state.as_ref()).to_owned()))).collect();
    let nodes: Vec<Node> = needs
        .cobs
        .iter()
        .map(|id| {
            let (class, state) = seen.get(id).cloned().unwrap_or((Class::Unknown, "unknown".to_owned()));
            Node { id, class, state }
        })
        .collect();
    let numbers: BTreeMap<&CobId, usize> = needs.cobs.iter().zip(0..).collect();
    let pairs: Vec<(usize, usize)> = needs.pairs.iter().map(|(a, b)| (numbers[a], numbers[b])).collect();
    screen.raw(&match args.format {
        GraphFormat::Svg => svg(&nodes, &pairs),
        GraphFormat::Dot => dot(&nodes, &pairs),
        GraphFormat::Mermaid => mermaid(&nodes, &pairs),
    })?;
    Ok(if status.hosts.iter().all(|host| host.reachable) { Exit::Yes } else { Exit::Unreached })
}

/// A change object in the graph.
struct Node<'a> {
    id: &'a CobId,
    class: Class,
    state: String,
}

/// The nodes of each host, by name.
fn by_host<'a>(nodes: &'a [Node<'a>]) -> BTreeMap<&'a str, Vec<(usize, &'a Node<'a>)>> {
    let mut hosts: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (number, node) in nodes.iter().enumerate() {
        hosts.entry(node.id.host_str()).or_default().push((number, node));
    }
    hosts
}

/// The colours of a node: fill and line.
fn colours(class: Class) -> (&'static str, &'static str) {
    match class {
        Class::Settled => ("#e6f4ea", "#1a7f37"),
        Class::Moving => ("#e1ecfb", "#1f5fd0"),
        Class::Waiting => ("#fdf3dc", "#8a5a00"),
        Class::Failed => ("#fde8e8", "#b42318"),
        Class::Stopped => ("#ede7f6", "#5e35b1"),
        Class::Unknown => ("#eceff1", "#546e7a"),
    }
}

/// The graph for Graphviz.
fn dot(nodes: &[Node<'_>], pairs: &[(usize, usize)]) -> String {
    let mut text =
        "digraph cob {\n  rankdir=RL;\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n".to_owned();
    for (at, (host, nodes)) in by_host(nodes).into_iter().enumerate() {
        let _ = writeln!(text, "  subgraph cluster_{at} {{\n    label=\"{host}\";");
        for (number, node) in nodes {
            let (word, (fill, line)) = (node.class.word(), colours(node.class));
            let (name, state) = (node.id.name(), &node.state);
            let _ = writeln!(
                text,
                "    c{number} [label=\"{name}\\n{state}, {word}\", fillcolor=\"{fill}\", color=\"{line}\"];"
            );
        }
        text.push_str("  }\n");
    }
    for (a, b) in pairs {
        let _ = writeln!(text, "  c{a} -> c{b};");
    }
    text.push_str("}\n");
    text
}

/// The graph for Mermaid.
fn mermaid(nodes: &[Node<'_>], pairs: &[(usize, usize)]) -> String {
    let mut text = "flowchart RL\n".to_owned();
    for (at, (host, nodes)) in by_host(nodes).into_iter().enumerate() {
        let _ = writeln!(text, "  subgraph h{at}[\"{host}\"]");
        for (number, node) in nodes {
            let word = node.class.word();
            let _ = writeln!(text, "    c{number}[\"{}<br>{}, {word}\"]:::{word}", node.id.name(), node.state);
        }
        text.push_str("  end\n");
    }
    for (a, b) in pairs {
        let _ = writeln!(text, "  c{a} --> c{b}");
    }
    for class in [Class::Settled, Class::Moving, Class::Waiting, Class::Failed, Class::Stopped, Class::Unknown] {
        let (word, (fill, line)) = (class.word(), colours(class));
        let _ = writeln!(text, "  classDef {word} fill:{fill},stroke:{line},color:#1f2328");
    }
    text
}

/// The graph as a picture.
fn svg(nodes: &[Node<'_>], pairs: &[(usize, usize)]) -> String {
    let hosts: Vec<&str> = nodes.iter().map(|node| node.id.host_str()).collect();
    let places = place(&hosts, pairs);
    let at = |number: usize| (places.x[number] * UNIT.0, places.y[number] * UNIT.1);
    let right = places.bands.iter().map(|band| (band.x + band.width) * UNIT.0).fold(UNIT.0, f32::max);
    let below = places.bands.iter().map(|band| (band.y + band.height) * UNIT.1).fold(UNIT.1, f32::max);
    let (width, height) = (right + UNIT.0, below + UNIT.1);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <title>Change objects and what they need</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for band in &places.bands {
        let (x, y) = (band.x * UNIT.0, band.y * UNIT.1);
        let (width, height) = (band.width * UNIT.0, band.height * UNIT.1 + NODE.1 / 2.0);
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#f6f8fa\" stroke=\"#d0d7de\"/>\n\
             <text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            x + 8.0,
            y + 16.0,
            band.host
        );
    }
    for &(a, b) in pairs {
        let ((ax, ay), (bx, by)) = (at(a), at(b));
        let (ay, by, bx) = (ay + NODE.1 / 2.0, by + NODE.1 / 2.0, bx + NODE.0);
        let middle = (ax + bx) / 2.0;
        let _ = writeln!(
            text,
            "<path d=\"M {ax} {ay} C {middle} {ay}, {middle} {by}, {bx} {by}\" fill=\"none\" stroke=\"#8c959f\"/>"
        );
    }
    for (number, node) in nodes.iter().enumerate() {
        let ((x, y), word, (fill, line)) = (at(number), node.class.word(), colours(node.class));
        let (width, height) = NODE;
        let _ = writeln!(
            text,
            "<g><title>{}: {}, {word}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" \
             fill=\"{fill}\" stroke=\"{line}\"/><text x=\"{}\" y=\"{}\">{}</text></g>",
            node.id,
            node.state,
            x + 8.0,
            y + 15.0,
            fitting(node.id.name())
        );
    }
    text.push_str("</svg>\n");
    text
}

/// A name that fits into a node: names have no characters that XML reserves.
fn fitting(name: &str) -> String {
    const MOST: usize = 22;
    if name.len() <= MOST { name.to_owned() } else { format!("{}…", &name[..MOST - 1]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::id;

    #[test]
    fn each_format_has_every_node_and_edge() {
        let ids = ["n1/db", "n2/app", "n2/cache"].map(id);
        let classes = [Class::Settled, Class::Waiting, Class::Failed];
        let nodes: Vec<Node> =
            ids.iter().zip(classes).map(|(id, class)| Node { id, class, state: "up".to_owned() }).collect();
        let pairs = [(1, 0), (1, 2)];
        insta::assert_snapshot!(dot(&nodes, &pairs));
        insta::assert_snapshot!(mermaid(&nodes, &pairs));
        let picture = svg(&nodes, &pairs);
        assert_eq!((picture.matches("<path").count(), picture.matches("<g>").count()), (2, 3), "{picture}");
        assert!(picture.contains("<title>n2/app: up, waiting</title>"), "{picture}");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(fitting("a/very/long/name/of/a/change/object"), "a/very/long/name/of/a…");
    }
}
