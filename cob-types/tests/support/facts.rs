//! Facts of entries whose tests write only the text, in the form of the daemon.

use super::{CobId, Facts, GenerationNumber, HistoryEntry};

/// The entry with the facts of its text: `to generation 8, by ann`, `from generation 8 to 7`, `generation 8, back to 7:
/// ordered by ann`, `for everybody`, `n2/app@up|on`, `to n2/app (1.7)`.
pub(crate) fn with_facts(entry: HistoryEntry) -> HistoryEntry {
    let (event, detail) = (entry.event.as_str(), entry.detail.as_str());
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().map(GenerationNumber);
    let target = if event == "return" { detail.split_once(" to ") } else { detail.split_once("generation ") };
    let why = detail.split_once(": ").and_then(|(_, why)| why.strip_prefix("ordered"));
    let name = match event {
        "grant" => detail.strip_prefix("to ").unwrap_or_default(),
        "returned" => detail.strip_prefix("by ").unwrap_or_default(),
        "request" => detail.rsplit_once('@').map_or(detail, |(of, _)| of),
        _ => detail,
    };
    let by = detail.strip_prefix("by ").or_else(|| detail.split_once(", by ").map(|(_, by)| by));
    let facts = Facts {
        generation: target.and_then(|(_, rest)| number(rest)),
        by: by.map(str::to_owned),
        other: CobId::new(name.split_once(" (").map_or(name, |(name, _)| name)).ok(),
        ordered: why.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ','])),
        everywhere: detail.starts_with("for everybody"),
    };
    HistoryEntry { facts: Some(facts), ..entry }
}
