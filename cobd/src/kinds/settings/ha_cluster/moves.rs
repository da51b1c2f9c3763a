//! The ways into a cluster and out of it, and the changes of a member.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cob_kinds::HaCluster;

use super::live::{Cib, InUse, LEAVES, Quorum};
use super::tools::{self, PAUSE, Unit};
use super::{Before, DRAINED, Member, STAGE, Stage, former, record};

/// How long a new node waits for a quorum. Later checks go on waiting.
const START: Duration = Duration::from_secs(45);
/// How long a node waits while nothing happens: for the others, if they would lose their quorum without it, or for a node
/// that is to leave and stays. A longer wait would delay the content that corrects the fault.
const PATIENCE: Duration = Duration::from_secs(90);
/// The longest wait for an idle cluster before another look: one without a valid configuration never says that it is idle.
const SETTLING: Duration = Duration::from_secs(20);
/// The attribute of a node without resources.
const STANDBY: &str = "standby";

/// Tells in the output of the transition what it waits for, at each change.
#[derive(Debug, Default)]
struct Waits(String);

impl Waits {
    fn pause(&mut self, why: &str) {
        if self.0 != why {
            why.clone_into(&mut self.0);
            eprintln!("waits: {why}");
        }
        sleep(PAUSE);
    }
}

/// A way out of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The node comes back.
    Restart,
    /// It leaves for good.
    Departure,
}

/// Whether a node may go out of the cluster now.
#[derive(Debug, PartialEq, Eq)]
enum Gate {
    /// It has the turn, and the others keep their quorum.
    Open,
    /// All members leave, and nothing runs.
    AllLeave,
    /// Another node goes out first.
    Turn(String),
    /// Not now.
    Shut(String),
}

impl Member {
    /// Brings the host into the cluster, or takes a change over.
    pub(super) fn take_part(&self, before: &Before) -> Result<(), String> {
        let stage = self.enter(before)?;
        let content = self.content_at(Some(stage));
        tools::try_out(&content, &self.own)?;
        if Unit::Corosync.is_active()? {
            let in_use = tools::in_use()?;
            let is_joined = stage == Stage::Joined;
            if is_joined && !self.quorum()?.is_quorate {
                return Err(self.no_quorum(&tools::quorum()?));
            }
            if in_use.speaks_otherwise(&self.content) || !self.has_key()? {
                self.is_alone(&in_use)?;
                self.go_out(stage)?;
            } else if in_use.needs_restart(&self.content, &self.node) {
                self.go_out(stage)?;
            } else {
                self.take_over(&content, stage)?;
            }
        }
        if !Unit::Corosync.is_active()? {
            if let Some(key) = &self.content.authkey {
                self.host.replace(HaCluster::KEY, key, 0o400)?;
            }
            self.write(&content)?;
        }
        Unit::Corosync.switch_on()?;
        Unit::Pacemaker.switch_on()?;
        tools::again(self.limit, tools::nodes).map_err(|why| format!("Pacemaker does not answer: {why}"))?;
        match stage {
            Stage::Entering | Stage::Starting => self.finish_start(),
            Stage::Joined | Stage::Leaving => self.come_back(),
        }
    }

    /// Leaves another cluster and puts its configuration aside.
    fn enter(&self, before: &Before) -> Result<Stage, String> {
        let at = |stage: Stage| record::write(&self.own, STAGE, &stage).map(|()| stage);
        match self.stage()? {
            Some(stage @ (Stage::Starting | Stage::Joined)) => return Ok(stage),
            // The departure was called off.
            Some(Stage::Leaving) => return at(Stage::Joined),
            None if before.is_member => return at(Stage::Joined),
            Some(Stage::Entering) => {}
            None => {
                self.leave_other()?;
                former::keep(&self.own)?;
                at(Stage::Entering)?;
            }
        }
        self.stop()?;
        former::clear()?;
        at(Stage::Starting)
    }

    /// Takes the host out of another cluster, in which nothing runs.
    fn leave_other(&self) -> Result<(), String> {
        if Unit::Pacemaker.is_active()? {
            let nodes = tools::again(self.limit, tools::nodes)?;
            if !nodes.running.is_empty() {
                let (name, node) = (tools::in_use()?.name().to_owned(), &self.node);
                return Err(format!(
                    "{node} is a node of the cluster {name}, in which {} run; nothing was changed: remove them, or \
                     take {node} out of that cluster",
                    nodes.words()
                ));
            }
        }
        self.stop()
    }

    /// The cluster has a quorum now, or its nodes are still to come.
    fn finish_start(&self) -> Result<(), String> {
        let limit = self.limit.min(Instant::now() + START);
        while !tools::again(limit, tools::quorum)?.is_quorate {
            if Instant::now() >= limit {
                return Ok(());
            }
            sleep(PAUSE);
        }
        record::write(&self.own, STAGE, &Stage::Joined)?;
        self.take_over(&self.content, Stage::Joined)?;
        self.come_back()
    }

    /// The node is a member with a quorum: resources return to it, and others may go out.
    fn come_back(&self) -> Result<(), String> {
        loop {
            let quorum = tools::again(self.limit, tools::quorum)?;
            if quorum.is_quorate {
                break;
            }
            if Instant::now() >= self.limit {
                return Err(self.no_quorum(&quorum));
            }
            sleep(PAUSE);
        }
        let cib = tools::again(self.limit, tools::cib)?;
        let has_turn = cib.turn.as_ref() == Some(&self.node);
        // Pacemaker has a controller only then, which resources and other nodes need.
        while !tools::again(self.limit, tools::nodes)?.online.contains(&self.node) {
            if Instant::now() >= self.limit {
                return Err(format!("Pacemaker on {} does not join the others: see `crm_mon -1`", self.node));
            }
            sleep(PAUSE);
        }
        self.end_drain()?;
        if cib.nodes.get(&self.node) == Some(&true) {
            self.mark(false)?;
        }
        if has_turn {
            tools::again(self.limit, || tools::delete(&Cib::path_of_turn(&self.node)))?;
        }
        let members = tools::in_use()?.members(&tools::quorum()?);
        for node in cib.left(&self.content, &members) {
            if cib.turn.as_ref() == Some(node) {
                tools::delete(&Cib::path_of_turn(node))?;
            }
            // Another member may have been quicker.
            if let Err(why) = tools::forget(node)
                && tools::cib()?.nodes.contains_key(node)
            {
                return Err(why);
            }
        }
        Ok(())
    }

    fn write(&self, content: &HaCluster) -> Result<(), String> {
        self.host.write(HaCluster::CONFIGURATION, &content.text(), 0o644)
    }

    /// Has a running Corosync read the configuration. Nodes that leave are taken off the list when they are gone, and
    /// new nodes are added one at a time, so that the members keep their quorum.
    fn take_over(&self, content: &HaCluster, stage: Stage) -> Result<(), String> {
        let (mut waits, mut patience) = (Waits::default(), self.patience());
        loop {
            let (in_use, quorum) = (tools::in_use()?, tools::quorum()?);
            let (listed, members) = (in_use.nodes(), in_use.members(&quorum));
            let (why, limit) = match next_list(content, &listed.into_keys().collect(), &members, &quorum) {
                Ok(list) if list.nodes == content.nodes => {
                    self.write(content)?;
                    return if in_use.difference(content, &self.node) == super::AS_WANTED {
                        Ok(())
                    } else {
                        tools::reload()
                    };
                }
                Ok(list) => {
                    self.write(&list)?;
                    tools::reload()?;
                    continue;
                }
                Err(_) if stage != Stage::Joined => {
                    // Without a quorum, no quorum can be lost.
                    self.write(content)?;
                    return tools::reload();
                }
                // A second node: no resource suffers until it is there.
                Err(Wait::Quorum(_)) if members.len() == 1 && tools::nodes()?.running.is_empty() => {
                    self.write(content)?;
                    return tools::reload();
                }
                Err(Wait::Quorum(why)) => (why, self.limit),
                Err(Wait::Member(why)) => {
                    let staying = tools::cib()?.staying(&members);
                    if members.iter().any(|node| !content.nodes.contains_key(node) && !staying.contains(node)) {
                        patience = self.patience();
                    }
                    (why, patience)
                }
            };
            if Instant::now() >= limit {
                return Err(why);
            }
            waits.pause(&why);
        }
    }

    fn patience(&self) -> Instant {
        self.limit.min(Instant::now() + PATIENCE)
    }

    /// Whether no other node listens to this one.
    fn is_alone(&self, in_use: &InUse) -> Result<(), String> {
        let members = in_use.members(&tools::quorum()?);
        if members.iter().all(|member| *member == self.node) && tools::nodes().is_ok_and(|all| all.running.is_empty()) {
            return Ok(());
        }
        Err(format!(
            "nodes with another transport, key, encryption or number can't talk to the others: a change node by node \
             would split the cluster; nothing was changed: let the whole cluster leave (a generation without its \
             change objects), and make it anew with the next generation; {} are members now",
            members.into_iter().collect::<Vec<_>>().join(", ")
        ))
    }

    pub(super) fn stop(&self) -> Result<(), String> {
        Unit::Pacemaker.stop()?;
        Unit::Corosync.stop()
    }

    /// Out of the cluster for a restart.
    fn go_out(&self, stage: Stage) -> Result<(), String> {
        if stage == Stage::Joined { self.pass(Way::Restart) } else { self.stop() }
    }

    /// Out of the cluster for good.
    pub(super) fn leave(&self, has_joined: bool) -> Result<(), String> {
        if !Unit::Corosync.is_active()? {
            return self.stop();
        }
        // A node that has never had a quorum has no resources.
        if !has_joined && !self.quorum()?.is_quorate {
            return self.stop();
        }
        self.pass(Way::Departure)
    }

    /// Waits until the node may go, drains it, and stops it.
    fn pass(&self, way: Way) -> Result<(), String> {
        // Pacemaker knows which nodes leave, and what runs.
        Unit::Pacemaker.start_if_stopped()?;
        // A node that restarts comes back soon; a node that stays does not leave.
        let patience = match way {
            Way::Restart => self.limit,
            Way::Departure => self.patience(),
        };
        let mut waits = Waits::default();
        let why = loop {
            let (why, limit) = match self.gate(way)? {
                Gate::AllLeave => return self.stop_for(way),
                Gate::Open => match self.drain() {
                    Ok(()) => return self.stop_for(way),
                    Err(why) => break why,
                },
                Gate::Turn(why) => (why, self.limit),
                Gate::Shut(why) => (why, patience),
            };
            if Instant::now() >= limit {
                break why;
            }
            waits.pause(&why);
        };
        // Nothing of the attempt stays.
        let _ = self.end_drain();
        let _ = self.mark(false);
        let _ = tools::delete(&Cib::path_of_turn(&self.node));
        Err(why)
    }

    fn stop_for(&self, way: Way) -> Result<(), String> {
        if way == Way::Departure {
            record::write(&self.own, STAGE, &Stage::Leaving)?;
        }
        self.stop()
    }

    /// Whether the node may go now.
    fn gate(&self, way: Way) -> Result<Gate, String> {
        let in_use = tools::in_use()?;
        let is_single = in_use.nodes().len() == 1;
        if way == Way::Departure && !is_single && !self.is_marked()? {
            let quorum = self.quorum()?;
            if !quorum.is_quorate {
                return Ok(Gate::Shut(self.no_quorum(&quorum)));
            }
            tools::again(self.limit, || self.mark(true))?;
        }
        let (quorum, nodes) = (tools::quorum()?, tools::again(self.limit, tools::nodes)?);
        let members = in_use.members(&quorum);
        let staying = match way {
            Way::Restart => members.clone(),
            Way::Departure if is_single => BTreeSet::new(),
            Way::Departure => tools::cib()?.staying(&members),
        };
        if staying.is_empty() || (is_single && way == Way::Restart) {
            if !nodes.running.is_empty() {
                return Ok(Gate::Shut(format!(
                    "no node stays for the resources that run: {}; nothing was changed: let their ha-set leave, or \
                     stop them",
                    nodes.words()
                )));
            }
            // An ha-set that leaves, too, has to take its elements out of the configuration while there is one.
            let resources = if way == Way::Departure { tools::cib()?.resources } else { BTreeSet::new() };
            if !resources.is_empty() {
                return Ok(Gate::Shut(format!(
                    "no node stays for the resources in the configuration: {}; nothing was changed: let their ha-set \
                     leave, or save them (`cibadmin --query --scope resources`) and delete them (`cibadmin --delete`)",
                    resources.into_iter().collect::<Vec<_>>().join(", ")
                )));
            }
            return Ok(Gate::AllLeave);
        }
        if let Some(why) = self.lost(way, &staying, &quorum, nodes.running.is_empty()) {
            return Ok(Gate::Shut(why));
        }
        if let Some(other) = self.take_turn(&members)? {
            return Ok(Gate::Turn(format!(
                "{other} goes out of the cluster first; if it does not, see its change object"
            )));
        }
        // Another node may have gone out before the turn came.
        let quorum = tools::quorum()?;
        let members = in_use.members(&quorum);
        let staying = if way == Way::Restart { members } else { tools::cib()?.staying(&members) };
        Ok(self.lost(way, &staying, &quorum, nodes.running.is_empty()).map_or(Gate::Open, Gate::Shut))
    }

    /// Why the others would lose their quorum.
    fn lost(&self, way: Way, staying: &BTreeSet<String>, quorum: &Quorum, nothing_runs: bool) -> Option<String> {
        if !quorum.is_quorate {
            return Some(self.no_quorum(quorum));
        }
        let left = staying.iter().filter(|node| **node != self.node).count().min(quorum.total - 1);
        if left >= quorum.needed || (way == Way::Restart && nothing_runs) {
            return None;
        }
        let stay: Vec<&str> = staying.iter().filter(|node| **node != self.node).map(String::as_str).collect();
        Some(match way {
            Way::Restart => format!(
                "without {}, the cluster would lose its quorum ({}); nothing was changed: bring the missing nodes back \
                 first, or stop the resources",
                self.node,
                quorum.words()
            ),
            Way::Departure => format!(
                "the nodes that stay ({}) would lose the quorum ({}); nothing was changed: let fewer nodes leave with \
                 one generation, bring missing nodes back first, or of two nodes write `two_node: true` before a node \
                 leaves",
                stay.join(", "),
                quorum.words()
            ),
        })
    }

    /// Takes the turn; otherwise, the node that has it.
    fn take_turn(&self, members: &BTreeSet<String>) -> Result<Option<String>, String> {
        let put = tools::put_turn(&Cib::turn_of(&self.node));
        let cib = tools::cib()?;
        match (cib.turn, put) {
            (Some(node), _) if node == self.node => Ok(None),
            // It is out already, and counts as such.
            (Some(node), _) if !members.contains(&node) => {
                tools::delete(&Cib::path_of_turn(&node))?;
                Ok(Some(node))
            }
            (Some(node), _) => Ok(Some(node)),
            (None, Err(why)) => Err(why),
            // The copy of the configuration here is older than the answer.
            (None, Ok(())) => Ok(Some("another node".to_owned())),
        }
    }

    fn is_marked(&self) -> Result<bool, String> {
        Ok(tools::again(self.limit, tools::cib)?.nodes.get(&self.node) == Some(&true))
    }

    /// Says to the others that the node leaves for good.
    fn mark(&self, leaves: bool) -> Result<(), String> {
        tools::set_attribute(&self.node, (LEAVES, true), leaves.then_some("true"))
    }

    /// Moves the resources to other nodes.
    fn drain(&self) -> Result<(), String> {
        if !tools::nodes()?.in_standby.contains(&self.node) {
            record::write(&self.own, DRAINED, &true)?;
            tools::set_attribute(&self.node, (STANDBY, false), Some("on"))?;
        }
        let left = loop {
            tools::settle(SETTLING.min(self.limit.saturating_duration_since(Instant::now())))?;
            let nodes = tools::nodes()?;
            let left = nodes.on(&self.node).join(", ");
            if left.is_empty() && nodes.in_standby.contains(&self.node) {
                return Ok(());
            }
            if Instant::now() >= self.limit {
                break left;
            }
            sleep(PAUSE);
        };
        Err(format!(
            "{} stays in the cluster: {left} run on it and do not stop; see `crm_mon -1`, and `crm_resource --cleanup` \
             after a failure",
            self.node
        ))
    }

    /// Lets resources come back to a node that this change object has drained.
    fn end_drain(&self) -> Result<(), String> {
        if self.is_drained()? {
            if tools::nodes()?.in_standby.contains(&self.node) {
                tools::set_attribute(&self.node, (STANDBY, false), None)?;
            }
            record::delete(&self.own, DRAINED)?;
        }
        Ok(())
    }
}

/// What a change of the list of nodes waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The list with a further node needs more votes than there are.
    Quorum(String),
    /// A node that is to leave is still there.
    Member(String),
}

/// The next list of nodes on the way to a content.
pub(super) fn next_list(
    content: &HaCluster,
    listed: &BTreeSet<String>,
    members: &BTreeSet<String>,
    quorum: &Quorum,
) -> Result<HaCluster, Wait> {
    let leaving: Vec<&str> =
        members.iter().filter(|node| !content.nodes.contains_key(*node)).map(String::as_str).collect();
    if !leaving.is_empty() {
        return Err(Wait::Member(format!(
            "{} did not leave the cluster yet: its change object does so when the generation without it comes to its \
             host; of a lost host, switch the power off",
            leaving.join(", ")
        )));
    }
    let mut list = content.clone();
    list.nodes.retain(|node, _| listed.contains(node));
    let Some((name, node)) = content.nodes.iter().find(|(node, _)| !listed.contains(*node)) else { return Ok(list) };
    if list.nodes.len() < listed.len() {
        // First the nodes that left.
        return Ok(list);
    }
    let needed = content.needed(list.nodes.len() + 1);
    if quorum.total < needed {
        return Err(Wait::Quorum(format!(
            "with {name}, the cluster would need {needed} votes, and it has {}; nothing was changed: bring missing \
             nodes back first, or for a second node stop the resources or write `two_node: true`",
            quorum.total
        )));
    }
    list.nodes.insert(name.clone(), node.clone());
    Ok(list)
}
