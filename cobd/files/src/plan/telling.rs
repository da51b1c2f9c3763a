//! The report of a plan for people: the differences, the text to be written, and the decisions.

use super::{MAX_TOLD, Plan, Planner};
use crate::Choice;
use crate::disk::Found;
use crate::error::FilesError;
use crate::merge::{self, MAX_DIFF};
use crate::path::TreePath;
use crate::sides::{Content, Live, Target, TargetNode, told};

impl Planner<'_> {
    /// Reports the difference of a path.
    pub(super) fn tell(
        &self,
        path: &TreePath,
        target: &Target,
        live: &Live<'_>,
        plan: &mut Plan,
    ) -> Result<(), FilesError> {
        let text = if self.tell == Tell::Nothing || plan.told.len() >= MAX_TOLD {
            String::new()
        } else if target.secret {
            format!("{path}: its content, which holds a secret, differs\n")
        } else if self.held_secret(path) {
            format!("{path}: its content, which held a secret, differs\n")
        } else {
            let here: Option<&[u8]> = match live.found {
                Found::File { size, .. } if *size <= MAX_DIFF => Some(live.content()?),
                Found::Link { target } => Some(target.as_slice()),
                Found::File { size, .. } => {
                    plan.note(path, &format!("{path} has {size} bytes\n"));
                    return Ok(());
                }
                Found::Absent | Found::Folder { .. } | Found::Other => None,
            };
            let most = MAX_TOLD - plan.told.len();
            match (&target.node, here) {
                (TargetNode::File(bytes), here)
                    if !matches!(live.found, Found::Link { .. })
                        && (self.wanted.holds_secret(here.unwrap_or_default()) || self.wanted.holds_secret(bytes)) =>
                {
                    format!("{path}: its content, which contains the value of a secret, differs\n")
                }
                (TargetNode::File(bytes), here) if !matches!(live.found, Found::Link { .. }) => {
                    merge::diff(here, Some(bytes), &path.to_string(), most)
                }
                (_, _) => format!("{path} is {}, but the model wants {}\n", told(live.found), target.told()),
            }
        };
        plan.note(path, &text);
        Ok(())
    }

    /// Whether the report shows the text to be written, merged with changes by others, and not the wanted text.
    pub(super) fn tells_written(&self, path: &TreePath, target: &Target) -> bool {
        self.tell == Tell::Written && target.shared && !target.secret && !self.held_secret(path)
    }

    /// Reports the difference between the present text and the text to be written.
    pub(super) fn tell_written(
        &self,
        path: &TreePath,
        target: &Target,
        live: &Live<'_>,
        content: &Content,
        plan: &mut Plan,
    ) -> Result<(), FilesError> {
        let written: Option<&[u8]> = match (content, &target.node) {
            (Content::Live, _) => return Ok(()),
            (Content::Merged(bytes), _) => Some(bytes),
            (Content::Target, TargetNode::File(bytes)) => Some(bytes),
            (Content::Target, TargetNode::Absent) => None,
            (Content::Target, TargetNode::Link(_) | TargetNode::Folder | TargetNode::Stored { .. }) => {
                return self.tell(path, target, live, plan);
            }
        };
        let here = match live.found {
            Found::File { size, .. } if *size <= MAX_DIFF => Some(live.content()?),
            Found::Absent => None,
            Found::File { .. } | Found::Folder { .. } | Found::Link { .. } | Found::Other => {
                return self.tell(path, target, live, plan);
            }
        };
        let here: Option<&[u8]> = here.map(|text| &**text);
        if [here, written].into_iter().flatten().any(|text| self.wanted.holds_secret(text)) {
            return self.tell(path, target, live, plan);
        }
        if here != written && plan.told.len() < MAX_TOLD {
            let text = merge::diff(here, written, &path.to_string(), MAX_TOLD - plan.told.len());
            plan.note(path, &text);
        }
        Ok(())
    }

    /// Reports a conflict that is decided: by the model (`by_model`), or by a person.
    pub(super) fn tell_decided(&self, path: &TreePath, what: &str, choice: &Choice, by_model: bool, plan: &mut Plan) {
        if self.tell == Tell::Nothing {
            return;
        }
        let word = match choice {
            Choice::Ours => "ours",
            Choice::Theirs => "theirs",
            Choice::Edited(_) => "an edited text",
        };
        let by = if by_model { ", by the model" } else { "" };
        plan.decided.push_str(&format!("conflict in {path}: {what}; decided: {word}{by}\n"));
    }
}

/// The kind of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    /// No report: the plan is about to be carried out.
    Nothing,
    /// The difference between the disk and the wanted tree.
    Wanted,
    /// The same, but for shared files the text to be written.
    Written,
}
