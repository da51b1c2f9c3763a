//! Each type of first cause, in clusters of a few change objects.

use cob_types::status::{
    CobStatus, Holder, HostStatus, InvalidGrant, InvalidGrantCause, PeerStatus, Phase, SwitchWait, Trouble, Unheard,
    Wait,
};
use cob_types::{CobId, GenerationNumber, HostName};

use super::{CauseKind, Explanation, Seen, explain, explain_leaving};
use crate::testing::{NOW, failed, grant, host, id, lock, moving, s, settled, state, waiting};

/// The view of a walk on these hosts. A host with `reachable: false` was asked and did not answer.
fn see<'a>(hosts: &'a [HostStatus]) -> impl Fn(&CobId) -> Seen<'a> {
    |cob| Seen::of(hosts.iter().find(|h| h.name.as_str() == cob.host_str()), cob)
}

fn of<'a>(hosts: &'a [HostStatus], cob: &str) -> Explanation<'a> {
    explain(&id(cob), &see(hosts))
}

/// The type of the first cause, its change object, and the sentence.
fn told(hosts: &[HostStatus], cob: &str) -> (CauseKind, String, String) {
    let explanation = of(hosts, cob);
    (explanation.first.kind, explanation.culprit().to_string(), explanation.sentence())
}

/// The hosts of these change objects, at generation 7.
fn hosts(cobs: Vec<CobStatus>) -> Vec<HostStatus> {
    let mut all: Vec<HostStatus> = Vec::new();
    for cob in cobs {
        match all.iter_mut().find(|h| h.name.as_str() == cob.id.host_str()) {
            Some(host) => host.cobs.push(cob),
            None => all.push(host(cob.id.host().as_str(), 7, vec![cob])),
        }
    }
    all
}

fn up(cob: &str, waits: Vec<Wait>) -> CobStatus {
    waiting(cob, "down", "up", waits)
}

fn held(cob: CobStatus, by: &str, recalled: bool) -> CobStatus {
    let promised = cob.state.clone().unwrap_or_else(|| state("up"));
    CobStatus { held_by: vec![Holder { cob: id(by), state: promised, recalled, since_ns: None, stops: false }], ..cob }
}

#[test]
fn a_chain_ends_at_a_transition_under_way() {
    let all = hosts(vec![
        up("n3/lb", vec![lock("n2/app2", "up")]),
        up("n2/app2", vec![lock("n1/db", "up")]),
        moving("n1/db", "down", "up"),
    ]);
    insta::assert_snapshot!(told(&all, "n3/lb").2, @"n3/lb up waits for n2/app2 up, which waits for n1/db up, which has been moving from down to up for 3.2 s (attempt 2 of 3; last line: waiting for port 5432)");
    assert_eq!(told(&all, "n1/db").0, CauseKind::Moving);
}

/// A host that waits for these change objects to depart before it activates generation 8.
fn switching(host: HostStatus, waits: &[&str]) -> HostStatus {
    let wait = |cob: &&str| SwitchWait { cob: id(cob), since_ns: NOW - s(40), asked: 3 };
    HostStatus {
        switching_to: Some(GenerationNumber(8)),
        switch_waits: waits.iter().map(wait).collect(),
        converged: false,
        ..host
    }
}

#[test]
fn a_check_after_a_failed_transition_is_not_a_failed_check() {
    let mut cob = failed("n1/db", "down", "up");
    (cob.phase, cob.state) = (Phase::Checking, None);
    assert_eq!(told(&hosts(vec![cob.clone()]), "n1/db").0, CauseKind::GivenUp);
    cob.waits_for.clear();
    assert_eq!(told(&hosts(vec![cob]), "n1/db").0, CauseKind::Checking);
}

#[test]
fn the_wait_of_a_host_for_its_switch_is_explained() {
    let old = CobStatus { retiring: true, ..waiting("n1/old", "up", "down", vec![lock("n3/lb", "down")]) };
    let mut all = vec![
        switching(host("n1", 7, vec![old, settled("n1/ip", "up")]), &["n1/old"]),
        switching(host("n2", 7, vec![settled("n2/app", "up")]), &["n1/old"]),
        host("n3", 8, vec![moving("n3/lb", "up", "down"), up("n3/web", vec![lock("n2/app", "up")])]),
    ];
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n2 to switch to generation 8, for which n1/old must have departed, which waits for n3/lb down, which has been moving from up to down for 3.2 s (attempt 2 of 3; last line: waiting for port 5432)");
    insta::assert_snapshot!(told(&all, "n3/web").2, @"n3/web up waits for n2/app up, which waits for n2 to switch to generation 8, for which n1/old must have departed, which waits for n3/lb down, which has been moving from up to down for 3.2 s (attempt 2 of 3; last line: waiting for port 5432)");
    insta::assert_snapshot!(explain_leaving(&id("n1/old"), &see(&all)).sentence(), @"n1/old down waits for n3/lb down, which has been moving from up to down for 3.2 s (attempt 2 of 3; last line: waiting for port 5432)");
    // The departing object is in its exit state, and a holder has not released its grant.
    all[0].cobs[0] = held(CobStatus { retiring: true, ..settled("n1/old", "down") }, "n3/lb", true);
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n2 to switch to generation 8, for which n1/old must have departed, which needs n3/lb to release the grant of down first, which has been moving from up to down for 3.2 s (attempt 2 of 3; last line: waiting for port 5432)");
    all[0].cobs[0].held_by.clear();
    assert_eq!(told(&all, "n2/app").0, CauseKind::OnItsWay);
    // Its host has not received the switch, or is away.
    all[0] = host("n1", 7, vec![settled("n1/old", "up")]);
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n2 to switch to generation 8, for which n1/old must have departed, which has not started to depart: n1 has generation 7 active and is not switching");
    all[0] = HostStatus { reachable: false, error: Some("Connection refused".to_owned()), ..all[0].clone() };
    let lost = of(&all, "n2/app");
    assert!(lost.is_incomplete() && lost.first.hint.contains("cobctl mark-departed n1/old"), "{}", lost.first.hint);
}

/// It is departing, and its host can't report whether it has departed.
#[test]
fn a_daemon_of_the_earlier_version_does_not_report_departures() {
    let before = HostStatus { says_final: false, ..host("n1", 8, vec![settled("n1/ip", "up")]) };
    let json = serde_json::to_string(&before).expect("written");
    assert!(!json.contains("says_final"), "{json}");
    let before: HostStatus = serde_json::from_str(&json).expect("read");
    let mut all = [before, switching(host("n2", 7, vec![settled("n2/app", "up")]), &["n1/old"])];
    let leaving = explain_leaving(&id("n1/old"), &see(&all));
    insta::assert_snapshot!(leaving.sentence(), @"n1/old has departed, but the daemon of n1 is of an older version, which does not report it");
    insta::assert_snapshot!(leaving.first.hint, @"upgrade cobd on n1, and the switch continues by itself; or `cobctl mark-departed n1/old`, because it has departed");
    assert_eq!(told(&all, "n2/app").0, CauseKind::Older);
    // While it departs, no report is needed.
    all[0].cobs.push(CobStatus { retiring: true, ..moving("n1/old", "up", "down") });
    assert_eq!(told(&all, "n2/app").0, CauseKind::Moving);
}

#[test]
fn an_invalidated_grant_is_shown_on_both_sides() {
    let invalid_grant =
        |cause| vec![InvalidGrant { of: id("n1/net"), held_by: id("n2/app"), since_ns: NOW - s(12), cause }];
    let mut all = hosts(vec![settled("n1/net", "up"), settled("n1/ip", "up"), settled("n2/app", "up")]);
    (all[0].invalid_grants, all[1].invalid_grants) =
        (invalid_grant(InvalidGrantCause::Guard), invalid_grant(InvalidGrantCause::Told));
    let tree = |all: &[HostStatus], cob: &str| of(all, cob).tree()[1].clone();
    insta::assert_snapshot!(tree(&all, "n1/net"), @"n1/net invalidated its grant to n2/app 12 s ago: the connectivity guard rolled n1 back while n2 was not reachable; with the next link n2/app releases the grant, checks its state, and requests the grant again; if n2 is off for good, `cobctl fence n2`");
    insta::assert_snapshot!(tree(&all, "n2/app"), @"n2/app lost its grant of n1/net 12 s ago: it checks its state and requests the grant again; for the reason see `cobctl explain n1/net` and `cobctl history --cob n1/net`");
    assert!(!tree(&all, "n1/ip").contains("grant"));
    assert_eq!(
        (of(&all, "n1/net").told().invalid_grants, of(&all, "n1/ip").told().invalid_grants.len()),
        (all[0].invalid_grants.clone(), 0)
    );
    all[0].invalid_grants = invalid_grant(InvalidGrantCause::Drift);
    insta::assert_snapshot!(tree(&all, "n1/net"), @"a check 12 s ago found n1/net out of the state granted to n2/app: n2/app releases the grant, checks its state, and requests the grant again; see `cobctl history --cob n1/net`");
    // Also for a departed change object.
    all[0].cobs.clear();
    assert!(tree(&all, "n1/net").contains("granted to n2/app"));
}

#[test]
fn the_worst_of_many_branches_is_named_and_all_are_shown() {
    let all = hosts(vec![
        up("n3/lb", vec![lock("n1/db", "up"), lock("n2/app", "up"), lock("n3/ip", "up")]),
        moving("n1/db", "down", "up"),
        up("n2/app", vec![lock("n2/fs", "mounted"), lock("n1/db", "up")]),
        failed("n2/fs", "absent", "mounted"),
        settled("n3/ip", "up"),
    ]);
    let explanation = of(&all, "n3/lb");
    assert_eq!((explanation.first.kind, explanation.culprit().as_str()), (CauseKind::GivenUp, "n2/fs"));
    assert!(explanation.first.hint.contains("cobctl retry n2/fs"), "{}", explanation.first.hint);
    insta::assert_snapshot!(format!("{}\n\n{}", explanation.sentence(), explanation.tree().join("\n")));
}

#[test]
fn a_wait_for_a_release_leads_to_the_holder() {
    let all = hosts(vec![
        held(waiting("n1/db", "up", "down", vec![grant("n2/app", "up")]), "n2/app", true),
        held(settled("n2/app", "up"), "n3/lb", true),
        moving("n3/lb", "up", "down"),
    ]);
    let (kind, culprit, sentence) = told(&all, "n1/db");
    assert_eq!((kind, culprit.as_str()), (CauseKind::Moving, "n3/lb"));
    insta::assert_snapshot!(sentence, @"n1/db down waits for n2/app to release the grant of up, which needs n3/lb to release the grant of up first, which has been moving from up to down for 3.2 s (attempt 2 of 3; last line: waiting for port 5432)");
    let free = hosts(vec![waiting("n1/db", "up", "down", vec![grant("n2/app", "up")]), settled("n2/app", "up")]);
    assert_eq!(told(&free, "n1/db").0, CauseKind::OnItsWay, "a holder that nothing keeps gives back at once");
}

#[test]
fn a_drained_budget_leads_to_the_holders_of_its_tokens() {
    let all = hosts(vec![
        waiting("n2/app", "outdated", "up", vec![Wait::Token { cob: id("n3/budget/app"), since_ns: NOW - s(2) }]),
        held(settled("n3/budget/app", "open"), "n1/app", false),
        failed("n1/app", "down", "up"),
    ]);
    let (kind, culprit, sentence) = told(&all, "n2/app");
    assert_eq!((kind, culprit.as_str()), (CauseKind::GivenUp, "n1/app"));
    insta::assert_snapshot!(sentence, @"n2/app up waits for a token of n3/budget/app, which has given a token to n1/app, which failed after 3 attempts to move from down to up (exit status 1; last line: port 5432 is taken)");
}

#[test]
fn a_token_shows_its_grant_time_and_a_gate_shows_its_remedy() {
    let mut budget = held(settled("n3/budget/app", "open"), "n1/gate", false);
    budget.held_by[0].since_ns = Some(NOW - s(2));
    let gate = CobStatus { kind: "tcp-check".to_owned(), ..moving("n1/gate", "down", "up") };
    let all = hosts(vec![
        waiting("n2/app", "outdated", "up", vec![Wait::Token { cob: id("n3/budget/app"), since_ns: NOW - s(2) }]),
        budget,
        gate,
    ]);
    let explanation = explain(&id("n2/app"), &see(&all));
    let line = &explanation.tree()[2];
    assert!(line.contains("has given a token to n1/gate (for 2.0 s)"), "{line}");
    assert_eq!(
        explanation.first.hint,
        "n1/gate can only wait: if a change object of the model fulfils its condition, give n1/gate that dependency \
         (`requires`); `cobctl budget n3/budget/app --at-most 2` adds a token until the next generation"
    );
    // The JSON contains the same cause.
    assert_eq!(explanation.told().first_cause.hint, explanation.first.hint);
}

#[test]
fn a_waiting_gate_shows_its_remedy() {
    let gate = CobStatus { kind: "http-check".to_owned(), ..moving("n1/gate", "down", "up") };
    let hint = explain(&id("n1/gate"), &see(&hosts(vec![gate]))).first.hint;
    assert!(hint.contains("give n1/gate that dependency"), "{hint}");
    assert_eq!(explain(&id("n1/app"), &see(&hosts(vec![moving("n1/app", "down", "up")]))).first.hint, "");
}

#[test]
fn a_failed_change_object_on_a_held_host_needs_a_resume_too() {
    let mut all = hosts(vec![failed("n1/app", "down", "up")]);
    all[0].held = Some(cob_types::GenerationNumber(7));
    let hint = explain(&id("n1/app"), &see(&all)).first.hint;
    assert!(hint.ends_with("then `cobctl resume --host n1` and `cobctl retry n1/app`"), "{hint}");
}

#[test]
fn a_recalled_lock_is_no_circle() {
    let recalled = Wait::Lock {
        cob: id("n1/db"),
        states: vec![state("up")],
        since_ns: NOW,
        recalled: true,
        refused: None,
        refused_in: None,
    };
    let all = hosts(vec![
        waiting("n2/app", "up", "restarted", vec![recalled]),
        waiting("n1/db", "up", "down", vec![grant("n2/app", "up")]),
    ]);
    let (kind, culprit, sentence) = told(&all, "n2/app");
    assert_eq!((kind, culprit.as_str()), (CauseKind::OnItsWay, "n2/app"), "{sentence}");
    assert!(sentence.contains("must release n1/db up"), "{sentence}");
}

#[test]
fn a_wait_that_ends_by_itself_shows_its_end() {
    let with = |wait: Wait| hosts(vec![up("n2/app", vec![lock("n1/db", "up")]), up("n1/db", vec![wait])]);
    let retry = with(Wait::Retry { at_ns: NOW + s(4), attempt: 2, of: 3 });
    insta::assert_snapshot!(told(&retry, "n2/app").2, @"n2/app up waits for n1/db up, which failed and is retried in 4.0 s (attempt 2 of 3)");
    let mut rest = with(Wait::Rest { until_ns: NOW + s(8) });
    rest[1].cobs[0].trouble = vec![Trouble::Flap { state: state("up"), times: 4, because_of: Some(id("n3/other")) }];
    insta::assert_snapshot!(told(&rest, "n2/app").2, @"n2/app up waits for n1/db up, which is delayed for 8.0 s: left up 4 times because of n3/other");
    let leaving = with(Wait::Leaving);
    assert_eq!(told(&leaving, "n2/app").0, CauseKind::Leaving);
    let none = with(Wait::Leaving)[1].cobs[0].clone();
    let about = hosts(vec![CobStatus { waits_for: vec![], ..none }]);
    insta::assert_snapshot!(told(&about, "n1/db").2, @"n1/db up is about to start its transition");
}

#[test]
fn a_wait_that_needs_an_operator_shows_the_reason() {
    let with = |db: CobStatus| hosts(vec![up("n2/app", vec![lock("n1/db", "up")]), db]);
    insta::assert_snapshot!(told(&with(failed("n1/db", "down", "up")), "n2/app").2, @"n2/app up waits for n1/db up, which failed after 3 attempts to move from down to up (exit status 1; last line: port 5432 is taken)");
    let paused = with(up("n1/db", vec![Wait::Paused]));
    insta::assert_snapshot!(told(&paused, "n2/app").2, @"n2/app up waits for n1/db up, which starts no transition: n1 is paused");
    let lost = with(up("n1/db", vec![Wait::NoRoute { to: state("up") }]));
    insta::assert_snapshot!(told(&lost, "n2/app").2, @"n2/app up waits for n1/db up, which can't reach up: no chain of transitions leads there from down");
    let observed = with(up("n1/db", vec![Wait::Observed { to: state("up") }]));
    assert_eq!(told(&observed, "n2/app").0, CauseKind::Observed);
    insta::assert_snapshot!(told(&observed, "n2/app").2, @"n2/app up waits for n1/db up, which is only observed: it is down instead of up, and COB does not change it");
    let refused = hosts(vec![up(
        "n2/app",
        vec![Wait::Lock {
            cob: id("n1/db"),
            states: vec![state("upp"), state("up2")],
            since_ns: NOW,
            recalled: false,
            refused: Some("no route to upp".to_owned()),
            refused_in: None,
        }],
    )]);
    insta::assert_snapshot!(told(&refused, "n2/app").2, @"n2/app up was refused by n1/db: no route to upp");
}

#[test]
fn the_conflict_behind_a_refusal_is_explained() {
    let wait = Wait::NoRoute { to: state("present") };
    let conflict = CobStatus { kind: "file-tree".to_owned(), ..waiting("n1/conf", "conflict", "present", vec![wait]) };
    let refused = Wait::Lock {
        cob: id("n1/conf"),
        states: vec![state("present")],
        since_ns: NOW,
        recalled: false,
        refused: Some("no route leads from conflict to present".to_owned()),
        refused_in: Some(state("conflict")),
    };
    let all = hosts(vec![conflict, up("n2/app", vec![refused])]);
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up was refused by n1/conf, which is in conflict: a user on the host and the model changed the same content");
    // It has changed its state since and is in progress: its state at the refusal no longer matters.
    let mut moved = all.clone();
    moved[0].cobs[0] = waiting("n1/conf", "absent", "present", vec![Wait::Paused]);
    assert_eq!(told(&moved, "n2/app").0, CauseKind::Paused);
}

#[test]
fn an_unknown_state_shows_its_check() {
    let mut checking = settled("n1/db", "up");
    (checking.state, checking.target, checking.phase, checking.since_ns) = (None, None, Phase::Checking, NOW - s(1));
    let all = hosts(vec![up("n2/app", vec![lock("n1/db", "up")]), checking.clone()]);
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n1/db up, which has been checking its state for 1.0 s");
    let mut failing = failed("n1/db", "down", "up");
    (failing.state, failing.target, failing.phase) = (None, None, Phase::Checking);
    if let Some(action) = &mut failing.action {
        (action.from, action.to, action.of) = (None, None, 0);
    }
    let (kind, _, sentence) = told(&hosts(vec![failing]), "n1/db");
    assert_eq!(kind, CauseKind::CheckFailing);
    insta::assert_snapshot!(sentence, @"n1/db is in an unknown state: its check has failed 3 times (exit status 1; last line: port 5432 is taken)");
}

#[test]
fn a_failed_change_object_gets_the_hint_of_its_kind() {
    let mut db = failed("n1/db", "down", "up");
    let hint = |db: &CobStatus| of(&hosts(vec![db.clone()]), "n1/db").first.hint.clone();
    for kind in ["service", "service.unit", "service.unit-reload.0123"] {
        db.kind = kind.to_owned();
        assert!(hint(&db).contains("`cobctl output n1/db` and `cobctl logs n1/db`, fix"), "{kind}");
    }
    db.kind = "departure".to_owned();
    assert_eq!(
        hint(&db),
        "fix the reported error; the next attempt starts by itself, or at once with `cobctl retry n1/db`"
    );
    db.kind = "script".to_owned();
    assert!(hint(&db).contains("`cobctl output n1/db`, fix"));
    // A daemon that acts itself prints no output.
    db.kind = "file-tree".to_owned();
    assert_eq!(hint(&db), "fix the reported error, then `cobctl retry n1/db`");
    if let Some(action) = &mut db.action {
        action.conflict = true;
    }
    assert!(hint(&db).starts_with("`cobctl diff n1/db` shows both; `cobctl resolve n1/db` decides"), "{}", hint(&db));
    (db.state, db.target, db.phase) = (None, None, Phase::Checking);
    if let Some(action) = &mut db.action {
        (action.from, action.to, action.of) = (None, None, 0);
    }
    assert_eq!(hint(&db), "fix the reported error; the next check starts within a minute");
}

#[test]
fn a_host_without_an_answer_is_explained() {
    let gone = || crate::gather::unreachable(HostName::new("n1").expect("a name"), "Connection refused".to_owned());
    let mut all = hosts(vec![up("n2/app", vec![lock("n1/db", "up")]), up("n2/web", vec![grant("n1/db", "up")])]);
    assert_eq!(told(&all, "n2/app").0, CauseKind::NotAsked);
    all.push(gone());
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n1/db up, which is on n1, which can't be reached (Connection refused)");
    let explanation = of(&all, "n2/web");
    insta::assert_snapshot!(explanation.sentence(), @"n2/web up waits for n1/db to release the grant of up, which is on n1, which can't be reached (Connection refused); its locks stay until it is back or fenced");
    assert!(explanation.first.hint.contains("cobctl fence n1") && explanation.is_incomplete());
}

#[test]
fn hosts_without_a_common_generation_or_link_are_explained() {
    let mut all = hosts(vec![up("n2/app", vec![lock("n1/db", "up")]), settled("n1/db", "up")]);
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n1/db up, which is up: its grant is on the way");
    all[1].generation = Some(GenerationNumber(6));
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n1/db up, which is at generation 6 on n1, but n2 asks at generation 7: a lock needs the same generation on both hosts");
    let n2 = PeerStatus {
        host: all[0].name.clone(),
        up: true,
        since_ns: 0,
        error: None,
        unheard: Some(Unheard::Fenced),
        fenced: false,
    };
    all[1].peers = vec![n2];
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up can't ask n1/db: n2 was fenced, and n1 ignores its daemon until a restart");
    all[1].peers.clear();
    all[0].peers = vec![PeerStatus {
        host: all[1].name.clone(),
        up: false,
        since_ns: NOW - s(30),
        error: Some("timed out".to_owned()),
        unheard: None,
        fenced: false,
    }];
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up can't ask n1/db: the link from n2 to n1 has been down for 30 s (timed out)");
    let known = PeerStatus {
        host: all[0].name.clone(),
        error: Some("Connection refused".to_owned()),
        ..all[0].peers[0].clone()
    };
    all[1].peers = vec![known];
    all[0].peers[0].error = None;
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up can't ask n1/db: the link from n2 to n1 has been down for 30 s (n1 says: Connection refused)");
    all[1].peers.clear();
    all[1].cobs = vec![failed("n1/db", "down", "up")];
    assert_eq!(told(&all, "n2/app").0, CauseKind::GivenUp, "what needs a hand comes before what is cut");
    all[1].cobs.clear();
    all[0].peers.clear();
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n1/db up, which is not part of generation 6, which is active on n1");
    all[1].generation = None;
    insta::assert_snapshot!(told(&all, "n2/app").2, @"n2/app up waits for n1/db up, which is not known on n1: no generation is active there");
}

#[test]
fn circles_are_named() {
    let round = vec![
        up("n1/a", vec![lock("n2/b", "up")]),
        up("n2/b", vec![lock("n3/c", "up")]),
        up("n3/c", vec![lock("n1/a", "up")]),
    ];
    let all = hosts(round.clone());
    insta::assert_snapshot!(told(&all, "n1/a").2, @"n1/a up waits in a cycle: n1/a waits for n2/b waits for n3/c waits for n1/a; the daemons are resolving it");
    let mut outside = round.clone();
    outside.push(up("n4/x", vec![lock("n2/b", "up")]));
    insta::assert_snapshot!(told(&hosts(outside), "n4/x").2, @"n4/x up waits for n2/b up, which waits in a cycle: n2/b waits for n3/c waits for n1/a waits for n2/b; the daemons are resolving it");
    let mut stuck = round;
    stuck[1].trouble = vec![Trouble::Stuck { circle: vec![id("n2/b"), id("n3/c"), id("n1/a")], more: false }];
    let (kind, culprit, _) = told(&hosts(stuck), "n1/a");
    assert_eq!((kind, culprit.as_str()), (CauseKind::Stuck, "n2/b"));
}

#[test]
fn an_idle_change_object_waits_for_no_other() {
    let all = hosts(vec![held(settled("n1/db", "up"), "n2/app", false)]);
    insta::assert_snapshot!(of(&all, "n1/db").tree().join("\n"), @r"
    n1/db: up, settled for 3 min
    held in up by n2/app
    └─ is OK: up for 3 min  ← first cause
    ");
    let mut asked = all.clone();
    asked[0].cobs[0].preferred = state("down");
    asked[0].cobs[0].held_by.clear();
    insta::assert_snapshot!(told(&asked, "n1/db").2, @"n1/db is idle: other change objects need it up, for 3 min; its preferred state is down");
    insta::assert_snapshot!(told(&all, "n1/nothing").2, @"n1/nothing is not part of generation 7, which is active on n1");
}

#[test]
fn a_change_object_kept_in_a_state_leads_to_its_holders() {
    let kept = |cob| CobStatus { preferred: state("up"), ..held(settled(cob, "down"), "n1/schema", false) };
    let all = hosts(vec![kept("n2/web"), moving("n1/schema", "absent", "present")]);
    let (kind, culprit, sentence) = told(&all, "n2/web");
    assert_eq!((kind, culprit.as_str()), (CauseKind::Moving, "n1/schema"));
    insta::assert_snapshot!(sentence, @"n2/web down is kept in this state by n1/schema, which has been moving from absent to present for 3.2 s (attempt 2 of 3; last line: waiting for port 5432)");
    assert_eq!(crate::words::reasons(&kept("n2/web"), 0), "kept in this state by n1/schema");
    // A change object that waits for it waits for its holders.
    let paused = waiting("n1/schema", "absent", "present", vec![Wait::Paused]);
    let all = hosts(vec![waiting("n3/lb", "down", "up", vec![lock("n2/web", "up")]), kept("n2/web"), paused]);
    let (kind, culprit, sentence) = told(&all, "n3/lb");
    assert_eq!((kind, culprit.as_str()), (CauseKind::Paused, "n1/schema"));
    insta::assert_snapshot!(sentence, @"n3/lb up waits for n2/web up, which is kept in this state by n1/schema, which starts no transition: n1 is paused");
}

#[test]
fn a_conflict_asks_for_a_decision() {
    let wait = vec![Wait::NoRoute { to: state("present") }];
    let conflict = CobStatus { kind: "file-tree".to_owned(), ..waiting("n1/conf", "conflict", "present", wait) };
    assert_eq!(crate::words::reasons(&conflict, 0), "a decision: `cobctl resolve n1/conf`");
    let all = hosts(vec![conflict]);
    insta::assert_snapshot!(told(&all, "n1/conf").2, @"n1/conf present is in conflict: a user on the host and the model changed the same content");
    assert!(of(&all, "n1/conf").first.hint.contains("`cobctl resolve n1/conf` decides"));
}

#[test]
fn long_chains_and_wide_fans_are_walked_once() {
    let n = 5000;
    let mut cobs: Vec<CobStatus> =
        (0..n).map(|i| up(&format!("n1/c{i}"), vec![lock(&format!("n1/c{}", i + 1), "up")])).collect();
    cobs.push(failed(&format!("n1/c{n}"), "down", "up"));
    let all = [host("n1", 7, cobs)];
    let at: std::collections::BTreeMap<&CobId, &CobStatus> = all[0].cobs.iter().map(|c| (&c.id, c)).collect();
    let explanation = explain(&id("n1/c0"), &|cob| Seen::Found(&all[0], at[cob]));
    insta::assert_snapshot!(explanation.sentence(), @"n1/c0 up waits for n1/c1 up, which waits for n1/c2 up, which waits for a chain of 4993 more, which waits for n1/c4996 up, which waits for n1/c4997 up, which waits for n1/c4998 up, which waits for n1/c4999 up, which waits for n1/c5000 up, which failed after 3 attempts to move from down to up (exit status 1; last line: port 5432 is taken)");
    assert_eq!(explanation.told().chain.len(), n + 1);

    // Each of 30 layers waits for both objects of the next: a thousand million paths.
    let mut layers: Vec<CobStatus> = Vec::new();
    for i in 0..30 {
        let both = |j: u32| ["a", "b"].map(|side| lock(&format!("n1/{side}{j}"), "up")).to_vec();
        layers.extend(["a", "b"].map(|side| up(&format!("n1/{side}{i}"), both(i + 1))));
    }
    layers.extend(["n1/a30", "n1/b30"].map(|cob| moving(cob, "down", "up")));
    let all = hosts(layers);
    let explanation = of(&all, "n1/a0");
    assert_eq!(explanation.first.kind, CauseKind::Moving);
    assert!(explanation.tree().len() < 100, "each is shown in full once");
}

#[test]
fn the_explanation_is_available_as_json() {
    let all = hosts(vec![up("n2/app", vec![lock("n1/db", "up")]), failed("n1/db", "down", "up")]);
    let json = serde_json::to_string_pretty(&of(&all, "n2/app").told()).expect("told");
    insta::assert_snapshot!(json);
}
