//! The kind `service`: a unit of systemd, or a program that commands start and stop.

use super::{Builtin, Entry};

/// The folder for administrators' systemd units.
pub const UNITS: &str = "/etc/systemd/system";
/// The endings of unit names.
pub const UNIT_TYPES: [&str; 8] = ["service", "socket", "timer", "mount", "automount", "path", "target", "swap"];

/// The kind. A restart is a stop and a start, so that all dependents that require it are off in between by the ordinary
/// rules: there is no transition outdated -> up.
pub(super) const SERVICE: Entry = Entry::without_content(Builtin {
    states: &["down", "up", "outdated", "failed"],
    transitions: &[("down", "up"), ("up", "down"), ("outdated", "down"), ("failed", "up"), ("failed", "down")],
    interval_ms: Some(10_000),
    ..Builtin::program("service")
});

/// The name of a unit with its ending; the default is `.service`.
#[must_use]
pub fn full_unit_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((_, ending)) if UNIT_TYPES.contains(&ending) => name.to_owned(),
        Some(_) | None => format!("{name}.service"),
    }
}
