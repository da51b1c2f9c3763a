//! Interned names: every change object, host and state that this daemon has seen gets a number, so that the rules work
//! on numbers and vectors.
//!
//! The maps are looked up, never iterated. Numbers follow the order of first mention and are never reused; observable
//! behaviour depends on the numbers only through [`Names::cmp`], which compares the names themselves.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::num::NonZeroU32;

use cob_types::{CobId, HostName, StateName};
use hashbrown::HashTable;

/// The number of a change object that this engine has a name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CobRef(pub(crate) u32);

/// The number of a host that this engine has a name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostRef(pub(crate) u32);

impl HostRef {
    /// This host: the first mentioned.
    pub(crate) const HERE: Self = Self(0);
}

/// A mentioned state of any kind. `Option<StateId>` takes no extra room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StateId(NonZeroU32);

impl StateId {
    fn at(place: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place as u32))
    }

    fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The approximate size of a name beside its letters, in bytes.
const AROUND: usize = 64;

/// All mentioned names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    cobs: Vec<(CobId, HostRef)>,
    /// Keyed by the names in `cobs`, to avoid a second copy, and hashed with the hasher of `host_refs`.
    cob_refs: HashTable<CobRef>,
    hosts: Vec<HostName>,
    host_refs: HashMap<HostName, HostRef>,
    states: Vec<StateName>,
    state_ids: HashMap<StateName, StateId>,
    /// The approximate size of all names, in bytes.
    weight: usize,
}

impl Names {
    /// The names of a daemon of this host.
    pub(crate) fn new(here: &HostName) -> Self {
        let mut names = Self::default();
        names.host(here);
        names
    }

    /// The name of this host.
    pub(crate) fn here(&self) -> &HostName {
        self.host_name(HostRef::HERE)
    }

    /// It is a change object of this host.
    pub(crate) fn is_here(&self, r: CobRef) -> bool {
        self.host_of(r) == HostRef::HERE
    }

    pub(crate) fn cob(&mut self, id: &CobId) -> CobRef {
        if let Some(r) = self.find_cob(id) {
            return r;
        }
        let host = self.host_str(id.host_str(), id);
        let r = CobRef(self.cobs.len() as u32);
        self.weight += id.as_str().len() + AROUND;
        self.cobs.push((id.clone(), host));
        let Self { cobs, cob_refs, host_refs, .. } = self;
        let hasher = host_refs.hasher();
        cob_refs.insert_unique(hasher.hash_one(id), r, |r| hasher.hash_one(&cobs[r.0 as usize].0));
        r
    }

    /// Reserves room for exactly this number of change objects in total.
    pub(crate) fn make_room(&mut self, cobs: usize) {
        self.cobs.reserve_exact(cobs.saturating_sub(self.cobs.len()));
    }

    pub(crate) fn find_cob(&self, id: &CobId) -> Option<CobRef> {
        self.cob_refs.find(self.host_refs.hasher().hash_one(id), |r| self.cob_id(*r) == id).copied()
    }

    pub(crate) fn host(&mut self, host: &HostName) -> HostRef {
        if let Some(r) = self.host_refs.get(host) {
            return *r;
        }
        let r = HostRef(self.hosts.len() as u32);
        self.weight += host.as_str().len() + AROUND;
        self.hosts.push(host.clone());
        self.host_refs.insert(host.clone(), r);
        r
    }

    fn host_str(&mut self, host: &str, id: &CobId) -> HostRef {
        match self.host_refs.get(host) {
            Some(r) => *r,
            None => self.host(&id.host()),
        }
    }

    pub(crate) fn state(&mut self, state: &StateName) -> StateId {
        if let Some(s) = self.state_ids.get(state) {
            return *s;
        }
        let s = StateId::at(self.states.len());
        self.weight += state.as_str().len() + AROUND;
        self.states.push(state.clone());
        self.state_ids.insert(state.clone(), s);
        s
    }

    pub(crate) fn find_state(&self, state: &StateName) -> Option<StateId> {
        self.state_ids.get(state).copied()
    }

    pub(crate) fn cob_id(&self, r: CobRef) -> &CobId {
        &self.cobs[r.0 as usize].0
    }

    pub(crate) fn host_of(&self, r: CobRef) -> HostRef {
        self.cobs[r.0 as usize].1
    }

    pub(crate) fn host_name(&self, r: HostRef) -> &HostName {
        &self.hosts[r.0 as usize]
    }

    pub(crate) fn state_name(&self, s: StateId) -> &StateName {
        &self.states[s.place()]
    }

    pub(crate) fn state_names(&self, set: &[StateId]) -> Vec<StateName> {
        set.iter().map(|s| self.state_name(*s).clone()).collect()
    }

    /// The approximate size of the names, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn cob_count(&self) -> usize {
        self.cobs.len()
    }

    /// Compares by name: the order that people and other hosts see.
    pub(crate) fn cmp(&self, a: CobRef, b: CobRef) -> Ordering {
        if a == b { Ordering::Equal } else { self.cob_id(a).cmp(self.cob_id(b)) }
    }
}
