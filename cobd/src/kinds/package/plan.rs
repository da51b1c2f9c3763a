//! The effects of a transaction on the packages of a host, read from a simulation before any change.

use std::collections::{BTreeMap, BTreeSet};

use cob_kinds::Package;

use super::version::{by_dpkg, by_rpm};

/// The effect on a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// It is installed, in this version.
    Install(String),
    /// Its version changes.
    Replace {
        /// The installed version.
        from: String,
        /// The new version.
        to: String,
        /// Whether the new version is older.
        older: bool,
    },
    /// It is removed.
    Remove,
}

/// A simulated transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    changes: Vec<(String, Change)>,
}

impl Plan {
    /// Parses the output of `apt-get -s`: lines `Inst NAME [OLD] (NEW ...`, `Remv NAME [OLD]` and `Purg NAME [OLD]`.
    pub(super) fn of_apt(told: &str) -> Self {
        let bare = |word: &str| word.trim_matches(['[', ']', '(', ')']).to_owned();
        let read = |line: &str| {
            let (verb, rest) = line.split_once(' ')?;
            let mut words = rest.split_whitespace();
            let name = words.next()?.to_owned();
            let change = match (verb, words.next()) {
                ("Inst", Some(first)) if first.starts_with('[') => {
                    let (from, to) = (bare(first), words.find(|word| word.starts_with('(')).map(bare)?);
                    let older = by_dpkg(&to, &from).is_lt();
                    Change::Replace { from, to, older }
                }
                ("Inst", Some(version)) => Change::Install(bare(version)),
                ("Remv" | "Purg", _) => Change::Remove,
                _ => return None,
            };
            Some((name, change))
        };
        Self { changes: told.lines().filter_map(read).collect() }
    }

    /// Parses the table that dnf shows before its question: a heading, followed by a line per package with an indent of
    /// one space. `there` are the installed versions.
    pub(super) fn of_dnf(told: &str, there: &BTreeMap<String, String>) -> Self {
        let (mut changes, mut heading) = (Vec::new(), "");
        for line in told.lines() {
            let Some(entry) = line.strip_prefix(' ') else {
                heading = if line.is_empty() { heading } else { line.trim_end() };
                continue;
            };
            let mut words = entry.split_whitespace();
            // A line with a larger indent belongs to the entry before it.
            if entry.starts_with(' ') {
                if words.next() == Some("replacing")
                    && let Some((name, _)) = words.next().and_then(|word| word.rsplit_once('.'))
                {
                    changes.push((name.to_owned(), Change::Remove));
                }
                continue;
            }
            let Some(name) = words.next().map(str::to_owned) else { continue };
            let version = words.nth(1).unwrap_or("another version").to_owned();
            let replace = |older, to| {
                let from = there.get(&name).cloned().unwrap_or_default();
                Change::Replace { from, to, older }
            };
            let change = match heading {
                "Installing:" | "Installing dependencies:" | "Installing weak dependencies:" => {
                    Change::Install(version)
                }
                "Upgrading:" => replace(false, version),
                "Downgrading:" => replace(true, version),
                "Removing:" | "Removing dependent packages:" | "Removing unused dependencies:" => Change::Remove,
                _ => continue,
            };
            changes.push((name, change));
        }
        Self { changes }
    }

    /// Parses the XML of `zypper --xmlout`: below a heading, a line per package.
    pub(super) fn of_zypper(told: &str) -> Self {
        let (mut changes, mut heading) = (Vec::new(), "");
        for line in told.lines().map(str::trim) {
            let value = |key: &str| attribute(line, key);
            match line.strip_prefix("<solvable ") {
                None => heading = if line.starts_with("<to-") { line } else { heading },
                Some(_) if value("type").as_deref() != Some("package") => {}
                Some(_) => {
                    let (Some(name), Some(to)) = (value("name"), value("edition")) else { continue };
                    let from = value("edition-old").unwrap_or_default();
                    let change = match heading {
                        "<to-install>" => Change::Install(to),
                        "<to-remove>" => Change::Remove,
                        "<to-reinstall>" => continue,
                        _ => Change::Replace { older: by_rpm(&to, &from).is_lt(), from, to },
                    };
                    changes.push((name, change));
                }
            }
        }
        Self { changes }
    }

    /// The packages that would be installed.
    pub(super) fn coming(&self) -> BTreeSet<String> {
        let comes = |(_, change): &&(String, Change)| matches!(change, Change::Install(_));
        self.changes.iter().filter(comes).map(|(name, _)| name.clone()).collect()
    }

    /// The packages that would be removed.
    pub(super) fn going(&self) -> BTreeSet<String> {
        let goes = |(_, change): &&(String, Change)| *change == Change::Remove;
        self.changes.iter().filter(goes).map(|(name, _)| name.clone()).collect()
    }

    /// Whether a package would change to an older version.
    pub(super) fn has_downgrade(&self) -> bool {
        self.changes.iter().any(|(_, change)| matches!(change, Change::Replace { older: true, .. }))
    }

    /// The effects of the installation of package `own` on other packages that the model does not allow, as text.
    /// `held` are on hold.
    pub(super) fn faults(&self, own: &str, content: &Package, held: &BTreeSet<String>) -> Vec<String> {
        let fault = |(name, change): &(String, Change)| match change {
            Change::Remove if !content.may_remove.contains(name) => Some(format!("remove {name}")),
            Change::Replace { from, to, .. } if held.contains(name) => {
                Some(format!("change {name}, which is on hold, from {from} to {to}"))
            }
            Change::Replace { from, to, older: true } if !content.may_downgrade.contains(name) => {
                Some(format!("downgrade {name} from {from} to {to}"))
            }
            Change::Install(_) | Change::Replace { .. } | Change::Remove => None,
        };
        self.changes.iter().filter(|(name, _)| name != own).filter_map(fault).collect()
    }
}

/// The value of an attribute in a line of XML.
pub(super) fn attribute(line: &str, key: &str) -> Option<String> {
    let (value, _) = line.split_once(&format!(" {key}=\""))?.1.split_once('"')?;
    Some(value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of apt 2.6.
    const TOLD: &str = "\
NOTE: This is only a simulation!
Reading package lists...
The following packages will be REMOVED:
  cctool
Remv cctool [1.0] [libold:i386 ]
Purg ccdata [2.0]
Inst cclib [1.0] (2.0 localhost [all]) []
Inst ccdown [1:2.0-1] (1:1.9-5 cob:stable [amd64])
Inst libnew:i386 (3.1 cob:stable [i386])
Conf cclib (2.0 localhost [all])
";

    fn content(keys: &str) -> Package {
        cob_kinds::read(&format!(r#"{{"name":"cclib"{keys}}}"#)).expect("good")
    }

    #[test]
    fn a_simulation_of_apt_is_read() {
        let plan = Plan::of_apt(TOLD);
        assert_eq!(plan.coming(), ["libnew:i386".to_owned()].into());
        assert_eq!(plan.going(), ["cctool".to_owned(), "ccdata".to_owned()].into());
        assert!(plan.has_downgrade());
        assert_eq!(plan.changes.len(), 5);
        assert_eq!(Plan::of_apt("0 upgraded, 0 newly installed, 0 to remove.\n"), Plan::default());
    }

    #[test]
    fn the_table_of_dnf_is_read() {
        let told = "\
Dependencies resolved.
================================================================================
 Package         Architecture   Version            Repository              Size
================================================================================
Installing:
 cobtest         noarch         2.0-1              cob                    6.4 k
     replacing  cobold.noarch 1.0-1
Installing dependencies:
 cobdep          noarch         1.0-1              cob                    6.3 k
 a-very-long-name-of-a-package-that-needs-a-line-of-its-own
                 noarch         1.0-1              cob                    6.3 k
Downgrading:
 coblib          noarch         1.0-1              cob                    6.3 k
Removing dependent packages:
 cobtool         noarch         1.0-1              @cob                   6.3 k

Transaction Summary
================================================================================
Install  3 Packages
";
        let plan = Plan::of_dnf(told, &[("coblib".to_owned(), "2.0-1".to_owned())].into());
        let coming = ["a-very-long-name-of-a-package-that-needs-a-line-of-its-own", "cobdep", "cobtest"];
        assert_eq!(plan.coming(), coming.map(str::to_owned).into());
        assert_eq!(plan.going(), ["cobold".to_owned(), "cobtool".to_owned()].into());
        let faults = plan.faults("cobtest", &content(""), &BTreeSet::new());
        assert_eq!(faults, ["remove cobold", "downgrade coblib from 2.0-1 to 1.0-1", "remove cobtool"]);
        assert_eq!(Plan::of_dnf("Nothing to do.\n", &BTreeMap::new()), Plan::default());
    }

    #[test]
    fn a_simulation_of_zypper_is_read() {
        let told = "\
<install-summary download-size=\"1\" packages-to-change=\"5\">
<to-install>
<solvable type=\"package\" name=\"cobtest\" edition=\"2.0-1\" arch=\"noarch\" summary=\"a &lt;to-remove&gt;\">
<description>a test</description></solvable>
<solvable type=\"pattern\" name=\"base\" edition=\"1-1\" arch=\"noarch\"/>
</to-install>
<to-upgrade>
<solvable type=\"package\" name=\"cobdep\" edition=\"2.0-1\" arch=\"noarch\" edition-old=\"1.0-1\" arch-old=\"noarch\"/>
</to-upgrade>
<to-downgrade>
<solvable type=\"package\" name=\"coblib\" edition=\"1.0-1\" arch=\"noarch\" edition-old=\"2.0-1\" arch-old=\"noarch\"/>
</to-downgrade>
<to-reinstall>
<solvable type=\"package\" name=\"cobsame\" edition=\"1.0-1\" arch=\"noarch\" edition-old=\"1.0-1\"/>
</to-reinstall>
<to-remove>
<solvable type=\"package\" name=\"cobold\" edition=\"1.0-1\" arch=\"noarch\"/>
</to-remove>
</install-summary>
";
        let plan = Plan::of_zypper(told);
        assert_eq!(plan.coming(), ["cobtest".to_owned()].into());
        assert_eq!(plan.going(), ["cobold".to_owned()].into());
        let faults = plan.faults("cobtest", &content(""), &BTreeSet::new());
        assert_eq!(faults, ["downgrade coblib from 2.0-1 to 1.0-1", "remove cobold"]);
        assert_eq!(plan.changes.len(), 4);
        assert_eq!(Plan::of_zypper("<message type=\"info\">Nothing to do.</message>\n"), Plan::default());
    }

    #[test]
    fn a_package_change_that_the_model_does_not_allow_is_named() {
        let plan = Plan::of_apt(TOLD);
        let held = ["ccdown".to_owned()].into();
        let none = BTreeSet::new();
        assert_eq!(
            plan.faults("cclib", &content(""), &none),
            ["remove cctool", "remove ccdata", "downgrade ccdown from 1:2.0-1 to 1:1.9-5"]
        );
        let allowed = content(r#","may_remove":["cctool","ccdata"],"may_downgrade":["ccdown"]"#);
        assert_eq!(plan.faults("cclib", &allowed, &none), [""; 0]);
        // A user's hold on another package blocks the transaction.
        let faults = plan.faults("cclib", &allowed, &held);
        assert_eq!(faults, ["change ccdown, which is on hold, from 1:2.0-1 to 1:1.9-5"]);
    }
}
