//! Installing the daemon on a host: what is there, what is missing, and the scripts that bring it about.
//!
//! ```text
//!   look ---> [facts] ---> [steps]: the next step ---> a script ---+
//!               ^                                                  |
//!               +------------------ looks again <------------------+
//! ```
//!
//! Each script looks again at its end, so a step is made because of what the host says and never because of what was done
//! before. That is why a run may break off anywhere and is given again.

pub mod artefact;
pub mod facts;
pub mod machine;
pub mod steps;

/// Words that all scripts have.
const COMMON: &str = include_str!("common.sh");

/// The scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Looks.
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
        // Comments are for those who read them here.
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
            // In quotes, fish takes these two for something else.
            assert!(!text.contains("\\'") && !text.contains("\\\\"), "{script:?}");
            let checked = std::process::Command::new("sh").args(["-n", "-c", &text]).status().expect("sh");
            assert!(checked.success(), "{script:?}");
        }
    }
}
