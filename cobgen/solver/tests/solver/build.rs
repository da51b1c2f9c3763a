//! Helpers that build requests.

use cob_solver::{NodeLayout, Nodes, Request, RuleId, Ruled, ServiceRule, TypeOption};

/// Gives every rule its own number.
#[derive(Debug, Default)]
pub(crate) struct Rules(u32);

impl Rules {
    pub(crate) fn id(&mut self) -> RuleId {
        self.0 += 1;
        RuleId(self.0)
    }

    pub(crate) fn rule<T>(&mut self, value: T) -> Ruled<T> {
        Ruled::new(value, self.id())
    }
}

pub(crate) fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}

pub(crate) fn types(all: &[&str]) -> Vec<TypeOption> {
    all.iter().map(|name| TypeOption { name: (*name).to_owned(), cost: 0 }).collect()
}

pub(crate) fn service(name: &str) -> ServiceRule {
    ServiceRule { name: name.to_owned(), ..ServiceRule::default() }
}

/// A request for new nodes of a single hardware and image type.
pub(crate) fn request(services: Vec<ServiceRule>, nodes: u64) -> Request {
    Request {
        services,
        hardware: types(&["hw"]),
        images: types(&["img"]),
        nodes: Nodes::Count(nodes),
        ..Request::default()
    }
}

pub(crate) fn layout(services: &[&str], hardware: &str, image: &str) -> NodeLayout {
    NodeLayout { services: names(services), hardware: hardware.to_owned(), image: image.to_owned() }
}
