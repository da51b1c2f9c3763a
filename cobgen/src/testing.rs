//! Small drafts for tests, written in short statements.
//!
//! Every statement has its own line in an imagined `model.yaml`, so positions in messages can be compared. The short
//! words expand as the model page says, without code from `expand`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cob_types::canonical::blob_hash;
use cob_types::generation::Security;
use cob_types::kind::{KindCheck, PayloadFile};
use cob_types::switch::SwitchPolicy;
use cob_types::{CobId, Command, GenerationNumber, HostName, Kind, KindName, Need, StateName, Transition};

use crate::draft::{Arrow, At, Draft, DraftCob, DraftHost, Place, Said, When};
use crate::generation::{Assembled, Refusal, assemble};

pub(crate) mod random;

/// A draft under construction.
#[derive(Debug, Clone)]
pub(crate) struct Sketch {
    pub(crate) draft: Draft,
    line: u32,
}

pub(crate) fn id(text: &str) -> CobId {
    CobId::new(text).expect("id")
}

pub(crate) fn state(text: &str) -> StateName {
    StateName::new(text).expect("state")
}

/// Parses `b/db@up|slow`.
pub(crate) fn need(text: &str) -> Need {
    let (cob, states) = text.split_once('@').expect("COB@STATES");
    Need { cob: id(cob), states: states.split('|').map(state).collect() }
}

impl Sketch {
    /// An empty model with the kind `simple`: down, up, and outdated, from which transitions lead to both.
    pub(crate) fn new() -> Self {
        let draft = Draft {
            security: Security::LoopbackOnly,
            revoked: BTreeSet::new(),
            policy: SwitchPolicy::default(),
            timetable: Default::default(),
            operators: BTreeMap::new(),
            hosts: BTreeMap::new(),
            labels: BTreeMap::new(),
            clusters: BTreeMap::new(),
            kinds: BTreeMap::new(),
            cobs: BTreeMap::new(),
            blobs: BTreeMap::new(),
            secrets: BTreeMap::new(),
            sealed: BTreeMap::new(),
        };
        let mut sketch = Self { draft, line: 0 };
        let transitions = ["outdated>down", "outdated>up", "down>up", "up>down"];
        sketch.kind("simple", &["outdated", "down", "up"], &transitions);
        let simple = sketch.draft.kinds.get_mut("simple").expect("made above");
        simple.value.preferred = state("up");
        simple.value.pre_remove = state("down");
        sketch
    }

    fn place(&mut self) -> Place {
        self.line += 1;
        Place { file: Arc::new(PathBuf::from("model.yaml")), line: self.line, column: 5 }
    }

    /// A kind with its states and transitions, `from>to` or `from>to!failure`. Prefers its last state.
    pub(crate) fn kind(&mut self, name: &str, states: &[&str], transitions: &[&str]) -> &mut Self {
        let transitions = transitions.iter().map(|transition| {
            let (transition, failure) =
                transition.split_once('!').map_or((*transition, None), |(transition, f)| (transition, Some(state(f))));
            let (from, to) = transition.split_once('>').expect("from>to");
            Transition {
                from: state(from),
                to: state(to),
                run: Some(Command::Shell("true".to_owned())),
                timeout_ms: 1000,
                grace_ms: 100,
                retries: 0,
                retry_delay_ms: 100,
                failure,
                revert: None,
                irreversible: false,
            }
        });
        let name = KindName::new(name).expect("kind");
        let states: Vec<StateName> = states.iter().map(|s| state(s)).collect();
        let kind = Kind {
            name: name.clone(),
            backend: "command".to_owned(),
            preferred: states.last().expect("a state").clone(),
            pre_remove: states.first().expect("a state").clone(),
            priority: states.clone(),
            check: KindCheck { run: Some(Command::Shell("true".to_owned())), timeout_ms: 1000, interval_ms: None },
            transitions: transitions.collect(),
            files: BTreeMap::new(),
            states,
        };
        let place = self.place();
        self.draft.kinds.insert(name, At { value: kind, place });
        self
    }

    pub(crate) fn host(&mut self, name: &str) -> &mut Self {
        let name = HostName::new(name).expect("host");
        if !self.draft.hosts.contains_key(&name) {
            let address = Some(format!("tcp://127.0.0.1:{}", 7000 + self.draft.hosts.len()));
            let place = self.place();
            self.draft.hosts.insert(name, At { value: DraftHost { address, keys: Vec::new() }, place });
        }
        self
    }

    /// A change object of the kind `simple`, and its host.
    pub(crate) fn cob(&mut self, cob: &str, preferred: &str) -> &mut Self {
        self.cob_of("simple", cob, preferred)
    }

    pub(crate) fn cob_of(&mut self, kind: &str, cob: &str, preferred: &str) -> &mut Self {
        let cob = id(cob);
        self.host(cob.host_str());
        let value = DraftCob {
            kind: KindName::new(kind).expect("kind"),
            preferred: state(preferred),
            content: serde_json::json!({}),
            files: BTreeMap::new(),
            restarts_on: Vec::new(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
            arrows: Vec::new(),
        };
        let place = self.place();
        self.draft.cobs.insert(cob, At { value, place });
        self
    }

    pub(crate) fn content(&mut self, cob: &str, content: serde_json::Value) -> &mut Self {
        self.cob_mut(cob).content = content;
        self
    }

    pub(crate) fn file(&mut self, cob: &str, name: &str, bytes: &[u8]) -> &mut Self {
        let blob = blob_hash(bytes);
        self.draft.blobs.insert(blob, bytes.to_vec());
        self.cob_mut(cob).files.insert(name.to_owned(), PayloadFile { mode: 0o755, blob });
        self
    }

    /// `(cob, from, to) <- need`, in the explicit form.
    pub(crate) fn transition(&mut self, cob: &str, from: &str, to: &str, needed: &str) -> &mut Self {
        let when = When::Transition { from: state(from), to: state(to) };
        let (words, place) = (format!("needs: [{needed}]"), self.place());
        self.arrow(cob, when, need(needed), &words, &place)
    }

    /// `(cob, state) <- need`, in the explicit form.
    pub(crate) fn lock(&mut self, cob: &str, promised: &str, needed: &str) -> &mut Self {
        let (words, place) = (format!("needs: [{needed}]"), self.place());
        self.arrow(cob, When::Lock { state: state(promised) }, need(needed), &words, &place)
    }

    pub(crate) fn requires(&mut self, cob: &str, on: &str) -> &mut Self {
        let (words, place) = (format!("requires: [{on}]"), self.place());
        self.start_after(cob, on, &words, &place);
        let grant = Need { cob: id(on), states: vec![self.kind_of(on).preferred.clone()] };
        let held = When::Lock { state: self.kind_of(cob).preferred.clone() };
        self.arrow(cob, held, grant, &words, &place);
        // The required change object stops and restarts only while its dependent is off.
        let kind = self.kind_of(on).clone();
        let off = Need { cob: id(cob), states: vec![self.kind_of(cob).pre_remove.clone()] };
        let stops = kind.transitions.iter().filter(|t| t.from == kind.preferred || t.from == "outdated");
        for t in stops {
            let when = When::Transition { from: t.from.clone(), to: t.to.clone() };
            self.arrow(on, when, off.clone(), &words, &place);
        }
        self
    }

    /// A budget and its members.
    pub(crate) fn budget(&mut self, budget: &str, at_most: u32, members: &[&str]) -> &mut Self {
        self.kind("budget", &["open"], &[]);
        self.cob_of("budget", budget, "open").cob_mut(budget).at_most = Some(at_most);
        for member in members {
            let value = Need { cob: id(budget), states: vec![state("open")] };
            let token = At { value, place: self.place() };
            self.cob_mut(member).budget = Some(token);
        }
        self
    }

    pub(crate) fn after(&mut self, cob: &str, on: &str) -> &mut Self {
        let (words, place) = (format!("after: [{on}]"), self.place());
        self.start_after(cob, on, &words, &place);
        self
    }

    pub(crate) fn restarts_on(&mut self, cob: &str, on: &str) -> &mut Self {
        let (words, place) = (format!("restarts_on: [{on}]"), self.place());
        self.cob_mut(cob).restarts_on.push(id(on));
        if self.draft.cobs.contains_key(on) {
            self.start_after(cob, on, &words, &place);
        }
        self
    }

    fn start_after(&mut self, cob: &str, on: &str, words: &str, place: &Place) {
        let kind = self.kind_of(cob).clone();
        let on_state = Need { cob: id(on), states: vec![self.kind_of(on).preferred.clone()] };
        for t in kind.transitions.iter().filter(|t| t.to == kind.preferred) {
            let when = When::Transition { from: t.from.clone(), to: t.to.clone() };
            self.arrow(cob, when, on_state.clone(), words, place);
        }
    }

    fn arrow(&mut self, cob: &str, when: When, need: Need, words: &str, place: &Place) -> &mut Self {
        let Need { cob: on, states } = need;
        let said = Arc::new(Said { when, states, words: Arc::from(words), place: place.clone() });
        self.cob_mut(cob).arrows.push(Arrow { on, said });
        self
    }

    fn cob_mut(&mut self, cob: &str) -> &mut DraftCob {
        &mut self.draft.cobs.get_mut(cob).expect("a change object").value
    }

    fn kind_of(&self, cob: &str) -> &Kind {
        &self.draft.kinds[&self.draft.cobs[cob].value.kind].value
    }

    pub(crate) fn assemble(&self) -> Result<Assembled, Refusal> {
        assemble(self.draft.clone(), GenerationNumber(1), GenerationNumber(0))
    }

    pub(crate) fn assembled(&self) -> Assembled {
        self.assemble().expect("a draft without faults")
    }
}
