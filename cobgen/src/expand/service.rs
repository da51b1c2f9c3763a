//! The built-in kind `service`: the files that its content names, and the times that become part of its kind.

use cob_kinds::{Entry, STALE, Service};
use cob_types::{Kind, StateName, Transition};

use super::Report;
use super::builtin::{Checked, Settled, add_commands, check};
use super::files::Files;
use crate::diagnostic::Diagnostic;
use crate::model::{Marked, Node};

/// Checks the content; `None` if it has faults, which are already reported.
pub(super) fn settle(entry: &Entry, content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let before = report.errors();
    let Checked { node, json, mut settled } = check(entry, content, report)?;
    let service: Service = serde_json::from_value(json).ok()?;
    let at = |key: &str| node.map().and_then(|map| map.get(key));
    add_commands(entry, &node, service.kind(), &mut settled, files, report);
    let drop_ins = at("drop_ins").and_then(Node::map).into_iter().flat_map(|map| &map.entries);
    for text in at("unit_file").into_iter().chain(drop_ins.map(|(_, node)| node)) {
        let file = text.map().filter(|map| map.entries.len() == 1).and_then(|map| map.get("file"));
        if let Some((name, file)) = file.and_then(|file| Some((file.text()?, file))) {
            files.named(&[Marked { mark: file.mark, value: name.to_owned() }], &mut settled.files, report);
        }
    }
    if let (Some(user), Some(file)) = (at("user").filter(|_| service.user.is_some()), settled.files.keys().next()) {
        let what = format!("`{file}` travels into a folder that only root may enter, and the service runs as a user");
        let fault = Diagnostic::error("bad-content", what);
        report.push(user.mark, fault.help("put it in its place with a `file-tree`, and name it from the root"));
    }
    (report.errors() == before).then_some(settled)
}

/// Whether a transition out of `outdated` leaves the service running, so that dependents may stay on.
pub(super) fn keeps_running(kind: &Kind, t: &Transition) -> bool {
    kind.backend == "service" && t.from == StateName::OUTDATED && t.to == kind.preferred
}

/// Whether a transition does not affect the running service, so that it needs no others.
pub(super) fn only_adjusts(kind: &Kind, t: &Transition) -> bool {
    ["service", "container"].contains(&kind.backend.as_str()) && t.from == STALE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_has_its_own_transition_and_a_stale_unit_is_not_stopped() {
        let moves = |kind: Option<Kind>| -> Vec<String> {
            kind.expect("made").transitions.iter().map(|t| format!("{} -> {}", t.from, t.to)).collect()
        };
        let kind = |content: &str| cob_kinds::parse::<Service>(content).expect("good").kind();
        let (unit, reloaded) = (r#"{"unit":"x"}"#, r#"{"start":"x","on_change":"reload"}"#);
        assert!(kind(r#"{"start":"x"}"#).is_none());
        assert_eq!(
            moves(kind(r#"{"unit":"x","on_change":"reload"}"#)),
            [
                "outdated -> up",
                "down -> up",
                "up -> down",
                "outdated -> down",
                "failed -> up",
                "failed -> down",
                "stale -> up"
            ]
        );
        assert!(!moves(kind(unit)).contains(&"outdated -> up".to_owned()));
        let reloaded = kind(reloaded).expect("made");
        let running = |t: &&Transition| keeps_running(&reloaded, t);
        assert_eq!(reloaded.transitions.iter().filter(running).count(), 1);
        let unit = kind(unit).expect("made");
        let adjusting: Vec<_> = unit.transitions.iter().filter(|t| only_adjusts(&unit, t)).collect();
        assert!(adjusting.len() == 1 && adjusting[0].to == unit.preferred);
    }
}
