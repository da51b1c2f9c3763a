//! The status line of the daemon for the service manager, which `cobctl install` and `upgrade` read.

/// A daemon that looks for its first generation; the reason follows.
const WAITS: &str = "waits for its first generation";
/// A daemon without a generation; its links follow.
pub const NO_GENERATION: &str = "no generation yet";
/// The word of a host that has converged.
pub const CONVERGED: &str = "converged";

/// The line of a daemon that looks for its first generation.
#[must_use]
pub fn waits(why: &str) -> String {
    format!("{WAITS}: {why}")
}

/// Whether the line says that the host has converged, or has no generation yet.
#[must_use]
pub fn is_settled(line: &str) -> bool {
    line.split(", ").any(|part| part == CONVERGED) || [WAITS, NO_GENERATION].iter().any(|begin| line.starts_with(begin))
}

/// The line without the reason of a wait, which is the same on all new hosts.
#[must_use]
pub fn short(line: &str) -> &str {
    line.strip_prefix(WAITS).filter(|rest| rest.starts_with(':')).map_or(line, |_| WAITS)
}
