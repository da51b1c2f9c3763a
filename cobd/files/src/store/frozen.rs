//! An immutable listing.
//!
//! A map allocates space for eleven entries at its first entry, and a record of a small tree has six maps.

use std::sync::Arc;

use super::{Listing, RecordedEntry};
use crate::path::TreePath;

/// An immutable listing without spare capacity. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frozen(Option<Arc<[(TreePath, RecordedEntry)]>>);

impl Frozen {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The entries in the order of their paths.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(TreePath, RecordedEntry)> {
        self.0.iter().flat_map(|entries| entries.iter())
    }

    /// Converts the listing back into a map.
    pub(crate) fn thaw(&self) -> Listing {
        self.iter().cloned().collect()
    }
}

impl From<Listing> for Frozen {
    fn from(listing: Listing) -> Self {
        Self((!listing.is_empty()).then(|| listing.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Managed;
    use crate::store::RecordedNode;

    #[test]
    fn a_thawed_listing_equals_the_frozen_listing() {
        let kept =
            |implied| RecordedEntry { implied, ..RecordedEntry::found(RecordedNode::Folder, Managed::default()) };
        let path = |text| TreePath::new(text).expect("a path");
        let listing = Listing::from([(path("/b"), kept(true)), (path("/a"), kept(false))]);
        let frozen = Frozen::from(listing.clone());
        assert_eq!(frozen.iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>(), ["/a", "/b"]);
        assert_eq!(frozen.clone().thaw(), listing);
        assert!(Frozen::from(Listing::new()).is_empty() && Frozen::default().thaw().is_empty());
    }
}
