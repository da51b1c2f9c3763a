//! The canonical form of the real states: see [`crate::canonical`].

use super::Reality;
use crate::canonical::Form;

impl Reality {
    /// Adds all data that decides the future.
    pub fn canonical(&self, form: &mut Form<'_>) {
        for thing in &self.things {
            form.state(&thing.state);
            form.fingerprint(thing.content);
            match &thing.running {
                None => form.word(0),
                Some(running) => {
                    let relies_on = running.relies_on();
                    form.word(1 + relies_on.len() as u64);
                    form.state(&running.to);
                    form.fingerprint(running.content);
                    relies_on.into_iter().for_each(|other| form.word(other as u64));
                }
            }
            form.some_state(thing.kept_from.as_ref());
            form.word(thing.promised_as_left.len() as u64);
            for (by, state) in &thing.promised_as_left {
                form.cob(by);
                form.state(state);
            }
            form.flags(&[thing.disturbed.is_some(), thing.beyond.is_some()]);
        }
    }
}
