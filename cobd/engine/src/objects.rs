//! The change objects of a host, in slots that are used again.

use std::collections::{BTreeSet, VecDeque};

use crate::names::CobRef;
use crate::object::Object;
use crate::time::Time;

const NOWHERE: u32 = u32::MAX;

/// The change objects of a host, and which of these are active.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    slots: Vec<Slot>,
    /// Slots of departed change objects.
    free: Vec<u32>,
    /// The slot of each change object of this host, by its number.
    slot_of: Vec<u32>,
    /// Slots of change objects that are [not idle](Object::is_idle) after all have decided: only these need to handle
    /// an event that concerns all change objects.
    active: BTreeSet<u32>,
    /// Slots of change objects that have yet to decide.
    touched: VecDeque<u32>,
    unsettled: usize,
    acting: usize,
}

#[derive(Debug, Clone)]
struct Slot {
    object: Option<Object>,
    /// The earliest noted deadline.
    wake_at: Time,
    /// It is in `touched`.
    touched: bool,
    /// It is in `active`.
    active: bool,
}

impl Objects {
    /// Reserves room for exactly the change objects of a first generation.
    pub(crate) fn make_room(&mut self, count: usize) {
        if self.slots.is_empty() {
            self.slots.reserve_exact(count);
        }
    }

    pub(crate) fn slot(&self, cob: CobRef) -> Option<usize> {
        let slot = *self.slot_of.get(cob.0 as usize)?;
        (slot != NOWHERE).then_some(slot as usize)
    }

    pub(crate) fn get(&self, cob: CobRef) -> Option<&Object> {
        self.in_slot(self.slot(cob)?)
    }

    /// For changes after which it needs no decision, and stays as settled as it is.
    pub(crate) fn get_mut(&mut self, cob: CobRef) -> Option<&mut Object> {
        let slot = self.slot(cob)?;
        self.slots[slot].object.as_mut()
    }

    pub(crate) fn in_slot(&self, slot: usize) -> Option<&Object> {
        self.slots[slot].object.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Object> {
        self.slots.iter().filter_map(|slot| slot.object.as_ref())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Object> {
        self.slots.iter_mut().filter_map(|slot| slot.object.as_mut())
    }

    /// The active change objects.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Object> {
        self.active.iter().filter_map(|slot| self.in_slot(*slot as usize))
    }

    /// The change object of each slot, and the free slots in the order of their reuse.
    #[cfg(feature = "explored")]
    pub(crate) fn layout(&self) -> (impl Iterator<Item = Option<&Object>>, &[u32]) {
        (self.slots.iter().map(|slot| slot.object.as_ref()), &self.free)
    }

    /// The number of change objects outside their desired states.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// The number of running actions.
    pub(crate) fn acting(&self) -> usize {
        self.acting
    }

    /// Adds a change object; `names` is the number of names.
    pub(crate) fn insert(&mut self, object: Object, names: usize) {
        let (me, slot) = (object.me, self.free.pop().unwrap_or(self.slots.len() as u32));
        if self.slot_of.len() <= me.0 as usize {
            self.slot_of.resize(names.max(me.0 as usize + 1), NOWHERE);
        }
        self.slot_of[me.0 as usize] = slot;
        self.unsettled += usize::from(!object.is_settled());
        self.active.insert(slot);
        let new = Slot { object: Some(object), wake_at: Time::NEVER, touched: false, active: true };
        match self.slots.get_mut(slot as usize) {
            Some(free) => *free = new,
            None => self.slots.push(new),
        }
        self.touch(me);
    }

    pub(crate) fn remove(&mut self, me: CobRef) -> Option<Object> {
        let slot = self.slot(me)?;
        self.slot_of[me.0 as usize] = NOWHERE;
        let object = self.slots[slot].object.take()?;
        self.free.push(slot as u32);
        self.active.remove(&(slot as u32));
        self.unsettled -= usize::from(!object.is_settled());
        self.acting -= usize::from(object.acting());
        Some(object)
    }

    /// Changes the change object of a slot, and counts whether it is settled and acts.
    pub(crate) fn change<R>(&mut self, slot: usize, change: impl FnOnce(&mut Object) -> R) -> Option<R> {
        let object = self.slots[slot].object.as_mut()?;
        let (settled, acted) = (object.is_settled(), object.acting());
        let result = change(object);
        self.unsettled = self.unsettled + usize::from(settled) - usize::from(object.is_settled());
        self.acting = self.acting + usize::from(object.acting()) - usize::from(acted);
        Some(result)
    }

    /// Queues a change object for a decision.
    pub(crate) fn touch(&mut self, cob: CobRef) {
        if let Some(slot) = self.slot(cob)
            && !std::mem::replace(&mut self.slots[slot].touched, true)
        {
            self.touched.push_back(slot as u32);
        }
    }

    /// Queues all active change objects for a decision; it would change no idle change object.
    pub(crate) fn touch_active(&mut self) {
        let all: Vec<_> = self.active().map(|o| o.me).collect();
        all.into_iter().for_each(|o| self.touch(o));
    }

    /// The slot of the next change object that has to decide.
    pub(crate) fn next_touched(&mut self) -> Option<usize> {
        let slot = self.touched.pop_front()? as usize;
        self.slots[slot].touched = false;
        Some(slot)
    }

    /// Updates the set of active change objects after a decision.
    pub(crate) fn note_activity(&mut self, slot: usize) {
        let Slot { object: Some(object), active: was, .. } = &mut self.slots[slot] else { return };
        let active = !object.is_idle();
        if active != std::mem::replace(was, active) {
            if active {
                self.active.insert(slot as u32);
            } else {
                self.active.remove(&(slot as u32));
                object.shrink();
            }
        }
    }

    /// Notes a deadline; returns whether it needs a timer.
    pub(crate) fn wake_at(&mut self, slot: usize, at: Time) -> bool {
        let slot = &mut self.slots[slot];
        let earlier = slot.object.is_some() && at < slot.wake_at;
        if earlier {
            slot.wake_at = at;
        }
        earlier
    }

    /// The change object whose timer of this time is still valid.
    pub(crate) fn woken(&mut self, slot: usize, at: Time) -> Option<CobRef> {
        let slot = &mut self.slots[slot];
        let due = slot.object.as_ref().filter(|_| slot.wake_at == at)?.me;
        slot.wake_at = Time::NEVER;
        Some(due)
    }
}
