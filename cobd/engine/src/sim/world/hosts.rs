//! The hosts of the simulated cluster. Forks of a world share a host until a fork changes it.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::Host;

#[derive(Clone, Default)]
pub(in crate::sim) struct Hosts(Vec<Arc<Host>>);

impl Hosts {
    pub(in crate::sim) fn push(&mut self, host: Host) {
        self.0.push(Arc::new(host));
    }

    pub(in crate::sim) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::sim) fn iter(&self) -> impl Iterator<Item = &Host> {
        self.0.iter().map(|host| &**host)
    }
}

impl Index<usize> for Hosts {
    type Output = Host;

    fn index(&self, at: usize) -> &Host {
        &self.0[at]
    }
}

impl IndexMut<usize> for Hosts {
    fn index_mut(&mut self, at: usize) -> &mut Host {
        Arc::make_mut(&mut self.0[at])
    }
}
