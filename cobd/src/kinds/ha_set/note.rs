//! The note of the earlier elements at the places of a set.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cib::Cib;
use super::elements::Place;
use super::xml::Xml;
use crate::kinds::native::note;

/// The earlier elements at the places that a set has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    before: Vec<Earlier>,
}

/// The earlier element at a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Earlier {
    place: Place,
    /// The element as text. `None`: there was none.
    element: Option<String>,
}

impl Note {
    pub(super) fn read(own: &Path) -> Result<Option<Self>, String> {
        note::read(own)
    }

    pub(super) fn write(&self, own: &Path) -> Result<(), String> {
        note::write(own, self)
    }

    /// The places that the set has.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.before.iter().map(|earlier| &earlier.place)
    }

    /// The note with these places, too.
    pub(super) fn including<'a>(mut self, places: impl Iterator<Item = &'a Place>, cib: &Cib) -> Self {
        let known: BTreeSet<Place> = self.places().cloned().collect();
        for place in places.filter(|place| !known.contains(*place)) {
            self.before.push(Earlier { place: place.clone(), element: cib.find(place).map(Xml::text) });
        }
        self
    }

    /// The note without the places that a set no longer has.
    pub(super) fn only(mut self, is_kept: impl Fn(&Place) -> bool) -> Self {
        self.before.retain(|earlier| is_kept(&earlier.place));
        self
    }

    /// The earlier element at a place.
    ///
    /// # Errors
    /// The fault of the noted text.
    pub(super) fn before(&self, place: &Place) -> Result<Option<Xml>, String> {
        let text = self.before.iter().find(|earlier| earlier.place == *place);
        text.and_then(|earlier| earlier.element.as_deref()).map(Xml::read).transpose()
    }
}
