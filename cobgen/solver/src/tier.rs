//! The order of preference of node layouts.
//!
//! Every preference orders *tiers*: node layouts with the same number of services on the same types. Within a tier the
//! names of services decide.

use crate::request::Preference;
use crate::spec::Spec;

/// The position of a node layout: first the value of the preference, then the number of services (more is better), then
/// the rank of its types.
pub(crate) type TierKey = (i128, std::cmp::Reverse<usize>, usize);

/// The order of hardware and image types among layouts with the same number of services.
pub(crate) struct TypeOrder<'a> {
    spec: &'a Spec,
}

impl<'a> TypeOrder<'a> {
    pub(crate) const fn new(spec: &'a Spec) -> Self {
        Self { spec }
    }

    pub(crate) fn key(&self, (hardware, image): (usize, usize)) -> (i128, usize, usize) {
        (self.hardware_key(hardware).0 + self.image_key(image).0, hardware, image)
    }

    pub(crate) fn hardware_key(&self, hardware: usize) -> (i128, usize) {
        let cost = i128::from(self.spec.hardware[hardware].cost);
        let part = match &self.spec.preference {
            Preference::Default | Preference::FewestImages => 0,
            Preference::CheapestHardware | Preference::Spread | Preference::Pack => cost,
            Preference::Weighted(weights) => -(cost * i128::from(weights.hardware_cost)),
        };
        (part, hardware)
    }

    pub(crate) fn image_key(&self, image: usize) -> (i128, usize) {
        let part = match &self.spec.preference {
            Preference::Weighted(w) => -(i128::from(self.spec.images[image].cost) * i128::from(w.image_cost)),
            Preference::Default
            | Preference::FewestImages
            | Preference::CheapestHardware
            | Preference::Spread
            | Preference::Pack => 0,
        };
        (part, image)
    }
}

/// The order of tiers.
#[derive(Debug, Clone)]
pub(crate) struct TierOrder {
    preference: Preference,
    /// By rank of types: their contribution to the sum.
    worth: Vec<i128>,
}

impl TierOrder {
    /// For the types in order of rank.
    pub(crate) fn new(spec: &Spec, types: &[(usize, usize)]) -> Self {
        let order = TypeOrder::new(spec);
        Self { preference: spec.preference.clone(), worth: types.iter().map(|t| order.key(*t).0).collect() }
    }

    pub(crate) fn key(&self, services: usize, rank: usize) -> TierKey {
        let many = i128::try_from(services).unwrap_or(i128::MAX);
        let first = match &self.preference {
            Preference::Default | Preference::FewestImages | Preference::Pack => 0,
            Preference::CheapestHardware => self.worth[rank],
            Preference::Spread => many,
            Preference::Weighted(weights) => self.worth[rank] - many * i128::from(weights.services),
        };
        (first, std::cmp::Reverse(services), rank)
    }

    pub(crate) const fn ranks(&self) -> usize {
        self.worth.len()
    }
}
