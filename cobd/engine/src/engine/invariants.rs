//! The invariants of an engine after every event. The simulator and the explorer check them; a violation is a bug.

use cob_types::{CobId, GenerationNumber, HostName};

use crate::engine::Engine;
use crate::object::decide::Scratch;
use crate::object::{Cx, Object};
use crate::output::Output;
use crate::record::{Durable, DurableCob, GrantRecord};

/// Checks the invariants of an engine.
///
/// # Errors
/// The first violation, in words.
pub fn check(engine: &Engine) -> Result<(), String> {
    let mut unsettled = 0;
    for object in engine.objects.iter() {
        let id = engine.names.cob_id(object.me);
        let checked = object.verify(&engine.names).and_then(|()| check_rest(engine, object));
        checked.map_err(|what| format!("{id}: {what}"))?;
        unsettled += usize::from(!object.is_settled());
    }
    let count = engine.objects.iter().count();
    if count != engine.object_count() {
        let here = cob_types::words::count(count, "change object");
        return Err(format!("{here}, but the active generation has {}", engine.object_count()));
    }
    let acting = engine.objects.iter().filter(|o| o.acting()).count();
    if acting != engine.objects.acting() {
        return Err(format!("{acting} act, but {} counted", engine.objects.acting()));
    }
    if unsettled != engine.objects.unsettled() {
        return Err(format!(
            "{} not converged, but {} counted",
            cob_types::words::count(unsettled, "change object"),
            engine.objects.unsettled()
        ));
    }
    Ok(())
}

impl Engine {
    /// Whether an idle change object would stay idle under any switch: it resets and decides under the next generation,
    /// forward and back, paused and not, without an effect.
    fn is_unmoved(&self, object: &Object) -> bool {
        let now = object.before_check();
        [false, true].into_iter().all(|other| {
            let mut object = object.clone();
            let (mut out, mut scratch) = (Output::default(), Scratch::default());
            let (mut probing, mut number) = (self.probing.clone(), self.number);
            let mut cx = Cx {
                now,
                names: &self.names,
                generation: GenerationNumber(self.generation.0 + 1),
                paused: other,
                goes_back: other,
                limited: other,
                tokens: &self.limits.tokens,
                peers: &self.peers,
                unsettled: self.objects.unsettled(),
                probing: &mut probing,
                activations: self.activations + 1,
                number: &mut number,
                faults: &self.faults,
                out: &mut out,
                scratch: &mut scratch,
            };
            let deadline = object.deadline(&cx);
            object.renew();
            object.decide(&mut cx);
            let same = object.is_idle() && object.deadline(&cx) == deadline;
            same && out.is_empty() && number == self.number
        })
    }
}

/// A change object that switches and reports skip must not be concerned by them.
fn check_rest(engine: &Engine, o: &Object) -> Result<(), String> {
    let listed = engine.objects.active().any(|other| other.me == o.me);
    match (o.is_idle(), listed) {
        (true, true) => Err("it is idle, and counts as active".to_owned()),
        (false, false) => Err("it is active, and counts as idle".to_owned()),
        (true, false) if !engine.is_unmoved(o) => Err("it counts as idle, and has work to do".to_owned()),
        (true, false) | (false, true) => Ok(()),
    }
}

/// No request of an honest host is refused: of any host but the liar.
///
/// # Errors
/// The last refusal.
pub fn refuses_no_honest_host(engine: &Engine, liar: Option<&HostName>) -> Result<(), String> {
    let refused = engine.unjustified().find(|(host, _)| Some(*host) != liar);
    refused.map_or(Ok(()), |(host, refused)| Err(format!("it refuses a request of {host}: {refused:?}")))
}

/// Compares the sum of the records with the running engine.
///
/// # Errors
/// The first difference that matters for a restart.
pub fn agrees(engine: &Engine, recorded: &Durable) -> Result<(), String> {
    let living = engine.durable();
    if living.active != recorded.active || living.pending != recorded.pending {
        return Err("the recorded generation differs".to_owned());
    }
    let facts = |d: &Durable| (d.epoch, d.highest, d.departed.clone(), d.announced.clone(), d.declared.clone());
    if facts(&living) != facts(recorded) {
        return Err(format!("the recorded departures differ: {:?}, not {:?}", facts(recorded), facts(&living)));
    }
    if living.stopped != recorded.stopped {
        return Err("the recorded stops differ".to_owned());
    }
    for (id, now) in &living.cobs {
        let empty = DurableCob::default();
        let was = recorded.cobs.get(id).map_or(&empty, |was| &**was);
        let facts = |c: &DurableCob| {
            let grant = |(to, g): (&CobId, &GrantRecord)| (to.clone(), g.number(), g.get().state);
            let grants: Vec<_> = c.grants.iter().map(grant).collect();
            let invalidated: Vec<_> = c.invalidated.iter().map(|(to, g)| (to.clone(), g.number())).collect();
            // An action ends its state and the last attempt.
            let state = c.state.clone().filter(|_| now.action.is_none());
            let missed = c.missed.clone().filter(|_| now.action.is_none() && now.missed.is_some());
            let numbers = (c.action.as_ref().map(|a| a.job), c.token.as_ref().map(|t| t.number));
            (numbers, state, c.failed, missed, grants, invalidated)
        };
        if facts(was) != facts(now) {
            return Err(format!("{id}: the record differs: {:?}, not {:?}", facts(was), facts(now)));
        }
    }
    Ok(())
}
