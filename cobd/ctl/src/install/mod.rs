//! Installs the daemon on a host: the present state, the next step, and the scripts that perform it.
//!
//! ```text
//!   look ---> [facts] ---> [steps]: the next step ---> a script ---+
//!               ^                                                  |
//!               +------------------ looks again <------------------+
//! ```
//!
//! Each script looks again at its end, so each step follows from the host's report and never from earlier steps. So a
//! run may break off at any point and can be repeated.

pub mod artefact;
pub mod facts;
pub mod machine;
pub mod steps;

/// Functions that all scripts use.
const COMMON: &str = include_str!("common.sh");

/// The scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Reads the facts.
    Look,
    /// Installs a package.
    Package,
    /// Installs a program and its unit.
    Program,
    /// Enrols the host.
    Join,
    /// Starts the daemon.
    Start,
}

impl Script {
    /// Its text.
    #[must_use]
    pub fn text(self) -> String {
        let own = match self {
            Self::Look => include_str!("look.sh"),
            Self::Package => include_str!("package.sh"),
            Self::Program => include_str!("program.sh"),
            Self::Join => include_str!("join.sh"),
            Self::Start => include_str!("start.sh"),
        };
        // The host does not need the comments.
        let lines = COMMON.lines().chain(own.lines()).filter(|line| !line.trim_start().starts_with('#'));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_well_formed_and_read_by_other_shells_too() {
        for script in [Script::Look, Script::Package, Script::Program, Script::Join, Script::Start] {
            let text = script.text();
            // fish interprets these two sequences inside quotes.
            assert!(!text.contains("\\'") && !text.contains("\\\\"), "{script:?}");
            let checked = std::process::Command::new("sh").args(["-n", "-c", &text]).status().expect("sh");
            assert!(checked.success(), "{script:?}");
        }
    }
}
