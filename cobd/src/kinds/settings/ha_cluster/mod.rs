//! The kind back end `ha-cluster`: the membership of this host in a cluster of Corosync and Pacemaker.
//!
//! A host enters a cluster with an empty configuration of Pacemaker, and without a quorum of its own: new nodes wait
//! until all are there, or until a cluster with a quorum takes them in. A member takes a change over while it runs, or
//! goes out and comes back. For both ways out, a restart and a departure, it needs the turn, which a single node has,
//! and the others must keep their quorum.
//!
//! ```text
//!   absent ─> entering ─> starting ─────────────> joined ─> leaves ─> absent
//!             (keep the   (wait for all,           │  ^    (mark, turn, drain, stop,
//!              former CIB) or for a quorum)  turn, │  │     give the former CIB back)
//!                                          drain,  └──┘
//!                                          restart
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | `moves` | the ways in and out, and changes |
//! | `live` | what the programs report |
//! | `former` | the former configuration of Pacemaker |
//! | `tools` | the programs |

mod former;
#[cfg(test)]
mod ha_cluster_test;
mod live;
#[cfg(test)]
mod live_test;
mod moves;
mod tools;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cob_kinds::HaCluster;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::live::Quorum;
use self::tools::{PAUSE, Unit, UnitState};
use super::{Entry, Setting, Spec, earlier, record};
use crate::kinds::native::{Host, NOTE};

/// The record of how far the membership has come.
const STAGE: &str = "membership.json";
/// The record of a node that this change object drains.
const DRAINED: &str = "drained.json";
/// The copies of the earlier files.
const CONFIGURATION: &str = "corosync.conf";
const KEY: &str = "authkey";
const AS_WANTED: &str = "as in the content";
const DIFFERS: &str = "differs";
/// What stands for the key in a note.
const NOT_NOTED: &str = "not-noted";
/// The longest wait of a check for a quorum, for example just after a restart.
const LOOK: Duration = Duration::from_secs(10);

/// The back end `ha-cluster`.
#[derive(Debug)]
pub(super) struct HaClusterSetting;

impl Setting for HaClusterSetting {
    type Content = HaCluster;

    fn spec(&self, entry: Entry<HaCluster>) -> Result<Box<dyn Spec>, String> {
        let Entry { content, host, cob, own, longest } = entry;
        let node = cob.split('/').next().unwrap_or_default().to_owned();
        // `longest` is half of the time of a transition. The rest is for the last look, and for the answer.
        let limit = Instant::now() + longest * 8 / 5;
        Ok(Box::new(Member { content, host, node, own, longest, limit }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, STAGE, DRAINED]
    }

    /// The key stays in its file.
    fn noted(&self, content: &str) -> String {
        let Ok(mut content) = serde_json::from_str::<Value>(content) else { return "{}".to_owned() };
        if let Some(key) = content.get_mut("authkey") {
            *key = NOT_NOTED.into();
        }
        content.to_string()
    }
}

/// This host as a node.
#[derive(Debug)]
struct Member {
    content: HaCluster,
    host: Host,
    node: String,
    own: PathBuf,
    longest: Duration,
    limit: Instant,
}

/// How far the membership has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    /// The host is not in the cluster yet.
    Entering,
    /// Corosync may run, and has never had a quorum.
    Starting,
    /// It has had a quorum.
    Joined,
    /// It may leave: the others know it.
    Leaving,
}

/// The original state.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    configuration: Value,
    key: Value,
    corosync: UnitState,
    pacemaker: UnitState,
    /// The host was a node of this very cluster.
    is_member: bool,
}

impl Before {
    fn read(before: Option<&Value>) -> Result<Self, String> {
        let before = before.ok_or("the earlier state is not noted")?;
        Self::deserialize(before).map_err(|error| format!("the note of the earlier state can't be read: {error}"))
    }
}

impl Member {
    fn text(&self) -> Result<Option<String>, String> {
        self.host.read_if_there(HaCluster::CONFIGURATION)
    }

    fn stage(&self) -> Result<Option<Stage>, String> {
        record::read(&self.own, STAGE)
    }

    fn is_drained(&self) -> Result<bool, String> {
        record::read::<bool>(&self.own, DRAINED).map(|drained| drained.unwrap_or_default())
    }

    /// Whether the file has the key.
    fn has_key(&self) -> Result<bool, String> {
        Ok(match &self.content.authkey {
            Some(key) => self.host.read_if_there(HaCluster::KEY)?.as_ref() == Some(key),
            None => true,
        })
    }

    /// Whether the cluster has no other node.
    fn is_single(&self) -> bool {
        self.content.nodes.len() == 1
    }

    /// The content at this stage: nodes that enter have no quorum before all are there, so that several new nodes of a
    /// cluster are no cluster of their own.
    fn content_at(&self, stage: Option<Stage>) -> HaCluster {
        let mut content = self.content.clone();
        if matches!(stage, Some(Stage::Entering | Stage::Starting)) && !self.is_single() {
            content.quorum.wait_for_all = content.quorum.wait_for_all.or(Some(true));
        }
        content
    }

    /// The votes, after a short wait for a quorum.
    fn quorum(&self) -> Result<Quorum, String> {
        let limit = Instant::now() + LOOK.min(self.longest / 3);
        loop {
            let quorum = tools::again(limit, tools::quorum)?;
            if quorum.is_quorate || Instant::now() >= limit {
                return Ok(quorum);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn no_quorum(&self, quorum: &Quorum) -> String {
        let missing: Vec<&str> = self.missing(quorum).collect();
        format!(
            "the cluster has no quorum: {}, and {} are not there; bring them back, or stop corosync here by hand",
            quorum.words(),
            if missing.is_empty() { "others".to_owned() } else { missing.join(", ") }
        )
    }

    /// The nodes that are not there.
    fn missing<'a>(&'a self, quorum: &'a Quorum) -> impl Iterator<Item = &'a str> {
        let missing = self.content.nodes.iter().filter(|(_, node)| !quorum.members.contains(&node.id));
        missing.map(|(name, _)| name.as_str())
    }

    /// The parts that only a running cluster has.
    fn look_inside(&self, found: &mut Value, stage: Option<Stage>) -> Result<(), String> {
        let in_use = tools::in_use()?;
        // Another cluster, which the host has yet to leave.
        if matches!(stage, None | Some(Stage::Entering)) && !in_use.has(&self.content, &self.node) {
            found["in use"] = json!("another cluster");
            return Ok(());
        }
        let is_starting = stage == Some(Stage::Starting);
        let quorum = if is_starting { tools::quorum()? } else { self.quorum()? };
        if !quorum.is_quorate && !is_starting {
            return Err(self.no_quorum(&quorum));
        }
        let stage = if quorum.is_quorate { Some(Stage::Joined) } else { stage };
        let content = self.content_at(stage);
        found["configuration"] = json!(self.compared(&content)?);
        found["in use"] = json!(in_use.difference(&content, &self.node));
        if Unit::Pacemaker.is_active()? && quorum.is_quorate {
            let cib = tools::again(Instant::now() + LOOK.min(self.longest / 3), tools::cib)?;
            let members = in_use.members(&quorum);
            let left: Vec<&String> = cib.left(&self.content, &members).collect();
            if !left.is_empty() {
                found["nodes that left"] = json!(left);
            }
            if cib.nodes.get(&self.node) == Some(&true) || cib.turn.as_ref() == Some(&self.node) {
                found["drained"] = json!(true);
            }
        }
        Ok(())
    }

    fn compared(&self, content: &HaCluster) -> Result<&'static str, String> {
        Ok(if self.text()?.as_deref() == Some(&content.text()) { AS_WANTED } else { DIFFERS })
    }
}

impl Spec for Member {
    fn target(&self) -> String {
        "the membership of the host".to_owned()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let stage = self.stage()?;
        let corosync = Unit::Corosync.state()?;
        let mut found = json!({
            "configuration": self.compared(&self.content_at(stage))?,
            "corosync": corosync.word(),
            "pacemaker": Unit::Pacemaker.state()?.word(),
            "in use": "nothing",
            "drained": self.is_drained()?,
        });
        if self.content.authkey.is_some() {
            found["key"] = json!(if self.has_key()? { AS_WANTED } else { DIFFERS });
        }
        if corosync.is_active {
            self.look_inside(&mut found, stage)?;
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        // The files are ours already.
        if self.own.join(NOTE).exists() {
            return Ok(None);
        }
        let file = |path: &str, name: &str| earlier::note(&self.host.path(path), &self.own, name);
        let corosync = Unit::Corosync.state()?;
        let is_member = if corosync.is_active {
            let in_use = tools::in_use()?;
            in_use.has(&self.content, &self.node) && in_use.name() == self.content.name
        } else {
            let text = self.text()?.unwrap_or_default();
            let has = |line: &str| text.lines().any(|own| own.trim() == line);
            has(&format!("cluster_name: {}", self.content.name)) && has(&format!("name: {}", self.node))
        };
        let before = Before {
            configuration: file(HaCluster::CONFIGURATION, CONFIGURATION)?,
            key: file(HaCluster::KEY, KEY)?,
            corosync,
            pacemaker: Unit::Pacemaker.state()?,
            is_member,
        };
        serde_json::to_value(before).map(Some).map_err(|error| error.to_string())
    }

    fn merged(&self, noted: Option<Value>, _found: Option<Value>) -> Result<Option<Value>, String> {
        Ok(noted)
    }

    fn wanted(&self) -> Value {
        let state = UnitState { is_active: true, is_enabled: true };
        let mut wanted = json!({
            "configuration": AS_WANTED,
            "corosync": state.word(),
            "pacemaker": state.word(),
            "in use": AS_WANTED,
            "drained": false,
        });
        if self.content.authkey.is_some() {
            wanted["key"] = json!(AS_WANTED);
        }
        wanted
    }

    fn hindered(&self) -> Result<(), String> {
        tools::are_there()?;
        if self.content.nodes.contains_key(&self.node) {
            return Ok(());
        }
        Err(format!(
            "`nodes` has no {}: each host with this change object is a node of the cluster; add it to `nodes`, or \
             remove the change object from the host",
            self.node
        ))
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        self.take_part(&Before::read(before)?)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let before = Before::read(before)?;
        let stage = self.stage()?;
        match stage {
            None | Some(Stage::Entering) => {}
            Some(Stage::Leaving) => self.stop()?,
            Some(Stage::Starting | Stage::Joined) => self.leave(stage == Some(Stage::Joined))?,
        }
        earlier::restore(&self.host, HaCluster::CONFIGURATION, &self.own, CONFIGURATION, &before.configuration)?;
        earlier::restore(&self.host, HaCluster::KEY, &self.own, KEY, &before.key)?;
        // Without a stage, an interrupted departure has given the former configuration back already.
        if stage.is_some() && !before.is_member {
            former::restore(&self.own)?;
        }
        record::delete(&self.own, STAGE)?;
        record::delete(&self.own, DRAINED)?;
        former::drop_copies(&self.own)?;
        tools::end_trial(&self.own)?;
        for (unit, state) in [(Unit::Corosync, before.corosync), (Unit::Pacemaker, before.pacemaker)] {
            unit.enable(state.is_enabled)?;
            if state.is_active && !unit.is_active()? {
                unit.start()?;
            }
        }
        Ok(())
    }

    fn remark(&self) -> Result<Option<String>, String> {
        let quorum = tools::quorum()?;
        let missing: Vec<&str> = self.missing(&quorum).collect();
        let missing = if missing.is_empty() { None } else { Some(format!("not there: {}", missing.join(", "))) };
        if quorum.is_quorate {
            return Ok(missing);
        }
        let waits = format!("the new cluster has no quorum yet: {}", quorum.words());
        Ok(Some([Some(waits), missing].into_iter().flatten().collect::<Vec<_>>().join("; ")))
    }
}
