//! What the programs report, and decisions about lists of nodes.

use std::collections::BTreeSet;

use cob_kinds::HaTransport;

use super::live::{Cib, InUse, Nodes, Quorum};
use super::moves::{Wait, next_list};
use super::*;

const QUORUM: &str = "Quorum information
------------------
Date:             Mon Nov 30 08:00:00 2026
Quorum provider:  corosync_votequorum
Nodes:            2
Node ID:          1
Ring ID:          1.12
Quorate:          Yes

Votequorum information
----------------------
Expected votes:   3
Highest expected: 3
Total votes:      2
Quorum:           2  
Flags:            Quorate 

Membership information
----------------------
    Nodeid      Votes Name
         1          1 h1 (local)
         3          1 h3
";

const IN_USE: &str = "internal_configuration.service.0.name (str) = corosync_cmap
nodelist.local_node_pos (u32) = 0
nodelist.node.0.name (str) = h1
nodelist.node.0.nodeid (u32) = 1
nodelist.node.0.ring0_addr (str) = 10.0.0.1
nodelist.node.0.ring1_addr (str) = 10.1.0.1
nodelist.node.1.name (str) = h3
nodelist.node.1.nodeid (u32) = 3
nodelist.node.1.ring0_addr (str) = 10.0.0.3
nodelist.node.1.ring1_addr (str) = 10.1.0.3
quorum.provider (str) = corosync_votequorum
runtime.config.totem.token (u32) = 3000
totem.cluster_name (str) = c
totem.crypto_cipher (str) = none
totem.crypto_hash (str) = none
totem.token (u32) = 5000
totem.transport (str) = knet
totem.version (u32) = 2
";

const CIB: &str = r#"<cib epoch="7"><configuration>
  <crm_config><cluster_property_set id="cob-turn"><nvpair id="cob-turn-node" name="cob-turn" value="h3"/></cluster_property_set></crm_config>
  <nodes>
    <node id="1" uname="h1"/>
    <node id="2" uname="h2" type="member"/>
    <node id="3" uname="h3"><instance_attributes id="nodes-3"><nvpair id="nodes-3-cob-leaves" name="cob-leaves" value="true"/></instance_attributes></node>
    <node id="far" uname="far" type="remote"/>
  </nodes>
  <resources><group id="shop"><primitive id="web"/></group><primitive id="power"/></resources></configuration></cib>"#;

const NODES: &str = r#"<pacemaker-result><nodes>
    <node name="h1" id="1" online="true" standby="false" pending="false"/>
    <node name="h3" id="3" online="true" standby="true" pending="true"/>
  </nodes><resources>
    <resource id="web" resource_agent="ocf::pacemaker:Dummy" active="true"><node name="h1" id="1"/></resource>
    <resource id="idle" resource_agent="ocf::pacemaker:Dummy" active="false"/>
    <resource id="power" resource_agent="stonith:fence_bed" active="true"><node name="h1" id="1"/></resource>
    <clone id="all"><resource id="each" resource_agent="systemd:a"><node name="h1" id="1"/></resource>
    <resource id="each" resource_agent="systemd:a"><node name="h3" id="3"/></resource></clone>
  </resources></pacemaker-result>"#;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn content(nodes: &[u32], more: &str) -> HaCluster {
    let node = |id: &u32| format!(r#""h{id}":{{"id":{id},"addresses":["10.0.0.{id}","10.1.0.{id}"]}}"#);
    let nodes: Vec<String> = nodes.iter().map(node).collect();
    let text = format!(r#"{{"name":"c","nodes":{{{}}}{more}}}"#, nodes.join(","));
    cob_kinds::read(&text).expect("a content")
}

fn votes(total: usize, expected: usize) -> Quorum {
    Quorum { is_quorate: true, expected, total, needed: expected / 2 + 1, members: BTreeSet::new() }
}

#[test]
fn votes_and_members_are_read() {
    let quorum = Quorum::read(QUORUM).expect("read");
    let wanted = Quorum { is_quorate: true, expected: 3, total: 2, needed: 2, members: [1, 3].into() };
    assert_eq!(quorum, wanted);
    assert_eq!(quorum.words(), "2 of 3 votes, and 2 are needed");
    let blocked = QUORUM.replace("Yes", "No").replace("2  \n", "2 Activity blocked\n");
    assert_eq!(Quorum::read(&blocked).map(|quorum| (quorum.is_quorate, quorum.needed)), Some((false, 2)));
    assert_eq!(Quorum::read("Cannot initialize QUORUM service\n"), None);
}

#[test]
fn the_configuration_in_use_is_compared_with_a_content() {
    let in_use = InUse::read(IN_USE);
    let token = r#","totem":{"token":5000}"#;
    let difference = |content: &HaCluster| in_use.difference(content, "h1");
    assert_eq!(difference(&content(&[1, 3], token)), AS_WANTED);
    assert_eq!(difference(&content(&[1, 2, 3], token)), "the nodes h1, h3");
    assert_eq!(difference(&content(&[1, 3], "")), "another token");
    assert_eq!(
        difference(&content(&[1, 3], r#","totem":{"token":5000},"quorum":{"two_node":true}"#)),
        "other rules about votes"
    );
    let restarts = content(&[1, 3], r#","totem":{"token":5000,"netmtu":1400}"#);
    assert!(in_use.needs_restart(&restarts, "h1") && !in_use.speaks_otherwise(&restarts));
    let mut moved = content(&[1, 3], token);
    moved.nodes.get_mut("h1").expect("there").addresses[0] = "10.0.0.9".to_owned();
    assert!(in_use.needs_restart(&moved, "h1") && !in_use.needs_restart(&moved, "h3"));
    let key = format!(r#","authkey":"{}""#, "k".repeat(128));
    assert!(in_use.speaks_otherwise(&content(&[1, 3], &key)));
    assert!(in_use.speaks_otherwise(&HaCluster { transport: HaTransport::Udpu, ..content(&[1, 3], "") }));
    assert!(in_use.has(&content(&[1], ""), "h1") && !in_use.has(&content(&[1, 2], ""), "h2"));
    assert_eq!(in_use.members(&Quorum::read(QUORUM).expect("read")), set(&["h1", "h3"]));
}

#[test]
fn marks_turns_and_nodes_that_left_are_read() {
    let cib = Cib::read(CIB).expect("read");
    let nodes = [("h1", false), ("h2", false), ("h3", true)].map(|(name, leaves)| (name.to_owned(), leaves));
    assert_eq!(cib, Cib { nodes: nodes.into(), turn: Some("h3".to_owned()), resources: set(&["power", "shop"]) });
    assert_eq!(cib.staying(&set(&["h1", "h3", "new"])), set(&["h1", "new"]));
    let left = |content: &HaCluster, members: &[&str]| cib.left(content, &set(members)).cloned().collect::<Vec<_>>();
    assert_eq!(left(&content(&[1], ""), &["h1", "h3"]), ["h2"]);
    assert_eq!(left(&content(&[1, 2, 3], ""), &["h1"]), Vec::<String>::new());
    let forgotten = Cib { nodes: [("h1".to_owned(), false)].into(), ..cib.clone() };
    assert_eq!(forgotten.left(&content(&[1], ""), &set(&["h1"])).collect::<Vec<_>>(), ["h3"]);
    assert!(Cib::read("no XML").is_err_and(|why| why.contains("cibadmin")));
}

#[test]
fn nodes_and_resources_that_run_are_read() {
    let nodes = Nodes::read(NODES).expect("read");
    assert_eq!((&nodes.online, &nodes.in_standby), (&set(&["h1"]), &set(&["h3"])));
    assert_eq!(
        (nodes.on("h1"), nodes.on("h3"), nodes.words()),
        (vec!["each", "web"], vec!["each"], "each, web".to_owned())
    );
}

#[test]
fn nodes_are_added_one_at_a_time_and_removed_when_they_are_gone() {
    let next = |content: &HaCluster, listed: &[&str], members: &[&str], votes: Quorum| {
        next_list(content, &set(listed), &set(members), &votes).map(|list| list.nodes.into_keys().collect::<Vec<_>>())
    };
    // Two join three.
    let five = content(&[1, 2, 3, 4, 5], "");
    let three = ["h1", "h2", "h3"];
    assert_eq!(next(&five, &three, &three, votes(3, 3)).expect("a list"), ["h1", "h2", "h3", "h4"]);
    let four = ["h1", "h2", "h3", "h4"];
    assert_eq!(next(&five, &four, &three, votes(3, 4)).expect("a list"), ["h1", "h2", "h3", "h4", "h5"]);
    // Of five, three votes are needed: with two nodes there, the fifth waits.
    assert!(
        matches!(next(&five, &four, &["h1", "h2"], votes(2, 4)), Err(Wait::Quorum(why)) if why.contains("would need 3 votes"))
    );
    // A second node, with and without the rule for two.
    assert!(matches!(next(&content(&[1, 2], ""), &["h1"], &["h1"], votes(1, 1)), Err(Wait::Quorum(_))));
    let two = content(&[1, 2], r#","quorum":{"two_node":true}"#);
    assert_eq!(next(&two, &["h1"], &["h1"], votes(1, 1)).expect("a list"), ["h1", "h2"]);
    // A node that is to leave, and is there.
    let left = content(&[1, 2], "");
    assert!(
        matches!(next(&left, &three, &three, votes(3, 3)), Err(Wait::Member(why)) if why.contains("h3 did not leave"))
    );
    assert_eq!(next(&left, &three, &["h1", "h2"], votes(2, 3)).expect("a list"), ["h1", "h2"]);
    // One leaves and another comes.
    let other = content(&[1, 2, 4], "");
    assert_eq!(next(&other, &three, &["h1", "h2"], votes(2, 3)).expect("a list"), ["h1", "h2"]);
    assert_eq!(next(&other, &["h1", "h2"], &["h1", "h2"], votes(2, 2)).expect("a list"), ["h1", "h2", "h4"]);
}

#[test]
fn the_text_of_the_configuration_has_all_keys() {
    let text = content(&[1, 3], r#","totem":{"token":5000},"quorum":{"two_node":true,"wait_for_all":false}"#).text();
    let wanted = "# Written by cobd.
totem {
  version: 2
  cluster_name: c
  transport: knet
  crypto_cipher: none
  crypto_hash: none
  token: 5000
}
nodelist {
  node {
    ring0_addr: 10.0.0.1
    ring1_addr: 10.1.0.1
    name: h1
    nodeid: 1
  }
  node {
    ring0_addr: 10.0.0.3
    ring1_addr: 10.1.0.3
    name: h3
    nodeid: 3
  }
}
quorum {
  provider: corosync_votequorum
  two_node: 1
  wait_for_all: 0
}
logging {
  to_syslog: yes
}
";
    assert_eq!(text, wanted);
}

#[test]
fn the_key_is_not_noted() {
    let noted =
        Setting::noted(&HaClusterSetting, &format!(r#"{{"name":"c","nodes":{{}},"authkey":"{}"}}"#, "k".repeat(128)));
    assert!(noted.contains(NOT_NOTED) && !noted.contains("kkk"), "{noted}");
}
