//! The pure parts, on texts of Pacemaker 2.1.5.

use std::collections::BTreeMap;

use cob_kinds::{HaSet, Interruption};

use super::cib::decided;
use super::elements::meaning;
use super::*;

/// A cluster where a person has made `theirs`, and the set below is up.
const CIB: &str = r#"<cib crm_feature_set="3.16.1" validate-with="pacemaker-3.9" epoch="8" admin_epoch="0" have-quorum="1" num_updates="6">
  <configuration>
    <crm_config>
      <cluster_property_set id="cib-bootstrap-options">
        <nvpair id="of-a-person" name="stonith-enabled" value="true"/>
        <nvpair id="cib-bootstrap-options-have-watchdog" name="have-watchdog" value="false"/>
      </cluster_property_set>
    </crm_config>
    <nodes><node id="1" uname="h1"/></nodes>
    <resources>
      <!-- of a person -->
      <primitive id="theirs" class="ocf" provider="pacemaker" type="Dummy"/>
      <group id="g">
        <primitive id="d1" class="ocf" provider="pacemaker" type="Dummy">
          <operations>
            <op id="d1-monitor-10s" name="monitor" interval="10s"/>
          </operations>
        </primitive>
        <primitive id="d2" class="ocf" provider="pacemaker" type="Dummy"/>
        <meta_attributes id="g-meta">
          <nvpair id="g-meta-target-role" name="target-role" value="Started"/>
        </meta_attributes>
      </group>
    </resources>
    <constraints>
      <rsc_location id="cli-ban-d1-on-h1" rsc="d1" role="Started" node="h1" score="-INFINITY"/>
    </constraints>
  </configuration>
  <status/>
</cib>"#;

/// The content with the group of [`CIB`].
const CONTENT: &str = r#"{"primitives": {"d1": {"type": "ocf:pacemaker:Dummy", "ops": {"monitor": {"interval": "10s"}}},
    "d2": {"type": "ocf:pacemaker:Dummy"}}, "groups": {"g": ["d1", "d2"]}}"#;

/// An answer of crm_mon with these resources.
fn monitor(dc: &str, resources: &str) -> String {
    format!(
        r#"<pacemaker-result api-version="2.25" request="crm_mon -1 --output-as=xml"><summary><stack type="corosync"/>
        <current_dc {dc}/><cluster_options stonith-enabled="false" maintenance-mode="false"/></summary>
        <resources>{resources}</resources>
        <failures><failure op_key="d1_start_0" node="h1" exitstatus="not installed" exitreason="Setup problem: no file" exitcode="5"/></failures>
        </pacemaker-result>"#
    )
}

const DC: &str =
    r#"present="true" version="2.1.5-a3f44794f94" name="h1" id="1" with_quorum="true" mixed_version="false""#;

fn resource(id: &str, role: &str) -> String {
    let active = role != "Stopped";
    let node = if active { r#"<node name="h1" id="1" cached="true"/>"# } else { "" };
    format!(
        r#"<resource id="{id}" resource_agent="ocf:pacemaker:Dummy" role="{role}" active="{active}" orphaned="false" blocked="false"
        managed="true" failed="false" failure_ignored="false">{node}</resource>"#
    )
}

fn group(role: &str) -> String {
    format!(r#"<group id="g" number_resources="2">{}{}</group>"#, resource("d1", role), resource("d2", role))
}

fn set(content: &str) -> Set {
    Set::of(cob_kinds::read::<HaSet>(content).expect("good")).expect("good")
}

fn judged(set: &Set, note: Option<&Note>, cib: &Cib, resources: &str) -> Verdict {
    let monitor = Monitor::read(&monitor(DC, resources)).expect("with quorum");
    set.judge(note, cib, &monitor, &BTreeSet::new())
}

fn noted(set: &Set, cib: &Cib) -> Note {
    Note::default().including(set.wanted.keys(), cib)
}

fn at(id: &str) -> Place {
    (Section::Resources, id.to_owned())
}

#[test]
fn elements_of_others_stay_as_they_are() {
    let cib = Cib::read(CIB).expect("read");
    let set = set(
        r#"{"primitives": {"a": {"type": "systemd:a", "params": {"x": "<&\">"}}}, "fence": {"f": {"type": "fence_x"}},
        "clones": {"c": {"of": "a", "meta": {"clone-max": 2}}}, "constraints": {"l": {"location": "c", "node": "h1"}},
        "properties": {"stonith-enabled": true, "cluster-delay": "1m"}}"#,
    );
    let note = noted(&set, &cib);
    let mut new = cib.clone();
    set.define(&mut new);
    set.resources().for_each(|place| new.edit(place, mark));
    assert_ne!(new, cib);
    assert_eq!(new.differences(&set.wanted), BTreeMap::new());
    for id in ["theirs", "g"] {
        assert_eq!(new.find(&at(id)), cib.find(&at(id)), "{id}");
    }
    let text = new.text();
    assert!(text.contains("<!-- of a person --><primitive id=\"theirs\""), "{text}");
    assert!(text.contains("id=\"of-a-person\" name=\"stonith-enabled\""), "the same property: {text}");
    assert!(text.contains(r#"<clone id="c"><primitive id="a" class="systemd" type="a">"#), "{text}");
    assert!(text.contains(r#"<nvpair id="c-cob-target-role" name="target-role" value="Stopped"/>"#), "{text}");
    assert_eq!(Cib::read(&text).expect("read"), new);
    // The reverse is exact.
    for place in note.places() {
        new.replace(place, note.before(place).expect("read"));
    }
    assert_eq!(new, cib);
}

#[test]
fn properties_of_a_cluster_without_any_leave_nothing() {
    let empty = r#"<cib><configuration><crm_config/><nodes/><resources/><constraints/></configuration></cib>"#;
    let cib = Cib::read(empty).expect("read");
    let set = set(r#"{"primitives": {"a": {"type": "systemd:a"}}, "properties": {"stonith-enabled": false}}"#);
    let note = noted(&set, &cib);
    let mut new = cib.clone();
    set.define(&mut new);
    assert!(new.text().contains(r#"id="cib-bootstrap-options-stonith-enabled" name="stonith-enabled" value="false""#));
    note.places().for_each(|place| new.replace(place, note.before(place).expect("read")));
    assert_eq!(new.text(), empty);
}

#[test]
fn order_ids_and_decisions_do_not_count_but_members_do() {
    let cib = Cib::read(CIB).expect("read");
    let same = set(CONTENT);
    assert_eq!(cib.differences(&same.wanted), BTreeMap::new(), "the ids of operations and sets differ");
    let other = set(&CONTENT.replace("10s", "11s").replace(r#"["d1", "d2"]"#, r#"["d2", "d1"]"#));
    let differences = cib.differences(&other.wanted);
    let text = &differences[&at("g")];
    for part in ["d1: operation monitor 10s", "d1: operation monitor 11s", "members"] {
        assert!(text.contains(part), "{text}");
    }
    let secret = set(&CONTENT.replace(r#""ops""#, r#""params": {"passwd": "4711"}, "ops""#));
    let text = cib.differences(&secret.wanted).into_values().collect::<String>();
    assert!(text.contains("d1: parameter passwd") && !text.contains("4711"), "{text}");
    assert!(meaning(cib.find(&at("g")).expect("there")).contains_key("d1: operation monitor 10s"));
}

#[test]
fn a_mark_keeps_a_resource_stopped_and_decisions_of_operators_stay() {
    let cib = Cib::read(CIB).expect("read");
    let mut group = cib.find(&at("g")).expect("there").clone();
    assert!(!is_marked(&group));
    mark(&mut group);
    let once = group.clone();
    mark(&mut group);
    assert_eq!(group, once, "marked once");
    assert!(is_marked(&group) && decided(&group).is_empty());
    assert!(!group.text().contains("Started"), "it would win: {}", group.text());
    unmark(&mut group);
    assert!(!group.text().contains("target-role"));
    // An operator disables the group, and a member.
    let stopped = |id: &str| {
        let id = format!("{id}-meta_attributes-target-role");
        Xml::new("meta_attributes", &[("id", "x")])
            .with([Xml::new("nvpair", &[("id", &id), ("name", "target-role"), ("value", "Stopped")])])
    };
    group.children.push(stopped("g"));
    group.children[0].children.push(stopped("d1"));
    mark(&mut group);
    unmark(&mut group);
    let decided: Vec<String> = decided(&group).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(decided, ["g", "d1"]);
    // They survive a change of the definition.
    let mut new = cib.clone();
    new.replace(&at("g"), Some(group.clone()));
    let set = set(&CONTENT.replace("10s", "11s"));
    set.define(&mut new);
    let changed = new.find(&at("g")).expect("there");
    assert_eq!(super::cib::decided(changed).len(), 2);
    assert!(!is_marked(changed), "a change does not stop it");
}

#[test]
fn states_are_judged_from_configuration_and_monitor() {
    let cib = Cib::read(CIB).expect("read");
    let set_of = set(CONTENT);
    let note = noted(&set_of, &cib);
    let up = judged(&set_of, Some(&note), &cib, &group("Started"));
    assert_eq!(up.state, "up", "{up:?}");
    assert_eq!(up.drift[0], "an operator has placed cli-ban-d1-on-h1");
    assert!(up.drift[1].contains("d1_start_0 on h1: Setup problem: no file; after a repair"), "{up:?}");
    let banned = judged(&set_of, Some(&note), &cib, &group("Stopped"));
    assert_eq!(banned.state, "degraded");
    assert!(banned.text().contains("d2 is not running; an operator has placed"), "{}", banned.text());
    let starting = judged(&set_of, Some(&note), &cib, &group("Starting"));
    assert!(starting.state == "degraded" && starting.text().contains("d1 is starting"), "{starting:?}");
    let others = judged(&set_of, None, &cib, &group("Started"));
    assert!(others.state == "outdated" && others.text().contains("made by others: g"), "{others:?}");
    let mut marked = cib.clone();
    marked.edit(&at("g"), mark);
    assert_eq!(judged(&set_of, Some(&note), &marked, &group("Stopped")).state, "stopped");
    let stopping = judged(&set_of, Some(&note), &marked, &group("Started"));
    assert!(stopping.state == "degraded" && stopping.text().contains("d2 is still running"), "{stopping:?}");
    let more = set(r#"{"primitives": {"a": {"type": "systemd:a"}}}"#);
    assert_eq!(judged(&more, None, &cib, "").state, "absent");
    let dropped = judged(&more, Some(&note.including(more.wanted.keys(), &cib)), &cib, "");
    assert!(dropped.state == "outdated" && dropped.text().contains("g is not in the model any more"), "{dropped:?}");
    let promotable = set(r#"{"primitives": {"d1": {"type": "ocf:pacemaker:Stateful"}},
        "clones": {"c": {"of": "d1", "meta": {"promotable": true}}}}"#);
    let mut cloned = cib.clone();
    promotable.define(&mut cloned);
    let note = noted(&promotable, &cib);
    let clone =
        |role: &str| format!(r#"<clone id="c">{}{}</clone>"#, resource("d1", role), resource("d1:1", "Stopped"));
    let none = judged(&promotable, Some(&note), &cloned, &clone("Unpromoted"));
    assert!(none.text().contains("no instance of d1 is promoted"), "{none:?}");
    assert_eq!(judged(&promotable, Some(&note), &cloned, &clone("Promoted")).state, "up");
}

#[test]
fn without_quorum_or_controller_the_state_is_unknown() {
    let why =
        Monitor::read(&monitor(&DC.replace("with_quorum=\"true\"", "with_quorum=\"false\""), "")).expect_err("none");
    assert!(why.contains("no quorum"), "{why}");
    let why = Monitor::read(&monitor(r#"present="false""#, "")).expect_err("none");
    assert!(why.contains("no controller"), "{why}");
}

#[test]
fn each_action_is_the_purpose_or_allowed() {
    // As crm_simulate reports a changed parameter, a move, a removal and a promotion.
    let text = r#"<pacemaker-result><cluster_status/><actions>
        <rsc_action action="restart" resource="d1" source="h1" reason="resource definition change"/>
        <rsc_action action="restart" resource="d2" source="h1" reason="required d1 start"/>
        <rsc_action action="move" resource="theirs" source="h1" dest="h2"/>
        <rsc_action action="start" resource="d1:0" node="h1"/>
        <rsc_action action="stop" resource="d2" node="h1" reason="node availability"/>
        <rsc_action action="leave" resource="idle" node="h1"/>
        <node_action task="fence" node="h2"/>
        </actions><transition/></pacemaker-result>"#;
    let actions = Action::read(text).expect("read");
    let content = cob_kinds::read::<HaSet>(CONTENT).expect("good");
    assert!(!content.allows("d1", Interruption::Restart));
    let own: BTreeSet<String> = ["d1", "d2", "g"].map(str::to_owned).into();
    let all: Vec<String> =
        refused(&actions, &content, &own, Purpose::Start).into_iter().map(ToString::to_string).collect();
    assert_eq!(
        all,
        [
            "restart d1 from h1 (resource definition change)",
            "restart d2 from h1 (required d1 start)",
            "stop d2 on h1 (node availability)",
            "fence h2",
            "move theirs from h1 to h2"
        ]
    );
    let allowing = CONTENT.replace(
        r#""groups": {"g": ["d1", "d2"]}"#,
        r#""groups": {"g": ["d1", "d2"]}, "others": ["theirs"], "allow": {"g": ["restart"], "theirs": ["move"]}"#,
    );
    let content = cob_kinds::read::<HaSet>(&allowing).expect("good");
    let rest = |purpose| listed(refused(&actions, &content, &own, purpose));
    assert_eq!(rest(Purpose::Stop), "start d1 on h1, fence h2");
    assert_eq!(rest(Purpose::Start), "stop d2 on h1 (node availability), fence h2");
    assert!(rest(Purpose::Define).starts_with("start d1 on h1, stop d2"), "{}", rest(Purpose::Define));
}

#[test]
fn a_resource_inside_a_group_of_others_is_found() {
    let cib = Cib::read(CIB).expect("read");
    let ids = BTreeSet::from(["d1".to_owned()]);
    let found = cib.foreign_container(&ids, &BTreeSet::from([at("d1")]));
    assert_eq!(found, Some(("d1".to_owned(), "g".to_owned())));
    assert_eq!(cib.foreign_container(&ids, &BTreeSet::from([at("g")])), None);
}

#[test]
fn a_note_survives_being_written() {
    let cib = Cib::read(CIB).expect("read");
    let folder = tempfile::tempdir().expect("a folder");
    let note = noted(&set(CONTENT), &cib);
    note.write(folder.path()).expect("written");
    assert_eq!(Note::read(folder.path()), Ok(Some(note.clone())));
    assert_eq!(note.before(&at("g")).expect("read").as_ref(), cib.find(&at("g")));
    assert_eq!(note.before(&at("other")), Ok(None));
    assert_eq!(note.only(|place| place.1 != "g").places().count(), 0);
}
